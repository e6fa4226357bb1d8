"""The choice of the events that a finding is about."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.cause import AFTER, BATCH, BEFORE, DECISION, ELSEWHERE, SEEN, Cause, _rank, cause_of
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.quoting import named
from kafka_eos_checks.audit.rules.applications import FENCED_GENERATION, NOT_PROCESSED, OUTPUT_ALONE, SKIPPED, TWICE
from kafka_eos_checks.audit.rules.histories import REFUSED
from kafka_eos_checks.audit.rules.readers import COMMITTED_MISSING
from kafka_eos_checks.simulate.named_failures import NAMED_FAILURES
from kafka_eos_checks.simulate.transactions import simulate_failure, write_transactions


class Run:
    """A history that a test writes, request by request."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.requests = 0

    def event(self, action: str, phase: str = "ok", process: str = "proxy/app", **columns: Any) -> int:
        self.events.append(
            Event(run="r", order=len(self.events), process=process, action=action, phase=phase, **columns)
        )
        return len(self.events) - 1

    def ask(self, action: str, phase: str = "ok", **columns: Any) -> int:
        """A request and its answer; the place of the answer."""
        self.requests += 1
        detail = {"request": self.requests} | columns.pop("detail", {})
        offset = columns.pop("offset", None)
        self.event(action, "invoke", detail=detail, **columns)
        return self.event(action, phase, detail=detail, offset=offset, **columns)

    def produce(self, offset: int, *, name: str = "x", partition: int = 0, topic: str = "out", **columns: Any) -> int:
        batch = {"topic": topic, "partition": partition, "base_sequence": offset, "producer_id": 7, **columns}
        return self.ask("Produce", transactional_id=name, offset=offset, **batch)

    def end(self, commit: bool = True, name: str = "x", **columns: Any) -> int:
        detail = {"committed": commit} | columns.pop("detail", {})
        return self.ask("EndTxn", transactional_id=name, producer_id=7, detail=detail, **columns)

    def commit(self, offset: int, name: str | None = "x", partition: int = 0) -> int:
        action = "TxnOffsetCommit" if name else "OffsetCommit"
        place = {"topic": "in", "partition": partition, "group": "g"}
        return self.ask(action, transactional_id=name, detail={"committed_offset": offset}, **place)


@pytest.fixture
def run() -> Run:
    return Run()


def finding(rule: str, offset: int | None, evidence: str = "", topic: str = "out", **columns: Any) -> Finding:
    return Finding(rule=rule, topic=topic, partition=0, offset=offset, evidence=evidence, run="r", **columns)


def told(found: Cause | None) -> list[str]:
    assert found is not None
    return [f"{event.action} {event.phase}" for event in found.events]


def orders(found: Cause | None) -> list[int]:
    assert found is not None
    return [event.order or 0 for event in found.events]


# --- causes that were left out before --------------------------------------------------------------------------------


def causes(name: str, folder: Path) -> list[tuple[Finding, Cause]]:
    """The findings of a named failure, each with the events that are shown."""
    simulated = simulate_failure(name)
    write_transactions(simulated, folder)
    shown = [(each, cause_of(each, simulated.events)) for each in audit.run([folder]).findings]
    return [(each, found) for each, found in shown if found is not None]


def has(**wanted: Any) -> Callable[[Cause], bool]:
    """Whether a cause shows an event with these columns, or details."""

    def fits(event: Event) -> bool:
        known = {**event.detail, **{key: getattr(event, key) for key in wanted if hasattr(event, key)}}
        return all(known.get(key) == value for key, value in wanted.items())

    return lambda found: any(map(fits, found.events))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("late-end", [has(action="EndTxn", repeats=3), has(action="EndTxn", request=3, phase="ok")]),
        (
            "late-end",
            [has(action="WriteTxnMarkers", offset=3, committed=True), has(action="AbortTransaction", phase="ok")],
        ),
        ("late-marker", [has(action="WriteTxnMarkers", repeats=True), has(action="CommitTransaction", phase="ok")]),
        ("hanging", [has(action="EndTxn", committed=False, phase="ok"), has(action="AddPartitionsToTxn", phase="ok")]),
    ],
)
def test_a_named_failure_shows_what_brought_it_about(
    name: str, wanted: list[Callable[[Cause], bool]], tmp_path: Path
) -> None:
    found = causes(name, tmp_path)
    assert {each.rule for each, _ in found} == NAMED_FAILURES[name].found
    for each, shown in found:
        assert [condition(shown) for condition in wanted] == [True] * len(wanted), each.in_words()


