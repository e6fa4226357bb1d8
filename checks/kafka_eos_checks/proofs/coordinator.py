"""The coordinator, with the repaired MayAct and InLog: a decision is final, markers and answers agree with it.

No epoch is handed out twice either. A coordinator of Kafka 4.3 acts on what it has loaded before that is replicated
(spec/releases.toml); there a decision may be lost. The log of Kafka 3.9 does not keep the next producer id.

The proof runs the actions of ``TransactionCoordinator`` and the methods of ``Rules`` themselves, symbolically; no rule
is written down again. One method stands for a sequence of unbounded length: ``unreplicated`` gives the tail followed by
the record on its way, as a stand-in whose slices are terms; a test compares the two on the reference.

Unbounded: requests, transactions, epochs (for every largest epoch from 2 on), producer ids, partitions, faults, and the
records that were given up and may be replicated or lost with a failover. The transaction versions are {1}, or {1, 2}.
A record's state is chosen where the code looks at it. The tail's records are functions of their place. The decisions
that anybody has seen, by a marker or an answer, are a predicate, to which an action may add.

Assumed, as in ``TransactionCoordinator.tla``: producer ids are handed out once; no client registers a partition, or
ends a transaction, with epoch -1; an append of a coordinator that has been replaced fails; requests are handled one at
a time. Not covered: that completion waits for the markers of all partitions (TLC: PrepareThenMarkersThenComplete),
and whatever needs fairness.

Spec:  TransactionCoordinator.tla; TLC checks the same invariant in spec/proofs/CoordinatorInduction.tla
KIPs:  98, 360, 588, 890
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import z3

from kafka_eos.errors import ErrorCode, NotEnabled
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.machines.machine import Action
from kafka_eos.machines.transaction_coordinator import (
    ADD,
    COMPLETE,
    COMPLETED,
    DEAD,
    EMPTY,
    END,
    EXPIRY,
    FENCE,
    INIT,
    INIT_FENCES,
    NOTHING,
    ONGOING,
    PREPARED,
    TIMEOUT,
    Constants,
    Given,
    Identity,
    TransactionCoordinator,
    TransactionMetadata,
)
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.proofs.induction import Proof, Query, Telling, truth, value
from kafka_eos_checks.proofs.kit import Asking, Clause, Terms, conjunct, of_properties
from kafka_eos_checks.proofs.symbolic import Condition, Number, Outcome, chosen, disjunction, explore, merged, term_of

# Guards that return a truth value or a number: their ways are merged into one term.
MERGED = (
    "is_exhausted",
    "is_retry_of_init",
    "is_valid_producer_id",
    "is_retry_of_last_epoch",
    "is_retry_of_end",
    "is_epoch_to_end",
    "needs_next_producer_id",
    "fencing_epoch",
)
STATES = tuple(TransactionState)
REQUESTS = (NOTHING, INIT, ADD, END, INIT_FENCES, TIMEOUT, COMPLETE, EXPIRY)
FENCINGS = (NOTHING, INIT, TIMEOUT)
NO_STATE = z3.IntVal(-1)
FAULTS = frozenset({"append times out", "failover", "timeout", "expiry", "no leader"})

# The constants of every query: the model's, the tail's ends, the request, and what a negated goal is about.
MAX_EPOCH, SERVER, MAX_FAULTS = z3.Ints("max_epoch server_version max_faults")
START, STOP, PLACE, KEPT = z3.Ints("tail_start tail_stop place kept")
ASKED = {name: z3.Int(f"asked_{name}") for name in ("producer_id", "epoch", "partition", "version")}
ASKED_COMMIT = z3.Bool("asked_commit")
LOADING = z3.Bool("loading")
FENCING, REQUEST, FAULTS_SO_FAR, ALLOCATED = z3.Ints("fencing request faults allocated")
ONE, OTHER = ((z3.Int(f"{name}_number"), z3.Bool(f"{name}_commit")) for name in ("one", "other"))  # what was noted
NOTED = z3.Function("noted", z3.IntSort(), z3.BoolSort(), z3.BoolSort())

SETS = z3.ArraySort(z3.IntSort(), z3.BoolSort())
NO_PARTITIONS = z3.K(z3.IntSort(), z3.BoolVal(False))


def one_of(term: Any, states: Sequence[TransactionState]) -> Any:
    """A state's term is one of some states."""
    return z3.Or(*(term == int(state) for state in states))


# --- a record as terms --------------------------------------------------------------------------------------------

SORTS = {field.name: z3.IntSort() for field in fields(TransactionMetadata)}
SORTS |= {"failed_fence": z3.BoolSort(), "partitions": SETS}


@dataclass(frozen=True, slots=True)
class RecordTerms:
    """The coordinator's metadata of a transactional.id, as terms: field -> term."""

    of: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.of[name]


