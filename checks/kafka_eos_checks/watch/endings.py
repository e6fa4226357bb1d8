"""The ends of transactions, kept until each partition was read far enough to show how it ended them.

A watcher reads partitions at different times: with ``--from-start`` it may read the whole log of one before it begins
another. So an end is kept until each partition was read up to its end once more. After that, only the last transactions
of a producer are kept, for markers that come a moment later. A *round* is the time in which each partition is read up
to its end once.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.watch.cluster import Place

LAST_TRANSACTIONS = 3  # of a producer, which are kept however long ago they ended
MOST_PRODUCERS = 10_000  # of which transactions are kept after a round: those that ended one last
MOST_ENDS = 200_000  # in a round


BY_HAND = "ABORT by hand"  # the decision of such an end, in JSON


class End(NamedTuple):
    """The first end of a transaction that was read: the decision, the place of its marker, and the round of reading.

    An end is by hand if its marker is an ABORT that has the epoch of its data (``kafka-transactions abort``).
    """

    decision: ControlType
    place: Place
    offset: int
    round: int
    torn: bool = False
    by_hand: bool = False


class Endings:
    """The ends of transactions whose markers' epochs name them (transaction version 2).

    Attributes:
        ends: by producer id, ordered by the last end, and by the epoch of the marker.
        forgotten: whether ends were forgotten within a round, because there were more than ``MOST_ENDS``.
    """

    def __init__(self) -> None:
        self.ends: dict[int, dict[int, End]] = {}
        self.forgotten = False
        self._round = 0
        self._size = 0
        self._many: set[int] = set()  # producers of more than LAST_TRANSACTIONS

    def add_by_hand(self, producer_id: int, epoch: int, place: Place, offset: int) -> End | None:
        """Remember an ABORT that has the epoch of its data, if that names one transaction; see :meth:`add`.

        It does if the transaction before it had an epoch of its own. Otherwise the ABORT may be of version 1.
        """
        if epoch not in self.ends.get(producer_id, ()):
            return None
        return self.add(producer_id, epoch + 1, ControlType.ABORT, place, offset, by_hand=True)

    def add_without_data(self, producer_id: int, epoch: int, place: Place) -> End | None:
        """Take a COMMIT that ends no data: return the ABORT by hand before it that ended them, as :meth:`add` does."""
        before = self.ends.get(producer_id, {}).get(epoch)
        if before is None or not before.by_hand or before.torn or before.place != place:
            return None
        self.ends[producer_id][epoch] = before._replace(torn=True)
        return before

    def add(
        self,
        producer_id: int,
        epoch: int,
        decision: ControlType,
        place: Place,
        offset: int,
        *,
        by_hand: bool = False,
    ) -> End | None:
        """Remember an end; return an end of the same transaction with the other decision, once for each transaction."""
        own = self.ends[producer_id] = self.ends.pop(producer_id, {})
        before = own.get(epoch)
        if before is not None:
            if before.torn or before.decision is decision:
                return None
            own[epoch] = before._replace(torn=True)
            return before
        own[epoch] = End(decision, place, offset, self._round, by_hand=by_hand)
        self._size += 1
        if len(own) > LAST_TRANSACTIONS:
            self._many.add(producer_id)
        if self._size > MOST_ENDS:
            self.forgotten = True
            self._forget(self._round + 1)
        return None

    def next_round(self) -> None:
        """Begin a round: ends from before the last one are forgotten, except the last ones of each producer."""
        self._forget(self._round)
        self._round += 1

    def _forget(self, before: int) -> None:
        """Forget the ends of rounds before one, except the last ones of each producer."""
        for pid in list(self._many):
            own = self.ends[pid]
            for epoch in sorted(own)[:-LAST_TRANSACTIONS]:
                if own[epoch].round < before:
                    del own[epoch]
                    self._size -= 1
            if len(own) <= LAST_TRANSACTIONS:
                self._many.discard(pid)
        while len(self.ends) > MOST_PRODUCERS:
            pid = next(iter(self.ends))
            if any(end.round >= before for end in self.ends[pid].values()):
                break
            self._size -= len(self.ends.pop(pid))
            self._many.discard(pid)

    def to_json(self) -> list[list[Any]]:
        """Rows of JSON; the inverse of :meth:`resume`."""
        return [list(row) for row in self._rows()]

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        for pid, own in self.ends.items():
            for epoch, end in own.items():
                # A torn transaction has a row for each decision.
                for decision in (ControlType.COMMIT, ControlType.ABORT) if end.torn else (end.decision,):
                    is_by_hand = end.by_hand and decision is ControlType.ABORT
                    yield pid, epoch, BY_HAND if is_by_hand else decision.name, *end.place, end.offset

    def resume(self, rows: list[list[Any]]) -> None:
        """Take the rows of :meth:`to_json`, as ends of this round."""
        for pid, epoch, decision, topic, number, offset in rows:
            by_hand = decision == BY_HAND
            kind = ControlType.ABORT if by_hand else ControlType[decision]
            self.add(pid, epoch, kind, (topic, number), offset, by_hand=by_hand)
