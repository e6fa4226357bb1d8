"""The report: the verdicts of every check, with findings, properties and claims, on one HTML page and in one document.

:mod:`kafka_eos_checks.drawing.page` draws the verdicts; the ledger's own sections are in ``report.html.j2``.
"""

import argparse
import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kafka_eos import machines
from kafka_eos_checks.drawing.page import KINDS, Page, environment, shown_evidence
from kafka_eos_checks.drawing.page import render as render_page
from kafka_eos_checks.drawing.plots import LARGEST
from kafka_eos_checks.drawing.svg import visible
from kafka_eos_checks.kit import paths
from kafka_eos_checks.kit.outputs import check_output, write_text
from kafka_eos_checks.kit.terminal import answer_console
from kafka_eos_checks.kit.verdict import Verdict, first_of, read_verdicts, write_document
from kafka_eos_checks.ledger.claims import Entry, MalformedClaims, Standing, ledger, read_claims
from kafka_eos_checks.ledger.findings import Entry as FindingEntry
from kafka_eos_checks.ledger.findings import entries as finding_entries
from kafka_eos_checks.ledger.properties import Row, properties
from kafka_eos_checks.models.findings import MalformedFindings, read_findings
from kafka_eos_checks.models.registry import MalformedRegistry, Registry
from kafka_eos_checks.models.releases import CHECK as RELEASE
from kafka_eos_checks.models.releases import Releases

MAX_SECONDS = 10_000_000  # four months
MOST_NAMED = 5  # files in a message


class UnusableVerdicts(ValueError):  # noqa: N818 - named for the input
    """A file that holds no verdicts; says file, position and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Page):
    """The content of the report.

    Attributes:
        entries: the claims ledger; indices point into ``verdicts``.
        findings: what checking found in Kafka; indices likewise.
        properties: the releases of Kafka for which each property holds; empty if no release was checked.
    """

    entries: tuple[Entry, ...]
    findings: tuple[FindingEntry, ...] = ()
    properties: tuple[Row, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The same content for machines."""
        return {
            "headline": self.headline,
            "count": len(self.verdicts),
            "differing": [{"check": verdict.check, "name": verdict.name} for verdict in self.differing],
            "environment": self.environment,
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "claims": [
                {
                    **asdict(entry.claim),
                    "standing": entry.standing.value,
                    "verdicts": [
                        {"check": self.verdicts[index].check, "name": self.verdicts[index].name}
                        for index in entry.verdicts
                    ],
                }
                for entry in self.entries
            ],
            "findings": [_finding_json(entry) for entry in self.findings],
            "properties": [row.to_json() for row in self.properties],
        }


def _finding_json(entry: FindingEntry) -> dict[str, Any]:
    parts = [
        {
            "shown": part.evidence.shown.value,
            "evidence": part.evidence.words,
            "command": part.evidence.command,
            "found": None if part.verdict is None else part.verdict.found,
            "ok": None if part.verdict is None else part.verdict.ok,
        }
        for part in entry.parts
    ]
    shown = entry.finding.shown.value
    return {**asdict(entry.finding), "shown": shown, "state": entry.state.value, "evidence": parts}


def verdicts_folder() -> Path:
    """The folder in which commands keep their verdicts."""
    return paths.build_folder() / "verdicts"


def add_verdicts(parser: argparse.ArgumentParser) -> None:
    """Add ``--verdicts``; :func:`given_verdicts` reads them."""
    parser.add_argument(
        "--verdicts",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="files that other commands wrote with --json (default: all of build/verdicts)",
    )


def given_verdicts(arguments: argparse.Namespace) -> list[Verdict]:
    """The newest verdicts of the files that ``--verdicts`` names, else of the folder.

    Raises:
        UnusableVerdicts: a file holds no verdicts.
    """
    return newest(load_verdicts(arguments.verdicts)) if arguments.verdicts else latest_verdicts(verdicts_folder())


def latest_verdicts(folder: Path) -> list[Verdict]:
    """The newest verdicts of a folder, without those of an earlier spec: see :func:`_by_time`.

    Raises:
        UnusableVerdicts: a file holds no verdicts.
    """
    return newest(load_verdicts(_by_time(folder)))


