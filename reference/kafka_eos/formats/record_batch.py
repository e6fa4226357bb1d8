"""Record batches of format version 2, byte for byte.

A batch is a header of 61 bytes and its records, compressed as a whole or not at all::

    base_offset int64, batch_length int32 (of what follows it), partition_leader_epoch int32, magic int8 (2),
    crc uint32 (CRC32C of what follows it), attributes int16, last_offset_delta int32, base_timestamp int64,
    max_timestamp int64, producer_id int64, producer_epoch int16, base_sequence int32, record_count int32, payload

    attributes: bits 0-2 compression, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon, 7-15 unused

A record is a varint of its length, then ``attributes`` int8 (unused), ``timestamp_delta`` varlong, ``offset_delta``
varint, key and value (each a varint of its length, -1 for null, and its bytes), a varint of the number of headers,
and these, each as a key and a value.

Two round trips hold. ``decode_batch(data)[0].encode() == data`` for every batch that decodes, because the payload is
kept as stored. ``encode_records(batch.records())`` equals the decompressed payload if each varint in it has its
shortest form, which every known encoder writes; longer forms are read, as Kafka reads them, and re-encoded short.

Departs from Kafka, which accepts what no encoder writes: a negative offset or last offset delta, a length below -1
(null to Kafka), a varint with bits above the 32nd or 64th, and whatever payload a batch of no records has. Here these
are malformed.

Kafka: org.apache.kafka.common.record.internal.DefaultRecordBatch, DefaultRecord, ControlRecordType
KIP:   KIP-98 (the format), KIP-534 (delete horizon)
"""

import mmap
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeAlias

import google_crc32c

from kafka_eos.errors import BadChecksum, MalformedBatch
from kafka_eos.formats.compression import MAX_DECOMPRESSED_BYTES, CompressionType, compress, decompress
from kafka_eos.formats.varint import INT32_MAX, INT64_MAX, decode_varint, decode_varlong, encode_varint, encode_varlong

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap
Header: TypeAlias = tuple[bytes, bytes | None]
"""A record's header. The key is UTF-8 by convention; its bytes are kept, because not every client follows that."""

MAGIC = 2
HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""The bytes before what ``batch_length`` counts: ``base_offset`` and ``batch_length`` itself."""

CHECKED_FROM = 21
"""The start of the bytes that the CRC covers. The offset and the leader epoch before it may be changed by brokers."""

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = NO_SEQUENCE = NO_TIMESTAMP = NO_PARTITION_LEADER_EPOCH = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED_HEADER = struct.Struct(">hiqqqhii")

_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_DELETE_HORIZON = 0x40
_KEPT = _COMPRESSION_MASK | _TRANSACTIONAL | _CONTROL | _DELETE_HORIZON

_SMALLEST_RECORD_BYTES = 7  # a byte each: length, attributes, both deltas, key, value, header count
_SMALLEST_HEADER_BYTES = 2  # a byte each: key, value
_ZIGZAG = tuple((byte >> 1) ^ -(byte & 1) for byte in range(128))  # what a varint of one byte means
_NULL = 1  # the varint of -1


class TimestampType(IntEnum):
    """The origin of a batch's timestamps.

    Kafka: org.apache.kafka.common.record.TimestampType
    """

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlType(IntEnum):
    """The types of control record that a partition of a topic holds.

    Kafka: org.apache.kafka.common.record.internal.ControlRecordType, which has others for the quorum's log.
    """

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as a batch stores it: relative to the batch's base offset and base timestamp.

    Attributes:
        attributes: unused by Kafka, int8.
        timestamp_delta: milliseconds, int64. See :meth:`RecordBatch.timestamp`.
        offset_delta: int32. See :meth:`RecordBatch.offset`.
        key: None is null, which is not the same as empty.
        value: None is null, a tombstone in a compacted topic.
        headers: in the order in which they were written; keys may repeat.
    """

    attributes: int = 0
    timestamp_delta: int = 0
    offset_delta: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


