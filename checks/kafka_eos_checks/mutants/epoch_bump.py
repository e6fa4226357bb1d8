"""The rules of ``spec/mutants/EpochBumpMutants.tla``, for the reference."""

from dataclasses import replace

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.machines.epoch_bump import NOBODY, EpochBump, Identity


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


def remembers_the_fenced(state: EpochBump, presented: Identity) -> Identity:
    """For ``remembered_after``: after another instance's request, the fenced one's identity passes for a retry."""
    return state.coordinator.current


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
