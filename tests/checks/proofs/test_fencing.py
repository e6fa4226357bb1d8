"""The proof of fencing holds, and it can fail."""

import re

import pytest

from kafka_eos.machines.machine import actions
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.proofs import coordinator, fencing
from kafka_eos_checks.proofs.induction import Proof, Query, ask, discharge, minimal, refute


@pytest.fixture(scope="module")
def queries() -> list[Query]:
    return list(fencing.queries({}))


@pytest.fixture(scope="module")
def proof(queries: list[Query]) -> Proof:
    return Proof(name="fencing", title="", conjuncts=fencing.PROOF.conjuncts, queries=lambda _: iter(queries))


@pytest.mark.thorough  # `make` proves the same
def test_after_an_answered_init_no_transaction_with_an_older_client_is_ended(proof: Proof) -> None:
    assert [verdict.name for verdict in discharge(proof) if not verdict.ok] == []


def test_every_action_of_the_coordinator_is_proved_to_keep_every_conjunct(monkeypatch: pytest.MonkeyPatch) -> None:
    explored, run = {"WriteMarker", "AppendIsReplicated"}, fencing.run_action  # the coordinator's tests explore others
    monkeypatch.setattr(fencing, "run_action", lambda *asked: run(*asked) if asked[1].name in explored else [])
    queries = list(fencing.queries({}))
    proved = {(query.step, query.goal.name) for query in queries if query.kind == "consecution"}
    assert proved == {(act.name, c.name) for act in actions(TransactionCoordinator) for c in fencing.PROOF.conjuncts}
    assert {query.step for query in queries if query.kind == "witness"} == explored


@pytest.mark.thorough
def test_every_action_that_ends_a_transaction_is_taken(queries: list[Query]) -> None:
    ending = {query.step for query in queries if query.kind == "witness"}
    assert ending == {"WriteMarker", "HandleEndTxn", "AppendIsReplicated"}


@pytest.mark.thorough  # `make proofs` asks the same
def test_each_conjunct_of_the_invariant_is_needed(proof: Proof) -> None:
    assert [verdict.name for verdict in minimal(proof) if not verdict.ok] == []


@pytest.mark.parametrize("mutant", ["AnyBatchEpoch", "AnyMarkerEpoch"])
def test_a_leader_that_takes_older_epochs_does_not_fence(mutant: str) -> None:
    verdict = refute(fencing.PROOF, Registry().get(mutant))
    assert verdict.ok
    assert verdict.found.startswith("safety fails: LeaderFences")


@pytest.mark.parametrize(
    ("mutant", "kinds"), [("AnyBatchEpoch", ("plain", "transactional")), ("AnyMarkerEpoch", ("commit", "abort"))]
)
def test_leaders_fence_entries_of_every_kind_and_version_unless_a_mutant_takes_them(
    mutant: str, kinds: tuple[str, str]
) -> None:
    every = {f"LeaderFences, {kind} of version {version}" for kind in fencing.KINDS for version in fencing.VERSIONS}
    assert {query.step for query in fencing.of_leader({}) if ask(query).ok} == every
    taken = {query.step for query in fencing.of_leader(Registry().get(mutant).overrides) if not ask(query).ok}
    assert taken == {f"LeaderFences, {kind} of version {version}" for kind in kinds for version in (1, 2)}


@pytest.mark.parametrize(
    ("mutant", "step", "goal"),
    [
        pytest.param("AnsweredByLeader", "AppendIsReplicated", "AddedIsBehind", marks=pytest.mark.thorough),
        ("AnsweredBeforeAbort", "AppendIsReplicated", "FencedIsBehind"),
        ("EndByAnyEpoch", "HandleEndTxn", "AskedByNewest"),
    ],
)
def test_with_a_mutated_rule_of_the_coordinator_a_query_fails(mutant: str, step: str, goal: str) -> None:
    machine = coordinator.machine_for(Registry().get(mutant).overrides)
    act = next(act for act in actions(machine) if act.name == step)
    [query] = [query for query in fencing.of_action(machine, act) if query.goal.name == goal]
    assert not ask(query).ok


def test_tlc_checks_the_same_conjuncts_from_small_states_that_have_them() -> None:
    text = (spec_folder() / "proofs" / "FencingInduction.tla").read_text(encoding="utf-8")
    follows = {fencing.ENDED_BY_NEWEST, fencing.ASKED_BY_NEWEST}
    for conjunct in {*fencing.PROOF.conjuncts, *follows}:
        assert f"(* {conjunct.says} *)\n{conjunct.name} ==" in text
    names = {conjunct.name for conjunct in fencing.PROOF.conjuncts}
    models = [model for model in Registry().models.values() if model.module == "FencingInduction"]
    holding = [model for model in models if not model.expect.violates]
    assert len(holding) == 3
    assert all(set(model.properties) == {conjunct.name for conjunct in follows} for model in holding)
    for model in models:
        assert model.specification == "FencingSpec"
        without = set(re.findall(r"\w+", model.constants["Without"]))
        assert set(model.invariants) == names - without
        assert bool(without) == bool(model.expect.violates)
    assert {model.expect.violates for model in models} >= {conjunct.name for conjunct in follows}
