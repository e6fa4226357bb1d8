"""The granularities ``transactions`` and ``offsets`` of :mod:`source`: rows for which a log has to be read in order.

One task reads a log from its start to its end. It keeps a row for each open transaction, or the committed offsets of
open transactions, and one window of batches. So its memory does not grow with the log.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.internal_topics.commits import (
    Details,
    Name,
    decode_commits,
    decode_decisions,
    decode_details,
    name_of,
)
from kafka_eos_checks.audit.internal_topics.states import TOMBSTONE, state_rows
from kafka_eos_checks.audit.kernels.coordinators.group_log import next_markers
from kafka_eos_checks.audit.kernels.logs.summary import chunks_of
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    Block,
    Headers,
    Ints,
    Mask,
    Narrow,
    is_set,
    read_blocks,
    read_index,
)
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH
from kafka_eos_checks.audit.segments.records import Records, decode_block
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split, plan
from kafka_eos_checks.audit.tables.selection import Selection
from kafka_eos_checks.audit.tables.transaction_rows import NONE, UNKNOWN, YES, TransactionFold, Transactions
from kafka_eos_checks.kit.schemas import arrow_schema

Fixed = Mapping[str, str | int]  # columns that are the same in all rows of a log

_DECISIONS = {int(ControlType.COMMIT): "commit", int(ControlType.ABORT): "abort", NO_DECISION: "unknown"}


def _where(valid: Mask, values: NDArray[Any]) -> pa.Array:
    return pa.array(values, mask=~valid)


def _ended(rows: Transactions) -> Mask:
    ended: Mask = rows["marker_offset"] != NONE
    return ended


def _duration(rows: Transactions) -> pa.Array:
    known = _ended(rows) & (rows["first_timestamp"] != NONE)
    return _where(known, rows["marker_timestamp"] - rows["first_timestamp"])


def _decisions(numbers: NDArray[Any], valid: Mask) -> pa.Array:
    names = [_DECISIONS[number] if there else None for number, there in zip(numbers.tolist(), valid, strict=True)]
    return pa.array(names, pa.string())


def _empty(rows: Transactions) -> pa.Array:
    """Whether a transaction has no data: null if its data may lie before the log, false if some do."""
    known = (rows["starts_before_log"] != UNKNOWN) | (rows["batches"] > 0)
    return _where(known, (rows["batches"] == 0) & (rows["starts_before_log"] != YES))


# By column: its type, and the function that makes it. The transactional id needs more than the row.
TRANSACTIONS: dict[str, tuple[str, Callable[[Transactions], Any]]] = {
    "producer_id": ("bigint", lambda t: t["producer_id"]),
    "producer_epoch": ("int", lambda t: _where(t["producer_epoch"] != NO_EPOCH, t["producer_epoch"])),
    "transactional_id": ("string", lambda t: pa.nulls(len(t), pa.string())),
    "decision": ("string", lambda t: _decisions(t["decision"], _ended(t))),
    "first_offset": ("bigint", lambda t: _where(t["first_offset"] != NONE, t["first_offset"])),
    "last_offset": ("bigint", lambda t: _where(t["last_offset"] != NONE, t["last_offset"])),
    "marker_offset": ("bigint", lambda t: _where(_ended(t), t["marker_offset"])),
    "batches": ("bigint", lambda t: t["batches"]),
    "records": ("bigint", lambda t: t["records"]),
    "bytes": ("bigint", lambda t: t["size"]),
    "first_timestamp": ("bigint", lambda t: _where(t["first_timestamp"] != NONE, t["first_timestamp"])),
    "max_timestamp": ("bigint", lambda t: _where(t["max_timestamp"] != NONE, t["max_timestamp"])),
    "marker_timestamp": ("bigint", lambda t: _where(_ended(t), t["marker_timestamp"])),
    "duration_ms": ("bigint", _duration),
    "marker_producer_epoch": ("int", lambda t: _where(_ended(t), t["marker_epoch"])),
    "coordinator_epoch": ("int", lambda t: _where(t["coordinator_epoch"] != NO_EPOCH, t["coordinator_epoch"])),
    "empty": ("boolean", _empty),
    "starts_before_log": (
        "boolean",
        lambda t: _where(t["starts_before_log"] != UNKNOWN, t["starts_before_log"] == YES),
    ),
}


class Transactional:
    """The rows of ``transactions``.

    Args:
        kinds: the wanted columns, with their types.
        selection: the selection of producer ids.
        check_crc: whether to compare each batch with its CRC.
        coordinators: the logs of ``__transaction_state``.
    """

    def __init__(
        self, kinds: Mapping[str, str], selection: Selection, check_crc: bool, coordinators: Sequence[PartitionLog]
    ) -> None:
        self._kinds, self._selection, self._check_crc = kinds, selection, check_crc
        self._coordinators = coordinators

    def rows(self, splits: Sequence[Split], fixed: Fixed) -> Iterator[pa.RecordBatch]:
        """The rows of a log, from all its splits in order."""
        log = splits[0].log
        named: Mapping[int, str | None] = {}
        if "transactional_id" in self._kinds:
            named = transactional_ids(self._coordinators, self._check_crc)
        fold = TransactionFold(log, self._selection.producers)
        numbers = {name: number for number, name in enumerate(log.segments)}
        for split in splits:
            for _, headers, marks in chunks_of(split, read_index(split.path), self._check_crc):
                ended = fold.add(numbers[split.segment], headers, marks)
                if len(ended):
                    yield self._batch(log, ended, named, fixed)
        if len(fold.open):
            yield self._batch(log, fold.open, named, fixed)

    def _batch(
        self, log: PartitionLog, rows: Transactions, named: Mapping[int, str | None], fixed: Fixed
    ) -> pa.RecordBatch:
        columns = {name: TRANSACTIONS[name][1](rows) for name in self._kinds if name in TRANSACTIONS}
        placed = rows["position"] != NONE
        if "segment" in self._kinds:
            columns["segment"] = pa.array(log.segments, pa.string()).take(_where(placed, rows["segment"]))
        if "position" in self._kinds:
            columns["position"] = _where(placed, rows["position"])
        if "transactional_id" in self._kinds:
            columns["transactional_id"] = [named.get(each) for each in rows["producer_id"].tolist()]
        return record_batch(self._kinds, len(rows), columns, fixed)


def transactional_ids(logs: Collection[PartitionLog], check_crc: bool = True) -> Mapping[int, str | None]:
    """The transactional id of each producer id, by the logs of ``__transaction_state``; None if several have it.

    A worker reads the logs again only when the size of one of their files has changed.
    """
    sizes = tuple((log, tuple(log.file(name).stat().st_size for name in log.segments)) for log in logs)
    return _transactional_ids(sizes, check_crc)


@lru_cache(maxsize=1)
def _transactional_ids(
    sizes: tuple[tuple[PartitionLog, tuple[int, ...]], ...], check_crc: bool
) -> Mapping[int, str | None]:
    named: dict[int, str | None] = {}
    for split in plan(log for log, _ in sizes):
        for chunk in state_rows(split, check_crc):
            states = chunk.states
            real = states.version != TOMBSTONE
            pairs = np.stack([states.producer_id[real], states.transactional_id[real]], axis=1)
            for pid, number in np.unique(pairs, axis=0).tolist():
                name = states.names[number]
                named[pid] = name if named.get(pid, name) == name else None
    return named


class _Commits:
    """The committed offsets of m records of a block, from which the columns of ``offsets`` are made.

    Args:
        records: the records of the block.
        headers: the headers of the block.
        rows: numbers of the records, shape (m,).
        name: index of each into ``names``, shape (m,).
        offset: the committed offset, -1 for a tombstone, shape (m,).
        names: groups with their partitions.
    """

    def __init__(
        self, records: Records, headers: Headers, rows: Ints, name: Narrow, offset: Ints, names: Sequence[Name]
    ) -> None:
        self.records, self.rows, self.offset = records, rows, offset
        self.tombstone: Mask = records.value_size[rows] < 0
        self._headers, self._name, self._names = headers, name, names
        self._details: Details | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def header(self, name: str) -> Ints:
        """A field of the batch of each record."""
        return self._headers.column(name)[self.records.batch[self.rows]]

    @property
    def position(self) -> Ints:
        """The position of each record's batch in its segment, in bytes."""
        return self._headers.positions[self.records.batch[self.rows]]

    @property
    def transactional(self) -> Mask:
        """Whether each record is of a transaction."""
        return is_set(self._headers, TRANSACTIONAL_MASK)[self.records.batch[self.rows]]

    def named(self, part: Callable[[Name], str | int]) -> pa.Array:
        """A part of the group and partition of each record."""
        return pa.array([part(name) for name in self._names]).take(pa.array(self._name))

    def detail(self, name: str) -> pa.Array:
        """A field of the value besides the offset; null for a tombstone."""
        real = np.flatnonzero(~self.tombstone)
        if self._details is None:
            self._details = decode_details(self.records, self.rows[real])
        places = np.full(len(self), -1)
        places[real] = np.arange(len(real))
        values = pa.array(getattr(self._details, name), pa.string() if name == "metadata" else pa.int64())
        return values.take(_where(~self.tombstone, places))


