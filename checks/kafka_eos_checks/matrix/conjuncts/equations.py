r"""Equations of numbers in a property, made weaker: ``a = b`` becomes ``a <= b``, and ``a >= b``.

Only an equation that makes the whole property weaker is changed (``polarity``): none in the condition of an
implication, or in the set that a variable ranges over. Under ``\E`` one is changed, too: whatever meets the equation
meets the inequality, so the property is weaker. If the equation chooses a record, the mutant that notices has lost the
chosen one and kept another. ``a = 0`` becomes ``a >= 0`` alone, since a number below zero stands for none. Of other
kinds of values, as sets, neither side may be the larger.
"""

from collections.abc import Callable, Iterator, Mapping

from kafka_eos_checks.matrix.conjuncts.guards import on_one_line
from kafka_eos_checks.matrix.conjuncts.polarity import signed
from kafka_eos_checks.tla.sany import CONDITIONAL, QUANTIFIERS, Definition, Expression, Span

_COMPARISONS = frozenset({"<", ">", "\\leq", "\\geq", ".."})
_ARITHMETIC = frozenset({"+", "-", "-.", "*", "%", "\\div"})
_NUMBERS = _ARITHMETIC | {"Len", "Cardinality"}
_EQUATIONS = frozenset({"=", "/="})
_CHOICES = frozenset({"$BoundedChoose", "$UnboundedChoose"})
_FIELD, _PAIR, _PRIME = "$RcdSelect", "$Pair", "'"
_OF_ANY_KIND = _CHOICES | {_FIELD, CONDITIONAL, "$FcnApply", "$Case"}


class Numbers:
    """Tells which expressions are numbers, from how a module and those that it needs use them.

    Sums and lengths are, and so are the fields of records that are compared with ``<`` or with a number anywhere. A
    field is none if it is a string, a set, a record or a sequence in any place.

    Args:
        definitions: by id, the definitions of a module and of those that it needs.
        texts: module -> text, for the modules whose text is at hand.
    """

    def __init__(self, definitions: Mapping[str, Definition], texts: Mapping[str, str]) -> None:
        self._definitions, self._texts = definitions, texts
        self._fields: set[str] = set()
        parts = [part for each in definitions.values() for part in each.body.walk() if part.span.module in texts]
        others = {name for part in parts for name in self._shown(part, self._is_no_number)}
        for part in parts:
            if part.operator in _ARITHMETIC | _COMPARISONS:
                self._fields |= {name for operand in part.operands if (name := self._field(operand))}
            self._fields |= set(self._shown(part, self.is_number))
        self._fields -= others

    def is_number(self, expression: Expression, within: frozenset[str] = frozenset()) -> bool:
        """Whether an expression is a number for certain."""
        if expression.operator == CONDITIONAL:
            return any(self.is_number(branch, within) for branch in expression.operands[1:])
        if expression.local:
            return self.is_number(expression.body, within)
        if expression.operator == _PRIME:
            return self.is_number(expression.operands[0], within)
        if expression.operator in _NUMBERS or self._written(expression).isdecimal() or _is_extreme(expression):
            return True
        if expression.operator == _FIELD:
            return self._field(expression) in self._fields
        uid = expression.definition
        if uid not in self._definitions or uid in within:
            return False
        return self.is_number(self._definitions[uid].body, within | {uid})

    def _shown(self, part: Expression, test: Callable[[Expression], bool]) -> Iterator[str]:
        """The fields that an equation or a record gives a value for which a test is true."""
        if part.operator in _EQUATIONS:
            for one, other in (part.operands, reversed(part.operands)):
                if (name := self._field(one)) and test(other):
                    yield name
        elif part.operator == _PAIR and test(part.operands[1]):
            selector = part.operands[0]  # of ``![place].field = …``, or the field of ``field |-> …``
            given = selector.operands[-1] if selector.operands else selector
            if given.is_string:
                yield self._written(given)

    @staticmethod
    def _is_no_number(expression: Expression) -> bool:
        """Whether an expression shows itself as something else."""
        other = expression.operator.startswith("$") and expression.operator not in _OF_ANY_KIND
        return expression.is_string or other

    def _field(self, expression: Expression) -> str:
        """The field that an expression selects, primed or not; "" for others."""
        if expression.operator == _PRIME:
            return self._field(expression.operands[0])
        return self._written(expression.operands[1]) if expression.operator == _FIELD else ""

    def _written(self, expression: Expression) -> str:
        text = self._texts.get(expression.span.module)
        return on_one_line(text, expression.span) if text else ""


def _is_extreme(expression: Expression) -> bool:
    r"""Whether an expression is the least or the greatest of a set, ``CHOOSE x \in S : \A y \in S : x <= y``."""
    if expression.operator not in _CHOICES or expression.body.operator not in QUANTIFIERS:
        return False
    order = expression.body.body
    return order.operator in _COMPARISONS and not any(operand.operands for operand in order.operands)


def of_equations(
    expression: Expression, text: str, is_number: Callable[[Expression], bool]
) -> Iterator[tuple[Span, str]]:
    """The equations of numbers that become inequalities, where a formula becomes weaker by it.

    Args:
        expression: the formula.
        text: the text of its module.
        is_number: whether an expression is a number for certain; one side is enough, since both are of one kind.

    Yields:
        A place, and the text that replaces it.
    """
    for part, is_positive in signed(expression):
        if part.operator == "=" and is_positive and any(map(is_number, part.operands)):
            first, second = (on_one_line(text, operand.span) for operand in part.operands)
            for other in ("<=", ">=") if second != "0" else (">=",):
                yield part.span, f"{first} {other} {second}"
