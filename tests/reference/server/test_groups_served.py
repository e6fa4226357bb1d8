"""Consumer groups of the classic protocol, and their offsets."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.group_coordinator import GroupCoordinator
from kafka_eos.machines.leader import LeaderRules
from kafka_eos.server.cluster import CONSUMER_OFFSETS, Limits, Machines, Settings
from kafka_eos.server.groups import CommittedOffset
from kafka_eos.server.storage import Directory
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.mutants.rules import mutated

from .conftest import NOW, Make, Wire, errors_in

E = ErrorCode
SESSION, REBALANCE = 10_000, 30_000


def join(
    wire: Wire,
    member: str = "",
    *,
    names: tuple[str, ...] = ("range",),
    version: int = 5,
    rebalance_ms: int = REBALANCE,
    **more: Any,
) -> Message | None:
    return wire.send(
        "JoinGroup",
        version,
        GroupId="g",
        SessionTimeoutMs=SESSION,
        RebalanceTimeoutMs=rebalance_ms,
        MemberId=member,
        ProtocolType="consumer",
        Protocols=[{"Name": name, "Metadata": name.encode()} for name in names],
        **more,
    )


def named(wire: Wire) -> str:
    """The id that a new member gets."""
    row = join(wire)
    assert row is not None
    assert (row["ErrorCode"], row["MemberId"].partition("-")[0]) == (E.MEMBER_ID_REQUIRED, "client")
    return str(row["MemberId"])


def sync(wire: Wire, member: str, generation: int, assigned: dict[str, bytes] | None = None) -> Message | None:
    rows = [{"MemberId": name, "Assignment": data} for name, data in (assigned or {}).items()]
    return wire.send("SyncGroup", 3, GroupId="g", GenerationId=generation, MemberId=member, Assignments=rows)


def beat(wire: Wire, member: str, generation: int) -> int:
    return int(wire.ask("Heartbeat", 3, GroupId="g", GenerationId=generation, MemberId=member)["ErrorCode"])


def alone(wire: Wire) -> str:
    """A group with one member in generation 1."""
    member = named(wire)
    row = join(wire, member)
    assert row is not None
    assert (row["GenerationId"], row["Leader"]) == (1, member)
    synced = sync(wire, member, 1, {member: b"all"})
    assert synced is not None
    assert synced["Assignment"] == b"all"
    return member


def commit(
    wire: Wire,
    offset: int,
    member: str = "",
    generation: int = -1,
    *,
    version: int = 8,
    metadata: str = "m",
    partition: int = 0,
) -> int:
    part = {"PartitionIndex": partition, "CommittedOffset": offset}
    part |= {"CommittedLeaderEpoch": 3, "CommittedMetadata": metadata}
    row = wire.ask(
        "OffsetCommit",
        version,
        GroupId="g",
        GenerationIdOrMemberEpoch=generation,
        MemberId=member,
        Topics=[{"Name": "t", "Partitions": [part]}],
    )
    return int(row["Topics"][0]["Partitions"][0]["ErrorCode"])


def commit_in_transaction(
    wire: Wire,
    producer: tuple[int, int],
    offset: int,
    member: str = "",
    generation: int = -1,
    *,
    version: int = 3,
    name: str = "x",
) -> int:
    part = {"PartitionIndex": 0, "CommittedOffset": offset, "CommittedMetadata": ""}
    topic = {"TopicId": wire.cluster.topics["t"].topic_id} if version >= 6 else {"Name": "t"}
    row = wire.ask(
        "TxnOffsetCommit",
        version,
        TransactionalId=name,
        GroupId="g",
        ProducerId=producer[0],
        ProducerEpoch=producer[1],
        GenerationIdOrMemberEpoch=generation,
        MemberId=member,
        Topics=[topic | {"Partitions": [part]}],
    )
    return int(row["Topics"][0]["Partitions"][0]["ErrorCode"])


def committed(wire: Wire, *, stable: bool = True) -> tuple[int, int]:
    """The error and the offset of an OffsetFetch."""
    asked = [{"GroupId": "g", "Topics": [{"Name": "t", "PartitionIndexes": [0]}]}]
    row = wire.ask("OffsetFetch", 8, Groups=asked, RequireStable=stable)
    part = row["Groups"][0]["Topics"][0]["Partitions"][0]
    return part["ErrorCode"], part["CommittedOffset"]


def producing(wire: Wire, name: str = "x") -> tuple[int, int]:
    """A producer whose transaction has the group's offsets."""
    _, *who = wire.init(name)
    row = wire.ask("AddOffsetsToTxn", 3, TransactionalId=name, ProducerId=who[0], ProducerEpoch=who[1], GroupId="g")
    assert row["ErrorCode"] == E.NONE
    return who[0], who[1]


@pytest.mark.parametrize(("version", "error"), [(3, E.NONE), (4, E.MEMBER_ID_REQUIRED), (5, E.MEMBER_ID_REQUIRED)])
def test_a_member_has_to_come_back_with_its_id_from_version_4_on(version: int, error: ErrorCode, wire: Wire) -> None:
    row = join(wire, version=version)  # KIP-394
    assert row is not None
    assert row["ErrorCode"] == error


@pytest.mark.parametrize("rebalance_ms", [0, -1])
def test_members_without_time_for_a_rebalance_are_not_waited_for(rebalance_ms: int, wire: Wire) -> None:
    first = named(wire)
    row = join(wire, first, rebalance_ms=rebalance_ms)
    assert row is not None
    sync(wire, first, row["GenerationId"], {first: b""})
    second = named(wire)
    assert join(wire, second, rebalance_ms=rebalance_ms) is None
    wire.wait(1)  # much less than a session
    [row] = wire.late
    assert (row["ErrorCode"], row["GenerationId"], row["Leader"]) == (E.NONE, 2, second)


def test_members_of_version_0_are_waited_for_as_long_as_their_sessions_last(wire: Wire) -> None:
    row = join(wire, version=0)
    assert row is not None
    sync(wire, row["MemberId"], row["GenerationId"], {row["MemberId"]: b""})
    assert join(wire, version=0) is None
    wire.wait(1)
    assert wire.late == []


@pytest.mark.parametrize(("session_ms", "error"), [(9, 26), (10, 79), (1_800_000, 79), (1_800_001, 26)])
def test_a_session_may_be_short_for_tests_and_as_long_as_kafkas(session_ms: int, error: int, wire: Wire) -> None:
    protocols = [{"Name": "range", "Metadata": b""}]
    row = wire.ask(
        "JoinGroup",
        5,
        GroupId="g",
        SessionTimeoutMs=session_ms,
        MemberId="",
        ProtocolType="consumer",
        Protocols=protocols,
    )
    assert row["ErrorCode"] == error


def test_a_rebalance_waits_for_everybody_and_the_leader_assigns(wire: Wire) -> None:
    first = alone(wire)
    second = named(wire)
    assert join(wire, second) is None
    assert beat(wire, first, 1) == E.REBALANCE_IN_PROGRESS
    assert commit(wire, 5, first, 1) == E.NONE  # Kafka: ClassicGroup.validateOffsetCommit
    row = join(wire, first)
    assert row is not None
    assert commit(wire, 6, first, 2) == E.REBALANCE_IN_PROGRESS
    assert commit_in_transaction(wire, producing(wire), 6, first, 2) == E.NONE
    assert {member["MemberId"] for member in row["Members"]} == {first, second}
    assert row["GenerationId"] == 2
    [follower] = wire.late
    assert (follower["GenerationId"], follower["Members"], follower["Leader"]) == (2, [], first)
    assert sync(wire, second, 2) is None
    for _ in range(2):  # who waits is not silent
        wire.wait(SESSION - 1)
        assert beat(wire, first, 2) == E.NONE
    assert sync(wire, first, 2, {first: b"1", second: b"2"}) is not None
    assert wire.late[-1]["Assignment"] == b"2"
    assert beat(wire, first, 1) == E.ILLEGAL_GENERATION
    wire.wait(SESSION - 1)  # a session begins again with the answer
    assert beat(wire, first, 2) == beat(wire, second, 2) == E.NONE


@pytest.mark.parametrize("what", ["it comes", "it leaves", "it stays away"])
def test_only_the_first_generation_does_not_wait_for_a_member_that_was_given_an_id(wire: Wire, what: str) -> None:
    """As in Kafka: see test_beside_kafka.py.    Kafka: GroupMetadataManager.maybeCompleteJoinPhase."""
    first, second, third = (named(wire) for _ in range(3))
    row = join(wire, first)
    assert row is not None
    assert (row["GenerationId"], len(row["Members"])) == (1, 1)
    sync(wire, first, 1, {first: b"all"})
    assert join(wire, second) is None
    assert join(wire, first) is None, "the third is waited for"
    if what == "it comes":
        row = join(wire, third)
        assert row is not None
        assert row["GenerationId"] == 2
    elif what == "it stays away":
        wire.wait(SESSION - 1)
        assert wire.late == []
        wire.wait(1)
    else:
        left = wire.ask("LeaveGroup", 3, GroupId="g", Members=[{"MemberId": third}])
        assert left["Members"][0]["ErrorCode"] == E.NONE
    assert [row["GenerationId"] for row in wire.late] == [2, 2]


