"""A cluster in a thread under faults, with clients on real sockets."""

import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.machines.leader import LeaderRules
from kafka_eos.server.cluster import Limits, Machines, NothingStored, Settings
from kafka_eos.server.faults import Faults, MalformedPlan, read_plan
from kafka_eos.server.handlers import logs
from kafka_eos.server.network import MovableClock, Server
from kafka_eos.server.schemas import served_codec
from kafka_eos.server.storage import Directory
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.wire.protocol import Message

CODEC = served_codec()
PATIENCE = 10.0


class Client:
    """A client of one broker, with one connection."""

    def __init__(self, cluster: ServedCluster, broker: int = 1) -> None:
        port = cluster.call(lambda server: server.cluster.brokers[broker - 1].port)
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)

    def send(self, api: str, version: int, **row: Any) -> None:
        data = CODEC.write_request(api, version, 1, "client", row)
        self.socket.sendall(struct.pack(">i", len(data)) + data)

    def receive(self, api: str, version: int) -> Message | None:
        """The next answer, or None if the connection was closed."""
        head = self._read(4)
        data = self._read(struct.unpack(">i", head)[0]) if head is not None else None
        return None if data is None else CODEC.read_response(api, version, data)[1]

    def _read(self, count: int) -> bytes | None:
        data = b""
        with suppress(ConnectionError):
            while len(data) < count and (more := self.socket.recv(count - len(data))):
                data += more
        return data if len(data) == count else None

    def ask(self, api: str, version: int, **row: Any) -> Message | None:
        self.send(api, version, **row)
        return self.receive(api, version)

    # --- what the tests ask ------------------------------------------------------------------------------------------

    def send_batch(self, value: bytes = b"v", producer: tuple[int, int] = (-1, -1), name: str | None = None) -> None:
        batch = build_batch(
            [Record(value=value)],
            base_timestamp=1,
            is_transactional=name is not None,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0 if name else -1,
        )
        topic = {"Name": "t", "PartitionData": [{"Index": 0, "Records": batch.encode()}]}
        self.send("Produce", 12, TransactionalId=name, Acks=-1, TimeoutMs=1000, TopicData=[topic])

    def produced(self) -> int | None:
        """The error of a Produce, or None if the connection was closed."""
        answer = self.receive("Produce", 12)
        return None if answer is None else answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"]

    def produce(self, value: bytes = b"v", producer: tuple[int, int] = (-1, -1), name: str | None = None) -> int | None:
        self.send_batch(value, producer, name)
        return self.produced()

    def begin(self, name: str = "x") -> tuple[int, int]:
        """Begin a transaction with one record."""
        answer = self.ask("InitProducerId", 4, TransactionalId=name, TransactionTimeoutMs=60_000)
        assert answer is not None
        assert answer["ErrorCode"] == 0
        producer = answer["ProducerId"], answer["ProducerEpoch"]
        assert self.produce(producer=producer, name=name) == 0
        return producer

    def commit(self, producer: tuple[int, int], name: str = "x") -> int | None:
        row = {"TransactionalId": name, "ProducerId": producer[0], "ProducerEpoch": producer[1], "Committed": True}
        answer = self.ask("EndTxn", 5, **row)
        return None if answer is None else int(answer["ErrorCode"])

    def close(self) -> None:
        self.socket.close()


Connect = Callable[..., Client]
Start = Callable[..., ServedCluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ServedCluster] = []

    def cluster(brokers: int = 1, **more: Any) -> ServedCluster:
        started.append(ServedCluster(brokers, data=tmp_path / "data", **more).start())
        started[-1].create_topic("t")
        return started[-1]

    yield cluster
    for each in started:
        each.stop()


@pytest.fixture
def connect() -> Iterator[Connect]:
    clients: list[Client] = []

    def client(cluster: ServedCluster, broker: int = 1) -> Client:
        clients.append(Client(cluster, broker))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


def end_offset(cluster: ServedCluster) -> int:
    return cluster.call(lambda server: server.cluster.topics["t"].partitions[0].log_end_offset)


def stable_offset(cluster: ServedCluster) -> int:
    return cluster.call(lambda server: server.cluster.topics["t"].partitions[0].last_stable_offset)


def state(cluster: ServedCluster, name: str = "x") -> TransactionState:
    return cluster.call(lambda server: server.cluster.transactions.known[name].state)


