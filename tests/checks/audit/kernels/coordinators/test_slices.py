"""Slices of a hot producer id: their summaries and proofs may be joined in any order, and say what the whole would."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.internal_topics.decisions import Decisions
from kafka_eos_checks.audit.kernels.coordinators.matching import _is_a_way
from kafka_eos_checks.audit.kernels.coordinators.slices import (
    MOST_SILENT,
    OUT_OF_ORDER,
    Counts,
    Cuts,
    Markers,
    Routes,
    Shared,
    Slice,
    after,
    before_each,
    both_decisions,
    counted,
    counted_on,
    cuts_of,
    in_pieces,
    joined,
    routed,
    sliced,
    summed_up,
    ways_through,
)
from kafka_eos_checks.audit.kernels.logs.transactions import NO_STEPS, STEP, Part, paired
from kafka_eos_checks.audit.rules.coordinator import Transaction
from kafka_eos_checks.audit.rules.transactions.names import MOST_WAYS
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH

Row = tuple[int, bool, int]  # epoch, whether it ends no data, coordinator epoch
PLACES = [("t", 0), ("t", 1)]
NO_REST = paired([], [])


def summary(rows: Sequence[Row]) -> Markers:
    epoch, silent, coordinator = zip(*rows, strict=True)
    return summed_up(np.array(epoch), np.array(silent, np.bool_), np.array(coordinator))


def rows_of(raises: Sequence[tuple[int, bool, int]]) -> list[Row]:
    """Markers with epochs that mostly rise, by the differences of their epochs."""
    epoch, rows = 10, []
    for raised, silent, coordinator in raises:
        epoch += raised
        rows.append((epoch, silent, coordinator))
    return rows


ROWS = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 2, -1]), st.booleans(), st.sampled_from([NO_EPOCH, 3, 3, 4])),
    min_size=3,
    max_size=9,
).map(rows_of)


@given(ROWS, st.data())
def test_summaries_of_markers_are_joined_in_any_order(rows: list[Row], data: st.DataObject) -> None:
    low = data.draw(st.integers(1, len(rows) - 2))
    high = data.draw(st.integers(low + 1, len(rows) - 1))
    one, two, three = summary(rows[:low]), summary(rows[low:high]), summary(rows[high:])
    assert joined(joined(one, two), three) == joined(one, joined(two, three)) == summary(rows)
    assert joined(OUT_OF_ORDER, one) == joined(Markers(0, 1, 0, 0, 1, 0, -1, -1), OUT_OF_ORDER) == OUT_OF_ORDER


def decision(epoch: int, places: Sequence[int], *, commits: bool = True, version: int = 0, ms: int = 5) -> Transaction:
    return Transaction(
        transactional_id="id",
        number=0,
        producer_id=7,
        data_epoch=epoch,
        marker_epoch=epoch,
        version=version,
        decision=ControlType.COMMIT if commits else ControlType.ABORT,
        partitions=frozenset(PLACES[place] for place in places),
        decided_ms=ms,
    )


DECIDED = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, -1]), st.lists(st.sampled_from([0, 1]), max_size=2), st.booleans()),
    min_size=3,
    max_size=9,
)


def decisions_of(raises: Sequence[tuple[int, list[int], bool]]) -> Decisions:
    epoch, found = 10, []
    for raised, places, commits in raises:
        epoch += raised
        found.append(decision(epoch, places, commits=commits))
    return Decisions.of(found)


def some(counts: Counts) -> tuple[object, ...]:
    """Counts that can be compared: 0 is as good as none."""
    return (
        counts.first_epoch,
        {place: n for place, n in counts.first.items() if n},
        counts.last_epoch,
        {place: n for place, n in counts.last.items() if n},
        counts.in_order,
    )


@given(DECIDED, st.data())
def test_summaries_of_decisions_are_joined_in_any_order(
    raises: list[tuple[int, list[int], bool]], data: st.DataObject
) -> None:
    low = data.draw(st.integers(1, len(raises) - 2))
    high = data.draw(st.integers(low + 1, len(raises) - 1))
    whole = decisions_of(raises)
    one, two, three = (counted(whole.take(slice(*cut))) for cut in ((0, low), (low, high), (high, None)))
    left, right = counted_on(counted_on(one, two), three), counted_on(one, counted_on(two, three))
    assert some(left) == some(right) == some(counted(whole))
    assert before_each([one, two, three])[:2] == [None, one]


@given(
    st.lists(st.sampled_from([0, 1]), min_size=1, max_size=9),
    st.lists(st.tuples(st.sampled_from([0, 1, 1, NO_DECISION]), st.booleans()), min_size=1, max_size=9),
    st.booleans(),
    st.lists(st.integers(0, 9), max_size=3),
)
def test_slices_have_a_way_if_all_of_their_markers_have_one(
    due: list[int], markers: list[tuple[int, bool]], follow: bool, cuts: list[int]
) -> None:
    if follow:  # the decisions themselves, and each commit once more
        markers = [one for each in due for one in [(each, False), (each, True)][: 1 + each]]
    decisions, silent = np.array([one for one, _ in markers]), np.array([quiet for _, quiet in markers], np.bool_)
    repeated, places = 1, sorted({0, len(markers), *(min(cut, len(markers)) for cut in cuts)})
    for low, high in pairwise(places):
        at = Shared(0, 7, 10, 0, low, int(silent[:low].sum()), high - low, 0, is_last=high == len(markers))
        first = max(low - at.silent - 1, 0)
        told = np.array(due[first : None if at.is_last else high], np.int8)
        repeated = after(repeated, ways_through(decisions[low:high], silent[low:high], told, first, at))
    assert bool(repeated) == _is_a_way(np.array(due), 0, decisions, ~silent)


@given(DECIDED, st.integers(1, 4))
def test_each_decision_goes_where_its_markers_are(raises: list[tuple[int, list[int], bool]], size: int) -> None:
    raises = [(abs(raised), places, commits) for raised, places, commits in raises]
    whole = decisions_of(raises)
    here = [n for n, (_, places, _) in enumerate(raises) if 0 in places]
    epochs = whole.marker_epoch[here].tolist()
    if not here:
        return
    # The markers on partition 0 in two slices, as many as there are decisions.
    cut = len(here) // 2
    before = sum(each == epochs[cut] for each in epochs[:cut])
    slices = np.array([(epochs[0], 0, 0), (epochs[cut], 100, 1)][: 1 + (cut > 0)], np.int64)
    shared = []
    if before:
        behind = sum(each == epochs[cut] for each in epochs[cut:])
        shared = [
            Shared(0, 7, epochs[cut], 0, 0, 0, before, 0, is_last=False),
            Shared(0, 7, epochs[cut], 1, before, 0, behind, 1, is_last=True),
        ]
    routes = Routes(Cuts(7, {0: slices}, shared, are_counted=True), {PLACES[0]: 0}, {0: PLACES[0]}, set(), {0: 0})
    pieces = list(in_pieces(whole, size))
    sent, due = [], []
    for piece, base in zip(pieces, before_each([counted(piece) for piece in pieces]), strict=True):
        own, own_due = routed(piece, base, routes)
        sent += own
        due += own_due
        assert all(set(each.sets[n]) == {PLACES[0]} for _, each in own for n in each.partitions.tolist())
    for at in shared:
        got = [(each.first + n, int(d)) for each in due if each.place == at for n, d in enumerate(each.decisions)]
        of_epoch = [int(whole.decision[n]) for n in here if whole.marker_epoch[n] == at.epoch]
        wanted = list(enumerate(of_epoch))[max(at.before - 1, 0) :]
        assert got == (wanted if at.is_last else wanted[: at.markers])
    alone = [each for each in epochs if not shared or each != epochs[cut]]
    assert sum(len(each) for _, each in sent) == len(alone)
    second = sum(len(each) for task, each in sent if task == 1)
    assert second == sum(each >= epochs[cut] for each in alone if cut)


def test_an_old_or_replaced_decision_is_told_with_those_that_slices_share() -> None:
    shared = [
        Shared(0, 7, 10, 0, 0, 0, 1, 0, is_last=False),
        Shared(0, 7, 10, 1, 1, 0, 1, 1, is_last=True),
    ]
    slices = np.array([(10, 0, 0), (10, 100, 1)], np.int64)
    for begins_ms, plain in ((5, True), (6, False)):
        cuts = Cuts(7, {0: slices}, shared, are_counted=True)
        routes = Routes(cuts, {PLACES[0]: 0}, {0: PLACES[0]}, set(), {0: begins_ms})
        _, due = routed(Decisions.of([decision(10, [0]), decision(10, [0])]), None, routes)
        assert [each.is_plain for each in due] == [plain, plain]


def test_a_slice_is_sent_the_decisions_back_to_the_first_that_its_markers_may_be_of() -> None:
    shared = [
        Shared(0, 7, 10, 0, 0, 0, 4, 0, is_last=False),
        Shared(0, 7, 10, 1, 4, 2, 2, 1, is_last=True),  # two of the four before it may be repetitions
    ]
    routes = Routes(
        Cuts(7, {0: np.array([(10, 0, 0), (10, 100, 1)], np.int64)}, shared, are_counted=True),
        {PLACES[0]: 0},
        {0: PLACES[0]},
        set(),
        {0: 0},
    )
    _, due = routed(Decisions.of([decision(10, [0])] * 6), None, routes)
    assert [(each.first, len(each.decisions)) for each in due] == [(0, 4), (1, 5)]


def test_a_piece_of_decisions_ends_where_a_transaction_of_its_id_is_left_out() -> None:
    whole = Decisions.of([replace(decision(10, [0]), number=number) for number in (0, 1, 3, 4, 6)])
    assert [piece.number.tolist() for piece in in_pieces(whole, 9)] == [[0, 1], [3, 4], [6]]
    two = Decisions.of([replace(decision(10, [0]), transactional_id=name, number=n) for n, name in enumerate("aabb")])
    assert [piece.number.tolist() for piece in in_pieces(two, 9)] == [[0, 1], [2, 3]], "nor does it have two ids"


def steps_of(rows: Sequence[tuple[int, int, bool]]) -> np.ndarray:
    """Steps with offset, producer id, and whether they are markers."""
    steps = np.zeros(len(rows), STEP)
    steps["offset"] = steps["position"] = [row[0] for row in rows]
    steps["producer_id"], steps["is_marker"] = [row[1] for row in rows], [row[2] for row in rows]
    return steps


def test_a_slice_begins_after_a_marker_and_ends_with_one() -> None:
    hot = [(n, 7, n % 2 == 1) for n in range(10)] + [(20, 7, False)]
    rows = sorted([*hot, (50, 8, False), (51, 8, True)])
    parts = [Part(3, 0, 0, steps_of(rows[:5])), Part(3, 0, 900, steps_of(rows[5:])), Part(3, 1, 0, NO_STEPS)]
    rest, [(own, cut)] = sliced(parts, 4, 2)
    assert (own.log, own.producer_id, own.offset, own.task) == (3, 7, 2, 1)
    assert (own.markers.first, own.markers.first_silent) == (4, 0)
    assert [(each.start, each.steps["offset"].tolist()) for each in cut.each()] == [
        (0, [2, 3, 4]),
        (900, [5, 6, 7, 8, 9]),
    ]
    assert [offset for part in rest for offset in part.steps["offset"].tolist()] == [0, 1, 20, 50, 51]
    assert sliced(parts, 6, 2)[1] == [], "it has too few markers"


def test_two_decisions_of_an_epoch_are_found_across_slices() -> None:
    rows = [np.array([(7, 3, 1), (8, 3, 0)]), np.array([(7, 3, 0), (8, 4, 1)])]
    assert both_decisions(rows) == {7}
    assert both_decisions(rows[:1]) == set()


def test_a_slice_is_not_proved_if_more_ways_are_possible_than_the_rule_follows() -> None:
    for silent in (MOST_WAYS, MOST_WAYS + 1):
        decisions, due = np.ones(silent, np.int64), np.ones(silent + 9, np.int8)
        whole = Shared(0, 7, 10, 0, 0, 0, silent, 0, is_last=True)
        ways = ways_through(decisions, np.ones(silent, np.bool_), due, 0, whole)
        assert bool(after(1, ways)) == (silent == MOST_WAYS)
        assert after(0b10, ways) == 0, "nothing can be repeated before it"


def test_too_many_markers_without_data_are_not_counted() -> None:
    for silent, are_counted in ((MOST_SILENT // 2, True), (MOST_SILENT // 2 + 1, False)):
        own = [Slice(3, 7, offset, 0, summary([(1, True, 3)] * silent)) for offset in (0, 100)]
        assert cuts_of(7, own, NO_REST, 0).are_counted == are_counted
    own = [Slice(3, 7, offset, 0, summary([(epoch, False, 3)])) for offset, epoch in ((0, 2), (100, 1))]
    assert not cuts_of(7, own, NO_REST, 0).are_counted, "an epoch goes back"


def test_slices_that_share_an_epoch_know_how_many_markers_of_it_come_before() -> None:
    rows: list[list[Row]] = [[(1, False, 3)] * 3, [(1, True, 3)] * 2 + [(2, False, 3)], [(3, False, 3), (4, False, 3)]]
    own = [Slice(3, 7, 100 * n, n, summary(each)) for n, each in enumerate(rows)]
    own.append(Slice(3, 7, 300, 3, summary([(4, False, 3)] * 5)))
    cuts = cuts_of(7, own, NO_REST, 0)
    assert cuts.logs[3].tolist() == [[1, 0, 0], [1, 100, 1], [3, 200, 2], [4, 300, 3]]
    assert cuts.shared == [
        Shared(3, 7, 1, 0, 0, 0, 3, 0, is_last=False),
        Shared(3, 7, 1, 1, 3, 0, 2, 1, is_last=True),
        Shared(3, 7, 4, 2, 0, 0, 1, 2, is_last=False),
        Shared(3, 7, 4, 3, 1, 0, 5, 3, is_last=True),
    ]


def test_joining_is_a_fold() -> None:
    rows: list[Row] = [(1, False, 3)] * 4 + [(2, True, 3)] * 5
    assert reduce(joined, [summary([row]) for row in rows]) == Markers(1, 4, 0, 2, 5, 5, 3, 3)
