"""The rules over the files next to a log: its indexes of aborted transactions, its producer snapshots, its replicas.

The rule over its leader epochs is in :mod:`kafka_eos_checks.audit.rules.epochs`.

A broker tells readers from the index which transactions are aborted. After a restart it takes the producers' state from
the last snapshot. So an error in either changes what is read or accepted although every batch is right. Both follow
from the batches, and the rules compare them with the batches.

``aborted index``
    An entry of a ``.txnindex`` that does not agree with an ABORT marker in its segment that ends data: producer, first
    and last offset, and last stable offset have to be equal. Or such a marker without an entry, or an entry behind the
    one of a later marker. A last stable offset that is too high, or comes too early, ends the search for aborted
    transactions too early, and their records are delivered.

``producer snapshot``
    An entry of a ``.snapshot`` that does not follow from the producer's batches below the snapshot's offset: epoch,
    last sequence, last offset, number of offsets, timestamp, coordinator epoch, first offset of the open transaction.
    Or a producer without a batch there. A hole may have had a batch or a marker of any producer. So an entry is unknown
    if it has a later batch than the log, a coordinator epoch of which no marker after the hole tells, or another open
    transaction than the one that was open before the hole.

``replicas differ``
    Two replicas of a partition that have different batches at one offset in one leader epoch. If the cleaner has
    removed records from one of the batches, or has set its delete horizon, only the fields that the cleaner keeps are
    compared: producer, epoch, sequence, last offset, and whether the batch is transactional or a marker. Batches of
    different leader epochs are not judged: one replica is an older copy, or was down while another leader was elected,
    and is to be truncated; or an unclean election has lost the records of one of them.

*Gone*, and no finding: what follows from batches that the log no longer has, or may have had in a hole. *Not judged*:
an index after the first hole of its log, which may have had data or markers of any transaction; and one that the first
segment of a running broker's copy lacks, because retention may have taken it between the two. *Too recent*, unless
all files are of one moment: entries of the newest index beyond the end of the log, or, if it has none of these, markers
after its last entry. Left out: a log without any index next to it; producers that a snapshot lacks, because they may
have expired; and the coordinator epoch of a producer that expired in between.

KIP:   KIP-98, KIP-101, KIP-360
Kafka: TransactionIndex, ProducerStateManager (takeSnapshot, lastStableOffset), UnifiedLog.truncateTo
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.segment import (
    AbortedTransaction,
    MalformedFile,
    ProducerSnapshotEntry,
    read_producer_snapshot,
    read_transaction_index,
)
from kafka_eos.formats.varint import INT64_MAX
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.moments import LOCK, is_locked
from kafka_eos_checks.audit.places import bytes_of, place
from kafka_eos_checks.audit.rules.epochs import LEADER_EPOCHS
from kafka_eos_checks.audit.rules.log import Subject
from kafka_eos_checks.audit.rules.transactions.names import RECENT
from kafka_eos_checks.audit.rules.transactions.partitions import PartitionTransactions, read_transactions
from kafka_eos_checks.audit.segments.contents import Figures
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    TRANSACTIONAL_MASK,
    Headers,
    Ints,
    is_set,
    read_index,
)
from kafka_eos_checks.audit.segments.order import stable_order
from kafka_eos_checks.audit.segments.reading import read_headers
from kafka_eos_checks.audit.segments.splits import PartitionLog, offset_in

ABORTED_INDEX, SNAPSHOT, REPLICAS = "aborted index", "producer snapshot", "replicas differ"
BESIDE_RULES = (ABORTED_INDEX, SNAPSHOT, REPLICAS, LEADER_EPOCHS)
NO_HOLE = -1  # instead of an offset

LAST = np.dtype(
    [
        ("interval", "i4"),  # how many offsets of snapshots are at or below its first offset
        ("is_data", "?"),  # whether it is the last batch with data; each last batch of any kind stands there, too
        *(("producer_id", "i8"), ("base_offset", "i8"), ("last_offset_delta", "i4")),
        *(("max_timestamp", "i8"), ("producer_epoch", "i2"), ("base_sequence", "i4")),
    ]
)
Last = NDArray[np.void]
INDEXED = np.dtype([("version", ">i2"), *((field.name, ">i8") for field in fields(AbortedTransaction))])
"""An entry of a ``.txnindex``. Kafka: AbortedTxn."""


class Files(NamedTuple):
    """The names of the files next to a log that these rules read.

    Attributes:
        snapshots: producer snapshots that are not empty, ascending.
        indexes: indexes of aborted transactions, ascending: those that are not empty, and, if the folder has indexes
            of its log, those of all segments. A broker writes none for a segment without aborted transactions.
    """

    snapshots: tuple[str, ...]
    indexes: tuple[str, ...]

    @property
    def offsets(self) -> list[int]:
        """The offsets of the snapshots."""
        return [offset_in(name) for name in self.snapshots]


class Aborts(Protocol):
    """The aborted transactions of a log, or of some of its segments."""

    @property
    def log(self) -> PartitionLog:
        """The log."""
        ...

    @property
    def start(self) -> int | None:
        """The first offset of the log; None for a log without batches."""
        ...

    @property
    def end(self) -> int:
        """The offset after its last one."""
        ...

    @property
    def first_hole(self) -> int | None:
        """The first missing offset of its first hole; None without one."""
        ...

    def aborts_in(self, segment: str) -> Iterable[AbortedTransaction]:
        """The ABORT markers that end data, in the segment with this base offset in its name, in log order."""
        ...

    def index_of(self, segment: str) -> NDArray[np.void] | None:
        """The same, dtype :data:`INDEXED`; None if they are not known as columns."""
        ...


_COMPARED = tuple(f.name for f in fields(ProducerSnapshotEntry) if f.name != "producer_id")


@dataclass(slots=True)
class Beside:
    """The findings of these rules, and the figures: how much was looked at, and how much could not be judged.

    Attributes:
        findings: violations, log by log.
        figures: by rule, the number of subjects, and of unknown ones.
        first: by rule, the first of the unknown ones.
    """

    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, Figures] = field(
        default_factory=lambda: {
            ABORTED_INDEX: {"entries": 0, "gone": 0, "unknown": 0, RECENT: 0},
            SNAPSHOT: {"snapshots": 0, "entries": 0, "gone": 0, "unknown": 0, RECENT: 0},
            REPLICAS: {"batches": 0, "unknown": 0},
        }
    )
    first: dict[str, Subject] = field(default_factory=dict)

    def count(self, rule: str, name: str, more: int = 1) -> None:
        """Add to a figure."""
        self.figures[rule][name] = int(self.figures[rule][name]) + more

    def leave(self, rule: str, log: PartitionLog, offset: int, producer_id: int = -1, more: int = 1) -> None:
        """Note so many subjects as unknown, of which the first is at this offset."""
        subject = Subject(log.topic, log.partition, offset, producer_id)
        self.count(rule, "unknown", more)
        self.first[rule] = min(subject, self.first.get(rule, subject))

    def add(self, other: "Beside") -> None:
        """Add the findings and figures of other logs."""
        self.findings += other.findings
        self.first |= {rule: min(subject, self.first.get(rule, subject)) for rule, subject in other.first.items()}
        for rule, figures in other.figures.items():
            for name, more in figures.items():
                self.count(rule, name, int(more))

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


def audit_beside(logs: Sequence[PartitionLog], *, one_moment: bool = True, check_crc: bool = True) -> Beside:
    """Judge the indexes and snapshots of some logs by reading them anew, and compare replicas.

    Args:
        logs: the logs.
        one_moment: whether logs and indexes are of one moment.
        check_crc: whether to compare each batch with its CRC.

    Raises:
        OSError: a file cannot be read.
    """
    result = Beside()
    for log in logs:
        files = files_of(log)
        if files is None:
            continue
        transactions = read_transactions(log, check_crc)
        for name in files.indexes:
            judge_index(transactions, name, result, one_moment=one_moment)
        judge_snapshots(transactions, files, read_last(log, files.offsets), result, one_moment=one_moment)
    for _, replicas in groupby(sorted(logs, key=_place), key=_place):
        judge_replicas(list(replicas), result)
    return result


def files_of(log: PartitionLog) -> Files | None:
    """The snapshots and indexes of a log; None for a log that has neither."""
    listed = list(place(log.folder).glob(f"{'[0-9]' * 20}.*"))
    links = {path.name for path in listed if path.is_symlink()}  # never followed, and not missing either
    sizes = {path.name: _size(path) for path in listed if path.name not in links}
    snapshots = [name for name, size in sizes.items() if size and name.endswith(".snapshot")]
    own = {name for name, size in sizes.items() if size and name.endswith(".txnindex")}
    bases = {segment.partition(".")[0] for segment in log.segments if sizes.get(segment)}
    due = {f"{base}.txnindex" for base in bases if own or f"{base}.index" in sizes or f"{base}.txnindex" in sizes}
    files = Files(tuple(sorted(snapshots)), tuple(sorted((own | due) - links)))
    return files if any(files) else None


def _place(log: PartitionLog) -> tuple[str, int]:
    return log.topic, log.partition


def _size(path: Path) -> int:
    """The size of a file; 0 if retention has deleted it meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# --- the index of aborted transactions ------------------------------------------------------------------------------


