"""The rules over a log of ``__transaction_state`` by columns; the readable rule judges the steps that are not proved.

The records of a log are read chunk by chunk (:func:`states.state_rows`), and folded by transactional id: all records of
an id have to meet, in log order, and different ids never do. :func:`fold_states` looks at each record and the one
before it of the same transactional id. Steps that agree in everything that
:func:`kafka_eos_checks.audit.rules.coordinator.wrong_step` depends on are judged once, by that function. If every step
of an id is legal, or comes after a hole, then its decisions, producer ids and grants are columns of its records. Around
any other step the readable rule folds the records one by one, from a record after which earlier states do not matter to
the next such record. So the findings are the readable rule's own.

Facts of the whole log, such as the number of holes before a record, come from its chunks (:class:`LogFacts`). They do
not depend on where the log is cut.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from kafka_eos.formats.transaction_log import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTION_VERSION_2,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.internal_topics.chunks import chunk_runs
from kafka_eos_checks.audit.internal_topics.decisions import (
    COLUMNS,
    Decisions,
    PartitionSets,
    concatenate_decisions,
    stretches,
)
from kafka_eos_checks.audit.internal_topics.states import (
    TOMBSTONE,
    StateChunk,
    States,
    concatenate_states,
    places_of,
    state_rows,
)
from kafka_eos_checks.audit.rules.coordinator import (
    COMPLETED,
    EXHAUSTED_FROM,
    LAST_EPOCH,
    NOT_LED,
    PREPARED,
    CoordinatorLog,
    Led,
    StateRecord,
    Transaction,
    TransactionalId,
    finding_of,
    follow,
    precede,
    wrong_step,
)
from kafka_eos_checks.audit.segments.headers import Ints, Mask, Narrow
from kafka_eos_checks.audit.segments.order import by_appearance, stable_order
from kafka_eos_checks.audit.segments.splits import PartitionLog, plan

DECISIONS = np.full(max(TransactionState) + 2, -1, np.int32)  # by status; the last one is for a tombstone
DECISIONS[list(PREPARED)] = [int(decision) for decision in PREPARED.values()]
COMPLETIONS = np.full(max(TransactionState) + 2, -1, np.int32)
COMPLETIONS[list(COMPLETED)] = [int(decision) for decision in COMPLETED.values()]


@dataclass(frozen=True, slots=True)
class LogFacts:
    """The facts of a whole log of ``__transaction_state``, from its chunks in order.

    Attributes:
        log: the log.
        records: how many there are.
        unreadable: records whose key or value is of no known version.
        start: the first offset; None for a log without records.
        end: one past the last offset.
        holes: how many holes it has.
        damage: number of the split and position of the first region that cannot be read; None for none.
        stamped_ms: the last timestamp of a coordinator; -1 for none.
        led: see :attr:`CoordinatorLog.led`.
        chunks: by split and first byte, the holes before the chunk's first record, and the segment's file name.
    """

    log: PartitionLog
    records: int = 0
    unreadable: int = 0
    start: int | None = None
    end: int = 0
    holes: int = 0
    damage: tuple[int, int] | None = None
    stamped_ms: int = -1
    led: Led = NOT_LED
    chunks: Mapping[tuple[int, int], tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, log: PartitionLog, chunks: Iterable[StateChunk]) -> "LogFacts":
        """The facts of a log, from all its chunks, in any order; their records are not needed."""
        records = unreadable = holes = end = 0
        start: int | None = None
        stamped_ms = -1
        damage: tuple[int, int] | None = None
        led, places = NOT_LED, {}
        for chunk in sorted(chunks, key=lambda each: (each.split, each.start)):
            if chunk.records:
                holes += start is not None and chunk.first_offset != end
                start = chunk.first_offset if start is None else start
                end = chunk.end_offset
            places[chunk.split, chunk.start] = holes, chunk.segment
            holes += chunk.holes
            records += chunk.records
            unreadable += chunk.unreadable
            stamped_ms = max(stamped_ms, chunk.stamped_ms)
            led = led.then(Led(*chunk.led))
            if damage is None and chunk.damaged_at >= 0:
                damage = chunk.split, chunk.damaged_at
        return cls(log, records, unreadable, start, end, holes, damage, stamped_ms, led, places)

    def coordinator_log(self) -> CoordinatorLog:
        """The log in the form for the rules over transactions, without its transactional ids."""
        return CoordinatorLog(
            self.log,
            records=self.records,
            unreadable=self.unreadable,
            start=self.start,
            end=self.end,
            holes=self.holes,
            damaged=self.damage is not None,
            stamped_ms=self.stamped_ms,
            led=self.led,
        )

    def holes_before(self, states: States) -> Ints:
        """The number of holes of the log before each record, shape (n,)."""
        chunks, sizes = chunk_runs(states.split, states.start)
        before = np.array([self.chunks[chunk][0] for chunk in chunks], np.int64)
        return states.holes + np.repeat(before, sizes)

    def whole_before(self, states: States, holes: Ints) -> Mask:
        """Whether the log has every record that was ever written before each record, shape (n,)."""
        whole: Mask = (holes == 0) & (self.start == 0)
        if self.damage is not None:
            split, position = self.damage
            whole &= (states.split < split) | ((states.split == split) & (states.position < position))
        return whole


@dataclass(frozen=True, slots=True)
class FoldedIds:
    """Some transactional ids after all their records in a log, as columns.

    Attributes:
        names: transactional ids, shape (i,), in order of their first records.
        certain: by id, as :attr:`TransactionalId.certain`, shape (i,).
        holes: by id, as :attr:`TransactionalId.holes`, shape (i,).
        tails: by id, its last records, in log order.
        tail_start: by id, where its records begin in ``tails``, shape (i + 1,).
        decided: by id, whether :attr:`TransactionalId.current` is its tail in reverse; otherwise it follows from
            folding the tail.
        decisions: all decided transactions, by id.
        decision_start: by id, where its transactions begin in ``decisions``, shape (i + 1,).
        granted_by: the id of each grant, shape (g,).
        granted_producer_id: shape (g,).
        granted_epoch: shape (g,).
        granted_at: the offset of its record, shape (g,).
        owner: ids, shape (p,); with ``owned_producer_id`` the distinct pairs of an id and a producer id that it had.
        owned_producer_id: shape (p,).
        unknown: records whose state could not be judged.
        findings: violations, in log order.
        followed: how many records the readable rule had to judge.
        bases: by slice that is left out, the offset of its :class:`Joint`, and the number of its first transaction.
    """

    names: list[str]
    certain: Mask
    holes: Ints
    tails: States
    tail_start: Ints
    decided: Mask
    decisions: Decisions
    decision_start: Ints
    granted_by: Narrow
    granted_producer_id: Ints
    granted_epoch: Narrow
    granted_at: Ints
    owner: Narrow
    owned_producer_id: Ints
    unknown: int
    findings: list[Finding]
    followed: int
    bases: Sequence[tuple[int, int]] = ()

    def take(self, numbers: Ints) -> "FoldedIds":
        """Some of the ids, in ascending order, without findings and unknown records."""
        rank = np.full(len(self.names), -1, np.int32)
        rank[numbers] = np.arange(len(numbers))

        tails, tail_start = stretches(self.tail_start, numbers)
        decided, decision_start = stretches(self.decision_start, numbers)
        decisions = self.decisions.take(decided).with_own_sets()
        granted, owned = rank[self.granted_by] >= 0, rank[self.owner] >= 0
        names = [self.names[number] for number in numbers.tolist()]
        return FoldedIds(
            names=names,
            certain=self.certain[numbers],
            holes=self.holes[numbers],
            tails=self.tails.compact(tails),
            tail_start=tail_start,
            decided=self.decided[numbers],
            decisions=replace(decisions, transactional_id=rank[decisions.transactional_id], names=names),
            decision_start=decision_start,
            granted_by=rank[self.granted_by[granted]],
            granted_producer_id=self.granted_producer_id[granted],
            granted_epoch=self.granted_epoch[granted],
            granted_at=self.granted_at[granted],
            owner=rank[self.owner[owned]],
            owned_producer_id=self.owned_producer_id[owned],
            unknown=0,
            findings=[],
            followed=0,
        )

    def of_producer(self, producer_id: int) -> "FoldedIds":
        """The ids that had a producer id, with what is about this producer id."""
        own = self.take(np.unique(self.owner[self.owned_producer_id == producer_id]))
        granted, owned = own.granted_producer_id == producer_id, own.owned_producer_id == producer_id
        return replace(
            own.with_decisions(own.decisions.take(own.decisions.producer_id == producer_id)),
            granted_by=own.granted_by[granted],
            granted_producer_id=own.granted_producer_id[granted],
            granted_epoch=own.granted_epoch[granted],
            granted_at=own.granted_at[granted],
            owner=own.owner[owned],
            owned_producer_id=own.owned_producer_id[owned],
        )

    def with_decisions(self, decisions: Decisions) -> "FoldedIds":
        """The same ids with some of their decisions, by id."""
        begin = np.searchsorted(decisions.transactional_id, np.arange(len(self.names) + 1))
        return replace(self, decisions=decisions, decision_start=begin)

    def transactional_id(self, number: int) -> TransactionalId:
        """A transactional id after all its records, in the form of the readable rules."""
        tail = self.tails.take(slice(*self.tail_start[number : number + 2].tolist()))
        values = list(tail.values())
        current = values[::-1]
        if not self.decided[number]:
            current = []
            for value in values:
                current = precede(current, value)[1]
        granted = slice(*np.searchsorted(self.granted_by, (number, number + 1)).tolist())
        owned = slice(*np.searchsorted(self.owner, (number, number + 1)).tolist())
        pairs = self.granted_producer_id[granted].tolist(), self.granted_epoch[granted].tolist()
        first, last = self.decision_start[number : number + 2].tolist()
        return TransactionalId(
            name=self.names[number],
            last=values[-1],
            last_ms=int(tail.stamped_ms[-1]),
            last_at=int(tail.offset[-1]),
            current=current,
            certain=bool(self.certain[number]),
            holes=int(self.holes[number]),
            transactions=list(transactions(self.decisions, first, last)),
            producer_ids=set(self.owned_producer_id[owned].tolist()),
            grants=list(zip(*pairs, strict=True)),
        )


class Ids(Mapping[str, TransactionalId]):
    """The transactional ids of a log by name; each becomes an object when it is first used."""

    def __init__(self, folded: FoldedIds) -> None:
        self._folded = folded
        self._number = {name: number for number, name in enumerate(folded.names)}
        self._made: dict[str, TransactionalId] = {}

    def __getitem__(self, name: str) -> TransactionalId:
        if name not in self._made:
            self._made[name] = self._folded.transactional_id(self._number[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._number

    def __iter__(self) -> Iterator[str]:
        return iter(self._number)

    def __len__(self) -> int:
        return len(self._number)


def transactions(decisions: Decisions, first: int = 0, end: int | None = None) -> Iterator[Transaction]:
    """The transactions from one row of the columns to another."""
    some = decisions.take(slice(first, end))
    for row in zip(*(getattr(some, name).tolist() for name in COLUMNS), strict=True):
        values = dict(zip(COLUMNS, row, strict=True))
        values["transactional_id"] = some.names[values["transactional_id"]]
        values["partitions"] = some.sets[values["partitions"]]
        values["decision"] = _CONTROL_TYPES[values["decision"]]
        yield Transaction(**values)


_CONTROL_TYPES = {int(decision): decision for decision in PREPARED.values()}


def read_coordinator_log(log: PartitionLog, check_crc: bool = True) -> CoordinatorLog:
    """Fold one log of ``__transaction_state``."""
    return fold_coordinator_log(log, [chunk for split in plan([log]) for chunk in state_rows(split, check_crc)])


def fold_coordinator_log(log: PartitionLog, chunks: Sequence[StateChunk]) -> CoordinatorLog:
    """Fold all chunks of a log of ``__transaction_state``, in order."""
    facts = LogFacts.of(log, chunks)
    return log_of(facts, fold_states(concatenate_states([chunk.states for chunk in chunks]), facts))


def log_of(facts: LogFacts, folded: FoldedIds) -> CoordinatorLog:
    """A log in the form for the rules over transactions, with its transactional ids."""
    log = facts.coordinator_log()
    return replace(log, ids=Ids(folded), findings=folded.findings, unknown=folded.unknown, folded=folded)


class Joint(NamedTuple):
    """The representative of a slice of a transactional id among the other records.

    The first and the last PREPARE of the slice, each with its COMPLETE, are among these.

    Attributes:
        offset: the offset of the last PREPARE.
        decided: how many transactions between the two were decided and completed.
        producer_ids: the producer ids of the slice.
    """

    offset: int
    decided: int
    producer_ids: tuple[int, ...]


def fold_states(states: States, facts: LogFacts, joints: Sequence[Joint] = ()) -> FoldedIds:
    """Fold all records of some transactional ids of a log, in log order, except those of slices."""
    holes = facts.holes_before(states)
    return _Fold(states, facts, holes, facts.whole_before(states, holes), joints).result()


class FoldedSlice(NamedTuple):
    """A slice of a transactional id after its fold.

    Attributes:
        name: the transactional id.
        joint: the offset of its joint.
        ids: the id, with the decisions and grants of the slice; the first transaction, which is not of the slice, would
            have the number 0.
    """

    name: str
    joint: int
    ids: FoldedIds


def fold_slice(states: States, facts: LogFacts, joint: Joint) -> FoldedSlice:
    """Fold the records of a slice of one transactional id, in log order."""
    nothing_is_known = np.zeros(len(states), np.bool_)
    own = _Fold(states, facts, facts.holes_before(states), nothing_is_known).result()
    others = own.with_decisions(own.decisions.take(slice(1, None)))
    return FoldedSlice(own.names[0], joint.offset, replace(others, unknown=own.unknown - 1))


def with_slices(own: FoldedIds, slices: Sequence[FoldedSlice], bases: Mapping[int, int]) -> FoldedIds:
    """Some transactional ids with the decisions and grants of some slices of theirs.

    Args:
        own: the ids.
        slices: the slices.
        bases: by joint, the number of the slice's first transaction.
    """
    if not slices:
        return own
    number_of = {name: number for number, name in enumerate(own.names)}
    decisions, grants = [own.decisions], [own]
    for each in slices:
        rows = each.ids.decisions
        decisions.append(replace(rows, number=rows.number + np.int32(bases[each.joint]), names=[each.name]))
        grants.append(replace(each.ids, granted_by=np.full(len(each.ids.granted_by), number_of[each.name], np.int32)))
    told = concatenate_decisions([replace(decisions[0], names=own.names), *decisions[1:]])
    told = told.take(np.lexsort((told.number, told.transactional_id)))
    whole = own.with_decisions(told)
    order = np.lexsort(
        [np.concatenate([getattr(each, name) for each in grants]) for name in ("granted_at", "granted_by")]
    )
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(each, name) for each in grants])[order] for name in _GRANTS
    }
    return replace(whole, **columns)


_GRANTS = ("granted_by", "granted_producer_id", "granted_epoch", "granted_at")


def completed(decision: Narrow, completion: Narrow) -> Mask:
    """Which decisions of one transactional id are completed before the next decision.

    Args:
        decision: the decision of each of its records, -1 for others.
        completion: the decision that the record completes, -1 for others.
    """
    rows, ends = np.flatnonzero(decision >= 0), np.flatnonzero(completion >= 0)
    decided = np.searchsorted(rows, ends) - 1
    ends, decided = ends[decided >= 0], decided[decided >= 0]
    found = np.zeros(len(rows), np.bool_)
    found[decided[completion[ends] == decision[rows[decided]]]] = True
    return found


class _Fold:
    """A fold of n records; all arrays of shape (n,) are in order of id, and in log order within an id."""

    def __init__(self, states: States, facts: LogFacts, holes: Ints, whole: Mask, joints: Sequence[Joint] = ()) -> None:
        self.states, self.facts = states, facts
        count = len(states)
        numbers, place = by_appearance(states.transactional_id, len(states.names))
        self.names = [states.names[number] for number in numbers.tolist()]
        ids = place[states.transactional_id]
        self.order = stable_order(ids)
        self.ids: Narrow = ids[self.order]
        self.holes, self.whole = holes[self.order], whole[self.order]
        self.first = np.ones(count, np.bool_)
        self.first[1:] = self.ids[1:] != self.ids[:-1]
        self.begin = np.append(np.flatnonzero(self.first), count)
        self.status: Narrow = states.transaction_status[self.order]
        self.epoch: Narrow = states.producer_epoch[self.order]
        self.client: Narrow = states.client_transaction_version[self.order]
        self.producer_id: Ints = states.producer_id[self.order]
        self.sets, numbers_of = _sets(states)
        self.set: Narrow = numbers_of[states.partitions[self.order]]
        # A record after a hole, or the first record in a log that is not whole, may follow any state.
        self.fresh = self.first & ~self.whole
        self.fresh[1:] |= ~self.first[1:] & (self.holes[1:] > self.holes[:-1])
        self.joints = sorted(joints)
        self.joint = np.isin(states.offset, [joint.offset for joint in joints])[self.order]
        self.fresh &= ~self.joint  # it stands for the whole slice, whose last states are known

    def result(self) -> FoldedIds:
        """The folded ids."""
        proved = self.fresh.copy()
        rest = np.flatnonzero(~self.fresh)
        proved[rest] = self._legal(rest)
        proved |= self.joint
        completes = proved & (COMPLETIONS[self.status] >= 0) & ~self.first & ~self.fresh
        last = self.begin[1:] - 1
        certain, decided = ~self.fresh[last], np.zeros(len(last), np.bool_)
        unknown, followed = int(np.count_nonzero(self.fresh)), 0
        decision_rows, decisions = self._decisions()
        current: list[Ints] = []
        findings: list[tuple[int, Finding]] = []
        for run in self._runs(proved, completes):
            known, own, judged = self._follow(run, findings)
            unknown += judged
            followed += run.end - run.start
            first, told, end = np.searchsorted(decision_rows, (run.start, run.first, run.end)).tolist()
            decisions.data_epoch[told:end] = [each.data_epoch for each in known.transactions[told - first :]]
            if run.end == self.begin[run.number + 1]:
                certain[run.number], decided[run.number] = known.certain, True
                current.append(own)
        in_slices = np.searchsorted(decision_rows, np.flatnonzero(self.joint))  # the number of each last PREPARE
        offsets = self.states.offset[self.order[decision_rows[in_slices]]].tolist()
        bases = list(zip(offsets, decisions.number[in_slices - 1].tolist(), strict=True))
        if bases:
            decisions = decisions.take(~self.joint[decision_rows])
        in_tail = np.arange(len(self.ids)) >= np.repeat(self._tails(completes), np.diff(self.begin))
        tails = [np.flatnonzero(in_tail & ~decided[self.ids]), *current]
        rows = np.concatenate(tails)
        rows = rows[np.argsort(self.ids[rows], kind="stable")]
        numbers = np.arange(len(self.names) + 1)
        granted = np.flatnonzero((self.status == TransactionState.EMPTY) & ~self._has_epoch_before())
        owner, owned = self._owners()
        return FoldedIds(
            names=self.names,
            certain=certain,
            holes=self.holes[last],
            tails=self.states.take(self.order[rows]),
            tail_start=np.searchsorted(self.ids[rows], numbers),
            decided=decided,
            decisions=decisions,
            decision_start=np.searchsorted(decisions.transactional_id, numbers),
            granted_by=self.ids[granted],
            granted_producer_id=self.producer_id[granted],
            granted_epoch=self.epoch[granted],
            granted_at=self.states.offset[self.order[granted]],
            owner=owner,
            owned_producer_id=owned,
            unknown=unknown,
            findings=[each for _, each in sorted(findings, key=lambda placed: placed[0])],
            followed=followed,
            bases=bases,
        )

    def _has_epoch_before(self) -> Mask:
        """Whether the record before, of the same id, has the same producer id and epoch."""
        same = ~self.first
        same[1:] &= (self.epoch[1:] == self.epoch[:-1]) & (self.producer_id[1:] == self.producer_id[:-1])
        return same

    def _legal(self, rows: Ints) -> Mask:
        """Whether each of some records may follow the previous record of its id, or be its first, shape (m,)."""
        if not len(rows):
            return np.empty(0, np.bool_)
        before = np.maximum(rows - 1, 0)
        known = ~self.first[rows]
        was, now = self.set[before], self.set[rows]
        epoch, pid = self.epoch[before], self.producer_id[rows]
        place, place_before = self.order[rows], self.order[before]
        promised: Ints = self.states.next_producer_id[place_before]
        timeout = self.states.transaction_timeout_ms
        start, update = self.states.transaction_start_timestamp_ms, self.states.transaction_last_update_timestamp_ms
        previous: Ints = self.states.previous_producer_id[place]
        raised = self.epoch[rows] - epoch
        alike = np.zeros(len(rows), np.int64)
        for feature, size in (
            (np.where(known, self.status[before], TOMBSTONE) + 1, len(DECISIONS)),
            (self.status[rows] + 1, len(DECISIONS)),
            (np.clip(self.client[rows], -1, TRANSACTION_VERSION_2) + 1, TRANSACTION_VERSION_2 + 2),
            (np.where((raised == 0) | (raised == 1), raised, 2), 3),
            (np.clip(epoch - EXHAUSTED_FROM + 1, 0, LAST_EPOCH - EXHAUSTED_FROM + 1), LAST_EPOCH - EXHAUSTED_FROM + 2),
            (self.epoch[rows] == 0, 2),
            (pid == self.producer_id[before], 2),
            (promised >= 0, 2),
            (promised == pid, 2),
            ((previous == NO_PRODUCER_ID) | (previous == self.producer_id[before]), 2),
            (self.states.next_producer_id[place] == NO_PRODUCER_ID, 2),
            (self.states.next_producer_epoch[place] == NO_PRODUCER_EPOCH, 2),
            (timeout[place] == timeout[place_before], 2),
            (start[place] == NO_TIMESTAMP, 2),
            (start[place] == start[place_before], 2),
            (start[place] == update[place], 2),
            (was == now, 2),
            (now == self.sets[_NOTHING], 2),
            (self._within(was, now), 2),
        ):
            alike *= size
            alike += feature
        classes, first, numbers = np.unique(alike, return_index=True, return_inverse=True)
        del classes
        legal = np.array([not wrong_step(*self._step(row)) for row in rows[first].tolist()], np.bool_)
        return legal[numbers]

    def _within(self, was: Narrow, now: Narrow) -> Mask:
        """Whether each first set of partitions is a subset of the second one, shape (m,)."""
        within: Mask = (was == now) | (was == self.sets[_NOTHING])
        count = len(self.sets)
        open_rows = np.flatnonzero(~within & (now != self.sets[_NOTHING]) & (was >= 0) & (now >= 0))
        pairs, numbers = np.unique(was[open_rows].astype(np.int64) * count + now[open_rows], return_inverse=True)
        sets = list(self.sets)
        told = np.array([sets[pair // count] <= sets[pair % count] for pair in pairs.tolist()], np.bool_)
        within[open_rows] = told[numbers]
        return within

    def _step(self, row: int) -> tuple[TransactionLogValue | None, TransactionLogValue | None]:
        """A record's value, and the one before it."""
        values = self.states.take(self.order[max(row - 1, 0) : row + 1]).values()
        *before, after = values
        return (before[0] if before and not self.first[row] else None), after

    def _decisions(self) -> tuple[Ints, Decisions]:
        """The decisions and their records. The data epoch may differ where the readable rule decides."""
        decision = DECISIONS[self.status]
        completion = COMPLETIONS[self.status]
        rows = np.flatnonzero(decision >= 0)
        decision = decision[rows]
        ids = self.ids[rows]
        # Whether the next record that is no tombstone completes it, and whether any does before the next decision.
        real = np.append(np.flatnonzero(self.status != TOMBSTONE), len(self.ids))
        following = real[np.searchsorted(real, rows) + 1]
        there = following < self.begin[ids + 1]
        completes = np.zeros(len(rows), np.bool_)
        completes[there] = completion[following[there]] == decision[there]
        own = completes.copy()
        for column in (self.producer_id, self.epoch):
            own[there] &= column[following[there]] == column[rows[there]]
        completed_ms = np.full(len(rows), -1, np.int64)
        completed_ms[own] = self.states.stamped_ms[self.order[following[own]]]
        completed = completes.copy()
        ends = np.flatnonzero(completion >= 0)
        decided = np.searchsorted(rows, ends) - 1
        ends, decided = ends[decided >= 0], decided[decided >= 0]
        same = (self.ids[ends] == ids[decided]) & (completion[ends] == decision[decided])
        completed[decided[same]] = True
        before: Ints = np.cumsum(completed) - completed
        first = np.searchsorted(ids, ids)
        bumps = self.client[rows] >= TRANSACTION_VERSION_2
        follows = ~self.fresh[rows] & ~self.first[rows]
        data_epoch = np.where(follows, self.epoch[np.maximum(rows - 1, 0)], self.epoch[rows] - bumps)
        decisions = Decisions(
            transactional_id=ids,
            number=(before - before[first] + self._left_out(rows)).astype(np.int32),
            offset=self.states.offset[self.order[rows]],
            producer_id=self.producer_id[rows],
            data_epoch=data_epoch.astype(np.int32),
            marker_epoch=self.epoch[rows],
            version=self.client[rows],
            decision=decision,
            partitions=self.set[rows],
            decided_ms=self.states.transaction_last_update_timestamp_ms[self.order[rows]],
            started_ms=self.states.transaction_start_timestamp_ms[self.order[rows]],
            completed=completed,
            replaced=there & ~completes,
            completed_ms=completed_ms,
            names=self.names,
            sets=PartitionSets.of(self.sets),
        )
        return rows, decisions

    def _in_order(self) -> list[Joint]:
        """The joints in the order of their records."""
        of_offset = {joint.offset: joint for joint in self.joints}
        return [of_offset[offset] for offset in self.states.offset[self.order[self.joint]].tolist()]

    def _left_out(self, rows: Ints) -> Ints | int:
        """How many transactions of slices come before each of some records of its id."""
        if not self.joints:
            return 0
        count = np.zeros(len(self.ids) + 1, np.int64)
        places = np.flatnonzero(self.joint)
        count[places + 1] = [joint.decided for joint in self._in_order()]
        before = np.cumsum(count)
        left_out: Ints = before[rows + 1] - before[self.begin[self.ids[rows]]]
        return left_out

    def _tails(self, completes: Mask) -> Ints:
        """The first record of each id that its current states at the end depend on, shape (i,).

        After a hole any state may follow, so the states before it do not matter. Nor do the states before a PREPARE
        that is completed: only PREPARE precedes COMPLETE, and only COMPLETE follows PREPARE.
        """
        rows = np.arange(len(self.ids))
        marks = np.where(self.first | self.fresh, rows, np.where(completes, rows - 1, 0))
        tails: Ints = np.maximum.accumulate(marks)[self.begin[1:] - 1] if len(rows) else rows
        return tails

    def _runs(self, proved: Mask, completes: Mask) -> Iterator["_Run"]:
        """The runs of records that the readable rule has to judge.

        A run begins and ends at records that do not depend on earlier states: records after a hole, and COMPLETE right
        after its PREPARE, because no other state may precede COMPLETE.
        """
        wrong = np.flatnonzero(~proved)
        known = np.flatnonzero(self.fresh | completes)
        number = self.ids[wrong]
        place = np.searchsorted(known, wrong)
        before = np.where(place > 0, np.append(known, -1)[place - 1], -1)
        behind = np.append(known, len(self.ids))[place]
        first = np.maximum(before + 1, self.begin[number])
        there = before >= self.begin[number]
        start = np.where(there, before - completes[np.maximum(before, 0)], first)
        end = np.minimum(behind, self.begin[number + 1])
        runs, which = np.unique(first, return_index=True)
        columns = (number[which], start[which], runs, end[which])
        for row in zip(*(column.tolist() for column in columns), strict=True):
            yield _Run(*row)

    def _owners(self) -> tuple[Narrow, Ints]:
        """The distinct pairs of an id and a producer id, in order."""
        real = np.flatnonzero(self.status != TOMBSTONE)
        ids, pids = self.ids[real], self.producer_id[real]
        for joint, place in zip(self._in_order(), np.flatnonzero(self.joint).tolist(), strict=True):
            ids = np.append(ids, np.full(len(joint.producer_ids), self.ids[place], ids.dtype))
            pids = np.append(pids, joint.producer_ids)
        changed = np.ones(len(ids), np.bool_)
        changed[1:] = (ids[1:] != ids[:-1]) | (pids[1:] != pids[:-1])
        ids, pids = ids[changed], pids[changed]
        order = np.lexsort((pids, ids))
        ids, pids = ids[order], pids[order]
        distinct = np.ones(len(ids), np.bool_)
        distinct[1:] = (ids[1:] != ids[:-1]) | (pids[1:] != pids[:-1])
        return ids[distinct], pids[distinct]

    def _follow(self, run: "_Run", findings: list[tuple[int, Finding]]) -> tuple[TransactionalId, Ints, int]:
        """Fold a run by the readable rule; return the id's state, the rows of its current states, the unknown count."""
        part = slice(run.start, run.end)
        rows = self.order[part]
        own = self.states.take(rows)
        whole = run.start == self.begin[run.number] and bool(self.whole[run.start])
        known = TransactionalId.begin(self.names[run.number], int(self.holes[run.start]), whole)
        place: dict[int, int] = {}
        unknown = 0
        columns = (self.holes[part], own.split, own.start, own.position, own.offset, own.stamped_ms)
        values = list(own.values())
        told = zip(*(column.tolist() for column in columns), values, strict=True)
        for row, (holes, split, start, position, offset, stamped_ms, value) in enumerate(told, run.start):
            place[id(value)] = row
            violation = follow(known, value, holes)
            if row < run.first:
                continue
            unknown += not known.certain
            if violation is not None:
                file = self.facts.chunks[split, start][1]
                record = StateRecord(file, position, offset, stamped_ms, known.name, value)
                findings.append((int(self.order[row]), finding_of(self.facts.log, record, violation)))
        current = [place[id(value)] for value in known.current[::-1]]
        return known, np.array(current, np.int64), unknown


class _Run(NamedTuple):
    """Records of one transactional id, as numbers of rows.

    Attributes:
        number: the number of the id.
        start: the row from which on its states are known.
        first: the first record to judge; records before it are only needed for the states.
        end: one past the last row.
    """

    number: int
    start: int
    first: int
    end: int


_NOTHING: frozenset[tuple[str, int]] = frozenset()


def _sets(states: States) -> tuple[dict[frozenset[tuple[str, int]], int], Narrow]:
    """The sets of partitions with their numbers, and the number of each list; the last one is a tombstone's, -1."""
    sets = {_NOTHING: 0}
    numbers = [sets.setdefault(places_of(*each), len(sets)) for each in states.lists]
    return sets, np.array([*numbers, -1], np.int32)
