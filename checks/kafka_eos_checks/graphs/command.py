"""Graph equality: the reference has exactly TLC's states, labelled edges and refusals.

The machine walks TLC's graph from its own initial state. In each state that it reaches every action instance is tried:
an edge of the graph must be allowed and land on its target, everything else must be refused. So the machine has TLC's
states and edges and no other: the comparison is complete. A difference is told as the shortest path to it.
"""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from time import monotonic
from typing import Any, get_type_hints

import numpy as np

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines import machine as machines
from kafka_eos.machines.spec_mapping import SpecValue, from_spec, snake_case, to_spec
from kafka_eos_checks.drawing.story import differences, tell
from kafka_eos_checks.graphs.state_graph import GraphUnusable, StateGraph, export, instance_text
from kafka_eos_checks.kit.arguments import add_json, at_least_one
from kafka_eos_checks.kit.terminal import print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.models.registry import TIERS, MalformedRegistry, Model, Registry, bounds_predicate
from kafka_eos_checks.models.releases import Releases, columns
from kafka_eos_checks.mutants.rules import UnknownRule, mutated
from kafka_eos_checks.tla.behaviour import Step
from kafka_eos_checks.tla.values import canonical

MAX_DIFFERENCES = 20  # kept with their place; the rest is counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A place where the machine differs from the spec.

    Attributes:
        state: place of the state in TLC's graph.
        instance: place of the action instance, or -1 when the state itself differs.
        what: the difference in words.
        target: place of the state that the spec goes to, or -1.
        found: the machine's next state by variable, or None.
        is_crash: whether the machine failed here, or a state could not be loaded into it. The reference may not. Of a
            mutant it says only that the mutant does not work.
    """

    state: int
    instance: int
    what: str
    target: int = -1
    found: dict[str, SpecValue] | None = None
    is_crash: bool = False


@dataclass(slots=True, kw_only=True)
class Comparison:
    """The result of a comparison of a machine with TLC's graph.

    Attributes:
        model: the model's name.
        states: states within the bounds.
        outside: states just outside the bounds, as targets only.
        edges: labelled edges that were compared.
        refusals: (state, instance) pairs that both refuse.
        differences: the first differences, nearest to the initial state first.
        difference_count: all of them.
        crash_count: those of them where the machine failed, or a state could not be loaded.
        evidence: the first difference as a story.
        untaken: actions that label no edge of the graph.
        seconds: wall time of the comparison, without TLC.
        tlc_seconds: wall time of TLC.
    """

    model: str
    states: int = 0
    outside: int = 0
    edges: int = 0
    refusals: int = 0
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    crash_count: int = 0
    evidence: str = ""
    untaken: frozenset[str] = frozenset()
    seconds: float = 0.0
    tlc_seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether the machine and TLC agree on everything."""
        return self.difference_count == 0

    @property
    def is_told_apart(self) -> bool:
        """Whether the machine does something else somewhere than the spec, and not only fails."""
        return self.difference_count > self.crash_count

    def add(self, difference: Difference) -> None:
        """Count a difference, and keep it while there are few of its kind."""
        self.difference_count += 1
        self.crash_count += difference.is_crash
        if sum(each.is_crash == difference.is_crash for each in self.differences) < MAX_DIFFERENCES:
            self.differences.append(difference)

    @property
    def figures(self) -> dict[str, int | float | str]:
        """The counts."""
        checked = self.edges + self.refusals
        return {
            "states": self.states,
            "edges": self.edges,
            "refusals": self.refusals,
            "checks_per_second": int(checked / self.seconds) if self.seconds else 0,
        }


class _Loader:
    """Loads rows of the state table into the machine; each distinct value of a variable is mapped once."""

    def __init__(self, machine: type[Any], constants: Any, variables: Sequence[str]) -> None:
        hints = get_type_hints(machine)
        self._names = [snake_case(name) for name in variables]
        self._hints = [hints[name] for name in self._names]
        self._known: list[dict[SpecValue, Any]] = [{} for _ in variables]
        self._context = machine.context(constants)
        self._machine: Callable[..., Any] = machine
        self._constants = constants

    def _field(self, place: int, value: SpecValue) -> Any:
        known = self._known[place]
        try:
            return known[value]
        except KeyError:
            loaded = from_spec(self._hints[place], value, self._context)
            back = canonical(to_spec(loaded))
            if back != canonical(value):
                raise TypeError(f"{self._names[place]}: {value!r} comes back as {back!r}") from None
            known[value] = loaded
            return loaded

    def load(self, row: Sequence[SpecValue]) -> Any:
        """The machine's state of a row.

        Raises:
            TypeError: when a value has no counterpart in the machine, or does not come back as it went in.
            KeyError: when it is an error code that the machine does not know.
        """
        given = {name: self._field(place, row[place]) for place, name in enumerate(self._names)}
        return self._machine(constants=self._constants, **given)


