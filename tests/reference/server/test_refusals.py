"""Answers that are only an error: what they name, where the error is, and that Kafka's classes give the same ones."""

import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.server.handlers.request import served_versions
from kafka_eos.server.refusals import REFUSABLE, refusal
from kafka_eos.server.schemas import NOT_SERVED, REFUSED, SERVED, served_codec
from kafka_eos.wire.protocol import Buffer, Message
from kafka_eos_checks.brokers.brokers import java_command

from .conftest import errors_in, sample

CODEC = served_codec()
APIS = sorted({*SERVED, *REFUSED, *NOT_SERVED} - {"ApiVersions", "Metadata"})


def written(api: str, version: int, row: Message) -> Message:
    """A response as a client reads it."""
    return CODEC.read(f"{api}Response", version, Buffer(CODEC.write(f"{api}Response", version, row)))


@pytest.mark.parametrize("api", sorted(REFUSABLE))
def test_every_api_can_be_refused_in_every_version(api: str) -> None:
    for version in served_versions(api):
        request = CODEC.write(f"{api}Request", version, sample(CODEC.fields(f"{api}Request", version)))
        row = CODEC.read(f"{api}Request", version, Buffer(request))
        answer = written(api, version, refusal(CODEC, api, version, row, ErrorCode.NOT_COORDINATOR))
        of_configs = [ErrorCode.NONE] if api == "CreateTopics" and version >= 5 else []
        assert set(errors_in(answer)) == {ErrorCode.NOT_COORDINATOR, *of_configs}, version


