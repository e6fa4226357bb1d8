"""Single events for the readable rules: a range of a history is read again once, for all tasks that need events of it.

A stage that knows the places of events gives them as rows by range (:func:`sought`). :func:`fetch_events` reads a range
and hands its events to the tasks. Otherwise each task would read them itself, and since suspects are anywhere, it would
read nearly all of a history that lies in groups of rows or on another file system.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.events.history_files import Line, Range, event_of, lines_at
from kafka_eos_checks.audit.events.recorded import AT_BITS, RunFacts
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.audit.segments.order import places_of_each

SOUGHT = 98  # a kind of rows, next to those of the plan for histories
EVENT_BYTES = 300  # that an event takes between stages, about


class Sought(NamedTuple):
    """Events of a range that tasks need.

    Attributes:
        kind: the kind of the rows that give them to the tasks.
        head: what the values of these rows begin with.
        keys: the key of each event's task, shape (n,).
        places: the place of each event, shape (n,).
    """

    kind: int
    head: tuple[Any, ...]
    keys: Ints
    places: Ints


class Shown(NamedTuple):
    """Events that were fetched, and their places."""

    places: Ints
    lines: Sequence[Line]


def starts_of(parts: Iterable[tuple[int, Range]]) -> Ints:
    """The least place in each range, shape (n,), ascending."""
    return np.array([number << AT_BITS | part.first for number, part in parts], np.int64)


def sought(kind: int, head: tuple[Any, ...], keys: Ints | int, places: Ints, starts: Ints) -> Iterator[Row]:
    """Rows of the places of events, by range.

    Args:
        kind: as in :class:`Sought`.
        head: as in :class:`Sought`.
        keys: the key of each event's task, or the key of the only task.
        places: the places, shape (n,).
        starts: the ranges, see :func:`starts_of`.
    """
    keys = np.broadcast_to(keys, places.shape)
    for part, own in places_of_each(np.searchsorted(starts, places, "right") - 1):
        yield Row(SOUGHT, part, Sought(kind, head, keys[own], places[own]), 2 * places[own].nbytes)


def fetch_events(
    part: int,  # noqa: ARG001
    values: Iterable[Sought],
    *,
    files: Sequence[Path],
) -> Iterator[Row]:
    """Read the events of a range that tasks need; rows of the wanted kinds, the values end with :class:`Shown`."""
    wanted = list(values)
    lines = lines_of(files, np.concatenate([each.places for each in wanted]))
    for kind, head, keys, places in wanted:
        for key, own in places_of_each(keys):
            shown = Shown(places[own], [lines[place] for place in places[own].tolist()])
            yield Row(kind, key, (*head, shown), EVENT_BYTES * len(own))


def lines_of(files: Sequence[Path], places: Ints) -> dict[int, Line]:
    """The events at places of one file, by place."""
    number, in_file = int(places[0]) >> AT_BITS, np.unique(places) & ((1 << AT_BITS) - 1)
    return {number << AT_BITS | at: line for at, line in lines_at(files[number], in_file.tolist())}


def events_of(shown: Iterable[Shown]) -> dict[int, Event]:
    """The fetched events by their places."""
    return {at: event_of(line) for each in shown for at, line in zip(each.places.tolist(), each.lines, strict=True)}


def in_order(events: Mapping[int, Event], run: RunFacts) -> list[tuple[int, Event]]:
    """Events with their places, in the order of their run."""
    found = sorted(events.items(), key=lambda numbered: numbered[0])
    if run.ordered:
        found.sort(key=lambda numbered: numbered[1].order or 0)
    return found
