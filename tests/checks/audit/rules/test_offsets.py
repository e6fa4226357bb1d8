"""The fold of committed offsets: transactions count at their markers, a later record wins, what goes back is found."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kafka_eos.formats.consumer_offsets import TOPIC, OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.findings import Kind
from kafka_eos_checks.audit.kernels.coordinators.group_log import read_group_log
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.offsets import WENT_BACK, GroupLog, follow_group_log, went_back
from kafka_eos_checks.audit.rules.transactions import longest
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT
NAME = "g", ("t", 0)
# An offset (None: a tombstone) outside of any transaction, or in one of a producer; a producer's marker; a hole.
Step = int | None | tuple[int, int | ControlType] | str


def record(offset: int | None) -> Record:
    value = None if offset is None else OffsetCommitValue(offset=offset).encode()
    return Record(key=OffsetCommitKey(group="g", topic="t", partition=0).encode(), value=value)


def batch(step: Step, at: int) -> RecordBatch:
    if not isinstance(step, tuple):
        assert not isinstance(step, str)
        return build_batch([record(step)], base_offset=at)
    producer, what = step
    if isinstance(what, ControlType):
        marker = ControlRecord(control_type=what, coordinator_epoch=0)
        return build_control_batch(marker, producer_id=producer, producer_epoch=0, base_offset=at)
    own = {"producer_id": producer, "producer_epoch": 0}
    return build_batch([record(what)], base_offset=at, is_transactional=True, **own)


def log_of(folder: Path, *steps: Step, more: Sequence[RecordBatch] = ()) -> PartitionLog:
    batches = [batch(step, at) for at, step in enumerate(steps) if not isinstance(step, str)]
    path = folder / f"{TOPIC}-0" / f"{0:020d}.log"
    write_segment(path, [each.encode() for each in [*batches, *more]])
    [log] = find_logs(path.parent)
    one_by_one, by_columns = follow_group_log(log), read_group_log(log)
    assert list(by_columns.commits.items()) == list(one_by_one.commits.items())
    for name in ("end", "holes", "whole", "stamped_ms"):
        assert getattr(by_columns, name) == getattr(one_by_one, name)
    return log


def counted(folder: Path, *steps: Step) -> list[int | None]:
    return [commit.offset for commit in read_group_log(log_of(folder, *steps)).commits[NAME]]


@pytest.mark.parametrize(
    ("steps", "offsets"),
    [
        ((3, 5), [3, 5]),
        (((1, 3), (1, COMMIT)), [3]),
        (((1, 3), (1, ABORT)), []),
        (((1, 3),), []),
        (((1, 3), (2, 4), (2, COMMIT), (1, COMMIT)), [4]),  # KAFKA-5247: a later record wins over a later marker
        (((1, 3), 4, (1, COMMIT)), [4]),
        (((1, 3), (1, ABORT), (1, 3), (1, COMMIT)), [3]),
        (((1, 3), (2, COMMIT), (1, COMMIT)), [3]),
        ((3, None, 1), [3, None, 1]),
        (((1, 3), "hole", (1, COMMIT)), []),
    ],
)
def test_an_offset_counts_from_its_commit_on_unless_a_later_record_counts_already(
    tmp_path: Path, steps: tuple[Step, ...], offsets: list[int | None]
) -> None:
    assert counted(tmp_path, *steps) == offsets


def judged(folder: Path, *steps: Step) -> tuple[list[tuple[int | None, int | None]], int]:
    """Record and position of each finding, and the number of unknown subjects."""
    figures: dict[str, int | float | str] = {"checked": 0, "unknown": 0}
    found = list(went_back([read_group_log(log_of(folder, *steps))], figures))
    assert {(finding.rule, finding.kind) for finding in found} <= {(WENT_BACK, Kind.VIOLATION)}
    return [(finding.offset, finding.position) for finding in found], int(figures["unknown"])


def test_an_offset_in_a_transaction_below_the_one_before_is_found_at_its_record(tmp_path: Path) -> None:
    first = len(batch(5, 0).encode())
    assert judged(tmp_path / "back", 5, (1, 3), (1, COMMIT), 4) == ([(1, first)], 0)
    assert judged(tmp_path / "same", 5, 5, 6) == ([], 0)
    assert judged(tmp_path / "aborted", 5, (1, 3), (1, ABORT)) == ([], 0)
    assert judged(tmp_path / "after", 5, (1, 7), (1, COMMIT), (1, 6), (1, COMMIT))[0] != []


def test_of_several_offsets_of_one_transaction_a_lower_one_that_comes_last_is_found(tmp_path: Path) -> None:
    log = read_group_log(log_of(tmp_path, (1, 5), (1, 8), (1, 5), (1, COMMIT)))
    [found] = went_back([log], {"checked": 0, "unknown": 0})
    assert (found.kind, found.offset) == (Kind.VIOLATION, 2)
    assert found.evidence.endswith("8 of t-0 before 5, of the same producer and epoch")
    assert judged(tmp_path / "aborted", (1, 5), (1, 8), (1, 5), (1, ABORT)) == ([], 0)
    assert judged(tmp_path / "in order", (1, 5), (1, 8), (1, COMMIT)) == ([], 0)


def test_an_offset_that_is_set_back_outside_of_a_transaction_is_told(tmp_path: Path) -> None:
    figures: dict[str, int | float | str] = {"checked": 0, "unknown": 0}
    steps: tuple[Step, ...] = ((1, 5), (1, COMMIT), 3, (1, 4), (1, COMMIT))
    [note] = went_back([read_group_log(log_of(tmp_path, *steps))], figures)
    assert (note.kind, note.offset) == (Kind.TOLD, 2), "and the transaction after it goes on from there"


def test_after_a_tombstone_a_group_begins_anew_and_over_a_hole_there_may_have_been_one(tmp_path: Path) -> None:
    assert judged(tmp_path / "tombstone", 5, None, 3) == ([], 0)
    assert judged(tmp_path / "hole", 5, "hole", 3) == ([], 1)


def test_records_of_other_types_are_passed_over_and_unreadable_ones_are_holes(tmp_path: Path) -> None:
    other = build_batch([Record(key=bytes.fromhex("0002 0001 67"), value=b"members")], base_offset=1)
    broken = build_batch([Record(key=bytes.fromhex("0001 0009"), value=b"")], base_offset=2)
    told = read_group_log(log_of(tmp_path / "other", 5, more=[other]))
    assert (told.whole, told.holes, told.end) == (True, 0, 2)
    told = read_group_log(log_of(tmp_path / "broken", 5, more=[other, broken]))
    assert (told.whole, told.holes, told.end) == (False, 1, 3)


def test_of_several_replicas_the_longest_is_read(tmp_path: Path) -> None:
    short, long = (read_group_log(log_of(tmp_path / name, *steps)) for name, steps in (("a", (5,)), ("b", (5, 3))))
    best: list[GroupLog] = longest([short, long])
    assert best == [long]


def test_the_audit_judges_offsets_without_any_history(tmp_path: Path) -> None:
    log_of(tmp_path, 5, 3)
    found = run([tmp_path])
    assert found.findings == ()
    assert [(note.rule, note.kind, note.offset) for note in found.notes] == [(WENT_BACK, Kind.TOLD, 1)]
    [verdict] = [verdict for verdict in found.verdicts if verdict.name == WENT_BACK]
    assert verdict.figures == {"checked": 2, "unknown": 0}
