"""The checks of a client's batch before the leader looks at producers, and the changes that it makes to the batch.

The checks come in Kafka's order.

Departs from Kafka: the records of a compressed batch are read as strictly as others. Kafka skips over them, and does
not notice a wrong size of a record, a length below -1, or bytes after the end of the compressed payload.

Kafka: ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kafka_eos.errors import BadChecksum, ErrorCode, MalformedBatch
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    decode_batch,
    decode_records,
)
from kafka_eos.server.configs import AppendRules

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
        is_codec = data[22] & 7 > CompressionType.ZSTD
        error = ErrorCode.UNKNOWN_SERVER_ERROR if is_codec else ErrorCode.INVALID_RECORD
        raise Refused(error, str(malformed)) from None
    _refuse_header(batch)
    records = _records(batch)
    timestamps = [batch.timestamp(record) for record in records]
    _refuse_records(batch, records, timestamps, rules, partition, now)
    is_stamped = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
    if rules.compression not in {None, batch.compression}:
        changed = _rebuilt(batch, records, timestamps, rules.compression)
    elif batch.compression is not CompressionType.NONE and not _is_numbered(records):
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "key is skipped in PartialDefaultRecord")
    else:
        changed = batch
    changed = changed.stamped(rules.timestamp_type, now if is_stamped else max(NO_TIMESTAMP, *timestamps))
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


def _records(batch: RecordBatch) -> tuple[Record, ...]:
    """The records; what cannot be decompressed is a KafkaException there, for which no error code stands."""
    try:
        section = batch.decompressed()
    except MalformedBatch as malformed:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(malformed)) from None
    try:
        return decode_records(section, batch.record_count)
    except MalformedBatch as malformed:
        raise Refused(ErrorCode.INVALID_RECORD, str(malformed)) from None


def _is_numbered(records: Sequence[Record]) -> bool:
    """Whether the offsets of the records follow each other."""
    return all(record.offset_delta == place for place, record in enumerate(records))


def _refuse_records(
    batch: RecordBatch,
    records: Sequence[Record],
    timestamps: Sequence[int],
    rules: AppendRules,
    partition: str,
    now: int,
) -> None:
    """Kafka: LogValidator.validateRecord."""
    earliest, latest = now - rules.before_max_ms, now + rules.after_max_ms
    is_created = rules.timestamp_type is TimestampType.CREATE_TIME
    is_stamped = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    errors, error = [], ErrorCode.INVALID_RECORD
    for index, (record, timestamp) in enumerate(zip(records, timestamps, strict=True)):
        if rules.is_compacted and record.key is None:
            why = f"Compacted topic cannot accept message without key in topic partition {partition}"
        elif is_created and timestamp != NO_TIMESTAMP:
            if earliest <= timestamp <= latest:
                continue
            error = ErrorCode.INVALID_TIMESTAMP
            why = f"Timestamp {timestamp} of message with offset {index} is out of range. "
            why += f"The timestamp should be within [{earliest}, {latest}]"
        elif is_stamped:
            error = ErrorCode.INVALID_TIMESTAMP
            why = f"Invalid timestamp type in message with offset {index}. "
            why += "Producer should not set timestamp type to LogAppendTime."
        else:
            continue
        errors.append(RecordError(index, why))
    if errors:
        raise Refused(error, _in_words(error, errors), tuple(errors))


def _rebuilt(
    batch: RecordBatch, records: Sequence[Record], timestamps: Sequence[int], codec: CompressionType
) -> RecordBatch:
    """The batch with the same records, compressed by another codec.

    Kafka: LogValidator.buildRecordsAndAssignOffsets, MemoryRecordsBuilder
    """
    has_producer = batch.producer_id != NO_PRODUCER_ID
    if negative := [timestamp for timestamp in timestamps if timestamp < NO_TIMESTAMP]:
        why = f"Invalid negative timestamp {negative[0]}"
    elif batch.is_transactional and not has_producer:
        why = "Cannot write transactional messages without a valid producer ID"
    elif has_producer and batch.producer_epoch == NO_PRODUCER_EPOCH:
        why = "Invalid negative producer epoch"
    elif has_producer and batch.base_sequence < 0:
        why = "Invalid negative sequence number used"
    else:
        first = timestamps[0]
        return build_batch(
            [
                replace(record, attributes=0, offset_delta=place, timestamp_delta=timestamp - first)
                for place, (record, timestamp) in enumerate(zip(records, timestamps, strict=True))
            ],
            partition_leader_epoch=batch.partition_leader_epoch,
            compression=codec,
            is_transactional=batch.is_transactional,
            base_timestamp=first,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
        )
    raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, why)


def _in_words(error: ErrorCode, errors: list[RecordError]) -> str:
    """Kafka: LogValidator.processRecordErrors."""
    if error is ErrorCode.INVALID_TIMESTAMP:
        return "One or more records have been rejected due to invalid timestamp"
    told = ", ".join(f"RecordError(batchIndex={index}, message='{why}')" for index, why in errors[:_TOLD])
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{told}]"
    )