def waits_for(what: Callable[[], bool]) -> bool:
    """Whether a condition holds within a short time."""
    until = time.monotonic() + PATIENCE
    while not what() and time.monotonic() < until:
        time.sleep(0.02)
    return what()


class Watching:
    """An observer of Produce, and of no other request."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.answers: list[Any] = []
        self.errors: list[int] = []
        self.events: list[tuple[str, int]] = []
        self.columns: list[Any] = []

    def asked(self, connection: int, node: int, frame: bytes, **more: Any) -> str | None:
        if struct.unpack_from(">h", frame)[0] != 0:
            return None
        self.requests.append((connection, node, more))
        return "a batch"

    def answered(self, request: Any, frame: bytes, *, delivered: bool) -> None:
        self.answers.append((request, delivered))
        [topic] = CODEC.read_response("Produce", 12, frame)[1]["Responses"]
        self.errors += [part["ErrorCode"] for part in topic["PartitionResponses"]]

    def happened(self, action: str, node: int, **columns: Any) -> None:
        self.events.append((action, node))
        self.columns.append(columns)


def test_an_observer_is_told_of_the_answers_to_the_requests_that_it_named(start: Start, connect: Connect) -> None:
    watching = Watching()
    cluster = start(observer=watching)
    client = connect(cluster)
    assert client.ask("ApiVersions", 3) is not None
    assert client.produce() == ErrorCode.NONE
    cluster.fault("drop-answer", api="Produce", nth=1)
    assert client.produce() is None
    assert watching.answers == [("a batch", True), ("a batch", False)]
    cluster.fault("overtake", api="Produce", nth=1, seconds=0)
    assert connect(cluster).produce() is None
    assert waits_for(lambda: len(watching.answers) == 3)
    assert watching.answers[2] == ("a batch", False)
    cluster.fault("repeat", api="Produce", nth=1)
    cluster.fault("error", api="Produce", nth=2, error="NOT_ENOUGH_REPLICAS")
    third = connect(cluster)
    assert [third.produce(), third.produce()] == [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
    assert waits_for(lambda: len(watching.answers) == 6)
    assert sorted(watching.answers[3:]) == [("a batch", False), ("a batch", True), ("a batch", True)]
    assert sorted(watching.errors) == [ErrorCode.NONE] * 5 + [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert watching.requests == [
        (0, 1, {"fault": ""}),
        (0, 1, {"fault": "drop-answer"}),
        (1, 1, {"fault": "overtake"}),
        (2, 1, {"fault": "repeat"}),
        (2, 1, {"repeats": "a batch"}),
        (2, 1, {"fault": "error"}),
    ]


def test_an_observer_is_told_that_an_answer_did_not_outlive_its_broker(start: Start, connect: Connect) -> None:
    watching = Watching()
    cluster = start(brokers=2, observer=watching)
    cluster.fault("kill-broker", api="Produce", nth=1, seconds=60, when="after")
    assert connect(cluster).produce() is None
    assert watching.answers == [("a batch", False)]
    assert connect(cluster, 2).produce() == ErrorCode.NONE
    assert [node for _, node, _ in watching.requests] == [1, 2]


def test_an_observer_is_told_when_a_killed_broker_comes_back(start: Start) -> None:
    watching = Watching()
    cluster = start(observer=watching)
    cluster.kill_broker(seconds=60)
    cluster.advance(50)
    own = [("Crash", 1), ("Restart", 1)]
    assert [event for event in watching.events if event in own] == own[:1]
    cluster.advance(10)
    assert [event for event in watching.events if event in own] == own


def test_an_observer_is_told_of_a_restart_and_what_happens_after_it(start: Start) -> None:
    watching = Watching()
    cluster = start(brokers=2, observer=watching)
    cluster.restart()
    assert watching.events == [("Crash", 1), ("Crash", 2), ("Restart", 1), ("Restart", 2)]
    cluster.move_leader("t", 0, 2)
    cluster.advance(0.5)
    assert watching.events[4:] == [("LeaderChange", 2), ("AdvanceClock", 0)]
    assert watching.columns[4:] == [
        {"topic": "t", "partition": 0, "leader_epoch": 3},
        {"detail": {"seconds": 0.5}},
    ]


def test_a_cluster_is_served_with_all_that_it_was_given(tmp_path: Path) -> None:
    watching, faults, clock = Watching(), Faults(), MovableClock()
    settings, machines = Settings(limits=Limits(connections=7)), Machines(leaders=LeaderRules(verification=False))
    given: dict[str, Any] = {"settings": settings, "machines": machines, "faults": faults, "clock": clock}
    with ServedCluster(3, data=tmp_path, observer=watching, **given) as cluster:
        server = cluster.call(lambda server: server)
        assert [broker.node for broker in server.cluster.brokers] == [1, 2, 3]
        assert cluster.bootstrap_servers == server.bootstrap
        assert (server.cluster.settings, server.cluster.machines, server.limits) == (
            settings,
            machines,
            settings.limits,
        )
        assert (server.clock, server.observer, server.faults) == (clock, watching, faults)
        assert isinstance(server.cluster.storage, Directory)
        assert server.cluster.storage.path == tmp_path
        assert ("kafka-eos", True) in {(each.name, each.daemon) for each in threading.enumerate()}
    assert "kafka-eos" not in {each.name for each in threading.enumerate()}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.cluster.brokers[0].port))


def test_a_broker_that_is_killed_again_meanwhile_comes_back_once_when_it_does(start: Start) -> None:
    watching = Watching()
    cluster = start(brokers=2, observer=watching)
    for _ in range(2):
        cluster.kill_broker(seconds=60)
        cluster.advance(50)
    assert [event for event in watching.events if event[0] == "Restart"] == []
    cluster.advance(10)
    assert [event for event in watching.events if event[0] == "Restart"] == [("Restart", 1)]


def test_a_killed_broker_is_gone_for_as_long_as_was_said(start: Start) -> None:
    def killed(server: Server) -> int:
        server.kill(1, 2.5)
        return server.cluster.gone[1] - server.cluster.now

    assert start(brokers=2).call(killed) == 2_500


# --- fates -----------------------------------------------------------------------------------------------------------


def test_an_answer_is_dropped_after_the_request_was_handled(start: Start, connect: Connect) -> None:
    cluster = start()
    tally = cluster.fault("drop-answer", api="Produce", nth=1)
    assert connect(cluster).produce() is None
    assert end_offset(cluster) == 1
    assert connect(cluster).produce() == ErrorCode.NONE
    assert (tally.fired, tally.matched) == (1, 2)


def test_a_withheld_answer_leaves_the_connection_open_and_silent(start: Start, connect: Connect) -> None:
    cluster = start()
    cluster.fault("withhold", api="Produce", nth=1)
    client = connect(cluster)
    client.send_batch()
    client.send_batch()
    assert waits_for(lambda: end_offset(cluster) == 1)
    client.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.receive("Produce", 12)
    assert end_offset(cluster) == 1


def test_a_closed_connection_loses_the_request(start: Start, connect: Connect) -> None:
    cluster = start()
    cluster.fault("close", api="Produce", nth=1)
    assert connect(cluster).produce() is None
    assert end_offset(cluster) == 0


def test_a_delayed_request_holds_up_its_own_connection_only(start: Start, connect: Connect) -> None:
    cluster = start()
    cluster.fault("delay", api="Produce", nth=1, seconds=1)
    slow, other = connect(cluster), connect(cluster)
    slow.send_batch(b"1")
    slow.send_batch(b"2")
    assert waits_for(lambda: cluster.faults.tallies[0].fired == 1)
    assert end_offset(cluster) == 0
    assert other.produce() == ErrorCode.NONE
    assert end_offset(cluster) == 1
    assert (slow.produced(), slow.produced()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert end_offset(cluster) == 3


def test_the_answer_to_a_client_that_has_left_is_dropped(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    watching = Watching()
    cluster = start(observer=watching)
    cluster.fault("delay", api="Produce", seconds=0.1)
    client = connect(cluster)
    client.send_batch()
    client.close()
    assert waits_for(lambda: watching.answers == [("a batch", False)])
    assert connect(cluster).ask("ApiVersions", 3) is not None
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_repeated_request_is_handled_twice_and_answered_once(start: Start, connect: Connect) -> None:
    cluster = start()
    cluster.fault("repeat", api="Produce", nth=1)
    client = connect(cluster)
    assert client.produce() == ErrorCode.NONE
    assert waits_for(lambda: end_offset(cluster) == 2)
    assert client.produce() == ErrorCode.NONE


def test_an_overtaken_request_arrives_after_its_retry(start: Start, connect: Connect) -> None:
    cluster = start()
    cluster.fault("overtake", api="Produce", nth=1, seconds=1)
    assert connect(cluster).produce(b"first") is None
    assert connect(cluster).produce(b"retry") == ErrorCode.NONE
    assert end_offset(cluster) == 1
    assert waits_for(lambda: end_offset(cluster) == 2)
    stored = cluster.call(lambda server: server.cluster.topics["t"].partitions[0].store.read(0, 2, 1 << 20, True))
    assert stored.index(b"retry") < stored.index(b"first")


def test_an_error_answers_a_request_that_is_not_handled(start: Start, connect: Connect) -> None:
    cluster = start()
    cluster.fault("error", api="Produce", nth=1, error="NOT_ENOUGH_REPLICAS")
    client = connect(cluster)
    assert client.produce() == ErrorCode.NOT_ENOUGH_REPLICAS
    assert end_offset(cluster) == 0
    assert client.produce() == ErrorCode.NONE


def test_an_error_costs_the_connection_of_a_client_that_waits_for_no_answer(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka: KafkaApis.handleProduceRequest, with acks=0."""
    cluster = start()
    cluster.fault("error", api="Produce", nth=1, error="NOT_ENOUGH_REPLICAS")
    client, batch = connect(cluster), build_batch([Record()], base_timestamp=1).encode()
    with caplog.at_level("INFO"):
        client.send("Produce", 9, Acks=0, TopicData=[{"Name": "t", "PartitionData": [{"Index": 0, "Records": batch}]}])
        assert client.ask("ListGroups", 4) is None
        client = connect(cluster)
        client.send("Produce", 9, Acks=0, TopicData=[{"Name": "t", "PartitionData": [{"Index": 7, "Records": batch}]}])
        assert client.ask("ListGroups", 4) is None
    for error in ("NOT_ENOUGH_REPLICAS", "UNKNOWN_TOPIC_OR_PARTITION"):
        assert f"connection from 127.0.0.1 closed: Produce with acks=0: {error}" in caplog.messages
    assert end_offset(cluster) == 0


