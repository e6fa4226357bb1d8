"""The Spark data source ``kafka_log``: Kafka's log segments as tables, without a broker.

    spark.read.format("kafka_log").load("/var/lib/kafka/data")
    spark.read.format("kafka_log").option("granularity", "records").option("topic", "orders").load([...])
    CREATE TEMPORARY VIEW batches USING kafka_log OPTIONS (path '/var/lib/kafka/data')

Spark finds the source by itself if the Python that Spark starts has this package: in an activated environment, or with
``PYSPARK_PYTHON``. In a program that is run as ``/path/to/venv/bin/python program.py`` call :func:`register` first.

Options, besides ``path`` (a log directory, a folder of several brokers' directories, or a partition's folder; ``load``
takes several; on this machine also a pattern, ``/copies/broker-*``):

================= ====================================================================================================
granularity       ``batches`` (default; headers only), ``records``, ``corrupt`` (regions without a readable batch),
                  ``transactions`` (a row for each transaction and partition), or ``offsets`` (a row for each committed
                  offset of ``__consumer_offsets``)
topic             only this topic; of ``offsets`` the topic whose offset was committed
partition         only this partition, in the same way
startingOffset    only from this offset on; a batch that reaches into the range is shown whole
endingOffset      only before this offset
startingTimestamp only from this time on, in ms since the epoch; batches by the two times of their header
endingTimestamp   only before this time
producerId        only of this producer id
crc               ``true`` (default) or ``false``: whether a batch that differs from its CRC is corrupt
splitBytes        bytes that a task reads (default 134217728)
================= ====================================================================================================

Spark puts a Python traceback before the reason of an error, unless the session has
``spark.sql.execution.pyspark.udf.hideTraceback.enabled``.

Any other option is an error. So are a topic and a partition that have no log there; of ``offsets``, and in a stream,
they have no row. ``offsets`` without any log of ``__consumer_offsets`` is an error. So are logs that lie deeper than is
searched, and symbolic links in the place of logs, unless the folders that the links lead to are given, too.

Ranges of offsets and times are refused at granularities ``transactions`` and ``offsets``, because a transaction is told
from the start of its log. One task reads a whole log there, however long the log is, and logs that are shorter than
``splitBytes`` share a task. A task keeps one window of batches and what is open, so its memory does not grow with the
log. It also keeps the transactional id of each producer id, if that column is wanted.

Segments are chosen by the offsets in their names. Corrupt regions are always shown, because their offsets, times and
producers are not known. Only options limit what is read, never a query's conditions: Spark 4.1 to 4.3 reads for the
next query of the same view or DataFrame what the conditions of the last one have left of a Python data source.

So it keeps the plan of the first query, too: the segments, and how far each is read. Spark's own file sources do the
same until ``REFRESH TABLE``, which does not reach a Python data source. Load growing logs anew for each query, or make
the view again.

``spark.readStream.format("kafka_log")`` follows growing segments: each micro-batch has the complete batches
appended since the previous one. Bytes after the last complete batch of a log's last segment wait for the rest of their
batch. The stream has the same options. Granularities ``transactions`` and ``offsets`` cannot be
streamed.

Columns of every granularity except ``offsets``: ``broker`` (the name of the log directory, or its path if several share
the name), ``topic``, ``partition``, ``segment`` (file name) and ``position`` (of the batch or region in it, in bytes).
``(segment, position)`` is the order of a log; rows have no order. Spark does not tell a source which columns a query
wants. Name columns with ``.schema(...)``, and only those are made.

batches: ``size`` bytes; ``base_offset`` … ``last_offset``; ``leader_epoch``; ``compression``; ``log_append_time``,
``transactional``, ``control`` (flags); ``base_timestamp``, ``max_timestamp`` in ms; ``producer_id``,
``producer_epoch``, ``base_sequence``, ``last_sequence`` (modulo 2^31); ``record_count``; ``crc``.

records: ``offset``, ``timestamp`` in ms, ``key``, ``value``, ``header_count``, and of its batch ``producer_id``,
``producer_epoch``, ``transactional``, ``control``.

corrupt: ``end`` (first byte after the region), ``kind`` (``corrupt``, ``torn tail``, ``zeroes``), ``reason``. What a
broker has reserved at the end of a log on this machine (``log.preallocate``) is no region.

transactions: a transaction of a producer id goes from the first batch after a marker to the next marker, whatever lies
between. ``segment`` and ``position`` are those of its first batch in the log, or of its marker if it has no data there.

- ``producer_id``; ``producer_epoch`` of its first batch; null without data
- ``transactional_id``: the one that had the producer id, by ``__transaction_state`` in the same directories; null if no
  log there names it, or if two transactional ids have it
- ``decision``: ``commit`` or ``abort``; null if the transaction is open at the end of the log; ``unknown`` if the
  cleaner has emptied the marker
- ``first_offset`` and ``last_offset`` of its data; ``marker_offset``
- ``batches``, ``records`` and ``bytes`` of its data in the log
- ``first_timestamp`` of its first batch, ``max_timestamp`` of its data, ``marker_timestamp``, in ms. Clocks of clients
  give the first two, unless the topic has LogAppendTime; the leader's clock gives the third. ``first_timestamp`` is
  null if the cleaner has replaced it by a delete horizon, or if the first batch lies before the log
- ``duration_ms``: ``marker_timestamp - first_timestamp``
- ``marker_producer_epoch``: in transaction version 2 one above that of the data; ``coordinator_epoch`` of the marker
- ``empty``: whether the marker ends no data: the partition was added to a transaction and not written to, the marker
  was written again, or the data were compacted away
- ``starts_before_log``: whether the transaction was open where the log starts, as the producer snapshot of the first
  segment says. Then the log lacks some of its data. Null, as is ``empty``, if the log starts above offset 0 and that
  file (``.snapshot``) is missing: copy it with the segments

offsets: records of other types than committed offsets, and unreadable records, have no row.

- ``broker``, ``log_partition`` (of ``__consumer_offsets``), ``segment``, ``position``: where the record's batch is
- ``log_offset``, ``timestamp`` (in ms, by the coordinator's clock) of the record itself
- ``group``, ``topic``, ``partition``: the offset's group and partition
- ``offset``, ``leader_epoch`` (-1 if not known), ``metadata``, ``commit_timestamp`` in ms; null in a tombstone
- ``tombstone``: whether the offset was removed: expired, deleted, or of a topic that was deleted
- ``transactional``, ``producer_id``, ``producer_epoch`` (-1 outside of transactions)
- ``decision``: as above, of the transaction of the record; null also outside of transactions
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.log_directory import LogDirectory
from kafka_eos.formats.segment import CorruptRegion
from kafka_eos.formats.transaction_log import TOPIC as STATE_TOPIC
from kafka_eos_checks.audit.inputs import unread_in
from kafka_eos_checks.audit.places import is_uri, place
from kafka_eos_checks.audit.rules.log import SEQUENCE_MASK
from kafka_eos_checks.audit.segments.header_tables import SUFFIX as TABLES
from kafka_eos_checks.audit.segments.headers import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Block,
    Bytes,
    Headers,
    Ints,
    is_set,
    may_be_reserved,
    read_blocks,
    read_index,
    written_end,
)
from kafka_eos_checks.audit.segments.records import Records, decode_block
from kafka_eos_checks.audit.segments.splits import (
    SPLIT_BYTES,
    PartitionLog,
    Split,
    find_directories,
    logs_in,
    plan,
    tasks,
)
from kafka_eos_checks.audit.tables.folded import OFFSETS, TRANSACTIONS, CommittedOffsets, Transactional, record_batch
from kafka_eos_checks.audit.tables.selection import Selection, from_options
from kafka_eos_checks.kit.nearest import did_you_mean
from kafka_eos_checks.kit.schemas import ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTIONS = (
    "path",
    "granularity",
    "topic",
    "partition",
    "startingOffset",
    "endingOffset",
    "startingTimestamp",
    "endingTimestamp",
    "producerId",
    "crc",
    "splitBytes",
)
NAMED = 10  # topics or partitions in the error about another one
_SPARKS_OWN = {"paths", "location", "owner", "provider"}  # for a load of several paths, and for a table of the catalog
_CODECS = np.array([codec.name.lower() for codec in CompressionType])


def _last_sequence(headers: Headers) -> Ints:
    base = headers.column("base_sequence")
    return np.where(base < 0, base, (base + headers.column("last_offset_delta")) & SEQUENCE_MASK)


def _binary(buffer: Bytes, start: Ints, size: Ints) -> pa.Array:
    """Ranges of a buffer as one Arrow array of bytes; null where the size is -1."""
    sizes = np.maximum(size, 0)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    data = buffer[np.repeat(start - offsets[:-1], sizes) + np.arange(offsets[-1])]
    valid = np.packbits(size >= 0, bitorder="little")
    buffers = [pa.py_buffer(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(size), buffers)


_PLACE = {"broker": "string", "topic": "string", "partition": "int", "segment": "string", "position": "bigint"}
_BATCHES: dict[str, tuple[str, Callable[[Headers], Any]]] = {
    "size": ("bigint", lambda h: h.column("batch_length") + 12),
    "base_offset": ("bigint", lambda h: h.column("base_offset")),
    "last_offset": ("bigint", lambda h: h.column("base_offset") + h.column("last_offset_delta")),
    "leader_epoch": ("int", lambda h: h.column("leader_epoch")),
    "compression": ("string", lambda h: _CODECS[h.column("attributes") & COMPRESSION_MASK]),
    "log_append_time": ("boolean", lambda h: is_set(h, TIMESTAMP_TYPE_MASK)),
    "transactional": ("boolean", lambda h: is_set(h, TRANSACTIONAL_MASK)),
    "control": ("boolean", lambda h: is_set(h, CONTROL_MASK)),
    "base_timestamp": ("bigint", lambda h: h.column("base_timestamp")),
    "max_timestamp": ("bigint", lambda h: h.column("max_timestamp")),
    "producer_id": ("bigint", lambda h: h.column("producer_id")),
    "producer_epoch": ("int", lambda h: h.column("producer_epoch")),
    "base_sequence": ("int", lambda h: h.column("base_sequence")),
    "last_sequence": ("int", _last_sequence),
    "record_count": ("int", lambda h: h.column("record_count")),
    "crc": ("bigint", lambda h: h.column("crc")),
}
_RECORDS: dict[str, tuple[str, Callable[[Headers, Records], Any]]] = {
    "offset": ("bigint", lambda _, r: r.offset),
    "timestamp": ("bigint", lambda _, r: r.timestamp),
    "key": ("binary", lambda _, r: _binary(r.buffer, r.key_start, r.key_size)),
    "value": ("binary", lambda _, r: _binary(r.buffer, r.value_start, r.value_size)),
    "header_count": ("int", lambda _, r: r.header_count),
    "producer_id": ("bigint", lambda h, r: h.column("producer_id")[r.batch]),
    "producer_epoch": ("int", lambda h, r: h.column("producer_epoch")[r.batch]),
    "transactional": ("boolean", lambda h, r: is_set(h, TRANSACTIONAL_MASK)[r.batch]),
    "control": ("boolean", lambda h, r: is_set(h, CONTROL_MASK)[r.batch]),
}
_CORRUPT = {"end": "bigint", "kind": "string", "reason": "string"}

SCHEMAS = {
    "batches": {**_PLACE, **{name: kind for name, (kind, _) in _BATCHES.items()}},
    "records": {**_PLACE, **{name: kind for name, (kind, _) in _RECORDS.items()}},
    "corrupt": {**_PLACE, **_CORRUPT},
    "transactions": {**_PLACE, **{name: kind for name, (kind, _) in TRANSACTIONS.items()}},
    "offsets": {
        "broker": "string",
        "log_partition": "int",
        "segment": "string",
        **{name: kind for name, (kind, _) in OFFSETS.items()},
    },
}
FOLDED = {"transactions", "offsets"}  # granularities for which a task reads whole logs
_RANGES = ("startingOffset", "endingOffset", "startingTimestamp", "endingTimestamp")


@dataclass
class LogTask(InputPartition):
    """The splits that one Spark task reads, and the logs that name the transactional ids of their producers."""

    splits: tuple[Split, ...]
    coordinators: tuple[PartitionLog, ...] = ()


def register(spark: "SparkSession") -> None:
    """Register ``kafka_log`` in a session; a local one then reads it with the Python that runs this program.

    Otherwise, without ``PYSPARK_PYTHON``, Spark starts the first ``python3`` on the path, which may lack this package.
    """
    if is_remote() or "PYSPARK_PYTHON" in os.environ or not str(spark.sparkContext.master).startswith("local"):
        spark.dataSource.register(KafkaLogSource)
        return
    context = spark.sparkContext
    before = context.pythonExec
    context.pythonExec = sys.executable  # a source keeps the Python with which it is registered
    try:
        spark.dataSource.register(KafkaLogSource)
    finally:
        context.pythonExec = before


class KafkaLogSource(DataSource):
    """The data source ``kafka_log``; the module documents its options and columns.

    Raises:
        ValueError: for an option that it does not have.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        known = {name.lower() for name in OPTIONS} | _SPARKS_OWN
        for name in options:
            if name.lower() not in known:
                near = did_you_mean(name, OPTIONS) or f"; there are {', '.join(OPTIONS)}"
                raise ValueError(f"kafka_log: unknown option {name}{near}")

    @classmethod
    def name(cls) -> str:
        """The name for ``format`` and ``USING``."""
        return "kafka_log"

    def schema(self) -> str:
        """The columns of the granularity."""
        return ddl(SCHEMAS[self._granularity()])

    def reader(self, schema: StructType) -> "KafkaLogReader":
        """A reader of all columns, or of those that the user named."""
        return KafkaLogReader(self._granularity(), self._names(schema), dict(self.options))

    def streamReader(self, schema: StructType) -> "KafkaLogStreamReader":  # noqa: N802 - Spark's name
        """A reader that follows growing segments.

        Raises:
            ValueError: for a granularity whose rows end in a later micro-batch than they begin.
        """
        if (granularity := self._granularity()) in FOLDED:
            raise ValueError(
                f"kafka_log: granularity {granularity} cannot be streamed, because a transaction may end in a later "
                f"micro-batch than it begins; use spark.read, or stream granularity batches or records"
            )
        return KafkaLogStreamReader(KafkaLogReader(self._granularity(), self._names(schema), dict(self.options)))

    def _names(self, schema: StructType) -> list[str]:
        granularity = self._granularity()
        known = SCHEMAS[granularity]
        for field in schema.fields:
            if known.get(field.name) != field.dataType.simpleString():
                raise ValueError(
                    f"kafka_log: no column {field.name} {field.dataType.simpleString()} at granularity {granularity}; "
                    f"there are {ddl(known)}"
                )
        return [field.name for field in schema.fields]

    def _granularity(self) -> str:
        granularity = self.options.get("granularity", "batches")
        if granularity not in SCHEMAS:
            raise ValueError(f"kafka_log: granularity {granularity!r} is none of {', '.join(SCHEMAS)}")
        return granularity