@cache
def any_terms(name: str) -> RecordTerms:
    """A record about which nothing is known."""
    return RecordTerms({field: z3.Const(f"{name}_{field}", sort) for field, sort in SORTS.items()})


_AT = {field: z3.Function(f"tail_{field}", z3.IntSort(), sort) for field, sort in SORTS.items()}


@cache
def tail_terms(place: Any) -> RecordTerms:
    """The record at a place of the tail, before the action."""
    return RecordTerms({field: function(place) for field, function in _AT.items()})


def set_term(value: Any) -> Any:
    """The term of a set of partitions."""
    if isinstance(value, AnyPartitions):
        return value.term
    term = NO_PARTITIONS
    for partition in value:
        term = z3.Store(term, term_of(partition), True)
    return term


def field_term(name: str, value: Any) -> Any:
    """The term of a record's field."""
    if name == "pending":
        return NO_STATE if value is None else z3.IntVal(int(value))
    return set_term(value) if name == "partitions" else term_of(value)


def terms_of(record: Any) -> RecordTerms:
    """A record of the reference, as terms."""
    if type(record) is AnyRecord:
        return record.terms
    return RecordTerms({name: field_term(name, getattr(record, name)) for name in SORTS})


def either(condition: Any, yes: RecordTerms, no: RecordTerms) -> RecordTerms:
    """The first of two records if a condition holds, otherwise the second."""
    return RecordTerms({field: z3.If(condition, yes[field], no[field]) for field in SORTS})


class AnyPartitions:
    """A set of any number of partitions."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, term: Any) -> None:
        self.term = term

    def __contains__(self, partition: Any) -> bool:
        return bool(Condition(z3.Select(self.term, term_of(partition))))

    def __bool__(self) -> bool:
        return bool(Condition(self.term != NO_PARTITIONS))

    def __eq__(self, other: object) -> Any:
        return Condition(self.term == set_term(other))

    def __or__(self, other: Any) -> "AnyPartitions":
        term = self.term
        for partition in other:
            term = z3.Store(term, term_of(partition), True)
        return AnyPartitions(term)

    def __sub__(self, other: Any) -> "AnyPartitions":
        term = self.term
        for partition in other:
            term = z3.Store(term, term_of(partition), False)
        return AnyPartitions(term)


class AnyRecord:
    """A ``TransactionMetadata`` whose fields are terms; its states are chosen where the code looks at them.

    ``dataclasses.replace`` calls an instance's class with the changes and with all other fields; here it calls
    :meth:`changed` with only the changes, so that no state is chosen that nobody looks at.
    """

    __dataclass_fields__: Mapping[str, Any] = {}

    def __init__(self, terms: RecordTerms) -> None:
        self.terms = terms

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.changed

    def changed(self, **changes: Any) -> "AnyRecord":
        """The same record with other values of some fields."""
        return AnyRecord(RecordTerms({**self.terms.of, **{n: field_term(n, value) for n, value in changes.items()}}))

    def __getattr__(self, name: str) -> Any:
        if name not in SORTS:
            raise AttributeError(name)
        term = self.terms[name]
        if name == "state":
            return chosen(term, STATES)
        if name == "pending":
            return None if Condition(term == NO_STATE) else chosen(term, STATES)
        if name == "partitions":
            return AnyPartitions(term)
        return Condition(term) if name == "failed_fence" else Number(term)


class AnyAppending:
    """An ``Appending`` of any request, or with a request that the code has put in its place."""

    __dataclass_fields__: Mapping[str, Any] = {}

    def __init__(self, request: str | None = None) -> None:
        self.given = request
        self.asked = Identity(producer_id=Number(z3.Int("appending_id")), epoch=Number(z3.Int("appending_epoch")))  # type: ignore[arg-type]
        self.record = AnyRecord(any_terms("appending"))

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return AnyAppending  # called by dataclasses.replace, with only the changes

    @property
    def request(self) -> str:
        """The request that it is for."""
        return self.given or str(chosen(REQUEST, REQUESTS))


class AnyFencing:
    """The party that waits for the second half of a fence."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Any:
        return Condition(FENCINGS.index(str(other)) == FENCING)

    def __ne__(self, other: object) -> Any:
        return Condition(FENCINGS.index(str(other)) != FENCING)


class AnyVersions:
    """The transaction versions of requests: 1, and 2 if that is the server's."""

    def __contains__(self, version: int) -> bool:
        return bool(Condition(version <= SERVER))


class AnyHistory:
    """The history so far, and the entries that an action adds."""

    def __init__(self, added: tuple[Any, ...] = ()) -> None:
        self.added = added

    def __or__(self, other: Any) -> "AnyHistory":
        return AnyHistory((*self.added, *other))


