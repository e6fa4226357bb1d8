"""A pytest plugin that notes the functions which each test enters, so that mutants meet the right tests first.

Run it as ``pytest -p kafka_eos_checks.matrix.reached``, with the file for its notes in ``KAFKA_EOS_REACHED``. What a
test starts as a process of its own is not seen.
"""

import json
import os
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from time import monotonic
from types import CodeType, FrameType

import pytest

from kafka_eos_checks.matrix.code import NOTES, function_key

_entered: set[CodeType] = set()
_reached: dict[str, dict[str, float]] = {}


def _enter(frame: FrameType, event: str, arg: object) -> None:  # noqa: ARG001 - as Python calls it
    _entered.add(frame.f_code)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note the functions that a test and its fixtures enter, and the seconds that it takes."""
    _entered.clear()
    began = monotonic()
    threading.settrace(_enter)
    sys.settrace(_enter)
    try:
        return (yield)
    finally:
        sys.settrace(None)
        threading.settrace(None)
        seconds = monotonic() - began
        name = item.nodeid.partition("[")[0]
        for code in set(_entered):
            tests = _reached.setdefault(function_key(code.co_filename, code.co_firstlineno), {})
            tests[name] = tests.get(name, 0.0) + seconds


def pytest_sessionfinish() -> None:
    """Write the notes: for each function of the folder, its tests, quick ones first."""
    here = str(Path.cwd()) + os.sep
    notes = {
        name.removeprefix(here): sorted(tests, key=lambda test: tests[test])
        for name, tests in _reached.items()
        if name.startswith(here)
    }
    Path(os.environ[NOTES]).write_text(json.dumps(notes), encoding="utf-8")
