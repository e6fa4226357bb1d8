"""A declaration counts with its group and its topics, and a question names the topics and groups that are there."""

from dataclasses import replace
from typing import Any

import pytest

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.events.recorded import COMMITS, GENERATIONS
from kafka_eos_checks.audit.rules.declared import (
    APPLICATION,
    INPUT,
    OUTPUT,
    RECORD,
    TOPIC,
    Identities,
    Known,
    WrongQuestion,
    check,
    check_declared,
    check_names,
    declarations,
)

from ..kept import as_kept

COMMIT, JOIN = min(COMMITS), min(GENERATIONS)


def event(action: str, **columns: Any) -> Event:
    return Event(run="r", process="p", action=action, phase="ok", **columns)


def asks(inputs: str = "in", outputs: str = "out", group: str = "g") -> list[Event]:
    return [
        event(APPLICATION, group=group),
        event(TOPIC, group=group, topic=inputs, detail={"role": INPUT}),
        event(TOPIC, group=group, topic=outputs, detail={"role": OUTPUT}),
    ]


def test_only_a_declaration_with_a_group_and_a_topic_of_a_declared_application_counts() -> None:
    assert declarations([event(APPLICATION)]) == []
    assert declarations([event(TOPIC, group="g", topic="in")]) == []
    [declared] = declarations([*asks(), event(TOPIC, group="g"), event(RECORD, group="other", topic="in")])
    assert (declared.inputs, declared.outputs, declared.identities) == ({"in"}, {"out"}, {})


def test_topics_are_those_with_a_log_and_those_that_were_written_to_or_committed() -> None:
    replicas: dict[Any, Any] = {("in", 0): [], ("__consumer_offsets", 0): [], ("~", 0): []}
    requests = [
        event("Produce", topic="written"),
        event("Produce"),
        event("Fetch", topic="fetched"),
        event("Send", topic="sent"),
        event(COMMIT, topic="committed", group="g"),
        event(COMMIT, group="g"),
    ]
    with pytest.raises(WrongQuestion, match=r"no topic 'X'; there are 'committed', 'in', 'written', '~'$"):
        check([*asks("X"), *requests], replicas, [])


def test_topics_are_not_known_without_logs() -> None:
    check([*asks("X"), event("Produce", topic="written")], {}, [])


def test_groups_are_those_that_have_members_or_offsets() -> None:
    requests = [
        event(JOIN, group="joined"),
        event(JOIN),
        event("FindCoordinator", group="sought"),
        event("Produce", topic="written"),
    ]
    with pytest.raises(WrongQuestion, match="no group 'X'; there is 'joined'"):
        check([*asks(group="X"), *requests], {}, [])


def test_a_group_has_committed_the_topics_of_its_own_requests() -> None:
    requests = [event(COMMIT, topic="other", group="g"), event(COMMIT, topic="in", group="another")]
    with pytest.raises(WrongQuestion, match="group 'g' has committed no offset of 'in', but of 'other'") as refused:
        check([*asks(), *requests], {}, [])
    as_kept([], refused.value)
    check([*asks(), *requests, event(COMMIT, topic="in", group="g")], {}, [])


def test_a_group_that_has_committed_nothing_may_be_asked_about_any_topic() -> None:
    check_names(["in"], ["out"], "g", Known(frozenset({"in", "out"}), {"g": frozenset()}), "")
    with pytest.raises(WrongQuestion, match=r"group 'g' has committed no offset of 'in', but of 'other'; remedy$"):
        check_names(["in"], ["out"], "g", Known(frozenset({"in", "out"}), {"g": frozenset({"other"})}), "remedy")


@pytest.mark.parametrize("order", [1, -1])
def test_identities_that_are_joined_in_any_order_name_the_first_record(order: int) -> None:
    whole = Identities()
    for number in range(3)[::order]:
        whole.add(Identities.of([((("in", 0), number), f"v{number}")], []))
    assert whole == Identities({INPUT: ((("in", 0), 0), "v0")})
    read, written = (("in", 0), 4), (("out", 0), 2)
    parts = [Identities({INPUT: (read, "a"), OUTPUT: (written, "b")}, shared=True), Identities()][::order]
    parts[0].add(parts[1])
    assert parts[0] == Identities({INPUT: (read, "a"), OUTPUT: (written, "b")}, shared=True)


WRONG = {
    "unknown topic": asks("inn"),
    "unknown output": asks(outputs="oot"),
    "unknown group": asks(group="gg"),
    "one topic": asks("in", "in"),
    "no group": [event(APPLICATION)],
    "no application": [*asks(), event(TOPIC, group="h", topic="in", detail={"role": INPUT})],
    "no application before": [event(TOPIC, group="h", topic="in", detail={"role": INPUT})],
    "no input": [event(APPLICATION, group="g"), event(TOPIC, group="g", topic="out", detail={"role": OUTPUT})],
    "no output": asks()[:2],
    "no role": [*asks(), event(TOPIC, group="g", topic="in", detail={"role": "inputs"})],
    "nothing of a record": [*asks(), event(RECORD, group="g")],
    "an unknown field": [*asks(), event(APPLICATION, group="g", detail={"everthing": 1, "z": 2, "checked": True})],
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_question_is_told_in_full(name: str) -> None:
    requests = [event(COMMIT, topic="in", group="g"), event("Produce", topic="out"), event(JOIN, group="h")]
    with pytest.raises(WrongQuestion) as refused:
        check([*requests, *WRONG[name]], {("in", 0): [], ("out", 0): [], ("other", 0): []}, [])
    as_kept([], refused.value)


def test_a_question_alone_in_its_run_names_the_other_runs() -> None:
    for others in (["r1", "s"], ["s", "t"], ["s"]):
        with pytest.raises(WrongQuestion) as refused:
            check(asks(), {}, [], others)
        as_kept([], refused.value)


def test_identities_that_have_nothing_in_common_are_told_with_the_first_record_of_both() -> None:
    first = {INPUT: ((("in", 2), 5), "a"), OUTPUT: ((("out", 3), 7), "b")}
    declared = declarations(asks())[0]
    known = Known(None, {})
    with pytest.raises(WrongQuestion) as refused:
        check_declared(declared, known, Identities(first))
    as_kept([], refused.value)
    check_declared(declared, known, Identities(first, shared=True))
    check_declared(replace(declared, checked=True), known, Identities(first))
    check_declared(declared, known, Identities({INPUT: first[INPUT]}))
