"""The plan of an audit of logs: its stages, and the rows that each stage reads and writes.

======================  ===============================  ============================================================
stage                   mapped over                      rows
======================  ===============================  ============================================================
:func:`scan`            splits of all logs               summaries of chunks by log, steps of transactions by producer
:func:`fold_log`        the summaries of a log           its audit by the rules over logs, and the log as a whole
:func:`read_states`     splits of ``__transaction_state``  records by transactional id
:func:`fold_bucket`     records of a bucket of ids       the coordinators' rules, and what is known of each producer id
:func:`judge_bucket`    steps and ids of a bucket        the rules over transactions
:func:`read_commits`    logs of ``__consumer_offsets``   the rule over committed offsets
:func:`look_beside`     the replicas of a partition      the rules over indexes, snapshots and replicas
======================  ===============================  ============================================================

The logs of coordinators are read after the others, since of a running broker they then have what decided every marker
that was read before. The caller, on Spark the driver, has some numbers of each log and chunk, and the findings.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos_checks.audit.engines.local import Engine, LocalEngine, Row, asker
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.internal_topics.states import StateChunk, States, concatenate_states, state_rows
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import FoldedIds, LogFacts, fold_states
from kafka_eos_checks.audit.kernels.coordinators.group_log import read_group_log
from kafka_eos_checks.audit.kernels.coordinators.matching import Knowledge, judge_steps
from kafka_eos_checks.audit.kernels.logs.fold import LogAudit, fold, summaries_of
from kafka_eos_checks.audit.kernels.logs.summary import Summary
from kafka_eos_checks.audit.kernels.logs.transactions import (
    NO_STEPS,
    Part,
    Partition,
    scattered,
)
from kafka_eos_checks.audit.kernels.logs.whole import read_in_order, read_whole
from kafka_eos_checks.audit.moments import ONE_MOMENT, Moments, Source
from kafka_eos_checks.audit.rules.beside import Beside, audit_beside
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog
from kafka_eos_checks.audit.rules.offsets import went_back
from kafka_eos_checks.audit.rules.transactions import (
    Figures,
    Judged,
    TransactionAudit,
    concluded,
    longest,
)
from kafka_eos_checks.audit.segments.splits import SPLIT_BYTES, PartitionLog, Split, plan, tasks

SUMMARY, STEPS, RESULT, KNOWN = range(4)  # kinds of rows
BUCKET_BYTES = 256 << 20  # of logs, whose steps are brought together in a bucket of producer ids
MOST_BUCKETS = 4096
STATE_SPLIT_BYTES = 16 << 20  # of __transaction_state, because records take ten times as long as headers
RECORD_BYTES = 150  # approximate size of a record of __transaction_state between stages

Task = Sequence[tuple[int, Split]]  # splits, each with the number of its log


# --- the rules over logs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scanned:
    """Logs after their scan.

    Attributes:
        audits: of each log, by the rules over logs.
        rows: where the steps of their transactions are kept.
        buckets: by how many buckets of producer ids.
    """

    audits: list[LogAudit]
    rows: Any
    buckets: int


def audit_logs(
    logs: Sequence[PartitionLog],
    engine: Engine | None = None,
    *,
    check_crc: bool = True,
    split_bytes: int = SPLIT_BYTES,
) -> list[LogAudit]:
    """Audit logs by the rules over single logs only; arguments as for :func:`scan_logs`."""
    return scan_logs(logs, engine or LocalEngine(), check_crc=check_crc, split_bytes=split_bytes).audits


def scan_logs(
    logs: Sequence[PartitionLog],
    engine: Engine,
    source: Source = ONE_MOMENT,
    *,
    check_crc: bool = True,
    split_bytes: int = SPLIT_BYTES,
) -> Scanned:
    """Read every split once.

    Args:
        logs: the logs to audit.
        engine: the engine that runs the plan.
        source: the known facts about their moments.
        check_crc: whether to compare each batch with its CRC.
        split_bytes: size of the splits, and of a task; the result does not depend on it.

    Raises:
        OSError, UnusableInput: a log cannot be read.
    """
    number = {log: place for place, log in enumerate(logs)}
    splits = plan(logs, split_bytes, asker(engine, logs))
    by_log: list[list[Split]] = [[] for _ in logs]
    for split in splits:
        by_log[number[split.log]].append(split)
    planned = [[(number[split.log], split) for split in task] for task in tasks(splits, split_bytes)]
    sizes = [sum(split.size for _, split in task) for task in planned]
    buckets = min(MOST_BUCKETS, max(engine.buckets, sum(split.weight for split in splits) // BUCKET_BYTES))
    read = partial(scan, check_crc=check_crc, buckets=buckets, high_watermarks=_high_watermarks(logs, source))
    rows = engine.map(read, planned, sizes, "scan")
    folded = engine.regroup(
        partial(fold_log, logs=logs, splits=by_log, check_crc=check_crc), [SUMMARY], rows, label="logs"
    )
    audits = {audit.log: audit for _, audit in engine.collect(RESULT, folded)}
    all_audits = [audits.get(log) or LogAudit(log=log, partition=Partition(log=log)) for log in logs]
    return Scanned(all_audits, rows, buckets)


def _high_watermarks(logs: Sequence[PartitionLog], source: Source) -> dict[int, int]:
    """The high watermark of each log by number, where its directory tells."""
    told: dict[int, int] = {}
    for number, log in enumerate(logs):
        directory = source.directories.get(log.directory)
        mark = None if directory is None else directory.high_watermarks.get((log.topic, log.partition))
        if mark is not None:
            told[number] = mark
    return told


def scan(task: Task, *, check_crc: bool, buckets: int, high_watermarks: Mapping[int, int]) -> Iterator[Row]:
    """The rows of some splits: each chunk's summary, and the steps of its transactions."""
    for log, split in task:
        for chunk in summaries_of(split, check_crc, high_watermarks.get(log, -1)):
            told = chunk.transactions
            summary = replace(chunk, transactions=told._replace(steps=NO_STEPS))
            yield Row(SUMMARY, log, summary, chunk.boundary.nbytes)
            if len(told.steps) and split.log.topic != COORDINATOR_TOPIC:
                part = Part(log, split.number, chunk.start, told.steps)
                for bucket, piece in scattered(part, buckets):
                    yield Row(STEPS, bucket, piece, piece.steps.nbytes)


