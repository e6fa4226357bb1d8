"""The reference without one conjunct of its guards: the conjuncts that count, and the result of graph equality."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.machines import epoch_bump
from kafka_eos.machines.machine import actions
from kafka_eos_checks.graphs import command as conformance
from kafka_eos_checks.graphs.state_graph import GraphUnusable, StateGraph
from kafka_eos_checks.matrix.conjuncts.outcomes import Means
from kafka_eos_checks.matrix.conjuncts.reference import (
    GraphSearch,
    guard_parts,
    mutated_reference,
    reference_subjects,
)
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.result_cache import ResultCache

GUARDS = """
from kafka_eos.errors import ErrorCode, enabled


def is_known(name: str, names: set[str]) -> bool:
    return bool(name) and (name in names or name == "somebody")


class Queue:
    def may_enter(self, name: str) -> bool:
        if not name:
            name = "nobody"
            return False
        return is_known(name, set())

    def enter_error(self, name: str, full: bool, strict: bool) -> ErrorCode:
        unknown = strict and not self.may_enter(name)
        if unknown:
            return ErrorCode.UNKNOWN_PRODUCER_ID
        return ErrorCode.NOT_ENOUGH_REPLICAS if full and strict else ErrorCode.NONE

    def enter(self, name: str, fault: bool) -> "Queue":
        enabled(name != "nobody" and not fault, "why not")
        if fault:
            enabled(any(c == "a" and c != name for c in name), "nobody of that name")
            enabled(next((c > "a" and c < "z" for c in name), False), "no letter")
        return Queue() if name else self

    @property
    def length(self) -> int:
        return 1 if self else 0
"""

EXPECTED = {
    "is_known": [
        "bool(name) -> True",
        "name in names or name == 'somebody' -> True",
        "name in names -> False",
        "name == 'somebody' -> False",
    ],
    "Queue.may_enter": ["not name -> False", "is_known(name, set()) -> True"],
    "Queue.enter_error": [
        "strict -> True",
        "not self.may_enter(name) -> True",
        "unknown -> False",
        "full and strict -> False",
        "full -> True",
        "strict -> True #2",
    ],
    "Queue.enter": [
        "name != 'nobody' -> True",
        "not fault -> True",
        "any((c == 'a' and c != name for c in name)) -> True",
        "c == 'a' -> True",
        "c != name -> True",
        "next((c > 'a' and c < 'z' for c in name), False) -> True",
        "c > 'a' -> True",
        "c < 'z' -> True",
    ],
}

READ = '        enabled(self.total == self.constants.limit, "the limit is not reached")\n'
PLANTED = READ + '        enabled(self.total >= 0, "less than nothing")\n'


def imported(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def planted(registry: Registry, tmp_path: Path) -> Iterator[Registry]:
    """The counter's registry with a machine that has one conjunct too many."""
    text = (registry.folder.parent / "counter.py").read_text(encoding="utf-8")
    assert READ in text
    (tmp_path / "planted_counter.py").write_text(text.replace(READ, PLANTED), encoding="utf-8")
    imported("planted_counter", tmp_path / "planted_counter.py")
    for name, model in registry.models.items():
        registry.models[name] = replace(model, machine="planted_counter:Counter")
    yield registry
    del sys.modules["planted_counter"]


def test_every_part_of_every_guard_is_found_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "made_up_guards.py").write_text(GUARDS, encoding="utf-8")
    module = imported("made_up_guards", tmp_path / "made_up_guards.py")
    found: dict[str, list[str]] = {}
    for part in guard_parts(module):
        found.setdefault(part.function, []).append(part.change)
    del sys.modules["made_up_guards"]
    assert found == EXPECTED


def test_a_function_without_a_part_of_its_guard_replaces_the_original_and_is_removed_again() -> None:
    constants = epoch_bump.Constants(attempts=frozenset({1}), max_epoch=1, take_over=False)
    state = epoch_bump.EpochBump.initial(constants)
    (part,) = [p for p in guard_parts(epoch_bump) if p.change == "self.constants.take_over -> True"]
    before = actions(epoch_bump.EpochBump)
    with mutated_reference(part):
        assert state.another_instance_asks().taken_over
        assert actions(epoch_bump.EpochBump) == before
    with pytest.raises(NotEnabled):
        state.another_instance_asks()


