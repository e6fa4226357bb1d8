import re
from dataclasses import replace

import pytest

from kafka_eos_checks.graphs.model_check import check_model
from kafka_eos_checks.models import witnesses
from kafka_eos_checks.models.registry import Model, Registry

REACHED = ('"witness true: NotAboveLimit"', '"witness false: NotAboveLimit"')


def counter(registry: Registry, **changes: object) -> Model:
    return replace(registry.get("Counter"), **changes)  # type: ignore[arg-type]


def test_every_property_of_every_model_has_a_witness_and_a_model_that_is_said_to_reach_it() -> None:
    verdict = witnesses.verdict(Registry())
    assert verdict.evidence == ""
    assert verdict.ok
    assert int(verdict.figures["properties"]) > 200


def test_a_property_without_a_witness_or_silent_in_every_model_is_named(registry: Registry) -> None:
    file = registry.get("Counter").file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('["NotAboveLimit"]', '["NotAboveLimit", "NeverFull"]'), encoding="utf-8")
    bare = witnesses.verdict(Registry(registry.folder))
    assert not bare.ok
    wanted = "Counter!NeverFull has no witness; define NeverFullWitness beside it (Counter checks it)"
    assert (bare.found, bare.evidence) == ("1 say nothing", wanted)
    silent = text.replace('["NotAboveLimit"]', '["NotAboveLimit", "NoDebt"]\nsilent = ["NoDebt"]')
    file.write_text(silent, encoding="utf-8")
    mute = witnesses.verdict(Registry(registry.folder))
    wanted = "Counter!NoDebt says nothing in any model; give one the constants that put it to the test"
    assert (mute.ok, mute.evidence) == (False, wanted)


@pytest.mark.parametrize(
    ("changes", "prints", "found"),
    [
        ({}, REACHED, []),
        (
            {},
            REACHED[1:],
            ["NotAboveLimit says nothing here: NotAboveLimitWitness is never reached; widen the constants"],
        ),
        (
            {},
            REACHED[:1],
            [
                "NotAboveLimitWitness is always true, which shows nothing of NotAboveLimit; "
                "say what NotAboveLimit speaks of"
            ],
        ),
        ({"silent": ("NotAboveLimit",)}, REACHED[1:], []),
        (
            {"silent": ("NotAboveLimit",)},
            REACHED,
            ["NotAboveLimitWitness is reached; delete NotAboveLimit from 'silent'"],
        ),
        (
            {"silent": ("NotAboveLimit",)},
            REACHED[:1],
            ["NotAboveLimitWitness is reached; delete NotAboveLimit from 'silent'"],
        ),
        ({"invariants": ("NeverFull",)}, REACHED, ["NeverFull has no witness; define NeverFullWitness beside it"]),
    ],
)
def test_a_run_that_reaches_no_witness_or_reaches_nothing_else_is_no_evidence(
    registry: Registry, changes: dict[str, object], prints: tuple[str, ...], found: list[str]
) -> None:
    assert list(witnesses.problems(counter(registry, **changes), prints)) == found


def test_a_property_is_reached_if_a_run_tells_that_its_witness_is_true(registry: Registry) -> None:
    model = counter(registry, properties=("Grows",))
    assert list(witnesses.unreached(model, REACHED)) == ["Grows"]
    assert list(witnesses.unreached(model, REACHED[1:])) == ["NotAboveLimit", "Grows"]


def test_each_witness_has_two_registers_of_its_own(registry: Registry) -> None:
    text = witnesses.definitions(witnesses.witnesses(counter(registry, properties=("Grows",))))
    begun = re.findall(r"^ASSUME TLCSet\((\d+), FALSE\) /\\ TLCSet\((\d+), FALSE\)$", text, re.MULTILINE)
    registers = [register for pair in begun for register in pair]
    assert len(registers) == len(set(registers)) == 4


def test_a_witness_with_unchanged_is_of_steps(registry: Registry) -> None:
    module = registry.folder.parent / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    kept = "KeptWitness == UNCHANGED total\nKept == [][total' >= 0]_total\n"
    module.write_text(text.replace("\n====", f"\n{kept}====", 1), encoding="utf-8")
    watched = witnesses.witnesses(counter(registry, properties=("Kept",)))
    assert {each.name: each.of_steps for each in watched} == {"NotAboveLimit": False, "Kept": True}


def test_a_witness_with_a_prime_is_of_steps(registry: Registry) -> None:
    of_states, of_steps = witnesses.witnesses(counter(registry, properties=("Grows",)))
    assert (of_states.name, of_states.of_steps) == ("NotAboveLimit", False)
    assert (of_steps.name, of_steps.of_steps) == ("Grows", True)
    assert of_steps.definition(1).endswith("]_<<total, seen, log, readers, response>>")


def test_a_witness_tells_where_it_is_true_and_where_it_is_false(registry: Registry) -> None:
    [watched] = witnesses.witnesses(counter(registry))
    if_true, if_false = watched.definition(7).partition("IF NotAboveLimitWitness THEN")[2].split(" ELSE ")
    assert (if_true.count("(7"), if_false.count("(8")) == (2, 2)
    assert '"witness true: NotAboveLimit"' in if_true
    assert '"witness false: NotAboveLimit"' in if_false


@pytest.mark.tlc
@pytest.mark.parametrize("workers", [1, 2])
def test_tlc_tells_witnesses_that_are_reached_never_reached_and_always_true(registry: Registry, workers: int) -> None:
    model = counter(registry, invariants=("NotAboveLimit", "NoDebt", "HasTotal"), properties=("Grows",))
    model = replace(model, silent=("Grows",))
    numbers = ("generated", "states", "depth")
    problems = check_model(model, workers=workers, timeout=60).problems
    assert [problem for problem in problems if not problem.startswith(numbers)] == [
        "NoDebt says nothing here: NoDebtWitness is never reached; widen the constants",
        "HasTotalWitness is always true, which shows nothing of HasTotal; say what HasTotal speaks of",
        "GrowsWitness is reached; delete Grows from 'silent'",
    ]


@pytest.mark.tlc
def test_over_one_partition_all_or_none_says_nothing_and_markers_that_disagree_break_nothing() -> None:
    registry = Registry()
    mutant = registry.get("RestIsAborted")
    both = registry.models[mutant.model]
    one = replace(
        both,
        name="OnePartition",
        constants={**both.constants, "Partitions": '{"p"}'},
        expect=registry.get("RefinesAtomicTransactions").expect,
    )
    alone = check_model(one, timeout=300)
    assert alone.problems == ("AllOrNone says nothing here: AllOrNoneWitness is never reached; widen the constants",)
    unseen = check_model(replace(one, name="OnePartitionMutant", overrides=mutant.overrides), timeout=300)
    assert unseen.problems == alone.problems
    assert check_model(mutant, timeout=300).ok
