r"""Sets in a property that become larger, or smaller, where that makes the property weaker.

``x \in S`` is weaker with a larger S, so S gets each other string that the module gives to this field or variable. And
``x = "v"`` says ``x \in {"v"}``: this set gets the others if they are few, and otherwise becomes each set with a name
that has v, since of many other values most are alike. A range goes on at either end, and a filter loses its conjuncts.
A range that ``\A`` is about loses an end, except ``1..Len(s)``, which is a domain. Other sets that have to become
smaller are left to the operators in them (``changes``).
"""

from collections.abc import Iterator, Mapping, Set

from kafka_eos_checks.matrix.conjuncts.guards import of_formula, on_one_line
from kafka_eos_checks.matrix.conjuncts.polarity import signed
from kafka_eos_checks.tla.sany import CONDITIONAL, ENUMERATION, QUANTIFIERS, Definition, Expression, Span

_FOR_ALL, _FILTER, _MAP, _RANGE, _UNION, _MINUS = "$BoundedForall", "$SubsetOf", "$SetOfAll", "..", "\\union", "\\"
_FIELD, _PAIR, _PRIME, _APPLIED = "$RcdSelect", "$Pair", "'", "$FcnApply"
_RECORD, _EXCEPT, _FUNCTION, _CASE = "$RcdConstructor", "$Except", "$FcnConstructor", "$Case"
_IN, _NOT_IN = "\\in", "\\notin"
_MEMBERS = {"=": _IN, "/=": _NOT_IN}
_FEW = 4
_Owner = tuple[str, str]  # a variable, or a parameter, and its field; "" for the variable itself


class Values:
    """The strings that a module and those that it needs give to a field or a variable, or compare it with.

    The fields of one name have the same strings if they have one in common: a parameter is one of the variables. Two
    kinds of records may both have a state.

    Args:
        definitions: by id, the definitions of a module and of those that it needs.
        texts: module -> text, for the modules whose text is at hand.
    """

    def __init__(self, definitions: Mapping[str, Definition], texts: Mapping[str, str]) -> None:
        self._definitions, self._texts = definitions, texts
        self._given: dict[_Owner, set[str]] = {}
        for part in (part for each in definitions.values() for part in each.body.walk() if part.span.module in texts):
            for owner, value in self._shown(part):
                self._given.setdefault(owner, set()).update(self.certain(value, anyhow=True))

    def of(self, expression: Expression) -> Set[str]:
        """The strings that an expression may have as its value, as they are written."""
        found: set[str] = set()
        for result in self._results(expression, anyhow=True):
            found |= {self._written(result)} if result.is_string else self._alike(self._owner(result))
        return found

    def certain(self, expression: Expression, anyhow: bool = False) -> Set[str]:
        """The strings that a set has in every state; with ``anyhow`` those that it, or an expression, has in some."""
        return {self._written(each) for each in self._results(expression, anyhow) if each.is_string}

    def named(self, module: str, value: str) -> Iterator[str]:
        """The names of the sets in a module that have this string and others."""
        for each in self._definitions.values():
            is_set = each.body.span.module == module and each.body.operator in {ENUMERATION, _UNION}
            if is_set and {value} < self.certain(each.body):
                yield each.name

    def _alike(self, owner: _Owner) -> Set[str]:
        """The strings of a field, and of the fields of this name that have one in common with it."""
        found = set(self._given.get(owner, ()))
        others = [given for (_, field), given in self._given.items() if field == owner[1] != ""]
        while more := [given for given in others if not (given <= found or given.isdisjoint(found))]:
            found.update(*more)
        return found

    def _shown(self, part: Expression) -> Iterator[tuple[_Owner, Expression]]:
        """The owners that a part gives a value, or compares with one."""
        if part.operator in _MEMBERS:
            one, other = part.operands
            yield from ((self._owner(one), other), (self._owner(other), one))
        elif part.operator in {_IN, _NOT_IN}:
            yield self._owner(part.operands[0]), part.operands[1]
        elif part.operator in {_RECORD, _EXCEPT}:
            name = self._base(part.operands[0]) if part.operator == _EXCEPT else f"{part.span}"
            for pair in (operand for operand in part.operands if operand.operator == _PAIR):
                selector, value = pair.operands
                given = selector.operands[-1] if selector.operands else selector
                yield (name, self._written(given) if given.is_string else ""), value

    def _results(
        self, expression: Expression, anyhow: bool, within: frozenset[str] = frozenset()
    ) -> Iterator[Expression]:
        """The values that an expression has, or the elements of a set; with ``anyhow`` those under a condition, too."""
        operator, inner = expression.operator, [expression]
        if expression.local or operator == _FUNCTION:
            inner = [expression.body]
        elif operator in {ENUMERATION, _UNION}:
            inner = [*expression.operands]
        elif operator == CONDITIONAL:
            inner = [*expression.operands[1:]] if anyhow else []
        elif operator == _CASE:
            inner = [pair.operands[1] for pair in expression.operands] if anyhow else []
        elif (uid := expression.definition) in self._definitions:
            inner, within = ([] if uid in within else [self._definitions[uid].body]), within | {uid}
        for each in inner:
            if each is expression:
                yield each
            else:
                yield from self._results(each, anyhow, within)

    def _owner(self, expression: Expression) -> _Owner:
        """The variable and the field that an expression selects."""
        if expression.operator in {_PRIME, _APPLIED}:
            return self._owner(expression.operands[0])
        if expression.operator == _FIELD:
            return self._base(expression.operands[0]), self._written(expression.operands[1])
        return self._base(expression), ""

    def _base(self, expression: Expression) -> str:
        """The last name of the record that an expression is."""
        if expression.operator in {_PRIME, _APPLIED}:
            return self._base(expression.operands[0])
        if expression.operator == _FIELD:
            return self._written(expression.operands[1])
        if expression.definition in self._definitions:
            body = self._definitions[expression.definition].body
            return self._base(body) if body.operator in {_PRIME, _APPLIED, _FIELD} else expression.operator
        return expression.operator

    def _written(self, expression: Expression) -> str:
        text = self._texts.get(expression.span.module)
        return on_one_line(text, expression.span) if text else ""


