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
from kafka_eos_checks.models.findings import read_findings
from kafka_eos_checks.models.registry import Model, Registry, Shipped
from kafka_eos_checks.models.releases import CHECK, SAYS_NOTHING, Column, Releases, columns, reached_findings

REPAIRED = "repaired"
AUDIT = "audit"  # in the place of the module, for a rule of the audit
AUDIT_CHECK = "audit-release"  # the kind of the verdicts on rules of the audit by release
RECORDING_CHECK = "replay"  # the kind of those on recordings of real brokers
FINDS_NOTHING = "finds nothing"
_VIOLATED = "violated"
_NAMED = 2  # so many findings are named in a cell


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
        unjudged: the models of the deep tier without a verdict in this column.
        failures: the known failures: models, without any other rule, in which the property must break.
        excepted: those of the failures that show a finding: model -> id of the finding.
        unreached: ids of the findings of the release that no step of these models can come upon, although the modules
            have Kafka's rules behind them: of these the property says nothing.
        expected: the words that the registry expects, for a cell that is not checked.
    """

    outcome: Outcome
    rules: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    shared: bool = False
    unjudged: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    excepted: Mapping[str, str] = field(default_factory=dict)
    unreached: tuple[str, ...] = ()
    expected: str = ""

    @property
    def words(self) -> str:
        """The cell in words."""
        if self.outcome is Outcome.VIOLATED:
            return f"violated: {', '.join(self.findings or self.rules)}"
        if self.outcome is Outcome.OPEN and self.expected:
            return f"{self.outcome}, expected: {self.expected}"
        if self.outcome is not Outcome.HOLDS:
            return self.outcome.value
        words = "holds, by the same rules" if self.shared else self.outcome.value
        except_in = list(dict.fromkeys(self.excepted.values()))
        if others := len(self.failures) - len(self.excepted):
            except_in.append(f"in {counted(others, 'known failure')}")
        if except_in:
            words += f", except {', '.join(except_in)}"
        if self.unreached:
            few = len(self.unreached) <= _NAMED
            words += f"; not reached: {', '.join(self.unreached) if few else counted(len(self.unreached), 'finding')}"
        return words

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
            "excepted": dict(self.excepted),
            "unreached": list(self.unreached),
            "expected": self.expected,
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
    shipped = {
        f"Kafka {release}": {each.model.name: each for each in columns(registry.models.values(), [release], releases)}
        for release in releases.releases
    }
    upon = {
        column: {name: reached_findings(each, releases) for name, each in found.items() if not each.outside}
        for column, found in shipped.items()
    }
    unstated = _unstated(registry, releases)

    def cell_of(
        name: str, models: Sequence[Model], column: str, verdicts: Mapping[tuple[str, str], Verdict] | None
    ) -> Cell:
        if column == REPAIRED:
            return _joined([_repaired(name, model, verdicts) for model in models])
        cell = _of_release(name, [shipped[column][model.name] for model in models], releases, verdicts)
        if cell.outcome is not Outcome.HOLDS:
            return cell
        left_out = unstated.get((column, models[0].module), set())
        return replace(cell, unreached=tuple(sorted(left_out.union(_unreached(cell, upon[column])))))

    rows = []
    evidence = {model: finding.id for finding in read_findings() for model in finding.models}
    for (module, name), models in sorted(checking.items()):
        cells = {}
        for column in (*shipped, REPAIRED):
            own = failing.get((module, name), [])
            broken = tuple(model.name for model in own if column == REPAIRED or model.name in upon[column])
            excepted = {model: evidence[model] for model in broken if model in evidence}
            cell = replace(cell_of(name, models, column, known), failures=broken, excepted=excepted)
            if cell.outcome is Outcome.OPEN:
                expected = replace(cell_of(name, models, column, None), failures=broken, excepted=excepted)
                cell = replace(cell, expected=expected.words)
            cells[column] = cell
        rows.append(Row(module=module, name=name, cells=cells))
    rows += audit_rules(known, releases)
    newest = f"Kafka {releases.newest}"

    def group(row: Row) -> tuple[int, bool, bool]:
        cell = row.cells[newest]
        return _GROUPS.index(cell.outcome), row.module == AUDIT, cell.expected.startswith(_VIOLATED)

    return sorted(rows, key=group)


def audit_rules(known: Mapping[tuple[str, str], Verdict], releases: Releases) -> list[Row]:
    """A row for each rule of the audit: whether a log of a healthy Kafka violates it, and by which finding.

    A cell has what the rule found in simulations with the rules of the release, and in recordings of it. What an
    operator or an application did in a recording is not the release's doing.
    """
    columns_of = {f"Kafka {name}": name for name in releases.releases} | {REPAIRED: REPAIRED}
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
                and str(verdict.figures.get("Kafka", "")).rpartition(".")[0] == release
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
    name: str, found: Sequence[Column], releases: Releases, known: Mapping[tuple[str, str], Verdict] | None
) -> Cell:
    """The cell of a property for a release.

    Args:
        name: of the property.
        found: the models that check it, by the rules of the release.
        releases: the releases.
        known: the verdicts; None for what the registry expects.
    """
    cells = []
    for each in found:
        if each.outside:
            cells.append(Cell(outcome=Outcome.OUTSIDE, models=(each.model.name,)))
        elif each.rules:
            cells.append(_shipped(name, each, releases, known))
        else:
            repaired = _repaired(name, each.model, known)
            cells.append(Cell(outcome=repaired.outcome, models=repaired.models, shared=True))
    return _joined(cells)


def _unreached(cell: Cell, upon: Mapping[str, tuple[frozenset[str], frozenset[str]]]) -> frozenset[str]:
    """The findings that no step of the models of a cell can come upon.

    Args:
        cell: the cell.
        upon: model -> see :func:`reached_findings`.
    """
    reached, unreached = zip(*(upon[name] for name in cell.models), strict=True)
    return frozenset().union(*unreached).difference(*reached)


def _unstated(registry: Registry, releases: Releases) -> dict[tuple[str, str], set[str]]:
    """The findings of a release that no rule of ``spec/releases.toml`` states, by column and module.

    A mutant of the module shows such a finding. So no model of the module, and of those that take its rules over, does.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for finding in read_findings():
        shown = {registry.mutants[name].module for name in finding.models if name in registry.mutants}
        shown |= {module for module, others in releases.instances.items() if shown.intersection(others)}
        for release in releases.releases:
            if release in finding.concerns:
                for module in shown:
                    found.setdefault((f"Kafka {release}", module), set()).add(finding.id)
    return found


