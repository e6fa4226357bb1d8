"""Reading, with the repaired Replay and AfterLoad: a read_committed reader is given exactly the committed records.

That is so whatever batches and markers arrive. A follower of Kafka 4.3 makes its index otherwise (spec/releases.toml):
a reader of it may be given aborted records. One that has loaded a snapshot forgets transactions that ended: a
reader may be given records whose commit marker is not replicated.

The proof runs the actions of ``Consumer`` (appends, failures of the index, replication, elections, expiry, fetches) and
the rules of ``TransactionalPartition`` and ``ReadCommitted`` themselves, symbolically; no rule is written down again.
Some of them go through collections of unbounded length. There the rule itself is run on a few arbitrary elements, and
a law says what that means for all. z3 proves each law for one more element, and a test compares it with the reference
on collections of many:

- ``replay`` is a fold of its steps, as in :mod:`.append`: the lemma *replay* proves one step by running it.
- ``last_stable_offset`` and ``stable_offset_after`` give for a set of transactions what they give for one of them, and
  for each two with that one (lemma *choice of three*); ``after_load``, ``with_replicated`` and ``forgotten`` judge each
  transaction by itself.
- ``collected``: an entry of the index is in a response's list if it is in the list made from it and each earlier entry
  (lemma *list of three*).
- ``passed``: a response's entry is passed on if, for each listed transaction, it is by itself or after some earlier
  entry of the response (lemmas *two transactions*, *three entries*).

Unbounded: the log, the index, producers, open transactions, elections, epochs, and the size of a response. An entry's
offset is its place; ``next_marker(i)`` is the place of the next marker of its producer, and ``opened(p, n)`` that of
the first batch of the transaction that producer p has open after n entries, or -1. The entries after the log's end may
be anything: they are taken to hold a marker of every producer.

Assumed, as in ``TransactionalPartition.tla``: what is below the high watermark is on every replica that may lead; a
response is put together in one step; a reader's next position depends only on what it fetched. Not covered: the
cleaner (TLC: CleanedPartition), and whatever needs fairness.

Spec:  Consumer.tla, TransactionalPartition.tla; TLC checks the same invariant in spec/proofs/ConsumerInduction.tla
KIPs:  98, 890
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import z3
from immutables import Map

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.consumer import READ_COMMITTED, Constants, Consumer
from kafka_eos.machines.machine import Action
from kafka_eos.machines.read_committed import AbortedTransaction, IndexedTransaction
from kafka_eos.machines.transactional_partition import (
    ABORT,
    COMMIT,
    NO_OFFSET,
    PLAIN,
    TRANSACTIONAL,
    LeaderLog,
    LogEntry,
    PartitionProducer,
    UnstableTransaction,
)
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.proofs.induction import Conjunct, Proof, Query, Telling, truth, value
from kafka_eos_checks.proofs.kit import Asking, Terms, conjunct, each_way
from kafka_eos_checks.proofs.symbolic import (
    Condition,
    Number,
    Outcome,
    chosen,
    conjunction,
    disjunction,
    explore,
    merged,
    term_of,
)

KINDS = (TRANSACTIONAL, PLAIN, COMMIT, ABORT)


@cache
def _function(name: str, arity: int = 1) -> Any:
    return z3.Function(name, *[z3.IntSort()] * (arity + 1))


# A log's entries by their place, and what is defined over them.
FIELDS = ("kind", "producer_id", "epoch", "coordinator_epoch", "offset")
KIND, PRODUCER_ID, EPOCH, COORDINATOR_EPOCH, OFFSET = map(_function, FIELDS)
NEXT_MARKER, OPENED = _function("next_marker"), _function("opened", 2)

# The constants of every query: the state, the request, what a negated goal is about, and what a law gives.
LENGTH, WATERMARK, REPLICATED, POSITION, VERSION = z3.Ints("length high_watermark replicated position version")
DELIVERED = z3.Function("delivered", z3.IntSort(), z3.BoolSort())
ASKED = {
    name: z3.Int(f"asked_{name}")
    for name in ("producer_id", "epoch", "kind", "coordinator_epoch", "end_offset", "watermark")
}
ASKED_COMMIT = z3.Bool("asked_commit")
PRODUCER, PLACE, ENTRY, LATER_ENTRY = z3.Ints("producer place entry later_entry")
TRANSACTION = z3.Ints("transaction_producer transaction_first transaction_last")
READS = z3.Ints("read other_read")  # the places of the one arbitrary entry that an iteration over the log yields
WITNESSES = tuple(z3.Ints(f"chosen_producer_{n} chosen_first_{n} chosen_last_{n}") for n in range(3))
CHOICES = z3.Ints("choice_0 choice_1 choice_2")
LAST_FETCHED, DROPPED_BY = z3.Ints("last_fetched dropped_by")
IS_PASSED = z3.Bool("is_passed")
IS_LISTED = z3.Function("is_listed", z3.IntSort(), z3.BoolSort())
SAVED_BY, ENDED_BY = _function("saved_by"), _function("ended_by")

TransactionTerms = tuple[Any, Any, Any]  # a transaction: producer id, first offset, last offset


def is_a_kind(place: Any) -> Any:
    """The entry is a batch or a marker."""
    return z3.And(KIND(place) >= 0, KIND(place) < len(KINDS))


def is_data(place: Any) -> Any:
    """The entry is a batch of a transaction."""
    return KIND(place) == KINDS.index(TRANSACTIONAL)


def is_marker(place: Any) -> Any:
    """The entry is a marker."""
    return KIND(place) >= KINDS.index(COMMIT)


def is_abort(place: Any) -> Any:
    """The entry is the marker of an aborted transaction."""
    return KIND(place) == KINDS.index(ABORT)


# --- a leader's log of any length -----------------------------------------------------------------------------------


class AnyEntry:
    """An entry of the log, at a place. Its kind is a term; a test compares it with ``LogEntry``."""

    def __init__(self, place: Any) -> None:
        terms = (function(place) for function in (PRODUCER_ID, EPOCH, COORDINATOR_EPOCH, OFFSET))
        self.producer_id, self.epoch, self.coordinator_epoch, self.offset = map(Number, terms)
        self.last_offset = self.offset
        self.is_transactional = Condition(is_data(place))
        self.is_marker, self.is_abort_marker = Condition(is_marker(place)), Condition(is_abort(place))


class AnyEntries:
    """The entries of a log: ``length`` of them, and what an action has appended."""

    def __init__(self, length: Any = LENGTH, appended: tuple[LogEntry | AnyEntry, ...] = ()) -> None:
        self.before, self.appended, self.iterations = length, appended, 0

    @property
    def length(self) -> Any:
        """The number of entries."""
        return self.before + len(self.appended) if self.appended else self.before

    def __bool__(self) -> bool:
        return bool(Condition(self.length > 0))

    def __getitem__(self, place: int) -> LogEntry | AnyEntry:
        assert place == -1, "only the last entry is looked up by its place"
        return self.appended[-1] if self.appended else AnyEntry(self.before - 1)

    def __iter__(self) -> Iterator[AnyEntry]:
        read = READS[self.iterations]
        self.iterations += 1
        if Condition(z3.And(read >= 0, read < self.before)):
            yield AnyEntry(read)

    def append(self, entry: LogEntry | AnyEntry) -> "AnyEntries":
        """As ``PVector.append``."""
        return AnyEntries(self.before, (*self.appended, entry))

    def facts(self) -> list[Any]:
        """The facts that the appended entries are at their places."""
        found = []
        for place, given in enumerate(self.appended):
            if isinstance(given, LogEntry):
                at = self.before + place
                found += [KIND(at) == KINDS.index(given.kind), PRODUCER_ID(at) == term_of(given.producer_id)]
                found += [OFFSET(at) == term_of(given.offset)]
        return found


class AnyProducers:
    """A leader's state of any number of producers: functions of the producer id, and what an action has changed."""

    def __init__(self, name: str, changes: tuple[tuple[Any, PartitionProducer], ...] = ()) -> None:
        self.name, self.changes = name, changes

    def terms(self, producer_id: Any) -> dict[str, Any]:
        """The fields of one producer."""
        fields = ("epoch", "coordinator_epoch", "first_offset")
        found = {field: _function(f"{self.name}_{field}")(producer_id) for field in fields}
        for key, producer in self.changes:
            same = producer_id == term_of(key)
            found = {f: z3.If(same, term_of(getattr(producer, f)), term) for f, term in found.items()}
        return found

    def __getitem__(self, producer_id: Any) -> PartitionProducer:
        terms: Any = {field: Number(term) for field, term in self.terms(term_of(producer_id)).items()}
        return PartitionProducer(**terms)

    def set(self, producer_id: Any, producer: PartitionProducer) -> "AnyProducers":
        """As ``Map.set``."""
        return AnyProducers(self.name, (*self.changes, (producer_id, producer)))


