"""The group coordinators: classic groups with their generations, and committed and pending offsets.

The machine ``GroupCoordinator`` decides who may commit, when a rebalance can end, and what a marker does to pending
offsets. This module adds what the machine leaves out: how members join and sync, sessions, and the offsets themselves.
The machine's offsets are places: the offset of the record in ``__consumer_offsets`` that holds the group's offset.

Kafka: GroupMetadataManager, ClassicGroup, OffsetMetadataManager
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar
from uuid import UUID

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, RecordBatch
from kafka_eos.machines.group_coordinator import (
    ABORT,
    COMMIT,
    PREPARING_REBALANCE,
    STABLE,
    Group,
    GroupConstants,
    GroupCoordinator,
)
from kafka_eos.server.consumer_protocol import CONSUMER, subscription
from kafka_eos.server.offset_records import (
    CLASSIC_GROUP,
    EPOCH,
    OFFSET,
    RECORDS,
    Records,
    key_bytes,
    kind_of,
    read_key,
    read_value,
    value_bytes,
)
from kafka_eos.server.partitions import Appended, Leader, Ticket
from kafka_eos.wire.protocol import Message

NO_ID = UUID(int=0)
"""The id of no topic.    Kafka: Uuid.ZERO_UUID."""

MAX_METADATA_BYTES = 4096
"""The maximum length of an offset's metadata.    Kafka: offset.metadata.max.bytes."""

FIRST_OF_TRANSACTIONS_WITH_TOPIC_IDS = 6
"""The version of TxnOffsetCommit with topic ids, and with the errors of epochs and unknown groups (KIP-1319)."""
FIRST_WITH_EPOCHS = 9
"""The version of OffsetCommit from which on a member of a consumer group gives its epoch (KIP-848)."""
FIRST_KNOWN_MEMBER = 4
"""The version of JoinGroup from which on a dynamic member has to come back with the id that it is given (KIP-394)."""
FIRST_NAMING_PROTOCOL = 5
"""The version of SyncGroup from which on a member has to name the protocol (KIP-559)."""
FIRST_SKIPPING = 9
"""The version of JoinGroup from which on a leader can be told not to assign (KIP-814)."""

MIN_SESSION_MS, MAX_SESSION_MS = 10, 1_800_000
"""Kafka's group.min.session.timeout.ms is 6000; tests want shorter ones."""


class State(StrEnum):
    """The state of a group. Kafka: GroupState."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class CommittedOffset(NamedTuple):
    """The committed offset of a group for a partition.

    Attributes:
        offset: the offset of the next record to read.
        leader_epoch: the epoch of the last record that was read; -1 if the client did not say it.
        metadata: the client's own text.
        timestamp: when it was committed, in milliseconds.
        topic_id: the topic's id; ``NO_ID`` for offsets of transactions, which Kafka 4.3 keeps without one.
    """

    offset: int
    leader_epoch: int
    metadata: str
    timestamp: int
    topic_id: UUID = NO_ID

    def is_of(self, topic_id: UUID) -> bool:
        """Whether it can be that of a topic with this id; another topic may have had the name.

        Kafka: OffsetMetadataManager.isMismatchedTopicId
        """
        return NO_ID in {topic_id, self.topic_id} or topic_id == self.topic_id


Reply = Callable[[Message], None]


def _renamed(group: Group, old: str, new: str) -> Group:
    """A group in which a member has another id."""

    def renamed(members: frozenset[str]) -> frozenset[str]:
        return members - {old} | {new} if old in members else members

    return replace(group, members=renamed(group.members), joined=renamed(group.joined))


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a classic group; times in milliseconds.

    Attributes:
        member_id: the id that the coordinator has given it.
        instance_id: the instance id of a static member.
        client_id: as its requests say.
        client_host: the host that its requests come from.
        session_ms: without a heartbeat for this long it is removed.
        rebalance_ms: a rebalance waits for it for this long.
        protocols: its assignors in the order of its preference, each with its subscription.
        assignment: as the leader has it.
        expires: when its session ends.
        joins: answers JoinGroup, while that waits.
        syncs: answers SyncGroup, while that waits.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    expires: int = 0
    joins: Reply | None = None
    syncs: Reply | None = None

    def subscription(self, protocol: str | None) -> bytes:
        """The subscription that it sends to an assignor; to its first one, if it does not know that one."""
        return dict(self.protocols).get(protocol or "", self.protocols[0][1])

    def update(self, row: Message) -> None:
        """Update the member from a JoinGroup request.    Kafka: ClassicGroup.updateMember, JoinGroupRequest."""
        self.protocols = [(p["Name"], p["Metadata"]) for p in row["Protocols"]]
        self.session_ms = row["SessionTimeoutMs"]
        self.rebalance_ms = row.get("RebalanceTimeoutMs", self.session_ms)  # version 0 has none

    def tell(self, error: ErrorCode, member_id: str = "") -> None:
        """Answer the waiting requests with an error."""
        for waiting in (self.joins, self.syncs):
            if waiting is not None:
                waiting({"ErrorCode": error, "MemberId": member_id, "ProtocolName": ""})
        self.joins = self.syncs = None


MachineT = TypeVar("MachineT", bound=GroupCoordinator)


@dataclass(slots=True, kw_only=True)
class ServedGroup(ABC, Generic[MachineT]):
    """A group of either protocol.

    Attributes:
        name: its id.
        machine: members, committed and pending offsets.
        values: the offsets at the machine's places.
        protocol_type: "consumer" for consumers.
    """

    name: str
    machine: MachineT
    values: dict[int, CommittedOffset] = field(default_factory=dict)

    group_type: ClassVar[str]
    protocol_type: str = ""

    @property
    @abstractmethod
    def state(self) -> State:
        """The phase of the group."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Nobody is a member."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Somebody subscribes to a topic."""

    @abstractmethod
    def offset_delete_error(self) -> ErrorCode:
        """The reason why no offset can be deleted; ``NONE`` if offsets without a subscriber can."""

    def committed(self, partition: str) -> CommittedOffset | None:
        """The committed offset of a partition."""
        place = self.machine.committed.get(partition)
        return None if place is None else self.values[place]

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions for which an offset is committed or pending."""
        return frozenset(self.machine.committed).union(*self.machine.pending.values())

    def forget(self, partition: str) -> None:
        """Forget the committed and pending offsets of a partition.

        Kafka: OffsetMetadataManager.replay, for a record without a value
        """
        machine = self.machine
        for own in (machine.committed, *machine.pending.values()):
            if partition in own:
                del self.values[own[partition]]
        pending = {who: left for who, own in machine.pending.items() if (left := _without(own, partition))}
        self.machine = replace(machine, committed=_without(machine.committed, partition), pending=Map(pending))


