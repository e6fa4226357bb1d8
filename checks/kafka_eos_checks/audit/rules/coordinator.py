"""The rules over a log of ``__transaction_state``: one fold per transactional id, in log order.

``illegal coordinator transition``
    A state that may not follow the one before it (:data:`kafka_eos.formats.transaction_log.LEGAL_TRANSITIONS`), or a
    state with a wrong field:

    - the first state of a transactional id is EMPTY at epoch 0; so is the first after a tombstone. A tombstone follows
      only EMPTY or COMPLETE;
    - EMPTY (InitProducerId) has the epoch of the state before or the next one. A new producer id starts at epoch 0, and
      only when the epochs of the one before are used up (from 32766 on);
    - ONGOING keeps the epoch; after another ONGOING it keeps all partitions;
    - PREPARE keeps the partitions. In transaction version 2 it has the next epoch. Before that version a commit keeps
      the epoch, and an abort has the next one if it fences the client (a timeout, another instance);
    - COMPLETE keeps the epoch and has no partitions. In transaction version 2, at epoch 32767, it has the next producer
      id at epoch 0;
    - only EMPTY changes the timeout. A transaction starts when the first ONGOING is written, or PREPARE if the client
      aborts a transaction without partitions. PREPARE and COMPLETE keep its start, and EMPTY has none;
    - the previous producer id is that of the state before, or not written (Kafka before 4.0). EMPTY and COMPLETE have
      no next producer id.

    The time of the last update is not compared with that of the state before, because a coordinator's clock may go
    back.

``decision changed``
    COMPLETE of one decision after PREPARE of the other.

An append of the coordinator may fail although its record is in the log. The coordinator then continues from the state
before that record. So a state is legal if it may follow the last state, or a state that the last one may follow.
COMPLETE needs its PREPARE right before it, because the coordinator answers no other request in between.

*Unknown*, and no finding: the first state after a hole (compaction keeps only the last record of a transactional id),
and the first state in a log that does not start at offset 0.

:func:`follow_coordinator_log` runs these rules record by record. The audit reads logs by columns, with
:mod:`kafka_eos_checks.audit.kernels.coordinators.coordinator_log`, which finds the same. That module calls these rules
where it cannot prove that a step is legal.

KIP:   KIP-98, KIP-360, KIP-890
Kafka: TransactionMetadata (prepareTransitionTo, completeTransitionTo), TransactionStateManager.appendTransactionToLog
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.segment import CorruptRegion
from kafka_eos.formats.transaction_log import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTION_VERSION_2,
    MalformedTransactionRecord,
    TransactionLogValue,
    TransactionState,
    decode_key,
    decode_value,
    is_legal,
)
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.internal_topics.decisions import Decisions
from kafka_eos_checks.audit.internal_topics.states import UNREADABLE_REGIONS
from kafka_eos_checks.audit.quoting import quoted, unquoted
from kafka_eos_checks.audit.rules.log import Violation
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.audit.segments.splits import PartitionLog, items_of

if TYPE_CHECKING:
    from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import FoldedIds

ILLEGAL_TRANSITION, DECISION_CHANGED = "illegal coordinator transition", "decision changed"
COORDINATOR_RULES = (ILLEGAL_TRANSITION, DECISION_CHANGED)

LAST_EPOCH = 32767
EXHAUSTED_FROM = LAST_EPOCH - 1  # from here on InitProducerId gives a new producer id

Values = list[TransactionLogValue | None]  # None: the coordinator does not know the transactional id

PREPARED = {
    TransactionState.PREPARE_COMMIT: ControlType.COMMIT,
    TransactionState.PREPARE_ABORT: ControlType.ABORT,
}
COMPLETED = {
    TransactionState.COMPLETE_COMMIT: ControlType.COMMIT,
    TransactionState.COMPLETE_ABORT: ControlType.ABORT,
}
_AT_REST = frozenset({TransactionState.EMPTY, *COMPLETED})


class StateRecord(NamedTuple):
    """A record of ``__transaction_state``; ``value`` is None for a tombstone.

    ``stamped_ms`` is when the coordinator appended it, in milliseconds since the epoch.
    """

    file: str
    position: int
    offset: int
    stamped_ms: int
    transactional_id: str
    value: TransactionLogValue | None


@dataclass(slots=True, kw_only=True)
class Transaction:
    """A decision of the coordinator: a PREPARE and its transaction.

    Attributes:
        transactional_id: the transactional id of the producer.
        number: the number of the transaction among those of its transactional id. Two decisions have the same number
            if the append of the first one failed.
        offset: the offset of its PREPARE.
        producer_id: the producer id of its data and its markers.
        data_epoch: the epoch of its data.
        marker_epoch: the epoch of its markers.
        version: the transaction version of the client.
        decision: COMMIT or ABORT.
        partitions: the partitions that get a marker.
        decided_ms: when it was decided, in milliseconds since the epoch, on the coordinator's clock.
        started_ms: when it began, on the coordinator's clock.
        completed: whether the coordinator says that all markers are written.
        replaced: whether a record other than its COMPLETE came next. Then the coordinator gave up the append, and may
            have written none of the markers.
        completed_ms: when its COMPLETE was appended, in milliseconds since the epoch, if that came next and has its
            producer id and epoch; -1 otherwise. So all its markers were written by then.
    """

    transactional_id: str
    number: int
    offset: int = -1
    producer_id: int
    data_epoch: int
    marker_epoch: int
    version: int
    decision: ControlType
    partitions: frozenset[Place]
    decided_ms: int
    started_ms: int = -1
    completed: bool = False
    replaced: bool = False
    completed_ms: int = -1


@dataclass(slots=True)
class TransactionalId:
    """The state of one transactional id after some of the log.

    Attributes:
        name: the transactional id.
        last: the last value, None after a tombstone.
        current: the values that the coordinator may have in memory: the last one, and earlier ones from which it may
            have continued if an append failed.
        certain: whether ``current`` has all of them; false after a hole, until a known state explains the next one.
        holes: the number of holes of the log at the last record.
        transactions: the decisions, in log order.
        last_ms: when the last value was appended, in milliseconds since the epoch.
        last_at: the offset of the last value.
        producer_ids: all producer ids that it had.
        grants: producer ids and epochs that InitProducerId gave, except those of the state before. In version 2 that
            is the epoch of the last markers, which fences nobody.
    """

    name: str
    last: TransactionLogValue | None = None
    last_ms: int = -1
    last_at: int = -1
    current: Values = field(default_factory=lambda: [None])
    certain: bool = True
    holes: int = 0
    transactions: list[Transaction] = field(default_factory=list)
    producer_ids: set[int] = field(default_factory=set)
    grants: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def begin(cls, name: str, holes: int, whole: bool) -> "TransactionalId":
        """A transactional id before its first record; ``holes`` and ``whole`` are of the log so far."""
        return cls(name, holes=holes) if whole else cls(name, holes=holes, current=[], certain=False)


def wrong_step(before: TransactionLogValue | None, after: TransactionLogValue | None) -> str:
    """The reason why one state may not follow another, or "". None stands for an unknown transactional id."""
    if after is None:
        forgettable = before is None or before.transaction_status in _AT_REST
        return "" if forgettable else "forgotten in a transaction"
    if before is None:
        first = after.transaction_status is TransactionState.EMPTY and after.producer_epoch == 0
        return _wrong_at_rest(after) if first else "the first state is not EMPTY at epoch 0"
    if not is_legal(before.transaction_status, after.transaction_status, after.client_transaction_version):
        return "may not follow"
    return (
        _wrong_producer(before, after)
        or _wrong_partitions(before, after)
        or _wrong_times(before, after)
        or _wrong_at_rest(after)
    )


def _wrong_producer(before: TransactionLogValue, after: TransactionLogValue) -> str:
    """The reason why producer ids or epoch may not follow those of the state before, or ""."""
    if after.previous_producer_id not in {NO_PRODUCER_ID, before.producer_id}:
        return f"expected previous producer {before.producer_id}, not {after.previous_producer_id}"
    bumps = after.client_transaction_version >= TRANSACTION_VERSION_2
    epoch = before.producer_epoch
    allowed = {epoch}
    if after.producer_id != before.producer_id:
        return _wrong_rotation(before, after, bumps)
    if after.transaction_status in PREPARED and bumps:
        allowed = {epoch + 1}
    elif after.transaction_status in {TransactionState.EMPTY, TransactionState.PREPARE_ABORT}:
        allowed = {epoch, epoch + 1}
    if after.producer_epoch not in allowed:
        return f"expected epoch {' or '.join(map(str, sorted(allowed)))}"
    rotates = after.transaction_status in COMPLETED and bumps and before.next_producer_id >= 0
    return f"expected producer {before.next_producer_id}, whose epochs are not used up" if rotates else ""


def _wrong_rotation(before: TransactionLogValue, after: TransactionLogValue, bumps: bool) -> str:
    """The reason why a producer id may not replace another one, or ""."""
    if after.transaction_status is TransactionState.EMPTY:
        exhausted = before.producer_epoch >= EXHAUSTED_FROM
    elif after.transaction_status in COMPLETED and bumps:
        exhausted = before.producer_epoch == LAST_EPOCH
    else:
        return "another producer id in the midst of a transaction"
    if not exhausted:
        return f"another producer id, although {before.producer_id} has epochs left"
    if before.next_producer_id >= 0 and after.transaction_status in COMPLETED:
        promised = before.next_producer_id == after.producer_id
    else:
        promised = True  # before Kafka 4.3 the next producer id is not in the log (KAFKA-20310)
    if not promised:
        return f"expected producer {before.next_producer_id}"
    return "" if after.producer_epoch == 0 else "a new producer id does not start at epoch 0"


def _wrong_partitions(before: TransactionLogValue, after: TransactionLogValue) -> str:
    """The reason why the partitions may not follow those of the state before, or ""."""
    was, now = before.partitions(), after.partitions()
    if after.transaction_status in PREPARED:
        return "" if now == was else "the partitions are not those of the transaction"
    grows = after.transaction_status is TransactionState.ONGOING and before.transaction_status not in _AT_REST
    return "partitions left the transaction" if grows and not was <= now else ""


def _wrong_times(before: TransactionLogValue, after: TransactionLogValue) -> str:
    """The reason why the timeout, or the start of a transaction, may not follow that of the state before, or ""."""
    if after.transaction_status is TransactionState.EMPTY:
        return ""
    timeout, begun = before.transaction_timeout_ms, before.transaction_start_timestamp_ms
    if after.transaction_timeout_ms != timeout:
        return f"expected a timeout of {timeout} ms, not {after.transaction_timeout_ms} ms"
    if before.transaction_status in _AT_REST:
        begun = after.transaction_last_update_timestamp_ms
    start = after.transaction_start_timestamp_ms
    return "" if start == begun else f"expected a start at {begun} ms, not {start} ms"


def _wrong_at_rest(after: TransactionLogValue) -> str:
    """The reason why EMPTY or COMPLETE has a field that only a transaction has, or ""."""
    status, start = after.transaction_status, after.transaction_start_timestamp_ms
    if status not in _AT_REST:
        return ""
    if status is TransactionState.EMPTY and start != NO_TIMESTAMP:
        return f"no transaction, and a start at {start} ms"
    if after.partitions():
        return "no transaction, and partitions"
    pid, epoch = after.next_producer_id, after.next_producer_epoch
    is_promised = (pid, epoch) != (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return f"no transaction to end, and next producer {pid} epoch {epoch}" if is_promised else ""


def follow(
    known: TransactionalId, after: TransactionLogValue | None, holes: int, stamped_ms: int = -1, offset: int = -1
) -> Violation | None:
    """Add one record of a transactional id; return the rule that it violates, or None.

    Args:
        known: the state of the transactional id so far; it is changed.
        after: the record's value.
        holes: how many holes the log has before this record.
        stamped_ms: when the record was appended, in milliseconds since the epoch.
        offset: the offset of the record.
    """
    if holes > known.holes:
        known.current, known.certain, known.holes = [], False, holes
    explained, current = precede(known.current, after)
    violation = None
    if not explained and (known.certain or _completes_another(known, after)):
        violation = _violation(known.last, after)
    predecessors = explained or ([known.last] if known.certain else [])
    if after is not None:
        known.producer_ids.add(after.producer_id)
        if after.transaction_status is TransactionState.EMPTY and not _has_epoch(known.last, after):
            known.grants.append((after.producer_id, after.producer_epoch))
        _follow_transaction(known, predecessors, after, stamped_ms, offset)
    known.certain = known.certain or bool(explained) or violation is not None
    known.current = current
    known.last = after
    return violation


def precede(current: Values, after: TransactionLogValue | None) -> tuple[Values, Values]:
    """The current states that may precede a state, and the current states after it."""
    explained = _explaining(current, after)
    others = [before for before in explained if before is not None]  # a producer id is given once
    repeated = after is not None and bool(others) and _is_repeated(others[0], after)
    return explained, [after, *others[repeated:]]


def _explaining(current: Values, after: TransactionLogValue | None) -> Values:
    """The current states that may precede a state.

    The last state may follow each of the others. So if it is ONGOING and another ONGOING may follow it, that one may
    follow each of them that is ONGOING: none has more partitions, or another producer id, epoch, timeout or start.
    """
    last = current[0] if current else None
    proved = _is_ongoing(last) and _is_ongoing(after) and not wrong_step(last, after)
    return [before for before in current if (proved and _is_ongoing(before)) or not wrong_step(before, after)]


def _is_ongoing(value: TransactionLogValue | None) -> bool:
    return value is not None and value.transaction_status is TransactionState.ONGOING


def _has_epoch(before: TransactionLogValue | None, after: TransactionLogValue) -> bool:
    """Whether the state before has the same producer id and epoch."""
    own = after.producer_id, after.producer_epoch
    return before is not None and (before.producer_id, before.producer_epoch) == own


def _is_repeated(before: TransactionLogValue, after: TransactionLogValue) -> bool:
    """Whether a state equals the one before except for its last update, so that the same states may follow both."""
    last_update = after.transaction_last_update_timestamp_ms
    return after == replace(before, transaction_last_update_timestamp_ms=last_update)


def _completes_another(known: TransactionalId, after: TransactionLogValue | None) -> bool:
    """Whether a COMPLETE comes, without a hole, right after a state that it may not follow."""
    last = known.current[0] if known.current else None
    if after is None or last is None or after.transaction_status not in COMPLETED:
        return False
    return (
        last.transaction_status is not after.transaction_status
    )  # the append of a COMPLETE is tried until it succeeds


def _violation(before: TransactionLogValue | None, after: TransactionLogValue | None) -> Violation:
    evidence = f"{_in_words(after)} after {_in_words(before)}: {wrong_step(before, after)}"
    changed = (
        before is not None
        and after is not None
        and before.transaction_status in PREPARED
        and after.transaction_status in COMPLETED
        and PREPARED[before.transaction_status] is not COMPLETED[after.transaction_status]
    )
    return Violation(DECISION_CHANGED if changed else ILLEGAL_TRANSITION, evidence)


def _in_words(value: TransactionLogValue | None) -> str:
    if value is None:
        return "nothing"
    return f"{value.transaction_status.name} of producer {value.producer_id} epoch {value.producer_epoch}"


def _follow_transaction(
    known: TransactionalId, predecessors: Values, after: TransactionLogValue, stamped_ms: int, offset: int
) -> None:
    last = known.transactions[-1] if known.transactions else None
    if last is not None and not last.completed:
        last.completed = COMPLETED.get(after.transaction_status) is last.decision
        last.replaced = last.replaced or not last.completed  # not completed: its append was given up
        is_its_own = (after.producer_id, after.producer_epoch) == (last.producer_id, last.marker_epoch)
        if is_its_own and not last.replaced:
            last.completed_ms = stamped_ms
    if after.transaction_status not in PREPARED:
        return
    before = next((value for value in predecessors if value is not None), None)
    bumps = after.client_transaction_version >= TRANSACTION_VERSION_2
    number = 0 if last is None else last.number + last.completed
    known.transactions.append(
        Transaction(
            transactional_id=known.name,
            number=number,
            offset=offset,
            producer_id=after.producer_id,
            data_epoch=after.producer_epoch - bumps if before is None else before.producer_epoch,
            marker_epoch=after.producer_epoch,
            version=after.client_transaction_version,
            decision=PREPARED[after.transaction_status],
            partitions=after.partitions(),
            decided_ms=after.transaction_last_update_timestamp_ms,
            started_ms=after.transaction_start_timestamp_ms,
        )
    )


class Led(NamedTuple):
    """The last leader epoch of some records, -1 for none, and the time of the first record with this epoch."""

    epoch: int
    since_ms: int

    def then(self, later: "Led") -> "Led":
        """The same of these records and later ones."""
        return self if later.epoch == self.epoch or later == NOT_LED else later


NOT_LED = Led(-1, -1)


@dataclass(slots=True)
class CoordinatorLog:
    """The contents of a log of ``__transaction_state``.

    Attributes:
        log: the log.
        ids: the state of each transactional id.
        findings: violations, in log order.
        records: how many there are, tombstones included.
        unknown: records whose state could not be judged.
        unreadable: records whose key or value is of no known version.
        start: the first offset; None for a log without records.
        end: one past the last offset.
        holes: how many holes it has.
        damaged: whether a region of it cannot be read, so that states may be missing at its end too.
        stamped_ms: the last time that a coordinator stamped, in milliseconds since the epoch; -1 for none.
        led: the leader epoch of the last record, and the time of the first record with this epoch.
        folded: the transactional ids as columns, if they were folded by columns.
        known: the number of transactional ids, if ``ids`` are kept elsewhere.
    """

    log: PartitionLog
    ids: Mapping[str, TransactionalId] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    records: int = 0
    unknown: int = 0
    unreadable: int = 0
    start: int | None = None
    end: int = 0
    holes: int = 0
    damaged: bool = False
    stamped_ms: int = -1
    led: "Led" = NOT_LED
    folded: "FoldedIds | None" = None
    known: int = 0

    def stamped_before(self, offset: int) -> float:
        """See :class:`kafka_eos_checks.audit.moments.Dated`; known only for the whole log, not for a part of it."""
        return self.stamped_ms if 0 < self.end <= offset else -inf

    @property
    def whole(self) -> bool:
        """Whether the log has every record that was ever written to it."""
        return not self.holes and not self.unreadable and not self.damaged and self.start in {None, 0}

    @property
    def decisions(self) -> Decisions:
        """The decided transactions of all transactional ids as columns, in the order of ``ids``."""
        if self.folded is not None:
            return self.folded.decisions
        return Decisions.of(transaction for known in self.ids.values() for transaction in known.transactions)

    def take(self, record: StateRecord) -> None:
        """Add one more record."""
        assert isinstance(self.ids, dict), "a log that was folded takes no more records"
        known = self.ids.get(record.transactional_id)
        if known is None:
            known = TransactionalId.begin(record.transactional_id, self.holes, self.whole)
            self.ids[record.transactional_id] = known
        violation = follow(known, record.value, self.holes, record.stamped_ms, record.offset)
        known.last_ms, known.last_at = record.stamped_ms, record.offset
        self.unknown += not known.certain
        if violation is not None:
            self.findings.append(finding_of(self.log, record, violation))


def finding_of(log: PartitionLog, record: StateRecord, violation: Violation) -> Finding:
    """A violation with the place where it was found."""
    return Finding(
        rule=violation.rule,
        topic=log.topic,
        partition=log.partition,
        broker=log.broker,
        file=record.file,
        position=record.position,
        offset=record.offset,
        producer_id=-1 if record.value is None else record.value.producer_id,
        producer_epoch=-1 if record.value is None else record.value.producer_epoch,
        evidence=f"{quoted(record.transactional_id)}: {violation.evidence}",
        transactional_id=unquoted(record.transactional_id),
    )


def follow_coordinator_log(log: PartitionLog) -> CoordinatorLog:
    """Fold one log of ``__transaction_state`` record by record, with the readable decoders.

    It is the oracle of :mod:`kafka_eos_checks.audit.kernels.coordinators.coordinator_log`, which is faster.
    """
    result = CoordinatorLog(log)
    for record in read_records(log, result):
        result.take(record)
    return result


def read_records(log: PartitionLog, result: CoordinatorLog) -> Iterator[StateRecord]:
    """The records of a log; offsets, holes and damage are noted in ``result`` before each of them."""
    for name in log.segments:
        for stored in items_of(log, name):
            if isinstance(stored, CorruptRegion):
                result.damaged |= stored.kind in UNREADABLE_REGIONS
                continue
            try:
                records = stored.batch.records()
            except MalformedBatch:
                result.damaged = True
                continue
            for record in records:
                offset, stamped_ms = stored.batch.offset(record), stored.batch.max_timestamp
                if result.start is None:
                    result.start = offset
                elif offset != result.end:
                    result.holes += 1
                result.records += 1
                result.end = offset + 1
                result.stamped_ms = max(result.stamped_ms, stamped_ms)
                result.led = result.led.then(Led(stored.batch.partition_leader_epoch, stamped_ms))
                try:
                    key, value = decode_key(record.key or b""), decode_value(record.value)
                except MalformedTransactionRecord:
                    result.unreadable += 1
                    result.holes += 1
                    continue
                yield StateRecord(name, stored.position, offset, stamped_ms, key.transactional_id, value)
