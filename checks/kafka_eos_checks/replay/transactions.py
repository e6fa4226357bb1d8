"""The rules over transactions: the partitions' data and markers, joined with the logs of ``__transaction_state``.

On a partition, a transaction of a producer id begins with its first transactional batch and ends with the next marker
of that producer id. The marker has the data's epoch, or, since transaction version 2 and of a coordinator that fences,
the next one. A marker that ends nothing is legal: a partition may have joined a transaction without data, and a
coordinator that was restarted writes its markers again.

Which transaction a marker belongs to is not in the marker. In transaction version 2 (producer id, marker epoch) names
one. Before, all transactions of a producer share them, and only the order says which is which: the markers of a
partition have to be those of the coordinator's transactions with that partition, in order; each at least once, and
again only without data in between. So one that was written again with the other decision passes for the marker of the
next transaction, if that has this decision and no data on the partition.

``torn transaction``
    A transaction whose markers say COMMIT on one partition and ABORT on another, or both on one. Without the
    coordinator's log it is seen only in transaction version 2: a COMMIT and an ABORT of the same epoch that each end
    data of the epoch before.

``marker without transaction``
    A marker for which the coordinator's log has no PREPARE of that decision with that partition.

``hanging transaction``
    Data of a transaction that is open at the end of the log, although the coordinator's log says that the transaction
    is complete, or that there is none; or to which data of a later epoch were added while it was open.

``fenced producer committed``
    A COMMIT marker that ends data of an epoch below one that InitProducerId has given by then: the coordinator's log
    has EMPTY of an epoch above the data's, and not above the marker's.

``marker of an old coordinator``
    A marker with a coordinator epoch below that of an earlier marker of the same producer id on the partition.

*Unknown*, and no finding: producer ids that none of the given logs of ``__transaction_state`` names; before transaction
version 2, what such a log or the partition's own does not have (compaction, damage); markers without data that may
belong to more than :data:`MOST_WAYS` transactions. A partition that was made later than a transaction (a topic of the
same name was deleted) needs none of its markers.

Of a replicated partition the longest of the given replicas is read. All logs have to be of one cluster, copied while it
stood still: otherwise a transaction may end between two copies.

Runs in process, for Spark on its driver.

KIP:   KIP-98, KIP-890, KIP-1228
Kafka: ProducerAppendInfo.appendEndTxnMarker, TransactionMarkerChannelManager, TransactionsCommand (find-hanging)
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from kafka_eos.record_batch import ControlType
from kafka_eos.transaction_log import TRANSACTION_VERSION_2, TransactionState
from kafka_eos_checks.replay.coordinator import CoordinatorLog, Place, Transaction, TransactionalId
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.headers import CONTROL_MASK, TRANSACTIONAL_MASK, Headers, is_set
from kafka_eos_checks.replay.marks import Mark, Marks
from kafka_eos_checks.replay.quoting import quoted
from kafka_eos_checks.replay.reading import read_marked
from kafka_eos_checks.replay.splits import PartitionLog

TORN, HANGING, NO_TRANSACTION = "torn transaction", "hanging transaction", "marker without transaction"
FENCED, OLD_COORDINATOR = "fenced producer committed", "marker of an old coordinator"
TRANSACTION_RULES = (TORN, HANGING, NO_TRANSACTION, FENCED, OLD_COORDINATOR)

# The fields of a header that they need.
READ = ("base_offset", "last_offset_delta", "base_timestamp", "attributes", "producer_id", "producer_epoch")
MOST_WAYS = 64  # in which the markers of a partition may belong to transactions; with more of them it is unknown

Figures = dict[str, int | float | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """Data of a producer id that no marker has ended yet.

    Attributes:
        file: segment of the first batch.
        position: of the first batch, in bytes.
        offset: of the first batch.
        producer_id: whose.
        epoch: of the first batch.
        holes: how many holes the log had before the first batch.
    """

    file: str
    position: int
    offset: int
    producer_id: int
    epoch: int
    holes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A marker on a partition, and what it ends.

    Attributes:
        file: its segment.
        position: in bytes.
        offset: its own.
        producer_id: whose transaction it ends.
        epoch: the marker's.
        decision: COMMIT or ABORT; None for one that the cleaner has emptied.
        coordinator_epoch: of the coordinator that sent it; None as above.
        ends: the data that it ends; None without any.
        last_stable_offset: of the partition, once it is appended.
    """

    file: str
    position: int
    offset: int
    producer_id: int
    epoch: int
    decision: ControlType | None
    coordinator_epoch: int | None
    ends: OpenTransaction | None
    last_stable_offset: int

    def contradicts(self, decision: ControlType) -> bool:
        """Whether the marker says the other thing."""
        return self.decision is not None and self.decision is not decision


