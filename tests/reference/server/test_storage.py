"""Batches in memory and in files."""

import base64
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.formats.log_directory import find_log_directories
from kafka_eos.formats.message_set import Message
from kafka_eos.formats.record_batch import Record, RecordBatch, build_batch
from kafka_eos.machines.leader import LeaderRules
from kafka_eos.server import storage
from kafka_eos.server.cluster import Broker, Cluster, Settings
from kafka_eos.server.partitions import Leader
from kafka_eos.server.storage import DamagedLog, Directory, FileStore, Memory, Store
from kafka_eos.server.transactions import PRODUCER_ID_BLOCK, ProducerIds

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def batch(offset: int, size: int) -> RecordBatch:
    return build_batch([Record(value=b"v" * size)], base_offset=offset, base_timestamp=1_000 + size)


def fill(store: Store, sizes: list[int]) -> list[bytes]:
    batches = [batch(offset, size) for offset, size in enumerate(sizes)]
    for each in batches:
        store.append(each.encode(), each.base_offset, each.max_timestamp)
    return [each.encode() for each in batches]


@given(sizes=SIZES, data=st.data())
def test_files_are_read_as_memory_is(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "SEGMENT_BYTES", 250)
        memory, files = Memory().create("t", 0, UUID(int=1)), FileStore.create(folder / "t-0", UUID(int=1))
        expected = fill(memory, sizes)
        fill(files, sizes)
    offset = data.draw(st.integers(0, len(sizes) - 1))
    upper = data.draw(st.integers(offset + 1, len(sizes)))
    largest = data.draw(st.integers(1, 400))
    whole = memory.read(offset, upper, largest, True)
    assert whole.startswith(files.read(offset, upper, largest, True))  # of one segment
    assert files.read(offset, upper, largest, True).startswith(expected[offset])
    fitting = max(end for end in range(offset, upper + 1) if sum(map(len, expected[offset:end])) <= largest)
    assert memory.read(offset, upper, largest, False) == b"".join(expected[offset:fitting])
    assert whole == b"".join(expected[offset : max(fitting, offset + 1)])
    for timestamp in (0, 1_005, 1_041):
        assert memory.first_with_timestamp(timestamp, offset) == files.first_with_timestamp(timestamp, offset)
    assert memory.latest() == files.latest()
    files.delete()
    assert not list(folder.iterdir())


def test_of_several_batches_with_the_largest_timestamp_the_first_is_told(tmp_path: Path) -> None:
    for store in (Memory().create("t", 0, UUID(int=1)), FileStore.create(tmp_path / "t-0", UUID(int=1))):
        assert store.latest() is None
        fill(store, [5, 9, 9, 2])
        assert store.latest() == (1, 1_009)


def test_a_leader_epoch_in_which_nothing_was_written_is_not_noted(tmp_path: Path) -> None:
    store = FileStore.create(tmp_path / "t-0", UUID(int=1))
    leader = Leader(topic="t", partition=0, node=1, replicas=(1, 2, 3), store=store, rules=LeaderRules())
    for node in (2, 3):
        leader.lead(node)
    leader.append_records([Record(value=b"v")], 1_000)
    for node in (1, 2):
        leader.lead(node)
    assert (leader.epochs, store.known_epochs()) == ([(2, 0), (4, 1)],) * 2


