"""The content of partitions: record batches one after the other, in memory or in the files of a Kafka log directory.

A store knows a batch's base offset, its place and its largest timestamp; the machines keep the rest. Appending takes
the same time however long a partition is. In files, an append is one ``write`` and no ``fsync``, as in Kafka: it
outlives the process, whatever ends that, but not the machine.

Kafka: LogSegment, UnifiedLog, LogLoader, PartitionMetadataFile, LeaderEpochCheckpointFile, OffsetCheckpointFile
"""

import base64
import fcntl
import json
import os
import re
import shutil
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from kafka_eos.formats.log_directory import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    Partition,
    deletions,
    find_log_directories,
)
from kafka_eos.formats.record_batch import RecordBatch
from kafka_eos.formats.segment import CorruptRegion, MalformedFile, RegionKind, read_leader_epochs, read_segment

SEGMENT_BYTES = 1 << 30
"""The size at which the next segment starts.    Kafka: segment.bytes."""

METADATA_TOPIC = "__cluster_metadata"
"""The topic of the controllers.    Kafka: Topic.CLUSTER_METADATA_TOPIC_NAME."""

PARTITION_METADATA = "partition.metadata"
PRODUCER_IDS = "producer-ids"
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
START_OFFSETS = "log-start-offset-checkpoint"
CHECKPOINTS = (
    START_OFFSETS,
    "cleaner-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
)
"""The files with an offset of each partition, of which a Kafka broker may have left more than are kept up here."""
TOPICS_AND_CONFIGS = "topics-and-configs.json"
"""The file for what Kafka keeps in ``__cluster_metadata``: replicas, and configurations that clients have set."""

_LONGEST_FOLDER = 255

_SERVED: dict[tuple[int, int], "Directory"] = {}
"""The directories that clusters of this process have, by device and inode of the lock, which keeps only others out."""


class DamagedLog(ValueError):  # noqa: N818 - named for the data
    """A data directory that cannot be served; says where and why."""


@contextmanager
def damage_at(place: str) -> Iterator[None]:
    """Say where the data is that cannot be read.

    Raises:
        DamagedLog: it cannot.
    """
    try:
        yield
    except ValueError as error:
        raise DamagedLog(f"{place}: {error}") from None


class Store(Protocol):
    """A partition's batches."""

    def append(self, data: bytes, base_offset: int, max_timestamp: int) -> None:
        """Write an encoded batch after the last one."""

    def read(self, offset: int, upper: int, max_bytes: int, at_least_one: bool) -> bytes:
        """The batches from the one with ``offset`` on that begin below ``upper``, as many as fit.

        Args:
            offset: at or after the first offset, and below the end.
            upper: the offset where reading ends.
            max_bytes: how much there may be.
            at_least_one: the first batch is given even if it is larger.
        """

    def first_with_timestamp(self, timestamp: int, start: int) -> int | None:
        """The base offset of the first batch whose largest timestamp is not below this one; None without one.

        Args:
            timestamp: milliseconds since the epoch.
            start: an offset; batches that end before it are passed over.
        """

    def latest(self) -> tuple[int, int] | None:
        """The base offset of the first batch with the largest timestamp, and that; None for an empty partition."""

    def epochs(self, starts: list[tuple[int, int]]) -> None:
        """Note the leader epochs, each with its first offset."""

    def delete(self) -> None:
        """Remove everything."""

    def close(self) -> None:
        """Close what the store has open; it may not be used afterwards."""


def _last_offset_delta(encoded: bytes) -> int:
    """The last offset of an encoded batch, counted from its first one."""
    return int.from_bytes(encoded[23:27], "big", signed=True)


