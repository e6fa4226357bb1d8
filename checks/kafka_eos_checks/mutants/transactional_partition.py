"""The rules of ``spec/mutants/TransactionalPartitionMutants.tla``, for the reference."""

from collections.abc import Iterable
from dataclasses import replace

from pyrsistent import pvector

from kafka_eos.errors import enabled
from kafka_eos.machines.transactional_partition import (
    NO_OFFSET,
    NO_PRODUCER,
    LeaderLog,
    LogEntry,
    PartitionProducer,
    TransactionalPartition,
    UnstableTransaction,
)


def any_batch_epoch(state: TransactionalPartition, producer: PartitionProducer, batch: LogEntry) -> bool:
    """For ``is_old_batch``: a leader takes batches of any epoch."""
    return False


def plain_inside(state: TransactionalPartition, producer: PartitionProducer, batch: LogEntry) -> bool:
    """For ``is_outside_transaction``: a batch of no transaction may stand inside one."""
    return False


def any_marker_epoch(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_old_marker``: a leader takes markers of any epoch."""
    return False


def own_epoch_ends(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_old_marker``: a marker of an open transaction's own epoch ends it, as before Kafka 4.2 (KAFKA-19446)."""
    return marker.epoch < producer.epoch


def no_marker_twice(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_old_marker``: a marker that has been written is refused when it comes again (KAFKA-19999)."""
    return marker.epoch <= producer.epoch


def present_coordinator_is_fenced(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_of_old_coordinator``: the coordinator that is known may not write again."""
    return marker.coordinator_epoch <= producer.coordinator_epoch


def any_coordinator(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_of_old_coordinator``: a leader takes markers of a coordinator that has been replaced (KAFKA-9144)."""
    return False


def nothing_indexed(state: TransactionalPartition, marker: LogEntry) -> bool:
    """For ``is_indexed``: the index gets no entry at all."""
    return False


def committed_indexed(state: TransactionalPartition, marker: LogEntry) -> bool:
    """For ``is_indexed``: committed transactions are in the index as well."""
    return True


def _ends_at(
    state: TransactionalPartition, before: LeaderLog, marker: LogEntry, first_offset: int, last_offset: int
) -> LeaderLog:
    after = TransactionalPartition.with_index_entry(state, before, marker, first_offset)
    if after is before:
        return before
    entry = replace(after.aborted_index[-1], last_offset=last_offset)
    return replace(after, aborted_index=after.aborted_index.set(-1, entry))


def ends_before_marker(
    state: TransactionalPartition, before: LeaderLog, marker: LogEntry, first_offset: int
) -> LeaderLog:
    """For ``with_index_entry``: the entry ends before the marker."""
    return _ends_at(state, before, marker, first_offset, marker.offset - 1)


def ends_behind_marker(
    state: TransactionalPartition, before: LeaderLog, marker: LogEntry, first_offset: int
) -> LeaderLog:
    """For ``with_index_entry``: the entry ends behind the marker."""
    return _ends_at(state, before, marker, first_offset, marker.offset + 1)


def nothing_else_open(
    state: TransactionalPartition, transactions: Iterable[UnstableTransaction], producer_id: int, offset: int
) -> int:
    """For ``stable_offset_after``: an entry of the index claims that nothing else was open."""
    return offset + 1


def everything_else_open(
    state: TransactionalPartition, transactions: Iterable[UnstableTransaction], producer_id: int, offset: int
) -> int:
    """For ``stable_offset_after``: an entry of the index claims that everything was open; only searches take longer."""
    return 0


def own_next_counts(
    state: TransactionalPartition, transactions: Iterable[UnstableTransaction], producer_id: int, offset: int
) -> int:
    """For ``stable_offset_after``, together with AppendedAtOnce: the producer's own next transaction counts."""
    open_ones = (t for t in transactions if t.last_offset == NO_OFFSET)
    others = (t.first_offset for t in open_ones if t.producer_id != producer_id or t.first_offset > offset)
    return min(others, default=offset + 1)


def completed_unindexed(state: TransactionalPartition, before: LeaderLog, given: LogEntry) -> LeaderLog:
    """For ``without_index_entry``: the last stable offset advances although the index lacks the entry (KAFKA-7866)."""
    entry = state.at_end(before, given)
    return state.with_completed(
        state.with_entry(before, entry), entry, before.producers[entry.producer_id].first_offset
    )


def ongoing_only(state: TransactionalPartition, before: LeaderLog) -> LeaderLog:
    """For ``after_load``: a snapshot of the log's end was loaded, which has open transactions only, as in Kafka."""
    return replace(before, transactions=frozenset(t for t in before.transactions if t.last_offset == NO_OFFSET))


def open_are_fenced(state: TransactionalPartition, before: LeaderLog) -> LeaderLog:
    """For ``after_load``: a replica that leads fences the producers of open transactions, which no marker ends then."""
    fenced = {
        producer_id: replace(producer, epoch=producer.epoch + 1)
        for producer_id, producer in before.producers.items()
        if producer.is_open
    }
    return replace(before, producers=before.producers.update(fenced))


def truncated_leads(state: TransactionalPartition, end_offset: int, watermark: int) -> TransactionalPartition:
    """For ``elect_leader``: a replica leads that has truncated its log to the high watermark that it knew, above 0."""
    enabled(end_offset == watermark > 0, "the replica has more than that, or nothing")
    enabled(watermark <= state.replicated, "the high watermark was never there")
    return TransactionalPartition.elect_leader(replace(state, replicated=watermark), end_offset, watermark)


def index_not_rebuilt(state: TransactionalPartition, before: LeaderLog, entries: Iterable[LogEntry]) -> LeaderLog:
    """For ``replay``: a replica that becomes the leader has no index."""
    for entry in entries:
        before = replace(state.written(before, entry), aborted_index=pvector())
    return before


def transactions_not_rebuilt(
    state: TransactionalPartition, before: LeaderLog, entries: Iterable[LogEntry]
) -> LeaderLog:
    """For ``replay``: a replica that becomes the leader knows of no transaction that is open."""
    for entry in entries:
        before = replace(state.written(before, entry), transactions=frozenset())
    return before


def appended_at_once(state: TransactionalPartition, before: LeaderLog, entries: Iterable[LogEntry]) -> LeaderLog:
    """For ``replay``: a follower takes in a whole response before it writes the entries of the index, as in Kafka."""
    ended = []
    for entry in entries:
        first = before.producers[entry.producer_id].first_offset
        if entry.is_marker and first != NO_OFFSET:
            ended.append((entry, first))
        before = state.with_entry(before, entry)
    for marker, first in ended:
        before = state.with_completed(state.with_index_entry(before, marker, first), marker, first)
    return before


def open_only(state: TransactionalPartition) -> frozenset[int]:
    """For ``unstable_offsets``: a marker counts before it is replicated."""
    return frozenset(t.first_offset for t in state.log.transactions if t.last_offset == NO_OFFSET)


def last_unstable_offset(state: TransactionalPartition) -> int:
    """For ``first_unstable_offset``: the last of the open transactions decides, not the first."""
    return max(state.unstable_offsets())


def high_watermark_only(state: TransactionalPartition) -> int:
    """For ``last_stable_offset``: every replicated entry is stable."""
    return state.high_watermark


def first_record_is_stable(state: TransactionalPartition) -> int:
    """For ``last_stable_offset``: it is after the first record of an open transaction, not before it."""
    unstable = state.unstable_offsets()
    return min(state.high_watermark, state.first_unstable_offset() + 1) if unstable else state.high_watermark


def expire_inside(state: TransactionalPartition, producer: PartitionProducer) -> bool:
    """For ``may_expire``: a producer may be forgotten in the middle of a transaction."""
    return True


def forgotten_transactions(state: TransactionalPartition, before: LeaderLog, producer_id: int) -> LeaderLog:
    """For ``forgotten``, together with ExpireInside: its transactions are forgotten as well."""
    kept = frozenset(t for t in before.transactions if t.producer_id != producer_id)
    return replace(before, producers=before.producers.set(producer_id, NO_PRODUCER), transactions=kept)


def marker_cleaned_early(state: TransactionalPartition, marker: LogEntry) -> bool:
    """For ``may_clean_marker``: a marker goes before the batches of its transaction (KAFKA-8351, KAFKA-14055)."""
    return True
