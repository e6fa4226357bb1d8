"""The markers of a partition, in order, to the coordinator's transactions that they may end.

What fits no transaction is kept with the reason; so is what cannot be told.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos_checks.audit.moments import SKEW_MS, Moments
from kafka_eos_checks.audit.quoting import quoted
from kafka_eos_checks.audit.rules.coordinator import Transaction
from kafka_eos_checks.audit.rules.log import Reason, Reasons
from kafka_eos_checks.audit.rules.transactions.coordinators import Coordinators, why_incomplete
from kafka_eos_checks.audit.rules.transactions.names import (
    AMBIGUOUS,
    HOLES,
    INCOMPLETE,
    MADE_AGAIN,
    MOST_WAYS,
    OTHER_MOMENT,
    OUT_OF_TURN,
    SHOWN_NUMBERS,
)
from kafka_eos_checks.audit.rules.transactions.partitions import Marker, PartitionTransactions
from kafka_eos_checks.audit.segments.contents import Place


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A marker that contradicts the coordinator's log.

    Attributes:
        partition: its partition.
        marker: the marker.
        meant: the transactions that it may belong to, with the other decision or without this partition.
        later: the first transaction that it may belong to if markers before it are missing; None if none was decided
            so by then.
        among: the transactions right before that one, with the other decision, of which some lack their marker then.
        lacking: the least number of these.
        has_alike: whether any transaction with this partition was decided as the marker says.
    """

    partition: PartitionTransactions
    marker: Marker
    meant: tuple[Transaction, ...]
    later: Transaction | None = None
    among: tuple[Transaction, ...] = ()
    lacking: int = 0
    has_alike: bool = False

    @property
    def otherwise(self) -> str:
        """The other explanation, in words: the marker is that of a later transaction; "" if it cannot be."""
        if self.later is None:
            return ""
        count, names = len(self.among), ", ".join(str(each.number) for each in self.among[:SHOWN_NUMBERS])
        names += f" and {count - SHOWN_NUMBERS} more" if count > SHOWN_NUMBERS else ""
        which = f"at least {self.lacking} of these {count}: " if self.lacking < count else ""
        other = f"{OUT_OF_TURN} {self.among[0].decision.name} of {which}transaction {names}"
        return f"it is the marker of {Named.of(self.later)}, and {other}"

    def is_like(self, other: "Unmatched") -> bool:
        """Whether another marker has the same decision about the same transactions."""
        return (self.marker.decision, self.meant) == (other.marker.decision, other.meant)

    @property
    def is_decided(self) -> bool:
        """Whether the data that the marker ends belongs to a transaction that had been decided by then."""
        ends = self.marker.ends
        return ends is not None and any(
            each.data_epoch == ends.epoch
            if each.version >= TRANSACTION_VERSION_2
            else each.decided_ms <= self.marker.stamped_ms
            for each in self.meant
        )


Placed = tuple[PartitionTransactions, Marker]


class Named(NamedTuple):
    """The name of a transaction: its transactional id, its number among those of that id, and its producer id.

    The producer id is redundant, unless the log is broken. With it every rule is about single producer ids.
    """

    transactional_id: str
    number: int
    producer_id: int

    @classmethod
    def of(cls, transaction: Transaction) -> "Named":
        """The name of a decision's transaction."""
        return cls(transaction.transactional_id, transaction.number, transaction.producer_id)

    def __str__(self) -> str:
        return f"transaction {self.number} of {quoted(self.transactional_id)}"


@dataclass(slots=True)
class Matching:
    """The markers of each transaction.

    Attributes:
        seen: by transaction and decision, markers that certainly belong to it: the first of each partition.
        unmatched: markers that contradict the coordinator's log.
        unknown: markers that cannot be judged.
        reasons: for each reason, the markers that cannot be judged.
        recent: markers whose transaction may be newer than the copy of the coordinator's log.
    """

    seen: dict[Named, dict[ControlType, dict[Place, Placed]]] = field(default_factory=lambda: defaultdict(dict))
    unmatched: list[Unmatched] = field(default_factory=list)
    unknown: list[tuple[PartitionTransactions, Marker]] = field(default_factory=list)
    reasons: Reasons = field(default_factory=Reasons)
    recent: list[tuple[PartitionTransactions, Marker]] = field(default_factory=list)

    def leave(self, partition: PartitionTransactions, markers: Sequence[Marker], reason: Reason) -> None:
        """Note markers that cannot be judged."""
        self.unknown += [(partition, marker) for marker in markers]
        for marker in markers:
            self.reasons.count(reason, partition.subject(marker))

    def postpone(
        self, partition: PartitionTransactions, markers: Sequence[Marker], recent_after: float, reason: Reason
    ) -> None:
        """Note the markers after ``recent_after`` as too recent to judge, and the others as not judged."""
        for marker in markers:
            if marker.stamped_ms + SKEW_MS > recent_after:
                self.recent.append((partition, marker))
            else:
                self.leave(partition, [marker], reason)

    def saw(self, transaction: Transaction, partition: PartitionTransactions, marker: Marker) -> None:
        """Note a marker that certainly belongs to a transaction."""
        if marker.decision is not None:
            self._keep(Named.of(transaction), marker.decision, (partition, marker))

    def _keep(self, name: Named, decision: ControlType, placed: Placed) -> None:
        self.seen[name].setdefault(decision, {}).setdefault(placed[0].place, placed)

    def take(self, other: "Matching") -> None:
        """Add the markers of another matching."""
        for name, decisions in other.seen.items():
            for decision, kept in decisions.items():
                for placed in kept.values():
                    self._keep(name, decision, placed)
        self.unmatched += other.unmatched
        self.unknown += other.unknown
        self.reasons.add(other.reasons)
        self.recent += other.recent


