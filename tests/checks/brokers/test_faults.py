import random
from collections import Counter

import pytest

from kafka_eos_checks.brokers.faults import NO_FAULT, NO_FAULTS, Fault, FaultKind, Plan

CHANCES = {FaultKind.DROP_ANSWER: 0.2, FaultKind.REPEAT: 0.1, FaultKind.DELAY: 0.1}


def test_the_same_seed_gives_the_same_faults_in_any_order_of_requests() -> None:
    plan, again = (Plan(seed="s/1", chances=CHANCES) for _ in range(2))
    forward = {k: plan.fault(k) for k in range(500)}
    shuffled = list(range(500))
    random.Random(3).shuffle(shuffled)
    assert {k: again.fault(k) for k in shuffled} == forward


def test_another_seed_gives_other_faults() -> None:
    plan, other = Plan(seed="s/1", chances=CHANCES), Plan(seed="s/2", chances=CHANCES)
    assert [plan.fault(k) for k in range(100)] != [other.fault(k) for k in range(100)]


def test_faults_are_as_frequent_as_their_probabilities() -> None:
    plan = Plan(seed="frequencies", chances=CHANCES)
    count = Counter(plan.fault(k).kind for k in range(10_000))
    for kind, chance in CHANCES.items():
        assert abs(count[kind] / 10_000 - chance) < 0.02
    assert set(count) == {*CHANCES, FaultKind.NONE}


def test_no_fault_is_longer_than_the_longest() -> None:
    plan = Plan(seed="long", chances={FaultKind.DELAY: 1.0}, longest=0.05)
    assert all(0 <= plan.fault(k).seconds <= 0.05 for k in range(1_000))


def test_spared_requests_pass_and_scripted_faults_win() -> None:
    script = {1: Fault(FaultKind.REPEAT, 0.5)}
    plan = Plan(seed="x", chances={FaultKind.DROP_ANSWER: 1.0}, spared=3, scripted=script)
    assert [plan.fault(k).kind for k in range(5)] == [
        FaultKind.NONE,
        FaultKind.REPEAT,
        FaultKind.NONE,
        FaultKind.DROP_ANSWER,
        FaultKind.DROP_ANSWER,
    ]
    assert NO_FAULTS.fault(0) == NO_FAULT


@pytest.mark.parametrize("chances", [{FaultKind.DELAY: 1.1}, {FaultKind.DELAY: 0.6, FaultKind.REPEAT: 0.5}])
def test_probabilities_with_a_sum_above_one_are_refused(chances: dict[FaultKind, float]) -> None:
    with pytest.raises(ValueError, match="sum"):
        Plan(seed="x", chances=chances)