def test_a_reader_is_given_the_batch_that_has_the_offset_or_the_next_one_also_where_offsets_go_back(
    tmp_path: Path,
) -> None:
    directory = Directory(tmp_path)
    directory.cluster_id("c")
    store = directory.create("t", 0, UUID(int=5))
    records = [Record(value=b"v", offset_delta=delta) for delta in range(2)]
    offsets = (4, 7, 7, 1, 3, 9)  # of two records each: a hole, a batch once more, two that go back
    written = [build_batch(records, base_offset=offset, base_timestamp=1_000 + offset).encode() for offset in offsets]
    for data, offset in zip(written, offsets, strict=True):
        store.append(data, offset, 1_000 + offset)
    [found] = Directory(tmp_path).recover()
    for each in (store, found.store):
        starts = [each.read(offset, 11, 1 << 20, True) for offset in (4, 5, 6, 7, 8, 9, 10)]
        assert starts == [b"".join(written[first:]) for first in (0, 0, 1, 1, 1, 5, 5)]
        assert each.read(4, 9, 1 << 20, True) == b"".join(written[:5])
        assert each.read(4, 7, 1 << 20, True) == written[0], "the batch at 7 does not begin below it"
        assert each.read(4, 8, 1 << 20, True) == b"".join(written[:2]), "the batch at 7 does"
        assert each.first_with_timestamp(1_008, 5) == 9


@given(sizes=SIZES, others=SIZES)
def test_memory_counts_the_bytes_of_the_partitions_that_are_not_deleted(sizes: list[int], others: list[int]) -> None:
    memory = Memory()
    kept, deleted = memory.create("t", 0, UUID(int=1)), memory.create("t", 1, UUID(int=1))
    written = fill(kept, sizes)
    fill(deleted, others)
    deleted.delete()
    assert memory.stored_bytes == sum(map(len, written))


def test_a_partition_is_found_again_with_all_its_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "SEGMENT_BYTES", 100)
    directory = Directory(tmp_path)
    assert directory.cluster_id("c") == "c"
    store = directory.create("t", 0, UUID(int=5))
    store.epochs([(0, 0), (1, 2)])
    written = fill(store, [10, 20, 30])
    directory.close()
    assert Directory(tmp_path).cluster_id("other") == "c"
    [found] = Directory(tmp_path).recover()
    assert (found.topic, found.partition, found.topic_id) == ("t", 0, UUID(int=5))
    assert (found.epochs, found.start, found.end) == ([(0, 0), (1, 2)], 0, 3)
    assert [each.encode() for each in found.batches] == written
    assert len(find_log_directories(tmp_path)[0].partitions[0].segments) > 1
    assert [found.store.read(offset, 3, 1, True) for offset in range(3)] == written


def test_a_segment_ends_with_the_batch_that_makes_it_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "SEGMENT_BYTES", 100)
    store = FileStore.create(tmp_path / "t-0", UUID(int=1))
    fill(store, [1, 40, 32, 1, 1, 1])  # batches of 69, 108, 100, 69, … bytes
    starts = [int(path.stem) for path in sorted((tmp_path / "t-0").glob("*.log"))]
    assert starts == [0, 2, 3, 5]


def test_a_full_disk_leaves_no_part_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "SEGMENT_BYTES", 100)
    store = FileStore.create(tmp_path / "t-0", UUID(int=1))
    written, write = fill(store, [40, 1]), os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:5]))
        with pytest.raises(OSError, match=r"only 5 of 69 bytes"):
            store.append(batch(2, 1).encode(), 2, 1_001)
    assert [path.read_bytes() for path in sorted((tmp_path / "t-0").glob("*.log"))] == written
    assert store.read(1, 3, 1_000, True) == written[1]


@pytest.mark.parametrize("cut", [1, 30, 70])
def test_a_batch_that_was_not_written_whole_is_cut_off(tmp_path: Path, cut: int) -> None:
    directory = Directory(tmp_path)
    directory.cluster_id("c")
    written = fill(directory.create("t", 0, UUID(int=5)), [10, 20])
    log = tmp_path / "t-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-cut])
    [found] = Directory(tmp_path).recover()
    assert [each.encode() for each in found.batches] == written[:1]
    assert log.read_bytes() == written[0]
    found.store.append(written[1], 1, 1_020)
    assert log.read_bytes() == b"".join(written)


