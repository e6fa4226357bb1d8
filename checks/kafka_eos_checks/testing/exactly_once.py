"""Judge whether an application processed every input once, from its broker's logs and the requests that it saw.

The application reports nothing itself. The requests that the broker saw show what it did: which transaction a batch or
an offset was sent in. The logs show the outcome. An output belongs to the input with the same identity, which is the
record's value unless the caller gives another.

The question becomes a part of the history: the application that it is about, and the identities of the records, which
the caller's function gave. So an audit of the folder later judges the same, by the same rules
(:mod:`kafka_eos_checks.audit.rules.applications`).
"""

import shlex
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kafka_eos.formats.record_batch import Header
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.histories.history import Event, read_history
from kafka_eos.server.cluster import INTERNAL_TOPICS, Cluster
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.cause import seen_in
from kafka_eos_checks.audit.explain import NothingToDraw, drawn, explained, page
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.inputs import RECORDED
from kafka_eos_checks.audit.rules.applications import APART, APPLICATION_RULES, INPUT_RULES, OUTPUT_OF_NOTHING
from kafka_eos_checks.audit.rules.declared import (
    APPLICATION,
    INPUT,
    OUTPUT,
    RECORD,
    TOPIC,
    Known,
    WrongQuestion,
    check_names,
    text_of,
)
from kafka_eos_checks.audit.rules.rule_book import Place, rule_of
from kafka_eos_checks.audit.segments.contents import read_contents
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.testing.history import HistoryFile
from kafka_eos_checks.testing.observations import Met, Observed, Problem, shared_ids

HISTORY, DATA = RECORDED, "data"
SHOWN_FINDINGS = 5  # of a rule
SHOWN_BYTES = 60  # of a key or a value


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record of a log.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset.
        key: None is null.
        value: None is null.
        headers: in the order in which they were written.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


Identity = Callable[[StoredRecord], Hashable]
OutputsPerInput = int | Callable[[StoredRecord], int]


