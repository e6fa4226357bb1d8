"""The readable rules judge the logs again, and a disagreement is found."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.typing import NDArray

from kafka_eos_checks import cli
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.inputs import UnusableInput, open_inputs
from kafka_eos_checks.audit.internal_topics.commits import Commits
from kafka_eos_checks.audit.kernels.coordinators import coordinator_log as coordinators
from kafka_eos_checks.audit.kernels.coordinators import group_log as groups
from kafka_eos_checks.audit.kernels.logs import summary
from kafka_eos_checks.audit.kernels.logs.fold import LogAudit
from kafka_eos_checks.audit.oracle.oracle import judge
from kafka_eos_checks.audit.oracle.readable_histories import join
from kafka_eos_checks.audit.oracle.synthetic import faulty_log, write_log
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.rules import log as rules
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.verdict import read_verdicts


def audited(folder: Path) -> list[LogAudit]:
    for number in range(8):
        topic = "__consumer_offsets" if number == 3 else "orders"
        batches = faulty_log(number, 300, 0.05, first_offset=5 * (number % 2))
        write_log(folder / f"{topic}-{number}", batches, segment_batches=120, index=number != 2)
    damaged = folder / "orders-1"
    first, *_ = sorted(damaged.glob("*.log"))
    first.write_bytes(first.read_bytes()[:-40])
    return stages.audit_logs(find_logs(folder), split_bytes=5000)


def test_both_find_the_same_violations_and_the_same_damage(tmp_path: Path) -> None:
    audits = audited(tmp_path)
    verdict = judge(audits)
    assert (verdict.found, verdict.evidence) == ("0 differences", "")
    assert verdict.figures["rows"] == sum(len(audit.findings) + len(audit.damage) for audit in audits)
    assert int(verdict.figures["rows"]) > 50
    assert any(audit.damage for audit in audits)


def test_a_finding_that_is_left_out_and_one_that_is_made_up_are_differences(tmp_path: Path) -> None:
    audits = audited(tmp_path)
    one = next(audit for audit in audits if audit.findings)
    left_out = replace(one, findings=one.findings[1:])
    verdict = judge([left_out if audit is one else audit for audit in audits])
    assert (verdict.found, verdict.ok) == ("1 differences", False)
    assert "only the readable rule" in verdict.evidence
    made_up = replace(one, findings=(*one.findings, replace(one.findings[0], offset=10**6)))
    assert "only the audit" in judge([made_up]).evidence


def test_a_fold_that_forgets_what_lies_before_a_chunk_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(log: rules.Log, rows: NDArray[np.void]) -> list[int]:
        log.producers.clear()
        return list(resolve(log, rows))

    resolve = summary._resolve
    monkeypatch.setattr(summary, "_resolve", forgetful)
    assert not judge(audited(tmp_path)).ok


def test_a_share_is_taken_of_whole_logs_by_a_seed(tmp_path: Path) -> None:
    audits = audited(tmp_path)
    some = judge(audits, 0.3, seed=1)
    assert (some.figures["logs"], some.figures["of"]) == (3, 8)
    assert judge(audits, 0.0001).figures["logs"] == 1
    assert len({judge(audits, 0.3, seed=seed).figures["batches"] for seed in range(5)}) > 1


def test_the_command_adds_a_verdict_and_fails_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "orders-0", [batch for batch in faulty_log(4, 80, 0.0) if batch.producer_id >= 0])
    arguments = ["audit", str(tmp_path), "--oracle", "--allow-unjudged", "--json", str(tmp_path / "v.json")]
    assert cli.main(arguments) == 0
    assert read_verdicts(tmp_path / "v.json")[-1].found == "0 differences"
    monkeypatch.setattr(stages, "fold", lambda log, *_: LogAudit(log=log, batches=1))
    write_log(tmp_path / "orders-1", faulty_log(0, 80, 0.5))
    assert cli.main(arguments) == 1
    assert "only the readable rule" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("arguments", [["--oracle", "0"], ["--oracle", "2"], ["--oracle", "--no-crc"]])
def test_a_wrong_share_and_an_oracle_without_crcs_are_refused(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["audit", str(tmp_path), *arguments])


def test_the_recording_of_a_real_broker_is_judged_alike() -> None:
    [*_, verdict] = run([CLONE / "checks" / "recordings" / "violations.tar.xz"], oracle=1.0).verdicts
    assert (verdict.name, verdict.found) == ("readable rule agrees", "0 differences")
    assert int(verdict.figures["batches"]) > 50


@pytest.mark.thorough
def test_logs_of_coordinators_are_judged_alike() -> None:
    [*_, verdict] = run([CLONE / "checks" / "recordings" / "transactions.tar.xz"], oracle=1.0).verdicts
    assert verdict.found == "0 differences"
    assert int(verdict.figures["coordinator_rows"]) > 50


@pytest.mark.parametrize(
    ("module", "wrong"),
    [(coordinators, "COMPLETIONS"), (coordinators, "DECISIONS")],
)
def test_columns_of_a_coordinators_log_that_say_something_else_are_caught(
    module: ModuleType, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, wrong, np.full_like(getattr(module, wrong), -1))
    [*_, verdict] = run([CLONE / "checks" / "recordings" / "violations.tar.xz"], oracle=1.0).verdicts
    assert not verdict.ok
    assert "only the readable rule" in verdict.evidence


def test_histories_are_judged_again_with_and_without_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = CLONE / "checks" / "recordings" / "application-mistakes.tar.xz"
    with open_inputs([recording]) as inputs:
        alone = run(inputs.histories, oracle=1.0).verdicts[-1]
        assert (alone.name, alone.found, alone.figures["logs"]) == ("readable rule agrees", "0 differences", 0)
        assert alone.figures["events"] == 310
        with pytest.raises(UnusableInput, match="--oracle has nothing to judge again"):
            run(inputs.histories, oracle=0.5)
    monkeypatch.setattr(audit, "join", lambda *given: replace(join(*given), findings=[]))
    assert run([recording], oracle=0.5).verdicts[-1].figures["events"] == 0, "a share is one of the logs"
    [*_, verdict] = run([recording], oracle=1.0).verdicts
    assert (verdict.found, verdict.ok) == ("7 differences", False)
    assert "histories: only the audit" in verdict.evidence


def test_columns_of_committed_offsets_that_count_too_much_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_counted(commits: Commits, facts: groups.GroupFacts) -> groups.Ended:
        ended = ends(commits, facts)
        return replace(ended, committed=np.ones_like(ended.committed))

    ends = groups.end_transactions
    monkeypatch.setattr(groups, "end_transactions", all_counted)
    [*_, verdict] = run([CLONE / "checks" / "recordings" / "application-mistakes.tar.xz"], oracle=1.0).verdicts
    assert "only the audit" in verdict.evidence
