"""A pytest plugin that notes the tests which execute each line of a package, so that a mutant meets these tests only.

Run it as ``pytest -p kafka_eos_checks.matrix.reached``, with the file for its notes in ``KAFKA_EOS_REACHED`` and the
folder of the package in ``KAFKA_EOS_MEASURED``. Coverage.py measures, in processes that tests start or fork too. It
sees nothing of one that is killed, that becomes another program, or that starts without its test's environment.
"""

import json
import os
import warnings
from collections.abc import Generator
from pathlib import Path
from time import monotonic

import pytest
from coverage import Coverage
from coverage.exceptions import CoverageWarning

from kafka_eos_checks.matrix.notes import ELSEWHERE, MEASURED, NOTES

# Tests end their servers by SIGTERM, and pytest names the test in a variable that the processes of a test inherit.
CONFIG = """[run]
data_file = {notes}.lines
parallel = true
source = {package}
context = ${{PYTEST_CURRENT_TEST-}}
sigterm = true
patch = _exit, fork
"""

_notes = Path(os.environ[NOTES])
_config = _notes.with_suffix(".ini")
_config.write_text(CONFIG.format(notes=_notes, package=os.environ[MEASURED]), encoding="utf-8")
os.environ.pop("PYTEST_CURRENT_TEST", None)  # of a test that runs this pytest
os.environ["COVERAGE_PROCESS_START"] = str(_config)  # read by each Python that a test starts
_coverage = Coverage(config_file=str(_config))
_coverage.start()


def _name_test() -> None:
    """Note the test that has forked this process, in the place of what ran when the lines began to be counted."""
    if forked := Coverage.current():
        forked.switch_context(os.environ.get("PYTEST_CURRENT_TEST", ""))


os.register_at_fork(after_in_child=_name_test)
_seconds: dict[str, float] = {}


def _test(name: str) -> str:
    """A test without its parameters and phase."""
    return name.partition("[")[0].partition(" (")[0]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note the lines that a test and its fixtures execute, and the seconds that it takes."""
    began = monotonic()
    _coverage.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _coverage.switch_context("")
        name = _test(item.nodeid)
        _seconds[name] = _seconds.get(name, 0.0) + monotonic() - began


def pytest_sessionfinish() -> None:
    """Write the notes, by file of tests: the seconds of each test, and by module and line the numbers of the tests.

    Coverage.py warns if the tests execute nothing of the package, and of a process that ended while it wrote its lines.
    Where warnings are errors, neither is one.
    """
    _coverage.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoverageWarning)
        _coverage.save()
        _coverage.combine()
    numbers: dict[str, dict[str, int]] = {}
    for name in _seconds:
        own = numbers.setdefault(name.partition("::")[0], {})
        own[name] = len(own)
    data = _coverage.get_data()
    contexts = {os.path.relpath(file): data.contexts_by_lineno(file) for file in data.measured_files()}
    notes = {
        tests: {
            "tests": {name: _seconds[name] for name in own},
            "reached": {
                file: {line: found for line, names in lines.items() if (found := _numbers(own, names))}
                for file, lines in contexts.items()
            },
        }
        for tests, own in numbers.items()
    }
    _notes.write_text(json.dumps(notes), encoding="utf-8")


def _numbers(own: dict[str, int], contexts: list[str]) -> list[int]:
    names = set(map(_test, contexts))
    return sorted({own[name] for name in names if name in own} | ({ELSEWHERE} if "" in names else set()))
