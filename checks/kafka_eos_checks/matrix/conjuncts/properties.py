r"""The properties of a spec, made weaker one part at a time: then some mutant has to pass that did not pass before.

A run of TLC evaluates all properties of a model and all their weaker versions, and goes on when one is violated. It
reports each violation once, with the length of its counterexample. So one run of a mutant tells which properties notice
it. A weaker version is noticed when some mutant violates the property but not the weaker version, or when the spec
itself violates the changed version, which then is not weaker. A changed quantifier is also noticed when its
counterexample needs more states: a fault that can happen in one place can happen in all, one after the other, and only
the last one violates ``\E``. ``P -> TRUE`` is noticed when ``P`` is the only property of its model that some mutant
violates. Mutants are the named ones, the known failures, and the spec with one part of a guard, of an effect or of its
fairness changed.
"""

import re
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kafka_eos_checks.matrix.conjuncts.changes import OTHER_QUANTIFIER, of_effects, of_operands
from kafka_eos_checks.matrix.conjuncts.guards import Conjunct, conjuncts, numbered, of_formula, on_one_line, without
from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.matrix.conjuncts.search import TIERS, parsed, texts_of
from kafka_eos_checks.models.registry import Configuration, Model, Registry, write_model
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.result_cache import ResultCache, folder_fingerprint
from kafka_eos_checks.tla.sany import SQUARE_ACTION, STATE_LEVEL, Definition, Expression, Span

