"""The coordinators of consumer groups (KIP-848), for their members and for those of the classic protocol among them.

Kafka: GroupMetadataManager
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.consumer_group import ConsumerGroup, Membership
from kafka_eos.server.consumer_groups import (
    ASSIGNORS,
    JOIN,
    LEAVE,
    LEAVE_FOR_A_WHILE,
    NEW_GROUP_EPOCH,
    NOTHING,
    Assignment,
    ClassicSide,
    Follower,
    FollowingGroup,
    by_topic,
    following,
    subscribe,
)
from kafka_eos.server.consumer_protocol import CONSUMER, assignment_bytes, subscription
from kafka_eos.server.groups import FIRST_KNOWN_MEMBER, ClassicGroup, Groups, ServedGroup
from kafka_eos.server.migration import BIDIRECTIONAL, DOWNGRADE, UPGRADE, downgraded, upgraded
from kafka_eos.server.offset_records import CLASSIC_GROUP, kind_of
from kafka_eos.server.partitions import Leader
from kafka_eos.server.stored_groups import records_of, restored
from kafka_eos.wire.protocol import Message

_BEYOND_RE2 = re.compile(r"\\[1-9]|\(\?(?:[=!>(]|<[=!]|P[=>])")
"""The parts of patterns that only Python has, not RE2: references, looking around, atomic and conditional groups."""
_POSSESSIVE = re.compile(r"[*+?}]\+")


class Beat(NamedTuple):
    """The answer to a heartbeat: the error and why, the member's id and epoch, and its assignment if it is news."""

    error: ErrorCode
    why: str | None = None
    member_id: str | None = None
    epoch: int = 0
    given: Assignment | None = None


