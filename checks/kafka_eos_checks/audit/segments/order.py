"""Stable orders of integers, and the places of each value."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.segments.headers import Ints


def stable_order(values: NDArray[Any]) -> Ints:
    """Sort stably, as ``argsort``, which is slow for wide numbers: value and place are sorted as one number."""
    if not len(values):
        return np.empty(0, np.int64)
    lowest, bits = int(values.min()), (len(values) - 1).bit_length()
    span = int(values.max()) - lowest
    if span < 1 << 16:  # numpy sorts these by their digits, three times as fast again
        return np.argsort((values - lowest).astype(np.uint16), kind="stable")
    if span >= 1 << (63 - bits):
        return np.argsort(values, kind="stable")
    width: Any = np.uint32 if span < 1 << (32 - bits) else np.int64  # half as wide is sorted twice as fast
    wide = values if values.dtype == np.uint64 else values.astype(np.int64, copy=False)
    order: Ints = (wide - lowest).astype(width)
    order <<= bits
    order |= np.arange(len(values), dtype=order.dtype)
    order.sort()
    order &= (1 << bits) - 1
    return order.astype(np.int64, copy=False)


def places_of_each(values: NDArray[Any]) -> Iterator[tuple[int, Ints]]:
    """Each value, ascending, with its places in order."""
    order = stable_order(values)
    ordered = values[order]
    first = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for own in np.split(order, first) if len(order) else ():
        yield int(values[own[0]]), own


def by_appearance(values: NDArray[Any], count: int) -> tuple[Ints, NDArray[np.int32]]:
    """The present values in order of first appearance, and the place of each value in that order, (count,).

    Args:
        values: shape (n,), from 0 on.
        count: how many values there may be.
    """
    first = np.full(count, len(values))
    first[values[::-1]] = np.arange(len(values))[::-1]  # numpy keeps the last written place: the first in order
    there = np.argsort(first, kind="stable")[: np.count_nonzero(first < len(values))]
    place = np.zeros(count, np.int32)
    place[there] = np.arange(len(there))
    return there, place
