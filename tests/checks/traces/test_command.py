"""`kafka-eos check traces` with the reference in TLC's place: its own runs, given runs, and its options."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.kit.verdict import Verdict, read_verdicts
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.traces import command, replays, validation
from kafka_eos_checks.traces.coordinators import Age, Recorded
from kafka_eos_checks.traces.scan import Piece
from kafka_eos_checks.traces.validation import Trace

from .test_validation import by_the_reference

pytest.importorskip("pyarrow")


@pytest.fixture
def _without_tlc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_run_tlc", by_the_reference)


def judged(folder: Path, *arguments: str) -> tuple[int, list[Verdict]]:
    """The exit code of a call, and its verdicts."""
    answer = folder / "verdicts.json"
    return cli.main(["check", "traces", *arguments, "--json", str(answer)]), read_verdicts(answer)


# --- the command's own runs ------------------------------------------------------------------------------------------


def test_without_paths_each_part_is_judged_and_with_only_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(name: str) -> Any:
        return lambda _: iter([Verdict(check="trace", name=name, expected="", found="", ok=True)])

    monkeypatch.setattr(command, "PARTS", {name: part(name) for name in command.PARTS})
    every = ["recorded", "transactions", "simulated", "told"]
    for arguments, names in (((), every), (("--only", "told"), ["told"])):
        code, verdicts = judged(tmp_path, *arguments)
        assert (code, [verdict.name for verdict in verdicts]) == (0, names)


@pytest.mark.usefixtures("_without_tlc")
def test_the_recorded_runs_are_accepted_and_those_that_show_the_departure_are_rejected_by_the_repaired_rules(
    tmp_path: Path,
) -> None:
    code, verdicts = judged(tmp_path, "--only", "recorded")
    assert (code, {verdict.ok for verdict in verdicts}) == (0, {True})
    accepted, spoiled, *departures = verdicts
    assert (accepted.found, accepted.figures["traces"]) == ("all accepted", 9)
    assert spoiled.name.endswith(", one offset wrong")
    assert [verdict.name for verdict in departures] == [
        f"{name}, repaired snapshot" for name in command.SHOWS_THE_DEPARTURE
    ]
    assert [verdict.found for verdict in departures] == ["rejected at event 108", "rejected at event 88"]


def test_a_run_that_only_one_judge_rejects_shows_no_departure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "_run_tlc", lambda _model, _machine, chosen, _: dict.fromkeys(range(len(chosen))))
    model = Registry().get("PartitionLog")
    [trace] = [trace for trace in command.recorded_traces() if trace.name == command.SHOWS_THE_DEPARTURE[0]]
    verdict = command._rejected("departure", model, trace)
    assert (verdict.ok, verdict.found) == (False, "the judges disagree: TLC accepted, reference rejected at event 108")
    verdict = command._rejected("departure", model, replace(trace, steps=trace.steps[:107]))
    assert (verdict.ok, verdict.expected, verdict.found) == (False, "rejected", "all accepted")


@pytest.mark.usefixtures("_without_tlc")
def test_simulated_runs_and_the_slides_run_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "SIMULATED_SEEDS", 2)
    code, [simulated] = judged(tmp_path, "--only", "simulated")
    assert (code, simulated.name, simulated.figures["traces"]) == (0, "simulated, seeds 0 to 1", 2)
    code, [told, spoiled] = judged(tmp_path, "--only", "told")
    assert (code, told.found, told.figures) == (0, "all accepted", {"traces": 1, "events": 13})
    assert spoiled.found.startswith("rejected at event")


def test_of_the_slides_run_the_fourth_fifth_and_sixth_message_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Trace] = []

    def watched(_name: str, _model: Model, traces: Sequence[Trace], _claims: tuple[str, ...]) -> list[Verdict]:
        seen.extend(traces)
        return []

    monkeypatch.setattr(command, "_judged", watched)
    assert list(command.told(Registry())) == []
    [trace] = seen
    again = [step for step in trace.steps if step.candidates[0].action == "AcknowledgeDuplicate"]
    assert [step.observed["response.offset"] for step in again] == [3, 4, 5]


@pytest.mark.usefixtures("_without_tlc")
def test_the_recorded_transactions_are_accepted_and_each_copy_with_a_fault_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "COORDINATORS", {"transactions-3.9": command.COORDINATORS["transactions-3.9"]})
    code, verdicts = judged(tmp_path, "--only", "transactions")
    assert (code, {verdict.ok for verdict in verdicts}) == (0, {True})
    accepted = [verdict.name for verdict in verdicts if verdict.found == "all accepted"]
    assert accepted == ["coordinators of transactions-3.9", "leaders of transactions-3.9, version 1"]
    assert verdicts[0].figures["transactions"] > 500
    assert sum(verdict.found.startswith("rejected at event") for verdict in verdicts) == 6
    [aged] = [verdict for verdict in verdicts if verdict.name == "expired transactions of transactions-3.9"]
    assert aged.found == "after their own timeout"


@pytest.mark.parametrize(("ages", "found"), [((2_000, 900_000), "after their own timeout"), ((900_000,), "not shown")])
def test_one_transaction_that_ended_before_the_longest_timeout_shows_that_its_own_counts(
    ages: tuple[int, ...], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "expired", lambda _: [Age(age, age - 1, "t") for age in ages])
    verdict = command._expired("logs", Recorded({}, {}))
    assert (verdict.found, verdict.ok, verdict.figures["shortest open, ms"]) == (found, len(ages) > 1, min(ages))


# --- given runs ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_without_tlc")
def test_a_recording_is_judged_by_its_logs_and_its_histories(tmp_path: Path) -> None:
    code, verdicts = judged(tmp_path, "example:violations")
    assert code == 1
    rejected = [verdict.name for verdict in verdicts if not verdict.ok]
    assert rejected == ["partitions of violations.tar.xz, java-crash-with-lost-acks.jsonl"]
    accepted = [verdict.name for verdict in verdicts if verdict.found == "all accepted"]
    assert accepted == ["coordinators of violations.tar.xz", "leaders of violations.tar.xz, version 1"]


def test_a_failure_that_no_release_explains_has_no_advice() -> None:
    def failed(expected: str, found: str, *, ok: bool = False) -> Verdict:
        return Verdict(check="trace", name="clients of h", expected=expected, found=found, ok=ok)

    verdicts = [
        failed("all accepted", "all accepted", ok=True),
        failed("all accepted", "1 of 2 accepted; t-0: no events"),
        failed("rejected at event 3", "rejected at event 4"),
        failed("all accepted", "1 of 2 accepted; t-0: rejected at event 3"),
    ]
    advised = list(command._advised(Registry(), verdicts))
    assert [bool(verdict.advice) for verdict in advised] == [False, False, False, True]
    of_logs = replace(verdicts[3], name="coordinators of broker-1")
    (told,) = command._advised(Registry(), [of_logs])
    assert "`kafka-eos audit` of the same logs tells lost records and an abort by hand" in told.advice
    assert "kafka-eos audit" not in advised[3].advice, "a history has no logs"


def test_the_option_decides_whether_spark_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def on_spark(pieces: Sequence[Piece], rules: replays.Rules, apart: Sequence[int]) -> Any:
        asked.append("spark")
        return replays.in_process(pieces, rules, apart)

    spark = ModuleType("kafka_eos_checks.traces.spark")
    spark.on_spark = on_spark  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, spark.__name__, spark)
    for option, ways in (("--alone", []), ("--spark", ["spark"])):
        assert judged(tmp_path, "example:replicated-violations", option)[0] == 3
        assert asked == ways
