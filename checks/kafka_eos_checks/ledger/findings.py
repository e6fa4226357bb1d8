"""The findings in Apache Kafka: the evidence that shows each, and which of it is checked here.

The texts are in ``findings.toml``; evidence shows whether they are true. The kept recordings are audited each time,
which takes milliseconds. Verdicts on models, on tests of Kafka's own client and on brokers that are started come from
earlier commands.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.explain import NothingToDraw, of_finding, read_runs, story
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.drawing.sequence_diagram import from_events
from kafka_eos_checks.kit.missing import MissingClone
from kafka_eos_checks.kit.recording import EXAMPLE, kept_recording
from kafka_eos_checks.kit.verdict import Verdict

FINDINGS_FILE = Path(__file__).with_name("findings.toml")
CHECK = "finding"  # the check of verdicts on evidence other than models


class MalformedFindings(ValueError):  # noqa: N818 - named for the input
    """A file of findings that cannot be used; says file, entry and reason."""


class Shown(StrEnum):
    """The places where a finding is shown, the strongest first."""

    REAL = "on a real broker"
    CLIENT = "on Kafka's own client"
    MODEL = "only in the model of Kafka's rules"


class Harm(StrEnum):
    """The harm of a finding to an application, the gravest first."""

    WRONG_DATA = "wrong data"
    STOPS = "client or readers stop"
    NONE = "none"


class Report(StrEnum):
    """The state of a finding's report."""

    NEW = "new"
    KNOWN = "known"
    BY_DESIGN = "by design"


