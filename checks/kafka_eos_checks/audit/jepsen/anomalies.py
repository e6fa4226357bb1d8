"""The anomalies of Jepsen's workload for Kafka, as it defines them.

Of each key an *order* is known: by offset, the values of all sends that must have happened (``ok``, or of unknown
outcome with a value that an ``ok`` operation was given), and of all polls. Offsets that nobody tells of count for
nothing, so what lies "between" is always something that somebody was told of.

``:G1a``
    An ``ok`` operation was given a value whose send ``fail``ed (an aborted read); each value once.
``:lost-write``
    A value that must have been sent, which no ``ok`` operation was given, although one was given a value that is at
    its last offset or behind it.
``:unseen``
    Values that were acknowledged and that no ``ok`` operation was given; each key once. A history that does not end
    with polls up to the end of every key has them rightly.
``:duplicate``
    A value at several offsets of its key.
``:inconsistent-offsets``
    Several values at one offset of a key.
``:precommitted-read``
    A transaction was given what it sent itself.
``:poll-skip``, ``:nonmonotonic-poll``
    Between two operations of a process that read a key: the first value of the later one is more than one behind the
    last value of the earlier one, or not behind it. Only an ``ok`` operation moves a process on; ``:assign`` and
    ``:subscribe`` let it forget the keys that they do not name. Both are allowed in a history with ``:subscribe``, as
    a rebalance may come between two operations.
``:int-poll-skip``, ``:int-nonmonotonic-poll``
    The same between two values of one operation, but for keys that were rebalanced meanwhile.
``:nonmonotonic-send``, ``:int-nonmonotonic-send``
    Of two sends of a process to a key, the later one is not behind the earlier one; or of two in one operation.
``:int-send-skip``
    Between two sends of an operation to a key is something else. Allowed: transactions may write at the same time.
``:G1c``, ``:G1c-process``, ``:G1c-realtime``
    A cycle of operations each of which was given what the one before it sent; or of which some only came after the
    other in their process; or in time.
``:G0``, ``G1c by order``
    Cycles in which some operations wrote right behind each other. Allowed: nothing isolates writes from each other.

Where Jepsen tells of every reader or every value of the same anomaly, there is one finding with the first of them.
A value that an operation was given and nobody sent is counted as unknown; Jepsen's checker stops there. An ``:assign``
with ``:seek-to-beginning? true`` lets a process forget every key; Jepsen's checker has no rule for it, as its clients
are new ones then. ``:G0-process`` and ``:G0-realtime``, which Jepsen allows, are not looked for.

Every rule takes one pass over the operations, or over the offsets of a key in their order.

Source: jepsen.tests.kafka, version 0.3; elle.core for the order of processes and of time
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Self

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
_SHOWN = 3  # of values that were skipped


def allowed(operations: Iterable[Operation]) -> frozenset[str]:
    """The anomalies that Jepsen does not take for errors in a history."""
    subscribes = any(operation.kind == SUBSCRIBE for operation in operations)
    return _ALLOWED | _ALLOWED_WITH_SUBSCRIBE if subscribes else _ALLOWED


def anomalies(operations: Sequence[Operation], run: str) -> tuple[list[Finding], dict[str, int | float | str]]:
    """All anomalies of a history, and figures of what was looked at: what nobody sent is ``unknown``.

    Args:
        operations: those that are over, in their order.
        run: names the history.
    """
    analysis = _Analysis.of(operations, run)
    rules: tuple[Callable[[], Iterator[Finding]], ...] = (
        analysis.aborted_reads,
        analysis.lost_writes,
        analysis.unseen,
        analysis.duplicates_and_conflicts,
        analysis.precommitted_reads,
        analysis.polls,
        analysis.inner_polls,
        analysis.sends,
        analysis.inner_sends,
        analysis.cycles,
    )
    findings = [finding for rule in rules for finding in rule()]
    given = {(key, value) for operation in operations for key, value in _each(operation.polls)}
    figures: dict[str, int | float | str] = {
        "operations": len(operations),
        "sent": sum(map(len, analysis.writer.values())),
        "given": len(given),
        "unknown": sum(value not in analysis.writer.get(key, {}) for key, value in given),
    }
    return findings, figures


def _each(pairs: Pairs) -> Iterator[tuple[Key, Value]]:
    return ((key, value) for key, own in pairs.items() for _, value in own)


@dataclass(frozen=True, slots=True)
class _Order:
    """What is known of the log of a key; an *index* counts the offsets that anybody tells of.

    Attributes:
        offsets: by index.
        values: by index, the first value that was told.
        more: by index, all values, where there are several.
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
        """An order out of the value of each offset, and of all values where there are several."""
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
        """How far a value is behind another one; 1, which is right, where that is not known."""
        one, other = self.index.get(earlier), self.index.get(later)
        return 1 if one is None or other is None else other - one

    def between(self, earlier: Value, later: Value) -> str:
        """What lies between two values, in words."""
        start, end = self.index[earlier] + 1, self.index[later]
        shown = ", ".join(self.at(value) for value in self.values[start : min(end, start + _SHOWN)])
        return shown if end - start <= _SHOWN else f"{shown} and {end - start - _SHOWN} more"


