r"""The guards of a spec, conjunct by conjunct, and the module's text without one of them.

The operators are those that the steps of a specification use, the A of its ``[][A]_v``. In an action, every part of
its enabling condition counts: the parts without a primed variable, also inside ``\E``, ``LET`` and the branches of
``IF``. In a rule that actions use, every part of the body counts if the rule is boolean (``IsDuplicate``) or names an
error (``AppendError``).

=============================  =============================================================
part                           replacement
=============================  =============================================================
a conjunct                     ``TRUE``: it is not checked
a disjunct                     ``FALSE``: the exception is not made
the condition of an ``IF``     ``FALSE``: its branch is never taken
=============================  =============================================================
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from kafka_eos_checks.tla.sany import (
    ACTION_LEVEL,
    CONDITIONAL,
    CONJUNCTION,
    DISJUNCTION,
    FORMULAS,
    IMPLICATION,
    LITERALS,
    QUANTIFIERS,
    SQUARE_ACTION,
    Definition,
    Expression,
    Span,
)

_BULLET = re.compile(r"/\\|\\/")
_LIST_GOES_ON = re.compile(r"( *)(/\\|\\/)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conjunct:
    """A part of a guard, and its replacement.

    Attributes:
        operator: the action or rule that it belongs to, ``Module!Operator``.
        change: ``the part -> TRUE``, on one line; the second of two equal ones in an operator ends with ``#2``.
        span: its place in the text.
        value: ``TRUE`` or ``FALSE``.
    """

    operator: str
    change: str = field(compare=False)
    span: Span
    value: str

    @property
    def name(self) -> str:
        """Operator and change."""
        return f"{self.operator}: {self.change}"


def conjuncts(
    definitions: Mapping[str, Definition], texts: Mapping[str, str], specifications: Container[str]
) -> list[Conjunct]:
    """The parts of all guards that the steps of some specifications use, in the order of the text.

    Args:
        definitions: by id, the definitions of the root module and of the modules that it needs.
        texts: module -> text, for the modules whose guards count.
        specifications: the names of temporal formulas.
    """
    found: dict[Conjunct, None] = {}
    for definition in steps(definitions, specifications):
        module = definition.body.span.module
        if module not in texts:
            continue
        for span, value in _parts(definition, definitions):
            change = f"{on_one_line(texts[module], span)} -> {value}"
            operator = f"{module}!{definition.name.rpartition('!')[2]}"  # an instance's name has its own before it
            found[Conjunct(operator=operator, change=change, span=span, value=value)] = None
    return numbered(sorted(found, key=lambda conjunct: (conjunct.span, conjunct.value)))


def without(text: str, conjunct: Conjunct) -> str:
    """A module's text with another one in place of the conjunct; only the rest of its line moves.

    Raises:
        ValueError: a list begins in the rest of the line, and goes on in a later one.
    """
    span, lines = conjunct.span, text.split("\n")
    before, after = lines[span.line - 1][: span.column - 1], lines[span.end_line - 1][span.end_column :]
    if span.line == span.end_line:
        value = conjunct.value.ljust(span.end_column - span.column + 1)
        if len(value) > span.end_column - span.column + 1 and _goes_on(lines, span):
            raise ValueError(f"{conjunct.name}: {conjunct.value} does not fit; write the rest of the line on the next")
        lines[span.line - 1] = f"{before}{value}{after}"
    else:
        lines[span.line - 1] = before + conjunct.value
        lines[span.line : span.end_line - 1] = [""] * (span.end_line - span.line - 1)
        lines[span.end_line - 1] = " " * span.end_column + after
    return "\n".join(lines)


def _goes_on(lines: Sequence[str], span: Span) -> bool:
    """Whether a list that begins behind a place, in the same line, has a conjunct or a disjunct in a later line."""
    begun = {found.start() for found in _BULLET.finditer(lines[span.end_line - 1], span.end_column)}
    later = takewhile(lambda line: line.startswith(" "), lines[span.end_line :])
    return any(found.end(1) in begun for line in later if (found := _LIST_GOES_ON.match(line)))


def steps(definitions: Mapping[str, Definition], specifications: Container[str]) -> list[Definition]:
    """The actions of specifications, each under the name of its formula, and the definitions that they use."""
    actions = [
        Definition(name=definition.name, body=part.operands[0])
        for definition in reachable(definitions, specifications)
        for part in definition.body.walk()
        if part.operator == SQUARE_ACTION
    ]
    return [*actions, *_from((action.body for action in actions), definitions)]


def reachable(definitions: Mapping[str, Definition], names: Container[str]) -> list[Definition]:
    """The definitions of these names, and those that they use; definitions in a LET belong to their operator."""
    roots = [definition for definition in definitions.values() if definition.name in names]
    return [*roots, *_from((root.body for root in roots), definitions)]


def _from(roots: Iterable[Expression], definitions: Mapping[str, Definition]) -> list[Definition]:
    """The definitions that expressions use, each once."""
    waiting = list(roots)
    seen: dict[str, None] = {}
    local: set[str] = set()
    while waiting:
        for part in _everything(waiting.pop(), definitions, local):
            if part.definition in definitions and part.definition not in seen:
                seen[part.definition] = None
                waiting.append(definitions[part.definition].body)
    return [definitions[uid] for uid in seen if uid not in local]


def _everything(expression: Expression, definitions: Mapping[str, Definition], local: set[str]) -> Iterator[Expression]:
    """All parts of an expression, including the definitions of its LETs, whose ids are added to ``local``."""
    for part in expression.walk():
        yield part
        for uid in part.local:
            local.add(uid)
            if uid in definitions:
                yield from _everything(definitions[uid].body, definitions, local)


def _parts(definition: Definition, definitions: Mapping[str, Definition]) -> Iterator[tuple[Span, str]]:
    """The parts of guards and rules in the body of one definition and in its LETs."""
    kinds = _Kinds(definitions)
    for part in definition.body.walk():
        for uid in part.local:
            if uid in definitions:
                yield from _parts(definitions[uid], definitions)
    if definition.body.level >= ACTION_LEVEL:
        yield from _of_action(definition.body)
    elif kinds.is_formula(definition.body):
        yield from of_formula(definition.body)
    elif kinds.is_verdict(definition.body):
        yield from _of_verdict(definition.body)


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Recognises formulas and verdicts among expressions; a recursive operator is neither."""

    definitions: Mapping[str, Definition]

    def is_formula(self, expression: Expression, within: frozenset[str] = frozenset()) -> bool:
        """Whether the expression's value is TRUE or FALSE."""
        if expression.local:
            return self.is_formula(expression.body, within)
        if expression.operator == CONDITIONAL:
            return all(self.is_formula(branch, within) for branch in expression.operands[1:])
        uid = expression.definition
        if expression.operator in FORMULAS or uid not in self.definitions or uid in within:
            return expression.operator in FORMULAS
        return self.is_formula(self.definitions[uid].body, within | {uid})

    def is_verdict(self, expression: Expression, within: frozenset[str] = frozenset()) -> bool:
        """Whether the expression's value is the name of an error, chosen by a condition."""
        if expression.local:
            return self.is_verdict(expression.body, within)
        if expression.operator == CONDITIONAL:
            return all(branch.is_string or self.is_verdict(branch, within) for branch in expression.operands[1:])
        uid = expression.definition
        if uid not in self.definitions or uid in within:
            return False
        return self.is_verdict(self.definitions[uid].body, within | {uid})


