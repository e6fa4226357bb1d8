"""The rules of ``spec/mutants/SharePartitionMutants.tla``, for the reference."""

from collections.abc import Mapping
from dataclasses import replace

from kafka_eos.machines.share_partition import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    LogBatch,
    Record,
    SharePartition,
)


def base_offset_only(state: SharePartition, batch: LogBatch) -> int:
    """For ``looked_up``: the filter looks at the base offset of a batch, as Kafka's does."""
    return batch.base_offset


def filters_markers_only(state: SharePartition, batch: LogBatch) -> bool:
    """For ``is_filtered``: members are given aborted records, too."""
    return batch.kind == "control"


def acquires_acquired(state: SharePartition, offset: int) -> bool:
    """For ``may_acquire``: a fetch acquires records that another member has, up to the limit."""
    record = state.cached_state[offset]
    return not state.is_done(record) and record.delivery_count < state.constants.delivery_count_limit


def acquires_acknowledged(state: SharePartition, offset: int) -> bool:
    """For ``may_acquire``: a fetch acquires records that were accepted."""
    return state.cached_state[offset].state in {AVAILABLE, ACKNOWLEDGED}


def acquires_archived(state: SharePartition, offset: int) -> bool:
    """For ``may_acquire``: a fetch acquires records that are archived."""
    return state.cached_state[offset].state in {AVAILABLE, ARCHIVED}


def any_member_acknowledges(state: SharePartition, member: str, offset: int) -> bool:
    """For ``may_acknowledge``: a member answers for a record that another one has by now."""
    return state.cached_state[offset].state == ACQUIRED


def one_delivery_more(state: SharePartition, record: Record) -> Record:
    """For ``released``: a record is available once more after the last delivery."""
    is_last = record.delivery_count > state.constants.delivery_count_limit
    return state.ended(record, ARCHIVED if is_last else AVAILABLE)


def one_delivery_fewer(state: SharePartition, record: Record) -> Record:
    """For ``released``: a record is archived one delivery before the last one."""
    is_last = record.delivery_count + 1 >= state.constants.delivery_count_limit
    return state.ended(record, ARCHIVED if is_last else AVAILABLE)


def passes_last_record(state: SharePartition, records: Mapping[int, Record]) -> int:
    """For ``start_offset_after``: the start offset does not wait for the last record of the log."""
    last = len(state.constants.offsets) - 1
    return next((at for at in range(state.start_offset, last) if not state.is_done(records[at])), last + 1)


def passes_first_record(state: SharePartition, records: Mapping[int, Record]) -> int:
    """For ``start_offset_after``: the start offset does not wait for the first record of the group."""
    first = max(state.start_offset, state.constants.first_offset + 1)
    return SharePartition.start_offset_after(replace(state, start_offset=first), records)


def passes_open_records(state: SharePartition, records: Mapping[int, Record]) -> int:
    """For ``start_offset_after``: the start offset passes records that are not done."""
    later = (offset for offset in records if offset >= state.start_offset)
    return max((offset + 1 for offset in later if state.is_done(records[offset])), default=state.start_offset)


def never_looks_back(state: SharePartition) -> frozenset[int]:
    """For ``fetchable``: the next fetch begins after all records that were ever acquired."""
    later = (offset for offset in state.constants.offsets if offset >= state.start_offset)
    return frozenset(offset for offset in later if state.cached_state[offset].delivery_count == 0)
