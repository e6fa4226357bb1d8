"""The transactions of one log, read in order: for the files next to it, and for a log whose offsets go backwards."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.kernels.logs.readable import marker_of
from kafka_eos_checks.audit.kernels.logs.runs import columns_of, runs_of
from kafka_eos_checks.audit.kernels.logs.summary import READ_FIRST
from kafka_eos_checks.audit.kernels.logs.transactions import (
    NOTHING,
    Paired,
    Part,
    Partition,
    PartitionFold,
    paired,
    steps_of,
)
from kafka_eos_checks.audit.rules.beside import INDEXED
from kafka_eos_checks.audit.rules.transactions import Marker
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.audit.segments.marks import NO_EPOCH
from kafka_eos_checks.audit.segments.reading import read_marked
from kafka_eos_checks.audit.segments.splits import PartitionLog


def read_in_order(
    log: PartitionLog, number: int, *, check_crc: bool, high_watermark: int
) -> tuple[Partition, list[Part]]:
    """Read a log from its beginning; return its facts and its steps.

    The steps are also right if offsets go backwards, unlike those from summaries of single chunks.
    """
    holes = 0
    whole = PartitionFold(log, log.segments)
    parts: list[Part] = []
    for split, name in enumerate(log.segments):
        for headers, marks in read_marked(log.file(name), READ_FIRST, check_crc=check_crc):
            if not len(headers):
                continue
            columns = columns_of(headers, log.topic)
            runs = runs_of(columns, headers.raw["attributes"], whole.end)
            told = steps_of(headers, marks, log.topic, columns, runs, high_watermark=high_watermark, holes=holes)
            holes += int(runs.holes[-1])
            place = split, int(headers.positions[0])
            offsets = int(columns.base_offset[0]), runs.end
            whole.add(place, told, offsets, holes=holes, before=0, disordered=runs.disordered)
            parts.append(Part(number, *place, told.steps))
    return whole.partition(), parts


@dataclass(frozen=True, slots=True)
class WholeLog:
    """The transactions of one log, for the rules over the files next to it.

    Attributes:
        partition: the log.
        steps: all its steps.
        in_order: the markers among ``steps.markers`` in log order, shape (m,).
        last_stable_offset: after each marker in this order, shape (m,).
    """

    partition: Partition
    steps: Paired
    in_order: Ints
    last_stable_offset: Ints

    @property
    def log(self) -> PartitionLog:
        """The log."""
        return self.partition.log

    @property
    def start(self) -> int | None:
        """The first offset; None for a log without batches."""
        return self.partition.start

    @property
    def end(self) -> int:
        """One past the last offset."""
        return self.partition.end

    @property
    def holes(self) -> int:
        """The number of holes in the log."""
        return self.partition.holes

    @property
    def whole(self) -> bool:
        """As :attr:`PartitionTransactions.whole`."""
        return self.start == 0 and not self.holes

    def aborts_in(self, segment: str) -> Iterator[Marker]:
        """As :meth:`PartitionTransactions.aborts_in`."""
        for place in self._aborts_in(segment).tolist():
            number, stable = int(self.in_order[place]), int(self.last_stable_offset[place])
            yield marker_of(self.steps, number, self.partition.segments, stable)

    def index_of(self, segment: str) -> NDArray[np.void]:
        """As :meth:`beside.Transactions.index_of`."""
        places = self._aborts_in(segment)
        own = self.in_order[places]
        markers, data = self.steps.steps.take(self.steps.markers[own]), self.steps.steps.take(self.steps.ends[own])
        entries = np.zeros(len(places), INDEXED)
        entries["producer_id"], entries["first_offset"] = markers["producer_id"], data["offset"]
        entries["last_offset"], entries["last_stable_offset"] = markers["offset"], self.last_stable_offset[places]
        return entries

    def _aborts_in(self, segment: str) -> Ints:
        """The numbers, among ``in_order``, of the ABORT markers of a segment that end data."""
        names = [name.partition(".")[0] == segment for name in self.partition.segments]
        rows = self.steps.markers[self.in_order]
        inside = np.array(names, np.bool_)[self.steps.split[rows]] if names else np.zeros(0, np.bool_)
        inside &= self.steps.steps["decision"][rows] == ControlType.ABORT
        inside &= self.steps.ends[self.in_order] != NOTHING
        return np.flatnonzero(inside)

    def coordinator_epochs_at(self, offset: int) -> dict[int, int | None]:
        """As :meth:`PartitionTransactions.coordinator_epochs_at`."""
        markers = self.steps.steps.take(self.steps.markers)
        before = np.flatnonzero(markers["offset"] < offset)
        pids, last = np.unique(markers["producer_id"][before][::-1], return_index=True)
        epochs = markers["coordinator_epoch"][before][::-1][last]
        pairs = zip(pids.tolist(), epochs.tolist(), strict=True)
        return {pid: None if epoch == NO_EPOCH else epoch for pid, epoch in pairs}

    def open_at(self, offset: int) -> dict[int, int]:
        """As :meth:`PartitionTransactions.open_at`."""
        steps = self.steps.steps
        has_data = self.steps.ends != NOTHING
        ended, markers = self.steps.ends[has_data], self.steps.markers[has_data]
        straddling = ended[(steps["offset"][markers] >= offset) & (steps["offset"][ended] < offset)]
        opened = np.array(self.steps.open, np.int64)
        rows = np.concatenate([opened[steps["offset"][opened] < offset], straddling])
        return dict(zip(steps["producer_id"][rows].tolist(), steps["offset"][rows].tolist(), strict=True))


def whole_log(partition: Partition, parts: Iterable[Part]) -> WholeLog | None:
    """The transactions of a log, from the steps of its chunks, in any order.

    None where data of two epochs are open at once, or offsets go backwards: there the readable fold tells the last
    stable offsets. In a log with holes they are not exact, and indexes are not judged.

    Args:
        partition: the facts of the log.
        parts: all its steps; the number of the log is left out of account.
    """
    steps = paired([part._replace(log=0) for part in parts], [partition])
    markers = steps.steps.take(steps.markers)
    place = np.lexsort((markers["position"], steps.split[steps.markers]))
    offsets = markers["offset"][place]
    if steps.merged or not partition.is_ordered:
        return None
    nothing = np.iinfo(np.int64).max
    ends = steps.ends[place]
    first = np.where(ends != NOTHING, steps.steps["offset"][np.maximum(ends, 0)], nothing) if len(ends) else offsets
    never = min((int(steps.steps["offset"][row]) for row in steps.open), default=nothing)
    later = np.minimum.accumulate(np.append(first[1:], never)[::-1])[::-1] if len(ends) else offsets
    return WholeLog(partition, steps, place, np.minimum(later, offsets + 1))
