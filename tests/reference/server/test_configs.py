"""Configurations of topics and brokers have their effect, and survive a restart."""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import NO_TIMESTAMP, Record, TimestampType, build_batch, decode_batch
from kafka_eos.machines.leader import LeaderRules
from kafka_eos.server.cluster import Limits, Machines, Settings
from kafka_eos.server.configs import DYNAMIC_BROKER_CONFIGS, READ_ONLY_BROKER_CONFIGS, TOPIC_CONFIGS
from kafka_eos.server.storage import TOPICS_AND_CONFIGS, DamagedLog, Directory
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos.wire.protocol import Message

from .conftest import NOW, Make, Wire

E = ErrorCode
TOPIC, BROKER, LOGGER = 2, 4, 8


def create(wire: Wire, name: str = "n", factor: int = 1, partitions: int = 1, **configs: str) -> int:
    """Create a topic, with configuration names with underscores; return the error."""
    rows = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
    topic = {"Name": name, "NumPartitions": partitions, "ReplicationFactor": factor, "Configs": rows}
    return int(wire.ask("CreateTopics", 7, Topics=[topic])["Topics"][0]["ErrorCode"])


def alter(wire: Wire, kind: int, name: str, node: int = 1, **values: str | None) -> int:
    """Set configurations, or delete those that are None; return the error."""
    rows = [
        {"Name": key.replace("_", "."), "ConfigOperation": int(value is None), "Value": value}
        for key, value in values.items()
    ]
    resource = {"ResourceType": kind, "ResourceName": name, "Configs": rows}
    return int(wire.ask("IncrementalAlterConfigs", 1, node, Resources=[resource])["Responses"][0]["ErrorCode"])


def value(wire: Wire, kind: int, name: str, key: str, node: int = 1) -> tuple[str, int]:
    """The value of a configuration, and its source."""
    resource = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": [key]}
    [row] = wire.ask("DescribeConfigs", 4, node, Resources=[resource])["Results"]
    [config] = row["Configs"]
    return config["Value"], config["ConfigSource"]


def send(wire: Wire, topic: str = "n", acks: int = -1, node: int = 1, **batch: Any) -> dict[str, Any]:
    """Send a batch; return the answer's row for the partition."""
    records = batch.pop("records", [Record(value=b"x" * 100)])
    data = build_batch(records, **{"base_timestamp": wire.cluster.now, **batch}).encode()
    topics = [{"Name": topic, "PartitionData": [{"Index": 0, "Records": data}]}]
    row = wire.ask("Produce", 9, node, Acks=acks, TopicData=topics)
    part: dict[str, Any] = row["Responses"][0]["PartitionResponses"][0]
    return part


def test_a_batch_may_be_as_large_as_its_topic_says(make: Make) -> None:
    wire = make()
    create(wire, "small", max_message_bytes="200")
    create(wire, "large", max_message_bytes="2000000")
    assert send(wire, "small")["ErrorCode"] == E.NONE
    assert send(wire, "small", records=[Record(value=bytes(200))])["ErrorCode"] == E.MESSAGE_TOO_LARGE
    assert send(wire, "large", records=[Record(value=bytes(1_900_000))])["ErrorCode"] == E.NONE
    assert alter(wire, BROKER, "", message_max_bytes="100") == E.NONE
    create(wire, "other")
    assert send(wire, "other")["ErrorCode"] == E.MESSAGE_TOO_LARGE
    assert send(wire, "small")["ErrorCode"] == E.NONE
    assert alter(wire, TOPIC, "small", max_message_bytes=None) == E.NONE
    assert send(wire, "small")["ErrorCode"] == E.MESSAGE_TOO_LARGE


def test_a_batch_may_be_as_large_as_its_topic_says_also_in_the_compression_of_its_topic(make: Make) -> None:
    wire = make()
    for name, error in (("producer", E.NONE), ("uncompressed", E.MESSAGE_TOO_LARGE)):
        create(wire, name, compression_type=name, max_message_bytes="200")
        sent = send(wire, name, records=[Record(value=bytes(1_000))], compression=CompressionType.GZIP)
        assert sent["ErrorCode"] == error


def test_a_batch_as_large_as_its_limit_is_taken_and_one_byte_more_is_not(wire: Wire) -> None:
    size = len(build_batch([Record(value=b"x" * 100)], base_timestamp=NOW).encode())
    for limit, error in ((size, E.NONE), (size - 1, E.MESSAGE_TOO_LARGE)):
        create(wire, f"n{limit}", max_message_bytes=str(limit))
        assert send(wire, f"n{limit}")["ErrorCode"] == error
    create(wire, "segments", max_message_bytes="9000000", segment_bytes="1048576")
    around = len(build_batch([Record(value=bytes(1_000_000))], base_timestamp=NOW).encode()) - 1_000_000
    for more, error in ((0, E.NONE), (1, E.RECORD_LIST_TOO_LARGE)):
        records = [Record(value=bytes((1 << 20) - around + more))]
        answer = send(wire, "segments", records=records)
        why = f"Message batch size is {(1 << 20) + 1} bytes, which exceeds the segment's {1 << 20}" if error else None
        assert (answer["ErrorCode"], answer["ErrorMessage"]) == (error, why)


