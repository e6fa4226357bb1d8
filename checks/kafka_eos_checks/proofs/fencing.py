"""Fencing, with the repaired MayAct and InLog: after an answered InitProducerId nothing older is ended.

The proof runs the actions of ``TransactionCoordinator`` as in :mod:`.coordinator`, whose invariant is used here as
proved, and the leader's rules for epochs in ``TransactionalPartition``. The past is kept next to the state: the
identity that the last answered InitProducerId gave, the number of transactions until then, and which identities were
told that their partition is in which transaction.

Proved: a marker is written, or a client is told of an end, only if every client that was told that it takes part in the
transaction had the identity of the last answered InitProducerId, or a newer one. The same holds for every client whose
EndTxn the coordinator starts to write. A leader that has seen an epoch takes no batch of an older one, and its epoch
never goes back.

Not covered: a batch of an older epoch at a leader that has not seen a newer one, of a client that was never told that
its partition takes part (KIP-890's verification; TLC: Transactions!Fenced, NoHangingTransaction). Assumed: as in
:mod:`.coordinator`.

Spec:  TransactionCoordinator.tla, TransactionalPartition.tla; TLC checks the coordinator's part of the invariant, and
       what follows from it, in spec/proofs/FencingInduction.tla
KIPs:  98, 360, 890
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import z3
from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.machine import Action, actions
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos.machines.transaction_coordinator import ADD, DEAD, EMPTY, END, INIT, Constants, TransactionCoordinator
from kafka_eos.machines.transactional_partition import (
    ABORT,
    COMMIT,
    PLAIN,
    TRANSACTIONAL,
    LogEntry,
    PartitionConstants,
    PartitionProducer,
    TransactionalPartition,
)
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.proofs import coordinator
from kafka_eos_checks.proofs.coordinator import (
    ASKED,
    BEFORE,
    NO_ANSWER,
    NOTED,
    PLACE,
    PLACES,
    RecordTerms,
    View,
    each_record,
    is_not_newer,
    is_request,
    state_is,
    view_of,
)
from kafka_eos_checks.proofs.induction import Conjunct, Proof, Query
from kafka_eos_checks.proofs.kit import Asking, Clause, Terms, conjunct
from kafka_eos_checks.proofs.symbolic import Number, Outcome, disjunction, explore, term_of

ADDED = z3.Function("added", z3.IntSort(), z3.IntSort(), z3.IntSort(), z3.BoolSort())
NUMBER, PRODUCER_ID, EPOCH = z3.Ints("added_number added_producer_id added_epoch")  # what a negated goal is about


@dataclass(frozen=True, slots=True)
class Past:
    """A state with what happened before.

    Attributes:
        view: the state.
        given: producer id and epoch that the last answered InitProducerId gave.
        until: the number of transactions then.
        added: a predicate of number, producer id and epoch: that client was told that its partition takes part.
    """

    view: View
    given: tuple[Any, Any]
    until: Any
    added: Callable[[Any, Any, Any], Any]


NOW = Past(BEFORE, (z3.Int("init_id"), z3.Int("init_epoch")), z3.Int("until"), ADDED)


def past_after(outcome: Outcome) -> Past:
    """The past after an action, from its answer."""
    state, view = outcome.value, view_of(outcome.value, NOTED)
    answer = state.answer
    if answer is NO_ANSWER or answer.error is not ErrorCode.NONE or answer.request not in {INIT, ADD}:
        return Past(view, NOW.given, NOW.until, ADDED)
    if answer.request == INIT:
        given = (term_of(answer.producer_id), term_of(answer.epoch))
        return Past(view, given, view.durable["number"], ADDED)
    replicated = not isinstance(state.appending, coordinator.AnyAppending)
    who = BEFORE.asked if replicated else (ASKED["producer_id"], ASKED["epoch"])
    new = (view.memory["number"], *who)

    def added(*entry: Any) -> Any:
        return z3.Or(ADDED(*entry), z3.And(*(term == known for term, known in zip(entry, new, strict=True))))

    return Past(view, NOW.given, NOW.until, added)


EACH_PLACE = Terms((PLACE,), tuple((i,) for i in PLACES))


@conjunct(EACH_PLACE)
def fenced_is_behind(past: Past, i: Any) -> Any:
    """Whatever goes on after InitProducerId is a later transaction."""

    def is_later(record: RecordTerms) -> Any:
        at_rest = z3.And(record["number"] == past.until, state_is(record, EMPTY, DEAD))
        return z3.Or(record["number"] > past.until, at_rest)

    return each_record(past.view, i, is_later)


@conjunct(EACH_PLACE)
def added_is_behind(past: Past, i: Any) -> Any:
    """The log never goes back before a transaction that a client takes part in."""
    behind = each_record(past.view, i, lambda r: r["number"] >= NUMBER)
    return z3.Implies(past.added(NUMBER, PRODUCER_ID, EPOCH), behind)


@conjunct()
def added_by_newest(past: Past) -> Any:
    """Later transactions have no client that is older than that InitProducerId."""
    later = z3.And(past.added(NUMBER, PRODUCER_ID, EPOCH), past.until < NUMBER)
    return z3.Implies(later, is_not_newer(past.given, (PRODUCER_ID, EPOCH)))


@conjunct()
def init_is_given(past: Past) -> Any:
    """The identity that InitProducerId gave is not newer than the last that was given."""
    return is_not_newer(past.given, past.view.given)


@conjunct()
def added_as_itself(past: Past) -> Any:
    """A partition is added by the identity that the record has."""
    record = past.view.appending
    same = z3.And(past.view.asked[0] == record["producer_id"], past.view.asked[1] == record["epoch"])
    return z3.Implies(is_request(past.view, ADD), same)


@conjunct(EACH_PLACE)
def memory_is_oldest(past: Past, i: Any) -> Any:
    """No record is of an earlier transaction than the coordinator's memory."""
    behind = each_record(past.view, i, lambda r: r["number"] >= past.view.memory["number"])
    return z3.Implies(z3.Not(past.view.loading), behind)


