"""The readable rule as the oracle: it runs over whole logs again, batch by batch, and both have to find the same.

What the audit does fast it does twice differently: it reads headers with numpy, many at a time, and it folds chunks
whose past it does not know. The oracle decodes each batch with the readable decoder and folds them one by one, in
order. Compared are the findings, row by row, and the regions without a batch. Tables of headers have no second decoder:
of them it is the fold alone that is done differently.

A log of ``__transaction_state`` or ``__consumer_offsets`` is also folded record by record, with the readable decoders,
and all that is known of each transactional id and each committed offset has to be the same.

The rules over transactions, histories and applications are folds in order themselves; they have no faster form to
compare.
"""

import random
import time
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import astuple
from math import ceil
from pathlib import Path

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.segment import CorruptRegion, StoredBatch, read_segment
from kafka_eos.formats.transaction_log import TOPIC as STATE_TOPIC
from kafka_eos_checks.audit.header_tables import is_table, read_table
from kafka_eos_checks.audit.kernels.contents import Figures
from kafka_eos_checks.audit.kernels.coordinators import read_coordinator_log
from kafka_eos_checks.audit.kernels.groups import read_group_log
from kafka_eos_checks.audit.kernels.local import LogAudit
from kafka_eos_checks.audit.kernels.splits import PartitionLog
from kafka_eos_checks.audit.kernels.summary import columns_of
from kafka_eos_checks.audit.progress import byte_progress
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog, follow_coordinator_log
from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS, SEQUENCE_MASK, Batch, Log
from kafka_eos_checks.audit.rules.offsets import GroupLog, follow_group_log, went_back
from kafka_eos_checks.kit.verdict import Verdict

SHOWN = 20
EXPECTED = "0 differences"
# Of a finding: file, position, rule, offset, producer id, producer epoch, base sequence, evidence, kind.
# Of a region: file, position, kind, end.
Row = Hashable


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


def state_rows(log: CoordinatorLog) -> Iterator[Row]:
    """What a log of ``__transaction_state`` says: as a whole, its findings, and each transactional id."""
    yield log.records, log.unknown, log.unreadable, log.start, log.end, log.holes, log.damaged, log.stamped_ms
    yield from log.findings
    for known in log.ids.values():
        decided = tuple(map(astuple, known.transactions))
        yield known.name, known.last, known.last_ms, tuple(known.current), known.certain, known.holes, decided
        yield known.name, frozenset(known.producer_ids), tuple(known.grants)


def offset_rows(log: GroupLog) -> Iterator[Row]:
    """What a log of ``__consumer_offsets`` says: as a whole, what counted, and what went back."""
    yield log.end, log.holes, log.whole, log.stamped_ms
    for name, commits in log.commits.items():
        yield name, tuple(commits)
    figures: Figures = {"checked": 0, "unknown": 0}
    yield from went_back([log], figures)
    yield tuple(figures.items())


def coordinator_rows(log: PartitionLog) -> tuple[Counter[Row], Counter[Row]]:
    """What the readable rule and the columns say of a coordinator's log; nothing of other logs."""
    if log.topic == STATE_TOPIC and log.has_records:
        return Counter(state_rows(follow_coordinator_log(log))), Counter(state_rows(read_coordinator_log(log)))
    if log.topic == OFFSETS_TOPIC and log.has_records:
        return Counter(offset_rows(follow_group_log(log))), Counter(offset_rows(read_group_log(log)))
    return Counter(), Counter()


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
    rows = known = 0
    with byte_progress("oracle", sum(audit.segment_bytes for audit in own)) as advance:
        for audit in own:
            readable, fast = Counter(readable_rows(audit.log)), Counter(rows_of(audit))
            rows += readable.total()
            followed, by_columns = coordinator_rows(audit.log)
            known += followed.total()
            readable, fast = readable + followed, fast + by_columns
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
            "coordinator_rows": known,
            "seed": seed,
        },
        evidence="\n".join(differences[:SHOWN] + ([f"… and {rest} more"] if rest > 0 else [])),
    )
