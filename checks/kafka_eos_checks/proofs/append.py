"""Append, with the repaired SnapshotOf and AcceptsUnknownProducer: no gap, no duplicate, and retries are answered.

Kafka 4.3 has both rules otherwise (spec/releases.toml): there NoGapAtLogStart, StateFollowsLog and
RecentRetryIsAcknowledged do not hold. "Retries" are those of up to five batches in flight, which the cache answers.

The proof runs the actions of ``PartitionLog`` and the rules of ``Log`` and ``Limits`` themselves, symbolically; no rule
is written down again. Two places stand for loops of unbounded length, and each has a query that ties it to the code:

- ``Log.replay`` folds ``Log.remember`` over the log. It is assumed to keep "the state follows the log", which the lemma
  *replay* proves for one batch by running it; a test compares a fold with its steps on the reference.
- An iteration over the log or over the producers runs for one arbitrary element: the filter of ``Log.reloaded`` must
  keep exactly what is not in the snapshot (consecution of *Restart*), and a snapshot is taken producer by producer.

Unbounded: the log, the offsets, the epochs of a log, the number of producers. A log's batches are functions of their
place. ``last(p, k)`` is the place of producer p's last batch among the first k. ``position(i)`` counts the records of
the epoch before batch i without wrap, and ``wraps(i)`` how often the sequence has wrapped to 0. A log only grows, so
one set of functions serves before and after: only the first ``length`` places matter.

Producers are independent: a conjunct speaks of one arbitrary producer, the request comes from another arbitrary one,
which may be the same.

Assumed: requests are handled one at a time; a batch has at least one record and five batches have fewer than 2^31
(as in ``PartitionLog.tla``: otherwise a cached batch is ambiguous); producers do not expire (see the limit); a retry
has the content of the first copy; a client waits for its oldest batch before it sends one more than five. Not covered:
truncation by another leader, replication.

Spec:  PartitionLog.tla; the same invariant is checked by TLC on small bounds in spec/proofs/PartitionLogInduction.tla
KIPs:  98, 360
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import Any

import z3
from immutables import Map

from kafka_eos.errors import ErrorCode, NotEnabled
from kafka_eos.machines.leader import MAX_EPOCH
from kafka_eos.machines.machine import Action, actions
from kafka_eos.machines.partition_log import Constants, PartitionLog, Response
from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch, CachedBatch, Log, ProducerState, Snapshot
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.proofs.induction import Conjunct, Proof, Query, Telling, truth, value
from kafka_eos_checks.proofs.kit import Asking, Clause, Terms, conjunct, each_way, of_properties
from kafka_eos_checks.proofs.symbolic import (
    Condition,
    Number,
    Outcome,
    disjunction,
    explore,
    merged,
    term_of,
)

CACHED = 5
MAX_SEQUENCE = 2**31 - 1
MODULUS = 2**31
CONSTANTS = Constants(
    max_sequence=MAX_SEQUENCE,
    cached_batches=CACHED,
    producer_ids=frozenset(),
    epochs=frozenset(),
    sequences=frozenset(),
    batch_counts=frozenset(),
    expiration=False,
)
# Guards that return a number or a truth value: their ways are merged into one term.
MERGED = (
    "log_end_offset",
    "is_retry_of",
    "is_duplicate",
    "duplicate_offset",
    "is_fenced",
    "starts_epoch",
    "follows",
    "accepts_unknown_producer",
    "is_in_sequence",
)


@cache
def _function(name: str, arity: int = 1) -> Any:
    return z3.Function(name, *[z3.IntSort()] * (arity + 1))


# A log's batches by their place, and what is defined by recursion over them.
PRODUCER_ID, EPOCH, SEQUENCE, COUNT, OFFSET = map(_function, ("producer_id", "epoch", "sequence", "count", "offset"))
LAST, POSITION, WRAPS = _function("last", 2), _function("position"), _function("wraps")

# The constants of every query: length of the log, batches in the snapshot, its offset, the request, and what a negated
# goal is about.
LENGTH, TAKEN, TAKEN_OFFSET = z3.Ints("length taken taken_offset")
ASKED = {name: z3.Int(f"asked_{name}") for name in ("producer_id", "epoch", "sequence", "count")}
DOMAINS = {"ProducerIds": "producer_id", "Epochs": "epoch", "Sequences": "sequence", "BatchCounts": "count"}
PRODUCER, PLACE, LATER = z3.Ints("producer place later")
READ = z3.Int("read")  # the place of the one arbitrary batch that an iteration over the log yields

# --- a producer's state as terms ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducerTerms:
    """A log's state of one producer, as terms: cached batches newest first, each (sequence, count, offset)."""

    known: Any
    epoch: Any
    size: Any
    batches: tuple[tuple[Any, Any, Any], ...]


UNKNOWN = ProducerTerms(z3.BoolVal(False), z3.IntVal(0), z3.IntVal(0), ((z3.IntVal(0),) * 3,) * CACHED)


def terms_of_state(state: ProducerState | None) -> ProducerTerms:
    """A producer's state as the reference has it, as terms."""
    if state is None:
        return UNKNOWN
    newest = [(term_of(b.sequence), term_of(b.count), term_of(b.offset)) for b in reversed(state.batches)]
    cells = tuple(newest[:CACHED]) + UNKNOWN.batches[len(newest) :]
    return ProducerTerms(z3.BoolVal(True), term_of(state.epoch), z3.IntVal(len(newest)), cells)


