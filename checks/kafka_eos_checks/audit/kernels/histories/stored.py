"""The records of a log as rows for joins with histories: a hash of topic and value, the offset, and the state.

:func:`kafka_eos_checks.audit.segments.contents.read_contents` is the readable form. The scan gives the blocks of each
split to a :class:`SplitRecords`, which yields a row once the record's transaction is decided. The transactions that
cross the edges of splits are decided when all splits of a log meet (:func:`fold_pieces`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.segment import CorruptRegion
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
BLOCK = np.dtype([("segment", "i4"), ("start", "i8"), ("end", "i8"), ("first", "i8"), ("last", "i8")])
"""A block of a log: the number of its segment, its bytes there, and its offsets."""
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
class Piece:
    """The part of a split that is needed to fold its log.

    Attributes:
        split: the number of the split.
        start: the first offset of its batches; None without a batch.
        end: one past the last one.
        first: the offset of its first record; None without a record.
        following: one past the last one.
        holes: how many holes are between its records.
        whole: whether all its bytes are readable.
        damaged_end: whether bytes that cannot be read follow its last batch.
        stamped_ms: the last timestamp of a broker.
        goes_back: whether its offsets go backwards.
        edges: dtype :data:`_HELD`: of each producer id the records up to its first marker with this marker, and the
            records after its last one. Holes are counted from the first record of the split.
        marked: by producer id, the epoch of its last marker.
        highest_abort: as in :class:`LogEnds`.
        rewritten: as in :class:`LogEnds`, from markers that are not the first of their producer id.
        blocks: its blocks, dtype :data:`BLOCK`.
    """

    split: int
    start: int | None = None
    end: int = 0
    first: int | None = None
    following: int = 0
    holes: int = 0
    whole: bool = True
    damaged_end: bool = False
    stamped_ms: int = -1
    goes_back: bool = False
    edges: Rows = field(default_factory=lambda: np.zeros(0, _HELD))
    marked: dict[int, int] = field(default_factory=dict)
    highest_abort: dict[int, int] = field(default_factory=dict)
    rewritten: set[int] = field(default_factory=set)
    blocks: Rows = field(default_factory=lambda: np.zeros(0, BLOCK))


class SplitRecords:
    """The data records of a split as rows of dtype :data:`STORED`, from its blocks in order.

    Other splits cannot change the rows that :meth:`taken` gives. :func:`fold_pieces` gives the other ones.

    Args:
        topic: the topic of the log.
        number: the number of the log in the rows.
        split: the number of the split.
        segment: the number of its segment in the log.
        with_values: whether the values are wanted, too.
    """

    def __init__(self, topic: str, number: int, split: int, segment: int, *, with_values: bool = False) -> None:
        self.topic, self.number, self._piece = topic, number, Piece(split)
        self._values: list[tuple[int, bytes | None]] | None = [] if with_values else None
        self._segment = segment
        self._blocks: list[tuple[int, ...]] = []
        self._held = np.zeros(0, _HELD)
        self._edges: list[Rows] = []
        self._rows: list[Rows] = []

    def taken(self) -> Iterator[Rows]:
        """Yield the rows since the last call, in no particular order."""
        rows, self._rows = self._rows, []
        yield from rows

    def taken_values(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield the offsets and values of the records since the last call, if they are wanted."""
        values, self._values = self._values, None if self._values is None else []
        yield from values or ()

    def finish(self) -> Piece:
        """The part of the split that is needed to fold its log."""
        self._piece.edges = np.concatenate([*self._edges, self._held])
        self._piece.blocks = np.array(self._blocks, BLOCK)
        return self._piece

    def take(self, block: Block) -> tuple[CorruptRegion, ...]:
        """Take the next block of the split; return its batches with the right CRC whose records cannot be decoded."""
        if self._piece.goes_back:
            return ()
        records = decode_block(block)
        self._take(block, records)
        return records.damage

    def _take(self, block: Block, records: Records) -> None:
        piece, headers = self._piece, block.headers
        piece.damaged_end = bool(headers.damage)
        piece.whole = piece.whole and not headers.damage and not records.damage
        if not len(headers):
            return
        base = headers.column("base_offset")
        last = int((base + headers.column("last_offset_delta")).max())
        self._blocks.append((self._segment, block.start, headers.end, int(base.min()), last))
        piece.start = int(base[0]) if piece.start is None else piece.start
        piece.end = max(piece.end, last + 1)
        stamps = headers.column("max_timestamp")[is_set(headers, CONTROL_MASK | TIMESTAMP_TYPE_MASK)]
        piece.stamped_ms = max(piece.stamped_ms, int(stamps.max(initial=-1)))
        if not len(records):
            return
        rows = np.zeros(len(records), _HELD)
        offset = rows["offset"] = records.offset
        if piece.first is None:
            piece.first = piece.following = int(offset[0])
        before = np.concatenate(([piece.following], offset[:-1] + 1))
        if (offset < before).any():
            piece.goes_back = True
            return
        rows["holes"] = piece.holes + np.cumsum(offset != before)
        piece.holes, piece.following = int(rows["holes"][-1]), int(offset[-1]) + 1
        rows["pid"] = headers.column("producer_id")[records.batch]
        rows["epoch"] = headers.column("producer_epoch")[records.batch]
        control = is_set(headers, CONTROL_MASK)[records.batch]
        rows["kind"] = np.where(is_set(headers, TRANSACTIONAL_MASK)[records.batch], _DATA, _LOOSE)
        rows["kind"][control] = _kinds(records, np.flatnonzero(control))
        rows["key"], rows["odd"] = _keys(records, self.topic)
        if self._values is not None:
            own, values = np.flatnonzero(~control).tolist(), list(records.values())
            self._values += [(int(offset[row]), values[row]) for row in own]
        loose = rows["kind"] == _LOOSE
        if loose.any():
            self._rows.append(_told(rows[loose], self.number, PLAIN))
            rows = rows[~loose]
        self._decide(np.concatenate([self._held, rows]))

    def _decide(self, rows: Rows) -> None:
        """Decide the records with a marker, except those up to the first marker of a producer id."""
        ended = _Ended.of(rows)
        markers = ended.markers
        pids, epochs = rows["pid"][markers].tolist(), rows["epoch"][markers].tolist()
        is_first = np.zeros(len(rows), np.bool_)
        for at, pid, epoch in zip(markers.tolist(), pids, epochs, strict=True):
            is_first[at] = pid not in self._piece.marked
            self._piece.marked.setdefault(pid, epoch)
        at_edge = is_first[ended.marker]
        edges = np.sort(np.concatenate([ended.data[at_edge], np.flatnonzero(is_first)]))
        if len(edges):
            self._edges.append(rows[edges])
        later = markers[~is_first[markers]]
        _note(rows, later, ended.first, self._piece)
        inner = ended.data[~at_edge], ended.marker[~at_edge]
        if len(inner[0]):
            self._rows.append(_decided(rows, *inner, ended.first, self.number))
        self._held = rows[ended.left]


