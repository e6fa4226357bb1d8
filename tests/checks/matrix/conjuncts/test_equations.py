"""The equations and the sets of a made-up module that become weaker."""

from collections.abc import Mapping

import pytest

from kafka_eos_checks.matrix.conjuncts.equations import Numbers, of_equations
from kafka_eos_checks.matrix.conjuncts.guards import on_one_line
from kafka_eos_checks.matrix.conjuncts.sets import Values, of_sets
from kafka_eos_checks.tla.sany import Definition, parse

pytestmark = pytest.mark.tlc

MODULE = r"""------------------------------- MODULE Equations -------------------------------
EXTENDS Integers, Sequences, FiniteSets

VARIABLES log, known, names, client, record, outcome

Least(numbers) == CHOOSE one \in numbers : \A other \in numbers : one <= other
Entry(offset) == [offset |-> offset, epoch |-> 0, kind |-> "data", count |-> 1]
Longer == [known EXCEPT !.next = @ + 1, !.count = {}]
Renamed == \E entry \in names : entry.kind < 1 /\ entry.count > 0
Filled == Len(known.filled) > 0

P == /\ Len(log) = Cardinality(names)
     /\ log # <<>> => log[1].epoch = known.epoch /\ known.next = log[1].offset
     /\ known.kind = log[1].kind
     /\ known.count = log[1].count
     /\ names = {} \/ Least(names) = IF log = <<>> THEN known.other ELSE
                                      known.third
     /\ \A i \in DOMAIN log : log[i].epoch = 1 => log[i].next' = known.next
     /\ ~(known.epoch = 3) /\ known = Entry(2) /\ ~(log[1].epoch = 3 => known.epoch = 4)
     /\ \E i \in DOMAIN log : log[i].epoch = known.epoch
     /\ known.epoch = 0 /\ known.filled = log[1].filled

AtRest == {"empty", "complete"}
Fate(i) == IF log[i].kind = "data" THEN "open" ELSE log[i].kind
Started(given) == [given EXCEPT !.state = "ongoing"]
Enter(given) == given.state \in AtRest /\ record' = Started(given) /\ client.state = "up"
Many == known.fate \in {"a", "b", "c", "d", "f"} /\ known.fate = "e"
Vowels == {"a", "e"}
Lose == outcome' = [i \in names |-> IF client.state = "down" THEN "lost" ELSE "told"]

Strings == /\ client.state = "up" /\ record'.state \in AtRest /\ outcome[1] \in {"told"}
           /\ \A i \in names : outcome[i] = "told" => outcome[i] # "lost"
           /\ ~(client.state # "up") /\ Fate(1) = "open" /\ "down" \in AtRest /\ known.fate = "a" /\ known.fate = "b"
Ranges == /\ known.epoch \in 1..(known.next - 1) /\ ~(known.epoch \in 1..9) /\ {1} \subseteq known.next..9
          /\ \A i \in 1..known.next, j \in 1..Len(log) : i \notin 2..5
          /\ {i \in 3..4 : i = 1} = {} /\ {5} # 5..6 /\ 6..7 # {}
          /\ names \cup 7..8 \subseteq names \ (8..9)
Filters == known.epoch \in {i \in names : i > 1 /\ log[i].epoch = 2} /\ {i \in names : i > 3} = {}
=============================================================================
"""


@pytest.fixture(scope="module")
def definitions(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Definition]:
    """The definitions of the module."""
    folder = tmp_path_factory.mktemp("equations")
    (folder / "Equations.tla").write_text(MODULE, encoding="utf-8")
    return parse(folder, "Equations")


def test_an_equation_of_numbers_becomes_an_inequality_where_that_makes_the_formula_weaker(
    definitions: Mapping[str, Definition],
) -> None:
    numbers = Numbers(definitions, {"Equations": MODULE})
    (body,) = [each.body for each in definitions.values() if each.name == "P"]
    assert [value for _, value in of_equations(body, MODULE, numbers.is_number)] == [
        "Len(log) <= Cardinality(names)",
        "Len(log) >= Cardinality(names)",
        "log[1].epoch <= known.epoch",
        "log[1].epoch >= known.epoch",
        "known.next <= log[1].offset",
        "known.next >= log[1].offset",
        "Least(names) <= IF log = <<>> THEN known.other ELSE known.third",
        "Least(names) >= IF log = <<>> THEN known.other ELSE known.third",
        "log[i].next' <= known.next",
        "log[i].next' >= known.next",
        "log[1].epoch <= 3",
        "log[1].epoch >= 3",
        "log[i].epoch <= known.epoch",
        "log[i].epoch >= known.epoch",
        "known.epoch >= 0",
    ]


def changed_sets(definitions: Mapping[str, Definition], name: str) -> list[str]:
    """The changes of the sets in one formula of the module."""
    (body,) = [each.body for each in definitions.values() if each.name == name]
    values = Values(definitions, {"Equations": MODULE})
    return [f"{on_one_line(MODULE, span)} -> {value}" for span, value in of_sets(body, MODULE, values)]


def test_a_set_of_strings_gets_each_other_one_of_its_field_where_that_makes_the_formula_weaker(
    definitions: Mapping[str, Definition],
) -> None:
    assert changed_sets(definitions, "Strings") == [
        'client.state = "up" -> client.state \\in {"up", "down"}',
        'AtRest -> AtRest \\cup {"ongoing"}',  # the client has other states than the record
        '{"told"} -> {"told", "lost"}',
        'client.state # "up" -> client.state \\notin {"up", "down"}',
        'Fate(1) = "open" -> Fate(1) \\in {"open", "data"}',
        'known.fate = "a" -> known.fate \\in Vowels',  # it has more than four other values
    ]


def test_a_range_gets_longer_or_shorter_where_that_makes_the_formula_weaker(
    definitions: Mapping[str, Definition],
) -> None:
    assert changed_sets(definitions, "Ranges") == [
        "1..(known.next - 1) -> 0..known.next - 1",
        "1..(known.next - 1) -> 1..(known.next - 1 + 1)",
        "1..9 -> 2..9",
        "1..9 -> 1..8",
        "known.next..9 -> (known.next - 1)..9",
        "known.next..9 -> known.next..10",
        "1..known.next -> 2..known.next",
        "1..known.next -> 1..(known.next - 1)",
        "2..5 -> 3..5",
        "2..5 -> 2..4",
        "3..4 -> 4..4",
        "3..4 -> 3..3",
        "6..7 -> 5..7",
        "6..7 -> 6..8",
        "7..8 -> 8..8",
        "7..8 -> 7..7",
        "8..9 -> 9..9",
        "8..9 -> 8..8",
    ]


def test_a_filter_loses_its_conjuncts_where_that_makes_the_formula_weaker(
    definitions: Mapping[str, Definition],
) -> None:
    assert changed_sets(definitions, "Filters") == ["i > 1 -> TRUE", "log[i].epoch = 2 -> TRUE"]
