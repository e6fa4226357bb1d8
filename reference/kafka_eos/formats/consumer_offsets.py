"""The offsets in ``__consumer_offsets``, byte for byte: the log in which a group coordinator keeps what groups commit.

A record of an offset has a key of type 0 or 1 and names a group and a partition; its value is the offset that is
committed from there on, and a null value (a tombstone) says that the coordinator forgot it. A record of a transaction
counts from the transaction's COMMIT marker on, unless a later record of the same key counts already. Records of other
types (a group's members and generation, the state of groups of KIP-848) are recognized only by their type. ::

    key    type int16 (0 or 1, alike), group string, topic string, partition int32
    value  version int16 (0 to 4), offset int64, leader_epoch int32 (from 3 on), metadata string,
           commit_timestamp_ms int64, expire_timestamp_ms int64 (only 1), tagged fields (from 4 on)

The length of a string is an int16. In version 4 it is an unsigned varint of the length plus one. Tagged fields are a
varint of their number, and for each field the varints of its tag and size, and its bytes.

``decode_key(data).encode() == data`` and ``decode_value(data).encode() == data`` for all bytes that decode. Only the
shortest varints are accepted, as Kafka's encoder writes them.

Kafka: OffsetCommitKey.json, LegacyOffsetCommitKey.json, OffsetCommitValue.json, LegacyOffsetCommitValue.json,
       org.apache.kafka.coordinator.group (GroupCoordinatorRecordHelpers, OffsetMetadataManager.replay)
KIP:   KIP-98, KIP-320 (version 3), KIP-848
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kafka_eos.formats.record_fields import (
    MAX_INT16,
    FieldReader,
    MalformedRecord,
    TaggedField,
    encode_string,
    encode_tagged_fields,
)

TOPIC = "__consumer_offsets"
OFFSET_KEY_TYPES = (0, 1)
NEWEST_VERSION = 4
FIRST_WITH_LEADER_EPOCH = 3
FIRST_FLEXIBLE_VERSION = 4
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1

_EXPIRES_IN = 1


class MalformedOffsetRecord(MalformedRecord):
    """Bytes that are no key or value of ``__consumer_offsets``; raised only by the codec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitKey:
    """The key of a committed offset.

    Attributes:
        group: the group whose offset it is.
        topic: topic name.
        partition: partition number.
        key_type: 0 or 1, which mean the same.
    """

    group: str
    topic: str
    partition: int
    key_type: int = OFFSET_KEY_TYPES[-1]

    def encode(self) -> bytes:
        """The bytes from which :func:`decode_key` makes this key.

        Raises:
            OverflowError: a name takes more than 32767 bytes.
        """
        names = encode_string(self.group, flexible=False) + encode_string(self.topic, flexible=False)
        return struct.pack(">h", self.key_type) + names + struct.pack(">i", self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitValue:
    """The value of a committed offset.

    Attributes:
        version: the format's version, 0 to 4.
        offset: the offset of the next record to read.
        leader_epoch: the leader epoch of the record before it, -1 if it is not known.
        metadata: whatever the client adds.
        commit_timestamp_ms: milliseconds since the epoch.
        expire_timestamp_ms: milliseconds since the epoch, -1 for never; only in version 1.
        tagged_fields: by ascending tag; 0 is the topic's id.
    """

    version: int = 3
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    tagged_fields: tuple[TaggedField, ...] = ()

    def encode(self) -> bytes:
        """The bytes from which :func:`decode_value` makes this value.

        Raises:
            OverflowError: a field does not fit its place, or the version has no place for it.
        """
        flexible = self.version >= FIRST_FLEXIBLE_VERSION
        for name, (first, last, default) in _PLACES.items():
            if getattr(self, name) != default and not first <= self.version <= last:
                raise OverflowError(f"version {self.version} has no place for {name}")
        try:
            data = struct.pack(">hq", self.version, self.offset)
            data += struct.pack(">i", self.leader_epoch) if self.version >= FIRST_WITH_LEADER_EPOCH else b""
            data += encode_string(self.metadata, flexible) + struct.pack(">q", self.commit_timestamp_ms)
            data += struct.pack(">q", self.expire_timestamp_ms) if self.version == _EXPIRES_IN else b""
        except struct.error as error:
            raise OverflowError(f"a field does not fit its place: {error}") from None
        return data + encode_tagged_fields(self.tagged_fields) if flexible else data


_PLACES: Mapping[str, tuple[int, int, object]] = MappingProxyType(
    {
        "leader_epoch": (FIRST_WITH_LEADER_EPOCH, NEWEST_VERSION, NO_LEADER_EPOCH),
        "expire_timestamp_ms": (_EXPIRES_IN, _EXPIRES_IN, NO_TIMESTAMP),
        "tagged_fields": (FIRST_FLEXIBLE_VERSION, NEWEST_VERSION, ()),
    }
)
"""By field: the first and the last version that has it, and its default."""


def decode_key(data: bytes) -> OffsetCommitKey | None:
    """The key of a committed offset; None for a record of another type.

    Raises:
        MalformedOffsetRecord: ``data`` are no key.
    """
    reader = _Reader(data, flexible=False)
    if (key_type := reader.integer(">h")) not in OFFSET_KEY_TYPES:
        return None
    key = OffsetCommitKey(
        group=reader.string(), topic=reader.string(), partition=reader.integer(">i"), key_type=key_type
    )
    reader.end()
    return key


def decode_value(data: bytes | None) -> OffsetCommitValue | None:
    """The value of a committed offset; None for a tombstone.

    Raises:
        MalformedOffsetRecord: ``data`` are no value of version 0 to 4.
    """
    if data is None:
        return None
    reader = _Reader(data, flexible=False)
    if not 0 <= (version := reader.integer(">h")) <= NEWEST_VERSION:
        raise MalformedOffsetRecord(0, f"value version {version}, where 0 to {NEWEST_VERSION} are known")
    reader.flexible = version >= FIRST_FLEXIBLE_VERSION
    value = OffsetCommitValue(
        version=version,
        offset=reader.integer(">q"),
        leader_epoch=reader.integer(">i") if version >= FIRST_WITH_LEADER_EPOCH else NO_LEADER_EPOCH,
        metadata=reader.string(),
        commit_timestamp_ms=reader.integer(">q"),
        expire_timestamp_ms=reader.integer(">q") if version == _EXPIRES_IN else NO_TIMESTAMP,
        tagged_fields=reader.tagged_fields(),
    )
    reader.end()
    return value


@dataclass(slots=True)
class _Reader(FieldReader):
    """The strings and tagged fields of these records, none of which may be null."""

    malformed = MalformedOffsetRecord

    def string(self) -> str:
        start = self.position
        size = self.unsigned_varint() - 1 if self.flexible else self.integer(">h")
        if not 0 <= size <= MAX_INT16:
            raise MalformedOffsetRecord(start, f"a string of {size} bytes")
        return self.text(size)

    def tagged_fields(self) -> tuple[TaggedField, ...]:
        return tuple((tag, data) for _, tag, data in self.tags())

    def end(self) -> None:
        if self.left:
            raise MalformedOffsetRecord(self.position, f"{self.left} bytes after the last field")
