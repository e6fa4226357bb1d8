"""``kafka-eos findings``: what checking found in Apache Kafka, with the run that shows it and what it means.

A finding is *shown on a real broker* when the audit finds it in a kept recording, or a broker that is started for it
answers a scenario of ``kafka-eos conform`` so; *shown on Kafka's own client* when a test brings that client's classes
to it; otherwise *only in the model*, where TLC finds it by itself in a model of Kafka's rules. All that an entry names
has to show it. Where a model has the rule mended, it has to hold.
"""

import argparse
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from kafka_eos_checks import model_check, paths
from kafka_eos_checks.conform import result as conform_result
from kafka_eos_checks.conform.command import repeat
from kafka_eos_checks.conform.peers import PEERS, Absent, Peer
from kafka_eos_checks.conform.peers_command import session_with
from kafka_eos_checks.conform.run import Result
from kafka_eos_checks.drawing.sequence_diagram import from_events
from kafka_eos_checks.explain import NothingToDraw, of_finding, read_runs, story
from kafka_eos_checks.missing import need
from kafka_eos_checks.model_check import Outcome
from kafka_eos_checks.models import MalformedRegistry, Registry
from kafka_eos_checks.paths import CLONE
from kafka_eos_checks.record.recording import kept_recording
from kafka_eos_checks.report import UnusableVerdicts, load_verdicts
from kafka_eos_checks.terminal import answer_console, progress_console
from kafka_eos_checks.verdict import Verdict, write_verdicts

FINDINGS_FILE = Path(__file__).with_name("findings.toml")
CHECK = "finding"
EPILOG = """examples:
  kafka-eos findings                                        all, with what the last check found
  kafka-eos findings --check                                check what is behind them first: models, recordings, brokers
  kafka-eos findings aborted-records-delivered --check      one, with its run and a diagram

exit codes: 0 every finding asked for is as said, 1 one is not or was never checked, 2 the call cannot be used
"""


class MalformedFindings(ValueError):  # noqa: N818 - named for the input
    """A file of findings that cannot be used; says file, entry and reason."""


class Standing(StrEnum):
    """How far a finding is shown, the least first."""

    NOWHERE = "not shown"
    MODEL = "only in the model"
    CLIENT = "shown on Kafka's own client"
    REAL = "shown on a real broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFinding:
    """A finding.

    Attributes:
        id: names it.
        title: what happens, in a sentence.
        consequence: for an application.
        cause: in Kafka.
        known: where it is reported.
        cure: what mends it, or what to do until then.
        models: models and mutants that have to violate their property; none where the spec does not have the rule.
        mended: models that have to hold.
        recording: the kept recording in which the audit finds it, "" for none.
        rule: the rule of the audit that finds it.
        scenario: the edge of ``kafka-eos conform`` whose shortest run shows it, by its id, "" for none.
        broker: the peer that it is played on, by its name.
        difference: the recorded difference that its answer is.
        test: the test that brings a client to it, as pytest names it, "" for none.
    """

    id: str
    title: str
    consequence: str
    cause: str
    known: str
    cure: str
    models: tuple[str, ...]
    mended: tuple[str, ...]
    recording: str = ""
    rule: str = ""
    scenario: str = ""
    broker: str = ""
    difference: str = ""
    test: str = ""

    @property
    def standing(self) -> Standing:
        """What a check has to confirm."""
        if self.recording or self.scenario:
            return Standing.REAL
        return Standing.CLIENT if self.test else Standing.MODEL

    def commands(self) -> Iterator[str]:
        """What reproduces it."""
        if self.recording:
            yield f"kafka-eos record {self.recording} --out build/recording"
            yield f"kafka-eos explain checks/recordings/{self.recording}.tar.xz"
        if self.scenario:
            version = peer_of(self.broker).transaction_version
            yield f"kafka-eos findings {self.id} --check"
            yield f"kafka-eos conform --bootstrap HOST:PORT --transaction-version {version} --repeat {self.scenario}"
        if self.test:
            yield f"pytest {self.test}"
        if self.models:
            yield f"kafka-eos model-check {' '.join((*self.models, *self.mended))}"


