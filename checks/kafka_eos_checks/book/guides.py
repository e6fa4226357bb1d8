r"""The guides: pages written by hand, in ``guides/``; commands in them are run when the book is made.

Three marks stand in a guide besides Markdown:

``{{Transactions!HandleEnd}}``
    a link to the definition of a name; also an error code, a model, a module, ``story:MODEL``, ``finding:ID``, and
    ``try:NAME`` of :mod:`.trying`. ``depth:MODEL`` is the number of states of the model's run.
a fence with the language ``show``
    an operator, ``Module!Name``; its texts in TLA+ and Python replace the fence.
a fence with the language ``run``
    a command, one line; it is run, and its output stands below it. ``exit N`` after ``run`` is the exit code that it
    must have, ``lines A-B`` the lines of its output that are shown.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kafka_eos_checks.book import pages
from kafka_eos_checks.book.linking import CODES, Links
from kafka_eos_checks.book.pages import Page
from kafka_eos_checks.book.stories import told
from kafka_eos_checks.book.trying import SCENARIOS
from kafka_eos_checks.kit.paths import CLONE

FOLDER = Path(__file__).with_name("guides")
_NAME = re.compile(r"\{\{([^}\n]+)\}\}")
_RUN = re.compile(
    r"^```run(?: exit (?P<exit>\d+))?(?: lines (?P<first>\d+)-(?P<last>\d+))?\n(?P<call>[^\n]+)\n```$", re.MULTILINE
)
_COLUMNS = 100  # of the outputs
_SHOW = re.compile(r"^```show\n(?P<module>\w+)!(?P<name>\w+)\n```$", re.MULTILINE)
ORDER = ("twenty-minutes", "configuration", "versions", "limits", "broker-authors", "reading-tla", "reading-kafka")


class MalformedGuide(ValueError):  # noqa: N818 - named for the input
    """A guide names something that does not exist, or its command ends otherwise than it says; names the file."""


def output_of(call: str) -> tuple[int, str]:
    """The exit code and the output of a call of ``kafka-eos``, in an empty folder."""
    words = call.split()
    assert words[0] == "kafka-eos", call
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "kafka_eos_checks.cli", *words[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={**os.environ, "COLUMNS": str(_COLUMNS)},
        )
    return done.returncode, (done.stdout or done.stderr).replace(f"{CLONE}/", "").rstrip()


def _ran(where: str, found: re.Match[str]) -> str:
    code, output = output_of(found["call"])
    if code != int(found["exit"] or 0):
        raise MalformedGuide(f"{where}: {found['call']} ends with {code}, not {found['exit'] or 0}: {output[-500:]}")
    lines = [line.rstrip() for line in output.splitlines()]
    if found["first"]:
        first, last = int(found["first"]), int(found["last"])
        shown = lines[first - 1 : last]
        lines = (["…"] if first > 1 else []) + shown + (["…"] if last < len(lines) else [])
    return "```text\n$ " + found["call"] + "\n" + "\n".join(lines) + "\n```"


def _named(links: Links, where: str, found: re.Match[str]) -> str:
    name = found[1]
    kind, _, rest = name.partition(":")
    if rest:
        titles = {scenario.name: scenario.title for scenario in SCENARIOS}
        if kind == "finding" and rest in {finding.id for finding in links.book.sources.findings}:
            return pages.link(rest, pages.address("findings", rest))
        if kind == "depth" and rest in links.book.entries:
            return str(links.book.entries[rest].expect.depth)
        if kind == "story" and rest in {model.name for model in told(links.book)}:
            return pages.link(rest, pages.address(f"stories/{rest}"))
        if kind == "try" and rest in titles:
            return pages.link(titles[rest], pages.address(f"try/{rest}"))
    elif name in CODES:
        return pages.link(name, pages.of_error(name), code=True)
    elif name in links.book.modules:
        return pages.link(name, pages.address(f"modules/{name}"))
    elif name in links.book.entries:
        return pages.link(name, pages.of_model(links.book.entries[name].module, name))
    elif "!" in name and (to := links.qualified(name)):
        return pages.link(name.partition("!")[2], to)
    raise MalformedGuide(f"{where}: {{{{{name}}}}} names nothing in the spec")


def _shown(links: Links, where: str, found: re.Match[str]) -> str:
    module, name = found["module"], found["name"]
    operators = {each.name: each for each in links.book.operators(module)} if module in links.book.modules else {}
    if name not in operators:
        raise MalformedGuide(f"{where}: {module}!{name} is no operator of the spec")
    return links.pair(operators[name])


def guide(links: Links, file: Path, *, run: bool = True) -> Page:
    """A guide as a page.

    Args:
        links: the addresses.
        file: the guide; its first line is the title.
        run: whether its commands are run; otherwise only the calls are shown.

    Raises:
        MalformedGuide: when it names something that does not exist, or a command does not end as it should.
    """
    title, _, text = file.read_text(encoding="utf-8").partition("\n")
    text = _NAME.sub(partial(_named, links, file.name), text)
    text = _SHOW.sub(partial(_shown, links, file.name), text)
    text = _RUN.sub(partial(_ran, file.name) if run else r"```text\n$ \g<call>\n```", text)
    return Page(path=f"guides/{file.stem}", title=title.removeprefix("# "), text=text)


def guide_pages(links: Links, *, run: bool = True) -> Iterator[Page]:
    """The pages of all guides."""
    for name in ORDER:
        yield guide(links, FOLDER / f"{name}.md", run=run)
