"""The equations of a made-up module that become inequalities."""

from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.equations import Numbers, of_equations
from kafka_eos_checks.tla.sany import parse

EQUATIONS = r"""------------------------------- MODULE Equations -------------------------------
EXTENDS Integers, Sequences, FiniteSets

VARIABLES log, known, names

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
     /\ ~(known.epoch = 3) /\ known = Entry(2)
     /\ \E i \in DOMAIN log : log[i].epoch = known.epoch
     /\ known.epoch = 0 /\ known.filled = log[1].filled
=============================================================================
"""


@pytest.mark.tlc
def test_an_equation_of_numbers_becomes_an_inequality_where_that_makes_the_formula_weaker(tmp_path: Path) -> None:
    (tmp_path / "Equations.tla").write_text(EQUATIONS, encoding="utf-8")
    definitions = parse(tmp_path, "Equations")
    numbers = Numbers(definitions, {"Equations": EQUATIONS})
    (body,) = [each.body for each in definitions.values() if each.name == "P"]
    assert [value for _, value in of_equations(body, EQUATIONS, numbers.is_number)] == [
        "Len(log) <= Cardinality(names)",
        "Len(log) >= Cardinality(names)",
        "log[1].epoch<= known.epoch",  # fits where it stood: what follows in the list does not move
        "log[1].epoch>= known.epoch",
        "known.next <= log[1].offset",
        "known.next >= log[1].offset",
        "Least(names) <= IF log = <<>> THEN known.other ELSE known.third",
        "Least(names) >= IF log = <<>> THEN known.other ELSE known.third",
        "log[i].next' <= known.next",
        "log[i].next' >= known.next",
        "known.epoch>= 0",
    ]
