"""The content of JoinGroup and SyncGroup of consumers in a classic group: subscriptions and assignments.

The coordinator passes them on unread, with two exceptions: it reads which topics a group is subscribed to, and it reads
them when it turns a classic group into one of KIP-848 and back.

Kafka: ConsumerProtocol
"""

from collections.abc import Iterable
from typing import NamedTuple

from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Buffer, MalformedMessage, Message

CONSUMER = "consumer"
"""The protocol type of consumers."""
NEWEST = 3


class Subscription(NamedTuple):
    """A member's subscription and its partitions, with the version of the message."""

    topics: frozenset[str]
    owned: frozenset[str]
    version: int


def subscription(data: bytes) -> Subscription | None:
    """The subscription that a member sends to an assignor; None if it is not a consumer's."""
    read = _read("ConsumerProtocolSubscription", data)
    if read is None:
        return None
    version, row = read
    return Subscription(frozenset(row["Topics"]), frozenset(_names(row.get("OwnedPartitions", ()))), version)


def assignment(data: bytes) -> tuple[frozenset[str], bytes] | None:
    """The partitions that a leader has assigned, and what an assignor adds; None if it is no assignment."""
    if not data:
        return frozenset(), b""
    read = _read("ConsumerProtocolAssignment", data)
    if read is None:
        return None
    _, row = read
    return frozenset(_names(row["AssignedPartitions"])), row["UserData"] or b""


def assignment_bytes(topics: Iterable[tuple[str, list[int]]], version: int) -> bytes:
    """An assignment in a version: topics, with their partitions."""
    rows = [{"Topic": topic, "Partitions": numbers} for topic, numbers in topics]
    row = {"AssignedPartitions": rows, "UserData": None}
    return version.to_bytes(2, "big") + served_codec().write("ConsumerProtocolAssignment", version, row)


def _read(message: str, data: bytes) -> tuple[int, Message] | None:
    version = min(int.from_bytes(data[:2], "big", signed=True), NEWEST)
    if len(data) < 2 or version < 0:
        return None
    try:
        return version, served_codec().read(message, version, Buffer(data[2:]))
    except MalformedMessage:
        return None


def _names(rows: Iterable[Message]) -> Iterable[str]:
    return (f"{row['Topic']}-{number}" for row in rows for number in row["Partitions"])
