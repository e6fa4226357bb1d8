"""A request for markers of several transactions, of which one fails, on a real broker: what becomes of the others."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import load_codec
from kafka_eos_checks.brokers.brokers import Broker, Cluster, ask
from kafka_eos_checks.brokers.faults import NO_FAULT, Fault, FaultKind, Plan
from kafka_eos_checks.brokers.jars import RECORDED, clients_jar
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.brokers.proxy import Proxy, Route
from kafka_eos_checks.conform.security import Security
from kafka_eos_checks.conform.wire import address_of
from kafka_eos_checks.watch.advice import Tools
from kafka_eos_checks.watch.cluster import Cluster as WatchedCluster
from kafka_eos_checks.watch.prepared import STAYS
from kafka_eos_checks.watch.reports import RESOLVED
from kafka_eos_checks.watch.watcher import Options, Watcher

from .held_threads import SECONDS, TRANSACTIONAL_ID, Client, for_a_while, need_kafka, wait_until

pytestmark = [pytest.mark.broker, pytest.mark.thorough, pytest.mark.parametrize("kafka", RECORDED)]
FIRST, LAST, LATER = "b", "c", "d"  # transactional ids of the partitions 0, 1 and 0 of __transaction_state
STUCK_SECONDS = 3.0  # less than the 5 s of the brokers' request.timeout.ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoInOne(Plan):
    """Brings the markers of two transactions into one request, as a connection that breaks does.

    The coordinator has one request under way for a broker. While the first one waits, another transaction ends. Then
    the connection breaks, and the coordinator asks for the markers of both again: those of the lower partition of its
    log come first.

    Attributes:
        breaks: set by the test when both transactions have ended.
        came: set when the request for both is on its way.
        arrives: set by the test when that request may arrive.
    """

    seed: str = ""
    apis: frozenset[str] = frozenset({"WriteTxnMarkers"})
    breaks: threading.Event = field(default_factory=threading.Event)
    came: threading.Event = field(default_factory=threading.Event)
    arrives: threading.Event = field(default_factory=threading.Event)

    def fault(self, request: int) -> Fault:
        """The fault of one request; the proxy stands still meanwhile."""
        if request == 0:
            assert self.breaks.wait(SECONDS)
            return Fault(FaultKind.DROP_ANSWER)
        if request == 1:
            self.came.set()
            assert self.arrives.wait(SECONDS)
        return NO_FAULT


@contextmanager
def started(kafka: str, folder: Path) -> Iterator[tuple[Cluster, Broker, Proxy]]:
    """A broker that sends its markers to itself through the proxy."""
    need_kafka(kafka)
    cluster = Cluster(folder / "kafka", kafka=kafka, settings={"inter.broker.listener.name": "PROXY"})
    broker = cluster[1]
    route = Route(broker.name, broker.advertised_port, broker.proxied_port)
    with Proxy(load_codec(clients_jar()), Journal("r"), [route]) as proxy, cluster:
        cluster.coordinator(TRANSACTIONAL_ID)
        yield cluster, broker, proxy


def end_together(proxy: Proxy, plan: TwoInOne, first: Client, second: Client, *, committed: bool) -> None:
    """End two transactions, so that the coordinator asks for the markers of both in one request."""
    proxy.follow(plan, anew=True)
    for client in (first, second):
        assert client.end(committed=committed)["ErrorCode"] == ErrorCode.NONE
        wait_until(lambda own=client: own.state().startswith("Prepare"))  # type: ignore[misc]
    plan.breaks.set()
    assert plan.came.wait(SECONDS)


@contextmanager
def watched(broker: Broker) -> Iterator[Watcher]:
    """A watcher of a broker, as ``kafka-eos watch`` makes one."""
    cluster = WatchedCluster([address_of(f"127.0.0.1:{broker.port}")], Security())
    options = Options(
        topics=frozenset(),
        from_start=True,
        hanging_after_ms=10_000,
        lag_after_ms=60_000,
        check_ms=0,
        forget_after_ms=86_400_000,
        tools=Tools(),
    )
    try:
        yield Watcher(cluster, options, print)
    finally:
        cluster.close()


def reported(watcher: Watcher, now_ms: int) -> list[tuple[str, str]]:
    """The rules and transactional ids of the reports of a look at the cluster, at a time of the watcher's."""
    return [(each.rule, each.transactional_id) for each in watcher.poll(now_ms)]


