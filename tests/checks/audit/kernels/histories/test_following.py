"""Readers that are followed range by range take the same steps as those that are followed event by event."""

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from kafka_eos.histories.history import PHASES, Event
from kafka_eos_checks.audit.events.blocks import NOWHERE
from kafka_eos_checks.audit.events.recorded import ACTIONS, CHANGES, COMMITTED, TOLD, UNCOMMITTED, what
from kafka_eos_checks.audit.kernels.histories.following import (
    STEP,
    Readers,
    fold_moves,
    follow_readers,
    moves_of,
)
from kafka_eos_checks.audit.kernels.histories.joining import LogOf, Setting
from kafka_eos_checks.audit.rules.readers import _steps, went_back
from kafka_eos_checks.audit.segments.contents import Figures

from ...conftest import drawn

LOGGED = (7, 8)  # partitions with a log
KINDS = {
    "poll": what("Poll", "ok"),
    "wait": what("EndOfPartition", "ok"),
    "seek": what("Seek", "ok"),
    "leave": what("Revoke", "ok"),
    "abort": what("AbortTransaction", "ok"),
    "change": what("LeaderChange", "info"),
    "crash": what("Crash", "info"),
}


def told(*events: tuple[int, str, int, int], orders: bool = True) -> Any:
    """Events as rows: process, kind, partition, offset."""
    rows = np.zeros(len(events), TOLD)
    for at, (process, kind, place, offset) in enumerate(events):
        rows[at] = (0, process, 0, 0, place, offset, at if orders else NOWHERE, at, KINDS[kind], COMMITTED)
    return rows


def setting(orders: bool = True) -> Setting:
    return Setting(orders, {number: LogOf(place, 0, True) for number, place in enumerate(LOGGED)})


def followed(parts: list[Any], changes: Any, of: Setting, *, fold: bool) -> tuple[Readers, Any]:
    """The readers of some ranges of a history, and all gaps."""
    folded = [fold_moves(moves_of(part), of.places) if fold else (moves_of(part), np.zeros(0, STEP)) for part in parts]
    found = follow_readers(np.concatenate([moves for moves, _ in folded]), changes, of)
    within = np.concatenate([steps for _, steps in folded])
    within = within[~np.isin(within["process"], found.tangled)]
    within["process"] = 0
    return found, np.concatenate([within, found.gaps])