class AnyTransactions:
    """A set of any number of transactions: a predicate, and what an action has added, removed or let go."""

    def __init__(self, holds: Callable[[TransactionTerms], Any]) -> None:
        self.holds = holds

    def __or__(self, other: Iterable[UnstableTransaction]) -> "AnyTransactions":
        added = [terms_of(transaction) for transaction in other]
        return AnyTransactions(lambda t: z3.Or(self.holds(t), *(is_same(t, one) for one in added)))

    def __sub__(self, other: Iterable[UnstableTransaction]) -> "AnyTransactions":
        gone = [terms_of(transaction) for transaction in other]
        return AnyTransactions(lambda t: z3.And(self.holds(t), *(z3.Not(is_same(t, one)) for one in gone)))


def terms_of(transaction: UnstableTransaction) -> TransactionTerms:
    """A transaction of the reference, as terms."""
    return term_of(transaction.producer_id), term_of(transaction.first_offset), term_of(transaction.last_offset)


def is_same(one: TransactionTerms, other: TransactionTerms) -> Any:
    """Two transactions are equal."""
    return conjunction([left == right for left, right in zip(one, other, strict=True)])


INDEX_FIELDS = ("producer_id", "first_offset", "last_offset", "last_stable_offset")


class AnyIndex:
    """An index of any length: its entries are functions of their place, and what an action has appended."""

    def __init__(self, name: str, appended: tuple[IndexedTransaction, ...] = ()) -> None:
        self.name, self.appended = name, appended
        self.before = z3.Int(f"{name}_size") if name else z3.IntVal(0)

    @property
    def size(self) -> Any:
        """The number of entries."""
        return self.before + len(self.appended)

    def at(self, place: Any, field: str) -> Any:
        """A field of the entry at a place."""
        found = _function(f"{self.name}_{field}")(place)
        for number, entry in enumerate(self.appended):
            found = z3.If(place == self.before + number, term_of(getattr(entry, field)), found)
        return found

    def entry(self, place: Any) -> IndexedTransaction:
        """The entry at a place, as the reference has it."""
        fields: Any = {field: Number(self.at(place, field)) for field in INDEX_FIELDS}
        return IndexedTransaction(**fields)

    def where(self, marker: Any) -> Any:
        """The place of a marker's entry, if there is one among those before the action."""
        return _function(f"{self.name}_where")(marker)

    def has(self, marker: Any) -> Any:
        """There is an entry for a marker."""
        places = [self.before + number for number in range(len(self.appended))]
        before = z3.And(self.where(marker) >= 0, self.where(marker) < self.before)
        found = [z3.And(before, self.at(self.where(marker), "last_offset") == marker)]
        return z3.Or(*found, *(self.at(place, "last_offset") == marker for place in places))

    def append(self, entry: IndexedTransaction) -> "AnyIndex":
        """As ``PVector.append``."""
        return AnyIndex(self.name, (*self.appended, entry))


def any_log(name: str, length: Any) -> LeaderLog:
    """A log about which nothing is known."""
    sorts = [z3.IntSort()] * 3 + [z3.BoolSort()]
    holds = z3.Function(f"{name}_transaction", *sorts)
    parts: dict[str, Any] = {
        "entries": AnyEntries(length),
        "producers": AnyProducers(name),
        "transactions": AnyTransactions(lambda t: holds(*t)),
        "aborted_index": AnyIndex(f"{name}_index"),
    }
    return LeaderLog(**parts)


class AnyDelivered:
    """The offsets of the records that were passed on to the reader, and those that an action adds."""

    def __init__(self, added: tuple[Any, ...] = ()) -> None:
        self.added = added

    def extend(self, offsets: Iterable[Any]) -> "AnyDelivered":
        """As ``PVector.extend``."""
        return AnyDelivered((*self.added, *offsets))


class Every:
    """A constant set that has every element."""

    def __contains__(self, element: object) -> bool:
        return True


# --- definitions over the log, and lemmas ---------------------------------------------------------------------------


def defined_opened(producer_id: Any, length: Any) -> Any:
    """The definition of ``opened`` for one more entry."""
    before = OPENED(producer_id, length)
    begins = z3.And(is_data(length), before == NO_OFFSET)
    theirs = z3.If(is_marker(length), NO_OFFSET, z3.If(begins, length, before))
    step = z3.If(PRODUCER_ID(length) == producer_id, theirs, before)
    return z3.And(OPENED(producer_id, 0) == NO_OFFSET, z3.Implies(length >= 0, OPENED(producer_id, length + 1) == step))


def next_is_marker(place: Any) -> Any:
    """The definition of ``next_marker``: it is a marker of the producer."""
    found = NEXT_MARKER(place)
    return z3.And(found > place, is_marker(found), PRODUCER_ID(found) == PRODUCER_ID(place))


def next_is_first(place: Any, other: Any) -> Any:
    """The definition of ``next_marker``: no marker of the producer is between."""
    between = z3.And(place < other, other < NEXT_MARKER(place))
    return z3.Implies(between, z3.Not(z3.And(is_marker(other), PRODUCER_ID(other) == PRODUCER_ID(place))))


def opened_is_first(producer_id: Any, length: Any) -> Any:
    """Lemma: the first batch of an open transaction is one of the producer, with no marker after it."""
    first = OPENED(producer_id, length)
    inside = z3.And(first >= 0, first < length, is_data(first), PRODUCER_ID(first) == producer_id)
    return z3.Implies(length >= 0, z3.Or(first == NO_OFFSET, z3.And(inside, NEXT_MARKER(first) >= length)))


def undecided_is_opened(producer_id: Any, length: Any, place: Any) -> Any:
    """Lemma: a batch that no marker has decided belongs to the open transaction."""
    undecided = z3.And(place >= 0, place < length, is_data(place), PRODUCER_ID(place) == producer_id)
    first = OPENED(producer_id, length)
    return z3.Implies(z3.And(undecided, NEXT_MARKER(place) >= length), z3.And(first >= 0, first <= place))


# --- the invariant --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """A state as the invariant sees it: the log's length and stand-ins, offsets, and what was delivered."""

    length: Any
    producers: Any
    transactions: Callable[[TransactionTerms], Any]
    index: AnyIndex
    watermark: Any
    replicated: Any
    position: Any
    delivered: Callable[[Any], Any]

    def first_offset(self, producer_id: Any) -> Any:
        """The first offset of the transaction that the leader knows of a producer."""
        if isinstance(self.producers, AnyProducers):
            return self.producers.terms(producer_id)["first_offset"]
        found = z3.IntVal(NO_OFFSET)
        for key, producer in self.producers.items():
            found = z3.If(producer_id == key, term_of(producer.first_offset), found)
        return found


