"""The markers in partitions, and the decisions of a transactional id that they belong to.

Clients of version 1 keep their epoch, so that the markers of many transactions tell the same. Then only their order
tells to which transaction each belongs: a partition has the markers of a transactional id in the order of its
decisions. :func:`matched` compares the two orders. In a whole log the first marker is of the first decision. If the
first records or the first batches are gone, the last marker is of the last decision.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.rules.coordinator import PREPARED
from kafka_eos_checks.traces.transitions import Transition

FIRST_LEADER = 0  # the leader epoch of a partition that was made just now
EMPTY_MS = 2**63 - 1  # the time of the first batch of an empty log


class WrittenMarker(NamedTuple):
    """A control batch of a partition.

    Attributes:
        joined: whether no entry of its producer lies between it and a marker of the same epoch and decision before it,
            so that both may be of one transaction.
        again: whether that marker has its coordinator epoch, too, so that it may be a repetition.
    """

    producer_id: int
    epoch: int
    decision: ControlType
    coordinator_epoch: int
    offset: int
    joined: bool = False
    again: bool = False


class WrittenBatch(NamedTuple):
    """A batch of a producer in a partition; ``kind`` is "transactional" or "plain"."""

    producer_id: int
    epoch: int
    kind: str
    offset: int


class FirstBatch(NamedTuple):
    """The first batch of a log; ``time_ms`` is its largest timestamp."""

    offset: int
    leader_epoch: int
    time_ms: int


def begin_of_new(first: FirstBatch | None) -> int:
    """The time of a log's first batch, in ms, if the partition was new then; -1 if it was not.

    A partition is new with the first leader epoch at offset 0. A log that lost its batches has a later epoch.

    Args:
        first: the batch; None if the log is empty, so that nothing is later than its begin.
    """
    if first is None:
        return EMPTY_MS
    return first.time_ms if (first.offset, first.leader_epoch) == (0, FIRST_LEADER) else -1


def with_repeats(rows: Iterable[WrittenBatch | WrittenMarker], *, is_cut: bool) -> Iterator[WrittenMarker]:
    """The control batches of a partition's entries; markers that may be repetitions are flagged.

    A coordinator that gets no answer sends a marker again, and a leader may write it again. A repetition has the epoch,
    the decision and the coordinator epoch of its producer's previous entry; after an election the new coordinator's
    epoch. So may the marker of a next transaction that wrote nothing. The previous entry may be gone if the partition's
    first batches are (``is_cut``).

    Kafka: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler
    """
    before: dict[int, WrittenBatch | WrittenMarker] = {}
    for row in rows:
        last = before.get(row.producer_id)
        if isinstance(row, WrittenMarker):
            joined = is_cut if last is None else isinstance(last, WrittenMarker) and last[:3] == row[:3]
            yield row._replace(joined=joined, again=joined and (last is None or last[3] == row[3]))
        before[row.producer_id] = row


class MarkersOf:
    """The markers of a transactional id's producers that no step has used yet.

    A marker is found by its transaction's producer id, epoch and decision, and is used once, in the order of the
    partition's log. Markers that may be repetitions come last: they belong to a transaction that wrote nothing, or to
    none.
    """

    def __init__(self, markers: Iterable[tuple[str, WrittenMarker]]) -> None:
        """Take markers with their partitions; the markers of each partition are in log order."""
        self._by_transaction: dict[tuple[str, int, int, ControlType], dict[int, deque[WrittenMarker]]] = {}
        for name, marker in markers:
            own = self._by_transaction.setdefault((name, *marker[:3]), {})
            own.setdefault(marker.coordinator_epoch, deque()).append(marker)
        for own in self._by_transaction.values():
            for reign, found in own.items():
                own[reign] = deque(sorted(found, key=lambda marker: marker.again))

    def reigns(self, name: str, prepared: Transition, since: int, until: int | None) -> list[int]:
        """The coordinator epochs of a partition's markers of a decision, from ``since`` up to ``until`` (None: all)."""
        own = self._of(name, prepared)
        return [reign for reign, left in own.items() if left and since <= reign and (until is None or reign <= until)]

    def take(self, name: str, prepared: Transition, reign: int) -> WrittenMarker | None:
        """The first unused marker of a decision on a partition by a coordinator; None if there is none."""
        left = self._of(name, prepared).get(reign)
        return left.popleft() if left else None

    def left(self) -> list[tuple[str, WrittenMarker]]:
        """The unused markers that are no repetitions, by partition and in log order."""
        every = [(key[0], m) for key, own in self._by_transaction.items() for left in own.values() for m in left]
        return sorted((row for row in every if not row[1].again), key=lambda row: (row[0], row[1].offset))

    def _of(self, name: str, prepared: Transition) -> Mapping[int, deque[WrittenMarker]]:
        decision = PREPARED[prepared.state]
        return self._by_transaction.get((name, prepared.producer_id, prepared.epoch, decision), {})


