"""The records of ``__transaction_state``, all of a block at once, as columns.

The fields with a fixed place are gathered from all records side by side. The partitions of a transaction are a byte
string. It ends where the fields after it begin; these are found from the end of the value by the tags that Kafka
writes. Each distinct string is decoded once. Values of another form are decoded by the readable decoder,
``kafka_eos.formats.transaction_log``, record by record. Both decoders have to give the same result.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.segment import CorruptRegion, RegionKind
from kafka_eos.formats.transaction_log import (
    KEY_VERSION,
    NEWEST_VERSION,
    MalformedTransactionRecord,
    TopicPartitions,
    TransactionLogValue,
    TransactionState,
    UnknownVersion,
    decode_key,
    decode_value,
)
from kafka_eos_checks.audit.internal_topics.chunks import Chunk, placed
from kafka_eos_checks.audit.segments.headers import Block, Bytes, Ints, Narrow, read_blocks, read_index
from kafka_eos_checks.audit.segments.order import stable_order
from kafka_eos_checks.audit.segments.records import Records, decode_block, region_of
from kafka_eos_checks.audit.segments.splits import Split
from kafka_eos_checks.audit.segments.strings import are_ascii, intern, strings, texts

Places = frozenset[tuple[str, int]]

TOMBSTONE = -1  # in the columns of the version and the status

UNREADABLE_REGIONS = frozenset({RegionKind.CORRUPT, RegionKind.OLD_FORMAT})  # regions that may have had states

_HEAD = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("transaction_timeout_ms", ">i4"),
        ("transaction_status", "i1"),
    ]
)
_TIMES = [("transaction_last_update_timestamp_ms", ">i8"), ("transaction_start_timestamp_ms", ">i8")]
_TAGGED = (  # by tag
    ("previous_producer_id", ">i8"),
    ("next_producer_id", ">i8"),
    ("client_transaction_version", ">i2"),
    ("next_producer_epoch", ">i2"),
)
_DEFAULTS = {each.name: each.default for each in fields(TransactionLogValue)}
_SMALLEST_LIST = (4, 1)  # bytes of an empty array, by version
_TAIL_BYTES = 32  # enough for all tagged fields; not more than any value of version 1 has
_KEY_HEAD = np.dtype([("version", ">i2"), ("size", ">i2")])  # before a transactional id


class _Ending(NamedTuple):
    """A form of the end of a value: the times, and a selection of tagged fields.

    Attributes:
        layout: the fields from the times on.
        masks: the bits of the value's last words that are the same in all values of this form, shape (4,).
        expected: these bits, shape (4,).
    """

    layout: np.dtype[np.void]
    masks: NDArray[np.uint64]
    expected: NDArray[np.uint64]


def _ending(tags: Sequence[int]) -> _Ending:
    layout: list[tuple[str, str]] = [*_TIMES, ("count", "u1")]
    tail: list[tuple[int, int]] = [(0xFF, len(tags))]
    for tag in tags:
        name, kind = _TAGGED[tag]
        size = np.dtype(kind).itemsize
        layout += [(f"tag{tag}", "u1"), (f"size{tag}", "u1"), (name, kind)]
        tail += [(0xFF, tag), (0xFF, size), *[(0, 0)] * size]
    padded = [(0, 0)] * (_TAIL_BYTES - len(tail)) + tail
    masks, expected = (np.array(column, np.uint8).view("<u8") for column in zip(*padded, strict=True))
    return _Ending(np.dtype(layout), masks, expected)


_SIMPLE = _Ending(np.dtype(_TIMES), np.zeros(4, np.uint64), np.zeros(4, np.uint64))  # of version 0
_FLEXIBLE = sorted(
    (_ending([tag for tag in range(len(_TAGGED)) if chosen >> tag & 1]) for chosen in range(1 << len(_TAGGED))),
    key=lambda ending: ending.layout.itemsize,
)


@dataclass(frozen=True, slots=True)
class States:
    """Records of ``__transaction_state`` whose key and value can be read, every column of shape (n,).

    The columns from ``version`` on are the fields of :class:`TransactionLogValue`; of a tombstone all of them are -1.

    Attributes:
        split: number of the split in the log.
        start: first byte of the record's chunk in its segment.
        row: number of the record in its chunk.
        holes: how many holes there are before the record in its chunk.
        position: where the record's batch begins in its segment, in bytes.
        offset: the offset of the record.
        stamped_ms: when the coordinator appended it, in milliseconds since the epoch.
        transactional_id: index into ``names``.
        version: the version of the format; -1 for a tombstone.
        partitions: index into ``lists``.
        raw: index into ``raws`` of a value that has more than these columns; -1 for all others.
        names: transactional ids.
        lists: version of the format and bytes of an array of partitions.
        raws: values.
    """

    split: Narrow
    start: Ints
    row: Narrow
    holes: Ints
    position: Ints
    offset: Ints
    stamped_ms: Ints
    transactional_id: Narrow
    version: Narrow
    producer_id: Ints
    producer_epoch: Narrow
    transaction_timeout_ms: Narrow
    transaction_status: Narrow
    partitions: Narrow
    transaction_last_update_timestamp_ms: Ints
    transaction_start_timestamp_ms: Ints
    previous_producer_id: Ints
    next_producer_id: Ints
    client_transaction_version: Narrow
    next_producer_epoch: Narrow
    raw: Narrow
    names: list[str]
    lists: list[tuple[int, bytes]]
    raws: list[bytes]

    def __len__(self) -> int:
        return len(self.split)

    def take(self, which: NDArray[Any] | slice) -> "States":
        """Some of the records: an index array, a mask or a slice; the strings stay."""
        return replace(self, **{name: getattr(self, name)[which] for name in COLUMNS})

    def scattered(self, bucket: Ints, buckets: int) -> Iterator[tuple[int, "States"]]:
        """The records of each bucket that has some, with only their own strings; ``bucket`` has shape (n,)."""
        order = stable_order(bucket)
        ordered = self.take(order)
        cuts = np.searchsorted(bucket[order], np.arange(buckets + 1)).tolist()
        for number, (begin, end) in enumerate(pairwise(cuts)):
            if begin < end:
                yield number, ordered.compact(slice(begin, end))

    def compact(self, which: NDArray[Any] | slice) -> "States":
        """Some of the records as :meth:`take` gives them, with only their own strings."""
        some = self.take(which)
        found: dict[str, Any] = {}
        for name, interned in zip(("transactional_id", "partitions", "raw"), _STRINGS, strict=True):
            numbers, strings = getattr(some, name), getattr(self, interned)
            used, places = _used(numbers[numbers >= 0], len(strings))
            found[name] = numbers.copy()
            found[name][numbers >= 0] = places
            found[interned] = [strings[number] for number in used.tolist()]
        return replace(some, **found)

    def values(self) -> Iterator[TransactionLogValue | None]:
        """The values, one after the other; None for a tombstone."""
        numbers = [getattr(self, name).tolist() for name in _NUMBERS]
        rest = zip(self.partitions.tolist(), self.raw.tolist(), *numbers, strict=True)
        for partitions, raw, version, status, *others in rest:
            if version == TOMBSTONE:
                yield None
            elif raw >= 0:
                yield decode_value(self.raws[raw])
            else:
                yield TransactionLogValue(
                    version=version,
                    transaction_status=TransactionState(status),
                    transaction_partitions=decode_partitions(*self.lists[partitions]),
                    **dict(zip(_NUMBERS[2:], others, strict=True)),
                )


def _used(numbers: NDArray[Any], count: int) -> tuple[Ints, Ints]:
    """The different numbers below ``count`` that occur, ascending, and the place of each number among them."""
    if count > 8 * len(numbers):  # to sort the few is faster than to go through the many
        return np.unique(numbers, return_inverse=True)
    occurs = np.zeros(count, np.bool_)
    occurs[numbers] = True
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[numbers]


_STRINGS = ("names", "lists", "raws")
COLUMNS = tuple(each.name for each in fields(States) if each.name not in _STRINGS)
_NUMBERS = (
    "version",
    "transaction_status",
    *(name for name in COLUMNS if name in _DEFAULTS and name not in {"version", "transaction_status"}),
)
_WIDE = {each.name for each in fields(States) if each.type is Ints}


def no_states() -> States:
    """No records."""
    columns: dict[str, Any] = {name: np.empty(0, np.int64 if name in _WIDE else np.int32) for name in COLUMNS}
    return States(**columns, names=[], lists=[], raws=[])


def concatenate_states(parts: Sequence[States]) -> States:
    """Records of several chunks one after the other; equal strings become one."""
    if len(parts) < 2:
        return parts[0] if parts else no_states()
    columns: dict[str, Any] = {name: [getattr(part, name) for part in parts] for name in COLUMNS}
    merged: dict[str, Any] = {}
    for name, index in zip(_STRINGS, ("transactional_id", "partitions", "raw"), strict=True):
        known: dict[Any, int] = {}
        for i, part in enumerate(parts):
            numbers = [known.setdefault(each, len(known)) for each in getattr(part, name)]
            columns[index][i] = np.array([*numbers, -1], np.int32)[columns[index][i]]  # -1 stays -1
        merged[name] = list(known)
    merged.update((name, np.concatenate(own)) for name, own in columns.items())
    return States(**merged)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChunk(Chunk):
    """A chunk of a log of ``__transaction_state``.

    Attributes:
        unreadable: records whose key or value is malformed, or of no known version.
        damaged_at: where the first unreadable region begins that may have had states, in bytes; -1 for none.
        stamped_ms: the last timestamp of a coordinator; -1 for none.
        led: the leader epoch of the last record, and the time of the first record with this epoch; -1 for none.
        states: the records that can be read.
    """

    unreadable: int
    damaged_at: int
    stamped_ms: int
    led: tuple[int, int]
    states: States

    def bare(self) -> "StateChunk":
        """The facts of the chunk, without its records."""
        return replace(self, states=no_states())


def state_rows(split: Split, check_crc: bool = True) -> Iterator[StateChunk]:
    """Read a split of a log of ``__transaction_state``, chunk by chunk.

    Raises:
        OSError: the segment cannot be read, or it changes meanwhile.
    """
    for block in read_blocks(split.path, split.start, split.end, index=read_index(split.path), check_crc=check_crc):
        yield chunk_of(block, split.number, split.segment)


def chunk_of(block: Block, split: int = 0, segment: str = "") -> StateChunk:
    """The records of a block of a log of ``__transaction_state``."""
    records = decode_block(block)
    headers = block.headers
    regions = [each.position for each in (*headers.damage, *records.damage) if each.kind in UNREADABLE_REGIONS]
    columns, readable, found = decode_states(records)
    places, facts = placed(block, records, ~readable, split, segment)
    stamped = headers.column("max_timestamp")[records.batch]
    states = States(**places, offset=records.offset, stamped_ms=stamped, **columns, **found)
    unreadable = len(records) - int(np.count_nonzero(readable))
    if unreadable:
        facts["undecoded"] += tuple(_broken(block, records, np.flatnonzero(~readable)))
    return StateChunk(
        **facts,
        unreadable=unreadable,
        damaged_at=min(regions, default=-1),
        stamped_ms=int(stamped.max(initial=-1)),
        led=_led(headers.column("leader_epoch")[records.batch], stamped),
        states=states.take(readable) if unreadable else states,
    )


def _broken(block: Block, records: Records, rows: Ints) -> Iterator[CorruptRegion]:
    """The batches of records that are malformed, unless by an unknown version, which a coordinator passes over."""
    keys, values = list(records.keys()), list(records.values())
    for row in rows.tolist():
        try:
            decode_key(keys[row] or b"")
            decode_value(values[row])
        except UnknownVersion:
            continue
        except MalformedTransactionRecord as error:
            reason = f"the record of offset {records.offset[row]}: {error}"
            yield region_of(block.headers, int(records.batch[row]), reason)


def _led(epoch: Ints, stamped: Ints) -> tuple[int, int]:
    """The last leader epoch of records, and the time of the first record of its last run."""
    if not len(epoch):
        return -1, -1
    others = np.flatnonzero(epoch != epoch[-1])
    return int(epoch[-1]), int(stamped[others[-1] + 1 if len(others) else 0])


def decode_states(records: Records) -> tuple[dict[str, Any], NDArray[np.bool_], dict[str, Any]]:
    """The keys and values of records.

    Returns:
        The columns of :class:`States` from ``transactional_id`` on, shape (n,); whether each record can be read, shape
        (n,), where those that cannot have any numbers; and the strings of :class:`States`.
    """
    count = len(records)
    columns: dict[str, Any] = {
        name: np.full(count, -1, np.int64 if name in _WIDE else np.int32)
        for name in COLUMNS[COLUMNS.index("transactional_id") :]
    }
    found: dict[str, Any] = {name: [] for name in _STRINGS}
    if not count:
        return columns, np.empty(0, np.bool_), found
    columns["transactional_id"], found["names"] = _names(records)
    readable = columns["transactional_id"] >= 0
    odd = _fill(records, columns, found)
    numbers: dict[tuple[int, bytes], int] = {each: i for i, each in enumerate(found["lists"])}
    for row in odd.tolist():
        start = int(records.value_start[row])
        data = records.buffer[start : start + int(records.value_size[row])].tobytes()
        try:
            value = decode_value(data)
        except MalformedTransactionRecord:
            readable[row] = False
            continue
        assert value is not None, "a tombstone is not odd"
        for name in _NUMBERS:
            columns[name][row] = getattr(value, name)
        own = value.version, _encoded_partitions(value)
        columns["partitions"][row] = numbers.setdefault(own, len(numbers))
        if value.unknown_tagged_fields:
            columns["raw"][row] = len(found["raws"])
            found["raws"].append(data)
    found["lists"] = list(numbers)
    return columns, readable, found


def _names(records: Records) -> tuple[Narrow, list[str]]:
    """Each record's transactional id as an index, -1 where the key cannot be read, and the transactional ids."""
    buffer, start, size = records.buffer, records.key_start, np.maximum(records.key_size, 0)
    codes, first = intern(buffer, start, size)
    start, size = start[first], size[first]
    plain = size >= _KEY_HEAD.itemsize
    head = _gather(buffer, np.where(plain, start, 0), _KEY_HEAD)
    plain &= (head["version"] == KEY_VERSION) & (head["size"] == size - _KEY_HEAD.itemsize)
    plain &= are_ascii(buffer, start, size)
    names = texts(buffer, start[plain] + _KEY_HEAD.itemsize, size[plain] - _KEY_HEAD.itemsize)
    numbers = np.full(len(first), -1, np.int32)
    numbers[plain] = np.arange(len(names))
    others = np.flatnonzero(~plain)
    for number, key in zip(others.tolist(), strings(buffer, start[others], size[others]), strict=True):
        try:
            name = decode_key(key).transactional_id
        except MalformedTransactionRecord:
            continue
        numbers[number] = len(names)
        names.append(name)
    return numbers[codes], names


