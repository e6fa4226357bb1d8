"""Slices whose markers cannot be counted are put together; all others know where their decisions go."""

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import read_coordinator_log
from kafka_eos_checks.audit.kernels.coordinators.slices import Counts, Cuts, Shared
from kafka_eos_checks.audit.kernels.logs.transactions import NO_STEPS, Part, Partition, Parts
from kafka_eos_checks.audit.oracle.random_states import RandomStates, folder_of, write_random_log
from kafka_eos_checks.audit.plan.slice_stages import Around, CutId, Piece, Rest, _routes, divided, rows_of_ids
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs

LOG, STATES = PartitionLog("", "t", 0, "/t-0", ()), PartitionLog("", "__transaction_state", 0, "/s-0", ())
SHARED = (Shared(0, 7, 1, 0, 0, 0, 4, 0, is_last=False), Shared(0, 7, 1, 1, 4, 0, 4, 1, is_last=True))
CUTS = Cuts(7, {0: np.array([(1, 0, 0), (1, 50, 1)])}, SHARED, are_counted=True)


def around(*, start: int = 0, holes: int = 0, states_start: int = 0) -> Around:
    return Around(
        partitions=[Partition(log=LOG, start=start, holes=holes), Partition(log=STATES)],
        chosen=[0],
        coordinators=[CoordinatorLog(STATES, records=5, start=states_start, end=5)],
        numbers={LOG: 0, STATES: 1},
        given=True,
        moments=SimpleNamespace(),  # type: ignore[arg-type] - not used here
        again=frozenset(),
    )


def owner(*epochs: tuple[int, int], names: tuple[str, ...] = ("id",)) -> CutId:
    ids: Any = SimpleNamespace(names=list(names))
    pieces = [Piece((0, 0, n), n, Counts(first, {}, last, {})) for n, (first, last) in enumerate(epochs)]
    return CutId(1, 7, ids, pieces)


def routed(known: Around, *owners: CutId, cuts: Cuts = CUTS) -> set[int] | None:
    """The logs whose markers are matched by epoch; None if all of them are put together."""
    routes = _routes([cuts], known, {7: owners})
    return set(routes[7].by_epoch) if 7 in routes else None


def test_markers_are_counted_if_their_order_is_known() -> None:
    assert routed(around(), owner((1, 1), (1, 2))) == set()
    assert routed(around(), owner()) == set()


@pytest.mark.parametrize(
    ("known", "own", "cuts"),
    [
        (around(start=3), owner((1, 1)), CUTS),
        (around(), owner((2, 2), (1, 1)), CUTS),
        (around(), owner((1, 1)), CUTS._replace(are_counted=False)),
    ],
)
def test_slices_whose_markers_cannot_be_counted_are_put_together(known: Around, own: CutId, cuts: Cuts) -> None:
    assert routed(known, own, cuts=cuts) is None


@pytest.mark.parametrize(
    ("known", "owners"),
    [
        (around(states_start=3), [owner((1, 1))]),
        (around(holes=1), [owner((1, 1))]),
        (around(start=3, holes=1), [owner((1, 1))]),
        (around(), []),
        (around(), [owner((1, 1)), owner((1, 1))]),
        (around(), [owner((1, 1), names=("id", "other"))]),
    ],
)
def test_where_no_order_can_be_used_none_is_needed(known: Around, owners: list[CutId]) -> None:
    assert routed(known, *owners) == {0}


def test_only_the_last_decision_of_an_id_stays_with_it_and_none_with_a_slice(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    write_random_log(folder, random.Random(0), RandomStates(records=80))
    [log] = find_logs(folder)
    folded = read_coordinator_log(log).folded
    assert folded is not None
    every = [folded.transactional_id(number).transactions for number in range(len(folded.names))]
    assert max(map(len, every)) > 1
    cut = set(folded.owned_producer_id.tolist())
    for joint, kept in ((None, 1), (7, 0)):
        bare, _, rows = rows_of_ids(0, (0, 0), folded, cut, 2, 3, joint)
        left = [bare.transactional_id(number).transactions for number in range(len(bare.names))]
        assert left == [own[len(own) - kept :] if own else [] for own in every]
        assert sum(len(row.value.decisions) for row in rows) == len(folded.decisions)


def test_of_a_log_that_is_read_again_only_the_steps_around_slices_count() -> None:
    ahead = [Part(log, 0, 0, NO_STEPS) for log in (0, 1)]
    again = Part(1, 0, 9, NO_STEPS)
    parts, decided = divided([Parts.of(ahead), Rest(Parts.of([again]))], replace(around(), again=frozenset({1})))
    assert ([part[:3] for part in parts], decided) == ([(0, 0, 0), (1, 0, 9)], [])