def view_of_log(log: LeaderLog, watermark: Any, others: View | None = None) -> View:
    """A leader's log as the invariant sees it, with all else as in another view."""
    entries: Any = log.entries
    transactions: Any = log.transactions
    index: Any = log.aborted_index
    if isinstance(transactions, AnyTransactions):
        holds = transactions.holds
    else:
        known = [terms_of(transaction) for transaction in transactions]
        holds = lambda t: disjunction([is_same(t, one) for one in known])  # noqa: E731
    rest = (others.replicated, others.position, others.delivered) if others else (z3.IntVal(0),) * 2 + (DELIVERED,)
    return View(
        entries.length if isinstance(entries, AnyEntries) else z3.IntVal(len(entries)),
        log.producers,
        holds,
        index if isinstance(index, AnyIndex) else AnyIndex("", tuple(index)),
        watermark,
        *rest,
    )


def view_of(state: Consumer) -> View:
    """A state as the invariant sees it."""
    delivered: Any = state.delivered[READ_COMMITTED]
    if isinstance(delivered, AnyDelivered):
        added = [term_of(offset) for offset in delivered.added]
        holds = lambda place: z3.Or(DELIVERED(place), *(place == offset for offset in added))  # noqa: E731
    else:
        holds = lambda place: disjunction([place == offset for offset in delivered])  # noqa: E731
    found = view_of_log(state.log, term_of(state.high_watermark))
    position = term_of(state.positions[READ_COMMITTED])
    return replace(found, replicated=term_of(state.replicated), position=position, delivered=holds)


def in_log(view: View, place: Any) -> Any:
    """A place is one of the log's."""
    return z3.And(place >= 0, place < view.length)


def in_index(view: View, entry: Any) -> Any:
    """A place is one of the index's."""
    return z3.And(entry >= 0, entry < view.index.size)


def is_for_reader(view: View, place: Any) -> Any:
    """The entry is a record that a reader of what is committed has to be given."""
    marker = NEXT_MARKER(place)
    is_committed = z3.And(marker < view.length, KIND(marker) == KINDS.index(COMMIT))
    return z3.Or(KIND(place) == KINDS.index(PLAIN), z3.And(is_data(place), is_committed))


REPLAYED_LOG = any_log("replayed", ASKED["end_offset"])  # what a new leader has made of its entries
INDEX, REPLAYED_INDEX = AnyIndex("log_index"), AnyIndex("replayed_index")

# The terms at which hypotheses, definitions and lemmas are taken.
MARKERS = (
    NEXT_MARKER(PLACE),
    NEXT_MARKER(TRANSACTION[1]),
    *(index.at(ENTRY, "last_offset") for index in (INDEX, REPLAYED_INDEX)),
)
ENTRIES = (
    ENTRY,
    LATER_ENTRY,
    DROPPED_BY,
    ENDED_BY(INDEX.where(NEXT_MARKER(PLACE))),
    *(index.where(marker) for index in (INDEX, REPLAYED_INDEX) for marker in MARKERS[:2]),
)
PRODUCERS = (PRODUCER, ASKED["producer_id"], PRODUCER_ID(PLACE), TRANSACTION[0])
PLACES = (
    PLACE,
    *READS,
    LENGTH - 1,
    LAST_FETCHED,
    NEXT_MARKER(PLACE),
    INDEX.at(DROPPED_BY, "last_offset"),
    INDEX.at(DROPPED_BY, "first_offset"),
    SAVED_BY(INDEX.where(NEXT_MARKER(PLACE))),
    OPENED(PRODUCER_ID(PLACE), NEXT_MARKER(PLACE)),
    OPENED(PRODUCER_ID(PLACE), LENGTH),
    OPENED(PRODUCER, LENGTH),
    OPENED(ASKED["producer_id"], LENGTH),
    TRANSACTION[1],
    *(witness[1] for witness in WITNESSES),
)
NONE = z3.IntVal(NO_OFFSET)
TRANSACTIONS: tuple[Any, ...] = (
    TRANSACTION,
    *((p, OPENED(p, LENGTH), NONE) for p in PRODUCERS[:3]),
    (PRODUCER_ID(PLACE), OPENED(PRODUCER_ID(PLACE), NEXT_MARKER(PLACE)), NEXT_MARKER(PLACE)),
    (PRODUCER_ID(PLACE), OPENED(PRODUCER_ID(PLACE), NEXT_MARKER(PLACE)), NONE),
    *WITNESSES,
)
EACH_PLACE = Terms((PLACE,), tuple((i,) for i in PLACES))
THE_PLACE = Terms((PLACE,), ((PLACE,),))
EACH_ENDED = Terms((PLACE,), ((PLACE,), (NEXT_MARKER(PLACE),)))
EACH_PRODUCER = Terms((PRODUCER,), tuple((p,) for p in PRODUCERS))
EACH_TRANSACTION = Terms((TRANSACTION,), tuple((t,) for t in TRANSACTIONS))
EACH_ENTRY = Terms((ENTRY,), tuple((k,) for k in ENTRIES))
EACH_TWO_ENTRIES = Terms((ENTRY, LATER_ENTRY), tuple(product(ENTRIES, ENTRIES)))
EACH_PRODUCER_AND_ENTRY = Terms((PRODUCER, ENTRY), tuple(product(PRODUCERS, ENTRIES[:3])))


@conjunct(EACH_PLACE)
def offsets_are_places(view: View, i: Any) -> Any:
    """Entries follow each other without holes."""
    return z3.Implies(in_log(view, i), OFFSET(i) == i)


@conjunct(EACH_PRODUCER)
def producers_follow_log(view: View, p: Any) -> Any:
    """The leader knows where each open transaction begins."""
    return view.first_offset(p) == OPENED(p, view.length)


@conjunct(EACH_TRANSACTION)
def unstable_is_undecided(view: View, transaction: TransactionTerms) -> Any:
    """A transaction that holds the last stable offset back is open, or its marker is not replicated or not indexed."""
    producer_id, first, last = transaction
    marker = NEXT_MARKER(first)
    inside = z3.And(in_log(view, first), is_data(first), PRODUCER_ID(first) == producer_id)
    is_open = z3.And(last == NO_OFFSET, first == OPENED(producer_id, view.length))
    unindexed = z3.And(last == NO_OFFSET, is_abort(marker), z3.Not(view.index.has(marker)))
    unreplicated = z3.And(last == marker, marker >= view.watermark)
    is_ended = z3.And(marker < view.length, first == OPENED(producer_id, marker), z3.Or(unindexed, unreplicated))
    return z3.Implies(view.transactions(transaction), z3.And(inside, z3.Or(is_open, is_ended)))


@conjunct(EACH_PRODUCER)
def open_is_unstable(view: View, p: Any) -> Any:
    """Every open transaction holds the last stable offset back."""
    first = OPENED(p, view.length)
    return z3.Implies(first != NO_OFFSET, view.transactions((p, first, z3.IntVal(NO_OFFSET))))


@conjunct(EACH_ENDED)
def ended_is_indexed_and_replicated(view: View, i: Any) -> Any:
    """An ended transaction does too, until its marker is replicated, and in the index if it is an abort."""
    producer_id = PRODUCER_ID(i)
    first = OPENED(producer_id, i)
    ends = z3.And(in_log(view, i), is_marker(i), first != NO_OFFSET)
    held = view.transactions((producer_id, first, z3.IntVal(NO_OFFSET)))
    ended = z3.Or(i < view.watermark, view.transactions((producer_id, first, i)))
    return z3.Implies(ends, z3.Or(held, z3.And(z3.Implies(is_abort(i), view.index.has(i)), ended)))


