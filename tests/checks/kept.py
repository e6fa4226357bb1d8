"""Kept texts: what a test is told is compared whole with ``kept/<test file>.txt`` of its room.

A test says what matters to it. What else is told is kept in the file, so that a wrong number or name in it is noticed.
After a change that is meant, ``KAFKA_EOS_KEEP=1 pytest tests/checks/<room>`` writes the files anew; then read what is
different.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable
from difflib import ndiff
from functools import cache
from pathlib import Path

import pytest
from _pytest.capture import CaptureResult

ROOMS = Path(__file__).parent
MOST_CALLS = 3  # that are compared of a test
Entries = dict[str, list[str]]

_OF_ONE_RUN = tuple(
    (re.compile(pattern, re.MULTILINE), instead)
    for pattern, instead in (
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", "TIME"),
        (r"\b\d+\.\d+ s\b|(?<=pass; )\d+ s$", "SECONDS"),
        (r" {2,}\d+\.\d$|(?<=<td>)\d+\.\d(?=</td>)", " SECONDS"),  # in the last column of a table
        (r"\d+ requests, (\d+ states read back), \d+ retries", r"N requests, \1, N retries"),  # a slow broker is busy
        (r"(?<=\[Errno )\d+", "N"),
        (r"127\.0\.0\.1:[1-9]\d{3,}", "ADDRESS"),
        (r"(?<=-)[0-9a-f]{8}(?=-)", "NAME"),
        (r"(?<=recursion depth exceeded)[^;]*", ""),  # Python's own words
    )
)
_calls: Counter[str] = Counter()


@cache
def entries(path: Path) -> Entries:
    """The lines of each test in the file of a module of tests, by the test's name and the number of its call."""
    found = Entries()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith("  "):
            found[next(reversed(found))].append(line[2:])
        else:
            found[line] = []
    return found


def compared(told: Iterable[str]) -> None:
    """Compare lines of the running test with what is kept of it."""
    nodeid = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    file, _, test = nodeid.partition("::")
    _calls[nodeid] += 1
    if _calls[nodeid] > MOST_CALLS:
        return
    path = ROOMS / Path(file).parts[2] / "kept" / f"{Path(file).stem}.txt"
    known, key, lines = entries(path), f"{test} {_calls[nodeid]}", list(told)
    if "KAFKA_EOS_KEEP" in os.environ:
        known[key] = lines
        text = "".join(f"{key}\n" + "".join(f"  {line}\n" for line in own) for key, own in sorted(known.items()))
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    expected = known.get(key, ["nothing is kept"])
    assert lines == expected, "\n".join(["kept (-) and told (+):", *ndiff(expected, lines)])


def kept_text(text: str, folder: Path) -> None:
    """Compare a text without what differs from run to run."""
    text = text.replace(str(folder), "FOLDER").replace(str(folder.parent), "TMP")
    for pattern, instead in _OF_ONE_RUN:
        text = pattern.sub(instead, text)
    compared(line.rstrip() for line in text.splitlines())


def keep_output(capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the whole output of commands, whatever a test reads of it."""
    read = capsys.readouterr

    def compare() -> CaptureResult[str]:
        told = read()
        kept_text(f"{told.out}{told.err}", folder)
        return told

    monkeypatch.setattr(capsys, "readouterr", compare)
