"""The stages of an audit that judge declared applications: functions that read and write rows.

:mod:`kafka_eos_checks.audit.plan.declared_plan` runs them. Requests are taken client by client, because transactions
are numbered in the order of a client's requests. A client's requests are read one after the other, and a task holds
those without an answer. Records meet the batches and the commits that tell of them by *span*, some thousand offsets of
a partition, and each other by identity. So a hot partition is many tasks. Spans and identities are dealt to *pieces*,
of which there are as many as keep a piece small.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.events.history_files import ATTEMPTS, Line, event_of
from kafka_eos_checks.audit.events.recorded import ENDED, Rows, text_hash
from kafka_eos_checks.audit.kernels.histories.joining import is_in
from kafka_eos_checks.audit.kernels.histories.stored import ABORTED, COMMITTED, VISIBLE
from kafka_eos_checks.audit.plan.found import found_rows
from kafka_eos_checks.audit.plan.sought import Shown, lines_of, sought
from kafka_eos_checks.audit.rules.applications import (
    UNKNOWN,
    Attempt,
    Candidate,
    Clients,
    Identified,
    LogFacts,
    Name,
    Offsets,
    Past,
    Requests,
    judge_identities,
    reported,
)
from kafka_eos_checks.audit.rules.declared import RECORD, Declared, Identities, wrong_in
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES
from kafka_eos_checks.audit.segments.contents import Figures, Place, place_of
from kafka_eos_checks.audit.segments.headers import Ints

HEADS, TEXTS, STATES, BATCHES, BEGUN, COMMITTED_BY, RISES, PASTS = range(100, 108)  # kinds of rows
IDENTIFIED, SEEN, CANDIDATES, TOGETHER, NAMES = range(108, 113)
FIGURES_OF, ATTEMPTED = 113, 114
PIECE_BYTES = 1 << 20  # of logs for each piece
SPAN_BITS = 12  # a span is 2 ** SPAN_BITS consecutive offsets of a partition
ITEMS_AT_ONCE = 8192
ITEM_BYTES = 200  # that an item takes between stages, about
Owner = tuple[str, str]  # the run and the group of a declaration
When = tuple[int, int]  # the position of an event in its run
Item = tuple[int, int, Any]  # kind, key, value


class Application(NamedTuple):
    """A declared application: the number and the name of its run, and its declaration.

    If its records are declared one by one, the declaration has some of them, so that it is known. ``since`` is its
    position: of an earlier declaration of the group no record counts.
    """

    number: int
    run: str
    declared: Declared
    since: "When" = (0, 0)

    @property
    def owner(self) -> Owner:
        """The run and the group."""
        return self.run, self.declared.group


class Text(NamedTuple):
    """The identity of a record, read from its value or declared.

    Attributes:
        owner: the application.
        where: the number of the log, or the partition of a declared record.
        offset: the record's offset.
        identity: what an input and its outputs have in common.
        which: for one of several outputs, which it is.
        when: the position of the declaration.
    """

    owner: Owner
    where: int | Place
    offset: int
    identity: str
    which: str = ""
    when: When = (0, 0)


class Batch(NamedTuple):
    """A batch of a run that was acknowledged: its offsets and its attempt, and the position of the answer."""

    run: str
    place: Place
    first: int
    last: int
    when: When
    attempt: Attempt


class CommittedBy(NamedTuple):
    """An attempt that committed an offset of a group and partition."""

    run: str
    name: Name
    offset: int
    attempt: Attempt


class Rise(NamedTuple):
    """The offsets of a group and partition from ``low`` on, past which the commit of ``high`` is first, in a log."""

    log: int
    name: Name
    low: int
    high: int
    transactional: bool
    by: Mapping[str, frozenset[Attempt]] = {}  # by run, the attempts that committed it


class Of(NamedTuple):
    """A record of an application: of an output with its attempt, of an input with the commit past it."""

    application: int
    is_input: bool
    record: Identified
    told: Any


def piece_of(pieces: int, *names: object) -> int:
    """The piece of a span, an identity, a committed offset or an attempt."""
    return (text_hash("\0".join(map(str, names))) >> 32) % pieces


def pieces_of(pieces: int, place: Place, low: int, high: int) -> Iterable[int]:
    """The pieces of the spans that have an offset from ``low`` to ``high - 1``; logs may start at high offsets."""
    spans = range(max(low, 0) >> SPAN_BITS, (high - 1 >> SPAN_BITS) + 1)
    return range(pieces) if len(spans) > pieces else {piece_of(pieces, place, span) for span in spans}


def gathered(items: Iterable[Item]) -> Iterator[Row]:
    """Rows of several items each, from items with the kind and the key of their row."""
    rest = iter(items)
    while some := list(islice(rest, ITEMS_AT_ONCE)):
        rows: dict[tuple[int, int], list[Any]] = defaultdict(list)
        for kind, key, item in some:
            rows[kind, key].append(item)
        for (kind, key), own in rows.items():
            yield Row(kind, key, own, ITEM_BYTES * len(own))


def positions(rows: Rows, *, ordered: bool) -> Iterator[When]:
    """The positions of the events of some rows, in the order of their run."""
    order = rows["order"] if ordered else np.zeros(len(rows), np.int64)
    own = np.lexsort((rows["at"], order))
    yield from zip(order[own].tolist(), rows["at"][own].tolist(), strict=True)


# --- declarations and requests ----------------------------------------------------------------------------------------


def read_declarations(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows]],
    *,
    files: Sequence[Path],
    ordered: Mapping[str, bool],
    pieces: int,
) -> Iterator[Row]:
    """Read declarations: the identities of declared records, and the events by which declarations are checked.

    These are all but the records, and of each chunk of records those that a check may refuse or that show that there
    are any: the first of each group, the last complete one, and the first one that lacks something.
    """
    for run, rows in values:
        heads: dict[object, tuple[When, Event]] = {}

        def items(run: str, rows: Rows, heads: dict[object, tuple[When, Event]]) -> Iterator[Item]:
            lines = lines_of(files, rows["at"])
            for when in positions(rows, ordered=ordered[run]):
                event = event_of(lines[when[1]])
                place = place_of(event)
                if event.action != RECORD:
                    heads[when] = when, event
                    continue
                wrong = bool(wrong_in(event))
                heads.setdefault((event.group, wrong), (when, event))
                if wrong or event.group is None or place is None or event.offset is None:
                    continue
                heads[event.group] = when, event
                identity, which = event.detail["identity"], str(event.detail.get("output", ""))
                text = Text((run, event.group), place, event.offset, identity, which, when)
                yield TEXTS, piece_of(pieces, place, event.offset >> SPAN_BITS), text

        yield from gathered(items(run, rows, heads))
        yield Row(HEADS, 0, (run, len(rows), list(heads.values())))


def seek_attempts(
    bucket: int, values: Iterable[tuple[str, Rows]], *, names: Mapping[str, Collection[str]], starts: Ints
) -> Iterator[Row]:
    """Seek the requests of those clients that write the outputs of declared applications or commit their offsets.

    Args:
        bucket: the bucket of the clients.
        values: their requests.
        names: by run with declarations, the outputs and the groups.
        starts: the ranges of the histories.
    """
    by_run: dict[str, list[Rows]] = defaultdict(list)
    for run, rows in values:
        if run in names:
            by_run[run].append(rows)
    for run, parts in by_run.items():
        rows = np.concatenate(parts)
        hashed = np.unique(np.array([text_hash(name) for name in names[run]], np.uint64))
        touching = np.unique(rows["client"][is_in(rows["name"], hashed)])
        rows = rows[is_in(rows["client"], touching) & ((rows["name"] != 0) | (rows["use"] & ENDED != 0))]
        yield Row(ATTEMPTED, bucket, (run, rows), rows.nbytes)
        yield from sought(ATTEMPTED, (run,), bucket, rows["at"], starts)


def take_requests(
    bucket: int,  # noqa: ARG001
    values: Iterable[tuple[str, Rows | Shown]],
    *,
    ordered: Mapping[str, bool],
    ends: Mapping[Place, int],
    pieces: int,
    names: Mapping[str, Collection[str]],
) -> Iterator[Row]:
    """Take the requests of some clients in order: batches by span, committed offsets, transactions begun or aborted.

    Args:
        bucket: the bucket of the clients.
        values: by run, the rows of :func:`seek_attempts`, and their events.
        ordered: the runs with declarations, and whether their events have an order.
        ends: one past the last offset of each partition; what a request says of later ones has no use.
        pieces: the number of pieces.
        names: by run with declarations, the outputs and the groups.
    """
    rows: dict[str, Rows] = {}
    lines: dict[str, dict[int, Line]] = defaultdict(dict)
    for run, value in values:
        if isinstance(value, Shown):
            lines[run].update(zip(value.places.tolist(), value.lines, strict=True))
        else:
            rows[run] = value
    for run, asked in rows.items():
        clients, since = Clients(), dict[str, When]()

        def items(
            run: str, asked: Rows, clients: Clients, since: dict[str, When], own: Collection[str]
        ) -> Iterator[Item]:
            for when in positions(asked, ordered=ordered[run]):
                event = event_of(lines[run][when[1]], ATTEMPTS)
                name = event.transactional_id
                began = name in clients.begun
                answer = clients.take(event)
                if name is not None and not began and name in clients.begun:
                    since[name] = when
                if answer is None or (answer.place[0] if answer.group is None else answer.group) not in own:
                    continue
                place, attempt = answer.place, answer.attempt
                if answer.group is not None:
                    by = CommittedBy(run, (answer.group, place), answer.first, attempt)
                    yield COMMITTED_BY, piece_of(pieces, by.name, by.offset), by
                    continue
                batch = Batch(run, place, answer.first, answer.last, when, attempt)
                for piece in pieces_of(pieces, place, answer.first, min(answer.last + 1, ends.get(place, 0))):
                    yield BATCHES, piece, batch

        yield from gathered(items(run, asked, clients, since, names[run]))
        begun = [(since[name], name, each) for name, each in clients.begun.items()]
        yield Row(BEGUN, 0, (run, begun, clients.aborted))


# --- logs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeclaredLogs:
    """The declared applications, for the scan of the logs: it gives the records of their topics as rows.

    Attributes:
        applications: the applications.
        pieces: the number of pieces.
    """

    applications: Sequence[Application] = ()
    pieces: int = 1

    def topics(self, topic: str) -> list[Application]:
        """The applications that have a topic."""
        return [each for each in self.applications if topic in each.declared.inputs | each.declared.outputs]

    @property
    def groups(self) -> set[str]:
        """Their groups."""
        return {each.declared.group for each in self.applications}

    def texts(self, number: int, place: Place, records: Iterable[tuple[int, bytes | None]]) -> Iterator[Row]:
        """The identities that are in the values of some records of a log, by span."""
        own = [each for each in self.topics(place[0]) if not each.declared.identities]
        return gathered(
            (TEXTS, piece_of(self.pieces, place, offset >> SPAN_BITS), Text(each.owner, number, offset, *known))
            for offset, value in (records if own else ())
            for each in own
            if (known := each.declared.identity((place, offset), value)) is not None
        )

    def states(self, place: Place, rows: Rows) -> Iterator[Row]:
        """The records of a log of a declared application, by span."""
        if not self.topics(place[0]):
            return
        spans = rows["offset"] >> SPAN_BITS
        for span in np.unique(spans).tolist():
            own = rows[spans == span]
            yield Row(STATES, piece_of(self.pieces, place, span), own, own.nbytes)

    def rises(self, log: int, name: Name, offsets: Sequence[int], transactional: Sequence[bool]) -> Iterator[Item]:
        """The commits of a group and partition that are past offsets first."""
        low = 0
        for offset, is_transactional in zip(offsets, transactional, strict=True):
            if offset > low:
                yield RISES, piece_of(self.pieces, name, offset), Rise(log, name, low, offset, is_transactional)
                low = offset


class AppFacts(NamedTuple):
    """The facts of a declared application that need all logs and requests.

    Attributes:
        logs: what the logs of its topics lack.
        covered: whether all logs reach beyond the end of its run.
        unknown: partitions of inputs of which the committed offsets are not known.
        waiting: its transactions without an end, or aborted last, in words.
    """

    logs: LogFacts
    covered: bool
    unknown: frozenset[Name]
    waiting: str


def join_commits_asked(
    piece: int,  # noqa: ARG001
    values: Iterable[Sequence[Any]],
    *,
    counts: Collection[int],
    ends: Mapping[Place, int],
    logs: DeclaredLogs,
) -> Iterator[Row]:
    """Join committed offsets with the attempts that asked for them: the commits past offsets, by span.

    Args:
        piece: the piece of the committed offsets.
        values: commits and attempts.
        counts: the logs of ``__consumer_offsets`` that count.
        ends: one past the last offset of each partition; past later offsets no input is.
        logs: the applications.
    """
    by: dict[tuple[Name, int], dict[str, set[Attempt]]] = defaultdict(lambda: defaultdict(set))
    rises: list[Rise] = []
    for items in values:
        for item in items:
            if isinstance(item, Rise):
                rises += [item] if item.log in counts else []
            else:
                by[item.name, item.offset][item.run].add(item.attempt)

    def past() -> Iterator[Item]:
        for rise in rises:
            asked = {run: frozenset(own) for run, own in by[rise.name, rise.high].items()}
            place = rise.name[1]
            for each in pieces_of(logs.pieces, place, rise.low, min(rise.high, ends.get(place, 0))):
                yield PASTS, each, rise._replace(by=asked)

    yield from gathered(past())


# --- records ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Span:
    """The rows of some spans."""

    states: list[Rows] = field(default_factory=list)
    texts: dict[tuple[Owner, int | Place], dict[int, Text]] = field(default_factory=lambda: defaultdict(dict))
    batches: dict[str, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    rises: dict[Name, list[Rise]] = field(default_factory=lambda: defaultdict(list))

    def take(self, item: Any) -> None:
        """Take an item; of two declarations of a record the later counts."""
        if isinstance(item, Text):
            own = self.texts[item.owner, item.where]
            if item.offset not in own or own[item.offset].when <= item.when:
                own[item.offset] = item
        elif isinstance(item, Batch):
            self.batches[item.run].append(item)
        else:
            self.rises[item.name].append(item)

    def requests(self, run: str) -> Requests:
        """The batches of a run."""
        requests = Requests()
        for batch in sorted(self.batches[run], key=lambda batch: (batch.first, batch.when)):
            requests.batches[batch.place].append((batch.first, batch.last, batch.attempt))
        return requests


def identify(
    piece: int,  # noqa: ARG001
    values: Iterable[Any],
    *,
    logs: DeclaredLogs,
    places: Mapping[int, Place],
) -> Iterator[Row]:
    """Join the records of some spans with their identities, batches and commits; give them by identity.

    Args:
        piece: the piece of the spans.
        values: their rows.
        logs: the applications.
        places: by number of a log that is the longest of its partition, this partition.
    """
    span = _Span()
    for value in values:
        if isinstance(value, np.ndarray):
            span.states.append(value)
        else:
            for item in value:
                span.take(item)
    states = np.concatenate(span.states) if span.states else None

    def items() -> Iterator[Item]:
        if states is None:
            return
        for number, application in enumerate(logs.applications):
            declared, requests = application.declared, span.requests(application.run)
            for log in np.unique(states["log"]).tolist():
                place = places.get(log, ("", -1))
                texts = span.texts.get((application.owner, place if declared.identities else log), {})
                if declared.identities:
                    texts = {offset: text for offset, text in texts.items() if text.when >= application.since}
                rises = sorted(span.rises.get((declared.group, place), ()), key=lambda rise: rise.low)
                own = states[states["log"] == log] if texts else states[:0]
                for offset, state in zip(own["offset"].tolist(), own["state"].tolist(), strict=True):
                    text = texts.get(offset)
                    if text is None:
                        continue
                    marked, at = (bool(VISIBLE[state]), state == COMMITTED, state == ABORTED), (place, offset)
                    record = Identified(at, text.identity, text.which, *marked)
                    to = IDENTIFIED, piece_of(logs.pieces, number, text.identity)
                    if place[0] in declared.inputs:
                        yield *to, Of(number, True, record, _past(rises, offset, application.run))
                    if place[0] in declared.outputs:
                        yield *to, Of(number, False, record, requests.attempt(at))

    yield from gathered(items())


def _past(rises: Sequence[Rise], offset: int, run: str) -> tuple[Past, frozenset[Attempt]] | None:
    """The first commit past an offset, and the attempts of a run that asked for it."""
    number = bisect_right(rises, offset, key=lambda rise: rise.low) - 1
    if number < 0 or offset >= rises[number].high:
        return None
    rise = rises[number]
    return Past(rise.high, rise.transactional), rise.by.get(run, frozenset())


class _Commits(Offsets):
    """The commits past some inputs; unknown for the partitions whose commits are."""

    def __init__(self, past: Mapping[tuple[Name, int], Past], unknown: frozenset[Name]) -> None:
        super().__init__([])
        self._past, self._unknown = past, unknown

    def covering(self, name: Name, offset: int) -> Past | str | None:
        """As :meth:`Offsets.covering`."""
        return UNKNOWN if name in self._unknown else self._past.get((name, offset))


def judge_piece(
    piece: int,
    values: Iterable[Sequence[Of]],
    *,
    logs: DeclaredLogs,
    facts: Sequence[AppFacts],
) -> Iterator[Row]:
    """Judge the records that have some identities by the readable rules."""
    by_application: dict[int, list[Of]] = defaultdict(list)
    for items in values:
        for item in items:
            by_application[item.application].append(item)
    alone: list[Item] = []
    found = []
    for number, own in sorted(by_application.items()):
        (_, run, declared, _), fact = logs.applications[number], facts[number]
        own.sort(key=lambda each: each.record.at)
        requests, past = Requests(), dict[tuple[Name, int], Past]()
        for _, is_input, record, told in own:
            place, offset = record.at
            if not is_input:
                requests.batches[place].append((offset, offset, told))
            elif told is not None:
                name = declared.group, place
                past[name, offset] = told[0]
                requests.commits[name, told[0].offset or 0] |= told[1]
        inputs, outputs = ([each.record for each in own if each.is_input == wanted] for wanted in (True, False))
        firsts = ([(record.at, record.identity) for record in some] for some in (inputs, outputs))
        yield Row(SEEN, 0, (number, Identities.of(*firsts)))
        figures: dict[str, Figures] = {rule: {"checked": 0, "unknown": 0} for rule in HISTORY_RULES}
        offsets = _Commits(past, fact.unknown)
        judged = judge_identities(
            *(run, declared, inputs, outputs, fact.logs, requests, offsets, figures),
            covered=fact.covered,
            waiting=fact.waiting,
        )
        for each in judged:
            found += [] if each.transactions else [each.finding]
            alone += [
                (CANDIDATES, piece_of(logs.pieces, number, attempt), (number, attempt, each))
                for attempt in each.transactions
            ]
        yield Row(FIGURES_OF, 0, figures)
    yield from gathered(alone)
    yield from found_rows(found, piece)


Alone = tuple[int, Attempt, Candidate]  # an application, one of the transactions of a candidate, the candidate


def report_once(piece: int, values: Iterable[Sequence[Alone]]) -> Iterator[Row]:
    """Report each transaction once, with its first input. Candidates with several transactions are judged together."""
    by_transaction: dict[tuple[int, Attempt], list[Candidate]] = defaultdict(list)
    for items in values:
        for number, attempt, candidate in items:
            by_transaction[number, attempt].append(candidate)
    found, together = [], list[Item]()
    for (number, attempt), own in by_transaction.items():
        if all(len(each.transactions) == 1 for each in own):
            found.append(min(own, key=lambda each: each.at).finding)
        else:
            together += [(TOGETHER, number, each) for each in own if attempt == min(each.transactions)]
    yield from gathered(together)
    yield from found_rows(found, piece)


def report_together(number: int, values: Iterable[Sequence[Candidate]]) -> Iterator[Row]:
    """Report the candidates of an application whose transactions overlap, in order of their inputs."""
    own = sorted((each for items in values for each in items), key=lambda each: each.at)
    yield from found_rows(reported(own), number)
