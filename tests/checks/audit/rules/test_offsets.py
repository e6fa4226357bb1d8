"""The fold of committed offsets: transactions count at their markers, a later record wins, what goes back is found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.formats.consumer_offsets import TOPIC, OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.message_set import Message, build_message_set
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos_checks.audit.findings import Kind
from kafka_eos_checks.audit.kernels.coordinators.group_log import read_group_log
from kafka_eos_checks.audit.kernels.logs.transactions import Partition
from kafka_eos_checks.audit.moments import LAG_MS, SKEW_MS, Directory, Moments, Source
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.offsets import (
    BEYOND,
    WENT_BACK,
    Ends,
    GroupLog,
    beyond_the_end,
    follow_group_log,
    went_back,
)
from kafka_eos_checks.audit.rules.transactions.judge import longest
from kafka_eos_checks.audit.segments.contents import Figures, Place
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.kit.verdict import Verdict

from ..kept import as_kept, run

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
    as_kept(found, str(figures))
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
    twice = judged(tmp_path / "later", 5, None, (1, 3), (1, COMMIT), (1, 2), (1, COMMIT))
    assert [record for record, _ in twice[0]] == [4], "the one after the tombstone is not judged by the one before it"


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


# --- offsets beyond the end -------------------------------------------------------------------------------------------


def records_of(folder: Path, count: int, first: int = 0, *, spoilt: bool = False) -> Path:
    """A log of partition t-0 with records at each offset; without records an empty segment that begins at ``first``."""
    path = folder / "t-0" / f"{first:020d}.log"
    batches = [build_batch([Record(value=b"v")], base_offset=first + at).encode() for at in range(count)]
    if spoilt:
        batches[-1] = batches[-1][:-1] + b"?"
    write_segment(path, batches)
    return path


def beyond(folder: Path, **how: Any) -> tuple[list[tuple[int | None, str]], Verdict]:
    """Record and evidence of each finding of the rule, and its verdict."""
    result = run([folder], oracle=1.0, **how)
    assert result.verdicts[-1].ok, "the readable rules find the same"
    [verdict] = [verdict for verdict in result.verdicts if verdict.name == BEYOND]
    return [(found.offset, found.evidence) for found in result.findings if found.rule == BEYOND], verdict


def test_the_last_offset_of_a_group_beyond_the_end_of_its_partition_is_found(tmp_path: Path) -> None:
    log_of(tmp_path, 2, 9, (1, 7), (1, COMMIT))
    records_of(tmp_path, 6)
    found, verdict = beyond(tmp_path, one_moment=True)
    assert found == [(2, "group 'g' has committed offset 7 of t-0, which ends at 6")]
    assert verdict.figures["checked"] == 1, "only the last offset of a group and partition counts"


@pytest.mark.parametrize(
    ("steps", "first", "count", "is_found"),
    [
        ((6,), 0, 6, False),
        ((7,), 0, 6, True),
        (((1, 7), (1, ABORT)), 0, 6, False),
        ((7, None), 0, 6, False),
        ((7,), 7, 0, False),  # retention has deleted all records, and the segment's name tells the end
        ((7,), 6, 0, True),
    ],
)
def test_an_offset_at_the_end_is_none_beyond_it(
    steps: tuple[Step, ...], first: int, count: int, is_found: bool, tmp_path: Path
) -> None:
    log_of(tmp_path, *steps)
    records_of(tmp_path, count, first)
    assert bool(beyond(tmp_path, one_moment=True)[0]) == is_found


@pytest.mark.parametrize("longest", [1, 2])
def test_of_several_replicas_of_a_partition_the_longest_counts(longest: int, tmp_path: Path) -> None:
    log_of(tmp_path / "1", 7)
    records_of(tmp_path / str(longest), 7)
    records_of(tmp_path / str(3 - longest), 5)
    assert beyond(tmp_path, one_moment=True)[0] == []


def test_a_copy_of_a_partition_that_may_be_older_than_the_commit_proves_nothing(tmp_path: Path) -> None:
    log_of(tmp_path, more=[build_batch([record(7)], base_timestamp=1_700_000_000_000)])
    records_of(tmp_path, 6)
    found, verdict = beyond(tmp_path)
    assert (found, verdict.unjudged_for) == ([], {"other-moment": 1})
    assert beyond(tmp_path, one_moment=True)[0] != []


def test_without_a_log_of_its_partition_an_offset_is_left_out(tmp_path: Path) -> None:
    log_of(tmp_path, 7)
    found, verdict = beyond(tmp_path, one_moment=True)
    assert (found, verdict.figures["checked"], verdict.unjudged) == (
        [],
        0,
        "there are no last offsets of groups to look at",
    )


@pytest.mark.parametrize("old", [True, False])
def test_an_end_that_is_damaged_or_of_an_old_format_proves_nothing(old: bool, tmp_path: Path) -> None:
    log_of(tmp_path, 7)
    path = records_of(tmp_path, 6, spoilt=not old)
    if old:
        path.write_bytes(build_message_set([Message(offset=7, value=b"v")]))
    found, verdict = beyond(tmp_path, one_moment=True)
    assert (found, verdict.unknown, verdict.unjudged_for) == ([], 1, {"other-moment": 1})


@pytest.mark.parametrize(
    ("runs", "complete_ms", "kind"),
    [
        (True, SKEW_MS, Kind.VIOLATION),
        (True, SKEW_MS - 1, Kind.TOO_RECENT),  # of a running broker, whose next audit will tell
        (False, SKEW_MS, Kind.VIOLATION),
        (False, SKEW_MS - 1, Kind.NOT_JUDGED),  # a copy, which may be older than that of the offsets
    ],
)
def test_only_a_log_that_is_complete_up_to_a_commit_has_lost_records(
    runs: bool, complete_ms: int, kind: Kind, tmp_path: Path
) -> None:
    log = PartitionLog("b", "t", 0, str(tmp_path / "t-0"), ("0.log",))
    committed_ms = 1_700_000_000_000
    complete_ms += committed_ms
    directory = Directory(read_ms=complete_ms + LAG_MS if runs else None)
    own = Partition(log=log, end=6, stamped_ms=0 if runs else complete_ms)
    moments = Moments(Source(one_moment=False, directories={log.directory: directory}), [own])
    commit = build_batch([record(7)], base_timestamp=committed_ms)
    groups = read_group_log(log_of(tmp_path, more=[commit]))
    counts = {Kind.TOO_RECENT: "recent", Kind.NOT_JUDGED: "unknown"}
    for damaged, standing in ((frozenset[Place](), kind), (frozenset([("t", 0)]), Kind.NOT_JUDGED)):
        figures: Figures = {"checked": 0, "unknown": 0, "recent": 0}
        found = list(beyond_the_end(groups, Ends({("t", 0): own}, damaged, moments), figures))
        assert [each.kind for each in found] == [Kind.VIOLATION] * (standing is Kind.VIOLATION)
        expected = {"checked": 1, "unknown": 0, "recent": 0} | dict.fromkeys([counts.get(standing, "checked")], 1)
        assert figures == expected