# By column: its type, and the function that makes it. The decision is filled in at the marker.
OFFSETS: dict[str, tuple[str, Callable[[_Commits], Any]]] = {
    "position": ("bigint", lambda c: c.position),
    "log_offset": ("bigint", lambda c: c.records.offset[c.rows]),
    "timestamp": ("bigint", lambda c: c.records.timestamp[c.rows]),
    "group": ("string", lambda c: c.named(lambda name: name[0])),
    "topic": ("string", lambda c: c.named(lambda name: name[1][0])),
    "partition": ("int", lambda c: c.named(lambda name: name[1][1])),
    "offset": ("bigint", lambda c: _where(~c.tombstone, c.offset)),
    "leader_epoch": ("int", lambda c: c.detail("leader_epoch")),
    "metadata": ("string", lambda c: c.detail("metadata")),
    "commit_timestamp": ("bigint", lambda c: c.detail("commit_timestamp")),
    "tombstone": ("boolean", lambda c: c.tombstone),
    "transactional": ("boolean", lambda c: c.transactional),
    "producer_id": ("bigint", lambda c: c.header("producer_id")),
    "producer_epoch": ("int", lambda c: c.header("producer_epoch")),
    "decision": ("string", lambda c: pa.nulls(len(c), pa.string())),
}


