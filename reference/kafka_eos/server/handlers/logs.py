"""Produce, Fetch, and where offsets are."""

from typing import Any
from uuid import UUID

from kafka_eos.errors import ErrorCode, MalformedBatch
from kafka_eos.protocol import Message
from kafka_eos.record_batch import NO_PRODUCER_ID, RecordBatch, decode_batch
from kafka_eos.server.cluster import INTERNAL_TOPICS, Cluster
from kafka_eos.server.handlers.request import (
    NO_ID,
    Request,
    per_topic,
    ticket_for,
)
from kafka_eos.server.partitions import Leader

READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4


def produce(cluster: Cluster, request: Request) -> Message | None:
    """Append batches."""
    row = request.row
    rows = []
    for topic in row["TopicData"]:
        key = topic["TopicId"] if request.version >= 13 else topic["Name"]
        parts = [_produce_to(cluster, request, key, part) for part in topic["PartitionData"]]
        rows.append(
            {"Name": topic.get("Name", ""), "TopicId": topic.get("TopicId", NO_ID), "PartitionResponses": parts}
        )
    if row["Acks"] == 0:
        return None
    return {"Responses": rows}


def _produce_to(cluster: Cluster, request: Request, topic: str | UUID, part: Message) -> Message:
    number = part["Index"]
    leader = cluster.find_led(topic, number, request.node)
    if isinstance(leader, ErrorCode):
        return {"Index": number, "ErrorCode": leader, "BaseOffset": -1}
    error, offset, reason = _append(cluster, request, leader, part["Records"])
    if error is ErrorCode.NONE:
        cluster.wake(leader)
        return {"Index": number, "ErrorCode": 0, "BaseOffset": offset, "LogStartOffset": leader.log_start_offset}
    return {"Index": number, "ErrorCode": error, "BaseOffset": -1, "ErrorMessage": reason or error.name}


def _append(
    cluster: Cluster, request: Request, leader: Leader, data: bytes | None
) -> tuple[ErrorCode, int, str | None]:
    """Append a client's batch: the error, the offset, and what is wrong with the bytes."""
    if request.row["Acks"] not in {-1, 0, 1}:
        return ErrorCode.INVALID_REQUIRED_ACKS, -1, None
    if leader.topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, -1, None
    try:
        batch = _batch_of(data)
    except MalformedBatch as malformed:
        return ErrorCode.CORRUPT_MESSAGE, -1, str(malformed)
    limits = cluster.settings.limits
    if batch.size > limits.batch_bytes:
        return ErrorCode.MESSAGE_TOO_LARGE, -1, f"{batch.size} bytes, where {limits.batch_bytes} are the most"
    if batch.is_control or batch.record_count != batch.last_offset_delta + 1:
        return ErrorCode.INVALID_RECORD, -1, "a control batch, or one whose offsets have gaps"
    if batch.producer_id > NO_PRODUCER_ID and batch.base_sequence < 0:
        return ErrorCode.INVALID_RECORD, -1, f"sequence {batch.base_sequence} of producer {batch.producer_id}"
    is_new = batch.producer_id > NO_PRODUCER_ID and batch.producer_id not in leader.last_timestamps
    if is_new and len(leader.last_timestamps) >= limits.producers:
        return ErrorCode.POLICY_VIOLATION, -1, f"{limits.producers} producers are known already"
    if not cluster.has_room():
        return ErrorCode.POLICY_VIOLATION, -1, f"all partitions together hold {limits.log_bytes} bytes"
    ticket = None
    if batch.is_transactional and request.row["TransactionalId"] is None:
        return ErrorCode.INVALID_REQUEST, -1, "a transactional batch without a transactional id"
    if batch.is_transactional and batch.producer_id > NO_PRODUCER_ID:
        error, ticket = ticket_for(cluster, request, leader, batch.producer_id, batch.producer_epoch)
        if error is not ErrorCode.NONE:
            return error, -1, None
    assert data is not None
    appended = leader.append(batch, data, ticket, cluster.now)
    return appended.error, appended.base_offset, None


