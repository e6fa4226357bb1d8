"""Requests and responses: what each API of Kafka asks of the cluster, and in which fields of which version it says so.

A handler has the name of its API. It returns the response's fields, or ``None`` when it answers later (or never, as
Produce with acks=0). What is decided here is which error code of Kafka's answers what the machines have said; the rules
themselves are theirs.

Kafka: KafkaApis, AddPartitionsToTxnManager, the schemas of the messages
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka_eos.errors import ErrorCode, MalformedBatch
from kafka_eos.protocol import Message
from kafka_eos.record_batch import NO_PRODUCER_ID, RecordBatch, decode_batch
from kafka_eos.server.cluster import INTERNAL_TOPICS, Cluster, Topic
from kafka_eos.server.consumer_groups import Follower, FollowingGroup, by_topic
from kafka_eos.server.groups import MAX_METADATA_BYTES, CommittedOffset
from kafka_eos.server.partitions import Leader, Ticket
from kafka_eos.server.schemas import SERVED, served_codec
from kafka_eos.spec_mapping import camel_case
from kafka_eos.transaction_coordinator import ONGOING
from kafka_eos.transaction_log import TRANSACTION_VERSION_2, TransactionState

READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
NO_ID = UUID(int=0)

FIRST_VERSION_2 = {"Produce": 12, "TxnOffsetCommit": 5, "EndTxn": 5}
"""From which request version on a client follows transaction version 2 (KIP-890)."""

NEWEST_VERSIONS = {"InitProducerId": 5}
"""Where Kafka does not offer the newest version of its schema: it is not stable yet (KIP-939)."""

STATE_NAMES: Mapping[TransactionState, str] = {
    state: camel_case(state.name.lower(), capital=True) for state in TransactionState
}
_STATES = {name: state for state, name in STATE_NAMES.items()}
_TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "segment.bytes": "1073741824",
}
_TOPIC, _BROKER = 2, 4
_DYNAMIC_TOPIC_CONFIG, _DEFAULT_CONFIG = 1, 5


def served_versions(api: str) -> range:
    """The versions of an API that are served."""
    versions = served_codec().versions(f"{api}Request")
    return range(versions.start, min(versions.stop, NEWEST_VERSIONS.get(api, versions.stop) + 1))


@dataclass(slots=True)
class Request:
    """A request as a handler meets it.

    Attributes:
        api: the name of its API.
        version: of the message.
        row: its fields.
        node: the broker that it came to.
        client_id: as the client calls itself.
        client_host: where it comes from.
        reply: answers it, for those that are not answered at once.
        cancel: forgets it, when its client is gone before it is answered.
    """

    api: str
    version: int
    row: Message
    node: int
    client_id: str
    client_host: str
    reply: Callable[[Message], None]
    cancel: Callable[[], None] | None = None

    @property
    def transaction_version(self) -> int:
        """Which version of transactions the client follows."""
        return TRANSACTION_VERSION_2 if self.version >= FIRST_VERSION_2[self.api] else 1


def handle(cluster: Cluster, request: Request) -> Message | None:
    """Answer a request, or do so later."""
    return HANDLERS[request.api](cluster, request)


# --- what a client asks first ----------------------------------------------------------------------------------------


def api_versions(cluster: Cluster, request: Request) -> Message:  # noqa: ARG001
    """Which APIs in which versions are served, and which transaction version is in force."""
    codec = served_codec()
    served = [(codec.keys[api], served_versions(api)) for api in SERVED]
    levels = {"group.version": 1, "transaction.version": cluster.settings.transactions.version}
    newest = {"group.version": 1, "transaction.version": TRANSACTION_VERSION_2}
    return {
        "ApiKeys": [
            {"ApiKey": key, "MinVersion": versions.start, "MaxVersion": versions.stop - 1}
            for key, versions in sorted(served)
        ],
        "SupportedFeatures": [{"Name": name, "MinVersion": 0, "MaxVersion": top} for name, top in newest.items()],
        "FinalizedFeaturesEpoch": 1,
        "FinalizedFeatures": [
            {"Name": name, "MaxVersionLevel": level, "MinVersionLevel": level}
            for name, level in levels.items()
            if level
        ],
    }


def metadata(cluster: Cluster, request: Request) -> Message:
    """Brokers, topics and leaders."""
    asked = request.row["Topics"]
    everything = asked is None or (request.version == 0 and not asked)
    if everything:
        topics = [_topic_row(topic) for topic in cluster.topics.values()]
    else:
        may_create = request.row.get("AllowAutoTopicCreation", True)
        topics = [_asked_topic(cluster, row, may_create) for row in asked]
    return {
        "Brokers": _brokers(cluster, "NodeId"),
        "ClusterId": cluster.cluster_id,
        "ControllerId": cluster.brokers[0].node,
        "Topics": topics,
    }


def _brokers(cluster: Cluster, node: str) -> list[Message]:
    return [{node: broker.node, "Host": broker.host, "Port": broker.port} for broker in cluster.brokers]


def _asked_topic(cluster: Cluster, row: Message, may_create: bool) -> Message:
    name, topic_id = row["Name"], row.get("TopicId", NO_ID)
    if name is None:
        name = cluster.names.get(topic_id)
        if name is None:
            return {"ErrorCode": ErrorCode.UNKNOWN_TOPIC_ID, "Name": None, "TopicId": topic_id, "Partitions": []}
    topic = cluster.topics.get(name)
    wanted = cluster.settings.default_partitions
    error = cluster.topic_error(name)
    if topic is None and may_create and wanted and error is ErrorCode.NONE and cluster.room_for(wanted):
        topic = cluster.create_topic(name, wanted)
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if error is ErrorCode.NONE else error
        return {"ErrorCode": error, "Name": name, "Partitions": []}
    return _topic_row(topic)


def _topic_row(topic: Topic) -> Message:
    return {
        "ErrorCode": ErrorCode.NONE,
        "Name": topic.name,
        "TopicId": topic.topic_id,
        "IsInternal": topic.name in INTERNAL_TOPICS,
        "Partitions": [
            {
                "ErrorCode": ErrorCode.NONE,
                "PartitionIndex": leader.partition,
                "LeaderId": leader.node,
                "LeaderEpoch": leader.leader_epoch,
                "ReplicaNodes": [leader.node],
                "IsrNodes": [leader.node],
                "OfflineReplicas": [],
                "EligibleLeaderReplicas": [],
                "LastKnownElr": [],
            }
            for leader in topic.partitions
        ],
    }


def describe_topic_partitions(cluster: Cluster, request: Request) -> Message:
    """Topics, in the form of KIP-966; all partitions in one answer."""
    rows = []
    for asked in request.row["Topics"] or [{"Name": name} for name in cluster.topics]:
        topic = cluster.topics.get(asked["Name"])
        unknown = {"ErrorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Name": asked["Name"], "Partitions": []}
        rows.append(unknown if topic is None else _topic_row(topic))
    return {"Topics": rows, "NextCursor": None}


def describe_cluster(cluster: Cluster, request: Request) -> Message:  # noqa: ARG001
    """Brokers."""
    return {
        "ClusterId": cluster.cluster_id,
        "ControllerId": cluster.brokers[0].node,
        "Brokers": _brokers(cluster, "BrokerId"),
    }


def describe_configs(cluster: Cluster, request: Request) -> Message:
    """What topics and brokers are configured with, as far as it means anything here."""
    return {"Results": [_described(cluster, row) for row in request.row["Resources"]]}


def _described(cluster: Cluster, row: Message) -> Message:
    kind, name = row["ResourceType"], row["ResourceName"]
    result = {"ResourceType": kind, "ResourceName": name, "ErrorMessage": None, "ErrorCode": ErrorCode.NONE}
    own: Mapping[str, str | None] = {}
    if kind == _TOPIC and name in cluster.topics:
        own = cluster.topics[name].configs
        values: dict[str, str | None] = {**_TOPIC_CONFIGS, **own}
    elif kind == _BROKER:
        settings = cluster.settings
        values = {
            "transaction.max.timeout.ms": str(settings.transactions.max_timeout_ms),
            "transactional.id.expiration.ms": str(settings.transactions.id_expiration_ms),
            "producer.id.expiration.ms": str(settings.producer_id_expiration_ms),
            "message.max.bytes": str(settings.limits.batch_bytes),
        }
    else:
        return {**result, "ErrorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Configs": []}
    keys = row["ConfigurationKeys"]
    configs: list[Message] = [
        {
            "Name": key,
            "Value": value,
            "ReadOnly": False,
            "ConfigSource": _DYNAMIC_TOPIC_CONFIG if key in own else _DEFAULT_CONFIG,
            "IsSensitive": False,
            "Synonyms": [],
            "Documentation": None,
        }
        for key, value in values.items()
        if keys is None or key in keys
    ]
    return {**result, "Configs": configs}


# --- topics ----------------------------------------------------------------------------------------------------------


def create_topics(cluster: Cluster, request: Request) -> Message:
    """New topics."""
    names = [row["Name"] for row in request.row["Topics"]]
    rows = []
    for row in request.row["Topics"]:
        assigned = row["Assignments"]
        wanted = len(assigned) if assigned else row["NumPartitions"]
        partitions = max(cluster.settings.default_partitions, 1) if wanted == -1 else wanted
        error = cluster.topic_error(row["Name"])
        if names.count(row["Name"]) > 1:
            error = ErrorCode.INVALID_REQUEST
        elif error is ErrorCode.NONE and partitions < 1:
            error = ErrorCode.INVALID_PARTITIONS
        elif error is ErrorCode.NONE and not cluster.room_for(partitions):
            error = ErrorCode.POLICY_VIOLATION
        result: Message = {"Name": row["Name"], "ErrorCode": error, "ErrorMessage": None if not error else error.name}
        if error is ErrorCode.NONE:
            result |= {"NumPartitions": partitions, "ReplicationFactor": 1, "Configs": []}
            if not request.row["validateOnly"]:
                configs = {config["Name"]: config["Value"] for config in row["Configs"]}
                result["TopicId"] = cluster.create_topic(row["Name"], partitions, configs).topic_id
        rows.append(result)
    return {"Topics": rows}


def delete_topics(cluster: Cluster, request: Request) -> Message:
    """Topics that go, with all that they hold."""
    asked = request.row.get("Topics") or [{"Name": name} for name in request.row.get("TopicNames", ())]
    rows = []
    for row in asked:
        topic_id = row.get("TopicId", NO_ID)
        name = row["Name"] if row["Name"] is not None else cluster.names.get(topic_id)
        error = ErrorCode.NONE
        if name is None:
            error = ErrorCode.UNKNOWN_TOPIC_ID
        elif name not in cluster.topics:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif name in INTERNAL_TOPICS:
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            topic_id = cluster.topics[name].topic_id
            cluster.delete_topic(name)
        rows.append({"Name": name, "TopicId": topic_id, "ErrorCode": error})
    return {"Responses": rows}


def create_partitions(cluster: Cluster, request: Request) -> Message:
    """More partitions for topics."""
    rows = []
    for row in request.row["Topics"]:
        topic = cluster.topics.get(row["Name"])
        error = ErrorCode.NONE
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif row["Count"] <= len(topic.partitions):
            error = ErrorCode.INVALID_PARTITIONS
        elif not cluster.room_for(row["Count"] - len(topic.partitions)):
            error = ErrorCode.POLICY_VIOLATION
        elif not request.row["ValidateOnly"]:
            cluster.grow_topic(topic, row["Count"])
        rows.append({"Name": row["Name"], "ErrorCode": error})
    return {"Results": rows}


def delete_records(cluster: Cluster, request: Request) -> Message:
    """Later first offsets."""

    def delete(topic: str, row: Message) -> Message:
        leader = cluster.find_led(topic, row["PartitionIndex"], request.node)
        result = {"PartitionIndex": row["PartitionIndex"], "LowWatermark": -1}
        if isinstance(leader, ErrorCode):
            return {**result, "ErrorCode": leader}
        offset = leader.high_watermark if row["Offset"] == -1 else row["Offset"]
        if not 0 <= offset <= leader.high_watermark:
            return {**result, "ErrorCode": ErrorCode.OFFSET_OUT_OF_RANGE}
        cluster.delete_records(leader, offset)
        return {**result, "ErrorCode": ErrorCode.NONE, "LowWatermark": leader.log_start_offset}

    return {"Topics": _by_topic(request.row["Topics"], delete)}


def _by_topic(topics: Iterable[Message], answer: Callable[[str, Message], Message]) -> list[Message]:
    """The rows of a response that has topics with partitions, as its request."""
    return [
        {"Name": topic["Name"], "Partitions": [answer(topic["Name"], row) for row in topic["Partitions"]]}
        for topic in topics
    ]


# --- Produce ---------------------------------------------------------------------------------------------------------


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
    if (batch.base_sequence >= 0) != (batch.producer_id != NO_PRODUCER_ID):
        return ErrorCode.INVALID_RECORD, -1, "a sequence without a producer, or a producer without a sequence"
    is_new = batch.producer_id != NO_PRODUCER_ID and batch.producer_id not in leader.last_timestamps
    if is_new and len(leader.last_timestamps) >= limits.producers:
        return ErrorCode.POLICY_VIOLATION, -1, f"{limits.producers} producers are known already"
    if not cluster.has_room():
        return ErrorCode.POLICY_VIOLATION, -1, f"all partitions together hold {limits.log_bytes} bytes"
    ticket = None
    if batch.is_transactional:
        if batch.producer_id == NO_PRODUCER_ID:
            return ErrorCode.INVALID_RECORD, -1, "a transactional batch without a producer"
        if request.row["TransactionalId"] is None:
            return ErrorCode.INVALID_REQUEST, -1, "a transactional batch without a transactional id"
        error, ticket = _ticket_for(cluster, request, leader, batch.producer_id, batch.producer_epoch)
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


def _ticket_for(
    cluster: Cluster, request: Request, leader: Leader, producer_id: int, epoch: int
) -> tuple[ErrorCode, Ticket | None]:
    """What a transactional batch has to show its leader: where that needs it, the coordinator is asked.

    Spec:  Transactions!StartVerification, Verify
    Kafka: ReplicaManager.maybeSendPartitionsToTransactionCoordinator, AddPartitionsToTxnManager
    """
    version = request.transaction_version
    if not leader.needs_verification(producer_id, epoch, version):
        return ErrorCode.NONE, Ticket(version)
    if epoch < leader.producer(producer_id).epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH, None
    ticket = leader.start_verification(producer_id, epoch, version)
    name, coordinators = request.row["TransactionalId"], cluster.transactions
    if version >= TRANSACTION_VERSION_2:
        error = coordinators.add_partitions(name, producer_id, epoch, [leader.name], version, cluster.now)
    else:
        error = coordinators.verify(name, producer_id, epoch, leader.name)
    if error is not ErrorCode.NONE:
        leader.drop_guard(producer_id)
    return _told_to_producer(error, request), ticket


def _told_to_producer(error: ErrorCode, request: Request) -> ErrorCode:
    """How a leader passes on what the coordinator said.    Kafka: ReplicaManager.handleProduceAppend."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH if request.api == "Produce" else error
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and request.transaction_version < TRANSACTION_VERSION_2:
        return ErrorCode.NOT_ENOUGH_REPLICAS if request.api == "Produce" else error
    if error is ErrorCode.TRANSACTION_ABORTABLE and request.version < FIRST_VERSION_2[request.api] - 1:
        return ErrorCode.INVALID_TXN_STATE
    return error


