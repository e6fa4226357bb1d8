"""The plan of an audit of histories, joined with logs: functions over rows, in this process or on Spark's executors.

==========================  ===========================  ===============================================================
stage                       mapped over                  rows
==========================  ===========================  ===============================================================
:func:`read_range`          ranges of histories          events by topic and value, by transaction, by process
:func:`read_log`            logs of topics of histories  records by topic and value, and their offsets by block
:func:`join_bucket`         events and records           what is proved; what values tell of transactions
:func:`end_bucket`          transactions                 what is proved, and which transactions are suspects
:func:`follow_bucket`       processes                    steps of readers
:func:`look_bucket`         blocks of offsets            records that readers passed over
:func:`fetch_records`       logs                         the records that the readable rules look at
:func:`judge_run`           runs                         the readable rules, over suspects and what they depend on
==========================  ===========================  ===============================================================

:func:`kafka_eos_checks.audit.rules.histories.join` is the readable form of all of this. The caller, on Spark the driver,
has some facts of each log and run, the hashes of suspects, and the findings.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.histories.history import Event, MalformedHistory
from kafka_eos_checks.audit.engines import Engine, Row
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.history_files import (
    RANGE_BYTES,
    Range,
    events_at,
    files_of,
    line_of,
    numbered_rows,
    ranges_of,
)
from kafka_eos_checks.audit.kernels.applying import (
    CHECK,
    COVER,
    OUTPUT,
    Members,
    Reach,
    covers_of,
    join_commits,
    join_inputs,
    join_outputs,
    of_members,
)
from kafka_eos_checks.audit.kernels.contents import Contents, Figures, Place, Replicas, read_contents
from kafka_eos_checks.audit.kernels.groups import read_group_log
from kafka_eos_checks.audit.kernels.headers import Ints
from kafka_eos_checks.audit.kernels.joining import (
    BLOCK_BITS,
    HELD,
    RANGE,
    STEP,
    LogOf,
    Setting,
    blocks_of,
    follow_readers,
    is_in,
    join_transactions,
    join_values,
    look_into_gaps,
    spot,
)
from kafka_eos_checks.audit.kernels.joining import (
    ranges_of as offset_ranges,
)
from kafka_eos_checks.audit.kernels.recorded import (
    ASKED,
    AT_BITS,
    CHANGES,
    ENDS,
    GIVEN,
    POLLED,
    SENT,
    STEPPING,
    TOLD,
    VALUED,
    Hashes,
    Rows,
    RunFacts,
    Told,
    name_hashes,
    place_hash,
    text_hash,
    told,
)
from kafka_eos_checks.audit.kernels.splits import PartitionLog
from kafka_eos_checks.audit.kernels.stored import (
    ABORTED,
    COMMITTED,
    HIDDEN,
    OPEN,
    PLAIN,
    STORED,
    VISIBLE,
    Backwards,
    LogEnds,
    stored,
    stored_backwards,
    values_at,
)
from kafka_eos_checks.audit.memory import without_collections
from kafka_eos_checks.audit.moments import SKEW_MS, Moments
from kafka_eos_checks.audit.places import sizes_of
from kafka_eos_checks.audit.rules.applications import (
    FENCED_GENERATION,
    INPUT_RULES,
    OFFSET_ALONE,
    SKIPPED,
    judge_generations,
    judge_inputs,
    judge_told,
)
from kafka_eos_checks.audit.rules.histories import (
    DUPLICATE_VALUE,
    HISTORY_RULES,
    LOST,
    REFUSED,
    UNASKED,
    Join,
    duplicate_values,
    lost,
    refused,
    unasked,
)
from kafka_eos_checks.audit.rules.offsets import longest_logs
from kafka_eos_checks.audit.rules.readers import (
    ABORTED_DELIVERED,
    COMMITTED_MISSING,
    INCONSISTENT,
    NON_MONOTONIC,
    POLL_SKIP,
    PRECOMMITTED,
    STABLE_WENT_BACK,
    delivered,
    inconsistent,
    polled,
    precommitted,
    undone,
    went_back,
)

FACTS, FAILED, VALUES, ENDINGS, MOVES, CHANGED, REQUESTED, MEMBERS, STORE, RANGES, LOG = range(11)  # kinds of rows
FIGURES, HELD_BY, SPOTS, SUSPECT, GAPS, PICKED, WANTED, RECORDS, FOUND, ASKED_FOR = range(11, 21)
SENDING, GIVING, ASKING, COVERING, OUTPUTS, CHECKS, INPUTS, REACHED, APPLIED = range(21, 30)  # of applications
BUCKET_BYTES = 96 << 20  # of histories and logs, whose rows meet in a bucket
MOST_BUCKETS = 4096
_NAMES = {  # figures of the joins, and the rules' own
    "lost": (LOST, "checked"),
    "lost unknown": (LOST, "unknown"),
    "duplicate": (DUPLICATE_VALUE, "checked"),
    "inconsistent": (INCONSISTENT, "checked"),
    "precommitted": (PRECOMMITTED, "checked"),
    "precommitted unknown": (PRECOMMITTED, "unknown"),
    "delivered": (ABORTED_DELIVERED, "checked"),
    "unasked": (UNASKED, "checked"),
    "undone": (COMMITTED_MISSING, "checked"),
    "undone unknown": (COMMITTED_MISSING, "unknown"),
}


def judge_histories(
    histories: Sequence[Path],
    logs: Sequence[PartitionLog],
    moments: Moments,
    engine: Engine,
    *,
    check_crc: bool = True,
    range_bytes: int = RANGE_BYTES,
) -> tuple[int, Join]:
    """Judge histories by the logs of the brokers they were recorded with.

    Args:
        histories: files of events.
        logs: replicas of partitions, with their records.
        moments: of the logs.
        engine: what runs it.
        check_crc: whether to compare each batch with its CRC.
        range_bytes: size of the pieces of histories; the result does not depend on it.

    Returns:
        The number of events, and the findings and figures of the rules.

    Raises:
        MalformedHistory: a line or a row is no event.
        OSError, UnusableInput: a file cannot be read.
    """
    files = [file for path in histories for file in files_of(path)]
    parts = [(number, part) for number, file in enumerate(files) for part in ranges_of(file, range_bytes)]
    size = sum(part.size for _, part in parts)
    log_bytes = sum(sizes_of([log.file(name) for log in logs for name in log.segments]))
    buckets = min(MOST_BUCKETS, max(engine.buckets, (size + log_bytes) // BUCKET_BYTES))
    read = engine.map(partial(read_range, buckets=buckets), parts, [part.size for _, part in parts], "histories")
    failed = engine.collect(FAILED, read)
    if failed:
        _, (number, at, reason) = min(failed, key=lambda each: each[1][:2])
        raise MalformedHistory(str(files[number]), line_of(files[number], at), reason)
    runs = _runs_of(facts for _, facts in engine.collect(FACTS, read))
    result = Join(figures={rule: {"checked": 0, "unknown": 0} for rule in HISTORY_RULES})
    if not runs:
        return 0, result
    plan = _Plan(files, runs, engine, buckets, check_crc, read)
    plan.read_logs(logs, moments)
    plan.join()
    plan.join_applications()
    judged = plan.judge()
    for figures in (*plan.figures, *(figures for _, (_, figures) in judged)):
        for rule, own in figures.items():
            for name, count in own.items():
                result.figures[rule][name] = int(result.figures[rule].get(name, 0)) + int(count)
    order = {rule: number for number, rule in enumerate(HISTORY_RULES)}
    findings = [finding for _, (own, _) in judged for finding in own]
    result.findings = sorted(findings, key=lambda finding: order[finding.rule])
    return sum(run.events for run in runs), result


def _runs_of(facts: Iterable[RunFacts]) -> list[RunFacts]:
    """The facts of each run, in the order in which the runs begin."""
    runs: dict[str, RunFacts] = {}
    for each in facts:
        if each.run in runs:
            runs[each.run].add(each)
        else:
            runs[each.run] = each
    return sorted(runs.values(), key=lambda run: run.first)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_range(item: tuple[int, Range], *, buckets: int) -> Iterator[Row]:
    """The events of a range of a history, by what they meet."""
    number, part = item
    numbered = ((number << AT_BITS | at, row) for at, row in numbered_rows(part))
    try:
        with without_collections():
            for each in told(numbered, str(part.path)):
                yield from _told_rows(each, buckets)
    except MalformedHistory as error:
        yield Row(FAILED, 0, (number, error.line & ((1 << AT_BITS) - 1), error.reason))


def _told_rows(each: Told, buckets: int) -> Iterator[Row]:
    run, kind = each.facts.run, each.rows["what"]
    yield Row(FACTS, 0, each.facts)
    yield from _scattered(VALUES, run, each.rows[np.isin(kind, VALUED)], "key", buckets)
    yield from _scattered(ENDINGS, run, each.rows[np.isin(kind, ENDS)], "ended", buckets)
    yield from _scattered(MOVES, run, each.rows[np.isin(kind, STEPPING)], "process", buckets)
    changed = each.rows[np.isin(kind, CHANGES)]
    if len(changed):
        yield Row(CHANGED, 0, (run, changed), changed.nbytes)
    for name, places in ((REQUESTED, each.requests), (APPLIED, each.applied)):
        if len(places):
            yield Row(name, 0, (run, name, places), places.nbytes)
    yield from _scattered(SENDING, run, each.sent, "key", buckets)
    blocks = _block_buckets(each.given["place"], each.given["offset"], buckets)
    yield from _by_bucket(GIVING, run, each.given, blocks)
    asked = spot(each.asked["name"], each.asked["offset"]) % np.uint64(buckets)
    yield from _by_bucket(ASKING, run, each.asked, asked.astype(np.int64))
    for bucket in np.unique(each.members[:, 1] % buckets).tolist():
        own = each.members[each.members[:, 1] % buckets == bucket, 0]
        yield Row(MEMBERS, bucket, (run, own), own.nbytes)


def _scattered(kind: int, run: str, rows: Rows, name: str, buckets: int) -> Iterator[Row]:
    """Rows by bucket of the hashes in a column."""
    if not len(rows):
        return
    if buckets == 1:
        yield Row(kind, 0, (run, rows), rows.nbytes)
        return
    yield from _by_bucket(kind, run, rows, (rows[name] % np.uint64(buckets)).astype(np.int64))


def _by_bucket(kind: int, run: str, rows: Rows, bucket: Ints) -> Iterator[Row]:
    """Rows by their buckets."""
    if not len(rows):
        return
    order = np.argsort(bucket, kind="stable")
    ends = np.flatnonzero(np.append(bucket[order][1:] != bucket[order][:-1], True)) + 1
    start = 0
    for end in ends.tolist():
        own = rows[order[start:end]]
        yield Row(kind, int(bucket[order[start]]), (run, own), own.nbytes)
        start = end


def read_log(item: tuple[int, PartitionLog], *, logs: int, buckets: int, check_crc: bool) -> Iterator[Row]:
    """The records of a log, and the facts of the whole; one whose offsets go backwards has a number from ``logs`` on."""
    number, log = item
    ends = LogEnds()
    place = place_hash(log.topic, log.partition)
    try:
        for rows in stored(log, number, ends, check_crc=check_crc):
            yield from _stored_rows(rows, place, buckets)
    except Backwards:
        number += logs
        yield from _stored_rows(stored_backwards(log, number, ends, check_crc=check_crc), place, buckets)
    yield Row(LOG, number, ends)


def _stored_rows(rows: Rows, place: int, buckets: int) -> Iterator[Row]:
    yield from _scattered(STORE, "", rows, "key", buckets)
    ranges = offset_ranges(rows, place)
    yield from _by_bucket(RANGES, "", ranges, _block_buckets(ranges["place"], ranges["start"], buckets))


def _block_buckets(place: Hashes, offset: Ints, buckets: int) -> Ints:
    """The buckets of blocks of offsets, shape (n,)."""
    mixed = place % np.uint64(buckets) + (offset >> BLOCK_BITS).astype(np.uint64) % np.uint64(buckets)
    return (mixed % np.uint64(buckets)).astype(np.int64)


def read_group_ends(item: tuple[int, PartitionLog], *, buckets: int, check_crc: bool) -> Iterator[Row]:
    """A log of ``__consumer_offsets``: its end, the last time that was stamped in it, and the commits that count."""
    log = read_group_log(item[1], check_crc)
    last: dict[int, int] = {}
    for (group, (topic, partition)), commits in log.commits.items():
        place = place_hash(topic, partition)
        name = int(name_hashes(text_hash(group), place)[0])
        offsets = [-1 if commit.offset is None else commit.offset for commit in commits]
        covers = covers_of(name, offsets, [commit.transactional for commit in commits])
        last[name] = commits[-1].offset or 0 if commits else 0
        places = np.full(len(covers), place, np.uint64)
        yield from _by_bucket(COVERING, "", covers, _block_buckets(places, covers["low"], buckets))
    yield Row(LOG, item[0], (log.end, log.stamped_ms, log.whole))
    yield Row(REACHED, item[0], last)


# --- the plan of the joins --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Plan:
    """The joins of all runs with all logs.

    Attributes:
        files: of the histories, by number.
        runs: in the order in which they begin.
        engine: what runs it.
        buckets: of values, transactions, processes, blocks of offsets.
        check_crc: whether to compare each batch with its CRC.
        read: the rows of the histories.
    """

    files: Sequence[Path]
    runs: Sequence[RunFacts]
    engine: Engine
    buckets: int
    check_crc: bool
    read: Any
    logs: list[PartitionLog] = field(default_factory=list)
    group_logs: list[PartitionLog] = field(default_factory=list)
    ends: dict[int, LogEnds] = field(default_factory=dict)
    reach: float = inf
    settings: dict[str, Setting] = field(default_factory=dict)
    store: Any = None
    covers: Any = None
    reached: dict[int, int] = field(default_factory=dict)
    groups_whole: bool = False
    group_logs_once: bool = True
    suspects: Mapping[str, Hashes] = field(default_factory=dict)
    proving: set[str] = field(default_factory=set)
    inputs: Mapping[str, Rows] = field(default_factory=dict)
    picked: list[Any] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    figures: list[dict[str, dict[str, int]]] = field(default_factory=list)

    def read_logs(self, logs: Sequence[PartitionLog], moments: Moments) -> None:
        """Read the logs of the topics that histories name."""
        topics = set[str]().union(*(run.topics for run in self.runs))
        self.logs = [log for log in logs if log.topic in topics]
        self.group_logs = [log for log in logs if log.topic == OFFSETS_TOPIC]
        items = list(enumerate(self.logs))
        read = partial(read_log, logs=len(self.logs), buckets=self.buckets, check_crc=self.check_crc)
        self.store = self.engine.map(read, items, _bytes_of(self.logs), "records")
        self.ends = dict(self.engine.collect(LOG, self.store))
        own = [(self.log_of(number), ends.end, ends.stamped_ms) for number, ends in self.ends.items()]
        groups = self.engine.map(
            partial(read_group_ends, buckets=self.buckets, check_crc=self.check_crc),
            list(enumerate(self.group_logs)),
            _bytes_of(self.group_logs),
            "groups' offsets",
        )
        longest: dict[int, tuple[int, int, int, bool]] = {}
        for number, (end, stamped, whole) in self.engine.collect(LOG, groups):
            partition = self.group_logs[number].partition
            if partition not in longest or end > longest[partition][1]:
                longest[partition] = number, end, stamped, whole
        chosen_groups = {number for number, *_ in longest.values()}
        self.group_logs_once = len(chosen_groups) == len(self.group_logs)
        reached: dict[int, int] = {}
        for number, last in self.engine.collect(REACHED, groups):
            if number in chosen_groups:
                self.group_logs_once = self.group_logs_once and not reached.keys() & last.keys()
                reached.update(last)
        self.reached = reached
        self.groups_whole = bool(longest) and all(whole for *_, whole in longest.values())
        self.covers = groups
        own += [(self.group_logs[number], end, stamped) for number, end, stamped, _ in longest.values()]
        self.reach = min((moments.reach_of(*each) for each in own), default=inf)
        furthest: dict[Place, tuple[int, int]] = {}
        brokers = {name: number for number, name in enumerate(sorted({log.broker for log in self.logs}))}
        for number in sorted(self.ends, key=lambda number: number % len(self.logs)):
            log = self.log_of(number)
            at = log.topic, log.partition
            if at not in furthest or self.ends[number].end > furthest[at][1]:
                furthest[at] = number, self.ends[number].end
        chosen = {number for number, _ in furthest.values()}
        of = {}
        for number in self.ends:
            log = self.log_of(number)
            of[number] = LogOf(place_hash(log.topic, log.partition), brokers[log.broker], number in chosen)
        self.settings = {run.run: Setting(run.ordered, of) for run in self.runs}

    def log_of(self, number: int) -> PartitionLog:
        """The log of a number."""
        return self.logs[number % len(self.logs)]

    def join(self) -> None:
        """Prove what agrees, and pick what the readable rules have to look at."""
        engine, settings, buckets = self.engine, self.settings, self.buckets
        number_of = {run.run: number for number, run in enumerate(self.runs)}
        values = engine.regroup(
            partial(join_bucket, settings=settings, buckets=buckets, picks=None, number_of=number_of),
            [VALUES, STORE],
            self.read,
            self.store,
            label="values",
        )
        ended = engine.regroup(
            partial(end_bucket, settings=settings), [ENDINGS, HELD_BY], self.read, values, label="transactions told"
        )
        changes: dict[str, list[Rows]] = defaultdict(list)
        for _, (run, rows) in engine.collect(CHANGED, self.read):
            changes[run].append(rows)
        followed = engine.regroup(
            partial(
                follow_bucket,
                settings=settings,
                changes={run: np.concatenate(rows) for run, rows in changes.items()},
                buckets=buckets,
                number_of=number_of,
            ),
            [MOVES],
            self.read,
            label="readers",
        )
        passed = engine.regroup(
            partial(look_bucket, settings=settings, number_of=number_of),
            [GAPS, RANGES],
            followed,
            self.store,
            label="passed offsets",
        )
        self.picked += [followed, passed]
        self.records.append(passed)
        spots, suspects = (self._collected(kind, rows) for kind, rows in ((SPOTS, values), (SUSPECT, ended)))
        self.suspects = suspects
        if any(map(len, (*spots.values(), *suspects.values()))):
            values = engine.regroup(
                partial(join_bucket, settings=settings, buckets=buckets, picks=(spots, suspects), number_of=number_of),
                [VALUES, STORE],
                self.read,
                self.store,
                label="suspects",
            )
            ends = engine.regroup(
                partial(pick_bucket, number_of=number_of, suspects=suspects),
                [ENDINGS, ASKED_FOR],
                self.read,
                values,
                label="suspects' ends",
            )
            self.picked += [values, ends]
            self.records.append(values)
        for rows in (values, ended, followed):
            self.figures += [figures for _, figures in engine.collect(FIGURES, rows)]

    def join_applications(self) -> None:
        """Prove that inputs were processed once, and pick the others; of runs whose applications tell enough."""
        engine, buckets = self.engine, self.buckets
        crews = {run.run: self._crew(run) for run in self.runs if self._tells_enough(run)}
        if not crews:
            return
        number_of = {run.run: number for number, run in enumerate(self.runs)}
        share = {"crews": crews, "settings": self.settings, "buckets": buckets}
        outputs = engine.regroup(
            partial(output_bucket, **share), [SENDING, STORE], self.read, self.store, label="outputs"
        )
        sending = {run for _, run in engine.collect(FACTS, outputs)}
        self.proving = set(crews)
        crews = {run: crew for run, crew in crews.items() if run in sending}
        share["crews"] = crews
        inputs = engine.regroup(
            partial(input_bucket, **share),
            [GIVING, OUTPUTS, COVERING, RANGES],
            *(self.read, outputs, self.covers, self.store),
            label="inputs",
        )
        checked = engine.regroup(partial(commit_bucket), [CHECKS, ASKING], inputs, self.read, label="commits asked for")
        for rows in (inputs, checked):
            self.figures += [figures for _, figures in engine.collect(FIGURES, rows)]
        found: dict[str, list[Rows]] = defaultdict(list)
        for rows in (inputs, checked):
            for _, (run, own) in engine.collect(INPUTS, rows):
                found[run].append(own)
        self.inputs = {run: np.unique(np.concatenate(own)) for run, own in found.items()}
        if self.inputs:
            picks = {"inputs": self.inputs, "number_of": number_of}
            chosen = engine.regroup(
                partial(pick_outputs, **share, **picks),
                [SENDING, STORE],
                self.read,
                self.store,
                label="suspects' outputs",
            )
            told_by = engine.regroup(
                partial(pick_inputs, **picks), [GIVING, ASKING], self.read, label="suspects' inputs"
            )
            self.picked += [chosen, told_by]
            self.records.append(chosen)

    def _tells_enough(self, run: RunFacts) -> bool:
        """Whether inputs of a run can be proved: each member has one group, names inputs, and all offsets are known."""
        clear = run.members and not run.unclear and not run.members.keys() & run.tacit
        one_group = all(member.group for member in run.members.values())
        groups = self.groups_whole and self.group_logs_once
        return bool(clear) and one_group and groups and run.last_ms + SKEW_MS <= self.reach

    def _crew(self, run: RunFacts) -> "Crew":
        members = sorted((process, member.group, member.first(run.ordered)) for process, member in run.members.items())
        columns = [[process for process, *_ in members], [group for _, group, _ in members]]
        first = np.array([when for _, _, (when, _) in members], np.int64)
        topics: dict[str, bool] = defaultdict(lambda: True)
        for number, of in self.settings[run.run].logs.items():
            if of.longest:
                topic = self.log_of(number).topic
                topics[topic] = topics[topic] and self.ends[number].whole
        whole = np.unique(np.array([text_hash(topic) for topic, is_whole in topics.items() if is_whole], np.uint64))
        names = {
            name: Reach(group, place, offset, self.reached.get(name, 0))
            for name, (group, place, offset) in run.first_given.items()
        }
        return Crew(Members(*(np.array(column, np.uint64) for column in columns), first), names, whole)

    def _collected(self, kind: int, rows: Any) -> dict[str, Hashes]:
        """Hashes of each run, ascending."""
        parts: dict[str, list[Hashes]] = {run.run: [np.zeros(0, np.uint64)] for run in self.runs}
        for _, (run, hashes) in self.engine.collect(kind, rows):
            parts[run].append(hashes)
        return {run: np.unique(np.concatenate(own)) for run, own in parts.items()}

    def judge(self) -> list[tuple[int, tuple[list[Finding], dict[str, Figures]]]]:
        """The findings and figures of the readable rules, over what was picked."""
        engine = self.engine
        fetched = engine.regroup(
            partial(fetch_records, logs=self.logs, check_crc=self.check_crc),
            [WANTED],
            *self.records,
            label="records shown",
        )
        reading = Reading(self.files, self.runs, self.logs, self.ends, self.settings, self.reach)
        kinds = [PICKED, RECORDS]
        by_readable = partial(
            judge_run,
            reading=reading,
            suspects=self.suspects,
            inputs=self.inputs,
            groups=self.group_logs,
            check_crc=self.check_crc,
        )
        judged = [engine.regroup(by_readable, kinds, fetched, *self.picked, label="suspects judged")]
        rest = partial(judge_members, reading=reading)
        judged.append(engine.regroup(rest, [MEMBERS], self.read, label="generations"))
        others = partial(
            judge_others, reading=reading, groups=self.group_logs, proving=self.proving, check_crc=self.check_crc
        )
        kinds = [REQUESTED] if any(run.refusals or run.declared for run in self.runs) else []
        if any(run.members and run.run not in self.proving for run in self.runs):
            kinds.append(APPLIED)
        if kinds:
            judged.append(engine.regroup(others, kinds, self.read, label="applications, refusals"))
        return [found for rows in judged for found in engine.collect(FOUND, rows)]


def _bytes_of(logs: Sequence[PartitionLog]) -> list[int]:
    return [sum(sizes_of([log.file(name) for name in log.segments])) for log in logs]


def _by_run(values: Iterable[tuple[str, Rows]], *dtypes: np.dtype[Any]) -> dict[str, dict[np.dtype[Any], Rows]]:
    """Rows of each run and dtype, together."""
    parts: dict[str, dict[np.dtype[Any], list[Rows]]] = defaultdict(lambda: {dtype: [] for dtype in dtypes})
    for run, rows in values:
        parts[run][rows.dtype].append(rows)
    return {
        run: {dtype: np.concatenate(rows) if rows else np.zeros(0, dtype) for dtype, rows in own.items()}
        for run, own in parts.items()
    }


_Picks = tuple[Mapping[str, Hashes], Mapping[str, Hashes]]  # by run, offsets and transactions that are suspects


def join_bucket(
    bucket: int,  # noqa: ARG001 - the rows tell it
    values: Iterable[tuple[str, Rows]],
    *,
    settings: Mapping[str, Setting],
    buckets: int,
    picks: _Picks | None,
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Join the events and records of some topics and values; with ``picks`` pick what the readable rules look at."""
    by_run = _by_run(values, TOLD, STORED)
    records = by_run.pop("", {STORED: np.zeros(0, STORED)})[STORED]
    for run in settings if picks is not None else by_run:
        events = by_run[run][TOLD] if run in by_run else np.zeros(0, TOLD)
        spots, suspects = (None, None) if picks is None else (picks[0][run], picks[1][run])
        joined = join_values(events, records, settings[run], suspects, spots)
        yield Row(FIGURES, 0, _named(joined.figures))
        if picks is None:
            found = np.append(joined.spots, np.zeros(int(joined.suspect.any()), np.uint64))  # 0 for a key of any kind
            if len(found):
                yield Row(SPOTS, 0, (run, found), found.nbytes)
            yield from _scattered(HELD_BY, run, joined.held, "ended", buckets)
            continue
        keyed, at_spot = joined.events[joined.suspect], joined.events[joined.at_spot]
        number = number_of[run]
        yield Row(PICKED, number, ("keys", keyed), keyed.nbytes)
        yield Row(PICKED, number, ("spots", at_spot), at_spot.nbytes)
        ended = np.unique(keyed["ended"][keyed["ended"] != 0])
        yield from _scattered(ASKED_FOR, run, _as_rows(ended), "ended", buckets)
        shown = joined.shown
        for log in np.unique(shown["log"]).tolist():
            own_rows = shown[shown["log"] == log]
            yield Row(WANTED, log, (number, "values", own_rows), own_rows.nbytes)


