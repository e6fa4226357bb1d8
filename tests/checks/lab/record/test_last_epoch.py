"""The last epoch of a producer id, on a real broker: what a client meets that asks for it again."""

from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.brokers import HOST, Cluster
from kafka_eos_checks.brokers.jars import RECORDED
from kafka_eos_checks.conform.security import Security
from kafka_eos_checks.conform.wire import Address, Connection

from .held_threads import SECONDS, TRANSACTIONAL_ID, need_kafka, once_it_is_there

LAST_EPOCH = 32_766  # the epoch after it is kept for fencing


class Client:
    """A client that asks for one epoch after the other, on one connection."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(Address(HOST, port), Security(), SECONDS)

    def init(self, producer_id: int, epoch: int) -> Message:
        """The answer to an InitProducerId that names the identity that the client has."""
        row = {"TransactionalId": TRANSACTIONAL_ID, "TransactionTimeoutMs": 60_000}
        row |= {"ProducerId": producer_id, "ProducerEpoch": epoch}
        return self._connection.ask("InitProducerId", 4, row)

    def succeed(self, producer_id: int, epoch: int) -> tuple[int, int]:
        """The identity that the request brings."""
        answer = self.init(producer_id, epoch)
        assert answer["ErrorCode"] == ErrorCode.NONE
        return answer["ProducerId"], answer["ProducerEpoch"]

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", RECORDED)
def test_a_lost_answer_at_the_last_epoch_fails_the_retry(
    kafka: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    need_kafka(kafka)
    with Cluster(tmp_path / "c", kafka=kafka) as cluster:
        cluster.coordinator(TRANSACTIONAL_ID)
        client = Client(cluster[1].port)
        request.addfinalizer(client.close)
        once_it_is_there(lambda: client.init(-1, -1))
        before, who = (-1, -1), client.succeed(-1, -1)
        while who[1] < LAST_EPOCH - 1:
            before, who = who, client.succeed(*who)
        assert client.succeed(*before) == who, "below the last epoch a retry is answered"
        last = client.succeed(*who)
        assert last == (who[0], LAST_EPOCH)
        assert client.init(*who)["ErrorCode"] == ErrorCode.UNKNOWN_SERVER_ERROR

        renewed = client.succeed(*last)
        assert renewed == (last[0] + 1, 0)
        assert client.succeed(*last) == renewed, "one retry is answered"
        assert client.init(*last)["ErrorCode"] == ErrorCode.PRODUCER_FENCED, "a second one is not"