@pytest.mark.parametrize(
    ("do", "options", "said"),
    [
        ("close", {}, "the fate of its Produce"),
        ("overtake", {"seconds": 0}, "the fate of its Produce"),
        ("drop-answer", {}, "the fate of its Produce"),
        ("kill-broker", {"seconds": 1}, "the broker is gone"),
    ],
)
def test_the_log_says_which_fault_a_connection_was_closed_for(
    start: Start, connect: Connect, caplog: pytest.LogCaptureFixture, do: str, options: dict[str, int], said: str
) -> None:
    cluster = start()
    with caplog.at_level("INFO"):
        cluster.fault(do, api="Produce", **options)
        assert connect(cluster).produce() is None
        if do == "kill-broker":
            assert connect(cluster).ask("ApiVersions", 3) is None
    found = [record.getMessage() for record in caplog.records if record.name == "kafka_eos.server"]
    assert found == [f"connection from 127.0.0.1 closed: {said}"] * (1 + (do == "kill-broker"))


@pytest.mark.parametrize(("do", "options", "fired"), [("overtake", {"seconds": 0}, 1), ("close", {}, 0)])
def test_an_event_after_a_request_happens_once_that_is_handled(
    start: Start, connect: Connect, do: str, options: dict[str, int], fired: int
) -> None:
    cluster = start(brokers=2)
    cluster.fault(do, api="Produce", nth=1, **options)
    event = cluster.fault("move-leader", api="Produce", nth=1, when="after")
    assert connect(cluster).produce() is None
    assert waits_for(lambda: end_offset(cluster) == fired)
    client = connect(cluster, 1 + fired)
    assert client.produce() == ErrorCode.NONE, "the leader has moved, or has not"
    assert event.fired == fired