class CommittedOffsets:
    """The rows of ``offsets``.

    Args:
        kinds: the wanted columns, with their types.
        selection: the selection of the topics and partitions whose offsets were committed, and of producer ids.
        check_crc: whether to compare each batch with its CRC.
    """

    def __init__(self, kinds: Mapping[str, str], selection: Selection, check_crc: bool) -> None:
        self._kinds, self._selection, self._check_crc = kinds, selection, check_crc

    def rows(self, splits: Sequence[Split], fixed: Fixed) -> Iterator[pa.RecordBatch]:
        """The rows of a log, from all its splits in order; rows of a transaction come when its marker is read."""
        held: list[tuple[Ints, pa.RecordBatch]] = []  # of open transactions, with their producer ids
        for split in splits:
            own = {**fixed, "segment": split.segment}
            index = read_index(split.path)
            for block in read_blocks(split.path, split.start, split.end, index=index, check_crc=self._check_crc):
                if len(block.headers):
                    held = yield from self._block(block, own, held)
        for _, batch in held:
            yield batch

    def _block(
        self, block: Block, fixed: Fixed, held: list[tuple[Ints, pa.RecordBatch]]
    ) -> Generator[pa.RecordBatch, None, list[tuple[Ints, pa.RecordBatch]]]:
        """Yield the rows that are decided in a block; return the rows that are still held."""
        records, headers = decode_block(block), block.headers
        control = is_set(headers, CONTROL_MASK)[records.batch]
        number, offset, keys = decode_commits(records, control)
        pids = headers.column("producer_id")[records.batch]
        names = [name_of(key) for key in keys]
        wanted = np.array([*map(self._wants, names), False], np.bool_)  # the last one for records without a key
        which = (number >= 0) & wanted[np.maximum(number, -1)]
        if self._selection.producers is not None:
            which &= np.isin(pids, list(self._selection.producers))
        rows = np.flatnonzero(which)
        commits = _Commits(records, headers, rows, number[rows], offset[rows], names)
        columns = {name: OFFSETS[name][1](commits) for name in self._kinds if name in OFFSETS}
        batch = record_batch(self._kinds, len(rows), columns, fixed)
        if "decision" not in self._kinds:
            if len(rows):
                yield batch
            return held
        markers = np.flatnonzero(control)
        decisions = np.full(len(records), NO_DECISION, np.int32)
        decisions[markers] = decode_decisions(records, markers)
        enders, first = np.unique(pids[markers], return_index=True)
        kept: list[tuple[Ints, pa.RecordBatch]] = []
        for own, before in held:
            place = np.searchsorted(enders, own)
            ends = np.isin(own, enders)
            if ends.any():
                yield _decided(before.filter(pa.array(ends)), decisions[markers[first[place[ends]]]])
                own, before = own[~ends], before.filter(pa.array(~ends))  # noqa: PLW2901 - the rest of it
            if len(own):
                kept.append((own, before))
        marker = next_markers(pids, control)[rows]
        alone, ended = ~commits.transactional, marker >= 0
        ended &= ~alone
        if alone.any():
            yield batch.filter(pa.array(alone))
        if ended.any():
            yield _decided(batch.filter(pa.array(ended)), decisions[marker[ended]])
        left = ~alone & ~ended
        if left.any():
            kept.append((pids[rows[left]], batch.filter(pa.array(left))))
        return kept

    def _wants(self, name: Name) -> bool:
        _, (topic, partition) = name
        topics, partitions = self._selection.topics, self._selection.partitions
        return (topics is None or topic in topics) and (partitions is None or partition in partitions)


def _decided(batch: pa.RecordBatch, decisions: NDArray[Any]) -> pa.RecordBatch:
    place = batch.schema.get_field_index("decision")
    return batch.set_column(place, "decision", _decisions(decisions, np.ones(len(decisions), np.bool_)))


def record_batch(kinds: Mapping[str, str], count: int, columns: Mapping[str, Any], fixed: Fixed) -> pa.RecordBatch:
    """Make an Arrow batch of the wanted columns, in order, from columns that vary and columns that are constant."""
    schema = arrow_schema(kinds)
    arrays = [
        pa.array(columns[field.name]).cast(field.type)
        if field.name in columns
        else pa.repeat(pa.scalar(fixed[field.name], field.type), count)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
