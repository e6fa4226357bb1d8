"""SVG as text: elements that escape what they are given, text that fits, and a gate for SVG read from a file.

Names, record contents and evidence come from logs and may hold anything. They enter a picture only through
:func:`element`, and a picture enters a page only through :func:`inert`.
"""

import re
import textwrap
import unicodedata
from collections.abc import Mapping
from html import escape
from xml.etree import ElementTree as ET

NAMESPACE = "http://www.w3.org/2000/svg"
MAX_DEPTH = 16  # nesting of elements; our own pictures have 3
MAX_CHARACTERS = 2_000_000  # of one picture

# The elements and attributes of this project's pictures. None of them loads, links or runs anything; no style, no id.
ELEMENTS = frozenset({"svg", "g", "title", "line", "rect", "circle", "path", "text", "tspan"})
ATTRIBUTES = frozenset({
    "class", "role", "aria-label", "viewBox", "width", "height", "x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r",
    "rx", "d", "fill", "stroke", "stroke-width", "stroke-dasharray", "fill-opacity", "text-anchor", "font-size",
})  # fmt: skip
_FREE_TEXT = frozenset({"aria-label"})
_VALUE = re.compile(r"[\w\s.,#%+-]*")
_DECLARATION = re.compile(r"<!(DOCTYPE|ENTITY)", re.IGNORECASE)

_BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_ILLEGAL_IN_XML = frozenset("\ufffe\uffff")


class UnsafeSvg(ValueError):  # noqa: N818 - named for the input
    """A picture with something in it that the pictures of this project never have."""


def visible(text: str) -> str:
    r"""Write what cannot be seen or reorders the line as an escape (``\x00``, ``\u202e``); keep tab and newline."""

    def shown(character: str) -> str:
        hidden = unicodedata.category(character) in {"Cc", "Cs"} and character not in "\n\t"
        if hidden or character in _BIDI_CONTROLS or character in _ILLEGAL_IN_XML:
            code = ord(character)
            return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"
        return character

    return text if text.isascii() and text.isprintable() else "".join(map(shown, text))


def escaped(text: str) -> str:
    """Text as the content of an element or of a quoted attribute."""
    return escape(visible(text), quote=True)


def element(tag: str, attributes: Mapping[str, str | float], *children: str) -> str:
    """An element; ``children`` are markup already (:func:`element` or :func:`escaped`), attribute values are not."""
    assert tag in ELEMENTS, f"the gate would refuse {tag}"
    assert ATTRIBUTES.issuperset(attributes), f"the gate would refuse one of {sorted(attributes)}"
    written = "".join(
        f' {name}="{escaped(value) if isinstance(value, str) else format(value, ".4g" if value < 1 else ".1f")}"'
        for name, value in attributes.items()
    )
    return f"<{tag}{written}>{''.join(children)}</{tag}>" if children else f"<{tag}{written}/>"


def picture(width: float, height: float, label: str, *children: str) -> str:
    """A whole picture, ``width`` by ``height`` CSS pixels, with ``label`` for those who cannot see it."""
    said = " ".join(label.split())  # XML reads white space in an attribute as blanks
    attributes = {"class": "picture", "role": "img", "aria-label": said, "viewBox": f"0 0 {width:.0f} {height:.0f}"}
    opened = element("svg", {**attributes, "width": width, "height": height}, *children)
    return opened.replace("<svg ", f'<svg xmlns="{NAMESPACE}" ', 1)


def text_width(text: str, size: float) -> float:
    """Width in CSS pixels of monospaced text, ``size`` pixels high: 0.61 of it a character, twice that if wide."""
    cells = sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
    return 0.61 * size * cells


def wrapped(text: str, width: float, size: float, max_lines: int) -> list[str]:
    """Break text into at most ``max_lines`` lines of ``width`` pixels, the last one ending in … when cut."""
    cell = text_width("我" if any(unicodedata.east_asian_width(c) in "WF" for c in text) else "n", size)
    columns = max(4, int(width / cell))
    lines = textwrap.wrap(visible(text), columns, break_on_hyphens=False) or [""]
    if len(lines) <= max_lines:
        return lines
    return [*lines[: max_lines - 1], " ".join(lines[max_lines - 1 :])[: columns - 1] + "…"]


def inert(svg: str) -> str:
    """Rebuild a picture from the elements and attributes above, so that it can stand inside a page.

    Raises:
        UnsafeSvg: when it is no XML, or holds anything else (scripts, handlers, links, styles, entities).
    """
    if len(svg) > MAX_CHARACTERS:
        raise UnsafeSvg(f"{len(svg)} characters, more than {MAX_CHARACTERS}")
    if _DECLARATION.search(svg):
        raise UnsafeSvg("a document type or an entity")
    try:
        root = ET.fromstring(svg)  # noqa: S314 - declarations, the source of entity attacks, are refused above
    except (ET.ParseError, UnicodeEncodeError) as error:
        raise UnsafeSvg(f"no XML: {error}") from None
    if root.tag != f"{{{NAMESPACE}}}svg":
        raise UnsafeSvg(f"expected an svg element, found {root.tag}")
    return _rebuilt(root, 0).replace("<svg", f'<svg xmlns="{NAMESPACE}"', 1)


def _rebuilt(node: ET.Element, depth: int) -> str:
    tag = node.tag.removeprefix(f"{{{NAMESPACE}}}")
    if depth > MAX_DEPTH:
        raise UnsafeSvg(f"more than {MAX_DEPTH} elements inside each other")
    if tag not in ELEMENTS or (tag == "svg" and depth):
        raise UnsafeSvg(f"element {tag!r}")
    for name, value in node.attrib.items():
        if name not in ATTRIBUTES or not (name in _FREE_TEXT or _VALUE.fullmatch(value)):
            raise UnsafeSvg(f"attribute {name!r} = {value[:40]!r} of {tag!r}")
    content = [escaped(node.text or "")]
    for child in node:
        content += [_rebuilt(child, depth + 1), escaped(child.tail or "")]
    return element(tag, dict(node.attrib), *filter(None, content))
