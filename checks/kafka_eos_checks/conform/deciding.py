"""The operators of the spec that decide an answer, read from the machine while it takes a step.

A method of a machine has the name of its operator, in the file of its module, and its docstring is the operator's
comment. So conform names no rules: it looks which of these methods return the error code that is answered.
"""

import sys
from dataclasses import dataclass, field
from functools import cache
from inspect import cleandoc
from pathlib import Path
from types import CodeType, FrameType

from kafka_eos import machines
from kafka_eos.errors import ErrorCode
from kafka_eos.machines.broker import Broker
from kafka_eos.machines.machine import Action, Instance, step
from kafka_eos.machines.spec_mapping import camel_case
from kafka_eos_checks.kit.paths import CLONE, is_clone, spec_folder
from kafka_eos_checks.tla.modules import ModuleFolder

_FOLDER = Path(machines.__file__).parent


@cache
def _modules() -> ModuleFolder:
    return ModuleFolder(spec_folder())


@cache
def operators() -> frozenset[tuple[str, str]]:
    """The operators that ``Broker`` depends on: (module, operator)."""
    return _modules().reached_through(Broker.MODULE, "Spec")


@dataclass(frozen=True, slots=True)
class Rule:
    """An operator of the spec.

    Attributes:
        name: its name, with its module.
        says: the first paragraph of its comment.
        code: the file and the line of the method.
    """

    name: str
    says: str = field(compare=False)
    code: tuple[str, int] = field(compare=False)

    def __str__(self) -> str:
        return f"{self.name}: {self.says}"

    @property
    def places(self) -> tuple[str, ...]:
        """Where the operator and the method are: ``file:line`` in a clone, or from the folder of the packages on."""
        module, _, operator = self.name.partition("!")
        spec = _modules()
        home, definition = spec.operators(module).get(operator, ("", None)) if module in spec.paths else ("", None)
        of_spec = [f"spec/{spec.paths[home].name}:{definition.line}"] if definition is not None else []
        root = CLONE if is_clone() else _FOLDER.parents[1]
        file, line = self.code
        return (*of_spec, f"{Path(file).resolve().relative_to(root.resolve())}:{line}")


def deciding(state: Broker, instance: Instance) -> tuple[Rule, ...]:
    """The operators that decide the answer to a request, in the order of their evaluation.

    An operator decides an error code if it returns it, was not given it, and got it from no other operator. An answer
    that no operator decides is explained by its action, and by the conditions of ``Broker`` that are true.
    """
    codes: list[Rule] = []
    conditions: list[Rule] = []
    returned: list[set[object]] = [set()]

    def watch(frame: FrameType, event: str, value: object) -> None:
        if event not in {"call", "return"} or Path(frame.f_code.co_filename).parent != _FOLDER:
            return
        if event == "call":
            returned.append(set())
            return
        below = returned.pop()
        if _operator(frame) not in operators():
            returned[-1] |= below
            return
        code = _code(value)
        if code is not None:
            returned[-1].add(code)
            if code not in below and code not in map(_code, _arguments(frame)):
                codes.append(_rule(frame))
        elif value is True and _is_of_broker(frame.f_back):
            returned[-1].add(True)
            if True not in below:
                conditions.append(_rule(frame))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        after = step(state, instance)
    finally:
        sys.setprofile(before)
    if after.answer.error is not ErrorCode.NONE and codes:
        return tuple(dict.fromkeys(codes))
    return tuple(dict.fromkeys([of_action(type(state), instance.action), *conditions]))


def of_action(machine: type[Broker], action: Action) -> Rule:
    """An action of ``Broker``, or of this room, as a rule."""
    method = getattr(machine, action.method)
    module = Broker.MODULE if hasattr(Broker, action.method) else "conform"
    return Rule(f"{module}!{action.name}", _comment(method.__doc__), _place(method.__code__))


def _code(value: object) -> ErrorCode | None:
    """An error code, also one that is returned as a verdict."""
    if isinstance(value, str) and value in ErrorCode.__members__:
        value = ErrorCode[value]
    return value if isinstance(value, ErrorCode) and value is not ErrorCode.NONE else None


def _arguments(frame: FrameType) -> list[object]:
    code = frame.f_code
    return [frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount]]


def _operator(frame: FrameType) -> tuple[str, str]:
    code = frame.f_code
    return camel_case(Path(code.co_filename).stem, capital=True), camel_case(code.co_name, capital=True)


def _is_of_broker(frame: FrameType | None) -> bool:
    return frame is not None and (operator := _operator(frame)) in operators() and operator[0] == Broker.MODULE


def _rule(frame: FrameType) -> Rule:
    return Rule("!".join(_operator(frame)), _comment(str(frame.f_code.co_consts[0])), _place(frame.f_code))


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_filename, code.co_firstlineno


def _comment(docstring: str | None) -> str:
    return " ".join(cleandoc(docstring or "").split("\n\n")[0].split())
