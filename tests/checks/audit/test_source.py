"""The data source ``kafka_log`` against the readable decoder, and the rules in SQL against the readable rules."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.log_directory import NotALogDirectory
from kafka_eos.formats.record_batch import Record, TimestampType, build_batch
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos_checks import cli
from kafka_eos_checks.audit import source
from kafka_eos_checks.audit.oracle.synthetic import faulty_log, write_log, write_segment
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.rules.log import LOG_RULES
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.audit.tables import sql


def mixed_segment(folder: Path) -> Path:
    """Four batches, one of them compressed, each with a null value, one with an empty key and value; a torn tail."""
    path = folder / "orders-2" / f"{0:020d}.log"
    kinds: tuple[dict[str, Any], ...] = (
        {"producer_id": 9, "producer_epoch": 1, "base_sequence": 0},
        {"compression": CompressionType.LZ4},
        {"is_transactional": True, "producer_id": 9, "producer_epoch": 2, "base_sequence": 4},
        {},
    )
    encoded = [
        build_batch(
            [
                Record(offset_delta=0, key=b"k0" if i else b"", value=b"v%d" % i if i else b""),
                Record(offset_delta=1, key=b"k1", value=None),
            ],
            base_offset=2 * i,
            base_timestamp=1000 + i,
            **kind,
        ).encode()
        for i, kind in enumerate(kinds)
    ]
    write_segment(path, [*encoded, encoded[0][:70]])
    return path


@pytest.mark.spark
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


@pytest.mark.spark
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


@pytest.mark.spark
def test_corrupt_regions_are_rows(tmp_path: Path, spark: Any) -> None:
    path = mixed_segment(tmp_path)
    [row] = spark.read.format("kafka_log").option("granularity", "corrupt").load(str(tmp_path)).collect()
    assert (row.segment, row.kind, row.end) == (path.name, "torn tail", path.stat().st_size)


@pytest.mark.spark
def test_sql_sees_the_source_and_a_user_may_name_some_columns(tmp_path: Path, spark: Any) -> None:
    mixed_segment(tmp_path)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW log USING kafka_log OPTIONS (path '{tmp_path}', topic 'orders')")
    assert spark.sql("SELECT sum(record_count) FROM log").collect()[0][0] == 8
    some = spark.read.format("kafka_log").schema("base_offset bigint, `partition` int").load(str(tmp_path))
    assert sorted(tuple(row) for row in some.collect()) == [(0, 2), (2, 2), (4, 2), (6, 2)]


@pytest.mark.spark
def test_several_paths_are_read_in_small_splits(tmp_path: Path, spark: Any) -> None:
    for number in range(2):
        write_log(tmp_path / str(number) / "orders-0", faulty_log(number, 200))
    reader = spark.read.format("kafka_log").option("splitbytes", "4000")
    found = reader.load([str(tmp_path / "0"), str(tmp_path / "1")])
    assert found.count() == 400
    assert found.rdd.getNumPartitions() > 4


@pytest.mark.spark
def test_the_broker_is_the_name_of_the_log_directory(tmp_path: Path, spark: Any) -> None:
    for broker in ("east/broker-1", "east/broker-2", "west/broker-1"):
        write_log(tmp_path / broker / "orders-0", faulty_log(1, 50))

    def brokers(*paths: str) -> list[str]:
        frame = spark.read.format("kafka_log").load([str(tmp_path / path) for path in paths])
        return sorted(row[0] for row in frame.select("broker").distinct().collect())

    assert brokers("east") == ["broker-1", "broker-2"]
    assert brokers("east/broker-1", "east/broker-2") == ["broker-1", "broker-2"]
    assert brokers("east/broker-2") == brokers("east/broker-2/orders-0") == ["broker-2"]
    assert brokers("east/broker-1", "west/broker-1") == [str(tmp_path / name / "broker-1") for name in ("east", "west")]


@pytest.mark.parametrize("granularity", ["batches", "records", "corrupt", "transactions"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "odrers"}, "no log of topic 'odrers' at the given paths; did you mean orders?"),
        ({"topic": "x"}, "no log of topic 'x' at the given paths; there is orders"),
        (
            {"topic": "orders", "partition": "1"},
            "no log of partition 1 of topic 'orders' at the given paths; there is 2",
        ),
        ({"partition": "1"}, "no log of partition 1 at the given paths; there is 2"),
    ],
)
def test_a_topic_or_partition_that_is_not_there_is_refused(
    options: dict[str, str], said: str, granularity: str, tmp_path: Path
) -> None:
    mixed_segment(tmp_path)
    reader = source.KafkaLogReader(granularity, [], {"path": str(tmp_path), **options})
    with pytest.raises(ValueError, match=re.escape(f"kafka_log: {said}")):
        reader.partitions()


def test_an_error_names_some_of_very_many_topics(tmp_path: Path) -> None:
    for number in range(12):
        write_log(tmp_path / f"topic{number:02}-0", faulty_log(1, 5))
    with pytest.raises(ValueError, match=r"there is topic00, .*, topic09, …$"):
        source.KafkaLogReader("batches", [], {"path": str(tmp_path), "topic": "x"}).partitions()


@pytest.mark.spark
def test_committed_offsets_of_an_unknown_topic_and_a_condition_that_nothing_meets_have_no_row(
    tmp_path: Path, spark: Any
) -> None:
    mixed_segment(tmp_path)
    reader = source.KafkaLogReader("offsets", [], {"path": str(tmp_path), "topic": "x"})
    with pytest.raises(ValueError, match=r"no log of topic '__consumer_offsets' at the given paths; there is orders$"):
        reader.partitions()
    (tmp_path / "__consumer_offsets-0").mkdir()
    (tmp_path / "__consumer_offsets-0" / f"{0:020}.log").touch()
    assert reader.partitions() == []
    assert spark.read.format("kafka_log").load(str(tmp_path)).where("topic = 'x'").count() == 0


def test_a_stream_waits_for_a_topic_that_is_not_there_yet(tmp_path: Path) -> None:
    mixed_segment(tmp_path)
    reader = source.KafkaLogStreamReader(source.KafkaLogReader("batches", [], {"path": str(tmp_path), "topic": "x"}))
    assert reader.latestOffset() == {}
    assert reader.partitions({}, {}) == []


def test_a_stream_waits_for_the_end_of_a_batch_that_is_written_into_reserved_zeroes(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", faulty_log(1, 100))
    [path] = (tmp_path / "orders-0").glob("*.log")
    whole = path.read_bytes()
    positions = [item.position for item in read_segment(path) if isinstance(item, StoredBatch)]
    reader = source.KafkaLogStreamReader(source.KafkaLogReader("batches", ["position"], {"path": str(tmp_path)}))
    start, found = dict[str, int](), list[int]()
    for end in (positions[40] + 62, positions[70] + 30, len(whole)):
        path.write_bytes(whole[:end] + bytes(100_000))
        now = reader.latestOffset()
        tables = (table for task in reader.partitions(start, now) for table in reader.read(task))
        found += [at for table in tables for at in table["position"].to_pylist()]
        start = now
    assert found == positions


@pytest.mark.spark
def test_a_pattern_is_the_paths_that_match_it_and_a_path_of_that_name_is_itself(tmp_path: Path, spark: Any) -> None:
    for broker in ("broker-1", "broker-2", "other"):
        write_log(tmp_path / broker / "orders-0", faulty_log(1, 50))
    read = spark.read.format("kafka_log")
    for pattern in ("broker-*", "broker-*/", "broker-[12]", "broker-?"):
        for start in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
            assert read.load(f"{start}/{pattern}").count() == 100, (start, pattern)
    with pytest.raises(Exception, match=r"kafka_log: nothing matches .*/broker-3"):
        read.load(f"{tmp_path}/broker-3*").count()
    (tmp_path / "broker-1").rename(tmp_path / "broker-[2]")
    assert {row.broker for row in read.load(f"{tmp_path}/broker-[2]").collect()} == {"broker-[2]"}


@pytest.mark.parametrize("granularity", sorted(source.SCHEMAS))
@pytest.mark.parametrize("left_out", ["deep", "partition", "segment", "broker", "brokers"])
def test_logs_that_would_be_left_out_are_refused(left_out: str, granularity: str, tmp_path: Path) -> None:
    for name in ("__consumer_offsets-0", "orders-0"):
        write_log(tmp_path / "logs" / "1" / name, faulty_log(1, 5))
    other = tmp_path / "elsewhere" / "orders-1"
    write_log(other, faulty_log(1, 5))
    where, target = {
        "deep": ("2/below", None),
        "partition": ("1/orders-1", other),
        "segment": (f"1/orders-0/{9:020}.log", next(other.glob("*.log"))),
        "broker": ("2", other.parent),
        "brokers": ("2", tmp_path / "several"),
    }[left_out]
    if left_out == "brokers":
        shutil.copytree(other, tmp_path / "several" / "2" / "orders-1")
    link = tmp_path / "logs" / where
    if target is None:
        shutil.copytree(other, link / "orders-1")
    else:
        link.symlink_to(target)

    def tasks(*more: Path) -> int:
        paths = json.dumps([str(path) for path in (tmp_path / "logs", *more)])
        return len(source.KafkaLogReader(granularity, [], {"paths": paths, "splitbytes": "1"}).partitions())

    words = "lies too deep" if target is None else "is a symbolic link, which is not followed"
    with pytest.raises(ValueError, match=rf"kafka_log: {re.escape(str(link))} .*{words}"):
        tasks()
    if left_out != "segment":
        given = {"deep": link, "brokers": tmp_path / "several"}.get(left_out, other.parent)
        assert tasks(given) == (1 if granularity == "offsets" else 3)


def test_a_segment_in_the_place_of_a_directory_is_told_as_a_file(tmp_path: Path) -> None:
    path = mixed_segment(tmp_path)
    with pytest.raises(NotALogDirectory, match="a file, and no directory"):
        source.KafkaLogReader("batches", [], {"path": str(path)}).partitions()


@pytest.mark.spark
def test_a_wrong_path_is_told_in_one_line_if_the_session_hides_tracebacks(tmp_path: Path, spark: Any) -> None:
    hidden = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"
    assert hidden in source.__doc__
    spark.conf.set(hidden, True)
    try:
        with pytest.raises(Exception, match="no such file or directory; give a broker's") as told:
            spark.read.format("kafka_log").load(str(tmp_path / "nowhere")).count()
    finally:
        spark.conf.unset(hidden)
    first, *_ = str(told.value).splitlines()
    assert first.endswith("nowhere: no such file or directory; give a broker's log.dirs or a copy of it")
    assert "Traceback" not in str(told.value)


@pytest.mark.spark
def test_an_unknown_granularity_is_refused_with_the_known_ones(tmp_path: Path, spark: Any) -> None:
    with pytest.raises(Exception, match="none of batches, records, corrupt"):
        spark.read.format("kafka_log").option("granularity", "bytes").load(str(tmp_path)).collect()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("startingofset", "5", "unknown option startingofset; did you mean startingOffset?"),
        ("bootstrap", "h:9092", "unknown option bootstrap; there are path, granularity, topic"),
        ("crc", "no", "option crc is 'no', neither true nor false"),
        ("pushdown", "true", "unknown option pushdown; there are path, granularity, topic"),
        ("splitBytes", "4k", "option splitbytes is '4k', not a number of bytes"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(
    option: str, value: str, said: str, tmp_path: Path, spark: Any
) -> None:
    mixed_segment(tmp_path)
    with pytest.raises(Exception, match=re.escape(f"kafka_log: {said}")):
        spark.read.format("kafka_log").option(option, value).load(str(tmp_path)).collect()


def test_every_option_is_one_that_the_module_documents() -> None:
    documented = str(source.__doc__).split("=====\n")[1].splitlines()
    assert ["path", *(line.split()[0] for line in documented if line[0] not in " =")] == list(source.OPTIONS)


# What a person runs as /path/to/venv/bin/python program.py, with another python3 on the path.
PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark_kafkalog import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
before = spark.sparkContext.pythonExec
register(spark)
assert spark.sparkContext.pythonExec == before
print("batches:", spark.read.format("kafka_log").load(sys.argv[1]).count())
query = spark.readStream.format("kafka_log").load(sys.argv[1]).writeStream.format("noop")
query = query.option("checkpointLocation", sys.argv[2]).trigger(availableNow=True).start()
print("stream:", query.awaitTermination(60) and query.lastProgress["numInputRows"])
"""


