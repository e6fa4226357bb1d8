"""The checks of a client's batch before the leader looks at producers, and the changes that it makes to the batch.

The checks come in Kafka's order. Records are looked at only where a header does not suffice: in a compacted topic,
where timestamps have a lower bound, and where a header has a timestamp beyond the upper one.

Departs from Kafka: otherwise a header's largest timestamp is trusted, and records are not read. Malformed records get
INVALID_RECORD, where Kafka answers that or UNKNOWN_SERVER_ERROR, depending on where its reader fails.

Kafka: ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator
"""

import struct
from dataclasses import dataclass
from typing import NamedTuple

from kafka_eos.errors import BadChecksum, ErrorCode, MalformedBatch
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    RecordBatch,
    TimestampType,
    decode_batch,
)
from kafka_eos.server.configs import LARGEST_LONG, AppendRules

FIRST_VERSION_WITH_ZSTD = 7
_UP_TO_MAGIC = 17
_SMALLEST_LENGTH = 14
_ONE = "A Produce request has one batch for a partition"
_PRODUCER = struct.Struct(">qh")
_TOLD = 3
"""The number of records that the message of an error tells."""


class RecordError(NamedTuple):
    """The error in a record, by its place in the batch."""

    place: int
    why: str


@dataclass(slots=True)
class Refused(Exception):  # noqa: N818 - the protocol's answer; nothing went wrong in the program
    """A batch that is not appended.

    Attributes:
        error: the code.
        why: the message for the client.
        records: the errors of single records.
    """

    error: ErrorCode
    why: str | None = None
    records: tuple[RecordError, ...] = ()


def one_batch(data: bytes | None, version: int) -> bytes:
    """The one batch that a Produce request has for a partition, not decoded; an unfinished one after it is left out.

    Raises:
        Refused: there is none, or one more, or one in another format.    Kafka: ByteBufferLogInputStream.
    """
    given = data or b""
    end = _end_of_batch(given, 0)
    if end is None:
        raise Refused(ErrorCode.INVALID_RECORD, _ONE)
    if given[16] != MAGIC:
        raise Refused(ErrorCode.INVALID_RECORD, f"A Produce request of version {version} has batches of magic {MAGIC}")
    if end < HEADER_BYTES:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"{end} bytes where a batch header takes {HEADER_BYTES}")
    if version < FIRST_VERSION_WITH_ZSTD and given[22] & 7 == CompressionType.ZSTD:
        why = f"A Produce request of version {version} may not use ZStandard compression"
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, why)
    if end == len(given):
        return given
    if _end_of_batch(given, end) is not None:
        raise Refused(ErrorCode.INVALID_RECORD, _ONE)
    return given[:end]


def _end_of_batch(data: bytes, start: int) -> int | None:
    """The end of a batch; None if it is missing or incomplete."""
    left = len(data) - start
    if left < LOG_OVERHEAD_BYTES:
        return None
    length = int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
    if length < _SMALLEST_LENGTH:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"Record size {length} is less than the least, {_SMALLEST_LENGTH}")
    if left < _UP_TO_MAGIC:
        return None
    if data[start + 16] > MAGIC:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {data[start + 16]}")
    end = start + LOG_OVERHEAD_BYTES + length
    return end if end <= len(data) else None


def producer_of(data: bytes) -> tuple[int, int]:
    """Producer id and epoch that the header of a batch names, before anything of it is judged."""
    producer_id, epoch = _PRODUCER.unpack_from(data, 43)
    return producer_id, epoch


def base_sequence_of(data: bytes) -> int:
    """The sequence that the header of a batch names, before anything of it is judged."""
    return int.from_bytes(data[53:57], "big", signed=True)


