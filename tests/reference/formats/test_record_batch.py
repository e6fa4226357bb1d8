import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats import record_batch
from kafka_eos.formats.compression import CompressionType, compress, compress_snappy_raw
from kafka_eos.formats.record_batch import (
    HEADER_BYTES,
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    build_control_batch,
    decode_batch,
    decode_records,
    encode_records,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "record_batch.json").read_text())["vectors"]

SAME_FRAMES = {CompressionType.NONE, CompressionType.SNAPPY, CompressionType.LZ4}
"""Where two compressors that choose alike give the same bytes."""

int32 = st.integers(-(2**31), 2**31 - 1)
small_bytes = st.binary(max_size=100)
records = st.builds(
    Record,
    attributes=st.integers(-128, 127),
    timestamp_delta=st.integers(-(2**63), 2**63 - 1),
    offset_delta=int32,
    key=st.none() | small_bytes,
    value=st.none() | small_bytes | st.just(b"v" * 10_000),
    headers=st.lists(st.tuples(small_bytes, st.none() | small_bytes), max_size=4).map(tuple),
)
batches = st.builds(
    build_batch,
    st.lists(records, max_size=8),
    base_offset=st.integers(0, 2**62),
    partition_leader_epoch=int32,
    compression=st.sampled_from(CompressionType),
    timestamp_type=st.sampled_from(TimestampType),
    is_transactional=st.booleans(),
    is_control=st.booleans(),
    last_offset_delta=st.integers(7, 2**31 - 1),  # as many offsets as records at least
    base_timestamp=st.integers(-1, 2**62),
    max_timestamp=st.integers(-1, 2**62),
    delete_horizon_ms=st.none() | st.integers(0, 2**62),
    producer_id=st.integers(-1, 2**63 - 1),
    producer_epoch=st.integers(-1, 2**15 - 1),
    base_sequence=st.integers(-1, 2**31 - 1),
).filter(lambda batch: batch.record_count or not batch.payload)  # as an empty one that is compressed has


