"""The book as a whole: built, and walked with a real browser. Needs the extra `book` and a Chromium."""

from pathlib import Path
from typing import Any

import pytest

from kafka_eos_checks.book.site import MOST_BYTES, make, problems
from kafka_eos_checks.book.sources import Book

WIDTHS = (400, 820, 1400)
KINDS = ("index", "guides/twenty-minutes", "guides/errors", "modules/Leader", "properties/Transactions-AllOrNone",
         "stories/LateEndIsNotAtomic", "try/Transfer", "pictures/tower", "pictures/states", "findings", "claims",
         "reference/commands", "reference/formats", "reference/api-machines", "docs/operators", "models/PartitionLog",
         "touches/ProducerState", "modules/index", "properties/index", "stories/index", "changelog")  # fmt: skip
"""A page of each kind."""

PATHS = {
    "what happens when EndTxn is retried after the coordinator moved": (
        "index", "guides/versions", "modules/TransactionCoordinator#EndVerdict",
        "modules/TransactionCoordinator#EndVerdictOfVersion2", "CONCURRENT_TRANSACTIONS"),
    "why may a fourth batch be refused after a restart": (
        "index", "guides/twenty-minutes", "findings#retry-refused-after-restart", "stories/SnapshotWindow",
        "modules/ProducerState#SnapshotOf", "last batch"),
    "which rule refuses a zombie's offsets": (
        "index", "guides/twenty-minutes", "modules/GroupCoordinator#TxnOffsetCommitError", "ILLEGAL_GENERATION"),
    "the same, from the error code": (
        "index", "guides/errors", "guides/errors#ILLEGAL_GENERATION",
        "modules/GroupCoordinator#TxnOffsetCommitError", "ILLEGAL_GENERATION"),
}  # fmt: skip
"""Question -> the pages that one passes by following links, to the place of the answer, and a word of the answer."""

AT_PLACE = """(place) => {
  const found = document.getElementById(place);
  const parts = [...document.querySelectorAll("h2, h3, a.anchor, .highlight, dl, p")];
  const first = parts.findIndex((e) => found === e || found.contains(e) || found.compareDocumentPosition(e) === 4);
  const next = parts.findIndex((e, i) => i > first && e.matches("a.anchor"));
  return parts.slice(first, next < 0 ? undefined : next).map((e) => e.innerText).join(" ");
}"""
"""The text from an anchor to the next one."""

SIDEWAYS = """() => [...document.querySelectorAll(".pair pre, .small pre")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent.trim().slice(0, 60))"""

UNMARKED = """() => {
  const look = (e) => {
    const style = getComputedStyle(e);
    return [style.outlineStyle, style.outlineWidth, style.boxShadow, style.borderColor].join();
  };
  document.activeElement.blur(); // the Tab key has focused the first
  const found = [];
  for (const e of document.querySelectorAll("a[href], button, summary, input:not([type=hidden])")) {
    if (!e.checkVisibility({ visibilityProperty: true }) || e.disabled || e.closest("svg")) continue;
    if (e.tabIndex < 0) found.push(`cannot be reached: ${e.outerHTML.slice(0, 80)}`);
    const before = look(e);
    e.focus({ focusVisible: true, preventScroll: true });
    if (document.activeElement === e && look(e) === before) found.push(`no mark: ${e.outerHTML.slice(0, 80)}`);
    e.blur();
  }
  return found.slice(0, 5);
}"""
"""The elements that the Tab key does not reach, or reaches without a mark."""

OVERFLOW = """() => {
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  return [...document.querySelectorAll("main *, .content *")]
    .filter((e) => e.getBoundingClientRect().right > wide + 1 && !e.closest("pre, .scroll, .table-wrapper, thead"))
    .slice(0, 3).map((e) => e.tagName + " " + e.className + " " + e.textContent.trim().slice(0, 40))
    .concat([`page is ${document.documentElement.scrollWidth} px wide`]);
}"""

