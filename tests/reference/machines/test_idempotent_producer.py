"""Stories of a producer, a network and a partition, as walks over named instances."""

from dataclasses import replace
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode, NotEnabled
from kafka_eos.machines.idempotent_producer import NEW_PRODUCER, Constants, IdempotentProducer
from kafka_eos.machines.machine import instances, step

ONE = Constants(
    max_sequence=2**31 - 1,
    cached_batches=5,
    replicas=frozenset({"a"}),
    initial_leader="a",
    snapshots=False,
    unclean_election=False,
    max_leader_epoch=2,
    values=frozenset(range(1, 11)),
    attempts=frozenset({1, 2, 3}),
    max_in_flight=5,
    acks="all",
    idempotence=True,
    max_epoch=32767,
    max_producer_id=1,
    resend_after_restart=False,
    expiration=False,
)
TWO = replace(ONE, replicas=frozenset({"a", "b"}))


def story(constants: Constants, *labels: str, state: IdempotentProducer | None = None) -> IdempotentProducer:
    """The state after the actions with these labels."""
    known = {each.label: each for each in instances(IdempotentProducer, constants)}
    state = state or IdempotentProducer.initial(constants)
    for label in labels:
        state = step(state, known[label])
    return state


def settled(value: int, attempt: int = 1) -> tuple[str, ...]:
    """A request is appended, replicated and acknowledged, on one replica."""
    return f"AppendBatch({value}, {attempt})", "AdvanceHighWatermark", f"ReceiveAcknowledgement({value})"


def stored(state: IdempotentProducer, replica: str = "a") -> list[int]:
    return [entry.value for entry in state.replicas[replica].entries]


def outcomes(state: IdempotentProducer, result: str) -> set[int]:
    return {value for value, of in state.outcome.items() if of == result}


def test_a_lost_acknowledgement_and_a_retry_store_a_value_once() -> None:
    lost = story(ONE, "AllocateProducerId", "Send(1)", "AppendBatch(1, 1)", "AdvanceHighWatermark", "Resend(1)")
    assert lost.responses == (), "whoever sends again no longer waits for the first answer"
    state = story(ONE, "AcknowledgeDuplicate(1, 2)", "ReceiveAcknowledgement(1)", state=lost)
    assert stored(state) == [1]
    assert outcomes(state, "acknowledged") == {1}


def test_with_acks_all_the_leader_takes_requests_and_answers_while_min_insync_replicas_are_in_sync() -> None:
    two = replace(TWO, min_insync_replicas=2)
    state = story(two, "AllocateProducerId", "Send(1)", "AppendBatch(1, 1)", 'Replicate("b")', "AdvanceHighWatermark")
    alone = story(two, "Send(2)", 'Crash("b")', 'ShrinkIsr("b")', state=state)
    for label, why in {"AppendBatch(2, 1)": "too few replicas", "ReceiveAcknowledgement(1)": "not replicated"}.items():
        with pytest.raises(NotEnabled, match=why):
            story(two, label, state=alone)
    one = replace(alone, constants=replace(two, acks="1"))
    assert stored(story(one.constants, "AppendBatch(2, 1)", state=one)) == [1, 2]


def test_without_idempotence_a_lost_acknowledgement_and_a_retry_store_a_value_twice() -> None:
    plain = replace(ONE, idempotence=False)
    state = story(plain, "Send(1)", "AppendBatch(1, 1)", "Resend(1)", "AppendBatch(1, 2)")
    assert stored(state) == [1, 1]


def test_ten_values_of_which_the_fourth_to_sixth_are_sent_again_are_stored_once_each_in_order() -> None:
    steps = ["AllocateProducerId"]
    for value in (1, 2, 3):
        steps += [f"Send({value})", *settled(value)]
    for value in (4, 5, 6):
        steps += [f"Send({value})", f"AppendBatch({value}, 1)"]
    for value in (4, 5, 6):
        steps += [f"Resend({value})", f"AcknowledgeDuplicate({value}, 2)"]
    steps += ["AdvanceHighWatermark", *(f"ReceiveAcknowledgement({value})" for value in (4, 5, 6))]
    for value in (7, 8, 9, 10):
        steps += [f"Send({value})", *settled(value)]
    state = story(ONE, *steps)
    assert stored(state) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert outcomes(state, "acknowledged") == set(range(1, 11))
    assert state.high_watermark == 10


def test_a_later_batch_that_overtakes_is_refused_and_sent_again() -> None:
    overtaken = story(ONE, "AllocateProducerId", "Send(1)", "Send(2)", "RefuseBatch(2, 1)")
    assert stored(overtaken) == []
    with pytest.raises(NotEnabled, match="a retry can mend it"):
        story(ONE, "ReceiveError(2)", state=overtaken)
    state = story(ONE, "AppendBatch(1, 1)", "Resend(2)", "AppendBatch(2, 2)", state=overtaken)
    assert stored(state) == [1, 2]


