r"""The steps of a changed spec, compared in Python with the edges of the reference's graph, which are TLC's.

The actions are the spec's own text, compiled (``models.formulas``). In each state every instance of the actions that
the change reaches is tried: its guards say whether the changed spec allows it, and its whole formula says which of the
reference's next states it leads to. The change is noticed if an edge of the reference is no step any more, or if an
allowed instance leads to none of the next states that the reference has for the action. As in TLC's graph, an edge has
the action's name without its arguments. TLC starts a process for each mutant, and this starts none.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from kafka_eos.machines.machine import actions
from kafka_eos.machines.spec_mapping import to_spec
from kafka_eos_checks.matrix.conjuncts.outcomes import Means
from kafka_eos_checks.matrix.conjuncts.sightings import Searcher, has_machine
from kafka_eos_checks.models.formulas import Formula, Formulas, State
from kafka_eos_checks.models.registry import Model
from kafka_eos_checks.tla.evaluation import Undefined
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import Definition, Tree, UnknownSyntax
from kafka_eos_checks.tla.values import canonical

_NO_VALUE = (Undefined, KeyError, IndexError, TypeError)
_TRUE: Tree = ("literal", True)
_Arguments = tuple[Any, ...]


class NotComparable(Exception):  # noqa: N818 - named for the model
    """A model or a change of the spec that only TLC can judge."""


@dataclass(frozen=True)
class Edges:
    """The graph of a model's machine.

    Attributes:
        model: the model.
        states: the states within the bounds, as the values of the spec's variables, the nearest first.
        following: for each state, action -> arguments -> the next state.
        instances: action -> the arguments of its instances; none for some actions.
    """

    model: Model
    states: Sequence[State]
    following: Sequence[Mapping[str, Mapping[_Arguments, State]]]
    instances: Mapping[str, Sequence[_Arguments]]

    @cached_property
    def actions(self) -> "Actions":
        """The actions of the spec as it is."""
        return Actions(self.model)


def edges_of(model: Model) -> Edges:
    """The graph of a model's machine.

    Raises:
        NotComparable: when the model has none, or its states are not those that the registry counts.
    """
    if not has_machine(model):
        raise NotComparable(f"{model.name} has no machine")
    searcher = Searcher(model, ())
    steps = searcher.steps(None)
    instances: dict[str, list[_Arguments]] = {action.name: [] for action in actions(model.machine_class())}
    tries = []
    for (name, arguments), taken in steps.tries:
        given = tuple(canonical(to_spec(argument)) for argument in arguments)
        instances[name].append(given)
        tries.append((name, given, taken))
    rows: dict[Any, State] = {steps.initial: steps.row(steps.initial)}
    states, following = [steps.initial], []
    for state in states:
        own: dict[str, dict[_Arguments, State]] = {}
        for name, given, taken in tries:
            after = taken(state)
            if after is None:
                continue
            if after not in rows:
                rows[after] = steps.row(after)
                if searcher.within(after):
                    states.append(after)
            own.setdefault(name, {})[given] = rows[after]
        following.append(own)
    if len(states) != model.expect.states:
        raise NotComparable(f"{model.name}: the machine has {len(states)} states, the registry {model.expect.states}")
    return Edges(model, [rows[state] for state in states], following, instances)


@dataclass(frozen=True)
class _Action:
    r"""An action, as functions of a state and of its arguments.

    Attributes:
        choices: the sets of its outermost ``\E``, each a function of the arguments and of the choices before it.
        guard: whether it is allowed with arguments and choices.
        step: whether it leads from one state to another.
    """

    choices: tuple[Formula, ...]
    guard: Formula
    step: Formula

    def allowed(self, state: State, arguments: _Arguments) -> Iterator[_Arguments]:
        """The arguments with all choices that are allowed."""
        found = [arguments]
        for choice in self.choices:
            found = [(*given, one) for given in found for one in choice(state, state)(*given)]
        guard = self.guard(state, state)
        return (given for given in found if guard(*given))


class Actions:
    """The actions of a model's spec, each compiled when it is asked for."""

    def __init__(self, model: Model) -> None:
        self._formulas = Formulas(model)
        self._known: dict[str, _Action] = {}
        self._with_effects: dict[str, bool] = {}
        self._branches = 0

    def __getitem__(self, name: str) -> _Action:
        if name not in self._known:
            try:
                self._known[name] = self._compiled(name)
            except (UnknownSyntax, KeyError) as error:
                raise NotComparable(f"{name}: {error}") from None
        return self._known[name]

    def _compiled(self, name: str) -> _Action:
        definition = self._formulas.definition(name)
        names = list(definition.parameters)
        choices = []
        bounds, body = self._outermost(self._expanded(definition.body))
        for bound, elements in bounds:
            choices.append(self._function(names, elements))
            names.append(bound)
        return _Action(tuple(choices), self._function(names, self._guard(body, {})), self._function(names, body))

    def _function(self, names: Sequence[str], tree: Tree) -> Formula:
        if names:
            return self._formulas.evaluate(("lambda", tuple(names), tree))
        formula = self._formulas.evaluate(tree)
        return lambda before, after: lambda: formula(before, after)

    def _expanded(self, tree: Tree) -> Tree:
        """An action in which the operators with effects are replaced by their bodies."""
        kind = tree[0]
        if not self._changes(tree):
            return tree
        if kind in {"and", "or"}:
            return (kind, tuple(map(self._expanded, tree[1])))
        if kind == "if":
            return ("if", tree[1], self._expanded(tree[2]), self._expanded(tree[3]))
        if kind in {"let", "exists"}:
            return (kind, tree[1], self._expanded(tree[2]))
        if kind == "call" and tree[1] in self._formulas.root.definitions:
            definition = self._formulas.definition(tree[1])
            return self._expanded(_put(definition.body, dict(zip(definition.parameters, tree[2], strict=True))))
        return tree

    def _outermost(self, tree: Tree) -> tuple[list[tuple[str, Tree]], Tree]:
        r"""The outermost ``\E`` of an expanded action, and the action without them."""
        if tree[0] == "exists" and self._changes(tree[2]):
            bounds, body = self._outermost(tree[2])
            return [*tree[1], *bounds], body
        if tree[0] == "and":
            found = [self._outermost(item) for item in tree[1]]
            return [bound for bounds, _ in found for bound in bounds], ("and", tuple(body for _, body in found))
        if tree[0] == "or" and self._changes(tree):
            self._branches += 1
            name = f"branch_{self._branches}"
            numbers = [("literal", number) for number in range(len(tree[1]))]
            chosen = [("infix", "=", ("call", name, ()), number) for number in numbers]
            found = [self._outermost(item) for item in tree[1]]
            bodies = tuple(("and", (one, body)) for one, (_, body) in zip(chosen, found, strict=True))
            own = [(name, ("set", tuple(numbers)))]
            return [*own, *(bound for bounds, _ in found for bound in bounds)], ("or", bodies)
        if tree[0] == "let":
            bounds, body = self._outermost(tree[2])
            return bounds, ("let", tree[1], body)
        return [], tree

    def _guard(self, tree: Tree, effects: Mapping[str, Tree]) -> Tree:
        """The enabling condition of an expanded action without choices; ``effects`` has next values that are known."""
        kind = tree[0]
        tree = _put_next(tree, effects)
        if not self._changes(tree):
            return tree
        if kind == "unchanged" or _is_effect(tree):
            return _TRUE
        if kind == "and":
            known = dict(effects) | {item[2][1][1]: item[3] for item in tree[1] if _is_effect(item)}
            guards = [self._guard(item, {} if _is_effect(item) else known) for item in tree[1]]
            guards = [guard for guard in guards if guard != _TRUE]
            return ("and", tuple(guards)) if guards else _TRUE
        if kind == "or":
            return ("or", tuple(self._guard(item, effects) for item in tree[1]))
        if kind == "if":
            branches = [self._guard(branch, effects) for branch in tree[2:]]
            return _TRUE if branches == [_TRUE, _TRUE] else ("if", tree[1], *branches)
        if kind == "let":
            body = self._guard(tree[2], effects)
            return _TRUE if body == _TRUE else ("let", tree[1], body)
        raise NotComparable(f"{kind} with effects")

    def _changes(self, tree: Any) -> bool:
        """Whether an expression has a primed variable, also in an operator that it uses."""
        if isinstance(tree, Definition):
            return self._changes(tree.body)
        if not isinstance(tree, tuple) or not tree:
            return False
        if tree[0] in {"prime", "unchanged"}:
            return True
        return any(map(self._changes, tree)) or (tree[0] == "call" and self._has_effects(tree[1]))

    def _has_effects(self, name: str) -> bool:
        if name not in self._with_effects and name in self._formulas.root.definitions:
            self._with_effects[name] = False  # as far as a recursive operator's call of itself goes
            self._with_effects[name] = self._changes(self._formulas.definition(name).body)
        return self._with_effects.get(name, False)


