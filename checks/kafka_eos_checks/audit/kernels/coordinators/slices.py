"""Slices of a producer id with very many transactions, so that no task needs all of its steps or decisions.

A *slice* is the run of steps of one producer id in one split of a log, from after its first marker there up to its last
marker. It begins and ends with nothing open, so its markers find their data in it. The steps around slices are the
producer id's *rest*: with the slices left out, its markers find their data as before.

What a marker needs of the other tasks is its number among the markers of its epoch on the partition: the transaction
with this number is the one that it ends. Each slice and each stretch of the rest is summed up (:class:`Markers`).
Summaries are joined in log order, and the join is associative. So the number of the first marker of every slice follows
from the summaries before it (:func:`cuts_of`). The decisions are counted likewise by epoch and partition
(:class:`Counts`), and each one goes to the tasks whose markers it may decide (:func:`routed`).

A marker without data may be a repetition, which has no number. So the markers of a slice are compared with the
decisions for each number of repetitions before the slice (:func:`ways_through`), and the results are joined, too.

If any marker of a producer id is not proved, all of its slices are put together again, and judged as the transactions
of any other producer id.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos_checks.audit.internal_topics.decisions import Decisions, PartitionSets, stretches
from kafka_eos_checks.audit.kernels.logs.transactions import NOTHING, Paired, Part, Parts, joined_steps
from kafka_eos_checks.audit.rules.transactions.names import MOST_WAYS
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH

SLICE_MARKERS = 1 << 13  # a producer id with as many markers in a task of the scan is cut into slices
_SAMPLES = 128  # of the steps of a producer id that is about to be cut
MOST_SILENT = 1024  # markers of an epoch on a partition that end no data, if slices share the epoch
_FEW = 64  # a slice has at least this part of the markers


class Markers(NamedTuple):
    """The summary of consecutive markers of a producer id on a partition.

    Attributes:
        first_epoch: the epoch of the first marker.
        first: how many markers have it, from the first one on.
        first_silent: how many of these end no data.
        last_epoch: the epoch of the last marker.
        last: how many markers have it, up to the last one.
        last_silent: how many of these end no data.
        first_coordinator: the first coordinator epoch that a marker tells; :data:`NO_EPOCH` for none.
        last_coordinator: the last one.
        in_order: whether neither epoch ever goes back. If one does, all other attributes are 0.
    """

    first_epoch: int
    first: int
    first_silent: int
    last_epoch: int
    last: int
    last_silent: int
    first_coordinator: int
    last_coordinator: int
    in_order: bool = True


OUT_OF_ORDER = Markers(0, 0, 0, 0, 0, 0, 0, 0, in_order=False)


def summed_up(epoch: Ints, silent: NDArray[np.bool_], coordinator: Ints) -> Markers:
    """The summary of markers; at least one.

    Args:
        epoch: the epoch of each, shape (m,).
        silent: whether it ends no data.
        coordinator: its coordinator epoch, :data:`NO_EPOCH` for an empty marker.
    """
    told = coordinator[coordinator != NO_EPOCH]
    if (np.diff(epoch) < 0).any() or (np.diff(told) < 0).any():
        return OUT_OF_ORDER
    of_first, of_last = epoch == epoch[0], epoch == epoch[-1]
    return Markers(
        int(epoch[0]),
        int(of_first.sum()),
        int(silent[of_first].sum()),
        int(epoch[-1]),
        int(of_last.sum()),
        int(silent[of_last].sum()),
        int(told[0]) if len(told) else NO_EPOCH,
        int(told[-1]) if len(told) else NO_EPOCH,
    )


def joined(before: Markers, after: Markers) -> Markers:
    """The summary of some markers and those after them; associative."""
    told = before.last_coordinator != NO_EPOCH != after.first_coordinator
    if not (before.in_order and after.in_order) or before.last_epoch > after.first_epoch:
        return OUT_OF_ORDER
    if told and before.last_coordinator > after.first_coordinator:
        return OUT_OF_ORDER
    first, last = before[:3], after[3:6]
    if before.last_epoch == after.first_epoch:
        if before.first_epoch == before.last_epoch:
            first = before.first_epoch, before.first + after.first, before.first_silent + after.first_silent
        if after.first_epoch == after.last_epoch:
            last = after.last_epoch, before.last + after.last, before.last_silent + after.last_silent
    return Markers(
        *first,
        *last,
        before.first_coordinator if before.first_coordinator != NO_EPOCH else after.first_coordinator,
        after.last_coordinator if after.last_coordinator != NO_EPOCH else before.last_coordinator,
    )


class Slice(NamedTuple):
    """A slice without its steps.

    Attributes:
        log: the number of the log.
        producer_id: the producer id.
        offset: the offset of its first step.
        task: the task that judges it.
        markers: the summary of its markers.
    """

    log: int
    producer_id: int
    offset: int
    task: int
    markers: Markers


def sliced(parts: Sequence[Part], least: int, tasks: int) -> tuple[list[Part], list[tuple[Slice, Parts]]]:
    """Cut the steps of a task of the scan.

    Args:
        parts: the steps, in order of log, split and chunk.
        least: cut the producer ids that have at least so many markers here.
        tasks: the number of tasks that judge slices.

    Returns:
        The parts without the slices, and each slice with its parts.
    """
    found = _hot([part.steps["producer_id"] for part in parts], [part.steps["is_marker"] for part in parts], least)
    if not found:
        return list(parts), []
    rest: list[Part] = []
    slices: list[tuple[Slice, Parts]] = []
    for (log, split), group in groupby(parts, key=lambda part: part[:2]):
        own = list(group)
        steps = joined_steps(own)
        chunk = np.repeat(np.arange(len(own)), [len(part.steps) for part in own])
        left = np.ones(len(steps), np.bool_)

        def some(rows: Ints, own: Sequence[Part] = own, steps: Any = steps, chunk: Ints = chunk) -> list[Part]:
            cuts = np.searchsorted(chunk[rows], np.arange(len(own) + 1)).tolist()
            pieces = (steps.take(rows[low:high]) for low, high in pairwise(cuts))  # far sooner than []
            return [part._replace(steps=piece) for part, piece in zip(own, pieces, strict=True) if len(piece)]

        for pid in found:
            rows = np.flatnonzero(steps["producer_id"] == pid)
            is_marker = steps["is_marker"][rows]
            markers = np.flatnonzero(is_marker)
            if len(markers) < max(2, least // _FEW):
                continue
            first, last, markers = int(markers[0]) + 1, int(markers[-1]) + 1, markers[1:]
            told = steps.take(rows[markers])
            summary = summed_up(
                told["producer_epoch"].astype(np.int64), is_marker[markers - 1], told["coordinator_epoch"]
            )
            begin, rows = int(steps["offset"][rows[first]]), rows[first:last]
            left[rows] = False
            slices.append((Slice(log, pid, begin, (log + split) % tasks, summary), Parts.of(some(rows))))
        rest += some(np.flatnonzero(left))
    return rest, slices


def _hot(pids: Sequence[Ints], is_marker: Sequence[NDArray[np.bool_]], least: int) -> list[int]:
    """The producer ids with at least so many markers. A sample tells which ones to count."""
    total = sum(map(len, pids))
    if total < least:
        return []
    every = max(1, least // _SAMPLES)
    ids, seen = np.unique(np.concatenate([each[::every] for each in pids]), return_counts=True)
    likely = ids[(seen * every * 2 >= least) & (ids >= 0)]
    return [
        pid
        for pid in likely.tolist()
        if sum(int(marks[each == pid].sum()) for each, marks in zip(pids, is_marker, strict=True)) >= least
    ]


class Shared(NamedTuple):
    """The markers of an epoch in one of several slices that have some.

    Attributes:
        log: the number of the log.
        producer_id: the producer id.
        epoch: the epoch of the markers.
        slice: the number of the slice on its log.
        before: how many markers of the epoch come before the slice.
        silent: how many of these end no data.
        markers: how many are in the slice.
        task: the task that judges it.
        is_last: whether none comes after the slice.
    """

    log: int
    producer_id: int
    epoch: int
    slice: int
    before: int
    silent: int
    markers: int
    task: int
    is_last: bool


class Cuts(NamedTuple):
    """The places where the transactions of a producer id are cut.

    Attributes:
        producer_id: the producer id.
        logs: by log, each slice and each stretch of the rest: its first epoch, its first offset and the task that
            judges it; shape (n, 3), in order.
        shared: the markers of the epochs that several of these have, in order.
        are_counted: whether a marker's number tells its transaction. Otherwise all has to be judged together.
    """

    producer_id: int
    logs: Mapping[int, Ints]
    shared: Sequence[Shared]
    are_counted: bool


def cuts_of(producer_id: int, slices: Sequence[Slice], rest: Paired, task: int) -> Cuts:
    """The cuts of a producer id.

    Args:
        producer_id: the producer id.
        slices: its slices.
        rest: the steps around them; others may be among them.
        task: the task that judges these.
    """
    own = rest.steps["producer_id"][rest.markers] == producer_id
    rows, silent = rest.markers[own], rest.ends[own] == NOTHING
    logs: dict[int, Ints] = {}
    shared: list[Shared] = []
    are_counted = True
    for log in sorted({*(each.log for each in slices), *rest.log[rows].tolist()}):
        here = rest.log[rows] == log
        told, quiet = rest.steps[rows[here]], silent[here]
        cut = sorted((each for each in slices if each.log == log), key=lambda each: each.offset)
        places = np.searchsorted(told["offset"], [each.offset for each in cut]).tolist()
        parts: list[tuple[int, int, Markers]] = []
        for number, (low, high) in enumerate(pairwise([0, *places, len(told)])):
            if low < high:
                some = told[low:high]
                epochs = some["producer_epoch"].astype(np.int64)
                markers = summed_up(epochs, quiet[low:high], some["coordinator_epoch"])
                parts.append((int(some["offset"][0]), task, markers))
            parts += [(each.offset, each.task, each.markers) for each in cut[number : number + 1]]
        logs[log] = np.array([(own.first_epoch, offset, place) for offset, place, own in parts], np.int64)
        own_shared, counted_here = _shared(log, producer_id, parts)
        shared += own_shared
        are_counted &= counted_here
    return Cuts(producer_id, logs, shared, are_counted)


def _shared(log: int, producer_id: int, parts: Sequence[tuple[int, int, Markers]]) -> tuple[list[Shared], bool]:
    """The markers of epochs in several parts of a log, and whether a marker's number tells its transaction.

    A marker that ends no data may repeat the one before it. The next slices are looked at once for each that may do so.
    """
    before: Markers | None = None
    found: list[Shared] = []
    for number, (_, task, own) in enumerate(parts):
        goes_on = before is not None and before.last_epoch == own.first_epoch
        if before is not None and goes_on:
            if not _goes_on(found, own.first_epoch, number):
                place = number - 1
                found.append(
                    Shared(log, producer_id, own.first_epoch, place, 0, 0, before.last, parts[place][1], is_last=False)
                )
            told = before.last, before.last_silent, own.first, task
            found.append(Shared(log, producer_id, own.first_epoch, number, *told, is_last=True))
            if before.last_silent + own.first_silent > MOST_SILENT:
                return found, False
        before = own if before is None else joined(before, own)
        if not before.in_order:
            return found, False
    return found, True


def _goes_on(found: list[Shared], epoch: int, number: int) -> bool:
    """Whether the slice before has markers of the epoch as the last one so far; then it is the last one no more."""
    if not found or (found[-1].epoch, found[-1].slice) != (epoch, number - 1):
        return False
    found[-1] = found[-1]._replace(is_last=False)
    return True


Ways = Sequence[tuple[int, int]]


def ways_through(decisions: Ints, silent: NDArray[np.bool_], due: NDArray[np.int8], first: int, own: Shared) -> Ways:
    """The ways in which the markers of an epoch in a slice may be those of the decisions, in order.

    A marker is that of the next decision. One that ends no data may also repeat the marker before it. So the decisions
    that have a marker follow from the number of markers and that of repetitions.

    Args:
        decisions: the decision of each marker, shape (n,).
        silent: whether it ends no data.
        due: decisions from the one with the number ``first`` on.
        first: the number of the first of these among all of the epoch.
        own: the place of the markers.

    Returns:
        For each number of repetitions before the slice, a bit for each possible number after it, and how many numbers
        were possible at once.
    """
    ways = [1 << repeated for repeated in range(own.silent + 1)]
    most = [1] * len(ways)
    at = 0
    for end in [*np.flatnonzero(silent).tolist(), len(decisions)]:
        block, fits = decisions[at:end], 0
        for repeated in bits_of(sum_of(ways)):
            fits |= _agree(block, due, own.before + at - repeated - first) << repeated
        ways = [each & fits for each in ways]
        if end < len(decisions):
            one, follows, repeats = decisions[end : end + 1], 0, 0
            for repeated in bits_of(sum_of(ways)):
                place = own.before + end - repeated - first
                follows |= _agree(one, due, place) << repeated
                if own.before + end - repeated >= 1:
                    repeats |= _agree(one, due, place - 1) << repeated
            ways = [(each & follows) | (each & repeats) << 1 for each in ways]
            most = [max(count, each.bit_count()) for count, each in zip(most, ways, strict=True)]
        at = end + 1
    return list(zip(ways, most, strict=True))


def _agree(decisions: Ints, due: NDArray[np.int8], place: int) -> bool:
    """Whether markers have the decisions from a place on."""
    if place < 0 or place + len(decisions) > len(due):
        return not len(decisions)
    return bool(((decisions == NO_DECISION) | (decisions == due[place : place + len(decisions)])).all())


def sum_of(ways: Iterable[int]) -> int:
    """All bits that any of some numbers has."""
    found = 0
    for each in ways:
        found |= each
    return found


def bits_of(number: int) -> Iterator[int]:
    """The places of the bits of a number."""
    while number:
        yield (number & -number).bit_length() - 1
        number &= number - 1


def after(repeated: int, ways: Ways) -> int:
    """The possible numbers of repetitions after a slice, as bits; 0 if more than the rule follows may be possible.

    Args:
        repeated: the possible numbers before it, as bits.
        ways: the ways through the slice.
    """
    own = [ways[number] for number in bits_of(repeated) if number < len(ways)]
    return sum_of(bits for bits, _ in own) if sum(most for _, most in own) <= MOST_WAYS else 0


class Counts(NamedTuple):
    """The summary of consecutive decisions about a producer id: how many there are by partition.

    Attributes:
        first_epoch: the marker epoch of the first one.
        first: the number of decisions with that epoch and a partition, from the first decision on.
        last_epoch: the marker epoch of the last one.
        last: the same up to the last decision.
        in_order: whether the epoch never goes back. If it does, nothing is counted.
    """

    first_epoch: int
    first: Mapping[Place, int]
    last_epoch: int
    last: Mapping[Place, int]
    in_order: bool = True


UNCOUNTED = Counts(0, {}, 0, {}, in_order=False)


def counted(decisions: Decisions) -> Counts:
    """The summary of decisions; at least one."""
    epoch = decisions.marker_epoch
    if (np.diff(epoch) < 0).any():
        return UNCOUNTED

    def by_place(chosen: NDArray[np.bool_]) -> Mapping[Place, int]:
        rows, _ = stretches(decisions.sets.begin, decisions.partitions[chosen])
        numbers, sizes = np.unique(decisions.sets.members[rows], return_counts=True)
        return {decisions.sets.places[n]: size for n, size in zip(numbers.tolist(), sizes.tolist(), strict=True)}

    return Counts(int(epoch[0]), by_place(epoch == epoch[0]), int(epoch[-1]), by_place(epoch == epoch[-1]))


def counted_on(before: Counts, after: Counts) -> Counts:
    """The summary of some decisions and those after them; associative."""
    if not (before.in_order and after.in_order) or before.last_epoch > after.first_epoch:
        return UNCOUNTED
    first, last = before.first, after.last
    if before.last_epoch == after.first_epoch:
        if before.first_epoch == before.last_epoch:
            first = _sum(before.first, after.first)
        if after.first_epoch == after.last_epoch:
            last = _sum(before.last, after.last)
    return Counts(before.first_epoch, first, after.last_epoch, last)


def _sum(one: Mapping[Place, int], other: Mapping[Place, int]) -> Mapping[Place, int]:
    return {place: one.get(place, 0) + other.get(place, 0) for place in {**one, **other}}


class Decided(NamedTuple):
    """Consecutive decisions about a producer id.

    Attributes:
        log: the number of the coordinator's log.
        part: their place among all about the producer id.
        producer_id: the producer id.
        decisions: the decisions.
    """

    log: int
    part: tuple[int, ...]
    producer_id: int
    decisions: Decisions


class Routes(NamedTuple):
    """The places of markers, by which :func:`routed` sends decisions.

    Attributes:
        cuts: the cuts of the producer id.
        log_of: the number of the log of each partition.
        place_of: the partition of each log.
        by_epoch: the logs whose markers are matched by epoch, because their order cannot be used.
        begins_ms: when each of the logs begins.
    """

    cuts: Cuts
    log_of: Mapping[Place, int]
    place_of: Mapping[int, Place]
    by_epoch: AbstractSet[int]
    begins_ms: Mapping[int, int]


class Due(NamedTuple):
    """Consecutive decisions for the markers of an epoch in a slice.

    Attributes:
        place: the place of the markers.
        first: the number of the first decision among all of the epoch with this partition.
        decisions: the decisions, shape (n,).
        is_plain: whether each was carried out, and none is older than the partition.
    """

    place: Shared
    first: int
    decisions: NDArray[np.int8]
    is_plain: bool


def routed(decided: Decisions, before: Counts | None, routes: Routes) -> tuple[list[tuple[int, Decisions]], list[Due]]:
    """Send decisions about a producer id to the tasks with their markers.

    Args:
        decided: consecutive decisions.
        before: the summary of the decisions before them.
        routes: where the markers are.

    Returns:
        The decisions of each task, each with those of its partitions whose markers are there; and those of the epochs
        that several slices share.
    """
    cuts, sets = routes.cuts, decided.sets
    log_of = np.array([routes.log_of.get(place, NOTHING) for place in sets.places], np.int64)
    rows, begin = stretches(sets.begin, decided.partitions)
    decision, place = np.repeat(np.arange(len(decided)), np.diff(begin)), sets.members[rows].astype(np.int64)
    there = log_of[place] != NOTHING
    decision, place = decision[there], place[there]
    log, epoch = log_of[place], decided.marker_epoch[decision].astype(np.int64)
    found, due = [np.empty((0, 3), np.int64)], list[Due]()
    shared: dict[int, list[Shared]] = defaultdict(list)
    for each in cuts.shared:
        shared[each.log].append(each)
    for number, own in cuts.logs.items():
        mine = np.flatnonzero(log == number)
        if number in routes.by_epoch:
            found.append(_by_epoch(decided, own, decision[mine], int(place[mine[0]]) if len(mine) else NOTHING))
            continue
        for at in shared[number]:
            some = decision[mine[epoch[mine] == at.epoch]]
            counted_before = before is not None and before.last_epoch == at.epoch
            first = before.last.get(routes.place_of[number], 0) if before is not None and counted_before else 0
            low = max(at.before - at.silent - 1 - first, 0)
            high = None if at.is_last else max(at.before + at.markers - first, 0)
            if len(some[low:high]):
                due.append(_due(decided, some[low:high], at, first + low, routes.begins_ms[number]))
        mine = mine[~np.isin(epoch[mine], [at.epoch for at in shared[number]])]
        at_slice = np.searchsorted(own[:, 0], epoch[mine], side="right") - 1
        mine, at_slice = mine[at_slice >= 0], at_slice[at_slice >= 0]
        found.append(np.column_stack((own[at_slice, 2], decision[mine], place[mine])))
    chosen = _distinct(np.concatenate(found), len(decided), len(sets.places))
    return [(task, _some(decided, rows)) for task, rows in _by_task(chosen)], due


def _due(decided: Decisions, rows: Ints, at: Shared, first: int, begins_ms: int) -> Due:
    is_plain = not decided.replaced[rows].any() and not (decided.decided_ms[rows] < begins_ms).any()
    return Due(at, first, decided.decision[rows].astype(np.int8), is_plain)


def _by_epoch(decided: Decisions, own: Ints, having: Ints, place: int) -> Ints:
    """Task, decision and place of each decision, for every task with an epoch's markers; ``having``: with the place."""
    rows = np.flatnonzero(decided.version >= TRANSACTION_VERSION_2)
    epoch = decided.marker_epoch[rows]
    low = np.maximum(np.searchsorted(own[:, 0], epoch, side="left") - 1, 0)
    sizes = np.searchsorted(own[:, 0], epoch, side="right") - low
    at = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(low, sizes)
    rows = np.repeat(rows, sizes)
    return np.column_stack((own[at, 2], rows, np.where(np.isin(rows, having), place, NOTHING)))