# --- Fetch -----------------------------------------------------------------------------------------------------------


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

    return {"Topics": _by_topic(request.row["Topics"], answer)}


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
    rows = _by_topic(asked, answer)
    return {"Topics": [{"Topic": row["Name"], "Partitions": row["Partitions"]} for row in rows]}


# --- coordinators ----------------------------------------------------------------------------------------------------

_GROUP, _TRANSACTION = 0, 1


def find_coordinator(cluster: Cluster, request: Request) -> Message:
    """Which broker coordinates a group or a transactional.id."""
    kind = request.row.get("KeyType", _GROUP)

    def find(key: str) -> Message:
        if kind not in {_GROUP, _TRANSACTION}:
            error = {"ErrorCode": ErrorCode.INVALID_REQUEST, "ErrorMessage": "no such kind of coordinator"}
            return {"Key": key, "NodeId": -1, "Host": "", "Port": -1, **error}
        leader = cluster.offsets_partition(key) if kind == _GROUP else cluster.state_partition(key)
        broker = next(broker for broker in cluster.brokers if broker.node == leader.node)
        found = {"NodeId": broker.node, "Host": broker.host, "Port": broker.port}
        return {"Key": key, **found, "ErrorCode": ErrorCode.NONE, "ErrorMessage": None}

    if request.version >= 4:
        return {"Coordinators": [find(key) for key in request.row["CoordinatorKeys"]]}
    return find(request.row["Key"])


