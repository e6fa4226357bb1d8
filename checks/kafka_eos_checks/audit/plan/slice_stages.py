"""The stages that judge a producer id with very many transactions slice by slice.

======================  ===============================  ============================================================
stage                   mapped over                      rows
======================  ===============================  ============================================================
:func:`send_decisions`  decisions about a producer id    the decisions, by the task with their markers; how many
                                                         markers there must be
:func:`judge_slices`    slices, and their decisions      which producer ids are proved, with their figures; how many
                                                         markers there are
:func:`find_both`       epochs whose order cannot be     producer ids with a commit and an abort of one epoch
                        used
:func:`put_together`    slices and decisions             all of a producer id that is not proved
:func:`judge_whole`     all of a producer id             the rules over transactions
:func:`compare_counts`  counts of some epochs            the missing markers of completed transactions
======================  ===============================  ============================================================

They only run if the scan has cut a producer id (:mod:`kafka_eos_checks.audit.kernels.coordinators.slices`).
:func:`put_together` and :func:`judge_whole` only run if something is wrong with one, or if the order of its markers
cannot be used. The transactions that are open at the end are judged with the other producer ids
(:func:`kafka_eos_checks.audit.plan.stages.judge_bucket`).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.engines.engine import Engine, Row
from kafka_eos_checks.audit.internal_topics.decisions import concatenate_decisions
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import FoldedIds, FoldedSlice, with_slices
from kafka_eos_checks.audit.kernels.coordinators.matching import Knowledge, judge_steps, prove_slices
from kafka_eos_checks.audit.kernels.coordinators.missing import (
    NO_OWED,
    NO_THERE,
    OWED,
    THERE,
    Lowest,
    Owing,
    added,
    by_task,
    lowest_in,
    lowest_of,
    there_in,
)
from kafka_eos_checks.audit.kernels.coordinators.slices import (
    Counts,
    Cuts,
    Decided,
    Due,
    Routes,
    Shared,
    Slice,
    Ways,
    after,
    before_each,
    both_decisions,
    counted,
    counted_on,
    in_pieces,
    routed,
    ways_through,
)
from kafka_eos_checks.audit.kernels.logs.beside import NEVER
from kafka_eos_checks.audit.kernels.logs.transactions import (
    NOTHING,
    Paired,
    Part,
    Partition,
    Parts,
    Steps,
    joined_steps,
    paired,
)
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT, Moments
from kafka_eos_checks.audit.plan.beside_stages import Neighbours
from kafka_eos_checks.audit.plan.found import FINDING_BYTES, folders, found_rows, identity
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog
from kafka_eos_checks.audit.rules.decided import Data
from kafka_eos_checks.audit.rules.transactions.coordinators import why_incomplete
from kafka_eos_checks.audit.rules.transactions.judged import Hanging, Judged
from kafka_eos_checks.audit.rules.transactions.open import asked_about
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.audit.segments.order import stable_order
from kafka_eos_checks.audit.segments.splits import PartitionLog

SLICES, DECIDED, ROUTED, PROVED, UNJUDGED, WHOLE, COUNTED, OPENED = range(40, 48)  # kinds of rows
DECISION_BYTES = 60  # approximate size of a decision between stages


class Piece(NamedTuple):
    """A row of decisions about a producer id, without the decisions.

    Attributes:
        part: the task that folded them, the number of the fold there, and the number of the row.
        first: the number of its first transaction.
        counts: their summary.
    """

    part: tuple[int, ...]
    first: int
    counts: Counts


class CutId(NamedTuple):
    """The owner of a producer id that is cut, in one coordinator's log or in a slice there, without its decisions.

    Attributes:
        log: the number of the log.
        producer_id: the producer id.
        ids: its transactional ids.
        pieces: the rows with their decisions.
        joint: the offset of the slice's joint; None for what is not in a slice.
    """

    log: int
    producer_id: int
    ids: FoldedIds
    pieces: Sequence[Piece]
    joint: int | None = None


class Place(NamedTuple):
    """The place of a row of decisions among all about its producer id.

    Attributes:
        number: the number of the row.
        base: the number of the transaction before a slice, which its own are counted from.
        before: the summary of the decisions before the row.
    """

    number: int
    base: int
    before: Counts | None


Places = Mapping[tuple[int, int, tuple[int, ...]], Place]  # by log, producer id and part


class Asked(NamedTuple):
    """Data without a marker of their own: those whose coordinator's decision is asked for, and the logs of all."""

    data: AbstractSet[Data] = frozenset()
    logs: AbstractSet[int] = frozenset()

    def and_of(self, other: "Asked") -> "Asked":
        """These and other data."""
        return Asked(self.data | other.data, self.logs | other.logs)


