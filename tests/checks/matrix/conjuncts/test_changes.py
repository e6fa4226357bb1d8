"""The small changes of a machine and of the operands of a formula."""

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from kafka_eos_checks.matrix.conjuncts.changes import machine_parts, of_operands
from kafka_eos_checks.matrix.conjuncts.reference import mutated_reference
from kafka_eos_checks.tla.sany import Expression, Span

MACHINE = """
from dataclasses import replace


def level(store, key, most):
    if key not in store and not all(store):
        return 0
    return min(store[key] + 1, most) if store[key] < most else most


def after(store, key, parts):
    new = replace(store, total=1, log=())
    return new.log.append(key), (*parts, key), (key, *parts), store.index(key)
"""
CHANGES = {
    "level": [
        "key not in store -> key in store",
        "all(store) -> any(store)",
        "min(store[key] + 1, most) if store[key] < most else most -> min(store[key] + 1, most)",
        "min(store[key] + 1, most) if store[key] < most else most -> most",
        "min(store[key] + 1, most) -> max(store[key] + 1, most)",
        "store[key] + 1 -> store[key]",
        "store[key] < most -> store[key] <= most",
    ],
    "after": [
        "replace(store, total=1, log=()) -> replace(store, log=())",
        "replace(store, total=1, log=()) -> replace(store, total=1)",
        "new.log.append(key) -> new.log",
        "(*parts, key) -> (*parts,)",
    ],
}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[ModuleType]:
    path = tmp_path / "made_up_machine.py"
    path.write_text(MACHINE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("made_up_machine", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["made_up_machine"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["made_up_machine"]


def test_every_expression_of_a_machine_that_can_be_weaker_has_its_change(machine: ModuleType) -> None:
    found: dict[str, list[str]] = {}
    for part in machine_parts(machine):
        found.setdefault(part.function, []).append(part.change)
    assert {name: sorted(changes) for name, changes in found.items()} == {
        name: sorted(changes) for name, changes in CHANGES.items()
    }


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("key not in store -> key in store", 0),
        ("store[key] + 1 -> store[key]", 3),
        ("min(store[key] + 1, most) if store[key] < most else most -> most", 9),
        ("store[key] < most -> store[key] <= most", 4),
    ],
)
def test_a_change_is_made_in_its_place_only(change: str, value: int, machine: ModuleType) -> None:
    (part,) = [each for each in machine_parts(machine) if each.change == change]
    store = {"": 0, "a": 3}
    assert machine.level(store, "a", 9) == 4
    with mutated_reference(part):
        assert machine.level(store, "a", 9) == value
    assert MACHINE.splitlines()[part.line - 1].count(change.partition(" -> ")[0]) == 1


def test_a_set_of_several_elements_lacks_each_of_them_in_turn() -> None:
    text = 'P == x \\in {"a", y}'
    elements = tuple(Expression(span=Span("M", 1, at, 1, end), level=0) for at, end in ((13, 15), (18, 18)))
    whole = Expression(span=Span("M", 1, 12, 1, 19), level=0, operator="$SetEnumerate", operands=elements)
    assert list(of_operands(whole, text, lambda _: False)) == [(whole.span, "{y}"), (whole.span, '{"a"}')]
    assert list(of_operands(replace(whole, operands=elements[:1]), text, lambda _: False)) == []


@pytest.mark.parametrize(("written", "other"), [("\\A", "\\E"), ("\\E", "\\A")])
def test_a_quantifier_becomes_the_other_one_unless_it_is_over_one_value(written: str, other: str) -> None:
    text = f"P == {written} x \\in Keys : x"
    values = Expression(span=Span("M", 1, 15, 1, 18), level=0, operator="Keys")
    body = Expression(span=Span("M", 1, 22, 1, 22), level=0)
    whole = Expression(
        span=Span("M", 1, 6, 1, 22), level=0, operator="$BoundedForall", operands=(body,), bounds=(values,)
    )
    assert list(of_operands(whole, text, lambda _: False)) == [(Span("M", 1, 6, 1, 7), other)]
    assert list(of_operands(whole, text, lambda name: name == "Keys")) == []
