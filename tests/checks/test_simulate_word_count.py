"""Word count: every place where its instances can fail, and what a protection is good for."""

import argparse

import pytest
from immutables import Map

from kafka_eos.consume_transform_produce import V1, V2, ConsumeTransformProduce
from kafka_eos.machine import actions
from kafka_eos_checks.cli import main
from kafka_eos_checks.models import MalformedRegistry
from kafka_eos_checks.simulate_word_count import (
    CRASH,
    EXPECTED,
    ORDERS,
    STALL,
    Fault,
    Schedules,
    Tally,
    constants,
    counted,
    first_step,
    machine_of,
    takes_effect,
    try_all,
    what_is_wrong,
)

ORDER = next(iter(ORDERS))


def schedules(eos: str = V2, order: str = ORDER) -> Schedules:
    return Schedules(order, ConsumeTransformProduce, constants(eos))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("eos", [V1, V2])
def test_without_a_fault_every_word_is_counted_once(eos: str, order: str) -> None:
    tried = schedules(eos, order)
    end = tried.nodes[tried.chain(tried.start())[-1]].state
    assert counted(end.outputs) == EXPECTED
    assert what_is_wrong(end.outputs, end.committed) == ""


@pytest.mark.parametrize("eos", [V1, V2])
def test_a_first_fault_before_one_step_and_every_second_one_leave_the_counts_right(eos: str) -> None:
    tally = Tally()
    try_all(schedules(eos), tally, only_step=6)
    assert (tally.wrong, tally.shown) == (0, None)
    assert tally.pairs > 100 > tally.singles > 0


@pytest.mark.parametrize(
    "mutant", ["NoGenerationCheck", "NoRequireStable", "NoSeekAfterAbort", "OffsetWithoutPlusOne", "NeverFenced"]
)
def test_without_a_protection_some_schedule_is_wrong_and_is_shown(mutant: str) -> None:
    machine, eos = machine_of(mutant)
    tally = Tally()
    for order in ORDERS:
        try_all(Schedules(order, machine, constants(eos)), tally, only_step=9)
    assert tally.shown is not None
    assert tally.wrong > 0
    assert tally.shown.what in str(tally.shown)


def test_the_wrong_schedule_with_the_fewest_faults_is_shown() -> None:
    machine, eos = machine_of("OffsetWithoutPlusOne")
    tally = Tally()
    try_all(Schedules(ORDER, machine, constants(eos)), tally, only_step=1)
    assert tally.shown is not None
    assert tally.shown.size[0] == 0


def test_every_action_has_its_place_in_every_order_or_is_a_fault_or_its_end() -> None:
    names = {action.name for action in actions(ConsumeTransformProduce)}
    for order in ORDERS.values():
        assert names == {*order, "Crash", "Restart", "JoinWhileProcessing"}


def test_what_stands_still_goes_on_when_the_others_have_nothing_left_to_do() -> None:
    tried = schedules()
    stalled = tried.failed(tried.start(), Fault(STALL, "A"))
    assert stalled is not None
    words = tried.words(tried.chain(stalled))
    place = words.index("A goes on")
    assert not any('"A"' in word.split(",")[0] for word in words[:place])
    assert 'Join("A")' in words[place:]


def test_what_has_crashed_cannot_crash_again() -> None:
    tried = schedules()
    crashed = tried.failed(tried.start(), Fault(CRASH, "A"))
    assert crashed is not None
    assert tried.failed(crashed, Fault(CRASH, "A")) is None


def test_a_step_that_skips_an_input_or_repeats_an_output_is_none_of_exactly_once() -> None:
    before = ConsumeTransformProduce.initial(constants(V2))
    counts = Map({1: 1, 2: 0})

    def after(offset: int, found: Map[int, int]) -> ConsumeTransformProduce:
        state = ConsumeTransformProduce.initial(constants(V2))
        return type(state)(
            **{
                name: getattr(state, name)
                for name in ("constants", "group", "membership", "pending", "transactions", "processes", "faults")
            },
            committed=state.committed.set("p", offset),
            outputs=state.outputs.set("p", found),
        )

    assert takes_effect(before, after(1, counts))
    assert not takes_effect(before, after(2, counts))
    assert not takes_effect(before, after(0, counts))
    assert not takes_effect(before, after(1, counts.set(1, 2)))
    assert not takes_effect(after(1, counts), before)


def test_counts_that_are_wrong_are_told_word_by_word() -> None:
    state = ConsumeTransformProduce.initial(constants(V2))
    outputs = state.outputs.set("q", Map({1: 1, 2: 2})).set("p", Map({1: 1, 2: 1}))
    told = what_is_wrong(outputs, Map({"p": 2, "q": 1}))
    assert told == "'words' is counted 6 times, not 3; q is not read to its end"


def test_a_mutant_of_another_machine_is_refused() -> None:
    with pytest.raises(MalformedRegistry, match="name one of ConsumeTransformProduce"):
        machine_of("NoDuplicateCache")


def test_the_step_of_a_crash_is_a_number_or_every_step() -> None:
    assert (first_step("every-step"), first_step("3")) == (0, 3)
    for text in ("0", "-1", "often"):
        with pytest.raises(argparse.ArgumentTypeError):
            first_step(text)


def test_the_command_says_how_many_schedules_it_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "word-count", "--crash-at", "2"]) == 0
    out = capsys.readouterr().out
    assert "word count, EOS v2: " in out
    assert "word count, EOS v1: " in out
    assert " 0 wrong" in out


def test_the_command_shows_a_wrong_schedule_of_a_mutant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "word-count", "--mutant", "NoSeekAfterAbort", "--crash-at", "9"]) == 0
    assert "-- instance " in capsys.readouterr().out


def test_the_command_fails_where_a_mutant_goes_unnoticed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "word-count", "--mutant", "NoGenerationCheck", "--crash-at", "999"]) == 1
    assert " 0 wrong" in capsys.readouterr().out


def test_the_command_refuses_options_of_other_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "word-count", "--values", "3"]) == 2
    assert main(["simulate", "--crash-at", "3"]) == 2
    assert main(["simulate", "word-count", "--steps", "3"]) == 2
    assert "belongs to 'kafka-eos simulate word-count'" in capsys.readouterr().err
