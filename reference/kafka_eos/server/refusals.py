"""Answers that are only an error: everything that a request named gets the same error code.

They are made from the schemas of request and response, for any API: an array of the response has an element for each
element of the request's array that names the same kind of thing; or, where elements are answered in their order, for
each element of its only array.

Kafka: AbstractRequest.getErrorResponse
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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
    ("MemberId",),
    ("User", "Name"),
)
_TEXTS, _NUMBERS = ("Key", "GroupId", "TransactionalId", "Name"), _KINDS[2]


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
    return _answer(codec.fields(f"{api}Response", version), row, (error, why), nested=False)


def _answer(fields: Iterable[Message], asked: Message, told: tuple[ErrorCode, str | None], nested: bool) -> Message:
    given = list(fields)
    is_single = not nested and any(field["name"] == "ErrorCode" for field in given)
    answer: Message = {}
    for field in given:
        name = field["name"]
        if name.endswith("ErrorCode"):
            answer[name] = told[0]
        elif name == "ErrorMessage":
            answer[name] = told[1]
        elif field["type"].startswith("[]") and field.get("fields"):
            answer[name] = [
                _answer(field["fields"], element, told, nested=True)
                for element in _elements(asked, {each["name"] for each in field["fields"]}, is_single)
            ]
        elif nested and (named := _named(name, asked)) is not None:
            answer[name] = named
    return answer


def _named(column: str, asked: Mapping[str, Any]) -> Any:
    """The request's value of a column, or of one that means the same."""
    same = next((kind for kind in _KINDS if column in kind), (column,))
    return next((asked[name] for name in same if name in asked and not isinstance(asked[name], list)), None)


def _elements(asked: Message, columns: set[str], is_single: bool) -> Iterator[Message]:
    """The elements of a request that an array with these columns answers."""
    for value in asked.values():
        if not isinstance(value, list) or not value:
            continue
        if isinstance(value[0], dict):
            if any(columns & set(kind) and value[0].keys() & set(kind) for kind in _KINDS):
                yield from value
                return
        elif not is_single:
            places = _NUMBERS if isinstance(value[0], int) else _TEXTS
            column = next((name for name in places if name in columns), None)
            if column is not None:
                yield from ({column: item} for item in value)
                return
    arrays = [value for value in asked.values() if isinstance(value, list)]
    if not is_single and len(arrays) == 1 and all(isinstance(element, dict) for element in arrays[0]):
        yield from arrays[0]