def _spec_state(state: Any) -> dict[str, SpecValue]:
    return {name: canonical(value) for name, value in machines.dump(state).items()}


def _row_state(graph: StateGraph, place: int) -> dict[str, SpecValue]:
    return {name: canonical(value) for name, value in graph.state(place).items()}


def _load_all(graph: StateGraph, machine: type[Any], constants: Any, comparison: Comparison) -> list[Any]:
    """Every state of the graph as the machine's, None where it cannot be loaded."""
    loader = _Loader(machine, constants, graph.variables)
    loaded: list[Any] = []
    for place, row in enumerate(graph.states):
        try:
            loaded.append(loader.load(row))
        except (TypeError, KeyError, ValueError) as error:
            loaded.append(None)
            what = f"the state cannot be loaded: {error}"
            comparison.add(Difference(state=place, instance=-1, what=what, is_crash=True))
    return loaded


_Call = tuple[int, str, tuple[Hashable, ...]]  # place of an instance, its method, its arguments


def _walk(
    graph: StateGraph,
    loaded: Sequence[Any],
    initial: Any,
    comparison: Comparison,
    on_progress: Callable[[int], None],
    enough: int | None,
) -> None:
    """Try every instance in every state within the bounds, in TLC's order: the nearest to the initial state first.

    A state is the one that the machine itself first reached, not the one that was loaded. So anything that the machine
    keeps besides the spec's variables is as the machine left it. After a difference the machine may never reach the
    state; then the loaded state is used.
    """
    calls = [(place, i.action.method, i.arguments) for place, i in enumerate(graph.instances)]
    reached: list[Any] = [None] * len(loaded)
    reached[graph.initial[0]] = initial
    for source in np.flatnonzero(graph.inside).tolist():
        if enough is not None and comparison.difference_count - comparison.crash_count >= enough:
            return
        if reached[source] is None and comparison.equal:
            what = "the machine does not reach it from its own initial state"
            comparison.add(Difference(state=source, instance=-1, what=what))
        if loaded[source] is not None:
            _try_all(graph, loaded, reached, source, calls, comparison)
        if source % 1000 == 0:
            on_progress(source)


def _try_all(
    graph: StateGraph,
    loaded: Sequence[Any],
    reached: list[Any],
    source: int,
    calls: Sequence[_Call],
    comparison: Comparison,
) -> None:
    """Try every instance in one state, and keep the states that it leads to."""
    state = loaded[source] if reached[source] is None else reached[source]
    expected: dict[int, int] = {}
    for label, target in graph.outgoing(source):
        if label in expected:
            what = "the spec has several next states for one action instance"
            comparison.add(Difference(state=source, instance=label, what=what, target=target))
        expected[label] = target
    for label, method, arguments in calls:
        target = expected.get(label, -1)
        found, is_crash = None, False
        try:
            after = getattr(state, method)(*arguments)
        except (NotEnabled, Rejected) as refusal:
            if target < 0:
                comparison.refusals += 1
                continue
            what = f"the spec allows it, the machine refuses: {refusal}"
        except Exception as error:  # noqa: BLE001 - whatever a machine under test raises is a difference
            what, is_crash = f"the machine fails with {type(error).__name__}: {error}", True
        else:
            if target >= 0 and after == loaded[target]:
                comparison.edges += 1
                if reached[target] is None:
                    reached[target] = after
                continue
            found = _spec_state(after)
            what = "the machine goes to another state than the spec"
            if target < 0:
                what = "the machine allows it, the spec does not"
        difference = Difference(state=source, instance=label, what=what, target=target, found=found, is_crash=is_crash)
        comparison.add(difference)


def _compare_bounds(
    graph: StateGraph, loaded: Sequence[Any], within_bounds: Callable[[Any], bool], comparison: Comparison
) -> None:
    for place, state in enumerate(loaded):
        if state is not None and within_bounds(state) != bool(graph.inside[place]):
            what = f"the bounds in Python say {not graph.inside[place]}, TLC's constraint {bool(graph.inside[place])}"
            comparison.add(Difference(state=place, instance=-1, what=what))


