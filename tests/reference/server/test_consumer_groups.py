"""Consumer groups of KIP-848."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.consumer_group import ConsumerGroup
from kafka_eos.server.cluster import Machines, Settings
from kafka_eos.server.consumer_groups import Follower, assigned, ranges
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.mutants.rules import mutated

from .conftest import Make, Wire, errors_in

E = ErrorCode
Parts = set[int] | None


def beat(wire: Wire, member: str, epoch: int, owned: Parts = None, **more: Any) -> Message:
    """Send a heartbeat; the first one subscribes to "t"."""
    topic = wire.cluster.topics["t"].topic_id
    row = {"SubscribedTopicNames": ["t"], "RebalanceTimeoutMs": 5_000} if epoch == 0 else {}
    owned = set() if epoch == 0 else owned
    parts = None if owned is None else [{"TopicId": topic, "Partitions": sorted(owned)}] if owned else []
    return wire.ask(
        "ConsumerGroupHeartbeat",
        1,
        GroupId="g",
        MemberId=member,
        MemberEpoch=epoch,
        TopicPartitions=parts,
        **(row | more),
    )


def parts(row: Message) -> Parts:
    """The partitions of an assignment; None if there is none."""
    if row["Assignment"] is None:
        return None
    return {number for topic in row["Assignment"]["TopicPartitions"] for number in topic["Partitions"]}


@pytest.fixture
def wire(make: Make) -> Wire:
    made = make()
    made.topic(partitions=4)
    return made


def test_the_only_member_gets_every_partition_at_once_and_is_told_once_unless_it_says_all(wire: Wire) -> None:
    row = beat(wire, "a", 0)
    assert (row["ErrorCode"], row["MemberId"], row["MemberEpoch"], parts(row)) == (E.NONE, "a", 2, {0, 1, 2, 3})
    assert row["HeartbeatIntervalMs"] == 1_000
    assert parts(beat(wire, "a", 2)) is None
    whole = beat(wire, "a", 2, {0, 1, 2, 3}, SubscribedTopicNames=["t"], RebalanceTimeoutMs=5_000)
    assert parts(whole) == {0, 1, 2, 3}, "who says everything is told everything"
    everything = {"SubscribedTopicNames": ["t"], "RebalanceTimeoutMs": 5_000}
    for lacking in everything:
        assert (
            parts(beat(wire, "a", 2, {0, 1, 2, 3}, **{n: each for n, each in everything.items() if n != lacking}))
            is None
        )
    assert parts(beat(wire, "a", 2, None, **everything)) is None
    assert parts(beat(wire, "a", 0)) == {0, 1, 2, 3}, "who joins again is told"


def test_partitions_are_given_when_they_were_given_up(wire: Wire) -> None:
    beat(wire, "a", 0)
    joined = beat(wire, "b", 0)
    assert (joined["MemberEpoch"], parts(joined)) == (3, set())
    revoking = beat(wire, "a", 2, {0, 1, 2, 3})
    kept = parts(revoking)
    assert (revoking["MemberEpoch"], len(kept or ())) == (2, 2)
    silent = beat(wire, "a", 2)  # it does not say what it has: the same as before
    assert (silent["ErrorCode"], silent["MemberEpoch"], parts(silent)) == (E.NONE, 2, None)
    assert parts(beat(wire, "b", 3)) is None  # not yet
    assert beat(wire, "a", 2, kept)["MemberEpoch"] == 3
    listed = [wire.ask("ListGroups", 5)["Groups"][0]["GroupState"]]
    given = beat(wire, "b", 3)
    listed += [wire.ask("ListGroups", 5)["Groups"][0]["GroupState"]]
    wire.topic("s")
    beat(wire, "c", 0, SubscribedTopicNames=["s"])  # which changes nothing for the others but the epoch
    listed += [wire.ask("ListGroups", 5)["Groups"][0]["GroupState"]]
    assert listed == ["Reconciling", "Stable", "Reconciling"]
    assert (beat(wire, "a", 3)["MemberEpoch"], beat(wire, "b", 3)["MemberEpoch"]) == (4, 4)
    assert parts(given) == {0, 1, 2, 3} - (kept or set())
    described = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g", "h"])["Groups"]
    assert [(group["GroupState"], group["ErrorCode"]) for group in described] == [
        ("Stable", E.NONE),
        ("", E.GROUP_ID_NOT_FOUND),
    ]


def test_a_member_with_another_epoch_is_fenced_unless_it_missed_an_answer(wire: Wire) -> None:
    beat(wire, "a", 0)
    assert beat(wire, "a", 3)["ErrorCode"] == E.FENCED_MEMBER_EPOCH
    assert beat(wire, "b", 5)["ErrorCode"] == E.UNKNOWN_MEMBER_ID
    beat(wire, "b", 0)
    kept = parts(beat(wire, "a", 2, {0, 1, 2, 3}))
    assert beat(wire, "a", 2, kept)["MemberEpoch"] == 3
    assert beat(wire, "a", 2, kept)["MemberEpoch"] == 3  # the answer before was lost
    for owned in ({0, 1, 2, 3}, None):
        assert beat(wire, "a", 2, owned)["ErrorCode"] == E.FENCED_MEMBER_EPOCH


def test_the_next_heartbeat_of_a_waiting_member_makes_its_epoch_the_previous_one_too(wire: Wire) -> None:
    """Kafka: CurrentAssignmentBuilder computes the assignment of such a member again."""
    beat(wire, "a", 0)
    beat(wire, "b", 0)
    group = wire.cluster.consumer_groups.find("g")
    assert group is not None
    assert group.followers["b"].previous_epoch == 0
    beat(wire, "b", 3)
    assert group.followers["b"].previous_epoch == 3
    beat(wire, "a", 2)  # without a list of its partitions: it may have all of them
    beat(wire, "a", 2, {0, 1, 2, 3})
    assert group.followers["a"].previous_epoch == 2


def test_the_partitions_of_a_member_that_leaves_go_to_the_other(wire: Wire) -> None:
    beat(wire, "a", 0)
    beat(wire, "b", 0)
    kept = parts(beat(wire, "a", 2, {0, 1, 2, 3}))
    beat(wire, "a", 2, kept)
    beat(wire, "b", 3)
    assert beat(wire, "a", -1)["ErrorCode"] == E.NONE
    assert parts(beat(wire, "b", 3)) == {0, 1, 2, 3}


def test_a_member_that_is_silent_or_does_not_give_up_is_removed(wire: Wire) -> None:
    beat(wire, "a", 0)
    beat(wire, "b", 0)
    wire.wait(1_500)
    beat(wire, "a", 2, {0, 1, 2, 3})  # and never gives up
    wire.wait(7_000)
    assert beat(wire, "a", 2)["ErrorCode"] == E.UNKNOWN_MEMBER_ID
    row = beat(wire, "b", 3)
    assert parts(row) == {0, 1, 2, 3}
    wire.wait(44_999)
    [group] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"])["Groups"]
    assert [member["MemberId"] for member in group["Members"]] == ["b"]
    wire.wait(1)
    assert beat(wire, "b", row["MemberEpoch"])["ErrorCode"] == E.UNKNOWN_MEMBER_ID


def test_an_operator_says_how_often_members_are_to_be_heard_of_and_how_long_they_may_be_silent(make: Make) -> None:
    wire = make(settings=Settings(consumer_heartbeat_ms=700, consumer_session_ms=2_000))
    wire.topic()
    row = beat(wire, "a", 0)
    assert row["HeartbeatIntervalMs"] == 700
    for milliseconds, error in ((1_999, E.NONE), (2_000, E.UNKNOWN_MEMBER_ID)):
        wire.wait(milliseconds)
        assert beat(wire, "a", 2)["ErrorCode"] == error


def test_a_member_that_may_take_no_time_to_give_up_is_removed_before_one_that_may(make: Make) -> None:
    """Kafka: ConsumerGroupMember.Builder.maybeUpdateRebalanceTimeoutMs takes any timeout but -1."""
    for later, removed in (({}, False), ({"RebalanceTimeoutMs": -1}, False), ({"RebalanceTimeoutMs": 0}, True)):
        wire = make()
        wire.topic(partitions=4)
        beat(wire, "a", 0, RebalanceTimeoutMs=20_000)
        beat(wire, "b", 0)
        beat(wire, "a", 2, {0, 1, 2, 3}, **later)  # and does not give up
        wire.wait(10_000)
        assert (beat(wire, "a", 2)["ErrorCode"] == E.UNKNOWN_MEMBER_ID) is removed, later


def test_topics_may_be_subscribed_to_by_a_pattern_and_come_later(wire: Wire) -> None:
    wire.topic("u", 6)
    row = beat(wire, "a", 0, SubscribedTopicNames=[], SubscribedTopicRegex="t.*")
    assert (row["MemberEpoch"], parts(row)) == (1, set())  # a pattern is resolved later
    wire.wait(1)
    row = beat(wire, "a", 1)
    assert (row["MemberEpoch"], parts(row)) == (2, {0, 1, 2, 3})
    wire.topic("t2", 2)
    row = beat(wire, "a", row["MemberEpoch"])
    assert [topic["Partitions"] for topic in row["Assignment"]["TopicPartitions"]] == [[0, 1, 2, 3], [0, 1]]


def test_a_pattern_is_resolved_at_once_for_who_comes_second_with_it(wire: Wire) -> None:
    beat(wire, "a", 0, SubscribedTopicNames=[], SubscribedTopicRegex="t.*")
    wire.wait(1)
    assert beat(wire, "a", 1)["MemberEpoch"] == 2
    assert beat(wire, "b", 0, SubscribedTopicNames=[], SubscribedTopicRegex="t.*")["MemberEpoch"] == 3
    wire.topic("u", 1)
    row = beat(wire, "c", 0, SubscribedTopicNames=[], SubscribedTopicRegex="u.*")
    epoch = row["MemberEpoch"]
    assert parts(row) == set()  # another pattern is resolved later
    wire.wait(1)
    row = beat(wire, "c", epoch)
    assert (row["MemberEpoch"], parts(row)) == (epoch + 1, {0})


def test_a_member_keeps_what_it_has_until_its_new_pattern_is_resolved(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.maybeUpdateRegularExpressions, which raises no epoch before."""
    wire.topic("u", 1)
    beat(wire, "a", 0, SubscribedTopicNames=[], SubscribedTopicRegex="t.*")
    wire.wait(1)
    assert parts(beat(wire, "a", 1)) == {0, 1, 2, 3}
    row = beat(wire, "a", 2, SubscribedTopicRegex="u.*")
    assert (row["MemberEpoch"], parts(row)) == (2, None)
    [group] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"])["Groups"]
    assert (group["GroupState"], group["GroupEpoch"], group["AssignmentEpoch"]) == ("Stable", 2, 2)
    wire.wait(1)
    row = beat(wire, "a", 2)
    assert (row["MemberEpoch"], parts(row)) == (2, set())
    row = beat(wire, "a", 2, set())
    names = [topic["TopicId"] for topic in row["Assignment"]["TopicPartitions"]]
    assert (row["MemberEpoch"], names) == (3, [wire.cluster.topics["u"].topic_id])


