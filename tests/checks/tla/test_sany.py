"""The trees that SANY's output is read into."""

from kafka_eos_checks.tla.sany import NOWHERE, Expression


def test_an_expression_consists_of_itself_its_bounds_and_its_operands() -> None:
    bound, body = (Expression(span=NOWHERE, level=0, operator=name) for name in ("S", "P"))
    every = Expression(span=NOWHERE, level=0, operator="$BoundedForall", operands=(body,), bounds=(bound,))
    assert every.body is body
    assert [part.operator for part in every.walk()] == ["$BoundedForall", "S", "P"]
