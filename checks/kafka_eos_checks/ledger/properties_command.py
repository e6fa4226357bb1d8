"""``kafka-eos ledger properties``: of which Kafka each property holds.

First come the properties that hold of the newest release as it ships, then those that it violates, with the finding
behind each and whether the repaired rules bring the property back. "Except" names the finding, or counts the models, by
which a property breaks without any other rule. "Not reached" names the findings that no step of the property's models
can come upon: it says nothing of them. The cells have the verdicts of earlier commands: ``kafka-eos check models`` for
the repaired rules, ``kafka-eos check models --kafka`` for the releases. The rules of the audit are rows as well: a
healthy Kafka of a release violates some of them, in simulations by its rules and in recordings of it.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from rich.table import Table
from rich.text import Text

from kafka_eos_checks.drawing.story_words import words_of
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.kit.terminal import WordTable, answer_console
from kafka_eos_checks.kit.verdict import write_document
from kafka_eos_checks.ledger.properties import AUDIT, REPAIRED, Outcome, Row, properties
from kafka_eos_checks.ledger.report import UnusableVerdicts, add_verdicts, given_verdicts
from kafka_eos_checks.models.findings import read_findings
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry
from kafka_eos_checks.models.releases import Releases

COLOURS = {Outcome.HOLDS: "green", Outcome.VIOLATED: "red", Outcome.DIFFERS: "bold red"}
CHECKS = (
    "kafka-eos check models --json build/verdicts/models.json",
    "kafka-eos check models --kafka 4.4 --kafka 4.3 --kafka 3.9 --json build/verdicts/releases.json",
    "kafka-eos check all --only simulations",
    "kafka-eos check all --only recordings",
)
EPILOG = """examples:
  kafka-eos check models --json build/verdicts/models.json
  kafka-eos check models --kafka 4.4 --kafka 4.3 --kafka 3.9 --json build/verdicts/releases.json
  kafka-eos ledger properties
  kafka-eos ledger properties IdempotentProducer NoDuplicate     some modules or properties only
  kafka-eos ledger properties static-leave                       those that a finding is about
  kafka-eos ledger properties audit                              the rules of the audit
  kafka-eos ledger properties --models                           everything else
  kafka-eos ledger properties --judged                           how each release is judged, and what is not

