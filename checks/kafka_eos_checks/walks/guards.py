"""The points of coverage that a machine has: its actions, the conjuncts of its guards that refuse, its faults."""

import ast
import inspect
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import combinations
from typing import Any

from kafka_eos.machines.machine import actions
from kafka_eos_checks.models.registry import rule_modules
from kafka_eos_checks.walks.layers import Layer


@cache
def action_names(machine: type[Any]) -> frozenset[str]:
    """The actions of a machine."""
    return frozenset(action.name for action in actions(machine))


@cache
def refusals(machine: type[Any]) -> frozenset[str]:
    """The reasons of a machine's guards when they are false: those of ``enabled(…, "reason")`` in its sources."""
    return frozenset(
        reason for module in rule_modules(machine) for reason in _reasons(ast.parse(inspect.getsource(module)))
    )


def fault_pairs(layers: Iterable[Layer], met: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """The pairs of faults of layers of one machine, each in the order of the alphabet.

    Args:
        layers: some layers of the machine; their constants may not allow every fault.
        met: pairs that runs have met. An action that has no name of a fault is one if it raises the number of faults.
    """
    named = {name for layer in layers for name in layer.walk.faults | layer.walk.kinds}
    return frozenset(combinations(sorted(named.union(*met)), 2))


def _reasons(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "enabled":
            for argument in node.args[1:]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value
