"""What coverage is counted against: the actions of a machine, and the conjuncts of its guards that can say no."""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from typing import Any

from kafka_eos.machine import actions
from kafka_eos_checks.conjuncts.reference import sources


@cache
def action_names(machine: type[Any]) -> frozenset[str]:
    """The actions of a machine."""
    return frozenset(action.name for action in actions(machine))


@cache
def refusals(machine: type[Any]) -> frozenset[str]:
    """What the guards of a machine say when they are false: the reasons of ``enabled(…, "reason")`` in its sources."""
    return frozenset(reason for module in sources(machine) for reason in _reasons(ast.parse(inspect.getsource(module))))


def _reasons(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "enabled":
            for argument in node.args[1:]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value
