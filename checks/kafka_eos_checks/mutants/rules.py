"""The rules of the reference with one thing changed, each under the name that it has in ``spec/mutants``.

A mutant of the registry replaces operators of the spec by others. :func:`mutated` does the same to a machine:
``IsDuplicate = "NoDuplicateCache"`` puts the function :func:`no_duplicate_cache` in the place of the method
``is_duplicate``, wherever that stands: in the machine, in its logs, or in its limits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from immutables import Map
from pyrsistent import PVector, pvector

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.machines import broker as brokers
from kafka_eos.machines import leader as leaders
from kafka_eos.machines import transaction_coordinator as coordinator
from kafka_eos.machines.application_loop import ApplicationLoop, LoopTransaction
from kafka_eos.machines.broker import Broker
from kafka_eos.machines.consume_transform_produce import ConsumeTransformProduce
from kafka_eos.machines.consumer import Consumer
from kafka_eos.machines.epoch_bump import NOBODY, EpochBump, Identity
from kafka_eos.machines.external_sink import ExternalSink
from kafka_eos.machines.group_coordinator import COMMIT as COMMIT_OFFSETS
from kafka_eos.machines.group_coordinator import Offsets
from kafka_eos.machines.idempotent_producer import Batches, IdempotentProducer, Producer, Request
from kafka_eos.machines.machine import Machine
from kafka_eos.machines.mirror import Mirror
from kafka_eos.machines.producer_ids import ProducerIds
from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch, CachedBatch, Limits, Log, Producers, ProducerState
from kafka_eos.machines.read_committed import AbortedTransaction, IndexedTransaction, ReadCommitted
from kafka_eos.machines.share_partition import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    LogBatch,
    Record,
    SharePartition,
)
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos.machines.stateful_processor import Change, StatefulProcessor, Store, StoreProcess
from kafka_eos.machines.transaction_coordinator import Appending, Rules, TransactionCoordinator, TransactionMetadata
from kafka_eos.machines.transactional_offsets import Entry as OffsetEntry
from kafka_eos.machines.transactional_offsets import Memory, TransactionalOffsets
from kafka_eos.machines.transactional_partition import (
    NO_OFFSET,
    NO_PRODUCER,
    LeaderLog,
    LogEntry,
    PartitionProducer,
    TransactionalPartition,
    UnstableTransaction,
    marker_entry,
)
from kafka_eos.machines.transactional_producer import (
    ABORT,
    ABORT_CALL,
    ABORTABLE_ERROR,
    ADD_OFFSETS,
    BEGIN,
    COMMIT_CALL,
    COMMITTING,
    DONE,
    ERRORS_OF_TOPIC_IDS,
    FAILED,
    FATAL_ERROR,
    IN_TRANSACTION,
    INIT,
    INITIALIZING,
    LOOKUPS,
    NO_ERROR,
    PRODUCE,
    READY,
    RETRIABLE_ERRORS,
    SEND_OFFSETS,
    Call,
    ProducerBatch,
    TransactionalProducer,
)
from kafka_eos.machines.transactional_producer import COMMIT_OFFSETS as TXN_OFFSET_COMMIT
from kafka_eos.machines.transactional_producer import Client as ProducerClient
from kafka_eos.machines.transactions import (
    COMPLETED,
    DECIDE,
    Client,
    GuardedRequest,
    Marker,
    PartitionRequest,
    Transaction,
    TransactionalLog,
    Transactions,
)
from kafka_eos.machines.transfer import ALICE, BOB, Transfer


class UnknownRule(ValueError):  # noqa: N818 - named for what is unknown
    """An override that names no rule of the machine, or no function of this module."""


PARTS = ("LOG", "LIMITS")
"""The attributes of a machine that have the classes of its log and of its limits, with some of its rules."""
INSTANCES = ("SEQUENCES", "LEADING", "COORDINATING")
"""The attributes of a machine that have the classes with the rules of modules that its own module instantiates."""


def owner_of(machine: type[Any], rule: str) -> str | None:
    """The attribute of a machine whose class has a rule, "" for the machine itself; None if nothing has the rule.

    Args:
        machine: the machine's class.
        rule: a TLA+ operator; ``Module!Operator`` for one of a module that the machine's module instantiates.
    """
    module, _, name = rule.rpartition("!")
    if not module and hasattr(machine, snake_case(name)):
        return ""
    for attribute in INSTANCES if module else PARTS:
        part = getattr(machine, attribute, None)
        if hasattr(part, snake_case(name)) and (not module or _is_of(part, module)):
            return attribute
    return None


def _is_of(part: Any, module: str) -> bool:
    return any(base.__module__.endswith(f".{snake_case(module)}") for base in part.__mro__)


def mutated(machine: type[Any], overrides: Mapping[str, str]) -> type[Machine]:
    """A subclass of the machine with some of its rules replaced.

    Args:
        machine: the machine's class.
        overrides: TLA+ operator, as :func:`owner_of` takes it -> the operator of ``spec/mutants`` that takes its place.

    Raises:
        UnknownRule: when there is no such rule, or no function for the mutant.
    """
    changed: dict[str, dict[str, Callable[..., Any]]] = {}
    for rule, mutant in overrides.items():
        function = globals().get(snake_case(mutant))
        if function is None:
            raise UnknownRule(
                f"kafka_eos_checks.mutants.rules has no function {snake_case(mutant)}; add it for the spec's mutant"
            )
        owner = owner_of(machine, rule)
        name = snake_case(rule.rpartition("!")[2])
        if owner is None:
            raise UnknownRule(f"{machine.__name__} has no rule {name}; the spec's {rule} is none of its own")
        changed.setdefault(owner, {})[name] = function

    def subclass(base: type[Any], rules: Mapping[str, Any]) -> type[Any]:
        members = {
            name: property(rule) if isinstance(getattr(base, name, None), property) else rule
            for name, rule in rules.items()
        }
        return type(f"{base.__name__}With{''.join(overrides.values())}", (base,), {"__slots__": (), **members})

    parts = {name: subclass(getattr(machine, name), rules) for name, rules in changed.items() if name}
    return subclass(machine, {**changed.get("", {}), **parts})


# --- rules of ProducerState -------------------------------------------------------------------------------------


def no_duplicate_cache(log: Log, batch: Batch) -> bool:
    """For ``is_duplicate``: the leader remembers no batch (KAFKA-5494)."""
    return False


def no_sequence_check(log: Log, batch: Batch) -> bool:
    """For ``is_in_sequence``: the leader checks no sequence."""
    return True


def cache_of_one(log: Log, producers: Producers, entry: Batch) -> Producers:
    """For ``remember``: the cache holds one batch only."""
    if entry.producer_id == NO_PRODUCER_ID:
        return producers
    batch = CachedBatch(sequence=entry.sequence, count=entry.count, offset=entry.offset)
    return producers.set(entry.producer_id, ProducerState(epoch=entry.epoch, batches=(batch,)))


def last_batch_only(log: Log, producer: ProducerState) -> ProducerState:
    """For ``snapshot_of``: only the last batch is kept, as in Kafka."""
    return replace(producer, batches=producer.batches[-1:])


def duplicates_of_any_epoch(log: Log, batch: Batch) -> tuple[CachedBatch, ...]:
    """For ``retry_candidates``: the epoch is no part of a batch's identity."""
    producer = log.producers.get(batch.producer_id)
    return () if producer is None else producer.batches


def offsets_from_one(log: Log) -> int:
    """For ``log_end_offset``: offsets begin with 1."""
    return log.entries[-1].offset + log.entries[-1].count if log.entries else 1


def offsets_have_holes(log: Log) -> int:
    """For ``log_end_offset``: an offset is left out behind each batch."""
    return log.entries[-1].offset + log.entries[-1].count + 1 if log.entries else 0


def any_sequence_on_virgin_partition(log: Log, batch: Batch) -> bool:
    """For ``accepts_unknown_producer``: every sequence passes, as in Kafka before 4.5 (KAFKA-15591)."""
    return True


def epoch_starts_anywhere(log: Log, batch: Batch) -> bool:
    """For ``starts_epoch`` (KAFKA-12152)."""
    return True


def follows_after_gap(log: Log, producer: ProducerState, batch: Batch) -> bool:
    """For ``follows``: a gap counts as no gap."""
    return batch.sequence > log.limits.last_sequence(producer.batches[-1])


def no_fencing(log: Log, producer: ProducerState, batch: Batch) -> bool:
    """For ``is_fenced``: an old epoch is accepted."""
    return False


def present_epoch_is_fenced(log: Log, producer: ProducerState, batch: Batch) -> bool:
    """For ``is_fenced``: the present epoch is refused, too."""
    return batch.epoch <= producer.epoch


def no_wrap(limits: Limits, sequence: int) -> int:
    """For ``next_sequence``: no wrap to 0 (KAFKA-7692)."""
    return sequence + 1


def state_before_append(log: Log, batch: Batch) -> Log:
    """For ``failed_to_append``: the state is published before the append can fail (KAFKA-6683)."""
    return replace(log, producers=log.remember(log.producers, replace(batch, offset=log.log_end_offset)))


def known_before_append(log: Log, batch: Batch) -> Log:
    """For ``failed_to_append``: a new producer is known, without batches, before the append can fail."""
    if log.knows_producer(batch.producer_id):
        return log
    return replace(log, producers=log.producers.set(batch.producer_id, ProducerState(epoch=0, batches=())))


def first_sequence_only(log: Log, cached: CachedBatch, batch: Batch) -> bool:
    """For ``is_retry_of``: the last sequence is not compared."""
    return cached.sequence == batch.sequence


def cache_survives_epoch(log: Log, producers: Producers, entry: Batch) -> Producers:
    """For ``remember``: an epoch's first batch leaves the cache as it was."""
    if entry.producer_id == NO_PRODUCER_ID:
        return producers
    known = producers.get(entry.producer_id)
    before = () if known is None else known.batches
    batch = CachedBatch(sequence=entry.sequence, count=entry.count, offset=entry.offset)
    batches = (*before, batch)[-log.limits.cached_batches :]
    return producers.set(entry.producer_id, ProducerState(epoch=entry.epoch, batches=batches))


def offset_of_log_end(log: Log, batch: Batch) -> int:
    """For ``duplicate_offset``: the acknowledgement names the end of the log, not the first copy."""
    return log.log_end_offset - 1


def not_above_largest_sequence(log: Log, batch: Batch) -> bool:
    """For ``is_duplicate``: only the largest sequence is known, and what is not above it is a duplicate."""
    producer = log.producers.get(batch.producer_id)
    if producer is None or producer.epoch != batch.epoch:
        return False
    return log.limits.last_sequence(batch) <= log.limits.last_sequence(producer.batches[-1])


def offset_of_last_batch(log: Log, batch: Batch) -> int:
    """For ``duplicate_offset``: together with NotAboveLargestSequence, the only offset that is known."""
    return log.producers[batch.producer_id].batches[-1].offset


# --- rules of IdempotentProducer --------------------------------------------------------------------------------


def _restamped(state: IdempotentProducer, batches: Batches) -> Batches:
    """Batches with the stamps of the producer's next epoch, as far as they can be sent once more."""
    sendable = [batch for batch in batches if state.attempts[batch.value] + 1 in state.constants.attempts]
    epoch = state.bumped().epoch
    return tuple(replace(batch, epoch=epoch, sequence=sequence) for sequence, batch in enumerate(sendable))


def _has_next_epoch(state: IdempotentProducer) -> bool:
    return state.bumped().epoch > state.producer.epoch


def restamp_after_expiry(state: IdempotentProducer, value: int) -> Batches:
    """For ``kept_after_expiry``: the other batches are stamped again, as by the Java client (KAFKA-14034)."""
    others = tuple(batch for batch in state.in_flight if batch.value != value)
    if not state.constants.idempotence:
        return others
    return _restamped(state, others) if _has_next_epoch(state) else ()


def bump_after_restamp(state: IdempotentProducer, kept: Batches) -> Producer:
    """For ``producer_after_expiry``, together with RestampAfterExpiry: the sequence goes on after these batches."""
    if not state.constants.idempotence:
        return state.producer
    return replace(state.bumped(), sequence=len(kept)) if _has_next_epoch(state) else state.bumped()


def restamp_after_error(state: IdempotentProducer, error: ErrorCode) -> Batches:
    """For ``kept_after_error``: every batch is stamped again, the refused one included, as by the Java client."""
    if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and _has_next_epoch(state):
        return _restamped(state, state.in_flight)
    return ()


def kept_behind_refused(state: IdempotentProducer, error: ErrorCode) -> Batches:
    """For ``kept_after_error``: the batches after the refused one stay in flight."""
    return state.in_flight[1:]


