"""Some rows of a table at a time, as :class:`kafka_eos_checks.audit.events.blocks.Block`: they never become events."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kafka_eos_checks.audit.events.blocks import NOWHERE, Form, Values, fields_of, transactions_of, values_of
from kafka_eos_checks.audit.segments.headers import Ints


class Coded(NamedTuple):
    """A column of texts: the different ones and None, and for each row the place of its text among them."""

    texts: Sequence[str | None]
    places: Ints


class Details(Protocol):
    """The details of the rows of a table; ``rows`` are some of them, and the rest is as of a block."""

    def __len__(self) -> int: ...

    def values(self, rows: Ints) -> Values:
        """As of a block."""

    def transactions(self, rows: Ints) -> Ints:
        """As of a block."""

    def faults(self, rows: Ints) -> Collection[Any]:
        """As of a block."""

    def fields(self, rows: Ints, names: Sequence[str]) -> Iterable[list[Any]]:
        """As of a block."""


class Listed:
    """Details, each a :data:`kafka_eos_checks.audit.events.columns.Detail`, as :class:`Details`."""

    def __init__(self, details: Sequence[Any]) -> None:
        self._details = details

    def __len__(self) -> int:
        return len(self._details)

    def values(self, rows: Ints) -> Values:
        """As of a block."""
        return values_of([each.value for each in self._in(rows)])

    def transactions(self, rows: Ints) -> Ints:
        """As of a block."""
        return transactions_of([each.transaction for each in self._in(rows)])

    def faults(self, rows: Ints) -> Collection[Any]:
        """As of a block."""
        return [each.fault for each in self._in(rows)]

    def fields(self, rows: Ints, names: Sequence[str]) -> Iterable[list[Any]]:
        """As of a block."""
        return fields_of(self._in(rows), names)

    def _in(self, rows: Ints) -> list[Any]:
        return [self._details[row] for row in rows.tolist()]


class Table:
    """Rows of a table as a block.

    Args:
        texts: columns of texts; one that is not there has no text in any row.
        numbers: columns of numbers as a block's ``integers`` gives them; one that is not there has none in any row.
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
        """As of a block."""
        runs = self._coded("run")
        present, first = np.unique(runs.places, return_index=True)
        for place in present[np.argsort(first)].tolist():
            rows = None if len(present) == 1 else np.flatnonzero(runs.places == place)
            yield str(runs.texts[place]), self if rows is None else self.take(rows), rows

    def take(self, rows: Ints) -> Self:
        """As of a block."""
        return type(self)(*self._columns, self._rows[rows])

    def forms(self, of: Mapping[Any, int]) -> Ints:
        """As of a block."""
        partitions, places = _different(self.integers("partition"))
        numbers = [None if number == NOWHERE else number for number in partitions.tolist()]
        columns = [(numbers, places) if name == "partition" else self._coded(name) for name in Form._fields]
        shape = [len(values) for values, _ in columns]
        codes, own = _different(np.ravel_multi_index([places for _, places in columns], shape))
        every = zip(*(places.tolist() for places in np.unravel_index(codes, shape)), strict=True)
        forms = [tuple(columns[field][0][place] for field, place in enumerate(form)) for form in every]
        return np.array([of[form] for form in forms], np.int64)[own]

    def texts(self, column: str, of: Mapping[Any, int], kind: DTypeLike) -> NDArray[Any]:
        """As of a block."""
        texts, places = self._coded(column)
        return np.array([of[text] for text in texts], kind)[places]

    def integers(self, column: str) -> Ints:
        """As of a block."""
        _, numbers, _ = self._columns
        return numbers[column][self._rows] if column in numbers else np.full(len(self), NOWHERE)

    def values(self) -> Values:
        """As of a block."""
        *_, details = self._columns
        return details.values(self._rows)

    def transactions(self) -> Ints:
        """As of a block."""
        *_, details = self._columns
        return details.transactions(self._rows)

    def faults(self) -> Collection[Any]:
        """As of a block."""
        *_, details = self._columns
        return details.faults(self._rows)

    def fields(self, rows: Ints, names: Sequence[str]) -> Iterable[list[Any]]:
        """As of a block."""
        *_, details = self._columns
        return details.fields(self._rows[rows], names)

    def _coded(self, column: str) -> Coded:
        texts, *_ = self._columns
        if column not in texts:
            return Coded([None], np.zeros(len(self), np.int64))
        return Coded(texts[column].texts, texts[column].places[self._rows])


def _different(numbers: Ints) -> tuple[Ints, Ints]:
    """The different ones of some numbers, and for each number its place among them; Arrow does not have to sort."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow, and no tables

    coded = pa.array(numbers).dictionary_encode()
    return coded.dictionary.to_numpy(), coded.indices.to_numpy()
