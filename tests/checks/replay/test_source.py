"""The data source ``kafka_log`` against the readable decoder, and the rules in SQL against the readable rules."""

from pathlib import Path
from typing import Any

import pytest

from kafka_eos.compression import CompressionType
from kafka_eos.record_batch import Record, build_batch
from kafka_eos.segment import StoredBatch, read_segment
from kafka_eos_checks.replay import local, sql
from kafka_eos_checks.replay.splits import find_logs
from kafka_eos_checks.replay.synthetic import faulty_log, write_log, write_segment

pytestmark = pytest.mark.spark


def mixed_segment(folder: Path) -> Path:
    """Five batches, one of them compressed, one with a null value, and a torn tail."""
    path = folder / "orders-2" / f"{0:020d}.log"
    kinds: tuple[dict[str, Any], ...] = (
        {"producer_id": 9, "producer_epoch": 1, "base_sequence": 0},
        {"compression": CompressionType.LZ4},
        {"is_transactional": True, "producer_id": 9, "producer_epoch": 2, "base_sequence": 4},
        {},
    )
    encoded = [
        build_batch(
            [Record(offset_delta=j, key=b"k%d" % j, value=None if j else b"v%d" % i) for j in range(2)],
            base_offset=2 * i,
            base_timestamp=1000 + i,
            **kind,
        ).encode()
        for i, kind in enumerate(kinds)
    ]
    write_segment(path, [*encoded, encoded[0][:70]])
    return path


def test_batches_are_those_of_the_readable_decoder(tmp_path: Path, spark: Any) -> None:
    path = mixed_segment(tmp_path)
    rows = spark.read.format("kafka_log").load(str(tmp_path)).orderBy("position").collect()
    stored = [item for item in read_segment(path) if isinstance(item, StoredBatch)]
    assert len(stored) == 4
    for row, item in zip(rows, stored, strict=True):
        batch = item.batch
        assert (row.topic, row.partition, row.segment, row.position) == ("orders", 2, path.name, item.position)
        assert (row.base_offset, row.last_offset, row.size) == (batch.base_offset, batch.last_offset, batch.size)
        assert (row.producer_id, row.producer_epoch) == (batch.producer_id, batch.producer_epoch)
        assert (row.base_sequence, row.last_sequence) == (batch.base_sequence, batch.last_sequence)
        assert (row.compression, row.transactional) == (batch.compression.name.lower(), batch.is_transactional)
        assert (row.control, row.record_count, row.crc) == (batch.is_control, batch.record_count, batch.crc)


def test_records_are_those_of_the_readable_decoder(tmp_path: Path, spark: Any) -> None:
    path = mixed_segment(tmp_path)
    rows = spark.read.format("kafka_log").option("granularity", "records").load(str(tmp_path)).orderBy("offset")
    expected = [
        (item.batch.offset(record), item.batch.timestamp(record), record.key, record.value)
        for item in read_segment(path)
        if isinstance(item, StoredBatch)
        for record in item.batch.records()
    ]
    found = [(row.offset, row.timestamp, row.key, row.value) for row in rows.collect()]
    assert [(o, t, bytes(k), None if v is None else bytes(v)) for o, t, k, v in found] == expected


def test_corrupt_regions_are_rows(tmp_path: Path, spark: Any) -> None:
    path = mixed_segment(tmp_path)
    [row] = spark.read.format("kafka_log").option("granularity", "corrupt").load(str(tmp_path)).collect()
    assert (row.segment, row.kind, row.end) == (path.name, "torn tail", path.stat().st_size)


def test_sql_sees_the_source_and_a_user_may_name_some_columns(tmp_path: Path, spark: Any) -> None:
    mixed_segment(tmp_path)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log USING kafka_log OPTIONS (path '{tmp_path}', topic 'orders')")
    assert spark.sql("SELECT sum(record_count) FROM log").collect()[0][0] == 8
    some = spark.read.format("kafka_log").schema("base_offset bigint, `partition` int").load(str(tmp_path))
    assert sorted(tuple(row) for row in some.collect()) == [(0, 2), (2, 2), (4, 2), (6, 2)]


def test_several_paths_are_read_in_small_splits(tmp_path: Path, spark: Any) -> None:
    for number in range(2):
        write_log(tmp_path / str(number) / "orders-0", faulty_log(number, 200))
    reader = spark.read.format("kafka_log").option("splitbytes", "4000")
    found = reader.load([str(tmp_path / "0"), str(tmp_path / "1")])
    assert found.count() == 400
    assert found.rdd.getNumPartitions() > 4


def test_nothing_to_read_is_no_row(tmp_path: Path, spark: Any) -> None:
    mixed_segment(tmp_path)
    for option in ({"topic": "another"}, {"partition": "1"}):
        assert spark.read.format("kafka_log").options(**option).load(str(tmp_path)).count() == 0


def test_an_unknown_granularity_is_refused_with_the_known_ones(tmp_path: Path, spark: Any) -> None:
    with pytest.raises(Exception, match="none of batches, records, corrupt"):
        spark.read.format("kafka_log").option("granularity", "bytes").load(str(tmp_path)).collect()


def test_the_rules_in_sql_find_what_the_readable_rules_find(tmp_path: Path, spark: Any) -> None:
    for seed in range(60):
        first = 5 if seed % 3 == 0 else 0
        batches = faulty_log(seed, 60, (0.0, 0.05, 0.2, 0.5)[seed % 4], first)
        write_log(tmp_path / f"{'__consumer_offsets' if seed % 10 == 0 else 'orders'}-{seed}", batches)
    audits = local.audit_logs(find_logs(tmp_path))
    expected = sorted(
        (f.rule, f.partition, f.position, f.offset, f.producer_id, f.producer_epoch, f.base_sequence)
        for audit in audits
        for f in audit.findings
    )
    assert {row[0] for row in expected} == {"order", "stale epoch", "duplicate", "gap"}
    found = sql.violations(spark.read.format("kafka_log").load(str(tmp_path))).collect()
    columns = ("rule", "partition", "position", "base_offset", "producer_id", "producer_epoch", "base_sequence")
    assert sorted(tuple(row[name] for name in columns) for row in found) == expected