# --- events ----------------------------------------------------------------------------------------------------------


def test_a_leader_moves_when_a_request_comes(start: Start, connect: Connect) -> None:
    cluster = start(brokers=2)
    cluster.fault("move-leader", api="Produce", nth=2)
    client = connect(cluster)
    assert client.produce() == ErrorCode.NONE
    assert client.produce() == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert connect(cluster, 2).produce() == ErrorCode.NONE
    cluster.fault("move-leader", api="OffsetForLeaderEpoch")
    topics = [{"Topic": name, "Partitions": [{"Partition": 0, "LeaderEpoch": 0}]} for name in ("nowhere", "t")]
    answer = client.ask("OffsetForLeaderEpoch", 4, Topics=topics)
    assert answer is not None
    errors = [row["Partitions"][0]["ErrorCode"] for row in answer["Topics"]]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE], "that of what is there is back"


def test_a_coordinator_crashes_between_the_decision_and_its_markers(start: Start, connect: Connect) -> None:
    cluster = start()
    producer = connect(cluster).begin()
    cluster.fault("kill-broker", api="EndTxn", nth=1, when="after", seconds=1)
    client = connect(cluster)
    assert client.commit(producer) is None
    assert state(cluster) is TransactionState.PREPARE_COMMIT
    assert stable_offset(cluster) == 0
    assert connect(cluster).ask("ApiVersions", 3) is None  # no coordinator is there
    assert waits_for(lambda: state(cluster) is TransactionState.COMPLETE_COMMIT)
    assert stable_offset(cluster) == 2
    assert connect(cluster).ask("ApiVersions", 3) is not None


