"""Searches of the graphs of machines and specs, and what is judged of one that was cut."""

from dataclasses import replace
from functools import partial
from types import ModuleType

import pytest

from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.matrix.conjuncts.changes import machine_parts
from kafka_eos_checks.matrix.conjuncts.reference import codes_of, functions_of, mutated_reference, original_code
from kafka_eos_checks.matrix.conjuncts.sightings import Searcher
from kafka_eos_checks.models import bounds
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.tla.parser import Tree, parse_expression

PLANTED = """
Fair == Spec /\\ WF_vars(Next)
Starts == <>(total > 0)
Returns == []<>(total = 0)
Follows == total = 1 ~> total = 2
AllRead == <>(\\A client \\in Clients : client \\in readers)
Stays == <>[](total = 0)
Shrinks == [][total' > total]_vars
"""
PROPERTIES: tuple[Tree, ...] = (
    *(
        ("call", name, ())
        for name in ("NotAboveLimit", "Grows", "Starts", "Returns", "Follows", "AllRead", "Stays", "Shrinks")
    ),
    *(parse_expression(text, "") for text in ("total < Limit", "Len(log) <= total", "log = <<>> \\/ readers = {}")),
)


@pytest.fixture(params=["", "Bounds"], ids=["all states", "within bounds"])
def model(
    request: pytest.FixtureRequest, registry: Registry, counter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> Model:
    """The counter of one client, with properties of each kind."""
    within = partial(counter.within_bounds, max_log=1)
    monkeypatch.setattr(bounds, "counter_bounds", lambda state, _: within(state), raising=False)
    module = registry.folder.parent / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    end = text.rindex("\n", 0, text.rindex("====")) + 1
    module.write_text(text[:end] + PLANTED + text[end:], encoding="utf-8")
    constants = {"Clients": '{"a"}', "Amounts": "{1, 2}", "Limit": "2"}
    return replace(registry.models["Counter"], constants=constants, specification="Fair", bounds=request.param)


def test_a_search_beside_the_kept_graph_finds_what_a_whole_search_finds(model: Model, counter: ModuleType) -> None:
    machine = model.machine_class()
    known = Searcher(model, PROPERTIES).search(machine, 600).violated
    assert known == {5: 0, 6: 0, 7: 3, 8: 2, 10: 3}, "the client need not read, and the total goes up and down"
    searcher = Searcher(model, PROPERTIES)
    searcher.keep(machine, codes_of([counter]))
    compared = differing = cut = 0
    for part in machine_parts(counter):
        if part.function not in {"Counter.add_error", "Counter.add", "Counter.read", "Counter.refuse", "Counter.reset"}:
            continue
        code = original_code(part.module, part.function)
        for most in (600, 5):
            with mutated_reference(part):
                whole = Searcher(model, PROPERTIES).search(machine, most)
                found = searcher.search(machine, most, changed=code)
            new = {place: depth for place, depth in whole.violated.items() if place not in known}
            assert (found.whole, found.failed, found.states) == (whole.whole, whole.failed, whole.states), part.name
            assert {p: depth for p, depth in found.violated.items() if p not in known} == new, part.name
            compared, differing, cut = compared + 1, differing + bool(new), cut + (not whole.whole)
    assert compared > 40
    assert min(differing, cut) > 5


def test_what_has_to_be_so_once_is_not_asked_of_later_states(model: Model) -> None:
    once, again = parse_expression("<>(readers = {})", ""), parse_expression("[]<>(readers = {})", "")
    assert Searcher(model, [once, again]).search(model.machine_class(), 600).violated.keys() == {1}


def test_beside_the_kept_graph_only_what_is_new_is_judged(model: Model, counter: ModuleType) -> None:
    machine = model.machine_class()
    searcher = Searcher(model, PROPERTIES)
    searcher.keep(machine, codes_of([counter]))
    (part, *_) = [each for each in machine_parts(counter) if each.function == "Counter.reset"]
    same = replace(part, tree=dict(functions_of(counter))["Counter.reset"])
    code = original_code(part.module, part.function)
    with mutated_reference(same):
        found = searcher.search(machine, 600, changed=code)
    whole = searcher.search(machine, 600)
    assert whole.violated
    assert (found.violated, found.states, found.whole) == ({}, whole.states, True)


def test_a_search_finds_the_states_and_the_depths_of_tlc() -> None:
    registry = Registry(spec_folder() / "models")
    failure = registry.models["EffectsAreTakenBack"]  # of a module without a machine
    found = Searcher(failure, [("call", name, ()) for name in failure.properties]).search(None, 100)
    assert found.violated == {0: failure.expect.depth}
    contending = registry.models["FencedForEver"]
    searcher = Searcher(contending, [("call", name, ()) for name in contending.properties])
    assert searcher.search(None, 100).violated == {}
    assert searcher.search(None, 100).states == contending.expect.states
    assert searcher.search(None, 100, unfair=["WF(Restart)"]).violated == {0: 0}


def test_a_search_that_was_cut_judges_no_goal() -> None:
    model = Registry().models["EverySendEnds"]
    searcher = Searcher(model, [("call", name, ()) for name in model.properties])
    cut = searcher.search(model.machine_class(), 20)
    assert (cut.whole, cut.violated, cut.failed) == (False, {}, "")
