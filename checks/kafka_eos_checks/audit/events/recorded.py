"""Events of histories as columns: a row for each event, with the fields that rules join by, and its place.

Texts become hashes of 64 bits: of a process, of a topic and partition, of a topic and value. If two texts share a hash,
their events become suspects and never the reverse: the readable rules then compare the texts themselves.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import PHASES, MalformedHistory
from kafka_eos_checks.audit.segments.headers import Bytes, Ints
from kafka_eos_checks.audit.segments.strings import hashes

NOWHERE = np.iinfo(np.int64).min  # an offset or an order that an event does not have
AT_BITS = 42  # bits of a place in a file; the bits above have the file's number
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
SENT = np.dtype(
    [
        *(("key", "u8"), ("topic", "u8"), ("process", "u8"), ("attempt", "u8")),
        *(("place", "u8"), ("offset", "i8")),  # of its input
        *(("number", "i8"), ("order", "i8"), ("at", "i8")),  # number: which output of its input, or NOWHERE
    ]
)
"""An output that names its input."""
GIVEN = np.dtype([("name", "u8"), ("group", "u8"), ("place", "u8"), ("offset", "i8"), ("at", "i8")])
"""An input that a member of a group was given."""
ASKED = np.dtype([("name", "u8"), ("offset", "i8"), ("attempt", "u8"), ("at", "i8")])
"""A request of an attempt to commit an offset of a group and partition."""
ACTIONS = (
    *("Send", "Poll", "EndOfPartition", "Seek", "Assign", "Revoke", "Crash", "LeaderChange"),
    *("BeginTransaction", "CommitTransaction", "AbortTransaction"),
)
_ACTION = {name: number for number, name in enumerate(ACTIONS)}
_PHASE = {name: number for number, name in enumerate(PHASES)}
OTHER = len(ACTIONS) * len(PHASES)  # an action that no join uses
HAS_VALUE, COMMITTED, UNCOMMITTED, TELLS = 1, 2, 4, 8  # flags: a value that is not null; isolation; any value


def what(action: str, phase: str) -> int:
    """The number of an action and a phase, as in column ``what``."""
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

EPOCH_REFUSALS = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
COMMITS = frozenset({"TxnOffsetCommit", "OffsetCommit"})
DECLARATIONS = frozenset({"DeclareApplication", "DeclareTopic", "DeclareRecord"})
GENERATIONS = COMMITS | {"JoinGroup"}
COMMITTING = frozenset({"SendOffsetsToTransaction", "CommitOffsets"})
REQUESTS = COMMITS | {"Produce", "EndTxn", "InitProducerId"}
TELLING = REQUESTS | GENERATIONS | DECLARATIONS
REFUSALS = frozenset({*EPOCH_REFUSALS, ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER})


def text_hash(text: str) -> int:
    """The hash of a text, the same in every process; above 1."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") | 2


def place_hash(topic: str, partition: int) -> int:
    """The hash of a partition."""
    return text_hash(f"{topic}\0{partition}")


def key_hashes(buffer: Bytes, start: Ints, size: Ints, topic: Hashes | int) -> Hashes:
    """The hashes of topics and values, shape (n,); arguments as of :func:`strings.hashes`, and hashes of the topics."""
    return hashes(buffer, start, size) ^ np.asarray(topic, np.uint64)


def name_hashes(group: Hashes | int, place: Hashes | int) -> Hashes:
    """The hashes of groups and partitions."""
    groups, places = np.broadcast_arrays(np.atleast_1d(np.asarray(group, np.uint64)), np.asarray(place, np.uint64))
    return joined_hashes(groups, places.view(np.int64))