def bump_after_error(state: IdempotentProducer, error: ErrorCode, kept: Batches) -> Producer:
    """For ``producer_after_error``, together with RestampAfterError: the producer goes on in its next epoch."""
    if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and _has_next_epoch(state):
        return replace(state.bumped(), sequence=len(kept))
    return replace(state.producer, error=error)


def reuse_sequence(state: IdempotentProducer, kept: Batches) -> Producer:
    """For ``producer_after_expiry``: the sequence of a batch that was given up is used again."""
    return replace(state.producer, sequence=state.in_flight[0].sequence)


def skip_sequence(state: IdempotentProducer, kept: Batches) -> Producer:
    """For ``producer_after_expiry``: the sequence goes on as if the batch had been stored."""
    return state.producer


def leader_end_offset(state: IdempotentProducer) -> int:
    """For ``in_sync_end_offset``: the high watermark does not wait for the followers."""
    assert state.leader is not None, "the caller has looked"
    return state.end_offset(state.leader)


def last_one_leaves(state: IdempotentProducer, replica: str) -> bool:
    """For ``leaves_isr``: the last replica in sync leaves the in-sync set, too, without eligible leader replicas."""
    return state.constants.eligible_leader_replicas or replica in state.constants.volatile


def last_is_forgotten(state: IdempotentProducer, members: frozenset[str], replica: str) -> str | None:
    """For ``last_known_with``: nobody remembers who was the last one in sync."""
    return state.last_known_leader


def sends_after_fatal_error(state: IdempotentProducer) -> bool:
    """For ``is_ready``: the producer sends after a fatal error."""
    return not state.constants.idempotence or state.producer.producer_id != NO_PRODUCER_ID


def late_answer_is_heard(state: IdempotentProducer, request: Request) -> bool:
    """For ``is_awaited``: the answer to a batch that was given up is heard."""
    return True


def only_volatile(state: IdempotentProducer, replica: str) -> bool:
    """For ``may_be_killed``: only the replicas that lose what they have not flushed."""
    return replica in state.constants.volatile


def advances_below_min_isr(state: IdempotentProducer) -> bool:
    """For ``may_advance``: the high watermark moves whatever min.insync.replicas says."""
    return True


def killed_stays_eligible(state: IdempotentProducer, members: frozenset[str], killed: frozenset[str]) -> frozenset[str]:
    """For ``eligible_with``: a killed replica keeps its place."""
    small = state.constants.eligible_leader_replicas and len(members) < state.effective_min_isr
    return (state.isr | state.elr) - members if small else frozenset()


def anybody_leads(state: IdempotentProducer) -> frozenset[str]:
    """For ``candidates``: without anybody in sync any replica may lead."""
    return state.isr or state.constants.replicas


def expire_any_time(state: IdempotentProducer, producer_id: int) -> bool:
    """For ``may_expire``: producer state is dropped while a retry may be on its way."""
    return True


# --- rules of EpochBump -----------------------------------------------------------------------------------------


def presents_nothing(state: EpochBump, identity: Identity) -> Identity:
    """For ``presented``: the request presents nothing of what the client has, as before KIP-360 and at first."""
    return NOBODY


def retry_unknown(state: EpochBump, presented: Identity) -> bool:
    """For ``is_retry``: the coordinator remembers only the identity that it gave out last."""
    return False


def epochs_without_end(state: EpochBump, identity: Identity) -> Identity:
    """For ``following``: the epochs never run out."""
    return replace(identity, epoch=identity.epoch + 1)


def epoch_of_old_producer(state: EpochBump, identity: Identity) -> Identity:
    """For ``following``: a new producer id goes on in the old epoch."""
    return replace(identity, epoch=identity.epoch + 1 if identity.epoch < state.constants.max_epoch else 0)


# --- rules of Transactions --------------------------------------------------------------------------------------


def keeps_epoch_while_ending(state: Transactions, client: Client, ending: bool) -> bool:
    """For ``asks_for_epoch``: a batch that fails while the transaction ends brings no new epoch, as in Kafka."""
    return client.version == 1 and not ending


def keeps_epoch_of_late_batch(state: Transactions, client: Client, ending: bool) -> bool:
    """For ``asks_for_epoch``: an instance keeps its epoch although a batch that it has given up may still arrive."""
    return False


def failure_is_forgotten(state: Transactions, client: Client, ending: bool) -> Client:
    """For ``failed``: an instance goes on in its transaction after a batch has failed."""
    return replace(client, awaits="nothing")


def next_without_abort(state: Transactions, client: Client, ending: bool) -> Client:
    """For ``failed``: an instance goes on with its next transaction after a batch has failed, without an abort."""
    return replace(client, awaits="nothing", state="ready")


def everybody_gets_an_epoch(state: Transactions, epoch: int) -> bool:
    """For ``is_fenced``: the coordinator gives any instance another epoch."""
    return False


def no_fencing_bump(state: Transactions) -> int:
    """For ``fencing_epoch``: the coordinator aborts by itself without a new epoch (KAFKA-5231, KAFKA-6119)."""
    return state.transaction.epoch


def no_end_bump(state: Transactions, version: int) -> int:
    """For ``end_epoch``: no bump at the end of a transaction, as before KIP-890 part 2 (KAFKA-17754)."""
    return state.transaction.epoch


def add_while_prepared(state: Transactions, epoch: int) -> ErrorCode:
    """For ``add_error``: a partition may be added while the markers are being written."""
    return ErrorCode.NONE if epoch == state.transaction.epoch else ErrorCode.PRODUCER_FENCED


def add_by_any_epoch(state: Transactions, epoch: int) -> ErrorCode:
    """For ``add_error``: a partition may be added by any epoch."""
    return ErrorCode.CONCURRENT_TRANSACTIONS if state.is_prepared() else ErrorCode.NONE


def fenced_before_pending(state: Transactions, epoch: int) -> ErrorCode:
    """For ``add_error``: the epoch is checked before the pending transition, as in Kafka 3.9."""
    if epoch != state.transaction.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if state.is_prepared() else ErrorCode.NONE


def data_of_any_epoch(state: Transactions, log: TransactionalLog, epoch: int, guard: int) -> ErrorCode:
    """For ``data_error``: a leader takes batches of any epoch."""
    stale = state.constants.verification and not state.is_ongoing(log, epoch) and guard != log.guard
    return ErrorCode.INVALID_TXN_STATE if stale else ErrorCode.NONE


def no_guard(state: Transactions, log: TransactionalLog, epoch: int, guard: int) -> ErrorCode:
    """For ``data_error``: nothing between verification and append is noticed (KAFKA-14884)."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if epoch < log.epoch else ErrorCode.NONE


def one_batch_an_epoch(state: Transactions, log: TransactionalLog, request: PartitionRequest) -> bool:
    """For ``is_duplicate``: the first batch of an epoch makes duplicates of all others."""
    stored = (entry for entry in log.entries if entry.kind == "data")
    return request.epoch == log.epoch and any(entry.epoch == request.epoch for entry in stored)


def repeat_is_stored(state: Transactions, log: TransactionalLog, request: PartitionRequest) -> bool:
    """For ``is_duplicate``: a leader stores a batch again that comes again."""
    return False


def every_append_uses_guard_up(state: Transactions, log: TransactionalLog, epoch: int) -> bool:
    """For ``uses_guard_up``: every transactional append uses the guard up, as in Kafka."""
    return True


def ongoing_of_any_epoch(state: Transactions, log: TransactionalLog, epoch: int) -> bool:
    """For ``is_ongoing``: a transaction of any epoch counts, as in Kafka 3.9."""
    return log.open


def guard_before_epoch(state: Transactions, log: TransactionalLog, epoch: int, guard: int) -> ErrorCode:
    """For ``data_error``: the guard is checked before the epoch, as in Kafka 3.9."""
    if state.constants.verification and not state.is_ongoing(log, epoch) and guard != log.guard:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_PRODUCER_EPOCH if epoch < log.epoch else ErrorCode.NONE


def no_epoch_has_passed(state: Transactions, log: TransactionalLog, epoch: int) -> bool:
    """For ``has_passed``: a leader asks about batches of any epoch, as in Kafka 3.9."""
    return False


def guard_wiped(state: Transactions, log: TransactionalLog, marker: Marker) -> bool:
    """For ``keeps_guard``: the marker of one transaction uses up the next one's guard (KAFKA-18575)."""
    return False


def _fenced_coordinator(log: TransactionalLog, marker: Marker) -> ErrorCode:
    fenced = log.coordinator_epoch > marker.coordinator_epoch
    return ErrorCode.TRANSACTION_COORDINATOR_FENCED if fenced else ErrorCode.NONE


def marker_of_equal_epoch(state: Transactions, log: TransactionalLog, marker: Marker) -> ErrorCode:
    """For ``marker_error``: a marker of the epoch of an open transaction ends it (KAFKA-19446)."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if marker.epoch < log.epoch else _fenced_coordinator(log, marker)


def marker_only_once(state: Transactions, log: TransactionalLog, marker: Marker) -> ErrorCode:
    """For ``marker_error``: a marker that was written is refused when it comes again (KAFKA-19999)."""
    again = marker.version == 2 and marker.epoch == log.epoch
    return ErrorCode.INVALID_PRODUCER_EPOCH if marker.epoch < log.epoch or again else _fenced_coordinator(log, marker)


def marker_of_any_epoch(state: Transactions, log: TransactionalLog, marker: Marker) -> ErrorCode:
    """For ``marker_error``: a leader takes markers of any epoch."""
    return _fenced_coordinator(log, marker)


def marker_of_any_coordinator(state: Transactions, log: TransactionalLog, marker: Marker) -> ErrorCode:
    """For ``marker_error``: a leader takes markers of a coordinator that has been replaced (KAFKA-9144)."""
    again = marker.version == 2 and marker.epoch == log.epoch and log.open
    return ErrorCode.INVALID_PRODUCER_EPOCH if marker.epoch < log.epoch or again else ErrorCode.NONE


def epoch_before_pending(state: Transactions, version: int, epoch: int, commit: bool) -> str:
    """For ``end_verdict``: the epoch is checked before the pending transition (KAFKA-18464)."""
    record = state.transaction
    if epoch != record.epoch and not state.is_retry_of_end(version, epoch):
        return "PRODUCER_FENCED"
    if state.is_prepared():
        return "CONCURRENT_TRANSACTIONS" if state.commits() == commit else "INVALID_TXN_STATE"
    if record.state is TransactionState.ONGOING:
        return DECIDE
    if record.state is COMPLETED[commit]:
        return "NONE"
    return DECIDE if version == 2 and not commit else "INVALID_TXN_STATE"


def end_of_any_epoch(state: Transactions, version: int, epoch: int, commit: bool) -> str:
    """For ``end_verdict``: any epoch ends the transaction (KAFKA-9600)."""
    if state.is_prepared():
        return "CONCURRENT_TRANSACTIONS"
    if state.transaction.state is TransactionState.ONGOING:
        return DECIDE
    if state.transaction.state is COMPLETED[commit]:
        return "NONE"
    return DECIDE if version == 2 and not commit else "INVALID_TXN_STATE"


def takes_over_early(state: Transactions) -> bool:
    """For ``may_take_over``: an instance gets its epoch before the markers of the one before it are written."""
    return state.transaction.state is not TransactionState.ONGOING


def markers_go_on(state: Transactions) -> Transaction:
    """For ``initialized``, with ``takes_over_early``: the markers go on, with the epoch of the new instance."""
    known = state.transaction
    return replace(known, state=known.state if state.is_prepared() else TransactionState.EMPTY, epoch=known.epoch + 1)


def abort_left_to_timeout(state: Transactions, version: int, epoch: int, commit: bool) -> str:
    """For ``end_verdict``: the coordinator acknowledges an abort, and leaves the transaction to its timeout."""
    if state.is_prepared():
        return "CONCURRENT_TRANSACTIONS"
    if epoch != state.transaction.epoch:
        return "PRODUCER_FENCED"
    if not commit:
        return "NONE"
    return DECIDE if state.transaction.state is TransactionState.ONGOING else "INVALID_TXN_STATE"


def only_latest_is_kept(
    state: Transactions, log: TransactionalLog, instance: str, number: int, epoch: int
) -> TransactionalLog:
    """For ``with_data``: a batch takes the place of those of its producer's earlier transactions."""
    kept = [each for each in log.entries if each.kind != "data" or each.instance != instance or each.number >= number]
    return Transactions.with_data(state, replace(log, entries=pvector(kept)), instance, number, epoch)


def not_registered(state: Transactions, request: GuardedRequest) -> Transaction:
    """For ``after_verification``: a batch is stored whose partition nobody has registered."""
    return state.transaction