def test_a_group_of_consumers_and_its_members_are_told_whole(wire: Wire) -> None:
    """Kafka: ConsumerGroupHeartbeatResponse, ConsumerGroupDescribeResponse, ListGroupsResponse."""
    topic = wire.cluster.topics["t"].topic_id
    joined = beat(wire, "a", 0, InstanceId="i", RackId="r")
    assigned = {"TopicPartitions": [{"TopicId": topic, "Partitions": [0, 1, 2, 3]}]}
    assert joined == {
        "ThrottleTimeMs": 0,
        "ErrorCode": E.NONE,
        "ErrorMessage": None,
        "MemberId": "a",
        "MemberEpoch": 2,
        "HeartbeatIntervalMs": 1_000,
        "Assignment": assigned,
    }
    beat(wire, "b", 0, SubscribedTopicNames=["t", "s"], SubscribedTopicRegex="x.*", ServerAssignor="range")
    beat(wire, "a", 2, {0, 1, 2, 3}, InstanceId="i")

    def told(*numbers: int) -> Message:
        row = {"TopicId": topic, "TopicName": "t", "Partitions": list(numbers)}
        return {"TopicPartitions": [row] if numbers else []}

    client = {"ClientId": "client", "ClientHost": "/127.0.0.1", "MemberType": 1}
    group = {
        "ErrorCode": E.NONE,
        "ErrorMessage": None,
        "GroupId": "g",
        "GroupState": "Reconciling",
        "GroupEpoch": 3,
        "AssignmentEpoch": 3,
        "AssignorName": "range",
        "AuthorizedOperations": -(1 << 31),
    }
    first = {
        "MemberId": "a",
        "InstanceId": "i",
        "RackId": "r",
        "MemberEpoch": 2,
        "SubscribedTopicNames": ["t"],
        "SubscribedTopicRegex": "",
        "Assignment": told(0, 1, 2, 3),
        "TargetAssignment": told(0, 1),
    }
    second = {
        "MemberId": "b",
        "InstanceId": None,
        "RackId": None,
        "MemberEpoch": 3,
        "SubscribedTopicNames": ["s", "t"],
        "SubscribedTopicRegex": "x.*",
        "Assignment": told(),
        "TargetAssignment": told(2, 3),
    }
    for asked, operations in ((False, -(1 << 31)), (True, 3400)):
        answer = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"], IncludeAuthorizedOperations=asked)
        expected = group | {"AuthorizedOperations": operations, "Members": [client | first, client | second]}
        assert answer == {"ThrottleTimeMs": 0, "Groups": [expected]}
    nothing = {"GroupState": "", "AssignorName": "", "Members": [], "GroupEpoch": 0, "AssignmentEpoch": 0}
    for name, error in (("h", E.GROUP_ID_NOT_FOUND), ("", E.INVALID_GROUP_ID)):
        [row] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=[name])["Groups"]
        assert row == group | nothing | {"GroupId": name, "ErrorCode": error}
    listed = {"GroupId": "g", "ProtocolType": "consumer", "GroupState": "Reconciling", "GroupType": "consumer"}
    for row, found in (
        ({}, [listed]),
        ({"StatesFilter": ["reconciling"], "TypesFilter": ["Consumer"]}, [listed]),
        ({"StatesFilter": ["Stable"]}, []),
        ({"TypesFilter": ["classic"]}, []),
    ):
        assert wire.ask("ListGroups", 5, **row) == {"ThrottleTimeMs": 0, "ErrorCode": E.NONE, "Groups": found}
    assert beat(wire, "a", -2, InstanceId="i")["MemberEpoch"] == -2
    [away] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"])["Groups"]
    assert [member["MemberEpoch"] for member in away["Members"]] == [-2, 3]
    left = beat(wire, "b", -1)
    assert (left["MemberId"], left["MemberEpoch"], left["HeartbeatIntervalMs"]) == ("b", -1, 0)


