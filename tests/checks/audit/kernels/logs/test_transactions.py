"""The facts of a whole log, folded from those of its chunks."""

from kafka_eos_checks.audit.kernels.logs.transactions import NO_TIME, PartitionFold, Transactional
from kafka_eos_checks.audit.segments.splits import PartitionLog

LOG = PartitionLog("", "orders", 0, "", ("segment",))


def test_the_last_marker_below_the_high_watermark_is_that_of_the_last_chunk_with_one() -> None:
    fold = PartitionFold(LOG, LOG.segments)
    for number, marked_ms in enumerate((NO_TIME, 5, 9, NO_TIME)):
        told, offsets = Transactional(marked_ms=marked_ms), (number, number + 1)
        fold.add((0, number), told, offsets, holes=0, before=0, disordered=False)
    assert fold.partition().stamped_before(4) == 9
