"""What a client asks first, and topics."""

from collections.abc import Mapping

from kafka_eos.errors import ErrorCode
from kafka_eos.protocol import Message
from kafka_eos.server.cluster import INTERNAL_TOPICS, Cluster, Topic
from kafka_eos.server.handlers.request import (
    NO_ID,
    Request,
    per_topic,
    served_versions,
)
from kafka_eos.server.schemas import SERVED, served_codec
from kafka_eos.transaction_log import TRANSACTION_VERSION_2

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
_GROUP, _TRANSACTION = 0, 1


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

    return {"Topics": per_topic(request.row["Topics"], delete)}


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