def test_the_groups_of_another_broker_are_not_told(make: Make) -> None:
    wire = make(2)
    wire.topic()
    names = {wire.cluster.offsets_partition(name).node: name for name in "abcdefgh"}
    for node, name in names.items():
        row = {"GroupId": name, "MemberId": "m", "SubscribedTopicNames": ["t"], "RebalanceTimeoutMs": 5_000}
        row |= {"MemberEpoch": 0, "TopicPartitions": []}
        told = [wire.ask("ConsumerGroupHeartbeat", 1, each, **row)["ErrorCode"] for each in (3 - node, node)]
        assert told == [E.NOT_COORDINATOR, E.NONE]
    requests: list[tuple[str, int, Message]] = [
        ("ConsumerGroupDescribe", 1, {"GroupIds": [names[2]]}),
        ("DescribeGroups", 5, {"Groups": [names[2]]}),
        ("DeleteGroups", 2, {"GroupsNames": [names[2]]}),
        ("OffsetDelete", 0, {"GroupId": names[2], "Topics": []}),
        ("OffsetFetch", 8, {"Groups": [{"GroupId": names[2], "Topics": None}]}),
        ("JoinGroup", 5, {"GroupId": names[2], "SessionTimeoutMs": 6_000, "Protocols": []}),
        ("SyncGroup", 4, {"GroupId": names[2], "Assignments": []}),
        ("Heartbeat", 3, {"GroupId": names[2]}),
        ("LeaveGroup", 3, {"GroupId": names[2], "Members": []}),
    ]
    for api, version, asked in requests:
        assert max(errors_in(wire.ask(api, version, **asked))) == E.NOT_COORDINATOR, api
    for node, name in names.items():
        assert [row["GroupId"] for row in wire.ask("ListGroups", 5, node)["Groups"]] == [name]


