"""The plan of an audit of histories, joined with logs: its stages, and the rows that each stage reads and writes.

==========================  ===========================  ===============================================================
stage                       mapped over                  rows
==========================  ===========================  ===============================================================
:func:`read_range`          ranges of histories          events by topic and value, by transaction, by process
:func:`stages.scan`         splits of all logs           records by topic and value, and their offsets by block
:func:`end_log`             splits of a log              the records that several splits decide; facts of the log
:func:`end_group_log`       chunks of a log              commits by block of offsets
:func:`join_bucket`         events and records           proved subjects; facts of values about transactions
:func:`end_bucket`          transactions                 proved subjects, and the suspect transactions
:func:`follow_bucket`       processes                    steps of readers, but those in chains of moves within a range
:func:`look_bucket`         blocks of offsets            records that readers passed over
:func:`epoch_bucket`        clients                      the epochs that they were given, since the requests for them
:func:`producer_bucket`     producer ids                 proved refusals and sent offsets, and the suspects
:func:`member_bucket`       groups                       proved generations, and the suspects' events
:func:`pick_requests`       clients                      places of the requests of suspect producers, by range
:func:`pick_commits`        chunks of a log              the committed offsets that suspect producers are judged by
:func:`pick_decisions`      records of a log             the decisions that suspect producers are judged by
:func:`seek_events`         runs                         places of the events of suspects, by range
:func:`fetch_events`        ranges of histories          these events and requests
:func:`judge_producers`     suspect producers            findings and figures of the readable rules over requests
:func:`pick_records`        records                      those of applications without a proof, without their values
:func:`fetch_records`       logs                         the records that the readable rules need
:func:`judge_run`           runs                         findings and figures of the readable rules over suspects
==========================  ===========================  ===============================================================

The stages are functions of :mod:`kafka_eos_checks.audit.plan.history_stages`. Declared applications have a plan of
their own (:mod:`kafka_eos_checks.audit.plan.declared_plan`). The readable form of all of them is
:func:`kafka_eos_checks.audit.oracle.readable_histories.join`. Histories are read first. So the scan of the logs knows
the topics that they name, and gives the records of these topics while it has their bytes. The caller, on Spark the
driver, holds some facts of each log and run, and the hashes of suspects.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.histories.history import MalformedHistory
from kafka_eos_checks.audit.engines.engine import Engine
from kafka_eos_checks.audit.engines.rounds import Part, together
from kafka_eos_checks.audit.events.history_files import (
    Range,
    files_of,
    line_of,
    range_bytes_of,
    ranges_of,
)
from kafka_eos_checks.audit.events.recorded import (
    Hashes,
    Rows,
    RunFacts,
    place_hash,
    text_hash,
)
from kafka_eos_checks.audit.kernels.histories.applying import (
    Members,
    Reach,
)
from kafka_eos_checks.audit.kernels.histories.joining import (
    LogOf,
    Setting,
)
from kafka_eos_checks.audit.kernels.histories.requesting import NAMING, Crowds
from kafka_eos_checks.audit.kernels.histories.stored import (
    LogEnds,
)
from kafka_eos_checks.audit.moments import SKEW_MS, Moments, Source
from kafka_eos_checks.audit.places import sizes_of
from kafka_eos_checks.audit.plan.declared_plan import DeclaredPlan
from kafka_eos_checks.audit.plan.declared_stages import NAMES, PIECE_BYTES
from kafka_eos_checks.audit.plan.found import Found
from kafka_eos_checks.audit.plan.history_stages import (
    ACCUSED,
    APPLIED,
    ASKED_FOR,
    ASKING,
    BLOCKS,
    CHANGED,
    CHECKS,
    CLIENTS,
    COVERING,
    DECLARED,
    ENDINGS,
    EPOCHS,
    EVENTS,
    FACTS,
    FAILED,
    FIGURES,
    FOUND,
    GAPS,
    GIVING,
    GROUPS,
    HELD_BY,
    INPUTS,
    LINKS,
    LOG,
    MEMBERS,
    MOVES,
    NAMED_BY,
    OFFERED,
    OUTPUTS,
    PICKED,
    PIECES,
    PRODUCERS,
    RANGES,
    REACHED,
    RECORDS,
    REQUESTED,
    SENDING,
    SHOWN,
    SPOTS,
    STORE,
    SUSPECT,
    SUSPECT_KEYS,
    SUSPECTED,
    SUSPECTS_DECISIONS,
    SUSPECTS_OFFSETS,
    TANGLED,
    VALUES,
    WANTED,
    Accused,
    Crew,
    Named,
    Reading,
    Wanted,
    commit_bucket,
    end_bucket,
    end_group_log,
    end_log,
    epoch_bucket,
    fetch_records,
    follow_bucket,
    input_bucket,
    join_bucket,
    join_facts,
    judge_applications,
    judge_producers,
    judge_run,
    look_bucket,
    member_bucket,
    output_bucket,
    pick_bucket,
    pick_commits,
    pick_decisions,
    pick_inputs,
    pick_outputs,
    pick_records,
    pick_requests,
    producer_bucket,
    read_moves,
    read_range,
    runs_of,
    seek_events,
)
from kafka_eos_checks.audit.plan.sought import SOUGHT, fetch_events, starts_of
from kafka_eos_checks.audit.plan.stages import COMMITS, STATES, scan_logs
from kafka_eos_checks.audit.rules.applications import Name
from kafka_eos_checks.audit.rules.histories import (
    HISTORY_RULES,
    REFUSED,
    Join,
)
from kafka_eos_checks.audit.rules.sent_offsets import NOT_AS_SENT
from kafka_eos_checks.audit.segments.contents import Figures, Place
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.audit.segments.splits import SPLIT_BYTES, PartitionLog

BUCKET_BYTES = 256 << 20  # of histories and logs for each bucket, whose rows are joined together
MOST_BUCKETS = 4096
OF_REQUESTS = (REFUSED, NOT_AS_SENT)  # the rules over the requests of producers


def judge_histories(
    histories: Sequence[Path],
    logs: Sequence[PartitionLog],
    moments: Moments,
    engine: Engine,
    *,
    check_crc: bool = True,
    range_bytes: int | None = None,
    split_bytes: int = SPLIT_BYTES,
) -> tuple[int, Join]:
    """Judge histories by the logs of the brokers they were recorded with, which are read for this alone.

    Args:
        histories: files of events.
        logs: replicas of partitions.
        moments: the moments of the logs.
        engine: the engine that runs the plan.
        check_crc: whether to compare each batch with its CRC.
        range_bytes: size of the pieces of histories, None for one that suits their size; the result does not depend
            on it.
        split_bytes: size of the splits of logs; the result does not depend on it.

    Returns:
        The number of events, and the findings and figures of the rules.

    Raises:
        MalformedHistory: a line or a row is no event.
        WrongQuestion: nothing fits an application that is declared.
        OSError, UnusableInput: a file cannot be read.
    """
    told = read_histories(histories, logs, engine, range_bytes=range_bytes)
    scanned = scan_logs(logs, engine, named=told.named, check_crc=check_crc, split_bytes=split_bytes)
    return told.events, told.judge(scanned.rows, moments, check_crc=check_crc)


def read_histories(
    histories: Sequence[Path], logs: Sequence[PartitionLog], engine: Engine, *, range_bytes: int | None = None
) -> "Histories":
    """Read histories that are to be judged by logs; arguments and errors as of :func:`judge_histories`."""
    files = [file for path in histories for file in files_of(path)]
    range_bytes = range_bytes_of(files) if range_bytes is None else range_bytes
    parts = [(number, part) for number, file in enumerate(files) for part in ranges_of(file, range_bytes)]
    size = sum(part.size for _, part in parts)
    log_bytes = sum(sizes_of([log.file(name) for log in logs if log.has_records for name in log.segments]))
    buckets = min(MOST_BUCKETS, max(engine.buckets, (size + log_bytes) // BUCKET_BYTES))
    logged = np.unique(np.array([place_hash(log.topic, log.partition) for log in logs if log.has_records], np.uint64))
    starts = starts_of(parts)
    reading = partial(read_range, buckets=buckets, logged=logged)
    read = engine.map(reading, parts, [part.size for _, part in parts], "histories")
    joined = engine.regroup(join_facts, (FACTS,), read, label="facts of histories")
    failed, facts, changes = engine.collect_each((FAILED, [read]), (FACTS, [joined]), (CHANGED, [read]))
    if failed:
        _, (number, at, reason) = min(failed, key=lambda each: each[1][:2])
        raise MalformedHistory(str(files[number]), line_of(files[number], at), reason)
    runs = runs_of(own for _, own in facts)
    topics = set[str]().union(*(run.topics for run in runs))
    numbered = [(number, log) for number, log in enumerate(logs) if log.has_records]
    chosen, groups = (
        {number: log for number, log in numbered if log.topic in own} for own in (topics, {OFFSETS_TOPIC})
    )
    numbers = {number: place for place, number in enumerate(chosen)}
    declared = DeclaredPlan(engine, files, runs, read, starts)
    declared.read_declarations(DECLARED, min(MOST_BUCKETS, max(buckets, (size + log_bytes) // PIECE_BYTES)))
    groups_count = _tell_of_applications(runs) or any(run.sending for run in runs)
    return Histories(
        files,
        parts,
        runs,
        engine,
        read,
        [change for _, change in changes],
        Named(numbers, groups_count, buckets, declared.logs, _readers_of(runs)),
        list(chosen.values()),
        groups,
        declared,
    )


def _readers_of(runs: Iterable[RunFacts]) -> dict[int, Hashes]:
    """By hash of a partition, the names of it with the groups of which a member was given an input."""
    names: dict[int, set[int]] = defaultdict(set)
    for run in runs:
        for name, (_, place, _) in run.first_given.items():
            names[place].add(name)
    return {place: np.array(sorted(own), np.uint64) for place, own in names.items()}


def _tell_of_applications(runs: Sequence[RunFacts]) -> bool:
    return any(run.members or run.declared for run in runs)


@dataclass(slots=True)
class Histories:
    """Histories that were read, and the joins of all their runs with all their logs.

    Attributes:
        files: the files of the histories, by number.
        parts: the ranges of the files, each with the file's number.
        runs: the runs, in the order in which they start.
        engine: the engine that runs the plan.
        read: the rows of the histories.
        changes: by run, the rows of the kind :data:`CHANGED`.
        named: what the scan of the logs has to know.
        logs: the logs of the topics that histories name.
        groups: the logs of ``__consumer_offsets``, by their number in the scan.
        declared: the declared applications.
        check_crc: whether to compare each batch with its CRC, where a log is read again.
    """

    files: Sequence[Path]
    parts: Sequence[tuple[int, Range]]
    runs: Sequence[RunFacts]
    engine: Engine
    read: Any
    changes: Sequence[tuple[str, Rows]]
    named: Named
    logs: Sequence[PartitionLog]
    groups: Mapping[int, PartitionLog]
    declared: DeclaredPlan
    check_crc: bool = True
    ends: dict[int, LogEnds] = field(default_factory=dict)
    reach: float = inf
    settings: dict[str, Setting] = field(default_factory=dict)
    store: Sequence[Any] = ()
    covers: Any = None
    reached: dict[int, int] = field(default_factory=dict)
    committed: Mapping[int, tuple[frozenset[Name], bool]] = field(default_factory=dict)
    groups_whole: bool = False
    group_logs_chosen: Sequence[int] = ()
    group_logs_once: bool = True
    suspects: Mapping[str, Hashes] = field(default_factory=dict)
    proving: set[str] = field(default_factory=set)
    accused: dict[tuple[int, str], Accused] = field(default_factory=dict)
    wanted: dict[int, Wanted] = field(default_factory=dict)
    refused: dict[int, list[Ints]] = field(default_factory=lambda: defaultdict(list))
    inputs: Mapping[str, Rows] = field(default_factory=dict)
    picked: list[Any] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    figures: list[tuple[str, Mapping[str, int]]] = field(default_factory=list)

    @property
    def events(self) -> int:
        """The number of events."""
        return sum(run.events for run in self.runs)

    @property
    def valued(self) -> bool:
        """Whether an event names its record by a value."""
        return any(run.valued for run in self.runs)

    @property
    def ordered(self) -> set[str]:
        """The runs that have an order."""
        return {run.run for run in self.runs if run.ordered}

    @property
    def buckets(self) -> int:
        """The number of buckets of values, transactions, processes, and blocks of offsets."""
        return self.named.buckets

    @property
    def starts(self) -> Ints:
        """The ranges of the histories."""
        return starts_of(self.parts)

    @property
    def group_logs(self) -> list[PartitionLog]:
        """The logs of ``__consumer_offsets``."""
        return list(self.groups.values())

    def judge(self, scanned: Sequence[Any], moments: Moments, *, check_crc: bool = True) -> Join:
        """Join the histories with the rows of a scan that knew :attr:`named`, and judge the suspects."""
        result = Join(Found(self.engine), {rule: {"checked": 0, "unknown": 0} for rule in HISTORY_RULES})
        if not self.runs:
            return result
        self.check_crc = check_crc
        together(self.engine, self.end_logs(scanned, moments))
        reading = Reading(self.runs, self.logs, self.ends, self.settings, self.reach)
        declared = self.judge_declared(reading, moments.source)
        joins = self.join(), self.join_producers(), self.join_members(), self.join_applications()
        (figures, of_declared), *_ = together(self.engine, declared, *joins)
        judged, result.findings = self.judge_suspects(reading)
        result.findings += Found(self.engine, *of_declared)
        judged += figures
        for rule, own in [*self.figures, *(each for figures in judged for each in figures.items())]:
            for name, count in own.items():
                result.figures[rule][name] = int(result.figures[rule].get(name, 0)) + int(count)
        return result

    def end_logs(self, scanned: Sequence[Any], moments: Moments) -> Part[None]:
        """Fold the logs of the topics that histories name, and those of the groups."""
        scanned = scanned or [self.read]  # without logs: rows among which no stage finds any of its kind
        declared = self.named.declared
        end = partial(end_log, logs=self.logs, named=self.named, check_crc=self.check_crc)
        ended = self.engine.regroup(end, [PIECES], *scanned, label="logs of histories")
        self.store = [*scanned, ended]
        fold = partial(
            end_group_log,
            numbers={number: place for place, number in enumerate(self.groups)},
            logs=self.group_logs,
            buckets=self.buckets,
            applied=_tell_of_applications(self.runs),
            sending=any(run.sending for run in self.runs),
            declared=declared,
        )
        kinds = [GROUPS if self.named.groups else COMMITS]
        groups = self.engine.regroup(fold, kinds, *scanned, label="groups' offsets")
        names_of = [groups] if declared.applications else []
        told, of_groups, of_partitions, names = yield (
            (LOG, [ended]),
            (LOG, [groups]),
            (REACHED, [groups]),
            (NAMES, names_of),
        )
        whole_logs = dict(told)
        self.ends = {
            number: LogEnds() for number in range(len(self.logs)) if number + len(self.logs) not in whole_logs
        } | whole_logs
        own = [(self.log_of(number), ends.end, ends.stamped_ms) for number, ends in self.ends.items()]
        longest: dict[int, tuple[int, int, int, bool]] = {}
        facts = dict.fromkeys(range(len(self.groups)), (0, -1, True)) | dict(of_groups)
        for number, (end_offset, stamped, whole) in facts.items():
            partition = self.group_logs[number].partition
            if partition not in longest or end_offset > longest[partition][1]:
                longest[partition] = number, end_offset, stamped, whole
        self.group_logs_chosen = [number for number, *_ in longest.values()]
        reached: dict[int, int] = {}
        for number, last in of_partitions:
            if number in self.group_logs_chosen:
                self.group_logs_once = self.group_logs_once and not reached.keys() & last.keys()
                reached.update(last)
        self.reached = reached
        named = dict(names)
        self.committed = {number: (named.get(number, frozenset()), whole) for number, *_, whole in longest.values()}
        self.groups_whole = bool(longest) and all(whole for *_, whole in longest.values())
        self.covers = groups
        own += [(self.group_logs[number], end_offset, stamped) for number, end_offset, stamped, _ in longest.values()]
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
        """The log with a number."""
        return self.logs[number % len(self.logs)]

    def join(self) -> Part[None]:
        """Count the proved subjects, and pick the events and records that the readable rules need."""
        engine, settings, buckets = self.engine, self.settings, self.buckets
        number_of = {run.run: number for number, run in enumerate(self.runs)}
        values = engine.regroup(
            partial(join_bucket, settings=settings, buckets=buckets, picks=None, number_of=number_of),
            [VALUES, STORE],
            self.read,
            *self.store,
            label="values",
        )
        ended = engine.regroup(
            partial(end_bucket, settings=settings), [ENDINGS, HELD_BY], self.read, values, label="transactions told"
        )
        changes: dict[str, list[Rows]] = defaultdict(list)
        for run, rows in self.changes:
            changes[run].append(rows)
        by_run = {run: np.concatenate(rows) for run, rows in changes.items()}
        follow = partial(follow_bucket, settings=settings, changes=by_run, buckets=buckets, number_of=number_of)
        followed = [engine.regroup(follow, [MOVES], self.read, label="readers")]
        counted = [values, ended, *followed]
        *picks, figures = yield (SPOTS, [values]), (SUSPECT, [ended]), (TANGLED, followed), (FIGURES, counted)
        self._count(figures)
        spots, suspects, tangled = map(self._hashes, picks)
        self.suspects = suspects
        counted = []
        if any(map(len, tangled.values())):
            again = partial(read_moves, buckets=buckets, of=tangled)
            moves = engine.map(again, self.parts, [part.size for _, part in self.parts], "tangled readers")
            counted.append(engine.regroup(follow, [MOVES], moves, label="tangled readers followed"))
            followed += counted
        passed = engine.regroup(
            partial(look_bucket, settings=settings, number_of=number_of, tangled=tangled),
            [GAPS, RANGES],
            self.read,
            *followed,
            *self.store,
            label="passed offsets",
        )
        self.picked += [*followed, passed]
        self.records.append(passed)
        if any(map(len, (*spots.values(), *suspects.values()))):
            picked = engine.regroup(
                partial(join_bucket, settings=settings, buckets=buckets, picks=(spots, suspects), number_of=number_of),
                [VALUES, STORE, SUSPECT_KEYS],
                self.read,
                *self.store,
                values,
                label="suspects",
            )
            counted.append(picked)
            ends = engine.regroup(
                partial(pick_bucket, number_of=number_of, suspects=suspects),
                [ENDINGS, ASKED_FOR],
                self.read,
                picked,
                label="suspects' ends",
            )
            self.picked += [picked, ends]
            self.records.append(picked)
        if counted:
            (figures,) = yield ((FIGURES, counted),)
            self._count(figures)

    def _count(self, figures: Iterable[tuple[int, Mapping[str, Mapping[str, int]]]]) -> None:
        """Add collected figures of rules."""
        self.figures += [each for _, own in figures for each in own.items()]

    def join_producers(self) -> Part[None]:
        """Count what columns prove about refusals and sent offsets; the producer ids without a proof are accused."""
        engine = self.engine
        decided = {run.run: (run, bool(self.groups) and run.last_ms + SKEW_MS <= self.reach) for run in self.runs}
        join = partial(producer_bucket, runs=decided, logs=self.group_logs_chosen)
        date = partial(epoch_bucket, ordered=self.ordered, buckets=self.buckets)
        epochs = engine.regroup(date, [EPOCHS], self.read, label="epochs")
        joined = engine.regroup(join, [PRODUCERS], self.read, epochs, self.covers, label="producers")
        asked = FIGURES, ACCUSED, LINKS, NAMED_BY
        figures, accused, links_told, named_told = yield [(kind, [joined]) for kind in asked]
        self._count(figures)
        suspects, of_batches = (defaultdict[tuple[str, str], list[Ints]](list) for _ in range(2))
        for _, (run, rule, pids, of_batch) in accused:
            suspects[run, rule].append(pids)
            of_batches[run, rule].append(of_batch)
        if not suspects:
            return
        links, named = defaultdict[str, list[Rows]](list), defaultdict[str, list[Rows]](list)
        for told, parts in ((links_told, links), (named_told, named)):
            for _, (run, rows) in told:
                parts[run].append(rows)
        for number, run in enumerate(self.runs):
            own = {rule: np.concatenate(suspects[run.run, rule]) for rule in OF_REQUESTS if (run.run, rule) in suspects}
            if own:
                batches = np.concatenate([np.zeros(0, np.int64), *of_batches[run.run, REFUSED]])
                self._accuse(number, own, np.concatenate(links[run.run]), named[run.run], batches)

    def join_members(self) -> Part[None]:
        """Count the commits that columns prove to be of the present generation, and pick the events of the others."""
        number_of = {run.run: number for number, run in enumerate(self.runs)}
        join = partial(member_bucket, runs={run.run: run for run in self.runs}, number_of=number_of)
        joined = self.engine.regroup(join, [MEMBERS], self.read, label="generations")
        self.picked.append(joined)
        (figures,) = yield ((FIGURES, [joined]),)
        self._count(figures)

    def _accuse(
        self, number: int, suspects: Mapping[str, Ints], links: Rows, named: Sequence[Rows], of_batches: Ints
    ) -> None:
        """Note which requests and committed offsets the suspects of a run need, and in which task they are judged.

        Refusals are judged by the requests of all clients that may have fenced each other, offsets by the producer's.
        Of producers that were refused because of their epoch, most requests only show that epoch, so that the first
        one will do; without any log, and if a test made up answers, all count.
        """
        all_count = self.runs[number].made_up or not self.ends
        crowds = Crowds.of(np.concatenate(list(suspects.values())), links)
        for rule, pids in suspects.items():
            clients = crowds.clients[np.isin(crowds.crowd, crowds.number_of(pids))]
            if rule == NOT_AS_SENT:
                clients = np.unique(links["client"][np.isin(links["pid"], pids)])
            whole = None if all_count or rule == NOT_AS_SENT else np.unique(of_batches)
            tasks = crowds.crowd[np.searchsorted(crowds.clients, clients)] % MOST_BUCKETS
            self.accused[number, rule] = Accused(number, rule, set(pids.tolist()), clients, tasks, whole)
        refused = suspects.get(REFUSED, np.zeros(0, np.int64))
        of_refused = crowds.number_of(refused) % MOST_BUCKETS
        for task in np.unique(of_refused).tolist():
            self.refused[task].append(refused[of_refused == task])
        senders = suspects.get(NOT_AS_SENT, np.zeros(0, np.int64))
        groups = np.concatenate([np.zeros(0, NAMING), *named])
        of_sender, of_group = (crowds.number_of(each) % MOST_BUCKETS for each in (senders, groups["pid"]))
        for task in np.unique(of_sender).tolist():
            before = self.wanted.get(task, Wanted(np.zeros(0, np.int64), np.zeros(0, np.uint64)))
            own = senders[of_sender == task], groups["group"][of_group == task]
            self.wanted[task] = Wanted(*map(np.union1d, before, own))

    def join_applications(self) -> Part[None]:
        """In runs whose events suffice, count the inputs that are proved to be processed once, and pick the others."""
        engine = self.engine
        crews = {run.run: self._crew(run) for run in self.runs if self._tells_enough(run)}
        if not crews:
            return
        number_of = {run.run: number for number, run in enumerate(self.runs)}
        made = partial(output_bucket, crews=crews, settings=self.settings, buckets=self.buckets)
        outputs = engine.regroup(made, [SENDING, STORE], self.read, *self.store, label="outputs")
        (facts,) = yield ((FACTS, [outputs]),)
        sending = {run for _, run in facts}
        self.proving = set(crews)
        crews = {run: crew for run, crew in crews.items() if run in sending}
        inputs = engine.regroup(
            partial(input_bucket, crews=crews, settings=self.settings, buckets=self.buckets),
            [GIVING, OUTPUTS, COVERING, OFFERED],
            *(self.read, outputs, self.covers, *self.store),
            label="inputs",
        )
        checked = engine.regroup(commit_bucket, [CHECKS, ASKING], inputs, self.read, label="commits asked for")
        figures, told = yield (FIGURES, [inputs, checked]), (INPUTS, [inputs, checked])
        self._count(figures)
        found: dict[str, list[Rows]] = defaultdict(list)
        for _, (run, suspects) in told:
            found[run].append(suspects)
        self.inputs = {run: np.unique(np.concatenate(own)) for run, own in found.items()}
        if self.inputs:
            outputs_of = partial(
                pick_outputs, crews=crews, settings=self.settings, inputs=self.inputs, number_of=number_of
            )
            inputs_of = partial(pick_inputs, inputs=self.inputs, number_of=number_of)
            chosen = engine.regroup(outputs_of, [SENDING, STORE], self.read, *self.store, label="suspects' outputs")
            told_by = engine.regroup(inputs_of, [GIVING, ASKING], self.read, label="suspects' inputs")
            self.picked += [chosen, told_by]
            self.records.append(chosen)

    def _tells_enough(self, run: RunFacts) -> bool:
        """Whether inputs of a run can be proved: each member has one group, names inputs, and all offsets are known."""
        clear = run.members and not run.members.keys() & run.tacit
        one_group = all(member.group for member in run.members.values())
        groups = self.groups_whole and self.group_logs_once
        return bool(clear) and one_group and groups and run.last_ms + SKEW_MS <= self.reach

    def _crew(self, run: RunFacts) -> Crew:
        members = sorted((process, member.group, member.first(run.ordered)) for process, member in run.members.items())
        process = np.array([process for process, *_ in members], np.uint64)
        group = np.array([group for _, group, _ in members], np.uint64)
        first = np.array([when for *_, (when, _) in members], np.int64)
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
        return Crew(Members(process, group, first), names, whole, self.group_logs_chosen)

    def _hashes(self, collected: Iterable[tuple[int, tuple[str, Hashes]]]) -> dict[str, Hashes]:
        """The collected hashes of each run, ascending."""
        parts: dict[str, list[Hashes]] = {run.run: [np.zeros(0, np.uint64)] for run in self.runs}
        for _, (run, hashes) in collected:
            parts[run].append(hashes)
        return {run: np.unique(np.concatenate(own)) for run, own in parts.items()}

    @property
    def told_whole(self) -> list[RunFacts]:
        """The runs with applications of which columns cannot prove any input."""
        return [run for run in self.runs if run.members and run.run not in self.proving]

    def pick_whole(self, reading: Reading) -> None:
        """Pick the records of applications that are judged with a run as a whole, because columns prove no input."""
        engine = self.engine
        chosen = {run.run: reading.all_records(run.topics) for run in self.told_whole}
        if any(chosen.values()):
            number_of = {run.run: number for number, run in enumerate(self.runs)}
            pick = partial(pick_records, chosen=chosen, number_of=number_of)
            self.records.append(engine.regroup(pick, [STORE], *self.store, label="records of applications"))

    def judge_suspects(self, reading: Reading) -> tuple[list[dict[str, Figures]], Found]:
        """The figures and findings of the readable rules, over what was picked."""
        engine = self.engine
        self.pick_whole(reading)
        fetched = engine.regroup(
            partial(fetch_records, logs=self.logs, check_crc=self.check_crc),
            [WANTED, BLOCKS],
            *self.records,
            self.store[-1],
            label="records shown",
        )
        seek = partial(seek_events, runs=self.runs, inputs=set(self.inputs), starts=self.starts)
        wanted = [engine.regroup(seek, [PICKED], *self.picked, label="suspects' events")]
        whole = {run.run for run in self.told_whole}
        if self.accused or whole:
            wanted.append(self._seek_requests(whole))
        fetch = partial(fetch_events, files=self.files)
        events = engine.regroup(fetch, [SOUGHT], self.read, *wanted, label="events shown")
        kinds = [PICKED, RECORDS, EVENTS]
        by_readable = partial(
            judge_run,
            reading=reading,
            suspects=self.suspects,
            inputs=self.inputs,
            groups=self.group_logs,
            check_crc=self.check_crc,
        )
        judged = [engine.regroup(by_readable, kinds, fetched, events, *self.picked, label="suspects judged")]
        judged += self._judge_requests(reading, whole, events, fetched)
        return [own for _, own in engine.collect(FOUND, *judged)], Found(engine, *judged)

    def _seek_requests(self, whole: Collection[str]) -> Any:
        """Rows with the places of requests of suspect producers, and of runs that are judged as a whole."""
        accused = defaultdict[str, list[Accused]](list)
        for (number, _), own in self.accused.items():
            accused[self.runs[number].run].append(own)
        pick = partial(pick_requests, accused=accused, whole=whole, ordered=self.ordered, starts=self.starts)
        return self.engine.regroup(pick, [CLIENTS, APPLIED], self.read, label="suspects' requests")

    def _judge_requests(self, reading: Reading, whole: Collection[str], events: Any, records: Any) -> list[Any]:
        """Rows with the findings over suspect producers, and over applications of runs that are judged as a whole."""
        engine, judged = self.engine, list[Any]()
        if self.accused:
            counted = []
            if self.wanted and self.groups:
                commits = partial(
                    pick_commits,
                    numbers={number: place for place, number in enumerate(self.groups)},
                    logs=self.group_logs,
                    places={number: place for place, number in enumerate(self.group_logs_chosen)},
                    wanted=self.wanted,
                )
                counted.append(engine.regroup(commits, [GROUPS], *self.store, label="suspects' offsets"))
            if self.refused:
                refused = {task: np.unique(np.concatenate(pids)) for task, pids in self.refused.items()}
                decisions = partial(pick_decisions, wanted=refused)
                counted.append(engine.regroup(decisions, [STATES], *self.store, label="suspects' decisions"))
            judge = partial(
                judge_producers,
                reading=reading,
                accused=self.accused,
                groups=[self.group_logs[number] for number in self.group_logs_chosen],
            )
            kinds = [SUSPECTED, SUSPECTS_OFFSETS, SUSPECTS_DECISIONS]
            judged.append(engine.regroup(judge, kinds, events, *counted, label="suspect producers"))
        if whole:
            judge_whole = partial(
                judge_applications, reading=reading, groups=self.group_logs, whole=whole, check_crc=self.check_crc
            )
            kinds = [REQUESTED, SHOWN]
            judged.append(engine.regroup(judge_whole, kinds, events, records, label="applications"))
        return judged

    def judge_declared(self, reading: Reading, source: Source) -> Part[tuple[list[dict[str, Figures]], list[Any]]]:
        """The figures of the rules over declared applications, and rows with their findings.

        Raises:
            WrongQuestion: nothing fits an application that is declared.
        """
        longest, of = {}, next(iter(self.settings.values())).logs
        deleted_below: dict[Place, int] = {}
        for number, ends in self.ends.items():
            if of[number].longest:
                log = self.log_of(number)
                longest[number] = (log.topic, log.partition), ends.end, ends.whole
                deleted_below[log.topic, log.partition] = source.deleted_below(log)
        return self.declared.judge(
            CLIENTS,
            self.store,
            self.covers,
            longest,
            {self.log_of(number).topic for number in self.ends},
            self.committed,
            {number: reading.covered(run) for number, run in enumerate(self.runs)},
            deleted_below,
        )