def test_other_damage_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.cluster_id("c")
    fill(directory.create("t", 0, UUID(int=5)), [10, 20])
    log = tmp_path / "t-0" / f"{0:020}.log"
    damaged = bytearray(log.read_bytes())
    damaged[70] ^= 1
    log.write_bytes(damaged)
    with pytest.raises(DamagedLog, match=r"00\.log: at byte 0: CRC32C is \w{8}, of the bytes \w{8}$"):
        list(Directory(tmp_path).recover())
    assert log.read_bytes() == damaged


def test_a_segment_that_is_not_the_last_one_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "SEGMENT_BYTES", 100)
    directory = Directory(tmp_path)
    directory.cluster_id("c")
    fill(directory.create("t", 0, UUID(int=5)), [40, 1])
    log = tmp_path / "t-0" / f"{0:020}.log"
    kept = log.read_bytes()[:-1]
    log.write_bytes(kept)
    with pytest.raises(DamagedLog, match=r"00\.log: at byte 0: "):
        list(Directory(tmp_path).recover())
    assert log.read_bytes() == kept


@pytest.mark.parametrize("damage", ["zeroes before a batch", "a message of an older format"])
def test_what_is_no_unfinished_write_is_not_cut_off(damage: str, tmp_path: Path) -> None:
    directory = Directory(tmp_path)
    directory.cluster_id("c")
    first, second = fill(directory.create("t", 0, UUID(int=5)), [10, 20])
    log = tmp_path / "t-0" / f"{0:020}.log"
    old = Message(offset=2, magic=1, value=b"old").encode()
    log.write_bytes(first + old if damage == "a message of an older format" else bytes(len(first)) + second)
    kept = log.read_bytes()
    with pytest.raises(DamagedLog, match=r"00\.log: at byte \d+: "):
        list(Directory(tmp_path).recover())
    assert log.read_bytes() == kept


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear", encoding="ascii")
    with pytest.raises(
        DamagedLog, match=rf"^{tmp_path}: has files, and no meta\.properties; give an empty or a new directory$"
    ):
        Directory(tmp_path).cluster_id("c")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_directory_has_one_process_that_serves_it(tmp_path: Path) -> None:
    """Kafka: FileLock."""
    held = Directory(tmp_path)
    held.cluster_id("c")
    code = "import sys; from pathlib import Path; from kafka_eos.server.storage import Directory; "
    code += "Directory(Path(sys.argv[1])).cluster_id('d')"

    def other() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)

    assert f"DamagedLog: {tmp_path}: another process serves it\n" in other().stderr
    held.close()
    assert other().returncode == 0


def test_a_directory_has_one_cluster_of_a_process_that_serves_it(tmp_path: Path) -> None:
    """As in Kafka, where the second one is told of an OverlappingFileLockException.    Kafka: FileLock.tryLock."""
    (tmp_path / "link").symlink_to(tmp_path / "data")
    brokers = [Broker(1, "127.0.0.1", 9092)]
    held = Cluster(brokers, storage=Directory(tmp_path / "data"), now=0)
    for other in ("data", "link"):
        with pytest.raises(DamagedLog, match=rf"{other}: another cluster of this process serves it$"):
            Cluster(brokers, storage=Directory(tmp_path / other), now=0)
    code = "import sys; from pathlib import Path; from kafka_eos.server.storage import Directory; "
    code += "Directory(Path(sys.argv[1])).cluster_id('d')"
    refused = subprocess.run([sys.executable, "-c", code, tmp_path / "data"], capture_output=True, check=False)
    assert b"another process serves it" in refused.stderr, "the one that was refused has not ended the lock"
    held.close()
    Cluster(brokers, storage=Directory(tmp_path / "link"), now=0).close()


def test_a_directory_that_cannot_be_served_can_be_once_it_is_mended(tmp_path: Path) -> None:
    brokers = [Broker(1, "127.0.0.1", 9092)]
    Cluster(brokers, storage=Directory(tmp_path), now=0).close()
    damaged = tmp_path / "__consumer_offsets-0" / "partition.metadata"
    kept = damaged.read_bytes()
    damaged.unlink()
    with pytest.raises(DamagedLog, match=r"partition\.metadata"):
        Cluster(brokers, storage=Directory(tmp_path), now=0)
    damaged.write_bytes(kept)
    Cluster(brokers, storage=Directory(tmp_path), now=0).close()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list open files")
