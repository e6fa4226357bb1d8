"""Members of groups, of either protocol."""

from collections.abc import Iterable

from kafka_eos.errors import ErrorCode
from kafka_eos.protocol import Message
from kafka_eos.server.cluster import Cluster
from kafka_eos.server.consumer_groups import Follower, FollowingGroup, by_topic
from kafka_eos.server.handlers.request import (
    Request,
    group_error,
)


def join_group(cluster: Cluster, request: Request) -> Message | None:
    """Join a classic group."""
    error = group_error(cluster, request, request.row["GroupId"])
    if error is not ErrorCode.NONE:
        name = None if request.version >= 7 else ""
        return {"ErrorCode": error, "MemberId": request.row["MemberId"], "ProtocolName": name}
    client = request.client_id, request.client_host
    cluster.groups.join(request.row, request.version, client, request.reply)
    return None


def sync_group(cluster: Cluster, request: Request) -> Message | None:
    """Take part in the assignment of a generation."""
    error = group_error(cluster, request, request.row["GroupId"])
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error}
    cluster.groups.sync(request.row, request.reply)
    return None


def heartbeat(cluster: Cluster, request: Request) -> Message:
    """A member is alive."""
    error = group_error(cluster, request, request.row["GroupId"])
    return {"ErrorCode": error or cluster.groups.heartbeat(request.row)}


def leave_group(cluster: Cluster, request: Request) -> Message:
    """Members leave."""
    row = request.row
    error = group_error(cluster, request, row["GroupId"])
    if request.version < 3:
        return {"ErrorCode": error or cluster.groups.leave(row["GroupId"], row["MemberId"], None)}
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error, "Members": []}
    members = [
        {
            "MemberId": member["MemberId"],
            "GroupInstanceId": member["GroupInstanceId"],
            "ErrorCode": cluster.groups.leave(row["GroupId"], member["MemberId"], member["GroupInstanceId"]),
        }
        for member in row["Members"]
    ]
    return {"Members": members}


def describe_groups(cluster: Cluster, request: Request) -> Message:
    """States and members of groups."""
    rows = []
    for name in request.row["Groups"]:
        error = group_error(cluster, request, name)
        group = cluster.groups.classic(name)
        row: Message = {"GroupId": name, "ErrorCode": error, "GroupState": "", "Members": []}
        if group is None and error is ErrorCode.NONE:
            row["GroupState"] = "Dead"
            if request.version >= 6:
                row |= {"ErrorCode": ErrorCode.GROUP_ID_NOT_FOUND, "ErrorMessage": f"Group {name} not found."}
        elif group is not None and error is ErrorCode.NONE:
            row |= {
                "GroupState": group.state,
                "ProtocolType": group.protocol_type,
                "ProtocolData": group.protocol or "",
                "Members": [
                    {
                        "MemberId": member.member_id,
                        "GroupInstanceId": member.instance_id,
                        "ClientId": member.client_id,
                        "ClientHost": member.client_host,
                        "MemberMetadata": member.subscription(group.protocol) if group.protocol else b"",
                        "MemberAssignment": member.assignment,
                    }
                    for member in group.members.values()
                ],
            }
        rows.append(row)
    return {"Groups": rows}


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
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error, "MemberId": row["MemberId"], "MemberEpoch": row["MemberEpoch"]}
    owned = None
    if row["TopicPartitions"] is not None:
        owned = frozenset(
            f"{cluster.names[topic['TopicId']]}-{number}"
            for topic in row["TopicPartitions"]
            if topic["TopicId"] in cluster.names
            for number in topic["Partitions"]
        )
    client = request.client_id, request.client_host
    error, member_id, epoch, given = cluster.consumer_groups.heartbeat(row, client, owned, cluster.partition_counts())
    assignment = None if given is None else {"TopicPartitions": _topic_partitions(cluster, given)}
    return {
        "ErrorCode": error,
        "MemberId": member_id,
        "MemberEpoch": epoch,
        "HeartbeatIntervalMs": cluster.consumer_groups.heartbeat_ms,
        "Assignment": assignment,
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
        if error is ErrorCode.NONE and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        row: Message = {"GroupId": name, "ErrorCode": error, "GroupState": "", "AssignorName": "", "Members": []}
        if group is not None and error is ErrorCode.NONE:
            machine = group.machine
            row |= {
                "GroupState": group.state,
                "GroupEpoch": machine.membership.epoch,
                "AssignmentEpoch": machine.membership.epoch,
                "AssignorName": "uniform",
                "Members": [_described_follower(cluster, group, follower) for follower in group.followers.values()],
            }
        rows.append(row)
    return {"Groups": rows}


def _described_follower(cluster: Cluster, group: FollowingGroup, follower: Follower) -> Message:
    current = group.machine.membership.members[follower.member_id]
    target = group.machine.target_of(group.machine.members(), follower.member_id)
    return {
        "MemberId": follower.member_id,
        "InstanceId": follower.instance_id,
        "MemberEpoch": current.epoch,
        "ClientId": follower.client_id,
        "ClientHost": follower.client_host,
        "SubscribedTopicNames": sorted(follower.topics),
        "SubscribedTopicRegex": follower.pattern,
        "Assignment": {"TopicPartitions": _topic_partitions(cluster, current.assigned)},
        "TargetAssignment": {"TopicPartitions": _topic_partitions(cluster, target)},
        "MemberType": 1,
    }


def delete_groups(cluster: Cluster, request: Request) -> Message:
    """Groups that go, with their offsets."""
    rows = []
    for name in request.row["GroupsNames"]:
        error = group_error(cluster, request, name)
        rows.append({"GroupId": name, "ErrorCode": error or cluster.groups.delete(name)})
    return {"Results": rows}
