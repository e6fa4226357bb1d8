"""Consumer groups of KIP-848 in ``__consumer_offsets``: another process finds them as they were."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, decode_batch
from kafka_eos.machines.consumer_group import ConsumerGroup
from kafka_eos.server.cluster import CONSUMER_OFFSETS, Broker, Cluster, Settings
from kafka_eos.server.consumer_groups import FollowingGroup
from kafka_eos.server.offset_records import (
    CLASSIC_GROUP,
    CURRENT,
    EPOCH,
    MEMBER,
    OFFSET,
    PATTERN,
    TARGET,
    TARGET_EPOCH,
    TOPICS,
    key_bytes,
    kind_of,
    read_key,
    read_value,
    value_bytes,
)
from kafka_eos.server.storage import Directory
from kafka_eos.server.stored_groups import restored
from kafka_eos.wire.protocol import Message

from .conftest import NOW, Make, Wire
from .test_consumer_groups import beat, commit, halved, parts
from .test_migration import classic, classic_beat, join, kind, said
from .test_migration import given as given_to

E = ErrorCode
ALL = {0, 1, 2, 3}


def whole(group: FollowingGroup | None) -> Any:
    """A group without the times of its members, which start again, and without what the server never asks for."""
    assert group is not None
    members = {name: replace(member, since=0) for name, member in group.machine.membership.members.items()}
    members |= {name: replace(members[name], epoch=0) for name, each in group.followers.items() if each.is_away}
    followers = {name: replace(each, expires=0, gives_up_by=None) for name, each in group.followers.items()}
    for each in followers.values():
        if each.classic is not None:
            each.classic = replace(each.classic, syncs_by=None, joins_by=None)
    preferred = {p: who for p, who in group.machine.constants.preferred.items() if who in followers}
    return group.epoch, group.assigned_epoch, members, followers, preferred


def written(cluster: Cluster) -> Iterator[Record]:
    """All records of ``__consumer_offsets``."""
    for leader in cluster.topics[CONSUMER_OFFSETS].partitions:
        if leader.log_end_offset:
            data, place = leader.store.read(0, leader.log_end_offset, 1 << 30, at_least_one=True), 0
            while place < len(data):
                batch, place = decode_batch(data, place)
                yield from batch.records()


def read_back(cluster: Cluster) -> FollowingGroup:
    """The group "g" by the records that are written: of each key the last one."""
    last = {record.key or b"": record.value for record in written(cluster)}
    kept = {key: value for key, value in last.items() if value is not None and kind_of(key) != OFFSET}
    return restored(cluster.groups.new("g"), ConsumerGroup, kept, cluster.names)


@pytest.fixture
def wire(make: Make, tmp_path: Path) -> Wire:
    made = make(storage=Directory(tmp_path))
    made.topic(partitions=4)
    return made


def again(wire: Wire) -> Wire:
    """The cluster after all its brokers have stopped and come back."""
    return Wire(wire.cluster.restarted())


def stored(wire: Wire) -> list[tuple[int, Message, Message | None]]:
    """All records of ``__consumer_offsets`` as type, key and value."""
    found = []
    for record in written(wire.cluster):
        assert record.key is not None
        kind = kind_of(record.key)
        value = None if record.value is None else read_value(kind, record.value)
        found.append((kind, read_key(record.key)[1], value))
    return found


def test_the_records_of_a_group_are_those_of_kafka(wire: Wire) -> None:
    """Each record is compared field by field; the module ``stored_groups`` says what the server leaves out.

    Kafka: GroupCoordinatorRecordHelpers.
    """
    wire.topic("x")
    topic = wire.cluster.topics["t"].topic_id
    more = {"SubscribedTopicRegex": "x.*", "ServerAssignor": "range", "RackId": "r", "SubscribedTopicNames": ["t", "s"]}
    beat(wire, "a", 0, InstanceId="i", **more)
    wire.wait(1)
    of, owned = {"MemberId": "a"}, [{"TopicId": topic, "Partitions": [0, 1, 2, 3]}]
    member = {
        "InstanceId": "i",
        "RackId": "r",
        "ClientId": "client",
        "ClientHost": "/127.0.0.1",
        "SubscribedTopicNames": ["s", "t"],
        "SubscribedTopicRegex": "x.*",
        "RebalanceTimeoutMs": 5_000,
        "ServerAssignor": "range",
        "ClassicMemberMetadata": None,
    }
    x_id = wire.cluster.topics["x"].topic_id
    first = stored(wire)
    values = {kind: (key, value) for kind, key, value in first}
    assert [kind for kind, _, _ in first] == [
        MEMBER,
        EPOCH,
        TARGET,
        TARGET_EPOCH,
        CURRENT,
        PATTERN,
        EPOCH,
        TARGET,
        TARGET_EPOCH,
    ]
    assert values[MEMBER] == (of, member)
    key, found = values[PATTERN]
    assert (key, found and found["Topics"]) == ({"RegularExpression": "x.*"}, ["x"])
    assert values[TARGET] == (of, {"TopicPartitions": [*owned, {"TopicId": x_id, "Partitions": [0]}]})
    key, found = values[CURRENT]
    assert (key, found) == (
        of,
        {
            "MemberEpoch": 2,
            "PreviousMemberEpoch": 0,
            "State": 0,
            "AssignedPartitions": [{**owned[0], "AssignmentEpochs": [2] * 4}],
            "PartitionsPendingRevocation": [],
        },
    )
    assert [(values[kind][1] or {})[name] for kind, name in ((EPOCH, "Epoch"), (TARGET_EPOCH, "AssignmentEpoch"))] == [
        3,
        3,
    ]


def test_the_records_of_a_classic_group_and_of_an_offset_are_those_of_kafka(wire: Wire) -> None:
    """Kafka: GroupCoordinatorRecordHelpers.newGroupMetadataRecord, newOffsetCommitRecord."""
    member = classic(wire, GroupInstanceId="i")
    wire.wait(5)
    part = {"PartitionIndex": 3, "CommittedOffset": 7, "CommittedLeaderEpoch": 2, "CommittedMetadata": "said"}
    who = {"GroupId": "g", "MemberId": member, "GenerationIdOrMemberEpoch": 1, "GroupInstanceId": "i"}
    wire.ask("OffsetCommit", 8, **who, Topics=[{"Name": "t", "Partitions": [part]}])
    *_, group, offset = stored(wire)
    assert group == (
        CLASSIC_GROUP,
        {},
        {
            "protocolType": "consumer",
            "generation": 1,
            "protocol": "range",
            "leader": member,
            "currentStateTimestamp": NOW,
            "members": [
                {
                    "memberId": member,
                    "groupInstanceId": "i",
                    "clientId": "client",
                    "clientHost": "/127.0.0.1",
                    "rebalanceTimeout": 30_000,
                    "sessionTimeout": 10_000,
                    "subscription": said([]),
                    "assignment": given_to(0, 1, 2, 3),
                }
            ],
        },
    )
    assert offset == (
        OFFSET,
        {"topic": "t", "partition": 3},
        {
            "offset": 7,
            "leaderEpoch": 2,
            "metadata": "said",
            "commitTimestamp": NOW + 5,
            "topicId": wire.cluster.topics["t"].topic_id,
        },
    )


def test_members_go_on_with_their_epochs_after_a_restart(wire: Wire) -> None:
    (kept, _), gone = halved(wire)
    before = wire.cluster.consumer_groups.find("g")
    wire = again(wire)
    assert whole(wire.cluster.consumer_groups.find("g")) == whole(before)
    given = beat(wire, "b", 3)
    assert (given["MemberEpoch"], parts(given)) == (3, ALL - set(wire_kept(wire, "a")))
    assert beat(wire, "a", 3)["MemberEpoch"] == 3
    assert [commit(wire, "a", epoch, partition=kept) for epoch in (1, 2, 3)] == [E.STALE_MEMBER_EPOCH, E.NONE, E.NONE]
    assert commit(wire, "a", 2, partition=gone) == E.STALE_MEMBER_EPOCH
    assert beat(wire, "c", 0)["MemberEpoch"] == 4


def wire_kept(wire: Wire, member: str) -> set[int]:
    group = wire.cluster.consumer_groups.find("g")
    assert group is not None
    return {int(name.rpartition("-")[2]) for name in group.current(member).assigned}


def test_a_member_that_gives_up_partitions_goes_on_giving_up_after_a_restart(wire: Wire) -> None:
    beat(wire, "a", 0)
    beat(wire, "b", 0)
    kept = parts(beat(wire, "a", 2, ALL)) or set()
    wire = again(wire)
    assert parts(beat(wire, "b", 3)) is None  # what it is to have is not given up yet
    assert beat(wire, "a", 2, ALL)["MemberEpoch"] == 2
    wire = again(wire)
    assert beat(wire, "a", 2, kept)["MemberEpoch"] == 3
    assert parts(beat(wire, "b", 3)) == ALL - kept


def test_a_member_is_stored_as_giving_up_first_if_it_is_to_have_others_as_well(wire: Wire) -> None:
    """Kafka: MemberState.UNREVOKED_PARTITIONS."""
    for member in "bca":
        beat(wire, member, 0, ServerAssignor="range")
        if member == "c":
            kept = parts(beat(wire, "b", 2, ALL))
            assert beat(wire, "b", 2, kept)["MemberEpoch"] == 3
    beat(wire, "b", 3, kept)
    group = wire.cluster.consumer_groups.find("g")
    assert group is not None
    assert (group.current("b").assigned, group.current("b").revoking, group.target("b")) == (
        set(),
        {"t-0", "t-1"},
        {"t-2"},
    )
    assert [(value or {})["State"] for kind, key, value in stored(wire) if kind == CURRENT and key["MemberId"] == "b"][
        -1
    ] == 1
    assert whole(again(wire).cluster.consumer_groups.find("g")) == whole(group)


def test_a_restart_gives_members_a_new_session_and_time_to_give_up(wire: Wire) -> None:
    beat(wire, "a", 0)
    beat(wire, "b", 0)
    beat(wire, "a", 2, ALL)
    wire.wait(4_000)
    wire = again(wire)
    wire.wait(4_000)
    assert beat(wire, "a", 2, ALL)["ErrorCode"] == E.NONE
    wire.wait(2_000)
    assert beat(wire, "a", 2, ALL)["ErrorCode"] == E.UNKNOWN_MEMBER_ID
    wire.wait(44_000)
    assert beat(wire, "b", 3)["ErrorCode"] == E.UNKNOWN_MEMBER_ID


def test_members_go_on_with_their_epochs_when_another_broker_coordinates(make: Make) -> None:
    wire = make(brokers=2)
    wire.topic(partitions=4)
    partition = wire.cluster.offsets_partition("g")
    wire.cluster.move_leader(CONSUMER_OFFSETS, partition.partition, 1)
    beat(wire, "a", 0)
    wire.cluster.move_leader(CONSUMER_OFFSETS, partition.partition, 2)
    assert beat(wire, "a", 2)["ErrorCode"] == E.NOT_COORDINATOR
    row: Message = {"GroupId": "g", "MemberId": "a", "MemberEpoch": 2, "TopicPartitions": None}
    assert wire.ask("ConsumerGroupHeartbeat", 1, 2, **row)["MemberEpoch"] == 2


def test_an_instance_that_is_away_comes_back_after_a_restart(wire: Wire) -> None:
    beat(wire, "a", 0, InstanceId="i", RackId="r")
    beat(wire, "a", -2, InstanceId="i")
    wire = again(wire)
    assert commit(wire, "a", -2) == E.NONE
    row = beat(wire, "b", 0, InstanceId="i")
    assert (row["MemberEpoch"], parts(row)) == (2, ALL)


def test_a_pattern_is_known_after_a_restart_with_the_topics_that_it_matched(wire: Wire) -> None:
    beat(wire, "a", 0, SubscribedTopicNames=[], SubscribedTopicRegex="t.*")
    wire.wait(1)
    wire = again(wire)
    row = beat(wire, "a", 1)
    assert (row["MemberEpoch"], parts(row)) == (2, ALL)
    wire.topic("t2", 2)
    assert beat(wire, "a", 2)["MemberEpoch"] == 3


def test_a_pattern_that_was_not_resolved_before_a_restart_is_resolved_after_the_next_heartbeat(wire: Wire) -> None:
    beat(wire, "a", 0, SubscribedTopicNames=[], SubscribedTopicRegex="t.*")
    wire = again(wire)
    wire.wait(1)
    assert beat(wire, "a", 1)["MemberEpoch"] == 1, "a coordinator that loads a group resolves nothing"
    wire.wait(1)
    row = beat(wire, "a", 1)
    assert (row["MemberEpoch"], parts(row)) == (2, ALL)


def test_members_of_the_classic_protocol_are_known_after_a_restart(wire: Wire) -> None:
    old = classic(wire)
    beat(wire, "new", 0)
    before = wire.cluster.consumer_groups.find("g")
    wire = again(wire)
    assert whole(wire.cluster.consumer_groups.find("g")) == whole(before)
    assert classic_beat(wire, old, 1) == E.REBALANCE_IN_PROGRESS
    assert join(wire, old, (0, 1, 2, 3))["GenerationId"] == 1
    beat(wire, "new", -1)  # it turns into a classic group
    wire = again(wire)
    assert wire.cluster.consumer_groups.find("g") is None
    assert wire.ask("ListGroups", 5)["Groups"][0]["GroupType"] == "classic"
    assert classic_beat(wire, old, 2) == E.NONE


@pytest.mark.parametrize("has_offset", [False, True])
def test_a_group_that_was_deleted_is_gone_after_a_restart(wire: Wire, has_offset: bool) -> None:
    beat(wire, "a", 0)
    if has_offset:
        commit(wire, "a", 2)
    beat(wire, "a", -1)
    wire = again(wire)
    assert [each["GroupState"] for each in wire.ask("ListGroups", 5)["Groups"]] == ["Empty"]
    wire.ask("DeleteGroups", 2, GroupsNames=["g"])
    assert again(wire).ask("ListGroups", 5)["Groups"] == []


def test_a_group_is_known_after_a_restart_until_it_is_deleted_also_without_an_offset(wire: Wire) -> None:
    """Kafka: OffsetMetadataManager.replay creates the group of an offset, and leaves it when the offset goes."""

    def deleted_offset() -> int:
        row = {"Name": "t", "Partitions": [{"PartitionIndex": 0}]}
        return int(wire.ask("OffsetDelete", 0, GroupId="g", Topics=[row])["ErrorCode"])

    commit(wire, "", -1)
    assert deleted_offset() == E.NONE
    wire = again(wire)
    assert deleted_offset() == E.NONE
    wire.ask("DeleteGroups", 2, GroupsNames=["g"])
    wire = again(wire)
    assert deleted_offset() == E.GROUP_ID_NOT_FOUND


def test_all_groups_of_a_partition_are_found_whatever_their_protocol(make: Make, tmp_path: Path) -> None:
    settings = Settings(internal_partitions=1)
    wire = make(storage=Directory(tmp_path), settings=settings)
    wire.topic(partitions=4)
    for name in ("h", "i"):  # classic ones, of which one comes before "g" and one after it
        row: Message = {"GroupId": name, "SessionTimeoutMs": 10_000, "MemberId": "", "ProtocolType": "consumer"}
        row |= {"Protocols": [{"Name": "range", "Metadata": b""}]}
        member = wire.ask("JoinGroup", 3, **row)["MemberId"]
        wire.ask("SyncGroup", 3, GroupId=name, GenerationId=1, MemberId=member, Assignments=[])
        if name == "h":
            beat(wire, "a", 0)
    groups = again(wire).ask("ListGroups", 5)["Groups"]
    assert {(each["GroupId"], each["GroupType"]) for each in groups} == {
        ("g", "consumer"),
        ("h", "classic"),
        ("i", "classic"),
    }


def test_a_group_whose_epoch_is_not_in_its_log_is_in_epoch_0(wire: Wire) -> None:
    """Kafka: ModernGroup."""
    beat(wire, "a", 0)
    records = [record for record in written(wire.cluster) if record.key and kind_of(record.key) == MEMBER]
    member = {record.key or b"": record.value or b"" for record in records}
    group = restored(wire.cluster.groups.new("g"), ConsumerGroup, member, wire.cluster.names)
    assert (group.epoch, group.assigned_epoch, list(group.followers)) == (0, 0, ["a"])


def test_an_empty_group_keeps_its_epoch_and_its_offsets(wire: Wire) -> None:
    beat(wire, "a", 0)
    commit(wire, "a", 2, 7)
    beat(wire, "a", -1)
    wire = again(wire)
    group = wire.cluster.groups.known["g"]
    assert (committed := group.committed("t-0")) is not None
    assert committed.offset == 7
    assert beat(wire, "b", 0)["MemberEpoch"] == 4


@pytest.mark.parametrize("comes_back", [False, True])
def test_members_are_told_after_a_restart_that_a_topic_is_gone(wire: Wire, comes_back: bool) -> None:
    wire.topic("u", 1)
    beat(wire, "a", 0, SubscribedTopicNames=["t", "u"])
    wire.ask("DeleteTopics", 5, TopicNames=["t"], TimeoutMs=1_000)
    if comes_back:
        wire.topic(partitions=4)  # with another id
    wire = again(wire)
    asked: Message = {"GroupId": "g", "MemberId": "a", "MemberEpoch": 2, "TopicPartitions": None}
    row = wire.ask("ConsumerGroupHeartbeat", 1, **asked)
    assert (row["MemberEpoch"], parts(row)) == (2, {0})
    assert [topic["TopicId"] for topic in row["Assignment"]["TopicPartitions"]] == [wire.cluster.topic_id("u")]
    assert wire.ask("ConsumerGroupHeartbeat", 1, **asked | {"TopicPartitions": []})["MemberEpoch"] == 3


def test_a_group_that_loses_a_topic_is_the_one_that_is_read_after_a_restart(wire: Wire) -> None:
    wire.topic("u", 2)
    both: Message = {"SubscribedTopicNames": ["t", "u"]}
    old = wire.cluster.topic_id("t")
    beat(wire, "a", 0, **both)
    beat(wire, "b", 0, **both)
    beat(wire, "a", 2)  # it says nothing about its partitions, so it still has all
    wire.ask("DeleteTopics", 5, TopicNames=["t"], TimeoutMs=1_000)
    group = wire.cluster.consumer_groups.find("g")
    assert group is not None
    has = group.current("a")
    assert (has.assigned, has.revoking) == ({f"{old}-0", f"{old}-1", f"{old}-2"}, {f"{old}-3", "u-0", "u-1"})
    assert whole(again(wire).cluster.consumer_groups.find("g")) == whole(group)


@pytest.mark.parametrize("restarts", [False, True])
def test_each_member_gives_a_deleted_topic_up_before_it_is_led_on(wire: Wire, restarts: bool) -> None:
    """As in Kafka 4.3: also a member that is asked only after another one, and after a restart."""
    kept, _ = halved(wire)[0], beat(wire, "b", 3)
    old, owned = wire.cluster.topic_id("t"), sorted({0, 1, 2, 3} - set(kept))
    wire.ask("DeleteTopics", 5, TopicNames=["t"], TimeoutMs=1_000)
    wire.topic(partitions=4)  # with another id

    def says(member: str, epoch: int, parts: list[int]) -> Message:
        rows = [{"TopicId": old, "Partitions": parts}] if parts else []
        asked: Message = {"GroupId": "g", "MemberId": member, "MemberEpoch": epoch, "TopicPartitions": rows}
        return wire.ask("ConsumerGroupHeartbeat", 1, **asked)

    for member, has in (("a", kept), ("b", owned)):
        if restarts:
            wire = again(wire)
        told = says(member, 3, has)
        assert (told["MemberEpoch"], parts(told)) == (3, set()), member
        assert says(member, 3, has)["MemberEpoch"] == 3, "it still has them"
        told = says(member, 3, [])
        assert told["MemberEpoch"] == 4
        assert [topic["TopicId"] for topic in told["Assignment"]["TopicPartitions"]] == [wire.cluster.topic_id("t")]
        assert len(parts(told) or ()) == 2
    assert wire.cluster.topic_id("t") != old


def test_records_of_kafka_before_4_3_are_read_and_those_that_are_no_longer_written_are_removed(wire: Wire) -> None:
    beat(wire, "a", 0)
    topic_id = wire.cluster.topic_id("t")
    rows = [{"TopicId": topic_id, "Partitions": [0, 1, 2, 3]}]
    row: Message = {"MemberEpoch": 2, "AssignedPartitions": rows, "PartitionsPendingRevocation": []}
    older = {
        key_bytes(CURRENT, {"GroupId": "g", "MemberId": "a"}): value_bytes(CURRENT, row),
        key_bytes(EPOCH, {"GroupId": "g"}): value_bytes(EPOCH, {"Epoch": 2}),
        (topics := key_bytes(TOPICS, {"GroupId": "g"})): value_bytes(TOPICS, {"Topics": []}),
    }
    wire.cluster.offsets_partition("g").append_records([Record(key=k, value=v) for k, v in older.items()], NOW)
    share_group = Record(key=b"\x00\x0b\x00\x01g", value=b"\x00\x00")
    wire.cluster.offsets_partition("g").append_records([share_group], NOW)
    wire = again(wire)
    assert [commit(wire, "a", epoch) for epoch in (1, 2)] == [E.STALE_MEMBER_EPOCH, E.NONE]
    beat(wire, "b", 0)
    assert [record.value for record in written(wire.cluster) if record.key == topics] == [older[topics], None]


def test_a_new_classic_group_is_written_before_it_has_a_generation(wire: Wire) -> None:
    """The expected records are Kafka's: see test_beside_kafka.py."""
    beat(wire, "a", 0)
    commit(wire, "a", 2)
    beat(wire, "a", -1)
    before = list(written(wire.cluster))
    assert join(wire, "z")["ErrorCode"] == E.UNKNOWN_MEMBER_ID
    assert list(written(wire.cluster)) == before
    assert join(wire)["ErrorCode"] == E.MEMBER_ID_REQUIRED
    added = list(written(wire.cluster))[len(before) :]
    assert [(kind_of(record.key or b""), record.value is None) for record in added] == [
        (TARGET_EPOCH, True),
        (EPOCH, True),
        (CLASSIC_GROUP, False),
    ]
    content = read_value(CLASSIC_GROUP, added[-1].value or b"")
    names = ("protocolType", "generation", "protocol", "leader", "members")
    assert [content[name] for name in names] == ["", 0, None, None, []]
    wire = again(wire)
    assert kind(wire) == ("classic", "Empty")
    assert wire.cluster.groups.fetch("g", "t-0", require_stable=True)[1] is not None


