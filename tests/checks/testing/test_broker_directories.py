"""The directory of a real broker, recorded, is served for some requests, and audited again."""

import socket
import struct
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.server.schemas import served_codec
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.wire.protocol import Message
from kafka_eos_checks import cli
from kafka_eos_checks.kit.paths import recordings_folder
from kafka_eos_checks.kit.recording import unpack

FOUND = 1
"""The exit code of an audit that found something."""


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
        base_timestamp=1_700_000_000_000,
        is_transactional=name is not None,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
    )
    data = {"Name": topic, "PartitionData": [{"Index": 0, "Records": batch.encode()}]}
    row = ask(port, "Produce", 12, {"TransactionalId": name, "Acks": -1, "TimeoutMs": 1000, "TopicData": [data]})
    assert row["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == ErrorCode.NONE, (topic, producer)


def init(port: int, name: str | None) -> tuple[int, int]:
    row: Message = {}
    while row.get("ErrorCode", ErrorCode.CONCURRENT_TRANSACTIONS) == ErrorCode.CONCURRENT_TRANSACTIONS:
        row = ask(port, "InitProducerId", 5, {"TransactionalId": name, "TransactionTimeoutMs": 60_000})
    assert row["ErrorCode"] == ErrorCode.NONE
    return row["ProducerId"], row["ProducerEpoch"]


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
        for _ in range(2):
            producer = init(port, None)
            for topic in topics:
                produce(port, topic, producer)
        for commit in (False, True):
            producer = init(port, "served")
            for topic in topics:
                produce(port, topic, producer, "served")
            end = {"ProducerId": producer[0], "ProducerEpoch": producer[1], "Committed": commit}
            assert ask(port, "EndTxn", 5, {"TransactionalId": "served", **end})["ErrorCode"] == ErrorCode.NONE
        assert not ask(port, "DeleteTopics", 5, {"TopicNames": topics[:1], "TimeoutMs": 1})["Responses"][0]["ErrorCode"]
        served.create_topic(topics[0])
        produce(port, topics[0], init(port, None))
    capsys.readouterr()
    assert cli.main(["audit", str(data), "--jobs", "1"]) != FOUND, capsys.readouterr().out
