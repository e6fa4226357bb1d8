"""The served reference next to Kafka itself: the same raw requests, the same answers."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.coordinator_partition import coordinator_partition
from kafka_eos.formats.record_batch import Record, RecordBatch, TimestampType, build_batch, decode_batch
from kafka_eos.machines.consumer_group import ConsumerGroup
from kafka_eos.server.cluster import Machines
from kafka_eos.server.offset_records import OFFSET, RECORDS, kind_of, read_key, read_value
from kafka_eos.server.schemas import NEWEST, NOT_SERVED, REFUSED, served_codec
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.brokers import Cluster, ask
from kafka_eos_checks.brokers.fetched import batches
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.mutants.rules import mutated

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos record` fetches them"),
]
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
NOT_COMPARED = {"retention.ms", "segment.index.bytes", "min.insync.replicas", "unclean.leader.election.enable"}
"""The settings with which the recorder's brokers are started."""

AS_KAFKA = Machines(consumer_group=mutated(ConsumerGroup, {"EpochAfterReturn": "ZeroAfterLeave"}))  # type: ignore[arg-type]
"""The rules of Kafka 4.3 where the served reference has the spec's."""

AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
"""Kafka then assigns partitions as soon as a member comes or goes, as the served reference does."""


@dataclass
class Both:
    """Kafka and the served reference.

    Attributes:
        ports: the ports of the two.
        made: the counter of topics.
    """

    ports: dict[str, int]
    made: Iterator[int] = field(default_factory=count)

    def ask(self, api: str, version: int, row: Message) -> tuple[Message, Message]:
        """The answers of both to a request."""
        kafka, served = (ask(port, api, version, row) for port in self.ports.values())
        return kafka, served

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """Create a topic on both; configuration names have underscores."""
        name = f"t{next(self.made)}"
        rows = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
        topics = [{"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": rows}]
        for answer in self.ask("CreateTopics", 7, {"Topics": topics, "timeoutMs": 10_000}):
            assert answer["Topics"][0]["ErrorCode"] == 0, answer
        self.settle(name)
        return name

    def settle(self, name: str) -> None:
        """Wait until Kafka's broker has the present metadata from its controller, and leads the topic's partition."""
        deadline = time.monotonic() + 10
        asked = [{"Name": name, "Partitions": [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": -1}]}]
        row = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": asked}
        port = self.ports["Kafka"]
        while (
            not ask(port, "Metadata", 11, {"Topics": [{"Name": name}]})["Topics"][0]["Partitions"]
            or ask(port, "ListOffsets", 7, row)["Topics"][0]["Partitions"][0]["ErrorCode"] != 0
        ):
            assert time.monotonic() < deadline, f"no leader of {name}"
            time.sleep(0.02)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder: Path = tmp_path_factory.mktemp("kafka") / "cluster"
    with Cluster(folder, settings=AT_ONCE) as kafka, ServedCluster(machines=AS_KAFKA) as served:
        port = int(served.bootstrap_servers.rpartition(":")[2])
        made = Both({"Kafka": kafka.any_port(), "served": port})
        made.settle(made.topic())
        yield made


def without_times(told: Any) -> Any:
    """A text without its times, which always differ."""
    return re.sub(r"-?\d{13,}", "…", told) if isinstance(told, str) else told


# --- Produce ---------------------------------------------------------------------------------------------------------


def batch(size: int = 2, **given: Any) -> RecordBatch:
    """A batch of some records."""
    records = [Record(value=b"v" * 100, offset_delta=n, timestamp_delta=n) for n in range(size)]
    return build_batch(given.pop("records", records), **{"base_timestamp": int(time.time() * 1000), **given})


def keyed(*keys: bytes | None) -> list[Record]:
    return [Record(key=key, value=b"v", offset_delta=n) for n, key in enumerate(keys)]


def altered(given: RecordBatch, **columns: Any) -> bytes:
    """A batch with other columns and a correct CRC."""
    changed = replace(given, **columns)
    return changed.stamped(changed.timestamp_type, changed.max_timestamp).encode()


def later(seconds: int) -> int:
    return int((time.time() + seconds) * 1000)


MADE: dict[str, Callable[[], bytes | None]] = {
    "a batch": lambda: batch().encode(),
    "a sequence without a producer": lambda: batch(base_sequence=0).encode(),
    "a sequence and an epoch without a producer": lambda: batch(base_sequence=7, producer_epoch=3).encode(),
    "a negative producer id": lambda: batch(producer_id=-5, base_sequence=7).encode(),
    "a producer without a sequence": lambda: batch(producer_id=5, producer_epoch=0).encode(),
    "a producer without an epoch": lambda: batch(producer_id=5, base_sequence=0).encode(),
    "a transaction of nobody": lambda: batch(is_transactional=True).encode(),
    "a control batch": lambda: batch(is_control=True).encode(),
    "no records": lambda: batch(records=[]).encode(),
    "fewer records than offsets": lambda: altered(batch(), record_count=1),
    "more offsets than records": lambda: altered(batch(), last_offset_delta=4),
    "a negative offset delta": lambda: altered(batch(), last_offset_delta=-1),
    "a negative count": lambda: altered(batch(), record_count=-1),
    "a base offset": lambda: replace(batch(), base_offset=5).encode(),
    "a negative base offset": lambda: b"\xff" * 8 + batch().encode()[8:],
    "another checksum": lambda: replace(batch(), crc=1).encode(),
    "magic 1": lambda: batch().encode()[:16] + b"\1" + batch().encode()[17:],
    "magic 3": lambda: batch().encode()[:16] + b"\3" + batch().encode()[17:],
    "two batches": lambda: batch().encode() * 2,
    "three bytes after it": lambda: batch().encode() + b"abc",
    "a part of another one after it": lambda: batch().encode() + batch().encode()[:70],
    "not whole": lambda: batch().encode()[:-1],
    "not even a header": lambda: batch().encode()[:40],
    "nothing": lambda: b"",
    "a timestamp ahead": lambda: batch(base_timestamp=later(4000)).encode(),
    "a timestamp only said to be ahead": lambda: altered(batch(), max_timestamp=later(4000)),
    "no timestamp": lambda: batch(base_timestamp=-1).encode(),
    "an old timestamp": lambda: batch(base_timestamp=5).encode(),
    "timestamps of a broker": lambda: batch(timestamp_type=TimestampType.LOG_APPEND_TIME).encode(),
    "zstd": lambda: batch(compression=CompressionType.ZSTD).encode(),
    "too large": lambda: batch(records=[Record(value=b"v" * 1_048_588)]).encode(),
}


def produced(answer: Message, version: int) -> Any:
    """The part of an answer on its only partition."""
    row = answer["Responses"][0]["PartitionResponses"][0]
    columns = [row["ErrorCode"], row["BaseOffset"], row["LogAppendTimeMs"] > 0]
    columns += [row["LogStartOffset"]] if version >= 5 else []
    errors = row.get("RecordErrors", ())
    columns += [[(each["BatchIndex"], without_times(each["BatchIndexErrorMessage"])) for each in errors]]
    return columns, without_times(row.get("ErrorMessage"))


def compare_produced(both: Both, topic: str, data: bytes | None, version: int = 9, **more: Any) -> int:
    """Let both append the same batch; return the error code."""
    part = [{"Name": topic, "PartitionData": [{"Index": 0, "Records": data}]}]
    row = {"TransactionalId": None, "Acks": -1, "TimeoutMs": 5000, "TopicData": part} | more
    kafka, served = (produced(answer, version) for answer in both.ask("Produce", version, row))
    assert served[0] == kafka[0]
    if kafka[1] is not None:  # where Kafka gives no message, the served reference may give one
        assert served[1] == kafka[1]
    return int(kafka[0][0])


def stored(both: Both, topic: str) -> None:
    """Compare the stored batches of both."""
    part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 24}
    row = {"MaxWaitMs": 0, "MinBytes": 0, "Topics": [{"Topic": topic, "Partitions": [part]}]}
    rows = []
    for answer in both.ask("Fetch", 12, row):
        data, position, batches = answer["Responses"][0]["Partitions"][0]["Records"], 0, []
        while position < len(data):
            found, position = decode_batch(data, position)
            is_stamped = found.timestamp_type is TimestampType.LOG_APPEND_TIME
            columns = found.base_offset, found.compression, found.timestamp_type, found.base_timestamp
            batches.append((*columns, None if is_stamped else found.max_timestamp, found.records()))
        rows.append(batches)
    assert rows[1] == rows[0]
    assert rows[0], "nothing is stored"


@pytest.mark.parametrize("name", MADE)
def test_a_batch_is_accepted_or_refused_as_by_kafka(both: Both, name: str) -> None:
    topic = both.topic()
    compare_produced(both, topic, MADE[name]())
    compare_produced(both, topic, MADE["a batch"]())  # the batch is at the same offset
    compare_produced(both, topic, MADE[name](), 3)


@pytest.mark.parametrize(
    ("configs", "batches", "errors"),
    [
        ({"max_message_bytes": "300"}, [batch(2), batch(3), batch(20, compression=CompressionType.GZIP)], {0, 10}),
        ({"max_message_bytes": "0"}, [batch()], {10}),
        (
            {"max_message_bytes": "3000000"},
            [batch(records=[Record(value=bytes(n))]) for n in (2_000_000, 3_000_000)],
            {0, 10},
        ),
        (
            {"max_message_bytes": "3000000", "segment_bytes": "1048576"},
            [batch(records=[Record(value=bytes(2_000_000))]), batch()],
            {0, 18},
        ),
        ({"compression_type": "uncompressed", "max_message_bytes": "300"},
         [batch(20, compression=CompressionType.GZIP), batch()], {0, 10}),
        ({"compression_type": "gzip", "max_message_bytes": "300"}, [batch(20), batch()], {0, 10}),
        *(
            ({"compression_type": name}, [batch(), batch(compression=CompressionType.LZ4)], {0})
            for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
        ),
        ({"message_timestamp_type": "LogAppendTime"},
         [batch(), batch(base_timestamp=5), batch(base_timestamp=later(10**6), compression=CompressionType.GZIP)], {0}),
        ({"message_timestamp_before_max_ms": "10000000"},
         [batch(base_timestamp=later(-20_000)), batch(), batch(base_timestamp=-1),
          batch(records=[Record(), Record(offset_delta=1, timestamp_delta=-20_000_000)])], {0, 32}),
        ({"message_timestamp_after_max_ms": "100000"}, [batch(base_timestamp=later(10**5)), batch()], {0, 32}),
        (
            {"cleanup_policy": "compact"},
            [
                batch(records=keyed(b"a", b"")),
                batch(records=keyed(b"a", None, None, b"b", None, None)),
                batch(records=keyed(None, b"a"), compression=CompressionType.GZIP),
                batch(records=keyed(None), base_timestamp=later(10**6)),
                batch(records=keyed(b"a", None), base_timestamp=later(10**6)),
                batch(records=keyed(None), base_sequence=0, producer_id=7, producer_epoch=0),
            ],
            {0, 32, 87},
        ),
        ({"cleanup_policy": "delete,compact"}, [batch(), batch(records=keyed(b"a"))], {0, 87}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else type(value).__name__,
)  # fmt: skip
def test_a_topics_configuration_has_the_effect_that_it_has_in_kafka(
    both: Both, configs: dict[str, str], batches: list[RecordBatch], errors: set[int]
) -> None:
    topic = both.topic(**configs)
    assert {compare_produced(both, topic, each.encode()) for each in batches} == errors
    if 0 in errors:
        stored(both, topic)


def test_a_duplicate_has_the_time_at_which_it_was_appended(both: Both) -> None:
    for configs in ({}, {"message_timestamp_type": "LogAppendTime"}):
        topic = both.topic(**configs)
        sent = batch(producer_id=7, producer_epoch=0, base_sequence=0).encode()
        for _ in range(2):
            compare_produced(both, topic, sent)
        compare_produced(both, topic, batch(producer_id=7, producer_epoch=0, base_sequence=9).encode())


def test_a_request_is_refused_whole_or_in_parts_as_by_kafka(both: Both) -> None:
    topic, sent = both.topic(), batch().encode()
    for more in ({"Acks": 2}, {"Acks": 2, "TransactionalId": "x"}):
        compare_produced(both, topic, sent, **more)
    nobodys = batch(is_transactional=True, producer_id=7, producer_epoch=0, base_sequence=0).encode()
    compare_produced(both, topic, nobodys)
    compare_produced(both, "nowhere", sent)
    compare_produced(both, "nowhere", sent, Acks=2)


@pytest.mark.parametrize("name", ["a batch", "a control batch", "too large", "not whole"])
def test_a_batch_without_acknowledgement_closes_the_connection_where_kafka_does(both: Both, name: str) -> None:
    topic, codec, open_after = both.topic(), served_codec(), []
    part = [{"Name": topic, "PartitionData": [{"Index": 0, "Records": MADE[name]()}]}]
    sent = codec.write_request("Produce", 9, 1, "test", {"Acks": 0, "TimeoutMs": 1000, "TopicData": part})
    behind = codec.write_request("ListGroups", 4, 2, "test", {})
    for port in both.ports.values():
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"".join(len(data).to_bytes(4, "big") + data for data in (sent, behind)))
            try:
                open_after.append(bool(connection.recv(1)))
            except ConnectionError:
                open_after.append(False)
    assert open_after == [name == "a batch"] * 2


# --- topics ----------------------------------------------------------------------------------------------------------

VALUES = """
    nonesuch=1  max.message.bytes=-1  max.message.bytes=abc  max.message.bytes=  max.message.bytes=99999999999
    max.message.bytes=12  cleanup.policy=foo  cleanup.policy=  cleanup.policy=compact,delete
    cleanup.policy=compact,none  cleanup.policy=delete,delete  compression.type=brotli  compression.type=gzip
    message.timestamp.type=logappendtime  message.timestamp.type=LogAppendTime  retention.ms=-2  retention.bytes=-5
    segment.bytes=13  segment.bytes=1048576  min.insync.replicas=0  preallocate=maybe  preallocate=TRUE
    min.cleanable.dirty.ratio=2  min.cleanable.dirty.ratio=0.3  min.cleanable.dirty.ratio=x
    message.timestamp.after.max.ms=-1  message.timestamp.before.max.ms=10  unclean.leader.election.enable=x
    remote.storage.enable=true  remote.log.copy.disable=true  compression.gzip.level=77  compression.gzip.level=0
    compression.gzip.level=-1  compression.lz4.level=0  compression.lz4.level=18  compression.zstd.level=0
    compression.zstd.level=-200000  compression.zstd.level=23  max.compaction.lag.ms=0  min.compaction.lag.ms=-1
    local.retention.ms=5  local.retention.ms=-3  local.retention.bytes=-3  leader.replication.throttled.replicas=x
    leader.replication.throttled.replicas=*  follower.replication.throttled.replicas=0:1,1:1  flush.ms=-1
    flush.messages=0  segment.ms=0  segment.jitter.ms=-1  segment.index.bytes=3  index.interval.bytes=-1
    file.delete.delay.ms=-1  delete.retention.ms=-1  message.format.version=2.0  message.downconversion.enable=true
    retention.ms=9223372036854775808  max.message.bytes=2147483648  preallocate=
"""


def created(answer: Message) -> Any:
    """The part of an answer on its topics."""
    return [
        (
            *(row[name] for name in ("Name", "ErrorCode", "ErrorMessage", "NumPartitions", "ReplicationFactor")),
            sorted(
                (each["Name"], each["Value"], each["ConfigSource"], each["ReadOnly"], each["IsSensitive"])
                for each in row["Configs"]
                if each["Name"] not in NOT_COMPARED
            ),
        )
        for row in answer["Topics"]
    ]


def compare_created(both: Both, *topics: Message, validate: bool = True) -> None:
    row = {"Topics": topics, "timeoutMs": 10_000, "validateOnly": validate}
    kafka, served = (sorted(created(answer)) for answer in both.ask("CreateTopics", 7, row))
    assert served == kafka


def asked(name: str, partitions: int = 1, factor: int = 1, **more: Any) -> Message:
    return {"Name": name, "NumPartitions": partitions, "ReplicationFactor": factor, **more}


def with_configs(*pairs: tuple[str, str | None]) -> dict[str, Any]:
    return {"Configs": [{"Name": name, "Value": value} for name, value in pairs]}


@pytest.mark.parametrize("pair", VALUES.split())
def test_a_value_of_a_configuration_is_accepted_or_refused_as_by_kafka(both: Both, pair: str) -> None:
    name, _, value = pair.partition("=")
    compare_created(both, asked("new", **with_configs((name, value))))


@pytest.mark.parametrize(
    "topic",
    [
        asked("new"),
        asked("new", **with_configs(("max.message.bytes", None))),
        asked("new", **with_configs(("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5"))),
        asked("new", **with_configs(("nonesuch", "1"), ("max.message.bytes", "x"))),
        *(asked("new", factor=factor) for factor in (-2, -1, 0, 2)),
        *(asked("new", partitions=partitions) for partitions in (-2, -1, 0, 3)),
        asked("new", 0, 0),
        asked("new", 0, 1, **with_configs(("nonesuch", "1"))),
        *(asked(name) for name in ("", ".", "..", "a/b", "x" * 250, "__cluster_metadata")),
        *(
            asked("new", -1, -1, Assignments=[{"PartitionIndex": n, "BrokerIds": brokers} for n, brokers in assigned])
            for assigned in (
                [(0, [1]), (1, [1])],
                [(0, [7])],
                [(1, [1])],
                [(0, [1, 1])],
                [(0, [])],
                [(0, [1]), (0, [1])],
            )
        ),
        asked("new", 1, -1, Assignments=[{"PartitionIndex": 0, "BrokerIds": [1]}]),
        asked("new", -1, 1, Assignments=[{"PartitionIndex": 0, "BrokerIds": [1]}]),
    ],
    ids=lambda topic: re.sub(r"x{9,}", "x…", str({k: v for k, v in topic.items() if k != "Name" or v != "new"}))[:80],
)
def test_a_topic_is_created_or_refused_as_by_kafka(both: Both, topic: Message) -> None:
    compare_created(both, topic)


def test_topics_that_exist_or_are_requested_twice_are_refused_as_by_kafka(both: Both) -> None:
    compare_created(both, asked("there.is"), validate=False)
    both.settle("there.is")
    for name in ("there.is", "there_is"):
        compare_created(both, asked(name))
    compare_created(both, asked("d"), asked("d"), asked("e"))


@pytest.mark.parametrize(
    "row",
    [
        {"Name": "nowhere", "Count": 2},
        *({"Count": count} for count in (-1, 0, 1)),
        *(
            {"Count": count, "Assignments": [{"BrokerIds": brokers} for brokers in assigned]}
            for count, assigned in ((3, [[1]]), (2, [[9]]), (2, [[1, 1]]), (2, [[]]), (2, [[1]]))
        ),
        {"Count": 4},
    ],
    ids=str,
)
def test_partitions_are_added_or_refused_as_by_kafka(both: Both, row: Message) -> None:
    topics = [{"Name": both.topic(), "Assignments": None} | row]
    kafka, served = both.ask("CreatePartitions", 3, {"Topics": topics, "TimeoutMs": 9000, "ValidateOnly": False})
    assert served["Results"] == kafka["Results"]


def test_topics_are_deleted_or_not_as_by_kafka(both: Both) -> None:
    name = both.topic()
    some, none = "00000000-0000-0000-0000-000000000005", "00000000-0000-0000-0000-000000000000"
    for row in ({"Name": "nowhere"}, {"Name": name}, {"Name": name, "TopicId": some}, {"Name": None, "TopicId": none},
                {"Name": None, "TopicId": some}):  # fmt: skip
        topics = [row | ({"TopicId": UUID(row["TopicId"])} if "TopicId" in row else {})]
        answers = both.ask("DeleteTopics", 6, {"Topics": topics, "TimeoutMs": 9000})
        kafka, served = ([{**row, "TopicId": None} for row in answer["Responses"]] for answer in answers)
        assert served == kafka


def test_a_topic_that_is_given_more_than_once_is_not_deleted_as_by_kafka(both: Both) -> None:
    """Kafka: ControllerApis.deleteTopics, which shuffles the answer."""
    twice, other, both_ways, named_twice, alone = names = [both.topic() for _ in range(5)]
    rows = []
    for port in both.ports.values():
        made = ask(port, "Metadata", 12, {"Topics": [{"Name": name} for name in names]})["Topics"]
        ids = {row["Name"]: row["TopicId"] for row in made}
        by_name = [twice, twice, both_ways, named_twice, named_twice, "nowhere", "nowhere", alone]
        by_id = [ids[other], ids[other], ids[both_ways], ids[named_twice], UUID(int=5), UUID(int=5), UUID(int=6)]
        topics = [{"Name": name} for name in by_name] + [{"Name": None, "TopicId": each} for each in by_id]
        answer = ask(port, "DeleteTopics", 6, {"Topics": topics, "TimeoutMs": 9000})["Responses"]
        told = {each: name for name, each in ids.items()} | {UUID(int=0): "no id", UUID(int=5): "5", UUID(int=6): "6"}
        rows.append(sorted(str({**row, "TopicId": told[row["TopicId"]]}) for row in answer))
    kafka, served = rows
    assert served == kafka


# --- configurations --------------------------------------------------------------------------------------------------

SIZE, POLICY = "max.message.bytes", "cleanup.policy"
Step = tuple[str, int, str, list[tuple[Any, ...]]]
STEPS: dict[str, list[Step]] = {
    "set and delete": [
        ("Incremental", TOPIC, "T", [(SIZE, SET, "2000"), (POLICY, APPEND, "compact")]),
        ("Incremental", TOPIC, "T", [(POLICY, SUBTRACT, "delete")]),
        ("Incremental", TOPIC, "T", [(POLICY, APPEND, "compact")]),
        ("Incremental", TOPIC, "T", [(POLICY, SUBTRACT, "delete")]),
        ("Incremental", TOPIC, "T", [(POLICY, APPEND, "delete,compact")]),
        ("Incremental", TOPIC, "T", [(POLICY, SUBTRACT, "compact")]),
        ("Incremental", TOPIC, "T", [(POLICY, APPEND, "compact,compact")]),
        ("Incremental", TOPIC, "T", [(POLICY, SET, "compact, compact"), (SIZE, SET, "+02000 ")]),
        ("Incremental", TOPIC, "T", [(POLICY, SUBTRACT, "compact")]),
        ("Incremental", TOPIC, "T", [(SIZE, DELETE, "xx")]),
        ("Incremental", TOPIC, "T", [(SIZE, DELETE, None), ("nonesuch", DELETE, None)]),
        ("Incremental", TOPIC, "T", []),
    ],
    "refused": [
        ("Incremental", TOPIC, "T", [(POLICY, APPEND, "nix")]),
        ("Incremental", TOPIC, "T", [(SIZE, APPEND, "5")]),
        ("Incremental", TOPIC, "T", [(SIZE, SUBTRACT, "5")]),
        ("Incremental", TOPIC, "T", [("nonesuch", APPEND, "5")]),
        ("Incremental", TOPIC, "T", [(POLICY, APPEND, None)]),
        ("Incremental", TOPIC, "T", [(SIZE, SET, None)]),
        ("Incremental", TOPIC, "T", [("nonesuch", SET, "1")]),
        ("Incremental", TOPIC, "T", [("", SET, "1")]),
        ("Incremental", TOPIC, "T", [(SIZE, 9, "1")]),
        ("Incremental", TOPIC, "T", [(SIZE, SET, "1"), (SIZE, DELETE, None)]),
        ("Incremental", TOPIC, "T", [("flush.ms", SET, "7"), (SIZE, SET, "x")]),
        ("Incremental", TOPIC, "T", [("min.compaction.lag.ms", SET, "7"), ("max.compaction.lag.ms", SET, "5")]),
        ("Incremental", TOPIC, "T", [("remote.storage.enable", SET, "true")]),
        ("Incremental", TOPIC, "nowhere", [(SIZE, SET, "1")]),
        ("Incremental", TOPIC, "a/b", [(SIZE, SET, "1")]),
        ("Incremental", TOPIC, "", [(SIZE, SET, "1")]),
        ("Incremental", 3, "T", [(SIZE, SET, "1")]),
        ("Incremental", 99, "T", [(SIZE, SET, "1")]),
    ],
    "only looked at": [
        ("Validate", TOPIC, "T", [(SIZE, SET, "77")]),
        ("Validate", TOPIC, "T", [(SIZE, SET, "u")]),
        ("Validate", BROKER, "1", [("message.max.bytes", SET, "77")]),
    ],
    "all at once": [
        ("All", TOPIC, "T", [(SIZE, "555")]),
        ("All", TOPIC, "T", [("flush.ms", "7")]),
        ("All", TOPIC, "T", []),
        ("All", TOPIC, "T", [(SIZE, "x")]),
        ("All", TOPIC, "T", [(SIZE, None)]),
        ("All", TOPIC, "T", [("nonesuch", "1")]),
        ("All", TOPIC, "nowhere", [(SIZE, "1")]),
        ("All", TOPIC, "T", [(SIZE, "1"), (SIZE, "2")]),
        ("All", BROKER, "1", [("message.max.bytes", "3000")]),
        ("All", BROKER, "1", []),
        ("All", BROKER, "1", [("broker.id", "3")]),
        ("All", 3, "T", [(SIZE, "1")]),
    ],
    "of brokers": [
        ("Incremental", BROKER, "1", [("message.max.bytes", SET, "3000")]),
        ("Incremental", BROKER, "", [("message.max.bytes", SET, "4000")]),
        ("Incremental", TOPIC, "T", [(SIZE, SET, "2000")]),
        ("Incremental", BROKER, "1", [("message.max.bytes", DELETE, None)]),
        ("Incremental", TOPIC, "T", [(SIZE, DELETE, None)]),
        ("Incremental", BROKER, "", [("message.max.bytes", DELETE, None)]),
        ("Incremental", BROKER, "", [("log.flush.interval.ms", SET, "5000"), ("log.roll.ms", SET, "6000")]),
        ("Incremental", BROKER, "", [("log.flush.interval.ms", DELETE, None), ("log.roll.ms", DELETE, None)]),
        ("Incremental", BROKER, "1", [("log.cleanup.policy", APPEND, "compact")]),
        ("Incremental", BROKER, "1", [("log.cleanup.policy", DELETE, None)]),
        ("Incremental", BROKER, "", [("producer.id.expiration.ms", SET, "4000")]),
        ("Incremental", BROKER, "1", [("transaction.partition.verification.enable", SET, "false")]),
        ("Incremental", BROKER, "", [("producer.id.expiration.ms", DELETE, None)]),
        ("Incremental", BROKER, "1", [("transaction.partition.verification.enable", DELETE, None)]),
        ("Incremental", BROKER, "1", [("broker.id", SET, "3")]),
        ("Incremental", BROKER, "", [("transaction.max.timeout.ms", SET, "3")]),
        ("Incremental", BROKER, "1", [("message.max.bytes", SET, "x")]),
        ("Incremental", BROKER, "", [("message.max.bytes", SET, "-4")]),
        ("Incremental", BROKER, "1", [("log.message.timestamp.type", SET, "x")]),
        ("Incremental", BROKER, "", [("producer.id.expiration.ms", SET, "0")]),
        ("Incremental", BROKER, "9", [("message.max.bytes", SET, "5")]),
        ("Incremental", BROKER, "x", [("message.max.bytes", SET, "5")]),
    ],
}  # fmt: skip
DESCRIBED = (POLICY, SIZE, "flush.ms", "segment.ms", "min.compaction.lag.ms", "max.compaction.lag.ms")
DESCRIBED_OF_BROKERS = (
    "message.max.bytes",
    "log.flush.interval.ms",
    "log.roll.ms",
    "log.cleanup.policy",
    "producer.id.expiration.ms",
    "transaction.partition.verification.enable",
    "transaction.max.timeout.ms",
    "broker.id",
)


def altered_rows(both: Both, step: Step, topic: str) -> None:
    """Let both alter a configuration, and compare their answers."""
    how, kind, name, changes = step
    columns = ("Name", "Value") if how == "All" else ("Name", "ConfigOperation", "Value")
    configs = [dict(zip(columns, change, strict=True)) for change in changes]
    resource = {"ResourceType": kind, "ResourceName": topic if name == "T" else name, "Configs": configs}
    api, version = ("AlterConfigs", 2) if how == "All" else ("IncrementalAlterConfigs", 1)
    kafka, served = both.ask(api, version, {"Resources": [resource], "ValidateOnly": how == "Validate"})
    assert served["Responses"] == kafka["Responses"], step


def described(both: Both, kind: int, name: str, keys: tuple[str, ...] | None, synonyms: bool = True) -> list[Any]:
    """The answers of both about a resource."""
    resource = {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": keys}
    rows = []
    for answer in both.ask("DescribeConfigs", 4, {"Resources": [resource], "IncludeSynonyms": synonyms}):
        [row] = answer["Results"]
        configs = sorted((each for each in row["Configs"]), key=lambda each: str(each["Name"]))
        rows.append((row["ErrorCode"], row["ErrorMessage"], [{**each, "Documentation": None} for each in configs]))
    return rows


def compare_described(both: Both, kind: int, name: str, keys: tuple[str, ...], synonyms: bool = True) -> None:
    """Compare the descriptions of both, after Kafka's broker has learned of changes from its controller."""
    deadline = time.monotonic() + 10
    while True:
        kafka, served = described(both, kind, name, keys, synonyms)
        if served == kafka or time.monotonic() > deadline:
            assert served == kafka
            return
        time.sleep(0.05)


@pytest.mark.parametrize("name", STEPS)
def test_configurations_are_altered_and_described_as_by_kafka(both: Both, name: str) -> None:
    topic = both.topic()
    for step in STEPS[name]:
        altered_rows(both, step, topic)
        compare_described(both, TOPIC, topic, DESCRIBED)
        compare_described(both, BROKER, "1", DESCRIBED_OF_BROKERS)
        compare_described(both, BROKER, "", DESCRIBED_OF_BROKERS)
    compare_described(both, TOPIC, topic, DESCRIBED, synonyms=False)


def test_every_configuration_of_a_topic_is_described_as_by_kafka(both: Both) -> None:
    kafka, served = (
        [each for each in row[2] if each["Name"] not in NOT_COMPARED]
        for row in described(both, TOPIC, both.topic(), None)
    )
    assert served == kafka
    assert len(served) > 25


def test_a_brokers_configurations_are_described_as_by_kafka_as_far_as_they_are_known(both: Both) -> None:
    kafka, served = (
        {each["Name"]: (each["ReadOnly"], each["ConfigType"]) for each in row[2]}
        for row in described(both, BROKER, "1", None)
    )
    assert served.items() <= kafka.items()
    assert len(served) > 50


@pytest.mark.parametrize(
    ("kind", "name"),
    [(BROKER, "9"), (BROKER, "x"), (TOPIC, "nowhere"), (TOPIC, "a/b"), (TOPIC, ""), (3, "x"), (99, "x")],
)
def test_resources_that_cannot_be_described_have_kafkas_error(both: Both, kind: int, name: str) -> None:
    kafka, served = described(both, kind, name, None)
    assert (served[0], served[2]) == (kafka[0], kafka[2])


@pytest.mark.parametrize("kinds", [[2], [4], [99], [4, 99]], ids=str)
def test_resources_with_configurations_are_listed_as_by_kafka(both: Both, kinds: list[int]) -> None:
    topic = both.topic()
    kafka, served = (
        (
            answer["ErrorCode"],
            {
                (row["ResourceType"], row["ResourceName"])
                for row in answer["ConfigResources"]
                if row["ResourceType"] == 4
            },
            (topic in {row["ResourceName"] for row in answer["ConfigResources"]}),
        )
        for answer in both.ask("ListConfigResources", 1, {"ResourceTypes": kinds})
    )
    assert served == kafka


# --- what is not served ----------------------------------------------------------------------------------------------

ACL = {"ResourceType": 2, "ResourceName": "x", "ResourcePatternType": 3, "Principal": "User:a", "Host": "*"}
FILTER = {
    "ResourceTypeFilter": 2,
    "ResourceNameFilter": "x",
    "PatternTypeFilter": 3,
    "Operation": 1,
    "PermissionType": 1,
}
ASKED: dict[str, Message] = {
    "DescribeAcls": FILTER,
    "CreateAcls": {"Creations": [{**ACL, "Operation": 3, "PermissionType": 3}] * 2},
    "DeleteAcls": {"Filters": [FILTER] * 2},
    "SaslHandshake": {"Mechanism": "PLAIN"},
    "SaslAuthenticate": {"AuthBytes": b"x"},
    "CreateDelegationToken": {"MaxLifetimeMs": 1},
    "RenewDelegationToken": {"Hmac": b"x"},
    "ExpireDelegationToken": {"Hmac": b"x"},
    "DescribeDelegationToken": {"Owners": []},
}


def codes(answer: Any) -> list[int]:
    """The error codes in an answer, in order."""
    if isinstance(answer, dict):
        own = [value for name, value in answer.items() if name == "ErrorCode"]
        return own + [code for value in answer.values() for code in codes(value)]
    return [code for each in answer for code in codes(each)] if isinstance(answer, list) else []


@pytest.mark.parametrize("api", REFUSED)
def test_requests_that_need_security_are_refused_as_by_kafka_without_security(both: Both, api: str) -> None:
    for version in served_codec().versions(f"{api}Request"):
        kafka, served = both.ask(api, version, ASKED[api])
        assert codes(served) == codes(kafka) != []


def test_the_offered_apis_are_those_of_kafka_except_those_that_are_not_served(both: Both) -> None:
    row = {"ClientSoftwareName": "x", "ClientSoftwareVersion": "1"}
    kafka, served = (
        {row["ApiKey"]: (row["MinVersion"], row["MaxVersion"]) for row in answer["ApiKeys"]}
        for answer in both.ask("ApiVersions", 3, row)
    )
    keys = served_codec().keys
    newer = {keys[api]: (low, high + 1) for api in NEWEST for low, high in [kafka[keys[api]]]}
    assert served == {key: kafka[key] for key in kafka.keys() - {keys[api] for api in NOT_SERVED}} | newer


# --- offsets and transactions ----------------------------------------------------------------------------------------

NOT_READY = {14, 15, 16}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""


def errors_in(answer: Any) -> list[int]:
    if isinstance(answer, dict):
        own = [value for name, value in answer.items() if name.endswith("ErrorCode")]
        return own + [error for value in answer.values() for error in errors_in(value)]
    return [error for each in answer for error in errors_in(each)] if isinstance(answer, list) else []


def once_ready(port: int, api: str, version: int, row: Message) -> Message:
    """The answer of a coordinator, which is asked again while it is not ready."""
    deadline = time.monotonic() + 20
    while NOT_READY.intersection(errors_in(answer := ask(port, api, version, row))):
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)
    return answer


def test_offsets_are_found_by_time_as_by_kafka_though_records_were_deleted(both: Both) -> None:
    topic, start = both.topic(), later(-60)
    for at in (start + 900, start, start + 500):
        data = {"PartitionData": [{"Index": 0, "Records": batch(1, base_timestamp=at).encode()}]}
        for answer in both.ask("Produce", 9, {"Acks": -1, "TimeoutMs": 1_000, "TopicData": [{"Name": topic} | data]}):
            assert set(errors_in(answer)) == {0}, answer
    for deleted in (0, 1, 2):
        rows = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": deleted}]}]
        both.ask("DeleteRecords", 2, {"Topics": rows, "TimeoutMs": 10_000})
        for at in (-1, -2, -3, start - 1, start, start + 1, start + 600, start + 900, start + 901):
            asked = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": at}]}]
            kafka, served = both.ask("ListOffsets", 7, {"ReplicaId": -1, "IsolationLevel": 0, "Topics": asked})
            assert served == kafka, (deleted, at - start)


def test_the_last_stable_offset_among_deleted_records_is_that_of_kafka(both: Both) -> None:
    topic, name = both.topic(), "deleted-under-a-transaction"
    both.ask("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [name]})
    for port in both.ports.values():
        who = producer_at(port, name)
        own = {"producer_id": who["ProducerId"], "producer_epoch": who["ProducerEpoch"], "is_transactional": True}
        for of, data in ((name, batch(3, base_sequence=0, **own)), (None, batch(3))):
            part = {"PartitionData": [{"Index": 0, "Records": data.encode()}]}
            row = {"TransactionalId": of, "Acks": -1, "TimeoutMs": 1_000, "TopicData": [{"Name": topic} | part]}
            assert set(errors_in(once_ready(port, "Produce", 12, row))) == {0}
    for deleted in (0, 2, 3, 4, 6):
        rows = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Offset": deleted}]}]
        both.ask("DeleteRecords", 2, {"Topics": rows, "TimeoutMs": 10_000})
        asked = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]
        kafka, served = both.ask("ListOffsets", 7, {"ReplicaId": -1, "IsolationLevel": 1, "Topics": asked})
        assert served == kafka, deleted


def test_the_first_generation_of_a_group_waits_for_as_many_as_that_of_kafka(both: Both) -> None:
    name, protocols = "first-generation", [{"Name": "range", "Metadata": b""}]
    both.ask("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [name]})
    row = {"GroupId": name, "SessionTimeoutMs": 60_000, "RebalanceTimeoutMs": 60_000, "ProtocolType": "consumer"}
    found = []
    for port in both.ports.values():
        first, _ = (once_ready(port, "JoinGroup", 7, row | {"MemberId": "", "Protocols": protocols}) for _ in range(2))
        answer = ask(port, "JoinGroup", 7, row | {"MemberId": first["MemberId"], "Protocols": protocols})
        found.append((answer["ErrorCode"], answer["GenerationId"], len(answer["Members"])))
    assert found == [(0, 1, 1), (0, 1, 1)]


def joining(both: Both, name: str, *, rebalance_ms: int) -> Message:
    """The columns of a JoinGroup for a group of the classic protocol whose coordinators are there."""
    both.ask("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [name]})
    row: Message = {"GroupId": name, "ProtocolType": "consumer", "Protocols": [{"Name": "range", "Metadata": b""}]}
    return row | {"SessionTimeoutMs": 60_000, "RebalanceTimeoutMs": rebalance_ms}


def test_a_member_that_comes_with_its_id_after_a_generation_that_has_waited_for_it_is_taken_as_by_kafka(
    both: Both,
) -> None:
    name = "late-with-its-id"
    row = joining(both, name, rebalance_ms=1_000)
    found = []
    for port in both.ports.values():
        members = [once_ready(port, "JoinGroup", 7, row | {"MemberId": ""})["MemberId"] for _ in range(3)]
        answers = [ask(port, "JoinGroup", 7, row | {"MemberId": member}) for member in members]
        found.append([(answer["ErrorCode"], answer["GenerationId"]) for answer in answers])
    assert found == [[(0, 1), (0, 2), (0, 3)]] * 2


def test_an_id_that_a_dynamic_member_was_given_is_no_instances_as_in_kafka(both: Both) -> None:
    name = "no-instance"
    row = joining(both, name, rebalance_ms=1_000)
    found = []
    for port in both.ports.values():
        given = row | {"MemberId": once_ready(port, "JoinGroup", 7, row | {"MemberId": ""})["MemberId"]}
        answers = [ask(port, "JoinGroup", 7, given | more) for more in ({"GroupInstanceId": "i"}, {})]
        found.append([(answer["ErrorCode"], answer["MemberId"] == given["MemberId"]) for answer in answers])
    assert found == [[(E.UNKNOWN_SERVER_ERROR, False), (E.NONE, True)]] * 2


def test_a_group_that_has_only_given_an_id_is_empty_as_in_kafka(both: Both) -> None:
    name = "only-an-id"
    row = joining(both, name, rebalance_ms=60_000)
    found = []
    for port in both.ports.values():
        unknown = once_ready(port, "JoinGroup", 7, row | {"MemberId": "z"})
        [described] = ask(port, "DescribeGroups", 5, {"Groups": [name]})["Groups"]
        assert (unknown["ErrorCode"], described["GroupState"]) == (E.UNKNOWN_MEMBER_ID, "Dead")
        assert ask(port, "JoinGroup", 7, row | {"MemberId": ""})["ErrorCode"] == E.MEMBER_ID_REQUIRED
        deadline, listed = time.monotonic() + 20, list[Message]()
        while not listed:  # written after the answer
            assert time.monotonic() < deadline
            listed = [each for each in ask(port, "ListGroups", 5, {})["Groups"] if each["GroupId"] == name]
        found.append((listed, ask(port, "DescribeGroups", 5, {"Groups": [name]})["Groups"]))
    kafka, served = found
    assert served == kafka
    assert served[0] == [{"GroupId": name, "ProtocolType": "", "GroupState": "Empty", "GroupType": "classic"}]


def test_a_group_that_is_not_synced_is_that_of_kafka(both: Both) -> None:
    name = "not-synced"
    both.ask("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [name]})
    row: Message = {"GroupId": name, "ProtocolType": "consumer", "MemberId": ""}
    row |= {"SessionTimeoutMs": 60_000, "RebalanceTimeoutMs": 2_000}
    stories = []
    for port in both.ports.values():

        def described(port: int = port) -> tuple[str, list[bytes]]:
            [group] = ask(port, "DescribeGroups", 5, {"Groups": [name]})["Groups"]
            return group["GroupState"], [member["MemberAssignment"] for member in group["Members"]]

        assignors = [{"Name": assignor, "Metadata": b""} for assignor in ("sticky", "range")]
        member = once_ready(port, "JoinGroup", 7, row | {"Protocols": assignors[1:]})["MemberId"]
        own = {"MemberId": member, "GenerationId": 1, "Assignments": [{"MemberId": member, "Assignment": b"all"}]}
        ask(port, "JoinGroup", 7, row | own | {"Protocols": assignors[1:]})
        protocols = (
            {"ProtocolType": None, "ProtocolName": "range"},
            {"ProtocolType": "consumer", "ProtocolName": None},
        )
        right = {"ProtocolType": "consumer", "ProtocolName": "range"}
        synced = [
            ask(port, "SyncGroup", 5, {"GroupId": name} | own | each)["ErrorCode"] for each in (*protocols, right)
        ]
        ask(port, "JoinGroup", 7, row | own | {"Protocols": assignors})
        story = [synced, described()]
        deadline = time.monotonic() + 10
        while described()[0] != "Empty":
            assert time.monotonic() < deadline, "a member that does not sync is removed"
            time.sleep(0.1)
        stories.append(story)
    assert stories == [[[23, 23, 0], ("CompletingRebalance", [b"all"])]] * 2


@pytest.mark.parametrize("version", [8, 9])
def test_offsets_of_groups_that_do_not_exist_are_committed_or_refused_as_by_kafka(both: Both, version: int) -> None:
    topic = both.topic()
    for number, (generation, member) in enumerate([(-1, ""), (-1, "m"), (0, ""), (0, "m"), (1, "m")]):
        group = f"unknown-{version}-{number}"
        both.ask("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [group]})
        row = {"GroupId": group, "MemberId": member, "GenerationIdOrMemberEpoch": generation}
        for size in (4096, 4097):
            part = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": "m" * size}
            row["Topics"] = [{"Name": topic, "Partitions": [part]}]
            kafka, served = (once_ready(port, "OffsetCommit", version, row) for port in both.ports.values())
            assert served == kafka, (generation, member, size)


def producer_at(port: int, name: str, **more: Any) -> Message:
    row = {"TransactionalId": name, "TransactionTimeoutMs": 60_000, **more}
    return once_ready(port, "InitProducerId", 4, row)


@pytest.mark.parametrize("first", [[], [1]], ids=["none is committed", "one is committed"])
@pytest.mark.parametrize("what", ["group", "offset", "topic"])
def test_a_pending_offset_is_deleted_as_by_kafka(both: Both, what: str, first: list[int]) -> None:
    topic, name = both.topic(), f"deletes-{what}-{len(first)}"
    for kind in (0, 1):
        both.ask("FindCoordinator", 4, {"KeyType": kind, "CoordinatorKeys": [name]})
    part = [{"Name": topic, "Partitions": [{"PartitionIndex": 0}]}]
    deleted: dict[str, tuple[str, int, Message]] = {
        "group": ("DeleteGroups", 2, {"GroupsNames": [name]}),
        "offset": ("OffsetDelete", 0, {"GroupId": name, "Topics": part}),
        "topic": ("DeleteTopics", 5, {"TopicNames": [topic], "TimeoutMs": 10_000}),
    }
    asked = [{"GroupId": name, "Topics": [{"Name": topic, "PartitionIndexes": [0]}]}]

    def found(port: int) -> tuple[int, int]:
        row = once_ready(port, "OffsetFetch", 8, {"Groups": asked, "RequireStable": True})["Groups"][0]
        [each] = row["Topics"][0]["Partitions"]
        return each["ErrorCode"], each["CommittedOffset"]

    def story(port: int) -> list[object]:
        producer = producer_at(port, name)
        who = {"TransactionalId": name, **{key: producer[key] for key in ("ProducerId", "ProducerEpoch")}}
        own = who | {"GroupId": name, "MemberId": "", "GenerationId": -1, "GenerationIdOrMemberEpoch": -1}
        for offset in first:
            own["Topics"] = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": offset}]}]
            assert set(errors_in(once_ready(port, "OffsetCommit", 8, own))) == {0}
        assert set(errors_in(once_ready(port, "AddOffsetsToTxn", 3, own))) == {0}
        own["Topics"] = [{"Name": topic, "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 5}]}]
        assert set(errors_in(once_ready(port, "TxnOffsetCommit", 3, own))) == {0}
        told: list[object] = [found(port)]
        told.append(errors_in(ask(port, *deleted[what])))
        time.sleep(1)  # the coordinator hears of a deleted topic from the controller
        told.append(found(port))
        assert once_ready(port, "EndTxn", 3, who | {"Committed": True})["ErrorCode"] == 0
        time.sleep(0.5)
        return [*told, found(port)]

    kafka, served = (story(port) for port in both.ports.values())
    assert served == kafka


def test_fenced_producers_are_told_what_kafka_tells_them(both: Both) -> None:
    topic, name, told = both.topic(), "fenced", []
    both.ask("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [name]})
    for port in both.ports.values():
        old, *_, new = [producer_at(port, name) for _ in range(3)]
        assert (old["ProducerEpoch"], new["ProducerEpoch"]) == (0, 2)
        who = {"TransactionalId": name, "ProducerId": old["ProducerId"], "ProducerEpoch": 0}
        row = who | {f"V3AndBelow{key}": value for key, value in who.items()}
        row |= {"V3AndBelowTopics": [{"Name": topic, "Partitions": [0]}], "GroupId": "g", "Committed": True}
        errors = {}
        for api, versions in {
            "InitProducerId": (3, 4),
            "AddPartitionsToTxn": (1, 2),
            "AddOffsetsToTxn": (1, 2),
            "EndTxn": (1, 2),
        }.items():
            for version in versions:
                answer = once_ready(port, api, version, row | {"TransactionTimeoutMs": 60_000})
                errors[api, version] = errors_in(answer)
        told.append(errors)
    assert told[1] == told[0]


def test_data_without_the_transactional_bit_are_refused_only_in_an_open_transaction_as_by_kafka(both: Both) -> None:
    """The audit's rule ``data without transaction`` finds those that are accepted."""
    topic, other, name = both.topic(), both.topic(), "plain"
    both.ask("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [name]})

    def story(port: int) -> list[ErrorCode]:
        producer = producer_at(port, name)
        who = {"TransactionalId": name, **{key: producer[key] for key in ("ProducerId", "ProducerEpoch")}}
        row: Message = {f"V3AndBelow{key}": value for key, value in who.items()}
        row |= {"V3AndBelowTopics": [{"Name": topic, "Partitions": [0]}]}
        assert set(errors_in(once_ready(port, "AddPartitionsToTxn", 3, row))) == {0}

        def produce(place: str, sequence: int, **bits: bool) -> ErrorCode:
            own = {"producer_id": who["ProducerId"], "producer_epoch": who["ProducerEpoch"], "base_sequence": sequence}
            part = [{"Name": place, "PartitionData": [{"Index": 0, "Records": batch(1, **own, **bits).encode()}]}]
            row = {"TransactionalId": name, "Acks": -1, "TimeoutMs": 5000, "TopicData": part}
            return ErrorCode(produced(ask(port, "Produce", 9, row), 9)[0][0])

        told = [produce(topic, 0, is_transactional=True), produce(other, 0), produce(topic, 1)]
        assert ask(port, "EndTxn", 3, who | {"Committed": False})["ErrorCode"] == 0
        time.sleep(1)
        return [*told, produce(topic, 1)]

    kafka, served = (story(port) for port in both.ports.values())
    assert served == kafka == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE]


def test_transactions_are_described_and_listed_as_by_kafka(both: Both) -> None:
    topic, name = both.topic(), "described"
    both.ask("FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [name]})

    def state(port: int) -> tuple[object, ...]:
        time.sleep(0.3)
        [found] = ask(port, "DescribeTransactions", 0, {"TransactionalIds": [name]})["TransactionStates"]
        filters = {"StateFilters": [], "ProducerIdFilters": []}
        listed = [
            [row["TransactionalId"] for row in rows if row["TransactionalId"] == name]
            for longer in (-1, 0, 1_000_000)
            for rows in [ask(port, "ListTransactions", 1, filters | {"DurationFilter": longer})["TransactionStates"]]
        ]
        columns = ("TransactionState", "TransactionTimeoutMs", "ProducerEpoch", "Topics")
        return *(found[column] for column in columns), found["TransactionStartTimeMs"] > 0, *listed

    def story(port: int) -> list[tuple[object, ...]]:
        producer = producer_at(port, name)
        states = [state(port)]
        who = {"TransactionalId": name, **{key: producer[key] for key in ("ProducerId", "ProducerEpoch")}}
        row: Message = {f"V3AndBelow{key}": value for key, value in who.items()}
        row |= {"V3AndBelowTopics": [{"Name": topic, "Partitions": [0]}]}
        assert set(errors_in(once_ready(port, "AddPartitionsToTxn", 3, row))) == {0}
        states.append(state(port))
        assert ask(port, "EndTxn", 3, who | {"Committed": True})["ErrorCode"] == 0
        time.sleep(1)
        states.append(state(port))
        producer = producer_at(port, name)
        row["V3AndBelowProducerEpoch"] = producer["ProducerEpoch"]
        assert set(errors_in(once_ready(port, "AddPartitionsToTxn", 3, row))) == {0}
        producer_at(port, name, TransactionTimeoutMs=5_000)  # fences the open transaction
        time.sleep(1)
        states.append(state(port))
        producer_at(port, name, TransactionTimeoutMs=5_000)
        return [*states, state(port)]

    kafka, served = (story(port) for port in both.ports.values())
    assert served == kafka


# --- consumer groups -------------------------------------------------------------------------------------------------


@dataclass
class GroupAt:
    """A consumer group of a topic at one of the two, as raw requests of its members and of a transactional producer."""

    port: int
    name: str
    topic: str
    producer: Message = field(default_factory=dict)

    def __post_init__(self) -> None:
        [row] = ask(self.port, "Metadata", 12, {"Topics": [{"Name": self.topic}]})["Topics"]
        self.topic_id = row["TopicId"]
        name, deadline = self.name, time.monotonic() + 20
        for kind in (0, 1):
            ask(self.port, "FindCoordinator", 4, {"KeyType": kind, "CoordinatorKeys": [name]})
        self.producer = producer_at(self.port, name)
        for number in count():  # until the coordinator knows the topic, which no other request tells
            self.name = f"{name}-{number}"
            if self.beat("first", 0)[1]:
                break
            assert time.monotonic() < deadline, f"{self.topic} is not assigned"
            time.sleep(0.05)
        self.name = name

    def beat(self, member: str, epoch: int, owned: set[int] | None = None, **more: Any) -> tuple[int, set[int] | None]:
        """Send a heartbeat: the member's epoch, or the negative error, and its partitions if the answer names them."""
        row: Message = {"GroupId": self.name, "MemberId": member, "MemberEpoch": epoch}
        if epoch == 0:
            row |= {"SubscribedTopicNames": [self.topic], "RebalanceTimeoutMs": 60_000, "TopicPartitions": []}
        row |= more
        if owned is not None:
            row["TopicPartitions"] = [{"TopicId": self.topic_id, "Partitions": sorted(owned)}] if owned else []
        answer = once_ready(self.port, "ConsumerGroupHeartbeat", 1, row)
        if answer["ErrorCode"]:
            return -answer["ErrorCode"], None
        if answer["Assignment"] is None:
            return answer["MemberEpoch"], None
        given = {number for row in answer["Assignment"]["TopicPartitions"] for number in row["Partitions"]}
        return answer["MemberEpoch"], given

    def plain(self, member: str, epoch: int, partitions: set[int], version: int = 9) -> list[int]:
        """Commit offsets: the error of each partition."""
        row = {"GroupId": self.name, "MemberId": member, "GenerationIdOrMemberEpoch": epoch}
        return self._commit("OffsetCommit", version, row, partitions)

    def in_transaction(self, member: str, epoch: int, partitions: set[int]) -> list[int]:
        """Send offsets into the producer's transaction: the error of each partition."""
        who = {"TransactionalId": self.name, **{key: self.producer[key] for key in ("ProducerId", "ProducerEpoch")}}
        row = {"GroupId": self.name, "MemberId": member, "GenerationId": epoch}
        return self._commit("TxnOffsetCommit", 5, who | row, partitions)

    def _commit(self, api: str, version: int, row: Message, partitions: set[int]) -> list[int]:
        parts = [{"PartitionIndex": n, "CommittedOffset": 1, "CommittedMetadata": ""} for n in sorted(partitions)]
        answer = once_ready(self.port, api, version, row | {"Topics": [{"Name": self.topic, "Partitions": parts}]})
        return [part["ErrorCode"] for part in answer["Topics"][0]["Partitions"]]

    def committed(self, member: str, epoch: int) -> int:
        """The error of a member that fetches the group's offsets."""
        asked = {"GroupId": self.name, "MemberId": member, "MemberEpoch": epoch, "Topics": None}
        [found] = once_ready(self.port, "OffsetFetch", 9, {"Groups": [asked]})["Groups"]
        return int(found["ErrorCode"])


E, ALL = ErrorCode, {0, 1, 2, 3}


def told_by_epochs(group: GroupAt, commit: Callable[[str, int, set[int]], list[int]]) -> dict[str, list[set[int]]]:
    """The errors of a member's commits, whose partitions are kept, given up and given back; a set for each commit."""
    told: dict[str, list[set[int]]] = {}

    def tell(what: str, member: str, partitions: set[int], *epochs: int) -> None:
        assert partitions
        told[what] = [set(commit(member, epoch, partitions)) for epoch in epochs]

    assert group.beat("a", 0) == (2, ALL)
    tell("had since 2, by 1 to 3", "a", ALL, 1, 2, 3)
    tell("of nobody", "z", ALL, 2)
    tell("without a member", "", ALL, -1)
    assert group.beat("b", 0) == (3, set())
    epoch, kept = group.beat("a", 2, ALL)
    assert epoch == 2
    assert kept is not None
    gone = ALL - kept
    tell("to be given up, by 1 and 2", "a", gone, 1, 2)
    assert group.beat("a", 2, kept)[0] == 3
    assert group.beat("b", 3)[1] == gone
    tell("kept since 2, by 1 to 4", "a", kept, 1, 2, 3, 4)
    tell("given up, by 2 and 3", "a", gone, 2, 3)
    tell("one of them given up, by 2", "a", ALL, 2)
    tell("given in 3, by 2 and 3", "b", gone, 2, 3)
    group.beat("b", -1)
    assert group.beat("a", 3, kept) == (4, ALL)
    tell("kept since 2, in 4, by 1 to 3", "a", kept, 1, 2, 3)
    tell("given back in 4, by 2 to 4", "a", gone, 2, 3, 4)
    for member in "cde":
        group.beat(member, 0)
    epoch, left = group.beat("a", 4, ALL)
    assert epoch == 4
    assert left is not None
    assert len(left) == 1
    tell("to be given up, since 2, by 1 to 4", "a", kept - left, 1, 2, 3, 4)
    tell("to be given up, since 4, by 3 and 4", "a", gone - left, 3, 4)
    group.beat("a", -1)
    tell("of one that has left", "a", kept, 4)
    return told


def by_kafka_4_3(stale: ErrorCode, anonymous: ErrorCode) -> dict[str, list[set[int]]]:
    """The errors of Kafka 4.3."""
    yes, no, unknown = {int(E.NONE)}, {int(stale)}, {int(E.UNKNOWN_MEMBER_ID)}
    return {
        "had since 2, by 1 to 3": [no, yes, no],
        "of nobody": [unknown],
        "without a member": [{int(anonymous)}],
        "to be given up, by 1 and 2": [no, yes],
        "kept since 2, by 1 to 4": [no, yes, yes, no],
        "given up, by 2 and 3": [no, yes],  # the latest epoch is taken for any partition
        "one of them given up, by 2": [no],
        "given in 3, by 2 and 3": [no, yes],
        "kept since 2, in 4, by 1 to 3": [no, yes, yes],
        "given back in 4, by 2 to 4": [no, no, yes],
        "to be given up, since 2, by 1 to 4": [no, yes, yes, yes],
        "to be given up, since 4, by 3 and 4": [no, yes],
        "of one that has left": [unknown],
    }


@pytest.mark.parametrize(
    ("commit", "stale", "anonymous"),
    [
        ("plain", E.STALE_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID),
        ("in_transaction", E.ILLEGAL_GENERATION, E.NONE),
    ],
)
def test_offsets_of_an_older_member_epoch_are_taken_or_refused_as_by_kafka(
    both: Both, commit: str, stale: ErrorCode, anonymous: ErrorCode
) -> None:
    topic = both.topic(partitions=4)
    groups = [GroupAt(port, f"epochs-{commit}", topic) for port in both.ports.values()]
    kafka, served = (told_by_epochs(group, getattr(group, commit)) for group in groups)
    assert kafka == by_kafka_4_3(stale, anonymous)
    assert served == kafka


def test_member_epochs_have_kafkas_errors_by_api_version_and_state_of_the_member(both: Both) -> None:
    topic = both.topic(partitions=4)

    def story(group: GroupAt) -> list[Any]:
        group.beat("a", 0, InstanceId="i")
        told: list[Any] = [group.plain("a", 2, {0}, version) for version in (8, 9)]
        group.beat("b", 0)
        _, kept = group.beat("a", 2, ALL, InstanceId="i")
        told += [group.beat("a", 2, kept, InstanceId="i")[0], group.beat("a", 4, kept, InstanceId="i")[0]]
        told += [group.committed("a", epoch) for epoch in (2, 3, 4)]
        told.append(group.beat("a", -2, InstanceId="i")[0])
        return [*told, *(group.plain("a", epoch, kept or set()) for epoch in (-2, 2, 3, 4))]

    kafka, served = (story(GroupAt(port, "epochs-told", topic)) for port in both.ports.values())
    assert kafka[:2] == [[E.UNSUPPORTED_VERSION], [E.NONE]]
    assert kafka[2:4] == [3, -E.FENCED_MEMBER_EPOCH]
    assert kafka[4:7] == [E.STALE_MEMBER_EPOCH, E.NONE, E.STALE_MEMBER_EPOCH]
    assert [set(errors) for errors in kafka[8:]] == [{E.NONE}, *[{E.STALE_MEMBER_EPOCH}] * 3]
    assert served == kafka


@pytest.mark.parametrize(
    ("member", "expected"),
    [("", [0, E.ILLEGAL_GENERATION, E.NONE, 3]), ("a", [2, E.REBALANCE_IN_PROGRESS, E.NONE, 3])],
    ids=["without its id", "with its id"],
)
def test_an_instance_that_turns_a_group_back_with_another_subscription_rejoins_as_in_kafka(
    both: Both, member: str, expected: list[int]
) -> None:
    topic = both.topic(partitions=4)
    subscription = {"Topics": [topic, "another"], "UserData": None, "OwnedPartitions": []}
    metadata = b"\0\1" + served_codec().write("ConsumerProtocolSubscription", 1, subscription)
    found = []
    for port in both.ports.values():
        group = GroupAt(port, f"turned-back-{member}", topic)
        group.beat("a", 0, InstanceId="i")
        who: Message = {"GroupId": group.name, "GroupInstanceId": "i"}
        row = who | {"SessionTimeoutMs": 60_000, "RebalanceTimeoutMs": 60_000, "ProtocolType": "consumer"}
        row["Protocols"] = [{"Name": "range", "Metadata": metadata}]
        joined = once_ready(port, "JoinGroup", 7, row | {"MemberId": member})
        who |= {"MemberId": joined["MemberId"], "GenerationId": joined["GenerationId"], "Assignments": []}
        synced = ask(port, "SyncGroup", 3, who)
        again = ask(port, "JoinGroup", 7, row | {"MemberId": joined["MemberId"]})
        found.append([joined["GenerationId"], synced["ErrorCode"], again["ErrorCode"], again["GenerationId"]])
    assert found == [expected] * 2


@pytest.mark.parametrize("member", ["", "a"], ids=["without its id", "with its id"])
def test_an_instance_that_was_away_is_back_by_the_classic_protocol_as_in_kafka(both: Both, member: str) -> None:
    topic, found = both.topic(partitions=4), []
    metadata = b"\0\1" + served_codec().write("ConsumerProtocolSubscription", 1, {"Topics": [topic]})
    for port in both.ports.values():
        group = GroupAt(port, f"away-{member}", topic)
        group.beat("a", 0, InstanceId="i")
        group.beat("b", 0)
        group.beat("a", -2, InstanceId="i")
        row = {"GroupId": group.name, "GroupInstanceId": "i", "MemberId": member, "ProtocolType": "consumer"}
        row |= {"SessionTimeoutMs": 60_000, "RebalanceTimeoutMs": 60_000}
        joined = once_ready(port, "JoinGroup", 7, row | {"Protocols": [{"Name": "range", "Metadata": metadata}]})
        [told] = ask(port, "ConsumerGroupDescribe", 1, {"GroupIds": [group.name]})["Groups"]
        epochs = {each["InstanceId"]: each["MemberEpoch"] for each in told["Members"]}
        found.append((joined["ErrorCode"], joined["GenerationId"], epochs))
    assert found == [(E.NONE, 3, {"i": 3, None: 3})] * 2


Stored = dict[tuple[str, str], Message | None]
"""Values, None for a tombstone, by the kinds of records and by their keys."""


def stored_records(port: int, name: str) -> list[Stored]:
    """The batches of a group in ``__consumer_offsets`` without its offsets: in each the last value of every key."""
    [topic] = ask(port, "Metadata", 12, {"Topics": [{"Name": "__consumer_offsets"}]})["Topics"]
    number = coordinator_partition(name, len(topic["Partitions"]))
    part = {"Partition": number, "FetchOffset": 0, "PartitionMaxBytes": 1 << 24}
    row: Message = {"MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 1 << 24}
    row["Topics"] = [{"Topic": "__consumer_offsets", "Partitions": [part]}]
    found = []
    for each in batches(ask(port, "Fetch", 12, row)["Responses"][0]["Partitions"][0]):
        values: Stored = {}
        for record in () if each.is_control else each.records():
            kind, (group, key) = kind_of(record.key or b""), read_key(record.key or b"")
            if group == name and kind != OFFSET:
                value = None if record.value is None else read_value(kind, record.value)
                values[RECORDS[kind], str(key)] = without_ids(value)
        if values:
            found.append(values)
    return found


def present(stored: list[Stored]) -> Stored:
    """The records that are left when a log is compacted."""
    last = {key: value for values in stored for key, value in values.items()}
    return {key: value for key, value in last.items() if value is not None}


def without_ids(told: Any) -> Any:
    """A value without what the served reference leaves out, or differs in every cluster."""
    if isinstance(told, dict):
        left_out = {"TopicId", "MetadataHash", "AssignmentTimestamp", "Version", "Timestamp", "currentStateTimestamp"}
        return {key: without_ids(value) for key, value in told.items() if key not in left_out}
    return [without_ids(each) for each in told] if isinstance(told, list) else told


def dynamic_and_static_members(group: GroupAt) -> None:
    group.beat("a", 0, RackId="r")
    group.beat("a", 2, ALL)
    group.beat("b", 0, ServerAssignor="range", InstanceId="i")
    group.beat("b", 3)
    _, kept = group.beat("a", 2, ALL)
    group.beat("b", 3)
    group.beat("a", 2, kept)
    group.beat("b", 3)
    group.beat("b", 3)
    group.beat("b", -2, InstanceId="i")
    group.beat("c", 0, InstanceId="i")
    group.beat("a", -1)
    group.beat("c", 3, InstanceId="i")
    group.beat("c", -2, InstanceId="i")
    group.beat("d", 0)
    group.beat("e", 0, InstanceId="i")  # the group's epoch has risen meanwhile


def a_member_with_a_pattern(group: GroupAt) -> None:
    pattern: Message = {"SubscribedTopicRegex": f"{group.topic}|nothing", "SubscribedTopicNames": []}
    epoch, given = group.beat("a", 0, **pattern)
    deadline = time.monotonic() + 20
    while not given:  # patterns are looked for after the answer
        assert time.monotonic() < deadline
        time.sleep(0.05)
        epoch, given = group.beat("a", epoch, set())
    group.beat("a", epoch, given, SubscribedTopicRegex="", SubscribedTopicNames=[group.topic])


def a_group_that_is_deleted(group: GroupAt) -> None:
    group.beat("a", 0)
    group.plain("a", 2, {0})
    group.beat("a", -1)
    [deleted] = once_ready(group.port, "DeleteGroups", 2, {"GroupsNames": [group.name]})["Results"]
    assert deleted["ErrorCode"] == 0


def a_topic_that_is_deleted(group: GroupAt) -> None:
    group.beat("a", 0)
    group.beat("b", 0)
    _, kept = group.beat("a", 2, ALL)
    group.beat("a", 2, kept)
    group.beat("b", 3)
    ask(group.port, "DeleteTopics", 5, {"TopicNames": [group.topic], "TimeoutMs": 10_000})
    deadline = time.monotonic() + 20
    while group.beat("a", 3)[1] is None:  # until the coordinator knows
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert group.beat("a", 3, kept)[0] == 3


def a_group_that_becomes_classic(group: GroupAt) -> None:
    group.beat("a", 0)
    group.beat("a", -1)
    protocols: list[Message] = [{"Name": "range", "Metadata": b""}]
    row = {"GroupId": group.name, "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 60_000, "ProtocolType": "consumer"}
    asked = ({"MemberId": "", "Protocols": protocols}, {"MemberId": "z", "Protocols": protocols}, {"MemberId": ""})
    told = [ask(group.port, "JoinGroup", 7, row | each)["ErrorCode"] for each in asked]
    assert told == [E.MEMBER_ID_REQUIRED, E.UNKNOWN_MEMBER_ID, E.INCONSISTENT_GROUP_PROTOCOL]
    deadline = time.monotonic() + 20
    while ("GroupMetadata", "{}") not in present(stored_records(group.port, group.name)):  # written after the answer
        assert time.monotonic() < deadline
        time.sleep(0.05)


STORIES = [
    dynamic_and_static_members,
    a_member_with_a_pattern,
    a_group_that_is_deleted,
    a_topic_that_is_deleted,
    a_group_that_becomes_classic,
]


@pytest.mark.parametrize("story", STORIES)
def test_members_are_stored_as_by_kafka(both: Both, story: Callable[[GroupAt], None]) -> None:
    topic = both.topic(partitions=4)
    groups = [GroupAt(port, story.__name__, topic) for port in both.ports.values()]
    for group in groups:
        story(group)
    kafka, served = (stored_records(group.port, group.name) for group in groups)
    assert len(kafka) > 2
    assert present(served) == present(kafka)
    if story is dynamic_and_static_members:
        assert served == kafka
