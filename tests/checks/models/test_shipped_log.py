"""The reference with the rules of Kafka 4.3 goes step by step with Kafka's own log of a partition, UnifiedLog.

This holds ``spec/releases.toml`` to the code that it speaks of: a rule that a release has otherwise, and that nobody
has written down, is a step that differs.
"""

import random
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
    decode_batch,
)
from kafka_eos.machines.leader import NO_EPOCH, NO_GUARD, NO_SEQUENCE, NOTHING_ASKED, OUTSIDE, LeaderRules, Rules
from kafka_eos.machines.producer_state import Log
from kafka_eos.machines.read_committed import IndexedTransaction
from kafka_eos.machines.spec_mapping import snake_case
from kafka_eos.machines.transactional_partition import (
    NO_PRODUCER,
    PLAIN,
    TRANSACTIONAL,
    LogEntry,
    PartitionConstants,
    PartitionProducer,
    TransactionalPartition,
    batch_entry,
    marker_entry,
)
from kafka_eos.machines.transactions import GuardRules
from kafka_eos.server.partitions import Leader, Ticket
from kafka_eos.server.storage import Memory, MemoryStore
from kafka_eos_checks.brokers.brokers import java_command
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.mutants.rules import mutated

START_MS = 1_700_000_000_000
EXPIRATION_MS = 60_000  # of tests/java/PartitionLog.java
LAST_EPOCH, LAST_SEQUENCE = 32_767, 2**31 - 1
SEED, STEPS, STEPS_OF_FOLLOWER = 1, 8_000, 2_000
A_RECORD = Record(value=b"v")
EACH_KAFKA = pytest.mark.parametrize("kafka", [KAFKA_VERSION, pytest.param(NEWEST, marks=pytest.mark.thorough)])


def shipped(base: type[Any], module: str) -> Any:
    """A class with the rules of a module, those of Kafka 4.3 in the place of the spec's."""
    rules = [rule for rule in Releases().rules if rule.module == module and "4.3" in rule.by_release]
    return mutated(base, {rule.name: rule.by_release["4.3"] for rule in rules if hasattr(base, snake_case(rule.name))})


def of_kafka() -> LeaderRules:
    """The rules of a leader of Kafka 4.3."""
    sequences, guards = shipped(Log, "ProducerState"), shipped(GuardRules, "Transactions")
    return LeaderRules(leader=shipped(Rules, "Leader"), sequences=sequences, guards=guards)


@dataclass(slots=True, kw_only=True)
class Ageing(Leader):
    """A leader whose questions wait for answers, and expire by their age; the server has each answered at once.

    Attributes:
        asked_ms: by producer, when the first of its questions was asked.
    """

    asked_ms: dict[int, int] = field(default_factory=dict)

    def _forget_questions(self, producer_id: int) -> None:
        """A producer that expires leaves its questions."""

    def expire(self, before: int) -> None:
        """Forget the producers that have been silent, and the questions that were asked, since a time."""
        Leader.expire(self, before)
        for producer_id, questions in self.state.asked.items():
            if questions.guard_epoch != NO_EPOCH and self.asked_ms[producer_id] <= before:
                nothing = replace(NOTHING_ASKED, guard=questions.guard + 1)
                self.state = replace(self.state, asked=self.state.asked.set(producer_id, nothing))


def in_words(
    end: int, stable: int, producers: Mapping[int, tuple[PartitionProducer, int]], index: Iterable[IndexedTransaction]
) -> str:
    """A log's end, last stable offset, producers with their last sequences, and index, as Kafka's log tells them."""
    known = ",".join(
        f"{producer_id}:{each.epoch}:{sequence}:{each.coordinator_epoch}:{each.first_offset}"
        for producer_id, (each, sequence) in sorted(producers.items())
    )
    aborted = (f"{one.producer_id}:{one.first_offset}:{one.last_offset}:{one.last_stable_offset}" for one in index)
    return f"{end} {stable} {known} {','.join(aborted)}"


