"""The transactions of a log as rows, folded chunk by chunk in log order.

The state of the fold is one row for each producer id with an open transaction. A control batch ends the open
transaction of its producer id; nothing else does. So across a hole, or if data of a later epoch follow, a transaction
lasts until the next control batch, as it does for the broker (``append_marker`` of
:mod:`kafka_eos.machines.transactional_partition`). :mod:`kafka_eos_checks.audit.kernels.logs.transactions`, which
judges, is more careful there: it reports no transaction whose marker may have been in a hole.
"""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import LOG_OVERHEAD_BYTES
from kafka_eos.formats.segment import MalformedFile, read_producer_snapshot
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Headers,
    is_set,
)
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH, Marks
from kafka_eos_checks.audit.segments.order import stable_order
from kafka_eos_checks.audit.segments.splits import PartitionLog

NONE = -1  # instead of an offset, a position, a time, or the number of a segment
NO, YES, UNKNOWN = 0, 1, -1  # of ``starts_before_log``
# One row a transaction. Times are in milliseconds since the epoch.
TRANSACTION = np.dtype(
    [
        ("producer_id", np.int64),
        ("producer_epoch", np.int32),  # of the first batch of its data; NO_EPOCH without data
        ("first_offset", np.int64),
        ("last_offset", np.int64),  # the highest of its data in the log
        ("batches", np.int64),
        ("records", np.int64),
        ("size", np.int64),  # of its data, in bytes
        ("first_timestamp", np.int64),
        ("max_timestamp", np.int64),
        ("segment", np.int64),  # number of the file with its first batch in the log, the marker included
        ("position", np.int64),  # of this batch in its file, in bytes
        ("starts_before_log", np.int8),
        ("marker_offset", np.int64),  # NONE while the transaction is open
        ("marker_epoch", np.int32),
        ("marker_timestamp", np.int64),
        ("coordinator_epoch", np.int32),
        ("decision", np.int8),
    ]
)
Transactions = NDArray[np.void]


