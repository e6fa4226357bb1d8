"""Properties by release: of which Kafka each property of the models holds.

A row is a property that some model shows to hold by the repaired rules. A column is a release of Kafka as it ships, or
the spec with its repaired rules. A cell is never written by hand: it has the verdicts of ``kafka-eos check models`` and
``kafka-eos check models --kafka`` on every model that checks the property.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafka_eos_checks.kit.verdict import Standing, Verdict
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.models.releases import CHECK, SAYS_NOTHING, Column, Releases, columns

REPAIRED = "repaired"
_VIOLATED = "violated"


class Outcome(StrEnum):
    """The outcome for a property in a column."""

    HOLDS = "holds"
    VIOLATED = "violated"
    SILENT = "says nothing"
    DIFFERS = "differs from what is expected"
    OPEN = "not checked"
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
    """

    outcome: Outcome
    rules: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    shared: bool = False

    @property
    def words(self) -> str:
        """The cell in words."""
        if self.outcome is Outcome.VIOLATED:
            return f"violated: {', '.join(self.findings or self.rules)}"
        if self.outcome is Outcome.HOLDS and self.shared:
            return "holds, by the same rules"
        return self.outcome.value

    def to_json(self) -> dict[str, Any]:
        """The cell for machines."""
        return {
            "outcome": self.outcome.value,
            "rules": list(self.rules),
            "findings": list(self.findings),
            "models": list(self.models),
            "shared": self.shared,
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
_STRONGEST = (Outcome.DIFFERS, Outcome.VIOLATED, Outcome.OPEN, Outcome.HOLDS, Outcome.SILENT, Outcome.OUTSIDE)


def properties(verdicts: Iterable[Verdict], registry: Registry, releases: Releases) -> list[Row]:
    """The table, with what holds of the newest release first, then what it violates.

    Args:
        verdicts: the verdicts of earlier commands; those on models count.
        registry: the models.
        releases: the columns, the newest first; the repaired rules are the last column.
    """
    known = {(verdict.check, verdict.name): verdict for verdict in verdicts}
    checking: dict[tuple[str, str], list[Model]] = {}
    for model in registry.models.values():
        for name in (*model.invariants, *model.properties):
            if name != model.expect.violates:
                checking.setdefault((model.module, name), []).append(model)
    rows = []
    for (module, name), models in sorted(checking.items()):
        cells = {
            f"Kafka {release}": _of_release(name, models, release, releases, known) for release in releases.releases
        }
        cells[REPAIRED] = _joined([_repaired(name, model, known) for model in models])
        rows.append(Row(module=module, name=name, cells=cells))
    newest = f"Kafka {releases.newest}"
    return sorted(rows, key=lambda row: _GROUPS.index(row.cells[newest].outcome))


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
        outcome = Outcome.OPEN
    elif verdict.standing is not Standing.OK:
        outcome = Outcome.DIFFERS
    elif found.startswith(_VIOLATED):
        outcome, expected = Outcome.VIOLATED, column.expected(releases)
        causes = expected.violates[name] if expected else ""
    elif found == SAYS_NOTHING:
        outcome = Outcome.SILENT
    rules = tuple(causes.split(", ")) if causes else ()
    return Cell(outcome=outcome, rules=rules, findings=tuple(releases.findings(causes)), models=(model.name,))


def _repaired(name: str, model: Model, known: Mapping[tuple[str, str], Verdict]) -> Cell:
    verdict = known.get(("model", model.name))
    if verdict is None:
        outcome = Outcome.OPEN
    elif verdict.standing is not Standing.OK:
        outcome = Outcome.DIFFERS
    else:
        outcome = Outcome.SILENT if name in model.silent else Outcome.HOLDS
    return Cell(outcome=outcome, models=(model.name,))


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
    )
