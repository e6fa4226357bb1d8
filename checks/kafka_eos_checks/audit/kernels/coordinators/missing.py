"""The markers that completed transactions have left on partitions, counted with numpy, and those that are there.

The readable rule (:func:`kafka_eos_checks.audit.rules.transactions.missing.missing`) judges the few partitions and
epochs that have fewer markers than transactions. Counts of the same log, producer id and epoch can be added in any
order. So a producer id whose steps and decisions are shared by several tasks is judged by their sums.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos_checks.audit.internal_topics.decisions import Decisions, stretches
from kafka_eos_checks.audit.kernels.coordinators.matching import Knowledge
from kafka_eos_checks.audit.kernels.logs.transactions import NOTHING, Paired, Partition, Rows
from kafka_eos_checks.audit.moments import SKEW_MS, Moments
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog
from kafka_eos_checks.audit.rules.transactions.coordinators import why_incomplete
from kafka_eos_checks.audit.rules.transactions.judged import Judged
from kafka_eos_checks.audit.rules.transactions.matching import Named
from kafka_eos_checks.audit.rules.transactions.missing import (
    EndedOtherwise,
    Owed,
    There,
    begins_with_zero,
    known_since,
    may_miss,
    missing,
    owes_from,
)
from kafka_eos_checks.audit.rules.transactions.names import FIRST_LEADER
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.audit.segments.marks import NO_DECISION

Flags = NDArray[np.bool_]
_KEY = [("log", np.int64), ("producer_id", np.int64), ("epoch", np.int64)]
_COUNTS = ("due", "due_later", "near", "near_later", "doubtful")
# One row for each log, producer id and epoch, or several to be added: the attributes of Owed.
OWED = np.dtype(
    [
        *_KEY,
        *((name, np.int64) for name in (*_COUNTS, "number", "decision", "decided_ms", "completed_ms")),
        ("ordered", np.bool_),
    ]
)
# Likewise: markers that are there, and epochs of data that no marker of their own has ended (0 markers). And the last
# data of the epoch before that a marker with another epoch has ended: the attributes of EndedOtherwise, -1 for none.
_OTHERWISE = ("offset", "marker_at", "marker_epoch", "decision")
THERE = np.dtype([*_KEY, ("markers", np.int64), ("unended", np.bool_), *((name, np.int64) for name in _OTHERWISE)])
NO_OWED: Rows = np.empty(0, OWED)
NO_THERE: Rows = np.empty(0, THERE)
_DUE, _NEAR, _DOUBTFUL, _NOT = range(4)
Lowest = dict[tuple[int, int], int]


class Owing:
    """The logs that must have the markers of completed transactions.

    Args:
        partitions: all logs, by number.
        chosen: the numbers of those that count: the longest of each partition.
        coordinators: the coordinators' logs that count.
        moments: the moments of all logs.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        chosen: Collection[int],
        coordinators: Sequence[CoordinatorLog],
        moments: Moments,
    ) -> None:
        self.partitions, self.moments = partitions, moments
        logs = {number: partitions[number] for number in chosen if may_miss(partitions[number], moments)}
        self.number = {(each.log.topic, each.log.partition): number for number, each in logs.items()}
        zero = {number for number, each in logs.items() if begins_with_zero(each.log, each.start)}
        self._first_ms = np.array([each.first_marker_ms for each in partitions], np.int64)
        self._begins_ms = np.array([each.begins_ms for each in partitions], np.int64)
        self._begins_late = np.array([each.begins_epoch != FIRST_LEADER for each in partitions], np.bool_)
        self._zero = np.array([number in zero for number in range(len(partitions))], np.bool_)
        since = known_since(partitions, moments)
        self._from_ms = np.array([owes_from(each, since, moments) for each in partitions], np.float64)
        self.is_whole = np.array([why_incomplete(log) is None for log in coordinators], np.bool_)

    def pairs(self, decided: Decisions, which: Flags) -> tuple[Ints, Ints, Ints]:
        """The decision, log and age of each marker that some completed transactions must or may have left."""
        sets = decided.sets
        of_place = np.array([self.number.get(place, NOTHING) for place in sets.places], np.int64)
        chosen = np.flatnonzero(which & (decided.completed_ms >= 0))
        rows, begin = stretches(sets.begin, decided.partitions[chosen])
        decision, log = np.repeat(chosen, np.diff(begin)), of_place[sets.members[rows]]
        there = log != NOTHING
        decision, log = decision[there], log[there]
        decided_ms, first_ms = decided.decided_ms[decision], self._first_ms[log]
        marked = first_ms >= 0
        doubtful = self._zero[log] & (self._begins_late[log] | (self._begins_ms[log] <= decided_ms))
        age = np.where(doubtful, _DOUBTFUL, _NOT)
        age[marked & (first_ms <= decided_ms)] = _NEAR
        age[(marked & (first_ms < decided_ms - SKEW_MS)) | (self._from_ms[log] < decided_ms - SKEW_MS)] = _DUE
        old = age != _NOT
        return decision[old], log[old], age[old]

    def owed(self, decided: Decisions, coordinator: int) -> Rows:
        """The rows of decisions of one coordinator's log, by its number among those that count."""
        which = (decided.version >= TRANSACTION_VERSION_2) | self.is_whole[coordinator]
        return self._rows(decided, *self.pairs(decided, which))

    def _rows(self, decided: Decisions, decision: Ints, log: Ints, age: Ints) -> Rows:
        rows = np.zeros(len(decision), OWED)
        rows["log"], rows["epoch"] = log, decided.marker_epoch[decision]
        for name in ("producer_id", "number", "decision", "decided_ms", "completed_ms"):
            rows[name] = getattr(decided, name)[decision]
        rows["ordered"] = decided.version[decision] < TRANSACTION_VERSION_2
        reach = np.full(len(self.partitions), np.inf)
        for number in np.unique(log).tolist():
            reach[number] = self.moments.reach(self.partitions[number])
        later = rows["completed_ms"] + SKEW_MS > reach[log]
        rows["due"], rows["due_later"] = (age == _DUE) & ~later, (age == _DUE) & later
        rows["near"], rows["near_later"] = (age == _NEAR) & ~later, (age == _NEAR) & later
        rows["doubtful"] = age == _DOUBTFUL
        return added(rows)

    def judge(self, steps: Paired, coordinators: Knowledge, cut: Collection[int], judged: Judged) -> None:
        """Find the markers of completed transactions that logs do not have.

        Args:
            steps: all steps of some producer ids in the logs that count.
            coordinators: the coordinators' logs of these producer ids.
            cut: producer ids whose steps and decisions are not all here.
            judged: what is found is added to it.
        """
        decided, pids = coordinators.decisions, coordinators.producer_ids
        if not len(decided) or not len(pids):
            return
        place, is_owned = _places(pids, decided.producer_id)
        is_owned &= (decided.version >= TRANSACTION_VERSION_2) | self.is_whole[coordinators.log[place]]
        if cut:
            is_owned &= ~np.isin(decided.producer_id, list(cut))
        decision, log, age = self.pairs(decided, is_owned)
        own = _keys(log, place[decision], decided.marker_epoch[decision].astype(np.int64), len(pids))
        log_of, pid_of, epoch_of = markers_of(steps)
        at, is_known = _places(pids, pid_of)
        there = np.sort(_keys(log_of, at, epoch_of, len(pids))[is_known])
        keys, counts = _counted(own)
        short = keys[np.searchsorted(there, keys, "right") - np.searchsorted(there, keys) < counts]
        if not len(short):
            return
        few = np.isin(own, short)
        owed = self._rows(decided, decision[few], log[few], age[few])
        theirs = np.isin(pid_of, owed["producer_id"])
        known = there_in(replace(steps, markers=steps.markers[theirs], ends=steps.ends[theirs]))
        self.compare(owed, known, lowest_in(known), coordinators.name_of, judged)

    def compare(self, owed: Rows, there: Rows, lowest: Lowest, name_of: Callable[[int], str], judged: Judged) -> None:
        """Let the readable rule judge where there are fewer markers than transactions.

        Args:
            owed: rows of :data:`OWED`, one for each log, producer id and epoch.
            there: rows of :data:`THERE`, likewise.
            lowest: the lowest epoch of the markers of each log and producer id.
            name_of: the transactional id of a producer id.
            judged: what is found is added to it.
        """
        pids = np.unique(np.concatenate([owed["producer_id"], there["producer_id"]]))
        wanted, known = (
            _keys(rows["log"], np.searchsorted(pids, rows["producer_id"]), rows["epoch"], len(pids))
            for rows in (owed, there)
        )
        order = np.argsort(known)
        places, found = _places(known[order], wanted)
        markers = np.where(found, there["markers"][order][places], 0) if len(there) else np.zeros(len(owed), np.int64)
        counts = sum(owed[name] for name in _COUNTS)
        few = np.flatnonzero(markers < counts)
        unended = {row[:3] for row in there[there["unended"]].tolist()}
        otherwise = {row[:3]: _ended_otherwise(*row[-4:]) for row in there[there["offset"] >= 0].tolist()}
        names = owed.dtype.names or ()
        for row, count in zip(owed[few].tolist(), markers[few].tolist(), strict=True):
            told = dict(zip(names, row, strict=True))
            log, pid, epoch = told.pop("log"), told["producer_id"], told["epoch"]
            name, decision = Named(name_of(pid), told.pop("number"), pid), ControlType(told.pop("decision"))
            here = There(
                markers=count,
                follows=lowest.get((log, pid), epoch) < epoch,
                unended={each for each in (epoch - 1, epoch) if (log, pid, each) in unended},
                otherwise=otherwise.get((log, pid, epoch)),
            )
            missing(self.partitions[log], Owed(name=name, decision=decision, **told), here, self.moments, judged)


