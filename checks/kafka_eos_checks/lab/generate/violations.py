"""Violations of the audit's rules, planted in the traffic of a cluster at known places.

Each is what one fault of a broker, a coordinator or a client leaves in the logs, and gives exactly one finding of its
rule; a batch without the transactional bit gives one of each of two rules. Indexes and snapshots are computed from the
logs with the violations, so that they agree with them. No two violations are in neighbouring transactions.

==================================== ================================================================================
rule                                 what is planted
==================================== ================================================================================
duplicate, gap, stale epoch          a batch of an idempotent producer twice, left out, or again with the epoch before
order                                a batch with the last offset of the batch before it
leader epoch went back               a batch before it with a higher leader epoch
batch outside transaction            a batch more after the first of a transaction, without the transactional bit
data without transaction             the same batch
torn transaction                     an ABORT marker on one partition of a committed transaction; and a completed
                                     transaction of which one partition has nothing, as if its log had been cut there by
                                     an unclean election before it went on
hanging transaction                  no marker on one partition of a client's last transaction
marker without transaction           a COMMIT marker on a partition that is not in the transaction
fenced producer committed            data of the epoch before InitProducerId in the transaction after it
marker of an old coordinator         a marker again, with the coordinator epoch before
illegal coordinator transition       PREPARE_COMMIT without ONGOING
decision changed                     COMPLETE_ABORT after PREPARE_COMMIT
committed offset went back           an offset below the one of the transaction before
committed offset beyond the end      an offset one past the end of a partition, by a group that commits nothing else
aborted index                        an index entry whose last stable offset is too high
producer snapshot                    a snapshot entry whose timestamp is too high
replicas differ                      another value, with its CRC, on the second broker
leader epoch checkpoint              a last line whose epoch is too high, next to a log whose epochs do not go back
==================================== ================================================================================
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from kafka_eos.formats.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT
from kafka_eos.formats.record_batch import (
    CHECKED_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    ControlType,
    Record,
    build_batch,
)
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos_checks.audit.moments import SKEW_MS
from kafka_eos_checks.audit.rules.beside import ABORTED_INDEX, REPLICAS, SNAPSHOT
from kafka_eos_checks.audit.rules.coordinator import DECISION_CHANGED, ILLEGAL_TRANSITION
from kafka_eos_checks.audit.rules.epochs import LEADER_EPOCHS
from kafka_eos_checks.audit.rules.log import DUPLICATE, GAP, LEADER_BACK, ORDER, OUTSIDE, STALE_EPOCH
from kafka_eos_checks.audit.rules.offsets import BEYOND, WENT_BACK
from kafka_eos_checks.audit.rules.transactions.names import FENCED, HANGING, NO_BIT, OLD_COORDINATOR, TORN
from kafka_eos_checks.audit.rules.transactions.names import NO_TRANSACTION as WITHOUT
from kafka_eos_checks.audit.segments import header_tables
from kafka_eos_checks.audit.segments.headers import FIELDS, Headers, Ints
from kafka_eos_checks.audit.segments.marks import Marks
from kafka_eos_checks.lab.generate.batches import (
    BEHIND,
    FIRST_TIMESTAMP,
    NO_EPOCH,
    NO_PRODUCER,
    NO_SEQUENCE,
    NO_TRANSACTION,
    Batches,
)
from kafka_eos_checks.lab.generate.log_files import ABORTED, NEVER, PRODUCER, LogFiles

if TYPE_CHECKING:
    from kafka_eos_checks.lab.generate.traffic import CommitBatches, Runs, StateBatches, Transactions

IN_BATCHES = (DUPLICATE, GAP, STALE_EPOCH, ORDER, LEADER_BACK)
LOST = "lost marker"  # a second kind of torn transaction, found at its log's end
IN_TRANSACTIONS = (
    *(FENCED, HANGING, LOST, TORN, WITHOUT, OLD_COORDINATOR),  # what has the fewest candidates first
    *(DECISION_CHANGED, ILLEGAL_TRANSITION, WENT_BACK, OUTSIDE),
)
CODES = {rule: number for number, rule in enumerate((*IN_BATCHES, *IN_TRANSACTIONS), 1)}
NOTHING = 0  # instead of a code
CERTAIN = 2 * SKEW_MS  # ms after a log's first marker: a transaction decided then has a marker there, or lost it
SPACING = 4  # among so many batches of a producer at most one is faulty, so that no fault hides another

Row = dict[str, Any]  # rule, topic, partition, offset


def planted_in(batches: Batches, topic: str, partition: int) -> Iterator[Row]:
    """The violations planted in batches that have their offsets."""
    names = {code: rule for rule, code in CODES.items()}
    rows = np.flatnonzero(batches.planted != NOTHING)
    for code, offset in zip(batches.planted[rows].tolist(), batches.base_offset[rows].tolist(), strict=True):
        yield row_of(names[code], topic, partition, offset)
        if names[code] == OUTSIDE:
            yield row_of(NO_BIT, topic, partition, offset)


def row_of(rule: str, topic: str, partition: int, offset: int | None) -> Row:
    """A planted violation as a row of ``planted.jsonl``."""
    return {"rule": rule, "topic": topic, "partition": partition, "offset": offset}


# ---- of idempotent producers


def candidates(batches: Batches, eligible: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Choose the batches that can be left out, doubled or made stale without a second finding.

    Args:
        batches: consecutive batches of a log.
        eligible: mask of the batches of idempotent producers, shape (n,).

    Returns:
        Rows of the candidates, and for every row the row of its producer's next batch.
    """
    own = np.flatnonzero(eligible)
    order = own[np.argsort(batches.producer_id[own], kind="stable")]
    pid, epoch = batches.producer_id[order], batches.producer_epoch[order]
    is_same = (pid[1:] == pid[:-1]) & (epoch[1:] == epoch[:-1])
    inner = np.zeros(len(order), np.bool_)
    inner[1:-1] = is_same[1:] & is_same[:-1]
    number = np.arange(len(order)) - np.searchsorted(pid, pid)
    following = np.full(len(batches), -1)
    following[order[:-1]] = order[1:]
    return order[inner & (number % SPACING == SPACING // 2) & (epoch >= 1)], following


def with_wrong_sequences(batches: Batches, faults: dict[str, Ints], following: Ints) -> Batches:
    """Return the batches with duplicates, gaps and stale epochs planted.

    Args:
        batches: consecutive batches of a log.
        faults: by rule, the rows to double, to leave out, and to double with the epoch before.
        following: for each row the row of its producer's next batch.
    """
    times = np.ones(len(batches), np.int64)
    times[faults[GAP]] = 0
    times[faults[DUPLICATE]] = times[faults[STALE_EPOCH]] = 2
    place = np.repeat(np.arange(len(batches)), times)
    is_second = np.concatenate(([False], place[1:] == place[:-1]))[: len(place)]
    found = batches.take(place)
    is_stale = is_second & np.isin(place, faults[STALE_EPOCH])
    planted = found.planted.copy()
    planted[is_second & np.isin(place, faults[DUPLICATE])] = CODES[DUPLICATE]
    planted[~is_second & np.isin(place, following[faults[GAP]])] = CODES[GAP]
    planted[is_stale] = CODES[STALE_EPOCH]
    return replace(found, producer_epoch=found.producer_epoch - is_stale, planted=planted)


def with_wrong_order(batches: Batches, after: Ints) -> Batches:
    """Return the batches, with a batch without producer and with the same last offset after some of them."""
    place = np.sort(np.concatenate((np.arange(len(batches)), after)))
    is_second = np.concatenate(([False], place[1:] == place[:-1]))[: len(place)]
    found = batches.take(place)
    values = {
        "base_offset": BEHIND,
        "record_count": 1,
        "producer_id": NO_PRODUCER,
        "producer_epoch": NO_EPOCH,
        "base_sequence": NO_SEQUENCE,
        "attributes": 0,
        "transaction": NO_TRANSACTION,
        "planted": CODES[ORDER],
    }
    return replace(found, **{name: np.where(is_second, value, getattr(found, name)) for name, value in values.items()})


def with_wrong_leaders(batches: Batches, before: Ints) -> Batches:
    """Return the batches with a higher leader epoch in some of them, so that the one after each goes back."""
    leader_epoch, planted = batches.leader_epoch.copy(), batches.planted.copy()
    leader_epoch[before] += 1
    planted[before + 1] = CODES[LEADER_BACK]
    return replace(batches, leader_epoch=leader_epoch, planted=planted)


# ---- in the traffic


@dataclass(slots=True)
class Violations:
    """Violations to be planted in the traffic of a cluster.

    Args:
        faults: violations of each rule.
        slices: number of slices of time over which they are spread.
        partitions: number of partitions of the topic.
        first_client: the lowest producer id of a transactional client.
        seed: decides which transactions and batches are changed.

    Attributes:
        lost: the partitions that have lost a marker, at most one each, because they are found at the log's end.
    """

    faults: int
    slices: int
    partitions: int
    first_client: int
    seed: int
    lost: list[int] = field(init=False, default_factory=list)

    _rng: np.random.Generator = field(init=False)
    _of_leaders: np.random.Generator = field(init=False)
    _done: Counter[str] = field(init=False, default_factory=Counter)
    _outside: list[tuple[int, int]] = field(init=False, default_factory=list)  # client and partition, once each
    _marked_ms: Ints = field(init=False)  # when each partition has a marker at the latest, shape (partitions,)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng([self.seed, 1])
        self._of_leaders = np.random.default_rng([self.seed, 3])
        self._marked_ms = np.full(self.partitions, NEVER)

    def _due(self, rule: str, number: int, share: float = 1.0) -> int:
        """Return how many violations of a rule are still due in a slice, or in a part of it."""
        due = self.faults * min(number + share, self.slices) / self.slices
        return int(np.floor(due + 1e-9)) - self._done[rule]

    def demand_all(self) -> None:
        """Check that all violations are planted.

        Raises:
            ValueError: the cluster was too small for them.
        """
        short = [f"{self._done[rule]} of {rule}" for rule in CODES if self._done[rule] < self.faults]
        if short:
            more = "--partitions" if self._done[LOST] == self.partitions else "--transactions"
            raise ValueError(f"room for {', '.join(short)}, not for {self.faults}; give more {more}")

    def choose(self, number: int, transactions: "Transactions", decided_ms: Ints, ended_ms: Ints) -> "Transactions":
        """Choose for a slice the transactions with a violation, its rule, and the partition on which it is.

        Args:
            number: number of the slice.
            transactions: those that begin in it.
            decided_ms: when each is decided, in milliseconds since the epoch.
            ended_ms: when the last of its markers is written at the latest.
        """
        own = transactions
        self._note_markers(own, ended_ms, may_hang=number == self.slices - 1)
        planted, spoilt = own.planted.copy(), own.spoilt.copy()
        free = np.ones(len(own), np.bool_)
        for rule in IN_TRANSACTIONS:
            due = self._due(rule, number) if rule != HANGING else self.faults * (number == self.slices - 1)
            if due <= 0 or not len(own):
                continue
            fits = self._fitting(rule, own, decided_ms) & free[:, None]
            places = self._rng.permutation(np.flatnonzero(fits.any(axis=1)))
            for row in places.tolist():
                if rule == LOST:
                    fits[row] &= ~np.isin(own.partitions[row], self.lost)
                elif rule == OUTSIDE:
                    others = [partition for client, partition in self._outside if client == own.client[row]]
                    fits[row] &= ~np.isin(own.partitions[row], others)
                if due and free[row] and fits[row].any():
                    planted[row] = CODES[rule]
                    spoilt[row] = self._rng.choice(np.flatnonzero(fits[row]))
                    if rule == LOST:
                        self.lost.append(int(own.partitions[row, spoilt[row]]))
                    elif rule == OUTSIDE:
                        self._outside.append((int(own.client[row]), int(own.partitions[row, spoilt[row]])))
                    free[max(0, row - 2) : row + 3] = False
                    self._done[rule] += 1
                    due -= 1
        return replace(own, planted=planted, spoilt=spoilt)

    def _note_markers(self, own: "Transactions", ended_ms: Ints, *, may_hang: bool) -> None:
        """Note when each partition has a marker, of a transaction on which none of the violations can be a lost one."""
        is_last = np.append(own.client[1:] != own.client[:-1], True)
        sure = np.flatnonzero(~own.empty & ~(is_last & may_hang))
        np.minimum.at(self._marked_ms, own.partitions[sure], ended_ms[sure, None])

    def _fitting(self, rule: str, own: "Transactions", decided_ms: Ints) -> NDArray[np.bool_]:
        """Mask of the partitions of transactions on which a rule can be violated, shape (n, spread)."""
        is_last = np.append(own.client[1:] != own.client[:-1], True)
        commits = own.decision == ControlType.COMMIT
        has_data = own.counts > 0
        once = ~own.again[:, :-1]
        named = own.version_2 & commits  # transactions with an epoch of their own, which no other transaction has
        spread = has_data.shape[1]
        following_commits = np.append(commits[1:], False) & ~is_last
        which: dict[str, NDArray[np.bool_]] = {
            FENCED: (~own.version_2 & commits & own.begun_anew & own.was_known & (own.rises > 0))[:, None] & has_data,
            HANGING: (own.version_2 & is_last)[:, None] & has_data & once,
            LOST: named[:, None] & has_data & (self._marked_ms[own.partitions] < decided_ms[:, None] - CERTAIN),
            TORN: (named & (spread > 1))[:, None] & has_data & once,
            WITHOUT: (named & (spread < self.partitions))[:, None] & once,
            OLD_COORDINATOR: named[:, None] & once,
            DECISION_CHANGED: (named & following_commits)[:, None] & once,
            ILLEGAL_TRANSITION: named[:, None] & once,
            OUTSIDE: has_data,
            WENT_BACK: (commits & (own.group >= 0) & (own.committed_before > 0))[:, None] & once,
        }
        return which[rule]

    def in_runs(self, runs: "Runs", transactions: "Transactions") -> "Runs":
        """Plant violations in the runs; a transaction has three on each partition: data, marker, second marker."""
        own, shape = transactions, (*transactions.partitions.shape, 3)
        names = ("partition", "producer_epoch", "count", "decision", "coordinator_epoch", "planted")
        changed = {name: getattr(runs, name).reshape(shape).copy() for name in names}
        data, marker, again = 0, 1, 2

        def at(rule: str) -> tuple[Ints, Ints]:
            rows = np.flatnonzero(own.planted == CODES[rule])
            return rows, own.spoilt[rows]

        row, place = at(FENCED)
        changed["producer_epoch"][row, place, data] -= 1
        changed["planted"][row, place, data] = CODES[FENCED]
        row, place = at(HANGING)
        changed["count"][row, place, marker:] = 0
        changed["planted"][row, place, data] = CODES[HANGING]
        row, place = at(LOST)
        changed["count"][row, place] = 0
        row, place = at(OUTSIDE)
        changed["count"][row, place, data] += 1
        changed["planted"][row, place, data] = CODES[OUTSIDE]
        row, place = at(TORN)
        changed["decision"][row, place, marker] = ControlType.ABORT
        changed["planted"][row, place, marker] = CODES[TORN]
        row, place = at(WITHOUT)
        changed["count"][row, place, again] = 1
        changed["partition"][row, place, again] = self._others(own.partitions[row])
        changed["planted"][row, place, again] = CODES[WITHOUT]
        row, place = at(OLD_COORDINATOR)
        changed["count"][row, place, again] = 1
        changed["coordinator_epoch"][row, place, again] -= 1
        changed["planted"][row, place, again] = CODES[OLD_COORDINATOR]
        return replace(runs, **{name: values.reshape(-1) for name, values in changed.items()})

    @staticmethod
    def in_data(batches: Batches) -> Batches:
        """Plant violations in the batches of runs: those at the first batch of a run are of the second one."""
        first = np.flatnonzero(batches.planted == CODES[OUTSIDE])
        planted, attributes = batches.planted.copy(), batches.attributes.copy()
        planted[first], planted[first + 1], attributes[first + 1] = NOTHING, CODES[OUTSIDE], 0
        return replace(batches, planted=planted, attributes=attributes)

    def _others(self, partitions: Ints) -> Ints:
        """Choose for each transaction a partition that is not in it."""
        others = [np.setdiff1d(np.arange(self.partitions), joined) for joined in partitions]
        return np.array([self._rng.choice(each) for each in others], np.int64)

    @staticmethod
    def in_states(batches: "StateBatches", transactions: "Transactions") -> tuple["StateBatches", NDArray[np.bool_]]:
        """Plant violations in the five records of each transaction; also return a mask of the records that remain."""
        shape = (len(transactions), 5)
        status = batches.status.reshape(shape).copy()
        planted = np.zeros(shape, np.int64)
        there = np.ones(shape, np.bool_)
        prepare, complete = 3, 4
        rows = np.flatnonzero(transactions.planted == CODES[ILLEGAL_TRANSITION])
        there[rows, 1:prepare] = False
        planted[rows, prepare] = CODES[ILLEGAL_TRANSITION]
        rows = np.flatnonzero(transactions.planted == CODES[DECISION_CHANGED])
        status[rows, complete] = TransactionState.COMPLETE_ABORT
        planted[rows, complete] = CODES[DECISION_CHANGED]
        return replace(batches, status=status.reshape(-1), planted=planted.reshape(-1)), there.reshape(-1)

    @staticmethod
    def in_commits(batches: "CommitBatches", transactions: "Transactions") -> "CommitBatches":
        """Plant violations in the offsets of transactions. Each has three batches, of which the first is the commit."""
        committed, planted = batches.committed.reshape(-1, 3).copy(), np.zeros((len(transactions), 3), np.int64)
        rows = np.flatnonzero(transactions.planted == CODES[WENT_BACK])
        committed[rows, 0] = transactions.committed_before[rows] - 1
        planted[rows, 0] = CODES[WENT_BACK]
        return replace(batches, committed=committed.reshape(-1), planted=planted.reshape(-1))

    def in_batches(self, batches: Batches, number: int, partition: int) -> Batches:
        """Plant violations in the batches of idempotent producers on a partition in a slice."""
        share = (partition + 1) / self.partitions
        due = {rule: max(0, self._due(rule, number, share)) for rule in IN_BATCHES}
        if not any(due.values()):
            return batches
        is_plain = (batches.producer_id >= 0) & (batches.producer_id < self.first_client)
        rows, following = candidates(batches, is_plain)
        chosen = self._rng.permutation(rows)
        faults = {}
        for rule in (DUPLICATE, GAP, STALE_EPOCH):
            faults[rule], chosen = chosen[: due[rule]], chosen[due[rule] :]
            self._done[rule] += len(faults[rule])
        batches = with_wrong_sequences(batches, faults, following)
        long = self._rng.permutation(np.flatnonzero((batches.record_count > 1) & (batches.planted == NOTHING)))
        after = long[: due[ORDER]]
        self._done[ORDER] += len(after)
        batches = with_wrong_order(batches, after)
        free = batches.planted == NOTHING
        pairs = np.flatnonzero(free[:-1] & free[1:])
        before = self._of_leaders.permutation(pairs[pairs % SPACING == 0])[: due[LEADER_BACK]]
        self._done[LEADER_BACK] += len(before)
        return with_wrong_leaders(batches, before)


# ---- in files


def spoil_files(
    logs: Sequence[LogFiles],
    commits: Sequence[LogFiles],
    others: Sequence[LogFiles],
    replica: Path | None,
    faults: int,
    seed: int,
) -> Iterator[Row]:
    """Plant violations in files next to a topic's logs and to groups' logs, in these, and in logs on another broker.

    Args:
        logs: the partitions' logs, complete.
        commits: the logs of ``__consumer_offsets``, complete.
        others: other logs whose leader epochs do not go back, complete.
        replica: the folder of the other broker's logs; None without one.
        faults: violations of each rule, each in a file of its own.
        seed: decides which files are changed.

    Raises:
        ValueError: there are too few files.
    """
    rng = np.random.default_rng([seed, 2])
    spoilers: dict[str, tuple[list[Path], Callable[[Path, np.random.Generator], int]]] = {
        ABORTED_INDEX: (_files(logs, "txnindex"), _spoil_index),
        SNAPSHOT: (_files(logs, "snapshot"), _spoil_snapshot),
    }
    if replica is not None:
        copies = [path for log in logs for path in sorted((replica / log.folder.name).iterdir())]
        segments = [path for path in copies if path.suffix in {".log", ".parquet"}]
        spoilers[REPLICAS] = (segments, _spoil_replica)
    for rule, (files, spoil) in spoilers.items():
        if len(files) < faults:
            raise ValueError(f"room for {len(files)} of {rule}, not for {faults}; give more --partitions")
        for number in rng.permutation(len(files))[:faults].tolist():
            path = files[number]
            topic, _, partition = path.parent.name.rpartition("-")
            yield row_of(rule, topic, int(partition), spoil(path, rng))
    written = [log for log in commits if log.segments]
    ends = Counter({log.folder: log.end for log in written})
    for number in range(faults):
        log, ended = (own[int(rng.integers(len(own)))] for own in (written, logs))
        topic, _, partition = log.folder.name.rpartition("-")
        _commit_ahead(log, ends[log.folder], ended, f"ahead-{number}")
        yield row_of(BEYOND, topic, int(partition), ends[log.folder])
        ends[log.folder] += 1
    led = [*written, *(log for log in others if log.segments)]
    if len(led) < faults:
        raise ValueError(f"room for {len(led)} of {LEADER_EPOCHS}, not for {faults}; give more --partitions")
    for number in rng.permutation(len(led))[:faults].tolist():
        folder = led[number].folder
        topic, _, partition = folder.name.rpartition("-")
        yield row_of(LEADER_EPOCHS, topic, int(partition), _spoil_epochs(folder / LEADER_EPOCH_CHECKPOINT))


def _commit_ahead(log: LogFiles, end: int, ended: LogFiles, group: str) -> None:
    """Append to the end of a group's log a commit of the offset one past another log's end."""
    topic, _, partition = ended.folder.name.rpartition("-")
    key = OffsetCommitKey(group=group, topic=topic, partition=int(partition)).encode()
    value = OffsetCommitValue(offset=ended.end + 1, commit_timestamp_ms=FIRST_TIMESTAMP).encode()
    epoch = log.leader_epochs[-1][0]
    record = Record(key=key, value=value)
    batch = build_batch([record], base_offset=end, base_timestamp=FIRST_TIMESTAMP, partition_leader_epoch=epoch)
    with (log.folder / f"{log.segments[-1][0]:020d}.log").open("ab") as file:
        file.write(batch.encode())


def _files(logs: Sequence[LogFiles], suffix: str) -> list[Path]:
    """The files with this suffix next to logs, without the empty ones."""
    smallest = {"txnindex": 1, "snapshot": 11}[suffix]
    found = [path for log in logs for path in sorted(log.folder.glob(f"*.{suffix}"))]
    return [path for path in found if path.stat().st_size >= smallest]


def _spoil_index(path: Path, rng: np.random.Generator) -> int:
    entries = np.fromfile(path, ABORTED)
    number = int(rng.integers(len(entries)))
    entries["last_stable_offset"][number] += 1
    path.write_bytes(entries.tobytes())
    return int(entries["last"][number])


def _spoil_snapshot(path: Path, rng: np.random.Generator) -> int:
    data = path.read_bytes()
    entries = np.frombuffer(data[10:], PRODUCER).copy()
    entries["timestamp"][int(rng.integers(len(entries)))] += 1
    checked = data[6:10] + entries.tobytes()
    path.write_bytes(data[:2] + crc32c(checked).to_bytes(4, "big") + checked)
    return int(path.stem)


def _spoil_epochs(path: Path) -> int:
    *lines, last = path.read_text(encoding="ascii").splitlines()
    epoch, first = map(int, last.split())
    path.write_text("\n".join([*lines, f"{epoch + 1} {first}", ""]), encoding="ascii")
    return first


def _spoil_replica(path: Path, rng: np.random.Generator) -> int:
    if header_tables.is_table(path):
        return _spoil_table(path, rng)
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        at, chosen = 0, int(rng.integers(size))
        while True:  # to the first batch with data that ends after a random position
            file.seek(at)
            header = file.read(HEADER_BYTES)
            length = LOG_OVERHEAD_BYTES + int.from_bytes(header[8:12], "big")
            if at + length >= min(chosen, size) and not header[22] & 0x20:
                break
            at = at + length if at + length < size else 0
            chosen = 0 if at == 0 else chosen
        file.seek(at)
        batch = bytearray(file.read(length))
        batch[-2] ^= 1  # the last byte of the last value; only the number of headers comes after it
        batch[17:21] = crc32c(bytes(batch[CHECKED_FROM:])).to_bytes(4, "big")
        file.seek(at)
        file.write(batch)
    return int.from_bytes(batch[:8], "big")


def _spoil_table(path: Path, rng: np.random.Generator) -> int:
    """Write a table again, with another CRC for one batch."""
    groups = header_tables.read_marked_table(path, tuple(FIELDS))
    changed: list[int] = []

    def spoilt() -> Iterator[tuple[Headers, Marks]]:
        for headers, marks in groups:
            if changed or not len(headers):
                yield headers, marks
                continue
            row = int(rng.integers(len(headers)))
            changed.append(int(headers.fields["base_offset"][row]))
            crcs = headers.column("crc").copy()
            crcs[row] ^= 1
            yield replace(headers, fields={**headers.fields, "crc": crcs}), marks

    size = header_tables.segment_bytes(path)
    assert size is not None, "the table was written just now"
    header_tables.write_row_groups(path, spoilt(), size)
    return changed[0]
