"""The rules of ``spec/mutants/ExternalSinkMutants.tla``, for the reference."""

from kafka_eos.machines.external_sink import ExternalSink


def offset_apart(state: ExternalSink) -> bool:
    """For ``is_one_transaction``: the offset stays in Kafka and is committed afterwards."""
    return False


def key_of_attempt(state: ExternalSink, value: int) -> bool:
    """For ``is_known``: the sink's key differs at every attempt."""
    return False


def noted_by_removal(state: ExternalSink, rows: int) -> int:
    """For ``noted_after``: the relay notes nothing; a relay that starts begins with the first row that is left."""
    return 0


def effect_of_former(state: ExternalSink, value: int) -> tuple[int, ...]:
    """For ``effects_after``: the effect is that of the input before it."""
    return (*state.effects, value - 1)


def effect_of_next(state: ExternalSink, value: int) -> tuple[int, ...]:
    """For ``effects_after``: the effect is that of the input after it."""
    return (*state.effects, value + 1)
