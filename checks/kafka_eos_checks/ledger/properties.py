"""Properties by release: of which Kafka each property of the models holds.

A row is a property that some model shows to hold by the repaired rules, or a rule of the audit. A column is a release
of Kafka as it ships, or the spec with its repaired rules. A cell is never written by hand: it has the verdicts of
``kafka-eos check models`` and ``kafka-eos check models --kafka`` on every model that checks the property. For a rule of
the audit it has what the rule found in simulations by the rules of the column, and in recordings of that release.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kafka_eos_checks.audit.rules.rule_book import RULE_NAMES
from kafka_eos_checks.kit.verdict import Standing, Verdict, counted
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.models.releases import CHECK, SAYS_NOTHING, Column, Releases, columns

REPAIRED = "repaired"
AUDIT = "audit"  # in the place of the module, for a rule of the audit
AUDIT_CHECK = "audit-release"  # the kind of the verdicts on rules of the audit by release
RECORDING_CHECK = "replay"  # the kind of those on recordings of real brokers
FINDS_NOTHING = "finds nothing"
_VIOLATED = "violated"


def finds(findings: Iterable[str]) -> str:
    """The words for a rule of the audit that finds something, with the findings of the ledger behind it."""
    return f"finds something, by {', '.join(findings) or 'what no finding explains'}"


class Outcome(StrEnum):
    """The outcome for a property in a column."""

    HOLDS = "holds"
    VIOLATED = "violated"
    SILENT = "says nothing"
    DIFFERS = "differs from what is expected"
    OPEN = "not checked"
    UNJUDGED = "not judged"
    OUTSIDE = "not of this release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A property in a column.

    Attributes:
        outcome: over all models.
        rules: that break it, where it is violated.
        findings: ids of the findings behind these rules.
        models: the models with this outcome.
        shared: whether no rule of these models is otherwise in the release, so that the repaired rules are Kafka's.
        unjudged: the models of the deep tier that nobody has judged in this column.
        failures: the known failures: models, without any other rule, in which the property must break.
    """

    outcome: Outcome
    rules: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    shared: bool = False
    unjudged: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The cell in words."""
        if self.outcome is Outcome.VIOLATED:
            return f"violated: {', '.join(self.findings or self.rules)}"
        if self.outcome is not Outcome.HOLDS:
            return self.outcome.value
        words = "holds, by the same rules" if self.shared else self.outcome.value
        return f"{words}, except in {counted(len(self.failures), 'known failure')}" if self.failures else words

    def to_json(self) -> dict[str, Any]:
        """The cell for machines."""
        return {
            "outcome": self.outcome.value,
            "rules": list(self.rules),
            "findings": list(self.findings),
            "models": list(self.models),
            "shared": self.shared,
            "unjudged": list(self.unjudged),
            "failures": list(self.failures),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A property.

    Attributes:
        module: the TLA+ module.
        name: the name of the property.
        cells: the cells by column.
    """

    module: str
    name: str
    cells: Mapping[str, Cell] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The row for machines."""
        cells = {column: cell.to_json() for column, cell in self.cells.items()}
        return {"property": f"{self.module}!{self.name}", "columns": cells}


_GROUPS = tuple(Outcome)  # the order of the outcomes of the newest release: what holds, what does not, what is unknown
# of the models that check a property, the first of these outcomes that one has counts for all
_STRONGEST = (
    *(Outcome.DIFFERS, Outcome.VIOLATED, Outcome.OPEN, Outcome.HOLDS, Outcome.SILENT, Outcome.UNJUDGED),
    Outcome.OUTSIDE,
)


def properties(verdicts: Iterable[Verdict], registry: Registry, releases: Releases) -> list[Row]:
    """The table, with what holds of the newest release first, then what it violates.

    Args:
        verdicts: the verdicts of earlier commands; those on models count.
        registry: the models.
        releases: the columns, the newest first; the repaired rules are the last column.
    """
    known = {(verdict.check, verdict.name): verdict for verdict in verdicts}
    checking: dict[tuple[str, str], list[Model]] = {}
    failing: dict[tuple[str, str], list[Model]] = {}
    for model in registry.models.values():
        for name in (*model.invariants, *model.properties):
            if not model.expect.violates:
                checking.setdefault((model.module, name), []).append(model)
            elif name == model.expect.violates and not model.overrides:  # TLC ends there, so it says nothing of others
                failing.setdefault((model.module, name), []).append(model)
    rows = []
    for (module, name), models in sorted(checking.items()):
        cells = {
            f"Kafka {release}": _of_release(name, models, release, releases, known) for release in releases.releases
        }
        cells[REPAIRED] = _joined([_repaired(name, model, known) for model in models])
        failures = failing.get((module, name), [])
        cells = {column: replace(cell, failures=_own(failures, column, releases)) for column, cell in cells.items()}
        rows.append(Row(module=module, name=name, cells=cells))
    rows += audit_rules(known, releases)
    newest = f"Kafka {releases.newest}"
    return sorted(rows, key=lambda row: _GROUPS.index(row.cells[newest].outcome))


def _own(models: Sequence[Model], column: str, releases: Releases) -> tuple[str, ...]:
    """The names of the models that are about the Kafka of a column."""
    if column == REPAIRED:
        return tuple(model.name for model in models)
    found = columns(models, [column.removeprefix("Kafka ")], releases)
    return tuple(each.model.name for each in found if not each.outside)


def audit_rules(known: Mapping[tuple[str, str], Verdict], releases: Releases) -> list[Row]:
    """A row for each rule of the audit: whether a log of a healthy Kafka violates it, and by which finding.

    A cell has what the rule found in simulations with the rules of the release, and in recordings of that release. What
    an operator or an application did in a recording is not the release's doing.
    """
    columns_of = {f"Kafka {release}": release for release in releases.releases} | {REPAIRED: ""}
    rows = []
    for rule in RULE_NAMES:
        cells = {}
        for column, release in columns_of.items():
            own = [known.get((AUDIT_CHECK, f"{rule}, {column}"))]
            own += [
                verdict
                for (check, name), verdict in known.items()
                if check == RECORDING_CHECK
                and name.endswith(f": {rule}")
                and release
                and str(verdict.figures.get("Kafka", "")).startswith(f"{release}.")
            ]
            cells[column] = _joined([_audited(verdict) for verdict in own])
        rows.append(Row(module=AUDIT, name=rule, cells=cells))
    return rows


def _audited(verdict: Verdict | None) -> Cell:
    """The cell of one verdict of the audit."""
    if verdict is None:
        return Cell(outcome=Outcome.OPEN)
    findings = tuple(str(verdict.figures["findings"]).split(", ")) if "findings" in verdict.figures else ()
    if verdict.standing is Standing.FAIL:
        outcome = Outcome.DIFFERS
    elif findings:
        outcome = Outcome.VIOLATED
    else:
        outcome = Outcome.SILENT if verdict.unjudged else Outcome.HOLDS
    return Cell(outcome=outcome, findings=findings, models=(verdict.name,))


def _of_release(
    name: str,
    models: Sequence[Model],
    release: str,
    releases: Releases,
    known: Mapping[tuple[str, str], Verdict],
) -> Cell:
    cells = []
    for column in columns(models, [release], releases):
        if column.outside:
            cells.append(Cell(outcome=Outcome.OUTSIDE, models=(column.model.name,)))
        elif column.rules:
            cells.append(_shipped(name, column, releases, known))
        else:
            repaired = _repaired(name, column.model, known)
            cells.append(Cell(outcome=repaired.outcome, models=repaired.models, shared=True))
    return _joined(cells)


def _shipped(name: str, column: Column, releases: Releases, known: Mapping[tuple[str, str], Verdict]) -> Cell:
    model, outcome, causes = column.model, Outcome.HOLDS, ""
    verdict = known.get((CHECK, column.name))
    found = "" if verdict is None else str(verdict.figures.get(name, ""))
    if verdict is None or not found:
        outcome = _missing(model)
    elif verdict.standing is not Standing.OK:
        outcome = Outcome.DIFFERS
    elif found.startswith(_VIOLATED):
        outcome, expected = Outcome.VIOLATED, column.expected(releases)
        causes = expected.violates[name] if expected else ""
    elif found == SAYS_NOTHING:
        outcome = Outcome.SILENT
    rules = tuple(causes.split(", ")) if causes else ()
    return Cell(
        outcome=outcome, rules=rules, findings=tuple(releases.findings(model.module, causes)), models=(model.name,)
    )


def _repaired(name: str, model: Model, known: Mapping[tuple[str, str], Verdict]) -> Cell:
    verdict = known.get(("model", model.name))
    if verdict is None:
        outcome = _missing(model)
    elif verdict.standing is not Standing.OK:
        outcome = Outcome.DIFFERS
    else:
        outcome = Outcome.SILENT if name in model.silent else Outcome.HOLDS
    return Cell(outcome=outcome, models=(model.name,))


def _missing(model: Model) -> Outcome:
    """The outcome where no verdict is known: nobody checks the deep tier by the way."""
    return Outcome.UNJUDGED if model.tier == "deep" else Outcome.OPEN


def _joined(cells: Sequence[Cell]) -> Cell:
    """The cell that joins the cells of several models."""
    outcome = next(outcome for outcome in _STRONGEST if any(cell.outcome is outcome for cell in cells))
    same = [cell for cell in cells if cell.outcome is outcome]
    return Cell(
        outcome=outcome,
        rules=tuple(dict.fromkeys(rule for cell in same for rule in cell.rules)),
        findings=tuple(dict.fromkeys(finding for cell in same for finding in cell.findings)),
        models=tuple(name for cell in same for name in cell.models),
        shared=all(cell.shared for cell in same),
        unjudged=tuple(name for cell in cells if cell.outcome is Outcome.UNJUDGED for name in cell.models),
    )
