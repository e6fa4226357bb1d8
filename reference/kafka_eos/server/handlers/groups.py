"""Members of groups, of either protocol."""

from collections.abc import Iterable

from kafka_eos.errors import ErrorCode
from kafka_eos.server.cluster import Cluster
from kafka_eos.server.consumer_groups import JOIN, LEAVE_FOR_A_WHILE, Follower, FollowingGroup, by_topic
from kafka_eos.server.consumer_protocol import CONSUMER
from kafka_eos.server.groups import FIRST_NAMING_PROTOCOL, State
from kafka_eos.server.handlers.request import (
    Request,
    group_error,
    named_group_error,
)
from kafka_eos.wire.protocol import Message

ALL_OPERATIONS, NO_OPERATIONS = 3400, -(1 << 31)
"""The bits of the operations that everybody may do on a group (read, delete, describe, see and alter settings), and the
value for a request that does not ask for them.

Kafka: AclEntry.supportedOperations
"""


def _operations(request: Request) -> int:
    return ALL_OPERATIONS if request.row.get("IncludeAuthorizedOperations") else NO_OPERATIONS


def join_group(cluster: Cluster, request: Request) -> Message | None:
    """Join a classic group."""
    error = named_group_error(cluster, request, request.row["GroupId"])
    if error is not ErrorCode.NONE:
        name = None if request.version >= 7 else ""
        return {"ErrorCode": error, "MemberId": request.row["MemberId"], "ProtocolName": name}
    client = request.client_id, request.client_host
    group = cluster.consumer_groups.find(request.row["GroupId"])
    if group is not None and not group.is_empty:
        return cluster.consumer_groups.join(group, request.row, request.version, client, cluster.partition_counts())
    cluster.groups.join(request.row, request.version, client, request.reply)
    return None


def sync_group(cluster: Cluster, request: Request) -> Message | None:
    """Take part in the assignment of a generation."""
    if request.version >= FIRST_NAMING_PROTOCOL and None in (request.row["ProtocolType"], request.row["ProtocolName"]):
        return {"ErrorCode": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    error = named_group_error(cluster, request, request.row["GroupId"])
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error}
    group = cluster.consumer_groups.find(request.row["GroupId"])
    if group is not None:
        return cluster.consumer_groups.sync(group, request.row)
    cluster.groups.sync(request.row, request.reply)
    return None


def heartbeat(cluster: Cluster, request: Request) -> Message:
    """Note that a member is alive."""
    error = named_group_error(cluster, request, request.row["GroupId"])
    group = cluster.consumer_groups.find(request.row["GroupId"])
    if error is ErrorCode.NONE and group is not None:
        return {"ErrorCode": cluster.consumer_groups.classic_heartbeat(group, request.row)}
    return {"ErrorCode": error or cluster.groups.heartbeat(request.row)}


def leave_group(cluster: Cluster, request: Request) -> Message:
    """Remove members that leave."""
    row = request.row
    error = named_group_error(cluster, request, row["GroupId"])
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error}
    rows = row["Members"] if request.version >= 3 else [{"MemberId": row["MemberId"], "GroupInstanceId": None}]
    asked = [(each["MemberId"], each["GroupInstanceId"]) for each in rows]
    group = cluster.consumer_groups.find(row["GroupId"])
    if group is None:
        errors = [cluster.groups.leave(row["GroupId"], *who) for who in asked]
    else:
        errors = cluster.consumer_groups.leave(group, asked)
    if request.version < 3:
        return {"ErrorCode": errors[0]}
    return {
        "Members": [
            {"MemberId": member_id, "GroupInstanceId": instance_id, "ErrorCode": told}
            for (member_id, instance_id), told in zip(asked, errors, strict=True)
        ]
    }


def describe_groups(cluster: Cluster, request: Request) -> Message:
    """The states and members of groups."""
    rows = []
    for name in request.row["Groups"]:
        error = group_error(cluster, request, name)
        found = _described(cluster, request, name) if error is ErrorCode.NONE else {"ErrorCode": error}
        rows.append({"GroupId": name} | found)
    return {"Groups": rows}


