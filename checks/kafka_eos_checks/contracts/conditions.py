"""The promises of the reference's functions, each as a function of any arguments.

The asserts at a function's beginning are the assumptions about its arguments; those after them are the promise.
CrossHair runs the reference's functions on symbolic arguments and looks for some that break a promise.

Headers of batches, their CRC and message sets have no contract: CrossHair gives a path up where :mod:`struct` packs a
symbolic number, and a bug planted there was not found. Hypothesis tests them
(tests/reference/formats/test_record_batch.py
and test_message_set.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from immutables import Map
from pyrsistent import pvector

from kafka_eos.errors import ErrorCode, MalformedBatch
from kafka_eos.formats.record_batch import Record, decode_records, encode_records
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.formats.varint import INT32_MAX, INT32_MIN, decode_varint, encode_varint
from kafka_eos.machines.producer_state import Batch, CachedBatch, Limits, Log, ProducerState
from kafka_eos.machines.read_committed import AbortedTransaction, IndexedTransaction, ReadCommitted
from kafka_eos.machines.transaction_coordinator import (
    COMPLETE,
    COMPLETED,
    DECIDE,
    END,
    FENCE,
    INIT,
    INIT_FENCES,
    NO_ANSWER,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARED,
    PREPARED_STATES,
    Appending,
    Identity,
    Rules,
    TransactionMetadata,
    forgotten,
)
from kafka_eos.machines.transactional_partition import (
    ABORT,
    COMMIT,
    NO_OFFSET,
    PLAIN,
    TRANSACTIONAL,
    LeaderLog,
    LogEntry,
    PartitionConstants,
    PartitionProducer,
    TransactionalPartition,
    UnstableTransaction,
)

MAX_SEQUENCE = 2**31 - 1
MAX_EPOCH = 2**15 - 1
FEW_EPOCHS = 4  # where each epoch is a path of its own
STATES = tuple(TransactionState)


@dataclass(frozen=True, slots=True)
class Contract:
    """A promise.

    Attributes:
        promise: a function of any arguments, which keep its first asserts.
        about: class of the reference -> the rules that the promise is about: replacing one of them may break it.
        rests_on: the rules among these that are different in Kafka as it ships, so that Kafka breaks the promise.
    """

    promise: Callable[..., None]
    about: dict[type, tuple[str, ...]]
    rests_on: frozenset[str] = frozenset()


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


def unknown_producer_begins_with_zero(sequence: int, holds_records: bool) -> None:
    """A producer that a leader does not know begins with sequence 0, where the partition has never held a record."""
    assert 0 <= sequence <= MAX_SEQUENCE
    entries = pvector([Batch(producer_id=1, epoch=0, sequence=0, count=1, offset=0)] if holds_records else [])
    error = Log(entries=entries).append_error(Batch(producer_id=0, epoch=0, sequence=sequence, count=1))
    assert (error is ErrorCode.NONE) == (holds_records or sequence == 0)


def retry_has_its_offset(
    sequence: int, count: int, next_count: int, sent_epoch: int, sent: int, sent_count: int
) -> None:
    """A batch with the epoch, first sequence and count of a remembered batch is its duplicate, at its offset."""
    assert 0 <= sequence <= MAX_SEQUENCE
    assert 0 <= sent <= MAX_SEQUENCE
    assert 1 <= count <= 1000
    assert 1 <= next_count <= 1000
    assert 1 <= sent_count <= 1000
    assert 0 <= sent_epoch <= MAX_EPOCH
    following = (sequence + count) % 2**31
    one = CachedBatch(sequence=sequence, count=count, offset=7)
    other = CachedBatch(sequence=following, count=next_count, offset=7 + count)
    log = Log(producers=Map({0: ProducerState(epoch=1, batches=(one, other))}))
    batch = Batch(producer_id=0, epoch=sent_epoch, sequence=sent, count=sent_count)
    is_one = sent_epoch == 1 and sent == sequence and sent_count == count
    is_other = sent_epoch == 1 and sent == following and sent_count == next_count
    assert log.is_duplicate(batch) == (is_one or is_other)
    if is_one or is_other:
        assert log.duplicate_offset(batch) == (7 if is_one else 7 + count)


def five_batches_are_remembered(known: int, epoch: int, sequence: int, count: int, offset: int) -> None:
    """A leader remembers the last five batches of the producer's epoch, and none of an earlier epoch."""
    assert 1 <= known <= 5
    assert 0 <= epoch <= MAX_EPOCH
    assert 0 <= sequence <= MAX_SEQUENCE
    assert 1 <= count <= MAX_SEQUENCE
    assert offset >= 0
    before = tuple(CachedBatch(sequence=number, count=1, offset=number) for number in range(known))
    entry = Batch(producer_id=0, epoch=epoch, sequence=sequence, count=count, offset=offset)
    after = Log().remember(Map({0: ProducerState(epoch=0, batches=before)}), entry)[0]
    own = before[-4:] if epoch == 0 else ()
    assert after == ProducerState(
        epoch=epoch, batches=(*own, CachedBatch(sequence=sequence, count=count, offset=offset))
    )


