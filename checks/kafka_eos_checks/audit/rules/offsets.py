"""The offsets that groups committed, from the logs of ``__consumer_offsets``.

An offset that is committed in a transaction counts from its COMMIT marker on, unless an offset of a later record
already counts. An offset committed outside of any transaction counts at once. *Unknown*, and left out: offsets whose
marker may be in a hole.

``committed offset went back``
    A transaction committed an offset of a group and partition that is below the offset that counted before it, or below
    an earlier one of the same transaction: a delayed TxnOffsetCommit replaces a later one (finding late-offsets). After
    a tombstone (the group or the offset was deleted, or has expired) any offset is right. *Told*: an offset that was
    set back outside of any transaction, by an operator (``kafka-consumer-groups --reset-offsets``) or by an application
    that promises only at least once. *Not judged*: an offset after a hole, because the hole may have had a tombstone.

``committed offset beyond the end``
    The last offset that counts of a group and partition is beyond the end of the longest given log of that partition,
    which is complete up to a later moment: records that the group has read are gone, as after an unclean election, or
    somebody committed an offset that never was. *Too recent*, or *not judged*: the partition's log may be the older
    copy, or its end is damaged. A partition without a given log is left out.

If a partition is replicated, the longest of the given replicas is read.

:func:`follow_group_log` runs this record by record. The audit reads logs by
:func:`kafka_eos_checks.audit.kernels.coordinators.group_log.read_group_log`, which finds the same by columns.

KIP:   KIP-98
Kafka: OffsetMetadataManager.replay, replayEndTransactionMarker
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.consumer_offsets import MalformedOffsetRecord, OffsetCommitValue, decode_key, decode_value
from kafka_eos.formats.record_batch import ControlType, Record
from kafka_eos.formats.segment import CorruptRegion, StoredBatch
from kafka_eos_checks.audit.findings import Finding, Kind, dated
from kafka_eos_checks.audit.internal_topics.commits import name_of
from kafka_eos_checks.audit.moments import SKEW_MS, Dated, Moments
from kafka_eos_checks.audit.quoting import quoted
from kafka_eos_checks.audit.segments.contents import Figures, Place, count
from kafka_eos_checks.audit.segments.marks import decision_of
from kafka_eos_checks.audit.segments.splits import PartitionLog, items_of

if TYPE_CHECKING:
    from kafka_eos_checks.audit.kernels.coordinators.group_log import CountedCommits

WENT_BACK = "committed offset went back"
BEYOND = "committed offset beyond the end"
OFFSET_RULES = (WENT_BACK, BEYOND)

Name = tuple[str, Place]  # group, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A committed offset, or a tombstone.

    Attributes:
        file: segment of its record.
        position: the position of the record's batch, in bytes.
        record: offset of the record in ``__consumer_offsets``.
        producer_id: the producer id of the transaction, -1 outside of any.
        producer_epoch: the producer epoch of the transaction, -1 outside of any.
        transactional: whether it was committed in a transaction.
        offset: the offset of the next record to read; None for a tombstone.
        holes: how many holes the log had before the record.
    """

    file: str
    position: int
    record: int
    producer_id: int
    producer_epoch: int
    transactional: bool
    offset: int | None
    holes: int


@dataclass(slots=True)
class GroupLog:
    """The contents of a log of ``__consumer_offsets``.

    Attributes:
        log: the log.
        commits: by group and partition, the commits that counted, in the order in which they did.
        end: one past the last offset.
        holes: how many holes and unreadable records it has.
        whole: whether it begins at offset 0, with no hole and no damage.
        stamped_ms: the last time that the group's coordinator stamped, in milliseconds since the epoch; -1 for none.
        counted: the commits that counted, as columns, if the log was folded by columns.
    """

    log: PartitionLog
    commits: Mapping[Name, list[Commit]] = field(default_factory=lambda: defaultdict(list))
    end: int = 0
    holes: int = 0
    whole: bool = True
    stamped_ms: int = -1
    counted: "CountedCommits | None" = None
    _pending: dict[int, list[tuple[Name, Commit]]] = field(default_factory=lambda: defaultdict(list))

    def take(self, name: Name, commit: Commit) -> None:
        """Add one more record of an offset."""
        assert self.counted is None, "a log that was folded takes no more records"
        if commit.transactional:
            self._pending[commit.producer_id].append((name, commit))
        else:
            self.commits[name].append(commit)

    def end_transaction(self, producer_id: int, decision: ControlType | None) -> None:
        """Add a marker."""
        for name, commit in self._pending.pop(producer_id, []):
            before = self.commits[name][-1].record if self.commits[name] else -1
            if decision is ControlType.COMMIT and before < commit.record:
                self.commits[name].append(commit)

    def finding(self, rule: str, commit: Commit, evidence: str) -> Finding:
        """A violation of a rule at the record of a commit."""
        return Finding(
            rule=rule,
            topic=self.log.topic,
            partition=self.log.partition,
            broker=self.log.broker,
            file=commit.file,
            position=commit.position,
            offset=commit.record,
            producer_id=commit.producer_id,
            producer_epoch=commit.producer_epoch,
            evidence=evidence,
        )

    def skip(self) -> None:
        """Add a hole, which may have had a marker."""
        self.holes += 1
        self.whole = False
        self._pending.clear()