class TransactionFold:
    """The fold over one log.

    Args:
        log: the log, with its first segment.
        producers: the producer ids to look at; all when not given.
    """

    def __init__(self, log: PartitionLog, producers: Collection[int] | None = None) -> None:
        self._producers = None if producers is None else np.array(sorted(producers), np.int64)
        begun = _begun_before(log)
        self._others_start_before_log = UNKNOWN if begun is None else NO
        self._open = _empty(0) if begun is None else begun[self._wanted(begun["producer_id"])]

    def add(self, segment: int, headers: Headers, marks: Marks) -> Transactions:
        """Add the next batches of the log.

        Args:
            segment: number of their file.
            headers: the batches.
            marks: the marks of their markers.

        Returns:
            The transactions that end in them, by producer id, dtype :data:`TRANSACTION`.
        """
        transactional = is_set(headers, TRANSACTIONAL_MASK)
        if not transactional.any():
            return _empty(0)
        chosen = np.flatnonzero(transactional & self._wanted(headers.column("producer_id")))
        rows = np.concatenate([self._open, self._single(segment, headers, marks, chosen)])
        is_marker = np.concatenate([np.zeros(len(self._open), np.bool_), is_set(headers, CONTROL_MASK)[chosen]])
        order = stable_order(rows["producer_id"])
        rows, is_marker = rows[order], is_marker[order]
        begins = np.ones(len(rows), np.bool_)
        begins[1:] = (rows["producer_id"][1:] != rows["producer_id"][:-1]) | is_marker[:-1]
        first = np.flatnonzero(begins)
        if not len(first):
            return _empty(0)
        last = np.append(first[1:], len(rows)) - 1
        merged = rows[first]
        for name in ("batches", "records", "size"):
            merged[name] = np.add.reduceat(rows[name], first)
        for name in ("last_offset", "max_timestamp"):
            merged[name] = np.maximum.reduceat(rows[name], first)
        # A transaction that began before the log has no place until one of its batches comes.
        placed = np.where(rows["position"] == NONE, len(rows), np.arange(len(rows)))
        placed = np.minimum(np.minimum.reduceat(placed, first), last)
        for name in ("segment", "position"):
            merged[name] = rows[name][placed]
        for name in ("marker_offset", "marker_epoch", "marker_timestamp", "coordinator_epoch", "decision"):
            merged[name] = rows[name][last]
        ended = is_marker[last]
        self._open = merged[~ended]
        done: Transactions = merged[ended]
        return done

    @property
    def open(self) -> Transactions:
        """The transactions that are open after all batches so far, by producer id, dtype :data:`TRANSACTION`."""
        return self._open

    def _wanted(self, producer_id: NDArray[np.int64]) -> NDArray[np.bool_]:
        if self._producers is None:
            return np.ones(len(producer_id), np.bool_)
        wanted: NDArray[np.bool_] = np.isin(producer_id, self._producers)
        return wanted

    def _single(self, segment: int, headers: Headers, marks: Marks, chosen: NDArray[np.int64]) -> Transactions:
        """Each of the chosen batches as a transaction of its own: data without a marker, or a marker without data."""
        rows = _empty(len(chosen))
        control = is_set(headers, CONTROL_MASK)[chosen]
        base, times = headers.column("base_offset")[chosen], headers.column("max_timestamp")[chosen]
        begun = np.where(is_set(headers, DELETE_HORIZON_MASK), NONE, headers.column("base_timestamp"))[chosen]
        appended = is_set(headers, TIMESTAMP_TYPE_MASK)[chosen]
        epoch = headers.narrow("producer_epoch")[chosen]
        rows["producer_id"] = headers.column("producer_id")[chosen]
        rows["segment"], rows["position"] = segment, headers.positions[chosen]
        rows["starts_before_log"] = self._others_start_before_log
        data, marker = ~control, control
        rows["producer_epoch"][data] = epoch[data]
        rows["first_offset"][data] = base[data]
        rows["last_offset"][data] = (base + headers.column("last_offset_delta")[chosen])[data]
        rows["batches"][data] = 1
        rows["records"][data] = headers.column("record_count")[chosen][data]
        rows["size"][data] = headers.column("batch_length")[chosen][data] + LOG_OVERHEAD_BYTES
        rows["first_timestamp"][data] = np.where(appended, times, begun)[data]
        rows["max_timestamp"][data] = times[data]
        rows["marker_offset"][marker] = base[marker]
        rows["marker_epoch"][marker] = epoch[marker]
        rows["marker_timestamp"][marker] = times[marker]
        told = np.isin(marks.row, chosen)
        place = np.searchsorted(chosen, marks.row[told])
        rows["decision"][place] = marks.decision[told]
        rows["coordinator_epoch"][place] = marks.coordinator_epoch[told]
        return rows


def _empty(count: int) -> Transactions:
    """Make rows without data and without a marker."""
    rows = np.zeros(count, TRANSACTION)
    for name in ("first_offset", "last_offset", "first_timestamp", "max_timestamp", "segment", "position"):
        rows[name] = NONE
    rows["marker_offset"] = rows["marker_timestamp"] = NONE
    rows["producer_epoch"] = rows["marker_epoch"] = rows["coordinator_epoch"] = NO_EPOCH
    rows["decision"] = NO_DECISION
    return rows


def _begun_before(log: PartitionLog) -> Transactions | None:
    """The transactions that are open where a log starts; None if that is not known.

    The producer snapshot of the first segment has them; brokers keep it as long as the segment.
    """
    name = log.segments[0].partition(".")[0] if log.segments else "0"
    if int(name) == 0:
        return _empty(0)
    path = log.file(f"{name}.snapshot")
    if not path.is_file():
        return None
    try:
        entries = [each for each in read_producer_snapshot(path) if each.current_txn_first_offset is not None]
    except MalformedFile:
        return None
    rows = _empty(len(entries))
    rows["producer_id"] = [each.producer_id for each in entries]
    rows["producer_epoch"] = [each.producer_epoch for each in entries]
    rows["first_offset"] = [each.current_txn_first_offset for each in entries]
    rows["starts_before_log"] = YES
    return rows
