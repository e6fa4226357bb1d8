"""The transaction coordinators: a machine for each transactional.id, its records, and its markers.

A request is an action of the machine ``TransactionCoordinator``. What it appends goes to ``__transaction_state`` at
once and is replicated at once, so that the client can be answered. Then the machine goes on by itself (markers,
completion) when :meth:`Coordinators.work` is called. Requests in between get CONCURRENT_TRANSACTIONS, as in Kafka.

Kafka: TransactionCoordinator, TransactionStateManager, TransactionMarkerChannelManager
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeVar

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, RecordBatch
from kafka_eos.formats.transaction_log import (
    DEFAULT_MAX_TIMEOUT_MS,
    TRANSACTION_VERSION_2,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
    decode_key,
    decode_value,
)
from kafka_eos.machines.leader import MAX_EPOCH
from kafka_eos.machines.producer_state import NO_PRODUCER_ID
from kafka_eos.machines.transaction_coordinator import (
    AT_REST,
    DEAD,
    INIT,
    NOTHING,
    ONGOING,
    PREPARED_STATES,
    Answer,
    Appending,
    Constants,
    TransactionCoordinator,
    TransactionMetadata,
    answer_with,
    forgotten,
    to_mark,
)
from kafka_eos.server.consumer_groups import by_topic
from kafka_eos.server.partitions import Leader

NO_TIMESTAMP = -1
PRODUCER_ID_BLOCK = 1000
"""The number of producer ids that are reserved at a time.    Kafka: ProducerIdsBlock."""

_ANY_NUMBER_OF = 2**62
_LARGEST_LONG = 2**63 - 1
_Noted = TypeVar("_Noted")


class ServedCoordinator(TransactionCoordinator):
    """The machine without the histories that only properties look at."""

    __slots__ = ()

    def noted(self, history: frozenset[_Noted], entry: _Noted) -> frozenset[_Noted]:  # noqa: ARG002 - it is forgotten
        """Forget the history."""
        return history

    def verification_error(self, producer_id: int, epoch: int, partition: str) -> ErrorCode:
        """Why the coordinator does not vouch for a partition that has to be in the transaction; ``NONE`` if it does."""
        return self.rules.verification_error(self.metadata, producer_id, epoch, partition)


class TransactionSettings(NamedTuple):
    """The operator's settings.

    Attributes:
        version: transaction.version of the cluster: 0, 1 or 2.
        max_timeout_ms: transaction.max.timeout.ms.
        id_expiration_ms: transactional.id.expiration.ms.
    """

    version: int = 2
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS
    id_expiration_ms: int = 604_800_000


class Partitions(Protocol):
    """The partitions to which coordinators write."""

    happened: Callable[..., None]

    def state_partition(self, transactional_id: str) -> Leader:
        """The partition of ``__transaction_state`` that a transactional.id belongs to."""

    def write_marker(
        self,
        partition: str,
        producer_id: int,
        epoch: int,
        commit: bool,
        coordinator_epoch: int,
        version: int,
        transactional_id: str | None = None,
    ) -> ErrorCode:
        """Write a marker to a partition, by its name."""


class ProducerIds:
    """Producer ids that nobody else has.

    Args:
        first: the first one that is free.
        reserve: called with the end of each block before one of its ids is given.
    """

    def __init__(self, first: int, reserve: Callable[[int], None]) -> None:
        self.next = self._end = first
        self._reserve = reserve

    def pass_over(self, producer_ids: Iterable[int]) -> None:
        """These ids are taken: by a broker that notes elsewhere which ones it gives, or by a client's own choice."""
        following = max(producer_ids, default=NO_PRODUCER_ID) + 1
        self.next = self._end = max(self._end, min(following, _LARGEST_LONG - PRODUCER_ID_BLOCK))

    def make_room(self) -> None:
        """Reserve the next block, if the present one is used up."""
        if self.next == self._end:
            self._end += PRODUCER_ID_BLOCK
            self._reserve(self._end)

    def allocate(self) -> int:
        """The next producer id."""
        self.make_room()
        self.next += 1
        return self.next - 1