def compare(
    model: Model,
    machine: type[Any] | None = None,
    *,
    graph: StateGraph | None = None,
    within_bounds: Callable[[Any], bool] | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
    enough: int | None = None,
) -> Comparison:
    """Compare a machine with TLC's graph of a model.

    Args:
        model: the model.
        machine: the machine; by default the reference's own. A mutant of it must be told apart.
        graph: TLC's graph, if the caller has it.
        within_bounds: the Python twin of the model's bounds; by default the one of ``kafka_eos_checks.models.bounds``.
        on_progress: called now and then with a line that says how far it is.
        enough: stop at this many differences, if it only matters that there are some; crashes are not counted.

    Raises:
        GraphUnusable: when TLC gives no graph.
        MalformedRegistry: when the registry's entry does not fit the machine.
    """
    cls = machine or reference_of(model)
    if graph is None:
        graph = export(model, cls, on_progress=lambda p: on_progress(f"TLC: {p.distinct:,} states"))
    within = within_bounds or bounds_predicate(model)
    constants = model.machine_constants(cls)
    began = monotonic()
    comparison = Comparison(
        model=model.name,
        states=graph.states_inside,
        outside=len(graph.states) - graph.states_inside,
        tlc_seconds=graph.seconds,
    )
    taken = {graph.instances[place].action.name for place in set(graph.labels.tolist())}
    comparison.untaken = frozenset(action.name for action in machines.actions(cls)) - taken
    initial = cls.initial(constants)
    loaded = _load_all(graph, cls, constants, comparison)
    first = [loaded[place] for place in graph.initial if loaded[place] is not None]
    if first != [initial] and (first or comparison.equal):
        comparison.add(
            Difference(
                state=graph.initial[0],
                instance=-1,
                what="the initial states differ",
                target=graph.initial[0],
                found=_spec_state(initial),
            )
        )
    _compare_bounds(graph, loaded, within, comparison)
    total = f"{len(graph.states):,}"
    _walk(graph, loaded, initial, comparison, lambda done: on_progress(f"{done:,} of {total} states tried"), enough)
    comparison.seconds = monotonic() - began
    if comparison.differences:
        depth, _, _ = graph.tree
        comparison.differences.sort(key=lambda each: (each.is_crash, depth[each.state]))
        comparison.evidence = explain(graph, comparison)
    return comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedGraph:
    """TLC's graph with its states loaded into the machine, to be compared again after a change of the machine."""

    graph: StateGraph
    states: Sequence[Any]

    def first_difference(self) -> tuple[str, bool]:
        """The difference nearest to the initial state, "" when machine and graph are equal, and whether it is a crash.

        The initial states are equal, so it suffices that every instance does in every state what the graph says. A
        crash is the answer only if nothing else differs.
        """
        comparison = Comparison(model=self.graph.model)
        initial = self.states[self.graph.initial[0]]
        _walk(self.graph, self.states, initial, comparison, lambda _: None, enough=1)
        if comparison.equal:
            return "", False
        first = min(comparison.differences, key=lambda each: each.is_crash)
        return f"{instance_text(self.graph.instances[first.instance])}: {first.what}", first.is_crash


def reference_of(model: Model) -> type[machines.Machine]:
    """The reference's machine, with the rules that the model replaces."""
    return mutated(model.machine_class(), model.overrides) if model.overrides else model.machine_class()


def load_graph(model: Model) -> LoadedGraph:
    """Export the graph of a model and load it into the reference's machine.

    Raises:
        GraphUnusable: when TLC gives no graph, or the machine as it is differs from it.
        MalformedRegistry: when the registry's entry does not fit the machine.
    """
    cls = reference_of(model)
    graph = export(model, cls)
    comparison = Comparison(model=model.name)
    constants = model.machine_constants(cls)
    found = LoadedGraph(graph=graph, states=_load_all(graph, cls, constants, comparison))
    differs = not comparison.equal or [found.states[place] for place in graph.initial] != [cls.initial(constants)]
    difference = "a state cannot be loaded, or the initial ones differ" if differs else found.first_difference()[0]
    if difference:
        raise GraphUnusable(f"{model.name}: the reference differs from the spec as it is: {difference}")
    return found


