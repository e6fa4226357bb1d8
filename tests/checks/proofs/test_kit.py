"""The kit of the proofs: the queries from an invariant and from the paths through an action, and their failures."""

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import z3

from kafka_eos.machines.machine import Action
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.proofs import induction
from kafka_eos_checks.proofs.command import proofs
from kafka_eos_checks.proofs.induction import (
    NO_SOLUTION,
    SOLUTION,
    UNDECIDED,
    Conjunct,
    Proof,
    Telling,
    ask,
    discharge,
    minimal,
    refute,
)
from kafka_eos_checks.proofs.kit import Asking, Clause, Terms, conjunct, each_way, of_properties
from kafka_eos_checks.proofs.symbolic import Outcome

COUNT, OTHER = z3.Ints("count other")
RAISE = Action(name="Raise", domains=(), method="raise_it")


@conjunct()
def is_positive(count: Any) -> Any:
    """There is one."""
    return count > 0


@conjunct(Terms((OTHER,), ((OTHER,), (OTHER - 1,))))
def is_below(count: Any, bound: Any) -> Any:
    """It is below every bound above ten."""
    return z3.Implies(bound > 10, count < bound)


INVARIANT = (is_positive, is_below)


def asking(invariant: Sequence[Clause] = INVARIANT, step: int = 1) -> Asking:
    """A counter that goes up by a step while it is below five."""
    return Asking(
        invariant=invariant,
        hypotheses=lambda: {each.name: each.instances(COUNT) for each in invariant},
        telling=Telling(before=COUNT, after=lambda o: o.value, state=lambda *_: [], asked=lambda *_: []),
        run=lambda *_: [Outcome(COUNT < 5, COUNT + step)],
        broken=each_way(lambda outcome, goal: z3.And(outcome.condition, z3.Not(goal.holds(outcome.value)))),
        taken=lambda outcome: outcome.condition,
    )


def found(queries: Any) -> dict[str, str]:
    return {f"{query.kind} {query.goal.name}": ask(query).found for query in queries}


def test_an_invariant_that_every_step_keeps_is_proved_and_the_action_has_a_witness() -> None:
    kit = asking()
    outcomes = kit.run(None, RAISE)
    assert found(kit.consecution(RAISE, outcomes)) == {
        "consecution IsPositive": NO_SOLUTION,
        "consecution IsBelow": NO_SOLUTION,
    }
    assert found([kit.witness(RAISE, outcomes)]) == {"witness IsTaken": SOLUTION}


def test_a_step_that_breaks_a_clause_is_found() -> None:
    kit = asking(step=-1)
    assert found(kit.consecution(RAISE, kit.run(None, RAISE)))["consecution IsPositive"] == SOLUTION


def test_an_action_that_contradicts_the_invariant_has_no_witness() -> None:
    @conjunct()
    def is_large(count: Any) -> Any:
        return count > 7

    kit = asking((is_large,))
    assert found([kit.witness(RAISE, kit.run(None, RAISE))]) == {"witness IsTaken": NO_SOLUTION}


def test_an_action_without_a_path_has_no_witness_either() -> None:
    assert found([asking().witness(RAISE, [])]) == {"witness IsTaken": NO_SOLUTION}


def test_initiation_assumes_nothing_and_fails_where_the_first_state_is_wrong() -> None:
    assert found(asking().initiation(z3.IntVal(1))) == {
        "initiation IsPositive": NO_SOLUTION,
        "initiation IsBelow": NO_SOLUTION,
    }
    assert found(asking().initiation(z3.IntVal(0)))["initiation IsPositive"] == SOLUTION
    assert all(not query.hypotheses for query in asking().initiation(z3.IntVal(1)))


@pytest.mark.parametrize(("bound", "expected"), [(0, NO_SOLUTION), (1, SOLUTION)])
def test_a_property_follows_from_the_invariant_or_does_not(bound: int, expected: str) -> None:
    @conjunct()
    def is_more(count: Any) -> Any:
        return count > bound

    assert found(of_properties(asking(), [is_more], COUNT)) == {"safety IsMore": expected}


@pytest.fixture
def proof() -> Proof:
    kit = asking()
    outcomes = kit.run(None, RAISE)
    queries = [*kit.consecution(RAISE, outcomes), kit.witness(RAISE, outcomes)]
    conjuncts = [
        Conjunct(name="IsPositive", says="", documentation=True),
        Conjunct(name="IsBelow", says="It is below every bound above ten."),
    ]
    return Proof(name="counter", title="", conjuncts=conjuncts, queries=lambda _: iter(queries))


