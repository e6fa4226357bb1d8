"""The judge of a run: where a formula has no value TLC stops, so a run there is wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from kafka_eos_checks.tla.evaluation import Undefined
from kafka_eos_checks.walks.properties import GOAL, INITIAL, INVARIANT, STEP, Judge, Part


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
