r"""The properties of a spec, made weaker one part at a time: then some mutant has to pass that did not pass before.

One search of a mutant's graph judges all properties and all their weaker versions (``sightings``). A weaker version is
noticed when some mutant violates the property and not the weaker version, or when the spec itself violates what was to
be weaker. A changed quantifier is also noticed when a counterexample needs more states then: a fault that can happen in
one place can happen in all, one after the other, and ``\E`` sees only the last one. ``P -> TRUE`` is noticed when ``P``
is the only property of its model that some mutant violates. Mutants are the named ones, the known failures, and the
machine with one part of a guard or of an effect changed, or with an action that nobody has to take. The spec itself
is searched in the fewest models that check all properties, and in the others for what is still open in the end.
"""

import ast
import inspect
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from kafka_eos.machines.machine import Machine
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks.matrix.conjuncts import sightings
from kafka_eos_checks.matrix.conjuncts.changes import OTHER_QUANTIFIER, machine_parts, of_operands
from kafka_eos_checks.matrix.conjuncts.equations import Numbers, of_equations
from kafka_eos_checks.matrix.conjuncts.guards import Conjunct, numbered, of_formula, on_one_line, without
from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.matrix.conjuncts.reference import GuardPart, codes_of, mutated_reference, original_code
from kafka_eos_checks.matrix.conjuncts.search import TIERS, parsed, texts_of
from kafka_eos_checks.matrix.conjuncts.sets import Values, of_sets
from kafka_eos_checks.matrix.conjuncts.sightings import Searcher, Sighting, has_machine
from kafka_eos_checks.matrix.conjuncts.spec_steps import NotEvaluable
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry, extended_modules, rule_modules
from kafka_eos_checks.mutants.rules import MUTANTS, mutated
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import Tree, parse_expression
from kafka_eos_checks.tla.result_cache import ResultCache, fingerprint, python_fingerprint, spec_fingerprint
from kafka_eos_checks.tla.sany import ACTION_LEVEL, QUANTIFIERS, SQUARE_ACTION, Definition, Expression, Span

MOST_STATES = 20_000  # of a named mutant's graph
_MOST_CHANGED = 6_500  # of a model in which a machine is changed part by part
_NOTHING = Span("", 0, 0, 0, 0)
_TEMPORAL = ACTION_LEVEL + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A property, or a weaker version of it.

    Attributes:
        name: the property's name.
        change: the part and its replacement; None for the property itself.
        tree: the formula; None for ``P -> TRUE``, which nothing violates.
        place: file and line.
    """

    name: str
    change: Conjunct | None
    tree: Tree | None
    place: str

    @property
    def of_quantifier(self) -> bool:
        """Whether it is weaker because of another quantifier."""
        return self.change is not None and self.change.value in OTHER_QUANTIFIER


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A changed machine.

    Attributes:
        label: the name of the entry, or the change; "" for the machine as it is.
        model: the model in which it is searched, with all properties that count.
        part: the changed part of the reference, or None.
        unfair: the fairness condition that is left out, or "".
        is_spare: whether it is searched only for a weaker version that nothing else notices and nothing explains.
    """

    label: str
    model: Model
    part: GuardPart | None = None
    unfair: str = ""
    is_spare: bool = False

    @property
    def is_named(self) -> bool:
        """Whether the registry of models has it."""
        return self.part is None and not self.unfair


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The models of one module, its properties with their weaker versions, and its mutants.

    Attributes:
        module: the module.
        versions: each property, followed by its weaker versions.
        mutants: the spec itself first, then the named ones, then the changed machines. The spec itself comes in several
            models, the cheapest first; together they check all properties. Last come its other models, which are spare.
    """

    module: str
    versions: tuple[Version, ...]
    mutants: tuple[Mutant, ...]


@dataclass(frozen=True, slots=True)
class _Kinds:
    """Three questions about a module: which sets have one value, and which expressions are numbers, or which strings.

    Attributes:
        is_single: whether a constant of this name is a set of one value in all models.
        is_number: whether an expression is a number for certain.
        values: the strings that an expression may be.
    """

    is_single: Callable[[str], bool]
    is_number: Callable[[Expression], bool]
    values: Values


def families(registry: Registry, modules: Sequence[str] = (), named: bool = False) -> Iterator[Family]:
    """The families of these modules, or of all whose holding models have a machine; the cheapest module first.

    Args:
        registry: the registry.
        modules: names of modules; none for all.
        named: whether the registry's own mutants and failures are enough.
    """
    holding = _holding(registry)
    for name in sorted(holding, key=lambda each: min(model.expect.generated or 0 for model in holding[each])):
        if not modules or name in modules:
            yield _family(registry, name, holding[name], named)


def judged_modules(registry: Registry) -> set[str]:
    """The modules whose properties are judged."""
    return set(_holding(registry))


def places(registry: Registry, modules: Container[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Module, operator and change of each weaker version, as in ``spec/conjuncts.toml``; no mutant's text is made.

    Args:
        registry: the registry.
        modules: names of modules; none for all.
    """
    for module, models in _holding(registry).items():
        if modules and module not in modules:
            continue
        for version in _all_versions(registry, module, models):
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