class State(StrEnum):
    """The share of a finding's evidence that is checked here."""

    CHECKED = "checked"
    PARTLY = "checked in part"
    OPEN = "not checked"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One thing that has to show a finding.

    Attributes:
        shown: the place where it shows the finding.
        check: its verdict's check; "" for a model, which is a model or a mutant.
        name: its verdict's name.
        words: what has to be true.
        command: the command that takes the verdict.
    """

    shown: Shown
    check: str
    name: str
    words: str
    command: str

    def is_of(self, verdict: Verdict) -> bool:
        """Whether a verdict is on this evidence."""
        return verdict.name == self.name and verdict.check in ({self.check} if self.check else {"model", "mutant"})


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFinding:
    """A finding.

    Attributes:
        id: its name.
        title: what happens, in a sentence.
        harm: the kind of harm to an application.
        consequence: the consequence for an application.
        cause: the cause in Kafka.
        report: whether it is reported.
        known: the report, or what is known around it.
        cure: what mends it, or what to do until then.
        models: models and mutants that have to violate their property; none where the spec does not have the rule.
        mended: models that have to hold.
        recording: the kept recording in which the audit finds it, "" for none.
        rule: the rule of the audit that finds it.
        scenario: the edge of ``kafka-eos conform`` whose shortest run shows it, by its id, "" for none.
        broker: the peer that the scenario is played on, by its name; without a scenario, the brokers of the test.
        version: the transaction version of that peer's clients.
        difference: the recorded difference that explains its answer.
        test: the test that brings a client, or the brokers, to it, as pytest names it, "" for none.
    """

    id: str
    title: str
    harm: Harm
    consequence: str
    cause: str
    report: Report
    known: str
    cure: str
    models: tuple[str, ...]
    mended: tuple[str, ...]
    recording: str = ""
    rule: str = ""
    scenario: str = ""
    broker: str = ""
    version: int = 0
    difference: str = ""
    test: str = ""

    @property
    def shown(self) -> Shown:
        """The strongest evidence that has to show it."""
        return min((each.shown for each in self.evidence()), key=list(Shown).index)

    @property
    def reported(self) -> str:
        """Whether others have reported it, and where."""
        report = "new: no report is known to us." if self.report is Report.NEW else f"{self.report}:"
        return f"{report} {self.known}".strip()

    @property
    def tested(self) -> str:
        """The ones that the test brings to it: ``client``, or the ``brokers`` that it starts."""
        return "brokers" if self.broker and not self.scenario else "client"

    def evidence(self) -> Iterator[Evidence]:
        """The evidence that has to show it, the strongest first."""
        check = f"kafka-eos ledger findings {self.id} --check"
        if self.recording:
            yield Evidence(
                shown=Shown.REAL,
                check=CHECK,
                name=f"{self.id}: recording",
                words=f"the audit finds '{self.rule}' in the kept recording {self.recording}",
                command=f"kafka-eos audit {EXAMPLE}{self.recording}",
            )
        if self.scenario:
            yield Evidence(
                shown=Shown.REAL,
                check=CHECK,
                name=f"{self.id}: broker",
                words=f"{self.broker}, started for it, answers the scenario {self.scenario} so",
                command=check,
            )
        if self.test:
            brought = f"{self.broker}," if self.tested == "brokers" else "clients"
            yield Evidence(
                shown=Shown.REAL if self.tested == "brokers" else Shown.CLIENT,
                check=CHECK,
                name=f"{self.id}: {self.tested}",
                words=f"the test {self.test.partition('::')[0]} brings {brought} to it",
                command=check,
            )
        for name, words in (
            *((name, "violates its property") for name in self.models),
            *((name, "holds: the rule is mended in it") for name in self.mended),
        ):
            yield Evidence(
                shown=Shown.MODEL,
                check="",
                name=name,
                words=f"TLC: {name} {words}",
                command=f"kafka-eos check models {name}",
            )

    def commands(self) -> Iterator[str]:
        """The commands that reproduce the finding."""
        if self.recording:
            yield f"kafka-eos audit {EXAMPLE}{self.recording}"
            yield f"kafka-eos lab record {self.recording} --out build/recording"
            yield f"kafka-eos audit build/recording/{self.recording}"
        if self.scenario:
            yield f"kafka-eos ledger findings {self.id} --check"
            yield (
                f"kafka-eos conform --bootstrap HOST:PORT --transaction-version {self.version} --repeat {self.scenario}"
            )
        if self.test:
            yield f"pytest {self.test}"
        if self.models:
            yield f"kafka-eos check models {' '.join((*self.models, *self.mended))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of evidence with the verdict on it, if there is one, and its place among the verdicts given."""

    evidence: Evidence
    verdict: Verdict | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A finding with its evidence."""

    finding: KafkaFinding
    parts: tuple[Part, ...] = field(default=())

    @property
    def state(self) -> State:
        """The share of the evidence that is checked here."""
        verdicts = [part.verdict for part in self.parts if part.verdict is not None]
        if any(not verdict.ok for verdict in verdicts):
            return State.DIFFERS
        if len(verdicts) == len(self.parts):
            return State.CHECKED
        return State.PARTLY if verdicts else State.OPEN

    @property
    def run(self) -> Part | None:
        """The strongest evidence whose verdict shows a run."""
        return next((part for part in self.parts if part.verdict is not None and part.verdict.evidence), None)


def read_findings(path: Path = FINDINGS_FILE) -> list[KafkaFinding]:
    """Read the findings: those with the best evidence first, and of those the gravest.

    Raises:
        MalformedFindings: the file is no TOML, an entry lacks a field or has one too many, has an unknown harm or
            report, or an id comes twice.
    """
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("finding", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedFindings(f"{path.name}: no TOML: {error}") from None
    found: list[KafkaFinding] = []
    for position, row in enumerate(rows, start=1):
        where = f"{path.name}: finding {position}"
        finding = _finding(row, where)
        if any(each.id == finding.id for each in found):
            raise MalformedFindings(f"{where}: the id {finding.id} is taken")
        found.append(finding)
    return sorted(found, key=lambda each: (list(Shown).index(each.shown), list(Harm).index(each.harm)))


def _finding(row: Mapping[str, Any], where: str) -> KafkaFinding:
    names = {f.name for f in fields(KafkaFinding)}
    needed = {f.name for f in fields(KafkaFinding) if f.default is MISSING}
    if not needed <= set(row) <= names:
        raise MalformedFindings(f"{where}: expected {', '.join(sorted(names))}, found {', '.join(row)}")
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
    try:
        values |= {"harm": Harm(row["harm"]), "report": Report(row["report"])}
    except ValueError as error:
        raise MalformedFindings(f"{where}: {error}") from None
    finding = KafkaFinding(**values)
    if not any(finding.evidence()):
        raise MalformedFindings(f"{where}: nothing shows it; name models, a recording, a scenario or a test")
    return finding


@cache
def recorded(finding: KafkaFinding) -> Verdict | None:
    """The verdict of the audit on the kept recording, with the run; None where there is no recording."""
    if not finding.recording:
        return None
    try:
        archive = kept_recording(finding.recording)
    except MissingClone:
        return None
    runs, audited = read_runs([archive])
    own = [each for each in audited if each.rule == finding.rule]
    evidence, diagram = _drawn(own[0], runs) if own else ("", "")
    return Verdict(
        check=CHECK,
        name=f"{finding.id}: recording",
        expected="found",
        found="found" if own else "not found",
        ok=bool(own),
        figures={"recorded": len(own)},
        evidence=evidence,
        diagram=diagram,
        title=finding.title,
    )


def _drawn(found: Finding, runs: dict[str, list[Event]]) -> tuple[str, str]:
    """The audit's finding, as text and as a diagram."""
    try:
        moment = of_finding(found, runs)
    except NothingToDraw:
        return found.in_words(), ""
    return f"{found.in_words()}\n\n{story(moment)}", from_events(moment.events, moment.violation)


def entries(findings: Sequence[KafkaFinding], verdicts: Sequence[Verdict]) -> list[Entry]:
    """Each finding with the last verdict on each piece of its evidence; recordings are audited now."""
    return [
        Entry(finding=finding, parts=tuple(_part(finding, each, verdicts) for each in finding.evidence()))
        for finding in findings
    ]


def _part(finding: KafkaFinding, evidence: Evidence, verdicts: Sequence[Verdict]) -> Part:
    if evidence.name == f"{finding.id}: recording":
        return Part(evidence=evidence, verdict=recorded(finding))
    index = next((at for at in reversed(range(len(verdicts))) if evidence.is_of(verdicts[at])), None)
    return Part(evidence=evidence, verdict=None if index is None else verdicts[index], index=index)
