"""The logs in directories, and the splits in which they are read."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby, takewhile
from pathlib import Path

from kafka_eos.formats.log_directory import LogDirectory, find_log_directories
from kafka_eos.formats.segment import CorruptRegion, StoredBatch, read_segment, scan
from kafka_eos.formats.varint import INT64_MAX, INT64_MIN
from kafka_eos_checks.audit.places import Ask, Uri, ask_here, listed, open_at, place, sizes_of
from kafka_eos_checks.audit.segments import header_tables
from kafka_eos_checks.audit.segments.headers import is_batch, may_be_reserved, read_index, written_end
from kafka_eos_checks.audit.weights import TABLE_WEIGHT

SUFFIXES = ("log", header_tables.SUFFIX)
OFFSET_DIGITS = 20  # in the name of a segment
SPLIT_BYTES = 128 << 20  # reading this much takes 50 ms or more, which is more than a task costs


@lru_cache(1 << 10)
def _placed(folder: str) -> tuple[Path, Path]:
    """A log's folder and its log directory. Each rule asks for them, and a ``Path`` takes long to make."""
    path = place(folder)
    return path, path.parent


@dataclass(frozen=True, slots=True, order=True)
class PartitionLog:
    """A replica of a partition on disk.

    Attributes:
        broker: the name of its log directory if there are several, otherwise "".
        topic: topic name.
        partition: partition number.
        folder: the folder that holds the segments.
        segments: their file names, in order of their base offsets: each a ``.log``, or the table of its headers.
    """

    broker: str
    topic: str
    partition: int
    folder: str
    segments: tuple[str, ...]

    @property
    def directory(self) -> Path:
        """The broker's log directory."""
        return _placed(self.folder)[1]

    def file(self, name: str) -> Path:
        """A file of the folder."""
        return _placed(self.folder)[0] / name

    def end_of(self, name: str) -> int | None:
        """The end of a file's batches, in bytes, if its broker may have reserved what follows; otherwise None."""
        path = self.file(name)
        return written_end(path) if name == self.segments[-1] and may_be_reserved(path) else None

    def end_after(self, end: int) -> int:
        """The end of the log, whose batches end there: its last segment may begin later, if retention left no batch."""
        last = self.segments[-1].partition(".")[0] if self.segments else ""
        return max(end, int(last) if last.isdecimal() else 0)

    @property
    def has_records(self) -> bool:
        """Whether all segments have their records, not only headers."""
        return not any(map(header_tables.is_table, self.segments))

    def room(self, segment: str) -> range:
        """The offsets that a segment may hold: from the one in its name to below the one in the next segment's name."""
        following = bisect_right(self.segments, segment)
        names = (segment, *self.segments[following : following + 1])
        first, end = (
            int(name[:OFFSET_DIGITS]) if name[:OFFSET_DIGITS].isdecimal() else None for name in (*names, "")[:2]
        )
        return range(INT64_MIN if first is None else first, INT64_MAX if end is None else end)

    def __str__(self) -> str:
        return f"{self.broker}/{self.topic}-{self.partition}" if self.broker else f"{self.topic}-{self.partition}"


def find_logs(*paths: Path) -> list[PartitionLog]:
    """The logs in brokers' log directories, each at a path or right below it; a log that is found twice counts once.

    A table of headers stands in for a missing segment.

    Raises:
        NotALogDirectory: there is none at one of the paths.
    """
    return logs_in(find_directories(*paths))


def find_directories(*paths: Path) -> list[LogDirectory]:
    """The log directories at some paths or right below them; see :func:`find_logs`."""
    return [directory for path in paths for directory in find_log_directories(listed(path), SUFFIXES)]


def offset_in(name: str) -> int:
    """The offset in a file's name."""
    return int(name.partition(".")[0])


def segment_with(log: PartitionLog, offset: int) -> str:
    """The name of the segment that an offset of a log belongs to; "" if it is before the first one."""
    return max((name for name in log.segments if offset_in(name) <= offset), key=offset_in, default="")


def logs_in(directories: Iterable[LogDirectory]) -> list[PartitionLog]:
    """The logs of some log directories, each once."""
    directories = list(directories)
    folders = {directory.path for directory in directories}
    names = [folder.name for folder in folders]
    logs = {}
    for directory in directories:
        name = directory.path.name if names.count(directory.path.name) == 1 else str(directory.path)
        for partition in directory.partitions:
            logs[partition.path] = PartitionLog(
                broker=name if len(folders) > 1 else "",
                topic=partition.topic,
                partition=partition.partition,
                folder=str(partition.path),
                segments=tuple(segment.log.name for segment in partition.segments),
            )
    return sorted(logs.values())


