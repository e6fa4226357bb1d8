"""A request for several markers of which the last one has no partition on the broker, on a real broker."""

from pathlib import Path

import pytest

from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.brokers import Cluster, ask
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, have_jars

pytestmark = [pytest.mark.broker, pytest.mark.thorough]
UNKNOWN_TOPIC_OR_PARTITION = 3


@pytest.mark.parametrize("release", ["3.9.1", KAFKA_VERSION, NEWEST])
def test_kafka_does_not_answer_markers_if_the_last_one_has_no_partition_here_and_the_others_are_written(
    release: str, tmp_path: Path
) -> None:
    if not have_jars(release):
        pytest.skip(f"the jars of Kafka {release} are not there; `kafka-eos lab record` fetches them")
    with Cluster(tmp_path / "kafka", kafka=release) as kafka:
        kafka.create_topic("t", partitions=1)
        port = kafka.any_port()

        def marker(producer_id: int, topic: str) -> Message:
            row: Message = {"ProducerId": producer_id, "ProducerEpoch": 0, "TransactionResult": False}
            return row | {"Topics": [{"Name": topic, "PartitionIndexes": [0]}], "CoordinatorEpoch": 0}

        def errors(*topics: str, seconds: float = 60) -> list[int]:
            row: Message = {"Markers": [marker(number, topic) for number, topic in enumerate(topics)]}
            answer = ask(port, "WriteTxnMarkers", 1, row, seconds)
            return [each["Topics"][0]["Partitions"][0]["ErrorCode"] for each in answer["Markers"]]

        assert errors("t") == [0]
        assert errors("gone", "t") == [UNKNOWN_TOPIC_OR_PARTITION, 0]
        with pytest.raises(TimeoutError):  # the finding lost-marker-answer
            errors("t", "gone", seconds=5)
        assert errors("t", "gone", "t") == [0, UNKNOWN_TOPIC_OR_PARTITION, 0]
