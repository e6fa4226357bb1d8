"""A simulated run of the idempotent producer, with the events of its application and its client."""

from collections import Counter
from dataclasses import replace

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import Event, event_from_json
from kafka_eos.histories.producer_history import history
from kafka_eos.histories.simulator import Simulation
from kafka_eos.machines.idempotent_producer import IdempotentProducer

from .test_simulator import CONSTANTS, FAULTS, RECOVERY, run
from .written import Rows, event_row, replayed, runs

SEEDS = range(30)


def of(events: list[Event], action: str, phase: str) -> list[Event]:
    return [event for event in events if (event.action, event.phase) == (action, phase)]


@pytest.mark.parametrize(("acks", "expected"), runs("producer_runs.jsonl").items())
def test_each_step_is_written_as_the_events_that_it_stands_for(acks: str, expected: Rows) -> None:
    constants = replace(CONSTANTS, acks=acks, idempotence=acks != "0")
    taken = replayed(IdempotentProducer, constants, [row["step"] for row in expected])
    for each, row in zip(taken, expected, strict=True):
        events = [event_row(event) for event in history("r", [each])]
        assert events == [event | {"order": number} for number, event in enumerate(row["events"])]


@pytest.mark.parametrize("seed", SEEDS)
def test_each_value_is_sent_once_and_its_outcome_told_once_with_its_offset(seed: int) -> None:
    steps = run(seed)
    state, events = steps[-1].after, list(history("r", steps))
    assert [event.order for event in events] == list(range(len(events)))
    assert {(event.topic, event.partition) for event in events if event.action in {"Send", "Produce"}} == {
        ("simulated", 0)
    }
    assert all(event_from_json(event.to_json()) == event for event in events), "each has words that are known"
    sent = [event.detail["value"] for event in of(events, "Send", "invoke")]
    assert sent == [f"v{taken.instance.arguments[0]}" for taken in steps if taken.instance.action.name == "Send"]
    stored = {f"v{entry.value}": offset for offset, entry in enumerate(state.leaders_log.entries)}
    acknowledged = {event.detail["value"]: event for event in of(events, "Send", "ok")}
    assert set(acknowledged) == {f"v{value}" for value, outcome in state.outcome.items() if outcome == "acknowledged"}
    for value, event in acknowledged.items():
        [answer] = [each for each in of(events, "Produce", "ok") if each.detail["value"] == value]
        assert (event.offset, answer.offset, answer.error) == (stored[value], stored[value], 0)
    failed = [event.detail["value"] for event in events if event.action == "Send" and event.phase in {"fail", "info"}]
    assert sorted(failed) == sorted(f"v{value}" for value, outcome in state.outcome.items() if outcome == "failed")


def test_a_producer_that_starts_again_tells_its_crash_and_its_restart() -> None:
    constants = replace(CONSTANTS, max_producer_id=2)
    steps = list(Simulation(IdempotentProducer, constants, 1, FAULTS | {"RestartProducer": 5.0}, RECOVERY).run(50))
    told = [(event.process, event.action) for event in history("r", steps) if event.process not in CONSTANTS.replicas]
    restarts = sum(taken.instance.action.name == "RestartProducer" for taken in steps)
    ends = [(process, action) for process, action in told if action in {"Crash", "Restart"}]
    assert ends == [("producer", "Crash"), ("producer", "Restart")] * restarts != []


def test_a_value_that_a_leader_refused_has_failed_with_the_error_and_one_that_expired_without() -> None:
    constants = replace(CONSTANTS, acks="1")  # a leader that fails takes acknowledged batches with it
    told = Counter[tuple[str, int | None]]()
    for seed in SEEDS:
        steps = Simulation(IdempotentProducer, constants, seed, FAULTS, RECOVERY).run(150)
        told.update((event.phase, event.error) for event in history("r", steps) if event.action == "Send")
    assert {error for phase, error in told if phase == "info"} == {None}
    assert {error for phase, error in told if phase == "fail"} == {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER}
