"""A static member of a consumer group (KIP-848) that leaves and comes back, on a real broker."""

import time
from pathlib import Path

import pytest

from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.brokers import Cluster, ask
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, have_jars

pytestmark = [pytest.mark.broker, pytest.mark.thorough]
SETTINGS = {"group.consumer.assignment.interval.ms": "0", "offsets.topic.num.partitions": "1"}
LEAVE, STATIC_LEAVE = -1, -2
STALE_MEMBER_EPOCH = 113


@pytest.mark.parametrize("release", [KAFKA_VERSION, NEWEST])
def test_kafka_takes_offsets_of_an_epoch_before_the_partition_was_away_once_a_static_member_is_back(
    release: str, tmp_path: Path
) -> None:
    if not have_jars(release):
        pytest.skip(f"the jars of Kafka {release} are not there; `kafka-eos lab record` fetches them")
    with Cluster(tmp_path / "kafka", settings=SETTINGS, kafka=release) as kafka:
        kafka.create_topic("t", partitions=1)
        port = kafka.any_port()
        ask(port, "FindCoordinator", 4, {"KeyType": 0, "CoordinatorKeys": ["g"]})

        def beat(member: str, epoch: int) -> Message:
            row: Message = {"GroupId": "g", "MemberId": member, "InstanceId": f"static-{member}", "MemberEpoch": epoch}
            if epoch == 0:
                row |= {"SubscribedTopicNames": ["t"], "RebalanceTimeoutMs": 60_000, "TopicPartitions": []}
            return ask(port, "ConsumerGroupHeartbeat", 1, row)

        def owning(member: str) -> int:
            """The epoch of a member that has joined and has the partition."""
            deadline = time.monotonic() + 60
            answer = beat(member, 0)
            while answer["ErrorCode"] or not (answer["Assignment"] or {"TopicPartitions": []})["TopicPartitions"]:
                assert time.monotonic() < deadline, answer
                time.sleep(0.2)
                answer = beat(member, answer["MemberEpoch"])
            return int(answer["MemberEpoch"])

        def commit(member: str, epoch: int) -> int:
            part = {"PartitionIndex": 0, "CommittedOffset": 1, "CommittedMetadata": ""}
            row: Message = {"GroupId": "g", "MemberId": member, "GenerationIdOrMemberEpoch": epoch}
            row["Topics"] = [{"Name": "t", "Partitions": [part]}]
            return int(ask(port, "OffsetCommit", 9, row)["Topics"][0]["Partitions"][0]["ErrorCode"])

        first = owning("a")
        assert commit("a", first) == 0
        beat("a", LEAVE)
        assert commit("b", owning("b")) == 0, "the partition is another member's in between"
        beat("b", LEAVE)
        second = owning("a")
        assert second > first
        assert commit("a", first) == STALE_MEMBER_EPOCH, "KIP-1251: the partition was away"
        assert beat("a", STATIC_LEAVE)["ErrorCode"] == 0
        assert owning("a") >= second
        assert commit("a", first) == 0, "the finding static-leave"
