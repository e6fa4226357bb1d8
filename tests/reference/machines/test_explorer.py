from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import pytest

from kafka_eos.errors import ErrorCode, NotEnabled, Rejected, enabled, require
from kafka_eos.machines.explorer import OUTSIDE, TooManyStates, explore
from kafka_eos.machines.machine import action, instances


@dataclass(frozen=True, slots=True)
class Steps:
    steps: tuple[int, ...] = (1, 2)

    def domain(self, name: str) -> tuple[int, ...]:
        assert name == "Steps"
        return self.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Stairs:
    """Stairs: up by one or two to the fourth, which is full; down at once."""

    MODULE: ClassVar[str] = "Stairs"
    VARIABLES: ClassVar[tuple[str, ...]] = ("stair",)

    constants: Steps = field(compare=False, default=Steps())
    stair: int = 0

    @classmethod
    def initial(cls, constants: Steps) -> Self:
        return cls(constants=constants)

    @classmethod
    def context(cls, constants: Steps) -> dict[type, Any]:
        return {Steps: constants}

    @action("Up", "Steps")
    def up(self, by: int) -> Self:
        require(ErrorCode.INVALID_TXN_STATE if self.stair + by > 4 else ErrorCode.NONE)
        return replace(self, stair=self.stair + by)

    @action("Down")
    def down(self) -> Self:
        enabled(self.stair > 0, "on the ground")
        return replace(self, stair=0)


ALL = instances(Stairs, Steps())


def test_a_search_finds_every_state_edge_and_refusal() -> None:
    found = explore(Stairs(), ALL)
    assert [state.stair for state in found.states] == [0, 1, 2, 3, 4]
    edges = {
        (s, found.instances[i].label, t) for s, i, t in zip(found.sources, found.labels, found.targets, strict=True)
    }
    ups = {(s, f"Up({by})", s + by) for s in range(5) for by in (1, 2) if s + by <= 4}
    assert edges == ups | {(s, "Down", 0) for s in range(1, 5)}
    assert found.refusals == {("Down", None): 1, ("Up", ErrorCode.INVALID_TXN_STATE): 3}


def test_a_path_is_a_shortest_one() -> None:
    found = explore(Stairs(), ALL)
    assert [step.label for step in found.path_to(4)] == ["Up(2)", "Up(2)"]
    assert found.path_to(0) == []


def test_a_state_outside_the_bounds_is_generated_but_neither_kept_nor_expanded() -> None:
    found = explore(Stairs(), ALL, lambda state: state.stair <= 2)
    assert [state.stair for state in found.states] == [0, 1, 2]
    leaving = [
        (s, found.instances[i].label)
        for s, i, t in zip(found.sources, found.labels, found.targets, strict=True)
        if t == OUTSIDE
    ]
    assert leaving == [(1, "Up(2)"), (2, "Up(1)"), (2, "Up(2)")]


def test_a_state_outside_the_bounds_can_be_kept_and_is_not_expanded() -> None:
    refused: list[tuple[int, int]] = []
    found = explore(
        Stairs(),
        ALL,
        lambda state: state.stair <= 1,
        on_refusal=lambda state, label, _: refused.append((state, label)),
        keep_outside=True,
    )
    assert [state.stair for state in found.states] == [0, 1, 2, 3]
    assert set(found.sources) == {0, 1}
    assert OUTSIDE not in found.targets
    assert [(found.states[state].stair, ALL[label].label) for state, label in refused] == [(0, "Down")]


def test_every_refusal_is_told_with_its_state_action_and_reason() -> None:
    told: list[str] = []

    def tell(state: int, label: int, refusal: NotEnabled | Rejected) -> None:
        told.append(f"{found_at[state]} {ALL[label].label}: {refusal}")

    found_at = [0, 1, 2, 3, 4]
    explore(Stairs(), ALL, on_refusal=tell)
    assert [line.partition(":")[0] for line in told] == ["0 Down", "3 Up(2)", "4 Up(1)", "4 Up(2)"]
    assert told[0] == "0 Down: on the ground"


def test_an_initial_state_outside_the_bounds_is_no_state() -> None:
    assert explore(Stairs(), ALL, lambda state: state.stair > 0).states == []


def test_a_search_without_an_end_is_stopped() -> None:
    with pytest.raises(TooManyStates, match="more than 3 states"):
        explore(Stairs(), ALL, limit=3)


def test_a_search_says_how_far_it_is() -> None:
    seen: list[tuple[int, int]] = []
    explore(Stairs(), ALL, on_progress=lambda expanded, found: seen.append((expanded, found)))
    assert seen == [(0, 1)]
