"""Consumer groups of KIP-848: the coordinator assigns, and every member follows at its own pace.

The machine ``ConsumerGroup`` decides who has a partition, who may commit, and when a member is led to the group's
epoch. Around it stand subscriptions, the assignor, sessions and heartbeats. Its constants are what the assignor says:
the member that each partition prefers. Members are not written to ``__consumer_offsets``: after a restart they join
again.

Kafka: GroupMetadataManager.consumerGroupHeartbeat, ConsumerGroup, UniformAssignor
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from immutables import Map

from kafka_eos.consumer_group import ConsumerGroup, Membership
from kafka_eos.errors import ErrorCode
from kafka_eos.group_coordinator import CONSUMER
from kafka_eos.protocol import Message
from kafka_eos.server.groups import Groups, ServedGroup, State

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2

Assignment = frozenset[str]
NOTHING: Assignment = frozenset()


@dataclass(slots=True, kw_only=True)
class Follower:
    """A member of a consumer group; times in milliseconds.

    Attributes:
        member_id: which it has made up itself, or was given.
        instance_id: of a static member.
        client_id: as its requests say.
        client_host: where they come from.
        rebalance_ms: for so long it may take to give partitions up.
        topics: that it subscribes to by name.
        pattern: of the names of further topics.
        owned: the partitions that it says it has.
        told: the partitions that it was told last; None before the first time.
        previous_epoch: its member epoch before this one.
        expires: when its session ends.
        gives_up_by: when it has to have given up what is being revoked; None if nothing is.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int = 45_000
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    owned: Assignment = NOTHING
    told: Assignment | None = None
    previous_epoch: int = 0
    expires: int = 0
    gives_up_by: int | None = None

    def subscribes_to(self, topic: str) -> bool:
        """Whether it wants a topic."""
        return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)


@dataclass(slots=True, kw_only=True)
class FollowingGroup(ServedGroup[ConsumerGroup]):
    """A consumer group; its members by id."""

    followers: dict[str, Follower] = field(default_factory=dict)
    protocol_type: str = "consumer"

    group_type = "consumer"

    @property
    def state(self) -> State:
        """Whether everybody has what it is to have."""
        if not self.followers:
            return State.EMPTY
        machine, members = self.machine, self.machine.members()
        current = machine.membership.members
        settled = all(
            current[member].epoch == machine.membership.epoch
            and current[member].assigned == machine.target_of(members, member)
            for member in members
        )
        return State.STABLE if settled else State.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Nobody is a member."""
        return not self.followers

    def commit_error(self, member_id: str, epoch: int, transactional: bool) -> ErrorCode:
        """Why offsets are refused; ``NONE`` if they are not.    Kafka: ConsumerGroup.validateOffsetCommit."""
        if epoch < 0 and (self.is_empty or (transactional and not member_id)):
            return self.machine.member_epoch_error(None, epoch)
        return self.machine.member_epoch_error(member_id, epoch)

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Why a member is told no offsets; ``NONE`` if it is.    Kafka: ConsumerGroup.validateOffsetFetch."""
        return ErrorCode.NONE if member_id is None and epoch < 0 else self.machine.member_epoch_error(member_id, epoch)

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def epoch_error(self, member_id: str, epoch: int, owned: Assignment | None) -> ErrorCode:
        """Why a heartbeat is refused; ``NONE`` if it is not.

        A member that did not get the last answer still has the epoch before, and no more than it was given.

        Kafka: GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid
        """
        follower = self.followers.get(member_id)
        if follower is None:
            return ErrorCode.NONE if epoch == JOIN else ErrorCode.UNKNOWN_MEMBER_ID
        current = self.machine.membership.members[member_id]
        if epoch in {JOIN, current.epoch}:
            return ErrorCode.NONE
        missed = epoch == follower.previous_epoch and owned is not None and owned <= current.assigned
        return ErrorCode.NONE if missed else ErrorCode.FENCED_MEMBER_EPOCH

    def join(self, follower: Follower, partitions: Mapping[str, int]) -> None:
        """A member joins, or joins again: the group's epoch rises.    Spec: ConsumerGroup!Joined."""
        if follower.member_id in self.followers:
            self.leave(follower.member_id, partitions)
        self.followers[follower.member_id] = follower
        follower.owned, follower.told, follower.previous_epoch = NOTHING, None, 0
        self.assign(partitions)
        self.machine = replace(self.machine, membership=self.machine.joined(follower.member_id))

    def leave(self, member_id: str, partitions: Mapping[str, int]) -> None:
        """A member leaves: the group's epoch rises.    Spec: ConsumerGroup!MembershipWithout."""
        del self.followers[member_id]
        after = self.machine.membership_without(member_id)
        self.machine = replace(self.machine, membership=replace(after, members=after.members.delete(member_id)))
        self.assign(partitions)

    def reassign(self, partitions: Mapping[str, int]) -> None:
        """Subscriptions or topics have changed: if that changes who is to have what, the group's epoch rises."""
        before = self.machine.constants
        self.assign(partitions)
        if self.machine.constants != before:
            membership = self.machine.membership
            raised = replace(membership, epoch=membership.epoch + 1)
            self.machine = replace(self.machine, membership=raised)

    def reconcile(self, follower: Follower, now: int) -> Assignment:
        """Lead a member towards the group's epoch; what it is to have now.    Spec: ConsumerGroup!Reconciled."""
        member_id = follower.member_id
        before = self.machine.membership.members[member_id].epoch
        self.machine = replace(self.machine, membership=self.machine.reconciled(member_id, follower.owned))
        current = self.machine.membership.members[member_id]
        if current.epoch != before:
            follower.previous_epoch = before
        if not current.revoking:
            follower.gives_up_by = None
        elif follower.gives_up_by is None:
            follower.gives_up_by = now + follower.rebalance_ms
        return current.assigned

    def assign(self, partitions: Mapping[str, int]) -> None:
        """Ask the assignor who is to have what.

        Args:
            partitions: of each topic, how many.
        """
        wanted = {
            f"{topic}-{number}": frozenset(m for m, each in self.followers.items() if each.subscribes_to(topic))
            for topic, count in partitions.items()
            for number in range(count)
        }
        preferred = assigned({p: who for p, who in wanted.items() if who}, self.machine.constants.preferred)
        constants = replace(self.machine.constants, partitions=frozenset(preferred), preferred=Map(preferred))
        self.machine = replace(self.machine, constants=constants)


