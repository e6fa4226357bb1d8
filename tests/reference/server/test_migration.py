"""Classic groups that become consumer groups of KIP-848 while they have members, and back."""

from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.server.cluster import Limits, Settings
from kafka_eos.server.consumer_protocol import Subscription, assignment, assignment_bytes, subscription
from kafka_eos.server.schemas import served_codec
from kafka_eos.server.storage import Directory
from kafka_eos.wire.protocol import Message

from .conftest import Make, Wire

E = ErrorCode


def said(owned: list[int], version: int = 1) -> bytes:
    """A subscription to "t" by a member that has partitions."""
    row = {"Topics": ["t"], "UserData": None, "OwnedPartitions": [{"Topic": "t", "Partitions": owned}]}
    return version.to_bytes(2, "big") + served_codec().write("ConsumerProtocolSubscription", version, row)


def given(*numbers: int) -> bytes:
    return assignment_bytes([("t", list(numbers))] if numbers else [], 1)


def join(
    wire: Wire, member: str = "", owned: tuple[int, ...] = (), *, name: str = "range", version: int = 7, **more: object
) -> Message:
    row = wire.send(
        "JoinGroup",
        version,
        GroupId="g",
        SessionTimeoutMs=10_000,
        RebalanceTimeoutMs=30_000,
        MemberId=member,
        ProtocolType="consumer",
        Protocols=[{"Name": name, "Metadata": said(list(owned))}],
        **more,
    )
    assert row is not None
    return row


def sync(wire: Wire, member: str, generation: int, assigned: bytes | None = None) -> tuple[int, bytes]:
    rows = [] if assigned is None else [{"MemberId": member, "Assignment": assigned}]
    row = wire.ask("SyncGroup", 4, GroupId="g", GenerationId=generation, MemberId=member, Assignments=rows)
    return row["ErrorCode"], row["Assignment"]


def classic_beat(wire: Wire, member: str, generation: int) -> int:
    return int(wire.ask("Heartbeat", 3, GroupId="g", GenerationId=generation, MemberId=member)["ErrorCode"])


def beat(wire: Wire, member: str, epoch: int, owned: set[int] | None = None, **more: object) -> Message:
    topic = wire.cluster.topics["t"].topic_id
    parts = None if owned is None else [{"TopicId": topic, "Partitions": sorted(owned)}] if owned else []
    first = {"SubscribedTopicNames": ["t"], "RebalanceTimeoutMs": 5_000, "TopicPartitions": []} if epoch == 0 else {}
    row: Message = {"GroupId": "g", "MemberId": member, "MemberEpoch": epoch, "TopicPartitions": parts}
    return wire.ask("ConsumerGroupHeartbeat", 1, **(row | first | more))


def numbers(row: Message) -> set[int]:
    return {number for topic in row["Assignment"]["TopicPartitions"] for number in topic["Partitions"]}


def kind(wire: Wire) -> tuple[str, str]:
    [group] = wire.ask("ListGroups", 5)["Groups"]
    return group["GroupType"], group["GroupState"]


def classic(wire: Wire, **more: object) -> str:
    """A classic group of one member that has every partition, in generation 1."""
    row = join(wire, **more)
    member = str(row["MemberId"])
    if row["ErrorCode"] == E.MEMBER_ID_REQUIRED:
        row = join(wire, member)
    assert (row["ErrorCode"], row["GenerationId"]) == (E.NONE, 1)
    assert sync(wire, member, 1, given(0, 1, 2, 3))[0] == E.NONE
    return member


@pytest.fixture
def wire(make: Make) -> Wire:
    made = make()
    made.topic(partitions=4)
    return made


