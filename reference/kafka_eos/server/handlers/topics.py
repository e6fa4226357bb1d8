"""The first requests of a client, and topics."""

from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

from kafka_eos.errors import ErrorCode, Rejected
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos.server.cluster import INTERNAL_TOPICS, Cluster, Topic
from kafka_eos.server.configs import ALL_BROKERS, TOPIC_CONFIGS, Source, check_values
from kafka_eos.server.groups import NO_ID
from kafka_eos.server.handlers.request import (
    Request,
    per_topic,
    served_versions,
)
from kafka_eos.server.schemas import REFUSED, SERVED, served_codec
from kafka_eos.wire.protocol import Message

_GROUP, _TRANSACTION = 0, 1
_PRODUCE = 0
"""The key of the API that is said to have a version 0: old librdkafkas look for it.    Kafka: KAFKA-18659."""


def api_versions(cluster: Cluster, request: Request) -> Message:  # noqa: ARG001
    """The APIs and versions that are served, and the transaction version in force."""
    codec = served_codec()
    served = [(codec.keys[api], served_versions(api)) for api in (*SERVED, *REFUSED)]
    levels = {"group.version": 1, "transaction.version": cluster.settings.transactions.version}
    newest = {"group.version": 1, "transaction.version": TRANSACTION_VERSION_2}
    return {
        "ApiKeys": [
            {"ApiKey": key, "MinVersion": 0 if key == _PRODUCE else versions.start, "MaxVersion": versions.stop - 1}
            for key, versions in sorted(served, key=lambda each: each[0])
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
        topics = [_topic_row(cluster, topic) for topic in cluster.topics.values()]
    else:
        may_create = request.row.get("AllowAutoTopicCreation", True)
        topics = [_asked_topic(cluster, row, may_create) for row in asked]
    return {
        "Brokers": _brokers(cluster, "NodeId"),
        "ClusterId": cluster.cluster_id,
        "ControllerId": request.node,  # in Kafka any broker that is there
        "Topics": topics,
    }


def _brokers(cluster: Cluster, node: str, with_fenced: bool = False) -> list[Message]:
    """The brokers; fenced ones only where they are asked for."""
    return [
        {node: broker.node, "Host": broker.host, "Port": broker.port, "IsFenced": broker.node in cluster.fenced}
        for broker in cluster.brokers
        if with_fenced or broker.node not in cluster.fenced
    ]


def _asked_topic(cluster: Cluster, row: Message, may_create: bool) -> Message:
    name, topic_id = row["Name"], row.get("TopicId", NO_ID)
    if name is None:
        name = cluster.names.get(topic_id)
        if name is None:
            return {"ErrorCode": ErrorCode.UNKNOWN_TOPIC_ID, "Name": None, "TopicId": topic_id}
    topic = cluster.topics.get(name)
    wanted = cluster.settings.default_partitions
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if topic is None:
        try:
            cluster.check_new_topic(name)
            if may_create and wanted and cluster.room_for(wanted):
                topic = cluster.create_topic(name, wanted)
        except Rejected as rejected:
            error = rejected.code
    if topic is None:
        return {"ErrorCode": error, "Name": name}
    return _topic_row(cluster, topic)


def _topic_row(cluster: Cluster, topic: Topic) -> Message:
    return {
        "Name": topic.name,
        "TopicId": topic.topic_id,
        "IsInternal": topic.name in INTERNAL_TOPICS,
        "Partitions": [
            {
                "PartitionIndex": leader.partition,
                "LeaderId": leader.node,
                "LeaderEpoch": leader.leader_epoch,
                "ReplicaNodes": list(leader.replicas),
                "IsrNodes": cluster.in_sync(leader),
                "OfflineReplicas": [node for node in leader.replicas if node in cluster.gone],
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
        unknown = {"ErrorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Name": asked["Name"]}
        rows.append(unknown if topic is None else _topic_row(cluster, topic))
    return {"Topics": rows, "NextCursor": None}


def describe_cluster(cluster: Cluster, request: Request) -> Message:
    """The brokers of the cluster."""
    return {
        "ClusterId": cluster.cluster_id,
        "ControllerId": request.node,
        "Brokers": _brokers(cluster, "BrokerId", bool(request.row.get("IncludeFencedBrokers"))),
    }


def create_topics(cluster: Cluster, request: Request) -> Message:
    """Create topics."""
    given = Counter(row["Name"] for row in request.row["Topics"])
    rows: list[Message] = []
    for row in request.row["Topics"]:
        name = row["Name"]
        if given[name] > 1:
            if all(told["Name"] != name for told in rows):
                rows.append(_not_made(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            continue
        try:
            rows.append({"Name": name, "ErrorMessage": None} | _made(cluster, request, row))
        except Rejected as rejected:
            rows.append(_not_made(name, rejected.code, rejected.why))
    return {"Topics": rows}


def _not_made(name: str, error: ErrorCode, why: str) -> Message:
    return {"Name": name, "ErrorCode": error, "ErrorMessage": why, "NumPartitions": -1, "ReplicationFactor": -1}


def _made(cluster: Cluster, request: Request, row: Message) -> Message:
    """Make a topic, or only check that it can be made, and return its row of the response.

    Raises:
        Rejected: why not.    Kafka: ReplicationControlManager.createTopics, whose checks come in this order.
    """
    name = row["Name"]
    cluster.check_new_topic(name)
    configs = {config["Name"]: config["Value"] for config in row["Configs"]}
    lacking = [key for key, value in configs.items() if value is None]
    if lacking:
        why = f"Null value not supported for topic configs: {','.join(lacking)}"
        raise Rejected(ErrorCode.INVALID_CONFIG, why)
    check_values(TOPIC_CONFIGS, configs)
    partitions, replicas = _assigned(cluster, row) if row["Assignments"] else _counted(cluster, row)
    if not cluster.room_for(partitions):
        why = f"{cluster.settings.limits.partitions} partitions are the most for all topics together"
        raise Rejected(ErrorCode.POLICY_VIOLATION, why)
    factor = replicas if isinstance(replicas, int) else len(replicas[0])
    told = {"NumPartitions": partitions, "ReplicationFactor": factor}
    if request.row.get("validateOnly", False):
        return told | {"Configs": _configs_of_new(cluster, configs)}
    topic = cluster.create_topic(name, partitions, configs, replicas)
    return told | {"TopicId": topic.topic_id, "Configs": _configs_of_new(cluster, configs)}


def _configs_of_new(cluster: Cluster, configs: Mapping[str, str]) -> list[Message]:
    """The configurations of a new topic, as the controller sees them.    Kafka: since KIP-525."""
    rows = []
    for name, config in TOPIC_CONFIGS.items():
        inherited = cluster.configs.broker_synonyms(config, ALL_BROKERS)
        [value, source, *_] = (
            (configs[name], Source.TOPIC)
            if name in configs
            else (inherited[0].value, inherited[0].source)
            if inherited and inherited[0].source is not Source.DEFAULT
            else (config.default, Source.DEFAULT)
        )
        rows.append({"Name": name, "Value": value, "ConfigSource": source})
    return rows


def _counted(cluster: Cluster, row: Message) -> tuple[int, int]:
    """Partitions and replicas of a topic for which only their numbers are asked."""
    partitions, factor = row["NumPartitions"], row["ReplicationFactor"]
    if factor < -1 or factor == 0:
        why = "Replication factor must be larger than 0, or -1 to use the default value."
        raise Rejected(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    if partitions < -1 or partitions == 0:
        why = "Number of partitions was set to an invalid non-positive value."
        raise Rejected(ErrorCode.INVALID_PARTITIONS, why)
    factor = 1 if factor == -1 else factor
    if factor > len(cluster.brokers):
        why = (
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {len(cluster.brokers)} broker(s) are registered or some brokers have all their log "
            "directories cordoned."
        )
        raise Rejected(ErrorCode.INVALID_REPLICATION_FACTOR, why)
    return (max(cluster.settings.default_partitions, 1) if partitions == -1 else partitions), factor


def _assigned(cluster: Cluster, row: Message) -> tuple[int, list[tuple[int, ...]]]:
    """Partitions and replicas of a topic for which each replica is named."""
    for name, words in (("ReplicationFactor", "replication factor"), ("NumPartitions", "numPartitions")):
        if row[name] != -1:
            why = f"A manual partition assignment was specified, but {words} was not set to -1."
            raise Rejected(ErrorCode.INVALID_REQUEST, why)
    assigned: dict[int, tuple[int, ...]] = {}
    for each in row["Assignments"]:
        number = each["PartitionIndex"]
        if number in assigned:
            why = f"Found multiple manual partition assignments for partition {number}"
            raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        assigned[number] = _checked_replicas(cluster, each["BrokerIds"])
    if sorted(assigned) != list(range(len(assigned))):
        why = "partitions should be a consecutive 0-based integer sequence"
        raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    replicas = [assigned[number] for number in range(len(assigned))]
    _check_alike(replicas, len(replicas[0]))
    return len(replicas), replicas


def _checked_replicas(cluster: Cluster, brokers: Sequence[int]) -> tuple[int, ...]:
    """Kafka: ReplicationControlManager.validateManualPartitionAssignment."""
    nodes = {broker.node for broker in cluster.brokers}
    why = ""
    if not brokers:
        why = "an empty replica list."
    elif unknown := [node for node in brokers if node not in nodes]:
        why = f"broker {unknown[0]}, but no such broker is registered."
    elif twice := [node for node in brokers if list(brokers).count(node) > 1]:
        why = f"the broker {twice[0]} more than once."
    if why:
        raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {why}")
    return tuple(brokers)


def _check_alike(replicas: Sequence[tuple[int, ...]], factor: int) -> None:
    other = next((len(each) for each in replicas if len(each) != factor), None)
    if other is not None:
        why = f"a partition with {other} replica(s), but this is not consistent with previous partitions, which have "
        why = f"The manual partition assignment includes {why}{factor} replica(s)."
        raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def delete_topics(cluster: Cluster, request: Request) -> Message:
    """Delete topics, with all that they hold; one that is given more than once stays.

    Kafka: ControllerApis.deleteTopics
    """
    asked = request.row.get("Topics") or [{"Name": name} for name in request.row.get("TopicNames", ())]
    given = Counter((row["Name"], row.get("TopicId", NO_ID)) for row in asked)
    both_ways = {each for each, name in cluster.names.items() if (None, each) in given and given[name, NO_ID] == 1}
    rows = []
    for (told, told_id), times in given.items():
        if told is None and told_id in both_ways and times == 1:
            continue  # the row of its name says so
        topic_id, name = told_id, told if told is not None or times > 1 else cluster.names.get(told_id)
        error, why = _delete_error(cluster, told, told_id, name)
        if told is not None and cluster.topic_id(told) in both_ways:
            error, why = ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
            topic_id = cluster.topics[told].topic_id
        elif times > 1:
            error, why = ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if told is None else 'name'}."
        if error is ErrorCode.NONE and name is not None:
            topic_id = cluster.topics[name].topic_id
            cluster.delete_topic(name)
        rows.append({"Name": name, "TopicId": topic_id, "ErrorCode": error, "ErrorMessage": why})
    return {"Responses": rows}


def _delete_error(cluster: Cluster, told: str | None, topic_id: UUID, name: str | None) -> tuple[ErrorCode, str | None]:
    """Departs from Kafka, which deletes internal topics and creates them again."""
    has_id = topic_id != NO_ID
    if told is not None and has_id:
        return ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
    if told is None and not has_id:
        return ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
    if name not in cluster.topics:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    if name in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal, and needed"
    return ErrorCode.NONE, None


def create_partitions(cluster: Cluster, request: Request) -> Message:
    """Add partitions to topics."""
    given = Counter(row["Name"] for row in request.row["Topics"])
    rows: list[Message] = []
    for name in given:
        row = next(row for row in request.row["Topics"] if row["Name"] == name)
        error, why = ErrorCode.NONE, ""
        try:
            _grow(cluster, row, given[name] > 1, request.row["ValidateOnly"])
        except Rejected as rejected:
            error, why = rejected.code, rejected.why
        rows.append({"Name": name, "ErrorCode": error, "ErrorMessage": why or None})
    return {"Results": rows}


def _grow(cluster: Cluster, row: Message, is_repeated: bool, validate_only: bool) -> None:
    """Kafka: ReplicationControlManager.createPartitions."""
    if is_repeated:
        raise Rejected(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    topic, count, assignments = cluster.topics.get(row["Name"]), row["Count"], row["Assignments"]
    if topic is None:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(topic.partitions)
    if count == present:
        raise Rejected(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if count < present:
        why = f"The topic {topic.name} currently has {present} partition(s); {count} would not be an increase."
        raise Rejected(ErrorCode.INVALID_PARTITIONS, why)
    if assignments is not None and len(assignments) != count - present:
        why = f"Attempted to add {count - present} additional partition(s), "
        why += f"but only {len(assignments)} assignment(s) were specified."
        raise Rejected(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    factor = len(topic.partitions[0].replicas)
    replicas: list[tuple[int, ...]] | int = factor
    if assignments is not None:
        replicas = [_checked_replicas(cluster, each["BrokerIds"]) for each in assignments]
        _check_alike(replicas, factor)
    if not cluster.room_for(count - present):
        why = f"{cluster.settings.limits.partitions} partitions are the most for all topics together"
        raise Rejected(ErrorCode.POLICY_VIOLATION, why)
    if not validate_only:
        cluster.grow_topic(topic, count, replicas)


def delete_records(cluster: Cluster, request: Request) -> Message:
    """Delete records: move the first offsets of partitions forward."""

    def delete(topic: str, row: Message) -> Message:
        leader = cluster.find_led(topic, row["PartitionIndex"], request.node)
        result = {"PartitionIndex": row["PartitionIndex"], "LowWatermark": -1}
        if isinstance(leader, ErrorCode):
            return {**result, "ErrorCode": leader}
        offset = leader.high_watermark if row["Offset"] == -1 else row["Offset"]
        if not 0 <= offset <= leader.high_watermark:
            return {**result, "ErrorCode": ErrorCode.OFFSET_OUT_OF_RANGE}
        cluster.delete_records(leader, offset)
        return {**result, "LowWatermark": leader.log_start_offset}

    return {"Topics": per_topic(request.row["Topics"], delete)}


def find_coordinator(cluster: Cluster, request: Request) -> Message:
    """The broker that coordinates a group or a transactional.id."""
    kind = request.row.get("KeyType", _GROUP)

    def find(key: str) -> Message:
        if kind not in {_GROUP, _TRANSACTION}:
            error = {"ErrorCode": ErrorCode.INVALID_REQUEST, "ErrorMessage": "no such kind of coordinator"}
            return {"Key": key, "NodeId": -1, "Port": -1, **error}
        leader = cluster.offsets_partition(key) if kind == _GROUP else cluster.state_partition(key)
        broker = next(broker for broker in cluster.brokers if broker.node == leader.node)
        found = {"NodeId": broker.node, "Host": broker.host, "Port": broker.port}
        return {"Key": key, **found, "ErrorMessage": None}

    if request.version >= 4:
        return {"Coordinators": [find(key) for key in request.row["CoordinatorKeys"]]}
    return find(request.row["Key"])
