"""The fold of a log's chunks: what it keeps of those before."""

from dataclasses import replace

import pytest

from kafka_eos.formats.segment import CorruptRegion, RegionKind
from kafka_eos_checks.audit.kernels.logs.fold import fold
from kafka_eos_checks.audit.oracle.random_logs import columns_of, summary_of
from kafka_eos_checks.audit.rules.log import Batch
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split

SEGMENT = f"{0:020d}.log"
LOG = PartitionLog("", "orders", 0, "", (SEGMENT,))


@pytest.mark.parametrize("kind", RegionKind)
def test_a_log_is_damaged_by_any_bytes_except_an_unfinished_tail_and_zeroes(kind: RegionKind) -> None:
    batches = columns_of([Batch(0, 0, 0, 7, 0, 0, 0, unsequenced=False)])
    region = CorruptRegion(position=1, end=2, kind=kind, reason="")
    chunk = replace(summary_of(batches, 0, 2), damage=(region,))
    partition = fold(LOG, [Split(LOG, 0, 1, SEGMENT, 0, 2)], [chunk]).partition
    assert partition is not None
    assert partition.damaged is (kind not in {RegionKind.TORN_TAIL, RegionKind.ZEROES})


def test_a_chunk_that_begins_within_its_segment_follows_no_hole() -> None:
    batches = columns_of([Batch(at, at, at, 7, 0, at, at, unsequenced=False) for at in range(2)])
    chunks = [summary_of(batches.take(slice(at, at + 1)), at, at + 1) for at in range(2)]
    audit = fold(LOG, [Split(LOG, 0, 1, SEGMENT, 0, 2)], chunks)
    assert (audit.holes, audit.hole) == (0, None)


@pytest.mark.parametrize(("follow", "damaged"), [(0, True), (1, False)])
def test_the_damaged_end_of_a_chunk_is_that_of_the_log_until_a_batch_follows(follow: int, damaged: bool) -> None:
    batches = columns_of([Batch(at, at, at, 7, 0, at, at, unsequenced=False) for at in range(1 + follow)])
    first = replace(summary_of(batches.take(slice(0, 1)), 0, 1), damaged_end=True)
    second = summary_of(batches.take(slice(1, None)), 1, 2)
    partition = fold(LOG, [Split(LOG, 0, 1, SEGMENT, 0, 2)], [first, second]).partition
    assert partition is not None
    assert partition.damaged_end is damaged