def nothing_is_lost_by_a_restart_or_learned_from_a_failure(epoch: int, sequence: int, count: int) -> None:
    """After a restart a log has the producers of its snapshot, and after a failed append those from before it."""
    assert 0 <= epoch <= MAX_EPOCH
    assert 0 <= sequence <= MAX_SEQUENCE
    assert 1 <= count <= MAX_SEQUENCE
    batches = (CachedBatch(sequence=5, count=1, offset=0), CachedBatch(sequence=sequence, count=count, offset=1))
    log = Log(producers=Map({0: ProducerState(epoch=epoch, batches=batches)}))
    assert log.with_snapshot().reloaded().producers == log.producers
    for producer_id in (0, 1):  # known, and new
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=(sequence + count) % 2**31, count=1)
        assert log.failed_to_append(batch) == log


def epochs_have_an_end(epoch: int, max_epoch: int, failed: bool) -> None:
    """A fence raises the epoch by one, except the last epoch, and except after a fence that could not be written."""
    assert 2 <= max_epoch <= MAX_EPOCH
    assert 0 <= epoch <= max_epoch
    rules = Rules(max_epoch=max_epoch, server_version=1)
    fencing = rules.fencing_epoch(TransactionMetadata(epoch=epoch, failed_fence=failed))
    assert fencing <= max_epoch
    assert fencing == (epoch if failed or epoch == max_epoch else epoch + 1)
    assert rules.is_exhausted(epoch) == (epoch + 1 >= max_epoch)


def open_transaction_ends_by_its_own_epoch(known: int, sent: int, commit: bool, version: int, pending: int) -> None:
    """A client ends the open transaction with its epoch and no other, and not while another transition is pending."""
    assert 0 <= known <= MAX_EPOCH
    assert 0 <= sent <= MAX_EPOCH
    assert 1 <= version <= 2
    assert 0 <= pending <= 2
    waits = (None, FENCE, TransactionState.PREPARE_COMMIT)[pending]
    metadata = TransactionMetadata(producer_id=4, epoch=known, state=ONGOING, pending=waits)
    verdict = Rules(max_epoch=MAX_EPOCH, server_version=version).end_verdict(metadata, 4, sent, commit, version)
    if version == 2 and pending == 2:
        assert verdict == ErrorCode.CONCURRENT_TRANSACTIONS.name
    elif sent != known:
        assert verdict == ErrorCode.PRODUCER_FENCED.name
    else:
        assert (verdict == DECIDE) == (pending == 0 or (pending == 1 and not commit))


def partition_is_added_to_an_open_transaction(state: int, known: int, sent: int, pending: bool, later: int) -> None:
    """A partition is added with the client's own producer id and epoch, and while nothing is being ended."""
    assert 0 <= state < len(STATES)
    assert 0 <= known <= MAX_EPOCH
    assert 0 <= sent <= MAX_EPOCH
    assert -1 <= later <= 1
    waits = TransactionState.PREPARE_ABORT if pending else None
    metadata = TransactionMetadata(producer_id=4, epoch=known, state=STATES[state], pending=waits)
    error = Rules(max_epoch=MAX_EPOCH, server_version=2).add_error(metadata, 4 + later, sent)
    is_ending = pending or STATES[state] in PREPARED_STATES
    is_known = STATES[state] is not TransactionState.DEAD
    assert (error is ErrorCode.NONE) == (is_known and later == 0 and sent == known and not is_ending)


