"""The events of recorded logs and histories as rows of Arrow, read piece by piece.

A piece is a byte range of a segment or of a history. A worker of Spark reads it, or this process. Unreadable bytes also
become a row: a verdict on the log.

Every row has the columns of :data:`ROWS`:

=========  =============================  ==============================  ======================
``kind``   :data:`STATE`                  :data:`ENTRY`                   :data:`EVENT`
=========  =============================  ==============================  ======================
is         a record of                    a batch or marker of a          an event of a history
           ``__transaction_state``        producer in a partition
name       transactional id                                               file of the history
log        partition, as its folder       partition                       topic-partition
offset     of the record                  of the batch
code                                      :data:`MARKERS`, batches
version    of a client that ends a        1 for a marker that is joined
           transaction                    to another, 2 for a repetition
epochs     the log's leader epoch         a marker's coordinator epoch
value      of the record                                                  the event's line
=========  =============================  ==============================  ======================

A row of kind :data:`HOLE` has the offset at which a hole of a log ends: of a log that was compacted, or whose first
segments were deleted. One of kind :data:`NEW` has, as offset, the time of the first batch of a log that was new then
(:func:`kafka_eos_checks.traces.markers.begin_of_new`). A row whose ``verdict`` is set (:data:`VERDICTS`) has no other
content.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.segment import RegionKind
from kafka_eos.formats.transaction_log import TOPIC, MalformedTransactionRecord, decode_key
from kafka_eos.histories.history import MalformedHistory, event_from_json
from kafka_eos_checks.audit.events.history_files import line_of
from kafka_eos_checks.audit.inputs import contents_of
from kafka_eos_checks.audit.rules.coordinator import PREPARED
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    Block,
    Headers,
    is_set,
    read_blocks,
    read_index,
)
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH, marks_of
from kafka_eos_checks.audit.segments.records import decode_block
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs, plan
from kafka_eos_checks.traces.clients import log_name
from kafka_eos_checks.traces.markers import FirstBatch, begin_of_new
from kafka_eos_checks.traces.transitions import read_transition

if TYPE_CHECKING:
    import pyarrow as pa

STATE, ENTRY, EVENT, JUDGED, HOLE, NEW = range(6)  # kinds of rows
PLAIN_BATCH, TRANSACTIONAL_BATCH, ABORT_MARKER, COMMIT_MARKER = range(4)  # codes of entries
MARKERS = {ABORT_MARKER: ControlType.ABORT, COMMIT_MARKER: ControlType.COMMIT}

COORDINATOR, LEADER, CLIENT, LOG = "coordinator", "leader", "client", "log"  # the subjects of verdicts
# A row for each trace. `position` is the first unexplained step, from 1; of a log that is not damaged, but lacks
# something, the offset from which on it lacks nothing. `accepted` is null where it was not judged; `unjudged` then has
# the reason by a short name.
VERDICTS = {
    "source": "bigint",
    "subject": "string",
    "trace": "string",
    "steps": "bigint",
    "accepted": "boolean",
    "position": "bigint",
    "reason": "string",
    "unjudged": "string",
}
ROWS = {
    "source": "bigint",
    "kind": "bigint",
    "name": "string",
    "log": "string",
    "offset": "bigint",
    "producer_id": "bigint",
    "epoch": "bigint",
    "leader_epoch": "bigint",
    "code": "bigint",
    "version": "bigint",
    "value": "binary",
    "verdict": f"struct<{', '.join(f'{name}: {kind}' for name, kind in VERDICTS.items())}>",
}
PIECE_BYTES = 32 << 20  # a worker needs some seconds for the steps of so many bytes
HISTORY_SUFFIX = ".jsonl"
LINE_BYTES = 1 << 20  # read at a time from a history


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A byte range of a file of events.

    Attributes:
        source: the number of the given path that it belongs to.
        log: the name of the partition's folder; "" for a history.
        path: the segment or history.
        start: where a batch begins; in a history any byte: the first line is the one that begins there or next.
        end: where the last batch ends, or the byte before which the last line begins.
        first: the offset at which the piece has to begin, -1 if it depends on the piece before.
        following: the offset at which the next segment begins, -1 after the last one.
    """

    source: int
    log: str
    path: str
    start: int
    end: int
    first: int = -1
    following: int = -1

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.start