def test_a_refusal_names_what_the_request_has_named() -> None:
    asked = {"TopicData": [{"Name": "t", "PartitionData": [{"Index": 0}, {"Index": 2}]}]}
    answer = refusal(CODEC, "Produce", 9, asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    parts = [{"Index": number, "ErrorCode": 6, "BaseOffset": -1, "ErrorMessage": None} for number in (0, 2)]
    assert answer == {"Responses": [{"Name": "t", "PartitionResponses": parts}]}
    asked = {"Resources": [{"ResourceType": 2, "ResourceName": name} for name in "ab"]}
    why = "no Authorizer"
    answer = refusal(CODEC, "AlterConfigs", 2, asked, ErrorCode.SECURITY_DISABLED, why)
    error = {"ErrorCode": 54, "ErrorMessage": why}
    assert answer == {"Responses": [error | resource for resource in asked["Resources"]]}


def test_a_topic_that_is_named_by_its_id_has_no_name_in_a_refusal() -> None:
    asked = {"Topics": [{"Name": None, "TopicId": UUID(int=7)}]}
    answer = refusal(CODEC, "DeleteTopics", 6, asked, ErrorCode.NOT_COORDINATOR)
    assert answer["Responses"] == [{"Name": None, "TopicId": UUID(int=7), "ErrorCode": 16, "ErrorMessage": None}]


# For each API the columns of a refusal but for its message, from the first version on that has them.
NAMED = {
    "Produce 3": "Responses(Name PartitionResponses(Index ErrorCode BaseOffset=-1))",
    "Produce 13": "Responses(TopicId PartitionResponses(Index ErrorCode BaseOffset=-1))",
    "Fetch 4": "Responses(Topic Partitions(PartitionIndex ErrorCode HighWatermark=-1))",
    "Fetch 7": "ErrorCode Responses(Topic Partitions(PartitionIndex ErrorCode HighWatermark=-1))",
    "Fetch 13": "ErrorCode",
    "ListOffsets 1": "Topics(Name Partitions(PartitionIndex ErrorCode))",
    "OffsetCommit 2": "Topics(Name Partitions(PartitionIndex ErrorCode))",
    "OffsetCommit 10": "Topics(TopicId Partitions(PartitionIndex ErrorCode))",
    "OffsetFetch 1": "Topics(Name Partitions(PartitionIndex CommittedOffset=-1 ErrorCode))",
    "OffsetFetch 2": "ErrorCode",
    "OffsetFetch 8": "Groups(GroupId ErrorCode)",
    "FindCoordinator 0": "ErrorCode NodeId=-1 Port=-1",
    "FindCoordinator 4": "Coordinators(Key NodeId=-1 Port=-1 ErrorCode)",
    "DescribeGroups 0": "Groups(ErrorCode GroupId)",
    "CreateTopics 2": "Topics(Name ErrorCode)",
    "DeleteTopics 1": "Responses(Name ErrorCode)",
    "DeleteTopics 6": "Responses(Name TopicId ErrorCode)",
    "DeleteRecords 0": "Topics(Name Partitions(PartitionIndex LowWatermark=-1 ErrorCode))",
    "InitProducerId 0": "ErrorCode ProducerEpoch=-1",
    "OffsetForLeaderEpoch 2": "Topics(Topic Partitions(ErrorCode Partition))",
    "AddPartitionsToTxn 0": "ResultsByTopicV3AndBelow(Name ResultsByPartition(PartitionIndex PartitionErrorCode))",
    "AddPartitionsToTxn 4": "ErrorCode",
    "WriteTxnMarkers 1": "Markers(ProducerId Topics(Name Partitions(PartitionIndex ErrorCode)))",
    "TxnOffsetCommit 0": "Topics(Name Partitions(PartitionIndex ErrorCode))",
    "TxnOffsetCommit 6": "Topics(TopicId Partitions(PartitionIndex ErrorCode))",
    "DescribeConfigs 1": "Results(ErrorCode ResourceType ResourceName)",
    "AlterConfigs 0": "Responses(ErrorCode ResourceType ResourceName)",
    "IncrementalAlterConfigs 0": "Responses(ErrorCode ResourceType ResourceName)",
    "CreatePartitions 0": "Results(Name ErrorCode)",
    "DeleteGroups 0": "Results(GroupId ErrorCode)",
    "DescribeProducers 0": "Topics(Name Partitions(PartitionIndex ErrorCode))",
    "DescribeTransactions 0": "TransactionStates(ErrorCode TransactionalId)",
    "DescribeTopicPartitions 0": "Topics(ErrorCode Name)",
    "ConsumerGroupDescribe 0": "Groups(ErrorCode GroupId)",
    "CreateAcls 1": "Results(ErrorCode)",
    "DeleteAcls 1": "FilterResults(ErrorCode)",
    "CreateDelegationToken 1": "ErrorCode IssueTimestampMs=-1 ExpiryTimestampMs=-1 MaxTimestampMs=-1",
    "AlterReplicaLogDirs 1": "Results(TopicName Partitions(PartitionIndex ErrorCode))",
    "DescribeLogDirs 1": "Results(ErrorCode)",
    "DescribeLogDirs 3": "ErrorCode",
    "ElectLeaders 0": "ReplicaElectionResults(Topic PartitionResult(PartitionId ErrorCode))",
    "ElectLeaders 1": "ErrorCode ReplicaElectionResults(Topic PartitionResult(PartitionId ErrorCode))",
    "AlterPartitionReassignments 0": "ErrorCode Responses(Name Partitions(PartitionIndex ErrorCode))",
    "AlterClientQuotas 0": "Entries(ErrorCode)",
    "AlterUserScramCredentials 0": "Results(User ErrorCode)",
    "ShareGroupDescribe 1": "Groups(ErrorCode GroupId)",
    "InitializeShareGroupState 0": "Results(TopicId Partitions(Partition ErrorCode))",
    "ReadShareGroupState 0": "Results(TopicId Partitions(Partition ErrorCode))",
    "WriteShareGroupState 0": "Results(TopicId Partitions(Partition ErrorCode))",
    "DeleteShareGroupState 0": "Results(TopicId Partitions(Partition ErrorCode))",
    "ReadShareGroupStateSummary 0": "Results(TopicId Partitions(Partition ErrorCode))",
    "DescribeShareGroupOffsets 0": "Groups(GroupId ErrorCode)",
    "StreamsGroupDescribe 0": "Groups(ErrorCode GroupId)",
}


def shape(answer: Message) -> str:
    """The columns of an answer, and which of them are -1."""

    def told(name: str, value: Any) -> str:
        if isinstance(value, list):
            return f"{name}({' '.join(map(shape, value))})"
        return f"{name}=-1" if value == -1 else name

    return " ".join(told(*column) for column in answer.items() if column[0] != "ErrorMessage")


@pytest.mark.parametrize("api", APIS)
def test_a_refusal_names_as_much_as_the_request_of_its_version(api: str) -> None:
    named = "ErrorCode"
    for version in served_versions(api):
        named = NAMED.get(f"{api} {version}", named)
        answer = refusal(CODEC, api, version, sample(CODEC.fields(f"{api}Request", version)), ErrorCode.NOT_COORDINATOR)
        assert shape(answer) == named, version


@pytest.mark.parametrize(
    ("api", "version", "error", "errors"),
    [
        ("Fetch", 17, ErrorCode.NOT_LEADER_OR_FOLLOWER, [0, 6]),
        ("Fetch", 7, ErrorCode.UNKNOWN_TOPIC_ID, [0, 100]),
        ("Fetch", 6, ErrorCode.OFFSET_OUT_OF_RANGE, [1]),
        ("OffsetFetch", 9, ErrorCode.UNSTABLE_OFFSET_COMMIT, [0, 88]),
        ("OffsetFetch", 7, ErrorCode.UNSTABLE_OFFSET_COMMIT, [0, 88]),
        ("OffsetFetch", 9, ErrorCode.NOT_COORDINATOR, [16]),
        ("OffsetDelete", 0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, [0, 86]),
        ("LeaveGroup", 5, ErrorCode.UNKNOWN_MEMBER_ID, [0, 25]),
        ("LeaveGroup", 2, ErrorCode.UNKNOWN_MEMBER_ID, [25]),
        ("OffsetFetch", 9, ErrorCode.UNKNOWN_MEMBER_ID, [25]),
    ],
)
def test_an_error_of_a_partition_or_a_member_is_told_there(
    api: str, version: int, error: ErrorCode, errors: list[int]
) -> None:
    row = sample(CODEC.fields(f"{api}Request", version))
    answer = written(api, version, refusal(CODEC, api, version, row, error, "why"))
    assert errors_in(answer) == errors


@pytest.mark.parametrize("topics", [None, []])
def test_an_error_of_partitions_is_told_above_them_if_the_request_names_none(topics: list[Message] | None) -> None:
    row = {"Groups": [{"GroupId": "g", "Topics": topics}]}
    answer = refusal(CODEC, "OffsetFetch", 9, row, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert answer == {"Groups": [{"GroupId": "g", "ErrorCode": 88}]}


# --- Kafka's own ------------------------------------------------------------------------------------------------------

# Where a refusal differs from Kafka's.
DIFFERENT = {
    "Fetch": {"SessionId"},  # Kafka repeats it; a client leaves its session after any error
    "JoinGroup": {"ProtocolName"},  # Kafka: null where that is allowed, and not an empty one
    # They are not served, or there is no authentication.
    "CreateDelegationToken": {
        *("PrincipalType", "PrincipalName", "TokenRequesterPrincipalType", "TokenRequesterPrincipalName"),
    },
    "DescribeLogDirs": {"Results"},
    "ListPartitionReassignments": {"Topics"},
    "DescribeClientQuotas": {"Entries"},
    "AlterClientQuotas": {"Entries"},
    "DescribeUserScramCredentials": {"Results"},
    "AlterUserScramCredentials": {"Results"},
}


def filled(fields: list[Message], numbers: Iterator[int]) -> Message:
    """A message with two elements in each array, in which no two values of a type are equal."""

    def value(field: Message) -> Any:
        kind = field["type"]
        if kind.startswith("[]"):
            return [value({**field, "type": kind.removeprefix("[]")}) for _ in range(2)]
        if field["fields"]:
            return filled(field["fields"], numbers)
        number = next(numbers)
        special = {"string": f"s{number}", "uuid": UUID(int=number), "bytes": b"", "records": b"", "bool": True}
        return special.get(kind, number)

    return {field["name"]: value(field) for field in fields}


def without_order(value: Any) -> Any:
    """A message without its texts for people and without the order of its arrays, which is that of a Java hash map."""
    if isinstance(value, list):
        return sorted(map(without_order, value), key=repr)
    if isinstance(value, dict):
        return {name: without_order(own) for name, own in value.items() if name != "ErrorMessage"}
    return value


@pytest.mark.java
def test_kafkas_own_classes_refuse_requests_alike() -> None:
    asked = [
        (api, version, CODEC.write(f"{api}Request", version, filled(CODEC.fields(f"{api}Request", version), count(3))))
        for api in APIS
        for version in served_versions(api)
        if (api, version) != ("TxnOffsetCommit", 6)  # of Kafka 4.4
    ]
    keys = {api: key for key, api in CODEC.names.items()}
    program = Path(__file__).parents[2] / "java" / "ErrorResponses.java"
    lines = "".join(f"{keys[api]} {version} -1 {data.hex()}\n" for api, version, data in asked)
    command = java_command(str(program))
    done = subprocess.run(command, input=lines, capture_output=True, check=True, text=True, timeout=120)
    answers = done.stdout.splitlines()
    assert len(answers) == len(asked)
    different: dict[str, set[str]] = {}
    for (api, version, data), answer in zip(asked, answers, strict=True):
        theirs = without_order(CODEC.read(f"{api}Response", version, Buffer(bytes.fromhex(answer))))
        row = CODEC.read(f"{api}Request", version, Buffer(data))
        ours = without_order(written(api, version, refusal(CODEC, api, version, row, ErrorCode.UNKNOWN_SERVER_ERROR)))
        found = {name for name in theirs if theirs[name] != ours[name]}
        if found:
            different.setdefault(api, set()).update(found)
    assert different == DIFFERENT
