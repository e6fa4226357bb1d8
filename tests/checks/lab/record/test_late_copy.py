"""A delayed duplicate of a request, with real brokers and clients, and its effect on the next transaction."""

from pathlib import Path

import pytest

from kafka_eos.wire.protocol import load_codec
from kafka_eos_checks.brokers.brokers import HOST, Cluster
from kafka_eos_checks.brokers.faults import Fault, FaultKind, Plan
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, clients_jar, have_jars
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.brokers.proxy import Proxy, Route
from kafka_eos_checks.lab.record.clients import FATAL_EXIT, Workload, start_java_workload, start_workload

FIRST_BATCH_AGAIN = Plan(seed="", scripted={0: Fault(FaultKind.REPEAT, 3.0)})  # long after the end of its transaction


def two_transactions(library: str, bootstrap: str, proxy: Proxy, folder: Path) -> tuple[int, int]:
    """Run two transactions of a record each, with a delayed duplicate of the first one's batch between them.

    Returns:
        The client's exit code, and the number of transactions that it committed.
    """
    journal = Journal(library)
    proxy.begin(journal, FIRST_BATCH_AGAIN)
    work = Workload(
        bootstrap=bootstrap,
        client=library,
        topic="t",
        records=2,
        prefix=library,
        transactional_id=library,
        transaction_size=1,
        pause_after="commit",
    )
    java = library == "java"
    started = (
        start_java_workload(work, journal, folder, KAFKA_VERSION) if java else start_workload(work, journal, folder)
    )
    with started as client:
        journal.wait_for(lambda event: event.action == "Pause", 1, 60, "pauses")
        journal.wait_for(lambda event: event.phase == "fail" and "repeats" in event.detail, 1, 60, "refused copies")
        client.go_on()
        code = client.wait(expected=(0, FATAL_EXIT))
    committed = [e for e in journal.events() if (e.action, e.phase) == ("CommitTransaction", "ok")]
    return code, len(committed)


@pytest.mark.thorough
@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
@pytest.mark.parametrize(
    ("version", "by_java"),
    [(1, 1), (2, 2)],
    ids=["version 1", "version 2, which librdkafka does not speak"],
)
def test_a_delayed_duplicate_keeps_a_version_1_client_from_committing_its_next_transaction(
    version: int, by_java: int, tmp_path: Path
) -> None:
    pytest.importorskip("confluent_kafka", reason="the clients are in the extra `record`")
    with Cluster(tmp_path / "c", features={"transaction.version": version}) as cluster:
        broker = cluster[1]
        cluster.create_topic("t")
        route = Route(broker.name, broker.advertised_port, broker.proxied_port)
        with Proxy(load_codec(clients_jar()), Journal("before"), [route]) as proxy:
            bootstrap = f"{HOST}:{broker.advertised_port}"
            assert two_transactions("librdkafka", bootstrap, proxy, tmp_path) == (FATAL_EXIT, 1)
            assert two_transactions("java", bootstrap, proxy, tmp_path)[1] == by_java