def fold_log(
    number: int,
    summaries: Iterable[Summary],
    *,
    logs: Sequence[PartitionLog],
    splits: Sequence[Sequence[Split]],
    check_crc: bool,
) -> Iterator[Row]:
    """The audit of one log, from the summaries of its chunks in any order."""
    in_order = sorted(summaries, key=lambda chunk: (chunk.split, chunk.start))
    yield Row(RESULT, number, fold(logs[number], splits[number], in_order, check_crc))


# --- the rules over transactions --------------------------------------------------------------------------------------


def audit_coordinators(scanned: Scanned, engine: Engine, *, check_crc: bool = True) -> tuple[list[CoordinatorLog], Any]:
    """The logs of ``__transaction_state`` that have records, without transactional ids, and the rows with these."""
    numbers = [
        number
        for number, audit in enumerate(scanned.audits)
        if audit.log.topic == COORDINATOR_TOPIC and audit.segment_bytes and audit.log.has_records
    ]
    number_of = {scanned.audits[number].log: number for number in numbers}
    splits = plan(number_of, STATE_SPLIT_BYTES, ask=asker(engine, number_of))
    planned = [[(number_of[split.log], split) for split in task] for task in tasks(splits, STATE_SPLIT_BYTES)]
    sizes = [sum(split.size for _, split in task) for task in planned]
    read = partial(read_states, check_crc=check_crc, buckets=scanned.buckets)
    rows = engine.map(read, planned, sizes, "coordinators")
    if not numbers:
        return [], rows
    logs = {number: scanned.audits[number].log for number in numbers}
    summed_up = engine.regroup(partial(sum_up_states, logs=logs), [SUMMARY], rows, label="coordinators' logs")
    facts = dict(engine.collect(RESULT, summed_up))
    fold_ids = partial(fold_bucket, facts=facts, buckets=scanned.buckets)
    known = engine.regroup(fold_ids, [STEPS], rows, label="transactional ids")
    states = {number: own.coordinator_log() for number, own in facts.items()}
    for _, (number, ids, unknown, findings) in engine.collect(RESULT, known):
        states[number].known += ids
        states[number].unknown += unknown
        states[number].findings += findings
    return [states[number] for number in numbers if number in states], known


