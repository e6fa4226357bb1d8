"""The rules of ``spec/mutants/ConsumeTransformProduceMutants.tla``, for the reference."""

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.consume_transform_produce import ConsumeTransformProduce
from kafka_eos.machines.group_coordinator import COMMIT as COMMIT_OFFSETS
from kafka_eos.machines.group_coordinator import Offsets


def no_generation_check(state: ConsumeTransformProduce, member: str | None, generation: int) -> ErrorCode:
    """For ``txn_offset_commit_error``: neither member nor generation is checked, as before KIP-447 (KAFKA-8587)."""
    return ErrorCode.NONE


def unknown_member_is_taken(state: ConsumeTransformProduce, member: str | None, generation: int) -> ErrorCode:
    """For ``txn_offset_commit_error``: offsets of a member that the group does not know are taken."""
    is_other = member in state.group.members and generation != state.group.generation
    return ErrorCode.ILLEGAL_GENERATION if is_other else ErrorCode.NONE


def generation_not_checked(state: ConsumeTransformProduce, member: str | None, generation: int) -> ErrorCode:
    """For ``txn_offset_commit_error``: offsets of a member are taken in any generation."""
    is_known = member is None or member in state.group.members
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID


def presents_latest_epoch(state: ConsumeTransformProduce, instance: str) -> int:
    """For ``presented_generation``: the current epoch, not the one in which the inputs were read."""
    return state.membership.members[instance].epoch


def position_of_lost_is_kept(state: ConsumeTransformProduce, instance: str) -> bool:
    """For ``keeps_positions``: an instance that was removed goes on where it was."""
    return True


def no_require_stable(state: ConsumeTransformProduce, partition: str) -> ErrorCode:
    """For ``offset_fetch_error``: a fetch does not ask for stable offsets."""
    return ErrorCode.NONE


def pending_is_found(state: ConsumeTransformProduce, offsets: Offsets) -> Offsets:
    """For ``committed_at_write``: offsets are found as soon as they are written."""
    return state.over(offsets)


def materialised_on_abort(state: ConsumeTransformProduce, producer: str, decision: str) -> Offsets:
    """For ``committed_at_marker``: an aborted transaction's offsets count too."""
    return state.over(state.pending[producer])


def pending_deleted_with_group(state: ConsumeTransformProduce, members: frozenset[str]) -> Map[str, Offsets]:
    """For ``pending_after_removal``: a group without members is deleted with its pending offsets (KAFKA-19163)."""
    return state.pending if members else Map(dict.fromkeys(state.pending, state.nothing_pending()))


def generation_checked_at_marker(state: ConsumeTransformProduce, producer: str, decision: str) -> Offsets:
    """For ``committed_at_marker``: the generation is checked when the marker comes."""
    is_member = state.processes[producer].generation == state.group.generation
    return state.over(state.pending[producer]) if decision == COMMIT_OFFSETS and is_member else state.committed


def never_fenced(state: ConsumeTransformProduce, instance: str, producer: str) -> bool:
    """For ``is_fenced``: a new epoch fences nobody."""
    return False


def open_transaction_is_left(state: ConsumeTransformProduce, producer: str) -> bool:
    """For ``init_aborts``: InitProducerId leaves an open transaction as it is."""
    return False


def init_does_not_wait(state: ConsumeTransformProduce, producer: str) -> ErrorCode:
    """For ``init_error``: InitProducerId does not wait for the markers of what is decided."""
    return ErrorCode.NONE


def fetches_before_init(state: ConsumeTransformProduce, instance: str, partition: str) -> bool:
    """For ``may_fetch``: the offset is fetched before the transactional id is initialized."""
    return True


def abandoned_stays_open(state: ConsumeTransformProduce, producer: str) -> bool:
    """For ``is_abandoned``: the coordinator ends no transaction of an instance that is gone."""
    return False


def no_seek_after_abort(state: ConsumeTransformProduce, instance: str, partition: str) -> int:
    """For ``position_after_abort``: the application goes on where it was."""
    return state.processes[instance].positions[partition]


def offset_without_plus_one(state: ConsumeTransformProduce, instance: str, partition: str) -> int:
    """For ``offset_to_send``: the offset of the last input that was read."""
    return state.processes[instance].positions[partition] - 1