_ASKED = np.dtype([("ended", "u8")])


def _as_rows(hashes: Hashes) -> Rows:
    rows = np.zeros(len(hashes), _ASKED)
    rows["ended"] = hashes
    return rows


def _named(figures: Mapping[str, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for name, count in figures.items():
        rule, own = _NAMES[name]
        found[rule][own] = count
    return dict(found)


def end_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    settings: Mapping[str, Setting],
) -> Iterator[Row]:
    """Join some transactions with what values tell of them."""
    for run, own in _by_run(values, TOLD, HELD).items():
        joined = join_transactions(own[TOLD], own[HELD], settings[run])
        yield Row(FIGURES, 0, _named(joined.figures))
        if len(joined.suspects):
            yield Row(SUSPECT, 0, (run, joined.suspects), joined.suspects.nbytes)


def pick_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    number_of: Mapping[str, int],
    suspects: Mapping[str, Hashes],
) -> Iterator[Row]:
    """Pick the begins and ends of transactions that are suspects, or that sent the value of a suspect."""
    for run, own in _by_run(values, TOLD, _ASKED).items():
        wanted = np.unique(np.concatenate([own[_ASKED]["ended"], suspects[run]]))
        picked = own[TOLD][is_in(own[TOLD]["ended"], wanted)]
        yield Row(PICKED, number_of[run], ("ends", picked), picked.nbytes)


