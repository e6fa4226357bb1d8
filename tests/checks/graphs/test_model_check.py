import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
from immutables import Map

from kafka_eos_checks.graphs import model_check
from kafka_eos_checks.graphs.model_check import (
    Outcome,
    check_model,
    check_models,
    judge,
    select,
    shown,
    to_verdict,
    with_arguments,
)
from kafka_eos_checks.models.registry import Expectation, Registry
from kafka_eos_checks.tla.behaviour import Step
from kafka_eos_checks.tla.tlc import Result

COVERED = {"Read": 5, "Add": 4, "Refuse": 3, "Reset": 1}
PROBED = ('"probe reached: IsFull"', '"witness true: NotAboveLimit"', '"witness false: NotAboveLimit"')
HOLDS = Result(verdict="holds", generated=30, distinct=20, depth=5, coverage=COVERED, prints=PROBED)


def expecting(registry: Registry, **changes: object) -> model_check.Model:
    expect = Expectation(generated=30, states=20, depth=5)
    return replace(registry.get("Counter"), **{"expect": expect, **changes})  # type: ignore[arg-type]


def test_a_model_as_the_registry_says_is_ok(registry: Registry) -> None:
    assert judge(expecting(registry), HOLDS).ok


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (replace(HOLDS, distinct=21), "states: 21, the registry says 20"),
        (replace(HOLDS, depth=6), "depth: 6, the registry says 5"),
        (replace(HOLDS, generated=31), "generated: 31, the registry says 30"),
        (replace(HOLDS, coverage={**COVERED, "Reset": 0}), "Reset is never taken; widen the constants"),
        (replace(HOLDS, prints=PROBED[1:]), "probe IsFull is never reached"),
        (
            replace(HOLDS, prints=PROBED[:1]),
            "NotAboveLimit says nothing here: NotAboveLimitWitness is never reached; widen the constants",
        ),
        (replace(HOLDS, verdict="violates NotAboveLimit"), "expected holds, found violates NotAboveLimit"),
    ],
)
def test_every_difference_from_the_registry_is_a_failure_that_names_it(
    registry: Registry, result: Result, problem: str
) -> None:
    outcome = judge(expecting(registry), result)
    assert outcome.problems == (problem,)
    verdict = to_verdict(outcome)
    assert not verdict.ok
    assert problem in verdict.evidence


def test_an_action_that_must_never_be_taken_must_not_be_taken(registry: Registry) -> None:
    outcome = judge(expecting(registry, never=("Reset",)), HOLDS)
    assert outcome.problems == ("Reset is taken; delete it from 'never'",)


def test_the_depth_is_not_compared_when_several_workers_searched(registry: Registry) -> None:
    assert judge(expecting(registry), replace(HOLDS, depth=6), workers=2).ok


def test_the_only_temporal_property_is_the_one_that_is_violated(registry: Registry) -> None:
    model = registry.get("OneClient")
    assert judge(model, Result(verdict="violates a temporal property")).found == "violates Drained"
    assert (
        judge(model, Result(verdict="violates line 3, col 1 to line 4, col 2 of module X")).found == "violates Drained"
    )


@pytest.mark.tlc
def test_models_and_mutants_are_checked_together_and_counterexamples_name_the_arguments(registry: Registry) -> None:
    names = ("Counter", "OneClient", "NoLimit")
    outcomes = {o.model.name: o for o in check_models([registry.get(name) for name in names], timeout=60)}
    numbers = [p.partition(":")[0] for p in outcomes["Counter"].problems]
    assert numbers == ["generated", "states", "depth"]  # the registry of the tests has no entry for them
    assert outcomes["OneClient"].ok
    assert outcomes["NoLimit"].ok
    story = to_verdict(outcomes["NoLimit"]).evidence
    assert story.startswith("NoLimit: nobody looks at the limit\nThe module Counter with Clients={")
    assert "\nNoLimit takes the place of the rule AddError: nobody looks at the limit\n" in story
    assert "   1  A client that knows the counter adds to it.\n      Add(client a, amount " in story
    assert story.endswith("Here the model violates NotAboveLimit: The total stays within the limit.")


@pytest.mark.tlc
def test_the_steps_of_a_temporal_property_have_their_arguments_too(registry: Registry) -> None:
    behaviour = check_model(registry.get("OneClient"), timeout=60).result.behaviour
    assert all("(" in step.action for step in behaviour[1:])


START = {"total": 0, "seen": Map(a=0, b=0), "log": (), "readers": frozenset(), "response": "NONE"}
ADDED = {**START, "total": 2, "log": (Map(client="a", amount=2),)}


@pytest.mark.parametrize("name", ["Add", "Next"])  # TLC names an action, or the disjunction that contains it
def test_arguments_are_those_with_which_the_reference_takes_the_step(registry: Registry, name: str) -> None:
    _, step = with_arguments(registry.get("Counter"), [Step("Init", START), Step(name, ADDED)])
    assert step.action == 'Add("a", 2)'


