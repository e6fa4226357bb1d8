"""Produce, Fetch, and where offsets are."""

from typing import NamedTuple
from uuid import UUID

from kafka_eos.errors import ErrorCode, MalformedBatch
from kafka_eos.formats.record_batch import HEADER_BYTES, NO_PRODUCER_ID, decode_batch
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos.server.cluster import INTERNAL_TOPICS, Cluster
from kafka_eos.server.groups import NO_ID
from kafka_eos.server.handlers.request import (
    Request,
    per_topic,
    ticket_for,
)
from kafka_eos.server.partitions import Appended, Leader, Ticket
from kafka_eos.server.validation import Refused, base_sequence_of, one_batch, producer_of, validated
from kafka_eos.wire.protocol import Message

READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
DEBUGGING_REPLICA_ID = -2  # of who asks a replica that need not be the leader.    Kafka: ListOffsetsRequest
OFFSETS_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, -5: 9, -6: 11}
"""The special timestamps of ListOffsets, with the version that has them.    Kafka: ReplicaManager.fetchOffset."""


ADD_PARTITIONS_RETRY_MS, ADD_PARTITIONS_MAX_MS = 20, 100
"""``add.partitions.to.txn.retry.backoff.ms`` and ``….max.ms``."""

_TRANSACTIONAL = 0x10
_WITHOUT_START = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE})
"""Errors that are answered without the partition's first offset, though its leader has refused the batch.

Kafka: ReplicaManager.appendRecordsToLeader
"""


def produce(cluster: Cluster, request: Request) -> Message | None:
    """Append batches; in version 2 the leader adds partitions to transactions, and tries again while one is pending."""
    return _produced(cluster, request, cluster.now + ADD_PARTITIONS_MAX_MS)


def _produced(cluster: Cluster, request: Request, deadline: int) -> Message | None:
    """Kafka: ReplicaManager.handleProduceAppend, AddPartitionsToTxnConfig."""
    row = request.row
    is_nobodys = row["TransactionalId"] is None and _has_transactional(row)
    topics = [
        (
            topic,
            [
                _NOBODYS if is_nobodys else _admitted(cluster, request, _key(request, topic), part)
                for part in topic["PartitionData"]
            ],
        )
        for topic in row["TopicData"]
    ]
    may_wait = request.transaction_version >= TRANSACTION_VERSION_2 and row["Acks"] != 0 and cluster.now < deadline
    if may_wait and any(_is_pending(each) for _, parts in topics for each in parts):

        def again() -> None:
            answer = _produced(cluster, request, deadline)
            if answer is not None:
                request.reply(answer)

        cluster.at(cluster.now + ADD_PARTITIONS_RETRY_MS, again)
        return None
    rows = []
    for topic, admitted in topics:
        parts = [
            _produce_to(cluster, request, part["Index"], each)
            for part, each in zip(topic["PartitionData"], admitted, strict=True)
        ]
        named = {"Name": topic.get("Name", ""), "TopicId": topic.get("TopicId", NO_ID)}
        rows.append(named | {"PartitionResponses": parts})
    if row["Acks"] != 0:
        return {"Responses": rows}
    errors = [part["ErrorCode"] for each in rows for part in each["PartitionResponses"] if part["ErrorCode"]]
    request.failed = f"Produce with acks=0: {errors[0].name}" if errors else ""
    return None


def _key(request: Request, topic: Message) -> str | UUID:
    key: str | UUID = topic["TopicId"] if request.version >= 13 else topic["Name"]
    return key


class _Admitted(NamedTuple):
    """A batch that its leader will look at, with its ticket."""

    leader: Leader
    data: bytes
    ticket: Ticket | None


_NOBODYS = Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _is_pending(outcome: _Admitted | Refused) -> bool:
    return isinstance(outcome, Refused) and outcome.error is ErrorCode.CONCURRENT_TRANSACTIONS


def _has_transactional(row: Message) -> bool:
    """Kafka: RequestUtils.hasTransactionalRecords."""
    for topic in row["TopicData"]:
        for part in topic["PartitionData"]:
            data = part["Records"]
            if data is not None and len(data) >= HEADER_BYTES and data[22] & _TRANSACTIONAL:
                return True
    return False


def _refused(number: int, error: ErrorCode, why: str | None = None) -> Message:
    return {"Index": number, "ErrorCode": error, "BaseOffset": -1, "ErrorMessage": why}


