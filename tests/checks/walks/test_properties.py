"""The judge of a run: where a formula has no value TLC stops, and a run ends there without a verdict."""

from collections.abc import Callable
from typing import Any

import pytest

from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.evaluation import Undefined
from kafka_eos_checks.walks.properties import GOAL, INITIAL, INVARIANT, STEP, Judge, Part, Wrong, parts


def undefined(*_: object) -> bool:
    raise Undefined("CHOOSE from nothing")


def unknown(*_: object) -> bool:
    raise KeyError("none")


@pytest.mark.parametrize(("formula", "why"), [(undefined, "CHOOSE from nothing"), (unknown, "no value at 'none'")])
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
def test_a_formula_without_a_value_is_told_with_its_error_and_not_as_violated(
    formula: Callable[..., bool], why: str, kind: str, judged: Callable[[Judge], Any]
) -> None:
    judge = Judge()
    judge.add([Part("P", kind, formula, 1, ())])
    found = judged(judge)
    assert found == Wrong("P", f"cannot be judged: P has no value ({why})", is_judged=False)
    violated = Judge()
    violated.add([Part("P", kind, lambda *_: False, 1, ())])
    how = "comes to rest, and P is not so" if kind == GOAL else "violates P"
    assert judged(violated) == Wrong("P", how)
    assert not found.is_like(judged(violated))
    holding = Judge()
    holding.add([Part("P", kind, lambda *_: True, 1, ())])
    assert judged(holding) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("total <= Limit", INVARIANT),
        ("[](total <= Limit)", INVARIANT),
        ("[][total' >= total]_vars", STEP),
        ("[]<>(total = 0)", GOAL),
        ("<>(total = Limit)", GOAL),
        ("[](total = 0 => <>(total > 0))", GOAL),
        ("Reaches(Limit)", GOAL),
        ("\\A number \\in {1, Limit} : Reaches(number)", GOAL),
        ("Stays(Limit)", INVARIANT),
        ("Below(Limit)", INVARIANT),
    ],
)
def test_what_is_always_so_is_an_invariant_unless_it_is_about_later_states(
    registry: Registry, text: str, kind: str
) -> None:
    module = registry.folder.parent / "Counter.tla"
    before, rule, after = module.read_text(encoding="utf-8").rpartition("\n====")
    rules = "Reaches(n) == total = 0 ~> total = n\nBelow(n) == total <= n\nStays(n) == []Below(n)"
    module.write_text(f"{before}\n{rules}\nAsked == {text}{rule}{after}", encoding="utf-8")
    assert {part.kind for part in parts(Formulas(registry.get("Counter")), "Asked")} == {kind}
