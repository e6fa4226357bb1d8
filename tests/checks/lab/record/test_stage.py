"""A stage creates topics and finds leaders on its cluster, and keeps the topics and what changed."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.brokers.jars import KAFKA_VERSION, RECORDED
from kafka_eos_checks.brokers.journal import Journal, StillWaiting
from kafka_eos_checks.lab.record import stage as stage_module
from kafka_eos_checks.lab.record.stage import Stage


class Asked(dict[int, Any]):
    """A cluster of two brokers that keeps what it is asked; broker 2 leads everything."""

    def __init__(self) -> None:
        super().__init__({node: SimpleNamespace(node=node, name=f"b{node}") for node in (1, 2)})
        self.brokers = [SimpleNamespace(advertised_port=port) for port in (9001, 9002)]
        self.made: list[tuple[Any, ...]] = []
        self.row: dict[str, int] | None = {"LeaderId": 2, "LeaderEpoch": 7}

    def create_topic(self, *asked: Any) -> None:
        self.made.append(asked)

    def leader(self, _: str) -> dict[str, int] | None:
        return self.row

    def wait_leader(self, topic: str, partition: int, old: int) -> dict[str, int]:
        self.made.append((topic, partition, old))
        assert self.row is not None
        return self.row


@pytest.fixture
def cluster() -> Any:
    return Asked()


@pytest.fixture
def stage(cluster: Any, tmp_path: Path) -> Stage:
    proxy: Any = SimpleNamespace()
    return Stage("s", 1, cluster, proxy, Journal("one-broker/s"), tmp_path / "clients", tmp_path / "brokers")


def test_clients_reach_every_broker_through_the_proxy(stage: Stage) -> None:
    assert stage.bootstrap == "127.0.0.1:9001,127.0.0.1:9002"


def test_a_topic_is_created_with_kafkas_names_of_its_settings_and_kept_in_the_manifest(
    stage: Stage, cluster: Any
) -> None:
    assert stage.topic(3, suffix="-o", segment_ms="500") == "s-o"
    assert cluster.made == [("s-o", 3, {"segment.ms": "500"}, None)]
    assert stage.topics == {"s-o": {"partitions": 3, "configs": {"segment.ms": "500"}}}


@pytest.mark.parametrize(("kafka", "release"), [*zip(RECORDED, RECORDED, strict=True), ("2.8.2", "3.9.1")])
def test_a_java_client_is_of_the_brokers_release_or_of_the_oldest_that_fits(
    kafka: str, release: str, stage: Stage, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(stage_module, "start_java_workload", lambda *given: started.append(given[-1]))
    cluster.kafka = kafka
    stage.start_java("client", stage.topic(), records=1)
    assert started == [release]


def test_the_leader_of_a_topic_is_a_broker_of_the_cluster_and_must_be_there(stage: Stage, cluster: Any) -> None:
    assert stage.leader("t").name == "b2"
    cluster.row = None
    with pytest.raises(AssertionError, match="create_topic waits for a leader"):
        stage.leader("t")


def test_a_new_leader_is_told_in_the_journal(stage: Stage, cluster: Any) -> None:
    stage.new_leader("t", cluster[1], 4)
    assert cluster.made == [("t", 4, 1)]
    [event] = stage.journal.events()
    assert (event.process, event.action, event.phase) == ("b2", "LeaderChange", "ok")
    assert (event.topic, event.partition, event.leader_epoch) == ("t", 4, 7)


# --- what a scenario waits for ----------------------------------------------------------------------------------------


@pytest.fixture
def happened(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """Whether something that a scenario waits for has happened: nobody waits any longer."""
    monkeypatch.setattr(stage_module, "PROGRESS_SECONDS", 0.0)

    def waits(wait: Callable[..., None], *what: Any) -> bool:
        try:
            wait(*what)
        except StillWaiting:
            return False
        return True

    return waits


def test_an_answer_counts_as_withheld_only_if_the_client_did_not_get_it(stage: Stage, happened: Any) -> None:
    for detail in ({}, {"delivered": True}):
        stage.journal.add("proxy/c", "Produce", "ok", detail=detail)
    stage.journal.add("proxy/c", "EndTxn", "ok", detail={"delivered": False})
    stage.journal.add("proxy/c", "Produce", "info", detail={"delivered": False})
    assert not happened(stage.wait_withheld, 1)
    stage.journal.add("proxy/c", "Produce", "ok", detail={"delivered": False})
    assert happened(stage.wait_withheld, 1)
    assert not happened(stage.wait_withheld, 2)


def test_a_member_has_partitions_when_it_gets_exactly_so_many_at_once(stage: Stage, happened: Any) -> None:
    for client, action, partitions in (
        *(("a", "Assign", [0, 1, 2]), ("a", "Assign", [0]), ("a", "Revoke", [0, 1]), ("b", "Assign", [0, 1])),
    ):
        stage.journal.add(client, action, "ok", detail={"partitions": partitions})
    assert not happened(stage.wait_assigned, "a", 2)
    assert [happened(stage.wait_assigned, "b", 2, times) for times in (1, 2)] == [True, False]
    assert [stage.assignments("a", partitions) for partitions in (1, 2, 3)] == [1, 0, 1]


def test_a_transaction_has_ended_when_its_client_knows_whether_it_is_committed_or_aborted(
    stage: Stage, happened: Any
) -> None:
    for client, action, phase in (
        ("c", "CommitTransaction", "invoke"),
        ("c", "CommitTransaction", "info"),
        ("c", "CommitTransaction", "ok"),
        ("other", "CommitTransaction", "ok"),
        ("c", "BeginTransaction", "ok"),
    ):
        stage.journal.add(client, action, phase)
    assert [happened(stage.wait_transactions, "c", ended) for ended in (1, 2)] == [True, False]
    stage.journal.add("c", "AbortTransaction", "ok")
    assert happened(stage.wait_transactions, "c", 2)


def test_records_are_acknowledged_and_read_one_by_one_and_a_pause_begins(stage: Stage, happened: Any) -> None:
    for action, phase in (("Send", "invoke"), ("Send", "fail"), ("Poll", "ok"), ("Pause", "invoke")):
        stage.journal.add("c", action, phase)
    assert [happened(stage.wait_read, "c", records) for records in (1, 2)] == [True, False]
    assert [happened(stage.wait_paused, client) for client in "cd"] == [True, False]
    assert not happened(stage.wait_acknowledged, "c", 1)
    stage.journal.add("c", "Send", "ok")
    assert happened(stage.wait_acknowledged, "c", 1)


def test_what_is_done_to_a_broker_is_told_before_it_is_done_and_its_end_afterwards(stage: Stage) -> None:
    seen: list[tuple[str, int]] = []

    def does(what: str) -> Callable[[], None]:
        return lambda: seen.append((what, len(stage.journal.events())))

    names = ("kill", "start", "freeze", "resume")
    broker: Any = SimpleNamespace(name="b1", **{name: does(name) for name in names})
    cluster: Any = stage.cluster
    cluster.kafka, cluster.wait_ready = KAFKA_VERSION, does("answers")
    for act in (stage.crash, stage.restart, stage.freeze, stage.resume):
        act(broker)
    assert seen == [("kill", 1), ("start", 3), ("answers", 3), ("freeze", 5), ("resume", 7)]
    assert [(event.action, event.phase) for event in stage.journal.events()] == [
        *((action, phase) for action in ("Crash", "Restart", "Freeze") for phase in ("invoke", "ok")),
        ("Resume", "ok"),
    ]
    assert {event.process for event in stage.journal.events()} == {"b1"}
