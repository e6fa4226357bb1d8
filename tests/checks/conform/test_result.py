"""The order in which results are shown, and what JUnit is told of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from kafka_eos_checks.conform import result
from kafka_eos_checks.conform.result import Report, diagram, write_junit
from kafka_eos_checks.conform.run import Found


def test_what_diverges_is_shown_before_what_is_unknown_or_not_supported_and_short_scenarios_first() -> None:
    every = [SimpleNamespace(found=found, scenario=[0] * length) for length in (2, 1) for found in Found]
    report: Any = SimpleNamespace(results=dict(enumerate(every)))
    assert [(one.found, len(one.scenario)) for one in Report.differing(report)] == [
        (found, length) for found in (Found.DIVERGES, Found.UNKNOWN, Found.UNSUPPORTED) for length in (1, 2)
    ]


def test_junit_tells_what_differs_or_why_nothing_is_known(tmp_path: Path) -> None:
    edge = SimpleNamespace(id="m-1", name="edge", mechanism=SimpleNamespace(name="m"))
    given: dict[str, Any] = {"edge": edge, "scenario": [], "known": ""}
    differs = [SimpleNamespace(what=what, allowed="NONE", observed="LOST") for what in ("answer", "offset")]
    results = [
        SimpleNamespace(found=Found.DIVERGES, differences=differs, reason="", **given),
        SimpleNamespace(found=Found.UNKNOWN, differences=[], reason="no answer in time", **given),
        SimpleNamespace(found=Found.CONFORMS, differences=[], reason="", **given),
    ]
    report: Any = SimpleNamespace(
        results=dict(enumerate(results)), quotients=[SimpleNamespace(mechanism=edge.mechanism)], client=2, target="t"
    )
    write_junit(tmp_path / "junit.xml", report)
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()  # noqa: S314 - our own file
    [suite] = root.iter("testsuite")
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "1", "0"]
    said = [(child.tag, child.get("message")) for case in root.iter("testcase") for child in case]
    assert said == [("failure", "answer: LOST; offset: LOST"), ("error", "no answer in time")]


@pytest.mark.parametrize("known", ["", "a rule"])
def test_the_answer_that_the_spec_does_not_give_is_marked_in_a_diagram(
    known: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[tuple[str, str]] = []
    monkeypatch.setattr(
        result, "sequence_diagram", lambda _, steps, mark: marked.append((steps[mark.step].label, mark.text)) or ""
    )
    answers = ("NONE", "LOST")
    scenario = [SimpleNamespace(name="A", api="Produce", label="P", answered=a, allowed=["NONE"]) for a in answers]
    differences = [] if known else [SimpleNamespace(what="answer", observed="LOST", allowed="NONE")]
    given: Any = SimpleNamespace(scenario=scenario, differences=differences, known=known)
    assert diagram(given) == ""
    [(label, text)] = marked
    assert label == "LOST"
    assert text.endswith("LOST, where the spec says NONE")
