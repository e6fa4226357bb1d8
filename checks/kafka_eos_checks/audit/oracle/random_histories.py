"""Random histories with faults, cuts and task orders, on which the plan's findings are compared with the oracle's.

Producers send records in transactions and without, readers are given them, and an application copies some. Their events
follow from the logs, until something goes wrong. Events are lost, repeated, moved, or have another value, offset, phase
or transaction. Logs start late, have holes, lack records, are of two brokers, or are not given. All of it follows from
a seed.
"""

import random
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS_TOPIC
from kafka_eos.formats.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.histories.history import COLUMN_TYPES, Event, write_history
from kafka_eos_checks.audit.engines.engine import Item, Row
from kafka_eos_checks.audit.engines.local import LocalEngine, LocalRows
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT
from kafka_eos_checks.audit.oracle.random_cases import compare
from kafka_eos_checks.audit.oracle.random_declared import DeclaredWorld
from kafka_eos_checks.audit.oracle.readable_histories import join
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.plan.history_plan import judge_histories
from kafka_eos_checks.audit.rules.declared import WrongQuestion
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES, Join
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.kit.verdict import Verdict

TOPICS = ("orders", "copies")
DECLARING = 0.4  # share of the histories with an application that is declared
WRONG_QUESTION = "declaration that nothing fits"
NOW_US = 1_700_000_000_000_000