def test_what_z3_does_not_know_is_not_proved_and_not_witnessed(proof: Proof, monkeypatch: pytest.MonkeyPatch) -> None:
    proved, taken = discharge(proof)
    assert (proved.found, taken.found) == ("proved", "can be taken")
    assert "before" not in taken.evidence, "the solution of a witness is no counterexample"
    monkeypatch.setattr(z3.Solver, "check", lambda _: z3.unknown)
    found = [(verdict.ok, verdict.found) for verdict in discharge(proof)]
    assert found == [(False, "undecided: IsPositive, IsBelow"), (False, "undecided: IsTaken")]


def test_a_mutant_is_refuted_by_a_solution_and_not_by_what_z3_does_not_know(
    proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = next(iter(Registry().mutants.values()))
    assert (refute(proof, mutant).ok, refute(proof, mutant).found) == (False, "every query is discharged")
    lowering = asking(step=-1)
    falls = replace(proof, queries=lambda _: lowering.consecution(RAISE, lowering.run(None, RAISE)))
    assert (refute(falls, mutant).ok, refute(falls, mutant).found) == (True, "consecution fails: Raise, IsPositive")
    monkeypatch.setattr(z3.Solver, "check", lambda _: z3.unknown)
    assert not refute(falls, mutant).ok


@pytest.mark.parametrize("fails", [{"error": LookupError("no entry")}, {"crashed": z3.BoolVal(True)}])
def test_a_mutant_that_only_raises_an_error_refutes_nothing(fails: dict[str, Any], proof: Proof) -> None:
    mutant = next(iter(Registry().mutants.values()))
    raising = replace(
        asking(),
        run=lambda *_: [Outcome(COUNT < 5, COUNT, **fails)],
        broken=each_way(lambda outcome, _: outcome.condition),
    )
    queries = [*raising.consecution(RAISE, raising.run(None, RAISE))]
    verdict = refute(replace(proof, queries=lambda _: iter(queries)), mutant)
    assert (verdict.ok, verdict.found) == (False, "consecution fails only by an error of the reference: Raise, IsBelow")
    lowering = asking(step=-1)
    queries += lowering.consecution(RAISE, lowering.run(None, RAISE))
    assert refute(replace(proof, queries=lambda _: iter(queries)), mutant).ok


def test_a_step_with_a_solution_is_not_called_undecided_for_another_query(
    proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowering = asking(step=-1)
    falls = replace(proof, queries=lambda _: lowering.consecution(RAISE, lowering.run(None, RAISE)))
    monkeypatch.setattr(
        induction,
        "ask",
        lambda query: replace(ask(query), found=UNDECIDED) if query.goal.name == "IsBelow" else ask(query),
    )
    assert [verdict.found for verdict in discharge(falls)] == ["not proved: IsPositive, IsBelow"]


def test_a_conjunct_of_which_z3_does_not_know_whether_it_is_needed_is_neither(
    proof: Proof, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [verdict.found for verdict in minimal(proof)] == ["documentation", "documentation"]
    monkeypatch.setattr(z3.Solver, "check", lambda _: z3.unknown)
    assert [(verdict.ok, verdict.found) for verdict in minimal(proof)] == [(False, UNDECIDED)] * 2


def test_a_hypothesis_is_taken_at_the_terms_of_its_clause_and_a_goal_at_its_constants() -> None:
    below = INVARIANT[1]
    assert below.holds(COUNT).eq(is_below(COUNT, OTHER))
    assert [one.sexpr() for one in below.instances(COUNT)] == [
        is_below(COUNT, OTHER).sexpr(),
        is_below(COUNT, OTHER - 1).sexpr(),
    ]
    assert below.conjunct == Conjunct(name="IsBelow", says="It is below every bound above ten.")


def test_a_proof_says_the_rules_whose_repair_it_rests_on_and_no_others() -> None:
    registry, releases = Registry(), Releases()
    rests_on = {proof.name: set(proof.rests_on) for proof in proofs(())}
    for proof in proofs(()):
        rules = [rule for name in releases.releases for rule in releases.of_module(proof.module, name).items()]
        refuting = [dict(mutant.overrides) for mutant in registry.mutants.values() if proof.is_refuted_by(mutant)]
        needed = {rule for rule, other in rules if {rule: other} in refuting}
        if proof.name == "fencing":  # it uses the invariant of the coordinator's proof
            needed |= rests_on["coordinator"]
        assert rests_on[proof.name] == needed, proof.name
        doc = importlib.import_module(f"kafka_eos_checks.proofs.{proof.name}").__doc__ or ""
        for rule in needed:
            assert rule in proof.says
            assert rule in doc.splitlines()[0]
