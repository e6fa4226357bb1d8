"""The batches of a partition in a Fetch response, and those that a read_committed consumer delivers."""

from collections.abc import Iterable
from dataclasses import dataclass

from kafka_eos.formats.record_batch import LOG_OVERHEAD_BYTES, ControlType, RecordBatch, decode_batch
from kafka_eos.machines.read_committed import AbortedTransaction, without_aborted
from kafka_eos.wire.protocol import Message


def batches(part: Message) -> list[RecordBatch]:
    """The whole batches; one that the response's size has cut is left out, as clients do.

    Raises:
        MalformedBatch: when there is something else.
    """
    found, position, data = [], 0, part["Records"] or b""
    while len(data) - position >= LOG_OVERHEAD_BYTES:
        length = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD_BYTES], "big", signed=True)
        if position + LOG_OVERHEAD_BYTES + length > len(data):
            break
        batch, position = decode_batch(data, position)
        found.append(batch)
    return found


def committed(found: Iterable[RecordBatch], aborted: Iterable[Message] | None) -> list[RecordBatch]:
    """The batches that a read_committed consumer delivers.

    Args:
        found: the batches of a partition.
        aborted: its AbortedTransactions.

    Raises:
        MalformedBatch: for a control batch that is not a marker.
    """
    transactions = [
        AbortedTransaction(producer_id=each["ProducerId"], first_offset=each["FirstOffset"]) for each in aborted or ()
    ]
    return [each.batch for each in without_aborted([_Fetched(batch) for batch in found], transactions)]


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A batch, for the rules of a read_committed reader."""

    batch: RecordBatch

    @property
    def producer_id(self) -> int:
        return self.batch.producer_id

    @property
    def last_offset(self) -> int:
        return self.batch.last_offset

    @property
    def is_transactional(self) -> bool:
        return self.batch.is_transactional and not self.batch.is_control

    @property
    def is_marker(self) -> bool:
        return self.batch.is_control

    @property
    def is_abort_marker(self) -> bool:
        control = self.batch.control_record()
        return control is not None and control.control_type is ControlType.ABORT
