"""The history of a run of ``IdempotentProducer``, as a recorder of a real client and its brokers would write it."""

from collections.abc import Iterable, Iterator
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import Event
from kafka_eos.histories.simulator import Taken
from kafka_eos.machines.idempotent_producer import IdempotentProducer, Request, batch_of, request_of

TOPIC, PARTITION = "simulated", 0
PRODUCER, WIRE = "producer", "wire"
_REPLICA_ACTIONS = {"Crash": "Crash", "Restart": "Restart", "ElectLeader": "LeaderChange"}
_REPLICA_ACTIONS["ElectUncleanLeader"] = "LeaderChange"


def value_name(value: int) -> str:
    """The content of the record that stands for a value of the spec."""
    return f"v{value}"


def history(run: str, steps: Iterable[Taken[IdempotentProducer]]) -> Iterator[Event]:
    """The events of a run, in order.

    Args:
        run: the run's name.
        steps: the steps of a simulation.
    """
    order = 0
    for taken in steps:
        for row in _rows(taken):
            yield Event(run=run, order=order, **row)
            order += 1


def _rows(taken: Taken[IdempotentProducer]) -> Iterator[dict[str, Any]]:
    """The events of one step: first those of the wire, then those of the application."""
    before, after, action = taken.before, taken.after, taken.instance.action.name
    if action == "AllocateProducerId":
        yield _process(WIRE, "InitProducerId", "invoke")
        allocated = {"producer_id": after.producer.producer_id, "producer_epoch": after.producer.epoch}
        yield _process(WIRE, "InitProducerId", "ok") | allocated
    elif action in _REPLICA_ACTIONS:
        yield _process(str(taken.instance.arguments[0]), _REPLICA_ACTIONS[action], "ok")
    elif action == "RestartProducer":
        yield _process(PRODUCER, "Crash", "ok")
        yield _process(PRODUCER, "Restart", "ok")
    elif action == "Send":
        yield _send(int(str(taken.instance.arguments[0])), "invoke")
    for request in sorted(after.requests - before.requests, key=lambda request: request.value):
        yield _produce(request, "invoke")
    if action == "RefuseBatch":
        (request,) = before.requests - after.requests
        error = before.leaders_log.append_error(batch_of(request))
        yield _produce(request, "fail") | {"error": int(error)}
    yield from _outcomes(before, after, action)


def _outcomes(before: IdempotentProducer, after: IdempotentProducer, action: str) -> Iterator[dict[str, Any]]:
    """The events that tell the application the outcome of its values."""
    for value in sorted(before.outcome):
        now = after.outcome[value]
        if now == before.outcome[value]:
            continue
        if now == "acknowledged" and action == "ReceiveAcknowledgement":
            offset = before.responses[before.position(value)].offset
            batch = before.batch_in_flight(value)
            assert batch is not None, "an acknowledged value was in flight"
            request = request_of(batch, before.attempts[value])
            yield _produce(request, "ok") | {"error": 0, "offset": offset}
            yield _send(value, "ok") | {"offset": offset}
        elif now == "failed":
            refused = after.producer.error is not ErrorCode.NONE
            yield _send(value, "fail" if refused else "info") | (
                {"error": int(after.producer.error)} if refused else {}
            )


def _process(process: str, action: str, phase: str) -> dict[str, Any]:
    return {"process": process, "action": action, "phase": phase}


def _send(value: int, phase: str) -> dict[str, Any]:
    row = _process(PRODUCER, "Send", phase)
    return row | {"topic": TOPIC, "partition": PARTITION, "detail": {"value": value_name(value)}}


def _produce(request: Request, phase: str) -> dict[str, Any]:
    return _process(WIRE, "Produce", phase) | {
        "topic": TOPIC,
        "partition": PARTITION,
        "producer_id": request.producer_id,
        "producer_epoch": request.epoch,
        "base_sequence": request.sequence,
        "record_count": 1,
        "detail": {"value": value_name(request.value), "attempt": request.attempt},
    }
