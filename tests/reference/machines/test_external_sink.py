"""Each order of effect and offset, with a crash between any two steps."""

import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.explorer import explore
from kafka_eos.machines.external_sink import STRATEGIES, Constants, ExternalSink
from kafka_eos.machines.machine import instances


def sink(strategy: str, faults: int = 1) -> ExternalSink:
    return ExternalSink.initial(Constants(inputs=frozenset({1, 2}), strategy=strategy, max_faults=faults)).arrive()


def ends(strategy: str, faults: int) -> set[tuple[int, ...]]:
    """The effects in every state in which the consumer has handled both inputs, and the relay every row."""
    found = explore(sink(strategy, faults), instances(ExternalSink, sink(strategy).constants))
    return {
        state.effects for state in found.states if (state.position, state.stage, state.outbox) == (3, "nothing", ())
    }


def test_an_update_before_the_commit_is_made_again_after_a_crash_between_them() -> None:
    state = sink("update before commit").update().crash().restart()
    assert state.update().commit_offset().go_on().effects == (1, 1)


def test_an_update_after_the_commit_is_never_made_after_a_crash_between_them() -> None:
    state = sink("update after commit").commit_offset().crash().restart()
    assert (state.position, state.effects) == (2, ())


def test_a_restarted_consumer_starts_after_an_update_that_was_stored_with_its_offset() -> None:
    state = sink("offsets in the database").update_with_offset().crash().restart()
    assert (state.position, state.effects) == (2, (1,))


def test_an_idempotent_sink_treats_a_stored_input_as_done() -> None:
    state = sink("idempotent sink").update().crash().restart().update()
    assert (state.stage, state.effects) == ("updated", (1,))


def test_a_relay_that_starts_again_publishes_nothing_that_it_has_noted() -> None:
    state = sink("outbox").update_with_offset().publish().restart_relay()
    assert (state.effects, state.outbox) == ((1,), (1,))
    with pytest.raises(NotEnabled):
        state.publish()


def test_a_lost_call_and_a_lost_answer_leave_the_consumer_in_the_same_place() -> None:
    lost, unanswered = sink("side effect").lose_call(), sink("side effect").lose_answer()
    assert (lost.stage, lost.position, lost.committed) == (unanswered.stage, unanswered.position, unanswered.committed)
    assert (lost.effects, unanswered.effects) == ((), (1,))
    assert lost.give_up().commit_offset().go_on().effects == ()
    assert unanswered.call_again().update().effects == (1, 1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_faults_every_strategy_is_exactly_once(strategy: str) -> None:
    assert ends(strategy, faults=0) == {(1, 2)}


@pytest.mark.parametrize(
    ("strategy", "wanted"),
    [
        ("update before commit", {(1, 2), (1, 1, 2), (1, 2, 2)}),
        ("update after commit", {(1, 2), (2,), (1,)}),
        ("offsets in the database", {(1, 2)}),
        ("outbox", {(1, 2)}),
        ("idempotent sink", {(1, 2)}),
        ("side effect", {(1, 2), (1, 1, 2), (1, 2, 2), (2,), (1,)}),
    ],
)
def test_after_one_fault_the_effects_are_those_that_the_strategy_promises(
    strategy: str, wanted: set[tuple[int, ...]]
) -> None:
    assert ends(strategy, faults=1) == wanted


def test_no_service_is_called_where_there_is_a_database() -> None:
    state = sink("update before commit")
    for call in (state.lose_call, state.lose_answer, state.publish, state.restart_relay):
        with pytest.raises(NotEnabled):
            call()
