"""The rules of ``spec/mutants/MirrorMutants.tla``, for the reference."""

from dataclasses import replace

from kafka_eos.errors import enabled
from kafka_eos.machines.mirror import Mirror


def nobody_is_fenced(state: Mirror, task: str) -> bool:
    """For ``may_commit``: nobody fences the task that had the partition before."""
    return True


def position_is_kept(state: Mirror, task: str) -> int:
    """For ``start_position``: a task that is given the partition again goes on where it was."""
    return state.tasks[task].position or state.offset


def offset_of_last(state: Mirror, position: int) -> int:
    """For ``offset_after``: the offset is that of the last record copied, not the next one."""
    return position - 1 if state.constants.offsets_in == "target" else state.offset


def offset_passes_last(state: Mirror, position: int) -> int:
    """For ``offset_after``: the offset passes the last record before that is copied."""
    after = position + (position == len(state.constants.records))
    return after if state.constants.offsets_in == "target" else state.offset


def batch_is_turned_round(state: Mirror, task: str) -> Mirror:
    """For ``copy``: a task puts the records of a batch in the opposite order."""
    after = Mirror.copy(state, task)
    *before, last = after.tasks[task].batch
    return replace(after, tasks=after.tasks.set(task, replace(after.tasks[task], batch=(last, *before))))


def copies_ahead(state: Mirror, task: str) -> Mirror:
    """For ``copy``: a task copies records before the source has them."""
    enabled(state.tasks[task].position in state.constants.records, "there is no such record")
    return replace(Mirror.copy(replace(state, produced=state.tasks[task].position), task), produced=state.produced)