def match(partition: PartitionTransactions, coordinators: Coordinators, moments: Moments, matching: Matching) -> None:
    """Match the markers of a partition with transactions."""
    groups: dict[tuple[int, int], list[Marker]] = defaultdict(list)
    for marker in partition.markers:
        groups[marker.producer_id, marker.epoch].append(marker)
    recent_after = moments.common_recent_after(coordinators.logs)
    for (pid, epoch), markers in groups.items():
        owner = coordinators.owner(pid)
        if owner is None:
            matching.postpone(partition, markers, recent_after, coordinators.unknown_owner)
            continue
        log = owner[0]
        transactions = coordinators.transactions(pid, epoch)
        why_later = INCOMPLETE if moments.source.is_incomplete(log.log, log.end) else OTHER_MOMENT
        group = _Group(partition, markers, transactions, moments.reach(log), moments.recent_after(log), why_later)
        commit = next((each for each in groups.get((pid, epoch + 1), ()) if each.decision is ControlType.COMMIT), None)
        if commit is not None:
            committed = _committed(partition, coordinators, pid, epoch)
            group = replace(group, committed=[(transaction, commit) for transaction in committed])
        why = why_incomplete(log) or (HOLES if partition.holes else None)
        matching.take(group.in_order() if why is None else group.by_epoch(why))


def _committed(partition: PartitionTransactions, coordinators: Coordinators, pid: int, epoch: int) -> list[Transaction]:
    """The committed transactions of version 2 whose data have a producer id and epoch on a partition."""
    return [
        each
        for each in coordinators.transactions(pid, epoch + 1)
        if (each.data_epoch, each.decision) == (epoch, ControlType.COMMIT)
        and each.version >= TRANSACTION_VERSION_2
        and partition.place in each.partitions
    ]


