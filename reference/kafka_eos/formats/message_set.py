"""Message sets, the format of partitions before record batches, in format versions 0 and 1, byte for byte.

A message set is one message after the other, without a header of its own::

    offset int64, message_size int32 (of what follows it), crc uint32 (CRC-32 of what follows it), magic int8 (0 or 1),
    attributes int8, timestamp int64 (version 1 only), key_length int32 (-1 for null), key, value_length int32, value

    attributes: bits 0-2 compression, 3 timestamp type (version 1), 4-7 unused

Compressed messages are the value of another message, the wrapper. Its offset is that of the last message in it. In
version 0 the messages in it have their absolute offsets; in version 1 they have relative ones, so that a broker need
not compress again what it appends. A wrapper of version 1 has the largest of its messages' timestamps, or with the type
LOG_APPEND_TIME the broker's, which then replaces theirs.

There is no producer id, epoch or sequence, and no transaction: idempotence came with record batches (KIP-98). Apache
Kafka 4 still reads these formats, but no longer writes them (KIP-724).

``decode_message(data)[0].encode() == data`` for every message that decodes.

Departs from Kafka, which accepts what no encoder writes: a value's length below -1 (null to Kafka), bytes after the
value, a negative offset, a wrapper with messages of the other version, and a last message that is cut off, which its
reader drops. Here these are malformed.

Kafka: org.apache.kafka.common.record.internal.LegacyRecord, AbstractLegacyRecordBatch
KIP:   KIP-31 (relative offsets), KIP-32 (timestamps), KIP-57 (the frame of lz4)
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.compression import MAX_DECOMPRESSED_BYTES, CompressionType, compress, decompress
from kafka_eos.formats.record_batch import LOG_OVERHEAD_BYTES, NO_TIMESTAMP, Buffer, TimestampType
from kafka_eos.formats.varint import INT64_MAX

MESSAGE_OVERHEAD_BYTES = (14, 22)
"""The size of a message without its key, value, offset and size fields, by version."""

_FRONT = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes
_CHECKED_FROM = 16
_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08

_LZ4_CHECK = 6  # place of the descriptor's check in the frame of Kafka's clients, which has no content size
_LZ4_CONTENT_SIZE = 0x08


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message, or a wrapper of compressed messages.

    Attributes:
        offset: absolute; as stored, that of a message in a wrapper of version 1 is relative.
        magic: format version, 0 or 1.
        attributes: bits, see the module and the properties; int8.
        timestamp: milliseconds since the epoch; -1 in version 0, which has none.
        key: None is null, which is not the same as empty.
        value: None is null, a tombstone in a compacted topic.
    """

    offset: int = 0
    magic: int = 1
    attributes: int = 0
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the encoded message."""
        return LOG_OVERHEAD_BYTES + MESSAGE_OVERHEAD_BYTES[self.magic] + len(self.key or b"") + len(self.value or b"")

    @property
    def compression(self) -> CompressionType:
        """The codec of the value; NONE except for a wrapper."""
        return CompressionType(self.attributes & _COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> TimestampType | None:
        """Whether the producer or the broker set the timestamp; None in version 0."""
        if self.magic == 0:
            return None
        return TimestampType.LOG_APPEND_TIME if self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME

    def encode(self) -> bytes:
        """The bytes from which :func:`decode_message` makes this message.

        Raises:
            OverflowError: a field does not fit its place, or version 0 is given a timestamp.
        """
        if self.magic == 0 and self.timestamp != NO_TIMESTAMP:
            raise OverflowError(f"timestamp {self.timestamp}, where version 0 has no place for one")
        try:
            checked = struct.pack(">bb", self.magic, self.attributes)
            checked += struct.pack(">q", self.timestamp) if self.magic else b""
            for field in (self.key, self.value):
                checked += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
            return struct.pack(">qiI", self.offset, len(checked) + 4, zlib.crc32(checked)) + checked
        except struct.error as error:
            raise OverflowError(f"a field of the message does not fit its place: {error}") from None

    def messages(self, limit: int = MAX_DECOMPRESSED_BYTES) -> tuple["Message", ...]:
        """The messages that a consumer is given: this one, or those that it wraps, with absolute offsets.

        Raises:
            MalformedBatch: the value is no compressed message set, or takes more than ``limit`` bytes. The position
                counts from the first byte of the wrapper and is that of its value; the reason says where in it.

        Kafka: AbstractLegacyRecordBatch.DeepRecordsIterator
        """
        if self.compression is CompressionType.NONE:
            return (self,)
        position = self.size - len(self.value or b"")
        if self.compression is CompressionType.ZSTD:
            raise MalformedBatch(position, f"zstd in format version {self.magic}, which came before it")
        if self.value is None:
            raise MalformedBatch(position, "a compressed message whose value is null")
        try:
            section = decompress(self.compression, _with_right_check(self, self.value), limit)
        except MalformedBatch as error:
            raise MalformedBatch(position, error.reason) from None
        try:
            return self._unwrapped(_decode_all(section))
        except MalformedBatch as error:
            where = f"at byte {error.position} of the decompressed messages: {error.reason}"
            raise MalformedBatch(position, where) from None

    def _unwrapped(self, inner: Sequence[tuple[int, "Message"]]) -> tuple["Message", ...]:
        if not inner:
            raise MalformedBatch(0, "a wrapper without messages")
        base = 0
        # librdkafka left wrappers at offset 0; Kafka takes their messages to begin at 0.
        if self.magic and self.offset:
            position, last = inner[-1]
            base = self.offset - last.offset
            if base < 0:
                raise MalformedBatch(position, f"relative offset {last.offset} in a wrapper at {self.offset}")
        unwrapped = []
        for position, message in inner:
            if message.magic != self.magic:
                raise MalformedBatch(position, f"magic {message.magic} in a wrapper of version {self.magic}")
            if message.compression is not CompressionType.NONE:
                raise MalformedBatch(position, "a wrapper in a wrapper")
            if base + message.offset >= INT64_MAX:
                raise MalformedBatch(position, f"offset {base + message.offset} is none")
            found = replace(message, offset=base + message.offset)
            if self.magic:  # the type is the wrapper's, and the broker's time stands for all
                flags = message.attributes & ~_LOG_APPEND_TIME | self.attributes & _LOG_APPEND_TIME
                broker_time = self.timestamp_type is TimestampType.LOG_APPEND_TIME
                found = replace(found, attributes=flags, timestamp=self.timestamp if broker_time else message.timestamp)
            unwrapped.append(found)
        return tuple(unwrapped)


def decode_message(buffer: Buffer, position: int = 0) -> tuple[Message, int]:
    """The message that begins at ``position``, and the position after it; a wrapper is not opened.

    Raises:
        MalformedBatch: no message of version 0 or 1 begins there, or its end is missing. The position counts from
            the first byte of ``buffer``.
    """
    left = len(buffer) - position
    if left < _FRONT.size:
        raise MalformedBatch(len(buffer), f"{max(left, 0)} bytes are left where a message begins with {_FRONT.size}")
    offset, size, crc, magic, attributes = _FRONT.unpack_from(buffer, position)
    if magic not in (0, 1):
        raise MalformedBatch(position + _CHECKED_FROM, f"magic {magic}, where only messages of version 0 or 1 are read")
    if size < MESSAGE_OVERHEAD_BYTES[magic]:
        raise MalformedBatch(position + 8, f"message size {size} is less than the rest of the fields")
    end = position + LOG_OVERHEAD_BYTES + size
    if end > len(buffer):
        raise MalformedBatch(len(buffer), f"the message claims {LOG_OVERHEAD_BYTES + size} bytes of {left}")
    checked = bytes(buffer[position + _CHECKED_FROM : end])
    if zlib.crc32(checked) != crc:
        raise MalformedBatch(position + 12, f"CRC-32 is {crc:08x}, of the bytes {zlib.crc32(checked):08x}")
    if attributes & _COMPRESSION_MASK > CompressionType.ZSTD:
        raise MalformedBatch(position + 17, f"compression type {attributes & _COMPRESSION_MASK} does not exist")
    if offset < 0 or offset == INT64_MAX:
        raise MalformedBatch(position, f"offset {offset} is none")
    at = 2
    timestamp = NO_TIMESTAMP
    if magic:
        (timestamp,) = struct.unpack_from(">q", checked, at)
        at += 8
    fields = []
    for name, after in (("key", 4), ("value", 0)):
        (length,) = struct.unpack_from(">i", checked, at)
        if length < -1:
            raise MalformedBatch(position + _CHECKED_FROM + at, f"length {length} is negative, and not -1 for null")
        if max(length, 0) > len(checked) - at - 4 - after:
            raise MalformedBatch(position + _CHECKED_FROM + at, f"a {name} of {length} bytes in a message of {size}")
        at += 4
        fields.append(None if length < 0 else checked[at : at + length])
        at += max(length, 0)
    if at != len(checked):
        raise MalformedBatch(position + _CHECKED_FROM + at, f"{len(checked) - at} bytes are left after the value")
    key, value = fields
    message = Message(offset=offset, magic=magic, attributes=attributes, timestamp=timestamp, key=key, value=value)
    return message, end


def decode_message_set(buffer: Buffer, limit: int = MAX_DECOMPRESSED_BYTES) -> tuple[Message, ...]:
    """All messages of a set, each wrapper opened.

    Raises:
        MalformedBatch: as for :func:`decode_message` and :meth:`Message.messages`, with the position in ``buffer``.
    """
    found: list[Message] = []
    for position, message in _decode_all(buffer):
        try:
            found += message.messages(limit)
        except MalformedBatch as error:
            raise MalformedBatch(position + error.position, error.reason) from None
    return tuple(found)


def _decode_all(buffer: Buffer) -> list[tuple[int, Message]]:
    """Each message as stored, with its position."""
    found = []
    position = 0
    while position < len(buffer):
        message, end = decode_message(buffer, position)
        found.append((position, message))
        position = end
    return found


def build_message_set(
    messages: Sequence[Message],
    *,
    compression: CompressionType = CompressionType.NONE,
    base_offset: int | None = None,
) -> bytes:
    """The bytes of a message set, in one wrapper if it is compressed.

    Args:
        messages: they have absolute offsets and one version and timestamp type, and are taken as they are.
        compression: the codec, in the framing of Kafka's Java producer.
        base_offset: what the relative offsets of version 1 count from; None takes the first message's offset.

    Raises:
        OverflowError: a field does not fit its place.
        ValueError: for messages of several versions, a wrapper without messages, or compression with zstd.

    Kafka: MemoryRecordsBuilder
    """
    if compression is CompressionType.NONE:
        return b"".join(message.encode() for message in messages)
    if len({(message.magic, message.timestamp_type) for message in messages}) != 1:
        raise ValueError("a wrapper has messages of one version and timestamp type")
    if compression is CompressionType.ZSTD:
        raise ValueError("there is no zstd in format versions 0 and 1")
    first, last = messages[0], messages[-1]
    base = 0 if first.magic == 0 else first.offset if base_offset is None else base_offset
    section = b"".join(replace(message, offset=message.offset - base).encode() for message in messages)
    wrapper = Message(
        offset=last.offset,
        magic=first.magic,
        attributes=first.attributes & _LOG_APPEND_TIME | compression,
        timestamp=max(message.timestamp for message in messages),
    )
    return replace(wrapper, value=_with_broken_check(wrapper, compress(compression, section))).encode()


def _is_lz4_of_version_0(message: Message, frame: bytes) -> bool:
    """Kafka: Lz4BlockOutputStream, useBrokenFlagDescriptorChecksum."""
    return message.magic == 0 and message.compression is CompressionType.LZ4 and len(frame) > _LZ4_CHECK


def _with_right_check(message: Message, frame: bytes) -> bytes:
    """The frame with the check that lz4 wants; in version 0 Kafka ignores the frame's own check."""
    if not _is_lz4_of_version_0(message, frame):
        return frame
    at = _LZ4_CHECK + (8 if frame[4] & _LZ4_CONTENT_SIZE else 0)
    return frame[:at] + _lz4_check(frame[4:at]) + frame[at + 1 :]


def _with_broken_check(message: Message, frame: bytes) -> bytes:
    """The frame as version 0 has it: its check is taken over the frame's magic number too."""
    if not _is_lz4_of_version_0(message, frame):
        return frame
    return frame[:_LZ4_CHECK] + _lz4_check(frame[:_LZ4_CHECK]) + frame[_LZ4_CHECK + 1 :]


def _lz4_check(descriptor: bytes) -> bytes:
    """The second byte of a short descriptor's xxHash32, which has fewer than 16 bytes."""
    primes = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1

    def rotated(value: int, bits: int) -> int:
        value &= 0xFFFFFFFF
        return value << bits | value >> 32 - bits

    value = primes[4] + len(descriptor)
    words = len(descriptor) // 4
    for word in struct.unpack_from(f"<{words}I", descriptor):
        value = rotated(value + word * primes[2], 17) * primes[3]
    for byte in descriptor[4 * words :]:
        value = rotated(value + byte * primes[4], 11) * primes[0]
    value &= 0xFFFFFFFF
    for shift, prime in ((15, primes[1]), (13, primes[2])):
        value = (value ^ value >> shift) * prime & 0xFFFFFFFF
    return bytes([(value ^ value >> 16) >> 8 & 0xFF])