# --- the records that are not replicated ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """Some places of the tail, without its first one, in a sequence that the reference has made of it."""

    start: Any
    stop: Any


class AnyTail:
    """Any number of records, from one place to another, and perhaps one more after the ``STOP`` of all.

    An iteration gives its first record and a :class:`Segment` that stands for all others.
    """

    def __init__(self, start: Any, stop: Any, behind: Any = None) -> None:
        self.start, self.stop, self.behind = start, stop, behind

    def at(self, place: Any) -> RecordTerms:
        """The record at a place."""
        if self.behind is None:
            return tail_terms(place)
        return either(place == STOP, terms_of(self.behind), tail_terms(place))

    def __bool__(self) -> bool:
        return bool(Condition(self.stop > self.start))

    def __iter__(self) -> Iterator[Any]:
        if self:
            yield AnyRecord(self.at(self.start))
            if Condition(self.stop > self.start + 1):
                yield Segment(self.start + 1, self.stop)

    def __len__(self) -> int:
        return 0  # Python wants a number here; a comparison with AnyKept gives a term

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return AnyTail(self.start, self.start + KEPT, self.behind)
        assert key == -1, "only the last record is looked up by its place"
        return AnyRecord(self.at(self.stop - 1))


class AnyKept:
    """The number of unreplicated records that a new coordinator has."""

    def __init__(self, unreplicated: Callable[[], AnyTail]) -> None:
        self.unreplicated = unreplicated

    def __le__(self, other: object) -> Any:
        found = self.unreplicated()
        return Condition(z3.And(KEPT >= 0, found.stop - found.start >= KEPT))


@dataclass(frozen=True, slots=True)
class TailView:
    """A tail as the invariant sees it: its ends, and the record at each place."""

    start: Any
    stop: Any
    at: Callable[[Any], RecordTerms]


def tail_view(tail: Any) -> TailView:
    """The view of the reference's tail: a stand-in, or a sequence of records with at most one segment."""
    if isinstance(tail, AnyTail):
        return TailView(tail.start, tail.stop, tail.at)
    parts = list(tail)
    segment = next((part for part in parts if isinstance(part, Segment)), Segment(START + 1, START + 1))
    if not any(isinstance(part, Segment) for part in parts):
        segment = Segment(START, START)
    before = parts.index(segment) if segment in parts else 0
    begins = segment.start - before
    placed = [(begins + n, terms_of(part)) for n, part in enumerate(parts[:before])]
    rest = [part for part in parts[before:] if not isinstance(part, Segment)]
    placed += [(segment.stop + n, terms_of(part)) for n, part in enumerate(rest)]

    def at(place: Any) -> RecordTerms:
        found = tail_terms(place)
        for known, terms in placed:
            found = either(place == known, terms, found)
        return found

    return TailView(begins, segment.stop + len(rest), at)


# --- the machine on terms -------------------------------------------------------------------------------------------


def machine_for(overrides: Mapping[str, str]) -> type[TransactionCoordinator]:
    """The reference's machine, mutated or not, whose unreplicated records are a stand-in."""
    machine: Any = mutated(TransactionCoordinator, overrides) if overrides else TransactionCoordinator

    def unbounded_unreplicated(state: Any) -> AnyTail:
        assert isinstance(state.tail, AnyTail)
        if state.is_idle():
            return state.tail
        return AnyTail(START, STOP + 1, state.rules.in_log(state.appending.record))

    members = {name: merged(getattr(machine.LIMITS, name)) for name in MERGED}
    rules = type("Rules", (machine.LIMITS,), {"__slots__": (), **members})
    attributes: dict[str, Any] = {"__slots__": (), "LIMITS": rules, "unreplicated": unbounded_unreplicated}
    found: type[TransactionCoordinator] = type("TransactionCoordinator", (machine,), attributes)
    return found


NO_ANSWER: Any = None  # the answer to an earlier request plays no part


def any_state(machine: type[TransactionCoordinator]) -> TransactionCoordinator:
    """A state about which nothing is known."""
    constants: Any = Constants(
        producer_ids=frozenset(),
        max_epoch=Number(MAX_EPOCH),  # type: ignore[arg-type]
        partitions=frozenset(),
        versions=AnyVersions(),  # type: ignore[arg-type]
        faults=FAULTS,
        max_faults=Number(MAX_FAULTS),  # type: ignore[arg-type]
    )
    asked = Identity(producer_id=Number(z3.Int("given_asked_id")), epoch=Number(z3.Int("given_asked_epoch")))  # type: ignore[arg-type]
    given = Given(producer_id=Number(z3.Int("given_id")), epoch=Number(z3.Int("given_epoch")), asked=asked)  # type: ignore[arg-type]
    stand_ins: dict[str, Any] = {
        "metadata": AnyRecord(any_terms("memory")),
        "appending": AnyAppending(),
        "durable": AnyRecord(any_terms("durable")),
        "tail": AnyTail(START, STOP),
        "loading": Condition(LOADING),
        "to_mark": AnyPartitions(z3.Const("to_mark", SETS)),
        "fencing": AnyFencing(),
        "markers": AnyHistory(),
        "told": AnyHistory(),
        "allocated": Number(ALLOCATED),
        "faults": Number(FAULTS_SO_FAR),
    }
    return machine(constants=constants, given=given, answer=NO_ANSWER, **stand_ins)


