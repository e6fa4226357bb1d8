"""The steps of a specification from its text: the same as the machine's."""

from dataclasses import replace

import pytest

from kafka_eos_checks.graphs.state_graph import StateGraph
from kafka_eos_checks.matrix.conjuncts.spec_steps import NotEvaluable, SpecSteps
from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Registry

READ = """    /\\ seen' = [seen EXCEPT ![client] = total]
    /\\ readers' = readers \\union {client}
    /\\ UNCHANGED <<total, log, response>>
"""
OTHERWISE = """    /\\ \\/ /\\ client \\in readers
          /\\ UNCHANGED readers
       \\/ /\\ client \\notin readers
          /\\ readers' = readers \\union {client}
    /\\ Seen(client, total)
    /\\ UNCHANGED total
    /\\ UNCHANGED <<log, response>>
"""
SEEN = "Seen(reader, value) == seen' = [seen EXCEPT ![reader] = value]\n\n(* A client reads the counter. *)"


@pytest.mark.parametrize("otherwise", [False, True])
def test_the_steps_of_a_specification_are_those_of_the_machine(
    otherwise: bool, registry: Registry, graph: StateGraph
) -> None:
    model = registry.models["Counter"]
    module = registry.folder.parent / "Counter.tla"
    text = module.read_text(encoding="utf-8").replace("    /\\ total >= 0\n", "")  # planted guards
    text = text.replace("    /\\ log # <<>> /\\ Head(log).amount > 0\n", "")
    if otherwise:
        assert READ in text
        text = text.replace(READ, OTHERWISE).replace("(* A client reads the counter. *)", SEEN)
    module.write_text(text, encoding="utf-8")
    steps = SpecSteps(Formulas(replace(model, overrides={})), "Spec")
    assert steps.initial == graph.states[graph.initial[0]]
    names = {(each.action.name, each.arguments): place for place, each in enumerate(graph.instances)}
    assert {label for label, _ in steps.steps} == names.keys()
    for place in graph.inside.nonzero()[0].tolist():
        taken = {names[label]: after for label, step in steps.steps if (after := step(graph.states[place])) is not None}
        assert taken == {label: graph.states[target] for label, target in graph.outgoing(place)}


@pytest.mark.parametrize(
    ("action", "form"),
    [("LET before == total IN seen' = [seen EXCEPT ![client] = before]", "let"), ("seen' \\in {seen}", "infix")],
)
def test_an_action_of_another_form_is_not_taken_for_one_that_is_never_enabled(
    action: str, form: str, registry: Registry
) -> None:
    module = registry.folder.parent / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    assert READ in text
    module.write_text(text.replace(READ, READ.replace("seen' = [seen EXCEPT ![client] = total]", action)), "utf-8")
    with pytest.raises(NotEvaluable, match=f"a primed variable in '{form}'"):
        SpecSteps(Formulas(replace(registry.models["Counter"], overrides={})), "Spec")
