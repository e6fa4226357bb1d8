"""Logs that lack their end, or offsets in their midst, as the checkpoints of their broker show.

A broker never has a high watermark above the end of its log. So a log that ends below the mark in
``replication-offset-checkpoint`` was cut, emptied or not copied to its end, or its last records are lost. In a copy of
a running broker it may just be the older file, which is no fault.

A leader gives every offset, and retention deletes a log from its beginning. So only the cleaner leaves holes between
batches, and ``cleaner-offset-checkpoint`` has the offset up to which it came in each log. Any other hole is of a
segment or a batch that is missing. Or the log was copied from a replica whose cleaner had been there, so such a hole is
not judged.

Kafka: ReplicaManager.checkpointHighWatermarks, LogCleanerManager.doneCleaning
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from kafka_eos.formats.log_directory import NotALogDirectory
from kafka_eos.formats.segment import CorruptRegion, RegionKind
from kafka_eos_checks.audit.moments import CLEANED, Directory, Ended, Source, read_checkpoint
from kafka_eos_checks.audit.rules.beside import offset_in, segment_with
from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs


class Short(NamedTuple):
    """A log that ends below its high watermark, though it is said to be of the same moment.

    Attributes:
        log: the log; without segments if its folder has none.
        end: one past its last offset.
        high_watermark: of the checkpoint.
        is_certain: whether its broker was shut down, or runs here. Otherwise a volume's snapshot may have been taken
            before the operating system had written the last records.
    """

    log: PartitionLog
    end: int
    high_watermark: int
    is_certain: bool

    def in_words(self) -> str:
        """The log, its end and its high watermark."""
        what = f"ends at offset {self.end:,}" if self.log.segments else "has no segment"
        return f"{self.log} {what}, and replication-offset-checkpoint has the high watermark {self.high_watermark:,}"


def short_logs(logs: Sequence[Ended], source: Source) -> list[Short]:
    """The logs that end below their high watermark, and the partitions' folders that have one and no segment.

    Args:
        logs: all that were read.
        source: the evidence in their directories, from before they were read.
    """
    found = []
    by_directory: dict[Path, dict[Place, Ended]] = defaultdict(dict)
    for each in logs:
        by_directory[each.log.directory][each.log.topic, each.log.partition] = each
    for directory, own in by_directory.items():
        told = source.directories.get(directory, Directory())
        broker = next(iter(own.values())).log.broker
        for (topic, partition), mark in sorted(told.high_watermarks.items()):
            folder = directory / f"{topic}-{partition}"
            log, end = PartitionLog(broker, topic, partition, str(folder), ()), 0
            if (known := own.get((topic, partition))) is not None:
                log, end = known.log, known.end
            if source.is_incomplete(log, end) and log.segments[-1:] == _last_segment(folder):
                found.append(Short(log, end, mark, told.is_settled))
    return found


class Read(Protocol):
    """A log that was read: see :class:`kafka_eos_checks.audit.kernels.logs.fold.LogAudit`."""

    @property
    def log(self) -> PartitionLog:
        """The log."""
        ...

    @property
    def damage(self) -> Sequence[tuple[str, CorruptRegion]]:
        """Its regions without a readable batch, each with its segment's file name."""
        ...

    @property
    def hole(self) -> tuple[int, int] | None:
        """Its last hole: the first offset that is missing, and the next one that is there; None without one."""
        ...


class Hole(NamedTuple):
    """The last hole of a log that its broker's cleaner has not made.

    Attributes:
        log: the log.
        first: the first offset that is missing.
        end: the next offset that is there.
    """

    log: PartitionLog
    first: int
    end: int

    def in_words(self) -> str:
        """The log, the offsets that are missing, and where."""
        file = segment_with(self.log, self.end)
        where = f"{'before' if offset_in(file) == self.end else 'inside of'} {file}"
        what = f"lacks the offsets {self.first:,} to {self.end - 1:,} {where}"
        return f"{self.log} {what}, and {CLEANED} does not show that its broker compacted it so far"


def holes_in(audits: Iterable[Read]) -> list[Hole]:
    """The logs with a hole that nothing explains. Read them first: a cleaner may go on meanwhile.

    Logs of coordinators are left out, because they are always compacted; so are logs with damage, which is reported.
    """
    cleaned: dict[Path, dict[Place, int]] = {}
    found = []
    for each in audits:
        log, damage = each.log, {region.kind for _, region in each.damage}
        if each.hole is None or log.topic in COORDINATOR_TOPICS or damage & {RegionKind.CORRUPT, RegionKind.OLD_FORMAT}:
            continue
        if log.directory not in cleaned:
            cleaned[log.directory] = read_checkpoint(log.directory / CLEANED)
        first, end = each.hole
        if end > cleaned[log.directory].get((log.topic, log.partition), -1):
            found.append(Hole(log, first, end))
    return found


def _last_segment(folder: Path) -> tuple[str, ...] | None:
    """The last segment in a partition's folder, if it has any; None without a folder.

    Also None for a folder that must not be read, since nobody may have asked for it, and where a symbolic link stands
    for the folder or a segment, since the link is not followed and may lead to the last segment.
    """
    try:
        if not folder.is_dir() or folder.is_symlink() or any(file.is_symlink() for file in folder.glob("*.log")):
            return None
        return find_logs(folder)[0].segments[-1:]
    except NotALogDirectory:
        return ()
    except PermissionError:
        return None
