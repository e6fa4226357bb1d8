"""The meaning of the proxy's requests and answers: columns of the history's wire events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import RecordBatch, decode_batch
from kafka_eos.wire.protocol import Buffer, Codec, MalformedMessage, Message

Columns = dict[str, Any]
IN_TEST, SERVED = "test", "serve"  # the runs of a served cluster: their histories have every request, fault and crash

# Answers after which the batch may be in the log all the same.
# KAFKA-13574 for NOT_LEADER_OR_FOLLOWER; the others are answered after the local append, or from its failure.
OUTCOME_UNKNOWN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def phase_of(error: int) -> str:
    """The phase of an event with this error code of Kafka."""
    if error == ErrorCode.NONE:
        return "ok"
    return "info" if error in OUTCOME_UNKNOWN else "fail"


def batches(records: bytes) -> Iterator[RecordBatch]:
    """The batches of a Produce request's partition.

    Raises:
        MalformedBatch: when the bytes are no sequence of whole batches.
    """
    position = 0
    while position < len(records):
        batch, position = decode_batch(records, position)
        yield batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that the proxy saw.

    Attributes:
        number: its number in the run, which joins question and answer in the history.
        frame: the bytes, without their length.
        subjects: one set of columns per event: per partition where the request has partitions, else one.
        body: the decoded request, for the APIs that are written down.
        repeats: the number of the request of which this one is a copy.
    """

    number: int
    connection: int
    broker: str
    client: str
    api: str
    version: int
    correlation: int
    frame: bytes
    subjects: tuple[Columns, ...] = ()
    answered: bool = True
    repeats: int | None = None

    def detail(self, **more: Any) -> Columns:
        """The column ``detail`` of its events."""
        row: Columns = {
            "request": self.number,
            "connection": self.connection,
            "correlation": self.correlation,
            "broker": self.broker,
        }
        if self.repeats is not None:
            row["repeats"] = self.repeats
        return row | more


