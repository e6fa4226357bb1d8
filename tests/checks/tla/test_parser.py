"""The parser of modules: trees, comments, places, and the modules that a folder needs."""

from pathlib import Path

import pytest

from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import UnknownSyntax, disjuncts, names, parse_expression, parse_module
from kafka_eos_checks.tla.sany import parse as parsed_by_sany


def test_items_of_a_list_end_where_the_next_begins() -> None:
    text = "/\\ 1 = 1\n/\\ \\/ 1 = 2\n   \\/ 2 = 2\n/\\ 3 = 3"
    assert parse_expression(text, "a test")[0] == "and"
    assert [item[0] for item in parse_expression(text, "a test")[1]] == ["infix", "or", "infix"]


PRECEDENCE = {
    "1 + 2 - 3": "1 + (2 - 3)",
    "1 - 2 - 3": "(1 - 2) - 3",
    "1 - 2 * 3": "1 - (2 * 3)",
    "2 * 3 ^ 2": "2 * (3 ^ 2)",
    "1 .. n + 1": "1 .. (n + 1)",
    "S \\cup 1 .. 2": "S \\cup (1 .. 2)",
    "a \\in S \\cup T": "a \\in (S \\cup T)",
    "a = b /\\ c = d": "(a = b) /\\ (c = d)",
    "a /\\ b => c": "(a /\\ b) => c",
    "~a /\\ b": "(~a) /\\ b",
    "f @@ 1 :> 2": "f @@ (1 :> 2)",
    "f # g @@ h": "f # (g @@ h)",
    "f = g @@ h": "f = (g @@ h)",
    "LET RECURSIVE f(_), g(_)  f(n) == n IN f(2)": "LET f(n) == n IN f(2)",
    "DOMAIN f \\cup S": "(DOMAIN f) \\cup S",
    "f[a, b]": "f[<<a, b>>]",
    "[f EXCEPT ![a, b] = 1]": "[f EXCEPT ![<<a, b>>] = 1]",
}


@pytest.mark.parametrize(("text", "clear"), PRECEDENCE.items())
def test_operators_bind_as_tla_has_it(text: str, clear: str) -> None:
    assert parse_expression(text, "a test") == parse_expression(clear, "a test")


def test_a_choice_has_its_name_its_set_and_its_condition() -> None:
    one, elements, true = (parse_expression(text, "a test") for text in ("1", "S", "x = 1"))
    assert parse_expression("CHOOSE x \\in S : x = 1", "a test") == ("choose", "x", elements, true)
    assert true[3] == one


def test_text_outside_of_the_subset_is_refused_with_its_line() -> None:
    with pytest.raises(UnknownSyntax, match=r"M.tla line 2"):
        parse_module("M", "---- MODULE M ----\nA == CHOOSE x : TRUE\n====\n")
    with pytest.raises(UnknownSyntax, match="a test line 2: did not expect 'x'"):
        parse_expression("[]\n[x' = 1]x", "a test")


def test_every_module_of_the_project_is_inside_of_the_subset() -> None:
    spec = ModuleFolder(spec_folder())
    assert len(spec.paths) > 40
    assert [name for name in spec.paths if not spec.module(name).definitions] == []


def test_record_sets_and_tuples_of_variables_after_an_action_are_read() -> None:
    assert parse_expression("[a : {1}, b : S]", "a test")[0] == "records"
    assert parse_expression("[][x' = x]_<<x, y>>", "a test")[1][2][0] == "tuple"


def test_comments_nest_and_hide_definitions() -> None:
    text = "---- MODULE M ----\nFirst == 0\n(* a (* b *)\nHidden == 1 *)\n\\* Gone == 2\nShown == 3 (* three *)\n====\n"
    assert list(parse_module("M", text).definitions) == ["First", "Shown"]
    assert parse_module("M", text).definitions["Shown"].line == 6


def test_a_definition_has_the_comment_above_it_and_a_variable_the_one_behind_it() -> None:
    text = "---- MODULE M ----\nVARIABLES log, \\* all records\n          end  \\* of the log\n\n(* Not this. *)\n\n"
    module = parse_module("M", text + "(*******)\n(* It is *)\n(* one.  *)\nOne == 1\nTwo == 2 (* Not this. *)\n====\n")
    assert module.meanings == {"log": "all records", "end": "of the log"}
    assert {name: found.comment for name, found in module.definitions.items()} == {"One": "It is one.", "Two": ""}


NEXT = {
    "A \\/ \\E i \\in S : B(i) \\/ \\E j \\in 0..N : C(i, j)": [("A", []), ("B", ["S"]), ("C", ["S", "0..N"])],
    "\\/ \\E i, j \\in S, k \\in T : A(k, i, j) /\\ UNCHANGED x\n\\/ B(N)": [("A", ["T", "S", "S"]), ("B", ["N"])],
    "\\E i \\in S : A(i) \\/ \\E i \\in T : B(i)": [("A", ["S"]), ("B", ["T"])],
}