def _without(places: Map[str, int], partition: str) -> Map[str, int]:
    return places.delete(partition) if partition in places else places


@dataclass(slots=True, kw_only=True)
class ClassicGroup(ServedGroup[GroupCoordinator]):
    """A group of the classic protocol.

    Attributes:
        state: the phase of the rebalance.
        members: the members by id.
        expected: member ids that were given and did not come back yet, with the time until which they may.
        leader: the member that assigns.
        protocol: the assignor of this generation.
        rebalances: counts the rebalances that have begun, so that a timer knows its own.
        was_empty: whether nobody was a member when the last of them began.
        unsynced: the members that have not synced in this generation.
        subscribed: the topics that members of this generation subscribe to; None before the first one, or if a
            subscription cannot be read.
    """

    state: State = State.EMPTY
    members: dict[str, Member] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    leader: str = ""
    protocol: str | None = None
    rebalances: int = 0
    was_empty: bool = False
    unsynced: set[str] = field(default_factory=set)
    subscribed: frozenset[str] | None = None

    group_type = "classic"

    @property
    def is_empty(self) -> bool:
        """Nobody is a member."""
        return not self.members

    @property
    def generation(self) -> int:
        """The present generation."""
        return self.machine.group.generation

    def with_offsets_of(self, other: ServedGroup[Any]) -> Self:
        """This group, with the committed and pending offsets of another one."""
        self.values = other.values
        self.machine = replace(self.machine, committed=other.machine.committed, pending=other.machine.pending)
        return self

    def recall(self, content: Message) -> None:
        """Restore the group from its record: stable with its members, or empty.

        Kafka: GroupMetadataManager.replay(GroupMetadataKey, GroupMetadataValue)
        """
        self.protocol_type, self.protocol = content["protocolType"], content["protocol"]
        self.leader = content["leader"] or ""
        self.members = {
            row["memberId"]: Member(
                member_id=row["memberId"],
                instance_id=row["groupInstanceId"],
                client_id=row["clientId"],
                client_host=row["clientHost"],
                session_ms=row["sessionTimeout"],
                rebalance_ms=row["rebalanceTimeout"],
                protocols=[(content["protocol"], row["subscription"])],
                assignment=row["assignment"],
            )
            for row in content["members"]
        }
        self.state = State.STABLE if self.members else State.EMPTY
        self.note_subscriptions()
        group = Group(generation=content["generation"], members=frozenset(self.members))
        self.machine = replace(self.machine, group=group)

    def offset_delete_error(self) -> ErrorCode:
        """Kafka: ClassicGroup.validateOffsetDelete."""
        can = self.state is State.EMPTY or self.protocol_type == CONSUMER
        return ErrorCode.NONE if can else ErrorCode.NON_EMPTY_GROUP

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member with this instance id."""
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def instance_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """The error if a member is not that of an instance, or ``NONE``.    Kafka: ClassicGroup.validateMember."""
        if instance_id is None:
            return ErrorCode.NONE
        static = self.static_member(instance_id)
        if static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if static.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID

    def speaks(self, protocol_type: str | None, protocol: str | None) -> bool:
        """The protocol that a member names, if any, is the group's."""
        return protocol_type in {None, self.protocol_type} and protocol in {None, self.protocol}

    def is_subscribed_to(self, topic: str) -> bool:
        """A member of this generation subscribes to a topic; where it is not known, any consumer may.

        Kafka: ClassicGroup.isSubscribedToTopic
        """
        return self.protocol_type == CONSUMER if self.subscribed is None else topic in self.subscribed

    def note_subscriptions(self) -> None:
        """Read the subscriptions, when a generation begins or was loaded.

        Kafka: ClassicGroup.computeSubscribedTopics
        """
        said = [subscription(member.subscription(self.protocol)) for member in self.members.values()]
        known = [each.topics for each in said if each is not None]
        is_known = not said or (self.protocol_type == CONSUMER and len(known) == len(said))
        self.subscribed = frozenset[str]().union(*known) if is_known else None


