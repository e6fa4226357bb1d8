"""``kafka-eos check behaviours``: a model's graph and behaviours as JSON, to drive an implementation in any language.

The graph is that of the reference's machine; ``kafka-eos check graphs`` compares it with TLC's. Two kinds of files are
written: ``graph.json`` has all states, edges and refusals (``graph.schema.json``), and ``behaviours/*.itf.json`` are
runs in Apalache's Informal Trace Format that together take every edge. The same model gives the same bytes. The rules
are the repaired ones, or those of a release of Kafka as it ships.
"""

import argparse
import json
import sys
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_eos.machines import explorer
from kafka_eos.machines import machine as machines
from kafka_eos.machines.machine import Instance
from kafka_eos.machines.spec_mapping import SpecValue, to_spec
from kafka_eos_checks.graphs.command import reference_of
from kafka_eos_checks.kit.outputs import make_folder
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry, bounds_predicate
from kafka_eos_checks.models.releases import Releases, columns
from kafka_eos_checks.tla.modules import ModuleFolder

FORMAT = "state graph of kafka-eos, 1"
SCHEMA = Path(__file__).with_name("graph.schema.json")
LONGEST = 60
"""Steps of a behaviour."""

EPILOG = """examples:
  kafka-eos check behaviours LeaderOutside --out build/behaviours
  kafka-eos check behaviours LeaderOutside --kafka 4.3 --out build/behaviours    by the rules of Kafka 4.3 as it ships
  kafka-eos check behaviours Broker --out build/behaviours --no-runs

docs/behaviours.md says how to drive an implementation with the files; examples/replay-behaviours does it in Go.
"""


