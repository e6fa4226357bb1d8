"""Consumer groups of KIP-848: the coordinator assigns, and every member follows at its own pace.

The machine ``ConsumerGroup`` decides who has a partition, who may commit, and when a member is led to the group's
epoch. This module adds subscriptions, the assignors, sessions and heartbeats. The machine's constants come from the
assignor: the member that each partition prefers. ``stored_groups.py`` has the records in ``__consumer_offsets``.

Members of the classic protocol can be in such a group: their generation is their member epoch, and they follow the
group by JoinGroup and SyncGroup, the others by heartbeats (``migration.py``).

Departs from Kafka: an assignment is made at once, as with group.consumer.assignment.interval.ms=0 (4.3 waits a second
by default).

Kafka: GroupMetadataManager.consumerGroupHeartbeat, ConsumerGroup, UniformAssignor, RangeAssignor
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.consumer_group import ConsumerGroup, Membership
from kafka_eos.machines.consumer_group import Member as Following
from kafka_eos.machines.group_coordinator import CONSUMER
from kafka_eos.server.consumer_protocol import subscription
from kafka_eos.server.groups import FIRST_OF_TRANSACTIONS_WITH_TOPIC_IDS, FIRST_WITH_EPOCHS, ServedGroup, State

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
NEW_GROUP_EPOCH = 1
"""The epoch of a group that nobody has joined yet: the first member to subscribe gets epoch 2, as in Kafka 4.3."""
UNIFORM, RANGE = "uniform", "range"
ASSIGNORS = (UNIFORM, RANGE)
"""Kafka: group.consumer.assignors."""

NOBODY = ("", None, -1)
"""The member id, instance id and epoch of a producer that is not told for which member it sends offsets."""

Assignment = frozenset[str]
NOTHING: Assignment = frozenset()


@dataclass(slots=True, kw_only=True)
class ClassicSide:
    """The part of a member that only members of the classic protocol have.

    Attributes:
        protocols: its assignors in the order of its preference, each with its subscription.
        session_ms: without a heartbeat for this long it is removed.
        syncs_by: until when it has to sync; None if it has.
        joins_by: until when it has to join again; None if it need not.
    """

    protocols: list[tuple[str, bytes]]
    session_ms: int
    syncs_by: int | None = None
    joins_by: int | None = None

    @property
    def protocol(self) -> str:
        """The assignor that it is told was chosen: its first one."""
        return self.protocols[0][0]

    @property
    def version(self) -> int:
        """The version in which it reads assignments."""
        said = subscription(self.protocols[0][1])
        return 0 if said is None else said.version


@dataclass(slots=True, kw_only=True)
class Follower:
    """A member of a consumer group; times in milliseconds.

    Attributes:
        member_id: the id that it has made up itself, or was given.
        instance_id: the instance id of a static member.
        client_id: as its requests say.
        client_host: the host that its requests come from.
        rack_id: the rack that it says it is in.
        rebalance_ms: time that it may take to give partitions up.
        topics: the topics that it subscribes to by name.
        pattern: a pattern for the names of further topics.
        resolved: the topics of its pattern have been looked for.
        assignor: the assignor that it asks for.
        previous_epoch: its member epoch before its last reconciliation.
        waits: when it was reconciled last, other members had yet to give up partitions that it is to have.
        expires: when its session ends.
        gives_up_by: when it has to have given up what is being revoked; None if nothing is.
        is_away: an instance that has left for a while: its partitions wait for it.
        classic: its part as a member of the classic protocol; None if it is none.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None = None
    rebalance_ms: int = 45_000
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    resolved: bool = False
    assignor: str | None = None
    previous_epoch: int = 0
    waits: bool = False
    expires: int = 0
    gives_up_by: int | None = None
    is_away: bool = False
    classic: ClassicSide | None = None

    def subscribes_to(self, topic: str) -> bool:
        """Whether it wants a topic."""
        return topic in self.topics or (
            self.resolved and self.pattern is not None and re.fullmatch(self.pattern, topic) is not None
        )

    def deadline(self) -> int:
        """The time at which it is removed, if it sends nothing."""
        others = [self.gives_up_by]
        if self.classic is not None:
            others += [self.classic.syncs_by, self.classic.joins_by]
        return min([self.expires, *(each for each in others if each is not None)])