def assigned(wanted: Mapping[str, frozenset[str]], before: Mapping[str, str]) -> dict[str, str]:
    """Partitions evenly over the members that want them; who has one keeps it if that is even too.

    Args:
        wanted: of each partition the members that may have it.
        before: who was to have it.

    Kafka: UniformAssignor
    """
    members = frozenset[str]().union(*wanted.values()) if wanted else frozenset[str]()
    if not members:
        return {}
    most, larger = divmod(len(wanted), len(members))
    loads = dict.fromkeys(sorted(members), 0)
    given: dict[str, str] = {}
    for partition, owner in sorted(before.items()):
        room = loads.get(owner, most + 1) < most
        if not room and loads.get(owner) == most and larger:
            room, larger = True, larger - 1
        if room and owner in wanted.get(partition, ()):
            given[partition] = owner
            loads[owner] += 1
    for partition in sorted(wanted.keys() - given.keys()):
        given[partition] = min(wanted[partition], key=lambda member: (loads[member], member))
        loads[given[partition]] += 1
    return given


def by_topic(partitions: Iterable[str]) -> dict[str, list[int]]:
    """Partitions by name as numbers of topics."""
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topic, _, number = name.rpartition("-")
        topics.setdefault(topic, []).append(int(number))
    return {topic: sorted(numbers) for topic, numbers in sorted(topics.items())}


def following(group: ServedGroup[Any], machine: type[ConsumerGroup]) -> FollowingGroup:
    """A consumer group with the offsets of one that has no members."""
    old = group.machine
    constants = replace(old.constants, group_protocol=CONSUMER, preferred=Map())
    members = Membership(members=Map())
    made = machine(
        constants=constants, group=old.group, pending=old.pending, committed=old.committed, membership=members
    )
    return FollowingGroup(name=group.name, machine=made, values=group.values)


def changed_subscription(follower: Follower, row: Message) -> bool:
    """Take over what a heartbeat says of subscriptions; whether that is new."""
    topics, pattern = row.get("SubscribedTopicNames"), row.get("SubscribedTopicRegex")
    before = follower.topics, follower.pattern
    if topics is not None:
        follower.topics = frozenset(topics)
    if pattern is not None:
        follower.pattern = pattern or None
    return (follower.topics, follower.pattern) != before