def unhex(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


def with_crc(encoded: bytes | bytearray) -> bytes:
    """The batch with the CRC of its bytes, so that a change reaches the checks after the CRC."""
    checked = bytes(encoded[21:])
    return bytes(encoded[:17]) + record_batch._crc(checked, b"").to_bytes(4, "big") + checked


def changed(batch: RecordBatch, position: int, new: bytes) -> bytes:
    encoded = bytearray(batch.encode())
    encoded[position : position + len(new)] = new
    return with_crc(encoded)


def with_payload(payload: bytes, count: int, compression: CompressionType = CompressionType.NONE) -> RecordBatch:
    batch = build_batch([Record()], compression=compression)
    return dataclasses.replace(batch, payload=payload, record_count=count)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_a_batch_of_kafka_is_read_as_kafka_reads_it(vector: dict[str, Any]) -> None:
    encoded = bytes.fromhex(vector["hex"])
    batch, end = decode_batch(encoded)
    assert end == len(encoded) == batch.size
    assert batch.encode() == encoded
    assert {field: getattr(batch, field) for field in vector["header"]} == vector["header"]
    timestamp_types = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
    assert vector["derived"] == {
        "compression": batch.compression.name.lower(),
        "timestamp_type": timestamp_types[batch.timestamp_type],
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "delete_horizon_ms": batch.delete_horizon_ms,
        "last_offset": batch.last_offset,
        "next_offset": batch.next_offset,
        "last_sequence": batch.last_sequence,
    }
    found = [
        (batch.offset(record), batch.timestamp(record), record.key, record.value, record.headers)
        for record in batch.records()
    ]
    assert found == [
        (
            row["offset"],
            row["timestamp"],
            unhex(row["key"]),
            unhex(row["value"]),
            tuple((unhex(key), unhex(value)) for key, value in row["headers"]),
        )
        for row in vector["records"]
    ]
    marker = batch.control_record()
    expected = vector["control_record"]
    assert (marker and (marker.control_type.name, marker.coordinator_epoch)) == (
        expected and (expected["control_type"], expected["coordinator_epoch"])
    )


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_the_records_of_a_batch_of_kafka_encode_to_the_bytes_that_kafka_wrote(vector: dict[str, Any]) -> None:
    batch = decode_batch(bytes.fromhex(vector["hex"]))[0]
    section = encode_records(batch.records())
    assert section == batch.decompressed()
    if "librdkafka" not in vector["name"] and batch.compression in SAME_FRAMES:
        assert compress(batch.compression, section) == batch.payload


def test_java_writes_snappy_as_xerial_does_and_librdkafka_raw() -> None:
    payloads = {
        "librdkafka" in vector["name"]: decode_batch(bytes.fromhex(vector["hex"]))[0].payload
        for vector in VECTORS
        if vector["derived"]["compression"] == "snappy"
    }
    assert payloads[False].startswith(b"\x82SNAPPY\x00")
    assert not payloads[True].startswith(b"\x82SNAPPY\x00")


def test_the_markers_of_kafka_are_built_byte_for_byte() -> None:
    markers = [vector for vector in VECTORS if vector["control_record"]]
    assert len(markers) == 2
    for vector in markers:
        header, marker = vector["header"], vector["control_record"]
        batch = build_control_batch(
            ControlRecord(
                control_type=ControlType[marker["control_type"]], coordinator_epoch=marker["coordinator_epoch"]
            ),
            producer_id=header["producer_id"],
            producer_epoch=header["producer_epoch"],
            base_offset=header["base_offset"],
            partition_leader_epoch=header["partition_leader_epoch"],
            timestamp=header["base_timestamp"],
        )
        assert batch.encode().hex() == vector["hex"]


@settings(deadline=None)
@given(batches, small_bytes, small_bytes)
def test_a_batch_is_read_back_from_the_middle_of_other_bytes(batch: RecordBatch, before: bytes, after: bytes) -> None:
    encoded = batch.encode()
    data = before + encoded + after
    for buffer in (data, bytearray(data), memoryview(data)):
        decoded, end = decode_batch(buffer, len(before))
        assert decoded == batch
        assert end == len(before) + len(encoded)
    assert decoded.encode() == encoded


@settings(deadline=None)
@given(st.lists(records, max_size=8), st.sampled_from(CompressionType))
def test_records_are_read_back(written: list[Record], compression: CompressionType) -> None:
    batch = build_batch(written, compression=compression, last_offset_delta=0, max_timestamp=0)
    assert batch.records() == tuple(written)
    assert encode_records(batch.records()) == batch.decompressed()


def test_a_batch_with_the_time_of_its_append_can_have_its_records_times_again() -> None:
    batch = build_batch([Record(value=b"v")], base_timestamp=5, is_transactional=True)
    stamped = batch.stamped(TimestampType.LOG_APPEND_TIME, 9)
    assert (stamped.timestamp_type, stamped.timestamp(stamped.records()[0])) == (TimestampType.LOG_APPEND_TIME, 9)
    assert decode_batch(stamped.encode())[0] == stamped
    assert stamped.stamped(TimestampType.CREATE_TIME, 5) == batch
    odd = dataclasses.replace(batch, attributes=batch.attributes | 0x4080)
    assert odd.stamped(TimestampType.CREATE_TIME, 5) is odd
    assert odd.stamped(TimestampType.CREATE_TIME, 6).attributes == batch.attributes


def test_records_compressed_by_librdkafka_with_raw_snappy_are_read() -> None:
    section = encode_records([Record(key=b"k", value=b"v")])
    batch = with_payload(compress_snappy_raw(section), 1, CompressionType.SNAPPY)
    assert batch.records() == (Record(key=b"k", value=b"v"),)


def test_a_longer_varint_than_needed_is_read_and_re_encoded_short() -> None:
    canonical = encode_records([Record(value=b"v")])
    longer = bytes.fromhex("908000") + b"\x00\x00\x00\x01" + bytes.fromhex("8200") + b"v" + b"\x00"
    assert decode_records(longer, 1) == decode_records(canonical, 1)
    assert encode_records(decode_records(longer, 1)) == canonical != longer


def test_a_builder_derives_the_last_offset_and_the_largest_timestamp() -> None:
    batch = build_batch(
        [Record(timestamp_delta=7), Record(offset_delta=4, timestamp_delta=-2)], base_offset=10, base_timestamp=100
    )
    assert (batch.last_offset, batch.next_offset, batch.max_timestamp, batch.record_count) == (14, 15, 107, 2)
    assert (batch.attributes, batch.producer_id, batch.producer_epoch, batch.base_sequence) == (0, -1, -1, -1)
    empty = build_batch([], base_offset=3)
    assert (empty.last_offset, empty.max_timestamp, empty.records()) == (3, -1, ())


def test_the_sequence_after_the_largest_is_0() -> None:
    batch = build_batch([Record(), Record(offset_delta=2)], base_sequence=2**31 - 1)
    assert batch.last_sequence == 1
    assert build_batch([Record()]).last_sequence == -1


@pytest.mark.parametrize("field", ["producer_id", "producer_epoch", "base_sequence", "last_offset_delta"])
def test_a_field_without_place_in_the_header_is_not_built(field: str) -> None:
    with pytest.raises(OverflowError, match="does not fit"):
        build_batch([Record()], **{field: 2**63})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("position", "new", "at", "reason"),
    [
        (0, b"\xff" * 8, 0, "base offset -1 leaves no room for the batch's offsets"),
        (0, b"\x7f" + b"\xff" * 7, 0, "base offset 9223372036854775807 leaves no room for the batch's offsets"),
        (8, (48).to_bytes(4, "big"), 8, "batch length 48 is less than the rest of the header"),
        (8, (-1).to_bytes(4, "big", signed=True), 8, "batch length -1 is less than the rest of the header"),
        (8, (2**31 - 1).to_bytes(4, "big"), 79, "the batch claims 2147483659 bytes of 79"),
        (16, b"\x01", 16, "magic 1, where only batches of format version 2 are read"),
        (21, b"\x00\x15", 21, "compression type 5 does not exist"),
        (23, b"\xff\xff\xff\xff", 23, "last offset delta -1 is negative"),
        (57, b"\xff\xff\xff\xff", 57, "record count -1 is negative"),
        (57, b"\0\0\0\0", 57, "record count 0, and 18 bytes of records follow"),
        (57, b"\0\0\0\x02", 57, "record count 2 is more than the 1 offset(s) of the batch"),
    ],
)
def test_an_impossible_header_is_malformed(position: int, new: bytes, at: int, reason: str) -> None:
    batch = build_batch([Record(key=b"exactly", value=b"once")])
    assert batch.size == 79
    with pytest.raises(MalformedBatch) as caught:
        decode_batch(b"before" + changed(batch, position, new), 6)
    assert (caught.value.position, caught.value.reason) == (6 + at, reason)
    assert str(caught.value) == f"at byte {6 + at}: {reason}"


