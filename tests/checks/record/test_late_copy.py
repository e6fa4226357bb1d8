"""A late copy of a request, against a real broker and librdkafka: what it does to the transaction after its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.protocol import load_codec
from kafka_eos_checks.record.brokers import HOST, Cluster
from kafka_eos_checks.record.faults import NO_FAULTS, Fault, FaultKind, Plan
from kafka_eos_checks.record.jars import clients_jar, have_jars
from kafka_eos_checks.record.journal import Journal
from kafka_eos_checks.record.proxy import Proxy, Route

confluent = pytest.importorskip("confluent_kafka", reason="the clients are in the extra `record`")
SECONDS = 30.0


@contextmanager
def proxied(folder: Path) -> Iterator[tuple[str, Proxy]]:
    """A broker behind a proxy, with a topic: where to connect, and the proxy."""
    with Cluster(folder) as cluster:
        broker = cluster[1]
        cluster.create_topic("t")
        route = Route(broker.name, broker.advertised_port, broker.proxied_port)
        with Proxy(load_codec(clients_jar()), Journal("before"), [route]) as proxy:
            yield f"{HOST}:{broker.advertised_port}", proxy


def producer(bootstrap: str, name: str) -> Any:
    made = confluent.Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0})
    made.init_transactions(SECONDS)
    return made


def transaction(producer: Any) -> None:
    producer.begin_transaction()
    producer.produce("t", b"value", partition=0)
    producer.flush(SECONDS)
    producer.commit_transaction(SECONDS)


@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos record` fetches them")
def test_a_copy_of_a_batch_that_comes_after_its_transaction_ends_librdkafkas_next_one_with_a_fatal_error(
    tmp_path: Path,
) -> None:
    with proxied(tmp_path / "c") as (bootstrap, proxy):
        proxy.begin(Journal("undisturbed"), NO_FAULTS)
        undisturbed = producer(bootstrap, "undisturbed")
        transaction(undisturbed)
        transaction(undisturbed)

        journal = Journal("copied")
        proxy.begin(journal, Plan(seed="", scripted={0: Fault(FaultKind.REPEAT, 1.0)}))
        copied = producer(bootstrap, "copied")
        transaction(copied)
        journal.wait_for(lambda e: e.phase == "fail" and "repeats" in e.detail, 1, SECONDS, "refused copies")
        with pytest.raises(confluent.KafkaException) as caught:
            transaction(copied)
        error = caught.value.args[0]
        assert error.fatal()
        assert error.code() == confluent.KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER
