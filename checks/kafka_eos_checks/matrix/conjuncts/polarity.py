r"""The parts of a formula that make it weaker when they become weaker, or stronger: their polarity.

A conjunct, a disjunct, what follows from an implication and the body of a quantifier are positive: the formula becomes
weaker with them. The condition of an implication and what stands under ``~`` are the other way round. The condition of
an ``IF`` is neither.
"""

from collections.abc import Iterator

from kafka_eos_checks.tla.sany import CONDITIONAL, CONJUNCTION, DISJUNCTION, IMPLICATION, QUANTIFIERS, Expression

_ALIKE = CONJUNCTION | DISJUNCTION | {"[]", "<>"}
_NOT = "\\lnot"


def signed(expression: Expression, is_positive: bool = True) -> Iterator[tuple[Expression, bool]]:
    """The parts of a formula, each with whether the formula becomes weaker when the part does; else when it does not.

    Args:
        expression: the formula.
        is_positive: whether a larger one becomes weaker with this formula.
    """
    yield expression, is_positive
    inner: list[tuple[Expression, bool]] = []
    if expression.operator in _ALIKE:
        inner = [(operand, is_positive) for operand in expression.operands]
    elif expression.operator in QUANTIFIERS or expression.local:
        inner = [(expression.body, is_positive)]
    elif expression.operator in {IMPLICATION, "~>"}:
        inner = [(expression.operands[0], not is_positive), (expression.operands[1], is_positive)]
    elif expression.operator == CONDITIONAL:
        inner = [(branch, is_positive) for branch in expression.operands[1:]]
    elif expression.operator == _NOT:
        inner = [(expression.body, not is_positive)]
    for operand, sign in inner:
        yield from signed(operand, sign)
