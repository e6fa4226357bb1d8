"""Generated histories of Jepsen: judged without a finding, and with those that are planted."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.jepsen.anomalies import ABORTED_READ, BACKWARD_POLL, DUPLICATE, INCONSISTENT, LOST_WRITE
from kafka_eos_checks.audit.jepsen.operations import FAIL, INFO, read_operations
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab.generate import jepsen_history
from kafka_eos_checks.lab.generate.jepsen_history import PROCESSES, JepsenHistory


@pytest.fixture(autouse=True)
def few_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small keys, so that they are replaced in a small history."""
    monkeypatch.setattr(jepsen_history, "VALUES_OF_A_KEY", 200)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_healthy_history_has_only_allowed_anomalies(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "h.edn"
    path.write_text("".join(JepsenHistory(5000, seed=seed).lines()), encoding="utf-8")
    operations = read_operations(path)
    kinds = Counter(own.kind for own in operations)
    assert kinds[":assign"] > 3
    assert kinds[":txn"] > 4900
    outcomes = Counter(own.outcome for own in operations)
    assert min(outcomes[FAIL], outcomes[INFO]) > 10
    assert len({key for own in operations for key in own.sends}) > 15, "keys are replaced"
    result = run([path])
    assert [finding.in_words() for finding in result.findings] == []
    assert all(verdict.ok for verdict in result.verdicts)
    assert any(verdict.figures["allowed"] for verdict in result.verdicts), "some cycles of writes"


def test_a_process_goes_on_under_a_new_number_after_an_unknown_outcome_and_only_then() -> None:
    every, ended = set[str](), set[str]()
    for line in JepsenHistory(2000, seed=1).lines():
        process, kind = re.findall(r":process (\d+),|:type (:[a-z]+)", line)
        assert process[0] not in ended
        every.add(process[0])
        if kind[1] == INFO:
            ended.add(process[0])
    assert len(ended) > 5
    assert len(every) == len(ended) + PROCESSES


def test_what_is_planted_is_found_in_its_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "generate", str(tmp_path), "--jepsen", "5000", "--faults", "2", "--seed", "1"]) == 0
    assert "5,000 operations" in capsys.readouterr().out
    planted = {
        (row["rule"], row["topic"])
        for row in map(json.loads, (tmp_path / "planted.jsonl").read_text(encoding="utf-8").splitlines())
    }
    assert Counter(rule for rule, _ in planted) == dict.fromkeys(
        (LOST_WRITE, DUPLICATE, INCONSISTENT, ABORTED_READ, BACKWARD_POLL), 2
    )
    found = {(finding.rule, finding.topic) for finding in run([tmp_path]).findings}
    assert planted <= found
    assert {topic for _, topic in found} == {topic for _, topic in planted}


@pytest.mark.parametrize(("operations", "faults", "room"), [(50, 2, 0), (2_000, 9, 2)])
def test_a_history_without_room_for_what_is_to_be_planted_is_refused(
    operations: int, faults: int, room: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--jepsen", str(operations), "--faults", str(faults), "--seed", "3"]
    assert main(["lab", "generate", str(tmp_path / "few"), *arguments]) == 2
    assert f"room for {room} of {LOST_WRITE}, not for {faults}; give more --jepsen" in capsys.readouterr().err
    assert not (tmp_path / "few").exists()