@pytest.mark.parametrize(("text", "actions"), NEXT.items())
def test_the_actions_of_a_disjunction_are_found_below_quantifiers_and_beside_what_is_unchanged(
    text: str, actions: list[tuple[str, list[str]]]
) -> None:
    found = [(name, tuple(parse_expression(each, "a test") for each in sets)) for name, sets in actions]
    assert list(disjuncts(parse_expression(text, "a test"), {})) == found
    module = parse_module("M", f"---- MODULE M ----\nNext ==\n    {text.replace(chr(10), chr(10) + '    ')}\n====\n")
    assert module.definitions["Next"].is_disjunction


@pytest.mark.parametrize(
    "text", ["\\E i \\in S : A(i) /\\ B(i)", "\\E i \\in S : x' = i", "A \\/ B(1)", "A /\\ UNCHANGED x /\\ B"]
)
def test_an_action_of_its_own_is_no_disjunction_of_others(text: str) -> None:
    module = parse_module("M", f"---- MODULE M ----\nStep == {text}\n====\n")
    assert not module.definitions["Step"].is_disjunction


def test_the_names_of_an_expression_are_those_in_its_bounds_arguments_and_lets_too() -> None:
    tree = parse_expression("LET a == F(x) IN \\A i \\in S : [f EXCEPT ![i] = M!G(a)]", "a test")
    assert set(names(tree)) == {"F", "x", "S", "f", "i", "M!G", "a"}


@pytest.mark.tlc
@pytest.mark.parametrize("module", ["Transactions", "ConsumeTransformProduce"])
def test_the_parser_finds_the_definitions_that_sany_finds_where_sany_finds_them(module: str, tmp_path: Path) -> None:
    spec = ModuleFolder(spec_folder())
    for name in spec.closure([module]):
        (tmp_path / f"{name}.tla").write_text(spec.text(name), encoding="utf-8")
    found = {
        definition.name: definition.body.span.line
        for definition in parsed_by_sany(tmp_path, module).values()
        if definition.body.span.module == module and "!" not in definition.name
    }
    own = spec.module(module).definitions
    top = {name for name in found if name in own}
    assert top == {name for name, definition in own.items() if definition.body[0] != "instance"}
    assert [name for name in top if not 0 <= found[name] - own[name].line <= 3] == []


def test_always_is_not_eventually() -> None:
    assert parse_expression("[]P", "") == ("always", ("call", "P", ()))
    assert parse_expression("<>P", "") == ("eventually", ("call", "P", ()))


@pytest.mark.parametrize(
    ("text", "grouped"),
    [
        ("1..2 \\X {3}", "1..(2 \\X {3})"),
        ("A \\cup B \\X C", "A \\cup (B \\X C)"),
        ("1..2 + 3", "1..(2 + 3)"),
        *((f"~1 {sign} 2", f"~(1 {sign} 2)") for sign in ("=", "#", "<", ">", "<=", ">=", "=<", "\\leq", "\\in")),
        ("1 + 2 - 3 * 4", "1 + (2 - (3 * 4))"),
        ("A \\cup 1..2 = B", "(A \\cup (1..2)) = B"),
    ],
)
def test_operators_bind_as_tightly_as_in_tla(text: str, grouped: str) -> None:
    assert parse_expression(text, "here") == parse_expression(grouped, "here")


def test_a_case_has_each_of_its_arms_and_what_holds_otherwise() -> None:
    a, b, one, two, three = (parse_expression(text, "a test") for text in ("a", "b", "1", "2", "3"))
    arms = ((a, one), (b, two))
    assert parse_expression("CASE a -> 1 [] b -> 2", "a test") == ("case", arms, None)
    assert parse_expression("CASE a -> 1 [] b -> 2 [] OTHER -> 3", "a test") == ("case", arms, three)


def test_a_function_is_changed_at_each_of_the_named_places() -> None:
    f, i, one, two = (parse_expression(text, "a test") for text in ("f", "i", "1", "2"))
    changes = (((i, ("literal", "log")), one), ((two,), two))
    assert parse_expression("[f EXCEPT ![i].log = 1, ![2] = 2]", "a test") == ("except", f, changes)


def test_names_that_are_declared_in_several_places_are_all_declared() -> None:
    text = "---- MODULE M ----\nCONSTANTS A, B\nCONSTANT C\nVARIABLE x\nOne == 1\nVARIABLES y, z\n====\n"
    module = parse_module("M", text)
    assert (module.constants, module.variables) == (("A", "B", "C"), ("x", "y", "z"))