def judge_index(transactions: Aborts, name: str, result: Beside, *, one_moment: bool = True) -> None:
    """Compare the ``.txnindex`` of this name with the ABORT markers of its segment, if that is still there."""
    log, segment = transactions.log, name.partition(".")[0]
    path = log.file(name)
    hole = INT64_MAX if transactions.first_hole is None else transactions.first_hole
    expected, data = transactions.index_of(segment), bytes_of(path)
    is_before = expected is not None and (not len(expected) or expected["last_offset"][-1] < hole)
    if expected is not None and is_before and (data or b"") == expected.tobytes():
        result.count(ABORTED_INDEX, "entries", len(expected))
        return
    try:
        entries: Sequence[AbortedTransaction] = () if data is None else read_transaction_index(path)
    except MalformedFile as error:
        result.find(ABORTED_INDEX, log, error.reason, file=name, position=error.position)
        return
    result.count(ABORTED_INDEX, "entries", len(entries))
    aborts = list(transactions.aborts_in(segment))
    last = max((entry.last_offset for entry in entries), default=-1)
    later = ([each for each in some if each.last_offset >= hole] for some in (entries, aborts))
    unknown = next(filter(None, later), [])
    if unknown:
        first = min(unknown, key=lambda each: each.last_offset)
        result.leave(ABORTED_INDEX, log, first.last_offset, first.producer_id, len(unknown))
    entries, aborts = ([each for each in some if each.last_offset < hole] for some in (entries, aborts))
    if data is None and not one_moment:
        of_segment = [each for each in log.segments if each.partition(".")[0] == segment]
        if not any(log.file(each).is_file() for each in of_segment):
            return  # retention has deleted both since the log was read
    start = transactions.start or 0
    kept = [entry for entry in entries if entry.first_offset >= start]
    result.count(ABORTED_INDEX, "gone", len(entries) - len(kept))
    is_last = segment >= log.segments[-1].partition(".")[0]  # also of a segment behind the log's end, that was not read
    inside = [entry for entry in kept if entry.last_offset < transactions.end or not is_last]
    beyond = [entry for entry in kept if entry.last_offset >= transactions.end and is_last]
    if beyond and one_moment:
        first = min(beyond, key=lambda each: each.last_offset)
        result.leave(ABORTED_INDEX, log, first.last_offset, first.producer_id, len(beyond))
    else:
        result.count(ABORTED_INDEX, RECENT, len(beyond))
    gone = {entry.last_offset for entry in entries} - {entry.last_offset for entry in kept}
    due = [aborted for aborted in aborts if aborted.last_offset not in gone]
    if not one_moment and is_last and not beyond:  # otherwise the index was read after the log
        newer = sum(aborted.last_offset > last for aborted in due)
        result.count(ABORTED_INDEX, "entries", newer)
        result.count(ABORTED_INDEX, RECENT, newer)
        due = due[: len(due) - newer]
    is_first = segment == log.segments[0].partition(".")[0]
    if due and data is None and not one_moment and is_first and not is_locked(log.directory / LOCK):
        result.count(ABORTED_INDEX, "entries", len(due))
        result.leave(ABORTED_INDEX, log, due[0].last_offset, due[0].producer_id, len(due))
        return
    lost = "" if data else f"the file is {'missing' if data is None else 'empty'}: "
    _compare_index(log, name, inside, due, start, result, lost)


