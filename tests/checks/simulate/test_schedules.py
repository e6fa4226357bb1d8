"""Every schedule with one fault and with two: the order, paused instances, and the output."""

import argparse
from dataclasses import replace

import pytest

from kafka_eos.machines.consume_transform_produce import V2
from kafka_eos.machines.idempotent_producer import IdempotentProducer
from kafka_eos.machines.machine import actions
from kafka_eos_checks.simulate import command, mirror, payment
from kafka_eos_checks.simulate.schedules import (
    MOST_TOLD,
    Fault,
    Schedules,
    Tally,
    first_step,
    run_scenarios,
    shortened,
    takes_effect,
    try_all,
    try_scenario,
)
from kafka_eos_checks.simulate.transfer import CRASH, transfer
from kafka_eos_checks.simulate.word_count import ORDERS, scenarios, word_count


def test_the_wrong_schedule_with_the_fewest_faults_is_shown() -> None:
    (scenario,) = scenarios("OffsetWithoutPlusOne")
    tally = Tally()
    try_all(Schedules(next(iter(ORDERS)), scenario), tally, only_step=1)
    assert tally.shown is not None
    assert tally.shown.size[0] == 0


def test_what_has_crashed_cannot_crash_again() -> None:
    tried = Schedules(next(iter(ORDERS)), word_count(V2))
    crashed = tried.failed(tried.start(), Fault(CRASH, "A"))
    assert crashed is not None
    assert tried.failed(crashed, Fault(CRASH, "A")) is None


def test_with_one_named_step_the_first_fault_comes_only_before_it() -> None:
    scenario = transfer(transactional=True)
    every = try_scenario(scenario)
    named = [try_scenario(scenario, only_step=step) for step in range(1, 60)]
    assert sum(tally.singles for tally in named) == every.singles
    assert sum(tally.pairs for tally in named) == every.pairs
    assert every.schedules == every.without + every.singles + every.pairs


def test_a_fault_that_is_itself_a_wrong_step_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = replace(transfer(transactional=True), kinds=(CRASH,))
    monkeypatch.setattr(type(scenario), "wrong_step", lambda _, one, other: "a fault" * (one.faults < other.faults))
    tally = try_scenario(scenario)
    assert tally.wrong == tally.singles + tally.pairs


def test_an_input_takes_effect_with_its_offset_and_in_no_other_way() -> None:
    before = {"p": 0}, {"p": {1: 0, 2: 0}}
    assert takes_effect(before, before)
    assert takes_effect(before, ({"p": 1}, {"p": {1: 1, 2: 0}}))
    assert takes_effect(before, ({"p": 2}, {"p": {1: 1, 2: 1}}))
    assert not takes_effect(before, ({"p": 2}, {"p": {1: 1, 2: 0}}))
    assert not takes_effect(before, ({"p": 0}, {"p": {1: 1, 2: 0}}))
    assert not takes_effect(before, ({"p": 1}, {"p": {1: 2, 2: 0}}))
    assert not takes_effect(({"p": 1}, {"p": {1: 1, 2: 0}}), before)


def test_what_failed_and_what_ended_wrong_is_told_in_words() -> None:
    copying, paying = mirror.mirror("source"), payment.payment(payment.STRATEGIES[0])
    assert copying.told(Fault(mirror.CRASH, "A")) == "task A crashes"
    assert paying.told(Fault(payment.CRASH, payment.RELAY)) == "the relay crashes"
    assert word_count(V2).told(Fault("crashes", "B")) == "instance B crashes"
    copied = replace(copying.machine.initial(copying.constants), target=(1, 2, 2))
    assert copying.wrong_end(copied) == "record 2 is in the target 2 times; record 3 is in the target 0 times"
    charged = replace(paying.machine.initial(paying.constants), effects=(1, 1))
    assert paying.wrong_end(charged) == "input 1 is charged 2 times; input 2 is charged 0 times"


def test_every_action_that_is_no_fault_has_the_ordinary_weight() -> None:
    assert {action.name for action in actions(IdempotentProducer)} - command.FAULTS.keys() == {
        *("AllocateProducerId", "Send", "AppendBatch", "AcknowledgeDuplicate", "RefuseBatch", "ReceiveAcknowledgement"),
        *("ReceiveError", "Replicate", "AdvanceHighWatermark", "ExpandIsr", "FenceReplica", "TruncateFollower"),
        *("LoseUnflushed", "Restart"),
    }


def test_violations_are_listed_up_to_a_limit() -> None:
    assert shortened([]) == ""
    assert shortened(["a", "b"]) == "a; b"
    assert shortened(["x"] * (MOST_TOLD + 2)) == "x; x; x; and 2 more"


def test_the_step_of_a_crash_is_a_number_or_every_step() -> None:
    assert (first_step("every-step"), first_step("3")) == (0, 3)
    for text in ("0", "-1", "often", "²"):
        with pytest.raises(argparse.ArgumentTypeError):
            first_step(text)


def test_a_step_before_which_no_fault_comes_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scenario = transfer(transactional=True)
    steps = {step for step in range(1, 60) if try_scenario(scenario, only_step=step).singles}
    assert run_scenarios([scenario], 60) == 2
    there = f"the first step before which one can come is {min(steps)}, the last is {max(steps)}"
    assert capsys.readouterr().err == f"kafka-eos simulate: --crash-at 60: no fault comes before step 60; {there}\n"


def test_a_scenario_fails_if_it_is_right_but_must_be_wrong_and_conversely(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with_transactions, without = transfer(transactional=True), transfer(transactional=False)
    assert run_scenarios([with_transactions, without], 0) == 0
    untried = replace(with_transactions, orders={})
    assert run_scenarios([with_transactions, untried], 0) == 1, "nothing was tried of it"
    assert run_scenarios([without], 10) == 1, "the last step, after everything was sent"
    assert "4 with one, 12 with two), 0 wrong" in capsys.readouterr().out.splitlines()[-1]
