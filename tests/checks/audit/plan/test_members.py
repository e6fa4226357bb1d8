"""Commits of the present generation are proved in buckets; only what shows a past one is read again and judged."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import Event, write_history
from kafka_eos_checks.audit.moments import AT_ONE_MOMENT
from kafka_eos_checks.audit.oracle import readable_histories
from kafka_eos_checks.audit.plan.history_plan import judge_histories
from kafka_eos_checks.audit.rules.applications import FENCED_GENERATION

from .test_skew import Counting

GROUPS = 40


def commits() -> list[Event]:
    """Groups whose coordinator tells of generations; a member of the first commits after it left."""
    events = list[Event]()
    for number in range(GROUPS):
        group: dict[str, Any] = {"run": "r", "group": f"g{number}", "time_us": 1}
        commit: dict[str, Any] = {"process": f"m{number}", "action": "OffsetCommit", "topic": "in", "partition": 0}
        join = Event(process=f"c{number}", action="JoinGroup", phase="ok", generation=1, **group)
        for request, before in enumerate((join, replace(join, generation=2 if number == 0 else 1))):
            detail = {"request": request}
            answered = [
                Event(phase=phase, generation=1, detail=detail, **commit, **group) for phase in ("invoke", "ok")
            ]
            events += [before, *answered]
    return [replace(event, order=order) for order, event in enumerate(events)]


@pytest.mark.parametrize("ordered", [True, False])
def test_only_a_commit_of_a_past_generation_is_read_again(ordered: bool, tmp_path: Path) -> None:
    events = commits()
    crash = Event(run="r", process="other", action="Crash", phase="info", time_us=1)
    if ordered:
        events = [*events[GROUPS:], *events[:GROUPS], replace(crash, order=len(events))]
    else:  # so that places count
        events = [*(replace(event, order=len(events) - (event.order or 0)) for event in events), crash]
    history, engine = tmp_path / "history.jsonl", Counting()
    write_history(history, events)
    _, found = judge_histories([history], [], AT_ONE_MOMENT, engine)
    readable = readable_histories.join(events, [])
    assert list(map(repr, found.findings)) == list(map(repr, readable.findings))
    assert [finding.rule for finding in found.findings] == [FENCED_GENERATION]
    assert found.figures == readable.figures
    assert found.figures[FENCED_GENERATION] == {"checked": 2 * GROUPS, "unknown": 0}
    assert engine.given["events shown"].total() == 3
    assert engine.share("generations") < 0.3, "the others are proved in buckets"
