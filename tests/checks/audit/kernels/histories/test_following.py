"""Readers that are followed range by range take the same steps as those that are followed event by event."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos_checks.audit.events.recorded import CHANGES, COMMITTED, NOWHERE, TOLD, UNCOMMITTED, what
from kafka_eos_checks.audit.kernels.histories.following import (
    STEP,
    Readers,
    fold_moves,
    follow_readers,
    moves_of,
)
from kafka_eos_checks.audit.kernels.histories.joining import LogOf, Setting

LOGGED = (7, 8)  # partitions with a log
KINDS = {
    "poll": what("Poll", "ok"),
    "wait": what("EndOfPartition", "ok"),
    "seek": what("Seek", "ok"),
    "leave": what("Revoke", "ok"),
    "abort": what("AbortTransaction", "ok"),
    "change": what("LeaderChange", "info"),
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


def same(some: Any, others: Any) -> bool:
    return np.array_equal(np.sort(some), np.sort(others))


EVENT = st.tuples(
    st.integers(1, 2),
    st.sampled_from([*KINDS, "poll", "poll", "wait"]),
    st.sampled_from((0, *LOGGED, 9)),
    st.integers(-2, 6),
)


@given(st.lists(EVENT, max_size=40), st.data())
def test_ranges_give_the_steps_of_the_whole_and_name_the_readers_they_cannot_follow(events: Any, data: Any) -> None:
    orders = data.draw(st.booleans())
    rows = told(*events, orders=orders)
    rows["flags"] = data.draw(st.sampled_from((COMMITTED, UNCOMMITTED)))
    of = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    if data.draw(st.booleans()):
        of = sorted(of)  # one range after the other
    parts = [rows[np.array(of, np.int64) == number] for number in range(4)]
    changes = rows[np.isin(rows["what"], CHANGES)]
    folded, gaps = followed(parts, changes, setting(orders), fold=True)
    rest = rows[~np.isin(rows["process"], folded.tangled)]
    whole, expected = followed([rest], changes, setting(orders), fold=False)
    assert same(gaps, expected)
    assert same(folded.backward, whole.backward)
    assert same(folded.fell, whole.fell)
    assert same(folded.unlogged, whole.unlogged)
    assert folded.figures == whole.figures
    if of == sorted(of):
        assert not len(folded.tangled), "ranges one after the other are never tangled"


def test_a_range_leaves_two_moves_of_a_reader_however_many_records_it_was_given_and_passed_over() -> None:
    polls = [(1, "poll", 7, 3 * number) for number in range(1000)]
    moves, steps = fold_moves(moves_of(told(*polls)), setting().places)
    assert moves["offset"].tolist() == [0, 2997]
    assert moves["count"].tolist() == [1, 999]
    assert len(steps) == 999
    waits = [(1, "wait", 7, number) for number in range(1000)]
    moves, steps = fold_moves(moves_of(told(*waits)), setting().places)
    assert len(moves) == 4, "the moves, and the ends that the reader was told"
    assert len(steps) == 999


def test_events_of_another_range_within_a_chain_tangle_their_reader_alone() -> None:
    rows = told(*((1 + number % 2, "poll", 7, number) for number in range(20)))
    late = rows["at"] % 8 < 4
    odd = rows["process"] == 1
    parts = [rows[odd & late], rows[odd & ~late], rows[~odd]]
    found, _ = followed(parts, rows[:0], setting(), fold=True)
    assert found.tangled.tolist() == [1]
    assert found.figures["steps"] == 10, "of the other reader"