def either(condition: Any, yes: ProducerTerms, no: ProducerTerms) -> ProducerTerms:
    """The first of two states if a condition holds, otherwise the second."""
    cells = zip(yes.batches, no.batches, strict=True)
    return ProducerTerms(
        z3.If(condition, yes.known, no.known),
        z3.If(condition, yes.epoch, no.epoch),
        z3.If(condition, yes.size, no.size),
        tuple(tuple(z3.If(condition, a, b) for a, b in zip(left, right, strict=True)) for left, right in cells),
    )


@cache
def _unchanged_terms(name: str, producer_id: Any) -> ProducerTerms:
    """A producer's state before the action, in the log or in the snapshot."""
    known = z3.Function(f"{name}_known", z3.IntSort(), z3.BoolSort())(producer_id)
    epoch, size = (_function(f"{name}_{part}")(producer_id) for part in ("epoch", "size"))
    cells = tuple(
        (
            _function(f"{name}_sequence_{place}")(producer_id),
            _function(f"{name}_count_{place}")(producer_id),
            _function(f"{name}_offset_{place}")(producer_id),
        )
        for place in range(CACHED)
    )
    return ProducerTerms(known, epoch, size, cells)


class AnyProducers:
    """The state of any number of producers: functions of the producer id, and what an action has changed."""

    def __init__(self, name: str, changes: tuple[tuple[Any, ProducerState | None], ...] = ()) -> None:
        self.name = name
        self.changes = changes

    def terms(self, producer_id: Any) -> ProducerTerms:
        """The state of one producer."""
        found = _unchanged_terms(self.name, producer_id)
        for key, state in self.changes:
            found = either(producer_id == term_of(key), terms_of_state(state), found)
        return found

    def get(self, producer_id: Any, default: ProducerState | None = None) -> ProducerState | None:
        """As ``Map.get``."""
        for key, state in reversed(self.changes):
            if producer_id == key:
                return default if state is None else state
        terms = _unchanged_terms(self.name, term_of(producer_id))
        if not Condition(terms.known):
            return default
        size = next((n for n in range(CACHED, 0, -1) if Condition(terms.size == n)), 0)
        batches = [
            CachedBatch(sequence=Number(s), count=Number(c), offset=Number(o))  # type: ignore[arg-type]
            for s, c, o in terms.batches[:size]
        ]
        return ProducerState(epoch=Number(terms.epoch), batches=tuple(reversed(batches)))  # type: ignore[arg-type]

    def __contains__(self, producer_id: Any) -> bool:
        return self.get(producer_id) is not None

    def __getitem__(self, producer_id: Any) -> ProducerState:
        state = self.get(producer_id)
        if state is None:
            raise KeyError(producer_id)
        return state

    def set(self, producer_id: Any, state: ProducerState) -> "AnyProducers":
        """As ``Map.set``."""
        return AnyProducers(self.name, (*self.changes, (producer_id, state)))

    def delete(self, producer_id: Any) -> "AnyProducers":
        """As ``Map.delete``."""
        return AnyProducers(self.name, (*self.changes, (producer_id, None)))

    def items(self) -> list[tuple[Any, ProducerState]]:
        """The one producer that the goal is about, because every iteration treats each producer by itself."""
        state = self.get(Number(PRODUCER))
        return [] if state is None else [(Number(PRODUCER), state)]


def producer_terms(producers: Any, producer_id: Any) -> ProducerTerms:
    """The state of a producer in the producers that the reference returns."""
    if isinstance(producers, AnyProducers):
        return producers.terms(producer_id)
    assert isinstance(producers, Map)
    found = UNKNOWN
    for key, state in producers.items():
        found = either(producer_id == term_of(key), terms_of_state(state), found)
    return found


# --- a log of any length ------------------------------------------------------------------------------------------


def batch_at(place: Any) -> Batch:
    """The batch at a place of the log."""
    terms = (function(place) for function in (PRODUCER_ID, EPOCH, SEQUENCE, COUNT, OFFSET))
    producer_id, epoch, sequence, count, offset = map(Number, terms)
    return Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count, offset=offset)  # type: ignore[arg-type]


class AnyEntries:
    """The batches of a log of any length: ``LENGTH`` before the action, and what it has appended."""

    def __init__(self, appended: tuple[Batch, ...] = ()) -> None:
        self.appended = appended

    @property
    def length(self) -> Any:
        """The number of entries."""
        return LENGTH + len(self.appended)

    def __bool__(self) -> bool:
        return bool(Condition(self.length > 0))

    def __getitem__(self, place: int) -> Batch:
        assert place == -1, "only the last batch is looked up by its place"
        return self.appended[-1] if self.appended else batch_at(LENGTH - 1)

    def __iter__(self) -> Iterator[Batch]:
        yield batch_at(READ)

    def append(self, batch: Batch) -> "AnyEntries":
        """As ``PVector.append``."""
        return AnyEntries((*self.appended, batch))

    def facts(self) -> list[Any]:
        """The facts that the appended batches are at their places."""
        found = []
        for place, given in enumerate(self.appended):
            stored = batch_at(LENGTH + place)
            found += [term_of(getattr(stored, f.name)) == term_of(getattr(given, f.name)) for f in fields(Batch)]
        return found


