"""Proofs by induction over the steps of a machine, as queries that z3 answers.

An invariant is a list of named conjuncts. A proof asks, each as a query of its own:

``lemma``        a consequence of only the definitions, by induction over the log
``initiation``   the initial state has every conjunct
``consecution``  an action keeps a conjunct: invariant before, action, conjunct false after
``witness``      the action can be taken in a state that has the invariant, which must have a solution
``safety``       the invariant gives a property: invariant, property false
``limit``        an assumption is needed: the same without it, which must have a solution, a counterexample

The others must have no solution. The variables that they quantify over (producers, places in the log) are constants in
the negated goal, and instances at the terms of the query in the hypotheses. So no query has a quantifier, and z3
decides it. Leaving instances out is sound: fewer hypotheses prove less.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from kafka_eos.machines.machine import Action
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.registry import Model
from kafka_eos_checks.proofs.symbolic import Outcome

KINDS = ("lemma", "initiation", "consecution", "witness", "safety", "limit")
EXPECTED = {"witness": "can be taken", "limit": "has a counterexample"}  # of the others: "proved"
TIMEOUT = 60.0  # seconds for one query
NO_SOLUTION, SOLUTION, UNDECIDED = "no solution", "a solution", "undecided"
RAISES = "the reference raises"
"""In the evidence of a solution in which the reference ends with an error, so that there is no state after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conjunct:
    """A conjunct of an invariant, or a property.

    Attributes:
        name: as in the TLA+ module where it has one.
        says: one sentence.
        documentation: true for a conjunct that no query needs.
    """

    name: str
    says: str
    documentation: bool = False


IS_TAKEN = Conjunct(name="IsTaken", says="The invariant and the action do not contradict each other.")
"""The goal of an action's witness: what is proved about the action is not vacuous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question to z3.

    Attributes:
        kind: one of ``KINDS``.
        step: the action, or what else the query is about; with kind and proof it groups queries into a verdict.
        goal: the conjunct or property.
        hypotheses: conjunct -> its instances.
        facts: definitions and the transition.
        negated: the goal is false.
        tell: a solution as text.
        readable: what a solution should fulfil to be read easily, if one does.
    """

    kind: str
    step: str
    goal: Conjunct
    hypotheses: Mapping[str, Sequence[Any]]
    facts: Sequence[Any]
    negated: Any
    tell: Callable[[Any], str]
    readable: Sequence[Any] = ()

    @property
    def expected(self) -> str:
        """The answer that the proof needs."""
        return SOLUTION if self.kind in EXPECTED else NO_SOLUTION


def value(model: Any, term: Any) -> int:
    """A number in a solution."""
    return int(model.eval(term, model_completion=True).as_long())


