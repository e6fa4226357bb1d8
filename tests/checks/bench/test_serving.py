"""What the measurement of the server does to it, with little of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_eos_checks.bench import serving
from kafka_eos_checks.bench.serving import Client, Served
from kafka_eos_checks.record.jars import have_jars

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


def test_what_the_server_answered_is_told_when_it_ends(served: Served) -> None:
    Client(served, 1).begin()
    with pytest.raises(confluent.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        Client(served, 1).begin()
    assert served.errors()["CreateTopics TOPIC_ALREADY_EXISTS"] == 2


@pytest.mark.java
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos record` fetches them")
def test_kafkas_performance_tool_writes_its_records(served: Served) -> None:
    Client(served, 1).begin()
    assert serving.produce(served, 2_000) == {"records": 2_000}


def test_without_its_clients_it_is_skipped_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "have_jars", lambda: False)
    (verdict,) = serving.run(tmp_path, quick=True)
    assert verdict.ok
    assert verdict.found == "skipped: the Kafka jars are not there; `kafka-eos record` fetches them"
