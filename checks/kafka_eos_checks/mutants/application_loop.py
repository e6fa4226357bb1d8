"""The rules of ``spec/mutants/ApplicationLoopMutants.tla``, for the reference."""

from kafka_eos.machines.application_loop import ApplicationLoop, LoopTransaction


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