def test_a_classic_group_becomes_a_consumer_group_member_by_member_and_turns_back(wire: Wire) -> None:
    old = classic(wire)
    row = beat(wire, "new", 0)
    assert (row["ErrorCode"], row["MemberEpoch"], numbers(row)) == (E.NONE, 2, set())
    assert kind(wire) == ("consumer", "Reconciling")
    assert classic_beat(wire, old, 1) == E.REBALANCE_IN_PROGRESS
    assert join(wire, old, (0, 1, 2, 3))["GenerationId"] == 1  # it has to give up first
    error, data = sync(wire, old, 1)
    kept, _ = assignment(data) or (frozenset(), b"")
    assert (error, kept) == (E.NONE, {"t-0", "t-1"}), "it keeps the first ones that it had"
    group = wire.cluster.consumer_groups.find("g")
    assert group is not None
    group.assigned_epoch = 1  # as of a Kafka that has not assigned for the newest epoch yet
    assert classic_beat(wire, old, 1) == E.REBALANCE_IN_PROGRESS
    left = tuple(int(name.removeprefix("t-")) for name in kept)
    assert join(wire, old, left)["GenerationId"] == 2
    assert sync(wire, old, 2) == (E.NONE, given(*sorted(left)))
    assert numbers(beat(wire, "new", 2, set())) == {0, 1, 2, 3} - set(left)
    assert kind(wire) == ("consumer", "Stable")
    assert beat(wire, "new", -1)["ErrorCode"] == E.NONE
    assert kind(wire) == ("classic", "PreparingRebalance")
    for _ in range(3):  # longer than its session, and less than it may take to join again
        assert classic_beat(wire, old, 2) == E.REBALANCE_IN_PROGRESS
        wire.wait(9_999)
    row = join(wire, old, left)
    assert (row["GenerationId"], row["Leader"]) == (3, old)


