"""The fate of an input depends on the application's reaction to an error."""

from collections.abc import Callable

import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.application_loop import AFTER, BEFORE, LOOPS, TRANSACTIONS, ApplicationLoop, Constants
from kafka_eos.machines.explorer import explore
from kafka_eos.machines.machine import instances
from kafka_eos_checks.mutants.rules import mutated

CATCH_BLOCKS = {"Reaction": "CatchBlocks"}


def loop(kind: str = TRANSACTIONS, faults: int = 2, **overrides: str) -> ApplicationLoop:
    """A loop, with some of its rules replaced, that has polled the first of two inputs."""
    constants = Constants(inputs=frozenset({1, 2}), loop=kind, max_faults=faults)
    machine = mutated(ApplicationLoop, overrides) if overrides else ApplicationLoop
    state = machine.initial(constants)
    assert isinstance(state, ApplicationLoop)
    return state.arrive().arrive().poll()


def unanswered(state: ApplicationLoop) -> ApplicationLoop:
    """The loop after a successful commit whose answer is lost."""
    return state.send().ask_to_commit().commit_transaction().lose_answer()


def finished(state: ApplicationLoop) -> ApplicationLoop:
    """The loop after it has processed all further inputs that it polls."""
    while state.position <= state.arrived:
        state = state.poll().send().ask_to_commit().commit_transaction().learn_commit()
    return state


def test_an_input_whose_transaction_is_aborted_is_polled_again_after_a_seek() -> None:
    state = loop().fail_send().abort()
    assert (state.position, state.reported[1]) == (1, "aborted")
    assert finished(state).outputs == (1, 2)


def test_an_input_whose_transaction_is_aborted_is_skipped_without_a_seek() -> None:
    state = finished(loop(PositionAfterAbort="PollsOn").fail_send().abort())
    assert (state.outputs, state.committed) == ((2,), 3)


def test_a_commit_of_unknown_outcome_is_retried_and_then_known() -> None:
    state = unanswered(loop())
    for otherwise in (state.abort, state.close):
        with pytest.raises(NotEnabled):
            otherwise()
    assert state.retry_commit().learn_commit().reported[1] == "committed"


def test_a_commit_that_came_too_late_ends_with_the_producer_closed() -> None:
    state = loop().send().ask_to_commit().lose_answer().time_out().retry_commit()
    with pytest.raises(NotEnabled):
        state.learn_commit()
    assert finished(state.learn_fencing().close().restart()).outputs == (1, 2)


def test_an_abort_after_a_commit_of_unknown_outcome_hides_that_it_is_committed() -> None:
    state = unanswered(loop(**CATCH_BLOCKS)).abort()
    assert (state.outputs, state.reported[1]) == ((1,), "aborted")
    assert finished(state).outputs == (1, 2)


def test_the_same_abort_and_a_seek_to_what_was_polled_make_a_second_output() -> None:
    state = unanswered(loop(**CATCH_BLOCKS, PositionAfterAbort="SeeksToPolled")).abort()
    assert finished(state).outputs == (1, 1, 2)


def test_an_abort_before_the_commit_has_arrived_is_an_abort() -> None:
    state = loop(**CATCH_BLOCKS).send().ask_to_commit().lose_answer().abort()
    with pytest.raises(NotEnabled):
        state.commit_transaction()
    assert finished(state).outputs == (1, 2)


def test_taking_an_unanswered_commit_for_committed_loses_an_aborted_input() -> None:
    state = loop(IsTold="SilenceIsConsent").send().ask_to_commit().time_out().learn_commit()
    assert state.reported[1] == "committed"
    assert finished(state).outputs == (2,)


def test_a_commit_on_its_way_is_void_once_the_application_has_started_again() -> None:
    with pytest.raises(NotEnabled):
        loop().send().ask_to_commit().crash().restart().commit_transaction()
    another = loop(AfterInitialization="AnotherTransactionalId").send().ask_to_commit().crash().restart()
    assert another.poll().commit_transaction().send().ask_to_commit().commit_transaction().outputs == (1, 1)


@pytest.mark.parametrize(
    ("kind", "until_crash", "outputs"),
    [
        (BEFORE, lambda state: state.commit_offset(), ()),
        (AFTER, lambda state: state.process(), (1, 1)),
    ],
)
def test_a_crash_between_offset_and_output_skips_or_repeats(
    kind: str, until_crash: Callable[[ApplicationLoop], ApplicationLoop], outputs: tuple[int, ...]
) -> None:
    state = until_crash(loop(kind)).crash().restart()
    while state.position == 1:
        state = state.poll().process().commit_offset()
    assert state.outputs == outputs


@pytest.mark.parametrize("kind", LOOPS)
def test_without_faults_every_loop_gives_each_input_one_output(kind: str) -> None:
    start = loop(kind, faults=0)
    found = explore(start, instances(ApplicationLoop, start.constants))
    ends = {s.outputs for s in found.states if s.position == 3 and s.application.stage == "polling"}
    assert ends == {(1, 2)}
