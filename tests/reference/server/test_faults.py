"""Plans of faults: reading and refusing plans, the requests they match."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.server.faults import (
    FATES,
    Asked,
    Fault,
    Faults,
    MalformedPlan,
    Rule,
    Subjects,
    check_brokers,
    read_plan,
    rule_of,
    subjects_of,
)
from kafka_eos.server.schemas import served_codec
from kafka_eos.wire.protocol import Message

CODEC = served_codec()
TOPIC_ID = UUID(int=7)
OPTIONS: dict[str, tuple[str, str]] = {  # of each fault, what it may have and what it must have
    "drop-answer": ("", ""),
    "withhold": ("", ""),
    "close": ("", ""),
    "delay": ("seconds", "seconds"),
    "repeat": ("seconds", ""),
    "overtake": ("seconds", "seconds"),
    "error": ("error", "error api"),
    "move-leader": ("to when", ""),
    "move-coordinator": ("to when", ""),
    "time-out-transaction": ("when", ""),
    "delay-markers": ("seconds when", "seconds"),
    "kill-broker": ("seconds to when", "seconds"),
    "restart": ("when", ""),
    "advance-clock": ("seconds when", "seconds"),
}
PLAN = """
[[fault]]
do = "drop-answer"
api = "EndTxn"
transactional-id = "copier-*"
nth = [1, 3]

