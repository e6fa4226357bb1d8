"""The columns that requests and answers have in a history, by API."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Codec, MalformedMessage
from kafka_eos_checks.brokers.wire_events import Columns, Interpreter, Request

Row = dict[str, Any]


@pytest.fixture(scope="module")
def codec() -> Codec:
    """The messages that the server knows."""
    return served_codec()


WHO = {"TransactionalId": "t", "ProducerId": 7, "ProducerEpoch": 2}
COLUMNS = {"transactional_id": "t", "producer_id": 7, "producer_epoch": 2}
OFFSETS = {"Topics": [{"Name": "in", "Partitions": [{"PartitionIndex": 3, "CommittedOffset": 5}]}]}
ANSWERED = {"Topics": [{"Name": "in", "Partitions": [{"PartitionIndex": 3, "ErrorCode": 48}]}]}
OFFSET = {"topic": "in", "partition": 3, "detail": {"committed_offset": 5}}
OF_V3 = {f"V3AndBelow{name}": value for name, value in WHO.items()}


def exchanged(codec: Codec, api: str, version: int, asked: Row, told: Row, correlation: int = 4) -> list[Columns]:
    """The columns of the answers to a request."""
    interpreter = Interpreter(codec)
    header, body = codec.read_request_header(codec.write_request(api, version, 4, "client", asked))
    subjects, answered = interpreter.subjects(api, version, body)
    assert answered
    request = Request(
        number=0, connection=0, broker="b", client="c", api=api, version=version,
        correlation=header["CorrelationId"], frame=b"", subjects=subjects,
    )  # fmt: skip
    return interpreter.answer(request, codec.write_response(api, version, correlation, told))


INIT = WHO | {"TransactionTimeoutMs": 1}
GIVEN = {"ProducerId": 9, "ProducerEpoch": 0}
TOPICS = {"V3AndBelowTopics": [{"Name": "in", "Partitions": [3, 4]}]}
RESULTS = [{"PartitionIndex": 4, "PartitionErrorCode": 0}, {"PartitionIndex": 3, "PartitionErrorCode": 51}]
JOIN = {"GroupId": "g", "SessionTimeoutMs": 1, "MemberId": "", "ProtocolType": "consumer", "Protocols": []}
JOINED = {"GenerationId": 6, "ProtocolName": "", "Leader": "", "MemberId": "", "Members": []}


@pytest.mark.parametrize(
    ("api", "version", "asked", "told", "columns"),
    [
        (
            "InitProducerId",
            2,
            {"TransactionalId": "t", "TransactionTimeoutMs": 1},
            {"ErrorCode": 51, "ProducerId": -1, "ProducerEpoch": -1},
            [{"transactional_id": "t", "producer_id": -1, "producer_epoch": -1, "error": 51}],
        ),
        (
            "InitProducerId",
            4,
            INIT,
            GIVEN | {"ErrorCode": 0},
            [COLUMNS | {"producer_id": 9, "producer_epoch": 0, "error": 0}],
        ),
        (
            "InitProducerId",
            4,
            INIT,
            {"ErrorCode": 51, "ProducerId": -1, "ProducerEpoch": -1},
            [COLUMNS | {"error": 51}],
        ),
        (
            "AddPartitionsToTxn",
            3,
            OF_V3 | TOPICS,
            {"ResultsByTopicV3AndBelow": [{"Name": "in", "ResultsByPartition": RESULTS}]},
            [COLUMNS | {"topic": "in", "partition": n, "error": error} for n, error in ((3, 51), (4, 0))],
        ),
        ("AddOffsetsToTxn", 3, WHO | {"GroupId": "g"}, {"ErrorCode": 47}, [COLUMNS | {"group": "g", "error": 47}]),
        (
            "TxnOffsetCommit",
            3,
            WHO | OFFSETS | {"GroupId": "g", "GenerationIdOrMemberEpoch": 6},
            ANSWERED,
            [COLUMNS | OFFSET | {"group": "g", "generation": 6, "error": 48}],
        ),
        (
            "OffsetCommit",
            8,
            OFFSETS | {"GroupId": "g", "GenerationIdOrMemberEpoch": 6, "MemberId": "m"},
            ANSWERED,
            [OFFSET | {"group": "g", "generation": 6, "error": 48, "detail": {"committed_offset": 5, "member": "m"}}],
        ),
        (
            "OffsetCommit",
            8,
            OFFSETS | {"GroupId": "g", "GenerationIdOrMemberEpoch": 6, "GroupInstanceId": "i"},
            ANSWERED,
            [OFFSET | {"group": "g", "generation": 6, "error": 48, "detail": {"committed_offset": 5, "instance": "i"}}],
        ),
        ("JoinGroup", 5, JOIN, JOINED | {"ErrorCode": 0}, [{"group": "g", "error": 0, "generation": 6}]),
        ("JoinGroup", 5, JOIN, JOINED | {"ErrorCode": 27}, [{"group": "g", "error": 27}]),
        (
            "EndTxn",
            5,
            WHO | {"Committed": True},
            GIVEN | {"ErrorCode": 0},
            [COLUMNS | {"error": 0, "detail": {"committed": True, "next_producer_id": 9, "next_producer_epoch": 0}}],
        ),
        (
            "EndTxn",
            5,
            WHO | {"Committed": True},
            {"ErrorCode": 0, "ProducerId": 0, "ProducerEpoch": 3},
            [COLUMNS | {"error": 0, "detail": {"committed": True, "next_producer_id": 0, "next_producer_epoch": 3}}],
        ),
        (
            "EndTxn",
            5,
            WHO | {"Committed": True},
            {"ErrorCode": 47, "ProducerId": -1, "ProducerEpoch": -1},
            [COLUMNS | {"error": 47, "detail": {"committed": True}}],
        ),
        (
            "EndTxn",
            3,
            WHO | {"Committed": False},
            {"ErrorCode": 0},
            [COLUMNS | {"error": 0, "detail": {"committed": False}}],
        ),
    ],
)
def test_an_answer_has_the_columns_of_its_request_and_what_it_brings(
    api: str, version: int, asked: Row, told: Row, columns: list[Columns], codec: Codec
) -> None:
    assert exchanged(codec, api, version, asked, told) == columns


def test_an_answer_to_another_request_or_without_a_partition_is_none(codec: Codec) -> None:
    with pytest.raises(MalformedMessage, match="answer to 5, expected the one to 4"):
        exchanged(codec, "AddOffsetsToTxn", 3, WHO | {"GroupId": "g"}, {"ErrorCode": 0}, correlation=5)
    missing = {"ResultsByTopicV3AndBelow": [{"Name": "in", "ResultsByPartition": RESULTS[:1]}]}
    with pytest.raises(MalformedMessage, match="no answer for in-3"):
        exchanged(codec, "AddPartitionsToTxn", 3, OF_V3 | TOPICS, missing)


def test_offsets_of_a_transaction_are_read_by_the_name_that_4_4_gives_a_generation_and_by_topic_ids() -> None:
    row = WHO | {
        "GroupId": "g",
        "MemberId": "m",
        "GenerationIdOrMemberEpoch": 6,
        "Topics": [{"Name": None, "TopicId": UUID(int=9), "Partitions": OFFSETS["Topics"][0]["Partitions"]}],
    }
    interpreter = Interpreter(SimpleNamespace(read=lambda *_: row))  # type: ignore[arg-type]
    interpreter.topics[UUID(int=9)] = "in"
    [columns], answered = interpreter.subjects("TxnOffsetCommit", 6, b"")
    assert answered
    assert columns == COLUMNS | {
        "group": "g",
        "generation": 6,
        "topic": "in",
        "partition": 3,
        "detail": {"committed_offset": 5, "member": "m"},
    }
