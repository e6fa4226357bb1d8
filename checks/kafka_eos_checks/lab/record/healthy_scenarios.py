"""The scenarios of healthy but unusual clusters: operators and brokers change logs, and no guarantee is broken.

The audit finds nothing in any of them. Each has a cluster of its own, for its settings; clients use no proxy.
librdkafka's clients run in this process, Java's (transaction version 2, if the broker has it) in their own.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.brokers.brokers import HOST, LATEST, LIST_OFFSETS_VERSION, ask
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, RELEASES
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.lab.record.stage import CLUSTERS, ClusterKind, Play, Stage, scenario

EVERY = tuple(RELEASES)
KRAFT = tuple(release for release in RELEASES if not release.startswith("2."))
TIERED = tuple(release for release in KRAFT if release != NEWEST)  # with a tiered storage in files among their jars
CALL_SECONDS = 30.0
SMALL_SEGMENTS: dict[str, Any] = {"segment_ms": "250"}  # from 4.0 on a segment has at least a megabyte
QUICK_CLEANER = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "100",
    "log.initial.task.delay.ms": "500",
}


def healthy(
    name: str, settings: Mapping[str, str] | None = None, *, size: int = 1, kafka: Sequence[str] = EVERY, dirs: int = 1
) -> Callable[[Play], Play]:
    """Register a scenario with a cluster of its own."""
    cluster = f"healthy-{name}"
    CLUSTERS[cluster] = ClusterKind(size, settings or {}, dirs)
    return scenario(f"{cluster}/{name}", kafka=kafka)


@dataclass(slots=True)
class Writer:
    """A librdkafka producer in this process.

    Attributes:
        stage: the stage whose brokers it writes to.
        transactional_id: the transactional.id, None for an idempotent producer.
        settings: further settings of librdkafka.
    """

    stage: Stage
    transactional_id: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    _producer: Any = field(init=False)
    _sent: int = 0

    def __post_init__(self) -> None:
        identity = {"transactional.id": self.transactional_id} if self.transactional_id else {}
        settings = {"bootstrap.servers": bootstrap(self.stage), "enable.idempotence": True, "linger.ms": 2}
        self._producer = need("confluent_kafka", "record").Producer(settings | identity | self.settings)
        if self.transactional_id:
            self._producer.init_transactions(CALL_SECONDS)

    def send(self, topic: str, values: int, partition: int = 0, keys: int = 3) -> None:
        """Send values and wait for their acknowledgements; keys repeat, so that the cleaner has work."""
        for number in range(values):
            self._sent += 1
            key = f"k{number % keys}"
            self._producer.produce(topic, f"{self.transactional_id or 'plain'}-{self._sent}", key, partition)
        left = self._producer.flush(CALL_SECONDS)
        if left:
            raise TimeoutError(f"{left} records to {topic} are not acknowledged after {CALL_SECONDS:.0f} s")

    def begin(self) -> None:
        """Begin a transaction."""
        self._producer.begin_transaction()

    def commit(self) -> None:
        """Commit the transaction."""
        self._producer.commit_transaction(CALL_SECONDS)

    def abort(self) -> None:
        """Abort the transaction."""
        self._producer.abort_transaction(CALL_SECONDS)

    def transaction(self, topics: Sequence[str], values: int = 2, *, abort: bool = False) -> None:
        """Run one transaction with some values in partition 0 of each topic."""
        self.begin()
        for topic in topics:
            self.send(topic, values)
        (self.abort if abort else self.commit)()

    def send_offsets(self, group: str, topic: str, offset: int) -> None:
        """Send an offset of a group without members to the transaction."""
        kafka = need("confluent_kafka", "record")
        consumer = kafka.Consumer({"bootstrap.servers": bootstrap(self.stage), "group.id": group})
        where = [kafka.TopicPartition(topic, 0, offset)]
        self._producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), CALL_SECONDS)
        consumer.close()


def bootstrap(stage: Stage) -> str:
    """The brokers' own addresses."""
    return ",".join(f"{HOST}:{broker.port}" for broker in stage.cluster.running())