INVARIANT = (
    fenced_is_behind,
    added_is_behind,
    added_by_newest,
    init_is_given,
    added_as_itself,
    memory_is_oldest,
)


def hypotheses() -> dict[str, list[Any]]:
    """The invariant before, and the coordinator's, at the places that matter."""
    return {**coordinator.hypotheses(), **{each.name: each.instances(NOW) for each in INVARIANT}}


ENDED_BY_NEWEST = Conjunct(
    name="EndedByNewest", says="An ended transaction has no client that is older than the last answered InitProducerId."
)


def ended_by_newest(outcome: Outcome) -> Any:
    """See ``ENDED_BY_NEWEST``."""
    state, after = outcome.value, past_after(outcome)
    numbers = [term_of(entry.number) for entry in (*state.markers.added, *state.told.added)]
    old = z3.And(after.added(NUMBER, PRODUCER_ID, EPOCH), z3.Not(is_not_newer(after.given, (PRODUCER_ID, EPOCH))))
    return z3.And(*(z3.Not(z3.And(old, number == NUMBER)) for number in numbers))


ASKED_BY_NEWEST = Conjunct(
    name="AskedByNewest", says="No client ends a transaction that is older than the last answered InitProducerId."
)


def asked_by_newest(outcome: Outcome) -> Any:
    """See ``ASKED_BY_NEWEST``; for an end that the coordinator begins to write."""
    appending = outcome.value.appending
    if isinstance(appending, coordinator.AnyAppending) or appending.request != END:
        return z3.BoolVal(True)
    return is_not_newer(NOW.given, (term_of(appending.asked.producer_id), term_of(appending.asked.epoch)))


def run_action(machine: type[TransactionCoordinator], act: Action) -> list[Outcome]:
    """The ways through an action that have a value; the coordinator's own proof covers the others."""
    return [outcome for outcome in coordinator.run_action(machine, act) if outcome.error is None]


def broken(outcomes: Sequence[Outcome]) -> Callable[[Clause], Any]:
    """A clause is false after the action."""
    pasts = [(outcome.condition, past_after(outcome)) for outcome in _distinct(outcomes)]
    return lambda goal: disjunction([z3.And(condition, z3.Not(goal.holds(past))) for condition, past in pasts])


def of_action(machine: type[TransactionCoordinator], act: Action) -> Iterator[Query]:
    """Consecution of an action, and what it ends."""
    known, facts, outcomes = hypotheses(), coordinator.facts(act), run_action(machine, act)
    yield from ASKING.consecution(act, outcomes)

    def about(kind: str, step: str, goal: Conjunct, negated: Any) -> Query:
        return ASKING.query(kind, step, goal, negated, outcomes, act, known=known, facts=facts)

    asking = [o for o in outcomes if not z3.is_true(asked_by_newest(o))]
    if asking:
        wrong = disjunction([z3.And(o.condition, z3.Not(asked_by_newest(o))) for o in asking])
        yield about("safety", ASKED_BY_NEWEST.name, ASKED_BY_NEWEST, wrong)
    ends = [o for o in outcomes if o.value.markers.added or o.value.told.added]
    if ends:
        wrong = disjunction([z3.And(o.condition, z3.Not(ended_by_newest(o))) for o in ends])
        yield about("safety", ENDED_BY_NEWEST.name, ENDED_BY_NEWEST, wrong)
        yield about("witness", act.name, ENDED_BY_NEWEST, disjunction([o.condition for o in ends]))


