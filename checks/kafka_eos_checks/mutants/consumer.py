"""The rules of ``spec/mutants/ConsumerMutants.tla``, for the reference."""

from collections.abc import Sequence
from itertools import takewhile

from pyrsistent import PVector, pvector

from kafka_eos.machines.consumer import Consumer
from kafka_eos.machines.read_committed import AbortedTransaction, IndexedTransaction, ReadCommitted
from kafka_eos.machines.transactional_partition import LogEntry


def limit_included(state: Consumer) -> int:
    """For ``committed_limit``: the last stable offset is read as well."""
    return min(state.high_watermark, state.last_stable_offset() + 1)


def upper_bound_too_small(state: Consumer, fetched: Sequence[LogEntry]) -> int:
    """For ``upper_bound``: aborted transactions are not looked for at the response's last entry (KAFKA-17801)."""
    return fetched[-1].offset


def upper_bound_at_log_end(state: Consumer, fetched: Sequence[LogEntry]) -> int:
    """For ``upper_bound``: as coarse as can be, up to the end of the log."""
    return state.log_end_offset(state.log)


def list_lost(state: Consumer, position: int, upper: int) -> list[AbortedTransaction]:
    """For ``collect_aborted``: the response loses its list (KAFKA-5376)."""
    return []


def begins_inside(state: ReadCommitted, transaction: IndexedTransaction, position: int, upper: int) -> bool:
    """For ``overlaps``: only transactions that begin in the response overlap it."""
    return position <= transaction.first_offset < upper


def stops_at_first_behind(state: ReadCommitted, transaction: IndexedTransaction, upper: int) -> bool:
    """For ``ends_scan``: the search ends with the first transaction that begins after the response."""
    return transaction.first_offset >= upper


def stops_at_last_behind(state: ReadCommitted, transaction: IndexedTransaction, upper: int) -> bool:
    """For ``ends_scan``: the search ends with the first transaction that ends after the response."""
    return transaction.last_offset >= upper


def begun_before(state: ReadCommitted, transaction: AbortedTransaction, entry: LogEntry) -> bool:
    """For ``has_begun``: a transaction begins after its first record."""
    return transaction.first_offset < entry.last_offset


def begun_already(state: ReadCommitted, transaction: AbortedTransaction, entry: LogEntry) -> bool:
    """For ``has_begun``: every transaction of the list has begun where the response begins."""
    return True


def list_taken_as_sorted(
    state: ReadCommitted, aborted: Sequence[AbortedTransaction], waiting: frozenset[int], entry: LogEntry
) -> frozenset[int]:
    """For ``begun``: the list is taken to be in the order of first offsets (franz-go 1.21.4)."""
    return frozenset(takewhile(lambda place: state.has_begun(aborted[place], entry), sorted(waiting)))


def abort_never_ends(state: ReadCommitted, active: frozenset[int], entry: LogEntry) -> frozenset[int]:
    """For ``still_active``: an abort marker does not end what it aborts (librdkafka 1.7.0)."""
    return active


def commit_ends_too(state: ReadCommitted, active: frozenset[int], entry: LogEntry) -> frozenset[int]:
    """For ``still_active``: a commit marker clears the producer as well."""
    return active - {entry.producer_id} if entry.is_marker else active


def markers_passed_on(state: ReadCommitted, entry: LogEntry) -> bool:
    """For ``is_passed_on``: markers are passed on like records."""
    return True


def position_of_records(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: the position follows the last record passed on, if there was one (aiokafka 781)."""
    return read[-1] + 1 if read else position


def last_record_again(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: the position stays at the last record passed on."""
    return read[-1] if read else fetched[-1].offset + 1


def committed_still_held(state: Consumer, mine: PVector[int], entry: LogEntry) -> PVector[int]:
    """For ``still_held``: the records of a committed transaction stay in the buffer after they have been passed on."""
    if entry.is_abort_marker:
        return pvector()
    return mine.append(entry.offset) if entry.is_transactional else mine


def only_the_last_record(state: Consumer, fetched: Sequence[LogEntry]) -> list[int]:
    """For ``everything``: a reader is given the last record of a response only."""
    return [entry.offset for entry in fetched if state.is_passed_on(entry)][-1:]


def last_record_first(state: Consumer, fetched: Sequence[LogEntry]) -> list[int]:
    """For ``everything``: a reader is given the records of a response from the last to the first."""
    return [entry.offset for entry in fetched if state.is_passed_on(entry)][::-1]


def back_over_marker(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: after a response without a record it goes back over a marker before it."""
    is_behind_marker = any(entry.offset == position - 1 and entry.is_marker for entry in state.log.entries)
    return position - 1 if not read and is_behind_marker else fetched[-1].offset + 1


def other_producer_first(
    state: Consumer, fetched: Sequence[LogEntry], aborted: Sequence[AbortedTransaction]
) -> list[int]:
    """For ``readable``: a reader is given two records of two producers in the other order."""
    read = list(state.passed(fetched, aborted))
    is_other = len(read) == 2 and read[0].producer_id != read[1].producer_id
    return [entry.offset for entry in (reversed(read) if is_other else read)]


def _stops_at(kind: str, state: Consumer, last: LogEntry) -> int:
    is_behind_batch = any(entry.offset == last.offset - 1 and not entry.is_marker for entry in state.log.entries)
    return last.offset if last.kind == kind and is_behind_batch else last.offset + 1


def stops_at_commit(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: a reader never passes the marker of a committed transaction."""
    return _stops_at("commit", state, fetched[-1])


def stops_at_abort(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: a reader never passes the marker of an aborted transaction."""
    return _stops_at("abort", state, fetched[-1])