def by_value(record: StoredRecord) -> Hashable:
    """An output has the value of its input."""
    return record.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """An application's inputs and outputs.

    Attributes:
        inputs: the topics that it reads.
        outputs: the topics that it writes; an input has an output in each of them.
        group: its consumer group.
        identity: the common identity of an input and its output. A tuple of two also says which output it is, if an
            input has several in a topic. None: the record is not looked at.
        everything: every input has to be processed, not only those before the group's offset.
        outputs_per_input: the number of outputs that an input has in each topic of outputs; None: at least one.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    group: str
    identity: Identity
    everything: bool
    outputs_per_input: OutputsPerInput | None


def known_of(cluster: Cluster) -> Known:
    """Ask a cluster for the topics and groups that there are now."""
    groups = {
        name: frozenset(partition.rpartition("-")[0] for partition in group.machine.committed)
        for name, group in cluster.groups.known.items()
    }
    return Known(frozenset(cluster.topics) - frozenset(INTERNAL_TOPICS), groups)


# --- identities ------------------------------------------------------------------------------------------------------


class AmbiguousRecords(WrongQuestion):
    """Two inputs that nobody can tell apart; says which, and the remedy."""


def records_of(log: PartitionLog) -> Iterator[StoredRecord]:
    """The data records of a log."""
    for segment in log.segments:
        for region in read_segment(Path(log.folder, segment)):
            if not isinstance(region, StoredBatch) or region.batch.is_control:
                continue
            for record in region.batch.records():
                yield StoredRecord(
                    topic=log.topic,
                    partition=log.partition,
                    offset=region.batch.offset(record),
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )


@dataclass(slots=True)
class Identified:
    """The identities of an application's records.

    Attributes:
        inputs: by identity, the input that has it.
        hidden: the identities of inputs that are aborted or not yet committed.
        outputs: by identity, the outputs that have it, each with the name that tells it from others.
        appeared: whether an output with an identity is visible to readers of committed data.
        blank: by role, the records without an identity, of the inputs those that are visible.
        rows: what the function gave, as columns of events.
    """

    inputs: dict[Hashable, StoredRecord] = field(default_factory=dict)
    hidden: set[Hashable] = field(default_factory=set)
    outputs: dict[Hashable, list[tuple[Hashable, StoredRecord]]] = field(default_factory=lambda: defaultdict(list))
    appeared: bool = False
    blank: dict[str, list[StoredRecord]] = field(default_factory=lambda: defaultdict(list))
    rows: list[dict[str, Any]] = field(default_factory=list)
    _texts: dict[Hashable, str] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    @property
    def has_inputs(self) -> bool:
        """Whether an input is visible, with an identity or without."""
        return bool(self.inputs or self.blank[INPUT])

    def text(self, identity: Hashable) -> str:
        """An identity as text; different ones have different texts."""
        if identity not in self._texts:
            text = text_of(identity) if isinstance(identity, bytes) else str(identity)
            while text in self._taken:
                text = f"{text} ({type(identity).__name__})"
            self._texts[identity] = text
            self._taken.add(text)
        return self._texts[identity]


def identify(logs: Iterable[PartitionLog], application: Application) -> Identified:
    """Ask for the identity of every record of an application's topics.

    Raises:
        AmbiguousRecords: two inputs have the same identity.
        WrongQuestion: the identities join no output with an input.
    """
    found = Identified()
    for log in logs:
        if log.topic in application.inputs:
            _identify_inputs(log, application, found)
        elif log.topic in application.outputs:
            hidden = read_contents(log).hidden
            for record in records_of(log):
                identity, which = _identity(record, application)
                if identity is None:
                    found.blank[OUTPUT].append(record)
                else:
                    found.outputs[identity].append((which, record))
                    found.appeared |= record.offset not in hidden
                    found.rows.append(_row(application, record, found.text(identity), which))
    if found.has_inputs:
        _check_identities(application, found)
    if application.identity is by_value:
        found.rows.clear()  # whoever judges sees the values
    return found


def _identify_inputs(log: PartitionLog, application: Application, found: Identified) -> None:
    hidden = read_contents(log).hidden
    for record in records_of(log):
        identity, which = _identity(record, application)
        if identity is None:
            found.blank[INPUT] += [] if record.offset in hidden else [record]
            continue
        if record.offset in hidden:
            found.hidden.add(identity)
            found.rows.append(_row(application, record, found.text(identity), which))
            continue
        if identity in found.inputs:
            raise AmbiguousRecords(
                f"the inputs at {found.inputs[identity]} and at {record} have the same identity {identity!r}; "
                "write others, or give identity="
            )
        found.inputs[identity] = record
        found.rows.append(_row(application, record, found.text(identity), which))


def _check_identities(application: Application, found: Identified) -> None:
    """Refuse identities that join nothing: every input would look as if it had not been processed.

    Without a function, records that have no value are refused too: nobody has said that they do not matter.
    """
    by_hand = application.identity is not by_value
    for role, identified in ((INPUT, found.inputs), (OUTPUT, found.outputs)):
        some = found.blank[role]
        if some and not identified:
            what = "identity gives None for" if by_hand else "there is no value in"
            raise WrongQuestion(f"{what} every {role}, for example {some[0]}: none is looked at")
        if some and not by_hand:
            all_of_them = len(some) + (len(found.inputs) if role == INPUT else sum(map(len, found.outputs.values())))
            raise WrongQuestion(
                f"{len(some)} of {all_of_them} {role}s have a null value and so no identity, for example {some[0]}: "
                "they would not be looked at; give identity=, a function that finds what an input and its outputs have "
                "in common elsewhere (key, headers), and returns None for records that do not matter"
            )
    if found.outputs and not (found.inputs.keys() | found.hidden) & found.outputs.keys():
        one = next(iter(found.inputs.items()))
        other, [(_, written), *_] = next(iter(found.outputs.items()))
        names = "the same identity as" if by_hand else "the same value as"
        raise WrongQuestion(
            f"no output has {names} an input: {one[1]} has {one[0]!r}, and {written} has {other!r}; "
            "give identity=, a function of a record that returns the same for an input and its outputs"
        )


def _row(application: Application, record: StoredRecord, identity: str, which: Hashable) -> dict[str, Any]:
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    detail = {"identity": identity} | ({"output": str(which)} if which else {})
    return {"action": RECORD, "group": application.group, **place, "detail": detail}


def _identity(record: StoredRecord, application: Application) -> tuple[Hashable, Hashable]:
    try:
        found = application.identity(record)
        hash(found)
    except Exception as error:  # noqa: BLE001 - whatever the caller's function raises
        cut = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)  # only the caller's own lines
        raise WrongQuestion(
            f"identity of {record} (key {_short(record.key)}, value {_short(record.value)}): "
            f"{type(error).__name__}: {error}"
        ) from cut
    match found:
        case (identity, which):
            return identity, which
        case _:
            return found, 0


def _short(content: bytes | None) -> str:
    """A key or value for a message."""
    return repr(content) if content is None or len(content) <= SHOWN_BYTES else f"{content[:SHOWN_BYTES]!r}…"


# --- a report --------------------------------------------------------------------------------------------------------


def declaration(application: Application, identified: Identified) -> Iterator[dict[str, Any]]:
    """The question as columns of events, with which anybody can ask it again."""
    group = {"group": application.group}
    yield {"action": APPLICATION, **group, "detail": {"everything": application.everything, "checked": True}}
    for role, topics in ((INPUT, application.inputs), (OUTPUT, application.outputs)):
        for topic in topics:
            yield {"action": TOPIC, **group, "topic": topic, "detail": {"role": role}}
    yield from identified.rows


class Examined(NamedTuple):
    """The outcome of an examination.

    Attributes:
        failure: the findings of the audit, and where it has drawn the requests that led up to them; "" for none.
        warnings: what is dangerous although no input may have been lost or processed twice.
        met: the situations that the application met; None if no application was judged.
    """

    failure: str
    warnings: tuple[str, ...] = ()
    met: Met | None = None


def examine(folder: Path, cluster: Cluster, application: Application | None, history: HistoryFile) -> Examined:
    """Judge what was written.

    Args:
        folder: the folder with the history and the log directory of a broker; diagrams are written there.
        cluster: their cluster.
        application: the application to judge; None: only the rules over logs and histories.
        history: the history, which gets the question too.

    Raises:
        WrongQuestion: the question about the application has no answer.
    """
    known, identified = known_of(cluster), None
    if application is not None:
        remedy = "give the topics that it reads as inputs="
        check_names(application.inputs, application.outputs, application.group, known, remedy)
        identified = identify(find_logs(folder / DATA), application)
        if not identified.has_inputs:
            return Examined(f"no input in {', '.join(application.inputs)}: nothing was tested")
        if not (application.everything or identified.appeared or _has_moved(cluster, application)):
            what = "no committed output" if identified.outputs else "no output"
            where = ", ".join(application.outputs)
            return Examined(f"{what} in {where}, and no offset committed past an input: nothing was tested")
        history.declare(list(declaration(application, identified)))
    events = list(read_history(folder / HISTORY))
    if application is None and not any("request" in event.detail for event in events) and not _records(folder):
        return Examined("no client has sent anything, and no topic has a record: nothing was tested")
    result = audit.run([folder if events else folder / DATA])  # a folder with a history is of one moment
    if application is None or identified is None:
        warnings = tuple(shared_ids(events))
        return Examined(_failure(folder, result.findings, events) if result.findings else "", warnings)
    observed = Observed.of(cluster, application, identified, events, folder / DATA, history.uncommitted)
    problems = list(observed.problems(result.findings))
    warnings = (*observed.warnings(), *_outputs_not_judged(result))
    if not (result.findings or problems):
        if not any(verdict.figures["checked"] for verdict in result.verdicts if verdict.name in INPUT_RULES):
            where = ", ".join(application.inputs)
            return Examined(f"no input in {where} is committed and not deleted: nothing was tested")
        return Examined(_not_judged(result), warnings, observed.met())
    note = [] if known.groups else [f"no group has joined or committed an offset; is {application.group!r} its name?"]
    return Examined(_failure(folder, result.findings, events, observed, problems, note), warnings)


@dataclass(slots=True)
class Progress:
    """The progress of a group through its inputs.

    Attributes:
        data: the log directory.
        inputs: the topics.
        group: the group.
    """

    data: Path
    inputs: Sequence[str]
    group: str
    _ends: dict[tuple[str, int, int], int] = field(default_factory=dict)  # by partition, and its log's start and end

    def is_past_all(self, cluster: Cluster) -> bool:
        """Whether the group's offsets are past every committed record of the inputs.

        Raises:
            WrongQuestion: there is no such topic.
        """
        check_names(self.inputs, (), self.group, Known(known_of(cluster).topics, {}), "")  # the group may come later
        group = cluster.groups.known.get(self.group)
        leaders = [leader for topic in self.inputs for leader in cluster.topics[topic].partitions]
        for leader in leaders:
            end = leader.name, leader.log_start_offset, leader.log_end_offset
            if end not in self._ends:
                place = leader.topic, leader.partition
                [log] = [each for each in find_logs(self.data) if (each.topic, each.partition) == place]
                hidden = read_contents(log).hidden
                visible = [record.offset for record in records_of(log) if record.offset not in hidden]
                self._ends[end] = max((each + 1 for each in visible if each >= leader.log_start_offset), default=0)
            committed = group.committed(leader.name) if group is not None else None
            if self._ends[end] > (0 if committed is None else committed.offset):
                return False
        return True


def _has_moved(cluster: Cluster, application: Application) -> bool:
    """Whether the group has committed an offset above the start of an input."""
    group = cluster.groups.known.get(application.group)
    leaders = [leader for topic in application.inputs for leader in cluster.topics[topic].partitions]
    known = [(leader, group.committed(leader.name)) for leader in leaders] if group is not None else []
    return any(offset is not None and offset.offset > leader.log_start_offset for leader, offset in known)


def _records(folder: Path) -> bool:
    """Whether a log has any record."""
    return any(True for log in find_logs(folder / DATA) for _ in records_of(log))


def _failure(
    folder: Path,
    findings: Sequence[Finding],
    events: list[Event],
    observed: Observed | None = None,
    problems: Sequence[Problem] = (),
    notes: Sequence[str] = (),
) -> str:
    """The message of a failure; it begins with the names of the rules, because pytest's summary has its first line."""
    names = dict.fromkeys([*(each.name for each in problems), *(each.rule for _, each in _in_order(findings))])
    lines = [f"{', '.join(names)} (not exactly once: {len(findings) + len(problems)} finding(s))"]
    lines += _told(problems)
    lines += [*_by_rule(folder, findings, events, observed), *(f"note:     {note}" for note in notes)]
    lines += _diagram(folder, findings, events)
    lines += [f"audit:    kafka-eos audit {folder}"] if findings else []
    return "\n".join([*lines, f"requests: {folder / HISTORY}", f"logs:     {folder / DATA}"])