def test_a_wrong_crc_is_malformed() -> None:
    encoded = bytearray(build_batch([Record(value=b"v")]).encode())
    encoded[-2] ^= 1
    with pytest.raises(MalformedBatch) as caught:
        decode_batch(bytes(encoded))
    assert caught.value.position == 17
    assert caught.value.reason == f"CRC32C is {encoded[17:21].hex()}, of the bytes {crc32c(bytes(encoded[21:])):08x}"


def test_the_offset_and_the_leader_epoch_are_outside_the_crc_because_the_broker_sets_them() -> None:
    batch = build_batch([Record(value=b"v")])
    assigned = dataclasses.replace(batch, base_offset=99, partition_leader_epoch=7)
    assert decode_batch(assigned.encode())[0] == assigned


def test_a_batch_cut_off_anywhere_is_malformed_at_the_end_of_the_buffer() -> None:
    encoded = build_batch([Record(key=b"k", value=b"v")]).encode()
    for length in range(len(encoded)):
        with pytest.raises(MalformedBatch) as caught:
            decode_batch(encoded[:length])
        assert caught.value.position == length
    with pytest.raises(MalformedBatch, match="at byte 70: 0 bytes are left"):
        decode_batch(encoded, len(encoded) + 3)


@pytest.mark.parametrize("compression", CompressionType)
@pytest.mark.parametrize("count", [1, 3, 2**31 - 1])
def test_a_wrong_record_count_is_malformed(compression: CompressionType, count: int) -> None:
    written = [Record(value=b"v"), Record(offset_delta=1, value=b"w")]
    batch = build_batch(written, compression=compression, last_offset_delta=2**31 - 2)
    lying = decode_batch(changed(batch, 57, count.to_bytes(4, "big")))[0]
    with pytest.raises(MalformedBatch, match=r"left after|cannot hold|end inside") as caught:
        lying.records()
    assert HEADER_BYTES <= caught.value.position <= lying.size


