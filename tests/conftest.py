"""Fixtures and settings of all tests: a small protocol, Hypothesis' profile, and a printed seed that can be given."""

import json
import os
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from kafka_eos.wire.protocol import Codec

settings.register_profile("kafka-eos", deadline=None, print_blob=True)
settings.load_profile("kafka-eos")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(1 << 32))


def pytest_xdist_auto_num_workers() -> int:
    """Two processes a core: tests wait for brokers, TLC and Spark almost half of their time."""
    return 2 * (os.cpu_count() or 1)


class OneSpark(LoadFileScheduling):
    """The tests of a file run in one process, and those of all files with Spark in one that they share."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "with Spark" if _starts_spark(Path(self.config.rootpath, file)) else file


@cache
def _starts_spark(file: Path) -> bool:
    return "pytest.mark.spark" in file.read_text(encoding="utf-8")


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