@conjunct(EACH_ENTRY)
def index_is_of_aborted(view: View, k: Any) -> Any:
    """An entry of the index is of an aborted transaction."""
    producer_id, first, last = (view.index.at(k, field) for field in INDEX_FIELDS[:3])
    of_log = z3.And(in_log(view, last), is_abort(last), PRODUCER_ID(last) == producer_id)
    begins = z3.And(first == OPENED(producer_id, last), first != NO_OFFSET)
    return z3.Implies(in_index(view, k), z3.And(of_log, begins))


@conjunct(EACH_TWO_ENTRIES)
def later_begins_behind_scan(view: View, k: Any, later: Any) -> Any:
    """An entry begins after the last stable offset of every earlier one."""
    ordered = z3.And(k >= 0, k < later, later < view.index.size)
    return z3.Implies(ordered, view.index.at(later, "first_offset") >= view.index.at(k, "last_stable_offset"))


@conjunct(EACH_PRODUCER_AND_ENTRY)
def open_begins_behind_scan(view: View, p: Any, k: Any) -> Any:
    """An open transaction begins after the last stable offset of every entry."""
    first = OPENED(p, view.length)
    known = z3.And(in_index(view, k), first != NO_OFFSET)
    return z3.Implies(known, first >= view.index.at(k, "last_stable_offset"))


@conjunct(EACH_ENTRY)
def scan_ends_in_log(view: View, k: Any) -> Any:
    """The last stable offset of an entry is in the log."""
    return z3.Implies(in_index(view, k), view.index.at(k, "last_stable_offset") <= view.length)


@conjunct()
def watermark_is_replicated(view: View) -> Any:
    """The high watermark is replicated, and that is in the log."""
    return z3.And(view.watermark >= 0, view.watermark <= view.replicated, view.replicated <= view.length)


@conjunct()
def position_is_replicated(view: View) -> Any:
    """The reader is not ahead of what is replicated."""
    return z3.And(view.position >= 0, view.position <= view.replicated)


@conjunct(THE_PLACE)
def read_is_decided(view: View, i: Any) -> Any:
    """Everything that the reader is past was decided by a replicated marker."""
    read = z3.And(i >= 0, i < view.position, is_data(i))
    return z3.Implies(read, NEXT_MARKER(i) < view.replicated)


@conjunct(THE_PLACE)
def delivered_is_committed(view: View, i: Any) -> Any:
    """The reader was given the committed records before its position, and no others."""
    read = z3.And(i >= 0, i < view.position)
    return view.delivered(i) == z3.And(read, is_for_reader(view, i))


INVARIANT = (
    offsets_are_places,
    producers_follow_log,
    unstable_is_undecided,
    open_is_unstable,
    ended_is_indexed_and_replicated,
    index_is_of_aborted,
    later_begins_behind_scan,
    open_begins_behind_scan,
    scan_ends_in_log,
    watermark_is_replicated,
    position_is_replicated,
    read_is_decided,
    delivered_is_committed,
)
OF_LOG = INVARIANT[:9]  # those that a replay has to bring about


@cache
def definitions() -> list[Any]:
    """The definitions and lemmas, and what the constants may be."""
    end = ASKED["end_offset"]
    lengths = (LENGTH, end, PLACE, *MARKERS)
    found = [LENGTH >= 0, z3.Or(VERSION == 1, VERSION == 2), ASKED["watermark"] >= 0, end >= 0]
    found += [is_a_kind(i) for i in (*PLACES, LENGTH)]
    found += [z3.And(ASKED["kind"] >= 0, ASKED["kind"] < 2)]
    found += [index.before >= 0 for index in (INDEX, REPLAYED_INDEX)]
    found += [defined_opened(p, LENGTH) for p in PRODUCERS]
    found += [next_is_marker(i) for i in PLACES]
    found += [next_is_first(i, other) for i, other in product(PLACES, (*PLACES, LENGTH)) if i is not other]
    found += [opened_is_first(p, length) for p in PRODUCERS for length in lengths]
    found += [opened_is_first(INDEX.at(k, "producer_id"), INDEX.at(k, "last_offset")) for k in ENTRIES]
    found += [undecided_is_opened(PRODUCER_ID(i), length, i) for i in (PLACE, TRANSACTION[1]) for length in lengths]
    return [conjunction(found)]  # one formula: z3 takes it up faster than many


@cache
def hypotheses() -> dict[str, list[Any]]:
    """The invariant before, and that of the log that a new leader has made of its entries, where it matters."""
    found = {each.name: each.instances(BEFORE) for each in INVARIANT}
    replayed = view_of_log(REPLAYED_LOG, z3.IntVal(0))
    for each in OF_LOG:
        found[each.name] += each.instances(replayed)
    return {name: [conjunction(formulas)] for name, formulas in found.items()}


# --- laws for collections of any length -----------------------------------------------------------------------------


@dataclass(slots=True)
class Laws:
    """The facts that laws give about the rules that an action has run.

    Attributes:
        facts: the formulas.
        wrong: conditions under which a law cannot be used.
        used: how often ``choice`` was used.
        also: transactions that matter besides ``TRANSACTIONS``.
    """

    facts: list[Any]
    wrong: list[Any]
    used: int = 0
    also: Sequence[TransactionTerms] = ()


_laws = Laws([], [])  # of the action that runs
_ANY: Any = z3.Ints("any_producer any_first any_last")
_OTHER: Any = z3.Ints("another_producer another_first another_last")
_K, _OTHER_K, _J = z3.Ints("any_entry any_other_entry any_place")

Rule = Callable[[frozenset[UnstableTransaction]], Any]


def transaction_of(terms: Iterable[Any]) -> UnstableTransaction:
    """A transaction of the reference, whose fields are terms."""
    producer_id, first, last = map(Number, terms)
    return UnstableTransaction(producer_id=producer_id, first_offset=first, last_offset=last)  # type: ignore[arg-type]


def law_of_choice(found: Any, chosen_one: Any, members: Iterable[tuple[Any, Any]], none: Any, rule: "OfTwo") -> Any:
    """A rule's result for a set is its result for one of its elements, and for that together with any other.

    Args:
        found: the rule's result.
        chosen_one: the element, with the condition that it is in the set.
        members: others, each with its condition.
        none: the result for the empty set.
        rule: the result for two.
    """
    inside, one = chosen_one
    members = list(members)
    empty = conjunction([z3.Not(condition) for condition, _ in (chosen_one, *members)])
    alike = [z3.Implies(condition, rule(one, other) == found) for condition, other in members]
    return z3.Or(z3.And(empty, found == none), z3.And(inside, found == rule(one, one), *alike))


class OfTwo:
    """A rule's result for a set of two transactions, as a term that is made once."""

    def __init__(self, rule: Rule) -> None:
        def of_two() -> Any:
            return rule(frozenset({transaction_of(_ANY), transaction_of(_OTHER)}))

        self.term = term_of(merged(of_two)())

    def __call__(self, one: Iterable[Any], other: Iterable[Any]) -> Any:
        """For two transactions, as terms."""
        return _with(self.term, (*_ANY, *_OTHER), (*one, *other))


def choice(transactions: AnyTransactions, rule: Rule) -> Number:
    """A rule's result for a set of any size, by the law."""
    number, _laws.used = _laws.used, _laws.used + 1
    none = term_of(merged(rule)(frozenset()))
    one = WITNESSES[number]
    members = [(transactions.holds(terms), terms) for terms in (*TRANSACTIONS, *_laws.also)]
    _laws.facts.append(law_of_choice(CHOICES[number], (transactions.holds(one), one), members, none, OfTwo(rule)))
    return Number(CHOICES[number])