exit codes: 0 every cell is as expected, 1 one differs or is not checked, 2 the verdicts cannot be used
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``properties``."""
    parser = subparsers.add_parser(
        "properties",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="modules, properties or findings (default: all)")
    parser.add_argument(
        "--models", action="store_true", help="the properties of models, without the rules of the audit"
    )
    parser.add_argument(
        "--judged",
        action="store_true",
        help="how models, proofs, contracts, walks and rules of the audit are judged by each release, and what is not",
    )
    add_json(parser, "the table")
    add_verdicts(parser)
    parser.set_defaults(run=run)


def _table(rows: list[Row]) -> Table:
    table = WordTable("property", *rows[0].cells)
    for row in rows:
        cells = [Text(cell.words, style=COLOURS.get(cell.outcome, "")) for cell in row.cells.values()]
        table.add_row(Text(f"{row.module}!{row.name}"), *cells)
    return table


def _told(row: Row, registry: Registry, releases: Releases) -> Iterator[str]:
    """A property in words: what it says, the known failures, and the findings that its models cannot come upon."""
    if row.module == AUDIT:
        return
    meaning = words_of(spec_folder(), row.module).sentences.get(row.name)
    yield f"{row.module}!{row.name}{f': {meaning}' if meaning else ''}"
    finding = {name: each for cell in row.cells.values() for name, each in cell.excepted.items()}
    for name in dict.fromkeys(name for cell in row.cells.values() for name in cell.failures):
        shows = f" (finding {finding[name]})" if name in finding else ""
        yield f"  breaks in {name}: {registry.get(name).title}{shows}"
    for column in row.cells:
        if column == REPAIRED:
            continue
        release = column.removeprefix("Kafka ")
        stated = releases.stated(row.module, release)
        broken = [
            one for one in registry.models.values() if one.module == row.module and row.name in _broken(one, stated)
        ]
        if broken:
            smallest = min(broken, key=lambda one: one.shipped[stated].states or 0)
            call = f"kafka-eos check models {smallest.name} --kafka {release} --tell {row.name}"
            yield f"  {call} shows how {column} violates it"
    for column, cell in row.cells.items():
        if cell.unreached:
            yield f"  no step of its models uses the rules of {column} behind {', '.join(cell.unreached)}"


def _broken(model: Model, release: str) -> Collection[str]:
    """The properties that a model violates by the rules of a release."""
    return model.shipped[release].violates if release in model.shipped else ()


def _calls(rows: list[Row], names: Sequence[str]) -> list[str]:
    """The commands that check only what is open in the rows with these names."""
    calls, about = [], "-".join(names).replace("!", "-").replace(" ", "-")
    for column in rows[0].cells:
        cells = [row.cells[column] for row in rows if row.module != AUDIT]
        models = dict.fromkeys(name for cell in cells if cell.outcome is Outcome.OPEN for name in cell.models)
        release = column.removeprefix("Kafka ") if column != REPAIRED else ""
        asked = f" --kafka {release}" if release else ""
        if models:
            file = f"build/verdicts/{about}-{release or REPAIRED}.json"
            calls.append(f"kafka-eos check models {' '.join(models)}{asked} --json {file}")
    return [*calls, *(call for call in CHECKS if "--only" in call and any(row.module == AUDIT for row in rows))]


def _names_of(row: Row) -> set[str]:
    found = (each for cell in row.cells.values() for each in (*cell.findings, *cell.excepted.values(), *cell.unreached))
    return {row.module, row.name, f"{row.module}!{row.name}", *found}


def _tell_unknown(unknown: Collection[str], every: Sequence[Row]) -> None:
    """Print why no row has these names, and what to do."""
    known, findings = set[str]().union(*map(_names_of, every)), {finding.id for finding in read_findings()}
    for name in sorted(unknown):
        near = ", ".join(get_close_matches(name, sorted(known | findings), n=5, cutoff=0.5))
        modules = ", ".join(sorted({row.module for row in every}))
        told = (
            f"no module, property or finding {name}; {f'similar names: {near}' if near else f'modules are {modules}'}"
        )
        if name in findings:
            calls = "; ".join(CHECKS[:2])
            told = f"no verdict here shows a property that finding {name} is about; check them first: {calls}"
        print(f"kafka-eos ledger properties: {told}", file=sys.stderr)


def _counted(rows: list[Row]) -> Iterator[str]:
    """A line for each column: how many of its cells are how, and what was not run."""
    for column in rows[0].cells:
        counts = Counter(row.cells[column].outcome for row in rows)
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
        unjudged = dict.fromkeys(name for row in rows for name in row.cells[column].unjudged)
        left = f"; not run here: {', '.join(unjudged)} (check models --tier deep)" if unjudged else ""
        yield f"{column}: {told}{left}"


def _tell_judged() -> int:
    """Print how everything is judged by each release, and name what is not judged."""
    need("crosshair", "prove")
    from kafka_eos_checks.ledger.columns import Judged, statements, unjudged  # noqa: PLC0415 - it needs z3

    found = list(statements(Registry(), Releases()))
    for (kind, release), count in Counter((each.kind, each.release) for each in found).items():
        how = Counter(each.judged for each in found if (each.kind, each.release) == (kind, release))
        told = ", ".join(f"{how[judged]} {judged}" for judged in Judged if how[judged])
        answer_console.print(f"{kind}, Kafka {release}: {count}: {told}", markup=False, soft_wrap=True)
    for each in unjudged(found):
        told = f"{each.judged} by Kafka {each.release}: {each.kind} {each.name}: {each.reason}"
        answer_console.print(told, markup=False, soft_wrap=True)
    return 1 if any(each.judged is Judged.MISSING for each in found) else 0


def run(arguments: argparse.Namespace) -> int:
    """Run ``properties``."""
    if arguments.judged:
        return _tell_judged()
    try:
        releases = Releases()
        every_row = properties(given_verdicts(arguments), Registry(), releases)
        rows = [row for row in every_row if not arguments.models or row.module != AUDIT]
    except (MalformedRegistry, UnusableVerdicts) as error:
        print(f"kafka-eos ledger properties: {error}", file=sys.stderr)
        return 2
    if arguments.names:
        every, names = rows, set(arguments.names)
        rows = [row for row in every if names & _names_of(row)]
        if unknown := names.difference(*map(_names_of, every)):
            _tell_unknown(unknown, every)
            return 2
    answer_console.print(_table(rows))
    if arguments.names:
        registry = Registry()
        for told in (line for row in rows for line in _told(row, registry, releases)):
            answer_console.print(told, markup=False, soft_wrap=True)
    else:
        answer_console.print("`kafka-eos ledger properties NAME` says more of a property: meaning, failures, models")
    for told in _counted(rows):
        answer_console.print(told, markup=False, soft_wrap=True)
    if any(cell.outcome is Outcome.OPEN for row in rows for cell in row.cells.values()):
        span = "the named models only" if arguments.names else "minutes; --tier full for all of them"
        answer_console.print(f"next, for the cells that are not checked ({span}):")
        for call in _calls(rows, arguments.names) if arguments.names else CHECKS:
            answer_console.print(f"  {call}", markup=False, highlight=False, soft_wrap=True)
    if arguments.json:
        write_document(arguments.json, [row.to_json() for row in rows])
    unsettled = {Outcome.DIFFERS, Outcome.OPEN}
    return 1 if any(cell.outcome in unsettled for row in rows for cell in row.cells.values()) else 0