class _Sets:
    """The changes of the sets in one formula.

    Args:
        text: the text of its module.
        values: the strings of the module.
    """

    def __init__(self, text: str, values: Values) -> None:
        self._text, self._values = text, values

    def of_formula(self, formula: Expression, is_positive: bool = True) -> Iterator[tuple[Span, str]]:
        """The changes that make a formula weaker, or stronger if it is not positive."""
        for part, sign in signed(formula, is_positive):
            if part.operator in _MEMBERS:
                yield from self._of_equation(part, sign)
            elif part.operator in {_IN, _NOT_IN}:
                is_larger = sign == (part.operator == _IN)
                yield from self._of_set(part.operands[1], is_larger)
                if is_larger and not part.operands[0].is_string:
                    yield from self._with_others(*part.operands)
            elif part.operator == "\\subseteq":
                yield from self._of_set(part.operands[0], not sign)
                yield from self._of_set(part.operands[1], sign)
            elif part.operator in QUANTIFIERS:
                for bound in part.bounds:
                    yield from self._of_set(bound, sign != (part.operator == _FOR_ALL))

    def _of_equation(self, part: Expression, sign: bool) -> Iterator[tuple[Span, str]]:
        """An equation is about a set of one value, or about a set that has none."""
        first, second = part.operands
        if second.operator == ENUMERATION and not second.operands:
            yield from self._of_set(first, sign != (part.operator == "="))
        elif second.is_string and sign == (part.operator == "="):
            one, other = self._written(first), self._written(second)
            values = sorted(self._values.of(first) - {other})
            larger = [f"{{{other}, {value}}}" for value in values]
            for among in larger if len(values) <= _FEW else self._values.named(part.span.module, other):
                yield part.span, f"{one} {_MEMBERS[part.operator]} {among}"

    def _with_others(self, element: Expression, among: Expression) -> Iterator[tuple[Span, str]]:
        """A set of strings gets another one."""
        written = self._written(among)
        for value in sorted(self._values.of(element) - self._values.certain(among)):
            more = f"{written[:-1]}, {value}}}" if among.operator == ENUMERATION else f"{written} \\cup {{{value}}}"
            yield among.span, more

    def _of_set(self, each: Expression, is_larger: bool) -> Iterator[tuple[Span, str]]:
        """The changes that make a set larger, or smaller."""
        if each.operator == _RANGE and each.operands[1].operator != "Len":
            first, last = map(self._written, each.operands)
            step = -1 if is_larger else 1
            yield each.span, f"{_moved(first, step)}..{last}"
            yield each.span, f"{first}..{_moved(last, -step)}"
        elif each.operator in {_UNION, "\\intersect"}:
            for operand in each.operands:
                yield from self._of_set(operand, is_larger)
        elif each.operator == _MINUS:
            yield from self._of_set(each.operands[0], is_larger)
            yield from self._of_set(each.operands[1], not is_larger)
        elif each.operator in {_FILTER, _MAP}:
            for bound in each.bounds:
                yield from self._of_set(bound, is_larger)
            if each.operator == _FILTER:
                if is_larger:
                    yield from ((span, value) for span, value in of_formula(each.body) if value == "TRUE")
                yield from self.of_formula(each.body, is_larger)

    def _written(self, expression: Expression) -> str:
        return on_one_line(self._text, expression.span)


def _moved(end: str, by: int) -> str:
    """The end of a range, one further."""
    return str(int(end) + by) if end.isdecimal() else f"({end} {'+' if by > 0 else '-'} 1)"


def of_sets(expression: Expression, text: str, values: Values) -> Iterator[tuple[Span, str]]:
    """The sets in a formula that become larger or smaller, where the formula becomes weaker by it.

    Args:
        expression: the formula.
        text: the text of its module.
        values: the strings of the module.

    Yields:
        A place, and the text that replaces it.
    """
    return _Sets(text, values).of_formula(expression)
