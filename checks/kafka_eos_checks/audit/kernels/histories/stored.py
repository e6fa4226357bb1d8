"""The records of a log as rows for joins with histories: a hash of topic and value, the offset, and the state.

:func:`kafka_eos_checks.audit.segments.contents.read_contents` is the readable form. A row is yielded once the record's
transaction is decided, so that only the records of open transactions are held in memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.events.recorded import Hashes, Rows, key_hashes, text_hash
from kafka_eos_checks.audit.kernels.coordinators.group_log import next_markers
from kafka_eos_checks.audit.segments.contents import Contents, read_contents
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Block,
    Ints,
    is_set,
    read_blocks,
    read_index,
)
from kafka_eos_checks.audit.segments.records import Records, decode_block
from kafka_eos_checks.audit.segments.splits import PartitionLog
from kafka_eos_checks.audit.segments.strings import are_ascii, strings

STORED = np.dtype(
    [
        ("key", "u8"),  # topic and value as text; a null value counts as an empty one
        ("offset", "i8"),
        ("marker", "i8"),  # offset of the marker that decided it, or NO_MARKER
        ("log", "i4"),
        ("state", "u1"),
        ("odd", "?"),  # the value is null or not UTF-8, which the hash does not show
    ]
)
NO_MARKER = -1
PLAIN, COMMITTED, ABORTED, OPEN, IN_DOUBT, HIDDEN = range(6)
"""The states of a record: outside of transactions; in a transaction that is committed, aborted or open at the end; or
visible or hidden although the transaction's own marker may be in a hole."""
VISIBLE = np.array([True, True, False, False, True, False])
_FAR = np.iinfo(np.int64).max


@dataclass(slots=True)
class LogEnds:
    """The facts of a whole log: those of :class:`contents.Contents`, and ``first_open``, the lowest open offset."""

    start: int | None = None
    end: int = 0
    whole: bool = True
    damaged_end: bool = False
    stamped_ms: int = -1
    highest_abort: dict[int, int] = field(default_factory=dict)
    rewritten: set[int] = field(default_factory=set)
    first_open: int | None = None

    def contents(self) -> Contents:
        """The log without its records."""
        return Contents(
            start=self.start,
            end=self.end,
            whole=self.whole,
            damaged_end=self.damaged_end,
            stamped_ms=self.stamped_ms,
            highest_abort=self.highest_abort,
            rewritten=self.rewritten,
            open=set() if self.first_open is None else {self.first_open},
        )


_HELD = np.dtype([("key", "u8"), ("offset", "i8"), ("pid", "i8"), ("holes", "i8"), ("epoch", "i4"), ("kind", "i1"),
                  ("odd", "?")])  # fmt: skip
_DATA, _LOOSE, _ABORTS, _COMMITS, _NEITHER = range(5)  # kinds: data in a transaction or not, markers


class Backwards(Exception):  # noqa: N818 - a signal
    """Raised when offsets of a log go backwards; :func:`stored_backwards` then gives its rows."""


