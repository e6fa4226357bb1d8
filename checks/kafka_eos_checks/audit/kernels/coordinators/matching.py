"""The rules over transactions for many producer ids at once: prove with numpy that markers agree with the coordinator.

:func:`judge_steps` takes all steps of some producer ids. Nearly all markers are those that the coordinator's log
requires, one after the other. If numpy cannot prove this for every marker of a producer id, the readable rules judge
all its markers (:func:`kafka_eos_checks.audit.rules.transactions.judge.judge`). They also judge all open transactions,
which are few. So every finding is the readable rules' own.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos_checks.audit.internal_topics.decisions import Decisions, concatenate_decisions, stretches
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import FoldedIds
from kafka_eos_checks.audit.kernels.logs.readable import data_of, ending_of, marker_of
from kafka_eos_checks.audit.kernels.logs.transactions import NOTHING, Paired, Partition, Rows
from kafka_eos_checks.audit.moments import SKEW_MS, Moments, Source
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog, Transaction, TransactionalId
from kafka_eos_checks.audit.rules.decided import Answers, Data, added, keys_of
from kafka_eos_checks.audit.rules.log import Reason, Reasons, Subject
from kafka_eos_checks.audit.rules.transactions.coordinators import Coordinators, why_incomplete
from kafka_eos_checks.audit.rules.transactions.judge import judge, without_transaction
from kafka_eos_checks.audit.rules.transactions.judged import Judged
from kafka_eos_checks.audit.rules.transactions.names import AMBIGUOUS, FENCED, HANGING, HOLES, MOST_WAYS, UNKNOWN
from kafka_eos_checks.audit.rules.transactions.open import marked_about
from kafka_eos_checks.audit.rules.transactions.partitions import PartitionTransactions, PlainData, Replaced
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH
from kafka_eos_checks.audit.segments.order import stable_order

Flags = NDArray[np.bool_]
_AMBIGUOUS = 2  # the number of this reason


class Knowledge(Coordinators):
    """The coordinators' logs as columns, for some producer ids; a transactional id becomes an object on demand.

    Args:
        logs: the logs that have records, without their transactional ids.
        known: their transactional ids, in parts.
        given: whether any log was given, even an empty one.
    """

    def __init__(
        self, logs: Sequence[CoordinatorLog], known: Sequence[tuple[CoordinatorLog, FoldedIds]], *, given: bool
    ) -> None:
        super().__init__(logs, given=given)
        self.decisions = concatenate_decisions([part.decisions for _, part in known])
        self.granted_producer_id = _joined([part.granted_producer_id for _, part in known])
        self.granted_epoch = _joined([part.granted_epoch for _, part in known])
        self._known = known
        number = {id(log): place for place, log in enumerate(logs)}
        owned = _joined([part.owned_producer_id for _, part in known])
        places = np.repeat(np.arange(len(known)), [len(part.owner) for _, part in known])
        ids, log = _joined([part.owner for _, part in known]), np.array([number[id(log)] for log, _ in known], np.int64)
        self.producer_ids, first, count = np.unique(owned, return_index=True, return_counts=True)
        one = count == 1  # a producer id in logs of several clusters is not certain
        self.producer_ids, first = self.producer_ids[one], first[one]
        self._place, self._id = places[first], ids[first]
        self.log = log[self._place]
        self._made: dict[int, tuple[CoordinatorLog, TransactionalId]] = {}

    def owner(self, producer_id: int) -> tuple[CoordinatorLog, TransactionalId] | None:
        """As :meth:`Coordinators.owner`."""
        row = int(np.searchsorted(self.producer_ids, producer_id))
        if row == len(self.producer_ids) or self.producer_ids[row] != producer_id:
            return None
        if row not in self._made:
            log, part = self._known[int(self._place[row])]
            self._made[row] = log, part.transactional_id(int(self._id[row]))
            for each in self._made[row][1].transactions:
                if each.producer_id == producer_id:
                    self._transactions[producer_id, each.marker_epoch].append(each)
        return self._made[row]

    def name_of(self, producer_id: int) -> str:
        """The transactional id with a producer id that has an owner."""
        row = int(np.searchsorted(self.producer_ids, producer_id))
        return self._known[int(self._place[row])][1].names[int(self._id[row])]

    def transactions(self, producer_id: int, marker_epoch: int) -> list[Transaction]:
        """As :meth:`Coordinators.transactions`."""
        self.owner(producer_id)
        return super().transactions(producer_id, marker_epoch)


def _joined(parts: Sequence[NDArray[Any]]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])


def judge_steps(steps: Paired, partitions: Sequence[Partition], coordinators: Knowledge, moments: Moments) -> Judged:
    """Judge all transactions of some producer ids.

    Args:
        steps: all their steps in the logs that count: the longest of each partition.
        partitions: all logs, by number.
        coordinators: the coordinators' logs of these producer ids.
        moments: the moments of all logs.
    """
    columns = _Columns(steps, partitions, coordinators, moments)
    judged = Judged()
    unproved = columns.prove(judged)
    judged.add(judge(_readable(steps, partitions, unproved), coordinators, moments))
    return judged


def judge_plain_data(
    rows: Rows,
    writers: Ints,
    partitions: Sequence[Partition],
    coordinators: Knowledge,
    source: Source,
    judged: Judged,
) -> None:
    """Judge data without the transactional bit; the readable rule judges those of known producer ids.

    Args:
        rows: those of some producer ids in the logs that count, of :data:`PLAIN_DATA`, in any order.
        writers: the producer ids of all other batches there, in any order, some more than once.
        partitions: all logs, by number.
        coordinators: the coordinators' logs of these producer ids.
        source: what is known of the directories of all logs.
        judged: what is found is added to it.
    """
    writers = np.unique(np.concatenate([writers, rows["producer_id"]]))
    judged.count_producer_ids(int(np.isin(coordinators.producer_ids, writers).sum()))
    by_log: dict[int, PartitionTransactions] = {}
    own = rows[np.isin(rows["producer_id"], coordinators.producer_ids)]
    for row in own[np.lexsort((own["position"], own["segment"]))].tolist():
        log, segment, position, offset, pid, epoch, batches = row
        partition = by_log.setdefault(log, PartitionTransactions(partitions[log].log))
        first = PlainData(partition.log.segments[segment], position, offset, pid, epoch, 0)
        known = partition.plain.get(pid, first)
        partition.plain[pid] = known._replace(batches=known.batches + batches)
    for partition in by_log.values():
        judged.findings += without_transaction(partition, coordinators, source)


class Proof(NamedTuple):
    """The judgement of the markers of a producer id in some slices.

    Attributes:
        producer_id: the producer id.
        judged: the figures; None if any of the markers is not proved.
        decisions: rows of producer id, epoch of the data and decision: those of markers that cannot be judged, and of
            COMMITs of version 2, of which no two may contradict each other; shape (n, 3).
    """

    producer_id: int
    judged: Judged | None
    decisions: Ints


def prove_slices(
    steps: Paired,
    partitions: Sequence[Partition],
    coordinators: Knowledge,
    moments: Moments,
    shared: Collection[tuple[int, int, int]],
) -> list[Proof]:
    """Judge the markers of some slices, except the order of those that other slices share.

    Args:
        steps: the steps of the slices.
        partitions: all logs, by number.
        coordinators: the coordinators' logs with the decisions of these markers.
        moments: the moments of all logs.
        shared: log, producer id and epoch of these.
    """
    return list(_Columns(steps, partitions, coordinators, moments, shared).prove_each())


def marked_in(steps: Paired, partitions: Sequence[Partition], wanted: Collection[Data]) -> Answers:
    """As :func:`kafka_eos_checks.audit.rules.transactions.open.marked_about`, of many logs.

    Args:
        steps: the steps of the logs that count, of some producer ids.
        partitions: all logs, by number.
        wanted: the data.
    """
    own = steps.steps.take(steps.markers)
    told = keys_of(own["producer_id"], own["producer_epoch"].astype(np.int64))
    asked = keys_of(*np.array([(data.producer_id, data.epoch + 1) for data in wanted], np.int64).reshape(-1, 2).T)
    found = _readable(replace(steps, open=[], merged=[]), partitions, np.isin(told, asked))
    return added(marked_about(each, wanted) for each in found)


def _readable(steps: Paired, partitions: Sequence[Partition], unproved: Flags) -> list[PartitionTransactions]:
    """The transactions of each log in the form of the readable rules: open and merged ones, and some of the markers.

    Args:
        steps: all steps.
        partitions: all logs, by number.
        unproved: which markers are not proved, shape (m,).
    """
    by_log: dict[int, PartitionTransactions] = {}

    def of_log(number: int) -> PartitionTransactions:
        if number not in by_log:
            known = partitions[number]
            by_log[number] = PartitionTransactions(
                known.log,
                start=known.start,
                begins_ms=known.begins_ms,
                end=known.end,
                holes=known.holes,
                stamped_ms=known.stamped_ms,
                first_marker_ms=known.first_marker_ms,
                damaged_end=known.damaged_end,
            )
        return by_log[number]

    for number in np.flatnonzero(unproved).tolist():
        log = int(steps.log[steps.markers[number]])
        of_log(log).markers.append(marker_of(steps, number, partitions[log].segments))
    for row in steps.open:
        log = int(steps.log[row])
        opened = data_of(steps, row, partitions[log].segments)
        of_log(log).open[opened.producer_id] = opened
    for row, later, end in steps.merged:
        log, epoch = int(steps.log[row]), int(steps.steps["producer_epoch"][later])
        replaced = Replaced(data_of(steps, row, partitions[log].segments), epoch)
        of_log(log).merged.append(replaced if end == NOTHING else replaced._replace(**ending_of(steps, end)))
    return [by_log[number] for number in sorted(by_log)]


class _Columns:
    """The markers of some producer ids, with the owners of these; all columns of shape (m,).

    Args:
        steps: all their steps, or those of a slice.
        partitions: all logs, by number.
        coordinators: the coordinators' logs of these producer ids.
        moments: the moments of all logs.
        shared: log, producer id and epoch of markers that other slices have, too. Their order is not looked at.
    """

    def __init__(
        self,
        steps: Paired,
        partitions: Sequence[Partition],
        coordinators: Knowledge,
        moments: Moments,
        shared: Collection[tuple[int, int, int]] = (),
    ) -> None:
        self.shared = shared
        self.partitions, self.coordinators, self.moments = partitions, coordinators, moments
        own = steps.steps.take(steps.markers)  # ten times as fast as [] for rows of several fields
        self.log = steps.log[steps.markers]
        self.producer_id = own["producer_id"]
        self.epoch = own["producer_epoch"].astype(np.int64)
        self.decision = own["decision"].astype(np.int64)
        self.coordinator_epoch = own["coordinator_epoch"].astype(np.int64)
        self.stamped_ms = own["timestamp"]
        self.offset = own["offset"]
        self.has_data = steps.ends != NOTHING
        ends = steps.steps["producer_epoch"][np.where(self.has_data, steps.ends, 0)] if len(own) else self.epoch
        self.data_epoch = np.where(self.has_data, ends.astype(np.int64), -1)
        self.pids = np.unique(self.producer_id)
        self.pid = np.searchsorted(self.pids, self.producer_id)
        self.owner = self._owners()

    def _owners(self) -> Ints:
        """Number of the coordinator's log that names each distinct producer id, -1 for none."""
        known = self.coordinators.producer_ids
        if not len(known):
            return np.full(len(self.pids), -1, np.int64)
        place = np.minimum(np.searchsorted(known, self.pids), len(known) - 1)
        return np.where(known[place] == self.pids, self.coordinators.log[place], -1)

    def __len__(self) -> int:
        return len(self.log)

    def prove(self, judged: Judged) -> Flags:
        """Count the markers that are proved right, and return the others: all markers of unproved producer ids."""
        if not len(self):
            return np.zeros(0, np.bool_)
        proved, left, reasons = self._proved()
        mine = self._of_good(proved & ~self._both_decisions(left >= 0))
        self._count(judged, mine, left, reasons)
        return ~mine

    def prove_each(self) -> Iterator["Proof"]:
        """The proof of each producer id. The same decision on all partitions is not proved."""
        if not len(self):
            return
        proved, left, reasons = self._proved()
        proved &= left != _AMBIGUOUS  # what may be meant is not all here
        mine, told = self._of_good(proved), self._may_have_both(left >= 0)
        decided = np.column_stack((self.producer_id, self.data_epoch, self.decision))
        for number, producer_id in enumerate(self.pids.tolist()):
            own = self.pid == number
            judged = Judged()
            self._count(judged, own & mine, left, reasons)
            decisions = np.unique(decided[own & told], axis=0)
            yield Proof(producer_id, judged if mine[own].all() else None, decisions)

    def _proved(self) -> tuple[Flags, Ints, list[Reason]]:
        """Whether each marker is proved right by itself, and the rest as in :meth:`_agree`."""
        proved, left, reasons = self._agree()
        proved &= (self.epoch >= 0) & ((self.data_epoch >= 0) | ~self.has_data)
        return proved & self._no_older_coordinator() & self._not_fenced(), left, reasons

    def _of_good(self, proved: Flags) -> Flags:
        """Whether all markers of each marker's producer id are proved."""
        good = np.ones(len(self.pids), np.bool_)
        good[self.pid[~proved]] = False
        mine: Flags = good[self.pid]
        return mine

    def _count(self, judged: Judged, mine: Flags, left: Ints, reasons: Sequence[Reason]) -> None:
        """Count some proved markers."""
        unknown = Reasons()
        for number in np.unique(left[mine & (left >= 0)]).tolist():
            self._note(unknown, reasons[number], mine & (left == number))
        judged.count_markers(int(mine.sum()), unknown)
        figures = judged.figures
        figures[HANGING]["transactions"] = int(figures[HANGING]["transactions"]) + int((mine & self.has_data).sum())
        committed = mine & self.has_data & (self.decision == ControlType.COMMIT)
        figures[FENCED]["committed"] = int(figures[FENCED]["committed"]) + int(committed.sum())
        ownerless = committed & (self.owner[self.pid] < 0)
        figures[FENCED][UNKNOWN] = int(figures[FENCED][UNKNOWN]) + int(ownerless.sum())
        if ownerless.any():
            self._note(judged.reasons[FENCED], self.coordinators.unknown_owner, ownerless)

    def _note(self, reasons: Reasons, reason: Reason, which: Flags) -> None:
        """Note some markers, at least one, as not judged."""
        log = min(np.unique(self.log[which]).tolist(), key=self._place)
        own = np.flatnonzero(which & (self.log == log))
        first = own[np.argmin(self.offset[own])]
        subject = Subject(*self._place(log), int(self.offset[first]), int(self.producer_id[first]))
        reasons.count(reason, subject, int(which.sum()))

    def _agree(self) -> tuple[Flags, Ints, list[Reason]]:
        """Whether each marker agrees with the coordinators' logs; the reason's number if it cannot be judged, or -1."""
        owner = self.owner[self.pid]
        logs = self.coordinators.logs
        incomplete = [why_incomplete(log) for log in logs]
        first = (self.coordinators.unknown_owner, HOLES, AMBIGUOUS)
        assert first[_AMBIGUOUS] is AMBIGUOUS
        reasons = [*first, *dict.fromkeys(why for why in incomplete if why is not None)]
        partial = np.array([-1 if why is None else reasons.index(why) for why in incomplete] + [0], np.int64)
        holes = np.array([partition.holes > 0 for partition in self.partitions], np.bool_)[self.log]
        why = np.where(owner < 0, 0, np.where(partial[owner] >= 0, partial[owner], np.where(holes, 1, -1)))
        reach = np.array([self.moments.reach(log) for log in logs] + [np.inf])
        later = self.stamped_ms + SKEW_MS > reach[owner]
        recent_after = self.moments.common_recent_after(logs)
        unowned = (owner < 0) & ~(self.stamped_ms + SKEW_MS > recent_after)
        decided = self.coordinators.decisions
        in_order, ambiguous = self._in_order(decided)
        in_order &= why < 0
        why = np.where((why < 0) & ambiguous, _AMBIGUOUS, why)
        by_epoch, leave = (owner >= 0) & (why >= 0) & ~later, np.zeros(len(self), np.bool_)
        if by_epoch.any():
            saw, leave = self._by_epoch(decided)
            by_epoch &= saw | leave
        left = np.where((by_epoch & leave) | unowned, why, -1)
        return in_order | by_epoch | unowned, left, reasons

    def _in_order(self, decided: Decisions) -> tuple[Flags, Flags]:
        """Whether each marker agrees with the order of its partition's transactions, and whether it is ambiguous.

        Both hold for all markers of a producer id and epoch on a partition, or for none of them. Markers agree if
        ``_Group.in_order`` finds a way to the end for them, and are ambiguous if it calls them so.
        """
        order, group = self._groups()
        transaction, log = self._with_partition(decided)
        key, known = self._keys(decided, transaction, log), self._own_keys()[order]
        by_key = stable_order(key)
        key, transaction = key[by_key], transaction[by_key]
        begin = np.flatnonzero(np.diff(group, prepend=-1))
        first, last = np.searchsorted(key, known[begin]), np.searchsorted(key, known[begin], "right")
        count, end = last - first, np.append(begin[1:], len(order))
        decisions = decided.decision[transaction].astype(np.int64)
        unreplaced = _all_between(~decided.replaced[transaction], first, last)
        starts = np.array([each.start or 0 for each in self.partitions], np.int64)[self.log[order][begin]]
        begins_ms = np.array([each.begins_ms for each in self.partitions], np.int64)
        many = (starts > 0) & (count + 1 > MOST_WAYS)
        younger = decided.decided_ms[transaction] < begins_ms[log[by_key]]
        before = np.concatenate(([0], np.cumsum(younger)))
        earlier = np.where(starts > 0, count, before[last] - before[first])

        # Nearly all groups have one marker for each transaction, from the first one that the partition can have.
        markers = end - begin
        silent = np.concatenate(([0], np.cumsum(~self.has_data[order])))
        few = earlier + silent[end] - silent[begin] < MOST_WAYS  # a marker without data may be a repetition: a way more
        skipped = np.minimum(earlier, np.maximum(count - markers, 0))
        due = (first + skipped - begin)[group] + np.arange(len(order))
        own = np.minimum(due, max(len(transaction) - 1, 0))
        plain = due < last[group]
        if len(decisions):
            plain &= (decisions[own] == self.decision[order]) | (self.decision[order] == NO_DECISION)
        fine = _all_between(plain, begin, end) & unreplaced & few
        shared = np.isin(known[begin], self._shared_keys())
        fine, many = fine | shared, many & ~shared
        for number in np.flatnonzero(~fine & unreplaced & (count > 0) & ~many).tolist():
            rows = order[begin[number] : end[number]]
            due_decisions = decisions[first[number] : last[number]]
            fine[number] = _is_a_way(due_decisions, int(earlier[number]), self.decision[rows], self.has_data[rows])
        in_order, ambiguous = np.empty(len(order), np.bool_), np.empty(len(order), np.bool_)
        in_order[order], ambiguous[order] = fine[group], many[group]
        return in_order, ambiguous

    def _groups(self) -> tuple[Ints, Ints]:
        """The markers by partition, producer id and epoch, in log order, and the number of the group of each."""
        keys = self._own_keys()
        order = stable_order(keys)
        return order, np.cumsum(np.diff(keys[order], prepend=-1) != 0) - 1

    def _with_partition(self, decided: Decisions) -> tuple[Ints, Ints]:
        """The pairs of a transaction and a log of one of its partitions, as numbers."""
        sets = decided.sets
        numbers = {self._place(number): number for number in np.unique(self.log).tolist()}
        log = np.array([numbers.get(place, NOTHING) for place in sets.places], np.int64)[sets.members]
        rows, begin = stretches(sets.begin, decided.partitions)
        transaction, log = np.repeat(np.arange(len(decided)), np.diff(begin)), log[rows]
        there = log != NOTHING
        return transaction[there], log[there]

    def _place(self, number: int) -> tuple[str, int]:
        """The topic and partition of a log."""
        log = self.partitions[number].log
        return log.topic, log.partition

    def _keys(self, decided: Decisions, transaction: Ints, log: Ints) -> Ints:
        """A number for log, producer id and marker epoch of each transaction; -1 for a producer id without markers."""
        pids = decided.producer_id[transaction]
        place = np.minimum(np.searchsorted(self.pids, pids), len(self.pids) - 1)
        key = ((log * len(self.pids) + place) << 16) + (decided.marker_epoch[transaction] & 0xFFFF)
        return np.where(self.pids[place] == pids, key, -1)

    def _shared_keys(self) -> Ints:
        """The keys of the groups of markers that other slices have, too."""
        rows = np.array([*self.shared], np.int64).reshape(-1, 3)
        place = np.minimum(np.searchsorted(self.pids, rows[:, 1]), len(self.pids) - 1)
        mine = self.pids[place] == rows[:, 1]
        keys: Ints = (((rows[:, 0] * len(self.pids) + place) << 16) + (rows[:, 2] & 0xFFFF))[mine]
        return keys

    def _own_keys(self) -> Ints:
        return ((self.log * len(self.pids) + self.pid) << 16) + (self.epoch & 0xFFFF)

    def _by_epoch(self, decided: Decisions) -> tuple[Flags, Flags]:
        """Whether each marker agrees with its epoch's only transaction, and whether its epoch has no single one."""
        second = np.flatnonzero(decided.version >= TRANSACTION_VERSION_2)
        key = self._keys(decided, second, np.zeros(len(second), np.int64))
        order = stable_order(key)
        second, key = second[order], key[order]
        known = (self.pid << 16) + (self.epoch & 0xFFFF)
        first, last = np.searchsorted(key, known), np.searchsorted(key, known, "right")
        if not len(second):
            return np.zeros(len(self), np.bool_), np.ones(len(self), np.bool_)
        own = second[np.minimum(first, len(second) - 1)]
        one = (last - first == 1) & self.has_data & (self.data_epoch == decided.data_epoch[own])
        one &= ~decided.replaced[own]
        sets = decided.sets
        of_place = {place: number for number, place in enumerate(sets.places)}
        place = np.array(
            [of_place.get(self._place(number), NOTHING) for number in range(len(self.partitions))], np.int64
        )
        member = np.repeat(np.arange(len(sets)), np.diff(sets.begin)) * len(of_place) + sets.members
        inside = np.isin(decided.partitions[own].astype(np.int64) * len(of_place) + place[self.log], member)
        inside &= place[self.log] != NOTHING
        agrees = (self.decision == NO_DECISION) | (self.decision == decided.decision[own])
        return one & inside & agrees, ~one

    def _no_older_coordinator(self) -> Flags:
        """Whether each marker's coordinator epoch is not below that of the marker before."""
        told = np.flatnonzero(self.coordinator_epoch != NO_EPOCH)
        fine = np.ones(len(self), np.bool_)
        same = (self.log[told][1:] == self.log[told][:-1]) & (self.pid[told][1:] == self.pid[told][:-1])
        fine[told[1:]] = ~same | (self.coordinator_epoch[told][1:] >= self.coordinator_epoch[told][:-1])
        return fine & (~np.isin(np.arange(len(self)), told) | (self.coordinator_epoch >= -1))

    def _not_fenced(self) -> Flags:
        """Whether each marker commits no data of an epoch below one that InitProducerId gave, or that has ended."""
        pids, epochs = self.coordinators.granted_producer_id, self.coordinators.granted_epoch
        place = np.minimum(np.searchsorted(self.pids, pids), len(self.pids) - 1)
        mine = self.pids[place] == pids
        granted = np.sort((place[mine] << 16) + epochs[mine])
        below = np.searchsorted(granted, (self.pid << 16) + np.maximum(self.data_epoch, -1), "right")
        up_to = np.searchsorted(granted, (self.pid << 16) + np.maximum(self.epoch, -1), "right")
        commits = self.has_data & (self.decision == ControlType.COMMIT)
        fine: Flags = ~(commits & ((up_to > below) | (self.epoch > self.data_epoch + 1)))
        return fine

    def _may_have_both(self, left: Flags) -> Flags:
        """The unjudged markers that end data of the epoch before, and the ABORTs that end data of their own epoch.

        And all COMMITs that end data of the epoch before, because such an ABORT may be of the same data.
        """
        ahead = self.epoch - self.data_epoch
        by_hand = (ahead == 0) & (self.decision == ControlType.ABORT)
        told: Flags = self.has_data & ((ahead == 1) | by_hand) & (self.decision != NO_DECISION)
        told &= left | (self.decision == ControlType.COMMIT)
        return told

    def _both_decisions(self, left: Flags) -> Flags:
        """The unjudged markers whose data's epoch has both a COMMIT and an ABORT among them."""
        told = self._may_have_both(left)
        key = (self.pid << 16) + (self.data_epoch & 0xFFFF)
        committed, aborted = (key[told & (self.decision == decision)] for decision in (1, 0))
        both: Flags = told & np.isin(key, np.intersect1d(committed, aborted))
        return both


