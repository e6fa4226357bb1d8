"""Consumer groups of KIP-848 as records of ``__consumer_offsets``, and read from them again.

The records of a group are a map: the group's epoch, for each member its subscription, its target assignment and its
present one, and the topics that each pattern was found to match. ``Groups.store`` writes what has changed of that map,
so a log is read by taking the last record of each key, whether it was compacted or not.

Departs from Kafka: the hash of the topics' metadata and the times are not computed. A Kafka that reads such a group
takes its topics for changed at the next heartbeat: it raises the group's epoch, and looks for the topics of patterns.

Kafka: GroupCoordinatorRecordHelpers, GroupMetadataManager.replay, ConsumerGroupMember.Builder.updateWith
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from immutables import Map

from kafka_eos.machines.consumer_group import ConsumerGroup, Membership
from kafka_eos.machines.consumer_group import Member as Following
from kafka_eos.server.consumer_groups import (
    LEAVE_FOR_A_WHILE,
    ClassicSide,
    Follower,
    FollowingGroup,
    by_topic,
    following,
)
from kafka_eos.server.groups import ServedGroup
from kafka_eos.server.offset_records import (
    CURRENT,
    EPOCH,
    MEMBER,
    PATTERN,
    RECORDS,
    TARGET,
    TARGET_EPOCH,
    Records,
    key_bytes,
    kind_of,
    read_key,
    read_value,
    value_bytes,
)
from kafka_eos.wire.protocol import Message

STABLE, UNREVOKED, UNRELEASED = 0, 1, 2
"""The states of a member.    Kafka: MemberState."""

_Ids = Callable[[str], UUID | None]
"""Gives the id of a topic, or None for one that is gone, whose name here is its id."""


def records_of(group: FollowingGroup, ids: _Ids) -> Records:
    """All records of a group, in the order in which Kafka writes them when a member joins."""
    of_group = {"GroupId": group.name}
    machine, records = group.machine, Records()

    def add(kind: int, row: Message, **more: str) -> None:
        records[key_bytes(kind, of_group | more)] = value_bytes(kind, row)

    for member_id, follower in group.followers.items():
        add(MEMBER, _member(follower), MemberId=member_id)
    for pattern in sorted({each.pattern for each in group.followers.values() if each.pattern and each.resolved}):
        known = [topic for topic in by_topic(machine.constants.partitions) if ids(topic) is not None]
        topics = [topic for topic in known if re.fullmatch(pattern, topic)]
        add(PATTERN, {"Topics": topics}, RegularExpression=pattern)
    add(EPOCH, {"Epoch": group.epoch})
    for member_id in group.followers:
        add(TARGET, {"TopicPartitions": _topics(ids, machine.constants.preferred_by(member_id))}, MemberId=member_id)
    add(TARGET_EPOCH, {"AssignmentEpoch": group.assigned_epoch})
    for member_id, follower in group.followers.items():
        add(CURRENT, _current(follower, group.current(member_id), ids), MemberId=member_id)
    return records


def _member(follower: Follower) -> Message:
    side = follower.classic
    return {
        "InstanceId": follower.instance_id,
        "RackId": follower.rack_id,
        "ClientId": follower.client_id,
        "ClientHost": follower.client_host,
        "SubscribedTopicNames": sorted(follower.topics),
        "SubscribedTopicRegex": follower.pattern or "",
        "RebalanceTimeoutMs": follower.rebalance_ms,
        "ServerAssignor": follower.assignor,
        "ClassicMemberMetadata": None
        if side is None
        else {
            "SessionTimeoutMs": side.session_ms,
            "SupportedProtocols": [{"Name": name, "Metadata": data} for name, data in side.protocols],
        },
    }


def _current(follower: Follower, current: Following, ids: _Ids) -> Message:
    state = UNREVOKED if current.revoking else UNRELEASED if follower.waits else STABLE
    return {
        "MemberEpoch": LEAVE_FOR_A_WHILE if follower.is_away else current.epoch,
        "PreviousMemberEpoch": follower.previous_epoch,
        "State": state,
        "AssignedPartitions": _topics(ids, current.assigned, current.assignment_epochs),
        "PartitionsPendingRevocation": _topics(ids, current.revoking, current.assignment_epochs),
    }


def _topics(ids: _Ids, partitions: Iterable[str], epochs: Mapping[str, int] = Map()) -> list[Message]:
    """Partitions by the ids of their topics, each with its assignment epoch if there are any."""
    return [
        {"TopicId": ids(topic) or UUID(topic), "Partitions": numbers}
        | ({"AssignmentEpochs": [epochs[f"{topic}-{number}"] for number in numbers]} if epochs else {})
        for topic, numbers in by_topic(partitions).items()
    ]


def _partitions(names: Mapping[UUID, str], topics: Iterable[Message], since: int = 0) -> dict[str, int]:
    """Partitions by name, each with its assignment epoch: ``since`` where none is stored, as before Kafka 4.3.

    A topic that is gone keeps its id as its name, so that the next assignment differs and the members are told.
    """
    found: dict[str, int] = {}
    for topic in topics:
        name, numbers = names.get(topic["TopicId"], str(topic["TopicId"])), topic["Partitions"]
        epochs = topic.get("AssignmentEpochs") or [since] * len(numbers)
        found |= {f"{name}-{number}": epoch for number, epoch in zip(numbers, epochs, strict=True)}
    return found


def restored(
    group: ServedGroup[Any], machine: type[ConsumerGroup], records: Records, names: Mapping[UUID, str]
) -> FollowingGroup:
    """A group with the members and epochs of its records.

    Args:
        group: has the group's name and offsets.
        machine: the class of the machine.
        records: all of the group.
        names: the names of topics.
    """
    found: dict[int, dict[str, Message]] = {kind: {} for kind in RECORDS}
    for data, content in records.items():
        _, row = read_key(data)
        of = row.get("MemberId") or row.get("RegularExpression", "")
        found[kind_of(data)][of] = read_value(kind_of(data), content)
    epoch = found[EPOCH].get("", {"Epoch": 0})["Epoch"]
    preferred = {
        partition: member_id
        for member_id, row in found[TARGET].items()
        for partition in _partitions(names, row["TopicPartitions"])
    }
    rows = {member_id: found[CURRENT].get(member_id, {}) for member_id in found[MEMBER]}
    members = Map({member_id: _following(names, row, epoch) for member_id, row in rows.items()})
    made = following(group, machine, Membership(epoch=epoch, members=members))
    constants = replace(made.machine.constants, partitions=frozenset(preferred), preferred=Map(preferred))
    made.machine = replace(made.machine, constants=constants)
    made.assigned_epoch = found[TARGET_EPOCH].get("", {"AssignmentEpoch": 0})["AssignmentEpoch"]
    made.followers = {
        member_id: _follower(member_id, row, rows[member_id], found[PATTERN].keys())
        for member_id, row in found[MEMBER].items()
    }
    return made


def _following(names: Mapping[UUID, str], row: Message, epoch: int) -> Following:
    """The machine's state of a member; for an instance that is away, in the group's epoch."""
    if not row:
        return Following()
    own = row["MemberEpoch"]
    assigned = _partitions(names, row["AssignedPartitions"], max(own, 0))
    revoking = _partitions(names, row["PartitionsPendingRevocation"], max(own, 0))
    return Following(
        epoch=epoch if own == LEAVE_FOR_A_WHILE else own,
        assigned=frozenset(assigned),
        revoking=frozenset(revoking),
        assignment_epochs=Map(assigned | revoking),
    )


def _follower(member_id: str, row: Message, current: Message, resolved: Collection[str]) -> Follower:
    side, pattern = row["ClassicMemberMetadata"], row["SubscribedTopicRegex"] or None
    return Follower(
        member_id=member_id,
        instance_id=row["InstanceId"],
        client_id=row["ClientId"],
        client_host=row["ClientHost"],
        rack_id=row["RackId"],
        rebalance_ms=row["RebalanceTimeoutMs"],
        topics=frozenset(row["SubscribedTopicNames"]),
        pattern=pattern,
        resolved=pattern in resolved,
        assignor=row["ServerAssignor"],
        previous_epoch=current.get("PreviousMemberEpoch", 0),
        waits=current.get("State") == UNRELEASED,
        is_away=current.get("MemberEpoch") == LEAVE_FOR_A_WHILE,
        classic=None
        if side is None
        else ClassicSide(
            protocols=[(each["Name"], each["Metadata"]) for each in side["SupportedProtocols"]],
            session_ms=side["SessionTimeoutMs"],
        ),
    )