@dataclass(slots=True)
class PartitionTransactions:
    """The transactions of one log.

    Attributes:
        log: the log.
        markers: in log order.
        open: data that no marker has ended, by producer id.
        merged: data that was still open when data of a later epoch came, with that epoch.
        start: the first offset; None for a log without batches.
        begins_ms: timestamp of the first batch, in milliseconds since the epoch.
        end: one past the last offset.
        holes: how many holes the log has.
        batches: transactional batches, markers included.
    """

    log: PartitionLog
    markers: list[Marker] = field(default_factory=list)
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    merged: list[tuple[OpenTransaction, int]] = field(default_factory=list)
    start: int | None = None
    begins_ms: int = 0
    end: int = 0
    holes: int = 0
    batches: int = 0

    @property
    def whole(self) -> bool:
        """Whether it has every batch that was ever written to it, as far as its offsets say."""
        return self.start == 0 and not self.holes

    def open_at(self, offset: int) -> dict[int, int]:
        """The transactions that were open when the log ended at an offset: producer id -> first offset."""
        ended = (marker.ends for marker in self.markers if marker.ends is not None and marker.offset >= offset)
        return {data.producer_id: data.offset for data in (*self.open.values(), *ended) if data.offset < offset}

    @property
    def place(self) -> Place:
        """Topic and partition."""
        return self.log.topic, self.log.partition

    def data(self, batch: OpenTransaction) -> None:
        """The log after one more transactional batch with data."""
        opened = self.open.get(batch.producer_id)
        if opened is None or opened.holes < batch.holes:  # over a hole its marker may be gone
            self.open[batch.producer_id] = batch
        elif opened.epoch < batch.epoch:
            self.merged.append((opened, batch.epoch))
            self.open[batch.producer_id] = batch

    def finding(self, rule: str, at: Marker | OpenTransaction, evidence: str) -> Finding:
        """A violation by a marker, or by a transaction at its first batch."""
        return Finding(
            rule=rule,
            topic=self.log.topic,
            partition=self.log.partition,
            broker=self.log.broker,
            file=at.file,
            position=at.position,
            offset=at.offset,
            producer_id=at.producer_id,
            producer_epoch=at.epoch,
            base_sequence=-1 if isinstance(at, Marker) else None,
            evidence=evidence,
        )


def read_transactions(log: PartitionLog) -> PartitionTransactions:
    """Fold the transactional batches of one log."""
    result = PartitionTransactions(log)
    for name in log.segments:
        for headers, marks in read_marked(Path(log.folder, name), READ):
            if len(headers):
                _take(result, name, headers, marks)
    return result


def _take(result: PartitionTransactions, name: str, headers: Headers, marks: Marks) -> None:
    transactional, control = is_set(headers, TRANSACTIONAL_MASK), is_set(headers, CONTROL_MASK)
    base = headers.column("base_offset")
    ends = base + headers.column("last_offset_delta") + 1
    if result.start is None:
        result.start = result.end = int(base[0])
        result.begins_ms = int(headers.column("base_timestamp")[0])
    highest = np.maximum.accumulate(np.concatenate(([result.end], ends)))
    holes = result.holes + np.cumsum(base > highest[:-1])
    result.end, result.holes = int(highest[-1]), int(holes[-1])
    chosen = np.flatnonzero(transactional)
    columns = (
        chosen,
        headers.positions[chosen],
        base[chosen],
        headers.column("producer_id")[chosen],
        headers.column("producer_epoch")[chosen],
        holes[chosen],
        control[chosen],
    )
    for number, position, offset, pid, epoch, before, is_marker in zip(*(c.tolist() for c in columns), strict=True):
        result.batches += 1
        if not is_marker:
            batch = OpenTransaction(
                file=name, position=position, offset=offset, producer_id=pid, epoch=epoch, holes=before
            )
            result.data(batch)
            continue
        mark = marks.get(number, Mark(None, None))
        ended = result.open.pop(pid, None)
        result.markers.append(
            Marker(
                file=name,
                position=position,
                offset=offset,
                producer_id=pid,
                epoch=epoch,
                decision=mark.decision,
                coordinator_epoch=mark.coordinator_epoch,
                ends=ended,
                last_stable_offset=min((data.offset for data in result.open.values()), default=offset + 1),
            )
        )