def newest(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The last verdict of each check and name."""
    return list({(verdict.check, verdict.name): verdict for verdict in verdicts}.values())


def _by_time(folder: Path) -> list[Path]:
    """The files with verdicts, the last written one last.

    Those that are older than a file of the spec or of its machines are of what has changed since. They are left out,
    and told on standard error.
    """
    every = sorted(folder.glob("*.json"), key=_written)
    changed = max(sources(), key=_written)
    first = bisect_left(every, _written(changed), key=_written)
    if old := first_of([str(file) for file in every[:first]], MOST_NAMED):
        remedy = "check again; `kafka-eos ledger report --verdicts FILE` shows them nevertheless"
        print(f"kafka-eos: left out, because {changed} has changed since: {old}; {remedy}", file=sys.stderr)
    return every[first:]


def sources() -> list[Path]:
    """The files of the spec, its models and its machines, which verdicts are about."""
    spec = (file for kind in ("tla", "toml") for file in paths.spec_folder().rglob(f"*.{kind}"))
    return [*spec, *Path(machines.__file__).parent.glob("*.py")]


def _written(file: Path) -> float:
    return file.stat().st_mtime


def kept_verdicts(folder: Path) -> dict[tuple[str, str], tuple[Verdict, datetime]]:
    """The last verdict of each check and name in a folder, and when its file was written; none of an earlier spec.

    Raises:
        UnusableVerdicts: a file holds no verdicts.
    """
    kept: dict[tuple[str, str], tuple[Verdict, datetime]] = {}
    for file in _by_time(folder):
        written = datetime.fromtimestamp(file.stat().st_mtime).astimezone()
        kept |= {(verdict.check, verdict.name): (verdict, written) for verdict in load_verdicts([file])}
    return kept


def load_verdicts(files: Iterable[Path]) -> list[Verdict]:
    """Read the verdicts of several files, in order.

    Raises:
        UnusableVerdicts: at the first file that cannot be read as verdicts.
    """
    verdicts: list[Verdict] = []
    for file in files:
        try:
            read = read_verdicts(file)
        except OSError as error:
            raise UnusableVerdicts(f"{file}: {error.strerror}") from None
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UnusableVerdicts(f"{file}: no list of verdicts: {error}") from None
        for position, verdict in enumerate(read):
            if problem := _problem(verdict):
                raise UnusableVerdicts(f"{file}: verdict {position}: {problem}")
        verdicts += read
    return verdicts


def _problem(verdict: Verdict) -> str:
    """The error in the types of a verdict that came from JSON, "" for none."""
    row: dict[str, Any] = asdict(verdict)
    wanted: dict[str, tuple[Any, str]] = {}
    wanted |= dict.fromkeys(
        ("check", "name", "expected", "found", "evidence", "diagram", "unjudged", "advice"), (str, "text")
    )
    wanted |= {"ok": (bool, "true or false"), "seconds": (int | float, "a number"), "figures": (dict, "an object")}
    wanted |= {
        "unknown": (int, "a whole number"),
        "recent": (int, "a whole number"),
        "unjudged_for": (dict, "an object"),
    }
    for name, (kind, words) in wanted.items():
        if not isinstance(row[name], kind):
            return f"{name} is {row[name]!r}, not {words}"
    for name in ("claims", "causes"):
        if strays := [word for word in row[name] if not isinstance(word, str)]:
            return f"{name} has {strays[0]!r}, which is no text"
    if not 0 <= row["seconds"] < MAX_SECONDS:
        return f"seconds is {row['seconds']!r}, not a time"
    wrong = [
        name
        for name, value in row["figures"].items()
        if not (isinstance(value, str) or (isinstance(value, int | float) and abs(value) <= LARGEST))
    ]
    return f"the figure {wrong[0]!r} is neither text nor a number up to {LARGEST:g}" if wrong else ""


def report_of(verdicts: Sequence[Verdict], now: datetime | None = None) -> Report:
    """Order the verdicts by kind, build the ledger, judge the findings and note the environment.

    Raises:
        MalformedClaims: when the claims file cannot be used.
        MalformedFindings: when the file of findings cannot be used.
        MalformedRegistry: when a model or a release cannot be used.
    """
    order = list(KINDS)
    kinds = [*order, *sorted({verdict.check for verdict in verdicts} - set(order))]
    ordered = tuple(sorted(verdicts, key=lambda verdict: kinds.index(verdict.check)))
    entries = tuple(ledger(read_claims(), ordered))
    checked = any(verdict.check == RELEASE for verdict in ordered)
    return Report(
        verdicts=ordered,
        entries=entries,
        environment=environment(ordered, now or datetime.now(UTC)),
        findings=tuple(finding_entries(read_findings(), ordered)),
        properties=tuple(properties(ordered, Registry(), Releases())) if checked else (),
    )


def render(report: Report) -> str:
    """The page."""
    return render_page(
        report,
        "report.html.j2",
        {
            part.index
            for entry in report.findings
            for part in entry.parts
            if part.evidence.check and part.index is not None
        },
        standings=_standings(report.entries),
        findings=[
            {"entry": entry, **shown_evidence(entry.run.verdict if entry.run is not None else None)}
            for entry in report.findings
        ],
    )


def _standings(entries: Sequence[Entry]) -> str:
    """The number of claims in each standing."""
    counts = {standing: sum(entry.standing is standing for entry in entries) for standing in Standing}
    return ", ".join(f"{count} {standing}" for standing, count in counts.items() if count)


def write_report(verdicts: Sequence[Verdict], page: Path, now: datetime | None = None) -> Report:
    """Write ``page`` and, next to it, the same content as JSON (``report.html`` and ``report.json``).

    Raises:
        MalformedClaims: when the claims file cannot be used.
    """
    report = report_of(verdicts, now)
    write_text(page, render(report))
    write_document(page.with_suffix(".json"), report.to_json())
    return report


EPILOG = """examples:
  kafka-eos ledger report
  kafka-eos ledger report --verdicts build/verdicts/models.json --out /tmp/report.html

exit codes: 0 no verdict differs (what is not judged is named), 1 a verdict differs, 2 the verdicts cannot be used
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]", help_line: str) -> None:
    """Add ``kafka-eos ledger report``."""
    parser = subparsers.add_parser(
        "report",
        help=help_line,
        description="Write the HTML report, and report.json next to it, from the verdicts of earlier commands.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_verdicts(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page to write (default: build/report.html)")
    parser.set_defaults(run=run)