def test_an_acknowledgement_settles_its_batch_and_overtakes_the_answers_before_it() -> None:
    state = story(ONE, "AllocateProducerId", "Send(1)", "Send(2)", "AppendBatch(1, 1)", "AppendBatch(2, 1)")
    state = story(ONE, "AdvanceHighWatermark", "ReceiveAcknowledgement(2)", state=state)
    assert state.responses == (), "the first answer is lost: one connection keeps its answers in order"
    assert [batch.value for batch in state.in_flight] == [1]
    with pytest.raises(NotEnabled, match="no answer is on its way"):
        story(ONE, "ReceiveAcknowledgement(1)", state=state)


def test_no_more_than_five_batches_are_in_flight_and_values_are_sent_in_order() -> None:
    five = story(ONE, "AllocateProducerId", *(f"Send({value})" for value in range(1, 6)))
    with pytest.raises(NotEnabled, match="too many batches in flight"):
        story(ONE, "Send(6)", state=five)
    with pytest.raises(NotEnabled, match="another value is next"):
        story(ONE, "AllocateProducerId", "Send(2)")
    assert [batch.sequence for batch in five.in_flight] == [0, 1, 2, 3, 4]


def test_an_idempotent_producer_sends_nothing_before_it_has_an_id_and_gets_one_only() -> None:
    with pytest.raises(NotEnabled, match="no id"):
        story(ONE, "Send(1)")
    with pytest.raises(NotEnabled, match="has an id"):
        story(ONE, "AllocateProducerId", "AllocateProducerId")


def test_attempts_run_out() -> None:
    state = story(ONE, "AllocateProducerId", "Send(1)", "Resend(1)", "Resend(1)")
    with pytest.raises(NotEnabled, match="attempts have run out"):
        story(ONE, "Resend(1)", state=state)


def test_an_expired_batch_fails_and_bumps_the_epoch_and_sequences_restart_at_0() -> None:
    state = story(ONE, "AllocateProducerId", "Send(1)", "Send(2)", "Expire(1)")
    assert outcomes(state, "failed") == {1, 2}, "a copy of each may still arrive under the old epoch"
    assert (state.producer.epoch, state.producer.sequence, state.in_flight) == (1, 0, ())
    state = story(ONE, "Send(3)", *settled(3), state=state)
    assert [(entry.value, entry.epoch, entry.sequence) for entry in state.replicas["a"].entries] == [(3, 1, 0)]


def test_a_copy_of_an_expired_batch_is_fenced_once_the_new_epoch_has_begun() -> None:
    state = story(ONE, "AllocateProducerId", "Send(1)", "Expire(1)", "Send(2)", *settled(2))
    with pytest.raises(NotEnabled, match="INVALID_PRODUCER_EPOCH"):
        story(ONE, "AppendBatch(1, 1)", state=state)
    state = story(ONE, "RefuseBatch(1, 1)", state=state)
    assert stored(state) == [2]
    assert state.producer.error is ErrorCode.NONE, "nobody waits for that answer"


def test_only_the_oldest_batch_expires() -> None:
    state = story(ONE, "AllocateProducerId", "Send(1)", "Send(2)")
    with pytest.raises(NotEnabled, match="not the oldest"):
        story(ONE, "Expire(2)", state=state)


def test_without_idempotence_the_other_batches_stay_in_flight_when_one_expires() -> None:
    state = story(replace(ONE, idempotence=False), "Send(1)", "Send(2)", "Expire(1)")
    assert [batch.value for batch in state.in_flight] == [2]
    assert outcomes(state, "sent") == {2}


def test_a_producer_whose_epochs_have_run_out_gets_a_new_id() -> None:
    last = replace(ONE, max_epoch=0)
    state = story(last, "AllocateProducerId", "Send(1)", "Expire(1)")
    assert state.producer == NEW_PRODUCER
    assert story(last, "AllocateProducerId", state=state).producer.producer_id == 1


def test_a_retry_beyond_the_leaders_memory_ends_the_producer() -> None:
    forgetful = replace(ONE, cached_batches=1, max_in_flight=2)
    state = story(forgetful, "AllocateProducerId", "Send(1)", "Send(2)", "AppendBatch(1, 1)", "AppendBatch(2, 1)")
    state = story(forgetful, "Resend(1)", "RefuseBatch(1, 2)", "ReceiveError(1)", state=state)
    assert state.producer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcomes(state, "failed") == {1, 2}
    assert stored(state) == [1, 2], "although both are stored"
    with pytest.raises(NotEnabled, match="an error has ended it"):
        story(forgetful, "Send(3)", state=state)
    with pytest.raises(NotEnabled, match="an error has ended the producer"):
        story(forgetful, "Expire(1)", state=state)