def test_a_pattern_that_is_dropped_before_it_is_resolved_makes_a_new_epoch_at_once(wire: Wire) -> None:
    assert beat(wire, "a", 0)["MemberEpoch"] == 2
    for pattern, epoch in (("u.*", 2), ("v.*", 2), ("", 3)):
        assert beat(wire, "a", 2, SubscribedTopicRegex=pattern)["MemberEpoch"] == epoch
    wire.topic("u")
    wire.wait(1)
    assert parts(beat(wire, "a", 3, set(), RebalanceTimeoutMs=5_000, SubscribedTopicNames=["t"])) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("pattern", "is_accepted"),
    [("t|u", True), (r"(?P<n>\d+)\+", True), ("a{2,}?", True), ("[*+]+", True)]
    + [(text, False) for text in ("(", "[", r"(a)\1", "(?=t)t", "(?<!a)t", "(?P<n>a)(?P=n)", "t++", "(?>t)")],
)
def test_patterns_are_those_that_python_and_re2_agree_on(wire: Wire, pattern: str, is_accepted: bool) -> None:
    row = beat(wire, "b", 0, SubscribedTopicNames=[], SubscribedTopicRegex=pattern)
    assert row["ErrorCode"] == (E.NONE if is_accepted else E.INVALID_REGULAR_EXPRESSION)


def commit(wire: Wire, member: str, epoch: int, offset: int = 5, partition: int = 0) -> int:
    topic = {"TopicId": wire.cluster.topics["t"].topic_id}
    part = {"PartitionIndex": partition, "CommittedOffset": offset, "CommittedMetadata": ""}
    row = wire.ask(
        "OffsetCommit",
        10,
        GroupId="g",
        MemberId=member,
        GenerationIdOrMemberEpoch=epoch,
        Topics=[topic | {"Partitions": [part]}],
    )
    return int(row["Topics"][0]["Partitions"][0]["ErrorCode"])


def test_offsets_are_taken_from_members_with_their_epoch(wire: Wire) -> None:
    beat(wire, "a", 0)
    assert commit(wire, "a", 2) == E.NONE
    assert commit(wire, "a", 1) == E.STALE_MEMBER_EPOCH
    assert commit(wire, "b", 2) == commit(wire, "", -1) == E.UNKNOWN_MEMBER_ID
    asked: Message = {"GroupId": "g", "MemberId": "a", "MemberEpoch": 2, "Topics": None}
    [group] = wire.ask("OffsetFetch", 10, Groups=[asked])["Groups"]
    assert group["Topics"][0]["Partitions"][0]["CommittedOffset"] == 5
    expected = {
        ("a", 1): E.STALE_MEMBER_EPOCH,
        ("a", -1): E.STALE_MEMBER_EPOCH,
        (None, 2): E.UNKNOWN_MEMBER_ID,
        (None, -1): E.NONE,  # who is no member may read
    }
    for (member, epoch), error in expected.items():
        [group] = wire.ask("OffsetFetch", 10, Groups=[asked | {"MemberId": member, "MemberEpoch": epoch}])["Groups"]
        assert group["ErrorCode"] == error


def test_who_is_no_member_commits_offsets_of_an_empty_group_or_in_a_transaction(wire: Wire) -> None:
    """Kafka: ConsumerGroup.validateOffsetCommit."""
    beat(wire, "a", 0)
    _, producer_id, producer_epoch = wire.init()
    who = {"TransactionalId": "x", "GroupId": "g", "ProducerId": producer_id, "ProducerEpoch": producer_epoch}
    topics = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "CommittedOffset": 5}]}]
    answer = wire.ask("TxnOffsetCommit", 5, **who, MemberId="", GenerationIdOrMemberEpoch=-1, Topics=topics)
    assert answer["Topics"][0]["Partitions"][0]["ErrorCode"] == E.NONE
    assert commit(wire, "", -1) == E.UNKNOWN_MEMBER_ID
    beat(wire, "a", -1)
    assert [commit(wire, member, -1) for member in ("", "m")] == [E.NONE, E.NONE]


@pytest.mark.parametrize(("version", "error"), [(5, E.ILLEGAL_GENERATION), (6, E.STALE_MEMBER_EPOCH)])
def test_a_stale_epoch_in_a_transaction_is_told_as_such_from_version_6_on(
    wire: Wire, version: int, error: ErrorCode
) -> None:
    """Kafka: OffsetMetadataManager.validateTransactionalOffsetCommit of 4.4.0."""
    beat(wire, "a", 0)
    _, producer_id, producer_epoch = wire.init()
    topic = {"TopicId": wire.cluster.topics["t"].topic_id} if version >= 6 else {"Name": "t"}
    who = {"TransactionalId": "x", "GroupId": "g", "ProducerId": producer_id, "ProducerEpoch": producer_epoch}
    told = []
    for epoch in (1, 2):
        row = wire.ask(
            "TxnOffsetCommit",
            version,
            **who,
            MemberId="a",
            GenerationIdOrMemberEpoch=epoch,
            Topics=[topic | {"Partitions": [{"PartitionIndex": 0, "CommittedOffset": 5}]}],
        )
        told.append(row["Topics"][0]["Partitions"][0]["ErrorCode"])
    assert told == [error, E.NONE]


