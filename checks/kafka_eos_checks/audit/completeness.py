"""What a log directory lacks of its logs, by the broker's checkpoint of high watermarks.

A broker never has a high watermark above the end of its log. So a log that ends below the mark in
``replication-offset-checkpoint`` was cut, emptied or not copied to its end, or its last records are lost. In a copy of
a running broker it may just be the older file, which is no fault.

Kafka: ReplicaManager.checkpointHighWatermarks
"""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kafka_eos_checks.audit.moments import Ended, Source
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.audit.segments.splits import SUFFIXES, PartitionLog


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
        told = source.directories.get(directory)
        if told is None:
            continue
        is_certain = told.stopped or told.read_ms is not None
        if not is_certain and not source.one_moment:
            continue
        broker = next(iter(own.values())).log.broker
        for (topic, partition), mark in sorted(told.high_watermarks.items()):
            here = own.get((topic, partition))
            folder = directory / f"{topic}-{partition}"
            if here is None:
                if mark and _is_without_segments(folder):
                    log = PartitionLog(broker, topic, partition, str(folder), ())
                    found.append(Short(log, 0, mark, is_certain))
            elif source.is_short(here.log, here.end) and _base(here.log.segments[-1]) == max(_segments(folder)):
                found.append(Short(here.log, here.end, mark, is_certain))
    return found


def _is_without_segments(folder: Path) -> bool:
    """Whether there is this folder, and no segment in it; False if it must not be read, since nobody asked for it."""
    try:
        return folder.is_dir() and not _segments(folder)
    except PermissionError:
        return False


def _segments(folder: Path) -> list[str]:
    """The base offsets of the segments in a partition's folder, as their names have them."""
    return [_base(file.name) for file in folder.iterdir() if file.name.partition(".")[2] in SUFFIXES]


def _base(name: str) -> str:
    return name.partition(".")[0]