class Replayed(AnyProducers):
    """The producers that ``Log.replay`` returns after the rest of the log.

    Attributes:
        of: the producers that it started with.
        read: the batches that the reference's filter let through: the arbitrary one, or none.
    """

    def __init__(self, of: Any, read: Sequence[Batch]) -> None:
        super().__init__("replayed")
        self.of = of
        self.read = read


def machine_for(overrides: Mapping[str, str]) -> type[PartitionLog]:
    """The reference's machine, mutated or not, with guards that merge their ways, and with an unbounded replay."""
    machine: Any = mutated(PartitionLog, overrides) if overrides else PartitionLog

    def unbounded_replay(log: Log, producers: Any, entries: Any) -> Replayed:  # noqa: ARG001 - a method
        return Replayed(producers, list(entries))

    members: dict[str, Any] = {"__slots__": (), "replay": unbounded_replay}
    for name in MERGED:
        rule = getattr(machine.LOG, name)
        members[name] = property(merged(rule.fget)) if isinstance(rule, property) else merged(rule)  # type: ignore[arg-type]
    log = type("UnboundedLog", (machine.LOG,), members)
    members = {name: merged(getattr(machine.LIMITS, name)) for name in ("next_sequence", "last_sequence")}
    limits = type("Limits", (machine.LIMITS,), {"__slots__": (), **members})
    found: type[PartitionLog] = type("PartitionLog", (machine,), {"__slots__": (), "LOG": log, "LIMITS": limits})
    return found


NO_ANSWER: Any = None  # the answer to an earlier request plays no part


def any_state(machine: type[PartitionLog], constants: Constants) -> PartitionLog:
    """A state about which nothing is known."""
    snapshot = Snapshot(offset=Number(TAKEN_OFFSET), producers=AnyProducers("snapshot"))  # type: ignore[arg-type]
    log = machine.LOG(
        entries=AnyEntries(),  # type: ignore[arg-type]
        producers=AnyProducers("producers"),  # type: ignore[arg-type]
        snapshot=snapshot,
        limits=machine.limits(constants),
    )
    return machine(constants=constants, log=log, response=NO_ANSWER)


# --- definitions over the log ---------------------------------------------------------------------------------------


def previous(place: Any) -> Any:
    """The place of the batch before, of the same producer; -1 if there is none."""
    return LAST(PRODUCER_ID(place), place)


def end(length: Any) -> Any:
    """The log end offset of the first batches."""
    return z3.If(length > 0, OFFSET(length - 1) + COUNT(length - 1), 0)


def chain(producer_id: Any, length: Any, depth: int = CACHED + 1) -> list[Any]:
    """The places of a producer's last batches among the first ``length``, newest first."""
    places: list[Any] = []
    for _ in range(depth):
        length = LAST(producer_id, length)
        places.append(length)
    return places


def in_cache(places: Sequence[Any]) -> list[Any]:
    """The conditions that a producer's last batches belong to the last one's epoch, without interruption."""
    found = [places[0] >= 0]
    for place in places[1:]:
        found.append(z3.And(found[-1], place >= 0, EPOCH(place) == EPOCH(places[0])))
    return found


def defined_last(producer_id: Any, length: Any) -> Any:
    """The definition of ``last`` for one more batch."""
    step = z3.If(PRODUCER_ID(length) == producer_id, length, LAST(producer_id, length))
    return z3.And(z3.Implies(length <= 0, LAST(producer_id, length) == -1),
                  z3.Implies(length >= 0, LAST(producer_id, length + 1) == step))  # fmt: skip


def defined_position(place: Any) -> Any:
    """Definition of ``position`` and ``wraps``, from the epoch's first batch in the log on."""
    before = previous(place)
    follows = z3.And(before >= 0, EPOCH(before) == EPOCH(place))
    wrapped = z3.If(SEQUENCE(before) + COUNT(before) > MAX_SEQUENCE, 1, 0)
    return z3.And(
        POSITION(place) == z3.If(follows, POSITION(before) + COUNT(before), SEQUENCE(place)),
        WRAPS(place) == z3.If(follows, WRAPS(before) + wrapped, 0),
    )


def last_is_one(producer_id: Any, length: Any) -> Any:
    """Lemma: the last batch is an earlier batch of the producer."""
    last = LAST(producer_id, length)
    return z3.And(last >= -1, z3.If(length > 0, last < length, last == -1),
                  z3.Implies(last >= 0, PRODUCER_ID(last) == producer_id))  # fmt: skip


def last_is_latest(producer_id: Any, length: Any, place: Any) -> Any:
    """Lemma: no later batch is the producer's."""
    is_one = z3.And(place >= 0, place < length, PRODUCER_ID(place) == producer_id)
    return z3.Implies(is_one, place <= LAST(producer_id, length))


# --- the invariant ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """A state as the invariant sees it."""

    length: Any
    producers: Any
    taken: Any
    taken_offset: Any
    snapshot: Any


BEFORE = View(LENGTH, AnyProducers("producers"), TAKEN, TAKEN_OFFSET, AnyProducers("snapshot"))