def explain(graph: StateGraph, comparison: Comparison) -> str:
    """The nearest difference: the shortest path to it, then the two floors side by side."""
    difference = comparison.differences[0]
    steps = [
        Step("Init" if label < 0 else instance_text(graph.instances[label]), _row_state(graph, place))
        for label, place in graph.path_to(difference.state)
    ]
    return "\n".join([tell(steps), *_difference_lines(graph, difference), *_other_lines(graph, comparison)])


def _difference_lines(graph: StateGraph, difference: Difference) -> Iterator[str]:
    if difference.instance >= 0:
        yield f"then  {instance_text(graph.instances[difference.instance])}"
    yield f"      {difference.what}"
    before = _row_state(graph, difference.state)
    if difference.target >= 0:
        target = _row_state(graph, difference.target)
        if difference.found is not None:
            yield "      machine -> spec:"
            yield from (f"        {change}" for change in differences(difference.found, target))
            return
        yield "      in the spec:"
        yield from (f"        {change}" for change in differences(before, target))
    elif difference.found is not None:
        yield "      in the machine:"
        yield from (f"        {change}" for change in differences(before, difference.found))


def _other_lines(graph: StateGraph, comparison: Comparison) -> Iterator[str]:
    kinds: Counter[str] = Counter()
    for difference in comparison.differences:
        name = graph.instances[difference.instance].action.name if difference.instance >= 0 else "a state"
        kinds[f"{name}: {difference.what.partition(':')[0]}"] += 1
    yield f"{comparison.difference_count:,} differences in all; among the first {len(comparison.differences)}:"
    yield from (f"  {count:3d} x {kind}" for kind, count in kinds.most_common())


def conformance_verdict(model: Model, comparison: Comparison) -> Verdict:
    """The verdict on the reference itself, or on the reference with the rules of a mutant, if that is named as a model.

    The list ``never`` says what a model's own rules leave out. A mutant takes other steps, and has no list of its own.
    """
    found = "equal" if comparison.equal else f"{comparison.difference_count:,} differences"
    vacuous = set() if model.kind == "mutant" else comparison.untaken ^ set(model.never)
    if vacuous:
        found += f"; taken or not, against the registry's 'never': {', '.join(sorted(vacuous))}"
    return Verdict(
        check="graph",
        name=model.name,
        expected="equal",
        found=found,
        ok=comparison.equal and not vacuous and comparison.edges > 0 and comparison.refusals > 0,
        seconds=comparison.seconds + comparison.tlc_seconds,
        figures=comparison.figures,
        evidence=comparison.evidence,
        claims=model.claims,
        title=model.title,
    )


def mutant_verdict(mutant: Model, comparison: Comparison) -> Verdict:
    """The verdict on a mutant of the reference, whose graph has to differ. A mutant that only fails does not work."""
    nearest = comparison.differences[0].what if comparison.differences else ""
    told_apart = "told apart" if comparison.is_told_apart else nearest
    return Verdict(
        check="graph-mutant",
        name=mutant.name,
        expected="told apart",
        found="equal" if comparison.equal else told_apart,
        ok=comparison.is_told_apart,
        seconds=comparison.seconds,
        figures={"difference": nearest},
        evidence=comparison.evidence,
    )


EPILOG = """examples:
  kafka-eos check graphs                        every graph of the small tier
  kafka-eos check graphs PartitionLog --json build/conformance.json
  kafka-eos check graphs --mutant NoDuplicateCache
  kafka-eos check graphs --mutant all
  kafka-eos check graphs PartitionLog --kafka 4.3    both floors with the rules of Kafka 4.3 as it ships
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``graphs``."""
    parser = subparsers.add_parser(
        "graphs",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="models of the registry; default: all with a graph")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--mutant", action="append", default=[], metavar="ID", help="a mutant, made in the reference, or all"
    )
    what.add_argument(
        "--kafka", metavar="RELEASE", help="by the rules of this release of Kafka as it ships (spec/releases.toml)"
    )
    parser.add_argument("--tier", choices=TIERS, default="small", help="this tier and those before it (default small)")
    parser.add_argument("--jobs", type=at_least_one, metavar="N", help="graphs at a time (default: one a processor)")
    add_json(parser)
    parser.set_defaults(run=run)


def _mutants(registry: Registry, names: Sequence[str], models: Sequence[Model]) -> list[Model]:
    """The mutants that are asked for, where the graph of their model is compared."""
    if "all" in names:
        chosen = {model.name for model in models}
        return [mutant for mutant in registry.mutants.values() if mutant.model in chosen]
    mutants = [registry.get(name) for name in names]
    for mutant in mutants:
        if not registry.models[mutant.model].graph:
            raise MalformedRegistry(f"{mutant.source}: no graph of {mutant.model} is compared; give it a graph there")
    return mutants


