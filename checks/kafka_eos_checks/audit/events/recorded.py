"""Events of histories as columns: a row for each event, with the fields that rules join by, and its place.

Texts become hashes of 64 bits: of a process, of a topic and partition, of a topic and value. If two texts share a hash,
their events become suspects: the readable rules then compare the texts themselves. The exceptions are the generations
of groups and the offsets as sent. There, a text that shares the hash of another one could hide a violation.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import INJECTED, MILLISECONDS, OF_TESTS, PHASES, MalformedHistory, wrong_time
from kafka_eos_checks.audit.events.blocks import NOWHERE, NUMBER, Block, Form, integers
from kafka_eos_checks.audit.segments.headers import Bytes, Ints
from kafka_eos_checks.audit.segments.strings import hashes

AT_BITS = 42  # bits of a place in a file; the bits above have the file's number
CHUNK_EVENTS = 262_144  # that become columns together; measured: with a quarter of it an event takes 5 % longer
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
"""A client's producer id and epoch, with the first request that has them, or the request for which they were given."""
EPOCH_REQUEST = np.dtype([*EPOCH.descr, ("given", "?")])
"""A request of a client for an epoch, or the answer by which it was given one."""
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
MEMBERSHIP = np.dtype(
    [
        *(("group", "u8"), ("process", "u8"), ("request", "u8")),
        *(("generation", "i8"), ("order", "i8"), ("at", "i8"), ("step", "u1")),
    ]
)
"""A step of a member of a group that has an order: a generation began, or a commit of one was sent or taken."""
BEGAN, COMMIT_SENT, COMMIT_TAKEN = range(3)
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
DECLARATIONS = frozenset(OF_TESTS)
GENERATIONS = COMMITS | {"JoinGroup"}
GENERATION_STEPS = {("JoinGroup", "ok"), *((action, phase) for action in COMMITS for phase in ("invoke", "ok"))}
COMMITTING = frozenset({"SendOffsetsToTransaction", "CommitOffsets"})
ENDING = frozenset({"EndTxn", "InitProducerId"})
FENCING = ENDING | {"TimeOut"}
REQUESTS = COMMITS | ENDING | {"Produce"}
TELLING = REQUESTS | GENERATIONS | DECLARATIONS | {"TimeOut"}
BATCH_REFUSALS = (ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


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
        declared: whether applications are declared.
        asked: the topics and groups that requests name.
        members: by process that polled for a group, see :class:`Member`.
        groups: the names of these groups, by hash.
        first_given: by group and partition, hashes of both, and the first offset that a member was given.
        tacit: processes that send records without naming an input.
        valued: whether an event names its record by a value.
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
    declared: bool = False
    asked: Asked = field(default_factory=Asked)
    members: "dict[int, Member]" = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)
    first_given: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    tacit: set[int] = field(default_factory=set)
    valued: bool = False

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
        self.declared |= other.declared
        self.asked.update(other.asked)
        for process, member in other.members.items():
            self.members[process] = self.members[process].joined(member) if process in self.members else member
        self.groups.update(other.groups)
        for name, given in other.first_given.items():
            self.first_given[name] = min(given, self.first_given.get(name, given))
        self.tacit |= other.tacit
        self.valued |= other.valued

    def telling_of(self, processes: Collection[int]) -> Ints:
        """The places of :attr:`telling` of some processes."""
        return np.array([at for process, at in self.telling.items() if process in processes], np.int64)

    @property
    def begun(self) -> Ints:
        """The places of the members' first polls."""
        return np.array([member.first(self.ordered)[1] for member in self.members.values()], np.int64)

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
        rows: the events that rules join, dtype :data:`TOLD`; with :data:`OTHER`, those that only commit offsets.
        requests: requests, dtype :data:`REQUESTING`.
        epochs: producer ids and epochs of requests, dtype :data:`EPOCH`.
        epoch_requests: dtype :data:`EPOCH_REQUEST`.
        refusals: dtype :data:`REFUSAL`.
        offset_steps: steps of transactions with offsets, dtype :data:`OFFSET_STEP`.
        declared: declarations of applications, dtype :data:`REQUESTING`.
        members: the steps that the rule over generations judges, dtype :data:`MEMBERSHIP`.
        sent: outputs that name their inputs, dtype :data:`SENT`.
        given: inputs, dtype :data:`GIVEN`.
        asked: requests for commits, dtype :data:`ASKED`.
        applied: the places of events that the rules over applications judge, shape (n,).
    """

    facts: RunFacts
    rows: Rows
    requests: Rows
    epochs: Rows
    epoch_requests: Rows
    refusals: Rows
    offset_steps: Rows
    declared: Rows
    members: Rows
    sent: Rows
    given: Rows
    asked: Rows
    applied: Ints


def told(numbered: Iterable[tuple[Ints, Block]], source: str) -> Iterator[Told]:
    """Turn events into columns, some at a time, each run by itself.

    Args:
        numbered: events, some at a time, and the place of each.
        source: the name of the history, for errors.

    Raises:
        MalformedHistory: a number has more bits than its column; ``line`` is the place of an event before it.
    """
    made: dict[str, _Columns] = {}
    for places, block in numbered:
        for run, own, rows in block.by_run():
            columns = made.get(run) or made.setdefault(run, _Columns(run, source))
            columns.add(places if rows is None else places[rows], own)
            if len(columns) >= CHUNK_EVENTS:
                yield made.pop(run).finish()
    for columns in made.values():
        yield columns.finish()


_KINDS = {
    (action, phase): number * len(PHASES) + place
    for action, number in _ACTION.items()
    for phase, place in _PHASE.items()
}
_ISOLATIONS = {"read_committed": COMMITTED, "read_uncommitted": UNCOMMITTED}
REQUEST, OUTPUT, INPUT, COMMIT, REST = range(5)  # uses of an event
_USE, _JOINS, _STEPS, _COUNTS, _FAILS = 7, 8, 16, 32, 64
"""Bits of a form's mark: its use; whether joins need its events; whether one may be a step of a transaction with
offsets, may have a generation that counts, or was refused."""
OF_TOPIC, OF_GROUP = 1, 2  # what a request is named by: the topic of a batch, or the group of committed offsets
_OF_STEP = ("committed_offset", "next_producer_id", "next_producer_epoch", "committed", "repeats")
_NO_TEXT, _EMPTY = 0, 1  # the numbers of no text, and of a text without a letter
FORM = np.dtype(
    [
        *(("topic", "u8"), ("place", "u8")),  # hashes; 0 without
        ("kind", "u1"),
        ("isolation", "u1"),  # COMMITTED, UNCOMMITTED, 0
        ("ends", "u1"),  # 1 for a request to end a transaction, 2 for its answer
        ("gives", "u1"),  # 1 for a request of an epoch, 2 if it was given
        ("named", "u1"),  # OF_TOPIC, OF_GROUP, 0
        ("use", "u1"),  # column ``use`` of a request
        ("declares", "?"),
    ]
)
"""The fields that follow from the action, phase, topic, partition and isolation of an event."""


class _Forms(dict[tuple[Any, ...], int]):
    """The different forms of events, numbered.

    Attributes:
        all: the forms.
        rows: of each form the fields of a :data:`FORM`.
        marks: of each form its use if it has no producer id, and what else an event of it may be, as bits.
        steps: of each form the step of a transaction with offsets that it may be.
    """

    def __init__(self, facts: RunFacts) -> None:
        super().__init__()
        self.all: list[Form] = []
        self.rows: list[tuple[Any, ...]] = []
        self.marks = bytearray()  # and not a list, which numpy would copy for each block of lines
        self.steps = bytearray()
        self._facts = facts

    def __missing__(self, form: tuple[Any, ...]) -> int:
        action, phase, topic, partition, isolation = form
        facts, kind, place, use = self._facts, _KINDS.get((action, phase), OTHER), 0, REST
        if topic is not None:
            facts.topics.add(topic)
            if partition is not None:
                place = place_hash(topic, partition)
                facts.places[place] = topic, partition
        if action in TELLING:
            use = REQUEST
            facts.declared |= action in DECLARATIONS
            facts.asked.add(action, topic, None)
        elif kind == INVOKED:
            use = OUTPUT
        elif kind == POLLED and place:
            use = INPUT
        elif action in COMMITTING and phase == "invoke":
            use = COMMIT
        ends, step, named = 0, NO_STEP, 0
        gives = {"invoke": 1, "ok": 2}.get(phase, 0) if action == "InitProducerId" else 0
        if action == "EndTxn":
            ends = 1 if phase == "invoke" else 2
            step = {"invoke": ENDS_IT, "ok": COMMITTED_IT}.get(phase, NO_STEP)
        elif action == "TxnOffsetCommit" and place:
            step = {"invoke": SENDS_OFFSET, "ok": STORED_OFFSET}.get(phase, UNCLEAR)
        if place and (action == "Produce" or action in COMMITS):
            named = OF_TOPIC if action == "Produce" else OF_GROUP
        within = WITHIN if action not in FENCING and phase != "fail" else 0
        ended = ENDED if action in FENCING and phase == "ok" else 0
        hashed, flags = 0 if topic is None else text_hash(topic), _ISOLATIONS.get(isolation, 0)
        self.rows.append((hashed, place, kind, flags, ends, gives, named, within | ended, action in DECLARATIONS))
        may = {_JOINS: kind != OTHER, _STEPS: step != NO_STEP, _FAILS: phase == "fail"}
        may[_COUNTS] = (action, phase) in GENERATION_STEPS
        self.marks.append(use | sum(bit for bit, is_so in may.items() if is_so))
        self.steps.append(step)
        self.all.append(Form(*form))
        number = self[form] = len(self)
        return number


class _Hashes(dict[str | None, int]):
    """The hashes of texts that occur often; 0 of no text."""

    def __missing__(self, text: str | None) -> int:
        found = self[text] = 0 if text is None else text_hash(text)
        return found


class _Inputs(dict[tuple[str, int], int]):
    """The hashes of the partitions of inputs that outputs name."""

    def __init__(self, facts: RunFacts) -> None:
        super().__init__()
        self._facts = facts

    def __missing__(self, place: tuple[str, int]) -> int:
        found = self[place] = place_hash(*place)
        self._facts.places[found] = place
        return found


class _Numbers(dict[str | None, int]):
    """The numbers of texts that occur often; ``texts``: by number."""

    def __init__(self) -> None:
        self.texts: list[str | None] = [None, ""]
        super().__init__({None: _NO_TEXT, "": _EMPTY})

    def __missing__(self, text: str) -> int:
        self.texts.append(text)
        found = self[text] = len(self)
        return found


class _Columns:
    """A buffer of events of one run that become columns."""

    def __init__(self, run: str, source: str) -> None:
        self.source = source
        self.facts = RunFacts(run, 0)
        self.forms = _Forms(self.facts)
        self.groups = _Numbers()
        self.names = _Hashes()
        self.inputs = _Inputs(self.facts)
        self._count = 0
        self.at: list[Ints] = []
        self.form: list[Ints] = []
        self.group: list[Ints] = []
        self.pids: list[Ints] = []
        self.orders: list[Ints] = []
        self.uses: list[NDArray[np.uint8]] = []
        self.joined: list[Ints] = []  # the numbers of events that may be one of TOLD or ASKED, and what they alone tell
        self._joined = 0
        self.processes: list[Hashes] = []
        self.texts: list[bytes] = []
        self.sizes: list[Ints] = []
        self.tells: list[NDArray[np.uint8]] = []
        self.numbers: list[Ints] = []
        self.offsets: list[Ints] = []
        self.sent: list[tuple[Any, ...]] = []  # columns: joined, partition and offset of the input, number of output
        self.asked: list[tuple[int, int, int]] = []  # joined, group and partition, offset
        self.requests: list[Ints] = []  # the numbers of requests, and what they alone tell
        self._requests = 0
        self.clients: list[Hashes] = []
        self.epochs: list[Ints] = []
        self.following: list[tuple[Ints, ...]] = []  # columns: request, the next producer id and epoch that it gives
        self.refusals: list[tuple[int, int]] = []  # request, whether because of the epoch
        self.steps: list[tuple[Any, ...]] = []  # columns: request, step, committed offset
        self.members: list[tuple[int, int, int, int, int]] = []  # request, process, what it is named, generation, step

    def __len__(self) -> int:
        return self._count

    def add(self, at: Ints, block: Block) -> None:
        """Add some events with their places: all that is read of the objects, while they are in the cache."""
        try:
            self._add(at, block)
        except OverflowError:
            if len(block) > 1:  # find the event
                for row in range(len(block)):
                    _Columns(self.facts.run, self.source).add(at[row : row + 1], block.take(np.array([row])))
            raise MalformedHistory(self.source, int(at[0]), "a number of more than 64 bits") from None

    def _add(self, at: Ints, block: Block) -> None:
        before, count = len(self), len(block)
        self._count += count
        self.at.append(at)
        form = block.forms(self.forms)
        group = block.texts("group", self.groups, np.int64)
        pids, orders = block.integers("producer_id"), block.integers("order")
        self._see_times(at, block.integers("time_us"))
        marks = np.frombuffer(self.forms.marks, np.uint8)[form]
        use = (marks & _USE).astype(np.uint8)
        use[(use == INPUT) & (group <= _EMPTY)] = REST
        use[pids != NOWHERE] = REQUEST
        for own, columns in ((self.form, form), (self.group, group), (self.pids, pids), (self.orders, orders)):
            own.append(columns)
        self.uses.append(use)
        joined = np.flatnonzero((marks & _JOINS > 0) | (use == COMMIT))
        self.joined.append(before + joined)
        self._join(block.take(joined), form[joined], group[joined], use[joined])
        requests = np.flatnonzero(use == REQUEST)
        self.requests.append(before + requests)
        self._ask(block.take(requests), form[requests], group[requests], pids[requests] >= 0)

    def _see_times(self, at: Ints, times: Ints) -> None:
        """Note the last time; raise :class:`MalformedHistory` at the first time that seems to be in milliseconds."""
        wrong = np.flatnonzero((times >= MILLISECONDS.start) & (times < MILLISECONDS.stop))
        if len(wrong):
            raise MalformedHistory(self.source, int(at[wrong[0]]), wrong_time(int(times[wrong[0]])))
        last_ms = inf if (times == NOWHERE).any() else int(times.max()) / 1000
        self.facts.last_ms = max(self.facts.last_ms, last_ms)

    def _join(self, block: Block, form: Ints, group: Ints, use: NDArray[np.uint8]) -> None:
        """Add events that joins need, or that commit offsets."""
        before = self._joined
        self._joined += len(block)
        self.processes.append(block.texts("process", self.names, np.uint64))
        text, sizes, told, present = block.values()
        self.texts.append(text)
        self.sizes.append(sizes)
        self.tells.append(told * np.uint8(TELLS) | present * np.uint8(HAS_VALUE))
        self.facts.valued |= bool(present.any())
        self.numbers.append(block.transactions())
        self.offsets.append(block.integers("offset"))
        outputs, commits = np.flatnonzero(use == OUTPUT), np.flatnonzero(use == COMMIT)
        self._name_inputs(before + outputs, *block.fields(outputs, ("input", "output")))
        for row, offsets in zip(commits.tolist(), *block.fields(commits, ("offsets",)), strict=True):
            self._asked(before + row, self.forms.all[form[row]].topic, self.groups.texts[group[row]], offsets)

    def _ask(self, block: Block, form: Ints, group: Ints, of_producer: NDArray[np.bool_]) -> None:
        """Add requests; which of them have a producer id."""
        before = self._requests
        self._requests += len(block)
        processes, ids = (block.texts(name, self.names, np.uint64) for name in ("process", "transactional_id"))
        self.clients.append(np.where(ids == 0, processes, ids))
        self.epochs.append(block.integers("producer_epoch"))
        self.facts.made_up |= INJECTED in block.faults()
        marks = np.frombuffer(self.forms.marks, np.uint8)[form]
        failed = np.flatnonzero(marks & _FAILS > 0)
        errors = block.take(failed).integers("error").tolist()
        for row, error in zip(failed.tolist(), errors, strict=True):
            self._refused(before + row, self.forms.all[form[row]].action, error)
        members = np.flatnonzero((group != _NO_TEXT) & (marks & _COUNTS > 0))
        generations = block.take(members).integers("generation").tolist()
        named = block.fields(members, ("request",))
        for row, generation, request in zip(members.tolist(), generations, *named, strict=True):
            self._member(before + row, self.forms.all[form[row]], int(processes[row]), generation, request)
        steps = np.flatnonzero(of_producer & (marks & _STEPS > 0))
        self._step(before + steps, form[steps], group[steps], *block.fields(steps, _OF_STEP))

    def _name_inputs(self, rows: Ints, named: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Add sends that may name their inputs."""
        told = np.flatnonzero(np.array([bool(each) for each in named], np.bool_))  # neither UNSET nor None
        own = [named[row] for row in told.tolist()]
        place = np.array([self.inputs[topic, partition] for topic, partition, _ in own], np.uint64)
        offset = _short([offset for _, _, offset in own])
        others = [outputs[row] for row in told.tolist()]
        number = _short([text_hash(each) & NUMBER if isinstance(each, str) else each for each in others])
        fits = offset != NOWHERE
        self.sent.append((rows[told][fits], place[fits], offset[fits], number[fits]))

    def _asked(self, row: int, topic: str | None, group: str | None, offsets: Any) -> None:
        """Add a request to commit offsets."""
        hashed = text_hash(group or "")
        for partition, offset in offsets.items() if isinstance(offsets, dict) else ():
            self.asked.append((row, name_hash(hashed, place_hash(topic or "", int(partition))), offset))

    def _refused(self, row: int, action: str, error: int) -> None:
        """Add a request that was refused with an error that a rule judges."""
        of_epoch = error in EPOCH_REFUSALS
        if of_epoch or (action == "Produce" and error in BATCH_REFUSALS):
            self.refusals.append((row, of_epoch))

    def _step(self, rows: Ints, form: Ints, group: Ints, *told: Sequence[Any]) -> None:
        """Add steps of transactions with offsets; ``told``: the fields of their details, :data:`_OF_STEP`."""
        committed_offset, next_pid, next_epoch, committed, repeats = told
        step = np.frombuffer(self.forms.steps, np.uint8)[form]
        stores = np.isin(step, (SENDS_OFFSET, STORED_OFFSET, UNCLEAR))
        ends = np.array([COMMITTED_IT if c is True else ABORTED_IT if c is False else UNCLEAR for c in committed], "u1")
        again = np.array([each is not UNSET for each in repeats], np.bool_)
        offset = np.where(stores, _short(committed_offset), 0)
        refused = stores & (step == UNCLEAR) & (offset != NOWHERE)  # or nobody knows
        step = np.where(step == COMMITTED_IT, ends, step)
        step = np.where(again | (offset == NOWHERE), UNCLEAR, step)
        offset = np.where(offset == NOWHERE, 0, offset)
        counts = ~refused & (~stores | (group != _NO_TEXT))
        self.steps.append((rows[counts], step[counts], offset[counts]))
        named = np.unique(group[stores & (group != _NO_TEXT)]).tolist()
        self.facts.sending.update(str(self.groups.texts[number]) for number in named)
        follows = [
            row
            for row, (pid, epoch) in enumerate(zip(next_pid, next_epoch, strict=True))
            if isinstance(pid, int) and pid >= 0 and isinstance(epoch, int) and not stores[row]
        ]
        ids, epochs = (integers([own[row] for row in follows]) for own in (next_pid, next_epoch))
        self.following.append((rows[follows], ids, epochs))

    def _member(self, row: int, form: Form, process: int, generation: int, request: Any) -> None:
        """Add a step of a member of a group, if it has a generation."""
        began = form.action == "JoinGroup"
        if generation >= 0 or (began and generation != NOWHERE):
            step = BEGAN if began else COMMIT_SENT if form.phase == "invoke" else COMMIT_TAKEN
            named = self.names[str(None if request is UNSET else request)]
            self.members.append((row, process, named, generation, step))

    def finish(self) -> Told:
        """The columns of all events.

        Raises:
            MalformedHistory: a number has more bits than its column.
        """
        at, order, form, group = (np.concatenate(own) for own in (self.at, self.orders, self.form, self.group))
        forms = np.array(self.forms.rows, FORM)
        hashed = np.array([0 if text is None else text_hash(text) for text in self.groups.texts], np.uint64)
        use, joined, requests = np.concatenate(self.uses), np.concatenate(self.joined), np.concatenate(self.requests)
        self._grouped(form, group, use)

        own, use = forms[form[joined]], use[joined]
        rows = np.zeros(len(joined), TOLD)
        for name, of in (("what", "kind"), ("topic", "topic"), ("place", "place")):
            rows[name] = own[of]
        rows["at"], rows["order"], rows["offset"] = at[joined], order[joined], np.concatenate(self.offsets)
        rows["flags"] = own["isolation"] | np.concatenate(self.tells)
        rows["key"] = self._keys(rows["topic"])
        rows["process"], number = np.concatenate(self.processes), np.concatenate(self.numbers)
        rows["ended"] = np.where(number == NOWHERE, 0, joined_hashes(rows["process"], number))
        telling = np.flatnonzero(np.isin(rows["what"], [what(action, "invoke") for action in ACTIONS[8:]]))
        telling = telling[rows["ended"][telling] != 0][::-1]

        sends, asking = (np.flatnonzero(use == each) for each in (OUTPUT, COMMIT))
        by, *columns = _concatenated(self.sent)
        sent = np.zeros(len(by), SENT)
        sent["place"], sent["offset"], sent["number"] = columns
        for name in ("key", "topic", "process", "order", "at"):
            sent[name] = rows[name][by]
        sent["attempt"] = joined_hashes(sent["process"], number[by])
        sent, by = sent[sent["topic"] != 0], by[sent["topic"] != 0]
        tacit = rows["process"][np.setdiff1d(sends, by, assume_unique=True)]

        asked = np.zeros(len(self.asked), ASKED)
        by, asked["name"], offsets = _transposed(self.asked, 3)
        asked["offset"], asked["at"] = self._integers(offsets, rows["at"][by]), rows["at"][by]
        asked["attempt"] = joined_hashes(rows["process"][by], number[by])

        given = np.flatnonzero((use == INPUT) & (rows["offset"] != NOWHERE))
        inputs = np.zeros(len(given), GIVEN)
        for name in ("place", "offset", "at"):
            inputs[name] = rows[name][given]
        inputs["group"] = hashed[group[joined[given]]]
        inputs["name"] = name_hashes(inputs["group"], inputs["place"])
        by_name = inputs[np.lexsort((inputs["offset"], inputs["name"]))]
        by_name = by_name[np.unique(by_name["name"], return_index=True)[1]]

        asks, by_group = forms[form[requests]], hashed[group[requests]]
        requesting = np.zeros(len(requests), REQUESTING)
        requesting["client"], requesting["epoch"] = np.concatenate(self.clients), np.concatenate(self.epochs)
        requesting["order"], requesting["at"], requesting["use"] = order[requests], at[requests], asks["use"]
        requesting["pid"] = np.maximum(np.concatenate(self.pids)[requests], -1)
        of_group = (asks["named"] == OF_GROUP) & (group[requests] > _EMPTY)
        requesting["name"] = np.where(of_group, by_group, np.where(asks["named"] > 0, asks["topic"], 0))
        facts = replace(
            self.facts,
            first=int(at.min()),
            events=len(self),
            ordered=bool((order != NOWHERE).all()),
            spans=[_span(at, order)],
            telling=dict(zip(rows["process"][telling].tolist(), rows["at"][telling].tolist(), strict=True)),
            members=_members(rows[given], inputs["group"]),
            first_given={name: (own, place, offset) for name, own, place, offset, _ in by_name.tolist()},
            tacit=set(tacit.tolist()),
        )
        return Told(
            facts,
            rows,
            requesting[~asks["declares"]] if self.facts.declared else requesting,
            self._epochs(requesting),
            _epoch_requests(requesting, asks["gives"]),
            self._refusals(requesting),
            self._offset_steps(requesting, by_group, asks),
            requesting[asks["declares"]],
            self._memberships(requesting, by_group),
            sent,
            inputs,
            asked,
            rows["at"][np.sort(np.concatenate([sends, given, asking]))],
        )

    def _grouped(self, form: Ints, group: Ints, use: NDArray[np.uint8]) -> None:
        """Note the groups that members polled for, and those of requests."""
        forms, groups = self.forms.all, self.groups.texts
        for number in np.unique(group[use == INPUT]).tolist():
            self.facts.groups[text_hash(groups[number])] = groups[number]
        of_requests = (use == REQUEST) & (group != _NO_TEXT)
        for pair in np.unique(form[of_requests] * len(groups) + group[of_requests]).tolist():
            action, _, topic, _, _ = forms[pair // len(groups)]
            self.facts.asked.add(action, topic, groups[pair % len(groups)])

    def _epochs(self, requests: Rows) -> Rows:
        """The producer ids and epochs in requests, and those that answers to ``EndTxn`` give."""
        given, next_pid, next_epoch = _concatenated(self.following)
        own = np.flatnonzero(requests["pid"] >= 0)
        of = np.concatenate([own, given])
        found = np.zeros(len(of), EPOCH)
        for name in ("order", "at", "client"):
            found[name] = requests[name][of]
        found["pid"] = np.concatenate([requests["pid"][own], next_pid])
        found["epoch"] = np.maximum(np.concatenate([requests["epoch"][own], next_epoch]), -1)
        found = found[np.lexsort((found["epoch"], found["client"], found["pid"]))]
        named = found[["pid", "client", "epoch"]]
        first = np.flatnonzero(np.append(True, named[1:] != named[:-1])[: len(of)])
        least: Rows = found[first]
        for name in ("order", "at") if len(of) else ():
            least[name] = np.minimum.reduceat(found[name], first)
        return least

    def _refusals(self, requests: Rows) -> Rows:
        of, of_epoch = _transposed(self.refusals, 2)
        found = np.zeros(len(of), REFUSAL)
        found["of_epoch"] = of_epoch
        for name in ("pid", "epoch", "order", "at"):
            found[name] = requests[name][of]
        of_producers: Rows = found[(found["pid"] >= 0) & (found["epoch"] >= 0)]
        return of_producers

    def _offset_steps(self, requests: Rows, group: Hashes, forms: Rows) -> Rows:
        """The steps of transactions with offsets; arguments: all requests, and the groups and forms of them."""
        of, step, offset = _concatenated(self.steps)
        step[(step == ENDS_IT) & _again(requests["pid"], requests["epoch"], forms["ends"])[of]] = ENDS_AGAIN
        found = np.zeros(len(of), OFFSET_STEP)
        for name in ("pid", "epoch", "order", "at"):
            found[name] = requests[name][of]
        found["step"], found["group"] = step, group[of]
        found["key"] = joined_hashes(name_hashes(group[of], forms["place"][of]), offset)
        with_epoch: Rows = found[found["epoch"] != NOWHERE]
        return with_epoch

    def _memberships(self, requests: Rows, group: Hashes) -> Rows:
        """The steps of members that have an order; arguments: all requests, and their groups."""
        of, process, request, generation, step = _transposed(self.members, 5)
        found = np.zeros(len(of), MEMBERSHIP)
        for name in ("order", "at"):
            found[name] = requests[name][of]
        found["group"], found["generation"], found["step"] = group[of], generation, step
        found["process"], found["request"] = process, request
        with_order: Rows = found[found["order"] != NOWHERE]
        return with_order

    def _keys(self, topic: Hashes) -> Hashes:
        """The hashes of topics and values, shape (n,)."""
        sizes = np.concatenate(self.sizes)
        return key_hashes(np.frombuffer(b"".join(self.texts), np.uint8), np.cumsum(sizes) - sizes, sizes, topic)

    def _integers(self, column: Sequence[int], at: Ints) -> Ints:
        """Numbers, shape of their places; raises :class:`MalformedHistory` at the first one of more than 64 bits."""
        try:
            return np.array(column, np.int64)
        except OverflowError:
            wrong = next(row for row, number in enumerate(column) if not -(1 << 63) <= number < 1 << 63)
            raise MalformedHistory(self.source, int(at[wrong]), "a number of more than 64 bits") from None


def _short(numbers: Sequence[Any]) -> Ints:
    """Numbers of at most 62 bits, :data:`NOWHERE` for a longer one and for what is no number."""
    fits = [number if isinstance(number, int) and abs(number) < NUMBER else NOWHERE for number in numbers]
    return np.array(fits, np.int64)


def _span(at: Ints, order: Ints) -> tuple[int, int, int, bool]:
    """The first place of some events, their least and greatest order, and whether the order rises."""
    return int(at.min()), int(order.min()), int(order.max()), bool((order[1:] >= order[:-1]).all())


def _epoch_requests(requests: Rows, gives: NDArray[np.uint8]) -> Rows:
    """The requests for epochs, and the answers that give them; ``gives``: as in :data:`FORM`."""
    own = np.flatnonzero(gives)
    found = np.zeros(len(own), EPOCH_REQUEST)
    for name in EPOCH.names or ():
        found[name] = requests[name][own]
    found["given"] = gives[own] == 2
    return found


def _again(pid: Ints, epoch: Ints, ends: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The requests that end a transaction when it was asked before, and nothing else since, shape (n,).

    Args:
        pid: the producer id of each request.
        epoch: its epoch.
        ends: 1 for a request to end a transaction, 2 for the answer, 0 for any other.
    """
    again = np.zeros(len(pid), np.bool_)
    own = np.lexsort((epoch, pid))
    same = (pid[own][1:] == pid[own][:-1]) & (epoch[own][1:] == epoch[own][:-1])
    follows = np.append(False, same & (ends[own][1:] > 0) & (ends[own][:-1] > 0))[: len(own)]
    asked = np.flatnonzero(ends[own] == 1)
    row = np.cumsum(~follows)[asked]
    asked_again = asked[1:][row[1:] == row[:-1]]
    again[own[asked_again]] = True
    return again


def _concatenated(parts: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The columns of some rows, from those of one or more parts."""
    return [np.concatenate(own) for own in zip(*parts, strict=True)]


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