def follows_log(terms: ProducerTerms, producer_id: Any, length: Any) -> Any:
    """A producer's state is what its last batches among the first ``length`` say."""
    places = chain(producer_id, length, CACHED)
    inside = in_cache(places)
    parts = [terms.known == inside[0], z3.Implies(terms.known, terms.epoch == EPOCH(places[0]))]
    parts.append(z3.Implies(terms.known, terms.size == z3.Sum([z3.If(one, 1, 0) for one in inside])))
    for place, one, (sequence, count, offset) in zip(places, inside, terms.batches, strict=True):
        same = z3.And(sequence == SEQUENCE(place), count == COUNT(place), offset == OFFSET(place))
        parts.append(z3.Implies(one, same))
    return z3.If(producer_id >= 0, z3.And(*parts), z3.Not(terms.known))


# The terms at which the hypotheses of every query are taken.
PRODUCERS_ASKED = (PRODUCER, ASKED["producer_id"])
THEIR_LAST = chain(ASKED["producer_id"], LENGTH)
PLACES = (PLACE, previous(PLACE), LATER, READ, LENGTH - 1, LENGTH, TAKEN - 1, TAKEN, z3.IntVal(0), *THEIR_LAST)
PAIRS = (
    (PLACE, LATER),
    (PLACE, THEIR_LAST[0]),
    (PLACE, LENGTH - 1),
    (READ, TAKEN - 1),
    (TAKEN, READ),
    *((earlier, later) for later, earlier in pairwise(THEIR_LAST)),
)
EACH_PRODUCER = Terms((PRODUCER,), tuple((p,) for p in PRODUCERS_ASKED))
EACH_PLACE = Terms((PLACE,), tuple((i,) for i in PLACES))
EACH_PAIR = Terms((PLACE, LATER), PAIRS)


def _in_log(view: View, place: Any) -> Any:
    return z3.And(place >= 0, place < view.length)


def _ordered(view: View, place: Any, later: Any) -> Any:
    return z3.And(place >= 0, place < later, later < view.length)


def _of_one(place: Any, later: Any) -> Any:
    return z3.And(PRODUCER_ID(place) == PRODUCER_ID(later), PRODUCER_ID(place) >= 0)


@conjunct(EACH_PRODUCER)
def state_follows_log(view: View, p: Any) -> Any:
    """A producer's state is its last batches of one epoch, up to five."""
    return follows_log(producer_terms(view.producers, p), p, view.length)


@conjunct(EACH_PRODUCER)
def snapshot_follows_log(view: View, p: Any) -> Any:
    """The same holds for its state in the snapshot, for the batches before that."""
    return follows_log(producer_terms(view.snapshot, p), p, view.taken)


@conjunct()
def snapshot_is_of_the_log(view: View) -> Any:
    """The snapshot's offset is the end of a batch of the log."""
    return z3.And(view.taken >= 0, view.taken <= view.length, view.taken_offset == end(view.taken))


def is_well_formed(producer_id: Any, count: Any) -> Any:
    """The constraints on a request."""
    return z3.And(producer_id >= NO_PRODUCER_ID, count >= 1, CACHED * count <= MAX_SEQUENCE)


@conjunct(EACH_PLACE)
def batches_are_well_formed(view: View, i: Any) -> Any:
    """A batch has a record, and five have fewer than 2^31."""
    return z3.Implies(_in_log(view, i), is_well_formed(PRODUCER_ID(i), COUNT(i)))


@conjunct(EACH_PLACE)
def offsets_are_dense(view: View, i: Any) -> Any:
    """Batches follow each other without holes in the offsets."""
    return z3.Implies(_in_log(view, i), OFFSET(i) == end(i))


@conjunct(EACH_PAIR)
def offsets_grow(view: View, i: Any, j: Any) -> Any:
    """A later batch begins after an earlier one's end."""
    return z3.Implies(_ordered(view, i, j), OFFSET(i) + COUNT(i) <= OFFSET(j))


@conjunct(EACH_PLACE)
def sequence_is_position(view: View, i: Any) -> Any:
    """A sequence is the position in the epoch modulo 2^31."""
    is_right = z3.And(SEQUENCE(i) >= 0, SEQUENCE(i) <= MAX_SEQUENCE, POSITION(i) == SEQUENCE(i) + MODULUS * WRAPS(i))
    return z3.Implies(z3.And(_in_log(view, i), PRODUCER_ID(i) >= 0), is_right)


@conjunct(EACH_PAIR)
def positions_are_disjoint(view: View, i: Any, j: Any) -> Any:
    """Two batches of an epoch share no position."""
    same = z3.And(_ordered(view, i, j), _of_one(i, j), EPOCH(i) == EPOCH(j))
    return z3.Implies(same, POSITION(i) + COUNT(i) <= POSITION(j))


@conjunct(EACH_PLACE)
def no_gap_at_epoch_start(view: View, i: Any) -> Any:
    """A later epoch begins with sequence 0."""
    before = previous(i)
    new = z3.And(_in_log(view, i), PRODUCER_ID(i) >= 0, before >= 0, EPOCH(before) < EPOCH(i))
    return z3.Implies(new, SEQUENCE(i) == 0)


