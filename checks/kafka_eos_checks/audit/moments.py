"""The moments of logs: up to which time a copy is known to have everything that was appended to its log.

The logs of a running broker are read or copied one after the other, so each is of a different moment. A marker whose
decision is not in the coordinator's log proves nothing if that log may be the older copy. A rule that concludes from a
missing record therefore asks first up to which moment the log is complete.

A log is complete up to the last timestamp that a *broker* set in it: on markers, on the records of coordinators, on
topics with LogAppendTime. Clients' clocks prove nothing. An idle log has no such timestamp, so files of its directory
have to show the moment. They say something only of replicas in sync, which may lag behind their leader by
:data:`LAG_MS`:

- a running broker holds the lock of its directory (``.lock``): its logs are of the moment at which they are read;
- ``replication-offset-checkpoint`` has the high watermarks of all logs at one moment, which is later than every
  timestamp below them. A copied log that reaches its own high watermark is of that moment or later. If copying kept the
  times of files (``cp -a``), the checkpoint file's own time is that moment, so even an idle cluster can be judged;
- ``.kafka_cleanshutdown``: nothing was appended after the last timestamp in the directory. All log directories of one
  broker that was shut down so are of one moment.

Logs of stopped brokers, of a recording or of a volume's snapshot are of one moment, and everything can be judged. A
log that ends below its own high watermark lacks records (:mod:`kafka_eos_checks.audit.completeness`). It is complete
only up to its last timestamp of a broker, whatever is said of its moment.

A question about a later moment is *too recent* if the log was copied at about that moment: a later audit can judge it.
Otherwise it is *not judged*: the log may be idle, or an older copy.

Kafka: LogManager.lockLogDirs, CleanShutdownFileHandler, ReplicaManager.checkpointHighWatermarks
"""

import fcntl
import os
import re
import struct
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf, isinf
from pathlib import Path
from typing import NamedTuple, Protocol

from kafka_eos.formats.log_directory import META_PROPERTIES, PARTITION_METADATA, broker_id, cluster_id
from kafka_eos.formats.transaction_log import DEFAULT_MAX_TIMEOUT_MS
from kafka_eos_checks.audit.places import Unreachable, is_uri
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.audit.segments.splits import PartitionLog

SNAPSHOT = "--snapshot"  # the option that says that logs are of one moment
SKEW_MS = 5_000  # the most by which the clocks of two brokers may differ
LAG_MS = 45_000  # replica.lag.time.max.ms, and half of it for the check's period: the most that a replica in sync lags
KEPT_MS = 2_000  # the most from the last timestamp of a log to its file's time, if copying kept the file's time
CLOCK_TICK_MS = 1_000  # the resolution of a file system's times
LOCK, CLEAN_SHUTDOWN, HIGH_WATERMARKS = ".lock", ".kafka_cleanshutdown", "replication-offset-checkpoint"
START_OFFSETS, RECOVERY_POINTS = "log-start-offset-checkpoint", "recovery-point-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"  # the offsets up to which logs were compacted
CHECKPOINTS = (HIGH_WATERMARKS, START_OFFSETS, RECOVERY_POINTS, CLEANED)
LONGEST_MS = DEFAULT_MAX_TIMEOUT_MS
GRACE_MS = 5 * 60_000  # added to it, as by `kafka-transactions find-hanging`


class Ended(Protocol):
    """A log that was read up to its end."""

    @property
    def log(self) -> PartitionLog:
        """The log."""
        ...

    @property
    def end(self) -> int:
        """One past the last offset."""
        ...


class Dated(Ended, Protocol):
    """The facts that date a log: its place, its end, and the timestamps that brokers set in it."""

    @property
    def stamped_ms(self) -> int:
        """The last timestamp of a broker, in milliseconds since the epoch; -1 for none."""
        ...

    def stamped_before(self, offset: int) -> float:
        """The last timestamp of a broker below an offset, in milliseconds since the epoch; ``-inf`` for none."""
        ...


class Damaged(NamedTuple):
    """A small text file that is not in its format: its name, the first line that is wrong, from 1, and why."""

    file: str
    line: int
    why: str

    def in_words(self) -> str:
        """The line and what is wrong there."""
        return f"{DAMAGED_FILE}: line {self.line}: {self.why}"


