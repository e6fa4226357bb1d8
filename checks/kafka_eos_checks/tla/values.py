"""TLA+ values as TLC prints them, read and written.

The Python side is ``spec_mapping``'s: int, bool, str, frozenset (set), tuple (sequence) and immutables.Map (function or
record). Text equality is not value equality, since TLC prints the fields of a record in any order: always parse.
"""

import re
from collections.abc import Iterator, Mapping

from immutables import Map

from kafka_eos.machines.spec_mapping import SpecValue


class MalformedValue(ValueError):  # noqa: N818 - named for the text, as MalformedBatch is
    """A text that is no TLA+ value; says where and why."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        shown = text if len(text) <= 120 else f"{text[:117]}..."
        super().__init__(f"at character {position} of {shown!r}: {reason}")
        self.position = position
        self.reason = reason


_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>-?\d+)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<mark><<|>>|\|->|:>|@@|\.\.|[][{}(),])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_CONSTANTS = {"TRUE": True, "FALSE": False}


class _Reader:
    """A recursive-descent parser over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.kind = ""
        self.lexeme = ""
        self.start = 0
        self.advance()

    def advance(self) -> str:
        """Move to the next token and return the one that was read."""
        lexeme = self.lexeme
        match = _TOKEN.match(self.text, self.at)
        if match is None:
            self.start = self.at + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
            if self.start < len(self.text):
                raise MalformedValue(self.text, self.start, f"{self.text[self.start]!r} begins no token")
            self.kind, self.lexeme = "end", ""
        else:
            self.kind = match.lastgroup or ""
            self.lexeme = match[self.kind]
            self.start, self.at = match.start(self.kind), match.end()
        return lexeme

    def error(self, expected: str) -> MalformedValue:
        """The error to raise when the current token does not fit."""
        found = repr(self.lexeme) if self.lexeme else "the end"
        return MalformedValue(self.text, self.start, f"expected {expected}, found {found}")

    def expect(self, mark: str) -> None:
        """Read one mark."""
        if self.lexeme != mark or self.kind != "mark":
            raise self.error(repr(mark))
        self.advance()

    def items(self, closing: str) -> Iterator[None]:
        """Stand before each of the items of a comma-separated list, and read its end."""
        while self.lexeme != closing:
            yield
            if self.lexeme != closing:
                self.expect(",")
        self.advance()

    def value(self) -> SpecValue:
        """Read one value."""
        kind, lexeme = self.kind, self.lexeme
        if kind == "number":
            self.advance()
            if self.lexeme == "..":
                self.advance()
                if self.kind != "number":
                    raise self.error("a number")
                return frozenset(range(int(lexeme), int(self.advance()) + 1))
            return int(lexeme)
        if kind == "string":
            self.advance()
            return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), lexeme[1:-1], flags=re.DOTALL)
        if kind == "word":
            if lexeme not in _CONSTANTS:
                raise MalformedValue(self.text, self.start, f"{lexeme} is a model value; write the string {lexeme!r}")
            self.advance()
            return _CONSTANTS[lexeme]
        return self._composite(lexeme)

    def _composite(self, lexeme: str) -> SpecValue:
        """Read a value that begins with a mark."""
        if lexeme not in {"{", "<<", "[", "("}:
            raise self.error("a value")
        self.advance()
        if lexeme == "{":
            return frozenset([self.value() for _ in self.items("}")])
        if lexeme == "<<":
            return tuple([self.value() for _ in self.items(">>")])
        entries: dict[SpecValue, SpecValue] = {}
        if lexeme == "[":
            for _ in self.items("]"):
                if self.kind != "word":
                    raise self.error("a field name")
                name = self.advance()
                self.expect("|->")
                entries[name] = self.value()
            return Map(entries)
        while True:
            key = self.value()
            self.expect(":>")
            entries.setdefault(key, self.value())
            if self.lexeme == ")":
                break
            self.expect("@@")
        self.advance()
        return Map(entries)


def parse_value(text: str) -> SpecValue:
    """The value that a text stands for.

    Raises:
        MalformedValue: when the text is no value, or one that has no counterpart in Python (a model value).
    """
    reader = _Reader(text)
    value = reader.value()
    if reader.kind != "end":
        raise reader.error("the end")
    return value


def function(pairs: Mapping[SpecValue, SpecValue]) -> SpecValue:
    """The function of these pairs: a tuple if its domain is 1..n, a Map otherwise."""
    if not pairs:
        return ()
    for key in pairs:
        if type(key) is not int:
            return Map(pairs)
        break
    count = len(pairs)
    if all(type(key) is int and 1 <= key <= count for key in pairs):
        return tuple(pairs[key] for key in range(1, count + 1))
    return Map(pairs)


def canonical(value: SpecValue) -> SpecValue:
    """The value with every function over 1..n as a sequence, so that equal values of TLA+ are equal here."""
    if isinstance(value, tuple):
        return tuple(map(canonical, value))
    if isinstance(value, frozenset):
        return frozenset(map(canonical, value))
    if isinstance(value, Mapping):
        return function({canonical(key): canonical(inner) for key, inner in value.items()})
    return value


class ValueMemo:
    """Parses each distinct text once; states share most of the texts of their variables."""

    def __init__(self) -> None:
        self._known: dict[str, SpecValue] = {}

    def __len__(self) -> int:
        return len(self._known)

    def parse(self, text: str) -> SpecValue:
        """:func:`parse_value`, remembered."""
        try:
            return self._known[text]
        except KeyError:
            value = self._known[text] = parse_value(text)
            return value


_HEADS = {
    True: re.compile(r"^/\\ ([A-Za-z_][A-Za-z0-9_]*) = ", re.MULTILINE),  # several variables
    False: re.compile(r"\A([A-Za-z_][A-Za-z0-9_]*) = "),  # a single one has no bullet
}


def parse_state(text: str, memo: ValueMemo) -> dict[str, SpecValue]:
    r"""A state as TLC prints it: one ``/\ name = value`` a variable, in any order; long values span lines.

    Raises:
        MalformedValue: when a value cannot be read or there is no variable.
    """
    text = text.strip()
    heads = list(_HEADS[text.startswith("/\\")].finditer(text))
    if not heads:
        raise MalformedValue(text, 0, "no variable; expected 'name = value'")
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return {head[1]: memo.parse(text[head.end() : end].strip()) for head, end in zip(heads, ends, strict=True)}


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in _ESCAPES.items():
        escaped = escaped.replace(character, f"\\{letter}")
    return f'"{escaped}"'


_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def format_value(value: SpecValue) -> str:
    """The value in TLA+, deterministic: sets and functions in sorted order.

    Raises:
        TypeError: when the value is none of ``spec_mapping``'s.
    """
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, tuple):
        return f"<<{', '.join(map(format_value, value))}>>"
    if isinstance(value, frozenset):
        return f"{{{', '.join(map(format_value, sorted(value, key=order)))}}}"
    if isinstance(value, Mapping):
        keys = sorted(value, key=order)
        if not keys:
            return "<<>>"
        if all(isinstance(key, str) and _FIELD.match(key) for key in keys):
            return f"[{', '.join(f'{key} |-> {format_value(value[key])}' for key in keys)}]"
        return f"({' @@ '.join(f'{format_value(key)} :> {format_value(value[key])}' for key in keys)})"
    raise TypeError(f"no TLA+ value: {value!r}")


def order(value: SpecValue) -> tuple[int, int, str]:
    """Numbers by size, everything else by its text."""
    if isinstance(value, int):
        return (0, int(value), "")
    return (1, 0, format_value(value))
