"""The results of a run: a table by mechanism and request, each divergence with its scenario, JSON, JUnit, diagrams."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rich.table import Table

from kafka_eos.machines.broker import HEARTBEAT
from kafka_eos_checks.conform.beyond import DELETE, MARK
from kafka_eos_checks.conform.known import Cause, causes, known_differences
from kafka_eos_checks.conform.mechanisms import SETTLE
from kafka_eos_checks.conform.observation import asked_by
from kafka_eos_checks.conform.quotient import Edge, Quotient
from kafka_eos_checks.conform.run import (
    ANSWER,
    IN_SECOND,
    NOT_ASKED,
    OF_SECOND_GROUP,
    OUT_OF_REACH,
    Counts,
    Exchange,
    Found,
    Result,
)
from kafka_eos_checks.drawing.sequence_diagram import Kind, Lifeline, Role, Violation, sequence_diagram
from kafka_eos_checks.drawing.sequence_diagram import Step as Drawn
from kafka_eos_checks.kit.terminal import WordTable
from kafka_eos_checks.kit.verdict import write_document

KIPS = {
    "InitProducerId": ("KIP-98, KIP-360", "KIP-98, KIP-360"),
    "AddPartitionsToTxn": ("KIP-98, KIP-588", "KIP-98, KIP-588"),
    "AddOffsetsToTxn": ("KIP-98, KIP-588", "KIP-98, KIP-588"),
    "EndTxn": ("KIP-98, KIP-588", "KIP-890 part 2"),
    "Produce": ("KIP-98, KIP-890 part 1", "KIP-890 part 2"),
    "TxnOffsetCommit": ("KIP-98, KIP-447, KIP-890 part 1", "KIP-447, KIP-890 part 2"),
    "OffsetCommit": ("KIP-98", "KIP-98"),
    DELETE: ("KIP-496", "KIP-496"),
    MARK: ("KIP-98, KIP-664", "KIP-98, KIP-664, KIP-1228"),
    "JoinGroup": ("KIP-394", "KIP-394"),
    "ConsumerGroupHeartbeat": ("KIP-848", "KIP-848"),
    SETTLE: ("KIP-98", "KIP-890 part 2, KIP-1228"),
}
"""The KIPs that define a request's behaviour, in transactions of version 1 and of version 2."""
_ABOUT = {SETTLE: "markers and completion"}
_OWN_KIPS = {"idempotence": "KIP-98, KIP-360", "static": "KIP-345, KIP-447", "members": "KIP-447, KIP-848, KIP-1251"}
_SHORT_FIELDS = {"coordinator", "listed state", "offset of the group"}
_DIFFERING = (Found.DIVERGES, Found.UNKNOWN, Found.UNSUPPORTED)  # in the order in which they are shown


def about(edge: Edge) -> str:
    """The subject of a row of the table."""
    return _ABOUT.get(edge.request.action, edge.request.api)


def kips_of(edge: Edge, client: int) -> str:
    """The KIPs that define an edge."""
    return _OWN_KIPS.get(edge.mechanism.name) or KIPS[edge.request.api][client - 1]


@dataclass(slots=True, kw_only=True)
class Report:
    """A run against one broker.

    Attributes:
        target: the broker.
        level: transaction.version of the cluster, None if the broker does not say.
        asked: the transaction version that was asked for.
        client: the transaction version of the requests.
        versions: the versions of the requests, by API.
        quotients: the graphs.
        results: the results by the name of the edge.
        counts: scenarios, requests, retries, observations, and what could not be observed.
        seconds: wall time.
        names: the prefix of all names.
        left: what could not be deleted.
        stopped: why the run ended before all edges were asked for; "" if it did not.
    """

    target: str
    level: int | None
    asked: int
    client: int
    versions: dict[str, int]
    quotients: list[Quotient]
    results: dict[str, Result] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    names: str = ""
    left: list[str] = field(default_factory=list)
    stopped: str = ""

    @property
    def found(self) -> Counter[Found]:
        """The number of edges by outcome, internal ones included."""
        return Counter(result.found for result in self.results.values())

    @property
    def conforms(self) -> bool:
        """Whether some edge conforms, none diverges, and every edge that the broker supports could be judged."""
        return self.is_compared and not any(self.found[each] for each in (Found.DIVERGES, Found.UNKNOWN))

    @property
    def is_compared(self) -> bool:
        """Whether the broker supports any edge."""
        return any(count for found, count in self.found.items() if found is not Found.UNSUPPORTED)

    @property
    def edges(self) -> int:
        """The number of edges that a client asks for."""
        return sum(not result.edge.is_internal for result in self.results.values())

    def rows(self) -> Iterator[tuple[str, str, str, Counter[Found]]]:
        """Mechanism, request, KIPs, and the number of edges by outcome."""
        grouped: dict[tuple[str, str, str], Counter[Found]] = {}
        for result in self.results.values():
            edge = result.edge
            key = edge.mechanism.name, about(edge), kips_of(edge, self.client)
            grouped.setdefault(key, Counter())[result.found] += 1
        for (mechanism, request, kips), counted in grouped.items():
            yield mechanism, request, kips, counted

    def differing(self) -> list[Result]:
        """The results that do not conform: divergences first, then unknown ones; the shortest scenario first.

        Edges that were not asked for come after those that are the reason.
        """
        bad = [result for result in self.results.values() if result.found in _DIFFERING]
        return sorted(
            bad,
            key=lambda result: (
                _DIFFERING.index(result.found),
                result.reason.startswith((OUT_OF_REACH, NOT_ASKED)),
                len(result.scenario),
            ),
        )

    def kinds(self) -> list[list[Result]]:
        """The differing results by kind, the one with the shortest scenario first."""
        grouped: dict[tuple[str, ...], list[Result]] = {}
        for result in self.differing():
            if result.found is not Found.UNSUPPORTED:
                grouped.setdefault(_kind_of(result), []).append(result)
        return list(grouped.values())

    def busy(self) -> Counter[str]:
        """The answers where the spec allows several, because markers were being written."""
        return Counter(
            "CONCURRENT_TRANSACTIONS" if answer.startswith("CONCURRENT") else "the final answer"
            for result in self.results.values()
            for answer in result.answers
        )

    def hidden(self) -> Counter[str]:
        """The number of edges that conform although a field was not judged after them, by the field."""
        return Counter(_with_request(what) for result in self.results.values() for what in result.hidden)

    def known(self) -> dict[str, list[Result]]:
        """The edges of each recorded difference."""
        shown: dict[str, list[Result]] = {}
        for result in self.results.values():
            if result.known:
                shown.setdefault(result.known, []).append(result)
        return shown


