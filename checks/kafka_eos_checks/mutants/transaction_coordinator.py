"""The rules of ``spec/mutants/TransactionCoordinatorMutants.tla``, for the reference."""

from dataclasses import replace

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos.machines import transaction_coordinator as coordinator
from kafka_eos.machines.transaction_coordinator import Appending, Rules, TransactionCoordinator, TransactionMetadata


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


def _is_retry_of_done(
    rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool, version: int
) -> bool:
    """A client of version 2 asks again for an end that is complete."""
    is_done = version > 1 and known.pending is None and known.state is coordinator.COMPLETED[commit]
    return is_done and rules.is_retry_of_end(known, producer_id, epoch)


def aborts_again(
    rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool, version: int
) -> str:
    """For ``end_verdict``: a client that asks again for an abort gets another one, as if it had begun nothing."""
    if not commit and _is_retry_of_done(rules, known, producer_id, epoch, commit, version):
        return coordinator.DECIDE
    return Rules.end_verdict(rules, known, producer_id, epoch, commit, version)


def retry_is_illegal(
    rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int, commit: bool, version: int
) -> str:
    """For ``end_verdict``: a client that asks again for an end meets a transition that the table does not have."""
    if _is_retry_of_done(rules, known, producer_id, epoch, commit, version):
        return ErrorCode.UNKNOWN_SERVER_ERROR.name
    return Rules.end_verdict(rules, known, producer_id, epoch, commit, version)


def no_retry_of_end(rules: Rules, known: TransactionMetadata, producer_id: int, epoch: int) -> bool:
    """For ``is_retry_of_end``: no request passes for a retry."""
    return False


def created_aborted(rules: Rules, known: TransactionMetadata, producer_id: int) -> TransactionMetadata:
    """For ``created``: a new transactional.id is taken for one whose transaction was aborted."""
    return replace(Rules.created(rules, known, producer_id), state=TransactionState.COMPLETE_ABORT)


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


def decision_given_up(rules: Rules, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
    """For ``after_timeout``: a decision whose append was given up is taken for an abort that needs no record."""
    if append.request == coordinator.COMPLETE:
        return known
    if append.record.state in coordinator.PREPARED_STATES:
        return replace(known, pending=None, state=TransactionState.COMPLETE_ABORT, partitions=frozenset())
    return replace(known, pending=None)


def prepared_is_left(rules: Rules, record: TransactionMetadata) -> TransactionMetadata:
    """For ``loaded``: after a failover nobody goes on with the prepared transaction."""
    return record


def completion_counts_as_done(rules: Rules, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
    """For ``after_timeout``: a completion whose append was given up is not tried again."""
    if append.request == coordinator.COMPLETE:
        return rules.after_append(append.record)
    return Rules.after_timeout(rules, known, append)


def done_commit_stays_pending(rules: Rules, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
    """For ``after_timeout``: a commit whose completion was given up counts as complete, and stays pending."""
    if append.record.state is TransactionState.COMPLETE_COMMIT:
        return replace(append.record, pending=append.record.state)
    return Rules.after_timeout(rules, known, append)


def done_abort_stays_pending(rules: Rules, known: TransactionMetadata, append: Appending) -> TransactionMetadata:
    """For ``after_timeout``: an abort whose completion was given up counts as complete, and stays pending."""
    if append.record.state is TransactionState.COMPLETE_ABORT:
        return replace(append.record, pending=append.record.state)
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


def clock_went_back(rules: Rules, record: TransactionMetadata) -> TransactionMetadata:
    """For ``after_append``: the clock went back before a decision, whose transition is refused and stays pending."""
    if record.state in coordinator.PREPARED_STATES:
        return replace(record, state=TransactionState.ONGOING, pending=record.state)
    return coordinator.forgotten(record.number) if record.state is TransactionState.DEAD else record


def expiry_stays_pending(rules: Rules, record: TransactionMetadata) -> TransactionMetadata:
    """For ``after_append``: a transactional.id that has expired stays in memory, and nobody may use it again."""
    after = Rules.after_append(rules, record)
    return replace(after, pending=record.state) if record.state is TransactionState.DEAD else after


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


def stops_at_unreadable(state: TransactionCoordinator, found: tuple[TransactionMetadata, ...]) -> TransactionMetadata:
    """For ``last_read``: a new coordinator goes on with the state before a record that it cannot read, as in Kafka."""
    records = (state.earlier, state.durable, *found)
    return records[-2 if "unreadable record" in state.constants.faults else -1]


def acts_on_loaded(state: TransactionCoordinator) -> bool:
    """For ``may_act``: a new coordinator acts on all that it finds in its log, as in Kafka."""
    return True


def no_bump_when_exhausted(rules: Rules, known: TransactionMetadata, epoch: int) -> ErrorCode:
    """For ``bump_error``: when the epochs have run out, only the present epoch is known, as in Kafka."""
    if rules.is_exhausted(known.epoch) and epoch not in {coordinator.NO_EPOCH, known.epoch}:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return Rules.bump_error(rules, known, epoch)


def retry_forgets_producer_id(rules: Rules, known: TransactionMetadata) -> TransactionMetadata:
    """For ``after_retry_of_init``: a retry takes its own producer id for the one before it, as in Kafka."""
    return replace(coordinator.to(known, TransactionState.EMPTY), partitions=frozenset())


def nothing_noted(state: TransactionCoordinator, history: frozenset[object], entry: object) -> frozenset[object]:
    """For ``noted``: the past is forgotten, so that the states of a long recorded run stay small."""
    return frozenset()
