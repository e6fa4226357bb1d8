"""Contracts hold on all explored paths, and a planted bug in each module with contracts is found."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from crosshair import core_and_libs

from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos_checks import cli
from kafka_eos_checks.contracts import command, conditions
from kafka_eos_checks.contracts.command import BROKEN, CONFIRMED, FAILS, NOT_BROKEN, assumed
from kafka_eos_checks.contracts.conditions import CONTRACTS
from kafka_eos_checks.kit.verdict import Verdict, read_verdicts
from kafka_eos_checks.matrix.mutant_contracts import contracts_about, find_by_contract
from kafka_eos_checks.models.registry import Registry

LARGE = {"varint", "batch codec"}  # more paths than a test has time for


@pytest.fixture(scope="module")
def found() -> dict[str, list[dict[str, Any]]]:
    program = Path(__file__).with_name("planted_bugs.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True)
    verdicts: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return verdicts


@pytest.mark.thorough
def test_no_contract_is_broken_and_unexplored_paths_are_reported(found: dict[str, list[dict[str, Any]]]) -> None:
    verdicts = found["as they are"]
    assert len(verdicts) == sum(map(len, CONTRACTS.values()))
    for verdict in verdicts:
        is_large = verdict["name"].split(":")[0] in LARGE
        assert verdict["found"] == (NOT_BROKEN if is_large else CONFIRMED), verdict
        assert verdict["figures"]["unexplored"] == ("some" if is_large else "none")
        assert verdict["figures"]["paths"] > 1


@pytest.mark.thorough
def test_a_planted_bug_or_a_mutant_breaks_every_contract_and_its_arguments_are_shown(
    found: dict[str, list[dict[str, Any]]],
) -> None:
    broken = set()
    for verdict in found["with bugs"]:
        assert verdict["found"] in {BROKEN, FAILS}, verdict
        assert not verdict["ok"]
        broken.add(verdict["name"].split(": ")[1])
    for verdict in found["with mutants"]:
        assert verdict["ok"], verdict
        broken.add(verdict["found"].removeprefix("breaks "))
    assert broken == {verdict["name"].split(": ")[1] for verdict in found["as they are"]}
    for verdict in (*found["with bugs"], *found["with mutants"]):
        assert any(f"{contract}(" in verdict["evidence"] for contract in broken)


@pytest.mark.thorough
def test_the_assumptions_about_arguments_are_shown(found: dict[str, list[dict[str, Any]]]) -> None:
    evidence = {verdict["name"]: verdict["evidence"].splitlines() for verdict in found["as they are"]}
    assert evidence["batch codec: any_bytes_are_records_or_refused"][1:] == [
        "of arguments with len(data) <= 9, 0 <= count <= 2",
        "unexplored: the paths that were left when it was broken, or the time over",
    ]
    assert all(assumed(contract.promise) for contracts in CONTRACTS.values() for contract in contracts)


def test_each_rule_that_a_contract_is_about_is_one_of_its_class() -> None:
    for contracts in CONTRACTS.values():
        for contract in contracts:
            for owner, rules in contract.about.items():
                assert [rule for rule in rules if not hasattr(owner, rule)] == []


def test_a_mutant_is_searched_only_in_the_contracts_about_its_rules() -> None:
    registry = Registry()
    assert [one.promise.__name__ for one in contracts_about(registry.get("CacheOfOne"))] == [
        "five_batches_are_remembered"
    ]
    assert contracts_about(registry.get("MarkerKeepsEpoch")) == []


@pytest.mark.thorough
def test_a_mutant_that_breaks_no_contract_survives(found: dict[str, list[dict[str, Any]]]) -> None:
    [verdict] = found["with a mutant of another rule"]
    assert (verdict["name"], verdict["found"], verdict["ok"]) == ("CacheOfOne", CONFIRMED, False)


@pytest.mark.parametrize(
    ("said", "answer", "killed"),
    [
        ([("EXEC_ERR", "AssertionError:  when calling five_batches_are_remembered(1, 0)")], BROKEN, True),
        ([("EXEC_ERR", "TypeError: cache_of_one() takes 1 positional argument")], FAILS, False),
        ([("EXEC_ERR", "NotDeterministic: Found a different execution paths")], FAILS, False),
        ([("SYNTAX_ERR", "no conditions")], FAILS, False),
        ([("PRE_UNSAT", "no arguments")], FAILS, False),
        ([], FAILS, False),
        ([("CANNOT_CONFIRM", "")], NOT_BROKEN, False),
    ],
)
def test_a_mutant_that_does_not_run_breaks_no_contract(
    said: list[tuple[str, str]], answer: str, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [SimpleNamespace(state=core_and_libs.MessageType[state], message=text) for state, text in said]
    monkeypatch.setattr(core_and_libs, "analyze_function", lambda *_: [])
    monkeypatch.setattr(core_and_libs, "run_checkables", lambda _: messages)
    mutant = Registry().get("CacheOfOne")
    assert find_by_contract(mutant, contracts_about(mutant)).ok == killed
    verdict = command.check("append", contracts_about(mutant)[0].promise)
    assert (verdict.found, verdict.ok) == (answer, answer == NOT_BROKEN)


@pytest.mark.parametrize(("answer", "code"), [(CONFIRMED, 0), (BROKEN, 1)])
def test_the_command_writes_its_verdicts_and_fails_if_a_contract_fails(
    answer: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(module: str, contract: Any, seconds: float) -> Verdict:
        name = f"{module}: {contract.__name__}"
        return Verdict(
            check="contract", name=name, expected="not broken", found=answer, ok=answer != BROKEN, evidence="why"
        )

    monkeypatch.setattr(command, "check", check)
    assert cli.main(["check", "contracts", "epochs", "--json", str(tmp_path / "contracts.json")]) == code
    assert [verdict.found for verdict in read_verdicts(tmp_path / "contracts.json")] == [answer]
    assert ("why" in capsys.readouterr().out) == (code == 1)


def test_contracts_of_an_unknown_module_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "contracts", "varnit"]) == 2
    assert "no contracts of 'varnit'; there are sequences" in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("release", "broken_by"),
    [
        ("4.3", ["AcceptsUnknownProducer", "SnapshotOf", "", "AfterRetryOfInit, BumpError"]),
        ("3.9", ["AcceptsUnknownProducer", "SnapshotOf", "", "InLog", "", "AfterRetryOfInit, BumpError"]),
    ],
)
def test_a_release_breaks_the_contracts_that_rest_on_a_repair(
    release: str, broken_by: list[str], tmp_path: Path
) -> None:
    call = [sys.executable, "-m", "kafka_eos_checks.cli", "check", "contracts", "--kafka", release, "--json"]
    done = subprocess.run([*call, str(tmp_path / "found.json")], capture_output=True, text=True, check=True)
    assert [verdict.found for verdict in read_verdicts(tmp_path / "found.json")] == [
        f"broken by Kafka's own {rules}" if rules else CONFIRMED for rules in broken_by
    ]
    assert f"more contracts are about no rule that Kafka {release} has otherwise, and are of it too" in done.stdout


@pytest.mark.parametrize(("answer", "code"), [(CONFIRMED, 1), (FAILS, 1), (BROKEN, 0)])
def test_a_contract_that_rests_on_a_repair_has_to_be_broken_by_the_release(
    answer: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replaced = []

    def check(module: str, contract: Any, seconds: float) -> Verdict:
        replaced.append(conditions.Log.__name__)
        name = f"{module}: {contract.__name__}"
        return Verdict(check="contract", name=name, expected="not broken", found=answer, ok=answer != BROKEN)

    monkeypatch.setattr(command, "check", check)
    asked = ["sequences", "append guards"]
    call = ["check", "contracts", *asked, "--kafka", "4.3", "--json", str(tmp_path / "contracts.json")]
    assert cli.main(call) == code
    assert f"{sum(len(CONTRACTS[name]) for name in asked) - 1} more contracts" in capsys.readouterr().out
    [verdict] = read_verdicts(tmp_path / "contracts.json")
    assert verdict.name == "append guards: unknown_producer_begins_with_zero, Kafka 4.3"
    assert verdict.expected == "broken by Kafka's own AcceptsUnknownProducer"
    assert set(replaced) == {"LogWithAnySequenceOnVirginPartition"}
    assert conditions.Log.__name__ == "Log"


def test_rules_that_a_contract_rests_on_are_among_those_that_it_is_about() -> None:
    for contract in (contract for contracts in CONTRACTS.values() for contract in contracts):
        about = {rule for rules in contract.about.values() for rule in rules}
        assert {snake_case(rule) for rule in contract.rests_on} <= about


def test_a_release_that_is_not_known_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "contracts", "--kafka", "1.0"]) == 2
    assert "no release '1.0'; there are 4.4, 4.3, 3.9" in capsys.readouterr().err


def test_a_rule_that_a_contract_does_not_rest_on_alone_is_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(module: str, contract: Any, seconds: float) -> Verdict:
        broken = "RetryForgetsProducerId" in conditions.Rules.__name__
        found = BROKEN if broken else CONFIRMED
        return Verdict(check="contract", name=contract.__name__, expected="not broken", found=found, ok=not broken)

    monkeypatch.setattr(command, "check", check)
    [verdict] = [one for one in command.of_kafka(["coordinator"], "4.3", 1.0) if "init_is_repeated" in one.name]
    assert (verdict.found, verdict.ok) == ("broken by Kafka's own AfterRetryOfInit", False)
    assert verdict.expected == "broken by Kafka's own AfterRetryOfInit, BumpError"