def validated(data: bytes, rules: AppendRules, partition: str, now: int) -> tuple[RecordBatch, bytes]:
    """A client's batch as it is to be appended, and its bytes, in which timestamps and compression are the topic's.

    Args:
        data: the batch's bytes.
        rules: the topic's rules.
        partition: the partition's name.
        now: milliseconds since the epoch.

    Raises:
        Refused: with the code and the words of Kafka.
    """
    base_offset = int.from_bytes(data[:8], "big", signed=True)
    if base_offset:
        why = f"The baseOffset of the record batch in the append to {partition} should be 0, but it is {base_offset}"
        raise Refused(ErrorCode.INVALID_RECORD, why)
    _refuse_size(len(data), rules.max_message_bytes)
    try:
        batch, _ = decode_batch(data)
    except BadChecksum as malformed:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(malformed)) from None
    except MalformedBatch as malformed:
        raise Refused(ErrorCode.INVALID_RECORD, str(malformed)) from None
    _refuse_header(batch)
    largest = _largest_timestamp(batch, rules, partition, now)
    changed = batch
    if rules.compression is not None and rules.compression is not batch.compression:
        try:
            changed = changed.compressed_by(rules.compression)
        except MalformedBatch as malformed:
            raise Refused(ErrorCode.INVALID_RECORD, str(malformed)) from None
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        largest = now
    if changed.max_timestamp != largest or changed.timestamp_type is not rules.timestamp_type:
        changed = changed.stamped(rules.timestamp_type, largest)
    if changed is not batch:
        data = changed.encode()
        _refuse_size(len(data), rules.max_message_bytes)
    if len(data) > rules.segment_bytes:
        why = f"Message batch size is {len(data)} bytes, which exceeds the segment's {rules.segment_bytes}"
        raise Refused(ErrorCode.RECORD_LIST_TOO_LARGE, why)
    return changed, data


def _refuse_header(batch: RecordBatch) -> None:
    """Kafka: LogValidator.validateBatch."""
    if batch.record_count == 0:
        raise Refused(ErrorCode.INVALID_RECORD, "Invalid reported count for record batch: 0")
    if batch.record_count != batch.last_offset_delta + 1:
        why = f"the batch has {batch.record_count} record(s) and {batch.last_offset_delta + 1} offset(s)"
        raise Refused(ErrorCode.INVALID_RECORD, f"Inconsistent batch offset range: {why}")
    if batch.is_control:
        raise Refused(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    if batch.producer_id > NO_PRODUCER_ID and batch.base_sequence < 0:
        why = f"Invalid sequence number {batch.base_sequence} in record batch with producerId {batch.producer_id}"
        raise Refused(ErrorCode.INVALID_RECORD, why)


def _refuse_size(size: int, most: int) -> None:
    if size > most:
        why = f"The record batch has {size} bytes, which exceeds the maximum configured value of {most}"
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, why)


def _largest_timestamp(batch: RecordBatch, rules: AppendRules, partition: str, now: int) -> int:
    """The largest timestamp of the records, once each of them is allowed."""
    earliest, latest = now - rules.before_max_ms, now + rules.after_max_ms
    is_created = rules.timestamp_type is TimestampType.CREATE_TIME
    has_bound = is_created and (rules.before_max_ms < LARGEST_LONG or batch.max_timestamp > latest)
    if not (rules.is_compacted or has_bound):
        return batch.max_timestamp
    try:
        records = batch.records()
    except MalformedBatch as malformed:
        raise Refused(ErrorCode.INVALID_RECORD, str(malformed)) from None
    errors, first, largest = [], ErrorCode.NONE, NO_TIMESTAMP
    for index, record in enumerate(records):
        timestamp = batch.base_timestamp + record.timestamp_delta
        if rules.is_compacted and record.key is None:
            error = ErrorCode.INVALID_RECORD
            why = f"Compacted topic cannot accept message without key in topic partition {partition}"
        elif is_created and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            error = ErrorCode.INVALID_TIMESTAMP
            why = f"Timestamp {timestamp} of message with offset {index} is out of range. "
            why += f"The timestamp should be within [{earliest}, {latest}]"
        else:
            largest = max(largest, timestamp)
            continue
        first = first or error
        errors.append(RecordError(index, why))
    if errors:
        raise Refused(first, _in_words(first, errors), tuple(errors))
    return largest


def _in_words(error: ErrorCode, errors: list[RecordError]) -> str:
    """Kafka: LogValidator.processRecordErrors."""
    if error is ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    told = ", ".join(f"RecordError(batchIndex={index}, message='{why}')" for index, why in errors[:_TOLD])
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{told}]"
    )
