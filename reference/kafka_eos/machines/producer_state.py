"""A partition leader's state of idempotent producers, and the checks it makes before it appends a batch.

The value :class:`Log` is one replica's log. Its guards are total functions in Kafka's order of checks; its effects
return the next value. Payloads are not kept here: a server of real clients keeps them by offset.

Spec:  ProducerState.tla
KIPs:  98, 360
Kafka: ProducerStateManager, ProducerStateEntry, ProducerAppendInfo, UnifiedLog.analyzeAndValidateProducerState
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from immutables import Map
from pyrsistent import PVector, pvector

from kafka_eos.errors import ErrorCode

NO_PRODUCER_ID = -1


@dataclass(frozen=True, slots=True)
class Limits:
    """The last sequence number before the wrap, and the size of the duplicate window.

    Attributes:
        max_sequence: the last sequence before the wrap to 0.
        cached_batches: batches remembered for each producer.
    """

    max_sequence: int = 2**31 - 1
    cached_batches: int = 5

    def next_sequence(self, sequence: int) -> int:
        """The sequence after another one.    Kafka: DefaultRecordBatch.incrementSequence."""
        return 0 if sequence == self.max_sequence else sequence + 1

    def last_sequence(self, batch: "Batch | CachedBatch") -> int:
        """The sequence of a batch's last record."""
        return (batch.sequence + batch.count - 1) % (self.max_sequence + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch as a producer sends it. The leader fills in the offset.

    Attributes:
        producer_id: -1 when the producer is not idempotent.
        epoch: producer epoch.
        sequence: sequence of the first record.
        count: number of records.
        offset: offset of the first record; -1 until the leader has given it one.
    """

    producer_id: int
    epoch: int
    sequence: int
    count: int
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedBatch:
    """A remembered batch: its first sequence, number of records and first offset."""

    sequence: int
    count: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """A replica's state of one producer: its epoch, and the last batches of that epoch, oldest first."""

    epoch: int
    batches: tuple[CachedBatch, ...]


Producers = Map[int, ProducerState]
NO_PRODUCERS: Producers = Map()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The producers as of an offset, as written to a ``.snapshot`` file."""

    offset: int = 0
    producers: Producers = NO_PRODUCERS


EMPTY_SNAPSHOT = Snapshot()


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One replica's log: its batches, the state of the producers, the last snapshot.

    Assumed: the content of a retry equals the content of the first copy (a broker compares neither content nor CRC).
    """

    entries: PVector[Batch] = field(default_factory=pvector)
    producers: Producers = NO_PRODUCERS
    snapshot: Snapshot = EMPTY_SNAPSHOT
    limits: Limits = field(default=Limits(), compare=False)

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        if not self.entries:
            return 0
        last = self.entries[-1]
        return last.offset + last.count

    def knows_producer(self, producer_id: int) -> bool:
        """Whether there is any state for a producer."""
        return producer_id in self.producers

    # --- the checks, in Kafka's order: duplicate, epoch, sequence ---------------------------------------------

    def is_retry_of(self, cached: CachedBatch, batch: Batch) -> bool:
        """A batch has the first and the last sequence of a remembered one."""
        return cached.sequence == batch.sequence and cached.count == batch.count

    def retry_candidates(self, batch: Batch) -> tuple[CachedBatch, ...]:
        """The remembered batches that a batch can be a retry of: those of its own epoch."""
        producer = self.producers.get(batch.producer_id)
        return producer.batches if producer is not None and producer.epoch == batch.epoch else ()

    def is_duplicate(self, batch: Batch) -> bool:
        """The batch is a retry of one that the leader remembers.    Kafka: ProducerStateEntry.findDuplicateBatch."""
        return any(self.is_retry_of(cached, batch) for cached in self.retry_candidates(batch))

    def duplicate_offset(self, batch: Batch) -> int:
        """The offset of the first copy of a duplicate."""
        return next(cached.offset for cached in self.retry_candidates(batch) if self.is_retry_of(cached, batch))

    def is_fenced(self, producer: ProducerState, batch: Batch) -> bool:
        """The batch comes from an earlier epoch of its producer.    Kafka: ProducerAppendInfo.checkProducerEpoch."""
        return batch.epoch < producer.epoch

    def starts_epoch(self, batch: Batch) -> bool:
        """A new epoch begins with sequence 0."""
        return batch.sequence == 0

    def follows(self, producer: ProducerState, batch: Batch) -> bool:
        """The batch comes right after the last one of its epoch. An epoch that a marker has raised has none yet."""
        if not producer.batches:
            return self.starts_epoch(batch)
        return batch.sequence == self.limits.next_sequence(self.limits.last_sequence(producer.batches[-1]))

    def accepts_unknown_producer(self, batch: Batch) -> bool:
        """Without state for the producer every sequence passes, unless the partition never held a record.

        Departs from Kafka: up to 4.4 every sequence passes there too (KAFKA-15591; the mutant
        AnySequenceOnVirginPartition).
        """
        return bool(self.entries) or batch.sequence == 0

    def is_in_sequence(self, batch: Batch) -> bool:
        """The batch has the sequence that the log has to see next.    Kafka: ProducerAppendInfo.checkSequence."""
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return self.accepts_unknown_producer(batch)
        if batch.epoch != producer.epoch:
            return self.starts_epoch(batch)
        return self.follows(producer, batch)

    def append_error(self, batch: Batch) -> ErrorCode:
        """The reason why the leader refuses a batch that is no duplicate; ``NONE`` if it does not."""
        if batch.producer_id == NO_PRODUCER_ID:
            return ErrorCode.NONE
        producer = self.producers.get(batch.producer_id)
        if producer is not None and self.is_fenced(producer, batch):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if not self.is_in_sequence(batch):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return ErrorCode.NONE

    # --- what an append changes -------------------------------------------------------------------------------

    def remember(self, producers: Producers, entry: Batch) -> Producers:
        """The producers after one more batch in the log. An epoch's first batch empties the cache."""
        if entry.producer_id == NO_PRODUCER_ID:
            return producers
        known = producers.get(entry.producer_id)
        before = known.batches if known is not None and known.epoch == entry.epoch else ()
        batch = CachedBatch(sequence=entry.sequence, count=entry.count, offset=entry.offset)
        batches = (*before, batch)[-self.limits.cached_batches :]
        return producers.set(entry.producer_id, ProducerState(epoch=entry.epoch, batches=batches))

    def appended(self, batch: Batch) -> Self:
        """The log after a batch has been appended."""
        entry = replace(batch, offset=self.log_end_offset)
        return replace(self, entries=self.entries.append(entry), producers=self.remember(self.producers, entry))

    def failed_to_append(self, batch: Batch) -> Self:  # noqa: ARG002 - a mutant of this rule needs the batch
        """The log after an append that the storage failed: nothing has changed."""
        return self

    # --- snapshot, rebuilding, truncation, expiry ---------------------------------------------------------------

    def snapshot_of(self, producer: ProducerState) -> ProducerState:
        """The part of a producer's state that a snapshot keeps.

        # Departs from Kafka: a snapshot there keeps the last batch only; see the mutant LastBatchOnly.
        """
        return producer

    def with_snapshot(self) -> Self:
        """The log after its producers have been written to a snapshot.    Kafka: ProducerStateManager.takeSnapshot."""
        kept = Map({producer_id: self.snapshot_of(state) for producer_id, state in self.producers.items()})
        return replace(self, snapshot=Snapshot(offset=self.log_end_offset, producers=kept))

    def replay(self, producers: Producers, entries: Iterable[Batch]) -> Producers:
        """The producers after replaying batches in order."""
        for entry in entries:
            producers = self.remember(producers, entry)
        return producers

    def rebuilt(self) -> Producers:
        """The producers as a replica finds them when it loads the log again.

        Kafka: UnifiedLog.rebuildProducerState
        """
        since = (entry for entry in self.entries if entry.offset >= self.snapshot.offset)
        return self.replay(self.snapshot.producers, since)

    def reloaded(self) -> Self:
        """The log as a replica finds it after a restart."""
        return replace(self, producers=self.rebuilt())

    def truncated(self, offset: int) -> Self:
        """The log cut back to an offset; a snapshot of a later end is dropped too.    Kafka: UnifiedLog.truncateTo."""
        kept = replace(
            self,
            entries=pvector(entry for entry in self.entries if entry.offset < offset),
            snapshot=EMPTY_SNAPSHOT if self.snapshot.offset > offset else self.snapshot,
        )
        return kept.reloaded()

    def forgotten(self, producer_id: int) -> Self:
        """The log without what was known of one producer.    Kafka: ProducerStateManager.removeExpiredProducers."""
        return replace(self, producers=self.producers.delete(producer_id))