def follow_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    settings: Mapping[str, Setting],
    changes: Mapping[str, Rows],
    buckets: int,
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Follow the readers of some processes: what they passed over, and where they went back."""
    for run, own in _by_run(values, TOLD).items():
        number = number_of[run]
        followed = follow_readers(own[TOLD], changes.get(run, np.zeros(0, TOLD)), settings[run])
        steps, ends = followed.figures["steps"], followed.figures["ends"]
        counts = {POLL_SKIP: {"checked": steps}, NON_MONOTONIC: {"checked": steps}, STABLE_WENT_BACK: {"checked": ends}}
        yield Row(FIGURES, 0, counts)
        for name, rows in (("back", followed.backward), ("fell", followed.fell), ("unlogged", followed.unlogged)):
            if len(rows):
                yield Row(PICKED, number, (name, rows), rows.nbytes)
        gaps, blocks = blocks_of(followed.gaps)
        key = gaps["place"] % np.uint64(buckets) + (blocks % buckets).astype(np.uint64)
        for one in np.unique(key % np.uint64(buckets)).tolist():
            mine = key % np.uint64(buckets) == one
            yield Row(GAPS, one, (run, gaps[mine], blocks[mine]), gaps[mine].nbytes)


def look_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[Any, ...]],
    *,
    settings: Mapping[str, Setting],
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Look for records in what readers passed over."""
    gaps: dict[str, list[tuple[Rows, Ints]]] = defaultdict(list)
    ranges = [np.zeros(0, RANGE)]
    for run, *own in values:
        if run:
            gaps[run].append((own[0], own[1]))
        else:
            ranges.append(own[0])
    by_block = _blocks(np.concatenate(ranges))
    for run, parts in gaps.items():
        rows, blocks = (np.concatenate(part) for part in zip(*parts, strict=True))
        for block in np.unique(blocks).tolist():
            there = by_block.get(block, np.zeros(0, RANGE))
            passed = look_into_gaps([(block, rows[blocks == block])], there, settings[run])
            if len(passed.steps):
                yield Row(PICKED, number_of[run], ("passed", passed.steps), passed.steps.nbytes)
            for log in np.unique(passed.missing[:, 0]).tolist():
                mine = passed.missing[passed.missing[:, 0] == log]
                shown = np.zeros(len(mine), STORED)
                shown["log"], shown["offset"], shown["state"] = log, mine[:, 1], np.where(mine[:, 2], HIDDEN, PLAIN)
                yield Row(WANTED, log, (number_of[run], "passed", shown), shown.nbytes)


