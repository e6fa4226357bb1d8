"""``kafka-eos ledger findings``: what checking found in Apache Kafka, what shows it, what it means and what mends it.

A finding is shown *on a real broker* when the audit finds it in a kept recording, or when a broker that is started for
it shows it in a scenario of ``kafka-eos conform`` or in a test; *on Kafka's own client* when a test brings its
classes to it; otherwise *only in the model*, where TLC finds it by itself in a model of Kafka's rules. A model with the
mended rule has to hold.

Kept recordings are audited each time. Verdicts on models, clients and brokers are those of earlier commands, in
build/verdicts; ``--check`` takes all of them again. Evidence without a verdict is listed as not checked.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.text import Text

from kafka_eos_checks.conform import result as conform_result
from kafka_eos_checks.conform.peers import PEERS, Absent, Peer
from kafka_eos_checks.conform.peers_command import session_with
from kafka_eos_checks.conform.run import Result
from kafka_eos_checks.conform.session import repeat
from kafka_eos_checks.graphs import model_check
from kafka_eos_checks.kit import paths
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.missing import MissingExtra, need, need_clone
from kafka_eos_checks.kit.outputs import write_text
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.recording import kept_recording
from kafka_eos_checks.kit.terminal import answer_console, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.ledger.findings import Entry, Part, State, entries
from kafka_eos_checks.ledger.report import UnusableVerdicts, kept_verdicts, verdicts_folder
from kafka_eos_checks.models.findings import (
    CHECK,
    KafkaFinding,
    MalformedFindings,
    Report,
    Shown,
    concerned,
    read_findings,
)
from kafka_eos_checks.models.registry import MalformedRegistry, Registry

WIDTH = 116
COLOURS = {State.CHECKED: "green", State.PARTLY: "yellow", State.OPEN: "yellow", State.DIFFERS: "red"}
HEADINGS = {
    Shown.REAL: "Shown on a real broker",
    Shown.CLIENT: "Shown on Kafka's own client, without a broker",
    Shown.MODEL: "Only in the model of Kafka's rules: no broker and no client has shown it",
}
EPILOG = """examples:
  kafka-eos ledger findings                                      all, and how much of each is checked here
  kafka-eos ledger findings --check                              check all: models, recordings, Kafka's client, brokers
  kafka-eos ledger findings aborted-records-delivered            one, with its run, its cure and how to reproduce it
  kafka-eos ledger findings aborted-records-delivered --check    the same, after checking it

