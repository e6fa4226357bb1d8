import argparse
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
from immutables import Map

from kafka_eos.errors import NotEnabled
from kafka_eos.machines import machine as machines
from kafka_eos.machines.machine import action
from kafka_eos_checks.graphs import command as conformance
from kafka_eos_checks.graphs.command import (
    MAX_DIFFERENCES,
    Comparison,
    Difference,
    compare,
    conformance_verdict,
    mutant_verdict,
    reference_of,
)
from kafka_eos_checks.graphs.state_graph import (
    GraphUnusable,
    StateGraph,
    _unescape,
    export,
    instance_text,
    plain_size,
    read_dot,
)
from kafka_eos_checks.models.registry import Expectation, Registry
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.values import canonical


@pytest.fixture
def compare_counter(registry: Registry, counter: ModuleType, graph: StateGraph) -> Callable[..., Comparison]:
    within = partial(counter.within_bounds, max_log=2)
    return partial(compare, registry.get("Counter"), graph=graph, within_bounds=within)


def told(graph: StateGraph) -> tuple[object, ...]:
    """States and edges without the numbers that TLC or a search gives them."""
    rows = [tuple(map(canonical, row)) for row in graph.states]
    edges = {(rows[source], label, rows[target]) for source, label, target in edges_of(graph)}
    inside = {row for row, is_inside in zip(rows, graph.inside.tolist(), strict=True) if is_inside}
    return set(rows), edges, inside, [rows[place] for place in graph.initial], len(rows), len(graph.sources)


@pytest.mark.tlc
def test_tlcs_graph_is_that_of_the_machine(registry: Registry, counter: ModuleType, graph: StateGraph) -> None:
    exported = export(registry.get("Counter"), counter.Counter, timeout=60)
    assert told(exported) == told(graph)
    assert exported.states_inside == plain_size(registry.get("Counter"), timeout=60).states


def test_the_graph_has_every_edge_with_its_arguments(graph: StateGraph) -> None:
    assert len(graph.states) > graph.states_inside, "states just outside the bounds are part of the graph"
    (initial,) = graph.initial
    edges = {instance_text(graph.instances[i]): graph.state(t) for i, t in graph.outgoing(initial)}
    assert set(edges) == {'Add("a", 1)', 'Add("a", 2)', 'Add("b", 1)', 'Add("b", 2)'}
    assert edges['Add("b", 2)']["total"] == 2


def test_the_depth_of_a_state_is_the_length_of_a_shortest_path_to_it(graph: StateGraph) -> None:
    depth, _, _ = graph.tree
    assert depth == [len(graph.path_to(state)) for state in range(len(graph.states))]
    for state in graph.initial:
        assert graph.path_to(state) == [(-1, state)]
    assert max(depth) > 3


def test_parallel_edges_are_kept(graph: StateGraph) -> None:
    between: dict[tuple[int, int], int] = {}
    for pair in zip(graph.sources.tolist(), graph.targets.tolist(), strict=True):
        between[pair] = between.get(pair, 0) + 1
    assert max(between.values()) > 1, "a refusal changes the same for both amounts"


def test_the_machine_of_the_spec_is_equal_to_it(
    registry: Registry, graph: StateGraph, compare_counter: Callable[..., Comparison]
) -> None:
    comparison = compare_counter()
    assert comparison.equal
    assert comparison.edges == len(graph.sources)
    assert comparison.edges + comparison.refusals == graph.states_inside * len(graph.instances)
    assert comparison.outside == graph.inside.tolist().count(False)
    verdict = conformance_verdict(registry.get("Counter"), comparison)
    assert verdict.ok
    assert verdict.figures["states"] == graph.states_inside
    checked = comparison.edges + comparison.refusals
    assert replace(comparison, seconds=0.5).figures["checks_per_second"] == 2 * checked


