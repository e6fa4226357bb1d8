import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.producer_ids import Constants, ProducerIds
from kafka_eos_checks.mutants.rules import mutated

FOUR = Constants(brokers=frozenset("ab"), producer_ids=frozenset(range(4)), block_size=2, max_faults=2)


def with_block(state: ProducerIds, broker: str) -> ProducerIds:
    asked = state.request_block(broker).allocate_block(broker).commit_block().answer_request(broker)
    return asked.receive_block(broker).take_block(broker)


def test_two_brokers_hand_out_ids_of_their_own_blocks() -> None:
    state = with_block(with_block(ProducerIds.initial(FOUR), "a"), "b")
    state = state.give_producer_id("b").give_producer_id("a").give_producer_id("a")
    assert [state.given[producer_id] for producer_id in range(4)] == [1, 1, 1, 0]
    with pytest.raises(NotEnabled, match="the block is empty"):
        state.give_producer_id("a")


def test_a_block_lost_with_its_controller_was_never_answered_and_is_allocated_again() -> None:
    state = ProducerIds.initial(FOUR).request_block("a").allocate_block("a")
    with pytest.raises(NotEnabled, match="not committed"):
        state.answer_request("a")
    state = state.change_controller()
    assert state.controller.written == 0
    assert with_block(state, "b").brokers["b"].last == 1


def test_a_controller_that_answers_too_early_gives_the_same_block_to_two_brokers() -> None:
    hasty = mutated(ProducerIds, {"MayAnswer": "AnswersUncommitted"})
    state = hasty.initial(FOUR).request_block("a").allocate_block("a").answer_request("a").change_controller()
    state = with_block(state.receive_block("a").take_block("a"), "b")
    assert state.give_producer_id("a").give_producer_id("b").given[0] == 2


def test_a_restarted_broker_forgets_its_block_whose_ids_are_never_reused() -> None:
    state = with_block(ProducerIds.initial(FOUR), "a").give_producer_id("a").restart_broker("a")
    state = with_block(state, "a").give_producer_id("a")
    assert [state.given[producer_id] for producer_id in range(4)] == [1, 0, 1, 0]


def test_a_block_that_overlaps_is_refused_by_a_broker_that_did_not_restart() -> None:
    overlapping = mutated(ProducerIds, {"Behind": "SharesLastId"})
    state = with_block(overlapping.initial(FOUR), "a")
    state = state.request_block("a").allocate_block("a").commit_block().answer_request("a")
    with pytest.raises(NotEnabled, match="overlaps"):
        state.receive_block("a")
    assert state.refuse_block("a").brokers["a"].request == "none"
    after = state.restart_broker("a")
    assert with_block(after, "a").brokers["a"].next == 2
