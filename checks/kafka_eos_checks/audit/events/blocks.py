"""Some events of a history at a time, by columns: events from lines, or rows of a table, which never become events."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kafka_eos_checks.audit.segments.headers import Ints

NOWHERE = np.iinfo(np.int64).min  # an offset or an order that an event does not have


class Form(NamedTuple):
    """The fields of an event that decide which rules read it. A history has few different ones."""

    action: str
    phase: str
    topic: str | None
    partition: int | None
    isolation: str | None


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

    def details(self) -> Sequence[Any]:
        """The detail of each event, a :data:`kafka_eos_checks.audit.events.columns.Detail`."""


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

    def details(self) -> Sequence[Any]:
        """As :meth:`Block.details`."""
        return [each.detail for each in self.events]


def integers(column: Sequence[int | None]) -> Ints:
    """Numbers, :data:`NOWHERE` for None; raises OverflowError for one of more than 64 bits."""
    return np.array([NOWHERE if n is None else n for n in column] if None in column else column, np.int64)


class Coded(NamedTuple):
    """A column of texts: the different ones and None, and for each row the place of its text among them."""

    texts: Sequence[str | None]
    places: Ints


class Table:
    """Rows of a table as a :class:`Block`.

    Args:
        texts: columns of texts; one that is not there has no text in any row.
        numbers: columns of numbers as :meth:`Block.integers` gives them; one that is not there has none in any row.
        details: the detail of each row.
        rows: the rows that are events of the block; None for all.
    """

    def __init__(
        self,
        texts: Mapping[str, Coded],
        numbers: Mapping[str, Ints],
        details: Sequence[Any],
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

    def details(self) -> Sequence[Any]:
        """As :meth:`Block.details`."""
        *_, details = self._columns
        return [details[row] for row in self._rows.tolist()]

    def _coded(self, column: str) -> Coded:
        texts, *_ = self._columns
        if column not in texts:
            return Coded([None], np.zeros(len(self), np.int64))
        return Coded(texts[column].texts, texts[column].places[self._rows])