def test_with_acks_all_no_answer_comes_before_the_batch_is_replicated() -> None:
    state = story(TWO, "AllocateProducerId", "Send(1)", "AppendBatch(1, 1)")
    for early in (state, story(TWO, 'Replicate("b")', state=state)):
        with pytest.raises(NotEnabled, match="not replicated yet"):
            story(TWO, "ReceiveAcknowledgement(1)", state=early)
    told = story(TWO, 'Replicate("b")', "AdvanceHighWatermark", "ReceiveAcknowledgement(1)", state=state)
    assert outcomes(told, "acknowledged") == {1}


LEADER_CHANGE = ('Crash("a")', 'ElectLeader("b")', 'Restart("a")')


def test_with_acks_one_a_leader_change_loses_what_was_acknowledged() -> None:
    one = replace(TWO, acks="1")
    state = story(one, "AllocateProducerId", "Send(1)", "AppendBatch(1, 1)", "ReceiveAcknowledgement(1)")
    assert outcomes(state, "acknowledged") == {1}
    state = story(one, *LEADER_CHANGE, 'TruncateFollower("a")', state=state)
    assert (stored(state, "a"), stored(state, "b")) == ([], [])


def test_with_acks_all_a_retry_after_a_leader_change_finds_what_the_follower_copied() -> None:
    steps = ["AllocateProducerId", "Send(1)", "AppendBatch(1, 1)", 'Replicate("b")', *LEADER_CHANGE]
    state = story(TWO, *steps, "Resend(1)", "AcknowledgeDuplicate(1, 2)")
    assert stored(state, "b") == [1]


def test_an_answer_of_a_deposed_leader_never_leaves_it() -> None:
    steps = ["AllocateProducerId", "Send(1)", "AppendBatch(1, 1)", 'Replicate("b")', *LEADER_CHANGE]
    state = story(TWO, *steps, "AdvanceHighWatermark")
    with pytest.raises(NotEnabled, match="not replicated yet"):
        story(TWO, "ReceiveAcknowledgement(1)", state=state)


def test_with_acks_zero_a_value_is_acknowledged_when_it_is_sent_and_may_be_lost() -> None:
    state = story(replace(ONE, acks="0", idempotence=False), "Send(1)", "Send(2)", "AppendBatch(2, 1)")
    assert outcomes(state, "acknowledged") == {1, 2}
    assert stored(state) == [2]
    assert (state.in_flight, state.responses) == ((), ())


def test_no_request_is_handled_without_a_leader_and_none_twice() -> None:
    state = story(ONE, "AllocateProducerId", "Send(1)")
    with pytest.raises(NotEnabled, match="no leader"):
        story(ONE, 'Crash("a")', "AppendBatch(1, 1)", state=state)
    with pytest.raises(NotEnabled, match="no such request"):
        story(ONE, "AppendBatch(1, 1)", "AcknowledgeDuplicate(1, 1)", state=state)


def test_a_restarted_producer_has_a_new_id_and_resends_are_stored_twice() -> None:
    again = replace(ONE, resend_after_restart=True)
    steps = ["AllocateProducerId", "Send(1)", "AppendBatch(1, 1)", "RestartProducer", "AllocateProducerId"]
    state = story(again, *steps, "Send(1)", "AppendBatch(1, 2)")
    assert [(entry.value, entry.producer_id) for entry in state.replicas["a"].entries] == [(1, 0), (1, 1)]


def test_a_restarted_producer_that_does_not_resend_counts_what_was_in_flight_as_failed() -> None:
    state = story(ONE, "AllocateProducerId", "Send(1)", "RestartProducer")
    assert outcomes(state, "failed") == {1}
    assert (state.producer, state.queue[0]) == (NEW_PRODUCER, 2)
    with pytest.raises(NotEnabled, match="nothing in flight"):
        story(ONE, "RestartProducer", state=state)


def test_a_producer_is_forgotten_only_while_it_is_silent() -> None:
    expiring = replace(ONE, expiration=True)
    state = story(expiring, "AllocateProducerId", "Send(1)", "AppendBatch(1, 1)", "AdvanceHighWatermark")
    with pytest.raises(NotEnabled, match="not silent"):
        story(expiring, "ExpireProducer(0)", state=state)
    silent = story(expiring, "ReceiveAcknowledgement(1)", "ExpireProducer(0)", state=state)
    assert not silent.replicas["a"].knows_producer(0)
    with pytest.raises(NotEnabled, match="no replica knows"):
        story(expiring, "ExpireProducer(0)", state=silent)


@pytest.mark.parametrize("attribute", ["queue", "producer", "in_flight", "requests", "outcome"])
def test_actions_of_the_replicas_leave_the_client_unchanged(attribute: str) -> None:
    before: Any = story(TWO, "AllocateProducerId", "Send(1)", "AppendBatch(1, 1)")
    after = story(TWO, 'Replicate("b")', "AdvanceHighWatermark", *LEADER_CHANGE, state=before)
    assert getattr(after, attribute) == getattr(before, attribute)
