"""The rules of ``spec/mutants/TransactionsMutants.tla``, for the reference."""

from dataclasses import replace

from pyrsistent import pvector

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
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


def keeps_epoch_while_ending(state: Transactions, client: Client, ending: bool) -> bool:
    """For ``asks_for_epoch``: a batch that fails while the transaction ends brings no new epoch, as in Kafka."""
    return client.version == 1 and not ending


def keeps_epoch_of_late_batch(state: Transactions, client: Client, ending: bool) -> bool:
    """For ``asks_for_epoch``: an instance keeps its epoch although a batch that it has given up may still arrive."""
    return False


def failure_is_forgotten(state: Transactions, client: Client, ending: bool) -> Client:
    """For ``failed``: an instance goes on in its transaction after a batch has failed."""
    return replace(client, awaits="nothing")


def waits_for_failed_batch(state: Transactions, client: Client, ending: bool) -> Client:
    """For ``failed``: an instance goes on waiting for the answer to a batch that has failed."""
    return replace(client, state="abortable")


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


def adds_wait(state: Transactions, epoch: int) -> ErrorCode:
    """For ``add_error``: a client that adds a partition is told for ever to ask again."""
    return ErrorCode.CONCURRENT_TRANSACTIONS


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


def first_request_decides(state: Transactions, log: TransactionalLog, request: PartitionRequest) -> int:
    """For ``guard_version``: the first request that shares the guard decides about its version, as in Kafka."""
    return log.guard_version or request.version


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


def commits_the_aborted(state: Transactions, version: int, epoch: int, commit: bool) -> str:
    """For ``end_verdict``: a client of version 2 that commits what was aborted is given another decision."""
    verdict = Transactions.end_verdict(state, version, epoch, commit)
    is_other = commit and verdict == "INVALID_TXN_STATE" and epoch != state.transaction.epoch
    return DECIDE if is_other else verdict


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


def coordinators_count_down(state: Transactions, partition: str) -> Marker:
    """For ``marker_to``: each coordinator sends its markers with a lower epoch than the one before it."""
    return replace(Transactions.marker_to(state, partition), coordinator_epoch=1 - state.coordinator_epoch)


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


def only_latest_is_kept(
    state: Transactions, log: TransactionalLog, instance: str, number: int, epoch: int
) -> TransactionalLog:
    """For ``with_data``: a batch takes the place of those of its producer's earlier transactions."""
    kept = [each for each in log.entries if each.kind != "data" or each.instance != instance or each.number >= number]
    return Transactions.with_data(state, replace(log, entries=pvector(kept)), instance, number, epoch)


def decision_forgotten(state: Transactions) -> Transaction:
    """For ``decided``: a failover forgets the decision and turns it into an abort."""
    return (
        replace(state.transaction, state=TransactionState.PREPARE_ABORT) if state.is_prepared() else state.transaction
    )


def commit_closed_as_abort(state: Transactions) -> Transaction:
    """For ``decided``: a failover closes a prepared commit as an abort."""
    is_commit = state.transaction.state is TransactionState.PREPARE_COMMIT
    return replace(state.transaction, state=TransactionState.COMPLETE_ABORT) if is_commit else state.transaction


def abort_closed_as_commit(state: Transactions) -> Transaction:
    """For ``decided``: a failover closes a prepared abort as a commit."""
    is_abort = state.transaction.state is TransactionState.PREPARE_ABORT
    return replace(state.transaction, state=TransactionState.COMPLETE_COMMIT) if is_abort else state.transaction