NOT_ASKED = Asked()


class Rest(NamedTuple):
    """The steps around the slices of some producer ids."""

    parts: Parts


def of_producers(steps: Steps, producer_ids: Collection[int], *, others: bool = False) -> Steps:
    """The steps of some producer ids, or of all others."""
    return steps[np.isin(steps["producer_id"], list(producer_ids), invert=others)]


@dataclass(frozen=True, slots=True)
class Known:
    """The transactional ids of all coordinators' logs.

    Attributes:
        rows: where they are.
        cut: the owners of the producer ids that are cut.
        bases: by log and joint of each slice of a transactional id, the number of the slice's first transaction.
        named: the partitions of decided transactions, without those of topics that were made again after all of them.
    """

    rows: Any
    cut: Sequence[CutId] = ()
    bases: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    named: AbstractSet[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The facts about all logs that every stage is given besides its rows.

    Attributes:
        partitions: all logs, by number.
        chosen: the logs that count: the longest of each partition.
        coordinators: the coordinators' logs that count.
        numbers: the number of each log.
        given: whether any coordinator's log was given, even an empty one.
        moments: the moments of all logs.
        again: logs whose offsets go backwards; their steps are not those of their chunks.
        neighbours: the files next to the logs.
        owing: the logs that must have the markers of completed transactions.
    """

    partitions: Sequence[Partition]
    chosen: Sequence[int]
    coordinators: Sequence[CoordinatorLog]
    numbers: Mapping[PartitionLog, int]
    given: bool
    moments: Moments
    again: frozenset[int]
    neighbours: Neighbours = field(default_factory=Neighbours)
    owing: Owing = field(default_factory=lambda: Owing((), (), (), AT_ONE_MOMENT))

    def knowledge(self, ids: Mapping[int, Sequence[FoldedIds]]) -> Knowledge:
        """Some transactional ids by the number of their log."""
        known = [(log, each) for log in self.coordinators for each in ids.get(self.numbers[log.log], ())]
        return Knowledge(self.coordinators, known, given=self.given)

    def open_rows(self, hang: Sequence[Hanging]) -> Iterator[Row]:
        """The rows of findings on data without a marker of their own, by the number of their log."""
        for number, own in self._by_log(hang).items():
            yield Row(OPENED, number, own, FINDING_BYTES * len(own))

    def asked(self, hang: Sequence[Hanging]) -> Asked:
        """The data of such findings."""
        return Asked(frozenset(asked_about(hang)), frozenset(self._by_log(hang))) if hang else NOT_ASKED

    def _by_log(self, hang: Sequence[Hanging]) -> dict[int, list[Hanging]]:
        logs = self.partitions if hang else ()
        number_of = {identity(partition.log): number for number, partition in enumerate(logs)}
        found: dict[int, list[Hanging]] = defaultdict(list)
        for each in hang:
            found[number_of[each.finding.broker, each.finding.topic, each.finding.partition]].append(each)
        return found

    @property
    def indexed(self) -> list[int]:
        """The logs with indexes."""
        return [log for log in self.neighbours.stretch_of if log not in self.again]

    def paired(self, parts: Iterable[Part]) -> Paired:
        """The steps of the logs that count, and of those with indexes."""
        numbers = {*self.chosen, *self.indexed}
        return paired((part for part in parts if part.log in numbers), self.partitions)


def rows_of_ids(
    log: int,
    fold: tuple[int, int],
    folded: FoldedIds,
    cut: AbstractSet[int],
    buckets: int,
    size: int,
    joint: int | None,
) -> tuple[FoldedIds, list[CutId], list[Row]]:
    """Take the decisions about the producer ids that are cut out of some transactional ids.

    Args:
        log: the number of their log.
        fold: the task that folded them, and the number of the fold there.
        folded: the ids.
        cut: the producer ids.
        buckets: the number of tasks among which the decisions are shared.
        size: the number of decisions of a row.
        joint: the offset of the joint of the slice that they are of; None for what is not in a slice.

    Returns:
        The ids without these decisions, except the last one of each; the owners; and the decisions.
    """
    owners: list[CutId] = []
    rows: list[Row] = []
    kept = np.ones(len(folded.decisions), np.bool_)
    for pid in sorted(cut & set(folded.owned_producer_id.tolist())):
        own = folded.of_producer(pid)
        pieces = []
        for number, some in enumerate(in_pieces(own.decisions, size)):
            part = *fold, number
            pieces.append(Piece(part, int(some.number[0]), counted(some)))
            rows.append(Row(DECIDED, sum(part) % buckets, Decided(log, part, pid, some), DECISION_BYTES * len(some)))
        bare = own.with_decisions(own.decisions.take(slice(0)).with_own_sets())
        owners.append(CutId(log, pid, bare, pieces, joint))
        kept &= folded.decisions.producer_id != pid
    if not owners:
        return folded, owners, rows
    if joint is None:
        kept[folded.decision_start[1:][np.diff(folded.decision_start) > 0] - 1] = True
    return folded.with_decisions(folded.decisions.take(kept)), owners, rows


def with_own_slices(
    ids: Sequence[FoldedIds], slices: Sequence[FoldedSlice], bases: Mapping[int, int]
) -> list[FoldedIds]:
    """Some transactional ids of a log, each with the decisions and grants of its slices."""
    found = []
    for own in ids if slices else ():
        names = set(own.names)
        found.append(with_slices(own, [each for each in slices if each.name in names], bases))
    return found or list(ids)


def judge_cut(
    cuts: Sequence[Cuts],
    around: Around,
    known: Known,
    rows: Sequence[Any],
    engine: Engine,
    result: int,
    buckets: int,
) -> tuple[Judged, list[Any], Asked]:
    """Judge the producer ids that are cut: figures, the rows with the findings, and data to ask about.

    Args:
        cuts: their cuts.
        around: what the stages need besides their rows.
        known: the transactional ids.
        rows: the rows with the slices.
        engine: the engine that runs the plan.
        result: the kind of rows of a result.
        buckets: the number of tasks among which counts of markers are shared.
    """
    owners = _owners(cuts, around, known)
    routes, places = _routes(cuts, around, owners), _places(owners, known)
    whole = {each.producer_id for each in cuts if each.producer_id not in routes}
    names = {pid: own[0].ids.names[0] for pid, own in owners.items() if len(own) == 1 and len(own[0].ids.names) == 1}
    send = partial(send_decisions, routes=routes, places=places, around=around, owned=frozenset(names), tasks=buckets)
    sent = engine.regroup(send, [DECIDED], known.rows, label="decisions of slices")
    judge = partial(judge_slices, around=around, owners=owners, routes=routes, tasks=buckets)
    proofs = engine.regroup(judge, [SLICES, ROUTED], *rows, sent, label="slices")
    both = engine.regroup(find_both, [UNJUDGED], proofs, label="epochs of slices")
    whole |= {pid for _, pids in engine.collect(PROVED, both) for pid in pids}
    proved: list[tuple[int, Judged | None]] = []
    ways: dict[Shared, Ways] = {}
    lowest: list[Lowest] = []
    asked = NOT_ASKED
    for _, (own_proofs, own_ways, own_lowest, own_asked) in engine.collect(PROVED, proofs):
        asked = asked.and_of(own_asked)
        proved += own_proofs
        ways |= own_ways
        lowest.append(own_lowest)
    whole |= {pid for pid, figures in proved if figures is None}
    whole |= {pid for pid, route in routes.items() if not _have_a_way(route, ways)}
    judged, stages = Judged(), [proofs]
    for pid, figures in proved:
        if figures is not None and pid not in whole:
            judged.add(figures)
    if whole:
        gather = partial(put_together, whole=frozenset(whole), places=places)
        gathered = engine.regroup(gather, [SLICES, DECIDED], *rows, known.rows, label="slices put together")
        judge_all = partial(judge_whole, around=around, owners=owners, result=result)
        stages.append(engine.regroup(judge_all, [WHOLE], gathered, label="transactions of slices"))
        for _, figures in engine.collect(result, stages[-1]):
            judged.add(figures)
    compare = partial(compare_counts, around=around, names=names, lowest=lowest_of(lowest), result=result)
    stages.append(engine.regroup(compare, [COUNTED], *rows, sent, proofs, label="missing markers"))
    for _, figures in engine.collect(result, stages[-1]):
        judged.add(figures)
    return judged, stages, asked


def compare_counts(
    key: int,
    values: Iterable[NDArray[np.void]],
    *,
    around: Around,
    names: Mapping[int, str],
    lowest: Lowest,
    result: int,
) -> Iterator[Row]:
    """Find the missing markers of some epochs of the producer ids that are cut."""
    every = list(values)
    owed = added(np.concatenate([NO_OWED, *(rows for rows in every if rows.dtype == OWED)]))
    there = added(np.concatenate([NO_THERE, *(rows for rows in every if rows.dtype == THERE)]))
    judged = Judged()
    around.owing.compare(owed, there, lowest, names.__getitem__, judged)
    yield from found_rows(judged.findings, key)
    yield Row(result, key, replace(judged, findings=[]))


def _have_a_way(route: Routes, ways: Mapping[Shared, Ways]) -> bool:
    """Whether all markers of epochs that slices share may be those of the decisions, in order."""
    repeated = 1
    for each in route.cuts.shared:
        if each.log in route.by_epoch:
            continue
        repeated = after(repeated if each.before else 1, ways[each])
        if not repeated:
            return False
    return True


def _owners(cuts: Sequence[Cuts], around: Around, known: Known) -> dict[int, list[CutId]]:
    """The owners of each producer id in the logs that count, with the grants and in the order of their slices."""
    logs = {around.numbers[log.log] for log in around.coordinators}
    found: dict[int, list[CutId]] = {each.producer_id: [] for each in cuts}
    slices: dict[tuple[int, int], list[CutId]] = defaultdict(list)
    for own in known.cut:
        if own.joint is not None:
            slices[own.log, own.producer_id].append(own)
    for own in known.cut:
        if own.log not in logs or own.producer_id not in found or own.joint is not None:
            continue
        bases = known.bases.get(own.log, {})
        mine = [each for each in slices[own.log, own.producer_id] if each.ids.names[0] in own.ids.names]
        told = [FoldedSlice(each.ids.names[0], each.joint, each.ids) for each in mine if each.joint is not None]
        pieces = list(own.pieces)
        for each in mine:
            base = 0 if each.joint is None else bases[each.joint]
            pieces += [piece._replace(first=piece.first + base) for piece in each.pieces]
        pieces.sort(key=lambda piece: (piece.first, piece.part))
        found[own.producer_id].append(own._replace(ids=with_slices(own.ids, told, bases), pieces=pieces))
    return found


def _places(owners: Mapping[int, Sequence[CutId]], known: Known) -> Places:
    """The place of each row of decisions."""
    bases = {
        (own.log, own.producer_id, piece.part): known.bases[own.log][own.joint]
        for own in known.cut
        if own.joint is not None
        for piece in own.pieces
    }
    found = {}
    for own in (own for each in owners.values() for own in each):
        before = before_each([piece.counts for piece in own.pieces])
        for number, (piece, counts) in enumerate(zip(own.pieces, before, strict=True)):
            at = own.log, own.producer_id, piece.part
            found[at] = Place(number, bases.get(at, 0), counts)
    return found


def _placed(each: Decided, place: Place) -> Decided:
    """Decisions with their numbers among all of their transactional id."""
    decisions = replace(each.decisions, number=each.decisions.number + np.int32(place.base))
    return each._replace(part=(place.number,), decisions=decisions)


def _routes(cuts: Sequence[Cuts], around: Around, owners: Mapping[int, Sequence[CutId]]) -> dict[int, Routes]:
    """The routes of the producer ids whose markers can be counted."""
    found = {}
    logs = {number: around.partitions[number].log for number in around.chosen}
    place = {(log.topic, log.partition): number for number, log in logs.items()}
    number_of = {around.numbers[log.log]: log for log in around.coordinators}
    for each in cuts:
        own = owners[each.producer_id]
        is_known = len(own) == 1 and len(own[0].ids.names) == 1
        no_order = not is_known or why_incomplete(number_of[own[0].log]) is not None
        by_epoch = {log for log in each.logs if no_order or around.partitions[log].holes}
        late = any(at.log not in by_epoch and around.partitions[at.log].start for at in each.shared)
        counts = [piece.counts for piece in own[0].pieces] if is_known else []
        together = reduce(counted_on, counts) if counts else None
        if not each.are_counted or late or (together is not None and not together.in_order):
            continue
        begins = {log: around.partitions[log].begins_ms for log in each.logs}
        log_of = {where: log for where, log in place.items() if log in each.logs}
        place_of = {log: where for where, log in log_of.items()}
        found[each.producer_id] = Routes(each, log_of, place_of, by_epoch, begins)
    return found


def send_decisions(
    key: int,
    values: Iterable[Decided],
    *,
    routes: Mapping[int, Routes],
    places: Places,
    around: Around,
    owned: AbstractSet[int],
    tasks: int,
) -> Iterator[Row]:
    """Send decisions to the tasks with their markers, and count the markers that the completed ones must have left."""
    del key
    owed = [NO_OWED]
    number_of = {around.numbers[log.log]: number for number, log in enumerate(around.coordinators)}
    for each in values:
        place = places.get((each.log, each.producer_id, each.part))
        if place is None:
            continue
        told = _placed(each, place)
        if each.producer_id in owned:
            owed.append(around.owing.owed(told.decisions, number_of[each.log]))
        if each.producer_id not in routes:
            continue
        sent, due = routed(told.decisions, place.before, routes[each.producer_id])
        for task, some in sent:
            yield Row(ROUTED, task, told._replace(decisions=some), DECISION_BYTES * len(some))
        for own in due:
            yield Row(ROUTED, own.place.task, own, own.decisions.nbytes)
    for number, rows in by_task(added(np.concatenate(owed)), tasks):
        yield Row(COUNTED, number, rows, rows.nbytes)


def judge_slices(
    task: int,
    values: Iterable["Parts | Rest | Decided | Due"],
    *,
    around: Around,
    owners: Mapping[int, Sequence[CutId]],
    routes: Mapping[int, Routes],
    tasks: int,
) -> Iterator[Row]:
    """Prove the markers of some slices right, and judge the data that a later epoch replaced."""
    due: dict[Shared, list[Due]] = defaultdict(list)
    others: list[Parts | Rest | Decided] = []
    for value in values:
        if isinstance(value, Due):
            due[value.place].append(value)
        else:
            others.append(value)
    parts, decided = divided(others, around)
    steps = around.paired(in_order(parts))
    yield from around.neighbours.of_steps(steps, around.indexed)
    own = steps.of_logs(around.chosen)
    no_markers = replace(own, markers=own.markers[:0], ends=own.ends[:0], open=[])
    replaced = judge_steps(no_markers, around.partitions, around.knowledge({}), around.moments).open
    there = there_in(replace(own, open=[]))
    for number, rows in by_task(there, tasks):
        yield Row(COUNTED, number, rows, rows.nbytes)
    yield from around.open_rows(replaced)
    counts = np.isin(own.steps["producer_id"][own.markers], list(routes))
    own = replace(own, markers=own.markers[counts], ends=own.ends[counts], open=[], merged=[])
    shared = [each for route in routes.values() for each in route.cuts.shared if each.log not in route.by_epoch]
    knowledge = around.knowledge(_with_decisions(owners, decided))
    groups = {each[:3] for each in shared}
    proofs = prove_slices(own, around.partitions, knowledge, around.moments, groups)
    of_markers = own.steps.take(own.markers), own.log[own.markers], own.ends == NOTHING
    ways = {each: _ways_of(of_markers, each, routes, due[each]) for each in shared if each.task == task}
    yield Row(PROVED, task, ([proof[:2] for proof in proofs], ways, lowest_in(there), around.asked(replaced)))
    for proof in proofs:
        if len(proof.decisions) and proof.judged is not None:
            yield Row(UNJUDGED, proof.producer_id, proof.decisions, proof.decisions.nbytes)


def _ways_of(
    markers: tuple[Steps, Ints, NDArray[np.bool_]], at: Shared, routes: Mapping[int, Routes], due: Sequence[Due]
) -> Ways:
    """The ways through the markers of an epoch in a slice.

    Args:
        markers: all markers, by log, producer id and offset; their logs; and which of them end no data.
        at: the place of those of the slice.
        routes: the routes of all producer ids.
        due: the decisions that they may have.
    """
    steps, log, ends_nothing = markers
    low, high = np.searchsorted(log, (at.log, at.log + 1))
    rows = low + np.flatnonzero(steps["producer_id"][low:high] == at.producer_id)
    begins = routes[at.producer_id].cuts.logs[at.log][:, 1]
    low, high = np.searchsorted(steps["offset"][rows], [*begins[at.slice : at.slice + 2], NEVER][:2])
    rows = rows[low:high]
    rows = rows[steps["producer_epoch"][rows] == at.epoch]
    if not all(each.is_plain for each in due):
        return [(0, 0)] * (at.silent + 1)
    in_turn = sorted(due, key=lambda each: each.first)
    first = in_turn[0].first if in_turn else 0
    decisions = np.concatenate([np.empty(0, np.int8), *(each.decisions for each in in_turn)])
    return ways_through(steps["decision"][rows].astype(np.int64), ends_nothing[rows], decisions, first, at)


def find_both(key: int, values: Iterable[Any]) -> Iterator[Row]:
    """The producer id, if one of its epochs has a commit and an abort."""
    yield Row(PROVED, key, sorted(both_decisions(list(values))))


def put_together(
    key: int, values: Iterable["Parts | Rest | Decided"], *, whole: frozenset[int], places: Places
) -> Iterator[Row]:
    """The steps and decisions of the producer ids that are not proved, by producer id."""
    del key
    for value in values:
        if isinstance(value, Decided):
            place = places.get((value.log, value.producer_id, value.part))
            if value.producer_id in whole and place is not None:
                yield Row(WHOLE, value.producer_id, _placed(value, place), DECISION_BYTES * len(value.decisions))
            continue
        parts = value.parts if isinstance(value, Rest) else value
        for pid in whole.intersection(np.unique(parts.steps["producer_id"]).tolist()):
            own = Parts.of([part._replace(steps=of_producers(part.steps, [pid])) for part in parts.each()])
            yield Row(WHOLE, pid, Rest(own) if isinstance(value, Rest) else own, own.steps.nbytes)


def judge_whole(
    producer_id: int,
    values: Iterable["Parts | Rest | Decided"],
    *,
    around: Around,
    owners: Mapping[int, Sequence[CutId]],
    result: int,
) -> Iterator[Row]:
    """Judge all markers of a producer id."""
    parts, decided = divided(values, around)
    steps = around.paired(in_order(parts)).of_logs(around.chosen)
    knowledge = around.knowledge(_with_decisions({producer_id: owners[producer_id]}, decided))
    judged = judge_steps(replace(steps, open=[], merged=[]), around.partitions, knowledge, around.moments)
    logs = [*(partition.log for partition in around.partitions), *(each.log for each in around.coordinators)]
    yield from found_rows(judged.findings, producer_id, folders(logs) if judged.findings else None)
    yield Row(result, producer_id, replace(judged, findings=[]))


def divided(values: Iterable["Parts | Rest | Decided"], around: Around) -> tuple[list[Part], list[Decided]]:
    """Steps and decisions. The steps around slices are those that count."""
    parts: list[Part] = []
    decided: list[Decided] = []
    for value in values:
        if isinstance(value, Decided):
            decided.append(value)
        elif isinstance(value, Rest):
            parts += value.parts.each()
        else:
            parts += [part for part in value.each() if part.log not in around.again]
    return parts, decided


def in_order(parts: Iterable[Part]) -> list[Part]:
    """The parts of each chunk as one part, in order."""
    found = []
    for _, group in groupby(sorted(parts, key=lambda part: part[:3]), key=lambda part: part[:3]):
        own = list(group)
        steps = own[0].steps if len(own) == 1 else joined_steps(own)
        if len(own) > 1:
            steps = steps.take(np.argsort(steps["position"], kind="stable"))
        found.append(own[0]._replace(steps=steps))
    return found


def _with_decisions(owners: Mapping[int, Sequence[CutId]], decided: Iterable[Decided]) -> dict[int, list[FoldedIds]]:
    """The owners of some producer ids by their log, with some of their decisions."""
    pieces: dict[tuple[int, int], list[Decided]] = defaultdict(list)
    for each in sorted(decided, key=lambda each: each.part):
        pieces[each.producer_id, each.log].append(each)
    found: dict[int, list[FoldedIds]] = defaultdict(list)
    for own in (own for each in owners.values() for own in each):
        names = {name: number for number, name in enumerate(own.ids.names)}
        some = [each.decisions for each in pieces[own.producer_id, own.log] if names.keys() & set(each.decisions.names)]
        if some:
            told = concatenate_decisions(some)
            numbers = np.array([names[name] for name in told.names], np.int32)
            told = replace(told, transactional_id=numbers[told.transactional_id], names=own.ids.names)
            told = told.take(stable_order(told.transactional_id))
            found[own.log].append(own.ids.with_decisions(told))
        else:
            found[own.log].append(own.ids)
    return found


def slices_of(told: Iterable[Sequence[Slice]]) -> dict[int, list[Slice]]:
    """The slices of some logs by producer id."""
    found: dict[int, list[Slice]] = defaultdict(list)
    for own in told:
        for each in own:
            found[each.producer_id].append(each)
    return dict(found)