def fence_raises_the_epoch_once(epoch: int, version: int, new_id: int) -> None:
    """The coordinator's own abort raises the epoch by one, up to the last epoch, and records the next producer id."""
    assert 0 <= epoch <= MAX_EPOCH
    assert 1 <= version <= 2
    assert new_id >= NO_PRODUCER_ID
    rules = Rules(max_epoch=MAX_EPOCH, server_version=version)
    fenced = rules.after_fence(TransactionMetadata(producer_id=4, epoch=epoch, state=ONGOING), new_id)
    assert fenced.state is PREPARED[False]
    assert fenced.epoch == min(epoch + 1, MAX_EPOCH)
    assert fenced.next_producer_id == new_id


def last_epoch_brings_a_new_producer_id(epoch: int, new_id: int) -> None:
    """Under version 2 the end in the last epoch brings a new producer id, which the client gets and uses."""
    assert 0 <= epoch <= MAX_EPOCH
    assert new_id > 4
    rules = Rules(max_epoch=MAX_EPOCH, server_version=2)
    known = TransactionMetadata(producer_id=4, epoch=epoch, state=ONGOING)
    is_last = epoch >= MAX_EPOCH - 1
    assert rules.needs_next_producer_id(known, 2) == is_last
    ended = rules.after_end(known, True, 2, new_id if is_last else NO_PRODUCER_ID)
    identity = Identity(producer_id=new_id, epoch=0) if is_last else Identity(producer_id=4, epoch=epoch + 1)
    assert rules.goes_on_as(ended) == identity
    completed = rules.after_completion(ended)
    assert Identity(producer_id=completed.producer_id, epoch=completed.epoch) == identity


def decision_survives_a_failover(state: int, epoch: int, previous: int, following: int) -> None:
    """A new coordinator knows the last decision and all producer ids, and goes on with a prepared transaction."""
    assert 0 <= state < len(STATES)
    assert 0 <= epoch <= MAX_EPOCH
    assert previous >= NO_PRODUCER_ID
    assert following >= NO_PRODUCER_ID
    rules = Rules(max_epoch=MAX_EPOCH, server_version=2)
    known = TransactionMetadata(
        producer_id=4, previous_producer_id=previous, next_producer_id=following, epoch=epoch, state=STATES[state]
    )
    goes_on = COMPLETED[STATES[state] is PREPARED[True]] if STATES[state] in PREPARED_STATES else None
    assert rules.loaded(rules.in_log(known)) == replace(known, pending=goes_on)
    is_gone = STATES[state] is TransactionState.DEAD
    assert rules.after_append(known) == (forgotten(known.number) if is_gone else replace(known, pending=goes_on))


def append_that_timed_out_decides_nothing(state: int, epoch: int, request: int) -> None:
    """After an append that was given up, the state is as before; a completion is tried again."""
    assert 0 <= state < len(STATES)
    assert 0 <= epoch <= MAX_EPOCH
    assert 0 <= request <= 3
    kind = (INIT, INIT_FENCES, END, COMPLETE)[request]
    is_open = kind != COMPLETE
    before, pending = (ONGOING, PREPARED[True]) if is_open else (PREPARED[state % 2 == 0], COMPLETED[state % 2 == 0])
    known = TransactionMetadata(producer_id=4, epoch=epoch, state=before, pending=pending)
    append = Appending(request=kind, record=replace(known, state=STATES[state], pending=None))
    after = Rules(max_epoch=MAX_EPOCH, server_version=1).after_timeout(known, append)
    assert after == (replace(known, pending=None, failed_fence=kind == INIT_FENCES) if is_open else known)


def who_is_told_what(request: int, epoch: int) -> None:
    """A client that waits for an abort gets that error, one with a new epoch the epoch; a completion answers nobody."""
    assert 0 <= request <= 2
    assert 0 <= epoch <= MAX_EPOCH
    record = TransactionMetadata(producer_id=4, epoch=epoch)
    append = Appending(request=(INIT, INIT_FENCES, COMPLETE)[request], record=record)
    answer = Rules(max_epoch=MAX_EPOCH, server_version=2).answer_to(append)
    assert (answer == NO_ANSWER) == (request == 2)
    if request == 2:
        return
    assert answer.request == INIT
    if request == 0:
        assert (answer.error, answer.producer_id, answer.epoch) == (ErrorCode.NONE, 4, epoch)
    else:
        assert (answer.error, answer.epoch) == (ErrorCode.CONCURRENT_TRANSACTIONS, NO_EPOCH)


