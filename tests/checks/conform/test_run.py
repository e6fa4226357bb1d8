"""The agreement of an answer with the spec, and the text that shows a broker's answer."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.transaction_coordinator import Identity
from kafka_eos_checks.conform.known import Cause
from kafka_eos_checks.conform.mechanisms import IDEMPOTENCE, TRANSACTIONS, Request
from kafka_eos_checks.conform.observation import STABLE, WATERMARK
from kafka_eos_checks.conform.quotient import Edge, Quotient, edge_of, explored, steps
from kafka_eos_checks.conform.result import Report
from kafka_eos_checks.conform.run import (
    BUSY,
    Difference,
    Diverged,
    Exchange,
    Found,
    Result,
    Runner,
    agrees,
    shown_answer,
    shown_reply,
)
from kafka_eos_checks.conform.stage import Reply
from kafka_eos_checks.conform.visible import CURRENT, Answer
from kafka_eos_checks.conform.visible import NONE as NOBODY
from kafka_eos_checks.conform.wire import NoAnswer, Unsupported

from .test_behaviours import VERSION_2

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
GIVEN, ANOTHER = Identity(producer_id=0, epoch=1), Identity(producer_id=0, epoch=2)


def answer(error: ErrorCode = NONE, **more: object) -> Answer:
    return Answer(error=error, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reply", "allowed"),
    [
        (Reply(error=NONE), answer()),
        (Reply(error=NONE, identity=GIVEN, offset=3), answer()),  # the spec says nothing about them
        (Reply(error=NONE, identity=GIVEN), answer(identity=GIVEN)),
        (Reply(error=NONE, offset=0), answer(offset=0)),
        (Reply(error=FENCED, identity=ANOTHER), answer(FENCED, identity=GIVEN)),  # a refusal gives nothing
    ],
)
def test_an_answer_agrees_in_all_that_the_spec_says(reply: Reply, allowed: Answer) -> None:
    assert agrees(reply, allowed)


@pytest.mark.parametrize(
    ("reply", "allowed"),
    [
        (Reply(error=FENCED), answer()),
        (Reply(error=NONE), answer(FENCED)),
        (Reply(error=NONE), answer(identity=GIVEN)),
        (Reply(error=NONE, identity=ANOTHER), answer(identity=GIVEN)),
        (Reply(error=NONE), answer(offset=0)),
        (Reply(error=NONE, offset=1), answer(offset=0)),
    ],
)
def test_an_answer_without_what_the_spec_says_or_with_another_diverges(reply: Reply, allowed: Answer) -> None:
    assert not agrees(reply, allowed)


def test_both_sides_are_shown_in_the_same_words() -> None:
    assert shown_answer(answer(identity=GIVEN, offset=0)) == "NONE (producer 0 epoch 1, offset 0)"
    assert shown_reply(Reply(error=NONE, identity=GIVEN, offset=0)) == "NONE (producer 0 epoch 1, offset 0)"
    assert shown_answer(answer(identity=Identity(producer_id=-1, epoch=-1))) == "NONE (epoch -1)"
    assert shown_answer(answer(FENCED, identity=GIVEN)) == shown_reply(Reply(error=FENCED)) == "PRODUCER_FENCED"
    assert shown_reply(Reply(error=31_000)) == "error 31000"


def test_a_cause_explains_all_that_was_observed_and_not_a_part_of_it() -> None:
    cause = Cause(name="^txn: ", what="answer", observed="NONE|UNKNOWN_.*", brokers="2.8", cause="", source="")
    assert cause.explains("txn: open: EndTxn", "answer", "NONE")
    assert cause.explains("txn: open: EndTxn", "answer", "UNKNOWN_PRODUCER_ID")
    assert not cause.explains("txn: open: EndTxn", "answer", "NONE (offset 3)")
    assert not cause.explains("txn: open: EndTxn", "log", "NONE")
    assert not cause.explains("idempotence: txn: EndTxn", "answer", "NONE")


def test_every_scenario_that_begins_is_counted() -> None:
    stage: Any = SimpleNamespace()
    runner = Runner(Quotient(TRANSACTIONS, VERSION_2), lambda: stage)
    plays = [runner._begin() for _ in range(3)]
    assert runner.counts.scenarios == 3
    assert all(play.counts is runner.counts for play in plays)


@pytest.mark.parametrize(("errors", "patience", "retries"), [([FENCED], 60.0, 0), (sorted(BUSY) * 9, 0.0, None)])
def test_a_request_that_is_refused_or_busy_for_too_long_diverges_and_is_counted_once(
    errors: list[int], patience: float, retries: int | None
) -> None:
    replies = iter(errors)
    stage: Any = SimpleNamespace(ask=lambda *_: Reply(error=next(replies)), second=None)
    play = Runner(Quotient(TRANSACTIONS, VERSION_2), lambda: stage)._begin()
    play.patience = patience
    step = next(s for s in steps(TRANSACTIONS, play.state) if {a.error for a, _ in s.outcomes} == {NONE})
    with pytest.raises(Diverged):
        play.take(step, read_back=False)
    assert play.counts.requests == 1
    assert retries is None or play.counts.retries == retries


def test_a_divergence_that_the_shortest_way_does_not_show_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stage: Any = SimpleNamespace(repeats=lambda: 0, second=None)
    runner = Runner(Quotient(TRANSACTIONS, VERSION_2), lambda: stage)
    play = runner._begin()
    step = next(steps(TRANSACTIONS, play.state))
    diverged = Diverged([Difference(what="answer", allowed="NONE", observed="LOST")], answer=True)
    for found in (Found.CONFORMS, Found.UNKNOWN, Found.DIVERGES):
        monkeypatch.setattr(Runner, "shortest", lambda _, edge, found=found: Result(edge=edge, found=found))
        runner._fails(step, play, diverged, {step.edge: None})
        [result] = runner.results.values()
        assert result.found is Found.DIVERGES
        assert (result.reason == "the shortest way to it does not show it") == (found is not Found.DIVERGES)


@pytest.mark.parametrize("needed", [1, 2, 3])
def test_a_divergence_that_needs_a_history_is_shown_after_the_last_requests_of_it(
    needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    quotient = explored(TRANSACTIONS, VERSION_2)
    stage: Any = SimpleNamespace(repeats=lambda: 0, second=None)
    runner = Runner(quotient, lambda: stage)
    play = runner._begin()
    long = [Request("InitProducerId", whose=whose) for whose in (NOBODY, *["epoch + 1"] * 9, *[CURRENT] * needed)]
    for request in long:
        play.places.append(TRANSACTIONS.place(play.state))
        play.requests.append(request)
        step = play.step(request)
        play.state = step.outcomes[0][1]
    tried: list[int] = []

    def shortest(_: Runner, edge: Edge) -> Result:
        tried.append(len(edge.path))
        shows = sum(request.whose == CURRENT for request in edge.path) >= needed
        return Result(edge=edge, found=Found.DIVERGES if shows and len(tried) > 1 else Found.CONFORMS)

    monkeypatch.setattr(Runner, "shortest", shortest)
    runner._fails(step, play, Diverged([Difference(what="answer", allowed="", observed="")], answer=True), {})
    [result] = runner.results.values()
    assert result.found is Found.DIVERGES
    assert result.reason == "--repeat, which plays the shortest way to it, does not show it; this one does"
    assert result.edge == quotient.edges[step.edge]
    assert tried[-1] < len(long) - 5


def test_a_difference_that_stays_is_told_once_also_if_another_one_comes() -> None:
    seen: dict[str, str] = {}
    stage: Any = SimpleNamespace(observe=lambda _, **__: (dict(seen), {}), second=None)
    play = Runner(Quotient(TRANSACTIONS, VERSION_2), lambda: stage)._begin()
    for field in (WATERMARK, STABLE):
        seen[field] = "another"
        with pytest.raises(Diverged) as diverged:
            play.compare_state()
        assert [each.what for each in diverged.value.differences] == [field]
    play.compare_state()
    assert play.hidden == (WATERMARK, STABLE)
    del seen[WATERMARK]
    play.compare_state()
    assert play.hidden == (STABLE,)


def test_an_edge_that_conforms_tells_what_was_not_judged_after_it() -> None:
    stage: Any = SimpleNamespace(observe=lambda _, **__: ({STABLE: "7"}, {}), second=None)
    runner = Runner(Quotient(TRANSACTIONS, VERSION_2), lambda: stage)
    step = next(s for s in steps(TRANSACTIONS, runner._begin().state) if s.asked.request.api == "InitProducerId")
    runner.quotient.edges[step.edge] = edge_of(TRANSACTIONS, step, [])
    answer, _ = step.outcomes[0]
    stage.ask = lambda *_: Reply(error=answer.error, identity=answer.identity)
    for read_back, hidden in ((True, (STABLE,)), (False, ())):
        play = runner._begin()
        play.tolerated.add(STABLE)
        play.take(step, read_back=read_back)
        runner._conforms(step, play, {step.edge: None})
        assert runner.results[step.edge].hidden == hidden


@pytest.mark.parametrize("seen", [{}, {WATERMARK: "0"}], ids=["nothing", "something"])
def test_a_state_counts_as_read_back_if_something_of_it_was_read(seen: dict[str, str]) -> None:
    missing = {STABLE: "Fetch: the broker does not offer it"}
    stage: Any = SimpleNamespace(observe=lambda _, **__: (seen, missing), second=None)
    play = Runner(Quotient(TRANSACTIONS, VERSION_2), lambda: stage)._begin()
    play.compare_state()
    assert play.counts.observations == len(seen)
    assert play.counts.unread == {"Fetch: the broker does not offer it"}


@pytest.mark.parametrize("error", [NoAnswer("late"), Unsupported("not offered")], ids=["no answer", "unsupported"])
def test_a_divergence_that_only_the_shortest_way_shows_counts(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage: Any = SimpleNamespace()
    runner = Runner(Quotient(TRANSACTIONS, VERSION_2), lambda: stage)
    play = runner._begin()
    step = next(steps(TRANSACTIONS, play.state))
    monkeypatch.setattr(Runner, "shortest", lambda _, edge: Result(edge=edge, found=Found.DIVERGES))
    runner._fails(step, play, error, {step.edge: None})
    assert [result.found for result in runner.results.values()] == [Found.DIVERGES]


def test_what_diverges_on_the_way_to_an_edge_says_nothing_of_the_edge() -> None:
    quotient = Quotient(TRANSACTIONS, VERSION_2)
    first = next(s for s in steps(TRANSACTIONS, quotient.initial()) if {a.error for a, _ in s.outcomes} == {NONE})
    then = next(steps(TRANSACTIONS, first.outcomes[0][1]))
    edge = edge_of(TRANSACTIONS, then, [first.asked.request, then.asked.request])
    asked: list[object] = []
    stage: Any = SimpleNamespace(
        ask=lambda *given: asked.append(given) or Reply(error=99),
        leave=lambda _: None,
        repeats=lambda: 0,
        second=None,
    )
    result = Runner(quotient, lambda: stage).shortest(edge)
    assert (result.found, result.differences, len(asked)) == (Found.UNKNOWN, (), 1)
    assert (
        result.reason
        == f"on the way to it, {edge.path[0].label(TRANSACTIONS.alone)}: answer: another than the spec allows"
    )


@pytest.mark.parametrize(("failure", "said"), [(Found.DIVERGES, "diverges"), (Found.UNKNOWN, "could not be told")])
def test_an_edge_out_of_reach_says_whether_what_is_in_the_way_diverges_and_comes_after_it(
    failure: Found, said: str
) -> None:
    quotient = explored(TRANSACTIONS, VERSION_2)
    stage: Any = SimpleNamespace()
    runner = Runner(quotient, lambda: stage)
    begins = {arc.edge for arc in quotient.arcs[0]}
    runner._blocked |= begins
    played = (Exchange(label="", api="", name=""),)
    for name in begins:
        runner.results[name] = Result(edge=quotient.edges[name], found=failure, reason="late", scenario=played)
    far = next(edge for name, edge in quotient.edges.items() if name not in begins)
    lost = runner._out_of_reach(far)
    assert (lost.found, lost.reason) == (Found.UNKNOWN, f"every way to it leads through what {said}")
    report: Any = SimpleNamespace(results={far.name: lost, **runner.results})
    assert Report.differing(report)[-1] is lost


@pytest.mark.parametrize(
    ("error", "found", "known"),
    [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, Found.CONFORMS, ""), (NONE, Found.KNOWN, "first-sequence")],
)
def test_the_shortest_scenario_of_an_edge_tells_a_recorded_difference_from_the_specs_own_answer(
    error: ErrorCode, found: Found, known: str
) -> None:
    quotient = Quotient(IDEMPOTENCE, VERSION_2)
    begin = next(s for s in steps(IDEMPOTENCE, quotient.initial()) if s.asked.request.name == "P")
    gap = next(s for s in steps(IDEMPOTENCE, begin.outcomes[0][1]) if s.asked.request.detail == "gap")
    edge = edge_of(IDEMPOTENCE, gap, [begin.asked.request, gap.asked.request])

    def ask(given: Any, expected: Identity | None) -> Reply:
        return Reply(error=NONE, identity=expected) if given.request.detail != "gap" else Reply(error=error, offset=0)

    stage: Any = SimpleNamespace(ask=ask, observe=lambda *_, **__: ({}, {}), leave=lambda _: None, second=None)
    result = Runner(quotient, lambda: stage).shortest(edge)
    assert (result.found, result.known) == (found, known)
    assert [each.allowed for each in result.scenario][1:] == [("OUT_OF_ORDER_SEQUENCE_NUMBER",)]
