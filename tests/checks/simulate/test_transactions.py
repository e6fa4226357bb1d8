"""Simulated transactions, as recordings: correct ones, and those of named failures and wrong readers."""

import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos.histories.transaction_history import ReadCommitted, value_name
from kafka_eos.machines.transactions import Entry, Transactions
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.rules.histories import UNASKED
from kafka_eos_checks.audit.rules.readers import (
    ABORTED_DELIVERED,
    INCONSISTENT,
    NON_MONOTONIC,
    POLL_SKIP,
    PRECOMMITTED,
    STABLE_WENT_BACK,
)
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.simulate import transactions
from kafka_eos_checks.simulate.named_failures import NAMED_FAILURES
from kafka_eos_checks.simulate.transactions import (
    SimulatedTransactions,
    TransactionsPlan,
    scenarios,
    simulate_failure,
    simulate_transactions,
    write_transactions,
)


def rules(simulated: SimulatedTransactions, folder: Path) -> set[str]:
    write_transactions(simulated, folder)
    return {finding.rule for finding in run([folder]).findings}


@pytest.mark.parametrize("versions", [(2,), (1,), (1, 2)])
def test_the_reference_violates_no_rule_under_the_faults_that_its_version_withstands(
    versions: tuple[int, ...], tmp_path: Path
) -> None:
    ended = 0
    for seed in range(12):
        plan = TransactionsPlan(seed=seed, steps=300, partitions=3, versions=versions)
        simulated = simulate_transactions(plan)
        assert rules(simulated, tmp_path / str(seed)) == set(), plan
        ended += sum(
            result in {"committed", "aborted"} for own in simulated.state.outcome.values() for result in own.values()
        )
    assert ended > 60


def test_only_clients_that_all_speak_version_2_meet_a_former_coordinator_and_repeated_requests() -> None:
    spoken = ((2,), (1,), (1, 2))
    kinds = [TransactionsPlan(seed=0, versions=versions).constants().faults for versions in spoken]
    assert kinds[0] - kinds[1] == {transactions.FORMER, *transactions.REPEATS}
    assert kinds[1] == kinds[2] == transactions.WITHSTOOD
    named = set(re.findall(r'self\.fault\("([a-z ]+)"\)', inspect.getsource(Transactions))) - {"repeat batch"}
    assert transactions.WITHSTOOD | {transactions.FORMER, transactions.BY_HAND} | transactions.REPEATS == named


def test_the_audit_finds_a_named_failure_where_it_is_known_and_nothing_under_version_2() -> None:
    verdicts = list(scenarios())
    assert [verdict.name for verdict in verdicts if not verdict.ok] == []
    shown = {verdict.name for verdict in verdicts if 'class="violation"' in verdict.diagram}
    assert shown == {verdict.name for verdict in verdicts if verdict.expected != "0 findings"}
    assert {name.split(",")[0] for name in shown} == {"late-end", "late-marker", "hanging"}


def test_a_scenario_that_does_not_match_its_name_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = NAMED_FAILURES["hanging"]
    monkeypatch.setitem(NAMED_FAILURES, "hanging", replace(hanging, script=NAMED_FAILURES["zombie"].script))  # type: ignore[misc]
    assert [verdict.name for verdict in scenarios() if not verdict.ok] == ["hanging, version 1, without verification"]


def test_a_scenario_in_which_another_rule_finds_something_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    late_end = replace(NAMED_FAILURES["late-end"], found=frozenset({"fenced producer committed"}))
    monkeypatch.setattr(transactions, "NAMED_FAILURES", {"late-end": late_end})
    assert [(verdict.ok, verdict.found != "0 findings") for verdict in scenarios()] == [(False, True), (True, False)]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_action_that_is_only_slower_goes_on_when_the_faults_stop(seed: int) -> None:
    plan = TransactionsPlan(seed=seed, steps=200, transactions=4, faults={"HandleMarker": 1.0})
    state = simulate_transactions(plan).state
    assert any(result in {"committed", "aborted"} for own in state.outcome.values() for result in own.values())
    assert not state.marker_requests, "each marker was handled"