def commits(wire: Wire, partition: int, *epochs: int) -> list[int]:
    return [commit(wire, "a", epoch, partition=partition) for epoch in epochs]


def halved(wire: Wire) -> tuple[list[int], int]:
    """Member "a" has four partitions since epoch 2, gives two to "b", and is in epoch 3: those kept, one given up."""
    beat(wire, "a", 0)
    beat(wire, "b", 0)
    kept = parts(beat(wire, "a", 2, {0, 1, 2, 3})) or set()
    beat(wire, "a", 2, kept)
    return sorted(kept), min({0, 1, 2, 3} - kept)


def test_offsets_of_an_older_epoch_are_taken_for_partitions_assigned_since(wire: Wire) -> None:
    (kept, other), gone = halved(wire)
    assert commits(wire, kept, 1, 2, 3, 4) == [E.STALE_MEMBER_EPOCH, E.NONE, E.NONE, E.STALE_MEMBER_EPOCH]
    assert commits(wire, gone, 2, 3) == [E.STALE_MEMBER_EPOCH, E.NONE]
    beat(wire, "b", -1)
    beat(wire, "a", 3)
    assert commits(wire, kept, 2, 3, 4) == [E.NONE] * 3
    assert commits(wire, gone, 2, 3, 4) == [E.STALE_MEMBER_EPOCH, E.STALE_MEMBER_EPOCH, E.NONE]
    for member in "cde":
        beat(wire, member, 0)
    [left] = parts(beat(wire, "a", 4, {0, 1, 2, 3})) or set()
    giving_up = other if left == kept else kept
    assert commits(wire, giving_up, 1, 2, 3) == [E.STALE_MEMBER_EPOCH, E.NONE, E.NONE]


@pytest.mark.parametrize(
    ("rules", "kept_by_2", "given_back_by_2"),
    [
        ({"MemberEpochError": "OnlyLatestEpoch"}, E.STALE_MEMBER_EPOCH, E.STALE_MEMBER_EPOCH),  # Kafka 3.9
        ({"HasHadSince": "AssignmentEpochNotChecked"}, E.NONE, E.NONE),
        ({"EpochOfGiven": "AssignmentEpochStays"}, E.NONE, E.NONE),
    ],
    ids=str,
)
def test_a_group_with_another_rule_answers_an_older_epoch_otherwise(
    make: Make, rules: dict[str, str], kept_by_2: ErrorCode, given_back_by_2: ErrorCode
) -> None:
    wire = make(machines=Machines(consumer_group=mutated(ConsumerGroup, rules)))  # type: ignore[arg-type]
    wire.topic(partitions=4)
    (kept, _), gone = halved(wire)
    beat(wire, "b", -1)
    beat(wire, "a", 3)
    assert commits(wire, kept, 2) == [kept_by_2]
    assert commits(wire, gone, 2) == [given_back_by_2]


def test_a_mutated_group_takes_offsets_of_any_epoch(make: Make) -> None:
    machine = mutated(ConsumerGroup, {"MemberEpochError": "StaleEpochIsTaken"})
    wire = make(machines=Machines(consumer_group=machine))  # type: ignore[arg-type]
    wire.topic(partitions=4)
    beat(wire, "a", 0)
    assert commit(wire, "a", 0) == E.NONE


def test_a_group_changes_its_protocol_when_it_has_no_members_and_keeps_its_offsets(wire: Wire) -> None:
    def classic() -> int:
        protocols = [{"Name": "range", "Metadata": b""}]
        row = wire.send(
            "JoinGroup", 3, GroupId="g", SessionTimeoutMs=9_000, ProtocolType="consumer", Protocols=protocols
        )
        assert row is not None
        return int(row["ErrorCode"])

    beat(wire, "a", 0)
    commit(wire, "a", 2)
    assert classic() == E.INCONSISTENT_GROUP_PROTOCOL  # not a valid subscription
    beat(wire, "a", -1)
    listed = wire.ask("ListGroups", 5, TypesFilter=["consumer"])["Groups"]
    assert [(group["GroupId"], group["GroupType"], group["GroupState"]) for group in listed] == [
        ("g", "consumer", "Empty")
    ]
    assert classic() == E.NONE
    assert beat(wire, "a", 0)["ErrorCode"] == E.GROUP_ID_NOT_FOUND  # a classic group of another protocol type
    [group] = wire.ask("OffsetFetch", 8, Groups=[{"GroupId": "g", "Topics": None}])["Groups"]
    assert group["Topics"][0]["Partitions"][0]["CommittedOffset"] == 5


@given(
    members=st.sets(st.sampled_from("abcd"), min_size=1),
    count=st.integers(0, 9),
    before=st.dictionaries(st.integers(0, 8), st.sampled_from("abcde")),
)
def test_partitions_are_spread_evenly_and_stay_where_they_are_if_they_can(
    members: set[str], count: int, before: dict[int, str]
) -> None:
    wanted = {f"t-{number}": frozenset(members) for number in range(count)}
    found = assigned(wanted, {f"t-{number}": owner for number, owner in before.items()})
    assert found.keys() == wanted.keys()
    loads = [list(found.values()).count(member) for member in members]
    assert max(loads) - min(loads) <= 1
    assert assigned(wanted, found) == found


def test_no_more_members_than_is_even_keep_a_partition_more_than_others() -> None:
    wanted = {f"t-{number}": frozenset("abc") for number in range(4)}
    before = {"t-0": "a", "t-1": "a", "t-2": "b", "t-3": "b"}
    assert assigned(wanted, before) == before | {"t-3": "c"}


