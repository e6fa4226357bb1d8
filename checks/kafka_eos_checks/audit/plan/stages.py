"""The plan of an audit of logs: its stages, and the rows that each stage reads and writes.

======================  ===============================  ============================================================
stage                   mapped over                      rows
======================  ===============================  ============================================================
:func:`scan`            splits of all logs               summaries of chunks by log, steps of transactions by producer,
                                                         records of the internal topics
:func:`fold_log`        the summaries of a log           its audit by the rules over logs, and the log as a whole
:func:`fold_bucket`     records of ids of a log          the coordinators' rules, and what is known of each producer id
:func:`judge_bucket`    steps, ids and plain data of a   the rules over transactions
                        bucket
:func:`judge_commits`   commits of a log                 the rule over committed offsets
:func:`judge_stretch`   transactions of some segments    the rule over indexes of aborted transactions
:func:`judge_producers` last batches of a bucket         the rule over snapshots
:func:`judge_copies`    digests of a partition           the rule over replicas
======================  ===============================  ============================================================

The logs of coordinators are read after the others. So, even on a running broker, they have the decision of every marker
that was read before. The caller, on Spark the driver, has some numbers of each log and chunk. Findings stay where they
were made (:mod:`kafka_eos_checks.audit.plan.found`). Data without a marker of their own are told by the stages of
:mod:`kafka_eos_checks.audit.plan.open_stages`. The last three stages are those of
:mod:`kafka_eos_checks.audit.plan.beside_stages`. A producer id with very many transactions is judged by those of
:mod:`kafka_eos_checks.audit.plan.slice_stages`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.segment import CorruptRegion
from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos_checks.audit.engines.engine import Engine, Row, asker
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.internal_topics.commits import CommitChunk
from kafka_eos_checks.audit.internal_topics.commits import chunk_of as commit_chunk
from kafka_eos_checks.audit.internal_topics.states import StateChunk, States, concatenate_states
from kafka_eos_checks.audit.internal_topics.states import chunk_of as state_chunk
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import (
    FoldedIds,
    FoldedSlice,
    Joint,
    LogFacts,
    fold_slice,
    fold_states,
)
from kafka_eos_checks.audit.kernels.coordinators.group_log import fold_group_log, read_group_log, thinned
from kafka_eos_checks.audit.kernels.coordinators.id_slices import sliced_ids
from kafka_eos_checks.audit.kernels.coordinators.matching import judge_plain_data, judge_steps
from kafka_eos_checks.audit.kernels.coordinators.missing import Owing, began, by_task, decided_on, there_in
from kafka_eos_checks.audit.kernels.coordinators.slices import SLICE_MARKERS, Cuts, Slice, cuts_of, sliced
from kafka_eos_checks.audit.kernels.histories.stored import SplitRecords
from kafka_eos_checks.audit.kernels.logs.fold import LogAudit, fold, summaries_of
from kafka_eos_checks.audit.kernels.logs.summary import READ_FIRST, Summary
from kafka_eos_checks.audit.kernels.logs.transactions import (
    NO_STEPS,
    PLAIN_DATA,
    Part,
    Partition,
    Parts,
    by_bucket,
    plain_data_of,
    scattered,
)
from kafka_eos_checks.audit.kernels.logs.whole import read_in_order
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT, ONE_MOMENT, Moments, Source
from kafka_eos_checks.audit.plan.beside_stages import (
    BESIDE,
    DIGESTS,
    HELD,
    STORED,
    TAILS,
    Neighbours,
    digest_row,
    judge_copies,
    judge_producers,
    judge_stretch,
    look_beside,
)
from kafka_eos_checks.audit.plan.found import Found, folders, found_rows, identity
from kafka_eos_checks.audit.plan.history_stages import NO_HISTORY, Named
from kafka_eos_checks.audit.plan.open_stages import AllSteps, judge_open
from kafka_eos_checks.audit.plan.slice_stages import (
    COUNTED,
    NOT_ASKED,
    SLICES,
    Around,
    CutId,
    Known,
    Rest,
    judge_cut,
    of_producers,
    rows_of_ids,
    slices_of,
    with_own_slices,
)
from kafka_eos_checks.audit.rules.beside import REPLICA_COLUMNS, Beside, Last, files_of
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog
from kafka_eos_checks.audit.rules.offsets import BEYOND, WENT_BACK, Ends, beyond_the_end, went_back
from kafka_eos_checks.audit.rules.transactions.judge import TransactionAudit, longest
from kafka_eos_checks.audit.rules.transactions.judged import Judged
from kafka_eos_checks.audit.rules.transactions.partitions import topic_of
from kafka_eos_checks.audit.segments.contents import Figures, Place
from kafka_eos_checks.audit.segments.headers import Block
from kafka_eos_checks.audit.segments.splits import SPLIT_BYTES, PartitionLog, Split, plan, tasks

SUMMARY, STEPS, RESULT, KNOWN, STATE_CHUNK, STATES, COMMITS, CUT, PLAIN_ROWS = range(9)  # kinds of rows
BUCKET_BYTES = 512 << 20  # of logs for each bucket of producer ids, whose steps are judged together
MOST_BUCKETS = 4096
INTERNAL_SPLIT_BYTES = 16 << 20  # where records are read, because they take ten times as long as headers
RECORD_BYTES = 150  # approximate size of a record of an internal topic between stages

INTERNAL_TOPICS = (COORDINATOR_TOPIC, OFFSETS_TOPIC)

Task = Sequence[tuple[int, Split]]  # splits, each with the number of its log


# --- the rules over logs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scanned:
    """Logs after their scan.

    Attributes:
        audits: the audits of each log, by the rules over logs, without findings.
        rows: where the steps of transactions and the commits of offsets are kept, and, second, where the records of
            ``__transaction_state`` are.
        buckets: the number of buckets of producer ids in which they are kept.
        findings: the findings of the rules over logs.
        neighbours: the files next to the logs.
        states: the facts of each chunk of ``__transaction_state``, with the number of its log.
        slices: by producer id with very many transactions, the slices into which the scan has cut them.
        slice_markers: about how many markers and decisions a slice has.
    """

    audits: list[LogAudit]
    rows: tuple[Any, Any]
    buckets: int
    findings: Found
    neighbours: Neighbours
    states: Sequence[tuple[int, StateChunk]] = ()
    slices: Mapping[int, Sequence[Slice]] = field(default_factory=dict)
    slice_markers: int = SLICE_MARKERS


def audit_logs(
    logs: Sequence[PartitionLog],
    engine: Engine | None = None,
    *,
    check_crc: bool = True,
    split_bytes: int = SPLIT_BYTES,
) -> list[LogAudit]:
    """Audit logs by the rules over single logs only; arguments as for :func:`scan_logs`."""
    scanned = scan_logs(logs, engine or LocalEngine(), check_crc=check_crc, split_bytes=split_bytes)
    return with_findings(scanned.audits, scanned.findings)


def with_findings(audits: Iterable[LogAudit], findings: Iterable[Finding]) -> list[LogAudit]:
    """The audits of logs, each with those of some findings that were made there, in the order that is given."""
    by_log: dict[tuple[str, str, int], list[Finding]] = defaultdict(list)
    for finding in findings:
        by_log[finding.broker, finding.topic, finding.partition].append(finding)
    return [replace(audit, findings=tuple(by_log[identity(audit.log)])) for audit in audits]


def scan_logs(
    logs: Sequence[PartitionLog],
    engine: Engine,
    source: Source = ONE_MOMENT,
    named: Named = NO_HISTORY,
    *,
    check_crc: bool = True,
    split_bytes: int = SPLIT_BYTES,
    slice_markers: int = SLICE_MARKERS,
) -> Scanned:
    """Read every split once.

    Args:
        logs: the logs to audit.
        engine: the engine that runs the plan.
        source: the known facts about their moments.
        named: the logs whose records a history is joined with.
        check_crc: whether to compare each batch with its CRC.
        split_bytes: size of the splits, and of a task; the result does not depend on it.
        slice_markers: see :func:`kafka_eos_checks.audit.kernels.coordinators.slices.sliced`; no more does it on this.

    Raises:
        OSError, UnusableInput: a log cannot be read.
    """
    number = {log: place for place, log in enumerate(logs)}
    smaller = min(split_bytes, INTERNAL_SPLIT_BYTES)
    of_records = {log for place, log in enumerate(logs) if log.topic in INTERNAL_TOPICS or place in named.logs}
    splits = plan([log for log in logs if log not in of_records], split_bytes, asker(engine, logs))
    splits += plan([log for log in logs if log in of_records], smaller, asker(engine, logs))
    by_log: list[list[Split]] = [[] for _ in logs]
    for split in splits:
        by_log[number[split.log]].append(split)
    buckets = min(MOST_BUCKETS, max(engine.buckets, sum(split.weight for split in splits) // BUCKET_BYTES))
    told = asker(engine, logs)(files_of, logs)
    files = {place: own for place, own in enumerate(told) if own is not None}
    neighbours = Neighbours.of(files, by_log, split_bytes)
    read = partial(
        scan,
        check_crc=check_crc,
        buckets=buckets,
        id_buckets=_id_buckets(by_log, buckets),
        high_watermarks=_high_watermarks(logs, source),
        neighbours=neighbours,
        replicated={number: place for place, own in enumerate(_by_place(logs)) if len(own) > 1 for number in own},
        least_slice=slice_markers if buckets > 1 else None,
        named=named,
        has_owners=any(log.topic == COORDINATOR_TOPIC for log in logs),
    )
    rows = []
    for label, are_states in (("scan", False), ("coordinators", True)):
        own = [split for split in splits if (split.log.topic == COORDINATOR_TOPIC) == are_states]
        grouped = tasks(own, smaller if are_states or named.logs else split_bytes)
        planned = [[(number[split.log], split) for split in task] for task in grouped]
        rows.append(engine.map(read, planned, [sum(split.size for split in task) for task in grouped], label))
    folded = engine.regroup(
        partial(fold_log, logs=logs, splits=by_log, check_crc=check_crc), [SUMMARY, CUT], *rows, label="logs"
    )
    told, states = engine.collect_each((RESULT, [folded]), (STATE_CHUNK, [rows[1]]))
    results = [result for _, result in told]
    audits = {audit.log: audit for audit, _ in results}
    slices = slices_of(own for audit, own in results if audit.partition is not None and audit.partition.is_ordered)
    all_audits = [audits.get(log) or LogAudit(log=log, partition=Partition(log=log)) for log in logs]
    found = Found(engine, folded)
    return Scanned(all_audits, (rows[0], rows[1]), buckets, found, neighbours, states, slices, slice_markers)


def _id_buckets(splits: Sequence[Sequence[Split]], buckets: int) -> dict[int, tuple[int, int]]:
    """The first bucket of transactional ids, and the number of buckets, of each log of ``__transaction_state``.

    A bucket has ids of one log. The logs share about as many buckets as there are of producer ids, by their size.
    """
    sizes = {
        number: sum(split.size for split in own)
        for number, own in enumerate(splits)
        if own and own[0].log.topic == COORDINATOR_TOPIC
    }
    found, first = {}, 0
    for number, size in sizes.items():
        count = -(-buckets * size // max(sum(sizes.values()), 1))
        found[number] = first, count
        first += count
    return found


def _partitions(scanned: Scanned) -> list[Partition]:
    """The facts of each log."""
    return [audit.partition or Partition(log=audit.log) for audit in scanned.audits]


def _by_place(logs: Sequence[PartitionLog]) -> list[list[int]]:
    """The numbers of the replicas of each partition."""
    found: dict[Place, list[int]] = defaultdict(list)
    for number, log in enumerate(logs):
        found[log.topic, log.partition].append(number)
    return list(found.values())


def _high_watermarks(logs: Sequence[PartitionLog], source: Source) -> dict[int, int]:
    """The high watermark of each log by number, where its directory tells."""
    told: dict[int, int] = {}
    for number, log in enumerate(logs):
        directory = source.directories.get(log.directory)
        mark = None if directory is None else directory.high_watermarks.get((log.topic, log.partition))
        if mark is not None:
            told[number] = mark
    return told


def scan(
    task: Task,
    *,
    check_crc: bool,
    buckets: int,
    id_buckets: Mapping[int, tuple[int, int]],
    high_watermarks: Mapping[int, int],
    neighbours: Neighbours,
    replicated: Mapping[int, int],
    least_slice: int | None,
    named: Named,
    has_owners: bool,
) -> Iterator[Row]:
    """The rows of some splits: each chunk's summary, its steps, its last batches, and records if they are needed.

    If there are coordinators' logs, also the data without the transactional bit.
    """
    steps: list[Part] = []
    plain: list[NDArray[np.void]] = []
    for log, split in task:
        yield from neighbours.of_split(log, split, buckets)
        beside: list[tuple[Part, Last]] = []
        states: list[StateChunk] = []
        commits: list[CommitChunk] = []
        undecoded: dict[int, CorruptRegion] = {}  # by position, because two readers may tell of the same batch
        records = named.records_of(log, split)
        is_internal = split.log.topic in INTERNAL_TOPICS and split.log.has_records
        reads = is_internal or records
        take = partial(_take_records, split, states, commits, records, undecoded) if reads else None
        columns = tuple(dict.fromkeys((*READ_FIRST, *REPLICA_COLUMNS))) if log in replicated else READ_FIRST
        offsets = neighbours.offsets.get(log, ())
        mark = high_watermarks.get(log, -1)
        for chunk, headers, runs in summaries_of(split, check_crc, mark, take, columns, offsets):
            told = chunk.transactions
            part = Part(log, split.number, chunk.start, told.steps)
            beside += neighbours.of_chunk(part, headers, runs)
            if log in replicated:
                yield digest_row(log, replicated[log], split, chunk.start, headers)
            wrong = tuple(region for _, region in sorted(undecoded.items()))
            undecoded.clear()
            summary = replace(chunk, transactions=told._replace(steps=NO_STEPS), undecoded=wrong)
            yield Row(SUMMARY, log, summary, chunk.boundary.nbytes)
            if len(told.steps) and split.log.topic != COORDINATOR_TOPIC:
                steps.append(part)
            if has_owners:
                plain.append(plain_data_of(log, split, headers, runs))
            yield from named.rows(records, split)
        yield from neighbours.of_chunks(beside, buckets)
        yield from named.rows(records, split, at_end=True)
        yield from named.rows_of_group(log, commits)
        for each in commits:
            kept, counted = thinned(each.commits)
            yield Row(COMMITS, log, (replace(each, commits=kept), counted), RECORD_BYTES * len(kept))
        yield from _rows_of_states(log, split, states, *id_buckets.get(log, (0, 1)), least_slice)
    if least_slice is not None:
        steps, slices = sliced(steps, least_slice, buckets)
        for own, cut in slices:
            yield Row(CUT, own.log, own)
            yield Row(SLICES, own.task, cut, cut.steps.nbytes)
    for bucket, piece in scattered(steps, buckets):
        yield Row(STEPS, bucket, piece, piece.steps.nbytes)
    for bucket, data in by_bucket(np.concatenate(plain), buckets) if plain else ():
        yield Row(PLAIN_ROWS, bucket, data, data.nbytes)


def _take_records(
    split: Split,
    states: list[StateChunk],
    commits: list[CommitChunk],
    records: SplitRecords | None,
    undecoded: dict[int, CorruptRegion],
    block: Block,
) -> None:
    """Add the records of a block of an internal topic, or of one that a history names; and what cannot be decoded."""
    found: list[CorruptRegion] = []
    if records is not None:
        found += records.take(block)
    if split.log.topic == OFFSETS_TOPIC:
        commits.append(commit_chunk(block, split.number, split.segment))
        found += commits[-1].undecoded
    elif split.log.topic == COORDINATOR_TOPIC:
        states.append(state_chunk(block, split.number, split.segment))
        found += states[-1].undecoded
    undecoded.update((region.position, region) for region in found)


class IdSlice(NamedTuple):
    """A slice of a transactional id: the number of its log, its representative there, and its records."""

    log: int
    joint: Joint
    states: States


def _rows_of_states(
    log: int, split: Split, chunks: Sequence[StateChunk], first: int, buckets: int, least_slice: int | None
) -> Iterator[Row]:
    """The rows of the chunks of a split of ``__transaction_state``: their facts, and their records by bucket of ids."""
    for chunk in chunks:
        yield Row(STATE_CHUNK, log, chunk.bare())
    states = concatenate_states([chunk.states for chunk in chunks])
    if least_slice is not None and buckets > 1:
        states, slices = sliced_ids(states, least_slice)
        for number, (joint, own) in enumerate(slices, split.number):
            yield Row(STATES, first + number % buckets, IdSlice(log, joint, own), RECORD_BYTES * len(own))
            yield Row(STATES, first + _hash(own.names[0]) % buckets, (log, split.number, joint))
    of_name = np.array([_hash(name) % buckets for name in states.names], np.int64)
    for bucket, own in states.scattered(of_name[states.transactional_id], buckets):
        yield Row(STATES, first + bucket, (log, split.number, own), RECORD_BYTES * len(own))


def _hash(name: str) -> int:
    return crc32(name.encode("utf-8", "surrogatepass"))


def fold_log(
    number: int,
    values: Iterable[Summary | Slice],
    *,
    logs: Sequence[PartitionLog],
    splits: Sequence[Sequence[Split]],
    check_crc: bool,
) -> Iterator[Row]:
    """The audit of one log and its slices, from the summaries of its chunks in any order."""
    slices: list[Slice] = []
    summaries: list[Summary] = []
    for value in values:
        if isinstance(value, Slice):
            slices.append(value)
        else:
            summaries.append(value)
    in_order = sorted(summaries, key=lambda chunk: (chunk.split, chunk.start))
    audit = fold(logs[number], splits[number], in_order, check_crc)
    yield from found_rows(audit.findings, number, folders([audit.log]))
    yield Row(RESULT, number, (replace(audit, findings=()), slices))


# --- the rules over transactions --------------------------------------------------------------------------------------


def audit_coordinators(scanned: Scanned, engine: Engine) -> tuple[list[CoordinatorLog], Known]:
    """The logs of ``__transaction_state`` that have records, and their transactional ids and findings."""
    logs = {
        number: audit.log
        for number, audit in enumerate(scanned.audits)
        if audit.log.topic == COORDINATOR_TOPIC and audit.segment_bytes and audit.log.has_records
    }
    _, rows = scanned.rows
    if not logs:
        return [], Known(rows, [], {})
    chunks: dict[int, list[StateChunk]] = defaultdict(list)
    for number, chunk in scanned.states:
        chunks[number].append(chunk)
    facts = {number: LogFacts.of(logs[number], own) for number, own in chunks.items()}
    cut = frozenset(scanned.slices)
    new = began(_partitions(scanned))
    fold_ids = partial(fold_bucket, facts=facts, new=new, buckets=scanned.buckets, cut=cut, size=scanned.slice_markers)
    known = engine.regroup(fold_ids, [STATES], rows, label="transactional ids")
    states = {number: own.coordinator_log() for number, own in facts.items()}
    owners: list[CutId] = []
    bases: dict[int, dict[int, int]] = defaultdict(dict)
    decided, again = dict[Place, int](), dict[str, int]()
    for _, (number, ids, unknown, own_owners, own_bases, own_places) in engine.collect(RESULT, known):
        _later(decided, own_places[0])
        _later(again, own_places[1])
        states[number].known += ids
        states[number].unknown += unknown
        owners += own_owners
        if own_bases:
            bases[number] |= dict(own_bases)
    named = {place for place, decided_ms in decided.items() if decided_ms > again.get(place[0], -1)}
    return [states[number] for number in logs if number in states], Known(known, owners, dict(bases), named)


def _later(known: dict[Any, int], more: Mapping[Any, int]) -> None:
    """Keep the later moment of each key."""
    known |= {key: max(moment, known.get(key, moment)) for key, moment in more.items()}


def fold_bucket(
    bucket: int,
    values: Iterable[IdSlice | tuple[int, int, States | Joint]],
    *,
    facts: Mapping[int, LogFacts],
    new: Mapping[Place, float],
    buckets: int,
    cut: frozenset[int],
    size: int,
) -> Iterator[Row]:
    """Fold the records of some transactional ids of a log: its findings, and its ids by bucket of producer ids.

    ``new`` is the result of :func:`began`.
    """
    rest: list[tuple[int, States]] = []
    joints: list[Joint] = []
    slices: list[IdSlice] = []
    log = -1
    for value in values:
        log = value[0]
        if isinstance(value, IdSlice):
            slices.append(value)
        elif isinstance(value[2], Joint):
            joints.append(value[2])
        else:
            rest.append((value[1], value[2]))
    states = concatenate_states([own for _, own in sorted(rest, key=lambda value: value[0])])
    whole = fold_states(states, facts[log], joints)
    folded: list[FoldedIds | FoldedSlice] = [whole]
    folded += [fold_slice(each.states, facts[log], each.joint) for each in slices]
    owners: list[CutId] = []
    unknown, decided, again = 0, dict[Place, int](), dict[str, int]()
    for number, each in enumerate(folded):
        ids, piece = (each.ids, each) if isinstance(each, FoldedSlice) else (each, None)
        unknown += ids.unknown
        own_decided, own_again = decided_on(ids.decisions, new)
        _later(decided, own_decided)
        _later(again, own_again)
        yield from found_rows(ids.findings, bucket, folders([facts[log].log]))
        ids, own_owners, rows = rows_of_ids(
            log, (bucket, number), ids, cut, buckets, size, None if piece is None else piece.joint
        )
        owners += own_owners
        yield from rows
        yield from _known_rows(log, ids, buckets, piece)
    yield Row(RESULT, log, (log, len(whole.names), unknown, owners, whole.bases, (decided, again)))


def _known_rows(log: int, folded: FoldedIds, buckets: int, piece: FoldedSlice | None) -> Iterator[Row]:
    """The rows of some transactional ids, or of a slice of one, by bucket of producer ids."""
    bucket_of = folded.owned_producer_id % buckets
    for number in np.unique(bucket_of).tolist():
        ids = np.unique(folded.owner[bucket_of == number])
        own = folded.take(ids)
        if piece is not None:
            own = own.with_decisions(own.decisions.take(own.decisions.producer_id % buckets == number))
        value = own if piece is None else piece._replace(ids=own)
        yield Row(KNOWN, number, (log, value), RECORD_BYTES * (len(own.decisions) + len(ids)))


def judge_transactions(
    scanned: Scanned,
    coordinators: Sequence[CoordinatorLog],
    known: Known,
    engine: Engine,
    source: Source = ONE_MOMENT,
    *,
    check_crc: bool = True,
) -> tuple[TransactionAudit, list[Any]]:
    """Judge the transactions of all logs.

    Args:
        scanned: the logs.
        coordinators: the logs of ``__transaction_state`` that have records.
        known: their transactional ids.
        engine: the engine that runs the plan.
        source: the known facts about the moments of the logs.
        check_crc: whether to compare each batch with its CRC, where a log has to be read again.

    Returns:
        The audit, and the rows with the transactions of logs that have indexes, for :func:`audit_around`.
    """
    given = any(audit.log.topic == COORDINATOR_TOPIC for audit in scanned.audits)
    partitions = _partitions(scanned)
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
        scanned_once = partitions[number]
        partitions[number] = replace(whole, damaged=scanned_once.damaged, damaged_end=scanned_once.damaged_end)
        exact += steps
    if coordinators:  # of which topics each log is, and so which markers it must have
        own = [partitions[number].log for number in others]
        for number, told in zip(others, asker(engine, own)(topic_of, own), strict=True):
            partitions[number] = replace(partitions[number], topic_id=told)
    moments = Moments(source, [*(partitions[number] for number in others), *coordinators])
    judged = Judged()
    if not others:
        return TransactionAudit(Found(engine), judged.figures, moments, judged.reasons), []
    chosen = longest([partitions[number] for number in others])
    counted = {partition.log for partition in chosen}
    around = Around(
        partitions=partitions,
        chosen=[number for number in others if partitions[number].log in counted],
        coordinators=longest(coordinators),
        numbers={audit.log: number for number, audit in enumerate(scanned.audits)},
        given=given,
        moments=moments,
        again=frozenset(again),
        neighbours=scanned.neighbours,
    )
    around = replace(around, owing=Owing(partitions, around.chosen, around.coordinators, moments))
    judge = partial(
        judge_bucket,
        around=around,
        bases=known.bases,
        exact=exact,
        slices=scanned.slices,
        buckets=scanned.buckets,
    )
    results = engine.regroup(judge, [STEPS, KNOWN, PLAIN_ROWS], scanned.rows[0], known.rows, label="transactions")
    asked = NOT_ASKED
    cuts: list[Cuts] = []
    for _, (found, own_asked, own_cuts) in engine.collect(RESULT, results):
        judged.add(found)
        asked = asked.and_of(own_asked)
        cuts += own_cuts
    stages = [results]
    if cuts:
        rows = [scanned.rows[0], results]
        figures, more, of_slices = judge_cut(cuts, around, known, rows, engine, RESULT, scanned.buckets)
        judged.add(figures)
        stages += more
        asked = asked.and_of(of_slices)
    ended = list(stages)
    if asked.logs:
        cut = frozenset(scanned.slices)
        steps = AllSteps(rows=scanned.rows[0], kind=STEPS, buckets=scanned.buckets, exact=exact, cut=cut)
        stages.append(judge_open(asked, around, known, stages, engine, KNOWN, steps))
    return TransactionAudit(Found(engine, *stages), judged.figures, moments, judged.reasons), ended


def _read_again(item: tuple[PartitionLog, int, int], *, check_crc: bool) -> tuple[Partition, list[Part]]:
    """A log whose offsets go backwards, read as a whole: the log, its number and high watermark."""
    log, number, high_watermark = item
    return read_in_order(log, number, check_crc=check_crc, high_watermark=high_watermark)


def judge_bucket(
    bucket: int,
    values: Iterable[Parts | tuple[int, FoldedIds | FoldedSlice] | NDArray[np.void]],
    *,
    around: Around,
    bases: Mapping[int, Mapping[int, int]],
    exact: Sequence[Part],
    slices: Mapping[int, Sequence[Slice]],
    buckets: int,
) -> Iterator[Row]:
    """Judge the transactions of the producer ids of a bucket; of those that are cut, only the open transactions."""
    parts: list[Part] = []
    ids: dict[int, list[FoldedIds]] = defaultdict(list)
    of_slices: dict[int, list[FoldedSlice]] = defaultdict(list)
    plain = [np.empty(0, PLAIN_DATA)]
    for value in values:
        if isinstance(value, np.ndarray):
            plain.append(value)
        elif isinstance(value, Parts):
            parts += [part for part in value.each() if part.log not in around.again]
        elif isinstance(value[1], FoldedSlice):
            of_slices[value[0]].append(value[1])
        else:
            ids[value[0]].append(value[1])
    for number, own in scattered(exact, buckets):
        parts += own.each() if number == bucket else ()
    knowledge = around.knowledge(
        {log: with_own_slices(own, of_slices[log], bases.get(log, {})) for log, own in ids.items()}
    )
    judged, cuts = Judged(), list[Cuts]()
    cut = [pid for pid in slices if pid % buckets == bucket]
    if cut:
        rest = [part._replace(steps=of_producers(part.steps, cut)) for part in parts]
        parts = [part._replace(steps=of_producers(part.steps, cut, others=True)) for part in parts]
        yield Row(SLICES, bucket, Rest(Parts.of(rest)), sum(part.steps.nbytes for part in rest))
        around_slices = around.paired(rest).of_logs(around.chosen)
        for pid in cut:
            own_slices = [each for each in slices[pid] if each.log in around.chosen]
            cuts.append(cuts_of(pid, own_slices, around_slices, bucket))
        only_open = replace(around_slices, markers=around_slices.markers[:0], ends=around_slices.ends[:0], merged=[])
        for number, rows in by_task(there_in(only_open), buckets):
            yield Row(COUNTED, number, rows, rows.nbytes)
        judged.add(judge_steps(only_open, around.partitions, knowledge, around.moments))
    steps = around.paired(parts)
    yield from around.neighbours.of_steps(steps, around.indexed)
    own_steps = steps.of_logs(around.chosen)
    judged.add(judge_steps(own_steps, around.partitions, knowledge, around.moments))
    around.owing.judge(own_steps, knowledge, cut, judged)
    data = np.concatenate(plain)
    data = data[np.isin(data["log"], around.chosen)]
    writers = np.concatenate([own_steps.steps["producer_id"], [own.producer_id for own in cuts]])
    judge_plain_data(data, writers, around.partitions, knowledge, around.moments.source, judged)
    logs = [*(partition.log for partition in around.partitions), *(each.log for each in around.coordinators)]
    yield from found_rows(judged.findings, bucket, folders(logs) if judged.findings else None)
    yield from around.open_rows(judged.open)
    yield Row(RESULT, bucket, (replace(judged, findings=[], open=[]), around.asked(judged.open), cuts))


# --- offsets, and the files next to a log -----------------------------------------------------------------------------


def audit_offsets(
    scanned: Scanned, engine: Engine, moments: Moments = AT_ONE_MOMENT, *, check_crc: bool = True
) -> tuple[Found, dict[PartitionLog, Mapping[str, Figures]]]:
    """Judge the logs of ``__consumer_offsets``: findings, and by log the figures of each rule over commits."""
    own = [
        audit.partition
        for audit in scanned.audits
        if audit.log.topic == OFFSETS_TOPIC and audit.batches and audit.log.has_records and audit.partition
    ]
    if not own:
        return Found(engine), {}
    chosen = {partition.log for partition in longest(own)}
    logs = {number: partition for number, partition in enumerate(_partitions(scanned)) if partition.log in chosen}
    judge = partial(judge_commits, logs=logs, ends=_ends_of(scanned, moments), check_crc=check_crc)
    rows = engine.regroup(judge, [COMMITS], scanned.rows[0], label="offsets")
    return Found(engine, rows), {logs[number].log: figures for number, figures in engine.collect(RESULT, rows)}


def _ends_of(scanned: Scanned, moments: Moments) -> Ends:
    """The ends of all partitions; not known behind damage, or messages of old formats, whose offsets are not read."""
    logs = {(own.log.topic, own.log.partition): own for own in longest(_partitions(scanned)) if own.log.segments}
    unclear = (place for place, own in logs.items() if own.damaged_end or (own.damaged and own.start is None))
    return Ends(logs, frozenset(unclear), moments)


def judge_commits(
    number: int,
    chunks: Iterable[tuple[CommitChunk, int]],
    *,
    logs: Mapping[int, Partition],
    ends: Ends,
    check_crc: bool,
) -> Iterator[Row]:
    """Judge the commits of one log: the findings of the rules over committed offsets, and their figures."""
    if number not in logs:  # a shorter replica
        return
    partition, counted = logs[number], 0
    if partition.is_ordered:
        in_order = sorted(chunks, key=lambda told: (told[0].split, told[0].start))
        counted = sum(count for _, count in in_order)
        log = fold_group_log(partition.log, [chunk for chunk, _ in in_order])
    else:
        log = read_group_log(partition.log, check_crc)
    figures: dict[str, Figures] = {WENT_BACK: {"checked": counted, "unknown": 0}, BEYOND: {"checked": 0, "unknown": 0}}
    findings = chain(went_back([log], figures[WENT_BACK]), beyond_the_end(log, ends, figures[BEYOND]))
    yield from found_rows(findings, number, folders([partition.log]))
    yield Row(RESULT, number, figures)


def audit_around(
    scanned: Scanned, engine: Engine, ended: Sequence[Any], *, one_moment: bool, check_crc: bool = True
) -> tuple[Found, Beside]:
    """Judge the indexes, snapshots and replicas of all logs: the findings, and the figures without findings.

    Args:
        scanned: the logs.
        engine: the engine that runs the plan.
        ended: the rows with the transactions of logs that have indexes; none if no transactions were judged.
        one_moment: whether logs, indexes and snapshots are of one moment.
        check_crc: whether to compare each batch with its CRC, where a log has to be read again.
    """
    audits, neighbours = scanned.audits, scanned.neighbours
    told = ((number, audits[number]) for number in neighbours.offsets)
    partitions = {
        number: audit.partition
        for number, audit in told
        if audit.chunks and audit.partition is not None and audit.partition.is_ordered
    }
    logs = [audit.log for audit in audits]
    replicas = [[logs[number] for number in own] for own in _by_place(logs)]
    compare = partial(
        judge_copies,
        replicas=replicas,
        logs=logs,
        whole={
            audit.log for audit in audits if audit.is_damaged or (audit.partition and not audit.partition.is_ordered)
        },
    )
    others = [(number, logs[number]) for number in neighbours.offsets if number not in partitions]
    look = partial(look_beside, one_moment=one_moment, check_crc=check_crc)
    of_indexes = partial(judge_stretch, stretches=neighbours.stretches, partitions=partitions, one_moment=one_moment)
    of_snapshots = partial(judge_producers, offsets=neighbours.offsets, partitions=partitions, one_moment=one_moment)
    rows = []
    if neighbours.stretches:
        rows.append(engine.regroup(of_indexes, [HELD], *scanned.rows, *ended, label="indexes"))
    if neighbours.snapshots:
        rows.append(engine.regroup(of_snapshots, [TAILS, STORED], *scanned.rows, label="snapshots"))
    if any(len(own) > 1 for own in replicas):
        rows.append(engine.regroup(compare, [DIGESTS], *scanned.rows, label="replicas"))
    if others:
        rows.append(engine.map(look, others, [0] * len(others), "logs to read again"))
    result = Beside()
    for _, found in engine.collect(BESIDE, *rows) if rows else ():
        result.add(found)
    return Found(engine, *rows), result
