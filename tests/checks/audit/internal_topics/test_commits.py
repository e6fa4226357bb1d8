"""The columns of ``__consumer_offsets`` against the readable decoder, on made and on broken bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example
from hypothesis import strategies as st

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.consumer_offsets import (
    MalformedOffsetRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.audit.internal_topics import commits
from kafka_eos_checks.audit.internal_topics.commits import Name, decode_commits, decode_details, name_of
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.segments.headers import read_blocks

from ..conftest import drawn
from .conftest import Pair, records_of

INT64, INT32 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (64, 32))
TEXTS = st.one_of(st.just(""), st.text(st.characters(codec="utf-8"), max_size=30))
TAGS = st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=200)), max_size=2, unique_by=lambda tag: tag[0])


@st.composite
def values(draw: st.DrawFn) -> OffsetCommitValue:
    """A value of any version, with text and tagged fields or without."""
    version = draw(st.integers(0, 4))
    own: dict[str, Any] = {}
    if version >= 3:
        own["leader_epoch"] = draw(INT32)
    if version == 1:
        own["expire_timestamp_ms"] = draw(INT64)
    if version == 4:
        own["tagged_fields"] = tuple(sorted(draw(TAGS)))
    metadata = draw(st.one_of(TEXTS, st.just("x" * 126), st.just("x" * 127), st.just("x" * 400)))
    return OffsetCommitValue(
        version=version, offset=draw(INT64), metadata=metadata, commit_timestamp_ms=draw(INT64), **own
    )


@st.composite
def broken(draw: st.DrawFn, good: bytes) -> bytes:
    """The bytes, or the bytes cut off, lengthened, or with another byte somewhere."""
    match draw(st.integers(0, 5)):
        case 0:
            return good[: draw(st.integers(0, len(good)))]
        case 1:
            return good + draw(st.binary(max_size=20))
        case 2:
            at = draw(st.integers(0, len(good) - 1))
            return good[:at] + bytes([draw(st.integers(0, 255))]) + good[at + 1 :]
        case _:
            return good


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """A key and a value, broken or not, null or not."""
    named = OffsetCommitKey(
        group=draw(TEXTS), topic=draw(TEXTS), partition=draw(INT32), key_type=draw(st.sampled_from([0, 1]))
    )
    key = draw(st.one_of(st.none(), broken(named.encode()), st.just(b"\0\2group"), st.just(named.encode())))
    return key, draw(st.one_of(st.none(), broken(draw(values()).encode())))


def readable(pair: Pair) -> tuple[Name | int, int]:
    """The name of a record, or -1 for another type and -2 for what cannot be read; and its offset."""
    key, value = pair
    try:
        named = decode_key(key or b"")
        if named is None:
            return -1, -1
        decoded = decode_value(value)
    except MalformedOffsetRecord:
        return -2, -1
    return (named.group, (named.topic, named.partition)), -1 if decoded is None else decoded.offset


def rows(given_pairs: Sequence[Pair], control: Sequence[bool] = ()) -> list[tuple[Name | int, int]]:
    numbers, offset, keys = decode_commits(
        records_of(given_pairs), np.array(control or [False] * len(given_pairs), np.bool_)
    )
    assert len(set(keys)) == len(keys)
    told = [name_of(keys[number]) if number >= 0 else number for number in numbers.tolist()]
    return list(zip(told, offset.tolist(), strict=True))


KEY = OffsetCommitKey(group="g", topic="t", partition=0).encode()
V4 = OffsetCommitValue(version=4, offset=7, metadata="m").encode()


NO_TEXT = [OffsetCommitValue(version=v, offset=7, metadata="m").encode().replace(b"m", b"\xff") for v in range(5)]

# The length of the metadata takes two bytes, and a shorter text would fit as well, with other bytes as tagged fields.
FITS_TWICE = [
    OffsetCommitValue(version=4, offset=7, metadata=text, commit_timestamp_ms=1, tagged_fields=tags).encode()
    for text, tags in (
        ("x" * 127, ((1, b""),)),
        ("x" * 128, ((1, b""),)),
        ("x" * 7 + "\1\0~" + "x" * 117, ()),
        ("x" * 8 + "\1\0}" + "x" * 116, ()),
    )
]


@drawn(st.lists(pairs(), max_size=12), few=30)
@example([(KEY, value) for value in NO_TEXT])
@example([(KEY, V4[:-1] + b"\x01\x00\x01"), (KEY, V4[:-1] + b"\x02\x00\x00\x01\x00"), (KEY, V4 + b"\0"), (KEY, V4)])
@example([(KEY, OffsetCommitValue(version=3, offset=7).encode()[:-1])])
@example([(KEY, b"\0\5" + V4[2:]), (KEY, V4)])  # of a later version
@example([(KEY + b"\0", V4), (KEY, V4)])
def test_columns_are_what_the_readable_decoder_says(given_pairs: list[Pair]) -> None:
    assert rows(given_pairs) == [readable(pair) for pair in given_pairs]


@drawn(st.lists(pairs(), max_size=12), few=30)
@example([(KEY, OffsetCommitValue(version=v, offset=7, metadata=m).encode()) for v in range(5) for m in ("é", "m")])
@example([(KEY, OffsetCommitValue(version=v, offset=7, leader_epoch=5).encode()) for v in (3, 4)])
@example([(KEY, value) for value in FITS_TWICE])
def test_the_other_fields_are_what_the_readable_decoder_says(given_pairs: list[Pair]) -> None:
    records = records_of(given_pairs)
    number, _, _ = decode_commits(records, np.zeros(len(given_pairs), np.bool_))
    rows = np.flatnonzero((number >= 0) & (records.value_size >= 0))
    values = [decode_value(given_pairs[row][1]) for row in rows.tolist()]
    expected = [(v.leader_epoch, v.metadata, v.commit_timestamp_ms) for v in values if v is not None]
    found = decode_details(records, rows)
    assert (
        list(zip(found.leader_epoch.tolist(), found.metadata, found.commit_timestamp.tolist(), strict=True)) == expected
    )


def test_control_records_have_no_name() -> None:
    assert rows([(KEY, V4), (KEY, V4)], [True, False])[0] == (-1, -1)
    assert rows([(KEY, V4), (KEY, V4)], [True, False])[1] == readable((KEY, V4))


def test_markers_have_no_key_among_those_of_several_chunks() -> None:
    def chunk(keys: list[bytes], *numbers: int) -> commits.Commits:
        columns: dict[str, Any] = {name: np.zeros(len(numbers), np.int64) for name in commits.COLUMNS}
        return commits.Commits(**{**columns, "key": np.array(numbers, np.int32)}, keys=keys)

    merged = commits.concatenate_commits([chunk([b"a"], 0, -1), chunk([b"b", b"a"], 0, 1, -1)])
    assert (merged.keys, merged.key.tolist()) == ([b"a", b"b"], [0, -1, 1, 0, -1])


def test_what_kafka_writes_is_never_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    topic_id = ((0, bytes(range(16))),)
    given_pairs = [
        (
            KEY,
            OffsetCommitValue(
                version=version,
                offset=offset,
                metadata=metadata,
                commit_timestamp_ms=1_700_000_000_000,
                tagged_fields=tags if version == 4 else (),
            ).encode(),
        )
        for version in range(5)
        for offset in (0, 7, 1 << 40)
        for metadata in ("", "m", "x" * 126)
        for tags in ((), topic_id)
    ]
    expected = [readable(pair) for pair in given_pairs]
    asked: list[bytes | None] = []
    monkeypatch.setattr(commits, "decode_value", asked.append)
    assert rows(given_pairs) == expected
    assert not asked


def test_a_batch_whose_records_cannot_be_decoded_is_damage(tmp_path: Path) -> None:
    whole = build_batch([Record(value=b"v")], base_offset=0, compression=CompressionType.GZIP).encode()
    for data, damaged in ((whole, False), (whole[:-1] + bytes([whole[-1] ^ 0xFF]), True)):
        segment = tmp_path / f"{0:020d}.log"
        write_segment(segment, [data])
        [block] = read_blocks(segment, check_crc=False)
        assert not block.headers.damage
        assert commits.chunk_of(block).damaged is damaged