_NOTHING = _Order([], [], {}, {}, {}, {})


@dataclass(frozen=True, slots=True)
class _Analysis:
    """What the rules need of a history.

    Attributes:
        operations: those that are over.
        run: names the history.
        writer: by key and value, who sent it.
        reader: by key and value, the first ``ok`` operation that was given it.
        orders: by key.
    """

    operations: Sequence[Operation]
    run: str
    writer: dict[Key, dict[Value, Operation]]
    reader: dict[Key, dict[Value, Operation]]
    orders: dict[Key, _Order]

    @classmethod
    def of(cls, operations: Sequence[Operation], run: str) -> Self:
        """Two passes: who sent and was given what, then the orders."""
        writer: dict[Key, dict[Value, Operation]] = defaultdict(dict)
        reader: dict[Key, dict[Value, Operation]] = defaultdict(dict)
        for operation in operations:
            for key, value in _each(operation.sends):
                writer[key][value] = operation
            if operation.outcome == OK:
                for key, value in _each(operation.polls):
                    reader[key].setdefault(value, operation)
        told: dict[Key, dict[int, Value]] = defaultdict(dict)
        conflicts: dict[Key, dict[int, dict[Value, None]]] = defaultdict(dict)
        for operation in operations:
            for pairs in _tells(operation, reader):
                for key, own in pairs.items():
                    log = told[key]
                    for offset, value in own:
                        if offset is not None and (before := log.setdefault(offset, value)) != value:
                            conflicts[key].setdefault(offset, {before: None})[value] = None
        orders = {key: _Order.of(log, conflicts[key]) for key, log in told.items()}
        return cls(operations, run, dict(writer), dict(reader), orders)

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
        """``:lost-write``, from each key's end to its beginning, with the next value behind that was read."""
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
        """Why a send must have happened, "" if it was acknowledged; None if nobody knows."""
        return "" if writer.outcome == OK else _proof(writer, self.reader)

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
        """Who was the first to tell of a value at an offset."""
        found: dict[tuple[Key, int, Value], str] = {}
        for operation in self.operations if places else ():
            for pairs in _tells(operation, self.reader):
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
        """A step from a value to another: over something (the first rule), or not forward (the second)."""
        order = self._order(key)
        delta = order.delta(earlier, later)
        if delta == 1:
            return
        rule = rules[delta < 1]
        way = f"{words[0]} {order.at(earlier)}{words[1]} {order.at(later)}"
        if delta < 1:
            yield self._finding(rule, key, f"{way}, which is not behind it", order.offsets[order.index[later]])
        elif rule:
            skipped = order.offsets[order.index[earlier] + 1]
            yield self._finding(rule, key, f"{way}, over {order.between(earlier, later)}", skipped)

    # --- cycles ------------------------------------------------------------------------------------------------------

    def cycles(self) -> Iterator[Finding]:
        """``:G1c`` and ``:G0``, with what makes them larger."""
        number = {operation.ended: node for node, operation in enumerate(self.operations)}
        given = self._given(number)
        in_process, in_time = self._in_process(), self._in_time()
        if any(True for _ in cycles(_joined(given, _joined(in_process, in_time)), self._is_moment)):
            in_process, timed = _joined(given, in_process), _joined(given, in_time)
            for rule, edges in ((READ_CYCLE, given), (PROCESS_CYCLE, in_process), (TIME_CYCLE, timed)):
                for found in cycles(edges, self._is_moment):
                    cycle = [node for node in found if not self._is_moment(node)]
                    if rule == READ_CYCLE or not _all_in(_steps(cycle), given):
                        yield self._of_cycle(rule, cycle, by_order=False)
        behind = self._behind(number)
        for rule, edges in ((WRITE_CYCLE, behind), (ORDER_CYCLE, _joined(given, behind))):
            for cycle in cycles(edges):
                steps = _steps(cycle)
                if rule == WRITE_CYCLE or not (_all_in(steps, given) or _all_in(steps, behind)):
                    yield self._of_cycle(rule, cycle, by_order=True)

    def _is_moment(self, node: int) -> bool:
        return node >= len(self.operations)

    def _given(self, number: dict[int, int]) -> list[list[int]]:
        """From who sent a value to who was given it."""
        edges: list[list[int]] = [[] for _ in self.operations]
        for node, operation in enumerate(self.operations):
            senders = {
                number[writer.ended]
                for key, value in _each(operation.polls)
                if (writer := self.writer.get(key, {}).get(value)) is not None
            }
            for sender in senders - {node}:
                edges[sender].append(node)
        return edges

    def _behind(self, number: dict[int, int]) -> list[list[int]]:
        """From who sent a value to who sent the next one to its key."""
        edges: list[list[int]] = [[] for _ in self.operations]
        for key, order in self.orders.items():
            writer = self.writer.get(key, {})
            for index, (earlier, later) in enumerate(pairwise(order.values), start=1):
                if order.index[later] == index and earlier in writer and later in writer:
                    one, other = number[writer[earlier].ended], number[writer[later].ended]
                    if one != other:
                        edges[one].append(other)
        return edges

    def _in_process(self) -> list[list[int]]:
        """From each operation that is ok to the next one of its process."""
        edges: list[list[int]] = [[] for _ in self.operations]
        before: dict[object, int] = {}
        for node, operation in enumerate(self.operations):
            if operation.outcome == OK and operation.kind not in ASSIGNMENTS:
                if operation.process in before:
                    edges[before[operation.process]].append(node)
                before[operation.process] = node
        return edges

    def _in_time(self) -> list[list[int]]:
        """From each operation that is ok to all that began when it was over, through a chain of moments."""
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

    def _of_cycle(self, rule: str, cycle: Sequence[int], *, by_order: bool) -> Finding:
        pairs = ((self.operations[node], self.operations[after]) for node, after in _steps(cycle))
        steps = [self._why(one, other, by_order) for one, other in pairs]
        key = next(key for key, _ in steps if key is not None)
        return self._finding(rule, key[0], "; ".join(words for _, words in steps))

    def _why(self, one: Operation, other: Operation, by_order: bool) -> tuple[tuple[Key] | None, str]:
        """Why an operation comes after another one: the key, if there is one, and in words."""
        for key, value in _each(other.polls):
            if self.writer.get(key, {}).get(value) is one:
                return (key,), f"{other} was given {quoted(value)} of key {key}, sent by {one}"
        for key, value in _each(other.sends) if by_order else ():
            order = self._order(key)
            index = order.index.get(value, 0)
            if index and self.writer[key].get(order.values[index - 1]) is one:
                before = quoted(order.values[index - 1])
                return (key,), f"{other} sent {quoted(value)} to key {key} right behind {before} of {one}"
        if one.process == other.process:
            return None, f"{other} came after {one}"
        return None, f"{other} began when {one} was over"


def _tells(operation: Operation, reader: dict[Key, dict[Value, Operation]]) -> Iterator[Pairs]:
    """What an operation tells of the order: what it sent, if it must have happened, and what it was given."""
    if operation.outcome == OK or _proof(operation, reader) is not None:
        yield operation.sends
    yield operation.polls


def _proof(writer: Operation, reader: dict[Key, dict[Value, Operation]]) -> str | None:
    """In words, why an operation of unknown outcome happened; None if nobody knows that it did."""
    if writer.outcome == INFO:
        for key, value in _each(writer.sends):
            if (found := reader.get(key, {}).get(value)) is not None:
                return f", which happened, as {found} was given {quoted(value)}"
    return None


def _joined(one: list[list[int]], other: list[list[int]]) -> list[list[int]]:
    """The edges of both; the second has at least as many nodes."""
    nothing: list[int] = []
    return [[*own, *more] for own, more in zip_longest(one, other, fillvalue=nothing)]


def _steps(cycle: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise([*cycle, cycle[0]]))


def _all_in(steps: Sequence[tuple[int, int]], edges: Sequence[Sequence[int]]) -> bool:
    return all(after in edges[node] for node, after in steps)
