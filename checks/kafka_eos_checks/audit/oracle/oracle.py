"""The readable rules as the oracle: they run over whole logs again, batch by batch, and have to find the same.

The audit is fast for two reasons: it reads headers with numpy, many at a time, and it folds chunks without knowing what
came before them. The oracle decodes each batch with the readable decoder and folds the batches one by one, in order. It
compares the findings, row by row, and the regions without a batch. Tables of headers have no second decoder, so only
the fold differs there.

A log of ``__transaction_state`` or ``__consumer_offsets`` is also folded record by record, with the readable decoders.
The facts of each transactional id and each committed offset have to be the same.

If the share is 1, transactions and histories are also judged by the readable rules only, and the findings have to be
the same. All events of histories are then in memory.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import astuple, replace
from itertools import chain
from math import ceil
from pathlib import Path

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.segment import CorruptRegion, StoredBatch
from kafka_eos.formats.transaction_log import TOPIC as STATE_TOPIC
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import read_coordinator_log
from kafka_eos_checks.audit.kernels.coordinators.group_log import read_group_log
from kafka_eos_checks.audit.kernels.logs.fold import LogAudit
from kafka_eos_checks.audit.kernels.logs.runs import columns_of
from kafka_eos_checks.audit.moments import ONE_MOMENT, Source
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog, follow_coordinator_log
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES, Join
from kafka_eos_checks.audit.rules.log import (
    COORDINATOR_TOPICS,
    DUPLICATE,
    SEQUENCE_MASK,
    Batch,
    Log,
    Sequenced,
    Violation,
    counted,
    first_copies,
)
from kafka_eos_checks.audit.rules.offsets import GroupLog, follow_group_log, last_offsets, went_back
from kafka_eos_checks.audit.rules.transactions.judge import TransactionAudit, audit_transactions
from kafka_eos_checks.audit.rules.transactions.names import TRANSACTION_RULES
from kafka_eos_checks.audit.rules.transactions.partitions import read_transactions
from kafka_eos_checks.audit.segments.contents import Figures
from kafka_eos_checks.audit.segments.header_tables import is_table, read_table
from kafka_eos_checks.audit.segments.splits import PartitionLog, items_of
from kafka_eos_checks.kit.progress import byte_progress
from kafka_eos_checks.kit.verdict import Verdict

SHOWN = 20
EXPECTED = "0 differences"
# Of a finding: file, position, rule, offset, producer id, producer epoch, base sequence, evidence, kind.
# Of a region: file, position, kind, end.
Row = Hashable


def readable_rows(log: PartitionLog) -> Iterator[Row]:
    """The findings and damage of a log by the readable decoder and the readable rule."""
    found: list[tuple[str, Batch, Violation]] = []
    state = Log()
    for name in log.segments:
        room = log.room(name)
        for batch in _read(log, name):
            if isinstance(batch, CorruptRegion):
                yield name, batch.position, batch.kind.value, batch.end
                continue
            state, violation = state.append(batch, room)
            if violation is not None:
                found.append((name, batch, violation))
    again: dict[str, list[Sequenced]] = defaultdict(list)
    for name, batch, violation in found:
        if violation.rule == DUPLICATE:
            again[name].append(Sequenced(batch.producer_id, batch.producer_epoch, batch.base_sequence))
    copies = {
        name: first_copies((each for each in _read(log, name) if isinstance(each, Batch)), own)
        for name, own in again.items()
    }
    for name, batch, single in counted(found):
        violation = single.with_copy(batch, copies.get(name, {}))
        place = name, batch.position, violation.rule, batch.base_offset
        row = *place, batch.producer_id, batch.producer_epoch, batch.base_sequence
        yield *row, violation.evidence, violation.kind.value


def _read(log: PartitionLog, name: str) -> Iterator[Batch | CorruptRegion]:
    """The batches and unreadable regions of a file of a log."""
    path = log.file(name)
    return _stored_in_table(path, log.topic) if is_table(path) else _stored(log, name)


def _stored(log: PartitionLog, name: str) -> Iterator[Batch | CorruptRegion]:
    """The batches and unreadable regions of a segment, in order."""
    for item in items_of(log, name):
        yield item if isinstance(item, CorruptRegion) else _batch_of(item, log.topic)


def _stored_in_table(table: Path, topic: str) -> Iterator[Batch | CorruptRegion]:
    """The batches of a table of headers, in order; unreadable regions come before their row group."""
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
        kind=found.is_transactional + 2 * found.is_control,
        leader_epoch=found.partition_leader_epoch,
    )


def rows_of(audit: LogAudit) -> Iterator[Row]:
    """The findings and damage of an audited log, in the form of :func:`readable_rows`."""
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
    """A log of ``__transaction_state`` as rows: its facts, its findings, and each transactional id."""
    yield log.records, log.unknown, log.unreadable, log.start, log.end, log.holes, log.damaged, log.stamped_ms, log.led
    yield from log.findings
    for known in log.ids.values():
        decided = tuple(map(astuple, known.transactions))
        yield known.name, known.last, known.last_ms, known.last_at, tuple(known.current), known.certain
        yield known.name, known.holes, decided
        yield known.name, frozenset(known.producer_ids), tuple(known.grants)


def offset_rows(log: GroupLog) -> Iterator[Row]:
    """A log of ``__consumer_offsets`` as rows: its facts, the offsets that counted, and those that went back."""
    yield log.end, log.holes, log.whole, log.stamped_ms
    for name, commits in log.commits.items():
        yield name, tuple(commits)
    figures: Figures = {"checked": 0, "unknown": 0}
    yield from went_back([log], figures)
    yield tuple(figures.items())
    yield from last_offsets(log)


def coordinator_rows(log: PartitionLog) -> tuple[Counter[Row], Counter[Row]]:
    """A coordinator's log as rows, by the readable rule and by columns; no rows for any other log."""
    if log.topic == STATE_TOPIC and log.has_records:
        return Counter(state_rows(follow_coordinator_log(log))), Counter(state_rows(read_coordinator_log(log)))
    if log.topic == OFFSETS_TOPIC and log.has_records:
        return Counter(offset_rows(follow_group_log(log))), Counter(offset_rows(read_group_log(log)))
    return Counter(), Counter()