FAINT = """() => {
  const channels = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const light = ([r, g, b]) => {
    const f = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = channels(getComputedStyle(e).backgroundColor);
      if (c[3] > 0.99) return c;
    }
    return [255, 255, 255, 1];
  };
  const found = new Map();
  for (const e of document.querySelectorAll("body *")) {
    if (!e.checkVisibility() || e.closest("[disabled], .later, title")) continue;
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const drawn = e.closest("svg"), box = drawn && e.parentElement.querySelector("rect");
    const fill = box ? getComputedStyle(box).fill : "none";
    const ground = fill === "none" ? behind(drawn || e) : channels(fill);
    const [one, other] = [light(channels(drawn ? style.fill : style.color)), light(ground)].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (ratio < (large ? 3 : 4.5))
      found.set(`${e.tagName} ${e.className} ${ratio.toFixed(2)}`, e.textContent.trim().slice(0, 30));
  }
  return [...found].slice(0, 8).map((pair) => pair.join(": "));
}"""


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx", reason="needs the extra `book`: make book")
    folder = tmp_path_factory.mktemp("book")
    assert make(Book(), folder / "source", folder / "out") > 300
    return folder / "out"


@pytest.mark.thorough
@pytest.mark.tlc
def test_no_link_of_the_book_is_broken_and_no_page_is_too_large(book: Path) -> None:
    assert list(problems(book)) == []
    assert max(file.stat().st_size for file in book.rglob("*.html")) <= MOST_BYTES


@pytest.mark.thorough
@pytest.mark.tlc
@pytest.mark.parametrize("question", PATHS)
def test_a_question_is_answered_by_following_links_only(book: Path, browser: Any, question: str) -> None:
    page = browser.new_page()
    start, *steps, answer = PATHS[question]
    page.goto((book / f"{start}.html").as_uri())
    for step in steps:
        name, _, place = step.partition("#")
        to = (book / f"{name}.html").as_uri() + (f"#{place}" if place else "")
        found = page.evaluate(
            "() => [...document.querySelectorAll('a[href]')].filter((a) => a.checkVisibility()).map((a) => a.href)"
        )
        assert to in found, step
        page.goto(to)
        assert not place or page.locator(f"[id='{place}']").count() == 1
    assert answer in page.evaluate(AT_PLACE, place)
    page.close()