exit codes: 0 nothing that was checked differs, 1 something does, or could not be checked with --check, 2 the call or
the input cannot be used
"""


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


# --- checking ---------------------------------------------------------------------------------------------------------


def check(findings: Sequence[KafkaFinding], registry: Registry) -> Iterator[Verdict]:
    """Take the verdicts on everything but recordings: models, each once, then clients and brokers.

    What cannot be run here is said on standard error, and has no verdict.

    Raises:
        MalformedRegistry: for a model that the registry does not have.
        MissingClone: when a test or a recording behind them is only in a clone.
    """
    for finding in findings:  # before the models, which take their time
        if finding.recording:
            kept_recording(finding.recording)
        if finding.test:
            need_clone(f"the test behind {finding.id}")
    names = dict.fromkeys(name for finding in findings for name in (*finding.models, *finding.mended))
    for outcome in model_check.check_models([registry.get(name) for name in names]):
        progress_console.print(f"{'ok  ' if outcome.ok else 'FAIL'} {outcome.model.name}: {outcome.found}")
        yield model_check.to_verdict(outcome)
    for finding in findings:
        for take in (of_broker, of_client):
            try:
                verdict = take(finding)
            except (Absent, MissingExtra) as missing:
                progress_console.print(f"not checked: {finding.id}: {missing}", markup=False)
                continue
            if verdict is not None:
                progress_console.print(f"{'ok  ' if verdict.ok else 'FAIL'} {verdict.name}: {verdict.found}")
                yield verdict


def of_client(finding: KafkaFinding) -> Verdict | None:
    """The verdict of the test that brings Kafka's own client, or brokers, to a finding; None for one without a test.

    Raises:
        Absent: the test is skipped here.
        MissingExtra: pytest is not installed.
    """
    if not finding.test:
        return None
    need("pytest", "dev")
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-rs", "-p", "no:cacheprovider", finding.test]
    done = subprocess.run(command, cwd=CLONE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    skipped = next((line for line in done.stdout.splitlines() if line.startswith("SKIPPED")), "")
    if skipped and done.returncode == 0:
        raise Absent(skipped)
    return Verdict(
        check=CHECK,
        name=f"{finding.id}: {finding.tested}",
        expected="passes",
        found="passes" if done.returncode == 0 else "fails",
        ok=done.returncode == 0,
        seconds=time.monotonic() - began,
        evidence="" if done.returncode == 0 else done.stdout,
        title=finding.title,
    )


def peer_of(name: str) -> Peer:
    """The broker of this name."""
    return next(peer for peer in PEERS if peer.name == name)


def play(peer: Peer, scenario: str) -> Result:
    """Start a broker, and play the shortest run of an edge on it.

    Raises:
        Absent: it cannot be started here.
    """
    with session_with(peer) as session:
        return repeat(session, next(edge for edge in session.edges().values() if edge.id == scenario))


def of_broker(finding: KafkaFinding) -> Verdict | None:
    """The verdict of the broker that is started for a finding; None for a finding without a scenario.

    Raises:
        Absent: the broker cannot be started here.
    """
    if not finding.scenario:
        return None
    began = time.monotonic()
    peer = peer_of(finding.broker)
    result = play(peer, finding.scenario)
    return Verdict(
        check=CHECK,
        name=f"{finding.id}: broker",
        expected=finding.difference,
        found=result.known or "another answer",
        ok=result.known == finding.difference,
        seconds=time.monotonic() - began,
        figures={"steps": len(result.scenario)},
        evidence=f"{peer.name}\n{conform_result.story(result, max(peer.transaction_version, 1))}",
        diagram=conform_result.diagram(result),
        title=finding.title,
    )


# --- telling ----------------------------------------------------------------------------------------------------------

Times = dict[tuple[str, str], datetime]


def listing(shown: Sequence[Entry], times: Times) -> Iterator[Text]:
    """All findings, by where they are shown; for each a line, its title, and which of its evidence is checked."""
    yield Text("What checking found in Apache Kafka 4.3 and 4.4: those with the best evidence first, then the gravest.")
    for standing in Shown:
        own = [entry for entry in shown if entry.finding.shown is standing]
        if own:
            yield Text(f"\n{HEADINGS[standing]} ({len(own)})", style="bold")
        for entry in own:
            finding = entry.finding
            line = Text(f"\n  {finding.id}", style="bold")
            line.append(f"   harm: {finding.harm}; {finding.report}", style="not bold")
            yield line
            yield from (Text(row) for row in _paragraph(finding.title, 6))
            yield from (Text(row, style=COLOURS[entry.state]) for row in _paragraph(_standing(entry, times), 6))


def _standing(entry: Entry, times: Times) -> str:
    """The parts of a finding's evidence that are checked, differ, and are not checked here."""
    told = []
    for group in ("DIFFERS", "checked now", "checked", "not checked here"):
        if parts := [part for part in entry.parts if _group(part) == group]:
            when = f" {_when(parts, times)}" if group == "checked" else ""
            told.append(f"{group}{when}: {_words(parts)}")
    return "; ".join(told)


def _group(part: Part) -> str:
    """Whether the evidence is checked: now, as recordings are, or by an earlier command."""
    if part.verdict is None:
        return "not checked here"
    if not part.verdict.ok:
        return "DIFFERS"
    return "checked now" if part.index is None else "checked"


def _words(parts: Sequence[Part]) -> str:
    """Parts of evidence in a few words."""
    named = {
        "recording": "the audit of the kept recording",
        "broker": "a broker",
        "client": "Kafka's own client",
        "brokers": "brokers",
    }
    words = [named[part.evidence.name.rpartition(": ")[2]] for part in parts if part.evidence.check]
    models = [part.evidence.name for part in parts if not part.evidence.check]
    return " and ".join([*words, *([f"TLC on {', '.join(models)}"] if models else [])])


def _when(parts: Sequence[Part], times: Times) -> str:
    """The time of the oldest of these verdicts; a recording is audited now."""
    known = [times[part.verdict.check, part.verdict.name] for part in parts if part.verdict and part.index is not None]
    return f"{min(known):%Y-%m-%d %H:%M}" if known else "now"


def _paragraph(text: str, indent: int) -> list[str]:
    space = " " * indent
    return wrap(text, WIDTH, initial_indent=space, subsequent_indent=space, break_on_hyphens=False)