def _group_error(cluster: Cluster, request: Request, group: str) -> ErrorCode:
    """Why a broker coordinates no such group; ``NONE`` if it does."""
    if cluster.offsets_partition(group).node != request.node:
        return ErrorCode.NOT_COORDINATOR
    full = group not in cluster.groups.known and len(cluster.groups.known) >= cluster.settings.limits.groups
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if full else ErrorCode.NONE


def _transaction_error(cluster: Cluster, request: Request, transactional_id: str) -> ErrorCode:
    """Why a broker coordinates no such transactional.id; ``NONE`` if it does."""
    here = cluster.state_partition(transactional_id).node == request.node
    return ErrorCode.NONE if here else ErrorCode.NOT_COORDINATOR


# --- transactions ----------------------------------------------------------------------------------------------------


def init_producer_id(cluster: Cluster, request: Request) -> Message:
    """Give a producer id and epoch."""
    row, coordinators = request.row, cluster.transactions
    name = row["TransactionalId"]
    nobody = {"ProducerId": -1, "ProducerEpoch": -1}
    if name:
        error = _transaction_error(cluster, request, name)
        limit = cluster.settings.limits.transactional_ids
        if error is ErrorCode.NONE and name not in coordinators.known and len(coordinators.known) >= limit:
            error = ErrorCode.POLICY_VIOLATION
        if error is not ErrorCode.NONE:
            return {"ErrorCode": error, **nobody}
    asked = row.get("ProducerId", -1), row.get("ProducerEpoch", -1)
    answer = coordinators.init_producer_id(name, row["TransactionTimeoutMs"], *asked, cluster.now)
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and request.version < 4:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"ErrorCode": error, "ProducerId": answer.producer_id, "ProducerEpoch": answer.epoch}


