"""The traffic of a cluster, one slice of time after another: the batches that each log appends, in order.

Each transactional client runs one transaction after the other, over several partitions. Idempotent producers write
without transactions, and groups commit offsets without transactions. A slice is :data:`SLOTS` slots of time. The
clients of each coordinator have their own phase, so that transactions reach from one slice into the next.

All transactions of a slice are drawn at once. Little is carried from slice to slice: each client's epoch and its
group's offset, and each producer's next sequence on each partition.

A client of transaction version 1 keeps its epoch and continues its sequences until its coordinator aborts one of its
transactions; then it must call InitProducerId. A client of version 2 gets the next epoch at the end of each transaction
(KIP-890). Some clients call InitProducerId now and then. When the epochs of a producer id are used up, the client gets
the next producer id: ``divmod(number of rises, EPOCHS)`` gives the number of the producer id and its epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import NO_TIMESTAMP, TRANSACTION_VERSION_2, TransactionState
from kafka_eos_checks.audit.rules.coordinator import LAST_EPOCH
from kafka_eos_checks.audit.segments.headers import TRANSACTIONAL_MASK, Ints
from kafka_eos_checks.lab.generate.batches import (
    FIRST_PRODUCER,
    FIRST_TIMESTAMP,
    MARKER,
    NO_DECISION,
    NO_EPOCH,
    NO_SEQUENCE,
    NO_TRANSACTION,
    Batches,
    Columns,
    columns_of,
)
from kafka_eos_checks.lab.generate.violations import Violations

SLOTS = 1 << 16  # of a slice; a slot fits 16 bits, which numpy sorts fastest
SLOTS_IN_MS = 4
EPOCHS = LAST_EPOCH  # a producer id has data with the epochs 0 to 32766; only its last marker has 32767
SLICE_BATCHES = 1 << 20  # of all logs in a slice, about
PARTITION_BATCHES = 1 << 15  # smallest number for a partition in a slice, so that row groups are not too small
LARGEST_SLICE = 1 << 22
HISTORY_SLICE = 1 << 15  # SLICE_BATCHES with a history, whose events are held in memory until they are in order
PHASE = 0.1  # of a slice: largest delay of a coordinator's clients; it is replaced between two slices

# Frequencies, each as a share of what its comment names.
ABORTED, GROWING, WITHOUT_DATA, EMPTY, WRITTEN_AGAIN = 0.1, 0.3, 0.03, 0.01, 0.005  # of transactions
FENCED = 0.2  # of aborted transactions of version 1: the coordinator aborts them, with the next epoch
BEGUN_ANEW = 0.02  # of transactions: InitProducerId comes before them
CONSUMING = 0.5  # of clients: they commit offsets in each transaction
RAISED = 0.1  # of idempotent producers in a slice
COMMITS = 0.1  # number of offsets committed outside of transactions, as a share of the transactions
REPLACED = 0.2  # of coordinators in a slice

_S = TransactionState
Column = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The size of a cluster, and the mix of its clients' requests.

    Attributes:
        transactions: number of transactions.
        batches: number of batches with data of all partitions, about.
        partitions: number of partitions of the topic.
        spread: number of partitions of a transaction.
        clients: number of transactional ids.
        producers: number of idempotent producers of each partition.
        plain: share of the batches that idempotent producers write.
        records: smallest and largest number of records in a batch.
        aborted: share of aborted transactions.
        version_2: share of clients of transaction version 2.
        hot_partition: share of the transactions that begin on partition 0, besides its part of the others.
        hot_client: share of the transactions that client 0 runs, besides its part of the others.
        state_partitions: number of partitions of ``__transaction_state``.
        offset_partitions: number of partitions of ``__consumer_offsets``.
        slice_batches: number of batches of all logs in a slice of time, about; 0 for the default.
        seed: seed of all random choices.
    """

    transactions: int
    batches: int
    partitions: int = 8
    spread: int = 3
    clients: int = 100
    producers: int = 5
    plain: float = 0.1
    records: tuple[int, int] = (1, 3)
    aborted: float = ABORTED
    version_2: float = 0.5
    hot_partition: float = 0.0
    hot_client: float = 0.0
    state_partitions: int = 4
    offset_partitions: int = 4
    slice_batches: int = 0
    seed: int = 0

    @property
    def slices(self) -> int:
        """Number of slices of time."""
        size = self.slice_batches or min(max(SLICE_BATCHES, PARTITION_BATCHES * self.partitions), LARGEST_SLICE)
        rows = self.batches + (self.spread + 1) * self.transactions
        return max(1, -(-rows // size))

    @property
    def run_batches(self) -> float:
        """Average number of data batches of a transaction on one partition."""
        data = self.batches * (1 - self.plain)
        return data / max(1.0, self.transactions * self.spread * (1 - WITHOUT_DATA) * (1 - EMPTY))

    @property
    def first_client(self) -> int:
        """The lowest producer id of a transactional client; idempotent producers have lower ones."""
        return FIRST_PRODUCER + self.partitions * self.producers

    @property
    def producer_ids(self) -> int:
        """Upper limit of the number of producer ids, which start at :data:`FIRST_PRODUCER`."""
        of_one = -(-self.transactions // self.clients) + int(self.hot_client * self.transactions)
        rises = 2 * of_one + 1
        return self.partitions * self.producers + self.clients * (rises // EPOCHS + 1)


@dataclass(frozen=True, slots=True)
class StateBatches(Batches):
    """Batches of ``__transaction_state``, each with one record.

    Attributes:
        client: number of the client.
        status: :class:`TransactionState`.
        value_producer: producer id of the value.
        value_epoch: epoch of the value.
        previous_producer: previous producer id of the value.
        next_producer: next producer id of the value, -1 for none.
        version: transaction version of the value.
        listed: number of the topic's partitions in the value; -1 for null.
        offsets: the partition of ``__consumer_offsets`` in the value, -1 for none.
        partitions: partitions of the transaction, shape (n, spread); the value names the first ``listed``.
        started_ms: when the transaction began, -1 for none.
    """

    client: Ints
    status: Ints
    value_producer: Ints
    value_epoch: Ints
    previous_producer: Ints
    next_producer: Ints
    version: Ints
    listed: Ints
    offsets: Ints
    partitions: Ints
    started_ms: Ints


@dataclass(frozen=True, slots=True)
class CommitBatches(Batches):
    """Batches of ``__consumer_offsets``: markers, and commits of one offset each.

    Attributes:
        group: number of the group.
        source: number of the input partition whose offset is committed.
        committed: the offset.
    """

    group: Ints
    source: Ints
    committed: Ints


@dataclass(frozen=True, slots=True)
class Runs(Columns):
    """Consecutive batches of a producer on a partition; each column has shape (n,).

    Attributes:
        partition: number.
        writer: number of the client; idempotent producers are numbered after the clients.
        producer_id: the producer id of the batches.
        producer_epoch: the producer epoch of the batches.
        count: number of batches.
        begin: first slot.
        end: one past the last slot.
        decision: the decision of a marker; each marker is a run of its own.
        coordinator_epoch: the coordinator epoch of a marker.
        attributes: the attributes of the batches.
        transaction: see :class:`Batches`; of the first batch.
        planted: see :class:`Batches`.
    """

    partition: Ints
    writer: Ints
    producer_id: Ints
    producer_epoch: Ints
    count: Ints
    begin: NDArray[np.float64]
    end: NDArray[np.float64]
    decision: Ints
    coordinator_epoch: Ints
    attributes: Ints
    transaction: Ints
    planted: Ints


@dataclass(frozen=True, slots=True)
class Transactions(Columns):
    """The transactions of a slice, ordered by client and time; each column has shape (n,) or (n, spread).

    Attributes:
        client: number of the client.
        rises: how often the client's epoch had been raised when the transaction began.
        version_2: whether the client is of transaction version 2.
        fenced: whether the coordinator aborted it, because of a timeout or of another instance.
        raises: whether its end raises the client's epoch.
        begun_anew: whether the client called InitProducerId right before.
        was_known: whether the client had called InitProducerId before that.
        empty: whether it ended without a partition.
        decision: COMMIT or ABORT.
        partitions: partitions of the transaction, shape (n, spread).
        counts: number of batches with data on each, shape (n, spread).
        group: number of the group that commits offsets in it, -1 for none.
        offset: the offset that the group commits.
        committed_before: the group's committed offset when the transaction began.
        again: mask of the partitions on which its marker is written twice, shape (n, spread + 1); the last is the
            group's.
        coordinator_epoch: epoch of its coordinator.
        initialised: slot of InitProducerId.
        begin: slot of its begin.
        prepared: slot of its decision.
        completed: slot of its end.
        planted: code of the violation planted in it, see :mod:`violations`; 0 for none.
        spoilt: index, among its partitions, of the partition with the violation.
    """

    client: Ints
    rises: Ints
    version_2: NDArray[np.bool_]
    fenced: NDArray[np.bool_]
    raises: NDArray[np.bool_]
    begun_anew: NDArray[np.bool_]
    was_known: NDArray[np.bool_]
    empty: NDArray[np.bool_]
    decision: Ints
    partitions: Ints
    counts: Ints
    group: Ints
    offset: Ints
    committed_before: Ints
    again: NDArray[np.bool_]
    coordinator_epoch: Ints
    initialised: NDArray[np.float64]
    begin: NDArray[np.float64]
    prepared: NDArray[np.float64]
    completed: NDArray[np.float64]
    planted: Ints
    spoilt: Ints


@dataclass(slots=True)
class Stream:
    """Batches that are waiting to be appended to one log, in order of slots, and within a slot in order of arrival.

    Attributes:
        later: the batches due in later slices, and their slots counted from the start of the next slice.
    """

    later: tuple[Ints, Batches] | None = None

    def due(self, slots: Ints, batches: Batches) -> Batches:
        """Add new batches; return those that are due in this slice, also the ones that waited."""
        if self.later is not None:
            slots = np.concatenate((self.later[0], slots))
            batches = self.later[1].followed_by(batches)
        now = slots < SLOTS
        rest = np.flatnonzero(~now)
        self.later = (slots[rest] - SLOTS, batches.take(rest)) if len(rest) else None
        here = np.flatnonzero(now)
        return batches.take(here[np.argsort(slots[here].astype(np.uint16), kind="stable")])


class Slice(NamedTuple):
    """The batches that each log appends in a slice of time.

    Attributes:
        number: number of the slice.
        transactions: the transactions that begin in it.
        first_number: number of the first transaction on its first partition, see :class:`Batches`; the others follow.
        topic: the batches of each partition of the topic.
        states: the batches of each partition of ``__transaction_state``.
        commits: the batches of each partition of ``__consumer_offsets``.
    """

    number: int
    transactions: Transactions
    first_number: int
    topic: Iterator[Batches]
    states: Iterator[StateBatches]
    commits: Iterator[CommitBatches]


@dataclass(slots=True)
class _Memory:
    """State carried from slice to slice; arrays of shape (clients,) or (partitions, writers)."""

    rises: Ints
    known: NDArray[np.bool_]
    fenced: NDArray[np.bool_]
    offset: Ints
    key: Ints
    sequence: Ints
    epoch: Ints
    coordinator_epoch: Ints
    plain_offset: Ints
    numbers: int = 0
    commits: int = 0
    done: int = 0


@dataclass(slots=True)
class Traffic:
    """Generator of a workload's traffic.

    Args:
        workload: the size of the cluster and the mix of requests.
        coordinator_of: partition of ``__transaction_state`` of each client, shape (clients,).
        group_on: partition of ``__consumer_offsets`` of each group, shape (2 * clients,): first the clients' groups,
            which commit in transactions, then as many others.
        violations: the violations to plant; None for none.
    """

    workload: Workload
    coordinator_of: Ints
    group_on: Ints
    violations: Violations | None = None
    _rng: np.random.Generator = field(init=False)
    _memory: _Memory = field(init=False)
    _phase: NDArray[np.float64] = field(init=False)
    _streams: dict[str, list[Stream]] = field(init=False)

    def __post_init__(self) -> None:
        own = self.workload
        self._rng = np.random.default_rng(own.seed)
        writers = own.clients + own.producers
        self._memory = _Memory(
            rises=np.zeros(own.clients, np.int64),
            known=np.zeros(own.clients, np.bool_),
            fenced=np.zeros(own.clients, np.bool_),
            offset=np.zeros(own.clients, np.int64),
            key=np.full((own.partitions, writers), -1),
            sequence=np.zeros((own.partitions, writers), np.int64),
            epoch=np.ones((own.partitions, own.producers), np.int64),  # so that a stale epoch 0 exists from the start
            coordinator_epoch=np.ones(own.state_partitions, np.int64),
            plain_offset=np.zeros(own.clients, np.int64),
        )
        self._phase = (self._rng.random(own.state_partitions) * PHASE * SLOTS)[self.coordinator_of]
        sizes = {"topic": own.partitions, "states": own.state_partitions, "commits": own.offset_partitions}
        self._streams = {name: [Stream() for _ in range(size)] for name, size in sizes.items()}

    def slices(self) -> Iterator[Slice]:
        """Yield the slices in order. The iterators of a slice must be used up before the next slice is requested."""
        number = 0
        while number < self.workload.slices or self._is_left():
            transactions = self._transactions(number)
            yield Slice(
                number,
                transactions,
                self._memory.numbers,
                self._topic(number, transactions),
                self._states(number, transactions),
                self._commits(number, transactions),
            )
            number += 1

    def _is_left(self) -> bool:
        return any(stream.later is not None for streams in self._streams.values() for stream in streams)

    # ---- transactions

    def _transactions(self, number: int) -> Transactions:
        own, rng, memory = self.workload, self._rng, self._memory
        share, rest = divmod(own.transactions, own.slices)
        total = share + (number < rest) if number < own.slices else 0
        hot = int(total * own.hot_client)
        each, more = divmod(total - hot, own.clients)
        counts = np.full(own.clients, each)
        counts[0] += hot
        counts[(memory.done + np.arange(more)) % own.clients] += 1  # the clients whose turn it is
        memory.done += more
        client = np.repeat(np.arange(own.clients), counts)
        place = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
        is_first = place == 0

        is_version_2 = _spread_out(own.version_2, own.clients)[client]
        was_known = memory.known[client] | ~is_first
        decision = np.where(rng.random(total) < own.aborted, int(ControlType.ABORT), int(ControlType.COMMIT))
        has_epochs = (memory.rises % EPOCHS + 2 * counts + 2 < EPOCHS)[client]
        fenced = (decision == ControlType.ABORT) & ~is_version_2 & has_epochs & (rng.random(total) < FENCED)
        raises = is_version_2 | fenced
        after_fenced = np.concatenate(([False], fenced[:-1]))[:total] & ~is_first | memory.fenced[client] & is_first
        memory.fenced[client] = fenced  # of each client's last transaction
        begun_anew = (rng.random(total) < BEGUN_ANEW) | ~was_known | after_fenced
        memory.known[client] = True
        raised_before = begun_anew & was_known
        rise = raised_before.astype(np.int64) + raises
        rises = memory.rises[client] + _since(np.cumsum(rise) - rise, is_first) + raised_before
        memory.rises += np.bincount(client, rise, own.clients).astype(np.int64)

        empty = (rng.random(total) < EMPTY) & is_version_2
        decision[empty] = ControlType.ABORT
        first = rng.integers(0, own.partitions, total)
        if own.hot_partition:
            first[rng.random(total) < own.hot_partition] = 0
        step = rng.integers(1, max(1, (own.partitions - 1) // max(1, own.spread - 1)), total, endpoint=True)
        partitions = (first[:, None] + step[:, None] * np.arange(own.spread)) % own.partitions
        most = max(1, round(2 * own.run_batches) - 1)
        data = rng.integers(1, most, (total, own.spread), endpoint=True)
        data[rng.random(data.shape) < WITHOUT_DATA] = 0
        data[empty] = 0

        consumes = _spread_out(CONSUMING, own.clients, 1)[client] & ~empty
        read = data.sum(axis=1) * consumes  # each batch is the output of one input
        counted = read * (decision == ControlType.COMMIT)
        committed_before = memory.offset[client] + _since(np.cumsum(counted) - counted, is_first)
        memory.offset += np.bincount(client, counted, own.clients).astype(np.int64)

        memory.coordinator_epoch += rng.random(own.state_partitions) < REPLACED
        width = SLOTS / np.maximum(counts, 1)[client]
        start = self._phase[client] + width * place
        found = Transactions(
            client=client,
            rises=rises,
            version_2=is_version_2,
            fenced=fenced,
            raises=raises,
            begun_anew=begun_anew,
            was_known=was_known,
            empty=empty,
            decision=decision,
            partitions=partitions,
            counts=data,
            group=np.where(consumes, client, -1),
            offset=committed_before + read,
            committed_before=committed_before,
            again=rng.random((total, own.spread + 1)) < WRITTEN_AGAIN,
            coordinator_epoch=memory.coordinator_epoch[self.coordinator_of[client]],
            initialised=start,
            begin=start + width * (0.02 + 0.13 * rng.random(total)),
            prepared=start + width * (0.6 + 0.3 * rng.random(total)),
            completed=start + width * 0.97,
            planted=np.zeros(total, np.int64),
            spoilt=np.zeros(total, np.int64),
        )
        if self.violations is None:
            return found
        return self.violations.choose(number, found, _ms(number, found.prepared), _ms(number, found.completed))

    def producer(self, client: Ints, rises: Ints) -> tuple[Ints, Ints]:
        """Producer id and epoch of a client after so many rises of its epoch."""
        rotations, epoch = np.divmod(rises, EPOCHS)
        return self.workload.first_client + client + self.workload.clients * rotations, epoch

    # ---- the topic

    def _topic(self, number: int, transactions: Transactions) -> Iterator[Batches]:
        runs = self._runs(transactions)
        plain = self._plain_runs(number)
        runs = runs.followed_by(plain)
        runs = runs.take(runs.count > 0)
        runs = runs.take(np.argsort(runs.partition.astype(np.uint16), kind="stable"))
        is_data = runs.decision == NO_DECISION
        ends = np.cumsum(runs.count)
        least, most = self.workload.records
        records = self._rng.integers(least, most, int(ends[-1]) if len(ends) else 0, endpoint=True)
        records[(ends - 1)[~is_data]] = 1
        sequence = self._sequences(runs, ends, records)
        first_runs = np.searchsorted(runs.partition, np.arange(self.workload.partitions + 1))
        first_rows = np.concatenate(([0], ends))[first_runs]
        for partition, stream in enumerate(self._streams["topic"]):
            own = slice(first_runs[partition], first_runs[partition + 1])
            rows = slice(first_rows[partition], first_rows[partition + 1])
            slots, batches = _expanded(number, runs.take(own), records[rows], sequence[rows])
            due = stream.due(slots, batches if self.violations is None else self.violations.in_data(batches))
            yield due if self.violations is None else self.violations.in_batches(due, number, partition)

    def _runs(self, transactions: Transactions) -> Runs:
        """Return three runs for each transaction and partition: data, marker, and the marker written again."""
        own = transactions
        shape = (len(own), self.workload.spread, 3)
        producer, epoch = self.producer(own.client, own.rises)
        has_data = own.counts > 0
        first = self._memory.numbers
        self._memory.numbers += has_data.size
        every = np.arange(first, self._memory.numbers).reshape(has_data.shape)
        numbers = np.where(has_data, every, NO_TRANSACTION)
        marked = np.broadcast_to(~own.empty[:, None], has_data.shape)
        again = marked & own.again[:, :-1]
        delay = (own.completed - own.prepared)[:, None] * 0.5 * self._rng.random(has_data.shape)
        at = own.prepared[:, None] + delay
        late = at + (own.completed[:, None] - at) * 0.5
        begin = np.broadcast_to(own.begin[:, None], has_data.shape)
        prepared = np.broadcast_to(own.prepared[:, None], has_data.shape)
        marker_epoch = epoch + own.raises

        def flat(*each: Column) -> Column:
            wide = [values[:, None] if values.ndim == 1 else values for values in each]
            return np.stack([np.broadcast_to(values, shape[:2]) for values in wide], axis=2).reshape(-1)

        def same(values: Column) -> Column:
            wide = values[:, :, None] if values.ndim == 2 else values[:, None, None]
            return np.broadcast_to(wide, shape).reshape(-1)

        nothing = np.full(1, NO_DECISION)
        found = Runs(
            partition=same(own.partitions),
            writer=same(own.client),
            producer_id=same(producer),
            producer_epoch=flat(epoch, marker_epoch, marker_epoch),
            count=flat(own.counts, marked, again).astype(np.int64),
            begin=flat(begin, at, late),
            end=flat(prepared, at, late),
            decision=flat(nothing, own.decision, own.decision),
            coordinator_epoch=flat(nothing, own.coordinator_epoch, own.coordinator_epoch),
            attributes=flat(np.full(1, TRANSACTIONAL_MASK), np.full(1, MARKER), np.full(1, MARKER)),
            transaction=flat(numbers, numbers, np.full(1, NO_TRANSACTION)),
            planted=np.zeros(3 * has_data.size, np.int64),
        )
        return found if self.violations is None else self.violations.in_runs(found, own)

    def _plain_runs(self, number: int) -> Runs:
        """Return one run for each idempotent producer."""
        own, memory = self.workload, self._memory
        shape = (own.partitions, own.producers)
        size = own.partitions * own.producers
        memory.epoch += self._rng.random(shape) < RAISED
        due = own.batches * own.plain / own.slices / size if number < own.slices and size else 0.0
        count = np.floor(due * (0.5 + self._rng.random(size)) + self._rng.random(size)).astype(np.int64)
        partition, place = np.divmod(np.arange(size), max(1, own.producers))
        return columns_of(
            Runs,
            size,
            partition=partition,
            writer=own.clients + place,
            producer_id=FIRST_PRODUCER + np.arange(size),
            producer_epoch=memory.epoch.reshape(-1),
            count=count,
            begin=np.zeros(size),
            end=np.full(size, float(SLOTS)),
        )

    def _sequences(self, runs: Runs, ends: Ints, records: Ints) -> Ints:
        """The first sequence of each batch; sequences of a producer id and epoch on a partition are consecutive."""
        memory = self._memory
        is_data = runs.decision == NO_DECISION
        totals = np.cumsum(records)
        before = np.concatenate(([0], totals))
        own = np.where(is_data, before[ends] - before[ends - runs.count], 0)  # records of each run with data
        key = runs.producer_id << 16 | runs.producer_epoch
        begins = np.ones(len(runs), np.bool_)
        begins[1:] = (runs.partition[1:] != runs.partition[:-1]) | (key[1:] != key[:-1])
        known = memory.key[runs.partition, runs.writer] == key
        carried = memory.sequence[runs.partition, runs.writer] * known
        first = carried + _since(np.cumsum(own) - own, begins)
        memory.key[runs.partition, runs.writer] = key
        memory.sequence[runs.partition, runs.writer] = first + own
        shift = np.where(is_data, first - before[ends - runs.count], 0)
        sequence: Ints = before[:-1] + np.repeat(shift, runs.count)
        sequence[(ends - 1)[~is_data]] = NO_SEQUENCE
        return sequence

    # ---- the coordinators' logs

    def _states(self, number: int, transactions: Transactions) -> Iterator[StateBatches]:
        slots, batches = self._state_batches(number, transactions)
        where = self.coordinator_of[batches.client]
        for partition, stream in enumerate(self._streams["states"]):
            own = np.flatnonzero(where == partition)
            due = stream.due(slots[own], batches.take(own))
            assert isinstance(due, StateBatches), "a stream has one kind"
            yield due

    def _state_batches(self, number: int, transactions: Transactions) -> tuple[Ints, StateBatches]:
        """Return the records EMPTY, ONGOING, ONGOING, PREPARE and COMPLETE of each transaction that has them."""
        own, spread = transactions, self.workload.spread
        producer, epoch = self.producer(own.client, own.rises)
        following, next_epoch = self.producer(own.client, own.rises + own.raises)
        rotates = following != producer
        before = np.where(own.was_known, self.producer(own.client, own.rises - 1)[0], producer)  # of InitProducerId
        commits = own.decision == ControlType.COMMIT
        ongoing = ~own.empty
        grows = ongoing & (self._rng.random(len(own)) < GROWING) & (spread > 1)
        offsets = np.where(own.group >= 0, self.group_on[own.group], -1)
        nothing = np.full(len(own), -1)
        listed = np.where(own.empty, 0, spread)
        version = np.where(own.version_2, TRANSACTION_VERSION_2, 0)
        started = _ms(number, np.where(own.empty, own.prepared, own.begin))
        halfway = (own.begin + own.prepared) / 2

        def rows(*each: Column) -> Column:
            return np.stack([np.broadcast_to(values, len(own)) for values in each], axis=1).reshape(-1)

        there = rows(own.begun_anew, grows, ongoing, np.full(1, True), np.full(1, True))
        chosen = np.flatnonzero(there)
        slots = rows(own.initialised, own.begin, np.where(grows, halfway, own.begin), own.prepared, own.completed)
        prepare = np.where(commits, int(_S.PREPARE_COMMIT), int(_S.PREPARE_ABORT))
        complete = np.where(commits, int(_S.COMPLETE_COMMIT), int(_S.COMPLETE_ABORT))
        ongoing_status = np.full(1, int(_S.ONGOING))
        batches = columns_of(
            StateBatches,
            5 * len(own),
            timestamp=_ms(number, slots),
            client=np.repeat(own.client, 5),
            leader_epoch=np.repeat(own.coordinator_epoch, 5),
            status=rows(np.full(1, int(_S.EMPTY)), ongoing_status, ongoing_status, prepare, complete),
            value_producer=rows(producer, producer, producer, producer, following),
            value_epoch=rows(epoch, epoch, epoch, epoch + own.raises, next_epoch),
            previous_producer=rows(before, producer, producer, producer, producer),
            next_producer=rows(nothing, nothing, nothing, np.where(rotates, following, -1), nothing),
            version=rows(np.zeros(1, np.int64), version, version, version, version),
            listed=rows(nothing, np.ones(1, np.int64), listed, listed, np.zeros(1, np.int64)),
            offsets=rows(nothing, nothing, offsets, offsets, nothing),
            partitions=np.repeat(own.partitions, 5, axis=0),
            started_ms=rows(np.full(1, NO_TIMESTAMP), started, started, started, started),
        )
        if self.violations is not None:
            batches, left = self.violations.in_states(batches, own)
            chosen = np.flatnonzero(there & left)
        return slots[chosen].astype(np.int64), batches.take(chosen)

    # ---- the groups' logs

    def _commits(self, number: int, transactions: Transactions) -> Iterator[CommitBatches]:
        slots, batches = self._commit_batches(number, transactions)
        outside_slots, outside = self._commits_outside(number)
        slots, batches = np.concatenate((slots, outside_slots)), batches.followed_by(outside)
        where = self.group_on[batches.group]
        for partition, stream in enumerate(self._streams["commits"]):
            own = np.flatnonzero(where == partition)
            due = stream.due(slots[own], batches.take(own))
            assert isinstance(due, CommitBatches), "a stream has one kind"
            yield due

    def _commit_batches(self, number: int, transactions: Transactions) -> tuple[Ints, CommitBatches]:
        """Return the commit, the marker and the repeated marker of each transaction with offsets."""
        own = transactions.take(transactions.group >= 0)
        producer, epoch = self.producer(own.client, own.rises)
        numbers = np.arange(self._memory.commits, self._memory.commits + len(own))
        self._memory.commits += len(own)
        marker_epoch = epoch + own.raises
        at = own.prepared + (own.completed - own.prepared) * 0.3 * self._rng.random(len(own))

        def rows(*each: Column | int) -> Column:
            return np.stack([np.broadcast_to(values, len(own)) for values in each], axis=1).reshape(-1)

        slots = rows(own.begin + (own.prepared - own.begin) * 0.9, at, (at + own.completed) / 2)
        batches = columns_of(
            CommitBatches,
            3 * len(own),
            timestamp=_ms(number, slots),
            producer_id=np.repeat(producer, 3),
            producer_epoch=rows(epoch, marker_epoch, marker_epoch),
            base_sequence=rows(0, NO_SEQUENCE, NO_SEQUENCE),
            attributes=rows(TRANSACTIONAL_MASK, MARKER, MARKER),
            decision=rows(NO_DECISION, own.decision, own.decision),
            coordinator_epoch=rows(NO_EPOCH, own.coordinator_epoch, own.coordinator_epoch),
            transaction=rows(numbers, numbers, NO_TRANSACTION),
            group=np.repeat(own.group, 3),
            source=np.repeat(own.client % self.workload.partitions, 3),
            committed=np.repeat(own.offset, 3),
        )
        if self.violations is not None:
            batches = self.violations.in_commits(batches, own)
        chosen = np.flatnonzero(rows(True, True, own.again[:, -1]))
        return slots[chosen].astype(np.int64), batches.take(chosen)

    def _commits_outside(self, number: int) -> tuple[Ints, CommitBatches]:
        """Commits of offsets outside of transactions, by groups that do nothing else."""
        own, rng = self.workload, self._rng
        count = int(own.transactions * COMMITS / own.slices) + 1 if number < own.slices else 0
        slots = np.sort(rng.integers(0, SLOTS, count))
        group = rng.integers(0, own.clients, count)
        order = np.argsort(group, kind="stable")
        steps = rng.integers(0, 10, count)
        by_group = np.concatenate(([True], np.diff(group[order]) != 0))[:count]
        committed = np.empty(count, np.int64)
        committed[order] = self._memory.plain_offset[group[order]] + _since(np.cumsum(steps[order]), by_group)
        np.maximum.at(self._memory.plain_offset, group, committed)
        batches = columns_of(
            CommitBatches,
            count,
            timestamp=_ms(number, slots.astype(np.float64)),
            group=own.clients + group,
            source=group % own.partitions,
            committed=committed,
        )
        return slots, batches


def _spread_out(share: float, count: int, first: int = 0) -> NDArray[np.bool_]:
    """Mask of a share of ``count`` things, spread evenly."""
    place = np.arange(first, first + count)
    chosen: NDArray[np.bool_] = np.floor((place + 1) * share) > np.floor(place * share)
    return chosen


def _since(totals: Ints, begins: NDArray[np.bool_]) -> Ints:
    """Running totals within each group, from the running totals of all rows and a mask of the groups' first rows."""
    first = np.maximum.accumulate(np.where(begins, np.arange(len(totals)), 0))
    return totals - totals[first]


def _ms(number: int, slots: NDArray[np.float64]) -> Ints:
    """The time of slots of a slice, in milliseconds since the epoch."""
    return FIRST_TIMESTAMP + (number * SLOTS + slots.astype(np.int64)) // SLOTS_IN_MS


def _expanded(number: int, runs: Runs, records: Ints, sequence: Ints) -> tuple[Ints, Batches]:
    """The batches of runs, and their slots."""
    total = len(records)
    starts = np.cumsum(runs.count) - runs.count
    step = (runs.end - runs.begin) / np.maximum(runs.count, 1)
    place = np.arange(total) + 0.5
    slots = np.repeat(runs.begin - starts * step, runs.count) + place * np.repeat(step, runs.count)
    further = np.where(runs.transaction == NO_TRANSACTION, NO_TRANSACTION, NO_TRANSACTION - 1 - runs.transaction)
    transaction, planted = np.repeat(further, runs.count), np.zeros(total, np.int8)
    transaction[starts], planted[starts] = runs.transaction, runs.planted

    def each(values: Ints) -> Ints:
        return np.repeat(values, runs.count)

    batches = columns_of(
        Batches,
        total,
        record_count=records,
        producer_id=each(runs.producer_id),
        producer_epoch=each(runs.producer_epoch),
        base_sequence=sequence,
        timestamp=_ms(number, slots),
        attributes=each(runs.attributes),
        decision=each(runs.decision),
        coordinator_epoch=each(runs.coordinator_epoch),
        transaction=transaction,
        planted=planted,
    )
    return slots.astype(np.int64), batches