# --- which marker is of which decision ---------------------------------------------------------------------------


class Decided(NamedTuple):
    """A decision of a transactional id.

    Attributes:
        offset: of its record.
        key: the producer id, epoch and decision that its markers tell.
        is_complete: whether a record completes it.
        until: the leader epoch of that record: the coordinator with it has written all its markers.
    """

    offset: int
    key: tuple[int, int, ControlType]
    is_complete: bool
    until: int


@dataclass(frozen=True, slots=True)
class Matched:
    """The markers of a partition, compared with the decisions of a trace.

    Attributes:
        markers: those that may be of the trace's decisions or of none, in log order.
        assumed: the decisions whose markers are taken for written, by offset: they are gone, or cannot be told from
            others.
        missing: decisions that lack their marker, by offset: the first in the order of comparison.
        is_ragged: whether the end of the partition, or of the records, was left out, because the other is older.
        is_new: whether decisions were left out, because the partition was made again after them.
    """

    markers: Sequence[WrittenMarker]
    assumed: frozenset[int] = frozenset()
    missing: frozenset[int] = frozenset()
    is_ragged: bool = False
    is_new: bool = False


Epoch = tuple[int, int]  # a producer id and its epoch
_Run = list[WrittenMarker]  # markers that may be of one transaction: no entry of their producer lies between them


def matched(
    decided: Sequence[Decided],
    markers: Sequence[WrittenMarker],
    *,
    given: Transition | None = None,
    is_cut: bool,
    last: Transition | None = None,
) -> Matched:
    """Compare the order of a partition's markers with the order of the decisions about it, epoch by epoch.

    Args:
        decided: the decisions of a trace about the partition, in log order; only the last may be incomplete.
        markers: the markers of its producers in the partition, in log order.
        given: the record in whose state the trace begins: markers up to its epoch may be of earlier transactions.
        is_cut: whether the first batches of the partition are gone.
        last: the last record of the trace, if the logs may be of different moments. Then the partition may lack the
            markers of the last decisions, or have those of later ones.
    """
    if not is_cut and last is None and [decision.key for decision in decided] == [marker[:3] for marker in markers]:
        return Matched(markers)
    runs = _runs(markers)
    epochs = [(epoch, list(own)) for epoch, own in groupby(decided, key=lambda decision: decision.key[:2])]
    begun = None if given is None else (given.producer_id, given.epoch)
    first = next((place for place, (epoch, _) in enumerate(epochs) if epoch in runs), len(epochs))
    left = {epoch: own for epoch, own in runs.items() if begun is None or epoch[0] != begun[0] or epoch > begun}
    assumed: list[int] = []
    missing: list[int] = []
    newest = max((place for place, (epoch, _) in enumerate(epochs) if epoch in runs), default=-1)
    told = {epoch for epoch, _ in epochs}
    is_ragged = False
    if last is not None:
        later = {e for e in left.keys() - told if e[0] == last.producer_id and e[1] >= last.epoch}
        left = {epoch: own for epoch, own in left.items() if epoch not in later}
        is_ragged = bool(later) or any(decision.is_complete for _, own in epochs[newest + 1 :] for decision in own)
        assumed += (decision.offset for _, own in epochs[newest + 1 :] for decision in own)
        epochs = epochs[: newest + 1]
    for place, (epoch, own) in enumerate(epochs):
        is_first = is_cut and place <= first
        found = _compare(own, runs.get(epoch, []), is_begun=epoch == begun, is_first=is_first)
        if last is not None and place == newest and not _has_one_each(own, found):
            found, is_ragged = _loosened(own, found), True
        left[epoch] = found.runs
        missing += found.missing
        if found.missing and (is_first or epoch == begun):
            assumed += (decision.offset for _, each in epochs[:place] for decision in each)
        assumed += found.assumed
    kept = sorted((m for each in left.values() for run in each for m in run), key=lambda marker: marker.offset)
    return Matched(kept, frozenset(assumed), frozenset(missing), is_ragged)


