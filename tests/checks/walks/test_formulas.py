"""Formulas of the spec, parsed and evaluated in Python."""

from dataclasses import replace

import pytest
from immutables import Map

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines.explorer import attempt
from kafka_eos.machines.machine import instances
from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Model, Registry, bounds_predicate
from kafka_eos_checks.tla.evaluation import Undefined
from kafka_eos_checks.tla.parser import parse_expression
from kafka_eos_checks.walks.layers import broken_layer
from kafka_eos_checks.walks.properties import GOAL, INITIAL, INVARIANT, STEP, parts
from kafka_eos_checks.walks.walk import Walker

EXPRESSIONS = {
    "1 + 2 * 3": 7,
    "{1, 2} \\cup {3} \\ {1}": frozenset({2, 3}),
    "\\A i, j \\in 1..3 : i # j => i + j > 2": True,
    "\\E i \\in {} : TRUE": False,
    "[i \\in 1..3 |-> i * i]": (1, 4, 9),
    "[a |-> 1, b |-> <<2>>]": Map({"a": 1, "b": (2,)}),
    "[[i \\in 1..2 |-> 0] EXCEPT ![2] = @ + 7]": (0, 7),
    "[[a |-> [b |-> 1]] EXCEPT !.a.b = 2].a.b": 2,
    "{i \\in 1..6 : i % 2 = 0}": frozenset({2, 4, 6}),
    "{<<i, j>> : i \\in {1}, j \\in {2, 3}}": frozenset({(1, 2), (1, 3)}),
    "CHOOSE i \\in 1..9 : i > 3 /\\ i < 5": 4,
    "LET square(x) == x * x  two == 2 IN square(two) + two": 6,
    "IF 1 \\in {1} THEN <<>> ELSE <<1>>": (),
    'CASE 1 = 2 -> "a" [] 2 = 2 -> "b" [] OTHER -> "c"': "b",
    "SelectSeq(<<1, 2, 3>>, LAMBDA x : x # 2)": (1, 3),
    "Len(Append(<<5>>, 6)) + Head(Tail(<<1, 2>>))": 4,
    "SubSeq(<<1, 2, 3>>, 2, 3) \\o <<4>>": (2, 3, 4),
    "Cardinality(SUBSET {1, 2, 3})": 8,
    "[{1, 2} -> {0, 1}] = {<<0, 0>>, <<0, 1>>, <<1, 0>>, <<1, 1>>}": True,
    "UNION {{1}, {2, 3}}": frozenset({1, 2, 3}),
    "DOMAIN <<7, 8>> = 1..2": True,
    "(1 :> 5) @@ (2 :> 6)": (5, 6),
    "{1} \\X {2} \\X {3}": frozenset({(1, 2, 3)}),
    "~(1 = 2) <=> 1 # 2": True,
    "-1 < 0": True,
}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


@pytest.fixture(scope="module")
def formulas(registry: Registry) -> Formulas:
    return Formulas(registry.models["EpochBump"])


@pytest.mark.parametrize(("text", "value"), EXPRESSIONS.items())
def test_an_expression_has_the_value_that_tla_gives_it(formulas: Formulas, text: str, value: object) -> None:
    assert formulas.evaluate(parse_expression(text, "a test"))((), ()) == value


def test_a_function_outside_of_its_domain_has_no_value(formulas: Formulas) -> None:
    with pytest.raises(Undefined):
        formulas.evaluate(parse_expression("<<1>>[2]", "a test"))((), ())


@pytest.mark.parametrize(
    ("model", "name", "kinds"),
    [
        ("Transactions", "AllOrNone", {INVARIANT}),
        ("Transactions", "OnlyLegalTransitions", {STEP}),
        ("Transactions", "EveryTransactionEnds", {GOAL}),
        ("Transactions", "RefinesAtomicTransactions", {INITIAL, STEP}),
        ("ConsumeTransformProduce", "EveryInputTakesEffect", {GOAL}),
        ("ApplicationLoop", "EveryInputIsProcessed", {GOAL}),
    ],
)
def test_each_part_of_a_property_has_the_kind_that_says_when_to_evaluate_it(
    registry: Registry, model: str, name: str, kinds: set[str]
) -> None:
    assert {part.kind for part in parts(Formulas(registry.models[model]), name)} == kinds


def first_violation(model: Model) -> int:
    """The number of states on the shortest path to a violation, found breadth-first in the reference."""
    walker = Walker(replace(broken_layer(Registry(), model.name), model=model, properties=(model.expect.violates,)))
    named, inside = instances(walker.machine, walker.constants), bounds_predicate(model)
    frontier = [walker.initial(walker.constants)]
    seen = set(frontier)
    depth = 1
    while frontier:
        depth += 1
        further = []
        for state in filter(inside, frontier):
            for instance in named:
                after = attempt(state, instance)
                if isinstance(after, (NotEnabled, Rejected)):
                    continue
                if walker.judged(state, after) is not None:
                    return depth
                if after not in seen:
                    seen.add(after)
                    further.append(after)
        frontier = further
    return 0


@pytest.mark.parametrize(
    "name",
    [
        "OldRetry",
        "RestartReorders",
        "AtLeastOnceIsNotExactlyOnce",
        "FirstAnswerFences",
        "HangingTransaction",
        "EndRaisesEpoch",
        "TimeoutRaisesEpoch",
        "LongTransactionDelays",
        "MirrorOffsetsInSourceTwice",
        "MirrorOffsetsInSourceDuplicates",
        "TransferWithoutTransactions",
        "CommitAfterProcessingTwice",
    ],
)
def test_a_property_is_violated_first_where_tlc_finds_it_violated(registry: Registry, name: str) -> None:
    model = registry.models[name]
    assert first_violation(model) == model.expect.depth


def test_a_remembered_value_is_dropped_when_a_variable_changes(registry: Registry) -> None:
    formulas = Formulas(registry.models["MirrorOffsetsInTarget"])
    holds = formulas.named("NoDuplicate")
    place = formulas.variables.index("target")
    state = tuple(() if name == "target" else 0 for name in formulas.variables)

    def with_target(*records: int) -> tuple[object, ...]:
        return (*state[:place], records, *state[place + 1 :])

    assert holds(with_target(1, 2), ())
    assert not holds(with_target(1, 1), ())
    assert holds(with_target(1, 2), ())


def test_a_mutant_of_a_rule_also_replaces_it_in_properties(registry: Registry) -> None:
    plain, mutant = (Formulas(registry.get(name)) for name in ("ReadCommitted", "HighWatermarkOnly"))
    assert plain.definition("LastStableOffset") != mutant.definition("LastStableOffset")