def add_partitions_to_txn(cluster: Cluster, request: Request) -> Message:
    """Add partitions to a transaction, or, from version 4 on, to several, or vouch for them."""
    row = request.row
    if request.version < 4:
        topics = row["V3AndBelowTopics"]
        given = row["V3AndBelowTransactionalId"], row["V3AndBelowProducerId"], row["V3AndBelowProducerEpoch"]
        return {"ResultsByTopicV3AndBelow": _add_partitions(cluster, request, given, topics, verify_only=False)}
    return {
        "ResultsByTransaction": [
            {
                "TransactionalId": each["TransactionalId"],
                "TopicResults": _add_partitions(
                    cluster,
                    request,
                    (each["TransactionalId"], each["ProducerId"], each["ProducerEpoch"]),
                    each["Topics"],
                    each["VerifyOnly"],
                ),
            }
            for each in row["Transactions"]
        ]
    }


def _add_partitions(
    cluster: Cluster, request: Request, given: tuple[str, int, int], topics: list[Message], verify_only: bool
) -> list[Message]:
    """One partition that is not there spoils it for all.    Kafka: KafkaApis.handleAddPartitionsToTxnRequest."""
    name, producer_id, epoch = given
    asked = [(topic["Name"], number) for topic in topics for number in topic["Partitions"]]
    lacking = {key for key in asked if isinstance(cluster.find(*key), ErrorCode)}
    errors = dict.fromkeys(asked, _transaction_error(cluster, request, name))
    if lacking:
        errors = {
            key: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if key in lacking else ErrorCode.OPERATION_NOT_ATTEMPTED
            for key in asked
        }
    elif not any(errors.values()):
        coordinators, partitions = cluster.transactions, [f"{topic}-{number}" for topic, number in asked]
        if verify_only:
            found = [coordinators.verify(name, producer_id, epoch, partition) for partition in partitions]
        else:
            # From version 4 on only brokers send it, for a batch of a client that follows version 2.
            version = TRANSACTION_VERSION_2 if request.version >= 4 else 1
            error = coordinators.add_partitions(name, producer_id, epoch, partitions, version, cluster.now)
            if error is ErrorCode.PRODUCER_FENCED and request.version < 2:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            found = [error] * len(partitions)
        errors = dict(zip(asked, found, strict=True))
    return [
        {
            "Name": topic["Name"],
            "ResultsByPartition": [
                {"PartitionIndex": number, "PartitionErrorCode": errors[topic["Name"], number]}
                for number in topic["Partitions"]
            ],
        }
        for topic in topics
    ]