@pytest.mark.parametrize(
    ("section", "at", "reason"),
    [
        ("0e 00 00 00 01 01 00", 0, "a record of 7 bytes whose fields take 6"),
        ("01 00 00 00 01 01 00", 0, "a record of -1 bytes whose fields take 6"),
        ("0c 00 00 00 01 01 00 00 00", 7, "2 bytes are left after the last of 1 records"),
        ("0c 00 00 00 03 01 00", 4, "length -2 is negative, and not -1 for null"),
        ("0c 00 00 00 01 01 01", 6, "header count -1 is negative"),
        ("0c 00 00 00 01 01 02", 6, "0 bytes cannot hold 1 headers"),
        ("0e 00 00 00 01 01 02 00", 6, "1 bytes cannot hold 1 headers"),
        ("10 00 00 00 01 01 02 01 00", 7, "a header without a key"),
        ("0c 00 00 00 01 fe ff ff ff 0f", 10, "the records end inside a record"),
        ("18 00 00 00 01 01 02 00 08", 9, "the records end inside a record"),
        ("0c 00 ff ff ff ff ff ff ff ff ff 7f", 11, "a varint of more than 64 bits"),
        ("0c 00 00 ff ff ff ff 7f", 7, "a varint of more than 32 bits"),
        ("0c 00 00 00 01 01 ff", 7, "the data end inside a varint"),
    ],
)
def test_an_impossible_record_is_malformed(section: str, at: int, reason: str) -> None:
    with pytest.raises(MalformedBatch) as caught:
        with_payload(bytes.fromhex(section), 1).records()
    assert (caught.value.position, caught.value.reason) == (HEADER_BYTES + at, reason)
    assert str(caught.value) == f"at byte {HEADER_BYTES + at}: {reason}"


def test_damage_inside_a_compressed_payload_has_the_position_of_the_payload_and_says_where_in_it() -> None:
    batch = with_payload(compress(CompressionType.ZSTD, bytes.fromhex("0c000000030100")), 1, CompressionType.ZSTD)
    with pytest.raises(MalformedBatch, match=r"records: length -2 is negative, and not -1 for null$") as caught:
        batch.records()
    assert caught.value.position == HEADER_BYTES
    assert caught.value.reason.startswith("at byte 4 of the decompressed records: ")