[[fault]]  # the second
do = "kill-broker"
api = "EndTxn"
when = "after"
seconds = 2
at-most = 1
"""


def asked(api: str = "Produce", *, topic: str = "t", client: str = "c", name: str = "x", node: int = 1) -> Asked:
    subjects = Subjects(((topic, 0),), (name,), ())
    return Asked(api=api, client=client, node=node, subjects=subjects)


def rule(do: str = "drop-answer", **options: Any) -> Rule:
    return rule_of({"do": do, **{key.replace("_", "-"): value for key, value in options.items()}}, "test")


# --- plans -----------------------------------------------------------------------------------------------------------


def test_a_plan_is_read() -> None:
    first, second = read_plan(PLAN, "plan.toml")
    assert first == Rule(fault=Fault.DROP_ANSWER, api="EndTxn", transactional_id="copier-*", nth=frozenset({1, 3}))
    assert second == Rule(fault=Fault.KILL_BROKER, api="EndTxn", after=True, seconds=2, at_most=1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[fault]]\ndo = drop", "plan.toml: no TOML: Invalid value (at line 2, column 6)"),
        ("[fault]\ndo = 'close'", 'plan.toml: expected one table [[fault]] or more, each with do = "…"'),
        ("", 'plan.toml: expected one table [[fault]] or more, each with do = "…"'),
        ("[[rule]]\ndo = 'close'", "plan.toml: unknown table 'rule'; each rule is a table [[fault]]"),
        ("\n[[fault]]\ndo = 'drop'", f"plan.toml:2: fault 1: do = 'drop'; expected one of {', '.join(OPTIONS)}"),
        (
            PLAN + "nht = 1",
            "plan.toml:8: fault 2: unknown key 'nht' of kill-broker; it may have api, at-most, broker, chance, client, "
            "do, group, nth, seconds, to, topic, transactional-id, when",
        ),
        (
            "fault = [{do = 'close'}, {do = 'drop'}]",
            f"plan.toml: fault 2: do = 'drop'; expected one of {', '.join(OPTIONS)}",
        ),
        (
            "[[fault]]\ndo = 'close'\nseconds = 1",
            "plan.toml:1: fault 1: unknown key 'seconds' of close; it may have api, at-most, broker, chance, client, "
            "do, group, nth, topic, transactional-id",
        ),
        ("[[fault]]\ndo = 'delay'", "plan.toml:1: fault 1: delay needs 'seconds': seconds, 0 or more"),
        (
            "[[fault]]\ndo = 'close'\napi = 'Prodcue'",
            'api = \'Prodcue\'; expected the name of an API that is served, such as "Produce" or "EndTxn"',
        ),
        (
            "[[fault]]\ndo = 'close'\nnth = 0",
            "nth = 0; expected which of the matching requests, from 1 on: a number or a list of them",
        ),
        (
            "[[fault]]\ndo = 'close'\nnth = []",
            "nth = []; expected which of the matching requests, from 1 on: a number or a list of them",
        ),
        ("[[fault]]\ndo = 'close'\nchance = 2", "chance = 2; expected a probability from 0 to 1"),
        ("[[fault]]\ndo = 'close'\nchance = -0.1", "chance = -0.1; expected a probability from 0 to 1"),
        (
            "[[fault]]\ndo = 'close'\ntopic = {a = 1}",
            "topic = {'a': 1}; expected a topic, or a pattern such as \"out*\"",
        ),
        ("[[fault]]\ndo = 'delay'\nseconds = true", "seconds = True; expected seconds, 0 or more"),
        (
            "[[fault]]\ndo = 'error'\napi = 'Fetch'\nerror = 'NONE'",
            'expected the name of an error code, such as "NOT_LEADER_OR_FOLLOWER"',
        ),
        (
            "[[fault]]\ndo = 'error'\napi = 'Metadata'\nerror = 'NOT_COORDINATOR'",
            "has no answer that is only an error; choose another one",
        ),
        ("[[fault]]\ndo = 'restart'\nwhen = 'now'", 'expected "before" or "after" the request is handled'),
    ],
)
def test_a_plan_that_cannot_be_used_says_where_and_what_to_do(text: str, said: str) -> None:
    with pytest.raises(MalformedPlan) as caught:
        read_plan(text, "plan.toml")
    assert str(caught.value).endswith(said)


@pytest.mark.parametrize("fault", OPTIONS)
def test_a_fault_has_the_options_that_it_needs_and_no_others(fault: str) -> None:
    selecting = {"do", "api", "at-most", "broker", "chance", "client", "group", "nth", "topic", "transactional-id"}
    may, must = (set(options.split()) for options in OPTIONS[fault])
    with pytest.raises(MalformedPlan) as caught:
        rule_of({"do": fault, "x": 1}, "here")
    assert str(caught.value).rpartition(" may have ")[2] == ", ".join(sorted(selecting | may))
    values = {"seconds": 1, "to": 1, "when": "before", "error": "NOT_COORDINATOR", "api": "EndTxn"}
    given = {key: values[key] for key in must}
    assert rule_of({"do": fault, **given}, "here").fault == fault
    expected = {"seconds": "seconds, 0 or more$", "error": ".* such as", "api": ".* such as"}
    for key in must:
        with pytest.raises(MalformedPlan, match=f"^here: {fault} needs '{key}': {expected[key]}"):
            rule_of({"do": fault, **{name: each for name, each in given.items() if name != key}}, "here")


Row = tuple[str, list[Any], list[Any]]
VALUES: dict[str, Row] = {  # of each key: the value that it expects, values that it takes, and values that it refuses
    "api": (
        'the name of an API that is served, such as "Produce" or "EndTxn"',
        ["Produce"],
        ["", "SaslHandshake", "produce", 0, ["Produce"]],
    ),
    "client": ('a client id, or a pattern such as "copier-*"', ["c"], ["", 1, None]),
    "topic": ('a topic, or a pattern such as "out*"', ["t"], ["", 1, {"a": 1}]),
    "transactional-id": ("a transactional.id, or a pattern", ["x"], ["", 1]),
    "group": ("a group, or a pattern", ["g"], ["", 1]),
    "broker": ("the number of a broker, from 1 on", [1, 7], [0, True, 1.0, "1"]),
    "nth": (
        "which of the matching requests, from 1 on: a number or a list of them",
        [[1], (1, 2)],
        [0, [], [1, 0], [0, 1], True, [True], "1"],
    ),
    "chance": ("a probability from 0 to 1", [0, 0.5, 1], [-0.001, 1.001, True, "1"]),
    "at-most": ("how often, 1 or more", [1], [0, True, 1.5]),
    "seconds": ("seconds, 0 or more", [0, 0.5, 999_999_999], [-0.001, 1e9, float("inf"), True, "1"]),
    "error": (
        'the name of an error code, such as "NOT_LEADER_OR_FOLLOWER"',
        ["NOT_COORDINATOR", "UNKNOWN_SERVER_ERROR"],
        ["NONE", "", "not_coordinator", 6, ["NOT_COORDINATOR"]],
    ),
    "to": ("the number of a broker, from 1 on", [1, 7], [0, True, 1.0, "1"]),
    "when": ('"before" or "after" the request is handled', ["before", "after"], ["", "now", True, ["after"]]),
}
FIELDS = {"at-most": "at_most", "transactional-id": "transactional_id", "when": "after"}


@pytest.mark.parametrize("key", VALUES)
def test_a_key_of_a_rule_takes_values_of_its_kind_and_says_which_it_expects(key: str) -> None:
    expected, taken, refused = VALUES[key]
    do = {"seconds": "advance-clock", "error": "error", "to": "move-leader", "when": "restart"}.get(key, "close")
    table: dict[str, Any] = {"do": do} | ({"api": "Produce"} if key == "error" else {})
    meant = {"nth": frozenset, "error": ErrorCode.__getitem__, "when": "after".__eq__}.get(key, lambda value: value)
    for value in taken:
        found = getattr(rule_of(table | {key: value}, "here"), FIELDS.get(key, key))
        assert found == meant(value)
    for value in refused:
        with pytest.raises(MalformedPlan) as caught:
            rule_of(table | {key: value}, "here")
        assert str(caught.value) == f"here: {key} = {value!r}; expected {expected}"


# --- which requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "matches"),
    [
        ({}, True),
        ({"api": "Produce"}, True),
        ({"api": "EndTxn"}, False),
        ({"topic": "t*"}, True),
        ({"topic": "u"}, False),
        ({"client": "c"}, True),
        ({"client": "d*"}, False),
        ({"transactional_id": "x"}, True),
        ({"transactional_id": "y"}, False),
        ({"group": "*"}, False),
        ({"broker": 1}, True),
        ({"broker": 2}, False),
    ],
)
def test_a_rule_is_about_the_requests_that_it_names(options: Mapping[str, Any], matches: bool) -> None:
    assert rule(**options).matches(asked()) is matches


def test_the_kth_of_the_matching_requests_meets_the_fault() -> None:
    faults = Faults([rule(api="Produce", nth=[2, 4])])
    fired = [bool(faults.due(asked(api))) for api in ("Produce", "Fetch", "Produce", "Produce", "Fetch", "Produce")]
    assert fired == [False, False, True, False, False, True]
    assert faults.tallies[0].in_words() == "drop-answer Produce nth 2, 4: fired 2 time(s), 4 request(s) matched"


def test_the_same_seed_spoils_the_same_requests_and_another_one_others() -> None:
    def run(seed: int) -> list[bool]:
        faults = Faults([rule(chance=0.3)], seed)
        return [bool(faults.due(asked())) for _ in range(200)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert 30 < sum(run(1)) < 90


def test_the_chances_of_a_rule_do_not_depend_on_other_rules() -> None:
    own, other, third = (rule("advance-clock", topic=topic, seconds=1, chance=0.3) for topic in ("t*", "?", "*"))

    def fired(faults: Faults) -> list[bool]:
        return [own in faults.due(asked()) for _ in range(200)]

    assert fired(Faults([own])) == fired(Faults([other, own])) == fired(Faults([own, other]))
    removed = Faults([third, other, own])
    removed.remove(removed.tallies[0])
    assert fired(removed) == fired(Faults([own]))
    twice = Faults([own, own])
    counts = [len(twice.due(asked())) for _ in range(200)]
    assert set(counts) == {0, 1, 2}, "two rules that say the same do not always fire together"
    again = Faults([own])
    first = fired(again)
    again.remove(again.tallies[0])
    again.add(own)
    assert fired(again) != first, "nor does one that is added again do what the removed one did"


def test_a_rule_says_which_requests_it_is_about() -> None:
    every = {"api": "Produce", "client": "c*", "topic": "t", "transactional_id": "x", "group": "g", "broker": 2}
    said = "close Produce client c* topic t transactional-id x group g broker 2 nth 1, 3"
    assert str(rule("close", nth=[3, 1], **every)) == said
    assert str(rule("close", chance=0.5)) == "close any request chance 0.5"
    assert str(rule("close", chance=1)) == "close any request", "every request, as without a chance"


def test_a_rule_may_name_any_broker_that_is_there() -> None:
    rules = [rule_of({"do": "move-leader", "to": to}, "f") for to in (1, 2, 3)]
    check_brokers(rules[:2], 2, "f")
    with pytest.raises(MalformedPlan, match=r"^f: move-leader any request: there is no broker 3; give brokers=3$"):
        check_brokers(rules, 2, "f")


def test_a_rule_fires_no_more_often_than_it_may() -> None:
    faults = Faults([rule(at_most=2)])
    assert sum(bool(faults.due(asked())) for _ in range(5)) == 2


def test_a_rule_that_had_to_fire_and_has_not_is_told_even_if_it_was_removed() -> None:
    faults = Faults([rule(topic="t"), rule(topic="u"), rule(topic="u", chance=0.5), rule(topic="v")])
    faults.due(asked(topic="t"))
    faults.remove(faults.tallies[-1])
    assert [tally.rule.topic for tally in faults.never_fired()] == ["u", "v"]


def test_of_two_rules_that_are_alike_the_one_that_is_meant_is_removed() -> None:
    faults = Faults()
    first, second = faults.add(rule()), faults.add(rule())
    faults.remove(second)
    assert len(faults.due(asked())) == first.fired == 1
    faults.remove(first)
    assert (faults.due(asked()), faults.never_fired()) == ([], [second])


def test_a_request_has_one_fate_and_all_events() -> None:
    events = [rule("move-leader"), rule("advance-clock", seconds=1)]
    faults = Faults([rule("close", nth=1), rule("delay", seconds=1), *events])
    first, second = faults.due(asked()), faults.due(asked())
    assert [each.fault for each in first] == [Fault.CLOSE, Fault.MOVE_LEADER, Fault.ADVANCE_CLOCK]
    assert [each.fault for each in second] == [Fault.DELAY, Fault.MOVE_LEADER, Fault.ADVANCE_CLOCK]
    assert [tally.fired for tally in faults.tallies] == [1, 1, 2, 2]


def test_an_event_after_a_request_that_is_never_handled_has_not_fired() -> None:
    fates = [rule("close", nth=1), rule("error", api="Produce", error="NOT_COORDINATOR", nth=2)]
    faults = Faults([rule("restart", when="after"), rule("move-leader", when="before"), *fates])
    found = [[each.fault for each in faults.due(asked())] for _ in range(3)]
    moved = Fault.MOVE_LEADER
    assert found == [[moved, Fault.CLOSE], [moved, Fault.ERROR], [Fault.RESTART, moved]]
    assert [tally.fired for tally in faults.tallies] == [1, 3, 1, 1]


@pytest.mark.parametrize("ends", [{"do": "restart"}, {"do": "kill-broker", "seconds": 1}])
def test_a_request_whose_connection_an_event_has_ended_meets_nothing_more(ends: Mapping[str, Any]) -> None:
    later = [rule("delay", seconds=1), rule("move-leader", when="after"), rule("restart", when="after")]
    first, last = rule("move-leader"), rule("advance-clock", seconds=1)
    faults = Faults([first, rule(**ends, nth=1), *later, last])
    assert [str(each.fault) for each in faults.due(asked())] == ["move-leader", ends["do"], "advance-clock"]
    assert [tally.fired for tally in faults.tallies] == [1, 1, 0, 0, 0, 1]
    assert [str(each.fault) for each in faults.due(asked())][1:3] == ["delay", "move-leader"]


def test_what_has_nothing_to_move_is_no_match() -> None:
    nothing = Asked(api="Heartbeat", client="c", node=1, subjects=Subjects((), (), ()))
    assert not any(rule(do).matches(nothing) for do in ("move-leader", "move-coordinator", "time-out-transaction"))
    assert not rule("delay-markers", seconds=1).matches(nothing)
    for subjects in (Subjects((), ("x",), ()), Subjects((), (), ("g",))):
        named = Asked(api="FindCoordinator", client="c", node=1, subjects=subjects)
        for do, matches in (
            ("move-leader", False),
            ("move-coordinator", True),
            ("time-out-transaction", bool(subjects.transactional_ids)),
        ):
            assert rule(do).matches(named) is matches
        assert rule("delay-markers", seconds=1).matches(named) is bool(subjects.transactional_ids)
    for numbers, moves in (((-1, -1), False), ((-1, 0), True)):  # a topic is named without partitions, as by Metadata
        named = Subjects(tuple(("t", number) for number in numbers), (), ())
        assert rule("move-leader").matches(Asked(api="Fetch", client="c", node=1, subjects=named)) == moves
    assert rule("restart").matches(nothing)


def test_an_answer_that_nobody_waits_for_has_no_fate() -> None:
    silent = Asked(api="Produce", client="c", node=1, subjects=Subjects((), (), ()), is_silent=True)
    matches = {do for do in map(str, FATES) if rule_for(do).matches(silent)}
    assert matches == {"close", "delay", "repeat", "overtake", "error"}


def rule_for(fate: str) -> Rule:
    needs: dict[str, Mapping[str, Any]] = {"delay": {"seconds": 1}, "overtake": {"seconds": 1}}
    needs["error"] = {"api": "Produce", "error": "NOT_COORDINATOR"}
    return rule(fate, **needs.get(fate, {}))


@pytest.mark.parametrize(
    ("row", "subjects"),
    [
        (
            {"TransactionalId": "x", "TopicData": [{"TopicId": TOPIC_ID, "PartitionData": [{"Index": 3}]}]},
            Subjects((("t", 3),), ("x",), ()),
        ),
        (
            {"V3AndBelowTransactionalId": "x", "V3AndBelowTopics": [{"Name": "u", "Partitions": [0, 2]}]},
            Subjects((("u", 0), ("u", 2)), ("x",), ()),
        ),
        (
            {"Transactions": [{"TransactionalId": "y", "Topics": [{"Name": "u", "Partitions": [1]}]}]},
            Subjects((("u", 1),), ("y",), ()),
        ),
        (
            {"GroupId": "g", "Topics": [{"Name": "u", "Partitions": [{"PartitionIndex": 1}]}]},
            Subjects((("u", 1),), (), ("g",)),
        ),
        ({"Topics": [{"Name": "u"}]}, Subjects((("u", -1),), (), ())),
        ({"Topics": [{"Name": "u", "Partitions": [{"Offset": 7}]}]}, Subjects((("u", -1),), (), ())),
        ({"KeyType": 1, "CoordinatorKeys": ["x", "y"]}, Subjects((), ("x", "y"), ())),
        ({"KeyType": 0, "Key": "g"}, Subjects((), (), ("g",))),
        ({"TransactionalId": None, "GroupId": "", "KeyType": 1, "Key": ""}, Subjects((), (), ())),
    ],
)
def test_what_a_request_names_is_found(row: Message, subjects: Subjects) -> None:
    assert subjects_of(row, {TOPIC_ID: "t"}) == subjects