def test_the_protocol_that_most_prefer_is_chosen_among_those_that_all_know(make: Make, tmp_path: Path) -> None:
    wire = make(settings=Settings(group_initial_delay_ms=1), storage=Directory(tmp_path))
    one, two = named(wire), named(wire)
    assert join(wire, one, names=("sticky", "range")) is None
    assert join(wire, two, names=("range",)) is None
    wire.wait(2)
    assert [row["ProtocolName"] for row in wire.late] == ["range", "range"]
    [leader] = {row["Leader"] for row in wire.late}
    assert [each["Metadata"] for row in wire.late for each in row["Members"]] == [b"range", b"range"]
    refused = join(wire, "", names=("other",))
    assert refused is not None
    assert refused["ErrorCode"] == E.INCONSISTENT_GROUP_PROTOCOL
    sync(wire, leader, 1, {})
    for each in (wire, Wire(wire.cluster.restarted())):
        [group] = each.ask("DescribeGroups", 5, Groups=["g"])["Groups"]
        assert [member["MemberMetadata"] for member in group["Members"]] == [b"range", b"range"]


def test_a_member_that_does_not_rejoin_in_time_is_removed(wire: Wire) -> None:
    first = alone(wire)
    second = named(wire)
    assert join(wire, second) is None
    for _ in range(7):
        wire.wait(5_000)
        if not wire.late:
            beat(wire, first, 1)
    [row] = wire.late
    assert (row["GenerationId"], row["Leader"], len(row["Members"])) == (2, second, 1)
    assert beat(wire, first, 1) == E.UNKNOWN_MEMBER_ID


def test_a_member_that_was_given_an_id_may_come_after_the_generation_that_has_not_waited_longer(wire: Wire) -> None:
    """As in Kafka: see test_beside_kafka.py."""
    first = named(wire)
    join(wire, first, rebalance_ms=1_000)
    sync(wire, first, 1, {first: b"all"})
    second, third = named(wire), named(wire)
    assert join(wire, second, rebalance_ms=1_000) is None
    assert join(wire, first, rebalance_ms=1_000) is None
    wire.wait(1_001)
    assert [row["GenerationId"] for row in wire.late] == [2, 2]
    assert join(wire, third) is None
    assert beat(wire, first, 2) == E.REBALANCE_IN_PROGRESS


def test_a_rebalance_in_which_nobody_joins_ends_though_an_id_was_given(wire: Wire) -> None:
    first = named(wire)
    join(wire, first, rebalance_ms=1_000)
    sync(wire, first, 1, {first: b"all"})
    second, _ = named(wire), named(wire)  # the other one never comes back
    assert join(wire, second, rebalance_ms=1_000) is None
    wire.ask("LeaveGroup", 3, GroupId="g", Members=[{"MemberId": second}])
    wire.wait(1_001)
    assert beat(wire, first, 1) == E.UNKNOWN_MEMBER_ID
    assert [group["GroupState"] for group in wire.ask("ListGroups", 4)["Groups"]] == ["Empty"]


@pytest.mark.parametrize("leads", [True, False])
def test_a_member_that_does_not_sync_in_time_is_removed(wire: Wire, leads: bool) -> None:
    """As in Kafka: see test_beside_kafka.py."""
    first = named(wire)
    join(wire, first, rebalance_ms=1_000)
    sync(wire, first, 1, {first: b"all"})
    second = named(wire)
    join(wire, second, rebalance_ms=1_000)
    join(wire, first, rebalance_ms=1_000)
    one, other = (second, first) if leads else (first, second)  # the first one leads
    sync(wire, one, 2, {first: b"1", second: b"2"})
    wire.wait(999)
    assert beat(wire, other, 2) == E.NONE
    wire.wait(1)
    assert beat(wire, other, 2) == E.UNKNOWN_MEMBER_ID
    assert beat(wire, one, 2) == E.REBALANCE_IN_PROGRESS


def test_a_member_that_is_silent_loses_its_session(wire: Wire) -> None:
    member = alone(wire)
    wire.wait(SESSION - 1)
    assert beat(wire, member, 1) == E.NONE
    told: list[Any] = []
    wire.cluster.happened = lambda action, _node, **row: told.append((action, row))
    wire.wait(SESSION + 1)
    assert told == [("ExpireSession", {"group": "g", "detail": {"member": member}})]
    assert beat(wire, member, 1) == E.UNKNOWN_MEMBER_ID
    [row] = wire.ask("DescribeGroups", 5, Groups=["g"])["Groups"]
    assert (row["GroupState"], row["Members"]) == ("Empty", [])


def test_a_member_that_commits_offsets_is_not_silent(wire: Wire) -> None:
    member = alone(wire)
    for offset in range(3):
        wire.wait(SESSION - 1)
        assert commit(wire, offset, member, 1) == E.NONE
    wire.wait(SESSION)
    assert commit(wire, 3, member, 1) == E.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_starts_a_rebalance(wire: Wire) -> None:
    first = alone(wire)
    second = named(wire)
    join(wire, second)
    join(wire, first)
    row = wire.ask("LeaveGroup", 3, GroupId="g", Members=[{"MemberId": first}])
    assert row["Members"][0]["ErrorCode"] == E.NONE
    assert beat(wire, second, 2) == E.REBALANCE_IN_PROGRESS
    rejoined = join(wire, second)
    assert rejoined is not None
    assert (rejoined["GenerationId"], rejoined["Leader"]) == (3, second)


