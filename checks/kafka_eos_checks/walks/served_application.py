"""An exactly-once application as a coroutine: it yields requests, and is sent the answers.

It reads an input partition, writes an output for each input, in one or several batches, and sends the offset after them
into the transaction: with a transactional.id for each partition (version 1), or as a member of a group of KIP-848
(version 2). Without an answer it repeats the request, as Kafka's clients do.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.fetched import batches

E = ErrorCode
GROUP, INPUT, OUTPUT = "application", "input", "output"
TIMEOUTS_MS = (10_000, 4_000, 10_001)
"""The timeouts of transactions that a process may ask for."""

VERSIONS = {
    1: {
        "InitProducerId": range(6),
        "AddPartitionsToTxn": range(4),
        "AddOffsetsToTxn": range(5),
        "EndTxn": range(5),
        "Produce": range(3, 12),
        "TxnOffsetCommit": range(3, 5),
        "Fetch": range(4, 13),
        "OffsetFetch": range(8, 10),
    },
    2: {
        "InitProducerId": range(6),
        "EndTxn": range(5, 6),
        "Produce": range(12, 13),
        "TxnOffsetCommit": range(5, 6),
        "Fetch": range(4, 13),
        "OffsetFetch": range(8, 10),
    },
}
"""By transaction.version, the versions of requests that a process may use; a batch in a transaction needs Produce 3."""

RETRIED = frozenset(
    {
        E.NOT_LEADER_OR_FOLLOWER,
        E.NOT_COORDINATOR,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.COORDINATOR_NOT_AVAILABLE,
        E.NOT_ENOUGH_REPLICAS,
        E.CONCURRENT_TRANSACTIONS,
        E.UNSTABLE_OFFSET_COMMIT,
    }
)
REMOVED = frozenset({E.UNKNOWN_MEMBER_ID, E.FENCED_MEMBER_EPOCH, E.STALE_MEMBER_EPOCH, E.ILLEGAL_GENERATION})


class To(StrEnum):
    """The broker that a request goes to: the coordinator of the transactional.id or of the group, or a leader."""

    TRANSACTIONS = "transactions"
    GROUPS = "groups"
    LEADER = "leader"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request."""

    to: To
    api: str
    version: int
    row: Message
    partition: int = 0


Heard = Message | None
Life = Generator[Ask | None, Heard, None]
Answering = Generator[Ask | None, Heard, Any]