def _told(problems: Sequence[Problem]) -> Iterator[str]:
    """The problems in lines, those of the same name and meaning with one remedy."""
    for name, means in dict.fromkeys((each.name, each.means) for each in problems):
        own = [each for each in problems if (each.name, each.means) == (name, means)]
        yield from (f"  {name}: {each.evidence}" for each in own[:SHOWN_FINDINGS])
        if len(own) > SHOWN_FINDINGS:
            yield f"  … and {len(own) - SHOWN_FINDINGS} more"
        yield f"    means: {means}"
        yield f"    next:  {own[0].step}"


def _not_judged(result: audit.Audit) -> str:
    """Name the rules over inputs that could not be judged; "" if all could."""
    own = [verdict for verdict in result.verdicts if verdict.name in INPUT_RULES and verdict.figures["unknown"]]
    said = ", ".join(f"{verdict.name!r} of {verdict.figures['unknown']} input(s)" for verdict in own)
    return f"could not be judged: {said}" if own else ""


def _outputs_not_judged(result: audit.Audit) -> Iterator[str]:
    """Name the number of outputs of which it is not known whether an input has their identity."""
    for verdict in result.verdicts:
        if verdict.name == OUTPUT_OF_NOTHING and verdict.figures["checked"] and verdict.figures["unknown"]:
            yield (
                f"{verdict.figures['unknown']} output(s) could not be judged: their inputs are in a transaction "
                "that is open, or the logs of the inputs no longer have them; end transactions that write inputs"
            )