@dataclass(slots=True, kw_only=True)
class ConsumerGroups:
    """The coordinators of consumer groups; the groups themselves stand among the others.

    Attributes:
        groups: all groups.
        machine: the class of the machines.
        heartbeat_ms: how often a member is to be heard of.    Kafka: group.consumer.heartbeat.interval.ms.
        session_ms: without a heartbeat for so long it is removed.    Kafka: group.consumer.session.timeout.ms.
        policy: which groups may change to the other protocol while they have members.
            Kafka: group.consumer.migration.policy.
        partitions: the number of partitions of each topic, as of the last request.
    """

    groups: Groups
    machine: type[ConsumerGroup] = ConsumerGroup
    heartbeat_ms: int = 1_000
    session_ms: int = 45_000
    policy: str = BIDIRECTIONAL
    partitions: Mapping[str, int] = field(default_factory=dict)

    def find(self, name: str) -> FollowingGroup | None:
        """The group of this name, if it is one of KIP-848."""
        group = self.groups.known.get(name)
        return group if isinstance(group, FollowingGroup) else None

    # --- records of __consumer_offsets -------------------------------------------------------------------------------

    def _store(self, group: FollowingGroup) -> None:
        self.groups.store(group.name, records_of(group, self.groups.cluster.topic_id))

    def recover(self, partition: Leader) -> None:
        """Restore the groups whose records a partition of ``__consumer_offsets`` has; sessions of members start again.

        Kafka: GroupMetadataManager.onLoaded
        """
        now = self.groups.cluster.now
        for name, kept in self.groups.stored_in(partition):
            if any(kind_of(key) == CLASSIC_GROUP for key in kept):
                continue
            empty = self.groups.known.get(name) or self.groups.new(name)
            group = self.groups.known[name] = restored(empty, self.machine, kept, self.groups.cluster.names)
            for follower in group.followers.values():
                follower.expires = now + self.session_ms
                if group.current(follower.member_id).revoking:
                    follower.gives_up_by = now + follower.rebalance_ms
                self._watch(group, follower)

    def lose_topic(self, topic: str, topic_id: UUID) -> None:
        """A topic is gone; the next heartbeat of each group starts a new assignment."""
        for group in self.groups.known.values():
            if isinstance(group, FollowingGroup):
                group.lose_topic(topic, str(topic_id))

    def _known_topics(self, partitions: Iterable[str]) -> dict[str, list[int]]:
        """Partitions as members of the classic protocol are told of them: by topic, without topics that are gone.

        Kafka: Utils.toConsumerProtocolAssignment
        """
        known = self.groups.cluster.topic_id
        return {topic: numbers for topic, numbers in by_topic(partitions).items() if known(topic) is not None}

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat(
        self,
        row: Message,
        version: int,
        client: tuple[str, str],
        owned: Assignment | None,
        partitions: Mapping[str, int],
    ) -> Beat:
        """A member says that it is there, joins or leaves.

        Args:
            row: the request's fields.
            version: the request's version.
            client: its id and its host.
            owned: the partitions that it says it has, by name; None if it says nothing about that.
            partitions: the number of partitions of each topic.
        """
        self.partitions = partitions
        name, epoch = row["GroupId"], row["MemberEpoch"]
        refused = _refused(row, version, owned)
        if refused is not None:
            return refused
        group = self._group_for(name, may_be_new=epoch == JOIN)
        if isinstance(group, str):
            return Beat(ErrorCode.GROUP_ID_NOT_FOUND, group)
        if epoch < JOIN:
            return self._leave(group, row)
        found = self._member(group, row, owned)
        if isinstance(found, ErrorCode):
            return Beat(found)
        pattern = row.get("SubscribedTopicRegex")
        if pattern and not is_pattern(pattern):
            why = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression."
            return Beat(ErrorCode.INVALID_REGULAR_EXPRESSION, why)
        member_id = row["MemberId"] or self.groups.cluster.new_id()
        before: Assignment | None = None
        if found is None:
            found = Follower(
                member_id=member_id, instance_id=row["InstanceId"], client_id=client[0], client_host=client[1]
            )
            self._subscribe(group, found, row)
            group.join(found, partitions)
            self._watch(group, found)
        else:
            if found.member_id != member_id:
                group.rename(found, member_id)
            before = group.current(member_id).assigned
            found.classic, found.is_away = None, False
            if self._subscribe(group, found, row):
                group.raise_epoch()
            if found.pattern is None or found.resolved or group.assigned_epoch < group.epoch:
                group.reassign(partitions)  # topics may have come or grown
        now = self.groups.cluster.now
        found.expires = now + self.session_ms
        group.reconcile(found, owned, now, begins=epoch == JOIN and found.instance_id is not None)
        self._store(group)
        current = group.current(member_id)
        is_full = row["RebalanceTimeoutMs"] != -1 and owned is not None and _subscribes(row)
        is_told = epoch == JOIN or is_full or current.assigned != before
        return Beat(ErrorCode.NONE, None, member_id, current.epoch, current.assigned if is_told else None)

    def _group_for(self, name: str, may_be_new: bool) -> FollowingGroup | str:
        """The group of this name, or why there is none; a classic one becomes one of KIP-848, if it may."""
        known = self.groups.known.get(name)
        if isinstance(known, FollowingGroup):
            return known
        if not may_be_new:
            return f"Consumer group {name} not found." if known is None else f"Group {name} is not a consumer group."
        if isinstance(known, ClassicGroup) and not known.is_empty:
            return self._upgrade(known)
        if known is not None:
            self.groups.bury(known)
        group = self._empty(known or self.groups.new(name))
        self.groups.known[name] = group
        return group

    def _empty(self, group: ServedGroup[Any]) -> FollowingGroup:
        made = following(group, self.machine, Membership(epoch=NEW_GROUP_EPOCH, members=Map()))
        made.assigned_epoch = NEW_GROUP_EPOCH
        return made

    def _member(self, group: FollowingGroup, row: Message, owned: Assignment | None) -> Follower | ErrorCode | None:
        """The member that sends a heartbeat, None if it is new, or why it may not send it.

        Kafka: GroupMetadataManager.getOrMaybeSubscribeDynamicConsumerGroupMember,
               getOrMaybeSubscribeStaticConsumerGroupMember
        """
        member_id, epoch, instance_id = row["MemberId"], row["MemberEpoch"], row["InstanceId"]
        if member_id not in group.followers and len(group.followers) >= self.groups.max_members:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        static = group.static_follower(instance_id)
        known = group.followers.get(member_id) if instance_id is None else static
        if epoch == JOIN:
            is_held = static is not None and static.classic is None and not static.is_away
            return ErrorCode.UNRELEASED_INSTANCE_ID if is_held else known
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if known.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        error = group.epoch_error(known, epoch, owned)
        return known if error is ErrorCode.NONE else error

    def _subscribe(self, group: FollowingGroup, follower: Follower, row: Message) -> bool:
        """Update a member from a heartbeat; True if it has a new subscription that can be assigned for at once."""
        if row["RebalanceTimeoutMs"] != -1:
            follower.rebalance_ms = row["RebalanceTimeoutMs"]
        follower.rack_id = row["RackId"] or follower.rack_id
        if row["ServerAssignor"] is not None:
            follower.assignor = row["ServerAssignor"]
        changed = subscribe(follower, row["SubscribedTopicNames"], row.get("SubscribedTopicRegex"))
        if follower.pattern is not None and not follower.resolved:  # new, or a restart came before it was resolved
            others = [each for each in group.followers.values() if each is not follower]
            follower.resolved = any(each.pattern == follower.pattern and each.resolved for each in others)
            if not follower.resolved:
                self._resolve_later(group, follower)
        return changed.names or (changed.pattern and (follower.resolved or follower.pattern is None))

    def _resolve_later(self, group: FollowingGroup, follower: Follower) -> None:
        """Resolve a pattern after the request that brings it.

        Kafka: GroupMetadataManager.maybeUpdateRegularExpressions
        """

        def resolve() -> None:
            follower.resolved = True
            if group.followers.get(follower.member_id) is follower:
                group.reassign(self.partitions)
                self._store(group)

        self.groups.cluster.at(self.groups.cluster.now, resolve)

    def _leave(self, group: FollowingGroup, row: Message) -> Beat:
        member_id, epoch, instance_id = row["MemberId"], row["MemberEpoch"], row["InstanceId"]
        found = self._known(group, member_id, instance_id)
        if isinstance(found, ErrorCode):
            return Beat(found)
        if epoch == LEAVE_FOR_A_WHILE and instance_id is not None:
            group.leave_for_a_while(found)
            self._store(group)
        else:
            self._fence(group, [found])
        return Beat(ErrorCode.NONE, None, member_id, epoch)

    @staticmethod
    def _known(group: FollowingGroup, member_id: str, instance_id: str | None) -> Follower | ErrorCode:
        """A member by its id, or by that of its instance.

        Kafka: GroupMetadataManager.validateConsumerGroupMember
        """
        found = group.followers.get(member_id) if instance_id is None else group.static_follower(instance_id)
        if found is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return found if found.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID

    def _fence(self, group: FollowingGroup, leaving: Sequence[Follower]) -> None:
        """Remove members; if only members of the classic protocol stay, the group becomes a classic one."""
        if not leaving:
            return
        if self._can_be_classic(group, leaving):
            self._downgrade(group, leaving, rebalance=True)
        else:
            group.leave(leaving)
            self._store(group)

    def _watch(self, group: FollowingGroup, follower: Follower) -> None:
        """Remove a member that sends no heartbeat, or does not do in time what it has to."""

        def look() -> None:
            now = self.groups.cluster.now
            if group.followers.get(follower.member_id) is not follower:
                return
            if follower.deadline() <= now:
                self.groups.expired(group, follower.member_id)
                self._fence(group, [follower])
            else:
                self.groups.cluster.at(min(now + self.heartbeat_ms, follower.deadline()), look)

        self.groups.cluster.at(self.groups.cluster.now + self.heartbeat_ms, look)

    # --- members of the classic protocol -----------------------------------------------------------------------------

    def join(
        self,
        group: FollowingGroup,
        row: Message,
        version: int,
        client: tuple[str, str],
        partitions: Mapping[str, int],
    ) -> Message:
        """Answer JoinGroup of a member of the classic protocol.

        Kafka: GroupMetadataManager.classicGroupJoinToConsumerGroup
        """
        self.partitions = partitions
        instance_id = row.get("GroupInstanceId")
        member_id = row["MemberId"] or self.groups.cluster.new_id()
        error = self._join_error(group, row, version, member_id)
        if error is not ErrorCode.NONE:
            told = member_id if error is ErrorCode.MEMBER_ID_REQUIRED else ""
            return {"ErrorCode": error, "MemberId": told, "ProtocolName": None if version >= 7 else ""}
        offered = [(p["Name"], p["Metadata"]) for p in row["Protocols"]]
        side = ClassicSide(protocols=offered, session_ms=row["SessionTimeoutMs"])
        static = group.static_follower(instance_id)
        turns_back = static is not None and self._can_be_classic(group, [static], replaced=True)
        follower = group.followers.get(member_id) if instance_id is None else static
        said = subscription(offered[0][1])
        assert said is not None, "it could be read"
        begins, is_stale = instance_id is not None and not row["MemberId"], False
        if follower is None:
            follower = Follower(
                member_id=member_id,
                instance_id=instance_id,
                client_id=client[0],
                client_host=client[1],
                topics=said.topics,
            )
            group.join(follower, partitions)
            self._watch(group, follower)
        else:
            group.rename(follower, member_id)
            is_new = any(subscribe(follower, said.topics, ""))
            if turns_back:  # in the epoch that the group has: Kafka's record of the next one is not replayed yet
                is_stale = is_new or group.assigned_epoch < group.epoch
            else:
                if is_new:
                    group.raise_epoch()
                group.reassign(partitions)
        now = self.groups.cluster.now
        follower.classic, follower.assignor = side, None
        follower.rebalance_ms = row.get("RebalanceTimeoutMs", side.session_ms)
        follower.expires, side.syncs_by = now + side.session_ms, now + follower.rebalance_ms
        if not is_stale:
            group.reconcile(follower, said.owned, now, begins=begins)
        self._store(group)
        generation = JOIN if is_stale and begins else group.current(member_id).epoch
        if turns_back:
            self._downgrade(group, [], rebalance=is_stale)
        return {
            "GenerationId": generation,
            "ProtocolType": CONSUMER,
            "ProtocolName": side.protocol,
            "MemberId": member_id,
        }

    def _join_error(self, group: FollowingGroup, row: Message, version: int, member_id: str) -> ErrorCode:
        """The reason why a member of the classic protocol may not join; ``NONE`` if it may."""
        instance_id, offered = row.get("GroupInstanceId"), row["Protocols"]
        if member_id not in group.followers and len(group.followers) >= self.groups.max_members:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if row["ProtocolType"] != CONSUMER or not group.speaks([each["Name"] for each in offered]):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not row["MemberId"] and instance_id is None and version >= FIRST_KNOWN_MEMBER:
            return ErrorCode.MEMBER_ID_REQUIRED
        if subscription(offered[0]["Metadata"]) is None:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # Departs from Kafka: it has no error code for that
        if row["MemberId"] and instance_id is not None:
            known = self._known(group, member_id, instance_id)
            return known if isinstance(known, ErrorCode) else ErrorCode.NONE
        return ErrorCode.NONE

    def sync(self, group: FollowingGroup, row: Message) -> Message:
        """Answer SyncGroup of a member of the classic protocol.

        Kafka: GroupMetadataManager.classicGroupSyncToConsumerGroup
        """
        found = self._classic_member(group, row)
        if isinstance(found, ErrorCode):
            return {"ErrorCode": found}
        follower, side = found
        speaks = row.get("ProtocolType") in {None, CONSUMER} and row.get("ProtocolName") in {None, side.protocol}
        if not speaks:
            return {"ErrorCode": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
        current = group.current(follower.member_id)
        if group.assigned_epoch > current.epoch and not current.revoking:
            self._has_to_join(follower, side)
            return {"ErrorCode": ErrorCode.REBALANCE_IN_PROGRESS}
        side.syncs_by = None
        follower.expires = self.groups.cluster.now + side.session_ms
        return {
            "ProtocolType": CONSUMER,
            "ProtocolName": side.protocol,
            "Assignment": assignment_bytes(self._known_topics(current.assigned).items(), side.version),
        }

    def classic_heartbeat(self, group: FollowingGroup, row: Message) -> ErrorCode:
        """Answer Heartbeat of a member of the classic protocol.

        Kafka: GroupMetadataManager.classicGroupHeartbeatToConsumerGroup
        """
        found = self._classic_member(group, row)
        if isinstance(found, ErrorCode):
            return found
        follower, side = found
        follower.expires = self.groups.cluster.now + side.session_ms
        current = group.current(follower.member_id)
        is_behind = current.epoch < group.assigned_epoch or bool(current.revoking)
        can_have_more = current.assigned != group.target(follower.member_id)
        if is_behind or (can_have_more and not group.waits_for_others(follower.member_id)):
            self._has_to_join(follower, side)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _has_to_join(self, follower: Follower, side: ClassicSide) -> None:
        if side.joins_by is None:
            side.joins_by = self.groups.cluster.now + follower.rebalance_ms

    def _classic_member(self, group: FollowingGroup, row: Message) -> tuple[Follower, ClassicSide] | ErrorCode:
        found = self._known(group, row["MemberId"], row.get("GroupInstanceId"))
        if isinstance(found, ErrorCode):
            return found
        if found.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group.current(found.member_id).epoch != row["GenerationId"]:
            return ErrorCode.ILLEGAL_GENERATION
        return found, found.classic

    def leave(self, group: FollowingGroup, members: Sequence[tuple[str, str | None]]) -> list[ErrorCode]:
        """Members, by their ids and those of their instances, leave.

        Kafka: GroupMetadataManager.classicGroupLeaveToConsumerGroup
        """
        leaving: dict[str, Follower] = {}
        errors = []
        for member_id, instance_id in members:
            static = group.static_follower(instance_id)
            asked = static.member_id if static is not None and not member_id else member_id
            found = self._known(group, asked, instance_id)
            if isinstance(found, Follower):
                leaving[found.member_id] = found
            errors.append(found if isinstance(found, ErrorCode) else ErrorCode.NONE)
        self._fence(group, list(leaving.values()))
        return errors

    # --- migration ---------------------------------------------------------------------------------------------------

    def _upgrade(self, group: ClassicGroup) -> FollowingGroup | str:
        """The classic group as one of KIP-848, or why it cannot be one.

        Kafka: GroupMetadataManager.validateOnlineUpgrade
        """
        if self.policy not in {UPGRADE, BIDIRECTIONAL}:
            return f"Cannot upgrade classic group {group.name} to consumer group because online upgrade is disabled."
        known = [f"{topic}-{number}" for topic, count in self.partitions.items() for number in range(count)]
        made = upgraded(group, self.machine, known, self.groups.cluster.now)
        if isinstance(made, str):
            return made
        self.groups.give_up(group)
        self.groups.known[group.name] = made
        for follower in made.followers.values():
            self._watch(made, follower)
        return made

    def _can_be_classic(self, group: FollowingGroup, but: Collection[Follower], *, replaced: bool = False) -> bool:
        """Whether some members stay, and all that neither leave nor are replaced have the classic protocol.

        Kafka: GroupMetadataManager.validateOnlineDowngradeWithFencedMembers, validateOnlineDowngradeWithReplacedMember
        """
        gone = {each.member_id for each in but}
        others = [each for member_id, each in group.followers.items() if member_id not in gone]
        allowed = self.policy in {DOWNGRADE, BIDIRECTIONAL}
        return allowed and (bool(others) or replaced) and all(each.classic is not None for each in others)

    def _downgrade(self, group: FollowingGroup, leaving: Collection[Follower], *, rebalance: bool) -> None:
        gone = {each.member_id for each in leaving}
        made = downgraded(group, self.groups.new(group.name), gone, self._known_topics)
        group.followers.clear()
        self.groups.take_over(made, rebalance=rebalance)


def _refused(row: Message, version: int, owned: Assignment | None) -> Beat | None:
    """The answer to an invalid heartbeat; None if it is valid.

    Kafka: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid
    """
    epoch = row["MemberEpoch"]
    why = None
    if not row["MemberId"] and (version >= 1 or epoch > JOIN or epoch == LEAVE):
        why = "MemberId can't be empty."
    elif not row["GroupId"]:
        why = "GroupId can't be empty."
    elif row["InstanceId"] == "":
        why = "InstanceId can't be empty."
    elif row["RackId"] == "":
        why = "RackId can't be empty."
    elif epoch == JOIN and row["RebalanceTimeoutMs"] == -1:
        why = "RebalanceTimeoutMs must be provided in first request."
    elif epoch == JOIN and owned != NOTHING:
        why = "TopicPartitions must be empty when (re-)joining."
    elif epoch == JOIN and not _subscribes(row):
        why = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == LEAVE_FOR_A_WHILE and row["InstanceId"] is None:
        why = "InstanceId can't be null."
    elif epoch < LEAVE_FOR_A_WHILE:
        why = "MemberEpoch is invalid."
    if why is not None:
        return Beat(ErrorCode.INVALID_REQUEST, why)
    if row["ServerAssignor"] not in {None, *ASSIGNORS}:
        known = ", ".join(ASSIGNORS)
        return Beat(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {row['ServerAssignor']} is not supported. Supported assignors: {known}.",
        )
    return None


def _subscribes(row: Message) -> bool:
    return row["SubscribedTopicNames"] is not None or row.get("SubscribedTopicRegex") is not None


def is_pattern(text: str) -> bool:
    r"""Whether a pattern is one of RE2, as far as Python's patterns agree with those.

    What both know is accepted and means the same; what Python has beyond RE2 is refused. Also refused is what only RE2
    has: ``\pL``, ``\C``, ``\Q…\E``, ``[[:alpha:]]`` (read as a set of letters), and flags after the start.
    """
    if _BEYOND_RE2.search(text) or _POSSESSIVE.search(re.sub(r"\\.|\[[^]]*\]", "", text)):
        return False
    try:
        re.compile(text)
    except re.error:
        return False
    return True
