"""Delayed retries of TxnOffsetCommit on a real broker: which are stored, and which offset the group has then."""

import time
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.brokers import Cluster, ask
from kafka_eos_checks.brokers.jars import have_jars

GROUP, INPUT, TRANSACTIONAL_ID = "g", "input", "t"
RETRIED = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
RETRIED |= {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNSTABLE_OFFSET_COMMIT}


class Client:
    """A client that sends raw requests of one transactional id."""

    def __init__(self, port: int, version: int) -> None:
        self._port, self._version = port, version
        for key_type, key in ((0, GROUP), (1, TRANSACTIONAL_ID)):
            row = {"KeyType": key_type, "CoordinatorKeys": [key]}
            self._ask("FindCoordinator", 4, row, "Coordinators", 0, "ErrorCode")
        row = {"TransactionalId": TRANSACTIONAL_ID, "TransactionTimeoutMs": 60_000}
        answer, _ = self._ask("InitProducerId", 5, row | {"ProducerId": -1, "ProducerEpoch": -1}, "ErrorCode")
        self._identity = {"ProducerId": answer["ProducerId"], "ProducerEpoch": answer["ProducerEpoch"]}

    def _ask(self, api: str, version: int, row: Message, *error: str | int) -> tuple[Message, ErrorCode]:
        """Send a request until its answer is not one to retry; return the answer, and the error at a path in it."""
        deadline = time.monotonic() + 30
        while True:
            answer = ask(self._port, api, version, row)
            code = answer
            for step in error:
                code = code[step]  # type: ignore[index]
            found = ErrorCode(code)  # type: ignore[arg-type]
            if found not in RETRIED or time.monotonic() > deadline:
                return answer, found
            time.sleep(0.05)

    @property
    def _who(self) -> Message:
        return {"TransactionalId": TRANSACTIONAL_ID, **self._identity}

    def begin(self) -> None:
        """Register the group's offsets, where the version asks for it."""
        if self._version == 1:
            _, error = self._ask("AddOffsetsToTxn", 3, self._who | {"GroupId": GROUP}, "ErrorCode")
            assert error is ErrorCode.NONE

    def request(self, offset: int) -> Message:
        """A TxnOffsetCommit of the present transaction."""
        part = {"PartitionIndex": 0, "CommittedOffset": offset, "CommittedMetadata": ""}
        return self._who | {"GroupId": GROUP, "Topics": [{"Name": INPUT, "Partitions": [part]}]}

    def send(self, request: Message) -> ErrorCode:
        """Send a TxnOffsetCommit, perhaps again."""
        path = ("Topics", 0, "Partitions", 0, "ErrorCode")
        return self._ask("TxnOffsetCommit", 5 if self._version == 2 else 4, request, *path)[1]

    def end(self, commit: bool) -> None:
        """End the transaction."""
        row = self._who | {"Committed": commit}
        answer, error = self._ask("EndTxn", 5 if self._version == 2 else 4, row, "ErrorCode")
        assert error is ErrorCode.NONE
        if self._version == 2:
            self._identity = {"ProducerId": answer["ProducerId"], "ProducerEpoch": answer["ProducerEpoch"]}

    def fetched(self) -> int:
        """The group's offset, once no transaction holds it back."""
        topics = [{"Name": INPUT, "PartitionIndexes": [0]}]
        row = {"Groups": [{"GroupId": GROUP, "Topics": topics}], "RequireStable": True}
        path = ("Groups", 0, "Topics", 0, "Partitions", 0, "ErrorCode")
        answer, error = self._ask("OffsetFetch", 8, row, *path)
        assert error is ErrorCode.NONE
        found: int = answer["Groups"][0]["Topics"][0]["Partitions"][0]["CommittedOffset"]
        return found


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos lab record` fetches them")
@pytest.mark.parametrize(
    ("version", "between", "in_the_next", "fetched"),
    [
        (1, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE, 9),
        (2, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH, 20),
    ],
    ids=["version 1", "version 2"],
)
def test_a_late_offset_replaces_a_later_one_and_with_version_1_one_of_the_next_transaction(
    version: int, between: ErrorCode, in_the_next: ErrorCode, fetched: int, tmp_path: Path
) -> None:
    with Cluster(tmp_path / "c", features={"transaction.version": version}) as cluster:
        cluster.create_topic(INPUT)
        client = Client(cluster[1].port, version)
        client.begin()
        first, second = client.request(5), client.request(8)
        assert [client.send(each) for each in (first, second, first)] == [ErrorCode.NONE] * 3
        client.end(True)
        assert client.fetched() == 5

        assert client.send(first) is between
        client.begin()
        aborted = client.request(9)
        assert client.send(aborted) is ErrorCode.NONE
        client.end(False)
        assert client.fetched() == 5

        client.begin()
        assert client.send(client.request(20)) is ErrorCode.NONE
        assert client.send(aborted) is in_the_next
        client.end(True)
        assert client.fetched() == fetched
