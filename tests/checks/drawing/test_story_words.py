"""The words of stories: the comments of the modules on their operators and variables."""

from pathlib import Path

import pytest

from kafka_eos.machines import machine as machines
from kafka_eos_checks.drawing.story_words import words_in, words_of
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.parser import parse_module

DOOR = r"""
---- MODULE Door ----
VARIABLES
    isOpen,    \* whether it is; \* and not more
    turns,
    visitors   \* those who came …

vars == <<isOpen>>

(***********)
(* Keys    *)
(***********)
Fits(key) == TRUE

(* A key that fits,         *)
(* turns.   Kafka: Door.turn *)
Open(key, side) == Fits(key)
Close == TRUE
====
"""


def test_a_comment_above_an_operator_is_its_sentence_and_the_heading_of_a_part_is_not() -> None:
    words = words_in(parse_module("Door", DOOR))
    assert words.sentences == {"Open": "A key that fits, turns."}
    assert (words.parameters["Open"], words.parameters["Close"]) == (("key", "side"), ())


def test_the_comment_next_to_a_variable_is_its_meaning() -> None:
    assert words_in(parse_module("Door", DOOR)).variables == {
        "isOpen": r"whether it is; \* and not more",
        "turns": "",
        "visitors": "those who came …",
    }


def test_a_module_has_the_words_of_those_that_it_extends_and_its_own_come_first(tmp_path: Path) -> None:
    texts = {
        "Base": "EXTENDS Integers\nVARIABLE a \\* one\n\n(* Base *)\nGo == TRUE\n(* Kept *)\nB == 1\n====",
        "Top": "EXTENDS Sequences, Base\nVARIABLE b \\* two\n\n(* Top *)\nGo == TRUE\n====",
        "TopMutants": "EXTENDS Top\n(* for B: it is two *)\nTwo == 2\n====",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.tla").write_text(f"---- MODULE {name} ----\n{text}", encoding="utf-8")
    words = words_of(tmp_path, "Top")
    assert words.sentences == {"Go": "Top", "B": "Kept", "Two": "for B: it is two"}
    assert words.variables == {"a": "one", "b": "two"}


ABSTRACT = {"AtomicTransactions", "ExactlyOnce"}  # specifications that others refine, without a machine
FAILING = {
    model.module: model
    for model in (*Registry().models.values(), *Registry().mutants.values())
    if model.expect.violates and not model.module.endswith("Induction") and model.module not in ABSTRACT
}


@pytest.mark.parametrize("module", sorted(FAILING))
def test_every_action_of_a_module_that_can_fail_has_a_sentence_and_every_variable_a_meaning(module: str) -> None:
    model = FAILING[module]
    words = words_of(model.spec, module)
    machine = model.machine_class()
    assert [action.name for action in machines.actions(machine) if action.name not in words.sentences] == []
    assert [name for name in machine.VARIABLES if not words.variables.get(name)] == []


def test_every_property_that_a_model_must_violate_has_a_sentence() -> None:
    every = (*Registry().models.values(), *Registry().mutants.values())
    failing = [model for model in every if model.expect.violates]
    nameless = {
        model.expect.violates for model in failing
        if model.expect.violates not in words_of(model.spec, model.module).sentences
    }  # fmt: skip
    assert nameless == set()