def _all_versions(registry: Registry, module: str, holding: Iterable[Model]) -> tuple[Version, ...]:
    """The versions of all properties that these models check."""
    names = dict.fromkeys(name for model in holding for name in (*model.invariants, *model.properties))
    texts = texts_of(registry.folder.parent, module)
    definitions = parsed(tuple(sorted(texts.items())), module)
    chain = {each.name for each in ModuleFolder(registry.folder.parent).chain(module)}
    numbers, values = Numbers(definitions, texts), Values(definitions, texts)
    kinds = _Kinds(_single(registry, module).__contains__, numbers.is_number, values)
    return tuple(version for name in names for version in _versions(name, module, definitions, texts, chain, kinds))


def _single(registry: Registry, module: str) -> frozenset[str]:
    """The constants of a module that are sets of one value in all its models and mutants."""
    entries = [each for each in (*registry.models.values(), *registry.mutants.values()) if each.module == module]
    several = {name for each in entries for name, more in _sets(each).items() if more}
    return frozenset(name for each in entries for name in _sets(each)) - several


def _sets(model: Model) -> Mapping[str, bool]:
    """The constants of a model that are sets, by name, and whether each has more than one value."""
    trees = {name: parse_expression(written, model.source) for name, written in model.constants.items()}
    return {name: len(tree[1]) > 1 for name, tree in trees.items() if tree[0] == "set" and tree[1]}


def _family(registry: Registry, module: str, holding: Sequence[Model], named: bool) -> Family:
    versions = _all_versions(registry, module, holding)
    cheapest = [_with_all(model) for model in sorted(holding, key=_cost)]
    chosen = _covering(cheapest, _ranges(registry, module, holding))
    mutants = [Mutant(label="", model=model) for model in chosen]
    for entry in (*registry.models.values(), *registry.mutants.values()):
        if entry.module == module and entry.expect.violates and entry.tier in TIERS:
            every = dict.fromkeys((*_claimed(registry, entry, holding), entry.expect.violates))
            mutants.append(Mutant(label=entry.name, model=replace(entry, invariants=tuple(every), properties=())))
    if not named and has_machine(chosen[0]):
        mutants += _changed(chosen)
    mutants += [Mutant(label="", model=model, is_spare=True) for model in cheapest if model not in chosen]
    return Family(module=module, versions=versions, mutants=tuple(mutants))


def _changed(chosen: Sequence[Model]) -> Iterator[Mutant]:
    """The changes of a machine and of its fairness, in the models that are small enough."""
    small = [model for model in chosen if (model.expect.states or 0) <= _MOST_CHANGED]
    for model in chosen:
        for name in Searcher(model, [_call(name) for name in model.invariants]).fairness:
            yield Mutant(label=f"{model.specification}: {name} -> TRUE", model=model, unfair=name)
    own = rule_modules(chosen[0].machine_class())
    parts = [part for module in own for part in machine_parts(module) if not part.function.startswith("Constants.")]
    for model in small:
        yield from (Mutant(label=part.name, model=model, part=part) for part in parts)


def _call(name: str) -> Tree:
    return ("call", name, ())


def _claimed(registry: Registry, entry: Model, holding: Iterable[Model]) -> Iterator[str]:
    """The properties that a mutant may violate: those of its model; for a known failure, those of the models like it.

    A model is like a failure if it has the same specification and the same constants that are ``TRUE`` or ``FALSE``: a
    property need not hold in another mode. If no model is like it, all of its specification are.
    """
    if entry.model:
        about = [registry.models[entry.model]]
    else:
        same = [model for model in holding if model.specification == entry.specification]
        about = [model for model in same if _modes(model) == _modes(entry)] or same
    for model in about:
        yield from (*model.invariants, *model.properties)


def _modes(model: Model) -> Mapping[str, str]:
    return {name: value for name, value in model.constants.items() if value in {"TRUE", "FALSE"}}


