from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from immutables import Map

from kafka_eos_checks.graphs import model_check
from kafka_eos_checks.graphs.model_check import (
    check_model,
    check_models,
    judge,
    select,
    story,
    to_verdict,
    with_arguments,
)
from kafka_eos_checks.models.registry import Expectation, Registry
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.behaviour import Step
from kafka_eos_checks.tla.tlc import Result

COVERED = {"Read": 5, "Add": 4, "Refuse": 3, "Reset": 1}
PROBED = ('"probe reached: IsFull"', '"witness true: NotAboveLimit"', '"witness false: NotAboveLimit"')
HOLDS = Result(verdict="holds", generated=30, distinct=20, depth=5, coverage=COVERED, prints=PROBED)


def expecting(registry: Registry, **changes: object) -> model_check.Model:
    expect = Expectation(generated=30, states=20, depth=5)
    return replace(registry.get("Counter"), **{"expect": expect, **changes})  # type: ignore[arg-type]


def test_tlc_checks_the_properties_and_watches_probes_and_witnesses(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ran(job: tlc.Job, on_progress: Callable[[tlc.Progress], None]) -> Result:
        asked.extend((job.folder / f"{job.module}.cfg").read_text().splitlines())
        assert (job.workers, job.timeout, job.coverage, job.short) == (3, 7.0, True, True)
        on_progress(tlc.Progress(generated=9, distinct=5, queue=0, depth=2))
        return HOLDS

    told: list[tuple[str, int]] = []
    monkeypatch.setattr(tlc, "run", ran)
    model = expecting(registry, properties=("Grows",))
    check_model(
        model, workers=3, timeout=7.0, on_progress=lambda name, progress: told.append((name, progress.distinct))
    )
    assert [line for line in asked if line.startswith(("INVARIANT", "PROPERTY"))] == [
        *(f"INVARIANT {name}" for name in ("NotAboveLimit", "Probe__IsFull", "Watch__NotAboveLimit")),
        *(f"PROPERTY {name}" for name in ("Grows", "Watch__Grows")),
    ]
    assert told == [("Counter", 5)]


def test_a_counterexample_is_told_with_the_meaning_of_what_its_model_replaces(registry: Registry) -> None:
    behaviour = (Step("Init", {"total": 0}), Step("Reset", {"total": 1}))
    told = story(judge(registry.get("NoLimit"), Result(verdict="violates NotAboveLimit", behaviour=behaviour)))
    assert told.splitlines() == [
        "NoLimit: nobody looks at the limit",
        'The module Counter with Clients={"a", "b"}, Amounts={1, 2}, Limit=3, MaxLog=2',
        "NoLimit takes the place of the rule AddError: nobody looks at the limit",
        "",
        "   0  At the start",
        "        total: 0",
        "   1  The counter starts again.",
        "      Reset",
        "        total: 0 -> 1",
        "Here the model violates NotAboveLimit: The total stays within the limit.",
    ]


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
    assert problem in f"expected {verdict.expected}, found {verdict.found}"
    assert ("--update Counter" in verdict.advice) == ("the registry says" in problem)


def test_an_action_that_must_never_be_taken_must_not_be_taken(registry: Registry) -> None:
    outcome = judge(expecting(registry, never=("Reset",)), HOLDS)
    assert outcome.problems == ("Reset is taken; delete it from 'never'",)


def test_the_depth_is_not_compared_when_several_workers_searched(registry: Registry) -> None:
    assert judge(expecting(registry), replace(HOLDS, depth=6), workers=2).ok


def test_with_several_workers_all_other_numbers_are_compared(registry: Registry) -> None:
    outcome = judge(expecting(registry), replace(HOLDS, distinct=21, generated=31), workers=2)
    assert outcome.problems == ("generated: 31, the registry says 30", "states: 21, the registry says 20")


def test_each_probe_has_to_be_reached(registry: Registry) -> None:
    outcome = judge(expecting(registry, probes=("IsFull", "IsEmpty")), HOLDS)
    assert outcome.problems == ("probe IsEmpty is never reached",)


def test_another_property_with_a_longer_name_is_not_the_expected_one(registry: Registry) -> None:
    model = replace(registry.get("NoLimit"), expect=Expectation(violates="NotAbove"))
    outcome = judge(model, Result(verdict="violates NotAboveLimit"))
    assert outcome.problems == ("expected violates NotAbove, found violates NotAboveLimit",)


def test_a_violation_is_told_with_its_property_and_any_other_verdict_with_its_words(registry: Registry) -> None:
    behaviour = (Step("Init", START), Step("Add", ADDED))
    violated = judge(registry.get("NoLimit"), Result(verdict="violates NotAboveLimit", behaviour=behaviour))
    told = to_verdict(violated).evidence
    assert told.endswith("Here the model violates NotAboveLimit: The total stays within the limit.")
    told = to_verdict(judge(expecting(registry), Result(verdict="deadlocks", behaviour=behaviour))).evidence
    assert told.endswith("Here the model deadlocks.")


def test_the_only_temporal_property_is_the_one_that_is_violated(registry: Registry) -> None:
    model = registry.get("OneClient")
    assert judge(model, Result(verdict="violates a temporal property")).found == "violates Drained"
    assert (
        judge(model, Result(verdict="violates line 3, col 1 to line 4, col 2 of module X")).found == "violates Drained"
    )
    several = replace(model, properties=(*model.properties, "Other"))
    assert judge(several, Result(verdict="violates a temporal property")).found == "violates a temporal property"


@pytest.mark.tlc
def test_models_and_mutants_are_checked_together_and_counterexamples_name_the_arguments(registry: Registry) -> None:
    names = ("Counter", "OneClient", "NoLimit")
    outcomes = {o.model.name: o for o in check_models([registry.get(name) for name in names], timeout=60)}
    numbers = [p.partition(":")[0] for p in outcomes["Counter"].problems]
    assert numbers == ["generated", "states", "depth"]  # the registry of the tests has no entry for them
    coverage = outcomes["Counter"].result.coverage
    assert coverage.keys() >= {"Add", "Reset"}, "TLC is asked how often each action is taken"
    assert all(coverage.values())
    assert outcomes["OneClient"].ok
    assert outcomes["NoLimit"].ok
    story = to_verdict(outcomes["NoLimit"]).evidence
    assert story.startswith("NoLimit: nobody looks at the limit\nThe module Counter with Clients={")
    assert "\nNoLimit takes the place of the rule AddError: nobody looks at the limit\n" in story
    assert "   1  A client that knows the counter adds to it.\n      Add(client a, amount " in story
    assert story.endswith("Here the model violates NotAboveLimit: The total stays within the limit.")


@pytest.mark.tlc
def test_a_temporal_property_is_looked_at_where_it_is_said_to_hold(registry: Registry) -> None:
    outcome = check_model(replace(registry.get("OneClient"), expect=Expectation()), timeout=60)
    assert outcome.problems == ("expected holds, found violates Drained",)


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


def test_the_tiers_before_a_tier_belong_to_it_and_mutants_are_chosen_by_their_model(registry: Registry) -> None:
    def names(given: list[str], *, mutants: bool) -> list[str]:
        return [model.name for model in select(registry, given, "full", mutants=mutants)]

    assert names([], mutants=False) == ["Counter", "OneClient"]
    assert (
        names([], mutants=True) == names(["Counter"], mutants=True) == names(["NoLimit"], mutants=True) == ["NoLimit"]
    )
    assert names(["OneClient"], mutants=True) == []


def test_a_tier_is_chosen_without_those_after_it(registry: Registry) -> None:
    registry.models["OneClient"] = replace(registry.models["OneClient"], tier="full")
    assert [model.name for model in select(registry, [], "small", mutants=False)] == ["Counter"]


@pytest.mark.parametrize(("jobs", "cores", "threads"), [(3, 8, 3), (1, 8, 1), (None, 8, 8), (None, None, 1)])
def test_as_many_models_run_at_a_time_as_asked_or_as_there_are_cores(
    jobs: int | None, cores: int | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    def pool(count: int) -> ThreadPoolExecutor:
        told.append(count)
        return ThreadPoolExecutor(count)

    monkeypatch.setattr(model_check, "ThreadPoolExecutor", pool)
    monkeypatch.setattr(model_check.os, "cpu_count", lambda: cores)
    assert list(check_models([], jobs=jobs)) == []
    assert told == [threads]
