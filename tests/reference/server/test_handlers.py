"""Topics, Fetch, offsets, and every version of every API."""

import json
from importlib.resources import files
from pathlib import Path
from uuid import UUID

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import Record, build_batch, decode_batch
from kafka_eos.server.cluster import Limits, Settings
from kafka_eos.server.handlers import HANDLERS, handle
from kafka_eos.server.handlers.request import Request as HandledRequest
from kafka_eos.server.handlers.request import served_versions
from kafka_eos.server.schemas import FILE, NOT_SERVED, REFUSED, SERVED, compact, messages, of_newest, served_codec
from kafka_eos.server.storage import Directory
from kafka_eos.wire.protocol import Buffer, MalformedMessage, Message

from .conftest import Make, Wire, errors_in, sample

E = ErrorCode
KEYS: tuple[tuple[range | tuple[int, ...], ...], ...] = (  # served, refused and not served.    Kafka: ApiKeys
    (range(4), range(8, 17), range(18, 29), (32, 33, 37, 42, 44, 47, 60, 61, 65, 66, 68, 69, 74, 75)),
    ((17, 29, 30, 31, 36, 38, 39, 40, 41),),
    ((34, 35, 43, 45, 46, 48, 49, 50, 51, 55, 57, 64, 71, 72), range(76, 82), range(83, 93)),
)
PAIRS = [(api, version) for api in SERVED for version in served_versions(api)]


@pytest.mark.parametrize(("api", "version"), PAIRS)
def test_every_version_of_every_api_is_answered(wire: Wire, api: str, version: int) -> None:
    wire.send(api, version)
    wire.send(api, version, 2)  # a broker that leads no partition
    wire.wait(1)


def test_every_api_has_a_handler_and_versions_that_clients_negotiate() -> None:
    assert set(HANDLERS) == set(SERVED)
    keys = [sorted(served_codec().keys[api] for api in apis) for apis in (SERVED, REFUSED, NOT_SERVED)]
    assert keys == [[key for part in parts for key in part] for parts in KEYS]
    # Java 4.3 and librdkafka 2.16
    for pair in (
        "Produce 13",
        "Produce 10",
        "Fetch 18",
        "Metadata 13",
        "InitProducerId 5",
        "EndTxn 5",
        "OffsetFetch 9",
    ):
        api, version = pair.split()
        assert int(version) in served_versions(api)
    assert 6 not in served_versions("InitProducerId")
    assert sorted(messages()) == sorted(served_codec().messages())
    text = files("kafka_eos.server").joinpath(FILE).read_text(encoding="utf-8")
    assert compact(reversed(json.loads(text))) == text
    told = {"name": "x", "about": "y", "fields": [{"name": "z", "about": "of a field"}]}
    assert compact([told]) == '[\n{"name":"x","fields":[{"name":"z"}]}\n]\n'
    assert of_newest() == ("TxnOffsetCommitRequest", "TxnOffsetCommitResponse")


@pytest.mark.parametrize("api", [*REFUSED, *NOT_SERVED])
def test_an_api_without_a_handler_is_refused_with_an_error(wire: Wire, api: str) -> None:
    is_offered = served_codec().keys[api] in {row["ApiKey"] for row in wire.ask("ApiVersions", 3)["ApiKeys"]}
    assert is_offered == (api in REFUSED)
    expected = REFUSED[api][0] if api in REFUSED else E.UNSUPPORTED_VERSION
    for version in served_versions(api):
        fields = served_codec().fields(f"{api}Request", version)
        answer = wire.ask(api, version, **sample(fields))
        assert set(errors_in(answer)) == {expected}, version


def test_an_unknown_topic_is_made_when_a_client_asks_for_it(make: Make) -> None:
    wire = make(settings=Settings(default_partitions=3))
    asked = [{"Name": "new"}]
    row = wire.ask("Metadata", 12, Topics=asked, AllowAutoTopicCreation=False)["Topics"][0]
    assert row["ErrorCode"] == E.UNKNOWN_TOPIC_OR_PARTITION
    row = wire.ask("Metadata", 12, Topics=asked)["Topics"][0]
    assert (row["ErrorCode"], len(row["Partitions"])) == (E.NONE, 3)
    [old] = wire.ask("Metadata", 3, Topics=[{"Name": "newer"}])["Topics"]
    assert old["ErrorCode"] == E.NONE, "before version 4 a client cannot ask that none is made"
    by_id = wire.ask("Metadata", 12, Topics=[{"Name": None, "TopicId": row["TopicId"]}])["Topics"][0]
    assert by_id["Name"] == "new"
    nobody = wire.ask("Metadata", 12, Topics=[{"Name": None, "TopicId": UUID(int=7)}])["Topics"][0]
    assert (nobody["ErrorCode"], nobody["Name"], nobody["TopicId"]) == (E.UNKNOWN_TOPIC_ID, None, UUID(int=7))
    for version, topics, told in ((0, [], True), (1, [], False), (1, None, True)):
        rows = wire.ask("Metadata", version, Topics=topics)["Topics"]
        assert {row["Name"] for row in rows} == (wire.cluster.topics.keys() if told else set())


def test_clients_are_told_the_versions_that_are_served_and_that_produce_has_a_version_0(wire: Wire) -> None:
    """Kafka: ApiVersionsResponse (KAFKA-18659)."""
    answer = wire.ask("ApiVersions", 3)
    told = {row["ApiKey"]: (row["MinVersion"], row["MaxVersion"]) for row in answer.pop("ApiKeys")}
    assert answer == {
        "ErrorCode": E.NONE,
        "ThrottleTimeMs": 0,
        "SupportedFeatures": [
            {"Name": "group.version", "MinVersion": 0, "MaxVersion": 1},
            {"Name": "transaction.version", "MinVersion": 0, "MaxVersion": 2},
        ],
        "FinalizedFeaturesEpoch": 1,
        "FinalizedFeatures": [
            {"Name": "group.version", "MaxVersionLevel": 1, "MinVersionLevel": 1},
            {"Name": "transaction.version", "MaxVersionLevel": 2, "MinVersionLevel": 2},
        ],
        "ZkMigrationReady": False,
    }
    served = {served_codec().keys[api]: served_versions(api) for api in (*SERVED, *REFUSED)}
    assert told == {key: (each[0], each[-1]) for key, each in served.items()} | {0: (0, 13)}


def test_a_broker_that_is_gone_is_told_until_it_is_fenced_and_then_to_who_asks_for_fenced_ones(make: Make) -> None:
    """Kafka: KafkaApis.handleTopicMetadataRequest, handleDescribeCluster; a random broker is the controller there."""
    wire = make(3)
    wire.cluster.crash(1, wire.cluster.now + 10_000)

    def told(api: str, version: int, **row: object) -> tuple[int, list[int]]:
        answer = wire.ask(api, version, 2, **row)
        return answer["ControllerId"], [each.get("NodeId", each.get("BrokerId")) for each in answer["Brokers"]]

    for _ in range(2):
        wire.wait(4_499)
        assert told("Metadata", 12, Topics=[]) == told("DescribeCluster", 2) == (2, [1, 2, 3]), "nobody has noticed it"
    wire.wait(2)
    assert told("Metadata", 12, Topics=[]) == told("DescribeCluster", 1) == told("DescribeCluster", 2) == (2, [2, 3])
    fenced = wire.ask("DescribeCluster", 2, 2, IncludeFencedBrokers=True)["Brokers"]
    assert {each["BrokerId"]: each["IsFenced"] for each in fenced} == {1: True, 2: False, 3: False}
    wire.wait(1_000)
    assert told("Metadata", 12, Topics=[])[1] == [1, 2, 3]
    wire.cluster.crash(1, wire.cluster.now + 1_000)
    wire.wait(1_000)
    wire.wait(9_000)
    assert told("Metadata", 12, Topics=[])[1] == [1, 2, 3], "it was back before"
    wire.cluster.crash(1, wire.cluster.now + 1_000)
    wire.wait(5_000)
    wire.cluster.crash(1, wire.cluster.now + 60_000)
    for wait_ms, known in ((8_999, [1, 2, 3]), (1, [2, 3])):
        wire.wait(wait_ms)
        assert told("Metadata", 12, Topics=[])[1] == known, "of the second time that it is gone"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250, "ä"])
def test_a_topic_needs_a_legal_name(wire: Wire, name: str) -> None:
    [row] = wire.ask("CreateTopics", 7, Topics=[{"Name": name, "NumPartitions": 1, "ReplicationFactor": 1}])["Topics"]
    assert (row["ErrorCode"], row["NumPartitions"], row["ReplicationFactor"]) == (E.INVALID_TOPIC_EXCEPTION, -1, -1)
    assert wire.ask("Metadata", 12, Topics=[{"Name": name}])["Topics"][0]["ErrorCode"] == E.INVALID_TOPIC_EXCEPTION


