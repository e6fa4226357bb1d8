"""Members of consumer groups (KIP-848) from Kafka to the served reference and back, by ``__consumer_offsets`` alone."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kafka_eos.server.cluster import CONSUMER_OFFSETS, Broker, Settings
from kafka_eos.server.cluster import Cluster as Served
from kafka_eos.server.handlers import handle
from kafka_eos.server.handlers.request import Request
from kafka_eos.server.schemas import served_codec
from kafka_eos.server.storage import Directory
from kafka_eos.wire.protocol import Buffer, Message
from kafka_eos_checks.brokers.brokers import Cluster, ask
from kafka_eos_checks.brokers.jars import have_jars

pytestmark = [
    pytest.mark.broker,
    pytest.mark.thorough,
    pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos record` fetches them"),
]
GROUP, TOPIC, ALL = "g", "t", {0, 1, 2, 3}
SETTINGS = {"group.consumer.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}
NOT_READY = {14, 15, 16}

Ask = Callable[[str, int, Message], Message]


def beat(send: Ask, topic_id: UUID, member: str, epoch: int, owned: set[int] | None = None) -> tuple[int, set[int]]:
    """Send a heartbeat: the member's epoch, or the negative error, and the partitions that the answer names."""
    row: Message = {"GroupId": GROUP, "MemberId": member, "MemberEpoch": epoch}
    if epoch == 0:
        row |= {"SubscribedTopicNames": [TOPIC], "RebalanceTimeoutMs": 60_000, "TopicPartitions": []}
    elif owned is not None:
        row["TopicPartitions"] = [{"TopicId": topic_id, "Partitions": sorted(owned)}]
    deadline = time.monotonic() + 60
    while (answer := send("ConsumerGroupHeartbeat", 1, row))["ErrorCode"] in NOT_READY:
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)
    given = (answer["Assignment"] or {"TopicPartitions": []})["TopicPartitions"]
    return -answer["ErrorCode"] or answer["MemberEpoch"], {number for each in given for number in each["Partitions"]}


def commit(send: Ask, member: str, epoch: int, partition: int) -> int:
    """The error of an offset."""
    part = {"PartitionIndex": partition, "CommittedOffset": 1, "CommittedMetadata": ""}
    row: Message = {"GroupId": GROUP, "MemberId": member, "GenerationIdOrMemberEpoch": epoch}
    row["Topics"] = [{"Name": TOPIC, "Partitions": [part]}]
    answer = send("OffsetCommit", 9, row)
    return int(answer["Topics"][0]["Partitions"][0]["ErrorCode"])


def described(send: Ask) -> Message:
    """The group, without the metadata that is no member's."""
    [group] = send("ConsumerGroupDescribe", 1, {"GroupIds": [GROUP]})["Groups"]
    members = [
        {
            key: each[key]
            for key in ("MemberId", "MemberEpoch", "Assignment", "TargetAssignment", "SubscribedTopicNames")
        }
        for each in sorted(group["Members"], key=lambda each: str(each["MemberId"]))
    ]
    return {key: group[key] for key in ("GroupState", "GroupEpoch", "AssignmentEpoch")} | {"Members": members}


def unheard(row: Message) -> None:
    """No request here waits for its answer."""


def asking(served: Served) -> Ask:
    """Requests to a served cluster without sockets."""
    codec = served_codec()

    def send(api: str, version: int, row: Message) -> Message:
        given = codec.read(f"{api}Request", version, Buffer(codec.write(f"{api}Request", version, row)))
        answer = handle(served, Request(api, version, given, 1, "test", "/127.0.0.1", unheard))
        assert answer is not None
        return codec.read(f"{api}Response", version, Buffer(codec.write(f"{api}Response", version, answer)))

    return send


def serve(folder: Path) -> Served:
    now = time.time_ns() // 1_000_000
    return Served([Broker(1, "127.0.0.1", 9092)], Settings(internal_partitions=1), Directory(folder), now=now)


def in_the_middle(send: Ask, topic_id: UUID) -> set[int]:
    """Member "b" waits for the partitions that "a" has to give up; returns those that "a" keeps."""
    beat(send, topic_id, "a", 0)
    assert commit(send, "a", 2, 0) == 0
    assert beat(send, topic_id, "b", 0) == (3, set())
    epoch, kept = beat(send, topic_id, "a", 2, ALL)
    assert (epoch, len(kept)) == (2, 2)
    return kept


def test_members_go_on_at_the_served_reference_with_what_kafka_stored_and_the_other_way_round(tmp_path: Path) -> None:
    with Cluster(tmp_path / "kafka", settings=SETTINGS) as kafka:
        kafka.create_topic(TOPIC, partitions=4)
        port = kafka.any_port()

        def send(api: str, version: int, row: Message) -> Message:
            return ask(port, api, version, row)

        send("FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": [GROUP]})
        [topic] = send("Metadata", 12, {"Topics": [{"Name": TOPIC}]})["Topics"]
        topic_id = topic["TopicId"]
        deadline = time.monotonic() + 60
        while not beat(send, topic_id, "a", 0)[1]:  # until the coordinator knows the topic
            assert time.monotonic() < deadline
            beat(send, topic_id, "a", -1)
            send("DeleteGroups", 2, {"GroupsNames": [GROUP]})
        kept = in_the_middle(send, topic_id)
        [broker] = kafka.brokers
        folder = tmp_path / "from-kafka"
        for path in broker.data.iterdir():
            if path.name == "meta.properties":
                folder.mkdir(exist_ok=True)
                shutil.copy(path, folder)
            elif path.name.rpartition("-")[0] in {TOPIC, CONSUMER_OFFSETS}:
                shutil.copytree(path, folder / path.name)
        before = described(send)

        served = serve(folder)
        here = asking(served)
        assert described(here) == before
        assert beat(here, topic_id, "a", 2, kept) == (3, set())
        assert beat(here, topic_id, "b", 3) == (3, ALL - kept)
        assert [commit(here, "a", epoch, min(kept)) for epoch in (1, 2, 3)] == [113, 0, 0]
        stored = described(here)
        assert stored["GroupState"] == "Stable"
        served.close()

        broker.stop()
        for path in broker.data.glob(f"{CONSUMER_OFFSETS}-0/0*"):
            path.unlink()
        [log] = (folder / f"{CONSUMER_OFFSETS}-0").glob("*.log")
        shutil.copy(log, broker.data / f"{CONSUMER_OFFSETS}-0" / log.name)
        broker.start()
        kafka.wait_ready()
        port = kafka.any_port()
        beat(send, topic_id, "nobody", 1)  # returns when the coordinator is loaded
        assert described(send) == stored
        assert [commit(send, "a", epoch, min(kept)) for epoch in (1, 2, 3)] == [113, 0, 0]
        epoch, _ = beat(send, topic_id, "a", 3)
        assert epoch == 4  # the hash of the topics is not stored: Kafka takes them for changed
        assert beat(send, topic_id, "b", 3)[0] == 4