NEXT = "make some first: kafka-eos check models --json build/verdicts/models.json"


def run(arguments: argparse.Namespace) -> int:
    """Write the report; 1 when a verdict differs, 2 when there is none to report or one cannot be read."""
    page: Path = arguments.out or paths.output_folder() / "report.html"
    if page.suffix != ".html":
        print(f"kafka-eos ledger report: --out {page}: expected a name that ends in .html", file=sys.stderr)
        return 2
    try:
        verdicts = given_verdicts(arguments)
        if not verdicts:
            where = ", ".join(map(str, arguments.verdicts or [verdicts_folder()]))
            print(f"kafka-eos ledger report: no verdicts in {where}; {NEXT}", file=sys.stderr)
            return 2
        for file in (page, page.with_suffix(".json")):
            check_output(file, makes_folder=True)
        report = write_report(verdicts, page)
    except (UnusableVerdicts, MalformedClaims, MalformedFindings, MalformedRegistry) as error:
        print(f"kafka-eos ledger report: {error}", file=sys.stderr)
        return 2
    answer_console.print(f"{report.headline}: {page}", markup=False, soft_wrap=True)
    for verdict in report.differing:
        differs = f"  differs: {verdict.check} {verdict.name}: expected {verdict.expected}, found {verdict.found}"
        answer_console.print(visible(differs), markup=False, soft_wrap=True)
    for verdict in (each for each in report.verdicts if each.ok and each.unknown):
        unjudged = f"  not judged: {verdict.check} {verdict.name}: {verdict.unjudged}"
        answer_console.print(visible(unjudged), markup=False, soft_wrap=True)
    return 1 if report.differing else 0