def each_by_itself(before: LeaderLog, rule: Callable[[LeaderLog], LeaderLog]) -> LeaderLog:
    """The log after a rule that judges each of its transactions by itself."""

    def stays() -> bool:
        return bool(rule(replace(before, transactions=frozenset({transaction_of(_ANY)}))).transactions)

    kept = term_of(merged(stays)())
    known: Any = before.transactions
    left: Any = AnyTransactions(lambda t: z3.And(known.holds(t), _with(kept, _ANY, t)))
    return replace(rule(replace(before, transactions=frozenset())), transactions=left)


def _with(formula: Any, constants: Iterable[Any], terms: Iterable[Any]) -> Any:
    return z3.substitute(formula, *zip(constants, terms, strict=True))


class Response:
    """The entries of a response: those of the log that ``fetched`` lets through, up to a last one."""

    def __init__(self, lets_through: Callable[[Any], Any], length: Any) -> None:
        self.lets_through, self.length = lets_through, length

    def has(self, place: Any) -> Any:
        """An entry is in the response."""
        return z3.And(place >= 0, place < self.length, place <= LAST_FETCHED, self.lets_through(place))

    def __bool__(self) -> bool:
        return bool(Condition(self.has(LAST_FETCHED)))

    def __getitem__(self, place: int) -> AnyEntry:
        assert place == -1, "only the last entry is looked up by its place"
        return AnyEntry(LAST_FETCHED)


def aborted_at(index: AnyIndex, entry: Any) -> AbortedTransaction:
    """The entry of the index as a response has it."""
    found = index.entry(entry)
    return AbortedTransaction(producer_id=found.producer_id, first_offset=found.first_offset)


def is_collected(machine: Any, state: Any, entries: Sequence[IndexedTransaction], position: Any, upper: Any) -> Any:
    """The last of some entries of the index is in the list that is made from them."""

    def run() -> bool:
        listed = machine.collected(state, entries, position, upper)
        return any(found.first_offset is entries[-1].first_offset for found in listed)

    return term_of(merged(run)())


def passes(machine: Any, state: Any, places: Sequence[Any], aborted: Sequence[AbortedTransaction]) -> Any:
    """The last of some entries is passed on, in a response of them with a list."""

    def run() -> bool:
        entries = [AnyEntry(place) for place in places]
        return any(entry is entries[-1] for entry in machine.passed(state, entries, aborted))

    return term_of(merged(run)())


def law_of_list(index: AnyIndex, alone: Any, pair: Any) -> list[Any]:
    """An entry is listed if it is listed alone, and after every earlier one."""
    found = []
    for k in ENTRIES:
        before = ENDED_BY(k)
        inside = z3.And(k >= 0, k < index.size)
        found.append(z3.Implies(IS_LISTED(k), z3.And(inside, _with(alone, [_K], [k]))))
        left_out = z3.And(before >= 0, before < k, z3.Not(_with(pair, [_OTHER_K, _K], [before, k])))
        excused = z3.Or(z3.Not(_with(alone, [_K], [k])), left_out)
        found.append(z3.Implies(z3.And(inside, z3.Not(IS_LISTED(k))), excused))
    return found


def law_of_passing(response: Response, nothing: Any, alone: Any, pair: Any) -> list[Any]:
    """An entry is passed on if, for each listed transaction, it is passed on alone or after an earlier entry."""
    found = [z3.Implies(IS_PASSED, z3.And(response.has(PLACE), nothing))]
    for k in ENTRIES:
        behind = SAVED_BY(k)
        saved = z3.And(response.has(behind), behind < PLACE, _with(pair, [_J, _K], [behind, k]))
        found.append(z3.Implies(z3.And(IS_PASSED, IS_LISTED(k)), z3.Or(_with(alone, [_K], [k]), saved)))
    earlier = [z3.And(response.has(j), j < PLACE, _with(pair, [_J, _K], [j, DROPPED_BY])) for j in PLACES]
    dropped = z3.And(IS_LISTED(DROPPED_BY), z3.Not(z3.Or(_with(alone, [_K], [DROPPED_BY]), *earlier)))
    not_passed = z3.And(response.has(PLACE), z3.Not(IS_PASSED))
    return [*found, z3.Implies(not_passed, z3.Or(z3.Not(nothing), dropped))]


# --- the machine on terms -------------------------------------------------------------------------------------------


def machine_for(overrides: Mapping[str, str]) -> type[Consumer]:
    """The reference's machine, mutated or not, whose loops of unbounded length are run on a few elements."""
    machine: Any = mutated(Consumer, overrides) if overrides else Consumer

    def last_stable_offset(state: Any) -> Any:
        def rule(transactions: Any) -> Any:
            return machine.last_stable_offset(replace(state, log=replace(state.log, transactions=transactions)))

        return choice(state.log.transactions, rule)

    def stable_offset_after(state: Any, transactions: Any, producer_id: Any, offset: Any) -> Any:
        return choice(transactions, lambda some: machine.stable_offset_after(state, some, producer_id, offset))

    def with_replicated(state: Any, before: LeaderLog, offset: Any) -> LeaderLog:
        return each_by_itself(before, lambda log: machine.with_replicated(state, log, offset))

    def after_load(state: Any, before: LeaderLog) -> LeaderLog:
        return each_by_itself(before, lambda log: machine.after_load(state, log))

    def forgotten(state: Any, before: LeaderLog, producer_id: Any) -> LeaderLog:
        return each_by_itself(before, lambda log: machine.forgotten(state, log, producer_id))

    def replay(state: Any, before: LeaderLog, entries: Iterable[Any]) -> LeaderLog:
        assert before == machine.empty_log(state.constants), "a new leader begins with nothing"
        read = list(entries)
        place = READS[state.log.entries.iterations - 1]
        inside = z3.And(place >= 0, place < ASKED["end_offset"], place < LENGTH)
        _laws.wrong.append(inside != z3.BoolVal(bool(read)))
        return REPLAYED_LOG

    def fetched(state: Any, position: Any, limit: Any, size: int) -> Response:
        def rule() -> bool:
            one = replace(state, log=replace(state.log, entries=[AnyEntry(_J)]))
            return bool(machine.fetched(one, position, limit, size))

        lets_through = term_of(merged(rule)())
        return Response(lambda place: _with(lets_through, [_J], [place]), state.log.entries.length)

    def collected(state: Any, index: AnyIndex, position: Any, upper: Any) -> AnyIndex:
        one, other = index.entry(_K), index.entry(_OTHER_K)
        alone = is_collected(machine, state, [one], position, upper)
        pair = is_collected(machine, state, [other, one], position, upper)
        _laws.facts += law_of_list(index, alone, pair)
        return index

    def passed(state: Any, response: Response, aborted: Any) -> list[AnyEntry]:
        if not isinstance(aborted, AnyIndex):
            assert not aborted, "a list that the rules have not collected is empty"
            _laws.facts += [z3.Not(IS_LISTED(k)) for k in ENTRIES]
        one = aborted_at(INDEX, _K)
        nothing = passes(machine, state, [PLACE], [])
        alone = passes(machine, state, [PLACE], [one])
        pair = passes(machine, state, [_J, PLACE], [one])
        _laws.facts += law_of_passing(response, nothing, alone, pair)
        return [AnyEntry(PLACE)] if Condition(IS_PASSED) else []

    of_transactions = (last_stable_offset, stable_offset_after, after_load, with_replicated, forgotten)
    rules = (*of_transactions, replay, fetched, collected, passed)
    members: dict[str, Any] = {"__slots__": (), **{rule.__name__: rule for rule in rules}}
    found: type[Consumer] = type("UnboundedConsumer", (machine,), members)
    return found