def add_offsets_to_txn(cluster: Cluster, request: Request) -> Message:
    """Add the partition that holds a group's offsets to a transaction."""
    row = request.row
    name, producer_id, epoch = row["TransactionalId"], row["ProducerId"], row["ProducerEpoch"]
    error = _transaction_error(cluster, request, name)
    if error is ErrorCode.NONE:
        partition = cluster.offsets_partition(row["GroupId"]).name
        error = cluster.transactions.add_partitions(name, producer_id, epoch, [partition], 1, cluster.now)
    if error is ErrorCode.PRODUCER_FENCED and request.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"ErrorCode": error}


def end_txn(cluster: Cluster, request: Request) -> Message:
    """Commit or abort."""
    row = request.row
    name = row["TransactionalId"]
    error = _transaction_error(cluster, request, name)
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error}
    asked = name, row["ProducerId"], row["ProducerEpoch"], row["Committed"]
    answer = cluster.transactions.end(*asked, request.transaction_version, cluster.now)
    error = answer.error
    if error is ErrorCode.PRODUCER_FENCED and request.version < 2:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return {"ErrorCode": error, "ProducerId": answer.producer_id, "ProducerEpoch": answer.epoch}


def txn_offset_commit(cluster: Cluster, request: Request) -> Message:
    """Write offsets that count once the transaction commits."""
    row = request.row
    name, producer = row["GroupId"], (row["ProducerId"], row["ProducerEpoch"])
    error = _group_error(cluster, request, name)
    partition, ticket = cluster.offsets_partition(name), None
    if error is ErrorCode.NONE:
        error, ticket = _ticket_for(cluster, request, partition, *producer)
    asked = {"GroupId": name, "MemberId": row.get("MemberId", ""), "GroupInstanceId": row.get("GroupInstanceId")}
    if error is ErrorCode.NONE:
        error = _commit_error(cluster, asked, transactional=True, generation=row.get("GenerationId", -1))
        error = ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error
    offsets, errors = _offsets(cluster, row["Topics"], lambda topic: topic["Name"])
    if ticket is not None and error is ErrorCode.NONE and offsets:
        error = cluster.groups.commit_in_transaction(name, offsets, producer, ticket).error
        cluster.wake(partition)

    def answer(topic: str, part: Message) -> Message:
        found = errors.get((topic, part["PartitionIndex"]), ErrorCode.NONE)
        return {"PartitionIndex": part["PartitionIndex"], "ErrorCode": error or found}

    return {"Topics": _by_topic(row["Topics"], answer)}


