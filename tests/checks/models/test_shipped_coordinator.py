"""The reference's coordinator with the rules of Kafka 4.3 goes step by step with Kafka's own TransactionCoordinator.

As ``test_shipped_log`` does for the log of a partition. The runs have appends that fail, failovers that lose records,
ids at the end of their epochs, and requests between the two halves of a fence, where a thread of Kafka has to be held.
"""

import random
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.transaction_coordinator import (
    COMPLETE,
    DEAD,
    EMPTY,
    FENCE,
    NO_ANSWER,
    NO_PRODUCER_ID,
    NOTHING,
    ONGOING,
    PREPARED_STATES,
    UNKNOWN,
    Constants,
    TransactionCoordinator,
)
from kafka_eos_checks.brokers.brokers import java_command
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.mutants.rules import mutated

START_MS = 1_700_000_000_000
LAST_EPOCH = 32_767
SEED, STEPS = 1, 5_000
NOT_PLAYED = {"LastRead"}  # of replicas that cannot read a record, and here each can read all


def of_kafka() -> type[Any]:
    """The coordinator with the rules of Kafka 4.3."""
    rules = [rule for rule in Releases().rules if rule.module == "TransactionCoordinator" and "4.3" in rule.by_release]
    return mutated(
        TransactionCoordinator, {rule.name: rule.by_release["4.3"] for rule in rules if rule.name not in NOT_PLAYED}
    )