def follow_group_log(log: PartitionLog) -> GroupLog:
    """Fold one log of ``__consumer_offsets`` record by record, with the readable decoders.

    It is the oracle of :func:`kafka_eos_checks.audit.kernels.coordinators.group_log.read_group_log`, which is faster.
    """
    result = GroupLog(log)
    for name in log.segments:
        for stored in items_of(log, name):
            if isinstance(stored, CorruptRegion):
                result.whole = False
                continue
            result.stamped_ms = max(result.stamped_ms, stored.batch.max_timestamp)
            try:
                records = stored.batch.records()
            except MalformedBatch:
                result.whole = False
                continue
            for record in records:
                _follow_record(result, name, stored, record)
    return result


def _follow_record(log: GroupLog, file: str, stored: StoredBatch, record: Record) -> None:
    """Add one more record of any type."""
    batch, offset = stored.batch, stored.batch.offset(record)
    if offset != log.end:
        log.skip()
    log.end = offset + 1
    if batch.is_control:
        log.end_transaction(batch.producer_id, decision_of(record.key))
        return
    try:
        named, committed = decode_key(record.key or b""), None
        if named is not None:
            committed = decode_value(record.value)
    except MalformedOffsetRecord:
        log.skip()
        return
    if named is not None:
        commit = Commit(
            file=file,
            position=stored.position,
            record=offset,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            transactional=batch.is_transactional,
            offset=_offset(committed),
            holes=log.holes,
        )
        log.take((named.group, (named.topic, named.partition)), commit)


def _offset(value: OffsetCommitValue | None) -> int | None:
    return None if value is None else value.offset


def _to_judge(log: GroupLog, figures: Figures) -> Iterable[Name]:
    """The groups and partitions of a log, except those whose columns show that no offset went back."""
    if log.counted is None:
        return log.commits
    numbers = log.counted.falling()
    judged = int(np.diff(log.counted.begin)[numbers].sum())
    figures["checked"] = int(figures.get("checked", 0)) + len(log.counted.commits) - judged
    return [name_of(log.counted.keys[number]) for number in numbers.tolist()]


def _circumstance(highest: Commit, lower: Commit) -> str:
    """The way in which an offset went back, in words, if the two records show it."""
    if not lower.transactional:
        return ", set back outside of a transaction"
    same = (highest.producer_id, highest.producer_epoch) == (lower.producer_id, lower.producer_epoch)
    return ", of the same producer and epoch" if same else ""


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of the partitions whose offsets groups commit.

    Attributes:
        logs: the longest given log of each partition.
        damaged: the partitions of which that log's end is not known.
        moments: the moments of the logs.
    """

    logs: Mapping[Place, Dated]
    damaged: frozenset[Place]
    moments: Moments

    def offset(self, place: Place) -> int:
        """The end of a partition's longest log."""
        own = self.logs[place]
        return own.log.end_after(own.end)

    def standing(self, place: Place, moment_ms: float) -> Kind:
        """The kind of a finding about a log that ends below an offset, by the moment at which this was committed."""
        own = self.logs[place]
        if place in self.damaged:
            return Kind.NOT_JUDGED
        if self.moments.covers(own, moment_ms):
            return Kind.VIOLATION
        is_recent = moment_ms + SKEW_MS > self.moments.recent_after(own)
        return Kind.TOO_RECENT if is_recent else Kind.NOT_JUDGED


def beyond_the_end(log: GroupLog, ends: Ends, figures: Figures) -> Iterator[Finding]:
    """Find the last offsets of groups that are beyond the end of the partition."""
    for (group, place), offset in last_offsets(log):
        if offset is None or place not in ends.logs:
            continue
        count(figures, "checked")
        end = ends.offset(place)
        if offset <= end:
            continue
        topic, partition = place
        evidence = f"group {quoted(group)} has committed offset {offset} of {topic}-{partition}, which ends at {end}"
        found = log.finding(BEYOND, log.commits[group, place][-1], evidence)
        [found] = dated([found], {(log.log.broker, log.log.topic, log.log.partition): log.log.folder})
        kind = ends.standing(place, inf if found.time_ms is None else found.time_ms)
        if kind is Kind.VIOLATION:
            yield found
        else:
            count(figures, "recent" if kind is Kind.TOO_RECENT else "unknown")


def last_offsets(log: GroupLog) -> Iterator[tuple[Name, int | None]]:
    """The last offset that counts of each group and partition; None for a tombstone."""
    if log.counted is not None:
        yield from log.counted.last_offsets()
        return
    for name, commits in log.commits.items():
        if commits:
            yield name, commits[-1].offset


def went_back(logs: Sequence[GroupLog], figures: Figures) -> Iterator[Finding]:
    """Find committed offsets below an earlier one of the same group and partition."""
    for each in logs:
        for group, (topic, partition) in _to_judge(each, figures):
            commits, highest = each.commits[group, (topic, partition)], None
            for commit in commits:
                count(figures, "checked")
                if commit.offset is None:
                    highest = None
                    continue
                if highest is not None and highest.offset is not None and commit.offset < highest.offset:
                    if commit.holes > highest.holes:
                        count(figures, "unknown")
                    else:
                        evidence = f"group {quoted(group)} had offset {highest.offset} of {topic}-{partition} before "
                        evidence += f"{commit.offset}{_circumstance(highest, commit)}"
                        found = each.finding(WENT_BACK, commit, evidence)
                        yield found if commit.transactional else replace(found, kind=Kind.TOLD.value)
                highest = commit