def _commit_error(cluster: Cluster, row: Message, transactional: bool, generation: int) -> ErrorCode:
    """Why offsets are refused; ``NONE`` if they are not. A member of a consumer group gives its epoch."""
    group = cluster.consumer_groups.find(row["GroupId"])
    if group is not None:
        return group.commit_error(row["MemberId"], generation, transactional)
    return cluster.groups.commit_error(row, transactional, generation)


def _offsets(
    cluster: Cluster, topics: Iterable[Message], name_of: Callable[[Message], str]
) -> tuple[list[tuple[str, int, CommittedOffset]], dict[tuple[str, int], ErrorCode]]:
    """The offsets of a request that can be committed, and why the others cannot."""
    offsets, errors = [], {}
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


def write_txn_markers(cluster: Cluster, request: Request) -> Message:
    """Write markers, as a coordinator asks for or an operator who ends a hanging transaction."""
    rows = []
    for marker in request.row["Markers"]:
        given = (
            marker["ProducerId"],
            marker["ProducerEpoch"],
            marker["TransactionResult"],
            marker["CoordinatorEpoch"],
            max(marker.get("TransactionVersion", 0), 1),
        )

        def write(topic: str, number: int, given: tuple[int, int, bool, int, int] = given) -> ErrorCode:
            leader = cluster.find_led(topic, number, request.node)
            return leader if isinstance(leader, ErrorCode) else cluster.write_marker(leader.name, *given)

        topics = [
            {
                "Name": topic["Name"],
                "Partitions": [
                    {"PartitionIndex": number, "ErrorCode": write(topic["Name"], number)}
                    for number in topic["PartitionIndexes"]
                ],
            }
            for topic in marker["Topics"]
        ]
        rows.append({"ProducerId": marker["ProducerId"], "Topics": topics})
    return {"Markers": rows}


