"""A log that is read in order, chunk by chunk."""

from pathlib import Path

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.audit.kernels.logs.whole import read_in_order
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.segments.splits import PartitionLog


def test_the_holes_of_all_chunks_before_count_for_each_step(tmp_path: Path) -> None:
    bases = (0, 5, 10, 15)
    names = tuple(f"{base:020d}.log" for base in bases)
    for sequence, (base, name) in enumerate(zip(bases, names, strict=True)):
        batch = build_batch(
            [Record(value=b"v")],
            base_offset=base,
            producer_id=7 + sequence,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        write_segment(tmp_path / name, [batch.encode()])
    log = PartitionLog("", "orders", 0, str(tmp_path), names)
    _, parts = read_in_order(log, 0, check_crc=True, high_watermark=-1)
    assert [(part.split, part.steps["holes"].tolist()) for part in parts] == [(n, [n]) for n in range(4)]
