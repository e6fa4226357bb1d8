"""The findings in Apache Kafka with the verdicts on their evidence: which of it is checked here.

The entries are those of :mod:`kafka_eos_checks.models.findings`; evidence shows whether they are true. The kept
recordings are audited each time, which takes milliseconds. Verdicts on models, on tests of Kafka's own client and on
brokers that are started come from earlier commands.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.explain import NothingToDraw, drawn, of_finding, read_runs, story
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.kit.missing import MissingClone
from kafka_eos_checks.kit.recording import kept_recording
from kafka_eos_checks.kit.verdict import Standing, Verdict
from kafka_eos_checks.models.findings import CHECK, Evidence, KafkaFinding


class State(StrEnum):
    """The share of a finding's evidence that is checked here."""

    CHECKED = "checked"
    PARTLY = "checked in part"
    OPEN = "not checked"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of evidence with its verdict, if there is one, and the verdict's place among those given."""

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
        found = [part.verdict.standing for part in self.parts if part.verdict is not None]
        if Standing.FAIL in found:
            return State.DIFFERS
        checked = found.count(Standing.OK)
        if checked == len(self.parts):
            return State.CHECKED
        return State.PARTLY if checked else State.OPEN

    @property
    def run(self) -> Part | None:
        """The strongest evidence whose verdict shows a run."""
        return next((part for part in self.parts if part.verdict is not None and part.verdict.evidence), None)


@cache
def recorded(finding: KafkaFinding) -> Verdict | None:
    """The verdict of the audit on the kept recording, with the run; None where there is no recording."""
    if not finding.recording:
        return None
    try:
        archive = kept_recording(finding.recording)
    except MissingClone:
        return None
    runs, audited, _ = read_runs([archive])
    own = [each for each in audited if each.rule == finding.rules[0]]
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
    return f"{found.in_words()}\n\n{story(moment)}", drawn(moment)


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
