"""Violations of the rules over histories, planted in the history of a generated cluster at known places.

The logs remain without violations. Events are changed, dropped or added, so that the history contradicts the logs or
itself. Each violation gives exactly one finding of its rule.

============================================ ========================================================================
rule                                         what is planted
============================================ ========================================================================
acknowledged but lost                        an acknowledgement beyond the end of a log
duplicate value                              a value sent once and polled at two offsets, in a topic without logs
refused without cause                        a batch that is refused, for its epoch or its sequence, and then stored
transaction committed without its ...        no CommitTransaction for a transaction that is committed
committed record missing                     a successful CommitTransaction for a transaction that is aborted
aborted record delivered                     a reader that polls a record of an aborted transaction
precommitted read                            a reader that polls a record before CommitTransaction
poll skip, non-monotonic poll                a reader that skips a record; a reader that goes back
inconsistent offsets                         a reader that polls another value at an offset
last stable offset went back                 a last stable offset below the one before
input processed twice                        two records with the same number among the outputs of an input
input skipped                                outputs only in an aborted transaction, the offset in the next one
output without its offset                    the offset in another transaction than the outputs
offset without its output                    the only output of an input is refused
input not processed                          a declared input without output and offset
output of no input                           a declared output without an input
fenced generation committed                  a commit by a member of the generation before
offsets not as sent                          another offset sent in a committed transaction, which no log has
============================================ ========================================================================
"""

from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kafka_eos.errors import ErrorCode
from kafka_eos_checks.audit.rules.applications import (
    FENCED_GENERATION,
    NOT_PROCESSED,
    OFFSET_ALONE,
    OUTPUT_ALONE,
    OUTPUT_OF_NOTHING,
    SKIPPED,
    TWICE,
)
from kafka_eos_checks.audit.rules.histories import DUPLICATE_VALUE, LOST, REFUSED, UNASKED
from kafka_eos_checks.audit.rules.readers import (
    ABORTED_DELIVERED,
    COMMITTED_MISSING,
    INCONSISTENT,
    NON_MONOTONIC,
    POLL_SKIP,
    PRECOMMITTED,
    STABLE_WENT_BACK,
)
from kafka_eos_checks.audit.rules.sent_offsets import NOT_AS_SENT
from kafka_eos_checks.lab.generate.violations import Row, row_of

ELSEWHERE = "elsewhere"  # a topic without logs
NEVER = 1 << 40  # added to the number of a transaction, to get one that does not exist
DECLARED = "planted-declared"  # a group
LINES_APART = 16  # of which the first byte is known
TRIES = 100  # attempts to choose records at which the rule is not violated yet

Entry = dict[str, Any]  # an event as in its line of JSON
_ORDER = b'"order":'  # in a line, before any text that is not of this package


def line_of(event: Entry) -> bytes:
    """The line of an event."""
    return msgspec.json.encode(event) + b"\n"


def _beside(line: bytes, event: Entry, order: int) -> bytes:
    """The line of an event with the run and the time of another one, whose line is given."""
    other = msgspec.json.decode(line)
    return line_of({"run": other["run"], "order": order, "time_us": other["time_us"], **event})


@dataclass(slots=True)
class _Transaction:
    """A transaction in the history, with the numbers of its events.

    Attributes:
        process: its client.
        sends: events in which records were sent.
        produced: the request with its first batch, and ``committed`` the last one with its offset; None without.
        offsets: events in which its offsets were sent.
        ends: events in which its end was requested and answered.
        commits: whether it is committed.
        follows_commit: whether the client's previous transaction is committed, or there is none.
        before: the client's previous transaction.
    """

    process: str
    sends: "array[int]" = field(default_factory=lambda: array("q"))
    produced: int | None = None
    committed: int | None = None
    offsets: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    commits: bool = False
    follows_commit: bool = True
    before: int | None = None


