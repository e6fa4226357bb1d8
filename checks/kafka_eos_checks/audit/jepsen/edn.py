r"""A strict reader of EDN, Clojure's notation for data, in which Jepsen writes histories.

========================  =========================================================================
EDN                       Python
========================  =========================================================================
``nil true false``        ``None True False``
``1 1N``                  ``int``
``1.5 1.5M ##Inf ##NaN``  ``float``
``1/2``                   :class:`fractions.Fraction`
``"text" \c``              ``str``
``:name`` and ``name``    :class:`Name`, a keyword with its colon
``[1 2]`` and ``(1 2)``   ``tuple``
``{1 2}``                 ``dict``
``#{1 2}``                ``frozenset``
``#tag value``            the value; tags in a history only say how Clojure prints
========================  =========================================================================

A map that is a key or a member of a set becomes the set of its pairs. ``0x1f`` in ``#object[…]``, which Clojure prints
although EDN does not have it, is read too.

One regular expression splits the text, and an explicit stack builds the values. So the time is linear and Python's own
stack cannot overflow; more levels than :data:`DEEPEST` are refused. A vector of two integers is one token, because a
history is mostly of such.
"""

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import isinf
from typing import Any

DEEPEST = 100
_TOKEN = re.compile(
    r"""[\s,]+|;[^\n]*
    |(?:(?P<integer>[+-]?(?:0|[1-9]\d*)(?![^\s,\[\](){}";]))
    |(?P<pair>(?:(?<=[^\s,][ ])|(?<=\[))\[-?(?:0|[1-9]\d{0,17})[ ]-?(?:0|[1-9]\d{0,17})\])
    |(?P<opening>[{[(]|\#\{)
    |(?P<closing>[])}])
    |(?P<atom>(?:\#\#)?[^\s,\[\](){}";\\\#][^\s,\[\](){}";]*)
    |(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")
    |(?P<character>\\(?:[^\s,\[\](){}";]+|.))
    |(?P<prefix>\#(?:_|\^|[A-Za-z][^\s,\[\](){}";]*))
    |(?P<wrong>.))[\s,]*""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "b": "\b", "f": "\f", "\\": "\\", '"': '"'}
_CHARACTERS = {"newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f", "backspace": "\b"}
_CLOSING = {"{": "}", "#{": "}", "[": "]", "(": ")"}
_NAMED: dict[str, Any] = {
    "nil": None,
    "true": True,
    "false": False,
    "##Inf": float("inf"),
    "##-Inf": float("-inf"),
    "##NaN": float("nan"),
}
_NUMBER = re.compile(r"[+-]?\d")
_FLOAT = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?M?")
_DISCARD = "#_"
_BEGINS = frozenset({"opening", "prefix"})
_END = object()


class MalformedEdn(ValueError):  # noqa: N818 - named for the input
    """A text that is no EDN; the message says where, in characters, and why."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason}, at character {position}")
        self.position = position
        self.reason = reason


