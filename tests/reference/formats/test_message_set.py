import json
import struct
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.compression import CompressionType, compress, decompress
from kafka_eos.formats.message_set import (
    MESSAGE_OVERHEAD_BYTES,
    Message,
    build_message_set,
    decode_message,
    decode_message_set,
)
from kafka_eos.formats.record_batch import LOG_OVERHEAD_BYTES, TimestampType
from kafka_eos_checks.brokers.jars import need_jars

TESTS = Path(__file__).parents[2]
FILE = json.loads((TESTS / "vectors" / "message_set.json").read_text())
VECTORS, EDGES = FILE["vectors"], FILE["edges"]
LEGACY = [codec for codec in CompressionType if codec is not CompressionType.ZSTD]
BROKER_TIME = 0x08

SAME_FRAMES = {CompressionType.NONE, CompressionType.LZ4}
"""Where two compressors that choose alike give the same bytes."""

READ_BY_KAFKA_ONLY = {
    "version 0 in a wrapper of version 1",
    "version 1 in a wrapper of version 0",
    "a value length of -2",
    "bytes behind the value",
    "bytes behind the value, version 0",
    "a negative offset",
    "a negative relative offset",
    "messages cut off in the last one",
}

small_bytes = st.none() | st.binary(max_size=60)


def test_in_version_0_the_check_of_an_lz4_frame_is_ignored_with_a_content_size_too() -> None:
    """Clients other than Kafka's may write the size of the content into the frame's descriptor."""
    message = Message(magic=0, value=b"v" * 100)
    section = message.encode()
    frame = compress(CompressionType.LZ4, section)
    sized = frame[:4] + bytes([frame[4] | 0x08, frame[5]]) + struct.pack("<Q", len(section)) + b"\0" + frame[7:]
    wrapper = Message(magic=0, attributes=int(CompressionType.LZ4), value=sized)
    assert decode_message_set(wrapper.encode()) == (message,)


@st.composite
def message_sets(draw: st.DrawFn) -> tuple[list[Message], CompressionType, int]:
    """Messages of one version and timestamp type, with a codec and a base offset."""
    magic = draw(st.integers(0, 1))
    base = draw(st.integers(1, 2**40))
    broker_time = magic == 1 and draw(st.booleans())
    count = draw(st.integers(1, 6))
    gaps = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
    times = [0] * count if broker_time else draw(st.lists(st.integers(0, 2**41), min_size=count, max_size=count))
    messages = [
        Message(
            offset=base + sum(gaps[: index + 1]),
            magic=magic,
            attributes=BROKER_TIME if broker_time else 0,
            timestamp=times[index] if magic else -1,
            key=draw(small_bytes),
            value=draw(small_bytes),
        )
        for index in range(count)
    ]
    return messages, draw(st.sampled_from(LEGACY)), base


def rows(messages: Sequence[Message]) -> list[list[Any]]:
    """The rows in the form of the vectors."""
    return [[m.offset, m.timestamp, *(None if b is None else b.hex() for b in (m.key, m.value))] for m in messages]