def _fill(records: Records, columns: dict[str, Any], found: dict[str, Any]) -> Ints:
    """Fill in the fields that the vectorised decoder reads; return the records that the readable one has to decode."""
    buffer, start, size = records.buffer, records.value_start, records.value_size
    regular = size >= _HEAD.itemsize
    rows = np.flatnonzero(regular)
    if not len(rows):
        return np.flatnonzero(size >= 0)
    head = _gather(buffer, start[rows], _HEAD)
    version, status = head["version"].astype(np.int32), head["transaction_status"]
    kinds = _kinds(buffer, start[rows], size[rows], version)
    fine = (kinds >= 0) & (status >= 0) & (status <= max(TransactionState))
    if not fine.all():
        regular[rows[~fine]] = False
        rows, head, kinds, version = rows[fine], head[fine], kinds[fine], version[fine]
    for name in _HEAD.names or ():
        _put(columns, name, rows, head[name])
    behind = _fill_endings(records, rows, kinds, columns, regular)
    list_start = start[rows] + _HEAD.itemsize
    codes, first = intern(buffer, list_start, behind - list_start, version.astype(np.int64))
    data = strings(buffer, list_start[first], (behind - list_start)[first])
    lists = list(zip(version[first].tolist(), data, strict=True))
    good = np.array([_is_array(*each) for each in lists], np.bool_)
    found["lists"] = [each for each, is_good in zip(lists, good.tolist(), strict=True) if is_good]
    columns["partitions"][rows] = (np.cumsum(good, dtype=np.int32) - np.int32(1))[codes]
    if not good.all():
        regular[rows[~good[codes]]] = False
    return np.flatnonzero(~regular & (size >= 0))


