"""A group coordinator that has been replaced and does not know it yet, on real brokers, and the offset it gives."""

import threading
import time
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.consumer_offsets import TOPIC
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.brokers.brokers import SETTINGS, Broker, Cluster, ask, coordinator_partition
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST

from .held_threads import need_kafka

GROUP, INPUT, TRANSACTIONAL_ID = "g", "input", "t"
SECONDS = 60.0


class Client:
    """A client that sends raw requests of transaction version 1 to whichever coordinator takes them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.frozen: Broker | None = None
        row = {"TransactionalId": TRANSACTIONAL_ID, "TransactionTimeoutMs": 60_000}
        answer = self._ask(1, "InitProducerId", 4, row | {"ProducerId": -1, "ProducerEpoch": -1})
        self._who = {"TransactionalId": TRANSACTIONAL_ID}
        self._who |= {name: answer[name] for name in ("ProducerId", "ProducerEpoch")}

    def _ask(self, key_type: int, api: str, version: int, row: Message) -> Message:
        """Ask the coordinator of the group (0) or of the transactional id (1) until there is no error."""
        deadline, key = time.monotonic() + SECONDS, (GROUP, TRANSACTIONAL_ID)[key_type]
        while time.monotonic() < deadline:
            port = next(broker.port for broker in self._cluster.brokers if broker is not self.frozen)
            [found] = ask(port, "FindCoordinator", 4, {"KeyType": key_type, "CoordinatorKeys": [key]})["Coordinators"]
            if found["NodeId"] > 0 and self._cluster[found["NodeId"]] is not self.frozen:
                answer = ask(self._cluster[found["NodeId"]].port, api, version, row)
                parts = [part["ErrorCode"] for topic in answer.get("Topics", []) for part in topic["Partitions"]]
                if not any([answer.get("ErrorCode", 0), *parts]):
                    return answer
            time.sleep(0.2)
        raise AssertionError(f"{api}: no success within {SECONDS:.0f} s")

    def commit(self, offset: int) -> None:
        """Commit an offset of the group in a transaction, and wait until it counts."""
        self._ask(1, "AddOffsetsToTxn", 3, self._who | {"GroupId": GROUP})
        part = {"PartitionIndex": 0, "CommittedOffset": offset, "CommittedMetadata": ""}
        row = self._who | {"GroupId": GROUP, "Topics": [{"Name": INPUT, "Partitions": [part]}]}
        self._ask(0, "TxnOffsetCommit", 3, row)
        self._ask(1, "EndTxn", 3, self._who | {"Committed": True})
        assert offset_of(self._ask(0, "OffsetFetch", 7, FETCH)) == offset


FETCH: Message = {"GroupId": GROUP, "Topics": [{"Name": INPUT, "PartitionIndexes": [0]}], "RequireStable": True}


def offset_of(answer: Message) -> int | None:
    """The offset that an answer to OffsetFetch gives; None where the broker is not the coordinator."""
    assert answer["ErrorCode"] in {ErrorCode.NONE, ErrorCode.NOT_COORDINATOR}
    return answer["Topics"][0]["Partitions"][0]["CommittedOffset"] if answer["Topics"] else None


@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.parametrize("kafka", [KAFKA_VERSION, NEWEST])
def test_a_replaced_group_coordinator_gives_an_offset_that_was_replaced_too(kafka: str, tmp_path: Path) -> None:
    need_kafka(kafka)
    number = coordinator_partition(GROUP, int(SETTINGS["offsets.topic.num.partitions"]))
    with Cluster(tmp_path / "c", size=3, kafka=kafka) as cluster:
        cluster.create_topic(INPUT)
        client = Client(cluster)
        client.commit(1)
        cluster.wait_in_sync(TOPIC, 3)
        [leader] = [p["LeaderId"] for p in cluster.partitions(TOPIC) if p["PartitionIndex"] == number]
        former = client.frozen = cluster[leader]
        former.freeze()
        client.commit(2)

        answers: list[int | None] = []

        def fetch() -> None:
            while None not in answers:
                answers.append(offset_of(ask(former.port, "OffsetFetch", 7, FETCH, SECONDS)))

        asking = threading.Thread(target=fetch)
        asking.start()  # the request waits in the frozen broker's socket
        time.sleep(0.5)
        former.resume()
        asking.join(SECONDS)
        client.frozen = None
        assert answers[0] == 1, "the offset of the first transaction, although the second one's is committed"
        assert answers[-1] is None, "once it knows that it was replaced, it refuses"
        assert set(answers) <= {1, None}
        assert offset_of(ask(cluster.running()[0].port, "OffsetFetch", 7, FETCH, SECONDS)) in {2, None}
