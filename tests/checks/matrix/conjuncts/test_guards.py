"""The guards of a made-up module, and its text without one of them."""

from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.guards import Conjunct, conjuncts, without
from kafka_eos_checks.tla.sany import Span, UnparsableModule, parse

pytestmark = pytest.mark.tlc

QUEUE = r"""------------------------------- MODULE Queue -------------------------------
EXTENDS Integers, Sequences

CONSTANTS Limit, Clients, Strict

VARIABLES queue, waiting, fault

vars == <<queue, waiting, fault>>

Init == queue = <<>> /\ waiting = {} /\ fault = FALSE

IsFull == Len(queue) >= Limit \* never more

IsKnown(client) == \E other \in Clients : other = client /\ other # "nobody"

MayEnter(client) ==
    IF Strict THEN IsKnown(client) /\ client \notin waiting
    ELSE client # "nobody" \/ (queue = <<>> /\ ~fault)

EnterError(client) ==
    IF ~MayEnter(client) THEN "UNKNOWN"
    ELSE IF IsFull /\ ~fault THEN "FULL"
    ELSE "NONE"

Heir(client) == IF fault THEN client ELSE "nobody"

Broken == fault' = TRUE /\ ~fault

Enter(client) ==
    /\ EnterError(client) = "NONE"
    /\ \/ client \notin waiting
       \/ fault
    /\ queue' = Append(queue, Heir(client))
    /\ waiting' = waiting \cup {client}
    /\ UNCHANGED fault

Leave ==
    /\ \E client \in waiting :
        /\ queue # <<>> => /\ Head(queue) = client
                           /\ ~fault
        /\ LET rest == Tail(queue)
               isLast == rest = <<>> /\ queue # <<>>
           IN  /\ queue' = rest
               /\ waiting' = waiting \ {client}
    /\ IF fault THEN fault' = FALSE /\ Limit > 0 ELSE UNCHANGED fault

Break == Broken /\ UNCHANGED <<queue, waiting>>

Next ==
    \/ \E client \in Clients : Enter(client)
    \/ Leave
    \/ Break

Spec == [][Next]_<<queue, waiting, fault>>
WithFaults == Spec
Written == [][\E client \in Clients : ~fault /\ Enter(client)]_<<queue, waiting, fault>>
Unused == queue # <<>> /\ waiting # {}

NeverTooLong == Len(queue) <= Limit /\ ~IsFull
=============================================================================
"""

EXPECTED = {
    "IsFull": ["Len(queue) >= Limit -> TRUE"],
    "IsKnown": [
        r'\E other \in Clients : other = client /\ other # "nobody" -> TRUE',
        "other = client -> TRUE",
        'other # "nobody" -> TRUE',
    ],
    "MayEnter": [
        "Strict -> FALSE",
        "IsKnown(client) -> TRUE",
        r"client \notin waiting -> TRUE",
        'client # "nobody" -> FALSE',
        r'client # "nobody" \/ (queue = <<>> /\ ~fault) -> TRUE',
        "queue = <<>> -> TRUE",
        r"queue = <<>> /\ ~fault -> FALSE",
        "~fault -> TRUE",
    ],
    "EnterError": [
        "~MayEnter(client) -> FALSE",
        "IsFull -> TRUE",
        r"IsFull /\ ~fault -> FALSE",
        "~fault -> TRUE",
    ],
    "Broken": ["~fault -> TRUE"],
    "Enter": [
        'EnterError(client) = "NONE" -> TRUE',
        r"\/ client \notin waiting \/ fault -> TRUE",
        r"client \notin waiting -> FALSE",
        "fault -> FALSE",
    ],
    "Leave": [
        r"queue # <<>> => /\ Head(queue) = client /\ ~fault -> TRUE",
        "Head(queue) = client -> TRUE",
        "~fault -> TRUE",
        "rest = <<>> -> TRUE",
        "queue # <<>> -> TRUE",
        "fault -> FALSE",
        "Limit > 0 -> TRUE",
    ],
}