def _shipped(name: str, column: Column, releases: Releases, known: Mapping[tuple[str, str], Verdict] | None) -> Cell:
    model, expected = column.model, column.expected(releases)
    if known is None:
        outcome = _expected(name, model, expected)
    else:
        verdict = known.get((CHECK, column.name))
        found = "" if verdict is None else str(verdict.figures.get(name, ""))
        if verdict is None or not found:
            outcome = _missing(model)
        elif verdict.standing is not Standing.OK:
            outcome = Outcome.DIFFERS
        elif found.startswith(_VIOLATED):
            outcome = Outcome.VIOLATED
        else:
            outcome = Outcome.SILENT if found == SAYS_NOTHING else Outcome.HOLDS
    causes = expected.violates[name] if expected and outcome is Outcome.VIOLATED else ""
    rules = tuple(causes.split(", ")) if causes else ()
    findings = tuple(releases.findings(model.module, causes))
    return Cell(outcome=outcome, rules=rules, findings=findings, models=(model.name,))


def _expected(name: str, model: Model, expected: Shipped | None) -> Outcome:
    """The outcome that the registry expects of a model by the rules of a release."""
    if expected is None:
        return Outcome.UNJUDGED
    if name in expected.violates:
        return Outcome.VIOLATED
    return Outcome.SILENT if name in (*model.silent, *expected.silent) else Outcome.HOLDS


def _repaired(name: str, model: Model, known: Mapping[tuple[str, str], Verdict] | None) -> Cell:
    verdict = None if known is None else known.get(("model", model.name))
    if verdict is None and known is not None:
        outcome = _missing(model)
    elif verdict is not None and verdict.standing is not Standing.OK:
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
