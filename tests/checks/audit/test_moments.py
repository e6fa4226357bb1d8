"""A rule concludes from what a log lacks only where the log is known to go beyond the moment in question."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.formats.log_directory import META_PROPERTIES, PARTITION_METADATA
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import (
    TOPIC,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos_checks import cli
from kafka_eos_checks.audit import moments
from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.findings import Kind
from kafka_eos_checks.audit.inputs import open_inputs
from kafka_eos_checks.audit.moments import (
    CLEAN_SHUTDOWN,
    GRACE_MS,
    HIGH_WATERMARKS,
    LAG_MS,
    LOCK,
    ONE_MOMENT,
    SKEW_MS,
    Moments,
    is_locked,
    look_at,
    span,
)
from kafka_eos_checks.audit.oracle.oracle import readable_transactions
from kafka_eos_checks.audit.oracle.random_clusters import by_steps
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.coordinator import ILLEGAL_TRANSITION
from kafka_eos_checks.audit.rules.rule_book import READABLE, rule_of
from kafka_eos_checks.audit.rules.transactions.names import HANGING, NO_TRANSACTION, TORN
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.kit.unjudged import UNJUDGED_EXIT, exit_code
from kafka_eos_checks.kit.verdict import Standing

NOW = 1_700_000_000_000
MINUTE = 60_000
PID = 7


def data(offset: int, at: int, *, epoch: int = 0, pid: int = PID, sequence: int = 0) -> RecordBatch:
    return build_batch(
        [Record(value=b"v")],
        base_offset=offset,
        base_timestamp=at,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def marker(offset: int, at: int, decision: ControlType, *, epoch: int = 1, pid: int = PID) -> RecordBatch:
    what = ControlRecord(control_type=decision, coordinator_epoch=0)
    return build_control_batch(what, producer_id=pid, producer_epoch=epoch, base_offset=offset, timestamp=at)


def partition(folder: Path, *batches: RecordBatch, name: str = "orders-0") -> None:
    path = folder / name / f"{0:020d}.log"
    write_segment(path, [batch.encode() for batch in batches], index=False)  # nor an index of aborted transactions


def coordinator(
    folder: Path,
    *states: tuple[str, int, int],
    name: str = "t",
    pid: int = PID,
    number: int = 0,
    partitions: tuple[int, ...] = (0,),
    version: int = 2,
) -> None:
    """A log of ``__transaction_state``: states with their epochs and times, of one transactional id."""
    batches, started, is_open = [], -1, False
    for offset, (state, epoch, at) in enumerate(states):
        status = TransactionState[state]
        was_open = is_open
        is_open = status in {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
        started = -1 if status is TransactionState.EMPTY else at if is_open and not was_open else started
        value = TransactionLogValue(
            producer_id=pid,
            producer_epoch=epoch,
            transaction_timeout_ms=MINUTE,
            transaction_status=status,
            transaction_partitions=(TopicPartitions(topic="orders", partition_ids=partitions),) if is_open else (),
            transaction_last_update_timestamp_ms=at,
            transaction_start_timestamp_ms=started,
            client_transaction_version=version,
        )
        record = Record(key=TransactionLogKey(transactional_id=name).encode(), value=value.encode())
        batches.append(build_batch([record], base_offset=offset, base_timestamp=at))
    write_segment(folder / f"{TOPIC}-{number}" / f"{0:020d}.log", [batch.encode() for batch in batches])


def kinds(found: Audit, rule: str) -> list[str]:
    return [each.kind for each in (*found.findings, *found.notes) if each.rule == rule]


def copied_at(folder: Path, at: int) -> None:
    """Let a directory look as if it had been copied, with its checkpoint, at a moment."""
    (folder / HIGH_WATERMARKS).write_text("0\n0\n")
    for file in folder.rglob("*"):
        os.utime(file, (at / 1000, at / 1000))


FIRST = [("EMPTY", 0, NOW), ("ONGOING", 0, NOW + 10), ("PREPARE_COMMIT", 1, NOW + 20), ("COMPLETE_COMMIT", 1, NOW + 30)]
SECOND = [("ONGOING", 1, NOW + 40), ("PREPARE_ABORT", 2, NOW + 50), ("COMPLETE_ABORT", 2, NOW + 60)]
OVER = [data(0, NOW + 12), marker(1, NOW + 25, ControlType.COMMIT)]
LATER = NOW + 10 * MINUTE


def others(*moments: int, first: int = 2) -> list[RecordBatch]:
    """Markers of other producers, which tell how far a copy goes."""
    return [marker(first + i, at, ControlType.COMMIT, pid=99) for i, at in enumerate(moments)]


def test_a_marker_that_is_younger_than_the_coordinators_copy_is_too_recent(tmp_path: Path) -> None:
    coordinator(tmp_path, *FIRST)
    partition(tmp_path, *OVER, data(2, NOW + 42, epoch=1), marker(3, NOW + 55, ControlType.ABORT, epoch=2))
    copied_at(tmp_path, NOW + 60)
    found = run([tmp_path])
    assert found.findings == ()
    [note] = found.notes
    assert (note.rule, note.kind, note.offset, note.time_ms) == (NO_TRANSACTION, Kind.TOO_RECENT, 3, NOW + 55)
    judged = {verdict.name: verdict for verdict in found.verdicts}
    assert judged[NO_TRANSACTION].figures == {"markers": 2, "unknown": 0, "recent": 1}
    assert judged[NO_TRANSACTION].standing is Standing.OK
    assert (judged[NO_TRANSACTION].recent, judged[TORN].recent) == (1, 0), "the same marker counts once"
    assert [finding.kind for finding in run([tmp_path], one_moment=True).notes] == [Kind.TOLD]


def test_a_rule_whose_subjects_are_all_too_recent_is_not_judged(tmp_path: Path) -> None:
    """A copy of the coordinator's log that is always the older one would stay green for ever."""
    coordinator(tmp_path, *FIRST)
    partition(tmp_path, data(0, NOW + 42, epoch=1), marker(1, NOW + 55, ControlType.ABORT, epoch=2))
    copied_at(tmp_path, NOW + 60)
    found = run([tmp_path])
    assert [note.kind for note in found.notes] == [Kind.TOO_RECENT]
    judged = {verdict.name: verdict for verdict in found.verdicts}
    assert judged[NO_TRANSACTION].unjudged_for == {"other-moment": 1}
    assert judged[NO_TRANSACTION].unjudged.startswith("1 of 1 markers: too recent: ")
    assert judged[TORN].unjudged_for["other-moment"] == 1
    assert all(judged[rule].standing is Standing.NOT_JUDGED for rule in (NO_TRANSACTION, TORN))
    assert (judged[NO_TRANSACTION].unknown, judged[NO_TRANSACTION].recent) == (1, 0)
    assert exit_code(found.verdicts, frozenset()) == UNJUDGED_EXIT