class Coordinators:
    """What the given logs of ``__transaction_state`` know, by producer id."""

    def __init__(self, logs: Iterable[CoordinatorLog]) -> None:
        self._owners: dict[int, tuple[CoordinatorLog, TransactionalId]] = {}
        self._transactions: dict[tuple[int, int], list[Transaction]] = defaultdict(list)
        claimed: set[int] = set()
        for log in logs:
            for known in log.ids.values():
                for transaction in known.transactions:
                    self._transactions[transaction.producer_id, transaction.marker_epoch].append(transaction)
                for pid in known.producer_ids:
                    if pid in self._owners:
                        claimed.add(pid)
                    self._owners[pid] = log, known
        for pid in claimed:  # logs of several clusters: nothing is certain about it
            del self._owners[pid]

    def owner(self, producer_id: int) -> tuple[CoordinatorLog, TransactionalId] | None:
        """The transactional id with that producer id, and its log; None if no given log names it."""
        return self._owners.get(producer_id)

    def transactions(self, producer_id: int, marker_epoch: int) -> list[Transaction]:
        """The transactions with these markers, in order."""
        return self._transactions.get((producer_id, marker_epoch), [])


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A marker that contradicts the coordinator's log, and the transactions that it may be meant for."""

    partition: PartitionTransactions
    marker: Marker
    meant: tuple[Transaction, ...]


_Name = tuple[str, int]  # transactional id, number of the transaction


