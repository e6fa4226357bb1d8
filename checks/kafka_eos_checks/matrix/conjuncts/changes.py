r"""The small changes of a spec that are not conjuncts of guards: of operands, of effects and of fairness.

=============================  =============================================================
the part                       its replacement
=============================  =============================================================
``a < b``, ``a > b``           ``a <= b``, ``a >= b``: equal values count too; also the reverse
``a + b``, ``a - b``           ``a``
``a \cup b``, ``a \o b``       ``a``; of ``Append(a, b)`` as well
``\A x : p``                   ``\E x : p``, and the reverse
``v' = e``                     ``v' = v``: the effect does not take place
``IF p THEN a ELSE b``         ``p`` is TRUE, and FALSE
``WF_v(A)``, ``SF_v(A)``       ``TRUE``: nobody has to take the step
=============================  =============================================================
"""

from collections.abc import Container, Iterator, Mapping

from kafka_eos_checks.matrix.conjuncts.guards import Conjunct, numbered, on_one_line, reachable, steps
from kafka_eos_checks.tla.sany import CONDITIONAL, FAIRNESS, QUANTIFIERS, Definition, Expression, Span

PRIME = "'"
_SWAPPED = {"<": "<=", "\\leq": "<", ">": ">=", "\\geq": ">"}
_FIRST_OPERAND = frozenset({"+", "-", "\\union", "\\o", "Append"})
OTHER_QUANTIFIER = {"\\A": "\\E", "\\E": "\\A"}


def of_operands(expression: Expression, text: str) -> Iterator[tuple[Span, str]]:
    """The changed operators of an expression and of its parts; only operators that stand on one line.

    Args:
        expression: any expression.
        text: the text of its module.

    Yields:
        A place, and the text that replaces it.
    """
    for part in expression.walk():
        if part.operator in QUANTIFIERS:
            start = Span(part.span.module, part.span.line, part.span.column, part.span.line, part.span.column + 1)
            written = on_one_line(text, start)
            if written in OTHER_QUANTIFIER:
                yield start, OTHER_QUANTIFIER[written]
        elif len(part.operands) == 2 and part.span.line == part.span.end_line:
            first, second = (on_one_line(text, operand.span) for operand in part.operands)
            if part.operator in _SWAPPED:
                yield part.span, f"{first} {_SWAPPED[part.operator]} {second}"
            elif part.operator in _FIRST_OPERAND:
                yield part.span, first


def of_effects(
    definitions: Mapping[str, Definition], texts: Mapping[str, str], specifications: Container[str]
) -> list[Conjunct]:
    """The changes of fairness, and of the effects and operators that steps use, in the order of the text.

    Args:
        definitions: by id, the definitions of the root module and of the modules that it needs.
        texts: module -> text, for the modules whose changes count.
        specifications: the names of the temporal formulas whose steps and fairness count.
    """
    found: dict[Conjunct, None] = {}
    for definition in steps(definitions, specifications):
        for span, value in _of_body(definition.body, definitions, texts):
            found[_change(definition.name, span, value, texts)] = None
    for definition in reachable(definitions, specifications):
        for part in definition.body.walk():
            if part.operator in FAIRNESS and part.span.module in texts:
                found[_change(definition.name, part.span, "TRUE", texts)] = None
    return numbered(sorted(found, key=lambda change: (change.span, change.value)))


def _of_body(
    expression: Expression, definitions: Mapping[str, Definition], texts: Mapping[str, str]
) -> Iterator[tuple[Span, str]]:
    """The changes in the body of a definition and in its LETs."""
    module = expression.span.module
    if module not in texts:
        return
    for part in expression.walk():
        for uid in part.local:
            if uid in definitions:
                yield from _of_body(definitions[uid].body, definitions, texts)
        if part.operator == "=" and part.operands[0].operator == PRIME:
            variable = on_one_line(texts[module], part.operands[0].operands[0].span)
            if on_one_line(texts[module], part.operands[1].span) != variable:
                yield part.operands[1].span, variable
        if part.operator == CONDITIONAL:
            yield part.operands[0].span, "TRUE"
            yield part.operands[0].span, "FALSE"
    yield from of_operands(expression, texts[module])


def _change(name: str, span: Span, value: str, texts: Mapping[str, str]) -> Conjunct:
    operator = f"{span.module}!{name.rpartition('!')[2]}"
    return Conjunct(
        operator=operator, change=f"{on_one_line(texts[span.module], span)} -> {value}", span=span, value=value
    )