def mutants(counter: ModuleType) -> dict[str, tuple[type[Any], str]]:
    machine = counter.Counter

    class GuardMissing(machine):
        __slots__ = ()

        def add_error(self, client: str, amount: int) -> str:
            error = machine.add_error(self, client, amount)
            return "NONE" if error == "STALE" else error

    class GuardTooMany(machine):
        __slots__ = ()

        @action("Reset")
        def reset(self) -> Any:
            if self.readers:
                raise NotEnabled("somebody reads")
            return machine.reset(self)

    class OtherEffect(machine):
        __slots__ = ()

        @action("Reset")
        def reset(self) -> Any:
            return replace(machine.reset(self), readers=frozenset())

    class OtherCode(machine):
        __slots__ = ()

        def add_error(self, client: str, amount: int) -> str:
            error = machine.add_error(self, client, amount)
            return "FULL" if error == "STALE" else error

    class Crash(machine):
        __slots__ = ()

        @action("Read", "Clients")
        def read(self, client: str) -> Any:
            return {}[client]

    class OtherStart(machine):
        __slots__ = ()

        @classmethod
        def initial(cls, constants: Any) -> Any:
            return replace(super().initial(constants), total=1)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Hidden(machine):
        has_read: bool = field(default=False, compare=False)  # type: ignore[misc]  # the spec has no such variable

        @action("Read", "Clients")
        def read(self, client: str) -> Any:
            return replace(machine.read(self, client), has_read=True)

        @action("Reset")
        def reset(self) -> Any:
            if self.has_read:
                raise NotEnabled("somebody has read")
            return machine.reset(self)

    return {
        "GuardMissing": (GuardMissing, "the machine allows it, the spec does not"),
        "GuardTooMany": (GuardTooMany, "the spec allows it, the machine refuses: somebody reads"),
        "OtherEffect": (OtherEffect, "the machine goes to another state than the spec"),
        "OtherCode": (OtherCode, "the machine goes to another state than the spec"),
        "Crash": (Crash, "the machine fails with KeyError"),
        "OtherStart": (OtherStart, "the initial states differ"),
        "Hidden": (Hidden, "the spec allows it, the machine refuses: somebody has read"),
    }


@pytest.mark.parametrize(
    "name", ["GuardMissing", "GuardTooMany", "OtherEffect", "OtherCode", "Crash", "OtherStart", "Hidden"]
)
def test_a_mutated_machine_differs_and_the_shortest_path_is_shown(
    name: str, registry: Registry, counter: ModuleType, compare_counter: Callable[..., Comparison]
) -> None:
    machine, what = mutants(counter)[name]
    comparison = compare_counter(machine)
    assert not comparison.equal
    assert comparison.differences[0].what.startswith(what)
    assert "   0  At the start" in comparison.evidence
    assert what in comparison.evidence
    assert mutant_verdict(registry.get("NoLimit"), comparison).ok == (name != "Crash")
    assert not conformance_verdict(registry.get("Counter"), comparison).ok


def test_a_mutant_that_only_fails_is_not_told_apart(
    registry: Registry, graph: StateGraph, counter: ModuleType, compare_counter: Callable[..., Comparison]
) -> None:
    fails = compare_counter(mutants(counter)["Crash"][0], enough=1)
    assert fails.difference_count > 1, "a crash is not enough"
    verdict = mutant_verdict(registry.get("NoLimit"), fails)
    assert (verdict.ok, verdict.found) == (False, "the machine fails with KeyError: 'a'")
    assert verdict.seconds == fails.seconds > 0
    foreign = replace(graph, states=[(*row[:-1], frozenset()) for row in graph.states])
    unread = mutant_verdict(registry.get("NoLimit"), compare_counter(graph=foreign, enough=1))
    assert not unread.ok
    assert unread.found.startswith("the state cannot be loaded")


def test_a_mutant_that_fails_here_and_differs_there_is_told_apart(
    registry: Registry, counter: ModuleType, compare_counter: Callable[..., Comparison]
) -> None:
    class FailsAndDiffers(mutants(counter)["Crash"][0]):  # type: ignore[misc]
        __slots__ = ()

        @action("Reset")
        def reset(self) -> Any:
            return replace(counter.Counter.reset(self), readers=frozenset())

    comparison = compare_counter(FailsAndDiffers, enough=1)
    assert comparison.crash_count > MAX_DIFFERENCES
    assert sum(difference.is_crash for difference in comparison.differences) == MAX_DIFFERENCES
    assert mutant_verdict(registry.get("NoLimit"), comparison).ok
    assert comparison.differences[0].what == "the machine goes to another state than the spec"