def kafka(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of Kafka's own codec."""
    done = subprocess.run(
        [
            "java",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{need_jars()}/*",
            str(TESTS / "java" / "MessageSets.java"),
        ],
        input="".join(json.dumps(question) + "\n" for question in questions),
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_a_message_set_of_kafka_is_read_as_kafka_reads_it(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    assert rows(decode_message_set(data)) == vector["records"]
    position = 0
    types = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}
    for expected in vector["messages"]:
        start = position
        message, position = decode_message(data, start)
        assert message.encode() == data[start:position]
        assert expected == {
            "magic": message.magic,
            "last_offset": message.offset,
            "size": message.size,
            "compression": message.compression.name.lower(),
            "timestamp_type": types[message.timestamp_type]
            if message.timestamp_type is not None
            else "NoTimestampType",
            "max_timestamp": message.timestamp,
        }
    assert position == len(data)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
def test_the_messages_of_kafka_are_built_to_the_bytes_that_kafka_wrote(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    stored = decode_message(data)[0]
    built = build_message_set(
        decode_message_set(data), compression=stored.compression, base_offset=vector["base_offset"]
    )
    if stored.compression in SAME_FRAMES:
        assert built == data
    else:
        ours = decode_message(built)[0]
        assert replace(ours, value=None) == replace(stored, value=None)
        assert ours.value is not None
        assert stored.value is not None
        assert decompress(ours.compression, ours.value) == decompress(stored.compression, stored.value)


@pytest.mark.parametrize("edge", EDGES, ids=[edge["name"] for edge in EDGES])
def test_bytes_that_no_encoder_writes_are_refused_like_kafka_or_listed_as_a_departure(edge: dict[str, Any]) -> None:
    data = bytes.fromhex(edge["hex"])
    if isinstance(edge["kafka"], str) or edge["name"] in READ_BY_KAFKA_ONLY:
        with pytest.raises(MalformedBatch) as caught:
            decode_message_set(data)
        assert 0 <= caught.value.position <= len(data)
    else:
        assert rows(decode_message_set(data)) == edge["kafka"]["records"]
        assert edge["kafka"]["bytes"] == len(data)


def test_every_departure_from_kafka_is_among_the_edges() -> None:
    read_by_kafka = {edge["name"] for edge in EDGES if not isinstance(edge["kafka"], str)}
    assert read_by_kafka >= READ_BY_KAFKA_ONLY


@given(message_sets())
def test_a_message_set_is_read_back(given_set: tuple[list[Message], CompressionType, int]) -> None:
    messages, compression, base = given_set
    data = build_message_set(messages, compression=compression, base_offset=base)
    assert decode_message_set(data) == tuple(messages)
    again = b""
    position = 0
    while position < len(data):
        message, position = decode_message(data, position)
        again += message.encode()
    assert again == data


@pytest.mark.java
def test_kafka_and_our_codec_read_each_others_bytes() -> None:
    written: list[tuple[list[Message], CompressionType, int]] = []
    for magic in (0, 1):
        for number in range(120):
            compression = LEGACY[number % len(LEGACY)]
            broker_time = magic == 1 and number % 3 == 0
            seed = zlib.crc32(f"{magic} {number}".encode())
            messages = [
                Message(
                    offset=seed + 2 * index,
                    magic=magic,
                    attributes=BROKER_TIME if broker_time else 0,
                    timestamp=-1 if magic == 0 else 1000 if broker_time else 1000 + (seed >> index) % 50,
                    key=None if seed >> index & 1 else bytes([index]) * (seed % 40),
                    value=None if number % 7 == index else str(seed).encode() * (index % 90),
                )
                for index in range(1 + seed % 150)
            ]
            written.append((messages, compression, seed - seed % 3))
    ours = [build_message_set(m, compression=compression, base_offset=base) for m, compression, base in written]
    answers = kafka(
        [{"read": data.hex()} for data in ours]
        + [
            {
                "write": {
                    "magic": messages[0].magic,
                    "compression": compression.name.lower(),
                    "timestamp_type": "LogAppendTime" if messages[0].attributes else "CreateTime",
                    "base_offset": base,
                    "log_append_time": messages[0].timestamp if messages[0].attributes else -1,
                    "records": rows(messages),
                }
            }
            for messages, compression, base in written
        ]
    )
    for number, (messages, compression, _) in enumerate(written):
        assert answers[number]["records"] == rows(messages)
        theirs = bytes.fromhex(answers[len(ours) + number]["hex"])
        assert decode_message_set(theirs) == tuple(messages)
        if compression is CompressionType.NONE:
            assert theirs == ours[number]


def test_a_message_takes_26_or_34_bytes_besides_its_key_and_value() -> None:
    for magic, overhead in ((0, 26), (1, 34)):
        message = Message(magic=magic, timestamp=5 if magic else -1, key=b"k" * 100, value=b"v" * 50)
        assert len(message.encode()) == message.size == overhead + 150
        assert LOG_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES[magic] == overhead


@pytest.mark.parametrize("first", [0, 7])
def test_in_a_wrapper_of_version_1_offsets_are_relative_and_in_one_of_version_0_they_are_not(first: int) -> None:
    for magic, stored in ((0, [first, first + 2]), (1, [0, 2])):
        messages = [Message(magic=magic, offset=offset, value=b"v") for offset in (first, first + 2)]
        wrapper = decode_message(build_message_set(messages, compression=CompressionType.GZIP))[0]
        assert wrapper.offset == first + 2
        assert wrapper.messages() == tuple(messages)
        assert wrapper.value is not None
        inside = decode_message_set(decompress(CompressionType.GZIP, wrapper.value))
        assert [message.offset for message in inside] == stored


def test_a_wrapper_has_the_largest_time_of_its_messages_wherever_that_is() -> None:
    for times in ((7, 5), (5, 7), (5, 7, 6)):
        messages = [Message(offset=offset, timestamp=time) for offset, time in enumerate(times)]
        assert decode_message(build_message_set(messages, compression=CompressionType.GZIP))[0].timestamp == 7


def test_the_time_of_the_broker_stands_for_all_messages_of_a_wrapper() -> None:
    messages = [Message(offset=offset, timestamp=5, value=b"v") for offset in (0, 1)]
    wrapper = decode_message(build_message_set(messages, compression=CompressionType.GZIP))[0]
    stamped = replace(wrapper, offset=41, timestamp=99, attributes=wrapper.attributes | BROKER_TIME)
    assert [(m.offset, m.timestamp, m.timestamp_type) for m in stamped.messages()] == [
        (40, 99, TimestampType.LOG_APPEND_TIME),
        (41, 99, TimestampType.LOG_APPEND_TIME),
    ]


@pytest.mark.parametrize("wrappers", [0, BROKER_TIME])
def test_the_timestamp_type_is_that_of_the_wrapper_and_other_attributes_are_kept(wrappers: int) -> None:
    inside = b"".join(Message(attributes=own, timestamp=5).encode() for own in (0x10, 0x20 | BROKER_TIME))
    value = compress(CompressionType.GZIP, inside)
    wrapper = Message(attributes=wrappers | CompressionType.GZIP, timestamp=5, value=value)
    assert [message.attributes for message in wrapper.messages()] == [0x10 | wrappers, 0x20 | wrappers]


def changed(message: Message, position: int, new: bytes) -> bytes:
    """A message with other bytes from a position on, and the CRC of its bytes."""
    encoded = bytearray(message.encode())
    encoded[position : position + len(new)] = new
    encoded[12:16] = zlib.crc32(encoded[16:]).to_bytes(4, "big")
    return bytes(encoded)


@pytest.mark.parametrize(
    ("position", "new", "at", "reason"),
    [
        (0, b"\xff" * 8, 0, "offset -1 is none"),
        (0, b"\x7f" + b"\xff" * 7, 0, "offset 9223372036854775807 is none"),
        (8, (21).to_bytes(4, "big"), 8, "message size 21 is less than the rest of the fields"),
        (8, (28).to_bytes(4, "big"), 39, "the message claims 40 bytes of 39"),
        (16, b"\x02", 16, "magic 2, where only messages of version 0 or 1 are read"),
        (17, b"\x05", 17, "compression type 5 does not exist"),
        (17, b"\x06", 17, "compression type 6 does not exist"),
        (17, b"\x0f", 17, "compression type 7 does not exist"),
        (26, b"\xff\xff\xff\xfe", 26, "length -2 is negative, and not -1 for null"),
        (26, (6).to_bytes(4, "big"), 26, "a key of 6 bytes in a message of 27"),
        (26, (2**31 - 1).to_bytes(4, "big"), 26, "a key of 2147483647 bytes in a message of 27"),
        (32, b"\xff\xff\xff\xfe", 32, "length -2 is negative, and not -1 for null"),
        (32, (4).to_bytes(4, "big"), 32, "a value of 4 bytes in a message of 27"),
        (32, (2).to_bytes(4, "big"), 38, "1 bytes are left after the value"),
        (32, b"\xff" * 4, 36, "3 bytes are left after the value"),
    ],
)
@pytest.mark.parametrize("before", [0, 31])
def test_an_impossible_field_is_malformed_where_it_stands(
    before: int, position: int, new: bytes, at: int, reason: str
) -> None:
    message = Message(timestamp=5, key=b"ke", value=b"val")
    assert message.size == 39
    with pytest.raises(MalformedBatch) as caught:
        decode_message(bytes(before) + changed(message, position, new), before)
    assert (caught.value.position, caught.value.reason) == (before + at, reason)
    assert str(caught.value) == f"at byte {before + at}: {reason}"


def test_damage_in_a_wrapper_is_reported_with_its_position_in_buffer_and_wrapper() -> None:
    before = Message(value=b"v").encode()
    inside = bytearray(Message(value=b"value").encode())
    inside[-1] ^= 1
    wrapper = Message(offset=1, attributes=CompressionType.GZIP, value=compress(CompressionType.GZIP, bytes(inside)))
    kept, found = inside[12:16].hex(), zlib.crc32(inside[16:])
    said = f"at byte 12 of the decompressed messages: CRC-32 is {kept}, of the bytes {found:08x}$"
    with pytest.raises(MalformedBatch, match=said) as caught:
        decode_message_set(before + wrapper.encode())
    assert caught.value.position == len(before) + 34


@pytest.mark.parametrize(
    ("inside", "where", "reason"),
    [
        ([], 0, "a wrapper without messages"),
        ([Message(value=b"v"), Message(magic=0)], 35, "magic 0 in a wrapper of version 1"),
        ([Message(value=b"v"), Message(attributes=CompressionType.GZIP)], 35, "a wrapper in a wrapper"),
        ([Message(value=b"v"), Message(offset=8)], 35, "relative offset 8 in a wrapper at 7"),
        ([Message(value=b"v"), Message(offset=2**63 - 8), Message()], 35, "offset 9223372036854775807 is none"),
    ],
)
def test_a_message_that_a_wrapper_cannot_have_is_malformed(inside: list[Message], where: int, reason: str) -> None:
    value = compress(CompressionType.GZIP, b"".join(message.encode() for message in inside))
    wrapper = Message(offset=7, attributes=CompressionType.GZIP, value=value)
    with pytest.raises(MalformedBatch) as caught:
        wrapper.messages()
    assert caught.value.reason == f"at byte {where} of the decompressed messages: {reason}"


def test_a_wrapper_that_decompresses_beyond_the_limit_is_malformed() -> None:
    data = build_message_set([Message(value=bytes(10_000))], compression=CompressionType.LZ4)
    with pytest.raises(MalformedBatch, match="more than the limit of 9999 bytes"):
        decode_message_set(data, limit=9999)


def test_a_message_cut_off_anywhere_is_malformed_at_the_end_of_the_buffer() -> None:
    data = Message(key=b"k", value=b"v").encode()
    for length in range(1, len(data)):
        with pytest.raises(MalformedBatch) as caught:
            decode_message_set(data[:length])
        assert caught.value.position == length
    with pytest.raises(MalformedBatch, match="at byte 36: 0 bytes are left"):
        decode_message(data, len(data) + 3)


@pytest.mark.parametrize(
    ("messages", "compression", "error", "reason"),
    [
        ([Message(magic=0, timestamp=5)], CompressionType.NONE, OverflowError, "no place for one"),
        ([Message(offset=2**63)], CompressionType.NONE, OverflowError, "does not fit"),
        ([Message(), Message(magic=0)], CompressionType.GZIP, ValueError, "one version"),
        ([], CompressionType.GZIP, ValueError, "one version"),
        ([Message()], CompressionType.ZSTD, ValueError, "no zstd"),
    ],
)
def test_a_message_that_the_format_cannot_hold_is_not_built(
    messages: list[Message], compression: CompressionType, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=rf"{reason}\b"):
        build_message_set(messages, compression=compression)


@given(message_sets(), st.data())
def test_a_mutated_message_set_is_read_or_malformed_inside_its_bytes(
    given_set: tuple[list[Message], CompressionType, int], data: st.DataObject
) -> None:
    messages, compression, base = given_set
    encoded = bytearray(build_message_set(messages, compression=compression, base_offset=base))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(encoded)))
        end = data.draw(st.integers(start, min(start + 8, len(encoded))))
        encoded[start:end] = data.draw(st.binary(max_size=8))
    if data.draw(st.booleans()) and len(encoded) >= 26:
        encoded[8:12] = (len(encoded) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
        encoded[12:16] = zlib.crc32(encoded[16:]).to_bytes(4, "big")
    mutated = bytes(encoded)
    try:
        position = decode_message(mutated)[1]
        decode_message_set(mutated, limit=1 << 20)
    except MalformedBatch as error:
        position = error.position
    assert 0 <= position <= len(mutated)
