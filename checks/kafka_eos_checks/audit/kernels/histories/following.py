"""Readers followed from step to step: offsets that they passed over, steps back, and the ends that they were told.

A *move* is an event that moves a reader in a partition: the reader was given a record, or waits at the end. The moves
of a range of a history are folded while the range is read (:func:`fold_moves`): only the first and the last of a chain
of moves forward are left, because what was passed over within the chain is known. :func:`follow_readers` joins the
ranges. A fold does not hold if an event of another range belongs into the chain; :attr:`Readers.tangled` names these
readers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kafka_eos_checks.audit.events.blocks import NOWHERE
from kafka_eos_checks.audit.events.recorded import (
    ABORTS,
    CHANGES,
    COMMITTED,
    LEFT,
    MOVED,
    OTHER,
    POLLED,
    SOUGHT,
    UNCOMMITTED,
    WAITED,
    Hashes,
    Rows,
)
from kafka_eos_checks.audit.kernels.histories.joining import Setting, is_in
from kafka_eos_checks.audit.kernels.histories.stored import VISIBLE
from kafka_eos_checks.audit.segments.headers import Ints, Mask

MOVE = np.dtype(
    [
        *(("process", "u8"), ("place", "u8"), ("offset", "i8"), ("order", "i8"), ("at", "i8")),
        ("head", "i8"),  # of a chain's last event, the place of its first one, maybe a seek; NOWHERE of all others
        ("count", "i4"),  # how many moves it stands for, its own among them
        ("what", "u1"),
        ("flags", "u1"),
    ]
)
"""An event of a reader; of a chain the first and the last."""
END = OTHER + 1  # what: an end of a partition, as a reader of committed data was told; next to the move itself
STEP = np.dtype(
    [
        *(("at", "i8"), ("start", "i8"), ("offset", "i8"), ("place", "u8")),
        ("process", "u8"),  # of a step within a chain; 0 of all others
        ("all", "?"),
        ("back", "?"),
    ]
)
"""A step of a reader: its event, its start and end, whether hidden records count, whether it may go back."""


def moves_of(rows: Rows) -> Rows:
    """The events of readers among some of one run, dtype :data:`MOVE`, each by itself."""
    what = rows["what"]
    located = (rows["place"] != 0) & (rows["offset"] != NOWHERE)
    rows = rows[(np.isin(what, (*MOVED, SOUGHT)) & located) | np.isin(what, (*LEFT, *ABORTS))]
    ends = rows[(rows["what"] == WAITED) & (rows["flags"] & COMMITTED != 0)]
    moves = np.zeros(len(rows) + len(ends), MOVE)
    for name in ("process", "place", "offset", "order", "at", "what", "flags"):
        moves[name] = np.concatenate([rows[name], ends[name]])
    moves["head"], moves["count"] = NOWHERE, 1
    moves["what"][len(rows) :] = END
    return moves


def fold_moves(moves: Rows, logged: Hashes) -> tuple[Rows, Rows]:
    """Fold the moves of a range of a history.

    Args:
        moves: all of one run, as of :func:`moves_of`.
        logged: the partitions with a log, ascending; the moves in others stay as they are.

    Returns:
        The moves that are left, and the steps within chains that pass over offsets, dtype :data:`STEP`.
    """
    moves = moves[np.lexsort((moves["at"], moves["process"]))]
    returns = (moves["order"][1:] < moves["order"][:-1]) & (moves["process"][1:] == moves["process"][:-1])
    in_order = ~np.isin(moves["process"], moves["process"][1:][returns])
    path = _Path.of(moves, logged)
    goes_on = path.stays & path.is_step & (path.mine["offset"] >= path.start)
    goes_on &= in_order[path.number]
    passing = goes_on & (path.start < path.mine["offset"])
    steps = path.steps()[passing]
    steps["process"] = path.mine["process"][passing]
    number = np.flatnonzero((moves["what"] == END) & in_order)
    number = number[np.lexsort((moves["place"][number], moves["process"][number]))]
    ends = moves[number]
    rises = _same_reader(ends)
    rises[1:] &= (ends["offset"][1:] >= ends["offset"][:-1]) & (ends["offset"][:-1] >= 0)
    others = np.ones(len(moves), np.bool_)
    others[path.number] = others[number] = False
    return np.concatenate([_folded(path.mine, goes_on), _folded(ends, rises), moves[others]]), steps


def _folded(moves: Rows, goes_on: Mask) -> Rows:
    """The first and the last move of each chain; ``goes_on``: whether a move is in the chain of the one before."""
    last = goes_on & ~np.append(goes_on, False)[1:]
    first = np.flatnonzero(~goes_on)[np.cumsum(~goes_on)[last] - 1]
    moves["head"][last] = moves["at"][first]
    moves["count"][last] = np.flatnonzero(last) - first
    folded: Rows = moves[~goes_on | last]
    return folded


def _same_reader(moves: Rows) -> Mask:
    """Whether each move is of the same process and partition as the one before it, shape (n,)."""
    same = np.zeros(len(moves), np.bool_)
    same[1:] = (moves["process"][1:] == moves["process"][:-1]) & (moves["place"][1:] == moves["place"][:-1])
    return same


class _Path(NamedTuple):
    """The moves and seeks in partitions with a log, by process and partition, in order.

    Attributes:
        number: of each its number among all moves.
        mine: the moves and seeks.
        follows: whether each is of the same process and partition as the one before it.
        stays: whether the process has not left in between, besides.
        start: the offset at which each starts.
        stay: of every move, how often processes had left before.
    """

    number: Ints
    mine: Rows
    follows: Mask
    stays: Mask
    start: Ints
    stay: Ints

    @classmethod
    def of(cls, moves: Rows, logged: Hashes) -> "_Path":
        """The path of moves, which are in order, those of each process together."""
        stay = np.cumsum(np.isin(moves["what"], LEFT), dtype=np.int64)
        at = np.flatnonzero(is_in(moves["place"], logged) & np.isin(moves["what"], (*MOVED, SOUGHT)))
        number = at[np.lexsort((at, moves["place"][at], moves["process"][at]))]
        mine = moves[number]
        follows = _same_reader(mine)
        stays = follows.copy()
        stays[1:] &= stay[number][1:] == stay[number][:-1]
        start = mine["offset"].copy()
        before = mine[:-1]["offset"] + (mine[:-1]["what"] == POLLED)
        start[1:] = np.where(stays[1:], before, start[1:])
        return cls(number, mine, follows, stays, start, stay)

    @property
    def is_step(self) -> Mask:
        """Whether each is a move, no seek."""
        found: Mask = self.mine["what"] != SOUGHT
        return found

    def steps(self) -> Rows:
        """All of them as steps, dtype :data:`STEP`."""
        steps = np.zeros(len(self.mine), STEP)
        for name in ("at", "offset", "place"):
            steps[name] = self.mine[name]
        steps["start"], steps["all"] = self.start, self.mine["flags"] & UNCOMMITTED != 0
        return steps


@dataclass(slots=True)
class Readers:
    """The steps of some readers.

    Attributes:
        gaps: steps that pass over offsets of partitions with a log, dtype :data:`STEP`, without those within chains.
        backward: steps back without an abort that allows them.
        fell: ends of partitions below the end before (``start``), or below 0.
        unlogged: places of the events about partitions without a log, shape (n,).
        figures: the figures of the rules.
        tangled: readers of whom an event of another range belongs into a chain, ascending; nothing else is about them.
    """

    gaps: Rows
    backward: Rows
    fell: Rows
    unlogged: Ints
    figures: dict[str, int]
    tangled: Hashes


def follow_readers(moves: Rows, changes: Rows, setting: Setting) -> Readers:
    """Follow the readers of some processes.

    Args:
        moves: all moves of these processes in one run, dtype :data:`MOVE`.
        changes: all changes of leaders and crashes of the run, dtype :data:`recorded.TOLD`.
        setting: the facts of the run.
    """
    places = setting.places
    moves = moves[np.lexsort((moves["at"], setting.when(moves), moves["process"]))]
    path = _Path.of(moves, places)
    ends = moves[moves["what"] == END]
    ends = ends[np.lexsort((ends["place"], ends["process"]))]
    tangled = np.union1d(_tangled(path.mine, path.stays), _tangled(ends, _same_reader(ends)))
    moves, ends = (rows[~is_in(rows["process"], tangled)] for rows in (moves, ends))
    path = _Path.of(moves, places) if len(tangled) else path
    elsewhere = np.isin(moves["what"], (*MOVED, SOUGHT)) & ~is_in(moves["place"], places)
    there = is_in(moves["process"], np.unique(moves["process"][elsewhere]))
    unlogged = moves["at"][elsewhere | (there & np.isin(moves["what"], (*LEFT, *ABORTS)))]
    steps = path.steps()
    alone = path.is_step & (path.mine["head"] == NOWHERE)
    back = np.flatnonzero(alone & (steps["offset"] < path.start) & (path.mine["what"] == POLLED))
    steps["back"][back] = _may_go_back(moves, path, back)
    figures = {"steps": int(path.mine["count"][path.is_step].sum()), "ends": int(ends["count"].sum())}
    may_not = ~steps["back"][back]
    gaps, backward = steps[alone & (path.start < steps["offset"])], steps[back[may_not]]
    return Readers(gaps, backward, _fell(ends, changes, setting), unlogged, figures, tangled)


def _tangled(moves: Rows, goes_on: Mask) -> Hashes:
    """The readers of whom the last move of a chain does not come right after the first one, ascending."""
    before = np.append(NOWHERE, moves["at"][:-1])[: len(moves)]
    torn = (moves["head"] != NOWHERE) & ~(goes_on & (before == moves["head"]))
    return np.unique(moves["process"][torn])


def _may_go_back(moves: Rows, path: _Path, back: Ints) -> Mask:
    """Whether the process of each step back has aborted since its last step there, and had not left; shape of back."""
    number, mine, follows, _, _, stay = path
    aborts = np.flatnonzero(np.isin(moves["what"], ABORTS))
    found = np.zeros(len(back), np.bool_)
    for which, row in enumerate(back.tolist()):
        low, has_step = row, False
        while follows[low] and not has_step:
            low -= 1
            has_step = mine["what"][low] != SOUGHT
        entries = number[low:row]  # the last step in this partition, and the seeks since then
        process = moves["process"][number[row]]
        since = aborts[np.searchsorted(aborts, entries[0]) : np.searchsorted(aborts, number[row])]
        found[which] = any(
            moves["process"][abort] == process and ((entries < abort) & (stay[entries] == stay[abort])).any()
            for abort in since.tolist()
        )
    return found


def _fell(ends: Rows, changes: Rows, setting: Setting) -> Rows:
    """The ends below the end before, or below 0, as steps; the given ones are in order, each partition's together."""
    when = setting.when(ends)
    changes = changes[np.isin(changes["what"], CHANGES)]
    changed = setting.when(changes)
    where = changes["place"]
    era = np.searchsorted(np.sort(changed[where == 0]), when)
    for place in np.unique(where[where != 0]):
        here = ends["place"] == place
        era[here] += np.searchsorted(np.sort(changed[where == place]), when[here])
    same = _same_reader(ends)[1:]
    same &= era[1:] == era[:-1]
    offset = ends["offset"]
    fallen = np.flatnonzero(same & (offset[1:] < offset[:-1])) + 1
    first = np.ones(len(ends), np.bool_)
    first[1:] = ~same
    below = np.flatnonzero(first & (offset < 0))
    steps = np.zeros(len(fallen) + len(below), STEP)
    number = np.concatenate([fallen, below])
    for name in ("at", "offset", "place"):
        steps[name] = ends[name][number]
    steps["start"][: len(fallen)] = ends["offset"][fallen - 1]
    return steps


