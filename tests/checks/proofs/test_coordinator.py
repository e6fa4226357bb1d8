"""The coordinator's proof holds, it can fail, and its assumptions are compared with the reference."""

import re

import pytest
import z3

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.leader import MAX_EPOCH
from kafka_eos.machines.machine import actions
from kafka_eos.machines.transaction_coordinator import NO_EPOCH, Constants, TransactionCoordinator
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.proofs import coordinator
from kafka_eos_checks.proofs.induction import Proof, Query, ask, discharge, minimal
from kafka_eos_checks.proofs.symbolic import Condition, Number, explore

CONSTANTS = Constants(
    producer_ids=frozenset({0}),
    max_epoch=2,
    partitions=frozenset({"p"}),
    versions=frozenset({1, 2}),
    faults=coordinator.FAULTS,
    max_faults=2,
)


@pytest.fixture(scope="module")
def queries() -> list[Query]:
    return list(coordinator.queries({}))


@pytest.fixture(scope="module")
def proof(queries: list[Query]) -> Proof:
    return Proof(
        name="coordinator",
        title="",
        conjuncts=coordinator.PROOF.conjuncts,
        queries=lambda _: iter(queries),
    )


@pytest.mark.thorough  # `make` proves the same
def test_a_decision_is_final_and_no_epoch_is_handed_out_twice(proof: Proof) -> None:
    assert [verdict.name for verdict in discharge(proof) if not verdict.ok] == []


@pytest.mark.thorough  # `make` proves the same
def test_every_action_of_the_machine_is_proved_to_keep_every_conjunct(queries: list[Query]) -> None:
    proved = {(query.step, query.goal.name) for query in queries if query.kind == "consecution"}
    every = {
        (act.name, conjunct.name) for act in actions(TransactionCoordinator) for conjunct in coordinator.PROOF.conjuncts
    }
    assert proved == every
    witnessed = {query.step for query in queries if query.kind == "witness"}
    assert witnessed == {act.name for act in actions(TransactionCoordinator)}


@pytest.mark.parametrize("server", [1, 2])
def test_what_is_proved_is_proved_of_kafkas_own_last_epoch(server: int) -> None:
    every = [formula for formulas in coordinator.hypotheses().values() for formula in formulas]
    constants = {coordinator.MAX_EPOCH: MAX_EPOCH, coordinator.SERVER: server}
    chosen = [constant == number for constant, number in constants.items()]
    assert z3.Solver().check(*coordinator.typing(), *every, *chosen) == z3.sat


@pytest.mark.thorough  # `make proofs` asks the same
def test_each_conjunct_of_the_invariant_is_needed(proof: Proof) -> None:
    assert [verdict.name for verdict in minimal(proof) if not verdict.ok] == []


@pytest.mark.parametrize(
    ("mutant", "step", "goal"),
    [
        ("AbortAfterFailedMarker", "WriteMarker", "DecisionIsFinal"),
        ("ActsOnLoaded", "WriteMarker", "NotedIsSettled"),
        ("PreparedIsLeft", "AppendIsReplicated", "PreparedIsPending"),
        ("FenceKeepsProducerId", "AbortFenced", "LastEpochIsForFencing"),
        ("OneProducerIdInLog", "AppendIsReplicated", "MemoryGoesOn"),
    ],
)
def test_with_a_mutated_rule_an_action_breaks_a_conjunct_and_its_state_is_shown(
    mutant: str, step: str, goal: str
) -> None:
    machine = coordinator.machine_for(Registry().get(mutant).overrides)
    act = next(act for act in actions(machine) if act.name == step)
    asked = coordinator.ASKING.consecution(act, coordinator.run_action(machine, act))
    [answer] = [ask(query) for query in asked if query.goal.name == goal]
    assert not answer.ok
    assert "before" in answer.evidence
    assert f"broken: {goal}" in answer.evidence


