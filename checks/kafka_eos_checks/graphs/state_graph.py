"""TLC's state graph, every edge with its action and arguments.

TLC labels the edges of a dumped graph with the name of an action only. So the exported model is a wrapper: one operator
for each instance of each action, named ``Instance__<n>``, in the place of ``Next``. The instances are the machine's own
(``machine.instances``), so the two floors speak of the same edges. They are all of ``Next``: its actions and the sets
that their parameters range over are read from the module, and TLC compares the sets' elements.

Bounds become part of each instance instead of a CONSTRAINT: a state outside the bounds is then kept, with the edges
that lead to it, and has no successors. So edges that leave the bounds are compared as well. The self-loop ``Inside__``
tells which states are inside.
"""

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from kafka_eos.machines import machine as machines
from kafka_eos.machines.machine import Instance
from kafka_eos.machines.spec_mapping import SpecValue, to_spec
from kafka_eos_checks.models.registry import Configuration, Model, write_model
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import parse_expression
from kafka_eos_checks.tla.values import ValueMemo, format_value

Places: TypeAlias = npt.NDArray[np.int64]
Row: TypeAlias = tuple[SpecValue, ...]

_NODE = re.compile(r'^(-?\d+) \[label="(.*)"(,style = filled)?\];?$', re.MULTILINE)
_EDGE = re.compile(r'^(-?\d+) -> (-?\d+) \[label="(?:Instance__(\d+)|(Inside__))"', re.MULTILINE)
_HEAD = re.compile(r"(?:\A|(?<!\\)\\n)/\\\\ (\w+) = ")
_SINGLE_HEAD = re.compile(r"\A(\w+) = ")
_ESCAPED = re.compile(r"\\(.)")


class GraphUnusable(RuntimeError):  # noqa: N818 - named for the graph
    """TLC gave no graph, or one that does not show all of the model; says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a model's state space, as TLC counts it."""

    states: int
    generated: int


@dataclass(frozen=True, kw_only=True)
class StateGraph:
    """A state graph.

    Attributes:
        model: the model's name.
        variables: names of the variables, in the order of a row of ``states``.
        instances: the labels.
        states: the values of the variables, a row a state; the states outside the bounds included.
        initial: places of the initial states.
        inside: for each state whether it is within the bounds.
        sources: for each edge the place of its source; edges are sorted by source, then label, then target.
        labels: for each edge the place of its instance.
        targets: for each edge the place of its target.
        seconds: the time that TLC took.
    """

    model: str
    variables: tuple[str, ...]
    instances: Sequence[Instance]
    states: list[Row]
    initial: list[int]
    inside: npt.NDArray[np.bool_]
    sources: Places
    labels: Places
    targets: Places
    seconds: float

    @property
    def states_inside(self) -> int:
        """The number of states within the bounds: what TLC calls distinct states."""
        return int(self.inside.sum())

    @cached_property
    def _offsets(self) -> list[int]:
        return list(np.searchsorted(self.sources, np.arange(len(self.states) + 1)).tolist())

    def outgoing(self, state: int) -> Iterator[tuple[int, int]]:
        """The edges of a state as (place of the instance, place of the target)."""
        begin, end = self._offsets[state], self._offsets[state + 1]
        yield from zip(self.labels[begin:end].tolist(), self.targets[begin:end].tolist(), strict=True)

    def state(self, place: int) -> dict[str, SpecValue]:
        """A state by variable."""
        return dict(zip(self.variables, self.states[place], strict=True))

    @cached_property
    def tree(self) -> tuple[list[int], list[int], list[int]]:
        """The tree of shortest paths: for each state its depth, its parent and the instance between; -1 for none."""
        depth, parent, label = ([-1] * len(self.states) for _ in range(3))
        queue = list(self.initial)
        for state in queue:
            depth[state] = 1
        for state in queue:
            for instance, target in self.outgoing(state):
                if depth[target] < 0:
                    depth[target], parent[target], label[target] = depth[state] + 1, state, instance
                    queue.append(target)
        return depth, parent, label

    def path_to(self, state: int) -> list[tuple[int, int]]:
        """A shortest path as (place of the instance, place of the state it leads to); the initial state has -1."""
        _, parent, label = self.tree
        path = []
        while state >= 0:
            path.append((label[state], state))
            state = parent[state]
        return path[::-1]


def instance_text(instance: Instance) -> str:
    """An instance in TLA+."""
    if not instance.arguments:
        return instance.action.name
    return f"{instance.action.name}({', '.join(format_value(to_spec(a)) for a in instance.arguments)})"