@conjunct()
def no_gap_at_log_start(view: View) -> Any:
    """The first batch that a log holds begins with sequence 0."""
    return z3.Implies(z3.And(view.length > 0, PRODUCER_ID(0) >= 0), SEQUENCE(0) == 0)


@conjunct(EACH_PAIR)
def epochs_never_go_back(view: View, i: Any, j: Any) -> Any:
    """The epochs of a producer never go back."""
    return z3.Implies(z3.And(_ordered(view, i, j), _of_one(i, j)), EPOCH(i) <= EPOCH(j))


INVARIANT = (
    state_follows_log,
    snapshot_follows_log,
    snapshot_is_of_the_log,
    batches_are_well_formed,
    offsets_are_dense,
    offsets_grow,
    sequence_is_position,
    positions_are_disjoint,
    no_gap_at_epoch_start,
    no_gap_at_log_start,
    epochs_never_go_back,
)


@cache
def hypotheses() -> dict[str, list[Any]]:
    """The invariant before, at the producers, places and pairs of places that matter."""
    return {each.name: each.instances(BEFORE) for each in INVARIANT}


def definitions(producers: Sequence[Any], places: Sequence[Any]) -> list[Any]:
    """The definitions and lemmas of the functions over the log, for some producers and places."""
    found = [LENGTH >= 0]
    for p in producers:
        lengths = [LENGTH, LENGTH + 1, TAKEN, *chain(p, LENGTH), *chain(p, TAKEN)]
        found += [defined_last(p, LENGTH)]
        found += [last_is_one(p, length) for length in lengths]
        found += [last_is_latest(p, LENGTH, place) for place in places]
    for place in places:
        found += [defined_position(place), last_is_one(PRODUCER_ID(place), place)]
    found += [z3.And(producer.size >= 0, producer.size <= CACHED) for producer in _states(producers)]
    return found


def _states(producers: Sequence[Any]) -> list[ProducerTerms]:
    return [producer_terms(state, p) for state in (BEFORE.producers, BEFORE.snapshot) for p in producers]


def is_rightful() -> Any:
    """A request as Kafka's format allows it: 16-bit epochs, 31-bit sequences; without producer id neither."""
    epoch, sequence, count = (ASKED[name] for name in ("epoch", "sequence", "count"))
    idempotent = z3.And(
        ASKED["producer_id"] >= 0, epoch >= 0, epoch <= MAX_EPOCH, sequence >= 0, sequence <= MAX_SEQUENCE
    )
    plain = z3.And(ASKED["producer_id"] == NO_PRODUCER_ID, epoch == -1, sequence == -1)
    return z3.And(z3.Or(idempotent, plain), is_well_formed(ASKED["producer_id"], count))


# A solution that is easy to read: a short log and small numbers, with the start of the log where it has to be.
READABLE = (
    LENGTH <= CACHED + 2,
    *(z3.And(producer >= 0, producer <= 3) for producer in PRODUCERS_ASKED),
    *(z3.And(term >= -1, term <= 3) for term in (ASKED["epoch"], *(EPOCH(place) for place in THEIR_LAST))),
    *(term <= 9 for term in (ASKED["count"], *(COUNT(place) for place in THEIR_LAST))),
    OFFSET(0) == 0,
    end(LENGTH) <= 99,
    *(z3.Implies(ASKED["producer_id"] >= 0, EPOCH(place) >= 0) for place in THEIR_LAST),
    *(
        each(BEFORE, z3.IntVal(place))
        for place in range(CACHED + 2)
        for each in (offsets_are_dense, batches_are_well_formed)
    ),
)


# --- actions --------------------------------------------------------------------------------------------------------


def run_action(machine: type[PartitionLog], act: Action, constants: Constants) -> list[Outcome]:
    """Every way through an action of the reference, from any state, for any request."""
    arguments = [Number(ASKED[DOMAINS[domain]]) for domain in act.domains]
    outcomes = explore(
        lambda: getattr(any_state(machine, constants), act.method)(*arguments),
        [z3.And(state.size >= 0, state.size <= CACHED) for state in _states(PRODUCERS_ASKED)],
    )
    return [outcome for outcome in outcomes if not isinstance(outcome.error, NotEnabled)]


def after(outcome: Outcome) -> View:
    """The state after, as the invariant sees it. A snapshot is always of the whole log."""
    log = outcome.value.log
    offset = term_of(log.snapshot.offset)
    taken = TAKEN if offset.eq(TAKEN_OFFSET) else LENGTH
    return View(log.entries.length, log.producers, taken, offset, log.snapshot.producers)


def taken(outcome: Outcome) -> Any:
    """The action goes this way."""
    return z3.And(outcome.condition, *outcome.value.log.entries.facts())


def broken(outcome: Outcome, goal: Clause) -> Any:
    """The action goes this way, and afterwards a conjunct is false."""
    if outcome.error is not None:
        return outcome.condition
    log = outcome.value.log
    if goal is state_follows_log and isinstance(log.producers, Replayed):
        # By the lemma "replay": what it starts from follows the log up to the snapshot, and it reads all the rest.
        start = follows_log(producer_terms(log.producers.of, PRODUCER), PRODUCER, TAKEN)
        reads = _in_log(BEFORE, READ)
        right = (READ >= TAKEN) if log.producers.read else (READ < TAKEN)
        holds = z3.And(start, z3.Implies(reads, right))
    else:
        holds = goal.holds(after(outcome))
    return z3.And(outcome.condition, *log.entries.facts(), z3.Or(outcome.crashed, z3.Not(holds)))


