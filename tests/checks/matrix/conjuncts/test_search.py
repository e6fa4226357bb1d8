"""TLC on a small spec without one of its conjuncts: each means of killing, and the survivors."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts import search as search_module
from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.matrix.conjuncts.search import Search, Subject, UnusableMutant, subjects
from kafka_eos_checks.models.registry import Registry
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


def test_a_successor_that_is_only_generated_once_less_is_no_kill(registry: Registry, search: Search) -> None:
    planted = subject(registry, "Reset", "total = Limit -> FALSE")
    (model,) = planted.models
    assert search._run(model, planted, most=10_000).generated < search.reference(model).generated
    assert search.judge(planted).means is Means.NONE


def test_a_mutant_that_does_not_parse_is_an_error_and_not_a_kill(registry: Registry, search: Search) -> None:
    whole = subject(registry, "Reset", "total >= 0 -> TRUE")
    with pytest.raises(UnusableMutant, match=r"(?s)cannot read the module.*[Pp]arse"):
        search.judge(replace(whole, text=whole.text.replace("Reset ==", "Reset == /\\")))


def test_a_run_that_takes_too_long_is_not_decided(registry: Registry, tmp_path: Path) -> None:
    hasty = Search(cache=ResultCache(tmp_path / "cache"), timeout=0.01)
    outcome = judged(registry, hasty, "AddError", "total + amount > Limit -> FALSE")
    assert (outcome.means, outcome.means.kills) == (Means.UNDECIDED, False)