def began(partitions: Iterable[Partition]) -> dict[Place, float]:
    """The moment before which a partition had neither data nor markers, of the partitions that were new then.

    In ms since the epoch, by the clock of any other broker. A log that begins at offset 0 with the first leader epoch
    was new with its first batch. All replicas of the partition have to be so.
    """
    found: dict[Place, float] = {}
    for each in partitions:
        is_new = each.start == 0 and each.begins_epoch == FIRST_LEADER and not each.holes and not each.damaged
        marked_ms = each.first_marker_ms if each.first_marker_ms >= 0 else np.inf
        own = min(each.begins_ms, marked_ms) - SKEW_MS if is_new else -np.inf
        place = each.log.topic, each.log.partition
        found[place] = min(own, found.get(place, own))
    return found


def decided_on(decided: Decisions, new: Mapping[Place, float]) -> tuple[dict[Place, int], dict[str, int]]:
    """When each partition's last transaction was decided, and a moment after which topics were made again.

    A topic was made again after a transaction of a partition was complete that was new only later: see :func:`began`,
    which returns ``new``. Both are in ms since the epoch.
    """
    sets = decided.sets
    rows, begin = stretches(sets.begin, decided.partitions)
    decision, member = np.repeat(np.arange(len(decided)), np.diff(begin)), sets.members[rows]
    last = np.full(len(sets.places), -1, np.int64)
    np.maximum.at(last, member, decided.decided_ms[decision])
    new_ms = np.array([new.get(place, -np.inf) for place in sets.places], np.float64)
    completed_ms = decided.completed_ms[decision]
    complete = np.full(len(sets.places), -1, np.int64)
    np.maximum.at(complete, member, np.where(completed_ms < new_ms[member], completed_ms, -1))
    again: dict[str, int] = {}
    for (topic, _), known_ms in zip(sets.places, complete.tolist(), strict=True):
        again[topic] = max(known_ms, again.get(topic, known_ms))
    decided_ms = {place: ms for place, ms in zip(sets.places, last.tolist(), strict=True) if ms >= 0}
    return decided_ms, {topic: ms for topic, ms in again.items() if ms >= 0}


