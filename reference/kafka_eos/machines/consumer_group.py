"""The coordinator of a consumer group of KIP-848, unlike the classic one: every member has an epoch of its own.

Spec:  ConsumerGroup.tla
KIPs:  447, 848, 1251
Kafka: ConsumerGroup, CurrentAssignmentBuilder

=============  ===============  =======================================================================================
spec variable  field            Kafka (the variables of GroupCoordinator.tla: group_coordinator.py)
=============  ===============  =======================================================================================
membership     ``membership``   ConsumerGroup: groupEpoch, and of each ConsumerGroupMember its epoch and its partitions
=============  ===============  =======================================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.group_coordinator import CLASSIC, GroupConstants, GroupCoordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """An instance, as the coordinator has it.

    Attributes:
        epoch: the epoch of the member; 0 where it is none.
        since: the epoch in which it joined.
        assigned: its partitions.
        revoking: the partitions that it has yet to give up.
        assignment_epochs: for each partition of both, the epoch in which it was assigned.
    """

    epoch: int = 0
    since: int = 0
    assigned: frozenset[str] = frozenset()
    revoking: frozenset[str] = frozenset()
    assignment_epochs: Map[str, int] = field(default=Map())

    @classmethod
    def with_partitions(cls, assigned: Iterable[str], epoch: int) -> "Member":
        """A member that joins in an epoch and has partitions since."""
        owned = frozenset(assigned)
        return cls(epoch=epoch, since=epoch, assigned=owned, assignment_epochs=Map(dict.fromkeys(owned, epoch)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A consumer group: its epoch, and every instance."""

    epoch: int = 0
    members: Map[str, Member]


def first_membership(constants: GroupConstants) -> Membership:
    """Every instance is a member and has the partitions that prefer it; in a classic group, nobody is."""
    if constants.group_protocol == CLASSIC:
        return Membership(members=Map(dict.fromkeys(constants.instances, Member())))
    members = {i: Member.with_partitions(constants.preferred_by(i), epoch=1) for i in constants.instances}
    return Membership(epoch=1, members=Map(members))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup(GroupCoordinator):
    """The variables and rules of ConsumerGroup.tla."""

    VARIABLES: ClassVar[tuple[str, ...]] = (*GroupCoordinator.VARIABLES, "membership")

    membership: Membership

    def members(self) -> frozenset[str]:
        """The members of the group."""
        if self.constants.group_protocol == CLASSIC:
            return self.group.members
        return frozenset(instance for instance, member in self.membership.members.items() if member.epoch > 0)

    def has_had_since(self, member: str, partition: str, epoch: int) -> bool:
        """A member has had a partition since an epoch, without interruption; one that it has yet to give up is its own.

        Kafka: ConsumerGroup.createAssignmentEpochValidator
        """
        current = self.membership.members[member]
        return partition in current.assigned | current.revoking and current.assignment_epochs[partition] <= epoch

    def member_epoch_error(self, member: str | None, epoch: int, partitions: Iterable[str]) -> ErrorCode:
        """The reason why offsets of some partitions are refused; ``NONE`` if they are not.

        Kafka: ConsumerGroup.validateOffsetCommit
        """
        if member is None:
            return ErrorCode.NONE
        if member not in self.members():
            return ErrorCode.UNKNOWN_MEMBER_ID
        latest = self.membership.members[member].epoch
        if epoch == latest:
            return ErrorCode.NONE
        if epoch < latest and all(self.has_had_since(member, partition, epoch) for partition in partitions):
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH

    def error_in_transaction(self, error: ErrorCode) -> ErrorCode:
        """The error as the answer to TxnOffsetCommit has it: to that request, up to version 5, it is a generation.

        Kafka: OffsetMetadataManager.validateTransactionalOffsetCommit
        """
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error

    def target(self, members: frozenset[str], partition: str) -> str:
        """The instance that is to have a partition: the one that it prefers, or else the other."""
        preferred = self.constants.preferred[partition]
        return preferred if preferred in members else min(members)

    def is_free(self, partition: str, member: str) -> bool:
        """A partition can be given to a member: no other has it, or has yet to give it up."""
        others = (self.membership.members[other] for other in self.members() - {member})
        return all(partition not in other.assigned | other.revoking for other in others)

    def target_of(self, members: frozenset[str], member: str) -> frozenset[str]:
        """The partitions that a member is to have."""
        return frozenset(p for p in self.constants.partitions if self.target(members, p) == member)

    def _free(self, partitions: frozenset[str], member: str) -> frozenset[str]:
        return frozenset(partition for partition in partitions if self.is_free(partition, member))

    def epoch_of_given(self, member: str, epoch: int) -> int:  # noqa: ARG002 - a mutant of this rule needs them
        """The assignment epoch of a partition that a member is given in an epoch: that epoch."""
        return epoch

    def joined(self, member: str) -> Membership:
        """A member that joins, in the group's next epoch."""
        epoch = self.membership.epoch + 1
        assigned = self._free(self.target_of(self.members() | {member}, member), member)
        given = Map(dict.fromkeys(assigned, self.epoch_of_given(member, epoch)))
        new = Member(epoch=epoch, since=epoch, assigned=assigned, assignment_epochs=given)
        return Membership(epoch=epoch, members=self.membership.members.set(member, new))

    def led(self, member: str, current: Member, owned: frozenset[str]) -> Membership:
        """A member that the group has like this, and that says what it has, is led to the group's epoch."""
        target = self.target_of(self.members(), member)
        kept = current.assigned & target
        revoking = (current.revoking | (current.assigned - target)) & owned
        if revoking:
            epochs = Map({partition: current.assignment_epochs[partition] for partition in kept | revoking})
            after = replace(current, assigned=kept, revoking=revoking, assignment_epochs=epochs)
        else:
            epoch, assigned = self.membership.epoch, kept | self._free(target, member)
            given = self.epoch_of_given(member, epoch)
            epochs = Map({p: current.assignment_epochs[p] if p in kept else given for p in assigned})
            after = Member(epoch=epoch, since=current.since, assigned=assigned, assignment_epochs=epochs)
        return replace(self.membership, members=self.membership.members.set(member, after))

    def reconciled(self, member: str, owned: frozenset[str]) -> Membership:
        """A member that says what it has is led to the group's epoch: first it gives up, then it is given."""
        return self.led(member, self.membership.members[member], owned)

    def epoch_after_return(self, member: str, partition: str) -> int:
        """The assignment epoch of a partition whose static member has left and is back: it had the partition.

        Departs from Kafka: there it is 0, so that offsets are taken of any epoch in which the member was in the group
        (ZeroAfterLeave).

        Kafka: GroupMetadataManager.consumerGroupStaticMemberGroupLeave
        """
        return self.membership.members[member].assignment_epochs[partition]

    def returned(self, member: str) -> Membership:
        """A static member that has left, which gives up at once what it has to, and is back in the group's epoch."""
        current = self.membership.members[member]
        epochs = Map({partition: self.epoch_after_return(member, partition) for partition in current.assigned})
        return self.led(member, replace(current, revoking=frozenset(), assignment_epochs=epochs), frozenset())

    def membership_without(self, member: str) -> Membership:
        """The group without a member, in its next epoch."""
        return Membership(epoch=self.membership.epoch + 1, members=self.membership.members.set(member, Member()))
