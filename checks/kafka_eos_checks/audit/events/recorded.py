"""Events of histories as columns: a row for each event, with the fields that rules join by, and its place.

Texts become hashes of 64 bits: of a process, of a topic and partition, of a topic and value. If two texts share a hash,
their events become suspects and never the reverse: the readable rules then compare the texts themselves.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import COLUMN_TYPES, PHASES, MalformedHistory, event_from_row
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

FENCING = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
GENERATIONS = frozenset({"JoinGroup", "OffsetCommit", "TxnOffsetCommit"})
DECLARATIONS = frozenset({"DeclareApplication", "DeclareTopic", "DeclareRecord"})
COMMITTING = frozenset({"SendOffsetsToTransaction", "CommitOffsets"})
REQUESTS = frozenset({"Produce", "TxnOffsetCommit", "OffsetCommit", "EndTxn", "InitProducerId"})
TELLING = REQUESTS | GENERATIONS | DECLARATIONS
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


_Raw = tuple[int, dict[str, Any]]  # where an event stands, and its columns


def told(numbered: Iterable[_Raw], source: str) -> Iterator[Told]:
    """Turn events into columns, some at a time, each run by itself.

    Args:
        numbered: events as their columns, each with where it stands.
        source: names the history in errors.

    Raises:
        MalformedHistory: a row is no event; ``line`` is its place.
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
            yield made.pop(columns.run).finish()
    for columns in made.values():
        yield columns.finish()


_KNOWN = COLUMN_TYPES.keys()
_NOTHING: dict[str, Any] = {}
_KINDS = {
    (action, phase): number * len(PHASES) + place
    for action, number in _ACTION.items()
    for phase, place in _PHASE.items()
}
_ISOLATIONS = {"read_committed": COMMITTED, "read_uncommitted": UNCOMMITTED}
_NUMBER = (1 << 62) - 1  # the bits of a transaction's number that are looked at


