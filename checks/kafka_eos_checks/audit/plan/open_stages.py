"""The stages that tell what became of data without a marker of their own.

======================  ===============================  ============================================================
stage                   mapped over                      rows
======================  ===============================  ============================================================
:func:`tell_decisions`  ids of a bucket                  the coordinators' decisions about such data
:func:`tell_markers`    steps of a bucket or slice       markers of the same transactions, if no log tells the decision
:func:`hold_back`       such data of a log               the findings, with these decisions and with the offsets that
                                                         they keep from readers
======================  ===============================  ============================================================

They only run if there are such data. :func:`kafka_eos_checks.audit.rules.transactions.open.hanging` has found them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka_eos_checks.audit.engines.engine import Engine, Row
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import FoldedIds, FoldedSlice
from kafka_eos_checks.audit.kernels.coordinators.matching import marked_in
from kafka_eos_checks.audit.kernels.coordinators.slices import Decided
from kafka_eos_checks.audit.kernels.logs.transactions import Part, Parts, scattered
from kafka_eos_checks.audit.plan.found import folders, found_rows, identity
from kafka_eos_checks.audit.plan.slice_stages import (
    DECIDED,
    OPENED,
    SLICES,
    Around,
    Asked,
    Known,
    Rest,
    divided,
    in_order,
    of_producers,
    with_own_slices,
)
from kafka_eos_checks.audit.rules.decided import Answers, Data, added, decisions_about, needs_markers
from kafka_eos_checks.audit.rules.transactions.judged import Hanging
from kafka_eos_checks.audit.rules.transactions.open import owners_of, with_decisions
from kafka_eos_checks.audit.segments.splits import PartitionLog

ANSWERED = 30  # a kind of rows
OTHERS = "markers of open transactions"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllSteps:
    """The place of the steps of all producer ids.

    Attributes:
        rows: the rows with them, except the steps around slices.
        kind: the kind of the rows with the steps of a bucket of producer ids.
        buckets: the number of buckets.
        exact: the steps of logs that were read again.
        cut: the producer ids that are cut; their steps are in rows of kind :data:`SLICES`.
    """

    rows: Any
    kind: int
    buckets: int
    exact: Sequence[Part]
    cut: AbstractSet[int]


def judge_open(
    asked: Asked, around: Around, known: Known, rows: Sequence[Any], engine: Engine, kind: int, steps: AllSteps
) -> Any:
    """The rows with the findings on data without a marker of their own.

    Args:
        asked: the data.
        around: what the stages need besides their rows.
        known: the transactional ids.
        rows: the rows with the data.
        engine: the engine that runs the plan.
        kind: the kind of the rows with transactional ids.
        steps: the steps of all producer ids.
    """
    answers: Answers = {}
    if asked.data and around.coordinators:
        cut = frozenset(own.producer_id for own in known.cut)
        tell = partial(
            tell_decisions, wanted=asked.data, around=around, bases=known.bases, cut=cut, buckets=steps.buckets
        )
        told = engine.regroup(tell, [kind, DECIDED], known.rows, label="decisions about open transactions")
        answers = added(part for _, part in engine.collect(ANSWERED, told))
    wanted = frozenset(data for data in asked.data if needs_markers(answers.get(data)))
    if wanted:
        look = partial(tell_markers, wanted=wanted, around=around, buckets=steps.buckets)
        producer_ids = frozenset(data.producer_id for data in wanted)
        whole = partial(look, only=producer_ids - steps.cut, exact=steps.exact)
        found = [engine.regroup(whole, [steps.kind], steps.rows, label=OTHERS)]
        if sliced := producer_ids & steps.cut:
            found.append(
                engine.regroup(partial(look, only=sliced, exact=()), [SLICES], steps.rows, *rows, label=OTHERS)
            )
        answers = added([answers, *(part for _, part in engine.collect(ANSWERED, *found))])
    ends = {number: (around.partitions[number].log, around.partitions[number].end) for number in asked.logs}
    hold = partial(hold_back, ends=ends, answers=answers)
    return engine.regroup(hold, [OPENED], *rows, label="open transactions")


def tell_decisions(
    bucket: int,
    values: Iterable[Decided | tuple[int, FoldedIds | FoldedSlice]],
    *,
    wanted: Collection[Data],
    around: Around,
    bases: Mapping[int, Mapping[int, int]],
    cut: Collection[int],
    buckets: int,
) -> Iterator[Row]:
    """The coordinators' decisions about some data, as far as a task has them.

    Args:
        bucket: the bucket of producer ids.
        values: the transactional ids of the bucket, and decisions about producer ids that are cut, of any bucket.
        wanted: the data.
        around: the logs.
        bases: see :attr:`kafka_eos_checks.audit.plan.slice_stages.Known.bases`.
        cut: the producer ids that are cut, whose decisions are not with their transactional ids.
        buckets: the number of buckets.
    """
    ids: dict[int, list[FoldedIds]] = defaultdict(list)
    slices: dict[int, list[FoldedSlice]] = defaultdict(list)
    counted = {around.numbers[log.log] for log in around.coordinators}
    parts: list[Answers] = []
    for value in values:
        if isinstance(value, Decided):
            parts += [decisions_about(value.decisions, wanted)] if value.log in counted else []
        elif isinstance(value[1], FoldedSlice):
            slices[value[0]].append(value[1])
        else:
            ids[value[0]].append(value[1])
    own = [data for data in wanted if data.producer_id % buckets == bucket]
    knowledge = around.knowledge(
        {log: with_own_slices(each, slices[log], bases.get(log, {})) for log, each in ids.items()}
    )
    parts.append(decisions_about(knowledge.decisions, [data for data in own if data.producer_id not in cut]))
    parts.append(owners_of(own, knowledge))
    yield Row(ANSWERED, bucket, added(parts))


def tell_markers(
    key: int,
    values: Iterable[Parts | Rest],
    *,
    wanted: Collection[Data],
    around: Around,
    only: Collection[int],
    exact: Sequence[Part],
    buckets: int,
) -> Iterator[Row]:
    """The markers that ended data of the same epoch as some other data, as far as a task has them.

    Args:
        key: the bucket of producer ids, or the number of a task with slices.
        values: steps.
        wanted: the data.
        around: the logs.
        only: the producer ids to look at.
        exact: see :attr:`AllSteps.exact`.
        buckets: the number of buckets.
    """
    parts, _ = divided(values, around)
    parts += (part for number, own in scattered(exact, buckets) if number == key for part in own.each())
    own = [part._replace(steps=of_producers(part.steps, only)) for part in parts]
    yield Row(ANSWERED, key, marked_in(around.paired(in_order(own)).of_logs(around.chosen), around.partitions, wanted))


def hold_back(
    number: int,
    values: Iterable[Sequence[Hanging]],
    *,
    ends: Mapping[int, tuple[PartitionLog, int]],
    answers: Answers,
) -> Iterator[Row]:
    """The findings on the data of a log, with the offsets that they keep from readers, and with the decisions."""
    log, end = ends[number]
    hang = sorted((each for own in values for each in own), key=lambda each: each.finding.sort_key())
    yield from found_rows(with_decisions(hang, {identity(log): end}, answers), number, folders([log]))