def test_only_verification_prevents_the_hanging_transaction_and_not_the_late_requests(tmp_path: Path) -> None:
    found = {name: rules(simulate_failure(name, 1, True), tmp_path / name) for name in NAMED_FAILURES}
    known = {name: failure.found for name, failure in NAMED_FAILURES.items()}
    assert found == known | {"hanging": set()}


@pytest.mark.parametrize("name", NAMED_FAILURES)
def test_a_script_produces_the_failure_that_its_name_says(name: str) -> None:
    simulated = simulate_failure(name)
    taken = {event.action for event in simulated.events}
    outcome = {str(result) for own in simulated.state.outcome.values() for result in own.values()}
    if name == "zombie":
        assert [simulated.state.clients[instance].state for instance in "AB"] == ["failed", "ready"]
    elif name == "coordinator-failover":
        assert "LeaderChange" in taken
        refused = [e for e in simulated.events if (e.action, e.phase) == ("WriteTxnMarkers", "fail")]
        assert [(event.coordinator_epoch, event.offset) for event in refused] == [(0, None)]
        assert "committed" in outcome
    elif name == "timeout":
        assert simulated.state.clients["A"].state == "failed"
    else:
        assert outcome & {"committed", "aborted"}
    assert not simulated.state.end_requests, "each copy of a request has arrived"


class DeliversAborted(ReadCommitted):
    def is_delivered(self, log: Sequence[Entry], offset: int) -> bool:
        return log[offset].kind == "data"


class DeliversOpen(ReadCommitted):
    def last_stable_offset(self, log: Sequence[Entry]) -> int:
        return len(log)

    def is_delivered(self, log: Sequence[Entry], offset: int) -> bool:
        return super().is_delivered(log, offset) or all(entry.kind == "data" for entry in log[offset:])


class SkipsCommitted(ReadCommitted):
    def is_delivered(self, log: Sequence[Entry], offset: int) -> bool:
        return offset % 5 != 0 and super().is_delivered(log, offset)


class ForgetsMarkers(ReadCommitted):
    def last_stable_offset(self, log: Sequence[Entry]) -> int:
        data = [offset for offset, entry in enumerate(log) if entry.kind == "data"]
        return max(data, default=0) if len(log) % 3 else super().last_stable_offset(log)


class GoesBack(ReadCommitted):
    def position_after(self, start: int, end: int) -> int:
        return max(0, min(start, end - 3))


class MixesUp(ReadCommitted):
    def content(self, entry: Entry, partition: int) -> str:
        return value_name(entry.instance, entry.number, partition + 1)


