"""The vectorised audit of coordinators' logs against the readable rule, on logs of many transactional ids and groups.

Both sides read the log from its file, compare CRCs, decode every record, and judge it.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kafka_eos.formats import consumer_offsets, transaction_log
from kafka_eos.formats.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.record_batch import ControlRecord, ControlType, Record, build_batch, build_control_batch
from kafka_eos.formats.transaction_log import (
    NO_TIMESTAMP,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import read_coordinator_log
from kafka_eos_checks.audit.kernels.coordinators.group_log import read_group_log
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog, follow_coordinator_log
from kafka_eos_checks.audit.rules.offsets import GroupLog, follow_group_log, went_back
from kafka_eos_checks.audit.segments.contents import Figures
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.bench.measure import Answer, Side, Work, measure, verdicts

SEED = 12
RECORDS = 100_000
IDS = 5_000
GROUPS = 2_000
SETS = 40  # number of different sets of partitions of transactions
NOW_MS = 1_700_000_000_000

_S = TransactionState
_FOLLOWING = {
    _S.EMPTY: (_S.ONGOING,),
    _S.ONGOING: (_S.PREPARE_COMMIT, _S.PREPARE_COMMIT, _S.PREPARE_ABORT),
    _S.PREPARE_COMMIT: (_S.COMPLETE_COMMIT,),
    _S.PREPARE_ABORT: (_S.COMPLETE_ABORT,),
    _S.COMPLETE_COMMIT: (_S.ONGOING,),
    _S.COMPLETE_ABORT: (_S.ONGOING,),
}


def write_states(folder: Path, records: int, version: int) -> PartitionLog:
    """A clean log of ``__transaction_state`` in a format version; its clients have the matching transaction version."""
    path = folder / f"{transaction_log.TOPIC}-0" / f"{0:020d}.log"
    write_segment(path, _state_batches(records, version))
    return find_logs(path.parent)[0]


def _state_batches(records: int, version: int) -> Iterator[bytes]:
    rng = random.Random(SEED)
    lists = [
        (TopicPartitions(topic="orders", partition_ids=tuple(sorted(rng.sample(range(12), rng.randint(1, 4))))),)
        for _ in range(SETS)
    ]
    known: dict[int, tuple[TransactionState, int, tuple[TopicPartitions, ...], int]] = {}
    for offset in range(records):
        number = rng.randrange(IDS)
        before, epoch, partitions, started = known.get(number, (_S.EMPTY, 0, (), NO_TIMESTAMP))
        status = rng.choice(_FOLLOWING[before]) if number in known else _S.EMPTY
        if before is not _S.ONGOING and status is _S.ONGOING:
            started = NOW_MS + offset
        if status is _S.ONGOING:
            partitions = rng.choice(lists)
        ends = status in {_S.PREPARE_COMMIT, _S.PREPARE_ABORT}
        completes = status in {_S.COMPLETE_COMMIT, _S.COMPLETE_ABORT}
        epoch += version * ends
        partitions = () if completes else partitions
        known[number] = status, epoch, partitions, started
        value = TransactionLogValue(
            version=version,
            producer_id=1000 + number,
            producer_epoch=epoch,
            transaction_timeout_ms=60_000,
            transaction_status=status,
            transaction_partitions=None if status is _S.EMPTY else partitions,
            transaction_last_update_timestamp_ms=NOW_MS + offset,
            transaction_start_timestamp_ms=started,
            previous_producer_id=1000 + number if version and (ends or completes) else -1,
            client_transaction_version=0 if status is _S.EMPTY else 2 * version,
        )
        key = TransactionLogKey(transactional_id=f"application-{number:07d}-writer").encode()
        batch = build_batch([Record(key=key, value=value.encode())], base_offset=offset, base_timestamp=NOW_MS + offset)
        yield batch.encode()


def write_offsets(folder: Path, records: int) -> PartitionLog:
    """A clean log of ``__consumer_offsets``; half of its groups commit in transactions."""
    path = folder / f"{consumer_offsets.TOPIC}-0" / f"{0:020d}.log"
    write_segment(path, _offset_batches(records))
    return find_logs(path.parent)[0]


def _offset_batches(records: int) -> Iterator[bytes]:
    rng = random.Random(SEED)
    reached: dict[tuple[int, int], int] = {}
    offset = 0
    while offset < records:
        group, size = rng.randrange(GROUPS), rng.choice((1, 1, 2, 4))
        transactional = bool(group % 2)
        commits = []
        for partition in range(size):
            reached[group, partition] = reached.get((group, partition), 0) + rng.randrange(50)
            key = OffsetCommitKey(group=f"group-{group:05d}", topic="orders", partition=partition)
            value = OffsetCommitValue(offset=reached[group, partition], commit_timestamp_ms=NOW_MS + offset)
            commits.append(Record(offset_delta=partition, key=key.encode(), value=value.encode()))
        yield build_batch(
            commits,
            base_offset=offset,
            base_timestamp=NOW_MS + offset,
            producer_id=5000 + group if transactional else -1,
            producer_epoch=0 if transactional else -1,
            is_transactional=transactional,
        ).encode()
        offset += size
        if transactional:
            kind = ControlType.ABORT if rng.random() < 0.1 else ControlType.COMMIT
            marker = ControlRecord(control_type=kind, coordinator_epoch=0)
            yield build_control_batch(marker, producer_id=5000 + group, producer_epoch=0, base_offset=offset).encode()
            offset += 1


def _states(read: Callable[[PartitionLog], CoordinatorLog], of: PartitionLog) -> Answer:
    """Counts of the results for a log of ``__transaction_state``."""
    log = read(of)
    told = {"records": log.records, "ids": len(log.ids), "findings": len(log.findings), "unknown": log.unknown}
    return told | {"decisions": len(log.decisions), "completed": int(log.decisions.completed.sum())}


def _offsets(read: Callable[[PartitionLog], GroupLog], of: PartitionLog) -> Answer:
    """Counts of the results for a log of ``__consumer_offsets``, with the committed offsets that went back."""
    log = read(of)
    figures: Figures = {"checked": 0, "unknown": 0}
    found = sum(1 for _ in went_back([log], figures))
    return {"end": log.end, "names": len(log.commits), "checked": int(figures["checked"]), "found": found}


def run(folder: Path, *, quick: bool) -> Iterator[Verdict]:
    """Measure the folds of coordinators' logs on generated logs.

    Args:
        folder: the folder for the logs.
        quick: use a fifth of the records and fewer rounds.
    """
    records, rounds = (RECORDS // 5, 3) if quick else (RECORDS, 5)
    for version in (0, 1):
        log = write_states(folder / f"states-{version}", records, version)
        sides = [
            Side(name="by columns", run=partial(_states, read_coordinator_log, log)),
            Side(name="the readable rule", run=partial(_states, follow_coordinator_log, log)),
        ]
        yield from _compared(sides, log, f"__transaction_state, version {version}", records, rounds)
    log = write_offsets(folder / "offsets", records)
    sides = [
        Side(name="by columns", run=partial(_offsets, read_group_log, log)),
        Side(name="the readable rule", run=partial(_offsets, follow_group_log, log)),
    ]
    yield from _compared(sides, log, "__consumer_offsets", read_group_log(log).end, rounds)


def _compared(sides: list[Side], log: PartitionLog, name: str, records: int, rounds: int) -> Iterator[Verdict]:
    size = sum(Path(log.folder, segment).stat().st_size for segment in log.segments)
    given = f"{size / 1e6:.0f} MB, {records:,} records; read, CRC, every record, the rules"
    work = Work(
        part="coordinators", name=name, given=given, amount=records, unit="records/s", target=1e6, per_core=True
    )
    yield from verdicts(work, sides[0], sides[1:], measure(sides, rounds, label=f"coordinators, {name}"))
