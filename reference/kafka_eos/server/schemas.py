"""The messages that the server reads and writes, as the schemas of Apache Kafka 4.3.0 define them; a few as 4.4.0.

Every API that a broker of Kafka has for clients is in one of three tables: served, refused as by a broker without
security, or not served.

``schemas.json`` holds them without their comments; `make schemas` writes it again, and a test compares it with the jar.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import Codec, Message

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
    "ListConfigResources",
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
"""The APIs that are answered, by the names of their requests."""
NEWEST = ("TxnOffsetCommit",)
"""Those that are answered in the versions of Kafka 4.4.0, which has a newer one than 4.3.0."""

_NO_AUTHORIZER = ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."
_NO_TOKENS = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "Delegation tokens need a listener with authentication."
_NO_SASL = ErrorCode.ILLEGAL_SASL_STATE, "The listener has no authentication."

REFUSED: Mapping[str, tuple[ErrorCode, str]] = {
    "SaslHandshake": _NO_SASL,
    "DescribeAcls": _NO_AUTHORIZER,
    "CreateAcls": _NO_AUTHORIZER,
    "DeleteAcls": _NO_AUTHORIZER,
    "SaslAuthenticate": _NO_SASL,
    "CreateDelegationToken": _NO_TOKENS,
    "RenewDelegationToken": _NO_TOKENS,
    "ExpireDelegationToken": _NO_TOKENS,
    "DescribeDelegationToken": _NO_TOKENS,
}
"""The APIs that Kafka answers only with an error where nobody has to authenticate, as here."""

_REASONS = (
    (
        "the brokers share one storage, and a test moves leaders by a fault or a call",
        (
            "AlterReplicaLogDirs",
            "DescribeLogDirs",
            "ElectLeaders",
            "AlterPartitionReassignments",
            "ListPartitionReassignments",
        ),
    ),
    (
        "there are no users and no quotas",
        (
            "DescribeClientQuotas",
            "AlterClientQuotas",
            "DescribeUserScramCredentials",
            "AlterUserScramCredentials",
        ),
    ),
    (
        "there is no quorum of controllers; features are set when the server is started",
        ("DescribeQuorum", "UpdateFeatures", "UnregisterBroker", "AddRaftVoter", "RemoveRaftVoter"),
    ),
    ("clients' metrics are not collected", ("GetTelemetrySubscriptions", "PushTelemetry")),
    (
        "share groups write no transactions, and are not served",
        (
            "ShareGroupHeartbeat",
            "ShareGroupDescribe",
            "ShareFetch",
            "ShareAcknowledge",
            "InitializeShareGroupState",
            "ReadShareGroupState",
            "WriteShareGroupState",
            "DeleteShareGroupState",
            "ReadShareGroupStateSummary",
            "DescribeShareGroupOffsets",
            "AlterShareGroupOffsets",
            "DeleteShareGroupOffsets",
        ),
    ),
    (
        "streams groups (KIP-1071) are not there yet; Streams runs on consumer groups",
        ("StreamsGroupHeartbeat", "StreamsGroupDescribe"),
    ),
)
NOT_SERVED: Mapping[str, str] = {api: why for why, apis in _REASONS for api in apis}
"""The APIs that are not offered, each with the reason; a request of one is answered UNSUPPORTED_VERSION."""

HEADERS = ("RequestHeader", "ResponseHeader")
OFFSET_RECORDS = (
    "OffsetCommit",
    "GroupMetadata",
    "ConsumerGroupMetadata",
    "ConsumerGroupPartitionMetadata",
    "ConsumerGroupMemberMetadata",
    "ConsumerGroupTargetAssignmentMetadata",
    "ConsumerGroupTargetAssignmentMember",
    "ConsumerGroupCurrentMemberAssignment",
    "ConsumerGroupRegularExpression",
)
"""The records of ``__consumer_offsets``, keys and values; their schemas are in the jar of the group coordinator."""

CONSUMER_PROTOCOL = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")
"""The messages that members of classic groups send each other through the coordinator."""


def _known() -> tuple[str, ...]:
    """The APIs whose messages are read and written."""
    return (*SERVED, *REFUSED, *NOT_SERVED)


def of_newest() -> tuple[str, ...]:
    """The names of the messages that are those of Kafka 4.4.0."""
    return tuple(f"{api}{kind}" for api in NEWEST for kind in ("Request", "Response"))


def messages() -> tuple[str, ...]:
    """The names of all messages in the file."""
    return (
        *HEADERS,
        *(f"{api}{kind}" for api in _known() for kind in ("Request", "Response")),
        *(f"{record}{part}" for record in OFFSET_RECORDS for part in ("Key", "Value")),
        *CONSUMER_PROTOCOL,
    )


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
    """The codec of the APIs; a message is compiled when it is met first."""
    text = (files(__package__) / FILE).read_text(encoding="utf-8")
    return Codec({schema["name"]: schema for schema in json.loads(text)})
