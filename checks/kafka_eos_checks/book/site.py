"""The book as a whole: write every page as Markdown, run Sphinx, and check every link."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

from kafka_eos_checks.book import pages
from kafka_eos_checks.book.errors import errors_page
from kafka_eos_checks.book.guides import guide_pages
from kafka_eos_checks.book.ledgers import claims_page, findings_page
from kafka_eos_checks.book.linking import Links
from kafka_eos_checks.book.modules import module_pages
from kafka_eos_checks.book.pages import Page, written
from kafka_eos_checks.book.pictures import states_page, tower_page
from kafka_eos_checks.book.properties import property_pages
from kafka_eos_checks.book.reference import reference_pages, schema_file, schemas
from kafka_eos_checks.book.sources import Book
from kafka_eos_checks.book.stories import read_stories, story_pages, told
from kafka_eos_checks.book.trying import trying_pages
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.verdict import write_document

STATIC = Path(__file__).with_name("static")
MOST_BYTES = 300_000  # of one page

CONF = """
project = "kafka-eos"
extensions = ["myst_parser"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]
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
highlight_language = "none"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
"""


class BrokenBook(RuntimeError):  # noqa: N818 - named for what is broken
    """A book with a broken link, a picture without words, a page that is too large, or that Sphinx refuses."""


MENU: dict[str, tuple[str, ...]] = {
    "Learn": ("guides/twenty-minutes", "try/index", "stories/index", "guides/reading-tla", "guides/reading-kafka"),
    "Use": ("guides/errors", "guides/configuration", "guides/versions", "guides/limits", "docs/operators",
            "docs/histories", "docs/upgrading", "docs/application-tests", "guides/broker-authors", "docs/behaviours",
            "docs/libraries", "docs/served", "docs/sql"),
    "The spec": ("modules/index", "properties/index", "pictures/tower", "pictures/states", "docs/coverage"),
    "Ledgers": ("findings", "claims"),
    "Reference": ("docs/commands", "reference/commands", "reference/api", "reference/formats", "changelog"),
}  # fmt: skip
"""Heading of the menu -> its pages. Every page in the menu is here."""

_DOORS = {
    "guides/twenty-minutes": ("I am new to this", "what can go wrong, and the four mechanisms against it"),
    "guides/errors": ("I see an error", "what it means, what to do, and which rule answers it"),
    "docs/operators": ("I run Kafka", "did my cluster break exactly-once, where, and what now"),
    "guides/configuration": ("I build on Kafka", "which settings you need, and what is lost without them"),
    "docs/application-tests": ("I test my application", "a cluster in the test's own process, which fails on demand"),
    "guides/broker-authors": ("I implement Kafka", "which rule is where, and how to ask your broker or client"),
    "modules/index": ("I look up a rule", "each action in TLA+ and Python, with Kafka's class and method"),
    "pictures/tower": ("I read specs", "what refines what, and every property with its models"),
    "stories/index": ("I want to see it break", "each known failure, step by step"),
    "try/index": ("I want to break it", "choose crashes and lost messages in the browser"),
}
"""Page -> its readers, and what they look for."""


def index_page(book: Book) -> Page:
    """The first page: doors, and the menu."""
    doors = "".join(
        f'<li><a href="{pages.address(to)}"><strong>{who}</strong><span>{what}</span></a></li>'
        for to, (who, what) in _DOORS.items()
    )
    modules = sum(not folder for folder in book.modules.values())
    models, mutants, judged = len(book.registry.models), len(book.registry.mutants), len(book.judged)
    counts = f"{modules} modules, {len(book.actions)} actions, {judged} properties, {models} models, {mutants} mutants"
    trees = "\n\n".join(
        "```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + "\n".join(names) + "\n```"
        for caption, names in MENU.items()
    )
    text = f"""How Apache Kafka's exactly-once semantics works, as an executable spec: TLA+ that TLC checks, and Python
with the same state graph. Every page is made from the sources that are checked: {counts}.

{pages.raw(f'<ul class="doors">{doors}</ul>')}

{trees}
"""
    return Page(path="index", title="Kafka's exactly-once semantics, executable", text=text)


def pages_of(book: Book, *, run: bool = True) -> Iterator[Page]:
    """Every page.

    Args:
        book: what the pages are made of.
        run: whether TLC tells the stories and the guides' commands are run.
    """
    links = Links(book)
    stories = read_stories(told(book)) if run else {}
    yield index_page(book)
    yield from guide_pages(links, run=run)
    yield errors_page(links)
    yield from module_pages(links)
    yield from property_pages(links, frozenset(stories))
    yield from story_pages(links, stories)
    yield from trying_pages(links)
    yield states_page(links)
    yield tower_page(links)
    yield findings_page(links)
    yield claims_page(links)
    yield from reference_pages(book)


def write_sources(made: Iterable[Page], folder: Path) -> list[Page]:
    """Write the pages, the configuration and the static files to a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "conf.py").write_text(CONF, encoding="utf-8")
    shutil.copytree(STATIC, folder / "_static")
    for title, (schema, _) in schemas().items():
        write_document(folder / schema_file(title), schema)
    found = list(made)
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
    made = write_sources(pages_of(book), sources)
    build(sources, out)
    wrong = list(problems(out))
    if wrong:
        raise BrokenBook(f"{len(wrong)} problems:\n" + "\n".join(wrong[:40]))
    return len(made)
