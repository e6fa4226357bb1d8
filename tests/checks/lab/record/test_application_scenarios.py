"""The scenarios of applications, played without a cluster: an instance is killed or frozen at every step."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.lab.record import application_scenarios as scenarios
from kafka_eos_checks.lab.record.clients import MIRROR, TRANSFER, WORD_COUNT
from kafka_eos_checks.lab.record.stage import Stage


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The calls of a play, in their order, with the steps at which instances are frozen or replaced."""
    calls: list[tuple[Any, ...]] = []

    def start(name: str, **work: Any) -> Any:
        calls.append(("start", name, work.get("pause_after")))
        return nullcontext(SimpleNamespace(name=name, wait=lambda: None, kill=lambda: calls.append(("kill", name))))

    @contextmanager
    def played(_: Stage, kind: str, records: int, **work: Any) -> Iterator[Any]:
        yield SimpleNamespace(
            may_share=kind != MIRROR,
            start=start,
            feed=lambda count: calls.append(("feed", count)),
            reach=lambda one, step, *, withheld: calls.append(("reach", one.name, step, withheld)),
            settle=lambda *names: calls.append(("settle", *names)),
        )

    monkeypatch.setattr(scenarios, "played", played)
    monkeypatch.setattr(scenarios, "_freeze", lambda _, step, records: calls.append(("freeze", step, records)))
    monkeypatch.setattr(scenarios, "_replace", lambda _, step, records: calls.append(("replace", step, records)))
    return calls


@pytest.fixture
def stage() -> Any:
    proxy = SimpleNamespace(follow=lambda _: None)
    return SimpleNamespace(name="s", proxy=proxy, wait_assigned=lambda *_: None)


@pytest.mark.parametrize("kind", [WORD_COUNT, TRANSFER, MIRROR])
def test_an_instance_is_killed_at_every_step_and_another_one_ends(
    did: list[tuple[Any, ...]], stage: Any, kind: str
) -> None:
    scenarios.killed(stage, kind)
    wanted: list[tuple[Any, ...]] = [("feed", 16)]
    for step in scenarios.STEPS:
        name = f"{kind}-{step}"
        wanted += [("start", name, scenarios.paused_after(step)), ("reach", name, step, True), ("kill", name)]
    assert did == [*wanted, ("start", f"{kind}-last", None), ("settle", "last")]


@pytest.mark.parametrize(("kind", "how"), [(WORD_COUNT, "freeze"), (TRANSFER, "freeze"), (MIRROR, "replace")])
def test_an_instance_is_frozen_at_every_step_and_all_settle(
    did: list[tuple[Any, ...]], stage: Any, kind: str, how: str
) -> None:
    scenarios.frozen(stage, kind)
    assert [call for call in did if call[0] == how] == [(how, step, 2) for step in scenarios.STEPS]
    assert sum(call[1] for call in did if call[0] == "feed") == 2
    assert did[-1] == ("settle", "steady", *(f"zombie-{step}" for step in scenarios.STEPS))
