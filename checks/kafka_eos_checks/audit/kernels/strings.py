"""Byte strings in a buffer, many at once: which are equal, and which are plain ASCII; none becomes an object.

A string is read as words of eight bytes, the n-th word of all strings at once.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.kernels.headers import Bytes, Ints, Narrow

LONG = 512  # bytes: where one string is longer, single strings cost less than one more word of them all
ROUNDS = 8  # of hashing, before strings that still share a hash are compared one by one
_WORD = 8
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_HIGH_BITS = np.uint64(0x8080808080808080)

Words = NDArray[np.uint64]


def intern(buffer: Bytes, start: Ints, size: Ints, salt: Ints | None = None) -> tuple[Narrow, Ints]:
    """Number strings so that equal strings have equal numbers.

    Args:
        buffer: the bytes, with at least eight more behind the last string.
        start: shape (n,), where each string begins.
        size: shape (n,), its bytes, 0 or more.
        salt: shape (n,); strings with different salts are not equal.

    Returns:
        The number of each string, shape (n,), in order of first appearance, and for each number the first string that
        has it, shape (number of distinct strings,).
    """
    count = len(start)
    if not count:
        return np.empty(0, np.int32), np.empty(0, np.int64)
    salt = np.zeros(count, np.int64) if salt is None else salt
    if int(size.max()) > LONG:
        return _intern_one_by_one(buffer, start, size, salt)
    hashed = _hash(buffer, start, size, salt)
    first = np.empty(count, np.int64)  # for each string the first one that is equal to it
    bits = max(count.bit_length() + 2, 4)
    rows = np.arange(count)
    for _ in range(ROUNDS):
        slot = (hashed >> np.uint64(64 - bits)).astype(np.int64)
        table = np.empty(1 << bits, np.int64)
        table[slot[::-1]] = rows[::-1]  # of several strings in a slot the last one that is written stays: the first
        chosen = table[slot]
        same = _equal(buffer, start, size, salt, rows, chosen)
        if same.all():
            first[rows] = chosen
            break
        first[rows[same]] = chosen[same]
        rows, hashed = rows[~same], hashed[~same] * _MIX
    else:
        numbers, chosen = _intern_one_by_one(buffer, start[rows], size[rows], salt[rows])
        first[rows] = rows[chosen[numbers]]
    is_first = first == np.arange(count)
    number = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
    return number[first], np.flatnonzero(is_first)


def are_ascii(buffer: Bytes, start: Ints, size: Ints) -> NDArray[np.bool_]:
    """Which strings have no byte above 0x7F, shape (n,); arguments as of :func:`intern`."""
    plain = np.ones(len(start), np.bool_)
    for rows, word in _words(buffer, start, size):
        plain[rows] &= (word & _HIGH_BITS) == 0
    return plain


def strings(buffer: Bytes, start: Ints, size: Ints) -> list[bytes]:
    """The strings themselves."""
    data = buffer.tobytes()
    return [data[a:b] for a, b in zip(start.tolist(), (start + size).tolist(), strict=True)]


def texts(buffer: Bytes, start: Ints, size: Ints) -> list[str]:
    """The strings themselves, which are ASCII."""
    data = buffer.tobytes().decode("latin-1")  # one decoding for all: then each string is a slice
    return [data[a:b] for a, b in zip(start.tolist(), (start + size).tolist(), strict=True)]


def _words(buffer: Bytes, start: Ints, size: Ints) -> Iterator[tuple[Ints | slice, Words]]:
    """Which strings have another word, and that word; bytes behind a string are 0."""
    words = np.ndarray(len(buffer) - _WORD + 1, "<u8", buffer, strides=(1,))
    rows: Ints | slice = slice(None)
    at, left = start, size
    while len(at):
        shortest = int(left.min())
        if shortest <= 0:
            more = np.flatnonzero(left > 0)
            rows = more if isinstance(rows, slice) else rows[more]
            at, left = at[more], left[more]
            if not len(at):
                return
            shortest = int(left.min())
        word = words[at]
        if shortest < _WORD:
            word &= _MASKS[np.minimum(left, _WORD)]
        yield rows, word
        at, left = at + _WORD, left - _WORD


def _hash(buffer: Bytes, start: Ints, size: Ints, salt: Ints) -> Words:
    hashed = (size ^ salt << 32).astype(np.uint64) * _MIX
    for rows, word in _words(buffer, start, size):
        mixed = (hashed[rows] ^ word) * _MIX
        mixed ^= mixed >> _SHIFT
        hashed[rows] = mixed
    return hashed * _MIX


def _equal(buffer: Bytes, start: Ints, size: Ints, salt: Ints, one: Ints, other: Ints) -> NDArray[np.bool_]:
    """Which strings of ``one`` are equal to those of ``other``; both have shape (m,) and are numbers of strings."""
    same: NDArray[np.bool_] = (size[one] == size[other]) & (salt[one] == salt[other])
    kept = np.flatnonzero(same)
    first, second, sizes = start[one[kept]], start[other[kept]], size[one[kept]]
    for (rows, word), (_, theirs) in zip(_words(buffer, first, sizes), _words(buffer, second, sizes), strict=True):
        same[kept[rows]] &= word == theirs
    return same


def _intern_one_by_one(buffer: Bytes, start: Ints, size: Ints, salt: Ints) -> tuple[Narrow, Ints]:
    """As :func:`intern`, of strings of any length."""
    known: dict[tuple[int, bytes], int] = {}
    first: list[int] = []
    numbers = np.empty(len(start), np.int32)
    for row, string in enumerate(zip(salt.tolist(), strings(buffer, start, size), strict=True)):
        number = known.setdefault(string, len(first))
        if number == len(first):
            first.append(row)
        numbers[row] = number
    return numbers, np.array(first, np.int64)