@dataclass(slots=True)
class Matching:
    """Which markers belong to which transaction.

    Attributes:
        seen: by transaction and decision, a marker that certainly belongs to it.
        unmatched: markers that contradict the coordinator's log.
        unknown: markers that cannot be judged.
    """

    seen: dict[_Name, dict[ControlType, tuple[PartitionTransactions, Marker]]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    unmatched: list[Unmatched] = field(default_factory=list)
    unknown: list[tuple[PartitionTransactions, Marker]] = field(default_factory=list)

    def saw(self, transaction: Transaction, partition: PartitionTransactions, marker: Marker) -> None:
        """A marker certainly belongs to a transaction."""
        if marker.decision is not None:
            name = transaction.transactional_id, transaction.number
            self.seen[name].setdefault(marker.decision, (partition, marker))


def match(partition: PartitionTransactions, coordinators: Coordinators, matching: Matching) -> None:
    """Tell which transactions the markers of a partition belong to."""
    groups: dict[tuple[int, int], list[Marker]] = defaultdict(list)
    for marker in partition.markers:
        groups[marker.producer_id, marker.epoch].append(marker)
    for (pid, epoch), markers in groups.items():
        owner = coordinators.owner(pid)
        transactions = coordinators.transactions(pid, epoch)
        if owner is None:
            matching.unknown += [(partition, marker) for marker in markers]
        elif owner[0].whole and not partition.holes:
            _match_in_order(partition, markers, transactions, matching)
        else:
            _match_by_epoch(partition, markers, transactions, matching)


def _match_in_order(
    partition: PartitionTransactions, markers: list[Marker], transactions: list[Transaction], matching: Matching
) -> None:
    """Follow all ways in which markers may belong to transactions; a state counts the transactions that have one."""
    own = [transaction for transaction in transactions if partition.place in transaction.partitions]
    possible = {0}
    while (n := max(possible)) < len(own) and (partition.start != 0 or own[n].decided_ms < partition.begins_ms):
        possible.add(n + 1)
    for number, marker in enumerate(markers):
        if len(possible) > MOST_WAYS:
            _match_by_epoch(partition, markers[number:], transactions, matching)
            return
        ways = {
            after
            for before in possible
            for after in _ways(marker, own, before)
            if not marker.contradicts(own[after - 1].decision)
        }
        if ways:
            possible = ways
            if len(ways) == 1:
                matching.saw(own[min(ways) - 1], partition, marker)
            continue
        meant = [own[n] for n in sorted(possible) if n < len(own)]
        if marker.ends is None:
            meant += [own[n - 1] for n in sorted(possible) if n]
        matching.unmatched.append(Unmatched(partition, marker, tuple(meant or (() if own else transactions[:1]))))
        # The marker is wrong, or it is right and those before it are missing: either way one finding is enough.
        first = min(possible)
        alike = (n + 1 for n in range(first, len(own)) if not marker.contradicts(own[n].decision))
        possible = {min(first + 1, len(own)), next(alike, len(own))}


def _ways(marker: Marker, own: list[Transaction], before: int) -> Iterator[int]:
    """How many transactions may have a marker after this one, if ``before`` of them have one before it."""
    if marker.ends is None and before:
        yield before  # written again
    for number in range(before, len(own)):
        yield number + 1
        if not own[number].replaced:
            return


def _match_by_epoch(
    partition: PartitionTransactions, markers: list[Marker], transactions: list[Transaction], matching: Matching
) -> None:
    """Without all of the coordinator's log only an epoch that has one transaction alone tells which one it is."""
    own = [transaction for transaction in transactions if transaction.version >= TRANSACTION_VERSION_2]
    for marker in markers:
        if len(own) != 1 or marker.ends is None or marker.ends.epoch != own[0].data_epoch or own[0].replaced:
            matching.unknown.append((partition, marker))
        elif partition.place in own[0].partitions and not marker.contradicts(own[0].decision):
            matching.saw(own[0], partition, marker)
        else:
            matching.unmatched.append(Unmatched(partition, marker, (own[0],)))


def contradictions(matching: Matching) -> Iterator[Finding]:
    """Torn transactions, each once, and markers without one."""
    torn: set[_Name] = set()
    for unmatched in matching.unmatched:
        partition, marker = unmatched.partition, unmatched.marker
        if marker.decision is None:
            continue
        other = ControlType.COMMIT if marker.decision is ControlType.ABORT else ControlType.ABORT
        names = [(transaction.transactional_id, transaction.number) for transaction in unmatched.meant]
        if torn.intersection(names):
            continue
        name = next((name for name in names if other in matching.seen[name]), None)
        if name is None:
            which = f"PREPARE_{marker.decision.name} at epoch {marker.epoch} with this partition"
            yield partition.finding(NO_TRANSACTION, marker, f"{marker.decision.name}, but the log has no {which}")
            continue
        torn.add(name)
        yield _torn(partition, marker, *matching.seen[name][other], f"transaction {name[1]} of {quoted(name[0])}")
    for name, seen in matching.seen.items():
        if len(seen) > 1 and name not in torn:
            yield _torn(
                *seen[ControlType.ABORT], *seen[ControlType.COMMIT], f"transaction {name[1]} of {quoted(name[0])}"
            )


def torn_by_epoch(matching: Matching) -> Iterator[Finding]:
    """Torn transactions of producer ids that no given coordinator's log names."""
    by_epoch: dict[tuple[int, int], dict[ControlType, tuple[PartitionTransactions, Marker]]] = defaultdict(dict)
    for partition, marker in matching.unknown:
        if marker.ends is not None and marker.ends.epoch == marker.epoch - 1 and marker.decision is not None:
            by_epoch[marker.producer_id, marker.epoch].setdefault(marker.decision, (partition, marker))
    for decisions in by_epoch.values():
        if len(decisions) > 1:
            yield _torn(*decisions[ControlType.ABORT], *decisions[ControlType.COMMIT], "the transaction of this epoch")


def _torn(
    partition: PartitionTransactions, marker: Marker, other: PartitionTransactions, second: Marker, which: str
) -> Finding:
    assert marker.decision is not None, "only a marker with a decision contradicts another"
    assert second.decision is not None, "only a marker with a decision is seen"
    there = f"{second.decision.name} at {other.log.topic}-{other.log.partition} offset {second.offset}"
    return partition.finding(TORN, marker, f"{which}: {marker.decision.name} here, {there}")


UNKNOWN = "unknown"


def hanging(partition: PartitionTransactions, coordinators: Coordinators, figures: Figures) -> Iterator[Finding]:
    """Transactions of a partition that nobody will end."""
    for opened, epoch in partition.merged:
        yield partition.finding(HANGING, opened, f"still open when data of epoch {epoch} came")
    for opened in partition.open.values():
        why = _why_hanging(opened, partition.place, coordinators.owner(opened.producer_id))
        figures["open"] = int(figures["open"]) + 1
        if why == UNKNOWN:
            figures[UNKNOWN] = int(figures[UNKNOWN]) + 1
        elif why:
            yield partition.finding(HANGING, opened, f"open at the end of the log, but the coordinator {why}")


def _why_hanging(opened: OpenTransaction, place: Place, owner: tuple[CoordinatorLog, TransactionalId] | None) -> str:
    """What the coordinator does instead of ending a transaction, "" if it may end it, or :data:`UNKNOWN`."""
    if owner is None or owner[0].damaged or owner[0].unreadable:
        return UNKNOWN
    known, last = owner[1], owner[1].last
    if last is None:
        return f"forgot {quoted(known.name)}"
    state = f"has {quoted(known.name)} {last.transaction_status.name} with producer {last.producer_id} "
    state += f"epoch {last.producer_epoch}"
    if last.producer_id != opened.producer_id or place not in last.partitions():
        return state
    epoch = last.producer_epoch
    if last.transaction_status is not TransactionState.ONGOING:  # so it is PREPARE: no other state has partitions
        epoch = known.transactions[-1].data_epoch
    return "" if opened.epoch == epoch else state


def fenced(partition: PartitionTransactions, coordinators: Coordinators, figures: Figures) -> Iterator[Finding]:
    """Transactions that were committed although another instance had its epoch by then."""
    for marker in partition.markers:
        if marker.ends is None or marker.decision is not ControlType.COMMIT:
            continue
        figures["committed"] = int(figures["committed"]) + 1
        owner = coordinators.owner(marker.producer_id)
        if owner is None:
            figures[UNKNOWN] = int(figures[UNKNOWN]) + 1
            continue
        for pid, epoch in owner[1].grants:
            if pid == marker.producer_id and marker.ends.epoch < epoch <= marker.epoch:
                evidence = f"committed at offset {marker.offset} with epoch {marker.epoch}"
                yield partition.finding(FENCED, marker.ends, f"{evidence}, after InitProducerId had given {epoch}")
                break


def old_coordinators(partition: PartitionTransactions) -> Iterator[Finding]:
    """Markers of coordinators that had been replaced."""
    highest: dict[int, int] = {}
    for marker in partition.markers:
        epoch, before = marker.coordinator_epoch, highest.get(marker.producer_id, -1)
        if epoch is None:
            continue
        highest[marker.producer_id] = max(before, epoch)
        if epoch < before:
            evidence = f"coordinator epoch {epoch} after coordinator epoch {before}"
            yield partition.finding(OLD_COORDINATOR, marker, evidence)


@dataclass(slots=True)
class TransactionAudit:
    """What the rules over transactions found.

    Attributes:
        findings: the violations.
        figures: for each rule, what it looked at and what remains unknown.
    """

    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, Figures] = field(default_factory=dict)


