"""A watcher's questions to a cluster, and what it makes of answers that are errors."""

from dataclasses import replace
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos_checks.conform.security import Security
from kafka_eos_checks.conform.wire import Address, ConnectionClosed, NoAnswer, Unreachable, Unsupported
from kafka_eos_checks.watch.cluster import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Cluster,
    ClusterFailed,
    Transaction,
)

BROKER = {"NodeId": 1, "Host": "127.0.0.1", "Port": 9092}
DESCRIBED = {
    "ErrorCode": 0,
    "TransactionalId": "x",
    "TransactionState": "Ongoing",
    "ProducerId": 7,
    "ProducerEpoch": 2,
    "TransactionStartTimeMs": 1,
    "TransactionTimeoutMs": 60_000,
    "Topics": [{"Topic": "orders", "Partitions": [0]}],
}


class Answers:
    """A connection on which each API has one answer."""

    bootstrap = Address("127.0.0.1", 9092)

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.failures: list[NoAnswer] = []
        self.asked: dict[str, Any] = {}
        self.unreachable: set[int] = set()  # ports

    def connect(self) -> None:
        if self.bootstrap.port in self.unreachable:
            raise Unreachable(f"{self.bootstrap.port} is gone")

    def ask(self, api: str, row: object, at: object = None) -> Any:  # noqa: ARG002
        self.asked[api] = row
        if api not in self.answers:
            raise Unsupported(f"the broker has no {api}")
        if self.failures:
            raise self.failures.pop()
        return self.answers[api]


def asked(**answers: Any) -> Cluster:
    cluster = Cluster([Address("127.0.0.1", 9092)], Security())
    metadata = {"ClusterId": "c", "Brokers": [BROKER], "Topics": []}
    cluster._wire = Answers(**({"Metadata": metadata} | answers))  # type: ignore[assignment]
    cluster.topics()
    return cluster


@pytest.mark.parametrize(("given", "told"), [("c", "c"), (None, "")])
def test_a_cluster_tells_its_id_by_which_a_checkpoint_of_another_one_is_refused(given: str | None, told: str) -> None:
    assert asked(Metadata={"ClusterId": given, "Brokers": [BROKER], "Topics": []}).topics().cluster_id == told


def test_a_topic_of_which_nothing_can_be_told_now_is_not_gone() -> None:
    topics = [
        {"Name": "orders", "ErrorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Partitions": []},
        {"Name": "bills", "ErrorCode": 0, "Partitions": [{"PartitionIndex": 0, "LeaderId": 1}]},
    ]
    told = asked(Metadata={"ClusterId": "c", "Brokers": [BROKER], "Topics": topics}).topics()
    assert (told.unsure, set(told.ids), told.leaders) == ({"orders"}, {"bills"}, {("bills", 0): 1})


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (ErrorCode.NONE, {7}),
        (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, set()),  # it ended between the two questions
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None),
    ],
)
def test_coordinators_that_cannot_describe_a_transaction_tell_nothing(error: ErrorCode, known: set[int] | None) -> None:
    cluster = asked(
        ListTransactions={"ErrorCode": 0, "TransactionStates": [{"TransactionalId": "x"}]},
        DescribeTransactions={"TransactionStates": [DESCRIBED | {"ErrorCode": error}]},
    )
    found = cluster.transactions_of([7])
    assert (None if found is None else set(found)) == known


def test_the_prepared_transactions_are_asked_for_by_their_states_and_those_that_moved_on_are_left_out() -> None:
    states = [("x", 7, "PrepareCommit"), ("y", 8, "PrepareAbort"), ("z", 9, "CompleteCommit")]
    described = [
        DESCRIBED | {"TransactionalId": name, "ProducerId": pid, "TransactionState": state}
        for name, pid, state in states
    ]
    cluster = asked(
        ListTransactions={"ErrorCode": 0, "TransactionStates": [{"TransactionalId": name} for name, _, _ in states]},
        DescribeTransactions={"TransactionStates": described},
    )
    known = cluster.prepared_transactions()
    assert known is not None
    assert [each.name for each in known] == ["x", "y"]
    row = cluster._wire.asked["ListTransactions"]  # type: ignore[attr-defined]
    assert row == {"StateFilters": ["PrepareCommit", "PrepareAbort"]}
    loading = {"ErrorCode": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "TransactionStates": []}
    assert asked(ListTransactions=loading).prepared_transactions() is None


