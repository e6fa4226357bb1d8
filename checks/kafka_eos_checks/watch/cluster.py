"""A watcher's questions to a cluster: where partitions are led, what is in them, and what coordinators know.

Kafka: Fetcher, FetchRequest; TransactionsCommand.FindHangingTransactionsCommand, AbortTransactionCommand
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.conform.security import Security
from kafka_eos_checks.conform.wire import (
    Address,
    ConnectionClosed,
    NoAnswer,
    Unreachable,
    Unsupported,
    Wire,
    error_name,
)

FETCH_BYTES, PARTITION_BYTES = 16 << 20, 1 << 20  # of an answer, of a partition in it; a larger batch comes whole
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PREPARED = ["PrepareCommit", "PrepareAbort"]
# Fetch by names of topics; newer versions change nothing that is used here.
NEWEST = {"Fetch": 12, "Metadata": 12, "ListOffsets": 7}
FAILURES = (NoAnswer, Unreachable)

Place = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics, as Metadata tells them.

    Attributes:
        cluster_id: the cluster's id.
        leaders: by partition, the node id of its leader, -1 for none.
        ids: by topic, its id, "" where the broker tells none.
        unsure: topics that are there, but about which nothing can be told now.
    """

    cluster_id: str
    leaders: dict[Place, int]
    ids: dict[str, str]
    unsure: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A leader's answer about a partition.

    Attributes:
        error: Kafka's code, 0 for none.
        high_watermark: first offset that readers may not see.
        last_stable_offset: first offset that may belong to an undecided transaction.
        records: encoded batches; the last one may be cut off.
    """

    error: int
    high_watermark: int
    last_stable_offset: int
    records: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A coordinator's state of a transactional id.

    Attributes:
        name: the transactional id.
        state: ``Ongoing``, ``PrepareCommit``, ``CompleteAbort`` …
        producer_id: its present producer id.
        epoch: its present epoch; while a transaction ends it may be the next one already.
        start_ms: when the transaction began, -1 for none.
        timeout_ms: time after which the coordinator aborts it.
        partitions: the transaction's partitions.
    """

    name: str
    state: str
    producer_id: int
    epoch: int
    start_ms: int
    timeout_ms: int
    partitions: frozenset[Place]

    def will_end(self, place: Place, epoch: int) -> bool:
        """Whether its markers will end data of this epoch on that partition."""
        # A coordinator that ends a transaction of version 2, or fences, has raised the epoch already.
        epochs = {self.epoch} if self.state == "Ongoing" else {self.epoch, self.epoch - 1}
        return place in self.partitions and epoch in epochs

    def decision_about(self, epoch: int) -> str:
        """The decision about the transaction with data of this epoch: ``committed``, ``aborted``, or "" if not known.

        An end raises the epoch only in transaction version 2, or if it aborts. So a commit at the next epoch names the
        transaction of the epoch, and an abort at the next epoch its last one, in version 2 its only one.
        """
        return self.decided if epoch == self.epoch - 1 else ""

    @property
    def decided(self) -> str:
        """The decision about its last transaction: ``committed``, ``aborted``, or "" for none yet."""
        decided = self.state.removeprefix("Prepare").removeprefix("Complete")
        return "" if decided == self.state else {"Commit": "committed", "Abort": "aborted"}.get(decided, "")

    @property
    def times_out_ms(self) -> int | None:
        """The time at which the coordinator aborts it, in milliseconds since the epoch; None if it is not open."""
        return self.start_ms + self.timeout_ms if self.state == "Ongoing" and self.start_ms > 0 else None

    def in_words(self) -> str:
        """The transactional id, its state and producer, as text."""
        return f"{self.name!r} {self.state} with producer {self.producer_id} epoch {self.epoch}"


class ClusterFailed(ConnectionError):  # noqa: N818 - what happened
    """No broker answers, or one that answers refuses us."""


