"""A history of Jepsen's workload for Kafka of any length, with anomalies planted in known keys.

Processes poll the keys that are assigned to them, and send to any in transactions, which overlap. A key with
:data:`VALUES_OF_A_KEY` values is replaced by a new one, as in Jepsen's workload, and polled to its end. Markers take
offsets. Some transactions fail, some append before they end, and a process whose operation has an unknown outcome goes
on under a new number.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_eos_checks.audit.jepsen.anomalies import ABORTED_READ, BACKWARD_POLL, DUPLICATE, INCONSISTENT, LOST_WRITE
from kafka_eos_checks.audit.jepsen.operations import FAIL, INFO, OK

PROCESSES, KEYS = 5, 12
VALUES_OF_A_KEY = 1024  # Jepsen's default
POLLED_AT_ONCE = 16  # values of a key
ASSIGNED, EARLY = 0.005, 0.02  # shares of operations that assign keys, and of sends that are seen before they end
PLANTED = (LOST_WRITE, DUPLICATE, INCONSISTENT, ABORTED_READ, BACKWARD_POLL)


@dataclass(slots=True)
class _Key:
    """A key that some process still sends to or polls.

    Attributes:
        number: its number.
        planted: the anomaly to plant in it; "" for none.
        values: the values that readers are given, with their offsets.
        end: the next offset.
        sent: the number of values that were sent.
        open: the number of sends under way.
        position: the number of values that its process was given.
    """

    number: int
    planted: str
    values: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0
    sent: int = 0
    open: int = 0
    position: int = 0


@dataclass(slots=True)
class _Running:
    """An operation under way.

    Attributes:
        kind: ``:txn`` or ``:assign``.
        outcome: how it ends.
        asked: the parts of its invocation.
        told: the parts of its completion so far.
        sends: its sends that are not appended yet.
    """

    kind: str
    outcome: str
    asked: str
    told: list[str]
    sends: list[tuple[_Key, int]] = field(default_factory=list)


@dataclass(slots=True)
class JepsenHistory:
    """The generator of a history.

    Attributes:
        operations: the number of operations, before the last polls of each key.
        faults: how often each anomaly of :data:`PLANTED` is planted, each in a key of its own.
        seed: the seed of all choices.
        planted: the keys in which anomalies were planted so far, by anomaly.
    """

    operations: int
    faults: int = 0
    seed: int = 0
    planted: dict[str, list[int]] = field(default_factory=dict)
    _rng: random.Random = field(init=False)
    _due: list[str] = field(init=False)
    _keys: list[_Key] = field(default_factory=list, init=False)
    _full: list[_Key] = field(default_factory=list, init=False)  # without new sends, until they are polled to the end
    _made: int = field(default=0, init=False)
    _value: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._due = [name for _ in range(self.faults) for name in PLANTED]
        self._keys = [self._key() for _ in range(KEYS)]

    def _key(self) -> _Key:
        self._made += 1
        return _Key(self._made - 1, self._due.pop() if self._due else "")

    def lines(self) -> Iterator[str]:
        """The lines of the history, two for each operation."""
        names = list(range(PROCESSES))
        running: dict[int, _Running] = {}
        index = begun = 0
        while begun < self.operations or running:
            process = self._rng.randrange(PROCESSES)
            own = running.pop(process, None)
            if own is None and begun == self.operations:
                continue
            head = f"{{:index {index}, :time {index * 1000}, :process {names[process]}, :f"
            index += 1
            if own is None:
                begun += 1
                own = running[process] = self._begun(process)
                yield f"{head} {own.kind}, :type :invoke, :value [{own.asked}]}}\n"
                continue
            own.told += [self._send(key, each, own.outcome) for key, each in own.sends]
            yield f"{head} {own.kind}, :type {own.outcome}, :value [{' '.join(own.told)}]}}\n"
            names[process] += PROCESSES * (own.outcome == INFO)
            self._full = [key for key in self._full if key.open or key.position < len(key.values)]
        for key in (*self._keys, *self._full):
            polled = self._poll(key, len(key.values))
            for kind, value in ((":invoke", "[:poll]"), (OK, f"[:poll {{{polled}}}]")):
                yield f"{{:index {index}, :process {names[0]}, :f :txn, :type {kind}, :value [{value}]}}\n"
                index += 1

    def _begun(self, process: int) -> _Running:
        """An operation that a process begins: an ``:assign`` of its keys, or a transaction."""
        rng = self._rng
        keys = [key for key in (*self._keys, *self._full) if key.number % PROCESSES == process]
        if rng.random() < ASSIGNED:
            numbers = [str(key.number) for key in keys]
            return _Running(":assign", OK, " ".join(numbers), numbers)
        draw = rng.random()
        own = _Running(":txn", FAIL if draw < 0.02 else INFO if draw < 0.03 else OK, "[:poll]", [])
        given = [self._poll(key, rng.randint(1, POLLED_AT_ONCE)) for key in keys] if own.outcome == OK else []
        own.told.append(f"[:poll {{{' '.join(filter(None, given))}}}]")
        for _ in range(rng.choice((0, 1, 1, 2))):
            self._value += 1
            at = rng.randrange(KEYS)
            key = self._keys[at]
            key.sent += 1
            key.open += 1
            own.asked += f" [:send {key.number} {self._value}]"
            if rng.random() < EARLY and own.outcome == OK:
                own.told.append(self._send(key, self._value, OK))
            else:
                own.sends.append((key, self._value))
            if key.sent == VALUES_OF_A_KEY:
                self._full.append(key)
                self._keys[at] = self._key()
        return own

    def _send(self, key: _Key, value: int, outcome: str) -> str:
        """Append a value to its key; the part of the operation that tells of it."""
        offset, key.end, key.open = key.end, key.end + 2, key.open - 1  # a marker follows
        due = key.planted if len(key.values) > VALUES_OF_A_KEY // 2 else ""
        committed = outcome == OK
        if due == ABORTED_READ and outcome == FAIL:
            committed = True
            self._plant(key)
        elif due == LOST_WRITE and committed:
            committed = False
            self._plant(key)
        elif due == DUPLICATE and committed:
            key.values.append((offset - 1, value))
            self._plant(key)
        elif due == INCONSISTENT and committed:
            key.values.append((offset, -value))
            committed = False
            self._plant(key)
        if committed:
            key.values.append((offset, value))
        return f"[:send {key.number} {f'[{offset} {value}]' if outcome == OK else value}]"

    def _poll(self, key: _Key, most: int) -> str:
        """The next values of a key that its process is given."""
        start = key.position
        if key.planted == BACKWARD_POLL and start > VALUES_OF_A_KEY // 2:
            start -= 1
            self._plant(key)
        values = key.values[start : start + most]
        key.position = start + len(values)
        return f"{key.number} [{' '.join(f'[{offset} {value}]' for offset, value in values)}]" if values else ""

    def _plant(self, key: _Key) -> None:
        self.planted.setdefault(key.planted, []).append(key.number)
        key.planted = ""
