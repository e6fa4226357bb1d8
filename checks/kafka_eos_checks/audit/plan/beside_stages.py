"""The stages for the files next to logs: the tasks that read them, and what each task compares.

The scan reads each snapshot with the last split of its segment. It sends the snapshot's entries, and the tails of all
splits, to the buckets of their producer ids. The rules over transactions pair markers with data by producer id. They
send the transactions of logs that have indexes to stretches of these logs. So no task needs a whole log, except for a
log whose offsets go backwards (:func:`look_beside`).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.kernels.logs.beside import (
    Held,
    Stored,
    StretchAborts,
    Tail,
    held_in,
    judge_entries,
    stored_in,
    tails,
)
from kafka_eos_checks.audit.kernels.logs.replicas import Digest, compare_digests, digest
from kafka_eos_checks.audit.kernels.logs.runs import Runs
from kafka_eos_checks.audit.kernels.logs.transactions import Paired, Part, Partition
from kafka_eos_checks.audit.plan.found import folders, found_rows
from kafka_eos_checks.audit.rules.beside import (
    Beside,
    Files,
    Last,
    audit_beside,
    judge_index,
    judge_replicas,
    last_batches,
)
from kafka_eos_checks.audit.segments.headers import Headers, Ints
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split, offset_in

HELD, TAILS, STORED, DIGESTS, BESIDE = range(20, 25)  # kinds of rows


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive segments of a log, whose indexes are compared by one task.

    Attributes:
        log: the number of the log.
        indexes: the names of the indexes.
    """

    log: int
    indexes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The files next to the logs, and the tasks that read them.

    Attributes:
        offsets: by number of a log that has any file, the offsets of its snapshots, ascending.
        snapshots: by log and split, the snapshots that are read with the split.
        stretches: all stretches of the logs that have indexes.
        stretch_of: by log with indexes, the number of each split's stretch.
    """

    offsets: Mapping[int, Sequence[int]] = field(default_factory=dict)
    snapshots: Mapping[tuple[int, int], Sequence[str]] = field(default_factory=dict)
    stretches: Sequence[Stretch] = ()
    stretch_of: Mapping[int, Ints] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Mapping[int, Files], splits: Sequence[Sequence[Split]], stretch_bytes: int) -> "Neighbours":
        """Share the files of some logs among the splits of all logs, in stretches of segments of about this size."""
        snapshots: dict[tuple[int, int], list[str]] = defaultdict(list)
        stretches: list[Stretch] = []
        stretch_of: dict[int, Ints] = {}
        for log, own in files.items():
            ranges = splits[log]
            if not ranges:
                continue
            bases = [offset_in(split.segment) for split in ranges]
            for name in own.snapshots:
                snapshots[log, max(bisect_right(bases, offset_in(name)) - 1, 0)].append(name)
            if not own.indexes:
                continue
            numbers, room = list[int](), 0
            for number, split in enumerate(ranges):
                is_new = not number or split.segment != ranges[number - 1].segment
                if is_new and room <= 0:
                    numbers.append(numbers[-1] + 1 if numbers else len(stretches))
                    room = stretch_bytes
                else:
                    numbers.append(numbers[-1])
                room -= split.weight
            stretch_of[log] = np.array(numbers, np.int64)
            place = [numbers[max(bisect_right(bases, offset_in(name)) - 1, 0)] for name in own.indexes]
            for number in range(numbers[0], numbers[-1] + 1):
                names = (name for name, at in zip(own.indexes, place, strict=True) if at == number)
                stretches.append(Stretch(log, tuple(names)))
        return cls({log: own.offsets for log, own in files.items()}, snapshots, stretches, stretch_of)

    def of_split(self, log: int, split: Split, buckets: int) -> Iterator[Row]:
        """The rows of the files that are read with a split."""
        for name in self.snapshots.get((log, split.number), ()):
            for bucket, stored in stored_in(split.log, log, name, buckets):
                yield Row(STORED, bucket, stored, stored.entries.nbytes)
        own = self.stretch_of.get(log)
        if own is not None and (not split.number or own[split.number] != own[split.number - 1]):
            yield Row(HELD, int(own[split.number]), Held())  # so that each stretch is judged

    def of_chunk(self, part: Part, headers: Headers, runs: Runs) -> Iterator[tuple[Part, Last]]:
        """The steps and the last batches of a chunk, if its log has snapshots."""
        offsets = self.offsets.get(part.log)
        if offsets:
            yield part, last_batches(headers, offsets, runs.last)

    def of_chunks(self, chunks: Sequence[tuple[Part, Last]], buckets: int) -> Iterator[Row]:
        """The rows of the chunks of a split that :meth:`of_chunk` has told."""
        if chunks:
            for bucket, tail in tails(chunks, self.offsets[chunks[0][0].log], buckets):
                yield Row(TAILS, bucket, tail, tail.parts.steps.nbytes + tail.last.nbytes)

    def of_steps(self, steps: Paired, logs: Iterable[int]) -> Iterator[Row]:
        """The rows of the transactions of some producer ids, for those of some logs that have indexes."""
        for log in logs:
            for stretch, held in held_in(steps, log, self.stretch_of[log]):
                yield Row(HELD, stretch, held, held.ended.nbytes)


def digest_row(log: int, partition: int, split: Split, start: int, headers: Headers) -> Row:
    """The row of a chunk of a log with replicas: the numbers of log and partition, and the chunk's digest."""
    own = digest(split.segment, start, headers)
    return Row(DIGESTS, partition, (log, own), own.blocks.nbytes)