def audit_transactions(
    replicas: Iterable[PartitionTransactions], coordinator_logs: Iterable[CoordinatorLog]
) -> TransactionAudit:
    """Judge the transactions of partitions by the coordinators' logs.

    Args:
        replicas: of the partitions of one cluster.
        coordinator_logs: the replicas of ``__transaction_state`` of the same cluster.
    """
    partitions = longest(replicas)
    coordinators = Coordinators(longest(coordinator_logs))
    matching = Matching()
    for partition in partitions:
        match(partition, coordinators, matching)
    open_figures: Figures = {"open": 0, UNKNOWN: 0}
    findings = [finding for partition in partitions for finding in hanging(partition, coordinators, open_figures)]
    findings += [*contradictions(matching), *torn_by_epoch(matching)]
    fenced_figures: Figures = {"committed": 0, UNKNOWN: 0}
    findings += [finding for partition in partitions for finding in fenced(partition, coordinators, fenced_figures)]
    findings += [finding for partition in partitions for finding in old_coordinators(partition)]
    markers = sum(len(partition.markers) for partition in partitions)
    figures: Figures = {"markers": markers, UNKNOWN: len(matching.unknown)}
    return TransactionAudit(
        findings,
        {
            TORN: figures,
            NO_TRANSACTION: dict(figures),
            HANGING: open_figures,
            FENCED: fenced_figures,
            OLD_COORDINATOR: {"markers": markers},
        },
    )


_Log = TypeVar("_Log", PartitionTransactions, CoordinatorLog)


def longest(logs: Iterable[_Log]) -> list[_Log]:
    """Of each partition the replica that goes furthest."""
    best: dict[Place, _Log] = {}
    for log in logs:
        place = log.log.topic, log.log.partition
        if place not in best or log.end > best[place].end:
            best[place] = log
    return list(best.values())