def any_state(machine: type[Consumer]) -> Consumer:
    """A state about which nothing is known."""
    every: Any = Every()
    constants = Constants(
        producer_ids=frozenset(),
        epochs=every,
        max_epoch=2**15 - 1,
        coordinator_epochs=every,
        batch_kinds=every,
        offsets=every,
        transaction_version=Number(VERSION),  # type: ignore[arg-type]
        max_leader_epoch=Number(z3.Int("max_leader_epoch")),  # type: ignore[arg-type]
        index_failures=True,
        expiration=True,
        cleaning=False,
        readers=frozenset({READ_COMMITTED}),
        fetch_sizes=every,
    )
    stand_ins: dict[str, Any] = {
        "log": any_log("log", LENGTH),
        "high_watermark": Number(WATERMARK),
        "replicated": Number(REPLICATED),
        "leader_epoch": Number(z3.Int("leader_epoch")),
        "positions": Map({READ_COMMITTED: Number(POSITION)}),
        "delivered": Map({READ_COMMITTED: AnyDelivered()}),
        "held": Map(),
    }
    return machine(constants=constants, **stand_ins)


BEFORE = view_of(any_state(Consumer))


@dataclass(frozen=True, slots=True)
class Step:
    """The result of an action: the state, the facts of laws, and where a law cannot be used."""

    state: Consumer
    facts: tuple[Any, ...]
    wrong: tuple[Any, ...]


def with_laws(run: Callable[[], Any]) -> Callable[[], Step]:
    """A function with the facts that laws give about its run."""

    def step() -> Step:
        _laws.facts, _laws.wrong, _laws.used = [], [], 0
        state = run()
        return Step(state, tuple(_laws.facts), tuple(_laws.wrong))

    return step


_ARGUMENTS = {"ProducerIds": "producer_id", "Epochs": "epoch", "CoordinatorEpochs": "coordinator_epoch"}


def arguments_of(act: Action) -> list[Any]:
    """The arguments of an action, of any value."""
    found: list[Any] = []
    offsets = iter(("end_offset", "watermark"))
    for domain in act.domains:
        if domain == "BOOLEAN":
            found.append(bool(Condition(ASKED_COMMIT)))
        elif domain == "BatchKinds":
            found.append(chosen(ASKED["kind"], KINDS[:2]))
        elif domain == "Offsets":
            found.append(Number(ASKED[next(offsets)]))
        else:
            found.append(1 if domain == "FetchSizes" else Number(ASKED[_ARGUMENTS[domain]]))
    return found


def run_action(machine: type[Consumer], act: Action) -> list[Outcome]:
    """Every way through an action of the reference, from any state, for any request."""
    run = with_laws(lambda: getattr(any_state(machine), act.method)(*arguments_of(act)))
    kinds = [is_a_kind(i) for i in (PLACE, *READS, LENGTH - 1, LAST_FETCHED, _J)]
    found = explore(run, [*kinds, ASKED["kind"] >= 0, ASKED["kind"] < 2, LENGTH >= 0])
    return [outcome for outcome in found if not isinstance(outcome.error, NotEnabled | Rejected)]


def taken(outcome: Outcome) -> Any:
    """The action goes this way."""
    if outcome.error is not None:
        return outcome.condition
    entries: Any = outcome.value.state.log.entries
    facts = entries.facts() if isinstance(entries, AnyEntries) else []
    return z3.And(outcome.condition, *facts, *outcome.value.facts)


def broken(outcome: Outcome, holds: Callable[[View], Any]) -> Any:
    """The action goes this way, and afterwards something is false."""
    if outcome.error is not None:
        return outcome.condition
    wrong = [outcome.crashed, *outcome.value.wrong, z3.Not(holds(view_of(outcome.value.state)))]
    return z3.And(taken(outcome), z3.Or(*wrong))


def initiation(machine: type[Consumer]) -> Iterator[Query]:
    """The initial state has each conjunct."""
    view = view_of(machine.initial(any_state(machine).constants))
    return ASKING.initiation(view, facts=[OPENED(PRODUCER, 0) == NO_OFFSET])


# --- lemmas ---------------------------------------------------------------------------------------------------------


def lemmas(machine: type[Consumer], overrides: Mapping[str, str]) -> Iterator[Query]:
    """The lemmas that follow from the definitions, by induction over the length of a log, and steps of a replay."""
    yield from _of_definitions()
    yield from of_replay(machine, 0, "replay of nothing")
    yield from of_replay(machine, 1, "replay")
    if "Replay" in overrides:
        yield from of_replay(machine, 3, "replay of three at once", FETCHED_AT_ONCE)


def _of_definitions() -> Iterator[Query]:
    for name, says, lemma in (
        ("OpenedIsFirst", "No marker follows the first batch of an open transaction.", opened_is_first),
        (
            "UndecidedIsOpened",
            "An undecided batch belongs to an open transaction.",
            lambda p, n: undecided_is_opened(p, n, PLACE),
        ),
    ):
        goal = Conjunct(name=name, says=says)
        base = [defined_opened(PRODUCER, z3.IntVal(0)), next_is_marker(PLACE)]
        first = OPENED(PRODUCER, LENGTH)
        more = [
            LENGTH >= 0,
            defined_opened(PRODUCER, LENGTH),
            lemma(PRODUCER, LENGTH),
            opened_is_first(PRODUCER, LENGTH),
        ]
        more += [next_is_marker(i) for i in (PLACE, LENGTH, first)]
        more += [next_is_first(i, j) for i, j in ((PLACE, LENGTH), (first, LENGTH))]
        for step, facts, length in (("no entry", base, z3.IntVal(0)), ("one entry more", more, LENGTH + 1)):
            negated = z3.Not(lemma(PRODUCER, length))
            yield ASKING.query("lemma", step, goal, negated, known={}, facts=facts)


def _law(name: str, says: str, facts: Sequence[Any], law: Any) -> Query:
    goal = Conjunct(name="Law", says=says)
    return ASKING.query("lemma", name, goal, z3.Not(law), known={}, facts=facts)


def of_laws(machine: type[Consumer]) -> Iterator[Query]:
    """Each law for one more element than it is used with."""
    rules_of: Any = machine.__mro__[1]
    state = any_state(rules_of)
    kinds = [is_a_kind(i) for i in z3.Ints("law_0 law_1 law_2")]
    some = [tuple(z3.Ints(f"some_producer_{n} some_first_{n} some_last_{n}")) for n in range(3)]
    upper, position = z3.Ints("law_upper law_position")
    rules: tuple[tuple[str, Rule], ...] = (
        (
            "last_stable_offset",
            lambda t: rules_of.last_stable_offset(replace(state, log=replace(state.log, transactions=t))),
        ),
        ("stable_offset_after", lambda t: rules_of.stable_offset_after(state, t, Number(PRODUCER), Number(PLACE))),
    )
    for name, rule in rules:
        none = term_of(merged(rule)(frozenset()))
        found = term_of(merged(lambda rule=rule: rule(frozenset(map(transaction_of, some))))())
        members = [(z3.BoolVal(True), terms) for terms in some]
        law = disjunction([law_of_choice(found, one, members, none, OfTwo(rule)) for one in members])
        yield _law(
            "choice of three", f"What {name} gives for three is what it gives for one, and each two with it.", [], law
        )

    index = AnyIndex("law_index")
    entries = [index.entry(z3.IntVal(n)) for n in range(3)]

    def of(*numbers: int) -> Any:
        return is_collected(rules_of, state, [entries[k] for k in numbers], Number(position), Number(upper))

    says = "An entry is listed if it is after each earlier entry."
    yield _law("list of three", says, [], of(0, 1, 2) == z3.And(of(0, 2), of(1, 2)))

    one, other = (aborted_at(index, z3.IntVal(n)) for n in range(2))
    places = z3.Ints("law_0 law_1 law_2")
    facts = [*kinds, places[0] < places[1], places[1] < places[2], *(OFFSET(i) == i for i in places)]

    def passed(numbers: Sequence[int], aborted: Sequence[AbortedTransaction]) -> Any:
        return passes(rules_of, state, [places[k] for k in numbers], aborted)

    two = passed((0, 2), [one, other]) == z3.And(passed((0, 2), [one]), passed((0, 2), [other]))
    yield _law("two transactions", "An entry is passed on if it is for each listed transaction.", facts, two)
    three = passed((0, 1, 2), [one]) == z3.Or(*(passed(n, [one]) for n in ((2,), (0, 2), (1, 2))))
    says = "An entry is passed on if it is by itself, or after one of the earlier entries."
    yield _law("three entries", says, facts, three)