def frame_text(action: machines.Action) -> str:
    """The frame of a step with this action: an inherited action leaves the extending module's variables unchanged."""
    return f" /\\ UNCHANGED {action.frame}" if action.frame else ""


def instance_definitions(instances: Sequence[Instance], variables: Sequence[str], bounds: str) -> str:
    """The TLA+ text that puts the instances in the place of ``Next``.

    Args:
        instances: the instances.
        variables: the module's variables.
        bounds: the operator that is a part of every instance, or "" for none.
    """
    within = bounds or "TRUE"
    lines = [
        f"Instance__{place} == {within} /\\ {instance_text(i)}{frame_text(i.action)}"
        for place, i in enumerate(instances)
    ]
    lines.append(f"Inside__ == {within} /\\ UNCHANGED <<{', '.join(variables)}>>")
    alternatives = [f"    \\/ Instance__{place}" for place in range(len(instances))]
    lines += ["NextInstance__ ==", *alternatives]
    lines += ["NextOrInside__ == NextInstance__ \\/ Inside__"]
    for name, following in (("SpecInstances__", "NextInstance__"), ("SpecGraph__", "NextOrInside__")):
        lines.append(f"{name} == Init /\\ [][{following}]_<<{', '.join(variables)}>>")
    return "\n".join(lines) + "\n"


def _range_definitions(machine: type[machines.Machine], constants: machines.Constants) -> str:
    """The TLA+ text by which TLC compares the sets that parameters range over with the machine's."""
    names = dict.fromkeys(domain for action in machines.actions(machine) for domain in action.domains)
    values = ((name, ", ".join(format_value(to_spec(each)) for each in constants.domain(name))) for name in names)
    return "".join(f"ASSUME {name} = {{{elements}}}\n" for name, elements in values)


def export(
    model: Model,
    machine: type[machines.Machine],
    *,
    timeout: float = 600.0,
    on_progress: Callable[[tlc.Progress], None] | None = None,
) -> StateGraph:
    """TLC's state graph of a model, in the vocabulary of a machine.

    Raises:
        GraphUnusable: when TLC fails, or when the instances of the machine's actions are not all steps of ``Next``.
    """
    _check_actions(model, machine)
    constants = model.machine_constants(machine)
    instances = machines.instances(machine, constants)
    folder, root = write_model(
        model,
        Configuration(specification="SpecGraph__"),
        instance_definitions(instances, machine.VARIABLES, model.bounds) + _range_definitions(machine, constants),
        suffix="_graph",
    )
    with tempfile.TemporaryDirectory(prefix="kafka-eos-graph-") as name:
        dot = Path(name) / "graph.dot"
        job = tlc.Job(folder=folder, module=root, dump=dot, timeout=timeout, short=model.is_short)
        result = tlc.run(job, on_progress)
        if result.verdict != "holds":
            reason = f"{model.name}: TLC {result.verdict} while it exports the graph\n{result.error}"
            if "Assumption" in result.error:
                reason += f"\n{root}.tla assumes the sets of {machine.__qualname__}'s constants: see its method domain"
            raise GraphUnusable(reason)
        text = dot.read_text(encoding="utf-8")
    graph = read_dot(text, model.name, machine.VARIABLES, instances, result.seconds)
    if len(graph.states) != result.distinct:
        raise GraphUnusable(f"{model.name}: the dump has {len(graph.states)} states, TLC counted {result.distinct}")
    _check_coverage(model, graph, result.generated - graph.states_inside, timeout)
    return graph


def _check_actions(model: Model, machine: type[machines.Machine]) -> None:
    """The machine has a method for each action of ``Next``, with the same sets of arguments, and for nothing else."""
    spec = ModuleFolder(model.spec)
    specified = spec.actions(model.module, "Next")
    marked = {action.name: action for action in machines.actions(machine)}
    differing = [
        f"{home}.tla has the action {name} in Next, and {machine.__qualname__} has no method for it; "
        f'mark one @action("{name}", …)'
        for name, (home, _) in specified.items()
        if name not in marked
    ]
    differing += [
        f"{machine.__qualname__}.{action.method} is marked as the action {name}, "
        f"which is not in Next of {model.module}.tla"
        for name, action in marked.items()
        if name not in specified
    ]
    ranges = defaultdict(list)
    for name, sets in spec.steps(model.module, "Next"):
        ranges[name].append(sets)
    differing += [
        f"{machine.__qualname__}.{action.method} takes every value of {', '.join(action.domains) or 'nothing'}, "
        f"and in Next of {model.module}.tla the parameters of {name} range over other sets"
        for name, action in marked.items()
        if name in ranges and ranges[name] != [tuple(parse_expression(each, name) for each in action.domains)]
    ]
    if differing:
        raise GraphUnusable(f"{model.name}: {'; '.join(differing)}")