class ShuffledEngine(LocalEngine):
    """An executor in this process that runs tasks, and hands them their rows, in a random order."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def map(
        self, function: Callable[[Item], Iterable[Row]], items: Sequence[Item], sizes: Sequence[int], label: str
    ) -> LocalRows:
        """See :class:`Engine`; the order is random."""
        own = self._rng.sample(list(items), len(items))
        return super().map(function, own, sizes, label)

    def regroup(
        self, function: Callable[[int, Iterator[Any]], Iterable[Row]], kinds: Sequence[int], *rows: Any, label: str
    ) -> LocalRows:
        """See :class:`Engine`; the order is random."""

        def shuffled(key: int, values: Iterator[Any]) -> Iterable[Row]:
            own = list(values)
            self._rng.shuffle(own)
            return function(key, iter(own))

        return super().regroup(shuffled, kinds, *rows, label=label)


@dataclass(slots=True)
class _Partition:
    topic: str
    number: int
    batches: list[RecordBatch] = field(default_factory=list)
    end: int = 0
    waiting: deque[tuple[int, str, bool | None, int]] = field(default_factory=deque)  # offset, value, visible, pid


class _World:
    """A random world: clients, their logs and their history."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.segment_batches = random.Random(-1 - seed).choice((2, 7, 30, 1000))
        self.faults = 0.0 if self.rng.random() < 0.2 else self.rng.choice((0.005, 0.02, 0.1))
        self.events: list[Event] = []
        self.partitions = [_Partition(topic, number) for topic in TOPICS for number in range(self.rng.randint(1, 2))]
        self.offsets = _Partition(OFFSETS_TOPIC, 0)
        self.inputs: dict[int, list[tuple[int, str]]] = {}  # by partition, inputs not yet given to the application
        self.numbered = self.rng.random() < 0.7
        self.names_inputs = self.rng.random() < 0.8
        self.values = 0
        self.transactions = 0
        self.bare = self.rng.random() < 0.2  # clients that leave the partition to their library

    def tell(self, process: str, action: str, phase: str, **more: Any) -> None:
        """Add an event, or, at the fault rate, what a fault makes of it."""
        fields = {name: more.pop(name) for name in COLUMN_TYPES if name in more}
        event = Event(run="r", process=process, action=action, phase=phase, detail=more, **fields)
        for each in self._broken(event) if self.rng.random() < self.faults else [event]:
            self.events.append(replace(each, order=len(self.events), time_us=NOW_US + len(self.events)))

    def _broken(self, event: Event) -> list[Event]:
        rng, detail = self.rng, dict(event.detail)
        match rng.randrange(10):
            case 0:
                return []
            case 1:
                return [event, event]
            case 2 if "value" in detail:
                detail["value"] = f"v{rng.randrange(self.values + 2)}"
            case 3 if "transaction" in detail:
                detail["transaction"] = rng.randrange(self.transactions + 1)
            case 4 if event.offset is not None:
                return [replace(event, offset=max(0, event.offset + rng.randint(-3, 3)))]
            case 5:
                return [replace(event, phase=rng.choice(("invoke", "ok", "fail", "info")))]
            case 6 if event.action in {"CommitTransaction", "AbortTransaction"}:
                return [replace(event, action=rng.choice(("CommitTransaction", "AbortTransaction")))]
            case 7 if rng.random() < 0.5:
                detail.pop("value", None)
            case 7 if "value" in detail:
                detail["value"] = None
            case 8:
                return [replace(event, offset=None)] if rng.random() < 0.5 else [replace(event, partition=None)]
            case 9:
                action = rng.choice(("Crash", "Seek", "LeaderChange", "AbortTransaction", "Assign"))
                other = replace(event, action=action, phase="ok", topic=TOPICS[0], partition=0, offset=rng.randrange(5))
                return [other, event]
        return [replace(event, detail=detail)]

    def send(
        self, process: str, pid: int, place: _Partition, number: int | None, *, outside: bool = False, **more: Any
    ) -> None:
        """Send and store a record, whose value may be an old one, empty, or null where it is empty for its clients.

        ``outside``: it is stored outside of the transaction that its event names.
        """
        self.values += 1
        value = f"v{self.rng.randrange(self.values)}" if self.rng.random() < self.faults else f"v{self.values}"
        if self.rng.random() < self.faults / 2:
            value = ""
        if number is not None:
            more["transaction"] = number
        where = {"topic": place.topic} | ({} if self.bare else {"partition": place.number})
        self.tell(process, "Send", "invoke", **where, value=value, **more)
        if self.rng.random() < self.faults:
            self.tell(process, "Send", self.rng.choice(("fail", "info")), **where, value=value, **more)
            if self.rng.random() < 0.7:
                return
        copies = 1 + (self.rng.random() < self.faults)
        for _ in range(copies):
            stored = value.encode() + b"\xff" * (self.rng.random() < self.faults / 4)
            record = Record(value=None if self.rng.random() < (self.faults / 4 if value else 0.5) else stored)
            plain = number is None or outside
            own: dict[str, Any] = {} if plain else {"producer_epoch": 0, "is_transactional": True}
            place.batches.append(
                build_batch(
                    [record], base_offset=place.end, **({"producer_id": pid} | own if own else {}), base_timestamp=1
                )
            )
            place.waiting.append((place.end, value, True if plain else None, pid))
            place.end += 1
        where = {"topic": place.topic, "partition": place.number, "offset": place.end - 1}
        self.tell(process, "Send", "ok", **where, value=value, **more)

    def mark(self, pid: int, place: _Partition, decision: ControlType) -> None:
        """Write a marker."""
        if self.rng.random() < self.faults / 2:
            return
        marker = ControlRecord(control_type=decision, coordinator_epoch=0)
        place.batches.append(build_control_batch(marker, producer_id=pid, producer_epoch=0, base_offset=place.end))
        place.end += 1 + (2 if self.rng.random() < self.faults / 2 else 0)
        visible = decision is ControlType.COMMIT
        place.waiting = deque(
            (offset, value, visible if shown is None and own == pid else shown, own)
            for offset, value, shown, own in place.waiting
        )

    def transaction(self, pid: int) -> None:
        """Run a transaction of a producer."""
        process = f"p{pid}"
        self.transactions += 1
        number = self.transactions
        self.tell(process, "BeginTransaction", "invoke", transaction=number)
        places = self.rng.sample(self.partitions, self.rng.randint(1, len(self.partitions)))
        for place in places:
            for _ in range(self.rng.randint(1, 2)):
                self.send(process, pid, place, number)
        decision = self.rng.choice((ControlType.COMMIT, ControlType.COMMIT, ControlType.ABORT))
        action = "CommitTransaction" if decision is ControlType.COMMIT else "AbortTransaction"
        self.tell(process, action, "invoke", transaction=number)
        for place in places:
            self.mark(pid, place, decision)
        self.tell(process, action, "ok", transaction=number)

    def copy(self) -> None:
        """Run a transaction of an application: it polls inputs, sends their outputs and the next offset."""
        rng, process, pid = self.rng, f"app-{self.rng.randint(0, 1)}", 50
        waiting = [number for number, own in self.inputs.items() if own]
        if not waiting:
            return
        self.transactions += 1
        number, partition = self.transactions, rng.choice(waiting)
        group = f"copy-{process}" if rng.random() < 0.98 else "copy-app-0"
        inputs = self.inputs[partition][: rng.randint(1, 3)]
        where = {"topic": TOPICS[0], "partition": partition}
        for offset, value in inputs:
            if rng.random() < self.faults / 2:
                continue  # or it may be passed over
            if rng.random() >= self.faults / 2:
                self.tell(process, "Poll", "ok", **where, group=group, offset=offset, value=value)
            if rng.random() < 0.1:
                continue  # an application may ignore an input
            outside = rng.random() < 2 * self.faults
            for output in range(rng.randint(1, 2)):
                more: dict[str, Any] = {"input": [TOPICS[0], partition, offset]} if self.names_inputs else {}
                more |= {"output": output} if self.numbered else {}
                for _ in range(1 + (rng.random() < self.faults)):
                    self.send(process, pid, self.partitions[-1], number, outside=outside, **more)
        behind = inputs[-1][0] + 1
        if rng.random() < self.faults:
            behind += rng.randint(-2, 2)
        told = {"topic": TOPICS[0], "group": group, "offsets": {str(partition): behind}, "transaction": number}
        self.tell(process, "SendOffsetsToTransaction", "invoke", **told)
        who: dict[str, Any] = {"producer_id": pid, "producer_epoch": 0}
        for phase in ("invoke", "ok"):
            self.tell(f"wire/{process}", "TxnOffsetCommit", phase, **where, **who, group=group, committed_offset=behind)
        key, stored = (
            OffsetCommitKey(group=group, topic=TOPICS[0], partition=partition),
            OffsetCommitValue(offset=behind),
        )
        own: dict[str, Any] = {"producer_id": pid, "producer_epoch": 0, "is_transactional": True}
        own = own if rng.random() >= self.faults else {}
        record = Record(key=key.encode(), value=stored.encode())
        self.offsets.batches.append(build_batch([record], base_offset=self.offsets.end, **own))
        self.offsets.end += 1
        decision = rng.choice((ControlType.COMMIT, ControlType.COMMIT, ControlType.ABORT))
        action = "CommitTransaction" if decision is ControlType.COMMIT else "AbortTransaction"
        self.tell(process, action, "invoke", transaction=number)
        self.mark(pid, self.partitions[-1], decision)
        self.mark(pid, self.offsets, decision if rng.random() >= self.faults else ControlType(1 - decision))
        for phase in ("invoke", "ok"):
            self.tell(f"wire/{process}", "EndTxn", phase, **who, committed=decision is ControlType.COMMIT)
        self.tell(process, action, "ok", transaction=number)
        if decision is ControlType.COMMIT:
            del self.inputs[partition][: len(inputs)]

    def read(self, reader: str, place: _Partition, isolation: str | None) -> None:
        """Give a reader all stable records, up to the last stable offset."""
        where = {"topic": place.topic, "partition": place.number, "isolation": isolation}
        group = {"group": "g"} if place.topic == TOPICS[0] and self.rng.random() < 0.1 else {}
        while place.waiting and place.waiting[0][2] is not None:
            offset, value, visible, _ = place.waiting.popleft()
            if visible:
                if place.topic == TOPICS[0]:
                    self.inputs.setdefault(place.number, []).append((offset, value))
                self.tell(reader, "Poll", "ok", **where, **group, offset=offset, value=value)
                if group and place.topic == TOPICS[0] and self.rng.random() < 0.5:
                    self.send(
                        reader, 90, self.partitions[-1], None, input=[place.topic, place.number, offset], output=0
                    )
        end = place.waiting[0][0] if place.waiting else place.end
        if self.rng.random() < self.faults:
            end = max(0, end - self.rng.randint(1, 3))
        self.tell(reader, "EndOfPartition", "ok", **where, offset=end)

    def run(self) -> None:
        """Run some transactions, sends without a transaction, and readers."""
        readings = [(f"r{number}", place) for number, place in enumerate(self.partitions)]
        isolations = {reader: self.rng.choice(("read_committed", "read_committed", None)) for reader, _ in readings}
        for _ in range(self.rng.randint(2, 40)):
            kind = self.rng.random()
            if kind < 0.25:
                self.copy()
            elif kind < 0.5:
                self.transaction(self.rng.randint(1, 3))
            elif kind < 0.7:
                self.send(TOPICS[1], -1, self.rng.choice(self.partitions), None)
            elif kind < 0.72:
                self.tell(self.rng.choice(readings)[0], "Crash", "info")
            elif kind < 0.74:
                own, named = {"producer_id": 7, "producer_epoch": 0}, {"transactional_id": "w"}
                self.tell("w", "InitProducerId", "invoke", **named)
                self.tell("w", "InitProducerId", "ok", **named, **own)
                if self.rng.random() < 0.5:
                    timed_out = self.rng.choice(({}, {"producer_id": 7}, {"producer_id": 8}))
                    self.tell("broker-0", "TimeOut", "ok", **named, **timed_out)
                self.tell("w", "Produce", "fail", topic="orders", partition=0, **own,
                          error=int(ErrorCode.PRODUCER_FENCED))  # fmt: skip
            elif kind < 0.76:
                for generation in (2, 1):
                    self.tell("m", "JoinGroup", "ok", group="g", generation=generation)
                    self.tell("m", "OffsetCommit", "invoke", group="g", generation=1, request=generation)
                    self.tell("m", "OffsetCommit", "ok", group="g", generation=1, request=generation)
            else:
                reader, place = self.rng.choice(readings)
                self.read(reader, place, isolations[reader])

    def write(self, folder: Path) -> None:
        """Write the logs of one broker or two."""
        for broker in range(self.rng.choice((1, 1, 2))):
            for place in (*self.partitions, self.offsets):
                if self.rng.random() < 0.1:
                    continue
                own = place.batches[self.rng.choice((0, 0, 0, 2)) :]
                own = own[: len(own) - self.rng.choice((0, 0, 0, 1))]
                own = [batch for batch in own if self.rng.random() >= self.faults / 4]
                if own:
                    self.write_log(folder / f"broker-{broker}" / f"{place.topic}-{place.number}", own)

    def write_log(self, folder: Path, batches: Sequence[RecordBatch]) -> None:
        """Write a log in segments of one size; each is a split, so that transactions cross the edges of splits."""
        folder.mkdir(parents=True)
        for at in range(0, len(batches), self.segment_batches):
            own = batches[at : at + self.segment_batches]
            write_segment(folder / f"{own[0].base_offset:020d}.log", [batch.encode() for batch in own])

    def write_history(self, folder: Path, cut: int) -> list[Path]:
        """Write the events in two files; ``cut`` are in the first."""
        paths = [folder / f"{number}.jsonl" for number in range(2)]
        for path, events in zip(paths, (self.events[:cut], self.events[cut:]), strict=True):
            write_history(path, events)
        return paths

    def declare(self, other: DeclaredWorld) -> None:
        """Add the events of an application that is declared."""
        self.events = [
            replace(event, order=order, time_us=NOW_US + order) for order, event in enumerate(other.among(self.events))
        ]

    def disturb(self) -> None:
        """Perhaps split the events into two runs, take their order away, shuffle or deal them."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.1:
            self.events = [replace(event, order=None if rng.random() < 0.5 else event.order) for event in self.events]
        elif kind < 0.2:
            self.events = [replace(event, run=rng.choice("rs")) for event in self.events]
        elif kind < 0.3:
            rng.shuffle(self.events)
        elif kind < 0.4:
            self.events.sort(key=lambda _: rng.random() < 0.5)  # two files of the same time, one after the other


def rows_of(result: Join) -> Counter[tuple[object, ...]]:
    """Findings and figures, as rows that can be compared."""
    rows: Counter[tuple[object, ...]] = Counter(map(astuple, result.findings))
    rows.update((rule, *each) for rule in HISTORY_RULES for each in result.figures[rule].items())
    return rows


def _outcome(judge: Callable[[], Join]) -> tuple[Counter[tuple[object, ...]], Counter[str]]:
    """The rows of a judgement and the findings of each rule; one row for a declaration that nothing fits."""
    try:
        result = judge()
        return rows_of(result), Counter(finding.rule for finding in result.findings)
    except WrongQuestion as error:
        return Counter({(WRONG_QUESTION, str(error)): 1}), Counter({WRONG_QUESTION: 1})


def difference(seed: int) -> tuple[str, Counter[str]]:
    """The difference of the two judgements of a random history, "" for none, and the findings of each rule."""
    world = _World(seed)
    world.run()
    declared = DeclaredWorld(seed).run() if random.Random(f"declares {seed}").random() < DECLARING else None
    if declared is not None:
        world.declare(declared)
    world.disturb()
    events, rng = world.events, world.rng
    if not events:
        return "", Counter()
    with tempfile.TemporaryDirectory(prefix="kafka-eos-history-") as folder:
        world.write(Path(folder))
        if declared is not None:
            declared.write(Path(folder), world.write_log)
        brokers = sorted(Path(folder).glob("broker-*"))
        logs = find_logs(*brokers)
        paths = world.write_history(Path(folder), rng.randrange(len(events) + 1))
        wanted, rules = _outcome(partial(join, events, logs))
        engine = ShuffledEngine(rng)
        engine.buckets = rng.randint(1, 3)
        size = rng.choice((300, 5000, 1 << 20))
        ranges = partial(judge_histories, paths, logs, AT_ONE_MOMENT, engine, range_bytes=size, split_bytes=1)
        got, _ = _outcome(lambda: ranges()[1])
    if wanted == got:
        return "", rules
    return f"only readable: {[*(wanted - got)]}, only by joins: {[*(got - wanted)]}", rules


def judge(count: int, first: int = 0) -> Verdict:
    """Compare ``count`` histories, with seeds from ``first`` on."""
    return compare("histories by joins", "history", "histories", difference, count, first)