@pytest.mark.parametrize(("version", "error"), [(3, 76), (6, 76), (7, E.NONE), (9, E.NONE)])
def test_zstd_is_taken_from_clients_that_know_it(version: int, error: int, wire: Wire) -> None:
    data = build_batch([Record(value=b"x")], base_timestamp=NOW, compression=CompressionType.ZSTD).encode()
    topic = {"Name": "t", "PartitionData": [{"Index": 0, "Records": data}]}  # KIP-110
    row = wire.ask("Produce", version, Acks=-1, TopicData=[topic])
    assert row["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == error


def test_records_have_the_time_of_their_append_where_the_topic_says_so(wire: Wire) -> None:
    create(wire, message_timestamp_type="LogAppendTime")
    wire.wait(1000)
    assert send(wire, base_timestamp=5)["LogAppendTimeMs"] == NOW + 1000
    batch, _ = decode_batch(wire.fetch("n")["Records"])
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [batch.timestamp(record) for record in batch.records()] == [NOW + 1000]
    asked = {"Name": "n", "Partitions": [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": NOW + 1000}]}
    row = wire.ask("ListOffsets", 7, ReplicaId=-1, IsolationLevel=0, Topics=[asked])
    assert row["Topics"][0]["Partitions"][0]["Offset"] == 0


def test_topics_have_the_configurations_of_kafka_with_what_they_inherit(wire: Wire) -> None:
    """Kafka: LogConfig, ServerTopicConfigSynonyms, DynamicBrokerConfig.brokerConfigSynonyms."""
    resource = {"ResourceType": TOPIC, "ResourceName": "t", "ConfigurationKeys": None}
    [row] = wire.ask("DescribeConfigs", 4, Resources=[resource], IncludeSynonyms=True)["Results"]
    found = {
        each["Name"]: (each["Value"], each["ConfigType"], [(s["Name"], s["Value"]) for s in each["Synonyms"]])
        for each in row["Configs"]
    }
    assert found == DESCRIBED
    assert list(found) == sorted(found)


# Kafka: DynamicBrokerConfig.brokerConfigSynonyms; a configuration of brokers, and the one that its default follows from
FOLLOWING = {
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms", str((1 << 63) - 1)),
    "retention.ms": ("log.retention.ms", "log.retention.hours", "168"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours", "0"),
    "segment.ms": ("log.roll.ms", "log.roll.hours", "168"),
}


@pytest.mark.parametrize("name", FOLLOWING)
def test_a_default_of_another_configuration_is_told_behind_a_value_only(wire: Wire, name: str) -> None:
    """Kafka: ConfigHelper.configSynonyms."""
    own, other, default = FOLLOWING[name]
    for changes, expected in (({}, []), ({own: "5000"}, [(own, "5000", 3), (other, default, 5)])):
        assert alter(wire, BROKER, "", **changes) == E.NONE
        for kind, resource, key in ((TOPIC, "t", name), (BROKER, "1", own)):
            asked = {"ResourceType": kind, "ResourceName": resource, "ConfigurationKeys": [key]}
            [row] = wire.ask("DescribeConfigs", 4, Resources=[asked], IncludeSynonyms=True)["Results"]
            [found] = row["Configs"]
            assert [(each["Name"], each["Value"], each["Source"]) for each in found["Synonyms"]] == expected


LARGEST = (1 << 63) - 1
# of a topic without own configurations: value, type, and what it inherits
DESCRIBED: dict[str, tuple[str, int, list[tuple[str, str]]]] = {
    "cleanup.policy": ("delete", 7, [("log.cleanup.policy", "delete")]),
    "compression.gzip.level": ("-1", 3, [("compression.gzip.level", "-1")]),
    "compression.lz4.level": ("9", 3, [("compression.lz4.level", "9")]),
    "compression.type": ("producer", 2, [("compression.type", "producer")]),
    "compression.zstd.level": ("3", 3, [("compression.zstd.level", "3")]),
    "delete.retention.ms": ("86400000", 5, [("log.cleaner.delete.retention.ms", "86400000")]),
    "file.delete.delay.ms": ("60000", 5, [("log.segment.delete.delay.ms", "60000")]),
    "flush.messages": (str(LARGEST), 5, [("log.flush.interval.messages", str(LARGEST))]),
    "flush.ms": (str(LARGEST), 5, []),
    "follower.replication.throttled.replicas": ("", 7, []),
    "index.interval.bytes": ("4096", 3, [("log.index.interval.bytes", "4096")]),
    "leader.replication.throttled.replicas": ("", 7, []),
    "local.retention.bytes": ("-2", 5, [("log.local.retention.bytes", "-2")]),
    "local.retention.ms": ("-2", 5, [("log.local.retention.ms", "-2")]),
    "max.compaction.lag.ms": (str(LARGEST), 5, [("log.cleaner.max.compaction.lag.ms", str(LARGEST))]),
    "max.message.bytes": ("1048588", 3, [("message.max.bytes", "1048588")]),
    "message.timestamp.after.max.ms": ("3600000", 5, [("log.message.timestamp.after.max.ms", "3600000")]),
    "message.timestamp.before.max.ms": (str(LARGEST), 5, [("log.message.timestamp.before.max.ms", str(LARGEST))]),
    "message.timestamp.type": ("CreateTime", 2, [("log.message.timestamp.type", "CreateTime")]),
    "min.cleanable.dirty.ratio": ("0.5", 6, [("log.cleaner.min.cleanable.ratio", "0.5")]),
    "min.compaction.lag.ms": ("0", 5, [("log.cleaner.min.compaction.lag.ms", "0")]),
    "min.insync.replicas": ("1", 3, [("min.insync.replicas", "1")]),
    "preallocate": ("false", 1, [("log.preallocate", "false")]),
    "remote.log.copy.disable": ("false", 1, []),
    "remote.log.delete.on.disable": ("false", 1, []),
    "remote.storage.enable": ("false", 1, []),
    "retention.bytes": ("-1", 5, [("log.retention.bytes", "-1")]),
    "retention.ms": ("604800000", 5, []),
    "segment.bytes": ("1073741824", 3, [("log.segment.bytes", "1073741824")]),
    "segment.index.bytes": ("10485760", 3, [("log.index.size.max.bytes", "10485760")]),
    "segment.jitter.ms": ("0", 5, []),
    "segment.ms": ("604800000", 5, []),
    "unclean.leader.election.enable": ("false", 1, [("unclean.leader.election.enable", "false")]),
}
# Kafka: LogConfig.CONFIG_DEF; the default, and the least value that is accepted
NUMBERS = {
    "compression.lz4.level": (9, 1),
    "compression.zstd.level": (3, -131072),
    "delete.retention.ms": (86_400_000, 0),
    "file.delete.delay.ms": (60_000, 0),
    "flush.messages": (LARGEST, 1),
    "flush.ms": (LARGEST, 0),
    "index.interval.bytes": (4096, 0),
    "local.retention.bytes": (-2, -2),
    "local.retention.ms": (-2, -2),
    "max.compaction.lag.ms": (LARGEST, 1),
    "max.message.bytes": (1_048_588, 0),
    "message.timestamp.after.max.ms": (3_600_000, 0),
    "message.timestamp.before.max.ms": (LARGEST, 0),
    "min.compaction.lag.ms": (0, 0),
    "min.insync.replicas": (1, 1),
    "retention.ms": (604_800_000, -1),
    "segment.bytes": (1_073_741_824, 1_048_576),
    "segment.index.bytes": (10_485_760, 4),
    "segment.jitter.ms": (0, 0),
    "segment.ms": (604_800_000, 1),
}


@pytest.mark.parametrize(("name", "default", "least"), [(name, *row) for name, row in NUMBERS.items()])
def test_a_number_has_kafkas_default_and_may_be_as_small_as_in_kafka(
    name: str, default: int, least: int, wire: Wire
) -> None:
    create(wire)
    assert value(wire, TOPIC, "n", name)[0] == str(default)
    assert alter(wire, TOPIC, "n", **{name: str(least - 1)}) == E.INVALID_CONFIG
    assert alter(wire, TOPIC, "n", **{name: str(least)}) == E.NONE
    assert value(wire, TOPIC, "n", name)[0] == str(least)


def test_the_largest_levels_of_compression_are_those_of_kafka(wire: Wire) -> None:
    create(wire)
    for name, largest in (("gzip", 9), ("lz4", 17), ("zstd", 22)):
        key = f"compression_{name}_level"
        assert alter(wire, TOPIC, "n", **{key: str(largest + 1)}) == E.INVALID_CONFIG
        assert alter(wire, TOPIC, "n", **{key: str(largest)}) == E.NONE
    errors = {level: alter(wire, TOPIC, "n", compression_gzip_level=str(level)) for level in (-2, -1, 0, 1)}
    assert errors == {-2: E.INVALID_CONFIG, -1: E.NONE, 0: E.INVALID_CONFIG, 1: E.NONE}


def test_an_element_is_added_to_a_list_once(wire: Wire) -> None:
    create(wire)
    found = []
    for operation, text in ((2, "delete,compact,compact"), (3, "delete,delete"), (2, "compact")):
        change = {"Name": "cleanup.policy", "ConfigOperation": operation, "Value": text}
        resource = {"ResourceType": TOPIC, "ResourceName": "n", "Configs": [change]}
        [row] = wire.ask("IncrementalAlterConfigs", 1, Resources=[resource])["Responses"]
        assert row["ErrorCode"] == E.NONE
        found.append(value(wire, TOPIC, "n", "cleanup.policy")[0])
    assert found == ["delete,compact", "compact", "compact"]


def test_a_value_is_told_in_its_usual_spelling(wire: Wire) -> None:
    given = {"cleanup.policy": "compact, compact", "max.message.bytes": "+02000 ", "preallocate": "TRUE"}
    given |= {"compression.type": " gzip "}
    create(wire, **{name.replace(".", "_"): text for name, text in given.items()})
    assert [value(wire, TOPIC, "n", name)[0] for name in given] == ["compact", "2000", "true", "gzip"]
    alter(wire, BROKER, "", message_max_bytes="+02000 ")
    assert value(wire, BROKER, "1", "message.max.bytes")[0] == "2000"


@pytest.mark.parametrize(("name", "bits"), [("segment.index.bytes", 31), ("retention.bytes", 63)])
def test_a_number_has_to_fit_its_type(name: str, bits: int, wire: Wire) -> None:
    create(wire)
    for number, error in (((1 << bits) - 1, E.NONE), (1 << bits, E.INVALID_CONFIG)):
        assert alter(wire, TOPIC, "n", **{name: str(number)}) == error
    for number, error in ((-(1 << 63), E.NONE), (-(1 << 63) - 1, E.INVALID_CONFIG)):
        assert alter(wire, TOPIC, "n", retention_bytes=str(number)) == error


def test_a_compacted_topic_needs_keys(wire: Wire) -> None:
    create(wire, cleanup_policy="compact,delete")
    refused = send(wire, records=[Record(key=b"k"), Record(offset_delta=1)])
    assert (refused["ErrorCode"], refused["BaseOffset"]) == (E.INVALID_RECORD, -1)
    assert [each["BatchIndex"] for each in refused["RecordErrors"]] == [1]
    assert refused["ErrorMessage"] == (
        "One or more records have been rejected due to 1 record errors in total, and only showing the first three "
        "errors at most: [RecordError(batchIndex=1, message='Compacted topic cannot accept message without key in "
        "topic partition n-0')]"
    )
    late = Record(key=b"k", timestamp_delta=3_600_001)
    for records in ([Record(), late], [late, Record()]):
        refused = send(wire, records=[replace(each, offset_delta=place) for place, each in enumerate(records)])
        assert (refused["ErrorCode"], len(refused["RecordErrors"])) == (E.INVALID_TIMESTAMP, 2)
    assert send(wire, records=[Record(key=b""), Record(key=b"k", offset_delta=1)])["BaseOffset"] == 0
    assert alter(wire, TOPIC, "n", cleanup_policy="delete") == E.NONE
    assert send(wire)["BaseOffset"] == 2


def test_timestamps_are_within_bounds(wire: Wire) -> None:
    create(wire, "late", message_timestamp_after_max_ms="20")
    records = [Record(), Record(timestamp_delta=21, offset_delta=1)]
    assert send(wire, "late", records=records, base_timestamp=NOW)["ErrorCode"] == E.INVALID_TIMESTAMP
    create(wire, message_timestamp_before_max_ms="10", message_timestamp_after_max_ms="20")
    errors = {lag: send(wire, base_timestamp=NOW + lag)["ErrorCode"] for lag in (-11, -10, 0, 20, 21)}
    assert errors == {-11: E.INVALID_TIMESTAMP, -10: E.NONE, 0: E.NONE, 20: E.NONE, 21: E.INVALID_TIMESTAMP}
    assert send(wire, base_timestamp=NO_TIMESTAMP)["ErrorCode"] == E.NONE, "it has none"
    refused = send(wire, base_timestamp=NOW + 21)
    assert refused["ErrorMessage"] == "One or more records have been rejected due to invalid timestamp"
    assert refused["RecordErrors"][0]["BatchIndexErrorMessage"] == (
        f"Timestamp {NOW + 21} of message with offset 0 is out of range. "
        f"The timestamp should be within [{NOW - 10}, {NOW + 20}]"
    )
    for later, indexes in ((20, []), (21, [1])):
        records = [Record(value=b"v", timestamp_delta=later * index, offset_delta=index) for index in (0, 1)]
        found = send(wire, records=records, base_timestamp=NOW)
        assert [row["BatchIndex"] for row in found["RecordErrors"]] == indexes
        assert found["ErrorCode"] == (E.INVALID_TIMESTAMP if indexes else E.NONE)
    stamped = {"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": "10"}
    for policy in ("delete", "compact"):
        create(wire, policy, cleanup_policy=policy, **stamped)
        assert send(wire, policy, records=[Record(key=b"k", value=b"v")], base_timestamp=5)["ErrorCode"] == E.NONE


THROTTLED = "a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
INVALID = {  # configurations of a topic, and why the last one is refused    Kafka: ConfigDef, LogConfig.validate
    ("preallocate", "maybe"): "Expected value to be either true or false",
    ("flush.ms", "-1"): "Value must be at least 0",
    ("flush.ms", "1.5"): "Not a number of type LONG",
    ("compression.lz4.level", "18"): "Value must be no more than 17",
    ("min.cleanable.dirty.ratio", "half"): "Not a number of type DOUBLE",
    ("compression.gzip.level", "10"): "Value must be between 1 and 9 or equal to -1",
    ("message.timestamp.type", "Now"): "String must be one of: CreateTime, LogAppendTime",
    ("compression.type", "x"): "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ("cleanup.policy", "compact,x,y"): "String must be one of: compact, delete",
    **{
        (f"{role}.replication.throttled.replicas", "1:2,*"): f"{role}.replication.throttled.replicas must be the "
        f"literal '*' or {THROTTLED}"
        for role in ("leader", "follower")
    },
}


@pytest.mark.parametrize(("name", "given"), INVALID)
def test_a_value_that_is_none_is_refused_with_the_reason(name: str, given: str, wire: Wire) -> None:
    told = {"compact,x,y": "x", "1:2,*": "[1:2, *]"}.get(given, given)
    assert refusal(wire, TOPIC, "t", {name: given}) == (
        E.INVALID_CONFIG,
        f"Invalid value {told} for configuration {name}: {INVALID[name, given]}",
    )


def test_values_are_refused_that_exclude_each_other_or_need_what_is_not_there(wire: Wire) -> None:
    for values in ({"remote.storage.enable": "false"}, {"leader.replication.throttled.replicas": "0:1,2:3"}):
        assert refusal(wire, TOPIC, "t", values) == (E.NONE, None)
    lags = {"min.compaction.lag.ms": "7", "max.compaction.lag.ms": "7"}
    assert refusal(wire, TOPIC, "t", lags) == (E.NONE, None)
    assert refusal(wire, TOPIC, "t", lags | {"max.compaction.lag.ms": "6"}) == (
        E.INVALID_CONFIG,
        "conflict topic config setting min.compaction.lag.ms (7) > max.compaction.lag.ms (6)",
    )
    assert refusal(wire, TOPIC, "t", {"remote.storage.enable": "true"}) == (
        E.INVALID_CONFIG,
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    )
    assert refusal(wire, TOPIC, "t", {"no.such": "1"}) == (E.INVALID_CONFIG, "Unknown topic config name: no.such")


def refusal(wire: Wire, kind: int, name: str, values: Mapping[str, str | None], node: int = 1) -> tuple[int, str]:
    """Why AlterConfigs refuses values of a resource, and that all that it names comes back."""
    configs = [{"Name": key, "Value": text} for key, text in values.items()]
    resource = {"ResourceType": kind, "ResourceName": name}
    [row] = wire.ask("AlterConfigs", 2, node, Resources=[resource | {"Configs": configs}])["Responses"]
    assert resource.items() <= row.items()
    return row["ErrorCode"], row["ErrorMessage"]


def test_what_has_no_configurations_to_alter_is_refused_with_the_reason(make: Make) -> None:
    """Kafka: ConfigAdminManager, ConfigurationControlManager, DynamicBrokerConfig."""
    wire = make(2)
    size = {"message.max.bytes": "2000"}
    expected: dict[tuple[int, str], tuple[int, str | None]] = {
        (TOPIC, ""): (E.INVALID_REQUEST, "Default topic resources are not allowed."),
        (TOPIC, "no"): (E.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'no' does not exist."),
        (TOPIC, "."): (E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
        (BROKER, "2"): (E.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (BROKER, "one"): (E.INVALID_REQUEST, "Node id must be an integer, but it is: one"),
        (BROKER, "²"): (E.INVALID_REQUEST, "Node id must be an integer, but it is: ²"),
        (LOGGER, "1"): (E.INVALID_REQUEST, "Unknown resource type 8"),
        (BROKER, "1"): (E.NONE, None),
        (BROKER, ""): (E.NONE, None),
    }
    assert {each: refusal(wire, *each, size) for each in expected} == expected
    broker: dict[tuple[str, str], str] = {
        ("num.partitions", "2"): "Cannot update these configs dynamically: [num.partitions, node.id]",
        ("message.max.bytes", "x"): "Invalid value x for configuration message.max.bytes: Not a number of type INT",
    }
    for (key, text), why in broker.items():
        values = {key: text, **({"node.id": "1"} if key == "num.partitions" else {})}
        assert refusal(wire, BROKER, "1", values) == (E.INVALID_REQUEST, why)
    lacking: dict[str, str | None] = {"flush.ms": None, "retention.ms": "1", "segment.ms": None}
    assert refusal(wire, BROKER, "1", lacking) == (
        E.INVALID_REQUEST,
        "Null value not supported for : flush.ms,segment.ms",
    )


def test_a_resource_and_a_name_are_altered_once_by_a_known_operation_or_not_at_all(wire: Wire) -> None:
    """Kafka: ConfigAdminManager.preprocess, ConfigurationControlManager.incrementalAlterConfigResource."""

    def ask(*resources: Message, **more: bool) -> list[tuple[int, str]]:
        rows = [{"ResourceType": TOPIC, "ResourceName": "t"} | each for each in resources]
        answer = wire.ask("IncrementalAlterConfigs", 1, Resources=rows, **more)["Responses"]
        return [(row["ErrorCode"], row["ErrorMessage"]) for row in answer]

    def change(name: str = "flush.ms", operation: int = 0, text: str | None = "7") -> Message:
        return {"Name": name, "ConfigOperation": operation, "Value": text}

    once = (E.INVALID_REQUEST, "Each resource must appear at most once.")
    other = {"ResourceType": BROKER, "ResourceName": "1", "Configs": []}
    assert ask({"Configs": [change()]}, other, {"Configs": []}) == [once, (E.NONE, None), once]
    assert ask({"Configs": [change(), change(text="8")]}) == [(E.INVALID_REQUEST, "Error due to duplicate config keys")]
    assert ask({"Configs": [change(), change("retention.ms", 4)]})[0][0] == E.UNKNOWN_SERVER_ERROR
    for operation, verb in ((2, "APPEND"), (3, "SUBTRACT")):
        why = f"Can't {verb} to key flush.ms because its type is not LIST."
        assert ask({"Configs": [change(operation=operation)]}) == [(E.INVALID_CONFIG, why)]
    assert ask({"Configs": [change(), change("retention.ms", 0, None)]})[0][0] == E.INVALID_REQUEST
    assert ask({"Configs": [change()]}, ValidateOnly=True) == [(E.NONE, None)]
    assert value(wire, TOPIC, "t", "flush.ms")[1] == 5, "nothing was altered"
    assert ask({"Configs": [change(), change("retention.ms", 1, None)]}) == [(E.NONE, None)]
    assert value(wire, TOPIC, "t", "flush.ms") == ("7", 1)


def test_what_is_stored_has_the_compression_of_its_topic(wire: Wire) -> None:
    create(wire, compression_type="zstd")
    records = [Record(value=b"x" * 1000, offset_delta=delta) for delta in range(3)]
    for codec in (CompressionType.NONE, CompressionType.GZIP, CompressionType.ZSTD):
        assert send(wire, records=records, compression=codec)["ErrorCode"] == E.NONE
    data, position, found = wire.fetch("n")["Records"], 0, []
    while position < len(data):
        batch, position = decode_batch(data, position)
        found.append((batch.compression, batch.records()))
    assert found == [(CompressionType.ZSTD, tuple(records))] * 3


def test_a_topic_is_on_as_many_brokers_as_it_was_asked_for(make: Make, tmp_path: Path) -> None:
    wire = make(3, storage=Directory(tmp_path))
    assert create(wire, "four", 4) == E.INVALID_REPLICATION_FACTOR
    assert create(wire, "three", 3, 2) == E.NONE
    default = {"Name": "one", "NumPartitions": 1, "ReplicationFactor": -1}
    assert wire.ask("CreateTopics", 7, Topics=[default])["Topics"][0]["ReplicationFactor"] == 1
    assigned = [{"PartitionIndex": 1, "BrokerIds": [2, 3]}, {"PartitionIndex": 0, "BrokerIds": [3, 1]}]
    topic = {"Name": "two", "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": assigned}
    for number in ("NumPartitions", "ReplicationFactor"):  # the assignment says both
        assert wire.ask("CreateTopics", 7, Topics=[topic | {number: 1}])["Topics"][0]["ErrorCode"] == E.INVALID_REQUEST
    assert wire.ask("CreateTopics", 7, Topics=[topic])["Topics"][0]["ReplicationFactor"] == 2
    growing = {"Name": "two", "Count": 3, "Assignments": [{"BrokerIds": [1, 2]}]}
    assert wire.ask("CreatePartitions", 3, Topics=[growing])["Results"][0]["ErrorCode"] == E.NONE

    def replicas(wire: Wire) -> dict[str, list[list[int]]]:
        rows = wire.ask("Metadata", 12, Topics=[{"Name": "three"}, {"Name": "two"}])["Topics"]
        return {row["Name"]: [part["ReplicaNodes"] for part in row["Partitions"]] for row in rows}

    expected = {"three": [[1, 2, 3], [2, 3, 1]], "two": [[3, 1], [2, 3], [1, 2]]}
    assert replicas(wire) == expected
    wire.cluster.close()
    assert replicas(make(3, storage=Directory(tmp_path))) == expected


def test_partitions_for_which_nobody_named_brokers_are_spread_over_those_of_the_next_process(
    make: Make, tmp_path: Path
) -> None:
    create(make(storage=Directory(tmp_path)), partitions=3)
    [topic] = make(2, storage=Directory(tmp_path)).ask("Metadata", 12, Topics=[{"Name": "n"}])["Topics"]
    assert [part["ReplicaNodes"] for part in topic["Partitions"]] == [[1], [2], [1]]


def test_too_few_replicas_in_sync_take_no_batch_that_all_have_to_acknowledge(make: Make) -> None:
    wire = make(3)
    create(wire, factor=3, min_insync_replicas="3")
    create(wire, "alone", min_insync_replicas="2")
    create(wire, "two", factor=3, min_insync_replicas="2")
    assert send(wire)["ErrorCode"] == send(wire, "alone")["ErrorCode"] == E.NONE
    wire.cluster.crash(2, NOW + 1000)
    refused = send(wire)
    why = "2 replica(s) of n-0 are in sync, and 3 have to be"
    assert (refused["ErrorCode"], refused["ErrorMessage"]) == (E.NOT_ENOUGH_REPLICAS, why)
    assert send(wire, acks=1)["ErrorCode"] == send(wire, "two")["ErrorCode"] == E.NONE
    part = wire.ask("Metadata", 12, Topics=[{"Name": "n"}])["Topics"][0]["Partitions"][0]
    assert (part["IsrNodes"], part["OfflineReplicas"]) == ([1, 3], [2])
    wire.wait(1000)
    assert send(wire)["ErrorCode"] == E.NONE


def test_a_crash_makes_another_replica_the_leader(make: Make) -> None:
    wire = make(3)
    assigned = [{"PartitionIndex": 0, "BrokerIds": [1, 3]}]
    topic = {"Name": "n", "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": assigned}
    wire.ask("CreateTopics", 7, Topics=[topic])
    wire.cluster.crash(1, NOW + 1000)
    found = []
    for _ in range(2):
        part = wire.ask("Metadata", 12, Topics=[{"Name": "n"}])["Topics"][0]["Partitions"][0]
        found.append((part["LeaderId"], part["ReplicaNodes"]))
        wire.cluster.move_leader("n", 0, 2)  # which is no replica: it takes the place of the first one
    assert found == [(3, [1, 3]), (2, [2, 3])]


def test_a_broker_that_crashes_again_is_away_until_the_later_time(make: Make) -> None:
    wire = make(2)
    create(wire, factor=2)
    for until in (1_000, 2_000):
        wire.cluster.crash(1, NOW + until)
        assert wire.cluster.next_broker(2) == 2
    wire.wait(1_999)
    assert wire.cluster.in_sync(wire.cluster.topics["n"].partitions[0]) == [2]
    wire.wait(1)
    assert wire.cluster.in_sync(wire.cluster.topics["n"].partitions[0]) == [1, 2]


def test_configurations_are_there_after_a_restart(make: Make, tmp_path: Path) -> None:
    wire = make(2, storage=Directory(tmp_path))
    create(wire, cleanup_policy="compact", flush_ms="7")
    create(wire, "gone", flush_ms="7")
    alter(wire, TOPIC, "n", flush_ms=None, max_message_bytes="500")
    alter(wire, BROKER, "2", node=2, message_max_bytes="600")
    alter(wire, BROKER, "", message_max_bytes="700")
    wire.ask("DeleteTopics", 6, Topics=[{"Name": "gone"}])
    wire.cluster.close()
    again = make(2, storage=Directory(tmp_path))
    assert value(again, TOPIC, "n", "cleanup.policy") == ("compact", 1)
    assert value(again, TOPIC, "n", "max.message.bytes") == ("500", 1)
    assert value(again, TOPIC, "n", "flush.ms")[1] == 5
    assert value(again, BROKER, "2", "message.max.bytes", 2) == ("600", 2)
    assert value(again, BROKER, "1", "message.max.bytes") == ("700", 3)
    create(again, "gone")
    assert value(again, TOPIC, "gone", "flush.ms")[1] == 5
    assert value(again, TOPIC, "__consumer_offsets", "cleanup.policy") == ("compact", 1)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"topics": {"t": {"flush.ms": "x"}}, "brokers": {}, "replicas": {}}',
        '{"topics": 3}',
        '{"topics": {}, "brokers": {}}',
        '{"topics": {}, "brokers": {}, "replicas": []}',
        '{"topics": {}, "brokers": {}, "replicas": {"t": 3}}',
        '{"topics": {}, "brokers": {}, "replicas": {"t": [["one"]]}}',
    ],
)
def test_what_was_noted_and_cannot_be_read_is_told(make: Make, tmp_path: Path, text: str) -> None:
    make(storage=Directory(tmp_path)).cluster.close()
    (tmp_path / TOPICS_AND_CONFIGS).write_text(text, encoding="ascii")
    with pytest.raises(DamagedLog) as caught:
        make(storage=Directory(tmp_path))
    where, why = str(caught.value).split(": ", 1)
    assert where.rpartition("/")[2] == TOPICS_AND_CONFIGS
    assert text != '{"topics": 3}' or why == "'int' object has no attribute 'items'"


def test_a_broker_can_be_told_not_to_verify_transactions_of_version_1(wire: Wire) -> None:
    _, *who = wire.init()
    producer = who[0], who[1]
    refused = wire.produce(producer=producer, sequence=0, transactional_id="x")
    assert refused[0] == E.INVALID_TXN_STATE
    assert alter(wire, BROKER, "1", transaction_partition_verification_enable="false") == E.NONE
    assert wire.produce(producer=producer, sequence=0, transactional_id="x") == (E.NONE, 0)


def test_a_broker_that_was_told_not_to_verify_does_not_whatever_it_leads(make: Make, tmp_path: Path) -> None:
    wire = make(2, storage=Directory(tmp_path))
    assert alter(wire, BROKER, "2", node=2, transaction_partition_verification_enable="false") == E.NONE
    wire.topic("u", 2)
    _, *who = wire.init()

    def refused(wire: Wire, node: int) -> bool:
        given = {"producer": (who[0], who[1]), "transactional_id": "x", "node": node}
        number = next(part.partition for part in wire.cluster.topics["u"].partitions if part.node == node)
        error, offset = wire.produce("u", partition=number, sequence=0, **given)  # type: ignore[arg-type]
        assert (error, offset) in {(E.NONE, 0), (E.INVALID_TXN_STATE, -1)}
        return error != E.NONE

    assert [refused(wire, node) for node in (1, 2)] == [True, False], "it led the partition from the beginning"
    again = make(2, storage=Directory(tmp_path))
    again.cluster.move_leader("u", 1, 1)
    again.cluster.move_leader("u", 0, 2)
    assert not refused(again, 2), "it has been made the leader"


@pytest.mark.parametrize("own", [{"flush_ms": "7"}, {"factor": 2}])
def test_what_a_topic_was_made_with_is_there_after_a_restart(make: Make, tmp_path: Path, own: dict[str, Any]) -> None:
    for run in range(2):
        wire = make(2, storage=Directory(tmp_path))
        if not run:
            create(wire, **own)
        assert value(wire, TOPIC, "n", "flush.ms")[0] == own.get("flush_ms", str(LARGEST))
        [topic] = wire.ask("Metadata", 12, Topics=[{"Name": "n"}])["Topics"]
        assert [part["ReplicaNodes"] for part in topic["Partitions"]] == [[1, 2][: own.get("factor", 1)]]


def test_the_partitions_of_a_broker_that_crashes_go_to_a_replica_or_the_next_broker_or_where_it_is_said(
    make: Make,
) -> None:
    def leaders(wire: Wire) -> list[int]:
        [topic] = wire.ask("Metadata", 12, Topics=[{"Name": "n"}])["Topics"]
        return [part["LeaderId"] for part in topic["Partitions"]]

    for node, to, expected in ((1, None, [2, 2, 3, 2]), (2, None, [1, 3, 3, 1]), (3, None, [1, 2, 1, 1])):
        wire = make(3)
        create(wire, partitions=4)
        wire.cluster.crash(node, NOW + 1_000, to)
        assert leaders(wire) == expected
    wire = make(3)
    create(wire, partitions=4)
    wire.cluster.crash(1, NOW + 1_000, 3)
    assert leaders(wire) == [3, 2, 3, 3]
    wire.cluster.crash(2, NOW + 1_000)
    wire.cluster.crash(3, NOW + 1_000)
    assert leaders(wire) == [3] * 4, "nobody else is there"


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "n"), (BROKER, "")])
def test_an_alteration_alone_is_there_after_a_restart(make: Make, tmp_path: Path, kind: int, name: str) -> None:
    wire = make(storage=Directory(tmp_path))
    create(wire)
    key = {TOPIC: "segment_ms", BROKER: "log_roll_ms"}[kind]
    for text in ("5000", None):
        assert alter(wire, kind, name, **{key: text}) == E.NONE
        wire = make(storage=Directory(tmp_path))
        assert value(wire, TOPIC, "n", "segment.ms")[0] == (text or "604800000")


def test_what_was_noted_of_a_topic_that_is_gone_is_forgotten(make: Make, tmp_path: Path) -> None:
    """As when the process ends between the deletion of a topic's files and the note of it."""
    wire = make(2, storage=Directory(tmp_path))
    create(wire, flush_ms="7", factor=2)
    wire.cluster.close()
    shutil.rmtree(tmp_path / "n-0")
    again = make(2, storage=Directory(tmp_path))
    create(again)
    for wire in (again, make(2, storage=Directory(tmp_path))):
        assert value(wire, TOPIC, "n", "flush.ms")[1] == 5
        [topic] = wire.ask("Metadata", 12, Topics=[{"Name": "n"}])["Topics"]
        assert [part["ReplicaNodes"] for part in topic["Partitions"]] == [[1]]


def test_a_topic_that_lacks_a_partition_is_damage(make: Make, tmp_path: Path) -> None:
    create(make(storage=Directory(tmp_path)), partitions=11)
    shutil.rmtree(tmp_path / "n-1")
    there = r"\[0, 2, 3, 4, 5, 6, 7, 8, 9, 10\]"
    with pytest.raises(DamagedLog, match=rf"^n: partitions {there} are there, and others are missing$"):
        make(storage=Directory(tmp_path))


def test_a_broker_can_be_told_when_to_forget_producers(wire: Wire) -> None:
    leader = wire.cluster.topics["t"].partitions[0]
    _, *who = wire.init(None)
    wire.produce(producer=(who[0], who[1]), sequence=0)
    wire.wait(20_000)
    assert list(leader.last_timestamps) == [who[0]]
    assert alter(wire, BROKER, "", producer_id_expiration_ms="30000") == E.NONE
    wire.wait(10_000)  # Kafka: now - last timestamp >= expiration
    assert not leader.last_timestamps


@pytest.mark.parametrize(("kind", "name", "prefix"), [(TOPIC, "t", ""), (BROKER, "1", "log.")])
def test_configurations_that_are_not_named_when_all_are_replaced_are_inherited_again(
    wire: Wire, kind: int, name: str, prefix: str
) -> None:
    before, after = f"{prefix}retention.bytes", f"{prefix}segment.bytes"
    assert alter(wire, kind, name, **{before: "7"}) == E.NONE
    resource = {"ResourceType": kind, "ResourceName": name}
    configs = [{"Name": after, "Value": "2000000"}]
    [row] = wire.ask("AlterConfigs", 2, Resources=[resource | {"Configs": configs}])["Responses"]
    assert row["ErrorCode"] == E.NONE
    assert [value(wire, kind, name, key)[0] for key in (before, after)] == ["-1", "2000000"]
    [row] = wire.ask("DescribeConfigs", 4, Resources=[resource | {"ConfigurationKeys": []}])["Results"]
    assert {before, after} < {each["Name"] for each in row["Configs"]}, "no name stands for all"


def test_what_a_broker_was_started_with_is_told(make: Make) -> None:
    wire = make(settings=Settings(default_partitions=3))
    assert value(wire, BROKER, "1", "num.partitions") == ("3", 4)
    assert value(wire, BROKER, "1", "message.max.bytes") == ("1048588", 5)
    assert value(wire, BROKER, "1", "node.id") == ("1", 4)


def test_a_configuration_is_described_with_all_that_is_known_of_it(make: Make) -> None:
    """Kafka: ConfigHelper; what it knows of a configuration and does not tell here is its documentation."""
    wire = make(2)
    create(wire, preallocate="true")
    for broker, size in (("", "2000"), ("1", "3000")):
        assert alter(wire, BROKER, broker, message_max_bytes=size) == E.NONE

    def told(kind: int, name: str, key: str, *, synonyms: bool = True) -> Message:
        resource = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": [key]}
        [row] = wire.ask("DescribeConfigs", 4, Resources=[resource], IncludeSynonyms=synonyms)["Results"]
        [config] = row.pop("Configs")
        assert row == {"ErrorCode": E.NONE, "ErrorMessage": "", "ResourceType": kind, "ResourceName": name}
        return dict(config)

    sizes = [("message.max.bytes", "3000", 2), ("message.max.bytes", "2000", 3), ("message.max.bytes", "1048588", 5)]
    own = [{"Name": name, "Value": text, "Source": source} for name, text, source in sizes]
    common = {"ReadOnly": False, "IsSensitive": False, "Documentation": None, "ConfigType": 3}
    for kind, name, key in ((TOPIC, "n", "max.message.bytes"), (BROKER, "1", "message.max.bytes")):
        expected = common | {"Name": key, "Value": "3000", "ConfigSource": 2}
        assert told(kind, name, key) == expected | {"Synonyms": own}
        assert told(kind, name, key, synonyms=False) == expected | {"Synonyms": []}
    assert told(TOPIC, "n", "preallocate") == common | {
        "Name": "preallocate",
        "Value": "true",
        "ConfigSource": 1,
        "ConfigType": 1,
        "Synonyms": [
            {"Name": "preallocate", "Value": "true", "Source": 1},
            {"Name": "log.preallocate", "Value": "false", "Source": 5},
        ],
    }
    assert told(BROKER, "1", "node.id") == common | {
        "Name": "node.id",
        "Value": "1",
        "ConfigSource": 4,
        "ReadOnly": True,
        "Synonyms": [
            {"Name": "node.id", "Value": "1", "Source": 4},
            {"Name": "node.id", "Value": "-1", "Source": 5},
        ],
    }


def test_what_has_no_configurations_to_describe_is_told_with_the_reason(make: Make) -> None:
    wire = make(2)
    expected: dict[tuple[int, str], tuple[int, str]] = {
        (TOPIC, "no"): (E.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "."): (E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
        (BROKER, "2"): (E.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x"): (E.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (LOGGER, "1"): (E.INVALID_REQUEST, "resources of type 8 have no configurations here"),
    }
    asked = [{"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": None} for kind, name in expected]
    rows = wire.ask("DescribeConfigs", 4, Resources=asked)["Results"]
    found = {(row["ResourceType"], row["ResourceName"]): (row["ErrorCode"], row["ErrorMessage"]) for row in rows}
    assert found == expected
    assert [row["Configs"] for row in rows] == [[]] * len(rows)


def test_internal_topics_have_the_configurations_that_kafka_makes_them_with(wire: Wire) -> None:
    """Kafka: GroupCoordinatorConfig, TransactionStateManager.transactionTopicConfigs."""
    common = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
    own = {"compression.type": "uncompressed", "min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
    for name, expected in (("__consumer_offsets", {"compression.type": "producer"}), ("__transaction_state", own)):
        resource = {"ResourceType": TOPIC, "ResourceName": name, "ConfigurationKeys": None}
        [row] = wire.ask("DescribeConfigs", 4, Resources=[resource])["Results"]
        found = {each["Name"]: each["Value"] for each in row["Configs"] if each["ConfigSource"] == 1}
        assert found == common | expected


def test_only_topics_and_brokers_have_configurations(wire: Wire) -> None:
    assert alter(wire, BROKER, "1", message_max_bytes="2000") == E.NONE
    assert alter(wire, LOGGER, "1", message_max_bytes="3000") == E.INVALID_REQUEST
    assert alter(wire, 1, "t", max_message_bytes="3000") == E.INVALID_REQUEST
    assert value(wire, BROKER, "1", "message.max.bytes")[0] == "2000"


def test_a_new_topic_is_told_what_it_inherits_from_all_brokers(wire: Wire) -> None:
    assert alter(wire, BROKER, "", message_max_bytes="2000") == E.NONE
    topic = {"Name": "n", "NumPartitions": 1, "ReplicationFactor": 1}
    [row] = wire.ask("CreateTopics", 7, Topics=[topic])["Topics"]
    told = {each["Name"]: (each["Value"], each["ConfigSource"]) for each in row["Configs"]}
    assert send(wire)["ErrorCode"] == E.NONE
    assert alter(wire, BROKER, "", message_max_bytes="100") == E.NONE
    assert send(wire)["ErrorCode"] == E.MESSAGE_TOO_LARGE
    assert told["max.message.bytes"] == ("2000", 3)
    assert told["retention.ms"] == ("604800000", 5)


def test_topics_and_brokers_are_listed_as_what_has_configurations(make: Make) -> None:
    wire = make(2)
    create(wire)
    assert wire.ask("ListConfigResources", 0)["ConfigResources"] == []
    for kinds, names in (
        ([2], {"n", "__consumer_offsets", "__transaction_state"}),
        ([4], {"1", "2"}),
        ([8], {"1", "2"}),
        ([16, 32], set()),
    ):
        answer = wire.ask("ListConfigResources", 1, ResourceTypes=kinds)
        assert answer["ErrorCode"] == E.NONE
        assert {row["ResourceName"] for row in answer["ConfigResources"]} == names
        assert {row["ResourceType"] for row in answer["ConfigResources"]} == {*(kinds if names else ())}
    assert len(wire.ask("ListConfigResources", 1)["ConfigResources"]) == 7
    assert wire.ask("ListConfigResources", 1, ResourceTypes=[4, 99])["ErrorCode"] == E.UNSUPPORTED_VERSION


def test_every_default_is_a_value_that_is_taken() -> None:
    for table in (TOPIC_CONFIGS, DYNAMIC_BROKER_CONFIGS, READ_ONLY_BROKER_CONFIGS):
        for name, config in table.items():
            config.parsed(config.default)
            assert config.name == name


@pytest.mark.parametrize("was", [{"configs": {"retention_ms": "1"}}, {"factor": 2}, {"partitions": 2, "factor": 2}])
def test_a_topic_that_is_made_again_has_nothing_of_the_former_one_after_a_restart(
    was: dict[str, Any], make: Make, tmp_path: Path
) -> None:
    wire = make(2, storage=Directory(tmp_path))
    configs = was.pop("configs", {})
    assert create(wire, "n", **was, **configs) == E.NONE
    assert wire.ask("DeleteTopics", 5, TopicNames=["n"])["Responses"][0]["ErrorCode"] == E.NONE
    assert create(wire, "n") == E.NONE
    again = make(2, storage=Directory(tmp_path))
    assert value(again, TOPIC, "n", "retention.ms") == ("604800000", 5)
    [topic] = again.ask("Metadata", 12, Topics=[{"Name": "n"}])["Topics"]
    assert [part["ReplicaNodes"] for part in topic["Partitions"]] == [[1]]


@pytest.mark.parametrize("other", ["AAAAAAAAAAAAAAAAAAAAAQ", "_____________________w"])
def test_partitions_of_one_name_with_two_topic_ids_are_damage(other: str, make: Make, tmp_path: Path) -> None:
    create(make(storage=Directory(tmp_path)), "n", partitions=2)
    metadata = tmp_path / "n-1" / "partition.metadata"
    own = metadata.read_text(encoding="utf-8").partition("topic_id: ")[2].split()[0]
    metadata.write_text(metadata.read_text(encoding="utf-8").replace(own, other), encoding="utf-8")
    with pytest.raises(DamagedLog, match=r"^n-1: its topic id is not that of the topic's other partitions$"):
        make(storage=Directory(tmp_path))


def test_a_broker_tells_the_settings_with_which_it_was_started(make: Make) -> None:
    wire = make(settings=Settings(default_partitions=3, internal_partitions=7, consumer_heartbeat_ms=2_500))
    expected = {
        "auto.create.topics.enable": "true",
        "default.replication.factor": "1",
        "num.partitions": "3",
        "offsets.topic.num.partitions": "7",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "7",
        "transaction.state.log.replication.factor": "1",
        "transaction.max.timeout.ms": "900000",
        "transactional.id.expiration.ms": "604800000",
        "producer.id.expiration.ms": "86400000",
        "group.consumer.session.timeout.ms": "45000",
        "group.consumer.heartbeat.interval.ms": "2500",
        "group.max.size": "1000",
        "fetch.max.bytes": str(55 << 20),
        "socket.request.max.bytes": str(100 << 20),
        "connections.max.idle.ms": "600000",
    }
    assert {name: value(wire, BROKER, "1", name)[0] for name in expected} == expected
    other = Settings(
        limits=Limits(idle_ms=1, fetch_bytes=2_000, members=3, batch_bytes=4_000, frame_bytes=5_000),
        transactions=TransactionSettings(max_timeout_ms=6_000, id_expiration_ms=7_000),
        group_initial_delay_ms=8,
        consumer_session_ms=9_000,
        producer_id_expiration_ms=10_000,
    )
    wire = make(settings=other, machines=Machines(leaders=LeaderRules(verification=False)))
    expected = {
        "connections.max.idle.ms": "1",
        "fetch.max.bytes": "2000",
        "group.max.size": "3",
        "message.max.bytes": "4000",
        "socket.request.max.bytes": "5000",
        "transaction.max.timeout.ms": "6000",
        "transactional.id.expiration.ms": "7000",
        "group.initial.rebalance.delay.ms": "8",
        "group.consumer.session.timeout.ms": "9000",
        "producer.id.expiration.ms": "10000",
        "transaction.partition.verification.enable": "false",
    }
    assert {name: value(wire, BROKER, "1", name) for name in expected} == {
        name: (text, 4) for name, text in expected.items()
    }
    without = make(settings=Settings(default_partitions=0))
    assert value(without, BROKER, "1", "auto.create.topics.enable")[0] == "false"
    assert value(without, BROKER, "1", "num.partitions")[0] == "1"


# Kafka: SocketServerConfigs, ServerConfigs, ReplicationConfigs, TransactionLogConfig; the default, and the least value
BROKER_NUMBERS = {
    "background.threads": (10, 1),
    "max.connection.creation.rate": ((1 << 31) - 1, 0),
    "max.connections": ((1 << 31) - 1, 0),
    "max.connections.per.ip": ((1 << 31) - 1, 0),
    "num.io.threads": (8, 1),
    "num.network.threads": (3, 1),
    "num.recovery.threads.per.data.dir": (2, 1),
    "num.replica.fetchers": (1, 0),
    "producer.id.expiration.ms": (86_400_000, 1),
}


@pytest.mark.parametrize(("name", "default", "least"), [(name, *row) for name, row in BROKER_NUMBERS.items()])
def test_a_number_of_a_broker_has_kafkas_default_and_may_be_as_small_as_in_kafka(
    name: str, default: int, least: int, wire: Wire
) -> None:
    assert value(wire, BROKER, "1", name)[0] == str(default)
    assert alter(wire, BROKER, "", **{name: str(least - 1)}) == E.INVALID_REQUEST
    assert alter(wire, BROKER, "", **{name: str(least)}) == E.NONE
    assert value(wire, BROKER, "1", name)[0] == str(least)


def test_settings_that_clients_only_read_are_told_with_kafkas_defaults(wire: Wire) -> None:
    resource = {"ResourceType": BROKER, "ResourceName": "1", "ConfigurationKeys": None}
    row = wire.ask("DescribeConfigs", 4, Resources=[resource], IncludeSynonyms=True)["Results"][0]
    found = {each["Name"]: each["Synonyms"][-1]["Value"] for each in row["Configs"] if each["ReadOnly"]}
    assert found == {
        "auto.create.topics.enable": "true",
        "broker.id": "-1",
        "connections.max.idle.ms": "600000",
        "default.replication.factor": "1",
        "fetch.max.bytes": "57671680",
        "group.consumer.heartbeat.interval.ms": "5000",
        "group.consumer.session.timeout.ms": "45000",
        "group.initial.rebalance.delay.ms": "3000",
        "group.max.size": "2147483647",
        "node.id": "-1",
        "num.partitions": "1",
        "offsets.topic.num.partitions": "50",
        "offsets.topic.replication.factor": "3",
        "socket.request.max.bytes": "104857600",
        "transaction.max.timeout.ms": "900000",
        "transaction.state.log.num.partitions": "50",
        "transaction.state.log.replication.factor": "3",
        "transactional.id.expiration.ms": "604800000",
    }


@pytest.mark.parametrize("name", ["2", "x"])
def test_a_broker_tells_its_own_configurations_and_those_of_all_brokers_only(name: str, make: Make) -> None:
    wire = make(2)
    asked = {"ResourceType": BROKER, "ConfigurationKeys": None}
    rows = wire.ask("DescribeConfigs", 4, Resources=[asked | {"ResourceName": each} for each in ("1", "", name)])[
        "Results"
    ]
    assert [row["ErrorCode"] for row in rows] == [E.NONE, E.NONE, E.INVALID_REQUEST]
    assert rows[0]["Configs"]
    assert not rows[1]["Configs"], "nothing is altered for all brokers"
    assert "id" in rows[2]["ErrorMessage"]
    for broker, size in (("", "2000"), ("1", "3000")):
        assert alter(wire, BROKER, broker, message_max_bytes=size) == E.NONE
    resource = asked | {"ResourceName": ""}
    [row] = wire.ask("DescribeConfigs", 4, Resources=[resource], IncludeSynonyms=True)["Results"]
    [found] = row["Configs"]
    assert found["Synonyms"] == [{"Name": "message.max.bytes", "Value": "2000", "Source": 3}]