def facts(act: Action | None) -> list[Any]:
    """Definitions and lemmas, and for an action the constraints on its request."""
    return [*definitions(PRODUCERS_ASKED, PLACES), *([] if act is None else [is_rightful()])]


def initiation(machine: type[PartitionLog]) -> Iterator[Query]:
    """The initial state has each conjunct."""
    log = machine.initial(CONSTANTS).log
    offset = z3.IntVal(log.snapshot.offset)
    view = View(z3.IntVal(len(log.entries)), log.producers, z3.IntVal(0), offset, log.snapshot.producers)
    known = [defined_last(PRODUCER, z3.IntVal(0)), last_is_one(PRODUCER, z3.IntVal(0))]
    return ASKING.initiation(view, facts=known)


# --- lemmas -----------------------------------------------------------------------------------------------------


def lemmas(machine: type[PartitionLog]) -> Iterator[Query]:
    """The lemmas that follow from the definitions, by induction over the length of a log, and one step of a replay."""

    def query(name: str, says: str, facts: Sequence[Any], negated: Any, step: str) -> Query:
        return ASKING.query("lemma", step, Conjunct(name=name, says=says), negated, known={}, facts=facts)

    for name, says, lemma in (
        ("LastIsOne", "A producer's last batch is a batch of it.", last_is_one),
        ("LastIsLatest", "No later batch is the producer's.", lambda p, n: last_is_latest(p, n, PLACE)),
    ):
        base = [defined_last(PRODUCER, z3.IntVal(0))]
        yield query(name, says, base, z3.Not(lemma(PRODUCER, z3.IntVal(0))), "first batch")
        more = [LENGTH >= 0, defined_last(PRODUCER, LENGTH), lemma(PRODUCER, LENGTH), last_is_one(PRODUCER, LENGTH)]
        yield query(name, says, more, z3.Not(lemma(PRODUCER, LENGTH + 1)), "one batch more")

    log = any_state(machine, CONSTANTS).log
    theirs = PRODUCER_ID(LENGTH)
    known = [follows_log(producer_terms(BEFORE.producers, p), p, LENGTH) for p in (PRODUCER, theirs)]
    known += [*definitions((PRODUCER, theirs), (LENGTH,)), is_well_formed(theirs, COUNT(LENGTH))]
    says = "A batch that is replayed brings the state after it, as one that is appended does."
    bounds = [z3.And(state.size >= 0, state.size <= CACHED) for state in _states((theirs,))]
    for step, entries, length in (("replay", [batch_at(LENGTH)], LENGTH + 1), ("replay of nothing", [], LENGTH)):
        outcomes = explore(lambda entries=entries: super(type(log), log).replay(log.producers, entries), bounds)  # type: ignore[misc]
        wrong = [
            z3.And(outcome.condition, z3.Not(follows_log(producer_terms(outcome.value, PRODUCER), PRODUCER, length)))
            if outcome.error is None
            else outcome.condition
            for outcome in outcomes
        ]
        yield query("StateFollowsLog", says, known, disjunction(wrong), step)


# --- properties ---------------------------------------------------------------------------------------------------


def successor(place: Any) -> Any:
    """The sequence that has to come after a batch. A property shares no rule with what it judges."""
    return (SEQUENCE(place) + COUNT(place)) % MODULUS


@conjunct(EACH_PLACE)
def no_gap_no_duplicate(view: View, i: Any) -> Any:
    """Within an epoch each batch begins where the one before it ended."""
    before = previous(i)
    neighbours = z3.And(_in_log(view, i), PRODUCER_ID(i) >= 0, before >= 0, EPOCH(before) == EPOCH(i))
    return z3.Implies(neighbours, SEQUENCE(i) == successor(before))


@conjunct(EACH_PAIR)
def no_sequence_twice(view: View, i: Any, j: Any) -> Any:
    """Two records of an epoch with one sequence are 2^31 records apart."""
    one, other = z3.Ints("one other")  # records of the two batches
    records = z3.And(one >= 0, one < COUNT(i), other >= 0, other < COUNT(j))
    near = POSITION(j) + other - POSITION(i) - one < MODULUS
    two = z3.And(_ordered(view, i, j), _of_one(i, j), EPOCH(i) == EPOCH(j), records, near)
    return z3.Implies(two, (SEQUENCE(i) + one) % MODULUS != (SEQUENCE(j) + other) % MODULUS)


PROPERTIES = (
    no_gap_no_duplicate,
    no_sequence_twice,
    state_follows_log,
    offsets_are_dense,
    no_gap_at_epoch_start,
    no_gap_at_log_start,
    epochs_never_go_back,
)


def is_asked(place: Any) -> Any:
    """The request is a copy of a batch."""
    terms = (PRODUCER_ID(place), EPOCH(place), SEQUENCE(place), COUNT(place))
    return z3.And(*(term == ASKED[name] for name, term in zip(ASKED, terms, strict=True)))


