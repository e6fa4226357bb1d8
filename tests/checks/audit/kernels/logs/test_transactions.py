"""The facts of a whole log, folded from those of its chunks."""

from pathlib import Path

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.audit.kernels.logs.runs import columns_of, runs_of
from kafka_eos_checks.audit.kernels.logs.transactions import NO_TIME, PartitionFold, Transactional, _rows_of_steps
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.segments.headers import read_blocks
from kafka_eos_checks.audit.segments.splits import PartitionLog

LOG = PartitionLog("", "orders", 0, "", ("segment",))


def test_data_right_after_data_of_the_same_producer_and_epoch_is_no_step(tmp_path: Path) -> None:
    path = tmp_path / "orders-0" / f"{0:020d}.log"
    batches = [
        build_batch(
            [Record(value=b"v")],
            base_offset=at,
            producer_id=7,
            producer_epoch=epoch,
            base_sequence=at,
            is_transactional=True,
        )
        for at, epoch in enumerate((0, 1, 1, 0, 0, 2))
    ]
    write_segment(path, [batch.encode() for batch in batches])
    [block] = read_blocks(path, 0, path.stat().st_size)
    columns = columns_of(block.headers)
    assert _rows_of_steps(block.headers, columns, runs_of(columns)).tolist() == [0, 1, 3, 5]


def test_a_hole_between_two_chunks_is_told_with_those_inside() -> None:
    fold = PartitionFold(LOG, LOG.segments)
    for number, (offsets, inside) in enumerate([((0, 3), ()), ((3, 5), ()), ((7, 12), (9,)), ((14, 15), ())]):
        fold.add((0, number), Transactional(), offsets, holes=0, before=0, disordered=False, hole_starts=inside)
    assert fold.partition().hole_starts == (5, 9, 12)


def test_the_last_marker_below_the_high_watermark_is_that_of_the_last_chunk_with_one() -> None:
    fold = PartitionFold(LOG, LOG.segments)
    for number, marked_ms in enumerate((NO_TIME, 5, 9, NO_TIME)):
        told, offsets = Transactional(marked_ms=marked_ms), (number, number + 1)
        fold.add((0, number), told, offsets, holes=0, before=0, disordered=False)
    assert fold.partition().stamped_before(4) == 9


def test_a_log_begins_with_its_first_chunk() -> None:
    fold = PartitionFold(LOG, LOG.segments)
    for number in range(2):
        told, offsets = Transactional(begins_ms=5 + number, begins_epoch=3 + number), (number, number + 1)
        fold.add((0, number), told, offsets, holes=0, before=0, disordered=False)
    whole = fold.partition()
    assert (whole.start, whole.begins_ms, whole.begins_epoch, whole.end) == (0, 5, 3, 2)