def test_a_marker_whose_transaction_a_much_later_copy_lacks_is_not_judged(tmp_path: Path) -> None:
    """The file of the coordinator's log was written later, or nobody knows when: so it is no matter of waiting."""
    coordinator(tmp_path, *FIRST)
    partition(tmp_path, *OVER, data(2, NOW + 42, epoch=1), marker(3, NOW + 55, ControlType.ABORT, epoch=2))
    for moment in (None, NOW + 55 + SKEW_MS + LAG_MS):
        if moment is not None:
            copied_at(tmp_path, moment)
        found = run([tmp_path])
        assert found.findings == ()
        judged = {verdict.name: verdict for verdict in found.verdicts}[NO_TRANSACTION]
        assert (judged.standing, judged.unjudged_for) == (Standing.NOT_JUDGED, {"other-moment": 1})
        assert "cp -a" in judged.unjudged
    copied_at(tmp_path, moment - 1)
    assert kinds(run([tmp_path]), NO_TRANSACTION) == [Kind.TOO_RECENT]


def test_a_marker_whose_coordinator_nobody_knows_is_too_recent_after_the_oldest_of_their_copies(tmp_path: Path) -> None:
    for number, pid in enumerate((PID, PID + 1)):
        coordinator(tmp_path, *FIRST, number=number, name=f"t{number}", pid=pid)
    partition(tmp_path, *OVER, *others(NOW + 55))
    late, older = NOW + 55 + SKEW_MS + LAG_MS, NOW + 54 + SKEW_MS + LAG_MS
    for number in range(2):
        copied_at(tmp_path, late)
        assert kinds(run([tmp_path]), NO_TRANSACTION) == []  # not judged: no later copy would tell
        os.utime(tmp_path / f"{TOPIC}-{number}" / f"{0:020d}.log", (older / 1000, older / 1000))
        assert kinds(run([tmp_path]), NO_TRANSACTION) == [Kind.TOO_RECENT]


def test_a_commit_without_transaction_that_the_coordinators_copy_outlives_is_a_violation(tmp_path: Path) -> None:
    later = [("EMPTY", 0, NOW + 55 + SKEW_MS)]
    coordinator(tmp_path, *FIRST)
    partition(tmp_path, *OVER, data(2, NOW + 42, epoch=1), marker(3, NOW + 55, ControlType.COMMIT, epoch=2))
    assert kinds(run([tmp_path]), NO_TRANSACTION) == []
    coordinator(tmp_path, *FIRST, *[("EMPTY", 1, at) for _, _, at in later])
    assert kinds(run([tmp_path]), NO_TRANSACTION) == [Kind.VIOLATION]


def test_data_that_are_open_in_the_older_copy_of_a_partition_are_too_recent(tmp_path: Path) -> None:
    coordinator(tmp_path, *FIRST)
    partition(tmp_path, data(0, NOW + 12))
    assert kinds(run([tmp_path]), HANGING) == [Kind.NOT_JUDGED], "nobody knows when it was copied"
    copied_at(tmp_path, NOW + 30)
    assert kinds(run([tmp_path]), HANGING) == [Kind.TOO_RECENT]
    assert kinds(run([tmp_path], one_moment=True), HANGING) == [Kind.VIOLATION]


def test_a_file_that_is_not_there_was_written_before_any_moment(tmp_path: Path) -> None:
    assert moments.written_ms(tmp_path / "none") == -inf
    assert moments.read_directory(tmp_path, NOW).checkpoint_ms == -inf


def test_data_that_are_open_longer_than_any_transaction_are_not_too_recent(tmp_path: Path) -> None:
    coordinator(tmp_path, *FIRST)
    for wait, kind in ((15 * MINUTE, Kind.TOO_RECENT), (16 * MINUTE + GRACE_MS, Kind.NOT_JUDGED)):
        partition(tmp_path, data(0, NOW + 12))
        partition(tmp_path, data(0, NOW, pid=8), marker(1, NOW + wait, ControlType.COMMIT, pid=8), name="orders-1")
        copied_at(tmp_path, NOW + 30)
        assert kinds(run([tmp_path]), HANGING) == [kind]


def test_data_hang_if_the_copy_of_their_partition_is_later_than_the_coordinators_last_record(tmp_path: Path) -> None:
    """They were appended before the coordinator's last record, and the partition's copy is later than that."""
    partition(tmp_path, data(0, NOW + 12), *others(NOW + 15, NOW + 31 + SKEW_MS, first=1))
    coordinator(tmp_path, *FIRST)
    coordinator(tmp_path, ("EMPTY", 0, NOW + 16 + SKEW_MS), name="u", pid=8, number=1)
    copied_at(tmp_path, NOW + 31)
    assert kinds(run([tmp_path]), HANGING) == [Kind.TOO_RECENT], "the log of the transactional id may be older"
    coordinator(tmp_path, *FIRST, ("EMPTY", 1, NOW + 16 + SKEW_MS))
    copied_at(tmp_path, NOW + 31)
    assert kinds(run([tmp_path]), HANGING) == [Kind.TOO_RECENT], "its marker may have come after the partition's copy"
    partition(tmp_path, data(0, NOW + 12), *others(NOW + 15, NOW + 17 + 2 * SKEW_MS, first=1))
    assert kinds(run([tmp_path]), HANGING) == [Kind.VIOLATION]


def test_a_clients_clock_proves_nothing(tmp_path: Path) -> None:
    """The data pretend to be of an hour before; nothing that a broker stamped follows them."""
    partition(tmp_path, data(0, NOW - 60 * MINUTE))
    coordinator(tmp_path, *FIRST)
    assert kinds(run([tmp_path]), HANGING) == [Kind.NOT_JUDGED]


def test_data_that_are_open_for_longer_than_any_transaction_may_take_hang_whoever_opened_them(tmp_path: Path) -> None:
    partition(tmp_path, data(0, NOW), *others(NOW + 1, NOW + 20 * MINUTE, first=1))
    assert kinds(run([tmp_path]), HANGING) == [Kind.NOT_JUDGED]
    partition(tmp_path, data(0, NOW), *others(NOW + 1, NOW + 20 * MINUTE + 2, first=1))
    [finding] = [each for each in run([tmp_path]).findings if each.rule == HANGING]
    assert "open for at least 20 min" in finding.evidence
    assert kinds(run([tmp_path], longest_ms=60 * MINUTE), HANGING) == [Kind.NOT_JUDGED]


def test_data_of_an_unknown_producer_are_too_recent_only_after_the_coordinators_last_record(tmp_path: Path) -> None:
    coordinator(tmp_path, *FIRST, name="u", pid=8)
    partition(tmp_path, data(0, NOW + 30 - SKEW_MS))
    copied_at(tmp_path, NOW)
    assert kinds(run([tmp_path]), HANGING) == [Kind.NOT_JUDGED]
    partition(tmp_path, data(0, NOW + 31 - SKEW_MS))
    copied_at(tmp_path, NOW)
    assert kinds(run([tmp_path]), HANGING) == [Kind.TOO_RECENT]
    assert kinds(run([tmp_path], one_moment=True), HANGING) == [Kind.NOT_JUDGED]


