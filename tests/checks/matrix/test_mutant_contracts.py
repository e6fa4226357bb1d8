"""Contracts about a mutated rule, judged from made-up answers of CrossHair; tests/checks/contracts lets it search."""

from collections.abc import Callable
from typing import Any

import pytest

from kafka_eos_checks.contracts.command import BROKEN, CONFIRMED, FAILS, NOT_BROKEN
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.matrix import mutant_contracts
from kafka_eos_checks.matrix.mutant_contracts import SECONDS, contracts_about, find_by_contract
from kafka_eos_checks.models.registry import Registry

MUTANT = Registry().get("RetriesAppended")
FIRST, SECOND = contracts_about(MUTANT)


def saying(*answers: str) -> tuple[Callable[..., Verdict], list[str]]:
    """CrossHair with these answers, and the contracts that it was asked about."""
    waiting, asked = iter(answers), list[str]()

    def check(module: str, contract: Callable[..., None], seconds: float) -> Verdict:
        assert seconds == SECONDS
        asked.append(contract.__name__)
        found = "".join(next(waiting))  # equal to the word, and not the same object
        return Verdict(check="contract", name=module, expected="not broken", found=found, ok=found != BROKEN)

    return check, asked


def judged(monkeypatch: pytest.MonkeyPatch, *answers: str) -> tuple[Any, ...]:
    check, asked = saying(*answers)
    monkeypatch.setattr(mutant_contracts, "check", check)
    found = find_by_contract(MUTANT, [FIRST, SECOND])
    assert (found.check, found.name, found.expected) == ("contract-mutant", "RetriesAppended", "breaks a contract")
    assert found.title == MUTANT.title
    return found.ok, found.found, asked


def test_the_first_contract_that_a_mutant_breaks_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [FIRST.promise.__name__, SECOND.promise.__name__]
    assert judged(monkeypatch, BROKEN) == (True, f"breaks {names[0]}", names[:1])
    assert judged(monkeypatch, NOT_BROKEN, BROKEN) == (True, f"breaks {names[1]}", names)


@pytest.mark.parametrize("answer", [CONFIRMED, NOT_BROKEN, FAILS, "another word"])
def test_a_mutant_that_breaks_no_contract_survives(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    assert judged(monkeypatch, NOT_BROKEN, answer)[:2] == (False, answer)
