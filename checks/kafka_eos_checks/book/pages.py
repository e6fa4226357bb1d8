"""The building blocks of pages: addresses, links, tables, raw HTML. A page is Markdown for MyST.

An address begins with ``@/``, the root of the book; :func:`written` makes it relative, so that the book works from the
file system.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

ROOT = "@/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the book.

    Attributes:
        path: from the root of the book, without a suffix: ``modules/Leader``.
        title: its heading.
        text: Markdown below the heading.
        in_menu: whether the menu shows it; other pages are reached by links.
        wide: whether it has listings, which need the room that the list of headings would take.
    """

    path: str
    title: str
    text: str
    in_menu: bool = True
    wide: bool = False


def written(page: Page) -> str:
    """The Markdown of a page, its addresses relative."""
    marks = "".join(
        f"{name}: true\n" for name, value in (("orphan", not page.in_menu), ("hide-toc", page.wide)) if value
    )
    head = f"---\n{marks}---\n\n" if marks else ""
    up = "../" * page.path.count("/")
    text = page.text.strip().replace(f'"{ROOT}{page.path}.html#', '"#').replace(f'"{ROOT}', f'"{up}')
    return f"{head}# {page.title}\n\n{text}\n"


def address(page: str, anchor: str = "") -> str:
    """The address of a page, or of a place in it."""
    return f"{ROOT}{page}.html" + (f"#{anchor}" if anchor else "")


def address_of_file(path: str) -> str:
    """The address of a file that is no page, from the root of the book."""
    return f"{ROOT}{path}"


def of_operator(module: str, name: str) -> str:
    """The address of an operator, a variable or a constant."""
    return address(f"modules/{module}", name)


def of_property(module: str, name: str) -> str:
    """The address of a property's page."""
    return address(f"properties/{module}-{name}")


def of_model(module: str, name: str) -> str:
    """The address of a model or mutant."""
    return address(f"models/{module}", name)


def of_error(code: str) -> str:
    """The address of an error code."""
    return address("guides/errors", code)


_LONG = 16  # characters of a name that may need a line of its own
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])|(?<=[_!])")


def breakable(name: str) -> str:
    """A name as HTML; a long one may be broken between its words."""
    return "<wbr>".join(map(escape, _HUMP.split(name))) if len(name) > _LONG and " " not in name else escape(name)


def link(text: str, to: str, *, code: bool = False) -> str:
    """A link, as HTML that may stand in Markdown and in HTML."""
    shown = f"<code>{breakable(text)}</code>" if code else breakable(text)
    return f'<a href="{to}">{shown}</a>'


def raw(html: str) -> str:
    """HTML that Markdown leaves alone."""
    return f"\n`````{{raw}} html\n{html}\n`````\n"


def anchor(name: str) -> str:
    """A permanent anchor."""
    return raw(f'<a class="anchor" id="{escape(name)}"></a>')


def prose(text: str) -> str:
    """Text of a source file as Markdown: its marks are no markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$])", r"\\\1", text)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table, as raw HTML; the cells are HTML already. On a narrow screen each row is a card."""
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    body = "".join(
        "<tr>"
        + "".join(f'<td data-head="{escape(name)}">{cell}</td>' for name, cell in zip(heads, row, strict=True))
        + "</tr>\n"
        for row in rows
    )
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    return raw(f'<table class="cards">{said}<thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>')


def bullets(items: Iterable[str]) -> str:
    """A list; the items are HTML already."""
    return "<ul>" + "".join(f"<li>{each}</li>" for each in items) + "</ul>"