def marker_keeps_epoch(state: Transactions, log: TransactionalLog, marker: Marker) -> int:
    """For ``epoch_after_marker``: a marker leaves the producer's epoch as it is (KAFKA-6119)."""
    return log.epoch


def upgraded_without_bump(state: Transactions, client: Client) -> Client:
    """For ``upgraded``: a client goes on with its epoch when it finds version 2 (KAFKA-18227)."""
    return replace(client, version=2)


def rest_is_aborted(state: Transactions, partition: str) -> Marker:
    """For ``marker_to``: once a partition is marked, the others are told to abort."""
    return Marker(
        partition=partition,
        version=state.transaction.version,
        epoch=state.transaction.epoch,
        commit=state.commits() and state.to_mark == state.transaction.partitions,
        coordinator_epoch=state.coordinator_epoch,
    )


def not_leader_is_done(state: Transactions, partition: str) -> frozenset[str]:
    """For ``markers_after_election``: a partition that has another leader counts as marked (KAFKA-5610)."""
    return state.to_mark - {partition}


def no_leader_is_deleted(state: Transactions | TransactionCoordinator, partition: str) -> frozenset[str]:
    """For ``markers_without_leader``: a partition without a leader counts as deleted, as in Kafka 4.3 (KAFKA-20734)."""
    return state.to_mark - {partition}


def nothing_resumed(state: Transactions) -> frozenset[str]:
    """For ``partitions_to_mark``: after a failover nobody resumes the prepared transaction."""
    return frozenset()


def never_completes(state: Transactions) -> bool:
    """For ``may_complete``: the coordinator closes no transaction, though every marker is written."""
    return False


def completes_early(state: Transactions) -> bool:
    """For ``may_complete``: the transaction is closed while markers are missing."""
    return True


def decision_forgotten(state: Transactions) -> Transaction:
    """For ``decided``: a failover forgets the decision and turns it into an abort."""
    return (
        replace(state.transaction, state=TransactionState.PREPARE_ABORT) if state.is_prepared() else state.transaction
    )


def commits_wait(state: Transactions, version: int, epoch: int, commit: bool) -> str:
    """For ``end_verdict``: a client that commits is told for ever to ask again."""
    if commit or state.is_prepared():
        return "CONCURRENT_TRANSACTIONS"
    return DECIDE if state.transaction.state is TransactionState.ONGOING or version == 2 else "INVALID_TXN_STATE"


def aborts_wait(state: Transactions, version: int, epoch: int, commit: bool) -> str:
    """For ``end_verdict``: a client that aborts is told for ever to ask again."""
    if not commit or state.is_prepared():
        return "CONCURRENT_TRANSACTIONS"
    if state.transaction.state is TransactionState.ONGOING:
        return DECIDE
    return "NONE" if state.transaction.state is COMPLETED[commit] else "INVALID_TXN_STATE"


# --- rules of TransactionalPartition ------------------------------------------------------------------------------


def any_batch_epoch(state: TransactionalPartition, producer: PartitionProducer, batch: LogEntry) -> bool:
    """For ``is_old_batch``: a leader takes batches of any epoch."""
    return False


def plain_inside(state: TransactionalPartition, producer: PartitionProducer, batch: LogEntry) -> bool:
    """For ``is_outside_transaction``: a batch of no transaction may stand inside one."""
    return False


