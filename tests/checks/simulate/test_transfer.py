"""Transfer, payment and mirror: every place where they can fail, and the effect of each protection."""

import pytest

from kafka_eos.machines.external_sink import STRATEGIES, ExternalSink
from kafka_eos.machines.machine import actions
from kafka_eos.machines.mirror import Mirror
from kafka_eos.machines.transfer import Transfer
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.models.registry import MalformedRegistry
from kafka_eos_checks.simulate import mirror, payment, transfer
from kafka_eos_checks.simulate.schedules import Scenario, try_scenario

RIGHT = [transfer.transfer(transactional=True), mirror.mirror("target")]
RIGHT += [payment.payment(strategy) for strategy in sorted(payment.RIGHT)]
WRONG = [transfer.transfer(transactional=False), mirror.mirror("source")]
WRONG += [payment.payment(strategy) for strategy in STRATEGIES if strategy not in payment.RIGHT]


def named(scenario: Scenario) -> str:
    return scenario.title


@pytest.mark.parametrize("scenario", RIGHT, ids=named)
def test_every_schedule_is_right(scenario: Scenario) -> None:
    tally = try_scenario(scenario)
    assert (tally.wrong, tally.shown, scenario.is_right) == (0, None, True)
    assert tally.pairs > tally.singles > tally.without > 0


@pytest.mark.parametrize("scenario", [*RIGHT, *WRONG], ids=named)
def test_an_end_at_which_nothing_has_been_done_is_wrong(scenario: Scenario) -> None:
    assert scenario.wrong_end(scenario.machine.initial(scenario.constants))


@pytest.mark.parametrize("scenario", RIGHT[:2], ids=named)
def test_where_none_is_up_the_first_one_starts_and_the_schedule_says_so(scenario: Scenario) -> None:
    found = scenario.recover(scenario.machine.initial(scenario.constants))
    assert found is not None
    assert (found[0], found[1].owner) == ('Initialize("A")', "A")
    assert scenario.recover(found[1]) is None


@pytest.mark.parametrize("scenario", WRONG, ids=named)
def test_some_schedule_is_wrong_and_none_without_a_fault(scenario: Scenario) -> None:
    tally = try_scenario(scenario)
    assert tally.shown is not None
    assert (tally.shown.size[0], scenario.is_right) == (1, False)
    assert any(step.startswith("-- ") for step in tally.shown.steps)


@pytest.mark.parametrize(
    ("module", "mutant"),
    [
        (transfer, "FencedWritesAreTaken"),
        (transfer, "OpenIsTakenOver"),
        (transfer, "OffsetIsCommittedApart"),
        (transfer, "PendingOffsetIsPassedOver"),
        (payment, "OffsetApart"),
        (payment, "KeyOfAttempt"),
        (payment, "NotedByRemoval"),
        (mirror, "NobodyIsFenced"),
        (mirror, "PositionIsKept"),
        (mirror, "OffsetOfLast"),
    ],
)
def test_without_a_protection_some_schedule_is_wrong(module: object, mutant: str) -> None:
    (scenario,) = module.scenarios(mutant)  # type: ignore[attr-defined]
    assert not scenario.is_right
    tally = try_scenario(scenario)
    assert tally.wrong > 0
    if mutant == "OffsetIsCommittedApart":
        assert tally.shown is not None
        assert tally.shown.what == "a step takes effect that ExactlyOnce does not allow"


@pytest.mark.parametrize(
    ("module", "machine", "others"),
    [
        (transfer, Transfer, {"Initialize", "Crash", "Abort"}),
        (mirror, Mirror, {"Initialize", "Crash"}),
        (payment, ExternalSink, {"Crash", "Restart", "LoseAnswer", "LoseCall", "RestartRelay"}),
    ],
)
def test_every_action_has_its_place_in_some_order_or_is_a_fault_or_its_end(
    module: object, machine: type[Transfer], others: set[str]
) -> None:
    placed = {name for order in module.ORDERS.values() for name in order}  # type: ignore[attr-defined]
    assert {action.name for action in actions(machine)} == placed | others


@pytest.mark.parametrize("module", [transfer, payment, mirror])
def test_a_mutant_of_another_machine_is_refused(module: object) -> None:
    with pytest.raises(MalformedRegistry, match="no mutant 'NoDuplicateCache' of "):
        module.scenarios("NoDuplicateCache")  # type: ignore[attr-defined]


def test_the_command_shows_alice_debited_twice_without_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "transfer"]) == 0
    out = capsys.readouterr().out
    assert "transfer, with transactions: " in out
    assert out.index("transfer, without transactions: ") < out.index("Alice")
    assert "Alice is debited 2 times for transfer 1" in out


@pytest.mark.parametrize("application", ["payment", "mirror"])
def test_the_commands_succeed_and_refuse_a_step_that_nothing_reaches(
    application: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", application]) == 0
    assert main(["simulate", application, "--crash-at", "999"]) == 2
    assert " wrong; " in capsys.readouterr().out