def test_a_name_and_a_number_of_partitions_may_be_as_large_as_their_limit(make: Make, tmp_path: Path) -> None:
    """Kafka: Topic.MAX_NAME_LENGTH."""
    settings = Settings(limits=Limits(partitions=10))  # 8 are those of internal topics

    def create(name: str, count: int) -> int:
        row = wire.ask("CreateTopics", 7, Topics=[{"Name": name, "NumPartitions": count, "ReplicationFactor": 1}])
        return int(row["Topics"][0]["ErrorCode"])

    wire = make(settings=settings, storage=Directory(tmp_path))
    assert [create("x" * 249, 2), create("n", 1)] == [E.NONE, E.POLICY_VIOLATION]
    wire = make(settings=settings, storage=Directory(tmp_path))
    assert create("n", 1) == E.POLICY_VIOLATION
    wire.cluster.delete_topic("x" * 249)
    assert [create("n", 3), create("n", 2)] == [E.POLICY_VIOLATION, E.NONE]


def test_a_topic_whose_name_has_a_dot_for_an_underscore_of_another_is_refused(wire: Wire) -> None:
    """Kafka: Topic.hasCollision; the names of metrics have underscores for both."""

    def create(name: str) -> tuple[int, str]:
        row = wire.ask("CreateTopics", 7, Topics=[{"Name": name, "NumPartitions": 1, "ReplicationFactor": 1}])
        return row["Topics"][0]["ErrorCode"], row["Topics"][0]["ErrorMessage"]

    assert create("a.b") == create("c_d") == (E.NONE, None)
    assert create("a_b") == (E.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b")


def test_a_topic_that_is_only_checked_is_not_made(wire: Wire) -> None:
    topic = {"Name": "n", "NumPartitions": 3, "ReplicationFactor": 1}
    [row] = wire.ask("CreateTopics", 7, Topics=[topic], validateOnly=True)["Topics"]
    assert (row["ErrorCode"], row["NumPartitions"], row["TopicId"]) == (E.NONE, 3, UUID(int=0))
    assert {each["Name"]: each["Value"] for each in row["Configs"]}["segment.bytes"] == "1073741824"
    assert "n" not in wire.cluster.topics


def test_a_topic_is_told_with_all_that_is_known_of_it(make: Make) -> None:
    """Kafka: MetadataResponse, DescribeTopicPartitionsResponse, DescribeClusterResponse."""
    wire = make(3)
    topic = wire.cluster.create_topic("n", 1, replicas=[(2, 3)])
    wire.cluster.move_leader("n", 0, 3)
    wire.cluster.crash(2, wire.cluster.now + 10_000)
    part = {"ErrorCode": E.NONE, "PartitionIndex": 0, "LeaderId": 3, "LeaderEpoch": 1}
    part |= {"ReplicaNodes": [2, 3], "IsrNodes": [3], "OfflineReplicas": [2]}
    told = {"ErrorCode": E.NONE, "Name": "n", "TopicId": topic.topic_id, "IsInternal": False}
    nobody = -(1 << 31)
    answer = wire.ask("Metadata", 12, 3, Topics=[{"Name": "n"}, {"Name": "__consumer_offsets"}, {"Name": "a b"}])
    first, internal, wrong = answer.pop("Topics")
    assert first == told | {"Partitions": [part], "TopicAuthorizedOperations": nobody}
    assert internal["IsInternal"]
    assert [wrong[name] for name in ("Name", "ErrorCode", "Partitions")] == ["a b", E.INVALID_TOPIC_EXCEPTION, []]
    brokers = [{"Host": "127.0.0.1", "Port": 9091 + node, "Rack": None} for node in (1, 2, 3)]
    cluster = {"ClusterId": wire.cluster.cluster_id, "ControllerId": 3, "ThrottleTimeMs": 0}
    assert answer == cluster | {"Brokers": [{"NodeId": node + 1} | row for node, row in enumerate(brokers)]}
    assert wire.ask("DescribeCluster", 2, 3) == cluster | {
        "ErrorCode": E.NONE,
        "ErrorMessage": None,
        "EndpointType": 1,
        "Brokers": [{"BrokerId": node + 1, "IsFenced": False} | row for node, row in enumerate(brokers)],
        "ClusterAuthorizedOperations": nobody,
    }
    answer = wire.ask("DescribeTopicPartitions", 0, Topics=[{"Name": "n"}])
    known = part | {"EligibleLeaderReplicas": [], "LastKnownElr": []}
    row = told | {"Partitions": [known], "TopicAuthorizedOperations": nobody}
    assert answer == {"ThrottleTimeMs": 0, "Topics": [row], "NextCursor": None}


def words(rows: list[Message]) -> list[tuple[int, str | None]]:
    return [(row["ErrorCode"], row["ErrorMessage"]) for row in rows]


MANUAL = "The manual partition assignment includes"
NOT_MADE: dict[str, tuple[Message, int, str]] = {  # Kafka: ReplicationControlManager, Topic.validate
    "": ({}, E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
    ".": ({}, E.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
    "x" * 250: (
        {},
        E.INVALID_TOPIC_EXCEPTION,
        f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
    ),
    "a b": (
        {},
        E.INVALID_TOPIC_EXCEPTION,
        "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    "t": ({}, E.TOPIC_ALREADY_EXISTS, "Topic 't' already exists."),
    "__cluster_metadata": ({}, E.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited."),
    "null": (
        {"Configs": [{"Name": name, "Value": None} for name in ("flush.ms", "segment.ms")]},
        E.INVALID_CONFIG,
        "Null value not supported for topic configs: flush.ms,segment.ms",
    ),
    "unknown": (
        {"Configs": [{"Name": "no.such", "Value": "1"}]},
        E.INVALID_CONFIG,
        "Unknown topic config name: no.such",
    ),
    **{
        f"factor{factor}": (
            {"ReplicationFactor": factor, "NumPartitions": 0},
            E.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
        for factor in (-2, 0)
    },
    **{
        f"count{count}": (
            {"NumPartitions": count, "ReplicationFactor": 3},
            E.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
        for count in (-2, 0)
    },
    "factor3": (
        {"ReplicationFactor": 3},
        E.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
        "only 2 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    **{
        f"both{field}": (
            {"Assignments": [(0, [1])], field: 1},
            E.INVALID_REQUEST,
            f"A manual partition assignment was specified, but {text} was not set to -1.",
        )
        for field, text in (("ReplicationFactor", "replication factor"), ("NumPartitions", "numPartitions"))
    },
    "twice": (
        {"Assignments": [(0, [1]), (0, [2])]},
        E.INVALID_REPLICA_ASSIGNMENT,
        "Found multiple manual partition assignments for partition 0",
    ),
    **{
        f"gap{first}": (
            {"Assignments": [(first, [1]), (first + 2, [1])]},
            E.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
        for first in (0, -1)
    },
    "nobody": (
        {"Assignments": [(0, [])]},
        E.INVALID_REPLICA_ASSIGNMENT,
        f"{MANUAL} an empty replica list.",
    ),
    "other": (
        {"Assignments": [(0, [1, 7, 8])]},
        E.INVALID_REPLICA_ASSIGNMENT,
        f"{MANUAL} broker 7, but no such broker is registered.",
    ),
    "doubled": (
        {"Assignments": [(0, [1, 2, 2])]},
        E.INVALID_REPLICA_ASSIGNMENT,
        f"{MANUAL} the broker 2 more than once.",
    ),
    "uneven": (
        {"Assignments": [(0, [1]), (1, [1, 2])]},
        E.INVALID_REPLICA_ASSIGNMENT,
        f"{MANUAL} a partition with 2 replica(s), but this is not consistent with previous partitions, which have "
        "1 replica(s).",
    ),
    "large": ({"NumPartitions": 12}, E.POLICY_VIOLATION, "20 partitions are the most for all topics together"),
}


def test_a_topic_that_cannot_be_made_is_refused_with_the_reason_and_the_others_are_made(make: Make) -> None:
    wire = make(2, settings=Settings(limits=Limits(partitions=20)))
    wire.topic()
    asked: list[Message] = [{"Name": "duplicate", "NumPartitions": 1, "ReplicationFactor": 1}] * 2
    for name, (given, _, _) in NOT_MADE.items():
        number = -1 if "Assignments" in given else 1
        row = {"Name": name, "NumPartitions": number, "ReplicationFactor": number} | given
        row["Assignments"] = [
            {"PartitionIndex": index, "BrokerIds": brokers} for index, brokers in given.get("Assignments", ())
        ]
        asked.append(row)
    asked.append({"Name": "good", "NumPartitions": 2, "ReplicationFactor": 2})
    [duplicate, *refused, made] = wire.ask("CreateTopics", 7, Topics=asked)["Topics"]
    assert {row["Name"]: (row["ErrorCode"], row["ErrorMessage"]) for row in refused} == {
        name: (error, why) for name, (_, error, why) in NOT_MADE.items()
    }
    assert words([duplicate, made]) == [(E.INVALID_REQUEST, "Duplicate topic name."), (E.NONE, None)]
    nothing = {(row["NumPartitions"], row["ReplicationFactor"], row["TopicId"]) for row in [duplicate, *refused]}
    assert nothing == {(-1, -1, UUID(int=0))}
    found = made["Name"], made["NumPartitions"], made["ReplicationFactor"], made["TopicId"]
    assert found == ("good", 2, 2, wire.cluster.topics["good"].topic_id)
    assert wire.cluster.partition_counts() == {"t": 1, "good": 2}


def test_a_topic_of_the_default_number_of_partitions_has_one_at_least(make: Make) -> None:
    """Kafka: num.partitions is at least 1."""
    for number, made in ((0, 1), (3, 3)):
        wire = make(settings=Settings(default_partitions=number))
        row = wire.ask("CreateTopics", 7, Topics=[{"Name": "n", "NumPartitions": -1, "ReplicationFactor": -1}])
        assert [each["NumPartitions"] for each in row["Topics"]] == [made]


def test_a_topic_that_cannot_grow_is_refused_with_the_reason(make: Make) -> None:
    """Kafka: ReplicationControlManager.createPartitions."""
    wire = make(2, settings=Settings(limits=Limits(partitions=20)))
    wire.cluster.create_topic("n", 2, replicas=2)
    invalid, assigned = E.INVALID_PARTITIONS, E.INVALID_REPLICA_ASSIGNMENT
    most = 2 + 20 - wire.cluster.partition_count
    cases: list[tuple[int, list[list[int]] | None, int, str | None]] = [
        (2, None, invalid, "Topic already has 2 partition(s)."),
        (1, None, invalid, "The topic n currently has 2 partition(s); 1 would not be an increase."),
        (
            4,
            [[1, 2]],
            assigned,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (3, [[1, 9]], assigned, f"{MANUAL} broker 9, but no such broker is registered."),
        (
            3,
            [[1]],
            assigned,
            f"{MANUAL} a partition with 1 replica(s), but this is not consistent with previous partitions, which have "
            "2 replica(s).",
        ),
        (most + 1, None, E.POLICY_VIOLATION, "20 partitions are the most for all topics together"),
        (most, None, E.NONE, None),
    ]
    for count, brokers, error, why in cases:
        rows = None if brokers is None else [{"BrokerIds": each} for each in brokers]
        asked = [{"Name": "n", "Count": count, "Assignments": rows}]
        answer = wire.ask("CreatePartitions", 3, Topics=asked, ValidateOnly=True)
        assert answer["Results"] == [{"Name": "n", "ErrorCode": error, "ErrorMessage": why}]
    grown = {"Count": 3, "Assignments": None}
    rows = wire.ask("CreatePartitions", 3, Topics=[{"Name": name} | grown for name in ("n", "n", "no")])["Results"]
    assert [row["Name"] for row in rows] == ["n", "no"]
    assert words(rows) == [(E.INVALID_REQUEST, "Duplicate topic name."), (E.UNKNOWN_TOPIC_OR_PARTITION, None)]
    assert wire.cluster.partition_counts()["n"] == 2
    wire.ask("CreatePartitions", 3, Topics=[{"Name": "n", "Count": 4, "Assignments": None}])
    assert [leader.replicas for leader in wire.cluster.topics["n"].partitions] == [(1, 2), (2, 1)] * 2


def test_a_topic_is_deleted_by_name_or_id_once_and_otherwise_the_reason_is_told(wire: Wire) -> None:
    """Kafka: ControllerApis.deleteTopics."""
    ids = {name: wire.cluster.create_topic(name, 1).topic_id for name in ("byname", "byid", "both", "twice")}
    nobody, none = UUID(int=7), UUID(int=0)
    asked: list[tuple[str | None, UUID]] = [
        ("byname", none),
        (None, ids["byid"]),
        ("both", none),
        (None, ids["both"]),
        ("twice", none),
        ("twice", none),
        (None, nobody),
        ("no", none),
        (None, none),
        ("t", ids["byid"]),
        ("__consumer_offsets", none),
    ]
    rows = wire.ask("DeleteTopics", 6, Topics=[{"Name": name, "TopicId": each} for name, each in asked])["Responses"]
    found = {(row["Name"], row["TopicId"]): (row["ErrorCode"], row["ErrorMessage"]) for row in rows}
    invalid = E.INVALID_REQUEST
    assert found == {
        ("byname", ids["byname"]): (E.NONE, None),
        ("byid", ids["byid"]): (E.NONE, None),
        ("both", ids["both"]): (invalid, "The provided topic name maps to an ID that was already supplied."),
        ("twice", none): (invalid, "Duplicate topic name."),
        (None, nobody): (E.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
        ("no", none): (E.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."),
        (None, none): (invalid, "Neither topic name nor id were specified."),
        ("t", ids["byid"]): (invalid, "You may not specify both topic name and topic id."),
        ("__consumer_offsets", none): (E.INVALID_TOPIC_EXCEPTION, "__consumer_offsets is internal, and needed"),
    }
    assert wire.cluster.partition_counts().keys() == {"t", "both", "twice"}
    ids_twice = [{"Name": None, "TopicId": ids["both"]}] * 2
    assert words(wire.ask("DeleteTopics", 6, Topics=ids_twice)["Responses"]) == [(invalid, "Duplicate topic id.")]


def test_a_coordinator_is_told_with_its_address_or_with_the_reason_why_there_is_none(make: Make) -> None:
    """Kafka: KafkaApis.handleFindCoordinatorRequest."""
    wire = make(3)
    asked = [wire.ask("FindCoordinator", 4, KeyType=kind, CoordinatorKeys=["a", "b"]) for kind in (0, 1, 3)]
    leaders = {0: wire.cluster.offsets_partition, 1: wire.cluster.state_partition}
    for kind in (0, 1):
        assert asked[kind]["Coordinators"] == [
            {
                "Key": key,
                "NodeId": leaders[kind](key).node,
                "Host": "127.0.0.1",
                "Port": 9091 + leaders[kind](key).node,
                "ErrorCode": E.NONE,
                "ErrorMessage": None,
            }
            for key in ("a", "b")
        ]
    unknown = {"NodeId": -1, "Host": "", "Port": -1, "ErrorCode": E.INVALID_REQUEST}
    found = [{name: row[name] for name in ("Key", *unknown)} for row in asked[2]["Coordinators"]]
    assert found == [{"Key": key} | unknown for key in ("a", "b")]
    for version in (0, 1, 3):
        row = wire.ask("FindCoordinator", version, Key="a")
        assert [row[name] for name in ("NodeId", "Host", "Port")] == [
            asked[0]["Coordinators"][0][name] for name in ("NodeId", "Host", "Port")
        ]


def test_deleted_records_are_told_for_each_partition_that_was_named(make: Make) -> None:
    wire = make(2)
    wire.topic(partitions=2)
    wire.produce(count=2)
    parts = [(0, 2), (1, 0), (9, 0)]
    topics = [{"Name": "t", "Partitions": [{"PartitionIndex": number, "Offset": offset} for number, offset in parts]}]
    topics.append({"Name": "no", "Partitions": [{"PartitionIndex": 3, "Offset": 0}]})
    answer = wire.ask("DeleteRecords", 2, Topics=topics)["Topics"]
    found = [(row["Name"], *part.values()) for row in answer for part in row["Partitions"]]
    assert found == [
        ("t", 0, 2, E.NONE),
        ("t", 1, -1, E.NOT_LEADER_OR_FOLLOWER),
        ("t", 9, -1, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("no", 3, -1, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_fetch_that_names_no_leader_epoch_is_given_records_of_any(make: Make, version: int) -> None:
    wire = make(2)
    wire.topic()
    wire.produce()
    wire.cluster.move_leader("t", 0, 2)
    part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}
    row = wire.ask("Fetch", version, 2, MaxWaitMs=0, MinBytes=1, Topics=[{"Topic": "t", "Partitions": [part]}])
    found = row["Responses"][0]["Partitions"][0]
    assert found["ErrorCode"] == E.NONE
    assert found["Records"]


def test_the_start_of_a_partition_never_goes_back(wire: Wire) -> None:
    wire.produce(count=2)
    for offset in (2, 1):
        rows = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": offset}]}]
        assert wire.ask("DeleteRecords", 2, Topics=rows)["Topics"][0]["Partitions"][0]["LowWatermark"] == 2


@pytest.mark.parametrize(("offset", "error", "start"), [(-1, E.NONE, 2), (-2, E.OFFSET_OUT_OF_RANGE, -1)])
def test_all_records_are_deleted_up_to_the_high_watermark(wire: Wire, offset: int, error: int, start: int) -> None:
    """Kafka: DeleteRecordsRequest.HIGH_WATERMARK."""
    wire.produce(count=2)
    rows = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": offset}]}]
    [part] = wire.ask("DeleteRecords", 2, Topics=rows)["Topics"][0]["Partitions"]
    assert (part["ErrorCode"], part["LowWatermark"]) == (error, start)


def test_topics_are_made_grown_and_deleted(wire: Wire) -> None:
    def create(name: str, partitions: int = 2) -> int:
        row = wire.ask("CreateTopics", 7, Topics=[{"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1}])
        return int(row["Topics"][0]["ErrorCode"])

    assert (create("n"), create("n"), create("m", 0)) == (E.NONE, E.TOPIC_ALREADY_EXISTS, E.INVALID_PARTITIONS)
    wire.produce("n", partition=1)
    for count, error in ((3, E.NONE), (3, E.INVALID_PARTITIONS), (1, E.INVALID_PARTITIONS)):
        grown = wire.ask("CreatePartitions", 3, Topics=[{"Name": "n", "Count": count, "Assignments": None}])
        assert [row["ErrorCode"] for row in grown["Results"]] == [error]
    assert wire.produce("n", partition=2) == (E.NONE, 0)
    nothing, both = {"Name": None}, {"Name": "n", "TopicId": wire.cluster.topics["n"].topic_id}
    refused = wire.ask("DeleteTopics", 6, Topics=[nothing, both])
    assert [row["ErrorCode"] for row in refused["Responses"]] == [E.INVALID_REQUEST] * 2
    gone = wire.ask("DeleteTopics", 6, Topics=[{"Name": "n"}, {"Name": "__consumer_offsets"}])
    assert [row["ErrorCode"] for row in gone["Responses"]] == [E.NONE, E.INVALID_TOPIC_EXCEPTION]
    assert "n" not in wire.cluster.topics


def test_a_topic_that_is_given_more_than_once_stays(wire: Wire) -> None:
    """Kafka: ControllerApis.deleteTopics."""
    ids = {name: wire.cluster.topics[wire.topic(name)].topic_id for name in ("a", "b", "c", "d")}
    by_name = [{"Name": name} for name in ("a", "a", "c", "d", "d")]
    by_id = [{"Name": None, "TopicId": ids[name]} for name in ("b", "b", "c", "d")]
    rows = wire.ask("DeleteTopics", 6, Topics=[*by_name, *by_id])["Responses"]
    again = "The provided topic name maps to an ID that was already supplied."
    assert [(row["Name"], row["ErrorCode"], row["ErrorMessage"]) for row in rows] == [
        ("a", E.INVALID_REQUEST, "Duplicate topic name."),
        ("c", E.INVALID_REQUEST, again),
        ("d", E.INVALID_REQUEST, "Duplicate topic name."),
        (None, E.INVALID_REQUEST, "Duplicate topic id."),
        ("d", E.NONE, None),
    ]
    twice = {"Name": None, "TopicId": ids["c"]}
    rows = wire.ask("DeleteTopics", 6, Topics=[{"Name": "c"}, twice, twice])["Responses"]
    assert [row["ErrorMessage"] for row in rows] == [again, "Duplicate topic id."]
    assert wire.cluster.topics.keys() >= {"a", "b", "c"}
    new = {"Name": "e", "NumPartitions": 1, "ReplicationFactor": 1}
    [row] = wire.ask("CreateTopics", 7, Topics=[new, new])["Topics"]
    assert (row["ErrorCode"], row["ErrorMessage"]) == (E.INVALID_REQUEST, "Duplicate topic name.")
    assert wire.ask("DeleteTopics", 5, TopicNames=["a", "a"])["Responses"][0]["ErrorCode"] == E.INVALID_REQUEST


def test_a_topic_that_is_deleted_while_its_transaction_ends_needs_no_marker(wire: Wire) -> None:
    wire.topic("other")
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.add((who[0], who[1]), "other")
    wire.cluster.delete_topic("other")
    assert wire.end((who[0], who[1]))[0] == E.NONE
    [state] = wire.ask("DescribeTransactions", 0, TransactionalIds=["x"])["TransactionStates"]
    assert state["TransactionState"] == "CompleteCommit"


def test_a_partition_is_served_by_its_leader_alone(make: Make) -> None:
    wire = make(brokers=2)
    wire.topic(partitions=2)
    assert wire.produce(partition=1)[0] == E.NOT_LEADER_OR_FOLLOWER
    assert wire.produce(partition=1, node=2) == (E.NONE, 0)
    wire.cluster.move_leader("t", 1, 1)
    assert wire.produce(partition=1, node=2)[0] == E.NOT_LEADER_OR_FOLLOWER
    assert wire.produce(partition=1) == (E.NONE, 1)
    rows = wire.ask(
        "OffsetForLeaderEpoch", 4, Topics=[{"Topic": "t", "Partitions": [{"Partition": 1, "LeaderEpoch": 0}]}]
    )
    assert rows["Topics"][0]["Partitions"][0]["EndOffset"] == 1


# --- Fetch -----------------------------------------------------------------------------------------------------------


def test_a_fetch_waits_for_something_to_come(wire: Wire) -> None:
    assert wire.fetch_row(wait=500) is None
    wire.produce()
    [row] = wire.late
    [part] = row["Responses"][0]["Partitions"]
    batch, _ = decode_batch(part["Records"])
    assert (batch.base_offset, batch.records()[0].value, part["HighWatermark"]) == (0, b"x", 1)


def test_a_fetch_that_waits_for_nothing_is_answered_in_the_end(wire: Wire) -> None:
    assert wire.fetch_row(wait=500) is None
    wire.wait(499)
    assert not wire.late
    wire.wait(1)
    assert [row["Responses"][0]["Partitions"][0]["Records"] for row in wire.late] == [b""]
    wire.produce()
    assert len(wire.late) == 1


def test_a_fetch_waits_a_minute_at_most_whatever_it_asks_for(wire: Wire) -> None:
    assert wire.fetch_row(wait=90_000) is None
    wire.wait(59_999)
    assert not wire.late
    wire.wait(1)
    assert len(wire.late) == 1


def test_a_fetch_of_what_is_committed_waits_for_the_marker(wire: Wire) -> None:
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    assert wire.fetch_row(committed=True, wait=500) is None
    wire.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x")
    assert not wire.late
    wire.end((who[0], who[1]))
    [row] = wire.late
    assert row["Responses"][0]["Partitions"][0]["LastStableOffset"] == 2


def test_partitions_that_no_leader_is_here_for_are_told_as_such_by_all_that_read_or_write(make: Make) -> None:
    """Kafka: FetchResponse.partitionResponse, ListOffsetsResponse, OffsetsForLeaderEpochResponse, ProduceResponse."""
    wire = make(2)
    topic = wire.cluster.create_topic("t", 2)
    wire.produce(count=2)
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    parts = {0: E.NONE, 1: E.NOT_LEADER_OR_FOLLOWER, 5: unknown, -1: unknown}
    read: Message = {"PreferredReadReplica": -1, "AbortedTransactions": None}
    nothing = read | {"HighWatermark": -1, "LastStableOffset": -1, "LogStartOffset": -1, "Records": b""}
    numbers = [{"Partition": number, "FetchOffset": 2, "PartitionMaxBytes": 1} for number in parts]
    for version, named, name in ((12, {"Topic": "t"}, {"Topic": "t"}), (13, {"TopicId": topic.topic_id}, {})):
        asked = named | {"Partitions": numbers}
        [row] = wire.ask("Fetch", version, MaxWaitMs=60_000, MinBytes=1, Topics=[asked])["Responses"]
        assert {key: row[key] for key in named} == named
        assert name.items() <= row.items()
        for found, (number, error) in zip(row["Partitions"], parts.items(), strict=True):
            expected = nothing if error else read | {"HighWatermark": 2, "LastStableOffset": 2, "LogStartOffset": 0}
            assert (expected | {"PartitionIndex": number, "ErrorCode": error}).items() <= found.items()
            assert found["Records"] == b""
    [gone] = wire.ask("Fetch", 13, Topics=[{"TopicId": UUID(int=7), "Partitions": numbers[:1]}])["Responses"]
    assert (gone["TopicId"], gone["Partitions"][0]["ErrorCode"]) == (UUID(int=7), E.UNKNOWN_TOPIC_ID)
    asked = {"Name": "t", "Partitions": [{"PartitionIndex": number, "Timestamp": -1} for number in parts]}
    assert wire.ask("ListOffsets", 7, Topics=[asked])["Topics"] == [
        {
            "Name": "t",
            "Partitions": [
                {
                    "PartitionIndex": number,
                    "ErrorCode": error,
                    "Timestamp": -1,
                    "Offset": -1 if error else 2,
                    "LeaderEpoch": -1 if error else 0,
                }
                for number, error in parts.items()
            ],
        }
    ]
    asked = {"Topic": "t", "Partitions": [{"Partition": number, "LeaderEpoch": 0} for number in parts]}
    assert wire.ask("OffsetForLeaderEpoch", 4, Topics=[asked])["Topics"] == [
        {
            "Topic": "t",
            "Partitions": [
                {
                    "ErrorCode": error,
                    "Partition": number,
                    "LeaderEpoch": -1 if error else 0,
                    "EndOffset": -1 if error else 2,
                }
                for number, error in parts.items()
            ],
        }
    ]
    data = build_batch([Record(value=b"x")], base_timestamp=wire.cluster.now).encode()
    asked = {"Name": "t", "PartitionData": [{"Index": number, "Records": data} for number in parts]}
    assert wire.ask("Produce", 9, Acks=-1, TopicData=[asked])["Responses"] == [
        {
            "Name": "t",
            "PartitionResponses": [
                {
                    "Index": number,
                    "ErrorCode": error,
                    "BaseOffset": -1 if error else 2,
                    "LogAppendTimeMs": -1,
                    "LogStartOffset": -1 if error else 0,
                    "RecordErrors": [],
                    "ErrorMessage": None,
                }
                for number, error in parts.items()
            ],
        }
    ]


def test_a_timestamp_is_not_found_in_an_empty_partition(wire: Wire) -> None:
    found = [offset_at(wire, timestamp) for timestamp in (-3, 0, wire.cluster.now)]
    assert [(part["Timestamp"], part["Offset"], part["LeaderEpoch"]) for part in found] == [(-1, -1, -1)] * 3
    wire.produce(count=3)
    wire.ask("DeleteRecords", 2, Topics=[{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": 1}]}])
    asked = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Timestamp": at} for at in (-1, -2, -4, -5)]}]
    parts = wire.ask("ListOffsets", 9, Topics=asked)["Topics"][0]["Partitions"]
    assert [part["Offset"] for part in parts] == [3, 1, 1, -1], "last, first, first that is here, last elsewhere"


def test_a_fetch_ends_when_its_partition_has_another_leader(make: Make) -> None:
    wire = make(2)
    wire.topic()
    assert wire.fetch_row(wait=60_000) is None
    wire.cluster.move_leader("t", 0, 2)
    wire.wait(1)
    assert wire.late[0]["Responses"][0]["Partitions"][0]["ErrorCode"] == E.NOT_LEADER_OR_FOLLOWER


def test_readers_of_committed_offsets_are_woken_by_each_of_them(make: Make) -> None:
    wire = make(settings=Settings(internal_partitions=1))
    wire.topic()
    topics = {"Topics": [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 1}]}]}
    _, producer_id, epoch = wire.init()
    who = {"TransactionalId": "x", "ProducerId": producer_id, "ProducerEpoch": epoch}
    assert wire.ask("AddOffsetsToTxn", 3, **who, GroupId="g")["ErrorCode"] == E.NONE
    for number, (api, version, row) in enumerate((("OffsetCommit", 8, {}), ("TxnOffsetCommit", 2, who))):
        assert wire.fetch_row("__consumer_offsets", number, wait=60_000) is None
        wire.ask(api, version, GroupId="g", **row, **topics)
        assert len(wire.late) == number + 1, api


def test_nobody_waits_any_more_whose_client_is_gone(wire: Wire) -> None:
    given = {"MaxWaitMs": 500, "MinBytes": 1, "Topics": [{"Topic": "t", "Partitions": [{"Partition": 0}]}]}
    row = served_codec().read("FetchRequest", 12, Buffer(served_codec().write("FetchRequest", 12, given)))
    told: list[Message] = []
    request = HandledRequest("Fetch", 12, row, 1, "client", "/127.0.0.1", told.append)
    assert handle(wire.cluster, request) is None
    assert request.cancel is not None
    request.cancel()
    wire.produce()
    wire.wait(1_000)
    assert told == []


def test_a_fetch_ends_when_its_topic_does(wire: Wire) -> None:
    assert wire.fetch_row(wait=60_000) is None
    wire.cluster.delete_topic("t")
    wire.wait(1)
    assert wire.late[0]["Responses"][0]["Partitions"][0]["ErrorCode"] == E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_response_names_partitions_in_the_order_of_the_request(wire: Wire) -> None:
    wire.topic("a", partitions=2)
    wire.topic("b")
    asked = [("a", 1), ("b", 0), ("a", 0)]
    topics = [{"Topic": topic, "Partitions": [{"Partition": number}]} for topic, number in asked]
    answer = wire.ask("Fetch", 12, Topics=topics)
    found = [(row["Topic"], part["PartitionIndex"]) for row in answer["Responses"] for part in row["Partitions"]]
    assert found == asked


def test_a_response_has_as_many_batches_as_it_may_and_one_at_least(wire: Wire) -> None:
    for _ in range(3):
        wire.produce(value=b"x" * 1_000)
    size = len(wire.fetch()["Records"]) // 3

    def batches(largest: int, offset: int = 0) -> int:
        part = {"Partition": 0, "FetchOffset": offset, "PartitionMaxBytes": largest}
        row = wire.ask("Fetch", 12, MaxWaitMs=0, MinBytes=1, Topics=[{"Topic": "t", "Partitions": [part]}])
        return len(row["Responses"][0]["Partitions"][0]["Records"]) // size

    assert [batches(size * 2), batches(size * 2 - 1), batches(1), batches(1 << 20, 1)] == [2, 1, 1, 2]


def test_what_was_deleted_stays_deleted(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic("a-b")
    for _ in range(3):
        before.produce("a-b")
    before.ask("DeleteRecords", 2, Topics=[{"Name": "a-b", "Partitions": [{"PartitionIndex": 0, "Offset": 2}]}])
    after = make(storage=Directory(tmp_path))
    assert [after.fetch("a-b", offset)["ErrorCode"] for offset in (1, 2)] == [E.OFFSET_OUT_OF_RANGE, E.NONE]
    assert after.fetch("a-b", 2)["LogStartOffset"] == 2
    after.cluster.delete_topic("a-b")
    after.topic("a-b")
    after.produce("a-b")
    assert make(storage=Directory(tmp_path)).fetch("a-b", 0)["ErrorCode"] == E.NONE
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\na-b 0 7\n", encoding="ascii")  # a torn end is cut off
    wire = make(storage=Directory(tmp_path))
    assert wire.fetch("a-b", 1)["LogStartOffset"] == 1
    assert wire.produce("a-b") == (E.NONE, 1)


def test_offsets_outside_of_the_log_are_out_of_range(wire: Wire) -> None:
    wire.produce()
    wire.ask("DeleteRecords", 2, Topics=[{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": 1}]}])
    assert [wire.fetch(offset=offset)["ErrorCode"] for offset in (0, 1, 2)] == [
        E.OFFSET_OUT_OF_RANGE,
        E.NONE,
        E.OFFSET_OUT_OF_RANGE,
    ]


def test_offsets_are_found_by_time(wire: Wire) -> None:
    start = wire.cluster.now
    for _ in range(3):
        wire.produce(count=2)
        wire.wait(1_000)

    def at(timestamp: int) -> tuple[int, int]:
        asked = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Timestamp": timestamp}]}]
        part = wire.ask("ListOffsets", 7, Topics=asked)["Topics"][0]["Partitions"][0]
        return part["Timestamp"], part["Offset"]

    assert at(-2) == (-1, 0)
    assert at(-1) == (-1, 6)
    assert at(-3) == (start + 2_000, 4)
    assert at(start + 1) == (start + 1_000, 2)
    assert at(start + 5_000) == (-1, -1)


def end_of_epoch(wire: Wire, epoch: int) -> tuple[int, int]:
    asked = [{"Topic": "t", "Partitions": [{"Partition": 0, "LeaderEpoch": epoch}]}]
    [part] = wire.ask("OffsetForLeaderEpoch", 4, Topics=asked)["Topics"][0]["Partitions"]
    return part["LeaderEpoch"], part["EndOffset"]


def test_leader_epochs_end_where_the_next_one_begins(make: Make, tmp_path: Path) -> None:
    """Kafka: LeaderEpochFileCache.assign, endOffsetFor."""
    wire = make(storage=Directory(tmp_path))
    wire.topic()
    wire.cluster.move_leader("t", 0, 1)  # nothing was written in epoch 0
    assert [end_of_epoch(wire, epoch) for epoch in (-1, 0, 1, 2)] == [(-1, -1), (0, 0), (1, 0), (-1, -1)]
    wire.produce(count=2)
    wire.cluster.move_leader("t", 0, 1)
    wire.cluster.move_leader("t", 0, 1)
    wire.produce()
    assert [end_of_epoch(wire, epoch) for epoch in (0, 1, 2, 3)] == [(0, 0), (1, 2), (1, 2), (3, 3)]
    again = make(storage=Directory(tmp_path))
    assert [end_of_epoch(again, epoch) for epoch in (1, 2, 3, 4)] == [(1, 2), (1, 2), (3, 3), (4, 3)]


@pytest.mark.parametrize(("epoch", "error"), [(1, E.FENCED_LEADER_EPOCH), (2, E.NONE), (3, E.UNKNOWN_LEADER_EPOCH)])
def test_a_client_with_another_leader_epoch_is_told_who_is_behind(wire: Wire, epoch: int, error: ErrorCode) -> None:
    for _ in range(2):
        wire.cluster.move_leader("t", 0, 1)
    part = {"Partition": 0, "CurrentLeaderEpoch": epoch, "FetchOffset": 0}
    assert errors_in(wire.ask("Fetch", 12, Topics=[{"Topic": "t", "Partitions": [part]}])) == [0, error]


def test_a_marker_has_the_leader_epoch_in_which_it_was_written(wire: Wire) -> None:
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.cluster.move_leader("t", 0, 1)
    wire.end((who[0], who[1]))
    batch, _ = decode_batch(wire.fetch()["Records"])
    assert (batch.is_control, batch.partition_leader_epoch) == (True, 1)


def test_a_coordinators_record_has_the_leader_epoch_in_which_it_was_written(make: Make) -> None:
    wire = make(settings=Settings(internal_partitions=1))
    wire.topic()
    wire.cluster.move_leader("__consumer_offsets", 0, 1)
    part = {"PartitionIndex": 0, "CommittedOffset": 1}
    wire.ask("OffsetCommit", 8, GroupId="g", Topics=[{"Name": "t", "Partitions": [part]}])
    assert decode_batch(wire.fetch("__consumer_offsets")["Records"])[0].partition_leader_epoch == 1


def test_a_response_is_diverging_only_where_the_epoch_has_ended_before(wire: Wire) -> None:
    """KIP-595; Kafka: Partition.readRecords."""
    wire.produce(count=2)
    wire.cluster.move_leader("t", 0, 1)
    wire.produce(count=2)
    wire.ask("DeleteRecords", 2, Topics=[{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": 1}]}])

    def read(offset: int, epoch: int) -> tuple[int, int, int, bool]:
        part = {"Partition": 0, "FetchOffset": offset, "LastFetchedEpoch": epoch, "PartitionMaxBytes": 1 << 20}
        row = wire.ask("Fetch", 12, MaxWaitMs=0, Topics=[{"Topic": "t", "Partitions": [part]}])
        [found] = row["Responses"][0]["Partitions"]
        return found["ErrorCode"], *found["DivergingEpoch"].values(), bool(found["Records"])

    assert [read(offset, 0) for offset in (2, 3, 9)] == [(E.NONE, -1, -1, True), *[(E.NONE, 0, 2, False)] * 2]
    out_of_range = (E.OFFSET_OUT_OF_RANGE, -1, -1, False)
    assert read(0, 0) == read(0, -1) == read(5, -1) == out_of_range
    assert read(9, 1) == (E.NONE, 1, 4, False)
    assert read(2, 2) == out_of_range, "an epoch that the leader does not know has no end"
    assert [read(offset, 1)[3] for offset in (3, 4)] == [True, False]
    for _ in range(2):  # nothing is written in epoch 2
        wire.cluster.move_leader("t", 0, 1)
    wire.produce()
    assert read(2, 2) == (E.NONE, 1, 4, False), "the largest epoch before it"


def test_a_response_has_at_most_the_bytes_that_it_may_and_one_batch_first(wire: Wire) -> None:
    """Kafka: ReplicaManager.readFromLog, DelayedFetch."""
    wire.topic("u")
    for topic in ("t", "t", "u", "u"):
        wire.produce(topic, value=b"x" * 1_000)
    size = len(wire.fetch()["Records"]) // 2

    def batches(largest: int) -> list[int]:
        part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}
        topics = [{"Topic": topic, "Partitions": [part]} for topic in ("t", "u")]
        row = wire.ask("Fetch", 12, MaxWaitMs=0, MaxBytes=largest, Topics=topics)
        return [len(each["Partitions"][0]["Records"]) // size for each in row["Responses"]]

    assert [batches(each) for each in (1, size, 2 * size, 3 * size, 4 * size)] == [
        [1, 0],
        [1, 0],
        [2, 0],
        [2, 1],
        [2, 2],
    ]


def test_a_response_has_no_more_bytes_than_the_broker_gives(make: Make) -> None:
    """Kafka: fetch.max.bytes."""
    wire = make(settings=Settings(limits=Limits(fetch_bytes=1_500)))
    wire.topic()
    wire.topic("u")
    for topic in ("t", "t", "u"):
        wire.produce(topic, value=b"x" * 1_000)
    part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}
    topics = [{"Topic": topic, "Partitions": [part]} for topic in ("t", "u")]
    for more in ({}, {"MaxBytes": 1 << 20}):
        rows = wire.ask("Fetch", 12, MaxWaitMs=0, Topics=topics, **more)["Responses"]
        assert [len(row["Partitions"][0]["Records"]) > 0 for row in rows] == [True, False]
        assert len(rows[0]["Partitions"][0]["Records"]) < 1_500


def test_an_offset_found_by_time_may_be_in_a_later_batch_than_the_largest_timestamp_says(wire: Wire) -> None:
    for deltas in ((5, 1), (6,)):
        records = [Record(offset_delta=place, timestamp_delta=delta) for place, delta in enumerate(deltas)]
        topics = [
            {
                "Name": "t",
                "PartitionData": [{"Index": 0, "Records": build_batch(records, base_timestamp=0).encode()}],
            }
        ]
        assert errors_in(wire.ask("Produce", 9, Acks=-1, TopicData=topics)) == [E.NONE]
    assert [offset_at(wire, timestamp)["Offset"] for timestamp in (0, 2, 5, 6)] == [0, 0, 0, 2]
    wire.ask("DeleteRecords", 2, Topics=[{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": 1}]}])
    assert [offset_at(wire, timestamp)["Offset"] for timestamp in (0, 2, 5, 6)] == [1, 2, 2, 2]


def test_a_fetch_waits_for_as_many_bytes_as_it_asks_for_and_no_more(wire: Wire) -> None:
    wire.produce()
    size = len(wire.fetch()["Records"])

    def fetch(least: int) -> Message | None:
        part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}
        return wire.send("Fetch", 12, MaxWaitMs=500, MinBytes=least, Topics=[{"Topic": "t", "Partitions": [part]}])

    assert fetch(size) is not None
    assert fetch(2 * size) is None
    wire.produce()
    assert len(wire.late) == 1


def offset_at(wire: Wire, timestamp: int, *, committed: bool = False) -> Message:
    asked = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Timestamp": timestamp}]}]
    row: Message = wire.ask("ListOffsets", 7, IsolationLevel=int(committed), Topics=asked)["Topics"][0]
    part: Message = row["Partitions"][0]
    return part


def test_an_offset_found_by_time_is_before_the_last_stable_offset(wire: Wire) -> None:
    """Kafka: ReplicaManager.fetchOffset; an offset that is not below the last fetchable one is not told."""
    start = wire.cluster.now
    wire.produce()
    wire.wait(1_000)
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x")
    found = [[offset_at(wire, at, committed=each)["Offset"] for each in (False, True)] for at in (start, start + 1_000)]
    assert found == [[0, 0], [1, -1]]
    assert offset_at(wire, -3, committed=True)["Offset"] == -1
    wire.end((who[0], who[1]))
    assert offset_at(wire, start + 1_000, committed=True)["Offset"] == 1


def test_a_last_stable_offset_among_deleted_records_is_that_of_the_first_batch_that_is_left(wire: Wire) -> None:
    """The expected answers are Kafka's: see test_beside_kafka.py."""
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x", count=3)
    wire.produce(count=3)
    for deleted, stable in ((0, 0), (2, 0), (3, 3), (4, 3), (6, 6)):
        rows = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": deleted}]}]
        wire.ask("DeleteRecords", 2, Topics=rows)
        assert offset_at(wire, -1, committed=True)["Offset"] == stable, deleted
    assert wire.fetch(offset=6, committed=True)["LastStableOffset"] == 6
    wire.end((who[0], who[1]))
    assert offset_at(wire, -1, committed=True)["Offset"] == 7


def test_an_offset_is_told_with_the_leader_epoch_of_its_record(make: Make) -> None:
    """Kafka: UnifiedLog.fetchOffsetByTimestamp."""
    wire = make(brokers=2)
    wire.topic()
    start = wire.cluster.now
    wire.produce()
    wire.cluster.move_leader("t", 0, 1)
    wire.wait(1_000)
    wire.produce()
    wire.cluster.move_leader("t", 0, 1)
    found = [(part["Offset"], part["LeaderEpoch"]) for part in (offset_at(wire, at) for at in (-2, start, -3, -1))]
    assert found == [(0, 0), (0, 0), (1, 1), (2, 2)]
    wire.ask("DeleteRecords", 2, Topics=[{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": 1}]}])
    assert [offset_at(wire, -2)[name] for name in ("Offset", "LeaderEpoch")] == [1, 1]


def test_an_offset_found_by_time_is_not_deleted_unless_it_has_the_largest_timestamp(wire: Wire) -> None:
    """The expected answers are Kafka's: see test_beside_kafka.py."""
    start = wire.cluster.now
    wire.produce(count=2)
    wire.wait(1_000)
    wire.produce()
    rows = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": 1}]}]
    wire.ask("DeleteRecords", 2, Topics=rows)
    assert [offset_at(wire, at)["Offset"] for at in (start, start + 1_000, -3)] == [1, 2, 2]
    rows[0]["Partitions"] = [{"PartitionIndex": 0, "Offset": 3}]
    wire.ask("DeleteRecords", 2, Topics=rows)
    assert [offset_at(wire, at)["Offset"] for at in (start, start + 1_000, -3)] == [-1, -1, 2]


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_timestamp_that_is_a_name_needs_the_version_that_has_it(wire: Wire, timestamp: int, since: int) -> None:
    asked = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Timestamp": timestamp}]}]
    for version in served_versions("ListOffsets"):
        part = wire.ask("ListOffsets", version, Topics=asked)["Topics"][0]["Partitions"][0]
        assert part["ErrorCode"] == (E.NONE if version >= since else E.UNSUPPORTED_VERSION), version
        if version < since:
            assert (part["Timestamp"], part["Offset"]) == (-1, -1)


def test_a_replica_tells_offsets_to_a_debugging_client(make: Make) -> None:
    wire = make(brokers=3)
    wire.cluster.create_topic("t", 1, replicas=2)
    asked = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Timestamp": -1}]}]

    def error(node: int, replica: int) -> int:
        answer = wire.ask("ListOffsets", 7, node, ReplicaId=replica, Topics=asked)
        return int(answer["Topics"][0]["Partitions"][0]["ErrorCode"])

    assert [error(node, -2) for node in (1, 2, 3)] == [E.NONE, E.NONE, E.NOT_LEADER_OR_FOLLOWER]
    gone = [{"Name": "no", "Partitions": asked[0]["Partitions"]}]
    assert max(errors_in(wire.ask("ListOffsets", 7, ReplicaId=-2, Topics=gone))) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert error(2, -1) == E.NOT_LEADER_OR_FOLLOWER


# --- what is refused -------------------------------------------------------------------------------------------------


def produced(wire: Wire, records: bytes | None, **more: object) -> int:
    given = {"Acks": -1, "TopicData": [{"Name": "t", "PartitionData": [{"Index": 0, "Records": records}]}]}
    row = wire.ask("Produce", 9, **(given | more))
    return int(row["Responses"][0]["PartitionResponses"][0]["ErrorCode"])


def test_bytes_that_are_no_batch_are_refused(wire: Wire) -> None:
    good = build_batch([Record(value=b"x")]).encode()
    assert produced(wire, good) == E.NONE
    assert produced(wire, good, Acks=2) == E.INVALID_REQUIRED_ACKS
    assert produced(wire, good[:20]) == produced(wire, b"") == E.INVALID_RECORD
    zipped = build_batch([Record()], producer_id=1, producer_epoch=0, base_sequence=0, compression=CompressionType.GZIP)
    assert produced(wire, zipped.encode()) == E.NONE
    assert produced(wire, None) == produced(wire, good[:-1]) == produced(wire, good + good) == E.INVALID_RECORD
    assert produced(wire, good[:-1] + b"y") == E.CORRUPT_MESSAGE
    assert produced(wire, build_batch([Record()], is_control=True).encode()) == E.INVALID_RECORD
    assert produced(wire, build_batch([Record()], last_offset_delta=3).encode()) == E.INVALID_RECORD
    two = [Record(), Record(offset_delta=1)]
    assert produced(wire, build_batch(two, last_offset_delta=0).encode()) == E.INVALID_RECORD
    assert produced(wire, build_batch([Record()], producer_id=1).encode()) == E.INVALID_RECORD
    transactional = build_batch([Record()], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert produced(wire, transactional.encode()) == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert wire.fetch()["HighWatermark"] == 2


@pytest.mark.parametrize(
    ("tail", "error"),
    [
        ("00" * 11, E.NONE),  # too short for the length of a batch: unfinished
        ("00" * 8 + "0000000d", E.CORRUPT_MESSAGE),  # the least is 14
        ("00" * 8 + "0000000e" + "00" * 4, E.NONE),  # too short for the magic: unfinished
        ("00" * 8 + "0000000e" + "00" * 4 + "03", E.CORRUPT_MESSAGE),
        ("00" * 8 + "0000000e" + "00" * 4 + "02", E.NONE),
    ],
)
def test_the_unfinished_batch_after_a_batch_is_left_out_unless_its_header_is_wrong_already(
    tail: str, error: ErrorCode, wire: Wire
) -> None:
    """Kafka: ByteBufferLogInputStream.nextBatchSize."""
    assert produced(wire, build_batch([Record(value=b"x")]).encode() + bytes.fromhex(tail)) == error


GOOD = build_batch([Record(value=b"x")]).encode()
ONE = "There is one batch in a Produce request for a partition"
REFUSED_BATCHES: list[tuple[int, bytes, int, str | None]] = [  # Kafka: ByteBufferLogInputStream, LogValidator
    (9, GOOD[:8] + b"\xff" * 4 + GOOD[12:], E.CORRUPT_MESSAGE, "Record size -1 is less than the least, 14"),
    (
        9,
        b"\xff" * 8 + GOOD[8:],
        E.INVALID_RECORD,
        "The baseOffset of the record batch in the append to t-0 should be 0, but it is -1",
    ),
    (9, GOOD[:8] + (13).to_bytes(4, "big") + GOOD[12:], E.CORRUPT_MESSAGE, "Record size 13 is less than the least, 14"),
    (9, GOOD[:16] + b"\3" + GOOD[17:], E.CORRUPT_MESSAGE, "Invalid magic found in record: 3"),
    (9, GOOD[:16] + b"\1" + GOOD[17:], E.INVALID_RECORD, "A Produce request of version 9 has batches of magic 2"),
    (
        9,
        GOOD[:8] + (48).to_bytes(4, "big") + GOOD[12:60],
        E.CORRUPT_MESSAGE,
        "60 bytes where a batch header takes 61",
    ),
    (
        6,
        build_batch([Record()], compression=CompressionType.ZSTD).encode(),
        E.UNSUPPORTED_COMPRESSION_TYPE,
        "A Produce request of version 6 may not use ZStandard compression",
    ),
    (
        9,
        build_batch([Record()], last_offset_delta=3).encode(),
        E.INVALID_RECORD,
        "Inconsistent batch offset range: the batch has 1 record(s) and 4 offset(s)",
    ),
    (
        9,
        build_batch([Record()], is_control=True).encode(),
        E.INVALID_RECORD,
        "Clients are not allowed to write control records",
    ),
    (
        9,
        build_batch([Record()], producer_id=1).encode(),
        E.INVALID_RECORD,
        "Invalid sequence number -1 in record batch with producerId 1",
    ),
    (9, build_batch([]).encode(), E.INVALID_RECORD, "Invalid reported count for record batch: 0"),
    (
        9,
        build_batch([Record(value=bytes(300))]).encode(),
        E.MESSAGE_TOO_LARGE,
        "The record batch has 370 bytes, which exceeds the maximum configured value of 200",
    ),
]


@pytest.mark.parametrize(("version", "data", "error", "why"), REFUSED_BATCHES)
def test_a_batch_is_refused_with_the_reason_in_the_versions_that_have_a_place_for_it(
    version: int, data: bytes, error: int, why: str, make: Make
) -> None:
    wire = make(settings=Settings(limits=Limits(batch_bytes=200)))
    wire.topic()
    topics = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": data}]}]
    [row] = wire.ask("Produce", version, Acks=-1, TopicData=topics)["Responses"][0]["PartitionResponses"]
    is_leaders = (
        error == E.INVALID_RECORD and "Produce request" not in why
    )  # Kafka: ReplicaManager.appendRecordsToLeader
    assert (row["ErrorCode"], row["BaseOffset"], row["LogStartOffset"]) == (error, -1, 0 if is_leaders else -1)
    if version >= 8:
        assert row["ErrorMessage"] == why
    assert wire.fetch()["HighWatermark"] == 0


def test_clients_write_to_no_internal_topic_and_to_as_many_bytes_and_producers_as_there_may_be(make: Make) -> None:
    wire = make(settings=Settings(limits=Limits(producers=1, log_bytes=300)))
    wire.topic()
    wire.produce(producer=(5, 0), sequence=0)

    def told(topic: str, data: bytes) -> tuple[int, str | None]:
        topics = [{"Name": topic, "PartitionData": [{"Index": 0, "Records": data}]}]
        [row] = wire.ask("Produce", 9, Acks=-1, TopicData=topics)["Responses"][0]["PartitionResponses"]
        return row["ErrorCode"], row["ErrorMessage"]

    internal = "Cannot append to internal topic __consumer_offsets"
    assert told("__consumer_offsets", GOOD) == (E.INVALID_TOPIC_EXCEPTION, internal)
    other = build_batch([Record()], producer_id=6, producer_epoch=0, base_sequence=0).encode()
    assert told("t", other) == (E.POLICY_VIOLATION, "1 producers are known already")
    for _ in range(5):
        found = told("t", GOOD)
    assert found == (E.POLICY_VIOLATION, "all partitions together hold 300 bytes")


def test_a_batch_that_comes_with_an_offset_is_refused_with_the_offset_that_it_has(wire: Wire) -> None:
    data = build_batch([Record(value=b"x")], base_offset=7).encode()
    topics = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": data}]}]
    [row] = wire.ask("Produce", 9, Acks=-1, TopicData=topics)["Responses"][0]["PartitionResponses"]
    why = "The baseOffset of the record batch in the append to t-0 should be 0, but it is 7"
    assert (row["ErrorCode"], row["ErrorMessage"]) == (E.INVALID_RECORD, why)


def test_what_is_beyond_a_limit_is_refused(make: Make) -> None:
    wire = make(settings=Settings(limits=Limits(batch_bytes=200, log_bytes=300, partitions=10, groups=1)))
    wire.topic()
    assert wire.produce(value=b"x" * 200)[0] == E.MESSAGE_TOO_LARGE
    errors = [wire.produce(value=b"x" * 100)[0] for _ in range(4)]
    assert (errors[0], errors[-1]) == (E.NONE, E.POLICY_VIOLATION)
    row = wire.ask("CreateTopics", 7, Topics=[{"Name": "n", "NumPartitions": 2, "ReplicationFactor": 1}])
    assert row["Topics"][0]["ErrorCode"] == E.POLICY_VIOLATION
    made = [wire.ask("Metadata", 9, Topics=[{"Name": name}])["Topics"][0]["ErrorCode"] for name in ("u", "v")]
    assert made == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    for name, error in (("a", E.NONE), ("b", E.COORDINATOR_NOT_AVAILABLE), ("a", E.NONE)):
        part = {"PartitionIndex": 0, "CommittedOffset": 1}
        row = wire.ask("OffsetCommit", 8, GroupId=name, Topics=[{"Name": "t", "Partitions": [part]}])
        assert row["Topics"][0]["Partitions"][0]["ErrorCode"] == error


def test_a_partition_remembers_a_limited_number_of_producers_and_none_without_a_voucher(make: Make) -> None:
    wire = make(settings=Settings(limits=Limits(producers=2)))
    wire.topic()
    leader = wire.cluster.topics["t"].partitions[0]
    for producer_id in range(5):
        assert (
            wire.produce(producer=(producer_id, 0), sequence=0, transactional_id="x")[0]
            == E.INVALID_PRODUCER_ID_MAPPING
        )
    assert leader.guarded_producers == 0
    errors = [wire.produce(producer=(producer_id, 0), sequence=0)[0] for producer_id in range(3)]
    assert errors == [E.NONE, E.NONE, E.POLICY_VIOLATION]
    assert wire.produce(producer=(0, 0), sequence=1)[0] == E.NONE


def test_a_request_with_too_many_elements_is_refused_while_it_is_read() -> None:
    data = served_codec().write("MetadataRequest", 9, {"Topics": [{"Name": "t"}] * 10})
    served_codec().read("MetadataRequest", 9, Buffer(data, 10))
    with pytest.raises(MalformedMessage, match="more than there may be"):
        served_codec().read("MetadataRequest", 9, Buffer(data, 9))


def test_partitions_are_described_of_all_topics_where_none_is_named(wire: Wire) -> None:
    wire.topic("u", 2)

    def described(*names: str) -> list[tuple[str, int, int]]:
        rows = wire.ask("DescribeTopicPartitions", 0, Topics=[{"Name": name} for name in names])["Topics"]
        return sorted((row["Name"], row["ErrorCode"], len(row["Partitions"])) for row in rows)

    own = [row for row in described() if not row[0].startswith("__")]
    assert own == described("t", "u") == [("t", E.NONE, 1), ("u", E.NONE, 2)]
    assert described("t", "v") == [("t", E.NONE, 1), ("v", E.UNKNOWN_TOPIC_OR_PARTITION, 0)]


def test_a_log_that_lost_its_first_records_or_has_some_once_more_ends_after_its_last_batch(
    make: Make, tmp_path: Path
) -> None:
    """As after retention, and after damage, with another process than Kafka's that wrote to the log."""
    before = make(storage=Directory(tmp_path))
    before.topic("t")
    [log] = (tmp_path / "t-0").glob("*.log")
    log = log.rename(log.with_name(f"{5:020}.log"))
    offsets = (5, 7, 9, 9)
    log.write_bytes(b"".join(build_batch([Record(value=b"v")], base_offset=offset).encode() for offset in offsets))
    after = make(storage=Directory(tmp_path))
    errors = [after.fetch("t", offset)["ErrorCode"] for offset in (4, 5, 10, 11)]
    assert errors == [E.OFFSET_OUT_OF_RANGE, E.NONE, E.NONE, E.OFFSET_OUT_OF_RANGE]
    assert after.fetch("t", 10)["HighWatermark"] == 10
    assert (after.fetch("t", 10)["Records"], decode_batch(after.fetch("t", 6)["Records"])[0].base_offset) == (b"", 7)
    after.produce("t")
    assert decode_batch(after.fetch("t", 10)["Records"])[0].base_offset == 10


def test_an_offset_is_found_by_time_in_a_log_whose_offsets_go_back(make: Make, tmp_path: Path) -> None:
    make(storage=Directory(tmp_path)).topic("t")
    [log] = (tmp_path / "t-0").glob("*.log")
    batches = ((0, 10, 1), (10, 3, 1), (3, 1, 9), (13, 1, 9))  # first offset, records, timestamp
    log.write_bytes(
        b"".join(
            build_batch(
                [Record(value=b"v", offset_delta=delta) for delta in range(count)], base_offset=base, base_timestamp=at
            ).encode()
            for base, count, at in batches
        )
    )
    found = offset_at(make(storage=Directory(tmp_path)), 5)
    assert (found["Offset"], found["Timestamp"]) == (13, 9), "where a reader of offset 3 is given the first batch"