def test_a_record_that_a_marker_has_hidden_is_shown_with_that_marker(tmp_path: Path) -> None:
    [(_, found)] = [(each, found) for each, found in causes("late-marker", tmp_path) if each.rule == COMMITTED_MISSING]
    effect = found.events[found.effect]
    assert (effect.action, effect.offset, effect.detail["repeats"]) == ("WriteTxnMarkers", 3, True)


def test_a_commit_outside_of_the_transaction_is_shown(run: Run) -> None:
    run.produce(0)
    run.commit(1, name=None)
    run.end()
    said = "'a' is the output of in-0 offset 0 of group 'g'; offset 1 was committed outside of its transaction"
    shown = told(cause_of(finding(OUTPUT_ALONE, 0, said), run.events))
    assert shown == [f"{name} {phase}" for name in ("Produce", "OffsetCommit", "EndTxn") for phase in ("invoke", "ok")]


def test_everything_between_two_commits_of_the_group_is_about_an_input_that_was_skipped(run: Run) -> None:
    run.commit(1)
    first = run.end()
    run.produce(0, detail={"fault": "error"}, phase="fail")
    run.commit(2)
    aborted = run.end(commit=False)
    for offset in (3, 4):
        run.produce(offset)
        run.commit(offset)
        run.end(commit=False)
    run.commit(6)
    behind = run.end()
    run.commit(7)
    run.end()
    found = cause_of(finding(SKIPPED, 1, topic="in"), run.events)
    assert found is not None
    assert found.events[found.effect].order == behind
    assert {first, aborted} <= set(orders(found))
    assert any(event.detail.get("fault") == "error" for event in found.events)


@pytest.mark.parametrize("action", ["AbortTransaction", "InitProducerId"])
def test_an_end_that_does_not_say_that_it_commits_commits_no_offset(action: str, run: Run) -> None:
    run.commit(2)
    run.ask(action, transactional_id="x", producer_id=7)
    run.commit(3)
    behind = run.ask("CommitTransaction", transactional_id="x", producer_id=7)
    found = cause_of(finding(SKIPPED, 1, topic="in"), run.events)
    assert found is not None
    assert found.events[found.effect].order == behind


def test_an_input_that_was_aborted_and_not_tried_again_shows_the_abort(run: Run) -> None:
    run.produce(0, topic="in", name="upstream")
    run.commit(1)
    run.end()
    aborted = run.produce(0, detail={"fault": "error"}, phase="fail")
    run.commit(2)
    run.end(commit=False)
    for offset in range(2, 5):
        run.produce(offset, partition=1)
        last = run.commit(offset, partition=1)
        run.end()
    found = cause_of(finding(NOT_PROCESSED, 1, topic="in"), run.events)
    assert found is not None
    assert found.events[found.effect].order == last
    assert aborted in orders(found)


def test_a_group_that_stopped_with_the_commit_before_shows_that_commit(run: Run) -> None:
    run.produce(0, topic="in", name="upstream")
    last = run.commit(1)
    ended = run.end()
    found = cause_of(finding(NOT_PROCESSED, 1, topic="in"), run.events)
    assert found is not None
    assert found.events[found.effect].order == last
    assert ended in orders(found)


def test_both_places_of_an_output_that_is_there_twice_are_shown(run: Run) -> None:
    first = run.produce(0, name="x")
    run.end(name="x")
    second = run.produce(5, name="y", partition=1)
    run.end(name="y")
    said = "in-0 offset 0 of group 'g' was processed more than once: out-0 offset 0, out-1 offset 5"
    found = cause_of(Finding(rule=TWICE, topic="out", partition=1, offset=5, evidence=said, run="r"), run.events)
    assert {first, second} <= set(orders(found))


