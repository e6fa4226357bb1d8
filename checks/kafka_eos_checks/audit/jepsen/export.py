"""Write a history in the form of Jepsen's workload for Kafka, so that Jepsen's checker can judge the same run.

- A transaction is a ``:txn`` of its process with its sends: ``:ok`` if its commit was answered, ``:fail`` if its abort
  was answered or its commit failed, otherwise ``:info``. A send outside of transactions is a ``:send``.
- A record that a reader of committed data was given is a ``:poll``. After its ``Assign``, ``Revoke``, ``Seek`` or
  ``AbortTransaction`` a reader may be anywhere, so an ``:assign`` without keys is written. The workload has no readers
  of uncommitted data.
- A key is a topic with its partition. A process has a number and another one for its reading, because a process of
  Jepsen's has one operation at a time. After its ``Crash`` it gets new numbers, as in Jepsen.
- Values that were sent to a topic more than once are left out, with their polls, because the anomalies are defined for
  values that are sent once. Sends of unknown partition are left out too.

An operation that was begun and not completed is written with an unknown outcome when its process crashes or the history
ends.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.segments.contents import place_of

_Sent = tuple[str, int, str]  # topic, partition, value
_Sends = dict[_Sent, int | None]  # with the offset, if it is known


def write_operations(path: Path, events: Iterable[Event]) -> int:
    """Write the operations of one run, in its order; return their number.

    Raises:
        ValueError: the events are of several runs, which have no common order.
        OSError: the file cannot be written.
    """
    run = list(events)
    if len({event.run for event in run}) > 1:
        raise ValueError("a history of Jepsen has one run, these events have several; give one run")
    if all(event.order is not None for event in run):
        run.sort(key=lambda event: event.order or 0)
    begun = Counter(_value(event) for event in run if (event.action, event.phase) == ("Send", "invoke"))
    export = _Export(frozenset(value for value, count in begun.items() if count == 1))
    for event in run:
        export.take(event)
    for process in dict.fromkeys(event.process for event in run):
        export.leave(process)
    path.write_text("".join(export.lines), encoding="utf-8")
    return len(export.lines)


@dataclass(slots=True)
class _Export:
    """The operations under way at a place of the history.

    Attributes:
        once: topics and values that were sent exactly once.
        lines: the operations so far.
        numbers: Jepsen's process number, by process and whether it reads.
        transactions: by process, its open transactions by number; one begins with its first send if no event says so.
        ended: processes and numbers of transactions that have ended: an answer to a send of theirs comes late.
        single: sends outside of transactions, by process and record.
    """

    once: frozenset[tuple[str | None, str]]
    lines: list[str] = field(default_factory=list)
    numbers: dict[tuple[str, bool], int] = field(default_factory=dict)
    transactions: dict[str, dict[Any, _Sends]] = field(default_factory=lambda: defaultdict(dict))
    ended: set[tuple[str, Any]] = field(default_factory=set)
    single: dict[str, _Sends] = field(default_factory=lambda: defaultdict(dict))
    _given: int = 0

    def take(self, event: Event) -> None:
        """Follow one event."""
        process, phase, number = event.process, event.phase, event.detail.get("transaction")
        if event.action == "BeginTransaction" and phase == "ok":
            self.ended.discard((process, number))
        elif event.action in {"CommitTransaction", "AbortTransaction"} and phase != "invoke":
            failed = phase == "fail" or (event.action == "AbortTransaction" and phase == "ok")
            self._end(process, number, ":fail" if failed else f":{phase}")
            self.ended.add((process, number))
            if event.action == "AbortTransaction":
                self._moved(process)
        elif event.action == "Send":
            self._send(event)
        elif event.action == "Poll" and phase == "ok" and event.isolation != "read_uncommitted":
            sent = self._sent(event)
            if sent is not None and event.offset is not None:
                given = f"{{{_key(sent)} [{_pair(sent, event.offset)}]}}"
                self._write(process, True, ":ok", ":poll", f"[[:poll {given}]]")
        elif event.action in {"Assign", "Revoke", "Seek"} and phase == "ok":
            self._moved(process)
        elif event.action == "Crash":
            self.leave(process)
            self.ended = {each for each in self.ended if each[0] != process}
            self.numbers = {key: number for key, number in self.numbers.items() if key[0] != process}

    def leave(self, process: str) -> None:
        """End the operations of a process with an unknown outcome: they may still happen."""
        for number in list(self.transactions[process]):
            self._end(process, number, ":info")
        for sent in self.single.pop(process, {}):
            self._write(process, False, ":info", ":send", f"[{_micro(sent, None)}]")

    def _sent(self, event: Event) -> _Sent | None:
        """The place and value of an event; None if the value was not sent exactly once."""
        place = place_of(event)
        return None if place is None or _value(event) not in self.once else (*place, _value(event)[1])

    def _send(self, event: Event) -> None:
        process, sent = event.process, self._sent(event)
        if sent is None:
            return
        number = event.detail.get("transaction")
        if number is not None and (process, number) in self.ended:
            return
        in_transaction = number is not None
        sends = self.transactions[process].setdefault(number, {}) if in_transaction else self.single[process]
        if in_transaction or event.phase == "invoke":
            sends[sent] = event.offset
            return
        sends.pop(sent, None)
        self._write(process, False, f":{event.phase}", ":send", f"[{_micro(sent, event.offset)}]")

    def _moved(self, process: str) -> None:
        """Note that a process may read anywhere now, if it has read at all."""
        if (process, True) in self.numbers:
            self._write(process, True, ":ok", ":assign", "[]")

    def _end(self, process: str, number: Any, outcome: str) -> None:
        """End a transaction."""
        sends = self.transactions[process].pop(number, {})
        if sends:
            micros = " ".join(_micro(sent, offset) for sent, offset in sends.items())
            self._write(process, False, outcome, ":txn", f"[{micros}]")

    def _write(self, process: str, reads: bool, outcome: str, kind: str, value: str) -> None:
        if (process, reads) not in self.numbers:
            self.numbers[process, reads] = self._given
            self._given += 1
        number = self.numbers[process, reads]
        index = len(self.lines)
        self.lines.append(
            f"{{:index {index}, :time {index}, :type {outcome}, :process {number}, :f {kind}, :value {value}}}\n"
        )


def _value(event: Event) -> tuple[str | None, str]:
    return event.topic, str(event.detail.get("value"))


def _key(sent: _Sent) -> str:
    return json.dumps(f"{sent[0]}-{sent[1]}")


def _pair(sent: _Sent, offset: int | None) -> str:
    return f"[{'nil' if offset is None else offset} {json.dumps(sent[2])}]"


def _micro(sent: _Sent, offset: int | None) -> str:
    return f"[:send {_key(sent)} {_pair(sent, offset)}]"
