"""The plan for declared applications: its stages, and the facts that the caller holds.

=============================  =====================  ==================================================================
stage                          mapped over            rows
=============================  =====================  ==================================================================
:func:`read_declarations`      declarations           identities of declared records, by span; declarations to check
:func:`stages.scan`            splits of all logs     identities in values, and states of records, by span
:func:`seek_attempts`          clients                places of requests by range of a history
:func:`sought.fetch_events`    ranges of histories    these requests by client
:func:`take_requests`          clients                batches by span, and attempts by committed offset
:func:`end_group_log`          chunks of a log        commits that are past offsets first, by committed offset
:func:`join_commits_asked`     committed offsets      these commits with their attempts, by span
:func:`identify`               spans                  records with attempts and commits, by identity
:func:`judge_piece`            identities             findings and figures; candidates by transaction
:func:`report_once`            transactions           findings: each transaction is reported once
:func:`report_together`        applications           the same where the transactions of candidates overlap
=============================  =====================  ==================================================================

The stages are functions of :mod:`kafka_eos_checks.audit.plan.declared_stages`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.engines.engine import Engine
from kafka_eos_checks.audit.engines.rounds import Part
from kafka_eos_checks.audit.events.recorded import RunFacts
from kafka_eos_checks.audit.plan.declared_stages import (
    ATTEMPTED,
    BATCHES,
    BEGUN,
    CANDIDATES,
    COMMITTED_BY,
    FIGURES_OF,
    HEADS,
    IDENTIFIED,
    PASTS,
    RISES,
    SEEN,
    STATES,
    TEXTS,
    TOGETHER,
    AppFacts,
    Application,
    DeclaredLogs,
    identify,
    join_commits_asked,
    judge_piece,
    read_declarations,
    report_once,
    report_together,
    seek_attempts,
    take_requests,
)
from kafka_eos_checks.audit.plan.sought import SOUGHT, fetch_events
from kafka_eos_checks.audit.rules.applications import LogFacts, Name, not_ended
from kafka_eos_checks.audit.rules.declared import (
    APPLICATION,
    Identities,
    check_declared,
    check_events,
    declarations,
    known_from,
)
from kafka_eos_checks.audit.segments.contents import Figures, Place
from kafka_eos_checks.audit.segments.headers import Ints


@dataclass(slots=True)
class DeclaredPlan:
    """The declared applications of all runs.

    Attributes:
        engine: the engine that runs the plan.
        files: the files of the histories, by number.
        runs: all runs.
        read: the rows of the histories.
        starts: the ranges of the histories.
        heads: by number of a run with declarations, those that :func:`read_declarations` gives, in order.
        lonely: the numbers of the runs that have nothing but declarations.
        texts: the rows of :func:`read_declarations`.
        logs: what the scan of the logs has to know.
    """

    engine: Engine
    files: Sequence[Path]
    runs: Sequence[RunFacts]
    read: Any
    starts: Ints
    heads: dict[int, list[Event]] = field(default_factory=dict)
    lonely: set[int] = field(default_factory=set)
    texts: Any = None
    logs: DeclaredLogs = field(default_factory=DeclaredLogs)

    @property
    def ordered(self) -> dict[str, bool]:
        """The runs with declarations, and whether all their events have an order."""
        return {run.run: run.ordered for run in self.runs if run.declared}

    def read_declarations(self, kind: int, pieces: int) -> None:
        """Read the declarations, which are rows of a kind."""
        if not self.ordered:
            return
        reading = partial(read_declarations, files=self.files, ordered=self.ordered, pieces=pieces)
        self.texts = self.engine.regroup(reading, [kind], self.read, label="declarations")
        parts = [value for _, value in self.engine.collect(HEADS, self.texts)]
        found = []
        for number, run in enumerate(self.runs):
            own = [(count, heads) for name, count, heads in parts if name == run.run]
            heads = sorted((head for _, each in own for head in each), key=lambda head: head[0])
            if own:
                self.heads[number] = [event for _, event in heads]
                since = {event.group: when for when, event in heads if event.action == APPLICATION}
                own_declarations = declarations(self.heads[number])
                found += [Application(number, run.run, each, since[each.group]) for each in own_declarations]
                if sum(count for count, _ in own) == run.events:
                    self.lonely.add(number)
        self.logs = DeclaredLogs(found, pieces)

    def judge(
        self,
        requests: int,
        store: Sequence[Any],
        groups: Any,
        longest: Mapping[int, tuple[Place, int, bool]],
        topics: Iterable[str],
        committed: Mapping[int, tuple[frozenset[Name], bool]],
        covered: Mapping[int, bool],
        deleted_below: Mapping[Place, int],
    ) -> Part[tuple[list[dict[str, Figures]], list[Any]]]:
        """Judge all applications; return figures, and the rows of stages with findings.

        Args:
            requests: the kind of the rows of requests.
            store: the rows of the logs.
            groups: the rows of the groups' offsets.
            longest: by number of a log that is the longest of its partition: this, its end, and whether it is whole.
            topics: the topics with a log.
            committed: by log of ``__consumer_offsets`` that counts: its groups and partitions, and whether it is whole.
            covered: by number of a run whether all logs reach beyond its end.
            deleted_below: by partition, the offset below which records of this longest log were deleted.

        Raises:
            WrongQuestion: nothing fits a declaration.
        """
        if not self.ordered:
            return [], []
        engine, pieces = self.engine, self.logs.pieces
        ends = {place: end for place, end, _ in longest.values()}
        names = {run: set[str]() for run in self.ordered}
        for _, run, declared, _ in self.logs.applications:
            names[run] |= declared.outputs | {declared.group}
        seek = partial(seek_attempts, names=names, starts=self.starts)
        wanted = engine.regroup(seek, [requests], self.read, label="places of requests")
        fetch = partial(fetch_events, files=self.files)
        fetched = engine.regroup(fetch, [SOUGHT], wanted, label="requests read")
        take = partial(take_requests, ordered=self.ordered, ends=ends, pieces=pieces, names=names)
        asked = engine.regroup(take, [ATTEMPTED], wanted, fetched, label="requests")
        places = {number: place for number, (place, _, _) in longest.items()}
        (told,) = yield ((BEGUN, [asked]),)
        begun = [value for _, value in told]
        facts = []
        for number, run, declared, _ in self.logs.applications:
            waiting = sorted((each for name, own, _ in begun if name == run for each in own), key=lambda each: each[0])
            aborted = {each: told for name, _, own in begun if name == run for each, told in own.items()}
            is_whole = {place: whole for place, _, whole in longest.values()}
            own = covered[number]
            facts.append(
                AppFacts(
                    LogFacts.of(declared, is_whole, deleted_below, covered=own),
                    own,
                    _unknown(declared.group, places.values(), committed),
                    not_ended(declared, {name: each for _, name, each in waiting}, aborted),
                )
            )
        join = partial(
            join_commits_asked,
            counts=list(committed),
            ends=ends,
            logs=self.logs,
        )
        past = engine.regroup(join, [COMMITTED_BY, RISES], asked, groups, label="commits of declared groups")
        joined = engine.regroup(
            partial(identify, logs=self.logs, places=places),
            [TEXTS, STATES, BATCHES, PASTS],
            *(self.texts, *store, asked, past),
            label="records of declared topics",
        )
        judging = partial(judge_piece, logs=self.logs, facts=facts)
        judged = engine.regroup(judging, [IDENTIFIED], joined, label="declared applications")
        seen, figures = yield (SEEN, [judged]), (FIGURES_OF, [judged])
        self._check(topics, committed, [value for _, value in seen])
        once = engine.regroup(report_once, [CANDIDATES], judged, label="outputs without their offsets")
        together = engine.regroup(report_together, [TOGETHER], once, label="outputs of several transactions")
        return [value for _, value in figures], [judged, once, together]

    def _check(
        self,
        topics: Iterable[str],
        committed: Mapping[int, tuple[frozenset[Name], bool]],
        seen: Iterable[tuple[int, Identities]],
    ) -> None:
        """Refuse declarations that nothing fits, as :func:`declared.check` does."""
        identities = [Identities() for _ in self.logs.applications]
        for number, own in seen:
            identities[number].add(own)
        topics = list(topics)
        for number, heads in self.heads.items():
            others = [run.run for run in self.runs if number in self.lonely and run is not self.runs[number]]
            check_events(heads, others)
            names = (name for own, _ in committed.values() for name in own)
            known = known_from(self.runs[number].asked, topics, names)
            for place, application in enumerate(self.logs.applications):
                if application.number == number:
                    check_declared(application.declared, known, identities[place])


def _unknown(
    group: str, places: Iterable[Place], committed: Mapping[int, tuple[frozenset[Name], bool]]
) -> frozenset[Name]:
    """The partitions of which a group's committed offsets are not known, as :meth:`Offsets.covering` says."""
    found = set()
    for place in places:
        own = [whole for names, whole in committed.values() if (group, place) in names]
        if len(own) > 1 or not all(own or [whole for _, whole in committed.values()]) or not committed:
            found.add((group, place))
    return frozenset(found)
