"""Answers that are only an error, as Kafka gives them when it cannot handle a request.

They are made from the schemas of request and response, for any API: an array of the response has an element for each
element of the request's array that names the same kind of thing; or, where elements are answered in their order, for
each element of its only array. The error is told once, at the outermost place for it, or in each of the innermost
elements if it is one that a broker only tells of partitions or members, and the request names any.

Kafka: AbstractRequest.getErrorResponse; for the errors of partitions and members KafkaApis, LeaveGroupResponse
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafka_eos.errors import ErrorCode
from kafka_eos.server.schemas import SERVED
from kafka_eos.wire.protocol import Codec, Message

REFUSABLE = frozenset(SERVED) - {"ApiVersions", "Metadata"}
"""The APIs that can be refused; without brokers and versions a client cannot go on."""

# The columns that name the same kind of thing.
_KINDS = (
    ("Name", "Topic", "TopicName"),
    ("TopicId",),
    ("PartitionIndex", "Partition", "Index", "PartitionId"),
    ("TransactionalId",),
    ("ProducerId",),
    ("GroupId",),
    ("Key",),
    ("MemberId",),
    ("GroupInstanceId",),
    ("ResourceType",),
    ("ResourceName",),
    ("User", "Name"),
)
_TEXTS, _NUMBERS = ("Key", "GroupId", "TransactionalId", "Name"), _KINDS[2]
_CODES = ("ErrorCode", "PartitionErrorCode")
_UNKNOWN: Mapping[str, tuple[str, ...]] = {
    "Produce": ("BaseOffset",),
    "Fetch": ("HighWatermark",),
    "OffsetFetch": ("CommittedOffset",),
    "FindCoordinator": ("NodeId", "Port"),
    "DeleteRecords": ("LowWatermark",),
    "InitProducerId": ("ProducerEpoch",),
    "CreateDelegationToken": ("IssueTimestampMs", "ExpiryTimestampMs", "MaxTimestampMs"),
}
"""The numbers of each API that are -1 in a refusal, and not the default of the schema."""
_OF_TOPICS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
_OF_PARTS: Mapping[str, frozenset[ErrorCode]] = {
    "Fetch": _OF_TOPICS
    | {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    },
    "OffsetFetch": _OF_TOPICS | {ErrorCode.UNSTABLE_OFFSET_COMMIT},
    "OffsetDelete": _OF_TOPICS | {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC},
    "LeaveGroup": frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}),
}
"""The errors that a broker tells of each partition or member, where the response has a code above them, too."""
_EVERYWHERE: Mapping[str, int] = {"Fetch": 13, "ElectLeaders": 3, "AlterPartitionReassignments": 2}
"""The APIs that tell an error at all places, each with the first version that does not."""


class _Told(NamedTuple):
    """What a refusal tells: the error, its message, whether of parts, whether at all places, which numbers are -1."""

    error: ErrorCode
    why: str | None
    of_parts: bool
    everywhere: bool
    unknown: tuple[str, ...]


def refusal(codec: Codec, api: str, version: int, row: Message, error: ErrorCode, why: str | None = None) -> Message:
    """The response to a request that is refused.

    Args:
        codec: the codec of the APIs.
        api: the name of the API.
        version: the messages' version.
        row: the request's fields.
        error: the code.
        why: the message that goes with it, where the response has a field for that.
    """
    of_parts = error in _OF_PARTS.get(api, ())
    everywhere = not of_parts and version < _EVERYWHERE.get(api, 0)
    told = _Told(error, why, of_parts, everywhere, _UNKNOWN.get(api, ()))
    return _answer(codec.fields(f"{api}Response", version), row, told, nested=False)


def _answer(fields: Iterable[Message], asked: Message, told: _Told, nested: bool) -> Message:
    given = list(fields)
    has_code = any(field["name"] in _CODES for field in given)
    parts = {
        field["name"]: [
            _answer(field["fields"], element, told, nested=True)
            for element in _elements(asked, {each["name"] for each in field["fields"]})
        ]
        for field in given
        if _has_codes(field)
    }
    is_here = not (told.of_parts and any(parts.values()))  # without a part it is told here, rather than nowhere
    answer: Message = {}
    for field in given:
        name = field["name"]
        if name in _CODES:
            answer[name] = told.error if is_here else ErrorCode.NONE
        elif name == "ErrorMessage":
            answer[name] = told.why if is_here else None
        elif name in told.unknown:
            answer[name] = -1
        elif name in parts:
            if not has_code or not is_here or told.everywhere:
                answer[name] = parts[name]
        elif nested and (column := _naming(name, asked)):
            answer[name] = asked[column]
    return answer


def _has_codes(field: Message) -> bool:
    """Whether a field is an array with errors in its elements, or in theirs."""
    return field["type"].startswith("[]") and any(
        each["name"] in _CODES or _has_codes(each) for each in field.get("fields", ())
    )


def _naming(column: str, asked: Mapping[str, Any]) -> str:
    """The request's column that is this one, or means the same, if it names a thing; "" if there is none."""
    same = next((kind for kind in _KINDS if column in kind), ())
    return next((name for name in same if name in asked and not isinstance(asked[name], list)), "")


def _elements(asked: Message, columns: set[str]) -> Iterator[Message]:
    """The elements of a request that an array with these columns answers."""
    arrays = [value for value in asked.values() if isinstance(value, list) and value]
    for array in arrays:
        if isinstance(array[0], dict):
            if any(columns & set(kind) and array[0].keys() & set(kind) for kind in _KINDS):
                yield from array
                return
        else:
            places = _NUMBERS if isinstance(array[0], int) else _TEXTS
            column = next((name for name in places if name in columns), None)
            if column is not None:
                yield from ({column: item} for item in array)
                return
    rows = [row for array in arrays for row in array if isinstance(row, dict)]
    inner = [element for row in rows for element in _elements(row, columns)]
    if inner or len(arrays) == 1:
        yield from inner or rows
