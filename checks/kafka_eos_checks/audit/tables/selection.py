"""The selection of a part of the logs: by topic, partition, offset, time and producer."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kafka_eos.formats.varint import INT64_MAX, INT64_MIN
from kafka_eos_checks.audit.segments.headers import Headers, Mask
from kafka_eos_checks.audit.segments.records import Records
from kafka_eos_checks.audit.segments.splits import PartitionLog

OPTIONS = ("topic", "partition", "producerid", "startingoffset", "endingoffset", "startingtimestamp", "endingtimestamp")


@dataclass(frozen=True, slots=True)
class Range:
    """The whole numbers from ``start`` on and below ``end``."""

    start: int = INT64_MIN
    end: int = INT64_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The batches that are wanted; None and the widest range mean all.

    Attributes:
        topics: their names.
        partitions: their numbers.
        producers: producer ids; -1 for batches without one.
        offsets: the offsets of wanted records.
        times: the times of wanted records, in milliseconds since the epoch.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    producers: frozenset[int] | None = None
    offsets: Range = Range()
    times: Range = Range()

    def logs(self, found: Iterable[PartitionLog]) -> Iterator[PartitionLog]:
        """The logs that may have wanted batches, each with the segments that may."""
        for log in found:
            if (self.topics is None or log.topic in self.topics) and (
                self.partitions is None or log.partition in self.partitions
            ):
                yield replace(log, segments=tuple(self._segments(log)))

    def _segments(self, log: PartitionLog) -> Iterator[str]:
        """The segments that may have wanted offsets: from the segment's name up to the next one's."""
        bases = [int(name.partition(".")[0]) for name in log.segments]
        for name, base, following in zip(log.segments, bases, [*bases[1:], INT64_MAX], strict=True):
            if base < self.offsets.end and following > self.offsets.start:
                yield name

    def of_batches(self, headers: Headers) -> Mask:
        """Whether each batch has a wanted offset and, by its header, a wanted time; shape (n,)."""
        base = headers.column("base_offset")
        mask: Mask = (base < self.offsets.end) & (base + headers.column("last_offset_delta") >= self.offsets.start)
        mask &= self._of_producers(headers)
        highest = headers.column("max_timestamp")
        # The base timestamp may be later: of a client whose clock is ahead of LogAppendTime, or a delete horizon.
        mask &= (highest >= self.times.start) & (np.minimum(headers.column("base_timestamp"), highest) < self.times.end)
        return mask

    def of_records(self, headers: Headers, records: Records) -> Mask:
        """Whether each record is wanted; shape (n,)."""
        mask: Mask = (records.offset >= self.offsets.start) & (records.offset < self.offsets.end)
        mask &= (records.timestamp >= self.times.start) & (records.timestamp < self.times.end)
        return mask & self._of_producers(headers)[records.batch]

    def to_decode(self, headers: Headers) -> Mask:
        """Whether each batch may have wanted records, shape (n,); its first timestamp need not be the lowest."""
        return replace(self, times=Range()).of_batches(headers)

    def _of_producers(self, headers: Headers) -> Mask:
        if self.producers is None:
            return np.ones(len(headers), np.bool_)
        return np.isin(headers.column("producer_id"), list(self.producers))


def from_options(options: Mapping[str, str]) -> Selection:
    """Read a selection from a data source's options, by lower-case names.

    Raises:
        ValueError: an option that must be a number is no number, or a range ends before it starts.
    """
    return Selection(
        topics=frozenset({options["topic"]}) if "topic" in options else None,
        partitions=frozenset({_number(options, "partition", 0)}) if "partition" in options else None,
        producers=frozenset({_number(options, "producerid", 0)}) if "producerid" in options else None,
        offsets=_range(options, "startingoffset", "endingoffset"),
        times=_range(options, "startingtimestamp", "endingtimestamp"),
    )


def _range(options: Mapping[str, str], start: str, end: str) -> Range:
    found = Range(_number(options, start, INT64_MIN), _number(options, end, INT64_MAX))
    if found.start >= found.end:
        raise ValueError(
            f"kafka_log: option {end} {found.end} is not above {start} {found.start}: nothing is in between"
        )
    return found


def _number(options: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(options.get(name, default))
    except ValueError:
        raise ValueError(f"kafka_log: option {name} is {options[name]!r}, not a whole number") from None
