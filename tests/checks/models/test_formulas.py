"""Formulas of the spec, parsed and evaluated in Python."""

from dataclasses import replace

import pytest
from immutables import Map

from kafka_eos_checks.models.formulas import Formulas
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.evaluation import Undefined
from kafka_eos_checks.tla.parser import parse_expression

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
    "CASE 1 = 1 -> 5 [] 1 = 2 -> 6": 5,
    "[i \\in {1}, j \\in {2, 3} |-> i + j]": Map({(1, 2): 3, (1, 3): 4}),
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
    "(7 \\div 2) + 2 ^ 3": 11,
    "{1, 2} \\cap {2, 3}": frozenset({2}),
    "<<{1} \\subseteq {1, 2}, {2} \\subseteq {1}>>": (True, False),
    "<<0 \\in 1..3, 1 \\in 1..3, 3 \\in 1..3, 4 \\in 1..3>>": (False, True, True, False),
    "<<1 \\notin {1, 2}, 3 \\notin {1, 2}, 1 \\in {}>>": (False, True, False),
    "<<2 \\in DOMAIN <<5, 6>>, 3 \\in DOMAIN <<5, 6>>>>": (True, False),
    "<<0 \\in Nat, -1 \\in Nat, -1 \\in Int>>": (True, False, True),
    "<<<<1, 2>> \\in {<<1, 2>>}, <<2, 1>> \\in {<<1, 2>>}>>": (True, False),
    "<<FALSE \\/ TRUE, FALSE \\/ FALSE, TRUE /\\ FALSE>>": (True, False, False),
    "<<[](1 < 2), [](2 < 1), <>(1 < 2), <>(2 < 1)>>": (True, False, True, False),
    "<<1 = 1 ~> 1 = 1, 1 = 1 ~> 1 = 2, 1 = 2 ~> 1 = 1>>": (True, False, True),
}


@pytest.fixture(scope="module")
def every() -> Registry:
    """The registry of the spec."""
    return Registry()


@pytest.fixture(scope="module")
def formulas(every: Registry) -> Formulas:
    return Formulas(every.models["EpochBump"])


@pytest.mark.parametrize(("text", "value"), EXPRESSIONS.items())
def test_an_expression_has_the_value_that_tla_gives_it(formulas: Formulas, text: str, value: object) -> None:
    assert formulas.evaluate(parse_expression(text, "a test"))((), ()) == value


def test_a_function_outside_of_its_domain_and_a_case_that_is_not_there_have_no_value(formulas: Formulas) -> None:
    for text in ("<<1>>[2]", "CASE 1 = 2 -> 5"):
        with pytest.raises(Undefined):
            formulas.evaluate(parse_expression(text, "a test"))((), ())


def test_a_remembered_value_is_dropped_when_a_variable_changes(every: Registry) -> None:
    formulas = Formulas(every.models["MirrorOffsetsInTarget"])
    holds = formulas.named("NoDuplicate")
    place = formulas.variables.index("target")
    state = tuple(() if name == "target" else 0 for name in formulas.variables)

    def with_target(*records: int) -> tuple[object, ...]:
        return (*state[:place], records, *state[place + 1 :])

    assert holds(with_target(1, 2), ())
    assert not holds(with_target(1, 1), ())
    assert holds(with_target(1, 2), ())


ABOVE = """---- MODULE Above ----
EXTENDS Counter
Above(client) == {amount \\in Amounts : amount > seen[client]}
AtLeast(client) == {each \\in Above(client) : TRUE}
===="""


@pytest.mark.parametrize("name", ["Above", "AtLeast"])
def test_a_value_is_remembered_until_the_entry_that_it_reads_changes(registry: Registry, name: str) -> None:
    (registry.folder.parent / "Above.tla").write_text(ABOVE, encoding="utf-8")
    formulas = Formulas(replace(registry.get("Counter"), module="Above"))
    above = formulas.evaluate(parse_expression(f'{name}("a")', "a test"))

    def state(a: int, b: int) -> tuple[object, ...]:
        return tuple(Map(a=a, b=b) if name == "seen" else 0 for name in formulas.variables)

    value = above(state(1, 0), state(0, 0))
    assert value == frozenset({2})
    assert above(state(1, 2), ()) is value
    assert above(state(0, 2), ()) == frozenset({1, 2})
    later = formulas.evaluate(parse_expression(f'{name}("a")\' = {{2}}', "a test"))
    assert later((), state(1, 0))
    assert not later((), state(0, 0))


