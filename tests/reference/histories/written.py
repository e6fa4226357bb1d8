"""Runs that are written down in ``tests/vectors``: each step, and the events and batches that a recorder writes of it.

A line is a step. The files say what a history of such a run has to be, so a change of them is a change of histories.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from kafka_eos.formats import consumer_offsets, transaction_log
from kafka_eos.formats.record_batch import Record, RecordBatch
from kafka_eos.histories.history import Event
from kafka_eos.histories.simulator import Taken
from kafka_eos.machines.machine import Instance, Machine, actions, step

VECTORS = Path(__file__).parents[2] / "vectors"
State = TypeVar("State", bound=Machine)
Rows = list[dict[str, Any]]


def runs(file: str) -> dict[str, Rows]:
    """The lines of a file by the names of their runs."""
    found: dict[str, Rows] = {}
    for line in (VECTORS / file).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found.setdefault(row.pop("run"), []).append(row)
    return found


def replayed(machine: type[State], constants: Any, steps: Sequence[Sequence[Any]]) -> Iterator[Taken[State]]:
    """The steps of a run, each given as an action's name and its arguments."""
    named = {action.name: action for action in actions(machine)}
    state = machine.initial(constants)
    for name, *arguments in steps:
        instance = Instance(named[name], tuple(arguments))
        taken = Taken(state, instance, step(state, instance))
        state = taken.after
        yield taken


def event_row(event: Event) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(event.to_json())
    assert row.pop("run") == "r"
    return row


def batch_row(
    topic: str, batch: RecordBatch, content: Callable[[Record], Any] = lambda record: (record.value or b"").decode()
) -> dict[str, Any]:
    marker = batch.control_record()
    return {
        "topic": topic,
        "offset": batch.base_offset,
        "time": [batch.base_timestamp, batch.max_timestamp],
        "leader_epoch": batch.partition_leader_epoch,
        "producer": [batch.producer_id, batch.producer_epoch, batch.base_sequence],
        "transactional": batch.is_transactional,
        "records": [content(record) for record in batch.records()]
        if marker is None
        else [marker.control_type.name, marker.coordinator_epoch],
    }


def committed_offset(record: Record) -> list[Any]:
    key, value = consumer_offsets.decode_key(record.key or b""), consumer_offsets.decode_value(record.value)
    assert key is not None
    assert value is not None
    return [key.group, key.topic, key.partition, value.offset, value.commit_timestamp_ms]


def transaction(record: Record) -> dict[str, Any]:
    value = transaction_log.decode_value(record.value)
    assert value is not None
    row: dict[str, Any] = json.loads(json.dumps(asdict(value)))
    return {"id": transaction_log.decode_key(record.key or b"").transactional_id, **row}


def written(
    taken: Iterable[Taken[State]],
    watch: Callable[[list[Taken[State]]], Any],
    events: list[Event],
    batches: Callable[[], Mapping[str, Rows]],
) -> Iterator[dict[str, Any]]:
    """The lines of a run: what a recorder that watches a step adds to its events and batches."""
    told, seen = 0, dict[str, int]()
    for each in taken:
        watch([each])
        row = {"step": [each.instance.action.name, *each.instance.arguments]}
        added = [event_row(event) for event in events[told:]]
        told = len(events)
        stored: Rows = []
        for name, log in sorted(batches().items()):
            stored += log[seen.get(name, 0) :]
            seen[name] = len(log)
        yield row | ({"events": added} if added else {}) | ({"batches": stored} if stored else {})
