"""The granularities ``transactions`` and ``offsets`` of ``kafka_log`` against a fold over the readable decoder."""

import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_eos.formats import consumer_offsets, transaction_log
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos_checks.audit import source
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.kernels.logs import summary
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.transactions.partitions import read_transactions
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.audit.segments.marks import marks_of
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.audit.tables import folded
from kafka_eos_checks.audit.tables.transaction_rows import TransactionFold
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload

Row = dict[str, Any]
DECISIONS = {ControlType.COMMIT: "commit", ControlType.ABORT: "abort"}


# --- the oracle: batch by batch, by the readable decoder -------------------------------------------------------------


def partition_folders(folder: Path) -> Iterator[Path]:
    yield from sorted({path.parent for path in folder.rglob("*.log") if path.stem.isdecimal()})


def batches_of(partition: Path) -> Iterator[tuple[str, int, RecordBatch]]:
    for segment in sorted(partition.glob("*.log")):
        for item in read_segment(segment):
            if isinstance(item, StoredBatch):
                yield segment.name, item.position, item.batch


def log_of(partition: Path) -> Row:
    topic, _, number = partition.name.rpartition("-")
    return {"broker": partition.parent.name, "topic": topic, "partition": int(number)}


def named_producers(folder: Path) -> Mapping[int, set[str]]:
    found: dict[int, set[str]] = {}
    for partition in partition_folders(folder):
        if log_of(partition)["topic"] == transaction_log.TOPIC:
            for _, _, batch in batches_of(partition):
                for record in () if batch.is_control else batch.records():
                    key = transaction_log.decode_key(record.key or b"")
                    value = transaction_log.decode_value(record.value)
                    if key is not None and value is not None:
                        found.setdefault(value.producer_id, set()).add(key.transactional_id)
    return found


def transactions_in(folder: Path) -> list[Row]:
    """The transactions of all logs below a folder, of logs that begin at offset 0."""
    names = named_producers(folder)
    rows: list[Row] = []
    for partition in partition_folders(folder):
        running: dict[int, list[tuple[str, int, RecordBatch]]] = {}
        ended: list[tuple[int, list[tuple[str, int, RecordBatch]], tuple[str, int, RecordBatch] | None]] = []
        for place in batches_of(partition):
            batch = place[2]
            if batch.is_transactional and batch.is_control:
                ended.append((batch.producer_id, running.pop(batch.producer_id, []), place))
            elif batch.is_transactional:
                running.setdefault(batch.producer_id, []).append(place)
        ended += [(pid, data, None) for pid, data in running.items()]
        for pid, data, end in ended:
            [name] = names.get(pid, {None}) if len(names.get(pid, {None})) == 1 else [None]
            row = {**log_of(partition), "producer_id": pid, "transactional_id": name, **of_data([b for *_, b in data])}
            row |= of_marker(end[2] if end else None, row["first_timestamp"])
            row["segment"], row["position"] = (data[0] if data else end or ("", 0, None))[:2]
            row["empty"], row["starts_before_log"] = not data, False
            rows.append(row)
    return rows


def of_data(data: list[RecordBatch]) -> Row:
    timestamps = [batch.max_timestamp if batch.attributes & 8 else batch.base_timestamp for batch in data[:1]]
    known = data and timestamps[0] != -1 and data[0].delete_horizon_ms is None
    return {
        "producer_epoch": data[0].producer_epoch if data else None,
        "first_offset": data[0].base_offset if data else None,
        "last_offset": max(batch.last_offset for batch in data) if data else None,
        "batches": len(data),
        "records": sum(batch.record_count for batch in data),
        "bytes": sum(batch.size for batch in data),
        "first_timestamp": timestamps[0] if known else None,
        "max_timestamp": max((batch.max_timestamp for batch in data if batch.max_timestamp != -1), default=None),
    }


def of_marker(batch: RecordBatch | None, since: int | None) -> Row:
    told = batch.control_record() if batch else None
    ended = batch.max_timestamp if batch else None
    return {
        "decision": None if batch is None else DECISIONS[told.control_type] if told else "unknown",
        "marker_offset": batch.base_offset if batch else None,
        "marker_timestamp": ended,
        "duration_ms": None if ended is None or since is None else ended - since,
        "marker_producer_epoch": batch.producer_epoch if batch else None,
        "coordinator_epoch": told.coordinator_epoch if told else None,
    }