def java(stage: Stage, topic: str, client: str = "java", **work: Any) -> None:
    """Let a Java client commit and abort a few transactions."""
    identity = {"transactional_id": f"{stage.name}-{client}", "prefix": f"{client}-", "abort_chance": 0.3}
    sizes = {"records": 24, "transaction_size": 3, "bootstrap": bootstrap(stage)}
    with stage.start_java(client, topic, **(identity | sizes | work)) as process:
        process.wait()


def set_configs(stage: Stage, topic: str, **configs: str) -> None:
    """Set configurations of a topic."""
    rows = [{"Name": key.replace("_", "."), "ConfigOperation": 0, "Value": value} for key, value in configs.items()]
    resource = {"ResourceType": 2, "ResourceName": topic, "Configs": rows}
    demand(stage, "IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False}, "Responses")


def demand(stage: Stage, api: str, version: int, row: dict[str, Any], answers: str, port: int | None = None) -> None:
    """Send a request to a broker, and raise if it refuses."""
    answer = ask(port or stage.cluster.any_port(), api, version, row, CALL_SECONDS)
    for each in answer[answers]:
        if each["ErrorCode"]:
            raise RuntimeError(f"{api}: {each}")


def end_of(stage: Stage, topic: str, timestamp: int = LATEST) -> int:
    """The last, or the first (-2), offset of a topic's partition 0."""
    partition = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": timestamp}
    row = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": [{"Name": topic, "Partitions": [partition]}]}
    answer = ask(stage.leader(topic).port, "ListOffsets", LIST_OFFSETS_VERSION, row, CALL_SECONDS)
    return int(answer["Topics"][0]["Partitions"][0]["Offset"])


def wait_until(what: str, reached: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition that a broker reaches by itself.

    Raises:
        TimeoutError: if the broker does not reach it.
    """
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {seconds:.0f} s")
        time.sleep(0.2)


def log_bytes(stage: Stage, topic: str, node: int = 1) -> int:
    """The bytes of segments that a broker has of a topic's partition 0."""
    return sum(path.stat().st_size for path in (stage.cluster[node].data / f"{topic}-0").glob("*.log"))


@contextmanager
def one_broker_less(stage: Stage, node: int) -> Iterator[None]:
    """Shut a broker down cleanly for the length of the block."""
    stage.cluster[node].stop()
    yield
    stage.restart(stage.cluster[node])


# --- cleaners and retention ---------------------------------------------------------------------------------------


COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact",
    "delete_retention_ms": "1",
    "min_cleanable_dirty_ratio": "0.01",
}


def _compaction(stage: Stage) -> None:
    replicas = [[1, 2, 3][: len(stage.cluster.brokers)]]
    topic = stage.topic(replicas=replicas, **COMPACTED, **SMALL_SEGMENTS)
    kept = stage.topic(suffix="-kept", replicas=replicas)
    plain = Writer(stage)
    writers = [Writer(stage, f"{stage.name}-{name}") for name in "abc"]
    before = 0
    for number in range(12):
        plain.send(topic, 3)
        for writer in writers[: 3 if number < 4 else 2]:  # one of them is idle from then on
            writer.transaction([topic, kept], abort=number % 3 == 1)
        before = max(before, log_bytes(stage, topic))
        if number == 6 and len(stage.cluster.brokers) > 1:  # replicas are cleaned at different times
            stage.crash(stage.cluster[3])
    java(stage, topic)
    wait_until(f"{topic} is compacted", lambda: log_bytes(stage, topic) < before)
    if len(stage.cluster.brokers) > 1:
        stage.restart(stage.cluster[3])
        stage.cluster.wait_in_sync(topic, 3)
    time.sleep(1.5)  # tombstones and markers get their horizon, and a second pass removes them
    plain.send(topic, 9)
    writers[0].transaction([topic, kept])
    time.sleep(1.5)


@healthy("compaction", QUICK_CLEANER)
def compaction(stage: Stage) -> None:
    """A compacted topic loses records, whole transactions and markers; another topic keeps them all."""
    _compaction(stage)


@healthy("compacted-replicas", QUICK_CLEANER, size=3)
def compacted_replicas(stage: Stage) -> None:
    """Three replicas of a compacted topic are cleaned at different times."""
    _compaction(stage)


@healthy("compacted-coordinators", QUICK_CLEANER)
def compacted_coordinators(stage: Stage) -> None:
    """The logs of coordinators are compacted while transactions with offsets go on."""
    topic = stage.topic()
    writers = [Writer(stage, f"{stage.name}-{name}") for name in "abcd"]
    for number in range(20):
        for writer in writers:
            writer.begin()
            writer.send(topic, 2)
            writer.send_offsets(f"{stage.name}-group", topic, number)
            (writer.abort if number % 5 == 4 else writer.commit)()
        for name in ("__transaction_state", "__consumer_offsets") if number == 0 else ():
            set_configs(stage, name, segment_ms="250", min_cleanable_dirty_ratio="0.01")
    java(stage, topic)
    time.sleep(2.0)
    for writer in writers[:2]:
        writer.transaction([topic])


@healthy("retention", QUICK_CLEANER)
def retention(stage: Stage) -> None:
    """Retention deletes segments in the middle of transactions, one of which is open at the time."""
    topic = stage.topic(retention_bytes="4000", file_delete_delay_ms="100", **SMALL_SEGMENTS)
    other = stage.topic(suffix="-other")
    long, short = Writer(stage, f"{stage.name}-long"), Writer(stage, f"{stage.name}-short")
    plain = Writer(stage)
    long.begin()
    long.send(topic, 3)
    long.send(other, 1)
    for number in range(25):
        plain.send(topic, 4)
        short.transaction([topic, other], abort=number % 4 == 1)
        time.sleep(0.1)
    wait_until(f"{topic} begins later", lambda: end_of(stage, topic, -2) > 3)
    long.commit()
    java(stage, topic)
    short.transaction([topic, other])


@healthy("deleted-records")
def deleted_records(stage: Stage) -> None:
    """DeleteRecords deletes the beginning of a log, up to the middle of a transaction that is then committed."""
    topic, other = stage.topic(**SMALL_SEGMENTS), stage.topic(suffix="-other")
    writer, plain = Writer(stage, f"{stage.name}-t"), Writer(stage)
    for number in range(6):
        plain.send(topic, 4)
        writer.transaction([topic, other], abort=number % 3 == 1)
    writer.begin()
    writer.send(topic, 3)
    writer.send(other, 1)
    plain.send(topic, 2)
    partition = {"PartitionIndex": 0, "Offset": end_of(stage, topic) - 1}
    row = {"Topics": [{"Name": topic, "Partitions": [partition]}], "TimeoutMs": 20_000}
    ask(stage.leader(topic).port, "DeleteRecords", 1, row, CALL_SECONDS)
    writer.send(topic, 2)
    writer.commit()
    plain.send(topic, 3)
    java(stage, topic)


@healthy(
    "tiered",
    QUICK_CLEANER
    | {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "rsm.config.dir": "{folder}/tiered",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "remote.log.manager.task.interval.ms": "300",
    },
    kafka=TIERED,
)
def tiered(stage: Stage) -> None:
    """Segments move to tiered storage and are deleted locally; the remaining log begins inside transactions."""
    kept_here: dict[str, Any] = {"local_retention_ms": "500", "file_delete_delay_ms": "100"}
    topic = stage.topic(remote_storage_enable="true", **kept_here, **SMALL_SEGMENTS)
    other = stage.topic(suffix="-other")
    plain, writer = Writer(stage), Writer(stage, f"{stage.name}-t")
    for number in range(12):
        plain.send(topic, 4)
        writer.transaction([topic, other], abort=number % 3 == 1)
        time.sleep(0.2)
    folder = stage.cluster[1].data / f"{topic}-0"
    wait_until(f"{topic} begins later here", lambda: not (folder / f"{'0' * 20}.log").exists())
    writer.transaction([topic, other])
    java(stage, topic, also=(other,))


# --- expiry on coordinators and leaders ---------------------------------------------------------------------------


@healthy(
    "expiry",
    {
        "transactional.id.expiration.ms": "3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
        "producer.id.expiration.ms": "1500",
        "producer.id.expiration.check.interval.ms": "300",
    },
)
def expiry(stage: Stage) -> None:
    """Producer ids and transactional ids expire, and their clients go on or come back."""
    topic = stage.topic()
    plain = Writer(stage)
    first = Writer(stage, f"{stage.name}-t")
    plain.send(topic, 3)
    for number in range(3):
        first.transaction([topic], abort=number == 1)
    java(stage, topic, "early")
    time.sleep(6.0)
    plain.send(topic, 3)
    again = Writer(stage, f"{stage.name}-t")
    again.transaction([topic])
    again.transaction([topic], abort=True)
    java(stage, topic, "early")


@healthy("timeouts", {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"})
def timeouts(stage: Stage) -> None:
    """Transactions time out and are aborted by the coordinator; their clients start again."""
    topic, other = stage.topic(), stage.topic(suffix="-other")
    for number in range(3):
        slow = Writer(stage, f"{stage.name}-t", {"transaction.timeout.ms": 1000})
        slow.transaction([topic, other], abort=number == 2)
        slow.begin()
        slow.send(topic, 2)
        slow.send(other, 2)
        time.sleep(2.5)
    Writer(stage, f"{stage.name}-t").transaction([topic, other])
    java(stage, topic)


def write_late(stage: Stage, topic: str, transactional_id: str) -> int:
    """Append one more batch of a transaction that has ended, as a delayed request does; return its offset.

    The producer's last batch in the topic has sequence 0. Brokers that verify transactions refuse the append.
    """
    asked = {"TransactionalIds": [transactional_id]}
    _, coordinator = stage.cluster.coordinator(transactional_id)
    port = stage.cluster[coordinator["LeaderId"]].port
    [state] = ask(port, "DescribeTransactions", 0, asked, CALL_SECONDS)["TransactionStates"]
    batch = build_batch(
        [Record(value=b"late")],
        producer_id=state["ProducerId"],
        producer_epoch=state["ProducerEpoch"],
        base_sequence=1,
        base_timestamp=time.time_ns() // 1_000_000,
        is_transactional=True,
    )
    partition = {"Index": 0, "Records": batch.encode()}
    data = [{"Name": topic, "PartitionData": [partition]}]
    row = {"TransactionalId": transactional_id, "Acks": -1, "TimeoutMs": 5_000, "TopicData": data}
    answer = ask(stage.leader(topic).port, "Produce", 9, row, CALL_SECONDS)
    written = answer["Responses"][0]["PartitionResponses"][0]
    if written["ErrorCode"]:
        raise RuntimeError(f"a late batch was refused: {written}")
    return int(written["BaseOffset"])


@healthy("aborted-by-hand", {"transaction.partition.verification.enable": "false"}, kafka=KRAFT)
def aborted_by_hand(stage: Stage) -> None:
    """A transaction hangs, an operator ends it with kafka-transactions abort, and its client goes on."""
    topic, other = stage.topic(), stage.topic(suffix="-other")
    writer = Writer(stage, f"{stage.name}-t")
    writer.transaction([topic, other], 1)
    late = write_late(stage, topic, f"{stage.name}-t")
    stage.cluster.abort_by_hand(topic, 0, late)
    Writer(stage).send(topic, 3)
    again = Writer(stage, f"{stage.name}-t")
    for number in range(3):
        again.transaction([topic, other], abort=number == 1)
    java(stage, topic, also=(other,))


@healthy("open-transactions", kafka=KRAFT)
def open_transactions(stage: Stage) -> None:
    """The broker is stopped while transactions are open: the coordinator will abort them after its restart."""
    topic, other = stage.topic(), stage.topic(suffix="-other")
    writers = [Writer(stage, f"{stage.name}-{name}") for name in "abc"]
    for writer in writers:
        writer.transaction([topic, other])
        writer.begin()
        writer.send(topic, 2)
    writers[0].send(other, 1)
    Writer(stage).send(topic, 3)


# --- versions, formats, codecs ------------------------------------------------------------------------------------


def set_transaction_version(stage: Stage, level: int) -> None:
    """Set the version of transactions, and wait until a broker tells it."""
    name = {"Feature": "transaction.version", "MaxVersionLevel": level}
    row = {"timeoutMs": 20_000, "FeatureUpdates": [name | {"UpgradeType": 1 if level == 2 else 2}]}
    answer = ask(stage.cluster.any_port(), "UpdateFeatures", 1, row, CALL_SECONDS)
    if answer["ErrorCode"]:
        raise RuntimeError(f"UpdateFeatures: {answer}")
    wait_until(f"transaction.version {level}", lambda: stage.cluster.features().get("transaction.version", 0) == level)


@healthy("transaction-versions", kafka=(KAFKA_VERSION, NEWEST))
def transaction_versions(stage: Stage) -> None:
    """transaction.version goes from 2 to 1 to 0 and back to 2, with running clients and new ones."""
    topic, other = stage.topic(), stage.topic(suffix="-other")
    stays = Writer(stage, f"{stage.name}-stays")
    for number, level in enumerate((2, 1, 0, 2)):
        if number:
            set_transaction_version(stage, level)
        stays.transaction([topic, other], abort=number % 2 == 1)
        stays.transaction([topic, other])
        java(stage, topic, "comes", also=(other,))
        java(stage, topic, f"new-{number}", also=(other,))


@healthy("old-formats", {"log.message.format.version": "0.9.0"}, kafka=("2.8.2",))
def old_formats(stage: Stage) -> None:
    """A topic has message format 0, then 1, then 2, each with and without compression, then transactions."""
    topic = stage.topic(**SMALL_SEGMENTS)
    for version in ("0.9.0", "0.10.2", "2.8"):
        set_configs(stage, topic, message_format_version=version)
        time.sleep(0.5)
        for codec in ("none", "gzip", "snappy", "lz4"):
            Writer(stage, None, {"enable.idempotence": False, "compression.codec": codec}).send(topic, 8)
    writer = Writer(stage, f"{stage.name}-t")
    for number in range(4):
        writer.transaction([topic], abort=number % 2 == 1)
    Writer(stage).send(topic, 6)


@healthy("compression")
def compression(stage: Stage) -> None:
    """Every compression codec, by clients and by topics that recompress."""
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for number, codec in enumerate(codecs):
        topic = stage.topic(suffix=f"-{codec}")
        compressed = stage.topic(suffix=f"-to-{codec}", compression_type="uncompressed" if codec == "none" else codec)
        writer = Writer(stage, f"{stage.name}-{codec}", {"compression.codec": codecs[number - 1]})
        for round_ in range(3):
            writer.transaction([topic, compressed], 20, abort=round_ == 1)
        Writer(stage, None, {"compression.codec": codec}).send(topic, 20)


@healthy("log-append-time")
def log_append_time(stage: Stage) -> None:
    """Topics use LogAppendTime, one of which changes to it while its clients run."""
    topic = stage.topic(message_timestamp_type="LogAppendTime")
    changed = stage.topic(suffix="-changed")
    writer, plain = Writer(stage, f"{stage.name}-t"), Writer(stage)
    for number in range(6):
        plain.send(changed, 3)
        writer.transaction([topic, changed], abort=number % 3 == 1)
        if number == 2:
            set_configs(stage, changed, message_timestamp_type="LogAppendTime")
    java(stage, topic, also=(changed,))


@healthy("wrong-clocks")
def wrong_clocks(stage: Stage) -> None:
    """Clients give their records timestamps of an hour ago, of the Unix epoch, and of half an hour from now."""
    topic, other = stage.topic(), stage.topic(suffix="-other")
    kafka = need("confluent_kafka", "record")
    now = time.time_ns() // 1_000_000
    for name, moment in (("late", now - 3_600_000), ("epoch", 1), ("early", now + 1_800_000)):
        identity = {"transactional.id": f"{stage.name}-{name}", "bootstrap.servers": bootstrap(stage)}
        producer = kafka.Producer(identity)
        producer.init_transactions(CALL_SECONDS)
        for number in range(3):
            producer.begin_transaction()
            for each in (topic, other):
                producer.produce(each, f"{name}-{number}", partition=0, timestamp=moment + number)
            producer.flush(CALL_SECONDS)
            (producer.abort_transaction if number == 1 else producer.commit_transaction)(CALL_SECONDS)


@healthy("empty-transactions")
def empty_transactions(stage: Stage) -> None:
    """Transactions without any record, with only offsets, and with records that are never sent."""
    topic = stage.topic()
    writer = Writer(stage, f"{stage.name}-t")
    for number in range(8):
        writer.begin()
        if number % 4 == 1:
            writer.send_offsets(f"{stage.name}-group", topic, number)
        if number % 4 == 2:
            writer.send(topic, 1)
        (writer.abort if number % 3 == 2 else writer.commit)()
    for _ in range(3):
        again = Writer(stage, f"{stage.name}-t")
        again.begin()
        again.abort()
    java(stage, topic, records=4, transaction_size=1, abort_chance=0.5)


@healthy("preallocated", {"log.preallocate": "true", "log.index.size.max.bytes": "65536"})
def preallocated(stage: Stage) -> None:
    """Segments are preallocated; the broker is killed and does not trim them."""
    topic = stage.topic(segment_bytes="1048576")
    writer = Writer(stage, f"{stage.name}-t")
    for number in range(6):
        writer.transaction([topic], abort=number % 3 == 1)
    stage.crash(stage.cluster[1])
    stage.restart(stage.cluster[1])
    writer.transaction([topic])
    stage.crash(stage.cluster[1])


# --- restarts, elections and topics created again -----------------------------------------------------------------


@healthy("unclean-restarts")
def unclean_restarts(stage: Stage) -> None:
    """The broker is killed four times, in transactions and between them."""
    topic, other = stage.topic(2), stage.topic(2, suffix="-other")
    work: dict[str, Any] = {"bootstrap": bootstrap(stage), "transaction_size": 4, "abort_chance": 0.3}
    identity = {"transactional_id": f"{stage.name}-t", "prefix": "t"}
    with (
        stage.start("plain", topic, records=400, prefix="p", bootstrap=work["bootstrap"], pause_ms=12) as plain,
        stage.start("writer", topic, records=200, also=(other,), pause_ms=12, **identity, **work) as writer,
    ):
        for acknowledged in (60, 120, 180, 240):
            stage.wait_acknowledged("plain", acknowledged)
            stage.crash(stage.cluster[1])
            stage.restart(stage.cluster[1])
        plain.wait(expected=(0, 3))
        writer.wait(expected=(0, 3))
    java(stage, topic, also=(other,))


@healthy("elections", size=3)
def elections(stage: Stage) -> None:
    """Leaders and coordinators move during transactions; one broker is killed, one stopped."""
    topic = stage.topic(replicas=[[1, 2, 3]])
    other = stage.topic(suffix="-other", replicas=[[2, 3, 1]])
    writer, plain = Writer(stage, f"{stage.name}-t"), Writer(stage)
    for number, node in enumerate((2, 3, 1, 2)):
        writer.begin()
        writer.send(topic, 2)
        stage.cluster.make_leader(topic, 0, node)
        stage.cluster.make_leader("__transaction_state", number % 2, 1 + (node % 3))
        plain.send(topic, 2)
        writer.send(other, 2)
        (writer.abort if number == 1 else writer.commit)()
    old = stage.leader(topic)
    stage.crash(old)
    stage.new_leader(topic, old)
    writer.transaction([topic, other])
    stage.restart(old)
    stage.cluster.wait_in_sync(topic, 3)
    with one_broker_less(stage, stage.leader(topic).node):
        writer.transaction([topic, other], abort=True)
        plain.send(topic, 2)
    stage.cluster.wait_in_sync(topic, 3)
    java(stage, topic, also=(other,))


@healthy("reassignment", size=3)
def reassignment(stage: Stage) -> None:
    """Partitions move to other brokers, which copy them while transactions go on."""
    topic = stage.topic(replicas=[[1, 2]], **SMALL_SEGMENTS)
    other = stage.topic(suffix="-other", replicas=[[2, 3]])
    writer, plain = Writer(stage, f"{stage.name}-t"), Writer(stage)
    for nodes in ([2, 3], [3, 1], [1, 2]):
        writer.begin()
        writer.send(topic, 2)
        moved = {"Name": topic, "Partitions": [{"PartitionIndex": 0, "Replicas": nodes}]}
        row = {"TimeoutMs": 20_000, "Topics": [moved]}
        ask(stage.cluster.controller_port(), "AlterPartitionReassignments", 0, row, CALL_SECONDS)
        for _ in range(4):
            plain.send(topic, 3)
        writer.send(other, 2)
        writer.commit()
        writer.transaction([topic, other], abort=True)

        def has_moved(wanted: frozenset[int] = frozenset(nodes)) -> bool:
            return all(set(row["ReplicaNodes"]) == wanted for row in stage.cluster.partitions(topic))

        wait_until(f"{topic} on {nodes}", has_moved)
    java(stage, topic, also=(other,))


@healthy("topics-made-again")
def topics_made_again(stage: Stage) -> None:
    """A topic is deleted and created again while its clients run, one of them in a transaction."""
    topic, other = stage.topic(2), stage.topic(suffix="-other")
    settings = {"topic.metadata.refresh.interval.ms": 200, "topic.metadata.propagation.max.ms": 0}
    writer, plain = Writer(stage, f"{stage.name}-t", settings), Writer(stage, None, settings)
    for number in range(3):
        for round_ in range(4):
            writer.transaction([topic, other], abort=round_ == 1)
            plain.send(topic, 3)
        slow = Writer(stage, f"{stage.name}-slow", settings)
        slow.begin()
        slow.send(topic, 2, partition=1)
        slow.send(other, 1)
        if number == 2:
            slow.commit()
            break
        demand(stage, "DeleteTopics", 4, {"TopicNames": [topic], "TimeoutMs": 20_000}, "Responses")
        wait_until(f"{topic} is gone", lambda: not stage.cluster.partitions(topic))
        time.sleep(1.5)
        stage.cluster.create_topic(topic, 2)
        time.sleep(1.0)
        slow.abort()
        writer = Writer(stage, f"{stage.name}-t", settings)
    java(stage, topic, also=(other,), partitions=1)


@healthy("two-log-directories", dirs=2, kafka=KRAFT)
def two_log_directories(stage: Stage) -> None:
    """A broker with two log directories; a partition moves from one to the other during a transaction."""
    topics = [stage.topic(suffix=f"-{number}") for number in range(4)]
    writer = Writer(stage, f"{stage.name}-t")
    for number in range(4):
        writer.transaction(topics, abort=number == 1)
    writer.begin()
    for topic in topics:
        writer.send(topic, 2)
    broker = stage.cluster[1]
    for topic in topics[:2]:
        here = next(number for number, data in enumerate(broker.all_data) if (data / f"{topic}-0").is_dir())
        target = broker.all_data[1 - here]
        row = {"Dirs": [{"Path": str(target), "Topics": [{"Name": topic, "Partitions": [0]}]}]}
        ask(broker.port, "AlterReplicaLogDirs", 1, row, CALL_SECONDS)
        wait_until(f"{topic} in {target.name}", (target / f"{topic}-0").is_dir)
    writer.commit()
    writer.transaction(topics)
    java(stage, topics[0], also=tuple(topics[1:]))


# --- groups -------------------------------------------------------------------------------------------------------


@healthy("offsets-set-back")
def offsets_set_back(stage: Stage) -> None:
    """An operator resets the offsets of groups by hand; their members then go on, with and without transactions."""
    topic = stage.topic()
    kafka = need("confluent_kafka", "record")
    plain, writer = Writer(stage), Writer(stage, f"{stage.name}-t")
    plain.send(topic, 30)
    group, other = f"{stage.name}-transactions", f"{stage.name}-plain"
    for round_ in range(2):
        for offset in (5, 10, 20):
            writer.begin()
            writer.send_offsets(group, topic, offset)
            writer.commit()
        consumer = kafka.Consumer(
            {"bootstrap.servers": bootstrap(stage), "group.id": other, "auto.offset.reset": "earliest"}
            | {"enable.auto.commit": False}
        )
        consumer.subscribe([topic])
        for _ in range(10):
            message = consumer.poll(CALL_SECONDS)
            consumer.commit(message=message, asynchronous=False)
        consumer.close()
        if round_:
            break
        for each in (group, other):
            where = [kafka.TopicPartition(topic, 0, 3)]
            admin = need("confluent_kafka.admin", "record").AdminClient({"bootstrap.servers": bootstrap(stage)})
            wanted = [kafka.ConsumerGroupTopicPartitions(each, where)]
            for future in admin.alter_consumer_group_offsets(wanted).values():
                future.result(CALL_SECONDS)


@healthy("new-groups", kafka=(KAFKA_VERSION, NEWEST))
def new_groups(stage: Stage) -> None:
    """A group of KIP-848 whose members join, leave and commit; its offsets are also sent in transactions."""
    topic, output = stage.topic(2), stage.topic(suffix="-output")
    Writer(stage).send(topic, 20)
    kafka = need("confluent_kafka", "record")
    settings = {"bootstrap.servers": bootstrap(stage), "group.id": f"{stage.name}-group", "group.protocol": "consumer"}
    writer = Writer(stage, f"{stage.name}-t")
    for _ in range(2):
        consumer = kafka.Consumer(settings | {"auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([topic])
        for _ in range(5):
            message = consumer.poll(CALL_SECONDS)
            writer.begin()
            writer.send(output, 1)
            where = [kafka.TopicPartition(topic, message.partition(), message.offset() + 1)]
            writer._producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), CALL_SECONDS)
            writer.commit()
        consumer.close()


# --- one broken cluster -------------------------------------------------------------------------------------------


@scenario("lost-coordinator/lost-coordinator")
def lost_coordinator(stage: Stage) -> None:
    """A disk with __transaction_state is lost: nobody ends the open transaction, and read_committed readers hang."""
    topic, other = stage.topic(), stage.topic(suffix="-other")
    early = [Writer(stage, f"{stage.name}-{name}") for name in "ab"]
    for number in range(12):
        for writer in early:
            writer.transaction([topic, other], abort=number % 4 == 1)
    early[0].begin()
    early[0].send(topic, 2)
    broker = stage.cluster[1]
    broker.stop()
    for partition in broker.data.glob("__transaction_state-*"):
        shutil.rmtree(partition)
    stage.restart(broker)
    plain, late = Writer(stage), Writer(stage, f"{stage.name}-late")
    for number in range(3):
        late.transaction([other], abort=number == 1)
        plain.send(topic, 4)
        time.sleep(3)