@pytest.mark.spark
@pytest.mark.thorough
def test_a_registered_source_is_read_by_the_python_of_a_program_in_no_activated_environment(tmp_path: Path) -> None:
    write_log(tmp_path / "data" / "orders-0", faulty_log(1, 50, 0.0))
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'the wrong python3' >&2\nexit 1\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["PATH"] = f"{other.parent}:{os.environ['PATH']}"
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "data"), str(tmp_path / "checkpoint")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "batches: 50\n" in done.stdout
    assert "stream: 50\n" in done.stdout


@pytest.mark.spark
def test_tables_of_headers_are_for_sparks_own_reader(tmp_path: Path, spark: Any) -> None:
    write_log(tmp_path / "data" / "orders-0", faulty_log(1, 50, 0.0))
    assert cli.main(["headers", str(tmp_path / "data"), "--out", str(tmp_path / "tables")]) == 0
    own = r"read them by format 'parquet' with option pathGlobFilter='\*.headers.parquet'"
    with pytest.raises(Exception, match=own):
        spark.read.format("kafka_log").load(str(tmp_path / "tables")).collect()
    read = spark.read.option("pathGlobFilter", "*.headers.parquet")  # next to them are copies of indexes and snapshots
    assert read.parquet(str(tmp_path / "tables" / "orders-0")).count() == 50


