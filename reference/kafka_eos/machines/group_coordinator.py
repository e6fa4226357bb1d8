"""The coordinator of a classic consumer group: members and generations, committed and pending offsets.

Spec:  GroupCoordinator.tla
KIPs:  98, 447
Kafka: OffsetMetadataManager, ClassicGroup

=============  =============  =========================================================================
spec variable  field          Kafka
=============  =============  =========================================================================
group          ``group``      ClassicGroup: state, generationId, members, those that await JoinGroup
pending        ``pending``    OffsetMetadataManager.pendingTransactionalOffsets, by producer id
committed      ``committed``  OffsetMetadataManager.offsets
=============  =============  =========================================================================
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from immutables import Map

from kafka_eos.errors import ErrorCode

NO_OFFSET = -1
NO_GENERATION = 0
CLASSIC, CONSUMER = "classic", "consumer"
EMPTY, STABLE, PREPARING_REBALANCE = "EMPTY", "STABLE", "PREPARING_REBALANCE"
COMMIT, ABORT = "commit", "abort"

Offsets = Map[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConstants:
    """The constants of GroupCoordinator.tla.

    Attributes:
        instances: processes of the application; an instance's name is its member id.
        partitions: the input partitions.
        transactional_ids: one for each partition or for each instance.
        preferred: for each partition the instance that gets it whenever the instance is a member.
        group_protocol: "classic", or "consumer" for that of KIP-848.
    """

    instances: frozenset[str]
    partitions: frozenset[str]
    transactional_ids: frozenset[str]
    preferred: Map[str, str]
    group_protocol: str = CLASSIC

    def preferred_by(self, instance: str) -> Iterable[str]:
        """The partitions that prefer an instance."""
        return (partition for partition, owner in self.preferred.items() if owner == instance)

    def domain(self, name: str) -> Iterable[Hashable]:
        """The constant set ``name``, in order."""
        sets = {
            "Instances": self.instances,
            "Partitions": self.partitions,
            "TransactionalIds": self.transactional_ids,
        }
        return sorted(sets[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group: its state, generation, members, and those that have joined for the next generation."""

    state: str = STABLE
    generation: int = 1
    members: frozenset[str]
    joined: frozenset[str] = frozenset()


def first_group(constants: GroupConstants) -> Group:
    """Every instance is a member of the first generation; in a group that is not classic, nobody is."""
    if constants.group_protocol == CLASSIC:
        return Group(members=constants.instances)
    return Group(state=EMPTY, generation=NO_GENERATION, members=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinator:
    """The variables and rules of GroupCoordinator.tla."""

    VARIABLES: ClassVar[tuple[str, ...]] = ("group", "pending", "committed")

    constants: GroupConstants = field(compare=False)
    group: Group
    pending: Map[str, Offsets]
    committed: Offsets

    def nothing_pending(self) -> Offsets:
        """No offset of any partition."""
        return Map(dict.fromkeys(self.constants.partitions, NO_OFFSET))

    def txn_offset_commit_error(self, member: str | None, generation: int) -> ErrorCode:
        """The reason why offsets in a transaction are refused; ``NONE`` if they are not.

        Kafka: ClassicGroup.validateOffsetCommit
        """
        if member is None:
            return ErrorCode.NONE
        if member not in self.group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def offset_fetch_error(self, partition: str) -> ErrorCode:
        """The reason why a partition's offset is not returned; ``NONE`` if it is.

        Kafka: OffsetMetadataManager.fetchOffsets, OffsetFetchRequest.requireStable
        """
        if any(offsets.get(partition, NO_OFFSET) != NO_OFFSET for offsets in self.pending.values()):
            return ErrorCode.UNSTABLE_OFFSET_COMMIT
        return ErrorCode.NONE

    def committed_at_write(self, offsets: Offsets) -> Offsets:  # noqa: ARG002 - a mutant of this rule needs them
        """The committed offsets after offsets were written in a transaction: as before."""
        return self.committed

    def over(self, offsets: Offsets) -> Offsets:
        """The offsets of a transaction over what was committed."""
        return self.committed.update({p: offset for p, offset in offsets.items() if offset != NO_OFFSET})

    def committed_at_marker(self, producer: str, decision: str) -> Offsets:
        """The committed offsets after the marker of a transaction: only a commit replaces them by the pending ones."""
        return self.over(self.pending[producer]) if decision == COMMIT else self.committed

    def with_pending(self, producer: str, offsets: Offsets) -> Self:
        """The group after more offsets of a transaction were written, by the places of their records.

        Spec:  ConsumeTransformProduce!SendOffsets
        Kafka: OffsetMetadataManager.replay, for a record with a producer id
        """
        written = self.pending.get(producer, Map()).update(offsets)
        return replace(self, pending=self.pending.set(producer, written), committed=self.committed_at_write(written))

    def with_decision(self, producer: str, decision: str) -> Self:
        """The group after a marker, where offsets are the places of their records.

        An offset committed after a pending one stays (KAFKA-5247).

        Kafka: OffsetMetadataManager.replayEndTransactionMarker
        """
        if producer not in self.pending:
            return self
        latest = {
            partition: place
            for partition, place in self.pending[producer].items()
            if place > self.committed.get(partition, NO_OFFSET)
        }
        judged = replace(self, pending=self.pending.set(producer, Map(latest)))
        committed = judged.committed_at_marker(producer, decision)
        return replace(self, committed=committed, pending=self.pending.delete(producer))

    def pending_after_removal(self, members: frozenset[str]) -> Map[str, Offsets]:  # noqa: ARG002 - a mutant of this rule needs them
        """The pending offsets when only these members are left: as before, even if there are none."""
        return self.pending

    def all_have_joined(self) -> bool:
        """A rebalance can end: every member has joined again."""
        return self.group.state == PREPARING_REBALANCE and self.group.members <= self.group.joined

    def assigned_to(self, member: str, leader: str) -> frozenset[str]:
        """The partitions that prefer a member, and for the leader also those whose preferred member is missing."""
        return frozenset(
            partition
            for partition, preferred in self.constants.preferred.items()
            if (preferred if preferred in self.group.joined else leader) == member
        )

    def group_with(self, member: str) -> Group:
        """The group after a member has joined for the next generation."""
        return replace(self.group, state=PREPARING_REBALANCE, joined=self.group.joined | {member})

    def group_without(self, member: str) -> Group:
        """The group after a member was removed."""
        members, joined = self.group.members - {member}, self.group.joined - {member}
        return replace(self.group, state=PREPARING_REBALANCE, members=members, joined=joined)

    def next_generation(self) -> Group:
        """The group in its next generation."""
        return Group(generation=self.group.generation + 1, members=self.group.joined)
