"""The plan of an audit of histories of Jepsen: its stages, and the rows that each stage reads and writes.

========================  =======================  =====================================================================
stage                     mapped over              rows
========================  =======================  =====================================================================
:func:`read`              pieces of the history    parts of operations by bucket of keys, operations, boundaries
:func:`fold_boundaries`   all boundaries           operations across pieces, what processes had forgotten by bucket
:func:`look_for_proofs`   the parts of a bucket    proofs by operation, and the buckets that ask for them
:func:`bring_proofs`      proofs of operations     proofs by bucket
:func:`judge_bucket`      the parts of a bucket    anomalies of single keys, stretches of steps back
:func:`step_through`      the parts of a bucket    steps within stretches, by group of stretches
:func:`pick_operations`   operations of a piece    the operations of stretches, by group
:func:`find_cycles`       a group of stretches     cycles, and their steps by bucket
:func:`give_reasons`      the parts of a bucket    the reasons of these steps, by group
:func:`tell_cycles`       cycles and reasons       anomalies
========================  =======================  =====================================================================

A task holds a piece, a bucket of keys or a group of stretches. The caller, on Spark the driver, holds two numbers of
each piece and of each stretch. The readable form of all of them is
:func:`kafka_eos_checks.audit.jepsen.anomalies.anomalies`.
"""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.engines.engine import Engine, Row
from kafka_eos_checks.audit.jepsen.anomalies import (
    Analysis,
    Step,
    Why,
    allowed,
    cycle_finding,
    cycles_of,
    first_reasons,
    steps_of,
)
from kafka_eos_checks.audit.jepsen.by_key import (
    NO_STEPS,
    Judged,
    KeyHistory,
    KeySteps,
    Proof,
    Steps,
    by_key,
    judge_key,
    proofs_of,
    reasons_of,
    steps_of_key,
    stretch_of,
    unknown_of,
)
from kafka_eos_checks.audit.jepsen.operations import Operation, WrongOperation, check_operations
from kafka_eos_checks.audit.jepsen.pieces import (
    PIECE_BYTES,
    Bare,
    Boundary,
    Forgets,
    Inherited,
    Part,
    Piece,
    Processes,
    bucket_of,
    number_of,
    pieces_of,
    read_piece,
)
from kafka_eos_checks.audit.plan.found import found_rows

PARTS, BOUNDARIES, BARE, INHERITED, ASKED, PROVED, RESULT, STEPS, PICKED, CYCLES, WANTED, WHYS = range(12)
BUCKET_BYTES = 16 << 20  # of a history for each bucket of keys
ROWS_AT_ONCE = 2000  # parts or operations of a row
PART_BYTES = 400  # that a part takes between stages, about

Cycle = tuple[str, list[Bare]]  # a rule, and the operations


class Parts(NamedTuple):
    """Some parts, which are unpickled when a task looks at them."""

    pickled: bytes


class Proved(NamedTuple):
    """Why some operations of unknown outcome happened."""

    words: Mapping[int, str]


class Wanted(NamedTuple):
    """Steps of cycles whose reasons a group of stretches asks for."""

    group: int
    steps: frozenset[Step]


class StepsOf(NamedTuple):
    """The steps of the keys of a bucket."""

    bucket: int
    steps: KeySteps


@dataclass(frozen=True, slots=True)
class Question:
    """The facts of the whole history that its tasks need.

    Attributes:
        run: the name of the history.
        buckets: the number of buckets of keys, and of groups of stretches.
        begins: the number of the first form of each piece.
        fine: anomalies that are allowed.
        stretches: the stretches of the history.
    """

    run: str
    buckets: int
    begins: list[int]
    fine: frozenset[str]
    stretches: Steps = field(default_factory=lambda: NO_STEPS)

    def group_of(self, stretch: Any) -> Any:
        """The group of a stretch, or of each of an array."""
        return stretch * self.buckets // len(self.stretches)