def _is_effect(tree: Tree) -> bool:
    """Whether a formula gives a variable its next value."""
    return bool(tree[:2] == ("infix", "=") and tree[2][0] == "prime" and tree[2][1][0] == "call")


def _put_next(tree: Any, effects: Mapping[str, Tree]) -> Any:
    """A guard with the next values of variables in the place of the primed ones; effects stay."""
    if (
        not isinstance(tree, tuple)
        or not tree
        or not effects
        or _is_effect(tree)
        or tree[0] in {"and", "or", "if", "let"}
    ):
        return tree
    if tree[0] == "prime" and tree[1][0] == "call":
        return effects.get(tree[1][1], tree)
    return tuple(_put_next(item, effects) for item in tree)


def _put(tree: Any, bound: Mapping[str, Tree]) -> Any:
    """A tree with names replaced, in definitions of its LETs too."""
    if isinstance(tree, Definition):
        return replace(tree, body=_put(tree.body, bound))
    if not isinstance(tree, tuple):
        return tree
    if len(tree) == 3 and tree[0] == "call" and not tree[2] and tree[1] in bound:
        return bound[tree[1]]
    return tuple(_put(item, bound) for item in tree)


def difference(edges: Edges, module: str, operator: str, text: str) -> tuple[Means, str]:
    """The means by which the steps of a changed spec differ from those of the reference, with the first difference.

    Args:
        edges: the graph.
        module: the changed module.
        operator: its operator that differs, ``Module!Operator``.
        text: its changed text.

    Raises:
        NotComparable: when only TLC can tell.
    """
    model = edges.model
    spec = ModuleFolder(model.spec)
    place = module, operator.partition("!")[2]
    names = [name for name in edges.instances if place in spec.reached_through(model.module, name)]
    if not names:
        raise NotComparable(f"{operator} belongs to no action")
    with tempfile.TemporaryDirectory(prefix="kafka-eos-edges-") as folder:
        for name, path in spec.paths.items():
            if name != module:
                (Path(folder) / f"{name}.tla").symlink_to(path.resolve())
        (Path(folder) / f"{module}.tla").write_text(text, encoding="utf-8")
        changed = Actions(replace(model, spec=Path(folder)))
        compared, left_out = {}, ""
        for name in names:
            try:
                compared[name] = changed[name]
            except NotComparable as error:
                left_out = str(error)
    for state, following in zip(edges.states, edges.following, strict=True):
        for name, action in compared.items():
            here = state, edges.instances[name], following.get(name, {})
            for by_instance in (True, False):
                means, found = _differs(action, *here, by_instance)
                if means is Means.NONE:
                    break
                if _differs(edges.actions[name], *here, by_instance)[0] is Means.NONE:
                    return means, f"{name} {found}"
            else:
                raise NotComparable(f"{model.name}: {name} of the spec as it is differs from the machine's")
    if left_out:
        raise NotComparable(left_out)
    return Means.NONE, ""