def test_an_open_transaction_that_will_end_is_told_with_when_and_what_it_holds_back(tmp_path: Path) -> None:
    coordinator(tmp_path, *FIRST, ("ONGOING", 1, NOW + 40))
    partition(tmp_path, *OVER, data(2, NOW + 42, epoch=1), *others(NOW + 50, first=3))
    copied_at(tmp_path, NOW + 50)
    found = run([tmp_path])
    [note] = [note for note in found.notes if note.rule == HANGING]
    assert (note.rule, note.kind, note.offset) == (HANGING, Kind.TOLD, 2)
    assert "will end: the coordinator has 't' ONGOING" in note.evidence
    assert "aborts it at 2023-11-14 22:14:20 UTC (timeout 1 min) at the latest" in note.evidence
    assert "get none of the 2 offsets from 2 to 3" in note.evidence
    assert found.unknown == 0


def test_a_transaction_that_its_coordinator_should_have_aborted_long_ago_hangs(tmp_path: Path) -> None:
    coordinator(tmp_path, *FIRST, ("ONGOING", 1, NOW + 40))
    coordinator(tmp_path, ("EMPTY", 0, NOW + 30 * MINUTE), name="u", pid=8, number=1)
    partition(tmp_path, *OVER, data(2, NOW + 42, epoch=1))
    [finding] = run([tmp_path], one_moment=True).findings
    assert finding.rule == HANGING
    assert "should have aborted it at 2023-11-14 22:14:20 UTC (timeout 1 min), 28 min 59 s ago" in finding.evidence


@pytest.mark.parametrize(
    ("coordinator_short", "partition_short", "kind"),
    [(0, 0, Kind.VIOLATION), (1, 0, Kind.TOLD), (0, 1, Kind.TOLD)],
    ids=["both logs go on for the grace", "the coordinator's does not", "the partition's does not"],
)
def test_a_transaction_that_was_decided_long_ago_and_has_no_marker_hangs(
    coordinator_short: int, partition_short: int, kind: Kind, tmp_path: Path
) -> None:
    """Another partition of ``__transaction_state`` tells how far the coordinator's directory goes."""
    decided = NOW + 45
    over = decided + GRACE_MS + 1
    coordinator(tmp_path / "a", *FIRST, ("ONGOING", 1, NOW + 40), ("PREPARE_ABORT", 2, decided))
    coordinator(tmp_path / "a", ("EMPTY", 0, over + LAG_MS - coordinator_short), name="u", pid=8, number=1)
    (tmp_path / "a" / HIGH_WATERMARKS).write_text(f"0\n2\n{TOPIC} 0 6\n{TOPIC} 1 1\n")
    partition(tmp_path / "b", *OVER, data(2, NOW + 42, epoch=1), *others(over - partition_short, first=3))
    found = run([tmp_path])
    assert kinds(found, HANGING) == [kind]
    told = {Kind.VIOLATION: "PREPARE_ABORT with producer 7 epoch 2 for 5 min, and no marker has come"}
    assert told.get(kind, "its marker is under way") in [*found.findings, *found.notes][0].evidence


def test_a_torn_transaction_is_found_in_copies_of_different_moments(tmp_path: Path) -> None:
    """The coordinator's log goes on beyond both markers."""
    states = [*FIRST[:2], ("PREPARE_COMMIT", 1, NOW + 20), ("COMPLETE_COMMIT", 1, NOW + 30), ("EMPTY", 1, LATER)]
    coordinator(tmp_path, *states)
    partition(
        tmp_path, data(0, NOW + 12), marker(1, NOW + 15, ControlType.ABORT), marker(2, NOW + 25, ControlType.COMMIT)
    )
    assert kinds(run([tmp_path]), TORN) == [Kind.VIOLATION]


# --- evidence in directories ------------------------------------------------------------------------------------------


@dataclass
class Log:
    """A log as :class:`Moments` sees it."""

    log: PartitionLog
    end: int
    stamped_ms: int

    def stamped_before(self, offset: int) -> float:
        return self.stamped_ms if self.end <= offset else -inf


def log_in(folder: Path, name: str, end: int, stamped_ms: int) -> Log:
    topic, _, number = name.rpartition("-")
    return Log(PartitionLog("", topic, int(number), str(folder / name), ()), end, stamped_ms)


def reaches(folder: Path, *logs: Log) -> list[float]:
    source = look_at([each.log for each in logs], one_moment=False)
    moments = Moments(source, logs)
    return [moments.reach(each) for each in logs]


def test_an_idle_log_goes_as_far_as_the_checkpoint_of_high_watermarks_that_it_reaches(tmp_path: Path) -> None:
    busy, idle, short = (
        log_in(tmp_path, "a-0", 9, LATER),
        log_in(tmp_path, "b-0", 4, NOW),
        log_in(tmp_path, "c-0", 2, NOW),
    )
    assert reaches(tmp_path, busy, idle, short) == [LATER, NOW, NOW]
    (tmp_path / HIGH_WATERMARKS).write_text("0\n3\na 0 9\nb 0 4\nc 0 3\n")
    assert reaches(tmp_path, busy, idle, short) == [LATER, LATER - LAG_MS, NOW]
    (tmp_path / HIGH_WATERMARKS).write_text("0\n3\na 0 8\nb 0 4\nc 0 3\n")
    assert reaches(tmp_path, busy, idle, short) == [LATER, NOW, NOW], (
        "the busy log's last time is beyond the checkpoint"
    )
    (tmp_path / HIGH_WATERMARKS).write_text("no checkpoint")
    assert reaches(tmp_path, busy, idle, short) == [LATER, NOW, NOW]


def test_a_checkpoint_whose_file_kept_its_time_tells_of_an_idle_directory(tmp_path: Path) -> None:
    """The file of a log was written when its last time was stamped, so the checkpoint's own time can be trusted."""
    coordinator(tmp_path, *FIRST)
    [segment] = tmp_path.rglob("*.log")
    idle = log_in(tmp_path, f"{TOPIC}-0", 4, NOW + 30)
    idle.log = replace(idle.log, segments=(segment.name,))
    (tmp_path / HIGH_WATERMARKS).write_text(f"0\n1\n{TOPIC} 0 4\n")
    os.utime(tmp_path / HIGH_WATERMARKS, (LATER / 1000, LATER / 1000))
    for after_stamp_us, has_kept in ((-1_000_500, False), (-999_500, True), (999_500, True), (1_000_500, False)):
        os.utime(segment, ns=(((NOW + 30) * 1_000 + after_stamp_us) * 1_000,) * 2)
        assert reaches(tmp_path, idle) == [LATER - LAG_MS if has_kept else NOW + 30]


