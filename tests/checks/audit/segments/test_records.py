"""The vectorised record decoder against the readable one."""

import random
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import Record, RecordBatch, TimestampType, build_batch
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.segments import headers, records
from kafka_eos_checks.audit.segments.headers import read_blocks

SEGMENT = f"{0:020d}.log"


def random_batches(seed: int, count: int) -> list[RecordBatch]:
    rng = random.Random(seed)
    batches, offset = [], 0
    for _ in range(count):
        size = rng.choice((1, 2, 3, 30, 300))
        stored = [
            Record(
                offset_delta=i,
                timestamp_delta=rng.choice(
                    (0, i, -5, 1 << 20, 1 << 52, -(1 << 52), 1 << 55, -(1 << 55) - 1, (1 << 62) - 1)
                ),
                key=rng.choice((None, b"", b"key-%d" % i)),
                value=rng.choice((None, b"", rng.randbytes(rng.choice((3, 64, 200, 9000))))),
                headers=rng.choice(((), ((b"h", None),), ((b"a", b"b"), (b"", b"")))),
            )
            for i in range(size)
        ]
        batches.append(
            build_batch(
                stored,
                base_offset=offset,
                base_timestamp=rng.choice((0, 1_700_000_000_000)),
                compression=rng.choice(list(CompressionType)),
                timestamp_type=rng.choice(list(TimestampType)),
            )
        )
        offset += size
    return batches


def rows(path: Path) -> list[tuple[Any, ...]]:
    found, before = [], 0
    for block in read_blocks(path):
        decoded = records.decode_block(block)
        assert decoded.damage == ()
        columns = (decoded.batch + before, decoded.offset, decoded.timestamp, decoded.header_count)
        found += list(zip(*(c.tolist() for c in columns), decoded.keys(), decoded.values(), strict=True))
        before += len(block.headers)
    return found


@pytest.mark.parametrize("few_lanes", [0, 20, 1 << 30])
@pytest.mark.parametrize("block_bytes", [headers.BLOCK_BYTES, 30_000])
def test_records_are_those_of_the_readable_decoder(
    tmp_path: Path, few_lanes: int, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FEW_LANES", few_lanes)
    monkeypatch.setattr(headers, "BLOCK_BYTES", block_bytes)
    batches = random_batches(few_lanes, 120)
    write_segment(tmp_path / SEGMENT, [batch.encode() for batch in batches])
    expected = [
        (i, batch.offset(record), batch.timestamp(record), len(record.headers), record.key, record.value)
        for i, batch in enumerate(batches)
        for record in batch.records()
    ]
    assert rows(tmp_path / SEGMENT) == expected


@pytest.mark.parametrize("few_lanes", [0, 1 << 30])
def test_records_that_cannot_be_decoded_are_reported_and_the_others_are_read(
    tmp_path: Path, few_lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FEW_LANES", few_lanes)
    good = build_batch([Record(offset_delta=i, value=b"v") for i in range(3)])
    section = good.payload
    wrong = [
        section[:-1],  # ends inside a record
        section + b"\0",  # bytes are left
        b"\x7f" + section[1:],  # a negative length
        section[:4] + b"\x05" + section[5:],  # a key of length -3
        section[:1] + section[1:2] + b"\x80" * 8 + section[10:],  # a timestamp that never ends
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + section[1:],  # a length that never ends
        section[: -len(section) // 3],  # two records, and the header says three
        bytes([section[0] + 2]) + section[1:8] + b"\0" + section[8:],  # a record with a byte too many
    ]
    encoded = [good.encode()]
    for payload in wrong:
        encoded += [with_payload(good, payload), good.encode()]
    positions = write_segment(tmp_path / SEGMENT, encoded)
    [block] = read_blocks(tmp_path / SEGMENT)
    decoded = records.decode_block(block)
    assert [region.position for region in decoded.damage] == positions[1::2]
    assert sorted(set(decoded.batch.tolist())) == list(range(0, len(encoded), 2))
    assert len(decoded) == 3 * (len(wrong) + 1)


@pytest.mark.parametrize("few_lanes", [0, 1 << 30])
def test_a_batch_that_claims_another_number_of_records_than_it_has_is_reported(
    tmp_path: Path, few_lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FEW_LANES", few_lanes)
    good = build_batch([Record(offset_delta=i, value=b"v") for i in range(3)], last_offset_delta=(1 << 31) - 2)
    claims = [4, 2, 1, (1 << 31) - 1]
    encoded = [good.encode()]
    for claimed in claims:
        encoded += [with_payload(good, good.payload, claimed), good.encode()]
    values = [Record(offset_delta=i, value=b"v" * 60) for i in range(3)]
    large = build_batch(values, last_offset_delta=(1 << 31) - 2)
    encoded.append(with_payload(large, large.payload, 6))  # no batch follows where its other records should be
    positions = write_segment(tmp_path / SEGMENT, encoded)
    [block] = read_blocks(tmp_path / SEGMENT)
    decoded = records.decode_block(block)
    assert [region.position for region in decoded.damage] == positions[1::2]
    assert decoded.batch.tolist() == [i for i in range(0, len(encoded), 2) for _ in range(3)]


@pytest.mark.parametrize("few_lanes", [0, 1 << 30])
def test_a_length_beyond_all_bytes_that_are_there_is_reported(
    tmp_path: Path, few_lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FEW_LANES", few_lanes)
    good = build_batch([Record(offset_delta=i, value=b"v") for i in range(3)])
    long_key = good.payload[:4] + b"\x80\x80\x80\x80\x08" + good.payload[5:]
    torn = with_payload(good, b"\xff" * 200)[:-50]  # so the last bytes of all look like parts of a varint
    positions = write_segment(tmp_path / SEGMENT, [good.encode(), with_payload(good, long_key), torn])
    [block] = read_blocks(tmp_path / SEGMENT)
    decoded = records.decode_block(block)
    assert [region.position for region in decoded.damage] == [positions[1]]
    assert decoded.batch.tolist() == [0, 0, 0]


def test_a_compressed_payload_that_does_not_decompress_is_reported(tmp_path: Path) -> None:
    good = build_batch([Record(value=b"v" * 100)], compression=CompressionType.ZSTD)
    positions = write_segment(tmp_path / SEGMENT, [good.encode(), with_payload(good, b"no zstd"), good.encode()])
    [block] = read_blocks(tmp_path / SEGMENT)
    decoded = records.decode_block(block)
    assert [region.position for region in decoded.damage] == [positions[1]]
    assert decoded.batch.tolist() == [0, 2]


def test_only_the_batches_asked_for_are_decoded(tmp_path: Path) -> None:
    batches = random_batches(3, 20)
    write_segment(tmp_path / SEGMENT, [batch.encode() for batch in batches])
    [block] = read_blocks(tmp_path / SEGMENT)
    decoded = records.decode_block(block, block.headers.column("record_count") == 30)
    assert set(decoded.batch.tolist()) == {i for i, batch in enumerate(batches) if batch.record_count == 30}


def with_payload(batch: RecordBatch, payload: bytes, claimed: int | None = None) -> bytes:
    """The batch with another payload, or another count of records, and the CRC and length that belong to it."""
    from google_crc32c import value as crc32c  # noqa: PLC0415

    head = bytearray(batch.encode()[:61])
    if claimed is not None:
        head[57:61] = claimed.to_bytes(4, "big")
    head[8:12] = (49 + len(payload)).to_bytes(4, "big")
    head[17:21] = crc32c(bytes(head[21:]) + payload).to_bytes(4, "big")
    return bytes(head) + payload
