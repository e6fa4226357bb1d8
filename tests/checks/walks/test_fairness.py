"""The weakly fair actions of a specification, by each WF of its text."""

from random import Random

import pytest

from kafka_eos_checks.walks import campaign
from kafka_eos_checks.walks.walk import Walker


def test_each_weakly_fair_action_is_a_group_for_each_binding() -> None:
    layer = next(layer for layer in campaign.all_layers() if layer.name == "Transfer")
    groups = campaign.walker_of(layer).fairness.groups("FairSpec")
    found = {name: [set(group) for group in own] for name, own in groups.items()}
    instances = ("A", "B", "C")
    steps = ("Fetch", "Debit", "Credit", "SendOffset", "Commit")
    assert found == {
        "WF(WriteMarker)": [{("WriteMarker", (partition,))} for partition in ("p0", "p1", "p7")],
        f"WF({' or '.join(steps)})": [{(step, (each,)) for step in steps} for each in instances],
        "WF(LearnFencing)": [{("LearnFencing", (each,))} for each in instances],
        "WF(Initialize)": [{("Initialize", (each,))} for each in instances],
    }


def test_a_fair_action_that_changes_nothing_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = next(layer for layer in campaign.all_layers() if layer.name == "Outbox")
    walker = Walker(layer)
    state = walker.initial(walker.constants)
    spec, fairness = walker.spec(state), walker.fairness
    fairness.begin()
    found = fairness.next(state, spec, Random(1), layer.walk.possible)
    assert found is not None
    for name in fairness.actions:
        method = next(action.method for action in walker._actions if action.name == name)
        monkeypatch.setattr(walker.machine, method, lambda self, *_: self)
    assert fairness.next(state, spec, Random(1), layer.walk.possible) is None


def test_a_fair_step_out_of_the_bounds_is_told_until_the_next_search(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = next(layer for layer in campaign.all_layers() if layer.name == "Outbox")
    walker = Walker(layer)
    state = walker.initial(walker.constants)
    spec, fairness = walker.spec(state), walker.fairness
    fairness.begin()
    with monkeypatch.context() as patched:
        patched.setattr(fairness, "_within", lambda _: False)
        assert fairness.next(state, spec, Random(1), layer.walk.possible) is None
        assert fairness.cut_off
    for name in fairness.actions:
        method = next(action.method for action in walker._actions if action.name == name)
        monkeypatch.setattr(walker.machine, method, lambda self, *_: self)
    assert fairness.next(state, spec, Random(1), layer.walk.possible) is None
    assert not fairness.cut_off