@dataclass(slots=True, kw_only=True)
class FollowingGroup(ServedGroup[ConsumerGroup]):
    """A consumer group; its members by id.

    Attributes:
        followers: the followers by member id.
        assigned_epoch: the group's epoch for which partitions were assigned.
    """

    followers: dict[str, Follower] = field(default_factory=dict)
    assigned_epoch: int = 0
    protocol_type: str = "consumer"

    group_type = "consumer"

    @property
    def epoch(self) -> int:
        """The group's epoch."""
        return self.machine.membership.epoch

    @property
    def state(self) -> State:
        """Whether every member has its target assignment. Kafka: ConsumerGroup.maybeUpdateGroupState."""
        if not self.followers:
            return State.EMPTY
        if self.assigned_epoch < self.epoch:
            return State.ASSIGNING
        settled = all(
            self.current(member).epoch == self.epoch
            and self.current(member).assigned == self.target(member)
            and not follower.is_away
            for member, follower in self.followers.items()
        )
        return State.STABLE if settled else State.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Nobody is a member."""
        return not self.followers

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for. Kafka: ConsumerGroup.preferredServerAssignor."""
        asked = Counter(each.assignor for each in self.followers.values() if each.assignor is not None)
        return asked.most_common(1)[0][0] if asked else UNIFORM

    def current(self, member_id: str) -> Following:
        """The machine's state of a member."""
        return self.machine.membership.members[member_id]

    def target(self, member_id: str) -> Assignment:
        """The partitions that a member is to have."""
        return self.machine.target_of(self.machine.members(), member_id)

    def waits_for_others(self, member_id: str) -> bool:
        """Another member has yet to give up partitions that this member is to have.

        Kafka: ConsumerGroup.waitingOnUnreleasedPartition
        """
        missing = self.target(member_id) - self.current(member_id).assigned
        return any(not self.machine.is_free(partition, member_id) for partition in missing)

    def static_follower(self, instance_id: str | None) -> Follower | None:
        """The member with this instance id."""
        if instance_id is None:
            return None
        return next((each for each in self.followers.values() if each.instance_id == instance_id), None)

    def speaks(self, protocols: Collection[str]) -> bool:
        """All members of the classic protocol support one of these assignors."""
        known = [{name for name, _ in each.classic.protocols} for each in self.followers.values() if each.classic]
        return any(all(name in theirs for theirs in known) for name in protocols)

    def is_subscribed_to(self, topic: str) -> bool:
        """Somebody subscribes to a topic."""
        return any(follower.subscribes_to(topic) for follower in self.followers.values())

    def offset_delete_error(self) -> ErrorCode:
        """Kafka: ConsumerGroup.validateOffsetDelete."""
        return ErrorCode.NONE

    def commit_error(
        self, who: tuple[str, str | None, int], transactional: bool, version: int, partitions: Collection[str]
    ) -> ErrorCode:
        """The error that refuses the offsets of some partitions; ``NONE`` if there is none.

        Args:
            who: the member id, the instance id and the epoch that the request has.
            transactional: they come in a transaction, where a producer may say nothing of all three.
            version: the request's version.
            partitions: the partitions, by name.

        Kafka: ConsumerGroup.validateOffsetCommit
        """
        member_id, _, epoch = who
        if (epoch < 0 and self.is_empty) or (transactional and who == NOBODY):
            return self.machine.member_epoch_error(None, epoch, partitions)
        follower = self.followers.get(member_id)
        if follower is not None and not transactional and follower.classic is None and version < FIRST_WITH_EPOCHS:
            return ErrorCode.UNSUPPORTED_VERSION
        if follower is not None and follower.is_away:
            error = self._latest_error(follower, epoch)
        else:
            error = self._told(member_id, self.machine.member_epoch_error(member_id, epoch, partitions))
        as_generation = transactional and version < FIRST_OF_TRANSACTIONS_WITH_TOPIC_IDS
        return self.machine.error_in_transaction(error) if as_generation else error

    def fetch_error(self, member_id: str | None, epoch: int) -> ErrorCode:
        """The reason why a member gets no offsets; ``NONE`` if it does. An older epoch is refused for every partition.

        Kafka: ConsumerGroup.validateOffsetFetch
        """
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        if member_id is None or member_id not in self.followers:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._latest_error(self.followers[member_id], epoch)

    def _latest_error(self, follower: Follower, epoch: int) -> ErrorCode:
        """The error of an epoch that is not the latest of a member; an instance that is away has epoch -2."""
        latest = LEAVE_FOR_A_WHILE if follower.is_away else self.current(follower.member_id).epoch
        return ErrorCode.NONE if epoch == latest else self._told(follower.member_id, ErrorCode.STALE_MEMBER_EPOCH)

    def _told(self, member_id: str, error: ErrorCode) -> ErrorCode:
        """A member of the classic protocol knows its epoch as a generation."""
        is_classic = member_id in self.followers and self.followers[member_id].classic is not None
        return ErrorCode.ILLEGAL_GENERATION if is_classic and error is ErrorCode.STALE_MEMBER_EPOCH else error

    # --- members -----------------------------------------------------------------------------------------------------

    def epoch_error(self, follower: Follower, epoch: int, owned: Assignment | None) -> ErrorCode:
        """The reason why a heartbeat is refused; ``NONE`` if it is not.

        A member that did not get the last answer still has the epoch before, and no more than it was given.

        Kafka: GroupMetadataManager.throwIfConsumerGroupMemberEpochIsInvalid
        """
        current = self.current(follower.member_id)
        if epoch == current.epoch and not follower.is_away:
            return ErrorCode.NONE
        missed = epoch == follower.previous_epoch and owned is not None and owned <= current.assigned
        return ErrorCode.NONE if missed and not follower.is_away else ErrorCode.FENCED_MEMBER_EPOCH

    def join(self, follower: Follower, partitions: Mapping[str, int]) -> None:
        """A member joins; a subscription raises the group's epoch, which is not 0 once there is a member.

        Spec:  ConsumerGroup!Joined
        Kafka: GroupMetadataManager.consumerGroupHeartbeat
        """
        self.followers[follower.member_id] = follower
        if follower.topics or follower.resolved:
            self._assign(partitions)
            self.machine = replace(self.machine, membership=self.machine.joined(follower.member_id))
            self.assigned_epoch = self.epoch
        else:
            if not self.epoch:
                self.raise_epoch()
            member = Following(epoch=self.epoch, since=self.epoch)
            membership = self.machine.membership
            joined = replace(membership, members=membership.members.set(follower.member_id, member))
            self.machine = replace(self.machine, membership=joined)
            self.reassign(partitions)

    def rename(self, follower: Follower, member_id: str) -> None:
        """An instance comes back as another member, to which everything of the old one belongs."""
        old, follower.member_id = follower.member_id, member_id
        self.followers = {member_id if name == old else name: each for name, each in self.followers.items()}
        machine = self.machine
        members = machine.membership.members
        renamed = members.delete(old).set(member_id, members[old])
        preferred = Map({p: member_id if who == old else who for p, who in machine.constants.preferred.items()})
        self.machine = replace(
            machine,
            constants=replace(machine.constants, preferred=preferred),
            membership=replace(machine.membership, members=renamed),
        )
        follower.is_away = False

    def leave_for_a_while(self, follower: Follower) -> None:
        """An instance leaves for a while, and its partitions wait for it.

        Spec:  ConsumerGroup!EpochAfterReturn
        Kafka: GroupMetadataManager.consumerGroupStaticMemberGroupLeave
        """
        follower.is_away, follower.gives_up_by = True, None
        members, member_id = self.machine.membership.members, follower.member_id
        epochs = Map({p: self.machine.epoch_after_return(member_id, p) for p in members[member_id].assigned})
        kept = replace(members[member_id], revoking=NOTHING, assignment_epochs=epochs)
        membership = replace(self.machine.membership, members=members.set(member_id, kept))
        self.machine = replace(self.machine, membership=membership)

    def leave(self, leaving: Iterable[Follower]) -> None:
        """Members leave: the group's epoch rises, and the next heartbeat starts a new assignment.

        Spec: ConsumerGroup!MembershipWithout
        """
        epoch = self.epoch + 1
        for follower in leaving:
            del self.followers[follower.member_id]
            after = self.machine.membership_without(follower.member_id)
            members = after.members.delete(follower.member_id)
            self.machine = replace(self.machine, membership=replace(after, members=members))
        self.machine = replace(self.machine, membership=replace(self.machine.membership, epoch=epoch))

    def lose_topic(self, topic: str, topic_id: str) -> None:
        """A topic is gone: its id is its name until members are told, so that a new topic of that name is another one.

        Args:
            topic: its name.
            topic_id: its id.
        """

        def renamed(partition: str) -> str:
            name, _, number = partition.rpartition("-")
            return f"{topic_id}-{number}" if name == topic else partition

        members = {
            member_id: replace(
                each,
                assigned=frozenset(map(renamed, each.assigned)),
                revoking=frozenset(map(renamed, each.revoking)),
                assignment_epochs=Map({renamed(name): epoch for name, epoch in each.assignment_epochs.items()}),
            )
            for member_id, each in self.machine.membership.members.items()
        }
        preferred = Map({renamed(name): who for name, who in self.machine.constants.preferred.items()})
        self.machine = replace(
            self.machine,
            constants=replace(self.machine.constants, partitions=frozenset(preferred), preferred=preferred),
            membership=replace(self.machine.membership, members=Map(members)),
        )

    def raise_epoch(self) -> None:
        """Raise the group's epoch, because subscriptions have changed."""
        membership = self.machine.membership
        self.machine = replace(self.machine, membership=replace(membership, epoch=membership.epoch + 1))

    def reassign(self, partitions: Mapping[str, int]) -> None:
        """Raise the epoch if changed subscriptions or topics change the target assignment."""
        before = self.machine.constants
        self._assign(partitions)
        if self.machine.constants != before and self.assigned_epoch == self.epoch:
            self.raise_epoch()
        self.assigned_epoch = self.epoch

    def reconcile(self, follower: Follower, owned: Assignment | None, now: int, *, begins: bool = False) -> None:
        """Lead a member towards the group's epoch.    Spec: ConsumerGroup!Reconciled.

        Args:
            follower: the member.
            owned: the partitions that it says it has; None if it says nothing, so that it may have all that it had.
            now: milliseconds.
            begins: an instance joins or is back, whose epoch before is 0.
        """
        member_id = follower.member_id
        before = self.current(member_id)
        is_led = follower.waits or before.epoch != self.epoch
        has = before.assigned | before.revoking if owned is None else owned
        self.machine = replace(self.machine, membership=self.machine.reconciled(member_id, has))
        current = self.current(member_id)
        if is_led or begins:
            follower.previous_epoch = 0 if begins else before.epoch
        follower.waits = not current.revoking and current.assigned != self.target(member_id)
        if not current.revoking:
            follower.gives_up_by = None
        elif follower.gives_up_by is None:
            follower.gives_up_by = now + follower.rebalance_ms

    def _assign(self, partitions: Mapping[str, int]) -> None:
        """Ask the assignor for the target assignment.

        Args:
            partitions: the number of partitions of each topic.
        """
        wanted = {
            topic: frozenset(m for m, each in self.followers.items() if each.subscribes_to(topic))
            for topic in partitions
        }
        if self.assignor == RANGE:
            preferred = ranges({t: who for t, who in wanted.items() if who}, partitions, self.followers)
        else:
            each = {f"{t}-{n}": who for t, who in wanted.items() for n in range(partitions[t]) if who}
            preferred = assigned(each, self.machine.constants.preferred)
        constants = replace(self.machine.constants, partitions=frozenset(preferred), preferred=Map(preferred))
        self.machine = replace(self.machine, constants=constants)


