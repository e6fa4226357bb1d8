"""A spec without one of its conjuncts: its steps against the reference's graph, and TLC's runs."""

import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from threading import Lock
from time import monotonic

from kafka_eos_checks.matrix.conjuncts import edges as graphs
from kafka_eos_checks.matrix.conjuncts.edges import Edges, NotComparable, difference, edges_of
from kafka_eos_checks.matrix.conjuncts.guards import Conjunct, conjuncts, without
from kafka_eos_checks.matrix.conjuncts.outcomes import Means, Outcome
from kafka_eos_checks.matrix.conjuncts.sightings import has_machine
from kafka_eos_checks.models.registry import (
    Configuration,
    Model,
    Registry,
    plain_configuration,
    read_modules,
    write_model,
)
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.result_cache import (
    ResultCache,
    fingerprint,
    folder_fingerprint,
    python_fingerprint,
    spec_fingerprint,
)
from kafka_eos_checks.tla.sany import Definition, parse

LIMIT = "MoreStatesThanTheSpec__"
FINGERPRINT = ("-fp", "0")  # the same hash function in every run, so that the states of two dumps can be compared
TIERS = ("small", "full")
_COMPARED_BY = (graphs.__name__, "kafka_eos_checks.models.bounds", edges_of.__module__)
_OUT_OF_RESOURCES = ("OutOfMemory", "StackOverflow", "GC overhead")
_EVALUATING = "The error occurred when TLC was evaluating"


class UnusableMutant(ValueError):  # noqa: N818 - named for the mutant
    """TLC cannot read a mutated module, or the unchanged model does not hold, so no outcome is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A conjunct, and the models that can notice that it is missing.

    Attributes:
        conjunct: the conjunct.
        text: its module without it.
        models: sorted by cost; those of the small tier come before those of the full tier.
    """

    conjunct: Conjunct
    text: str
    models: tuple[Model, ...]

    @property
    def module(self) -> str:
        """The module of the conjunct."""
        return self.conjunct.span.module

    @property
    def place(self) -> tuple[str, str]:
        """Operator and change, as in ``spec/conjuncts.toml``."""
        return self.conjunct.operator, self.conjunct.change


def spec_modules(registry: Registry) -> set[str]:
    """The modules that some model needs. SANY alone knows which of them have conjuncts."""
    folder = ModuleFolder(registry.folder.parent)
    return set(folder.closure({model.module for model in _usable(registry)}))


def _usable(registry: Registry) -> list[Model]:
    return [model for model in registry.models.values() if not model.expect.violates and model.tier in TIERS]


def subjects(registry: Registry, modules: Collection[str] = ()) -> list[Subject]:
    """The conjuncts of all modules that some model of the registry reaches, by module and line.

    Args:
        registry: the registry.
        modules: the modules that count, or none for all. The conjuncts of some others come, too.
    """
    by_module: dict[str, list[Model]] = {}
    for model in _merged(_usable(registry)):
        by_module.setdefault(model.module, []).append(model)
    reached: dict[Conjunct, list[Model]] = {}
    texts: dict[str, str] = {}
    for module, models in by_module.items():
        own = texts_of(registry.folder.parent, module)
        if modules and own.keys().isdisjoint(modules):
            continue
        texts |= own
        specifications = {model.specification for model in models}
        for conjunct in conjuncts(parsed(tuple(sorted(own.items())), module), own, specifications):
            reached.setdefault(conjunct, []).extend(models)
    return [
        Subject(
            conjunct=conjunct,
            text=without(texts[conjunct.span.module], conjunct),
            models=tuple(sorted(models, key=lambda m: (TIERS.index(m.tier), _cost(m)))),
        )
        for conjunct, models in sorted(reached.items(), key=lambda pair: pair[0].span)
    ]


def _cost(model: Model) -> int:
    """The cost of a run of a model: the states that it generates."""
    return model.expect.generated or 0


def _merged(models: Iterable[Model]) -> list[Model]:
    """Merge models that search the same states into one, with the properties of all of them."""
    alike: dict[tuple[str, ...], Model] = {}
    for model in sorted(models, key=lambda model: TIERS.index(model.tier)):
        choices = str((sorted(model.constants.items()), sorted(model.overrides.items())))
        searched = (model.module, choices, model.bounds, model.specification)
        first = alike.get(searched, model)
        alike[searched] = replace(
            first,
            invariants=tuple(dict.fromkeys(first.invariants + model.invariants)),
            properties=tuple(dict.fromkeys(first.properties + model.properties)),
        )
    return list(alike.values())


