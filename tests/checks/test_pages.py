"""The pages name files, folders and modules that exist, and show what the commands print today."""

import importlib
import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from kafka_eos_checks.cli import main
from kafka_eos_checks.kit.paths import CLONE

PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{p.name}" for p in (CLONE / "docs").iterdir()),
)
SUFFIXES = (".py", ".tla", ".toml", ".md", ".xml", ".tar.xz", ".lock", ".proto", "Makefile")
ELSEWHERE = {"plan.toml", ".lock", "brokers/<n>/<topic>-<partition>/"}
"""Files that a reader of the pages writes, or a broker; folders of recordings."""

_LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")
_ANCHOR = re.compile(r"\]\(#([^)\s]+)\)")
_QUOTED = re.compile(r"`([^`\n]+)`")
_SHOWN = re.compile(
    r"^ +((?:spec|checks|tests|reference)/[\w/.-]+?\.\w+):(?:…|\d+) ", re.MULTILINE
)  # what check impact prints
_PATH = re.compile(r"[\w.<>{}*-]+(?:/[\w.<>{}*-]+)*/?")
_MODULE = re.compile(r"kafka_eos(?:_checks)?(?:\.\w+)+")
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files"], cwd=CLONE, capture_output=True, text=True, check=True, timeout=60)
    return tuple(listed.stdout.splitlines())


@cache
def folders() -> frozenset[str]:
    """Every folder of the project, by its path."""
    return frozenset(str(parent) for name in tracked() for parent in Path(name).parents if str(parent) != ".")


@cache
def rooms() -> frozenset[str]:
    """The names with which a path of the project begins: top folders and rooms."""
    packages = ("reference/kafka_eos/", "checks/kafka_eos_checks/")
    return frozenset(
        [folder for folder in folders() if "/" not in folder]
        + [f.removeprefix(p) for f in folders() for p in packages if f.startswith(p) and f.count("/") == 2]
    )


def is_there(path: str) -> bool:
    """A file or folder of the project has this path, or ends with it; <…> and * stand for any name."""
    pattern = re.sub(r"<\w+>|\\\*", "[^/]+", re.escape(path.rstrip("/")))
    wanted = re.compile(rf"(?:.*/)?{pattern}")
    return any(wanted.fullmatch(name) for name in (*tracked(), *folders()))


def is_module(name: str) -> bool:
    """The name is one of a module, or of something in a module."""
    module, _, member = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ImportError:
        try:
            return hasattr(importlib.import_module(module), member)
        except ImportError:
            return False
    return True


def paths_of(text: str) -> Iterator[str]:
    """The paths that a page names: linked, quoted, or shown as the output of a command."""
    yield from _SHOWN.findall(text)
    for quoted in _QUOTED.findall(text):
        for word in quoted.split():
            if not _PATH.fullmatch(word) or word in ELSEWHERE:
                continue
            if word.endswith(SUFFIXES) or ("/" in word and word.partition("/")[0] in rooms() - {"build"}):
                yield word


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead(page: str, text: str) -> list[str]:
    """The names in a page that do not exist."""
    found = [path for path in paths_of(text) if not is_there(path)]
    found += [name for name in _MODULE.findall(" ".join(_QUOTED.findall(text))) if not is_module(name)]
    found += [f"#{anchor}" for anchor in _ANCHOR.findall(text) if anchor not in anchors_of(text)]
    for target, anchor in _LINK.findall(text):
        if "://" in target:
            continue
        linked = (CLONE / page).parent / target
        if not linked.exists():
            found.append(target)
        elif anchor and anchor not in anchors_of(linked.read_text(encoding="utf-8")):
            found.append(f"{target}#{anchor}")
    return found


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_what_exists(page: str) -> None:
    text = (CLONE / page).read_text(encoding="utf-8")
    assert dead(page, text) == []


def test_the_pages_name_many_paths_and_modules() -> None:
    texts = [(CLONE / page).read_text(encoding="utf-8") for page in PAGES]
    assert sum(len(list(paths_of(text))) for text in texts) > 80
    assert sum(len(_MODULE.findall(text)) for text in texts) > 5


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ("`audit/rules.py` has them", "audit/rules.py"),
        ("`checks/kafka_eos_checks/audit/rules.py`", "checks/kafka_eos_checks/audit/rules.py"),
        ("`headers.toml` says", "headers.toml"),
        ("`spec/none/<Module>.toml`", "spec/none/<Module>.toml"),
        ("`matrix/guards/` has them", "matrix/guards/"),
        ("`kafka_eos_checks.audit.headers` reads", "kafka_eos_checks.audit.headers"),
        ("`kafka_eos.machines.leader.Leaders`", "kafka_eos.machines.leader.Leaders"),
        ("    spec/Leaders.tla:…  Leader!Init", "spec/Leaders.tla"),
        ("[there](docs/nowhere.md)", "docs/nowhere.md"),
        ("[there](docs/operators.md#nowhere)", "docs/operators.md#nowhere"),
        ("[there](#nowhere)", "#nowhere"),
    ],
)
def test_a_planted_name_of_nothing_is_found(planted: str, found: str) -> None:
    text = (CLONE / "README.md").read_text(encoding="utf-8")
    assert dead("README.md", f"{text}\n{planted}\n") == [found]