_new = object.__new__
_set_attributes = Record.__dict__["attributes"].__set__
_set_timestamp_delta = Record.__dict__["timestamp_delta"].__set__
_set_offset_delta = Record.__dict__["offset_delta"].__set__
_set_key = Record.__dict__["key"].__set__
_set_value = Record.__dict__["value"].__set__
_set_headers = Record.__dict__["headers"].__set__


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """A transaction marker: how the transaction of the batch's producer ended on this partition.

    Attributes:
        control_type: COMMIT or ABORT.
        coordinator_epoch: the epoch of the transaction coordinator that decided it.
        key_version: version of the control record's key; 0 in every Kafka so far.
        value_version: version of EndTxnMarker; 0 in every Kafka so far.
    """

    control_type: ControlType
    coordinator_epoch: int
    key_version: int = 0
    value_version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBatch:
    """A batch with its header decoded, its CRC checked and its records as stored.

    Attributes:
        base_offset: offset of the first record that was appended; after compaction it may be gone.
        partition_leader_epoch: the epoch of the leader that appended it, -1 if unknown.
        magic: format version, 2.
        crc: CRC32C of everything from ``attributes`` on.
        attributes: bits, see the module and the properties.
        last_offset_delta: from ``base_offset`` to the last record that was appended.
        base_timestamp: milliseconds since the epoch, or the delete horizon if that bit is set.
        max_timestamp: the largest of the records, or the time of the append, in milliseconds since the epoch.
        producer_id: -1 without idempotence.
        producer_epoch: -1 without idempotence.
        base_sequence: the sequence of the first record, -1 without idempotence and in control batches.
        record_count: the number of records in the payload; after compaction fewer than appended.
        payload: the records as stored, compressed if ``compression`` says so.
    """

    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    payload: bytes

    @property
    def batch_length(self) -> int:
        """The length field: bytes after it."""
        return self.size - LOG_OVERHEAD_BYTES

    @property
    def size(self) -> int:
        """Bytes of the encoded batch."""
        return HEADER_BYTES + len(self.payload)

    @property
    def compression(self) -> CompressionType:
        """The codec of the payload."""
        return CompressionType(self.attributes & _COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker set the timestamps."""
        return TimestampType.LOG_APPEND_TIME if self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether it is part of a transaction, as data or as its marker."""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a control record, which no consumer sees."""
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which the cleaner may remove the batch's tombstones or marker; None if not set."""
        return self.base_timestamp if self.attributes & _DELETE_HORIZON else None

    @property
    def last_offset(self) -> int:
        """Offset of the last record that was appended."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record that was appended; -1 without one. After 2^31 - 1 comes 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & INT32_MAX

    def offset(self, record: Record) -> int:
        """The offset of one of this batch's records."""
        return self.base_offset + record.offset_delta

    def timestamp(self, record: Record) -> int:
        """The timestamp of one of this batch's records, in milliseconds since the epoch."""
        if self.attributes & _LOG_APPEND_TIME:
            return self.max_timestamp
        return self.base_timestamp + record.timestamp_delta

    def records(self, limit: int = MAX_DECOMPRESSED_BYTES) -> tuple[Record, ...]:
        """The records, decompressed.

        Raises:
            MalformedBatch: the payload does not hold exactly ``record_count`` records, or more than ``limit`` bytes
                of them. The position counts from the first byte of the batch; what goes wrong inside a compressed
                payload has the position of the payload, and the reason says where in the decompressed bytes.
        """
        section = self.decompressed(limit)
        try:
            return decode_records(section, self.record_count)
        except MalformedBatch as error:
            if self.compression is CompressionType.NONE:
                raise MalformedBatch(HEADER_BYTES + error.position, error.reason) from None
            where = f"at byte {error.position} of the decompressed records: {error.reason}"
            raise MalformedBatch(HEADER_BYTES, where) from None

    def decompressed(self, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
        """The record section without its compression.

        Raises:
            MalformedBatch: as for :meth:`records`.
        """
        try:
            return decompress(self.compression, self.payload, limit)
        except MalformedBatch as error:
            raise MalformedBatch(HEADER_BYTES, error.reason) from None

    def control_record(self) -> ControlRecord | None:
        """The transaction marker that a control batch holds.

        None for a batch without a marker: data, control records of the Raft log, or a control batch that the cleaner
        has emptied and keeps for the state of its producer.

        Raises:
            MalformedBatch: a control record with an invalid key or value; or as for :meth:`records`.
        """
        if not self.is_control or self.record_count == 0:
            return None
        return _decode_control_record(self.records()[0])

    def stamped(self, timestamp_type: TimestampType, max_timestamp: int) -> "RecordBatch":
        """The batch with another timestamp type and largest timestamp, which with LOG_APPEND_TIME is all records'.

        Attributes without a meaning are kept if nothing else changes.    Kafka: DefaultRecordBatch.setMaxTimestamp.
        """
        if (self.timestamp_type, self.max_timestamp) == (timestamp_type, max_timestamp):
            return self
        kind = _LOG_APPEND_TIME if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
        attributes = self.attributes & _KEPT | kind
        return replace(self, attributes=attributes, max_timestamp=max_timestamp)._sealed()

    def _sealed(self) -> "RecordBatch":
        """The batch with the CRC of what it has."""
        checked = _CHECKED_HEADER.pack(
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        return replace(self, crc=_crc(checked, self.payload))

    def encode(self) -> bytes:
        """The bytes from which :func:`decode_batch` makes this batch."""
        return (
            _HEADER.pack(
                self.base_offset,
                self.batch_length,
                self.partition_leader_epoch,
                self.magic,
                self.crc,
                self.attributes,
                self.last_offset_delta,
                self.base_timestamp,
                self.max_timestamp,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                self.record_count,
            )
            + self.payload
        )


def decode_batch(buffer: Buffer, position: int = 0) -> tuple[RecordBatch, int]:
    """The batch that begins at ``position``, and the position after it.

    The header is judged and the CRC is checked; the payload is copied, not decoded (``batch.records()`` does that).

    Raises:
        MalformedBatch: no batch of format version 2 begins there, or its end is missing. The position counts from
            the first byte of ``buffer``.
    """
    left = len(buffer) - position
    if left < HEADER_BYTES:
        raise MalformedBatch(len(buffer), f"{max(left, 0)} bytes are left where a batch header takes {HEADER_BYTES}")
    header = _HEADER.unpack_from(buffer, position)
    base_offset, batch_length, leader_epoch, magic, crc, attributes, last_offset_delta = header[:7]
    if magic != MAGIC:
        raise MalformedBatch(position + 16, f"magic {magic}, where only batches of format version 2 are read")
    if batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise MalformedBatch(position + 8, f"batch length {batch_length} is less than the rest of the header")
    end = position + LOG_OVERHEAD_BYTES + batch_length
    if end > len(buffer):
        raise MalformedBatch(len(buffer), f"the batch claims {LOG_OVERHEAD_BYTES + batch_length} bytes of {left}")
    payload = bytes(buffer[position + HEADER_BYTES : end])
    computed = _crc(bytes(buffer[position + CHECKED_FROM : position + HEADER_BYTES]), payload)
    if computed != crc:
        raise BadChecksum(position + 17, f"CRC32C is {crc:08x}, of the bytes {computed:08x}")
    base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, record_count = header[7:]
    if attributes & _COMPRESSION_MASK > CompressionType.ZSTD:
        raise MalformedBatch(position + 21, f"compression type {attributes & _COMPRESSION_MASK} does not exist")
    if base_offset < 0 or base_offset > INT64_MAX - max(last_offset_delta, 0) - 1:
        raise MalformedBatch(position, f"base offset {base_offset} leaves no room for the batch's offsets")
    if last_offset_delta < 0:
        raise MalformedBatch(position + 23, f"last offset delta {last_offset_delta} is negative")
    if record_count < 0:
        raise MalformedBatch(position + 57, f"record count {record_count} is negative")
    if record_count > last_offset_delta + 1:  # the cleaner leaves fewer, and nobody more: LogValidator.validateBatch
        why = f"record count {record_count} is more than the {last_offset_delta + 1} offset(s) of the batch"
        raise MalformedBatch(position + 57, why)
    if not record_count and payload:  # DefaultRecordBatch.iterator gives no record; writeEmptyHeader writes no payload
        raise MalformedBatch(position + 57, f"record count 0, and {len(payload)} bytes of records follow")
    batch = RecordBatch(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
        payload=payload,
    )
    return batch, end


def decode_records(section: bytes, count: int) -> tuple[Record, ...]:
    """Exactly ``count`` records, which fill the whole of an uncompressed record section.

    Raises:
        MalformedBatch: with the position in ``section``.
    """
    if count > len(section) // _SMALLEST_RECORD_BYTES:
        raise MalformedBatch(len(section), f"{len(section)} bytes cannot hold {count} records")
    records = []
    position = 0
    try:
        for _ in range(count):
            record, position = _decode_record(section, position)
            records.append(record)
    except IndexError:  # each read of a single byte is a check that it is there
        raise MalformedBatch(len(section), "the records end inside a record") from None
    if position > len(section):
        raise MalformedBatch(len(section), "the records end inside a record")
    if position < len(section):
        raise MalformedBatch(position, f"{len(section) - position} bytes are left after the last of {count} records")
    return tuple(records)


def _decode_record(section: bytes, start: int) -> tuple[Record, int]:
    """The record that begins at ``start``, and the position after it.

    Written for speed, since a batch has many: a varint of one byte, which nearly all are, is read in place, and the
    slots are filled directly, which takes a third of the time of a frozen dataclass's ``__init__``.

    Raises:
        IndexError: the section ends inside the record.
    """
    if (size := section[start]) < 0x80:
        size, position = _ZIGZAG[size], start + 1
    else:
        size, position = decode_varint(section, start)
    end = position + size

    attributes, position = section[position], position + 1
    if (timestamp_delta := section[position]) < 0x80:
        timestamp_delta, position = _ZIGZAG[timestamp_delta], position + 1
    else:
        timestamp_delta, position = decode_varlong(section, position)
    if (offset_delta := section[position]) < 0x80:
        offset_delta, position = _ZIGZAG[offset_delta], position + 1
    else:
        offset_delta, position = decode_varint(section, position)

    key: bytes | None
    if section[position] == _NULL:
        key, position = None, position + 1
    else:
        key, position = _decode_nullable_bytes(section, position)
    value, position = _decode_nullable_bytes(section, position)
    headers: tuple[Header, ...]
    if section[position] == 0:
        headers, position = (), position + 1
    else:
        headers, position = _decode_headers(section, position)
    if position != end:
        raise MalformedBatch(start, f"a record of {size} bytes whose fields take {position - end + size}")

    record = _new(Record)
    _set_attributes(record, attributes if attributes < 0x80 else attributes - 0x100)
    _set_timestamp_delta(record, timestamp_delta)
    _set_offset_delta(record, offset_delta)
    _set_key(record, key)
    _set_value(record, value)
    _set_headers(record, headers)
    return record, position


def _decode_nullable_bytes(section: bytes, position: int) -> tuple[bytes | None, int]:
    if (size := section[position]) < 0x80:
        size, start = _ZIGZAG[size], position + 1
    else:
        size, start = decode_varint(section, position)
    if size >= 0:
        # A slice may come out short; the position is then outside the section, and the next read finds that.
        return section[start : start + size], start + size
    if size == -1:
        return None, start
    raise MalformedBatch(position, f"length {size} is negative, and not -1 for null")


def _decode_headers(section: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    count, start = decode_varint(section, position)
    if count < 0:
        raise MalformedBatch(position, f"header count {count} is negative")
    if count > (len(section) - start) // _SMALLEST_HEADER_BYTES:
        raise MalformedBatch(position, f"{len(section) - start} bytes cannot hold {count} headers")
    headers = []
    position = start
    for _ in range(count):
        key, after_key = _decode_nullable_bytes(section, position)
        if key is None:
            raise MalformedBatch(position, "a header without a key")
        value, position = _decode_nullable_bytes(section, after_key)
        headers.append((key, value))
    return tuple(headers), position


def encode_records(records: Iterable[Record]) -> bytes:
    """The uncompressed record section of ``records``, each varint in its shortest form.

    Raises:
        OverflowError: a field does not fit its place.
    """
    section = bytearray()
    for record in records:
        fields = bytearray(struct.pack(">b", record.attributes))
        fields += encode_varlong(record.timestamp_delta)
        fields += encode_varint(record.offset_delta)
        fields += _encode_nullable_bytes(record.key)
        fields += _encode_nullable_bytes(record.value)
        fields += encode_varint(len(record.headers))
        for key, value in record.headers:
            fields += _encode_nullable_bytes(key) + _encode_nullable_bytes(value)
        section += encode_varint(len(fields)) + fields
    return bytes(section)


def _encode_nullable_bytes(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    compression: CompressionType = CompressionType.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
    last_offset_delta: int | None = None,
    base_timestamp: int = NO_TIMESTAMP,
    max_timestamp: int | None = None,
    delete_horizon_ms: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> RecordBatch:
    """A batch of ``records`` with its CRC.

    Args:
        records: with their deltas, which are taken as they are.
        base_offset: see :class:`RecordBatch`, as for the rest.
        partition_leader_epoch: as above.
        compression: the codec, in the framing of Kafka's Java producer.
        timestamp_type: whether ``max_timestamp`` stands for the records' own timestamps.
        is_transactional: part of a transaction.
        is_control: holds a control record; see :func:`build_control_batch`.
        last_offset_delta: None takes the largest of the records, 0 without any.
        base_timestamp: milliseconds since the epoch.
        max_timestamp: None takes the largest of the records, -1 without any.
        delete_horizon_ms: takes the place of ``base_timestamp`` and sets the bit; None leaves both.
        producer_id: -1 without idempotence.
        producer_epoch: as above.
        base_sequence: as above.

    Raises:
        OverflowError: a field does not fit its place.
    """
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    if last_offset_delta is None:
        last_offset_delta = max((record.offset_delta for record in records), default=0)
    if max_timestamp is None:
        timestamps = (base_timestamp + record.timestamp_delta for record in records)
        max_timestamp = max(timestamps, default=NO_TIMESTAMP)
    attributes = (
        compression
        | (_LOG_APPEND_TIME if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (_TRANSACTIONAL if is_transactional else 0)
        | (_CONTROL if is_control else 0)
        | (_DELETE_HORIZON if delete_horizon_ms is not None else 0)
    )
    payload = compress(compression, encode_records(records))
    try:
        checked = _CHECKED_HEADER.pack(
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    except struct.error as error:
        raise OverflowError(f"a field of the batch header does not fit its place: {error}") from None
    return RecordBatch(
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=_crc(checked, payload),
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
        payload=payload,
    )


def build_control_batch(
    marker: ControlRecord,
    *,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    timestamp: int = 0,
) -> RecordBatch:
    """The batch that ends a producer's transaction on a partition.

    Kafka: MemoryRecords.withEndTransactionMarker
    """
    record = Record(
        key=_CONTROL_KEY.pack(marker.key_version, marker.control_type),
        value=_END_TXN_MARKER.pack(marker.value_version, marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
        base_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


_CONTROL_KEY = struct.Struct(">hh")
_END_TXN_MARKER = struct.Struct(">hi")


def _decode_control_record(record: Record) -> ControlRecord | None:
    """Later versions may add fields, so bytes after the known ones are allowed.

    Kafka: ControlRecordType.parse, EndTransactionMarker.deserialize
    """
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        raise MalformedBatch(HEADER_BYTES, "a control record whose key is too short for its version and type")
    key_version, control_type = _CONTROL_KEY.unpack_from(record.key)
    if key_version < 0:
        raise MalformedBatch(HEADER_BYTES, f"a control record of version {key_version}")
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _END_TXN_MARKER.size:
        raise MalformedBatch(HEADER_BYTES, "a transaction marker whose value is too short for its coordinator epoch")
    value_version, coordinator_epoch = _END_TXN_MARKER.unpack_from(record.value)
    if value_version < 0:
        raise MalformedBatch(HEADER_BYTES, f"a transaction marker of version {value_version}")
    return ControlRecord(
        control_type=ControlType(control_type),
        coordinator_epoch=coordinator_epoch,
        key_version=key_version,
        value_version=value_version,
    )


def _crc(checked_header: bytes, payload: bytes) -> int:
    """CRC32C over the header from ``attributes`` on, and the payload."""
    return int(google_crc32c.extend(google_crc32c.value(checked_header), payload))
