"""From classic groups to consumer groups of KIP-848 and back, while members stay.

The first member of the consumer protocol turns a classic group of consumers into a consumer group, in which the others
go on by the classic protocol; when the last one leaves, or becomes one of the classic protocol, the group turns back.

KIP:   848
Kafka: GroupMetadataManager.convertToConsumerGroup, convertToClassicGroup, ConsumerGroup.fromClassicGroup,
       ClassicGroup.fromConsumerGroup
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from immutables import Map

from kafka_eos.machines.consumer_group import ConsumerGroup, Membership
from kafka_eos.machines.consumer_group import Member as Following
from kafka_eos.machines.group_coordinator import Group
from kafka_eos.server.consumer_groups import Assignment, ClassicSide, Follower, FollowingGroup, following
from kafka_eos.server.consumer_protocol import CONSUMER, assignment, assignment_bytes, subscription
from kafka_eos.server.groups import ClassicGroup, Member, State

UPGRADE, DOWNGRADE, BIDIRECTIONAL, DISABLED = "upgrade", "downgrade", "bidirectional", "disabled"
"""Kafka: group.consumer.migration.policy."""


def upgraded(
    group: ClassicGroup, machine: type[ConsumerGroup], known: Collection[str], now: int
) -> FollowingGroup | str:
    """A classic group as a consumer group, or why it cannot be one.

    Args:
        group: the group, with members.
        machine: the class of the machine.
        known: the partitions that there are.
        now: milliseconds.
    """
    refusal = f"Cannot upgrade classic group {group.name} to consumer group because"
    if group.protocol_type != CONSUMER:
        return f"{refusal} the group does not use the consumer embedded protocol."
    followers: dict[str, Follower] = {}
    assigned: dict[str, Assignment] = {}
    for member in group.members.values():
        given, said = assignment(member.assignment), subscription(member.subscription(group.protocol))
        if given is None or said is None:
            return f"{refusal} the embedded consumer protocol is malformed."
        if given[1]:  # what a leader adds for its own assignor would be lost
            return (
                f"{refusal} an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                "default assignor before re-attempting the upgrade."
            )
        assigned[member.member_id] = given[0] & frozenset(known)
        followers[member.member_id] = Follower(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_ms=member.rebalance_ms,
            topics=said.topics,
            previous_epoch=group.generation,
            expires=now + member.session_ms,
            classic=ClassicSide(protocols=member.protocols, session_ms=member.session_ms),
        )
    epoch = group.generation
    members = Map({member: Following.with_partitions(each, epoch) for member, each in assigned.items()})
    made = following(group, machine, Membership(epoch=epoch, members=members))
    preferred = Map({partition: member for member, each in assigned.items() for partition in each})
    constants = replace(made.machine.constants, partitions=frozenset(preferred), preferred=preferred)
    made.machine = replace(made.machine, constants=constants)
    made.followers, made.assigned_epoch = followers, epoch
    return made


def downgraded(
    group: FollowingGroup,
    empty: ClassicGroup,
    leaving: Collection[str],
    told: Callable[[Iterable[str]], Mapping[str, list[int]]],
) -> ClassicGroup:
    """A consumer group, whose members are all of the classic protocol, as a classic group.

    Args:
        group: the group, with members.
        empty: a new group of that name, which gets the members and the offsets.
        leaving: the ids of those that do not come along.
        told: gives the numbers of partitions by topic.
    """
    for follower in group.followers.values():
        if follower.member_id in leaving:
            continue
        side = follower.classic
        assert side is not None, "all members are of the classic protocol"
        empty.members[follower.member_id] = Member(
            member_id=follower.member_id,
            instance_id=follower.instance_id,
            client_id=follower.client_id,
            client_host=follower.client_host,
            session_ms=side.session_ms,
            rebalance_ms=follower.rebalance_ms,
            protocols=side.protocols,
            assignment=assignment_bytes(told(group.target(follower.member_id)).items(), side.version),
        )
    members = frozenset(empty.members)
    empty.machine = replace(
        empty.machine,
        group=Group(generation=group.epoch, members=members),
        committed=group.machine.committed,
        pending=group.machine.pending,
    )
    empty.values, empty.protocol_type, empty.state = group.values, CONSUMER, State.STABLE
    empty.leader = next(iter(empty.members))
    return empty