def test_a_comparison_begins_with_nothing_and_one_difference_tells_floors_apart() -> None:
    own = Comparison(model="Counter")
    assert (own.states, own.outside, own.edges, own.refusals, own.equal) == (0, 0, 0, 0, True)
    assert (own.seconds, own.tlc_seconds) == (0.0, 0.0)
    own.add(Difference(state=0, instance=-1, what="differs"))
    assert (own.equal, own.is_told_apart) == (False, True)


class Door(NamedTuple):
    is_open: bool
    may_close: bool = True

    def close(self) -> "Door":
        if not self.may_close:
            raise NotEnabled("it is stuck")
        return Door(is_open=False)


@pytest.mark.parametrize(
    ("door", "told"),
    [
        (Door(is_open=True), ""),
        (Door(is_open=True, may_close=False), "the spec allows it, the machine refuses: it is stuck"),
    ],
)
def test_an_edge_to_the_initial_state_is_one_as_any(door: Door, told: str) -> None:
    graph: Any = SimpleNamespace(outgoing=lambda source: [(0, 0)] if source else [])
    comparison = Comparison(model="Door")
    loaded = [Door(is_open=False), door]
    conformance._try_all(graph, loaded, [loaded[0], None], 1, [(0, "close", ())], comparison)
    assert [each.what for each in comparison.differences] == [told][: comparison.difference_count]
    assert (comparison.edges, comparison.refusals, comparison.difference_count) == ((0, 0, 1) if told else (1, 0, 0))


def test_an_action_to_the_initial_state_that_leads_elsewhere_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "_spec_state", lambda state: {"is_open": state.is_open})
    graph: Any = SimpleNamespace(outgoing=lambda source: [(0, 0)] if source else [])
    comparison = Comparison(model="Door")
    loaded = [Door(is_open=True), Door(is_open=False)]  # the spec says that closing it leads to an open one
    conformance._try_all(graph, loaded, [loaded[0], None], 1, [(0, "close", ())], comparison)
    assert [each.what for each in comparison.differences] == ["the machine goes to another state than the spec"]


def test_a_difference_of_a_state_has_no_next_one(graph: StateGraph) -> None:
    difference = Difference(state=0, instance=-1, what="differs")
    assert list(conformance._difference_lines(graph, difference)) == ["      differs"]


def test_a_graph_is_loaded_into_a_machine_that_is_as_the_spec_and_into_no_other(
    registry: Registry, counter: ModuleType, graph: StateGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "export", lambda model, cls: graph)  # noqa: ARG005 - as the original
    found = conformance.load_graph(registry.get("Counter"))
    assert (len(found.states), found.first_difference()) == (len(graph.states), ("", False))
    monkeypatch.setattr(conformance, "reference_of", lambda model: mutants(counter)["OtherEffect"][0])  # noqa: ARG005
    with pytest.raises(conformance.GraphUnusable, match=r"differs from the spec as it is: .*goes to another state"):
        conformance.load_graph(registry.get("Counter"))

    class BeginsLater(counter.Counter):  # type: ignore[name-defined,misc]
        @classmethod
        def initial(cls, constants: Any) -> Any:
            return replace(super().initial(constants), total=1)

    monkeypatch.setattr(conformance, "reference_of", lambda model: BeginsLater)  # noqa: ARG005
    with pytest.raises(conformance.GraphUnusable, match="a state cannot be loaded, or the initial ones differ"):
        conformance.load_graph(registry.get("Counter"))


def test_another_effect_is_shown_next_to_the_specs(
    counter: ModuleType, compare_counter: Callable[..., Comparison]
) -> None:
    evidence = compare_counter(mutants(counter)["OtherEffect"][0]).evidence
    assert evidence.startswith("   0  At the start\n")
    assert "   1  Add(" in evidence
    *_, shown = evidence.partition("machine -> spec:\n")
    assert 'readers gains "a"' in shown


