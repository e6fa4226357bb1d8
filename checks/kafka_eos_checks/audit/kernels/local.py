"""The audit in this process: no Spark, no JVM, no pyarrow. Below about a million batches nothing is faster."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_eos.formats.segment import CorruptRegion
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.headers import read_index
from kafka_eos_checks.audit.kernels.splits import PartitionLog, Split, plan
from kafka_eos_checks.audit.kernels.summary import Combine, Summary, chunks_of, reread_from, summarise
from kafka_eos_checks.audit.progress import Advance, byte_progress


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAudit:
    """What the audit of one log found.

    Attributes:
        log: the log.
        findings: violations, in order of position.
        damage: regions without a readable batch, each with its segment's file name.
        segment_bytes: bytes of all segments.
        batches: readable batches, markers included.
        records: records that their headers count.
        markers: control batches.
        transactional: batches of transactions, markers included.
        holes: jumps of the offsets, behind which a missing sequence is not judged.
        chunks: chunks that were summarised.
        reruns: chunks that the readable rule had to read again.
    """

    log: PartitionLog
    findings: tuple[Finding, ...] = ()
    damage: tuple[tuple[str, CorruptRegion], ...] = ()
    segment_bytes: int = 0
    batches: int = 0
    records: int = 0
    markers: int = 0
    transactional: int = 0
    holes: int = 0
    chunks: int = 0
    reruns: int = 0


def summaries_of(split: Split, check_crc: bool = True) -> Iterator[Summary]:
    """Read a split, chunk by chunk."""
    index = read_index(split.path)
    for start, headers in chunks_of(split, index, check_crc):
        yield summarise(split, start, headers)


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
    batches = records = markers = transactional = chunks = 0
    for chunk in summaries:
        combine.add(chunk)
        damage += [(splits[chunk.split].segment, d) for d in chunk.damage]
        batches += chunk.batches
        records += chunk.records
        markers += chunk.markers
        transactional += chunk.transactional
        chunks += 1
    return LogAudit(
        log=log,
        findings=tuple(combine.finish()),
        damage=tuple(damage),
        segment_bytes=sum(split.size for split in splits),
        batches=batches,
        records=records,
        markers=markers,
        transactional=transactional,
        holes=combine.holes,
        chunks=chunks,
        reruns=combine.reruns,
    )


def audit_logs(
    logs: Sequence[PartitionLog], *, check_crc: bool = True, split_bytes: int | None = None
) -> list[LogAudit]:
    """Audit logs one after the other, with progress on standard error.

    Args:
        logs: what to audit.
        check_crc: whether to compare each batch with its CRC.
        split_bytes: size of the pieces; the result does not depend on it.
    """
    splits = plan(logs) if split_bytes is None else plan(logs, split_bytes)
    by_log: dict[PartitionLog, list[Split]] = {log: [] for log in logs}
    for split in splits:
        by_log[split.log].append(split)
    audits = []
    with byte_progress("audit", sum(split.size for split in splits)) as advance:
        for log, own in by_log.items():
            audits.append(fold(log, own, _advancing(own, check_crc, advance), check_crc))
    return audits


def _advancing(splits: Sequence[Split], check_crc: bool, advance: Advance) -> Iterator[Summary]:
    for split in splits:
        for chunk in summaries_of(split, check_crc):
            advance(chunk.end - chunk.start)
            yield chunk