class Run:
    """A random run: the steps as Kafka's coordinator is told them, and what the reference answers."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._machine = of_kafka()
        self.steps: list[str] = []
        self.answers: list[str] = []
        self._given: list[str] = []
        self.begin()

    def begin(self) -> None:
        """Go on with another coordinator, of a cluster of version 1 or 2."""
        self._version = self._rng.choice([1, 2, 2])
        epoch = self._rng.choice([-1, -1, 0, *range(LAST_EPOCH - 4, LAST_EPOCH)])
        constants = Constants(
            producer_ids=frozenset(),
            max_epoch=LAST_EPOCH,
            partitions=frozenset("pq"),
            versions=frozenset(range(1, self._version + 1)),
            faults=frozenset({"append times out", "timeout", "failover"}),
            max_faults=STEPS,
        )
        self._state = self._machine.initial(constants)
        if epoch >= 0:
            at_rest = replace(UNKNOWN, producer_id=0, epoch=epoch, state=EMPTY)
            self._state = replace(self._state, metadata=at_rest, allocated=1)
        self._is_in_log = epoch < 0
        self._waits = False  # the append that completes a transaction has failed, and is to be tried again
        self._is_interrupting = False  # the append of an abort that came between the halves of a fence
        self._tell(f"new {self._version} {epoch}")

    def _become(self, state: Any) -> None:
        """Take a step, after which the coordinator completes a transaction whose markers are all written."""
        answer = state.answer
        if answer.request != NOTHING:
            self._given.append(f"{int(answer.error)}:{answer.producer_id}:{answer.epoch}")
        if not self._waits and state._marks() and state.may_complete():
            state = state.complete_transaction()
        self._state = replace(state, answer=NO_ANSWER)

    def _tell(self, step: str) -> None:
        known = self._state.metadata
        is_marking = known.state in PREPARED_STATES and known.pending is not None
        columns = (
            *(known.producer_id, known.previous_producer_id, known.next_producer_id, known.epoch, known.last_epoch),
            *(known.state.name, "-" if known.pending is None else known.pending.name),
            *("+".join(sorted(self._state.to_mark if is_marking else known.partitions)), known.version),
            *(str(known.failed_fence).lower(), str(not self._state.is_idle()).lower()),
        )
        told = "unknown" if known.state is DEAD else ":".join(map(str, columns))
        self.steps.append(step)
        self.answers.append(f"{','.join(self._given)} | {told}")
        self._given.clear()

    def go(self) -> None:
        """Take one more step."""
        kind = self._rng.random()
        if kind < 0.02:
            self.begin()
        elif kind < 0.05 and self._is_in_log:
            self._tell(self._fail_over())
        elif kind < 0.45 and not self._state.is_idle():
            self._tell(self._end_append())
        elif kind < 0.55:
            self._tell(self._init())
        elif kind < 0.6:
            self._tell(self._time_out())
        elif kind < 0.92:
            self._tell(self._request(self._identity()))
        elif self._state._marks() and self._state.to_mark:
            self._tell(self._mark())
        elif self._waits and self._state.is_idle():
            self._waits = False
            self._become(self._state)
            self._tell("retry")

    def _identity(self) -> tuple[int, int]:
        """A producer id and epoch: mostly those that are known, some that were or will be."""
        known = self._state.metadata
        others = [known.previous_producer_id, known.next_producer_id, known.producer_id + 1]
        producer_id = self._rng.choice([known.producer_id] * 8 + others)
        epochs = [known.epoch - 1] * 2 + [known.epoch + 1, known.last_epoch, LAST_EPOCH - 1, LAST_EPOCH - 2, 0, 0]
        return max(producer_id, 0), min(max(self._rng.choice([known.epoch] * 7 + epochs), 0), LAST_EPOCH)

    def _fail_over(self) -> str:
        kept = self._rng.randint(0, len(self._state.unreplicated()))
        self._waits = self._is_interrupting = False
        self._become(self._state.failover(kept))
        return f"failover {kept}"

    def _end_append(self, failing: float = 0.2) -> str:
        """Let an append end.

        Departs from Kafka: if that of an abort that came between the halves of a fence fails, the next fence there does
        not raise the epoch. No such append fails here.
        """
        if self._is_interrupting or self._rng.random() >= failing:
            self._waits = self._is_interrupting = False
            self._is_in_log = True
            self._become(self._state.append_is_replicated())
            return "done"
        self._waits = self._waits or self._state.appending.request == COMPLETE
        self._become(self._state.append_times_out())
        return "fails"

    def _init(self) -> str:
        known = self._state.metadata
        producer_id, epoch = self._identity() if self._rng.random() < 0.5 else (NO_PRODUCER_ID, -1)
        if known.last_epoch >= 0 and self._rng.random() < 0.3:  # a retry of what gave the present epoch
            producer_id = known.previous_producer_id if known.epoch == 0 else known.producer_id
            epoch = known.last_epoch
        self._become(self._state.handle_init_producer_id(producer_id, epoch))
        return f"init {producer_id} {epoch}{self._between_halves()}"

    def _time_out(self) -> str:
        if self._state.metadata.state is ONGOING and self._state.metadata.pending is None:
            self._become(self._state.time_out())
        return f"timeout{self._between_halves()}"

    def _between_halves(self) -> str:
        """Take steps between the halves of a fence that has begun, and then its second half."""
        if self._state.fencing == NOTHING:
            return ""
        steps = []
        for _ in range(self._rng.choice([0, 0, 0, 1, 2, 3, 6, 8, 8])):
            if not self._state.is_idle() and self._rng.random() < 0.8:
                steps.append(self._end_append(failing=0.1))
            elif self._state._marks() and self._state.to_mark:
                steps.append(self._mark())
            else:
                known = self._state.metadata
                own = known.producer_id, known.epoch
                adding = 0.2 if known.pending is FENCE else 0.8  # the client aborts, and begins its next transaction
                steps.append(self._request(own if self._rng.random() < 0.9 else self._identity(), adding))
        self._become(self._state.abort_fenced())
        return "".join(f" / {step}" for step in steps)

    def _mark(self) -> str:
        partition = self._rng.choice(sorted(self._state.to_mark))
        self._become(self._state.write_marker(partition))
        return f"marked {partition}"

    def _request(self, identity: tuple[int, int], adding: float = 0.5) -> str:
        version, (producer_id, epoch) = self._rng.randint(1, self._version), identity
        is_fencing = self._state.metadata.pending is FENCE
        if self._rng.random() < adding:
            partition = self._rng.choice("pq")
            self._become(self._state.handle_add_partition(producer_id, epoch, partition, version))
            return f"add {producer_id} {epoch} {partition} {version}"
        commit = self._rng.random() < (0.2 if is_fencing else 0.5)
        if is_fencing and epoch >= LAST_EPOCH - 1:  # the one that is refused there takes a producer id that nobody gets
            commit = False
        was_idle = self._state.is_idle()
        self._become(self._state.handle_end_txn(producer_id, epoch, commit, version))
        if is_fencing and version == 1 and was_idle and not self._state.is_idle():
            self._is_interrupting = True
        return f"end {producer_id} {epoch} {int(commit)} {version}"


def by_kafka(steps: Sequence[str]) -> list[str]:
    """What Kafka's coordinator answers."""
    program = Path(__file__).parents[2] / "java" / "CoordinatorSteps.java"
    given = "".join(f"{step}\n" for step in steps)
    command = java_command(str(program), str(START_MS))
    done = subprocess.run(command, input=given, capture_output=True, check=True, text=True, timeout=300)
    return done.stdout.splitlines()


@pytest.mark.java
def test_the_coordinator_with_kafkas_rules_goes_step_by_step_with_kafkas_own() -> None:
    run = Run(random.Random(SEED))
    while len(run.steps) < STEPS:
        run.go()
    answers = by_kafka(run.steps)
    assert len(answers) == len(run.steps)
    reached, errors = set[str](), set[str]()
    for place, (step, expected, answer) in enumerate(zip(run.steps, run.answers, answers, strict=True)):
        assert answer == expected, "\n".join(run.steps[max(0, place - 20) : place + 1])
        reached |= {each.partition(" ")[0] for each in step.split(" / ")}
        errors |= {given.partition(":")[0] for given in answer.partition(" | ")[0].split(",") if given}
    kinds = {"new", "init", "add", "end", "timeout", "done", "fails", "marked", "retry", "failover"}
    assert reached == kinds
    code = ErrorCode
    expected_errors = (code.INVALID_PRODUCER_ID_MAPPING, code.INVALID_TXN_STATE, code.CONCURRENT_TRANSACTIONS)
    expected_errors += (code.PRODUCER_FENCED, code.COORDINATOR_NOT_AVAILABLE, code.NOT_COORDINATOR)
    assert errors >= {str(int(each)) for each in (code.NONE, code.UNKNOWN_SERVER_ERROR, *expected_errors)}