_REGISTER = 3001
_SAID = "violated: "
_TOLD = re.compile(rf'<<"{_SAID}(\d+)", (\d+)>>')
_LIMIT = "EnoughStates__"
_MOST_STATES = 30_000  # a named mutant's run ends after this many states: a shortest counterexample needs fewer
_NOTHING = Span("", 0, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A property, or a weaker version of it.

    Attributes:
        name: the property's name.
        change: the part and its replacement; None for the property itself.
        text: TLA+ that defines ``{operator}``. It is always true, and prints ``{said}`` once when the property is
            violated, with the help of the register ``{register}``. "" for a version that no run watches: a temporal
            property, which gets a run of its own, and ``P -> TRUE``, which nothing violates.
        place: file and line.
        of_steps: whether the property is a formula about steps.
    """

    name: str
    change: Conjunct | None
    text: str
    place: str
    of_steps: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the weaker version says nothing at all."""
        return self.change is not None and self.change.span == _NOTHING

    @property
    def of_quantifier(self) -> bool:
        """Whether it is weaker because of another quantifier."""
        return self.change is not None and self.change.value in OTHER_QUANTIFIER


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A changed spec.

    Attributes:
        label: the name of the entry, or the change; "" for the spec itself.
        model: the model in which it is searched, with all properties that count.
        module: the module whose text is changed, or "".
        text: the changed text.
    """

    label: str
    model: Model
    module: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """The violations that a run saw.

    Attributes:
        violated: place in the list of versions that the run was given -> the states of a shortest counterexample.
        whole: whether the run ended, or reached the limit of states; otherwise nothing is known of the other versions.
        failed: whether TLC could not evaluate something.
        states: number of distinct states.
    """

    violated: Mapping[int, int]
    whole: bool
    failed: bool
    states: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The models of one module, its properties with their weaker versions, and its mutants.

    Attributes:
        module: the module.
        versions: each property, followed by its weaker versions.
        mutants: the spec itself first, then the named ones, then the changes of guards, effects and fairness. The spec
            itself comes in several models, the cheapest first; together they check all properties.
    """

    module: str
    versions: tuple[Version, ...]
    mutants: tuple[Mutant, ...]

    def named(self) -> "Family":
        """The family without the changes of guards, effects and fairness."""
        return replace(self, mutants=tuple(mutant for mutant in self.mutants if not mutant.module))


def families(registry: Registry, modules: Sequence[str] = ()) -> list[Family]:
    """The families of these modules, or of all that a holding model is about."""
    return [
        _family(registry, name, models) for name, models in _holding(registry).items() if not modules or name in modules
    ]


def places(registry: Registry) -> Iterator[tuple[str, str, str]]:
    """Module, operator and change of each weaker version, as in ``spec/conjuncts.toml``; no mutant's text is made."""
    for module, models in _holding(registry).items():
        texts = texts_of(registry.folder.parent, module)
        for version in _all_versions(module, models, parsed(tuple(sorted(texts.items())), module), texts):
            if version.change:
                yield module, version.change.operator, version.change.change


def _holding(registry: Registry) -> Mapping[str, Sequence[Model]]:
    """The holding models of each module; ``check proofs --minimal`` has those of the proofs."""
    proofs = {path.stem for path in (registry.folder.parent / "proofs").glob("*.tla")}
    holding: dict[str, list[Model]] = {}
    for model in registry.models.values():
        if not model.expect.violates and model.tier in TIERS and model.module not in proofs:
            holding.setdefault(model.module, []).append(model)
    return holding


def _all_versions(
    module: str, holding: Iterable[Model], definitions: Mapping[str, Definition], texts: Mapping[str, str]
) -> tuple[Version, ...]:
    """The versions of all properties that these models check."""
    names = dict.fromkeys(name for model in holding for name in (*model.invariants, *model.properties))
    return tuple(version for name in names for version in _versions(name, module, definitions, texts))


def _family(registry: Registry, module: str, holding: Sequence[Model]) -> Family:
    texts = texts_of(registry.folder.parent, module)
    definitions = parsed(tuple(sorted(texts.items())), module)
    versions = _all_versions(module, holding, definitions, texts)
    chosen = _covering(holding)
    mutants = [Mutant(label="", model=model) for model in chosen]
    for entry in (*registry.models.values(), *registry.mutants.values()):
        if entry.module == module and entry.expect.violates and entry.tier in TIERS:
            every = dict.fromkeys((*_claimed(registry, entry, holding), entry.expect.violates))
            mutants.append(Mutant(label=entry.name, model=replace(entry, invariants=tuple(every), properties=())))
    specifications = {model.specification for model in holding}
    changes = conjuncts(definitions, texts, specifications) + of_effects(definitions, texts, specifications)
    for change in changes:
        try:
            text = without(texts[change.span.module], change)
        except ValueError:  # the change would move a list of conjuncts
            continue
        mutants += [Mutant(label=change.name, model=each, module=change.span.module, text=text) for each in chosen]
    return Family(module=module, versions=versions, mutants=tuple(mutants))


def _claimed(registry: Registry, entry: Model, holding: Iterable[Model]) -> Iterator[str]:
    """The properties that a mutant may violate: those of its model; for a known failure, all of its specification."""
    about = [registry.models[entry.model]] if entry.model else holding
    for model in about:
        if entry.model or model.specification == entry.specification:
            yield from (*model.invariants, *model.properties)


def _covering(models: Iterable[Model]) -> tuple[Model, ...]:
    """Models, the cheapest first, that together check every property; a model that adds no property is left out."""
    chosen: list[Model] = []
    covered: set[str] = set()
    for model in sorted(models, key=lambda each: (TIERS.index(each.tier), each.expect.generated or 0)):
        own = {name for name in (*model.invariants, *model.properties) if name not in model.silent}
        if not own <= covered:
            covered |= own
            chosen.append(replace(model, invariants=(*model.invariants, *model.properties), properties=()))
    return tuple(chosen)


def _versions(
    name: str, module: str, definitions: Mapping[str, Definition], texts: Mapping[str, str]
) -> Iterator[Version]:
    """A property and its weaker versions."""
    body = next(definition.body for definition in definitions.values() if definition.name == name)
    step = _step(body)
    place = f"{body.span.module}.tla:{body.span.line}"
    whole = Conjunct(operator=f"{module}!{name}", change=f"{name} -> TRUE", span=_NOTHING, value="TRUE")
    if body.span.module not in texts or (step is None and body.level > STATE_LEVEL):
        yield Version(name=name, change=None, text="", place=place)
        yield Version(name=name, change=whole, text="", place=place)
        return
    part, text, of_steps = step or body, texts[body.span.module], step is not None
    watched = _watched(text, body.span, part.span, None)
    yield Version(name=name, change=None, text=watched, place=place, of_steps=of_steps)
    yield Version(name=name, change=whole, text="", place=place, of_steps=of_steps)
    for change in _weaker(name, module, part, text):
        if change.span != part.span or change.value != "TRUE":
            try:
                watched = _watched(text, body.span, part.span, change)
            except ValueError:  # the change would move a list of conjuncts
                continue
            line = f"{change.span.module}.tla:{change.span.line}"
            yield Version(name=name, change=change, text=watched, place=line, of_steps=of_steps)


def _step(body: Expression) -> Expression | None:
    """The action A of a formula ``[][A]_v``, possibly under quantifiers; None for other formulas."""
    found = [part for part in body.walk() if part.operator == SQUARE_ACTION]
    return found[0].operands[0] if len(found) == 1 and body.operator == "[]" else None


def _weaker(name: str, module: str, body: Expression, text: str) -> list[Conjunct]:
    parts = dict.fromkeys((*of_formula(body), *of_operands(body, text)))
    found = [
        Conjunct(operator=f"{module}!{name}", change=f"{on_one_line(text, span)} -> {value}", span=span, value=value)
        for span, value in parts
    ]
    return numbered(sorted(found, key=lambda change: (change.span, change.value)))


def _watched(text: str, whole: Span, part: Span, change: Conjunct | None) -> str:
    """The body of a property as a formula that prints when its part is false; every column stays the same."""
    longer = 0
    if change is not None:
        text = without(text, change)
        on_line = change.span.line == change.span.end_line == part.end_line
        longer = max(0, len(change.value) - (change.span.end_column - change.span.column + 1)) if on_line else 0
    lines = text.split("\n")

    def piece(line: int, column: int, end_line: int, end_column: int) -> list[str]:
        """The text from one place to another, the end excluded; columns count from 0."""
        cut = lines[line - 1 : end_line]
        cut[-1] = cut[-1][:end_column]
        cut[0] = " " * column + cut[0][column:]
        return cut

    end = part.end_column + longer
    after = whole.end_column + (longer if whole.end_line == part.end_line else 0)
    indent = " " * (part.column - 1)
    return "\n".join(
        [
            "{operator} ==",
            *piece(whole.line, whole.column - 1, part.line, part.column - 1),
            indent + "(TLCGet({register}) \\/ (",
            *(_escaped(line) for line in piece(part.line, part.column - 1, part.end_line, end)),
            indent + ') \\/ (TLCSet({register}, TRUE) /\\ PrintT(<<"{said}", TLCGet("level")>>)))',
            *(_escaped(line) for line in piece(part.end_line, end, whole.end_line, after)),
        ]
    )


def _escaped(line: str) -> str:
    return line.replace("{", "{{").replace("}", "}}")


@dataclass(slots=True)
class PropertySearch:
    """Runs of mutants, each kept.

    Attributes:
        cache: the results of earlier runs.
        timeout: seconds for one run.
    """

    cache: ResultCache
    timeout: float = 120.0

    def judge(self, family: Family, on_run: Callable[[str], None] = lambda _: None) -> list[Outcome]:
        """The outcome for each weaker version of a family's properties, in their order."""
        versions = family.versions
        places = {place for place, version in enumerate(versions) if version.change is not None}
        noticed: dict[int, tuple[Mutant, Sighting]] = {}
        others: dict[int, set[str]] = {}  # whole property -> those that are violated wherever it is
        for mutant, place in self._without_value(family):
            noticed[place] = mutant, Sighting({}, False, True, 0)
        left_out = frozenset(noticed)
        for mutant in family.mutants:
            waiting = {versions[place].name for place in places - noticed.keys()}
            if mutant.label and waiting.isdisjoint(mutant.model.invariants):
                continue
            on_run(mutant.label or mutant.model.name)
            sighting = self.sighting(mutant, versions, left_out)
            for place in places - noticed.keys():
                if self._notices(mutant, sighting, versions, place, others):
                    noticed[place] = mutant, sighting
        return [_outcome(versions[place], noticed.get(place), others.get(place)) for place in sorted(places)]

    def _without_value(self, family: Family) -> Iterator[tuple[Mutant, int]]:
        """The weaker versions that TLC cannot evaluate in some state of the spec itself: they would end every run."""
        weaker = [place for place, version in enumerate(family.versions) if version.change and version.text]
        for mutant in family.mutants:
            if not mutant.label:
                own = [place for place in weaker if family.versions[place].name in mutant.model.invariants]
                yield from ((mutant, place) for place in self._failing(mutant, family.versions, own))

    def _failing(self, mutant: Mutant, versions: Sequence[Version], places: Sequence[int]) -> Iterator[int]:
        """The versions among these that end a run in which no others are watched, found by bisection."""
        others = frozenset(range(len(versions))) - frozenset(places)
        if not places or not self.sighting(mutant, versions, others).failed:
            return
        if len(places) == 1:
            yield places[0]
            return
        half = len(places) // 2
        yield from self._failing(mutant, versions, places[:half])
        yield from self._failing(mutant, versions, places[half:])

    def _notices(
        self, mutant: Mutant, sighting: Sighting, versions: Sequence[Version], place: int, others: dict[int, set[str]]
    ) -> bool:
        """Whether a run of a mutant notices that a version is weaker than its property."""
        version = versions[place]
        if version.name not in mutant.model.invariants:
            return False
        if not mutant.label:
            return place in sighting.violated
        own = next(i for i, each in enumerate(versions) if each.name == version.name and each.change is None)
        violated = {versions[i].name for i in sighting.violated if versions[i].change is None}
        if not versions[own].text and not violated and sighting.whole and self._breaks(mutant, version.name):
            violated = {version.name}
        if version.name not in violated or not sighting.whole:
            return False
        if not version.is_whole:
            if place in sighting.violated and version.of_quantifier:
                return sighting.violated[own] < sighting.violated[place]
            return place not in sighting.violated
        violated.discard(version.name)
        others[place] = others[place] & violated if place in others else violated
        return not violated

    def _breaks(self, mutant: Mutant, temporal: str) -> bool:
        """Whether a mutant violates a temporal property."""
        return str(self._run(mutant, "", (), (temporal,))["verdict"]).startswith("violates")

    def sighting(self, mutant: Mutant, versions: Sequence[Version], left_out: Container[int] = ()) -> Sighting:
        """The violations that a run of a mutant sees, or that an earlier run saw; some versions are not watched."""
        model = mutant.model
        watched = [
            (i, v) for i, v in enumerate(versions) if v.text and v.name in model.invariants and i not in left_out
        ]
        lines: list[str] = []
        invariants: list[str] = []
        properties: list[str] = []
        for place, version in watched:
            operator, register = f"Watch__{place}", _REGISTER + place
            lines.append(f"ASSUME TLCSet({register}, FALSE)")
            lines.append(version.text.format(operator=operator, register=register, said=f"{_SAID}{place}"))
            (properties if version.of_steps else invariants).append(operator)
        most = 2 * (model.expect.states or 0) + 500 if mutant.module else _MOST_STATES
        lines.append(f'{_LIMIT} == TLCGet("distinct") <= {most}')
        found = self._run(mutant, "\n".join(lines), (*invariants, _LIMIT), properties)
        whole = found["verdict"] in ("holds", f"violates {_LIMIT}")
        failed = not whole and found["verdict"] != "times out"
        return Sighting({int(place): level for place, level in found["levels"].items()}, whole, failed, found["states"])

    def _run(
        self, mutant: Mutant, definitions: str, invariants: Sequence[str], properties: Sequence[str]
    ) -> Mapping[str, Any]:
        """Verdict, states and violated versions of a run of TLC, or of an earlier one that was the same."""
        model = mutant.model
        configuration = Configuration(
            specification=model.specification,
            constraint=model.bounds,
            invariants=tuple(invariants),
            properties=tuple(properties),
        )
        with tempfile.TemporaryDirectory(prefix="kafka-eos-property-") as name:
            folder, root = write_model(model, configuration, definitions, suffix="_property", folder=Path(name))
            if mutant.module:
                (folder / f"{mutant.module}.tla").write_text(mutant.text, encoding="utf-8")
            key = folder_fingerprint(folder)
            known = self.cache.get(key)
            if known is None or "levels" not in known:
                result = tlc.run(tlc.Job(folder=folder, module=root, timeout=self.timeout))
                told = (found for line in result.prints if (found := _TOLD.search(line)))
                levels = {found[1]: int(found[2]) for found in told}
                known = {"verdict": result.verdict, "states": result.distinct, "levels": levels}
                self.cache.put(key, known)
        return known


def _outcome(version: Version, noticed: tuple[Mutant, Sighting] | None, others: set[str] | None) -> Outcome:
    """The outcome for one weaker version."""
    assert version.change is not None
    outcome = Outcome(
        operator=version.change.operator,
        change=version.change.change,
        place=version.place,
        means=Means.NONE,
    )
    if noticed is None:
        by = ""
        if version.is_whole:
            by = "no mutant violates it" if others is None else f"also {', '.join(sorted(others)) or 'one or another'}"
        return replace(outcome, by=by)
    mutant, sighting = noticed
    return replace(
        outcome,
        means=Means.MUTANT,
        by=mutant.label or "the spec",
        model=mutant.model.name,
        states=sighting.states,
    )
