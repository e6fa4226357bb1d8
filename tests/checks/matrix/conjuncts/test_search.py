"""TLC on a small spec without one of its conjuncts: each means of killing, and the survivors."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts import search as search_module
from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.matrix.conjuncts.search import Search, Subject, UnusableMutant, subjects
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.result_cache import ResultCache
from kafka_eos_checks.tla.sany import Definition, parse

pytestmark = pytest.mark.tlc


@pytest.fixture
def search(tmp_path: Path) -> Search:
    return Search(cache=ResultCache(tmp_path / "cache"))


def subject(registry: Registry, operator: str, change: str) -> Subject:
    (found,) = [
        s for s in subjects(registry) if (s.conjunct.operator, s.conjunct.change) == (f"Counter!{operator}", change)
    ]
    return found


def judged(registry: Registry, search: Search, operator: str, change: str) -> Outcome:
    return search.judge(subject(registry, operator, change))


def test_a_module_is_parsed_once_as_long_as_its_text_is_the_same(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = subjects(registry)
    parsed: list[str] = []

    def counted(folder: Path, module: str) -> dict[str, Definition]:
        parsed.append(module)
        return parse(folder, module)

    monkeypatch.setattr(search_module, "parse", counted)
    assert subjects(registry) == before
    assert parsed == []
    counter = registry.folder.parent / "Counter.tla"
    counter.write_text(f"{counter.read_text(encoding='utf-8')}\n", encoding="utf-8")
    assert len(subjects(registry)) == len(before)
    assert parsed == ["Counter"]


def test_a_rule_without_which_a_property_breaks_is_killed_by_that_property(registry: Registry, search: Search) -> None:
    outcome = judged(registry, search, "AddError", "total + amount > Limit -> FALSE")
    assert (outcome.means, outcome.by, outcome.model) == (Means.PROPERTY, "NotAboveLimit", "Counter")
    assert outcome.states > 0
    assert outcome.depth > 1
    assert outcome.place.startswith("Counter.tla:")


def test_if_the_first_means_is_enough_the_graph_decides_unless_a_property_has(
    registry: Registry, search: Search
) -> None:
    rule = subject(registry, "AddError", "total + amount > Limit -> FALSE")
    assert Search(cache=search.cache, thorough=False).judge(rule).means is Means.GRAPH
    assert search.judge(rule).means is Means.PROPERTY
    assert Search(cache=search.cache, thorough=False).judge(rule).means is Means.PROPERTY


def test_a_guard_that_no_property_needs_is_killed_by_the_graph(registry: Registry, search: Search) -> None:
    outcome = judged(registry, search, "Read", "seen[client] # total -> TRUE")
    assert outcome.means is Means.GRAPH


def test_a_guard_that_gives_the_next_one_its_value_is_killed_by_an_evaluation_error(
    registry: Registry, search: Search
) -> None:
    outcome = judged(registry, search, "Reset", "total = Limit -> TRUE")
    assert outcome.means is Means.GRAPH  # the log is evaluated first
    text = (registry.folder.parent / "Counter.tla").read_text(encoding="utf-8")
    (registry.folder.parent / "Counter.tla").write_text(text.replace("    /\\ total = Limit\n", ""), encoding="utf-8")
    outcome = judged(registry, search, "Reset", "log # <<>> -> TRUE")
    assert outcome.means is Means.EVALUATION
    assert "Head" in outcome.by


def test_a_planted_conjunct_that_follows_from_another_survives(registry: Registry, search: Search) -> None:
    outcome = judged(registry, search, "Reset", "total >= 0 -> TRUE")
    assert (outcome.means, outcome.means.kills) == (Means.NONE, False)


def test_a_successor_that_is_only_generated_once_less_is_no_kill(registry: Registry, search: Search) -> None:
    planted = subject(registry, "Reset", "total = Limit -> FALSE")
    (model,) = planted.models
    assert search._run(model, planted, most=10_000).generated < search.reference(model).generated
    assert search.judge(planted).means is Means.NONE


def test_a_mutant_that_does_not_parse_is_an_error_and_not_a_kill(registry: Registry, search: Search) -> None:
    whole = subject(registry, "Reset", "total >= 0 -> TRUE")
    with pytest.raises(UnusableMutant, match=r"(?s)cannot read the module.*[Pp]arse"):
        search.judge(replace(whole, text=whole.text.replace("Reset ==", "Reset == /\\")))


def test_a_model_that_does_not_hold_itself_decides_nothing(registry: Registry, search: Search) -> None:
    whole = subject(registry, "Reset", "total >= 0 -> TRUE")
    broken = tuple(replace(model, invariants=("NeverFull",)) for model in whole.models)
    with pytest.raises(UnusableMutant, match="Counter itself violates NeverFull"):
        search.judge(replace(whole, models=broken))


def test_a_run_that_takes_too_long_is_not_decided_and_not_kept(registry: Registry, tmp_path: Path) -> None:
    hasty = Search(cache=ResultCache(tmp_path / "cache"), timeout=0.01)
    outcome = judged(registry, hasty, "AddError", "total + amount > Limit -> FALSE")
    assert (outcome.means, outcome.means.kills) == (Means.UNDECIDED, False)
    patient = Search(cache=ResultCache(tmp_path / "cache"))
    assert judged(registry, patient, "AddError", "total + amount > Limit -> FALSE").means is Means.PROPERTY


def test_edges_that_are_not_written_in_time_decide_nothing(
    registry: Registry, search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_time = tlc.run

    def late(job: tlc.Job) -> tlc.Result:
        return tlc.Result(verdict="times out") if job.dump is not None else in_time(job)

    monkeypatch.setattr(tlc, "run", late)
    assert search.judge(subject(registry, "Reset", "total = Limit -> FALSE")).means is Means.UNDECIDED


def test_unchanged_input_is_not_run_again(registry: Registry, search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    first = judged(registry, search, "Read", "seen[client] # total -> TRUE")

    def never(*_: object) -> tlc.Result:
        raise AssertionError("TLC is started")

    monkeypatch.setattr(tlc, "run", never)
    assert judged(registry, Search(cache=search.cache), "Read", "seen[client] # total -> TRUE") == first
    with pytest.raises(AssertionError, match="TLC is started"):
        judged(registry, Search(cache=search.cache), "Reset", "total >= 0 -> TRUE")
