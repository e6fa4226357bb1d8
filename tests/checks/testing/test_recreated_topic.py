"""A Java producer sends offsets of a topic that was deleted and created again, on a real broker."""

import subprocess
from pathlib import Path

import pytest

from kafka_eos_checks.brokers.brokers import Cluster, java_command
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, have_jars

pytestmark = [pytest.mark.broker, pytest.mark.thorough]

PROGRAM = Path(__file__).parents[2] / "java" / "RecreatedTopic.java"
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
SECONDS = 200


@pytest.mark.parametrize(
    ("client", "told"),
    [
        (KAFKA_VERSION, ["send offset 2: done", "commit: done"]),
        (NEWEST, ["send offset 2: TimeoutException", "abort: TimeoutException", "abort: TimeoutException"]),
    ],
)
def test_the_newest_producer_cannot_even_abort_once_the_topic_of_its_offsets_has_another_id(
    client: str, told: list[str], tmp_path: Path
) -> None:
    for kafka in {client, NEWEST}:
        if not have_jars(kafka):
            pytest.skip(f"the jars of Kafka {kafka} are not there; `make peers` fetches them")
    with Cluster(tmp_path / "kafka", settings=SETTINGS, kafka=NEWEST) as broker:
        program = java_command(str(PROGRAM), f"127.0.0.1:{broker.any_port()}", kafka=client)
        done = subprocess.run(program, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    at = lines.index(told[0])
    assert "send offset 1: done" in lines[:at]
    assert lines[at : at + len(told)] == told
    assert lines[-2:] == ["send offset 3: done", "commit: done"], "the next producer goes on"
