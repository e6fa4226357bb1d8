"""Committed offsets, in transactions and outside of them."""

from collections.abc import Callable, Iterable

from kafka_eos.errors import ErrorCode
from kafka_eos.server.cluster import Cluster
from kafka_eos.server.consumer_groups import by_topic
from kafka_eos.server.groups import MAX_METADATA_BYTES, CommittedOffset
from kafka_eos.server.handlers.request import (
    NO_ID,
    Request,
    group_error,
    named_group_error,
    per_topic,
    ticket_for,
)
from kafka_eos.wire.protocol import Message

_Offsets = list[tuple[str, int, CommittedOffset]]
"""Topic, partition number and offset."""

FIRST_TO_KNOW_LOADING = 2
"""The version of TxnOffsetCommit from which on a client expects that a coordinator is loading (KAFKA-7296)."""


def txn_offset_commit(cluster: Cluster, request: Request) -> Message:
    """Write offsets that are committed with the transaction."""
    row = request.row
    name, producer = row["GroupId"], (row["ProducerId"], row["ProducerEpoch"])
    error = group_error(cluster, request, name)
    partition, ticket = cluster.offsets_partition(name), None
    if error is ErrorCode.NONE:
        error, ticket = ticket_for(cluster, request, partition, *producer)
    asked = {"GroupId": name, "MemberId": row.get("MemberId", ""), "GroupInstanceId": row.get("GroupInstanceId")}
    offsets, errors = _offsets(cluster, row["Topics"], lambda topic: topic["Name"])
    if error is ErrorCode.NONE:
        error = _commit_error(cluster, asked, offsets, row.get("GenerationId", -1), version=-1, transactional=True)
    if ticket is not None and error is ErrorCode.NONE and offsets:
        error = cluster.groups.commit_in_transaction(name, offsets, producer, ticket).error
        cluster.wake(partition)

    def answer(topic: str, part: Message) -> Message:
        found = errors.get((topic, part["PartitionIndex"]), ErrorCode.NONE)
        return {"PartitionIndex": part["PartitionIndex"], "ErrorCode": error or found}

    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and request.version < FIRST_TO_KNOW_LOADING:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {"Topics": per_topic(row["Topics"], answer)}


def _commit_error(
    cluster: Cluster, row: Message, offsets: _Offsets, generation: int, version: int, *, transactional: bool
) -> ErrorCode:
    """The reason why offsets are refused; ``NONE`` if they are not. A member of a consumer group gives its epoch."""
    group = cluster.consumer_groups.find(row["GroupId"])
    if group is not None:
        partitions = [f"{topic}-{number}" for topic, number, _ in offsets]
        return group.commit_error(row["MemberId"], generation, transactional, version, partitions)
    return cluster.groups.commit_error(row, transactional, generation, version)