def _kinds(buffer: Bytes, start: Ints, size: Ints, version: Narrow) -> Narrow:
    """The form of each value's end: 0 for :data:`_SIMPLE`, then the numbers of :data:`_FLEXIBLE`; -1 for another."""
    kinds = np.full(len(start), -1, np.int32)
    kinds[(version == 0) & (size >= _HEAD.itemsize + _SMALLEST_LIST[0] + _SIMPLE.layout.itemsize)] = 0
    rows = np.flatnonzero((version == NEWEST_VERSION) & (size >= _TAIL_BYTES))
    if not len(rows):
        return kinds
    tails = np.lib.stride_tricks.sliding_window_view(buffer, _TAIL_BYTES)[(start + size)[rows] - _TAIL_BYTES]
    words = tails.view("<u8")
    own = np.full(len(rows), -1, np.int32)
    for number, (layout, masks, expected) in enumerate(_FLEXIBLE, 1):  # more fields are less likely by chance
        tags = layout.itemsize - _SIMPLE.layout.itemsize
        few = np.flatnonzero(tails[:, -tags] == (expected.view(np.uint8)[-tags]))
        fits = size[rows[few]] >= _HEAD.itemsize + _SMALLEST_LIST[1] + layout.itemsize
        for place in np.flatnonzero(masks).tolist():
            fits &= (words[few, place] & masks[place]) == expected[place]
        own[few[fits]] = number
    kinds[rows] = own
    return kinds


