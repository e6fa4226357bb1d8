"""Events of histories as columns: the few fields that the rules join by, one row an event, and where the event stands.

A text becomes a hash of 64 bits: of a process, of a topic and partition, of a topic and value. Two texts with one hash
make a key more suspicious than it is, never less: the readable rules then compare the texts themselves.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import COLUMN_TYPES, PHASES, MalformedHistory, event_from_row
from kafka_eos_checks.audit.kernels.headers import Bytes, Ints
from kafka_eos_checks.audit.kernels.strings import hashes

NOWHERE = np.iinfo(np.int64).min  # an offset or an order that an event does not tell
AT_BITS = 42  # of a place in a file; the number of the file is above
CHUNK_EVENTS = 65_536
Hashes = NDArray[np.uint64]
Rows = NDArray[np.void]

TOLD = np.dtype(
    [
        ("key", "u8"),  # topic and value, "None" for an event without value
        ("process", "u8"),
        ("ended", "u8"),  # process and number of its transaction; 0 without a number
        ("topic", "u8"),
        ("place", "u8"),  # topic and partition; 0 without
        ("offset", "i8"),
        ("order", "i8"),  # NOWHERE without
        ("at", "i8"),  # number of the file and place in it
        ("what", "u1"),
        ("flags", "u1"),
    ]
)
ACTIONS = (
    *("Send", "Poll", "EndOfPartition", "Seek", "Assign", "Revoke", "Crash", "LeaderChange"),
    *("BeginTransaction", "CommitTransaction", "AbortTransaction"),
)
_ACTION = {name: number for number, name in enumerate(ACTIONS)}
_PHASE = {name: number for number, name in enumerate(PHASES)}
OTHER = len(ACTIONS) * len(PHASES)  # an action that no join looks at
HAS_VALUE, COMMITTED, UNCOMMITTED, TELLS = 1, 2, 4, 8  # flags: a value that is not null; isolation; any value
ALWAYS, IF_DECLARED = 0, 1


def what(action: str, phase: str) -> int:
    """The number of an action and a phase in column ``what``."""
    return _ACTION[action] * len(PHASES) + _PHASE[phase]


def whats(*actions: str) -> list[int]:
    """The numbers of some actions in every phase."""
    return [what(action, phase) for action in actions for phase in PHASES]


SENDS = whats("Send")
INVOKED, ACKNOWLEDGED, REFUSED = what("Send", "invoke"), what("Send", "ok"), what("Send", "fail")
POLLED, WAITED, SOUGHT = what("Poll", "ok"), what("EndOfPartition", "ok"), what("Seek", "ok")
MOVED = (POLLED, WAITED)
LEFT = whats("Assign", "Revoke", "Crash")
ABORTS = whats("AbortTransaction")
ENDS = whats("BeginTransaction", "CommitTransaction", "AbortTransaction")
CHANGES = whats("LeaderChange", "Crash")
VALUED = [*SENDS, POLLED]
STEPPING = [*MOVED, SOUGHT, *LEFT, *ABORTS]

FENCING = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
GENERATIONS = frozenset({"JoinGroup", "OffsetCommit", "TxnOffsetCommit"})
APPLIED = frozenset({"DeclareApplication", "DeclareTopic", "DeclareRecord", "SendOffsetsToTransaction", "CommitOffsets"})
REQUESTS = frozenset({"Produce", "TxnOffsetCommit", "OffsetCommit", "EndTxn", "InitProducerId"})
REFUSALS = frozenset({*FENCING, ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})


def text_hash(text: str) -> int:
    """The hash of a text, the same in every process; above 1."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") | 2


def place_hash(topic: str, partition: int) -> int:
    """The hash of a partition."""
    return text_hash(f"{topic}\0{partition}")


def key_hashes(buffer: Bytes, start: Ints, size: Ints, topic: Hashes | int) -> Hashes:
    """The hashes of topics and values, shape (n,); arguments as of :func:`strings.hashes`, and hashes of the topics."""
    return hashes(buffer, start, size) ^ np.asarray(topic, np.uint64)


