"""Did an application process every input once? Its broker's logs, and the requests that it saw, are joined and judged.

The application tells nothing itself. What it did is in the requests that the broker saw: which transaction a batch or
an offset was sent in. What became of it is in the logs. An output belongs to the input with the same identity, which is
the record's value unless the caller knows better. The rules are those of the replay over applications, and two more.

``input not processed``
    No output of an input appears, and no committed offset is behind it.

``output of no input``
    An output appears, and no input has its identity.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_eos.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.history import Event, read_history
from kafka_eos.record_batch import Header
from kafka_eos.segment import StoredBatch, read_segment
from kafka_eos_checks.drawing.sequence_diagram import from_events
from kafka_eos_checks.explain import Moment, NothingToDraw, Wanted, cut_out, of_finding, page
from kafka_eos_checks.replay import audit
from kafka_eos_checks.replay.applications import (
    INPUT_RULES,
    UNKNOWN,
    Appearances,
    Attempt,
    Found,
    Input,
    Offsets,
    Output,
    Processed,
    Told,
)
from kafka_eos_checks.replay.contents import Figures, Place, Replicas, read_contents
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.offsets import Name, read_group_log
from kafka_eos_checks.replay.splits import PartitionLog, find_logs

OUTPUT_OF_NOTHING, NOT_PROCESSED = "output of no input", "input not processed"
COMMITS = frozenset({"TxnOffsetCommit", "OffsetCommit"})
SHOWN_FINDINGS = 10
_NOBODY: Attempt = ("nobody", None)


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


Identity = Callable[[StoredRecord], Hashable]


def by_value(record: StoredRecord) -> Hashable:
    """An output has the value of its input."""
    return record.value


class AmbiguousRecords(ValueError):  # noqa: N818 - named for the input
    """Two inputs that nobody can tell apart; says which, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What an application reads and writes.

    Attributes:
        inputs: the topics that it reads.
        outputs: the topics that it writes; an input has an output in each of them.
        group: its consumer group.
        identity: what an input and its output have in common. A tuple of two says of an output which one it is, where
            an input has several in a topic. None: the record is not looked at.
        everything: every input has to be processed, not only those that the group's offset is behind.
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    group: str
    identity: Identity = by_value
    everything: bool = True


@dataclass(slots=True)
class Judged:
    """What was found, and of how many inputs.

    Attributes:
        inputs: how many there are.
        unknown: how often nobody can say whether a rule is violated.
        findings: the violations.
    """

    inputs: int = 0
    unknown: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Requests:
    """What the broker saw: in which transaction something was sent.

    Attributes:
        batches: by partition and base offset.
        commits: by group, partition and offset.
    """

    batches: dict[Found, Attempt] = field(default_factory=dict)
    commits: dict[tuple[Name, int], set[Attempt]] = field(default_factory=lambda: defaultdict(set))


def read_requests(events: Sequence[Event]) -> Requests:
    """The transactions of a history, numbered for each transactional.id."""
    requests = Requests()
    numbers: dict[str, int] = defaultdict(int)
    used: set[str] = set()
    sent: dict[tuple[object, str | None, int | None], Attempt] = {}
    for event in events:
        name = event.transactional_id
        if (event.action, event.phase) in {("EndTxn", "ok"), ("InitProducerId", "ok")} and name in used:
            numbers[name] += 1
            used.discard(name)
        if event.topic is None or event.partition is None or event.action not in {"Produce", *COMMITS}:
            continue
        request = event.detail.get("request"), event.topic, event.partition
        if event.phase == "invoke":
            sent[request] = (event.process, None) if name is None else (name, numbers[name])
            used.update([name] if name is not None else ())
        elif event.phase == "ok" and event.action == "Produce" and event.offset is not None:
            requests.batches.setdefault(((event.topic, event.partition), event.offset), sent[request])
        elif event.phase == "ok":
            place = (event.group or "", (event.topic, event.partition))
            requests.commits[place, int(event.detail["committed_offset"])].add(sent[request])
    return requests