def test_a_step_that_the_reference_does_not_take_keeps_its_name(registry: Registry) -> None:
    for untold in (Step("Reset", ADDED), Step("Add", {**START, "total": 7}), Step("Add", {**START, "log": 3})):
        behaviour = (Step("Init", START), untold)
        assert with_arguments(registry.get("Counter"), behaviour) == behaviour


# --- what is printed --------------------------------------------------------------------------------------------------


def failing(registry: Registry, name: str, *, ok: bool = True) -> Outcome:
    """A model whose counterexample has one step."""
    behaviour = (Step("Init", {"total": 0}), Step("Reset", {"total": 1}))
    model = replace(registry.get("NoLimit"), name=name, module="PartitionLog")
    result = Result(verdict="violates NotAboveLimit", behaviour=behaviour)
    return Outcome(model=model, result=result, found=result.verdict, problems=() if ok else ("it differs",))


def printed(outcomes: list[Outcome], *, named: bool) -> str:
    return "\n".join(shown(outcomes, [to_verdict(outcome) for outcome in outcomes], named=named))


def test_a_model_that_is_named_is_told_with_the_path_of_its_diagram(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_check, "build_folder", lambda: tmp_path / "build")
    monkeypatch.chdir(tmp_path)
    text = printed([failing(registry, "One")], named=True)
    assert "   1  Reset\n        total: 0 -> 1\n" in text
    assert text.endswith("Diagram of One: build/models/One/counterexample.svg")
    assert ">Reset<" in (tmp_path / "build" / "models" / "One" / "counterexample.svg").read_text(encoding="utf-8")


def test_counterexamples_of_a_tier_or_of_many_models_are_only_named(registry: Registry) -> None:
    many = [failing(registry, name) for name in ("One", "Two", "Three", "Four")]
    wanted = "4 counterexamples are as expected and not shown; `kafka-eos check models One` tells one as a story"
    assert printed(many, named=True) == wanted
    assert printed(many[:1], named=False).startswith("1 counterexample is as expected and not shown")


def test_an_unexpected_counterexample_of_a_tier_has_its_diagram_and_is_told_with_its_verdict(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_check, "build_folder", lambda: tmp_path)
    outcomes = [failing(registry, "One"), failing(registry, "Two", ok=False)]
    text = printed(outcomes, named=False)
    assert f"Diagram of Two: {tmp_path}/models/Two/counterexample.svg" in text
    assert "Diagram of One" not in text
    assert "   1  Reset" not in text  # print_verdicts prints the evidence of differing verdicts
    assert "   1  Reset" in to_verdict(outcomes[1]).evidence


@pytest.mark.tlc
def test_an_unexpected_violation_is_also_shown_with_arguments(registry: Registry) -> None:
    model = replace(registry.get("Counter"), invariants=("NeverFull",))
    outcome = check_model(model, timeout=60)
    assert outcome.problems == ("expected holds, found violates NeverFull",)
    assert outcome.result.behaviour[-1].action.startswith("Refuse(")


@pytest.mark.tlc
def test_a_mutant_that_breaks_nothing_is_a_failure(registry: Registry) -> None:
    mutant = replace(registry.get("NoLimit"), overrides={})
    outcome = check_model(mutant, timeout=60)
    assert outcome.problems == ("expected violates NotAboveLimit, found holds",)


@pytest.mark.tlc
def test_the_command_writes_its_numbers_and_then_agrees_with_them(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model_check, "Registry", lambda: Registry(registry.folder))
    parser = argparse.ArgumentParser()
    model_check.add_parser(parser.add_subparsers(), "help")
    assert model_check.run(parser.parse_args(["models", "Counter", "--update"])) == 1
    json_file = tmp_path / "verdicts.json"
    assert model_check.run(parser.parse_args(["models", "Counter", "--json", str(json_file)])) == 0
    (verdict,) = json.loads(json_file.read_text(encoding="utf-8"))
    assert verdict["ok"]
    assert verdict["claims"] == ["C99"]
    assert verdict["figures"]["states"] == Registry(registry.folder).get("Counter").expect.states
    assert model_check.run(parser.parse_args(["models", "None"])) == 2
    assert "no entry 'None'; there are 3, such as Counter" in capsys.readouterr().err


def test_the_tiers_before_a_tier_belong_to_it_and_mutants_are_chosen_by_their_model(registry: Registry) -> None:
    def names(given: list[str], *, mutants: bool) -> list[str]:
        return [model.name for model in select(registry, given, "full", mutants=mutants)]

    assert names([], mutants=False) == ["Counter", "OneClient"]
    assert (
        names([], mutants=True) == names(["Counter"], mutants=True) == names(["NoLimit"], mutants=True) == ["NoLimit"]
    )
    assert names(["OneClient"], mutants=True) == []