def _check_coverage(model: Model, graph: StateGraph, generated: int, timeout: float) -> None:
    """The instances are all of ``Next``: as many states found, and as many generated, as in the plain model."""
    found = Size(states=graph.states_inside, generated=generated)
    if (found.states, found.generated) == (model.expect.states, model.expect.generated):
        return  # model-check has compared these numbers with the plain model
    plain = plain_size(model, timeout)
    if found != plain:
        raise GraphUnusable(
            f"{model.name}: the instances of the machine's actions give {found.states} states ({found.generated} "
            f"generated), Next gives {plain.states} ({plain.generated}); give the machine every action of Next once, "
            "with every value of its parameters"
        )


def plain_size(model: Model, timeout: float = 600.0) -> Size:
    """The size of a model's state space, from a run that checks nothing.

    Raises:
        GraphUnusable: when TLC fails.
    """
    plain = Configuration(specification=model.specification, constraint=model.bounds)
    folder, root = write_model(model, plain, suffix="_plain")
    result = tlc.run(tlc.Job(folder=folder, module=root, timeout=timeout, short=model.is_short))
    if result.verdict != "holds":
        raise GraphUnusable(f"{model.name}: TLC {result.verdict} while it counts states\n{result.error}")
    return Size(states=result.distinct, generated=result.generated)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


class _RowReader:
    """Reads the labels of states; parses each distinct text of a variable once."""

    def __init__(self, variables: tuple[str, ...]) -> None:
        self.place = {name: place for place, name in enumerate(variables)}
        self.memo = ValueMemo()
        self.known: dict[str, SpecValue] = {}

    def read(self, label: str) -> Row:
        """A label, still escaped as DOT wants it."""
        row: list[SpecValue] = [None] * len(self.place)
        heads = list((_HEAD if label.startswith("/\\\\") else _SINGLE_HEAD).finditer(label))
        for number, head in enumerate(heads):
            end = heads[number + 1].start() if number + 1 < len(heads) else len(label)
            text = label[head.end() : end]
            value = self.known.get(text)
            if value is None:
                value = self.known[text] = self.memo.parse(_unescape(text).strip())
            row[self.place[head[1]]] = value
        if None in row or len(heads) != len(row):
            raise GraphUnusable(f"a state of the dump lacks a variable or has one too many: {label}")
        return tuple(row)


def read_dot(
    text: str, model: str, variables: tuple[str, ...], instances: Sequence[Instance], seconds: float = 0.0
) -> StateGraph:
    """Read TLC's DOT text of a wrapper model.

    Raises:
        GraphUnusable: when two states have the same values or a state lacks a variable.
    """
    reader = _RowReader(variables)
    places: dict[str, int] = {}
    states: list[Row] = []
    initial: list[int] = []
    for node in _NODE.finditer(text):
        if node[1] not in places:
            places[node[1]] = len(states)
            states.append(reader.read(node[2]))
        if node[3] and places[node[1]] not in initial[-1:]:
            initial.append(places[node[1]])
    if len(set(states)) != len(states):
        raise GraphUnusable(f"{model}: two states of the dump have the same values")
    found = [(places[e[1]], places[e[2]], -1 if e[4] else int(e[3])) for e in _EDGE.finditer(text)]
    edges = np.array(found, dtype=np.int64).reshape(-1, 3)
    loops = edges[:, 2] == -1
    inside = np.zeros(len(states), dtype=np.bool_)
    inside[edges[loops, 0]] = True
    edges = edges[~loops]
    # one number an edge, so that sorting and deduplication are those of integers
    size = max(len(states), 1)
    packed = np.unique((edges[:, 0] * len(instances) + edges[:, 2]) * size + edges[:, 1])
    packed, targets = np.divmod(packed, size)
    sources, labels = np.divmod(packed, max(len(instances), 1))
    return StateGraph(
        model=model,
        variables=variables,
        instances=instances,
        states=states,
        initial=sorted(set(initial)),
        inside=inside,
        sources=sources,
        labels=labels,
        targets=targets,
        seconds=seconds,
    )