def describe_producers(cluster: Cluster, request: Request) -> Message:
    """The producers that a partition's leader knows."""

    def answer(topic: str, number: int) -> Message:
        leader = cluster.find_led(topic, number, request.node)
        if isinstance(leader, ErrorCode):
            return {"PartitionIndex": number, "ErrorCode": leader, "ActiveProducers": []}
        producers = []
        for producer_id, timestamp in leader.last_timestamps.items():
            known = leader.producer(producer_id)
            producers.append(
                {
                    "ProducerId": producer_id,
                    "ProducerEpoch": known.epoch,
                    "LastSequence": leader.last_sequence(producer_id),
                    "LastTimestamp": timestamp,
                    "CoordinatorEpoch": known.coordinator_epoch,
                    "CurrentTxnStartOffset": known.first_offset,
                }
            )
        return {"PartitionIndex": number, "ErrorCode": ErrorCode.NONE, "ActiveProducers": producers}

    return {
        "Topics": [
            {"Name": topic["Name"], "Partitions": [answer(topic["Name"], n) for n in topic["PartitionIndexes"]]}
            for topic in request.row["Topics"]
        ]
    }


def describe_transactions(cluster: Cluster, request: Request) -> Message:
    """What coordinators know of transactional.ids."""
    rows = []
    for name in request.row["TransactionalIds"]:
        known = cluster.transactions.known.get(name)
        error = _transaction_error(cluster, request, name)
        if error is ErrorCode.NONE and known is None:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        if error is not ErrorCode.NONE or known is None:
            rows.append({"ErrorCode": error, "TransactionalId": name, "Topics": []})
            continue
        rows.append(
            {
                "ErrorCode": ErrorCode.NONE,
                "TransactionalId": name,
                "TransactionState": STATE_NAMES[known.state],
                "TransactionTimeoutMs": known.timeout_ms,
                "TransactionStartTimeMs": known.start_ms,
                "ProducerId": known.machine.metadata.producer_id,
                "ProducerEpoch": known.machine.metadata.epoch,
                "Topics": [
                    {"Topic": topic, "Partitions": numbers}
                    for topic, numbers in by_topic(known.machine.metadata.partitions).items()
                ],
            }
        )
    return {"TransactionStates": rows}


def list_transactions(cluster: Cluster, request: Request) -> Message:
    """The transactional.ids of a broker's coordinators."""
    row = request.row
    states, ids = set(row["StateFilters"]), set(row["ProducerIdFilters"])
    longer_than, pattern = row.get("DurationFilter", -1), row.get("TransactionalIdPattern")
    try:
        matches = re.compile(pattern or "")
    except re.error:
        return {"ErrorCode": ErrorCode.INVALID_REQUEST, "TransactionStates": []}
    rows = []
    for name, known in cluster.transactions.known.items():
        metadata = known.machine.metadata
        too_young = longer_than >= 0 and (known.state is not ONGOING or cluster.now - known.start_ms <= longer_than)
        left_out = (
            _transaction_error(cluster, request, name) is not ErrorCode.NONE
            or (states and STATE_NAMES[known.state] not in states)
            or (ids and metadata.producer_id not in ids)
            or too_young
            or (pattern and not matches.fullmatch(name))
        )
        if not left_out:
            state = STATE_NAMES[known.state]
            rows.append({"TransactionalId": name, "ProducerId": metadata.producer_id, "TransactionState": state})
    return {"UnknownStateFilters": sorted(states - _STATES.keys()), "TransactionStates": rows}


# --- groups ----------------------------------------------------------------------------------------------------------


