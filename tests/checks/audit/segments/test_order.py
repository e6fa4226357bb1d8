"""Integers are sorted stably, whatever their range."""

import random

import numpy as np
import pytest

from kafka_eos_checks.audit.segments.order import places_of_each, stable_order

LIMITS = np.iinfo(np.int64)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint8])
def test_a_stable_order_is_that_of_argsort(dtype: type) -> None:
    rng = random.Random(seed := random.randrange(1 << 32))
    limits = np.iinfo(dtype)
    for _ in range(300):
        low = rng.choice((limits.min, 0, rng.randint(limits.min, limits.max)))
        high = rng.choice((limits.max, min(limits.max, low + rng.choice((0, 3, 70_000)))))
        values = np.array([rng.randint(low, high) for _ in range(rng.randint(0, 40))], dtype)
        assert stable_order(values).tolist() == np.argsort(values, kind="stable").tolist(), (seed, values)


def test_the_widest_range_overflows_nothing() -> None:
    assert stable_order(np.array([LIMITS.max, LIMITS.min, 0, LIMITS.min])).tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("span", [(1 << 16) - 1, 1 << 16])
def test_the_first_range_that_is_too_wide_for_digits_is_sorted_alike(span: int) -> None:
    assert stable_order(np.array([7 + span, 7, 8])).tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([7], [(7, [0])]),
        ([3, 3], [(3, [0, 1])]),
        ([5, -1, 5, 2, -1], [(-1, [1, 4]), (2, [3]), (5, [0, 2])]),
    ],
)
def test_each_value_has_its_places_in_order(values: list[int], expected: list[tuple[int, list[int]]]) -> None:
    found = [(value, places.tolist()) for value, places in places_of_each(np.array(values, np.int64))]
    assert found == expected