def _compare_index(
    log: PartitionLog,
    file: str,
    entries: Iterable[AbortedTransaction],
    aborted: Iterable[AbortedTransaction],
    start: int,
    result: Beside,
    lost: str,
) -> None:
    """Compare entries with the entries due, in a log that starts at ``start``; ``lost`` says why the file has none."""
    due = {each.last_offset: each for each in aborted}
    highest = -1  # offset of a marker so far
    for entry in entries:
        expected = due.pop(entry.last_offset, None)
        if expected is None:
            evidence = f"an entry of {_in_words(entry)}, where no ABORT marker ends data"
        elif entry.last_offset < highest:
            evidence = f"an entry of {_in_words(entry)} behind the one of offset {highest}: a search may end before it"
        elif entry.last_stable_offset < start:  # a transaction that began before the log does held it back
            result.count(ABORTED_INDEX, "gone")
            continue
        elif entry != expected:
            evidence = f"expected {_in_words(expected)}, found {_in_words(entry)}"
        else:
            highest = entry.last_offset
            continue
        result.find(ABORTED_INDEX, log, evidence, file=file, offset=entry.last_offset)
    for offset, missing in due.items():
        result.find(ABORTED_INDEX, log, f"{lost}no entry of {_in_words(missing)}", file=file, offset=offset)