def tell(entry: Entry, times: Times) -> Iterator[str]:
    """A finding: what happens, what it means, what mends it, what shows it and how to reproduce it."""
    finding = entry.finding
    yield f"{finding.id}: {finding.title}"
    for name, text in (
        ("for an application", f"{finding.consequence} (harm: {finding.harm})"),
        ("why", finding.cause),
        ("what mends it", finding.cure),
        ("concerns", concerned(finding)),
        *([("the audit reports it as", ", ".join(finding.rules))] if finding.rules else []),
        ("reported", finding.reported),
    ):
        yield "\n".join([f"\n{name}", *_paragraph(text, 4)])
    yield f"\nshown {finding.shown}"
    for part in entry.parts:
        yield "\n".join(_paragraph(f"{_mark(part, times)}: {part.evidence.words}", 4))
    yield "\nto reproduce it"
    yield "\n".join(f"    {command}" for command in finding.commands())
    if entry.run is not None and entry.run.verdict is not None:
        yield f"\nthe run: {entry.run.evidence.words}\n\n{entry.run.verdict.evidence}"
    elif finding.models or finding.recording or finding.scenario:
        yield f"\nThere is no run to show yet: `kafka-eos ledger findings {finding.id} --check` takes one"


def _mark(part: Part, times: Times) -> str:
    if part.verdict is None:
        return "not checked here"
    when = _when([part], times)
    return f"checked {when}" if part.verdict.ok else f"DIFFERS ({when}, found {part.verdict.found})"


def summary(shown: Sequence[Entry]) -> str:
    """The number of findings that are checked, and the commands that check the rest."""
    states = [entry.state for entry in shown]
    counts = ", ".join(f"{states.count(state)} {state}" for state in State if state in states)
    new = sum(entry.finding.report is Report.NEW for entry in shown)
    text = f"{len(shown)} findings, {new} of them new: {counts} here."
    if {State.PARTLY, State.OPEN} & set(states):
        text += (
            "\n`make check` checks the small models. `make findings` (kafka-eos ledger findings --check) checks "
            "everything, with TLC, Kafka's own client and a broker on loopback: it needs Java and takes some minutes."
        )
    return f"{text}\n`kafka-eos ledger findings ID` tells one: what it means, what mends it, how to reproduce it."


# --- the command ------------------------------------------------------------------------------------------------------


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``findings``."""
    parser = subparsers.add_parser(
        "findings",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="findings to tell with their run; default: list all")
    parser.add_argument(
        "--check", action="store_true", help="run the models, the scenarios and the tests behind them first"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show findings; with ``--check`` after checking them."""
    folder = verdicts_folder()
    try:
        findings = chosen(arguments.ids)
        if arguments.check:
            _write(folder, findings, list(check(findings, Registry())))
        kept = kept_verdicts(folder)
        shown = entries(findings, [verdict for verdict, _ in kept.values()])
    except (MalformedFindings, MalformedRegistry, UnusableVerdicts, OSError) as error:
        print(f"kafka-eos ledger findings: {error}", file=sys.stderr)
        return 2
    times = {key: written for key, (_, written) in kept.items()}
    if arguments.ids:
        _show(shown, times)
    else:
        for line in listing(shown, times):
            answer_console.print(line, soft_wrap=True)
        answer_console.print(f"\n{summary(shown)}", markup=False, soft_wrap=True)
    if arguments.json:
        write_verdicts(arguments.json, [part.verdict for entry in shown for part in entry.parts if part.verdict])
    states = {entry.state for entry in shown}
    wanted = {State.CHECKED} if arguments.check else {State.CHECKED, State.PARTLY, State.OPEN}
    return 0 if states <= wanted else 1


def _write(folder: Path, findings: Sequence[KafkaFinding], verdicts: Sequence[Verdict]) -> None:
    """Write the verdicts of each finding to a file of its own, whose time is that of the check."""
    for finding in findings:
        own = [verdict for verdict in verdicts if any(each.is_of(verdict) for each in finding.evidence())]
        write_verdicts(folder / f"finding-{finding.id}.json", own)


def _show(shown: Sequence[Entry], times: Times) -> None:
    folder = paths.output_folder() / "findings"
    for entry in shown:
        for text in tell(entry, times):
            answer_console.print(text, markup=False, soft_wrap=True, highlight=False)
        diagram = entry.run.verdict.diagram if entry.run is not None and entry.run.verdict is not None else ""
        if diagram:
            file = folder / f"{entry.finding.id}.svg"
            write_text(file, diagram)
            answer_console.print(f"\nDiagram: {file}\n", markup=False, soft_wrap=True)
