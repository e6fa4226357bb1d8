"""``kafka-eos ledger claims``: claims about exactly-once semantics, and what the checks found.

The verdicts are those of earlier commands, or of the models that ``--check`` runs and of the kept costs. With ids each
claim is shown with its evidence: the properties that hold, the counterexample as a story, or the figures, and a diagram
in a file.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from kafka_eos_checks.graphs import model_check
from kafka_eos_checks.kit import paths
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.outputs import write_text
from kafka_eos_checks.kit.terminal import WordTable, answer_console, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_document, write_verdicts
from kafka_eos_checks.lab.costs.command import KEPT
from kafka_eos_checks.lab.costs.verdicts import UnusableEvidence, read_evidence
from kafka_eos_checks.lab.costs.verdicts import verdicts as cost_verdicts
from kafka_eos_checks.ledger.claims import Entry, MalformedClaims, Standing, ledger, read_claims
from kafka_eos_checks.ledger.report import UnusableVerdicts, add_verdicts, given_verdicts, verdicts_folder
from kafka_eos_checks.models.registry import MalformedRegistry, Registry

MEANING = """
expected of checking: what the project believes that the checks find; "holds" means that the claim is right
checked here: settled, if all checks of the claim found what is expected; differs, if one did not; not checked here, if
  there is none, or one could not judge everything
`kafka-eos ledger claims ID` shows a claim with its sources and evidence."""
MOST_NAMED = 5  # unchecked claims that the next command names; without names it is for all of them
COLOURS = {
    Standing.SETTLED: "green",
    Standing.DIFFERS: "red",
    Standing.OPEN: "yellow",
    Standing.UNKNOWN: "red",
}

EPILOG = """examples:
  kafka-eos ledger claims                 the ledger, from the verdicts in build/verdicts
  kafka-eos ledger claims C15             one claim with its counterexample as a story
  kafka-eos ledger claims C15 --check     check the models behind it first

exit codes: 0 every claim asked for is settled, 1 one is not checked here or differs, 2 the call or the input
  cannot be used
