"""Byte strings in a buffer, compared, hashed and checked for ASCII many at once; none becomes an object.

Strings become columns of a matrix of eight-byte words, so that the n-th words of all strings are processed together.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.segments.headers import Bytes, Ints, Narrow

LONG = 256  # bytes: longer strings are processed one by one, so that none of them widens the matrix
ROUNDS = 8  # of hashing; strings that still share a hash after these are compared one by one
_WORD = 8
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD + 1)], np.uint64)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_HIGH_BITS = np.uint64(0x8080808080808080)

Words = NDArray[np.uint64]


def intern(buffer: Bytes, start: Ints, size: Ints, salt: Ints | None = None) -> tuple[Narrow, Ints]:
    """Number strings so that equal strings have equal numbers.

    Args:
        buffer: the bytes.
        start: shape (n,), where each string begins.
        size: shape (n,), its bytes, 0 or more.
        salt: shape (n,); strings with different salts are not equal.

    Returns:
        The number of each string, shape (n,), in order of first appearance, and for each number the first string that
        has it, shape (number of distinct strings,).
    """
    count = len(start)
    rows = np.arange(count)
    if not count:
        return np.empty(0, np.int32), rows
    salt = np.zeros(count, np.int64) if salt is None else salt
    if int(size.max()) <= LONG:
        first = _firsts(buffer, start, size, salt)
    else:
        first = np.empty(count, np.int64)
        long, short = np.flatnonzero(size > LONG), np.flatnonzero(size <= LONG)
        first[long] = long[_firsts_one_by_one(buffer, start[long], size[long], salt[long])]
        if len(short):
            first[short] = short[_firsts(buffer, start[short], size[short], salt[short])]
    is_first = first == rows
    number = np.cumsum(is_first, dtype=np.int32) - np.int32(1)
    return number[first], np.flatnonzero(is_first)


def hashes(buffer: Bytes, start: Ints, size: Ints) -> Words:
    """Hashes of 64 bits that are the same in every process, shape (n,); arguments as of :func:`intern`."""
    found = np.empty(len(start), np.uint64)
    long = np.flatnonzero(size > LONG)
    if len(long):
        digests = (blake2b(each, digest_size=_WORD).digest() for each in strings(buffer, start[long], size[long]))
        found[long] = [int.from_bytes(digest, "little") for digest in digests]
    short = np.flatnonzero(size <= LONG)
    if len(short):
        own = size[short]
        hashed = own.astype(np.uint64) * _MIX
        for number, word in enumerate(_matrix(buffer, start[short], own)):
            mixed = (hashed ^ word) * _MIX
            hashed = np.where(own > number * _WORD, mixed ^ mixed >> _SHIFT, hashed)
        found[short] = hashed * _MIX
    return found


def are_ascii(buffer: Bytes, start: Ints, size: Ints) -> NDArray[np.bool_]:
    """Whether each string has no byte above 0x7F, shape (n,); arguments as of :func:`intern`."""
    plain = np.ones(len(start), np.bool_)
    long = np.flatnonzero(size > LONG)
    if len(long):
        plain[long] = [each.isascii() for each in strings(buffer, start[long], size[long])]
    short = np.flatnonzero(size <= LONG) if len(long) else slice(None)
    if len(plain[short]):
        high = np.bitwise_or.reduce(_matrix(buffer, start[short], size[short]), axis=0)
        plain[short] = (high & _HIGH_BITS) == 0
    return plain


def strings(buffer: Bytes, start: Ints, size: Ints) -> list[bytes]:
    """The strings themselves."""
    data = buffer.tobytes() if len(start) else b""
    return [data[a:b] for a, b in zip(start.tolist(), (start + size).tolist(), strict=True)]


def texts(buffer: Bytes, start: Ints, size: Ints) -> list[str]:
    """The strings themselves, which are ASCII."""
    data = buffer.tobytes().decode("latin-1") if len(start) else ""  # one decoding for all: then each is a slice
    return [data[a:b] for a, b in zip(start.tolist(), (start + size).tolist(), strict=True)]


def _firsts(buffer: Bytes, start: Ints, size: Ints, salt: Ints) -> Ints:
    """The first equal string of each string, shape (n,)."""
    count = len(start)
    words = _matrix(buffer, start, size)
    tag = (size ^ salt << 32).astype(np.uint64)
    hashed = _hash(words, tag)
    first = np.empty(count, np.int64)
    bits = max(count.bit_length() + 2, 4)
    rows = np.arange(count)
    for _ in range(ROUNDS):
        slot = (hashed >> np.uint64(64 - bits)).astype(np.int64)
        table = np.empty(1 << bits, np.int64)
        table[slot[::-1]] = rows[::-1]  # in reverse: the first string of a slot is written last and stays
        chosen = table[slot]
        same = tag[rows] == tag[chosen]
        for column in words:
            same &= column[rows] == column[chosen]
        if same.all():
            first[rows] = chosen
            return first
        first[rows[same]] = chosen[same]
        rows, hashed = rows[~same], hashed[~same] * _MIX
    first[rows] = rows[_firsts_one_by_one(buffer, start[rows], size[rows], salt[rows])]
    return first


def _matrix(buffer: Bytes, start: Ints, size: Ints) -> Words:
    """The strings as words, shape (words of the longest, n); bytes after a string are 0. At least one string."""
    longest = int(size.max())
    width = -(-longest // _WORD) * _WORD
    if not width:
        return np.empty((0, len(start)), np.uint64)
    if int(start.max()) + width > len(buffer):
        buffer = np.concatenate([buffer, np.zeros(width, np.uint8)])
    rows = np.lib.stride_tricks.sliding_window_view(buffer, width)[start].view("<u8")
    words = np.ascontiguousarray(rows.T)
    shortest = int(size.min())
    for number in range(shortest // _WORD, len(words)):
        words[number] &= _MASKS[np.clip(size - number * _WORD, 0, _WORD)]
    return words


def _hash(words: Words, tag: Words) -> Words:
    hashed = tag * _MIX
    for word in words:
        hashed ^= word
        hashed *= _MIX
        hashed ^= hashed >> _SHIFT
    return hashed * _MIX


def _firsts_one_by_one(buffer: Bytes, start: Ints, size: Ints, salt: Ints) -> Ints:
    """The first equal string of each string, of any length, shape (n,)."""
    known: dict[tuple[int, bytes], int] = {}
    salted = zip(salt.tolist(), strings(buffer, start, size), strict=True)
    return np.array([known.setdefault(each, row) for row, each in enumerate(salted)], np.int64)
