"""Properties of the spec, evaluated in Python on the reference's states."""

from dataclasses import replace

import pytest

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.explorer import attempt
from kafka_eos.machines.machine import instances
from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Model, Registry, bounds_predicate
from kafka_eos_checks.walks.layers import broken_layer
from kafka_eos_checks.walks.properties import GOAL, INITIAL, INVARIANT, STEP, parts
from kafka_eos_checks.walks.walk import Walker


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


@pytest.mark.parametrize(
    ("model", "name", "kinds"),
    [
        ("Transactions", "AllOrNone", {INVARIANT}),
        ("Transactions", "OnlyLegalTransitions", {STEP}),
        ("Transactions", "EveryTransactionEnds", {GOAL}),
        ("Transactions", "RefinesAtomicTransactions", {INITIAL, STEP}),
        ("ConsumeTransformProduce", "EveryInputTakesEffect", {GOAL}),
        ("ApplicationLoop", "EveryInputIsProcessed", {GOAL}),
    ],
)
def test_each_part_of_a_property_has_the_kind_that_says_when_to_evaluate_it(
    registry: Registry, model: str, name: str, kinds: set[str]
) -> None:
    assert {part.kind for part in parts(Formulas(registry.models[model]), name)} == kinds


def first_violation(model: Model) -> int:
    """The number of states on the shortest path to a violation, found breadth-first in the reference."""
    walker = Walker(replace(broken_layer(Registry(), model.name), model=model, properties=(model.expect.violates,)))
    named, inside = instances(walker.machine, walker.constants), bounds_predicate(model)
    frontier = [walker.initial(walker.constants)]
    seen = set(frontier)
    depth = 1
    while frontier:
        depth += 1
        further = []
        for state in filter(inside, frontier):
            for instance in named:
                after = attempt(state, instance)
                if isinstance(after, (NotEnabled, Rejected)):
                    continue
                if walker.judged(state, after) is not None:
                    return depth
                if after not in seen:
                    seen.add(after)
                    further.append(after)
        frontier = further
    return 0


@pytest.mark.parametrize(
    "name",
    [
        "OldRetry",
        "RestartReorders",
        "AtLeastOnceIsNotExactlyOnce",
        "FirstAnswerFences",
        "HangingTransaction",
        "EndRaisesEpoch",
        "TimeoutRaisesEpoch",
        "LongTransactionDelays",
        "MirrorOffsetsInSourceTwice",
        "MirrorOffsetsInSourceDuplicates",
        "TransferWithoutTransactions",
        "CommitAfterProcessingTwice",
    ],
)
def test_a_property_is_violated_first_where_tlc_finds_it_violated(registry: Registry, name: str) -> None:
    model = registry.models[name]
    assert first_violation(model) == model.expect.depth