def judge_stretch(
    number: int,
    values: Iterable[Held],
    *,
    stretches: Sequence[Stretch],
    partitions: Mapping[int, Partition],
    one_moment: bool,
) -> Iterator[Row]:
    """Compare the indexes of a stretch with the transactions that end in it."""
    stretch = stretches[number]
    if stretch.log not in partitions:
        return
    aborts, result = StretchAborts(partitions[stretch.log], values), Beside()
    for name in stretch.indexes:
        judge_index(aborts, name, result, one_moment=one_moment)
    yield from _rows_of(result, number, [aborts.log])


def judge_producers(
    bucket: int,
    values: Iterable[Tail | Stored],
    *,
    offsets: Mapping[int, Sequence[int]],
    partitions: Mapping[int, Partition],
    one_moment: bool,
) -> Iterator[Row]:
    """Compare the entries of the producer ids of a bucket in the snapshots of all logs."""
    stored: dict[int, list[Stored]] = defaultdict(list)
    own: dict[int, list[Tail]] = defaultdict(list)
    for value in values:
        if isinstance(value, Stored):
            stored[value.log].append(value)
        else:
            own[value.log].append(value)
    result, logs = Beside(), [log for log in sorted(stored) if log in partitions]
    for log in logs:
        judge_entries(partitions[log], offsets[log], own[log], stored[log], result, one_moment=one_moment)
    yield from _rows_of(result, bucket, [partitions[log].log for log in logs])


def judge_copies(
    number: int,
    values: Iterable[tuple[int, Digest]],
    *,
    replicas: Sequence[Sequence[PartitionLog]],
    logs: Sequence[PartitionLog],
    whole: Set[PartitionLog],
) -> Iterator[Row]:
    """Compare the replicas of a partition."""
    digests: dict[PartitionLog, list[Digest]] = defaultdict(list)
    for log, each in values:
        digests[logs[log]].append(each)
    result = Beside()
    judge_replicas(replicas[number], result, partial(compare_digests, digests=digests, whole=whole))
    yield from _rows_of(result, number, replicas[number])


def look_beside(item: tuple[int, PartitionLog], *, one_moment: bool, check_crc: bool) -> Iterator[Row]:
    """Judge the indexes and snapshots of a log without a batch, or whose offsets go backwards, by reading it."""
    number, log = item
    yield from _rows_of(audit_beside([log], one_moment=one_moment, check_crc=check_crc), number, [log])


def _rows_of(result: Beside, number: int, logs: Iterable[PartitionLog]) -> Iterator[Row]:
    yield from found_rows(result.findings, number, folders(logs))
    yield Row(BESIDE, number, replace(result, findings=[]))