@given(
    wanted=st.dictionaries(
        st.sampled_from([f"t-{number}" for number in range(9)]), st.frozensets(st.sampled_from("abcd"), min_size=1)
    ),
    before=st.dictionaries(st.sampled_from([f"t-{number}" for number in range(9)]), st.sampled_from("abcde")),
)
def test_where_members_want_different_partitions_none_has_two_more_than_another_who_wants_one_of_them(
    wanted: dict[str, frozenset[str]], before: dict[str, str]
) -> None:
    found = assigned(wanted, before)
    assert found.keys() == wanted.keys()
    loads = Counter(found.values())
    for partition, owner in found.items():
        assert owner in wanted[partition]
        assert all(loads[owner] - loads[other] <= 1 for other in wanted[partition])
    assert assigned(wanted, found) == found


def test_a_member_gives_up_what_others_want_if_it_wants_more_than_they_do() -> None:
    wanted = {"t-0": frozenset("ab"), "t-1": frozenset("ab"), "u-0": frozenset("a"), "u-1": frozenset("a")}
    before = {"t-0": "a", "t-1": "a"}
    assert assigned(wanted, before) == {"t-0": "b", "t-1": "b", "u-0": "a", "u-1": "a"}


def test_no_heartbeat_moves_partitions_of_a_group_that_is_even_though_a_member_has_more_than_the_mean() -> None:
    before = {"t-0": "c", "t-1": "c", "u-0": "b", "v-0": "a", "v-1": "a", "v-2": "c"}
    wanted = {name: frozenset({"t": "c", "u": "ab", "v": "ac"}[name[0]]) for name in before}
    assert assigned(wanted, before) == before


@given(
    loads=st.integers(1, 3).flatmap(lambda least: st.lists(st.integers(least, least + 1), min_size=1, max_size=4)),
    rng=st.randoms(use_true_random=False),
)
def test_an_even_assignment_stays_as_it_is_and_a_new_member_takes_its_share_only(loads: list[int], rng: Random) -> None:
    owners = [member for member, load in zip("abcd", loads, strict=False) for _ in range(load)]
    rng.shuffle(owners)
    before = {f"t-{number}": owner for number, owner in enumerate(owners)}
    assert assigned(dict.fromkeys(before, frozenset(owners)), before) == before
    after = assigned(dict.fromkeys(before, frozenset({*owners, "new"})), before)
    assert {after[name] for name in before if after[name] != before[name]} <= {"new"}


# --- static members (KIP-345, KIP-848) -------------------------------------------------------------------------------


def test_an_instance_that_leaves_for_a_while_gets_its_partitions_back_as_another_member(wire: Wire) -> None:
    beat(wire, "a", 0, InstanceId="i")
    assert beat(wire, "b", 0, InstanceId="i")["ErrorCode"] == E.UNRELEASED_INSTANCE_ID
    assert beat(wire, "a", -2, InstanceId="i")["MemberEpoch"] == -2
    assert beat(wire, "a", 2, InstanceId="i")["ErrorCode"] == E.FENCED_MEMBER_EPOCH
    back = beat(wire, "b", 0, InstanceId="i")
    assert (back["MemberEpoch"], parts(back)) == (2, {0, 1, 2, 3})
    assert beat(wire, "a", 2, InstanceId="i")["ErrorCode"] == E.FENCED_INSTANCE_ID
    assert beat(wire, "a", -1, InstanceId="i")["ErrorCode"] == E.FENCED_INSTANCE_ID
    assert beat(wire, "b", 2, InstanceId="j")["ErrorCode"] == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("name", ["a", "c"])
def test_an_instance_that_is_back_has_no_epoch_before(wire: Wire, name: str) -> None:
    beat(wire, "a", 0, InstanceId="i")
    beat(wire, "b", 0)
    kept = parts(beat(wire, "a", 2, {0, 1, 2, 3}, InstanceId="i"))
    assert beat(wire, "a", 2, kept, InstanceId="i")["MemberEpoch"] == 3
    assert beat(wire, "a", 2, kept, InstanceId="i")["ErrorCode"] == E.NONE, "the answer before was lost"
    beat(wire, "a", -2, InstanceId="i")
    assert beat(wire, name, 0, InstanceId="i")["MemberEpoch"] == 3
    assert beat(wire, name, 2, kept, InstanceId="i")["ErrorCode"] == E.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("rules", "before_it_was_away"),
    [({}, E.STALE_MEMBER_EPOCH), ({"EpochAfterReturn": "ZeroAfterLeave"}, E.NONE)],  # as in Kafka 4.3
    ids=str,
)
def test_an_instance_that_is_back_has_its_partitions_since_they_were_assigned(
    make: Make, rules: dict[str, str], before_it_was_away: ErrorCode
) -> None:
    wire = make(machines=Machines(consumer_group=mutated(ConsumerGroup, rules)))  # type: ignore[arg-type]
    wire.topic(partitions=4)
    beat(wire, "a", 0, InstanceId="i")
    beat(wire, "a", -1, InstanceId="i")
    assert beat(wire, "a", 0, InstanceId="i")["MemberEpoch"] == 4
    assert commits(wire, 0, 3, 4) == [E.STALE_MEMBER_EPOCH, E.NONE]
    beat(wire, "a", -2, InstanceId="i")
    assert beat(wire, "a", 0, InstanceId="i")["MemberEpoch"] == 4
    assert commits(wire, 0, 3, 4) == [before_it_was_away, E.NONE]


