"""The anomalies of Jepsen's workload for Kafka, as Jepsen defines them.

Each key has an *order*: the values by offset, of all polls and of all sends that must have happened. A send must have
happened if it is ``ok``, or if its outcome is unknown and an ``ok`` operation was given a value of it. Offsets that no
operation names do not count, so a value "between" two others is always one that some client knows.

``:G1a``
    An ``ok`` operation was given a value whose send ``fail``ed (an aborted read); each value once.
``:lost-write``
    A value that must have been sent and that no ``ok`` operation was given, although one was given a value at or after
    its last offset.
``:unseen``
    Values that were acknowledged and that no ``ok`` operation was given; each key once. They are to be expected in a
    history that does not end with polls up to the end of every key.
``:duplicate``
    A value at several offsets of its key.
``:inconsistent-offsets``
    Several values at one offset of a key.
``:precommitted-read``
    A transaction was given a value that it sent itself.
``:poll-skip``, ``:nonmonotonic-poll``
    Between two operations of a process that read a key: the first value of the later operation does not directly follow
    the last value of the earlier one (a skip), or does not come after it (non-monotonic). Only an ``ok`` operation
    changes a process's position. After ``:assign`` or ``:subscribe`` a process has no position in keys that these do
    not name. Both anomalies are allowed in a history with ``:subscribe``, because a rebalance may come between two
    operations.
``:int-poll-skip``, ``:int-nonmonotonic-poll``
    The same between two values of one operation, except for keys that were rebalanced meanwhile.
``:nonmonotonic-send``, ``:int-nonmonotonic-send``
    The later of two sends of a process to a key has no higher place in the order than the earlier one; ``int``: of two
    sends in one operation.
``:int-send-skip``
    Other values lie between two sends of an operation to a key. Allowed: transactions may write at the same time.
``:G1c``, ``:G1c-process``, ``:G1c-realtime``
    A cycle of operations each of which was given a value that the one before it sent. In ``-process`` and ``-realtime``
    some of them only came after the one before in the same process, or in time.
``:G0``, ``G1c by order``
    Cycles in which some operations wrote the value right after one of the operation before. Allowed: nothing isolates
    writes from each other.

If Jepsen reports every reader or every value of the same anomaly, there is one finding here with the first of them. A
value that an operation was given and nobody sent is counted as unknown; Jepsen's checker stops there. After an
``:assign`` with ``:seek-to-beginning? true`` a process has no position in any key; Jepsen's checker has no rule for it,
because its clients are new ones then. ``:G0-process`` and ``:G0-realtime``, which Jepsen allows, are not searched for.

Every rule takes one pass over the operations, or over the offsets of a key in their order.

Source: jepsen.tests.kafka, version 0.3; elle.core for the order of processes and of time
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import NamedTuple, Self

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.jepsen.cycles import cycles
from kafka_eos_checks.audit.jepsen.operations import (
    ASSIGNMENTS,
    FAIL,
    INFO,
    OK,
    SUBSCRIBE,
    Key,
    Operation,
    Pairs,
    Value,
)
from kafka_eos_checks.audit.quoting import quoted

ABORTED_READ, LOST_WRITE, UNSEEN, DUPLICATE = ":G1a", ":lost-write", ":unseen", ":duplicate"
INCONSISTENT, PRECOMMITTED = ":inconsistent-offsets", ":precommitted-read"
POLL_SKIP, BACKWARD_POLL = ":poll-skip", ":nonmonotonic-poll"
INNER_POLL_SKIP, INNER_BACKWARD_POLL = ":int-poll-skip", ":int-nonmonotonic-poll"
BACKWARD_SEND, INNER_BACKWARD_SEND, INNER_SEND_SKIP = ":nonmonotonic-send", ":int-nonmonotonic-send", ":int-send-skip"
READ_CYCLE, PROCESS_CYCLE, TIME_CYCLE = ":G1c", ":G1c-process", ":G1c-realtime"
WRITE_CYCLE, ORDER_CYCLE = ":G0", "G1c by order"
ANOMALIES = (
    ABORTED_READ,
    LOST_WRITE,
    UNSEEN,
    DUPLICATE,
    INCONSISTENT,
    PRECOMMITTED,
    POLL_SKIP,
    BACKWARD_POLL,
    INNER_POLL_SKIP,
    INNER_BACKWARD_POLL,
    BACKWARD_SEND,
    INNER_BACKWARD_SEND,
    INNER_SEND_SKIP,
    READ_CYCLE,
    PROCESS_CYCLE,
    TIME_CYCLE,
    WRITE_CYCLE,
    ORDER_CYCLE,
)
_ALLOWED = frozenset({INNER_SEND_SKIP, WRITE_CYCLE, ORDER_CYCLE})
_ALLOWED_WITH_SUBSCRIBE = frozenset({POLL_SKIP, BACKWARD_POLL})
Step = tuple[int, int]  # from one operation to another, each by the place of its completion

NO_PROOFS: Mapping[int, str] = {}
_SHOWN = 3  # of values that were skipped


def allowed(subscribes: bool) -> frozenset[str]:
    """The anomalies that Jepsen does not report as errors; more are allowed in a history with ``:subscribe``."""
    return _ALLOWED | _ALLOWED_WITH_SUBSCRIBE if subscribes else _ALLOWED


def subscribes(operations: Iterable[Operation]) -> bool:
    """Whether a history has a ``:subscribe``."""
    return any(operation.kind == SUBSCRIBE for operation in operations)


def anomalies(operations: Sequence[Operation], run: str) -> tuple[list[Finding], dict[str, int | float | str]]:
    """All anomalies of a history, and figures; values that nobody sent are ``unknown``.

    Args:
        operations: the completed operations, in their order.
        run: the name of the history.
    """
    analysis = Analysis.of(operations, run)
    findings = [*analysis.of_keys(), *analysis.cycles()]
    figures: dict[str, int | float | str] = {"operations": len(operations), **analysis.figures()}
    return findings, figures


def _each(pairs: Pairs) -> Iterator[tuple[Key, Value]]:
    return ((key, value) for key, own in pairs.items() for _, value in own)


@dataclass(frozen=True, slots=True)
class _Order:
    """The known part of the log of a key; an *index* counts the offsets that some operation names.

    Attributes:
        offsets: the offset of each index.
        values: by index, the first value that an operation names.
        more: by index, all values, if there are several.
        index: by value, the last index that has it as its first value.
        first: by value, the first index.
        last: by value, the last index.
    """

    offsets: list[int]
    values: list[Value]
    more: dict[int, list[Value]]
    index: dict[Value, int]
    first: dict[Value, int]
    last: dict[Value, int]

    @classmethod
    def of(cls, told: dict[int, Value], conflicts: dict[int, dict[Value, None]]) -> Self:
        """Make an order of the value of each offset, and of all values of offsets with several."""
        offsets = sorted(told)
        values = [told[offset] for offset in offsets]
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        more: dict[int, list[Value]] = {}
        for index, offset in enumerate(offsets):
            own = list(conflicts.get(offset, ())) or [values[index]]
            if len(own) > 1:
                more[index] = own
            for value in own:
                first.setdefault(value, index)
                last[value] = index
        return cls(offsets, values, more, {value: index for index, value in enumerate(values)}, first, last)

    def at(self, value: Value) -> str:
        """A value with its offset, in words."""
        index = self.index.get(value, self.last.get(value))
        return quoted(value) if index is None else f"{quoted(value)} (offset {self.offsets[index]})"

    def delta(self, earlier: Value, later: Value) -> int:
        """The distance from a value to a later one; 1, which is no anomaly, if it is not known."""
        one, other = self.index.get(earlier), self.index.get(later)
        return 1 if one is None or other is None else other - one

    def between(self, earlier: Value, later: Value) -> str:
        """The values between two others, in words."""
        start, end = self.index[earlier] + 1, self.index[later]
        shown = ", ".join(self.at(value) for value in self.values[start : min(end, start + _SHOWN)])
        return shown if end - start <= _SHOWN else f"{shown} and {end - start - _SHOWN} more"


_NOTHING = _Order([], [], {}, {}, {}, {})


class Why(NamedTuple):
    """The reason why an operation comes after another one: it was given its value, or wrote the next value of its key.

    Attributes:
        by_order: whether it only wrote the next value.
        place: the place of the key in the operation, and of the value among those of the key, from 0.
        key: the key.
        words: the reason in words.
    """

    by_order: bool
    place: tuple[int, int]
    key: Key
    words: str


@dataclass(frozen=True, slots=True)
class Analysis:
    """A history, prepared for the rules.

    Attributes:
        operations: the completed operations.
        run: the name of the history.
        writer: by key and value, the operation that sent it.
        reader: by key and value, the first ``ok`` operation that was given it.
        orders: the orders by key.
        proofs: why an operation of unknown outcome happened, by the place of its completion; in words.
    """

    operations: Sequence[Operation]
    run: str
    writer: dict[Key, dict[Value, Operation]]
    reader: dict[Key, dict[Value, Operation]]
    orders: dict[Key, _Order]
    proofs: Mapping[int, str]

    @classmethod
    def of(cls, operations: Sequence[Operation], run: str, known: Mapping[int, str] = NO_PROOFS) -> Self:
        """Prepare a history in two passes: first the writers and readers of each value, then the orders.

        Args:
            operations: the completed operations, in their order.
            run: the name of the history.
            known: proofs that operations of unknown outcome happened, besides those that the operations give.
        """
        writer: dict[Key, dict[Value, Operation]] = defaultdict(dict)
        reader: dict[Key, dict[Value, Operation]] = defaultdict(dict)
        for operation in operations:
            for key, value in _each(operation.sends):
                writer[key][value] = operation
            if operation.outcome == OK:
                for key, value in _each(operation.polls):
                    reader[key].setdefault(value, operation)
        proofs = dict(known)
        for operation in operations:
            if operation.ended not in proofs and (found := happened(operation, reader)) is not None:
                proofs[operation.ended] = found
        told: dict[Key, dict[int, Value]] = defaultdict(dict)
        conflicts: dict[Key, dict[int, dict[Value, None]]] = defaultdict(dict)
        for operation in operations:
            for pairs in _tells(operation, proofs):
                for key, own in pairs.items():
                    log = told[key]
                    for offset, value in own:
                        if offset is not None and (before := log.setdefault(offset, value)) != value:
                            conflicts[key].setdefault(offset, {before: None})[value] = None
        orders = {key: _Order.of(log, conflicts[key]) for key, log in told.items()}
        return cls(operations, run, dict(writer), dict(reader), orders, proofs)

    def of_keys(self) -> Iterator[Finding]:
        """All anomalies except cycles: each rule looks at one key at a time."""
        rules: tuple[Callable[[], Iterator[Finding]], ...] = (
            self.aborted_reads,
            self.lost_writes,
            self.unseen,
            self.duplicates_and_conflicts,
            self.precommitted_reads,
            self.polls,
            self.inner_polls,
            self.sends,
            self.inner_sends,
        )
        return (finding for rule in rules for finding in rule())

    def figures(self) -> dict[str, int]:
        """The numbers of values that were sent and given, and of given ones that nobody sent."""
        given = {(key, value) for operation in self.operations for key, value in _each(operation.polls)}
        return {
            "sent": sum(map(len, self.writer.values())),
            "given": len(given),
            "unknown": sum(value not in self.writer.get(key, {}) for key, value in given),
        }

    def _finding(self, rule: str, key: Key, evidence: str, offset: int | None = None) -> Finding:
        return Finding(rule=rule, topic=f"key {key}", partition=-1, offset=offset, run=self.run, evidence=evidence)

    def _order(self, key: Key) -> _Order:
        return self.orders.get(key, _NOTHING)

    def _offset(self, key: Key, value: Value) -> int | None:
        order = self._order(key)
        return order.offsets[order.first[value]] if value in order.first else None

    # --- values ------------------------------------------------------------------------------------------------------

    def aborted_reads(self) -> Iterator[Finding]:
        """``:G1a``."""
        for key, own in self.reader.items():
            for value, reader in own.items():
                writer = self.writer.get(key, {}).get(value)
                if writer is not None and writer.outcome == FAIL:
                    evidence = f"{reader} was given {quoted(value)}, and the send of {writer} failed"
                    yield self._finding(ABORTED_READ, key, evidence, self._offset(key, value))

    def lost_writes(self) -> Iterator[Finding]:
        """``:lost-write``, from each key's end to its beginning; evidence is the next later value that was read."""
        for key, read in self.reader.items():
            order, found = self._order(key), []
            bound = max((order.first[value] for value in read if value in order.first), default=-1)
            proof: Value = None
            for index in range(bound, -1, -1):
                own = order.more.get(index) or [order.values[index]]
                proof = next((value for value in own if value in read and order.first[value] == index), proof)
                for value in own:
                    writer = self.writer.get(key, {}).get(value)
                    if order.last[value] != index or value in read or writer is None:
                        continue
                    if (known := self._must_have_happened(writer)) is not None:
                        evidence = f"{writer} sent {order.at(value)}{known}, and no operation that is ok was given it; "
                        evidence += f"{read[proof]} was given {order.at(proof)}"
                        found.append(self._finding(LOST_WRITE, key, evidence, order.offsets[order.first[value]]))
            yield from reversed(found)

    def _must_have_happened(self, writer: Operation) -> str | None:
        """The proof that a send happened, "" if it was acknowledged; None without a proof."""
        return "" if writer.outcome == OK else self.proofs.get(writer.ended)

    def unseen(self) -> Iterator[Finding]:
        """``:unseen``."""
        for key, own in self.writer.items():
            read = self.reader.get(key, {})
            values = [value for value, writer in own.items() if writer.outcome == OK and value not in read]
            if values:
                order = self._order(key)
                more = f" and {len(values) - 1} more" if len(values) > 1 else ""
                evidence = f"{own[values[0]]} sent {order.at(values[0])}, which no operation that is ok was given{more}"
                yield self._finding(UNSEEN, key, evidence, self._offset(key, values[0]))

    def duplicates_and_conflicts(self) -> Iterator[Finding]:
        """``:duplicate`` and ``:inconsistent-offsets``."""
        duplicates: dict[tuple[Key, Value], list[int]] = {}
        conflicts: dict[tuple[Key, int], list[Value]] = {}
        for key, order in self.orders.items():
            twice = {value for value, index in order.first.items() if order.last[value] != index}
            conflicts |= {(key, order.offsets[index]): own for index, own in order.more.items()}
            for index, offset in enumerate(order.offsets) if twice else ():
                for value in order.more.get(index) or [order.values[index]]:
                    if value in twice:
                        duplicates.setdefault((key, value), []).append(offset)
        places = {(key, offset, value) for (key, value), offsets in duplicates.items() for offset in offsets}
        places |= {(key, offset, value) for (key, offset), own in conflicts.items() for value in own}
        told = self._told(places)
        for (key, value), offsets in duplicates.items():
            where = " and ".join(f"offset {offset} ({told[key, offset, value]})" for offset in offsets[:_SHOWN])
            more = f" and {len(offsets) - _SHOWN} more" if len(offsets) > _SHOWN else ""
            yield self._finding(DUPLICATE, key, f"{quoted(value)} is at {where}{more}", offsets[1])
        for (key, offset), own in conflicts.items():
            what = " and ".join(f"{quoted(value)} ({told[key, offset, value]})" for value in own[:_SHOWN])
            more = f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
            yield self._finding(INCONSISTENT, key, f"at the offset is {what}{more}", offset)

    def _told(self, places: set[tuple[Key, int, Value]]) -> dict[tuple[Key, int, Value], str]:
        """The first operation that names a value at an offset, in words."""
        found: dict[tuple[Key, int, Value], str] = {}
        for operation in self.operations if places else ():
            for pairs in _tells(operation, self.proofs):
                verb = "sent by" if pairs is operation.sends else "given to"
                for key, own in pairs.items():
                    for offset, value in own:
                        if offset is not None and (key, offset, value) in places:
                            found.setdefault((key, offset, value), f"{verb} {operation}")
        return found

    def precommitted_reads(self) -> Iterator[Finding]:
        """``:precommitted-read``."""
        for operation in self.operations:
            for key in operation.sends.keys() & operation.polls.keys():
                given = {value for _, value in operation.polls[key]}
                own = next((value for _, value in operation.sends[key] if value in given), None)
                if own is not None:
                    evidence = f"{operation} was given {quoted(own)}, which it sent itself"
                    yield self._finding(PRECOMMITTED, key, evidence, self._offset(key, own))

    # --- the order of polls and sends --------------------------------------------------------------------------------

    def polls(self) -> Iterator[Finding]:
        """``:poll-skip`` and ``:nonmonotonic-poll``."""
        before: dict[object, dict[Key, Operation]] = defaultdict(dict)
        for operation in self.operations:
            last = before[operation.process]
            if operation.kind in ASSIGNMENTS:
                if operation.outcome != FAIL:
                    kept = frozenset() if operation.from_start else operation.keys
                    before[operation.process] = {key: each for key, each in last.items() if key in kept}
                continue
            for key, own in operation.polls.items():
                if key in last and own and last[key].polls[key]:
                    earlier, later = last[key].polls[key][-1][1], own[0][1]
                    words = f"{last[key]} ended with", f", and {operation} began with"
                    yield from self._step(key, earlier, later, (POLL_SKIP, BACKWARD_POLL), words)
                if operation.outcome == OK:
                    last[key] = operation

    def inner_polls(self) -> Iterator[Finding]:
        """``:int-poll-skip`` and ``:int-nonmonotonic-poll``."""
        rules = INNER_POLL_SKIP, INNER_BACKWARD_POLL
        for operation in self.operations:
            for key, own in operation.polls.items():
                if key not in operation.rebalanced:
                    for (_, earlier), (_, later) in pairwise(own):
                        yield from self._step(key, earlier, later, rules, (f"{operation} was given", " and then"))

    def sends(self) -> Iterator[Finding]:
        """``:nonmonotonic-send``."""
        before: dict[object, dict[Key, Operation]] = defaultdict(dict)
        for operation in self.operations:
            last = before[operation.process]
            if operation.outcome == FAIL:
                continue
            if operation.kind in ASSIGNMENTS:
                before[operation.process] = {key: each for key, each in last.items() if key in operation.keys}
                continue
            for key, own in operation.sends.items():
                if key in last:
                    earlier, later = last[key].sends[key][-1][1], own[0][1]
                    words = f"{last[key]} ended with the send of", f", and {operation} began with that of"
                    yield from self._step(key, earlier, later, ("", BACKWARD_SEND), words)
                last[key] = operation

    def inner_sends(self) -> Iterator[Finding]:
        """``:int-nonmonotonic-send`` and ``:int-send-skip``."""
        rules = INNER_SEND_SKIP, INNER_BACKWARD_SEND
        for operation in self.operations:
            for key, own in operation.sends.items():
                for (_, earlier), (_, later) in pairwise(own):
                    yield from self._step(key, earlier, later, rules, (f"{operation} sent", " and then"))

    def _step(
        self, key: Key, earlier: Value, later: Value, rules: tuple[str, str], words: tuple[str, str]
    ) -> Iterator[Finding]:
        """Judge a step from a value to another: over other values (the first rule), or not forward (the second)."""
        order = self._order(key)
        delta = order.delta(earlier, later)
        if delta == 1:
            return
        rule = rules[delta < 1]
        way = f"{words[0]} {order.at(earlier)}{words[1]} {order.at(later)}"
        if delta < 1:
            yield self._finding(rule, key, f"{way}, which is not after it", order.offsets[order.index[later]])
        elif rule:
            skipped = order.offsets[order.index[earlier] + 1]
            yield self._finding(rule, key, f"{way}, over {order.between(earlier, later)}", skipped)

    # --- cycles ------------------------------------------------------------------------------------------------------

    def cycles(self) -> Iterator[Finding]:
        """``:G1c`` and ``:G0``, with their variants by process and by time."""
        found = cycles_of(self.operations, self.given(), self.behind())
        reasons = first_reasons(self.reasons({step for _, cycle in found for step in steps_of(cycle)}))
        return (cycle_finding(rule, cycle, reasons, self.run) for rule, cycle in found)

    def given(self) -> set[Step]:
        """The steps from the sender of a value to each operation that was given it."""
        return {
            (writer.ended, operation.ended)
            for operation in self.operations
            for key, value in _each(operation.polls)
            if (writer := self.writer.get(key, {}).get(value)) is not None and writer is not operation
        }

    def behind(self) -> set[Step]:
        """The steps from the sender of a value to the sender of the next value of its key."""
        steps = set()
        for key, order in self.orders.items():
            writer = self.writer.get(key, {})
            for index, (earlier, later) in enumerate(pairwise(order.values), start=1):
                if order.index[later] == index and earlier in writer and later in writer:
                    one, other = writer[earlier], writer[later]
                    if one is not other:
                        steps.add((one.ended, other.ended))
        return steps

    def reasons(self, among: Container[Step]) -> Iterator[tuple[Step, Why]]:
        """The reasons of some steps: why one operation comes after another."""
        for operation in self.operations:
            for place, (key, own) in enumerate(operation.polls.items()):
                for number, (_, value) in enumerate(own):
                    one = self.writer.get(key, {}).get(value)
                    if one is not None and (step := (one.ended, operation.ended)) in among:
                        words = f"{operation} was given {quoted(value)} of key {key}, sent by {one}"
                        yield step, Why(False, (place, number), key, words)
            for place, (key, own) in enumerate(operation.sends.items()):
                order = self._order(key)
                for number, (_, value) in enumerate(own):
                    index = order.index.get(value, 0)
                    one = self.writer[key].get(order.values[index - 1]) if index else None
                    if one is not None and (step := (one.ended, operation.ended)) in among:
                        before = quoted(order.values[index - 1])
                        words = f"{operation} sent {quoted(value)} to key {key} right after {before} of {one}"
                        yield step, Why(True, (place, number), key, words)