class Name(str):
    """A keyword (with its colon) or a symbol."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(slots=True)
class _Frame:
    """A collection that is not closed yet, or a prefix that waits for its value."""

    opening: str
    position: int
    items: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _Builder:
    """The open collections and prefixes at a place of the text.

    Attributes:
        stack: the collections and prefixes, from the outermost to the innermost.
        whole: the closing bracket of the vector or list that is the whole text, if it is one.
        begun: whether anything was read yet.
        ended: whether the whole text was closed.
    """

    stack: list[_Frame] = field(default_factory=list)
    whole: str = ""
    begun: bool = False
    ended: bool = False

    def open(self, word: str, position: int) -> None:
        """Open a collection or a prefix."""
        if not self.begun and word in "[(":
            self.whole = _CLOSING[word]
        elif len(self.stack) == DEEPEST:
            raise MalformedEdn(position, f"deeper than {DEEPEST} levels")
        else:
            self.stack.append(_Frame(word, position))
        self.begun = True

    def close(self, word: str, position: int) -> Any:
        """Close the innermost collection and return it, or :data:`_END` for the whole text."""
        if not self.stack and word == self.whole:
            self.ended = True
            return _END
        if not self.stack or _CLOSING.get(self.stack[-1].opening) != word:
            raise MalformedEdn(position, f"{word!r} closes nothing")
        return _closed(self.stack.pop())

    def keep(self, value: Any) -> bool:
        """Keep a complete value; return whether it is in no collection and not discarded."""
        self.begun = True
        while self.stack and self.stack[-1].opening not in _CLOSING:
            if self.stack.pop().opening == _DISCARD:
                return False
        if self.stack:
            self.stack[-1].items.append(value)
        return not self.stack


def read_forms(text: str) -> Iterator[tuple[int, Any]]:
    """The values of a text, each with the position at which it begins.

    If the whole text is one vector or list, the values are its elements.

    Raises:
        MalformedEdn: the text is no EDN; with the first place where it is not.
    """
    builder = _Builder()
    stack, at = builder.stack, 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind is None:
            continue
        position, word = token.start(), token[kind]
        if not stack:
            if builder.ended:
                raise MalformedEdn(position, f"{word!r} follows the vector or list that has to be the whole text")
            at = position
        if kind in _BEGINS:
            builder.open(word, position)
            continue
        value = builder.close(word, position) if kind == "closing" else _SCALARS[kind](word, position)
        if stack and stack[-1].opening in _CLOSING:  # most values are in a collection
            stack[-1].items.append(value)
        elif value is not _END and builder.keep(value):
            yield at, value
    if builder.stack:
        raise MalformedEdn(builder.stack[-1].position, f"{builder.stack[-1].opening!r} is not closed")
    if builder.whole and not builder.ended:
        raise MalformedEdn(len(text), f"{builder.whole!r} is missing")


def _closed(frame: _Frame) -> Any:
    items = frame.items
    if frame.opening in "[(":
        return tuple(items)
    if frame.opening == "#{":
        members = frozenset(map(hashable, items))
        if len(members) < len(items):
            raise MalformedEdn(frame.position, "a set has something twice")
        return members
    if len(items) % 2:
        raise MalformedEdn(frame.position, "a map has a key without a value")
    try:
        made = dict(zip(items[::2], items[1::2], strict=True))
    except TypeError:
        made = dict(zip(map(hashable, items[::2]), items[1::2], strict=True))
    if len(made) * 2 < len(items):
        raise MalformedEdn(frame.position, "a map has a key twice")
    return made


def hashable(value: Any) -> Hashable:
    """A value that can be a key: a map is a set of its pairs."""
    if isinstance(value, dict):
        return frozenset((hashable(key), hashable(each)) for key, each in value.items())
    return tuple(map(hashable, value)) if isinstance(value, tuple) else value


def _integer(word: str, position: int) -> int:
    try:
        return int(word)
    except ValueError:
        raise MalformedEdn(position, f"a number of {len(word)} digits") from None


def _pair(word: str, position: int) -> tuple[int, int]:
    del position
    one, other = word[1:-1].split(" ")
    return int(one), int(other)


def _atom(word: str, position: int) -> Any:
    try:
        return _named(word)
    except OverflowError:
        raise MalformedEdn(position, f"{word[:20]!r} is too large a number for a double") from None
    except (ValueError, ZeroDivisionError):
        raise MalformedEdn(position, f"{word[:20]!r} is no keyword, symbol or number") from None


@lru_cache(maxsize=10_000)
def _named(word: str) -> Any:
    if word in _NAMED:
        return _NAMED[word]
    if word == ":" or word.startswith("##"):
        raise ValueError(word)
    if not _NUMBER.match(word):
        return Name(word)
    if word.endswith("N"):
        return int(word[:-1])
    if word[:2] == "0x":
        return int(word, 16)
    if "/" in word:
        return Fraction(word)
    if not _FLOAT.fullmatch(word):
        raise ValueError(word)
    number = float(word.removesuffix("M"))
    if isinf(number):  # a number too large for a double would equal `##Inf`
        raise OverflowError(word)
    return number


def _text(word: str, position: int) -> str:
    def plain(escape: re.Match[str]) -> str:
        name = escape[1]
        if len(name) > 1:
            return chr(int(name[1:], 16))
        if name not in _ESCAPES:
            raise MalformedEdn(position + 1 + escape.start(), f"{escape[0]!r} is no escape sequence")
        return _ESCAPES[name]

    return _whole(_ESCAPE.sub(plain, word[1:-1])) if "\\" in word else word[1:-1]


def _whole(text: str) -> str:
    """Join pairs of surrogates into one character each, and replace a single surrogate."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _character(word: str, position: int) -> str:
    name = word[1:]
    if len(name) == 1:
        return name
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if re.fullmatch("u[0-9a-fA-F]{4}", name):
        return _whole(chr(int(name[1:], 16)))
    raise MalformedEdn(position, f"{name[:20]!r} is no character")


def _wrong(word: str, position: int) -> Any:
    raise MalformedEdn(position, f"{word!r} begins nothing")


_SCALARS = {"integer": _integer, "pair": _pair, "atom": _atom, "text": _text, "character": _character, "wrong": _wrong}