def _places(known: Ints, wanted: Ints) -> tuple[Ints, Flags]:
    """The place of each wanted number among the known ones, which are in order, and whether it is there."""
    if not len(known):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return places, known[places] == wanted


def _keys(log: Ints, place: Ints, epoch: Ints, count: int) -> Ints:
    """A number for log, producer id and epoch; ``place`` is that of the producer id among ``count``."""
    keys: Ints = ((log * count + place) << 16) + (epoch & 0xFFFF)
    return keys


def _counted(keys: Ints) -> tuple[Ints, Ints]:
    """The distinct keys, in order, and how often each is there."""
    keys = np.sort(keys)
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.diff(first, append=len(keys))


def markers_of(steps: Paired) -> tuple[Ints, Ints, Ints]:
    """The log, producer id and epoch of each marker, shape (m,)."""
    rows = steps.markers
    return steps.log[rows], steps.steps["producer_id"][rows], steps.steps["producer_epoch"][rows].astype(np.int64)


def there_in(steps: Paired) -> Rows:
    """The markers of some steps, and the data that no marker of their own has ended.

    These data are open, or were when data of a later epoch came.
    """
    rows = np.zeros(len(steps.markers), THERE)
    rows["log"], rows["producer_id"], rows["epoch"] = markers_of(steps)
    rows["markers"], rows["offset"] = 1, -1
    at = np.array([*steps.open, *(row for row, *_ in steps.merged)], np.int64)
    left = np.zeros(len(at), THERE)
    left["log"], left["producer_id"], left["unended"] = steps.log[at], steps.steps["producer_id"][at], True
    left["epoch"], left["offset"] = steps.steps["producer_epoch"][at], -1
    return added(np.concatenate([rows, left, _otherwise_in(steps)]))


