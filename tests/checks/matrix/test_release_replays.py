from dataclasses import replace

import pytest

from kafka_eos_checks.kit.verdict import Standing, Verdict
from kafka_eos_checks.matrix import release_replays
from kafka_eos_checks.matrix.release_replays import check, expected_rules, known_rules, plans
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.simulate.command import Plan
from kafka_eos_checks.simulate.transactions import TransactionsPlan


@pytest.fixture
def briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the producer is simulated, once for each setting."""
    monkeypatch.setattr(release_replays, "SEEDS", range(2))
    monkeypatch.setattr(release_replays, "MODELS", {"IdempotentProducer": "Snapshots"})


def found_by(registry: Registry) -> dict[str, Verdict]:
    return {verdict.name: verdict for verdict in check(registry)}


@pytest.mark.usefixtures("briefly")
def test_the_audit_finds_in_runs_of_a_release_what_its_own_rules_do_and_nothing_by_the_repaired_ones() -> None:
    found = found_by(Registry())
    assert found["duplicate value, repaired"].found == "finds nothing"
    assert found["duplicate value, repaired"].ok
    for release in ("4.3", "3.9"):
        shown = found[f"duplicate value, Kafka {release}"]
        assert (shown.ok, shown.figures["findings"]) == (True, "retry-refused-after-restart, gap-after-expiry")
        assert shown.figures["recordings"] > 0
    nothing = found["torn transaction, Kafka 4.3"]
    assert (nothing.standing, nothing.figures["recordings"]) == (Standing.NOTHING, 0)


@pytest.mark.usefixtures("briefly")
def test_a_rule_that_finds_what_the_registry_does_not_expect_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.mutants = {
        name: replace(mutant, replay="") if mutant.replay == "duplicate value" else mutant
        for name, mutant in registry.mutants.items()
    }
    assert found_by(registry)["duplicate value, Kafka 4.3"].ok, "a finding of the release names the rule"
    with monkeypatch.context() as unnamed:
        unnamed.setattr(release_replays, "known_rules", lambda *_: set())
        assert not found_by(registry)["duplicate value, Kafka 4.3"].ok
    monkeypatch.setattr(release_replays, "plans", lambda *_: [Plan(seed=0, mutant="RulesOfRelease", steps=3)])
    assert not found_by(Registry())["duplicate value, Kafka 4.3"].ok


@pytest.mark.usefixtures("briefly")
def test_what_no_finding_of_the_release_explains_fails_though_it_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_replays, "_by_finding", lambda *_: {})
    shown = found_by(Registry())["duplicate value, Kafka 4.3"]
    assert (shown.ok, shown.found) == (False, "finds something, by what no finding explains")


@pytest.mark.parametrize(("absent", "versions"), [({}, {1, 2}), ({"Versions": "2"}, {1}), ({"Versions": "1"}, {2})])
def test_a_release_is_simulated_in_the_versions_of_transactions_that_it_has(
    absent: dict[str, str], versions: set[int]
) -> None:
    tried = [plan.versions for plan in plans("Transactions", absent) if isinstance(plan, TransactionsPlan)]
    assert set(tried) == {(version,) for version in versions}


def test_the_ledger_names_the_rules_that_may_find_something_in_a_release() -> None:
    releases = Releases()
    assert expected_rules(Registry(), releases, "4.3") < known_rules(releases, "4.3")
    assert "committed record missing" in known_rules(releases, "4.3")
    assert "committed record missing" not in known_rules(releases, "3.9"), "which waits for the leader"


def test_the_rules_that_have_to_find_something_are_those_of_mutants_made_of_a_release() -> None:
    registry = Registry()
    releases = Releases()
    assert expected_rules(registry, releases, "4.3") == {
        "gap",
        "refused without cause",
        "duplicate value",
        "hanging transaction",
    }
    kept = {name: mutant for name, mutant in registry.mutants.items() if name != "KeepsEpochWhileEnding"}
    registry.mutants = kept
    assert "gap" not in expected_rules(registry, releases, "4.3")