# --- what commands print ---------------------------------------------------------------------------------------------

_SAMPLE = re.compile(r"^( *)```\n *\$ kafka-eos (audit example:[\w-]+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SAMPLES = {
    "README.md": "audit example:violations",
    "docs/operators.md": "audit example:operator-mistakes",
}


def samples(text: str) -> list[tuple[str, list[str]]]:
    """(call, the lines that are shown below it) of each sample of a page."""
    return [(call, textwrap.dedent(shown).splitlines()) for _, call, shown in _SAMPLE.findall(text)]


def not_printed(shown: list[str], printed: str) -> list[str]:
    """The lines of a sample that are not printed after those before; … stands for any lines."""
    rest, missing, left_out = printed.splitlines(), [], False
    for line in shown:
        if line.strip() == "…":
            left_out = True
        elif line in rest and (left_out or rest.index(line) == 0):
            rest, left_out = rest[rest.index(line) + 1 :], False
        else:
            missing.append(line)
    return missing


def test_every_page_with_a_sample_is_known() -> None:
    found = {page: [call for call, _ in samples((CLONE / page).read_text(encoding="utf-8"))] for page in PAGES}
    assert {page: calls for page, calls in found.items() if calls} == {page: [call] for page, call in SAMPLES.items()}


@pytest.mark.parametrize("page", SAMPLES)
def test_a_sample_is_what_the_command_prints(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CLONE)
    [(call, shown)] = samples((CLONE / page).read_text(encoding="utf-8"))
    main(shlex.split(call))
    printed = capsys.readouterr().out
    assert not_printed(shown, printed) == []
    older = [
        line.replace(" at 2026", " since 2026").replace("found 5", "found 4").replace(":91 ", ":90 ") for line in shown
    ]
    assert not_printed(older, printed) != []


def test_a_line_that_is_printed_later_or_never_is_missed_in_a_sample() -> None:
    assert not_printed(["a", "…", "c"], "a\nb\nc\n") == []
    assert not_printed(["a", "c"], "a\nb\nc\n") == ["c"]
    assert not_printed(["…", "c", "…", "a"], "a\nb\nc\n") == ["a"]
    assert not_printed(["…", "d"], "a\nb\nc\n") == ["d"]


# --- ARCHITECTURE.md -------------------------------------------------------------------------------------------------


def blocks_below(heading: str, text: str) -> str:
    """The first block of code below a heading."""
    match = _BLOCK.search(text, text.index(f"\n## {heading}\n"))
    assert match is not None
    return match[1]


def missing_rooms(text: str) -> list[str]:
    """Rooms that the page does not show, and those that it shows and that are none."""
    head, *lines = blocks_below("The rooms", text).splitlines()
    column = head.index("reference/kafka_eos/")
    shown: set[str] = set()
    for line in lines:
        cut = column if line[column - 2 : column] == "  " else len(line)
        shown |= {f"checks/kafka_eos_checks/{name}" for name in _names(line[:cut])}
        shown |= {f"reference/kafka_eos/{name}" for name in _names(line[cut:])}
    packages = (Path(name).parent for name in tracked() if name.endswith("/__init__.py"))
    parents = {"checks/kafka_eos_checks", "reference/kafka_eos"}
    real = {str(package) for package in packages if str(package.parent) in parents}
    return sorted(shown ^ real)


def _names(cell: str) -> Iterable[str]:
    """The names at the beginning of ``a, b   what they are``."""
    return [name for name in re.split(r", ", re.split(r" {2,}", cell.strip())[0]) if name]


def dead_specs(text: str) -> list[str]:
    """Modules of the tower that are no files of ``spec/``."""
    named = re.findall(r"^([A-Z]\w+) {2,}", blocks_below("The tower of specs", text), re.MULTILINE)
    assert len(named) > 20
    return [name for name in named if not (CLONE / "spec" / f"{name}.tla").is_file()]


def test_the_rooms_of_the_architecture_are_the_rooms() -> None:
    text = (CLONE / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert missing_rooms(text) == []
    assert missing_rooms(text.replace("  matrix, ledger  ", "  matrix, ledgers ")) == [
        "checks/kafka_eos_checks/ledger",
        "checks/kafka_eos_checks/ledgers",
    ]


def test_the_tower_of_the_architecture_names_modules() -> None:
    text = (CLONE / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert dead_specs(text) == []
    assert dead_specs(text.replace("\nEpochBump  ", "\nEpochBumps ")) == ["EpochBumps"]
