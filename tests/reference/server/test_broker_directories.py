"""The directory of a Kafka broker, or one that a process was killed in, served from now on."""

import gc
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos.errors import ErrorCode as E
from kafka_eos.formats.record_batch import Record, RecordBatch, build_batch
from kafka_eos.formats.transaction_log import TransactionLogKey, TransactionLogValue, TransactionState
from kafka_eos.server.cluster import CONSUMER_OFFSETS, METADATA_TOPIC, TRANSACTION_STATE
from kafka_eos.server.storage import DamagedLog, Directory, Recovered
from kafka_eos.server.transactions import PRODUCER_ID_BLOCK

from .conftest import NOW, Make, Wire


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


def test_a_marker_that_the_cleaner_has_emptied_ends_nothing(make: Make, tmp_path: Path) -> None:
    """Kafka: ProducerAppendInfo.append."""
    emptied = build_batch(
        [], base_offset=4, base_timestamp=1, max_timestamp=1, last_offset_delta=0, is_control=True,
        is_transactional=True, producer_id=7, producer_epoch=0,
    )  # fmt: skip
    leave(make, tmp_path, emptied)
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        (tmp_path / f"{topic}-0" / f"{0:020}.log").write_bytes(emptied.encode())
    wire = make(storage=Directory(tmp_path))
    assert ends(wire) == (0, 5, 5, 5)
    assert not wire.cluster.topics["t"].partitions[0].last_timestamps
    assert wire.produce() == (E.NONE, 5)


def test_the_log_of_the_controllers_is_left_out_and_left_as_it_is(make: Make, tmp_path: Path) -> None:
    """Kafka: LogManager.loadLogs."""
    leave(make, tmp_path)
    (tmp_path / "t-0").rename(tmp_path / f"{METADATA_TOPIC}-0")
    torn = b"a batch that was not written whole"
    log = tmp_path / f"{METADATA_TOPIC}-0" / f"{0:020}.log"
    log.write_bytes(torn)
    assert make(storage=Directory(tmp_path)).cluster.topics.keys() == {CONSUMER_OFFSETS, TRANSACTION_STATE}
    assert log.read_bytes() == torn


def test_a_copy_inside_of_the_directory_is_not_served(make: Make, tmp_path: Path) -> None:
    batches = [build_batch([Record(value=b"v")], base_offset=offset, base_timestamp=1) for offset in range(2)]
    leave(make, tmp_path, *batches)
    shutil.copytree(tmp_path / "t-0", tmp_path / "backup" / "t-0")
    copy = tmp_path / "backup" / "t-0" / log_of(tmp_path).name
    copy.write_bytes(batches[0].encode())
    wire = make(storage=Directory(tmp_path))
    assert wire.produce() == (E.NONE, 2)
    assert copy.read_bytes() == batches[0].encode()


def test_an_empty_checkpoint_of_epochs_has_none(make: Make, tmp_path: Path) -> None:
    """Kafka: CheckpointFile.read."""
    leave(make, tmp_path)
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"")
    make(storage=Directory(tmp_path))


NO_ASCII = "'ascii' codec can't decode byte 0xff in position {}: ordinal not in range(128)"


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("t-0/leader-epoch-checkpoint", b"0\n2\n0 0\n", "at byte 0: version [0] and count [2] before 1 lines"),
        ("log-start-offset-checkpoint", b"0\n1\nt 0\n", "not enough values to unpack (expected 3, got 2)"),
        ("log-start-offset-checkpoint", b"0\n1\nt 0 \xff\n", NO_ASCII.format(8)),
        ("producer-ids", b"", "invalid literal for int() with base 10: ''"),
        ("producer-ids", b"\xff\n", NO_ASCII.format(0)),
    ],
)
def test_a_damaged_file_is_named(file: str, content: bytes, why: str, make: Make, tmp_path: Path) -> None:
    leave(make, tmp_path)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DamagedLog, match=f"^{re.escape(f'{tmp_path / file}: {why}')}$"):
        make(storage=Directory(tmp_path))


@pytest.mark.parametrize("topic", ["t", CONSUMER_OFFSETS, TRANSACTION_STATE])
def test_a_damaged_record_is_named_with_its_log(topic: str, make: Make, tmp_path: Path) -> None:
    leave(make, tmp_path)
    key, is_control = (b"\0", True) if topic == "t" else (b"\0\1\0", False)  # of no type, and cut off
    odd = build_batch([Record(key=key, value=b"\0")], base_timestamp=1, is_control=is_control)
    (tmp_path / f"{topic}-0" / f"{0:020}.log").write_bytes(odd.encode())
    with pytest.raises(DamagedLog, match=f"{topic}-0: "):
        make(storage=Directory(tmp_path))


@pytest.mark.parametrize("left", [(), (".lock",), (".lock", "meta.properties.tmp")])
def test_a_directory_whose_first_start_was_cut_short_is_a_new_one(
    left: tuple[str, ...], make: Make, tmp_path: Path
) -> None:
    for name in left:
        (tmp_path / name).touch()
    make(storage=Directory(tmp_path)).cluster.close()
    assert (tmp_path / "meta.properties").stat().st_size