class Surroundings(Protocol):
    """The part of the cluster that groups need."""

    now: int
    happened: Callable[..., None]
    names: dict[UUID, str]

    def topic_id(self, topic: str) -> UUID | None:
        """The id of a topic."""

    def offsets_partition(self, group: str) -> Leader:
        """The partition of ``__consumer_offsets`` that a group belongs to."""

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Do something at a time."""

    def new_id(self) -> str:
        """A name that nobody has."""


@dataclass(slots=True, kw_only=True)
class Groups:
    """The group coordinators of a cluster.

    Attributes:
        cluster: clock, timers, partitions.
        machine: the class of the machines.
        initial_delay_ms: how long the first member of an empty group waits for others.
        max_members: the most members of one group.
        known: the groups by id.
        stored: the records of each group that are in ``__consumer_offsets``.
    """

    cluster: Surroundings
    machine: type[GroupCoordinator] = GroupCoordinator
    initial_delay_ms: int = 0
    max_members: int = 1_000
    known: dict[str, ServedGroup[Any]] = field(default_factory=dict)
    stored: dict[str, Records] = field(default_factory=dict)

    def new(self, name: str) -> ClassicGroup:
        """A group that nobody knows yet."""
        nothing: frozenset[str] = frozenset()
        constants = GroupConstants(instances=nothing, partitions=nothing, transactional_ids=nothing, preferred=Map())
        machine = self.machine(
            constants=constants,
            group=Group(generation=0, members=nothing),
            pending=Map(),
            committed=Map(),
        )
        return ClassicGroup(name=name, machine=machine)

    def classic(self, name: str) -> ClassicGroup | None:
        """The group of this name if it is of the classic protocol."""
        group = self.known.get(name)
        return group if isinstance(group, ClassicGroup) else None

    # --- members -----------------------------------------------------------------------------------------------------

    def join(self, row: Message, version: int, client: tuple[str, str], reply: Reply) -> None:
        """Answer JoinGroup, at once or when the rebalance ends.

        Kafka: GroupMetadataManager.classicGroupJoinToClassicGroup
        """
        error, member_id = self._join_error(row, version, client[0])
        if error is not ErrorCode.NONE:
            reply({"ErrorCode": error, "MemberId": member_id, "ProtocolName": None if version >= 7 else ""})
            return
        group = self.classic(row["GroupId"])
        assert group is not None
        static = None if row["MemberId"] else group.static_member(row.get("GroupInstanceId"))
        if static is not None:
            self._restart(group, static, member_id, row, version, reply)
            return
        offered = [(p["Name"], p["Metadata"]) for p in row["Protocols"]]
        known = group.members.get(member_id)
        changed = known is None or known.protocols != offered
        member = known or Member(
            member_id=member_id,
            instance_id=row.get("GroupInstanceId"),
            client_id=client[0],
            client_host=client[1],
            session_ms=0,
            rebalance_ms=0,
            protocols=offered,
        )
        member.update(row)
        member.joins = reply
        if known is None:
            group.members[member_id] = member
            group.protocol_type = row["ProtocolType"]
            group.leader = group.leader or member_id
            self._watch(group, member)
        else:
            self._touch(member)
        joins_stable = group.state is State.STABLE and (changed or member_id == group.leader)
        joins_completing = group.state is State.COMPLETING_REBALANCE and changed
        if group.state is State.EMPTY or joins_stable or joins_completing:
            self._prepare_rebalance(group)
        if group.state is State.PREPARING_REBALANCE:
            group.machine = replace(group.machine, group=group.machine.group_with(member_id))
            self._complete_if_joined(group)
        else:
            self._answer_join(group, member)

    def _join_error(self, row: Message, version: int, client_id: str) -> tuple[ErrorCode, str]:
        """The reason why a member may not join, or ``NONE``; and its id, which it may be given here.

        An id that a dynamic member was given to come back with is no instance's: Kafka has no error code for that.

        Kafka: GroupMetadataManager.classicGroupJoinExistingMember
        """
        name, member_id, instance_id = row["GroupId"], row["MemberId"], row.get("GroupInstanceId")
        if not MIN_SESSION_MS <= row["SessionTimeoutMs"] <= MAX_SESSION_MS:
            return ErrorCode.INVALID_SESSION_TIMEOUT, member_id
        if member_id and self.classic(name) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, member_id
        group = self._classic_for(name)
        if not self._fits(group, row["ProtocolType"], [(p["Name"], p["Metadata"]) for p in row["Protocols"]]):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id
        if not member_id:
            return self._new_member(group, instance_id, row["SessionTimeoutMs"], version, client_id)
        if member_id in group.expected and instance_id is not None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, ""
        if group.expected.pop(member_id, None) is not None:
            return ErrorCode.NONE, member_id
        error = group.instance_error(member_id, instance_id)
        is_known = member_id in group.members
        return error or (ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID), member_id

    def _classic_for(self, name: str) -> ClassicGroup:
        """The classic group of this name; if there is none, one is made, written in place of an empty one of KIP-848.

        Departs from Kafka: a member id that is unknown is refused before. Kafka 4.3 then forgets the group of KIP-848
        although its records stay, so that its epochs begin again, until it is loaded.

        Kafka: GroupMetadataManager.maybeDeleteEmptyConsumerGroup, classicGroupJoinToClassicGroup
        """
        known = self.known.get(name)
        if isinstance(known, ClassicGroup):
            return known
        group = self.new(name)
        self.known[name] = group if known is None else group.with_offsets_of(known)
        self._write_group(group)
        return group

    def _new_member(
        self, group: ClassicGroup, instance_id: str | None, session_ms: int, version: int, client_id: str
    ) -> tuple[ErrorCode, str]:
        """A member without an id gets one; a dynamic one has to come back with it (KIP-394)."""
        is_restart = group.static_member(instance_id) is not None
        if not is_restart and len(group.members) + len(group.expected) >= self.max_members:
            return ErrorCode.GROUP_MAX_SIZE_REACHED, ""
        member_id = f"{instance_id or client_id}-{self.cluster.new_id()}"
        if instance_id is None and version >= FIRST_KNOWN_MEMBER:
            group.expected[member_id] = self.cluster.now + session_ms
            self.cluster.at(group.expected[member_id], lambda: self._expire_expected(group, member_id))
            return ErrorCode.MEMBER_ID_REQUIRED, member_id
        return ErrorCode.NONE, member_id

    def _fits(self, group: ClassicGroup, protocol_type: str, offered: Sequence[tuple[str, bytes]]) -> bool:
        """The member supports the others' protocol."""
        if not offered or not protocol_type:
            return False
        if not group.members:
            return True
        names = {name for name, _ in offered}
        common = set.intersection(*({name for name, _ in m.protocols} for m in group.members.values()))
        return protocol_type == group.protocol_type and bool(names & common)

    def sync(self, row: Message, reply: Reply) -> None:
        """Answer SyncGroup, at once or when the leader has sent the assignment; only then the session starts again.

        Kafka: GroupMetadataManager.classicGroupSyncToClassicGroup
        """
        group = self.classic(row["GroupId"])
        error = self._member_error(group, row["MemberId"], row["GenerationId"], row.get("GroupInstanceId"))
        if error is not ErrorCode.NONE:
            reply({"ErrorCode": error})
            return
        assert group is not None
        member = group.members[row["MemberId"]]
        if not group.speaks(row.get("ProtocolType"), row.get("ProtocolName")):
            reply({"ErrorCode": ErrorCode.INCONSISTENT_GROUP_PROTOCOL})
            return
        if group.state is State.PREPARING_REBALANCE:
            reply({"ErrorCode": ErrorCode.REBALANCE_IN_PROGRESS})
            return
        group.unsynced.discard(member.member_id)
        if group.state is State.STABLE:
            self._answer_sync(group, member, reply)
        else:
            member.syncs = reply
            if member.member_id == group.leader:
                given = {a["MemberId"]: a["Assignment"] for a in row["Assignments"]}
                for each in group.members.values():
                    each.assignment = given.get(each.member_id, b"")
                group.state = State.STABLE
                self._write_group(group)
                for each in group.members.values():
                    if each.syncs is not None:
                        waiting, each.syncs = each.syncs, None
                        self._touch(each)
                        self._answer_sync(group, each, waiting)

    def _answer_sync(self, group: ClassicGroup, member: Member, reply: Reply) -> None:
        reply(
            {
                "ErrorCode": ErrorCode.NONE,
                "Assignment": member.assignment,
                "ProtocolType": group.protocol_type,
                "ProtocolName": group.protocol,
            }
        )

    def heartbeat(self, row: Message) -> ErrorCode:
        """Note that a member is alive."""
        group = self.classic(row["GroupId"])
        error = self._member_error(group, row["MemberId"], row["GenerationId"], row.get("GroupInstanceId"))
        if error is not ErrorCode.NONE:
            return error
        assert group is not None
        self._touch(group.members[row["MemberId"]])
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, name: str, member_id: str, instance_id: str | None) -> ErrorCode:
        """Remove a member that leaves."""
        group = self.classic(name)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.expected.pop(member_id, None) is not None:
            self._complete_if_joined(group)
            return ErrorCode.NONE
        member = group.static_member(instance_id) if instance_id is not None else group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id and member.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        return ErrorCode.NONE

    def _member_error(
        self, group: ClassicGroup | None, member_id: str, generation: int, instance_id: str | None
    ) -> ErrorCode:
        """The error that refuses a member's request, or ``NONE``; one that waits for the next generation is a member.

        Kafka: ClassicGroup.validateMember
        """
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.instance_error(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        with_waiting = replace(group.machine.group, members=frozenset(group.members))
        return replace(group.machine, group=with_waiting).txn_offset_commit_error(member_id, generation)

    def _touch(self, member: Member) -> None:
        member.expires = self.cluster.now + member.session_ms

    def _watch(self, group: ClassicGroup, member: Member) -> None:
        """Remove the member when its session has ended, but not while it waits for an answer."""
        self._touch(member)

        def look() -> None:
            if group.members.get(member.member_id) is not member:
                return
            if member.joins is not None or member.syncs is not None:
                self._touch(member)
            if member.expires > self.cluster.now:
                self.cluster.at(member.expires, look)
            else:
                self.expired(group, member.member_id)
                self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)

        self.cluster.at(member.expires, look)

    def expired(self, group: ServedGroup[Any], member_id: str) -> None:
        """Say that a member was not heard of for too long.    Spec: ConsumeTransformProduce!ExpireSession."""
        node = self.cluster.offsets_partition(group.name).node
        self.cluster.happened("ExpireSession", node, group=group.name, detail={"member": member_id})

    def _expire_expected(self, group: ClassicGroup, member_id: str) -> None:
        if group.expected.pop(member_id, None) is not None:
            self._complete_if_joined(group)

    def _remove(self, group: ClassicGroup, member: Member, told: ErrorCode) -> None:
        """Remove a member, tell it so if it waits for an answer, and let the others join again."""
        member.tell(told)
        del group.members[member.member_id]
        if group.leader == member.member_id:
            group.leader = next(iter(group.members), "")
        machine = group.machine
        after = replace(machine, group=machine.group_without(member.member_id))
        group.machine = replace(after, pending=after.pending_after_removal(after.group.members))
        if group.state is not State.PREPARING_REBALANCE:
            self._prepare_rebalance(group)
        self._complete_if_joined(group)

    def _restart(
        self, group: ClassicGroup, member: Member, member_id: str, row: Message, version: int, reply: Reply
    ) -> None:
        """An instance starts again: it replaces the member that it was, and in a stable group nobody waits.

        KIP:   345, 814
        Kafka: GroupMetadataManager.updateStaticMemberThenRebalanceOrCompleteJoin
        """
        old, leader, protocol = member.member_id, group.leader, group.protocol
        member.tell(ErrorCode.FENCED_INSTANCE_ID, old)
        del group.members[old]
        restarted = replace(member, member_id=member_id)
        group.members[member_id] = restarted
        group.machine = replace(group.machine, group=_renamed(group.machine.group, old, member_id))
        group.leader = member_id if leader == old else leader
        restarted.update(row)
        restarted.joins = reply
        self._watch(group, restarted)
        if group.state is State.STABLE and self._choose(group.members.values()) == protocol:
            self._write_group(group)
            if version >= FIRST_SKIPPING:
                self._answer_join(group, restarted, skip=group.leader == member_id)
            else:  # such a leader would assign again: the answer does not name it as the leader
                self._answer_join(group, restarted, leader=leader)
            return
        if group.state is not State.PREPARING_REBALANCE:
            self._prepare_rebalance(group)
        group.machine = replace(group.machine, group=group.machine.group_with(member_id))
        self._complete_if_joined(group)

    def give_up(self, group: ClassicGroup) -> None:
        """Give the group up because it becomes one of KIP-848; waiting members are told to join again."""
        for member in group.members.values():
            member.tell(ErrorCode.REBALANCE_IN_PROGRESS)
        group.members.clear()
        group.expected.clear()
        group.rebalances += 1

    def take_over(self, group: ClassicGroup, *, rebalance: bool) -> None:
        """Adopt this stable group, which was one of KIP-848; members may have to join again."""
        self.known[group.name] = group
        group.protocol = self._choose(group.members.values())
        group.note_subscriptions()
        self._write_group(group)
        for member in group.members.values():
            self._watch(group, member)
        if rebalance:
            self._prepare_rebalance(group)

    # --- rebalances --------------------------------------------------------------------------------------------------

    def _prepare_rebalance(self, group: ClassicGroup) -> None:
        """Everybody has to join again.    Kafka: GroupMetadataManager.prepareRebalance."""
        group.was_empty = group.state is State.EMPTY
        for member in group.members.values():
            if member.syncs is not None:
                waiting, member.syncs = member.syncs, None
                waiting({"ErrorCode": ErrorCode.REBALANCE_IN_PROGRESS})
        group.state = State.PREPARING_REBALANCE
        group.rebalances += 1
        present = group.machine.group
        group.machine = replace(group.machine, group=replace(present, state=PREPARING_REBALANCE, joined=frozenset()))
        waits = max((member.rebalance_ms for member in group.members.values()), default=0)
        if group.was_empty and self.initial_delay_ms:
            waits = self.initial_delay_ms
        self._wait_for_all(group, waits)

    def _wait_for_all(self, group: ClassicGroup, waits: int) -> None:
        number = group.rebalances
        self.cluster.at(self.cluster.now + waits, lambda: self._end_waiting(group, number))

    def _end_waiting(self, group: ClassicGroup, number: int) -> None:
        """The rebalance has taken long enough: members that have not joined are removed."""
        if group.rebalances != number or group.state is not State.PREPARING_REBALANCE:
            return
        generation, joined = group.generation, group.machine.group.joined
        late = [member for member in group.members.values() if member.member_id not in joined]
        for member in late:
            if member.instance_id is None:
                self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        if group.generation != generation:  # the last one that was waited for is gone
            return
        if group.members and not group.machine.group.joined:  # nobody could lead
            self._wait_for_all(group, max(member.rebalance_ms for member in group.members.values()))
            return
        for member_id in group.members:  # a static member stays until its session ends
            group.machine = replace(group.machine, group=group.machine.group_with(member_id))
        if group.leader not in joined:
            group.leader = next((member_id for member_id in group.members if member_id in joined), "")
        self._complete(group)

    def _complete_if_joined(self, group: ClassicGroup) -> None:
        waits_for_others = self.initial_delay_ms and group.members if group.was_empty else group.expected
        if group.machine.all_have_joined() and not waits_for_others:
            self._complete(group)

    def _complete(self, group: ClassicGroup) -> None:
        """The next generation begins.    Kafka: GroupMetadataManager.completeClassicGroupJoin."""
        group.machine = replace(group.machine, group=group.machine.next_generation())
        assert group.machine.group.state == STABLE
        assert group.machine.group.members == group.members.keys()
        if not group.members:
            group.state, group.protocol, group.leader = State.EMPTY, None, ""
            group.note_subscriptions()
            self._write_group(group)
            return
        group.state = State.COMPLETING_REBALANCE
        group.protocol = self._choose(group.members.values())
        group.note_subscriptions()
        group.unsynced, generation = set(group.members), group.generation
        waits = max(member.rebalance_ms for member in group.members.values())
        self.cluster.at(self.cluster.now + waits, lambda: self._end_syncing(group, generation))
        for member in group.members.values():
            if member.joins is not None:
                self._touch(member)
                self._answer_join(group, member)

    def _end_syncing(self, group: ClassicGroup, generation: int) -> None:
        """Members that have not synced in time are removed.    Kafka: GroupMetadataManager.expirePendingSync."""
        if group.generation == generation and group.state in {State.COMPLETING_REBALANCE, State.STABLE}:
            for member in [group.members[each] for each in group.unsynced if each in group.members]:
                self._remove(group, member, ErrorCode.UNKNOWN_MEMBER_ID)

    @staticmethod
    def _choose(members: Iterable[Member]) -> str:
        """The assignor that all support and most prefer.    Kafka: ClassicGroup.selectProtocol."""
        chosen = list(members)
        common = set.intersection(*({name for name, _ in member.protocols} for member in chosen))
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in chosen)
        return votes.most_common(1)[0][0]

    def _answer_join(
        self, group: ClassicGroup, member: Member, *, leader: str | None = None, skip: bool = False
    ) -> None:
        """Answer JoinGroup.

        Args:
            group: the group in its new generation.
            member: the member that waits.
            leader: the leader that it is told; None for the group's leader.
            skip: it leads, and shall not assign.
        """
        leader = group.leader if leader is None else leader
        reply, member.joins = member.joins, None
        assert reply is not None
        assert group.protocol is not None
        everybody = group.members.values() if member.member_id == leader else ()
        reply(
            {
                "ErrorCode": ErrorCode.NONE,
                "GenerationId": group.generation,
                "ProtocolType": group.protocol_type,
                "ProtocolName": group.protocol,
                "Leader": leader,
                "SkipAssignment": skip,
                "MemberId": member.member_id,
                "Members": [
                    {
                        "MemberId": each.member_id,
                        "GroupInstanceId": each.instance_id,
                        "Metadata": each.subscription(group.protocol),
                    }
                    for each in everybody
                ],
            }
        )

    # --- offsets -----------------------------------------------------------------------------------------------------

    def commit_error(self, row: Message, transactional: bool, generation: int, version: int) -> ErrorCode:
        """The reason why offsets are refused; ``NONE`` if they are not.

        Kafka: OffsetMetadataManager.validateOffsetCommit, ClassicGroup.validateOffsetCommit
        """
        group = self.classic(row["GroupId"])
        member_id, instance_id = row["MemberId"], row.get("GroupInstanceId")
        is_anonymous = generation < 0 and not member_id and instance_id is None
        if group is None and generation < 0:
            return ErrorCode.NONE
        if group is None:
            knows_epochs = version >= (FIRST_OF_TRANSACTIONS_WITH_TOPIC_IDS if transactional else FIRST_WITH_EPOCHS)
            return ErrorCode.GROUP_ID_NOT_FOUND if knows_epochs else ErrorCode.ILLEGAL_GENERATION
        if generation < 0 and group.state is State.EMPTY:
            return ErrorCode.NONE
        if is_anonymous:
            return (
                group.machine.txn_offset_commit_error(None, generation)
                if transactional
                else ErrorCode.UNKNOWN_MEMBER_ID
            )
        error = self._member_error(group, member_id, generation, instance_id)
        if error is not ErrorCode.NONE or transactional:
            return error
        self._touch(group.members[member_id])
        waits = group.state is State.COMPLETING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if waits else ErrorCode.NONE

    def commit(self, name: str, offsets: Sequence[tuple[str, int, CommittedOffset]]) -> None:
        """Commit offsets, each given as topic, partition number and offset; the group is there even without any."""
        group = self._found_or_made(name)
        if not offsets:
            return
        partition = self.cluster.offsets_partition(name)
        place = partition.append_records(self._offset_records(name, offsets), self.cluster.now).base_offset
        self._committed(group, offsets, place)

    def _found_or_made(self, name: str) -> ServedGroup[Any]:
        """The group of this name; if there is none, one that has no members.

        Kafka: GroupMetadataManager.getOrMaybeCreateClassicGroup
        """
        group = self.known.get(name)
        if group is None:
            group = self.known[name] = self.new(name)
        return group

    @staticmethod
    def _committed(group: ServedGroup[Any], offsets: Sequence[tuple[str, int, CommittedOffset]], place: int) -> None:
        committed = group.machine.committed
        for number, (topic, partition, value) in enumerate(offsets):
            key = f"{topic}-{partition}"
            group.values.pop(committed.get(key, -1), None)
            group.values[place + number] = value
            committed = committed.set(key, place + number)
        group.machine = replace(group.machine, committed=committed)

    def commit_in_transaction(
        self,
        name: str,
        offsets: Sequence[tuple[str, int, CommittedOffset]],
        producer: tuple[int, int],
        ticket: Ticket,
    ) -> Appended:
        """Write offsets that are committed with the transaction of a producer id and epoch."""
        partition = self.cluster.offsets_partition(name)
        records = self._offset_records(name, offsets)
        written = partition.append_records(records, self.cluster.now, *producer, ticket)
        if written.error is ErrorCode.NONE:
            self._pending(self._found_or_made(name), offsets, str(producer[0]), written.base_offset)
        return written

    @staticmethod
    def _pending(
        group: ServedGroup[Any], offsets: Sequence[tuple[str, int, CommittedOffset]], producer: str, place: int
    ) -> None:
        """Spec: ConsumeTransformProduce!SendOffsets."""
        pending: Map[str, int] = group.machine.pending.get(producer, Map())
        for number, (topic, partition, value) in enumerate(offsets):
            key = f"{topic}-{partition}"
            group.values.pop(pending.get(key, -1), None)
            group.values[place + number] = value
            pending = pending.set(key, place + number)
        group.machine = group.machine.with_pending(producer, pending)

    def end_transaction(self, partition: Leader, producer_id: int, commit: bool) -> None:
        """A marker was written to a partition of ``__consumer_offsets``: pending offsets are committed or dropped."""
        producer = str(producer_id)
        for group in self.known.values():
            if producer not in group.machine.pending or self.cluster.offsets_partition(group.name) is not partition:
                continue
            group.machine = group.machine.with_decision(producer, COMMIT if commit else ABORT)
            kept = set(group.machine.committed.values()).union(*(p.values() for p in group.machine.pending.values()))
            group.values = {place: value for place, value in group.values.items() if place in kept}

    def fetch(
        self, name: str, partition: str, require_stable: bool, topic_id: UUID = NO_ID
    ) -> tuple[ErrorCode, CommittedOffset | None]:
        """The offset that a group has committed for a partition, of the topic with this id if one is given."""
        group = self.known.get(name)
        if group is None:
            return ErrorCode.NONE, None
        if require_stable and (error := group.machine.offset_fetch_error(partition)) is not ErrorCode.NONE:
            return error, None
        offset: CommittedOffset | None = group.committed(partition)
        return ErrorCode.NONE, offset if offset is not None and offset.is_of(topic_id) else None

    def delete(self, name: str) -> ErrorCode:
        """Delete a group without members, and its offsets, also those that are pending in a transaction."""
        group = self.known.get(name)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not State.EMPTY:  # a member may be about to join
            return ErrorCode.NON_EMPTY_GROUP
        self.delete_offsets(name, sorted(group.partitions))
        self.bury(group)
        self.store(name, {})
        del self.known[name]
        return ErrorCode.NONE

    def bury(self, group: ServedGroup[Any]) -> None:
        """Write the tombstone of a group that only has offsets: without one they bring it back after a restart.

        Kafka: ClassicGroup.createGroupTombstoneRecords
        """
        if not self.stored.get(group.name):
            self._append(group.name, [Record(key=key_bytes(CLASSIC_GROUP, {"group": group.name}))])

    def delete_offsets(self, name: str, partitions: Iterable[str]) -> None:
        """Forget committed and pending offsets of a group, by the partitions' names.

        Kafka: OffsetMetadataManager.deleteOffsets, deleteAllOffsets
        """
        group = self.known[name]
        own = group.partitions
        known = [key for key in partitions if key in own]
        for key in known:
            group.forget(key)
        if known:
            self._append(name, [Record(key=self._offset_key(name, key)) for key in known])

    # --- records of __consumer_offsets -------------------------------------------------------------------------------

    def _append(self, name: str, records: Iterable[Record]) -> None:
        self.cluster.offsets_partition(name).append_records(records, self.cluster.now)

    def store(self, name: str, records: Records) -> None:
        """Write, in one batch, the records of a group that differ from those stored, and tombstones of those gone.

        Args:
            name: the group's id.
            records: all records of the group but those of its offsets, in the order in which they are written.
        """
        before, order = self.stored.get(name, {}), list(RECORDS)
        gone = sorted(before.keys() - records.keys(), key=lambda each: (order.index(kind_of(each)), each))
        changed = [Record(key=each) for each in gone]
        changed += [Record(key=each, value=row) for each, row in records.items() if before.get(each) != row]
        if changed:
            self._append(name, changed)
        self.stored[name] = records

    def _offset_key(self, group: str, partition: str) -> bytes:
        topic, _, number = partition.rpartition("-")
        return key_bytes(OFFSET, {"group": group, "topic": topic, "partition": int(number)})

    def _offset_records(self, group: str, offsets: Iterable[tuple[str, int, CommittedOffset]]) -> list[Record]:
        return [
            Record(
                key=self._offset_key(group, f"{topic}-{partition}"),
                value=value_bytes(
                    OFFSET,
                    {
                        "offset": value.offset,
                        "leaderEpoch": value.leader_epoch,
                        "metadata": value.metadata,
                        "commitTimestamp": value.timestamp,
                        "topicId": value.topic_id,
                    },
                ),
            )
            for topic, partition, value in offsets
        ]

    def _write_group(self, group: ClassicGroup) -> None:
        """Kafka: GroupCoordinatorRecordHelpers.newGroupMetadataRecord."""
        row = {
            "protocolType": group.protocol_type,
            "generation": group.generation,
            "protocol": group.protocol,
            "leader": group.leader or None,
            "currentStateTimestamp": self.cluster.now,
            "members": [
                {
                    "memberId": member.member_id,
                    "groupInstanceId": member.instance_id,
                    "clientId": member.client_id,
                    "clientHost": member.client_host,
                    "rebalanceTimeout": member.rebalance_ms,
                    "sessionTimeout": member.session_ms,
                    "subscription": member.subscription(group.protocol),
                    "assignment": member.assignment,
                }
                for member in group.members.values()
            ],
        }
        self.store(group.name, {key_bytes(CLASSIC_GROUP, {"group": group.name}): value_bytes(CLASSIC_GROUP, row)})

    def recover(self, partition: Leader, batches: Iterable[RecordBatch]) -> None:
        """Read the groups and offsets of a partition of ``__consumer_offsets``; sessions of members start again.

        A group that ever had an offset stays until it is deleted, even if that offset is gone.

        Kafka: GroupCoordinatorShard.replay, replayEndTransactionMarker; OffsetMetadataManager.replay;
        GroupMetadataManager.onLoaded
        """
        had_offsets: set[str] = set()
        for batch in batches:
            if batch.is_control:
                marker = batch.control_record()
                if marker is not None:  # the cleaner has not removed it with its transaction
                    self.end_transaction(partition, batch.producer_id, marker.control_type.name == "COMMIT")
                continue
            for record in batch.records():
                if record.key is not None:
                    self._replay(record, batch, had_offsets)
        for name, kept in self.stored_in(partition):
            data = kept.get(key_bytes(CLASSIC_GROUP, {"group": name}))
            if data is not None:
                group = self.new(name)
                self.known[name] = group.with_offsets_of(self.known.get(name, group))
                group.recall(read_value(CLASSIC_GROUP, data))
                for member in group.members.values():
                    self._watch(group, member)
        for name, known in list(self.known.items()):
            is_there = self.stored.get(name) or known.machine.committed or known.machine.pending or name in had_offsets
            if self.cluster.offsets_partition(name) is partition and not is_there:
                del self.known[name]  # it was deleted

    def stored_in(self, partition: Leader) -> Iterator[tuple[str, Records]]:
        """The groups of a partition of ``__consumer_offsets`` that have records, with these."""
        return (
            (name, kept)
            for name, kept in self.stored.items()
            if kept and self.cluster.offsets_partition(name) is partition
        )

    def _replay(self, record: Record, batch: RecordBatch, had_offsets: set[str]) -> None:
        assert record.key is not None
        kind = kind_of(record.key)
        if kind not in RECORDS:
            return
        name, row = read_key(record.key)
        if kind != OFFSET:
            kept = self.stored.setdefault(name, {})
            kept.pop(record.key, None)
            if record.value is not None:
                kept[record.key] = record.value
            elif kind in {CLASSIC_GROUP, EPOCH}:
                had_offsets.discard(name)
            return
        group = self.known.setdefault(name, self.new(name))
        if record.value is None:
            group.forget(f"{row['topic']}-{row['partition']}")
            return
        had_offsets.add(name)
        content, place = read_value(OFFSET, record.value), batch.offset(record)
        offset = CommittedOffset(
            content["offset"],
            content["leaderEpoch"],
            content["metadata"],
            content["commitTimestamp"],
            content.get("topicId", NO_ID),
        )
        offsets = [(row["topic"], row["partition"], offset)]
        if batch.is_transactional:
            self._pending(group, offsets, str(batch.producer_id), place)
        else:
            self._committed(group, offsets, place)
