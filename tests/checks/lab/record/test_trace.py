import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kafka_eos.histories.history import Event, read_history
from kafka_eos.machines.producer_state import Batch, Log
from kafka_eos_checks.kit.recording import kept_recordings, unpack
from kafka_eos_checks.lab.record import trace as record_trace
from kafka_eos_checks.lab.record.trace import DAMAGED, INCOMPLETE, NoTrace, wire_trace

OUT_OF_ORDER = 45


class Wire:
    """A writer of a history of requests for one partition."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.requests = 0

    def add(self, action: str, phase: str, **columns: Any) -> None:
        row = {"process": "proxy/client"} | columns
        self.events.append(Event(run="r", order=len(self.events), action=action, phase=phase, **row))

    def ask(self, sequence: int, count: int = 1, epoch: int = 0, broker: str = "broker-1") -> dict[str, Any]:
        columns = {
            "topic": "t",
            "partition": 0,
            "producer_id": 7,
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "record_count": count,
            "detail": {"request": self.requests, "connection": 0, "broker": broker},
        }
        self.requests += 1
        self.add("Produce", "invoke", **columns)
        return columns

    def answer(self, asked: dict[str, Any], offset: int | None = None, error: int = 0) -> None:
        self.add("Produce", "fail" if error else "ok", **asked, offset=offset, error=error)

    def append(self, sequence: int, offset: int, count: int = 1) -> None:
        self.answer(self.ask(sequence, count), offset)

    def restart(self, broker: str = "broker-1") -> None:
        self.add("Restart", "invoke", process=broker)
        self.add("Restart", "ok", process=broker)

    def trace(self) -> list[tuple[str, int | None, int | None]]:
        return [(e.action, e.base_sequence, e.offset) for e in wire_trace(self.events, "t", 0)]


@pytest.fixture
def wire() -> Wire:
    return Wire()


def test_appends_are_in_the_order_of_their_offsets_and_not_of_their_answers(wire: Wire) -> None:
    first, second = wire.ask(0), wire.ask(1)
    wire.answer(second, 1)
    wire.answer(first, 0)
    assert wire.trace() == [("AppendBatch", 0, 0), ("AppendBatch", 1, 1)]


def test_an_offset_that_the_batch_already_has_acknowledges_a_duplicate(wire: Wire) -> None:
    wire.append(0, 0)
    wire.append(1, 1)
    wire.append(0, 0)
    assert wire.trace() == [("AppendBatch", 0, 0), ("AppendBatch", 1, 1), ("AcknowledgeDuplicate", 0, 0)]


def test_an_answer_with_an_error_is_a_refusal(wire: Wire) -> None:
    wire.append(0, 0)
    wire.answer(wire.ask(5), error=OUT_OF_ORDER)
    trace = wire_trace(wire.events, "t", 0)
    assert [(e.action, e.error, e.offset) for e in trace] == [("AppendBatch", 0, 0), ("RefuseBatch", 45, None)]
    assert [e.order for e in trace] == [0, 1]
    assert {e.phase for e in trace} == {"ok"}


@pytest.mark.parametrize("error", [46, 49, 51, 90, 120])
def test_an_error_about_producers_that_no_leader_gives_is_a_refusal(wire: Wire, error: int) -> None:
    wire.answer(wire.ask(0), error=error)
    assert [(e.action, e.error) for e in wire_trace(wire.events, "t", 0)] == [("RefuseBatch", error)]


def test_a_request_that_a_test_answered_with_an_error_never_reached_the_log(wire: Wire) -> None:
    wire.append(0, 0)
    asked = wire.ask(1)
    wire.events[-1] = replace(wire.events[-1], detail={**asked["detail"], "fault": "error"})
    wire.answer(asked, error=OUT_OF_ORDER)
    wire.append(1, 1)
    assert wire.trace() == [("AppendBatch", 0, 0), ("AppendBatch", 1, 1)]


def test_an_answer_of_a_broker_that_does_not_lead_yet_implies_nothing_about_the_log(wire: Wire) -> None:
    wire.append(0, 0)
    asked = wire.ask(1)
    wire.add("Produce", "info", **asked, error=6)
    wire.append(1, 1)
    assert wire.trace() == [("AppendBatch", 0, 0), ("AppendBatch", 1, 1)]


def test_a_batch_that_is_stored_twice_is_appended_twice(wire: Wire) -> None:
    wire.append(0, 0)
    wire.append(0, 1)
    assert wire.trace() == [("AppendBatch", 0, 0), ("AppendBatch", 0, 1)]


def test_other_partitions_are_left_out(wire: Wire) -> None:
    wire.append(0, 0)
    wire.answer(wire.ask(1) | {"partition": 1}, 0)
    wire.events = [e for e in wire.events if e.base_sequence == 0 or e.partition == 1]
    assert wire.trace() == [("AppendBatch", 0, 0)]


def test_a_gap_was_filled_by_a_request_whose_answer_nobody_saw(wire: Wire) -> None:
    wire.append(0, 0)
    wire.ask(1, count=2)
    wire.append(3, 3)
    trace = wire_trace(wire.events, "t", 0)
    assert [(e.action, e.base_sequence, e.offset) for e in trace] == [
        ("AppendBatch", 0, 0),
        ("AppendBatch", 1, 1),
        ("AppendBatch", 3, 3),
    ]
    assert ["answered" in e.detail for e in trace] == [True, False, True]


def test_the_first_batch_can_be_one_whose_answer_nobody_saw(wire: Wire) -> None:
    wire.ask(0)
    wire.append(1, 1)
    assert wire.trace() == [("AppendBatch", 0, 0), ("AppendBatch", 1, 1)]


def test_offsets_that_no_request_can_have_filled_are_reported(wire: Wire) -> None:
    wire.append(0, 0)
    wire.append(1, 2)
    with pytest.raises(NoTrace, match="run r, event 3: offset 2, but offsets 1 to 1") as caught:
        wire.trace()
    assert caught.value.code == INCOMPLETE


def without(number: int) -> Callable[[list[Event]], list[Event]]:
    return lambda events: events[:number] + events[number + 1 :]


def again(number: int, order: int | None = None) -> Callable[[list[Event]], list[Event]]:
    def double(events: list[Event]) -> list[Event]:
        event = events[number]
        return [*events, replace(event, order=event.order if order is None else order)]

    return double


def with_columns(number: int, **columns: Any) -> Callable[[list[Event]], list[Event]]:
    return lambda events: [replace(event, **columns) if event.order == number else event for event in events]


@pytest.mark.parametrize(
    ("damage", "place", "reason"),
    [
        (without(0), 1, "an answer to request 0, which no event before it sends"),
        (lambda events: [events[1], events[0], *events[2:]], 1, "which no event before it sends"),
        (again(1), 1, "there are two events of this order"),
        (again(0), 0, "there are two events of this order"),
        (again(1, order=9), 9, "request 0 is answered again, after event 1"),
        (again(0, order=9), 9, "request 0 is sent again, after event 0"),
        (with_columns(1, order=None), "without an order", "it has no place among the others"),
        (with_columns(0, producer_id=None), 0, "a Produce without producer_id"),
        (with_columns(0, record_count=None, base_sequence=None), 0, "a Produce without base_sequence, record_count"),
        (with_columns(1, offset=None), 1, "an answer without error and without an offset"),
        (with_columns(1, error=None), 1, "an answer of phase ok with error None"),
        (with_columns(1, error=45), 1, "an answer of phase ok with error 45"),
        (with_columns(1, phase="fail"), 1, "an answer of phase fail with error 0"),
        (with_columns(1, phase="fail", error=9999), 1, "an answer with error 9999, which Kafka does not have"),
        (with_columns(1, producer_epoch=1), 1, "an answer with producer_epoch 1, and 0 in its request, event 0"),
        (with_columns(0, detail={"request": [0], "broker": "b"}), 0, "not a number and a name"),
        (with_columns(1, detail={"request": 0}), 1, "not a number and a name"),
    ],
)
def test_what_is_no_request_with_one_answer_is_damage_with_its_place_and_a_remedy(
    wire: Wire, damage: Callable[[list[Event]], list[Event]], place: int | str, reason: str
) -> None:
    wire.append(0, 0)
    wire.append(1, 1)
    wire.events = damage(wire.events)
    with pytest.raises(NoTrace) as caught:
        wire.trace()
    assert caught.value.code == DAMAGED
    assert str(caught.value).startswith(f"run r, event {place}: ")
    assert reason in str(caught.value)
    assert "give the history as" in str(caught.value)


def test_offsets_against_the_order_of_a_restart_give_a_trace(wire: Wire) -> None:
    wire.append(1, 1)
    wire.ask(9)
    wire.restart()
    wire.append(0, 0)
    assert {"AppendBatch"} < {name for name, *_ in wire.trace()}


def test_a_request_without_visible_effect_is_left_out(wire: Wire) -> None:
    wire.append(0, 0)
    wire.ask(1)
    assert wire.trace() == [("AppendBatch", 0, 0)]


def test_a_restart_without_an_order_damages_the_history(wire: Wire) -> None:
    wire.append(0, 0)
    wire.restart()
    wire.events = [replace(event, order=None) if event.action == "Restart" else event for event in wire.events]
    with pytest.raises(NoTrace, match="event without an order: it has no place among the others; the history is dam"):
        wire.trace()


def test_a_restart_takes_a_snapshot_first_but_not_twice_of_the_same_log(wire: Wire) -> None:
    wire.append(0, 0)
    wire.restart()
    wire.restart()
    wire.append(1, 1)
    assert [name for name, *_ in wire.trace()] == ["AppendBatch", "TakeSnapshot", "Restart", "Restart", "AppendBatch"]


def test_the_restart_of_a_broker_that_does_not_lead_is_left_out(wire: Wire) -> None:
    wire.append(0, 0)
    wire.restart("broker-2")
    wire.append(1, 1)
    assert [name for name, *_ in wire.trace()] == ["AppendBatch", "AppendBatch"]


def test_a_restart_before_the_first_answer_is_left_out_as_nobody_knows_who_led_then(wire: Wire) -> None:
    wire.restart()
    wire.append(0, 0)
    wire.restart()
    assert [name for name, *_ in wire.trace()] == ["AppendBatch", "TakeSnapshot", "Restart"]


def test_a_batch_that_the_leader_knew_after_its_restart_was_appended_before_it(wire: Wire) -> None:
    wire.append(0, 0)
    for sequence in (1, 2):  # sent, stored, never answered
        wire.ask(sequence)
    wire.restart()
    wire.answer(wire.ask(1), error=OUT_OF_ORDER)  # the snapshot kept batch 2 only
    wire.append(2, 2)
    assert wire.trace() == [
        ("AppendBatch", 0, 0),
        ("AppendBatch", 1, 1),
        ("AppendBatch", 2, 2),
        ("TakeSnapshot", None, None),
        ("Restart", None, None),
        ("RefuseBatch", 1, None),
        ("AcknowledgeDuplicate", 2, 2),
    ]


def test_a_batch_that_was_refused_itself_after_the_restart_was_appended_after_it(wire: Wire) -> None:
    wire.append(0, 0)
    wire.ask(1)  # sent, and not stored
    wire.restart()
    wire.answer(wire.ask(1), error=OUT_OF_ORDER)
    wire.append(1, 1)
    names = [name for name, *_ in wire.trace()]
    assert names == ["AppendBatch", "TakeSnapshot", "Restart", "RefuseBatch", "AppendBatch"]


def test_a_late_seen_acknowledgement_is_placed_where_the_log_still_gave_it(wire: Wire) -> None:
    wire.append(0, 0)
    late = wire.ask(0)
    for sequence in range(1, 6):  # five more batches: batch 0 has left the duplicate window
        wire.append(sequence, sequence)
    wire.answer(late, 0)
    names = [name for name, *_ in wire.trace()]
    assert names.index("AcknowledgeDuplicate") == 5


def test_an_acknowledgement_that_no_log_gives_stays_at_its_observed_place(wire: Wire) -> None:
    for sequence in range(6):
        wire.append(sequence, sequence)
    wire.append(0, 0)  # sent after batch 0 had left the window
    assert wire.trace()[-1] == ("AcknowledgeDuplicate", 0, 0)
    assert first_difference(wire_trace(wire.events, "t", 0)) == 6


def eventful(rounds: int) -> Wire:
    """A history with every kind of event, once in each round of ten batches."""
    wire = Wire()
    for first in range(0, 10 * rounds, 10):
        for sequence in range(first, first + 6):
            wire.append(sequence, sequence)
        wire.append(first + 5, first + 5)  # a duplicate
        wire.answer(wire.ask(first + 9), error=OUT_OF_ORDER)
        wire.ask(first + 6)  # stored, never answered
        wire.append(first + 7, first + 7)
        for sequence in (first + 8, first + 9):  # stored, never answered, and sent again after the restart
            wire.ask(sequence)
        wire.restart()
        wire.answer(wire.ask(first + 8), error=OUT_OF_ORDER)
        wire.append(first + 9, first + 9)
    return wire


def iterations(wire: Wire) -> int:
    """The number of executed lines of the module for a trace; each iteration of a one-line loop counts."""
    lines = 0

    def count(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename != record_trace.__file__:
            return None
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        wire_trace(wire.events, "t", 0)
    finally:
        sys.settrace(before)
    return lines


def test_a_history_twice_as_long_takes_about_twice_the_steps() -> None:
    names = [name for name, *_ in eventful(2).trace()]
    each = ["AppendBatch"] * 10 + ["AcknowledgeDuplicate", "RefuseBatch"] * 2 + ["TakeSnapshot", "Restart"]
    assert sorted(names) == sorted(each * 2)
    assert first_difference(wire_trace(eventful(40).events, "t", 0)) is None
    once, twice = iterations(eventful(20)), iterations(eventful(40))
    assert 1.9 * once < twice < 2.2 * once


class KafkaLog(Log):
    """A log whose snapshots keep the last batch of a producer."""

    __slots__ = ()

    def with_snapshot(self) -> "KafkaLog":
        log = super().with_snapshot()
        kept = {
            pid: type(state)(epoch=state.epoch, batches=state.batches[-1:])
            for pid, state in log.snapshot.producers.items()
        }
        snapshot = type(log.snapshot)(offset=log.snapshot.offset, producers=type(log.producers)(kept))
        return KafkaLog(entries=log.entries, producers=log.producers, snapshot=snapshot)


def first_difference(trace: Iterable[Event]) -> int | None:
    """Replay a trace in the reference; return the index of the first refused step, or None."""
    log: Log = KafkaLog()
    for index, event in enumerate(trace):
        if event.action == "TakeSnapshot":
            log = log.with_snapshot()
            continue
        if event.action == "Restart":
            log = log.reloaded()
            continue
        columns = (event.producer_id, event.producer_epoch, event.base_sequence, event.record_count)
        producer_id, epoch, sequence, count = (-1 if value is None else value for value in columns)
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)
        duplicate, error = log.is_duplicate(batch), int(log.append_error(batch))
        given = {
            "AppendBatch": not duplicate and error == 0 and event.offset == log.log_end_offset,
            "AcknowledgeDuplicate": duplicate and log.duplicate_offset(batch) == event.offset,
            "RefuseBatch": not duplicate and error != 0 and error == event.error,
        }
        if not given[event.action]:
            return index
        if event.action == "AppendBatch":
            log = log.appended(batch)
    return None


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    archive = next(path for path in kept_recordings() if path.name == "one-broker.tar.xz")
    folder = tmp_path_factory.mktemp("kept") / "one-broker"
    unpack(archive, folder)
    return folder


IDEMPOTENT_ALONE = (
    "idempotent-lost-acks",
    "repeated-and-reordered-requests",
    "kill-producer",
    "crash-with-lost-acks",
    "trace",
)


@pytest.mark.parametrize("scenario", IDEMPOTENT_ALONE)
def test_the_reference_takes_every_step_of_the_kept_recording(one_broker: Path, scenario: str) -> None:
    events = list(read_history(one_broker / "histories" / f"{scenario}.jsonl"))
    partitions = {(e.topic, e.partition) for e in events if e.action == "Produce"}
    assert partitions
    for topic, partition in partitions:
        trace = wire_trace(events, str(topic), int(partition or 0))
        assert len(trace) > 30
        assert first_difference(trace) is None


def test_the_reference_refuses_a_spoiled_trace_of_the_kept_recording(one_broker: Path) -> None:
    events = list(read_history(one_broker / "histories" / "trace.jsonl"))
    trace = wire_trace(events, "trace", 0)
    appends = [index for index, event in enumerate(trace) if event.action == "AppendBatch"]
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    lost = random.Random(seed).choice(appends[:-1])
    following = next(index for index in appends if index > lost)
    difference = first_difference(trace[:lost] + trace[lost + 1 :])
    assert difference is not None
    assert difference <= following - 1