def by_producer(producer_id: int) -> RecordBatch:
    record = Record(value=b"v")
    return build_batch([record], base_timestamp=NOW, producer_id=producer_id, producer_epoch=0, base_sequence=0)


def test_a_producer_id_that_a_broker_has_given_is_not_given_again(make: Make, tmp_path: Path) -> None:
    leave(make, tmp_path, by_producer(4_000))
    wire = make(storage=Directory(tmp_path))
    assert wire.init(None)[1] == 4_001
    wire.cluster.close()
    wire = make(storage=Directory(tmp_path))
    assert wire.init(None)[1] == 4_001 + PRODUCER_ID_BLOCK, "the ids of a block are reserved"
    wire.cluster.close()
    log_of(tmp_path).write_bytes(by_producer(9_000).encode())  # by a broker, in between
    assert make(storage=Directory(tmp_path)).init(None)[1] == 9_001


def test_the_largest_producer_id_of_all_leaves_some_to_give(make: Make, tmp_path: Path) -> None:
    leave(make, tmp_path, by_producer(2**63 - 1))
    assert make(storage=Directory(tmp_path)).init(None)[0] == E.NONE


@pytest.mark.parametrize("last", ["producer_id", "previous_producer_id", "next_producer_id"])
def test_a_producer_id_that_a_transactional_id_has_is_not_given_again(last: str, make: Make, tmp_path: Path) -> None:
    make(storage=Directory(tmp_path)).cluster.close()
    ids = {"producer_id": 1, "previous_producer_id": 2, "next_producer_id": 3} | {last: 6_000}
    value = TransactionLogValue(
        **ids,
        producer_epoch=0,
        transaction_timeout_ms=60_000,
        transaction_status=TransactionState.COMPLETE_COMMIT,
        transaction_partitions=(),
        transaction_last_update_timestamp_ms=NOW,
        transaction_start_timestamp_ms=NOW,
    )
    record = Record(key=TransactionLogKey(transactional_id="x").encode(), value=value.encode())
    log = tmp_path / f"{TRANSACTION_STATE}-0" / f"{0:020}.log"
    log.write_bytes(build_batch([record], base_timestamp=NOW).encode())
    assert make(storage=Directory(tmp_path)).init(None)[1] == 6_001


INDEXES = [f"{offset:020}{suffix}" for offset in (0, 1) for suffix in (".index", ".timeindex", ".txnindex")]


def indexes_of(path: Path) -> list[str]:
    return sorted(file.name for file in (path / "t-0").iterdir() if file.name.endswith("index"))


def test_an_append_removes_the_indexes_that_a_broker_has_left(make: Make, tmp_path: Path) -> None:
    """Kafka: LogLoader.loadSegmentFiles."""
    leave(make, tmp_path, build_batch([Record(value=b"v")], base_timestamp=1))
    log_of(tmp_path, 1).touch()
    for name in (*INDEXES, f"{1:020}.snapshot"):
        (tmp_path / "t-0" / name).touch()
    make(storage=Directory(tmp_path)).cluster.close()
    assert indexes_of(tmp_path) == INDEXES
    wire = make(storage=Directory(tmp_path))
    wire.produce()
    assert indexes_of(tmp_path) == []
    assert (tmp_path / "t-0" / f"{1:020}.snapshot").exists()
    wire.produce()


def test_a_write_that_is_cut_off_takes_the_indexes_with_it(make: Make, tmp_path: Path) -> None:
    leave(make, tmp_path, build_batch([Record(value=b"v")], base_timestamp=1))
    os.truncate(log_of(tmp_path), 60)
    (tmp_path / "t-0" / INDEXES[0]).touch()
    make(storage=Directory(tmp_path))
    assert indexes_of(tmp_path) == []


def test_a_deleted_topic_leaves_no_offset_in_a_checkpoint(make: Make, tmp_path: Path) -> None:
    wire = make(storage=Directory(tmp_path))
    wire.topic(partitions=2)
    wire.topic("t-0")
    names = ("cleaner", "recovery-point", "replication", "log-start")
    files = [tmp_path / f"{name}-offset-checkpoint" for name in names]
    for file in files:
        file.write_text("0\n3\nt 1 7\nt-0 0 5\nt 0 9\n", encoding="ascii")
    wire.ask("DeleteTopics", 5, TopicNames=["t"])
    assert {file.read_text(encoding="ascii") for file in files} == {"0\n1\nt-0 0 5\n"}
    files[1].write_text("", encoding="ascii")
    wire.ask("DeleteTopics", 5, TopicNames=["t-0"])
    assert [file.read_text(encoding="ascii") for file in files] == ["0\n0\n", "", "0\n0\n", "0\n0\n"]