def texts_of(folder: Path, module: str) -> dict[str, str]:
    """The texts of a module and of those that it needs, by their names."""
    modules = ModuleFolder(folder)
    return {name: modules.text(name) for name in modules.closure([module])}


@cache  # SANY takes a CPU second for each module, and a command needs the result twice
def parsed(texts: tuple[tuple[str, str], ...], module: str) -> Mapping[str, Definition]:
    """The definitions of a module and of those that it needs, by id.

    Args:
        texts: the names and texts of all of them.
        module: its name.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-eos-conjuncts-") as name:
        for other, text in texts:
            (Path(name) / f"{other}.tla").write_text(text, encoding="utf-8")
        return parse(Path(name), module)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The fields of :class:`kafka_eos_checks.tla.tlc.Result` that count here."""

    verdict: str
    error: str = ""
    states: int = 0
    generated: int = 0
    depth: int = 0
    seconds: float = 0.0

    @property
    def has_no_value(self) -> bool:
        """Whether TLC came upon an expression without a value. Any other error says something about this run alone."""
        out_of_resources = any(word in self.error for word in _OUT_OF_RESOURCES)
        return self.verdict == "fails an assertion" or (_EVALUATING in self.error and not out_of_resources)

    @property
    def is_decided(self) -> bool:
        """Whether another run of the same model would end in the same way."""
        return self.verdict in {"holds", "deadlocks"} or self.verdict.startswith("violates") or self.has_no_value


