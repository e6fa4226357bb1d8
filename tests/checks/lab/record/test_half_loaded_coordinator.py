"""A coordinator that comes upon a damaged record while it loads its log, on a real broker: it knows nothing after it.

One byte of a record is changed on the disk, far enough back that the broker does not look at it when it starts.
"""

from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import TransactionState, decode_value
from kafka_eos_checks.brokers.brokers import Broker, Cluster
from kafka_eos_checks.brokers.jars import RECORDED

from .held_threads import TRANSACTIONAL_ID, Client, for_a_while, need_kafka, wait_until

STATUS = 16  # the byte of a value that has the state
NO_STATE = 99
STUCK_SECONDS = 4.0


def damage_end_of_transaction(broker: Broker) -> None:
    """Change the state in the record that says that all markers of the first transaction are written."""
    for file in broker.data.glob("__transaction_state-*/*.log"):
        for stored in read_segment(file):
            assert isinstance(stored, StoredBatch)
            data = stored.batch.records()[0].value
            value = decode_value(data)
            if data and value and value.transaction_status == TransactionState.COMPLETE_COMMIT:
                content = bytearray(file.read_bytes())
                content[content.index(data, stored.position) + STATUS] = NO_STATE
                file.write_bytes(content)
                return
    raise AssertionError("no transaction has ended")


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", RECORDED)
def test_a_coordinator_takes_its_partition_for_loaded_although_it_read_half_of_it(kafka: str, tmp_path: Path) -> None:
    """The transactional ids are of one partition: the state of each is the one that it had at the damaged record."""
    need_kafka(kafka)
    with Cluster(tmp_path / "c", kafka=kafka) as cluster:
        broker = cluster[1]
        for topic in ("decided", "fenced", "hanging"):
            cluster.create_topic(topic)
        cluster.coordinator(TRANSACTIONAL_ID)

        fenced = Client(broker, broker, "a", "fenced")
        decided = Client(broker, broker, "c", "decided")
        decided.add_partition()
        decided.produce()
        decided.end(committed=True)
        wait_until(lambda: decided.state() == "CompleteCommit")
        newer = Client(broker, broker, "a", "fenced")
        assert (newer.producer_id, newer.epoch) == (fenced.producer_id, fenced.epoch + 1)
        hanging = Client(broker, broker, "e", "hanging")
        for client in (decided, hanging):
            client.add_partition()
            client.produce()
        assert (decided.end_for(1), hanging.end_for(1)) == (2, 0)

        broker.stop()
        damage_end_of_transaction(broker)
        broker.start()
        cluster.wait_ready()
        wait_until(lambda: decided.state() == "CompleteCommit")
        assert decided.end_for(1) == 4, "the former decision commits what is open now"
        assert decided.end(committed=False)["ErrorCode"] == ErrorCode.INVALID_TXN_STATE

        fenced.add_partition()
        fenced.produce()
        assert fenced.end(committed=True)["ErrorCode"] == ErrorCode.NONE
        wait_until(lambda: fenced.end_for(1) == 2)

        assert hanging.end(committed=True)["ErrorCode"] == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        again = Client(broker, broker, "e", "hanging")
        assert again.producer_id != hanging.producer_id
        for _ in for_a_while(STUCK_SECONDS):
            assert (hanging.end_for(0), hanging.end_for(1)) == (1, 0)