@pytest.mark.thorough
@pytest.mark.tlc
@pytest.mark.parametrize("width", WIDTHS)
def test_no_page_is_wider_than_the_screen_and_no_listing_scrolls_sideways(book: Path, browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    wrong = {}
    for file in sorted(book.rglob("*.html")):
        page.goto(file.as_uri(), wait_until="domcontentloaded")
        found = page.evaluate(OVERFLOW) + page.evaluate(SIDEWAYS)
        if found:
            wrong[file.relative_to(book).as_posix()] = found
    page.close()
    assert wrong == {}


@pytest.mark.thorough
def test_the_walk_notices_faint_text_wide_pages_and_links_without_a_mark(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.set_content("<p style='color: #999; background: #aaa'>faint</p><div style='width: 900px'>wide</div>")
    assert [line.partition(" ")[0] for line in page.evaluate(FAINT)] == ["P"]
    assert page.evaluate(OVERFLOW) == ["page is 908 px wide"]
    page.set_content("<div class=pair><pre style='width: 90px; overflow: auto'>a listing that is wider</pre></div>")
    assert page.evaluate(SIDEWAYS) == ["a listing that is wider"]
    page.set_content("<style>a { outline: none }</style><a href='#'>plain</a><button tabindex=-1>out of reach</button>")
    assert [line.partition(":")[0] for line in page.evaluate(UNMARKED)] == ["no mark", "cannot be reached"]
    page.set_content("<svg><g><rect fill='#888'/><text fill='#777'>faint</text></g></svg>")
    assert [line.partition(" ")[0] for line in page.evaluate(FAINT)] == ["text"]
    page.close()


@pytest.mark.thorough
@pytest.mark.tlc
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(book: Path, browser: Any, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1400, "height": 900})
    page = context.new_page()
    wrong = {}
    for name in KINDS:
        page.goto((book / f"{name}.html").as_uri())
        found = page.evaluate(FAINT)
        if found:
            wrong[name] = found
    context.close()
    assert wrong == {}


@pytest.mark.thorough
@pytest.mark.tlc
def test_a_story_is_stepped_through_with_keys_and_buttons(book: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((book / "stories/LateEndIsNotAtomic.html").as_uri())
    steps = page.locator("ol.story > li")
    assert steps.count() == page.locator("ol.story > li:visible").count() == 21
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.locator("ol.story > li:visible").get_attribute("id") == "step-1"
    assert page.locator("table.changed tbody tr").count() > 0
    page.get_by_role("button", name="All steps").click()
    assert page.locator("ol.story > li:visible").count() == 21
    page.close()


@pytest.mark.thorough
@pytest.mark.tlc
def test_a_refused_action_says_why_and_an_enabled_one_is_taken(book: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((book / "try/Transfer.html").as_uri())
    assert "refusals" in page.locator("[data-refused] summary").inner_text()
    page.get_by_role("button", name='Initialize("A")').click()
    assert page.locator("ol.trail > li").all_inner_texts() == ['Initialize("A")']
    assert page.locator("table.changed tbody tr").count() > 0
    page.close()


@pytest.mark.thorough
@pytest.mark.tlc
def test_every_link_and_button_is_reached_by_the_keyboard_and_marked(book: Path, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    wrong = {}
    for name in KINDS:
        page.goto((book / f"{name}.html").as_uri())
        page.keyboard.press("Tab")
        found = page.evaluate(UNMARKED)
        if found:
            wrong[name] = found
    page.close()
    assert wrong == {}


@pytest.mark.thorough
@pytest.mark.tlc
def test_a_graph_is_walked_with_the_keyboard_only(book: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((book / "try/Transfer.html").as_uri())
    page.get_by_role("button", name='Initialize("A")').focus()
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.textContent") == "Choose a step"
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.closest('ul.choices') !== null")
    page.keyboard.press("Enter")
    assert page.locator("ol.trail > li").count() == 2
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.locator("ol.trail > li").count() == 0
    assert page.evaluate("() => document.activeElement.textContent") == "Start again"
    page.close()


@pytest.mark.thorough
@pytest.mark.tlc
def test_pages_say_the_same_without_a_script_and_on_paper(book: Path, browser: Any) -> None:
    without = browser.new_context(java_script_enabled=False)
    plain, scripted, printed = without.new_page(), browser.new_page(), browser.new_page()
    printed.emulate_media(media="print")
    words = "() => document.querySelector('article').innerText.split(/\\s+/).length"
    for name in KINDS:
        read = {}
        for way, page in (("plain", plain), ("scripted", scripted), ("printed", printed)):
            page.goto((book / f"{name}.html").as_uri())
            read[way] = len(page.locator("article").inner_text().split()) if way == "plain" else page.evaluate(words)
        if not name.startswith("try/"):
            assert read["plain"] >= 0.98 * read["scripted"], name
            assert read["printed"] >= 0.98 * read["scripted"], name
    plain.goto((book / "try/Transfer.html").as_uri())
    assert plain.get_by_text("needs a script").is_visible()
    without.close()
    printed.goto((book / "models/PartitionLog.html").as_uri())
    folded = "() => [...document.querySelectorAll('details > code')].map((e) => e.checkVisibility())"
    assert set(printed.evaluate(folded)) == {True}
    scripted.goto((book / "models/PartitionLog.html").as_uri())
    assert set(scripted.evaluate(folded)) == {False}
    scripted.close()
    printed.close()


@pytest.mark.thorough
@pytest.mark.tlc
def test_pages_are_read_and_searched_without_a_script_or_a_server(book: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((book / "stories/LateEndIsNotAtomic.html").as_uri())
    assert page.locator("ol.story > li:visible").count() == 21
    context.close()
    searching = browser.new_page()
    for word, found in (("fenced", ""), ("AppendError", "ProducerState"), ("NoDuplicateCache", "Models of"),
                        ("NETWORK_EXCEPTION", "error"), ("NoGapNoDuplicate", "NoGapNoDuplicate")):  # fmt: skip
        searching.goto((book / "search.html").as_uri() + f"?q={word}")
        searching.locator("ul.search li", has_text=found).first.wait_for(timeout=20_000)
    searching.close()