@dataclass(frozen=True, slots=True)
class _Group:
    """The markers of a producer id and epoch on a partition, and the transactions with that epoch.

    Attributes:
        reach: the moment up to which the coordinator's log has everything, in milliseconds since the epoch.
        recent_after: the moment from which on whatever it lacks is too recent to judge.
        why_later: the reason why later markers cannot be judged.
        committed: the transactions of version 2 whose data have the epoch, each with its COMMIT on the partition. An
            ABORT with this epoch is of no coordinator, and has taken data away from them.
    """

    partition: PartitionTransactions
    markers: list[Marker]
    transactions: list[Transaction]
    reach: float
    recent_after: float
    why_later: Reason
    committed: Sequence[tuple[Transaction, Marker]] = ()

    def _is_later(self, marker: Marker) -> bool:
        """Whether the decision may be after the end of the coordinator's log."""
        return marker.stamped_ms + SKEW_MS > self.reach

    def in_order(self) -> Matching:
        """Match by the order of the transactions with this partition.

        A partition whose log starts later, or whose topic was deleted and created again, has no markers of earlier
        transactions. If the log starts at offset 0, this is considered only if the markers do not match otherwise.
        """
        own = [each for each in self.transactions if self.partition.place in each.partitions]
        earlier = sum(each.decided_ms < self.partition.begins_ms for each in own)
        found = self._follow(own, len(own) if self.partition.start else earlier)
        if found.unmatched and self.partition.start == 0:
            begins_by = self.partition.first_marker_ms
            lenient = self._follow(own, sum(each.decided_ms <= begins_by for each in own))
            if not lenient.unmatched:
                unsure = Matching()
                unsure.leave(self.partition, self.markers, MADE_AGAIN)
                return unsure
        if found.unmatched:
            by_hand = self._follow(own, len(own) if self.partition.start else earlier, by_hand=True)
            if all(_may_be_by_hand(each.marker) and not each.is_decided for each in by_hand.unmatched):
                return by_hand
        return found

    def _follow(self, own: list[Transaction], earlier: int, *, by_hand: bool = False) -> Matching:
        """Follow all ways in which markers may belong to transactions. A state is how many of them have a marker.

        Args:
            own: transactions with this partition, in order.
            earlier: how many of them may be older than the partition.
            by_hand: whether an ABORT before the decision is taken for one by hand. It may have ended data of the
                transaction that was open then, which gets its own marker later. So the time of a marker counts: it is
                of the last transaction that was decided by then.
        """
        matching = Matching()
        possible = set(range(earlier + 1))
        for number, marker in enumerate(self.markers):
            if len(possible) > MOST_WAYS:
                matching.take(self.by_epoch(AMBIGUOUS, number))
                return matching
            ways = {
                after
                for before in possible
                for after in _ways(marker, own, before)
                if not marker.contradicts(own[after - 1].decision)
                and not (by_hand and _may_be_by_hand(marker) and marker.stamped_ms < own[after - 1].decided_ms)
            }
            if by_hand:
                ways = {n for n in ways if n == len(own) or marker.stamped_ms < own[n].decided_ms} or ways
            if ways:
                possible = ways
                if len(ways) == 1 and not self._is_later(marker):
                    matching.saw(own[min(ways) - 1], self.partition, marker)
                continue
            if self._is_later(marker):
                matching.postpone(self.partition, self.markers[number:], self.recent_after, self.why_later)
                return matching
            meant = [own[n] for n in sorted(possible) if n < len(own)]
            if marker.ends is None:
                meant += [own[n - 1] for n in sorted(possible) if n]
            if _may_be_by_hand(marker):
                if by_hand:
                    meant = [each for each in meant if each.started_ms <= marker.stamped_ms]
                meant = [*self._see_committed(matching), *meant]
            known = tuple(meant or (() if own else self.transactions[:1]))
            matching.unmatched.append(self._unmatched(marker, known, own, max(possible)))
            if by_hand and _may_be_by_hand(marker):
                continue
            # Either the marker is wrong, or markers before it are missing. One finding is enough for both.
            first = min(possible)
            alike = (n + 1 for n in range(first, len(own)) if not marker.contradicts(own[n].decision))
            possible = {min(first + 1, len(own)), next(alike, len(own))}
        return matching

    def _see_committed(self, matching: Matching) -> list[Transaction]:
        """The committed transactions whose data an ABORT by hand has ended, after their COMMITs are noted."""
        for transaction, commit in self.committed:
            matching.saw(transaction, self.partition, commit)
        return [transaction for transaction, _ in self.committed]

    def _unmatched(
        self, marker: Marker, meant: tuple[Transaction, ...], own: list[Transaction], before: int
    ) -> Unmatched:
        """A marker out of turn, with what is so if markers before it are missing.

        Of transactions with the same decision in a row it is not known which of them have the markers there are.

        Args:
            marker: the marker.
            meant: see :class:`Unmatched`.
            own: transactions with this partition, in order.
            before: how many of them have a marker before it, at most.
        """
        alike = [not marker.contradicts(each.decision) for each in own]
        decided = [each.decided_ms <= marker.stamped_ms + SKEW_MS for each in own]
        at = next((n for n in range(before, len(own)) if alike[n] and decided[n]), before)
        begin = max((n + 1 for n in range(before) if alike[n]), default=0)
        lacking = sum(not each.replaced for each in own[before:at])
        known = Unmatched(self.partition, marker, meant, has_alike=any(alike))
        if not lacking:
            return known
        among = tuple(each for each in own[begin:at] if not each.replaced)
        return replace(known, later=own[at], among=among, lacking=lacking)

    def by_epoch(self, why: Reason, first: int = 0) -> Matching:
        """Match by epoch: if the order cannot be used, only the epoch of a single transaction identifies it.

        Args:
            why: the reason why the order cannot be used.
            first: the number of markers to skip.
        """
        matching = Matching()
        own = [transaction for transaction in self.transactions if transaction.version >= TRANSACTION_VERSION_2]
        for marker in self.markers[first:]:
            if self._is_later(marker):
                matching.postpone(self.partition, [marker], self.recent_after, self.why_later)
            elif self.committed and _may_be_by_hand(marker):
                matching.unmatched.append(Unmatched(self.partition, marker, tuple(self._see_committed(matching))))
            elif len(own) != 1 or marker.ends is None or marker.ends.epoch != own[0].data_epoch or own[0].replaced:
                matching.leave(self.partition, [marker], why)
            elif self.partition.place in own[0].partitions and not marker.contradicts(own[0].decision):
                matching.saw(own[0], self.partition, marker)
            else:
                matching.unmatched.append(Unmatched(self.partition, marker, (own[0],)))
        return matching


def _may_be_by_hand(marker: Marker) -> bool:
    """Whether a marker is as ``kafka-transactions abort`` writes it: an ABORT with the epoch of its data."""
    return marker.decision is ControlType.ABORT and marker.ends is not None and marker.ends.epoch == marker.epoch


def _ways(marker: Marker, own: list[Transaction], before: int) -> Iterator[int]:
    """The possible numbers of transactions with a marker after ``marker``, if ``before`` of them have one before it."""
    if marker.ends is None and before:
        yield before  # written again
    for number in range(before, len(own)):
        yield number + 1
        if not own[number].replaced:
            return