def _diagram(folder: Path, findings: Sequence[Finding], events: list[Event]) -> list[str]:
    """Draw the first finding that the history tells of, and say where."""
    again = f"kafka-eos explain {shlex.quote(str(folder))}"
    for number, finding in _in_order(findings):
        try:
            shown = explained(number, findings, {finding.run: events}, again)
        except NothingToDraw:
            continue
        svg, html = folder / "exactly-once.svg", folder / "exactly-once.html"
        svg.write_text(drawn(shown.moment) + "\n", encoding="utf-8")
        html.write_text(page("not exactly once", shown), encoding="utf-8")
        return [f"diagram:  {html} and {svg.name}", f"again:    {again} --finding {number}"]
    return []


def _in_order(findings: Sequence[Finding]) -> list[tuple[int, Finding]]:
    """The findings with their numbers in the audit; those about the application come first, of these what is apart."""
    numbered = list(enumerate(findings, start=1))
    return sorted(numbered, key=lambda pair: (pair[1].rule not in APPLICATION_RULES, pair[1].rule not in APART))


def _by_rule(
    folder: Path, findings: Sequence[Finding], events: list[Event], observed: Observed | None = None
) -> Iterator[str]:
    """The findings of each rule and meaning, what the requests show of them, and what to do next."""
    own: dict[tuple[str, str], list[tuple[int, Finding]]] = defaultdict(list)
    for number, finding in _in_order(findings):
        own[finding.rule, rule_of(finding.rule).about(finding).means].append((number, finding))
    for (rule, means), some in own.items():
        yield from (f"  {finding.in_words()}" for _, finding in some[:SHOWN_FINDINGS])
        if len(some) > SHOWN_FINDINGS:
            yield f"  … and {len(some) - SHOWN_FINDINGS} more"
        book, (number, first) = rule_of(rule), some[0]
        yield f"    means: {means}"
        for hint in observed.hints(rule, [finding for _, finding in some]) if observed is not None else ():
            yield f"    here:  {hint}"
        is_drawn = not seen_in([first], {first.run: events})[0]  # there is nothing to draw
        if step := book.next_in_test(first, Place(paths=shlex.quote(str(folder)), number=number), drawn=is_drawn):
            yield f"    next:  {step}"