def joined_hashes(process: Hashes, number: Ints) -> Hashes:
    """The hashes of processes and numbers, shape (n,); none is 0."""
    mixed = (process ^ number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    return np.maximum(mixed ^ mixed >> np.uint64(31), np.uint64(1))


@dataclass(slots=True)
class RunFacts:
    """The facts of a run as a whole, of some of its events or of all.

    Attributes:
        run: its name.
        first: where its first event stands.
        events: how many there are.
        ordered: whether all have an order.
        last_ms: the time of the last one, in milliseconds since the epoch; ``inf`` if an event does not tell.
        topics: that its events name.
        places: partitions of its events by hash.
        telling: by process, an event that invokes the begin or the end of a numbered transaction.
        refusals: whether a producer was refused in a way that a rule looks at.
        generations: whether offsets were committed by members, or members joined.
        declared: whether applications are declared.
        grouped: processes that polled for a group.
    """

    run: str
    first: int
    events: int = 0
    ordered: bool = True
    last_ms: float = -inf
    topics: set[str] = field(default_factory=set)
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    telling: dict[int, int] = field(default_factory=dict)
    refusals: bool = False
    generations: bool = False
    declared: bool = False
    grouped: set[int] = field(default_factory=set)

    def add(self, other: "RunFacts") -> None:
        """Add the facts of more events."""
        self.first = min(self.first, other.first)
        self.events += other.events
        self.ordered = self.ordered and other.ordered
        self.last_ms = max(self.last_ms, other.last_ms)
        self.topics |= other.topics
        self.places.update(other.places)
        for process, at in other.telling.items():
            self.telling[process] = min(at, self.telling.get(process, at))
        self.refusals |= other.refusals
        self.generations |= other.generations
        self.declared |= other.declared
        self.grouped |= other.grouped


class Told(NamedTuple):
    """Some events of one run.

    Attributes:
        facts: of the run, as far as these events tell.
        rows: the events that rules join, dtype :data:`TOLD`.
        requests: where events stand that only the rules over refusals look at, shape (n,).
        members: where events stand that only the rule over generations looks at, and the hashes of their groups; (n, 2).
        applied: where events stand that the rules over applications look at, and who decides whether they do: nobody
            (:data:`ALWAYS`), a declaration (:data:`IF_DECLARED`), or the process, if it polls for a group; (n, 2).
    """

    facts: RunFacts
    rows: Rows
    requests: Ints
    members: Ints
    applied: Hashes


_Raw = tuple[int, dict[str, Any]]  # where an event stands, and its columns


def told(numbered: Iterable[_Raw], source: str) -> Iterator[Told]:
    """Events as columns, some at a time, each run for itself.

    Args:
        numbered: events as their columns, each with where it stands.
        source: names the history in errors.

    Raises:
        MalformedHistory: an event is none; ``line`` is where it stands.
    """
    made: dict[str, _Columns] = {}
    for at, row in numbered:
        run = row.get("run")
        columns = made.get(run) if isinstance(run, str) else None
        if columns is None:
            run = event_from_row(row, source, at).run
            columns = made[run] = _Columns(run, source)
        columns.add(at, row)
        if len(columns.raw) >= CHUNK_EVENTS:
            yield made.pop(run).finish()
    for columns in made.values():
        yield columns.finish()


_KNOWN = COLUMN_TYPES.keys()
_NOTHING: dict[str, Any] = {}
_NUMBER = (1 << 62) - 1  # the bits of a transaction's number that are looked at


class _Columns:
    """Events of one run on their way into columns."""

    def __init__(self, run: str, source: str) -> None:
        self.run = run
        self.source = source
        self.raw: list[tuple[Any, ...]] = []
        self.requests: list[int] = []
        self.members: list[tuple[int, int]] = []
        self.applied: list[tuple[int, int]] = []
        self.declared = False
        self.refusals = False
        self.texts: dict[str, int] = {}
        self.places: dict[tuple[str, int], int] = {}
        self.topics: set[str] = set()
        self.grouped: set[int] = set()

    def add(self, at: int, row: dict[str, Any]) -> None:
        """Add an event.

        Raises:
            MalformedHistory: it is none.
        """
        get = row.get
        action, phase, process, detail = get("action"), get("phase"), get("process"), get("detail")
        if not (row.keys() <= _KNOWN and type(process) is str and type(action) is str and phase in _PHASE):
            event_from_row(row, self.source, at)
        if detail is None:
            detail = _NOTHING
        for name, value in row.items():
            if value is not None and type(value) is not COLUMN_TYPES[name]:
                event_from_row(row, self.source, at)
        topic, partition, number = get("topic"), get("partition"), detail.get("transaction")
        told_as, value = _ACTION.get(action), detail.get("value")
        if topic is not None:
            self.topics.add(topic)
        hashed = self.texts.get(process) or self._text(process)  # type: ignore[arg-type]  # checked above
        group = get("group")
        if action in REQUESTS or action in GENERATIONS or get("producer_id") is not None:
            self._request(at, action, row)
        if action in APPLIED:
            self.declared |= action.startswith("Declare")
            self.applied.append((at, ALWAYS))
        elif action in REQUESTS:
            self.applied.append((at, IF_DECLARED))
        elif group and action == "Poll" and phase == "ok":
            self.grouped.add(hashed)
            self.applied.append((at, ALWAYS))
        elif action == "Send" and phase == "invoke":
            self.applied.append((at, hashed))
        flags = 0
        isolation = get("isolation")
        if isolation is not None:
            flags = COMMITTED * (isolation == "read_committed") + UNCOMMITTED * (isolation == "read_uncommitted")
        place = 0
        if topic is not None and partition is not None:
            place = self.places.get((topic, partition)) or self._place(topic, partition)
        self.raw.append(
            (
                value if value.__class__ is str else str(value),
                hashed,
                number & _NUMBER if isinstance(number, int) else NOWHERE,
                0 if topic is None else self.texts.get(topic) or self._text(topic),
                place,
                get("offset", NOWHERE),
                get("order", NOWHERE),
                at,
                OTHER if told_as is None else told_as * 4 + _PHASE[phase],
                flags | (HAS_VALUE | TELLS if value is not None else TELLS * ("value" in detail)),
                get("time_us"),
            )
        )

    def _request(self, at: int, action: str, row: dict[str, Any]) -> None:
        self.requests.append(at)
        group = row.get("group")
        if action in GENERATIONS and group is not None:
            self.members.append((at, text_hash(group) >> 1))
        self.refusals |= row.get("phase") == "fail" and row.get("error") in REFUSALS

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, text_hash(text))

    def _place(self, topic: str, partition: int) -> int:
        return self.places.setdefault((topic, partition), place_hash(topic, partition))

    def finish(self) -> Told:
        """All of them.

        Raises:
            MalformedHistory: a number has more bits than its column.
        """
        values, process, number, topic, place, offset, order, at, kinds, flags, times = zip(*self.raw, strict=True)
        rows = np.zeros(len(values), TOLD)
        encoded = [text.encode("utf-8", "surrogatepass") for text in values]
        sizes = np.array([len(text) for text in encoded], np.int64)
        starts = np.cumsum(sizes) - sizes
        rows["topic"] = topic
        buffer = np.frombuffer(b"".join(encoded), np.uint8)
        rows["key"] = key_hashes(buffer, starts, sizes, rows["topic"])
        rows["process"] = process
        numbers = _integers(number, self)
        rows["ended"] = np.where(numbers == NOWHERE, 0, joined_hashes(rows["process"], numbers))
        rows["place"] = place
        rows["offset"], rows["order"], rows["at"] = _integers(offset, self), _integers(order, self), at
        rows["what"], rows["flags"] = kinds, flags
        telling = np.flatnonzero(np.isin(rows["what"], [what(action, "invoke") for action in ACTIONS[8:]]))
        telling = telling[rows["ended"][telling] != 0][::-1]
        known = [time for time in times if time is not None]
        facts = RunFacts(
            run=self.run,
            first=int(rows["at"].min()),
            events=len(rows),
            ordered=bool((rows["order"] != NOWHERE).all()),
            last_ms=inf if len(known) < len(times) else max(known) / 1000,
            topics=self.topics,
            places={hashed: each for each, hashed in self.places.items()},
            telling=dict(zip(rows["process"][telling].tolist(), rows["at"][telling].tolist(), strict=True)),
            refusals=self.refusals,
            generations=bool(self.members),
            declared=self.declared,
            grouped=self.grouped,
        )
        kept = rows[rows["what"] != OTHER]
        members = np.array(self.members, np.int64).reshape(-1, 2)
        applied = np.array(self.applied, np.uint64).reshape(-1, 2)
        return Told(facts, kept, np.array(self.requests, np.int64), members, applied)


def _integers(column: Sequence[int | None], columns: _Columns) -> Ints:
    try:
        return np.array([NOWHERE if each is None else each for each in column], np.int64)
    except OverflowError:
        raise MalformedHistory(columns.source, columns.raw[0][7], "a number of more than 64 bits") from None
