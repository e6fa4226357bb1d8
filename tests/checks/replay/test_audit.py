"""The audit from files to findings, in this process and on Spark."""

from pathlib import Path
from typing import Any

import pytest

from kafka_eos_checks.replay import local
from kafka_eos_checks.replay import spark as engine
from kafka_eos_checks.replay.rules import DUPLICATE, Batch
from kafka_eos_checks.replay.splits import PartitionLog, find_logs
from kafka_eos_checks.replay.synthetic import faulty_log, write_log


def log_of(folder: Path, batches: list[Batch], partition: int = 0, **how: Any) -> PartitionLog:
    path = folder / f"orders-{partition}"
    write_log(path, batches, **how)
    [log] = find_logs(path)
    return log


def empty_log(folder: Path, partition: int) -> PartitionLog:
    path = folder / f"orders-{partition}" / f"{0:020d}.log"
    path.parent.mkdir()
    path.touch()
    [log] = find_logs(path.parent)
    return log


def clean(count: int) -> list[Batch]:
    return [Batch(i, i, i, 7, 0, i, i, control=False) for i in range(count)]


def with_a_duplicate() -> list[Batch]:
    return [*clean(500), Batch(0, 500, 500, 7, 0, 499, 499, control=False)]


def test_a_clean_log_has_no_finding(tmp_path: Path) -> None:
    [audit] = local.audit_logs([log_of(tmp_path, clean(500))])
    assert (audit.findings, audit.batches, audit.records, audit.markers) == ((), 500, 500, 0)


def test_a_duplicate_is_found_with_file_position_offset_and_producer(tmp_path: Path) -> None:
    log = log_of(tmp_path, with_a_duplicate())
    [audit] = local.audit_logs([log])
    [finding] = audit.findings
    assert (finding.rule, finding.topic, finding.partition, finding.offset) == (DUPLICATE, "orders", 0, 500)
    assert (finding.producer_id, finding.producer_epoch, finding.base_sequence) == (7, 0, 499)
    assert finding.position is not None
    data = (Path(log.folder) / finding.file).read_bytes()
    assert int.from_bytes(data[finding.position : finding.position + 8], "big") == 500


@pytest.mark.spark
def test_spark_finds_what_the_local_engine_finds(tmp_path: Path, spark: Any) -> None:
    logs = [log_of(tmp_path, faulty_log(k, 400, 0.05), k, segment_batches=150) for k in range(3)]
    logs += [log_of(tmp_path, with_a_duplicate(), 3), empty_log(tmp_path, 4)]
    expected = local.audit_logs(logs, split_bytes=20_000)
    assert sum(len(audit.findings) for audit in expected) > 20
    assert engine.audit_logs(logs, spark=spark, split_bytes=20_000) == expected