def read_states(task: Task, *, check_crc: bool, buckets: int) -> Iterator[Row]:
    """The rows of some splits of ``__transaction_state``: each chunk as a whole, its records by transactional id."""
    for log, split in task:
        for chunk in state_rows(split, check_crc):
            yield Row(SUMMARY, log, chunk.bare())
            states = chunk.states
            of_name = np.array([crc32(name.encode("utf-8", "surrogatepass")) % buckets for name in states.names], int)
            bucket = of_name[states.transactional_id]
            for number in np.unique(bucket).tolist():
                own = states if buckets == 1 else states.compact(np.flatnonzero(bucket == number))
                yield Row(STEPS, number, (log, split.number, chunk.start, own), RECORD_BYTES * len(own))


def sum_up_states(number: int, chunks: Iterable[StateChunk], *, logs: Mapping[int, PartitionLog]) -> Iterator[Row]:
    """Sum up the chunks of a log of ``__transaction_state`` as the facts of the whole log."""
    yield Row(RESULT, number, LogFacts.of(logs[number], chunks))


def fold_bucket(
    bucket: int,  # noqa: ARG001 - a result names its log
    values: Iterable[tuple[int, int, int, States]],
    *,
    facts: Mapping[int, LogFacts],
    buckets: int,
) -> Iterator[Row]:
    """Fold the records of some transactional ids: the findings of each log, and its ids by bucket of producer ids."""
    by_log: dict[int, list[tuple[int, int, int, States]]] = {}
    for value in values:
        by_log.setdefault(value[0], []).append(value)
    for log, parts in sorted(by_log.items()):
        in_order = sorted(parts, key=lambda part: part[:3])
        folded = fold_states(concatenate_states([part[3] for part in in_order]), facts[log])
        yield Row(RESULT, log, (log, len(folded.names), folded.unknown, folded.findings))
        bucket_of = folded.owned_producer_id % buckets
        for number in np.unique(bucket_of).tolist():
            ids = np.unique(folded.owner[bucket_of == number])
            own = folded.take(ids)
            yield Row(KNOWN, number, (log, own), RECORD_BYTES * (len(own.decisions) + len(ids)))


def judge_transactions(
    scanned: Scanned,
    coordinators: Sequence[CoordinatorLog],
    known: Any,
    engine: Engine,
    source: Source = ONE_MOMENT,
    *,
    check_crc: bool = True,
) -> TransactionAudit:
    """Judge the transactions of all logs.

    Args:
        scanned: the logs.
        coordinators: the logs of ``__transaction_state`` that have records.
        known: the rows with their transactional ids.
        engine: the engine that runs the plan.
        source: the known facts about the moments of the logs.
        check_crc: whether to compare each batch with its CRC, where a log has to be read again.
    """
    given = any(audit.log.topic == COORDINATOR_TOPIC for audit in scanned.audits)
    partitions = [audit.partition or Partition(log=audit.log) for audit in scanned.audits]
    others = [
        number
        for number, audit in enumerate(scanned.audits)
        if audit.log.topic != COORDINATOR_TOPIC and (coordinators or audit.transactional)
    ]
    again = [number for number in others if not partitions[number].is_ordered and scanned.audits[number].transactional]
    marks = _high_watermarks([partition.log for partition in partitions], source)
    exact: list[Part] = []
    logs = [(partitions[number].log, number, marks.get(number, -1)) for number in again]
    read = partial(_read_again, check_crc=check_crc)
    for number, (whole, steps) in zip(again, asker(engine, [log for log, *_ in logs])(read, logs), strict=True):
        partitions[number] = whole
        exact += steps
    moments = Moments(source, [*(partitions[number] for number in others), *coordinators])
    chosen = longest([partitions[number] for number in others])
    own = {partition.log for partition in chosen}
    judge = partial(
        judge_bucket,
        partitions=partitions,
        chosen=[number for number in others if partitions[number].log in own],
        coordinators=longest(coordinators),
        numbers={audit.log: number for number, audit in enumerate(scanned.audits)},
        given=given,
        moments=moments,
        exact=exact,
        again=frozenset(again),
        buckets=scanned.buckets,
    )
    judged = Judged()
    results = engine.regroup(judge, [STEPS, KNOWN], scanned.rows, known, label="transactions")
    for _, found in engine.collect(RESULT, results):
        judged.add(found)
    return concluded(judged, chosen, moments)