Steps = list[tuple[str, str, bool]]
ids = st.sampled_from(["a", "b", "c"])
doing = st.sampled_from(["beat", "beat", "beat", "join", "leave", "away", "pattern", "range", "silence"])


@given(steps=st.lists(st.tuples(ids, doing, st.booleans()), max_size=14))
def test_the_records_after_any_request_are_the_group(steps: Steps) -> None:
    wire = Wire(Cluster([Broker(1, "127.0.0.1", 9092)], now=NOW, seed=1))
    wire.topic(partitions=4)
    for member, what, says in steps:
        group = wire.cluster.consumer_groups.find("g")
        is_there = group is not None and member in group.followers
        static: Message = {"InstanceId": "i", "RackId": "r"} if member == "c" else {}
        if what == "silence":
            wire.wait(3_000)
        elif group is None or not is_there or what == "join":
            beat(wire, member, 0, **static)
        elif what == "leave" or (what == "away" and not static):
            beat(wire, member, -1, **static)
        elif what == "away":
            beat(wire, member, -2, **static)
        else:
            current = group.current(member)
            has = {int(name[2:]) for name in current.assigned | (current.revoking if says else set())}
            every: Message = {"pattern": {"SubscribedTopicRegex": "t|u"}, "range": {"ServerAssignor": "range"}}
            more = every.get(what, {})
            beat(wire, member, current.epoch, has, **static, **more)
        wire.wait(1)
        group = wire.cluster.consumer_groups.find("g")
        if group is not None:
            assert whole(read_back(wire.cluster)) == whole(group)