def _blocks(ranges: Rows) -> dict[int, Rows]:
    """Ranges of offsets by block."""
    blocks = ranges["start"] >> BLOCK_BITS
    return {block: ranges[blocks == block] for block in np.unique(blocks).tolist()}


# --- applications -----------------------------------------------------------------------------------------------------


class Crew(NamedTuple):
    """The applications of a run: members of groups, how far each group went in each partition, and whole topics."""

    members: Members
    names: Mapping[int, Reach]
    whole: Hashes


def output_bucket(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    crews: Mapping[str, Crew],
    settings: Mapping[str, Setting],
    buckets: int,
) -> Iterator[Row]:
    """Join the outputs of some topics and values with the records."""
    by_run = _by_run(values, SENT, STORED)
    records = by_run.pop("", {STORED: np.zeros(0, STORED)})[STORED]
    for run, own in by_run.items():
        if run in crews:
            made = join_outputs(own[SENT], records, crews[run].members, settings[run], crews[run].whole)
            yield from _by_bucket(OUTPUTS, run, made, _block_buckets(made["place"], made["offset"], buckets))
            if len(made):
                yield Row(FACTS, 0, run)


def input_bucket(
    bucket: int,
    values: Iterable[tuple[str, Rows]],
    *,
    crews: Mapping[str, Crew],
    settings: Mapping[str, Setting],
    buckets: int,
) -> Iterator[Row]:
    """Join inputs of some blocks of offsets with their outputs, and with the commits behind them."""
    by_run = _by_run(values, GIVEN, OUTPUT, COVER, RANGE)
    shared = by_run.pop("", {COVER: np.zeros(0, COVER), RANGE: np.zeros(0, RANGE)})
    for run, crew in crews.items():
        own = by_run.get(run, {GIVEN: np.zeros(0, GIVEN), OUTPUT: np.zeros(0, OUTPUT)})
        ranges = shared[RANGE]
        joined = join_inputs(own[GIVEN], own[OUTPUT], shared[COVER], _blocks(ranges), crew.names, settings[run])
        counts: dict[str, dict[str, int]] = {rule: {"checked": joined.checked} for rule in INPUT_RULES}
        for rule in (SKIPPED, OFFSET_ALONE):
            counts[rule]["unknown"] = joined.silent
        yield Row(FIGURES, bucket, counts)
        if len(joined.suspects):
            yield Row(INPUTS, 0, (run, joined.suspects), joined.suspects.nbytes)
        checks = spot(joined.checks["name"], joined.checks["behind"]) % np.uint64(buckets)
        yield from _by_bucket(CHECKS, run, joined.checks, checks.astype(np.int64))