def test_a_coordinator_that_has_moved_is_loading_until_its_broker_is_back(start: Start, connect: Connect) -> None:
    cluster = start(brokers=2)
    place = cluster.call(lambda server: server.cluster.state_partition("x").node)
    other = 3 - place
    leader = cluster.call(lambda server: server.cluster.topics["t"].partitions[0].node)
    asking = connect(cluster, place)
    answer = asking.ask("InitProducerId", 4, TransactionalId="x", TransactionTimeoutMs=60_000)
    assert answer is not None
    cluster.kill_broker(place)
    producer = answer["ProducerId"], answer["ProducerEpoch"]
    assert connect(cluster, other).commit(producer) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    batch = connect(cluster, other if leader == place else leader).produce(producer=producer, name="x")
    assert batch == ErrorCode.NOT_ENOUGH_REPLICAS
    assert waits_for(lambda: connect(cluster, other).commit(producer) == ErrorCode.INVALID_TXN_STATE)


def test_a_coordinator_moves_when_a_test_says_so(start: Start, connect: Connect) -> None:
    cluster = start(brokers=2)
    before = cluster.call(lambda server: server.cluster.state_partition("x").node)
    cluster.move_coordinator(transactional_id="x")
    assert cluster.call(lambda server: server.cluster.state_partition("x").node) == 3 - before
    group = cluster.call(lambda server: server.cluster.offsets_partition("g").node)
    cluster.move_coordinator(group="g", to=3 - group)
    assert cluster.call(lambda server: server.cluster.offsets_partition("g").node) == 3 - group