# --- a state as the invariant sees it -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """A state as the invariant sees it; ``noted`` says of a number and a decision whether anybody has seen it."""

    memory: RecordTerms
    request: Any
    asked: tuple[Any, Any]
    appending: RecordTerms
    durable: RecordTerms
    tail: TailView
    loading: Any
    fencing: Any
    given: tuple[Any, Any]
    allocated: Any
    noted: Callable[[Any, Any], Any]

    def terms(self) -> list[Any]:
        """The terms that tell it from another view."""
        terms = [self.request, *self.asked, self.loading, self.fencing, *self.given, self.allocated, self.noted(*ONE)]
        terms += [self.tail.start, self.tail.stop]
        for record in (self.memory, self.appending, self.durable, self.tail.at(PLACE)):
            terms += [record[name] for name in SORTS]
        return terms


def view_of(state: TransactionCoordinator, noted: Callable[[Any, Any], Any]) -> View:
    """The view of the state that the reference returns, as terms."""
    appending: Any = state.appending
    fencing: Any = state.fencing
    given, entries = state.given, list[Any]()
    histories: tuple[Any, Any] = (state.markers, state.told)
    for history in histories:
        entries += list(history.added) if isinstance(history, AnyHistory) else list(history)

    def noted_after(number: Any, commit: Any) -> Any:
        new = [z3.And(number == term_of(e.number), commit == term_of(e.commit)) for e in entries]
        return z3.Or(noted(number, commit), *new)

    return View(
        memory=terms_of(state.metadata),
        request=REQUEST if isinstance(appending, AnyAppending) else z3.IntVal(REQUESTS.index(appending.request)),
        asked=(term_of(appending.asked.producer_id), term_of(appending.asked.epoch)),
        appending=terms_of(appending.record),
        durable=terms_of(state.durable),
        tail=tail_view(state.tail),
        loading=term_of(state.loading),
        fencing=FENCING if isinstance(fencing, AnyFencing) else z3.IntVal(FENCINGS.index(fencing)),
        given=(term_of(given.producer_id), term_of(given.epoch)),
        allocated=term_of(state.allocated),
        noted=noted_after,
    )


BEFORE = view_of(any_state(TransactionCoordinator), NOTED)

# The places of the tail at which the hypotheses are taken.
PLACES = (PLACE, START, STOP - 1, START + KEPT - 1)


def is_request(view: View, *names: str) -> Any:
    """The record on its way is for one of some requests."""
    return z3.Or(*(view.request == REQUESTS.index(name) for name in names))


def in_tail(view: View, place: Any) -> Any:
    """A place is one of the tail's."""
    return z3.And(place >= view.tail.start, place < view.tail.stop)


def each_record(view: View, place: Any, holds: Callable[[RecordTerms], Any]) -> Any:
    """Something holds of every record: in memory, on its way, replicated, and in the tail."""
    return z3.And(
        holds(view.memory),
        z3.Implies(z3.Not(is_request(view, NOTHING)), holds(view.appending)),
        holds(view.durable),
        z3.Implies(in_tail(view, place), holds(view.tail.at(place))),
    )


def state_is(record: RecordTerms, *states: TransactionState) -> Any:
    """A record's state is one of some."""
    return one_of(record["state"], states)


def decides(record: RecordTerms, commit: Any) -> Any:
    """A record is of a transaction that ends this way, or has ended."""
    commit_states = state_is(record, PREPARED[True], COMPLETED[True])
    return z3.If(commit, commit_states, state_is(record, PREPARED[False], COMPLETED[False]))


def is_settled(record: RecordTerms, number: Any, commit: Any) -> Any:
    """A record is of a later transaction, of the decided one, or of what comes after it without a new one."""
    same = z3.Or(decides(record, commit), state_is(record, EMPTY, DEAD))
    return z3.Or(record["number"] > number, z3.And(record["number"] == number, same))


def goes_on(record: RecordTerms) -> tuple[Any, Any]:
    """The identity with which the producer goes on after a record."""
    rotates = record["next_producer_id"] != -1
    return z3.If(rotates, record["next_producer_id"], record["producer_id"]), z3.If(rotates, 0, record["epoch"])