class Run:
    """A random run of both: the steps as Kafka's log is told them, and what the reference answers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rules = of_kafka()
        self._now = START_MS
        self.steps: list[str] = []
        self.answers: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Go on with a new log: of a client's topic, or of one that only coordinators write."""
        self._leader = Ageing(
            topic="t", partition=0, node=1, replicas=(1,), store=MemoryStore(Memory()), rules=self._rules
        )
        self._tickets: list[tuple[int, int, Ticket] | None] = []
        self._producers = self._rng.sample([1, 2, 3], self._rng.choice([1, 2]))
        self._is_of_coordinator = self._rng.random() < 0.2
        self._tell("new", "ok")

    def _tell(self, step: str, answer: str) -> None:
        leader = self._leader
        producers = {each: (leader.producer(each), leader.last_sequence(each)) for each in leader.last_timestamps}
        index = leader.transactions.log.aborted_index
        self.steps.append(step)
        self.answers.append(
            f"{answer} | {in_words(leader.log_end_offset, leader.last_stable_offset, producers, index)}"
        )

    def _draw(self) -> tuple[int, int, int]:
        """A producer, an epoch and a sequence: mostly the next ones, some that are late, early or the last."""
        rng, producer_id = self._rng, self._rng.choice(self._producers)
        known = self._leader.producer(producer_id).epoch
        epoch = rng.choice([known] * 8 + [known + 1] * 2 + [known - 1]) if rng.random() < 0.99 else LAST_EPOCH
        epoch = min(max(epoch, 0), LAST_EPOCH)
        due = (self._leader.last_sequence(producer_id) + 1) % (LAST_SEQUENCE + 1) if epoch == known else 0
        early_or_late = [due + 1, 0, max(due - 1, 0), max(due - 2, 0), LAST_SEQUENCE - 1, LAST_SEQUENCE]
        return producer_id, epoch, rng.choice([due] * 10 + early_or_late)

    def go(self) -> None:
        """Take one more step."""
        kind = self._rng.random()
        if kind < 0.03:
            self.begin()
        elif kind < 0.25:
            self._verify(*self._draw(), self._rng.choice([1, 2, 2]))
        elif kind < 0.65:
            self._append(*self._draw())
        elif kind < 0.85:
            self._mark(*self._draw()[:2])
        elif kind < 0.92:
            self._wait(self._rng.choice([1, 1_000, EXPIRATION_MS // 2, EXPIRATION_MS + 1]))
        else:
            self._read(self._rng.randint(0, self._leader.log_end_offset), self._rng.random() < 0.7)

    def _verify(self, producer_id: int, epoch: int, sequence: int, version: int) -> None:
        leader, ticket, answer = self._leader, None, "none"
        if (error := leader.verification_error(producer_id, epoch)) is not ErrorCode.NONE:
            answer = f"error {int(error)}"
        elif leader.needs_verification(producer_id, epoch, version):
            if leader.state.questions(producer_id).guard_epoch == NO_EPOCH:
                leader.asked_ms[producer_id] = self._now
            answer, ticket = "asked", leader.start_verification(producer_id, epoch, sequence, version)
        self._tickets.append(None if ticket is None else (producer_id, epoch, ticket))
        self._tell(f"verify {producer_id} {epoch} {sequence} {version}", answer)

    def _append(self, producer_id: int, epoch: int, sequence: int) -> None:
        rng, guard, ticket, origin = self._rng, NO_GUARD, None, "CLIENT"
        producer: dict[str, Any] = {}
        kind = rng.choice(["transactional"] * 4 + ["idempotent", "plain"])
        if kind == "transactional":
            ticket = Ticket(rng.choice([1, 2, 2]))
            held = [number for number, one in enumerate(self._tickets) if one is not None and one[0] == producer_id]
            if held and rng.random() < 0.85:
                guard = held[-1] if rng.random() < 0.8 else rng.choice(held)
                _, epoch_asked, ticket = self._tickets[guard]  # type: ignore[misc] - it is held
                epoch = epoch_asked if rng.random() < 0.9 else epoch
            if self._is_of_coordinator:
                sequence, origin = NO_SEQUENCE, "COORDINATOR"
        if kind != "plain" and (kind == "transactional" or not self._is_of_coordinator):
            producer = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        records = [replace(A_RECORD, offset_delta=place) for place in range(rng.choice([1, 1, 2, 3]))]
        batch = build_batch(records, base_timestamp=self._now, is_transactional=ticket is not None, **producer)
        appended = self._leader.append(batch, batch.encode(), ticket, self._now)
        version = OUTSIDE if ticket is None else ticket.version
        answer = f"at {appended.base_offset}" if appended.error is ErrorCode.NONE else f"error {int(appended.error)}"
        self._tell(f"append {batch.encode().hex()} {version} {guard} {origin}", answer)

    def _mark(self, producer_id: int, epoch: int) -> None:
        known = self._leader.producer(producer_id)
        epoch = self._rng.choice([epoch, max(known.epoch, 0), min(known.epoch + 1, LAST_EPOCH)])
        coordinator_epoch = max(known.coordinator_epoch, 0) + self._rng.choice([0, 0, 0, 1, -1])
        commit, version = self._rng.random() < 0.5, self._rng.choice([1, 2, 2])
        error = self._leader.append_marker(producer_id, epoch, commit, coordinator_epoch, version, self._now)
        answer = f"at {self._leader.log_end_offset - 1}" if error is ErrorCode.NONE else f"error {int(error)}"
        self._tell(f"marker {producer_id} {epoch} {int(commit)} {coordinator_epoch} {version}", answer)

    def _wait(self, milliseconds: int) -> None:
        self._now += milliseconds
        self._tell(f"wait {milliseconds}", "ok")
        if self._rng.random() < 0.4:
            self._leader.expire(self._now - EXPIRATION_MS)
            self._tell("expire", "ok")

    def _read(self, offset: int, committed: bool) -> None:
        leader = self._leader
        upper = leader.last_stable_offset if committed else leader.high_watermark
        data = leader.store.read(offset, upper, 1 << 20, at_least_one=True) if offset < upper else b""
        last = max((batch.last_offset for batch in _batches(data)), default=-1)
        aborted = leader.aborted_between(offset, last + 1) if committed and data else []
        told = ",".join(f"{one.producer_id}:{one.first_offset}" for one in aborted)
        self._tell(f"read {offset} {int(committed)}", f"up to {last} {told}")


def _batches(data: bytes) -> Iterator[RecordBatch]:
    position = 0
    while position < len(data):
        batch, position = decode_batch(data, position)
        yield batch


def by_kafka(steps: Sequence[str], kafka: str = KAFKA_VERSION) -> list[str]:
    """What Kafka's log answers."""
    program = Path(__file__).parents[2] / "java" / "PartitionLog.java"
    given = "".join(f"{step}\n" for step in steps)
    command = java_command(str(program), str(START_MS), kafka=kafka)
    done = subprocess.run(command, input=given, capture_output=True, check=True, text=True, timeout=300)
    return done.stdout.splitlines()


def without_later_aborts(answer: str) -> str:
    """The answer to a read without the aborted transactions after its last record. Kafka tells some of these, too."""
    found, bar, state = answer.partition(" | ")
    first, last, aborted = found.rpartition(" ")[0], int(found.split()[2]), found.rpartition(" ")[2]
    kept = [each for each in aborted.split(",") if each and int(each.split(":")[1]) <= last]
    return f"{first} {','.join(kept)}{bar}{state}"


@pytest.mark.java
@EACH_KAFKA
def test_the_reference_with_kafkas_rules_goes_step_by_step_with_kafkas_log(kafka: str) -> None:
    run = Run(random.Random(SEED))
    while len(run.steps) < STEPS:
        run.go()
    answers = by_kafka(run.steps, kafka)
    assert len(answers) == len(run.steps)
    reached = Counter[str]()
    for place, (step, expected, answer) in enumerate(zip(run.steps, run.answers, answers, strict=True)):
        kind = step.partition(" ")[0]
        theirs = without_later_aborts(answer) if kind == "read" else answer
        assert theirs == expected, "\n".join(run.steps[max(0, place - 20) : place + 1])
        reached[f"{kind} {' '.join(answer.split()[:2]) if answer.startswith('error') else 'answered'}"] += 1
    refused = {f"append error {code}" for code in (45, 47, 48)} | {f"marker error {code}" for code in (47, 52)}
    done = {f"{kind} answered" for kind in ("new", "wait", "expire", "verify", "append", "marker", "read")}
    assert reached.keys() == done | refused | {"verify error 47"}


@pytest.mark.java
def test_a_question_of_version_2_that_was_left_over_lets_a_transaction_of_version_1_hang() -> None:
    late = build_batch([A_RECORD], producer_id=1, producer_epoch=1, base_sequence=0, is_transactional=True)
    steps, append = ["verify 1 1 0 1", "marker 1 1 0 0 1"], f"append {late.encode().hex()} 1"
    alone = ["new", *steps, f"{append} 0 CLIENT"]
    after_another = ["new", "verify 1 0 0 2", *steps, f"{append} 1 CLIENT"]
    answers = by_kafka([*alone, *after_another])
    assert [answers[3], answers[-1]] == ["error 48 | 1 1 1:1:-1:0:-1 ", "at 1 | 2 1 1:1:0:0:1 "]


class Follower:
    """A random run of a follower's log: responses with several batches, high watermarks, and restarts."""

    CONSTANTS = PartitionConstants(
        producer_ids=frozenset({1, 2, 3}),
        epochs=frozenset(),
        coordinator_epochs=frozenset(),
        batch_kinds=frozenset(),
        offsets=frozenset(),
        transaction_version=1,
        max_epoch=LAST_EPOCH,
        max_leader_epoch=0,
        index_failures=False,
        expiration=False,
        cleaning=False,
    )

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._rules = shipped(TransactionalPartition, "TransactionalPartition")
        self.steps: list[str] = []
        self.answers: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Go on with a new log."""
        self._replica = self._rules(constants=self.CONSTANTS, log=self._rules.empty_log(self.CONSTANTS))
        self._sequences: dict[int, int] = {}
        self._tell("new")

    @property
    def _end(self) -> int:
        return int(self._replica.log_end_offset(self._replica.log))

    def _tell(self, step: str) -> None:
        replica = self._replica
        producers = {
            each: (known, self._sequences.get(each, NO_SEQUENCE))
            for each, known in replica.log.producers.items()
            if known != NO_PRODUCER
        }
        told = in_words(self._end, replica.last_stable_offset(), producers, replica.log.aborted_index)
        self.steps.append(step)
        self.answers.append(f"ok | {told}")

    def go(self) -> None:
        """Take one more step."""
        kind = self._rng.random()
        if kind < 0.03:
            self.begin()
        elif kind < 0.6:
            self._follow(self._rng.choice([1, 1, 2, 3, 4, 6]))
        elif kind < 0.95:
            self._replicate(self._rng.randint(self._replica.high_watermark, self._end))
        else:
            self._replica = replace(self._replica, log=self._replica.after_load(self._replica.log))
            self._replicate(self._replica.high_watermark, "restart")

    def _replicate(self, watermark: int, step: str = "") -> None:
        log = self._replica.with_replicated(self._replica.log, watermark)
        self._replica = replace(self._replica, log=log, high_watermark=watermark)
        self._tell(step or f"watermark {watermark}")

    def _follow(self, count: int) -> None:
        """A response with some entries, as a leader has written them."""
        entries, data, leader = list[LogEntry](), b"", self._replica.log
        for offset in range(self._end, self._end + count):
            producer_id = self._rng.choice([1, 2, 3])
            make = self._batch if self._rng.random() < 0.55 else self._marker
            entry, batch = make(producer_id, leader.producers[producer_id], offset)
            leader = self._replica.written(leader, entry)
            entries.append(entry)
            data += batch.encode()
        self._replica = replace(self._replica, log=self._replica.replay(self._replica.log, entries))
        self._tell(f"follow {data.hex()}")

    def _batch(self, producer_id: int, known: PartitionProducer, offset: int) -> tuple[LogEntry, RecordBatch]:
        is_transactional = known.is_open or self._rng.random() < 0.8
        epoch = max(known.epoch, 0) + (self._rng.random() < 0.1 and not known.is_open)
        sequence = self._sequences.get(producer_id, NO_SEQUENCE) + 1 if epoch == known.epoch else 0
        self._sequences[producer_id] = sequence
        batch = build_batch(
            [A_RECORD],
            base_offset=offset,
            partition_leader_epoch=0,
            base_timestamp=START_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
        )
        return replace(
            batch_entry(producer_id, epoch, TRANSACTIONAL if is_transactional else PLAIN), offset=offset
        ), batch

    def _marker(self, producer_id: int, known: PartitionProducer, offset: int) -> tuple[LogEntry, RecordBatch]:
        epoch, commit = max(known.epoch, 0) + (self._rng.random() < 0.4), self._rng.random() < 0.4
        coordinator_epoch = max(known.coordinator_epoch, 0) + (self._rng.random() < 0.1)
        if epoch != known.epoch:
            self._sequences.pop(producer_id, None)
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        batch = build_control_batch(
            ControlRecord(control_type=kind, coordinator_epoch=coordinator_epoch),
            base_offset=offset,
            partition_leader_epoch=0,
            timestamp=START_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        return replace(marker_entry(producer_id, epoch, commit, coordinator_epoch), offset=offset), batch


@pytest.mark.java
@EACH_KAFKA
def test_a_follower_with_kafkas_rules_goes_step_by_step_with_kafkas_log(kafka: str) -> None:
    run = Follower(random.Random(SEED))
    while len(run.steps) < STEPS_OF_FOLLOWER:
        run.go()
    answers = by_kafka(run.steps, kafka)
    assert len(answers) == len(run.steps)
    for place, (expected, answer) in enumerate(zip(run.answers, answers, strict=True)):
        assert answer == expected, "\n".join(run.steps[max(0, place - 5) : place + 1])
    assert {step.partition(" ")[0] for step in run.steps} == {"new", "follow", "watermark", "restart"}