def _read_again(item: tuple[PartitionLog, int, int], *, check_crc: bool) -> tuple[Partition, list[Part]]:
    """A log whose offsets go backwards, read as a whole: the log, its number and high watermark."""
    log, number, high_watermark = item
    return read_in_order(log, number, check_crc=check_crc, high_watermark=high_watermark)


def judge_bucket(
    bucket: int,
    values: Iterable[Part | tuple[int, FoldedIds]],
    *,
    partitions: Sequence[Partition],
    chosen: Sequence[int],
    coordinators: Sequence[CoordinatorLog],
    numbers: Mapping[PartitionLog, int],
    given: bool,
    moments: Moments,
    exact: Sequence[Part],
    again: frozenset[int],
    buckets: int,
) -> Iterator[Row]:
    """Judge the transactions of the producer ids of a bucket."""
    parts: list[Part] = []
    ids: dict[int, list[FoldedIds]] = {}
    for value in values:
        if isinstance(value, Part):
            parts += [] if value.log in again else [value]
        else:
            ids.setdefault(value[0], []).append(value[1])
    for part in exact:
        parts += [piece for number, piece in scattered(part, buckets) if number == bucket]
    known = [(log, piece) for log in coordinators for piece in ids.get(numbers[log.log], ())]
    own = Knowledge(coordinators, known, given=given)
    yield Row(RESULT, bucket, judge_steps(parts, partitions, chosen, own, moments))


# --- offsets, and the files next to a log -----------------------------------------------------------------------------


def audit_offsets(scanned: Scanned, engine: Engine, *, check_crc: bool = True) -> tuple[list[Finding], Figures]:
    """Judge the logs of ``__consumer_offsets``: the findings of the rule over committed offsets, and its figures."""
    own = [
        audit.partition
        for audit in scanned.audits
        if audit.log.topic == OFFSETS_TOPIC and audit.batches and audit.log.has_records and audit.partition
    ]
    items = [(number, partition.log) for number, partition in enumerate(longest(own))]
    if not items:
        return [], {}
    rows = engine.map(partial(read_commits, check_crc=check_crc), items, [1] * len(items), "offsets")
    findings: list[Finding] = []
    figures: Figures = {"checked": 0, "unknown": 0}
    for _, (found, own_figures) in engine.collect(RESULT, rows):
        findings += found
        figures = {name: int(count) + int(own_figures[name]) for name, count in figures.items()}
    return findings, figures


def read_commits(item: tuple[int, PartitionLog], *, check_crc: bool) -> Iterator[Row]:
    """Judge one log of ``__consumer_offsets``: the findings of the rule over committed offsets, and its figures."""
    figures: Figures = {"checked": 0, "unknown": 0}
    findings = list(went_back([read_group_log(item[1], check_crc)], figures))
    yield Row(RESULT, item[0], (findings, figures))


def audit_around(scanned: Scanned, engine: Engine, *, one_moment: bool, check_crc: bool = True) -> Beside:
    """Judge the indexes, snapshots and replicas of all logs."""
    by_place: dict[tuple[str, int], list[PartitionLog]] = {}
    for audit in scanned.audits:
        by_place.setdefault((audit.log.topic, audit.log.partition), []).append(audit.log)
    items = list(enumerate(by_place.values()))
    bytes_of = {audit.log: audit.segment_bytes for audit in scanned.audits}
    sizes = [sum(bytes_of[log] for log in logs) for _, logs in items]
    rows = engine.map(
        partial(look_beside, one_moment=one_moment, check_crc=check_crc), items, sizes, "indexes, replicas"
    )
    result = Beside()
    for _, found in engine.collect(RESULT, rows):
        result.add(found)
    return result


def look_beside(item: tuple[int, Sequence[PartitionLog]], *, one_moment: bool, check_crc: bool) -> Iterator[Row]:
    """Judge the indexes and snapshots of the replicas of one partition, and compare these replicas."""
    yield Row(RESULT, item[0], audit_beside(item[1], one_moment=one_moment, check_crc=check_crc, read=read_whole))