class Lines:
    """The events of a history, by number. They stay in their file; those that are changed are in memory.

    Args:
        path: the file, with an event in each line.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed: dict[int, Entry] = {}
        self._begins = array("q")  # the first byte of each LINES_APART-th line

    def __iter__(self) -> Iterator[Entry]:
        """All events in order, as they are now."""
        at = 0
        for number, line in enumerate(self.lines()):
            if number == len(self._begins) * LINES_APART:
                self._begins.append(at)
            at += len(line)
            yield self._changed[number] if number in self._changed else msgspec.json.decode(line)

    def lines(self) -> Iterator[bytes]:
        """All lines, as they are in the file."""
        with self._path.open("rb") as file:
            yield from file

    def renumbered(self, number: int, line: bytes, order: int) -> bytes:
        """The line of an event, as it is now, with another order."""
        if number in self._changed:
            return line_of(self._changed[number] | {"order": order})
        before, _, after = line.partition(_ORDER)
        return b"%b%b%d%b" % (before, _ORDER, order, after[after.index(b",") :])

    def __getitem__(self, number: int) -> Entry:
        """An event that was read before."""
        if number in self._changed:
            return self._changed[number]
        with self._path.open("rb") as file:
            file.seek(self._begins[number // LINES_APART])
            event: Entry = msgspec.json.decode(next(islice(file, number % LINES_APART, None)))
            return event

    def change(self, number: int) -> Entry:
        """An event that its caller changes."""
        self._changed[number] = self[number]
        return self._changed[number]


class _Sends:
    """The sends of transactions, as columns: event and answer, partition and offset, input and output."""

    def __init__(self) -> None:
        self._columns = [array("q") for _ in range(7)]
        self._asked: deque[int] = deque()  # rows without an answer; the records of a batch are acknowledged in order

    def add(self, number: int, event: Entry) -> None:
        """Add the event in which a record was sent."""
        _, *given = event["detail"].get("input", ("", -1, -1))
        self._asked.append(len(self._columns[0]))
        for column, value in zip(
            self._columns, (number, -1, -1, -1, *given, event["detail"].get("output", -1)), strict=True
        ):
            column.append(value)

    def answer(self, number: int, event: Entry) -> None:
        """Add the answer to the first one that has none."""
        for column, value in zip(self._columns[1:4], (number, event["partition"], event["offset"]), strict=True):
            column[self._asked[0]] = value
        self._asked.popleft()

    def answer_to(self, number: int) -> int:
        """The event that answers a send."""
        return self._columns[1][bisect_left(self._columns[0], number)]

    def __getitem__(self, number: int) -> tuple[int, int, int, int, int]:
        """Partition, offset, partition and offset of the input, and number of the output, of a send."""
        row = bisect_left(self._columns[0], number)
        partition, offset, of_partition, of_offset, output = (column[row] for column in self._columns[2:])
        return partition, offset, of_partition, of_offset, output


class HistoryViolations:
    """Violations to be planted in a history.

    Args:
        events: the events of the history.
        topic: the topic to which clients write.
        inputs: the topic from which clients copy.
        ends: one past the last offset of each partition of the topic.
        seed: decides which events are changed.

    Attributes:
        planted: the violations, with their places.
    """

    def __init__(self, events: Lines, *, topic: str, inputs: str, ends: list[int], seed: int) -> None:
        self.planted: list[Row] = []
        self._events, self._topic, self._inputs, self._ends = events, topic, inputs, ends
        self._rng = np.random.default_rng([seed, 3])
        self._dropped: set[int] = set()
        self._earlier: dict[int, list[Entry]] = defaultdict(list)  # by the number of the event that follows them
        self._extra: list[Entry] = []
        self._transactions: dict[int, _Transaction] = {}
        self._sends = _Sends()
        self._read: dict[int, array[int]] = defaultdict(lambda: array("q"))  # by partition, the polls of its reader
        self._used: set[int] = set()
        self._gather()

    def _gather(self) -> None:
        latest: dict[str, int] = {}
        for number, event in enumerate(self._events):
            action, name = event["action"], event.get("detail", {}).get("transaction")
            if action == "Poll" and event["process"].startswith("reader-"):
                self._read[event["partition"]].append(number)
            elif event["phase"] == "invoke" and event.get("transactional_id") in latest:
                own = self._transactions[latest[event["transactional_id"]]]
                if action == "Produce" and own.produced is None:
                    own.produced = number
                elif action == "TxnOffsetCommit":
                    own.committed = number
            if name is None:
                continue
            if action == "BeginTransaction":
                before = latest.get(event["process"])
                follows_commit = before is None or self._transactions[before].commits
                self._transactions[name] = _Transaction(event["process"], follows_commit=follows_commit, before=before)
                latest[event["process"]] = name
            own = self._transactions[name]
            if action == "Send" and event["phase"] == "invoke":
                own.sends.append(number)
                self._sends.add(number, event)
            elif action == "Send":
                self._sends.answer(number, event)
            elif action == "SendOffsetsToTransaction":
                own.offsets.append(number)
            elif action in {"CommitTransaction", "AbortTransaction"}:
                own.ends.append(number)
                own.commits = action == "CommitTransaction"

    def plant(self, faults: int) -> None:
        """Plant ``faults`` violations of each rule.

        Raises:
            ValueError: the history is too short for so many.
        """
        rules: dict[str, Callable[[int], bool]] = {
            SKIPPED: self._skip_input,  # the rules with the fewest candidates first
            UNASKED: self._forget_commit,
            OFFSET_ALONE: self._refuse_output,
            OUTPUT_ALONE: self._move_offset,
            TWICE: self._repeat_output,
            COMMITTED_MISSING: self._claim_commit,
            ABORTED_DELIVERED: self._deliver_aborted,
            PRECOMMITTED: self._deliver_early,
            POLL_SKIP: self._skip_record,
            NON_MONOTONIC: self._go_back,
            INCONSISTENT: self._give_other_value,
            STABLE_WENT_BACK: self._lower_end,
            LOST: self._acknowledge,
            DUPLICATE_VALUE: self._give_twice,
            REFUSED: self._refuse,
            NOT_PROCESSED: self._declare_input,
            OUTPUT_OF_NOTHING: self._declare_output,
            FENCED_GENERATION: self._commit_late,
            NOT_AS_SENT: self._send_offset,
        }
        self._extra += self._declaration()
        for rule, plant in rules.items():
            done = sum(plant(number) for number in range(faults))
            if done < faults:
                raise ValueError(f"room for {done} of {rule}, not for {faults}; give more --transactions")

    def lines(self) -> Iterator[bytes]:
        """The lines of the events with the planted violations, in order."""
        order, line = 0, b"{}"
        for number, line in enumerate(self._events.lines()):
            for event in self._earlier.get(number, ()):
                yield _beside(line, event, order)
                order += 1
            if number not in self._dropped:
                yield self._events.renumbered(number, line, order)
                order += 1
        for event in self._extra:
            yield _beside(line, event, order)
            order += 1

    # ---- choosing

    def _choose(self, fits: Callable[[_Transaction], bool]) -> _Transaction | None:
        """Choose a transaction that fits and has no violation yet; None if there is none."""
        names = [name for name, own in self._transactions.items() if name not in self._used and fits(own)]
        if not names:
            return None
        name = names[int(self._rng.integers(len(names)))]
        self._used.add(name)
        return self._transactions[name]

    def _place(self, send: int) -> tuple[int, int]:
        """Partition and offset of a record that was sent."""
        partition, offset, *_ = self._sends[send]
        return partition, offset

    def _input(self, send: int) -> tuple[int, int]:
        """Partition and offset of the input of an output."""
        _, _, partition, offset, _ = self._sends[send]
        return partition, offset

    def _plant(self, rule: str, topic: str, partition: int, offset: int | None) -> bool:
        self.planted.append(row_of(rule, topic, partition, offset))
        return True

    def _given(self, rule: str, least: int, place: int = 0) -> tuple[int, list[Entry]] | None:
        """Choose a partition and consecutive records that its reader polled; None if there are none.

        Args:
            rule: the rule to violate.
            least: number of records.
            place: index of the record that the finding will name; no other violation of the rule names it.
        """
        taken = {(row["partition"], row["offset"]) for row in self.planted if row["rule"] == rule}
        own = [partition for partition, numbers in self._read.items() if len(numbers) >= least]
        for _ in range(TRIES if own else 0):
            partition = own[int(self._rng.integers(len(own)))]
            first = int(self._rng.integers(len(self._read[partition]) - least + 1))
            found = [self._events[number] for number in self._read[partition][first : first + least]]
            if (partition, found[place]["offset"]) not in taken:
                return partition, found
        return None

    @staticmethod
    def _reader(event: Entry, process: str) -> Entry:
        """An event: another reader polls the same record."""
        names = ("action", "phase", "topic", "partition", "offset", "isolation", "detail")
        return {"process": process, **{name: event[name] for name in names}}

    # ---- applications

    def _skip_input(self, _: int) -> bool:
        def fits(own: _Transaction) -> bool:
            before = None if own.before is None else self._transactions[own.before]
            if before is None or own.before in self._used or not own.commits or before.commits:
                return False
            if not (before.follows_commit and own.sends and before.sends and own.offsets):
                return False
            firsts = [min(self._input(send)[1] for send in each.sends) for each in (own, before)]
            if firsts[0] != firsts[1]:
                return False
            ends = [list(self._events[each.offsets[0]]["detail"]["offsets"].values()) for each in (own, before)]
            return ends[0] != ends[1]

        own = self._choose(fits)
        if own is None:
            return False
        assert own.before is not None, "that is what was asked for"
        self._used.add(own.before)
        skipped = min(self._input(send) for send in own.sends)
        for send in own.sends:
            if self._input(send) == skipped:
                self._dropped |= {send, self._sends.answer_to(send)}
        return self._plant(SKIPPED, self._inputs, *skipped)

    def _move_offset(self, _: int) -> bool:
        own = self._choose(lambda each: each.commits and each.follows_commit and bool(each.sends and each.offsets))
        if own is None:
            return False
        for number in own.offsets:
            self._events.change(number)["detail"]["transaction"] += NEVER
        first = min(own.sends, key=lambda send: (self._input(send), self._place(send)))
        return self._plant(OUTPUT_ALONE, self._topic, *self._place(first))

    def _refuse_output(self, number: int) -> bool:
        def single(own: _Transaction) -> list[int]:
            inputs = [self._input(send) for send in own.sends]
            return [send for send, each in zip(own.sends, inputs, strict=True) if inputs.count(each) == 1]

        own = self._choose(
            lambda each: each.commits and each.follows_commit and bool(each.offsets and each.sends and single(each))
        )
        if own is None:
            return False
        send = single(own)[0]
        sent, answer = (self._events.change(each) for each in (send, self._sends.answer_to(send)))
        sent["detail"]["value"] = answer["detail"]["value"] = f"refused-{number}"
        answer["phase"] = "fail"
        del answer["offset"]
        return self._plant(OFFSET_ALONE, self._inputs, *self._input(send))

    def _repeat_output(self, _: int) -> bool:
        def seconds(own: _Transaction) -> list[int]:
            return [send for send in own.sends if self._sends[send][4] == 1]

        own = self._choose(lambda each: each.commits and bool(each.offsets and seconds(each)))
        if own is None:
            return False
        send = seconds(own)[0]
        for each in (send, self._sends.answer_to(send)):
            self._events.change(each)["detail"]["output"] = 0
        return self._plant(TWICE, self._topic, *self._place(send))

    # ---- transactions

    def _forget_commit(self, _: int) -> bool:
        own = self._choose(
            lambda each: (
                each.commits
                and not each.offsets
                and bool(each.sends)
                and not any(self._place(send)[0] in self._read for send in each.sends)
            )
        )
        if own is None:
            return False
        self._dropped.update(own.ends)
        return self._plant(UNASKED, self._topic, *min(map(self._place, own.sends)))

    def _claim_commit(self, _: int) -> bool:
        own = self._choose(lambda each: not each.commits and not each.offsets and bool(each.sends and each.ends))
        if own is None:
            return False
        for number in own.ends:
            self._events.change(number)["action"] = "CommitTransaction"
        return self._plant(COMMITTED_MISSING, self._topic, *self._place(own.sends[0]))

    # ---- readers

    def _deliver_aborted(self, number: int) -> bool:
        own = self._choose(lambda each: not each.commits and bool(each.sends))
        if own is None:
            return False
        self._extra.append(self._poll(own.sends[0], f"planted-aborted-{number}"))
        return self._plant(ABORTED_DELIVERED, self._topic, *self._place(own.sends[0]))

    def _deliver_early(self, number: int) -> bool:
        own = self._choose(lambda each: each.commits and bool(each.sends))
        if own is None:
            return False
        self._earlier[own.ends[0]].append(self._poll(own.sends[0], f"planted-early-{number}"))
        return self._plant(PRECOMMITTED, self._topic, *self._place(own.sends[0]))

    def _poll(self, send: int, process: str) -> Entry:
        """An event: a reader of committed data polls a record that was sent."""
        partition, offset = self._place(send)
        return {
            "process": process,
            "action": "Poll",
            "phase": "ok",
            "topic": self._topic,
            "partition": partition,
            "offset": offset,
            "isolation": "read_committed",
            "detail": {"value": self._events[send]["detail"]["value"]},
        }

    def _skip_record(self, number: int) -> bool:
        found = self._given(POLL_SKIP, 3, 1)
        if found is None:
            return False
        partition, (before, left_out, after) = found
        self._extra += [self._reader(event, f"planted-skip-{number}") for event in (before, after)]
        return self._plant(POLL_SKIP, self._topic, partition, left_out["offset"])

    def _go_back(self, number: int) -> bool:
        found = self._given(NON_MONOTONIC, 2)
        if found is None:
            return False
        partition, (first, second) = found
        self._extra += [self._reader(event, f"planted-back-{number}") for event in (second, first)]
        return self._plant(NON_MONOTONIC, self._topic, partition, first["offset"])

    def _give_other_value(self, number: int) -> bool:
        found = self._given(INCONSISTENT, 1)
        if found is None:
            return False
        partition, [event] = found
        given = self._reader(event, f"planted-other-{number}") | {"detail": {"value": f"other-{number}"}}
        del given["isolation"]
        self._extra.append(given)
        return self._plant(INCONSISTENT, self._topic, partition, event["offset"])

    def _lower_end(self, number: int) -> bool:
        found = self._given(STABLE_WENT_BACK, 1)
        if found is None:
            return False
        partition, lower = found[0], self._ends[found[0]] - 1 - number
        for offset in (self._ends[partition], lower):
            self._extra.append(
                {
                    "process": f"planted-end-{number}",
                    "action": "EndOfPartition",
                    "phase": "ok",
                    "topic": self._topic,
                    "partition": partition,
                    "offset": offset,
                    "isolation": "read_committed",
                }
            )
        return self._plant(STABLE_WENT_BACK, self._topic, partition, lower)

    # ---- producers

    def _acknowledge(self, number: int) -> bool:
        partition = number % len(self._ends)
        offset = self._ends[partition] + number
        where = {"process": "planted-lost", "action": "Send", "topic": self._topic, "partition": partition}
        detail = {"detail": {"value": f"lost-{number}"}}
        self._extra += [{**where, "phase": "invoke", **detail}, {**where, "phase": "ok", "offset": offset, **detail}]
        return self._plant(LOST, self._topic, partition, offset)

    def _give_twice(self, number: int) -> bool:
        where = {"process": "planted-twice", "topic": ELSEWHERE, "partition": number}
        detail = {"detail": {"value": f"twice-{number}"}}
        self._extra.append({**where, "action": "Send", "phase": "invoke", **detail})
        self._extra += [{**where, "action": "Poll", "phase": "ok", "offset": offset, **detail} for offset in range(2)]
        return self._plant(DUPLICATE_VALUE, ELSEWHERE, number, 1)

    def _refuse(self, number: int) -> bool:
        own = self._choose(lambda each: each.commits and each.produced is not None)
        if own is None or own.produced is None:
            return False
        sent = self._another(own.produced)
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if number % 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        self._earlier[own.produced] += [sent, {**sent, "phase": "fail", "error": int(code)}]
        return self._plant(REFUSED, self._topic, sent["partition"], None)

    def _another(self, number: int) -> Entry:
        """A request as the one in an event, with a number of its own."""
        event = self._events[number]
        own = {name: value for name, value in event.items() if name not in {"run", "order", "time_us"}}
        return own | {"detail": event["detail"] | {"request": NEVER + number}}

    # ---- groups

    def _declaration(self) -> Iterable[Entry]:
        about = {"process": "planted-test", "phase": "ok", "group": DECLARED}
        yield {**about, "action": "DeclareApplication", "detail": {"everything": True, "checked": True}}
        for topic, role in ((self._inputs, "input"), (self._topic, "output")):
            yield {**about, "action": "DeclareTopic", "topic": topic, "detail": {"role": role}}

    def _declared(self, rule: str, topic: str, partition: int, offset: int, identity: str) -> bool:
        self._extra.append(
            {
                "process": "planted-test",
                "action": "DeclareRecord",
                "phase": "ok",
                "topic": topic,
                "partition": partition,
                "offset": offset,
                "group": DECLARED,
                "detail": {"identity": identity},
            }
        )
        return self._plant(rule, topic, partition, offset)

    def _declare_input(self, number: int) -> bool:
        sends = (event for event in self._events if event["action"] == "Send" and event["phase"] == "ok")
        event = next(islice((event for event in sends if event["topic"] == self._inputs), number, None), None)
        if event is None:
            return False
        return self._declared(
            NOT_PROCESSED, self._inputs, event["partition"], event["offset"], f"not-processed-{number}"
        )

    def _declare_output(self, number: int) -> bool:
        found = self._given(OUTPUT_OF_NOTHING, 1)
        if found is None:
            return False
        partition, [event] = found
        return self._declared(OUTPUT_OF_NOTHING, self._topic, partition, event["offset"], f"nothing-{number}")

    def _commit_late(self, number: int) -> bool:
        member = {"process": "planted-member", "group": f"planted-generations-{number}"}
        partition = number % len(self._ends)
        where = {"topic": self._inputs, "partition": partition}
        commit = {**member, **where, "action": "OffsetCommit", "generation": 1, "detail": {"request": number}}
        self._extra += [
            *({**member, "action": "JoinGroup", "phase": "ok", "generation": each} for each in (1, 2)),
            *({**commit, "phase": phase} for phase in ("invoke", "ok")),
        ]
        return self._plant(FENCED_GENERATION, self._inputs, partition, None)

    def _send_offset(self, number: int) -> bool:
        own = self._choose(lambda each: each.commits and each.committed is not None)
        if own is None or own.committed is None:
            return False
        sent = self._another(own.committed)
        sent["detail"]["committed_offset"] = NEVER + number
        self._earlier[own.committed] += [sent, {**sent, "phase": "ok", "error": 0}]
        return self._plant(NOT_AS_SENT, self._inputs, sent["partition"], None)


def plant_in_history(path: Path, faults: int, *, topic: str, inputs: str, ends: list[int], seed: int) -> list[Row]:
    """Plant violations in a history. Of each record that a transaction sent or a reader polled, some numbers are held.

    Args:
        path: the file, which is replaced.
        faults: violations of each rule.
        topic: the topic to which clients write.
        inputs: the topic from which clients copy.
        ends: one past the last offset of each partition of the topic.
        seed: decides which events are changed.

    Returns:
        The violations with their places. The offset is None where a finding has none.

    Raises:
        ValueError: the history is too short for so many.
    """
    violations = HistoryViolations(Lines(path), topic=topic, inputs=inputs, ends=ends, seed=seed)
    violations.plant(faults)
    changed = path.with_suffix(".changed")
    with changed.open("wb") as out:
        out.writelines(violations.lines())
    changed.replace(path)
    return violations.planted