def chosen(audits: Sequence[LogAudit], share: float, seed: int) -> list[LogAudit]:
    """A random share of the logs, at least one log; all logs for 1."""
    count = min(len(audits), max(1, ceil(share * len(audits))))
    return random.Random(seed).sample(list(audits), count)


def readable_transactions(logs: Sequence[PartitionLog], source: Source) -> TransactionAudit:
    """The audit of the transactions of some logs by the readable rules only."""
    own = [log for log in logs if log.topic == STATE_TOPIC and log.has_records and any(map(_size, _files(log)))]
    states = [follow_coordinator_log(log) for log in own]
    partitions = [read_transactions(log) for log in logs if log.topic != STATE_TOPIC]
    if not states:
        partitions = [partition for partition in partitions if partition.batches]
    given = any(log.topic == STATE_TOPIC for log in logs)
    return audit_transactions(partitions, states, source, coordinators_given=given)


def _files(log: PartitionLog) -> list[Path]:
    return [log.file(name) for name in log.segments]


def _size(path: Path) -> int:
    return path.stat().st_size


def transaction_rows(findings: Iterable[Finding]) -> Counter[Row]:
    """The findings of the rules over transactions, in a form that can be compared."""
    own = (replace(finding, time_ms=None) for finding in findings if finding.rule in TRANSACTION_RULES)
    return Counter(astuple(finding) for finding in own)


def judge(
    audits: Sequence[LogAudit],
    share: float = 1.0,
    seed: int = 0,
    *,
    findings: Iterable[Finding] | None = None,
    clusters: Sequence[tuple[Sequence[PartitionLog], Source]] | None = None,
    histories: Join | None = None,
    events: int | None = None,
) -> Verdict:
    """Compare the findings of the readable rules with those of the audit.

    Args:
        audits: the audits of the logs, with CRCs compared.
        share: the share of the logs to judge again, above 0 and up to 1. A fold starts where its log starts, so a log
            is judged as a whole or not at all.
        seed: the seed that chooses them.
        findings: the findings of the rules over transactions and histories; None if these were not judged.
        clusters: the logs of each cluster, and what is known of their moments; None for one cluster and moment.
        histories: the result of the readable rules over histories; None if these are not judged again.
        events: the number of events that these rules have judged; None if no history is given.
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
    findings = None if findings is None else list(findings)
    if findings is not None and histories is not None:
        slow = Counter[Row](map(astuple, histories.findings))
        quick = Counter[Row](astuple(finding) for finding in findings if finding.rule in HISTORY_RULES)
        rows += slow.total()
        differences += [f"histories: only the readable rules: {row}" for row in (slow - quick).elements()]
        differences += [f"histories: only the audit: {row}" for row in (quick - slow).elements()]
    if findings is not None and len(own) == len(audits):
        together = [([audit.log for audit in audits], ONE_MOMENT)] if clusters is None else clusters
        slow = transaction_rows(chain(*(readable_transactions(*each).findings for each in together)))
        quick = transaction_rows(findings)
        rows += slow.total()
        differences += [f"transactions: only the readable rules: {row}" for row in (slow - quick).elements()]
        differences += [f"transactions: only the audit: {row}" for row in (quick - slow).elements()]
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
            **({} if events is None else {"events": events}),
            "seed": seed,
        },
        evidence="\n".join(differences[:SHOWN] + ([f"… and {rest} more"] if rest > 0 else [])),
    )