def init_is_repeated(epoch: int, last: int, previous: int) -> None:
    """A repeated InitProducerId with the previous epoch gets the same answer, also a third time."""
    assert 0 <= last < FEW_EPOCHS
    assert 0 <= epoch <= FEW_EPOCHS
    assert epoch != last
    assert previous >= NO_PRODUCER_ID
    rules = Rules(max_epoch=FEW_EPOCHS, server_version=1)
    known = TransactionMetadata(
        producer_id=4, previous_producer_id=previous, epoch=epoch, last_epoch=last, state=TransactionState.EMPTY
    )
    assert rules.bump_error(known, last) is ErrorCode.NONE
    assert rules.after_retry_of_init(known) == known


def varint_comes_back(value: int) -> None:
    """Any 32-bit number comes back from its varint."""
    assert INT32_MIN <= value <= INT32_MAX
    data = encode_varint(value)
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
    one = UnstableTransaction(producer_id=1, first_offset=first, last_offset=ended)
    other = UnstableTransaction(producer_id=2, first_offset=second)
    log = LeaderLog(producers=Map(), transactions=(one, other))  # type: ignore[arg-type]
    state = _partition(log, watermark)
    assert state.last_stable_offset() == min(watermark, first)
    is_open = ended == NO_OFFSET
    assert state.stable_offset_after(log.transactions, 3, ended) == (first if is_open else second)
    assert state.stable_offset_after(log.transactions, 2, 9) == (first if is_open else 10)


def leader_takes_batches_of_the_open_transaction(known: int, sent: int, first: int, is_plain: bool) -> None:
    """A leader refuses batches of older epochs, and within a transaction those that are not part of it."""
    assert 0 <= known <= MAX_EPOCH
    assert 0 <= sent <= MAX_EPOCH
    assert first >= NO_OFFSET
    log = LeaderLog(producers=Map({0: PartitionProducer(epoch=known, first_offset=first)}))
    batch = LogEntry(kind=PLAIN if is_plain else TRANSACTIONAL, producer_id=0, epoch=sent)
    error = _partition(log).batch_error(log, batch)
    if sent < known:
        assert error is ErrorCode.INVALID_PRODUCER_EPOCH
    else:
        assert (error is ErrorCode.INVALID_TXN_STATE) == (is_plain and first != NO_OFFSET)


def producer_with_a_transaction_is_kept(first: int) -> None:
    """A producer is forgotten only when it has no transaction open."""
    assert first >= NO_OFFSET
    producer = PartitionProducer(epoch=0, first_offset=first)
    log = LeaderLog(producers=Map({0: producer}))
    assert _partition(log).may_expire(producer) == (first == NO_OFFSET)


def aborted_are_indexed(first: int, is_abort: bool, epoch: int) -> None:
    """The index gets an entry with every abort marker, and with no commit marker."""
    assert first >= 0
    log = LeaderLog(producers=Map({0: PartitionProducer(epoch=epoch, first_offset=first)}))
    marker = LogEntry(kind=ABORT if is_abort else COMMIT, offset=first + 1, producer_id=0, epoch=epoch)
    indexed = _partition(log).with_index_entry(log, marker, first).aborted_index
    entry = IndexedTransaction(producer_id=0, first_offset=first, last_offset=first + 1, last_stable_offset=first + 2)
    assert list(indexed) == ([entry] if is_abort else [])


def marker_stays_while_a_batch_is_left(batch: int, marker: int) -> None:
    """The cleaner takes a marker only when no batch of its transaction is left."""
    assert batch >= 0
    assert marker >= 0
    assert batch != marker
    held = LogEntry(kind=TRANSACTIONAL, offset=batch, producer_id=0, epoch=0)
    end = LogEntry(kind=ABORT, offset=marker, producer_id=0, epoch=0)
    entries = pvector([held, end] if batch < marker else [end, held])
    log = LeaderLog(producers=Map({0: PartitionProducer()}), entries=entries)
    assert _partition(log).may_clean_marker(end) == (marker < batch)


def leader_fences_older_epochs(known: int, coordinator: int, sent: int, sent_by: int, first: int) -> None:
    """A leader refuses markers of older epochs and coordinators, under version 2 also the open transaction's own."""
    assert 0 <= known <= MAX_EPOCH
    assert 0 <= sent <= MAX_EPOCH
    assert first >= NO_OFFSET
    producer = PartitionProducer(epoch=known, coordinator_epoch=coordinator, first_offset=first)
    log = LeaderLog(producers=Map({0: producer}))
    marker = LogEntry(kind=COMMIT, producer_id=0, epoch=sent, coordinator_epoch=sent_by)
    error = _partition(log).marker_error(log, marker)
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


