"""The findings in Apache Kafka: texts, evidence, the rules of the audit that report them, and the releases concerned.

``findings.toml`` has the entries. Whether the evidence shows a finding is not written there; see
:mod:`kafka_eos_checks.ledger.findings`.
"""

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from kafka_eos.histories.history import Event
from kafka_eos_checks.brokers.wire_events import IN_TEST, SERVED
from kafka_eos_checks.kit.paths import package_folder
from kafka_eos_checks.kit.recording import EXAMPLE
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.releases import releases_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A model, test, recording or scenario that has to show a finding.

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
        rules: the rules of the audit that report its effect, the one that finds it in the recording first.
        concerns: the releases or clients that it concerns, if no rule of ``spec/releases.toml`` names the finding.
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
    rules: tuple[str, ...] = ()
    concerns: str = ""
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
        """The subject of the test: ``client``, or the ``brokers`` that it starts."""
        return "brokers" if self.broker and not self.scenario else "client"

    def evidence(self) -> Iterator[Evidence]:
        """The evidence that has to show it, the strongest first."""
        check = f"kafka-eos ledger findings {self.id} --check"
        if self.recording:
            yield Evidence(
                shown=Shown.REAL,
                check=CHECK,
                name=f"{self.id}: recording",
                words=f"the audit finds '{self.rules[0]}' in the kept recording {self.recording}",
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


def read_findings(path: Path | None = None) -> list[KafkaFinding]:
    """Read the findings: those with the best evidence first, and of those the gravest.

    Args:
        path: the file; by default the project's.

    Raises:
        MalformedFindings: the file is no TOML, an entry lacks a field or has one too many, has an unknown harm or
            report, or an id comes twice.
    """
    path = path or package_folder() / "models" / "findings.toml"
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
    if finding.recording and not finding.rules:
        raise MalformedFindings(f"{where}: the recording {finding.recording} needs rules, of the audit that finds it")
    if not any(finding.evidence()):
        raise MalformedFindings(f"{where}: nothing shows it; name models, a recording, a scenario or a test")
    return finding


def concerned(finding: KafkaFinding) -> str:
    """The releases, or clients, that a finding is known to concern; it may concern others too."""
    releases = ", ".join(releases_of(finding.id))
    return finding.concerns or f"Kafka {' and '.join(releases.rsplit(', ', 1))}"


def _moved(run: Sequence[Event]) -> bool:
    return any(event.action in {"Crash", "Restart", "LeaderChange", "Failover"} for event in run)


def _came_late(run: Sequence[Event]) -> bool:
    """Whether a request may have been handled after later ones of its client."""
    late = {"delay", "repeat", "overtake"}
    return _moved(run) or any("repeats" in event.detail or event.detail.get("fault") in late for event in run)


def _ended_by_version_1(run: Sequence[Event]) -> bool:
    return any(
        (event.action, event.phase) == ("EndTxn", "ok") and "next_producer_id" not in event.detail for event in run
    )


def _offsets_were_refused(run: Sequence[Event]) -> bool:
    sent = [event for event in run if event.action == "TxnOffsetCommit"]
    return _moved(run) or any(event.error or event.detail.keys() & {"fault", "delivered"} for event in sent)


def _has_member_epochs(run: Sequence[Event]) -> bool:
    """Whether offsets came with a generation that no JoinGroup has given."""
    joined = {(event.group, event.generation) for event in run if event.action == "JoinGroup"}
    sent = [event for event in run if event.action == "TxnOffsetCommit" and (event.generation or 0) > 0]
    return any((event.group, event.generation) not in joined for event in sent)


_TAKES: Mapping[str, Callable[[Sequence[Event]], bool]] = {
    "no-leader-no-marker": _moved,
    "former-group-coordinator": _moved,
    "late-offsets": _came_late,
    "late-end-of-transaction": lambda run: _came_late(run) and _ended_by_version_1(run),
    "timed-out-offsets": _offsets_were_refused,
    "latest-member-epoch": _has_member_epochs,
}
"""Whether a run has what a finding takes, by its id; findings that are not named here may take anything."""


def _ruled_out(run: Sequence[Event]) -> frozenset[str]:
    """The ids of findings that are no possible cause in a run: it is of a served cluster, and lacks what they take."""
    if not any(event.run in {IN_TEST, SERVED} and event.process.startswith("proxy/") for event in run):
        return frozenset()
    return frozenset(name for name, takes in _TAKES.items() if not takes(run))


def possible_causes(
    rule: str, runs: Iterable[Sequence[Event]] = (), *, states_are_whole: bool = False
) -> dict[str, str]:
    """For each finding whose effect a rule of the audit is known to report, a line that names it, by its id.

    Those that each of the runs, if there are any, rules out are not among them.

    Args:
        rule: the rule.
        runs: runs of a history.
        states_are_whole: whether logs of ``__transaction_state`` were read, and nothing in them is damaged. Then no
            coordinator has loaded a part of one.
    """
    ruled_out = [_ruled_out(run) for run in runs]
    without = frozenset.intersection(*ruled_out) if ruled_out else frozenset()
    without |= {"half-loaded-coordinator"} if states_are_whole else set()
    return {
        each.id: f"possible cause: {each.id} ({concerned(each)}), see `kafka-eos ledger findings {each.id}`"
        for each in _read_once()
        if rule in each.rules and each.id not in without
    }


@cache
def _read_once() -> tuple[KafkaFinding, ...]:
    return tuple(read_findings())