@dataclass(slots=True)
class _Fold:
    log: PartitionLog
    number: int
    ends: LogEnds
    following: int | None = None
    holes: int = 0
    held: Rows = field(default_factory=lambda: np.zeros(0, _HELD))
    marked: dict[int, int] = field(default_factory=dict)

    def take(self, block: Block) -> Iterator[Rows]:
        """Yield the records of a block that are decided, and the held records that the block decides."""
        headers, records = block.headers, decode_block(block)
        ends = self.ends
        ends.damaged_end = bool(headers.damage)
        ends.whole = ends.whole and not headers.damage and not records.damage
        if not len(headers):
            return
        base = headers.column("base_offset")
        ends.start = int(base[0]) if ends.start is None else ends.start
        ends.end = max(ends.end, int((base + headers.column("last_offset_delta")).max()) + 1)
        stamps = headers.column("max_timestamp")[is_set(headers, CONTROL_MASK | TIMESTAMP_TYPE_MASK)]
        ends.stamped_ms = max(ends.stamped_ms, int(stamps.max(initial=-1)))
        if not len(records):
            return
        rows = np.zeros(len(records), _HELD)
        offset = rows["offset"] = records.offset
        before = np.concatenate(([-1 if self.following is None else self.following], offset[:-1] + 1))
        if (offset < before).any():
            raise Backwards
        gaps = offset != before
        if self.following is None:
            gaps[0] = True
            ends.whole = ends.whole and int(offset[0]) == 0 and not gaps[1:].any()
        else:
            ends.whole = ends.whole and not gaps.any()
        rows["holes"] = self.holes + np.cumsum(gaps)
        self.holes, self.following = int(rows["holes"][-1]), int(offset[-1]) + 1
        rows["pid"] = headers.column("producer_id")[records.batch]
        rows["epoch"] = headers.column("producer_epoch")[records.batch]
        control = is_set(headers, CONTROL_MASK)[records.batch]
        rows["kind"] = np.where(is_set(headers, TRANSACTIONAL_MASK)[records.batch], _DATA, _LOOSE)
        rows["kind"][control] = _kinds(records, np.flatnonzero(control))
        rows["key"], rows["odd"] = _keys(records, self.log.topic)
        loose = rows[rows["kind"] == _LOOSE]
        if len(loose):
            yield self._told(loose, PLAIN)
        yield from self._decide(np.concatenate([self.held, rows[rows["kind"] != _LOOSE]]))

    def _decide(self, rows: Rows) -> Iterator[Rows]:
        is_marker = rows["kind"] >= _ABORTS
        if not is_marker.any():
            self.held = rows
            return
        following = next_markers(rows["pid"], is_marker)
        data = np.flatnonzero(~is_marker & (following >= 0))
        marker = following[data]
        first = np.full(len(rows), _FAR)
        np.minimum.at(first, marker, rows["holes"][data])
        kind = rows["kind"][marker]
        in_doubt = first[marker] < rows["holes"][marker]
        state = np.where(kind == _ABORTS, np.where(in_doubt, HIDDEN, ABORTED), np.where(in_doubt, IN_DOUBT, COMMITTED))
        state[kind == _NEITHER] = IN_DOUBT
        decided = self._told(rows[data], state)
        decided["marker"] = np.where(in_doubt | (kind == _NEITHER), NO_MARKER, rows["offset"][marker])
        if len(decided):
            yield decided
        markers = np.flatnonzero(is_marker)
        columns = (rows["pid"], rows["epoch"], rows["kind"], first)
        for pid, epoch, ended, since in zip(*(column[markers].tolist() for column in columns), strict=True):
            if since == _FAR and self.marked.get(pid) == epoch:
                self.ends.rewritten.add(pid)
            self.marked[pid] = epoch
            if ended == _ABORTS:
                self.ends.highest_abort[pid] = max(epoch, self.ends.highest_abort.get(pid, -1))
        self.held = rows[~is_marker & (following < 0)]

    def finish(self) -> Iterator[Rows]:
        """Yield the records whose transaction is open at the end."""
        if not len(self.held):
            return
        _, who = np.unique(self.held["pid"], return_inverse=True)
        first = np.full(int(who.max()) + 1, _FAR)
        np.minimum.at(first, who, self.held["holes"])
        state = np.where(first[who] < self.holes, HIDDEN, OPEN)
        is_open = self.held["offset"][state == OPEN]
        self.ends.first_open = int(is_open.min()) if len(is_open) else None
        yield self._told(self.held, state)

    def _told(self, held: Rows, state: int | Ints) -> Rows:
        rows = np.zeros(len(held), STORED)
        for name in ("key", "offset", "odd"):
            rows[name] = held[name]
        rows["log"], rows["marker"], rows["state"] = self.number, NO_MARKER, state
        return rows


def stored(log: PartitionLog, number: int, ends: LogEnds, *, check_crc: bool = True) -> Iterator[Rows]:
    """The data records of a log as rows of dtype :data:`STORED`, in no particular order, some at a time.

    Args:
        log: the log.
        number: the number of the log in the rows.
        ends: filled with the facts of the whole log.
        check_crc: whether to compare each batch with its CRC.

    Raises:
        Backwards: offsets go backwards.
    """
    fold = _Fold(log, number, LogEnds())
    for name in log.segments:
        path = log.file(name)
        for block in read_blocks(path, index=read_index(path), check_crc=check_crc):
            yield from fold.take(block)
    yield from fold.finish()
    for name in LogEnds.__slots__:
        setattr(ends, name, getattr(fold.ends, name))