def offsets_in(folder: Path) -> list[Row]:
    """The committed offsets of all logs below a folder."""
    rows: list[Row] = []
    for partition in partition_folders(folder):
        log = log_of(partition)
        if log.pop("topic") != consumer_offsets.TOPIC:
            continue
        waiting: dict[int, list[Row]] = {}
        for segment, position, batch in batches_of(partition):
            if batch.is_control:
                told = batch.control_record()
                for row in waiting.pop(batch.producer_id, []):
                    row["decision"] = DECISIONS[told.control_type] if told else "unknown"
                continue
            for record in batch.records():
                try:
                    key = consumer_offsets.decode_key(record.key or b"")
                    value = consumer_offsets.decode_value(record.value)
                except consumer_offsets.MalformedOffsetRecord:
                    continue
                if key is None:
                    continue
                row = {
                    "broker": log["broker"],
                    "log_partition": log["partition"],
                    "segment": segment,
                    "position": position,
                    "log_offset": batch.offset(record),
                    "timestamp": batch.timestamp(record),
                    "group": key.group,
                    "topic": key.topic,
                    "partition": key.partition,
                    "offset": value.offset if value else None,
                    "leader_epoch": value.leader_epoch if value else None,
                    "metadata": value.metadata if value else None,
                    "commit_timestamp": value.commit_timestamp_ms if value else None,
                    "tombstone": value is None,
                    "transactional": batch.is_transactional,
                    "producer_id": batch.producer_id,
                    "producer_epoch": batch.producer_epoch,
                    "decision": None,
                }
                rows.append(row)
                if batch.is_transactional:
                    waiting.setdefault(batch.producer_id, []).append(row)
    return rows


ORACLES = {"transactions": transactions_in, "offsets": offsets_in}


def in_order(rows: list[Row]) -> list[list[tuple[str, Any]]]:
    return sorted((sorted(row.items()) for row in rows), key=repr)


def read(granularity: str, folder: Path, names: tuple[str, ...] = (), **options: str) -> list[Row]:
    """The rows of the reader, in this process."""
    wanted = names or tuple(source.SCHEMAS[granularity])
    reader = source.KafkaLogReader(granularity, wanted, {"path": str(folder), **options})
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def on_spark(spark: Any, granularity: str, folder: Path, **options: str) -> list[Row]:
    frame = spark.read.format("kafka_log").option("granularity", granularity).options(**options).load(str(folder))
    return [row.asDict() for row in frame.collect()]


# --- inputs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated cluster with planted violations, some of whose transactions are open; segments of 20,000 bytes."""
    folder = tmp_path_factory.mktemp("cluster")
    workload = Workload(transactions=600, batches=4000, partitions=3, spread=2, clients=8, offset_partitions=2, seed=5)
    Cluster(workload=workload, value_bytes=10, segment_bytes=20_000, faults=2).write(folder)
    return folder


