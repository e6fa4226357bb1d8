"""The book as a whole: every page written as Markdown, then Sphinx, then a look at every link."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.modules import module_pages
from kafka_eos_checks.book.pages import Page, written
from kafka_eos_checks.book.properties import property_pages
from kafka_eos_checks.book.sources import Book
from kafka_eos_checks.kit.missing import need

STATIC = Path(__file__).with_name("static")
MOST_BYTES = 300_000  # of one page

CONF = '''
project = "kafka-eos"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
html_theme = "furo"
html_title = "kafka-eos"
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {"top_of_page_buttons": []}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
suppress_warnings = ["misc.highlighting_failure"]
'''


class BrokenBook(RuntimeError):  # noqa: N818 - named for what is broken
    """A book with a broken link, a picture without words, a page that is too large, or that Sphinx refuses."""


def pages_of(book: Book) -> Iterator[Page]:
    """Every page."""
    links = Links(book)
    yield Page(path="index", title="kafka-eos", text="```{toctree}\nmodules/index\nproperties/index\n```")
    yield from module_pages(links)
    yield from property_pages(links, frozenset())


def write_sources(pages: Iterable[Page], folder: Path) -> list[Page]:
    """Write the pages, the configuration and the static files to a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "conf.py").write_text(CONF, encoding="utf-8")
    shutil.copytree(STATIC, folder / "_static")
    found = list(pages)
    for page in found:
        file = folder / f"{page.path}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written(page), encoding="utf-8")
    return found


def build(sources: Path, out: Path) -> None:
    """Run Sphinx.

    Raises:
        BrokenBook: when it refuses the sources, or warns.
    """
    need("sphinx", "book")
    shutil.rmtree(out, ignore_errors=True)
    call = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "2", "-b", "html", "-d",
            str(sources.parent / "book-doctrees"), str(sources), str(out)]  # fmt: skip
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BrokenBook(f"Sphinx refuses {sources}:\n{done.stderr[-4000:]}")


class _Reader(HTMLParser):
    """The anchors, addresses and pictures of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.addresses: list[str] = []
        self.wordless: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := given.get(name))}
        self.addresses += [value for name in ("href", "src") if (value := given.get(name))]
        if (tag == "img" and "alt" not in given) or (given.get("role") == "img" and not given.get("aria-label")):
            self.wordless.append(tag)


_ELSEWHERE = re.compile(r"[a-z]+:")


def problems(out: Path) -> Iterator[str]:
    """The broken links, pictures without words and pages that are too large, a line each."""
    read: dict[Path, _Reader] = {}
    for file in sorted(out.rglob("*.html")):
        reader = read[file.resolve()] = _Reader()
        reader.feed(file.read_text(encoding="utf-8"))
    for file, reader in read.items():
        name = file.relative_to(out.resolve()).as_posix()
        size = file.stat().st_size
        if size > MOST_BYTES:
            yield f"{name}: {size:,} bytes, more than {MOST_BYTES:,}"
        yield from (f"{name}: <{tag}> without words" for tag in reader.wordless)
        for address in dict.fromkeys(reader.addresses):
            if _ELSEWHERE.match(address) or address in {"#", ""}:
                continue
            path, _, place = address.partition("#")
            target = (file.parent / path.partition("?")[0]).resolve() if path else file
            if not target.exists():
                yield f"{name}: {address} leads nowhere"
            elif place and target in read and place not in read[target].ids:
                yield f"{name}: {address} names no place"


def make(book: Book, sources: Path, out: Path) -> int:
    """Write the book; return the number of its pages.

    Raises:
        BrokenBook: when something in it is broken; names each.
    """
    pages = write_sources(pages_of(book), sources)
    build(sources, out)
    wrong = list(problems(out))
    if wrong:
        raise BrokenBook(f"{len(wrong)} problems:\n" + "\n".join(wrong[:40]))
    return len(pages)