class _Columns:
    """A buffer of events of one run that become columns."""

    def __init__(self, run: str, source: str) -> None:
        self.run = run
        self.source = source
        self.raw: list[tuple[Any, ...]] = []
        self.requests: list[int] = []
        self.members: list[tuple[int, int]] = []
        self.applied: list[int] = []
        self.sent: list[tuple[Any, ...]] = []
        self.given: list[tuple[Any, ...]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.facts = RunFacts(run, 0)
        self.refusals = False
        self.texts: dict[str, int] = {}
        self.names: dict[tuple[int, int], int] = {}
        self.places: dict[tuple[str, int], int] = {}
        self.topics: dict[str, int] = {}
        self.shapes: set[tuple[Any, ...]] = set()  # names and types of columns that were those of events

    def add(self, at: int, row: dict[str, Any]) -> None:
        """Add an event.

        Raises:
            MalformedHistory: the row is no event.
        """
        shape = (*row, *map(type, row.values()))
        if shape not in self.shapes:
            event_from_row(row, self.source, at)
            self.shapes.add(shape)
        get = row.get
        action, phase, process, detail = row["action"], row["phase"], row["process"], get("detail") or _NOTHING
        kind = _KINDS.get((action, phase), OTHER)
        if kind == OTHER and phase not in _PHASE:
            event_from_row(row, self.source, at)
        topic, partition, value = get("topic"), get("partition"), detail.get("value")
        hashed = self.texts.get(process) or self._text(process)
        isolation = get("isolation")
        if action in TELLING or "producer_id" in row:
            self._request(at, action, row)
        elif kind == INVOKED:
            self._sent(at, topic, hashed, row, detail)
        elif kind == POLLED:
            if "group" in row:
                self._given(at, hashed, row)
        elif action in COMMITTING and phase == "invoke":
            self._asked(at, hashed, row, detail)
        flags = 0 if isolation is None else _ISOLATIONS.get(isolation, 0)
        if value is not None:
            flags |= HAS_VALUE | TELLS
        elif "value" in detail:
            flags |= TELLS
        place = 0
        if topic is not None and partition is not None:
            place = self.places.get((topic, partition)) or self._place(topic, partition)
        self.raw.append(
            (
                value if value.__class__ is str else str(value),
                hashed,
                detail.get("transaction"),
                0 if topic is None else self.topics.get(topic) or self._topic(topic),
                place,
                get("offset"),
                get("order"),
                at,
                kind,
                flags,
                get("time_us"),
            )
        )

    def _request(self, at: int, action: str, row: dict[str, Any]) -> None:
        self.requests.append(at)
        self.facts.declared |= action in DECLARATIONS
        group = row.get("group")
        if action in GENERATIONS and group is not None:
            self.members.append((at, text_hash(group) >> 1))
        self.refusals |= row.get("phase") == "fail" and row.get("error") in REFUSALS

    def _sent(self, at: int, topic: str | None, process: int, row: dict[str, Any], detail: dict[str, Any]) -> None:
        """Add a send: an output of an application, or any other record."""
        self.applied.append(at)
        match detail.get("input"):
            case [str(name), int(partition), int(offset)] if topic is not None and abs(offset) < _NUMBER:
                output = detail.get("output")
                numbered = isinstance(output, int) and abs(output) < _NUMBER
                self.sent.append(
                    (len(self.raw), process, detail.get("transaction"), self._place(name, partition), offset,
                     output if numbered else NOWHERE, row.get("order"), at)
                )  # fmt: skip
            case _:
                self.facts.tacit.add(process)

    def _given(self, at: int, process: int, row: dict[str, Any]) -> None:
        """Add an input that a member was given, unless the process is no member."""
        group, topic, partition, offset = (row.get(name) for name in ("group", "topic", "partition", "offset"))
        if not group or topic is None or partition is None or offset is None:
            return
        self.applied.append(at)
        hashed, place, order = self._text(group), self._place(topic, partition), row.get("order")
        self.facts.groups[hashed] = group
        member = Member(hashed, NOWHERE if order is None else order, at, at)
        before = self.facts.members.get(process)
        if before is None or before.group != hashed or before.order > member.order:
            self.facts.members[process] = member if before is None else before.joined(member)
        name = self.names.get((hashed, place))
        if name is None:
            name = self.names[hashed, place] = int(name_hashes(hashed, place)[0])
        self.given.append((name, hashed, place, offset, at))

    def _asked(self, at: int, process: int, row: dict[str, Any], detail: dict[str, Any]) -> None:
        """Add a request to commit offsets."""
        self.applied.append(at)
        offsets, topic = detail.get("offsets"), row.get("topic") or ""
        group = self._text(row.get("group") or "")
        for partition, offset in offsets.items() if isinstance(offsets, dict) else ():
            if not (isinstance(partition, str) and partition.isdecimal() and type(offset) is int):
                self.facts.unclear = True
                continue
            name = int(name_hashes(group, self._place(topic, int(partition)))[0])
            self.asked.append((name, offset, process, detail.get("transaction"), at))

    def _topic(self, topic: str) -> int:
        return self.topics.setdefault(topic, text_hash(topic))

    def _text(self, text: str) -> int:
        return self.texts.get(text) or self.texts.setdefault(text, text_hash(text))

    def _place(self, topic: str, partition: int) -> int:
        at = topic, partition
        return self.places.get(at) or self.places.setdefault(at, place_hash(topic, partition))

    def finish(self) -> Told:
        """The columns of all events.

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
        numbers = _numbers(number)
        rows["ended"] = np.where(numbers == NOWHERE, 0, joined_hashes(rows["process"], numbers))
        rows["place"] = place
        rows["offset"], rows["order"], rows["at"] = _integers(offset, self), _integers(order, self), at
        rows["what"], rows["flags"] = kinds, flags
        telling = np.flatnonzero(np.isin(rows["what"], [what(action, "invoke") for action in ACTIONS[8:]]))
        telling = telling[rows["ended"][telling] != 0][::-1]
        known = [time for time in times if time is not None]
        facts = replace(
            self.facts,
            first=int(rows["at"].min()),
            events=len(rows),
            ordered=bool((rows["order"] != NOWHERE).all()),
            last_ms=inf if len(known) < len(times) else max(known) / 1000,
            topics=set(self.topics),
            places={hashed: each for each, hashed in self.places.items()},
            telling=dict(zip(rows["process"][telling].tolist(), rows["at"][telling].tolist(), strict=True)),
            refusals=self.refusals,
            generations=bool(self.members),
        )
        given = np.array(self.given, GIVEN)
        for row in given[np.lexsort((given["offset"], given["name"]))][::-1].tolist():
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
        raise MalformedHistory(columns.source, columns.raw[0][7], "a number of more than 64 bits") from None