def test_a_topic_that_grows_keeps_the_starts_of_the_partitions_that_it_has(make: Make, tmp_path: Path) -> None:
    wire = make(storage=Directory(tmp_path))
    wire.topic()
    wire.produce(count=3)
    wire.cluster.delete_records(wire.cluster.topics["t"].partitions[0], 2)
    wire.ask("CreatePartitions", 3, Topics=[{"Name": "t", "Count": 2, "Assignments": None}])
    wire.cluster.close()
    again = make(storage=Directory(tmp_path))
    assert (len(again.cluster.topics["t"].partitions), ends(again)) == (2, (2, 3, 3, 3))


def test_a_kill_in_a_deletion_leaves_what_can_be_served_and_deleted(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = make(storage=Directory(tmp_path))
    wire.topic(partitions=3)
    wire.produce(count=3)
    wire.cluster.delete_records(wire.cluster.topics["t"].partitions[0], 2)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    for owner, name in ((shutil, "rmtree"), (Directory, "forget")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, killed)
            with pytest.raises(KeyboardInterrupt):
                wire.cluster.delete_topic("t")
            aside = [folder.name for folder in tmp_path.iterdir() if "." in folder.name and folder.is_dir()]
            assert [re.sub("[0-9a-f]{32}", "…", name) for name in aside] == ["t-2.…-delete"] * (owner is shutil)
        wire = make(storage=Directory(tmp_path))
        if owner is shutil:  # the first folder was set aside
            assert (len(wire.cluster.topics["t"].partitions), *ends(wire)[:2]) == (2, 2, 3)
    wire.topic()
    wire.produce(count=3)
    assert ends(make(storage=Directory(tmp_path))) == (0, 3, 3, 3), "it is not the deleted one"


def test_partitions_whose_deletion_was_cut_short_are_deleted_by_the_next_process(make: Make, tmp_path: Path) -> None:
    """As Kafka 4.3 does a minute after its start. It keeps what is set aside for another reason, too."""
    leave(make, tmp_path, build_batch([Record(value=b"v")]))
    deleted, linked, *kept = (f"t-0.{'0f' * 16}-{fate}" for fate in ("delete", "delete", "future", "stray"))
    linked = linked.replace("t", "u")
    for name in (deleted, *kept):
        shutil.copytree(tmp_path / "t-0", tmp_path / name)
    (tmp_path / linked).symlink_to(tmp_path / "t-0")
    assert ends(make(storage=Directory(tmp_path))) == (0, 1, 1, 1)
    assert {path.name for path in tmp_path.glob("*.0f*")} == {linked, *kept}


def test_of_the_batches_of_clients_those_of_one_partition_at_a_time_are_in_memory(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = make(storage=Directory(tmp_path))
    wire.topic(partitions=4)
    for partition in range(4):
        for _ in range(5):
            wire.produce(partition=partition)
    wire.cluster.close()
    recover, held = Directory.recover, list[int]()

    def watched(directory: Directory) -> Iterator[Recovered]:
        for each in recover(directory):
            held.append(sum(isinstance(found, RecordBatch) for found in gc.get_objects()))
            yield each

    monkeypatch.setattr(Directory, "recover", watched)
    make(storage=Directory(tmp_path))
    assert max(held) - min(held) <= 10, "those of the partition before may not be freed yet"


def test_a_log_whose_offsets_go_back_has_no_record_that_a_time_can_name(make: Make, tmp_path: Path) -> None:
    stored = ((3, 10), (5, 20), (1, 30))
    leave(make, tmp_path, *(build_batch([Record(value=b"v")], base_offset=at, base_timestamp=ms) for at, ms in stored))
    asked = {"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": 25}
    topics = [{"Name": "t", "Partitions": [asked]}]
    row = make(storage=Directory(tmp_path)).ask("ListOffsets", 7, ReplicaId=-1, IsolationLevel=0, Topics=topics)
    part = row["Topics"][0]["Partitions"][0]
    assert (part["ErrorCode"], part["Offset"]) == (E.NONE, -1)


def test_a_batch_whose_records_are_broken_has_no_record_that_a_time_can_name(make: Make, tmp_path: Path) -> None:
    """As in Kafka 4.3, for each of these payloads under a CRC that is right."""
    whole = build_batch([Record(value=b"abcdefgh")], base_timestamp=10)
    for payload in (whole.payload[:1], b"\x01" * len(whole.payload)):
        leave(make, tmp_path, replace(whole, payload=payload)._sealed())
        wire = make(storage=Directory(tmp_path))
        rows = [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": at} for at in (0, -3, -1, 11)]
        topics = [{"Name": "t", "Partitions": rows}]
        told = wire.ask("ListOffsets", 7, ReplicaId=-1, IsolationLevel=0, Topics=topics)["Topics"][0]["Partitions"]
        expected = [(E.INVALID_RECORD, -1), (E.INVALID_RECORD, -1), (E.NONE, 1), (E.NONE, -1)]
        assert [(part["ErrorCode"], part["Offset"]) for part in told] == expected
        wire.cluster.close()
        shutil.rmtree(tmp_path)