def parts_of(path: Path) -> list[Path]:
    """The logs and histories at a path.

    Args:
        path: a ``.jsonl`` history, or a folder: log directories, a recording, or the artefacts of a test.

    Returns:
        The history, or the folder of the log directories and then the ``.jsonl`` histories next to it.
    """
    if path.suffix == HISTORY_SUFFIX:
        return [path]
    contents = contents_of(path)
    return [contents.logs, *(each for each in contents.histories if each.suffix == HISTORY_SUFFIX)]


def pieces_of(paths: Sequence[Path], piece_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces of all logs and histories in some paths, see :func:`parts_of`; of each partition its longest replica.

    Raises:
        NotALogDirectory: a folder has no partitions.
        OSError: a path cannot be read.
    """
    found = []
    parts = [(source, part) for source, path in enumerate(paths) for part in parts_of(path)]
    for source, path in parts:
        if path.suffix == HISTORY_SUFFIX:
            size = path.stat().st_size
            found += [
                Piece(source=source, log="", path=str(path), start=start, end=min(start + piece_bytes, size))
                for start in range(0, size, piece_bytes)
            ]
            continue
        replicas: dict[tuple[str, int], PartitionLog] = {}
        for log in find_logs(path):
            place = log.topic, log.partition
            if log.has_records and (place not in replicas or _size(log) > _size(replicas[place])):
                replicas[place] = log
        splits = plan(replicas.values(), piece_bytes)
        filled = {split.log for split in splits}
        for log in (each for each in replicas.values() if each not in filled):
            name, last = f"{log.topic}-{log.partition}", log.segments[-1]
            path_of_last, begins = str(log.file(last)), _base_offset(last)
            found.append(Piece(source=source, log=name, path=path_of_last, start=0, end=0, first=0, following=begins))
        for split in splits:
            later = [name for name in split.log.segments if name > split.segment]
            begins = 0 if split.segment == split.log.segments[0] else _base_offset(split.segment)
            found.append(
                Piece(
                    source=source,
                    log=f"{split.log.topic}-{split.log.partition}",
                    path=str(split.path),
                    start=split.start,
                    end=split.end,
                    first=begins if split.start == 0 else -1,
                    following=_base_offset(later[0]) if later else -1,
                )
            )
    return found


def logs_of(pieces: Iterable[Piece]) -> dict[int, frozenset[str]]:
    """Source -> the partitions whose logs are among some pieces."""
    found: dict[int, set[str]] = {piece.source: set() for piece in pieces}
    for piece in pieces:
        found[piece.source].add(piece.log)
    return {source: frozenset(logs) for source, logs in found.items()}


def _size(log: PartitionLog) -> int:
    return sum(Path(log.folder, name).stat().st_size for name in log.segments)


def _base_offset(segment: str) -> int:
    return int(segment.partition(".")[0])


def tasks_of(pieces: Sequence[Piece], task_bytes: int = PIECE_BYTES) -> list[str]:
    """Group pieces into tasks of about ``task_bytes`` bytes, each as JSON."""
    grouped: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not grouped or room < piece.size:
            grouped.append([])
            room = task_bytes
        grouped[-1].append(piece)
        room -= piece.size
    return [json.dumps([asdict(piece) for piece in task]) for task in grouped]


def rows_of(task: str, buckets: int) -> "Iterator[pa.RecordBatch]":
    """All rows of a task of :func:`tasks_of`.

    Args:
        task: the task.
        buckets: the number of shares over which the partitions of histories are spread, see :func:`event_rows`.
    """
    for row in json.loads(task):
        piece = Piece(**row)
        yield from event_rows(piece, buckets) if not piece.log else log_rows(piece)


def batch_of(columns: dict[str, Any], count: int) -> "pa.RecordBatch":
    """A batch of rows, with null for the columns that are not given."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    schema = rows_schema()
    arrays = [
        pa.nulls(count, field.type) if field.name not in columns else pa.array(columns[field.name], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@lru_cache
def rows_schema() -> "pa.Schema":
    """:data:`ROWS` for Arrow."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    types = {"bigint": pa.int64(), "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_()}
    verdict = pa.struct([(name, types[kind]) for name, kind in VERDICTS.items()])
    return pa.schema([(name, types.get(kind, verdict)) for name, kind in ROWS.items()])


def judged(verdicts: Sequence[dict[str, Any]]) -> "pa.RecordBatch":
    """Verdicts as rows; each has the columns of :data:`VERDICTS`, without those that are null."""
    full = [{**dict.fromkeys(VERDICTS), **verdict} for verdict in verdicts]
    columns = {
        "source": [verdict["source"] for verdict in full],
        "kind": [JUDGED] * len(full),
        "name": [verdict["trace"] for verdict in full],
        "log": [""] * len(full),
        "producer_id": [crc32(str(verdict["trace"]).encode()) for verdict in full],  # spreads them over workers
        "verdict": full,
    }
    return batch_of(columns, len(full))


def unreadable(piece: Piece, reason: str) -> "pa.RecordBatch":
    """The verdict on a log that gives no trace."""
    trace = piece.log or piece.path
    found = {"source": piece.source, "subject": LOG, "trace": trace, "steps": 0, "accepted": False, "reason": reason}
    return judged([found])


# --- logs --------------------------------------------------------------------------------------------------------


def log_rows(piece: Piece) -> "Iterator[pa.RecordBatch]":
    """The rows of a piece of a segment: its state records, or its batches and markers, and verdicts on damage."""
    path = Path(piece.path)
    is_state = piece.log.rpartition("-")[0] == TOPIC
    expected = piece.first
    first: FirstBatch | None = None
    for block in read_blocks(path, piece.start, piece.end, index=read_index(path)):
        headers = block.headers
        for region in headers.damage:
            unfinished = region.kind in {RegionKind.TORN_TAIL, RegionKind.ZEROES} and piece.following < 0
            if not unfinished:  # otherwise a crash cut off the last write of the log
                yield unreadable(piece, f"{path.name} at byte {region.position}: {region.reason}")
        if not len(headers):
            continue
        base = headers.column("base_offset")
        if first is None:
            first = FirstBatch(
                *(int(headers.column(name)[0]) for name in ("base_offset", "leader_epoch", "max_timestamp"))
            )
        ends = base + headers.column("last_offset_delta") + 1
        starts_at = np.concatenate(([expected if expected >= 0 else base[0]], ends[:-1]))
        cleaned = _cleaned(headers, is_state=is_state)
        holes = np.concatenate((base[base != starts_at], ends[cleaned]))
        if len(holes):
            yield hole(piece, int(holes.max()))
        expected = int(ends[-1])
        yield from _state_rows(piece, block) if is_state else _entry_rows(piece, block)
    following = _following(piece)
    if piece.first == 0 and not is_state and (first is not None or following in {-1, 0}):
        began_ms = begin_of_new(first)
        if began_ms >= 0:
            yield _of_log(piece, NEW, began_ms)
    if expected >= 0 and following not in {-1, expected}:
        yield hole(piece, following)


def _cleaned(headers: Headers, *, is_state: bool) -> NDArray[np.bool_]:
    """The batches out of which the cleaner has taken a record that a trace needs.

    :func:`kafka_eos_checks.traces.coordinators.read_recorded` knows the same ones.
    """
    count = headers.column("record_count")
    lacks = (
        count != headers.column("last_offset_delta") + 1 if is_state else is_set(headers, CONTROL_MASK) & (count == 0)
    )
    return np.asarray(lacks, dtype=np.bool_)


def hole(piece: Piece, end: int) -> "pa.RecordBatch":
    """The row of a hole of a log, which ends at an offset."""
    return _of_log(piece, HOLE, end)


def _of_log(piece: Piece, kind: int, offset: int) -> "pa.RecordBatch":
    columns = {"source": [piece.source], "kind": [kind], "log": [piece.log], "offset": [offset], "producer_id": [-1]}
    return batch_of(columns, 1)


def _following(piece: Piece) -> int:
    """The offset that follows a piece, -1 for none."""
    with Path(piece.path).open("rb", buffering=0) as file:
        file.seek(piece.end)
        head = file.read(8)
    return int.from_bytes(head, "big", signed=True) if len(head) == 8 else piece.following


_key = lru_cache(maxsize=1 << 16)(decode_key)


def _state_rows(piece: Piece, block: Block) -> "Iterator[pa.RecordBatch]":
    headers = block.headers
    records = decode_block(block)
    for region in records.damage:
        yield unreadable(piece, f"{Path(piece.path).name} at byte {region.position}: {region.reason}")
    names, producers, versions, kept, values = [], [], [], [], []
    for number, (key, value) in enumerate(zip(records.keys(), records.values(), strict=True)):
        try:
            name, told = _key(key or b"").transactional_id, read_transition(value)
        except MalformedTransactionRecord as error:
            yield unreadable(piece, f"{TOPIC} offset {int(records.offset[number])}: {error}")
            continue
        kept.append(number)
        names.append(name)
        producers.append(-1 if told is None else told.producer_id)
        versions.append(told.version if told is not None and told.state in PREPARED else None)
        values.append(value)
    columns = {
        "source": np.full(len(kept), piece.source),
        "kind": np.full(len(kept), STATE),
        "name": names,
        "log": [piece.log] * len(kept),
        "offset": records.offset[kept],
        "producer_id": producers,
        "leader_epoch": headers.column("leader_epoch")[records.batch[kept]],
        "version": versions,
        "value": values,
    }
    yield batch_of(columns, len(kept))


def _entry_rows(piece: Piece, block: Block) -> "Iterator[pa.RecordBatch]":
    headers = block.headers
    control = is_set(headers, CONTROL_MASK)
    transactional = is_set(headers, TRANSACTIONAL_MASK)
    code = np.where(transactional, TRANSACTIONAL_BATCH, PLAIN_BATCH)
    coordinator = np.full(len(headers), -1)
    mine = (headers.column("producer_id") >= 0) & ~control
    marks = marks_of(block)
    told = (marks.decision != NO_DECISION) & (marks.coordinator_epoch != NO_EPOCH)  # or the cleaner has emptied it
    rows = marks.row[told]
    mine[rows] = True
    code[rows] = np.where(marks.decision[told] == ControlType.COMMIT, COMMIT_MARKER, ABORT_MARKER)
    coordinator[rows] = marks.coordinator_epoch[told]
    count = int(mine.sum())
    columns = {
        "source": np.full(count, piece.source),
        "kind": np.full(count, ENTRY),
        "log": [piece.log] * count,
        "offset": headers.column("base_offset")[mine],
        "producer_id": headers.column("producer_id")[mine],
        "epoch": headers.column("producer_epoch")[mine],
        "leader_epoch": coordinator[mine],
        "code": code[mine],
    }
    if count:
        yield batch_of(columns, count)


# --- histories ---------------------------------------------------------------------------------------------------


def event_rows(piece: Piece, buckets: int) -> "Iterator[pa.RecordBatch]":
    """The Produce events of a piece of a history, each in its partition's bucket, and the restarts, in each bucket.

    The bucket is in the column ``producer_id``, because rows are spread by that column.
    """
    rows: list[tuple[str, int, bytes]] = []  # log, bucket, line
    try:
        for at, line in _lines(piece):
            event = event_from_json(line.decode("utf-8", "replace"), piece.path, at)
            if event.action == "Restart":
                rows += [("", bucket, line) for bucket in range(buckets)]
            elif event.action == "Produce":
                log = log_name(event)
                rows.append((log, crc32(f"{piece.source} {log}".encode()) % buckets, line))
            if len(rows) >= 1 << 14:
                yield _events(piece, rows)
                rows = []
    except MalformedHistory as error:
        reason = f"line {line_of(Path(piece.path), error.line)}: {error.reason}"
        yield unreadable(piece, f"{reason}; correct this line, or record again")
    if rows:
        yield _events(piece, rows)


def _events(piece: Piece, rows: Iterable[tuple[str, int, bytes]]) -> "pa.RecordBatch":
    logs, numbers, lines = zip(*rows, strict=True)
    columns = {
        "source": np.full(len(logs), piece.source),
        "kind": np.full(len(logs), EVENT),
        "name": [piece.path] * len(logs),
        "log": logs,
        "producer_id": numbers,
        "value": lines,
    }
    return batch_of(columns, len(logs))


def _lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """The lines that begin inside a piece, each with the byte at which it begins."""
    with Path(piece.path).open("rb", buffering=LINE_BYTES) as file:
        if piece.start:
            file.seek(piece.start - 1)
            file.readline()
        at = file.tell()
        while at < piece.end:
            line = file.readline()
            if not line:
                return
            if line.strip():
                yield at, line
            at += len(line)