# --- what belongs to a finding ----------------------------------------------------------------------------------------


def test_others_transactions_partitions_and_groups_are_left_out(run: Run) -> None:
    run.produce(0, name="y", partition=1, producer_id=8)
    run.event("JoinGroup", group="h")
    own = run.produce(0)
    found = cause_of(finding("duplicate", 0, producer_id=7), run.events)
    assert orders(found) == [own - 1, own]


@pytest.mark.parametrize("action", ["Crash", "Restart", "AdvanceClock"])
def test_what_happens_to_the_cluster_belongs_to_every_finding(action: str, run: Run) -> None:
    run.event(action, process="broker-1")
    run.produce(0)
    assert told(cause_of(finding("duplicate", 0), run.events))[0] == f"{action} ok"


@pytest.mark.parametrize("action", ["TimeOut", "Failover"])
def test_what_happens_to_the_transaction_belongs_to_it(action: str, run: Run) -> None:
    run.produce(0)
    run.event(action, process="broker-1", transactional_id="x")
    run.event(action, process="broker-1", transactional_id="another")
    assert told(cause_of(finding("duplicate", 0), run.events)).count(f"{action} ok") == 1


def test_a_delayed_copy_brings_along_the_request_that_it_is_a_copy_of(run: Run) -> None:
    run.produce(0)
    first = run.end()
    copied = run.requests
    for offset in range(1, 30):
        run.produce(offset)
        run.end()
    last = run.produce(30)
    run.end(detail={"repeats": copied})
    found = cause_of(finding("duplicate", 30), run.events)
    assert {first - 1, first, last} <= set(orders(found))


def test_the_transaction_before_is_shown_and_those_before_it_are_not(run: Run) -> None:
    ends = []
    for offset in range(4):
        run.produce(offset)
        ends.append(run.end())
    found = cause_of(finding("duplicate", 3), run.events)
    assert set(ends[2:]) <= set(orders(found))
    assert not set(ends[:2]) & set(orders(found))
    assert found is not None
    assert found.left_out == {0: 8}


def test_decisions_errors_and_faults_stay_when_there_is_no_room_for_everything(run: Run) -> None:
    begun = run.ask("InitProducerId", transactional_id="x", producer_id=7)
    batch = {"topic": "out", "partition": 1, "base_sequence": 0}
    refused = run.ask("Produce", "fail", transactional_id="x", producer_id=7, error=10, **batch)
    for offset in range(60):
        run.produce(offset, partition=1)
    effect = run.produce(99)
    ended = run.end(commit=False)
    found = cause_of(finding("duplicate", 99), run.events)
    assert found is not None
    assert {begun - 1, begun, refused, effect, ended} <= set(orders(found))
    assert found.effect < BEFORE
    assert len(found.events) - found.effect - 1 <= AFTER
    assert sum(found.left_out.values()) == len(run.events) - len(found.events)


def test_what_readers_see_takes_no_room_from_batches(run: Run) -> None:
    places = [run.produce(offset) for offset in range(8)]
    for _ in range(40):
        run.event("EndOfPartition", process="reader", topic="out", partition=0, offset=8)
    effect = run.produce(8)
    found = cause_of(finding("duplicate", 8), run.events)
    assert {*places, effect} <= set(orders(found))
    assert found is not None
    assert found.left_out == {}


def test_an_answer_is_kept_with_its_request(run: Run) -> None:
    for offset in range(60):
        run.produce(offset)
    found = cause_of(finding("duplicate", 50), run.events)
    assert found is not None
    requests = [event.detail["request"] for event in found.events]
    assert all(requests.count(number) == 2 for number in requests)


def test_a_long_value_in_the_evidence_takes_no_long_time(run: Run) -> None:
    own = run.produce(0)
    said = f"'{'a-1.' * 250_000}' is the output of in-0 offset 7"
    assert own in orders(cause_of(finding(OUTPUT_ALONE, 0, said), run.events))


