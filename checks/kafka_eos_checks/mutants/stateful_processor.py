"""The rules of ``spec/mutants/StatefulProcessorMutants.tla``, for the reference."""

from dataclasses import replace

from kafka_eos.machines.stateful_processor import Change, StatefulProcessor, Store, StoreProcess


def restores_uncommitted(state: StatefulProcessor, entry: Change) -> bool:
    """For ``is_restored``: the changelog is read with read_uncommitted."""
    return True


def store_is_kept_after_abort(state: StatefulProcessor, instance: str) -> StoreProcess:
    """For ``after_abort``: the store keeps the aborted changes."""
    return replace(state.processes[instance], position=state.committed, batch=())


def store_on_disk_is_used(state: StatefulProcessor, instance: str) -> Store:
    """For ``store_at_start``: the store that an earlier process has left on disk is used."""
    return state.processes[instance].store


def changes_are_written_apart(state: StatefulProcessor) -> str:
    """For ``fate_at_write``: changes are written in no transaction."""
    return "committed"


def former_owner_writes(state: StatefulProcessor, instance: str) -> bool:
    """For ``may_write``: nobody fences the instance that had the partition before."""
    return True


def output_has_former_count(state: StatefulProcessor, instance: str) -> StatefulProcessor:
    """For ``process``: the output has the count before the input."""
    after = StatefulProcessor.process(state, instance)
    *before, last = after.processes[instance].batch
    process = replace(after.processes[instance], batch=(*before, replace(last, count=last.count - 1)))
    return replace(after, processes=after.processes.set(instance, process))


def offset_is_left_out_after_fault(state: StatefulProcessor, instance: str) -> StatefulProcessor:
    """For ``commit``: after a failure no transaction has an offset."""
    after = StatefulProcessor.commit(state, instance)
    return replace(after, committed=state.committed) if state.faults else after
