"""Weaker properties of a small spec: what notices each, and the planted ones that nothing notices."""

import ast
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome, pairs
from kafka_eos_checks.matrix.conjuncts.properties import Family, PropertySearch, families, places
from kafka_eos_checks.models import bounds
from kafka_eos_checks.models.registry import MalformedRegistry, Registry
from kafka_eos_checks.mutants.rules import MUTANTS
from kafka_eos_checks.tla.parser import parse_expression
from kafka_eos_checks.tla.result_cache import ResultCache

pytestmark = pytest.mark.tlc  # SANY finds the parts of the properties

PLANTED = """
Bounded == /\\ total >= 0
           /\\ total <= Limit
SameAgain == total <= Limit
Told == (log # <<>> /\\ Head(log).amount > 0) \\/ log = <<>>
Fair == Spec /\\ WF_vars(Next)
Starts == <>(total > 0)
"""
MODELS = """
[model.Planted]
title = "two properties that say the same, one of steps, and a temporal one"
constants = { Clients = '{"a"}', Amounts = "{1}", Limit = "2" }
specification = "Fair"
invariants = ["Bounded", "SameAgain", "Told"]
properties = ["Grows", "Starts"]
expect = { verdict = "holds", states = 20 }
"""


@pytest.fixture
def planted(registry: Registry, counter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The counter's registry with the properties above."""
    monkeypatch.setattr(
        bounds,
        "counter_bounds",
        lambda state, constants: counter.within_bounds(state, constants["MaxLog"]),
        raising=False,
    )
    monkeypatch.setitem(
        MUTANTS,
        "no_limit",
        lambda state, client, amount: "STALE" if state.seen[client] != state.total else "NONE",  # noqa: ARG005
    )
    module = registry.folder.parent / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    end = text.rindex("====")
    end = text.rindex("\n", 0, end) + 1
    module.write_text(text[:end] + PLANTED + text[end:], encoding="utf-8")
    file = registry.folder / "Counter.toml"
    text = file.read_text(encoding="utf-8").replace(
        'expect = { verdict = "holds" }', "expect = { verdict = 'holds', states = 481 }"
    )
    file.write_text(text + MODELS, encoding="utf-8")
    return Registry(registry.folder)


def the_family(registry: Registry, named: bool = False) -> Family:
    """The only family."""
    (family,) = families(registry, named=named)
    return family


def test_every_part_of_a_property_and_of_the_machine_has_its_change(planted: Registry) -> None:
    assert {change for _, operator, change in places(planted) if operator == "Counter!Grows"} == {
        "Grows -> TRUE",
        "total' >= total -> FALSE",
        "total' >= total -> total' > total",
        "total = Limit -> FALSE",
    }
    labels = {mutant.label for mutant in the_family(planted).mutants}
    assert {
        "NoLimit",
        "counter!Counter.read: self.readers | {client} -> self.readers",
        "counter!Counter.reset: replace(self, total=0, log=()) -> replace(self, log=())",
        "counter!Counter.add_error: self.total + amount > self.constants.limit -> "
        "self.total + amount >= self.constants.limit",
        "counter!Counter.reset: self.total == self.constants.limit -> True",
        "Fair: WF(Read or Add or Refuse or Reset) -> TRUE",
    } <= labels


def test_the_named_mutants_alone_are_those_of_the_registry(planted: Registry) -> None:
    assert {mutant.label for mutant in the_family(planted, named=True).mutants} == {"", "NoLimit", "OneClient"}


def test_each_weaker_property_is_noticed_or_survives(planted: Registry, tmp_path: Path) -> None:
    found: list[Outcome] = PropertySearch(cache=ResultCache(tmp_path / "cache")).judge(the_family(planted))
    assert [(outcome.module, outcome.operator, outcome.change) for outcome in found] == [*places(planted)]
    outcomes = {(outcome.operator.partition("!")[2], outcome.change): outcome for outcome in found}
    noticed = {place: outcome.by for place, outcome in outcomes.items() if outcome.means is Means.MUTANT}
    survivors = {place: outcome.by for place, outcome in outcomes.items() if outcome.means is Means.NONE}
    assert noticed.keys() | survivors.keys() == outcomes.keys()
    assert noticed["NotAboveLimit", "total <= Limit -> total < Limit"] == "the spec"
    assert noticed["Grows", "total' >= total -> total' > total"] == "the spec"
    # without its second part the step of a reset would be refused, and without its first one the spec's own reset is
    assert noticed["Grows", "total = Limit -> FALSE"] == "the spec"
    assert noticed["Grows", "total' >= total -> FALSE"] == "the spec"
    assert noticed["Grows", "Grows -> TRUE"].startswith("counter!Counter.reset: self.total == self.constants.limit")
    assert noticed["Bounded", "total <= Limit -> TRUE"].startswith("counter!Counter.add")
    assert noticed["Told", "log # <<>> -> TRUE"] == "the spec"  # an empty log has no head
    assert noticed["Starts", "Starts -> TRUE"].startswith("Fair: WF(")  # nobody has to add
    assert noticed["NotAboveLimit", "NotAboveLimit -> TRUE"] == "NoLimit"
    # no mutant's total falls below zero; the two equal properties notice the same mutants, so neither is needed
    assert survivors["Bounded", "total >= 0 -> TRUE"] == "5 searches ended at their limit"  # has 40 states for 481
    assert survivors["SameAgain", "SameAgain -> TRUE"].startswith("also Bounded")
    assert survivors["Bounded", "Bounded -> TRUE"].startswith("also SameAgain")


def test_the_spec_in_a_spare_model_is_searched_only_for_what_nothing_else_notices_or_explains(
    planted: Registry, tmp_path: Path
) -> None:
    module, file = planted.folder.parent / "Counter.tla", planted.folder / "Counter.toml"
    text = module.read_text(encoding="utf-8")
    module.write_text(text.replace(PLANTED, PLANTED + "Small == total <= 4\n"), encoding="utf-8")
    models = MODELS.replace('"Told"', '"Told", "Small"')
    larger = models.replace("Planted", "Larger").replace('Limit = "2"', 'Limit = "4"').replace("= 20 ", "= 28 ")
    file.write_text(file.read_text(encoding="utf-8").replace(MODELS, models + larger), encoding="utf-8")
    registry = Registry(planted.folder)
    family = the_family(registry, named=True)
    assert [mutant.model.name for mutant in family.mutants if mutant.is_spare] == ["Larger"]
    every = {place[1:] for place in places(registry)}
    entry = "Counter!Small", "total <= 4 -> total < 4"
    for explained, model in ((every - {entry}, "Larger"), (every, "")):
        searched: list[str] = []
        search = PropertySearch(cache=ResultCache(tmp_path / "cache"), explained=explained)
        outcomes = {outcome.entry: outcome for outcome in search.judge(family, searched.append)}
        assert outcomes[entry].model == model
        assert any("Larger" in line for line in searched) == bool(model)


def test_a_weaker_property_has_its_conjuncts_in_the_columns_of_the_whole_one(planted: Registry) -> None:
    module, file = planted.folder.parent / "Counter.tla", planted.folder / "Counter.toml"
    own = "Apart == /\\ total > Limit => total < 0\n         /\\ total >= 0\n"
    module.write_text(module.read_text(encoding="utf-8").replace(PLANTED, PLANTED + own), encoding="utf-8")
    file.write_text(file.read_text(encoding="utf-8").replace('"Told"', '"Told", "Apart"'), encoding="utf-8")
    versions = the_family(Registry(planted.folder), named=True).versions
    found = {version.change.change: version.tree for version in versions if version.name == "Apart" and version.change}
    for change, text in (
        ("total > Limit -> total >= Limit", "(total >= Limit => total < 0) /\\ total >= 0"),
        ("total < 0 -> total <= 0", "(total > Limit => total <= 0) /\\ total >= 0"),
        ("total >= 0 -> TRUE", "(total > Limit => total < 0) /\\ TRUE"),
    ):
        assert found[change] == parse_expression(text, "here")


def test_a_pair_is_shown_by_a_mutant_of_its_own_or_by_what_it_follows_from(planted: Registry, tmp_path: Path) -> None:
    cache = ResultCache(tmp_path / "cache")
    entry = "Counter!SameAgain", "SameAgain -> TRUE"
    outcomes = PropertySearch(cache=cache).judge(the_family(planted))
    shown = {pair.name: pair for pair in pairs(outcomes, {entry: "it is a part of Bounded"})}
    assert shown["NotAboveLimit"].by == "NoLimit"
    assert (shown["SameAgain"].by, shown["SameAgain"].ok) == ("", True)
    assert not shown["Bounded"].ok


def test_a_mutant_refutes_that_a_property_follows_from_one_that_it_does_not_violate(
    planted: Registry, tmp_path: Path
) -> None:
    cache = ResultCache(tmp_path / "cache")
    entry = "Counter!SameAgain", "SameAgain -> TRUE"
    for follows, killed in (("Bounded", False), ("Told", True)):
        search = PropertySearch(cache=cache, follows={entry: frozenset({follows})})
        outcomes = {outcome.entry: outcome for outcome in search.judge(the_family(planted))}
        assert outcomes[entry].is_killed == killed


def test_the_reference_as_it_is_has_to_be_the_model(planted: Registry, tmp_path: Path) -> None:
    family = the_family(planted, named=True)
    wrong = replace(family.mutants[0].model, expect=replace(family.mutants[0].model.expect, states=11))
    search = PropertySearch(cache=ResultCache(tmp_path / "cache"))
    with pytest.raises(MalformedRegistry, match="the machine as it is differs from the model"):
        search.sighting(replace(family.mutants[0], model=wrong), family.versions)


def test_a_machine_that_fails_says_nothing_of_what_was_not_reached(planted: Registry, tmp_path: Path) -> None:
    family = the_family(planted)
    label = "counter!Counter.reset: replace(self, total=0, log=()) -> replace(self, log=())"
    mutant = next(each for each in family.mutants if each.label == label)
    assert mutant.part is not None
    search = PropertySearch(cache=ResultCache(tmp_path / "cache"))
    assert search.sighting(mutant, family.versions).whole
    (tree,) = ast.parse("def reset(self):\n    return self.log[99]").body
    assert isinstance(tree, ast.FunctionDef)
    broken = replace(mutant.part, tree=tree)
    found = search.sighting(replace(mutant, part=broken), family.versions)
    assert not found.whole
    assert "IndexError" in found.failed


def test_a_kept_search_that_was_cut_is_not_taken_for_a_longer_one(planted: Registry, tmp_path: Path) -> None:
    family = the_family(planted, named=True)
    mutant = next(each for each in family.mutants if each.label == "NoLimit")
    cache = ResultCache(tmp_path / "cache")
    short = PropertySearch(cache=cache, most=10).sighting(mutant, family.versions)
    assert short.states < PropertySearch(cache=cache).sighting(mutant, family.versions).states
    kept = PropertySearch(cache=cache, most=10).sighting(mutant, family.versions)
    assert kept.states > short.states  # what is known behind the limit counts
