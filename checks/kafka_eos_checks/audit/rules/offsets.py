"""The offsets that groups committed, from the logs of ``__consumer_offsets``.

An offset that is committed in a transaction counts from its COMMIT marker on, unless one of a later record counts
already; one outside of any transaction counts at once. *Unknown*, and left out: offsets whose marker may be in a hole.

``committed offset went back``
    A group's offset of a partition that a transaction committed, and that is below the one that counted before it. A
    tombstone (the group or the offset was deleted, or has expired) begins anew. *Told*: an offset that was set back
    outside of any transaction, as an operator does it (``kafka-consumer-groups --reset-offsets``), and an application
    that promises no more than at least once. *Not judged*: over a hole, where a tombstone may have been.

Of a replicated partition the longest of the given replicas is read.

KIP:   KIP-98
Kafka: OffsetMetadataManager.replay, replayEndTransactionMarker
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_eos.formats.consumer_offsets import MalformedOffsetRecord, OffsetCommitValue, decode_key, decode_value
from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.contents import Figures, Place, count
from kafka_eos_checks.audit.kernels.headers import CONTROL_MASK, TRANSACTIONAL_MASK, is_set, read_blocks, read_index
from kafka_eos_checks.audit.kernels.records import decode_block
from kafka_eos_checks.audit.kernels.splits import PartitionLog
from kafka_eos_checks.audit.quoting import quoted
from kafka_eos_checks.audit.rules.log import Kind

WENT_BACK = "committed offset went back"
OFFSET_RULES = (WENT_BACK,)

Name = tuple[str, Place]  # group, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A committed offset, or a tombstone.

    Attributes:
        file: segment of its record.
        position: of the record's batch, in bytes.
        record: offset of the record in ``__consumer_offsets``.
        producer_id: of the transaction, -1 outside of any.
        producer_epoch: of the transaction, -1 outside of any.
        transactional: whether it was committed in a transaction.
        offset: of the next record to read; None for a tombstone.
        holes: how many holes the log had before it counted.
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
    """What a log of ``__consumer_offsets`` says.

    Attributes:
        log: the log.
        commits: by group and partition, what counted, in the order in which it did.
        end: one past the last offset.
        holes: how many holes and unreadable records it has.
        whole: whether it begins at offset 0, with no hole and no damage.
        stamped_ms: the last time that the group's coordinator stamped, in milliseconds since the epoch; -1 for none.
    """

    log: PartitionLog
    commits: dict[Name, list[Commit]] = field(default_factory=lambda: defaultdict(list))
    end: int = 0
    holes: int = 0
    whole: bool = True
    stamped_ms: int = -1
    _pending: dict[int, list[tuple[Name, Commit]]] = field(default_factory=lambda: defaultdict(list))

    def take(self, name: Name, commit: Commit) -> None:
        """The log after one more record of an offset."""
        if commit.transactional:
            self._pending[commit.producer_id].append((name, commit))
        else:
            self.commits[name].append(commit)

    def end_transaction(self, producer_id: int, decision: ControlType | None) -> None:
        """The log after a marker."""
        for name, commit in self._pending.pop(producer_id, []):
            before = self.commits[name][-1].record if self.commits[name] else -1
            if decision is ControlType.COMMIT and before < commit.record:
                self.commits[name].append(commit)

    def skip(self) -> None:
        """The log after a hole: a marker may have been in it."""
        self.holes += 1
        self.whole = False
        self._pending.clear()


def read_group_log(log: PartitionLog, check_crc: bool = True) -> GroupLog:
    """Fold one log of ``__consumer_offsets``."""
    result = GroupLog(log)
    for name in log.segments:
        path = Path(log.folder, name)
        for block in read_blocks(path, index=read_index(path), check_crc=check_crc):
            headers, records = block.headers, decode_block(block)
            result.whole = result.whole and not headers.damage and not records.damage
            result.stamped_ms = max(result.stamped_ms, int(headers.column("max_timestamp").max(initial=-1)))
            control = is_set(headers, CONTROL_MASK)[records.batch].tolist()
            transactional = is_set(headers, TRANSACTIONAL_MASK)[records.batch].tolist()
            producers = headers.column("producer_id")[records.batch].tolist()
            epochs = headers.column("producer_epoch")[records.batch].tolist()
            columns = (records.offset.tolist(), headers.positions[records.batch].tolist(), producers, epochs)
            for offset, position, pid, epoch, in_transaction, is_marker, key, value in zip(
                *columns, transactional, control, records.keys(), records.values(), strict=True
            ):
                if offset != result.end:
                    result.skip()
                result.end = offset + 1
                if is_marker:
                    result.end_transaction(pid, _decision(key))
                    continue
                try:
                    named, committed = decode_key(key or b""), None
                    if named is not None:
                        committed = decode_value(value)
                except MalformedOffsetRecord:
                    result.skip()
                    continue
                if named is not None:
                    commit = Commit(
                        file=name,
                        position=position,
                        record=offset,
                        producer_id=pid,
                        producer_epoch=epoch,
                        transactional=in_transaction,
                        offset=_offset(committed),
                        holes=result.holes,
                    )
                    result.take((named.group, (named.topic, named.partition)), commit)
    return result


def _offset(value: OffsetCommitValue | None) -> int | None:
    return None if value is None else value.offset


def _decision(key: bytes | None) -> ControlType | None:
    """The type in a control record's key, after its version."""
    number = int.from_bytes((key or b"")[2:4], "big") if key and len(key) >= 4 else -1
    return ControlType(number) if number in (ControlType.ABORT, ControlType.COMMIT) else None


def longest_logs(logs: Iterable[GroupLog]) -> list[GroupLog]:
    """Of each partition of ``__consumer_offsets`` the replica that goes furthest."""
    best: dict[int, GroupLog] = {}
    for each in logs:
        if each.log.partition not in best or each.end > best[each.log.partition].end:
            best[each.log.partition] = each
    return list(best.values())


def went_back(logs: Sequence[GroupLog], figures: Figures) -> Iterator[Finding]:
    """Committed offsets below an earlier one of the same group and partition."""
    for each in logs:
        for (group, (topic, partition)), commits in each.commits.items():
            highest: Commit | None = None
            for commit in commits:
                count(figures, "checked")
                if commit.offset is None:
                    highest = None
                    continue
                if highest is not None and highest.offset is not None and commit.offset < highest.offset:
                    if commit.holes > highest.holes:
                        count(figures, "unknown")
                    else:
                        yield Finding(
                            rule=WENT_BACK,
                            topic=each.log.topic,
                            partition=each.log.partition,
                            broker=each.log.broker,
                            file=commit.file,
                            position=commit.position,
                            offset=commit.record,
                            producer_id=commit.producer_id,
                            producer_epoch=commit.producer_epoch,
                            evidence=f"group {quoted(group)} had offset {highest.offset} of {topic}-{partition} before "
                            f"{commit.offset}"
                            + ("" if commit.transactional else ", set back outside of a transaction"),
                            kind=(Kind.VIOLATION if commit.transactional else Kind.TOLD).value,
                        )
                highest = commit
