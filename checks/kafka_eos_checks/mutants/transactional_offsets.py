"""The rules of ``spec/mutants/TransactionalOffsetsMutants.tla``, for the reference."""

from dataclasses import replace

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.transactional_offsets import Entry as OffsetEntry
from kafka_eos.machines.transactional_offsets import Memory, TransactionalOffsets


def nothing_is_outdated(state: TransactionalOffsets, send: int) -> bool:
    """For ``is_outdated``: nothing distinguishes a late retry from a new offset, as in Kafka."""
    return False


def can_send_once(state: TransactionalOffsets) -> bool:
    """For ``can_send``: a transaction has one send of offsets."""
    if state.client.state == "open":
        return not state.sent_within(state.client.number)
    return state.client.number + 1 in state.constants.numbers


def offset_committed_at_once(state: TransactionalOffsets, known: Memory, entry: OffsetEntry) -> int:
    """For ``committed_at_offset``: an offset counts as soon as it is written."""
    return entry.offset


def abort_commits_offset(state: TransactionalOffsets, known: Memory, entry: OffsetEntry) -> int:
    """For ``committed_at_end``: any marker commits the pending offset."""
    return known.pending or known.committed


def open_in_any_epoch(state: TransactionalOffsets, send: int) -> bool:
    """For ``is_ongoing``: the epoch of the open transaction is not compared."""
    return bool(state.memory.pending)


def offsets_of_any_transaction(state: TransactionalOffsets, send: int) -> ErrorCode:
    """For ``verification_error``: the coordinator vouches for any send."""
    return ErrorCode.NONE


def answered_at_once(state: TransactionalOffsets, position: int) -> int:
    """For ``answered_at``: the answer waits for nothing."""
    return state.replicated


def applies_by_task(state: TransactionalOffsets) -> bool:
    """For ``applies_at_once``: a task gives effect to a marker, as in Kafka 3.9."""
    return False


def reads_memory(state: TransactionalOffsets) -> Memory:
    """For ``readable``: a fetch reads the coordinator's memory, as in Kafka 3.9."""
    return state.memory


def fetch_does_not_wait(state: TransactionalOffsets) -> tuple[OffsetEntry, ...]:
    """For ``fetched_entries``: a fetch reads the whole log."""
    return state.log


def fetch_of_unstable(state: TransactionalOffsets, known: Memory) -> bool:
    """For ``is_unstable``: a fetch ignores pending offsets."""
    return False


def pending_not_loaded(state: TransactionalOffsets, entries: tuple[OffsetEntry, ...]) -> Memory:
    """For ``known_after_load``: pending offsets are forgotten."""
    return replace(state.loaded(entries), pending=0)