def joined_hashes(process: Hashes, number: Ints) -> Hashes:
    """The hashes of processes and numbers, shape (n,); none is 0."""
    mixed = (process ^ number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    return np.maximum(mixed ^ mixed >> np.uint64(31), np.uint64(1))


@dataclass(slots=True)
class RunFacts:
    """The facts of a run as a whole, from some or all of its events.

    Attributes:
        run: its name.
        first: the place of its first event.
        events: how many there are.
        ordered: whether all have an order.
        last_ms: the time of the last event, in milliseconds since the epoch; ``inf`` if an event has no time.
        topics: the topics that its events name.
        places: partitions of its events by hash.
        telling: by process, an event that invokes the begin or the end of a numbered transaction.
        refusals: whether a producer was refused with an error that a rule judges.
        sends_offsets: whether a producer sent offsets in a transaction.
        generations: whether offsets were committed by members, or members joined.
        declared: whether applications are declared.
        members: by process that polled for a group, see :class:`Member`.
        groups: the names of these groups, by hash.
        first_given: by group and partition, hashes of both, and the first offset that a member was given.
        tacit: processes that send records without naming an input.
        unclear: whether a request commits offsets in a form that only the readable rules know.
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
    sends_offsets: bool = False
    generations: bool = False
    declared: bool = False
    members: "dict[int, Member]" = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    first_given: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    tacit: set[int] = field(default_factory=set)
    unclear: bool = False

    def add(self, other: "RunFacts") -> None:
        """Add the facts of other events of the run."""
        self.first = min(self.first, other.first)
        self.events += other.events
        self.ordered = self.ordered and other.ordered
        self.last_ms = max(self.last_ms, other.last_ms)
        self.topics |= other.topics
        self.places.update(other.places)
        for process, at in other.telling.items():
            self.telling[process] = min(at, self.telling.get(process, at))
        self.refusals |= other.refusals
        self.sends_offsets |= other.sends_offsets
        self.generations |= other.generations
        self.declared |= other.declared
        for process, member in other.members.items():
            self.members[process] = self.members[process].joined(member) if process in self.members else member
        self.groups.update(other.groups)
        for name, given in other.first_given.items():
            self.first_given[name] = min(given, self.first_given.get(name, given))
        self.tacit |= other.tacit
        self.unclear |= other.unclear


class Member(NamedTuple):
    """A process that polled for a group.

    Attributes:
        group: the group's hash; 0 if the process polled for several.
        order: the order of the first such poll; ``order_at`` is its place.
        at: the place of the first such poll by place.
    """

    group: int
    order: int
    order_at: int
    at: int

    def joined(self, other: "Member") -> "Member":
        """Join with the facts from other events."""
        first = min((self.order, self.order_at), (other.order, other.order_at))
        return Member(self.group if self.group == other.group else 0, *first, min(self.at, other.at))

    def first(self, ordered: bool) -> tuple[int, int]:
        """The order and the place of the first poll."""
        return (self.order, self.order_at) if ordered else (self.at, self.at)


class Told(NamedTuple):
    """Some events of one run as columns.

    Attributes:
        facts: the facts of the run from these events.
        rows: the events that rules join, dtype :data:`TOLD`.
        requests: the places of requests and of declarations of applications, shape (n,).
        members: the places of events that the rule over generations judges, and their groups' hashes, shape (n, 2).
        sent: outputs that name their inputs, dtype :data:`SENT`.
        given: inputs, dtype :data:`GIVEN`.
        asked: requests for commits, dtype :data:`ASKED`.
        applied: the places of events that the rules over applications judge, shape (n,).
    """

    facts: RunFacts
    rows: Rows
    requests: Ints
    members: Ints
    sent: Rows
    given: Rows
    asked: Rows
    applied: Ints


Numbered = tuple[Ints, Sequence[Any]]
"""The places of some events, and the events: of :class:`kafka_eos.histories.history.Event`, or with its attributes."""


def told(numbered: Iterable[Numbered], source: str) -> Iterator[Told]:
    """Turn events into columns, some at a time, each run by itself.

    Args:
        numbered: events, some at a time.
        source: the name of the history, for errors.

    Raises:
        MalformedHistory: a number has more bits than its column; ``line`` is the place of an event before it.
    """
    made: dict[str, _Columns] = {}
    for places, events in numbered:
        runs = list(map(_RUN, events))
        for run in dict.fromkeys(runs):
            columns = made.get(run) or made.setdefault(run, _Columns(run, source))
            if runs.count(run) == len(runs):
                columns.add(places, events)
            else:
                own = [number for number, each in enumerate(runs) if each == run]
                columns.add(places[own], [events[number] for number in own])
            if len(columns) >= CHUNK_EVENTS:
                yield made.pop(run).finish()
    for columns in made.values():
        yield columns.finish()


_RUN = attrgetter("run")
_READ = attrgetter(
    *("action", "phase", "process", "topic", "partition", "isolation", "producer_id", "group", "detail"),
    *("offset", "order", "time_us"),
)
_NOTHING: dict[str, Any] = {}
_KINDS = {
    (action, phase): number * len(PHASES) + place
    for action, number in _ACTION.items()
    for phase, place in _PHASE.items()
}
_ISOLATIONS = {"read_committed": COMMITTED, "read_uncommitted": UNCOMMITTED}
_NUMBER = (1 << 62) - 1  # the bits of a transaction's number that are hashed
_NAMED = (str, int, int)  # the types of an input: topic, partition, offset
_Argument = TypeVar("_Argument")


class _Hashed(dict[_Argument, int]):
    """A cache of hashes; the hash of None, and of a partition without topic or number, is 0."""

    def __init__(self, function: Callable[[_Argument], int]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: _Argument) -> int:
        found = self[key] = self._function(key)
        return found


def _text_or_0(text: str | None) -> int:
    return 0 if text is None else text_hash(text)


def _place_or_0(place: tuple[str | None, int | None]) -> int:
    topic, partition = place
    return 0 if topic is None or partition is None else place_hash(topic, partition)


class _Columns:
    """A buffer of events of one run that become columns."""

    def __init__(self, run: str, source: str) -> None:
        self.run = run
        self.source = source
        self.values: list[str] = []
        self.processes: list[int] = []
        self.numbers: list[object] = []
        self.topic_of: list[int] = []
        self.place_of: list[int] = []
        self.offsets: list[int | None] = []
        self.orders: list[int | None] = []
        self.at: list[Ints] = []
        self.kinds: list[int] = []
        self.flags: list[int] = []
        self.times: list[int | None] = []
        self.requests: list[int] = []
        self.members: list[tuple[int, int]] = []
        self.applied: list[int] = []
        self.sent: list[tuple[Any, ...]] = []
        self.given: list[tuple[Any, ...]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.facts = RunFacts(run, 0)
        self.refusals = False
        self.texts = _Hashed[str](text_hash)
        self.names = _Hashed[tuple[int, int]](lambda name: int(name_hashes(*name)[0]))
        self.topics = _Hashed[str | None](_text_or_0)
        self.places = _Hashed[tuple[str | None, int | None]](_place_or_0)

    def __len__(self) -> int:
        return len(self.kinds)

    def add(self, at: Ints, events: Sequence[Any]) -> None:
        """Add some events with their places."""
        places = at.tolist()
        columns = list(zip(*map(_READ, events), strict=True))
        actions, phases, processes, topics, partitions, isolations, pids, groups, details = columns[:9]
        offsets, orders, times = columns[9:]
        hashed = list(map(self.texts.__getitem__, processes))
        kinds = [_KINDS.get(each, OTHER) for each in zip(actions, phases, strict=True)]
        before = len(self)
        for number, (action, kind, pid) in enumerate(zip(actions, kinds, pids, strict=True)):
            if action in TELLING or pid is not None:
                self._request(places[number], events[number])
            elif kind == INVOKED:
                self._sent(before + number, places[number], hashed[number], events[number])
            elif kind == POLLED:
                if groups[number]:
                    self._given(places[number], hashed[number], events[number])
            elif action in COMMITTING and phases[number] == "invoke":
                self._asked(places[number], hashed[number], events[number])
        values = [None if detail is None else detail.get("value") for detail in details]
        self.values += [value if value.__class__ is str else str(value) for value in values]
        self.numbers += [None if detail is None else detail.get("transaction") for detail in details]
        self.flags += [
            _ISOLATIONS.get(isolation, 0)
            | (HAS_VALUE | TELLS if value is not None else TELLS if detail and "value" in detail else 0)
            for isolation, value, detail in zip(isolations, values, details, strict=True)
        ]
        self.processes += hashed
        self.topic_of += map(self.topics.__getitem__, topics)
        self.place_of += map(self.places.__getitem__, zip(topics, partitions, strict=True))
        self.offsets += offsets
        self.orders += orders
        self.times += times
        self.at.append(at)
        self.kinds += kinds

    def _request(self, at: int, event: Any) -> None:
        self.requests.append(at)
        self.facts.declared |= event.action in DECLARATIONS
        self.facts.sends_offsets |= event.action == "TxnOffsetCommit" and event.producer_id is not None
        if event.action in GENERATIONS and event.group is not None:
            self.members.append((at, text_hash(event.group) >> 1))
        self.refusals |= event.phase == "fail" and event.error in REFUSALS

    def _sent(self, number: int, at: int, process: int, event: Any) -> None:
        """Add a send: an output of an application, or any other record."""
        self.applied.append(at)
        detail = event.detail or _NOTHING
        named, topic = detail.get("input"), event.topic
        if topic is None or named.__class__ is not list or tuple(map(type, named)) != _NAMED:
            self.facts.tacit.add(process)
            return
        name, partition, offset = named
        if abs(offset) >= _NUMBER:
            self.facts.tacit.add(process)
            return
        output = detail.get("output")
        numbered = isinstance(output, int) and abs(output) < _NUMBER
        place = self.places[name, partition]
        self.sent.append(
            (
                number,
                process,
                detail.get("transaction"),
                place,
                offset,
                output if numbered else NOWHERE,
                event.order,
                at,
            )
        )

    def _given(self, at: int, process: int, event: Any) -> None:
        """Add an input that a member was given, if the event has topic, partition and offset."""
        group, topic, partition, offset = event.group, event.topic, event.partition, event.offset
        if topic is None or partition is None or offset is None:
            return
        self.applied.append(at)
        hashed, place, order = self.texts[group], self.places[topic, partition], event.order
        self.facts.groups[hashed] = group
        member = Member(hashed, NOWHERE if order is None else order, at, at)
        before = self.facts.members.get(process)
        if before is None or before.group != hashed or before.order > member.order:
            self.facts.members[process] = member if before is None else before.joined(member)
        self.given.append((self.names[hashed, place], hashed, place, offset, at))

    def _asked(self, at: int, process: int, event: Any) -> None:
        """Add a request to commit offsets."""
        self.applied.append(at)
        detail, topic = event.detail or _NOTHING, event.topic or ""
        offsets, group = detail.get("offsets"), self.texts[event.group or ""]
        for partition, offset in offsets.items() if isinstance(offsets, dict) else ():
            if not (isinstance(partition, str) and partition.isdecimal() and type(offset) is int):
                self.facts.unclear = True
                continue
            name = self.names[group, self.places[topic, int(partition)]]
            self.asked.append((name, offset, process, detail.get("transaction"), at))

    def finish(self) -> Told:
        """The columns of all events.

        Raises:
            MalformedHistory: a number has more bits than its column.
        """
        rows = np.zeros(len(self), TOLD)
        encoded = "".join(self.values).encode("utf-8", "surrogatepass")
        sizes = np.array(list(map(len, self.values)), np.int64)
        if len(encoded) != sizes.sum():  # not only ASCII
            sizes = np.array([len(text.encode("utf-8", "surrogatepass")) for text in self.values], np.int64)
        rows["topic"] = self.topic_of
        buffer = np.frombuffer(encoded, np.uint8)
        rows["key"] = key_hashes(buffer, np.cumsum(sizes) - sizes, sizes, rows["topic"])
        rows["process"] = self.processes
        numbers = _numbers(self.numbers)
        rows["ended"] = np.where(numbers == NOWHERE, 0, joined_hashes(rows["process"], numbers))
        rows["place"] = self.place_of
        rows["offset"], rows["order"] = _integers(self.offsets, self), _integers(self.orders, self)
        rows["at"], rows["what"], rows["flags"] = np.concatenate(self.at), self.kinds, self.flags
        telling = np.flatnonzero(np.isin(rows["what"], [what(action, "invoke") for action in ACTIONS[8:]]))
        telling = telling[rows["ended"][telling] != 0][::-1]
        known = [time for time in self.times if time is not None]
        facts = replace(
            self.facts,
            first=int(rows["at"].min()),
            events=len(rows),
            ordered=bool((rows["order"] != NOWHERE).all()),
            last_ms=inf if len(known) < len(rows) else max(known) / 1000,
            topics={topic for topic in self.topics if topic is not None},
            places={
                hashed: (topic, partition)
                for (topic, partition), hashed in self.places.items()
                if topic is not None and partition is not None
            },
            telling=dict(zip(rows["process"][telling].tolist(), rows["at"][telling].tolist(), strict=True)),
            refusals=self.refusals,
            generations=bool(self.members),
        )
        given = np.array(self.given, GIVEN)
        by_name = given[np.lexsort((given["offset"], given["name"]))]
        for row in by_name[np.unique(by_name["name"], return_index=True)[1]].tolist():
            facts.first_given[row[0]] = row[1:4]
        return Told(
            facts,
            rows[rows["what"] != OTHER],
            np.array(self.requests, np.int64),
            np.array(self.members, np.int64).reshape(-1, 2),
            self._sent_rows(rows),
            given,
            self._asked_rows(),
            np.array(self.applied, np.int64),
        )

    def _sent_rows(self, told: Rows) -> Rows:
        rows = np.zeros(len(self.sent), SENT)
        if self.sent:
            of, process, number, place, offset, output, order, at = zip(*self.sent, strict=True)
            rows["key"], rows["topic"] = told["key"][list(of)], told["topic"][list(of)]
            rows["process"], rows["place"], rows["offset"], rows["at"] = process, place, offset, at
            rows["number"], rows["order"] = output, _integers(order, self)
            rows["attempt"] = joined_hashes(rows["process"], _numbers(number))
        return rows

    def _asked_rows(self) -> Rows:
        rows = np.zeros(len(self.asked), ASKED)
        if self.asked:
            name, offset, process, number, at = zip(*self.asked, strict=True)
            rows["name"], rows["at"] = name, at
            rows["offset"] = _integers(offset, self)
            rows["attempt"] = joined_hashes(np.array(process, np.uint64), _numbers(number))
        return rows


def _numbers(numbers: Sequence[object]) -> Ints:
    """Numbers of transactions in the form in which they are hashed."""
    return np.array([each & _NUMBER if isinstance(each, int) else NOWHERE for each in numbers], np.int64)


def _integers(column: Sequence[int | None], columns: _Columns) -> Ints:
    try:
        return np.array([NOWHERE if each is None else each for each in column], np.int64)
    except OverflowError:
        raise MalformedHistory(columns.source, int(columns.at[0][0]), "a number of more than 64 bits") from None