class KafkaLogReader(DataSourceReader):
    """Reads splits as Arrow batches.

    Args:
        granularity: one of :data:`SCHEMAS`.
        names: the columns to make, in order.
        options: the options, see the module.

    Raises:
        ValueError: an option's value is wrong, or the granularity does not have the option.
    """

    def __init__(self, granularity: str, names: Sequence[str], options: Mapping[str, str]) -> None:
        self._granularity = granularity
        self._options = {key.lower(): value for key, value in options.items()}
        self._check_crc = _flag(self._options, "crc", default=True)
        self._kinds = {name: SCHEMAS[granularity][name] for name in names}
        self._split_bytes = _bytes(self._options, "splitbytes", default=SPLIT_BYTES)
        self._selection = from_options(self._options)
        if granularity in FOLDED:
            for name in _RANGES:
                if name.lower() in self._options:
                    raise ValueError(
                        f"kafka_log: option {name} is not for granularity {granularity}, which needs each log from its "
                        f"start; compare a column of it in the query"
                    )

    def found(self) -> list[PartitionLog]:
        """All logs at the given paths.

        Raises:
            ValueError: no path is given, or nothing matches a pattern.
            NotALogDirectory: there is no log at one of the paths.
            ValueError: a log has only the headers of its batches, or would not be read: it lies too deep, or a symbolic
                link stands in its place.
        """
        paths: list[str] = json.loads(self._options.get("paths", "[]"))
        paths += [self._options["path"]] if "path" in self._options else []
        if not paths:
            raise ValueError("kafka_log: no path; give a broker's log directory to load() or as option 'path'")
        given = {path: path for text in paths for path in _matching(text)}
        there = {path: find_directories(path) for path in given}
        found = logs_in(chain(*there.values()))
        _refuse_unread(given, there)
        for log in found:
            if not log.has_records:
                raise ValueError(
                    f"kafka_log: {log.folder} has tables of headers; read them by format 'parquet' with option "
                    f"pathGlobFilter='*.{TABLES}'"
                )
        return found

    def logs(self) -> list[PartitionLog]:
        """The logs that may have wanted rows, with the segments that may; errors as in :meth:`found`."""
        return list(self._logs().logs(self.found()))

    def _logs(self) -> Selection:
        """The selection of logs: for committed offsets, topic and partition select rows, not logs."""
        if self._granularity == "offsets":
            return Selection(topics=frozenset({OFFSETS_TOPIC}))
        return self._selection

    def partitions(self) -> Sequence[LogTask]:
        """The tasks: each of about ``splitbytes`` bytes, or of a longer log if its rows need the whole log.

        Raises:
            ValueError: no log is of the topic or the partition that an option names; others as :meth:`found`.
        """
        found = self.found()
        _refuse_missing(self._logs(), found)
        folded = self._granularity in FOLDED
        coordinators = (
            tuple(log for log in found if log.topic == STATE_TOPIC) if "transactional_id" in self._kinds else ()
        )
        splits = plan(self._logs().logs(found), self._split_bytes)
        grouped = tasks(splits, self._split_bytes, whole_logs=folded)
        return [LogTask(tuple(task), coordinators) for task in grouped]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task. For an empty plan Spark makes one partition of its own, which has no rows."""
        if not isinstance(partition, LogTask):
            return
        if self._granularity in FOLDED:
            for log, splits in groupby(partition.splits, lambda split: split.log):
                yield from self._folded(partition.coordinators).rows(list(splits), self._fixed(log))
            return
        for split in partition.splits:
            fixed = {**self._fixed(split.log), "segment": split.segment}
            index = read_index(split.path)
            for block in read_blocks(split.path, split.start, split.end, index=index, check_crc=self._check_crc):
                count, columns = self._columns(block)
                if count:
                    yield record_batch(self._kinds, count, columns, fixed)

    def _folded(self, coordinators: tuple[PartitionLog, ...]) -> Transactional | CommittedOffsets:
        if self._granularity == "offsets":
            return CommittedOffsets(self._kinds, self._selection, self._check_crc)
        return Transactional(self._kinds, self._selection, self._check_crc, coordinators)

    def _fixed(self, log: PartitionLog) -> dict[str, str | int]:
        """The columns that are the same in all rows of a log."""
        broker = log.broker or log.directory.name
        return {"broker": broker, "topic": log.topic, "partition": log.partition, "log_partition": log.partition}

    def _columns(self, block: Block) -> tuple[int, dict[str, Any]]:
        """The number of rows of a block, and the columns that depend on the block."""
        headers = block.headers
        if self._granularity == "batches":
            which = self._selection.of_batches(headers)
            headers = headers if which.all() else headers.take(which)
            made = {name: _BATCHES[name][1](headers) for name in self._kinds if name in _BATCHES}
            return len(headers), {"position": headers.positions, **made}
        if self._granularity == "corrupt":
            regions: list[CorruptRegion] = [*(decode_block(block).damage if len(headers) else ()), *headers.damage]
            made = {name: [getattr(region, name) for region in regions] for name in _CORRUPT}
            return len(regions), {"position": [region.position for region in regions], **made}
        if not len(headers):
            return 0, {}
        records = decode_block(block, self._selection.to_decode(headers))
        which = self._selection.of_records(headers, records)
        records = records if which.all() else records.take(which)
        made = {name: _RECORDS[name][1](headers, records) for name in self._kinds if name in _RECORDS}
        return len(records), {"position": headers.positions[records.batch], **made}


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in {"true", "false"}:
        raise ValueError(f"kafka_log: option {name} is {value!r}, neither true nor false")
    return value == "true"


def _bytes(options: Mapping[str, str], name: str, *, default: int) -> int:
    value = options.get(name, str(default))
    if not value.isdecimal() or int(value) == 0:
        raise ValueError(f"kafka_log: option {name} is {value!r}, not a number of bytes")
    return int(value)


def _matching(text: str) -> list[Path]:
    """The path that a text names, or the paths of this machine that match it, sorted.

    Raises:
        ValueError: nothing matches.
    """
    path = place(text)
    if not set("*?[") & set(str(path)) or is_uri(str(path)) or path.exists():
        return [path]
    root = Path(path.anchor)
    found = sorted(root.glob(str(path.relative_to(root))))
    if not found:
        raise ValueError(f"kafka_log: nothing matches {text}")
    return found


def _refuse_unread(given: Mapping[Path, Path], there: Mapping[Path, Sequence[LogDirectory]]) -> None:
    """Raise if logs at the given paths would be left out, whose rows a query would lack without a word."""
    for told in unread_in(given, there):
        raise ValueError(f"kafka_log: {told}")


def _refuse_missing(named: Selection, found: Sequence[PartitionLog]) -> None:
    """Raise if no log is of the topic or the partition that is named, so that no typing error gives an empty table."""
    topics = sorted({log.topic for log in found})
    for topic in named.topics or ():
        if topic not in topics:
            near = did_you_mean(topic, topics)
            raise ValueError(f"kafka_log: no log of topic {topic!r} at the given paths{near or _there_is(topics)}")
    of_topic = [log for log in found if named.topics is None or log.topic in named.topics]
    numbers = sorted({log.partition for log in of_topic})
    for partition in named.partitions or ():
        if partition not in numbers:
            of = "".join(f" of topic {topic!r}" for topic in named.topics or ())
            raise ValueError(f"kafka_log: no log of partition {partition}{of} at the given paths{_there_is(numbers)}")


def _there_is(names: Sequence[Any]) -> str:
    """The words that name the first of some things, for the end of an error."""
    return f"; there is {', '.join(map(str, names[:NAMED]))}{', …' * (len(names) > NAMED)}"


class KafkaLogStreamReader(DataSourceStreamReader):
    """Follows growing segments. An offset of the stream says how far each segment was read: file -> bytes."""

    def __init__(self, reader: KafkaLogReader) -> None:
        self._reader = reader
        self._whole: dict[str, int] = {}  # by file, the end of its last known complete batch

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The offset before anything was read."""
        return {}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802 - Spark's name, before 4.2
        """The end of the last complete batch of each segment now."""
        ends = {}
        for log in self._reader.logs():
            for number, name in enumerate(log.segments):
                path = log.file(name)
                size = path.stat().st_size
                is_last = number == len(log.segments) - 1
                ends[str(path)] = self._whole_end(path, size) if is_last else size
        self._whole.update(ends)
        return ends

    def _whole_end(self, path: Path, size: int) -> int:
        if may_be_reserved(path) and (end := written_end(path)) < size:
            return end
        end = self._whole.get(str(path), 0)
        for block in read_blocks(path, min(end, size), size, index=read_index(path), check_crc=False):
            torn = [region for region in block.headers.damage if region.end >= size]
            end = torn[0].position if torn else block.headers.end
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[LogTask]:
        """The tasks: one for each segment that has grown."""
        grown = []
        for log in self._reader.logs():
            for number, name in enumerate(log.segments):
                file = str(log.file(name))
                begin, stop = start.get(file, 0), end.get(file, 0)
                if begin < stop:
                    grown.append(LogTask((Split(log, number, len(log.segments), name, begin, stop),)))
        return grown

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        yield from self._reader.read(partition)
