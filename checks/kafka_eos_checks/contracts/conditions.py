"""What the reference's functions promise, each as a function of any arguments.

The asserts that a function begins with say what is assumed of its arguments; those behind them are the promise.
CrossHair runs the reference's functions on symbolic arguments and looks for some that break a promise.
"""

from collections.abc import Callable

from immutables import Map

from kafka_eos.errors import ErrorCode, MalformedBatch
from kafka_eos.producer_state import Batch, CachedBatch, Limits, Log, ProducerState
from kafka_eos.read_committed import AbortedTransaction, IndexedTransaction, ReadCommitted
from kafka_eos.record_batch import Record, decode_records, encode_records
from kafka_eos.transaction_coordinator import Rules, TransactionMetadata
from kafka_eos.transactional_partition import (
    COMMIT,
    NO_OFFSET,
    LeaderLog,
    LogEntry,
    PartitionConstants,
    PartitionProducer,
    TransactionalPartition,
    UnstableTransaction,
)
from kafka_eos.varint import INT32_MAX, INT32_MIN, decode_varint, encode_varint

MAX_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1


def sequence_goes_on_by_the_records(sequence: int, count: int) -> None:
    """The sequence after a batch is the batch's plus its records, modulo 2^31."""
    assert 0 <= sequence <= MAX_SEQUENCE
    assert 1 <= count <= MAX_SEQUENCE
    limits = Limits()
    last = limits.last_sequence(Batch(producer_id=0, epoch=0, sequence=sequence, count=count))
    assert 0 <= last <= MAX_SEQUENCE
    assert limits.next_sequence(last) == (sequence + count) % 2**31


def leader_takes_what_comes_next(epoch: int, sequence: int, count: int, sent_epoch: int, sent: int) -> None:
    """A leader takes an idempotent batch if it goes on with its epoch, or begins a later one with sequence 0."""
    assert 0 <= epoch <= MAX_EPOCH
    assert 0 <= sent_epoch <= MAX_EPOCH
    assert 0 <= sequence <= MAX_SEQUENCE
    assert 0 <= sent <= MAX_SEQUENCE
    assert 1 <= count <= MAX_SEQUENCE
    known = ProducerState(epoch=epoch, batches=(CachedBatch(sequence=sequence, count=count, offset=0),))
    error = Log(producers=Map({0: known})).append_error(Batch(producer_id=0, epoch=sent_epoch, sequence=sent, count=1))
    if sent_epoch == epoch:
        assert (error is ErrorCode.NONE) == (sent == (sequence + count) % 2**31)
    else:
        assert (error is ErrorCode.NONE) == (sent_epoch > epoch and sent == 0)


def epochs_have_an_end(epoch: int, max_epoch: int, failed: bool) -> None:
    """A fence raises the epoch by one, or keeps the last there is or one that could not be written."""
    assert 2 <= max_epoch <= MAX_EPOCH
    assert 0 <= epoch <= max_epoch
    rules = Rules(max_epoch=max_epoch, server_version=1)
    fencing = rules.fencing_epoch(TransactionMetadata(number=0, epoch=epoch, failed_fence=failed))
    assert fencing <= max_epoch
    assert fencing == (epoch if failed or epoch == max_epoch else epoch + 1)
    assert rules.is_exhausted(epoch) == (epoch + 1 >= max_epoch)


def varint_comes_back(value: int) -> None:
    """Any 32-bit number comes back from its varint of 1 to 5 bytes."""
    assert INT32_MIN <= value <= INT32_MAX
    data = encode_varint(value)
    assert 1 <= len(data) <= 5
    assert decode_varint(data, 0) == (value, len(data))


def any_bytes_are_a_varint_or_refused(data: bytes) -> None:
    """Any bytes are a 32-bit number within them, or no varint."""
    assert len(data) <= 6
    try:
        value, end = decode_varint(data, 0)
    except MalformedBatch as error:
        position = error.position
        assert 0 <= position <= len(data)
        return
    assert INT32_MIN <= value <= INT32_MAX
    assert 1 <= end <= len(data)


def record_comes_back(offset_delta: int, timestamp_delta: int, attributes: int, has_key: bool) -> None:
    """A record comes back from its bytes, whatever its numbers."""
    assert INT32_MIN <= offset_delta <= INT32_MAX
    assert -(2**63) <= timestamp_delta < 2**63
    assert -128 <= attributes < 128
    key = b"k" if has_key else None
    record = Record(attributes=attributes, timestamp_delta=timestamp_delta, offset_delta=offset_delta, key=key)
    assert decode_records(encode_records([record]), 1) == (record,)