DAMAGED_FILE = "damaged file"
NO_LINE = "no line "
NO_TOPIC_ID = f"{NO_LINE}topic_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """The evidence in a log directory for the moment of its logs.

    Attributes:
        read_ms: when reading began, if its broker runs; None otherwise.
        started_ms: when its broker was started, if it runs and that is known; ``-inf`` otherwise.
        stopped: whether its broker was shut down cleanly.
        high_watermarks: the high watermark of each partition at the last checkpoint.
        checkpoint_ms: when the file of the checkpoint was written; ``-inf`` for none.
        recovery_points: up to which offset each partition was flushed, at the checkpoint of that.
        start_offsets: the first offset of the partitions that do not begin with their first segment: records were
            deleted, or older segments are in tiered storage; None if the checkpoint of that is missing.
        cluster: the id of its cluster; None if the directory does not tell.
        entries: the names of the directory's entries; None if only some of its partitions are looked at.
        damaged: its files that are not in their format; they count as missing.
    """

    read_ms: int | None = None
    started_ms: float = -inf
    stopped: bool = False
    high_watermarks: Mapping[Place, int] = field(default_factory=dict)
    checkpoint_ms: float = -inf
    recovery_points: Mapping[Place, int] = field(default_factory=dict)
    start_offsets: Mapping[Place, int] | None = None
    cluster: str | None = None
    entries: frozenset[str] | None = None
    damaged: Sequence["Damaged"] = ()

    @property
    def is_settled(self) -> bool:
        """Whether its logs certainly have what they had at the checkpoint: its broker was shut down, or runs here."""
        return self.stopped or self.read_ms is not None


def read_directory(folder: Path, now_ms: int, *, is_whole: bool = False) -> Directory:
    """Read the evidence in a log directory for the moment of its logs; missing files are no error.

    The entries of a directory that is looked at as a whole are listed after the checkpoints are read: a folder that its
    broker deletes meanwhile is still there, set aside.
    """
    holder = holder_of(folder / LOCK)
    return Directory(
        read_ms=None if holder is None else now_ms,
        started_ms=-inf if holder is None else _started_ms(holder),
        stopped=(folder / CLEAN_SHUTDOWN).is_file(),
        high_watermarks=read_checkpoint(folder / HIGH_WATERMARKS) or {},
        checkpoint_ms=written_ms(folder / HIGH_WATERMARKS),
        recovery_points=read_checkpoint(folder / RECOVERY_POINTS) or {},
        start_offsets=read_checkpoint(folder / START_OFFSETS),
        cluster=cluster_id(folder),
        damaged=damaged_in(folder, dict.fromkeys(CHECKPOINTS, TOPIC_PARTITION_OFFSET)),
        entries=frozenset(path.name for path in folder.iterdir()) if is_whole else None,
    )


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock of a file, as a broker does; False on systems other than Linux."""
    return holder_of(path) is not None


def holder_of(path: Path) -> int | None:
    """The id of the process that holds the lock of a file; 0 if it is in another container, None without one.

    A copy of hard links (``cp -al``) has the lock of the original, which is no lock of the copy: the files that the
    broker makes later are missing there.

    Raises:
        PermissionError: it must not be read. If it counted as missing, a running broker would seem stopped.
    """
    if not sys.platform.startswith("linux") or is_uri(str(path)):
        return None
    layout = "hhqqi4x"  # struct flock: type, whence, start, length, process
    try:
        with path.open("rb") as file:
            asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, process = struct.unpack(layout, fcntl.fcntl(file, fcntl.F_GETLK, asked))
            has_links = os.fstat(file.fileno()).st_nlink > 1
    except PermissionError:
        raise
    except OSError:
        return None
    if kind == fcntl.F_UNLCK or (has_links and not _has_opened(process, path)):
        return None
    return int(process)