FETCHED_AT_ONCE = (ABORT, TRANSACTIONAL, TRANSACTIONAL)


def of_replay(
    machine: type[Consumer], count: int, step: str, kinds: Sequence[str] = (), kind: str = "lemma"
) -> Iterator[Query]:
    """A replay of some entries leads from a log that has the invariant to one that has it.

    Args:
        machine: the machine that has the replay.
        count: the number of entries after the log.
        step: a name for it.
        kinds: the entries' kinds; any for none.
        kind: the query's kind.
    """
    rule: Any = machine.__mro__[1]
    at = [LENGTH + n for n in range(count)]
    assumed = [KIND(place) == KINDS.index(name) for place, name in zip(at, kinds, strict=bool(kinds))]
    assumed += [z3.And(LENGTH >= 0, *(is_a_kind(i) for i in at))]
    start = any_log("log", LENGTH) if count else rule.empty_log(any_state(machine).constants)

    def run() -> Consumer:
        state = any_state(machine)
        return replace(state, log=rule.replay(state, start, [AnyEntry(place) for place in at]))

    ids = [PRODUCER_ID(place) for place in at]
    _laws.also = [(p, first, NONE) for p in (PRODUCER, *ids) for first in (*at, OPENED(p, LENGTH))]
    outcomes = explore(with_laws(run), assumed)
    _laws.also = ()
    facts = [*definitions(), *assumed, *(OFFSET(place) == place for place in at), OPENED(PRODUCER, 0) == NO_OFFSET]
    facts += [defined_opened(p, place) for p in (*PRODUCERS, *ids) for place in at]
    facts += [opened_is_first(p, LENGTH + n) for p in (*PRODUCERS, *ids) for n in range(count)]
    facts += [next_is_first(i, place) for i in (*PLACES, *at) for place in at if i is not place]
    facts += [next_is_marker(place) for place in at]
    known = hypotheses()
    for each in OF_LOG:
        extra: list[tuple[Any, ...]] = []
        if each.terms is EACH_PRODUCER:
            extra = [(p,) for p in ids]
        elif each.terms is EACH_PRODUCER_AND_ENTRY:
            extra = list(product(ids, ENTRIES[:2]))
        known[each.name] = [*known[each.name], *(each(BEFORE, *terms) for terms in extra)]
    for each in OF_LOG:
        wrong = []
        for outcome in outcomes:
            if outcome.error is not None:
                wrong.append(outcome.condition)
            else:
                view = view_of_log(outcome.value.state.log, WATERMARK, BEFORE)
                wrong.append(z3.And(taken(outcome), z3.Not(each.holds(view))))
        given = known if count else {}
        yield ASKING.query(kind, step, each.conjunct, disjunction(wrong), outcomes, known=given, facts=facts)


# --- properties -----------------------------------------------------------------------------------------------------


def is_decided(view: View, place: Any) -> Any:
    """A batch is decided by a replicated marker, which is in the index if it aborts."""
    marker = NEXT_MARKER(place)
    return z3.And(marker < view.watermark, z3.Implies(is_abort(marker), view.index.has(marker)))


def _is_undecided(place: Any) -> Any:
    return z3.And(in_log(BEFORE, place), is_data(place), z3.Not(is_decided(BEFORE, place)))


@conjunct()
def stable_is_decided(stable: Any) -> Any:
    """Nothing below the last stable offset is undecided."""
    return z3.Implies(_is_undecided(PLACE), stable <= PLACE)


@conjunct()
def stable_offset_follows_log(stable: Any) -> Any:
    """The last stable offset is the high watermark, or the offset of an undecided batch."""
    return z3.Or(stable == WATERMARK, z3.Implies(stable == PLACE, _is_undecided(PLACE)))


@conjunct()
def aborted_are_indexed(stable: Any) -> Any:
    """Whatever is aborted below the last stable offset is in the index, from its first batch on."""
    marker = NEXT_MARKER(PLACE)
    aborted = z3.And(in_log(BEFORE, PLACE), stable > PLACE, is_data(PLACE), is_abort(marker))
    begins = INDEX.at(INDEX.where(marker), "first_offset")
    return z3.Implies(aborted, z3.And(INDEX.has(marker), begins <= PLACE))


OF_STABLE_OFFSET = (stable_is_decided, stable_offset_follows_log, aborted_are_indexed)
FATE_IS_FINAL = Conjunct(name="FateIsFinal", says="What is below the last stable offset stays, as it was decided.")


def of_stable_offset(machine: type[Consumer]) -> Iterator[Query]:
    """The last stable offset is that of the first undecided batch, or the high watermark."""
    for goal in OF_STABLE_OFFSET:
        wrong = [z3.And(taken, z3.Not(goal(stable))) for taken, stable in _stable_offsets(machine)]
        yield ASKING.query("safety", goal.name, goal.conjunct, disjunction(wrong))


def _stable_offsets(machine: type[Consumer]) -> list[tuple[Any, Any]]:
    """The possible last stable offsets before an action, each with its condition."""
    outcomes = explore(with_laws(lambda: any_state(machine).last_stable_offset()), [LENGTH >= 0])
    return [(z3.And(o.condition, *o.value.facts), term_of(o.value.state)) for o in outcomes]


def fate_is_final(machine: type[Consumer], runs: Mapping[Action, Sequence[Outcome]]) -> Iterator[Query]:
    """See ``FATE_IS_FINAL``; for each action, with the last stable offset before it."""

    def stays(view: View) -> Any:
        if view.length.eq(ASKED["end_offset"]):  # only an election takes entries away
            return z3.And(view.length > PLACE, z3.Implies(is_data(PLACE), NEXT_MARKER(PLACE) < view.length))
        return view.length >= LENGTH

    stable = disjunction([z3.And(taken, offset > PLACE) for taken, offset in _stable_offsets(machine)])
    before = z3.And(in_log(BEFORE, PLACE), stable)
    for act, outcomes in runs.items():
        wrong = disjunction([broken(outcome, stays) for outcome in outcomes])
        yield ASKING.query("safety", FATE_IS_FINAL.name, FATE_IS_FINAL, z3.And(before, wrong), outcomes, act)


def _is_given(view: View) -> Any:
    return z3.And(view.delivered(PLACE), z3.Not(BEFORE.delivered(PLACE)))


@conjunct()
def no_aborted_is_delivered(view: View) -> Any:
    """No aborted record is given to the reader."""
    return z3.Implies(z3.And(_is_given(view), is_data(PLACE)), z3.Not(is_abort(NEXT_MARKER(PLACE))))