def test_a_finding_that_no_event_tells_of_has_no_cause(run: Run) -> None:
    run.produce(0)
    assert cause_of(finding("duplicate", 5), run.events) is None
    assert cause_of(finding("duplicate", 0, topic="elsewhere"), run.events) is None


def test_a_commit_of_a_past_generation_is_the_answer_that_the_finding_names(run: Run) -> None:
    run.commit(1)
    answer = run.commit(2)
    said = f"event {answer}: proxy/app committed 2 as a member of generation 3 of 'g', when generation 4 had begun"
    found = cause_of(finding(FENCED_GENERATION, None, said, topic="in"), run.events)
    assert found is not None
    assert found.events[found.effect] is run.events[answer]
    of_another = said.replace("proxy/app", "proxy/other")
    assert cause_of(finding(FENCED_GENERATION, None, of_another, topic="in"), run.events) is None
    refused = cause_of(finding(REFUSED, None, f"{named(run.events[answer])}: refused", topic="in"), run.events)
    assert refused is not None
    assert refused.events[refused.effect] is run.events[answer]


def test_what_a_test_declares_is_not_drawn(run: Run) -> None:
    run.event("DeclareTopic", process="test", group="g", topic="out", detail={"role": "output"})
    run.event("DeclareRecord", process="test", group="g", topic="out", partition=0, offset=0, detail={"identity": "a"})
    own = run.produce(0)
    assert orders(cause_of(finding(OUTPUT_ALONE, 0), run.events)) == [own - 1, own]


def test_a_declared_group_is_known_without_a_commit(run: Run) -> None:
    run.event("DeclareTopic", process="test", group="g", topic="out", detail={"role": "output"})
    joined = run.event("JoinGroup", group="g", process="proxy/consumer")
    run.produce(0)
    run.end()
    assert joined in orders(cause_of(finding(OUTPUT_ALONE, 0), run.events))


@pytest.mark.parametrize("tie", [{}, {"group": "g"}, {"producer_id": 7}, {"process": "proxy/consumer"}], ids=str)
def test_a_producer_belongs_to_a_finding_by_its_group_by_its_id_or_by_its_process(
    tie: dict[str, Any], run: Run
) -> None:
    run.event("DeclareTopic", process="test", group="g", topic="out", detail={"role": "output"})
    run.event("JoinGroup", group="g", process="consumer")
    run.event("AddOffsetsToTxn", **{"process": "elsewhere", "transactional_id": "z"} | tie)
    tied = run.event("FindCoordinator", process="elsewhere", transactional_id="z")
    run.produce(0)
    run.end()
    assert (tied in orders(cause_of(finding(OUTPUT_ALONE, 0), run.events))) == bool(tie)


def test_a_corrupt_region_has_neither_offset_nor_producer_so_no_event_is_its(run: Run) -> None:
    run.event("Poll", topic="out", partition=0, offset=3)
    assert cause_of(finding("readable", None), run.events) is None


@pytest.mark.parametrize("how", ["fault", "repeats", "by_hand"])
def test_a_marker_elsewhere_that_no_coordinator_sent_at_its_time_is_as_near_as_a_decision(how: str) -> None:
    marker = Event(run="r", process="p", action="WriteTxnMarkers", phase="ok", topic="other", partition=0)
    assert _rank(marker, {("t", 0)}) == ELSEWHERE
    assert _rank(replace(marker, detail={how: True}), {("t", 0)}) == DECISION


@pytest.mark.parametrize(
    ("action", "topic", "group", "rank"),
    [
        ("Poll", "t", None, BATCH),
        ("Poll", "other", None, SEEN),
        ("EndOfPartition", "t", None, SEEN),
        ("Produce", "t", None, BATCH),
        ("Produce", "other", None, ELSEWHERE),
        ("JoinGroup", None, "g", BATCH),
    ],
)
def test_an_event_at_the_place_of_the_finding_or_of_a_group_is_nearer_than_one_elsewhere(
    action: str, topic: str | None, group: str | None, rank: int
) -> None:
    partition = None if topic is None else 0
    event = Event(run="r", process="p", action=action, phase="ok", topic=topic, partition=partition, group=group)
    assert _rank(event, {("t", 0)}) == rank
