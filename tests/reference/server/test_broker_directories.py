"""The directory of a Kafka broker, or one that a process was killed in, served from now on."""

from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode as E
from kafka_eos.formats.record_batch import Record, RecordBatch, build_batch
from kafka_eos.server.storage import Directory

from .conftest import Make, Wire


def log_of(path: Path, base_offset: int = 0) -> Path:
    return path / "t-0" / f"{base_offset:020}.log"


def leave(make: Make, path: Path, *batches: RecordBatch) -> None:
    """Leave a directory with the topic "t", and these batches in it."""
    wire = make(storage=Directory(path))
    wire.topic()
    wire.cluster.close()
    log_of(path).write_bytes(b"".join(batch.encode() for batch in batches))


def ends(wire: Wire) -> tuple[int, int, int, int]:
    """The first offset of "t", its high watermark, its last stable offset and its end."""
    leader = wire.cluster.topics["t"].partitions[0]
    return leader.log_start_offset, leader.high_watermark, leader.last_stable_offset, leader.log_end_offset


def test_a_log_that_retention_has_emptied_goes_on_where_its_segment_begins(make: Make, tmp_path: Path) -> None:
    """Kafka: LogSegment.readNextOffset."""
    leave(make, tmp_path)
    log_of(tmp_path).rename(log_of(tmp_path, 5))
    wire = make(storage=Directory(tmp_path))
    assert ends(wire) == (5, 5, 5, 5)
    assert wire.produce() == (E.NONE, 5)
    wire.cluster.close()
    assert ends(make(storage=Directory(tmp_path))) == (5, 6, 6, 6)


def test_a_log_ends_where_its_last_segment_begins_if_that_is_empty(make: Make, tmp_path: Path) -> None:
    leave(make, tmp_path, build_batch([Record(value=b"v")], base_offset=3, base_timestamp=1))
    log_of(tmp_path, 7).touch()
    wire = make(storage=Directory(tmp_path))
    assert ends(wire) == (0, 7, 7, 7)
    assert wire.produce() == (E.NONE, 7)
    assert log_of(tmp_path, 7).stat().st_size


def test_a_compacted_log_begins_with_its_segment_and_not_with_its_first_batch(make: Make, tmp_path: Path) -> None:
    """Kafka: LogLoader.load."""
    kept = build_batch([Record(key=b"k", value=b"v")], base_offset=45, base_timestamp=1)
    leave(make, tmp_path, kept)
    wire = make(storage=Directory(tmp_path))
    assert ends(wire) == (0, 46, 46, 46)
    part = wire.fetch(offset=10)
    assert (part["ErrorCode"], part["Records"]) == (E.NONE, kept.encode())


@pytest.mark.parametrize(("start", "stable"), [(1, 3), (4, 7), (7, 7)])
def test_the_last_stable_offset_among_deleted_records_is_that_of_the_next_batch(
    start: int, stable: int, make: Make, tmp_path: Path
) -> None:
    """Kafka: UnifiedLog.maybeIncrementFirstUnstableOffset."""
    rows = [(0, True), (3, False)]  # of an open transaction, and of none; no batch has the other offsets
    batches = [
        build_batch(
            [Record(value=b"v")],
            base_offset=offset,
            base_timestamp=1,
            is_transactional=is_open,
            producer_id=8 if is_open else -1,
            producer_epoch=0 if is_open else -1,
            base_sequence=0 if is_open else -1,
        )
        for offset, is_open in rows
    ]
    leave(make, tmp_path, *batches)
    log_of(tmp_path, 7).touch()
    wire = make(storage=Directory(tmp_path))
    wire.cluster.delete_records(wire.cluster.topics["t"].partitions[0], start)
    assert ends(wire) == (start, 7, stable, 7)
