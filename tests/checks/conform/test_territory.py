"""The topics and groups that a run creates on a cluster and deletes again: what is asked for, and what is left."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.conform import territory as module
from kafka_eos_checks.conform.stage import Stage
from kafka_eos_checks.conform.territory import INTERVAL, PARTITIONS, NotOurs, Territory
from kafka_eos_checks.conform.wire import Address, NoAnswer, Unreachable, Unsupported

HERE = Address("127.0.0.1", 1)
BROKERS = [{"NodeId": 7, "Host": HERE.host, "Port": HERE.port}]
LED = [{"PartitionIndex": number, "LeaderId": 7, "ErrorCode": 0} for number in range(PARTITIONS)]
METADATA = {"Brokers": BROKERS, "Topics": [{"ErrorCode": 0, "Partitions": LED}]}

Answer = Callable[[Message], Message]


def territory(
    answers: dict[str, Answer], create: int | None = 7, seconds: float = 20.0
) -> tuple[Territory, list[tuple[str, Message, Address | None]]]:
    """A territory on a cluster that answers so, with what it is asked; ``create``: its version of CreateTopics."""
    asked: list[tuple[str, Message, Address | None]] = []

    def ask(api: str, row: Message, at: Address | None = None, version: int | None = None) -> Message:
        asked.append((api, row, at))
        return {"Metadata": lambda _: METADATA, **answers}[api](row)

    def version(api: str) -> int:
        if api == "CreateTopics" and create is None:
            raise Unsupported("CreateTopics: the broker does not offer it")
        return 4 if create is None else create

    wire: Any = SimpleNamespace(ask=ask, version=version)
    return Territory(wire, seconds=seconds), asked


def created(error: int = 0, message: str | None = None) -> dict[str, Answer]:
    return {"CreateTopics": lambda _: {"Topics": [{"ErrorCode": error, "ErrorMessage": message}]}}


@pytest.mark.parametrize(("version", "replicas"), [(3, 1), (4, -1), (7, -1)])
def test_a_topic_has_as_many_replicas_as_the_cluster_wants_if_that_can_be_asked_for(
    version: int, replicas: int
) -> None:
    own, asked = territory(created(), version)
    stages = [own.stage() for _ in range(PARTITIONS)]
    [row] = [row["Topics"] for api, row, _ in asked if api == "CreateTopics"]
    expected = {"Name": own.topics[0], "NumPartitions": PARTITIONS, "ReplicationFactor": replicas}
    assert row == [expected | {"Configs": [{"Name": "segment.ms", "Value": "1000"}]}]
    assert {(stage.topic, stage.partition) for stage in stages} == {(own.topics[0], n) for n in range(PARTITIONS)}
    assert len({stage.prefix for stage in stages}) == PARTITIONS


def test_a_scenario_of_two_partitions_has_both_in_one_topic_and_no_other_scenario_has_them() -> None:
    own, _ = territory(created())
    pairs = [own.stage(has_second=True) for _ in range(PARTITIONS // 2 - 1)]
    lonely, last = own.stage(), own.stage(has_second=True)
    taken = [(each.topic, each.partition) for stage in (*pairs, last) for each in (stage, stage.second) if each]
    assert len({*taken, (lonely.topic, lonely.partition)}) == PARTITIONS + 1
    assert all(stage.second and stage.second.topic == stage.topic for stage in (*pairs, last))
    assert last.second is not None
    assert last.second.ids is last.ids
    assert lonely.second is None


def test_a_scenario_of_two_groups_has_both_and_deletes_both_if_they_were_used() -> None:
    coordinator = {"ErrorCode": 0, "Host": HERE.host, "Port": HERE.port}
    deleted: list[str] = []

    def delete(row: Message) -> Message:
        deleted.extend(row["GroupsNames"])
        return {"Results": [{"ErrorCode": 0}]}

    answers = {**created(), "FindCoordinator": lambda _: {"Coordinators": [coordinator]}, "DeleteGroups": delete}
    own, _ = territory({**answers, "DeleteTopics": lambda _: {"Responses": [{"ErrorCode": 0}]}})
    used, unused = (own.stage(has_second_group=True) for _ in range(2))
    used.has_group = True
    assert used.second is not None
    assert unused.second is not None
    assert len({each.group for each in (used, used.second, unused, unused.second)}) == 4
    own.clean()
    assert deleted == [used.group, used.second.group]


def test_there_is_no_second_partition_where_topics_have_one() -> None:
    alone = {**METADATA, "Topics": [{"ErrorCode": 0, "Partitions": LED[:1]}]}
    own, _ = territory({"Metadata": lambda _: alone}, create=None)
    assert [own.stage(has_second=True).second for _ in range(2)] == [None, None]


def test_a_topic_of_an_outage_has_its_only_replica_where_the_scenario_needs_it() -> None:
    own, asked = territory(created())
    assert own.stage_on(7, ()).topic == own.topics[0]
    [[row]] = [row["Topics"] for api, row, _ in asked if api == "CreateTopics"]
    assert (row["NumPartitions"], row["ReplicationFactor"]) == (-1, -1), "Kafka wants it so next to assignments"
    assert row["Assignments"] == [{"PartitionIndex": number, "BrokerIds": [7]} for number in range(PARTITIONS)]
    assert {"Name": "min.insync.replicas", "Value": "1"} in row["Configs"]


@pytest.mark.parametrize(
    ("message", "said"),
    [("no more topics", r"topic .*-topic-0: POLICY_VIOLATION no more topics$"), (None, "-0: POLICY_VIOLATION$")],
)
def test_a_topic_that_the_broker_does_not_create_ends_the_run_with_its_words(message: str | None, said: str) -> None:
    own, _ = territory(created(ErrorCode.POLICY_VIOLATION, message))
    with pytest.raises(NotOurs, match=said):
        own.stage()
    assert own.topics == []


def test_without_create_topics_a_topic_is_asked_into_being_with_as_many_partitions_as_it_gets() -> None:
    counts = iter([[], [], LED[:2]])

    def metadata(row: Message) -> Message:
        assert row["AllowAutoTopicCreation"]
        return {"Brokers": BROKERS, "Topics": [{"ErrorCode": 5, "Partitions": next(counts)}]}

    own, asked = territory({"Metadata": metadata}, None)
    assert [own.stage().partition for _ in range(2)] == [0, 1]
    assert len(asked) == 3
    assert len(own.topics) == 1
    with pytest.raises(Unsupported, match="CreateTopics"):
        own.stage_on(7, ())


def test_a_topic_that_nobody_makes_is_no_answer_and_is_deleted_if_it_comes_late() -> None:
    empty = {"Brokers": BROKERS, "Topics": []}
    deleted: list[list[str]] = []

    def delete(row: Message) -> Message:
        deleted.append(row["TopicNames"])
        return {"Responses": [{"ErrorCode": 0}]}

    own, _ = territory({"Metadata": lambda _: empty, "DeleteTopics": delete}, None)
    own.places.seconds = 0.02
    with (
        pytest.raises(NoAnswer, match=r"not offer CreateTopics, and 0.02 s after Metadata has asked"),
        own,
    ):
        own.stage()
    assert [len(names) for names in deleted] == [1]


def test_what_has_no_leader_is_told_by_its_name() -> None:
    own, _ = territory({"Metadata": lambda _: {"Brokers": BROKERS, "Topics": [{"ErrorCode": 5, "Partitions": []}]}})
    own.places.seconds = 0.0
    with pytest.raises(NoAnswer, match="no leader of t: error 5"):
        own.places.leader("t", 3)


# --- groups of KIP-848 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "seconds"), [("1500", 1.5), ("0", 0.0), (None, 0.0)])
def test_how_long_a_group_keeps_an_assignment_is_learnt_of_the_broker(value: str | None, seconds: float) -> None:
    def configs(row: Message) -> Message:
        assert row == {"Resources": [{"ResourceType": 4, "ResourceName": "7", "ConfigurationKeys": [INTERVAL]}]}
        return {"Results": [{"Configs": [{"Name": INTERVAL, "Value": value}]}]}

    own, asked = territory({"DescribeConfigs": configs})
    assert own._assignment_interval() == seconds
    assert [at for api, _, at in asked if api == "DescribeConfigs"] == [HERE]


@pytest.mark.parametrize("error", [NoAnswer("late"), Unsupported("not offered")])
def test_a_broker_that_does_not_tell_how_long_an_assignment_is_kept_is_not_waited_for(error: Exception) -> None:
    def configs(_: Message) -> Message:
        raise error

    assert territory({"DescribeConfigs": configs})[0]._assignment_interval() == 0.0


def of_members(assigned: Iterator[bool], monkeypatch: pytest.MonkeyPatch, seconds: float = 20.0) -> Territory:
    monkeypatch.setattr(Territory, "_assignment_interval", lambda _: 0.25)
    monkeypatch.setattr(Stage, "assigns", lambda _: next(assigned))
    return territory(created(), seconds=seconds)[0]


def test_members_come_when_the_coordinator_assigns_their_topic_which_all_scenarios_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assigned = iter([False, False, True])
    own = of_members(assigned, monkeypatch)
    stages = [own.stage(has_topic=True) for _ in range(2)]
    assert list(assigned) == []
    assert {(stage.topic, stage.partition, stage.assigns_after) for stage in stages} == {(own.topics[0], 0, 0.25)}
    assert len({stage.group for stage in own._stages}) == 3 + 2, "a group that was asked has had members"
    assert len(own.topics) == 1


def test_a_coordinator_that_assigns_nothing_is_waited_for_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> Iterator[bool]:
        while True:
            yield False

    assert of_members(never(), monkeypatch, seconds=0.02).stage(has_topic=True).partition == 0


# --- deleting --------------------------------------------------------------------------------------------------------


def cleaned(*codes: int | Exception, seconds: float = 20.0) -> list[str]:
    """The names of a topic and a group that are left behind if the broker answers their deletion with these codes."""

    def answering() -> Callable[[], int]:
        left = iter(codes)

        def code() -> int:
            said = next(left)
            if isinstance(said, Exception):
                raise said
            return said

        return code

    topic, group = answering(), answering()
    coordinator = {"Coordinators": [{"ErrorCode": 0, "Host": HERE.host, "Port": HERE.port}]}
    own, _ = territory(
        {
            **created(),
            "FindCoordinator": lambda _: coordinator,
            "DeleteTopics": lambda _: {"Responses": [{"ErrorCode": topic()}]},
            "DeleteGroups": lambda _: {"Results": [{"ErrorCode": group()}]},
        },
        seconds=seconds,
    )
    own.token = "x"  # noqa: S105 - part of a name
    own.stage().has_group = True
    own.stage()  # without a group
    own.clean()
    assert own.topics == []
    return own.left


def test_what_cannot_be_deleted_yet_is_tried_again_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(module, "wait", waited.append)
    assert cleaned(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE) == []
    assert waited == [0, 1] * 2


@pytest.mark.parametrize(
    ("codes", "why"),
    [
        ((ErrorCode.POLICY_VIOLATION,), " (POLICY_VIOLATION)"),
        ((NoAnswer("late"),), ""),
        ((Unreachable("gone"),), ""),
        ((Unsupported("not offered"),), ""),
        ((ErrorCode.NOT_COORDINATOR, NoAnswer("late")), " (NOT_COORDINATOR)"),
    ],
)
def test_what_stays_is_told_with_the_last_answer(codes: tuple[int | Exception, ...], why: str) -> None:
    seconds = 0.0 if len(codes) == 1 else 20.0
    names = [f"group kafka-eos-conform-x-0-group{why}", f"topic kafka-eos-conform-x-topic-0{why}"]
    assert cleaned(*codes, seconds=seconds) == names


def test_a_group_that_is_gone_is_not_left() -> None:
    left = cleaned(ErrorCode.GROUP_ID_NOT_FOUND, seconds=0.0)
    assert left == ["topic kafka-eos-conform-x-topic-0 (GROUP_ID_NOT_FOUND)"]