def read_findings(path: Path = FINDINGS_FILE) -> list[KafkaFinding]:
    """Read the findings, in the order of the file.

    Raises:
        MalformedFindings: the file is no TOML, an entry lacks a field or has one too many, or an id comes twice.
    """
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("finding", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedFindings(f"{path.name}: no TOML: {error}") from None
    names = {f.name for f in fields(KafkaFinding)}
    needed = {f.name for f in fields(KafkaFinding) if f.default is MISSING}
    found: list[KafkaFinding] = []
    for position, row in enumerate(rows, start=1):
        where = f"{path.name}: finding {position}"
        if not needed <= set(row) <= names:
            raise MalformedFindings(f"{where}: expected {', '.join(sorted(names))}, found {', '.join(row)}")
        if any(each.id == row["id"] for each in found):
            raise MalformedFindings(f"{where}: the id {row['id']} is taken")
        values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
        found.append(KafkaFinding(**values))
    return found


def chosen(ids: Sequence[str]) -> list[KafkaFinding]:
    """The findings with these ids; all for none.

    Raises:
        MalformedFindings: the file cannot be used, or has no such id.
    """
    findings = read_findings()
    known = [finding.id for finding in findings]
    if strays := [name for name in ids if name not in known]:
        raise MalformedFindings(f"no finding {strays[0]!r}; there are {', '.join(known)}")
    return [finding for finding in findings if not ids or finding.id in ids]


def check(findings: Sequence[KafkaFinding], registry: Registry) -> Iterator[Verdict]:
    """Check what is behind the findings, each model once.

    Raises:
        MalformedRegistry: for a model that the registry does not have.
    """
    names = dict.fromkeys(name for finding in findings for name in (*finding.models, *finding.mended))
    outcomes: dict[str, Outcome] = {}
    for outcome in model_check.check_models([registry.get(name) for name in names]):
        progress_console.print(f"{'ok  ' if outcome.ok else 'FAIL'} {outcome.model.name}: {outcome.found}")
        outcomes[outcome.model.name] = outcome
    for finding in findings:
        yield judged(finding, outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What one part of a check has shown.

    Attributes:
        standing: how far the finding is shown then.
        evidence: the run in words, "" for none.
        diagram: the run.
        figures: of the part.
    """

    standing: Standing
    evidence: str = ""
    diagram: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)


def judged(finding: KafkaFinding, outcomes: dict[str, Outcome]) -> Verdict:
    """The verdict on a finding, with its run as evidence and diagram."""
    began = time.monotonic()
    told = [model_check.to_verdict(outcomes[name]) for name in (*finding.models, *finding.mended)]
    wrong = [f"{verdict.name} {verdict.found}" for verdict in told if not verdict.ok]
    wrong += [f"{name} violates nothing" for name in finding.models if not outcomes[name].model.expect.violates]
    wrong += [f"{name} does not hold" for name in finding.mended if outcomes[name].model.expect.violates]
    parts, absent = [Shown(standing=Standing.NOWHERE)], ""
    try:
        parts += shown(finding, told)
    except Absent as missing:
        absent = f"{Standing.NOWHERE}: {missing}"
    found = f"not as the models say: {'; '.join(wrong)}" if wrong else absent or parts[-1].standing
    run = next((part for part in reversed(parts) if part.evidence), parts[0])
    figures: dict[str, int | float | str] = {"models": len(finding.models), "mended": len(finding.mended)}
    for part in parts:
        figures |= part.figures
    return Verdict(
        check=CHECK,
        name=finding.id,
        expected=finding.standing,
        found=found,
        ok=found == finding.standing,
        seconds=sum(verdict.seconds for verdict in told) + time.monotonic() - began,
        figures=figures,
        evidence=f"{_in_words(finding)}\n\n{run.evidence}",
        diagram=run.diagram,
        title=finding.title,
    )


def shown(finding: KafkaFinding, told: Sequence[Verdict]) -> Iterator[Shown]:
    """What shows a finding, part by part, up to one that does not.

    Args:
        finding: the finding.
        told: the verdicts on its models.

    Raises:
        Absent: the broker cannot be started here.
    """
    if told:
        first = told[0]
        evidence = f"{first.name}: {first.found}\n{first.evidence}"
        yield Shown(standing=Standing.MODEL, evidence=evidence, diagram=first.diagram)
    if finding.test:
        if not passes(finding.test):
            return
        yield Shown(standing=Standing.CLIENT)
    if finding.recording:
        runs, audited = read_runs([kept_recording(finding.recording)])
        own = [each for each in audited if each.rule == finding.rule]
        if not own:
            return
        moment = of_finding(own[0], runs)
        yield Shown(
            standing=Standing.REAL,
            evidence=f"{own[0].in_words()}\n\n{story(moment)}",
            diagram=from_events(moment.events, moment.violation),
            figures={"recorded": len(own)},
        )
    if finding.scenario:
        peer = peer_of(finding.broker)
        result = played(peer, finding.scenario)
        if result.known != finding.difference:
            return
        yield Shown(
            standing=Standing.REAL,
            evidence=f"{peer.name}\n{conform_result.story(result, max(peer.transaction_version, 1))}",
            diagram=conform_result.diagram(result),
            figures={"steps": len(result.scenario)},
        )


def peer_of(name: str) -> Peer:
    """The broker of this name."""
    return next(peer for peer in PEERS if peer.name == name)


def played(peer: Peer, scenario: str) -> Result:
    """Start a broker, and play the shortest run of an edge on it.

    Raises:
        Absent: it cannot be started here.
    """
    with session_with(peer) as session:
        return repeat(session, next(edge for edge in session.edges().values() if edge.id == scenario))


def passes(test: str) -> bool:
    """Whether a test of the clone passes; one that is skipped does not.

    Raises:
        MissingExtra: pytest is not installed.
    """
    need("pytest", "dev")
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=CLONE, capture_output=True, text=True, check=False)
    return done.returncode == 0 and "skipped" not in done.stdout.splitlines()[-1]


def _in_words(finding: KafkaFinding) -> str:
    lines = [
        f"consequence: {finding.consequence}",
        f"cause: {finding.cause}",
        f"known: {finding.known}",
        f"cure: {finding.cure}",
        *(f"reproduce: {command}" for command in finding.commands()),
    ]
    return "\n".join(lines)


def table(findings: Sequence[KafkaFinding], verdicts: dict[str, Verdict]) -> Table:
    """A finding a row."""
    shown = Table(box=None, pad_edge=False)
    for column in ("finding", "stands", "what happens", "known"):
        shown.add_column(column, overflow="fold")
    for finding in findings:
        verdict = verdicts.get(finding.id)
        standing = "not checked" if verdict is None else verdict.found
        colour = "yellow" if verdict is None else "green" if verdict.ok else "red"
        shown.add_row(Text(finding.id), Text(standing, style=colour), Text(finding.title), Text(finding.known))
    return shown


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``findings``."""
    parser = subparsers.add_parser(
        "findings",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "ids", nargs="*", metavar="ID", help="findings to show with their run; default: all, as a table"
    )
    parser.add_argument(
        "--check", action="store_true", help="run the models, the audit, the scenarios and the tests behind them first"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show findings; with ``--check`` after checking them."""
    kept = paths.build_folder() / "verdicts" / "findings.json"
    try:
        findings = chosen(arguments.ids)
        verdicts = {v.name: v for v in (load_verdicts([kept]) if kept.exists() else [])}
        if arguments.check:
            verdicts |= {verdict.name: verdict for verdict in check(findings, Registry())}
            write_verdicts(kept, list(verdicts.values()))
    except (MalformedFindings, MalformedRegistry, NothingToDraw, UnusableVerdicts, OSError) as error:
        print(f"kafka-eos findings: {error}", file=sys.stderr)
        return 2
    own = [verdicts[finding.id] for finding in findings if finding.id in verdicts]
    answer_console.print(table(findings, verdicts))
    if arguments.ids:
        _show(findings, verdicts)
    if len(own) < len(findings):
        print("not checked here: kafka-eos findings --check", file=sys.stderr)
    if arguments.json:
        write_verdicts(arguments.json, own)
    return 0 if len(own) == len(findings) and all(verdict.ok for verdict in own) else 1


def _show(findings: Sequence[KafkaFinding], verdicts: dict[str, Verdict]) -> None:
    folder = paths.build_folder() / "findings"
    for finding in findings:
        verdict = verdicts.get(finding.id)
        answer_console.print(f"\n{finding.id}: {finding.title}", markup=False, soft_wrap=True)
        text = _in_words(finding) if verdict is None else verdict.evidence
        answer_console.print(text, markup=False, soft_wrap=True, highlight=False)
        if verdict is not None and verdict.diagram:
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{finding.id}.svg"
            file.write_text(verdict.diagram, encoding="utf-8")
            answer_console.print(f"diagram: {file}", markup=False, soft_wrap=True)