def _in_words(entry: AbortedTransaction) -> str:
    offsets = f"producer {entry.producer_id} offsets {entry.first_offset} to {entry.last_offset}"
    return f"{offsets}, last stable offset {entry.last_stable_offset}"


# --- producer snapshots -----------------------------------------------------------------------------------------------


def judge_snapshots(
    transactions: PartitionTransactions,
    files: Files,
    last: Iterable[Last],
    result: Beside,
    *,
    one_moment: bool = True,
) -> None:
    """Compare each ``.snapshot`` with the producers' state that follows from the batches below its offset.

    Args:
        transactions: the transactions of the log.
        files: the names of its snapshots.
        last: its batches by their offsets (:func:`last_batches`), in log order.
        result: takes the findings and figures.
        one_moment: whether log and snapshots are of one moment.
    """
    log = transactions.log
    holes = [hole_below(offset, transactions.hole_starts, transactions.end) for offset in files.offsets]
    known = producers_at(files.offsets, last, transactions, holes)
    for name, hole, (offset, producers) in zip(files.snapshots, holes, known, strict=True):
        if not is_judged(log, offset, log.end_after(transactions.end), result, one_moment=one_moment):
            continue
        try:
            entries = read_producer_snapshot(log.file(name))
        except MalformedFile as error:
            result.find(SNAPSHOT, log, error.reason, file=name, position=error.position)
            continue
        result.count(SNAPSHOT, "entries", len(entries))
        for entry in entries:
            expected = producers.get(entry.producer_id)
            is_partial = transactions.start != 0 or hole != NO_HOLE
            if is_partial and (expected is None or is_gone(expected, entry, transactions.start or 0, hole)):
                result.count(SNAPSHOT, "gone")
            else:
                compare_entry(log, name, expected, entry, result)


def is_judged(log: PartitionLog, offset: int, end: int, result: Beside, *, one_moment: bool) -> bool:
    """Count a snapshot, and tell whether it is judged: its offset is not beyond the end of the log."""
    result.count(SNAPSHOT, "snapshots")
    if offset > end and one_moment:
        result.leave(SNAPSHOT, log, offset)
    elif offset > end:
        result.count(SNAPSHOT, RECENT)
    return offset <= end