def test_an_instance_that_leaves_while_it_gives_partitions_up_may_be_away_as_long_as_any(wire: Wire) -> None:
    beat(wire, "a", 0, InstanceId="i")
    beat(wire, "b", 0)
    assert len(parts(beat(wire, "a", 2, {0, 1, 2, 3}, InstanceId="i")) or ()) == 2
    beat(wire, "a", -2, InstanceId="i")
    wire.wait(6_000)
    assert beat(wire, "c", 0, InstanceId="i")["MemberEpoch"] == 3  # nobody has left or joined
    assert beat(wire, "c", 2, set(), InstanceId="i")["ErrorCode"] == E.FENCED_MEMBER_EPOCH


def test_an_instance_that_stays_away_is_removed_when_its_session_ends(wire: Wire) -> None:
    beat(wire, "a", 0, InstanceId="i")
    beat(wire, "a", -2, InstanceId="i")
    wire.wait(46_000)
    assert beat(wire, "b", 0, InstanceId="i")["MemberEpoch"] == 4  # it left, and somebody joined


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"MemberId": ""}, "MemberId can't be empty."),
        ({"GroupId": ""}, "GroupId can't be empty."),
        ({"InstanceId": ""}, "InstanceId can't be empty."),
        ({"RackId": ""}, "RackId can't be empty."),
        ({"RebalanceTimeoutMs": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"TopicPartitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"SubscribedTopicNames": None}, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null"),
        ({"MemberEpoch": -2}, "InstanceId can't be null."),
        ({"MemberEpoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_told_why(wire: Wire, row: Message, why: str) -> None:
    good: Message = {"GroupId": "g", "MemberId": "a", "MemberEpoch": 0, "RebalanceTimeoutMs": 5_000}
    good |= {"SubscribedTopicNames": ["t"], "TopicPartitions": []}
    answer = wire.ask("ConsumerGroupHeartbeat", 1, **(good | row))
    assert (answer["ErrorCode"], answer["MemberId"]) == (E.INVALID_REQUEST, None)
    assert answer["ErrorMessage"].startswith(why)


@pytest.mark.parametrize(
    ("epoch", "why"),
    [
        (-2, "InstanceId can't be null."),
        (-3, "MemberEpoch is invalid."),
        (-1, "MemberId can't be"),
        (1, "MemberId can't"),
    ],
)
def test_in_version_0_only_a_member_that_is_there_or_leaves_needs_an_id(wire: Wire, epoch: int, why: str) -> None:
    """Kafka: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid."""
    answer = wire.ask("ConsumerGroupHeartbeat", 0, GroupId="g", MemberId="", MemberEpoch=epoch)
    assert (answer["ErrorCode"], answer["ErrorMessage"][: len(why)]) == (E.INVALID_REQUEST, why)


def test_who_goes_on_with_a_group_that_is_not_there_is_told_which_kind_is_missing(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.consumerGroup."""
    answer = beat(wire, "a", 2)
    assert (answer["ErrorCode"], answer["ErrorMessage"]) == (E.GROUP_ID_NOT_FOUND, "Consumer group g not found.")
    row = {"GroupId": "g", "MemberId": "", "GenerationIdOrMemberEpoch": -1}
    part = {"PartitionIndex": 0, "CommittedOffset": 1}
    wire.ask("OffsetCommit", 8, **row, Topics=[{"Name": "t", "Partitions": [part]}])
    answer = beat(wire, "a", 2)
    assert (answer["ErrorCode"], answer["ErrorMessage"]) == (E.GROUP_ID_NOT_FOUND, "Group g is not a consumer group.")


def test_a_member_is_described_with_its_client_and_its_rack(wire: Wire) -> None:
    """Kafka: ConsumerGroupMember.asConsumerGroupDescribeMember."""
    beat(wire, "a", 0, InstanceId="i", RackId="r")
    beat(wire, "a", 2, InstanceId="i")  # it need not say its rack again
    beat(wire, "b", 0)
    [group] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"])["Groups"]
    columns = ("MemberId", "InstanceId", "RackId", "ClientId", "ClientHost")
    assert [tuple(row[each] for each in columns) for row in group["Members"]] == [
        ("a", "i", "r", "client", "/127.0.0.1"),
        ("b", None, None, "client", "/127.0.0.1"),
    ]


def test_ranges_are_given_to_instances_by_their_ids_and_then_to_the_other_members_by_theirs() -> None:
    instances = {f"m{number}": f"n{9 - number}" if number % 2 else None for number in range(10)}
    members = {
        name: Follower(member_id=name, instance_id=instance, client_id="client", client_host="/host")
        for name, instance in instances.items()
    }
    given = ranges({"t": frozenset(members)}, {"t": 11}, members)
    order = ["m9", "m9", "m7", "m5", "m3", "m1", "m0", "m2", "m4", "m6", "m8"]
    assert given == {f"t-{number}": owner for number, owner in enumerate(order)}


def test_an_assignor_is_asked_for_by_name_and_the_one_of_ranges_gives_ranges(wire: Wire) -> None:
    assert beat(wire, "a", 0, ServerAssignor="best")["ErrorCode"] == E.UNSUPPORTED_ASSIGNOR
    beat(wire, "b", 0, ServerAssignor="range")
    assert parts(beat(wire, "a", 0, ServerAssignor="range")) == set()
    assert parts(beat(wire, "b", 2, {0, 1, 2, 3})) == {2, 3}
    [group] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"], IncludeAuthorizedOperations=True)["Groups"]
    assert (group["AssignorName"], group["AuthorizedOperations"], group["GroupState"]) == ("range", 3400, "Reconciling")
    had = next(member for member in group["Members"] if member["MemberId"] == "b")
    assert parts(had) == {0, 1, 2, 3}  # the partitions that it still has to revoke count


def test_the_assignor_that_most_members_ask_for_assigns(wire: Wire) -> None:
    """Kafka: ConsumerGroup.preferredServerAssignor; two topics of one partition, which ranges give to one member."""
    topics = {"SubscribedTopicNames": [wire.topic("u"), wire.topic("v")]}
    for member, assignor, told, owners in (
        ("a", None, "uniform", {"a"}),
        ("b", "uniform", "uniform", {"a", "b"}),
        ("c", "range", "uniform", {"a", "b"}),
        ("d", "range", "range", {"a"}),
    ):
        beat(wire, member, 0, **topics, ServerAssignor=assignor)
        [group] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"])["Groups"]
        targets = {each["MemberId"]: each["TargetAssignment"]["TopicPartitions"] for each in group["Members"]}
        assert group["AssignorName"] == told
        assert {name for name, each in targets.items() if each} == owners


def test_after_a_member_has_left_the_next_heartbeat_assigns(wire: Wire) -> None:
    beat(wire, "a", 0)
    beat(wire, "b", 0)
    beat(wire, "b", -1)
    [group] = wire.ask("ListGroups", 5)["Groups"]
    assert group["GroupState"] == "Assigning"
    row = beat(wire, "a", 2, {0, 1, 2, 3})
    assert (row["MemberEpoch"], parts(row)) == (4, None)  # it never gave up anything
    [group] = wire.ask("ListGroups", 5)["Groups"]
    assert group["GroupState"] == "Stable"


def test_a_member_without_an_id_is_given_one_in_version_0(wire: Wire) -> None:
    row = {"GroupId": "g", "MemberId": "", "MemberEpoch": 0, "SubscribedTopicNames": ["t"]}
    answer = wire.ask("ConsumerGroupHeartbeat", 0, **row, RebalanceTimeoutMs=5_000, TopicPartitions=[])
    assert len(answer["MemberId"]) == 36


def test_offsets_are_told_to_members_with_their_epoch_and_to_who_is_none(wire: Wire) -> None:
    """Kafka: ConsumerGroup.validateOffsetFetch."""
    beat(wire, "a", 0)
    asked = {"GroupId": "g", "Topics": [{"Name": "t", "PartitionIndexes": [0]}]}
    found = {}
    for who in (("a", 2), ("a", 1), ("a", -1), ("b", 2), (None, 2), (None, -1)):
        [group] = wire.ask("OffsetFetch", 9, Groups=[asked | {"MemberId": who[0], "MemberEpoch": who[1]}])["Groups"]
        found[who] = group["ErrorCode"]
    stale, unknown = E.STALE_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID
    expected = {("a", 2): E.NONE, ("a", 1): stale, ("a", -1): stale, ("b", 2): unknown, (None, 2): unknown}
    assert found == expected | {(None, -1): E.NONE}
    beat(wire, "a", -1)
    assert [commit(wire, "a", 2), commit(wire, "", -1)] == [unknown, E.NONE], "of an empty group"


def test_old_versions_of_offset_commit_are_for_members_of_the_classic_protocol(wire: Wire) -> None:
    beat(wire, "a", 0)
    part = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}
    for version, error in ((8, E.UNSUPPORTED_VERSION), (9, E.NONE)):
        row = wire.ask(
            "OffsetCommit",
            version,
            GroupId="g",
            MemberId="a",
            GenerationIdOrMemberEpoch=2,
            Topics=[{"Name": "t", "Partitions": [part]}],
        )
        assert row["Topics"][0]["Partitions"][0]["ErrorCode"] == error


def test_offsets_of_topics_that_somebody_subscribes_to_stay(wire: Wire) -> None:
    beat(wire, "a", 0)
    commit(wire, "a", 2)

    def delete() -> dict[int, int]:
        asked = [{"Name": "t", "Partitions": [{"PartitionIndex": number} for number in (0, 3, 9)]}]
        [topic] = wire.ask("OffsetDelete", 0, GroupId="g", Topics=asked)["Topics"]
        return {part["PartitionIndex"]: part["ErrorCode"] for part in topic["Partitions"]}

    subscribed, unknown = E.GROUP_SUBSCRIBED_TO_TOPIC, E.UNKNOWN_TOPIC_OR_PARTITION
    assert delete() == {0: subscribed, 3: subscribed, 9: unknown}
    beat(wire, "a", 2, SubscribedTopicNames=[])
    assert delete() == {0: E.NONE, 3: E.NONE, 9: unknown}
    assert wire.ask("OffsetDelete", 0, GroupId="", Topics=[])["ErrorCode"] == E.INVALID_GROUP_ID


def test_the_consumer_protocol_can_be_switched_off(make: Make) -> None:
    wire = make(2, settings=Settings(rebalance_protocols=frozenset({"classic"})))
    wire.topic(partitions=4)
    for node in (1, 2):  # one of them does not coordinate the group, which is asked later
        wire.cluster.move_leader("__consumer_offsets", wire.cluster.offsets_partition("g").partition, node)
        assert beat(wire, "a", 0)["ErrorCode"] == E.UNSUPPORTED_VERSION
        [group] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"])["Groups"]
        assert group["ErrorCode"] == E.UNSUPPORTED_VERSION