class Interpreter:
    """Turns requests and answers into columns of events; remembers topic ids, which Produce v13 has for names."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.topics: dict[UUID, str] = {}
        self._readers: dict[str, Callable[[Message], Iterator[Columns]]] = {
            "Produce": self._produce,
            "InitProducerId": self._init_producer_id,
            "AddPartitionsToTxn": self._add_partitions,
            "AddOffsetsToTxn": self._add_offsets,
            "TxnOffsetCommit": self._commit_offsets_in_transaction,
            "EndTxn": self._end,
            "JoinGroup": self._join_group,
            "OffsetCommit": self._commit_offsets,
        }

    def topic(self, row: Message) -> str:
        """The topic's name, from the name or the id."""
        return row.get("Name") or self.topics.get(row["TopicId"], str(row["TopicId"]))

    def subjects(self, api: str, version: int, body: Buffer) -> tuple[tuple[Columns, ...], bool]:
        """The columns that a request's events share, and whether it will be answered.

        Raises:
            MalformedMessage, MalformedBatch: when it is no such request.
        """
        reader = self._readers.get(api)
        if reader is None:
            return (), True
        row = self.codec.read(f"{api}Request", version, body)
        return tuple(reader(row)), not (api == "Produce" and row["Acks"] == 0)

    def _produce(self, row: Message) -> Iterator[Columns]:
        for topic in row["TopicData"]:
            for data in topic["PartitionData"]:
                for batch in batches(data["Records"] or b""):
                    yield {
                        "transactional_id": row["TransactionalId"],
                        "topic": self.topic(topic),
                        "partition": data["Index"],
                        "producer_id": batch.producer_id,
                        "producer_epoch": batch.producer_epoch,
                        "base_sequence": batch.base_sequence,
                        "record_count": batch.record_count,
                    }

    def _init_producer_id(self, row: Message) -> Iterator[Columns]:
        yield {
            "transactional_id": row["TransactionalId"],
            "producer_id": row.get("ProducerId", -1),
            "producer_epoch": row.get("ProducerEpoch", -1),
        }

    def _add_partitions(self, row: Message) -> Iterator[Columns]:
        for topic in row.get("V3AndBelowTopics", []):
            for partition in topic["Partitions"]:
                yield {
                    "transactional_id": row["V3AndBelowTransactionalId"],
                    "producer_id": row["V3AndBelowProducerId"],
                    "producer_epoch": row["V3AndBelowProducerEpoch"],
                    "topic": topic["Name"],
                    "partition": partition,
                }

    def _add_offsets(self, row: Message) -> Iterator[Columns]:
        yield self._transaction(row) | {"group": row["GroupId"]}

    def _commit_offsets_in_transaction(self, row: Message) -> Iterator[Columns]:
        generation = row.get("GenerationIdOrMemberEpoch", row.get("GenerationId"))  # by its name since 4.4, and before
        for columns in self._offsets(row, generation):
            yield self._transaction(row) | columns

    def _commit_offsets(self, row: Message) -> Iterator[Columns]:
        return self._offsets(row, row["GenerationIdOrMemberEpoch"])

    def _offsets(self, row: Message, generation: int | None) -> Iterator[Columns]:
        names = {"member": row.get("MemberId"), "instance": row.get("GroupInstanceId")}
        member = {column: name for column, name in names.items() if name}
        for topic in row["Topics"]:
            for partition in topic["Partitions"]:
                yield {
                    "group": row["GroupId"],
                    "generation": generation,
                    "topic": self.topic(topic),
                    "partition": partition["PartitionIndex"],
                    "detail": {"committed_offset": partition["CommittedOffset"]} | member,
                }

    def _join_group(self, row: Message) -> Iterator[Columns]:
        yield {"group": row["GroupId"]}

    def _end(self, row: Message) -> Iterator[Columns]:
        yield self._transaction(row) | {"detail": {"committed": row["Committed"]}}

    @staticmethod
    def _transaction(row: Message) -> Columns:
        return {
            "transactional_id": row["TransactionalId"],
            "producer_id": row["ProducerId"],
            "producer_epoch": row["ProducerEpoch"],
        }

    def answer(self, request: Request, frame: bytes) -> list[Columns]:
        """The columns of a request's answers, in the order of its subjects.

        Raises:
            MalformedMessage: when the bytes are no answer to it.
        """
        if request.api != "Metadata" and not request.subjects:
            return []
        correlation, row = self.codec.read_response(request.api, request.version, frame)
        if correlation != request.correlation:
            raise MalformedMessage(0, f"answer to {correlation}, expected the one to {request.correlation}")
        if request.api == "Metadata":
            self.topics |= {t["TopicId"]: t["Name"] for t in row["Topics"] if t.get("TopicId") and t["Name"]}
            return []
        return [subject | self._result(request.api, subject, row) for subject in request.subjects]

    def _result(self, api: str, subject: Columns, row: Message) -> Columns:
        """The columns of an answer about one subject."""
        if api == "Produce":
            part = self._partition(row["Responses"], "PartitionResponses", "Index", subject)
            offset = part["BaseOffset"] if part["ErrorCode"] == ErrorCode.NONE else None
            return {"error": part["ErrorCode"], "offset": offset}
        if api == "AddPartitionsToTxn":
            topics = row["ResultsByTopicV3AndBelow"]
            part = self._partition(topics, "ResultsByPartition", "PartitionIndex", subject)
            return {"error": part["PartitionErrorCode"]}
        if api in {"TxnOffsetCommit", "OffsetCommit"}:
            part = self._partition(row["Topics"], "Partitions", "PartitionIndex", subject)
            return {"error": part["ErrorCode"]}
        result: Columns = {"error": row["ErrorCode"]}
        if api == "InitProducerId" and row["ErrorCode"] == ErrorCode.NONE:
            result |= {"producer_id": row["ProducerId"], "producer_epoch": row["ProducerEpoch"]}
        if api == "JoinGroup" and row["ErrorCode"] == ErrorCode.NONE:
            result["generation"] = row["GenerationId"]
        if api == "EndTxn" and row.get("ProducerId", -1) >= 0:  # v5: the producer goes on under these (KIP-890)
            after = {"next_producer_id": row["ProducerId"], "next_producer_epoch": row["ProducerEpoch"]}
            result["detail"] = subject["detail"] | after
        return result

    def _partition(self, topics: list[Message], inner: str, index: str, subject: Columns) -> Message:
        for topic in topics:
            if self.topic(topic) == subject["topic"]:
                for part in topic[inner]:
                    if part[index] == subject["partition"]:
                        return part  # type: ignore[no-any-return]
        raise MalformedMessage(0, f"no answer for {subject['topic']}-{subject['partition']}")