def _fill_endings(
    records: Records, rows: Ints, kinds: Narrow, columns: dict[str, Any], regular: NDArray[np.bool_]
) -> Ints:
    """Fill in the times and tagged fields of ``rows``; return where they begin. A written default is not regular."""
    end = records.value_start[rows] + records.value_size[rows]
    begin = end.copy()
    for name, _ in _TAGGED:
        if len(rows) == len(columns[name]):
            columns[name].fill(_DEFAULTS[name])
        else:
            columns[name][rows] = _DEFAULTS[name]
    for kind, (layout, _, _) in enumerate([_SIMPLE, *_FLEXIBLE]):
        which = np.flatnonzero(kinds == kind)
        if not len(which):
            continue
        begin[which] -= layout.itemsize
        fields_of = _gather(records.buffer, begin[which], layout)
        for name in set(layout.names or ()) & columns.keys():
            _put(columns, name, rows if len(which) == len(rows) else rows[which], fields_of[name])
            if name not in _TIME_NAMES:
                default = fields_of[name] == _DEFAULTS[name]
                if default.any():
                    regular[rows[which[default]]] = False
    return begin


_TIME_NAMES = frozenset(name for name, _ in _TIMES)


def _put(columns: dict[str, Any], name: str, rows: Ints, values: NDArray[Any]) -> None:
    """Fill in a column at some rows, in order, or at all rows."""
    if len(rows) == len(columns[name]):
        columns[name] = values.astype(columns[name].dtype)
    else:
        columns[name][rows] = values


