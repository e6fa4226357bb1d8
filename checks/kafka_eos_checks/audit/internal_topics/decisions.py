"""The decisions of coordinators as columns, for joins with the markers of partitions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.segments.headers import Ints, Narrow

if TYPE_CHECKING:
    from kafka_eos_checks.audit.rules.coordinator import Transaction

Partitions = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decided transactions, every column of shape (n,), those of a transactional id one after the other.

    The columns are the attributes of :class:`kafka_eos_checks.audit.rules.coordinator.Transaction`.

    Attributes:
        transactional_id: index into ``names``.
        number: the number of the transaction among those of its transactional id.
        producer_id: the producer id of its data and its markers.
        data_epoch: the epoch of its data.
        marker_epoch: the epoch of its markers.
        version: the transaction version of the client.
        decision: the number of a :class:`kafka_eos.formats.record_batch.ControlType`.
        partitions: index into ``sets``.
        decided_ms: when it was decided, in milliseconds since the epoch, on the coordinator's clock.
        completed: whether the coordinator says that all markers are written.
        replaced: whether a record other than its COMPLETE came next.
        names: transactional ids.
        sets: sets of partitions, each once.
    """

    transactional_id: Narrow
    number: Narrow
    producer_id: Ints
    data_epoch: Narrow
    marker_epoch: Narrow
    version: Narrow
    decision: Narrow
    partitions: Narrow
    decided_ms: Ints
    completed: NDArray[np.bool_]
    replaced: NDArray[np.bool_]
    names: list[str]
    sets: list[Partitions]

    def __len__(self) -> int:
        return len(self.number)

    def take(self, which: NDArray[Any] | slice) -> "Decisions":
        """Some of the decisions: an index array, a mask or a slice; names and sets stay."""
        return replace(self, **{name: getattr(self, name)[which] for name in COLUMNS})

    @classmethod
    def of(cls, transactions: Iterable["Transaction"]) -> "Decisions":
        """The columns of some transactions, in their order."""
        rows = list(transactions)
        names: dict[str, int] = {}
        sets: dict[Partitions, int] = {}
        columns: dict[str, Any] = {
            name: np.array([getattr(each, name) for each in rows], DTYPES[name])
            for name in COLUMNS
            if name not in {"transactional_id", "partitions"}
        }
        for name, known in (("transactional_id", names), ("partitions", sets)):
            numbers = [known.setdefault(getattr(each, name), len(known)) for each in rows]
            columns[name] = np.array(numbers, np.int32)
        return cls(**columns, names=list(names), sets=list(sets))


DTYPES: dict[str, Any] = {
    **dict.fromkeys(("producer_id", "decided_ms"), np.int64),
    **dict.fromkeys(("completed", "replaced"), np.bool_),
    **dict.fromkeys(("transactional_id", "number", "data_epoch", "marker_epoch"), np.int32),
    **dict.fromkeys(("version", "decision", "partitions"), np.int32),
}
COLUMNS = tuple(each.name for each in fields(Decisions) if each.name in DTYPES)


def concatenate_decisions(parts: Sequence[Decisions]) -> Decisions:
    """The decisions of several logs one after the other; equal names and sets become one."""
    merged: dict[str, list[NDArray[Any]]] = {name: [np.empty(0, DTYPES[name])] for name in COLUMNS}
    names: dict[Any, int] = {}
    sets: dict[Any, int] = {}
    for part in parts:
        for name in COLUMNS:
            merged[name].append(getattr(part, name))
        texts: tuple[tuple[str, dict[Any, int], Iterable[Any]], ...] = (
            ("transactional_id", names, part.names),
            ("partitions", sets, part.sets),
        )
        for name, known, own in texts:
            numbers = np.array([known.setdefault(each, len(known)) for each in own], np.int32)
            merged[name][-1] = numbers[getattr(part, name)]
    columns: dict[str, Any] = {name: np.concatenate(own) for name, own in merged.items()}
    return Decisions(**columns, names=list(names), sets=list(sets))