def _distinct(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes, those that refuse a request and change nothing as one."""
    refused = [o for o in outcomes if o.value.answer is not NO_ANSWER and o.value.answer.error and _unchanged(o)]
    others = [o for o in outcomes if all(o is not one for one in refused)]
    if not refused:
        return others
    return [Outcome(disjunction([o.condition for o in refused]), refused[0].value), *others]


def _unchanged(outcome: Outcome) -> bool:
    pairs = zip(view_of(outcome.value, NOTED).terms(), BEFORE.terms(), strict=True)
    return all(one.eq(other) for one, other in pairs)


def initiation() -> Iterator[Query]:
    """The initial state has each conjunct: nobody was given anything, and nothing has begun."""
    constants = Constants(
        producer_ids=frozenset(), max_epoch=2, partitions=frozenset(), versions=frozenset(), faults=frozenset(),
        max_faults=0,
    )  # fmt: skip
    view = view_of(TransactionCoordinator.initial(constants), lambda number, commit: z3.BoolVal(False))  # noqa: ARG005
    start = Past(view, (z3.IntVal(-1), z3.IntVal(-1)), z3.IntVal(-1), lambda *entry: z3.BoolVal(False))  # noqa: ARG005
    return ASKING.initiation(start)


ASKING = Asking(
    invariant=INVARIANT,
    hypotheses=hypotheses,
    facts=coordinator.facts,
    telling=coordinator.TELLING,
    run=run_action,
    broken=broken,
    taken=lambda outcome: outcome.condition,
)


# --- the leader -----------------------------------------------------------------------------------------------------

KINDS, VERSIONS = (PLAIN, TRANSACTIONAL, COMMIT, ABORT), (1, 2)
LEADER = Conjunct(name="LeaderFences", says="A leader takes nothing of an older epoch, and its epoch never goes back.")


def of_leader(overrides: Mapping[str, str]) -> Iterator[Query]:
    """A leader's reaction to each kind of batch and marker, of any epoch, under each version of transactions."""
    machine: Any = mutated(TransactionalPartition, overrides) if overrides else TransactionalPartition
    known, seen, sent = z3.Ints("leader_epoch leader_coordinator_epoch sent_epoch")
    for kind, version in product(KINDS, VERSIONS):
        constants = PartitionConstants(
            producer_ids=frozenset(), epochs=frozenset(), max_epoch=2**15 - 1, coordinator_epochs=frozenset(),
            batch_kinds=frozenset(), offsets=frozenset(), transaction_version=version, max_leader_epoch=0,
            index_failures=False, expiration=False, cleaning=False,
        )  # fmt: skip

        def run(constants: Any = constants, kind: str = kind) -> Any:
            empty = machine.empty_log(constants)
            state = machine(constants=constants, log=empty)
            producer = PartitionProducer(
                epoch=Number(known), coordinator_epoch=Number(seen), first_offset=Number(z3.Int("first_offset"))  # type: ignore[arg-type]
            )  # fmt: skip
            log = replace(empty, producers=Map({0: producer}))
            entry = LogEntry(
                kind=kind, producer_id=0, epoch=Number(sent), offset=Number(z3.Int("sent_offset")),  # type: ignore[arg-type]
                coordinator_epoch=Number(z3.Int("sent_coordinator_epoch")),  # type: ignore[arg-type]
            )  # fmt: skip
            check = state.marker_error if entry.is_marker else state.batch_error
            return state.remembered(producer, entry) if check(log, entry) is ErrorCode.NONE else None

        wrong = []
        for outcome in explore(run):
            if outcome.error is not None:
                wrong.append(outcome.condition)
            elif outcome.value is not None:
                bad = z3.Or(sent < known, term_of(outcome.value.epoch) < known)
                wrong.append(z3.And(outcome.condition, bad))
        tell = lambda model: f"the leader's epoch {model[known]}, it takes one of epoch {model[sent]}"  # noqa: E731
        step = f"{LEADER.name}, {kind} of version {version}"
        yield Query(
            kind="safety", step=step, goal=LEADER, hypotheses={}, facts=[], negated=disjunction(wrong), tell=tell
        )


# --- the proof ------------------------------------------------------------------------------------------------------


def queries(overrides: Mapping[str, str]) -> Iterator[Query]:
    """All queries, with some rules replaced by mutants or none."""
    leaders = all(hasattr(TransactionalPartition, snake_case(rule)) for rule in overrides)
    if leaders:
        yield from of_leader(overrides)
    if leaders and overrides:
        return
    yield from initiation()
    machine = coordinator.machine_for(overrides)
    for act in actions(machine):
        yield from of_action(machine, act)


PROOF = Proof(
    name="fencing",
    module="TransactionCoordinator",
    rests_on=coordinator.PROOF.rests_on,
    title="after an answered InitProducerId nothing is ended that an older client takes part in",
    conjuncts=tuple(each.conjunct for each in INVARIANT),
    properties=(ASKED_BY_NEWEST, ENDED_BY_NEWEST, LEADER),
    queries=queries,
)
