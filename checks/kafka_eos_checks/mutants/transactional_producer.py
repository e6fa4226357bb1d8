"""The rules of ``spec/mutants/TransactionalProducerMutants.tla``, for the reference."""

from dataclasses import replace

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
    UNAUTHORIZED,
    UNINITIALIZED,
    Call,
    ProducerBatch,
    TransactionalProducer,
)
from kafka_eos.machines.transactional_producer import COMMIT_OFFSETS as TXN_OFFSET_COMMIT
from kafka_eos.machines.transactional_producer import Client as ProducerClient


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


def refusal_is_kept(producer: TransactionalProducer, operation: str) -> str:
    """For ``call_error``: a client that had a producer id when it was refused throws that for ever."""
    is_over = producer.client.state == UNINITIALIZED and producer.client.identity > 0
    return UNAUTHORIZED if is_over else TransactionalProducer.call_error(producer, operation)


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