def any_marker_epoch(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_old_marker``: a leader takes markers of any epoch."""
    return False


def own_epoch_ends(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_old_marker``: a marker of an open transaction's own epoch ends it, as before Kafka 4.2 (KAFKA-19446)."""
    return marker.epoch < producer.epoch


def no_marker_twice(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_old_marker``: a marker that has been written is refused when it comes again (KAFKA-19999)."""
    return marker.epoch <= producer.epoch


def any_coordinator(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_of_old_coordinator``: a leader takes markers of a coordinator that has been replaced (KAFKA-9144)."""
    return False


def nothing_indexed(state: TransactionalPartition, marker: LogEntry) -> bool:
    """For ``is_indexed``: the index gets no entry at all."""
    return False


def committed_indexed(state: TransactionalPartition, marker: LogEntry) -> bool:
    """For ``is_indexed``: committed transactions are in the index as well."""
    return True


def nothing_else_open(
    state: TransactionalPartition, transactions: Iterable[UnstableTransaction], producer_id: int, offset: int
) -> int:
    """For ``stable_offset_after``: an entry of the index claims that nothing else was open."""
    return offset + 1


def everything_else_open(
    state: TransactionalPartition, transactions: Iterable[UnstableTransaction], producer_id: int, offset: int
) -> int:
    """For ``stable_offset_after``: an entry of the index claims that everything was open; only searches take longer."""
    return 0


def own_next_counts(
    state: TransactionalPartition, transactions: Iterable[UnstableTransaction], producer_id: int, offset: int
) -> int:
    """For ``stable_offset_after``, together with AppendedAtOnce: the producer's own next transaction counts."""
    open_ones = (t for t in transactions if t.last_offset == NO_OFFSET)
    others = (t.first_offset for t in open_ones if t.producer_id != producer_id or t.first_offset > offset)
    return min(others, default=offset + 1)


def completed_unindexed(state: TransactionalPartition, before: LeaderLog, given: LogEntry) -> LeaderLog:
    """For ``without_index_entry``: the last stable offset advances although the index lacks the entry (KAFKA-7866)."""
    entry = state.at_end(before, given)
    return state.with_completed(
        state.with_entry(before, entry), entry, before.producers[entry.producer_id].first_offset
    )


def index_not_rebuilt(state: TransactionalPartition, before: LeaderLog, entries: Iterable[LogEntry]) -> LeaderLog:
    """For ``replay``: a replica that becomes the leader has no index."""
    for entry in entries:
        before = replace(state.written(before, entry), aborted_index=pvector())
    return before


def ongoing_only(state: TransactionalPartition, before: LeaderLog) -> LeaderLog:
    """For ``after_load``: a snapshot of the log's end was loaded, which has open transactions only, as in Kafka."""
    return replace(before, transactions=frozenset(t for t in before.transactions if t.last_offset == NO_OFFSET))


def open_are_fenced(state: TransactionalPartition, before: LeaderLog) -> LeaderLog:
    """For ``after_load``: a replica that leads fences the producers of open transactions, which no marker ends then."""
    fenced = {
        producer_id: replace(producer, epoch=producer.epoch + 1)
        for producer_id, producer in before.producers.items()
        if producer.is_open
    }
    return replace(before, producers=before.producers.update(fenced))


def truncated_leads(state: TransactionalPartition, end_offset: int, watermark: int) -> TransactionalPartition:
    """For ``elect_leader``: a replica leads that has truncated its log to the high watermark that it knew, above 0."""
    enabled(end_offset == watermark > 0, "the replica has more than that, or nothing")
    enabled(watermark <= state.replicated, "the high watermark was never there")
    return TransactionalPartition.elect_leader(replace(state, replicated=watermark), end_offset, watermark)


def appended_at_once(state: TransactionalPartition, before: LeaderLog, entries: Iterable[LogEntry]) -> LeaderLog:
    """For ``replay``: a follower takes in a whole response before it writes the entries of the index, as in Kafka."""
    ended = []
    for entry in entries:
        first = before.producers[entry.producer_id].first_offset
        if entry.is_marker and first != NO_OFFSET:
            ended.append((entry, first))
        before = state.with_entry(before, entry)
    for marker, first in ended:
        before = state.with_completed(state.with_index_entry(before, marker, first), marker, first)
    return before


def transactions_not_rebuilt(
    state: TransactionalPartition, before: LeaderLog, entries: Iterable[LogEntry]
) -> LeaderLog:
    """For ``replay``: a replica that becomes the leader knows of no transaction that is open."""
    for entry in entries:
        before = replace(state.written(before, entry), transactions=frozenset())
    return before


def open_only(state: TransactionalPartition) -> frozenset[int]:
    """For ``unstable_offsets``: a marker counts before it is replicated."""
    return frozenset(t.first_offset for t in state.log.transactions if t.last_offset == NO_OFFSET)


def last_unstable_offset(state: TransactionalPartition) -> int:
    """For ``first_unstable_offset``: the last of the open transactions decides, not the first."""
    return max(state.unstable_offsets())


def high_watermark_only(state: TransactionalPartition) -> int:
    """For ``last_stable_offset``: every replicated entry is stable."""
    return state.high_watermark


def first_record_is_stable(state: TransactionalPartition) -> int:
    """For ``last_stable_offset``: it is after the first record of an open transaction, not before it."""
    unstable = state.unstable_offsets()
    return min(state.high_watermark, state.first_unstable_offset() + 1) if unstable else state.high_watermark


def expire_inside(state: TransactionalPartition, producer: PartitionProducer) -> bool:
    """For ``may_expire``: a producer may be forgotten in the middle of a transaction."""
    return True


def forgotten_transactions(state: TransactionalPartition, before: LeaderLog, producer_id: int) -> LeaderLog:
    """For ``forgotten``, together with ExpireInside: its transactions are forgotten as well."""
    kept = frozenset(t for t in before.transactions if t.producer_id != producer_id)
    return replace(before, producers=before.producers.set(producer_id, NO_PRODUCER), transactions=kept)


def marker_cleaned_early(state: TransactionalPartition, marker: LogEntry) -> bool:
    """For ``may_clean_marker``: a marker goes before the batches of its transaction (KAFKA-8351, KAFKA-14055)."""
    return True


def present_coordinator_is_fenced(state: TransactionalPartition, producer: PartitionProducer, marker: LogEntry) -> bool:
    """For ``is_of_old_coordinator``: the coordinator that is known may not write again."""
    return marker.coordinator_epoch <= producer.coordinator_epoch


def ends_before_marker(
    state: TransactionalPartition, before: LeaderLog, marker: LogEntry, first_offset: int
) -> LeaderLog:
    """For ``with_index_entry``: the entry ends before the marker."""
    return _ends_at(state, before, marker, first_offset, marker.offset - 1)


def ends_behind_marker(
    state: TransactionalPartition, before: LeaderLog, marker: LogEntry, first_offset: int
) -> LeaderLog:
    """For ``with_index_entry``: the entry ends behind the marker."""
    return _ends_at(state, before, marker, first_offset, marker.offset + 1)


def _ends_at(
    state: TransactionalPartition, before: LeaderLog, marker: LogEntry, first_offset: int, last_offset: int
) -> LeaderLog:
    after = TransactionalPartition.with_index_entry(state, before, marker, first_offset)
    if after is before:
        return before
    entry = replace(after.aborted_index[-1], last_offset=last_offset)
    return replace(after, aborted_index=after.aborted_index.set(-1, entry))


# --- rules of Consumer --------------------------------------------------------------------------------------------


def limit_included(state: Consumer) -> int:
    """For ``committed_limit``: the last stable offset is read as well."""
    return min(state.high_watermark, state.last_stable_offset() + 1)


def upper_bound_too_small(state: Consumer, fetched: Sequence[LogEntry]) -> int:
    """For ``upper_bound``: aborted transactions are not looked for at the response's last entry (KAFKA-17801)."""
    return fetched[-1].offset


def upper_bound_at_log_end(state: Consumer, fetched: Sequence[LogEntry]) -> int:
    """For ``upper_bound``: as coarse as can be, up to the end of the log."""
    return state.log_end_offset(state.log)


def list_lost(state: Consumer, position: int, upper: int) -> list[AbortedTransaction]:
    """For ``collect_aborted``: the response loses its list (KAFKA-5376)."""
    return []


def begins_inside(state: ReadCommitted, transaction: IndexedTransaction, position: int, upper: int) -> bool:
    """For ``overlaps``: only transactions that begin in the response overlap it."""
    return position <= transaction.first_offset < upper


def stops_at_first_behind(state: ReadCommitted, transaction: IndexedTransaction, upper: int) -> bool:
    """For ``ends_scan``: the search ends with the first transaction that begins after the response."""
    return transaction.first_offset >= upper


def stops_at_last_behind(state: ReadCommitted, transaction: IndexedTransaction, upper: int) -> bool:
    """For ``ends_scan``: the search ends with the first transaction that ends after the response."""
    return transaction.last_offset >= upper


def begun_before(state: ReadCommitted, transaction: AbortedTransaction, entry: LogEntry) -> bool:
    """For ``has_begun``: a transaction begins after its first record."""
    return transaction.first_offset < entry.last_offset


def begun_already(state: ReadCommitted, transaction: AbortedTransaction, entry: LogEntry) -> bool:
    """For ``has_begun``: every transaction of the list has begun where the response begins."""
    return True


def list_taken_as_sorted(
    state: ReadCommitted, aborted: Sequence[AbortedTransaction], waiting: frozenset[int], entry: LogEntry
) -> frozenset[int]:
    """For ``begun``: the list is taken to be in the order of first offsets (franz-go 1.21.4)."""
    return frozenset(takewhile(lambda place: state.has_begun(aborted[place], entry), sorted(waiting)))


def abort_never_ends(state: ReadCommitted, active: frozenset[int], entry: LogEntry) -> frozenset[int]:
    """For ``still_active``: an abort marker does not end what it aborts (librdkafka 1.7.0)."""
    return active


def commit_ends_too(state: ReadCommitted, active: frozenset[int], entry: LogEntry) -> frozenset[int]:
    """For ``still_active``: a commit marker clears the producer as well."""
    return active - {entry.producer_id} if entry.is_marker else active


def markers_passed_on(state: ReadCommitted, entry: LogEntry) -> bool:
    """For ``is_passed_on``: markers are passed on like records."""
    return True


def position_of_records(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: the position follows the last record passed on, if there was one (aiokafka 781)."""
    return read[-1] + 1 if read else position


def last_record_again(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: the position stays at the last record passed on."""
    return read[-1] if read else fetched[-1].offset + 1


def committed_still_held(state: Consumer, mine: PVector[int], entry: LogEntry) -> PVector[int]:
    """For ``still_held``: the records of a committed transaction stay in the buffer after they have been passed on."""
    if entry.is_abort_marker:
        return pvector()
    return mine.append(entry.offset) if entry.is_transactional else mine


def other_producer_first(
    state: Consumer, fetched: Sequence[LogEntry], aborted: Sequence[AbortedTransaction]
) -> list[int]:
    """For ``readable``: a reader is given two records of two producers in the other order."""
    read = list(state.passed(fetched, aborted))
    is_other = len(read) == 2 and read[0].producer_id != read[1].producer_id
    return [entry.offset for entry in (reversed(read) if is_other else read)]


def stops_at_commit(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: a reader never passes the marker of a committed transaction."""
    return _stops_at("commit", state, fetched[-1])


def stops_at_abort(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: a reader never passes the marker of an aborted transaction."""
    return _stops_at("abort", state, fetched[-1])


def _stops_at(kind: str, state: Consumer, last: LogEntry) -> int:
    is_behind_batch = any(entry.offset == last.offset - 1 and not entry.is_marker for entry in state.log.entries)
    return last.offset if last.kind == kind and is_behind_batch else last.offset + 1


# --- rules of TransactionCoordinator ----------------------------------------------------------------------------


def abort_without_bump(rules: Rules, known: TransactionMetadata, next_producer_id: int) -> TransactionMetadata:
    """For ``after_fence``: the coordinator aborts by itself without a new epoch (KAFKA-5231, KAFKA-6119)."""
    return replace(rules.after_end(known, False, rules.server_version, next_producer_id), epoch=known.epoch)


def timeout_fences_nobody(state: TransactionCoordinator) -> TransactionCoordinator:
    """For ``abort_fenced``: a timeout brings no new epoch, InitProducerId does."""
    after = TransactionCoordinator.abort_fenced(state)
    if after.appending.request != coordinator.TIMEOUT:
        return after
    record = abort_without_bump(state.rules, state.metadata, after.appending.record.next_producer_id)
    return replace(after, appending=replace(after.appending, record=record))


def carries_fencing_epoch(rules: Rules, known: TransactionMetadata) -> coordinator.Identity:
    """For ``carried_by``: the second half of a fence carries the epoch of the first one, as in Kafka."""
    return coordinator.Identity(producer_id=known.producer_id, epoch=rules.fencing_epoch(known))


def aborts_next(rules: Rules, known: TransactionMetadata, carried: coordinator.Identity) -> str:
    """For ``late_fence_verdict``: the second half of a fence is an EndTxn like a client's, as in Kafka."""
    epoch = min(carried.epoch, known.epoch) if rules.server_version == 1 else carried.epoch
    verdict = rules.end_verdict(known, carried.producer_id, epoch, False, rules.server_version)
    return ErrorCode.CONCURRENT_TRANSACTIONS.name if verdict == ErrorCode.NONE.name else verdict


def _is_of_another_epoch(append: Appending) -> bool:
    """The decision of a late fence has another epoch than the fence, whose markers nobody sends then."""
    late = append.request in {coordinator.INIT_FENCES, coordinator.TIMEOUT} and append.asked != coordinator.NOBODY
    return late and append.record.version == 1 and append.asked.epoch != append.record.epoch


def marks_carried_epoch(rules: Rules, append: Appending) -> TransactionMetadata:
    """For ``goes_on``: the markers follow only a decision that has the epoch that the fence carries, as in Kafka."""
    return append.record if _is_of_another_epoch(append) else Rules.goes_on(rules, append)


def answers_late_fence(rules: Rules, append: Appending) -> coordinator.Answer:
    """For ``answer_to``: a late fence of another epoch is answered as that of a fenced producer, as in Kafka."""
    if append.request == coordinator.INIT_FENCES and _is_of_another_epoch(append):
        return coordinator.answer_with(coordinator.INIT, ErrorCode.PRODUCER_FENCED)
    return Rules.answer_to(rules, append)


def fence_and_end_bump(rules: Rules, known: TransactionMetadata, next_producer_id: int) -> TransactionMetadata:
    """For ``after_fence``: the fence and the end bump the epoch, one after the other (KAFKA-19367)."""
    fenced = replace(known, epoch=rules.fencing_epoch(known))
    return rules.after_end(fenced, False, rules.server_version, next_producer_id)


def fence_keeps_producer_id(rules: Rules, known: TransactionMetadata, next_producer_id: int) -> TransactionMetadata:
    """For ``after_fence``: a fence in the last epoch brings no new producer id (KAFKA-20090)."""
    return rules.after_end(rules.raised(known), False, rules.server_version, coordinator.NO_PRODUCER_ID)


def every_fence_bumps(rules: Rules, known: TransactionMetadata) -> int:
    """For ``fencing_epoch``: each try of a fence that could not be written bumps the epoch (KAFKA-9666)."""
    return min(known.epoch + 1, rules.max_epoch)


def fence_overflows(rules: Rules, known: TransactionMetadata) -> int:
    """For ``fencing_epoch``: each try of a fence bumps the epoch, the last one, too."""
    return known.epoch + 1


def end_by_higher_epoch(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool) -> str:
    """For ``end_verdict_of_version1``: a client may end the transaction with an epoch that it made up (KAFKA-9600)."""
    lenient = replace(known, epoch=max(epoch, known.epoch))
    return Rules.end_verdict_of_version1(rules, lenient, producer_id, epoch, commit)


def end_by_any_epoch(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """For ``is_epoch_to_end``: every epoch may end the transaction."""
    return True


def epoch_before_transition(
    rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool
) -> str:
    """For ``end_verdict_of_version2``: the epoch is checked before the pending transition (KAFKA-18464)."""
    if known.producer_id != producer_id and not rules.is_retry_of_last_epoch(known, producer_id, epoch):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING.name
    if not rules.is_epoch_to_end(known, producer_id, epoch):
        return ErrorCode.PRODUCER_FENCED.name
    return Rules.end_verdict_of_version2(rules, known, producer_id, epoch, commit)


def add_while_ending(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    """For ``add_error``: a partition may be added while the transaction is being ended."""
    if known.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if known.epoch == epoch else ErrorCode.PRODUCER_FENCED


def identity_before_pending(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    """For ``add_error``: producer id and epoch are looked at before the pending transition, as in Kafka 3.9."""
    if known.state is TransactionState.DEAD or known.producer_id != producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.epoch != epoch:
        return ErrorCode.PRODUCER_FENCED
    is_busy = known.pending is not None or known.state in coordinator.PREPARED_STATES
    return ErrorCode.CONCURRENT_TRANSACTIONS if is_busy else ErrorCode.NONE


def add_by_epoch_alone(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    """For ``add_error``: a producer is known by its epoch alone."""
    return Rules.add_error(rules, known, known.producer_id, epoch)


def add_by_former_id(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    """For ``add_error``: a producer id from before will do."""
    return Rules.add_error(rules, known, max(known.producer_id, producer_id), epoch)


def add_by_later_id(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    """For ``add_error``: a producer id that is yet to come will do."""
    return Rules.add_error(rules, known, min(known.producer_id, producer_id), epoch)


def add_to_unknown(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    """For ``add_error``: a transactional.id that nobody has initialized gets a transaction."""
    if known.state is TransactionState.DEAD and known.pending is None:
        return ErrorCode.NONE
    return Rules.add_error(rules, known, producer_id, epoch)


def no_next_producer_id(rules: Rules, known: TransactionMetadata, version: int) -> bool:
    """For ``needs_next_producer_id``: the end of a transaction never brings a new producer id."""
    return False


def abort_forgets(
    rules: Rules, known: TransactionMetadata, commit: bool, version: int, next_producer_id: int
) -> TransactionMetadata:
    """For ``after_end``: an abort leaves nothing behind, and no partition gets a marker."""
    after = Rules.after_end(rules, known, commit, version, next_producer_id)
    return after if commit else replace(after, state=TransactionState.EMPTY, partitions=frozenset())


def told_old_producer_id(rules: Rules, record: TransactionMetadata) -> coordinator.Identity:
    """For ``goes_on_as``: a client is told its old producer id although a new one comes (KAFKA-18660)."""
    return coordinator.Identity(producer_id=record.producer_id, epoch=record.epoch)


def one_producer_id_in_log(rules: Rules, known: TransactionMetadata) -> TransactionMetadata:
    """For ``in_log``: the log has neither the next nor the previous producer id, as before Kafka 4.3 (KAFKA-20310)."""
    nobody = coordinator.NO_PRODUCER_ID
    return replace(Rules.in_log(rules, known), next_producer_id=nobody, previous_producer_id=nobody)


def answered_by_leader(state: TransactionCoordinator, append: Appending) -> coordinator.LogState:
    """For ``log_after``: the leader does not wait for the other replicas."""
    return coordinator.LogState(durable=state.durable, tail=(*state.tail, state.rules.in_log(append.record)))


def end_answered_by_leader(state: TransactionCoordinator, append: Appending) -> coordinator.LogState:
    """For ``log_after``: the leader does not wait for the other replicas when a transaction ends."""
    record = state.rules.in_log(append.record)
    if append.request == coordinator.END:
        return coordinator.LogState(durable=state.durable, tail=(*state.tail, record))
    return coordinator.LogState(durable=record, tail=())


def add_answered_by_leader(state: TransactionCoordinator, append: Appending) -> coordinator.LogState:
    """For ``log_after``: the leader does not wait for the other replicas when a partition is added."""
    record = state.rules.in_log(append.record)
    if append.request == coordinator.ADD:
        return coordinator.LogState(durable=state.durable, tail=(*state.tail, record))
    return coordinator.LogState(durable=record, tail=())


def abort_of_nothing(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool) -> str:
    """For ``end_verdict_of_version1``: an abort is decided although nothing is open, as in version 2."""
    if known.producer_id != producer_id or known.epoch != epoch or commit:
        return Rules.end_verdict_of_version1(rules, known, producer_id, epoch, commit)
    return ErrorCode.CONCURRENT_TRANSACTIONS.name if known.pending is not None else coordinator.DECIDE


def any_end_is_retry(
    rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool, version: int
) -> str:
    """For ``end_verdict``: whatever a client asks for after the end of version 2 passes for a retry."""
    is_complete = known.pending is None and known.state in coordinator.COMPLETED_STATES
    if version > 1 and is_complete and rules.is_retry_of_end(known, producer_id, epoch):
        return ErrorCode.NONE.name
    return Rules.end_verdict(rules, known, producer_id, epoch, commit, version)


def no_retry_of_end(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """For ``is_retry_of_end``: no request passes for a retry."""
    return False


def last_epoch_is_given(rules: Rules, epoch: int) -> bool:
    """For ``is_exhausted``: a producer is given the last epoch, too."""
    return epoch >= rules.max_epoch


def same_epoch_again(rules: Rules, known: TransactionMetadata, epoch: int, new_producer_id: int) -> TransactionMetadata:
    """For ``after_init``: a client that presents nothing is given the epoch of the one before it."""
    after = Rules.after_init(rules, known, epoch, new_producer_id)
    if epoch == coordinator.NO_EPOCH and known.epoch != coordinator.NO_EPOCH:
        return replace(after, producer_id=known.producer_id, epoch=known.epoch)
    return after


def first_epoch_again(
    rules: Rules, known: TransactionMetadata, epoch: int, new_producer_id: int
) -> TransactionMetadata:
    """For ``after_init``: a client that presents its epoch begins with epoch 0 again."""
    after = Rules.after_init(rules, known, epoch, new_producer_id)
    if epoch == known.epoch != coordinator.NO_EPOCH:
        return replace(after, producer_id=known.producer_id, epoch=0)
    return after


def answered_before_abort(rules: Rules, append: Appending) -> coordinator.Answer:
    """For ``answer_to``: InitProducerId is answered before the abort is complete."""
    early = append.request == coordinator.INIT_FENCES
    return Rules.answer_to(rules, replace(append, request=coordinator.INIT) if early else append)


def answered_at_completion(rules: Rules, append: Appending) -> coordinator.Answer:
    """For ``answer_to``: InitProducerId is answered as soon as the former transaction is complete."""
    is_early = append.request == coordinator.COMPLETE
    return Rules.answer_to(rules, replace(append, request=coordinator.INIT) if is_early else append)


def decision_given_up(rules: Rules, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
    """For ``after_timeout``: a decision whose append was given up is taken for an abort that needs no record."""
    if append.request == coordinator.COMPLETE:
        return known
    if append.record.state in coordinator.PREPARED_STATES:
        return replace(known, pending=None, state=TransactionState.COMPLETE_ABORT, partitions=frozenset())
    return replace(known, pending=None)


def completion_counts_as_done(rules: Rules, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
    """For ``after_timeout``: a completion whose append was given up is not tried again."""
    if append.request == coordinator.COMPLETE:
        return rules.after_append(append.record)
    return Rules.after_timeout(rules, known, append)


def failed_fence_stays(rules: Rules, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
    """For ``after_timeout``: after an append that was given up, the fence stays pending, and nobody goes on with it."""
    if append.request in {coordinator.INIT_FENCES, coordinator.TIMEOUT}:
        return replace(known, pending=TransactionState.PREPARE_EPOCH_FENCE, failed_fence=True)
    return Rules.after_timeout(rules, known, append)


def unwritten_stays_pending(rules: Rules, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
    """For ``after_timeout``: what a client asked for stays pending although its record could not be written."""
    if append.request in {coordinator.INIT, coordinator.ADD}:
        return known
    return Rules.after_timeout(rules, known, append)


def commit_is_not_tried_again(rules: Rules, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
    """For ``after_timeout``: the completion of a commit, whose append was given up, is pending no longer."""
    if append.request == coordinator.COMPLETE and coordinator.commits(known):
        return replace(known, pending=None)
    return Rules.after_timeout(rules, known, append)


def prepared_is_left(rules: Rules, record: TransactionMetadata) -> TransactionMetadata:
    """For ``loaded``: after a failover nobody goes on with the prepared transaction."""
    return record


def clock_went_back(rules: Rules, record: TransactionMetadata) -> TransactionMetadata:
    """For ``after_append``: the clock went back before a decision, whose transition is refused and stays pending."""
    if record.state in coordinator.PREPARED_STATES:
        return replace(record, state=TransactionState.ONGOING, pending=record.state)
    return coordinator.forgotten(record.number) if record.state is TransactionState.DEAD else record


def late_completion_takes_next(state: TransactionCoordinator) -> bool:
    """For ``may_complete``: a late completion has taken away that of the next transaction."""
    return not state.to_mark and state.metadata.number <= 1


def completes_at_last_marker(state: TransactionCoordinator) -> bool:
    """For ``may_complete``: the answer to the last marker brings the completion; an abort of nothing has no marker."""
    return not state.to_mark and bool(state.metadata.partitions)


def completes_before_markers(state: TransactionCoordinator) -> bool:
    """For ``may_complete``: the transaction is closed while markers are missing."""
    return True


def abort_after_failed_marker(state: TransactionCoordinator, partition: str) -> bool:
    """For ``marker_commits``: once a marker has failed, the others say abort."""
    return coordinator.commits(state.metadata) and state.to_mark == state.metadata.partitions


def stale_append_taken(
    state: TransactionCoordinator, found: tuple[TransactionMetadata, ...]
) -> tuple[TransactionMetadata, ...]:
    """For ``tail_after_failover``: an append of the previous coordinator is accepted, after what the new one loaded."""
    return found if state.is_idle() else (*found, state.rules.in_log(state.appending.record))


def acts_on_loaded(state: TransactionCoordinator) -> bool:
    """For ``may_act``: a new coordinator acts on all that it finds in its log, as in Kafka."""
    return True


def remembers_the_fenced(state: EpochBump, presented: Identity) -> Identity:
    """For ``remembered_after``: after another instance's request, the fenced one's identity passes for a retry."""
    return state.coordinator.current


def nothing_noted(state: TransactionCoordinator, history: frozenset[object], entry: object) -> frozenset[object]:
    """For ``noted``: the past is forgotten, so that the states of a long recorded run stay small."""
    return frozenset()


def no_bump_when_exhausted(rules: Rules, known: TransactionMetadata, epoch: int) -> ErrorCode:
    """For ``bump_error``: when the epochs have run out, only the present epoch is known, as in Kafka."""
    if rules.is_exhausted(known.epoch) and epoch not in {coordinator.NO_EPOCH, known.epoch}:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return Rules.bump_error(rules, known, epoch)


def retry_forgets_producer_id(rules: Rules, known: TransactionMetadata) -> TransactionMetadata:
    """For ``after_retry_of_init``: a retry takes its own producer id for the one before it, as in Kafka."""
    return replace(coordinator.to(known, TransactionState.EMPTY), partitions=frozenset())


# --- rules of ProducerIds -----------------------------------------------------------------------------------------


def answers_uncommitted(state: ProducerIds, first: int) -> bool:
    """For ``may_answer``: the controller answers before the record is committed."""
    return True


def shares_last_id(state: ProducerIds, first: int) -> int:
    """For ``behind``: the next block starts with the last id of the one before."""
    return state.last_of(first)


def adjacent_is_refused(state: ProducerIds, broker: str, first: int) -> bool:
    """For ``is_new_block``: a broker takes the block right after its own for one that overlaps."""
    return first > state.brokers[broker].last + 1


def nobody_is_answered(state: ProducerIds, first: int) -> bool:
    """For ``may_answer``: the controller answers nobody."""
    return False


def only_first_is_answered(state: ProducerIds, first: int) -> bool:
    """For ``may_answer``: the controller answers with the first block only."""
    return first == 0 and first < state.controller.committed


def last_id_unnoticed(state: ProducerIds, broker: str, first: int) -> bool:
    """For ``is_new_block``: a block that begins with the last id of the broker's own is taken for new (KAFKA-20031)."""
    return first >= state.brokers[broker].last


# --- rules of ExternalSink ----------------------------------------------------------------------------------------


def offset_apart(state: ExternalSink) -> bool:
    """For ``is_one_transaction``: the offset stays in Kafka and is committed afterwards."""
    return False


def key_of_attempt(state: ExternalSink, value: int) -> bool:
    """For ``is_known``: the sink's key differs at every attempt."""
    return False


def noted_by_removal(state: ExternalSink, rows: int) -> int:
    """For ``noted_after``: the relay notes nothing; a relay that starts begins with the first row that is left."""
    return 0


def effect_of_former(state: ExternalSink, value: int) -> tuple[int, ...]:
    """For ``effects_after``: the effect is that of the input before it."""
    return (*state.effects, value - 1)


def effect_of_next(state: ExternalSink, value: int) -> tuple[int, ...]:
    """For ``effects_after``: the effect is that of the input after it."""
    return (*state.effects, value + 1)


# --- rules of Mirror ----------------------------------------------------------------------------------------------


def nobody_is_fenced(state: Mirror, task: str) -> bool:
    """For ``may_commit``: nobody fences the task that had the partition before."""
    return True


def position_is_kept(state: Mirror, task: str) -> int:
    """For ``start_position``: a task that is given the partition again goes on where it was."""
    return state.tasks[task].position or state.offset


def offset_of_last(state: Mirror, position: int) -> int:
    """For ``offset_after``: the offset is that of the last record copied, not the next one."""
    return position - 1 if state.constants.offsets_in == "target" else state.offset


def offset_passes_last(state: Mirror, position: int) -> int:
    """For ``offset_after``: the offset passes the last record before that is copied."""
    after = position + (position == len(state.constants.records))
    return after if state.constants.offsets_in == "target" else state.offset


# --- rules of ApplicationLoop -------------------------------------------------------------------------------------


def catch_blocks(state: ApplicationLoop, error: str | None) -> str:
    """For ``reaction``: the usual catch blocks: a fenced producer is closed, after any other error the loop aborts."""
    return "close" if error == "fenced" else "abort"


def seeks_to_polled(state: ApplicationLoop) -> int:
    """For ``position_after_abort``: the loop goes back to the input that it has polled."""
    return state.application.input


def polls_on(state: ApplicationLoop) -> int:
    """For ``position_after_abort``: the loop polls on."""
    return state.position


def silence_is_consent(state: ApplicationLoop) -> bool:
    """For ``is_told``: a commit without an answer is taken for one that succeeded."""
    return True


def another_transactional_id(state: ApplicationLoop) -> LoopTransaction:
    """For ``after_initialization``: the application starts with another transactional.id."""
    return state.transaction


# --- rules of ConsumeTransformProduce -------------------------------------------------------------------------------


def no_generation_check(state: ConsumeTransformProduce, member: str | None, generation: int) -> ErrorCode:
    """For ``txn_offset_commit_error``: neither member nor generation is checked, as before KIP-447 (KAFKA-8587)."""
    return ErrorCode.NONE


def unknown_member_is_taken(state: ConsumeTransformProduce, member: str | None, generation: int) -> ErrorCode:
    """For ``txn_offset_commit_error``: offsets of a member that the group does not know are taken."""
    is_other = member in state.group.members and generation != state.group.generation
    return ErrorCode.ILLEGAL_GENERATION if is_other else ErrorCode.NONE


def generation_not_checked(state: ConsumeTransformProduce, member: str | None, generation: int) -> ErrorCode:
    """For ``txn_offset_commit_error``: offsets of a member are taken in any generation."""
    is_known = member is None or member in state.group.members
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID


def removed_member_is_taken(
    state: ConsumeTransformProduce, member: str | None, epoch: int, partitions: Iterable[str]
) -> ErrorCode:
    """For ``member_epoch_error``: offsets of a member that the group does not know are taken."""
    is_stale = member in state.members() and epoch != state.membership.members[member].epoch
    return ErrorCode.STALE_MEMBER_EPOCH if is_stale else ErrorCode.NONE


def stale_epoch_is_taken(
    state: ConsumeTransformProduce, member: str | None, epoch: int, partitions: Iterable[str]
) -> ErrorCode:
    """For ``member_epoch_error``: offsets of a member are taken in any epoch."""
    is_known = member is None or member in state.members()
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID


def only_latest_epoch(
    state: ConsumeTransformProduce, member: str | None, epoch: int, partitions: Iterable[str]
) -> ErrorCode:
    """For ``member_epoch_error``: only the latest epoch is accepted, and no request without a member."""
    if member not in state.members():
        is_anonymous = member is None and not state.members()
        return ErrorCode.NONE if is_anonymous else ErrorCode.UNKNOWN_MEMBER_ID
    is_latest = epoch == state.membership.members[member].epoch
    return ErrorCode.NONE if is_latest else ErrorCode.STALE_MEMBER_EPOCH


def older_epoch_is_unknown(
    state: ConsumeTransformProduce, member: str | None, epoch: int, partitions: Iterable[str]
) -> ErrorCode:
    """For ``member_epoch_error``: a member is known by its latest epoch only."""
    is_latest = member in state.members() and epoch == state.membership.members[member].epoch
    return ErrorCode.NONE if member is None or is_latest else ErrorCode.UNKNOWN_MEMBER_ID


def assignment_epoch_not_checked(state: ConsumeTransformProduce, member: str, partition: str, epoch: int) -> bool:
    """For ``has_had_since``: an older epoch is accepted for any partition that the member has, whenever it got it."""
    current = state.membership.members[member]
    return partition in current.assigned | current.revoking


def revoking_has_no_epoch(state: ConsumeTransformProduce, member: str, partition: str, epoch: int) -> bool:
    """For ``has_had_since``: a partition that the member has yet to give up has no assignment epoch any more."""
    current = state.membership.members[member]
    return partition in current.assigned and current.assignment_epochs[partition] <= epoch


def zero_after_leave(state: ConsumeTransformProduce, member: str, partition: str) -> int:
    """For ``epoch_after_return``: the assignment epoch is 0, as in Kafka."""
    return 0


def assignment_epoch_stays(state: ConsumeTransformProduce, member: str, epoch: int) -> int:
    """For ``epoch_of_given``: the epoch of the group's first assignment, as if the partition had never been away."""
    return 1


def stale_epoch_is_told(state: ConsumeTransformProduce, error: ErrorCode) -> ErrorCode:
    """For ``error_in_transaction``: TxnOffsetCommit is answered the error of a plain commit."""
    return error


def presents_latest_epoch(state: ConsumeTransformProduce, instance: str) -> int:
    """For ``presented_generation``: the current epoch, not the one in which the inputs were read."""
    return state.membership.members[instance].epoch


def given_before_revoked(state: ConsumeTransformProduce, partition: str, member: str) -> bool:
    """For ``is_free``: a partition is given to its next owner before the one that has it gives it up."""
    return True


def position_of_lost_is_kept(state: ConsumeTransformProduce, instance: str) -> bool:
    """For ``keeps_positions``: an instance that was removed goes on where it was."""
    return True


def no_require_stable(state: ConsumeTransformProduce, partition: str) -> ErrorCode:
    """For ``offset_fetch_error``: a fetch does not ask for stable offsets."""
    return ErrorCode.NONE


def pending_is_found(state: ConsumeTransformProduce, offsets: Offsets) -> Offsets:
    """For ``committed_at_write``: offsets are found as soon as they are written."""
    return state.over(offsets)


def materialised_on_abort(state: ConsumeTransformProduce, producer: str, decision: str) -> Offsets:
    """For ``committed_at_marker``: an aborted transaction's offsets count too."""
    return state.over(state.pending[producer])


def pending_deleted_with_group(state: ConsumeTransformProduce, members: frozenset[str]) -> Map[str, Offsets]:
    """For ``pending_after_removal``: a group without members is deleted with its pending offsets (KAFKA-19163)."""
    return state.pending if members else Map(dict.fromkeys(state.pending, state.nothing_pending()))


def generation_checked_at_marker(state: ConsumeTransformProduce, producer: str, decision: str) -> Offsets:
    """For ``committed_at_marker``: the generation is checked when the marker comes."""
    is_member = state.processes[producer].generation == state.group.generation
    return state.over(state.pending[producer]) if decision == COMMIT_OFFSETS and is_member else state.committed


def never_fenced(state: ConsumeTransformProduce, instance: str, producer: str) -> bool:
    """For ``is_fenced``: a new epoch fences nobody."""
    return False


def open_transaction_is_left(state: ConsumeTransformProduce, producer: str) -> bool:
    """For ``init_aborts``: InitProducerId leaves an open transaction as it is."""
    return False


def init_does_not_wait(state: ConsumeTransformProduce, producer: str) -> ErrorCode:
    """For ``init_error``: InitProducerId does not wait for the markers of what is decided."""
    return ErrorCode.NONE


def fetches_before_init(state: ConsumeTransformProduce, instance: str, partition: str) -> bool:
    """For ``may_fetch``: the offset is fetched before the transactional id is initialized."""
    return True


def abandoned_stays_open(state: ConsumeTransformProduce, producer: str) -> bool:
    """For ``is_abandoned``: the coordinator ends no transaction of an instance that is gone."""
    return False


def no_seek_after_abort(state: ConsumeTransformProduce, instance: str, partition: str) -> int:
    """For ``position_after_abort``: the application goes on where it was."""
    return state.processes[instance].positions[partition]


def offset_without_plus_one(state: ConsumeTransformProduce, instance: str, partition: str) -> int:
    """For ``offset_to_send``: the offset of the last input that was read."""
    return state.processes[instance].positions[partition] - 1


# --- rules of Transfer ----------------------------------------------------------------------------------------------


def fenced_writes_are_taken(state: Transfer, instance: str) -> bool:
    """For ``may_write``: the leaders take what a fenced instance writes."""
    return True


def open_is_taken_over(state: Transfer) -> bool:
    """For ``aborts_open``: InitProducerId leaves what it finds open, and the next instance goes on in it."""
    return False


def offset_is_committed_apart(state: Transfer) -> bool:
    """For ``offset_in_transaction``: the offset is committed at once, outside of the transaction."""
    return False


def _loses_writes_to(
    lost: str, state: Transfer, instance: str, partition: str, in_transaction: bool, stage: str
) -> Transfer:
    """The state after a write, of which only the instance knows if it is to one partition."""
    written = Transfer.write(state, instance, partition, in_transaction, stage)
    return replace(written, logs=state.logs, transaction=state.transaction) if partition == lost else written


def debit_is_lost(state: Transfer, instance: str, partition: str, in_transaction: bool, stage: str) -> Transfer:
    """For ``write``: debits are lost, credits and offsets are not."""
    return _loses_writes_to(ALICE, state, instance, partition, in_transaction, stage)


def credit_is_lost(state: Transfer, instance: str, partition: str, in_transaction: bool, stage: str) -> Transfer:
    """For ``write``: credits are lost, debits and offsets are not."""
    return _loses_writes_to(BOB, state, instance, partition, in_transaction, stage)


def pending_offset_is_passed_over(state: Transfer) -> bool:
    """For ``is_unstable``: an offset is returned although one waits for its marker."""
    return False


# --- rules of TransactionalProducer -----------------------------------------------------------------------------


def only_fatal_refuses(producer: TransactionalProducer, operation: str) -> bool:
    """For ``is_refused_by_error``: only a fatal error refuses calls."""
    return producer.client.state == FATAL_ERROR


def every_error_is_abortable(producer: TransactionalProducer, operation: str) -> bool:
    """For ``is_refused_by_error``: the client can abort after every error and go on."""
    return producer.has_error and operation != ABORT_CALL


def aborts_unauthorized(producer: TransactionalProducer, operation: str) -> bool:
    """For ``is_refused_by_error``: an abort is accepted before the client starts over, as in Kafka."""
    return producer.has_error and not (operation == ABORT_CALL and producer.client.state == ABORTABLE_ERROR)


def every_call_is_legal(producer: TransactionalProducer, operation: str) -> bool:
    """For ``is_legal_call``: every call is legal in every state."""
    return True


def initializes_mid_transaction(producer: TransactionalProducer, operation: str) -> bool:
    """For ``is_legal_call``: initTransactions is legal in a transaction."""
    return TransactionalProducer.is_legal_call(producer, operation) or (
        operation == INIT and producer.client.state == IN_TRANSACTION
    )


def initializes_twice(producer: TransactionalProducer, operation: str) -> bool:
    """For ``is_legal_call``: initTransactions is legal a second time."""
    return TransactionalProducer.is_legal_call(producer, operation) or (
        operation == INIT and producer.client.state == READY and producer.client.identity == 1
    )


def begins_only_with_id(producer: TransactionalProducer, operation: str) -> bool:
    """For ``is_legal_call``: a client without a producer id begins no transaction."""
    return TransactionalProducer.is_legal_call(producer, operation) and (
        operation != BEGIN or producer.client.identity > 0
    )


def timeouts_are_forgotten(producer: TransactionalProducer, operation: str) -> bool:
    """For ``other_has_timed_out``: a call that has timed out does not stand in the way of another."""
    return False


def timed_out_is_done(producer: TransactionalProducer) -> Call:
    """For ``after_timeout``: a commit that has timed out is taken for one that has succeeded."""
    if producer.call.operation == COMMIT_CALL:
        return replace(producer.call, outcome=DONE)
    return TransactionalProducer.after_timeout(producer)


def sends_after_errors(producer: TransactionalProducer) -> bool:
    """For ``sends_requests``: what waits is sent after an abortable error too."""
    return producer.client.state != FATAL_ERROR


def end_overtakes_batches(producer: TransactionalProducer) -> bool:
    """For ``may_send_end``: the end of a transaction does not wait for its batches."""
    return True


def any_order(producer: TransactionalProducer, request: str) -> int:
    """For ``rank``: all requests but lookups are sent in any order."""
    return min(TransactionalProducer.rank(producer, request), 1)


def end_overtakes_offsets(producer: TransactionalProducer, request: str) -> int:
    """For ``rank``: the end of a transaction does not wait for its offsets."""
    return 2 if request == TXN_OFFSET_COMMIT else TransactionalProducer.rank(producer, request)


def end_overtakes_registration(producer: TransactionalProducer, request: str) -> int:
    """For ``rank``: the end of a transaction does not wait until its offsets are registered."""
    return 2 if request == ADD_OFFSETS else TransactionalProducer.rank(producer, request)


def drops_late_offsets(producer: TransactionalProducer) -> TransactionalProducer:
    """For ``receive_offsets_added``: offsets are not sent once their transaction ends."""
    after = TransactionalProducer.receive_offsets_added(producer)
    in_time = producer.client.state in {IN_TRANSACTION, ABORTABLE_ERROR}
    return after if in_time else replace(after, queue=producer.queue)


def bumps_instead_of_abort(producer: TransactionalProducer, request: str, bumps: bool) -> frozenset[str]:
    """For ``end_requests``: a client that needs another epoch asks for it in the place of an abort."""
    requests = TransactionalProducer.end_requests(producer, request, bumps)
    return requests - {ABORT} if bumps else requests


def sends_unregistered(producer: TransactionalProducer, partition: str) -> bool:
    """For ``is_registered``: batches are sent before their partition is registered."""
    return True


def batches_overtake_requests(producer: TransactionalProducer) -> bool:
    """For ``requests_first``: batches do not wait for requests."""
    return True


def sequences_go_on(producer: TransactionalProducer, partition: str) -> int:
    """For ``next_sequence``: sequences go on in another epoch."""
    return producer.sequences[partition].next


def sequences_stay(producer: TransactionalProducer, partition: str) -> int:
    """For ``next_sequence``: the batches of an epoch all have the first sequence."""
    return 0


def sequences_have_holes(producer: TransactionalProducer, partition: str) -> int:
    """For ``next_sequence``: a sequence is left out behind each batch."""
    last = producer.sequences[partition]
    return last.next + 1 if last.identity == producer.client.identity else 0


def keeps_unsent_batches(producer: TransactionalProducer) -> bool:
    """For ``drops_batches``: what has not been sent waits until it can be sent."""
    return False


def fenced_may_abort(producer: TransactionalProducer, request: str, error: str) -> str:
    """For ``reaction``: a client that a leader fences may abort."""
    if request == PRODUCE and error == "PRODUCER_FENCED":
        return "abortable"
    return TransactionalProducer.reaction(producer, request, error)


def request_outlives_fatal(producer: TransactionalProducer, request: str, exception: str) -> TransactionalProducer:
    """For ``becomes_fatal``: the answer to a request is awaited after a batch with a fatal error."""
    after = TransactionalProducer.becomes_fatal(producer, request, exception)
    return replace(after, in_flight=producer.in_flight) if request == PRODUCE else after


def batches_outlive_fatal(producer: TransactionalProducer, request: str, exception: str) -> TransactionalProducer:
    """For ``becomes_fatal``: batches are sent, and awaited, after the fatal error of a request."""
    after = TransactionalProducer.becomes_fatal(producer, request, exception)
    return after if request == PRODUCE else replace(after, batches=producer.batches)


def commits_despite_failure(producer: TransactionalProducer, exception: str, bumps: bool) -> ProducerClient:
    """For ``failed``: a failure during a commit is told to nobody."""
    if producer.client.state == COMMITTING:
        return producer.client
    return TransactionalProducer.failed(producer, exception, bumps)


def retries_unknown_topics(producer: TransactionalProducer, request: str, error: str) -> bool:
    """For ``is_retried``: offsets of an unknown topic are sent again, as in Kafka."""
    return error in RETRIABLE_ERRORS


def names_topics_by_name(producer: TransactionalProducer) -> bool:
    """For ``names_topics_by_id``: offsets are sent with the names of their topics, as in Kafka up to 4.3."""
    return False


def knows_errors_of_names(producer: TransactionalProducer, error: str) -> str:
    """For ``offset_commit_reaction``: the errors of the version before are known, as in Kafka up to 4.3.

    There nobody answers that a topic id is unknown; the offsets would be sent again.
    """
    if error == "UNKNOWN_TOPIC_ID":
        return "retry"
    return "fatal" if error in ERRORS_OF_TOPIC_IDS else TransactionalProducer.offset_commit_reaction(producer, error)


def lookups_are_abortable(producer: TransactionalProducer, request: str, error: str) -> bool:
    """For ``may_answer``: in the midst of a transaction a lookup is answered with TRANSACTION_ABORTABLE."""
    return TransactionalProducer.may_answer(producer, request, error) or (
        error == "TRANSACTION_ABORTABLE" and request in LOOKUPS.values() and producer.seen.number > 0
    )


def never_bumps(producer: TransactionalProducer) -> bool:
    """For ``bumps_by_itself``: the client asks for no other epoch, as before KIP-360."""
    return False


def bumps_not_while_ending(producer: TransactionalProducer, batch: ProducerBatch, expired: bool) -> bool:
    """For ``bumps_after``: no other epoch is asked for during an end, unless there is a hole, as in Kafka."""
    return producer.bumps_by_itself() and (not producer.is_ending or (expired and batch.retried))


def asks_for_no_bump_while_aborting(producer: TransactionalProducer, bumps: bool) -> frozenset[str]:
    """For ``queue_after``: nobody asks for the epoch that the client waits for after an abort, as in Kafka."""
    return producer.queue


def tells_nobody_of_offsets(producer: TransactionalProducer, request: str) -> Call:
    """For ``call_after_fatal``: a call that waits for offsets is told only by the answer to them, as in Kafka."""
    if producer.call.operation == SEND_OFFSETS:
        return producer.finished_by(request, FAILED)
    return producer.finished(FAILED)


def end_keeps_epoch(producer: TransactionalProducer, bumped: bool) -> ProducerClient:
    """For ``after_end``: the client goes on in its epoch after every end."""
    state = INITIALIZING if producer.client.bump else READY
    return replace(producer.client, state=state, error=NO_ERROR, bump=False, started=False)


def upgrades_in_epoch(producer: TransactionalProducer) -> bool:
    """For ``bumps_for_upgrade``: the next version begins in the epoch of the last."""
    return False


def another_thread_sends(producer: TransactionalProducer) -> bool:
    """For ``may_fail_send``: another thread sends while the transaction ends."""
    return producer.client.state in {IN_TRANSACTION, COMMITTING}


# --- rules of StatefulProcessor -------------------------------------------------------------------------------------


def restores_uncommitted(state: StatefulProcessor, entry: Change) -> bool:
    """For ``is_restored``: the changelog is read with read_uncommitted."""
    return True


def store_is_kept_after_abort(state: StatefulProcessor, instance: str) -> StoreProcess:
    """For ``after_abort``: the store keeps the aborted changes."""
    return replace(state.processes[instance], position=state.committed, batch=())


def store_on_disk_is_used(state: StatefulProcessor, instance: str) -> Store:
    """For ``store_at_start``: the store that an earlier process has left on disk is used."""
    return state.processes[instance].store


def changes_are_written_apart(state: StatefulProcessor) -> str:
    """For ``fate_at_write``: changes are written in no transaction."""
    return "committed"


def former_owner_writes(state: StatefulProcessor, instance: str) -> bool:
    """For ``may_write``: nobody fences the instance that had the partition before."""
    return True


# --- what a leader puts together ---------------------------------------------------------------------------------


def sequence_before_guard(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int, guard: int
) -> ErrorCode:
    """For ``batch_error``: the sequence is checked before the guard."""
    if (error := rules.sequence_error(before, batch)) is not ErrorCode.NONE:
        return error
    if (error := rules.guard_error(before, batch, version, guard)) is not ErrorCode.NONE:
        return error
    return rules.transaction_error(before, batch, version)


def no_guard_asked_for(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int, guard: int
) -> ErrorCode:
    """For ``guard_error``: a leader asks for no guard (KAFKA-14402)."""
    is_old = version != leaders.OUTSIDE and batch.epoch < before.producer(batch.producer_id).epoch
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else ErrorCode.NONE


def no_transaction_looked_at(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int
) -> ErrorCode:
    """For ``transaction_error``: a leader appends batches from outside of the open transaction."""
    is_old = batch.epoch < before.producer(batch.producer_id).epoch
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_old else ErrorCode.NONE


def no_retry_looked_for(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> bool:
    """For ``is_retry``: a leader that asks about transactions looks for no retries."""
    return False


def lowest_sequence_counts(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> ErrorCode:
    """For ``sequence_error``: a later sequence than the lowest that was asked about is out of order, as in Kafka.

    KAFKA-14920
    """
    if rules.is_of_coordinator(batch):
        return ErrorCode.NONE
    error = before.log.append_error(batch)
    is_later = error is ErrorCode.NONE and rules.is_above_lowest(before, batch)
    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if is_later else error


def version_two_begins_anew(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> ErrorCode:
    """For ``sequence_error``: an unknown producer begins a transaction of version 2 with sequence 0, as in Kafka.

    KAFKA-18202
    """
    if rules.is_of_coordinator(batch):
        return ErrorCode.NONE
    if rules.begins_behind_zero(before, batch):
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return before.log.append_error(batch)


def every_batch_uses_guard_up(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int
) -> leaders.Asked:
    """For ``asked_after_batch``: every batch of a transaction uses the guard up, as in Kafka."""
    asked = before.questions(batch.producer_id)
    return asked if version == leaders.OUTSIDE else leaders.Asked(guard=asked.guard + 1)


def _may_lack_guard(rules: leaders.Rules, before: leaders.LeaderState, producer_id: int, version: int) -> bool:
    """A leader of Kafka 3.9 needs no guard: outside of transactions, and while one of any epoch is open."""
    asks = version != leaders.OUTSIDE and rules.guards.constants.verification
    return not asks or before.producer(producer_id).is_open


def guard_of_any_epoch(
    rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int, guard: int
) -> ErrorCode:
    """For ``guard_error``: only the guard counts, whatever the epoch, as in Kafka 3.9."""
    has_one = _may_lack_guard(rules, before, batch.producer_id, version)
    has_one = has_one or guard == before.questions(batch.producer_id).guard
    return ErrorCode.NONE if has_one else ErrorCode.INVALID_TXN_STATE


def asks_unless_open(
    rules: leaders.Rules, before: leaders.LeaderState, producer_id: int, epoch: int, version: int
) -> bool:
    """For ``needs_verification``: nobody is asked while a transaction of any epoch is open, as in Kafka 3.9."""
    return not _may_lack_guard(rules, before, producer_id, version)


def asks_about_any_epoch(rules: leaders.Rules, before: leaders.LeaderState, producer_id: int, epoch: int) -> ErrorCode:
    """For ``verification_error``: a leader asks about a batch of any epoch, as in Kafka 3.9."""
    return ErrorCode.NONE


def as_shipped(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> ErrorCode:
    """For ``sequence_error``: both refusals, as in Kafka 4.3."""
    error = version_two_begins_anew(rules, before, batch)
    return lowest_sequence_counts(rules, before, batch) if error is ErrorCode.NONE else error


def guard_outlives_marker(
    rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int
) -> leaders.Asked:
    """For ``asked_after_marker``: a guard also serves the next transaction."""
    return before.questions(marker.producer_id)


def marker_uses_guard_up(
    rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int
) -> leaders.Asked:
    """For ``asked_after_marker``: a marker uses up the guard of a transaction that begins with its own epoch.

    KAFKA-18575
    """
    return leaders.Asked(guard=before.questions(marker.producer_id).guard + 1)


def marker_uses_all_guards_up(
    rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int
) -> leaders.LeaderState:
    """For ``with_marker``: a marker uses up the guards of the other producers as well."""
    log = rules.without_sequence(before.log, marker.producer_id, marker.epoch, 1)
    asked = {
        producer_id: rules.asked_after_marker(before, replace(marker, producer_id=producer_id), version)
        for producer_id in {*before.asked, marker.producer_id}
    }
    return leaders.LeaderState(log=log, transactions=rules.with_entry(before, marker, log), asked=Map(asked))


def marker_raises_no_epoch(rules: leaders.Rules, log: Log, producer_id: int, epoch: int, count: int) -> Log:
    """For ``without_sequence``: a marker says nothing about sequences."""
    return log.appended(Batch(producer_id=NO_PRODUCER_ID, epoch=-1, sequence=-1, count=count))


def marker_forgets_batches(rules: leaders.Rules, log: Log, producer_id: int, epoch: int, count: int) -> Log:
    """For ``without_sequence``: after a marker the sequences of every epoch restart."""
    after = log.appended(Batch(producer_id=NO_PRODUCER_ID, epoch=-1, sequence=-1, count=count))
    return replace(after, producers=after.producers.set(producer_id, ProducerState(epoch=epoch, batches=())))


def one_record_each(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: transactions count entries, not records."""
    known = before.knowing(entry.producer_id)
    end = known.entries[-1].offset + 1 if known.entries else 0
    return rules.version_2.written(known, replace(entry, offset=end))


def never_replicated(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: a transaction whose marker is replicated still holds the last stable offset back."""
    at = replace(entry, offset=before.log.log_end_offset)
    return rules.version_2.written(before.knowing(entry.producer_id), at)


def no_epoch_looked_at(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch, version: int) -> ErrorCode:
    """For ``transaction_error``: together with NoFencing, no epoch is looked at."""
    return ErrorCode.NONE


def plain_is_not_told(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: transactions are not told of a batch outside of them."""
    known = before.knowing(entry.producer_id)
    if entry.kind == "plain":
        return known
    written = rules.version_2.written(known, replace(entry, offset=before.log.log_end_offset))
    return rules.version_2.with_replicated(written, log.log_end_offset)


def index_names_log_end(rules: leaders.Rules, before: leaders.LeaderState, entry: LogEntry, log: Log) -> LeaderLog:
    """For ``with_entry``: the index names the end of the log instead of the marker."""
    known = before.knowing(entry.producer_id)
    written = rules.version_2.written(known, replace(entry, offset=before.log.log_end_offset))
    after = rules.version_2.with_replicated(written, log.log_end_offset)
    index = after.aborted_index
    if len(index) == len(known.aborted_index):
        return after
    return replace(after, aborted_index=index.set(len(index) - 1, replace(index[-1], last_offset=log.log_end_offset)))


def markers_of_version1(rules: leaders.Rules, before: leaders.LeaderState, marker: LogEntry, version: int) -> ErrorCode:
    """For ``marker_error``: every marker is judged by the rule of version 1 (KAFKA-19446)."""
    return rules.version_1.marker_error(before.knowing(marker.producer_id), marker)


def epoch_outlives_producer(rules: leaders.Rules, before: leaders.LeaderState, producer_id: int) -> leaders.LeaderState:
    """For ``with_forgotten``: the transactions of a producer that expires are kept."""
    return replace(before, log=before.log.forgotten(producer_id))


def no_sequence_looked_at(rules: leaders.Rules, before: leaders.LeaderState, batch: Batch) -> ErrorCode:
    """For ``sequence_error``: a leader looks at no sequence."""
    return ErrorCode.NONE


# --- rules of TransactionalOffsets ------------------------------------------------------------------------------


def nothing_is_outdated(state: TransactionalOffsets, send: int) -> bool:
    """For ``is_outdated``: nothing distinguishes a late retry from a new offset, as in Kafka."""
    return False


def can_send_once(state: TransactionalOffsets) -> bool:
    """For ``can_send``: a transaction has one send of offsets."""
    if state.client.state == "open":
        return not state.sent_within(state.client.number)
    return state.client.number + 1 in state.constants.numbers


def offset_committed_at_once(state: TransactionalOffsets, known: Memory, entry: OffsetEntry) -> int:
    """For ``committed_at_offset``: an offset counts as soon as it is written."""
    return entry.offset


def abort_commits_offset(state: TransactionalOffsets, known: Memory, entry: OffsetEntry) -> int:
    """For ``committed_at_end``: any marker commits the pending offset."""
    return known.pending or known.committed


def open_in_any_epoch(state: TransactionalOffsets, send: int) -> bool:
    """For ``is_ongoing``: the epoch of the open transaction is not compared."""
    return bool(state.memory.pending)


def offsets_of_any_transaction(state: TransactionalOffsets, send: int) -> ErrorCode:
    """For ``verification_error``: the coordinator vouches for any send."""
    return ErrorCode.NONE


def answered_at_once(state: TransactionalOffsets, position: int) -> int:
    """For ``answered_at``: the answer waits for nothing."""
    return state.replicated


def applies_by_task(state: TransactionalOffsets) -> bool:
    """For ``applies_at_once``: a task gives effect to a marker, as in Kafka 3.9."""
    return False


def reads_memory(state: TransactionalOffsets) -> Memory:
    """For ``readable``: a fetch reads the coordinator's memory, as in Kafka 3.9."""
    return state.memory


def fetch_does_not_wait(state: TransactionalOffsets) -> tuple[OffsetEntry, ...]:
    """For ``fetched_entries``: a fetch reads the whole log."""
    return state.log


def fetch_of_unstable(state: TransactionalOffsets, known: Memory) -> bool:
    """For ``is_unstable``: a fetch ignores pending offsets."""
    return False


def pending_not_loaded(state: TransactionalOffsets, entries: tuple[OffsetEntry, ...]) -> Memory:
    """For ``known_after_load``: pending offsets are forgotten."""
    return replace(state.loaded(entries), pending=0)


# --- rules of Broker --------------------------------------------------------------------------------------------


def vouches_for_any_partition(
    broker: Broker, known: TransactionMetadata, producer_id: int, epoch: int, partition: str
) -> ErrorCode:
    """For ``answer_to_leader``: the coordinator vouches for a partition that is not in the transaction."""
    return broker.coordinating.add_error(replace(known, pending=None), producer_id, epoch)


def vouches_for_fenced(
    broker: Broker, known: TransactionMetadata, producer_id: int, epoch: int, partition: str
) -> ErrorCode:
    """For ``answer_to_leader``: the coordinator takes an epoch that it has fenced for the present one."""
    return Broker.answer_to_leader(broker, known, producer_id, max(epoch, known.epoch), partition)


def vouches_without_adding(broker: Broker, known: TransactionMetadata, partition: str) -> TransactionMetadata:
    """For ``after_vouching``: the coordinator vouches for a batch of version 2 and adds nothing."""
    return known


def gives_while_open(broker: Broker, known: TransactionMetadata) -> bool:
    """For ``aborts_first``: the coordinator gives an epoch while a transaction is open."""
    return False


def always_the_first(broker: Broker) -> int:
    """For ``new_producer_id``: every producer is given the first producer id."""
    return 0


def offsets_always_commit(broker: Broker, known: TransactionMetadata, partition: str) -> LogEntry:
    """For ``marker_of``: the marker of the group's offsets commits whatever the coordinator has decided."""
    commit = partition == brokers.OFFSETS or coordinator.commits(known)
    return marker_entry(known.producer_id, known.epoch, commit, brokers.COORDINATOR_EPOCH)


def pending_replaces_later(broker: Broker, producer_id: int, commit: bool) -> Offsets:
    """For ``committed_after_marker``: an offset replaces one that was committed after it (KAFKA-5247)."""
    pending = broker.pending.get(producer_id, brokers.NOTHING_PENDING)
    return pending if commit and pending != brokers.NOTHING_PENDING else broker.committed


def aborted_is_committed(broker: Broker, producer_id: int, commit: bool) -> Offsets:
    """For ``committed_after_marker``: the marker of an abort commits, too."""
    return Broker.committed_after_marker(broker, producer_id, True)


def markers_are_unheard(broker: Broker, producer_id: int, commit: bool) -> Offsets:
    """For ``committed_after_marker``: the group does not hear of markers."""
    return broker.committed


def nothing_is_pending(broker: Broker, producer_id: int, place: int) -> Map[int, Offsets]:
    """For ``with_pending``: the group forgets what waits for a marker."""
    return broker.pending


def marker_of_open_epoch(broker: Broker, known: TransactionMetadata, partition: str) -> LogEntry:
    """For ``marker_of``: a marker has the epoch of the transaction, not the one after it."""
    return marker_entry(known.producer_id, known.epoch - 1, coordinator.commits(known), brokers.COORDINATOR_EPOCH)


def any_generation_commits(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``commit_error``: a group does not check the generation."""
    stranger = member is not None and member not in broker.group.members
    return ErrorCode.UNKNOWN_MEMBER_ID if stranger else ErrorCode.NONE


def old_epoch_commits(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 takes any older epoch of its members."""
    group = broker.grouping
    if member in group.members() and generation < group.membership.members[member].epoch:
        return ErrorCode.NONE
    return group.member_epoch_error(member, generation, (brokers.DATA,))


def future_epoch_commits(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 takes an epoch that it has not given yet."""
    group = broker.grouping
    if member in group.members() and group.has_had_since(member, brokers.DATA, generation):
        return ErrorCode.NONE
    return group.member_epoch_error(member, generation, (brokers.DATA,))


def latest_epoch_commits(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 takes only the latest epoch of a member, as before KIP-1251."""
    if member is None:
        return ErrorCode.NONE
    if member not in broker.grouping.members():
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_latest = generation == broker.membership.members[member].epoch
    return ErrorCode.NONE if is_latest else ErrorCode.STALE_MEMBER_EPOCH


def latest_epoch_is_refused(broker: Broker, member: str | None, generation: int) -> ErrorCode:
    """For ``member_error``: a group of KIP-848 takes only epochs before the latest one."""
    if member is None:
        return ErrorCode.NONE
    group = broker.grouping
    if member not in group.members():
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_former = generation < group.membership.members[member].epoch
    takes = is_former and group.has_had_since(member, brokers.DATA, generation)
    return ErrorCode.NONE if takes else ErrorCode.STALE_MEMBER_EPOCH


def speaks_newest(broker: Broker, api: str, error: ErrorCode) -> ErrorCode:
    """For ``wire_error``: every version gets the newest error codes."""
    return error


def restart_keeps_one_batch(broker: Broker, before: leaders.LeaderState) -> leaders.LeaderState:
    """For ``leader_after_restart``: only the last batch of each producer is remembered, as in Kafka."""
    after = Broker.leader_after_restart(broker, before)
    kept = {producer_id: last_batch_only(after.log, known) for producer_id, known in after.log.producers.items()}
    return replace(after, log=replace(after.log, producers=Map(kept)))


def questions_outlive_restart(broker: Broker, before: leaders.LeaderState) -> leaders.LeaderState:
    """For ``leader_after_restart``: the verification of a batch outlives a restart."""
    return replace(Broker.leader_after_restart(broker, before), asked=before.asked)


def known_outlive_restart(broker: Broker, before: leaders.LeaderState) -> leaders.LeaderState:
    """For ``leader_after_restart``: the verification of a batch outlives a restart if the log knows the producer."""
    after = Broker.leader_after_restart(broker, before)
    known = {producer_id: each for producer_id, each in before.asked.items() if before.log.knows_producer(producer_id)}
    return replace(after, asked=after.asked.update(known))


def restart_forgets_markers(broker: Broker, known: TransactionMetadata) -> TransactionMetadata:
    """For ``metadata_after_restart``: the coordinator does not go on with a prepared transaction."""
    return broker.coordinating.in_log(known)


def restart_forgets_end(broker: Broker, known: TransactionMetadata) -> TransactionMetadata:
    """For ``metadata_after_restart``: the coordinator does not know how the last transaction has ended."""
    after = Broker.metadata_after_restart(broker, known)
    return replace(after, state=TransactionState.EMPTY) if after.state in coordinator.COMPLETED_STATES else after


def restart_guesses_last_epoch(broker: Broker, known: TransactionMetadata) -> TransactionMetadata:
    """For ``metadata_after_restart``: the coordinator takes a client that it has fenced for one that asks again."""
    after = Broker.metadata_after_restart(broker, known)
    return replace(after, last_epoch=after.epoch - 1)


def takes_late_answers(state: EpochBump, number: int) -> EpochBump:
    """For ``receive_bump``: the client goes back to the identity in a late answer, while it waits for another one."""
    enabled(state.is_alive and state.client.awaits != 0, "ended, or waiting for no answer")
    found = next((r for r in state.responses if r.attempt == number and r.error is ErrorCode.NONE), None)
    enabled(found is not None, "no such answer is on its way")
    assert found is not None
    awaits = 0 if number == state.client.awaits else state.client.awaits
    client = replace(state.client, identity=found.identity, awaits=awaits)
    return replace(state, client=client, responses=state.responses - {found})


def takes_epoch_back(state: EpochBump, number: int) -> EpochBump:
    """For ``handle_bump``: the coordinator takes the epoch back that fenced the instance it refuses."""
    after = EpochBump.handle_bump(state, number)
    (request,) = state.requests - after.requests
    current = state.coordinator.current
    if state.bump_error(request.presented) is ErrorCode.NONE or current.epoch - 1 <= request.presented.epoch:
        return after
    former = replace(current, epoch=current.epoch - 1)
    return replace(after, coordinator=replace(after.coordinator, current=former))


def output_has_former_count(state: StatefulProcessor, instance: str) -> StatefulProcessor:
    """For ``process``: the output has the count before the input."""
    after = StatefulProcessor.process(state, instance)
    *before, last = after.processes[instance].batch
    process = replace(after.processes[instance], batch=(*before, replace(last, count=last.count - 1)))
    return replace(after, processes=after.processes.set(instance, process))


def offset_is_left_out_after_fault(state: StatefulProcessor, instance: str) -> StatefulProcessor:
    """For ``commit``: after a failure no transaction has an offset."""
    after = StatefulProcessor.commit(state, instance)
    return replace(after, committed=state.committed) if state.faults else after


def batch_is_turned_round(state: Mirror, task: str) -> Mirror:
    """For ``copy``: a task puts the records of a batch in the opposite order."""
    after = Mirror.copy(state, task)
    *before, last = after.tasks[task].batch
    return replace(after, tasks=after.tasks.set(task, replace(after.tasks[task], batch=(last, *before))))


def only_the_last_record(state: Consumer, fetched: Sequence[LogEntry]) -> list[int]:
    """For ``everything``: a reader is given the last record of a response only."""
    return [entry.offset for entry in fetched if state.is_passed_on(entry)][-1:]


def last_record_first(state: Consumer, fetched: Sequence[LogEntry]) -> list[int]:
    """For ``everything``: a reader is given the records of a response from the last to the first."""
    return [entry.offset for entry in fetched if state.is_passed_on(entry)][::-1]


def back_over_marker(state: Consumer, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:
    """For ``next_position``: after a response without a record it goes back over a marker before it."""
    is_behind_marker = any(entry.offset == position - 1 and entry.is_marker for entry in state.log.entries)
    return position - 1 if not read and is_behind_marker else fetched[-1].offset + 1


def copies_ahead(state: Mirror, task: str) -> Mirror:
    """For ``copy``: a task copies records before the source has them."""
    enabled(state.tasks[task].position in state.constants.records, "there is no such record")
    return replace(Mirror.copy(replace(state, produced=state.tasks[task].position), task), produced=state.produced)


# --- rules of SharePartition --------------------------------------------------------------------------------------


def base_offset_only(state: SharePartition, batch: LogBatch) -> int:
    """For ``looked_up``: the filter looks at the base offset of a batch, as Kafka's does."""
    return batch.base_offset


def filters_markers_only(state: SharePartition, batch: LogBatch) -> bool:
    """For ``is_filtered``: members are given aborted records, too."""
    return batch.kind == "control"


def acquires_acquired(state: SharePartition, offset: int) -> bool:
    """For ``may_acquire``: a fetch acquires records that another member has, up to the limit."""
    record = state.cached_state[offset]
    return not state.is_done(record) and record.delivery_count < state.constants.delivery_count_limit


def any_member_acknowledges(state: SharePartition, member: str, offset: int) -> bool:
    """For ``may_acknowledge``: a member answers for a record that another one has by now."""
    return state.cached_state[offset].state == ACQUIRED


def one_delivery_more(state: SharePartition, record: Record) -> Record:
    """For ``released``: a record is available once more after the last delivery."""
    is_last = record.delivery_count > state.constants.delivery_count_limit
    return state.ended(record, ARCHIVED if is_last else AVAILABLE)


def one_delivery_fewer(state: SharePartition, record: Record) -> Record:
    """For ``released``: a record is archived one delivery before the last one."""
    is_last = record.delivery_count + 1 >= state.constants.delivery_count_limit
    return state.ended(record, ARCHIVED if is_last else AVAILABLE)


def passes_last_record(state: SharePartition, records: Mapping[int, Record]) -> int:
    """For ``start_offset_after``: the start offset does not wait for the last record of the log."""
    last = len(state.constants.offsets) - 1
    return next((at for at in range(state.start_offset, last) if not state.is_done(records[at])), last + 1)


def passes_open_records(state: SharePartition, records: Mapping[int, Record]) -> int:
    """For ``start_offset_after``: the start offset passes records that are not done."""
    later = (offset for offset in records if offset >= state.start_offset)
    return max((offset + 1 for offset in later if state.is_done(records[offset])), default=state.start_offset)


def never_looks_back(state: SharePartition) -> frozenset[int]:
    """For ``fetchable``: the next fetch begins after all records that were ever acquired."""
    later = (offset for offset in state.constants.offsets if offset >= state.start_offset)
    return frozenset(offset for offset in later if state.cached_state[offset].delivery_count == 0)


def acquires_acknowledged(state: SharePartition, offset: int) -> bool:
    """For ``may_acquire``: a fetch acquires records that were accepted."""
    return state.cached_state[offset].state in {AVAILABLE, ACKNOWLEDGED}


def acquires_archived(state: SharePartition, offset: int) -> bool:
    """For ``may_acquire``: a fetch acquires records that are archived."""
    return state.cached_state[offset].state in {AVAILABLE, ARCHIVED}


def passes_first_record(state: SharePartition, records: Mapping[int, Record]) -> int:
    """For ``start_offset_after``: the start offset does not wait for the first record of the group."""
    first = max(state.start_offset, state.constants.first_offset + 1)
    return SharePartition.start_offset_after(replace(state, start_offset=first), records)
