"""The parser of TLA+ modules: definitions, declarations, their comments and places, and expressions as trees.

It reads a subset: modules whose definitions begin in the first column, bounded quantifiers, no user-defined infix
operators. A module outside of the subset is refused with the line. Trees are nested tuples whose first element names
the kind.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

Tree: TypeAlias = tuple[Any, ...]
Bounds: TypeAlias = tuple[tuple[str, Tree], ...]  # (bound variable, the set that it ranges over)


class UnknownSyntax(ValueError):  # noqa: N818 - named for what is unknown
    """A module that is outside of the subset; says where."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a module; line and column count from 1."""

    text: str
    line: int
    column: int
    kind: str  # name, number, string, symbol, end


@dataclass(frozen=True, slots=True)
class Definition:
    """An operator.

    Attributes:
        name: the name of the operator.
        parameters: their names.
        body: a tree; ("instance", …) for ``Name == INSTANCE M WITH …``.
        comment: the comment above the definition, on one line; "" for a definition of a LET.
        line: where the definition starts, counted from 1; 0 for a definition of a LET.
    """

    name: str
    parameters: tuple[str, ...]
    body: Tree
    comment: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    @property
    def is_disjunction(self) -> bool:
        """Whether the body is an "or" of other operators, as ``Next`` is, and not an action itself."""
        return _is_disjunction(self.body)


@dataclass(slots=True)
class Module:
    """A module.

    Attributes:
        name: the name of the module.
        extends: the modules after EXTENDS.
        instantiates: the modules after INSTANCE.
        constants: the declared constants.
        variables: the declared variables.
        meanings: constant or variable -> the comment after its declaration, "" where there is none.
        definitions: by name, in the order of the text.
    """

    name: str
    extends: tuple[str, ...] = ()
    instantiates: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    meanings: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)


