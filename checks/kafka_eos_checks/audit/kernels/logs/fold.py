"""The audit of one log: its splits summarised chunk by chunk, and the chunks folded in order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kafka_eos.formats.segment import CorruptRegion, RegionKind
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.logs.copies import with_first_copies
from kafka_eos_checks.audit.kernels.logs.runs import Runs
from kafka_eos_checks.audit.kernels.logs.summary import READ_FIRST, Combine, Summary, chunks_of, reread_from, summarise
from kafka_eos_checks.audit.kernels.logs.transactions import Partition, PartitionFold
from kafka_eos_checks.audit.rules.epochs import LeaderRun, joined
from kafka_eos_checks.audit.rules.transactions.partitions import hides_batches
from kafka_eos_checks.audit.segments.headers import Block, Headers, read_index
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAudit:
    """The result of the audit of one log.

    Attributes:
        log: the log.
        findings: violations, in order of position.
        damage: regions without a readable batch, each with its segment's file name.
        undecoded: the same of batches with the right CRC whose records cannot be decoded, if the records were read.
        segment_bytes: bytes of all segments.
        batches: readable batches, markers included.
        records: records that their headers count.
        markers: control batches.
        transactional: batches of transactions, markers included.
        holes: jumps of the offsets; a sequence that is missing across one is not judged.
        hole: the last offsets that are missing: the first of them, and the next one that is there. Those between the
            name of the first segment and its first batch count, too, and those of a batch that has fewer records. None
            if there are none.
        chunks: chunks that were summarised.
        reruns: chunks that the readable rule had to read again.
        led: the runs of its leaders, in log order.
        partition: the facts of the whole log that the rules over transactions need.
    """

    log: PartitionLog
    findings: tuple[Finding, ...] = ()
    damage: tuple[tuple[str, CorruptRegion], ...] = ()
    undecoded: tuple[tuple[str, CorruptRegion], ...] = ()
    segment_bytes: int = 0
    batches: int = 0
    records: int = 0
    markers: int = 0
    transactional: int = 0
    holes: int = 0
    hole: tuple[int, int] | None = None
    chunks: int = 0
    reruns: int = 0
    led: tuple[LeaderRun, ...] = ()
    partition: Partition | None = field(default=None, compare=False, repr=False)

    @property
    def is_damaged(self) -> bool:
        """Whether a region that is no unfinished tail has no readable batch."""
        return any(region.kind is RegionKind.CORRUPT for _, region in self.damage)


def summaries_of(
    split: Split,
    check_crc: bool = True,
    high_watermark: int = -1,
    take: Callable[[Block], None] | None = None,
    columns: Sequence[str] = READ_FIRST,
    offsets: Sequence[int] = (),
) -> Iterator[tuple[Summary, Headers, Runs]]:
    """Read a split and summarise it: the summary, the batches and the runs of each chunk.

    The arguments are those of :func:`chunks_of` and :func:`summarise`.
    """
    index = read_index(split.path)
    for start, headers, marks in chunks_of(split, index, check_crc, take, columns):
        summary, runs = summarise(split, start, headers, marks, high_watermark, offsets)
        yield summary, headers, runs


def fold(log: PartitionLog, splits: Sequence[Split], summaries: Iterable[Summary], check_crc: bool = True) -> LogAudit:
    """Combine the summaries of one log, in order.

    Args:
        log: the log.
        splits: all its splits, in order.
        summaries: the summaries of all their chunks, in order.
        check_crc: whether batches were compared with their CRC.
    """
    combine = Combine(splits, reread_from(splits, check_crc))
    damage: list[tuple[str, CorruptRegion]] = []
    undecoded: list[tuple[str, CorruptRegion]] = []
    batches = records = markers = transactional = chunks = 0
    whole = PartitionFold(log, [split.segment for split in splits])
    missing: list[tuple[int, int]] = []
    led: list[LeaderRun] = []
    damaged_end = False
    for chunk in summaries:
        combine.add(chunk)
        if chunk.batches:
            named = int(splits[chunk.split].segment.partition(".")[0])
            if not batches and named < chunk.first_offset:
                missing.append((named, chunk.first_offset))
            whole.add(
                (chunk.split, chunk.start),
                chunk.transactions,
                (chunk.first_offset, chunk.end_offset),
                holes=combine.holes,
                before=combine.holes - chunk.holes,
                disordered=chunk.disordered,
                first_hole=chunk.first_hole,
                hole_starts=chunk.hole_starts,
            )
        missing += filter(None, [chunk.thinned])
        led += chunk.led
        damaged_end = chunk.damaged_end or (damaged_end and not chunk.batches)
        damage += [(splits[chunk.split].segment, d) for d in chunk.damage]
        undecoded += [(splits[chunk.split].segment, d) for d in chunk.undecoded]
        batches += chunk.batches
        records += chunk.records
        markers += chunk.markers
        transactional += chunk.transactional
        chunks += 1
    return LogAudit(
        log=log,
        findings=tuple(with_first_copies(combine.finish(), splits, check_crc)),
        damage=tuple(damage),
        undecoded=tuple(undecoded),
        segment_bytes=sum(split.size for split in splits),
        batches=batches,
        records=records,
        markers=markers,
        transactional=transactional,
        holes=combine.holes,
        hole=max(filter(None, [combine.hole, *missing]), key=lambda hole: hole[1], default=None),
        chunks=chunks,
        reruns=combine.reruns,
        led=tuple(joined(led)),
        partition=replace(
            whole.partition(), damaged=any(hides_batches(region) for _, region in damage), damaged_end=damaged_end
        ),
    )
