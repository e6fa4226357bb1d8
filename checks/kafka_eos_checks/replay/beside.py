"""The rules over what lies beside a log: its indexes of aborted transactions, its producer snapshots, its replicas.

A broker answers readers from the index of aborted transactions and goes on after a restart from the last snapshot, so a
wrong one changes what is read and what is accepted although every batch is right. Both follow from the batches and are
compared with them.

``aborted index``
    An entry of a ``.txnindex`` that is not the one of an ABORT marker in its segment that ends data: other producer,
    first or last offset, or last stable offset; or such a marker without an entry. A last stable offset that is too
    high ends the search for aborted transactions too early: their records are delivered.

``producer snapshot``
    An entry of a ``.snapshot`` that is not what the batches below its offset make of the producer: epoch, last
    sequence, last offset, number of offsets, timestamp, coordinator epoch, first offset of the open transaction; or a
    producer that these batches do not have.

``replicas differ``
    Two replicas of a partition that have different batches at one offset in one leader epoch.

*Unknown*, and no finding: what depends on batches that the log does not have (it begins above offset 0, it has holes or
damage); a segment without its index; entries behind the end of the log, whose copy may be older; producers that a
snapshot does not have, for they may have expired; and the coordinator epoch of one that expired in between.

Runs in process, for Spark on its driver.

KIP:   KIP-98, KIP-101, KIP-360
Kafka: TransactionIndex, ProducerStateManager (takeSnapshot, lastStableOffset), UnifiedLog.truncateTo
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from pathlib import Path

import numpy as np

from kafka_eos.record_batch import ControlType
from kafka_eos.segment import (
    AbortedTransaction,
    MalformedFile,
    ProducerSnapshotEntry,
    read_producer_snapshot,
    read_transaction_index,
)
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.headers import CONTROL_MASK, Headers, Ints, is_set, read_index
from kafka_eos_checks.replay.reading import read_headers
from kafka_eos_checks.replay.splits import PartitionLog
from kafka_eos_checks.replay.transactions import Marker, PartitionTransactions, read_transactions

ABORTED_INDEX, SNAPSHOT, REPLICAS = "aborted index", "producer snapshot", "replicas differ"
BESIDE_RULES = (ABORTED_INDEX, SNAPSHOT, REPLICAS)

Figures = dict[str, int | float | str]
_COMPARED = tuple(f.name for f in fields(ProducerSnapshotEntry) if f.name != "producer_id")


@dataclass(slots=True)
class Beside:
    """What was found, and how much could be judged.

    Attributes:
        findings: violations, by log.
        figures: by rule, how much there was, and what is unknown.
    """

    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, Figures] = field(
        default_factory=lambda: {
            ABORTED_INDEX: {"entries": 0, "unknown": 0},
            SNAPSHOT: {"snapshots": 0, "entries": 0, "unknown": 0},
            REPLICAS: {"batches": 0, "unknown": 0},
        }
    )

    def count(self, rule: str, name: str, more: int = 1) -> None:
        """Add to a figure."""
        self.figures[rule][name] = int(self.figures[rule][name]) + more

    def find(self, rule: str, log: PartitionLog, evidence: str, *, file: str = "", **more: int | None) -> None:
        """Add a finding."""
        self.findings.append(
            Finding(
                rule=rule,
                topic=log.topic,
                partition=log.partition,
                broker=log.broker,
                file=file,
                evidence=evidence,
                **more,  # type: ignore[arg-type]
            )
        )


def audit_beside(logs: Sequence[PartitionLog], read: Iterable[PartitionTransactions] = ()) -> Beside:
    """Judge what lies beside some logs.

    Args:
        logs: the logs.
        read: the transactions of those that have been read already.

    Raises:
        OSError: a file cannot be read.
    """
    known = {partition.log: partition for partition in read}
    result = Beside()
    for log in logs:
        indexes, snapshots = _files(log, ".txnindex"), _files(log, ".snapshot")
        if indexes or snapshots:
            transactions = known.get(log) or read_transactions(log)
            judge_indexes(transactions, indexes, result)
            judge_snapshots(transactions, snapshots, result)
    for _, replicas in groupby(sorted(logs, key=_place), key=_place):
        judge_replicas(list(replicas), result)
    return result


def _place(log: PartitionLog) -> tuple[str, int]:
    return log.topic, log.partition


def _files(log: PartitionLog, suffix: str) -> list[Path]:
    """The files of a kind beside a log, with something in them."""
    found = sorted(Path(log.folder).glob(f"{'[0-9]' * 20}{suffix}"))
    return [path for path in found if not path.is_symlink() and path.stat().st_size]


# --- the index of aborted transactions ------------------------------------------------------------------------------


def judge_indexes(transactions: PartitionTransactions, indexes: Iterable[Path], result: Beside) -> None:
    """Compare each ``.txnindex`` with the ABORT markers of its segment."""
    log = transactions.log
    for path in indexes:
        try:
            entries = read_transaction_index(path)
        except MalformedFile as error:
            result.find(ABORTED_INDEX, log, error.reason, file=path.name, position=error.position)
            continue
        result.count(ABORTED_INDEX, "entries", len(entries))
        if not transactions.whole:
            result.count(ABORTED_INDEX, "unknown", len(entries))
            continue
        inside = [entry for entry in entries if entry.last_offset < transactions.end]
        result.count(ABORTED_INDEX, "unknown", len(entries) - len(inside))
        markers = [marker for marker in transactions.markers if marker.file.partition(".")[0] == path.stem]
        _compare_index(log, path.name, inside, [marker for marker in markers if _is_indexed(marker)], result)


def _is_indexed(marker: Marker) -> bool:
    return marker.decision is ControlType.ABORT and marker.ends is not None


def _compare_index(
    log: PartitionLog, file: str, entries: Iterable[AbortedTransaction], markers: Iterable[Marker], result: Beside
) -> None:
    due = {marker.offset: marker for marker in markers}
    for entry in entries:
        marker = due.pop(entry.last_offset, None)
        written = f"producer {entry.producer_id} offsets {entry.first_offset} to {entry.last_offset}, "
        written += f"last stable offset {entry.last_stable_offset}"
        if marker is None or marker.ends is None:
            evidence = f"an entry of {written}, where no ABORT marker ends data"
        elif written != (expected := _entry_in_words(marker)):
            evidence = f"expected {expected}, found {written}"
        else:
            continue
        result.find(ABORTED_INDEX, log, evidence, file=file, offset=entry.last_offset)
    for offset, marker in due.items():
        evidence = f"no entry of {_entry_in_words(marker)}"
        result.find(ABORTED_INDEX, log, evidence, file=file, offset=offset)


def _entry_in_words(marker: Marker) -> str:
    assert marker.ends is not None
    offsets = f"producer {marker.producer_id} offsets {marker.ends.offset} to {marker.offset}"
    return f"{offsets}, last stable offset {marker.last_stable_offset}"


# --- producer snapshots -----------------------------------------------------------------------------------------------


def judge_snapshots(transactions: PartitionTransactions, snapshots: Sequence[Path], result: Beside) -> None:
    """Compare each ``.snapshot`` with what the batches below its offset make of the producers."""
    log = transactions.log
    result.count(SNAPSHOT, "snapshots", len(snapshots))
    judged = [path for path in snapshots if transactions.whole and int(path.stem) <= transactions.end]
    result.count(SNAPSHOT, "unknown", len(snapshots) - len(judged))
    for path, producers in zip(judged, _producers_at([int(path.stem) for path in judged], transactions), strict=True):
        try:
            entries = read_producer_snapshot(path)
        except MalformedFile as error:
            result.find(SNAPSHOT, log, error.reason, file=path.name, position=error.position)
            continue
        result.count(SNAPSHOT, "entries", len(entries))
        for entry in entries:
            evidence = _difference(producers.get(entry.producer_id), entry)
            if evidence:
                where = {"producer_id": entry.producer_id, "producer_epoch": entry.producer_epoch}
                result.find(SNAPSHOT, log, evidence, file=path.name, offset=int(path.stem), **where)


def _difference(expected: ProducerSnapshotEntry | None, found: ProducerSnapshotEntry) -> str:
    """What is wrong with an entry, or ""."""
    if expected is None:
        return "a producer that the batches before it do not have"
    pairs = {name: (getattr(expected, name), getattr(found, name)) for name in _COMPARED}
    if found.coordinator_epoch == -1:  # the producer may have expired since its last marker
        del pairs["coordinator_epoch"]
    wrong = [f"{name} {was}, expected {due}" for name, (due, was) in pairs.items() if due != was]
    return "; ".join(wrong)


def _producers_at(
    offsets: Iterable[int], transactions: PartitionTransactions
) -> Iterator[dict[int, ProducerSnapshotEntry]]:
    """The producers as the batches below each of some offsets, in ascending order, make them; a block at a time."""
    due, producers = deque(offsets), _Producers(transactions)
    for headers in _read(transactions.log):
        begins, low = headers.column("base_offset"), 0
        while due and len(begins) and begins[-1] >= due[0]:
            high = int(np.searchsorted(begins, due[0]))
            producers.take(headers, low, high)
            yield producers.at(due.popleft())
            low = high
        producers.take(headers, low, len(headers))
    for offset in due:
        yield producers.at(offset)


class _Producers:
    """The last batch, the last batch with data and the last marker of each producer so far."""

    def __init__(self, transactions: PartitionTransactions) -> None:
        self._transactions = transactions
        self._last: dict[int, np.void] = {}
        self._data: dict[int, np.void] = {}
        self._markers: dict[int, Marker] = {}
        self._due = deque(transactions.markers)

    def take(self, headers: Headers, low: int, high: int) -> None:
        """Some more batches."""
        rows = np.arange(low, high)[headers.raw["producer_id"][low:high] >= 0]
        self._last.update(_last_of_each(headers, rows))
        self._data.update(_last_of_each(headers, rows[~is_set(headers, CONTROL_MASK)[rows]]))

    def at(self, offset: int) -> dict[int, ProducerSnapshotEntry]:
        """What is known of them at an offset: that of the next batch."""
        while self._due and self._due[0].offset < offset:
            marker = self._due.popleft()
            self._markers[marker.producer_id] = marker
        opened = self._transactions.open_at(offset)
        return {
            producer_id: _entry(last, self._data.get(producer_id), self._markers.get(producer_id), opened)
            for producer_id, last in self._last.items()
        }


def _last_of_each(headers: Headers, rows: Ints) -> Iterator[tuple[int, np.void]]:
    """Of some batches, in log order, the last one of each producer."""
    assert isinstance(headers.raw, np.ndarray), "all fields were asked for"
    ids, places = np.unique(headers.raw["producer_id"][rows][::-1], return_index=True)
    for producer_id, row in zip(ids.tolist(), rows[::-1][places].tolist(), strict=True):
        yield producer_id, headers.raw[row].copy()  # a view would keep the whole block


def _entry(
    last: np.void, data: np.void | None, marker: Marker | None, opened: Mapping[int, int]
) -> ProducerSnapshotEntry:
    """What is known of a producer after its last batch or marker; a marker of a new epoch forgets its batches."""
    batch = None if data is None or data["producer_epoch"] != last["producer_epoch"] else data
    delta = 0 if batch is None else int(batch["last_offset_delta"])
    coordinator_epoch = None if marker is None else marker.coordinator_epoch
    return ProducerSnapshotEntry(
        producer_id=int(last["producer_id"]),
        producer_epoch=int(last["producer_epoch"]),
        last_sequence=-1 if batch is None else (int(batch["base_sequence"]) + delta) & 0x7FFFFFFF,
        last_offset=-1 if batch is None else int(batch["base_offset"]) + delta,
        offset_delta=delta,
        timestamp=int(last["max_timestamp"]),
        coordinator_epoch=-1 if coordinator_epoch is None else coordinator_epoch,
        current_txn_first_offset=opened.get(int(last["producer_id"])),
    )


def _read(log: PartitionLog) -> Iterator[Headers]:
    """The headers of a log, a block at a time."""
    for name in log.segments:
        path = Path(log.folder, name)
        yield from read_headers(path, index=read_index(path), check_crc=False)


# --- replicas ---------------------------------------------------------------------------------------------------------


COMPARED_COLUMNS = ("base_offset", "leader_epoch", "crc")


def judge_replicas(replicas: Sequence[PartitionLog], result: Beside) -> None:
    """Compare the replicas of one partition with the first of them, of which three columns are held."""
    if len(replicas) < 2:
        return
    first, *others = replicas
    parts = [[headers.column(name) for name in COMPARED_COLUMNS] for headers in _read(first)]
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)] if parts else [np.empty(0, np.int64)] * 3
    order = np.argsort(columns[0], kind="stable")
    offsets, epochs, crcs = (column[order] for column in columns)
    for log in others:
        for found in _read(log):
            result.count(REPLICAS, "batches", len(found))
            if not len(offsets):
                continue
            own, epoch, crc = (found.column(name) for name in COMPARED_COLUMNS)
            places = np.minimum(np.searchsorted(offsets, own), len(offsets) - 1)
            same = (offsets[places] == own) & (epochs[places] == epoch)
            for row in np.flatnonzero(same & (crcs[places] != crc)).tolist():
                evidence = f"another batch than the one of {first.broker} in leader epoch {epoch[row]}"
                result.find(REPLICAS, log, evidence, offset=int(own[row]), position=int(found.positions[row]))