def _distinct(rows: Ints, decisions: int, places: int) -> Ints:
    """The distinct rows of task, decision and place, in order."""
    numbers = np.unique((rows[:, 0] * decisions + rows[:, 1]) * (places + 1) + rows[:, 2] + 1)
    numbers, place = np.divmod(numbers, places + 1)
    return np.column_stack((*np.divmod(numbers, max(decisions, 1)), place - 1))


def _by_task(chosen: Ints) -> Iterator[tuple[int, Ints]]:
    """Decisions and places by task; rows of task, decision and place, in order."""
    tasks, first = np.unique(chosen[:, 0], return_index=True)
    yield from zip(tasks.tolist(), np.split(chosen[:, 1:], first[1:]) if len(first) else (), strict=True)


def _some(decided: Decisions, rows: Ints) -> Decisions:
    """Some of the decisions, each with some of its partitions; rows of decision and place, in order."""
    numbers, first = np.unique(rows[:, 0], return_index=True)
    placed = rows[:, 1] != NOTHING
    begin = np.concatenate(([0], np.cumsum(placed)))
    sets = PartitionSets(decided.sets.places, np.append(begin[first], begin[-1]), rows[placed, 1].astype(np.int32))
    return replace(decided.take(numbers), partitions=np.arange(len(numbers), dtype=np.int32), sets=sets)