class _Ended(NamedTuple):
    """Records of transactions with their markers, as numbers of rows.

    Attributes:
        markers: the markers, shape (m,).
        data: the records that a marker follows, shape (n,), and ``marker``, this marker.
        first: for each marker the holes before the first record that it decides, shape (rows,).
        left: the records without a marker.
    """

    markers: Ints
    data: Ints
    marker: Ints
    first: Ints
    left: Ints

    @classmethod
    def of(cls, rows: Rows) -> "_Ended":
        is_marker = rows["kind"] >= _ABORTS
        following = next_markers(rows["pid"], is_marker)
        data = np.flatnonzero(~is_marker & (following >= 0))
        first = np.full(len(rows), _FAR)
        np.minimum.at(first, following[data], rows["holes"][data])
        left = np.flatnonzero(~is_marker & (following < 0))
        return cls(np.flatnonzero(is_marker), data, following[data], first, left)


def _decided(rows: Rows, data: Ints, marker: Ints, first: Ints, number: int) -> Rows:
    """Records and their markers as rows of dtype :data:`STORED`; arguments as in :class:`_Ended`."""
    kind, in_doubt = rows["kind"][marker], first[marker] < rows["holes"][marker]
    state = np.where(kind == _ABORTS, np.where(in_doubt, HIDDEN, ABORTED), np.where(in_doubt, IN_DOUBT, COMMITTED))
    state[kind == _NEITHER] = IN_DOUBT
    found = _told(rows[data], number, state)
    found["marker"] = np.where(in_doubt | (kind == _NEITHER), NO_MARKER, rows["offset"][marker])
    return found


def _note(rows: Rows, markers: Ints, first: Ints, into: "_Marked") -> None:
    """Note the facts that markers tell of their producers; arguments as in :class:`_Ended`."""
    columns = (rows["pid"], rows["epoch"], rows["kind"], first)
    for pid, epoch, ended, since in zip(*(column[markers].tolist() for column in columns), strict=True):
        if since == _FAR and into.marked.get(pid) == epoch:
            into.rewritten.add(pid)
        into.marked[pid] = epoch
        if ended == _ABORTS:
            into.highest_abort[pid] = max(epoch, into.highest_abort.get(pid, -1))


