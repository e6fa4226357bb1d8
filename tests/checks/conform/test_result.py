"""The order in which results are shown, and what JUnit is told of them."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from kafka_eos_checks.conform import result
from kafka_eos_checks.conform.known import known_differences
from kafka_eos_checks.conform.mechanisms import MECHANISMS, SETTLE, TRANSACTIONS, Request
from kafka_eos_checks.conform.observation import LOG
from kafka_eos_checks.conform.quotient import Edge, explored
from kafka_eos_checks.conform.result import Report, diagram, table, to_json, write_junit
from kafka_eos_checks.conform.run import Counts, Difference, Found, Result
from kafka_eos_checks.drawing.sequence_diagram import Kind

from ..kept import compared, kept_text
from .test_behaviours import VERSION_2


def test_what_diverges_is_shown_before_what_is_unknown_or_not_supported_and_short_scenarios_first() -> None:
    every = [SimpleNamespace(found=found, scenario=[0] * length, reason="") for length in (2, 1) for found in Found]
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
        SimpleNamespace(found=Found.KNOWN, differences=[], reason="", **given | {"known": "first-sequence"}),
    ]
    report: Any = SimpleNamespace(
        results=dict(enumerate(results)), quotients=[SimpleNamespace(mechanism=edge.mechanism)], client=2, target="t"
    )
    write_junit(tmp_path / "junit.xml", report)
    kept_text((tmp_path / "junit.xml").read_text(encoding="utf-8").replace("><", ">\n<"), tmp_path)
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()  # noqa: S314 - our own file
    [suite] = root.iter("testsuite")
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "0"]
    said = [(child.tag, child.get("message")) for case in root.iter("testcase") for child in case]
    assert said == [
        ("failure", "answer: LOST; offset: LOST"),
        ("error", "no answer in time"),
        ("system-out", None),
    ]
    known = known_differences()["first-sequence"]
    assert [each.text for each in root.iter("system-out")] == [f"{known.title} {known.reason} ({known.source})"]


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


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda each: each.name)
def test_a_diagram_sends_each_request_to_the_broker_that_answers_it(
    mechanism: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[list[str], list[tuple[str, str]]]] = []

    def draw(lifelines: Any, steps: Any, _: object) -> str:
        drawn.append(([each.name for each in lifelines], [(step.source, step.target) for step in steps]))
        return ""

    monkeypatch.setattr(result, "sequence_diagram", draw)
    coordinator, group, leader = "transaction coordinator", "group coordinator", "partition leader"
    at = {"Produce": leader, "TxnOffsetCommit": group, "OffsetCommit": group, "JoinGroup": group}
    at |= {"ConsumerGroupHeartbeat": group, "OffsetDelete": group, "WriteTxnMarkers": leader}
    for request in mechanism.all_requests():
        exchange = SimpleNamespace(name="A", api=request.api, label="asked", answered="NONE", allowed=["NONE"])
        written = SimpleNamespace(name="A", api="", label="markers are written", answered="", allowed=[])
        given: Any = SimpleNamespace(scenario=[exchange, written], differences=[], known="")
        diagram(given)
        lifelines, steps = drawn.pop()
        target = at.get(request.api, coordinator)
        assert steps == [("client A", target), (target, "client A"), (coordinator, leader)]
        assert lifelines == ["client A", coordinator, *([group] if target == group else []), leader]


def test_a_diagram_tells_answers_from_refusals_also_after_a_step_that_nobody_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[tuple[str, Kind]] = []
    monkeypatch.setattr(
        result, "sequence_diagram", lambda _, steps, __: drawn.extend((step.label, step.kind) for step in steps) or ""
    )
    written = SimpleNamespace(name="A", api="", label="markers are written", answered="", allowed=[])
    answers = ("NONE (offset 0)", "INVALID_TXN_STATE")
    asked = [SimpleNamespace(name="A", api="Produce", label="Produce", answered=a, allowed=["NONE"]) for a in answers]
    given: Any = SimpleNamespace(scenario=[written, *asked], differences=[], known="")
    diagram(given)
    assert drawn == [
        ("markers are written", Kind.MESSAGE),
        ("Produce", Kind.MESSAGE),
        ("NONE (offset 0)", Kind.REPLY),
        ("Produce", Kind.MESSAGE),
        ("INVALID_TXN_STATE", Kind.REFUSED),
    ]


def reported(*results: Result) -> Report:
    return Report(
        target="broker:9092",
        level=2,
        asked=2,
        client=2,
        versions={},
        quotients=[explored(TRANSACTIONS, VERSION_2)],
        results={one.edge.name: one for one in results},
        seconds=1.2345,
        counts=Counts(scenarios=1, requests=2, retries=3, disturbed=4, observations=5),
    )


def edge(name: str, action: str = "EndTxn") -> Edge:
    return Edge(name=name, mechanism=TRANSACTIONS, request=Request(action), answers=("NONE",), path=())


def test_json_tells_of_each_edge_what_was_found_and_why_and_of_each_graph_how_large_it_is() -> None:
    lost = Difference(what="answer", allowed="NONE", observed="LOST")
    told = to_json(
        reported(
            Result(edge=edge("a"), found=Found.CONFORMS),
            Result(edge=edge("b"), found=Found.DIVERGES, differences=(lost,)),
            Result(edge=edge("c"), found=Found.UNKNOWN, reason="no answer"),
            Result(edge=edge("d", SETTLE), found=Found.KNOWN, known="first-sequence"),
        )
    )
    compared(json.dumps(told, indent=1).splitlines())
    graph, edges = told["graphs"][0], explored(TRANSACTIONS, VERSION_2).edges.values()
    internal = [each for each in edges if each.request.action == SETTLE]
    assert len(internal) > 1
    assert (graph["edges"], graph["internal_edges"]) == (len(edges) - len(internal), len(internal))
    assert (told["edges"], told["seconds"]) == (3, 1.23)
    counts = ("scenarios", "requests", "retries", "disturbed", "observations")
    assert [told[name] for name in counts] == [1, 2, 3, 4, 5]
    assert told["found"] == {
        "conforms": 1,
        "known difference": 1,
        "diverges": 1,
        "not supported": 0,
        "could not tell": 1,
    }
    more = [
        {key: row[key] for key in ("reason", "differences", "known_difference") if key in row}
        for row in told["results"]
    ]
    assert more == [
        {},
        {"differences": [{"what": "answer", "allowed": "NONE", "observed": "LOST"}]},
        {"reason": "no answer"},
        {"known_difference": "first-sequence"},
    ]


def test_divergences_are_of_one_kind_if_the_same_field_differs_or_for_a_short_one_the_same_values() -> None:
    def diverging(name: str, what: str, observed: str) -> Result:
        differs = Difference(what=what, allowed="1", observed=observed)
        return Result(edge=edge(name), found=Found.DIVERGES, differences=(differs,))

    report = reported(
        diverging("a", LOG, "a marker"),
        diverging("b", "offset of the group", "a"),
        diverging("c", LOG, "no marker"),
        diverging("d", "offset of the group", "b 7"),
        diverging("e", "offset of the group", "b 8"),
    )
    assert [[one.edge.name for one in kind] for kind in report.kinds()] == [["a", "c"], ["b"], ["d", "e"]]


@pytest.mark.parametrize(
    ("found", "conforms"),
    [
        (Found.CONFORMS, True),
        (Found.KNOWN, True),
        (Found.DIVERGES, False),
        (Found.UNKNOWN, False),
        (Found.UNSUPPORTED, True),
    ],
)
def test_a_broker_conforms_if_nothing_diverges_and_nothing_that_it_supports_is_unknown(
    found: Found, conforms: bool
) -> None:
    assert (
        reported(Result(edge=edge("a"), found=Found.CONFORMS), Result(edge=edge("b"), found=found)).conforms == conforms
    )
    assert reported(Result(edge=edge("b"), found=found)).conforms == (conforms and found is not Found.UNSUPPORTED)


def test_the_table_names_a_mechanism_once() -> None:
    report = reported(
        Result(edge=edge("a"), found=Found.CONFORMS),
        Result(edge=edge("b"), found=Found.UNKNOWN),
        Result(edge=edge("c", "Produce"), found=Found.DIVERGES),
    )
    shown = io.StringIO()
    Console(file=shown, width=200).print(table(report))
    rows = [line.split() for line in shown.getvalue().splitlines() if "KIP-" in line]
    assert [(row[0], row[1]) for row in rows] == [("transaction", "EndTxn"), ("Produce", "KIP-890")]
    assert [row[-5:] for row in rows] == [["1", "·", "·", "·", "1"], ["·", "·", "1", "·", "·"]]