def _admitted(cluster: Cluster, request: Request, topic: str | UUID, part: Message) -> _Admitted | Refused:
    """A batch for a leader that is here; or why no leader is even asked."""
    leader = cluster.find_led(topic, part["Index"], request.node)
    if isinstance(leader, ErrorCode):
        return Refused(leader)
    try:
        data = one_batch(part["Records"], request.version)
    except Refused as refused:
        return refused
    if request.row["Acks"] not in {-1, 0, 1}:
        return Refused(ErrorCode.INVALID_REQUIRED_ACKS)
    ticket = None
    if data[22] & _TRANSACTIONAL:
        producer_id, epoch = producer_of(data)
        if producer_id > NO_PRODUCER_ID:
            error, ticket = ticket_for(cluster, request, leader, producer_id, epoch, base_sequence_of(data))
            if error is not ErrorCode.NONE:
                return Refused(error)
    if leader.topic in INTERNAL_TOPICS:
        return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {leader.topic}")
    return _Admitted(leader, data, ticket)


def _produce_to(cluster: Cluster, request: Request, number: int, admitted: _Admitted | Refused) -> Message:
    if isinstance(admitted, Refused):
        return _refused(number, admitted.error, admitted.why)
    leader, data, ticket = admitted
    try:
        appended = _append(cluster, request, leader, data, ticket)
    except Refused as refused:
        start = {} if refused.error in _WITHOUT_START else {"LogStartOffset": leader.log_start_offset}
        errors = [{"BatchIndex": index, "BatchIndexErrorMessage": why} for index, why in refused.records]
        return _refused(number, refused.error, refused.why) | start | {"RecordErrors": errors}
    cluster.wake(leader)
    return {
        "Index": number,
        "ErrorCode": ErrorCode.NONE,
        "BaseOffset": appended.base_offset,
        "LogAppendTimeMs": appended.log_append_time,
        "LogStartOffset": leader.log_start_offset,
    }


def _append(cluster: Cluster, request: Request, leader: Leader, data: bytes, ticket: Ticket | None) -> Appended:
    """Append a client's batch.

    Raises:
        Refused: by its leader.
    """
    rules = cluster.configs.append_rules(leader.topic, leader.node)
    if request.row["Acks"] == -1 and (lacking := cluster.lacking_replicas(leader, rules.min_in_sync)):
        raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, lacking)
    batch, encoded = validated(data, rules, leader.name, cluster.now)
    limits = cluster.settings.limits
    is_new = batch.producer_id > NO_PRODUCER_ID and batch.producer_id not in leader.last_timestamps
    if is_new and len(leader.last_timestamps) >= limits.producers:
        raise Refused(ErrorCode.POLICY_VIOLATION, f"{limits.producers} producers are known already")
    if not cluster.has_room():
        raise Refused(ErrorCode.POLICY_VIOLATION, f"all partitions together hold {limits.log_bytes} bytes")
    appended = leader.append(batch, encoded, ticket, cluster.now)
    if appended.error is not ErrorCode.NONE:
        raise Refused(appended.error)
    return appended


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
    """A waiting Fetch request; nothing of it is kept once it is answered or its client is gone."""

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
        """Stop waiting."""
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
    """The response, how many bytes of records it has, and whether a partition has an error.

    A topic comes as often as in the request, whose order decides which partitions still have room.

    Kafka: FetchResponse.toMessage
    """
    left = min(request.row.get("MaxBytes", cluster.settings.limits.fetch_bytes), cluster.settings.limits.fetch_bytes)
    committed = request.row["IsolationLevel"] == READ_COMMITTED
    responses: list[Message] = []
    size, failed, previous = 0, False, None
    for topic, part, leader in wanted:
        named = {"Topic": topic.get("Topic", ""), "TopicId": topic.get("TopicId", NO_ID)}
        if named != previous:
            responses.append({**named, "Partitions": []})
            previous = named
        read = _read(leader, part, committed, left, size == 0)
        failed |= read["ErrorCode"] != ErrorCode.NONE
        size += len(read["Records"])
        left = max(left - len(read["Records"]), 0)
        responses[-1]["Partitions"].append(read)
    return {"Responses": responses}, size, failed


