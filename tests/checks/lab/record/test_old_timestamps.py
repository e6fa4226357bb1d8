"""Idempotent producers whose records have old timestamps, on a real broker: a retry is stored a second time."""

import time
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.brokers.brokers import Broker, Cluster, ask
from kafka_eos_checks.brokers.jars import RECORDED

from .held_threads import SECONDS, TOPIC, need_kafka, once_it_is_there, wait_until

SOON = {"producer.id.expiration.check.interval.ms": "1000"}  # 10 minutes by default
TWO_DAYS_MS = 172_800_000  # producer.id.expiration.ms is one day by default


class Producer:
    """An idempotent producer that sends its first batch, and sends it again.

    Args:
        broker: the leader of partition 0.
        age_ms: the age of its record's timestamp.
    """

    def __init__(self, broker: Broker, age_ms: int) -> None:
        self.broker = broker
        row = {"TransactionalId": None, "TransactionTimeoutMs": 60_000, "ProducerId": -1, "ProducerEpoch": -1}
        self.producer_id = once_it_is_there(lambda: ask(broker.port, "InitProducerId", 4, row, SECONDS))["ProducerId"]
        self.batch = build_batch(
            [Record(value=b"v")],
            base_timestamp=int(time.time() * 1000) - age_ms,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=0,
        )

    def send(self) -> int:
        """The offset that the leader gives the batch."""
        data = [{"Name": TOPIC, "PartitionData": [{"Index": 0, "Records": self.batch.encode()}]}]
        row = {"TransactionalId": None, "Acks": -1, "TimeoutMs": 5_000, "TopicData": data}
        answer = ask(self.broker.port, "Produce", 9, row, SECONDS)
        [[part]] = [topic["PartitionResponses"] for topic in answer["Responses"]]
        assert part["ErrorCode"] == ErrorCode.NONE
        return int(part["BaseOffset"])

    def is_known(self) -> bool:
        """Ask the leader for the producers that it knows."""
        row = {"Topics": [{"Name": TOPIC, "PartitionIndexes": [0]}]}
        answer = ask(self.broker.port, "DescribeProducers", 0, row, SECONDS)
        [[part]] = [topic["Partitions"] for topic in answer["Topics"]]
        return any(each["ProducerId"] == self.producer_id for each in part["ActiveProducers"])


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", RECORDED)
def test_a_leader_forgets_a_producer_of_old_records_and_stores_its_retry_again(kafka: str, tmp_path: Path) -> None:
    need_kafka(kafka)
    with Cluster(tmp_path / "c", kafka=kafka, settings=SOON) as cluster:
        cluster.create_topic(TOPIC)
        new, old = (Producer(cluster[1], age_ms) for age_ms in (0, TWO_DAYS_MS))
        assert (new.send(), old.send()) == (0, 1)
        wait_until(lambda: not old.is_known())
        assert new.is_known()
        assert (new.send(), old.send()) == (0, 2)