def test_a_mutant_that_is_equal_is_a_failure(registry: Registry, compare_counter: Callable[..., Comparison]) -> None:
    assert not mutant_verdict(registry.get("NoLimit"), compare_counter()).ok


@pytest.mark.tlc
def test_a_model_with_rules_of_its_own_is_compared_with_the_reference_that_has_them() -> None:
    model = Registry().get("OverlapIsRefused")
    assert reference_of(model) is not model.machine_class()
    graph = export(model, reference_of(model), timeout=60)
    assert compare(model, graph=graph).equal
    assert not compare(model, model.machine_class(), graph=graph).equal, "its blocks do not overlap"


@pytest.mark.tlc
def test_a_mutant_differs_with_the_constants_that_it_needs() -> None:
    registry = Registry()
    mutant = registry.get("PendingDeletedWithGroup")
    model = registry.get(mutant.model)
    [found] = conformance.check(registry, [], [mutant], jobs=1)
    assert found.ok
    [with_the_models] = conformance.check(registry, [], [replace(mutant, constants=model.constants)], jobs=1)
    assert not with_the_models.ok


def test_bounds_that_differ_from_tlcs_are_a_difference(
    registry: Registry, counter: ModuleType, graph: StateGraph
) -> None:
    within = partial(counter.within_bounds, max_log=1)
    comparison = compare(registry.get("Counter"), graph=graph, within_bounds=within)
    assert comparison.differences[0].what == "the bounds in Python say False, TLC's constraint True"


def with_edges(graph: StateGraph, edges: list[tuple[int, int, int]]) -> StateGraph:
    """The graph with other edges: (source, label, target)."""
    sources, labels, targets = np.array(sorted(edges), dtype=np.int64).T
    return replace(graph, sources=sources, labels=labels, targets=targets)


def edges_of(graph: StateGraph) -> list[tuple[int, int, int]]:
    return list(zip(graph.sources.tolist(), graph.labels.tolist(), graph.targets.tolist(), strict=True))


def test_an_instance_with_two_next_states_in_the_spec_is_a_difference(
    graph: StateGraph, compare_counter: Callable[..., Comparison]
) -> None:
    edges = edges_of(graph)
    source, label, target = next(edge for edge in edges if edge[2] > 0)
    comparison = compare_counter(graph=with_edges(graph, [*edges, (source, label, target - 1)]))
    assert comparison.difference_count == 1
    assert comparison.differences[0].what == "the spec has several next states for one action instance"


def test_states_that_neither_the_graph_nor_the_machine_reaches_are_a_difference(
    graph: StateGraph, counter: ModuleType, compare_counter: Callable[..., Comparison]
) -> None:
    class NeverReset(counter.Counter):  # type: ignore[name-defined, misc]
        __slots__ = ()

        @action("Reset")
        def reset(self) -> Any:
            raise NotEnabled("the counter goes on")

    reset = next(place for place, instance in enumerate(graph.instances) if instance.action.name == "Reset")
    kept = [edge for edge in edges_of(graph) if edge[1] != reset]
    comparison = compare_counter(NeverReset, graph=with_edges(graph, kept))
    assert not comparison.equal
    assert comparison.differences[0].what == "the machine does not reach it from its own initial state"
    assert "a state: the machine does not reach it from its own initial state" in comparison.evidence


def test_a_graph_without_edges_or_without_refusals_shows_nothing(
    registry: Registry, compare_counter: Callable[..., Comparison]
) -> None:
    comparison = compare_counter()
    for nothing in ("edges", "refusals"):
        assert not conformance_verdict(registry.get("Counter"), replace(comparison, **{nothing: 0})).ok


def test_an_action_that_no_edge_of_the_graph_takes_has_to_be_one_that_is_never_taken(
    registry: Registry, graph: StateGraph, compare_counter: Callable[..., Comparison]
) -> None:
    model, names = registry.get("Counter"), {instance.action.name for instance in graph.instances}
    assert len(names) > 1
    for name in names:
        taken = [edge for edge in edges_of(graph) if graph.instances[edge[1]].action.name != name]
        comparison = compare_counter(graph=with_edges(graph, taken))
        assert comparison.untaken == {name}
        said = f"taken or not, against the registry's 'never': {name}"
        assert conformance_verdict(model, comparison).found.endswith(said)
        assert said not in conformance_verdict(replace(model, never=(name,)), comparison).found
        assert conformance_verdict(replace(model, kind="mutant"), comparison).found.endswith("differences")