def _read(leader: Leader | ErrorCode, part: Message, committed: bool, left: int, at_least_one: bool) -> Message:
    """A partition's part of a response.    Kafka: UnifiedLog.read, Partition.readRecords."""
    nothing = {"PartitionIndex": part["Partition"], "HighWatermark": -1, "Records": b"", "AbortedTransactions": None}
    if isinstance(leader, ErrorCode):
        return {**nothing, "ErrorCode": leader}
    offset, watermark, stable = part["FetchOffset"], leader.high_watermark, leader.last_stable_offset
    epoch = part.get("LastFetchedEpoch", -1)
    known, end = leader.end_of_epoch(epoch) if epoch >= 0 else (epoch, offset)
    is_diverging = known < epoch or end < offset
    is_beyond = offset > leader.log_end_offset and not is_diverging
    if known < min(epoch, 0) or offset < leader.log_start_offset or is_beyond:
        return {**nothing, "ErrorCode": ErrorCode.OFFSET_OUT_OF_RANGE}
    diverging = {"DivergingEpoch": {"Epoch": known, "EndOffset": end}} if is_diverging else {}
    upper = stable if committed else watermark
    records = b""
    if offset < upper and not is_diverging:
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
        if request.version < OFFSETS_SINCE.get(row["Timestamp"], 0):
            return {"PartitionIndex": number, "ErrorCode": ErrorCode.UNSUPPORTED_VERSION}
        node = request.node
        if request.row["ReplicaId"] == DEBUGGING_REPLICA_ID:
            replica = cluster.find(topic, number)
            if not isinstance(replica, ErrorCode) and node in replica.replicas:
                node = replica.node
        leader = cluster.find_led(topic, number, node, row.get("CurrentLeaderEpoch", -1))
        if isinstance(leader, ErrorCode):
            return {"PartitionIndex": number, "ErrorCode": leader}
        try:
            timestamp, offset, epoch = _offset_at(leader, row["Timestamp"], committed)
        except MalformedBatch:
            return {"PartitionIndex": number, "ErrorCode": ErrorCode.INVALID_RECORD}
        return {"PartitionIndex": number, "Timestamp": timestamp, "Offset": offset, "LeaderEpoch": epoch}

    return {"Topics": per_topic(request.row["Topics"], answer)}


_NOT_FOUND = -1, -1, -1


def _offset_at(leader: Leader, timestamp: int, committed: bool) -> tuple[int, int, int]:
    """The timestamp, the offset and its leader epoch that answer a question; -1 for what is not told or not found.

    Departs from Kafka: all records of a batch are read, also those after the one that is found.

    Raises:
        MalformedBatch: a batch has other records than it says. Kafka answers INVALID_RECORD or UNKNOWN_SERVER_ERROR,
            depending on where its reader fails.

    Kafka: UnifiedLog.fetchOffsetByTimestamp, which finds the largest timestamp among deleted records as well.
    """
    upper = leader.last_stable_offset if committed else leader.high_watermark
    if timestamp == LATEST:
        return -1, upper, leader.leader_epoch
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return -1, leader.log_start_offset, leader.epoch_at(leader.log_start_offset)
    wanted, start = timestamp, leader.log_start_offset
    if timestamp == MAX_TIMESTAMP:
        start, wanted = leader.store.latest() or _NOT_FOUND[:2]
    if wanted < 0:
        return _NOT_FOUND
    place = start
    while place < upper:
        base = leader.store.first_with_timestamp(wanted, place)
        if base is None or base >= upper:
            break
        data = leader.store.read(base, upper, 1, at_least_one=True)
        if not data:
            break  # the offsets of a damaged log may go back
        batch, _ = decode_batch(data)
        for record in batch.records():
            if batch.timestamp(record) >= wanted and batch.offset(record) >= start:
                return batch.timestamp(record), batch.offset(record), batch.partition_leader_epoch
        place = max(place + 1, batch.next_offset)
    return _NOT_FOUND


def offset_for_leader_epoch(cluster: Cluster, request: Request) -> Message:
    """The end offsets of leader epochs."""

    def answer(topic: str, row: Message) -> Message:
        leader = cluster.find_led(topic, row["Partition"], request.node, row.get("CurrentLeaderEpoch", -1))
        if isinstance(leader, ErrorCode):
            return {"Partition": row["Partition"], "ErrorCode": leader}
        epoch, end = leader.end_of_epoch(row["LeaderEpoch"])
        return {"Partition": row["Partition"], "LeaderEpoch": epoch, "EndOffset": end}

    asked = [{"Name": topic["Topic"], "Partitions": topic["Partitions"]} for topic in request.row["Topics"]]
    rows = per_topic(asked, answer)
    return {"Topics": [{"Topic": row["Name"], "Partitions": row["Partitions"]} for row in rows]}