class Refused(Exception):  # noqa: N818 - the protocol's word
    """An answer that no retry can mend."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class Application:
    """A process of the application.

    Attributes:
        name: the name of the process, and its member id.
        eos: 1 or 2.
        transaction_version: the cluster's: 1 or 2.
        partition: the partition that it reads, in version 1.
        inputs: the number of inputs per transaction.
        batch: the number of outputs per batch.
        timeout_ms: the timeout of its transactions.
        versions: API -> the version of its requests.
        now: the time of the next batch, in milliseconds since the epoch.
        retires: it ends when it is refused: another process has replaced it, and two would fence each other for ever.
        assigned: the partitions that it has, in version 2.
        positions: for each partition, the next input.
    """

    name: str
    eos: int
    transaction_version: int
    partition: int = 0
    inputs: int = 2
    batch: int = 2
    timeout_ms: int = TIMEOUTS_MS[0]
    versions: dict[str, int] = field(default_factory=dict)
    now: int = 0
    retires: bool = False
    member_epoch: int = 0
    producer: tuple[int, int] = (-1, -1)
    assigned: frozenset[int] = frozenset()
    positions: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    def draw(self, rng: Random) -> None:
        """Draw the sizes of its transactions and batches, its timeout and the versions of its requests."""
        self.inputs, self.batch = rng.choice((1, 2, 3)), rng.choice((1, 2))
        self.timeout_ms = rng.choice(TIMEOUTS_MS)
        self.versions = {api: rng.choice(versions) for api, versions in VERSIONS[self.transaction_version].items()}

    def _ask(self, to: To, api: str, row: Message, partition: int = 0) -> Ask:
        version = self.versions.get(api, VERSIONS[self.transaction_version][api][-1])
        return Ask(to, api, version, row, partition)

    @property
    def transactional_id(self) -> str:
        """The transactional.id: one per partition, or one per process."""
        return f"{GROUP}-{self.partition}" if self.eos == 1 else f"{GROUP}-{self.name}"

    def life(self) -> Life:
        """The process's steps; they start again after an answer that no retry can mend."""
        while True:
            try:
                yield from self._initialize()
                while True:
                    yield from self._turn()
            except Refused:
                if self.retires:
                    return
                self.positions.clear()
                yield None

    # --- asking

    def _until(self, ask: Ask, *error: str | int) -> Answering:
        """Send a request until its answer is not one to retry, and return that answer.

        Args:
            ask: the request.
            error: the path to the error code in the answer.
        """
        while True:
            answer = yield ask
            if answer is None:
                continue
            code = answer
            for step in error:
                code = code[step]  # type: ignore[index]
            found = ErrorCode(code)  # type: ignore[arg-type]
            if found is E.NONE:
                return answer
            if found not in RETRIED:
                raise Refused(found)
            yield None

    @property
    def _who(self) -> Message:
        return {
            "TransactionalId": self.transactional_id,
            "ProducerId": self.producer[0],
            "ProducerEpoch": self.producer[1],
        }

    def _initialize(self) -> Answering:
        row = {"TransactionalId": self.transactional_id, "TransactionTimeoutMs": self.timeout_ms}
        answer = yield from self._until(self._ask(To.TRANSACTIONS, "InitProducerId", row), "ErrorCode")
        self.producer = answer["ProducerId"], answer["ProducerEpoch"]
        self.sequences.clear()
        self.positions.clear()
        self.member_epoch = 0
        self.assigned = frozenset({self.partition}) if self.eos == 1 else frozenset()

    def _turn(self) -> Answering:
        """A heartbeat, and a transaction if there is anything to read."""
        if self.eos == 2:
            yield from self._heartbeat()
        for number in sorted(self.assigned - self.positions.keys()):
            yield from self._find_position(number)
        for number in sorted(self.assigned):
            inputs = yield from self._read(number)
            if inputs:
                yield from self._transaction(number, inputs)
                return
        yield None

    def _heartbeat(self) -> Answering:
        # All fields each time, as Kafka's consumer sends them after a heartbeat without an answer. That answer, or the
        # one to a duplicate, may have had the assignment, which the coordinator gives again only to such a heartbeat.
        held = [{"Topic": INPUT, "Partitions": sorted(self.assigned)}] if self.member_epoch else []
        row: Message = {"GroupId": GROUP, "MemberId": self.name, "MemberEpoch": self.member_epoch}
        row |= {"SubscribedTopicNames": [INPUT], "RebalanceTimeoutMs": 5_000, "TopicPartitions": held}
        try:
            answer = yield from self._until(Ask(To.GROUPS, "ConsumerGroupHeartbeat", 1, row), "ErrorCode")
        except Refused as refusal:
            if refusal.code not in REMOVED:
                raise
            self._leave()
            return
        self.member_epoch = answer["MemberEpoch"]
        if answer["Assignment"] is not None:
            parts = answer["Assignment"]["TopicPartitions"]
            self.assigned = frozenset(number for part in parts for number in part["Partitions"])
            self.positions = {number: at for number, at in self.positions.items() if number in self.assigned}

    def _leave(self) -> None:
        self.member_epoch, self.assigned = 0, frozenset()
        self.positions.clear()

    def _find_position(self, number: int) -> Answering:
        row = {"Groups": [{"GroupId": GROUP, "Topics": [{"Name": INPUT, "PartitionIndexes": [number]}]}]}
        path = ("Groups", 0, "Topics", 0, "Partitions", 0, "ErrorCode")
        answer = yield from self._until(self._ask(To.GROUPS, "OffsetFetch", row | {"RequireStable": True}), *path)
        found = answer["Groups"][0]["Topics"][0]["Partitions"][0]["CommittedOffset"]
        self.positions[number] = max(found, 0)

    def _read(self, number: int) -> Answering:
        part = {"Partition": number, "FetchOffset": self.positions[number], "PartitionMaxBytes": 1 << 20}
        row = {"MaxWaitMs": 0, "MinBytes": 0, "Topics": [{"Topic": INPUT, "Partitions": [part]}]}
        answer = yield from self._until(
            self._ask(To.SOURCE, "Fetch", row, number), "Responses", 0, "Partitions", 0, "ErrorCode"
        )
        values = [
            record.value or b""
            for batch in batches(answer["Responses"][0]["Partitions"][0])
            if not batch.is_control
            for record in batch.records()
            if batch.offset(record) >= self.positions[number]
        ]
        return values[: self.inputs]

    # --- a transaction

    def _transaction(self, number: int, inputs: list[bytes]) -> Answering:
        version_2 = self.transaction_version == 2
        if not version_2:
            yield from self._add_partition(number)
        for first in range(0, len(inputs), self.batch):
            yield from self._produce(number, inputs[first : first + self.batch])
        if not version_2:
            row = {**self._who, "GroupId": GROUP}
            yield from self._until(self._ask(To.TRANSACTIONS, "AddOffsetsToTxn", row), "ErrorCode")
        offset = self.positions[number] + len(inputs)
        try:
            yield from self._send_offset(number, offset)
        except Refused as refusal:
            if refusal.code not in REMOVED:
                raise
            yield from self._end(False)
            self._leave()
            return
        yield from self._end(True)
        self.positions[number] = offset

    def _add_partition(self, number: int) -> Answering:
        row = {f"V3AndBelow{key}": value for key, value in self._who.items()}
        row["V3AndBelowTopics"] = [{"Name": OUTPUT, "Partitions": [number]}]
        path = ("ResultsByTopicV3AndBelow", 0, "ResultsByPartition", 0, "PartitionErrorCode")
        yield from self._until(self._ask(To.TRANSACTIONS, "AddPartitionsToTxn", row), *path)

    def _produce(self, number: int, inputs: list[bytes]) -> Answering:
        sequence = self.sequences.get(number, 0)
        batch = build_batch(
            [Record(value=value, offset_delta=place, timestamp_delta=place) for place, value in enumerate(inputs)],
            base_timestamp=self.now,
            is_transactional=True,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=sequence,
        )
        data = [{"Name": OUTPUT, "PartitionData": [{"Index": number, "Records": batch.encode()}]}]
        row = {"TransactionalId": self.transactional_id, "Acks": -1, "TimeoutMs": 1_000, "TopicData": data}
        path = ("Responses", 0, "PartitionResponses", 0, "ErrorCode")
        yield from self._until(self._ask(To.LEADER, "Produce", row, number), *path)
        self.sequences[number] = sequence + len(inputs)

    def _send_offset(self, number: int, offset: int) -> Answering:
        part = {"PartitionIndex": number, "CommittedOffset": offset, "CommittedMetadata": ""}
        row = {**self._who, "GroupId": GROUP, "Topics": [{"Name": INPUT, "Partitions": [part]}]}
        if self.eos == 2:
            row |= {"MemberId": self.name, "GenerationIdOrMemberEpoch": self.member_epoch}
        path = ("Topics", 0, "Partitions", 0, "ErrorCode")
        yield from self._until(self._ask(To.GROUPS, "TxnOffsetCommit", row), *path)

    def _end(self, commit: bool) -> Answering:
        ask = self._ask(To.TRANSACTIONS, "EndTxn", {**self._who, "Committed": commit})
        answer = yield from self._until(ask, "ErrorCode")
        if self.transaction_version == 2:
            self.producer = answer["ProducerId"], answer["ProducerEpoch"]
            self.sequences.clear()
