"""The file ``leader-epoch-checkpoint`` agrees with the batches of its log, or the audit says where it does not."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT
from kafka_eos_checks.audit.audit import Audit
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.logs import summary
from kafka_eos_checks.audit.moments import CLEAN_SHUTDOWN, GRACE_MS, LOCK, SKEW_MS, START_OFFSETS
from kafka_eos_checks.audit.oracle.synthetic import write_log
from kafka_eos_checks.audit.rules.epochs import LEADER_EPOCHS, LeaderRun, _due, joined
from kafka_eos_checks.audit.rules.log import LEADER_BACK, ORDER, Batch
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.recording import kept_recording, unpacked
from kafka_eos_checks.kit.verdict import Standing, Verdict

from ..kept import run

LED = ((0, 0), (0, 10), (0, 20), (3, 30), (3, 40), (4, 50), (4, 60))
"""Leader epoch and base offset of batches with ten records each."""
LINES = ("0 0", "3 30", "4 50")


def log_of(folder: Path, *led: tuple[int, int], segment_batches: int = 3) -> Path:
    batches = [Batch(0, base, base + 9, -1, -1, -1, -1, unsequenced=True, leader_epoch=epoch) for epoch, base in led]
    plain = (batch._replace(unsequenced=False) for batch in batches)
    write_log(folder / "orders-0", plain, segment_batches=segment_batches)
    (folder / CLEAN_SHUTDOWN).touch()
    return folder


def note(folder: Path, *lines: str) -> None:
    text = "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines))
    (folder / "orders-0" / LEADER_EPOCH_CHECKPOINT).write_text(text)


def judged(folder: Path, **how: Any) -> tuple[Verdict, list[Finding]]:
    result = run([folder], **how)
    return verdict_of(result), [each for each in (*result.findings, *result.notes) if each.rule == LEADER_EPOCHS]


def verdict_of(result: Audit) -> Verdict:
    [verdict] = [each for each in result.verdicts if each.name == LEADER_EPOCHS]
    return verdict


@pytest.mark.parametrize(
    ("lines", "place", "evidence"),
    [
        (LINES, None, ""),
        (("0 0", "2 30", "3 30", "4 50", "7 70", "9 500"), None, ""),  # leaders that have written nothing
        (("0 0", "3 31", "4 50"), 30, "30 to 49 have the leader epoch 3, and the file has the epoch 0 from offset 0"),
        (("0 0", "3 29", "4 50"), 29, "0 to 29 have the leader epoch 0, and the file has the epoch 3 from offset 29"),
        (("0 0", "3 25", "4 50"), 25, "0 to 29 have the leader epoch 0"),  # inside of a batch
        (("0 0", "4 50"), 30, "30 to 49 have the leader epoch 3, and the file has the epoch 0"),
        (("0 0", "3 30"), 50, "50 to 69 have the leader epoch 4, and the file has the epoch 3"),
        (("0 0", "3 30", "5 50"), 50, "leader epoch 4, and the file has the epoch 5 from offset 50 on"),
        (("1 0", "3 30", "4 50"), 0, "leader epoch 0, and the file has the epoch 1 from offset 0 on"),
        (
            ("0 0", "2 30", "9 50"),
            30,
            "about 1 more leader, too; by the batches its lines are `0 0`, `3 30`, `4 50`",
        ),
        (("3 30", "0 0", "4 50"), 0, "the line `0 0` comes after the line `3 30`"),
        (("0 0", "3 30", "4 20"), 20, "the line `4 20` comes after the line `3 30`"),
        (("0 0", "3 30", "3 50"), 50, "the line `3 50` comes after the line `3 30`"),
    ],
)
@pytest.mark.parametrize("chunk", [2, 65_536])
def test_a_line_that_disagrees_with_the_batches_is_found(
    lines: tuple[str, ...],
    place: int | None,
    evidence: str,
    chunk: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(summary, "CHUNK_BATCHES", chunk)
    note(log_of(tmp_path, *LED), *lines)
    verdict, found = judged(tmp_path)
    assert (verdict.figures["logs"], verdict.figures["entries"]) == (1, len(lines))
    if place is None:
        assert (verdict.standing, found) == (Standing.OK, [])
        return
    [finding] = found
    assert (finding.offset, finding.file, finding.is_violation) == (place, LEADER_EPOCH_CHECKPOINT, True)
    assert evidence in finding.evidence
    due = "; by the batches its lines are `0 0`, `3 30`, `4 50`"
    assert finding.evidence.endswith(evidence if "comes after" in evidence else due)
    assert "remove leader-epoch-checkpoint and *.index in its orders-0" in verdict.advice


@pytest.mark.spark
def test_spark_finds_a_line_that_disagrees(tmp_path: Path, spark: Any) -> None:
    note(log_of(tmp_path, *LED), "0 0", "4 50")
    assert judged(tmp_path, engine="spark", spark=spark)[1] == judged(tmp_path)[1] != []


def test_compaction_leaves_lines_without_batches_and_epochs_that_begin_later_than_their_line(tmp_path: Path) -> None:
    note(log_of(tmp_path, (0, 10), (4, 60)), "0 0", "2 25", "3 30", "4 50")
    assert judged(tmp_path)[0].standing is Standing.OK
    note(tmp_path, "0 0", "3 30")
    assert [each.offset for each in judged(tmp_path)[1]] == [60]


def test_batches_without_an_epoch_say_nothing(tmp_path: Path) -> None:
    note(log_of(tmp_path, (-1, 0), (0, 10), (-1, 20), (3, 30), (-1, 40)), "0 5", "3 30")
    verdict, found = judged(tmp_path)
    assert (verdict.standing, found) == (Standing.OK, [])


@pytest.mark.parametrize("led", [(), ((-1, 0), (-1, 10))])
def test_a_log_without_epochs_or_without_the_file_is_no_log_that_agrees(
    led: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    log_of(tmp_path, *(led or LED))
    if led:
        note(tmp_path, *LINES)
    assert LEADER_EPOCHS not in {verdict.name for verdict in run([tmp_path]).verdicts}


@pytest.mark.parametrize(
    ("led", "rule"), [(((0, 0), (3, 10), (2, 20)), LEADER_BACK), (((0, 0), (0, 20), (3, 10)), ORDER)]
)
def test_nothing_agrees_with_a_log_whose_epochs_or_offsets_go_back_which_another_rule_finds(
    led: tuple[tuple[int, int], ...], rule: str, tmp_path: Path
) -> None:
    note(log_of(tmp_path, *led, segment_batches=9), "0 0", "2 20")
    assert {finding.rule for finding in run([tmp_path]).findings} == {rule}


# --- the lines before the first one -----------------------------------------------------------------------------------


def test_batches_before_the_first_line_are_not_judged_unless_records_were_deleted_up_to_there(tmp_path: Path) -> None:
    note(log_of(tmp_path, *LED), "3 30", "4 50")
    verdict, [left] = judged(tmp_path)
    assert (verdict.standing, verdict.unjudged_for, left.offset) == (Standing.NOT_JUDGED, {"no-epoch": 1}, 0)
    assert "the file begins at offset 30, and batches from offset 0 on have the leader epoch 0" in verdict.evidence
    assert verdict.advice.startswith("next: nothing, if leader-epoch-checkpoint was removed once")
    assert main(["audit", str(tmp_path), "--allow-unjudged", "no-epoch"]) == 0
    (tmp_path / START_OFFSETS).write_text("0\n1\norders 0 30\n")
    assert judged(tmp_path)[0].standing is Standing.OK
    (tmp_path / START_OFFSETS).write_text("0\n1\norders 0 29\n")
    assert judged(tmp_path)[0].unknown == 1
    (tmp_path / START_OFFSETS).unlink()
    note(tmp_path, "3 45", "4 50")  # as a deletion leaves it, which lets the line begin inside of the epoch
    assert judged(tmp_path)[0].standing is Standing.OK
    for text in ("0\n0\n", ""):  # the latter as a broker creates it
        (tmp_path / "orders-0" / LEADER_EPOCH_CHECKPOINT).write_text(text)
        verdict, [left] = judged(tmp_path)
        assert (verdict.unjudged_for, left.offset) == ({"no-epoch": 1}, 0), "the file has no line"
    note(tmp_path, "4 45")
    assert [each.is_violation for each in judged(tmp_path)[1]] == [True], "3 45 would be right"


def test_lines_of_segments_that_a_follower_had_still_to_delete_at_a_crash_are_too_recent(tmp_path: Path) -> None:
    note(log_of(tmp_path, *LED), "3 30", "4 50")
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    for seconds in (0, GRACE_MS / 1000 - 60):
        let_be_written(tmp_path, seconds, LEADER_EPOCH_CHECKPOINT)
        verdict, found = judged(tmp_path, one_moment=True)
        assert (verdict.unknown, verdict.recent, found) == (0, 1, [])
    long_ago = time.time() - GRACE_MS / 1000 - 60
    os.utime(tmp_path / "orders-0" / LEADER_EPOCH_CHECKPOINT, (long_ago, long_ago))
    verdict, _ = judged(tmp_path, one_moment=True)
    assert (verdict.unknown, verdict.recent) == (1, 0)


# --- file and log of different moments --------------------------------------------------------------------------------


def test_a_copy_of_different_moments_is_not_judged(tmp_path: Path) -> None:
    note(log_of(tmp_path, *LED), "0 0", "3 30")
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    verdict, [left] = judged(tmp_path)
    assert (verdict.standing, verdict.unjudged_for) == (Standing.NOT_JUDGED, {"other-moment": 1})
    assert (left.offset, left.is_violation) == (50, False)
    assert verdict.advice.startswith("next: audit again when the broker is stopped")
    assert [each.offset for each in judged(tmp_path, one_moment=True)[1] if each.is_violation] == [50]
    note(tmp_path, "0 0", "3 30", "4 20")
    assert judged(tmp_path)[0].standing is Standing.FAIL, "the file is replaced as a whole"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """A log directory whose lock another process holds, as a broker does."""
    log_of(tmp_path, *LED)
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    hold = f"import fcntl, sys; f = open({str(tmp_path / LOCK)!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held')"
    command = [sys.executable, "-c", f"{hold}; sys.stdout.flush(); sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield tmp_path
        process.kill()


def let_be_written(folder: Path, seconds: float, *names: str) -> None:
    """Let files of the log have been written so many seconds ago."""
    moment = time.time() - seconds
    for name in names:
        os.utime(folder / "orders-0" / name, (moment, moment))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the lock is asked for only on Linux")
def test_a_running_broker_is_judged_where_it_has_written_nothing_for_some_seconds(running: Path) -> None:
    note(running, "0 0", "3 30")
    written = (LEADER_EPOCH_CHECKPOINT, f"{30:020d}.log")
    let_be_written(running, SKEW_MS / 1000 + 60, *written)
    assert judged(running)[0].standing is Standing.FAIL
    for name in written:
        let_be_written(running, 0, name)
        assert judged(running)[0].unjudged_for == {"other-moment": 1}, f"{name} may have changed meanwhile"
        let_be_written(running, SKEW_MS / 1000 + 60, name)
    note(running, "3 30", "4 50")
    verdict, _ = judged(running)
    assert (verdict.unknown, verdict.recent) == (0, 1), "records may have been deleted a moment ago"
    let_be_written(running, GRACE_MS / 1000 + 60, LEADER_EPOCH_CHECKPOINT)
    assert judged(running)[0].unjudged_for == {"no-epoch": 1}


# --- real brokers -----------------------------------------------------------------------------------------------------


def test_the_files_of_real_brokers_agree_with_their_logs_until_a_line_is_removed() -> None:
    with unpacked(kept_recording("three-brokers")) as folder:
        files = {
            file: file.read_text().splitlines()
            for file in sorted(folder.glob(f"brokers/*/*/{LEADER_EPOCH_CHECKPOINT}"))
        }
        verdict, found = judged(folder)
        assert (verdict.standing, found) == (Standing.OK, [])
        assert verdict.figures["entries"] == sum(len(lines) - 2 for lines in files.values())
        file, (version, _, first, second, *rest) = max(files.items(), key=lambda each: len(each[1]))
        file.write_text("\n".join([version, str(1 + len(rest)), first, *rest, ""]))
        [finding] = run([folder]).findings
    assert (finding.rule, finding.broker) == (LEADER_EPOCHS, file.parent.parent.name)
    assert finding.offset == int(second.split()[1])


def test_runs_of_one_leader_in_several_chunks_become_one() -> None:
    runs = [LeaderRun(0, 0, 9), LeaderRun(0, 10, 19), LeaderRun(2, 20, 29), LeaderRun(2, 30, 39), LeaderRun(0, 40, 49)]
    assert joined(runs) == [LeaderRun(0, 0, 19), LeaderRun(2, 20, 39), LeaderRun(0, 40, 49)]


@pytest.mark.parametrize("others", [(3, 3), (3, 4)])
def test_a_run_begins_and_ends_with_batches_that_have_its_epoch(others: tuple[int, int]) -> None:
    epochs, at = np.array([-1, *others, -1]), np.arange(4)
    batches: Any = SimpleNamespace(leader_epoch=epochs, base_offset=10 * at, last_offset=10 * at + 9)
    expected = joined([LeaderRun(others[0], 10, 19), LeaderRun(others[1], 20, 29)])
    assert list(summary.leader_runs(batches, summary.leaders_of(batches))) == expected


@pytest.mark.parametrize(
    ("count", "told"), [(1, "`1 10`"), (3, "`1 10`, `2 20`, `3 30`"), (5, "`1 10`, `2 20`, `3 30` and 2 more")]
)
def test_the_first_lines_that_a_file_should_have_are_told_and_the_others_counted(count: int, told: str) -> None:
    runs = [LeaderRun(number, 10 * number, 10 * number + 9) for number in range(1, count + 1)]
    assert _due(runs) == f"; by the batches its lines are {told}"
