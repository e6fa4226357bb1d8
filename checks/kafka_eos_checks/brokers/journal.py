"""The journal: the only writer of a run's history.

Events come from several processes: clients, the proxy, and the one that kills and restarts. The process that saw an
event stamps it with the machine's monotonic clock, before any effect of the event may begin. So sorting by the stamp
gives one order in which no effect comes before its cause.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_eos.histories.history import Event, event_from_json


class StillWaiting(TimeoutError):  # noqa: N818 - what the run is doing when time is up
    """An event that a scenario waits for has not happened in time."""


@dataclass(slots=True)
class Journal:
    """Collects the events of one run, from any thread.

    Attributes:
        run: the run's name, given to every event.
    """

    run: str
    _events: list[tuple[int, Event]] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    # microseconds since the epoch at monotonic zero
    _epoch_us: int = field(default_factory=lambda: (time.time_ns() - time.monotonic_ns()) // 1000)

    def add(self, process: str, action: str, phase: str, *, at: int | None = None, **columns: Any) -> None:
        """Add an event, stamped ``at`` (nanoseconds of the monotonic clock) or now."""
        stamp = time.monotonic_ns() if at is None else at
        event = Event(
            run=self.run,
            time_us=self._epoch_us + stamp // 1000,
            process=process,
            action=action,
            phase=phase,
            **columns,
        )
        with self._changed:
            self._events.append((stamp, event))
            self._changed.notify_all()

    def add_line(self, process: str, line: str) -> None:
        """Add a client's line ``STAMP JSON``; the JSON has an event's columns except run, time and process.

        Raises:
            MalformedHistory: when the line is none.
        """
        stamp, _, columns = line.partition(" ")
        event = event_from_json('{"run":"-","process":"-",' + columns.lstrip().removeprefix("{"), process)
        with self._changed:
            at = int(stamp)
            named = replace(event, run=self.run, process=process, time_us=self._epoch_us + at // 1000)
            self._events.append((at, named))
            self._changed.notify_all()

    def events(self) -> list[Event]:
        """All events so far in their order, numbered from 0."""
        with self._changed:
            ordered = sorted(self._events, key=lambda pair: pair[0])
        return [replace(event, order=number) for number, (_, event) in enumerate(ordered)]

    def count(self, wanted: Callable[[Event], bool]) -> int:
        """The number of events so far that satisfy a predicate."""
        with self._changed:
            return sum(wanted(event) for _, event in self._events)

    def wait_for(self, wanted: Callable[[Event], bool], count: int, seconds: float, what: str) -> None:
        """Wait until ``count`` events satisfy a predicate.

        Raises:
            StillWaiting: when they have not after ``seconds``.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            seen = found = 0
            while True:
                found += sum(wanted(event) for _, event in self._events[seen:])
                seen = len(self._events)
                if found >= count:
                    return
                if not self._changed.wait(deadline - time.monotonic()):
                    raise StillWaiting(f"{self.run}: {found} of {count} {what} after {seconds:.0f} s")