def is_not_newer(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """An identity is the same as another one, or of an earlier epoch or producer id."""
    return z3.Or(one[0] < other[0], z3.And(one[0] == other[0], one[1] <= other[1]))


def is_older(one: tuple[Any, Any], other: tuple[Any, Any]) -> Any:
    """An identity is of an earlier epoch or producer id than another one."""
    return z3.Or(one[0] < other[0], z3.And(one[0] == other[0], one[1] < other[1]))


EACH_PLACE = Terms((PLACE,), tuple((i,) for i in PLACES))
EACH_PLACE_AND_ENTRY = Terms((PLACE, ONE), tuple((i, entry) for i in PLACES for entry in (ONE, OTHER)))
EACH_PAIR = Terms((ONE, OTHER), ((ONE, OTHER), (OTHER, ONE)))


@conjunct(EACH_PAIR)
def decision_is_final(view: View, one: Any, other: Any) -> Any:
    """No transaction is committed here and aborted there, by a marker or an answer."""
    both = z3.And(view.noted(*one), view.noted(*other), one[0] == other[0])
    return z3.Implies(both, one[1] == other[1])


@conjunct(EACH_PLACE_AND_ENTRY)
def noted_is_settled(view: View, i: Any, one: Any) -> Any:
    """After a decision that anybody has seen, the log has nothing else of that transaction."""
    return z3.Implies(view.noted(*one), each_record(view, i, lambda record: is_settled(record, *one)))


@conjunct(EACH_PLACE)
def memory_is_settled(view: View, i: Any) -> Any:
    """A decision in memory, once it is replicated, is settled in every record."""

    def follows(commit: bool) -> Any:
        settled = each_record(view, i, lambda record: is_settled(record, view.memory["number"], z3.BoolVal(commit)))
        return z3.Implies(z3.And(z3.Not(view.loading), decides(view.memory, z3.BoolVal(commit))), settled)

    return z3.And(follows(True), follows(False))


@conjunct(EACH_PLACE)
def memory_goes_on(view: View, i: Any) -> Any:
    """After such a decision every record goes on with its identity or a newer one."""
    decided = state_is(view.memory, *PREPARED.values(), *COMPLETED.values())
    mine = goes_on(view.memory)
    later = each_record(view, i, lambda r: z3.Or(state_is(r, DEAD), is_not_newer(mine, goes_on(r))))
    return z3.Implies(z3.And(z3.Not(view.loading), decided), later)


@conjunct()
def loading_is_tail(view: View) -> Any:
    """A new coordinator knows the last unreplicated record, and waits."""
    last = view.tail.at(view.tail.stop - 1)
    kept = [view.memory[name] == last[name] for name in ("state", "number", "producer_id", "next_producer_id", "epoch")]
    idle = z3.And(view.request == 0, view.fencing == 0)
    return z3.Implies(view.loading, z3.And(view.tail.stop > view.tail.start, idle, *kept))


@conjunct(documentation=True)
def prepared_is_pending(view: View) -> Any:
    """A prepared transaction is being completed as decided."""
    pending = [
        z3.Implies(state_is(view.memory, PREPARED[commit]), view.memory["pending"] == int(COMPLETED[commit]))
        for commit in (True, False)
    ]
    return z3.And(*pending)


@conjunct()
def appending_is_pending(view: View) -> Any:
    """The state of a record on its way is pending."""
    return z3.Implies(view.request != 0, view.memory["pending"] == view.appending["state"])


@conjunct()
def appending_is_as_asked(view: View) -> Any:
    """A record on its way leads to the state that its request asks for."""
    states = {INIT: (EMPTY,), ADD: (ONGOING,), END: tuple(PREPARED.values()), EXPIRY: (DEAD,)}
    states |= {INIT_FENCES: (PREPARED[False],), TIMEOUT: (PREPARED[False],), COMPLETE: tuple(COMPLETED.values())}
    found = [z3.Implies(is_request(view, name), state_is(view.appending, *given)) for name, given in states.items()]
    return z3.And(*found)


@conjunct()
def fence_is_of_open(view: View) -> Any:
    """A fence is of an open transaction."""
    return z3.Implies(view.memory["pending"] == int(FENCE), state_is(view.memory, ONGOING))


@conjunct(EACH_PLACE)
def log_has_nothing_pending(view: View, i: Any) -> Any:
    """Only memory knows what is pending."""
    appending = z3.Implies(view.request != 0, view.appending["pending"] == NO_STATE)
    tail = z3.Implies(in_tail(view, i), view.tail.at(i)["pending"] == NO_STATE)
    return z3.And(appending, view.durable["pending"] == NO_STATE, tail)


@conjunct()
def versions_are_served(view: View) -> Any:
    """An end is of a version that the server has."""
    return z3.Implies(is_request(view, END), view.appending["version"] <= SERVER)


@conjunct(EACH_PLACE)
def given_is_known(view: View, i: Any) -> Any:
    """No record goes on with less than what a client was given."""
    return each_record(view, i, lambda r: z3.Or(state_is(r, DEAD), is_not_newer(view.given, goes_on(r))))


@conjunct(EACH_PLACE)
def ids_are_allocated(view: View, i: Any) -> Any:
    """Every producer id was handed out."""

    def allocated(record: RecordTerms) -> Any:
        is_one = z3.Or(record["producer_id"] >= 0, state_is(record, DEAD))
        bounds = [record[name] < view.allocated for name in ("producer_id", "next_producer_id")]
        return z3.And(is_one, record["next_producer_id"] >= -1, *bounds)

    return z3.And(view.allocated >= 0, view.given[0] < view.allocated, each_record(view, i, allocated))


@conjunct(EACH_PLACE)
def next_id_is_of_prepared(view: View, i: Any) -> Any:
    """A next producer id waits for a transaction to end."""
    return each_record(view, i, lambda r: z3.Or(r["next_producer_id"] == -1, state_is(r, *PREPARED.values())))


@conjunct(EACH_PLACE)
def last_epoch_is_for_fencing(view: View, i: Any) -> Any:
    """No epoch is above the largest; in version 2 nobody goes on with that."""

    def bounded(record: RecordTerms) -> Any:
        return z3.And(record["epoch"] <= MAX_EPOCH, z3.Implies(SERVER == 2, goes_on(record)[1] < MAX_EPOCH))

    return each_record(view, i, bounded)


@conjunct(EACH_PLACE)
def last_epoch_is_not_presented(view: View, i: Any) -> Any:
    """In version 1 nobody may present the epoch before the largest."""

    def forgotten(record: RecordTerms) -> Any:
        return z3.Implies(z3.And(SERVER == 1, record["epoch"] == MAX_EPOCH), record["last_epoch"] == -1)

    return each_record(view, i, forgotten)


@conjunct()
def init_is_newer(view: View) -> Any:
    """InitProducerId is about to give something new, below the largest epoch."""
    identity = (view.appending["producer_id"], view.appending["epoch"])
    asks_anew = z3.And(is_request(view, INIT), view.asked[0] == -1, view.asked[1] == -1)
    return z3.And(
        z3.Implies(asks_anew, is_older(view.given, identity)),
        z3.Implies(is_request(view, INIT), view.appending["epoch"] < MAX_EPOCH),
    )


INVARIANT = (
    decision_is_final,
    noted_is_settled,
    memory_is_settled,
    memory_goes_on,
    loading_is_tail,
    prepared_is_pending,
    appending_is_pending,
    appending_is_as_asked,
    fence_is_of_open,
    log_has_nothing_pending,
    versions_are_served,
    given_is_known,
    ids_are_allocated,
    next_id_is_of_prepared,
    last_epoch_is_for_fencing,
    last_epoch_is_not_presented,
    init_is_newer,
)


@cache
def hypotheses() -> dict[str, list[Any]]:
    """The invariant before, at the places and entries that matter."""
    return {each.name: each.instances(BEFORE) for each in INVARIANT}


@cache
def typing() -> list[Any]:
    """Facts that need no proof: each code has a name, and the constants are as the model has them."""
    records = [BEFORE.memory, BEFORE.appending, BEFORE.durable, *(tail_terms(place) for place in (*PLACES, STOP))]
    found = [MAX_EPOCH >= 2, z3.Or(SERVER == 1, SERVER == 2), START <= STOP]
    found += [z3.And(code >= 0, code < len(names)) for code, names in ((REQUEST, REQUESTS), (FENCING, FENCINGS))]
    for record in records:
        found += [record["state"] >= 0, record["state"] < len(STATES)]
        found += [record["pending"] >= -1, record["pending"] < len(STATES)]
    return found


def is_rightful(act: Action) -> list[Any]:
    """A request as the model allows it."""
    least = -1 if act.name == "HandleInitProducerId" else 0
    version = z3.And(ASKED["version"] >= 1, ASKED["version"] <= SERVER)
    bounds = z3.And(ASKED["epoch"] >= least, ASKED["epoch"] <= MAX_EPOCH, ASKED["producer_id"] >= least)
    return [bounds, version] if act.domains else []


# --- actions --------------------------------------------------------------------------------------------------------

_ARGUMENTS = {
    "RequestProducerIds": "producer_id", "ProducerIds": "producer_id", "RequestEpochs": "epoch", "Epochs": "epoch",
    "Partitions": "partition", "Versions": "version",
}  # fmt: skip


def run_action(machine: type[TransactionCoordinator], act: Action) -> list[Outcome]:
    """Every way through an action of the reference, from any state, for any request."""

    def run() -> TransactionCoordinator:
        state = any_state(machine)
        arguments: list[Any] = []
        for domain in act.domains:
            if domain == "BOOLEAN":
                arguments.append(bool(Condition(ASKED_COMMIT)))
            elif domain == "0..MaxFaults":
                arguments.append(AnyKept(state.unreplicated))  # type: ignore[arg-type]
            else:
                arguments.append(Number(ASKED[_ARGUMENTS[domain]]))
        after: TransactionCoordinator = getattr(state, act.method)(*arguments)
        return after

    found = explore(run, typing())
    return [outcome for outcome in found if not isinstance(outcome.error, NotEnabled)]


def grouped(outcomes: Sequence[Outcome]) -> list[tuple[Any, View]]:
    """The states after, each once, with the condition under which an action leads there."""
    found: dict[tuple[int, ...], tuple[list[Any], View, list[Any]]] = {}
    for outcome in outcomes:
        if outcome.error is None:
            view = view_of(outcome.value, NOTED)
            terms = view.terms()  # kept: z3 gives the id of a term that is gone to another one
            key = tuple(term.get_id() for term in terms)
            found.setdefault(key, ([], view, terms))[0].append(outcome.condition)
    return [(disjunction(conditions), view) for conditions, view, _ in found.values()]


def crashed(outcome: Outcome) -> Any:
    """The action goes this way, and has no value."""
    if outcome.error is not None:
        return outcome.condition
    return z3.And(outcome.condition, outcome.crashed)


def broken(outcomes: Sequence[Outcome]) -> Callable[[Clause], Any]:
    """The action has no value, or a clause is false afterwards."""
    after, crashes = grouped(outcomes), [crashed(outcome) for outcome in outcomes]

    def is_false(goal: Clause) -> Any:
        return disjunction([*crashes, *(z3.And(condition, z3.Not(goal.holds(view))) for condition, view in after)])

    return is_false


def facts(act: Action | None) -> list[Any]:
    """The typing of a state, and for an action the constraints on its request."""
    return typing() if act is None else [*typing(), *is_rightful(act)]


def initiation(machine: type[TransactionCoordinator]) -> Iterator[Query]:
    """The initial state has each conjunct."""
    constants = Constants(
        producer_ids=frozenset(), max_epoch=2, partitions=frozenset(), versions=frozenset(), faults=FAULTS, max_faults=0
    )
    view = view_of(machine.initial(constants), lambda number, commit: z3.BoolVal(False))  # noqa: ARG005
    return ASKING.initiation(view, facts=[MAX_EPOCH >= 2, z3.Or(SERVER == 1, SERVER == 2)])


# --- properties -----------------------------------------------------------------------------------------------------


@conjunct()
def only_forward(after: View, state: TransactionCoordinator) -> Any:  # noqa: ARG001 - one signature for all
    """The identities that clients are given never go back."""
    return is_not_newer(BEFORE.given, after.given)


@conjunct()
def handed_out_once(after: View, state: TransactionCoordinator) -> Any:
    """InitProducerId gives a producer id and epoch once, except to a client that presents the ones it had before."""
    answer = state.answer
    if answer is NO_ANSWER or answer.request != INIT or answer.error is not ErrorCode.NONE:
        return z3.BoolVal(True)
    anew = z3.And(BEFORE.asked[0] == -1, BEFORE.asked[1] == -1)
    return z3.Implies(anew, is_older(BEFORE.given, after.given))


@conjunct()
def given_is_below_last(after: View, state: TransactionCoordinator) -> Any:
    """Nobody is given the largest epoch, and no marker has an epoch above it."""
    changed = z3.Or(*(new != old for new, old in zip(after.given, BEFORE.given, strict=True)))
    new_markers = [term_of(marker.epoch) <= MAX_EPOCH for marker in state.markers.added]  # type: ignore[attr-defined]
    return z3.And(z3.Implies(changed, after.given[1] < MAX_EPOCH), *new_markers)


@conjunct()
def given_at_rest(after: View, state: TransactionCoordinator) -> Any:
    """InitProducerId gives nothing before the log says that nothing is open."""
    answer = state.answer
    gives = answer is not NO_ANSWER and answer.request == INIT and answer.error is ErrorCode.NONE
    at_rest = z3.And(state_is(after.durable, EMPTY), after.tail.stop == after.tail.start)
    return at_rest if gives else z3.BoolVal(True)


@conjunct()
def noted_is_durable(after: View, state: TransactionCoordinator) -> Any:
    """A marker or an answer comes after its decision is replicated."""
    entries = [*state.markers.added, *state.told.added]  # type: ignore[attr-defined]
    numbers = [(term_of(entry.number), term_of(entry.commit)) for entry in entries]
    return z3.And(*(is_settled(after.durable, number, commit) for number, commit in numbers))


OF_STATES = INVARIANT[:1]
STEPS = (only_forward, handed_out_once, given_is_below_last, given_at_rest, noted_is_durable)


def safety(runs: Mapping[Action, Sequence[Outcome]]) -> Iterator[Query]:
    """The invariant gives the properties of a state and of each step."""
    yield from of_properties(ASKING, OF_STATES, BEFORE)
    for goal in STEPS:
        for act, outcomes in runs.items():
            views = [(outcome, view_of(outcome.value, NOTED)) for outcome in outcomes if outcome.error is None]
            wrong = [z3.And(o.condition, z3.Not(goal(after, o.value))) for o, after in views]
            wrong = [formula for formula in wrong if not z3.is_false(z3.simplify(formula))]
            if wrong:
                yield ASKING.query("safety", goal.name, goal.conjunct, disjunction(wrong), outcomes, act)


# --- a solution as text ---------------------------------------------------------------------------------------------

READABLE = (
    START == 0, STOP <= 2, ALLOCATED <= 4, MAX_EPOCH <= 5,
    *(z3.And(record[name] >= -1, record[name] <= 5)
      for record in (BEFORE.memory, BEFORE.appending, BEFORE.durable, tail_terms(z3.IntVal(0)))
      for name in ("number", "epoch", "producer_id", "next_producer_id")),
)  # fmt: skip


def _asked(model: Any, act: Action | None) -> list[str]:
    if act is None:
        return []
    request = ", ".join(f"{name} {value(model, term)}" for name, term in ASKED.items())
    return [f"action: {act.name}({request if act.domains else ''})"]


def _answer(model: Any, state: TransactionCoordinator) -> list[str]:  # noqa: ARG001 - one signature for all proofs
    answer = state.answer
    return [] if answer is NO_ANSWER else [f"answer: {answer.error.name} to {answer.request}"]


def _state(model: Any, view: View) -> list[str]:
    request = REQUESTS[value(model, view.request)]
    lines = [f"  memory: {_record(model, view.memory)}"]
    lines += [f"  on its way for {request}: {_record(model, view.appending)}"] if request != NOTHING else []
    lines.append(f"  replicated: {_record(model, view.durable)}")
    first, behind = value(model, view.tail.start), value(model, view.tail.stop)
    shown = range(first, min(behind, first + 3))
    lines += [f"  after it: {_record(model, view.tail.at(z3.IntVal(place)))}" for place in shown]
    loading = "loads, " if truth(model, view.loading) else ""
    given = f"{value(model, view.given[0])} in epoch {value(model, view.given[1])}"
    lines.append(f"  the coordinator: {loading}has given producer id {given}")
    for number, commit in (ONE, OTHER):
        if truth(model, view.noted(number, commit)):
            way = "commit" if truth(model, commit) else "abort"
            lines.append(f"  seen: {way} of transaction {value(model, number)}")
    return lines


def _record(model: Any, record: RecordTerms) -> str:
    state, pending = value(model, record["state"]), value(model, record["pending"])
    named = STATES[state].name + (f" (to {STATES[pending].name})" if pending >= 0 else "")
    names = ("number", "producer_id", "next_producer_id", "epoch", "last_epoch")
    return f"{named}, " + ", ".join(f"{name.replace('_', ' ')} {value(model, record[name])}" for name in names)


def _after(outcome: Outcome) -> View:
    return view_of(outcome.value, NOTED)


def _is_taken(outcome: Outcome) -> Any:
    """The action goes this way, without an error in its answer."""
    answer = outcome.value.answer
    return outcome.condition if answer is NO_ANSWER or not answer.error else z3.BoolVal(False)


TELLING = Telling(before=BEFORE, after=_after, state=_state, asked=_asked, answer=_answer)
ASKING = Asking(
    invariant=INVARIANT,
    hypotheses=hypotheses,
    facts=facts,
    telling=TELLING,
    readable=READABLE,
    run=run_action,
    broken=broken,
    taken=_is_taken,
)


# --- the proof ------------------------------------------------------------------------------------------------------


def queries(overrides: Mapping[str, str]) -> Iterator[Query]:
    """All queries, with some rules replaced by mutants or none."""
    machine = machine_for(overrides)
    yield from initiation(machine)
    runs: dict[Action, Sequence[Outcome]] = {}
    yield from ASKING.of_actions(machine, runs)
    yield from safety(runs)


PROOF = Proof(
    name="coordinator",
    module="TransactionCoordinator",
    rests_on=("MayAct", "InLog"),
    title="a decision is final, and no epoch is handed out twice, through any failover and for every largest epoch",
    conjuncts=tuple(each.conjunct for each in INVARIANT),
    properties=tuple(each.conjunct for each in (*OF_STATES, *STEPS)),
    queries=queries,
)