def test_a_member_that_joins_again_makes_the_others_do_so_only_if_it_says_something_else(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.classicGroupJoinExistingMember."""
    leader = alone(wire)
    other = named(wire)
    assert join(wire, other) is None
    join(wire, leader)
    for generation in (2, 2):  # the second time the group is stable
        row = join(wire, other)
        assert row is not None
        assert (row["GenerationId"], row["Members"]) == (generation, [])
        sync(wire, leader, 2, {})
    assert join(wire, other, names=("range", "sticky")) is None
    assert beat(wire, leader, 2) == E.REBALANCE_IN_PROGRESS


def test_a_static_member_that_starts_again_fences_the_one_before_it(wire: Wire) -> None:
    row = join(wire, GroupInstanceId="i")
    assert row is not None
    old = str(row["MemberId"])
    sync(wire, old, 1, {old: b"all"})
    again = join(wire, GroupInstanceId="i")
    assert again is not None
    assert again["MemberId"] != old
    answer = wire.ask("Heartbeat", 3, GroupId="g", GenerationId=1, MemberId=old, GroupInstanceId="i")
    assert answer["ErrorCode"] == E.FENCED_INSTANCE_ID


def test_the_first_member_of_a_group_can_be_made_to_wait_for_others(make: Make) -> None:
    wire = make(settings=Settings(group_initial_delay_ms=3_000))
    one, two = named(wire), named(wire)
    assert join(wire, one) is None
    assert join(wire, two) is None
    wire.wait(3_001)
    assert [row["GenerationId"] for row in wire.late] == [1, 1]
    assert sync(wire, two, 1) is None
    sync(wire, one, 1, {})
    assert join(wire, named(wire)) is None
    wire.wait(3_001)
    assert len(wire.late) == 3, "nobody has been removed, and no generation has begun: the others may still join"


def test_offsets_are_taken_from_members_of_the_present_generation_alone(wire: Wire) -> None:
    assert commit(wire, 1) == E.NONE  # no group: a simple consumer
    member = alone(wire)
    assert commit(wire, 2, member, 1) == E.NONE
    assert commit(wire, 3, member, 0) == E.ILLEGAL_GENERATION
    assert commit(wire, 3, "somebody", 1) == E.UNKNOWN_MEMBER_ID
    assert commit(wire, 3) == E.UNKNOWN_MEMBER_ID
    assert committed(wire) == (E.NONE, 2)


def test_each_partition_keeps_the_offset_that_was_committed_last(make: Make) -> None:
    wire = make()
    wire.topic(partitions=3)
    for partition, offset in ((0, 1), (0, 2), (1, 3), (2, 4), (1, 5)):
        assert commit(wire, offset, partition=partition) == E.NONE
    [group] = wire.ask("OffsetFetch", 8, Groups=[{"GroupId": "g", "Topics": None}])["Groups"]
    [topic] = group["Topics"]
    assert {part["PartitionIndex"]: part["CommittedOffset"] for part in topic["Partitions"]} == {0: 2, 1: 5, 2: 4}


def test_one_request_commits_an_offset_for_each_of_its_partitions(make: Make) -> None:
    wire = make()
    wire.topic(partitions=3)
    parts = [{"PartitionIndex": number, "CommittedOffset": 7 - number, "CommittedMetadata": ""} for number in range(3)]
    wire.ask("OffsetCommit", 8, GroupId="g", MemberId="", Topics=[{"Name": "t", "Partitions": parts}])
    commit(wire, 9, partition=1)
    [group] = wire.ask("OffsetFetch", 8, Groups=[{"GroupId": "g", "Topics": None}])["Groups"]
    found = {part["PartitionIndex"]: part["CommittedOffset"] for part in group["Topics"][0]["Partitions"]}
    assert found == {0: 7, 1: 9, 2: 5}


def test_a_committed_offset_is_told_whole_and_none_as_such(wire: Wire) -> None:
    """Kafka: OffsetFetchResponse, OffsetCommitResponse, OffsetDeleteResponse."""
    u_id, t_id = wire.cluster.create_topic("u", 1).topic_id, wire.cluster.topics["t"].topic_id
    assert commit(wire, 5, metadata="said") == E.NONE
    known = {"CommittedOffset": 5, "CommittedLeaderEpoch": 3, "Metadata": "said", "ErrorCode": E.NONE}
    nothing = {"CommittedOffset": -1, "CommittedLeaderEpoch": -1, "Metadata": "", "ErrorCode": E.NONE}
    parts = [{"PartitionIndex": 0} | known, {"PartitionIndex": 1} | nothing]
    asked = [{"Name": "t", "PartitionIndexes": [0, 1]}, {"Name": "no", "PartitionIndexes": [4]}]
    rows = [{"Name": "t", "Partitions": parts}, {"Name": "no", "Partitions": [{"PartitionIndex": 4} | nothing]}]
    answer = wire.ask("OffsetFetch", 9, Groups=[{"GroupId": name, "Topics": asked} for name in ("g", "h")])
    first, second = answer["Groups"]
    assert first == {"GroupId": "g", "ErrorCode": E.NONE, "Topics": rows}
    assert (second["GroupId"], second["Topics"][0]["Partitions"][0]) == ("h", {"PartitionIndex": 0} | nothing)
    assert wire.ask("OffsetFetch", 7, GroupId="g", Topics=asked) == {
        "ThrottleTimeMs": 0,
        "ErrorCode": E.NONE,
        "Topics": rows,
    }
    ids = [UUID(int=7), t_id, u_id]
    by_id = [{"TopicId": each, "PartitionIndexes": [0]} for each in ids]
    [group] = wire.ask("OffsetFetch", 10, Groups=[{"GroupId": "g", "Topics": by_id}])["Groups"]
    unknown = nothing | {"ErrorCode": E.UNKNOWN_TOPIC_ID}
    assert group["Topics"] == [
        {"TopicId": each, "Partitions": [{"PartitionIndex": 0} | part]}
        for each, part in ((t_id, known), (u_id, nothing), (UUID(int=7), unknown))
    ], "topics that are not there come last"
    deleted = [{"Name": name, "Partitions": [{"PartitionIndex": n} for n in (0, 1)]} for name in ("t", "no")]
    assert wire.ask("OffsetDelete", 0, GroupId="g", Topics=deleted) == {
        "ThrottleTimeMs": 0,
        "ErrorCode": E.NONE,
        "Topics": [
            {
                "Name": name,
                "Partitions": [
                    {"PartitionIndex": 0, "ErrorCode": error},
                    {"PartitionIndex": 1, "ErrorCode": E.UNKNOWN_TOPIC_OR_PARTITION},
                ],
            }
            for name, error in (("t", E.NONE), ("no", E.UNKNOWN_TOPIC_OR_PARTITION))
        ],
    }
    assert committed(wire) == (E.NONE, -1)
    for name, error in (("", E.INVALID_GROUP_ID), ("h", E.GROUP_ID_NOT_FOUND)):
        assert wire.ask("OffsetDelete", 0, GroupId=name, Topics=[])["ErrorCode"] == error


def test_nothing_is_written_where_nothing_changes(make: Make) -> None:
    """A topic that no group has offsets of, a heartbeat, a group that only had offsets: all in __consumer_offsets."""
    wire = make(settings=Settings(internal_partitions=1))
    wire.topic()
    wire.topic("u")

    def end() -> int:
        return int(wire.fetch(CONSUMER_OFFSETS)["HighWatermark"])

    commit(wire, 1)
    at = end()
    wire.ask("DeleteTopics", 5, TopicNames=["u"])
    assert end() == at
    wire.ask("DeleteGroups", 2, GroupsNames=["g"])
    assert end() == at + 2, "the tombstones of the offset and of the group"
    row: Message = {"GroupId": "h", "MemberId": "m", "SubscribedTopicNames": ["t"], "RebalanceTimeoutMs": 5_000}
    wire.ask("ConsumerGroupHeartbeat", 1, **row, MemberEpoch=0, TopicPartitions=[])
    at = end()
    wire.ask("ConsumerGroupHeartbeat", 1, GroupId="h", MemberId="m", MemberEpoch=2)
    assert end() == at
    wire.ask("ConsumerGroupHeartbeat", 1, GroupId="h", MemberId="m", MemberEpoch=-1)
    at = end()
    stored = len(wire.cluster.groups.stored["h"])
    wire.ask("DeleteGroups", 2, GroupsNames=["h"])
    assert end() == at + stored, "a tombstone of each record"


def test_an_old_offset_fetch_gets_the_error_of_its_group_with_each_partition(make: Make) -> None:
    wire = make(brokers=2)
    other = 3 - wire.cluster.offsets_partition("g").node
    asked = [{"Name": "t", "PartitionIndexes": [0, 1]}]
    newer = wire.ask("OffsetFetch", 2, other, GroupId="g", Topics=asked)
    assert (newer["ErrorCode"], newer["Topics"]) == (E.NOT_COORDINATOR, [])
    [topic] = wire.ask("OffsetFetch", 1, other, GroupId="g", Topics=asked)["Topics"]
    assert topic["Name"] == "t"
    assert [(part["PartitionIndex"], part["ErrorCode"], part["CommittedOffset"]) for part in topic["Partitions"]] == [
        (0, E.NOT_COORDINATOR, -1),
        (1, E.NOT_COORDINATOR, -1),
    ]


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_refused_member_is_told_no_protocol_in_the_words_of_its_version(
    version: int, name: str | None, wire: Wire
) -> None:
    row = wire.ask("JoinGroup", version, GroupId="", MemberId="m", Protocols=[{"Name": "range", "Metadata": b""}])
    assert (row["ErrorCode"], row["ProtocolName"], row["MemberId"]) == (E.INVALID_GROUP_ID, name, "m")


def test_offsets_of_a_transaction_count_when_it_commits(wire: Wire) -> None:
    member = alone(wire)
    commit(wire, 1, member, 1)
    producer = producing(wire)
    assert commit_in_transaction(wire, producer, 5, member, 1) == E.NONE
    assert commit_in_transaction(wire, producer, 5, member, 2) == E.ILLEGAL_GENERATION
    place = {"Name": CONSUMER_OFFSETS, "PartitionIndexes": [wire.cluster.offsets_partition("g").partition]}
    [row] = wire.ask("DescribeProducers", 0, Topics=[place])["Topics"][0]["Partitions"]
    assert [(each["ProducerId"], each["LastTimestamp"]) for each in row["ActiveProducers"]] == [(producer[0], NOW)]
    assert committed(wire) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert committed(wire, stable=False) == (E.NONE, 1)
    wire.end(producer)
    assert committed(wire) == (E.NONE, 5)


def test_offsets_of_topics_with_ids_count_when_the_transaction_commits(wire: Wire) -> None:
    member = alone(wire)
    producer = producing(wire)
    assert commit_in_transaction(wire, producer, 5, member, 1, version=6) == E.NONE
    assert commit_in_transaction(wire, producer, 6, member, 2, version=6) == E.ILLEGAL_GENERATION
    wire.end(producer)
    assert committed(wire) == (E.NONE, 5)


def test_an_unknown_topic_id_is_told_and_does_not_hold_up_the_other_topics(wire: Wire) -> None:
    """Kafka: KafkaApis.handleTxnOffsetCommitRequest of 4.4.0."""
    producer, unknown = producing(wire), UUID(int=7)
    known = wire.cluster.topics["t"].topic_id
    who = {"TransactionalId": "x", "GroupId": "g", "ProducerId": producer[0], "ProducerEpoch": producer[1]}

    def told(version: int, *ids: UUID, **other: object) -> list[tuple[UUID, list[tuple[int, int]]]]:
        parts = [{"PartitionIndex": number, "CommittedOffset": 5} for number in (0, 1)]
        topics = [{"TopicId": each, "Partitions": parts} for each in ids]
        answer = wire.ask("TxnOffsetCommit", version, **(who | other), Topics=topics)
        return [
            (topic["TopicId"], [(part["PartitionIndex"], part["ErrorCode"]) for part in topic["Partitions"]])
            for topic in answer["Topics"]
        ]

    gone = (unknown, [(0, E.UNKNOWN_TOPIC_ID), (1, E.UNKNOWN_TOPIC_ID)])
    assert told(6, unknown, known) == [gone, (known, [(0, E.NONE), (1, E.UNKNOWN_TOPIC_OR_PARTITION)])]
    fenced = [(0, E.INVALID_PRODUCER_EPOCH), (1, E.UNKNOWN_TOPIC_OR_PARTITION)]
    assert told(6, unknown, known, ProducerEpoch=-1) == [gone, (known, fenced)]
    assert told(6, unknown, ProducerEpoch=-1) == [gone], "without a known topic nobody looks at the producer"
    wire.end(producer)
    assert committed(wire) == (E.NONE, 5)


def test_partitions_that_are_not_there_are_told_as_such_whatever_the_coordinator_says(wire: Wire) -> None:
    """Kafka: KafkaApis.handleTxnOffsetCommitRequest, handleOffsetCommitRequest."""
    producer, parts = producing(wire), [{"PartitionIndex": 0, "CommittedOffset": 5}]
    member = {"GroupId": "g", "MemberId": "m", "GenerationIdOrMemberEpoch": 5}
    who = member | {"TransactionalId": "x", "ProducerId": producer[0], "ProducerEpoch": producer[1]}

    def told(api: str, version: int, row: Message, *topics: str) -> list[int]:
        answer = wire.ask(api, version, **row, Topics=[{"Name": each, "Partitions": parts} for each in topics])
        return [topic["Partitions"][0]["ErrorCode"] for topic in answer["Topics"]]

    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert told("TxnOffsetCommit", 5, who, "nope", "t") == [unknown, E.ILLEGAL_GENERATION]
    assert told("OffsetCommit", 8, member, "nope", "t") == [unknown, E.ILLEGAL_GENERATION]
    assert told("TxnOffsetCommit", 5, who | {"ProducerEpoch": 7}, "nope", "t") == [unknown, E.INVALID_PRODUCER_EPOCH]
    assert told("TxnOffsetCommit", 5, who | {"ProducerEpoch": 7}, "nope") == [unknown]
    assert told("OffsetCommit", 8, member, "nope") == [unknown]
    _, producer_id, epoch = wire.init("y")
    other = {"TransactionalId": "y", "GroupId": "g", "ProducerId": producer_id, "ProducerEpoch": epoch}
    for topic, state in (("nope", "Empty"), ("t", "Ongoing")):
        told("TxnOffsetCommit", 5, other, topic)
        [found] = wire.ask("DescribeTransactions", 0, TransactionalIds=["y"])["TransactionStates"]
        assert found["TransactionState"] == state, "without a partition no transaction begins"


def test_offsets_of_an_epoch_that_has_passed_are_refused_where_the_coordinator_is_not_asked(make: Make) -> None:
    wire = make(machines=Machines(leaders=LeaderRules(verification=False)))
    wire.topic()
    old, new = wire.init()[1:], wire.init()[1:]
    assert [commit_in_transaction(wire, who, 5) for who in (new, old)] == [E.NONE, E.INVALID_PRODUCER_EPOCH]
    wire.end(new)
    assert wire.cluster.groups.fetch("g", "t-0", False)[1] is None, "the coordinator knows no partition of it"


def test_offsets_of_an_aborted_transaction_are_gone(wire: Wire) -> None:
    producer = producing(wire)
    commit_in_transaction(wire, producer, 5)
    wire.end(producer, commit=False)
    assert committed(wire) == (E.NONE, -1)


def test_an_offset_that_was_committed_after_a_pending_one_stays(wire: Wire) -> None:
    producer = producing(wire)
    commit_in_transaction(wire, producer, 5)
    commit(wire, 7)
    other = producing(wire, "y")
    commit_in_transaction(wire, other, 9, name="y")
    wire.end(producer)
    assert committed(wire, stable=False) == (E.NONE, 7)
    wire.end(other, name="y")
    assert committed(wire) == (E.NONE, 9)


@pytest.mark.parametrize("version", [0, 2, 3])
def test_a_transaction_commits_offsets_of_a_group_without_members_in_old_versions_too(wire: Wire, version: int) -> None:
    producer = producing(wire)
    assert commit_in_transaction(wire, producer, 5, version=version) == E.NONE
    wire.end(producer)
    assert committed(wire) == (E.NONE, 5)


def test_offsets_need_a_transaction_that_has_them(wire: Wire) -> None:
    _, *who = wire.init()
    assert commit_in_transaction(wire, (who[0], who[1]), 5) == E.INVALID_TXN_STATE


def test_the_limit_of_a_groups_members_includes_the_expected_ones(make: Make) -> None:
    wire = make(settings=Settings(limits=Limits(members=2)))
    one = named(wire)
    named(wire)
    refused = join(wire)
    assert refused is not None
    assert refused["ErrorCode"] == E.GROUP_MAX_SIZE_REACHED
    wire.wait(SESSION + 1)  # the expected members did not come back
    assert join(wire, one, version=3) == {**refused, "ErrorCode": E.UNKNOWN_MEMBER_ID, "MemberId": one}
    named(wire)


def test_an_instance_of_a_full_group_may_start_again(make: Make) -> None:
    wire = make(settings=Settings(limits=Limits(members=2)))
    _, static = stable_with_instance(wire)
    again, refused = join(wire, GroupInstanceId="i"), join(wire, GroupInstanceId="j")
    assert again is not None
    assert refused is not None
    assert (again["ErrorCode"], refused["ErrorCode"]) == (E.NONE, E.GROUP_MAX_SIZE_REACHED)
    assert (static[:2], again["MemberId"][:2]) == ("i-", "i-"), "as in Kafka"


def test_a_member_of_another_kind_of_group_is_refused(wire: Wire) -> None:
    """Kafka: ClassicGroup.supportsProtocols."""
    alone(wire)
    row = {"GroupId": "g", "MemberId": "", "SessionTimeoutMs": SESSION, "ProtocolType": "connect"}
    protocols = [{"Name": "range", "Metadata": b"range"}]
    assert wire.ask("JoinGroup", 5, **row, Protocols=protocols)["ErrorCode"] == E.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("api", "version"), [("OffsetCommit", 8), ("TxnOffsetCommit", 3)])
def test_each_partition_of_a_request_has_its_own_offset_or_its_own_error(make: Make, api: str, version: int) -> None:
    wire = make(settings=Settings(internal_partitions=1))
    wire.topic(partitions=2)
    producer = producing(wire)
    who = {"TransactionalId": "x", "ProducerId": producer[0], "ProducerEpoch": producer[1]}

    def ask(*parts: tuple[str, int, int, str | None]) -> list[tuple[str, int, int]]:
        topics: dict[str, list[Message]] = {}
        for topic, number, offset, text in parts:
            row = {"PartitionIndex": number, "CommittedOffset": offset, "CommittedMetadata": text}
            topics.setdefault(topic, []).append(row)
        rows = [{"Name": name, "Partitions": each} for name, each in topics.items()]
        answer = wire.ask(api, version, GroupId="g", Topics=rows, **(who if api == "TxnOffsetCommit" else {}))
        return [(row["Name"], *part.values()) for row in answer["Topics"] for part in row["Partitions"]]

    found = ask(("t", 0, 5, None), ("t", 1, 6, "m"), ("t", 2, 7, ""), ("no", 0, 8, ""))
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [("t", 0, E.NONE), ("t", 1, E.NONE), ("t", 2, unknown), ("no", 0, unknown)]
    assert ask(("", 0, 1, "")) == [("", 0, unknown)]
    end = wire.fetch(CONSUMER_OFFSETS)["HighWatermark"]
    too_long = "x" * 5_000
    assert ask(("t", 0, 1, too_long), ("no", 0, 1, "")) == [("t", 0, E.OFFSET_METADATA_TOO_LARGE), ("no", 0, unknown)]
    assert wire.fetch(CONSUMER_OFFSETS)["HighWatermark"] == end, "nothing is written"
    stable = wire.fetch(CONSUMER_OFFSETS, committed=True)["LastStableOffset"]
    assert (stable < end) == (api == "TxnOffsetCommit")
    wire.end(producer)
    for version_of_fetch in (1, 7):
        asked = [{"Name": "t", "PartitionIndexes": [0, 1]}]
        [topic] = wire.ask("OffsetFetch", version_of_fetch, GroupId="g", Topics=asked)["Topics"]
        told = [(part["CommittedOffset"], part["Metadata"], part["ErrorCode"]) for part in topic["Partitions"]]
        assert told == [(5, "", E.NONE), (6, "m", E.NONE)]


def test_groups_are_listed_and_deleted_once_they_are_empty(wire: Wire) -> None:
    member = alone(wire)
    commit(wire, 2, member, 1)
    listed = wire.ask("ListGroups", 4, StatesFilter=["Stable"])["Groups"]
    assert [(group["GroupId"], group["ProtocolType"]) for group in listed] == [("g", "consumer")]
    assert wire.ask("DeleteGroups", 2, GroupsNames=["g"])["Results"][0]["ErrorCode"] == E.NON_EMPTY_GROUP
    wire.ask("LeaveGroup", 2, GroupId="g", MemberId=member)
    assert wire.ask("DeleteGroups", 2, GroupsNames=["g", "h"])["Results"] == [
        {"GroupId": "g", "ErrorCode": E.NONE},
        {"GroupId": "h", "ErrorCode": E.GROUP_ID_NOT_FOUND},
    ]
    assert committed(wire) == (E.NONE, -1)


PART = [{"Name": "t", "Partitions": [{"PartitionIndex": 0}]}]
DELETED: dict[str, Callable[[Wire], Message]] = {
    "group": lambda wire: wire.ask("DeleteGroups", 2, GroupsNames=["g"]),
    "offset": lambda wire: wire.ask("OffsetDelete", 0, GroupId="g", Topics=PART),
    "topic": lambda wire: wire.ask("DeleteTopics", 5, TopicNames=["t"], TimeoutMs=1_000),
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("first", [[], [1]], ids=["none is committed", "one is committed"])
@pytest.mark.parametrize("what", DELETED)
def test_a_pending_offset_that_is_deleted_does_not_come_back_with_the_marker(
    make: Make, tmp_path: Path, what: str, first: list[int], restarts: bool
) -> None:
    wire = make(storage=Directory(tmp_path))
    wire.topic()
    for offset in first:
        commit(wire, offset)
    producer = producing(wire)
    assert commit_in_transaction(wire, producer, 5) == E.NONE
    assert set(errors_in(DELETED[what](wire))) == {E.NONE}
    wire = make(storage=Directory(tmp_path)) if restarts else wire
    if what == "topic":
        wire.topic()
    assert committed(wire) == (E.NONE, -1)
    groups = wire.ask("ListGroups", 4, StatesFilter=[])["Groups"]
    assert [each["GroupId"] for each in groups] == ([] if what == "group" else ["g"])
    wire.end(producer)
    assert committed(wire) == (E.NONE, -1)


def test_of_several_pending_offsets_only_the_deleted_one_is_gone(wire: Wire) -> None:
    wire.topic("u")
    producer, other = producing(wire), [{"Name": "u", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 7}]}]
    commit_in_transaction(wire, producer, 5)
    who = {"TransactionalId": "x", "ProducerId": producer[0], "ProducerEpoch": producer[1], "GroupId": "g"}
    wire.ask("TxnOffsetCommit", 3, **who, MemberId="", Topics=other)
    DELETED["offset"](wire)
    assert [value.offset for value in wire.cluster.groups.known["g"].values.values()] == [7]
    wire.end(producer)
    assert committed(wire) == (E.NONE, -1)
    asked = [{"GroupId": "g", "Topics": [{"Name": "u", "PartitionIndexes": [0]}]}]
    [topic] = wire.ask("OffsetFetch", 8, Groups=asked, RequireStable=True)["Groups"][0]["Topics"]
    assert topic["Partitions"][0]["CommittedOffset"] == 7


def test_another_process_knows_the_offsets_and_what_is_pending(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic()
    member = alone(before)
    commit(before, 1, member, 1)
    producer = producing(before)
    commit_in_transaction(before, producer, 5, member, 1)
    after = make(storage=Directory(tmp_path))
    assert committed(after) == (E.UNSTABLE_OFFSET_COMMIT, -1)
    assert commit_in_transaction(after, producer, 6, member, 1) == E.NONE
    after.end(producer)
    assert committed(after) == (E.NONE, 6)
    third = make(storage=Directory(tmp_path))
    assert committed(third) == (E.NONE, 6)


def test_a_group_that_is_named_twice_is_deleted_and_answered_once(wire: Wire) -> None:
    commit(wire, 1)
    rows = wire.ask("DeleteGroups", 2, GroupsNames=["g", "h", "g"])["Results"]
    assert [(row["GroupId"], row["ErrorCode"]) for row in rows] == [("g", E.NONE), ("h", E.GROUP_ID_NOT_FOUND)]


def test_all_offsets_of_a_group_are_told_also_where_a_topic_is_gone(make: Make, tmp_path: Path) -> None:
    """Without its tombstones, as after a kill. A version with ids leaves the topic out.

    Kafka: KafkaApis.fetchAllOffsetsForGroup
    """
    before = make(storage=Directory(tmp_path))
    before.topic()
    commit(before, 5)
    before.cluster.close()
    shutil.rmtree(tmp_path / "t-0")
    after = make(storage=Directory(tmp_path))
    groups = [{"GroupId": "g", "Topics": None}]
    rows = {version: after.ask("OffsetFetch", version, Groups=groups)["Groups"][0]["Topics"] for version in (9, 10)}
    assert [(row["Name"], row["Partitions"][0]["CommittedOffset"]) for row in rows[9]] == [("t", 5)]
    assert rows[10] == []


def test_another_process_knows_an_offset_whole_and_none_that_was_deleted(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic()
    commit(before, 1, metadata="of one")
    asked = {"GroupId": "g", "Topics": [{"Name": "t", "PartitionIndexes": [0]}]}

    def fetched(wire: Wire) -> Message:
        part: Message = wire.ask("OffsetFetch", 8, Groups=[asked])["Groups"][0]["Topics"][0]["Partitions"][0]
        return {key: part[key] for key in ("CommittedOffset", "CommittedLeaderEpoch", "Metadata")}

    whole = {"CommittedOffset": 1, "CommittedLeaderEpoch": 3, "Metadata": "of one"}
    after = make(storage=Directory(tmp_path))
    assert fetched(before) == fetched(after) == whole
    after.ask("OffsetDelete", 0, GroupId="g", Topics=[{"Name": "t", "Partitions": [{"PartitionIndex": 0}]}])
    third = make(storage=Directory(tmp_path))
    assert fetched(third)["CommittedOffset"] == -1
    third.ask("DeleteGroups", 2, GroupsNames=["g"])
    assert make(storage=Directory(tmp_path)).ask("ListGroups", 4, StatesFilter=[])["Groups"] == []


def test_another_process_drops_the_offsets_of_an_aborted_transaction(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic()
    producer = producing(before)
    commit_in_transaction(before, producer, 5)
    before.end(producer, commit=False)
    assert committed(make(storage=Directory(tmp_path))) == (E.NONE, -1)


def test_another_process_knows_a_member_whole(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    row = join(before, GroupInstanceId="i")
    assert row is not None
    member = row["MemberId"]
    sync(before, member, 1, {member: b"all"})
    after = make(storage=Directory(tmp_path))
    group, known = after.cluster.groups.classic("g"), before.cluster.groups.classic("g")
    assert group is not None
    assert known is not None
    assert (group.leader, group.members[member].instance_id) == (member, "i")
    assert group.members[member].assignment == b"all"
    assert group.members[member].rebalance_ms == REBALANCE


@pytest.mark.parametrize(("version", "error"), [(1, E.COORDINATOR_NOT_AVAILABLE), (2, E.COORDINATOR_LOAD_IN_PROGRESS)])
def test_offsets_of_a_transaction_whose_coordinator_loads_are_refused_in_words_that_a_version_knows(
    wire: Wire, version: int, error: ErrorCode
) -> None:
    """Kafka: KafkaApis.handleTxnOffsetCommitRequest (KAFKA-7296)."""
    producer = producing(wire)
    wire.cluster.transactions.loading[wire.cluster.state_partition("x").name] = 1 << 62
    assert commit_in_transaction(wire, producer, 5, version=version) == error


def test_members_outlive_a_restart_until_their_session_ends(make: Make, tmp_path: Path) -> None:
    member = alone(make(storage=Directory(tmp_path)))
    after = make(storage=Directory(tmp_path))
    beat = {"GroupId": "g", "MemberId": member, "GenerationId": 1}
    assert after.ask("Heartbeat", 4, **beat)["ErrorCode"] == E.NONE
    assert after.ask("Heartbeat", 4, **beat | {"GenerationId": 2})["ErrorCode"] == E.ILLEGAL_GENERATION
    [group] = after.ask("DescribeGroups", 5, Groups=["g"])["Groups"]
    assert (group["GroupState"], [row["MemberId"] for row in group["Members"]]) == ("Stable", [member])
    after.wait(SESSION + 1)
    assert after.ask("Heartbeat", 4, **beat)["ErrorCode"] == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("rule", "mutant", "found"),
    [
        ("CommittedAtMarker", "MaterialisedOnAbort", (E.NONE, 5)),
        ("CommittedAtWrite", "PendingIsFound", (E.NONE, 5)),
    ],
)
def test_a_mutated_group_coordinator_is_noticed(
    make: Make, rule: str, mutant: str, found: tuple[ErrorCode, int]
) -> None:
    wire = make(machines=Machines(group=mutated(GroupCoordinator, {rule: mutant})))  # type: ignore[arg-type]
    wire.topic()
    producer = producing(wire)
    commit_in_transaction(wire, producer, 5)
    wire.end(producer, commit=False)
    assert committed(wire) == found


# --- static members (KIP-345) ----------------------------------------------------------------------------------------


def stable_with_instance(wire: Wire) -> tuple[str, str]:
    """A group of a leader and the instance "i" in generation 2; their member ids."""
    leader = alone(wire)
    assert join(wire, GroupInstanceId="i") is None
    assert join(wire, leader) is not None
    [late] = wire.late
    wire.late.clear()
    sync(wire, leader, 2, {leader: b"one", late["MemberId"]: b"two"})
    return leader, str(late["MemberId"])


def test_a_leader_stays_the_leader_when_another_member_leaves(wire: Wire) -> None:
    first = join(wire, GroupInstanceId="i")
    assert first is not None
    others = [named(wire), named(wire)]
    for member in others:
        assert join(wire, member) is None
    join(wire, first["MemberId"], GroupInstanceId="i")
    sync(wire, first["MemberId"], 2, {})
    again = join(wire, GroupInstanceId="i")
    assert again is not None
    left = wire.ask("LeaveGroup", 3, GroupId="g", Members=[{"MemberId": others[0]}])
    assert left["Members"][0]["ErrorCode"] == E.NONE
    assert join(wire, again["MemberId"], GroupInstanceId="i") is None
    row = join(wire, others[1])
    assert row is not None
    assert row["Leader"] == again["MemberId"]


@pytest.mark.parametrize("version", [5, 9])
def test_an_instance_that_starts_again_has_the_assignment_it_had_and_nobody_joins_again(
    wire: Wire, version: int
) -> None:
    leader, old = stable_with_instance(wire)
    again = join(wire, GroupInstanceId="i", version=version)
    assert again is not None
    assert (again["GenerationId"], again["Leader"], again["Members"]) == (2, leader, [])
    assert not again.get("SkipAssignment")
    assert beat(wire, leader, 2) == E.NONE
    synced = sync(wire, again["MemberId"], 2)
    assert synced is not None
    assert synced["Assignment"] == b"two"
    refused = join(wire, old, GroupInstanceId="i")
    assert refused is not None
    assert refused["ErrorCode"] == E.FENCED_INSTANCE_ID
    wire.wait(SESSION - 1)
    assert beat(wire, leader, 2) == E.NONE
    wire.wait(1)  # the session of the new one ends as any
    assert beat(wire, leader, 2) == E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(("version", "told_to_lead", "skips"), [(8, False, None), (9, True, True)])
def test_a_leader_that_starts_again_shall_not_assign(
    wire: Wire, version: int, told_to_lead: bool, skips: bool | None
) -> None:
    first = join(wire, GroupInstanceId="i")
    assert first is not None
    old = str(first["MemberId"])
    sync(wire, old, 1, {old: b"all"})
    again = join(wire, GroupInstanceId="i", version=version)
    assert again is not None
    leads = again["Leader"] == again["MemberId"]
    assert (leads, again["Leader"] == old, again.get("SkipAssignment")) == (told_to_lead, not told_to_lead, skips)
    assert bool(again["Members"]) == told_to_lead


def test_an_instance_that_starts_again_with_another_assignor_makes_all_join_again(wire: Wire) -> None:
    leader = named(wire)
    join(wire, leader, names=("range", "sticky"))
    sync(wire, leader, 1, {leader: b"all"})
    assert join(wire, GroupInstanceId="i", names=("range", "sticky")) is None
    join(wire, leader, names=("range", "sticky"))
    sync(wire, leader, 2, {})
    assert join(wire, GroupInstanceId="i", names=("sticky",)) is None
    assert beat(wire, leader, 2) == E.REBALANCE_IN_PROGRESS


def test_an_instance_that_starts_again_during_a_rebalance_is_answered_with_the_others(wire: Wire) -> None:
    leader, old = stable_with_instance(wire)
    other = named(wire)
    assert join(wire, other) is None
    assert join(wire, old, GroupInstanceId="i") is None
    assert join(wire, GroupInstanceId="i") is None  # once more, before the rebalance is over
    assert [(row["ErrorCode"], row["MemberId"]) for row in wire.late] == [(E.FENCED_INSTANCE_ID, old)]
    assert join(wire, leader) is not None
    assert [row["GenerationId"] for row in wire.late[1:]] == [3, 3]


def test_a_rebalance_keeps_instances_that_do_not_come_back_in_time(wire: Wire) -> None:
    _, old = stable_with_instance(wire)
    other = named(wire)
    assert join(wire, other) is None
    for _ in range(4):  # the instance is there, but busy; the leader is not
        wire.wait(REBALANCE // 4)
        beat(wire, old, 2)
    wire.wait(1)
    [row] = wire.late
    assert (row["GenerationId"], row["Leader"], len(row["Members"])) == (3, other, 2)
    assert beat(wire, old, 3) == E.NONE


def test_members_of_an_unknown_instance_are_unknown(wire: Wire) -> None:
    leader, _ = stable_with_instance(wire)
    answer = wire.ask("Heartbeat", 3, GroupId="g", GenerationId=2, MemberId=leader, GroupInstanceId="j")
    assert answer["ErrorCode"] == E.UNKNOWN_MEMBER_ID


def test_every_request_of_a_member_is_refused_for_the_same_reasons(make: Make) -> None:
    """Kafka: ClassicGroup.validateMember, validateOffsetCommit."""
    wire = make()
    wire.topic()
    leader, static = stable_with_instance(wire)
    producer = producing(wire)
    part = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}
    topics = {"Topics": [{"Name": "t", "Partitions": [part]}]}
    transaction = {"TransactionalId": "x", "ProducerId": producer[0], "ProducerEpoch": producer[1]}
    apis: dict[str, tuple[int, str, Message]] = {
        "Heartbeat": (4, "GenerationId", {}),
        "SyncGroup": (4, "GenerationId", {"Assignments": []}),
        "OffsetCommit": (8, "GenerationIdOrMemberEpoch", topics),
        "TxnOffsetCommit": (3, "GenerationIdOrMemberEpoch", topics | transaction),
    }

    def errors(group: str, member: str, generation: int, instance: str | None) -> list[set[int]]:
        who = {"GroupId": group, "MemberId": member, "GroupInstanceId": instance}
        rows = (
            wire.ask(api, version, **more, **who, **{name: generation}) for api, (version, name, more) in apis.items()
        )
        return [set(errors_in(row)) for row in rows]

    unknown, illegal = E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION
    assert errors("no", leader, 2, None)[:3] == [{unknown}, {unknown}, {illegal}]
    for member, generation, instance, error in (
        ("nobody", 2, None, unknown),
        (leader, 1, None, illegal),
        (leader, 3, None, illegal),
        (leader, 2, "i", E.FENCED_INSTANCE_ID),
        (leader, 2, "j", unknown),
        (static, 2, "i", E.NONE),
        (leader, 2, None, E.NONE),
    ):
        assert errors("g", member, generation, instance) == [{error}] * 4, (member, generation, instance)
    nobody = errors("g", "", -1, None)
    assert nobody[2:] == [{unknown}, {E.NONE}], "offsets of a transaction need no member (KIP-447)"
    for half, error in ((("", 2, None), unknown), ((leader, -1, None), illegal), (("", -1, "i"), E.FENCED_INSTANCE_ID)):
        assert errors("g", *half) == [{error}] * 4, half


def test_a_member_that_leaves_is_answered_by_its_id_or_its_instance(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.classicGroupLeaveToClassicGroup."""
    leader, _ = stable_with_instance(wire)
    asked = {
        ("nobody", None): E.UNKNOWN_MEMBER_ID,
        ("", "j"): E.UNKNOWN_MEMBER_ID,
        (leader, "i"): E.FENCED_INSTANCE_ID,
        (named(wire), None): E.NONE,
        ("", "i"): E.NONE,
        (leader, None): E.NONE,
    }
    members = [{"MemberId": member, "GroupInstanceId": instance} for member, instance in asked]
    rows = wire.ask("LeaveGroup", 5, GroupId="g", Members=members)["Members"]
    assert {(row["MemberId"], row["GroupInstanceId"]): row["ErrorCode"] for row in rows} == asked
    [group] = wire.ask("DescribeGroups", 5, Groups=["g"])["Groups"]
    assert (group["GroupState"], group["Members"]) == ("Empty", [])
    for name in ("g", "no"):
        assert wire.ask("LeaveGroup", 2, GroupId=name, MemberId=leader)["ErrorCode"] == E.UNKNOWN_MEMBER_ID


def test_members_that_wait_are_told_when_a_rebalance_begins_or_goes_on_without_them(wire: Wire) -> None:
    first, second, third = alone(wire), named(wire), named(wire)
    join(wire, second)
    join(wire, third)
    join(wire, first)
    wire.late.clear()
    assert sync(wire, second, 2) is None
    assert join(wire, GroupInstanceId="i") is None
    assert [row["ErrorCode"] for row in wire.late] == [E.REBALANCE_IN_PROGRESS], "of the sync"
    synced = sync(wire, first, 2, {first: b"late"})
    assert synced is not None
    assert (synced["ErrorCode"], synced["Assignment"]) == (E.REBALANCE_IN_PROGRESS, b"")
    assert join(wire, third) is None
    assert wire.ask("LeaveGroup", 3, GroupId="g", Members=[{"MemberId": third}])["Members"][0]["ErrorCode"] == E.NONE
    assert [row["ErrorCode"] for row in wire.late[1:]] == [E.UNKNOWN_MEMBER_ID], "of the join"
    assert join(wire, first) is None
    wire.ask("LeaveGroup", 3, GroupId="g", Members=[{"MemberId": second}])
    assert [row["GenerationId"] for row in wire.late[2:]] == [3, 3], "nobody else was waited for"
    assert sync(wire, wire.late[3]["MemberId"], 3) is None
    wire.late.clear()
    assert join(wire, GroupInstanceId="i") is None
    assert [row["ErrorCode"] for row in wire.late] == [E.FENCED_INSTANCE_ID], "of the sync"


def test_a_member_that_joins_again_is_not_silent_and_one_that_only_syncs_again_is(wire: Wire) -> None:
    leader = alone(wire)
    wire.wait(SESSION - 1)
    row = join(wire, leader)
    assert row is not None
    wire.wait(SESSION - 1)
    assert sync(wire, leader, 2, {}) is not None
    wire.wait(SESSION - 1)
    assert beat(wire, leader, 2) == E.NONE
    wire.wait(SESSION - 1)
    assert sync(wire, leader, 2) is not None
    wire.wait(1)
    assert beat(wire, leader, 2) == E.UNKNOWN_MEMBER_ID


def test_the_end_of_an_earlier_rebalance_does_not_end_a_later_one(wire: Wire) -> None:
    first = alone(wire)  # its rebalance would have ended after REBALANCE
    for _ in range(3):
        wire.wait(SESSION - 1)
        assert beat(wire, first, 1) == E.NONE
    second = named(wire)
    assert join(wire, second) is None
    wire.wait(SESSION - 1)
    assert not wire.late
    assert beat(wire, first, 1) == E.REBALANCE_IN_PROGRESS
    assert join(wire, first) is not None


def test_a_rebalance_in_which_nobody_has_joined_waits_for_an_instance_that_is_alive(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.completeClassicGroupJoin."""
    leader, static = stable_with_instance(wire)
    wire.ask("LeaveGroup", 3, GroupId="g", Members=[{"MemberId": leader}])

    def beats(count: int) -> None:
        for _ in range(count):
            wire.wait(REBALANCE // 4)
            assert beat(wire, static, 2) == E.REBALANCE_IN_PROGRESS

    beats(5)
    assert join(wire, GroupInstanceId="j") is None
    beats(2)
    assert not wire.late, "a rebalance begins to wait again when it has ended without anybody"
    wire.wait(REBALANCE // 4)
    [row] = wire.late
    assert (row["GenerationId"], row["Leader"], len(row["Members"])) == (3, row["MemberId"], 2)


def test_an_instance_that_starts_again_before_it_has_synced_begins_the_next_generation(wire: Wire) -> None:
    first, again = join(wire, GroupInstanceId="i"), join(wire, GroupInstanceId="i")
    assert first is not None
    assert again is not None
    assert [row["GenerationId"] for row in (first, again)] == [1, 2]
    assert (again["Leader"], [member["GroupInstanceId"] for member in again["Members"]]) == (again["MemberId"], ["i"])


def test_another_process_knows_an_instance_that_has_started_again_and_that_all_have_left(
    make: Make, tmp_path: Path
) -> None:
    before = make(storage=Directory(tmp_path))
    first = join(before, GroupInstanceId="i")
    assert first is not None
    sync(before, first["MemberId"], 1, {first["MemberId"]: b"all"})
    again = join(before, GroupInstanceId="i", version=9)
    assert again is not None
    after = make(storage=Directory(tmp_path))
    assert beat(after, again["MemberId"], 1) == E.NONE
    assert beat(after, first["MemberId"], 1) == E.UNKNOWN_MEMBER_ID
    after.ask("LeaveGroup", 3, GroupId="g", Members=[{"MemberId": again["MemberId"]}])
    [group] = make(storage=Directory(tmp_path)).ask("DescribeGroups", 5, Groups=["g"])["Groups"]
    assert [group[name] for name in ("GroupState", "ProtocolType", "ProtocolData", "Members")] == [
        "Empty",
        "consumer",
        "",
        [],
    ]


def test_another_process_tells_the_same_of_a_group(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic()
    leader, _ = stable_with_instance(before)
    before.wait(5)
    assert commit(before, 7, leader, 2, metadata="said") == E.NONE
    after = make(storage=Directory(tmp_path))
    asked = [{"GroupId": "g", "Topics": None}]
    for api, version, row in (("DescribeGroups", 5, {"Groups": ["g"]}), ("OffsetFetch", 9, {"Groups": asked})):
        assert after.ask(api, version, **row) == before.ask(api, version, **row)
    [offset] = after.cluster.groups.known["g"].values.values()
    assert offset == CommittedOffset(7, 3, "said", NOW + 5, before.cluster.topics["t"].topic_id)
    after.wait(SESSION - 1)
    assert beat(after, leader, 2) == E.NONE
    assert join(after, leader) is None
    after.wait(1)  # the instance has been silent
    [row] = after.late
    assert len(row["Members"]) == 1


def test_a_group_keeps_no_offset_that_no_longer_counts(wire: Wire) -> None:
    producer = producing(wire)
    for offset in range(3):
        assert commit(wire, offset) == commit_in_transaction(wire, producer, offset) == E.NONE
    group = wire.cluster.groups.known["g"]
    assert sorted(each.offset for each in group.values.values()) == [2, 2]
    wire.end(producer)
    assert [each.offset for each in group.values.values()] == [2]


def test_a_marker_ends_what_is_pending_in_its_partition_alone(make: Make) -> None:
    wire = make(settings=Settings(internal_partitions=2))
    wire.topic()
    of = {wire.cluster.offsets_partition(name).partition: name for name in "abcdef"}
    _, *who = wire.init()
    asked = {"TransactionalId": "x", "ProducerId": who[0], "ProducerEpoch": who[1]}
    part = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}
    for name in of.values():
        wire.ask("AddOffsetsToTxn", 3, **asked, GroupId=name)
        wire.ask("TxnOffsetCommit", 2, **asked, GroupId=name, Topics=[{"Name": "t", "Partitions": [part]}])
    marker = {"ProducerId": who[0], "ProducerEpoch": who[1], "TransactionResult": True, "CoordinatorEpoch": 0}
    topics = [{"Name": CONSUMER_OFFSETS, "PartitionIndexes": [0]}]
    wire.ask("WriteTxnMarkers", 1, Markers=[marker | {"Topics": topics}])

    def found(name: str) -> int:
        row = wire.ask("OffsetFetch", 7, GroupId=name, Topics=[{"Name": "t", "PartitionIndexes": [0]}])
        return int(row["Topics"][0]["Partitions"][0]["CommittedOffset"])

    assert [found(of[number]) for number in (0, 1)] == [1, -1]


def test_an_id_that_a_dynamic_member_was_given_is_no_instances(wire: Wire) -> None:
    """The expected answers are Kafka's: see test_beside_kafka.py."""
    member = named(wire)
    refused, joined = join(wire, member, GroupInstanceId="i"), join(wire, member)
    assert refused is not None
    assert (refused["ErrorCode"], refused["MemberId"]) == (E.UNKNOWN_SERVER_ERROR, "")
    assert joined is not None
    assert (joined["ErrorCode"], joined["MemberId"], joined["GenerationId"]) == (E.NONE, member, 1)


def test_a_group_needs_a_name_and_a_sync_the_protocol_of_the_group(wire: Wire) -> None:
    member = alone(wire)
    for api, more in (
        ("Heartbeat", {"GenerationId": 1, "MemberId": member}),
        ("SyncGroup", {"GenerationId": 1, "MemberId": member, "Assignments": []}),
        ("LeaveGroup", {"Members": []}),
    ):
        assert wire.ask(api, 3, GroupId="", **more)["ErrorCode"] == E.INVALID_GROUP_ID
    row: Message = {"GroupId": "g", "GenerationId": 1, "MemberId": member, "Assignments": []}
    right = {"ProtocolType": "consumer", "ProtocolName": "range"}
    for wrong in (
        {"ProtocolName": "sticky"},
        {"ProtocolType": "connect"},
        {"ProtocolName": None},
        {"ProtocolType": None},
    ):
        assert wire.ask("SyncGroup", 5, **(row | right | wrong))["ErrorCode"] == E.INCONSISTENT_GROUP_PROTOCOL
    assert wire.ask("SyncGroup", 5, **(row | right))["ErrorCode"] == E.NONE
    assert wire.ask("SyncGroup", 4, **row)["ErrorCode"] == E.NONE, "the versions before have no place for the protocol"


def test_a_group_is_described_with_what_members_said_only_when_it_is_stable(wire: Wire) -> None:
    member = named(wire)
    join(wire, member)
    [group] = wire.ask("DescribeGroups", 5, Groups=["g"])["Groups"]
    assert (group["GroupState"], group["ProtocolData"], group["Members"][0]["MemberMetadata"]) == (
        "CompletingRebalance",
        "",
        b"",
    )


def test_a_classic_group_is_told_whole(wire: Wire) -> None:
    """Kafka: JoinGroupResponse, SyncGroupResponse, DescribeGroupsResponse, ListGroupsResponse."""
    leader, static = stable_with_instance(wire)
    of = {"ClientId": "client", "ClientHost": "/127.0.0.1", "MemberMetadata": b"range"}
    members = [
        {"MemberId": leader, "GroupInstanceId": None, "MemberAssignment": b"one"},
        {"MemberId": static, "GroupInstanceId": "i", "MemberAssignment": b"two"},
    ]
    group = {"ErrorCode": E.NONE, "ErrorMessage": None, "GroupId": "g", "GroupState": "Stable"}
    group |= {"ProtocolType": "consumer", "ProtocolData": "range", "Members": [of | member for member in members]}
    for asked, operations in ((False, -(1 << 31)), (True, 3400)):
        answer = wire.ask("DescribeGroups", 6, Groups=["g"], IncludeAuthorizedOperations=asked)
        assert answer == {"ThrottleTimeMs": 0, "Groups": [group | {"AuthorizedOperations": operations}]}
    listed = {"GroupId": "g", "ProtocolType": "consumer", "GroupState": "Stable", "GroupType": "classic"}
    assert wire.ask("ListGroups", 5, TypesFilter=["CLASSIC"])["Groups"] == [listed]
    assert join(wire, leader, version=9) is None
    joined = join(wire, static, version=9, GroupInstanceId="i")
    [led] = wire.late
    told = {"ThrottleTimeMs": 0, "ErrorCode": E.NONE, "GenerationId": 3, "ProtocolType": "consumer"}
    told |= {"ProtocolName": "range", "Leader": leader, "SkipAssignment": False}
    rows = [
        {"MemberId": who, "GroupInstanceId": each, "Metadata": b"range"}
        for who, each in ((leader, None), (static, "i"))
    ]
    assert joined == told | {"MemberId": static, "Members": []}
    assert led == told | {"MemberId": leader, "Members": rows}
    sync(wire, leader, 3, {leader: b"1", static: b"2"})
    row: Message = {"GroupId": "g", "GenerationId": 3, "MemberId": static, "Assignments": [], "GroupInstanceId": "i"}
    names = {"ProtocolType": "consumer", "ProtocolName": "range"}
    expected = {"ThrottleTimeMs": 0, "ErrorCode": E.NONE, "Assignment": b"2", **names}
    assert wire.ask("SyncGroup", 5, **row, **names) == expected


def test_a_group_is_described_with_its_last_assignment_until_there_is_another(wire: Wire) -> None:
    """As in Kafka: see test_beside_kafka.py."""
    member = alone(wire)
    join(wire, member, names=("sticky", "range"))
    [group] = wire.ask("DescribeGroups", 5, Groups=["g"])["Groups"]
    [described] = group["Members"]
    assert (group["GroupState"], described["MemberAssignment"]) == ("CompletingRebalance", b"all")


def test_a_member_is_described_with_the_id_and_the_host_of_its_client(wire: Wire) -> None:
    alone(wire)
    [group] = wire.ask("DescribeGroups", 5, Groups=["g"])["Groups"]
    assert [(row["ClientId"], row["ClientHost"]) for row in group["Members"]] == [("client", "/127.0.0.1")]


@pytest.mark.parametrize(
    ("version", "error", "why"), [(5, E.NONE, None), (6, E.GROUP_ID_NOT_FOUND, "Group h not found.")]
)
def test_an_unknown_group_is_dead_and_since_version_6_also_an_error(
    wire: Wire, version: int, error: ErrorCode, why: str | None
) -> None:
    """KIP-1043; Kafka: GroupMetadataManager.describeGroups."""
    [group] = wire.ask("DescribeGroups", version, Groups=["h"])["Groups"]
    assert (group["GroupState"], group["ErrorCode"], group.get("ErrorMessage")) == ("Dead", error, why)


@pytest.mark.parametrize("given", [{"ProtocolType": ""}, {"Protocols": []}])
def test_a_member_without_a_protocol_is_refused_also_by_an_empty_group(wire: Wire, given: Message) -> None:
    """Kafka: ClassicGroup.supportsProtocols."""
    row: Message = {"GroupId": "g", "SessionTimeoutMs": SESSION, "MemberId": "", "ProtocolType": "consumer"}
    row |= {"Protocols": [{"Name": "range", "Metadata": b""}]}
    assert wire.ask("JoinGroup", 3, **(row | given))["ErrorCode"] == E.INCONSISTENT_GROUP_PROTOCOL


def test_offsets_of_members_that_are_no_consumers_cannot_be_deleted(wire: Wire) -> None:
    """Kafka: ClassicGroup.validateOffsetDelete."""
    protocols = [{"Name": "range", "Metadata": b""}]
    row: Message = {"GroupId": "g", "SessionTimeoutMs": SESSION, "MemberId": "", "ProtocolType": "connect"}
    member = wire.ask("JoinGroup", 3, **row, Protocols=protocols)["MemberId"]
    assert DELETED["offset"](wire)["ErrorCode"] == E.NON_EMPTY_GROUP
    wire.ask("LeaveGroup", 2, GroupId="g", MemberId=member)
    assert DELETED["offset"](wire)["ErrorCode"] == E.NONE


def test_a_member_that_waits_to_join_need_not_know_the_assignor_of_the_generation_before_it(wire: Wire) -> None:
    row = join(wire, names=("sticky", "range"), version=3)
    assert row is not None
    sync(wire, str(row["MemberId"]), 1, {str(row["MemberId"]): b"all"})
    assert join(wire, names=("range",), version=3) is None
    part = DELETED["offset"](wire)["Topics"][0]["Partitions"][0]
    assert part["ErrorCode"] == E.GROUP_SUBSCRIBED_TO_TOPIC, "what such members say cannot be read"


@pytest.mark.parametrize(
    ("generation", "member", "error"),
    [(-1, "", E.NONE), (-1, "m", E.NONE), (0, "", E.ILLEGAL_GENERATION), (1, "m", E.ILLEGAL_GENERATION)],
)
def test_only_requests_without_generation_commit_offsets_of_an_unknown_group(
    make: Make, generation: int, member: str, error: ErrorCode
) -> None:
    """Kafka: OffsetMetadataManager.validateOffsetCommit, validateTransactionalOffsetCommit."""
    answers = {"OffsetCommit 8": commit, "OffsetCommit 9": partial(commit, version=9)}
    told = {}
    for name, ask in answers.items():
        wire = make()
        wire.topic()
        told[name] = ask(wire, 1, member, generation)
    wire = make()
    wire.topic()
    told["TxnOffsetCommit"] = commit_in_transaction(wire, producing(wire), 1, member, generation)
    wire = make()
    wire.topic()
    told["TxnOffsetCommit 6"] = commit_in_transaction(wire, producing(wire), 1, member, generation, version=6)
    newer = E.GROUP_ID_NOT_FOUND if error else E.NONE
    expected = {"OffsetCommit 8": error, "OffsetCommit 9": newer, "TxnOffsetCommit": error, "TxnOffsetCommit 6": newer}
    assert told == expected


def test_only_requests_without_generation_commit_offsets_of_an_empty_group(wire: Wire) -> None:
    """Kafka: ClassicGroup.validateOffsetCommit."""
    assert commit(wire, 1) == E.NONE
    assert commit(wire, 2, generation=0) == E.UNKNOWN_MEMBER_ID
    assert committed(wire) == (E.NONE, 1)


def test_another_process_knows_the_groups_of_every_partition_that_have_had_offsets(make: Make, tmp_path: Path) -> None:
    wire = make(storage=Directory(tmp_path))
    names = {*map(str, range(8))}
    for name in names:
        wire.cluster.groups.commit(name, [("t", 0, CommittedOffset(1, -1, "", NOW))])
        wire.cluster.groups.delete_offsets(name, ["t-0"])
    assert make(storage=Directory(tmp_path)).cluster.groups.known.keys() == names


def test_the_groups_of_a_coordinator_that_moves_are_told_and_no_others(make: Make) -> None:
    wire = make(2)
    for name in map(str, range(8)):
        wire.cluster.groups.commit(name, [("t", 0, CommittedOffset(1, -1, "", NOW))])
    told: list[str] = []

    def happened(action: str, node: int, **columns: Any) -> None:
        told.append(columns.get("group", action))

    wire.cluster.happened = happened
    wire.cluster.move_leader(CONSUMER_OFFSETS, 0, 2)
    moved = [name for name in wire.cluster.groups.known if wire.cluster.offsets_partition(name).partition == 0]
    assert told == ["LeaderChange", *moved]
    assert 0 < len(moved) < 8


def test_the_metadata_of_an_offset_has_a_length(wire: Wire) -> None:
    """Kafka: offset.metadata.max.bytes."""
    assert [commit(wire, 1, metadata="m" * size) for size in (4096, 4097)] == [E.NONE, E.OFFSET_METADATA_TOO_LARGE]
