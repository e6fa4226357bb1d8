"""The markers in logs as events of a history, so that a diagram shows the end of a transaction whoever wrote it.

A recorded history has the requests of clients. A marker is written by a broker, for a coordinator or for an operator
who aborts by hand, so the history of a real cluster does not have it. A simulated or served run has its own events of
markers, and gets no others.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.events.history_files import read_events
from kafka_eos_checks.audit.segments.contents import Place, place_of
from kafka_eos_checks.audit.segments.marks import NO_DECISION
from kafka_eos_checks.audit.segments.reading import read_marked
from kafka_eos_checks.audit.segments.splits import PartitionLog

MARKER = "WriteTxnMarkers"
_COLUMNS = ("base_offset", "producer_id", "producer_epoch", "max_timestamp", "attributes")


def read_runs(
    histories: Iterable[Path], logs: Sequence[PartitionLog], *, check_crc: bool = True
) -> dict[str, list[Event]]:
    """The runs of histories by name, with the markers of the logs.

    Args:
        histories: files of events.
        logs: the logs.
        check_crc: whether to compare each batch with its CRC.

    Raises:
        MalformedHistory, OSError: a history or a log cannot be read.
    """
    runs: dict[str, list[Event]] = {}
    for path in histories:
        for event in read_events(path):
            runs.setdefault(event.run, []).append(event)
    return {name: with_markers(events, logs, check_crc=check_crc) for name, events in runs.items()}


def with_markers(run: Sequence[Event], logs: Iterable[PartitionLog], *, check_crc: bool = True) -> list[Event]:
    """A run with the markers that the logs have in its partitions since its first event.

    A marker has no order. It stands where its timestamp puts it, and before any event that names a later offset.
    """
    if any(event.action == MARKER for event in run):
        return list(run)
    told: dict[Place, list[tuple[int, int]]] = {}  # the highest offset so far, and the place of the event in the run
    for number, event in enumerate(run):
        if (place := place_of(event)) is not None:
            own = told.setdefault(place, [])
            if event.phase == "ok" and event.offset is not None and event.offset > (own[-1][0] if own else -1):
                own.append((event.offset, number))
    times = list(accumulate((event.time_us or 0 for event in run), max))
    before: dict[int, list[Event]] = defaultdict(list)
    markers = _markers(run[0].run, told, logs, check_crc)
    for marker in sorted(markers, key=lambda each: (each.time_us, each.offset)):
        place, time_us = place_of(marker), marker.time_us
        assert place is not None, "it is in a log"
        assert time_us is not None, "every batch has a time"
        if times[-1] and time_us < times[0]:
            continue
        later = bisect_right(told[place], (marker.offset or 0, len(run)))
        limit = told[place][later][1] if later < len(told[place]) else len(run)
        before[min(limit, bisect_right(times, time_us)) if times[-1] else limit].append(marker)
    return [each for number in range(len(run) + 1) for each in (*before[number], *run[number : number + 1])]


def _markers(run: str, places: Container[Place], logs: Iterable[PartitionLog], check_crc: bool) -> Iterable[Event]:
    """The markers of some partitions as events of a run; those that replicas share once."""
    own = [log for log in logs if (log.topic, log.partition) in places]
    return {(event.process, event.offset): event for log in own for event in _markers_of(log, run, check_crc)}.values()


def _markers_of(log: PartitionLog, run: str, check_crc: bool) -> Iterator[Event]:
    """The markers of a log, as events of a run. The log itself is their process: it does not say who sent them."""
    for name in log.segments:
        for headers, marks in read_marked(log.file(name), _COLUMNS, end=log.end_of(name), check_crc=check_crc):
            rows = marks.row[marks.decision != NO_DECISION]
            decisions = marks.decision[marks.decision != NO_DECISION]
            columns = [headers.column(column)[rows].tolist() for column in _COLUMNS[:4]]
            for offset, producer_id, epoch, time_ms, decision in zip(*columns, decisions.tolist(), strict=True):
                yield Event(
                    run=run,
                    time_us=time_ms * 1000 + 999,  # the log has milliseconds
                    process=f"{log.topic}-{log.partition}",
                    action=MARKER,
                    phase="ok",
                    topic=log.topic,
                    partition=log.partition,
                    offset=offset,
                    producer_id=producer_id,
                    detail={"committed": decision == ControlType.COMMIT, "epoch": epoch},
                )