def _ranges(registry: Registry, module: str, models: Iterable[Model]) -> Mapping[str, frozenset[str]]:
    """The names of constants that the quantifiers of each property range over."""
    names = {name for model in models for name in (*model.invariants, *model.properties)}
    definitions = parsed(tuple(sorted(texts_of(registry.folder.parent, module).items())), module).values()
    return {
        each.name: frozenset(
            bound.operator for part in each.body.walk() if part.operator in QUANTIFIERS for bound in part.bounds
        )
        for each in definitions
        if each.name in names
    }


def _covering(models: Iterable[Model], ranges: Mapping[str, frozenset[str]]) -> tuple[Model, ...]:
    """Models, the cheapest first, that together check every property, over sets of more than one value if they can.

    A model that adds nothing is left out.

    Args:
        models: models of one module, the cheapest first, with all their properties as invariants.
        ranges: a property -> the constants that its quantifiers range over.
    """
    chosen: list[Model] = []
    covered: set[tuple[str, str]] = set()
    for model in models:
        several = {name for name, more in _sets(model).items() if more} | {""}
        checked = [name for name in model.invariants if name not in model.silent]
        own = {(name, constant) for name in checked for constant in several & (ranges[name] | {""})}
        if not own <= covered:
            covered |= own
            chosen.append(model)
    return tuple(chosen)


def _cost(model: Model) -> tuple[int, int]:
    return TIERS.index(model.tier), model.expect.generated or 0


def _with_all(model: Model) -> Model:
    """A model with all its properties as invariants."""
    return replace(model, invariants=(*model.invariants, *model.properties), properties=())


def _versions(
    name: str,
    module: str,
    definitions: Mapping[str, Definition],
    texts: Mapping[str, str],
    chain: Container[str],
    kinds: _Kinds,
) -> Iterator[Version]:
    """A property and its weaker versions, if it stands in the module itself or in one of those that it extends."""
    bodies = [definition.body for definition in definitions.values() if definition.name == name]
    body = min(bodies, key=lambda each: each.span.module not in chain)  # an instance may have one of the same name
    place = f"{body.span.module}.tla:{body.span.line}"
    whole = Conjunct(operator=f"{module}!{name}", change=f"{name} -> TRUE", span=_NOTHING, value="TRUE")
    yield Version(name=name, change=None, tree=_call(name), place=place)
    yield Version(name=name, change=whole, tree=None, place=place)
    if body.span.module not in chain:
        return  # the specification that is refined, or a property of an instance, which is weakened in its own module
    part, text = _step(body) or body, texts[body.span.module]
    for change in _weaker(name, module, part, text, kinds):
        if change.span != part.span or change.value != "TRUE":
            line = f"{change.span.module}.tla:{change.span.line}"
            yield Version(name=name, change=change, tree=_tree(text, body.span, change), place=line)


def _step(body: Expression) -> Expression | None:
    """The action A of a formula ``[][A]_v``; None for others."""
    found = [part for part in body.walk() if part.operator == SQUARE_ACTION]
    return found[0].operands[0] if len(found) == 1 and body.operator == "[]" else None


def _weaker(name: str, module: str, body: Expression, text: str, kinds: _Kinds) -> list[Conjunct]:
    changed = (*of_operands(body, text, kinds.is_single), *of_equations(body, text, kinds.is_number))
    parts = dict.fromkeys((*of_formula(body), *changed, *of_sets(body, text, kinds.values)))
    found = [
        Conjunct(operator=f"{module}!{name}", change=f"{on_one_line(text, span)} -> {value}", span=span, value=value)
        for span, value in parts
        if body.level < _TEMPORAL or value not in OTHER_QUANTIFIER
    ]
    return numbered(sorted(found, key=lambda change: (change.span, change.value)))


def _tree(text: str, body: Span, change: Conjunct) -> Tree:
    """The body of a property with one part changed; every column stays what it was."""
    longer = 0
    if change.span.line == change.span.end_line == body.end_line:
        longer = max(0, len(change.value) - (change.span.end_column - change.span.column + 1))
    lines = without(text, change).split("\n")[body.line - 1 : body.end_line]
    lines[-1] = lines[-1][: body.end_column + longer]
    lines[0] = " " * (body.column - 1) + lines[0][body.column - 1 :]
    return parse_expression("\n".join(lines), f"{change.operator} with {change.change}")