def _otherwise_in(steps: Paired) -> Rows:
    """The data that a marker with another epoch than the next one has ended."""
    has_data = steps.ends != NOTHING
    own, data = steps.steps[steps.markers[has_data]], steps.steps[steps.ends[has_data]]
    due = data["producer_epoch"].astype(np.int64) + 1
    which = own["producer_epoch"] != due
    rows = np.zeros(int(which.sum()), THERE)
    rows["log"], rows["producer_id"] = steps.log[steps.markers[has_data]][which], own["producer_id"][which]
    rows["epoch"], rows["offset"], rows["marker_at"] = due[which], data["offset"][which], own["offset"][which]
    rows["marker_epoch"], rows["decision"] = own["producer_epoch"][which], own["decision"][which]
    return rows


def _ended_otherwise(offset: int, marker_at: int, marker_epoch: int, decision: int) -> EndedOtherwise:
    return EndedOtherwise(offset, marker_at, marker_epoch, None if decision == NO_DECISION else ControlType(decision))


def added(rows: Rows) -> Rows:
    """The rows of each log, producer id and epoch as one, in order: of :data:`OWED` or of :data:`THERE`."""
    names = rows.dtype.names or ()
    is_owed = "due" in names
    last = ("number", "decided_ms") if is_owed else ("offset",)
    rows = rows[np.lexsort([rows[name] for name in (*last, "epoch", "producer_id", "log")])]
    if not len(rows):
        return rows
    same = np.ones(len(rows) - 1, np.bool_)
    for name in ("log", "producer_id", "epoch"):
        same &= rows[name][1:] == rows[name][:-1]
    first = np.flatnonzero(np.append(True, ~same))
    found: Rows = rows[np.append(first[1:], len(rows)) - 1]  # the last one decided, or that was ended otherwise
    for name in _COUNTS if is_owed else ("markers",):
        found[name] = np.add.reduceat(rows[name], first)
    for name in ("completed_ms", "ordered") if is_owed else ("unended",):
        found[name] = np.maximum.reduceat(rows[name], first)
    return found


def lowest_in(there: Rows) -> Lowest:
    """The lowest epoch of the markers of each log and producer id; ``there`` is in order."""
    own = there[(there["markers"] > 0) & (there["epoch"] >= 0)]
    first = np.ones(len(own), np.bool_)
    first[1:] = (np.diff(own["log"]) != 0) | (np.diff(own["producer_id"]) != 0)
    return {(log, pid): epoch for log, pid, epoch, *_ in own[first].tolist()}


def lowest_of(every: Iterable[Lowest]) -> Lowest:
    """The lowest epochs of the markers of several tasks."""
    found: Lowest = {}
    for own in every:
        found |= {key: min(epoch, found.get(key, epoch)) for key, epoch in own.items()}
    return found


def by_task(rows: Rows, tasks: int) -> list[tuple[int, Rows]]:
    """The rows by the task that compares them. Data without a marker count for its epoch and for the next one."""
    if "unended" in (rows.dtype.names or ()):
        also = rows[rows["unended"]]
        also["markers"] = 0
        later = np.repeat((0, 1), (len(rows), len(also)))
        rows = np.concatenate([rows, also])
    else:
        later = np.zeros(len(rows), np.int64)
    pid, epoch = rows["producer_id"], rows["epoch"]
    task = (pid + epoch + later) % tasks
    return [(number, rows[task == number]) for number in np.unique(task).tolist()]
