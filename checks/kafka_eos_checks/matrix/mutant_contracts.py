"""Mutants against contracts: CrossHair breaks a contract about a rule once a mutant has replaced the rule."""

from collections.abc import Sequence
from dataclasses import replace

from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks.contracts.command import BROKEN, check, with_rules
from kafka_eos_checks.contracts.conditions import CONTRACTS, Contract
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.registry import Model

SECONDS = 20.0  # CPU time for a contract; most take less than a second


def contracts_about(mutant: Model) -> list[Contract]:
    """The contracts about the rules that a mutant replaces in the classes of its machine."""
    rules = set(map(snake_case, mutant.overrides))
    return [
        contract
        for contracts in CONTRACTS.values()
        for contract in contracts
        if any(rules & set(about) for owner, about in contract.about.items() if _is_part(mutant, owner))
    ]


def _is_part(mutant: Model, owner: type) -> bool:
    machine = mutant.machine_class()
    parts = (machine, *(getattr(machine, name) for name in ("LOG", "LIMITS") if hasattr(machine, name)))
    return any(issubclass(part, owner) for part in parts)


def find_by_contract(mutant: Model, contracts: Sequence[Contract]) -> Verdict:
    """The verdict of the first contract that the mutant breaks, or that of the last, which it does not break.

    Args:
        mutant: a mutant of the registry.
        contracts: the contracts about its rules, at least one.
    """
    first, *others = contracts
    found = _checked(mutant, first)
    for contract in others:
        if found.ok:
            break
        found = _checked(mutant, contract)
    return found


def _checked(mutant: Model, contract: Contract) -> Verdict:
    with with_rules(contract, mutant.overrides):
        found = check("contract", contract.promise, SECONDS)
    is_broken = found.found == BROKEN
    told = f"breaks {contract.promise.__name__}" if is_broken else found.found
    return replace(
        found, check="contract-mutant", name=mutant.name, expected="breaks a contract", found=told, ok=is_broken,
        title=mutant.title,
    )  # fmt: skip
