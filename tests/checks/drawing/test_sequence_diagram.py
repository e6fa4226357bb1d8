import random
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from kafka_eos.histories.history import Event
from kafka_eos_checks.drawing.sequence_diagram import (
    FIRST_STEPS,
    MAX_LIFELINES,
    MAX_STEPS,
    SMALL,
    Kind,
    Lifeline,
    Role,
    Step,
    Violation,
    from_events,
    from_story,
    sequence_diagram,
    steps_of,
)
from kafka_eos_checks.drawing.svg import NAMESPACE, inert, text_width

SVG = f"{{{NAMESPACE}}}"
LIFELINES = [Lifeline("client"), Lifeline("broker", Role.BROKER)]


def parsed(drawn: str) -> ET.Element:
    assert inert(drawn) == drawn
    return ET.fromstring(drawn)  # noqa: S314 - it passed the gate


def texts(drawn: str) -> list[str]:
    return [node.text or "" for node in parsed(drawn).iter(f"{SVG}text")]


def classes(drawn: str) -> list[str]:
    return [name for node in parsed(drawn).iter() for name in node.get("class", "").split()]


def step_kinds(drawn: str) -> list[str]:
    groups = [node.get("class", "").split() for node in parsed(drawn).iter(f"{SVG}g")]
    return [names[1] for names in groups if names[:1] == ["step"]]


def step_numbers(drawn: str) -> list[int]:
    return [int(node.text or "") for node in parsed(drawn).iter(f"{SVG}text") if node.get("class") == "number"]


def event(process: str, action: str, phase: str, **columns: object) -> Event:
    return Event(run="r", process=process, action=action, phase=phase, **columns)  # type: ignore[arg-type]


def test_every_lifeline_label_and_note_is_drawn() -> None:
    steps = [
        Step("client", "broker", "Produce", Kind.MESSAGE, "sequence 0"),
        Step("broker", "", "Append", Kind.EVENT, "log grows"),
        Step("broker", "client", "ack @ 0", Kind.REPLY),
    ]
    drawn = texts(sequence_diagram(LIFELINES, steps))
    assert {"client", "broker", "Produce", "sequence 0", "Append", "log grows", "ack @ 0", "1", "2", "3"} == set(drawn)


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_step_is_drawn_as_itself(kind: Kind) -> None:
    drawn = sequence_diagram(LIFELINES, [Step("client", "broker", "it", kind)])
    assert step_kinds(drawn) == [kind]
    assert "it" in texts(drawn)
    assert ("cross" in classes(drawn)) == (kind in {Kind.LOST, Kind.CRASH})
    assert ("tip" in classes(drawn)) == (kind in {Kind.MESSAGE, Kind.REPLY, Kind.REFUSED})


def test_a_lost_message_ends_before_it_arrives() -> None:
    def arrow(kind: Kind) -> float:
        root = parsed(sequence_diagram(LIFELINES, [Step("client", "broker", "x", kind)]))
        return next(float(line.get("x2", "")) for line in root.iter(f"{SVG}line") if line.get("class") == "arrow")

    assert arrow(Kind.LOST) < arrow(Kind.MESSAGE) - 20


def test_a_lifeline_is_down_from_its_crash_to_its_restart() -> None:
    crash, restart = Step("broker", kind=Kind.CRASH), Step("broker", kind=Kind.RESTART)
    between = Step("client", label="Wait", kind=Kind.EVENT)
    root = parsed(sequence_diagram(LIFELINES, [between, crash, between, restart, between]))
    lines = [line for line in root.iter(f"{SVG}line") if "lifeline" in line.get("class", "")]
    assert [line.get("class") for line in lines].count("lifeline down") == 1
    (down,) = [line for line in lines if line.get("class") == "lifeline down"]
    same = sorted(
        (line for line in lines if line.get("x1") == down.get("x1")), key=lambda line: float(line.get("y1", ""))
    )
    assert [line.get("class") for line in same] == ["lifeline", "lifeline down", "lifeline"]
    assert [line.get("y2") for line in same[:-1]] == [line.get("y1") for line in same[1:]]


