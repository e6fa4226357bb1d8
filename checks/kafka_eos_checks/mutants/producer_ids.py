"""The rules of ``spec/mutants/ProducerIdsMutants.tla``, for the reference."""

from kafka_eos.machines.producer_ids import ProducerIds


def answers_uncommitted(state: ProducerIds, first: int) -> bool:
    """For ``may_answer``: the controller answers before the record is committed."""
    return True


def shares_last_id(state: ProducerIds, first: int) -> int:
    """For ``behind``: the next block starts with the last id of the one before."""
    return state.last_of(first)


def last_id_unnoticed(state: ProducerIds, broker: str, first: int) -> bool:
    """For ``is_new_block``: a block that begins with the last id of the broker's own is taken for new (KAFKA-20031)."""
    return first >= state.brokers[broker].last


def adjacent_is_refused(state: ProducerIds, broker: str, first: int) -> bool:
    """For ``is_new_block``: a broker takes the block right after its own for one that overlaps."""
    return first > state.brokers[broker].last + 1


def nobody_is_answered(state: ProducerIds, first: int) -> bool:
    """For ``may_answer``: the controller answers nobody."""
    return False


def only_first_is_answered(state: ProducerIds, first: int) -> bool:
    """For ``may_answer``: the controller answers with the first block only."""
    return first == 0 and first < state.controller.committed
