"""The records of ``__consumer_offsets``: offsets, classic groups, and consumer groups with their members.

Kafka: CoordinatorRecordType, GroupCoordinatorRecordSerde
"""

from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Buffer, Message

OFFSET, CLASSIC_GROUP = 1, 2
EPOCH, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, PATTERN = 3, 4, 5, 6, 7, 8, 16
RECORDS = {
    OFFSET: "OffsetCommit",
    CLASSIC_GROUP: "GroupMetadata",
    CURRENT: "ConsumerGroupCurrentMemberAssignment",
    TARGET: "ConsumerGroupTargetAssignmentMember",
    TARGET_EPOCH: "ConsumerGroupTargetAssignmentMetadata",
    MEMBER: "ConsumerGroupMemberMetadata",
    TOPICS: "ConsumerGroupPartitionMetadata",
    PATTERN: "ConsumerGroupRegularExpression",
    EPOCH: "ConsumerGroupMetadata",
}
"""The records by the type of their keys, in the order in which Kafka removes them; the last seven are KIP-848's."""

VALUE_VERSIONS = {OFFSET: 4, CLASSIC_GROUP: 3}
"""The versions of values, where they are not 0."""

Records = dict[bytes, bytes]
"""The values of a group's records by their keys, without those of offsets."""


def key_bytes(kind: int, row: Message) -> bytes:
    """The key of a record."""
    return kind.to_bytes(2, "big") + served_codec().write(f"{RECORDS[kind]}Key", 0, row)


def value_bytes(kind: int, row: Message) -> bytes:
    """The value of a record."""
    version = VALUE_VERSIONS.get(kind, 0)
    return version.to_bytes(2, "big") + served_codec().write(f"{RECORDS[kind]}Value", version, row)


def kind_of(data: bytes) -> int:
    """The type of a key, which may be none of :data:`RECORDS`."""
    return int.from_bytes(data[:2], "big")


def read_key(data: bytes) -> tuple[str, Message]:
    """The group of a key, and its other fields."""
    row = served_codec().read(f"{RECORDS[kind_of(data)]}Key", 0, Buffer(data[2:]))
    return row.pop("group", None) or row.pop("GroupId", ""), row


def read_value(kind: int, data: bytes) -> Message:
    """The fields of a value."""
    return served_codec().read(f"{RECORDS[kind]}Value", int.from_bytes(data[:2], "big"), Buffer(data[2:]))