def as_events(rows: Any, of: Setting) -> list[Event]:
    """The same events for the readable rules, in the order of the run; ``order`` is the place of each."""
    names = {kind: ACTIONS[kind // len(PHASES)] for kind in KINDS.values()}
    isolation = {COMMITTED: "read_committed", UNCOMMITTED: "read_uncommitted"}
    return [
        Event(
            run="r",
            process=str(row["process"]),
            action=names[row["what"]],
            phase=PHASES[row["what"] % len(PHASES)],
            topic=f"t{row['place']}" if row["place"] else None,
            partition=0 if row["place"] else None,
            offset=int(row["offset"]),
            isolation=isolation[row["flags"]],
            order=int(row["at"]),
        )
        for row in rows[np.lexsort((rows["at"], of.when(rows)))]
    ]


def read(rows: Any, of: Setting) -> tuple[Any, ...]:
    """The gaps, the steps back, the ends that fell, and the numbers of steps and ends, by the readable rules."""
    events = as_events(rows, of)
    steps = [step for step in _steps(events) if step.place in {(f"t{p}", 0) for p in LOGGED}]
    gaps = [(step.event.order, step.start) for step in steps if step.start < step.offset]
    back = [
        (step.event.order, step.start)
        for step in steps
        if step.offset < step.start and step.event.action == "Poll" and not step.may_go_back
    ]
    counted: Figures = {"checked": 0}
    fell = [finding.evidence.split()[1] for finding in went_back(events, counted)]
    return sorted(gaps), sorted(back), sorted(map(int, fell)), len(steps), counted["checked"]


def told_by(found: Readers, gaps: Any) -> tuple[Any, ...]:
    rows = ([(row["at"], row["start"]) for row in rows] for rows in (gaps, found.backward))
    return *map(sorted, rows), sorted(found.fell["at"]), found.figures["steps"], found.figures["ends"]


EVENT = st.tuples(
    st.sampled_from((1, 1, 1, 2)),
    st.sampled_from([*KINDS, *["poll", "wait"] * 3]),
    st.sampled_from((7, 7, 7, 8, 9, 0)),
    st.integers(-2, 9),
)


@drawn(st.lists(EVENT, max_size=30), st.randoms(use_true_random=False), few=100, many=400)
def test_ranges_give_the_steps_of_the_whole_and_name_the_readers_they_cannot_follow(events: Any, rng: Any) -> None:
    orders, sequential = rng.random() < 0.8, rng.random() < 0.5
    if rng.random() < 0.5:
        events = sorted(events, key=lambda event: event[3])  # offsets ascend, as they mostly do
    rows = told(*events, orders=orders)
    rows["flags"] = rng.choice((COMMITTED, COMMITTED, UNCOMMITTED))
    if orders and len(rows) > 1 and rng.random() < 0.3:  # files that do not have the order of the run
        sequential = False
        one, other = rng.sample(range(len(rows)), 2)
        rows["order"][[one, other]] = rows["order"][[other, one]]
    number = np.array([rng.randrange(3) for _ in events], np.int64)
    number = np.sort(number) if sequential else number
    changes = rows[np.isin(rows["what"], CHANGES)]
    folded, gaps = followed([rows[number == each] for each in range(3)], changes, setting(orders), fold=True)
    if sequential:
        assert not len(folded.tangled), "ranges one after the other are never tangled"
    rest = rows[~np.isin(rows["process"], folded.tangled) | np.isin(rows["what"], CHANGES)]
    assert told_by(folded, gaps) == read(rest, setting(orders))
    whole, _ = followed([rest], changes, setting(orders), fold=False)
    assert np.array_equal(np.sort(folded.unlogged), np.sort(whole.unlogged))


def test_a_range_leaves_two_moves_of_a_reader_however_many_records_it_was_given_and_passed_over() -> None:
    polls = [(reader, "poll", 7, 3 * number) for reader in (2, 1) for number in range(1000)]
    moves, steps = fold_moves(moves_of(told(*polls)), setting().places)
    assert moves["offset"].tolist() == [0, 2997] * 2
    assert moves["count"].tolist() == [1, 999] * 2
    assert len(steps) == 2 * 999
    waits = [(1, "wait", 7, number // 2) for number in range(1000)]
    moves, steps = fold_moves(moves_of(told(*waits)), setting().places)
    assert len(moves) == 4, "the moves, and the ends that the reader was told"
    assert len(steps) == 499


def test_an_end_within_a_chain_is_neither_the_first_after_a_change_nor_after_an_end_of_another_range() -> None:
    rows = told((1, "wait", 7, -3), (1, "change", 0, 0), (1, "wait", 7, -2), (1, "wait", 7, -1))
    changes = rows[1:2]
    found, _ = followed([rows], changes, setting(), fold=True)
    assert found.fell["at"].tolist() == [0, 2], "ends below 0, each the first after a change"
    rows = told((1, "wait", 7, 5), (1, "wait", 7, 9), (1, "poll", 7, 2), (1, "wait", 7, 6), (1, "wait", 7, 7))
    found, _ = followed([rows[[0, 2, 3, 4]], rows[[1]]], rows[:0], setting(), fold=True)
    assert found.tangled.tolist() == [1]


@pytest.mark.parametrize("kind", ["poll", "wait"])
def test_a_file_in_another_order_than_the_run_makes_no_chain(kind: str) -> None:
    rows = told((1, kind, 7, 5), (1, kind, 7, 6), (1, kind, 7, 7))
    rows["order"] = 1, 0, 2
    found, gaps = followed([rows], rows[:0], setting(), fold=True)
    expected = read(rows, setting())
    assert told_by(found, gaps) == expected
    assert len(expected[1] or expected[2]) == 1, "it goes back once"


def test_events_of_another_range_within_a_chain_tangle_their_reader_alone() -> None:
    rows = told(*((1 + number % 2, "poll", 7, number) for number in range(20)))
    late = rows["at"] % 8 < 4
    odd = rows["process"] == 1
    parts = [rows[odd & late], rows[odd & ~late], rows[~odd]]
    found, _ = followed(parts, rows[:0], setting(), fold=True)
    assert found.tangled.tolist() == [1]
    assert found.figures["steps"] == 10, "of the other reader"
