"""The committed offsets of ``__consumer_offsets``, all records of a block at once, as columns.

Each distinct key is decoded once. The offset has a fixed place in a value and is gathered from there. The size of a
value decides whether the rest can be read. If the value has text that is not ASCII, or unusual tagged fields, the
readable decoder, ``kafka_eos.formats.consumer_offsets``, decides record by record. Both decoders have to give the same
result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.consumer_offsets import (
    FIRST_FLEXIBLE_VERSION,
    FIRST_WITH_LEADER_EPOCH,
    NEWEST_VERSION,
    NO_LEADER_EPOCH,
    OFFSET_KEY_TYPES,
    MalformedOffsetRecord,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.internal_topics.chunks import Chunk, placed
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    Block,
    Bytes,
    Ints,
    Narrow,
    is_set,
    read_blocks,
    read_index,
)
from kafka_eos_checks.audit.segments.records import Records, decode_block
from kafka_eos_checks.audit.segments.splits import Split
from kafka_eos_checks.audit.segments.strings import are_ascii, intern, strings, texts

Name = tuple[str, tuple[str, int]]  # group, partition

NO_DECISION, NO_MARKER = -1, -2  # a marker without a decision, and a record that is no marker

_UNREADABLE, _OTHER = -2, -1  # instead of a name: a key that cannot be read, and one of another type
_MARKER_KEY_BYTES = 4  # version and type
_KEY_TYPE = OFFSET_KEY_TYPES[-1]  # the type that :class:`OffsetCommitKey` writes
_SMALLEST_KEY = 10  # bytes: its type, the lengths of two names, and a partition
_HEAD_BYTES = 16  # version, offset, and the length of the metadata in every version
_LEADER_EPOCH_AT = 10  # bytes before it, in the versions that have it
_TEXT_AT = (12, 12, 12, 16, 15)  # bytes before the metadata, by version
_BEHIND = (8, 16, 8, 8, 8)  # bytes after it, before the tagged fields, by version


@dataclass(frozen=True, slots=True)
class Commits:
    """Committed offsets and markers, every column of shape (n,).

    Attributes:
        split: number of the split in the log.
        start: first byte of the record's chunk in its segment.
        row: number of the record in its chunk.
        holes: how many holes there are before the record in its chunk.
        position: where the record's batch begins in its segment, in bytes.
        record: offset of the record in ``__consumer_offsets``.
        producer_id: the producer id of the batch, -1 outside of any transaction.
        producer_epoch: the producer epoch of the batch.
        transactional: 1 for a record of a transaction, otherwise 0.
        decision: the number of a marker's :class:`ControlType`, or -1 if it has none; -2 for a committed offset.
        key: index into ``keys``; -1 for a marker.
        tombstone: 1 if the offset was removed.
        offset: the committed offset; -1 for a tombstone and a marker.
        keys: keys of groups and partitions, all of the newer type; see :func:`name_of`.
    """

    split: Narrow
    start: Ints
    row: Narrow
    holes: Ints
    position: Ints
    record: Ints
    producer_id: Ints
    producer_epoch: Narrow
    transactional: Narrow
    decision: Narrow
    key: Narrow
    tombstone: Narrow
    offset: Ints
    keys: list[bytes]

    def __len__(self) -> int:
        return len(self.split)

    def take(self, which: NDArray[Any] | slice) -> "Commits":
        """Some of the records: an index array, a mask or a slice; the keys stay."""
        return replace(self, **{name: getattr(self, name)[which] for name in COLUMNS})


COLUMNS = tuple(each.name for each in fields(Commits) if each.name != "keys")
_WIDE = {each.name for each in fields(Commits) if each.type is Ints}


def concatenate_commits(parts: Sequence[Commits]) -> Commits:
    """Records of several chunks one after the other; equal keys become one."""
    known: dict[bytes, int] = {}
    columns: dict[str, list[NDArray[Any]]] = {
        name: [np.empty(0, np.int64 if name in _WIDE else np.int32)] for name in COLUMNS
    }
    for part in parts:
        for name in COLUMNS:
            columns[name].append(getattr(part, name))
        numbers = [known.setdefault(each, len(known)) for each in part.keys]
        columns["key"][-1] = np.array([*numbers, -1], np.int32)[part.key]  # -1 stays -1
    merged: dict[str, Any] = {name: np.concatenate(own) for name, own in columns.items()}
    return Commits(**merged, keys=list(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChunk(Chunk):
    """A chunk of a log of ``__consumer_offsets``.

    Attributes:
        damaged: whether a region of it cannot be read.
        stamped_ms: the last timestamp of the group's coordinator; -1 for none.
        commits: the committed offsets and markers.
    """

    damaged: bool
    stamped_ms: int
    commits: Commits

    def bare(self) -> "CommitChunk":
        """The facts of the chunk, without its records."""
        return replace(self, commits=concatenate_commits([]))


def commit_rows(split: Split, check_crc: bool = True) -> Iterator[CommitChunk]:
    """Read a split of a log of ``__consumer_offsets``, chunk by chunk.

    Raises:
        OSError: the segment cannot be read, or it changes meanwhile.
    """
    for block in read_blocks(split.path, split.start, split.end, index=read_index(split.path), check_crc=check_crc):
        yield chunk_of(block, split.number, split.segment)


def chunk_of(block: Block, split: int = 0, segment: str = "") -> CommitChunk:
    """The committed offsets in a block of a log of ``__consumer_offsets``."""
    records, headers = decode_block(block), block.headers
    count, batch = len(records), records.batch
    control = is_set(headers, CONTROL_MASK)[batch]
    number, offset, keys = decode_commits(records, control)
    places, facts = placed(block, records, number == _UNREADABLE, split, segment)
    decision = np.full(count, NO_MARKER, np.int32)
    decision[control] = decode_decisions(records, np.flatnonzero(control))
    commits = Commits(
        **places,
        record=records.offset,
        producer_id=headers.column("producer_id")[batch],
        producer_epoch=headers.narrow("producer_epoch")[batch],
        transactional=is_set(headers, TRANSACTIONAL_MASK)[batch].astype(np.int32),
        decision=decision,
        key=np.maximum(number, -1),
        tombstone=((number >= 0) & (records.value_size < 0)).astype(np.int32),
        offset=offset,
        keys=keys,
    )
    return CommitChunk(
        **facts,
        damaged=bool(headers.damage or records.damage),
        stamped_ms=int(headers.column("max_timestamp").max(initial=-1)),
        commits=commits.take((number >= 0) | control),
    )


def decode_decisions(records: Records, markers: Ints) -> Narrow:
    """The decisions of some control records, shape (m,); the same as :func:`segments.marks.decision_of` gives."""
    told = records.key_size[markers] >= _MARKER_KEY_BYTES
    if not len(markers):
        return np.empty(0, np.int32)
    start = np.where(told, records.key_start[markers], 0)
    heads = np.lib.stride_tricks.sliding_window_view(records.buffer, _MARKER_KEY_BYTES)[start]
    number = _integers(heads, 2, ">i2")
    known = told & ((number == ControlType.ABORT) | (number == ControlType.COMMIT))
    return np.where(known, number, NO_DECISION).astype(np.int32)


def decode_commits(records: Records, control: NDArray[np.bool_]) -> tuple[Narrow, Ints, list[bytes]]:
    """The keys and values of records.

    Args:
        records: the records of a block.
        control: which of them are of control batches, shape (n,).

    Returns:
        Each record's key as an index into the keys, -1 for records of other types and control records, -2 where key
        or value cannot be read, shape (n,); the offset, -1 where there is none, shape (n,); and the keys.
    """
    count = len(records)
    number, keys = _keys(records)
    number[control] = _OTHER
    offset = np.full(count, -1, np.int64)
    rows = np.flatnonzero((number >= 0) & (records.value_size >= 0))
    layout = _layout(records, rows)
    offset[rows] = layout.offset
    for row in rows[~layout.regular].tolist():
        value = _value(records, row)
        if value is None:
            number[row], offset[row] = _UNREADABLE, -1
        else:
            offset[row] = value.offset
    return number, offset, keys


class Details(NamedTuple):
    """Fields of committed offsets besides the offset, every column of shape (m,).

    Attributes:
        leader_epoch: the leader epoch of the record before the offset, -1 if it is not known.
        metadata: the text that the client added.
        commit_timestamp: the time of the commit, in milliseconds since the epoch.
    """

    leader_epoch: Ints
    metadata: list[str]
    commit_timestamp: Ints


def decode_details(records: Records, rows: Ints) -> Details:
    """The other fields of records for which :func:`decode_commits` gives an offset, shape (m,)."""
    layout = _layout(records, rows)
    start, regular = records.value_start[rows], layout.regular
    told = regular & (layout.version >= FIRST_WITH_LEADER_EPOCH)
    leader_epoch = np.full(len(rows), NO_LEADER_EPOCH, np.int64)
    leader_epoch[told] = _integers_at(records.buffer, start[told] + _LEADER_EPOCH_AT, ">i4")
    commit_timestamp = np.full(len(rows), -1, np.int64)
    behind = layout.text_start + layout.text_size
    commit_timestamp[regular] = _integers_at(records.buffer, behind[regular], ">i8")
    metadata = texts(records.buffer, layout.text_start, np.where(regular, layout.text_size, 0))
    for i in np.flatnonzero(~regular).tolist():
        value = _value(records, int(rows[i]))
        assert value is not None, "a record with an offset"
        leader_epoch[i], metadata[i], commit_timestamp[i] = (
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp_ms,
        )
    return Details(leader_epoch, metadata, commit_timestamp)


def _value(records: Records, row: int) -> OffsetCommitValue | None:
    """The value as the readable decoder reads it; None if it cannot be read."""
    start = int(records.value_start[row])
    try:
        return decode_value(records.buffer[start : start + int(records.value_size[row])].tobytes())
    except MalformedOffsetRecord:
        return None


def _keys(records: Records) -> tuple[Narrow, list[bytes]]:
    """The key of each record as an index, or a negative number for the reason why there is none, and the keys."""
    buffer, start, size = records.buffer, records.key_start, np.maximum(records.key_size, 0)
    codes, first = intern(buffer, start, size)
    start, size = start[first], size[first]
    plain = _plain_keys(buffer, start, size)
    keys = strings(buffer, start[plain], size[plain])
    numbers = np.full(len(first), _UNREADABLE, np.int32)
    numbers[plain] = np.arange(len(keys))
    others = np.flatnonzero(~plain)
    known = {key: number for number, key in enumerate(keys)} if len(others) else {}
    for number, key in zip(others.tolist(), strings(buffer, start[others], size[others]), strict=True):
        try:
            named = decode_key(key)
        except MalformedOffsetRecord:
            continue
        own = None if named is None else replace(named, key_type=_KEY_TYPE).encode()
        numbers[number] = _OTHER if own is None else known.setdefault(own, len(known))
    return numbers[codes], list(known) or keys


def _plain_keys(buffer: Bytes, start: Ints, size: Ints) -> NDArray[np.bool_]:
    """Whether each key is certainly that of a group and a partition, with ASCII names, of the newer type."""
    plain = size >= _SMALLEST_KEY
    if not plain.any():
        return plain
    windows = np.lib.stride_tricks.sliding_window_view(buffer, 4)
    head = windows[np.where(plain, start, 0)]
    group = _integers(head, 2, ">i2")
    plain &= (_integers(head, 0, ">i2") == _KEY_TYPE) & (group >= 0) & (group <= size - _SMALLEST_KEY)
    group = np.where(plain, group, 0)
    topic = _integers(windows[np.where(plain, start + 4 + group, 0)], 0, ">i2")
    plain &= (topic >= 0) & (size == _SMALLEST_KEY + group + topic)
    begin = start + 4
    plain[plain] = are_ascii(buffer, begin[plain], group[plain])
    begin = begin + group + 2
    plain[plain] = are_ascii(buffer, begin[plain], topic[plain])
    return plain


def name_of(key: bytes) -> Name:
    """The group and partition of a key of a committed offset."""
    named = decode_key(key)
    assert named is not None, "a key of a committed offset"
    return named.group, (named.topic, named.partition)


class _Layout(NamedTuple):
    """The places of the fields of some values, every column of shape (m,).

    Attributes:
        regular: whether the value certainly has this layout, with metadata in ASCII.
        version: the version of the format; 0 if it is unknown.
        offset: the committed offset.
        text_start: where the metadata begin in the buffer.
        text_size: bytes of the metadata.
    """

    regular: NDArray[np.bool_]
    version: Ints
    offset: Ints
    text_start: Ints
    text_size: Ints


def _layout(records: Records, rows: Ints) -> _Layout:
    """The layout of the values of some records, shape (m,)."""
    buffer, start, size = records.buffer, records.value_start[rows], records.value_size[rows]
    regular = size >= _HEAD_BYTES
    if not len(rows):
        return _Layout(regular, start, start, start, size)
    head = np.lib.stride_tricks.sliding_window_view(buffer, _HEAD_BYTES)[np.where(regular, start, 0)]
    version = _integers(head, 0, ">i2")
    regular &= (version >= 0) & (version <= NEWEST_VERSION)
    version = np.where(regular, version, 0)
    text_at, behind = np.array(_TEXT_AT)[version], np.array(_BEHIND)[version]
    flexible = version >= FIRST_FLEXIBLE_VERSION
    length = _integers(head, 10, ">i2")
    late = np.flatnonzero(version == FIRST_FLEXIBLE_VERSION - 1)
    length[late] = _integers(head[late], 14, ">i2")
    if flexible.any():
        length[flexible] = head[flexible, 14].astype(np.int64) - 1
        regular[flexible] &= head[flexible, 14] < 0x80
    regular &= length >= 0
    length = np.where(regular, length, 0)
    tags = _tags(buffer, start + text_at + length + behind, np.flatnonzero(flexible), len(rows))
    regular &= size == text_at + length + behind + tags
    written = np.flatnonzero(regular & (length > 0))
    regular[written] = are_ascii(buffer, (start + text_at)[written], length[written])
    return _Layout(regular, version, _integers(head, 2, ">i8"), start + text_at, length)


def _tags(buffer: Bytes, at: Ints, flexible: Ints, count: int) -> Ints:
    """Bytes of the tagged fields of each record, if it has at most one short field; otherwise an impossible number."""
    size = np.zeros(count, np.int64)
    if len(flexible):
        number, tag, length = (buffer.take(at[flexible] + i, mode="clip").astype(np.int64) for i in range(3))
        single = (number == 1) & (tag < 0x80) & (length < 0x80)
        size[flexible] = np.where(single, 3 + length, np.where(number == 0, 1, -(1 << 32)))
    return size


def _integers(head: NDArray[np.uint8], at: int, layout: str) -> Ints:
    """A field of all heads, shape (m,)."""
    size = np.dtype(layout).itemsize
    return np.ascontiguousarray(head[:, at : at + size]).view(layout)[:, 0].astype(np.int64)


def _integers_at(buffer: Bytes, start: Ints, layout: str) -> Ints:
    """Integers anywhere in a buffer, shape (m,)."""
    size = np.dtype(layout).itemsize
    return _integers(np.lib.stride_tricks.sliding_window_view(buffer, size)[start], 0, layout)