def judge_operations(path: Path, size: int, engine: Engine, kept: list[Any]) -> Judged:
    """All anomalies of a history except its findings, which stay in rows.

    Args:
        path: the history.
        size: its size, in bytes.
        engine: the engine that runs the plan.
        kept: takes the rows with the findings.

    Raises:
        MalformedHistory: the history is no history of Jepsen, or a value is sent to a key a second time.
    """
    buckets = max(1, -(-size // BUCKET_BYTES))
    pieces = pieces_of(path, size, PIECE_BYTES)
    rows, folded, whole, begins = _read(pieces, buckets, engine)
    if whole.wrong:  # a piece ended within a value
        check_operations(path)
        rows, folded, whole, begins = _read([Piece(0, path, 0, size)], buckets, engine)
    question = Question(str(path), buckets, begins, allowed(whole.subscribes))
    parts = [rows, folded]
    if whole.unknown:
        asked = engine.regroup(partial(look_for_proofs, question=question), [PARTS], *parts, label="proofs")
        parts.append(engine.regroup(bring_proofs, [ASKED], asked, label="proofs"))
    kinds = [PARTS, INHERITED, PROVED]
    kept.append(engine.regroup(partial(judge_bucket, question=question), kinds, *parts, label="keys"))
    judged = _summed_up(engine, kept[-1])
    if judged.twice is not None:
        place, reason = judged.twice
        raise MalformedHistory(str(path), number_of(place, begins) + 1, reason)  # as each form has its own line
    judged.figures["operations"] = whole.operations
    if not len(judged.stretches):
        return judged
    question = replace(question, stretches=judged.stretches)
    steps = engine.regroup(partial(step_through, question=question), kinds, *parts, label="steps")
    picked = engine.regroup(partial(pick_operations, question=question), [BARE], rows, folded, label="operations")
    search = partial(find_cycles, question=question)
    found = engine.regroup(search, [STEPS, PICKED], steps, picked, label="cycles")
    whys = engine.regroup(
        partial(give_reasons, question=question), [*kinds, WANTED], *parts, found, label="reasons of cycles"
    )
    tell = partial(tell_cycles, question=question)
    kept.append(engine.regroup(tell, [CYCLES, WHYS], found, whys, label="cycles"))
    judged.join(_summed_up(engine, kept[-1]))
    return judged


def _read(pieces: list[Piece], buckets: int, engine: Engine) -> tuple[Any, Any, Boundary, list[int]]:
    """The rows of a history and of its boundaries, their sum, and the number of the first form of each piece."""
    sizes = [piece.end - piece.start for piece in pieces]
    rows = engine.map(partial(read, buckets=buckets), pieces, sizes, "operations")
    folded = engine.regroup(partial(fold_boundaries, buckets=buckets), [BOUNDARIES], rows, label="processes")
    [(_, (whole, begins))] = engine.collect(RESULT, folded)
    return rows, folded, whole, begins


def _summed_up(engine: Engine, rows: Any) -> Judged:
    """The sum of the anomalies that tasks have told, without findings."""
    judged = Judged()
    for _, own in engine.collect(RESULT, engine.regroup(sum_up, [RESULT], rows, label="sum")):
        judged.join(own)
    return judged


def sum_up(_: int, values: Iterable[Judged]) -> Iterator[Row]:
    """Sum up anomalies."""
    judged = Judged()
    for own in values:
        judged.join(own)
    yield Row(RESULT, 0, judged)


def _told(judged: Judged, key: int) -> Iterator[Row]:
    """The rows of anomalies: the findings, and the rest."""
    judged.finish()
    yield from found_rows(judged.findings, key)
    yield Row(RESULT, 0, replace(judged, findings=[]))


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sorted:
    """Parts and operations on their way to rows."""

    buckets: int
    parts: dict[int, list[Part]] = field(default_factory=lambda: defaultdict(list))
    bare: list[Bare] = field(default_factory=list)

    def add(self, parts: Iterable[Part]) -> Iterator[Row]:
        """Add parts; the rows that are full."""
        for part in parts:
            own = self.parts[bucket_of(part.key, self.buckets)]
            own.append(part)
            if len(own) == ROWS_AT_ONCE:
                yield self._row(bucket_of(part.key, self.buckets))

    def add_bare(self, bare: Bare, piece: int) -> Iterator[Row]:
        """Add an operation; the row if it is full."""
        self.bare.append(bare)
        if len(self.bare) == ROWS_AT_ONCE:
            yield from self._bare_row(piece)

    def rest(self, piece: int) -> Iterator[Row]:
        """The rows of the rest."""
        for bucket in list(self.parts):
            yield self._row(bucket)
        yield from self._bare_row(piece)

    def _row(self, bucket: int) -> Row:
        pickled = pickle.dumps(self.parts.pop(bucket), pickle.HIGHEST_PROTOCOL)
        return Row(PARTS, bucket, Parts(pickled), len(pickled))

    def _bare_row(self, piece: int) -> Iterator[Row]:
        if self.bare:
            yield Row(BARE, piece, self.bare, PART_BYTES * len(self.bare))
            self.bare = []


def read(piece: Piece, *, buckets: int) -> Iterator[Row]:
    """Read a piece: the parts of its operations by bucket, the operations, and what other pieces need to know of it."""
    boundary = Boundary(piece.number)
    found = _Sorted(buckets)
    for bare, parts in read_piece(piece, boundary):
        yield from found.add(parts)
        if bare is not None:
            yield from found.add_bare(bare, piece.number)
    yield from found.rest(piece.number)
    yield Row(BOUNDARIES, 0, boundary, PART_BYTES * (1 + len(boundary.processes)))


def fold_boundaries(_: int, boundaries: Iterable[Boundary], *, buckets: int) -> Iterator[Row]:
    """Follow the processes from piece to piece."""
    processes = Processes()
    inherited: dict[int, list[Inherited]] = defaultdict(list)
    for boundary in sorted(boundaries, key=lambda boundary: boundary.number):
        bare = []
        for told in processes.take(boundary):
            if isinstance(told, Bare):
                bare.append(told)
                continue
            polls, sends = (_by_bucket(own, buckets) for own in (told.polls, told.sends))
            for bucket in range(buckets):
                own = Forgets(told.polls.others, polls[bucket]), Forgets(told.sends.others, sends[bucket])
                inherited[bucket].append(Inherited(told.piece, told.process, *own))
        yield Row(BARE, boundary.number, bare, PART_BYTES * len(bare))
        if len(inherited[0]) >= ROWS_AT_ONCE:
            yield from (Row(INHERITED, bucket, inherited.pop(bucket)) for bucket in list(inherited))
    yield from (Row(INHERITED, bucket, own, PART_BYTES * len(own)) for bucket, own in inherited.items())
    found = _Sorted(buckets)
    last = len(processes.begins)
    try:
        for unfinished, parts in processes.finish():
            yield from found.add(parts)
            yield from found.add_bare(unfinished, last)
    except WrongOperation:
        processes.whole.wrong = True
    yield from found.rest(last)
    yield Row(RESULT, 0, (processes.whole, processes.begins))


def _by_bucket(forgets: Forgets, buckets: int) -> dict[int, dict[Any, int]]:
    found: dict[int, dict[Any, int]] = defaultdict(dict)
    for key, place in forgets.kept.items():
        found[bucket_of(key, buckets)][key] = place
    return found


# --- a bucket of keys -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Bucket:
    """The rows of a bucket of keys."""

    parts: list[Parts] = field(default_factory=list)
    inherited: dict[tuple[int, Any], Inherited] = field(default_factory=dict)
    proofs: dict[int, str] = field(default_factory=dict)
    wanted: list[Wanted] = field(default_factory=list)

    @classmethod
    def of(cls, values: Iterable[Any]) -> "_Bucket":
        """Sort the rows by kind."""
        bucket = cls()
        for value in values:
            if isinstance(value, Parts):
                bucket.parts.append(value)
            elif isinstance(value, Wanted):
                bucket.wanted.append(value)
            elif isinstance(value, Proved):
                bucket.proofs.update(value.words)
            else:
                bucket.inherited.update({(own.piece, own.process): own for own in value})
        return bucket

    def by_key(self) -> Iterator[list[Part]]:
        """The parts of each key in their order; each key is given once."""
        found = by_key(part for some in self.parts for part in pickle.loads(some.pickled))  # noqa: S301 - of a worker
        self.parts.clear()
        while found:
            yield found.popitem()[1]

    def history(self, parts: Iterable[Part], question: Question) -> KeyHistory:
        """The history of a key."""
        return KeyHistory.of(parts, question.begins, self.inherited)


def look_for_proofs(bucket: int, values: Iterable[Any], *, question: Question) -> Iterator[Row]:
    """Look for proofs that operations of unknown outcome happened, and ask for those of other buckets."""
    asked: dict[int, tuple[list[Proof], set[int]]] = defaultdict(lambda: ([], set()))
    for parts in _Bucket.of(values).by_key():
        for place in unknown_of(parts):
            asked[place % question.buckets][1].add(place)
        for proof in proofs_of(parts, question.begins):
            asked[proof[0] % question.buckets][0].append(proof)
    for group, (proofs, places) in asked.items():
        yield Row(ASKED, group, (bucket, proofs, places), PART_BYTES * (len(proofs) + len(places)))


def bring_proofs(_: int, values: Iterable[tuple[int, list[Proof], set[int]]]) -> Iterator[Row]:
    """Bring the first proof of each operation to the buckets with its keys."""
    first: dict[int, tuple[int, str]] = {}
    asking: dict[int, set[int]] = {}
    for bucket, proofs, places in values:
        asking.setdefault(bucket, set()).update(places)
        for ended, place, words in proofs:
            first[ended] = min(first.get(ended, (place, words)), (place, words))
    for bucket, places in asking.items():
        own = {place: first[place][1] for place in places if place in first}
        if own:
            yield Row(PROVED, bucket, Proved(own), PART_BYTES * len(own))


def judge_bucket(number: int, values: Iterable[Any], *, question: Question) -> Iterator[Row]:
    """Judge the keys of a bucket, one after the other."""
    judged, bucket = Judged(), _Bucket.of(values)
    for parts in bucket.by_key():
        judge_key(bucket.history(parts, question), question.run, bucket.proofs, question.fine, judged)
    yield from _told(judged, number)


def step_through(number: int, values: Iterable[Any], *, question: Question) -> Iterator[Row]:
    """The steps of the keys of a bucket within stretches, by group of stretches."""
    given, behind, bucket = [NO_STEPS], [NO_STEPS], _Bucket.of(values)
    for parts in bucket.by_key():
        inside = stretch_of(np.array([part.ended for part in parts], np.int64), question.stretches) >= 0
        if np.count_nonzero(inside) > 1:
            history = bucket.history(parts, question)
            own = steps_of_key(Analysis.of(history.operations, question.run, bucket.proofs), question.stretches)
            given.append(own.given)
            behind.append(own.behind)
    steps = KeySteps(np.concatenate(given), np.concatenate(behind))
    groups = [question.group_of(stretch_of(own[:, 0], question.stretches)) for own in steps]
    for group in np.union1d(*groups).tolist():
        of_group = KeySteps(*(own[numbers == group] for own, numbers in zip(steps, groups, strict=True)))
        yield Row(STEPS, group, StepsOf(number, of_group), sum(own.nbytes for own in of_group))


def give_reasons(_: int, values: Iterable[Any], *, question: Question) -> Iterator[Row]:
    """The reasons of the steps of cycles that keys of a bucket have, by group of stretches."""
    bucket = _Bucket.of(values)
    steps = frozenset(step for wanted in bucket.wanted for step in wanted.steps)
    if not steps:
        return
    ends = {place for step in steps for place in step}
    group_of = {step: wanted.group for wanted in bucket.wanted for step in wanted.steps}
    found: dict[int, list[tuple[Step, Why]]] = defaultdict(list)
    for parts in bucket.by_key():
        if sum(part.ended in ends for part in parts) > 1:
            history = bucket.history(parts, question)
            analysis = Analysis.of(history.operations, question.run, bucket.proofs)
            for step, why in reasons_of(history, analysis, steps):
                found[group_of[step]].append((step, why))
    for group, whys in found.items():
        yield Row(WHYS, group, whys, PART_BYTES * len(whys))


# --- cycles -----------------------------------------------------------------------------------------------------------


def pick_operations(_: int, values: Iterable[list[Bare]], *, question: Question) -> Iterator[Row]:
    """The operations of a piece that are in stretches, by group of stretches."""
    found: dict[int, list[Bare]] = defaultdict(list)
    for some in values:
        numbers = stretch_of(np.array([bare.ended for bare in some], np.int64), question.stretches)
        for bare, number in zip(some, numbers.tolist(), strict=True):
            if number >= 0:
                found[question.group_of(number)].append(bare)
    for group, own in found.items():
        yield Row(PICKED, group, own, PART_BYTES * len(own))


@dataclass(slots=True)
class _Stretch:
    """The operations of a stretch in their order, and its steps."""

    operations: list[Bare] = field(default_factory=list)
    given: set[Step] = field(default_factory=set)
    behind: set[Step] = field(default_factory=set)


def _numbered(steps: Steps, stretches: Steps) -> Iterable[tuple[int, Step]]:
    """Steps with the numbers of their stretches."""
    numbers = stretch_of(steps[:, 0], stretches)
    return zip(numbers.tolist(), map(tuple, steps.tolist()), strict=True)


def find_cycles(group: int, values: Iterable[StepsOf | list[Bare]], *, question: Question) -> Iterator[Row]:
    """The cycles of a group of stretches, one stretch after the other, and the steps whose reasons are asked for."""
    operations: list[Bare] = []
    steps: list[StepsOf] = []
    for value in values:
        if isinstance(value, StepsOf):
            steps.append(value)
        else:
            operations += value
    operations.sort(key=lambda bare: (not bare.completed, bare.ended))
    by_stretch: dict[int, _Stretch] = defaultdict(_Stretch)
    numbers = stretch_of(np.array([bare.ended for bare in operations], np.int64), question.stretches)
    for bare, number in zip(operations, numbers.tolist(), strict=True):
        by_stretch[number].operations.append(bare)
    for _, own in steps:
        for number, step in _numbered(own.given, question.stretches):
            by_stretch[number].given.add(step)
        for number, step in _numbered(own.behind, question.stretches):
            by_stretch[number].behind.add(step)
    cycles: list[Cycle] = []
    wanted: set[Step] = set()
    for stretch in by_stretch.values():
        of = {bare.ended: bare for bare in stretch.operations}
        whole = [bare.operation(question.begins) for bare in stretch.operations]
        for rule, cycle in cycles_of(whole, stretch.given, stretch.behind):
            cycles.append((rule, [of[each.ended] for each in cycle]))
            wanted.update(steps_of(cycle))
    if not cycles:
        return
    yield Row(CYCLES, group, cycles, PART_BYTES * len(wanted))
    for bucket, own in steps:
        asked = wanted.intersection((one, other) for found in own for one, other in found.tolist())
        if asked:
            yield Row(WANTED, bucket, Wanted(group, frozenset(asked)), PART_BYTES * len(asked))


def tell_cycles(group: int, values: Iterable[Any], *, question: Question) -> Iterator[Row]:
    """The findings of the cycles of a group of stretches."""
    cycles: list[Cycle] = []
    whys: list[tuple[Step, Why]] = []
    for value in values:
        for each in value:
            (cycles if isinstance(each[0], str) else whys).append(each)
    reasons = first_reasons(whys)
    judged = Judged()
    found: Iterator[tuple[str, list[Operation]]] = (
        (rule, [bare.operation(question.begins) for bare in cycle]) for rule, cycle in cycles
    )
    judged.add((cycle_finding(rule, cycle, reasons, question.run) for rule, cycle in found), question.fine)
    yield from _told(judged, question.buckets + group)