def items_of(log: PartitionLog, name: str) -> Iterator[StoredBatch | CorruptRegion]:
    """The batches and unreadable regions of a log's segment; one of another file system is in memory as a whole."""
    path, end = log.file(name), log.end_of(name)
    items = scan(path.read_bytes()) if isinstance(path, Uri) else read_segment(path)
    return items if end is None else takewhile(lambda item: item.position < end, items)


@dataclass(frozen=True, slots=True)
class Split:
    """A byte range of a segment. It carries its number in the log, so no order depends on the order of a scan.

    Attributes:
        log: the log it belongs to.
        number: position in the log, from 0.
        count: splits of the log.
        segment: the segment's file name.
        start: where a batch begins, in bytes.
        end: where a batch ends, in bytes.
    """

    log: PartitionLog
    number: int
    count: int
    segment: str
    start: int
    end: int

    @property
    def path(self) -> Path:
        """The segment file."""
        return self.log.file(self.segment)

    @property
    def room(self) -> range:
        """The offsets that its segment may hold."""
        return self.log.room(self.segment)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.start

    @property
    def weight(self) -> int:
        """Bytes of a segment that take about as long to read."""
        return self.size * (TABLE_WEIGHT if header_tables.is_table(self.segment) else 1)


def plan(
    logs: Iterable[PartitionLog],
    split_bytes: int = SPLIT_BYTES,
    ask: Ask[tuple[Path, bool], list[tuple[int, int]]] = ask_here,
) -> list[Split]:
    """Cut logs into splits of about ``split_bytes``, inside a segment where its offset index knows a batch.

    What is reserved at the end of a log on this machine is left out (:func:`written_end`).

    Args:
        logs: the logs.
        split_bytes: segments up to this size are not cut.
        ask: asks :func:`ranges_of` about the larger segments, those with a reserved end, and all tables.

    Raises:
        OSError: a segment is not there.
    """
    logs = list(logs)
    files = [log.file(name) for log in logs for name in log.segments]
    sizes = dict(zip(files, sizes_of(files), strict=True))
    known = {file: [(0, size)] if size else [] for file, size in sizes.items()}
    reserved = set(filter(may_be_reserved, {log.file(log.segments[-1]) for log in logs if log.segments}))
    asked = [
        (file, file in reserved)
        for file, size in sizes.items()
        if header_tables.is_table(file) or size > split_bytes or file in reserved
    ]
    told = ask(partial(ranges_of, split_bytes=split_bytes), asked)
    known |= {file: ranges for (file, _), ranges in zip(asked, told, strict=True)}
    splits = []
    for log in logs:
        ranges = [(name, *r) for name in log.segments for r in known[log.file(name)]]
        splits += [Split(log, number, len(ranges), *r) for number, r in enumerate(ranges)]
    return splits


def ranges_of(asked: tuple[Path, bool], split_bytes: int) -> list[tuple[int, int]]:
    """Byte ranges that tile a segment, or the table of its headers; none for an empty one.

    The segment comes with whether its end may be reserved, which is left out then. A point from the index is used only
    if a whole batch with the right CRC begins there. A table takes about as long as a segment of :data:`TABLE_WEIGHT`
    times its size.
    """
    segment, is_reserved = asked
    if header_tables.is_table(segment):
        return header_tables.ranges_of(segment, split_bytes // TABLE_WEIGHT)
    size = written_end(segment) if is_reserved else segment.stat().st_size
    points = [0]
    if size > split_bytes:
        with open_at(segment, 0) as file:
            for point in read_index(segment).tolist():
                if points[-1] + split_bytes <= point < size and is_batch(file, point):
                    points.append(point)
    return [(a, b) for a, b in zip(points, [*points[1:], size], strict=True) if a < b]


def tasks(splits: Iterable[Split], task_bytes: int = SPLIT_BYTES, *, whole_logs: bool = False) -> list[list[Split]]:
    """Group splits into tasks of about ``task_bytes``, so that many tiny splits become few tasks.

    Args:
        splits: in order of their logs, and in order within a log.
        task_bytes: bytes of segments for one task.
        whole_logs: whether all splits of a log go to one task.
    """
    pieces = [list(own) for _, own in groupby(splits, lambda split: split.log)] if whole_logs else [[s] for s in splits]
    grouped: list[list[Split]] = []
    room = 0
    for piece in pieces:
        weight = sum(split.weight for split in piece)
        if not grouped or room < weight:
            grouped.append([])
            room = task_bytes
        grouped[-1] += piece
        room -= weight
    return grouped