@pytest.mark.tlc
def test_a_machine_without_some_steps_to_known_states_does_not_speak_the_specs_language(
    registry: Registry, counter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = machines.instances(counter.Counter, registry.get("Counter").machine_constants())
    fewer = [each for each in every if (each.action.name, each.arguments[1:]) != ("Refuse", (1,))]
    assert len(fewer) < len(every)
    monkeypatch.setattr(machines, "instances", lambda *_: fewer)
    with pytest.raises(GraphUnusable, match=r"give (\d+) states \(\d+ generated\), Next gives \1 "):
        export(registry.get("Counter"), counter.Counter, timeout=60)


@pytest.mark.tlc
def test_a_machine_without_one_of_the_actions_does_not_speak_the_specs_language(
    registry: Registry, counter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = machines.instances(counter.Counter, registry.get("Counter").machine_constants())
    monkeypatch.setattr(machines, "instances", lambda *_: [i for i in every if i.action.name != "Refuse"])
    with pytest.raises(GraphUnusable, match="give the machine every action of Next once"):
        export(registry.get("Counter"), counter.Counter, timeout=60)


def test_an_action_that_only_one_of_the_two_has_is_named_before_tlc_starts(
    registry: Registry, counter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlc, "run", lambda *_: pytest.fail("TLC starts"))
    model = registry.get("Counter")
    spec = model.spec / "Counter.tla"
    text = spec.read_text(encoding="utf-8")
    added = text.replace("\nNext ==\n", "\nTwice == UNCHANGED vars\n\nNext ==\n    \\/ Twice\n")
    spec.write_text(added, encoding="utf-8")
    with pytest.raises(GraphUnusable, match=r'Counter.tla has the action Twice in Next, .* mark one @action\("Twice"'):
        export(model, counter.Counter)


def test_a_method_that_is_marked_as_no_action_of_next_is_named(registry: Registry, counter: ModuleType) -> None:
    class More(counter.Counter):  # type: ignore[misc,name-defined]
        @machines.action("Thrice")
        def thrice(self) -> Self:
            return self

    with pytest.raises(
        GraphUnusable, match=r"\.thrice is marked as the action Thrice, which is not in Next of Counter\.tla"
    ):
        export(registry.get("Counter"), More)


@pytest.mark.parametrize(
    ("before", "after", "action"),
    [
        (
            "amount \\in Amounts : Add",
            "amount \\in Amounts \\union {7} : Add",
            "refuse takes every value of Clients, Amounts",
        ),
        ("client \\in Clients : Read", 'client \\in {"a"} : Read', "read takes every value of Clients"),
        (
            "\nNext ==\n",
            "\nNext ==\n    \\/ \\E client \\in {} : Read(client)\n",
            "read takes every value of Clients",
        ),
    ],
)
def test_other_parameters_in_next_than_the_machine_has_are_named_before_tlc_starts(
    before: str, after: str, action: str, registry: Registry, counter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlc, "run", lambda *_: pytest.fail("TLC starts"))
    model = registry.get("Counter")
    spec = model.spec / "Counter.tla"
    text = spec.read_text(encoding="utf-8")
    assert text.count(before) == 1
    spec.write_text(text.replace(before, after), encoding="utf-8")
    with pytest.raises(GraphUnusable, match=f"Counter.{action}, and in Next of Counter.tla [^;]*$"):
        export(model, counter.Counter)


@pytest.mark.tlc
def test_a_set_with_other_elements_in_the_spec_than_the_machine_takes_is_refused(
    registry: Registry, counter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = registry.get("Counter")
    constants = counter.Constants
    domain = constants.domain
    monkeypatch.setattr(constants, "domain", lambda *given: domain(*given)[:1])
    with pytest.raises(GraphUnusable, match=r"Counter_graph.tla assumes the sets of Counter's constants"):
        export(model, counter.Counter, timeout=60)


DUMP = r"""digraph DiskGraph {
11 [label="/\\ total = 0\n/\\ seen = [a |-> 0]\n/\\ log = <<>>\n/\\ readers = {}\n/\\ response = \"NO\"",style = filled]
11 -> 22 [label="Instance__0",color="black"];
11 -> 11 [label="Inside__",color="black"];
22 [label="/\\ total = 0\n/\\ seen = [a |-> 0]\n/\\ log = <<>>\n/\\ readers = {\"a\"}\n/\\ response = \"NO\""];
}"""


@pytest.mark.parametrize(
    ("dumped", "text"), [(r"a\nb", "a\nb"), (r"a\\nb", r"a\nb"), (r"\"n\"", '"n"'), (r"\\\\", r"\\"), ("n", "n")]
)
def test_a_label_of_a_dump_is_read_without_its_escapes(dumped: str, text: str) -> None:
    assert _unescape(dumped) == text


def test_a_dump_gives_the_values_of_each_variable_and_the_initial_states(graph: StateGraph) -> None:
    read = read_dot(DUMP, "M", graph.variables, graph.instances)
    assert read.states == [(0, Map(a=0), (), readers, "NO") for readers in (frozenset(), frozenset({"a"}))]
    assert (read.initial, read.inside.tolist(), edges_of(read)) == ([0], [True, False], [(0, 0, 1)])


@pytest.mark.parametrize(
    ("result", "plain", "said"),
    [
        ({"distinct": 2, "generated": 2}, {"distinct": 1, "generated": 1}, ""),
        ({"distinct": 3, "generated": 2}, {"distinct": 1, "generated": 1}, "the dump has 2 states, TLC counted 3"),
        ({"distinct": 2, "generated": 2}, {"distinct": 2, "generated": 1}, "give 1 states .* Next gives 2 "),
        ({"distinct": 2, "generated": 2}, {"distinct": 1, "generated": 2}, r"\(1 generated\), Next gives 1 \(2\)"),
        ({"distinct": 2, "generated": 2, "verdict": "times out"}, {}, "times out while it exports"),
        ({"distinct": 2, "generated": 2}, {"verdict": "error"}, "error while it counts"),
    ],
)
def test_a_graph_that_does_not_have_all_that_tlc_counts_is_refused(
    result: dict[str, Any],
    plain: dict[str, Any],
    said: str,
    registry: Registry,
    counter: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(job: tlc.Job, _: object = None) -> tlc.Result:
        if job.dump is None:
            return tlc.Result(**{"verdict": "holds", **plain})
        job.dump.write_text(DUMP, encoding="utf-8")
        return tlc.Result(**{"verdict": "holds", **result})

    monkeypatch.setattr(tlc, "run", run)
    with pytest.raises(GraphUnusable, match=said) if said else nullcontext():
        assert len(export(registry.get("Counter"), counter.Counter).states) == 2


def test_a_graph_with_the_numbers_of_the_registry_needs_no_second_run(
    registry: Registry, counter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(job: tlc.Job, _: object = None) -> tlc.Result:
        assert job.dump is not None, "a run that only counts"
        job.dump.write_text(DUMP, encoding="utf-8")
        return tlc.Result(verdict="holds", distinct=2, generated=2)

    monkeypatch.setattr(tlc, "run", run)
    model = replace(registry.get("Counter"), expect=Expectation(states=1, generated=1))
    assert export(model, counter.Counter).states_inside == 1


@pytest.mark.parametrize(
    "expect", [Expectation(states=1, generated=2), Expectation(states=2, generated=1), Expectation()]
)
def test_a_graph_with_another_number_than_the_registry_needs_a_second_run(
    expect: Expectation, registry: Registry, counter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[bool] = []

    def run(job: tlc.Job, _: object = None) -> tlc.Result:
        counts.append(job.dump is None)
        if job.dump is None:
            return tlc.Result(verdict="holds", distinct=1, generated=1)
        job.dump.write_text(DUMP, encoding="utf-8")
        return tlc.Result(verdict="holds", distinct=2, generated=2)

    monkeypatch.setattr(tlc, "run", run)
    assert export(replace(registry.get("Counter"), expect=expect), counter.Counter).states_inside == 1
    assert counts == [False, True]


def test_a_dump_with_two_states_of_the_same_values_is_refused(graph: StateGraph) -> None:
    text = '1 [label="/\\\\ total = 1\\n/\\\\ log = <<>>"];\n2 [label="/\\\\ log = <<>>\\n/\\\\ total = 1"];\n'
    with pytest.raises(GraphUnusable, match="two states of the dump have the same values"):
        read_dot(text, "M", ("total", "log"), graph.instances)
    with pytest.raises(GraphUnusable, match="lacks a variable"):
        read_dot(text, "M", ("total", "log", "more"), graph.instances)


def test_the_command_compares_graphs_and_refuses_an_unusable_call(
    registry: Registry,
    counter: ModuleType,
    graph: StateGraph,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(conformance, "Registry", lambda: registry)
    monkeypatch.setattr(conformance, "export", lambda *_, **__: graph)
    monkeypatch.setattr(conformance, "bounds_predicate", lambda _: partial(counter.within_bounds, max_log=2))
    parser = argparse.ArgumentParser()
    conformance.add_parser(parser.add_subparsers(), "help")
    assert conformance.run(parser.parse_args(["graphs"])) == 0
    assert "Counter" in capsys.readouterr().out
    assert conformance.run(parser.parse_args(["graphs", "Conter"])) == 2
    assert "no entry 'Conter'" in capsys.readouterr().err
    registry.models["Counter"] = replace(registry.models["Counter"], graph="")
    assert conformance.run(parser.parse_args(["graphs", "--mutant", "NoLimit"])) == 2
    assert "no graph of Counter is compared" in capsys.readouterr().err
    registry.models["Counter"] = replace(registry.models["Counter"], graph="small")
    guard_missing, _ = mutants(counter)["GuardMissing"]
    monkeypatch.setattr(conformance, "mutated", lambda *_: guard_missing)
    assert conformance.run(parser.parse_args(["graphs", "--mutant", "NoLimit"])) == 0
    assert "told apart" in capsys.readouterr().out
    monkeypatch.setattr(conformance, "mutated", lambda *_: counter.Counter)
    assert conformance.run(parser.parse_args(["graphs", "--mutant", "NoLimit"])) == 1


@pytest.mark.tlc
def test_several_graphs_are_compared_at_a_time(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(registry.folder.parent))  # the worker processes import the machine by its name
    one = registry.get("OneClient")
    less = replace(one, name="OneClientLess", constants={**one.constants, "Amounts": "{1}"})
    registry.models["OneClientLess"] = less
    verdicts = {verdict.name: verdict for verdict in conformance.check(registry, [one, less], jobs=2)}
    assert {name: verdict.found for name, verdict in verdicts.items()} == {
        "OneClient": "equal",
        "OneClientLess": "equal",
    }
    assert verdicts["OneClientLess"].figures["states"] < verdicts["OneClient"].figures["states"]  # type: ignore[operator]


def test_graphs_that_are_made_at_a_time_are_written_to_folders_of_their_own(registry: Registry) -> None:
    model, mutant = registry.get("Counter"), registry.get("NoLimit")
    other = replace(mutant, name="Other", constants={**model.constants, "Amounts": "{1}"})
    same = replace(other, name="Same")
    tasks = conformance._tasks(registry, [model], [mutant, other, same])
    assert [(task.base.name, [each.name for each in task.mutants]) for task in tasks] == [
        ("Counter", ["NoLimit"]),
        ("Other", ["Other", "Same"]),
    ]


def test_the_time_of_a_comparison_is_its_own_and_tlcs(registry: Registry) -> None:
    own = Comparison(model="Counter", seconds=2.0)
    found = [conformance_verdict(registry.get("Counter"), each) for each in (own, replace(own, tlc_seconds=3.0))]
    assert [verdict.seconds for verdict in found] == [2.0, 5.0]