def test_a_lifeline_that_never_restarts_is_down_to_the_end() -> None:
    steps = [Step("broker", kind=Kind.CRASH), Step("client", label="Wait", kind=Kind.EVENT)]
    root = parsed(sequence_diagram(LIFELINES, steps))
    lines = [line for line in root.iter(f"{SVG}line") if "lifeline" in line.get("class", "")]
    assert len({line.get("y2") for line in lines if line.get("class") == "lifeline down" or line.get("x1") != "0"}) == 2
    assert max(lines, key=lambda line: float(line.get("y1", ""))).get("class") == "lifeline down"


def test_the_violated_moment_stands_right_after_its_step() -> None:
    steps = [Step("client", "broker", name) for name in ("first", "second", "third")]
    drawn = texts(sequence_diagram(LIFELINES, steps, Violation(1, "NoDuplicate is violated")))
    assert [t for t in drawn if t in {"first", "second", "third", "NoDuplicate is violated"}] == [
        "first",
        "second",
        "NoDuplicate is violated",
        "third",
    ]


def test_without_a_violation_nothing_is_marked() -> None:
    assert "violation" not in classes(sequence_diagram(LIFELINES, [Step("client", "broker", "x")]))


@pytest.mark.parametrize("step", [-1, 1])
def test_a_violation_after_a_missing_step_is_an_error(step: int) -> None:
    with pytest.raises(ValueError, match="there are 1 steps"):
        sequence_diagram(LIFELINES, [Step("client", "broker", "x")], Violation(step, "P"))


def test_a_step_between_unknown_lifelines_is_an_error() -> None:
    with pytest.raises(ValueError, match="no lifeline coordinator"):
        sequence_diagram(LIFELINES, [Step("client", "coordinator", "x")])


def test_a_long_story_keeps_its_beginning_and_end_and_names_what_is_left_out() -> None:
    steps = [Step("client", "broker", f"step {index}") for index in range(MAX_STEPS + 37)]
    drawn = sequence_diagram(LIFELINES, steps)
    expected = [*range(1, FIRST_STEPS + 1), *range(FIRST_STEPS + 38, MAX_STEPS + 38)]
    assert step_numbers(drawn) == expected
    assert "… 37 steps left out …" in texts(drawn)
    assert "97 steps" in parsed(drawn).get("aria-label", "")


def test_a_long_story_keeps_what_leads_up_to_its_violation() -> None:
    steps = [Step("client", "broker", f"step {index}") for index in range(200)]
    drawn = sequence_diagram(LIFELINES, steps, Violation(120, "P is violated"))
    assert step_numbers(drawn)[-1] == 121
    assert len(step_numbers(drawn)) == MAX_STEPS
    assert "P is violated" in texts(drawn)
    left_out = [text for text in texts(drawn) if "left out" in text]
    assert left_out == [f"… {121 - MAX_STEPS} steps left out …", "… 79 steps left out …"]


def test_a_story_at_the_limit_is_drawn_whole() -> None:
    drawn = sequence_diagram(LIFELINES, [Step("client", "broker", "x")] * MAX_STEPS)
    assert len(step_numbers(drawn)) == MAX_STEPS
    assert "left-out" not in classes(drawn)


def test_a_crash_among_the_steps_left_out_is_not_forgotten_at_the_restart() -> None:
    steps = [Step("client", "broker", "x")] * 100
    steps[20], steps[90] = Step("broker", kind=Kind.CRASH), Step("broker", kind=Kind.RESTART)
    assert classes(sequence_diagram(LIFELINES, steps)).count("down") == 1


def test_the_least_busy_lifelines_are_folded_into_one_when_there_are_too_many() -> None:
    names = [f"p{index}" for index in range(MAX_LIFELINES + 5)]
    steps = [Step(name, "p0", "x") for name in names[1:] for _ in range(len(names) - int(name[1:]))][:MAX_STEPS]
    steps.append(Step(names[-1], names[-2], "between two that are folded"))
    drawn = texts(sequence_diagram([Lifeline(name) for name in names], steps))
    assert len({name for name in names if name in drawn}) == MAX_LIFELINES - 1
    assert any("others," in text for text in drawn)