@conjunct()
def no_undecided_is_delivered(view: View) -> Any:
    """No record is given to the reader before its marker is replicated."""
    return z3.Implies(z3.And(_is_given(view), is_data(PLACE)), NEXT_MARKER(PLACE) < WATERMARK)


@conjunct()
def no_marker_is_delivered(view: View) -> Any:
    """No marker is given to the reader."""
    return z3.Implies(_is_given(view), z3.Not(is_marker(PLACE)))


@conjunct()
def nothing_is_skipped(view: View) -> Any:
    """Every committed record that the reader passes is given to it."""
    passed = z3.And(PLACE >= POSITION, view.position > PLACE)
    return z3.Implies(z3.And(passed, is_for_reader(view, PLACE)), _is_given(view))


@conjunct()
def delivered_once_in_order(view: View) -> Any:
    """A record that is given to it was not given before, and is after all that were."""
    is_behind = z3.Implies(_is_given(view), PLACE >= POSITION)
    return z3.And(is_behind, z3.Implies(PLACE >= POSITION, z3.Not(BEFORE.delivered(PLACE))))


@conjunct()
def positions_only_grow(view: View) -> Any:
    """The reader's position never goes back."""
    return view.position > POSITION


OF_DELIVERIES = (
    no_aborted_is_delivered,
    no_undecided_is_delivered,
    no_marker_is_delivered,
    nothing_is_skipped,
    delivered_once_in_order,
    positions_only_grow,
)


def of_deliveries(runs: Mapping[Action, Sequence[Outcome]]) -> Iterator[Query]:
    """The queries about what a fetch gives to the reader."""
    act, outcomes = next((act, outcomes) for act, outcomes in runs.items() if act.name == "FetchCommitted")
    for goal in OF_DELIVERIES:
        wrong = disjunction([broken(o, goal) for o in outcomes])
        yield ASKING.query("safety", goal.name, goal.conjunct, wrong, outcomes, act)


# --- a solution as text ---------------------------------------------------------------------------------------------

READABLE = (
    LENGTH <= 6,
    *(z3.And(term >= 0, term <= 3) for term in (PRODUCER_ID(PLACE), ASKED["producer_id"], PRODUCER)),
    *(z3.And(i >= 0, i <= 9) for i in (NEXT_MARKER(PLACE), PLACE)),
)


def _asked(model: Any, act: Action | None) -> list[str]:
    if act is None:
        return []
    names = {"Offsets": ("end_offset", "watermark"), "BOOLEAN": ("commit",), "BatchKinds": ("kind",)}
    wanted = [
        name for domain in dict.fromkeys(act.domains) for name in names.get(domain, (_ARGUMENTS.get(domain, ""),))
    ]
    texts = {name: str(value(model, term)) for name, term in ASKED.items()}
    texts["commit"] = "commit" if truth(model, ASKED_COMMIT) else "abort"
    texts["kind"] = KINDS[value(model, ASKED["kind"])]
    return [f"action: {act.name}({', '.join(f'{name} {texts[name]}' for name in wanted if name)})"]


def _state(model: Any, view: View) -> list[str]:
    length = value(model, view.length)
    marks = {value(model, term): name for term, name in ((view.watermark, "high watermark"), (view.position, "reader"))}
    lines = [f"  log: {length} entries, replicated to {value(model, view.replicated)}"]
    for place in range(min(length, 9)):
        at = z3.IntVal(place)
        kind = KINDS[min(max(value(model, KIND(at)), 0), 3)]
        given = ", was given to the reader" if truth(model, view.delivered(at)) else ""
        mark = f"   <- {marks[place]}" if place in marks else ""
        lines.append(f"    {place}: {kind} of producer {value(model, PRODUCER_ID(at))}{given}{mark}")
    lines += [f"  {name} {offset}" for offset, name in marks.items() if not 0 <= offset < min(length, 9)]
    unstable = [t for t in TRANSACTIONS if truth(model, view.transactions(t))]
    texts = dict.fromkeys(tuple(value(model, term) for term in t) for t in unstable)
    for producer_id, first, last in texts:
        end = "open" if last == NO_OFFSET else f"ended at {last}"
        lines.append(f"  holds the last stable offset back: producer {producer_id} from {first}, {end}")
    for place in range(min(value(model, view.index.size), 5)):
        fields = {field: value(model, view.index.at(z3.IntVal(place), field)) for field in INDEX_FIELDS}
        if not 0 <= fields["last_offset"] < length:
            continue  # the query says nothing of this one
        lines.append(
            f"  index: {', '.join(f'{name.replace(chr(95), chr(32))} {number}' for name, number in fields.items())}"
        )
    return lines


def _view_after(outcome: Outcome) -> View:
    return view_of(outcome.value.state)


TELLING = Telling(before=BEFORE, after=_view_after, state=_state, asked=_asked)
ASKING = Asking(
    invariant=INVARIANT,
    hypotheses=hypotheses,
    facts=lambda act: definitions(),  # noqa: ARG005 - the same for each action
    telling=TELLING,
    readable=READABLE,
    run=run_action,
    broken=each_way(lambda outcome, goal: broken(outcome, goal.holds)),
    taken=taken,
    never=frozenset({"Clean", "FetchAndHold", "FetchUncommitted"}),
)


# --- the proof ------------------------------------------------------------------------------------------------------

MENDED = {"Replay": "AppendedAtOnce", "StableOffsetAfter": "OwnNextCounts"}


def queries(overrides: Mapping[str, str]) -> Iterator[Query]:
    """All queries, with some rules replaced by mutants or none."""
    machine = machine_for(overrides)
    yield from lemmas(machine, overrides)
    yield from initiation(machine)
    runs: dict[Action, Sequence[Outcome]] = {}
    yield from ASKING.of_actions(machine, runs)
    yield from of_stable_offset(machine)
    yield from fate_is_final(machine, runs)
    yield from of_deliveries(runs)
    yield from of_laws(machine)
    if not overrides:
        yield from _as_in_kafka()


def _as_in_kafka() -> Iterator[Query]:
    """A follower has to take in one entry after the other, or to use the mended rule for entries of the index."""
    shipped = machine_for({"Replay": "AppendedAtOnce"})
    asked = of_replay(shipped, 3, "AppendedAtOnce", FETCHED_AT_ONCE, "limit")
    [limit] = (found for found in asked if found.goal.name == "OpenBeginsBehindScan")
    start = [LENGTH == 1, is_data(0), PRODUCER_ID(0) == PRODUCER, OFFSET(0) == 0, INDEX.before == 0, WATERMARK == 0]
    start += [REPLICATED == 0, POSITION == 0, PRODUCER == 1, PRODUCER_ID(LENGTH + 2) == 2]
    start += [defined_opened(p, z3.IntVal(0)) for p in (*PRODUCERS, *(PRODUCER_ID(LENGTH + n) for n in range(3)))]
    yield replace(limit, facts=[*limit.facts, *start])  # in the smallest log
    mended = machine_for(MENDED)
    for count in (1, 2):
        yield from of_replay(mended, count, f"AppendedAtOnceMended, {count} at once")
    yield from of_replay(mended, 3, "AppendedAtOnceMended, 3 at once", FETCHED_AT_ONCE)


PROOF = Proof(
    name="reading",
    module="Consumer",
    rests_on=("Replay", "AfterLoad"),
    title="a read_committed reader is given exactly the committed records, for any interleaving, log and response",
    conjuncts=tuple(each.conjunct for each in INVARIANT),
    properties=(FATE_IS_FINAL, *(each.conjunct for each in (*OF_STABLE_OFFSET, *OF_DELIVERIES))),
    queries=queries,
    claims=("C25",),
)