def ranges(
    wanted: Mapping[str, frozenset[str]], partitions: Mapping[str, int], followers: Mapping[str, Follower]
) -> dict[str, str]:
    """A range of each topic's partitions for each member that wants it.    Kafka: RangeAssignor."""
    given: dict[str, str] = {}
    for topic, who in wanted.items():
        members = sorted(who, key=lambda m: (followers[m].instance_id is None, followers[m].instance_id or m))
        least, larger = divmod(partitions[topic], len(members))
        owners = [m for at, m in enumerate(members) for _ in range(least + (at < larger))]
        given |= {f"{topic}-{number}": owner for number, owner in enumerate(owners)}
    return given


def assigned(wanted: Mapping[str, frozenset[str]], before: Mapping[str, str]) -> dict[str, str]:
    """Partitions evenly over the members that want them; a member keeps what it has if that is even too.

    An assignment stays as it is when it is asked for again. Where members want different partitions, Kafka balances in
    other steps: then others may move, and other members have one more.

    Args:
        wanted: for each partition, the members that may have it.
        before: for each partition, the member of the last assignment.

    Kafka: UniformAssignor
    """
    members = frozenset[str]().union(*wanted.values()) if wanted else frozenset[str]()
    if not members:
        return {}
    want_the_same = len(set(wanted.values())) == 1
    most, larger = divmod(len(wanted), len(members)) if want_the_same else (len(wanted), 0)
    loads = dict.fromkeys(sorted(members), 0)
    given: dict[str, str] = {}
    for partition, owner in sorted(before.items()):
        if owner not in wanted.get(partition, ()):
            continue
        is_one_more = loads[owner] == most and larger > 0
        if is_one_more:
            larger -= 1
        if is_one_more or loads[owner] < most:
            given[partition] = owner
            loads[owner] += 1

    def least(partition: str) -> str:
        return min(wanted[partition], key=lambda member: (loads[member], member))

    for partition in sorted(wanted.keys() - given.keys()):
        given[partition] = least(partition)
        loads[given[partition]] += 1
    alike: dict[frozenset[str], list[str]] = {}
    for partition in sorted(wanted):
        alike.setdefault(wanted[partition], []).append(partition)
    is_even = want_the_same
    while not is_even:  # members that want other partitions than others have kept all of theirs
        is_even = True
        for partitions in alike.values():
            moved = max(partitions, key=lambda partition: loads[given[partition]])
            owner, other = given[moved], least(moved)
            if loads[other] + 1 < loads[owner]:
                is_even, given[moved] = False, other
                loads[owner] -= 1
                loads[other] += 1
    return given


