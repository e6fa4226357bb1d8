"""Some events of a history at a time, by columns; here those from lines."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from msgspec import UNSET
from numpy.typing import DTypeLike, NDArray

from kafka_eos_checks.audit.segments.headers import Ints, Mask

NOWHERE = np.iinfo(np.int64).min  # an offset or an order that an event does not have
NUMBER = (1 << 62) - 1  # the bits of a transaction's number that count


class Form(NamedTuple):
    """The fields of an event that decide which rules read it. A history has few different ones."""

    action: str
    phase: str
    topic: str | None
    partition: int | None
    isolation: str | None


class Values(NamedTuple):
    """The values that some events tell, as text.

    Attributes:
        text: one after the other, in UTF-8; ``None`` for an event without one.
        sizes: the bytes of each, shape (n,).
        told: whether an event tells a value, which may be null, shape (n,).
        present: whether it is not null, shape (n,).
    """

    text: bytes
    sizes: Ints
    told: Mask
    present: Mask


class Block(Protocol):
    """Some events of a history, one or more."""

    def __len__(self) -> int: ...

    def by_run(self) -> Iterator[tuple[str, Self, Ints | None]]:
        """The events of each run, in the order of the runs' first events, and their rows; None if all are of one."""

    def take(self, rows: Ints) -> Self:
        """The events in some rows."""

    def forms(self, of: Mapping[Any, int]) -> Ints:
        """The number of each event's :class:`Form`, shape (n,); ``of`` has the number of each form."""

    def texts(self, column: str, of: Mapping[Any, int], kind: DTypeLike) -> NDArray[Any]:
        """The number of each event's text in a column, shape (n,).

        ``of`` has the number of each text, and of None where there is no text; ``kind`` is the type of the numbers.
        """

    def integers(self, column: str) -> Ints:
        """The numbers of a column, :data:`NOWHERE` for none, shape (n,).

        Raises:
            OverflowError: one has more than 64 bits.
        """

    def values(self) -> Values:
        """The value that each event's detail tells, as text."""

    def transactions(self) -> Ints:
        """The number of each event's transaction, its lowest 62 bits; :data:`NOWHERE` where the detail tells none."""

    def faults(self) -> Collection[Any]:
        """The faults that the events' details tell, some of them more than once."""

    def fields(self, rows: Ints, names: Sequence[str]) -> Iterable[list[Any]]:
        """Some fields of the details of the events in some rows, a column each; ``UNSET`` where one is not there."""


class Lines:
    """Events, each a :data:`kafka_eos_checks.audit.events.columns.Column`, as a :class:`Block`.

    Attributes are read in comprehensions where it counts: that takes half the time of ``map(attrgetter(…), …)``.
    """

    def __init__(self, events: Sequence[Any]) -> None:
        self.events = events

    def __len__(self) -> int:
        return len(self.events)

    def by_run(self) -> Iterator[tuple[str, Self, Ints | None]]:
        """As :meth:`Block.by_run`."""
        runs = [each.run for each in self.events]
        if runs.count(runs[0]) == len(runs):
            yield runs[0], self, None
            return
        for run in dict.fromkeys(runs):
            rows = np.array([row for row, each in enumerate(runs) if each == run], np.int64)
            yield run, self.take(rows), rows

    def take(self, rows: Ints) -> Self:
        """As :meth:`Block.take`."""
        return type(self)([self.events[row] for row in rows.tolist()])

    def forms(self, of: Mapping[Any, int]) -> Ints:
        """As :meth:`Block.forms`."""
        found = [of[each.action, each.phase, each.topic, each.partition, each.isolation] for each in self.events]
        return np.fromiter(found, np.int64, len(self))

    def texts(self, column: str, of: Mapping[Any, int], kind: DTypeLike) -> NDArray[Any]:
        """As :meth:`Block.texts`."""
        return np.fromiter(map(of.__getitem__, map(attrgetter(column), self.events)), kind, len(self))

    def integers(self, column: str) -> Ints:
        """As :meth:`Block.integers`."""
        try:
            return np.fromiter(map(attrgetter(column), self.events), np.int64, len(self))
        except TypeError:  # an event says that it has none
            return integers(list(map(attrgetter(column), self.events)))

    def values(self) -> Values:
        """As :meth:`Block.values`."""
        return values_of([each.detail.value for each in self.events])

    def transactions(self) -> Ints:
        """As :meth:`Block.transactions`."""
        return transactions_of([each.detail.transaction for each in self.events])

    def faults(self) -> Collection[Any]:
        """As :meth:`Block.faults`."""
        return [each.detail.fault for each in self.events]

    def fields(self, rows: Ints, names: Sequence[str]) -> Iterable[list[Any]]:
        """As :meth:`Block.fields`."""
        return fields_of([self.events[row].detail for row in rows.tolist()], names)


def values_of(values: list[Any]) -> Values:
    """The values of some details, ``UNSET`` where there is none; they become text in their list."""
    told = np.ones(len(values), np.bool_)
    present = told.copy()
    for row in [row for row, value in enumerate(values) if value.__class__ is not str]:
        if values[row] is UNSET or values[row] is None:
            told[row], present[row] = values[row] is None, False
            values[row] = None
        values[row] = str(values[row])
    text = "".join(values)
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) != len(text):  # not only ASCII
        values = [value.encode("utf-8", "surrogatepass") for value in values]
    return Values(encoded, np.fromiter(map(len, values), np.int64, len(values)), told, present)


def transactions_of(told: Sequence[Any]) -> Ints:
    """The numbers of transactions in some details, as :meth:`Block.transactions`."""
    numbers = [NOWHERE if number is UNSET or number is None else number & NUMBER for number in told]
    return np.array(numbers, np.int64)


def fields_of(details: Sequence[Any], names: Sequence[str]) -> Iterable[list[Any]]:
    """Some fields of some details, as :meth:`Block.fields`."""
    return (list(map(attrgetter(name), details)) for name in names)


def integers(column: Sequence[int | None]) -> Ints:
    """Numbers, :data:`NOWHERE` for None; raises OverflowError for one of more than 64 bits."""
    return np.array([NOWHERE if n is None else n for n in column] if None in column else column, np.int64)
