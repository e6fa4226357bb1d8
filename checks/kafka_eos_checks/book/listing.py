"""Listings: TLA+ and Python as HTML, highlighted, each known name a link to its definition at its first occurrence."""

import re
from collections.abc import Callable, Mapping
from html import escape
from typing import ClassVar

from pygments.lexer import Lexer, RegexLexer, words
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text, _TokenType

Target = Callable[[str], str | None]

_KEYWORDS = [
    "ASSUME",
    "ASSUMPTION",
    "AXIOM",
    "BOOLEAN",
    "CASE",
    "CHOOSE",
    "CONSTANT",
    "CONSTANTS",
    "DOMAIN",
    "ELSE",
    "ENABLED",
    "EXCEPT",
    "EXTENDS",
    "FALSE",
    "IF",
    "IN",
    "INSTANCE",
    "LET",
    "LOCAL",
    "MODULE",
    "OTHER",
    "RECURSIVE",
    "SUBSET",
    "THEN",
    "THEOREM",
    "TRUE",
    "UNCHANGED",
    "UNION",
    "VARIABLE",
    "VARIABLES",
    "WITH",
    "SF_",
    "WF_",
]


class TlaLexer(RegexLexer):  # type: ignore[misc]  # Pygments has no types
    """A lexer of TLA+, as far as this project uses it."""

    name = "TLA+"
    aliases: ClassVar[list[str]] = ["tla"]
    filenames: ClassVar[list[str]] = ["*.tla"]
    tokens: ClassVar[dict[str, list[object]]] = {
        "root": [
            (r"\s+", Text),
            (r"\\\*.*", Comment),
            (r"\(\*", Comment, "comment"),
            (r'"[^"\n]*"', String),
            (r"(?:WF|SF)_", Keyword),
            (words(_KEYWORDS, prefix=r"\b", suffix=r"\b"), Keyword),
            (r"\d+\b", Number),
            (r"[A-Za-z0-9_]*[A-Za-z][A-Za-z0-9_]*", Name),
            (r"\\[A-Za-z]+", Operator),
            (r"-{4,}|={4,}", Comment),
            (r".", Operator),
        ],
        "comment": [(r"\(\*", Comment, "#push"), (r"\*\)", Comment, "#pop"), (r"[^(*]+", Comment), (r".", Comment)],
    }


_CLASSES: Mapping[_TokenType, str] = {
    Keyword: "k",
    String: "s",
    Comment: "c",
    Number: "m",
    Name.Decorator: "nd",
}
_SHORT = 44  # characters; a shorter line fits on every screen
_WORD = re.compile(r"[A-Za-z_]\w*")
_LEXERS: Mapping[str, Lexer] = {"tla": TlaLexer(stripnl=False), "python": PythonLexer(stripnl=False)}


def listing(language: str, text: str, target: Target) -> str:
    """A listing as one HTML element.

    Args:
        language: ``tla`` or ``python``.
        text: the lines.
        target: the address of a name, or None.

    Returns:
        The element. Its colours need an element of the class ``highlight`` around it.
    """
    linked: set[str] = set()

    def once(name: str) -> str | None:
        """The target of a name at its first occurrence; a link at every occurrence would hide the text."""
        if name in linked:
            return None
        linked.add(name)
        return target(name)

    lines: list[list[str]] = [[]]
    for kind, word in _LEXERS[language].get_tokens(text):
        style = next((style for base, style in _CLASSES.items() if kind in base), "")
        whole = kind in Name or (kind in String and "\n" not in word)
        for number, part in enumerate(word.split("\n")):
            if number:
                lines.append([])
            shown = _linked(part, once) if whole else escape(part)
            lines[-1].append(f"<i class={style}>{shown}</i>" if style and part.strip() else shown)
    texts = text.split("\n")
    body = "".join(map(_hanging, map("".join, lines[: len(texts)]), texts)).rstrip("\n")
    return f"<pre>{body}</pre>"


def _hanging(shown: str, line: str) -> str:
    """A line of a listing; if a long line is wrapped, its rest is indented like its start."""
    if len(line) <= _SHORT:
        return f"{shown}\n"
    return f'<span style="--i:{len(line) - len(line.lstrip())}">{shown}\n</span>'


def _linked(word: str, target: Target) -> str:
    if word[:1] in "\"'":
        found = target(word[1:-1]) if _WORD.fullmatch(word[1:-1]) else None
        return f'{word[0]}<a href="{found}">{escape(word[1:-1])}</a>{word[-1]}' if found else escape(word)
    found = target(word)
    return f'<a href="{found}">{escape(word)}</a>' if found else escape(word)
