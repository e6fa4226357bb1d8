"""Both transactional clients and a reader on one real broker: their events agree with each other and with the log."""

from pathlib import Path
from typing import Any

import pytest

from kafka_eos_checks.brokers.brokers import HOST, Cluster
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, have_jars
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.lab.record.clients import (
    FATAL_EXIT,
    ClientProcess,
    Reading,
    Workload,
    start_java_workload,
    start_reader,
    start_workload,
)

RECORDS = 6


def start(
    library: str, client: str, pause_after: str | None, port: int, journal: Journal, folder: Path
) -> ClientProcess:
    """Start a client that copies the topic ``input`` to a topic named after its library."""
    work = Workload(
        bootstrap=f"{HOST}:{port}",
        client=client,
        topic=library,
        records=RECORDS,
        prefix="",
        transactional_id=library,
        transaction_size=3,
        source="input",
        group=library,
        pause_after=pause_after,
    )
    if library == "java":
        return start_java_workload(work, journal, folder, KAFKA_VERSION)
    return start_workload(work, journal, folder)


def replace_a_zombie(library: str, port: int, folder: Path) -> Journal:
    """Let a client copy with the transactional id of another, which pauses before its commit; then read."""
    journal = Journal(library)
    with start(library, "zombie", "send_offsets", port, journal, folder) as zombie:
        journal.wait_for(lambda e: e.action == "Pause", 1, 60, "pauses")
        with start(library, "successor", None, port, journal, folder) as successor:
            successor.wait()
        zombie.go_on()
        zombie.wait(expected=(FATAL_EXIT,))
    reading = Reading(bootstrap=f"{HOST}:{port}", client="reader", partitions={library: 1}, isolation="read_committed")
    with start_reader(reading, journal, folder) as reader:
        journal.wait_for(lambda e: e.action == "Assign", 1, 60, "assignments")
        reader.ask_to_stop()
        reader.wait()
    return journal


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
def test_a_librdkafka_and_a_java_client_do_and_report_the_same(tmp_path: Path) -> None:
    told = {}
    with Cluster(tmp_path / "c") as cluster:
        port = cluster[1].port
        for topic in ("input", "librdkafka", "java"):
            cluster.create_topic(topic)
        fill = Workload(bootstrap=f"{HOST}:{port}", client="producer", topic="input", records=RECORDS, prefix="i")
        with start_workload(fill, Journal("fill"), tmp_path) as producer:
            producer.wait()
        for library in ("librdkafka", "java"):
            events = replace_a_zombie(library, port, tmp_path).events()
            cluster.wait_transaction(library, {"CompleteCommit"})
            told[library] = [(e.process, e.action, e.phase, e.offset, e.detail.get("value")) for e in events]
        cluster.stop_all()
    java = told["java"]
    read = [value for process, action, _, _, value in java if (process, action) == ("reader", "Poll")]
    assert read == [f"i{number}" for number in range(RECORDS)]
    assert ("zombie", "CommitTransaction", "info", None, None) in java
    assert ("successor", "CommitTransaction", "ok", None, None) in java
    assert sorted(map(str, java)) == sorted(map(str, told["librdkafka"]))


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
def test_a_java_client_tells_one_outcome_of_a_record_that_is_refused_and_then_aborted(tmp_path: Path) -> None:
    """A producer whose batch has expired takes the next record, and throws; the abort then fails the record again."""
    journal = Journal("r")
    with Cluster(tmp_path / "c") as cluster:
        cluster.create_topic("t")
        common: dict[str, Any] = {"bootstrap": f"{HOST}:{cluster[1].port}", "client": "c", "topic": "t", "prefix": "v"}
        sizes: dict[str, Any] = {"records": 4, "transaction_size": 4, "batch": 1, "pause_ms": 6_000}
        work = Workload(transactional_id="t", timeout_ms=3_000, **common, **sizes)
        with start_java_workload(work, journal, tmp_path, KAFKA_VERSION) as client:
            journal.wait_for(lambda e: (e.action, e.phase) == ("Send", "ok"), 1, 60, "sends")
            cluster[1].freeze()
            journal.wait_for(lambda e: (e.action, e.phase) == ("Send", "info"), 1, 60, "expired sends")
            journal.wait_for(lambda e: (e.action, e.phase) == ("Send", "invoke"), 3, 60, "sends")
            cluster[1].resume()
            client.wait(expected=(0, FATAL_EXIT))
    told = [(e.detail["value"], e.detail["transaction"], e.phase) for e in journal.events() if e.action == "Send"]
    refused = next(each[:2] for each in told if each[2] == "fail")
    assert [phase for *sent, phase in told if tuple(sent) == refused] == ["invoke", "fail"]