def records_of(log: PartitionLog) -> Iterator[tuple[StoredRecord, int]]:
    """The data records of a log, each with the base offset of its batch."""
    for segment in log.segments:
        for region in read_segment(Path(log.folder, segment)):
            if not isinstance(region, StoredBatch) or region.batch.is_control:
                continue
            for record in region.batch.records():
                stored = StoredRecord(
                    topic=log.topic,
                    partition=log.partition,
                    offset=region.batch.offset(record),
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
                yield stored, region.batch.base_offset


class Joined(Appearances):
    """Where outputs appear, by their identity."""

    def __init__(self, replicas: Replicas, found: dict[Output, list[Found]]) -> None:
        super().__init__(replicas)
        self._found = found

    def of(self, output: Output) -> list[Found]:
        """The places at which an output appears."""
        return self._found.get(output, [])


def judge(logs: Sequence[PartitionLog], events: Sequence[Event], application: Application) -> Judged:
    """Join inputs, outputs and offsets.

    Args:
        logs: of one broker.
        events: what it saw.
        application: what is to be judged.

    Raises:
        AmbiguousRecords: two inputs have the same identity.
    """
    requests = read_requests(events)
    own = [log for log in logs if log.topic in {*application.inputs, *application.outputs}]
    replicas = {(log.topic, log.partition): [(log, read_contents(log))] for log in own}
    told, inputs = _inputs(application, replicas)
    found: dict[Output, list[Found]] = defaultdict(list)
    judged = Judged(len(inputs))
    run = events[0].run if events else ""
    for log, contents in (
        pair for pairs in replicas.values() for pair in pairs if pair[0].topic in application.outputs
    ):
        for record, base_offset in records_of(log):
            identity, which = _identity(record, application)
            place = (record.topic, record.partition)
            if identity is None:
                continue
            if identity not in inputs:
                if record.offset not in contents.hidden:
                    said = f"{record.value!r} appears, and there is no input of its identity {identity!r}"
                    judged.findings.append(_finding(OUTPUT_OF_NOTHING, place, record.offset, run, said))
                continue
            output = record.topic, _text(identity, which)
            name, offset = inputs[identity]
            attempt = requests.batches.get((place, base_offset), _NOBODY)
            told.inputs[name][offset].outputs[output].setdefault(output, []).append(attempt)
            told.owners[output].add((name, offset))
            if record.offset not in contents.hidden:
                found[output].append((place, record.offset))
    told.commits = requests.commits
    offsets = Offsets([read_group_log(log) for log in logs if log.topic == OFFSETS_TOPIC and any(log.segments)])
    _judge(told, Joined(replicas, found), offsets, run, application, judged)
    return judged


def _inputs(application: Application, replicas: Replicas) -> tuple[Told, dict[Hashable, tuple[Name, int]]]:
    """The inputs, also by their identity."""
    told = Told()
    inputs: dict[Hashable, tuple[Name, int]] = {}
    for place, pairs in replicas.items():
        if place[0] not in application.inputs:
            continue
        for log, contents in pairs:
            for record, _ in records_of(log):
                identity, _ = _identity(record, application)
                if identity is None or record.offset in contents.hidden:
                    continue
                if identity in inputs:
                    (_, (topic, partition)), offset = inputs[identity]
                    raise AmbiguousRecords(
                        f"the inputs at {topic}-{partition} offset {offset} and at {record.topic}-{record.partition} "
                        f"offset {record.offset} have the same identity {identity!r}; write others, or give identity="
                    )
                name = (application.group, place)
                inputs[identity] = name, record.offset
                told.inputs[name][record.offset] = Processed(given=True, has_outputs=True)
    return told, inputs


def _judge(
    told: Told, appearances: Joined, offsets: Offsets, run: str, application: Application, judged: Judged
) -> None:
    figures: dict[str, Figures] = {rule: {"checked": 0, UNKNOWN: 0} for rule in INPUT_RULES}
    alone: set[Attempt] = set()
    for name, inputs in told.inputs.items():
        for offset, processed in sorted(inputs.items()):
            one = Input(run, name, offset, processed, told)
            violations = list(one.judge(appearances, offsets, figures, alone))
            judged.findings += violations
            appears = any(appearances.of(output) for values in processed.outputs.values() for output in values)
            if application.everything and not appears and offsets.covering(name, offset) is None:
                said = f"no output of {one} appears, and no committed offset is behind it"
                judged.findings.append(_finding(NOT_PROCESSED, name[1], offset, run, said))
    judged.unknown = sum(int(each[UNKNOWN]) for each in figures.values())


def _identity(record: StoredRecord, application: Application) -> tuple[Hashable, Hashable]:
    found = application.identity(record)
    match found:
        case (identity, which):
            return identity, which
        case _:
            return found, 0


def _text(identity: Hashable, which: Hashable) -> str:
    """An output in words."""
    text = identity.decode(errors="replace") if isinstance(identity, bytes) else str(identity)
    return f"{text}/{which}" if which else text


def _finding(rule: str, place: Place, offset: int, run: str, evidence: str) -> Finding:
    return Finding(rule=rule, topic=place[0], partition=place[1], offset=offset, run=run, evidence=evidence)


def _commits_behind(finding: Finding, events: Sequence[Event], group: str | None) -> Iterator[Event]:
    """The events with which a group's offset came to be behind an input: a commit, or the end of its transaction."""
    pending: set[str] = set()
    for event in events:
        name = event.transactional_id
        if (event.action, event.phase) == ("EndTxn", "ok") and name in pending:
            pending.discard(name)
            if event.detail["committed"]:
                yield event
        here = (event.group, event.topic, event.partition) == (group, finding.topic, finding.partition)
        if event.phase != "ok" or event.action not in COMMITS or not here:
            continue
        if int(event.detail["committed_offset"]) > (finding.offset or 0):
            if name is None:
                yield event
            else:
                pending.add(name)


def moment(finding: Finding, events: Sequence[Event], group: str | None) -> Moment | None:
    """What a diagram of a finding shows: of an input how it was left behind; None if nothing can be drawn."""
    says = f"{finding.rule}: {finding.evidence}"
    behind = next(_commits_behind(finding, events, group), None)
    if behind is not None:
        name = behind.transactional_id
        return cut_out(
            events, Wanted(transactional_id=name) if name else Wanted(process=behind.process), behind.order, says
        )
    try:
        found = of_finding(finding, {finding.run: list(events)})
    except NothingToDraw:
        return None
    at = found.violation.step if found.violation is not None else 0
    name = found.events[at].transactional_id
    return cut_out(events, Wanted(transactional_id=name), found.events[at].order, says) if name else found


# --- a report --------------------------------------------------------------------------------------------------------


def examine(data: Path, history: Path, application: Application | None) -> str:
    """What an audit finds, and where it has drawn the requests that led up to it; "" for nothing.

    Args:
        data: the log directory of a broker.
        history: what it saw; diagrams are written beside it.
        application: what is to be judged; None: the rules over logs and histories only.

    Raises:
        AmbiguousRecords: two inputs have the same identity.
    """
    events = list(read_history(history))
    findings = list(audit.run([data], histories=[history] if events else []).findings)
    if application is not None:
        judged = judge(find_logs(data), events, application)
        if not judged.inputs:
            return f"no input in {', '.join(application.inputs)}: nothing was tested"
        findings = judged.findings + findings
    if not findings:
        return ""
    lines = [f"not exactly once: {len(findings)} finding(s)"]
    lines += [f"  {finding.in_words()}" for finding in findings[:SHOWN_FINDINGS]]
    if len(findings) > SHOWN_FINDINGS:
        lines.append(f"  … and {len(findings) - SHOWN_FINDINGS} more")
    group = application.group if application is not None else None
    drawn = next(filter(None, (moment(finding, events, group) for finding in findings)), None)
    if drawn is not None:
        svg, html = history.parent / "exactly-once.svg", history.parent / "exactly-once.html"
        svg.write_text(from_events(drawn.events, drawn.violation) + "\n", encoding="utf-8")
        html.write_text(page("not exactly once", drawn), encoding="utf-8")
        lines.append(f"diagram:  {html} and {svg.name}")
    return "\n".join([*lines, f"requests: {history}", f"logs:     {data}"])