def _is_a_way(due: Ints, earlier: int, decisions: Ints, has_data: Flags) -> bool:
    """Whether markers may be those of some transactions in order, by the same search as ``_Group._follow``.

    Args:
        due: the decisions of the transactions, in order; none of them was given up.
        earlier: how many of them may be older than the partition.
        decisions: the decisions of the markers, in order.
        has_data: which of them end data; a marker without data may be a repetition.
    """
    padding = bytes(MOST_WAYS // 8 + 2)
    fitting = {int(kind): due == kind for kind in ControlType} | {NO_DECISION: np.ones(len(due), np.bool_)}
    known = {kind: np.packbits(flags, bitorder="little").tobytes() + padding for kind, flags in fitting.items()}
    base, possible = 0, (1 << (earlier + 1)) - 1  # bit n: base + n transactions have a marker
    for decision, ends_data in zip(decisions.tolist(), has_data.tolist(), strict=True):
        if possible.bit_count() > MOST_WAYS:
            return False
        bits, low = known[decision], max(base - 1, 0)
        width = (possible.bit_length() + 16) // 8 + 1
        same = int.from_bytes(bits[low >> 3 : (low >> 3) + width], "little") >> (low & 7)
        ahead = same >> (base - low)  # bit n: transaction base + n has this decision
        following = (possible & ahead) << 1
        if not ends_data:
            following |= possible & (same if base else same << 1)  # bit n: the transaction before it has
        if not following:
            return False
        skipped = (following & -following).bit_length() - 1
        base, possible = base + skipped, following >> skipped
    return True


def _all_between(flags: Flags, first: Ints, last: Ints) -> Flags:
    """Whether all flags from a number up to before another one are set, for each of some pairs."""
    unset = np.concatenate(([0], np.cumsum(~flags)))
    low, high = np.minimum(first, len(flags)), np.clip(last, 0, len(flags))
    between: Flags = unset[np.maximum(high, low)] == unset[low]
    return between
