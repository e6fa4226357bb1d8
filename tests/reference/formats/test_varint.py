import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.record_fields import FieldReader, MalformedRecord
from kafka_eos.formats.varint import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (INT32_MAX, "feffffff0f"),
        (INT32_MIN, "ffffffff0f"),
    ],
)
def test_varints_have_the_bytes_that_zigzag_gives(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


def test_varlongs_take_up_to_ten_bytes() -> None:
    assert encode_varlong(INT64_MAX).hex() == "feffffffffffffffff01"
    assert encode_varlong(INT64_MIN).hex() == "ffffffffffffffffff01"


@settings(deadline=None)
@given(st.integers(INT32_MIN, INT32_MAX), st.binary(max_size=4), st.binary(max_size=4))
def test_a_varint_is_read_back_from_the_middle_of_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    assert decode_varint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@settings(deadline=None)
@given(st.integers(INT64_MIN, INT64_MAX), st.binary(max_size=4), st.binary(max_size=4))
def test_a_varlong_is_read_back_from_the_middle_of_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varlong(value)
    assert decode_varlong(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@settings(deadline=None)
@given(st.integers(INT64_MIN, INT64_MAX))
def test_a_number_cut_off_is_malformed_at_the_end_of_the_data(value: int) -> None:
    cut = encode_varlong(value)[:-1]
    with pytest.raises(MalformedBatch, match="end inside") as caught:
        decode_varlong(cut, 0)
    assert caught.value.position == len(cut)


@pytest.mark.parametrize("encoded", ["8080808010", "ffffffff1f", "808080808000", "ffffffffff01"])
def test_a_varint_of_more_than_32_bits_is_malformed(encoded: str) -> None:
    with pytest.raises(MalformedBatch, match="more than 32 bits") as caught:
        decode_varint(bytes.fromhex(encoded), 0)
    assert caught.value.position == 4


@pytest.mark.parametrize("encoded", ["80808080808080808002", "8080808080808080808000"])
def test_a_varlong_of_more_than_64_bits_is_malformed(encoded: str) -> None:
    with pytest.raises(MalformedBatch, match="more than 64 bits") as caught:
        decode_varlong(bytes.fromhex(encoded), 0)
    assert caught.value.position == 9


def test_a_longer_form_than_needed_is_read() -> None:
    assert decode_varint(bytes.fromhex("80808000"), 0) == (0, 4)
    assert encode_varint(0) == b"\x00"


@pytest.mark.parametrize("value", [INT32_MAX + 1, INT32_MIN - 1])
def test_a_number_out_of_range_is_not_encoded_as_a_varint(value: int) -> None:
    with pytest.raises(OverflowError, match="32 bits"):
        encode_varint(value)
    assert decode_varlong(encode_varlong(value), 0)[0] == value


@pytest.mark.parametrize("value", [INT64_MAX + 1, INT64_MIN - 1])
def test_a_number_out_of_range_is_not_encoded_as_a_varlong(value: int) -> None:
    with pytest.raises(OverflowError, match="64 bits"):
        encode_varlong(value)


@pytest.mark.parametrize(("encoded", "value"), [("7f", 127), ("8001", 128), ("ffffffff07", 2**31 - 1)])
def test_an_unsigned_varint_of_a_coordinators_record_has_31_bits_at_most(encoded: str, value: int) -> None:
    assert FieldReader(bytes.fromhex(encoded), flexible=True).unsigned_varint() == value


@pytest.mark.parametrize("encoded", ["8000", "8080808008", "ffffffff0f", "8080808080"])
def test_a_longer_unsigned_varint_is_malformed(encoded: str) -> None:
    with pytest.raises(MalformedRecord, match="a varint"):
        FieldReader(bytes.fromhex(encoded), flexible=True).unsigned_varint()