def compare_entry(
    log: PartitionLog,
    file: str,
    expected: ProducerSnapshotEntry | None,
    entry: ProducerSnapshotEntry,
    result: Beside,
) -> None:
    """Compare an entry of a snapshot with the one that follows from the log; None if no batch is of its producer."""
    evidence = _difference(expected, entry)
    if evidence:
        where = {"producer_id": entry.producer_id, "producer_epoch": entry.producer_epoch}
        result.find(SNAPSHOT, log, evidence, file=file, offset=offset_in(file), **where)


def hole_below(offset: int, starts: Sequence[int], end: int) -> int:
    """The first missing offset of the last hole that begins below an offset; :data:`NO_HOLE` for none.

    The holes of the log begin at ``starts``, ascending, and its last one at its end.
    """
    if end < offset:
        return end
    number = bisect_left(starts, offset)
    return starts[number - 1] if number else NO_HOLE


def is_gone(expected: ProducerSnapshotEntry, found: ProducerSnapshotEntry, start: int, hole: int) -> bool:
    """Whether an entry follows from batches that the log no longer has, because it starts late or has holes.

    The log then lacks a batch or marker that the entry names, or the first batch of the producer's open transaction.
    That batch, or the marker of a transaction that was open before the hole, may also be in the hole.
    """
    first, due = found.current_txn_first_offset, expected.current_txn_first_offset
    missing = found.last_offset > expected.last_offset or (first is not None and first < start)
    unmarked = expected.coordinator_epoch == -1 != found.coordinator_epoch
    in_hole = hole != NO_HOLE and first != due and (first is not None or (due is not None and due < hole))
    return missing or unmarked or in_hole or found.last_offset < start


def _difference(expected: ProducerSnapshotEntry | None, found: ProducerSnapshotEntry) -> str:
    """The error of an entry in words; "" for none."""
    if expected is None:
        return "no batch below the snapshot's offset is of this producer"
    if expected == found:
        return ""
    pairs = {name: (getattr(expected, name), getattr(found, name)) for name in _COMPARED}
    if found.coordinator_epoch == -1:  # the producer may have expired since its last marker
        del pairs["coordinator_epoch"]
    wrong = [f"{name} {was}, expected {due}" for name, (due, was) in pairs.items() if due != was]
    return "; ".join(wrong)


def producers_at(
    offsets: Sequence[int], last: Iterable[Last], transactions: PartitionTransactions, holes: Sequence[int] = ()
) -> Iterator[tuple[int, dict[int, ProducerSnapshotEntry]]]:
    """The producers after the batches below each of some ascending offsets.

    Their coordinator epochs are those of markers after the hole below the offset (:func:`hole_below`), if holes count.
    """
    behind = np.zeros(1, LAST)
    behind["interval"] = len(offsets)
    producers, parts = _Producers(transactions), chain(last, [behind])
    rest = np.zeros(0, LAST)
    for number, offset in enumerate(offsets):
        while not len(rest) or rest["interval"][-1] <= number:
            producers.take(rest)
            rest = next(parts)
        cut = int(np.searchsorted(rest["interval"], number, side="right"))
        producers.take(rest[:cut])
        rest = rest[cut:]
        yield offset, producers.at(offset, holes[number] if holes else NO_HOLE)


class _Last(NamedTuple):
    """The last batch of a producer, with the fields of its header."""

    base_offset: int
    last_offset_delta: int
    max_timestamp: int
    producer_epoch: int
    base_sequence: int


_MOST_PARTS = 64  # of chunks, before those of a producer become one
SNAPSHOT_COLUMNS = ("attributes", "producer_id", *_Last._fields)