def _offsets(
    cluster: Cluster, topics: Iterable[Message], name_of: Callable[[Message], str]
) -> tuple[_Offsets, dict[tuple[str, int], ErrorCode]]:
    """The offsets of a request that can be committed, and why the others cannot."""
    offsets: _Offsets = []
    errors = {}
    for topic in topics:
        name = name_of(topic)
        for part in topic["Partitions"]:
            number, text = part["PartitionIndex"], part["CommittedMetadata"] or ""
            if isinstance(cluster.find(name, number), ErrorCode):
                errors[name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(text) > MAX_METADATA_BYTES:
                errors[name, number] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                epoch = part.get("CommittedLeaderEpoch", -1)
                offsets.append((name, number, CommittedOffset(part["CommittedOffset"], epoch, text, cluster.now)))
    return offsets, errors


def offset_commit(cluster: Cluster, request: Request) -> Message:
    """Commit offsets outside of transactions."""
    row = request.row

    def name_of(topic: Message) -> str:
        return cluster.names.get(topic["TopicId"], "") if request.version >= 10 else str(topic["Name"])

    offsets, errors = _offsets(cluster, row["Topics"], name_of)
    error = group_error(cluster, request, row["GroupId"])
    if error is ErrorCode.NONE:
        generation = row.get("GenerationIdOrMemberEpoch", -1)
        error = _commit_error(cluster, row, offsets, generation, request.version, transactional=False)
    if error is ErrorCode.NONE and offsets:
        cluster.groups.commit(row["GroupId"], offsets)
        cluster.wake(cluster.offsets_partition(row["GroupId"]))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if request.version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = []
    for topic in row["Topics"]:
        name = name_of(topic)
        parts = []
        for part in topic["Partitions"]:
            found = errors.get((name, part["PartitionIndex"]), ErrorCode.NONE)
            found = unknown if not name else found
            parts.append({"PartitionIndex": part["PartitionIndex"], "ErrorCode": error or found})
        topics.append({"Name": name, "TopicId": topic.get("TopicId", NO_ID), "Partitions": parts})
    return {"Topics": topics}


def offset_fetch(cluster: Cluster, request: Request) -> Message:
    """The committed offsets of groups.    Kafka: KafkaApis.handleOffsetFetchRequest, OffsetFetchResponse.groupError."""
    row = request.row
    stable = row.get("RequireStable", False)
    if request.version >= 8:
        return {"Groups": [_fetch_offsets(cluster, request, group, stable) for group in row["Groups"]]}
    answer = _fetch_offsets(cluster, request, {"GroupId": row["GroupId"], "Topics": row["Topics"]}, stable)
    if request.version < 2 and answer["ErrorCode"]:  # these versions have errors of partitions alone
        no_offset = {"ErrorCode": answer["ErrorCode"], "CommittedOffset": -1, "Metadata": ""}
        answer["Topics"] = [
            {"Name": each["Name"], "Partitions": [{"PartitionIndex": n, **no_offset} for n in each["PartitionIndexes"]]}
            for each in row["Topics"]
        ]
    return answer


def _fetch_offsets(cluster: Cluster, request: Request, group: Message, stable: bool) -> Message:
    name, topics = group["GroupId"], group["Topics"]
    error = group_error(cluster, request, name)
    if error is not ErrorCode.NONE:
        return {"GroupId": name, "ErrorCode": error, "Topics": []}
    consumers = cluster.consumer_groups.find(name)
    if consumers is not None:
        error = consumers.fetch_error(group.get("MemberId"), group.get("MemberEpoch", -1))
        if error is not ErrorCode.NONE:
            return {"GroupId": name, "ErrorCode": error, "Topics": []}
    if topics is None:
        topics = _committed_topics(cluster, name)
    rows = []
    for topic in topics:
        topic_id = topic.get("TopicId", NO_ID)
        topic_name = cluster.names.get(topic_id) if request.version >= 10 else topic["Name"]
        parts = []
        for number in topic["PartitionIndexes"]:
            found, offset = ErrorCode.UNKNOWN_TOPIC_ID, None
            if topic_name is not None:
                found, offset = cluster.groups.fetch(name, f"{topic_name}-{number}", stable)
            parts.append(
                {
                    "PartitionIndex": number,
                    "CommittedOffset": -1 if offset is None else offset.offset,
                    "CommittedLeaderEpoch": -1 if offset is None else offset.leader_epoch,
                    "Metadata": "" if offset is None else offset.metadata,
                    "ErrorCode": found,
                }
            )
        rows.append({"Name": topic_name or "", "TopicId": topic_id, "Partitions": parts})
    rows.sort(key=lambda each: not each["Name"])  # topics that are not there come last
    return {"GroupId": name, "ErrorCode": ErrorCode.NONE, "Topics": rows}


def _committed_topics(cluster: Cluster, group: str) -> list[Message]:
    """The topics and partitions for which a group has committed an offset."""
    known = cluster.groups.known.get(group)
    return [
        {"Name": topic, "TopicId": cluster.topics[topic].topic_id, "PartitionIndexes": numbers}
        for topic, numbers in by_topic(known.machine.committed if known is not None else ()).items()
    ]


def offset_delete(cluster: Cluster, request: Request) -> Message:
    """Delete committed offsets."""
    name = request.row["GroupId"]
    error = named_group_error(cluster, request, name)
    group = cluster.groups.known.get(name)
    if error is ErrorCode.NONE and group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif error is ErrorCode.NONE and group is not None:
        error = group.offset_delete_error()
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error}
    assert group is not None
    topics = request.row["Topics"]

    def answer(topic: str, part: Message) -> Message:
        number = part["PartitionIndex"]
        if isinstance(cluster.find(topic, number), ErrorCode):
            return {"PartitionIndex": number, "ErrorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        if group.is_subscribed_to(topic):
            return {"PartitionIndex": number, "ErrorCode": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        cluster.groups.delete_offsets(name, [f"{topic}-{number}"])
        return {"PartitionIndex": number}

    return {"Topics": per_topic(topics, answer)}
