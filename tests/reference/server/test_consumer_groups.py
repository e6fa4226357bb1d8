"""Consumer groups of KIP-848."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.consumer_group import ConsumerGroup
from kafka_eos.errors import ErrorCode
from kafka_eos.protocol import Message
from kafka_eos.server.cluster import Machines
from kafka_eos.server.consumer_groups import assigned
from kafka_eos_checks.mutants import mutated

from .conftest import Make, Wire

E = ErrorCode
Parts = set[int] | None


def beat(wire: Wire, member: str, epoch: int, owned: Parts = None, **more: Any) -> Message:
    """A heartbeat; the first one subscribes to "t"."""
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


def test_a_member_alone_has_everything_at_once_and_is_told_once(wire: Wire) -> None:
    row = beat(wire, "a", 0)
    assert (row["ErrorCode"], row["MemberId"], row["MemberEpoch"], parts(row)) == (E.NONE, "a", 1, {0, 1, 2, 3})
    assert parts(beat(wire, "a", 1)) is None


def test_partitions_are_given_when_they_were_given_up(wire: Wire) -> None:
    beat(wire, "a", 0)
    joined = beat(wire, "b", 0)
    assert (joined["MemberEpoch"], parts(joined)) == (2, set())
    revoking = beat(wire, "a", 1, {0, 1, 2, 3})
    kept = parts(revoking)
    assert (revoking["MemberEpoch"], len(kept or ())) == (1, 2)
    assert parts(beat(wire, "b", 2)) is None  # not yet
    assert beat(wire, "a", 1, kept)["MemberEpoch"] == 2
    given = beat(wire, "b", 2)
    assert parts(given) == {0, 1, 2, 3} - (kept or set())
    described = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g", "h"])["Groups"]
    assert [(group["GroupState"], group["ErrorCode"]) for group in described] == [
        ("Stable", E.NONE),
        ("", E.GROUP_ID_NOT_FOUND),
    ]


def test_a_member_with_another_epoch_is_fenced_unless_it_missed_an_answer(wire: Wire) -> None:
    beat(wire, "a", 0)
    assert beat(wire, "a", 2)["ErrorCode"] == E.FENCED_MEMBER_EPOCH
    assert beat(wire, "b", 5)["ErrorCode"] == E.UNKNOWN_MEMBER_ID
    beat(wire, "b", 0)
    kept = parts(beat(wire, "a", 1, {0, 1, 2, 3}))
    assert beat(wire, "a", 1, kept)["MemberEpoch"] == 2
    assert beat(wire, "a", 1, kept)["MemberEpoch"] == 2  # the answer before was lost
    assert beat(wire, "a", 1, {0, 1, 2, 3})["ErrorCode"] == E.FENCED_MEMBER_EPOCH


def test_what_a_member_leaves_behind_the_other_gets(wire: Wire) -> None:
    beat(wire, "a", 0)
    beat(wire, "b", 0)
    kept = parts(beat(wire, "a", 1, {0, 1, 2, 3}))
    beat(wire, "a", 1, kept)
    beat(wire, "b", 2)
    assert beat(wire, "a", -1)["ErrorCode"] == E.NONE
    assert parts(beat(wire, "b", 2)) == {0, 1, 2, 3}


def test_a_member_that_is_silent_or_does_not_give_up_is_removed(wire: Wire) -> None:
    beat(wire, "a", 0)
    beat(wire, "b", 0)
    beat(wire, "a", 1, {0, 1, 2, 3})  # and never gives up
    wire.wait(7_000)
    assert beat(wire, "a", 1)["ErrorCode"] == E.UNKNOWN_MEMBER_ID
    row = beat(wire, "b", 2)
    assert parts(row) == {0, 1, 2, 3}
    wire.wait(46_000)
    assert beat(wire, "b", row["MemberEpoch"])["ErrorCode"] == E.UNKNOWN_MEMBER_ID


def test_topics_may_be_subscribed_to_by_a_pattern_and_come_later(wire: Wire) -> None:
    row = beat(wire, "a", 0, SubscribedTopicNames=[], SubscribedTopicRegex="t.*")
    assert parts(row) == {0, 1, 2, 3}
    wire.topic("t2", 2)
    row = beat(wire, "a", row["MemberEpoch"])
    assert [topic["Partitions"] for topic in row["Assignment"]["TopicPartitions"]] == [[0, 1, 2, 3], [0, 1]]
    assert beat(wire, "b", 0, SubscribedTopicNames=[], SubscribedTopicRegex="(")["ErrorCode"] == E.INVALID_REQUEST


def commit(wire: Wire, member: str, epoch: int, offset: int = 5) -> int:
    topic = {"TopicId": wire.cluster.topics["t"].topic_id}
    part = {"PartitionIndex": 0, "CommittedOffset": offset, "CommittedMetadata": ""}
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
    assert commit(wire, "a", 1) == E.NONE
    assert commit(wire, "a", 0) == E.STALE_MEMBER_EPOCH
    assert commit(wire, "b", 1) == commit(wire, "", -1) == E.UNKNOWN_MEMBER_ID
    asked: Message = {"GroupId": "g", "MemberId": "a", "MemberEpoch": 1, "Topics": None}
    [group] = wire.ask("OffsetFetch", 10, Groups=[asked])["Groups"]
    assert group["Topics"][0]["Partitions"][0]["CommittedOffset"] == 5
    [group] = wire.ask("OffsetFetch", 10, Groups=[asked | {"MemberEpoch": 0}])["Groups"]
    assert group["ErrorCode"] == E.STALE_MEMBER_EPOCH


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
    commit(wire, "a", 1)
    assert classic() == E.INCONSISTENT_GROUP_PROTOCOL
    beat(wire, "a", -1)
    listed = wire.ask("ListGroups", 5, TypesFilter=["consumer"])["Groups"]
    assert [(group["GroupId"], group["GroupType"], group["GroupState"]) for group in listed] == [
        ("g", "consumer", "Empty")
    ]
    assert classic() == E.NONE
    assert beat(wire, "a", 0)["ErrorCode"] == E.UNKNOWN_MEMBER_ID  # of a classic group with a member
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
