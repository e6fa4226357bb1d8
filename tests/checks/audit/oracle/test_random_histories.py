"""The rules over histories find the same by joins as by the readable rules, on both engines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.audit.engines.spark import SparkEngine
from kafka_eos_checks.audit.events import recorded
from kafka_eos_checks.audit.kernels.histories import applying, following, joining, stored
from kafka_eos_checks.audit.kernels.histories.joining import _Keys
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT
from kafka_eos_checks.audit.oracle import random_histories, readable_histories
from kafka_eos_checks.audit.oracle.random_declared import DeclaredWorld
from kafka_eos_checks.audit.oracle.random_histories import difference, judge, rows_of
from kafka_eos_checks.audit.plan import declared_plan, declared_stages, history_plan, history_stages
from kafka_eos_checks.audit.plan.history_plan import judge_histories
from kafka_eos_checks.audit.rules import histories
from kafka_eos_checks.audit.rules.applications import NOT_PROCESSED, OUTPUT_ALONE, not_ended
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.kit.verdict import read_verdicts

from ..conftest import in_both

RARELY = {"last stable offset went back"}  # some in a thousand


@in_both("count", 36, 140)
def test_random_histories_are_judged_alike_by_joins_and_by_the_readable_rules(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved, left, inputs, calls = [0], [0], [0], list[bool]()
    join_values, join_inputs, values_at = joining.join_values, applying.join_inputs, history_stages.values_at

    def counted(*given: Any) -> Any:
        joined = join_values(*given)
        proved[0] += int((~joined.suspect).sum())
        left[0] += int(joined.suspect.sum())
        return joined

    def counted_inputs(*given: Any) -> Any:
        joined = join_inputs(*given)
        inputs[0] += joined.checked + len(joined.checks)
        return joined

    def counted_values(log: Any, offsets: Any, blocks: Any, **how: Any) -> Any:
        calls.append(blocks is not None)
        return values_at(log, offsets, blocks, **how)

    monkeypatch.setattr(history_stages, "join_values", counted)
    monkeypatch.setattr(history_stages, "join_inputs", counted_inputs)
    monkeypatch.setattr(history_stages, "values_at", counted_values)
    found: set[str] = set()
    for seed in range(count):
        differs, rules = difference(seed)
        assert not differs, f"seed {seed}: {differs}"
        found |= set(rules)
    assert set(histories.HISTORY_RULES) - RARELY <= found, "each rule finds something in some history"
    assert proved[0] > left[0] / 2, "most of what goes well is proved"
    assert inputs[0] > 20, "and inputs are"
    assert sum(calls) > len(calls) / 2, "of a log whose offsets go backwards all is read"


def test_without_a_history_nothing_is_judged() -> None:
    assert judge(0).found == "no history"
    assert not judge(0).ok


def nothing(keys: _Keys) -> Any:
    return np.zeros(keys.count, np.bool_)


def no_rows(*given: Any) -> Any:
    return np.zeros(0, applying.INPUT)


def no_spots(*given: Any) -> Any:
    return np.zeros(0, np.uint64)


def nothing_fell(*given: Any) -> Any:
    return np.zeros(0, following.STEP)


def no_markers(pids: Any, *given: Any) -> Any:
    return np.full(len(pids), -1)


def all_reads(steps: Any, *given: Any) -> Any:
    return np.ones(len(given[-1]), np.bool_)


@pytest.mark.parametrize(
    ("module", "name", "broken", "first"),  # histories before the first one do not notice it
    [
        (_Keys, "unmatched", nothing, 0),
        (_Keys, "unclear", nothing, 12),
        (_Keys, "copied", nothing, 2),
        (_Keys, "spots", no_spots, 0),
        (following, "_may_go_back", all_reads, 15),
        (following, "_tangled", no_spots, 0),
        (following, "_fell", nothing_fell, 5),
        (history_stages, "_overlapped", lambda *_: (np.zeros(0, np.int64),) * 3, 1),
        (applying, "_never_given", no_rows, 2),
        (applying, "_outside", lambda marks, _: np.zeros(len(marks), np.bool_), 38),
        (history_stages, "join_commits", no_rows, 25),
        (stored, "next_markers", no_markers, 0),
        (recorded, "TELLING", recorded.TELLING - {"TimeOut"}, 2),
    ],
)
def test_a_proof_that_leaves_something_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, first: int
) -> None:
    monkeypatch.setattr(module, name, broken)
    if hasattr(history_stages, name):
        monkeypatch.setattr(history_stages, name, broken)
    assert any(difference(seed)[0] for seed in range(first, first + 120))


def test_the_command_judges_random_histories_from_a_first_seed(tmp_path: Path) -> None:
    assert cli.main(["lab", "fuzz", "--histories", "5", "--first", "7", "--json", str(tmp_path / "v.json")]) == 0
    [verdict] = read_verdicts(tmp_path / "v.json")
    assert (verdict.figures["seed"], verdict.figures["histories"]) == ("7", 5)
    assert cli.main(["lab", "fuzz", "--histories", "0"]) == 2


@pytest.mark.parametrize(
    ("module", "name", "broken", "first"),
    [
        (declared_plan, "report_together", lambda *_: iter(()), 8),
        (declared_stages, "_past", lambda *_: None, 2),
        (declared_plan, "_unknown", lambda *_: frozenset(), 15),
        (declared_plan, "check_declared", lambda *_: None, 54),
        (declared_plan, "check_events", lambda *_: None, 1),
        (declared_plan, "not_ended", lambda *_: "", 52),
        (declared_plan, "Application", lambda *given: declared_stages.Application(*given[:3]), 2),
        (declared_plan, "not_ended", lambda declared, begun, _: not_ended(declared, begun, {}), 7),
    ],
)
def test_a_fact_of_a_declared_application_that_is_left_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, broken: Any, first: int
) -> None:
    monkeypatch.setattr(random_histories, "DECLARING", 1.0)
    monkeypatch.setattr(module, name, broken)
    assert any(difference(seed)[0] for seed in range(first, first + 10))


@in_both("seeds", (1, 2, 7, 8, 15, 20, 52, 54), range(20))
def test_random_declared_applications_are_judged_alike(seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_histories, "DECLARING", 1.0)
    assert {seed: differs for seed in seeds if (differs := difference(seed)[0])} == {}


@pytest.mark.spark
@pytest.mark.thorough
def test_spark_finds_the_same_although_no_rule_works_in_the_process_that_asks_it(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = random_histories._World(5)
    world.run()
    declared = DeclaredWorld(3).run()
    world.declare(declared)
    world.write(tmp_path)
    declared.write(tmp_path, world.write_log)
    paths = world.write_history(tmp_path, cut=len(world.events) // 2)
    logs = find_logs(*sorted(tmp_path.glob("broker-*")))
    expected = readable_histories.join(world.events, logs)
    assert {NOT_PROCESSED, OUTPUT_ALONE} <= {finding.rule for finding in expected.findings}

    def broken(*given: Any, **more: Any) -> Any:
        raise AssertionError("a rule or a join ran in the process that asks")

    joins = ("join_values", "join_transactions", "follow_readers", "look_into_gaps", "join_inputs", "join_commits")
    rules = ("lost", "duplicate_values", "refused", "unasked", "undone", "delivered", "precommitted", "inconsistent")
    for name in (*joins, *rules, "polled", "went_back", "judge_generations", "judge_told", "told"):
        monkeypatch.setattr(history_stages, name, broken)
    monkeypatch.setattr(declared_stages, "judge_identities", broken)
    with SparkEngine(spark) as engine:
        count, found = judge_histories(paths, logs, AT_ONE_MOMENT, engine, range_bytes=5000)
        assert count == len(world.events)
        assert rows_of(found) == rows_of(expected)
    assert not hasattr(history_plan, "join_values"), "the plan itself joins nothing"