def by_topic(partitions: Iterable[str]) -> dict[str, list[int]]:
    """Partitions by name as numbers of topics."""
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topic, _, number = name.rpartition("-")
        topics.setdefault(topic, []).append(int(number))
    return {topic: sorted(numbers) for topic, numbers in sorted(topics.items())}


def following(group: ServedGroup[Any], machine: type[ConsumerGroup], membership: Membership) -> FollowingGroup:
    """A consumer group with the offsets of another group."""
    old = group.machine
    constants = replace(old.constants, group_protocol=CONSUMER, preferred=Map())
    made = machine(
        constants=constants, group=old.group, pending=old.pending, committed=old.committed, membership=membership
    )
    return FollowingGroup(name=group.name, machine=made, values=group.values)


class Subscribed(NamedTuple):
    """The change that a request makes to a member's subscription."""

    names: bool
    pattern: bool


def subscribe(follower: Follower, topics: Iterable[str] | None, pattern: str | None) -> Subscribed:
    """Update a subscription from a request; None changes nothing, an empty pattern removes the old one."""
    names = follower.topics if topics is None else frozenset(topics)
    new_pattern = follower.pattern if pattern is None else pattern or None
    changed = Subscribed(names != follower.topics, new_pattern != follower.pattern)
    follower.topics, follower.pattern = names, new_pattern
    if changed.pattern:
        follower.resolved = False
    return changed