def as_shipped(models: Sequence[Model], release: str) -> list[Model]:
    """The models with the rules of a release, without those that depend on no rule that the release has otherwise.

    Raises:
        MalformedRegistry: when the release is not known.
    """
    releases = Releases()
    found = columns(models, [releases.chosen(release, {model.module for model in models})], releases)
    return [replace(column.entry, never=column.never(releases)) for column in found if column.rules]


def run(arguments: argparse.Namespace) -> int:
    """Run ``graphs``."""
    try:
        registry = Registry()
        named = [registry.get(name) for name in arguments.models]
        tiers = TIERS[: TIERS.index(arguments.tier) + 1]
        every = [model for model in registry.models.values() if model.graph in tiers]
        mutants = _mutants(registry, arguments.mutant, named or every)
        models = named or ([] if arguments.mutant else every)
        if arguments.kafka:
            models = as_shipped(models, arguments.kafka)
        verdicts = list(check(registry, models, mutants, arguments.jobs))
    except (MalformedRegistry, GraphUnusable, UnknownRule) as error:
        print(f"kafka-eos check graphs: {error}", file=sys.stderr)
        return 2
    if not verdicts:
        print("kafka-eos check graphs: no model to compare; name one, or give one a graph", file=sys.stderr)
        return 2
    print_verdicts(verdicts, "graph equality")
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def check(
    registry: Registry, models: Sequence[Model], mutants: Sequence[Model] = (), jobs: int | None = None
) -> Iterator[Verdict]:
    """The verdicts on models and mutants, as they come; each graph is exported once.

    Args:
        registry: the registry.
        models: the models to compare.
        mutants: the mutants to tell apart from their models.
        jobs: processes; by default one a processor. With one, everything stays in this process.
    """
    by_size = sorted(_tasks(registry, models, mutants), key=lambda task: -(task.base.expect.states or 0))
    processes = min(jobs or os.cpu_count() or 1, len(by_size))
    if processes <= 1:
        for task in by_size:
            yield from _told(_check_task(task))
        return
    # spawned, not forked: a fork would copy the threads that show progress in the middle of what they do
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(_check_task, task) for task in by_size]):
                yield from _told(done.result())
        finally:
            pool.shutdown(cancel_futures=True)


@dataclass(slots=True)
class _Task:
    """The comparisons with one graph: the reference itself, and mutants of it."""

    base: Model
    itself: bool = False
    mutants: list[Model] = field(default_factory=list)


def _tasks(registry: Registry, models: Sequence[Model], mutants: Sequence[Model]) -> list[_Task]:
    """The tasks about the models' graphs; mutants that need other constants than their model's have one of their own.

    Each task's model has a name of its own, so that no two processes write the same files.
    """
    tasks: dict[tuple[str, ...], _Task] = {}
    for model in models:
        tasks.setdefault((model.name, ""), _Task(model)).itself = True
    for mutant in mutants:
        model = registry.get(mutant.model)
        other = str(sorted(mutant.constants.items())) if mutant.constants != model.constants else ""
        base = replace(model, name=mutant.name, constants=mutant.constants) if other else model
        tasks.setdefault((model.name, other), _Task(base)).mutants.append(mutant)
    return list(tasks.values())


def _told(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """The verdicts, each written to standard error as it comes."""
    for verdict in verdicts:
        mark = "ok  " if verdict.ok else "FAIL"
        progress_console.print(f"{mark} {verdict.check} {verdict.name}: {verdict.found}, {verdict.seconds:.0f} s")
        yield verdict


def _check_task(task: _Task) -> list[Verdict]:
    """Export one graph and compare everything with it."""
    base = task.base
    verdicts = []
    with progress_console.status(f"{base.name}: TLC exports the graph") as status:

        def show(line: str) -> None:
            status.update(f"{base.name}: {line}")

        graph = export(base, reference_of(base), on_progress=lambda p: show(f"TLC, {p.distinct:,} states"))
        if task.itself:
            verdicts.append(conformance_verdict(base, compare(base, graph=graph, on_progress=show)))
        for mutant in task.mutants:
            show(f"compared with the mutant {mutant.name}")
            verdicts.append(mutant_verdict(mutant, compare(base, reference_of(mutant), graph=graph, enough=1)))
    return verdicts
