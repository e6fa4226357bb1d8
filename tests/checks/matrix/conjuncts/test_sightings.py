"""Searches of the graphs of machines and specs, and what is judged of one that was cut."""

from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.matrix.conjuncts.sightings import Searcher
from kafka_eos_checks.models.registry import Registry


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