def test_only_a_long_picture_repeats_the_names_at_the_bottom() -> None:
    short = texts(sequence_diagram(LIFELINES, [Step("client", "broker", "x")] * 3))
    long = texts(sequence_diagram(LIFELINES, [Step("client", "broker", "x")] * 40))
    assert (short.count("broker"), long.count("broker")) == (1, 2)


def test_a_story_orders_its_lifelines_by_role_and_then_by_appearance() -> None:
    roles = {"p-0": Role.PARTITION, "coordinator": Role.COORDINATOR}
    drawn = texts(from_story([Step("p-0", "b", "x"), Step("coordinator", "a", "y")], roles=roles))
    assert drawn[:4] == ["b", "a", "coordinator", "p-0"]


def test_names_and_labels_of_any_content_are_inert_and_readable() -> None:
    seed = 20_240_531
    print(f"seed {seed}")
    rng = random.Random(seed)
    alphabet = "<>&\"'`=/ \x00\x1b\u202e\ud800\uffff\U0001f600我abc;:#{}[]()\n\t"
    nasty = ["".join(rng.choices(alphabet, k=rng.randint(1, 40))) for _ in range(60)]
    nasty += ["<script>alert(1)</script>", '" onload="alert(1)', "]]>", "&lt;b&gt;", "--><svg onload=alert(1)>"]
    steps = [Step(rng.choice(nasty[:8]), rng.choice(nasty[:8]), text, rng.choice(list(Kind)), text) for text in nasty]
    root = parsed(from_story(steps, Violation(len(steps) - 1, nasty[-1])))
    assert {node.tag.removeprefix(SVG) for node in root.iter()} <= {"svg", "g", "title", "line", "rect", "path", "text"}
    assert "<script>alert(1)</script>" in [node.text for node in root.iter(f"{SVG}text")]


def test_a_history_becomes_requests_and_answers() -> None:
    events = [
        event("p", "Produce", "invoke", topic="t", partition=0, producer_id=7, producer_epoch=0, base_sequence=3),
        event("p", "Produce", "ok", topic="t", partition=0, offset=12),
        event("p", "Produce", "invoke", topic="t", partition=0),
        event("p", "Produce", "fail", topic="t", partition=0, error=45),
        event("p", "Produce", "invoke", topic="t", partition=0),
        event("p", "Produce", "info"),
        event("broker-1", "Crash", "ok"),
        event("broker-1", "Restart", "ok"),
        event("p", "Rest", "ok"),
    ]
    drawn = from_events(events)
    kinds = ["message", "reply", "message", "refused", "message", "lost", "crash", "restart", "event"]
    assert step_kinds(drawn) == kinds
    assert {"p", "broker-1", "t-0", "Produce @ 12", "PID 7 epoch 0, sequence 3"} <= set(texts(drawn))
    assert "Produce: OUT_OF_ORDER_SEQUENCE_NUMBER" in texts(drawn)
    assert "Produce: outcome unknown" in texts(drawn)


def test_a_step_of_a_history_has_the_events_number_and_a_marker_of_a_log_is_a_box_at_its_partition() -> None:
    batch = event("p", "Produce", "ok", topic="t", partition=0, offset=12)
    marker = event("t-0", "WriteTxnMarkers", "ok", topic="t", partition=0, offset=13, detail={"committed": False})
    drawn = from_events([replace(batch, order=123456), replace(marker, order=None)])
    numbers = [node for node in parsed(drawn).iter(f"{SVG}text") if node.get("class") == "number"]
    assert [node.text for node in numbers] == ["123456"]
    assert float(numbers[0].get("x", "")) > text_width("123456", SMALL)
    assert step_kinds(drawn) == ["message", "event"]
    assert "marker: abort @ 13" in " ".join(texts(drawn))
    assert classes(drawn).count("partition") == 1