def test_by_the_rules_as_they_are_an_action_keeps_every_conjunct() -> None:
    act = next(act for act in actions(TransactionCoordinator) if act.name == "AppendTimesOut")
    asked = list(coordinator.ASKING.consecution(act, coordinator.run_action(TransactionCoordinator, act)))
    assert {query.goal.name for query in asked} == {conjunct.name for conjunct in coordinator.PROOF.conjuncts}
    assert [query.goal.name for query in asked if not ask(query).ok] == []


@pytest.mark.parametrize(
    ("mutant", "goals"),
    [
        pytest.param("ToldOldProducerId", {"OnlyForward", "GivenIsBelowLast"}, marks=pytest.mark.thorough),
        ("AnsweredBeforeAbort", {"OnlyForward", "HandedOutOnce", "GivenIsBelowLast", "GivenAtRest"}),
        ("CommitLost", {"GivenAtRest", "NotedIsDurable"}),
    ],
)
def test_each_property_of_a_step_fails_with_some_mutated_rule(mutant: str, goals: set[str]) -> None:
    machine = coordinator.machine_for(Registry().get(mutant).overrides)
    act = next(act for act in actions(machine) if act.name == "AppendIsReplicated")
    asked = coordinator.safety({act: coordinator.run_action(machine, act)})
    assert {query.goal.name for query in asked if not ask(query).ok} == goals


def test_the_records_that_are_not_replicated_are_the_tail_and_the_one_on_its_way() -> None:
    states = {TransactionCoordinator.initial(CONSTANTS)}
    for _ in range(5):
        states |= {after for state in states for after in _successors(state)}
    assert {len(state.tail) for state in states} >= {0, 1}
    for state in states:
        on_its_way = () if state.is_idle() else (state.rules.in_log(state.appending.record),)
        assert state.unreplicated() == (*state.tail, *on_its_way)


def _successors(state: TransactionCoordinator) -> set[TransactionCoordinator]:
    found = set()
    calls = [("handle_init_producer_id", (-1, -1)), ("handle_add_partition", (0, 0, "p", 2)), ("append_times_out", ())]
    for method, arguments in [*calls, ("append_is_replicated", ()), ("failover", (1,))]:
        try:
            found.add(getattr(state, method)(*arguments))
        except NotEnabled:
            continue
    return found


def test_tlc_checks_the_same_conjuncts_from_small_states_that_have_them() -> None:
    text = (spec_folder() / "proofs" / "CoordinatorInduction.tla").read_text(encoding="utf-8")
    inductive = re.search(r"^Inductive ==\n((?:    /\\ \w+\n)+)", text, re.MULTILINE)
    assert inductive is not None
    names = set(re.findall(r"\w+", inductive[1]))
    assert names == {conjunct.name for conjunct in coordinator.PROOF.conjuncts}
    models = [model for model in Registry().models.values() if model.module == "CoordinatorInduction"]
    holding = [model for model in models if not model.expect.violates]
    assert len(holding) == 4
    for model in models:
        assert model.specification == "IndSpec"
        without = set(re.findall(r"\w+", model.constants["Without"]))
        assert set(model.invariants) == names - without
        assert bool(without) == bool(model.expect.violates)
    for conjunct in coordinator.PROOF.conjuncts:
        if re.search(rf"^{conjunct.name} ==", text, re.MULTILINE):
            assert f"(* {conjunct.says} *)" in text


def test_a_set_of_terms_and_of_none_finds_its_elements_by_comparing_terms() -> None:
    x = z3.Int("x")
    outcomes = explore(lambda: Number(x) in {NO_EPOCH, Number(z3.Int("y"))})
    found = z3.Or(*(outcome.condition for outcome in outcomes if outcome.value))
    assert z3.Solver().check(found != z3.Or(x == NO_EPOCH, x == z3.Int("y"))) == z3.unsat


def test_two_conditions_are_compared_as_truth_values() -> None:
    one, other = z3.Bools("one other")
    outcomes = explore(lambda: "differ" if Condition(one) != Condition(other) else "same")
    differ = z3.Or(*(outcome.condition for outcome in outcomes if outcome.value == "differ"))
    assert z3.Solver().check(differ != z3.Xor(one, other)) == z3.unsat
