"""Columns of events: what each rule is given of requests and polls at the edges of their fields."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import INJECTED, Event, MalformedHistory
from kafka_eos_checks.audit.events import recorded
from kafka_eos_checks.audit.events.blocks import NOWHERE, Lines
from kafka_eos_checks.audit.events.columns import column_of
from kafka_eos_checks.audit.events.recorded import (
    ABORTED_IT,
    BEGAN,
    COMMIT_SENT,
    COMMIT_TAKEN,
    COMMITTED_IT,
    ENDED,
    ENDS_IT,
    OTHER,
    SENDS_OFFSET,
    STORED_OFFSET,
    UNCLEAR,
    WITHIN,
    Asked,
    Member,
    RunFacts,
    Told,
    name_hash,
    place_hash,
    text_hash,
    told,
)

PLACES = np.arange(0, 1000, 100)
OFFSETS: dict[str, Any] = {"topic": "in", "partition": 2, "detail": {"committed_offset": 5}}


def columns(*events: dict[str, Any]) -> Told:
    made = [column_of(Event(**{"run": "r", "process": "p", "order": 1, **event})) for event in events]
    [found] = told([(PLACES[: len(made)], Lines(made))], "a test")
    return found


@pytest.mark.parametrize(("group", "is_input"), [("g", True), ("", False), (None, False)])
def test_only_a_poll_for_a_named_group_gives_a_member_an_input(group: str | None, is_input: bool) -> None:
    found = columns({"action": "Poll", "phase": "ok", "topic": "in", "partition": 2, "offset": 7, "group": group})
    expected = [(text_hash("g"), place_hash("in", 2), 7, 0)] if is_input else []
    assert found.given[["group", "place", "offset", "at"]].tolist() == expected
    assert found.facts.groups == ({text_hash("g"): "g"} if is_input else {})
    assert bool(found.facts.members) == is_input
    assert found.applied.tolist() == [0] * is_input


def test_a_poll_with_a_producer_id_is_a_request_and_no_input() -> None:
    poll = {"action": "Poll", "phase": "ok", "topic": "in", "partition": 2, "offset": 7, "group": "g"}
    found = columns(poll, {**poll, "producer_id": -1}, {**poll, "producer_id": 3})
    assert found.given["at"].tolist() == [0]
    assert found.requests[["at", "pid"]].tolist() == [(100, -1), (200, 3)]
    assert found.rows["at"].tolist() == [0, 100, 200], "what was polled counts all the same"


@pytest.mark.parametrize(
    ("group", "named", "asked"), [("g", "g", {"g": {"in"}}), ("", "in", {"": {"in"}}), (None, "in", {})]
)
def test_committed_offsets_are_named_by_their_group_and_by_their_topic_without_one(
    group: str | None, named: str, asked: dict[str, set[str]]
) -> None:
    found = columns({"action": "TxnOffsetCommit", "phase": "invoke", "group": group, "producer_id": 3, **OFFSETS})
    assert found.requests["name"].tolist() == [text_hash(named)]
    assert (found.facts.asked.groups, found.facts.asked.topics) == (asked, {"in"})


@pytest.mark.parametrize(("group", "named"), [("g", "g"), ("", ""), (None, "")])
@pytest.mark.parametrize("action", ["CommitOffsets", "SendOffsetsToTransaction"])
def test_offsets_that_are_asked_for_without_a_group_are_of_none(action: str, group: str | None, named: str) -> None:
    found = columns(
        {"action": action, "phase": "invoke", "topic": "in", "group": group, "detail": {"offsets": {"2": 7}}}
    )
    assert found.asked[["name", "offset"]].tolist() == [(name_hash(text_hash(named), place_hash("in", 2)), 7)]


def test_a_batch_is_named_by_its_topic_and_any_other_request_by_nothing() -> None:
    batch = {"phase": "invoke", "topic": "out", "partition": 0, "group": "g", "producer_id": 3}
    found = columns(*({"action": action, **batch} for action in ("Produce", "AddPartitionsToTxn", "EndTxn")))
    assert found.requests["name"].tolist() == [text_hash("out"), 0, 0]


def test_a_request_is_within_a_transaction_unless_it_fails_and_only_an_answer_ends_one() -> None:
    asked = [
        {"action": action, "phase": phase} for action in ("Produce", "EndTxn") for phase in ("invoke", "ok", "fail")
    ]
    found = columns(*({**each, "topic": "out", "partition": 2, "producer_id": 3} for each in asked))
    assert found.requests["use"].tolist() == [WITHIN, WITHIN, 0, 0, ENDED, 0]


@pytest.mark.parametrize("pid", [None, -1, 0])
@pytest.mark.parametrize("group", [None, "", "g"])
def test_only_a_producer_sends_offsets_of_a_group_and_ends_a_transaction(pid: int | None, group: str | None) -> None:
    who: dict[str, Any] = {"producer_id": pid, "producer_epoch": 4, "group": group}
    sent = [{"action": "TxnOffsetCommit", "phase": phase, **OFFSETS, **who} for phase in ("invoke", "ok", "fail")]
    ends = [{"action": "EndTxn", "phase": phase, "detail": {"committed": True}, **who} for phase in ("invoke", "ok")]
    found = columns(*sent, *ends)
    of_group = [SENDS_OFFSET, STORED_OFFSET] if group is not None else []
    expected = [*of_group, ENDS_IT, COMMITTED_IT] if pid == 0 else []
    assert found.offset_steps["step"].tolist() == expected
    assert found.facts.sending == ({group} if pid == 0 and group is not None else set())
    assert found.requests["pid"].tolist() == [0 if pid == 0 else -1] * 5
    assert found.epochs[["pid", "epoch", "at"]].tolist() == ([(0, 4, 0)] if pid == 0 else [])


@pytest.mark.parametrize("group", [None, "", "g"])
def test_only_members_of_a_group_with_a_generation_are_judged_by_it(group: str | None) -> None:
    commits = [{"action": "OffsetCommit", "phase": "ok", "generation": number, **OFFSETS} for number in (None, -1, 0)]
    joins = [{"action": "JoinGroup", "phase": phase, "generation": -1} for phase in ("ok", "invoke")]
    found = columns(*({**each, "group": group} for each in (*commits, *joins)))
    assert found.members["at"].tolist() == ([200, 300] if group is not None else [])
    assert set(found.members["group"].tolist()) == ({text_hash(group)} if group is not None else set())


def test_a_step_of_a_member_has_its_generation_and_what_its_request_is_named() -> None:
    commit = {**OFFSETS, "action": "TxnOffsetCommit", "group": "g", "generation": 5, "detail": {"request": 7}}
    join = {"action": "JoinGroup", "phase": "ok", "group": "g", "generation": -1}
    found = columns({**commit, "phase": "invoke"}, {**commit, "phase": "ok"}, {**commit, "phase": "fail"}, join)
    assert found.members[["generation", "step"]].tolist() == [(5, COMMIT_SENT), (5, COMMIT_TAKEN), (-1, BEGAN)]
    assert found.members["request"].tolist() == [text_hash("7"), text_hash("7"), text_hash("None")]
    unordered = columns({**join, "order": None}, join)
    assert unordered.members["at"].tolist() == [100], "the rule leaves out what has no order"


def test_an_event_without_an_order_leaves_its_run_unordered_and_of_its_offsets_each_counts() -> None:
    commit = {"action": "CommitOffsets", "phase": "invoke", "topic": "in", "group": "g"}
    found = columns(
        {**commit, "order": None, "detail": {"offsets": {"0": 3, "1": 4}, "transaction": 9}},
        {**commit, "detail": {"offsets": {}}},
    )
    names = [name_hash(text_hash("g"), place_hash("in", number)) for number in (0, 1)]
    assert found.asked[["name", "offset", "at"]].tolist() == [(names[0], 3, 0), (names[1], 4, 0)]
    assert (found.facts.ordered, found.facts.events) == (False, 2)
    assert found.facts.spans == [(0, NOWHERE, 1, True)]
    assert (set(found.rows["what"].tolist()), len(found.requests)) == ({OTHER}, 0)
    assert found.applied.tolist() == [0, 100]


@pytest.mark.parametrize(
    ("detail", "step"),
    [
        ({"committed": True}, COMMITTED_IT),
        ({"committed": False}, ABORTED_IT),
        ({}, UNCLEAR),
        ({"committed": 1}, UNCLEAR),
    ],
)
def test_a_transaction_has_a_decision_only_if_the_answer_to_its_end_gives_it(detail: dict[str, Any], step: int) -> None:
    found = columns({"action": "EndTxn", "phase": "ok", "producer_id": 3, "producer_epoch": 4, "detail": detail})
    assert found.offset_steps["step"].tolist() == [step]


@pytest.mark.parametrize(
    ("ends", "again"),
    [
        ([1, 1], [False, True]),
        ([1, 2, 1], [False, False, True]),
        ([1, 0, 1], [False, False, False]),
        ([2, 1, 2], [False, False, False]),
        ([1, 1, 0, 1, 1], [False, True, False, False, True]),
    ],
)
def test_of_two_requests_to_end_a_transaction_with_nothing_in_between_the_second_ends_it_again(
    ends: list[int], again: list[bool]
) -> None:
    same = np.zeros(len(ends), np.int64)
    assert recorded._again(same + 3, same + 4, np.array(ends, np.uint8)).tolist() == again
    assert not recorded._again(np.arange(len(ends)), same, np.array(ends, np.uint8)).any(), "of different producers"


def test_only_a_batch_is_refused_for_its_sequence_or_for_the_state_of_its_transaction() -> None:
    own = {"phase": "fail", "producer_id": 3, "producer_epoch": 4, "error": int(ErrorCode.INVALID_TXN_STATE)}
    found = columns({"action": "EndTxn", **own}, {"action": "Produce", **own})
    assert found.refusals[["at", "of_epoch"]].tolist() == [(100, False)]


POLL: dict[str, Any] = {"action": "Poll", "phase": "ok", "topic": "in", "partition": 2, "group": "g"}
OF_ALL_KINDS: list[dict[str, Any]] = [
    {**POLL, "offset": 7, "order": 5, "time_us": 9_000_000_000_000_000},
    {**POLL, "offset": 3, "order": 6, "detail": {"value": "v"}},
    {**POLL, "offset": 9, "order": 4, "group": "h"},
    {**POLL, "offset": 1, "process": "q", "group": "h", "order": None},
    {"action": "Send", "phase": "invoke", "topic": "out", "process": "tacit"},
    *({"action": "BeginTransaction", "phase": "invoke", "detail": {"transaction": number}} for number in (1, 2)),
    {"action": "TxnOffsetCommit", "phase": "invoke", "group": "g", "producer_id": 3, **OFFSETS},
    {"action": "DeclareTopic", "phase": "ok", "topic": "in", "group": "g"},
    {"action": "Produce", "phase": "invoke", "topic": "t", "detail": {"fault": INJECTED}},
]


@pytest.mark.parametrize("step", [1, -1])
def test_the_facts_of_a_run_are_those_of_its_parts_in_any_order(step: int) -> None:
    made = [column_of(Event(**{"run": "r", "process": "p", "order": 1, **event})) for event in OF_ALL_KINDS]
    [whole] = told([(PLACES, Lines(made))], "a test")
    parts = [told([(PLACES[at : at + 1], Lines([each]))], "a test") for at, each in enumerate(made)]
    first, *others = [facts for part in parts[::step] for facts, *_ in part]
    for facts in others:
        first.add(facts)
    assert len(first.spans) == len(made)
    assert replace(first, spans=whole.facts.spans) == whole.facts
    assert all(getattr(first, field.name) != field.default for field in fields(first)), "each is told of"


def test_requests_ask_for_the_topics_of_batches_and_of_offsets_and_for_groups() -> None:
    asked = Asked()
    for action, topic, group in [
        ("Produce", "a", None),
        ("Produce", None, None),
        ("TxnOffsetCommit", "b", "g"),
        ("TxnOffsetCommit", "c", "g"),
        ("TxnOffsetCommit", None, "h"),
        ("Poll", "d", "i"),
    ]:
        asked.add(action, topic, group)
    assert asked == Asked({"a", "b", "c"}, {"g": {"b", "c"}, "h": set()})


@pytest.mark.parametrize("step", [1, -1])
def test_parts_of_a_run_with_several_processes_and_groups_are_joined_name_by_name(step: int) -> None:
    def asked(**groups: set[str]) -> Asked:
        return Asked(groups=groups)

    early, late, other = Member(5, 1, 10, 40), Member(5, 2, 20, 30), Member(6, 3, 3, 3)
    one = RunFacts(
        "r",
        0,
        telling={1: 7, 2: 8, 3: 9},
        asked=asked(g={"a"}, h={"b"}),
        members={1: early, 2: early, 3: other},
        first_given={1: (0, 5, 1), 2: (1, 4, 2)},
    )
    two = RunFacts(
        "r",
        1,
        telling={1: 9, 2: 6, 4: 1},
        asked=asked(g={"c"}, h={"d"}, i={"e"}),
        members={1: late, 2: other, 4: late},
        first_given={1: (0, 3, 9), 2: (1, 6, 0), 3: (2, 2, 2)},
    )
    first, second = (one, two)[::step]
    first.add(second)
    assert first.telling == {1: 7, 2: 6, 3: 9, 4: 1}
    assert first.asked == asked(g={"a", "c"}, h={"b", "d"}, i={"e"})
    assert first.members == {1: Member(5, 1, 10, 30), 2: Member(0, 1, 10, 3), 3: other, 4: late}
    assert first.first_given == {1: (0, 3, 9), 2: (1, 4, 2), 3: (2, 2, 2)}


def test_an_input_may_be_in_a_partition_that_no_event_names() -> None:
    found = columns({"action": "Send", "phase": "invoke", "topic": "out", "detail": {"input": ["in", 3, 5]}})
    assert found.facts.places == {place_hash("in", 3): ("in", 3)}


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"offset": 1 << 63}, "a number of more than 64 bits"),
        (
            {"action": "CommitOffsets", "phase": "invoke", "group": "g", "detail": {"offsets": {"0": 1 << 63}}},
            "a number of more than 64 bits",
        ),
        (
            {"action": "EndTxn", "producer_id": 7, "detail": {"next_producer_id": 1 << 63, "next_producer_epoch": 0}},
            "a number of more than 64 bits",
        ),
        ({"time_us": 1_764_500_000_123}, "time_us 1764500000123 seems to be in milliseconds; "),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_own_place(wrong: dict[str, Any], reason: str) -> None:
    send = {"action": "Send", "phase": "ok", "topic": "t", "partition": 0}
    with pytest.raises(MalformedHistory) as caught:
        columns({**send, "offset": 3}, {**send, **wrong}, {**send, "offset": 4})
    assert caught.value.line == 100
    assert caught.value.reason.startswith(reason)