@pytest.mark.parametrize(
    ("options", "answer", "found"),
    [
        ({"do": "time-out-transaction"}, ErrorCode.CONCURRENT_TRANSACTIONS, TransactionState.COMPLETE_ABORT),
        ({"do": "advance-clock", "seconds": 61}, ErrorCode.INVALID_TXN_STATE, TransactionState.COMPLETE_ABORT),
        ({"do": "move-coordinator"}, ErrorCode.NOT_COORDINATOR, TransactionState.ONGOING),
        ({"do": "move-coordinator", "when": "after"}, ErrorCode.NONE, TransactionState.COMPLETE_COMMIT),
        ({"do": "restart"}, None, TransactionState.ONGOING),
        ({"do": "restart", "when": "after"}, None, TransactionState.COMPLETE_COMMIT),
        ({"do": "kill-broker", "seconds": 0.1}, None, TransactionState.ONGOING),
        ({"do": "delay-markers", "seconds": 0.1}, ErrorCode.NONE, TransactionState.COMPLETE_COMMIT),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_request_to_commit_meets_an_event(
    start: Start, connect: Connect, options: dict[str, Any], answer: ErrorCode | None, found: TransactionState
) -> None:
    cluster = start(brokers=2)
    place = cluster.call(lambda server: server.cluster.state_partition("x").node)
    cluster.call(lambda server: server.move_leader("t", 0, place))
    client = connect(cluster, place)
    producer = client.begin()
    tally = cluster.fault(api="EndTxn", nth=1, **options)
    assert client.commit(producer) == answer
    assert waits_for(lambda: state(cluster) is found)
    assert tally.fired == 1


def test_what_comes_with_a_request_to_commit_meets_a_transaction_whose_markers_are_not_written(
    start: Start, connect: Connect
) -> None:
    client = connect(start())
    producer_id, epoch = client.begin()
    row = {"TransactionalId": "x", "ProducerId": producer_id, "ProducerEpoch": epoch, "Committed": True}
    end = CODEC.write_request("EndTxn", 5, 1, "client", row)
    add = CODEC.write_request("AddPartitionsToTxn", 3, 2, "client", added(producer_id, epoch + 1))
    client.socket.sendall(b"".join(struct.pack(">i", len(data)) + data for data in (end, add)))
    ended = client.receive("EndTxn", 5)
    assert ended is not None
    assert (ended["ErrorCode"], ended["ProducerEpoch"]) == (ErrorCode.NONE, epoch + 1)
    assert added_error(client.receive("AddPartitionsToTxn", 3)) == ErrorCode.CONCURRENT_TRANSACTIONS
    again = client.ask("AddPartitionsToTxn", 3, **added(producer_id, epoch + 1))
    assert added_error(again) == ErrorCode.NONE


def test_a_transaction_whose_markers_are_delayed_is_pending_until_they_are_written(
    start: Start, connect: Connect
) -> None:
    cluster = start()
    client = connect(cluster)
    producer_id, epoch = client.begin()
    cluster.fault("delay-markers", api="EndTxn", seconds=100)
    assert client.commit((producer_id, epoch)) == ErrorCode.NONE
    for _ in range(2):
        assert state(cluster) is TransactionState.PREPARE_COMMIT
        answer = client.ask("AddPartitionsToTxn", 3, **added(producer_id, epoch + 1))
        assert added_error(answer) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert client.commit((producer_id, epoch)) == ErrorCode.CONCURRENT_TRANSACTIONS
    cluster.advance(101)  # the second delay has ended, too
    assert state(cluster) is TransactionState.COMPLETE_COMMIT
    answer = client.ask("AddPartitionsToTxn", 3, **added(producer_id, epoch + 1))
    assert added_error(answer) == ErrorCode.NONE


def test_a_leader_tries_again_for_a_while_to_add_a_partition_to_a_transaction(
    start: Start, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = start()
    client = connect(cluster)
    producer_id, epoch = client.begin()
    tally = cluster.fault("delay-markers", api="EndTxn", nth=1, seconds=0.05)
    assert client.commit((producer_id, epoch)) == ErrorCode.NONE
    with monkeypatch.context() as slow:  # a slow machine is no reason to give up
        slow.setattr(logs, "ADD_PARTITIONS_MAX_MS", 60_000)
        assert client.produce(producer=(producer_id, epoch + 1), name="x") == ErrorCode.NONE
    cluster.fault("delay-markers", api="EndTxn", nth=1, seconds=100)
    assert client.commit((producer_id, epoch + 1)) == ErrorCode.NONE
    client.send_batch(producer=(producer_id, epoch + 2), name="x")
    assert connect(cluster).ask("ApiVersions", 3) is not None  # others are served meanwhile
    assert client.produced() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert tally.fired == 1


@pytest.mark.parametrize("topic", ["t", "nowhere"])
def test_a_batch_without_acknowledgement_that_fails_costs_the_connection(
    start: Start, connect: Connect, topic: str
) -> None:
    cluster = start()
    client, batch = connect(cluster), build_batch([Record()], base_timestamp=1)
    for is_control in (False, True):
        data = replace(batch, attributes=0x20 * is_control).stamped(batch.timestamp_type, 1).encode()
        row = {"Acks": 0, "TopicData": [{"Name": topic, "PartitionData": [{"Index": 0, "Records": data}]}]}
        client.send("Produce", 9, **row)
        answer = client.ask("ListGroups", 4)
        assert (answer is not None) == (topic == "t" and not is_control)
        if answer is None:
            break


@pytest.mark.parametrize("fate", ["drop-answer", "withhold"])
def test_the_answer_that_a_fault_takes_is_one_that_is_waited_for(start: Start, connect: Connect, fate: str) -> None:
    cluster = start()
    tally = cluster.fault(fate, api="Produce")
    client, batch = connect(cluster), build_batch([Record()], base_timestamp=1).encode()
    client.send("Produce", 9, Acks=0, TopicData=[{"Name": "t", "PartitionData": [{"Index": 0, "Records": batch}]}])
    assert client.ask("ListGroups", 4) is not None
    assert (end_offset(cluster), tally.matched, tally.fired) == (1, 0, 0)


def added(producer_id: int, epoch: int) -> Message:
    """A request to add a partition to a transaction."""
    return {
        "V3AndBelowTransactionalId": "x",
        "V3AndBelowProducerId": producer_id,
        "V3AndBelowProducerEpoch": epoch,
        "V3AndBelowTopics": [{"Name": "t", "Partitions": [0]}],
    }


def added_error(answer: Message | None) -> int:
    assert answer is not None
    return int(answer["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"][0]["PartitionErrorCode"])


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda cluster: cluster.kill_broker(7), "no broker 7; there are 1, 2"),
        (lambda cluster: cluster.kill_broker(0), "no broker 0; there are 1, 2"),
        (lambda cluster: cluster.move_leader("t", 0, 9), "no broker 9; there are 1, 2"),
        (lambda cluster: cluster.move_leader("t", 5), "no partition 5 of topic 't'; there is 0"),
        (lambda cluster: cluster.move_leader("nope", 0), "no topic 'nope'; there is 't'"),
        (lambda cluster: cluster.move_coordinator(), "give transactional_id= or group=, whose coordinator is to move"),
        (lambda cluster: cluster.move_coordinator(group="g", to=3), "no broker 3; there are 1, 2"),
        (lambda cluster: cluster.time_out_transaction("typo"), "no producer has used 'typo' yet; there is 'x'"),
        (
            lambda cluster: cluster.fault("move-leader", to=3),
            "fault('move-leader'): move-leader any request: there is no broker 3; give brokers=3",
        ),
        (
            lambda cluster: cluster.fault("close", broker=3),
            "fault('close'): close any request broker 3: there is no broker 3; give brokers=3",
        ),
    ],
)
def test_a_control_of_what_is_not_there_says_what_is(
    ask: Callable[[ServedCluster], object], said: str, start: Start, connect: Connect
) -> None:
    cluster = start(brokers=2)
    place = cluster.call(lambda server: server.cluster.state_partition("x").node)
    connect(cluster, place).ask("InitProducerId", 4, TransactionalId="x", TransactionTimeoutMs=60_000)
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        ask(cluster)
    assert cluster.faults.tallies == []


