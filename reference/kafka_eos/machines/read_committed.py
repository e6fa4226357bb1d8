"""The rules of read_committed: the leader's index of aborted transactions and the client's filter.

A leader keeps an index of aborted transactions. A fetch response carries those that overlap its batches, and the
client drops their records. The list is all that the client knows: every response has a new list.

Spec:  Consumer.tla
KIP:   KIP-98
Kafka: TransactionIndex, UnifiedLog.read, CompletedFetch
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """An aborted transaction in a fetch response: its producer and the offset of its first record."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedTransaction(AbortedTransaction):
    """An entry of a leader's index.

    Attributes:
        last_offset: the abort marker's offset.
        last_stable_offset: where reading of committed data ended when the marker was written.
    """

    last_offset: int
    last_stable_offset: int


class Batch(Protocol):
    """The part of a batch or marker that the rules look at."""

    @property
    def producer_id(self) -> int:
        """The producer, or -1."""

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""

    @property
    def is_transactional(self) -> bool:
        """Whether it is a batch of a transaction, and no marker."""

    @property
    def is_marker(self) -> bool:
        """Whether it is a control batch."""

    @property
    def is_abort_marker(self) -> bool:
        """Whether it is the marker of an aborted transaction."""


BatchT = TypeVar("BatchT", bound=Batch)


class ReadCommitted:
    """The rules, one a method, so that a subclass can change one; the functions below are these rules as they are."""

    __slots__ = ()

    def overlaps(self, transaction: IndexedTransaction, position: int, upper: int) -> bool:
        """An aborted transaction overlaps a response."""
        return transaction.last_offset >= position and transaction.first_offset < upper

    def ends_scan(self, transaction: IndexedTransaction, upper: int) -> bool:
        """No later entry of the index can overlap a response."""
        return transaction.last_stable_offset >= upper

    def collected(self, index: Iterable[IndexedTransaction], position: int, upper: int) -> list[AbortedTransaction]:
        """The aborted transactions of a response that begins at ``position`` and ends below ``upper``."""
        found: list[AbortedTransaction] = []
        for entry in index:
            if self.overlaps(entry, position, upper):
                found.append(AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset))
            if self.ends_scan(entry, upper):
                break
        return found

    def has_begun(self, transaction: AbortedTransaction, entry: Batch) -> bool:
        """An aborted transaction has begun at an entry."""
        return transaction.first_offset <= entry.last_offset

    def begun(self, aborted: Sequence[AbortedTransaction], waiting: frozenset[int], entry: Batch) -> frozenset[int]:
        """The waiting transactions that have begun, by their places in the list, whose order does not help.

        The list is in the order of the markers.
        """
        return frozenset(place for place in waiting if self.has_begun(aborted[place], entry))

    def is_aborted(self, entry: Batch, active: frozenset[int]) -> bool:
        """A record is aborted if it is transactional and its producer is in an aborted transaction."""
        return entry.is_transactional and entry.producer_id in active

    def still_active(self, active: frozenset[int], entry: Batch) -> frozenset[int]:
        """The producers that are still in an aborted transaction after an entry."""
        return active - {entry.producer_id} if entry.is_abort_marker else active

    def is_passed_on(self, entry: Batch) -> bool:
        """A reader never passes a marker on."""
        return not entry.is_marker

    def passed(self, fetched: Iterable[BatchT], aborted: Sequence[AbortedTransaction]) -> list[BatchT]:
        """A response's records without those of the aborted transactions in its list."""
        waiting, active = frozenset(range(len(aborted))), frozenset[int]()
        read = []
        for entry in fetched:
            begun = self.begun(aborted, waiting, entry)
            waiting -= begun
            active = self.still_active(active | {aborted[place].producer_id for place in begun}, entry)
            if self.is_passed_on(entry) and not self.is_aborted(entry, active):
                read.append(entry)
        return read


_RULES = ReadCommitted()


def collect_aborted(index: Iterable[IndexedTransaction], position: int, upper: int) -> list[AbortedTransaction]:
    """The aborted transactions of a response, in the order of the index.

    Args:
        index: a partition's index, in the order of the markers.
        position: the offset that is fetched from.
        upper: an offset after the response's last record; a larger one finds more, which does no harm.

    Kafka: TransactionIndex.collectAbortedTxns
    """
    return _RULES.collected(index, position, upper)


def without_aborted(fetched: Iterable[BatchT], aborted: Sequence[AbortedTransaction]) -> list[BatchT]:
    """The batches of a response that a read_committed consumer passes on.

    Args:
        fetched: batches and markers in the order of their offsets.
        aborted: the list of the response, in any order.

    Kafka: CompletedFetch.nextFetchedRecord
    """
    return _RULES.passed(fetched, aborted)
