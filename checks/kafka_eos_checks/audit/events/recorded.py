"""Events of histories as columns: a row for each event, with the fields that rules join by, and its place.

Texts become hashes of 64 bits: of a process, of a topic and partition, of a topic and value. If two texts share a hash,
their events become suspects and never the reverse: the readable rules then compare the texts themselves.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET
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
REQUESTING = np.dtype(
    [
        *(("client", "u8"), ("order", "i8"), ("at", "i8")),  # client: its transactional.id, or its process without one
        ("name", "u8"),  # the topic of a batch, the group of committed offsets; 0 for other requests
        *(("pid", "i8"), ("epoch", "i8")),  # -1 and NOWHERE without
        ("use", "u1"),  # flags: WITHIN, ENDED
    ]
)
"""A request, or a declaration of an application."""
WITHIN, ENDED = 1, 2  # it neither gives nor fences an epoch, and was not refused; it ended a transaction
EPOCH = np.dtype([("pid", "i8"), ("client", "u8"), ("epoch", "i8"), ("order", "i8"), ("at", "i8")])
"""The requests of a client with a producer id and epoch (-1 without one): the least order and the least place."""
REFUSAL = np.dtype([("pid", "i8"), ("epoch", "i8"), ("order", "i8"), ("at", "i8"), ("of_epoch", "?")])
"""A producer is refused for good: because of its epoch, or for another reason."""
OFFSET_STEP = np.dtype(
    [
        *(("pid", "i8"), ("epoch", "i8"), ("group", "u8"), ("key", "u8")),  # key: joined, :func:`name_hash` and offset
        *(("order", "i8"), ("at", "i8"), ("step", "u1")),
    ]
)
"""A step of a transaction with offsets; the group is 0 for a request to end it."""
NO_STEP, SENDS_OFFSET, STORED_OFFSET, ENDS_IT, ENDS_AGAIN, COMMITTED_IT, ABORTED_IT, UNCLEAR = range(8)
# ENDS_AGAIN: the end is requested, and the request before it of the same producer id and epoch was to end it, too.
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

EPOCH_REFUSALS = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
COMMITS = frozenset({"TxnOffsetCommit", "OffsetCommit"})
DECLARATIONS = frozenset({"DeclareApplication", "DeclareTopic", "DeclareRecord"})
GENERATIONS = COMMITS | {"JoinGroup"}
GENERATION_STEPS = {("JoinGroup", "ok"), *((action, phase) for action in COMMITS for phase in ("invoke", "ok"))}
COMMITTING = frozenset({"SendOffsetsToTransaction", "CommitOffsets"})
ENDING = frozenset({"EndTxn", "InitProducerId"})
FENCING = ENDING | {"TimeOut"}
REQUESTS = COMMITS | ENDING | {"Produce"}
TELLING = REQUESTS | GENERATIONS | DECLARATIONS | {"TimeOut"}
BATCH_REFUSALS = (ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
INJECTED = "error"  # the fault of a request whose answer a test has made up: kafka_eos.server.faults.Fault.ERROR


@lru_cache(1 << 16)
def text_hash(text: str) -> int:
    """The hash of a text, the same in every process; above 1."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") | 2


@lru_cache(1 << 16)
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


@lru_cache(1 << 16)
def name_hash(group: int, place: int) -> int:
    """The hash of one group and partition."""
    return int(name_hashes(group, place)[0])


