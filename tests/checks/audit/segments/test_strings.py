"""Numbers of byte strings against a dictionary."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_eos_checks.audit.segments import strings
from kafka_eos_checks.audit.segments.headers import Bytes, Ints

Placed = tuple[Bytes, Ints, Ints]
PIECES = st.lists(
    st.one_of(st.binary(max_size=20), st.sampled_from([b"", b"a", b"abcdefgh", b"abcdefghi", b"x" * 600]))
)


def placed(pieces: list[bytes]) -> Placed:
    """The pieces one after the other in a buffer, each with where it begins, and its size."""
    size = np.array([len(piece) for piece in pieces], np.int64)
    data = b"".join([*pieces, b"\xff" * 8])
    return np.frombuffer(data, np.uint8), np.cumsum(size) - size, size


@given(PIECES, st.data())
def test_equal_strings_with_equal_salts_have_equal_numbers_in_order_of_appearance(
    pieces: list[bytes], data: st.DataObject
) -> None:
    salts = data.draw(st.lists(st.integers(0, 1), min_size=len(pieces), max_size=len(pieces)))
    numbers, first = strings.intern(*placed(pieces), np.array(salts, np.int64))
    known: dict[tuple[int, bytes], int] = {}
    salted = list(zip(salts, pieces, strict=True))
    assert numbers.tolist() == [known.setdefault(each, len(known)) for each in salted]
    assert first.tolist() == [salted.index(each) for each in known]


@pytest.mark.parametrize("shared", [0, 1 << 63])
def test_strings_that_share_a_hash_are_told_apart(shared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "_hash", lambda _, tag: np.full(len(tag), shared, np.uint64))
    pieces = [*(b"%d" % (number % 30) for number in range(100)), b"0\0", b"", b"\0", b"0", b"0"]
    salts = np.array([0] * 104 + [1])
    numbers, first = strings.intern(*placed(pieces), salts)
    assert numbers.tolist() == [*(number % 30 for number in range(100)), 30, 31, 32, 0, 33]
    assert first.tolist() == [*range(30), 100, 101, 102, 104]


@given(PIECES)
@example([b"x" * 600 + b"\xff", b"x" * 600, b"\xff", b"x"])
def test_ascii_strings_are_told_from_others(pieces: list[bytes]) -> None:
    buffer, start, size = placed(pieces)
    plain = strings.are_ascii(buffer, start, size)
    assert plain.tolist() == [piece.isascii() for piece in pieces]
    assert strings.texts(buffer, start[plain], size[plain]) == [piece.decode() for piece in pieces if piece.isascii()]
    assert strings.strings(buffer, start, size) == pieces


def test_a_string_of_any_length_has_one_hash_wherever_it_is() -> None:
    pieces = [b"", b"a", b"b", b"abcdefghi", b"x" * strings.LONG, b"x" * 257, b"x" * 600, b"y" * 600]
    found = strings.hashes(*placed(pieces)).tolist()
    assert strings.hashes(*placed([b"before", *pieces[::-1]])).tolist()[:0:-1] == found
    assert len(set(found)) == len(pieces)
