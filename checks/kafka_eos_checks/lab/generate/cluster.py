"""The log directories of a cluster after its brokers were shut down, written from the traffic of its clients.

The layout is that of a recording, so that the audit reads all logs as being of one moment::

    manifest.json
    planted.jsonl
    histories/<topic>.jsonl                                  with --history
    brokers/<node>/meta.properties, .kafka_cleanshutdown, replication-offset-checkpoint, log-start-offset-checkpoint
    brokers/<node>/<topic>-<partition>/
    brokers/<node>/__transaction_state-<partition>/
    brokers/<node>/__consumer_offsets-<partition>/

Every broker has a replica of every partition.
"""

import base64
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.coordinator_partition import coordinator_partition
from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT, META_PROPERTIES, PARTITION_METADATA
from kafka_eos.formats.record_batch import Record, encode_records
from kafka_eos.formats.transaction_log import TOPIC as STATE_TOPIC
from kafka_eos.formats.transaction_log import (
    TRANSACTION_VERSION_2,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos_checks.audit.moments import CLEAN_SHUTDOWN, HIGH_WATERMARKS, START_OFFSETS
from kafka_eos_checks.audit.rules.log import LEADER_BACK, ORDER
from kafka_eos_checks.audit.rules.transactions.names import TORN
from kafka_eos_checks.audit.segments.headers import Bytes, Ints
from kafka_eos_checks.lab.generate.batches import (
    FIRST_PRODUCER,
    FIRST_TIMESTAMP,
    Batches,
    Contents,
    Group,
    Template,
    Texts,
    Values,
    bytes_of,
    columns_of,
    marker_payloads,
    marker_template,
)
from kafka_eos_checks.lab.generate.client_history import ClientHistory
from kafka_eos_checks.lab.generate.history_violations import plant_in_history
from kafka_eos_checks.lab.generate.log_files import SEGMENT_BYTES, LogFiles
from kafka_eos_checks.lab.generate.traffic import (
    SLOTS,
    SLOTS_IN_MS,
    CommitBatches,
    Slice,
    StateBatches,
    Traffic,
    Workload,
)
from kafka_eos_checks.lab.generate.violations import Row, Violations, planted_in, row_of, spoil_files

TIMEOUT_MS = 60_000  # transaction.timeout.ms
BROKERS, HISTORIES, MANIFEST = "brokers", "histories", "manifest.json"
INPUTS = 4  # largest number of records in a batch of inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Counts of a written cluster.

    Attributes:
        batches: batches with data of the topic and of its inputs.
        markers: markers in all logs.
        states: records of ``__transaction_state``.
        commits: committed offsets, in ``__consumer_offsets``.
        size: bytes of all segments of one broker, or of the segments that its tables replace.
        events: events in the history.
        planted: the violations, with their places.
    """

    batches: int
    markers: int
    states: int
    commits: int
    size: int
    events: int
    planted: list[Row]

    @property
    def all_batches(self) -> int:
        """Number of batches in all logs of one broker."""
        return self.batches + self.markers + self.states + self.commits


class States:
    """The records of ``__transaction_state``.

    Args:
        names: the transactional ids, all of one length.
        topic: its partitions are in the transactions.
    """

    def __init__(self, names: Sequence[str], topic: str) -> None:
        self._first = names[0]
        self._names = bytes_of(names)
        self._topic = topic

    def groups(self, batches: Batches) -> Iterator[Group]:
        """Implement :class:`Contents`."""
        assert isinstance(batches, StateBatches)
        for where, layout in self._layouts(batches):
            yield where, self._filled(self._template(layout), batches.take(where), layout[0])

    def _layouts(self, own: StateBatches) -> Iterator[tuple[Ints, tuple[int, ...]]]:
        """Yield the batches of each layout."""
        columns = np.stack([own.listed, own.offsets >= 0, own.next_producer >= 0, own.version], axis=1)
        code = columns @ np.array([100, 1, 2, 4])
        for each in np.unique(code).tolist():
            where = np.flatnonzero(code == each)
            yield where, tuple(columns[where[0]].tolist())

    def _template(self, layout: tuple[int, ...]) -> Template:
        listed, offsets, rotates, version = layout
        return _state_template(self._first, self._topic, listed, bool(offsets), bool(rotates), version)

    def _filled(self, template: Template, own: StateBatches, listed: int) -> Bytes:
        columns: dict[str, Ints | Bytes] = {
            "name": self._names[own.client],
            "producer": own.value_producer,
            "epoch": own.value_epoch,
            "status": own.status,
            "updated": own.timestamp,
            "started": own.started_ms,
            "previous": own.previous_producer,
            "next": own.next_producer,
            "offsets": own.offsets,
        }
        if listed > 0:
            columns["partitions"] = (
                own.partitions[:, :listed].astype(">i4").view(np.uint8).reshape(len(own), 4 * listed)
            )
        return template.fill(len(own), **{name: values for name, values in columns.items() if name in template.places})

    def payload_sizes(self, batches: Batches) -> Ints:
        """Implement :class:`Contents`."""
        assert isinstance(batches, StateBatches)
        sizes = np.empty(len(batches), np.int64)
        for where, layout in self._layouts(batches):
            sizes[where] = len(self._template(layout).payload)
        return sizes


@lru_cache(maxsize=256)
def _state_template(name: str, topic: str, listed: int, offsets: bool, rotates: bool, version: int) -> Template:
    """The template of a record that lists so many partitions (-1 for null) and has these optional fields."""
    marks = {
        "name": name.encode(),
        "producer": b"\x6a\x71\x72\x73\x74\x75\x76\x77",
        "epoch": b"\x6b\x78",
        "updated": b"\x6c\x71\x72\x73\x74\x75\x76\x77",
        "started": b"\x6d\x71\x72\x73\x74\x75\x76\x77",
        "previous": b"\x6e\x71\x72\x73\x74\x75\x76\x77",
    }
    if rotates:
        marks["next"] = b"\x6f\x71\x72\x73\x74\x75\x76\x77"
    topics = []
    if offsets:
        marks["offsets"] = b"\x5b\x79\x79\x79"
        topics.append(TopicPartitions(topic=OFFSETS_TOPIC, partition_ids=(_number(marks["offsets"]),)))
    if listed > 0:
        ids = [b"\x5a\x79" + place.to_bytes(2, "big") for place in range(listed)]
        marks["partitions"] = b"".join(ids)
        topics.append(TopicPartitions(topic=topic, partition_ids=tuple(map(_number, ids))))
    value = TransactionLogValue(
        producer_id=_number(marks["producer"]),
        producer_epoch=_number(marks["epoch"]),
        transaction_timeout_ms=TIMEOUT_MS,
        transaction_status=TransactionState.EMPTY,
        transaction_partitions=None if listed < 0 else tuple(topics),
        transaction_last_update_timestamp_ms=_number(marks["updated"]),
        transaction_start_timestamp_ms=_number(marks["started"]),
        previous_producer_id=_number(marks["previous"]),
        next_producer_id=_number(marks["next"]) if rotates else -1,
        client_transaction_version=TRANSACTION_VERSION_2 if version else 0,
    )
    record = Record(key=TransactionLogKey(transactional_id=name).encode(), value=value.encode())
    template = Template.found(encode_records([record]), marks)
    at, size = template.places["epoch"]
    status = at + size + 4  # after the timeout
    return Template(template.payload, {**template.places, "status": (status, 1)})


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _place(log: LogFiles) -> tuple[str, int]:
    """The topic and the partition of a log."""
    topic, _, partition = log.folder.name.rpartition("-")
    return topic, int(partition)


def _kept(batches: StateBatches) -> NDArray[np.bool_]:
    """Mask of the records that remain after the cleaner has compacted the first half, shape (n,)."""
    kept = np.ones(len(batches), np.bool_)
    half = len(batches) // 2
    kept[:half] = False
    last = dict(zip(batches.client[:half].tolist(), range(half), strict=True))
    kept[list(last.values())] = True
    return kept


class Commits:
    """The records of ``__consumer_offsets``.

    Args:
        groups: their names, all of one length.
        topic: its offsets are committed.
    """

    def __init__(self, groups: Sequence[str], topic: str) -> None:
        self._names = bytes_of(groups)
        self._template = _commit_template(groups[0], topic)

    def groups(self, batches: Batches) -> Iterator[Group]:
        """Implement :class:`Contents`."""
        assert isinstance(batches, CommitBatches)
        markers, commits = np.flatnonzero(batches.is_marker), np.flatnonzero(~batches.is_marker)
        if len(markers):
            yield markers, marker_payloads(batches.take(markers))
        if len(commits):
            own = batches.take(commits)
            columns = {"partition": own.source, "offset": own.committed, "timestamp": own.timestamp}
            yield commits, self._template.fill(len(own), group=self._names[own.group], **columns)

    def payload_sizes(self, batches: Batches) -> Ints:
        """Implement :class:`Contents`."""
        return np.where(batches.is_marker, len(marker_template().payload), len(self._template.payload))


def _commit_template(group: str, topic: str) -> Template:
    marks = {
        "group": group.encode(),
        "partition": b"\x5a\x79\x79\x79",
        "offset": b"\x6a\x71\x72\x73\x74\x75\x76\x77",
        "timestamp": b"\x6b\x71\x72\x73\x74\x75\x76\x77",
    }
    key = OffsetCommitKey(group=group, topic=topic, partition=_number(marks["partition"]))
    value = OffsetCommitValue(
        version=4, offset=_number(marks["offset"]), commit_timestamp_ms=_number(marks["timestamp"])
    )
    return Template.found(encode_records([Record(key=key.encode(), value=value.encode())]), marks)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster to be written.

    Attributes:
        workload: size of the cluster and mix of its clients' requests.
        topic: name of the topic to which the clients write.
        brokers: number of brokers, each with a replica of every partition.
        value_bytes: size of the random value of each record.
        as_tables: whether the topic has tables of headers instead of segments.
        segment_bytes: size at which a new segment starts.
        retained_bytes: size to which each of the topic's logs is cut, by deleting its oldest segments; 0 to keep
            everything.
        compacted: whether the cleaner has compacted the first records of ``__transaction_state``.
        history: whether the clients' history is also written, see :mod:`client_history`.
        faults: violations of each rule; with a history, of each rule over histories.
    """

    workload: Workload
    topic: str = "generated"
    brokers: int = 1
    value_bytes: int = 100
    as_tables: bool = False
    segment_bytes: int = SEGMENT_BYTES
    retained_bytes: int = 0
    compacted: bool = False
    history: bool = False
    faults: int = 0

    @cached_property
    def transactional_ids(self) -> list[str]:
        """Transactional ids of the clients."""
        return [f"{self.topic}-client-{number:06d}" for number in range(self.workload.clients)]

    @cached_property
    def groups(self) -> list[str]:
        """Names of the groups: those of the clients, then those that commit outside of transactions."""
        return [f"{self.topic}-group-{number:06d}" for number in range(2 * self.workload.clients)]

    @property
    def inputs(self) -> str:
        """Name of the topic whose offsets the groups commit."""
        return f"{self.topic}-input"

    def traffic(self) -> Traffic:
        """The traffic of the cluster's clients."""
        own = self.workload
        return Traffic(
            own,
            coordinator_of=np.array(
                [coordinator_partition(name, own.state_partitions) for name in self.transactional_ids]
            ),
            group_on=np.array([coordinator_partition(name, own.offset_partitions) for name in self.groups]),
            violations=self._violations() if self.faults and not self.history else None,
        )

    def _violations(self) -> Violations:
        own = self.workload
        return Violations(self.faults, own.slices, own.partitions, own.first_client, own.seed)

    def write(self, folder: Path, advance: Callable[[int], None] = lambda _: None) -> Made:
        """Write the cluster.

        Args:
            folder: an empty folder.
            advance: called with the number of slices of time written since the last call.

        Raises:
            ValueError: the cluster is too small for so many violations.
        """
        first = folder / BROKERS / "1"
        topic, state_logs, commits = self._logs(first)
        inputs = self._input_logs(first)
        traffic, planted = self.traffic(), list[Row]()
        with self._told(folder, traffic) as told:
            for part in traffic.slices():
                arrived = [log.append(batches) for log, batches in zip(topic, part.topic, strict=True)]
                for log, batches in zip(topic, arrived, strict=True):
                    planted += planted_in(batches, *_place(log))
                read = np.zeros(self.workload.partitions, np.int64)  # how far groups have read each partition of inputs
                for log, batches in zip(commits, part.commits, strict=True):
                    np.maximum.at(read, batches.source, batches.committed)
                    planted += planted_in(log.append(batches), *_place(log))
                for log, states in zip(state_logs, part.states, strict=True):
                    kept = _kept(states) if self.compacted and part.number == 0 else None
                    planted += planted_in(log.append(states, kept), *_place(log))
                if told is not None:
                    told.take(part, arrived, self._extended(inputs, part, read))
                advance(part.number < self.workload.slices)  # after the last of them what is left ends
            if told is not None:
                told.close()
        if traffic.violations is not None:
            traffic.violations.demand_all()
            planted += [row_of(TORN, *_place(topic[each]), topic[each].end) for each in traffic.violations.lost]
        logs = [*topic, *state_logs, *commits, *inputs]
        for log in logs:
            log.close()
        for log in topic if self.retained_bytes else ():
            log.retain(self.retained_bytes)
        for log in logs:
            self._describe_partition(log)
        self._describe(folder, logs)
        if self.faults and self.history:
            planted += plant_in_history(
                folder / HISTORIES / f"{self.topic}.jsonl",
                self.faults,
                topic=self.topic,
                inputs=self.inputs,
                ends=[log.end for log in topic],
                seed=self.workload.seed,
            )
        elif self.faults:
            second = folder / BROKERS / "2"
            replica = second if self.brokers > 1 else None
            back = {(row["topic"], row["partition"]) for row in planted if row["rule"] in {LEADER_BACK, ORDER}}
            led = [*state_logs, *(log for log in topic if _place(log) not in back)]
            planted += spoil_files(topic, commits, led, replica, self.faults, self.workload.seed)
        return Made(
            batches=sum(log.batches - log.markers for log in (*topic, *inputs)),
            markers=sum(log.markers for log in logs),
            states=sum(log.batches for log in state_logs),
            commits=sum(log.batches - log.markers for log in commits),
            size=sum(log.size for log in logs),
            events=0 if told is None else told.events,
            planted=planted,
        )

    @contextmanager
    def _told(self, folder: Path, traffic: Traffic) -> Iterator[ClientHistory | None]:
        """Open the history for writing; None without a history."""
        if not self.history:
            yield None
            return
        path = folder / HISTORIES / f"{self.topic}.jsonl"
        path.parent.mkdir(parents=True)
        with path.open("w", encoding="utf-8") as out:
            yield ClientHistory(
                out=out,
                workload=self.workload,
                topic=self.topic,
                inputs=self.inputs,
                names=self.transactional_ids,
                groups=self.groups,
                value_bytes=self.value_bytes,
                producers=traffic.producer,
            )

    def _input_logs(self, broker: Path) -> list[LogFiles]:
        """The logs of the inputs that clients copy; none without a history."""
        first = FIRST_PRODUCER + self.workload.producer_ids
        return [
            LogFiles(
                broker / f"{self.inputs}-{number}",
                Texts(self.value_bytes, number),
                first_id=first + number,
                producers=1,
                segment_bytes=self.segment_bytes,
            )
            for number in range(self.workload.partitions if self.history else 0)
        ]

    def _extended(self, inputs: Sequence[LogFiles], part: Slice, read: Ints) -> Iterator[tuple[int, Batches]]:
        """Append as many inputs as are read in a slice; yield the batches appended to each partition.

        Args:
            inputs: the logs of the inputs.
            part: the slice.
            read: the highest offset of each partition that a group has committed in it.
        """
        own = part.transactions.take(part.transactions.group >= 0)
        for partition, log in enumerate(inputs):
            in_transactions = own.offset[own.client % len(inputs) == partition].max(initial=0)
            needed = int(max(in_transactions, read[partition])) - log.end
            if needed <= 0:
                continue
            starts = np.arange(log.end, log.end + needed, INPUTS)
            batches = columns_of(
                Batches,
                len(starts),
                record_count=np.minimum(log.end + needed - starts, INPUTS),
                producer_id=FIRST_PRODUCER + self.workload.producer_ids + partition,
                producer_epoch=0,
                base_sequence=starts,
                timestamp=FIRST_TIMESTAMP + part.number * SLOTS // SLOTS_IN_MS,
            )
            yield partition, log.append(batches)

    def _values(self, partition: int) -> Values:
        if self.history:
            return Texts(self.value_bytes, partition)
        return Values(self.value_bytes, self.workload.seed + partition)

    def _logs(self, broker: Path) -> tuple[list[LogFiles], list[LogFiles], list[LogFiles]]:
        own = self.workload
        kinds: list[tuple[str, int, Callable[[int], Contents], bool]] = [
            (self.topic, own.partitions, self._values, self.as_tables),
            (STATE_TOPIC, own.state_partitions, lambda _: States(self.transactional_ids, self.topic), False),
            (OFFSETS_TOPIC, own.offset_partitions, lambda _: Commits(self.groups, self.inputs), False),
        ]
        topic, states, commits = (
            [
                LogFiles(
                    broker / f"{name}-{number}",
                    contents(number),
                    first_id=FIRST_PRODUCER,
                    producers=0 if name == STATE_TOPIC else own.producer_ids,
                    as_tables=as_tables,
                    segment_bytes=self.segment_bytes,
                )
                for number in range(size)
            ]
            for name, size, contents, as_tables in kinds
        )
        return topic, states, commits

    # ---- files next to the logs

    def _id(self, *of: object) -> str:
        """An id in the form of Kafka's random ones. The same seed gives the same id."""
        text = "/".join(map(str, (self.workload.seed, *of)))
        return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:16]).decode().rstrip("=")

    def _describe_partition(self, log: LogFiles) -> None:
        metadata = f"version: 0\ntopic_id: {self._id('topic', _place(log)[0])}"
        (log.folder / PARTITION_METADATA).write_text(metadata, encoding="ascii")
        lines = [f"{epoch} {offset}\n" for epoch, offset in log.leader_epochs or [(0, 0)]]
        checkpoint = f"0\n{len(lines)}\n{''.join(lines)}"
        (log.folder / LEADER_EPOCH_CHECKPOINT).write_text(checkpoint, encoding="ascii")

    def _describe(self, folder: Path, logs: Sequence[LogFiles]) -> None:
        """Write the files that a broker keeps for all its logs, and copy the broker's folder for the other brokers."""
        first = folder / BROKERS / "1"
        marks = [f"{' '.join(log.folder.name.rsplit('-', 1))} {log.end}\n" for log in logs]
        (first / HIGH_WATERMARKS).write_text(f"0\n{len(marks)}\n{''.join(marks)}", encoding="ascii")
        (first / START_OFFSETS).write_text("0\n0\n", encoding="ascii")
        (first / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":1}', encoding="ascii")
        for node in range(1, self.brokers + 1):
            broker = folder / BROKERS / str(node)
            if node > 1:
                shutil.copytree(first, broker)
            properties = {
                "version": 1,
                "cluster.id": self._id("cluster"),
                "node.id": node,
                "directory.id": self._id("directory", node),
            }
            lines = [f"{name}={value}\n" for name, value in properties.items()]
            (broker / META_PROPERTIES).write_text("".join(lines), encoding="ascii")
        manifest = {
            "format": 1,
            "recording": "generated",
            "command": "kafka-eos lab generate",
            "brokers": self.brokers,
            "cluster_id": self._id("cluster"),
            "workload": asdict(self.workload),
            "scenarios": [],
        }
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
