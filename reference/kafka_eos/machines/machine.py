"""A state machine of the reference: a frozen value with one method per action of its TLA+ module.

A machine is a frozen dataclass. Its fields are the module's variables in snake_case, and each method decorated with
:func:`action` is the action of that name: it returns the next state, or raises ``NotEnabled`` or ``Rejected`` and
changes nothing. The parameters of an action range over constant sets, so that every instance of every action can be
named, tried and compared with TLC's graph.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import product
from typing import Any, ClassVar, Protocol, Self, TypeVar, get_type_hints

from kafka_eos.machines.spec_mapping import Context, SpecValue, camel_case, from_spec, snake_case, to_spec

_ACTION = "__spec_action__"
_Method = TypeVar("_Method", bound=Callable[..., Any])


class Constants(Protocol):
    """The constants of a module, as a frozen dataclass whose fields are the snake_case of the TLA+ CONSTANTS."""

    def domain(self, name: str) -> Iterable[Hashable]:
        """The values of a constant set that parameters of actions range over, in order."""
        ...


class Machine(Protocol):
    """A state of one machine; see the module's docstring."""

    MODULE: ClassVar[str]
    VARIABLES: ClassVar[tuple[str, ...]]

    @property
    def constants(self) -> Any:
        """The constants of the module."""
        ...

    @classmethod
    def initial(cls, constants: Any) -> Self:
        """The one state that ``Init`` allows."""
        ...

    @classmethod
    def context(cls, constants: Any) -> Context:
        """The values that :func:`load` needs besides the spec's variables; see ``spec_mapping.from_spec``."""
        ...


@dataclass(frozen=True, slots=True)
class Action:
    """An action of the spec: its name, the method that is it, and the constant sets of its parameters.

    Attributes:
        name: the TLA+ action.
        method: the method of the machine.
        domains: the constant sets of its parameters.
        frame: what else stays unchanged when a module that extends the action's own takes it (``clientVars``), or "".
    """

    name: str
    method: str
    domains: tuple[str, ...]
    frame: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """An action with its arguments."""

    action: Action
    arguments: tuple[Hashable, ...]

    @property
    def label(self) -> str:
        """The instance as TLA+ writes it: ``AppendBatch(0, 1, 2, 1)``."""
        if not self.arguments:
            return self.action.name
        shown = (f'"{a}"' if isinstance(a, str) else str(a) for a in self.arguments)
        return f"{self.action.name}({', '.join(shown)})"


def action(name: str, *domains: str) -> Callable[[_Method], _Method]:
    """Mark a method as the TLA+ action ``name``, whose parameters range over the constant sets ``domains``."""

    def mark(method: _Method) -> _Method:
        setattr(method, _ACTION, (name, domains))
        return method

    return mark


def actions(machine: type[Machine]) -> tuple[Action, ...]:
    """The actions of a machine in the order of their definition; a subclass's override keeps its base's mark.

    A machine that extends another one, as its module does, has an attribute ``FRAME``: the variables of its own that
    the inherited actions leave unchanged.
    """
    found: dict[str, Action] = {}
    for base in reversed(machine.__mro__):
        frame = "" if getattr(base, "MODULE", "") == machine.MODULE else getattr(machine, "FRAME", "")
        for method, member in vars(base).items():
            marked = getattr(member, _ACTION, None)
            if marked is not None:
                found[method] = Action(marked[0], method, marked[1], frame)
    return tuple(found.values())


def instances(machine: type[Machine], constants: Constants) -> list[Instance]:
    """Every action with every combination of arguments."""
    return [
        Instance(act, arguments)
        for act in actions(machine)
        for arguments in product(*(tuple(constants.domain(domain)) for domain in act.domains))
    ]


@cache
def _hints(machine: type) -> dict[str, Any]:
    return get_type_hints(machine)


_State = TypeVar("_State", bound=Machine)


def step(state: _State, instance: Instance) -> _State:
    """The state after one action.

    Raises:
        NotEnabled: the enabling condition is false.
        Rejected: the protocol refuses the request.
    """
    after: _State = getattr(state, instance.action.method)(*instance.arguments)
    return after


def load(machine: type[_State], constants: Any, variables: Mapping[str, SpecValue]) -> _State:
    """A state of the spec as a state of the machine."""
    hints = _hints(machine)
    context = machine.context(constants)
    fields_of = {snake_case(name): variables[name] for name in machine.VARIABLES}
    given = {name: from_spec(hints[name], value, context) for name, value in fields_of.items()}
    make: Callable[..., _State] = machine
    return make(constants=constants, **given)


def dump(state: Machine) -> dict[str, SpecValue]:
    """A state of the machine as the spec's variables."""
    return {name: to_spec(getattr(state, snake_case(name))) for name in state.VARIABLES}


def load_constants(constants: type[Any], values: Mapping[str, SpecValue]) -> Any:
    """The constants of a model; a constant the machine does not know belongs to the model's bounds and is left out."""
    hints = get_type_hints(constants)
    return constants(
        **{
            f.name: from_spec(hints[f.name], values[camel_case(f.name, capital=True)])
            for f in fields(constants)
            if camel_case(f.name, capital=True) in values
        }
    )


def walk(start: _State, labels: Iterable[Instance]) -> Iterator[_State]:
    """The states along a path, the first included."""
    state = start
    yield state
    for instance in labels:
        state = step(state, instance)
        yield state
