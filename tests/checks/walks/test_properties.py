"""The judge of a run: where a formula has no value TLC stops, so a run there is wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.evaluation import Undefined
from kafka_eos_checks.walks.properties import GOAL, INITIAL, INVARIANT, STEP, Judge, Part, parts


def undefined(*_: object) -> bool:
    raise Undefined("CHOOSE from nothing")


def unknown(*_: object) -> bool:
    raise KeyError("none")


@pytest.mark.parametrize("formula", [undefined, unknown])
@pytest.mark.parametrize(
    ("kind", "judged"),
    [
        (INITIAL, lambda judge: judge.first(())),
        (INVARIANT, lambda judge: judge.first(())),
        (INVARIANT, lambda judge: judge.step((), (), 1)),
        (STEP, lambda judge: judge.step((), (), 1)),
        (GOAL, lambda judge: judge.at_rest(())),
    ],
)
def test_a_formula_without_a_value_is_violated(
    formula: Callable[..., bool], kind: str, judged: Callable[[Judge], Any]
) -> None:
    judge = Judge()
    judge.add([Part("P", kind, formula, 1, ())])
    found = judged(judge)
    assert found is not None
    assert found.name == "P"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("total <= Limit", INVARIANT),
        ("[](total <= Limit)", INVARIANT),
        ("[][total' >= total]_vars", STEP),
        ("[]<>(total = 0)", GOAL),
        ("<>(total = Limit)", GOAL),
        ("[](total = 0 => <>(total > 0))", GOAL),
    ],
)
def test_what_is_always_so_is_an_invariant_unless_it_is_about_later_states(
    registry: Registry, text: str, kind: str
) -> None:
    module = registry.folder.parent / "Counter.tla"
    before, rule, after = module.read_text(encoding="utf-8").rpartition("\n====")
    module.write_text(f"{before}\nAsked == {text}{rule}{after}", encoding="utf-8")
    assert {part.kind for part in parts(Formulas(registry.get("Counter")), "Asked")} == {kind}
