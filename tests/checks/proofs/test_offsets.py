"""The proof about a group's offsets holds, and it can fail."""

import re

import pytest

from kafka_eos.machines.consume_transform_produce import ConsumeTransformProduce
from kafka_eos.machines.machine import actions
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.proofs import offsets
from kafka_eos_checks.proofs.induction import Proof, Query, ask, discharge, minimal


@pytest.fixture(scope="module")
def queries() -> list[Query]:
    return list(offsets.queries({}))


@pytest.fixture(scope="module")
def proof(queries: list[Query]) -> Proof:
    return Proof(name="offsets", title="", conjuncts=offsets.PROOF.conjuncts, queries=lambda _: iter(queries))


def test_a_groups_offsets_move_only_with_their_transaction(proof: Proof) -> None:
    assert [verdict.name for verdict in discharge(proof) if not verdict.ok] == []


def test_every_action_of_the_machine_is_proved_to_keep_every_conjunct(queries: list[Query]) -> None:
    every = {act.name for act in actions(ConsumeTransformProduce)}
    proved = {(query.step, query.goal.name) for query in queries if query.kind == "consecution"}
    assert proved == {(name, conjunct.name) for name in every for conjunct in offsets.PROOF.conjuncts}
    assert {query.step for query in queries if query.kind == "witness"} == every


def test_each_conjunct_of_the_invariant_is_needed(proof: Proof) -> None:
    assert [verdict.name for verdict in minimal(proof) if not verdict.ok] == []


@pytest.mark.parametrize(
    ("mutant", "action", "goal"),
    [
        ("PendingIsFound", "SendOffsets", "OffsetsMoveWithMarker"),
        ("MaterialisedOnAbort", "PublishOffsets", "OffsetsMoveWithMarker"),
        ("GenerationCheckedAtMarker", "PublishOffsets", "PendingWaitsForMarker"),
        ("PendingDeletedWithGroup", "ExpireSession", "PendingWaitsForMarker"),
        ("NoRequireStable", "FetchOffset", "OnlyStableIsTold"),
    ],
)
def test_with_a_mutated_rule_a_property_of_a_step_fails_and_its_state_is_shown(
    mutant: str, action: str, goal: str
) -> None:
    machine = offsets.machine_for(Registry().get(mutant).overrides)
    act = next(act for act in actions(machine) if act.name == action)
    asked = offsets.safety({act: offsets.run_action(machine, act)})
    [answer] = [ask(query) for query in asked if query.goal.name == goal]
    assert not answer.ok
    assert f"action: {action}(" in answer.evidence
    assert f"broken: {goal}" in answer.evidence


@pytest.mark.parametrize(
    ("mutant", "action", "goal"),
    [
        ("OffsetWithoutPlusOne", "SendOffsets", "SentIsBehindWritten"),
        ("NeverFenced", "Process", "PositionIsBehindWritten"),
    ],
)
def test_with_a_mutated_rule_an_action_breaks_a_conjunct(mutant: str, action: str, goal: str) -> None:
    machine = offsets.machine_for(Registry().get(mutant).overrides)
    act = next(act for act in actions(machine) if act.name == action)
    asked = offsets.ASKING.consecution(act, offsets.run_action(machine, act))
    [answer] = [ask(query) for query in asked if query.goal.name == goal]
    assert not answer.ok


def test_tlc_checks_the_same_conjuncts_from_every_small_state_that_has_them() -> None:
    text = (spec_folder() / "proofs" / "OffsetsInduction.tla").read_text(encoding="utf-8")
    inductive = re.search(r"^Inductive ==\n((?:    /\\ \w+\n)+)", text, re.MULTILINE)
    assert inductive is not None
    names = set(re.findall(r"\w+", inductive[1]))
    assert names == {conjunct.name for conjunct in offsets.PROOF.conjuncts}
    models = [Registry().get(name) for name in ("OffsetsInduction", "OffsetsInductionVersion2")]
    assert [model.constants["Eos"] for model in models] == ['"v1"', '"v2"']
    for model in models:
        assert model.specification == "IndSpec"
        assert names <= set(model.invariants)
    for conjunct in offsets.PROOF.conjuncts:
        assert f"(* {conjunct.says} *)" in text


def test_an_arbitrary_map_gives_what_was_put_in_last_and_before_that_anything() -> None:
    before = offsets.AnyKeyed(lambda term: f"anything at {term}", key=1)
    after = before.set(1, "first").set(1, "second").update({2: "third"})
    assert [after[key] for key in (1, 2, 3)] == ["second", "third", "anything at 3"]
    assert before[1] == "anything at 1"