def test_a_coordinator_that_cannot_list_its_transactions_tells_nothing() -> None:
    loading = {"ErrorCode": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "TransactionStates": []}
    assert asked(ListTransactions=loading).transactions_of([7]) is None, "that is not: no coordinator knows it"
    cluster = asked(ListTransactions=loading | {"ErrorCode": 0})
    assert cluster.transactions_of([8, 7]) == {}
    assert cluster._wire.asked["ListTransactions"] == {"ProducerIdFilters": [7, 8]}  # type: ignore[attr-defined]


def test_brokers_that_do_not_tell_of_transactions_or_producers_tell_nothing() -> None:
    cluster = asked()
    assert cluster.transactions_of([7]) is None, "before KIP-664, that is not: no coordinator knows it"
    assert cluster.open_transactions(1, ("orders", 0)) is None
    with pytest.raises(Unsupported):
        cluster.prepared_transactions()


def test_all_topics_are_asked_for_and_none_is_made_by_that() -> None:
    cluster = asked()
    assert cluster._wire.asked == {"Metadata": {"Topics": None, "AllowAutoTopicCreation": False}}  # type: ignore[attr-defined]


def test_a_broker_whose_address_is_not_known_cannot_be_reached() -> None:
    with pytest.raises(Unreachable, match="broker 9: no address is known"):
        asked(DescribeProducers={}).open_transactions(9, ("orders", 0))


@pytest.mark.parametrize(("code", "places"), [({}, [("orders", 0)]), ({"ErrorCode": 0}, [("orders", 0)])])
def test_an_answer_of_a_version_without_an_error_for_all_has_its_partitions(
    code: dict[str, int], places: list[tuple[str, int]]
) -> None:
    part = {"PartitionIndex": 0, "ErrorCode": 0, "HighWatermark": 5, "LastStableOffset": 4, "Records": None}
    cluster = asked(Fetch=code | {"Responses": [{"Topic": "orders", "Partitions": [part]}]})
    assert list(cluster.fetch(1, {("orders", 0): 3}, 500)) == places


@pytest.mark.parametrize("topics", [[], [{"Partitions": []}]])
def test_an_answer_about_producers_that_leaves_the_partition_out_tells_nothing(topics: list[Any]) -> None:
    assert asked(DescribeProducers={"Topics": topics}).open_transactions(1, ("orders", 0)) is None


def test_data_are_asked_for_as_a_consumer_asks() -> None:
    cluster = asked(Fetch={"Responses": []})
    cluster.fetch(1, {("orders", 0): 3}, 500)
    row = cluster._wire.asked["Fetch"]  # type: ignore[attr-defined]
    assert row["ReplicaId"] == -1, "no follower, whose fetches move the end"
    assert (row["MinBytes"], row["MaxWaitMs"]) == (1, 500), "the broker waits until there is something"
    [part] = row["Topics"][0]["Partitions"]
    assert row["MaxBytes"] >= 10 * part["PartitionMaxBytes"], "with room for other partitions"


@pytest.mark.parametrize(
    ("timestamp", "isolation", "numbers"),
    [(EARLIEST, READ_UNCOMMITTED, (-2, 0)), (LATEST, READ_UNCOMMITTED, (-1, 0)), (LATEST, READ_COMMITTED, (-1, 1))],
)
def test_offsets_are_asked_for_as_a_consumer_asks_and_those_with_an_error_are_left_out(
    timestamp: int, isolation: int, numbers: tuple[int, int]
) -> None:
    told = [
        {"PartitionIndex": 0, "ErrorCode": 0, "Offset": 5},
        {"PartitionIndex": 1, "ErrorCode": ErrorCode.NOT_LEADER_OR_FOLLOWER, "Offset": -1},
    ]
    cluster = asked(ListOffsets={"Topics": [{"Name": "orders", "Partitions": told}]})
    assert cluster.offsets(1, [("orders", 0), ("orders", 1)], timestamp, isolation) == {("orders", 0): 5}
    row = cluster._wire.asked["ListOffsets"]  # type: ignore[attr-defined]
    partitions = [{"PartitionIndex": number, "Timestamp": numbers[0]} for number in (0, 1)]
    topics = [{"Name": "orders", "Partitions": partitions}]
    assert row == {"ReplicaId": -1, "IsolationLevel": numbers[1], "Topics": topics}