def truth(model: Any, formula: Any) -> bool:
    """A truth value in a solution."""
    return bool(z3.is_true(model.eval(formula, model_completion=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """The functions that tell the solutions of a proof.

    Attributes:
        before: the state before an action, as the invariant sees it.
        after: the state after one of its ways.
        state: a state in a solution, as lines.
        asked: the action with its arguments in a solution, as lines; None is no action.
        answer: the answer in the state after, as lines.
    """

    before: Any
    after: Callable[[Outcome], Any]
    state: Callable[[Any, Any], list[str]]
    asked: Callable[[Any, Action | None], list[str]]
    answer: Callable[[Any, Any], list[str]] = lambda model, state: []  # noqa: ARG005


@dataclass(frozen=True, slots=True)
class Story:
    """Tells a solution: the state before, the action, the state after, and what is broken."""

    telling: Telling
    action: Action | None
    outcomes: tuple[Outcome, ...]
    conjunct: Conjunct

    def __call__(self, model: Any) -> str:
        """The story of a solution."""
        telling = self.telling
        lines = ["before", *telling.state(model, telling.before), *telling.asked(model, self.action)]
        taken = next((outcome for outcome in self.outcomes if truth(model, outcome.condition)), None)
        if taken is not None and taken.error is not None:
            lines.append(f"{RAISES} {type(taken.error).__name__}: {taken.error}")
        elif taken is not None and truth(model, taken.crashed):
            lines.append(f"{RAISES} an error in one of its rules")
        elif taken is not None:
            lines += [*telling.answer(model, taken.value), "after", *telling.state(model, telling.after(taken))]
        return "\n".join([*lines, f"broken: {self.conjunct.name}. {self.conjunct.says}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer of z3 to a query, with the solution as text."""

    query: Query
    found: str
    seconds: float
    evidence: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is what the proof needs."""
        return self.found == self.query.expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """An invariant of a machine and the queries that prove it.

    Attributes:
        name: the proof's name.
        title: what is proved, in one line.
        conjuncts: the invariant.
        queries: the queries for a set of overrides (rule -> mutant), none for the rules as they are.
        properties: what follows from the invariant: the goals of the queries of the kind "safety".
        claims: ids of the ledger's claims that it settles.
        module: the TLA+ module of the machine, "" for none.
        rests_on: the rules that Kafka has otherwise (``spec/releases.toml``) and with which the proof fails.
    """

    name: str
    title: str
    conjuncts: Sequence[Conjunct]
    queries: Callable[[Mapping[str, str]], Iterator[Query]]
    properties: Sequence[Conjunct] = ()
    claims: tuple[str, ...] = ()
    module: str = ""
    rests_on: tuple[str, ...] = ()

    @property
    def says(self) -> str:
        """The title, and the repaired rules that the proof rests on."""
        return f"{self.title}; rests on the repair of {', '.join(self.rests_on)}" if self.rests_on else self.title

    def is_refuted_by(self, mutant: Model) -> bool:
        """Whether a mutant has to make a query fail: its entry in the registry says so."""
        return self.name in mutant.proofs


_known: list[Any] = []  # facts, hypotheses and omission of the last query, and the solver that holds them


def _solver(query: Query, without: str) -> Any:
    """A solver that holds a query's facts and hypotheses; the solver of the query before, if they are the same."""
    same = _known and _known[0] is query.facts and _known[1] is query.hypotheses and _known[2] == without
    if not same:
        solver = z3.Solver()
        solver.set("timeout", int(TIMEOUT * 1000))
        solver.add(*query.facts)
        for name, instances in query.hypotheses.items():
            if name != without:
                solver.add(*instances)
        _known[:] = [query.facts, query.hypotheses, without, solver]
    return _known[3]


def ask(query: Query, without: str = "", *, tell: bool = True) -> Answer:
    """Put a query to z3.

    Args:
        query: the query.
        without: a conjunct whose instances are left out.
        tell: whether a solution is wanted as text.
    """
    began = time.perf_counter()
    if z3.is_false(z3.simplify(query.negated)):  # an action that cannot be taken, or does not touch what the goal names
        return Answer(query=query, found=NO_SOLUTION, seconds=time.perf_counter() - began)
    solver = _solver(query, without)
    solver.push()
    solver.add(query.negated)
    result = solver.check()
    found = {"unsat": NO_SOLUTION, "sat": SOLUTION}.get(str(result), UNDECIDED)
    evidence = ""
    if found == SOLUTION and tell:
        model = solver.model()
        solver.add(*query.readable)
        evidence = query.tell(solver.model() if solver.check() == z3.sat else model)
    solver.pop()
    return Answer(query=query, found=found, seconds=time.perf_counter() - began, evidence=evidence)


@dataclass(slots=True)
class _Group:
    """The answers to the queries about one action or property, and the time they and their preparation took."""

    answers: list[Answer] = field(default_factory=list)
    seconds: float = 0.0


def discharge(proof: Proof, on_query: Callable[[Query], None] | None = None) -> Iterator[Verdict]:
    """Prove: one verdict for each action and property, with its queries and their times as evidence.

    A verdict's time includes the symbolic execution of its action.
    """
    groups: dict[tuple[str, str], _Group] = {}
    began = time.perf_counter()
    for query in proof.queries({}):
        if on_query is not None:
            on_query(query)
        group = groups.setdefault((query.kind, query.step), _Group())
        group.answers.append(ask(query))
        now = time.perf_counter()
        group.seconds, began = group.seconds + now - began, now
    if proof.properties:
        safety = [group for (kind, _), group in groups.items() if kind == "safety"]
        shown = {answer.query.goal.name for group in safety for answer in group.answers}
        assert shown == {each.name for each in proof.properties}, f"{proof.name}: its queries show {sorted(shown)}"
    for (kind, step), group in groups.items():
        yield _verdict(proof, kind, step, group)


def _verdict(proof: Proof, kind: str, step: str, group: _Group) -> Verdict:
    expected = EXPECTED.get(kind, "proved")
    failing = [answer for answer in group.answers if not answer.ok]
    found = expected
    if failing:
        undecided = all(answer.found == UNDECIDED for answer in failing)
        names = ", ".join(answer.query.goal.name for answer in failing)
        found = f"undecided: {names}" if undecided else f"not {expected}: {names}"
    lines = [f"{a.seconds:6.2f} s  {a.found}: {a.query.goal.name}. {a.query.goal.says}" for a in group.answers]
    told = [answer for answer in group.answers if answer.evidence and kind != "witness"]
    lines += [f"\n{answer.evidence}" for answer in told[:1]]
    return Verdict(
        check="proof",
        name=f"{proof.name}: {kind}, {step}",
        expected=expected,
        found=found,
        ok=not failing,
        seconds=group.seconds,
        figures={"queries": len(group.answers), "slowest": f"{max(a.seconds for a in group.answers):.2f} s"},
        evidence="\n".join(lines),
        claims=proof.claims if kind == "safety" else (),
        title=proof.says,
    )


def first_failure(queries: Iterable[Query]) -> Answer | None:
    """The first query that is not answered as the proof needs it, with its solution."""
    return next(failures(queries), None)


def failures(queries: Iterable[Query]) -> Iterator[Answer]:
    """The queries that are not answered as the proof needs it, with their solutions."""
    return (answer for answer in map(ask, queries) if not answer.ok)


def refute(proof: Proof, mutant: Model) -> Verdict:
    """The verdict on a mutant: some query must fail, and the verdict says which.

    A query that fails because the mutant raises an error says only that the mutant does not work.
    """
    began = time.perf_counter()
    failure = None
    for failure in failures(query for query in proof.queries(mutant.overrides) if query.kind not in EXPECTED):
        if RAISES not in failure.evidence:
            break
    raises = failure is not None and RAISES in failure.evidence
    found = "every query is discharged"
    if failure is not None:
        query = failure.query
        how = "fails only by an error of the reference" if raises else "fails"
        found = f"{query.kind} {how}: {query.step}, {query.goal.name}"
    return Verdict(
        check="proof",
        name=f"{proof.name}: mutant {mutant.name}",
        expected="a query fails",
        found=found,
        ok=failure is not None and failure.found == SOLUTION and not raises,
        seconds=time.perf_counter() - began,
        evidence="" if failure is None else failure.evidence,
        title=mutant.title,
    )


def of_release(proof: Proof, rules: Mapping[str, str], release: str) -> Verdict:
    """The verdict on a proof with every rule of a release that it does not rest on the repair of.

    Args:
        proof: the proof.
        rules: all rules that the release has otherwise, each with the operator that is Kafka's.
        release: the release of Kafka.
    """
    began = time.perf_counter()
    kept = {rule: other for rule, other in rules.items() if rule not in proof.rests_on}
    repaired = [rule for rule in proof.rests_on if rule in rules]
    expected = f"proved with the repair of {', '.join(repaired)}" if repaired else "proved"
    if not kept:
        same = "by the same rules" if not repaired else "with these repairs the rules are those of the proof itself"
        return Verdict(
            check="proof",
            name=f"{proof.name}: Kafka {release}",
            expected=expected,
            found=expected,
            ok=True,
            unjudged=f"{expected}: {same}",
            title=proof.title,
        )
    failure = first_failure(proof.queries(kept))
    found = expected
    if failure is not None:
        found = f"{failure.query.kind} is {failure.found}: {failure.query.step}, {failure.query.goal.name}"
    return Verdict(
        check="proof",
        name=f"{proof.name}: Kafka {release}",
        expected=expected,
        found=found,
        ok=failure is None,
        seconds=time.perf_counter() - began,
        evidence="" if failure is None else failure.evidence,
        title=f"{proof.title}; with Kafka's own {', '.join(kept)}",
    )


def minimal(proof: Proof) -> Iterator[Verdict]:
    """The verdicts on conjuncts: without each some query has a solution, or it is marked as documentation."""
    queries = [query for query in proof.queries({}) if query.kind not in EXPECTED]
    for conjunct in proof.conjuncts:
        began = time.perf_counter()
        users = [query for query in queries if query.goal.name != conjunct.name or query.kind == "safety"]
        users = [query for query in users if conjunct.name in query.hypotheses]
        lost, found = None, "documentation"
        for query in reversed(users):  # the properties first
            answer = ask(query, conjunct.name, tell=False)
            if answer.found == SOLUTION:
                lost, found = query, "needed"
                break
            if answer.found == UNDECIDED:
                found = UNDECIDED
        needed = "documentation" if conjunct.documentation else "needed"
        yield Verdict(
            check="proof",
            name=f"{proof.name}: conjunct {conjunct.name}",
            expected=needed,
            found=found,
            ok=found == needed,
            seconds=time.perf_counter() - began,
            evidence="" if lost is None else f"without it fails {lost.kind}: {lost.step}, {lost.goal.name}",
            title=conjunct.says,
        )