"""


class UnknownClaim(ValueError):  # noqa: N818 - named for what is unknown
    """An id that the ledger does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The entries that were asked for, and the verdicts that their indices point into."""

    entries: list[Entry]
    verdicts: list[Verdict] = field(default_factory=list)

    def settling(self, entry: Entry) -> list[Verdict]:
        """The verdicts on one claim."""
        return [self.verdicts[index] for index in entry.verdicts]

    def to_json(self) -> list[dict[str, Any]]:
        """The claims as JSON, one object for each."""
        return [
            {
                "id": entry.claim.id,
                "text": entry.claim.text,
                "sources": list(entry.claim.sources),
                "expect": entry.claim.expect,
                "standing": entry.standing.value,
                "verdicts": [verdict.to_json() for verdict in self.settling(entry)],
            }
            for entry in self.entries
        ]


def answer(ids: Sequence[str], verdicts: Sequence[Verdict]) -> Answer:
    """The ledger, or the claims with these ids.

    Raises:
        MalformedClaims: when the claims file cannot be used.
        UnknownClaim: for an id that the ledger does not have.
    """
    entries = ledger(read_claims(), verdicts)
    known = {entry.claim.id for entry in entries}
    if strays := [name for name in ids if name not in known]:
        raise UnknownClaim(f"no claim {strays[0]}; the ledger has {min(known)} to {max(known)}")
    return Answer(entries=[entry for entry in entries if not ids or entry.claim.id in ids], verdicts=list(verdicts))


def check(ids: Sequence[str], registry: Registry) -> list[Verdict]:
    """Check the models and mutants that settle these claims, or all that settle any, and ask the kept costs."""
    chosen = [
        model
        for model in [*registry.models.values(), *registry.mutants.values()]
        if (set(model.claims) & set(ids) if ids else model.claims)
    ]
    verdicts = []
    for outcome in model_check.check_models(chosen):
        progress_console.print(f"{'ok  ' if outcome.ok else 'FAIL'} {outcome.model.name}: {outcome.found}")
        verdicts.append(model_check.to_verdict(outcome))
    costs = cost_verdicts(read_evidence(KEPT))
    return [*verdicts, *(verdict for verdict in costs if (set(verdict.claims) & set(ids) if ids else verdict.claims))]


def ledger_table(shown: Answer) -> Table:
    """The table of claims, a row for each: its text, what is expected, and what was checked of it here."""
    table = WordTable("claim", "it says", "expected of checking", "checked here", "by")
    for entry in shown.entries:
        settling = shown.settling(entry)
        names = ", ".join(dict.fromkeys(verdict.name for verdict in settling))
        standing = Text(entry.standing.value, style=COLOURS[entry.standing])
        table.add_row(Text(entry.claim.id), Text(entry.claim.text), Text(entry.claim.expect), standing, Text(names))
    return table


def show(shown: Answer, folder: Path) -> None:
    """Print each claim with its verdicts and their evidence; write the diagrams to a folder."""
    for entry in shown.entries:
        claim = entry.claim
        answer_console.print(Text(f"{claim.id}  {entry.standing.value}", style=f"bold {COLOURS[entry.standing]}"))
        answer_console.print(Text(f"  it says:   {claim.text}"))
        answer_console.print(Text(f"  expected:  {claim.expect}"))
        for source in claim.sources:
            answer_console.print(Text(f"  said in:   {source}"))
        for verdict in shown.settling(entry):
            figures = "".join(f", {name} {value}" for name, value in verdict.figures.items())
            answer_console.print(
                Text(f"\n  {verdict.standing} {verdict.check} {verdict.name}: {verdict.found}{figures}")
            )
            if verdict.title:
                answer_console.print(Text(f"     {verdict.title}"))
            if verdict.evidence:
                answer_console.print(verdict.evidence, markup=False, soft_wrap=True)
            if verdict.diagram:
                file = folder / f"{claim.id}-{verdict.name}.svg"
                write_text(file, verdict.diagram)
                answer_console.print(Text(f"     diagram: {file}"))
        answer_console.print()


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``claims``."""
    parser = subparsers.add_parser(
        "claims",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="claims to show with their evidence; default: the ledger")
    parser.add_argument("--check", action="store_true", help="check the evidence of the claims first")
    add_json(parser, "the claims with their verdicts")
    add_verdicts(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the ledger or some claims."""
    try:
        answer(arguments.ids, [])  # an unknown id is said before anything runs
        if arguments.check:
            # a file for each call: the verdicts of an earlier one on other claims stay
            name = "-".join(["claims", *sorted(set(arguments.ids))])
            write_verdicts(verdicts_folder() / f"{name}.json", check(arguments.ids, Registry()))
        shown = answer(arguments.ids, given_verdicts(arguments))
    except (UnknownClaim, MalformedClaims, MalformedRegistry, UnusableEvidence, UnusableVerdicts) as error:
        print(f"kafka-eos ledger claims: {error}", file=sys.stderr)
        return 2
    if arguments.ids:
        show(shown, paths.output_folder() / "claims")
    else:
        answer_console.print(ledger_table(shown))
        answer_console.print(MEANING)
    standings = [entry.standing for entry in shown.entries]
    counts = ", ".join(f"{standings.count(kind)} {kind.value}" for kind in Standing if kind in standings)
    answer_console.print(f"{len(standings)} claims: {counts}")
    unchecked = [entry.claim.id for entry in shown.entries if entry.standing is Standing.OPEN]
    if unchecked and arguments.check:
        file = verdicts_folder() / "traces.json"
        print(
            f"next: no model and no kept cost is about {', '.join(unchecked)}: kafka-eos check traces --json {file}",
            file=sys.stderr,
        )
    elif unchecked:
        named = f" {' '.join(unchecked)}" if len(unchecked) <= MOST_NAMED or arguments.ids else ""
        print(f"next: kafka-eos ledger claims{named} --check checks them", file=sys.stderr)
    if arguments.json:
        write_document(arguments.json, shown.to_json())
    return 0 if all(standing is Standing.SETTLED for standing in standings) else 1
