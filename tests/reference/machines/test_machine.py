from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.errors import NotEnabled, enabled
from kafka_eos.machines.idempotent_producer import IdempotentProducer
from kafka_eos.machines.machine import Instance, action, actions, dump, instances, load, load_constants, step, walk
from kafka_eos.machines.partition_log import Constants, PartitionLog


@dataclass(frozen=True, slots=True)
class Rooms:
    rooms: frozenset[str] = frozenset({"hall", "attic"})
    steps: frozenset[int] = frozenset({1, 2})

    def domain(self, name: str) -> list[Any]:
        return sorted({"Rooms": self.rooms, "Steps": self.steps}[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    MODULE: ClassVar[str] = "House"
    VARIABLES: ClassVar[tuple[str, ...]] = ("litRoom",)

    constants: Rooms = field(compare=False, default=Rooms())
    lit_room: str | None = None

    @classmethod
    def initial(cls, constants: Rooms) -> Self:
        return cls(constants=constants)

    @classmethod
    def context(cls, constants: Rooms) -> dict[type, Any]:
        return {Rooms: constants}

    @action("Light", "Rooms")
    def light(self, room: str) -> Self:
        enabled(self.lit_room != room, "the room is lit")
        return replace(self, lit_room=room)

    @action("Darken")
    def darken(self) -> Self:
        enabled(self.lit_room is not None, "no room is lit")
        return replace(self, lit_room=None)

    def not_an_action(self) -> Self:
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Tower(House):
    MODULE: ClassVar[str] = "Tower"
    VARIABLES: ClassVar[tuple[str, ...]] = (*House.VARIABLES, "floor")
    FRAME: ClassVar[str] = "floor"

    floor: int = 0

    def darken(self) -> Self:
        return replace(self, lit_room=None)

    @action("Climb", "Rooms", "Steps")
    def climb(self, room: str, by: int) -> Self:
        return replace(self, lit_room=room, floor=self.floor + by)


def instance(machine: type[Any], label: str) -> Instance:
    [found] = [each for each in instances(machine, Rooms()) if each.label == label]
    return found


def test_the_actions_are_the_marked_methods_in_their_order() -> None:
    assert [(act.name, act.method, act.domains) for act in actions(House)] == [
        ("Light", "light", ("Rooms",)),
        ("Darken", "darken", ()),
    ]


def test_a_machine_that_extends_another_has_its_actions_and_says_what_they_leave_unchanged() -> None:
    assert [(act.name, act.frame) for act in actions(Tower)] == [("Light", "floor"), ("Darken", "floor"), ("Climb", "")]


def test_an_override_keeps_the_mark_of_what_it_overrides() -> None:
    assert step(Tower(), instance(Tower, "Darken")) == Tower(), "Tower's own darken is always enabled"
    with pytest.raises(NotEnabled):
        step(House(), instance(House, "Darken"))


def test_every_combination_of_arguments_is_an_instance_with_the_label_that_tla_writes() -> None:
    assert [each.label for each in instances(Tower, Rooms())] == [
        'Light("attic")',
        'Light("hall")',
        "Darken",
        'Climb("attic", 1)',
        'Climb("attic", 2)',
        'Climb("hall", 1)',
        'Climb("hall", 2)',
    ]


def test_a_step_that_is_not_enabled_says_why_and_changes_nothing() -> None:
    lit = step(House(), instance(House, 'Light("hall")'))
    with pytest.raises(NotEnabled, match="the room is lit"):
        step(lit, instance(House, 'Light("hall")'))
    assert lit == House(lit_room="hall")


def test_a_walk_begins_with_its_start_and_stops_where_a_step_is_not_enabled() -> None:
    path = [instance(Tower, 'Climb("attic", 2)'), instance(Tower, 'Climb("hall", 1)')]
    assert [state.floor for state in walk(Tower(), path)] == [0, 2, 3]
    with pytest.raises(NotEnabled):
        list(walk(House(), [instance(House, "Darken")]))


def test_constants_are_no_part_of_a_states_identity() -> None:
    assert House(constants=Rooms(frozenset())) == House()


CONSTANTS = Constants(
    max_sequence=3,
    cached_batches=2,
    producer_ids=frozenset({0, 1}),
    epochs=frozenset({0, 1}),
    sequences=frozenset(range(4)),
    batch_counts=frozenset({1}),
    expiration=True,
)
INSTANCES = instances(PartitionLog, CONSTANTS)


@given(st.lists(st.sampled_from(INSTANCES), max_size=30))
def test_a_state_loaded_from_its_variables_is_the_same_state(tried: list[Instance]) -> None:
    state = PartitionLog.initial(CONSTANTS)
    for each in tried:
        try:
            state = step(state, each)
        except NotEnabled:
            continue
    variables = dump(state)
    assert tuple(variables) == PartitionLog.VARIABLES
    loaded = load(PartitionLog, CONSTANTS, variables)
    assert loaded == state
    assert (loaded.constants, loaded.log.limits) == (CONSTANTS, state.log.limits)


def test_constants_are_loaded_by_their_names_and_those_of_the_bounds_are_left_out() -> None:
    values = {"Rooms": frozenset({"cellar"}), "Steps": frozenset({3}), "MaxEntries": 4}
    assert load_constants(Rooms, values) == Rooms(frozenset({"cellar"}), frozenset({3}))
    with pytest.raises(TypeError):
        load_constants(Rooms, values | {"Steps": frozenset({"3"})})


def test_the_actions_of_the_idempotent_producer_frame_those_of_the_replicas_only() -> None:
    framed = {act.name for act in actions(IdempotentProducer) if act.frame == "clientVars"}
    assert framed == {act.name for act in actions(IdempotentProducer.__base__)}  # type: ignore[arg-type]
    assert framed < {act.name for act in actions(IdempotentProducer)}
