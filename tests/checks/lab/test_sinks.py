"""Strategies for effects outside of Kafka, on SQLite, in a process that is killed at every step."""

import json
from pathlib import Path

import pytest

from kafka_eos.machines.external_sink import STRATEGIES
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab import sinks
from kafka_eos_checks.lab.sinks import HANDLERS, INSERT_EFFECT, Choice, Process, check, ends_of_model, run_once, runs


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_final_contents_of_the_database_are_those_of_the_model(strategy: str) -> None:
    verdict = check(strategy, inputs=2, faults=1)
    assert verdict.ok, verdict.evidence
    assert verdict.figures["contents"] == len(ends_of_model(strategy, 2, 1))


def test_a_strategy_that_breaks_its_promise_is_found() -> None:
    verdict = check("update before commit", inputs=1, faults=1, promised="idempotent sink")
    assert (verdict.ok, verdict.evidence) == (False, "only on the database: (1, 1)")


def test_statements_outside_of_a_transaction_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def apart(process: Process, value: int) -> None:
        process.execute(process.sink, INSERT_EFFECT, value)
        process.execute(process.sink, "UPDATE offsets SET next = ?", value + 1)

    monkeypatch.setitem(HANDLERS, "offsets in the database", apart)
    monkeypatch.setattr(sinks, "offsets_in_the_database", apart)
    verdict = check("offsets in the database", inputs=1, faults=1)
    assert verdict.evidence == "only on the database: (1, 1)"


def test_a_sink_that_never_repeats_lacks_contents_of_the_model_of_one_that_does() -> None:
    verdict = check("idempotent sink", inputs=1, faults=1, promised="update before commit")
    assert verdict.evidence == "only in the model: (1, 1)"


def test_a_run_is_repeated_by_its_choices(tmp_path: Path) -> None:
    choices, content = run_once(tmp_path, "update before commit", 1, 1, [0, 1])
    assert content == (1, 1)
    assert choices == [Choice(0, 2, True), Choice(1, 2, True)]


def test_every_step_has_one_run_in_which_the_process_dies_there(tmp_path: Path) -> None:
    without, _ = run_once(tmp_path, "outbox", 1, 1, [])
    assert len(list(runs(tmp_path, "outbox", 1, 1))) == 1 + len(without)


def test_a_process_that_fails_by_itself_is_not_taken_for_one_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(process: Process, value: int) -> None:
        process.execute(process.sink, "INSERT INTO nowhere VALUES (?)", value)

    monkeypatch.setitem(HANDLERS, "outbox", fail)
    with pytest.raises(RuntimeError, match="ended with 1"):
        run_once(tmp_path, "outbox", 1, 0, [])


def test_the_command_prints_its_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sinks.json"
    assert main(["lab", "sinks", "side effect", "--inputs", "1", "--faults", "1", "--json", str(file)]) == 0
    assert "side effect" in capsys.readouterr().out
    (verdict,) = json.loads(file.read_text(encoding="utf-8"))
    assert (verdict["check"], verdict["claims"], verdict["ok"]) == ("sink", ["C37"], True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["lab", "sinks", "prayer"], "no strategy 'prayer'"),
        (["lab", "sinks", "--inputs", "0"], "--inputs must be at least 1"),
    ],
)
def test_an_unusable_call_is_refused(wrong: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(wrong)
    assert capsys.readouterr().err.startswith(f"kafka-eos lab sinks: {said}")
