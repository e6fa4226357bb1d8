"""Committed offsets, in transactions and outside of them."""

from collections.abc import Callable, Iterable

from kafka_eos.errors import ErrorCode
from kafka_eos.server.cluster import Cluster
from kafka_eos.server.consumer_groups import by_topic
from kafka_eos.server.groups import FIRST_OF_TRANSACTIONS_WITH_TOPIC_IDS, MAX_METADATA_BYTES, NO_ID, CommittedOffset
from kafka_eos.server.handlers.request import (
    Request,
    group_error,
    named_group_error,
    per_topic,
    ticket_for,
)
from kafka_eos.wire.protocol import Message

_Offsets = list[tuple[str, int, CommittedOffset]]
"""Topic, partition number and offset."""
_Errors = dict[tuple[str, int], ErrorCode]
"""The errors of partitions, by topic and number."""

FIRST_TO_KNOW_LOADING = 2
"""The version of TxnOffsetCommit from which on a client expects that a coordinator is loading (KAFKA-7296)."""
FIRST_WITH_TOPIC_IDS = 10
"""The version of OffsetCommit from which on topics have ids in the place of names (KIP-848)."""
FIRST_TO_FETCH_BY_ID = 10
"""The version of OffsetFetch from which on topics have ids in the place of names (KIP-848)."""


def txn_offset_commit(cluster: Cluster, request: Request) -> Message:
    """Write offsets that are committed with the transaction.

    Kafka: KafkaApis.handleTxnOffsetCommitRequest; 4.4.0 for version 6
    """
    row = request.row
    name, producer = row["GroupId"], (row["ProducerId"], row["ProducerEpoch"])
    has_ids = request.version >= FIRST_OF_TRANSACTIONS_WITH_TOPIC_IDS
    name_of = _names(cluster, has_ids)
    offsets, errors = _offsets(cluster, row["Topics"], name_of, keeps_ids=has_ids)
    if _are_unknown(row["Topics"], name_of, errors):
        return {"Topics": _of_topics(row["Topics"], name_of, _errors(ErrorCode.NONE, errors, has_ids))}
    error = group_error(cluster, request, name)
    partition, ticket = cluster.offsets_partition(name), None
    if error is ErrorCode.NONE:
        error, ticket = ticket_for(cluster, request, partition, *producer)
    asked = {"GroupId": name, "MemberId": row.get("MemberId", ""), "GroupInstanceId": row.get("GroupInstanceId")}
    if error is ErrorCode.NONE:
        generation = row.get("GenerationIdOrMemberEpoch", -1)
        error = _commit_error(cluster, asked, offsets, generation, request.version, transactional=True)
    if ticket is not None and error is ErrorCode.NONE and not offsets:
        cluster.groups.commit(name, offsets)
    elif ticket is not None and error is ErrorCode.NONE:
        error = cluster.groups.commit_in_transaction(name, offsets, producer, ticket).error
        cluster.wake(partition)

    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and request.version < FIRST_TO_KNOW_LOADING:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {"Topics": _of_topics(row["Topics"], name_of, _errors(error, errors, has_ids))}


def _are_unknown(topics: Iterable[Message], name_of: Callable[[Message], str], errors: _Errors) -> bool:
    """Whether no partition of a request is there; then Kafka asks no coordinator."""
    places = ((name_of(topic), part["PartitionIndex"]) for topic in topics for part in topic["Partitions"])
    return all(errors.get(place) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for place in places)


def _errors(error: ErrorCode, errors: _Errors, has_ids: bool) -> Callable[[str, int], ErrorCode]:
    """The error of each partition: that it is unknown, or else the coordinator's for all, or else its own.

    Kafka: KafkaApis.handleTxnOffsetCommitRequest, handleOffsetCommitRequest
    """

    def error_of(topic: str, number: int) -> ErrorCode:
        own = errors.get((topic, number), ErrorCode.NONE)
        if own is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return ErrorCode.UNKNOWN_TOPIC_ID if has_ids and not topic else own
        return error or own

    return error_of


def _names(cluster: Cluster, has_ids: bool) -> Callable[[Message], str]:
    """The name of a topic in a request, also of one that gives its id; "" for an unknown id."""
    return lambda topic: cluster.names.get(topic["TopicId"], "") if has_ids else str(topic["Name"])