def _gather(buffer: Bytes, positions: Ints, layout: np.dtype[np.void]) -> NDArray[np.void]:
    """The fields at each position, shape (n,); see :func:`headers.gather`."""
    windows = np.lib.stride_tricks.sliding_window_view(buffer, layout.itemsize)
    return windows[positions].view(layout)[:, 0]


def _empty_value(version: int) -> TransactionLogValue:
    """A value with no partitions and no tagged fields."""
    return TransactionLogValue(
        version=version,
        producer_id=0,
        producer_epoch=0,
        transaction_timeout_ms=0,
        transaction_status=TransactionState.EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=0,
        transaction_start_timestamp_ms=0,
    )


_AROUND = tuple(
    (encoded[: _HEAD.itemsize], encoded[_HEAD.itemsize + _SMALLEST_LIST[version] :])
    for version in range(NEWEST_VERSION + 1)
    for encoded in [_empty_value(version).encode()]
)


@lru_cache(maxsize=1 << 10)
def decode_partitions(version: int, data: bytes) -> tuple[TopicPartitions, ...] | None:
    """The array of partitions of a value, by the readable decoder.

    Raises:
        MalformedTransactionRecord: ``data`` are not exactly one array.
    """
    before, behind = _AROUND[version]
    value = decode_value(before + data + behind)
    assert value is not None, "there are bytes"
    partitions = value.transaction_partitions
    if value != replace(_empty_value(version), transaction_partitions=partitions):
        raise MalformedTransactionRecord(0, "the array ends early, and what follows looks like other fields")
    return partitions


