"""The directory of a real broker, recorded, is served for some requests, and audited again."""

import socket
import struct
import time
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.server.schemas import served_codec
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.wire.protocol import Message
from kafka_eos_checks import cli
from kafka_eos_checks.brokers.brokers import Cluster
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.kit.paths import recordings_folder
from kafka_eos_checks.kit.recording import unpack

FOUND = 1
"""The exit code of an audit that found something."""

PATIENCE_SECONDS = 30.0
NOT_YET = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def ask(port: int, api: str, version: int, row: Message) -> Message:
    codec = served_codec()
    data = codec.write_request(api, version, 1, "client", row)
    with socket.create_connection(("127.0.0.1", port), 10) as link, link.makefile("rb") as answers:
        link.sendall(struct.pack(">i", len(data)) + data)
        size = struct.unpack(">i", answers.read(4))[0]
        return codec.read_response(api, version, answers.read(size))[1]


def produce(port: int, topic: str, producer: tuple[int, int], name: str | None = None) -> None:
    batch = build_batch(
        [Record(key=b"k", value=f"of {producer}".encode())],
        base_timestamp=int(time.time() * 1000),  # an old one would begin a segment
        is_transactional=name is not None,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
    )
    data = {"Name": topic, "PartitionData": [{"Index": 0, "Records": batch.encode()}]}
    row = ask(port, "Produce", 12, {"TransactionalId": name, "Acks": -1, "TimeoutMs": 1000, "TopicData": [data]})
    assert row["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == ErrorCode.NONE, (topic, producer)


def init(port: int, name: str | None) -> tuple[int, int]:
    """A producer id and an epoch, once the broker can tell."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline
        if name is not None:  # Kafka then makes the coordinators' topic
            ask(port, "FindCoordinator", 4, {"KeyType": 1, "CoordinatorKeys": [name]})
        row = ask(port, "InitProducerId", 5, {"TransactionalId": name, "TransactionTimeoutMs": 60_000})
        if row["ErrorCode"] not in NOT_YET:
            assert row["ErrorCode"] == ErrorCode.NONE
            return row["ProducerId"], row["ProducerEpoch"]


def run_transactions(port: int, topics: list[str]) -> None:
    """Two idempotent producers write to some topics, and a transaction that is aborted, and one that is committed."""
    for _ in range(2):
        producer = init(port, None)
        for topic in topics:
            produce(port, topic, producer)
    for commit in (False, True):
        producer = init(port, "x")
        for topic in topics:
            produce(port, topic, producer, "x")
        end = {"ProducerId": producer[0], "ProducerEpoch": producer[1], "Committed": commit}
        assert ask(port, "EndTxn", 5, {"TransactionalId": "x", **end})["ErrorCode"] == ErrorCode.NONE


def readable(port: int) -> Message:
    """The answer to a fetch of committed data from "t", once a broker leads it and no transaction is open."""
    part = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20}
    topics = [{"Topic": "t", "Partitions": [part]}]
    row = {"ReplicaId": -1, "MaxWaitMs": 100, "MinBytes": 1, "IsolationLevel": 1, "Topics": topics}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        assert time.monotonic() < deadline
        found: Message = ask(port, "Fetch", 12, row)["Responses"][0]["Partitions"][0]
        if found["ErrorCode"] == ErrorCode.NONE and found["LastStableOffset"] == found["HighWatermark"]:
            return {name: found[name] for name in ("LogStartOffset", "HighWatermark", "AbortedTransactions", "Records")}


@pytest.mark.broker
@pytest.mark.skipif(not have_jars(), reason="the Kafka jars are not there; `kafka-eos record` fetches them")
def test_a_directory_goes_from_kafka_to_the_server_and_back(tmp_path: Path) -> None:
    with Cluster(tmp_path / "kafka") as kafka:
        kafka.create_topic("t")
        run_transactions(kafka.any_port(), ["t"])
        before = readable(kafka.any_port())
        kafka.stop_all()
        with ServedCluster(data=kafka.brokers[0].data) as served:
            port = int(served.bootstrap_servers.rpartition(":")[2])
            assert readable(port) == before
            run_transactions(port, ["t"])
            after = readable(port)
        assert len(after["AbortedTransactions"]) == 2
        kafka.brokers[0].start()
        kafka.wait_ready()
        assert readable(kafka.any_port()) == after
        run_transactions(kafka.any_port(), ["t"])


@pytest.mark.parametrize(
    "recording",
    ["one-broker", "healthy/healthy-open-transactions", "healthy/healthy-compaction", "healthy/healthy-tiered"],
)
def test_a_brokers_directory_is_as_sound_after_it_was_served(
    recording: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpack(recordings_folder() / f"{recording}.tar.xz", tmp_path / "recording")
    data = tmp_path / "recording" / "brokers" / "1"
    assert cli.main(["audit", str(data), "--jobs", "1"]) != FOUND
    with ServedCluster(data=data) as served:
        port = int(served.bootstrap_servers.rpartition(":")[2])
        topics = [row["Name"] for row in ask(port, "Metadata", 12, {"Topics": None})["Topics"] if not row["IsInternal"]]
        run_transactions(port, topics)
        assert not ask(port, "DeleteTopics", 5, {"TopicNames": topics[:1], "TimeoutMs": 1})["Responses"][0]["ErrorCode"]
        served.create_topic(topics[0])
        produce(port, topics[0], init(port, None))
    capsys.readouterr()
    assert cli.main(["audit", str(data), "--jobs", "1"]) != FOUND, capsys.readouterr().out