def _batch_of(data: bytes | None) -> RecordBatch:
    """The one batch that a Produce request may have for a partition.

    Raises:
        MalformedBatch: when there is none, or something behind it.
    """
    batch, end = decode_batch(data or b"")
    if end != len(data or b""):
        raise MalformedBatch(end, "more than one batch")
    return batch


def fetch(cluster: Cluster, request: Request) -> Message | None:
    """Batches from offsets on, at once or when there are enough of them."""
    row = request.row
    wanted = _wanted(cluster, request)
    response, size, at_once = _fetched(cluster, request, wanted)
    if at_once or size >= row["MinBytes"] or row["MaxWaitMs"] <= 0:
        return response
    poll = _LongPoll(cluster, request)
    request.cancel = poll.stop
    poll.start([leader for _, _, leader in wanted if not isinstance(leader, ErrorCode)])
    return None


class _LongPoll:
    """A Fetch request that waits. Once it is answered or its client is gone, nothing of it is kept."""

    def __init__(self, cluster: Cluster, request: Request) -> None:
        self._cluster = cluster
        self._request: Request | None = request
        self._leaders: list[Leader] = []
        self._deadline = cluster.now + min(request.row["MaxWaitMs"], cluster.settings.limits.fetch_wait_ms)

    def start(self, leaders: list[Leader]) -> None:
        """Look again when one of the partitions has changed, and when time is up."""
        self._leaders = leaders
        for leader in leaders:
            leader.watchers[self.look] = None
        self._cluster.at(self._deadline, self.look)

    def stop(self) -> None:
        """Wait no longer."""
        for leader in self._leaders:
            leader.watchers.pop(self.look, None)
        self._request, self._leaders = None, []

    def look(self) -> None:
        """Answer if there is enough, or time is up."""
        request = self._request
        if request is None:
            return
        found, size, at_once = _fetched(self._cluster, request, _wanted(self._cluster, request))
        if at_once or size >= request.row["MinBytes"] or self._cluster.now >= self._deadline:
            self.stop()
            request.reply(found)


_Wanted = list[tuple[Message, Message, Leader | ErrorCode]]


def _wanted(cluster: Cluster, request: Request) -> _Wanted:
    """Topic, partition and leader of each partition that is asked for."""
    by_id = request.version >= 13
    return [
        (
            topic,
            part,
            cluster.find_led(
                topic["TopicId"] if by_id else topic["Topic"],
                part["Partition"],
                request.node,
                part.get("CurrentLeaderEpoch", -1),
            ),
        )
        for topic in request.row["Topics"]
        for part in topic["Partitions"]
    ]


def _fetched(cluster: Cluster, request: Request, wanted: _Wanted) -> tuple[Message, int, bool]:
    """The response, how many bytes of records it has, and whether a partition has an error."""
    left = min(request.row.get("MaxBytes", cluster.settings.limits.fetch_bytes), cluster.settings.limits.fetch_bytes)
    committed = request.row["IsolationLevel"] == READ_COMMITTED
    topics: dict[Any, Message] = {}
    size, failed = 0, False
    for topic, part, leader in wanted:
        key = topic.get("TopicId", topic.get("Topic"))
        answer = topics.setdefault(
            key, {"Topic": topic.get("Topic", ""), "TopicId": topic.get("TopicId", NO_ID), "Partitions": []}
        )
        read = _read(leader, part, committed, left, size == 0)
        failed |= read["ErrorCode"] != ErrorCode.NONE
        size += len(read["Records"])
        left = max(left - len(read["Records"]), 0)
        answer["Partitions"].append(read)
    return {"Responses": list(topics.values())}, size, failed