def test_a_transaction_times_out_at_once(start: Start, connect: Connect) -> None:
    cluster = start()
    client = connect(cluster)
    producer = client.begin()
    assert cluster.time_out_transaction("x")
    assert state(cluster) is TransactionState.COMPLETE_ABORT
    assert client.commit(producer) == ErrorCode.INVALID_TXN_STATE
    assert not cluster.time_out_transaction("x")
    client.begin()
    cluster.call(lambda server: server.cluster.transactions.loading.update({"__transaction_state-0": 1 << 62}))
    assert cluster.call(lambda server: server.cluster.state_partition("x").name) == "__transaction_state-0"
    assert not cluster.time_out_transaction("x"), "its coordinator does not know it yet"


def test_a_transaction_times_out_when_the_clock_goes_on(start: Start, connect: Connect) -> None:
    cluster = start()
    connect(cluster).begin()
    cluster.advance(59)
    assert state(cluster) is TransactionState.ONGOING
    cluster.advance(2)
    assert state(cluster) is TransactionState.COMPLETE_ABORT


def test_a_transactional_id_expires_when_the_clock_goes_on(start: Start, connect: Connect) -> None:
    cluster = start()
    client = connect(cluster)
    assert client.commit(client.begin()) == ErrorCode.NONE
    cluster.advance(8 * 86_400)
    assert cluster.call(lambda server: list(server.cluster.transactions.known)) == []