RANGE = np.dtype([("place", "u8"), ("start", "i8"), ("end", "i8"), ("log", "i4"), ("hidden", "?")])
"""Records of a log with consecutive offsets, all of them hidden or none."""
BLOCK_BITS = 17  # a block is 2 ** BLOCK_BITS consecutive offsets of a partition
ANY_BLOCK = np.iinfo(np.int64).min


def ranges_of(stored: Rows, place: int) -> Rows:
    """Records of a log as ranges, dtype :data:`RANGE`, none of which crosses a block."""
    order = np.argsort(stored["offset"], kind="stable")
    offset, hidden = stored["offset"][order], ~VISIBLE[stored["state"][order]]
    begins = np.ones(len(offset), np.bool_)
    begins[1:] = (offset[1:] != offset[:-1] + 1) | (hidden[1:] != hidden[:-1])
    begins[1:] |= offset[1:] >> BLOCK_BITS != offset[:-1] >> BLOCK_BITS
    first = np.flatnonzero(begins)
    found = np.zeros(len(first), RANGE)
    found["place"], found["hidden"] = place, hidden[first]
    found["start"] = offset[first]
    found["end"] = offset[np.append(first[1:], len(offset)) - 1] + 1 if len(first) else 0
    if len(stored):
        found["log"] = stored["log"][0]
    return found