@pytest.mark.parametrize(
    ("reader", "rule"),
    [
        (DeliversAborted(), ABORTED_DELIVERED),
        (DeliversOpen(), ABORTED_DELIVERED),
        (DeliversOpen(), PRECOMMITTED),
        (SkipsCommitted(), POLL_SKIP),
        (ForgetsMarkers(), STABLE_WENT_BACK),
        (GoesBack(), NON_MONOTONIC),
        (MixesUp(), INCONSISTENT),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_the_rule_of_a_wrong_reader_finds_it(reader: ReadCommitted, rule: str, tmp_path: Path) -> None:
    plan = TransactionsPlan(seed=2, steps=200, instances=2, faults={"ElectLeader": 0.0})
    assert rules(simulate_transactions(plan), tmp_path / "right") == set()
    assert rule in rules(simulate_transactions(plan, reader=reader), tmp_path / "wrong")


def test_the_same_plan_gives_the_same_bytes_in_every_process_and_another_seed_other_ones(tmp_path: Path) -> None:
    def digest(seed: int, hashing: str = "") -> str:
        folder = tmp_path / f"{seed}-{hashing}"
        command = ["simulate", "transactions", "--steps", "200", "--seed", str(seed), "--out", str(folder)]
        if hashing:
            environment = os.environ | {"PYTHONHASHSEED": hashing}
            subprocess.run([sys.executable, "-m", "kafka_eos_checks.cli", *command], check=True, env=environment)
        else:
            assert main(command) == 0
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()

    assert digest(7, "1") == digest(7, "2") != digest(8)
    seven, eight = (simulate_transactions(TransactionsPlan(seed=seed, steps=100)).events for seed in (7, 8))
    assert [event.action for event in seven] != [event.action for event in eight]


def test_the_recording_has_a_manifest_a_history_and_the_folders_of_a_broker(tmp_path: Path) -> None:
    plan = TransactionsPlan(seed=7, steps=100, partitions=3)
    simulated = simulate_transactions(plan)
    assert {event.run for event in simulated.events} == {"simulated-transactions/reference/7"}
    mutant = simulate_transactions(replace(plan, mutant="NoEndBump"))
    assert {event.run for event in mutant.events} == {"simulated-transactions/NoEndBump/7"}
    write_transactions(simulated, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    assert (manifest["cluster"], manifest["seed"], manifest["versions"]) == ("simulated", 7, [2])
    folders = {path.name for path in (tmp_path / "brokers" / "1").iterdir()}
    assert folders == {"simulated-0", "simulated-1", "simulated-2", "__transaction_state-0"}


def test_the_command_writes_a_scenario_that_the_audit_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known, cured = str(tmp_path / "known"), str(tmp_path / "cured")
    scenario = ["simulate", "transactions", "--scenario", "late-end"]
    assert main([*scenario, "--out", known]) == 0
    assert capsys.readouterr().out.startswith("scenario late-end: ")
    assert main(["audit", known]) == 1
    assert UNASKED in capsys.readouterr().out
    assert main([*scenario, "--transaction-version", "2", "--out", cured]) == 0
    assert main(["audit", cured]) == 0


def test_the_command_simulates_what_its_options_say(tmp_path: Path) -> None:
    options = "--steps 20 --transactions 4 --partitions 3 --instances 5 --transaction-version 1 2 --mutant NoEndBump"
    more = "--no-verification --repeats --fault Crash=2"
    call = ["simulate", "transactions", "--seed", "6", "--out", str(tmp_path), *options.split(), *more.split()]
    assert main(call) == 0
    told = json.loads((tmp_path / "manifest.json").read_text(encoding="utf-8"))
    wanted = {"seed": 6, "steps": 20, "transactions": 4, "partitions": 3, "instances": 5, "versions": [1, 2]}
    wanted |= {"mutant": "NoEndBump", "verification": False, "repeats": True}
    assert {name: told[name] for name in wanted} == wanted
    assert told["faults"]["Crash"] == 2.0


def test_the_command_takes_one_to_five_instances(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["simulate", "transactions", "--steps", "20", "--out", str(tmp_path / "run"), "--instances"]
    assert [main([*call, str(count)]) for count in (1, 5)] == [0, 0]
    for count in ("0", "6"):
        with pytest.raises(SystemExit):
            main([*call, count])
        assert f"--instances {count}: expected 1, 2, 3, 4 or 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--partitions", "2"], "--partitions belongs to 'kafka-eos simulate transactions'"),
        (["transactions", "--values", "3"], "--values belongs to 'kafka-eos simulate producer'"),
        (["transactions", "--scenario", "zombie", "--steps", "3"], "--steps is not for a scenario"),
        (["transactions", "--scenario", "zombie", "--fault", "Crash=1"], "a scenario has its own faults"),
        (["transactions", "--scenario", "zombie", "--transaction-version", "1", "2"], "one transaction version"),
        (["transactions", "--fault", "Meteor=1"], "no action 'Meteor'"),
        (["transactions", "--mutant", "Gremlin"], "no entry 'Gremlin'"),
    ],
)
def test_the_command_refuses_options_that_do_not_belong_together(
    tmp_path: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments, "--out", str(tmp_path / "run")]) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
