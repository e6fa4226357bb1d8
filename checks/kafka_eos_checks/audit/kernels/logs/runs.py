"""The batches of a chunk as runs: batches of one producer that follow one another with nothing to judge.

The rules over logs, over transactions and over snapshots read batches by producer. A chunk is sorted by producer id
once for all of them (:func:`runs_of`). Nearly all batches are data right after data of the same producer and epoch,
with the next sequence. They belong to the run of the batch before them, so the rules look only at runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS, SEQUENCE_MASK, Batch
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    Headers,
    Ints,
    Narrow,
    is_set,
)
from kafka_eos_checks.audit.segments.order import stable_order


@dataclass(frozen=True, slots=True)
class Columns:
    """Batches as arrays of shape (n,), in log order; fields as in :class:`log.Batch`."""

    position: Ints
    base_offset: Ints
    last_offset: Ints
    producer_id: Ints
    producer_epoch: Narrow
    base_sequence: Narrow
    last_sequence: Narrow
    unsequenced: NDArray[np.bool_]
    kind: NDArray[np.int8]
    leader_epoch: Narrow

    def __len__(self) -> int:
        return len(self.position)

    def take(self, which: NDArray[Any] | slice) -> "Columns":
        """Some of the batches: an index array, a mask or a slice."""
        return Columns(*(getattr(self, name)[which] for name in self.__slots__))

    def batches(self) -> Iterator[Batch]:
        """The rows as batches, one at a time."""
        return map(Batch._make, zip(*(getattr(self, name).tolist() for name in self.__slots__), strict=True))


def columns_of(headers: Headers, topic: str = "") -> Columns:
    """The columns that the rules need, from the headers of batches of a topic."""
    base_offset = headers.column("base_offset")
    base_sequence = headers.narrow("base_sequence")
    delta = headers.narrow("last_offset_delta")
    return Columns(
        position=headers.positions,
        base_offset=base_offset,
        last_offset=base_offset + delta,
        producer_id=headers.column("producer_id"),
        producer_epoch=headers.narrow("producer_epoch"),
        base_sequence=base_sequence,
        last_sequence=(base_sequence + delta) & SEQUENCE_MASK,  # 32 bits overflow to the same 31
        unsequenced=is_set(headers, CONTROL_MASK) | (base_sequence < 0) | (topic in COORDINATOR_TOPICS),
        kind=((headers.narrow("attributes") & (CONTROL_MASK | TRANSACTIONAL_MASK)) // TRANSACTIONAL_MASK).astype(
            np.int8
        ),
        leader_epoch=headers.narrow("leader_epoch"),
    )


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of a chunk of n batches.

    Attributes:
        end: one past the highest offset; -1 without batches.
        disordered: whether offsets go backwards somewhere.
        holes: the number of holes before each batch, shape (n,).
        order: the batches that have a producer id, by producer id, and in log order within one, shape (p,).
        begin: where each run begins in ``order``, shape (r,).
    """

    end: int
    disordered: bool
    holes: Narrow
    order: Ints
    begin: Ints

    @property
    def first(self) -> Ints:
        """The first batch of each run, shape (r,)."""
        return self.order[self.begin]

    @property
    def last(self) -> Ints:
        """The last batch of each run, shape (r,)."""
        return self.order[np.append(self.begin[1:], len(self.order)) - 1] if len(self.begin) else self.begin


def runs_of(columns: Columns, end: int | None = None) -> Runs:
    """The runs of consecutive batches.

    Batches of a run have the same producer id, epoch, number of holes, and kind. If a run has more than one batch, each
    of them has data, and the next sequence.

    Args:
        columns: the batches.
        end: one past the highest offset before the batches; when not given, no hole is assumed before them.
    """
    order = stable_order(columns.producer_id)
    order = order[np.count_nonzero(columns.producer_id < 0) :]
    base = columns.base_offset
    ends = columns.last_offset + 1
    if (ends[1:] < ends[:-1]).any():  # accumulating takes ten times as long as comparing
        ends = np.maximum.accumulate(ends)
    before = np.concatenate((base[:1] if end is None else [end], ends[:-1]))[: len(base)]
    if end is not None:
        before = np.maximum(before, end)
    holes = np.zeros(len(base), np.int32)
    jumps = base > before
    if jumps.any():
        np.cumsum(jumps, out=holes)

    kind = columns.producer_epoch << 3 | columns.kind << 1 | columns.unsequenced
    pid, kind = columns.producer_id.take(order), kind.take(order)
    sequence, last = columns.base_sequence.take(order), columns.last_sequence.take(order)
    follows = (pid[1:] == pid[:-1]) & (kind[1:] == kind[:-1]) & (sequence[1:] == (last[:-1] + 1) & SEQUENCE_MASK)
    follows &= (kind[1:] & 1) == 0
    if len(holes) and holes[-1]:
        follows &= holes[order[1:]] == holes[order[:-1]]
    begin = np.concatenate(([0], np.flatnonzero(~follows) + 1))[: len(order)]
    highest = int(ends[-1]) if len(ends) else -1
    return Runs(highest if end is None else max(highest, end), bool((base < before).any()), holes, order, begin)