class _Index:
    """The batches by number: base offset, highest offset up to their end, place in bytes, and timestamp of each.

    One more place is the end. A log that was damaged may have a batch at an offset once more, or offsets that go back.
    """

    def __init__(self) -> None:
        self.offsets, self.highest = array("q"), array("q")
        self.places, self.timestamps = array("q", [0]), array("q")
        self.most_recent: tuple[int, int] | None = None

    def append(self, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        if self.most_recent is None or max_timestamp > self.most_recent[1]:
            self.most_recent = (base_offset, max_timestamp)
        self.offsets.append(base_offset)
        self.highest.append(max(last_offset, self.highest[-1]) if self.highest else last_offset)
        self.timestamps.append(max_timestamp)
        self.places.append(self.places[-1] + size)

    def span(self, offset: int, upper: int, max_bytes: int, at_least_one: bool) -> tuple[int, int]:
        """The first batch of a response, which has the offset or follows it, and the one after its last.

        Kafka: FileRecords.searchForOffsetFromPosition
        """
        first, below = bisect_left(self.highest, offset), bisect_left(self.highest, upper)
        below += below < len(self.offsets) and self.offsets[below] < upper
        fitting = bisect_right(self.places, self.places[first] + max_bytes) - 1
        return first, min(below, max(fitting, first + at_least_one))

    def first_with_timestamp(self, timestamp: int, start: int) -> int | None:
        places = range(bisect_left(self.highest, start), len(self.offsets))
        return next((self.offsets[place] for place in places if self.timestamps[place] >= timestamp), None)


class Recovered(NamedTuple):
    """A partition as an earlier process left it.

    Attributes:
        topic: the name of its topic.
        partition: its number.
        topic_id: the id of its topic.
        store: its batches.
        epochs: the leader epochs that were noted, each with its first offset.
        batches: the batches, in the order of the files.
        start: the first offset that its segments may hold.
        end: the offset of the next record: after the last segment's last batch, or that segment's first one.
    """

    topic: str
    partition: int
    topic_id: UUID
    store: Store
    epochs: list[tuple[int, int]]
    batches: list[RecordBatch]
    start: int
    end: int


class MemoryStore:
    """A partition in memory, whose bytes count for the whole memory."""

    def __init__(self, memory: "Memory") -> None:
        self._memory = memory
        self._index = _Index()
        self._batches: list[bytes] = []

    def append(self, data: bytes, base_offset: int, max_timestamp: int) -> None:
        """See :class:`Store`."""
        self._batches.append(data)
        self._memory.stored_bytes += len(data)
        self._index.append(len(data), base_offset, base_offset + _last_offset_delta(data), max_timestamp)

    def read(self, offset: int, upper: int, max_bytes: int, at_least_one: bool) -> bytes:
        """See :class:`Store`."""
        first, end = self._index.span(offset, upper, max_bytes, at_least_one)
        return b"".join(self._batches[first:end])

    def first_with_timestamp(self, timestamp: int, start: int) -> int | None:
        """See :class:`Store`."""
        return self._index.first_with_timestamp(timestamp, start)

    def latest(self) -> tuple[int, int] | None:
        """See :class:`Store`."""
        return self._index.most_recent

    def epochs(self, starts: list[tuple[int, int]]) -> None:
        """Do nothing: the log ends with the process."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def delete(self) -> None:
        """See :class:`Store`."""
        self._memory.stored_bytes -= self._index.places[-1]
        self._batches.clear()
        self._index = _Index()


class FileStore:
    """A partition's directory: segments, and the checkpoint of its leader epochs.

    Indexes that a broker has left are removed with the first change, because they are not kept up; a broker that finds
    none makes them again.

    Kafka: LogLoader.loadSegmentFiles
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._index = _Index()
        self._segments: list[tuple[int, int]] = []  # the place where each begins, and its file descriptor
        self._indexes: list[Path] = []  # as a broker has left them

    @classmethod
    def create(cls, path: Path, topic_id: UUID) -> "FileStore":
        """Create a partition's directory."""
        path.mkdir(exist_ok=True)
        encoded = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
        (path / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {encoded}\n", encoding="ascii")
        store = cls(path)
        store._open(0)
        return store

    @classmethod
    def recover(cls, found: Partition) -> Recovered:
        """A partition as an earlier process left it. An unfinished write at its end is cut off.

        Raises:
            DamagedLog: when there is other damage.

        Kafka: LogSegment.readNextOffset
        """
        store = cls(found.path)
        for segment in found.segments:
            indexes = (segment.offset_index, segment.time_index, segment.transaction_index)
            store._indexes += [index for index in indexes if index is not None]
        stored: list[list[RecordBatch]] = [[] for _ in found.segments]
        for number, segment in enumerate(found.segments):
            for region in read_segment(segment.log):
                if isinstance(region, CorruptRegion):
                    is_last = number == len(found.segments) - 1
                    if not is_last or region.kind not in {RegionKind.TORN_TAIL, RegionKind.ZEROES}:
                        raise DamagedLog(f"{segment.log}: at byte {region.position}: {region.reason}")
                    store._remove_indexes()
                    os.truncate(segment.log, region.position)
                    break
                stored[number].append(region.batch)
        for segment, batches in zip(found.segments, stored, strict=True):
            store._open(segment.base_offset)
            for batch in batches:
                store._index.append(batch.size, batch.base_offset, batch.next_offset - 1, batch.max_timestamp)
        return Recovered(
            topic=found.topic,
            partition=found.partition,
            topic_id=_topic_id(found.path / PARTITION_METADATA),
            store=store,
            epochs=store.known_epochs(),
            batches=[batch for batches in stored for batch in batches],
            start=found.segments[0].base_offset,
            end=stored[-1][-1].next_offset if stored[-1] else found.segments[-1].base_offset,
        )

    def _remove_indexes(self) -> None:
        while self._indexes:
            self._indexes.pop().unlink(missing_ok=True)

    def _open(self, base_offset: int) -> None:
        file = os.open(self.path / f"{base_offset:020}.log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._segments.append((self._index.places[-1], file))

    def append(self, data: bytes, base_offset: int, max_timestamp: int) -> None:
        """See :class:`Store`."""
        self._remove_indexes()
        if self._index.places[-1] - self._segments[-1][0] >= SEGMENT_BYTES:
            self._open(base_offset)
        written = os.write(self._segments[-1][1], data)
        if written != len(data):  # a full disk: what was written of it must not stay
            os.ftruncate(self._segments[-1][1], self._index.places[-1] - self._segments[-1][0])
            raise OSError(f"{self.path}: only {written} of {len(data)} bytes could be written")
        self._index.append(len(data), base_offset, base_offset + _last_offset_delta(data), max_timestamp)

    def read(self, offset: int, upper: int, max_bytes: int, at_least_one: bool) -> bytes:
        """See :class:`Store`."""
        first, end = self._index.span(offset, upper, max_bytes, at_least_one)
        place, stop = self._index.places[first], self._index.places[max(first, end)]
        begin, file = self._segments[bisect_right(self._segments, place, key=lambda segment: segment[0]) - 1]
        return os.pread(file, stop - place, place - begin)  # no more than there is in this segment

    def first_with_timestamp(self, timestamp: int, start: int) -> int | None:
        """See :class:`Store`."""
        return self._index.first_with_timestamp(timestamp, start)

    def latest(self) -> tuple[int, int] | None:
        """See :class:`Store`."""
        return self._index.most_recent

    def epochs(self, starts: list[tuple[int, int]]) -> None:
        """See :class:`Store`."""
        lines = ["0", str(len(starts)), *(f"{epoch} {offset}" for epoch, offset in starts)]
        _replace(self.path / LEADER_EPOCH_CHECKPOINT, "\n".join(lines) + "\n")

    def known_epochs(self) -> list[tuple[int, int]]:
        """The leader epochs that were noted, each with its first offset.

        Raises:
            DamagedLog: they cannot be read.
        """
        try:
            lines = read_leader_epochs(self.path / LEADER_EPOCH_CHECKPOINT)
        except MalformedFile as error:
            raise DamagedLog(str(error)) from None
        return [(line.epoch, line.start_offset) for line in lines]

    def close(self) -> None:
        """See :class:`Store`."""
        for _, file in self._segments:
            os.close(file)
        self._segments.clear()

    def delete(self) -> None:
        """See :class:`Store`; the folder is set aside first, under as much of the topic's name as there is room for.

        Kafka: LocalLog.logDirNameWithSuffixCappedLength
        """
        self.close()
        topic, _, number = self.path.name.rpartition("-")
        suffix = f"-{number}.{os.urandom(16).hex()}-delete"
        aside = self.path.with_name(f"{topic[: _LONGEST_FOLDER - len(suffix)]}{suffix}")
        self.path.rename(aside)
        shutil.rmtree(aside)


class Memory:
    """Partitions that end with the process; ``stored_bytes`` is their total size."""

    def __init__(self) -> None:
        self.stored_bytes = 0

    def cluster_id(self, proposed: str) -> str:
        """The id of the cluster: the proposed one."""
        return proposed

    def create(self, topic: str, partition: int, topic_id: UUID) -> Store:  # noqa: ARG002 - as a directory does
        """Create a partition."""
        return MemoryStore(self)

    def recover(self) -> Iterator[Recovered]:
        """No partition: nothing is kept from an earlier process."""
        yield from ()

    def reserved_producer_ids(self) -> int:
        """The producer ids below this one are taken."""
        return 0

    def reserve_producer_ids(self, end: int) -> None:
        """Do nothing: no later process asks for the reserved ids."""

    def start_offsets(self) -> dict[str, int]:
        """No start offset: nothing is kept from an earlier process."""
        return {}

    def note_start_offsets(self, offsets: dict[str, int]) -> None:
        """Do nothing: no later process asks where partitions begin."""

    def forget(self, topic: str, partitions: Iterable[int]) -> None:
        """Do nothing: no offset is noted."""

    def noted(self) -> None:
        """Return nothing: no earlier process has kept anything."""

    def note(self, what: dict[str, Any]) -> None:
        """Do nothing: no later process asks what clients have set."""

    def release(self) -> None:
        """Do nothing: nobody else could have it."""

    def close(self) -> None:
        """Do nothing: no file is open."""


class Directory:
    """Partitions in the directory of a broker, in the layout of Kafka's ``log.dirs``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._identity = 0, 0

    def cluster_id(self, proposed: str) -> str:
        """The id of the cluster that the directory belongs to; a new directory, which is made, takes the proposed one.

        What a start that was cut short has left behind does not count as a file.

        Raises:
            DamagedLog: when there are files, and no cluster's, or another process has them.
        """
        properties = self.path / META_PROPERTIES
        self.path.mkdir(parents=True, exist_ok=True)
        if properties.exists():
            self._take()
            found = re.search(r"^cluster\.id=(\S+)$", properties.read_text(encoding="latin-1"), re.MULTILINE)
            return found[1] if found else proposed
        if any(file.name not in {LOCK, f"{META_PROPERTIES}.tmp"} for file in self.path.iterdir()):
            raise DamagedLog(f"{self.path}: has files, and no {META_PROPERTIES}; give an empty or a new directory")
        self._take()
        _replace(properties, f"version=1\ncluster.id={proposed}\nnode.id=1\n")
        return proposed

    def close(self) -> None:
        """End in good order: say so, and let another process have the directory.

        Kafka: CleanShutdownFileHandler
        """
        if self._lock is not None:
            (self.path / CLEAN_SHUTDOWN).touch()
            self.release()

    def release(self) -> None:
        """Let another cluster have the directory, without a word to it: so does the end of a process."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            del _SERVED[self._identity]

    def _take(self) -> None:
        """Keep other clusters out, those of other processes as well.    Kafka: FileLock."""
        lock = self.path / LOCK
        lock.touch(0o644)
        self._identity = lock.stat().st_dev, lock.stat().st_ino
        if _SERVED.setdefault(self._identity, self) is not self:  # to open the file, and close it, would end the lock
            raise DamagedLog(f"{self.path}: another cluster of this process serves it")
        self._lock = os.open(lock, os.O_RDWR)
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise DamagedLog(f"{self.path}: another process serves it") from None
        (self.path / CLEAN_SHUTDOWN).unlink(missing_ok=True)

    def create(self, topic: str, partition: int, topic_id: UUID) -> Store:
        """Create a partition."""
        return FileStore.create(self.path / f"{topic}-{partition}", topic_id)

    def recover(self) -> Iterator[Recovered]:
        """The partitions of an earlier process, without the controllers' log.

        A partition in a folder of its own below the directory, such as a copy, is left out. Those that were set aside
        are deleted, once all others are read.

        Raises:
            DamagedLog: when one cannot be read.

        Kafka: LogManager.loadLogs, addLogToBeDeleted
        """
        for directory in find_log_directories(self.path):
            for partition in directory.partitions if directory.path == self.path.resolve() else ():
                if partition.topic == METADATA_TOPIC:
                    continue
                yield FileStore.recover(partition)
        for folder in deletions(self.path):
            shutil.rmtree(folder)

    def reserved_producer_ids(self) -> int:
        """The producer ids below this one are taken.

        Raises:
            DamagedLog: it cannot be read.
        """
        path = self.path / PRODUCER_IDS
        with damage_at(str(path)):
            return int(path.read_text(encoding="ascii")) if path.exists() else 0

    def reserve_producer_ids(self, end: int) -> None:
        """Take the producer ids below ``end``, before one of them is given to anybody."""
        _replace(self.path / PRODUCER_IDS, f"{end}\n")

    def start_offsets(self) -> dict[str, int]:
        """The first offset that may be read, of those partitions of which that was noted.

        Raises:
            DamagedLog: they cannot be read.
        """
        path = self.path / START_OFFSETS
        if not path.exists():
            return {}
        with damage_at(str(path)):
            rows = [line.split() for line in path.read_text(encoding="ascii").splitlines()[2:]]
            return {f"{topic}-{number}": int(offset) for topic, number, offset in rows}

    def forget(self, topic: str, partitions: Iterable[int]) -> None:
        """Remove the offsets that are noted of some partitions of a topic: they are gone, or new."""
        gone = {f"{topic} {number}" for number in partitions}
        for path in (self.path / name for name in CHECKPOINTS):
            lines = path.read_text(encoding="ascii", errors="ignore").splitlines() if path.exists() else []
            rows = [line for line in lines[2:] if line.rpartition(" ")[0] not in gone]
            if len(rows) < len(lines[2:]):
                _replace(path, "\n".join([lines[0], str(len(rows)), *rows]) + "\n")

    def noted(self) -> Any:
        """The last argument of :meth:`note`, read from JSON; None if there was none.

        Raises:
            DamagedLog: it cannot be read.
        """
        path = self.path / TOPICS_AND_CONFIGS
        with damage_at(str(path)):
            return json.loads(path.read_text(encoding="ascii")) if path.exists() else None

    def note(self, what: dict[str, Any]) -> None:
        """Note what clients have set, in place of what was noted before."""
        _replace(self.path / TOPICS_AND_CONFIGS, json.dumps(what, sort_keys=True, indent=1) + "\n")

    def note_start_offsets(self, offsets: dict[str, int]) -> None:
        """Note the first offsets that may be read, by the partitions' names.

        Kafka: OffsetCheckpointFile
        """
        rows = (f"{' '.join(name.rsplit('-', 1))} {offset}" for name, offset in sorted(offsets.items()))
        _replace(self.path / START_OFFSETS, "\n".join(["0", str(len(offsets)), *rows]) + "\n")


def _topic_id(path: Path) -> UUID:
    try:
        found = re.search(r"topic_id: ([\w-]{22})", path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedLog(f"{path}: {error}") from None
    if found is None:
        raise DamagedLog(f"{path}: no topic id")
    return UUID(bytes=base64.urlsafe_b64decode(found[1] + "=="))


def _replace(path: Path, text: str) -> None:
    """Replace a file as a whole."""
    new = path.with_name(f"{path.name}.tmp")
    new.write_text(text, encoding="ascii")
    new.replace(path)
