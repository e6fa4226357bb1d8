"""A watcher's questions to a cluster, and what it makes of answers that are errors."""

from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos_checks.conform.security import Security
from kafka_eos_checks.conform.wire import Address, ConnectionClosed, NoAnswer, Unsupported
from kafka_eos_checks.watch.cluster import Cluster

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

    def connect(self) -> None:
        """Connect to nothing."""

    def ask(self, api: str, row: object, at: object = None) -> Any:  # noqa: ARG002
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


def test_brokers_that_do_not_tell_of_transactions_or_producers_tell_nothing() -> None:
    cluster = asked()
    assert cluster.transactions_of([7]) is None, "before KIP-664, that is not: no coordinator knows it"
    assert cluster.open_transactions(1, ("orders", 0)) is None


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
