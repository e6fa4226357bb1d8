"""The rules of ``spec/mutants/TransferMutants.tla``, for the reference."""

from dataclasses import replace

from kafka_eos.machines.transfer import ALICE, BOB, Transfer


def fenced_writes_are_taken(state: Transfer, instance: str) -> bool:
    """For ``may_write``: the leaders take what a fenced instance writes."""
    return True


def open_is_taken_over(state: Transfer) -> bool:
    """For ``aborts_open``: InitProducerId leaves what it finds open, and the next instance goes on in it."""
    return False


def offset_is_committed_apart(state: Transfer) -> bool:
    """For ``offset_in_transaction``: the offset is committed at once, outside of the transaction."""
    return False


def pending_offset_is_passed_over(state: Transfer) -> bool:
    """For ``is_unstable``: an offset is returned although one waits for its marker."""
    return False


def _loses_writes_to(
    lost: str, state: Transfer, instance: str, partition: str, in_transaction: bool, stage: str
) -> Transfer:
    """The state after a write, of which only the instance knows if it is to one partition."""
    written = Transfer.write(state, instance, partition, in_transaction, stage)
    return replace(written, logs=state.logs, transaction=state.transaction) if partition == lost else written


def debit_is_lost(state: Transfer, instance: str, partition: str, in_transaction: bool, stage: str) -> Transfer:
    """For ``write``: debits are lost, credits and offsets are not."""
    return _loses_writes_to(ALICE, state, instance, partition, in_transaction, stage)


def credit_is_lost(state: Transfer, instance: str, partition: str, in_transaction: bool, stage: str) -> Transfer:
    """For ``write``: credits are lost, debits and offsets are not."""
    return _loses_writes_to(BOB, state, instance, partition, in_transaction, stage)