def test_a_waiting_member_of_a_classic_group_is_told_to_join_again(wire: Wire) -> None:
    classic(wire)
    second = str(join(wire)["MemberId"])
    protocols = [{"Name": "range", "Metadata": said([])}]
    row = {"GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 30_000, "ProtocolType": "consumer"}
    assert wire.send("JoinGroup", 7, MemberId=second, Protocols=protocols, **row) is None
    beat(wire, "new", 0)
    assert [late["ErrorCode"] for late in wire.late] == [E.REBALANCE_IN_PROGRESS]


def test_a_group_without_a_generation_yet_becomes_a_consumer_group(make: Make) -> None:
    """Kafka has no assignor then and answers UNKNOWN_SERVER_ERROR."""
    wire = make(settings=Settings(group_initial_delay_ms=3_000))
    wire.topic(partitions=4)
    member = str(join(wire)["MemberId"])
    assert join(wire)["ErrorCode"] == E.MEMBER_ID_REQUIRED  # this one never comes back
    row = {"GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 30_000, "ProtocolType": "consumer"}
    protocols = [{"Name": "range", "Metadata": said([])}]
    assert wire.send("JoinGroup", 7, MemberId=member, Protocols=protocols, **row) is None
    assert beat(wire, "new", 0)["ErrorCode"] == E.NONE
    assert [late["ErrorCode"] for late in wire.late] == [E.REBALANCE_IN_PROGRESS]
    wire.wait(10_000)
    assert kind(wire)[0] == "consumer", "nobody waits for the member of the old group any more"


@pytest.mark.parametrize("subscription", [{"SubscribedTopicRegex": "t.*"}, {"SubscribedTopicNames": []}], ids=str)
def test_a_group_with_a_member_has_an_epoch_also_if_that_knows_no_topic_yet(make: Make, subscription: Message) -> None:
    """Kafka: GroupMetadataManager.consumerGroupHeartbeat."""
    wire = make(settings=Settings(group_initial_delay_ms=3_000))
    wire.topic(partitions=4)
    member = str(join(wire)["MemberId"])
    row = {"GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 30_000, "ProtocolType": "consumer"}
    protocols = [{"Name": "range", "Metadata": said([])}]
    assert wire.send("JoinGroup", 7, MemberId=member, Protocols=protocols, **row) is None
    first = beat(wire, "new", 0, **({"SubscribedTopicNames": None} | subscription))
    assert (first["ErrorCode"], first["MemberEpoch"]) == (E.NONE, 1)


def test_an_instance_that_rejoins_by_the_classic_protocol_turns_the_group_back_without_rebalance(
    wire: Wire,
) -> None:
    beat(wire, "a", 0, InstanceId="i")
    row = join(wire, GroupInstanceId="i")
    assert (row["ErrorCode"], row["GenerationId"], row["ProtocolName"]) == (E.NONE, 2, "range")
    assert kind(wire) == ("classic", "Stable")
    assert sync(wire, str(row["MemberId"]), 2) == (E.NONE, given(0, 1, 2, 3))


@pytest.mark.parametrize("name", ["", "a"])
def test_an_instance_that_was_away_is_back_when_it_joins_by_the_classic_protocol(wire: Wire, name: str) -> None:
    beat(wire, "a", 0, InstanceId="i")
    beat(wire, "b", 0)
    beat(wire, "a", -2, InstanceId="i")
    row = join(wire, name, GroupInstanceId="i")
    assert (row["ErrorCode"], row["GenerationId"]) == (E.NONE, 3)
    assert {each["MemberId"]: each["MemberEpoch"] for each in described(wire)} == {row["MemberId"]: 3, "b": 3}


@pytest.mark.parametrize(
    ("name", "generation", "error"), [("", 0, E.ILLEGAL_GENERATION), ("a", 2, E.REBALANCE_IN_PROGRESS)]
)
def test_an_instance_that_rejoins_with_another_subscription_turns_the_group_back_with_a_rebalance(
    wire: Wire, name: str, generation: int, error: ErrorCode
) -> None:
    """The expected answers are Kafka's: see test_beside_kafka.py."""
    beat(wire, "a", 0, InstanceId="i", SubscribedTopicNames=["u"])
    row = join(wire, name, GroupInstanceId="i")
    assert (row["GenerationId"], kind(wire)) == (generation, ("classic", "PreparingRebalance"))
    member = str(row["MemberId"])
    assert sync(wire, member, generation)[0] == error
    row = join(wire, member, GroupInstanceId="i")
    assert (row["ErrorCode"], row["GenerationId"], row["Leader"]) == (E.NONE, 3, member)


def test_a_group_that_has_turned_back_is_a_classic_group_in_every_way(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic(partitions=4)
    beat(before, "a", 0, InstanceId="i")
    member = str(join(before, GroupInstanceId="i")["MemberId"])
    row: Message = {"GroupId": "g", "GenerationId": 2, "MemberId": member, "Assignments": []}
    right = {"ProtocolType": "consumer", "ProtocolName": "range"}
    for wire in (before, make(storage=Directory(tmp_path))):
        for protocol, error in ((right, E.NONE), (right | {"ProtocolName": "x"}, E.INCONSISTENT_GROUP_PROTOCOL)):
            assert wire.ask("SyncGroup", 5, **row, **protocol)["ErrorCode"] == error
        [group] = wire.ask("DescribeGroups", 5, Groups=["g"])["Groups"]
        assert [group[name] for name in ("GroupState", "ProtocolType", "ProtocolData")] == [
            "Stable",
            "consumer",
            "range",
        ]
        assert group["Members"] == [
            {
                "MemberId": member,
                "GroupInstanceId": "i",
                "ClientId": "client",
                "ClientHost": "/127.0.0.1",
                "MemberMetadata": said([]),
                "MemberAssignment": given(0, 1, 2, 3),
            }
        ]
    wire.wait(9_999)
    assert classic_beat(wire, member, 2) == E.NONE
    wire.wait(10_001)
    assert classic_beat(wire, member, 2) == E.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_that_a_classic_consumer_subscribes_to_stay(wire: Wire) -> None:
    """Kafka: ClassicGroup.isSubscribedToTopic."""
    wire.topic("u")
    classic(wire)
    topics = [{"Name": name, "Partitions": [{"PartitionIndex": 0}]} for name in ("t", "u")]
    answer = wire.ask("OffsetDelete", 0, GroupId="g", Topics=topics)
    found = [part["ErrorCode"] for row in answer["Topics"] for part in row["Partitions"]]
    assert (answer["ErrorCode"], found) == (E.NONE, [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE])


def test_a_group_keeps_its_offsets_whichever_protocol_it_has(wire: Wire) -> None:
    member = classic(wire, GroupInstanceId="i")
    _, producer_id, epoch = wire.init()
    producer = {"TransactionalId": "x", "ProducerId": producer_id, "ProducerEpoch": epoch}
    wire.ask("AddOffsetsToTxn", 3, **producer, GroupId="g")

    def row(number: int) -> Message:
        part = {"PartitionIndex": number, "CommittedOffset": 5 + number, "CommittedMetadata": ""}
        return {"GroupId": "g", "Topics": [{"Name": "t", "Partitions": [part]}]}

    wire.ask("OffsetCommit", 7, MemberId=member, GenerationIdOrMemberEpoch=1, GroupInstanceId="i", **row(0))
    wire.ask("TxnOffsetCommit", 2, **producer, **row(1))
    asked = [{"GroupId": "g", "Topics": [{"Name": "t", "PartitionIndexes": [0, 1]}]}]

    def told() -> list[tuple[int, int]]:
        [group] = wire.ask("OffsetFetch", 8, Groups=asked, RequireStable=True)["Groups"]
        return [(part["CommittedOffset"], part["ErrorCode"]) for part in group["Topics"][0]["Partitions"]]

    for name in ("classic", "consumer", "classic"):
        assert kind(wire)[0] == name
        assert told() == [(5, E.NONE), (-1, E.UNSTABLE_OFFSET_COMMIT)]
        if name == "consumer":
            join(wire, GroupInstanceId="i")
        else:
            beat(wire, "new", 0, InstanceId="i")
    wire.end((producer_id, epoch))
    assert told() == [(5, E.NONE), (6, E.NONE)]
    wire.ask("LeaveGroup", 5, GroupId="g", Members=[{"MemberId": "new", "GroupInstanceId": "i"}])
    beat(wire, "other", 0)
    assert (kind(wire)[0], told()) == ("consumer", [(5, E.NONE), (6, E.NONE)])


def test_a_group_of_another_protocol_does_not_become_one_of_consumers(wire: Wire) -> None:
    protocols = [{"Name": "range", "Metadata": b""}]
    row = {"GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 30_000, "ProtocolType": "connect"}
    member = wire.ask("JoinGroup", 3, MemberId="", Protocols=protocols, **row)["MemberId"]
    sync(wire, member, 1, b"")
    refused = beat(wire, "new", 0)
    assert (refused["ErrorCode"], refused["ErrorMessage"]) == (
        E.GROUP_ID_NOT_FOUND,
        "Cannot upgrade classic group g to consumer group because the group does not use the consumer embedded "
        "protocol.",
    )


def test_a_member_of_the_classic_protocol_is_refused_for_the_same_reasons_as_in_a_classic_group(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.validateConsumerGroupMember, classicGroupSyncToConsumerGroup."""
    beat(wire, "new", 0)
    member = str(join(wire, version=3, GroupInstanceId=None)["MemberId"])
    static = str(join(wire, GroupInstanceId="i")["MemberId"])
    row: Message = {"GroupId": "g", "GenerationId": 4, "Assignments": []}
    protocol = {"ProtocolType": "consumer", "ProtocolName": "range"}
    for who, instance, error in (
        (static, "i", E.NONE),
        (member, "i", E.FENCED_INSTANCE_ID),
        (static, "j", E.UNKNOWN_MEMBER_ID),
    ):
        asked = row | {"MemberId": who, "GroupInstanceId": instance}
        assert wire.ask("SyncGroup", 5, **asked, **protocol)["ErrorCode"] == error
        again = join(wire, who, GroupInstanceId=instance)
        assert (again["ErrorCode"], again["MemberId"]) == (error, "" if error else static)
        refused: tuple[str | None, str] = (None, "") if error else ("range", "range")
        assert [join(wire, who, version=v, GroupInstanceId=instance)["ProtocolName"] for v in (7, 6)] == [*refused]
    for wrong in ({"ProtocolType": "connect"}, {"ProtocolName": "sticky"}):
        asked = row | protocol | wrong | {"MemberId": static, "GroupInstanceId": "i"}
        assert wire.ask("SyncGroup", 5, **asked)["ErrorCode"] == E.INCONSISTENT_GROUP_PROTOCOL
    malformed = [{"Name": "range", "Metadata": b"\0"}]
    asked = {"GroupId": "g", "SessionTimeoutMs": 10_000, "ProtocolType": "consumer", "MemberId": ""}
    answer = wire.ask("JoinGroup", 3, **asked, Protocols=malformed)
    assert (answer["ErrorCode"], answer["MemberId"]) == (E.INCONSISTENT_GROUP_PROTOCOL, "")
    answer = wire.ask("JoinGroup", 3, **(asked | {"ProtocolType": "connect"}), Protocols=malformed)
    assert answer["ErrorCode"] == E.INCONSISTENT_GROUP_PROTOCOL


def test_an_instance_that_rejoins_by_the_consumer_protocol_need_not_have_left(wire: Wire) -> None:
    classic(wire, GroupInstanceId="i")
    row = beat(wire, "new", 0, InstanceId="i")
    assert (row["ErrorCode"], numbers(row)) == (E.NONE, {0, 1, 2, 3})


def test_an_instance_that_was_away_may_come_back_by_the_classic_protocol(wire: Wire) -> None:
    for member, more in (("a", {"InstanceId": "i"}), ("b", {})):
        beat(wire, member, 0, **more)
    beat(wire, "a", -2, InstanceId="i")
    member = str(join(wire, GroupInstanceId="i")["MemberId"])
    assert {each["MemberId"]: each["MemberEpoch"] >= 0 for each in described(wire)} == {member: True, "b": True}


def test_a_classic_group_that_has_a_topic_that_is_gone_becomes_a_consumer_group(wire: Wire) -> None:
    member = str(join(wire)["MemberId"])
    assert join(wire, member)["GenerationId"] == 1
    sync(wire, member, 1, assignment_bytes([("gone", [0]), ("t", [0, 1, 2, 3])], 1))
    assert beat(wire, "new", 0)["ErrorCode"] == E.NONE


def test_a_full_consumer_group_takes_no_other_member_of_either_protocol(make: Make) -> None:
    """Kafka: GroupMetadataManager.throwIfConsumerGroupIsFull."""
    wire = make(settings=Settings(limits=Limits(members=2)))
    wire.topic(partitions=4)
    answers = [beat(wire, *who) for who in (("a", 0), ("b", 0), ("c", 0), ("c", 2), ("b", 0))] + [join(wire)]
    full = E.GROUP_MAX_SIZE_REACHED
    assert [row["ErrorCode"] for row in answers] == [E.NONE, E.NONE, full, full, E.NONE, full]


@pytest.mark.parametrize(
    ("policy", "ups", "downs"),
    [("disabled", False, False), ("upgrade", True, False), ("downgrade", False, True), ("bidirectional", True, True)],
)
def test_the_policy_says_in_which_direction_groups_may_go(make: Make, policy: str, ups: bool, downs: bool) -> None:
    wire = make(settings=Settings(migration_policy=policy))
    wire.topic(partitions=4)
    classic(wire)
    row = beat(wire, "new", 0)
    assert row["ErrorCode"] == (E.NONE if ups else E.GROUP_ID_NOT_FOUND)
    assert ups or "online upgrade is disabled" in row["ErrorMessage"]

    wire = make(settings=Settings(migration_policy=policy))
    wire.topic(partitions=4)
    beat(wire, "new", 0)
    member = str(join(wire)["MemberId"])
    assert join(wire, member)["ErrorCode"] == E.NONE
    beat(wire, "new", -1)
    assert kind(wire) == (("classic", "PreparingRebalance") if downs else ("consumer", "Assigning"))


def test_what_an_assignor_adds_or_cannot_be_read_keeps_a_group_classic(wire: Wire) -> None:
    member = str(join(wire)["MemberId"])
    join(wire, member)
    row = {"AssignedPartitions": [], "UserData": b"mine"}
    sync(wire, member, 1, b"\0\0" + served_codec().write("ConsumerProtocolAssignment", 0, row))
    refused = beat(wire, "new", 0)
    assert refused["ErrorCode"] == E.GROUP_ID_NOT_FOUND
    assert "an unsupported custom assignor is in use" in refused["ErrorMessage"]
    join(wire, member)
    sync(wire, member, 2, b"\0")
    assert "malformed" in beat(wire, "new", 0)["ErrorMessage"]


def test_members_of_the_classic_protocol_are_told_in_its_words(wire: Wire) -> None:
    beat(wire, "new", 0)
    member = str(join(wire)["MemberId"])
    assert join(wire, member, name="range")["GenerationId"] == 3
    assert join(wire, name="sticky")["ErrorCode"] == E.INCONSISTENT_GROUP_PROTOCOL
    assert classic_beat(wire, member, 1) == sync(wire, member, 1)[0] == E.ILLEGAL_GENERATION
    assert classic_beat(wire, "nobody", 3) == classic_beat(wire, "new", 2) == E.UNKNOWN_MEMBER_ID
    part = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}
    topics = [{"Name": "t", "Partitions": [part]}]
    for generation, error in ((3, E.NONE), (2, E.ILLEGAL_GENERATION)):
        row = {"GroupId": "g", "MemberId": member, "GenerationIdOrMemberEpoch": generation, "Topics": topics}
        answer = wire.ask("OffsetCommit", 8, **row)
        assert answer["Topics"][0]["Partitions"][0]["ErrorCode"] == error
    types = {each["MemberId"]: each["MemberType"] for each in described(wire)}
    assert types == {"new": 1, member: 0}


def described(wire: Wire) -> list[Message]:
    [group] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"])["Groups"]
    return list(group["Members"])


def test_leave_group_is_for_members_of_either_protocol(wire: Wire) -> None:
    beat(wire, "a", 0, InstanceId="i")
    beat(wire, "b", 0)
    asked = [
        {"MemberId": "b", "GroupInstanceId": "i"},
        {"MemberId": "", "GroupInstanceId": "j"},
        {"MemberId": "", "GroupInstanceId": "i"},
        {"MemberId": "b", "GroupInstanceId": None},
        {"MemberId": "c", "GroupInstanceId": None},
    ]
    row = wire.ask("LeaveGroup", 5, GroupId="g", Members=asked)
    refused = E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID
    assert [each["ErrorCode"] for each in row["Members"]] == [*refused, E.NONE, E.NONE, E.UNKNOWN_MEMBER_ID]
    assert kind(wire) == ("consumer", "Empty")
    [group] = wire.ask("ConsumerGroupDescribe", 1, GroupIds=["g"])["Groups"]
    assert group["GroupEpoch"] == 4, "one epoch for all that leave together"


def test_an_assignment_is_told_in_the_version_of_the_members_first_assignor(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.prepareAssignment, ConsumerProtocol.deserializeVersion."""
    beat(wire, "new", 0)
    protocols = [{"Name": "range", "Metadata": said([], 1)}, {"Name": "roundrobin", "Metadata": said([], 0)}]
    row: Message = {"GroupId": "g", "SessionTimeoutMs": 10_000, "RebalanceTimeoutMs": 30_000, "MemberId": ""}
    row |= {"ProtocolType": "consumer", "Protocols": protocols}
    member = wire.ask("JoinGroup", 7, **row)["MemberId"]
    joined = wire.ask("JoinGroup", 7, **(row | {"MemberId": member}))
    assert sync(wire, member, joined["GenerationId"]) == (E.NONE, given())


@pytest.mark.parametrize("turns_back", [False, True])
def test_a_member_of_the_classic_protocol_is_not_told_of_a_topic_that_is_gone(wire: Wire, turns_back: bool) -> None:
    """Kafka: Utils.toConsumerProtocolAssignment."""
    member = classic(wire)
    beat(wire, "new", 0)
    generation = join(wire, member, (0, 1, 2, 3))["GenerationId"]
    wire.ask("DeleteTopics", 5, TopicNames=["t"], TimeoutMs=1_000)
    if turns_back:
        wire.ask("ConsumerGroupHeartbeat", 1, GroupId="g", MemberId="new", MemberEpoch=-1)
        assert kind(wire)[0] == "classic"
        group = wire.cluster.groups.classic("g")
        assert group is not None
        assert group.members[member].assignment == given()
    else:
        assert sync(wire, member, generation) == (E.NONE, given())


@pytest.mark.parametrize("syncs", [False, True])
def test_a_member_of_the_classic_protocol_that_does_not_sync_is_removed(wire: Wire, syncs: bool) -> None:
    beat(wire, "new", 0)
    member = str(join(wire)["MemberId"])
    join(wire, member)
    if syncs:
        assert sync(wire, member, 3) == (E.NONE, given())
    for _ in range(4):
        wire.wait(8_000)
        classic_beat(wire, member, 3)
    assert {each["MemberId"] for each in described(wire)} == {"new", *([member] if syncs else [])}


def test_a_member_of_the_classic_protocol_that_syncs_for_an_epoch_that_has_passed_joins_again(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.classicGroupSyncToConsumerGroup."""
    beat(wire, "new", 0)
    member = str(join(wire)["MemberId"])
    assert join(wire, member)["GenerationId"] == 3
    beat(wire, "newer", 0)
    wire.wait(5_000)
    assert sync(wire, member, 3) == (E.REBALANCE_IN_PROGRESS, b"")
    group = wire.cluster.consumer_groups.find("g")
    assert group is not None
    side = group.followers[member].classic
    assert side is not None
    assert (side.joins_by, side.syncs_by) == (wire.cluster.now + 30_000, wire.cluster.now + 25_000)


def test_a_member_of_the_classic_protocol_joins_again_once_its_partitions_are_given_up(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.classicGroupHeartbeatToConsumerGroup."""
    beat(wire, "new", 0)
    member = str(join(wire)["MemberId"])
    assert join(wire, member)["GenerationId"] == 3
    assert sync(wire, member, 3) == (E.NONE, given())
    assert classic_beat(wire, member, 3) == E.NONE
    kept = numbers(beat(wire, "new", 2, {0, 1, 2, 3}))
    assert classic_beat(wire, member, 3) == E.NONE
    beat(wire, "new", 2, kept)
    assert classic_beat(wire, member, 3) == E.REBALANCE_IN_PROGRESS
    join(wire, member)
    assert sync(wire, member, 3) == (E.NONE, given(*sorted({0, 1, 2, 3} - kept)))
    assert classic_beat(wire, member, 3) == E.NONE


@pytest.mark.parametrize("was_there", [False, True])
def test_a_member_of_the_classic_protocol_that_is_silent_is_removed_when_its_session_ends(
    was_there: bool, wire: Wire
) -> None:
    member = classic(wire) if was_there else ""
    beat(wire, "new", 0)
    if not was_there:
        member = str(join(wire)["MemberId"])
        join(wire, member)
    if not was_there:
        wire.wait(9_999)
        assert sync(wire, member, 3)[0] == E.NONE, "from now on"
    for milliseconds, members in ((9_999, {"new", member}), (1, {"new"})):
        wire.wait(milliseconds)
        assert {each["MemberId"] for each in described(wire)} == members


def test_a_member_of_the_classic_protocol_that_does_not_join_again_in_time_is_removed(wire: Wire) -> None:
    """Kafka: GroupMetadataManager.scheduleConsumerGroupJoinTimeoutIfAbsent."""
    member = classic(wire)
    beat(wire, "new", 0)
    for milliseconds in (0, 7_500, 7_500, 7_500, 7_499):
        wire.wait(milliseconds)
        assert classic_beat(wire, member, 1) == E.REBALANCE_IN_PROGRESS
        beat(wire, "new", 2, set())
    wire.wait(1)
    assert [each["MemberId"] for each in described(wire)] == ["new"]


def test_a_heartbeat_of_the_classic_protocol_prolongs_its_members_session(wire: Wire) -> None:
    member = classic(wire)
    beat(wire, "new", 0)
    for _ in range(3):
        wire.wait(9_999)
        assert classic_beat(wire, member, 1) == E.REBALANCE_IN_PROGRESS
        beat(wire, "new", 2, set())
    wire.wait(10_000)
    assert [each["MemberId"] for each in described(wire)] == ["new"]


@pytest.mark.parametrize(("version", "error"), [(3, E.NONE), (4, E.MEMBER_ID_REQUIRED)])
def test_a_consumer_group_gives_a_member_an_id_to_come_back_with_from_version_4_on(
    wire: Wire, version: int, error: ErrorCode
) -> None:
    beat(wire, "new", 0)
    assert join(wire, version=version)["ErrorCode"] == error


def test_what_consumers_say_is_read_in_any_version_and_what_is_none_is_not() -> None:
    assert subscription(said([1], 1)) == Subscription(frozenset({"t"}), frozenset({"t-1"}), 1)
    assert subscription(said([], 0)) == Subscription(frozenset({"t"}), frozenset(), 0)
    for nothing in (b"", b"\0", b"\xff\xff" + said([], 3)[2:], b"\0\0\0"):
        assert subscription(nothing) is None
    assert assignment(given(2, 3)) == (frozenset({"t-2", "t-3"}), b"")
    assert assignment(b"") == (frozenset(), b"")
    assert assignment(b"\0\0\0\0") is None
