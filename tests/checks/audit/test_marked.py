"""Markers of logs, as events of a run."""

from dataclasses import replace
from pathlib import Path

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.marked import with_markers
from kafka_eos_checks.audit.segments.splits import find_logs

from .test_moments import NOW, PID, data, marker, partition

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def event(order: int, at_ms: int | None, action: str = "Produce", offset: int | None = None) -> Event:
    time_us = None if at_ms is None else (NOW + at_ms) * 1000
    own = {"topic": "orders", "partition": 0, "phase": "ok"}
    return Event(run="r", order=order, time_us=time_us, process="p", action=action, offset=offset, **own)  # type: ignore[arg-type]


def in_order(run: list[Event], folder: Path) -> list[tuple[str, int | None]]:
    return [(each.action, each.offset) for each in with_markers(run, find_logs(folder))]


def test_a_marker_stands_at_its_time_once_for_all_replicas_and_only_since_the_run_began(tmp_path: Path) -> None:
    batches = [marker(0, NOW - 1, COMMIT), data(1, NOW), marker(2, NOW + 20, ABORT), data(3, NOW + 30)]
    for broker in ("1", "2"):
        partition(tmp_path / broker, *batches)
        partition(tmp_path / broker, marker(0, NOW + 5, COMMIT), name="other-0")
    run = [event(0, 10, offset=1), event(1, 15, "EndTxn"), event(2, 25, "EndTxn"), event(3, 30, offset=3)]
    told = with_markers(run, find_logs(tmp_path))
    assert [each.order for each in told] == [0, 1, None, 2, 3]
    assert (told[2].process, told[2].offset, told[2].producer_id) == ("orders-0", 2, PID)
    assert told[2].detail == {"committed": False, "epoch": 1}


def test_a_marker_of_the_very_time_of_the_first_event_belongs_to_the_run(tmp_path: Path) -> None:
    partition(tmp_path, data(0, NOW), marker(1, NOW, COMMIT))
    for micros, offsets in ((998, [0, 1]), (999, [0, 1]), (1000, [0])):
        first = replace(event(0, 0, offset=0), time_us=NOW * 1000 + micros)
        assert [offset for _, offset in in_order([first], tmp_path)] == offsets, "a log has milliseconds"


def test_a_later_offset_in_the_run_comes_after_the_marker_whatever_the_clocks_say(tmp_path: Path) -> None:
    partition(tmp_path, data(0, NOW), marker(1, NOW + 500, COMMIT))
    run = [event(0, 10, offset=0), event(1, 20, "EndOfPartition", offset=2), event(2, 30, "EndTxn")]
    marked = [("Produce", 0), ("WriteTxnMarkers", 1), ("EndOfPartition", 2), ("EndTxn", None)]
    assert in_order(run, tmp_path) == marked
    assert in_order([replace(each, time_us=None) for each in run], tmp_path) == marked


def test_markers_of_several_partitions_at_one_offset_are_all_there(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1"):
        partition(tmp_path, data(0, NOW), marker(1, NOW + 5, COMMIT), name=name)
    run = [event(0, 0, offset=0), replace(event(1, 1, offset=0), partition=1)]
    assert in_order(run, tmp_path) == [("Produce", 0), ("Produce", 0), ("WriteTxnMarkers", 1), ("WriteTxnMarkers", 1)]


def test_a_run_that_has_markers_gets_no_others(tmp_path: Path) -> None:
    partition(tmp_path, data(0, NOW), marker(1, NOW + 20, COMMIT))
    run = [event(0, 10, offset=0), event(1, 20, "WriteTxnMarkers", offset=1)]
    assert with_markers(run, find_logs(tmp_path)) == run
