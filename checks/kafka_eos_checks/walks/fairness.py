"""The actions that still happen when the faults have stopped: the spec's fairness names them, read from its text."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any, TypeAlias

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.machine import Action, Instance
from kafka_eos_checks.models.formulas import Formula, Formulas, State, replaced
from kafka_eos_checks.tla.parser import Tree

Group: TypeAlias = Mapping[tuple[str, tuple[Any, ...]], Sequence[tuple[Formula, ...]]]
"""The instances of one weakly fair action: (action, arguments) -> the guards, of which one has to be true."""

SHUFFLED = 0.3  # how often the actions are tried in a new order
_FORMULAS = ("Fairness", "FairSpec")


class FairActions:
    """The fair instances of a machine's actions; none, where the spec has no fairness.

    Args:
        formulas: the spec's formulas.
        known: the machine's actions.
        within: whether a state is within the model's bounds.

    Attributes:
        cut_off: whether, when there was no next step, one would have led out of the bounds.
    """

    def __init__(self, formulas: Formulas, known: Sequence[Action], within: Callable[[Any], bool]) -> None:
        self._formulas = formulas
        self._within = within
        self.cut_off = False
        self._known = {action.name: action for action in known}
        self._guards: dict[str, Formula] = {}
        self._fair: dict[str, dict[tuple[Any, ...], list[tuple[Formula, ...]]]] = {}
        name = next((name for name in _FORMULAS if name in formulas.root.definitions), None)
        if name is not None:
            for _, tree in self._fair_actions(formulas.definition(name).body):
                for action, arguments, guards in self._parts(tree, ()):
                    self._fair.setdefault(action, {}).setdefault(arguments, []).append(guards)

        self._order: list[str] = []

    @property
    def actions(self) -> Mapping[str, Collection[tuple[Any, ...]]]:
        """Action -> the arguments with which it is fair."""
        return self._fair

    def groups(self, specification: str) -> dict[str, list[Group]]:
        """The weakly fair actions of a specification: each ``WF_v(A)`` of its text, with an entry for each binding."""
        found: dict[str, list[Group]] = {}
        for number, action in self._fair_actions(self._formulas.definition(specification).body):
            group: dict[tuple[str, tuple[Any, ...]], list[tuple[Formula, ...]]] = {}
            for name, arguments, guards in self._parts(action, ()):
                group.setdefault((name, arguments), []).append(guards)
            names = " or ".join(dict.fromkeys(name for name, _ in group))
            found.setdefault(f"{number}: WF({names})", []).append(group)
        return {f"WF({name.partition('WF(')[2]}": groups for name, groups in found.items()}

    def begin(self) -> None:
        """A run begins: no action is known to be enabled or not."""
        self._order = list(self._fair)

    def __bool__(self) -> bool:
        return bool(self._fair)

    def next(self, state: Any, spec: State, random: Random, possible: Mapping[str, Any]) -> tuple[Instance, Any] | None:
        """A fair step that changes something, drawn by chance; None at rest, or at the bounds.

        Actions that were not enabled lately are mostly tried last.
        """
        self.cut_off = False
        if random.random() < SHUFFLED:
            random.shuffle(self._order)
        for name in tuple(self._order):
            fair, action = self._fair[name], self._known[name]
            given = [one for one in possible[name](state) if one in fair] if name in possible else list(fair)
            first = int(random.random() * len(given))
            for arguments in given[first:] + given[:first]:
                if not any(all(guard(spec, spec) for guard in guards) for guards in fair[arguments]):
                    continue
                try:
                    after = getattr(state, action.method)(*arguments)
                except (NotEnabled, Rejected):
                    continue
                if after == state:
                    continue
                if self._within(after):
                    return Instance(action, arguments), after
                self.cut_off = True
            self._order.remove(name)
            self._order.append(name)
        return None

    def _parts(
        self, tree: Tree, guards: tuple[Tree, ...]
    ) -> Iterator[tuple[str, tuple[Any, ...], tuple[Formula, ...]]]:
        """(action, arguments, guards) of every action of the machine in an action of the spec."""
        kind = tree[0]
        if kind in {"all", "exists"}:
            for bound in self._bindings(tree[1]):
                yield from self._parts(replaced(tree[2], bound), guards)
        elif kind == "and":
            actions = [item for item in tree[1] if self._is_action(item)]
            others = tuple(item for item in tree[1] if item not in actions and item[0] != "unchanged")
            for item in actions:
                yield from self._parts(item, (*guards, *others))
        elif kind == "or":
            for item in tree[1]:
                yield from self._parts(item, guards)
        elif kind == "call" and tree[1] in self._known:
            arguments = tuple(self._constant(given) for given in tree[2])
            yield tree[1], arguments, tuple(self._guard(guard) for guard in guards)
        elif kind == "call" and tree[1] in self._formulas.root.definitions:
            definition = self._formulas.definition(tree[1])
            bound = dict(zip(definition.parameters, tree[2], strict=True))
            yield from self._parts(replaced(definition.body, bound), guards)

    def _fair_actions(self, tree: Tree, place: str = "") -> Iterator[tuple[str, Tree]]:
        """Each fair action of a formula with the place of its ``WF``; once for each binding of its names."""
        kind = tree[0]
        if kind == "fair":
            yield place, tree[1]
        elif kind == "all":
            for bound in self._bindings(tree[1]):
                yield from self._fair_actions(replaced(tree[2], bound), place)
        elif kind == "and":
            for number, item in enumerate(tree[1]):
                yield from self._fair_actions(item, f"{place}.{number}")
        elif kind == "call" and tree[1] in self._formulas.root.definitions:
            definition = self._formulas.definition(tree[1])
            bound = dict(zip(definition.parameters, tree[2], strict=True))
            yield from self._fair_actions(replaced(definition.body, bound), f"{place}.{tree[1]}")

    def _is_action(self, tree: Tree) -> bool:
        if tree[0] == "call":
            if tree[1] in self._known:
                return True
            definition = self._formulas.root.definitions.get(tree[1])
            return definition is not None and self._is_action(definition.body)
        if tree[0] in {"and", "or"}:
            return any(self._is_action(item) for item in tree[1])
        return tree[0] in {"all", "exists"} and self._is_action(tree[2])

    def _bindings(self, bounds: Sequence[tuple[str, Tree]]) -> Iterator[dict[str, Tree]]:
        return bindings(self._formulas, bounds)

    def _constant(self, tree: Tree) -> Any:
        return tree[1] if tree[0] == "literal" else self._formulas.evaluate(tree)((), ())

    def _guard(self, tree: Tree) -> Formula:
        key = repr(tree)
        if key not in self._guards:
            self._guards[key] = self._formulas.evaluate(tree)
        return self._guards[key]


def bindings(formulas: Formulas, bounds: Sequence[tuple[str, Tree]]) -> Iterator[dict[str, Tree]]:
    """Every choice of values for bound names whose sets are constant."""
    sets = [sorted(formulas.evaluate(elements)((), ()), key=repr) for _, elements in bounds]
    for chosen in product(*sets):
        yield {name: ("literal", value) for (name, _), value in zip(bounds, chosen, strict=True)}