def joined_hashes(name: Hashes, number: Ints) -> Hashes:
    """The hashes of names and numbers, such as processes and their transactions, shape (n,); none is 0."""
    mixed = (name ^ number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    return np.maximum(mixed ^ mixed >> np.uint64(31), np.uint64(1))


@dataclass(slots=True)
class Asked:
    """The topics and groups that requests name.

    Attributes:
        topics: the topics of batches and of committed offsets.
        groups: the groups, each with the topics of which offsets were committed.
    """

    topics: set[str] = field(default_factory=set)
    groups: dict[str, set[str]] = field(default_factory=dict)

    def add(self, action: str, topic: str | None, group: str | None) -> None:
        """Add the names of an event."""
        own = {topic} if topic is not None and action in COMMITS else set[str]()
        if group is not None and action in GENERATIONS:
            self.groups.setdefault(group, set()).update(own)
        self.topics |= {topic} if topic is not None and action == "Produce" else own

    def update(self, other: "Asked") -> None:
        """Add the names of other requests."""
        self.topics |= other.topics
        for group, topics in other.groups.items():
            self.groups.setdefault(group, set()).update(topics)


@dataclass(slots=True)
class RunFacts:
    """The facts of a run as a whole, from some or all of its events.

    Attributes:
        run: its name.
        first: the place of its first event.
        events: how many there are.
        ordered: whether all have an order.
        spans: of each chunk of events the first place, the least and greatest order, and whether the order rises.
        last_ms: the time of the last event, in milliseconds since the epoch; ``inf`` if an event has no time.
        topics: the topics that its events name.
        places: partitions of its events by hash.
        telling: by process, an event that invokes the begin or the end of a numbered transaction.
        made_up: whether a test had a request answered with an error.
        sending: the groups whose offsets producers sent in transactions.
        generations: whether offsets were committed by members, or members joined.
        declared: whether applications are declared.
        asked: the topics and groups that requests name.
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
    spans: list[tuple[int, int, int, bool]] = field(default_factory=list)
    last_ms: float = -inf
    topics: set[str] = field(default_factory=set)
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    telling: dict[int, int] = field(default_factory=dict)
    made_up: bool = False
    sending: set[str] = field(default_factory=set)
    generations: bool = False
    declared: bool = False
    asked: Asked = field(default_factory=Asked)
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
        self.spans += other.spans
        self.last_ms = max(self.last_ms, other.last_ms)
        self.topics |= other.topics
        self.places.update(other.places)
        for process, at in other.telling.items():
            self.telling[process] = min(at, self.telling.get(process, at))
        self.made_up |= other.made_up
        self.sending |= other.sending
        self.generations |= other.generations
        self.declared |= other.declared
        self.asked.update(other.asked)
        for process, member in other.members.items():
            self.members[process] = self.members[process].joined(member) if process in self.members else member
        self.groups.update(other.groups)
        for name, given in other.first_given.items():
            self.first_given[name] = min(given, self.first_given.get(name, given))
        self.tacit |= other.tacit
        self.unclear |= other.unclear

    @property
    def straight(self) -> bool:
        """Whether the events are in order where they are, file after file."""
        spans = sorted(self.spans)
        follows = all(before[2] <= after[1] for before, after in pairwise(spans))
        return not self.ordered or (follows and all(rises for *_, rises in spans))


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
        requests: requests, dtype :data:`REQUESTING`.
        epochs: producer ids and epochs of requests, dtype :data:`EPOCH`.
        refusals: dtype :data:`REFUSAL`.
        offset_steps: steps of transactions with offsets, dtype :data:`OFFSET_STEP`.
        declared: declarations of applications, dtype :data:`REQUESTING`.
        members: the places of events that the rule over generations judges, and their groups' hashes, shape (n, 2).
        sent: outputs that name their inputs, dtype :data:`SENT`.
        given: inputs, dtype :data:`GIVEN`.
        asked: requests for commits, dtype :data:`ASKED`.
        applied: the places of events that the rules over applications judge, shape (n,).
    """

    facts: RunFacts
    rows: Rows
    requests: Rows
    epochs: Rows
    refusals: Rows
    offset_steps: Rows
    declared: Rows
    members: Ints
    sent: Rows
    given: Rows
    asked: Rows
    applied: Ints


Numbered = tuple[Ints, Sequence[Any]]
"""The places of some events, and the events, each a :data:`kafka_eos_checks.audit.events.history_files.Column`."""


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
        is_one = not runs or runs.count(runs[0]) == len(runs)
        for run in runs[:1] if is_one else dict.fromkeys(runs):
            columns = made.get(run) or made.setdefault(run, _Columns(run, source))
            if is_one:
                columns.add(places, events)
            else:
                own = [number for number, each in enumerate(runs) if each == run]
                columns.add(places[own], [events[number] for number in own])
            if len(columns) >= CHUNK_EVENTS:
                yield made.pop(run).finish()
    for columns in made.values():
        yield columns.finish()


_RUN, _PROCESS = attrgetter("run"), attrgetter("process")
_VALUE, _TRANSACTION = attrgetter("detail.value"), attrgetter("detail.transaction")
_EPOCH, _FAULT = attrgetter("producer_epoch"), attrgetter("detail.fault")
_FORM = attrgetter("action", "phase", "topic", "partition", "isolation", "group", "producer_id")
_NUMBERS = tuple(map(attrgetter, ("offset", "order", "time_us")))  # a tuple for each event would take longer
_KINDS = {
    (action, phase): number * len(PHASES) + place
    for action, number in _ACTION.items()
    for phase, place in _PHASE.items()
}
_ISOLATIONS = {"read_committed": COMMITTED, "read_uncommitted": UNCOMMITTED}
_NUMBER = (1 << 62) - 1  # the bits of a transaction's number that are hashed
REQUEST, OUTPUT, INPUT, COMMIT, REST = range(5)  # uses of an event
_NAMED = (str, int, int)  # the types of an input: topic, partition, offset


class _Forms(dict[tuple[Any, ...], int]):
    """The different forms of events: action, phase, topic, partition, isolation, group and producer id; numbered.

    Attributes:
        rows: of each form the kind of event, hashes of topic, partition and group, flags, whether it declares an
            application, 1 for a request to end a transaction and 2 for its answer, the producer id (-1 without), and
            columns ``name`` and ``use`` of a request.
        uses: of each form its use.
        generations: of each form whether the rule over generations judges it, if it has a generation.
        steps: of each form the step of a transaction with offsets that it may be.
    """

    def __init__(self, facts: RunFacts) -> None:
        super().__init__()
        self.rows: list[tuple[int, int, int, int, int, bool, int, int, int, int]] = []
        self.uses = bytearray()  # and not a list, which numpy would copy for each block of lines
        self.steps = bytearray()
        self.generations = bytearray()
        self._facts = facts

    def __missing__(self, form: tuple[Any, ...]) -> int:
        action, phase, topic, partition, isolation, group, producer_id = form
        facts, kind, place, use = self._facts, _KINDS.get((action, phase), OTHER), 0, REST
        if topic is not None:
            facts.topics.add(topic)
            if partition is not None:
                place = place_hash(topic, partition)
                facts.places[place] = topic, partition
        if action in TELLING or producer_id is not None:
            use = REQUEST
            facts.declared |= action in DECLARATIONS
            facts.asked.add(action, topic, group)
        elif kind == INVOKED:
            use = OUTPUT
        elif kind == POLLED and group and place:
            use = INPUT
            facts.groups[text_hash(group)] = group
        elif action in COMMITTING and phase == "invoke":
            use = COMMIT
        generation = use == REQUEST and (action, phase) in GENERATION_STEPS and group is not None
        hashed = 0 if group is None else text_hash(group)
        topic_hash = 0 if topic is None else text_hash(topic)
        flags, declares, ends = _ISOLATIONS.get(isolation, 0), action in DECLARATIONS, 0
        pid, step = -1 if producer_id is None or producer_id < 0 else producer_id, NO_STEP
        if action == "EndTxn":
            ends = 1 if phase == "invoke" else 2
        if pid >= 0 and ends:
            step = {"invoke": ENDS_IT, "ok": COMMITTED_IT}.get(phase, NO_STEP)
        elif pid >= 0 and action == "TxnOffsetCommit" and group is not None and place:
            step = {"invoke": SENDS_OFFSET, "ok": STORED_OFFSET}.get(phase, UNCLEAR)
            facts.sending.add(group)
        name = 0
        if place and (action == "Produce" or action in COMMITS):
            name = hashed if group and action != "Produce" else topic_hash
        within = WITHIN if action not in FENCING and phase != "fail" else 0
        ended = ENDED if action in ENDING and phase == "ok" else 0
        self.rows.append((kind, topic_hash, place, hashed, flags, declares, ends, pid, name, within | ended))
        self.uses.append(use)
        self.generations.append(generation)
        self.steps.append(step)
        number = self[form] = len(self)
        return number

    def columns(self) -> list[NDArray[Any]]:
        """The columns of :attr:`rows`."""
        kinds = (np.uint8, np.uint64, np.uint64, np.uint64, np.uint8, np.bool_, np.uint8, np.int64, np.uint64, np.uint8)
        return [np.array(own, kind) for own, kind in zip(zip(*self.rows, strict=True), kinds, strict=True)]


class _Hashes(dict[str, int]):
    """The hashes of texts that occur often."""

    def __missing__(self, text: str) -> int:
        found = self[text] = text_hash(text)
        return found


class _Columns:
    """A buffer of events of one run that become columns."""

    def __init__(self, run: str, source: str) -> None:
        self.source = source
        self.facts = RunFacts(run, 0)
        self.forms = _Forms(self.facts)
        self._count = 0
        self.at: list[Ints] = []
        self.form: list[Ints] = []
        self.processes: list[Hashes] = []
        self.names = _Hashes()
        self.texts: list[bytes] = []
        self.sizes: list[Ints] = []
        self.tells: list[NDArray[np.uint8]] = []
        self.numbers: list[Ints] = []
        self.offsets: list[Ints] = []
        self.orders: list[Ints] = []
        self.clients: list[Hashes] = []  # of requests
        self.epochs: list[Ints] = []  # of requests
        self.following: list[tuple[int, int, int]] = []  # row, the next producer id and epoch that it gives
        self.refusals: list[tuple[int, int]] = []  # row, whether because of the epoch
        self.steps: list[tuple[int, int, int]] = []  # row, step, committed offset
        self.members: list[int] = []  # rows that the rule over generations judges
        self.sent: list[tuple[int, int, int, int]] = []  # row, partition and offset of the input, number of the output
        self.asked: list[tuple[int, int, int]] = []  # row, group and partition, offset

    def __len__(self) -> int:
        return self._count

    def add(self, at: Ints, events: Sequence[Any]) -> None:
        """Add some events with their places: all that is read of the objects, while they are in the cache."""
        before, count = len(self), len(events)
        self._count += count
        form = np.fromiter(map(self.forms.__getitem__, map(_FORM, events)), np.int64, count)
        numbers = list(map(_TRANSACTION, events))
        offsets, orders, times = (list(map(number, events)) for number in _NUMBERS)
        self.at.append(at)
        self.form.append(form)
        self.processes.append(np.fromiter(map(self.names.__getitem__, map(_PROCESS, events)), np.uint64, count))
        self._values(list(map(_VALUE, events)))
        self.numbers.append(np.array([n & _NUMBER if isinstance(n, int) else NOWHERE for n in numbers], np.int64))
        self.offsets.append(self._integers(offsets))
        self.orders.append(self._integers(orders))
        last_ms = inf if None in times else max(times) / 1000
        self.facts.last_ms = max(self.facts.last_ms, last_ms)
        use = np.frombuffer(self.forms.uses, np.uint8)[form]
        for row in np.flatnonzero(use == OUTPUT).tolist():
            if events[row].detail.input.__class__ is list:
                self._sent(before + row, events[row].detail)
        for row in np.flatnonzero(use == COMMIT).tolist():
            self._asked(before + row, events[row])
        rows = np.flatnonzero(use == REQUEST)
        requests = [events[row] for row in rows.tolist()]
        names = [each.process if each.transactional_id is None else each.transactional_id for each in requests]
        self.clients.append(np.fromiter(map(self.names.__getitem__, names), np.uint64, len(names)))
        self.epochs.append(self._integers(list(map(_EPOCH, requests))))
        self.facts.made_up |= INJECTED in map(_FAULT, requests)
        for row, event in zip(rows.tolist(), requests, strict=True):
            if event.phase == "fail":
                self._refused(before + row, event)
        for row in np.flatnonzero(np.frombuffer(self.forms.generations, np.uint8)[form]).tolist():
            generation = events[row].generation
            if generation is not None and (generation >= 0 or events[row].action == "JoinGroup"):
                self.members.append(before + row)
        for row in np.flatnonzero(np.frombuffer(self.forms.steps, np.uint8)[form]).tolist():
            self._step(before + row, events[row], self.forms.steps[form[row]])

    def _values(self, values: list[Any]) -> None:
        """Add the values of events as text: their bytes and sizes now, so that no string outlives its event."""
        tells = np.full(len(values), HAS_VALUE | TELLS, np.uint8)
        for row in [row for row, value in enumerate(values) if value.__class__ is not str]:
            if values[row] is UNSET or values[row] is None:
                tells[row] = 0 if values[row] is UNSET else TELLS
                values[row] = None
            values[row] = str(values[row])
        text = "".join(values)
        encoded = text.encode("utf-8", "surrogatepass")
        if len(encoded) != len(text):  # not only ASCII
            values = [value.encode("utf-8", "surrogatepass") for value in values]
        self.texts.append(encoded)
        self.sizes.append(np.fromiter(map(len, values), np.int64, len(values)))
        self.tells.append(tells)

    def _sent(self, row: int, detail: Any) -> None:
        """Add a send that names its input."""
        named, output = detail.input, detail.output
        if tuple(map(type, named)) != _NAMED or abs(named[2]) >= _NUMBER:
            return
        number = output if isinstance(output, int) and abs(output) < _NUMBER else NOWHERE
        self.sent.append((row, place_hash(named[0], named[1]), named[2], number))

    def _asked(self, row: int, event: Any) -> None:
        """Add a request to commit offsets."""
        group, topic = text_hash(event.group or ""), event.topic or ""
        offsets = event.detail.offsets
        for partition, offset in offsets.items() if isinstance(offsets, dict) else ():
            if isinstance(partition, str) and partition.isdecimal() and type(offset) is int:
                self.asked.append((row, name_hash(group, place_hash(topic, int(partition))), offset))
            else:
                self.facts.unclear = True

    def _refused(self, row: int, event: Any) -> None:
        """Add a request that was refused with an error that a rule judges."""
        of_epoch = event.error in EPOCH_REFUSALS
        if of_epoch or (event.action == "Produce" and event.error in BATCH_REFUSALS):
            self.refusals.append((row, of_epoch))

    def _step(self, row: int, event: Any, step: int) -> None:
        """Add a step of a transaction with offsets."""
        detail, offset = event.detail, 0
        if event.action == "TxnOffsetCommit":
            offset = detail.committed_offset
            if not isinstance(offset, int) or abs(offset) >= _NUMBER:
                step, offset = UNCLEAR, 0
            elif step == UNCLEAR:
                return  # it was refused, or nobody knows
        else:
            pid, epoch = detail.next_producer_id, detail.next_producer_epoch
            if isinstance(pid, int) and isinstance(epoch, int) and pid >= 0:
                self.following.append((row, pid, epoch))
            if step == COMMITTED_IT:
                committed = detail.committed
                step = COMMITTED_IT if committed is True else ABORTED_IT if committed is False else UNCLEAR
        self.steps.append((row, UNCLEAR if detail.repeats is not UNSET else step, offset))

    def finish(self) -> Told:
        """The columns of all events.

        Raises:
            MalformedHistory: a number has more bits than its column.
        """
        form = np.concatenate(self.form)
        kind, topic, place, group, isolation, declares, ends, pid, named, use_of = (
            own[form] for own in self.forms.columns()
        )
        use = np.frombuffer(self.forms.uses, np.uint8)[form]
        rows = np.zeros(len(self), TOLD)
        rows["what"], rows["topic"], rows["place"], rows["at"] = kind, topic, place, np.concatenate(self.at)
        rows["flags"] = isolation | np.concatenate(self.tells)
        rows["key"] = self._keys(topic)
        rows["process"], number = np.concatenate(self.processes), np.concatenate(self.numbers)
        rows["ended"] = np.where(number == NOWHERE, 0, joined_hashes(rows["process"], number))
        rows["offset"], rows["order"] = np.concatenate(self.offsets), np.concatenate(self.orders)
        telling = np.flatnonzero(np.isin(kind, [what(action, "invoke") for action in ACTIONS[8:]]))
        telling = telling[rows["ended"][telling] != 0][::-1]

        sends, asking, requests = (np.flatnonzero(use == each) for each in (OUTPUT, COMMIT, REQUEST))
        sent = np.zeros(len(self.sent), SENT)
        of, sent["place"], sent["offset"], sent["number"] = _transposed(self.sent, 4)
        for name in ("key", "topic", "process", "order", "at"):
            sent[name] = rows[name][of]
        sent["attempt"] = joined_hashes(sent["process"], number[of])
        sent, of = sent[sent["topic"] != 0], of[sent["topic"] != 0]
        tacit = rows["process"][np.setdiff1d(sends, of, assume_unique=True)]

        asked = np.zeros(len(self.asked), ASKED)
        by, asked["name"], offsets = _transposed(self.asked, 3)
        asked["offset"], asked["at"] = self._integers(offsets), rows["at"][by]
        asked["attempt"] = joined_hashes(rows["process"][by], number[by])

        requesting = np.zeros(len(requests), REQUESTING)
        requesting["client"] = np.concatenate(self.clients)
        requesting["order"], requesting["at"] = rows["order"][requests], rows["at"][requests]
        requesting["name"], requesting["pid"], requesting["use"] = named[requests], pid[requests], use_of[requests]
        requesting["epoch"] = np.concatenate(self.epochs)
        epoch, client = np.full(len(self), NOWHERE), np.zeros(len(self), np.uint64)
        epoch[requests], client[requests] = requesting["epoch"], requesting["client"]

        given = np.flatnonzero((use == INPUT) & (rows["offset"] != NOWHERE))
        inputs = np.zeros(len(given), GIVEN)
        for name in ("place", "offset", "at"):
            inputs[name] = rows[name][given]
        inputs["group"] = group[given]
        inputs["name"] = name_hashes(inputs["group"], inputs["place"])
        by_name = inputs[np.lexsort((inputs["offset"], inputs["name"]))]
        by_name = by_name[np.unique(by_name["name"], return_index=True)[1]]
        members = np.array(self.members, np.int64)
        facts = replace(
            self.facts,
            first=int(rows["at"].min()),
            events=len(rows),
            ordered=bool((rows["order"] != NOWHERE).all()),
            spans=[_span(rows)],
            telling=dict(zip(rows["process"][telling].tolist(), rows["at"][telling].tolist(), strict=True)),
            generations=bool(len(members)),
            members=_members(rows[given], inputs["group"]),
            first_given={name: (own, place, offset) for name, own, place, offset, _ in by_name.tolist()},
            tacit=set(tacit.tolist()),
        )
        return Told(
            facts,
            rows[kind != OTHER],
            requesting[~declares[requests]],
            self._epochs(rows, pid, epoch, client, requests[pid[requests] >= 0]),
            self._refusals(rows, pid, epoch),
            self._offset_steps(rows, pid, epoch, group, place, _again(requests, pid, epoch, ends)),
            requesting[declares[requests]],
            np.stack([rows["at"][members], (group[members] >> np.uint64(1)).astype(np.int64)], axis=1),
            sent,
            inputs,
            asked,
            rows["at"][np.sort(np.concatenate([sends, given, asking]))],
        )

    def _epochs(self, rows: Rows, pid: Ints, epoch: Ints, client: Hashes, requests: Ints) -> Rows:
        """The producer ids and epochs in some requests, and those that answers to ``EndTxn`` give."""
        given, next_pid, next_epoch = _transposed(self.following, 3)
        of = np.concatenate([requests, given])
        found = np.zeros(len(of), EPOCH)
        found["order"], found["at"], found["client"] = rows["order"][of], rows["at"][of], client[of]
        found["pid"] = np.concatenate([pid[requests], self._integers(next_pid)])
        found["epoch"] = np.maximum(np.concatenate([epoch[requests], self._integers(next_epoch)]), -1)
        found = found[np.lexsort((found["epoch"], found["client"], found["pid"]))]
        named = found[["pid", "client", "epoch"]]
        first = np.flatnonzero(np.append(True, named[1:] != named[:-1])[: len(of)])
        least: Rows = found[first]
        for name in ("order", "at") if len(of) else ():
            least[name] = np.minimum.reduceat(found[name], first)
        return least

    def _refusals(self, rows: Rows, pid: Ints, epoch: Ints) -> Rows:
        of, of_epoch = _transposed(self.refusals, 2)
        found = np.zeros(len(of), REFUSAL)
        found["pid"], found["epoch"], found["of_epoch"] = pid[of], epoch[of], of_epoch
        found["order"], found["at"] = rows["order"][of], rows["at"][of]
        of_producers: Rows = found[(found["pid"] >= 0) & (found["epoch"] >= 0)]
        return of_producers

    def _offset_steps(
        self, rows: Rows, pid: Ints, epoch: Ints, group: Hashes, place: Hashes, again: NDArray[np.bool_]
    ) -> Rows:
        of, step, offset = _transposed(self.steps, 3)
        step = np.array(step, np.uint8)
        step[(step == ENDS_IT) & again[of]] = ENDS_AGAIN
        found = np.zeros(len(of), OFFSET_STEP)
        found["pid"], found["epoch"], found["step"] = pid[of], epoch[of], step
        found["order"], found["at"] = rows["order"][of], rows["at"][of]
        found["group"] = group[of]
        found["key"] = joined_hashes(name_hashes(group[of], place[of]), self._integers(offset))
        with_epoch: Rows = found[found["epoch"] != NOWHERE]
        return with_epoch

    def _keys(self, topic: Hashes) -> Hashes:
        """The hashes of topics and values, shape (n,)."""
        sizes = np.concatenate(self.sizes)
        return key_hashes(np.frombuffer(b"".join(self.texts), np.uint8), np.cumsum(sizes) - sizes, sizes, topic)

    def _integers(self, column: Sequence[int | None]) -> Ints:
        """Numbers, :data:`NOWHERE` for None."""
        try:
            return np.array([NOWHERE if n is None else n for n in column] if None in column else column, np.int64)
        except OverflowError:
            raise MalformedHistory(self.source, int(self.at[0][0]), "a number of more than 64 bits") from None


def _span(rows: Rows) -> tuple[int, int, int, bool]:
    """The first place of some events, their least and greatest order, and whether the order rises."""
    order = rows["order"]
    return int(rows["at"].min()), int(order.min()), int(order.max()), bool((order[1:] >= order[:-1]).all())


def _again(requests: Ints, pid: Ints, epoch: Ints, ends: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The events that end a transaction when it was asked before, and nothing else since, shape (n,).

    Args:
        requests: the numbers of events with a producer, ascending.
        pid: the producer id of each event.
        epoch: its epoch.
        ends: 1 for a request to end a transaction, 2 for the answer, 0 for any other event.
    """
    again = np.zeros(len(pid), np.bool_)
    own = requests[np.lexsort((epoch[requests], pid[requests]))]
    same = (pid[own][1:] == pid[own][:-1]) & (epoch[own][1:] == epoch[own][:-1])
    follows = np.append(False, same & (ends[own][1:] > 0) & (ends[own][:-1] > 0))[: len(own)]
    asked = np.flatnonzero(ends[own] == 1)
    row = np.cumsum(~follows)[asked]
    again[own[asked[1:][row[1:] == row[:-1]]]] = True
    return again


def _transposed(rows: Sequence[tuple[Any, ...]], width: int) -> list[Any]:
    """The columns of some rows: the numbers of events first."""
    first, *rest = zip(*rows, strict=True) if rows else [()] * width
    return [np.array(first, np.int64), *rest]


def _members(rows: Rows, groups: Hashes) -> dict[int, Member]:
    """The members that were given some inputs, by process; see :class:`Member`."""
    found: dict[int, Member] = {}
    order = np.lexsort((rows["at"], rows["order"], groups, rows["process"]))
    process, group = rows["process"][order], groups[order]
    first = np.flatnonzero(np.append(True, (process[1:] != process[:-1]) | (group[1:] != group[:-1]))[: len(order)])
    if not len(order):
        return found
    lowest = np.minimum.reduceat(rows["at"][order], first)
    columns = (process[first], group[first], rows["order"][order][first], rows["at"][order][first], lowest)
    for one, *own in zip(*(column.tolist() for column in columns), strict=True):
        member = Member(*own)
        found[one] = found[one].joined(member) if one in found else member
    return found