@pytest.mark.parametrize(
    ("code", "said"), [(ErrorCode.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"), (999, "error 999")]
)
def test_an_answer_with_an_error_for_all_is_none(code: int, said: str) -> None:
    with pytest.raises(NoAnswer, match=f"^Fetch: {said}$"):
        asked(Fetch={"ErrorCode": code}).fetch(1, {("orders", 0): 3}, 500)


def test_a_transaction_whose_begin_is_not_known_has_no_time_of_its_end() -> None:
    known = Transaction(
        name="x", state="Ongoing", producer_id=7, epoch=2, start_ms=5, timeout_ms=7, partitions=frozenset()
    )
    ends = [replace(known, start_ms=start_ms).times_out_ms for start_ms in (-1, 0, 1)]
    assert ends == [None, None, 8]


def test_what_was_decided_about_an_epoch_is_told_of_the_next_one() -> None:
    known = Transaction(
        name="x", state="CompleteAbort", producer_id=7, epoch=1001, start_ms=5, timeout_ms=7, partitions=frozenset()
    )
    assert [known.decision_about(epoch) for epoch in (999, 1000, 1001)] == ["", "aborted", ""]


def test_brokers_that_are_gone_are_passed_over_and_all_are_named_if_none_answers() -> None:
    cluster = asked()
    addresses = [Address("127.0.0.1", port) for port in (1, 2)]
    cluster._bootstrap = tuple(addresses)
    wire = cluster._wire
    wire.unreachable = {BROKER["Port"], 1}  # type: ignore[attr-defined]
    assert cluster.topics().cluster_id == "c"
    assert wire.bootstrap == addresses[1]
    wire.unreachable |= {2}  # type: ignore[attr-defined]
    with pytest.raises(ClusterFailed, match="2 is gone; 9092 is gone; 1 is gone"):
        cluster.topics()


def test_a_broker_that_ends_the_connection_is_named_with_what_it_may_want() -> None:
    cluster = asked()
    cluster._wire.failures = [ConnectionClosed("Metadata v12: the broker closed the connection")]  # type: ignore[attr-defined]
    with pytest.raises(ClusterFailed, match=r"^127.0.0.1:9092: Metadata v12.*; it may want another security.protocol$"):
        cluster.topics()


def test_a_transaction_may_be_open_from_offset_0_on() -> None:
    known = [{"ProducerId": 10 + start, "CurrentTxnStartOffset": start} for start in (-1, 0, 5)]
    cluster = asked(DescribeProducers={"Topics": [{"Partitions": [{"ErrorCode": 0, "ActiveProducers": known}]}]})
    assert cluster.open_transactions(1, ("orders", 0)) == {10: 0, 15: 5}


@pytest.mark.parametrize(
    ("failures", "known"),
    [
        ([ConnectionClosed("it was idle")], {7}),
        ([ConnectionClosed("again"), ConnectionClosed("it was idle")], None),
        ([NoAnswer("late")], None),  # it would be waited for in vain twice
    ],
)
def test_a_connection_that_the_broker_has_closed_is_opened_again_once(
    failures: list[NoAnswer], known: set[int] | None
) -> None:
    cluster = asked(
        ListTransactions={"ErrorCode": 0, "TransactionStates": [{"TransactionalId": "x"}]},
        DescribeTransactions={"TransactionStates": [DESCRIBED]},
    )
    cluster._wire.failures = failures  # type: ignore[attr-defined]
    found = cluster.transactions_of([7])
    assert (None if found is None else set(found)) == known
