"""Outcomes of the mutants: the means by which each was killed, and how many of a module's conjuncts are noticed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from kafka_eos_checks.kit.verdict import Verdict

EXPECTED = "all killed or explained"


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


class Tried(Protocol):
    """A mutant that was tried."""

    @property
    def is_killed(self) -> bool:
        """Whether the mutant was noticed."""

    @property
    def entry(self) -> tuple[str, str]:
        """The entry of the registry that would explain why nothing can notice the mutant."""


_T = TypeVar("_T", bound=Tried)


class Score(Generic[_T]):
    """Mutants by their outcome.

    Attributes:
        killed: mutants that a check noticed.
        explained: mutants that nothing noticed, with an entry in the registry of equivalents.
        survivors: mutants that nothing noticed, without an entry.
        refuted: mutants that a check noticed although they have an entry.
    """

    def __init__(self, tried: Iterable[_T], reasons: Mapping[tuple[str, str], str]) -> None:
        every = list(tried)
        self.killed = [each for each in every if each.is_killed]
        self.refuted = [each for each in self.killed if each.entry in reasons]
        self.explained = [each for each in every if not each.is_killed and each.entry in reasons]
        self.survivors = [each for each in every if not each.is_killed and each.entry not in reasons]

    @property
    def ok(self) -> bool:
        """Whether every mutant is killed or explained, and no explanation is refuted."""
        return not self.survivors and not self.refuted

    @property
    def found(self) -> str:
        """The score in words."""
        named = ((self.explained, "equivalent"), (self.survivors, "survive"), (self.refuted, "refuted"))
        total = len(self.killed) + len(self.explained) + len(self.survivors)
        counts = "".join(f", {len(each)} {words}" for each, words in named if each)
        return f"{len(self.killed)} of {total} killed{counts}"


_KILLING = (Means.PROPERTY, Means.EVALUATION, Means.GRAPH, Means.MUTANT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome for one mutant, in the model with the strongest means.

    Attributes:
        operator: ``Module!Operator``, or a function of the reference.
        change: the replaced part and its replacement.
        place: line, or file and line.
        means: the means that distinguishes it from the spec.
        by: the property that it violates, the error, or the difference.
        model: the model that shows it.
        states: number of distinct states until it was noticed.
        depth: number of states of a shortest counterexample, or 0.
        seconds: wall time in all models.
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
    def is_killed(self) -> bool:
        """Whether something distinguishes the mutant from the spec."""
        return self.means.kills

    @property
    def entry(self) -> tuple[str, str]:
        """Operator and change, as in the registry of equivalents."""
        return self.operator, self.change

    @property
    def module(self) -> str:
        """The module that the operator stands in."""
        return self.operator.partition("!")[0]

    @property
    def name(self) -> str:
        """Operator and change."""
        return f"{self.operator}: {self.change}"


@dataclass(frozen=True, slots=True)
class Pair:
    """A property of a module, as a whole.

    Attributes:
        module: the module.
        name: the property.
        by: a mutant that no other property notices; "" without one.
        reason: why no mutant can be noticed by this property only, from the registry of equivalents; "" without entry.
    """

    module: str
    name: str
    by: str
    reason: str

    @property
    def ok(self) -> bool:
        """Whether the property is needed, or shown to follow from others."""
        return bool(self.by or self.reason)


def pairs(outcomes: Iterable[Outcome], reasons: Mapping[tuple[str, str], str]) -> list[Pair]:
    """The properties among the outcomes of their weaker versions, each with a mutant that no other one notices."""
    return [
        Pair(outcome.module, name, outcome.by if outcome.is_killed else "", reasons.get(outcome.entry, ""))
        for outcome in outcomes
        if outcome.change == f"{(name := outcome.operator.partition('!')[2])} -> TRUE"
    ]


def verdicts(check: str, outcomes: Iterable[Outcome], reasons: Mapping[tuple[str, str], str]) -> list[Verdict]:
    """A verdict for each module.

    Args:
        check: the kind of check.
        outcomes: the outcomes of all mutants.
        reasons: (operator, change) -> why nothing can distinguish it from the spec.
    """
    by_module: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_module.setdefault(outcome.module, []).append(outcome)
    return [_verdict(check, module, own, reasons) for module, own in by_module.items()]


def _verdict(check: str, module: str, outcomes: Sequence[Outcome], reasons: Mapping[tuple[str, str], str]) -> Verdict:
    score = Score(outcomes, reasons)
    figures: dict[str, int | float | str] = {"score": f"{len(score.killed)}/{len(outcomes)}"}
    counts = {means: sum(outcome.means is means for outcome in outcomes) for means in _KILLING}
    figures |= {str(means): count for means, count in counts.items() if count or means is not Means.MUTANT}
    lines = [f"survives: {line}" for line in map(tell, score.survivors)]
    lines += [f"killed, though the registry calls it equivalent: {line}" for line in map(tell, score.refuted)]
    lines += [f"equivalent: {tell(o)}\n    {reasons[o.entry]}" for o in score.explained]
    lines += [f"killed: {line}" for line in map(tell, score.killed)]
    return Verdict(
        check=check,
        name=module,
        expected=EXPECTED,
        found=score.found,
        ok=score.ok,
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