@dataclass(slots=True, kw_only=True)
class ConsumerGroups:
    """The coordinators of consumer groups; the groups themselves stand among the others.

    Attributes:
        groups: all groups.
        machine: the class of the machines.
        heartbeat_ms: how often a member is to be heard of.    Kafka: group.consumer.heartbeat.interval.ms.
        session_ms: without a heartbeat for so long it is removed.    Kafka: group.consumer.session.timeout.ms.
    """

    groups: Groups
    machine: type[ConsumerGroup] = ConsumerGroup
    heartbeat_ms: int = 1_000
    session_ms: int = 45_000

    def find(self, name: str) -> FollowingGroup | None:
        """The group of this name, if it is one of KIP-848."""
        group = self.groups.known.get(name)
        return group if isinstance(group, FollowingGroup) else None

    def heartbeat(
        self, row: Message, client: tuple[str, str], owned: Assignment | None, partitions: Mapping[str, int]
    ) -> tuple[ErrorCode, str, int, Assignment | None]:
        """A member says that it is there, joins or leaves.

        Args:
            row: of the request.
            client: its id and its host.
            owned: what it says it has, by name; None if it says nothing of that.
            partitions: of each topic, how many.

        Returns:
            The error, the member's id and epoch, and its assignment if there is a new one.
        """
        name, member_id, epoch = row["GroupId"], row["MemberId"], row["MemberEpoch"]
        if not name or epoch < LEAVE_FOR_A_WHILE or (row.get("SubscribedTopicRegex") and not _is_pattern(row)):
            return ErrorCode.INVALID_REQUEST, member_id, epoch, None
        group = self._group_for(name, may_be_new=epoch == JOIN)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, member_id, epoch, None
        if epoch < JOIN:
            return self._leave(group, row, partitions), member_id, epoch, None
        error = group.epoch_error(member_id, epoch, owned)
        if member_id not in group.followers and len(group.followers) >= self.groups.max_members:
            error = ErrorCode.GROUP_MAX_SIZE_REACHED
        if error is not ErrorCode.NONE:
            return error, member_id, epoch, None
        member_id = member_id or self.groups.cluster.new_id()
        follower = group.followers.get(member_id)
        if follower is None or epoch == JOIN:
            follower = self._join(group, member_id, row, client, partitions)
        elif changed_subscription(follower, row):
            group.reassign(partitions)
        follower.owned = follower.owned if owned is None else owned
        follower.expires = self.groups.cluster.now + self.session_ms
        group.reassign(partitions)  # topics may have come or grown
        given = group.reconcile(follower, self.groups.cluster.now)
        is_news = given != follower.told or owned is not None
        follower.told = given
        return ErrorCode.NONE, member_id, group.machine.membership.members[member_id].epoch, given if is_news else None

    def _group_for(self, name: str, may_be_new: bool) -> FollowingGroup | None:
        """The group of this name; one without members becomes one of KIP-848."""
        known = self.groups.known.get(name)
        if isinstance(known, FollowingGroup):
            return known
        if (known is None and not may_be_new) or (known is not None and not known.is_empty):
            return None
        group = following(known or self.groups.new(name), self.machine)
        self.groups.known[name] = group
        return group

    def _join(
        self,
        group: FollowingGroup,
        member_id: str,
        row: Message,
        client: tuple[str, str],
        partitions: Mapping[str, int],
    ) -> Follower:
        instance_id = row["InstanceId"]
        for other in list(group.followers.values()):
            if instance_id is not None and other.instance_id == instance_id and other.member_id != member_id:
                group.leave(other.member_id, partitions)
        follower = Follower(member_id=member_id, instance_id=instance_id, client_id=client[0], client_host=client[1])
        if row["RebalanceTimeoutMs"] > 0:
            follower.rebalance_ms = row["RebalanceTimeoutMs"]
        changed_subscription(follower, row)
        group.join(follower, partitions)
        follower.expires = self.groups.cluster.now + self.session_ms
        self._watch(group, follower, partitions)
        return follower

    def _leave(self, group: FollowingGroup, row: Message, partitions: Mapping[str, int]) -> ErrorCode:
        if row["MemberId"] not in group.followers:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group.leave(row["MemberId"], partitions)
        return ErrorCode.NONE

    def _watch(self, group: FollowingGroup, follower: Follower, partitions: Mapping[str, int]) -> None:
        """Remove a member that is not heard of, or does not give up in time what is revoked."""

        def look() -> None:
            now = self.groups.cluster.now
            if group.followers.get(follower.member_id) is not follower:
                return
            if follower.expires <= now or (follower.gives_up_by is not None and follower.gives_up_by <= now):
                self.groups.expired(group, follower.member_id)
                group.leave(follower.member_id, partitions)
            else:
                self.groups.cluster.at(now + self.heartbeat_ms, look)

        self.groups.cluster.at(self.groups.cluster.now + self.heartbeat_ms, look)


def _is_pattern(row: Message) -> bool:
    try:
        re.compile(row["SubscribedTopicRegex"])
    except re.error:
        return False
    return True