_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<comment>\\\*[^\n]*)
      | (?P<string>"[^"]*")
      | (?P<number>\d+(?![A-Za-z_]))
      | (?P<name>[A-Za-z0-9_]*[A-Za-z][A-Za-z0-9_]*)
      | (?P<symbol>\\[A-Za-z]+|<=>|\|->|/\\|\\/|==|=>|->|<-|~>|<<|>>|<>|\[\]|<=|>=|=<|/=|\.\.|:>|@@
                  |[-+*%^=#<>\\~'!.,:;()\[\]{}@|_])
    """,
    re.VERBOSE,
)
_RULE = re.compile(r"^(-{4,}|={4,}).*$", re.MULTILINE)
_BRACKET = re.compile(r"\(\*|\*\)")
_NO_NEWLINE = re.compile(r"[^\n]")
_COMMENT_LINE = re.compile(r"\(\*(.*)\*\)\s*")
_BANNER = re.compile(r"\(\*+\)\s*")  # a line of asterisks, above and below the heading of a part of the module
END = Token("", 0, 0, "end")


def _blanked(text: str) -> str:
    """The text with blanks for comments in brackets, which nest, and for the lines around the module."""
    result, depth, end = [], 0, 0
    for bracket in _BRACKET.finditer(text):
        before = text[end : bracket.start()]
        result.append(_NO_NEWLINE.sub(" ", before) if depth else before)
        depth += 1 if bracket[0] == "(*" else -1 if depth else 0
        result.append("  ")
        end = bracket.end()
    result.append(text[end:])
    return _RULE.sub(lambda m: " " * len(m[0]), "".join(result))


def tokens(text: str) -> list[Token]:
    """The words of a module without comments."""
    found: list[Token] = []
    blanked = _blanked(text)
    place, line, start = 0, 1, 0
    while place < len(blanked):
        matched = _TOKEN.match(blanked, place)
        if matched is None:
            raise UnknownSyntax(f"line {line}: {blanked[place]!r} begins no word")
        kind = str(matched.lastgroup)
        if kind not in {"space", "comment"}:
            found.append(Token(matched[0], line, matched.start() - start + 1, kind))
        newlines = matched[0].count("\n")
        if newlines:
            line += newlines
            start = matched.start() + matched[0].rindex("\n") + 1
        place = matched.end()
    return found


# infix operator -> (how tightly it binds, its name in the tree)
_INFIX: dict[str, tuple[int, str]] = {
    "=>": (1, "=>"),
    "<=>": (2, "<=>"),
    "\\equiv": (2, "<=>"),
    "~>": (2, "~>"),
    "/\\": (3, "and"),
    "\\/": (3, "or"),
    "=": (5, "="),
    "#": (5, "#"),
    "/=": (5, "#"),
    "<": (5, "<"),
    ">": (5, ">"),
    "<=": (5, "<="),
    "=<": (5, "<="),
    ">=": (5, ">="),
    "\\leq": (5, "<="),
    "\\geq": (5, ">="),
    "\\in": (5, "in"),
    "\\notin": (5, "notin"),
    "\\subseteq": (5, "subseteq"),
    "@@": (6, "@@"),
    ":>": (7, ":>"),
    "\\cup": (8, "cup"),
    "\\union": (8, "cup"),
    "\\cap": (8, "cap"),
    "\\intersect": (8, "cap"),
    "\\": (8, "minus"),
    "..": (9, ".."),
    "\\X": (10, "times"),
    "+": (10, "+"),
    "-": (11, "-"),
    "*": (13, "*"),
    "%": (13, "%"),
    "\\div": (13, "div"),
    "\\o": (13, "o"),
    "^": (14, "^"),
}
_LISTS = {"/\\": "and", "\\/": "or"}
_TIGHT = 9  # DOMAIN, UNION and SUBSET bind tighter than what stands between sets
_UNITS = frozenset({"EXTENDS", "CONSTANT", "CONSTANTS", "VARIABLE", "VARIABLES", "ASSUME", "THEOREM", "RECURSIVE"})


class _Parser:
    def __init__(self, words: Sequence[Token], where: str) -> None:
        self.words = words
        self.where = where
        self.place = 0
        self.instantiated: list[str] = []
        self.fences = [0]  # a word in this column or left of it ends the expression

    def raw(self, ahead: int = 0) -> Token:
        return self.words[self.place + ahead] if self.place + ahead < len(self.words) else END

    def peek(self) -> Token:
        word = self.raw()
        return END if word.column <= self.fences[-1] else word

    def next(self) -> Token:
        word = self.peek()
        if word is END:
            raise self.unknown(self.raw())
        self.place += 1
        return word

    def unknown(self, word: Token) -> UnknownSyntax:
        return UnknownSyntax(f"{self.where} line {word.line}: did not expect {word.text or 'the end'!r}")

    def expect(self, text: str) -> None:
        word = self.next()
        if word.text != text:
            raise self.unknown(word)

    def accept(self, text: str) -> bool:
        if self.peek().text == text and self.peek().kind != "string":
            self.place += 1
            return True
        return False

    def name(self) -> str:
        word = self.next()
        if word.kind != "name":
            raise self.unknown(word)
        return word.text

    # --- expressions

    def expression(self, least: int = 0) -> Tree:
        left = self.prefix()
        while True:
            word = self.peek()
            infix = _INFIX.get(word.text) if word.kind == "symbol" else None
            if infix is None or infix[0] < least:
                return left
            self.next()
            binding, operator = infix
            right = self.expression(binding if operator == "=>" else binding + 1)
            if operator in {"and", "or"}:
                left = (operator, ((*left[1], right) if left[0] == operator else (left, right)))
            elif operator == "times":
                left = ("times", ((*left[1], right) if left[0] == "times" else (left, right)))
            else:
                left = ("infix", operator, left, right)

    def junctions(self, bullet: str) -> Tree:
        column = self.peek().column
        items = []
        while self.peek().text == bullet and self.peek().column == column:
            self.next()
            self.fences.append(column)
            items.append(self.expression())
            self.fences.pop()
        return (_LISTS[bullet], tuple(items))

    def prefix(self) -> Tree:
        word = self.peek()
        text = word.text
        if word.kind == "symbol":
            if text in _LISTS:
                return self.junctions(text)
            if text == "~":
                self.next()
                return ("not", self.expression(4))
            if text in {"[]", "<>"}:
                self.next()
                return ("always" if text == "[]" else "eventually", self.expression(4))
            if text == "-":
                self.next()
                return ("negative", self.expression(12))
            if text in {"\\A", "\\E"}:
                self.next()
                bounds = self.bounds()
                self.expect(":")
                return ("all" if text == "\\A" else "exists", bounds, self.expression())
        if word.kind == "name" and text in {"DOMAIN", "UNION", "SUBSET"}:
            self.next()
            return (text, self.expression(_TIGHT))
        if word.kind == "name" and text == "UNCHANGED":
            self.next()
            return ("unchanged", self.expression(4))
        return self.postfix(self.primary())

    def bounds(self) -> Bounds:
        found: list[tuple[str, Tree]] = []
        while True:
            names = [self.name()]
            while self.accept(","):
                names.append(self.name())
            self.expect("\\in")
            domain = self.expression(6)
            found += [(name, domain) for name in names]
            if not self.accept(","):
                return tuple(found)

    def arguments(self, closing: str) -> tuple[Tree, ...]:
        found: list[Tree] = []
        while not self.accept(closing):
            found.append(self.expression())
            if not self.accept(","):
                self.expect(closing)
                break
        return tuple(found)

    def postfix(self, tree: Tree) -> Tree:
        while True:
            word = self.peek()
            if word.kind != "symbol":
                return tree
            if word.text == "'":
                self.next()
                tree = ("prime", tree)
            elif word.text == ".":
                self.next()
                tree = ("field", tree, self.name())
            elif word.text == "[":
                self.next()
                given = self.arguments("]")
                tree = ("apply", tree, given[0] if len(given) == 1 else ("tuple", given))
            else:
                return tree

    def primary(self) -> Tree:
        word = self.next()
        if word.kind == "number":
            return ("literal", int(word.text))
        if word.kind == "string":
            return ("literal", word.text[1:-1])
        if word.kind == "name":
            return self.named(word.text)
        if word.text == "(":
            inner = self.expression()
            self.expect(")")
            return inner
        if word.text == "<<":
            return ("tuple", self.arguments(">>"))
        if word.text == "{":
            return self.braces()
        if word.text == "[":
            return self.brackets()
        if word.text == "@":
            return ("at",)
        raise self.unknown(word)

    def named(self, text: str) -> Tree:
        if text in {"TRUE", "FALSE"}:
            return ("literal", text == "TRUE")
        if text == "IF":
            condition = self.expression()
            self.expect("THEN")
            then = self.expression()
            self.expect("ELSE")
            return ("if", condition, then, self.expression())
        if text == "CASE":
            return self.case()
        if text == "LET":
            return self.let()
        if text == "CHOOSE":
            bounds = self.bounds()
            self.expect(":")
            return ("choose", bounds[0][0], bounds[0][1], self.expression())
        if text == "LAMBDA":
            names = [self.name()]
            while self.accept(","):
                names.append(self.name())
            self.expect(":")
            return ("lambda", tuple(names), self.expression())
        if text.startswith(("WF_", "SF_")):
            self.expect("(")
            inner = self.expression()
            self.expect(")")
            return ("fair", inner)
        given: tuple[Tree, ...] = ()
        if self.peek().text == "!" and self.raw(1).kind == "name":
            self.next()
            inner_name = self.name()
            given = self.arguments(")") if self.accept("(") else ()
            return ("of", text, inner_name, given)
        if self.accept("("):
            given = self.arguments(")")
        return ("call", text, given)

    def case(self) -> Tree:
        arms: list[tuple[Tree, Tree]] = []
        other: Tree | None = None
        while True:
            if self.accept("OTHER"):
                self.expect("->")
                other = self.expression()
                return ("case", tuple(arms), other)
            condition = self.expression()
            self.expect("->")
            arms.append((condition, self.expression()))
            if not self.accept("[]"):
                return ("case", tuple(arms), other)

    def let(self) -> Tree:
        definitions: list[Definition] = []
        while not self.accept("IN"):
            if self.accept("RECURSIVE"):
                self.recursive()
                continue
            definitions.append(self.definition())
        return ("let", tuple(definitions), self.expression())

    def recursive(self) -> None:
        while True:
            self.name()
            if self.accept("("):
                while not self.accept(")"):
                    self.next()
            if not self.accept(","):
                return

    def definition(self) -> Definition:
        name = self.name()
        parameters: list[str] = []
        if self.accept("("):
            while not self.accept(")"):
                word = self.next()
                if word.kind == "name" and word.text != "_":
                    parameters.append(word.text)
        self.expect("==")
        if self.accept("INSTANCE"):
            module = self.name()
            self.instantiated.append(module)
            given: list[tuple[str, Tree]] = []
            if self.accept("WITH"):
                while True:
                    replaced = self.name()
                    self.expect("<-")
                    given.append((replaced, self.expression()))
                    if not self.accept(","):
                        break
            return Definition(name, tuple(parameters), ("instance", module, tuple(given)))
        return Definition(name, tuple(parameters), self.expression())

    def braces(self) -> Tree:
        if self.accept("}"):
            return ("set", ())
        if self.raw().kind == "name" and self.raw(1).text == "\\in":
            variable = self.name()
            self.expect("\\in")
            domain = self.expression(6)
            self.expect(":")
            condition = self.expression()
            self.expect("}")
            return ("filter", variable, domain, condition)
        first = self.expression()
        if self.accept(":"):
            bounds = self.bounds()
            self.expect("}")
            return ("image", first, bounds)
        items = [first]
        while self.accept(","):
            items.append(self.expression())
        self.expect("}")
        return ("set", tuple(items))

    def brackets(self) -> Tree:  # noqa: PLR0912 - the kinds of what stands in brackets
        if self.raw().kind == "name" and self.raw(1).text in {"\\in", ","}:
            bounds = self.bounds()
            self.expect("|->")
            body = self.expression()
            self.expect("]")
            return ("function", bounds, body)
        if self.raw().kind == "name" and self.raw(1).text == "|->":
            fields = []
            while True:
                key = self.name()
                self.expect("|->")
                fields.append((key, self.expression()))
                if not self.accept(","):
                    break
            self.expect("]")
            return ("record", tuple(fields))
        if self.raw().kind == "name" and self.raw(1).text == ":":
            return self.records()
        first = self.expression()
        if self.accept("->"):
            second = self.expression()
            self.expect("]")
            return ("functions", first, second)
        if self.accept("EXCEPT"):
            changes = []
            while True:
                self.expect("!")
                path: list[Tree] = []
                while True:
                    if self.accept("["):
                        given = self.arguments("]")
                        path.append(given[0] if len(given) == 1 else ("tuple", given))
                    elif self.accept("."):
                        path.append(("literal", self.name()))
                    else:
                        break
                self.expect("=")
                changes.append((tuple(path), self.expression()))
                if not self.accept(","):
                    break
            self.expect("]")
            return ("except", first, tuple(changes))
        self.expect("]")
        subscript = self.next().text
        if subscript == "_":
            return ("step", first, self.primary())
        if not subscript.startswith("_"):
            raise self.unknown(self.raw(-1))
        return ("step", first, ("call", subscript[1:], ()))

    def records(self) -> Tree:
        """``[name : Set, …]``, the bracket is read."""
        fields = []
        while True:
            key = self.name()
            self.expect(":")
            fields.append((key, self.expression()))
            if not self.accept(","):
                self.expect("]")
                return ("records", tuple(fields))


def parse_expression(text: str, where: str) -> Tree:
    """An expression by itself, as the registry has it for constants."""
    parser = _Parser(tokens(text), where)
    tree = parser.expression()
    if parser.raw() is not END:
        raise parser.unknown(parser.raw())
    return tree


@cache
def parse_module(name: str, text: str) -> Module:
    """Parse a module.

    Raises:
        UnknownSyntax: where it is outside of the subset.
    """
    module = Module(name)
    parser = _Parser(tokens(text), f"{name}.tla")
    lines = text.splitlines()
    while parser.raw() is not END:
        word = parser.raw()
        if word.text in _UNITS:
            parser.place += 1
            parser.fences = [0]
            _declaration(parser, module, word.text, lines)
            continue
        if word.column != 1 or word.kind != "name":
            raise parser.unknown(word)
        definition = _top_definition(parser, lines)
        module.definitions[definition.name] = definition
    module.instantiates = tuple(parser.instantiated)
    return module


def _top_definition(parser: _Parser, lines: Sequence[str]) -> Definition:
    head = parser.raw()
    parser.words = list(parser.words)
    # the name itself stands in the first column, what follows right of it
    parser.words[parser.place] = Token(head.text, head.line, 2, head.kind)
    parser.fences = [1]
    found = parser.definition()
    comment = _comment_above(lines[: head.line - 1])
    return Definition(found.name, found.parameters, found.body, comment, head.line)


def _comment_above(lines: Sequence[str]) -> str:
    """The comment whose last line is the last of these lines."""
    above: list[str] = []
    for line in reversed(lines):
        found = _COMMENT_LINE.fullmatch(line)
        if found is None or _BANNER.fullmatch(line):
            break
        above.append(found[1])
    return " ".join(" ".join(reversed(above)).split())


def _declaration(parser: _Parser, module: Module, kind: str, lines: Sequence[str]) -> None:
    if kind == "RECURSIVE":
        parser.recursive()
        return
    if kind in {"ASSUME", "THEOREM"}:
        parser.fences = [1]
        parser.expression()
        return
    places: dict[str, int] = {}
    while True:
        line = parser.raw().line
        places[parser.name()] = line
        if not parser.accept(","):
            break
    names = tuple(places)
    if kind == "EXTENDS":
        module.extends = names
        return
    module.meanings |= {name: lines[line - 1].partition("\\*")[2].strip() for name, line in places.items()}
    if kind.startswith("CONSTANT"):
        module.constants += names
    else:
        module.variables += names


# --- questions to a tree ----------------------------------------------------------------------------------------------


def names(tree: Any) -> Iterator[str]:
    """The names that an expression refers to: operators, constants, variables, and those that it binds itself."""
    if isinstance(tree, Definition):
        yield from names(tree.body)
    elif isinstance(tree, tuple):
        if len(tree) == 3 and tree[0] == "call":
            yield tree[1]
        elif tree[:1] == ("of",):
            yield f"{tree[1]}!{tree[2]}"
        for part in tree:
            yield from names(part)


def disjuncts(tree: Tree, bound: Mapping[str, Tree]) -> Iterator[tuple[str, tuple[Tree, ...]]]:
    """The operators of a disjunction, each with the sets that its arguments range over.

    Args:
        tree: the disjunction.
        bound: the sets of the names that are bound around it.
    """
    if tree[0] == "or":
        for item in tree[1]:
            yield from disjuncts(item, bound)
    elif tree[0] == "and":
        yield from disjuncts(tree[1][0], bound)
    elif tree[0] == "exists":
        yield from disjuncts(tree[2], {**bound, **dict(tree[1])})
    else:
        yield tree[1], tuple(bound.get(argument[1], argument) for argument in tree[2])


def _is_disjunction(tree: Tree) -> bool:
    if tree[0] == "or":
        return all(map(_is_disjunction, tree[1]))
    if tree[0] == "and":  # an action of another module, and what it leaves unchanged
        return [item[0] for item in tree[1]] == ["call", "unchanged"] and _is_disjunction(tree[1][0])
    if tree[0] == "exists":
        return _is_disjunction(tree[2])
    return tree[0] == "call" and all(
        argument[0] == "call" for argument in tree[2]
    )  # a literal is an action's own choice