def _read(leader: Leader | ErrorCode, part: Message, committed: bool, left: int, at_least_one: bool) -> Message:
    """A partition's part of a response.    Kafka: UnifiedLog.read."""
    nothing = {"PartitionIndex": part["Partition"], "HighWatermark": -1, "Records": b"", "AbortedTransactions": None}
    if isinstance(leader, ErrorCode):
        return {**nothing, "ErrorCode": leader}
    offset, watermark, stable = part["FetchOffset"], leader.high_watermark, leader.last_stable_offset
    if not leader.log_start_offset <= offset <= leader.log_end_offset:
        return {**nothing, "ErrorCode": ErrorCode.OFFSET_OUT_OF_RANGE}
    known, end = leader.end_of_epoch(part.get("LastFetchedEpoch", -1))
    diverging = {}
    if part.get("LastFetchedEpoch", -1) >= 0 and (known < part["LastFetchedEpoch"] or end < offset):
        diverging = {"DivergingEpoch": {"Epoch": known, "EndOffset": end}}
    upper = stable if committed else watermark
    records = b""
    if offset < upper and not diverging:
        records = leader.store.read(offset, upper, min(left, part["PartitionMaxBytes"]), at_least_one)
    aborted = None
    if committed:
        found = leader.aborted_between(offset, upper) if records else []
        aborted = [{"ProducerId": entry.producer_id, "FirstOffset": entry.first_offset} for entry in found]
    return {
        **diverging,
        "PartitionIndex": part["Partition"],
        "ErrorCode": ErrorCode.NONE,
        "HighWatermark": watermark,
        "LastStableOffset": stable,
        "LogStartOffset": leader.log_start_offset,
        "AbortedTransactions": aborted,
        "Records": records,
    }


def list_offsets(cluster: Cluster, request: Request) -> Message:
    """First and last offsets, and those of timestamps."""
    committed = request.row.get("IsolationLevel", 0) == READ_COMMITTED

    def answer(topic: str, row: Message) -> Message:
        number = row["PartitionIndex"]
        leader = cluster.find_led(topic, number, request.node, row.get("CurrentLeaderEpoch", -1))
        if isinstance(leader, ErrorCode):
            return {"PartitionIndex": number, "ErrorCode": leader}
        timestamp, offset = _offset_at(leader, row["Timestamp"], committed)
        epoch = leader.leader_epoch if offset >= 0 else -1
        found = {"Timestamp": timestamp, "Offset": offset, "LeaderEpoch": epoch}
        return {"PartitionIndex": number, "ErrorCode": ErrorCode.NONE, **found}

    return {"Topics": per_topic(request.row["Topics"], answer)}


def _offset_at(leader: Leader, timestamp: int, committed: bool) -> tuple[int, int]:
    """Timestamp and offset that a question means; -1 for a timestamp that is not told or not found."""
    upper = leader.last_stable_offset if committed else leader.high_watermark
    if timestamp == LATEST:
        return -1, upper
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return -1, leader.log_start_offset
    wanted = timestamp
    if timestamp == MAX_TIMESTAMP:
        latest = leader.store.latest()
        if latest is None:
            return -1, -1
        wanted = latest[1]
    base = leader.store.first_with_timestamp(wanted) if wanted >= 0 else None
    if base is None or base >= upper:
        return -1, -1
    batch, _ = decode_batch(leader.store.read(base, upper, 1, at_least_one=True))
    for record in batch.records():
        if batch.timestamp(record) >= wanted and leader.log_start_offset <= batch.offset(record) < upper:
            return batch.timestamp(record), batch.offset(record)
    return -1, -1


def offset_for_leader_epoch(cluster: Cluster, request: Request) -> Message:
    """Where leader epochs ended."""

    def answer(topic: str, row: Message) -> Message:
        leader = cluster.find_led(topic, row["Partition"], request.node, row.get("CurrentLeaderEpoch", -1))
        if isinstance(leader, ErrorCode):
            return {"Partition": row["Partition"], "ErrorCode": leader}
        epoch, end = leader.end_of_epoch(row["LeaderEpoch"])
        return {"Partition": row["Partition"], "ErrorCode": ErrorCode.NONE, "LeaderEpoch": epoch, "EndOffset": end}

    asked = [{"Name": topic["Topic"], "Partitions": topic["Partitions"]} for topic in request.row["Topics"]]
    rows = per_topic(asked, answer)
    return {"Topics": [{"Topic": row["Name"], "Partitions": row["Partitions"]} for row in rows]}