EVERYTHING = """---- MODULE Everything ----
EXTENDS Counter
Sees(client) == {<<total, log, readers, response, seen[client], amount>> : amount \\in Amounts}
Outer(client) == {each \\in Sees(client) : TRUE}
RECURSIVE Down(_, _)
Down(client, n) == IF n = 0 THEN {each \\in Sees(client) : TRUE} ELSE Down(client, n - 1)
===="""


@pytest.mark.parametrize("text", ['Sees("a")', 'Outer("a")', 'Down("a", 2)', 'UNION {Outer(x) : x \\in {"a"}}'])
def test_a_value_changes_with_every_variable_that_a_definition_behind_it_reads(registry: Registry, text: str) -> None:
    (registry.folder.parent / "Everything.tla").write_text(EVERYTHING, encoding="utf-8")
    model = replace(registry.get("Counter"), module="Everything")
    formulas, plain = Formulas(model), Formulas(model, remember=False)
    ask, again = (each.evaluate(parse_expression(text, "a test")) for each in (formulas, plain))
    state: dict[str, object] = {name: Map(a=1, b=0) if name == "seen" else 1 for name in formulas.variables}
    known = {ask(tuple(state.values()), ())}
    for name in formulas.variables:
        changed = state | {name: Map(a=2, b=0) if name == "seen" else 2}
        known.add(ask(tuple(changed.values()), ()))
        assert ask(tuple(changed.values()), ()) == again(tuple(changed.values()), ())
    assert len(known) == 1 + len(formulas.variables)
    assert formulas.reads(parse_expression(text, "a test")) == frozenset(range(len(formulas.variables)))


def test_a_step_holds_if_its_action_does_or_nothing_changes(registry: Registry) -> None:
    formulas = Formulas(registry.get("Counter"))
    grows = formulas.evaluate(parse_expression("[][total' = total + 1]_total", "a test"))
    states = [tuple(total if name == "total" else 0 for name in formulas.variables) for total in range(3)]
    assert [grows(states[1], after) for after in states] == [False, True, True]


def test_a_mutant_of_a_rule_also_replaces_it_in_properties(every: Registry) -> None:
    plain, mutant = (Formulas(every.get(name)) for name in ("ReadCommitted", "HighWatermarkOnly"))
    assert plain.definition("LastStableOffset") != mutant.definition("LastStableOffset")


def test_a_literal_may_have_any_value(formulas: Formulas) -> None:
    for value in (7, "a", True, Map(a=1), frozenset({(1, 2)})):
        assert formulas.evaluate(("literal", value))((), ()) == value


def test_a_prime_asks_for_the_state_after_a_step(registry: Registry) -> None:
    formulas = Formulas(registry.get("Counter"))
    before, after = ((total, Map(a=0, b=0), (), frozenset(), "NONE") for total in (1, 2))
    grows = formulas.evaluate(parse_expression("total' = total + 1 /\\ UNCHANGED seen", "a test"))
    assert grows(before, after)
    assert not grows(after, before)
    assert not grows(before, before)


SHOP = """---- MODULE Shop ----
EXTENDS Integers, Sequences
CONSTANTS Clients, Amounts, Most
VARIABLES response, readers, log, seen, total
Till == INSTANCE Counter WITH Limit <- Most - 1
===="""


def test_a_definition_of_an_instance_reads_the_variables_of_the_module_that_has_it(registry: Registry) -> None:
    (registry.folder.parent / "Shop.tla").write_text(SHOP, encoding="utf-8")
    constants = {"Clients": '{"a"}', "Amounts": "{1}", "Most": "3"}
    formulas = Formulas(replace(registry.get("Counter"), module="Shop", constants=constants))
    asked = formulas.evaluate(parse_expression('Till!AddError("a", 1)', "a test"))
    for seen, total, error in ((1, 1, "NONE"), (0, 1, "STALE"), (2, 2, "FULL")):
        assert asked(("NONE", frozenset(), (), Map(a=seen), total), ()) == error
    tree, space = formulas.resolved(parse_expression("Till!NeverFull", "a test"), formulas.root)
    assert tree[0] == "infix"
    assert space is not formulas.root


def test_a_name_is_resolved_to_its_definition_with_the_arguments_in_it(registry: Registry) -> None:
    formulas = Formulas(registry.get("Counter"))
    body = 'IF seen["a"] # total THEN "STALE" ELSE IF total + 1 > Limit THEN "FULL" ELSE "NONE"'
    for given, meant in (('AddError("a", 1)', body), ("NotAboveLimit", "total <= Limit"), ("total", "total")):
        found = formulas.resolved(parse_expression(given, "a test"), formulas.root)
        assert found == (parse_expression(meant, "a test"), formulas.root)
    operator = ("call", "AddError", ())  # as an argument of an operator that takes one
    assert formulas.resolved(operator, formulas.root) == (operator, formulas.root)