def _of_topics(
    topics: Iterable[Message], name_of: Callable[[Message], str], error_of: Callable[[str, int], ErrorCode]
) -> list[Message]:
    """The rows of an answer that has topics as the request has them, with an error for each partition."""
    return [
        {
            "Name": name_of(topic),
            "TopicId": topic.get("TopicId", NO_ID),
            "Partitions": [
                {
                    "PartitionIndex": part["PartitionIndex"],
                    "ErrorCode": error_of(name_of(topic), part["PartitionIndex"]),
                }
                for part in topic["Partitions"]
            ],
        }
        for topic in topics
    ]


def _commit_error(
    cluster: Cluster, row: Message, offsets: _Offsets, generation: int, version: int, *, transactional: bool
) -> ErrorCode:
    """The reason why offsets are refused; ``NONE`` if they are not. A member of a consumer group gives its epoch."""
    group = cluster.consumer_groups.find(row["GroupId"])
    if group is not None:
        partitions = [f"{topic}-{number}" for topic, number, _ in offsets]
        who = row["MemberId"], row.get("GroupInstanceId"), generation
        return group.commit_error(who, transactional, version, partitions)
    return cluster.groups.commit_error(row, transactional, generation, version)


def _offsets(
    cluster: Cluster, topics: Iterable[Message], name_of: Callable[[Message], str], *, keeps_ids: bool
) -> tuple[_Offsets, _Errors]:
    """The offsets of a request that can be committed, with the ids of their topics if it says so; why others cannot."""
    offsets: _Offsets = []
    errors = {}
    for topic in topics:
        name = name_of(topic)
        topic_id = (cluster.topic_id(name) if keeps_ids else None) or NO_ID
        for part in topic["Partitions"]:
            number, text = part["PartitionIndex"], part["CommittedMetadata"] or ""
            if isinstance(cluster.find(name, number), ErrorCode):
                errors[name, number] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(text) > MAX_METADATA_BYTES:
                errors[name, number] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                epoch = part.get("CommittedLeaderEpoch", -1)
                offset = CommittedOffset(part["CommittedOffset"], epoch, text, cluster.now, topic_id)
                offsets.append((name, number, offset))
    return offsets, errors


def offset_commit(cluster: Cluster, request: Request) -> Message:
    """Commit offsets outside of transactions."""
    row = request.row

    has_ids = request.version >= FIRST_WITH_TOPIC_IDS
    name_of = _names(cluster, has_ids)
    offsets, errors = _offsets(cluster, row["Topics"], name_of, keeps_ids=True)
    error = ErrorCode.NONE
    if not _are_unknown(row["Topics"], name_of, errors):
        error = group_error(cluster, request, row["GroupId"])
        if error is ErrorCode.NONE:
            generation = row.get("GenerationIdOrMemberEpoch", -1)
            error = _commit_error(cluster, row, offsets, generation, request.version, transactional=False)
        if error is ErrorCode.NONE:
            cluster.groups.commit(row["GroupId"], offsets)
            cluster.wake(cluster.offsets_partition(row["GroupId"]))
    return {"Topics": _of_topics(row["Topics"], name_of, _errors(error, errors, has_ids))}


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
        return {"GroupId": name, "ErrorCode": error}
    consumers = cluster.consumer_groups.find(name)
    if consumers is not None:
        error = consumers.fetch_error(group.get("MemberId"), group.get("MemberEpoch", -1))
        if error is not ErrorCode.NONE:
            return {"GroupId": name, "ErrorCode": error}
    if topics is None:
        topics = _committed_topics(cluster, name, has_ids=request.version >= FIRST_TO_FETCH_BY_ID)
    rows = []
    for topic in topics:
        topic_id = topic.get("TopicId", NO_ID)
        topic_name = cluster.names.get(topic_id) if request.version >= FIRST_TO_FETCH_BY_ID else topic["Name"]
        parts = []
        for number in topic["PartitionIndexes"]:
            found, offset = ErrorCode.UNKNOWN_TOPIC_ID, None
            if topic_name is not None:
                found, offset = cluster.groups.fetch(name, f"{topic_name}-{number}", stable, topic_id)
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


def _committed_topics(cluster: Cluster, group: str, *, has_ids: bool) -> list[Message]:
    """The topics and partitions for which a group has committed an offset. One that is gone has no id, but its name.

    Kafka: KafkaApis.fetchAllOffsetsForGroup
    """
    known = cluster.groups.known.get(group)
    return [
        {"Name": topic, "TopicId": cluster.topic_id(topic) or NO_ID, "PartitionIndexes": numbers}
        for topic, numbers in by_topic(known.machine.committed if known is not None else ()).items()
        if topic in cluster.topics or not has_ids
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