def _differs(
    action: _Action,
    state: State,
    instances: Sequence[_Arguments],
    following: Mapping[_Arguments, State],
    by_instance: bool,
) -> tuple[Means, str]:
    """How the steps of an action from a state differ from the edges of its instances, or fail."""
    try:
        found = _difference(action, state, instances, following, by_instance)
    except _NO_VALUE as error:
        return Means.EVALUATION, f"has no value: {error}"
    return (Means.GRAPH if found else Means.NONE), found


def _difference(
    action: _Action,
    state: State,
    instances: Sequence[_Arguments],
    following: Mapping[_Arguments, State],
    by_instance: bool,
) -> str:
    """How the steps of an action from a state differ from the edges of its instances; "" if they do not.

    With ``by_instance`` an instance has to lead to the next state of the machine's own instance. Otherwise that of
    another one will do, as for an action of which several instances are one.
    """
    met: set[State] = set()
    allowed = [(arguments, given) for arguments in instances for given in action.allowed(state, arguments)]
    for arguments, given in allowed:
        own = following.get(arguments)
        every = [] if own is None else [own]
        if not by_instance:
            every += following.values()
        leads = next((target for target in every if action.step(state, target)(*given)), None)
        if leads is None:
            return "leads to another state, or is allowed where the spec refuses it"
        met.add(leads)
    for target in set(following.values()) - met:
        step = action.step(state, target)
        if not any(step(*given) for _, given in allowed):
            return "is refused where the spec allows it"
    return ""