@conjunct()
def acknowledged_is_stored(answer: Response, view: View) -> Any:
    """Every acknowledged batch is in the log, as it was sent, at the offset in the answer."""
    if answer.error is not ErrorCode.NONE:
        return z3.BoolVal(True)
    # at the end, or among the producer's last batches
    places = [LENGTH, *chain(ASKED["producer_id"], LENGTH)]
    return z3.Or(*(z3.And(_in_log(view, i), is_asked(i), OFFSET(i) == term_of(answer.offset)) for i in places))


@conjunct()
def recent_retry_is_acknowledged(answer: Response, view: View) -> Any:  # noqa: ARG001 - one signature
    """A retry of one of the last five batches is never refused."""
    if answer.error is ErrorCode.NONE:
        return z3.BoolVal(True)
    places = chain(ASKED["producer_id"], LENGTH, CACHED)
    recent = [z3.And(place >= 0, EPOCH(place) == EPOCH(places[0]), is_asked(place)) for place in places]
    return z3.Implies(ASKED["producer_id"] >= 0, z3.Not(z3.Or(*recent)))


@conjunct()
def next_is_accepted(answer: Response, view: View) -> Any:  # noqa: ARG001
    """The batch that has to come next is never refused."""
    if answer.error not in {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH}:
        return z3.BoolVal(True)
    last = LAST(ASKED["producer_id"], LENGTH)
    same = z3.And(ASKED["epoch"] == EPOCH(last), ASKED["sequence"] == successor(last))
    later = z3.And(ASKED["epoch"] > EPOCH(last), ASKED["sequence"] == 0)
    return z3.Not(z3.If(last >= 0, z3.Or(same, later), ASKED["sequence"] == 0))


ANSWERS = (acknowledged_is_stored, recent_retry_is_acknowledged, next_is_accepted)


def safety(runs: Mapping[Action, Sequence[Outcome]]) -> Iterator[Query]:
    """The invariant gives the properties of the log, and of each answer."""
    yield from of_properties(ASKING, PROPERTIES, BEFORE)
    for goal in ANSWERS:
        for act, outcomes in runs.items():
            answering = [o for o in outcomes if o.error is None and o.value.response is not NO_ANSWER]
            wrong = [
                z3.And(o.condition, *o.value.log.entries.facts(), z3.Not(goal(o.value.response, after(o))))
                for o in answering
            ]
            if not all(z3.is_false(z3.simplify(formula)) for formula in wrong):
                yield ASKING.query("safety", goal.name, goal.conjunct, disjunction(wrong), outcomes, act)


def answered_in_flight(in_flight: int) -> Conjunct:
    """The property that retries are answered, for some batches in flight."""
    says = f"With {in_flight} batches in flight each retry is answered with its first copy's offset."
    return Conjunct(name="RetryInFlightIsAnswered", says=says)


def retry_in_window(machine: type[PartitionLog], in_flight: int) -> Query:
    """With some batches in flight, a retry of any of them is a duplicate with the offset of the first copy.

    A client waits for its oldest batch before it sends more than ``in_flight``, and a leader appends in order. So when
    a retry comes, at most ``in_flight`` - 1 later batches of its epoch are in the log.
    """
    request = Batch(**{name: Number(term) for name, term in ASKED.items()})  # type: ignore[arg-type]
    log = any_state(machine, CONSTANTS).log
    bounds = [z3.And(state.size >= 0, state.size <= CACHED) for state in _states(PRODUCERS_ASKED)]
    outcomes = explore(lambda: log.duplicate_offset(request) if log.is_duplicate(request) else None, bounds)
    places = chain(ASKED["producer_id"], LENGTH, in_flight)
    wrong = []
    for outcome in outcomes:
        answered = outcome.error is None and outcome.value is not None
        for place in places:
            sent = z3.And(PRODUCER >= 0, place >= 0, EPOCH(place) == EPOCH(places[0]), is_asked(place))
            right = z3.BoolVal(False) if not answered else OFFSET(place) == term_of(outcome.value)
            wrong.append(z3.And(outcome.condition, sent, z3.Not(right)))
    goal = answered_in_flight(in_flight)
    given = [*facts(None), is_rightful(), ASKED["producer_id"] == PRODUCER]
    return ASKING.query("safety", f"{in_flight} in flight", goal, disjunction(wrong), facts=given)


def too_many_in_flight(machine: type[PartitionLog]) -> Query:
    """With one batch more in flight than the cache holds there is a retry without an answer, in the smallest log."""
    query = retry_in_window(machine, CACHED + 1)
    smallest = [LENGTH == CACHED + 1, TAKEN == 0, PRODUCER == 0, SEQUENCE(0) == 0]
    for place in range(CACHED + 1):
        at = z3.IntVal(place)
        of = {EACH_PRODUCER: (PRODUCER,), EACH_PLACE: (at,), EACH_PAIR: (at, at), Terms(): ()}
        smallest += [PRODUCER_ID(at) == PRODUCER, EPOCH(at) == 0, LAST(PRODUCER, at) == place - 1, COUNT(at) <= 2]
        smallest += [defined_position(at), *(each(BEFORE, *of[each.terms]) for each in INVARIANT)]
    return replace(query, kind="limit", facts=[*query.facts, *smallest], tell=tell_on_reference)


