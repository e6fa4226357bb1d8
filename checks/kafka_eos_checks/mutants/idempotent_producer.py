"""The rules of ``spec/mutants/IdempotentProducerMutants.tla``, for the reference."""

from collections.abc import Iterable
from dataclasses import replace

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.idempotent_producer import Batches, IdempotentProducer, Producer, Request
from kafka_eos.machines.producer_state import NO_PRODUCER_ID


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


def failure_is_acknowledged(state: IdempotentProducer, values: Iterable[int], result: str) -> Map[int, str]:
    """For ``with_outcome``: a value that was given up is reported as acknowledged."""
    return state.outcome.update(dict.fromkeys(values, "acknowledged" if result == "failed" else result))


def failure_is_unsent(state: IdempotentProducer, values: Iterable[int], result: str) -> Map[int, str]:
    """For ``with_outcome``: a value that was given up is no longer known to have been sent."""
    return state.outcome.update(dict.fromkeys(values, "unsent" if result == "failed" else result))