@dataclass(slots=True)
class Search:
    """A search that runs TLC on mutants and on the unchanged models that they are compared with.

    Attributes:
        cache: the results of earlier runs.
        timeout: seconds for one run.
        thorough: whether to search for a violated property even after the graph has distinguished a mutant.
    """

    cache: ResultCache
    timeout: float = 120.0
    thorough: bool = True
    _references: dict[str, _Run] = field(default_factory=dict)
    _edges: dict[str, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def judge(self, subject: Subject, on_model: Callable[[str], None] = lambda _: None) -> Outcome:
        """The outcome for a mutant.

        If a mutant has the spec's states in a model, its edges are compared before another model is run. When thorough,
        the models of the small tier are run until a property is violated or TLC fails to evaluate it, even after the
        graph has distinguished the mutant. The full tier is run only if the small one sees nothing. When not thorough,
        the cheapest model comes first, and the first that distinguishes the mutant is enough.

        Raises:
            UnusableMutant: when TLC cannot read the mutated module, or an unchanged model does not hold.
        """
        best = _nothing(subject)
        looks: list[Outcome] = []
        for model in subject.models if self.thorough else sorted(subject.models, key=_cost):
            if best.means in (_FINAL if self.thorough and model.tier == TIERS[0] else _KILLED):
                break
            on_model(model.name)
            looks.append(self._states_in(model, subject, best))
            best = min(best, looks[-1], key=_strength)
            if looks[-1].means is Means.NONE and not best.means.kills:
                best = min(best, self._edges_in(model, subject, best), key=_strength)
        return replace(best, seconds=sum(look.seconds for look in looks))

    def compared(
        self, subjects: Sequence[Subject], on_model: Callable[[str], None] = lambda _: None
    ) -> Iterator[Outcome | Subject]:
        """The outcomes that the graphs of the machines decide, the cheapest model first; other subjects are for TLC.

        Every graph is made once, and compared with all subjects that are not killed yet. A subject that is left has
        only the models that cannot be compared.
        """
        left = {subject.place: subject for subject in subjects}
        uncompared: dict[tuple[str, str], list[Model]] = {}
        seconds: dict[tuple[str, str], float] = dict.fromkeys(left, 0.0)
        every = {model.name: model for subject in subjects for model in subject.models}
        for model in sorted(every.values(), key=_cost):
            edges: list[Edges] = []
            for place, subject in tuple(left.items()):
                if model not in subject.models:
                    continue
                on_model(f"{model.name}, {len(left)} of {len(subjects)} left")
                began = monotonic()
                means, by = self._difference(model, subject, edges)
                seconds[place] += monotonic() - began
                if means is Means.UNDECIDED:
                    uncompared.setdefault(place, []).append(model)
                elif means is not Means.NONE:
                    del left[place]
                    found = replace(_nothing(subject), means=means, by=by, model=model.name)
                    yield replace(found, states=model.expect.states or 0, seconds=seconds[place])
        for place, subject in left.items():
            if place in uncompared:
                yield replace(subject, models=tuple(uncompared[place]))
            else:
                yield replace(_nothing(subject), seconds=seconds[place])

    def _difference(self, model: Model, subject: Subject, edges: list[Edges]) -> tuple[Means, str]:
        """The verdict of the graph of a model's machine, UNDECIDED if only TLC can tell; it is made when needed."""
        if not has_machine(model):
            return Means.UNDECIDED, ""
        key = fingerprint(
            subject.text,
            spec_fingerprint(model.spec, read_modules(model)),
            python_fingerprint((model.machine_class().__module__, *_COMPARED_BY)),
            sorted({**model.constants, **model.overrides}.items()),
            model.bounds,
        )
        known = self.cache.get(key)
        if known is None:
            try:
                if not edges:
                    edges.append(edges_of(model))
                means, by = difference(edges[0], subject.module, subject.conjunct.operator, subject.text)
            except NotComparable as error:
                means, by = Means.UNDECIDED, str(error)
            known = {"means": means.value, "by": by}
            self.cache.put(key, known)
        return Means(known["means"]), str(known["by"])

    def _states_in(self, model: Model, subject: Subject, outcome: Outcome) -> Outcome:
        """The outcome after the properties and the states of one model."""
        reference = self.reference(model)
        if reference.verdict == "times out":
            return replace(outcome, means=Means.UNDECIDED, by=f"the model itself {reference.error}", model=model.name)
        run = self._run(model, subject, most=reference.states + reference.states // 2 + 500)
        means, by = self._compare(model, subject, run, reference)
        return replace(
            outcome, means=means, by=by, model=model.name, states=run.states, depth=run.depth, seconds=run.seconds
        )

    def _compare(self, model: Model, subject: Subject, run: _Run, reference: _Run) -> tuple[Means, str]:
        """The means by which a run kills the mutant, with its reason."""
        found = run.verdict
        if found == f"violates {LIMIT}":
            return Means.GRAPH, f"more states than the spec's {reference.states:,}"
        if found.startswith("violates"):
            return Means.PROPERTY, _property(model, found)
        if found == "deadlocks":
            return Means.PROPERTY, "absence of deadlock"
        if run.has_no_value and run.depth:
            return Means.EVALUATION, _reason(run.error)
        if found != "holds":
            resources = any(word in run.error for word in _OUT_OF_RESOURCES)
            if not run.depth and found != "times out" and not resources:
                raise UnusableMutant(f"{subject.conjunct.name}: TLC cannot read the module without it\n{run.error}")
            return Means.UNDECIDED, (run.error.strip().splitlines() or [found])[0]
        if run.states != reference.states:
            return Means.GRAPH, f"{run.states:,} states, the spec has {reference.states:,}"
        return Means.NONE, ""

    def _edges_in(self, model: Model, subject: Subject, outcome: Outcome) -> Outcome:
        """The outcome after the edges of one model in which the mutant has the spec's states."""
        edges, own = self._edges_of(model, subject), self._edges_of(model)
        if edges is None or own is None:
            return replace(outcome, means=Means.UNDECIDED, by="TLC does not write the graph in time", model=model.name)
        means, by = (Means.NONE, "") if edges == own else (Means.GRAPH, "the same states, other edges")
        return replace(outcome, means=means, by=by, model=model.name)

    def reference(self, model: Model) -> _Run:
        """The run of the unchanged model.

        Raises:
            UnusableMutant: when it does not hold.
        """
        with self._lock:
            found = self._references.get(model.name)
        if found is None:
            found = self._run(model)
            if found.verdict not in {"holds", "times out"}:
                raise UnusableMutant(f"{model.name} itself {found.verdict}: {found.error}")
            with self._lock:
                self._references[model.name] = found
        return found

    def _run(self, model: Model, subject: Subject | None = None, most: int | None = None) -> _Run:
        """The result of a run, or the kept result of an earlier one.

        If the first means is enough, no property of a mutant is checked, because that takes most of TLC's time, and a
        mutant that violates a property also has another graph. An earlier run that checked properties serves as well.
        """
        plain = plain_configuration(model)
        definitions = ""
        if most is not None:
            plain = replace(plain, invariants=(*plain.invariants, LIMIT))
            definitions = f'{LIMIT} == TLCGet("distinct") <= {most}'
        with tempfile.TemporaryDirectory(prefix="kafka-eos-conjunct-") as name:
            root = _write(model, plain, definitions, subject, Path(name))
            key = folder_fingerprint(Path(name))
            known = self.cache.get(key)
            if known is not None:
                return _Run(**known)
            if subject is not None and not self.thorough and (model.invariants or model.properties):
                return self._run(replace(model, invariants=(), properties=()), subject, most)
            result = tlc.run(tlc.Job(folder=Path(name), module=root, timeout=self.timeout, short=_is_short(model)))
        run = _Run(
            verdict=result.verdict,
            error=result.error,
            states=result.distinct,
            generated=result.generated,
            depth=len(result.behaviour),
            seconds=result.seconds,
        )
        if run.is_decided:
            self.cache.put(key, {name: getattr(run, name) for name in _Run.__slots__})
        return run

    def _edges_of(self, model: Model, subject: Subject | None = None) -> str | None:
        """A hash of all labelled edges, or None when TLC does not write them in time.

        The number of edges would not do: TLC counts an edge twice if a guard is true for two reasons.
        """
        configuration = Configuration(specification=model.specification, constraint=model.bounds)
        with tempfile.TemporaryDirectory(prefix="kafka-eos-conjunct-") as name:
            folder = Path(name)
            root = _write(model, configuration, "", subject, folder)
            key = folder_fingerprint(folder)
            with self._lock:
                known = self._edges.get(key) or (self.cache.get(key) or {}).get("edges")
            if known is not None:
                return str(known)
            dump = folder / "graph.dot"
            job = tlc.Job(
                folder=folder,
                module=root,
                dump=dump,
                timeout=self.timeout,
                arguments=FINGERPRINT,
                short=_is_short(model),
            )
            result = tlc.run(job)
            if result.verdict == "times out":
                return None
            if result.verdict != "holds":
                raise UnusableMutant(f"{model.name}: TLC {result.verdict} while it writes the graph\n{result.error}")
            lines = {
                line.partition(",color")[0] for line in dump.read_text(encoding="utf-8").split("\n") if " -> " in line
            }
        edges = fingerprint(*sorted(lines))
        with self._lock:
            self._edges[key] = edges
        self.cache.put(key, {"edges": edges})
        return edges


_FINAL = frozenset({Means.PROPERTY, Means.EVALUATION})
_KILLED = _FINAL | {Means.GRAPH}


def _nothing(subject: Subject) -> Outcome:
    """The outcome for a mutant that nothing notices."""
    conjunct = subject.conjunct
    return Outcome(
        operator=conjunct.operator,
        change=conjunct.change,
        place=f"{conjunct.span.module}.tla:{conjunct.span.line}",
        means=Means.NONE,
    )


def _strength(outcome: Outcome) -> int:
    """The rank of an outcome's means. A model that sees nothing ranks after one whose run did not end."""
    order: Sequence[Means] = (Means.PROPERTY, Means.EVALUATION, Means.GRAPH, Means.UNDECIDED, Means.NONE)
    return order.index(outcome.means)


def _property(model: Model, verdict: str) -> str:
    """The violated property; TLC does not name a temporal one."""
    nameless = verdict == "violates a temporal property" or verdict.startswith("violates line ")
    return " or ".join(model.properties) if nameless else verdict.removeprefix("violates ")


def _reason(error: str) -> str:
    """The text of an evaluation error, without the words that all such errors have."""
    reason = error.rpartition("\n: ")[2].partition("\nThe error occurred")[0]
    return re.sub(r"[\[<].*[\]>]", "[…]", " ".join(reason.split()))[:120]


def _is_short(model: Model) -> bool:
    return (model.expect.states or 0) < 20_000


def _write(model: Model, configuration: Configuration, definitions: str, subject: Subject | None, folder: Path) -> str:
    """Write a model with its module replaced by the mutated one, and return the root module's name."""
    folder, root = write_model(model, configuration, definitions, suffix="_conjunct", folder=folder)
    if subject is not None:
        assert subject.module in ModuleFolder(model.spec).closure(read_modules(model))
        (folder / f"{subject.module}.tla").write_text(subject.text, encoding="utf-8")
    return root
