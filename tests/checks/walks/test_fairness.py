"""The weakly fair actions of a specification, by each WF of its text."""

from collections.abc import Iterable, Iterator
from random import Random
from types import ModuleType
from typing import Any

import pytest

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.explorer import attempt
from kafka_eos.machines.machine import Instance, actions, instances
from kafka_eos_checks.graphs.state_graph import instance_text
from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.walks import campaign
from kafka_eos_checks.walks.fairness import FairActions
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


@pytest.fixture
def walker() -> Walker:
    """A walker that begins a run."""
    made = Walker(next(layer for layer in campaign.all_layers() if layer.name == "Outbox"))
    made.fairness.begin()
    return made


def fair_step(walker: Walker) -> object:
    """The fair step from the initial state; None if there is none."""
    state = walker.initial(walker.constants)
    return walker.fairness.next(state, walker.spec(state), Random(1), walker.layer.walk.possible)


def change_nothing(walker: Walker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no fair action change anything."""
    for name in walker.fairness.actions:
        method = next(action.method for action in walker._actions if action.name == name)
        monkeypatch.setattr(walker.machine, method, lambda self, *_: self)


def test_a_fair_action_that_changes_nothing_is_no_step(walker: Walker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fair_step(walker) is not None
    change_nothing(walker, monkeypatch)
    assert fair_step(walker) is None


def test_a_fair_step_out_of_the_bounds_is_told_until_the_next_search(
    walker: Walker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(walker.fairness, "_within", lambda _: False)
        assert fair_step(walker) is None
        assert walker.fairness.cut_off
    change_nothing(walker, monkeypatch)
    assert fair_step(walker) is None
    assert not walker.fairness.cut_off


def test_fairness_is_read_through_the_names_of_its_parts(registry: Registry, counter: ModuleType) -> None:
    module = registry.folder.parent / "Counter.tla"
    before, rule, after = module.read_text(encoding="utf-8").rpartition("\n====")
    own = "OfClients == \\A client \\in Clients : WF_vars(Read(client))\nFairness == OfClients /\\ WF_vars(Reset)"
    module.write_text(f"{before}\n{own}{rule}{after}", encoding="utf-8")
    model = registry.get("Counter")
    fair = FairActions(Formulas(model), actions(counter.Counter), lambda _: True)
    clients = model.machine_constants().clients
    assert {name: set(given) for name, given in fair.actions.items()} == {
        "Read": {(client,) for client in clients},
        "Reset": {()},
    }


FIRST_LAYERS = {layer.model.module: layer for layer in reversed(campaign.all_layers())}


def reached(state: Any, tried: Iterable[Instance]) -> Iterator[tuple[str, Any]]:
    """The names of the actions that are enabled, each with the state after it."""
    for instance in tried:
        after = attempt(state, instance)
        if not isinstance(after, (NotEnabled, Rejected)):
            yield instance.action.name, after


@pytest.mark.parametrize("module", sorted(FIRST_LAYERS))
def test_no_fair_step_is_a_fault(module: str) -> None:
    """A fault that has to happen some time hides whatever stands still without it."""
    walker, random = Walker(FIRST_LAYERS[module]), Random(1)
    state = walker.initial(walker.constants)
    if not walker.fairness or not hasattr(state, "faults"):
        return
    every = sorted(instances(walker.machine, walker.constants), key=instance_text)
    known = {each.action.name: each.action for each in every}
    fair = [
        each for groups in walker.fairness.groups("FairSpec").values() for group in groups for each in group.items()
    ]
    for _ in range(40):
        spec = walker.spec(state)
        able = [key for key, guards in fair if any(all(guard(spec, spec) for guard in own) for own in guards)]
        after_fair = reached(state, [Instance(known[name], arguments) for name, arguments in able])
        assert {name for name, after in after_fair if after.faults != state.faults} == set()
        random.shuffle(every)
        steps = (after for _, after in reached(state, every) if after.faults == state.faults and after != state)
        state = next(steps, state)
