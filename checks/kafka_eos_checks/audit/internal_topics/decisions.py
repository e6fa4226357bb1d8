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


def stretches(begin: Ints, numbers: Ints | Narrow) -> tuple[Ints, Ints]:
    """The rows of some stretches one after the other, and where each stretch begins there, shape (stretches + 1,).

    Args:
        begin: where each of all stretches begins, and the end of the last one.
        numbers: the wanted stretches.
    """
    sizes = begin[numbers + 1] - begin[numbers]
    own = np.cumsum(sizes) - sizes
    return np.repeat(begin[numbers] - own, sizes) + np.arange(sizes.sum()), np.append(own, sizes.sum())


@dataclass(frozen=True, slots=True)
class PartitionSets:
    """Sets of partitions as columns, which a task sends to another far sooner than sets.

    Attributes:
        places: topics and partitions, each once.
        begin: where each set begins in ``members``, and the end of the last one.
        members: the partitions of all sets, set by set; indices into ``places``.
    """

    places: list[tuple[str, int]]
    begin: Ints
    members: Narrow

    def __len__(self) -> int:
        return len(self.begin) - 1

    def __getitem__(self, number: int) -> Partitions:
        own = self.members[self.begin[number] : self.begin[number + 1]]
        return frozenset(self.places[place] for place in own.tolist())

    def take(self, numbers: Ints | Narrow) -> "PartitionSets":
        """Some of the sets, in this order."""
        rows, begin = stretches(self.begin, numbers)
        return PartitionSets(self.places, begin, self.members[rows])

    @classmethod
    def of(cls, sets: Iterable[Partitions]) -> "PartitionSets":
        """The columns of some sets, in their order."""
        places: dict[tuple[str, int], int] = {}
        members: list[int] = []
        begin = [0]
        for own in sets:
            members += [places.setdefault(place, len(places)) for place in own]
            begin.append(len(members))
        return cls(list(places), np.array(begin, np.int64), np.array(members, np.int32))


def concatenate_sets(parts: Sequence[PartitionSets]) -> PartitionSets:
    """The sets of several parts one after the other."""
    places: dict[tuple[str, int], int] = {}
    members: list[NDArray[Any]] = [np.empty(0, np.int32)]
    begin: list[NDArray[Any]] = [np.zeros(1, np.int64)]
    count = 0
    for part in parts:
        numbers = np.array([places.setdefault(place, len(places)) for place in part.places], np.int32)
        members.append(numbers[part.members])
        begin.append(part.begin[1:] + count)
        count += len(part.members)
    return PartitionSets(list(places), np.concatenate(begin), np.concatenate(members))


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decided transactions, every column of shape (n,), those of a transactional id one after the other.

    The columns are the attributes of :class:`kafka_eos_checks.audit.rules.coordinator.Transaction`.

    Attributes:
        transactional_id: index into ``names``.
        number: the number of the transaction among those of its transactional id.
        offset: the offset of its PREPARE.
        producer_id: the producer id of its data and its markers.
        data_epoch: the epoch of its data.
        marker_epoch: the epoch of its markers.
        version: the transaction version of the client.
        decision: the number of a :class:`kafka_eos.formats.record_batch.ControlType`.
        partitions: index into ``sets``.
        decided_ms: when it was decided, in milliseconds since the epoch, on the coordinator's clock.
        started_ms: when it began, on the coordinator's clock.
        completed: whether the coordinator says that all markers are written.
        replaced: whether a record other than its COMPLETE came next.
        completed_ms: when its COMPLETE was appended, in milliseconds since the epoch; -1 if that did not come next.
        names: transactional ids.
        sets: sets of partitions; some may be equal.
    """

    transactional_id: Narrow
    number: Narrow
    offset: Ints
    producer_id: Ints
    data_epoch: Narrow
    marker_epoch: Narrow
    version: Narrow
    decision: Narrow
    partitions: Narrow
    decided_ms: Ints
    started_ms: Ints
    completed: NDArray[np.bool_]
    replaced: NDArray[np.bool_]
    completed_ms: Ints
    names: list[str]
    sets: PartitionSets

    def __len__(self) -> int:
        return len(self.number)

    def take(self, which: NDArray[Any] | slice) -> "Decisions":
        """Some of the decisions: an index array, a mask or a slice; names and sets stay."""
        return replace(self, **{name: getattr(self, name)[which] for name in COLUMNS})

    def with_own_sets(self) -> "Decisions":
        """The decisions with only those sets of partitions that they need."""
        used, numbers = np.unique(self.partitions, return_inverse=True)
        return replace(self, partitions=numbers.astype(np.int32), sets=self.sets.take(used))

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
        return cls(**columns, names=list(names), sets=PartitionSets.of(sets))


DTYPES: dict[str, Any] = {
    **dict.fromkeys(("offset", "producer_id", "decided_ms", "started_ms", "completed_ms"), np.int64),
    **dict.fromkeys(("completed", "replaced"), np.bool_),
    **dict.fromkeys(("transactional_id", "number", "data_epoch", "marker_epoch"), np.int32),
    **dict.fromkeys(("version", "decision", "partitions"), np.int32),
}
COLUMNS = tuple(each.name for each in fields(Decisions) if each.name in DTYPES)


def concatenate_decisions(parts: Sequence[Decisions]) -> Decisions:
    """The decisions of several logs one after the other; equal names become one."""
    merged: dict[str, list[NDArray[Any]]] = {name: [np.empty(0, DTYPES[name])] for name in COLUMNS}
    names: dict[str, int] = {}
    sets = 0
    for part in parts:
        for name in COLUMNS:
            merged[name].append(getattr(part, name))
        numbers = np.array([names.setdefault(each, len(names)) for each in part.names], np.int32)
        merged["transactional_id"][-1] = numbers[part.transactional_id]
        merged["partitions"][-1] = part.partitions + np.int32(sets)
        sets += len(part.sets)
    columns: dict[str, Any] = {name: np.concatenate(own) for name, own in merged.items()}
    return Decisions(**columns, names=list(names), sets=concatenate_sets([part.sets for part in parts]))
