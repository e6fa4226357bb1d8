"""A minimal schedule has the violation of the run that it comes from, and no other one."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from kafka_eos.machines.machine import Action, Instance
from kafka_eos_checks.walks.properties import Wrong
from kafka_eos_checks.walks.shrink import shrunk
from kafka_eos_checks.walks.walk import Run, Walker


def step(name: str) -> Instance:
    return Instance(Action(name=name, domains=(), method=name), ())


class Planted:
    """A walker whose runs violate P if they have A and C, and Q if they have only C."""

    judge = SimpleNamespace(steps=())
    constants = None

    def initial(self, _: object) -> frozenset[str]:
        return frozenset()

    def replay(self, schedule: Sequence[Instance], seed: int | None = None) -> tuple[Wrong | None, list[Instance], Any]:  # noqa: ARG002
        names = [each.action.name for each in schedule]
        if "C" not in names:
            return None, list(schedule), ()
        name = "P" if "A" in names[: names.index("C")] else "Q"
        return Wrong(name, f"violates {name}"), list(schedule[: names.index("C") + 1]), ()

    def alike(self, _: object, __: object) -> tuple[()]:
        return ()


def test_steps_without_which_another_property_is_violated_stay() -> None:
    schedule = [step(name) for name in "BABBCB"]
    run = SimpleNamespace(wrong=Wrong("P", "violates P"), schedule=schedule, fair=[], seed=1)
    wrong, taken, at_rest = shrunk(cast(Walker, Planted()), cast(Run, run))
    assert (wrong.name, [each.action.name for each in taken], at_rest) == ("P", ["A", "C"], False)


def test_a_shorter_schedule_of_the_same_steps_is_told_in_the_order_in_which_they_are_taken() -> None:
    class Searched(Planted):
        def initial(self, _: object) -> Any:
            return ""

        def replay(
            self,
            schedule: Sequence[Instance],
            seed: int | None = None,  # noqa: ARG002
        ) -> tuple[Wrong | None, list[Instance], Any]:
            is_whole = "ABCD" in "".join(each.action.name for each in schedule)
            return Wrong("P", "violates P") if is_whole else None, list(schedule), ()

        def alike(self, state: Any, taken: Any) -> Any:
            return [(taken, state + taken.action.name)]

        def judged(self, _: object, after: str) -> Wrong | None:
            return Wrong("P", "violates P") if after == "ABD" else None

    run = SimpleNamespace(wrong=Wrong("P", "violates P"), schedule=[step(name) for name in "CABCDD"], fair=[], seed=1)
    _, taken, _ = shrunk(cast(Walker, Searched()), cast(Run, run))
    assert [each.action.name for each in taken] == ["A", "B", "D"]


def test_a_violation_is_not_shrunk_to_a_run_in_which_the_property_has_no_value() -> None:
    class Undefined(Planted):
        def replay(
            self, schedule: Sequence[Instance], seed: int | None = None
        ) -> tuple[Wrong | None, list[Instance], Any]:
            found, kept, states = super().replay(schedule, seed)
            return found and Wrong("P", found.how, is_judged=found.name == "P"), kept, states

    schedule = [step(name) for name in "BABC"]
    run = SimpleNamespace(wrong=Wrong("P", "violates P"), schedule=schedule, fair=[], seed=1)
    _, taken, at_rest = shrunk(cast(Walker, Undefined()), cast(Run, run))
    assert ([each.action.name for each in taken], at_rest) == (["A", "C"], False)