def test_a_cluster_that_is_closed_has_no_file_open(tmp_path: Path) -> None:
    def open_files() -> int:
        return sum(str(tmp_path) in str(link.resolve()) for link in Path("/proc/self/fd").iterdir())

    cluster = Cluster([Broker(1, "127.0.0.1", 9092)], storage=Directory(tmp_path), now=0)
    assert open_files() == 2 * Settings().internal_partitions + 1
    cluster.close()
    assert open_files() == 0


def test_a_directory_says_that_it_was_closed_until_it_is_served_again(tmp_path: Path) -> None:
    """Kafka: CleanShutdownFileHandler."""
    found = []
    for _ in range(2):
        directory = Directory(tmp_path)
        directory.cluster_id("a")
        found.append((tmp_path / ".kafka_cleanshutdown").exists())
        directory.close()
        directory.close()
        found.append((tmp_path / ".kafka_cleanshutdown").exists())
    assert found == [False, True] * 2


def test_a_new_partition_has_the_files_of_kafkas(tmp_path: Path) -> None:
    """Kafka: PartitionMetadata, LeaderEpochCheckpointFile; a cluster's id that is missing is replaced in memory."""
    addresses, folder = [Broker(1, "127.0.0.1", 9092)], tmp_path / "not" / "there"
    cluster = Cluster(addresses, storage=Directory(folder), now=0)
    topic = cluster.create_topic("t", 1)
    files = {file.name: file.read_text(encoding="ascii") for file in (folder / "t-0").iterdir()}
    encoded = base64.urlsafe_b64encode(topic.topic_id.bytes).decode().rstrip("=")
    assert files == {
        "00000000000000000000.log": "",
        "leader-epoch-checkpoint": "0\n1\n0 0\n",
        "partition.metadata": f"version: 0\ntopic_id: {encoded}\n",
    }
    text = (folder / "meta.properties").read_text(encoding="ascii")
    assert text == f"version=1\ncluster.id={cluster.cluster_id}\nnode.id=1\n"
    cluster.close()
    (folder / "meta.properties").write_text("version=1\n", encoding="ascii")
    directory = Directory(folder)
    assert directory.cluster_id("proposed") == "proposed"
    directory.close()
    for damaged, why in (
        ("version: 0\n", "no topic id$"),
        (f"version: 0\ntopic_id: \u00e4{encoded}\n", "'ascii' codec"),
    ):
        (folder / "t-0" / "partition.metadata").write_text(damaged, encoding="utf-8")
        with pytest.raises(DamagedLog, match=rf"t-0/partition\.metadata: {why}"):
            Cluster(addresses, storage=Directory(folder), now=0)


def test_producer_ids_follow_one_another_from_block_to_block() -> None:
    reserved: list[int] = []
    ids = ProducerIds(7, reserved.append)
    assert [ids.allocate() for _ in range(PRODUCER_ID_BLOCK + 1)] == list(range(7, 7 + PRODUCER_ID_BLOCK + 1))
    assert reserved == [7 + PRODUCER_ID_BLOCK, 7 + 2 * PRODUCER_ID_BLOCK]


def test_the_largest_producer_id_that_is_taken_leaves_room_for_a_block() -> None:
    reserved: list[int] = []
    ids = ProducerIds(7, reserved.append)
    ids.pass_over([(1 << 63) - 1])
    assert (ids.allocate(), reserved) == ((1 << 63) - 1 - PRODUCER_ID_BLOCK, [(1 << 63) - 1])


def test_producer_ids_are_reserved_before_one_is_given(tmp_path: Path) -> None:
    assert Directory(tmp_path).reserved_producer_ids() == 0
    Directory(tmp_path).reserve_producer_ids(1_000)
    assert Directory(tmp_path).reserved_producer_ids() == 1_000