def _described(cluster: Cluster, request: Request, name: str) -> Message:
    """The state and the members of a classic group, which its coordinator describes."""
    group = cluster.groups.classic(name)
    if group is None:
        unknown = {"ErrorCode": ErrorCode.GROUP_ID_NOT_FOUND, "ErrorMessage": f"Group {name} not found."}
        return {"GroupState": "Dead"} | (unknown if request.version >= 6 else {})
    is_stable = group.state is State.STABLE
    return {
        "AuthorizedOperations": _operations(request),
        "GroupState": group.state,
        "ProtocolType": group.protocol_type,
        "ProtocolData": (group.protocol or "") if is_stable else "",
        "Members": [
            {
                "MemberId": member.member_id,
                "GroupInstanceId": member.instance_id,
                "ClientId": member.client_id,
                "ClientHost": member.client_host,
                "MemberMetadata": member.subscription(group.protocol) if is_stable else b"",
                "MemberAssignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }


def list_groups(cluster: Cluster, request: Request) -> Message:
    """The groups of a broker's coordinators."""
    states = {state.lower() for state in request.row.get("StatesFilter", ())}
    types = {kind.lower() for kind in request.row.get("TypesFilter", ())}
    return {
        "Groups": [
            {
                "GroupId": group.name,
                "ProtocolType": group.protocol_type,
                "GroupState": group.state,
                "GroupType": group.group_type,
            }
            for group in cluster.groups.known.values()
            if cluster.offsets_partition(group.name).node == request.node
            and (not states or group.state.lower() in states)
            and (not types or group.group_type in types)
        ]
    }


def consumer_group_heartbeat(cluster: Cluster, request: Request) -> Message:
    """A member of a consumer group (KIP-848) is there, joins or leaves."""
    row = request.row
    error = group_error(cluster, request, row["GroupId"])
    if CONSUMER not in cluster.settings.rebalance_protocols:
        error = ErrorCode.UNSUPPORTED_VERSION
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error}
    owned = None
    if row["TopicPartitions"] is not None:
        owned = frozenset(
            f"{cluster.names.get(topic['TopicId'], str(topic['TopicId']))}-{number}"
            for topic in row["TopicPartitions"]
            for number in topic["Partitions"]
        )
    client = request.client_id, request.client_host
    counts = cluster.partition_counts()
    beat = cluster.consumer_groups.heartbeat(row, request.version, client, owned, counts)
    if beat.error is not ErrorCode.NONE:
        return {"ErrorCode": beat.error, "ErrorMessage": beat.why}
    is_leaving = beat.epoch < JOIN
    return {
        "MemberId": beat.member_id,
        "MemberEpoch": beat.epoch,
        "HeartbeatIntervalMs": 0 if is_leaving else cluster.consumer_groups.heartbeat_ms,
        "Assignment": None if beat.given is None else {"TopicPartitions": _topic_partitions(cluster, beat.given)},
    }


def _topic_partitions(cluster: Cluster, partitions: Iterable[str]) -> list[Message]:
    return [
        {"TopicId": cluster.topics[topic].topic_id, "TopicName": topic, "Partitions": numbers}
        for topic, numbers in by_topic(partitions).items()
        if topic in cluster.topics
    ]


def consumer_group_describe(cluster: Cluster, request: Request) -> Message:
    """States and members of consumer groups (KIP-848)."""
    rows = []
    for name in request.row["GroupIds"]:
        error = group_error(cluster, request, name)
        group = cluster.consumer_groups.find(name)
        if CONSUMER not in cluster.settings.rebalance_protocols:
            error = ErrorCode.UNSUPPORTED_VERSION
        elif error is ErrorCode.NONE and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND if name else ErrorCode.INVALID_GROUP_ID
        row: Message = {"GroupId": name, "ErrorCode": error}
        if group is not None and error is ErrorCode.NONE:
            row |= {
                "AuthorizedOperations": _operations(request),
                "GroupState": group.state,
                "GroupEpoch": group.epoch,
                "AssignmentEpoch": group.assigned_epoch,
                "AssignorName": group.assignor,
                "Members": [_described_follower(cluster, group, follower) for follower in group.followers.values()],
            }
        rows.append(row)
    return {"Groups": rows}


def _described_follower(cluster: Cluster, group: FollowingGroup, follower: Follower) -> Message:
    current = group.current(follower.member_id)
    return {
        "MemberId": follower.member_id,
        "InstanceId": follower.instance_id,
        "RackId": follower.rack_id,
        "MemberEpoch": LEAVE_FOR_A_WHILE if follower.is_away else current.epoch,
        "ClientId": follower.client_id,
        "ClientHost": follower.client_host,
        "SubscribedTopicNames": sorted(follower.topics),
        "SubscribedTopicRegex": follower.pattern or "",
        "Assignment": {"TopicPartitions": _topic_partitions(cluster, current.assigned | current.revoking)},
        "TargetAssignment": {"TopicPartitions": _topic_partitions(cluster, group.target(follower.member_id))},
        "MemberType": 0 if follower.classic else 1,
    }


def delete_groups(cluster: Cluster, request: Request) -> Message:
    """Delete groups, with their offsets. One that is named twice is answered once.

    Kafka: KafkaApis.handleDeleteGroupsRequest
    """
    rows = []
    for name in dict.fromkeys(request.row["GroupsNames"]):
        error = group_error(cluster, request, name)
        rows.append({"GroupId": name, "ErrorCode": error or cluster.groups.delete(name)})
    return {"Results": rows}