def in_pieces(decisions: Decisions, size: int) -> Iterator[Decisions]:
    """Consecutive decisions, at most so many at a time, each piece with only its own sets of partitions.

    Where numbers of transactions are left out, those of slices may come in between: there a piece ends.
    """
    number, ids = decisions.number, decisions.transactional_id
    ends = np.flatnonzero((np.diff(number) > 1) | (np.diff(ids) != 0)) + 1
    for low, high in pairwise([0, *ends.tolist(), len(decisions)]):
        for begin in range(low, high, size):
            yield decisions.take(slice(begin, min(begin + size, high))).with_own_sets()


def before_each(parts: Sequence[Counts]) -> list[Counts | None]:
    """The summary of all decisions before each part."""
    found: list[Counts | None] = []
    before: Counts | None = None
    for each in parts:
        found.append(before)
        before = each if before is None else counted_on(before, each)
    return found


def both_decisions(rows: Sequence[NDArray[Any]]) -> set[int]:
    """The producer ids with an epoch that has two decisions; rows of producer id, epoch and decision."""
    told: dict[tuple[int, int], set[int]] = defaultdict(set)
    for producer_id, epoch, decision in np.unique(np.concatenate(rows), axis=0).tolist():
        told[producer_id, epoch].add(decision)
    return {producer_id for (producer_id, _), decisions in told.items() if len(decisions) > 1}