def _kind_of(result: Result) -> tuple[str, ...]:
    """The kind of a divergence: the request and both answers, or the differing part of the state."""
    if not result.differences:
        return result.found, re.sub(r"\d+", "", result.reason)
    first, request = result.differences[0], result.edge.request
    if first.what == ANSWER:
        codes = _codes(first.allowed), _codes(first.observed)
        return result.found, request.api, request.whose, request.detail, *codes
    field_name = re.sub(r" of \w$", "", first.what)
    if field_name not in _SHORT_FIELDS:
        return result.found, field_name
    return result.found, field_name, re.sub(r"\d+", "", first.allowed), re.sub(r"\d+", "", first.observed)


def _codes(answer: str) -> str:
    return re.sub(r" \([^)]*\)", "", answer)


def causes_of(result: Result) -> list[Cause]:
    """The known causes of a divergence."""
    return [
        cause
        for cause in causes()
        if any(cause.explains(result.edge.name, each.what, each.observed) for each in result.differences)
    ]


# --- the terminal ----------------------------------------------------------------------------------------------------


def table(report: Report) -> Table:
    """A table with a row for each mechanism and request."""
    drawn = WordTable("mechanism", "request", "defined by")
    for found in Found:
        drawn.add_column(found.value, justify="right")
    before = ""
    for mechanism, request, kips, counted in report.rows():
        numbers = [str(counted[found] or "·") for found in Found]
        drawn.add_row(mechanism if mechanism != before else "", request, kips, *numbers)
        before = mechanism
    return drawn


def story(result: Result, client: int) -> str:
    """A result that does not conform, as text: what was asked and answered, what is allowed and why."""
    lines = [f"{result.found.upper()}  {result.edge.id}  {result.edge.name}"]
    if result.reason:
        lines.append(f"  {result.reason}")
    for difference in result.differences:
        lines += [
            f"  {_with_request(difference.what)}",
            f"    the spec: {difference.allowed}",
            f"    the broker: {difference.observed}",
        ]
    last = result.scenario[-1] if result.scenario else None
    if last is not None and result.found is Found.DIVERGES:
        lines += [f"  why: {rule} [{', '.join(rule.places)}]" for rule in last.rules()]
        lines.append(f"  defined by: {kips_of(result.edge, client)}")
        lines += [f"  known of: {each.brokers}. {each.cause} ({each.source})" for each in causes_of(result)]
        if last.request:
            lines += [f"  request: {last.request}", f"  response: {last.response}"]
    lines += [f"  {number}. {_line(each)}" for number, each in enumerate(result.scenario, start=1)]
    return "\n".join(lines)


def _with_request(what: str) -> str:
    """The name of a field, with the request that reads it back."""
    told_by = asked_by(what.removesuffix(IN_SECOND).removesuffix(OF_SECOND_GROUP))
    return f"{what} ({told_by})" if told_by else what


def _line(exchange: Exchange) -> str:
    return f"{exchange.label}: {exchange.answered}" if exchange.answered else exchange.label


# --- diagrams --------------------------------------------------------------------------------------------------------


