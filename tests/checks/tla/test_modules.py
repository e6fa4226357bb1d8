"""The modules of a folder: what each sees, what an operator depends on, and its text."""

from pathlib import Path

import pytest

from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.tla.parser import parse_expression

SHOP = """---- MODULE Shop ----
EXTENDS Counter
Till == INSTANCE Counter WITH Limit <- Limit + 1
Refused(client) == Till!AddError(client, 1) # "NONE"
Grown ==
    /\\ total > 0 (* not empty *)
    /\\ NoDebt
Alone == 1
===="""


@pytest.fixture
def modules(registry: Registry) -> ModuleFolder:
    folder = registry.folder.parent
    (folder / "Shop.tla").write_text(SHOP, encoding="utf-8")
    return ModuleFolder(folder)


def test_a_module_sees_its_operators_and_those_of_the_modules_that_it_extends(modules: ModuleFolder) -> None:
    seen = modules.operators("Shop")
    assert (seen["Grown"][0], seen["NoDebt"][0]) == ("Shop", "Counter")
    assert modules.defines("Shop", "Grown")
    assert not modules.defines("Shop", "NoDebt")
    assert modules.instances("Shop") == {"Till": "Counter"}


def test_a_module_needs_those_that_it_extends_or_instantiates_but_not_tlcs_own(modules: ModuleFolder) -> None:
    assert sorted(modules.closure(["Shop"])) == ["Counter", "Shop"]
    assert modules.closure(["Integers"]) == []


def test_the_actions_are_the_parts_of_a_disjunction(modules: ModuleFolder) -> None:
    assert set(modules.actions("Counter", "Next")) == {"Read", "Add", "Refuse", "Reset"}


def test_the_parameters_of_an_action_range_over_the_sets_around_each_place_where_it_stands(tmp_path: Path) -> None:
    text = """---- MODULE M ----
A(i, j) == x' = i + j
B == x' = 0
More(j) == \\E i \\in S : A(i, j) \\/ A(j, j)
Next == (\\E j \\in T : More(j)) \\/ B
====
"""
    (tmp_path / "M.tla").write_text(text, encoding="utf-8")
    s, t = (parse_expression(name, "M") for name in "ST")
    assert sorted(ModuleFolder(tmp_path).steps("M", "Next")) == [("A", (s, t)), ("A", (t, t)), ("B", ())]


@pytest.mark.parametrize("times", [1, 2])
def test_an_operator_depends_on_those_that_its_body_names_however_often_it_is_asked(
    modules: ModuleFolder, times: int
) -> None:
    for _ in range(times):
        assert modules.reached("Shop", "Grown") == {"Grown", "NoDebt"}
        assert modules.reached("Shop", "Alone") == {"Alone"}
        assert modules.reached_through("Shop", "Refused") == {
            ("Shop", "Refused"),
            ("Shop", "Till"),
            ("Counter", "AddError"),
        }
        assert modules.reached_through("Shop", "Grown") == {("Shop", "Grown"), ("Counter", "NoDebt")}


def test_the_text_of_an_operator_has_spaces_in_the_place_of_comments(modules: ModuleFolder) -> None:
    text = "Grown ==\n    /\\ total > 0                \n    /\\ NoDebt"
    assert modules.definition_text("Shop", "Grown") == text
    assert modules.definition_text("Shop", "Alone") == "Alone == 1"