@pytest.fixture
def compiling(spark: Any) -> Iterator[Any]:
    """The session with generated code, which long expressions over thousands of rows are worth."""
    switched = {
        f"spark.sql.codegen.{name}": spark.conf.get(f"spark.sql.codegen.{name}")
        for name in ("wholeStage", "factoryMode")
    }
    for name in switched:
        spark.conf.unset(name)
    yield spark
    for name, value in switched.items():
        spark.conf.set(name, value)


@pytest.mark.spark
@pytest.mark.thorough
def test_the_rules_in_sql_find_what_the_readable_rules_find(tmp_path: Path, compiling: Any) -> None:
    for seed in range(60):
        first = 5 if seed % 3 == 0 else 0
        batches = faulty_log(seed, 60, (0.0, 0.05, 0.2, 0.5)[seed % 4], first, transactions=seed % 3 < 2)
        folder = tmp_path / f"{'__consumer_offsets' if seed % 10 == 0 else 'orders'}-{seed}"
        write_log(folder, batches, segment_batches=20 if seed % 5 == 0 else 1 << 30)
        if seed % 15 == 0:
            last = max(folder.glob("*.log"))
            last.rename(last.with_name(f"{int(last.stem) - 3 + seed % 2 * 6:020}.log"))
    for first, offsets in ((0, (0, 1, 9)), (5, (5, 6))):  # the last batch of a segment belongs behind the next one
        encoded = [build_batch([Record(value=b"v")], base_offset=offset).encode() for offset in offsets]
        write_segment(tmp_path / "orders-99" / f"{first:020d}.log", encoded)
    audits = stages.audit_logs(find_logs(tmp_path))
    expected = sorted(
        (f.rule, f.partition, f.position, f.offset, f.producer_id, f.producer_epoch, f.base_sequence)
        for audit in audits
        for f in audit.findings
        if f.is_violation
    )
    assert {row[0] for row in expected} == set(LOG_RULES)
    assert any("segment's range" in f.evidence for audit in audits for f in audit.findings)
    batches = compiling.read.format("kafka_log").load(str(tmp_path)).cache()  # the query names them a dozen times
    found = sql.violations(batches).collect()
    columns = ("rule", "partition", "position", "base_offset", "producer_id", "producer_epoch", "base_sequence")
    assert sorted(tuple(row[name] for name in columns) for row in found) == expected