@dataclass(slots=True, kw_only=True)
class TransactionalId:
    """A transactional.id at its coordinator; times in milliseconds since the epoch.

    Attributes:
        name: the id.
        machine: the machine that decides.
        timeout_ms: the timeout of its transactions, which the producer has asked for.
        start_ms: when the last transaction began, -1 before the first one.
        update_ms: when it was written last.
    """

    name: str
    machine: ServedCoordinator
    timeout_ms: int = 0
    start_ms: int = NO_TIMESTAMP
    update_ms: int = NO_TIMESTAMP

    @property
    def state(self) -> TransactionState:
        """The state of the transactional.id's transaction."""
        return self.machine.metadata.state


@dataclass(slots=True, kw_only=True)
class Coordinators:
    """The transaction coordinators of a cluster.

    Attributes:
        settings: the operator's settings.
        partitions: the partitions to which records and markers go.
        producer_ids: the source of producer ids.
        machine: the class of the machines.
        known: the state by transactional.id.
        loading: the partitions that their new leader has not read yet, and until when; those of other topics than
            ``__transaction_state`` do not matter.
        delayed: the time until which no marker of a transactional.id is written, in milliseconds since the epoch.
    """

    settings: TransactionSettings
    partitions: Partitions
    producer_ids: ProducerIds
    machine: type[ServedCoordinator] = ServedCoordinator
    known: dict[str, TransactionalId] = field(default_factory=dict)
    loading: dict[str, int] = field(default_factory=dict)
    delayed: dict[str, int] = field(default_factory=dict)
    _unfinished: dict[str, None] = field(default_factory=dict)
    _open: dict[str, None] = field(default_factory=dict)

    def _constants(self) -> Constants:
        nothing: frozenset[int] = frozenset()
        return Constants(
            producer_ids=nothing,
            max_epoch=MAX_EPOCH,
            partitions=frozenset(),
            versions=frozenset({1, 2} if self.settings.version == TRANSACTION_VERSION_2 else {1}),
            faults=frozenset({"timeout", "expiry", "failover"}),
            max_faults=_ANY_NUMBER_OF,
        )

    def _of(self, name: str) -> TransactionalId:
        """The state of a transactional.id; it is not remembered before something is written."""
        found = self.known.get(name)
        return found or TransactionalId(name=name, machine=self.machine.initial(self._constants()))

    def is_loading(self, name: str) -> bool:
        """A transactional.id has a new coordinator, which does not know it yet."""
        return bool(self.loading) and self.partitions.state_partition(name).name in self.loading

    # --- requests ----------------------------------------------------------------------------------------------------

    def init_producer_id(self, name: str | None, timeout_ms: int, producer_id: int, epoch: int, now: int) -> Answer:
        """Give a producer id and epoch.    Spec: TransactionCoordinator!HandleInitProducerId."""
        if name is None:
            return Answer(request=INIT, producer_id=self.producer_ids.allocate(), epoch=0)
        if not name:
            return answer_with(INIT, ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            return answer_with(INIT, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transactional = self._of(name)
        machine = self._with_producer_ids(transactional.machine)
        after = machine.handle_init_producer_id(producer_id, epoch)
        if after.appending.request == INIT:  # an open transaction that is fenced keeps its timeout
            transactional.timeout_ms = timeout_ms
        return self._take(transactional, after, now)

    def add_partitions(
        self, name: str, producer_id: int, epoch: int, partitions: Iterable[str], version: int, now: int
    ) -> ErrorCode:
        """Add partitions to a transaction.    Spec: TransactionCoordinator!HandleAddPartition."""
        transactional = self._of(name)
        for partition in partitions:
            after = transactional.machine.handle_add_partition(producer_id, epoch, partition, version)
            error = self._take(transactional, after, now).error
            if error is not ErrorCode.NONE:
                return error
        return ErrorCode.NONE

    def verify(self, name: str, producer_id: int, epoch: int, partition: str) -> ErrorCode:
        """Vouch for a partition that has to be in the transaction already.    Spec: Transactions!Verify."""
        return self._of(name).machine.verification_error(producer_id, epoch, partition)

    def end(self, name: str, producer_id: int, epoch: int, commit: bool, version: int, now: int) -> Answer:
        """End a transaction.    Spec: TransactionCoordinator!HandleEndTxn."""
        transactional = self._of(name)
        machine = self._with_producer_ids(transactional.machine)
        return self._take(transactional, machine.handle_end_txn(producer_id, epoch, commit, version), now)

    # --- what a coordinator does by itself ---------------------------------------------------------------------------

    def time_out(self, now: int) -> None:
        """Begin to abort the transactions that have been open for too long."""
        for transactional in [self.known[name] for name in self._open]:
            too_long = transactional.start_ms + transactional.timeout_ms < now
            if too_long and not self.is_loading(transactional.name):
                self.time_out_now(transactional, now)

    def time_out_now(self, transactional: TransactionalId, now: int) -> None:
        """Begin to abort an open transaction.    Spec: TransactionCoordinator!TimeOut."""
        name, producer_id = transactional.name, transactional.machine.metadata.producer_id
        node = self.partitions.state_partition(name).node
        self.partitions.happened("TimeOut", node, transactional_id=name, producer_id=producer_id)
        self._take(transactional, transactional.machine.time_out(), now)

    def expire(self, now: int) -> None:
        """Forget what has not been used for long.    Spec: TransactionCoordinator!ExpireTransactionalId."""
        for transactional in list(self.known.values()):
            long_ago = transactional.update_ms + self.settings.id_expiration_ms <= now
            if long_ago and transactional.state in AT_REST and not self.is_loading(transactional.name):
                self._take(transactional, transactional.machine.expire_transactional_id(), now)
                del self.known[transactional.name]

    def fail_over(self, leads: Callable[[str], bool]) -> list[str]:
        """New coordinators load the transactional.ids that belong to them.    Spec: TransactionCoordinator!Failover.

        Returns:
            These transactional.ids.
        """
        moved = [transactional for transactional in self.known.values() if leads(transactional.name)]
        for transactional in moved:
            transactional.machine = transactional.machine.failover(0)
            self._sort(transactional)
        return [transactional.name for transactional in moved]

    @property
    def has_work(self) -> bool:
        """There are markers to write, or transactions to complete."""
        return bool(self._unfinished)

    def work(self, now: int) -> None:
        """Go on with what clients do not wait for: fences, markers, completions."""
        names, self._unfinished = self._unfinished, {}
        self.delayed = {name: until for name, until in self.delayed.items() if until > now}
        for name in names:
            if name in self.delayed or self.is_loading(name):
                self._unfinished[name] = None
            else:
                self._finish(self.known[name], now)

    def _finish(self, transactional: TransactionalId, now: int) -> None:
        """Spec: TransactionCoordinator!WriteMarker, CompleteTransaction."""
        machine = transactional.machine
        for partition in sorted(machine.to_mark):
            metadata = machine.metadata
            error = self.partitions.write_marker(
                partition,
                metadata.producer_id,
                metadata.epoch,
                machine.marker_commits(partition),
                self.partitions.state_partition(transactional.name).leader_epoch,
                metadata.version,
                transactional.name,
            )
            if error is ErrorCode.NONE:
                machine = machine.write_marker(partition)
        transactional.machine = machine
        if machine.may_complete():
            self._take(transactional, machine.complete_transaction(), now)

    # --- between machine and log -------------------------------------------------------------------------------------

    def _with_producer_ids(self, machine: ServedCoordinator) -> ServedCoordinator:
        self.producer_ids.make_room()
        return replace(machine, allocated=self.producer_ids.next)

    def _take(self, transactional: TransactionalId, after: ServedCoordinator, now: int) -> Answer:
        """Take an action's outcome over: what it appends is written, then it is answered.

        A fence of InitProducerId has two steps, and the client waits for the second one.
        """
        self.producer_ids.next = max(self.producer_ids.next, after.allocated)
        if after.fencing != NOTHING:
            after = self._with_producer_ids(after).abort_fenced()
            self.producer_ids.next = max(self.producer_ids.next, after.allocated)
        if not after.is_idle():
            self._write(transactional, after.appending, now)
            after = after.append_is_replicated()
            self.known[transactional.name] = transactional
        transactional.machine = after
        self._sort(transactional)
        return after.answer

    def _sort(self, transactional: TransactionalId) -> None:
        """Put a transactional.id with the open ones, or with the unfinished ones."""
        if transactional.state is ONGOING:
            self._open[transactional.name] = None
        else:
            self._open.pop(transactional.name, None)
        if transactional.state in PREPARED_STATES:
            self._unfinished[transactional.name] = None

    def _write(self, transactional: TransactionalId, appending: Appending, now: int) -> None:
        record = appending.record
        begins = record.state is ONGOING or record.state in PREPARED_STATES  # an abort of nothing begins, too
        if begins and transactional.state in AT_REST:
            transactional.start_ms = now
        elif appending.request == INIT:
            transactional.start_ms = NO_TIMESTAMP
        transactional.update_ms = now
        key = TransactionLogKey(transactional_id=transactional.name).encode()
        value = None if record.state is DEAD else self._value(transactional, record).encode()
        self.partitions.state_partition(transactional.name).append_records([Record(key=key, value=value)], now)

    def _value(self, transactional: TransactionalId, record: TransactionMetadata) -> TransactionLogValue:
        """A record of the log.    Kafka: TransactionLog.valueToBytes."""
        value = TransactionLogValue(
            version=min(self.settings.version, 1),
            producer_id=record.producer_id,
            producer_epoch=record.epoch,
            transaction_timeout_ms=transactional.timeout_ms,
            transaction_status=record.state,
            transaction_partitions=None if record.state is TransactionState.EMPTY else _by_topic(record.partitions),
            transaction_last_update_timestamp_ms=transactional.update_ms,
            transaction_start_timestamp_ms=transactional.start_ms,
        )
        if self.settings.version == 0:  # this format has no place for the rest
            return value
        return replace(
            value,
            previous_producer_id=record.previous_producer_id,
            next_producer_id=record.next_producer_id,
            client_transaction_version=record.version if record.version >= TRANSACTION_VERSION_2 else 0,
        )

    def recover(self, batches: Iterable[RecordBatch]) -> None:
        """Restore transactional.ids from a partition of ``__transaction_state``: the last record of each counts.

        Kafka: TransactionStateManager.loadTransactionMetadata
        """
        for batch in batches:
            for record in batch.records():
                if record.key is None:
                    continue
                name, value = decode_key(record.key).transactional_id, decode_value(record.value)
                if value is None:
                    self.known.pop(name, None)
                    continue
                self.known[name] = self._loaded(name, value)
        for transactional in self.known.values():
            self._sort(transactional)

    def known_producer_ids(self) -> Iterator[int]:
        """The producer ids that transactional.ids have, had, or will have."""
        for transactional in self.known.values():
            stored = transactional.machine.durable
            yield from (stored.producer_id, stored.previous_producer_id, stored.next_producer_id)

    def _loaded(self, name: str, value: TransactionLogValue) -> TransactionalId:
        machine = self.machine.initial(self._constants())
        record = replace(
            forgotten(0),
            producer_id=value.producer_id,
            epoch=value.producer_epoch,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            state=value.transaction_status,
            partitions=frozenset(f"{topic}-{number}" for topic, number in value.partitions()),
            version=max(value.client_transaction_version, 1),
        )
        metadata = machine.rules.loaded(record)
        return TransactionalId(
            name=name,
            machine=replace(machine, metadata=metadata, durable=record, to_mark=to_mark(metadata)),
            timeout_ms=value.transaction_timeout_ms,
            start_ms=value.transaction_start_timestamp_ms,
            update_ms=value.transaction_last_update_timestamp_ms,
        )


def _by_topic(partitions: frozenset[str]) -> tuple[TopicPartitions, ...]:
    return tuple(
        TopicPartitions(topic=topic, partition_ids=tuple(each)) for topic, each in by_topic(partitions).items()
    )
