"""Events that tasks need: a range of a history is read once for all of them."""

from pathlib import Path

import numpy as np
import pytest

from kafka_eos.histories.history import Event, write_history
from kafka_eos_checks.audit.events.history_files import ranges_of
from kafka_eos_checks.audit.events.recorded import AT_BITS, RunFacts
from kafka_eos_checks.audit.plan import sought as module
from kafka_eos_checks.audit.plan.sought import SOUGHT, Shown, events_of, fetch_events, in_order, sought, starts_of

FILES, EVENTS = 2, 40


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Histories whose events are numbered downwards, so that their order is not that of their places."""
    found = []
    for number in range(FILES):
        orders = (1000 * number + EVENTS - place for place in range(EVENTS))
        events = [Event(run="r", process="p", action="Poll", phase="ok", order=order) for order in orders]
        found.append(tmp_path / f"{number}.jsonl")
        write_history(found[-1], events)
    return found


def test_each_range_is_read_once_and_its_events_go_to_the_tasks_that_need_them(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [(number, part) for number, file in enumerate(files) for part in ranges_of(file, 500)]
    starts = starts_of(parts)
    assert len(parts) > 2 * FILES
    assert sorted(starts.tolist()) == starts.tolist()
    lines = [file.read_bytes().splitlines(keepends=True) for file in files]
    ends = [np.cumsum([len(line) for line in own]).tolist() for own in lines]
    places = np.array(
        [number << AT_BITS | own[at] for at in (-2, 0, 1, 2) for number, own in enumerate(ends)], np.int64
    )
    rows = [
        *sought(7, ("own",), 3, places, starts),
        *sought(8, ("each", 1), np.array([5, 4, 5, 5, 4, 5, 5, 4]), places, starts),
        *sought(9, (), 0, places[:0], starts),
    ]
    assert {row.kind for row in rows} == {SOUGHT}
    read, lines_at = list[tuple[Path, list[int]]](), module.lines_at

    def noted(path: Path, wanted: list[int]) -> object:
        read.append((path, wanted))
        return lines_at(path, wanted)

    monkeypatch.setattr(module, "lines_at", noted)
    by_part = {row.key: [each.value for each in rows if each.key == row.key] for row in rows}
    assert all((place >= starts[part]) for part, own in by_part.items() for each in own for place in each.places)
    given = [row for part, own in by_part.items() for row in fetch_events(part, own, files=files)]
    assert len(read) == len(by_part) == 2 * FILES
    assert len(given) == 10, "one for each range, kind and key"
    assert sorted(at for _, wanted in read for at in wanted) == sorted((places & ((1 << AT_BITS) - 1)).tolist())
    assert {(row.kind, row.key, *row.value[:-1]) for row in given} == {
        (7, 3, "own"),
        (8, 5, "each", 1),
        (8, 4, "each", 1),
    }

    def orders(kind: int, key: int) -> dict[int, int | None]:
        own = [row.value[-1] for row in given if (row.kind, row.key) == (kind, key)]
        return {at: event.order for at, event in events_of(own).items()}

    expected = dict(
        zip(
            places.tolist(),
            [1, 1001, *(1000 * number + EVENTS - at for at in (1, 2, 3) for number in range(FILES))],
            strict=True,
        )
    )
    assert orders(7, 3) == expected
    assert orders(8, 4) == {at: expected[at] for at in places[[1, 4, 7]].tolist()}
    assert orders(8, 4) | orders(8, 5) == expected


def test_an_event_at_the_start_of_a_range_is_sought_there(files: list[Path]) -> None:
    starts = starts_of([(number, part) for number, file in enumerate(files) for part in ranges_of(file, 500)])
    rows = list(sought(7, (), 0, starts, starts))
    assert [(row.key, row.value.places.tolist()) for row in rows] == [(n, [at]) for n, at in enumerate(starts.tolist())]


@pytest.mark.parametrize("ordered", [True, False])
def test_fetched_events_are_in_the_order_of_their_run(ordered: bool, files: list[Path]) -> None:
    lines = files[0].read_bytes().splitlines(keepends=True)
    shown = Shown(np.array([30, 10, 20]), [lines[0], lines[1], lines[2]])
    found = in_order(events_of([shown]), RunFacts("r", 0, ordered=ordered))
    assert [(at, event.order) for at, event in found] == (
        [(20, EVENTS - 2), (10, EVENTS - 1), (30, EVENTS)]
        if ordered
        else [(10, EVENTS - 1), (20, EVENTS - 2), (30, EVENTS)]
    )


def test_a_line_that_the_fast_decoder_refuses_is_read_all_the_same() -> None:
    line = b'{"run":"\\ud800","process":"p","action":"Poll","phase":"ok"}\n'
    assert events_of([Shown(np.array([0]), [line])])[0].run == "\ud800"
