"""The rules of ``spec/mutants/ConsumerGroupMutants.tla``, for the reference."""

from collections.abc import Iterable

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.consume_transform_produce import ConsumeTransformProduce


def removed_member_is_taken(
    state: ConsumeTransformProduce, member: str | None, epoch: int, partitions: Iterable[str]
) -> ErrorCode:
    """For ``member_epoch_error``: offsets of a member that the group does not know are taken."""
    is_stale = member in state.members() and epoch != state.membership.members[member].epoch
    return ErrorCode.STALE_MEMBER_EPOCH if is_stale else ErrorCode.NONE


def stale_epoch_is_taken(
    state: ConsumeTransformProduce, member: str | None, epoch: int, partitions: Iterable[str]
) -> ErrorCode:
    """For ``member_epoch_error``: offsets of a member are taken in any epoch."""
    is_known = member is None or member in state.members()
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID


def only_latest_epoch(
    state: ConsumeTransformProduce, member: str | None, epoch: int, partitions: Iterable[str]
) -> ErrorCode:
    """For ``member_epoch_error``: only the latest epoch is accepted, and no request without a member."""
    if member not in state.members():
        is_anonymous = member is None and not state.members()
        return ErrorCode.NONE if is_anonymous else ErrorCode.UNKNOWN_MEMBER_ID
    is_latest = epoch == state.membership.members[member].epoch
    return ErrorCode.NONE if is_latest else ErrorCode.STALE_MEMBER_EPOCH


def older_epoch_is_unknown(
    state: ConsumeTransformProduce, member: str | None, epoch: int, partitions: Iterable[str]
) -> ErrorCode:
    """For ``member_epoch_error``: a member is known by its latest epoch only."""
    is_latest = member in state.members() and epoch == state.membership.members[member].epoch
    return ErrorCode.NONE if member is None or is_latest else ErrorCode.UNKNOWN_MEMBER_ID


def assignment_epoch_not_checked(state: ConsumeTransformProduce, member: str, partition: str, epoch: int) -> bool:
    """For ``has_had_since``: an older epoch is accepted for any partition that the member has, whenever it got it."""
    current = state.membership.members[member]
    return partition in current.assigned | current.revoking


def revoking_has_no_epoch(state: ConsumeTransformProduce, member: str, partition: str, epoch: int) -> bool:
    """For ``has_had_since``: a partition that the member has yet to give up has no assignment epoch any more."""
    current = state.membership.members[member]
    return partition in current.assigned and current.assignment_epochs[partition] <= epoch


def assignment_epoch_stays(state: ConsumeTransformProduce, member: str, epoch: int) -> int:
    """For ``epoch_of_given``: the epoch of the group's first assignment, as if the partition had never been away."""
    return 1


def zero_after_leave(state: ConsumeTransformProduce, member: str, partition: str) -> int:
    """For ``epoch_after_return``: the assignment epoch is 0, as in Kafka."""
    return 0


def stale_epoch_is_told(state: ConsumeTransformProduce, error: ErrorCode) -> ErrorCode:
    """For ``error_in_transaction``: TxnOffsetCommit is answered the error of a plain commit."""
    return error


def given_before_revoked(state: ConsumeTransformProduce, partition: str, member: str) -> bool:
    """For ``is_free``: a partition is given to its next owner before the one that has it gives it up."""
    return True
