"""Fixtures and settings of all tests: a small protocol, Hypothesis' profile, and a printed seed that can be given."""

import ast
import gc
import json
import os
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from kafka_eos.wire.protocol import Codec

settings.register_profile("kafka-eos", deadline=None, print_blob=True)
settings.load_profile("kafka-eos")

gc.disable()  # until all tests are collected, which makes a million objects and no garbage
SPARK = "pytest.mark.spark"
LONG = (
    "checks/conform/test_conform.py",
    "checks/conform/test_outages.py",
    "checks/matrix/test_code.py",
    "checks/testing/test_beside_kafka.py",
    "checks/testing/test_command.py",
    "checks/testing/test_faults.py",
    "checks/traces/test_cut_logs.py",
    "checks/traces/test_replays.py",
    "checks/walks/test_command.py",
    "checks/watch/test_served.py",
)
"""The files that take longest. With several processes they come first, so that at the end none has one to itself."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(1 << 32))


def pytest_xdist_auto_num_workers() -> int:
    """Two processes a core: tests wait for brokers, TLC and Spark almost half of their time."""
    return 2 * (os.cpu_count() or 1)


class OneSpark(LoadFileScheduling):
    """The tests of a file run in one process, except that all tests with Spark, of whatever file, share one session."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        function = nodeid.partition("[")[0].rpartition("::")[2]
        return "with Spark" if function in _with_spark(Path(self.config.rootpath, file)) else file


@cache
def _with_spark(file: Path) -> frozenset[str]:
    """The tests of a file that are marked, each or with their file, to start Spark."""
    text = file.read_text(encoding="utf-8")
    body = ast.parse(text).body if SPARK in text else []
    tests = [each for each in body if isinstance(each, ast.FunctionDef)]
    marked = any(isinstance(each, ast.Assign) and SPARK in ast.unparse(each) for each in body)
    return frozenset(
        test.name for test in tests if marked or any(SPARK in ast.unparse(each) for each in test.decorator_list)
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the long files first; refuse a test that would start a second session of Spark: all of them share one.

    A single process keeps the order of its call: ``kafka-eos check code`` names quick tests before long ones.
    """
    long = {Path(__file__).parent / file for file in LONG}
    if gone := [file for file in LONG if not (Path(__file__).parent / file).is_file()]:
        raise pytest.UsageError(f"tests/conftest.py: LONG names files that are not there: {', '.join(gone)}")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path not in long)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("spark") is None:
            raise pytest.UsageError(f"{item.nodeid} takes the session of Spark; mark it with {SPARK}")
        if item.get_closest_marker("spark") and getattr(item, "originalname", "") not in _with_spark(item.path):
            raise pytest.UsageError(f"{item.nodeid}: write {SPARK} above the test, or into the module's pytestmark")


def pytest_collection_finish() -> None:
    """Collected tests and imported modules stay to the end: the garbage collector need not look at them again."""
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSpark:
    return OneSpark(config, log)


def seed_line(config: pytest.Config) -> str:
    return f"random tests: repeat with --hypothesis-seed={config.option.hypothesis_seed}"


def pytest_report_header(config: pytest.Config) -> str:
    return seed_line(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.get_verbosity() < 0:  # then there is no header
        terminalreporter.write_line(seed_line(config))


@pytest.fixture
def codec() -> Codec:
    """A few messages in the form of Kafka's schema files, without Kafka's jars."""
    schemas = json.loads((Path(__file__).parent / "vectors" / "protocol_schemas.json").read_text(encoding="utf-8"))
    return Codec({schema["name"]: schema for schema in schemas})


@pytest.fixture(scope="module")
def one_processor() -> Iterator[None]:
    """Keep a module's tests, and the programs that they start, on one processor.

    It is for threads that take turns: a server and its clients in this process, because they share Python's lock, or
    two threads of Java that wait for each other. To hand the turn over from one processor to another takes almost as
    long as what they do with it.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(allowed)[worker % len(allowed)]})
    yield
    os.sched_setaffinity(0, allowed)
