"""The kit of the proofs: turn an invariant, its terms and the ways through an action into queries.

A proof's file states the invariant, the lemmas and the properties, and how the machine is run on terms. The kit asks
what every proof by induction asks: initiation, consecution and a witness for each action.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from kafka_eos.machines.machine import Action, actions
from kafka_eos.machines.spec_mapping import camel_case
from kafka_eos_checks.proofs.induction import IS_TAKEN, Conjunct, Query, Story, Telling
from kafka_eos_checks.proofs.symbolic import Outcome, disjunction

Hypotheses = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms that a formula is about, in place of a quantifier.

    Attributes:
        goal: the constants of a negated goal, arbitrary ones.
        taken_at: the terms at which a hypothesis is taken, a tuple for each instance.
    """

    goal: tuple[Any, ...] = ()
    taken_at: tuple[tuple[Any, ...], ...] = ((),)


@dataclass(frozen=True, slots=True)
class Clause:
    """A conjunct of an invariant, or a property, as a formula of a state and of some terms.

    Attributes:
        conjunct: its name and sentence.
        formula: a function of a state, and of as many terms as ``terms`` has.
        terms: the terms that the clause is about.
    """

    conjunct: Conjunct
    formula: Callable[..., Any]
    terms: Terms = Terms()

    def __call__(self, state: Any, *terms: Any) -> Any:
        """The clause in a state, for any terms."""
        return self.formula(state, *terms)

    @property
    def name(self) -> str:
        """The name of the conjunct."""
        return self.conjunct.name

    def holds(self, state: Any) -> Any:
        """The clause in a state, for the terms of the goal."""
        return self.formula(state, *self.terms.goal)

    def instances(self, state: Any) -> list[Any]:
        """The clause in a state, as hypothesis."""
        return [self.formula(state, *terms) for terms in self.terms.taken_at]


def conjunct(terms: Terms = Terms(), *, documentation: bool = False) -> Callable[[Callable[..., Any]], Clause]:
    """Make a clause of a formula, by its name and the sentence of its docstring.

    Args:
        terms: what the formula is about, besides a state.
        documentation: whether no query needs it.
    """

    def made(formula: Callable[..., Any]) -> Clause:
        name = camel_case(formula.__name__, capital=True)
        says = inspect.getdoc(formula) or ""
        return Clause(Conjunct(name=name, says=says, documentation=documentation), formula, terms)

    return made


def no_facts(act: Action | None) -> list[Any]:  # noqa: ARG001 - as Asking.facts is called
    """No facts."""
    return []


@dataclass(frozen=True, kw_only=True)
class Asking:
    """The common parts of the queries of a proof.

    Attributes:
        invariant: its clauses.
        hypotheses: the invariant before an action, at the terms that matter; the same object each time.
        facts: the facts from definitions, lemmas and the model, and for an action those about its request.
        telling: how solutions are told.
        readable: what a solution should fulfil to be read easily.
        run: every way through an action of a machine.
        broken: for the ways through an action and a clause: one way is taken, and the clause is false afterwards.
        taken: the action goes this way, which has no error.
        never: actions that cannot be taken with the constants of the proof; every other one must have a witness.
    """

    invariant: Sequence[Clause]
    hypotheses: Callable[[], Hypotheses]
    telling: Telling
    run: Callable[[Any, Action], list[Outcome]]
    broken: Callable[[Sequence[Outcome]], Callable[[Clause], Any]]
    taken: Callable[[Outcome], Any]
    facts: Callable[[Action | None], Sequence[Any]] = no_facts
    readable: Sequence[Any] = ()
    never: frozenset[str] = field(default=frozenset())

    def query(
        self,
        kind: str,
        step: str,
        goal: Conjunct,
        negated: Any,
        outcomes: Sequence[Outcome] = (),
        act: Action | None = None,
        *,
        known: Hypotheses | None = None,
        facts: Sequence[Any] | None = None,
    ) -> Query:
        """A query, which takes the invariant and the facts for granted.

        Args:
            kind: one of :data:`~kafka_eos_checks.proofs.induction.KINDS`.
            step: the action, or what else it is about.
            goal: what is to be proved.
            negated: its negation.
            outcomes: the ways through the action, for the story of a solution.
            act: the action, for that story.
            known: other hypotheses.
            facts: other facts.
        """
        return Query(
            kind=kind,
            step=step,
            goal=goal,
            hypotheses=self.hypotheses() if known is None else known,
            facts=self.facts(act) if facts is None else facts,
            negated=negated,
            tell=Story(self.telling, act, tuple(outcomes), goal),
            readable=self.readable,
        )

    def initiation(self, state: Any, step: str = "Init", facts: Sequence[Any] = ()) -> Iterator[Query]:
        """An initial state has each conjunct."""
        for each in self.invariant:
            yield self.query("initiation", step, each.conjunct, z3.Not(each.holds(state)), known={}, facts=facts)

    def consecution(self, act: Action, outcomes: Sequence[Outcome], kind: str = "consecution") -> Iterator[Query]:
        """An action keeps each conjunct."""
        known, facts, broken = self.hypotheses(), self.facts(act), self.broken(outcomes)
        for each in self.invariant:
            yield self.query(kind, act.name, each.conjunct, broken(each), outcomes, act, known=known, facts=facts)

    def witness(self, act: Action, outcomes: Sequence[Outcome]) -> Query:
        """The action can be taken in a state that has the invariant: what is proved about it is not vacuous."""
        ways = [self.taken(outcome) for outcome in outcomes if outcome.error is None]
        taken = disjunction([way for way in ways if not z3.is_false(way)])
        return self.query("witness", act.name, IS_TAKEN, taken, facts=self.facts(act))

    def of_actions(self, machine: Any, runs: dict[Action, Sequence[Outcome]]) -> Iterator[Query]:
        """Consecution of each action, and its witness.

        Args:
            machine: the machine that has the actions.
            runs: filled with every way through each action.
        """
        for act in actions(machine):
            runs[act] = self.run(machine, act)
            yield from self.consecution(act, runs[act])
            if act.name not in self.never:
                yield self.witness(act, runs[act])


def each_way(broken: Callable[[Outcome, Clause], Any]) -> Callable[[Sequence[Outcome]], Callable[[Clause], Any]]:
    """``Asking.broken``, made from a function for one way."""
    return lambda outcomes: lambda goal: disjunction([broken(outcome, goal) for outcome in outcomes])


def of_properties(asking: Asking, properties: Sequence[Clause], state: Any) -> Iterator[Query]:
    """The invariant gives each property of a state."""
    for each in properties:
        yield asking.query("safety", each.name, each.conjunct, z3.Not(each.holds(state)))