def test_a_member_is_gone_when_its_session_is_over(start: Start, connect: Connect) -> None:
    def members(server: Server) -> list[bool]:
        return [group.is_empty for group in server.cluster.groups.known.values()]

    cluster = start()
    row = {"GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 10_000, "ProtocolType": "consumer"}
    protocols = [{"Name": "range", "Metadata": b""}]
    answer = connect(cluster).ask("JoinGroup", 3, MemberId="", Protocols=protocols, **row)
    assert answer is not None
    assert answer["ErrorCode"] == ErrorCode.NONE
    cluster.advance(9)
    assert cluster.call(members) == [False]
    cluster.advance(2)
    assert cluster.call(members) == [True]


def test_a_producer_that_wrote_nothing_for_long_is_forgotten(start: Start, connect: Connect) -> None:
    def producers(server: Server) -> int:
        return len(server.cluster.topics["t"].partitions[0].last_timestamps)

    cluster = start()
    client = connect(cluster)
    client.commit(client.begin())
    assert cluster.call(producers) == 1
    cluster.advance(86_400 + 60)
    assert cluster.call(producers) == 0


def test_a_restart_leaves_what_is_in_the_files(start: Start, connect: Connect) -> None:
    cluster = start(brokers=2)
    cluster.move_leader("t", 0, 2)
    client = connect(cluster, 2)
    producer = client.begin("y")
    before = cluster.call(lambda server: server.cluster)
    cluster.restart()
    assert client.receive("Produce", 12) is None
    assert cluster.call(lambda server: server.cluster) is not before
    assert end_offset(cluster) == 1
    assert cluster.call(lambda server: server.cluster.topics["t"].partitions[0].node) == 2
    place = cluster.call(lambda server: server.cluster.state_partition("y").node)
    assert connect(cluster, place).commit(producer, "y") == ErrorCode.NONE
    assert stable_offset(cluster) == 2


def test_a_cluster_in_memory_cannot_be_restarted() -> None:
    with (
        ServedCluster() as cluster,
        pytest.raises(NothingStored, match=r"^a cluster in memory cannot be restarted; keep it in a directory$"),
    ):
        cluster.restart()


# --- control ---------------------------------------------------------------------------------------------------------


def test_a_fault_lasts_as_long_as_its_block(start: Start, connect: Connect) -> None:
    cluster = start()
    with cluster.faulty("close", api="Produce") as tally:
        assert connect(cluster).produce() is None
    assert connect(cluster).produce() == ErrorCode.NONE
    assert (tally.fired, cluster.faults.tallies) == (1, [])


def test_a_restart_is_refused_where_it_is_asked_for_if_there_is_nothing_to_come_back_with(tmp_path: Path) -> None:
    needs = "restart needs files to come back with; give data=, a directory"
    with ServedCluster() as in_memory:
        assert in_memory.fault("close", api="Produce").fired == 0
        with pytest.raises(MalformedPlan, match=rf"^fault\('restart'\): {needs}$"):
            in_memory.fault("restart", api="Produce")
    with ServedCluster(data=tmp_path) as kept:
        assert kept.fault("restart", api="Produce").fired == 0


def test_a_fault_of_a_wrong_name_is_refused_where_it_is_asked_for(start: Start) -> None:
    with pytest.raises(MalformedPlan, match=r"^fault\('delay'\): delay needs 'seconds': seconds, 0 or more$"):
        start().fault("delay", api="Produce")


def test_a_topic_that_is_there_is_not_made_again(start: Start) -> None:
    with pytest.raises(ValueError, match=r"^topic 't': TOPIC_ALREADY_EXISTS: Topic 't' already exists\.$"):
        start().create_topic("t")


def test_what_fails_in_the_servers_thread_is_raised_where_it_was_asked_for(start: Start, connect: Connect) -> None:
    def fail(server: Server) -> None:
        raise KeyError(server.bootstrap)

    cluster = start()
    with pytest.raises(KeyError):
        cluster.call(fail)
    assert connect(cluster).produce() == ErrorCode.NONE


def test_a_cluster_that_cannot_start_says_so(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="ascii")
    with pytest.raises(ValueError, match=r"no meta\.properties"):
        ServedCluster(data=tmp_path).start()


def test_the_same_plan_and_seed_give_the_same_run(tmp_path: Path, connect: Connect) -> None:
    plan = '[[fault]]\ndo = "error"\napi = "Produce"\nerror = "NOT_LEADER_OR_FOLLOWER"\nchance = 0.5'

    def run(seed: int) -> list[int | None]:
        with ServedCluster(faults=Faults(read_plan(plan, "plan"), seed)) as cluster:
            cluster.create_topic("t")
            client = connect(cluster)
            return [client.produce() for _ in range(40)]

    assert run(1) == run(1)
    assert run(1) != run(2)