def test_a_hanging_transaction_of_an_idle_cluster_is_found_in_a_copy_that_kept_the_times_of_files(
    tmp_path: Path,
) -> None:
    coordinator(tmp_path, *FIRST)
    partition(tmp_path, *OVER, data(2, NOW + 42, epoch=1))
    (tmp_path / HIGH_WATERMARKS).write_text(f"0\n2\n{TOPIC} 0 4\norders 0 3\n")
    for file in tmp_path.rglob("*.log"):
        os.utime(file, ((NOW + 45) / 1000,) * 2)
    os.utime(tmp_path / HIGH_WATERMARKS, ((NOW + 30 * MINUTE) / 1000,) * 2)
    [finding] = run([tmp_path]).findings
    assert (finding.rule, finding.offset) == (HANGING, 2)


def test_logs_of_cleanly_stopped_brokers_are_complete_almost_up_to_their_last_timestamp(tmp_path: Path) -> None:
    busy, idle = log_in(tmp_path / "1", "a-0", 9, LATER), log_in(tmp_path / "1", "b-0", 4, NOW)
    other = log_in(tmp_path / "2", "b-0", 4, NOW)
    for log in (busy, other):
        Path(log.log.folder).parent.mkdir()
        (Path(log.log.folder).parent / CLEAN_SHUTDOWN).touch()
    assert reaches(tmp_path, busy, idle, other) == [LATER, LATER - LAG_MS, NOW]
    assert reaches(tmp_path, busy, idle) == [inf, inf], "the logs of one stopped broker are of one moment"


def test_a_recording_is_of_one_moment_by_itself_and_not_beside_logs_that_are_none(tmp_path: Path) -> None:
    batch = build_batch([Record(value=b"v")], base_timestamp=NOW).encode()
    segments = [tmp_path / name / f"{0:020d}.log" for name in ("recording/brokers/1/orders-0", "logs/bills-0")]
    for segment in segments:
        write_segment(segment, [batch])
    recording, (_, lone) = tmp_path / "recording", segments
    (recording / "manifest.json").write_text("{}", encoding="utf-8")
    for paths, one_moment in (
        ([recording], True),
        ([recording, lone], False),
        ([recording, lone.parent], False),
        ([recording, tmp_path / "logs"], False),
        ([lone], False),
    ):
        with open_inputs(paths) as inputs:
            assert (inputs.one_moment, len(inputs.logs)) == (one_moment, len(paths)), paths