@pytest.fixture
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(CLONE / "checks" / "recordings" / f"{request.param}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


# --- the rows --------------------------------------------------------------------------------------------------------


@pytest.mark.thorough  # that of a recording is quicker
@pytest.mark.spark
@pytest.mark.parametrize("granularity", ORACLES)
def test_spark_gives_the_rows_of_the_readable_fold_of_a_generated_cluster(
    granularity: str, cluster: Path, spark: Any
) -> None:
    found = on_spark(spark, granularity, cluster / "brokers", splitBytes="30000")
    assert in_order(found) == in_order(ORACLES[granularity](cluster / "brokers"))
    decisions = {row["decision"] for row in found}
    assert {"commit", "abort", None} <= decisions


@pytest.mark.spark
@pytest.mark.parametrize("recording", ["applications"], indirect=True)
@pytest.mark.parametrize("granularity", ORACLES)
def test_spark_gives_the_rows_of_the_readable_fold_of_a_recording(
    granularity: str, recording: Path, spark: Any
) -> None:
    expected = in_order(ORACLES[granularity](recording / "brokers"))
    assert len(expected) > 50
    assert in_order(on_spark(spark, granularity, recording / "brokers")) == expected


# Logs of every shape that begin at offset 0; those that do not are below.
SHAPES = (
    "operator-mistakes",
    "three-brokers",
    "healthy/healthy-compaction",
    "healthy/healthy-compacted-coordinators",
    "healthy/healthy-empty-transactions",
    "healthy/healthy-log-append-time",
    "healthy/healthy-new-groups",
    "healthy/healthy-offsets-set-back-3.9",
    "healthy/healthy-open-transactions",
    "healthy/healthy-old-formats-2.8",
)


@pytest.mark.parametrize(
    "recording",
    [pytest.param(name, marks=pytest.mark.thorough) if name == "three-brokers" else name for name in SHAPES],
    indirect=True,
)
def test_rows_are_those_of_the_readable_fold_wherever_chunks_end(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_offsets = any(recording.glob("brokers/*/__consumer_offsets-*"))
    names = [name for name in ORACLES if name != "offsets" or has_offsets]  # without a log of theirs they are refused
    expected = {name: in_order(ORACLES[name](recording / "brokers")) for name in names}
    assert expected["transactions"]
    for batches, size in ((1, 16), (7, 1000), (summary.CHUNK_BATCHES, headers.BLOCK_BYTES)):
        monkeypatch.setattr(summary, "CHUNK_BATCHES", batches)
        monkeypatch.setattr(headers, "BLOCK_BYTES", size)
        for name in names:
            assert in_order(read(name, recording / "brokers")) == expected[name], (name, batches)


def test_the_figures_are_those_of_the_audit(cluster: Path) -> None:
    figures = {verdict.name: verdict.figures for verdict in run([cluster]).verdicts}
    found = read("transactions", cluster / "brokers")
    assert sum(row["decision"] is not None for row in found) == figures["marker without transaction"]["markers"]
    assert sum(row["decision"] is None for row in found) == figures["hanging transaction"]["open"] == 2
    ended = [row for row in found if not row["empty"]]
    assert len(ended) == figures["hanging transaction"]["transactions"]


def test_a_transaction_begins_where_the_rules_of_the_audit_see_it_begin(cluster: Path) -> None:
    found = read("transactions", cluster / "brokers")
    for log in find_logs(cluster / "brokers"):
        known = read_transactions(log)
        rows = [row for row in found if (row["topic"], row["partition"]) == (log.topic, log.partition)]
        ends = {row["marker_offset"]: row["first_offset"] for row in rows if row["decision"]}
        assert ends == {each.offset: each.ends.offset if each.ends else None for each in known.markers}
        is_open = {row["producer_id"]: row["first_offset"] for row in rows if not row["decision"]}
        assert is_open == {pid: data.offset for pid, data in known.open.items()}


# --- logs that start late --------------------------------------------------------------------------------------------


def write_partition(folder: Path, *batches: RecordBatch, base: int = 0) -> None:
    write_segment(folder / f"{base:020d}.log", [batch.encode() for batch in batches])


def data(offset: int, pid: int, epoch: int = 0, count: int = 1, **more: Any) -> RecordBatch:
    records = more.pop("records", None) or [Record(value=b"v")] * count
    return build_batch(
        [replace(record, offset_delta=i) for i, record in enumerate(records)],
        base_offset=offset,
        base_timestamp=1000 + offset,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
        **more,
    )


def marker(offset: int, pid: int, kind: ControlType = ControlType.COMMIT, epoch: int = 0) -> RecordBatch:
    record = ControlRecord(control_type=kind, coordinator_epoch=4)
    return build_control_batch(
        record, base_offset=offset, timestamp=2000 + offset, producer_id=pid, producer_epoch=epoch
    )


def retained(folder: Path) -> tuple[list[Row], list[Row]]:
    """The transactions of a whole generated cluster, and those of the same one after retention."""
    workload = Workload(transactions=300, batches=3000, partitions=3, clients=6, seed=8)
    for name, size in (("whole", 0), ("retained", 30_000)):
        Cluster(workload=workload, value_bytes=10, segment_bytes=8_000, retained_bytes=size).write(folder / name)
    return read("transactions", folder / "whole" / "brokers"), read("transactions", folder / "retained" / "brokers")


def test_a_transaction_that_began_before_the_log_begins_where_it_did_before_retention(tmp_path: Path) -> None:
    whole, left = retained(tmp_path)
    places = {(row["topic"], row["partition"], row["marker_offset"]): row for row in whole}
    cut = [row for row in left if row["starts_before_log"]]
    assert 3 <= len(cut) < len(left) < len(whole)
    for row in left:
        before = places[row["topic"], row["partition"], row["marker_offset"]]
        lost = {"batches", "records", "bytes", "first_timestamp", "duration_ms", "segment", "position", "max_timestamp"}
        same = row.keys() - (lost | {"starts_before_log", "last_offset"} if row["starts_before_log"] else set())
        assert {name: row[name] for name in same} == {name: before[name] for name in same}
        if row["starts_before_log"]:
            assert row["batches"] < before["batches"]
            assert row["first_timestamp"] is row["duration_ms"] is None
            assert row["last_offset"] in {None, before["last_offset"]}
            [partition] = (tmp_path / "retained").rglob(f"{row['topic']}-{row['partition']}")
            own = (place for place in batches_of(partition) if place[2].producer_id == row["producer_id"])
            assert (row["segment"], row["position"]) == next(own)[:2]


@pytest.mark.parametrize("recording", ["healthy/healthy-retention", "healthy/healthy-deleted-records"], indirect=True)
def test_a_retained_log_of_a_real_broker_tells_what_began_before_it(recording: Path) -> None:
    found = read("transactions", recording / "brokers")
    late = [row for row in found if int(min(recording.glob(f"**/{row['topic']}-{row['partition']}/*.log")).stem) > 0]
    assert None not in {row["starts_before_log"] for row in found}
    assert bool(late) == ("retention" in {row["topic"] for row in found})


@pytest.mark.parametrize("damage", ["gone", "malformed"])
def test_without_the_snapshot_of_its_first_segment_a_late_log_does_not_say_what_is_empty(
    damage: str, tmp_path: Path
) -> None:
    _, left = retained(tmp_path)
    folder = tmp_path / "retained" / "brokers"
    for partition in folder.glob("1/generated-*"):
        snapshot = min(partition.glob("*.log")).with_suffix(".snapshot")
        snapshot.unlink() if damage == "gone" else snapshot.write_bytes(b"\0\1")
    found = [row for row in read("transactions", folder) if row["topic"] == "generated"]
    assert {row["starts_before_log"] for row in found} == {None}
    assert {row["empty"] for row in found} == {None, False}
    assert [row["empty"] is None for row in found] == [row["batches"] == 0 for row in found]
    assert len(found) == sum(row["topic"] == "generated" and row["marker_offset"] is not None for row in left)


# --- the cases of transactions that no recording has -----------------------------------------------------------------


def test_epochs_holes_and_delete_horizons_do_not_end_a_transaction(tmp_path: Path) -> None:
    write_partition(
        tmp_path / "orders-0",
        data(0, 7),
        data(1, 9, delete_horizon_ms=5),
        data(10, 7, epoch=1, count=3),
        marker(13, 7, ControlType.ABORT, epoch=2),
        marker(14, 7, ControlType.ABORT, epoch=2),
        marker(15, 9),
    )
    found = sorted(read("transactions", tmp_path), key=lambda row: row["marker_offset"])
    names = ("producer_epoch", "first_offset", "last_offset", "batches", "records", "marker_producer_epoch", "empty")
    assert [tuple(row[name] for name in names) for row in found] == [
        (0, 0, 12, 2, 4, 2, False),
        (None, None, None, 0, 0, 2, True),
        (0, 1, 1, 1, 1, 0, False),
    ]
    assert [(row["first_timestamp"], row["duration_ms"]) for row in found] == [(1000, 1013), (None, None), (None, None)]
    assert in_order(found) == in_order(transactions_in(tmp_path))


def state(name: str, pid: int) -> Record:
    key = transaction_log.TransactionLogKey(transactional_id=name)
    value = transaction_log.TransactionLogValue(
        producer_id=pid,
        producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_status=transaction_log.TransactionState.EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=1,
        transaction_start_timestamp_ms=1,
    )
    return Record(key=key.encode(), value=value.encode())


def test_a_producer_id_of_two_transactional_ids_or_of_none_has_no_name(tmp_path: Path) -> None:
    write_partition(tmp_path / "orders-0", data(0, 7), data(1, 8), data(2, 9), data(3, -1))
    forgotten = Record(key=transaction_log.TransactionLogKey(transactional_id="a").encode(), value=None)
    states = [state("a", 7), state("b", 8), state("b", 7), forgotten]
    write_partition(
        tmp_path / "__transaction_state-0", *(build_batch([each], base_offset=i) for i, each in enumerate(states))
    )
    found = {row["producer_id"]: row["transactional_id"] for row in read("transactions", tmp_path)}
    assert found == {7: None, 8: "b", 9: None, -1: None}
    write_partition(tmp_path / "__transaction_state-1", build_batch([state("c", 9)]))
    assert {row["transactional_id"] for row in read("transactions", tmp_path)} == {None, "b", "c"}


@pytest.mark.parametrize("options", [{"topic": "generated"}, {"topic": "generated", "partition": "1"}])
def test_transactional_ids_are_known_though_other_topics_are_not_asked_for(
    options: Mapping[str, str], cluster: Path
) -> None:
    named = [row for row in read("transactions", cluster / "brokers", **options) if row["transactional_id"]]
    assert len(named) > 50
    wanted = {name: int(value) if name == "partition" else value for name, value in options.items()}
    every = [row for row in read("transactions", cluster / "brokers") if row["transactional_id"]]
    assert in_order(named) == in_order([row for row in every if wanted.items() <= row.items()])


# --- committed offsets -----------------------------------------------------------------------------------------------


def commit(group: str, offset: int | None, version: int = 3, partition: int = 0, **more: Any) -> Record:
    key = consumer_offsets.OffsetCommitKey(group=group, topic="orders", partition=partition).encode()
    if offset is None:
        return Record(key=key, value=None)
    own = {"leader_epoch": 6} if version >= 3 else {}
    value = consumer_offsets.OffsetCommitValue(
        version=version, offset=offset, commit_timestamp_ms=1_700_000_000_000 + offset, **own, **more
    )
    return Record(key=key, value=value.encode())


@pytest.fixture
def commits(tmp_path: Path) -> Path:
    """Values of every version, a tombstone, other records, and transactions that end, end twice, and do not end."""
    plain = [
        *(commit("g", version, version, metadata=text) for version in range(5) for text in ("", "né", "m" * 300)),
        commit("g", 9, 4, tagged_fields=((0, bytes(16)), (300, b"x"))),
        commit("g", None),
        Record(key=b"\0\2group", value=b"member"),
        Record(key=b"\0", value=b"unreadable"),
    ]
    write_partition(
        tmp_path / "__consumer_offsets-3",
        *(build_batch([each], base_offset=i, base_timestamp=5) for i, each in enumerate(plain)),
        data(100, 7, records=[commit("g", 10), commit("h", None, partition=1)]),
        data(102, 8, records=[commit("h", 11)]),
        marker(103, 7, ControlType.ABORT),
        data(104, 7, records=[commit("g", 12)]),
        marker(105, 7),
        marker(106, 8),
        build_batch([commit("g", 14)], base_offset=107, producer_id=7, producer_epoch=0, base_sequence=0),
        data(108, 5, records=[commit("h", 13, partition=1)]),
        marker(109, 7, ControlType.ABORT),
    )
    return tmp_path


def test_committed_offsets_have_every_field_and_the_decision_of_their_transaction(
    commits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = in_order(offsets_in(commits))
    assert len(expected) == 23
    for size in (*range(16, 1000, 60), 1 << 20):
        monkeypatch.setattr(headers, "BLOCK_BYTES", size)
        found = read("offsets", commits)
        assert in_order(found) == expected
    decided = {row["log_offset"]: row["decision"] for row in found if row["transactional"]}
    assert decided == {100: "abort", 101: "abort", 102: "commit", 104: "commit", 108: None}


def test_offsets_of_an_earlier_segment_have_the_decision_of_their_own_marker(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-3"
    write_partition(folder, data(0, 7, records=[commit("g", 1)]), data(1, 8, records=[commit("h", 2)]))
    write_partition(folder, marker(2, 8, ControlType.ABORT), marker(3, 7), base=2)
    found = read("offsets", tmp_path)
    assert {row["group"]: row["decision"] for row in found} == {"g": "commit", "h": "abort"}


def test_topic_and_partition_of_offsets_are_those_that_were_committed(commits: Path) -> None:
    assert {row["log_offset"] for row in read("offsets", commits, partition="1")} == {101, 108}
    assert read("offsets", commits, topic="__consumer_offsets") == []
    assert len(read("offsets", commits, topic="orders")) == 23
    assert {row["log_offset"] for row in read("offsets", commits, producerId="7")} == {100, 101, 104, 107}


# --- how they are read -----------------------------------------------------------------------------------------------


def test_all_splits_of_a_log_go_to_one_task_in_order(cluster: Path) -> None:
    options = {"path": str(cluster / "brokers"), "splitBytes": "5000"}
    tasks = source.KafkaLogReader("transactions", ["producer_id"], options).partitions()
    assert [{split.log for split in task.splits} for task in tasks] == [{log} for log in find_logs(cluster / "brokers")]
    for task in tasks:
        assert [split.number for split in task.splits] == list(range(task.splits[0].count))
    assert max(len(task.splits) for task in tasks) > 3
    assert (
        len(source.KafkaLogReader("transactions", ["producer_id"], options | {"splitBytes": "99999999"}).partitions())
        == 1
    )


def test_what_a_task_keeps_is_what_is_open(cluster: Path) -> None:
    """The state after each chunk has a row for each producer id with an open transaction, and nothing else."""
    for log in find_logs(cluster / "brokers"):
        fold, running, most = TransactionFold(log), set[int](), 0
        for name in log.segments:
            for block in headers.read_blocks(Path(log.folder, name)):
                fold.add(0, block.headers, marks_of(block))
                columns = (block.headers.fields[name].tolist() for name in ("attributes", "producer_id"))
                for attributes, producer_id in zip(*columns, strict=True):
                    if attributes & 0x10:
                        (running.discard if attributes & 0x20 else running.add)(producer_id)
                assert set(fold.open["producer_id"].tolist()) == running
                assert len(fold.open) == len(running)
                most = max(most, len(running))
        assert most <= 8


def test_transactional_ids_are_read_only_where_their_column_is_wanted(
    cluster: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folded, "transactional_ids", lambda *_: pytest.fail("they were read"))
    names = ("first_offset", "topic", "decision")
    assert all(row.keys() == set(names) for row in read("transactions", cluster / "brokers", names))
    with pytest.raises(pytest.fail.Exception, match="they were read"):
        read("transactions", cluster / "brokers", ("transactional_id",))


@pytest.mark.parametrize("granularity", ORACLES)
def test_every_column_can_be_wanted_alone(granularity: str, cluster: Path) -> None:
    whole = read(granularity, cluster / "brokers")
    for name in source.SCHEMAS[granularity]:
        alone = read(granularity, cluster / "brokers", (name,))
        assert sorted(map(repr, alone)) == sorted(repr({name: row[name]}) for row in whole)


@pytest.mark.parametrize("granularity", ORACLES)
@pytest.mark.parametrize("option", ["startingOffset", "endingOffset", "startingTimestamp", "endingTimestamp"])
def test_ranges_are_refused_because_a_transaction_is_told_from_the_start_of_its_log(
    granularity: str, option: str, cluster: Path
) -> None:
    with pytest.raises(ValueError, match=f"option {option} is not for granularity {granularity}"):
        read(granularity, cluster / "brokers", **{option: "5"})


@pytest.mark.spark
@pytest.mark.parametrize("granularity", ORACLES)
def test_a_stream_is_refused_with_what_to_read_instead(
    granularity: str, cluster: Path, spark: Any, tmp_path: Path
) -> None:
    stream = spark.readStream.format("kafka_log").option("granularity", granularity).load(str(cluster / "brokers"))
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    with pytest.raises(Exception, match=f"granularity {granularity} cannot be streamed"):
        writer.start().awaitTermination(60)


def test_every_column_of_a_granularity_is_documented() -> None:
    for granularity in ORACLES:
        text = str(source.__doc__).split(f"\n{granularity}: ")[1].split("\n\noffsets: ")[0]
        missing = [name for name in source.SCHEMAS[granularity] if f"``{name}``" not in text]
        assert missing == ([] if granularity == "offsets" else ["broker", "topic", "partition"])


def test_a_chunk_without_transactions_leaves_the_fold_as_it_is(tmp_path: Path) -> None:
    write_partition(tmp_path / "orders-0", data(0, 7), build_batch([Record(value=b"v")], base_offset=1))
    [log] = find_logs(tmp_path)
    fold = TransactionFold(log, producers=[8])
    for block in headers.read_blocks(tmp_path / "orders-0" / f"{0:020d}.log"):
        assert len(fold.add(0, block.headers, marks_of(block))) == 0
    assert np.array_equal(fold.open["producer_id"], [])
