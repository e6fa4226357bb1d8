"""Some events of a history at a time, by columns: events from lines, or rows of a table, which never become events."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from msgspec import UNSET
from numpy.typing import DTypeLike, NDArray

from kafka_eos_checks.audit.segments.headers import Ints

NOWHERE = np.iinfo(np.int64).min  # an offset or an order that an event does not have
NUMBER = (1 << 62) - 1  # the bits of a transaction's number that count
Mask = NDArray[np.bool_]


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

    def details(self, rows: Ints, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Some fields of the details of the events in some rows, ``UNSET`` where one is not there."""


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

    def details(self, rows: Ints, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """As :meth:`Block.details`."""
        return _fields_of([self.events[row].detail for row in rows.tolist()], names)


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


def _fields_of(details: Sequence[Any], names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(map(attrgetter(name), details) for name in names), strict=True)


def integers(column: Sequence[int | None]) -> Ints:
    """Numbers, :data:`NOWHERE` for None; raises OverflowError for one of more than 64 bits."""
    return np.array([NOWHERE if n is None else n for n in column] if None in column else column, np.int64)


class Coded(NamedTuple):
    """A column of texts: the different ones and None, and for each row the place of its text among them."""

    texts: Sequence[str | None]
    places: Ints


class Details(Protocol):
    """The details of the rows of a table; ``rows`` are some of them, and the rest is as of a :class:`Block`."""

    def __len__(self) -> int: ...

    def values(self, rows: Ints) -> Values:
        """As :meth:`Block.values`."""

    def transactions(self, rows: Ints) -> Ints:
        """As :meth:`Block.transactions`."""

    def faults(self, rows: Ints) -> Collection[Any]:
        """As :meth:`Block.faults`."""

    def some(self, rows: Ints, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """As :meth:`Block.details`."""


class Listed:
    """Details, each a :data:`kafka_eos_checks.audit.events.columns.Detail`, as :class:`Details`."""

    def __init__(self, details: Sequence[Any]) -> None:
        self._details = details

    def __len__(self) -> int:
        return len(self._details)

    def values(self, rows: Ints) -> Values:
        """As :meth:`Block.values`."""
        return values_of([each.value for each in self._in(rows)])

    def transactions(self, rows: Ints) -> Ints:
        """As :meth:`Block.transactions`."""
        return transactions_of([each.transaction for each in self._in(rows)])

    def faults(self, rows: Ints) -> Collection[Any]:
        """As :meth:`Block.faults`."""
        return [each.fault for each in self._in(rows)]

    def some(self, rows: Ints, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """As :meth:`Block.details`."""
        return _fields_of(self._in(rows), names)

    def _in(self, rows: Ints) -> list[Any]:
        return [self._details[row] for row in rows.tolist()]


class Table:
    """Rows of a table as a :class:`Block`.

    Args:
        texts: columns of texts; one that is not there has no text in any row.
        numbers: columns of numbers as :meth:`Block.integers` gives them; one that is not there has none in any row.
        details: the details of all rows.
        rows: the rows that are events of the block; None for all.
    """

    def __init__(
        self,
        texts: Mapping[str, Coded],
        numbers: Mapping[str, Ints],
        details: Details,
        rows: Ints | None = None,
    ) -> None:
        self._columns = texts, numbers, details
        self._rows = np.arange(len(details)) if rows is None else rows

    def __len__(self) -> int:
        return len(self._rows)

    def by_run(self) -> Iterator[tuple[str, Self, Ints | None]]:
        """As :meth:`Block.by_run`."""
        runs = self._coded("run")
        present, first = np.unique(runs.places, return_index=True)
        for place in present[np.argsort(first)].tolist():
            rows = None if len(present) == 1 else np.flatnonzero(runs.places == place)
            yield str(runs.texts[place]), self if rows is None else self.take(rows), rows

    def take(self, rows: Ints) -> Self:
        """As :meth:`Block.take`."""
        return type(self)(*self._columns, self._rows[rows])

    def forms(self, of: Mapping[Any, int]) -> Ints:
        """As :meth:`Block.forms`."""
        partitions, places = np.unique(self.integers("partition"), return_inverse=True)
        numbers = [None if number == NOWHERE else number for number in partitions.tolist()]
        columns = [(numbers, places) if name == "partition" else self._coded(name) for name in Form._fields]
        codes = np.zeros(len(self), np.int64)
        for values, places in columns:
            codes = codes * len(values) + places
        _, first, own = np.unique(codes, return_index=True, return_inverse=True)
        forms = [tuple(values[places[row]] for values, places in columns) for row in first.tolist()]
        return np.array([of[form] for form in forms], np.int64)[own]

    def texts(self, column: str, of: Mapping[Any, int], kind: DTypeLike) -> NDArray[Any]:
        """As :meth:`Block.texts`."""
        texts, places = self._coded(column)
        return np.array([of[text] for text in texts], kind)[places]

    def integers(self, column: str) -> Ints:
        """As :meth:`Block.integers`."""
        _, numbers, _ = self._columns
        return numbers[column][self._rows] if column in numbers else np.full(len(self), NOWHERE)

    def values(self) -> Values:
        """As :meth:`Block.values`."""
        *_, details = self._columns
        return details.values(self._rows)

    def transactions(self) -> Ints:
        """As :meth:`Block.transactions`."""
        *_, details = self._columns
        return details.transactions(self._rows)

    def faults(self) -> Collection[Any]:
        """As :meth:`Block.faults`."""
        *_, details = self._columns
        return details.faults(self._rows)

    def details(self, rows: Ints, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """As :meth:`Block.details`."""
        *_, details = self._columns
        return details.some(self._rows[rows], names)

    def _coded(self, column: str) -> Coded:
        texts, *_ = self._columns
        if column not in texts:
            return Coded([None], np.zeros(len(self), np.int64))
        return Coded(texts[column].texts, texts[column].places[self._rows])