def commit_bucket(bucket: int, values: Iterable[tuple[str, Rows]]) -> Iterator[Row]:
    """Join inputs with the requests for the commits behind them."""
    for run, own in _by_run(values, CHECK, ASKED).items():
        left = join_commits(own[CHECK], own[ASKED])
        yield Row(FIGURES, bucket, {rule: {"checked": len(own[CHECK]) - len(left)} for rule in INPUT_RULES})
        if len(left):
            yield Row(INPUTS, 0, (run, left), left.nbytes)


def pick_outputs(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    crews: Mapping[str, Crew],
    settings: Mapping[str, Setting],
    buckets: int,  # noqa: ARG001 - as of `output_bucket`
    inputs: Mapping[str, Rows],
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Pick the outputs of inputs that are suspects, with their records."""
    by_run = _by_run(values, SENT, STORED)
    records = by_run.pop("", {STORED: np.zeros(0, STORED)})[STORED]
    for run, own in by_run.items():
        if run not in inputs:
            continue
        sent, group = of_members(own[SENT], crews[run].members, settings[run])
        wanted = np.unique(spot(inputs[run]["name"], inputs[run]["offset"]))
        keys = np.unique(sent["key"][is_in(spot(name_hashes(group, sent["place"]), sent["offset"]), wanted)])
        chosen = sent[is_in(sent["key"], keys)]
        yield Row(PICKED, number_of[run], ("outputs", chosen), chosen.nbytes)
        shown = settings[run].of_logs(records)
        shown = shown[is_in(shown["key"], keys)]
        for log in np.unique(shown["log"]).tolist():
            mine = shown[shown["log"] == log]
            yield Row(WANTED, log, (number_of[run], "outputs", mine), mine.nbytes)


def pick_inputs(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    inputs: Mapping[str, Rows],
    number_of: Mapping[str, int],
) -> Iterator[Row]:
    """Pick the events in which members were given suspects, and the requests for the commits behind them."""
    for run, own in _by_run(values, GIVEN, ASKED).items():
        if run in inputs:
            suspects = inputs[run]
            given, asked = (
                rows[is_in(spot(rows["name"], rows["offset"]), np.unique(spot(suspects["name"], suspects[name])))]
                for rows, name in ((own[GIVEN], "offset"), (own[ASKED], "behind"))
            )
            yield Row(PICKED, number_of[run], ("given", given), given.nbytes)
            yield Row(PICKED, number_of[run], ("asked", asked), asked.nbytes)


# --- what the readable rules look at ----------------------------------------------------------------------------------


def fetch_records(
    number: int, values: Iterable[tuple[int, str, Rows]], *, logs: Sequence[PartitionLog], check_crc: bool
) -> Iterator[Row]:
    """Read the values of the records of a log that the readable rules look at."""
    wanted = list(values)
    offsets = np.unique(np.concatenate([rows["offset"] for _, _, rows in wanted]))
    found = values_at(logs[number % len(logs)], offsets, check_crc=check_crc)
    for run, name, rows in wanted:
        told_by = [found.get(offset) for offset in rows["offset"].tolist()]
        yield Row(RECORDS, run, (name, number, rows, told_by), rows.nbytes)


class Reading(NamedTuple):
    """What the readable rules need besides the rows: files, runs, logs with their facts, and how far the logs go."""

    files: Sequence[Path]
    runs: Sequence[RunFacts]
    logs: Sequence[PartitionLog]
    ends: Mapping[int, LogEnds]
    settings: Mapping[str, Setting]
    reach: float

    def covered(self, run: RunFacts) -> bool:
        """Whether all logs go beyond a run."""
        return run.last_ms + SKEW_MS <= self.reach

    def events(self, places: Ints, run: RunFacts) -> list[Event]:
        """Events by where they stand, in the order of their run."""
        return [event for _, event in self.numbered(places.tolist(), run)]

    def numbered(self, places: Iterable[int], run: RunFacts) -> list[tuple[int, Event]]:
        """As :meth:`events`, each with where it stands."""
        by_file: dict[int, list[int]] = defaultdict(list)
        for at in set(places):
            by_file[at >> AT_BITS].append(at & ((1 << AT_BITS) - 1))
        found = [
            (number << AT_BITS | at, event)
            for number, own in sorted(by_file.items())
            for at, event in events_at(self.files[number], own)
        ]
        if run.ordered:
            found.sort(key=lambda numbered: numbered[1].order or 0)
        return found

    def replicas(self, records: Iterable[tuple[int, Rows, Sequence[bytes | None]]]) -> Replicas:
        """All logs, with some of their records."""
        contents = {number: ends.contents() for number, ends in self.ends.items()}
        for number, rows, values in records:
            _fill(contents[number], rows, values)
        found: dict[Place, list[tuple[PartitionLog, Contents]]] = defaultdict(list)
        for number in sorted(contents, key=lambda number: number % len(self.logs)):
            log, own = self.logs[number % len(self.logs)], contents[number]
            own.values = dict(sorted(own.values.items()))
            own.committed = dict(sorted(own.committed.items(), key=lambda each: each[::-1]))  # as markers decided them
            for offset, value in own.values.items():
                own.offsets[value].append(offset)
            found[log.topic, log.partition].append((log, own))
        return found


def _fill(contents: Contents, rows: Rows, values: Sequence[bytes | None]) -> None:
    for (_, offset, marker, _, state, _), value in zip(rows.tolist(), values, strict=True):
        contents.values[offset] = value
        if not VISIBLE[state]:
            contents.hidden.add(offset)
        if state == COMMITTED:
            contents.committed[offset] = marker
        elif state == ABORTED:
            contents.aborted[offset] = marker
        elif state == OPEN:
            contents.open.add(offset)


def judge_run(
    number: int,
    values: Iterable[tuple[Any, ...]],
    *,
    reading: Reading,
    suspects: Mapping[str, Hashes],
    inputs: Mapping[str, Rows],
    groups: Sequence[PartitionLog],
    check_crc: bool,
) -> Iterator[Row]:
    """Judge the suspects of a run by the readable rules."""
    run = reading.runs[number]
    covered = reading.covered(run)
    picked: dict[str, list[Rows]] = defaultdict(list)
    records: dict[str, list[tuple[int, Rows, Sequence[bytes | None]]]] = defaultdict(list)
    for name, *value in values:
        if len(value) == 3:
            records[name].append((value[0], value[1], value[2]))
        else:
            picked[name].append(value[0])
    keys, spots, ends = (np.concatenate([np.zeros(0, TOLD), *picked[name]]) for name in ("keys", "spots", "ends"))
    unlogged = np.concatenate([np.zeros(0, np.int64), *picked["unlogged"]])
    figures: dict[str, Figures] = {rule: {"checked": 0, "unknown": 0} for rule in HISTORY_RULES}
    replicas = reading.replicas(records["values"])
    own = reading.events(np.concatenate([keys["at"], ends["at"], unlogged]), run)
    told_by = set(keys["process"].tolist())
    telling = [at for process, at in run.telling.items() if process in told_by]
    of_suspects = [rows["at"][is_in(rows["ended"], suspects[run.run])] for rows in (keys, ends)]
    transactions = reading.events(np.concatenate([*of_suspects, np.array(telling, np.int64)]), run)
    findings: list[Finding] = []
    given = spots["at"][spots["what"] == POLLED]  # of two polls of an offset the later counts, whatever its value
    acknowledged = reading.events(np.concatenate([keys["at"], ends["at"], unlogged, given]), run)
    findings += lost(acknowledged, replicas, figures[LOST], covered=covered)
    findings += duplicate_values(own, replicas, figures[DUPLICATE_VALUE])
    findings += unasked(transactions, replicas, figures[UNASKED])
    findings += undone(transactions, replicas, figures[COMMITTED_MISSING], covered=covered)
    findings += delivered(own, replicas, figures[ABORTED_DELIVERED], covered=covered)
    findings += precommitted(own, replicas, figures[PRECOMMITTED])
    findings += inconsistent(reading.events(spots["at"], run), replicas, figures[INCONSISTENT])
    findings += polled(reading.events(unlogged, run), replicas, figures[POLL_SKIP], figures[NON_MONOTONIC])
    counted: Figures = {}  # where the steps were followed
    steps = _steps_of(picked["passed"] + picked["back"], reading, run)
    findings += polled(list(steps), reading.replicas(records["passed"]), counted, counted)
    findings += went_back(_steps_of(picked["fell"], reading, run), counted)
    if run.run in inputs:
        at = np.concatenate([np.zeros(0, np.int64), *(rows["at"] for name in _OF_INPUTS for rows in picked[name])])
        begun = [member.first(run.ordered)[1] for member in run.members.values()]
        events = reading.events(np.concatenate([at, np.array(begun, np.int64)]), run)
        only: dict[tuple[str, Place], list[int]] = defaultdict(list)
        for _, group, place, offset, _ in inputs[run.run].tolist():
            only[run.groups[group], run.places[place]].append(offset)
        by_name = {name: sorted(set(offsets)) for name, offsets in only.items()}
        logs = longest_logs([read_group_log(log, check_crc) for log in groups])
        shown = reading.replicas(records["outputs"])
        findings += judge_told(events, shown, logs, figures, covered=covered, only=by_name)
    yield Row(FOUND, number, (findings, figures))


_OF_INPUTS = ("outputs", "given", "asked")


def _steps_of(parts: Sequence[Rows], reading: Reading, run: RunFacts) -> Iterator[Event]:
    """Steps as events, each as if its process began anew, had come to where the step begins, and then took it."""
    rows = np.unique(np.concatenate([np.zeros(0, STEP), *parts]))
    begins = {at: (start, back) for at, start, _, _, _, back in rows.tolist()}
    for at, event in reading.numbered(begins, run):
        start, back = begins[at]
        yield Event(run=run.run, process=event.process, action="Crash", phase="info")
        yield replace(event, action="Seek", offset=start)
        if event.action == "EndOfPartition" and event.isolation == "read_committed" and event.offset is not None:
            yield replace(event, offset=start)
        if back:
            yield replace(event, action="AbortTransaction")
        yield event


def judge_members(bucket: int, values: Iterable[tuple[str, Ints]], *, reading: Reading) -> Iterator[Row]:
    """Judge the members of some groups."""
    by_run: dict[str, list[Ints]] = defaultdict(list)
    for run, places in values:
        by_run[run].append(places)
    for run in reading.runs:
        if run.run in by_run:
            figures: Figures = {"checked": 0, "unknown": 0}
            findings = list(judge_generations(reading.events(np.concatenate(by_run[run.run]), run), figures))
            yield Row(FOUND, bucket, (findings, {FENCED_GENERATION: figures}))


def judge_others(
    bucket: int,
    values: Iterable[tuple[str, int, Ints]],
    *,
    reading: Reading,
    groups: Sequence[PartitionLog],
    proving: Set[str],
    check_crc: bool,
) -> Iterator[Row]:
    """Judge refusals, declared applications, and those of runs that do not tell enough for a proof."""
    places: dict[tuple[str, int], list[Ints]] = defaultdict(lambda: [np.zeros(0, np.int64)])
    for name, kind, own in values:
        places[name, kind].append(own)
    for run in reading.runs:
        figures: dict[str, Figures] = {rule: {"checked": 0, "unknown": 0} for rule in HISTORY_RULES}
        findings: list[Finding] = []
        if run.refusals:
            replicas = reading.replicas([])
            findings += refused(
                reading.events(np.concatenate(places[run.run, REQUESTED]), run), replicas, figures[REFUSED]
            )
        telling = bool(run.members) and run.run not in proving
        if run.declared or telling:
            contents: dict[Place, list[tuple[PartitionLog, Contents]]] = defaultdict(list)
            for log in reading.logs:
                contents[log.topic, log.partition].append((log, read_contents(log, check_crc)))
            logs = longest_logs([read_group_log(log, check_crc) for log in groups])
            own_kinds = (REQUESTED, APPLIED) if telling else (REQUESTED,)
            events = reading.events(np.concatenate([each for kind in own_kinds for each in places[run.run, kind]]), run)
            findings += judge_inputs(events, contents, logs, figures, covered=reading.covered(run))
        yield Row(FOUND, bucket, (findings, figures))
