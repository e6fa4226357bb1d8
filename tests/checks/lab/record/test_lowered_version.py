"""An operator lowers transaction.version while a client of version 2 has a transaction open, on a real broker."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.brokers.brokers import HOST, BrokerFailed, Cluster
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.lab.record.clients import FATAL_EXIT, Workload, start_java_workload, start_workload
from kafka_eos_checks.lab.record.healthy_scenarios import set_transaction_version
from kafka_eos_checks.lab.record.stage import ENDED

NAME = "t"
TIMEOUT_MS, LONGER = 8_000, 20.0  # seconds: the timeout is long over then, and the coordinator looks every second


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", [KAFKA_VERSION, NEWEST])
def test_after_a_downgrade_to_version_0_an_open_transaction_of_version_2_hangs_until_its_coordinator_restarts(
    kafka: str, tmp_path: Path
) -> None:
    journal = Journal("r")
    with Cluster(tmp_path / "c", kafka=kafka) as cluster:
        for topic in ("input", "output"):
            cluster.create_topic(topic)
        work: dict[str, Any] = {"bootstrap": f"{HOST}:{cluster[1].port}", "records": 2, "transaction_size": 2}
        with start_workload(Workload(client="p", topic="input", prefix="i", **work), journal, tmp_path) as producer:
            producer.wait()
        copies: dict[str, Any] = {"topic": "output", "source": "input", "group": "g", "transactional_id": NAME}
        copies |= {"prefix": "", "timeout_ms": TIMEOUT_MS, "pause_after": "flush"}
        copier = Workload(client="c", **copies, **work)
        with start_java_workload(copier, journal, tmp_path, kafka) as client:
            journal.wait_for(lambda event: event.action == "Pause", 1, 60.0, "pauses")
            stage: Any = SimpleNamespace(cluster=cluster)
            set_transaction_version(stage, 0)
            client.go_on()
            client.wait(expected=(FATAL_EXIT,))
        failed = {event.action for event in journal.events() if event.phase == "fail"}
        assert failed == {"SendOffsetsToTransaction", "AbortTransaction"}
        with pytest.raises(BrokerFailed, match="not after 20 s"):
            cluster.wait_transaction(NAME, ENDED, LONGER)
        set_transaction_version(stage, 2)
        with pytest.raises(BrokerFailed, match="not after 20 s"):
            cluster.wait_transaction(NAME, ENDED, LONGER)
        restart(cluster)
        cluster.wait_transaction(NAME, ("CompleteAbort",))


def restart(cluster: Cluster) -> None:
    """Restart the only broker."""
    cluster[1].stop()
    cluster[1].start()
    cluster.wait_ready()


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", [KAFKA_VERSION, NEWEST])
def test_after_a_downgrade_to_version_0_a_client_of_version_2_cannot_start_again(kafka: str, tmp_path: Path) -> None:
    with Cluster(tmp_path / "c", kafka=kafka) as cluster:
        cluster.create_topic("output")
        stage: Any = SimpleNamespace(cluster=cluster)

        def run(client: str) -> tuple[int, bool]:
            """The exit code of a client that commits a transaction, and whether its call timed out."""
            work: dict[str, Any] = {"bootstrap": f"{HOST}:{cluster[1].port}", "topic": "output", "prefix": client}
            work |= {"client": client, "records": 2, "transaction_size": 2, "transactional_id": NAME}
            with start_java_workload(Workload(**work), Journal("r"), tmp_path, kafka) as process:
                code = process.wait(expected=(0, FATAL_EXIT))
            return code, "TimeoutException" in (tmp_path / f"{client}.log").read_text()

        assert run("before") == (0, False)
        set_transaction_version(stage, 0)
        assert run("lowered") == (FATAL_EXIT, False)
        set_transaction_version(stage, 2)
        assert run("raised") == (FATAL_EXIT, True), "a pending state is there for ever"
        restart(cluster)
        assert run("restarted") == (0, False)
