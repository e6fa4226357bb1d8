"""A served reference with a mutant's rules is detected by raw requests, and the unchanged one conforms."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafka_eos.machines.producer_state import Batch, Log
from kafka_eos_checks.conform.mechanisms import IDEMPOTENCE, MECHANISMS
from kafka_eos_checks.conform.run import Found
from kafka_eos_checks.matrix import mutant_requests
from kafka_eos_checks.matrix.mutant_requests import (
    AS_SERVED,
    CONFORMS,
    DIVERGES,
    FAILS,
    HANGS,
    SERVED,
    TOO_SLOW,
    _asked,
    find_by_requests,
    machines_with,
)
from kafka_eos_checks.models.registry import Registry

pytestmark = pytest.mark.usefixtures("one_processor")
REGISTRY = Registry()


@pytest.fixture(autouse=True)
def idempotence_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = tuple(each for each in MECHANISMS if each.name == "idempotence")
    monkeypatch.setattr(mutant_requests, "MECHANISMS", chosen)


@pytest.mark.parametrize("name", ["NoDuplicateCache", "EpochStartGap", "LargestSequenceOnly"])
def test_a_served_mutant_is_detected_and_its_first_divergence_is_reported(name: str) -> None:
    mutant = REGISTRY.get(name)
    machines = machines_with(mutant)
    assert machines is not None
    verdict = find_by_requests(mutant, machines)
    assert (verdict.ok, verdict.found) == (True, "diverges: idempotence, version 2")
    assert "the spec: " in verdict.evidence


def test_the_unchanged_reference_conforms_and_counts_as_a_surviving_mutant() -> None:
    verdict = find_by_requests(REGISTRY.get("NoDuplicateCache"), AS_SERVED)
    assert (verdict.ok, verdict.found, verdict.evidence) == (False, CONFORMS, "")
    assert verdict.figures == {"edges": 0}


class SleepingLog(Log):
    """A log that takes a second to look for a duplicate."""

    __slots__ = ()

    def is_duplicate(self, batch: Batch) -> bool:
        time.sleep(1.0)
        return super().is_duplicate(batch)


def test_a_broker_that_hangs_is_detected_though_no_answer_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutant_requests, "SECONDS", 0.3)
    asleep = replace(AS_SERVED, leaders=replace(AS_SERVED.leaders, sequences=SleepingLog))
    verdict = find_by_requests(REGISTRY.get("NoDuplicateCache"), asleep)
    assert (verdict.ok, verdict.found) == (True, "comes to no end: idempotence, version 2")


class FailingLog(Log):
    """A log that cannot look for a duplicate: a mutant that does not work."""

    __slots__ = ()

    def is_duplicate(self, batch: Batch) -> bool:
        raise TypeError(f"no duplicate of {batch.sequence}")


def test_a_server_that_fails_has_not_been_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    failing = replace(AS_SERVED, leaders=replace(AS_SERVED.leaders, sequences=FailingLog))
    verdict = find_by_requests(REGISTRY.get("NoDuplicateCache"), failing)
    assert (verdict.ok, verdict.found) == (False, FAILS)
    assert verdict.evidence.startswith("TypeError: no duplicate of ")
    assert not caplog.records, "what is expected to fail is not logged"


def test_a_hang_says_nothing_where_the_unchanged_reference_is_as_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutant_requests, "PATIENCE", 0.0)
    verdict = find_by_requests(REGISTRY.get("NoDuplicateCache"), AS_SERVED)
    assert (verdict.ok, verdict.found) == (False, TOO_SLOW)


@pytest.mark.parametrize(
    ("unchanged", "found"), [(CONFORMS, HANGS), *((each, "") for each in (DIVERGES, FAILS, HANGS))]
)
def test_a_hang_counts_only_where_the_unchanged_reference_conforms(
    unchanged: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant_requests, "_asked", lambda own, *_: (unchanged if own is AS_SERVED else HANGS, 1, ""))
    verdict = find_by_requests(REGISTRY.get("NoDuplicateCache"), replace(AS_SERVED))
    said = f"{found}: idempotence, version 2" if found else TOO_SLOW
    assert (verdict.ok, verdict.found) == (bool(found), said)


@pytest.mark.parametrize(
    ("rows", "outcome", "told"),
    [
        ([(Found.KNOWN, True)], CONFORMS, ""),
        ([(Found.UNKNOWN, True), (Found.DIVERGES, False), (Found.DIVERGES, True)], DIVERGES, "2"),
        ([(Found.UNKNOWN, True), (Found.DIVERGES, False), (Found.DIVERGES, False)], DIVERGES, "1"),
        ([(Found.UNKNOWN, False), (Found.UNKNOWN, True)], HANGS, "1"),
    ],
    ids=str,
)
def test_a_divergence_with_its_scenario_is_told_before_one_without_and_before_no_answer(
    monkeypatch: pytest.MonkeyPatch, rows: list[tuple[Found, bool]], outcome: str, told: str
) -> None:
    results = [SimpleNamespace(name=str(i), found=found, scenario=has) for i, (found, has) in enumerate(rows)]
    report = SimpleNamespace(differing=lambda: results, client=2)
    monkeypatch.setattr(mutant_requests, "conform", lambda *_: report)
    monkeypatch.setattr(mutant_requests, "story", lambda result, _: result.name)
    counted = sum(found is not Found.KNOWN for found, _ in rows)
    assert _asked(AS_SERVED, 2, IDEMPOTENCE) == (outcome, counted, told)


def test_rules_that_no_broker_has_belong_to_no_served_machine() -> None:
    assert machines_with(REGISTRY.get("ReuseSequence")) is None
    assert machines_with(REGISTRY.get("PositionOfRecords")) is None
    assert "Transfer" not in SERVED


def test_each_reason_is_about_a_mutant_whose_rules_are_served() -> None:
    excused = {name for name, mutant in REGISTRY.mutants.items() if "requests" in mutant.blind}
    served = {name for name, mutant in REGISTRY.mutants.items() if machines_with(mutant) is not None}
    assert excused
    assert excused <= served
    assert "NoDuplicateCache" not in excused
