"""A stage creates topics and finds leaders on its cluster, and keeps the topics and what changed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.brokers.journal import Journal
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