def _has_opened(process: int, path: Path) -> bool:
    """Whether a process has a file open under this path; False if that may not be looked at."""
    try:
        wanted = path.resolve()
        return any(opened.readlink() == wanted for opened in Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return False


def _started_ms(process: int) -> float:
    """When a process of this machine was started, in milliseconds since the epoch; ``-inf`` if that is not known."""
    try:
        [booted] = (line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        ticks = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError):
        return -inf
    return 1000 * (int(booted.split()[1]) + ticks / os.sysconf("SC_CLK_TCK"))


def written_ms(path: Path) -> float:
    """The time of the last write to a file, in milliseconds since the epoch; ``-inf`` without a file."""
    try:
        return path.stat().st_mtime_ns / 1e6
    except Unreachable:
        raise
    except OSError:
        return -inf


def read_checkpoint(path: Path) -> dict[Place, int] | None:
    """The lines of a checkpoint, ``topic partition offset``; None if the file is missing, empty or damaged."""
    lines = _lines_of(path)
    if not lines or damage_of(path.name, lines, TOPIC_PARTITION_OFFSET) is not None:
        return None
    rows = (line.split() for line in lines[2:])
    return {(topic, int(number)): int(offset) for topic, number, offset in rows}


def damaged_in(folder: Path, words: Mapping[str, int]) -> tuple[Damaged, ...]:
    """The checkpoints in a folder that are damaged, by the number of words in their lines, and its other small files.

    An empty checkpoint is none: a broker makes it so.
    """
    found = [damage_of(name, lines, count) for name, count in words.items() if (lines := _lines_of(folder / name))]
    for name, wanted in _LINES.items():
        lines = _lines_of(folder / name)
        if lines is not None and not any(wanted.fullmatch(line.strip()) for line in lines):
            found.append(Damaged(name, 1, f"{NO_LINE}{wanted.pattern}"))
    return tuple(each for each in found if each is not None)


def damage_of(name: str, lines: Sequence[str], words: int) -> Damaged | None:
    """The damage of a checkpoint, None for none: the version 0, the number of lines that follow, and these.

    Args:
        name: the file's name.
        lines: its lines.
        words: the number of words in each of the lines that follow; the last two are numbers.
    """
    if lines[0] != "0":
        return Damaged(name, 1, f"{quoted_line(lines[0])}, and no version 0")
    count = lines[1] if len(lines) > 1 else ""
    if not _NUMBER.fullmatch(count):
        return Damaged(name, 2, f"{quoted_line(count)}, and no number of lines")
    for number, line in enumerate(lines[2:], 3):
        own = line.split()
        if len(own) != words or not all(_NUMBER.fullmatch(word) for word in own[-2:]):
            return Damaged(name, number, f"{quoted_line(line)}, and not {_FORMS[words]}")
    if int(count) != len(lines) - 2:
        return Damaged(name, 2, f"{count} lines are to follow, and {len(lines) - 2} do")
    return None


def quoted_line(line: str) -> str:
    """The beginning of a line that may be any bytes."""
    return repr(line[:LONGEST_LINE]) + "…" * (len(line) > LONGEST_LINE)


def _lines_of(path: Path) -> list[str] | None:
    """The lines of a small text file; None if it is missing, or a link, which may lead anywhere.

    Raises:
        PermissionError: it must not be read. If it counted as missing, a log that was cut short would seem whole.
    """
    try:
        return None if path.is_symlink() else path.read_text(encoding="latin-1").splitlines()
    except (Unreachable, PermissionError):
        raise
    except OSError:
        return None


LONGEST_LINE = 40  # characters of a line in a message
TOPIC_PARTITION_OFFSET, EPOCH_OFFSET = 3, 2  # words in the lines of checkpoints
_FORMS = {TOPIC_PARTITION_OFFSET: "topic, partition and offset", EPOCH_OFFSET: "epoch and offset"}
_NUMBER = re.compile(r"-?[0-9]{1,20}")
_LINES = {  # a line that a file must have
    META_PROPERTIES: re.compile(r"(?:node|broker)\.id *= *[0-9]{1,10}"),
    PARTITION_METADATA: re.compile(r"topic_id *: *\S+"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The evidence for the moments of logs, taken before they are read.

    Attributes:
        one_moment: whether all of them are of one moment.
        directories: the evidence of each log directory.
        longest_ms: how long a transaction may take on the cluster (``transaction.max.timeout.ms``).
        cut: the logs whose last segment is there and is not read, or is known to be missing.
    """

    one_moment: bool = True
    directories: Mapping[Path, Directory] = field(default_factory=dict)
    longest_ms: int = LONGEST_MS
    cut: frozenset[PartitionLog] = frozenset()

    @property
    def is_still(self) -> bool:
        """Whether each log is of the same moment as the files next to it: no broker wrote while they were copied."""
        stopped = [directory.stopped for directory in self.directories.values()]
        return self.one_moment or (bool(stopped) and all(stopped))

    def part(self, folders: Set[Path], whole: Set[Path]) -> "Source":
        """The evidence in the directories of one cluster: those with logs, and those that were given as a whole."""
        directories = {folder: told for folder, told in self.directories.items() if folder in folders | whole}
        stopped_alone = _are_stopped_at_once({folder: directories[folder] for folder in folders})
        return replace(self, one_moment=self.one_moment or stopped_alone, directories=directories)

    def are_of_one_cluster(self, one: PartitionLog, other: PartitionLog) -> bool:
        """Whether two logs are of one cluster, as far as their directories tell."""
        told = {self.cluster_of(one), self.cluster_of(other)}
        return None in told or len(told) == 1

    def cluster_of(self, log: PartitionLog) -> str | None:
        """The id of a log's cluster; None if its directory does not tell."""
        return self.directories.get(log.directory, Directory()).cluster

    def deleted_below(self, log: PartitionLog) -> int:
        """The offset below which records of a log were deleted on request, though its segments may still have them."""
        return (self.directories.get(log.directory, Directory()).start_offsets or {}).get(_place(log), 0)

    def is_short(self, log: PartitionLog, end: int) -> bool:
        """Whether a log lacks its end: it is cut, or ends below its high watermark and may be the older copy."""
        if log in self.cut:
            return True
        mark = self.directories.get(log.directory, Directory()).high_watermarks.get(_place(log))
        return mark is not None and log.end_after(end) < mark

    def is_incomplete(self, log: PartitionLog, end: int) -> bool:
        """Whether a log lacks its end, though it is no older than the checkpoint with its high watermark."""
        if log in self.cut:
            return True
        told = self.directories.get(log.directory, Directory())
        return (self.one_moment or told.is_settled) and self.is_short(log, end)


def look_at(
    logs: Iterable[PartitionLog],
    *,
    one_moment: bool,
    longest_ms: int = LONGEST_MS,
    whole: Set[Path] = frozenset(),
) -> Source:
    """Read the evidence in the directories of logs, and in those that are given as a whole; call it before reading."""
    now_ms = time.time_ns() // 1_000_000
    folders = {log.directory for log in logs}
    directories = {each: read_directory(each, now_ms, is_whole=each in whole) for each in folders | whole}
    stopped_alone = _are_stopped_at_once({each: directories[each] for each in folders})
    return Source(one_moment=one_moment or stopped_alone, directories=directories, longest_ms=longest_ms)


def _are_stopped_at_once(directories: Mapping[Path, Directory]) -> bool:
    """Whether log directories are all of one broker that was shut down cleanly."""
    return all(told.stopped for told in directories.values()) and _are_of_one_broker(directories.keys())


def _are_of_one_broker(folders: Collection[Path]) -> bool:
    """Whether cleanly stopped log directories are those of one broker, which has stopped them at once.

    The file of a clean shutdown has the broker's epoch, another one after each start. (Kafka 2.8 leaves it empty.)
    """
    told = {(broker_id(each), cluster_id(each), (each / CLEAN_SHUTDOWN).read_bytes()) for each in folders}
    return len(folders) == 1 or (len(told) == 1 and all(broker is not None for broker, _, _ in told))


def options_of(one_moment: bool, longest_ms: int) -> tuple[str, ...]:
    """The options of the next command: they repeat what a user said of the moments of logs."""
    longest = f"--max-transaction-timeout {longest_ms / 60_000:.15g}"
    return (SNAPSHOT,) * one_moment + (longest,) * (longest_ms != LONGEST_MS)


class Moments:
    """The moments of some logs.

    Args:
        source: the evidence taken before the logs were read.
        logs: the logs that were read.

    Attributes:
        last_ms: the last moment known from any log or directory, in milliseconds since the epoch; ``-inf`` for none.
    """

    def __init__(self, source: Source, logs: Iterable[Dated]) -> None:
        self.source = source
        dated_logs = list(logs)
        self._written: dict[Path, float] = {}  # times of files, cached
        by_folder: dict[Path, list[Dated]] = defaultdict(list)
        for dated in dated_logs:
            by_folder[dated.log.directory].append(dated)
        self._checkpoints: dict[Path, float] = {}
        self._stopped: dict[Path, float] = {}
        self._timed: set[Path] = set()  # directories whose files have the times of the last appends
        for folder, own in by_folder.items():
            directory = source.directories.get(folder, Directory())
            marks = directory.high_watermarks
            below = (each.stamped_before(marks.get(_place(each.log), -1)) for each in own)
            self._checkpoints[folder] = max(below, default=-inf)
            if any(self._keeps_times(each) for each in own):
                self._timed.add(folder)
                self._checkpoints[folder] = max(self._checkpoints[folder], directory.checkpoint_ms)
            self._stopped[folder] = max(each.stamped_ms for each in own) if directory.stopped else -inf
        self._latest: dict[Place, int] = {}  # of all replicas
        for dated in dated_logs:
            place = _place(dated.log)
            self._latest[place] = max(dated.stamped_ms, self._latest.get(place, -1))
        self._stamped_ms = max((float(dated.stamped_ms) for dated in dated_logs if dated.stamped_ms > 0), default=-inf)
        runs = [float(each.read_ms) for each in source.directories.values() if each.read_ms is not None]
        self.last_ms = max([*runs, self._stamped_ms])

    def in_words(self) -> str:
        """The moments of the logs in words."""
        until = "" if isinf(self._stamped_ms) else f", up to {in_words(self._stamped_ms)}"
        if self.source.one_moment:
            return f"of one moment{until}"
        runs = sum(directory.read_ms is not None for directory in self.source.directories.values())
        if runs:
            return f"of a running broker{until}: records younger than {LAG_MS // 1000} s may be too recent to judge"
        return f"of moments that may differ{until}: --snapshot, if the brokers stood still or it is a volume's snapshot"

    def reach(self, dated: Dated) -> float:
        """The moment up to which a log is known to be complete, in ms since the epoch; ``inf`` for ever."""
        return self.reach_of(dated.log, dated.end, dated.stamped_ms)

    def reach_of(self, log: PartitionLog, end: int, stamped_ms: float) -> float:
        """The same as :meth:`reach`, for a log with this end and this last timestamp of a broker."""
        if self.source.is_short(log, end):
            return float(stamped_ms)
        if self.source.one_moment:
            return inf
        folder = log.directory
        directory = self.source.directories.get(folder, Directory())
        told = [self._stopped.get(folder, -inf)]
        if directory.read_ms is not None:
            told.append(float(directory.read_ms))
        mark = directory.high_watermarks.get(_place(log))
        if mark is not None and end >= mark:
            told.append(self._checkpoints.get(folder, -inf))
        return max(float(stamped_ms), max(told) - LAG_MS)

    def ran_for(self, log: PartitionLog, span_ms: float) -> bool:
        """Whether the broker of a log has not been started a shorter time ago; True if that is not known.

        What was due while all brokers were down is done soon after a start, so a rule gives it that time.
        """
        directory = self.source.directories.get(log.directory, Directory())
        return directory.read_ms is None or directory.read_ms - directory.started_ms > span_ms

    def covers(self, dated: Dated, moment_ms: float) -> bool:
        """Whether a log is known to be complete up to a moment of another broker's clock."""
        return moment_ms + SKEW_MS <= self.reach(dated)

    def is_latest(self, dated: Dated) -> bool:
        """Whether no other replica of its partition has a later timestamp of a broker, as a later leader may have."""
        return dated.stamped_ms >= self._latest.get(_place(dated.log), -1)

    def recent_after(self, dated: Dated) -> float:
        """The moment from which on anything that a log lacks is too recent to judge; before it, it is not judged.

        A file's time is that of the copy, or of the last append before it. It is too late if a copy was copied again,
        so no violation depends on it.
        """
        if self.source.is_incomplete(dated.log, dated.end):  # a later audit of the same files finds no more
            return inf
        reach = self.reach(dated)
        directory = self.source.directories.get(dated.log.directory, Directory())
        if directory.read_ms is not None or not dated.log.segments:
            return reach
        if isinf(directory.checkpoint_ms):  # only folders of partitions: not a copy of a whole directory
            return inf
        return max(reach, self._written_ms(dated.log.file(dated.log.segments[-1])) - LAG_MS)

    def common_recent_after(self, logs: Iterable[Dated]) -> float:
        """The same as :meth:`recent_after`, for something that may be missing in any of these logs."""
        return min((self.recent_after(dated) for dated in logs), default=inf)

    def written_by(self, log: PartitionLog, file: str) -> float:
        """The moment of the last append to a file, if its time can be trusted; else ``inf``.

        It can be trusted if the broker runs here, or if copying kept the times of files.
        """
        folder = log.directory
        if self.source.directories.get(folder, Directory()).read_ms is None and folder not in self._timed:
            return inf
        written = self._written_ms(log.file(file))
        return inf if isinf(written) else written

    def _keeps_times(self, dated: Dated) -> bool:
        """Whether the time of a log's last file agrees with the log's last timestamp of a broker: copying kept it."""
        if not dated.log.segments or dated.stamped_ms <= 0:
            return False
        written = self._written_ms(dated.log.file(dated.log.segments[-1]))
        return 0 <= written + CLOCK_TICK_MS - dated.stamped_ms <= KEPT_MS

    def _written_ms(self, path: Path) -> float:
        if path not in self._written:
            self._written[path] = written_ms(path)
        return self._written[path]


def in_words(ms: float) -> str:
    """A moment, in milliseconds since the epoch, in UTC."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", " UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms:.0f} ms since the epoch"


def span(ms: float) -> str:
    """A time span in at most two units."""
    seconds = int(ms) // 1000
    if seconds < 60:
        return f"{max(ms, 0) / 1000:.3g} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min" + (f" {seconds} s" if seconds else "")
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    return f"{hours // 24} days"


def _place(log: PartitionLog) -> Place:
    return log.topic, log.partition


ONE_MOMENT = Source()
AT_ONE_MOMENT = Moments(ONE_MOMENT, ())
