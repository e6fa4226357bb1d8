"""The readable rule as the oracle: it runs over whole logs again, batch by batch, and both have to find the same.

What the audit does fast it does twice differently: it reads headers with numpy, many at a time, and it folds chunks
whose past it does not know. The oracle decodes each batch with the readable decoder and folds them one by one, in
order. Compared are the findings, row by row, and the regions without a batch. Tables of headers have no second decoder:
of them it is the fold alone that is done differently.

The rules over transactions, offsets, histories and applications are folds in order themselves; they have no faster
form to compare.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil
from pathlib import Path

from kafka_eos.formats.segment import CorruptRegion, StoredBatch, read_segment
from kafka_eos_checks.audit.header_tables import is_table, read_table
from kafka_eos_checks.audit.kernels.logs import LogAudit
from kafka_eos_checks.audit.kernels.splits import PartitionLog
from kafka_eos_checks.audit.kernels.summary import columns_of
from kafka_eos_checks.audit.progress import byte_progress
from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS, SEQUENCE_MASK, Batch, Log
from kafka_eos_checks.kit.verdict import Verdict

SHOWN = 20
EXPECTED = "0 differences"
# Of a finding: file, position, rule, offset, producer id, producer epoch, base sequence, evidence, kind.
# Of a region: file, position, kind, end.
Row = tuple[object, ...]


def readable_rows(log: PartitionLog) -> Iterator[Row]:
    """What the readable decoder and the readable rule find in a log, in order."""
    state = Log()
    for name in log.segments:
        path = Path(log.folder, name)
        read = _stored_in_table(path, log.topic) if is_table(path) else _stored(path, log.topic)
        for batch in read:
            if isinstance(batch, CorruptRegion):
                yield name, batch.position, batch.kind.value, batch.end
                continue
            state, violation = state.append(batch)
            if violation is not None:
                place = name, batch.position, violation.rule, batch.base_offset
                row = *place, batch.producer_id, batch.producer_epoch, batch.base_sequence
                yield *row, violation.evidence, violation.kind.value


def _stored(segment: Path, topic: str) -> Iterator[Batch | CorruptRegion]:
    """What a segment has, in order."""
    for item in read_segment(segment):
        yield item if isinstance(item, CorruptRegion) else _batch_of(item, topic)


def _stored_in_table(table: Path, topic: str) -> Iterator[Batch | CorruptRegion]:
    """What a table of headers has, in order but for its regions, which come before their row group."""
    for headers in read_table(table):
        yield from headers.damage
        yield from columns_of(headers, topic).batches()


def _batch_of(stored: StoredBatch, topic: str) -> Batch:
    found = stored.batch
    return Batch(
        position=stored.position,
        base_offset=found.base_offset,
        last_offset=found.last_offset,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        base_sequence=found.base_sequence,
        last_sequence=(found.base_sequence + found.last_offset_delta) & SEQUENCE_MASK,
        unsequenced=found.is_control or found.base_sequence < 0 or topic in COORDINATOR_TOPICS,
    )


def rows_of(audit: LogAudit) -> Iterator[Row]:
    """What the audit found in a log, in the same form."""
    for f in audit.findings:
        yield (
            f.file,
            f.position,
            f.rule,
            f.offset,
            f.producer_id,
            f.producer_epoch,
            f.base_sequence,
            f.evidence,
            f.kind,
        )
    for file, region in audit.damage:
        yield file, region.position, region.kind.value, region.end


def chosen(audits: Sequence[LogAudit], share: float, seed: int) -> list[LogAudit]:
    """A share of the logs by chance, at least one; all for 1."""
    count = min(len(audits), max(1, ceil(share * len(audits))))
    return random.Random(seed).sample(list(audits), count)


def judge(audits: Sequence[LogAudit], share: float = 1.0, seed: int = 0) -> Verdict:
    """Whether the readable rule finds what the audit found.

    Args:
        audits: of the logs; their batches were compared with their CRCs.
        share: of the logs to look at, above 0 and up to 1. A fold begins where its log does, so a log is looked at as
            a whole or not at all.
        seed: decides which.
    """
    started = time.perf_counter()
    own = chosen(audits, share, seed) if audits else []
    differences: list[str] = []
    rows = 0
    with byte_progress("oracle", sum(audit.segment_bytes for audit in own)) as advance:
        for audit in own:
            readable, fast = Counter(readable_rows(audit.log)), Counter(rows_of(audit))
            rows += readable.total()
            differences += [f"{audit.log}: only the readable rule: {row}" for row in (readable - fast).elements()]
            differences += [f"{audit.log}: only the audit: {row}" for row in (fast - readable).elements()]
            advance(audit.segment_bytes)
    found = f"{len(differences)} differences"
    rest = len(differences) - SHOWN
    return Verdict(
        check="replay",
        name="readable rule agrees",
        expected=EXPECTED,
        found=found,
        ok=found == EXPECTED,
        seconds=time.perf_counter() - started,
        figures={
            "logs": len(own),
            "of": len(audits),
            "batches": sum(a.batches for a in own),
            "rows": rows,
            "seed": seed,
        },
        evidence="\n".join(differences[:SHOWN] + ([f"… and {rest} more"] if rest > 0 else [])),
    )
