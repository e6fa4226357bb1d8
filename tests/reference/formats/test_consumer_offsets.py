from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.formats.consumer_offsets import (
    NEWEST_VERSION,
    TOPIC,
    MalformedOffsetRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos_checks.kit.recording import kept_recordings, unpack

int32, int64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (32, 64))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
keys = st.builds(OffsetCommitKey, group=names, topic=names, partition=int32, key_type=st.sampled_from((0, 1)))


def values(version: int) -> st.SearchStrategy[OffsetCommitValue]:
    own: dict[str, Any] = {}
    if version == 1:
        own["expire_timestamp_ms"] = int64
    if version >= 3:
        own["leader_epoch"] = int32
    if version >= 4:
        fields = st.dictionaries(st.integers(0, 2**31 - 1), st.binary(max_size=200), max_size=3)
        own["tagged_fields"] = fields.map(lambda by_tag: tuple(sorted(by_tag.items())))
    return st.builds(
        OffsetCommitValue,
        version=st.just(version),
        offset=int64,
        metadata=names,
        commit_timestamp_ms=int64,
        **own,
    )


any_value = st.one_of(values(version) for version in range(NEWEST_VERSION + 1))


@given(keys)
def test_a_key_comes_back_from_its_bytes(key: OffsetCommitKey) -> None:
    assert decode_key(key.encode()) == key


@given(any_value)
def test_a_value_comes_back_from_its_bytes(value: OffsetCommitValue) -> None:
    assert decode_value(value.encode()) == value


def same_bytes(decode: Any, data: bytes) -> bool:
    """Whether decoded data are encoded to the same bytes; true for data that cannot be decoded."""
    try:
        found = decode(data)
    except MalformedOffsetRecord as error:
        return 0 <= error.position <= len(data)
    return found is None or bool(found.encode() == data)


@given(st.binary(max_size=60))
def test_bytes_that_decode_are_encoded_to_the_same_bytes_and_others_are_malformed(data: bytes) -> None:
    assert same_bytes(decode_key, data)
    assert same_bytes(decode_value, data)


@given(keys | any_value, st.data())
def test_a_cut_or_longer_record_is_malformed(record: OffsetCommitKey | OffsetCommitValue, data: st.DataObject) -> None:
    whole = record.encode()
    decode = decode_key if isinstance(record, OffsetCommitKey) else decode_value
    with pytest.raises(MalformedOffsetRecord, match="bytes are left where"):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(MalformedOffsetRecord, match="1 bytes after the last field"):
        decode(whole + b"\0")


def test_the_bytes_are_those_of_the_schema() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=7)
    assert key.encode() == bytes.fromhex("0001 0001 67 0001 74 00000007")
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp_ms=9)
    assert value.encode() == bytes.fromhex("0003 0000000000000005 00000002 0001 6d 0000000000000009")
    newest = OffsetCommitValue(version=4, offset=5, metadata="m", tagged_fields=((0, b"id"),))
    assert newest.encode() == bytes.fromhex("0004 0000000000000005 ffffffff 02 6d ffffffffffffffff 01 00 02 6964")


def test_a_record_of_another_type_is_no_offset_and_a_null_value_is_a_tombstone() -> None:
    assert decode_key(bytes.fromhex("0002 0001 67")) is None
    assert decode_value(None) is None


@pytest.mark.parametrize(
    ("data", "position", "reason"),
    [
        ("0005", 0, "value version 5, where 0 to 4 are known"),
        ("ffff", 0, "value version -1, where 0 to 4 are known"),
        ("0000 0000000000000005 ffff", 10, "a string of -1 bytes"),
        ("0000 0000000000000005 0001 ff", 12, "no UTF-8: invalid start byte"),
        ("0004 0000000000000005 ffffffff 00", 14, "a string of -1 bytes"),
        ("0004 0000000000000005 ffffffff 8100", 14, "a varint that is too large or longer than needed"),
        ("0004 0000000000000005 ffffffff ffffffffff01", 14, "a varint of more than 5 bytes"),
        ("0004 0000000000000005 ffffffff 01 0000000000000000 02 0100 0100", 26, "tag 1 after tag 1"),
    ],
)
def test_a_malformed_value_is_reported_with_its_position(data: str, position: int, reason: str) -> None:
    with pytest.raises(MalformedOffsetRecord) as caught:
        decode_value(bytes.fromhex(data))
    assert (caught.value.position, caught.value.reason) == (position, reason)
    assert str(caught.value) == f"at byte {position}: {reason}"


@pytest.mark.parametrize(
    "value",
    [
        OffsetCommitValue(version=2, offset=1, leader_epoch=4),
        OffsetCommitValue(version=3, offset=1, expire_timestamp_ms=4),
        OffsetCommitValue(version=3, offset=1, tagged_fields=((0, b""),)),
        OffsetCommitValue(offset=1 << 63),
        OffsetCommitValue(offset=1, metadata="x" * 32768),
    ],
)
def test_a_field_that_a_version_does_not_have_is_not_encoded(value: OffsetCommitValue) -> None:
    with pytest.raises(OverflowError):
        value.encode()


def test_every_offset_that_real_coordinators_wrote_is_encoded_again_byte_for_byte(tmp_path: Path) -> None:
    seen: set[int] = set()
    offsets = others = 0
    for archive in kept_recordings():
        folder = tmp_path / archive.name
        unpack(archive, folder)
        for segment in folder.rglob(f"{TOPIC}-*/*.log"):
            for part in read_segment(segment):
                assert isinstance(part, StoredBatch)
                for record in part.batch.records() if part.batch.control_record() is None else ():
                    key = decode_key(record.key or b"")
                    if key is None:
                        others += 1
                        continue
                    value = decode_value(record.value)
                    assert key.encode() == record.key
                    assert value is not None
                    assert value.encode() == record.value
                    seen.add(value.version)
                    offsets += 1
    assert offsets > 1_000
    assert others > 10
    assert seen == {3, 4}
