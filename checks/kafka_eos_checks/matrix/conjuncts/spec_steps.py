r"""The steps of a specification without a machine, from the spec's text: for the small modules that others refine.

An action is a conjunction of guards, of ``v' = e`` and of ``UNCHANGED``, also in ``\/`` and in other operators. Every
instance of an action becomes a list of alternatives. An alternative has guards, and a value for each variable.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, TypeAlias

from kafka_eos_checks.models.formulas import Formula, Formulas, State, replaced
from kafka_eos_checks.tla.parser import Tree
from kafka_eos_checks.walks.fairness import bindings

_CHOICES = frozenset({"or", "exists", "call"})  # of an operator that is no action itself
Label: TypeAlias = tuple[str, tuple[Any, ...]]  # an action and its arguments


class NotEvaluable(ValueError):  # noqa: N818 - named for the specification
    """An action has another form than guards, ``v' = e`` and ``UNCHANGED``: its steps are not known."""


@dataclass(frozen=True, slots=True)
class _Alternative:
    """A way to take a step: its guards, and the next value of each variable by its place."""

    guards: tuple[Formula, ...] = ()
    effects: dict[int, Formula] = field(default_factory=dict)


class SpecSteps:
    """The first state and the steps of ``Init`` and ``[][Next]_v``; the specification may have fairness after them.

    Raises:
        NotEvaluable: when an action has another form, ``LET`` around a primed variable, say.
    """

    def __init__(self, formulas: Formulas, specification: str) -> None:
        self._formulas = formulas
        init, following = formulas.definition(specification).body[1][:2]
        (first,) = self._alternatives(init, primed=False)
        self.initial: State = tuple(first.effects[place]((), ()) for place in range(len(formulas.variables)))
        self.steps: list[tuple[Label, Callable[[State], State | None]]] = [
            (label, self._step(list(self._alternatives(tree)))) for label, tree in self._instances(following[1][1])
        ]

    def _instances(self, tree: Tree) -> Iterator[tuple[Label, Tree]]:
        """Every action with its arguments, and its formula: the calls in the disjunctions of the next step."""
        if tree[0] == "or":
            for item in tree[1]:
                yield from self._instances(item)
        elif tree[0] == "exists":
            for bound in bindings(self._formulas, tree[1]):
                yield from self._instances(replaced(tree[2], bound))
        elif tree[0] == "call" and not tree[2] and (body := self._formulas.definition(tree[1]).body)[0] in _CHOICES:
            yield from self._instances(body)
        else:
            arguments = [self._formulas.evaluate(argument)((), ()) for argument in tree[2]]
            yield (tree[1], tuple(arguments)), tree

    def _alternatives(self, tree: Tree, primed: bool = True) -> Iterator[_Alternative]:
        """The alternatives of an action; of an initial predicate, if no variable is primed."""
        if tree[0] == "and":
            for chosen in product(*(list(self._alternatives(item, primed)) for item in tree[1])):
                guards = tuple(guard for each in chosen for guard in each.guards)
                yield _Alternative(guards, {place: e for each in chosen for place, e in each.effects.items()})
        elif tree[0] == "or" and self._changes(tree):
            for item in tree[1]:
                yield from self._alternatives(item, primed)
        elif tree[0] == "call" and tree[1] in self._formulas.root.definitions and (not primed or self._changes(tree)):
            definition = self._formulas.definition(tree[1])
            bound = dict(zip(definition.parameters, tree[2], strict=True))
            yield from self._alternatives(replaced(definition.body, bound), primed)
        elif tree[0] == "unchanged":
            variables = [tree[1]] if tree[1][0] == "call" else tree[1][1]
            yield _Alternative((), {self._place(each): self._formulas.evaluate(each) for each in variables})
        elif tree[:2] == ("infix", "=") and tree[2][0] == ("prime" if primed else "call"):
            variable = tree[2][1] if primed else tree[2]
            yield _Alternative((), {self._place(variable): self._formulas.evaluate(tree[3])})
        elif primed and self._changes(tree):
            raise NotEvaluable(f"an action has a primed variable in {tree[0]!r}, and not in v' = e")
        else:
            yield _Alternative((self._formulas.evaluate(tree),))

    def _place(self, variable: Tree) -> int:
        return self._formulas.variables.index(variable[1])

    def _changes(self, tree: Any) -> bool:
        """Whether an expression has a primed variable, also in an operator that it uses."""
        if not isinstance(tree, tuple) or not tree:
            return False
        if tree[0] in {"prime", "unchanged"}:
            return True
        if tree[0] == "call" and tree[1] in self._formulas.root.definitions:
            return self._changes(self._formulas.definition(tree[1]).body)
        return any(self._changes(item) for item in tree)

    @staticmethod
    def _step(alternatives: Sequence[_Alternative]) -> Callable[[State], State | None]:
        def step(state: State) -> State | None:
            for each in alternatives:
                if all(guard(state, state) for guard in each.guards):
                    return tuple(each.effects[place](state, state) for place in range(len(state)))
            return None

        return step
