"""The messages that the server reads and writes, as the schemas of Apache Kafka 4.3.0 define them.

``schemas.json`` holds them without their comments; `make schemas` writes it anew, and a test compares it with the jar.
"""

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from kafka_eos.protocol import Codec, Message

FILE = "schemas.json"

SERVED = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "ApiVersions",
    "CreateTopics",
    "DeleteTopics",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "DescribeConfigs",
    "AlterConfigs",
    "IncrementalAlterConfigs",
    "CreatePartitions",
    "DeleteGroups",
    "OffsetDelete",
    "DescribeCluster",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
    "DescribeTopicPartitions",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
)
"""The APIs, by the names of their requests."""

HEADERS = ("RequestHeader", "ResponseHeader")
OFFSET_RECORDS = ("OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue")
"""The records of ``__consumer_offsets``; their schemas are in the jar of the group coordinator."""


def messages() -> tuple[str, ...]:
    """The names of all messages in the file."""
    return (*HEADERS, *(f"{api}{kind}" for api in SERVED for kind in ("Request", "Response")), *OFFSET_RECORDS)


def compact(schemas: Iterable[Message]) -> str:
    """The contents of the file: a message a line, by name, without what only a reader needs."""
    lines = [json.dumps(_without_about(schema), separators=(",", ":")) for schema in schemas]
    return "[\n" + ",\n".join(sorted(lines, key=lambda line: str(json.loads(line)["name"]))) + "\n]\n"


def _without_about(schema: Message) -> Message:
    nested = {
        key: [_without_about(item) if isinstance(item, dict) else item for item in value]
        for key, value in schema.items()
        if isinstance(value, list)
    }
    return {key: nested.get(key, value) for key, value in schema.items() if key != "about"}


@cache
def served_codec() -> Codec:
    """The codec of the APIs that are served; a message is compiled when it is met first."""
    text = (files(__package__) / FILE).read_text(encoding="utf-8")
    return Codec({schema["name"]: schema for schema in json.loads(text)})