def errors(broker: Broker, *topics: str) -> list[int]:
    """The answers to a request with a marker for each topic, of a producer of its own."""
    rows = [
        {"ProducerId": number, "ProducerEpoch": 0, "TransactionResult": False, "CoordinatorEpoch": 0}
        | {"Topics": [{"Name": topic, "PartitionIndexes": [0]}]}
        for number, topic in enumerate(topics, start=900)
    ]
    answer = ask(broker.port, "WriteTxnMarkers", 1, {"Markers": rows}, SECONDS)
    return [each["Topics"][0]["Partitions"][0]["ErrorCode"] for each in answer["Markers"]]


def test_a_topic_that_is_deleted_before_the_markers_arrive_holds_all_transactions_up_until_the_request_times_out(
    kafka: str, tmp_path: Path
) -> None:
    with started(kafka, tmp_path) as (cluster, broker, proxy):
        for topic in ("t", "gone"):
            cluster.create_topic(topic)
        whose = (FIRST, "t"), (LAST, "gone"), (LATER, "t")
        stays, goes, later = (Client(broker, broker, *each) for each in whose)
        for client in (stays, goes, later):
            client.add_partition()
            client.produce()
        end_together(proxy, plan := TwoInOne(), stays, goes, committed=True)
        ask(broker.port, "DeleteTopics", 5, {"TopicNames": ["gone"], "TimeoutMs": 20_000}, SECONDS)
        wait_until(lambda: not (broker.data / "gone-0").exists())
        plan.arrives.set()

        assert later.end(committed=True)["ErrorCode"] == ErrorCode.NONE
        for _ in for_a_while(STUCK_SECONDS):
            assert later.end_for(1) == 1, "readers do not get what was committed after it"
            assert stays.error_of_add() == ErrorCode.CONCURRENT_TRANSACTIONS, "nor does its producer go on"
        wait_until(lambda: {each.state() for each in (stays, goes, later)} == {"CompleteCommit"})
        assert later.end_for(1) == later.end_for(0)
        assert errors(broker, "gone", "t") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0], "if it is not the last one"
        assert errors(broker, "t", "gone", "t") == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


def test_a_marker_that_is_refused_leaves_it_and_the_others_of_its_request_undecided_until_the_coordinator_restarts(
    kafka: str, tmp_path: Path
) -> None:
    with started(kafka, tmp_path) as (cluster, broker, proxy):
        cluster.create_topic("t")
        cluster.create_topic("small", configs={"max.message.bytes": "50"})  # a marker takes 78
        whose = (FIRST, "small"), (LAST, "t"), (LATER, "t")
        refused, other, later = (Client(broker, broker, *each) for each in whose)
        for client in (refused, other, later):
            client.add_partition()
        plan = TwoInOne()
        plan.arrives.set()
        end_together(proxy, plan, refused, other, committed=False)
        later.abort()
        larger = [{"Name": "max.message.bytes", "ConfigOperation": 0, "Value": "1000000"}]
        changed = {"ResourceType": 2, "ResourceName": "small", "Configs": larger}
        ask(broker.port, "IncrementalAlterConfigs", 1, {"Resources": [changed], "ValidateOnly": False}, SECONDS)

        for _ in for_a_while(2 * STUCK_SECONDS):
            assert [each.state() for each in (refused, other)] == ["PrepareAbort", "PrepareAbort"]
            assert other.init_producer_id()["ErrorCode"] == ErrorCode.CONCURRENT_TRANSACTIONS
        with watched(broker) as watcher:
            assert reported(watcher, 0) == []
            assert reported(watcher, 60_000) == [(STAYS, FIRST), (STAYS, LAST)]
            broker.stop()
            broker.start()
            cluster.wait_ready()
            wait_until(lambda: {each.state() for each in (refused, other)} == {"CompleteAbort"})
            assert reported(watcher, 120_000) == [], "a coordinator that moves may not tell of it either"
            assert reported(watcher, 130_000) == [(RESOLVED, FIRST), (RESOLVED, LAST)]