def test_an_ok_without_an_invoke_is_the_message_itself() -> None:
    assert step_kinds(from_events([event("p", "Append", "ok", topic="t", partition=0)])) == ["message"]


def test_each_invocation_has_one_answer() -> None:
    one = event("p", "Append", "invoke", topic="t", partition=0)
    done = event("p", "Append", "ok", topic="t", partition=0)
    assert step_kinds(from_events([one, one, done, done, done])) == ["message", "message", "reply", "reply", "message"]


def test_coordinators_and_groups_are_lifelines() -> None:
    events = [event("p", "EndTxn", "invoke", transactional_id="pay"), event("p", "Commit", "invoke", group="g")]
    drawn = texts(from_events(events))
    assert {"group g"} <= set(drawn)
    assert "coordinator of pay" in " ".join(drawn)


def test_an_error_code_without_a_name_is_shown_as_its_number() -> None:
    drawn = from_events([event("p", "Produce", "fail", topic="t", partition=0, error=999)])
    assert "Produce: error 999" in texts(drawn)


def test_an_undelivered_answer_is_lost_whatever_its_content() -> None:
    ask = event("p", "Produce", "invoke", topic="t", partition=0)
    said = event("p", "Produce", "ok", topic="t", partition=0, offset=3, detail={"delivered": False, "value": "v"})
    heard = event("p", "Produce", "ok", topic="t", partition=0, offset=3, detail={"delivered": True})
    assert step_kinds(from_events([ask, said])) == ["message", "lost"]
    assert step_kinds(from_events([ask, heard])) == ["message", "reply"]
    assert {"Produce @ 3", "value=v"} <= set(texts(from_events([ask, said])))


def test_a_request_that_names_no_partition_goes_to_its_broker() -> None:
    ask = event("p", "InitProducerId", "invoke", detail={"broker": "broker-1", "connection": 4})
    drawn = from_events([ask, event("p", "InitProducerId", "fail", error=14, detail={"broker": "broker-1"})])
    assert step_kinds(drawn) == ["message", "refused"]
    assert "broker-1" in texts(drawn)
    assert not any("connection" in text for text in texts(drawn))


def test_a_crash_is_drawn_at_its_end_and_not_at_its_beginning() -> None:
    events = [event("broker-1", action, phase) for action in ("Crash", "Restart") for phase in ("invoke", "ok")]
    drawn = from_events(events)
    assert step_kinds(drawn) == ["event", "crash", "event", "restart"]
    assert classes(drawn).count("down") == 1
    assert {"Crash …", "Crash", "Restart …", "Restart"} <= set(texts(drawn))


# --- causes ----------------------------------------------------------------------------------------------------------


def steps(*events: Event) -> list[str]:
    return [step.in_words() for step in steps_of(events)[0]]


def test_requests_about_offsets_go_to_the_group_and_about_a_transaction_to_its_coordinator() -> None:
    about = {"topic": "in", "partition": 0, "group": "g", "transactional_id": "x"}
    assert steps(
        event("p", "TxnOffsetCommit", "invoke", **about),
        event("p", "OffsetCommit", "invoke", topic="in", partition=0, group="g"),
        event("p", "AddOffsetsToTxn", "invoke", transactional_id="x", group="g"),
        event("p", "AddPartitionsToTxn", "invoke", topic="out", partition=1, transactional_id="x"),
        event("p", "Assign", "ok", topic="in", group="g"),
    ) == [
        "p -> group g: TxnOffsetCommit  (in-0)",
        "p -> group g: OffsetCommit  (in-0)",
        "p -> coordinator of x: AddOffsetsToTxn  (group g)",
        "p -> coordinator of x: AddPartitionsToTxn  (out-1)",
        "p -> group g: Assign",
    ]