def last_batches(headers: Headers, offsets: Sequence[int], ends: Ints | None = None) -> Last:
    """The last batch, and the last with data, of each producer between the offsets of snapshots; dtype :data:`LAST`.

    Args:
        headers: consecutive batches.
        offsets: the offsets of the snapshots, ascending; what follows the last one is left out.
        ends: some of the batches, by producer id and in log order within one. After each other batch with a producer id
            comes one of the same producer, which also has data.
    """
    found = [np.zeros(0, LAST)]
    if not len(headers):
        return found[0]
    begins = np.maximum.accumulate(headers.column("base_offset"))
    first, end = (bisect_right(offsets, int(begin)) for begin in begins[[0, -1]])  # a log may have thousands of others
    cuts = [0, *np.searchsorted(begins, np.array(offsets[first : end + 1], np.int64)).tolist()]
    control = is_set(headers, CONTROL_MASK)
    for interval, (low, high) in enumerate(pairwise(cuts), first):
        if ends is not None and (low, high) == (0, len(headers)):
            order = ends
        else:
            order = low + stable_order(headers.column("producer_id")[low:high])
        ids = headers.column("producer_id")[order]
        order, ids = order[ids >= 0], ids[ids >= 0]
        for is_data in (False, True):
            own = ~control[order] if is_data else np.ones(len(order), np.bool_)
            rows = order[own][np.append(ids[own][1:] != ids[own][:-1], True)] if own.any() else order[:0]
            part = np.zeros(len(rows), LAST)
            part["interval"], part["is_data"] = interval, is_data
            for name in ("producer_id", *_Last._fields):
                part[name] = headers.fields[name][rows]
            found.append(part)
    return np.concatenate(found)


def read_last(log: PartitionLog, offsets: Sequence[int]) -> Iterator[Last]:
    """The last batches of a log, a block at a time."""
    for headers in _read(log, SNAPSHOT_COLUMNS) if offsets else ():
        yield last_batches(headers, offsets)


class _Producers:
    """The last batch and the last batch with data of each producer so far."""

    def __init__(self, transactions: PartitionTransactions) -> None:
        self._transactions = transactions
        self._rows: list[Last] = [np.zeros(0, LAST)]

    def take(self, rows: Last) -> None:
        """Take in the next batches."""
        self._rows.append(rows)
        if len(self._rows) > _MOST_PARTS:
            self._rows = [self._latest()]

    def _latest(self) -> Last:
        rows = np.concatenate(self._rows)
        key = rows["producer_id"] << 1 | rows["is_data"]  # producer ids are not negative
        order = stable_order(key)
        latest: Last = rows[order[np.append(key[order][1:] != key[order][:-1], True)[: len(order)]]]
        return latest

    def at(self, offset: int, hole: int) -> dict[int, ProducerSnapshotEntry]:
        """The expected entry of each producer; all batches taken are below it. Markers count after a hole."""
        epochs, opened = self._transactions.coordinator_epochs_at(offset, hole), self._transactions.open_at(offset)
        rows = self._latest()
        self._rows = [rows]
        known = []
        for own in (rows[~rows["is_data"]], rows[rows["is_data"]]):
            batches = map(_Last, *(own[name].tolist() for name in _Last._fields))
            known.append(dict(zip(own["producer_id"].tolist(), batches, strict=True)))
        return {
            producer_id: _entry(producer_id, last, known[1].get(producer_id), epochs.get(producer_id), opened)
            for producer_id, last in known[0].items()
        }


def _entry(
    producer_id: int,
    last: _Last,
    data: _Last | None,
    coordinator_epoch: int | None,
    opened: Mapping[int, int],
) -> ProducerSnapshotEntry:
    """The expected entry of a producer after its last batch or marker. A marker of a new epoch removes its batches."""
    batch = None if data is None or data.producer_epoch != last.producer_epoch else data
    delta = 0 if batch is None else batch.last_offset_delta
    return ProducerSnapshotEntry(
        producer_id=producer_id,
        producer_epoch=last.producer_epoch,
        last_sequence=-1 if batch is None else (batch.base_sequence + delta) & 0x7FFFFFFF,
        last_offset=-1 if batch is None else batch.base_offset + delta,
        offset_delta=delta,
        timestamp=last.max_timestamp,
        coordinator_epoch=-1 if coordinator_epoch is None else coordinator_epoch,
        current_txn_first_offset=opened.get(producer_id),
    )


def _read(log: PartitionLog, columns: Sequence[str]) -> Iterator[Headers]:
    """The headers of a log, a block at a time."""
    for name in log.segments:
        path = log.file(name)
        end = log.end_of(name)
        yield from read_headers(path, end=end, index=read_index(path), check_crc=False, columns=columns)


# --- replicas ---------------------------------------------------------------------------------------------------------


