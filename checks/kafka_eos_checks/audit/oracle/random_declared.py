"""Random applications that a test declares: their logs, the requests that a broker saw, and the declarations.

Applications copy inputs, in transactions of two clients. Then something goes wrong: outputs are missing, repeated, in
another transaction or outside of any, requests lack their answers or ids, offsets are committed early, late or alone,
transactions are aborted or never ended, and declarations have mistakes. All of it follows from a seed.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from kafka_eos.histories.history import COLUMN_TYPES, Event

GROUP, INPUTS = "declared", "questions"
Write = Callable[[Path, Sequence[RecordBatch]], None]


class DeclaredWorld:
    """A random application that copies ``questions`` to one topic or two, and a declaration of it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(f"declared {seed}")
        self.faults = rng.choice((0.0, 0.02, 0.1, 0.3))
        self.events: list[Event] = []
        self.logs: dict[tuple[str, int], list[RecordBatch]] = {(OFFSETS_TOPIC, 1): []}
        self.outputs = ["answers", "copies-of-answers"][: rng.choice((1, 1, 2))]
        self.reading: dict[str, str] = rng.choice(({}, {"after": "done "}, {"field": "of.id"}))
        self.one_by_one = rng.random() < 0.4  # identities are declared for each record
        self.asked_before = random.Random(f"asked before {seed}").random() < 0.3  # with other identities
        self.too_far = 0 if random.Random(f"too far {seed}").random() < 0.9 else 30  # beyond the end
        self.with_ids = rng.random() < 0.9
        self.requests = 0
        self.identities: list[tuple[str, int, int, str, str]] = []

    def run(self) -> "DeclaredWorld":
        """Write inputs, copy them, and declare the application before, between or after."""
        rng = self.rng
        partitions = range(rng.choice((1, 2)))
        copied = dict.fromkeys(partitions, 0)
        inputs: dict[int, list[tuple[int, str]]] = {number: [] for number in partitions}
        for number in range(rng.randint(1, 25)):
            partition = rng.choice(partitions)
            identity = f"v{number if rng.random() >= self.faults else rng.randrange(number + 1)}"
            aborted = rng.random() < self.faults
            offset = self.append(INPUTS, partition, self.value(INPUTS, identity), 5 if aborted else -1)
            self.identities.append((INPUTS, partition, offset, identity, ""))
            if not aborted:
                inputs[partition].append((offset, identity))
            elif rng.random() < 0.8:
                self.mark(INPUTS, partition, 5, ControlType.ABORT)
        for _ in range(rng.randint(1, 30)):
            partition = rng.choice(partitions)
            first = copied[partition]
            own = inputs[partition][first : first + rng.randint(1, 3)]
            if own and self.copy(partition, own):
                copied[partition] += len(own)
        return self

    def value(self, topic: str, identity: str) -> bytes | None:
        """A value with this identity, rarely without."""
        if self.rng.random() < self.faults / 4:
            return self.rng.choice((None, b"", b"\xff", b"{}"))
        if topic == INPUTS or not self.reading:
            return identity.encode()
        return (f"done {identity}" if "after" in self.reading else json.dumps({"of": {"id": identity}})).encode()

    def append(self, topic: str, partition: int, value: bytes | None, pid: int, key: bytes | None = None) -> int:
        """Append a record, of a transaction if there is a producer id; return its offset."""
        log = self.logs.setdefault((topic, partition), [])
        offset = (log[-1].last_offset + 1 if log else 0) + (self.rng.random() < self.faults / 10)
        own: dict[str, Any] = {"producer_id": pid, "producer_epoch": 0, "is_transactional": True} if pid >= 0 else {}
        log.append(build_batch([Record(key=key, value=value)], base_offset=offset, **own))
        return offset

    def mark(self, topic: str, partition: int, pid: int, decision: ControlType) -> None:
        """Append a marker."""
        log = self.logs.setdefault((topic, partition), [])
        marker = ControlRecord(control_type=decision, coordinator_epoch=0)
        end = log[-1].last_offset + 1 if log else 0
        log.append(build_control_batch(marker, producer_id=pid, producer_epoch=0, base_offset=end))

    def ask(self, process: str, action: str, **columns: Any) -> None:
        """Add a request and its answer."""
        rng, self.requests = self.rng, self.requests + 1
        detail = {"request": self.requests} if self.with_ids else {}
        if rng.random() < self.faults / 3:
            detail = {"request": rng.randint(1, self.requests)}
        detail |= columns.pop("detail", {})
        phases = ["invoke", "ok"]
        if rng.random() < self.faults:
            phases = rng.choice((["invoke"], ["ok"], ["invoke", "fail"], ["invoke", "ok", "ok"], ["invoke", "invoke"]))
        for phase in phases:
            fields = {name: columns[name] for name in COLUMN_TYPES if name in columns}
            self.events.append(Event(run="r", process=process, action=action, phase=phase, detail=detail, **fields))

    def copy(self, partition: int, inputs: Sequence[tuple[int, str]]) -> bool:
        """Copy some inputs in a transaction; return whether their offset is committed."""
        rng, faults, number = self.rng, self.faults, self.rng.randint(0, 1)
        pid, process, who = 60 + number, f"d{number}", {"transactional_id": f"copier-{number}"}
        touched = set()
        for _, identity in inputs:
            for topic in self.outputs:
                for which in range(1 if rng.random() >= faults / 2 else rng.choice((0, 2))):
                    outside = rng.random() < faults / 2
                    place = rng.choice((0, 0, 1))
                    told = identity if rng.random() >= faults / 2 else f"v{rng.randrange(40)}"
                    offset = self.append(topic, place, self.value(topic, told), -1 if outside else pid)
                    self.identities.append((topic, place, offset, told, rng.choice(("", f"{which}"))))
                    touched |= set() if outside else {(topic, place)}
                    columns = {"topic": topic, "partition": place, "offset": offset, "record_count": rng.choice((1, 2))}
                    self.ask(process, "Produce", **columns, **({} if outside else who))
        behind = inputs[-1][0] + 1 + (rng.randint(-2, 3) if rng.random() < faults else 0) + self.too_far
        alone = rng.random() < faults / 2
        if rng.random() >= faults:
            key = OffsetCommitKey(group=GROUP, topic=INPUTS, partition=partition).encode()
            self.append(OFFSETS_TOPIC, 1, OffsetCommitValue(offset=max(behind, 0)).encode(), -1 if alone else pid, key)
            touched |= set() if alone else {(OFFSETS_TOPIC, 1)}
            where = {"topic": INPUTS, "partition": partition, "group": GROUP, "detail": {"committed_offset": behind}}
            other = {"transactional_id": "copier-0"} if rng.random() < faults else who
            self.ask(process, "OffsetCommit" if alone else "TxnOffsetCommit", **where, **({} if alone else other))
        decision = rng.choice((ControlType.COMMIT, ControlType.COMMIT, ControlType.ABORT))
        if rng.random() < faults / 2:
            self.ask(process, "InitProducerId", **who)
            return False
        for topic, place in sorted(touched):
            self.mark(topic, place, pid, decision if rng.random() >= faults / 4 else ControlType(1 - decision))
        self.ask(process, "EndTxn", detail={"committed": decision is ControlType.COMMIT}, **who)
        return decision is ControlType.COMMIT

    def declaration(self) -> list[Event]:
        """The events that declare the application."""
        rng = self.rng
        about: dict[str, Any] = {"run": "r", "process": "test", "phase": "ok", "group": GROUP}
        checked = {"checked": True} if rng.random() < 0.5 else {}
        head = Event(**about, action="DeclareApplication", detail={"everything": rng.random() < 0.8} | checked)
        topics: list[tuple[str, dict[str, Any]]] = [(INPUTS, {"role": "input"})]
        topics += [(topic, {"role": "output"} | self.reading) for topic in self.outputs]
        told = [head]
        for topic, reading in topics:
            told.append(Event(**about, action="DeclareTopic", topic=topic, detail=dict(reading)))
        if rng.random() < self.faults / 2:
            told.insert(rng.randrange(len(told) + 1), head)
        if self.one_by_one:
            for topic, partition, offset, identity, which in self.identities:
                where: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
                detail = {"identity": identity} | ({"output": which} if which else {})
                told += [Event(**about, action="DeclareRecord", **where, detail=detail)] * (
                    1 if rng.random() >= self.faults / 4 else rng.choice((0, 2))
                )
        if rng.random() < self.faults / 2:
            number = rng.randrange(len(told))
            change: dict[str, Any] = rng.choice(
                ({"group": None}, {"group": "other"}, {"topic": None}, {"detail": {}}, {"offset": None})
            )
            told[number] = replace(told[number], **change)
        if self.asked_before:
            before = [
                Event(**about, action="DeclareRecord", topic=topic, partition=partition, offset=offset, detail=detail)
                for topic, partition, offset, identity, which in self.identities
                for detail in [{"identity": f"before {identity}"}]
            ]
            told = [head, *before, *told]
        return told

    def among(self, events: Sequence[Event]) -> list[Event]:
        """The events of the application and its declaration, and others, in a random order that keeps each one's."""
        parts = [list(events), self.events, self.declaration()]
        dealt = [number for number, part in enumerate(parts) for _ in part]
        self.rng.shuffle(dealt)
        rest = [iter(part) for part in parts]
        return [next(rest[number]) for number in dealt]

    def write(self, folder: Path, write: Write) -> None:
        """Write the logs, perhaps without some of them, or on two brokers of which one lacks the last batch."""
        for (topic, partition), batches in self.logs.items():
            if batches and self.rng.random() >= self.faults / 10:
                write(folder / "broker-0" / f"{topic}-{partition}", batches)
                if self.rng.random() < 0.2 and len(batches) > 1:
                    write(folder / "broker-1" / f"{topic}-{partition}", batches[:-1])