def test_a_marker_comes_from_the_coordinator_or_from_the_operator_by_hand() -> None:
    about = {"topic": "out", "partition": 0, "offset": 5}
    by_hand = {"committed": False, "by_hand": True}
    assert steps(
        event("broker-1", "WriteTxnMarkers", "ok", transactional_id="x", detail={"committed": True}, **about),
        event("operator", "WriteTxnMarkers", "ok", detail=by_hand, **about),
        event("broker-1", "WriteTxnMarkers", "fail", transactional_id="x", detail={"committed": True}, topic="out"),
    ) == [
        "coordinator of x -> out-0: marker: commit @ 5",
        "operator -> out-0: marker: abort, by hand @ 5",
        "out-? -> broker-1: marker: commit: failed",
    ]


def test_an_action_of_the_coordinator_by_itself_is_drawn_at_the_coordinator() -> None:
    events = [
        event("broker-1", "TimeOut", "ok", transactional_id="x"),
        event("broker-2", "Failover", "ok", transactional_id="x", coordinator_epoch=3),
        event("broker-1", "ExpireSession", "ok", group="g", detail={"member": "m"}),
    ]
    assert steps(*events) == [
        "coordinator of x: TimeOut",
        "coordinator of x: Failover  (now at broker-2)",
        "group g: ExpireSession  (member=m)",
    ]
    assert step_kinds(from_events(events)) == ["event"] * 3
    assert steps_of(events)[1] == {"coordinator of x": Role.COORDINATOR, "group g": Role.COORDINATOR}


def test_the_label_names_a_decision_a_duplicate_and_an_injected_fault() -> None:
    about = {"transactional_id": "x"}
    assert [step.label for step in steps_of([
        event("p", "EndTxn", "invoke", detail={"request": 3, "committed": True, "fault": "drop-answer"}, **about),
        event("p", "EndTxn", "ok", detail={"request": 3, "committed": True, "delivered": False}, **about),
        event("p", "EndTxn", "invoke", detail={"request": 4, "committed": True, "repeats": 3}, **about),
        event("p", "EndTxn", "fail", error=48, detail={"request": 5, "committed": False}, **about),
    ])[0]] == [
        "EndTxn (commit) [injected: drop-answer]",
        "EndTxn (commit)",
        "copy of request 3: EndTxn (commit)",
        "EndTxn (abort): INVALID_TXN_STATE",
    ]  # fmt: skip


def test_a_message_hit_by_a_fault_is_drawn_as_a_thick_line() -> None:
    def widths(**detail: object) -> list[str]:
        drawn = from_events([event("p", "Produce", "invoke", topic="t", partition=0, detail=detail)])
        return [
            node.get("stroke-width", "1") for node in parsed(drawn).iter(f"{SVG}line") if node.get("class") == "arrow"
        ]

    assert widths() == ["1"]
    assert widths(fault="delay") == widths(repeats=3) == ["3.0"]


@pytest.mark.parametrize(("fault", "kind"), [("close", "lost"), ("overtake", "lost"), ("delay", "message")])
def test_a_request_dropped_by_a_fault_does_not_arrive(fault: str, kind: str) -> None:
    ask = event("p", "Produce", "invoke", topic="t", partition=0, detail={"fault": fault})
    assert step_kinds(from_events([ask])) == [kind]


def test_steps_that_the_caller_left_out_are_noted_at_their_place() -> None:
    events = [replace(event("p", "Append", "ok", topic="t", partition=0), order=number) for number in (1, 2, 3)]
    drawn = texts(from_events(events, left_out={0: 5, 2: 1, 3: 20}))
    rows = [text for text in drawn if text in {"1", "2", "3"} or "left out" in text]
    assert rows == ["… 5 steps left out …", "1", "2", "… 1 step left out …", "3", "… 20 steps left out …"]


def test_steps_left_out_by_the_caller_and_for_lack_of_room_are_counted_together() -> None:
    events = [event("p", "Append", "ok", topic="t", partition=0) for _ in range(MAX_STEPS + 10)]
    [middle] = [text for text in texts(from_events(events, left_out={FIRST_STEPS + 3: 7})) if "left out" in text]
    assert middle == "… 17 steps left out …"