def diagram(result: Result) -> str:
    """A scenario as a sequence diagram; "" for none."""
    if not result.scenario:
        return ""
    clients = {each.name: f"client {each.name}".strip() for each in result.scenario if each.api}
    lifelines = [Lifeline(name, Role.CLIENT) for name in dict.fromkeys(clients.values())]
    coordinator, group, leader = "transaction coordinator", "group coordinator", "partition leader"
    lifelines += [Lifeline(coordinator, Role.COORDINATOR)]
    lifelines += [Lifeline(group, Role.COORDINATOR)] if any(_target(e) == group for e in result.scenario) else []
    lifelines += [Lifeline(leader, Role.PARTITION)]
    steps: list[Drawn] = []
    for exchange in result.scenario:
        if not exchange.api:
            steps.append(Drawn(coordinator, leader, exchange.label))
            continue
        client, target = clients[exchange.name], _target(exchange)
        steps.append(Drawn(client, target, exchange.label))
        kind = Kind.REPLY if exchange.answered.startswith("NONE") else Kind.REFUSED
        steps.append(Drawn(target, client, exchange.answered, kind))
    violation = None
    if result.differences:
        text = "; ".join(f"{d.what}: {d.observed}, where the spec says {d.allowed}" for d in result.differences)
        violation = Violation(len(steps) - 1, text)
    elif result.known:
        last = result.scenario[-1]
        text = f"{last.answered}, where the spec says {' or '.join(last.allowed)}"
        violation = Violation(len(steps) - 1, text)
    return sequence_diagram(lifelines, steps, violation)


def _target(exchange: Exchange) -> str:
    if exchange.api in {"Produce", MARK}:
        return "partition leader"
    if exchange.api in {"TxnOffsetCommit", "OffsetCommit", DELETE, "JoinGroup", HEARTBEAT}:
        return "group coordinator"
    return "transaction coordinator"


# --- files -----------------------------------------------------------------------------------------------------------


def to_json(report: Report) -> dict[str, Any]:
    """The whole report."""
    return {
        "target": report.target,
        "transaction_version": report.level,
        "asked": report.asked,
        "versions": report.versions,
        "seconds": round(report.seconds, 2),
        "scenarios": report.counts.scenarios,
        "requests": report.counts.requests,
        "retries": report.counts.retries,
        "disturbed": report.counts.disturbed,
        "observations": report.counts.observations,
        "not_read_back": sorted(report.counts.unread),
        "not_judged": dict(report.hidden()),
        "edges": report.edges,
        "found": {found.value: report.found[found] for found in Found},
        "answers_while_markers_are_written": dict(report.busy()),
        "graphs": [
            {
                "mechanism": each.mechanism.name,
                "title": each.mechanism.title,
                "nodes": len(each.places),
                "edges": sum(not edge.is_internal for edge in each.edges.values()),
                "internal_edges": sum(edge.is_internal for edge in each.edges.values()),
                "faults_and_timeouts_apart": dict(each.apart),
            }
            for each in report.quotients
        ],
        "left_behind": report.left,
        "stopped": report.stopped,
        "results": [_result_json(result, report.client) for result in report.results.values()],
    }


def _result_json(result: Result, client: int) -> dict[str, Any]:
    edge = result.edge
    row: dict[str, Any] = {
        "id": edge.id,
        "name": edge.name,
        "mechanism": edge.mechanism.name,
        "request": about(edge),
        "kips": kips_of(edge, client),
        "allowed": list(edge.answers),
        "found": result.found.value,
    }
    if result.known:
        row["known_difference"] = result.known
    if result.reason:
        row["reason"] = result.reason
    if result.hidden:
        row["not_judged"] = list(result.hidden)
    if result.differences:
        row["differences"] = [
            {"what": d.what, "allowed": d.allowed, "observed": d.observed} for d in result.differences
        ]
    if result.scenario:
        row["scenario"] = [
            {
                "label": e.label,
                "answered": e.answered,
                "allowed": list(e.allowed),
                "request": e.request,
                "response": e.response,
            }
            for e in result.scenario
        ]
        row["rules"] = [rule.name for rule in result.scenario[-1].rules()]
    return row


def write_json(path: Path, reports: Sequence[Report]) -> None:
    """Write reports as one JSON document."""
    write_document(path, [to_json(report) for report in reports])


def write_junit(path: Path, report: Report) -> None:
    """Write a report as JUnit XML: a suite for each mechanism, a case for each edge."""
    root = ElementTree.Element("testsuites", name=f"kafka-eos conform {report.target}")
    for quotient in report.quotients:
        name = quotient.mechanism.name
        mine = [result for result in report.results.values() if result.edge.mechanism.name == name]
        counted = Counter(result.found for result in mine)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=name,
            tests=str(len(mine)),
            failures=str(counted[Found.DIVERGES]),
            errors=str(counted[Found.UNKNOWN]),
            skipped=str(counted[Found.UNSUPPORTED]),
        )
        for result in mine:
            case = ElementTree.SubElement(suite, "testcase", classname=name, name=result.edge.name)
            kind = {Found.DIVERGES: "failure", Found.UNKNOWN: "error", Found.UNSUPPORTED: "skipped"}.get(result.found)
            if kind is not None:
                said = "; ".join(f"{d.what}: {d.observed}" for d in result.differences) or result.reason
                ElementTree.SubElement(case, kind, message=said).text = story(result, report.client)
            elif result.known:
                known = known_differences()[result.known]
                ElementTree.SubElement(case, "system-out").text = f"{known.title} {known.reason} ({known.source})"
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