def first_reasons(reasons: Iterable[tuple[Step, Why]]) -> dict[tuple[Step, bool], Why]:
    """By step, and whether only by order, the reason that comes first in the later operation."""
    first: dict[tuple[Step, bool], Why] = {}
    for step, why in reasons:
        known = first.get((step, why.by_order))
        if known is None or why.place < known.place:
            first[step, why.by_order] = why
    return first


def steps_of(cycle: Sequence[Operation]) -> list[Step]:
    """The steps of a cycle, each by the places of the completion of its two operations."""
    return [(one.ended, other.ended) for one, other in pairwise([*cycle, cycle[0]])]


def cycle_finding(rule: str, cycle: Sequence[Operation], reasons: Mapping[tuple[Step, bool], Why], run: str) -> Finding:
    """The finding of a cycle, at the key of its first step that has one."""
    words: list[str] = []
    keys: list[Key] = []
    for one, other in pairwise([*cycle, cycle[0]]):
        why = reasons.get(((one.ended, other.ended), False))
        if why is None and rule in {WRITE_CYCLE, ORDER_CYCLE}:
            why = reasons.get(((one.ended, other.ended), True))
        if why is not None:
            words.append(why.words)
            keys.append(why.key)
        else:
            same = one.process == other.process
            words.append(f"{other} came after {one}" if same else f"{other} began when {one} was over")
    return Finding(rule=rule, topic=f"key {keys[0]}", partition=-1, run=run, evidence="; ".join(words))