def tell_on_reference(model: Any) -> str:
    """The solution, run on the reference itself: append, retry, and what the leader says."""
    log = Log()
    lines = []
    for place in range(CACHED + 1):
        terms = {name: f(z3.IntVal(place)) for name, f in (("epoch", EPOCH), ("sequence", SEQUENCE), ("count", COUNT))}
        batch = Batch(producer_id=0, **{name: value(model, term) for name, term in terms.items()})
        assert log.append_error(batch) is ErrorCode.NONE, "the solution is a log that the reference builds"
        lines.append(f"append: sequence {batch.sequence} records {batch.count}, offset {log.log_end_offset}")
        log = log.appended(batch)
    retry = Batch(**{name: value(model, term) for name, term in ASKED.items()})
    cached = ", ".join(str(cell.sequence) for cell in log.producers[0].batches)
    lines.append("no answer arrives; all of them are in flight")
    lines.append(f"the leader remembers the batches with sequence {cached}")
    lines.append(f"retry: sequence {retry.sequence} records {retry.count}")
    known = f"duplicate at offset {log.duplicate_offset(retry)}" if log.is_duplicate(retry) else "not a duplicate"
    lines.append(f"the leader: {known}, {log.append_error(retry).name}")
    return "\n".join(lines)


# --- a solution as text -------------------------------------------------------------------------------------------


def _asked(model: Any, act: Action | None) -> list[str]:
    names = ASKED if act is None else [DOMAINS[domain] for domain in act.domains]
    request = ", ".join(f"{name} {value(model, ASKED[name])}" for name in names)
    return [f"request: {request}" if act is None else f"action: {act.name}({request})"]


def _answer(model: Any, state: PartitionLog) -> list[str]:
    answer = state.response
    if answer is NO_ANSWER:
        return []
    return [f"answer: {answer.error.name}, offset {value(model, term_of(answer.offset))}"]


def _state(model: Any, view: View) -> list[str]:
    length = value(model, view.length)
    lines = [f"  log: {length} batches, end offset {value(model, end(view.length))}"]
    ids = dict.fromkeys(value(model, term) for term in PRODUCERS_ASKED)
    for producer_id in ids:
        number = z3.IntVal(producer_id)
        places = [place for place in (value(model, term) for term in chain(number, view.length)) if place >= 0]
        stored = [_batch(model, place) for place in sorted(set(places))]
        lines.append(f"  last batches of producer {producer_id}: {'; '.join(stored) or 'none'}")
        state = producer_terms(view.producers, number)
        lines.append(f"  known of producer {producer_id}: {_known(model, state)}")
    offset = value(model, view.taken_offset)
    lines.append(f"  snapshot: of the first {value(model, view.taken)} batches, offset {offset}")
    return lines


def _batch(model: Any, place: int) -> str:
    epoch, sequence, count, offset = (value(model, f(z3.IntVal(place))) for f in (EPOCH, SEQUENCE, COUNT, OFFSET))
    return f"epoch {epoch} sequence {sequence} records {count} at offset {offset}"


def _known(model: Any, state: ProducerTerms) -> str:
    if not truth(model, state.known):
        return "nothing"
    cells = [tuple(value(model, term) for term in cell) for cell in state.batches[: value(model, state.size)]]
    shown = "; ".join(f"sequence {s} records {c} at offset {o}" for s, c, o in reversed(cells))
    return f"epoch {value(model, state.epoch)}, cached: {shown or 'nothing'}"


TELLING = Telling(before=BEFORE, after=after, state=_state, asked=_asked, answer=_answer)
ASKING = Asking(
    invariant=INVARIANT,
    hypotheses=hypotheses,
    facts=facts,
    telling=TELLING,
    readable=READABLE,
    run=lambda machine, act: run_action(machine, act, CONSTANTS),
    broken=each_way(broken),
    taken=taken,
    never=frozenset({"ExpireProducer"}),
)


# --- the proof ------------------------------------------------------------------------------------------------------


def queries(overrides: Mapping[str, str]) -> Iterator[Query]:
    """All queries, with some rules replaced by mutants or none."""
    machine = machine_for(overrides)
    yield from lemmas(machine)
    yield from initiation(machine)
    runs: dict[Action, Sequence[Outcome]] = {}
    yield from ASKING.of_actions(machine, runs)
    yield from safety(runs)
    yield retry_in_window(machine, CACHED)
    if not overrides:
        yield too_many_in_flight(machine)
        yield from _expiry(machine)


def _expiry(machine: type[PartitionLog]) -> Iterator[Query]:
    """The assumption that producers do not expire is needed."""
    constants = replace(CONSTANTS, expiration=True)
    act = next(act for act in actions(machine) if act.name == "ExpireProducer")
    outcomes = run_action(machine, act, constants)
    return (query for query in ASKING.consecution(act, outcomes, "limit") if query.goal.name == "StateFollowsLog")


PROOF = Proof(
    name="append",
    module="PartitionLog",
    rests_on=("SnapshotOf", "AcceptsUnknownProducer"),
    title="no gap, no duplicate, and retries of up to five batches in flight are answered, for a log of any length",
    conjuncts=tuple(each.conjunct for each in INVARIANT),
    properties=(*(each.conjunct for each in (*PROPERTIES, *ANSWERS)), answered_in_flight(CACHED)),
    queries=queries,
)