REPLICA_COLUMNS = (
    *("base_offset", "leader_epoch", "crc", "record_count", "attributes", "last_offset_delta"),
    *("producer_id", "producer_epoch", "base_sequence"),
)
Table = dict[str, Ints]


class Compare(Protocol):
    """Compares replicas with the first of them, and adds findings and figures to a result."""

    def __call__(self, first: PartitionLog, others: Sequence[PartitionLog], result: Beside, /) -> None:
        """See :func:`compare_replicas`."""
        ...


def differs_from(broker: str) -> str:
    """The beginning of the evidence of a batch that differs from the one of a broker."""
    return f"the batch differs from the one of {broker} in leader epoch "


def _all_headers(log: PartitionLog) -> Iterator[tuple[str, Headers]]:
    for name in log.segments:
        for headers in _read(replace(log, segments=(name,)), REPLICA_COLUMNS):
            yield name, headers


def compare_replicas(
    first: PartitionLog,
    others: Sequence[PartitionLog],
    result: Beside,
    read: Callable[[PartitionLog], Iterable[tuple[str, Headers]]] = _all_headers,
) -> None:
    """Compare replicas with the first of them, whose columns are held in memory.

    Args:
        first: a replica.
        others: the replicas to compare with it.
        result: takes the findings and figures.
        read: the headers of a replica that are compared, with the names of their segments.
    """
    parts = [_table(headers) for _, headers in read(first)]
    whole = {name: np.concatenate([np.empty(0, np.int64), *(part[name] for part in parts)]) for name in REPLICA_COLUMNS}
    order = np.argsort(whole["base_offset"], kind="stable")
    known = {name: column[order] for name, column in whole.items()}
    for log in others:
        for segment, found in read(log):
            result.count(REPLICAS, "batches", len(found))
            if not len(order):
                continue
            own = _table(found)
            places = np.minimum(np.searchsorted(known["base_offset"], own["base_offset"]), len(order) - 1)
            there = {name: column[places] for name, column in known.items()}
            here = there["base_offset"] == own["base_offset"]
            same = there["leader_epoch"] == own["leader_epoch"]
            if len(apart := np.flatnonzero(here & ~same)):
                offset, producer_id = (int(own[name][apart[0]]) for name in ("base_offset", "producer_id"))
                result.leave(REPLICAS, log, offset, producer_id, len(apart))
            same &= here
            for row in np.flatnonzero(same & _differ(there, own)).tolist():
                evidence = f"{differs_from(first.broker)}{int(own['leader_epoch'][row])}"
                offset, position = int(own["base_offset"][row]), int(found.positions[row])
                result.find(REPLICAS, log, evidence, file=segment, offset=offset, position=position)


def judge_replicas(replicas: Sequence[PartitionLog], result: Beside, compare: Compare = compare_replicas) -> None:
    """Compare the replicas of one partition with the first of them."""
    first, *others = replicas
    if others:
        compare(first, others, result)


def _table(headers: Headers) -> Table:
    return {name: headers.column(name) for name in REPLICA_COLUMNS}


def _differ(one: Table, other: Table) -> NDArray[np.bool_]:
    """Whether batches differ, shape (n,): by the fields that the cleaner keeps, and by CRC if it rewrote neither."""
    kept = ("last_offset_delta", "producer_id", "producer_epoch", "base_sequence")
    changed = np.any([one[name] != other[name] for name in kept], axis=0)
    changed |= (one["attributes"] ^ other["attributes"]) & (TRANSACTIONAL_MASK | CONTROL_MASK) != 0
    cleaned = _is_cleaned(one) | _is_cleaned(other)
    different: NDArray[np.bool_] = changed | (~cleaned & (one["crc"] != other["crc"]))
    return different


def _is_cleaned(batches: Table) -> NDArray[np.bool_]:
    """Whether the cleaner has rewritten each batch, shape (n,)."""
    fewer = batches["record_count"] <= batches["last_offset_delta"]
    cleaned: NDArray[np.bool_] = fewer | (batches["attributes"] & DELETE_HORIZON_MASK != 0)
    return cleaned