def found_in(folder: Path, text: str = QUEUE, specification: str = "WithFaults") -> list[Conjunct]:
    (folder / "Queue.tla").write_text(text, encoding="utf-8")
    return conjuncts(parse(folder, "Queue"), {"Queue": text}, {specification})


def test_the_steps_of_a_specification_may_stand_in_its_formula(tmp_path: Path) -> None:
    found = found_in(tmp_path, specification="Written")
    by_operator = {conjunct.operator.partition("!")[2] for conjunct in found}
    assert by_operator == EXPECTED.keys() - {"Leave", "Broken"} | {"Written"}
    assert [conjunct.change for conjunct in found if conjunct.operator == "Queue!Written"] == ["~fault -> TRUE"]


def test_every_part_of_every_guard_is_found_and_nothing_else(tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    for conjunct in found_in(tmp_path):
        found.setdefault(conjunct.operator.removeprefix("Queue!"), []).append(conjunct.change)
    assert {name: sorted(changes) for name, changes in found.items()} == {
        name: sorted(changes) for name, changes in EXPECTED.items()
    }


def test_without_a_conjunct_everything_else_stands_where_it_stood(tmp_path: Path) -> None:
    lines = QUEUE.split("\n")
    for conjunct in found_in(tmp_path):
        mutant, span = without(QUEUE, conjunct).split("\n"), conjunct.span
        assert len(mutant) == len(lines)
        changed = {number for number, pair in enumerate(zip(lines, mutant, strict=True), start=1) if len(set(pair)) > 1}
        assert changed <= set(range(span.line, span.end_line + 1))
        assert mutant[span.line - 1][span.column - 1 :].startswith(conjunct.value)
        assert mutant[span.end_line - 1][span.end_column :] == lines[span.end_line - 1][span.end_column :]


def test_without_a_conjunct_of_several_lines_the_module_has_the_others(tmp_path: Path) -> None:
    every = found_in(tmp_path)
    (long,) = [c for c in every if c.operator == "Queue!Leave" and c.span.end_line > c.span.line]
    left = {conjunct.name for conjunct in found_in(tmp_path, without(QUEUE, long))}
    assert {c.name for c in every} - left == {
        long.name,
        "Queue!Leave: Head(queue) = client -> TRUE",
        "Queue!Leave: ~fault -> TRUE",
    }


def test_the_second_of_two_equal_parts_of_one_operator_has_a_number(tmp_path: Path) -> None:
    text = QUEUE.replace("Broken == fault' = TRUE /\\ ~fault", "Broken == fault' = TRUE /\\ ~fault /\\ ~fault")
    changes = [c.change for c in found_in(tmp_path, text) if c.operator == "Queue!Broken"]
    assert changes == ["~fault -> TRUE", "~fault -> TRUE #2"]


def test_a_part_too_short_for_its_value_is_refused_where_a_list_of_conjuncts_would_move() -> None:
    text = "A == /\\ b   /\\ c\n            /\\ d\n"
    short = Conjunct(operator="M!A", change="b -> TRUE", span=Span("M", 1, 9, 1, 9), value="TRUE")
    with pytest.raises(ValueError, match="does not fit"):
        without(text, short)
    assert without("A == /\\ b\n", short) == "A == /\\ TRUE\n"
    assert without("A == /\\ b /\\ c\n     /\\ d\n", short) == "A == /\\ TRUE /\\ c\n     /\\ d\n"


def test_a_module_that_does_not_parse_is_an_error_with_sanys_words(tmp_path: Path) -> None:
    with pytest.raises(UnparsableModule, match=r"(?s)Queue\.tla.*Unknown operator.*fautl"):
        found_in(tmp_path, QUEUE.replace("UNCHANGED fault", "UNCHANGED fautl"))