def test_a_property_stays_a_property() -> None:
    constants = epoch_bump.Constants(attempts=frozenset({1}), max_epoch=1, take_over=False)
    state = epoch_bump.EpochBump.initial(constants)
    ended = replace(state, client=replace(state.client, error=epoch_bump.ErrorCode.PRODUCER_FENCED))
    (part,) = [p for p in guard_parts(epoch_bump) if p.function == "EpochBump.is_alive"]
    with mutated_reference(part):
        assert ended.is_alive is True
    assert ended.is_alive is False


@pytest.fixture
def without_tlc(graph: StateGraph, counter: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLC's graph of the counter is the machine's: a test of graphs compares them."""
    monkeypatch.setattr(conformance, "export", lambda *_, **__: graph)
    monkeypatch.setattr(conformance, "bounds_predicate", lambda _: partial(counter.within_bounds, max_log=2))


@pytest.mark.usefixtures("without_tlc")
def test_the_graph_notices_the_removal_of_every_part_except_a_planted_one(planted: Registry, tmp_path: Path) -> None:
    search = GraphSearch(cache=ResultCache(tmp_path / "cache"))
    outcomes = {s.part.name: search.judge(s) for s in reference_subjects(planted)}
    assert {name for name, outcome in outcomes.items() if not outcome.means.kills} == {
        "planted_counter!Counter.reset: self.total >= 0 -> True",
        "planted_counter!within_bounds: len(state.log) <= max_log -> True",  # not a part of the machine
    }
    assert len(outcomes) == 8
    stale = outcomes["planted_counter!Counter.read: self.seen[client] != self.total -> True"]
    assert (stale.means, stale.model) == (Means.GRAPH, "Counter")
    assert "allows it, the spec does not" in stale.by
    again = GraphSearch(cache=search.cache)
    assert {s.part.name: again.judge(s) for s in reference_subjects(planted)} == outcomes
    assert not again._graphs  # nothing was compared again


@pytest.mark.usefixtures("without_tlc")
def test_a_machine_that_only_fails_has_no_value_and_one_that_also_differs_has_another_graph(
    planted: Registry, tmp_path: Path
) -> None:
    read, add, *_ = reference_subjects(planted)
    outcomes = []
    for subject, body in (
        (read, "raise LookupError(self.response)"),
        (add, "return self.lacks[amount] if self.total == 0 else 'NONE'"),  # the first state first
    ):
        (tree,) = ast.parse(f"def {subject.part.tree.name}(self, client, amount=0):\n    {body}").body
        assert isinstance(tree, ast.FunctionDef)
        changed = replace(subject, part=replace(subject.part, tree=tree))
        outcomes.append(GraphSearch(cache=ResultCache(tmp_path / "cache")).judge(changed))
        assert GraphSearch(cache=ResultCache(tmp_path / "cache")).judge(changed).means is outcomes[-1].means
    assert [outcome.means for outcome in outcomes] == [Means.EVALUATION, Means.GRAPH]
    assert "the machine fails with LookupError" in outcomes[0].by


def test_a_function_that_needs_its_class_is_not_taken_for_one_that_fails(tmp_path: Path) -> None:
    text = "class A:\n    def may_pass(self) -> bool:\n        return bool(super().__init__) and True\n"
    (tmp_path / "of_a_class.py").write_text(text, encoding="utf-8")
    part, *_ = guard_parts(imported("of_a_class", tmp_path / "of_a_class.py"))
    with pytest.raises(AssertionError, match="would fail for want of __class__"), mutated_reference(part):
        pass
    del sys.modules["of_a_class"]


@pytest.mark.usefixtures("without_tlc")
def test_a_reference_that_differs_without_a_change_decides_nothing(planted: Registry, tmp_path: Path) -> None:
    part = reference_subjects(planted)[0]
    (reset,) = [
        p for p in guard_parts(sys.modules["planted_counter"]) if "self.total == self.constants.limit" in p.change
    ]
    with mutated_reference(reset), pytest.raises(GraphUnusable, match="differs from the spec as it is: Reset"):
        GraphSearch(cache=ResultCache(tmp_path / "cache")).judge(part)