# --- what is wanted of it --------------------------------------------------------------------------------------------


def long_log(folder: Path) -> None:
    """Two producers in turn, three records a batch, a segment for ten batches; times grow by a second a batch."""
    for start in range(0, 40, 10):
        encoded = [
            build_batch(
                [Record(offset_delta=j, timestamp_delta=10 * j, value=b"v") for j in range(3)],
                base_offset=3 * i,
                base_timestamp=1000 * i,
                producer_id=7 + i % 2,
                producer_epoch=0,
                base_sequence=3 * (i // 2),
            ).encode()
            for i in range(start, start + 10)
        ]
        write_segment(folder / "orders-0" / f"{3 * start:020d}.log", encoded)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "batches", "offsets"),
    [
        ({}, range(40), range(120)),
        ({"startingOffset": "31", "endingOffset": "62"}, range(10, 21), range(31, 62)),
        ({"startingTimestamp": "5010", "endingTimestamp": "7010"}, range(5, 8), range(16, 22)),
        ({"producerId": "8"}, range(1, 40, 2), [o for o in range(120) if o // 3 % 2]),
        ({"producerId": "8", "startingOffset": "0", "endingOffset": "6"}, [1], [3, 4, 5]),
        ({"startingOffset": "500"}, [], []),
    ],
)
def test_ranges_and_producers_choose_batches_and_records(
    options: dict[str, str], batches: Any, offsets: Any, tmp_path: Path, spark: Any
) -> None:
    long_log(tmp_path)
    names = {"batches": "base_offset bigint", "records": "`offset` bigint"}
    found = {
        granularity: sorted(
            row[0]
            for row in spark.read.format("kafka_log").schema(column).options(**options)
            .option("granularity", granularity).load(str(tmp_path)).collect()
        )
        for granularity, column in names.items()
    }  # fmt: skip
    assert found == {"batches": [3 * i for i in batches], "records": list(offsets)}


@pytest.mark.parametrize("what", ["offset", "timestamp"])
@pytest.mark.parametrize("end", ["10", "5"])
def test_a_range_with_nothing_in_it_is_refused(end: str, what: str, tmp_path: Path) -> None:
    options = {"path": str(tmp_path), f"starting{what}": "10", f"ending{what}": end}
    with pytest.raises(
        ValueError, match=f"option ending{what} {end} is not above starting{what} 10: nothing is in between"
    ):
        source.KafkaLogReader("batches", [], options)


def test_a_batch_whose_base_timestamp_is_later_than_its_records_is_chosen_by_their_time(tmp_path: Path) -> None:
    later = {
        "append_time": {"base_timestamp": 9000, "max_timestamp": 1000, "timestamp_type": TimestampType.LOG_APPEND_TIME},
        "horizon": {"delete_horizon_ms": 9000, "max_timestamp": 1000},
    }
    record = Record(offset_delta=0, timestamp_delta=-8000, key=b"k", value=b"v")
    encoded = [build_batch([record], base_offset=i, **kind).encode() for i, kind in enumerate(later.values())]
    write_segment(tmp_path / "orders-0" / f"{0:020d}.log", encoded)
    for granularity in ("batches", "records"):
        for end, count in (("1000", 0), ("1001", 2)):
            options = {"path": str(tmp_path), "endingTimestamp": end}
            reader = source.KafkaLogReader(granularity, ["position"], options)
            assert sum(len(rows) for task in reader.partitions() for rows in reader.read(task)) == count


@pytest.mark.spark
def test_an_option_that_is_no_number_is_refused(tmp_path: Path, spark: Any) -> None:
    long_log(tmp_path)
    with pytest.raises(Exception, match="startingoffset is 'x', not a whole number"):
        spark.read.format("kafka_log").option("startingOffset", "x").load(str(tmp_path)).collect()


@pytest.mark.spark
@pytest.mark.parametrize("granularity", ["batches", "records"])
def test_a_query_has_all_rows_whatever_another_query_of_the_same_view_has_asked_for(
    granularity: str, tmp_path: Path, spark: Any
) -> None:
    long_log(tmp_path)
    setting = "spark.sql.python.filterPushdown.enabled"
    column = "base_offset" if granularity == "batches" else "`offset`"
    spark.conf.set(setting, "true")
    try:
        rows = spark.read.format("kafka_log").option("granularity", granularity).load(str(tmp_path))
        whole = rows.count()
        few = rows.where(f"{column} >= 90").count()
        assert 0 < few < whole == rows.count()
        assert rows.where(f"{column} >= 90").unionAll(rows.where(f"{column} < 90")).count() == whole
    finally:
        spark.conf.unset(setting)


@pytest.mark.spark
def test_a_view_keeps_the_plan_of_its_first_query_as_one_of_parquet_files_does_until_it_is_refreshed(
    tmp_path: Path, spark: Any
) -> None:
    def add(number: int) -> None:
        batch = build_batch([Record()], base_offset=number).encode()
        write_segment(tmp_path / "logs" / "t-0" / f"{number:020d}.log", [batch])
        spark.range(1).write.mode("append").parquet(str(tmp_path / "files"))

    def make(view: str, source: str, path: str) -> None:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {view} USING {source} OPTIONS (path '{tmp_path / path}')")

    def counts() -> list[int]:
        return [spark.table(view).count() for view in ("growing_log", "growing_files")]

    add(0)
    make("growing_log", "kafka_log", "logs")
    make("growing_files", "parquet", "files")
    assert counts() == [1, 1]
    add(1)
    assert counts() == [1, 1]
    for view in ("growing_log", "growing_files"):
        spark.sql(f"REFRESH TABLE {view}")
    assert counts() == [1, 2]
    make("growing_log", "kafka_log", "logs")
    assert counts() == [2, 2]


# --- growing segments ------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_a_stream_has_every_batch_once_and_waits_for_half_ones(tmp_path: Path, spark: Any) -> None:
    long_log(tmp_path / "made")
    segments = sorted((tmp_path / "made" / "orders-0").glob("*.log"))
    growing = tmp_path / "data" / "orders-0"
    growing.mkdir(parents=True)
    seen: list[int] = []
    stream = spark.readStream.format("kafka_log").schema("base_offset bigint").load(str(growing))

    def run() -> int:
        """Read all rows that are there now, from the checkpoint of the run before."""

        def take(rows: Any, _: int) -> None:
            seen.extend(row[0] for row in rows.collect())

        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        before = len(seen)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(60)
        return len(seen) - before

    first, second = segments[0].read_bytes(), segments[1].read_bytes()
    third = len(first) // 10
    (growing / segments[0].name).write_bytes(first[: 4 * third + 30])
    assert run() == 4
    (growing / segments[0].name).write_bytes(first)
    (growing / segments[1].name).write_bytes(second[: third + 70])
    assert run() == 7
    (growing / segments[1].name).write_bytes(second)
    assert run() == 9
    assert seen == [3 * i for i in range(20)]


def test_a_column_that_the_granularity_has_not_or_not_of_this_type_is_named() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    reading = source.KafkaLogSource({"granularity": "batches"})
    known = types.StructType([types.StructField("base_offset", types.LongType())])
    assert reading._names(known) == ["base_offset"]
    for name, kind in (("base_offset", types.StringType()), ("offset_of_base", types.LongType())):
        with pytest.raises(
            ValueError, match=f"no column {name} {kind.simpleString()} at granularity batches; there are"
        ):
            reading._names(types.StructType([types.StructField(name, kind)]))