def blocks_of(low: Ints, high: Ints, most: int) -> tuple[Ints, Ints, Ints]:
    """The blocks that ranges of offsets overlap, from ``low`` to ``high - 1``.

    A range may be as long as numbers are, because clients can poll and commit any offset.

    Args:
        low: the first offset of each range.
        high: one past its last offset.
        most: the highest number of blocks for one range.

    Returns:
        For each block its range, its number, and its place among the blocks of this range, from 0. A range that
        overlaps more blocks has :data:`ANY_BLOCK` as often as allowed.
    """
    first, last = low >> BLOCK_BITS, (high - 1) >> BLOCK_BITS
    is_wide = last - first >= most
    count = np.where(is_wide, most, last - first + 1)
    row = np.repeat(np.arange(len(low)), count)
    number = np.arange(len(row)) - (np.cumsum(count) - count)[row]
    return row, np.where(is_wide[row], ANY_BLOCK, first[row] + number), number


@dataclass(slots=True)
class Passed:
    """Records that readers passed over.

    Attributes:
        steps: the steps of the readers, dtype :data:`STEP`.
        missing: log and offset of each record, and whether it is hidden; shape (n, 3).
    """

    steps: Rows
    missing: Ints


def look_into_gaps(gaps: Sequence[tuple[int, Rows]], ranges: Rows, setting: Setting) -> Passed:
    """Find the records in gaps.

    Args:
        gaps: the gaps by block.
        ranges: all records in these blocks.
        setting: the facts of the run.
    """
    numbers = [number for number, log in setting.logs.items() if log.longest]
    ranges = ranges[np.isin(ranges["log"], numbers)]
    ranges = ranges[np.lexsort((ranges["start"], ranges["place"]))]
    steps, missing = [], []
    for block, own in gaps:
        low, high = block << BLOCK_BITS, (block + 1) << BLOCK_BITS
        where, of_all = own["place"], own["all"]
        for place in np.unique(where):
            here = ranges[np.searchsorted(ranges["place"], place) : np.searchsorted(ranges["place"], place, "right")]
            hidden = here["hidden"]
            for visible_only in (True, False):
                mine = own[(where == place) & (of_all != visible_only)]
                there = here[~hidden] if visible_only else here
                begin, end = np.maximum(mine["start"], low), np.minimum(mine["offset"], high)
                first, last = np.searchsorted(there["end"], begin, "right"), np.searchsorted(there["start"], end)
                for row in np.flatnonzero(first < last).tolist():
                    steps.append(mine[row : row + 1])
                    for each in there[first[row] : last[row]]:
                        offsets = np.arange(max(begin[row], each["start"]), min(end[row], each["end"]))
                        same = [np.full(len(offsets), each[name], np.int64) for name in ("log", "hidden")]
                        missing.append(np.stack([same[0], offsets, same[1]], axis=1))
    return Passed(
        np.concatenate(steps) if steps else np.zeros(0, STEP),
        np.concatenate(missing) if missing else np.zeros((0, 3), np.int64),
    )
