"""A cluster without sockets: requests and responses go through the codec, and a test advances the time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.server.cluster import Broker, Cluster, Machines, Settings
from kafka_eos.server.handlers import handle
from kafka_eos.server.handlers.request import Request
from kafka_eos.server.schemas import served_codec
from kafka_eos.server.storage import Directory, Memory
from kafka_eos.wire.protocol import Buffer, Message

NOW = 1_700_000_000_000
SETTINGS, MACHINES = Settings(), Machines()


@dataclass
class Wire:
    """Clients of a cluster.

    Attributes:
        cluster: the cluster that they talk to.
        late: the responses that came after their requests were handled, in order.
    """

    cluster: Cluster
    late: list[Message] = field(default_factory=list)

    def ask(self, api: str, version: int, node: int = 1, **row: object) -> Message:
        """Send a request that is answered at once."""
        answer = self.send(api, version, node, **row)
        assert answer is not None, f"{api} waits"
        return answer

    def send(self, api: str, version: int, node: int = 1, **row: object) -> Message | None:
        """Send a request; return the response, or None if it comes later. Both go through the codec."""
        codec = served_codec()
        given = codec.read(f"{api}Request", version, Buffer(codec.write(f"{api}Request", version, row)))
        direct: list[Message] = []
        handling = True

        def reply(answer: Message) -> None:
            read = codec.read(f"{api}Response", version, Buffer(codec.write(f"{api}Response", version, answer)))
            (direct if handling else self.late).append(read)

        answer = handle(self.cluster, Request(api, version, given, node, "client", "/127.0.0.1", reply))
        if answer is not None:
            reply(answer)
        handling = False
        self.cluster.settle()
        return direct[0] if direct else None

    def wait(self, milliseconds: int) -> None:
        """Let time pass."""
        self.cluster.advance(self.cluster.now + milliseconds)
        self.cluster.settle()

    # --- what many tests do -------------------------------------------------------------------------------------------

    def topic(self, name: str = "t", partitions: int = 1) -> str:
        self.cluster.create_topic(name, partitions)
        return name

    def produce(
        self,
        topic: str = "t",
        *,
        version: int = 9,
        partition: int = 0,
        producer: tuple[int, int] = (-1, -1),
        sequence: int = -1,
        count: int = 1,
        transactional_id: str | None = None,
        node: int = 1,
        value: bytes = b"x",
    ) -> tuple[int, int]:
        """Produce a batch of ``count`` records; return error code and base offset."""
        records = [Record(value=value, offset_delta=delta) for delta in range(count)]
        batch = build_batch(
            records,
            base_timestamp=self.cluster.now,
            is_transactional=transactional_id is not None,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
        )
        data = {"PartitionData": [{"Index": partition, "Records": batch.encode()}]}
        where = {"TopicId": self.cluster.topics[topic].topic_id} if version >= 13 else {"Name": topic}
        row = self.ask(
            "Produce",
            version,
            node,
            TransactionalId=transactional_id,
            Acks=-1,
            TimeoutMs=1000,
            TopicData=[where | data],
        )
        part = row["Responses"][0]["PartitionResponses"][0]
        return part["ErrorCode"], part["BaseOffset"]

    def fetch_row(self, topic: str = "t", offset: int = 0, *, committed: bool = False, wait: int = 0) -> Message | None:
        """A Fetch request for one partition."""
        part = {"Partition": 0, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20}
        return self.send(
            "Fetch",
            12,
            MaxWaitMs=wait,
            MinBytes=1,
            IsolationLevel=int(committed),
            Topics=[{"Topic": topic, "Partitions": [part]}],
        )

    def fetch(self, topic: str = "t", offset: int = 0, *, committed: bool = False) -> Message:
        row = self.fetch_row(topic, offset, committed=committed)
        assert row is not None
        part: Message = row["Responses"][0]["Partitions"][0]
        return part

    def init(self, name: str | None = "x", version: int = 4, **more: int) -> tuple[int, int, int]:
        """Error, producer id and epoch."""
        row = self.ask("InitProducerId", version, TransactionalId=name, TransactionTimeoutMs=60_000, **more)
        return row["ErrorCode"], row["ProducerId"], row["ProducerEpoch"]

    def add(self, producer: tuple[int, int], topic: str = "t", name: str = "x") -> int:
        """The error of AddPartitionsToTxn in the form that clients of version 1 send."""
        row = self.ask(
            "AddPartitionsToTxn",
            3,
            V3AndBelowTransactionalId=name,
            V3AndBelowProducerId=producer[0],
            V3AndBelowProducerEpoch=producer[1],
            V3AndBelowTopics=[{"Name": topic, "Partitions": [0]}],
        )
        return int(row["ResultsByTopicV3AndBelow"][0]["ResultsByPartition"][0]["PartitionErrorCode"])

    def end(
        self, producer: tuple[int, int], *, commit: bool = True, version: int = 3, name: str = "x"
    ) -> tuple[int, int, int]:
        """Error, producer id and epoch."""
        row = self.ask(
            "EndTxn", version, TransactionalId=name, ProducerId=producer[0], ProducerEpoch=producer[1], Committed=commit
        )
        return row["ErrorCode"], row.get("ProducerId", -1), row.get("ProducerEpoch", -1)


def sample(fields: list[Message]) -> Message:
    """A message with one element in each array."""
    values: dict[str, Any] = {
        "string": "s",
        "uuid": UUID(int=7),
        "bytes": b"",
        "records": b"",
        "bool": True,
        "float64": 1.0,
    }

    def value(field: Message) -> Any:
        element = field["type"].removeprefix("[]")
        one = sample(field["fields"]) if field["fields"] else values.get(element, 3)
        return [one] if field["type"].startswith("[]") else one

    return {field["name"]: value(field) for field in fields}


def errors_in(answer: Any) -> list[int]:
    if isinstance(answer, dict):
        own = [value for name, value in answer.items() if name.endswith("ErrorCode")]
        return own + [error for value in answer.values() for error in errors_in(value)]
    return [error for each in answer for error in errors_in(each)] if isinstance(answer, list) else []


Make = Callable[..., Wire]


@pytest.fixture
def make() -> Make:
    """A factory of clusters with a number of brokers, settings, machines and storage.

    A cluster in a directory that another one was made in is that of the next process: the one before has just ended.
    """
    served: list[Directory] = []

    def cluster(
        brokers: int = 1,
        settings: Settings = SETTINGS,
        machines: Machines = MACHINES,
        storage: Directory | Memory | None = None,
    ) -> Wire:
        addresses = [Broker(node, "127.0.0.1", 9091 + node) for node in range(1, brokers + 1)]
        is_new = True
        if isinstance(storage, Directory):
            for each in served:
                if each.path == storage.path:
                    each.release()
                    is_new = False
            served.append(storage)
        wire = Wire(Cluster(addresses, settings, storage, machines, now=NOW, seed=1))
        for _ in range(5 if is_new else 0):  # so that no producer id can be taken for an epoch
            wire.cluster.transactions.producer_ids.allocate()
        return wire

    return cluster


@pytest.fixture
def wire(make: Make) -> Wire:
    """A cluster of one broker, with topic "t"."""
    made = make()
    made.topic()
    return made