def _partition(log: LeaderLog, watermark: int = 0) -> TransactionalPartition:
    constants = PartitionConstants(
        producer_ids=frozenset(), epochs=frozenset(), max_epoch=MAX_EPOCH, coordinator_epochs=frozenset(),
        batch_kinds=frozenset(), offsets=frozenset(), transaction_version=2, max_leader_epoch=0, index_failures=False,
        expiration=False, cleaning=False,
    )  # fmt: skip
    return TransactionalPartition(constants=constants, log=log, high_watermark=watermark)


CONTRACTS: dict[str, tuple[Contract, ...]] = {
    "sequences": (Contract(sequence_goes_on_by_the_records, {Limits: ("next_sequence", "last_sequence")}),),
    "append guards": (
        Contract(leader_takes_what_comes_next, {Log: ("is_in_sequence", "follows", "starts_epoch", "is_fenced")}),
        Contract(
            unknown_producer_begins_with_zero,
            {Log: ("accepts_unknown_producer",)},
            rests_on=frozenset({"AcceptsUnknownProducer"}),
        ),
    ),
    "duplicates": (
        Contract(retry_has_its_offset, {Log: ("is_duplicate", "is_retry_of", "retry_candidates", "duplicate_offset")}),
        Contract(five_batches_are_remembered, {Log: ("remember",)}),
        Contract(
            nothing_is_lost_by_a_restart_or_learned_from_a_failure,
            {Log: ("snapshot_of", "failed_to_append")},
            rests_on=frozenset({"SnapshotOf"}),
        ),
    ),
    "epochs": (Contract(epochs_have_an_end, {Rules: ("fencing_epoch", "is_exhausted")}),),
    "coordinator": (
        Contract(
            open_transaction_ends_by_its_own_epoch,
            {Rules: ("end_verdict_of_version1", "end_verdict_of_version2", "is_epoch_to_end")},
        ),
        Contract(partition_is_added_to_an_open_transaction, {Rules: ("add_error",)}),
        Contract(fence_raises_the_epoch_once, {Rules: ("after_fence",)}),
        Contract(last_epoch_brings_a_new_producer_id, {Rules: ("needs_next_producer_id", "goes_on_as")}),
        Contract(
            decision_survives_a_failover,
            {Rules: ("in_log", "loaded", "after_append")},
            rests_on=frozenset({"InLog"}),
        ),
        Contract(append_that_timed_out_decides_nothing, {Rules: ("after_timeout",)}),
        Contract(who_is_told_what, {Rules: ("answer_to",)}),
        Contract(
            init_is_repeated,
            {Rules: ("bump_error", "after_retry_of_init")},
            rests_on=frozenset({"BumpError", "AfterRetryOfInit"}),
        ),
    ),
    "varint": (Contract(varint_comes_back, {}), Contract(any_bytes_are_a_varint_or_refused, {})),
    "batch codec": (Contract(record_comes_back, {}), Contract(any_bytes_are_records_or_refused, {})),
    "last stable offset": (
        Contract(
            last_stable_offset_is_the_least,
            {
                TransactionalPartition: (
                    "last_stable_offset",
                    "first_unstable_offset",
                    "unstable_offsets",
                    "stable_offset_after",
                )
            },
        ),
    ),
    "leader": (
        Contract(
            leader_takes_batches_of_the_open_transaction,
            {TransactionalPartition: ("is_old_batch", "is_outside_transaction")},
        ),
        Contract(leader_fences_older_epochs, {TransactionalPartition: ("is_old_marker", "is_of_old_coordinator")}),
        Contract(producer_with_a_transaction_is_kept, {TransactionalPartition: ("may_expire",)}),
        Contract(marker_stays_while_a_batch_is_left, {TransactionalPartition: ("may_clean_marker",)}),
    ),
    "aborted index": (
        Contract(aborted_are_indexed, {TransactionalPartition: ("is_indexed",)}),
        Contract(aborted_are_listed, {ReadCommitted: ("overlaps", "ends_scan")}),
        Contract(aborted_are_dropped, {ReadCommitted: ("has_begun", "still_active", "is_passed_on")}),
    ),
}