class Cluster:
    """A cluster, as its clients reach it.

    Args:
        bootstrap: some of its brokers.
        security: how to connect.
        seconds: how long to wait for an answer.
    """

    def __init__(self, bootstrap: Sequence[Address], security: Security, seconds: float = 10.0) -> None:
        self._bootstrap = tuple(bootstrap)
        self._wire = Wire(self._bootstrap[0], security, seconds, NEWEST)
        self._nodes: dict[int, Address] = {}

    def close(self) -> None:
        """End all connections."""
        self._wire.close()

    def topics(self) -> Topics:
        """All topics that may be read.

        Raises:
            ClusterFailed: no broker answers.
            Unsupported: the broker is too old.
        """
        row = self._ask_anyone("Metadata", {"Topics": None, "AllowAutoTopicCreation": False})
        self._nodes = {each["NodeId"]: Address(each["Host"], each["Port"]) for each in row["Brokers"]}
        good = [topic for topic in row["Topics"] if topic["ErrorCode"] == ErrorCode.NONE]
        return Topics(
            cluster_id=row.get("ClusterId") or "",
            leaders={(t["Name"], part["PartitionIndex"]): part["LeaderId"] for t in good for part in t["Partitions"]},
            ids={topic["Name"]: str(topic.get("TopicId", "")) for topic in good},
            unsure=frozenset(topic["Name"] for topic in row["Topics"] if topic["ErrorCode"] != ErrorCode.NONE),
        )

    def _ask_anyone(self, api: str, row: Message) -> Message:
        failures = []
        for address in dict.fromkeys((self._wire.bootstrap, *self._nodes.values(), *self._bootstrap)):
            self._wire.bootstrap = address
            try:
                self._wire.connect()
                return self._wire.ask(api, row)
            except ConnectionClosed as error:  # with SASL, only ApiVersions is answered before a login
                failures.append(f"{address}: {error}; it may want another security.protocol")
            except FAILURES as error:
                failures.append(str(error))
        raise ClusterFailed("; ".join(failures))

    def fetch(self, node: int, positions: Mapping[Place, int], wait_ms: int) -> dict[Place, Fetched]:
        """The batches of the partitions that a broker leads, markers and aborted data included.

        Args:
            node: the broker.
            positions: by partition, the offset to read from.
            wait_ms: how long the broker may wait for anything to come.

        Raises:
            NoAnswer, Unreachable: as :meth:`Wire.ask` does; NoAnswer also if the broker answers with an error for all.
        """
        row = {
            "ReplicaId": -1,
            "MaxWaitMs": wait_ms,
            "MinBytes": 1,
            "MaxBytes": FETCH_BYTES,
            "IsolationLevel": READ_UNCOMMITTED,
            "Topics": _by_topic(
                "Topic",
                (
                    (place, {"FetchOffset": offset, "PartitionMaxBytes": PARTITION_BYTES})
                    for place, offset in positions.items()
                ),
                "Partition",
            ),
        }
        answer = self._ask(node, "Fetch", row)
        if code := answer.get("ErrorCode", 0):
            raise NoAnswer(f"Fetch: {error_name(code)}")
        return {
            (topic["Topic"], part["PartitionIndex"]): Fetched(
                error=part["ErrorCode"],
                high_watermark=part["HighWatermark"],
                last_stable_offset=part["LastStableOffset"],
                records=part["Records"] or b"",
            )
            for topic in answer["Responses"]
            for part in topic["Partitions"]
        }

    def offsets(self, node: int, places: Iterable[Place], timestamp: int, isolation: int) -> dict[Place, int]:
        """The first or last offset of partitions; one that the leader does not tell is left out.

        Raises:
            NoAnswer, Unreachable: as :meth:`Wire.ask` does.
        """
        asked = _by_topic("Name", ((place, {"Timestamp": timestamp}) for place in places), "PartitionIndex")
        answer = self._ask(node, "ListOffsets", {"ReplicaId": -1, "IsolationLevel": isolation, "Topics": asked})
        return {
            (topic["Name"], part["PartitionIndex"]): part["Offset"]
            for topic in answer["Topics"]
            for part in topic["Partitions"]
            if part["ErrorCode"] == ErrorCode.NONE
        }

    def transactions_of(self, producer_ids: Collection[int]) -> dict[int, Transaction] | None:
        """The coordinators' state of producer ids; None if one of them cannot tell now.

        A transactional id that this client may not describe is not told of.
        """
        try:
            return self._transactions({"ProducerIdFilters": sorted(producer_ids)})
        except Unsupported:
            return None

    def prepared_transactions(self) -> list[Transaction] | None:
        """The transactions that are decided and not completed; None if a coordinator cannot tell now.

        Raises:
            Unsupported: by brokers before 3.0 (KIP-664).
        """
        known = self._transactions({"StateFilters": PREPARED})
        return None if known is None else [each for each in known.values() if each.state in PREPARED]

    def _transactions(self, filters: Message) -> dict[int, Transaction] | None:
        found: dict[int, Transaction] = {}
        try:
            for node in self._nodes:
                row = self._ask(node, "ListTransactions", filters)
                names = [each["TransactionalId"] for each in row["TransactionStates"]]
                if row["ErrorCode"]:
                    return None
                described = self._ask(node, "DescribeTransactions", {"TransactionalIds": names}) if names else {}
                for each in described.get("TransactionStates", []):
                    if each["ErrorCode"] == ErrorCode.NONE:
                        found[each["ProducerId"]] = _transaction(each)
                    elif each["ErrorCode"] != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        return None
        except FAILURES:
            return None
        return found

    def open_transactions(self, node: int, place: Place) -> dict[int, int] | None:
        """The first offset of the transaction that each producer has open in a partition; None for no answer.

        Raises:
            NoAnswer, Unreachable: as :meth:`Wire.ask` does.
        """
        topics = [{"Name": place[0], "PartitionIndexes": [place[1]]}]
        try:
            answer = self._ask(node, "DescribeProducers", {"Topics": topics})
        except Unsupported:  # KIP-664: brokers before 2.8 do not tell
            return None
        part = next((each for topic in answer["Topics"] for each in topic["Partitions"]), None)
        if part is None or part["ErrorCode"] != ErrorCode.NONE:
            return None
        return {
            each["ProducerId"]: each["CurrentTxnStartOffset"]
            for each in part["ActiveProducers"]
            if each["CurrentTxnStartOffset"] >= 0
        }

    def _ask(self, node: int, api: str, row: Message) -> Message:
        address = self._nodes.get(node)
        if address is None:
            raise Unreachable(f"broker {node}: no address is known")
        try:
            return self._wire.ask(api, row, at=address)
        except ConnectionClosed:  # as brokers do: connections.max.idle.ms, connections.max.reauth.ms (KIP-368)
            return self._wire.ask(api, row, at=address)  # on a new one


def _transaction(row: Message) -> Transaction:
    return Transaction(
        name=row["TransactionalId"],
        state=row["TransactionState"],
        producer_id=row["ProducerId"],
        epoch=row["ProducerEpoch"],
        start_ms=row["TransactionStartTimeMs"],
        timeout_ms=row["TransactionTimeoutMs"],
        partitions=frozenset((topic["Topic"], number) for topic in row["Topics"] for number in topic["Partitions"]),
    )


def _by_topic(name: str, rows: Iterable[tuple[Place, dict[str, Any]]], number: str) -> list[Message]:
    """Rows of partitions as the protocol wants them: below their topics."""
    topics: dict[str, list[Message]] = defaultdict(list)
    for (topic, partition), row in rows:
        topics[topic].append({number: partition, **row})
    return [{name: topic, "Partitions": parts} for topic, parts in topics.items()]
