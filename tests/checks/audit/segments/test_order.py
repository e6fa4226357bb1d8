"""Integers are sorted stably, whatever their range."""

import random

import numpy as np
import pytest

from kafka_eos_checks.audit.segments.order import stable_order

LIMITS = np.iinfo(np.int64)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
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
