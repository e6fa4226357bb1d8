"""A transactional application of Java's clients, of each release, on the in-process broker."""

import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.server.schemas import served_codec
from kafka_eos_checks.brokers.brokers import java_command
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, have_jars
from kafka_eos_checks.testing.history import HistoryFile
from kafka_eos_checks.testing.in_process_broker import InProcessBroker

pytestmark = [pytest.mark.java, pytest.mark.thorough]

COPIER = Path(__file__).parents[2] / "java" / "Copier.java"
INPUTS = 5
SECONDS = 120


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[int]]:
    """The versions of each API in which requests come to the broker."""
    found: dict[str, set[int]] = {}
    names, asked = served_codec().names, HistoryFile.asked

    def noted(self: HistoryFile, connection: int, node: int, frame: bytes, **more: Any) -> Any:
        key, version = struct.unpack(">hh", frame[:4])
        found.setdefault(names.get(key, str(key)), set()).add(version)
        return asked(self, connection, node, frame, **more)

    monkeypatch.setattr(HistoryFile, "asked", noted)
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(("kafka", "version"), [(KAFKA_VERSION, 5), (NEWEST, 6)])
def test_javas_clients_copy_each_input_once_in_transactions(
    kafka: str, version: int, protocol: str, versions: dict[str, set[int]], tmp_path: Path
) -> None:
    if not have_jars(kafka):
        pytest.skip(f"the jars of Kafka {kafka} are not there; `make peers` fetches them")
    with InProcessBroker(tmp_path / "broker") as broker:
        for topic in ("in", "out"):
            broker.create_topic(topic)
        copier = java_command(str(COPIER), broker.bootstrap_servers, protocol, str(INPUTS), kafka=kafka)
        done = subprocess.run(copier, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        broker.assert_exactly_once(inputs="in", outputs="out", group="g")
    assert versions["TxnOffsetCommit"] == {version}
