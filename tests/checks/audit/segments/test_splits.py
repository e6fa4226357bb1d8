"""Splits tile the segments, and the result does not depend on how they are cut."""

import errno
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos_checks.audit.oracle.synthetic import faulty_log, write_log
from kafka_eos_checks.audit.places import LocalFile
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs, plan, ranges_of, tasks


def only_segment(folder: Path) -> Path:
    [segment] = folder.glob("*.log")
    return segment


def test_ranges_tile_a_segment_at_batches_that_the_index_knows(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", faulty_log(1, 2_000))
    segment = only_segment(tmp_path / "orders-0")
    ranges = ranges_of((segment, False), 20_000)
    assert len(ranges) > 4
    assert (ranges[0][0], ranges[-1][1]) == (0, segment.stat().st_size)
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert all(end - start >= 20_000 for start, end in ranges[:-1])


def test_a_segment_without_an_index_is_one_range(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", faulty_log(1, 2_000), index=False)
    assert len(ranges_of((only_segment(tmp_path / "orders-0"), False), 20_000)) == 1


def test_an_index_that_points_between_batches_gives_no_split(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", faulty_log(1, 2_000))
    segment = only_segment(tmp_path / "orders-0")
    entries = np.fromfile(segment.with_suffix(".index"), ">i4").reshape(-1, 2)
    entries[:, 1] += 1
    entries.tofile(segment.with_suffix(".index"))
    assert len(ranges_of((segment, False), 20_000)) == 1


@pytest.mark.parametrize("split_bytes", [5_000, 1 << 20])
def test_the_end_that_a_broker_has_reserved_is_in_no_split(tmp_path: Path, split_bytes: int) -> None:
    """The broker writes into the zeroes while they are read, and cuts them off when it begins another segment."""
    write_log(tmp_path / "orders-0", faulty_log(1, 2_000), segment_batches=1_000)
    first, last = sorted((tmp_path / "orders-0").glob("*.log"))
    size = last.stat().st_size
    for segment in (first, last):
        segment.write_bytes(segment.read_bytes() + bytes(100_000))
    [log] = find_logs(tmp_path)
    assert [log.end_of(name) for name in log.segments] == [None, size]
    splits = plan([log], split_bytes)
    assert splits[-1].end == size
    assert max(split.end for split in splits if split.segment == first.name) == first.stat().st_size, "it is damage"
    *_, batch = [item for item in read_segment(last) if isinstance(item, StoredBatch)]
    whole = last.read_bytes()
    for written in (10, 30, size - 20 - batch.position):
        last.write_bytes(whole[: batch.position + written] + bytes(100_000))
        assert plan(find_logs(tmp_path), split_bytes)[-1].end == batch.position, "the end of a batch is not written"
    changed = bytes([whole[batch.position + 40] ^ 1])
    last.write_bytes(whole[: batch.position + 40] + changed + whole[batch.position + 41 :])
    assert plan(find_logs(tmp_path), split_bytes)[-1].end == len(whole), "a batch that was changed is damage"
    last.write_bytes(last.read_bytes() + b"batch")
    assert plan(find_logs(tmp_path), split_bytes)[-1].end == last.stat().st_size, "no zeroes only"


def test_no_byte_is_taken_for_a_hole_where_the_system_does_not_tell_holes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    (tmp_path / "file").write_bytes(bytes(5_000) + b"x" + bytes(10))
    monkeypatch.setattr(os, "lseek", refuse)
    with (tmp_path / "file").open("rb") as opened:
        file = LocalFile(opened.fileno())
        assert [file.is_zero_from(position) for position in (0, 5_000, 5_001)] == [False, False, True]


@pytest.mark.parametrize("split_bytes", [5_000, 50_000])
def test_the_findings_do_not_depend_on_the_splits(tmp_path: Path, split_bytes: int) -> None:
    for partition in range(3):
        write_log(tmp_path / f"orders-{partition}", faulty_log(partition, 3_000, 0.02), segment_batches=1_400)
    damaged = min((tmp_path / "orders-0").glob("*.log"))
    data = bytearray(damaged.read_bytes())
    data[30_000:30_500] = bytes(500)
    damaged.write_bytes(data)
    logs = find_logs(tmp_path)
    whole, cut = stages.audit_logs(logs, split_bytes=1 << 30), stages.audit_logs(logs, split_bytes=split_bytes)
    assert [audit.findings for audit in cut] == [audit.findings for audit in whole]
    assert [audit.damage for audit in cut] == [audit.damage for audit in whole]
    assert [audit.batches for audit in cut] == [audit.batches for audit in whole]
    assert sum(len(audit.findings) for audit in whole) > 50
    assert [len(audit.damage) for audit in whole] == [1, 0, 0]


def test_logs_of_several_directories_say_whose_they_are(tmp_path: Path) -> None:
    for name in ("a/broker-1", "a/broker-2", "b/broker-2"):
        for partition in range(2):
            write_log(tmp_path / name / f"orders-{partition}", faulty_log(1, 3))
    a, b = tmp_path / "a", tmp_path / "b"
    assert [log.broker for log in find_logs(a)] == ["broker-1"] * 2 + ["broker-2"] * 2
    assert [log.broker for log in find_logs(b)] == [""] * 2
    assert {log.broker for log in find_logs(a, b)} == {"broker-1", str(a / "broker-2"), str(b / "broker-2")}
    assert len(find_logs(a, a, a / "broker-1" / "orders-0")) == 4, "a log that is found twice counts once"
    one, other = find_logs(b / "broker-2" / "orders-0", b / "broker-2" / "orders-1")
    assert (one.partition, other.partition, one.broker) == (0, 1, "")


def test_tasks_hold_every_split_once_and_not_much_more_than_asked_for(tmp_path: Path) -> None:
    for partition in range(5):
        write_log(tmp_path / f"orders-{partition}", faulty_log(partition, 300), segment_batches=40)
    splits = plan(find_logs(tmp_path), 1 << 20)
    grouped = tasks(splits, 10_000)
    assert [split for task in grouped for split in task] == splits
    assert 1 < len(grouped) < len(splits)
    assert all(len(task) == 1 or sum(split.size for split in task) <= 10_000 for task in grouped)


def test_a_log_ends_where_its_last_segment_begins_if_retention_left_no_batch_in_it() -> None:
    log = PartitionLog("", "orders", 0, "orders-0", (f"{0:020d}.log", f"{100:020d}.log"))
    assert (log.end_after(40), log.end_after(140)) == (100, 140)
    assert PartitionLog("", "orders", 0, "orders-0", ()).end_after(0) == 0