def join_group(cluster: Cluster, request: Request) -> Message | None:
    """Join a classic group."""
    error = _group_error(cluster, request, request.row["GroupId"])
    if error is not ErrorCode.NONE:
        name = None if request.version >= 7 else ""
        return {"ErrorCode": error, "MemberId": request.row["MemberId"], "ProtocolName": name}
    client = request.client_id, request.client_host
    cluster.groups.join(request.row, request.version, client, request.reply)
    return None


def sync_group(cluster: Cluster, request: Request) -> Message | None:
    """Take part in the assignment of a generation."""
    error = _group_error(cluster, request, request.row["GroupId"])
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error}
    cluster.groups.sync(request.row, request.reply)
    return None


def heartbeat(cluster: Cluster, request: Request) -> Message:
    """A member is alive."""
    error = _group_error(cluster, request, request.row["GroupId"])
    return {"ErrorCode": error or cluster.groups.heartbeat(request.row)}


def leave_group(cluster: Cluster, request: Request) -> Message:
    """Members leave."""
    row = request.row
    error = _group_error(cluster, request, row["GroupId"])
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


def offset_commit(cluster: Cluster, request: Request) -> Message:
    """Commit offsets outside of transactions."""
    row = request.row
    error = _group_error(cluster, request, row["GroupId"])
    if error is ErrorCode.NONE:
        generation = row.get("GenerationIdOrMemberEpoch", -1)
        error = _commit_error(cluster, row, transactional=False, generation=generation)

    def name_of(topic: Message) -> str:
        return cluster.names.get(topic["TopicId"], "") if request.version >= 10 else str(topic["Name"])

    offsets, errors = _offsets(cluster, row["Topics"], name_of)
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
    """The committed offsets of groups."""
    row = request.row
    stable = row.get("RequireStable", False)
    if request.version >= 8:
        return {"Groups": [_fetch_offsets(cluster, request, group, stable) for group in row["Groups"]]}
    answer = _fetch_offsets(cluster, request, {"GroupId": row["GroupId"], "Topics": row["Topics"]}, stable)
    if request.version < 2 and answer["ErrorCode"]:  # these versions have errors of partitions alone
        for topic in answer["Topics"]:
            for part in topic["Partitions"]:
                part["ErrorCode"] = answer["ErrorCode"]
    return answer


def _fetch_offsets(cluster: Cluster, request: Request, group: Message, stable: bool) -> Message:
    name, topics = group["GroupId"], group["Topics"]
    error = _group_error(cluster, request, name)
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
    return {"GroupId": name, "ErrorCode": ErrorCode.NONE, "Topics": rows}


def _committed_topics(cluster: Cluster, group: str) -> list[Message]:
    """All partitions for which a group has committed an offset."""
    known = cluster.groups.known.get(group)
    return [
        {"Name": topic, "TopicId": cluster.topics[topic].topic_id, "PartitionIndexes": numbers}
        for topic, numbers in by_topic(known.machine.committed if known is not None else ()).items()
    ]


def describe_groups(cluster: Cluster, request: Request) -> Message:
    """States and members of groups."""
    rows = []
    for name in request.row["Groups"]:
        error = _group_error(cluster, request, name)
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
    error = _group_error(cluster, request, row["GroupId"])
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
        error = _group_error(cluster, request, name)
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
        error = _group_error(cluster, request, name)
        rows.append({"GroupId": name, "ErrorCode": error or cluster.groups.delete(name)})
    return {"Results": rows}


def offset_delete(cluster: Cluster, request: Request) -> Message:
    """Offsets that go."""
    name = request.row["GroupId"]
    error = _group_error(cluster, request, name)
    group = cluster.groups.known.get(name)
    if error is ErrorCode.NONE and group is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    elif error is ErrorCode.NONE and group is not None and not group.is_empty:
        error = ErrorCode.NON_EMPTY_GROUP
    if error is not ErrorCode.NONE:
        return {"ErrorCode": error}
    topics = request.row["Topics"]
    keys = [f"{topic['Name']}-{part['PartitionIndex']}" for topic in topics for part in topic["Partitions"]]
    cluster.groups.delete_offsets(name, keys)
    return {"Topics": _by_topic(topics, lambda _, part: {"PartitionIndex": part["PartitionIndex"]})}


def _snake(api: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()


HANDLERS: Mapping[str, Callable[[Cluster, Request], Message | None]] = {api: globals()[_snake(api)] for api in SERVED}