def encoded(value: SpecValue) -> Any:
    """A TLA+ value as ITF has it: ``#bigint``, ``#set`` and ``#map`` where JSON has nothing of the kind."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"#bigint": str(value)}
    if isinstance(value, frozenset):
        return {"#set": sorted(map(encoded, value), key=json.dumps)}
    if isinstance(value, Mapping):
        if value and all(isinstance(key, str) for key in value):
            return {key: encoded(value[key]) for key in sorted(value)}
        return {"#map": sorted(([encoded(key), encoded(each)] for key, each in value.items()), key=json.dumps)}
    return [encoded(each) for each in value]


@dataclass(slots=True)
class Behaviours:
    """A model's graph.

    Attributes:
        model: the model.
        instances: every action with every combination of arguments.
        parameters: action -> the names of its parameters.
        states: the initial one first; also those just outside the bounds, which no edge leaves.
        inside: the number of each state that edges leave.
        edges: the edges of each state, as instance and target.
        refusals: the instances that each state refuses.
    """

    model: Model
    instances: Sequence[Instance]
    parameters: Mapping[str, Sequence[str]]
    states: list[Any] = field(default_factory=list)
    inside: list[int] = field(default_factory=list)
    edges: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    refusals: dict[int, list[int]] = field(default_factory=dict)

    @property
    def edge_count(self) -> int:
        """The number of edges."""
        return sum(map(len, self.edges.values()))

    def label(self, instance: int) -> dict[str, Any]:
        """An action with its arguments by name."""
        one = self.instances[instance]
        given = zip(self.parameters[one.action.name], one.arguments, strict=True)
        return {"action": one.action.name, "parameters": {name: encoded(to_spec(value)) for name, value in given}}

    def state(self, number: int) -> dict[str, Any]:
        """A state's variables."""
        return {name: encoded(value) for name, value in machines.dump(self.states[number]).items()}

    def graph(self) -> dict[str, Any]:
        """The content of ``graph.json``."""
        return {
            "format": FORMAT,
            "model": self.model.name,
            "module": self.model.module,
            "title": self.model.title,
            "constants": dict(sorted(self.model.constants.items())),
            "replaced": dict(sorted(self.model.overrides.items())),
            "variables": list(self.model.machine_class().VARIABLES),
            "instances": [self.label(number) for number in range(len(self.instances))],
            "states": [self.state(number) for number in range(len(self.states))],
            "edges": [[source, label, target] for source in self.inside for label, target in self.edges[source]],
            "refusals": [[source, label] for source in self.inside for label in self.refusals[source]],
        }

    def runs(self, longest: int = LONGEST) -> Iterator[list[tuple[int, int]]]:
        """Runs from the initial state, as pairs of instance and state, that together take every edge."""
        left = {source: deque(edges) for source, edges in self.edges.items() if edges}
        while left:
            here, run = 0, list[tuple[int, int]]()
            while left and (not run or len(run) < longest):
                way = self._way(here, left)
                if way is None:
                    break
                run += way
                here = way[-1][1] if way else here
                label, target = left[here].popleft()
                if not left[here]:
                    del left[here]
                run.append((label, target))
                here = target
            yield run

    def _way(self, start: int, left: Mapping[int, object]) -> list[tuple[int, int]] | None:
        """A shortest way to a state that edges leave which no run has taken; None if there is none."""
        parents: dict[int, tuple[int, int] | None] = {start: None}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            if here in left:
                way = []
                while (step := parents[here]) is not None:
                    way.append((step[1], here))
                    here = step[0]
                return way[::-1]
            for label, target in self.edges.get(here, ()):
                if target not in parents:
                    parents[target] = (here, label)
                    queue.append(target)
        return None

    def itf(self, run: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """A run in ITF; ``#meta`` of a state has the action that led to it."""
        states = [{"#meta": {"index": 0}, **self.state(0)}]
        for index, (label, target) in enumerate(run, start=1):
            states.append({"#meta": {"index": index, **self.label(label)}, **self.state(target)})
        return {
            "#meta": {
                "format": "ITF",
                "format-description": "https://apalache-mc.org/docs/adr/015adr-trace.html",
                "source": f"{self.model.module}.tla",
                "description": f"{self.model.name}: {self.model.title}",
            },
            "params": [],
            "vars": list(self.model.machine_class().VARIABLES),
            "states": states,
        }


def of_release(model: Model, release: str) -> Model:
    """The model by the rules of a release of Kafka as it ships, under a name of its own.

    Raises:
        MalformedRegistry: when the release is not known, or the model says nothing about it.
    """
    releases = Releases()
    [column] = columns([model], [releases.chosen(release, [model.module])], releases)
    if column.outside:
        raise MalformedRegistry(f"{model.name} is not of Kafka {release}: {column.outside}")
    return column.entry


def explore(model: Model) -> Behaviours:
    """Search a model breadth-first, and keep everything."""
    machine = reference_of(model)
    constants = model.machine_constants(machine)
    within = bounds_predicate(model)
    operators = ModuleFolder(model.spec).operators(model.module)
    actions = {action.name for action in machines.actions(machine)}
    parameters = {name: operators[name][1].parameters for name in sorted(actions)}
    found = Behaviours(model, machines.instances(machine, constants), parameters)
    refusals = defaultdict[int, list[int]](list)
    graph = explorer.explore(
        machine.initial(constants),
        found.instances,
        within,
        on_refusal=lambda source, label, _: refusals[source].append(label),
        keep_outside=True,
    )
    found.states = graph.states
    found.inside = [number for number, state in enumerate(graph.states) if within(state)]
    found.edges = {source: [] for source in found.inside}
    for source, label, target in zip(graph.sources, graph.labels, graph.targets, strict=True):
        found.edges[source].append((label, target))
    found.refusals = {source: refusals[source] for source in found.inside}
    return found


def write(found: Behaviours, folder: Path, *, runs: bool = True) -> int:
    """Write the files of a model into a folder of its name, and remove the runs that an earlier call left there.

    Returns:
        The number of behaviours.
    """
    home = folder / found.model.name
    make_folder(home)
    for left in (home / "behaviours").glob("*.itf.json"):
        left.unlink()
    _write(home / "graph.json", found.graph())
    (home / "graph.schema.json").write_bytes(SCHEMA.read_bytes())
    count = 0
    if runs:
        (home / "behaviours").mkdir(exist_ok=True)
        for count, run in enumerate(found.runs(), start=1):
            _write(home / "behaviours" / f"{count:05}.itf.json", found.itf(run))
    return count


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


# --- the command line ------------------------------------------------------------------------------------------------


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``behaviours``."""
    parser = subparsers.add_parser(
        "behaviours",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="models of the registry")
    parser.add_argument(
        "--kafka", metavar="RELEASE", help="by the rules of this release of Kafka as it ships (spec/releases.toml)"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the files go")
    parser.add_argument(
        "--no-runs",
        action="store_true",
        help="write only graph.json: the runs of a model of Broker take hundreds of MB",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``behaviours``."""
    try:
        registry = Registry()
        for name in arguments.models:
            model = registry.get(name)
            if arguments.kafka:
                model = of_release(model, arguments.kafka)
            with progress_console.status(f"{model.name}: the states of the reference, and runs that take every edge"):
                found = explore(model)
                runs = write(found, arguments.out, runs=not arguments.no_runs)
            print(
                f"{arguments.out / model.name}: {len(found.states)} states, {found.edge_count} edges, "
                f"{sum(map(len, found.refusals.values()))} refusals, {runs} behaviours"
            )
    except MalformedRegistry as error:
        print(f"kafka-eos check behaviours: {error}", file=sys.stderr)
        return 2
    return 0
