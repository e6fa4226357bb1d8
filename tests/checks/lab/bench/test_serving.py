"""The measurement of the server, on a small scale."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.lab.bench import serving
from kafka_eos_checks.lab.bench.serving import Client, Served

confluent = pytest.importorskip("confluent_kafka", reason="the clients are in the extra `record`")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "data") as server:
        yield server


def test_transactions_are_counted_timed_and_read_back(served: Served) -> None:
    client = Client(served, 3)
    client.begin()
    assert [client.run(), client.run()] == [{"transactions": 3}] * 2
    assert client.check() == {"records": 2 * 3 * serving.RECORDS_EACH}
    assert len(client.seconds) == 6
    assert 0 < client.percentile(50) <= client.percentile(99) <= 1000 * max(client.seconds[3:])


def test_the_server_prints_its_answers_when_it_ends(served: Served) -> None:
    Client(served, 1).begin()
    with pytest.raises(confluent.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        Client(served, 1).begin()
    assert served.errors()["CreateTopics TOPIC_ALREADY_EXISTS"] == 2


@pytest.mark.java
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
def test_kafkas_performance_tool_writes_its_records(served: Served) -> None:
    Client(served, 1).begin()
    assert serving.produce_by_tool(served, 2_000) == {"records": 2_000}


def test_librdkafka_writes_its_records_and_counts_those_that_are_acknowledged(served: Served) -> None:
    Client(served, 1).begin()
    assert serving.produce_by_librdkafka(served, 2_000) == {"records": 2_000}


def test_plain_records_are_measured_with_kafkas_tool_and_with_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("produce_by_tool", "produce_by_librdkafka"):
        monkeypatch.setattr(serving, name, lambda _, records: {"records": records})
    clusters: list[Any] = [SimpleNamespace(name=name) for name in ("reference", "Kafka")]
    names = [verdict.name for verdict in serving._produce_verdicts(clusters, 10, 1)]
    assert [name for name in names if name.endswith("against Kafka")] == [
        f"serve, records of {producer}: reference against Kafka" for producer in ("ProducerPerformance", "librdkafka")
    ]


def test_without_its_clients_it_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "have_jars", lambda: False)
    (verdict,) = serving.run(tmp_path, quick=True)
    assert verdict.ok
    assert verdict.found == "skipped: the Kafka jars are not there; `kafka-eos lab record` fetches them"


def test_records_that_nobody_acknowledges_are_not_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(serving, "SECONDS", 0.3)
    nobody = Served(tmp_path)
    nobody.bootstrap = "127.0.0.1:1"
    assert serving.produce_by_librdkafka(nobody, 10) == {"records": 0}


def test_more_memory_than_the_bound_is_reported(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_MEMORY", 1)
    assert not serving._memory_verdict([served]).ok
