"""Fields of the records in which coordinators keep their state, for the codecs of their topics.

Spec:  none
Kafka: org.apache.kafka.common.protocol (ByteBufferAccessor), generated readers and writers of the coordinators' schemas
KIP:   KIP-482 (flexible versions, tagged fields)
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

TaggedField: TypeAlias = tuple[int, bytes]

MAX_INT16 = 2**15 - 1
_MAX_INT32 = 2**31 - 1
_MAX_VARINT_BITS = 35


class MalformedRecord(ValueError):  # noqa: N818 - named for the bytes, as MalformedBatch is
    """Bytes that are no key or value of a coordinator's topic.

    Attributes:
        position: where in the key or value the first impossible byte stands, in bytes.
        reason: what is impossible about it.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason


@dataclass(slots=True)
class FieldReader:
    """Reads fields one after the other, and never beyond the end.

    Attributes:
        data: the key or value.
        flexible: whether lengths are varints and there are tagged fields.
        position: the position of the next field, in bytes.
        malformed: the error that the codec raises.
    """

    data: bytes
    flexible: bool
    position: int = 0
    malformed: ClassVar[type[MalformedRecord]] = MalformedRecord

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return len(self.data) - self.position

    def bytes_of(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if size > self.left:
            raise self.malformed(len(self.data), f"{self.left} bytes are left where a field takes {size}")
        start, self.position = self.position, self.position + size
        return self.data[start : self.position]

    def integer(self, layout: str) -> int:
        """A number in a layout of ``struct``."""
        [value] = struct.unpack(layout, self.bytes_of(struct.calcsize(layout)))
        return int(value)

    def unsigned_varint(self) -> int:
        """A number of up to 31 bits, in no more bytes than it needs."""
        start, value = self.position, 0
        for shift in range(0, _MAX_VARINT_BITS, 7):
            byte = self.bytes_of(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > _MAX_INT32 or (shift and byte == 0):
                    raise self.malformed(start, "a varint that is too large or longer than needed")
                return value
        raise self.malformed(start, "a varint of more than 5 bytes")

    def text(self, size: int) -> str:
        """A string of ``size`` bytes."""
        begin = self.position
        try:
            return self.bytes_of(size).decode()
        except UnicodeDecodeError as error:
            raise self.malformed(begin + error.start, f"no UTF-8: {error.reason}") from None

    def tags(self) -> Iterator[tuple[int, int, bytes]]:
        """The tagged fields, with where each begins; none in a version that is not flexible."""
        last = -1
        for _ in range(self.unsigned_varint() if self.flexible else 0):
            start = self.position
            tag, size = self.unsigned_varint(), self.unsigned_varint()
            if tag <= last:
                raise self.malformed(start, f"tag {tag} after tag {last}")
            last = tag
            yield start, tag, self.bytes_of(size)


def encode_unsigned_varint(value: int) -> bytes:
    """The shortest bytes of a number."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_length(size: int, layout: str, flexible: bool) -> bytes:
    """The length of a string or array, -1 for null."""
    return encode_unsigned_varint(size + 1) if flexible else struct.pack(layout, size)


def encode_string(text: str, flexible: bool) -> bytes:
    """A string with its length.

    Raises:
        OverflowError: it is longer than a string may be.
    """
    encoded = text.encode()
    if len(encoded) > MAX_INT16:
        raise OverflowError(f"a string of {len(encoded)} bytes, where {MAX_INT16} are the most")
    return encode_length(len(encoded), ">h", flexible) + encoded


def encode_tagged_fields(fields: Iterable[TaggedField]) -> bytes:
    """Tagged fields with their number; they are in the order of their tags already."""
    given = list(fields)
    encoded = bytearray(encode_unsigned_varint(len(given)))
    for tag, data in given:
        encoded += encode_unsigned_varint(tag) + encode_unsigned_varint(len(data)) + data
    return bytes(encoded)
