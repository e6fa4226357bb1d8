"""Weaker properties of a small spec: what notices each, and the planted ones that nothing notices."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.matrix.conjuncts.properties import PropertySearch, families, places
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.result_cache import ResultCache

pytestmark = pytest.mark.tlc

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
expect = { verdict = "holds", states = 10 }
"""


@pytest.fixture
def planted(registry: Registry) -> Registry:
    """The counter's registry with the properties above."""
    module = registry.folder.parent / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    end = text.rindex("====")
    end = text.rindex("\n", 0, end) + 1
    module.write_text(text[:end] + PLANTED + text[end:], encoding="utf-8")
    file = registry.folder / "Counter.toml"
    file.write_text(file.read_text(encoding="utf-8") + MODELS, encoding="utf-8")
    return Registry(registry.folder)


def test_every_part_of_a_property_and_every_effect_has_its_change(planted: Registry) -> None:
    assert {change for _, operator, change in places(planted) if operator == "Counter!Grows"} == {
        "Grows -> TRUE",
        "total' >= total -> FALSE",
        "total' >= total -> total' > total",
        "total = Limit -> FALSE",
    }
    (family,) = families(planted)
    labels = {mutant.label for mutant in family.mutants}
    assert {
        "NoLimit",
        "Counter!Read: readers \\union {client} -> readers",
        "Counter!Reset: 0 -> total",
        "Counter!Add: total + amount -> total",
        "Counter!AddError: total + amount > Limit -> total + amount >= Limit",
        "Counter!Next: \\E -> \\A",
        "Counter!Fair: WF_vars(Next) -> TRUE",
    } <= labels


@pytest.mark.thorough
def test_each_weaker_property_is_noticed_or_survives(planted: Registry, tmp_path: Path) -> None:
    (family,) = families(planted)
    found: list[Outcome] = PropertySearch(cache=ResultCache(tmp_path / "cache")).judge(family)
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
    assert noticed["Grows", "Grows -> TRUE"].startswith("Counter!Reset: total = Limit -> TRUE")
    assert noticed["Bounded", "total <= Limit -> TRUE"].startswith("Counter!Add")
    assert noticed["Told", "log # <<>> -> TRUE"] == "the spec"  # an empty log has no head; other versions still count
    assert noticed["Starts", "Starts -> TRUE"] == "Counter!AddError: seen[client] # total -> TRUE"  # nobody adds
    assert noticed["NotAboveLimit", "NotAboveLimit -> TRUE"] == "NoLimit"
    # no mutant's total falls below zero; the two equal properties notice the same mutants, so neither is needed
    assert survivors["Bounded", "total >= 0 -> TRUE"] == ""
    assert survivors["SameAgain", "SameAgain -> TRUE"] == "also Bounded"
    assert survivors["Bounded", "Bounded -> TRUE"] == "also SameAgain"


def test_a_run_that_fails_says_nothing_of_what_it_did_not_reach(registry: Registry, tmp_path: Path) -> None:
    (family,) = families(registry)
    cut = next(m for m in family.mutants if m.label == "Counter!Reset: 0 -> total")
    broken = cut.text.replace("Head(log).amount", "Head(<<>>).amount")
    assert broken != cut.text
    search = PropertySearch(cache=ResultCache(tmp_path / "cache"))
    assert search.sighting(cut, family.versions).whole
    assert not search.sighting(replace(cut, text=broken), family.versions).whole