@dataclass(slots=True)
class PropertySearch:
    """Searches of mutants, each kept.

    Attributes:
        cache: the results of earlier searches.
        follows: (operator, change) of ``P -> TRUE`` -> the properties that P is said to follow from. A mutant that
            violates P and none of those refutes it, if its model checks one of them and all its states were met. A
            property also notices a mutant alone if all others that it violates follow from this property.
        explained: (operator, change) of the weaker versions that nothing can notice, as ``spec/conjuncts.toml`` says.
        most: the most states of a named mutant that are searched. What is violated behind them is not known.
    """

    cache: ResultCache
    follows: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    explained: Container[tuple[str, str]] = frozenset()
    most: int = MOST_STATES
    _searchers: dict[str, Searcher] = field(default_factory=dict)
    _machines: dict[str, type[Machine] | None] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)

    def judge(self, family: Family, on_search: Callable[[str], None] = lambda _: None) -> list[Outcome]:
        """The outcome for each weaker version of a family's properties, in their order."""
        versions = family.versions
        places = {place for place, version in enumerate(versions) if version.change is not None}
        noticed: dict[int, tuple[Mutant, Sighting]] = {}
        cut: Counter[str] = Counter()  # searches that ended at the limit, for each property
        failed: dict[str, str] = {}  # a named mutant that has no value in the middle, for each property
        others: dict[int, set[str]] = {}  # whole property -> those that are violated wherever it is
        for number, mutant in enumerate(family.mutants, start=1):
            waiting = {
                versions[place].name
                for place in places - noticed.keys()
                if not mutant.is_spare or self._is_open(versions[place])
            }
            if (mutant.label or mutant.is_spare) and waiting.isdisjoint(mutant.model.invariants):
                continue
            on_search(f"{number:,} of {len(family.mutants):,}: {mutant.label or 'the spec'} in {mutant.model.name}")
            sighting = self.sighting(mutant, versions)
            if sighting.states > self._most_states(mutant):
                cut.update(mutant.model.invariants)
            if sighting.failed and mutant.is_named:
                failed |= dict.fromkeys(mutant.model.invariants, f"{mutant.label} is not evaluated: {sighting.failed}")
            for place in places - noticed.keys():
                if self._notices(mutant, sighting, versions, place, others):
                    noticed[place] = mutant, sighting
        return [
            self._noticed(versions[place], *noticed[place])
            if place in noticed
            else self._unnoticed(versions[place], others.get(place), cut, failed)
            for place in sorted(places)
        ]

    def _is_open(self, version: Version) -> bool:
        """Whether the spec itself may notice a version that nothing has noticed yet, and no reason says otherwise."""
        assert version.change is not None
        return version.tree is not None and (version.change.operator, version.change.change) not in self.explained

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
        if version.name not in violated or not sighting.whole:
            return False
        if version.tree is not None:
            if place in sighting.violated and version.of_quantifier:
                return sighting.violated[own] < sighting.violated[place]
            return place not in sighting.violated
        violated.discard(version.name)
        others[place] = others[place] & violated if place in others else violated
        assert version.change is not None
        module = version.change.operator.partition("!")[0]
        follows = self._follows(module, version.name)
        if follows and follows.isdisjoint(mutant.model.invariants):
            return False
        if follows:
            return violated.isdisjoint(follows) and sighting.states <= self._most_states(mutant)
        checked = set(mutant.model.invariants)
        return all(self._follows(module, other) & checked == {version.name} for other in violated)

    def _follows(self, module: str, name: str) -> frozenset[str]:
        return self.follows.get((f"{module}!{name}", f"{name} -> TRUE"), frozenset())

    def sighting(self, mutant: Mutant, versions: Sequence[Version]) -> Sighting:
        """The outcome of a search, or of an earlier one that was the same.

        Raises:
            MalformedRegistry: when the machine as it is violates a property, or is not the model's.
        """
        model = mutant.model
        part = (mutant.part.name, ast.dump(mutant.part.tree)) if mutant.part else ()
        most = self._most_states(mutant)
        key = fingerprint(self._key(model, versions), mutant.unfair, *part)
        known = self.cache.get(key)
        if known is not None and min(known["states"], most) <= known.get("most", 0):
            violated = {int(place): level for place, level in known["violated"].items()}
            return Sighting(violated, known["whole"], known["failed"], known["states"])
        try:
            found = self._search(mutant, self._searcher(model, versions), most)
        except NotEvaluable as error:
            found = Sighting({}, whole=False, failed=str(error), states=0)
        if not mutant.label:
            self._check(model, found, versions)
        self.cache.put(key, {**asdict(found), "most": most})
        return found

    def _search(self, mutant: Mutant, searcher: Searcher, most: int) -> Sighting:
        machine = self._machine(mutant.model)
        if mutant.part is None:
            return searcher.search(machine, most, (mutant.unfair,))
        searcher.keep(machine, codes_of(rule_modules(mutant.model.machine_class())))
        code = original_code(mutant.part.module, mutant.part.function)
        with mutated_reference(mutant.part):
            return searcher.search(machine, most, changed=code)

    def _unnoticed(
        self, version: Version, others: set[str] | None, cut: Mapping[str, int], failed: Mapping[str, str]
    ) -> Outcome:
        """The outcome for a weaker version that nothing notices, with what may be why."""
        by = []
        if version.tree is None:
            also = ", ".join(sorted(others or ())) or "one or another"
            by.append("no mutant violates it" if others is None else f"also {also}")
        if number := cut.get(version.name, 0):
            by.append(f"{number} searches ended at their limit")
        if version.name in failed:
            by.append(failed[version.name])
        means = Means.UNDECIDED if version.name in failed else Means.NONE
        return replace(_outcome(version), means=means, by=", ".join(by))

    def _noticed(self, version: Version, mutant: Mutant, sighting: Sighting) -> Outcome:
        """The outcome for a weaker version that is noticed; says if the search ended at the limit of its states."""
        behind = f", in its first {sighting.states:,} states" if sighting.states > self._most_states(mutant) else ""
        return replace(
            _outcome(version),
            means=Means.MUTANT,
            by=(mutant.label or "the spec") + behind,
            model=mutant.model.name,
            states=sighting.states,
        )

    def _machine(self, model: Model) -> type[Machine] | None:
        """The machine of a model: one class, so that states of two searches can be equal."""
        if model.name not in self._machines:
            self._machines[model.name] = _machine(model)
        return self._machines[model.name]

    def _most_states(self, mutant: Mutant) -> int:
        """The limit of a search. A named mutant may have more states than its model, and their number is not known."""
        if not has_machine(mutant.model):
            return MOST_STATES
        return self.most if mutant.label and mutant.is_named else 2 * (mutant.model.expect.states or 0) + 500

    def _check(self, model: Model, found: Sighting, versions: Sequence[Version]) -> None:
        wrong = [versions[place].name for place in found.violated if versions[place].change is None]
        if wrong or not found.whole or found.states != model.expect.states:
            what = f"violates {', '.join(wrong)}" if wrong else found.failed or f"{found.states} states"
            raise MalformedRegistry(f"{model.source}: the machine as it is differs from the model: {what}")

    def _searcher(self, model: Model, versions: Sequence[Version]) -> Searcher:
        found = self._searchers.get(model.name)
        if found is None:
            trees = [version.tree if version.name in model.invariants else None for version in versions]
            found = self._searchers[model.name] = Searcher(model, trees)
        return found

    def _key(self, model: Model, versions: Sequence[Version]) -> str:
        """The fingerprint of what a search depends on besides the mutant: spec, model, versions, machine, this code."""
        found = self._keys.get(model.name)
        if found is None:
            folder = ModuleFolder(model.spec)
            machine = [model.machine_class().__module__] if has_machine(model) else []
            found = self._keys[model.name] = fingerprint(
                spec_fingerprint(model.spec, [model.module]),
                python_fingerprint((*machine, sightings.__name__, "kafka_eos_checks.models.bounds")),
                *(part for rule in sorted(model.overrides.items()) for part in _override(model, folder, *rule)),
                sorted({**model.constants, **model.overrides}.items()),
                model.bounds,
                model.specification,
                sorted(model.invariants),
                *(version.change.change if version.change else version.name for version in versions),
            )
        return found


def _outcome(version: Version) -> Outcome:
    assert version.change is not None
    change = version.change
    return Outcome(operator=change.operator, change=change.change, place=version.place, means=Means.NONE)


def _machine(model: Model) -> type[Machine] | None:
    """The reference's machine, if there is one, with the rules that a model replaces.

    Rules that only properties use have no method.
    """
    if not has_machine(model):
        return None
    cls = model.machine_class()
    owners = [cls, *(getattr(cls, part) for part in ("LOG", "LIMITS") if hasattr(cls, part))]
    own = {r: other for r, other in model.overrides.items() if any(hasattr(owner, snake_case(r)) for owner in owners)}
    return mutated(cls, own) if own else cls


def _override(model: Model, folder: ModuleFolder, rule: str, other: str) -> Iterator[str]:
    """The texts of an operator that replaces another one, in TLA+ with all that it needs, and in Python."""
    home = next(name for name in reversed(extended_modules(model)) if other in folder.operators(name))
    for name in sorted(folder.reached(home, other)):
        yield f"{name} {folder.operators(home)[name][1].body}"
    function = MUTANTS.get(snake_case(other))
    yield inspect.getsource(function) if function else rule