@pytest.mark.parametrize("compression", CompressionType)
def test_a_batch_that_decompresses_beyond_the_limit_is_malformed(compression: CompressionType) -> None:
    batch = build_batch([Record(value=bytes(10_000))], compression=compression)
    with pytest.raises(MalformedBatch, match="more than the limit of 9999 bytes") as caught:
        batch.records(limit=9999)
    assert caught.value.position == HEADER_BYTES


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"\x00\x00\x00\x00\x00\x01", "key is too short"),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x01", "key is too short"),
        (b"\xff\xff\x00\x00", b"\x00\x00\x00\x00\x00\x01", "control record of version -1"),
        (b"\x00\x00\x00\x01", None, "value is too short"),
        (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00", "value is too short"),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x01", "transaction marker of version -1"),
    ],
)
def test_an_invalid_control_record_is_malformed(key: bytes | None, value: bytes | None, reason: str) -> None:
    batch = build_batch([Record(key=key, value=value)], is_control=True)
    with pytest.raises(MalformedBatch, match=rf"{reason}\b"):
        batch.control_record()


def test_a_marker_of_a_later_version_with_further_fields_is_read() -> None:
    batch = build_batch(
        [Record(key=bytes.fromhex("0001000001"), value=bytes.fromhex("000200000009aa"))], is_control=True
    )
    expected = ControlRecord(control_type=ControlType.ABORT, coordinator_epoch=9, key_version=1, value_version=2)
    assert batch.control_record() == expected


def test_the_first_record_of_a_control_batch_decides_as_it_does_in_kafka() -> None:
    written = [Record(key=bytes([0, 0, 0, kind]), value=bytes(6), offset_delta=kind) for kind in ControlType]
    for records in (written, written[::-1]):
        marker = build_batch(records, is_control=True).control_record()
        assert marker is not None
        assert marker.control_type == records[0].offset_delta


def test_a_data_batch_is_no_marker_whatever_its_records_hold() -> None:
    assert build_batch([Record(key=bytes(4), value=bytes(6))]).control_record() is None


@settings(deadline=None)
@given(batches, st.data())
def test_a_mutated_batch_is_read_or_malformed_inside_its_bytes(batch: RecordBatch, data: st.DataObject) -> None:
    encoded = bytearray(batch.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(encoded)))
        end = data.draw(st.integers(start, min(start + 8, len(encoded))))
        encoded[start:end] = data.draw(st.binary(max_size=8))
    if data.draw(st.booleans()) and len(encoded) >= HEADER_BYTES:
        encoded[8:12] = (len(encoded) - 12).to_bytes(4, "big")
        encoded[16] = 2
        encoded = bytearray(with_crc(encoded))
    mutated = bytes(encoded)
    try:
        decoded, position = decode_batch(mutated)
        assert decoded.encode() == mutated[:position]
        decoded.records(limit=1 << 20)
        decoded.control_record()
    except MalformedBatch as error:
        position = error.position
    assert 0 <= position <= len(mutated)


@pytest.mark.parametrize("delta", [-65, -64, -63, 63, 64])
def test_a_timestamp_delta_is_read_whatever_bytes_its_varint_takes(delta: int) -> None:
    batch = build_batch([Record(value=b"a"), Record(value=b"b", offset_delta=1, timestamp_delta=delta)])
    assert [record.timestamp_delta for record in decode_batch(batch.encode())[0].records()] == [0, delta]


def test_the_next_offset_of_a_batch_is_an_int64() -> None:
    last = 2**63 - 2
    assert decode_batch(build_batch([Record(value=b"a")], base_offset=last).encode())[0].base_offset == last
    two = [Record(value=b"a"), Record(value=b"b", offset_delta=1)]
    for records, first in (([Record(value=b"a")], 2**63 - 1), (two, last)):
        with pytest.raises(MalformedBatch):
            decode_batch(build_batch(records, base_offset=first).encode())


@pytest.mark.parametrize("size", [56, 57, 58, 59, 63, 64])
def test_a_record_is_read_whatever_bytes_the_varints_of_its_sizes_take(size: int) -> None:
    """The varint of a record's size has a second byte from 58 bytes of value on, that of the value's from 64."""
    batch = build_batch([Record(value=b"v" * size), Record(value=b"w", offset_delta=1)])
    assert [record.value for record in decode_batch(batch.encode())[0].records()] == [b"v" * size, b"w"]