def test_the_directories_of_one_broker_that_was_shut_down_cleanly_are_of_one_moment(tmp_path: Path) -> None:
    logs = [log_in(tmp_path / name, "a-0", 9, NOW).log for name in ("1", "2")]
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":14}')
    assert not look_at(logs, one_moment=False).one_moment, "nothing tells whose they are"
    for broker, one_moment in ((1, True), (2, False)):
        (tmp_path / "1" / META_PROPERTIES).write_text("cluster.id=c\nnode.id=1\ndirectory.id=x\n")
        (tmp_path / "2" / META_PROPERTIES).write_text(f"cluster.id=c\nnode.id={broker}\ndirectory.id=y\n")
        source = look_at(logs, one_moment=False)
        assert (source.one_moment, source.is_still) == (one_moment, True), broker
    (tmp_path / "2" / META_PROPERTIES).write_text("cluster.id=c\nnode.id=1\n")
    (tmp_path / "2" / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":21}')
    assert not look_at(logs, one_moment=False).one_moment, "it was started in between"
    (tmp_path / "2" / CLEAN_SHUTDOWN).unlink()
    source = look_at(logs, one_moment=False)
    assert not source.is_still
    one, other = ({tmp_path / name} for name in ("1", "2"))
    assert not source.part(one | other, other).one_moment
    assert source.part(one, other).one_moment, "a directory without a log of the cluster dates none"


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Path]:
    """A lock that another process holds, as a broker does."""
    path = tmp_path / LOCK
    path.touch()
    hold = (
        f"import fcntl, sys; f = open({str(path)!r}, 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); "
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold + "sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield path
        process.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the lock is asked for only on Linux")
def test_a_running_broker_is_known_by_its_lock_and_its_logs_are_of_now(lock: Path) -> None:
    assert is_locked(lock)
    idle = log_in(lock.parent, "b-0", 4, NOW)
    source = look_at([idle.log], one_moment=False)
    [directory] = source.directories.values()
    assert directory.read_ms is not None
    assert Moments(source, [idle]).reach(idle) == directory.read_ms - LAG_MS
    copied = lock.parent / "copy"
    copied.mkdir()
    shutil.copy(lock, copied / LOCK)
    assert not is_locked(copied / LOCK)
    assert not is_locked(copied / "none")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the lock is asked for only on Linux")
def test_a_copy_of_hard_links_has_the_lock_of_a_running_broker_and_is_not_its_directory(lock: Path) -> None:
    linked = lock.parent / "linked"
    linked.mkdir()
    (linked / LOCK).hardlink_to(lock)
    assert is_locked(lock)
    assert not is_locked(linked / LOCK)
    assert moments.read_directory(lock.parent, NOW).read_ms == NOW
    assert moments.read_directory(linked, NOW).read_ms is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the lock is asked for only on Linux")
def test_the_start_of_a_running_broker_is_that_of_the_process_that_holds_its_lock(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = moments.read_directory(lock.parent, round(time.time() * 1000))
    assert own.read_ms is not None
    assert -2_000 < own.read_ms - own.started_ms < 60_000
    assert moments.read_directory(lock.parent / "none", NOW).started_ms == -inf
    monkeypatch.setattr(moments, "holder_of", lambda _: 0)  # in another container
    assert moments.read_directory(lock.parent, NOW) == replace(own, read_ms=NOW, started_ms=-inf)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the lock is asked for only on Linux")
@pytest.mark.parametrize("state", ["ONGOING", "PREPARE_COMMIT", None])
def test_what_timed_out_while_the_broker_was_down_is_too_recent_soon_after_its_start(
    state: str | None, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator aborts within seconds of its start what timed out before, and goes on with what was decided."""
    folder, past = lock.parent, round(time.time() * 1000) - 60 * MINUTE
    epoch = 1 if state == "ONGOING" else 2
    begun = [("EMPTY", 1, past - 1), ("ONGOING", 1, past), *([(state, 2, past + 1)] if epoch == 2 else [])]
    if state is not None:
        coordinator(folder, *begun)
    partition(folder, data(0, past + 2, epoch=1), marker(1, past + 3, ControlType.COMMIT, pid=99))
    [note] = [each for each in run([folder]).notes if each.rule == HANGING]
    assert (note.kind, note.offset) == (Kind.TOO_RECENT, 0)
    assert "its broker was started less than 5 min ago, and may end it" in note.evidence
    for started in (-inf, time.time() * 1000 - GRACE_MS - MINUTE):
        monkeypatch.setattr(moments, "_started_ms", lambda _, at=started: at)
        assert kinds(run([folder]), HANGING) == [Kind.VIOLATION], started


def test_what_is_too_recent_is_told_by_rule_and_with_what_helps(
    lock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = round(time.time() * 1000)
    for folder, at, helps in (
        (tmp_path / "copy", NOW, "copy again and audit the copy"),
        (lock.parent, now, "a minute"),
    ):
        partition(folder, data(0, at - SKEW_MS))
        coordinator(folder, ("EMPTY", 0, at - 2 * SKEW_MS), name="u", pid=8)
        copied_at(folder, at)
        assert cli.main(["audit", str(folder)]) == 0
        said = capsys.readouterr().out
        assert "too recent to judge: 1 (hanging transaction 1)" in said
        assert f"{helps}\n" in said or f"{helps};" in said
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)  # it is below the other folder


@pytest.mark.parametrize("has_finding", [False, True])
def test_of_what_is_too_recent_transactions_that_may_hang_come_first_and_few_of_each_rule_are_shown(
    has_finding: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = NOW - 9 * SKEW_MS
    coordinator(tmp_path, *((state, epoch, old) for state, epoch, _ in FIRST), ("ONGOING", 1, NOW + 40))
    first = [data(0, old), *(marker(each, old, ControlType.COMMIT) for each in (1, 2))]
    first[2] = marker(2, old, ControlType.COMMIT, epoch=9) if has_finding else first[2]
    later = [*others(*range(NOW + 50, NOW + 70), first=3), data(23, NOW + 70, pid=98)]
    partition(tmp_path, *first, *later)
    copied_at(tmp_path, NOW + 70)
    assert cli.main(["audit", str(tmp_path)]) == has_finding
    lines = capsys.readouterr().out.splitlines()
    recent = [number for number, line in enumerate(lines) if " (too recent): " in line]
    rules = [lines[number].partition(" (")[0] for number in recent]
    markers = [NO_TRANSACTION] * 3
    assert rules == ([*markers, HANGING] if has_finding else [HANGING, *markers])
    assert lines[recent[2 if has_finding else -1] + 1].startswith("… and 17 more")


def test_a_lock_that_this_process_holds_is_no_running_broker(tmp_path: Path) -> None:
    with (tmp_path / LOCK).open("w") as own:
        fcntl.lockf(own, fcntl.LOCK_EX)
        assert not is_locked(tmp_path / LOCK)


def test_logs_of_one_moment_go_as_far_as_any_question(tmp_path: Path) -> None:
    idle = log_in(tmp_path, "b-0", 4, NOW)
    source = replace(look_at([idle.log], one_moment=True))
    assert Moments(source, [idle]).reach(idle) == inf


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 s"),
        (1_234, "1.23 s"),
        (61_000, "1 min 1 s"),
        (600_000, "10 min"),
        (3_660_000, "1 h 1 min"),
        (2e8, "2 days"),
    ],
)
def test_a_span_is_told_in_at_most_two_units(ms: float, words: str) -> None:
    assert span(ms) == words


# --- markers of completed transactions that are not there -------------------------------------------------------------


SPLIT_SECOND, FAR = 100, SKEW_MS + 200  # between transactions: clocks may differ by more, or not


def both(
    folder: Path,
    count: int,
    kept: Sequence[int],
    *,
    version: int = 2,
    apart: int = SPLIT_SECOND,
    decision: str = "COMMIT",
    led: int = 0,
) -> None:
    """Complete transactions over orders-0 and orders-1, of which the latter has only some, of this leader epoch."""
    states: list[tuple[str, int, int]] = [("EMPTY", 0, NOW)]
    batches: list[RecordBatch] = []
    for number in range(count):
        at, epoch = NOW + number * apart, number * (version == 2)
        decided = epoch + (version == 2)
        states += [("ONGOING", epoch, at + 10), (f"PREPARE_{decision}", decided, at + 20)]
        states += [(f"COMPLETE_{decision}", decided, at + 30)]
        batches += [data(2 * number, at + 12, epoch=epoch, sequence=number * (version == 1))]
        batches += [marker(2 * number + 1, at + 25, ControlType[decision], epoch=decided)]
    coordinator(folder, *states, partitions=(0, 1), version=version)
    partition(folder, *batches)
    left = [batch for number in kept for batch in batches[2 * number : 2 * number + 2]]
    again = (replace(each, base_offset=offset, partition_leader_epoch=led) for offset, each in enumerate(left))
    partition(folder, *again, name="orders-1")


def missing(folder: Path, *, one_moment: bool = True) -> list[tuple[int, int | None, int | None]]:
    """Partition, offset and epoch of the markers that a partition has lost."""
    found = [each for each in run([folder], one_moment=one_moment).findings if each.rule != READABLE]
    assert {each.rule for each in found} <= {TORN}, found
    return [(each.partition, each.offset, each.producer_epoch) for each in found]


def unjudged(folder: Path, *, one_moment: bool = True) -> tuple[dict[str, int], int]:
    """Why markers of torn transactions are not judged, and how many are too recent; nothing is found."""
    audit = run([folder], one_moment=one_moment)
    assert [each for each in audit.findings if each.rule != READABLE] == []
    judged = {verdict.name: verdict for verdict in audit.verdicts}[TORN]
    return dict(judged.unjudged_for), int(judged.figures.get("recent", 0))


@pytest.mark.parametrize("apart", [SPLIT_SECOND, FAR])
@pytest.mark.parametrize("decision", ["COMMIT", "ABORT"])
def test_completed_transactions_whose_markers_a_partition_has_lost_are_torn(
    apart: int, decision: str, tmp_path: Path
) -> None:
    """In version 2 an earlier epoch of the producer there shows that the log is no younger, however fast it went."""
    both(tmp_path, 8, kept=range(4), apart=apart, decision=decision)
    assert missing(tmp_path) == [(1, 8, epoch) for epoch in (5, 6, 7, 8)]
    first = run([tmp_path], one_moment=True).findings[0]
    assert first.evidence.startswith(f"transaction 4 of 't': COMPLETE_{decision}, decided at 2023-11-14 22:1")
    assert first.evidence.endswith("the log ends without its marker: expected at least 1 of the epoch, found 0")
    both(tmp_path, 8, kept=range(8), apart=apart, decision=decision)
    assert missing(tmp_path) == []


@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize(
    ("epoch", "told"),
    [
        (4, "it has the epoch of the data, 4, as `kafka-transactions abort` writes it"),
        (6, "it has epoch 6, which is of another transaction"),
    ],
)
def test_where_another_marker_has_ended_the_data_of_a_transaction_both_are_named(
    epoch: int, told: str, buckets: int, tmp_path: Path
) -> None:
    both(tmp_path, 6, kept=range(6))
    right = [data(2 * each, NOW + 100 * each + 12, epoch=each) for each in range(4)]
    right += [marker(2 * each + 1, NOW + 100 * each + 25, ControlType.COMMIT, epoch=each + 1) for each in range(4)]
    partition(tmp_path, *sorted(right, key=lambda batch: batch.base_offset), name="orders-1")
    wrong = [data(8 + each, NOW + 412, epoch=4, sequence=each) for each in range(2)]
    wrong += [marker(10, NOW + 900, ControlType.ABORT, epoch=epoch)]
    path = tmp_path / "orders-1" / f"{8:020d}.log"
    write_segment(path, [batch.encode() for batch in wrong], index=False)
    logs = find_logs(tmp_path)
    readable = [each for each in readable_transactions(logs, ONE_MOMENT).findings if each.rule == TORN]
    engine = LocalEngine()
    engine.buckets = buckets
    quick = [each for each in by_steps(logs, engine, ONE_MOMENT, 100, 1000)[0].findings if each.rule == TORN]
    assert {each.offset: replace(each, time_ms=None) for each in quick} == {each.offset: each for each in readable}
    [found] = [each for each in readable if each.producer_epoch == 5]
    assert (found.file, found.offset) == (f"{8:020d}.log", 8)
    assert found.evidence.endswith(f"found 0; ABORT at offset 10 has ended its data from offset 8 on; {told}")
    lines = rule_of(TORN).advice(found)
    assert any("by hand, of a transaction that its coordinator has decided" in line for line in lines) == (epoch == 4)
    assert any(f"{8:020d}.log --print-data-log" in line for line in lines)


def test_before_version_2_markers_of_an_epoch_are_counted(tmp_path: Path) -> None:
    """The first one tells how old the log is. It may be of any transaction, so it does not count."""
    both(tmp_path, 8, kept=range(4), version=1, apart=FAR)
    [finding] = [each for each in run([tmp_path], one_moment=True).findings if each.rule == TORN]
    complete = "at least 7 transactions of the epoch are complete, the last transaction 7 of 't' (COMPLETE_COMMIT, "
    assert finding.evidence.startswith(complete), "it is not claimed which of them lack their marker"
    assert finding.evidence.endswith("and the log ends without the markers of 3 of them, found 4")
    both(tmp_path, 2, kept=(), version=1, apart=FAR)
    of_another = (data(0, NOW + 12, pid=PID + 1), marker(1, NOW + 25, ControlType.COMMIT, epoch=0, pid=PID + 1))
    partition(tmp_path, *of_another, name="orders-1")
    [finding] = [each for each in run([tmp_path], one_moment=True).findings if each.rule == TORN]
    assert finding.evidence.startswith("transaction 1 of 't': COMPLETE_COMMIT, "), "only one is due"
    both(tmp_path, 8, kept=range(7), version=1, apart=FAR)
    assert unjudged(tmp_path) == ({"made-again": 1}, 0), "the log may have been made after the first decision"
    both(tmp_path, 8, kept=range(4), version=1)
    assert unjudged(tmp_path) == ({"made-again": 4}, 0)


@pytest.mark.parametrize(("more", "expected"), [(0, ([], 2)), (1, ([0], 0))])
def test_a_log_is_older_than_a_decision_if_its_first_marker_is_by_more_than_clocks_may_differ(
    more: int, expected: tuple[list[int], int], tmp_path: Path
) -> None:
    both(tmp_path, 3, kept=[0], version=1, apart=SKEW_MS + 5 + more)  # marked 5 ms after the decision
    assert torn_and_unjudged(tmp_path) == expected


def test_markers_that_were_lost_in_the_middle_are_missing(tmp_path: Path) -> None:
    both(tmp_path, 8, kept=[0, 1, 6, 7])
    assert missing(tmp_path) == [(1, 8, epoch) for epoch in (3, 4, 5, 6)]


def test_an_emptied_log_may_be_of_a_topic_that_was_made_again(tmp_path: Path) -> None:
    both(tmp_path, 8, kept=range(0))
    assert unjudged(tmp_path) == ({"made-again": 8}, 0)
    [empty] = (tmp_path / "orders-1").glob("*.log")
    empty.rename(empty.with_name(f"{16:020d}.log"))
    assert unjudged(tmp_path) == ({}, 0), "its records were deleted"
    shutil.rmtree(tmp_path / "orders-1")
    assert unjudged(tmp_path) == ({}, 0), "its topic was deleted, or is not given"


@pytest.mark.parametrize("apart", [SPLIT_SECOND, FAR])
def test_a_log_that_begins_after_a_decision_needs_no_marker_of_it(apart: int, tmp_path: Path) -> None:
    """Its topic was made again. Retention leaves a first segment with another offset, whatever it begins with."""
    both(tmp_path, 8, kept=range(4, 8), apart=apart)
    assert unjudged(tmp_path) == ({}, 0)
    [segment] = (tmp_path / "orders-1").glob("*.log")
    old = [replace(data(8, NOW - MINUTE, epoch=4), base_offset=8)]
    old += [marker(9 + i, NOW + 4 * apart + 25, ControlType.COMMIT, pid=99) for i in range(2)]
    segment.unlink()
    write_segment(segment.with_name(f"{8:020d}.log"), [each.encode() for each in old[:1]])
    assert {each.rule for each in run([tmp_path], one_moment=True).findings} == {HANGING}, "but its data hang"


TENTH = 10 * MINUTE  # of transactions so far apart, those decided 20 minutes after the topic was there have begun then


def named(folder: Path, **ids: str) -> None:
    """Let partitions of a log directory tell the id of their topic."""
    for number, topic in ids.items():
        (folder / f"orders-{number[1:]}" / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {topic}\n")


STATES = (("EMPTY", 0), ("ONGOING", 10), ("PREPARE_COMMIT", 20), ("COMPLETE_COMMIT", 30))


def torn_and_unjudged(folder: Path) -> tuple[list[int | None], int]:
    """The marker epochs of torn transactions of orders-1, and how many may be of a topic that was made again."""
    audit = run([folder], one_moment=True, oracle=1.0)
    assert audit.verdicts[-1].ok, "by both forms of the rules"
    judged = {verdict.name: verdict for verdict in audit.verdicts}[TORN]
    assert set(judged.unjudged_for) <= {"made-again"}
    assert {(each.rule, each.partition) for each in audit.findings} <= {(TORN, 1)}
    return [each.producer_epoch for each in audit.findings], judged.unknown


def test_a_marker_of_epoch_0_shows_that_a_log_is_older_than_what_the_next_instance_decided(tmp_path: Path) -> None:
    states = [(state, epoch, NOW + 40 * epoch + at) for epoch in (0, 1) for state, at in STATES]
    coordinator(tmp_path, *states, partitions=(0, 1), version=1)
    batches: list[RecordBatch] = []
    for epoch in (0, 1):
        batches += [data(2 * epoch, NOW + 40 * epoch + 12, epoch=epoch)]
        batches += [marker(2 * epoch + 1, NOW + 40 * epoch + 25, ControlType.COMMIT, epoch=epoch)]
    partition(tmp_path, *batches)
    partition(tmp_path, *batches[:2], name="orders-1")
    assert torn_and_unjudged(tmp_path) == ([1], 0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_log_that_a_later_leader_has_begun_may_have_been_emptied(version: int, tmp_path: Path) -> None:
    """A topic that was made again begins with leader epoch 0, unless there was an election before its first batch."""
    both(tmp_path, 8, kept=range(5, 8), apart=TENTH, led=1, version=version)
    assert torn_and_unjudged(tmp_path) == ([], 5)
    evidence = {verdict.name: verdict.unjudged for verdict in run([tmp_path], one_moment=True).verdicts}[TORN]
    assert "or this log was emptied; the first at orders-1 offset 6 (producer 7)" in evidence
    both(tmp_path, 8, kept=range(5, 8), apart=TENTH, led=0, version=version)
    assert torn_and_unjudged(tmp_path) == ([], 0)


@pytest.mark.parametrize("led", [0, 1])
def test_an_emptied_log_is_told_by_an_older_partition_of_the_same_topic(led: int, tmp_path: Path) -> None:
    both(tmp_path, 8, kept=range(5, 8), apart=TENTH, led=led)
    named(tmp_path, _0="same", _1="same")
    assert torn_and_unjudged(tmp_path) == ([4, 5], 3 * led), "the first three may have begun before the topic was made"
    named(tmp_path, _0="same", _1="same")
    [segment] = (tmp_path / "orders-1").glob("*.log")
    moved = [
        replace(each.batch, base_offset=each.batch.base_offset + 10)
        for each in read_segment(segment)
        if isinstance(each, StoredBatch)
    ]
    segment.unlink()
    write_segment(segment.with_name(f"{10:020d}.log"), [each.encode() for each in moved])
    assert torn_and_unjudged(tmp_path) == ([], 0), "retention deleted the records before"


def new_log(at: int, marked: int) -> list[RecordBatch]:
    """A transaction of another producer, with which a new partition begins."""
    own = [data(0, at, pid=8), marker(1, marked, ControlType.COMMIT, pid=8)]
    return [replace(each, partition_leader_epoch=0) for each in own]


COMPLETED = NOW + 30 + SKEW_MS  # than the end of the first transaction by all clocks


@pytest.mark.parametrize(
    ("at", "marked", "more", "missing"),
    [
        (COMPLETED + 1, COMPLETED + 1, [], 0),
        (COMPLETED, COMPLETED + 1, [], 1),
        (COMPLETED + 1, COMPLETED, [], 1),  # it may be the marker of the decision
        (
            COMPLETED + 1,
            COMPLETED + 1,
            SECOND,
            1,
        ),  # decided later than the last one that the topic is known to be younger than
    ],
)
def test_a_partition_that_is_not_there_is_not_missed_if_its_topic_was_made_again_after_its_last_decision(
    at: int, marked: int, more: list[tuple[str, int, int]], missing: int, tmp_path: Path
) -> None:
    (tmp_path / META_PROPERTIES).write_text("version=0\nnode.id=1\n")
    partition(tmp_path, *new_log(at, marked))
    coordinator(tmp_path, *FIRST, partitions=(0, 1))
    if more:  # of which only the missing partition had a part
        coordinator(tmp_path, *more, partitions=(1,), name="u", number=1)
    [readable] = [each for each in run([tmp_path], one_moment=True).verdicts if each.name == READABLE]
    assert readable.unjudged_for == ({"missing-partition": missing} if missing else {})


def test_a_topic_with_a_replica_of_before_its_decision_was_not_made_again(tmp_path: Path) -> None:
    for broker, at in (("1", COMPLETED + 1), ("2", NOW + 10)):
        (tmp_path / broker).mkdir()
        (tmp_path / broker / META_PROPERTIES).write_text(f"version=0\nnode.id={broker}\n")
        partition(tmp_path / broker, *new_log(at, at))
    coordinator(tmp_path / "1", *FIRST, partitions=(0, 1))
    [readable] = [each for each in run([tmp_path], one_moment=True).verdicts if each.name == READABLE]
    assert readable.unjudged_for == {"missing-partition": 1}


@pytest.mark.spark
def test_spark_knows_that_a_topic_was_made_again_with_fewer_partitions(tmp_path: Path, spark: Any) -> None:
    (tmp_path / META_PROPERTIES).write_text("version=0\nnode.id=1\n")
    partition(tmp_path, *new_log(COMPLETED + 1, COMPLETED + 1))
    coordinator(tmp_path, *FIRST, partitions=(0, 1))
    result = run([tmp_path], "spark", spark=spark, one_moment=True)
    assert {each.name: each.unknown for each in result.verdicts}[READABLE] == 0


def test_a_log_that_is_empty_has_lost_what_its_topic_had(tmp_path: Path) -> None:
    both(tmp_path, 8, kept=range(0), apart=TENTH)
    named(tmp_path, _0="same", _1="same")
    assert torn_and_unjudged(tmp_path) == ([4, 5, 6, 7, 8], 3)


def test_before_version_2_the_markers_of_an_emptied_log_are_counted(tmp_path: Path) -> None:
    both(tmp_path, 8, kept=range(5, 8), apart=TENTH, led=1, version=1)
    named(tmp_path, _0="same", _1="same")
    [finding] = [each for each in run([tmp_path], one_moment=True, oracle=1.0).findings if each.rule == TORN]
    assert finding.evidence.startswith("at least 5 transactions of the epoch are complete")
    assert finding.evidence.endswith("the log ends without the markers of 2 of them, found 3")


def test_an_emptied_log_is_told_by_another_replica(tmp_path: Path) -> None:
    both(tmp_path / "1", 8, kept=range(5, 8), apart=TENTH, led=1)
    shutil.rmtree(tmp_path / "1" / "orders-0")
    both(tmp_path / "2", 8, kept=range(2), apart=TENTH)
    shutil.rmtree(tmp_path / "2" / f"{TOPIC}-0")
    shutil.rmtree(tmp_path / "2" / "orders-0")
    for number in (1, 2):
        (tmp_path / str(number) / "meta.properties").write_text(f"cluster.id=c\nnode.id={number}\n")
        named(tmp_path / str(number), _1="same")
    torn = [each for each in run([tmp_path], one_moment=True, oracle=1.0).findings if each.rule == TORN]
    assert [(each.broker, each.producer_epoch) for each in torn] == [("1", 4), ("1", 5)]


def test_an_emptied_log_is_told_by_the_time_of_its_metadata_if_copying_kept_times(tmp_path: Path) -> None:
    both(tmp_path, 8, kept=range(5, 8), apart=TENTH, led=1)
    shutil.rmtree(tmp_path / "orders-0")
    named(tmp_path, _1="same")
    metadata = tmp_path / "orders-1" / PARTITION_METADATA
    os.utime(metadata, (NOW / 1000 - 3600, NOW / 1000 - 3600))
    assert torn_and_unjudged(tmp_path) == ([], 5), "of which moment the file is, is not known"
    [segment] = (tmp_path / "orders-1").glob("*.log")
    last = NOW / 1000 + 7 * TENTH / 1000 + 1
    os.utime(segment, (last, last))
    assert torn_and_unjudged(tmp_path) == ([1, 2, 3, 4, 5], 0)
    os.utime(metadata, (last, last))
    assert torn_and_unjudged(tmp_path) == ([], 5)


def test_a_client_that_stamps_its_records_with_another_time_does_not_make_a_log_older(tmp_path: Path) -> None:
    both(tmp_path, 8, kept=range(4, 8), apart=FAR)
    [segment] = (tmp_path / "orders-1").glob("*.log")
    first = build_batch([Record(value=b"v")], base_offset=0, base_timestamp=NOW - 60 * MINUTE)
    left = [marker(1 + i, NOW + i * FAR + 25, ControlType.COMMIT, epoch=i + 1) for i in range(4, 8)]
    batches = [first, *(replace(each, base_offset=1 + i) for i, each in enumerate(left))]
    write_segment(segment, [each.encode() for each in batches])
    assert unjudged(tmp_path) == ({"made-again": 4}, 0)


def test_a_log_needs_no_marker_of_a_transaction_that_is_not_complete_or_not_its_own(tmp_path: Path) -> None:
    first = [*FIRST, ("ONGOING", 1, NOW + 40), ("PREPARE_COMMIT", 2, NOW + 50)]
    partition(tmp_path, *OVER)
    coordinator(tmp_path, *first)
    assert unjudged(tmp_path) == ({}, 0)
    coordinator(tmp_path, *first, ("EMPTY", 2, NOW + 60), ("COMPLETE_COMMIT", 2, NOW + 70))
    assert {each.rule for each in run([tmp_path], one_moment=True).findings} == {ILLEGAL_TRANSITION}
    coordinator(tmp_path, *first, ("COMPLETE_COMMIT", 2, NOW + 60))
    assert missing(tmp_path) == [(0, 2, 2)]
    partition(tmp_path, *OVER, data(2, NOW + 42, epoch=1))
    assert kinds(run([tmp_path], one_moment=True), TORN) == [], "and its data are found to hang"
    assert kinds(run([tmp_path], one_moment=True), HANGING) == [Kind.VIOLATION]


def test_a_hole_or_damage_may_have_had_the_marker(tmp_path: Path) -> None:
    both(tmp_path, 8, kept=range(4))
    [segment] = (tmp_path / "orders-1").glob("*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole + b"no batch" * 40)
    assert missing(tmp_path) == []
    segment.write_bytes(whole + marker(8, NOW, ControlType.COMMIT).encode()[:50])
    assert missing(tmp_path) == [(1, 8, epoch) for epoch in (5, 6, 7, 8)], "a crash leaves such a tail"
    segment.write_bytes(whole + bytes(4096))
    assert missing(tmp_path) == [(1, 8, epoch) for epoch in (5, 6, 7, 8)], "so does a preallocated file"
    again = build_batch([Record(value=b"v")], base_offset=2, base_timestamp=NOW + 413).encode()
    segment.write_bytes(whole + again)
    assert kinds(run([tmp_path], one_moment=True), TORN) == [Kind.VIOLATION] * 4, "though offsets go backwards"
    segment.write_bytes(whole + again + b"no batch" * 40)
    assert kinds(run([tmp_path], one_moment=True), TORN) == []
    hole = data(9, NOW + 412, epoch=4), marker(10, NOW + 425, ControlType.COMMIT, epoch=5)
    segment.write_bytes(whole + b"".join(each.encode() for each in hole))
    assert missing(tmp_path) == []


@pytest.mark.parametrize(("version", "expected"), [(1, []), (2, [(1, 8, epoch) for epoch in (5, 6, 7, 8)])])
def test_only_in_version_2_an_epoch_tells_its_transaction_if_the_coordinators_log_is_compacted(
    version: int, expected: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    both(tmp_path, 8, kept=range(4), version=version, apart=SPLIT_SECOND if version == 2 else FAR)
    [states] = (tmp_path / f"{TOPIC}-0").glob("*.log")
    left = states.read_bytes()
    states.unlink()
    size = 12 + int.from_bytes(left[8:12], "big")
    states.with_name(f"{1:020d}.log").write_bytes(left[size:])
    assert missing(tmp_path) == expected


def test_another_replica_that_goes_on_later_may_have_the_marker(tmp_path: Path) -> None:
    """The longer one may be of a leader that was replaced: its tail is not committed."""
    both(tmp_path / "a", 8, kept=range(4))
    assert missing(tmp_path) == [(1, 8, epoch) for epoch in (5, 6, 7, 8)]
    batches = [data(0, NOW + 12), marker(1, NOW + 900, ControlType.COMMIT, pid=99)]
    partition(tmp_path / "b", *batches, name="orders-1")
    assert [each for each in run([tmp_path], one_moment=True).findings if each.rule == TORN] == []


def test_what_a_log_lacks_after_its_own_moment_is_too_recent_or_not_judged(tmp_path: Path) -> None:
    both(tmp_path, 8, kept=range(4), apart=FAR)
    last = NOW + 7 * FAR + 30
    assert unjudged(tmp_path, one_moment=False) == ({"other-moment": 4}, 0)
    copied_at(tmp_path, last + SKEW_MS + LAG_MS - 1)
    assert unjudged(tmp_path, one_moment=False) == ({"other-moment": 3}, 1), "the last one"
    copied_at(tmp_path, last + SKEW_MS + LAG_MS)
    assert unjudged(tmp_path, one_moment=False) == ({"other-moment": 4}, 0)
    (tmp_path / CLEAN_SHUTDOWN).touch()
    (tmp_path / HIGH_WATERMARKS).write_text("0\n1\norders 1 16\n")
    assert unjudged(tmp_path, one_moment=False) == ({"incomplete": 4}, 0)


@pytest.mark.parametrize(("later_ms", "expected"), [(-1, []), (0, [(0, 3, 2)])])
def test_a_marker_is_missing_if_the_log_goes_on_beyond_the_completion(
    later_ms: int, expected: list[tuple[int, int, int]], tmp_path: Path
) -> None:
    """The completion is the record's own time, not the one in it, which is from before the markers."""
    coordinator(tmp_path, *FIRST, *SECOND)
    partition(tmp_path, *OVER, *others(NOW + 60 + SKEW_MS + later_ms))
    assert missing(tmp_path, one_moment=False) == expected
