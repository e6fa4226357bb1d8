"""Word count: every place where its instances can fail, and the effect of each protection."""

import pytest
from immutables import Map

from kafka_eos.machines.consume_transform_produce import V2, ConsumeTransformProduce
from kafka_eos.machines.group_coordinator import CLASSIC
from kafka_eos.machines.machine import actions
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.models.registry import MalformedRegistry
from kafka_eos_checks.simulate.schedules import STALL, Fault, Schedules, Tally, try_all
from kafka_eos_checks.simulate.word_count import (
    EXPECTED,
    ORDERS,
    TITLES,
    counted,
    scenarios,
    what_is_wrong,
    word_count,
)

ORDER = next(iter(ORDERS))


def schedules(eos: str = V2, order: str = ORDER, protocol: str = CLASSIC) -> Schedules:
    return Schedules(order, word_count(eos, protocol))


def initial() -> ConsumeTransformProduce:
    return ConsumeTransformProduce.initial(word_count(V2).constants)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("eos", "protocol"), TITLES)
def test_without_a_fault_every_word_is_counted_once(eos: str, protocol: str, order: str) -> None:
    tried = schedules(eos, order, protocol)
    end = tried.nodes[tried.chain(tried.start())[-1]].state
    assert counted(end.outputs) == EXPECTED
    assert what_is_wrong(end.outputs, end.committed) == ""


@pytest.mark.parametrize(("eos", "protocol"), TITLES)
def test_a_first_fault_before_one_step_and_every_second_one_leave_the_counts_right(eos: str, protocol: str) -> None:
    tally = Tally()
    try_all(schedules(eos, protocol=protocol), tally, only_step=6)
    assert (tally.wrong, tally.shown) == (0, None)
    assert tally.pairs > 100 > tally.singles > 0


@pytest.mark.parametrize(
    "mutant",
    [
        "NoGenerationCheck",
        "UnknownMemberIsTaken",
        "GenerationNotChecked",
        "RemovedMemberIsTaken",
        "StaleEpochIsTaken",
        "NoRequireStable",
        "NoSeekAfterAbort",
        "OffsetWithoutPlusOne",
        "NeverFenced",
    ],
)
def test_without_a_protection_some_schedule_is_wrong_and_is_shown(mutant: str) -> None:
    (scenario,) = scenarios(mutant)
    assert not scenario.is_right
    tally = Tally()
    for order in ORDERS:
        if not tally.wrong:
            try_all(Schedules(order, scenario), tally, only_step=9)
    assert tally.shown is not None
    assert tally.wrong > 0
    assert tally.shown.what in str(tally.shown)
    assert len(tally.shown.steps) == tally.shown.size[1] - 1  # the size counts the states between the steps


def test_every_action_has_its_place_in_every_order_or_is_a_fault_or_its_end() -> None:
    names = {action.name for action in actions(ConsumeTransformProduce)}
    for order in ORDERS.values():
        assert names == {*order, "Crash", "Restart", "JoinWhileProcessing", "LeaveAndReturn"}


def test_a_paused_instance_goes_on_when_the_others_have_nothing_left_to_do() -> None:
    tried = schedules()
    stalled = tried.failed(tried.start(), Fault(STALL, "A"))
    assert stalled is not None
    words = tried.words(tried.chain(stalled))
    place = words.index("A goes on")
    assert not any('"A"' in word.split(",")[0] for word in words[:place])
    assert 'Join("A")' in words[place:]


def test_wrong_counts_are_listed_word_by_word() -> None:
    state = initial()
    outputs = state.outputs.set("q", Map({1: 1, 2: 2})).set("p", Map({1: 1, 2: 1}))
    told = what_is_wrong(outputs, Map({"p": 2, "q": 1}))
    assert told == "'words' is counted 6 times, not 3; q is not read to its end"


def test_a_mutant_of_another_machine_is_refused() -> None:
    with pytest.raises(
        MalformedRegistry,
        match="of ConsumeTransformProduce; there are NoGenerationCheck, ",
    ):
        scenarios("NoDuplicateCache")


@pytest.mark.parametrize("step", ["20", pytest.param("2", marks=pytest.mark.thorough)])
def test_the_command_says_how_many_schedules_it_tried(step: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "word-count", "--crash-at", step]) == 0
    out = capsys.readouterr().out
    assert "word count, EOS v2: " in out
    assert "word count, EOS v1: " in out
    assert "word count, EOS v2 in a group of KIP-848: " in out
    assert " 0 wrong" in out


def test_the_command_shows_a_wrong_schedule_of_a_mutant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "word-count", "--mutant", "NoSeekAfterAbort", "--crash-at", "9"]) == 0
    assert "-- instance " in capsys.readouterr().out


def test_the_command_fails_where_a_mutant_goes_unnoticed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "word-count", "--mutant", "NoGenerationCheck", "--crash-at", "24"]) == 1
    assert " 0 wrong" in capsys.readouterr().out


def test_the_command_refuses_a_step_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "word-count", "--crash-at", "25"]) == 0
    assert main(["simulate", "word-count", "--crash-at", "26"]) == 2
    said = "--crash-at 26: no fault comes before step 26; the first step before which one can come is 1, the last is 25"
    assert said in capsys.readouterr().err


def test_the_command_refuses_options_of_other_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "word-count", "--values", "3"]) == 2
    assert main(["simulate", "--crash-at", "3"]) == 2
    assert main(["simulate", "word-count", "--steps", "3"]) == 2
    assert "belongs to 'kafka-eos simulate word-count'" in capsys.readouterr().err