def cycles_of(
    operations: Sequence[Operation], given: Iterable[Step], behind: Iterable[Step]
) -> list[tuple[str, list[Operation]]]:
    """The cycles among the operations of a stretch of a history, each with its rule.

    Args:
        operations: the operations of the stretch, in their order.
        given: steps from the sender of a value to each operation that was given it.
        behind: steps from the sender of a value to the sender of the next value of its key.
    """
    return list(_Graph(operations).cycles(given, behind))


@dataclass(frozen=True, slots=True)
class _Graph:
    """Operations as nodes, in their order, and after them a node for the end of each ``ok`` operation."""

    operations: Sequence[Operation]

    def cycles(self, given: Iterable[Step], behind: Iterable[Step]) -> Iterator[tuple[str, list[Operation]]]:
        reads, in_process, in_time = self._edges(given), self._in_process(), self._in_time()
        if any(True for _ in cycles(_joined(reads, _joined(in_process, in_time)), self._is_moment)):
            in_process, timed = _joined(reads, in_process), _joined(reads, in_time)
            for rule, edges in ((READ_CYCLE, reads), (PROCESS_CYCLE, in_process), (TIME_CYCLE, timed)):
                for found in cycles(edges, self._is_moment):
                    cycle = [node for node in found if not self._is_moment(node)]
                    if rule == READ_CYCLE or not _all_in(_steps(cycle), reads):
                        yield rule, [self.operations[node] for node in cycle]
        writes = self._edges(behind)
        for rule, edges in ((WRITE_CYCLE, writes), (ORDER_CYCLE, _joined(reads, writes))):
            for cycle in cycles(edges):
                steps = _steps(cycle)
                if rule == WRITE_CYCLE or not (_all_in(steps, reads) or _all_in(steps, writes)):
                    yield rule, [self.operations[node] for node in cycle]

    def _is_moment(self, node: int) -> bool:
        return node >= len(self.operations)

    def _edges(self, steps: Iterable[Step]) -> list[list[int]]:
        """The steps by node, sorted."""
        number = {operation.ended: node for node, operation in enumerate(self.operations)}
        edges: list[list[int]] = [[] for _ in self.operations]
        for one, other in sorted((number[one], number[other]) for one, other in steps):
            edges[one].append(other)
        return edges

    def _in_process(self) -> list[list[int]]:
        """The steps from each ``ok`` operation to the next one of its process."""
        edges: list[list[int]] = [[] for _ in self.operations]
        before: dict[object, int] = {}
        for node, operation in enumerate(self.operations):
            if operation.outcome == OK and operation.kind not in ASSIGNMENTS:
                if operation.process in before:
                    edges[before[operation.process]].append(node)
                before[operation.process] = node
        return edges

    def _in_time(self) -> list[list[int]]:
        """The steps from each ``ok`` operation to all that began after its end, through a chain of moments."""
        edges: list[list[int]] = [[] for _ in self.operations]
        ended: list[int] = []
        for node, operation in enumerate(self.operations):
            if operation.outcome == OK and operation.kind not in ASSIGNMENTS:
                edges[node].append(len(self.operations) + len(ended))
                ended.append(operation.ended)
        edges += [[len(self.operations) + moment] for moment in range(1, len(ended))]
        edges += [[]] if ended else []
        for node, operation in enumerate(self.operations):
            before = bisect_left(ended, operation.invoked)
            if before and operation.kind not in ASSIGNMENTS:
                edges[len(self.operations) + before - 1].append(node)
        return edges


def _tells(operation: Operation, proofs: Mapping[int, str]) -> Iterator[Pairs]:
    """The values of an operation that count for the order: its sends, if it must have happened, and its polls."""
    if operation.outcome == OK or operation.ended in proofs:
        yield operation.sends
    yield operation.polls


def happened(writer: Operation, reader: dict[Key, dict[Value, Operation]]) -> str | None:
    """The proof, in words, that an operation of unknown outcome happened; None without a proof."""
    if writer.outcome == INFO:
        for key, value in _each(writer.sends):
            if (found := reader.get(key, {}).get(value)) is not None:
                return f", which happened, because {found} was given {quoted(value)}"
    return None


def _joined(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    """The edges of both; the second has at least as many nodes."""
    nothing: list[int] = []
    return [[*own, *more] for own, more in zip_longest(one, other, fillvalue=nothing)]


def _steps(cycle: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise([*cycle, cycle[0]]))


def _all_in(steps: Sequence[tuple[int, int]], edges: Sequence[Sequence[int]]) -> bool:
    return all(after in edges[node] for node, after in steps)