class _Marked(Protocol):
    marked: dict[int, int]
    highest_abort: dict[int, int]
    rewritten: set[int]


def _told(held: Rows, number: int, state: int | Ints) -> Rows:
    rows = np.zeros(len(held), STORED)
    for name in ("key", "offset", "odd"):
        rows[name] = held[name]
    rows["log"], rows["marker"], rows["state"] = number, NO_MARKER, state
    return rows


def fold_pieces(pieces: Sequence[Piece], number: int, ends: LogEnds) -> Iterator[Rows]:
    """The records of a log that are decided by several of its splits together, dtype :data:`STORED`.

    Args:
        pieces: those of all splits, in order.
        number: the number of the log in the rows.
        ends: filled with the facts of the whole log.

    Raises:
        Backwards: offsets go backwards.
    """
    if any(piece.goes_back for piece in pieces):
        raise Backwards
    following: int | None = None
    holes, held = 0, np.zeros(0, _HELD)
    so_far = Piece(-1, rewritten=ends.rewritten, highest_abort=ends.highest_abort)
    for piece in pieces:
        ends.damaged_end, ends.whole = piece.damaged_end, ends.whole and piece.whole
        if piece.start is not None:
            ends.start = piece.start if ends.start is None else ends.start
            ends.end, ends.stamped_ms = max(ends.end, piece.end), max(ends.stamped_ms, piece.stamped_ms)
        if piece.first is None:
            continue
        if following is not None and piece.first < following:
            raise Backwards
        ends.whole = ends.whole and not piece.holes and piece.first == (following or 0)
        holes += piece.first != following
        edges = piece.edges.copy()
        edges["holes"] += holes
        holes, following = holes + piece.holes, piece.following
        rows = np.concatenate([held, edges])
        ended = _Ended.of(rows)
        _note(rows, ended.markers, ended.first, so_far)
        if len(ended.data):
            yield _decided(rows, ended.data, ended.marker, ended.first, number)
        held = rows[ended.left]
        so_far.marked.update(piece.marked)
        ends.rewritten |= piece.rewritten
        for pid, epoch in piece.highest_abort.items():
            ends.highest_abort[pid] = max(epoch, ends.highest_abort.get(pid, -1))
    if len(held):
        _, who = np.unique(held["pid"], return_inverse=True)
        first = np.full(int(who.max()) + 1, _FAR)
        np.minimum.at(first, who, held["holes"])
        state = np.where(first[who] < holes, HIDDEN, OPEN)
        is_open = held["offset"][state == OPEN]
        ends.first_open = int(is_open.min()) if len(is_open) else None
        yield _told(held, number, state)


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


def values_at(
    log: PartitionLog, offsets: Ints, blocks: Rows | None = None, *, check_crc: bool = True
) -> Mapping[int, bytes | None]:
    """The values of some records; of several records with the same offset the last counts.

    Args:
        log: the log.
        offsets: shape (n,), ascending.
        blocks: all blocks of the log, dtype :data:`BLOCK`, of which only those with such offsets are read; without it
            the whole log is read.
        check_crc: whether to compare each batch with its CRC.
    """
    found: dict[int, bytes | None] = {}
    for block in _blocks_of(log, offsets, blocks, check_crc):
        headers = block.headers
        base = headers.column("base_offset")
        last = base + headers.column("last_offset_delta")
        which = _have(offsets, base, last) & ~is_set(headers, CONTROL_MASK)
        if not which.any():
            continue
        records = decode_block(block, which)
        rows = np.flatnonzero(np.isin(records.offset, offsets))
        values = list(records.values())
        found.update((int(records.offset[row]), values[row]) for row in rows.tolist())
    return found


def _blocks_of(log: PartitionLog, offsets: Ints, blocks: Rows | None, check_crc: bool) -> Iterator[Block]:
    if blocks is None:
        for name in log.segments:
            path = log.file(name)
            yield from read_blocks(path, end=log.end_of(name), index=read_index(path), check_crc=check_crc)
        return
    for segment, start, end, *_ in blocks[_have(offsets, blocks["first"], blocks["last"])].tolist():
        yield from read_blocks(log.file(log.segments[segment]), start, end, check_crc=check_crc)


def _have(offsets: Ints, first: Ints, last: Ints) -> NDArray[np.bool_]:
    """Whether some of the offsets, which are ascending, are in each range from first to last, shape of ``first``."""
    found: NDArray[np.bool_] = np.searchsorted(offsets, first) < np.searchsorted(offsets, last, "right")
    return found
