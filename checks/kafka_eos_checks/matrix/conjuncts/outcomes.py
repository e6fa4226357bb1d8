"""Outcomes of the mutants: the means by which each was killed, and how many of a module's guards are noticed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kafka_eos_checks.kit.verdict import Verdict


class Means(StrEnum):
    """The means that distinguish a mutant from the spec, the strongest first."""

    PROPERTY = "property"
    EVALUATION = "evaluation error"
    GRAPH = "graph"
    MUTANT = "mutant"
    NONE = "nothing"
    UNDECIDED = "not decided"

    @property
    def kills(self) -> bool:
        """Whether the mutant is distinguished from the spec."""
        return self in _KILLING


_KILLING = (Means.PROPERTY, Means.EVALUATION, Means.GRAPH, Means.MUTANT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome for one mutant, in the model that says most about it.

    Attributes:
        operator: ``Module!Operator``, or a function of the reference.
        change: the replaced part and its replacement.
        place: line, or file and line.
        means: how it is distinguished from the spec.
        by: the property that it violates, the error, or the difference.
        model: the model that shows it.
        states: distinct states up to there.
        depth: states of the shortest way there, or 0.
        seconds: wall time, in all models.
    """

    operator: str
    change: str
    place: str
    means: Means
    by: str = ""
    model: str = ""
    states: int = 0
    depth: int = 0
    seconds: float = 0.0

    @property
    def module(self) -> str:
        """The module that the operator stands in."""
        return self.operator.partition("!")[0]

    @property
    def name(self) -> str:
        """Operator and change."""
        return f"{self.operator}: {self.change}"


def verdicts(check: str, outcomes: Iterable[Outcome], reasons: Mapping[tuple[str, str], str]) -> list[Verdict]:
    """One verdict for each module.

    Args:
        check: kind of check.
        outcomes: the outcomes of all mutants.
        reasons: (operator, change) -> why nothing can distinguish it from the spec.
    """
    by_module: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_module.setdefault(outcome.module, []).append(outcome)
    return [_verdict(check, module, own, reasons) for module, own in by_module.items()]


def _verdict(check: str, module: str, outcomes: Sequence[Outcome], reasons: Mapping[tuple[str, str], str]) -> Verdict:
    killed = [outcome for outcome in outcomes if outcome.means.kills]
    left = [outcome for outcome in outcomes if not outcome.means.kills]
    explained = [outcome for outcome in left if (outcome.operator, outcome.change) in reasons]
    survivors = [outcome for outcome in left if outcome not in explained]
    refuted = [outcome for outcome in killed if (outcome.operator, outcome.change) in reasons]
    found = f"{len(killed)} of {len(outcomes)} killed"
    for count, words in ((len(explained), "equivalent"), (len(survivors), "survive"), (len(refuted), "refuted")):
        found += f", {count} {words}" if count else ""
    figures: dict[str, int | float | str] = {"score": f"{len(killed)}/{len(outcomes)}"}
    counts = {means: sum(outcome.means is means for outcome in outcomes) for means in _KILLING}
    figures |= {str(means): count for means, count in counts.items() if count or means is not Means.MUTANT}
    lines = [f"survives: {line}" for line in map(tell, survivors)]
    lines += [f"killed, though the registry calls it equivalent: {line}" for line in map(tell, refuted)]
    lines += [f"equivalent: {tell(o)}\n    {reasons[o.operator, o.change]}" for o in explained]
    lines += [f"killed: {line}" for line in map(tell, killed)]
    return Verdict(
        check=check,
        name=module,
        expected="all killed or explained",
        found=found,
        ok=not survivors and not refuted,
        seconds=sum(outcome.seconds for outcome in outcomes),
        figures=figures,
        evidence="\n".join(lines),
    )


def tell(outcome: Outcome) -> str:
    """An outcome in one line."""
    words = {Means.PROPERTY: f"violates {outcome.by}", Means.NONE: "nothing differs"}
    how = words.get(outcome.means, f"{outcome.means}: {outcome.by}")
    where = f" in {outcome.model}" if outcome.model else ""
    counts = f", {outcome.states:,} states" if outcome.states else ""
    counts += f", depth {outcome.depth}" if outcome.depth else ""
    return f"{outcome.place} {outcome.name}: {how}{where}{counts}"