def _flat(expression: Expression, operators: frozenset[str]) -> Iterator[Expression]:
    """The parts of nested conjunctions or disjunctions."""
    if expression.operator in operators:
        for operand in expression.operands:
            yield from _flat(operand, operators)
    else:
        yield expression


def _of_action(expression: Expression) -> Iterator[tuple[Span, str]]:
    """The parts of an action's enabling condition."""
    if expression.level < ACTION_LEVEL:
        yield from of_formula(expression)
    elif expression.operator in CONJUNCTION | DISJUNCTION:
        for operand in expression.operands:
            yield from _of_action(operand)
    elif expression.operator in QUANTIFIERS or expression.local:
        yield from _of_action(expression.body)
    elif expression.operator == CONDITIONAL:
        condition, *branches = expression.operands
        yield from _of_condition(condition)
        for branch in branches:
            yield from _of_action(branch)


def of_formula(expression: Expression) -> Iterator[tuple[Span, str]]:
    """The parts of a formula without primed variables."""
    if expression.operator in CONJUNCTION:
        for operand in _flat(expression, CONJUNCTION):
            yield from of_formula(operand)
    elif expression.operator == CONDITIONAL:
        condition, *branches = expression.operands
        yield from _of_condition(condition)
        for branch in branches:
            yield from of_formula(branch)
    elif expression.local:
        yield from of_formula(expression.body)
    elif expression.operator not in LITERALS:
        yield expression.span, "TRUE"
        yield from _within(expression)


def _within(expression: Expression) -> Iterator[tuple[Span, str]]:
    """The parts of a whole formula: its disjuncts, and the conjuncts of these and of an implication."""
    if expression.operator in DISJUNCTION:
        for operand in _flat(expression, DISJUNCTION):
            yield operand.span, "FALSE"
            if operand.operator in CONJUNCTION:
                yield from of_formula(operand)
    elif expression.operator in QUANTIFIERS or expression.operator == IMPLICATION:
        for operand in expression.operands:
            if operand.operator in CONJUNCTION:
                yield from of_formula(operand)


def _of_condition(condition: Expression) -> Iterator[tuple[Span, str]]:
    """The changes of an IF: its branch is never taken, or a part of its condition is replaced."""
    yield condition.span, "FALSE"
    if condition.operator in CONJUNCTION:
        yield from of_formula(condition)
    else:
        yield from _within(condition)


def _of_verdict(expression: Expression) -> Iterator[tuple[Span, str]]:
    """The branches that lead to an error."""
    if expression.local:
        yield from _of_verdict(expression.body)
    elif expression.operator == CONDITIONAL:
        condition, *branches = expression.operands
        yield from _of_condition(condition)
        for branch in branches:
            yield from _of_verdict(branch)


def on_one_line(text: str, span: Span) -> str:
    """The text at a place, without line breaks and comments."""
    lines = text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column]
    lines[0] = lines[0][span.column - 1 :]
    return " ".join(" ".join(line.split("\\*")[0] for line in lines).split())


def numbered(sorted_conjuncts: Iterable[Conjunct]) -> list[Conjunct]:
    """The same conjuncts; equal conjuncts of an operator after the first one get a number."""
    seen: Counter[str] = Counter()
    result = []
    for conjunct in sorted_conjuncts:
        seen[conjunct.name] += 1
        times = seen[conjunct.name]
        change = conjunct.change if times == 1 else f"{conjunct.change} #{times}"
        result.append(Conjunct(operator=conjunct.operator, change=change, span=conjunct.span, value=conjunct.value))
    return result
