from collections import Counter
from dataclasses import replace

import pytest

from kafka_eos_checks.cli import main
from kafka_eos_checks.ledger import columns
from kafka_eos_checks.ledger.columns import Judged, Statement, statements, unjudged
from kafka_eos_checks.matrix import release_replays
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.walks.layers import layers


@pytest.fixture(scope="module")
def found() -> list[Statement]:
    return list(statements(Registry(), Releases()))


def test_everything_that_is_judged_says_how_each_release_is_or_why_not(found: list[Statement]) -> None:
    assert [each for each in found if each.judged is Judged.MISSING] == []
    needs_reason = {Judged.OUTSIDE, Judged.UNJUDGED}
    assert [each for each in found if bool(each.reason) != (each.judged in needs_reason)] == []
    registry, releases = Registry(), Releases()
    for release in releases.releases:
        kinds = Counter(each.kind for each in found if each.release == release)
        assert kinds["model"] == len(registry.models)
        walked = {each.name for each in found if (each.kind, each.release) == ("walk", release)}
        assert walked == {layer.name for layer in layers(registry)} | columns.UNWALKED.keys()
        assert kinds.keys() == {"model", "proof", "contract", "walk", "audit"}


def test_what_has_a_rule_that_the_release_has_otherwise_is_judged_by_its_rules_and_else_shared(
    found: list[Statement], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = {(each.kind, each.name): each.judged for each in found if each.release == "4.3"}
    assert judged["contract", "unknown_producer_begins_with_zero"] is Judged.OWN
    assert judged["contract", "varint_comes_back"] is Judged.SHARED
    assert judged["proof", "append"] is Judged.OWN
    monkeypatch.setattr(Releases, "of_module", lambda *_: {})
    others = {each.judged for each in statements(Registry(), Releases()) if each.kind == "proof"}
    assert others == {Judged.SHARED}


def test_only_what_is_named_here_is_not_judged(found: list[Statement]) -> None:
    left = {(each.kind, each.name, each.release) for each in unjudged(found) if each.name not in columns.UNWALKED}
    assert left == {
        ("model", "ThreeReplicasTwoElections", "4.4"),
        ("model", "ThreeReplicasTwoElections", "4.3"),
        ("model", "ThreeReplicasTwoElections", "3.9"),
    }


def test_a_model_without_an_expectation_and_a_module_without_walks_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.models["PartitionLog"] = replace(registry.models["PartitionLog"], shipped={})
    monkeypatch.setattr(columns, "UNWALKED", {})
    missing = {(each.kind, each.name) for each in statements(registry, Releases()) if each.judged is Judged.MISSING}
    assert ("model", "PartitionLog") in missing
    assert ("walk", "ProducerIds") in missing


def test_the_command_names_what_is_not_judged(found: list[Statement], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "properties", "--judged"]) == 0
    told = capsys.readouterr().out
    rules = sum(each.kind == "audit" and each.release == "3.9" for each in found)
    assert f"\naudit, Kafka 3.9: {rules}: {rules} by the rules of the release\n" in told
    assert "\nnot judged by Kafka 4.3: model ThreeReplicasTwoElections: it is of the deep tier: " in told


def test_a_reason_with_brackets_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "see [rule.X] " * 20
    told = Statement(kind="[rule.X]", name="M", release="4.3", judged=Judged.UNJUDGED, reason=reason)
    monkeypatch.setattr(columns, "statements", lambda *_: [told])
    assert main(["ledger", "properties", "--judged"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("[rule.X], Kafka 4.3: 1: 1 ")
    assert f"not judged by Kafka 4.3: [rule.X] M: {reason}\n" in shown
    missing = replace(told, judged=Judged.MISSING, kind="model", reason="")
    monkeypatch.setattr(columns, "statements", lambda *_: [missing])
    assert main(["ledger", "properties", "--judged"]) == 1


def test_every_rule_of_the_audit_gets_a_verdict_for_each_release(
    found: list[Statement], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_replays, "MODELS", {})  # which verdicts there are does not depend on what is simulated
    given = {verdict.name for verdict in release_replays.check(Registry())}
    assert {f"{each.name}, Kafka {each.release}" for each in found if each.kind == "audit"} <= given
