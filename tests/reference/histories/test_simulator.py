from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_eos.errors import enabled
from kafka_eos.histories.simulator import Simulation, Taken
from kafka_eos.machines.idempotent_producer import Constants, IdempotentProducer
from kafka_eos.machines.machine import action

CONSTANTS = Constants(
    max_sequence=2**31 - 1,
    cached_batches=5,
    replicas=frozenset({"a", "b", "c"}),
    initial_leader="a",
    snapshots=False,
    unclean_election=False,
    max_leader_epoch=3,
    values=frozenset(range(1, 9)),
    attempts=frozenset(range(1, 5)),
    max_in_flight=5,
    acks="all",
    idempotence=True,
    max_epoch=32767,
    max_producer_id=0,
    resend_after_restart=False,
    expiration=False,
)
FAULTS = {"Resend": 3.0, "Expire": 0.2, "Crash": 1.0, "ElectLeader": 1.0, "ShrinkIsr": 1.0, "RestartProducer": 0.1}
RECOVERY = ("Resend", "Expire", "ElectLeader")
SEEDS = st.integers(0, 2**32)


def run(seed: int, faults: dict[str, float] | None = None, steps: int = 150) -> list[Taken[IdempotentProducer]]:
    given = FAULTS if faults is None else faults
    return list(Simulation(IdempotentProducer, CONSTANTS, seed, given, RECOVERY).run(steps))


def labels(taken: list[Taken[IdempotentProducer]]) -> list[str]:
    return [each.instance.label for each in taken]


def test_the_same_seed_gives_the_same_run_and_another_seed_another_one() -> None:
    first = run(7)
    assert first == run(7)
    assert labels(first) != labels(run(8))


@settings(max_examples=20)
@given(SEEDS)
def test_each_step_begins_where_the_one_before_it_ended(seed: int) -> None:
    taken = run(seed)
    assert taken[0].before == IdempotentProducer.initial(CONSTANTS)
    for one, other in pairwise(taken):
        assert one.after is other.before


@settings(max_examples=20)
@given(SEEDS)
def test_a_run_comes_to_rest_with_every_value_acknowledged_or_failed(seed: int) -> None:
    last = run(seed)[-1].after
    assert set(last.outcome.values()) <= {"acknowledged", "failed"}
    assert (last.queue, last.in_flight, last.requests) == ((), (), frozenset())


@settings(max_examples=20)
@given(SEEDS)
def test_acknowledged_values_are_stored_once_on_the_leader_in_order(seed: int) -> None:
    last = run(seed)[-1].after
    stored = [entry.value for entry in last.leaders_log.entries]
    assert stored == sorted(set(stored))
    assert {value for value, result in last.outcome.items() if result == "acknowledged"} <= set(stored)


@settings(max_examples=20)
@given(SEEDS)
def test_a_run_without_faults_stores_everything(seed: int) -> None:
    """With one batch in flight no batch is overtaken."""
    silent = dict.fromkeys([*FAULTS, "ElectUncleanLeader", "TakeSnapshot"], 0.0)
    one = Simulation(IdempotentProducer, replace(CONSTANTS, max_in_flight=1), seed, silent, RECOVERY)
    assert set(list(one.run(150))[-1].after.outcome.values()) == {"acknowledged"}


def test_a_run_without_recovery_may_be_stuck() -> None:
    stuck = Simulation(IdempotentProducer, CONSTANTS, 1, dict.fromkeys(FAULTS, 0.0))
    assert "sent" in list(stuck.run(150))[-1].after.outcome.values(), "a batch that was overtaken is not sent again"


def test_a_fault_that_is_no_action_is_refused_and_the_actions_are_named() -> None:
    with pytest.raises(ValueError, match=r"IdempotentProducer has no action 'Meteor'; its actions are .*AppendBatch"):
        run(1, {"Meteor": 1.0})
    with pytest.raises(ValueError, match="no action 'Repair'"):
        Simulation(Candle, Nothing(), 1, {}, ["Repair"])
    with pytest.raises(ValueError, match="no action 'Relight'"):
        Simulation(Candle, Nothing(), 1, {}, (), {"Relight": lambda _: ()})


def test_a_weight_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="the weight of Crash is below 0"):
        run(1, {"Resend": 0.0, "Crash": -0.1, "Expire": -1.0})


@dataclass(frozen=True, slots=True)
class Nothing:
    def domain(self, name: str) -> list[Any]:
        raise AssertionError(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candle:
    """A candle that burns down by itself; the wind may blow, which changes only a count."""

    MODULE: ClassVar[str] = "Candle"
    VARIABLES: ClassVar[tuple[str, ...]] = ("length", "gusts")

    constants: Nothing = field(compare=False, default=Nothing())
    length: int = 3
    gusts: int = 0

    @classmethod
    def initial(cls, constants: Nothing) -> Self:
        return cls(constants=constants)

    @classmethod
    def context(cls, constants: Nothing) -> dict[type, Any]:
        return {Nothing: constants}

    @action("Burn")
    def burn(self) -> Self:
        enabled(self.length > 0, "burnt down")
        return replace(self, length=self.length - 1)

    @action("Blow")
    def blow(self) -> Self:
        return replace(self, gusts=self.gusts + 1)


def candle(seed: int, steps: int, *recovery: str, **faults: float) -> list[str]:
    return [each.instance.label for each in Simulation(Candle, Nothing(), seed, faults, recovery).run(steps)]


def test_faults_stop_when_the_steps_are_used_up_and_the_run_ends_when_nothing_is_enabled() -> None:
    taken = candle(1, 10, Blow=1000.0)
    assert len(taken) <= 13
    assert taken[10:] == ["Burn"] * (3 - taken[:10].count("Burn"))
    assert taken.count("Burn") == 3


def test_a_fault_of_weight_zero_never_happens() -> None:
    assert candle(1, 10, Blow=0.0) == ["Burn"] * 3


def test_a_fault_happens_as_often_as_its_weight_says() -> None:
    gusts = [candle(seed, 1, Blow=90.0)[0] for seed in range(1000)].count("Blow")
    assert 850 < gusts < 950, "9 of 10 first steps, give or take five standard deviations"


def test_a_fault_that_repairs_others_goes_on_after_they_stop() -> None:
    assert len(candle(1, 10, "Blow", Blow=1.0)) == 20


def test_a_run_that_never_rests_takes_as_many_steps_again_and_no_more() -> None:
    assert len(candle(1, 10)) == 20, "without faults Blow is an ordinary action, and always enabled"