def stored_backwards(log: PartitionLog, number: int, ends: LogEnds, *, check_crc: bool = True) -> Rows:
    """The rows of a log whose offsets go backwards; of several records with the same offset the last counts."""
    contents = read_contents(log, check_crc)
    for name in LogEnds.__slots__:
        if name != "first_open":
            setattr(ends, name, getattr(contents, name))
    ends.first_open = min(contents.open, default=None)
    rows = np.zeros(len(contents.values), STORED)
    rows["log"], rows["marker"] = number, NO_MARKER
    topic = text_hash(log.topic)
    for place, (offset, value) in enumerate(contents.values.items()):
        raw = (value or b"").decode(errors="replace").encode()
        rows["key"][place] = key_hashes(np.frombuffer(raw, np.uint8), np.zeros(1, np.int64), np.array([len(raw)]),
                                        topic)[0]  # fmt: skip
        rows["offset"][place], rows["odd"][place] = offset, value is None or raw != value
        if offset in contents.open:
            rows["state"][place] = OPEN
        elif offset in contents.aborted:
            rows["state"][place], rows["marker"][place] = ABORTED, contents.aborted[offset]
        elif offset in contents.committed:
            rows["state"][place], rows["marker"][place] = COMMITTED, contents.committed[offset]
        elif offset in contents.hidden:
            rows["state"][place] = HIDDEN
        else:
            rows["state"][place] = IN_DOUBT
    return rows


def _kinds(records: Records, markers: Ints) -> NDArray[np.int8]:
    """The kinds of markers, shape (m,): the type is the third and fourth byte of a key of at least four."""
    start, size = records.key_start[markers], records.key_size[markers]
    has = size >= 4
    at = np.where(has, start, 0)
    high, low = records.buffer[at + 2], records.buffer[at + 3]
    kind = np.where(low == 0, _ABORTS, np.where(low == 1, _COMMITS, _NEITHER))
    found: NDArray[np.int8] = np.where(has & (high == 0), kind, _NEITHER).astype(np.int8)
    return found


def _keys(records: Records, topic: str) -> tuple[Hashes, NDArray[np.bool_]]:
    """Hashes of topic and value, and whether each value is null or not UTF-8, which its hash does not show."""
    size = np.maximum(records.value_size, 0)
    found = key_hashes(records.buffer, records.value_start, size, text_hash(topic))
    odd = records.value_size < 0
    other = np.flatnonzero(~are_ascii(records.buffer, records.value_start, size))
    if len(other):
        raw = strings(records.buffer, records.value_start[other], size[other])
        texts = [each.decode(errors="replace").encode() for each in raw]
        odd[other] = [text != each for text, each in zip(texts, raw, strict=True)]
        sizes = np.array([len(text) for text in texts], np.int64)
        joined = np.frombuffer(b"".join(texts), np.uint8)
        found[other] = key_hashes(joined, np.cumsum(sizes) - sizes, sizes, text_hash(topic))
    return found, odd


def values_at(log: PartitionLog, offsets: Ints, *, check_crc: bool = True) -> Mapping[int, bytes | None]:
    """The values of some records; of several records with the same offset the last counts.

    Args:
        log: the log.
        offsets: shape (n,), ascending.
        check_crc: whether to compare each batch with its CRC.
    """
    found: dict[int, bytes | None] = {}
    for name in log.segments:
        path = log.file(name)
        for block in read_blocks(path, index=read_index(path), check_crc=check_crc):
            headers = block.headers
            base = headers.column("base_offset")
            last = base + headers.column("last_offset_delta")
            which = np.searchsorted(offsets, base) < np.searchsorted(offsets, last, "right")
            which &= ~is_set(headers, CONTROL_MASK)
            if not which.any():
                continue
            records = decode_block(block, which)
            rows = np.flatnonzero(np.isin(records.offset, offsets))
            values = list(records.values())
            found.update((int(records.offset[row]), values[row]) for row in rows.tolist())
    return found