def any_bytes_are_records_or_refused(data: bytes, count: int) -> None:
    """Any bytes are exactly as many records as are said to be in them, or refused with a position within them."""
    assert len(data) <= 9
    assert 0 <= count <= 2
    try:
        records = decode_records(data, count)
    except MalformedBatch as error:
        position = error.position
        assert 0 <= position <= len(data)
        return
    assert len(records) == count


def last_stable_offset_is_the_least(watermark: int, first: int, second: int, ended: int) -> None:
    """The last stable offset is the high watermark, or the first offset of the first transaction that is unstable."""
    assert watermark >= 0
    assert 0 <= first < second
    assert ended >= second or ended == NO_OFFSET
    one = UnstableTransaction(producer_id=1, first_offset=first)
    other = UnstableTransaction(producer_id=2, first_offset=second, last_offset=ended)
    log = LeaderLog(producers=Map(), transactions=(one, other))  # type: ignore[arg-type]
    state = _partition(log, watermark)
    assert state.last_stable_offset() == min(watermark, first)
    others = [first] if second <= ended else [first, second]
    assert state.stable_offset_after(log.transactions, 3, ended) == min(others)
    assert state.stable_offset_after(log.transactions, 1, 9) == (10 if ended != NO_OFFSET else second)


def leader_fences_older_epochs(known: int, coordinator: int, sent: int, sent_by: int, first: int) -> None:
    """A leader refuses markers of older epochs and coordinators, under version 2 also the open transaction's own."""
    assert 0 <= known <= MAX_EPOCH
    assert 0 <= sent <= MAX_EPOCH
    assert first >= NO_OFFSET
    producer = PartitionProducer(epoch=known, coordinator_epoch=coordinator, first_offset=first)
    log = LeaderLog(producers=Map({0: producer}))
    marker = LogEntry(kind=COMMIT, producer_id=0, epoch=sent, coordinator_epoch=sent_by)
    error = _partition(log, 0).marker_error(log, marker)
    own = sent == known and first != NO_OFFSET and sent != MAX_EPOCH
    if sent < known or own:
        assert error is ErrorCode.INVALID_PRODUCER_EPOCH
    else:
        assert (error is ErrorCode.TRANSACTION_COORDINATOR_FENCED) == (sent_by < coordinator)


def aborted_are_listed(first: int, last: int, stable: int, position: int, upper: int) -> None:
    """A response lists an aborted transaction that overlaps it, unless an entry before says that it comes later."""
    assert 0 <= first < last
    assert 0 <= position < upper
    before = IndexedTransaction(producer_id=1, first_offset=0, last_offset=0, last_stable_offset=stable)
    entry = IndexedTransaction(producer_id=2, first_offset=first, last_offset=last, last_stable_offset=last + 1)
    found = ReadCommitted().collected([before, entry], position, upper)
    overlaps = last >= position and first < upper
    assert any(one.producer_id == 2 for one in found) == (overlaps and stable < upper)


def aborted_are_dropped(first: int, batch: int, marker: int, next_one: int) -> None:
    """Between its first record and its marker an aborted transaction's records are dropped, and no others."""
    assert 0 <= batch < marker < next_one
    assert first >= 0
    entries = [
        LogEntry(kind="transactional", offset=batch, producer_id=1, epoch=0),
        LogEntry(kind="abort", offset=marker, producer_id=1, epoch=0),
        LogEntry(kind="transactional", offset=next_one, producer_id=1, epoch=0),
    ]
    passed = ReadCommitted().passed(entries, [AbortedTransaction(producer_id=1, first_offset=first)])
    expected = [] if first <= batch else [batch]
    if not marker < first <= next_one:
        expected = [*expected, next_one]
    assert [entry.offset for entry in passed] == expected


def _partition(log: LeaderLog, watermark: int) -> TransactionalPartition:
    constants = PartitionConstants(
        producer_ids=frozenset(), epochs=frozenset(), max_epoch=MAX_EPOCH, coordinator_epochs=frozenset(),
        batch_kinds=frozenset(), offsets=frozenset(), transaction_version=2, max_leader_epoch=0, index_failures=False,
        expiration=False, cleaning=False,
    )  # fmt: skip
    return TransactionalPartition(constants=constants, log=log, high_watermark=watermark)


CONTRACTS: dict[str, tuple[Callable[..., None], ...]] = {
    "sequences": (sequence_goes_on_by_the_records,),
    "append guards": (leader_takes_what_comes_next,),
    "epochs": (epochs_have_an_end,),
    "varint": (varint_comes_back, any_bytes_are_a_varint_or_refused),
    "batch codec": (record_comes_back, any_bytes_are_records_or_refused),
    "last stable offset": (last_stable_offset_is_the_least,),
    "marker guards": (leader_fences_older_epochs,),
    "aborted index": (aborted_are_listed, aborted_are_dropped),
}