@lru_cache(maxsize=1 << 16)  # the same arrays occur in other chunks, and when the chunks are folded
def places_of(version: int, data: bytes) -> Places:
    """The partitions in an array of partitions of a value.

    Raises:
        MalformedTransactionRecord: ``data`` are not exactly one array.
    """
    places = _plain_places(version, data)
    if places is not None:
        return places
    topics = decode_partitions(version, data) or ()
    return frozenset((topic.topic, number) for topic in topics for number in topic.partition_ids)


def _is_array(version: int, data: bytes) -> bool:
    try:
        places_of(version, data)
    except MalformedTransactionRecord:
        return False
    return True


def _plain_places(version: int, data: bytes) -> Places | None:
    """The partitions in a short array without tagged fields; None for all others, and for bytes that are no array.

    The readable decoder takes ten times as long. If every transaction has other partitions, there are as many arrays as
    transactions.
    """
    places: list[tuple[str, int]] = []
    try:
        topics, at = (data[0] - 1, 1) if version else (_integer(data, 0, 4), 4)
        for _ in range(topics):
            size, at = (data[at] - 1, at + 1) if version else (_integer(data, at, 2), at + 2)
            topic, at = data[at : at + size].decode(), at + size
            count, at = (data[at] - 1, at + 1) if version else (_integer(data, at, 4), at + 4)
            if not 0 <= size < _SHORT > count >= 0:
                return None
            places += [(topic, number) for number in _INTEGERS[count].unpack_from(data, at)]
            at += 4 * count
            if version and data[at]:
                return None
            at += version
    except (IndexError, UnicodeDecodeError, struct.error):
        return None
    return frozenset(places) if at == len(data) and 0 <= topics < _SHORT else None


def _integer(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big", signed=True)


_SHORT = 0x7F  # a number whose varint, of one more, has one byte
_INTEGERS = [struct.Struct(f">{count}i") for count in range(_SHORT)]


def _encoded_partitions(value: TransactionLogValue) -> bytes:
    """The array of partitions of a value."""
    before, behind = _AROUND[value.version]
    alone = replace(_empty_value(value.version), transaction_partitions=value.transaction_partitions).encode()
    return alone[len(before) : len(alone) - len(behind)]