def _has_one_each(decided: Sequence[Decided], found: "_Compared") -> bool:
    """Whether each decision of an epoch certainly has its marker, one of the coordinator that completed it."""
    markers = [marker for run in found.runs for marker in run]
    reign = max((marker.coordinator_epoch for marker in markers), default=-1)
    due = decided if decided[-1].is_complete or len(decided) <= len(markers) else decided[:-1]
    is_one_each = not found.missing and len(due) == len(found.runs) == len(markers)
    return is_one_each and reign >= max(decision.until for decision in decided)


def _loosened(decided: Sequence[Decided], found: "_Compared") -> "_Compared":
    """The comparison of an epoch in which any of the last markers, or of the last decisions, may be left out."""
    runs = [[marker._replace(again=True) for marker in run] for run in found.runs]
    return _Compared(runs, [decision.offset for decision in decided if decision.is_complete])


def _runs(markers: Iterable[WrittenMarker]) -> dict[Epoch, list[_Run]]:
    runs: dict[Epoch, list[_Run]] = {}
    for marker in markers:
        own = runs.setdefault(marker[:2], [])
        if own and marker.joined:
            own[-1].append(marker)
        else:
            own.append([marker])
    return runs


class _Walk(NamedTuple):
    """How far the decisions of an epoch and the runs of its markers agree, both in the same direction.

    Attributes:
        met: the number of decisions that have a marker.
        sure: the number of those that have one even if each run is of one transaction.
        used: the number of runs that they have.
        turn: the number of those runs before the last change from commits to aborts or back.
    """

    met: int
    sure: int
    used: int
    turn: int


def _walk(decided: Sequence[Decided], runs: Sequence[_Run]) -> _Walk:
    met = sure = used = turn = 0
    for told, group in groupby(decided, key=lambda decision: decision.key[2]):
        if used == len(runs):
            break
        wanted, end = len(list(group)), used
        while end < len(runs) and runs[end][0].decision is told:
            end += 1
        own = runs[used:end]
        there = min(wanted, sum(map(len, own)))
        sure = met + min(wanted, sum(not run[0].joined for run in own))
        met, used, turn = met + there, used + min(wanted, len(own)), used
        if there < wanted:
            break
    return _Walk(met, sure, used, turn)


class _Compared(NamedTuple):
    """The decisions of one epoch, compared with the runs of its markers, as :class:`Matched` has them."""

    runs: list[_Run]
    assumed: Sequence[int] = ()
    missing: Sequence[int] = ()


def _compare(decided: list[Decided], runs: list[_Run], *, is_begun: bool, is_first: bool) -> _Compared:
    """Compare the orders of one epoch.

    Args:
        decided: the decisions of the epoch.
        runs: the runs of its markers.
        is_begun: whether the trace begins in the epoch, so that the first runs may be of earlier transactions.
        is_first: whether the partition is cut and has no markers of earlier epochs, so that the first runs may be gone.
    """
    if not (is_begun or is_first):
        if len(decided) == 1:
            return _Compared(runs)  # there is no order
        met = _walk(decided, runs).met
        is_missing = met < len(decided) and decided[met].is_complete
        return _Compared(runs, missing=[decided[met].offset] if is_missing else [])
    decided, runs = decided[::-1], runs[::-1]
    walk = _walk(decided, runs)
    if not decided[0].is_complete and walk.met < len(decided):  # it may have no marker yet
        without = _walk(decided[1:], runs)
        if without.met >= walk.met:
            decided, walk = decided[1:], without
    is_gone = is_first and walk.used == len(runs)
    offsets = [decision.offset for decision in decided]
    if not is_gone and walk.met < len(decided):
        return _Compared(runs[::-1], offsets[walk.met + 1 :], [offsets[walk.met]])
    others = [[marker._replace(again=True) for marker in run] for run in runs[walk.turn : walk.used]]
    unused = [] if is_begun else runs[walk.used :]
    kept = [*runs[: walk.turn], *(others if is_begun or is_gone else runs[walk.turn : walk.used]), *unused]
    return _Compared(kept[::-1], offsets[walk.sure :] if is_gone else ())
