"""The rules of the reference with one thing changed, each under the name that it has in ``spec/mutants``.

A mutant of the registry replaces operators of the spec by others. :func:`mutated` does the same to a machine:
``IsDuplicate = "NoDuplicateCache"`` puts the function ``no_duplicate_cache`` of ``mutants/producer_state.py`` in the
place of the method ``is_duplicate``, wherever that stands: in the machine, in its logs, or in its limits.
"""

from collections.abc import Callable, Mapping
from inspect import isfunction
from types import ModuleType
from typing import Any

import kafka_eos_checks.mutants.application_loop
import kafka_eos_checks.mutants.broker
import kafka_eos_checks.mutants.consume_transform_produce
import kafka_eos_checks.mutants.consumer
import kafka_eos_checks.mutants.consumer_group
import kafka_eos_checks.mutants.epoch_bump
import kafka_eos_checks.mutants.external_sink
import kafka_eos_checks.mutants.idempotent_producer
import kafka_eos_checks.mutants.leader
import kafka_eos_checks.mutants.mirror
import kafka_eos_checks.mutants.producer_ids
import kafka_eos_checks.mutants.producer_state
import kafka_eos_checks.mutants.share_partition
import kafka_eos_checks.mutants.stateful_processor
import kafka_eos_checks.mutants.transaction_coordinator
import kafka_eos_checks.mutants.transactional_offsets
import kafka_eos_checks.mutants.transactional_partition
import kafka_eos_checks.mutants.transactional_producer
import kafka_eos_checks.mutants.transactions
import kafka_eos_checks.mutants.transfer
from kafka_eos.machines.machine import Machine
from kafka_eos.machines.spec_mapping import snake_case


class UnknownRule(ValueError):  # noqa: N818 - named for what is unknown
    """An override that names no rule of the machine, or no function of this room."""


PARTS = ("LOG", "LIMITS")
"""The attributes of a machine that have the classes of its log and of its limits, with some of its rules."""

INSTANCES = ("SEQUENCES", "LEADING", "COORDINATING")
"""The attributes of a machine that have the classes with the rules of modules that its own module instantiates."""

MODULES = [
    module
    for module in vars(kafka_eos_checks.mutants).values()
    if isinstance(module, ModuleType) and module.__package__ == __package__
]
"""The files of mutants, one for each module of ``spec/mutants`` with rules of a machine: those imported above."""

MUTANTS: dict[str, Callable[..., Any]] = {
    name: function
    for module in MODULES
    for name, function in vars(module).items()
    if isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
}
"""The functions that take the place of rules, by name; no two of them have one name."""


def owner_of(machine: type[Any], rule: str) -> str | None:
    """The attribute of a machine whose class has a rule, "" for the machine itself; None if nothing has the rule.

    Args:
        machine: the machine's class.
        rule: a TLA+ operator; ``Module!Operator`` for one of a module that the machine's module instantiates.
    """
    module, _, name = rule.rpartition("!")
    if not module and hasattr(machine, snake_case(name)):
        return ""
    for attribute in INSTANCES if module else PARTS:
        part = getattr(machine, attribute, None)
        if hasattr(part, snake_case(name)) and (not module or _is_of(part, module)):
            return attribute
    return None


def _is_of(part: Any, module: str) -> bool:
    return any(base.__module__.endswith(f".{snake_case(module)}") for base in part.__mro__)


def mutated(machine: type[Any], overrides: Mapping[str, str]) -> type[Machine]:
    """A subclass of the machine with some of its rules replaced.

    Args:
        machine: the machine's class.
        overrides: TLA+ operator, as :func:`owner_of` takes it -> the operator of ``spec/mutants`` that takes its place.

    Raises:
        UnknownRule: when there is no such rule, or no function for the mutant.
    """
    changed: dict[str, dict[str, Callable[..., Any]]] = {}
    for rule, mutant in overrides.items():
        function = MUTANTS.get(snake_case(mutant))
        if function is None:
            raise UnknownRule(
                f"kafka_eos_checks.mutants has no function {snake_case(mutant)}; add it for the spec's mutant"
            )
        owner = owner_of(machine, rule)
        name = snake_case(rule.rpartition("!")[2])
        if owner is None:
            raise UnknownRule(f"{machine.__name__} has no rule {name}; the spec's {rule} is none of its own")
        changed.setdefault(owner, {})[name] = function

    def subclass(base: type[Any], rules: Mapping[str, Any]) -> type[Any]:
        members = {
            name: property(rule) if isinstance(getattr(base, name, None), property) else rule
            for name, rule in rules.items()
        }
        return type(f"{base.__name__}With{''.join(overrides.values())}", (base,), {"__slots__": (), **members})

    parts = {name: subclass(getattr(machine, name), rules) for name, rules in changed.items() if name}
    return subclass(machine, {**changed.get("", {}), **parts})
