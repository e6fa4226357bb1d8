from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.equivalents import read_follows
from kafka_eos_checks.matrix.mutant_replays import SETTINGS, plan_of
from kafka_eos_checks.models.registry import (
    LONGEST_ROOT,
    Expectation,
    MalformedRegistry,
    Registry,
    bounds_predicate,
    extended_modules,
    import_machine,
    rule_modules,
    write_model,
)
from kafka_eos_checks.proofs.command import NAMES
from kafka_eos_checks.tla.modules import ModuleFolder


def registry_of(registry: Registry, text: str) -> Registry:
    (registry.folder / "Counter.toml").write_text(text, encoding="utf-8")
    return Registry(registry.folder)


MODEL = '[model.M]\ntitle = "t"\ninvariants = ["NotAboveLimit"]\n'
MUTANT = '\n[mutant.B]\nmodel = "M"\ntitle = "t"\noverrides = { AddError = "NoLimit" }\nviolates = "NotAboveLimit"\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[model.M", "no TOML"),
        ("[modle.M]", "unknown table 'modle'"),
        ("model = 3", "model is 3; entries are [base], [model.X] and [mutant.X]"),
        ("[model]\nM = 3", "M is 3; entries are [base]"),
        ("[mutant]\nB = 3", "B is 3; entries are [base]"),
        ("base = 3", "base is 3; entries are [base]"),
        ("[model.M]", "title is missing"),
        ("[base]\ntitle = 't'", "unknown key 'title'"),
        ("[base]\nconstants = { Limit = 3 }", "[base]: constants is {'Limit': 3}"),
        (MODEL + "tier = 'huge'", "tier is 'huge'; write one of small, full, deep"),
        (MODEL + "constant = {}", "unknown key 'constant'"),
        (MODEL + "constants = { Limit = 3 }", "write a table of strings in TLA+"),
        (MODEL + "graph = true", "graph is True; write a string"),
        (MODEL + 'tier = "full"\ngraph = "small"', "write the model's own tier, or a later one"),
        (MODEL + 'probes = "P"', "write a list of strings"),
        (MODEL + 'silent = ["Q"]', "Q is silent but not checked; delete it from 'silent'"),
        (MODEL + 'expect = { verdict = "fails" }', 'either verdict = "holds" or violates'),
        (MODEL + 'expect = { verdict = "holds", states = "3" }', "expect has states = '3'"),
        (MODEL + 'expect = { verdict = "holds", states = true }', "expect has states = True"),
        (MODEL + 'expect = { violates = "P" }', "P is to be violated but not checked"),
        (MODEL + 'properties = ["P", "Q"]\nexpect = { violates = "P" }', "keep P as the only one"),
        (MODEL.replace('["NotAboveLimit"]', "[]"), "nothing is checked"),
        (MODEL.replace("model.M", 'model."M-1"'), "use letters, digits and _"),
        (MODEL + MUTANT.replace('"M"', '"N"'), "model is 'N'; name an entry"),
        (MODEL + 'silent = ["NotAboveLimit"]\n' + MUTANT, "M has NotAboveLimit under 'silent'; delete it there"),
        (MODEL + MUTANT, "give either replay = the finding, or blind.replay"),
        (MODEL + MUTANT + 'replay = "gap"\nblind.tlc = "never"', "requests, simulation, and has tlc"),
        (MODEL + MUTANT.replace("[mutant.B]", "[mutant.M]") + 'replay = "gap"', "has this name, too; rename one"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused_with_file_entry_and_remedy(
    registry: Registry, text: str, reason: str
) -> None:
    with pytest.raises(MalformedRegistry) as caught:
        registry_of(registry, text)
    assert reason in str(caught.value)
    assert str(registry.folder / "Counter.toml") in str(caught.value)


def test_a_folder_without_models_is_reported_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(MalformedRegistry, match=r"no models; name the folder of the files <Module>\.toml"):
        Registry(tmp_path / "models")


def test_entries_are_read_again_if_a_file_or_the_modules_have_changed_and_a_registry_has_its_own(
    registry: Registry,
) -> None:
    registry.models["Other"] = registry.models.pop("Counter")
    again = Registry(registry.folder)
    assert "Counter" in again.models.keys() - registry.models.keys()
    assert again.get("Counter") == registry.get("Other")
    assert registry_of(registry, MODEL).models.keys() == {"M"}
    (registry.folder.parent / "Counter.tla").unlink()
    with pytest.raises(MalformedRegistry, match=r"no module Counter\.tla"):
        Registry(registry.folder)


def test_a_file_of_no_module_is_refused(registry: Registry) -> None:
    (registry.folder / "Conter.toml").write_text(MODEL.replace("model.M", "model.N"), encoding="utf-8")
    with pytest.raises(MalformedRegistry, match=r"no module Conter\.tla"):
        Registry(registry.folder)


def test_two_files_do_not_share_a_name(registry: Registry) -> None:
    text = (registry.folder / "Counter.toml").read_text(encoding="utf-8")
    (registry.folder / "Second.toml").write_text(text, encoding="utf-8")
    (registry.folder.parent / "Second.tla").write_text("", encoding="utf-8")
    with pytest.raises(MalformedRegistry, match="has this name, too; rename one"):
        Registry(registry.folder)


def test_an_entry_inherits_from_its_base_and_states_the_differences(registry: Registry) -> None:
    base = '[base]\nconstants = { Limit = "3", MaxLog = "2" }\nbounds = "Bounds"\ninvariants = ["NotAboveLimit"]\n'
    text = base + '[model.M]\ntitle = "t"\nconstants = { Limit = "4" }\n[model.N]\ntitle = "t"\nbounds = ""\n'
    made = registry_of(registry, text)
    assert made.get("M").constants == {"Limit": "4", "MaxLog": "2"}
    assert (made.get("M").bounds, made.get("M").invariants) == ("Bounds", ("NotAboveLimit",))
    assert (made.get("N").bounds, made.get("N").constants["Limit"]) == ("", "3")


def test_a_mutant_has_everything_of_its_model_and_checks_its_own_property(registry: Registry) -> None:
    text = MODEL.replace('["NotAboveLimit"]', '["NeverFull", "NotAboveLimit"]')
    mutant = registry_of(registry, text + MUTANT + 'replay = "gap"').get("B")
    assert mutant.module == "Counter"
    assert mutant.invariants == ("NotAboveLimit",)
    assert mutant.expect == Expectation(violates="NotAboveLimit")
    assert mutant.kind == "mutant"


def test_a_constant_that_only_tlc_can_evaluate_is_refused_where_python_needs_it(registry: Registry) -> None:
    model = registry_of(registry, MODEL + 'constants = { Limit = "1 + 2" }').get("M")
    with pytest.raises(MalformedRegistry, match=r"constant Limit: .* write a literal value"):
        model.constant_values()


def test_a_name_without_an_entry_is_refused_with_names_that_are_like_it(registry: Registry) -> None:
    for name, near in (("Countr", "Counter"), ("NoLimits", "NoLimit")):
        with pytest.raises(MalformedRegistry, match=f"there are 3, such as {near}$"):
            registry.get(name)
    with pytest.raises(MalformedRegistry, match="such as Counter, "):
        registry.get("xyz")


def test_the_rules_of_a_machine_are_in_the_modules_of_its_classes_and_of_its_parts() -> None:
    modules = [module.__name__ for module in rule_modules(Registry().get("Leader").machine_class())]
    assert {name.rpartition(".")[0] for name in modules} == {"kafka_eos.machines"}
    assert {"leader", "producer_state"} <= {name.rpartition(".")[2] for name in modules}


def test_a_written_model_holds_every_module_it_needs(registry: Registry) -> None:
    folder, root = write_model(registry.get("NoLimit"))
    assert {path.name for path in folder.glob("*.tla")} == {
        "Counter.tla",
        "CounterBounds.tla",
        "CounterMutants.tla",
        f"{root}.tla",
    }
    configuration = (folder / f"{root}.cfg").read_text(encoding="utf-8")
    assert "    AddError <- NoLimit\n" in configuration
    assert "CONSTRAINT Bounds\n" in configuration
    assert 'const_Clients == {"a", "b"}' in (folder / f"{root}.tla").read_text(encoding="utf-8")


def test_a_rule_of_an_extended_module_is_replaced_by_an_operator_of_that_modules_mutants(registry: Registry) -> None:
    (registry.folder.parent / "Shop.tla").write_text("---- MODULE Shop ----\nEXTENDS Counter\n====", encoding="utf-8")
    shop = replace(registry.get("NoLimit"), module="Shop", bounds="", probes=())
    assert extended_modules(shop) == ["Shop", "CounterMutants", "TLC"]
    assert extended_modules(replace(shop, overrides={})) == ["Shop", "TLC"]


def test_bounds_need_a_twin_in_python(registry: Registry) -> None:
    with pytest.raises(MalformedRegistry, match=r"no function counter_bounds\(state, constants\)"):
        bounds_predicate(registry.get("Counter"))
    model = Registry().get("PartitionLog")
    machine = model.machine_class()
    assert bounds_predicate(model)(machine.initial(model.machine_constants(machine)))


def test_modules_in_comments_are_not_needed(tmp_path: Path) -> None:
    (tmp_path / "A.tla").write_text(
        "---- MODULE A ----\n(* EXTENDS B\nINSTANCE B *)\nEXTENDS C ,\n  Integers\nX == 1\n===="
    )
    (tmp_path / "B.tla").write_text("---- MODULE B ----\n====")
    (tmp_path / "C.tla").write_text("---- MODULE C ----\nI(x) == INSTANCE D WITH y <- x\n====")
    (tmp_path / "D.tla").write_text("---- MODULE D ----\n====")
    modules = ModuleFolder(tmp_path)
    assert sorted(modules.closure(["A"])) == ["A", "C", "D"]
    assert modules.defines("A", "X")
    assert modules.defines("C", "I")
    assert not modules.defines("A", "B")


def test_an_update_changes_the_line_of_its_entry_and_nothing_else(registry: Registry) -> None:
    file = registry.get("Counter").file
    before = file.read_text(encoding="utf-8")
    registry.update("Counter", Expectation(generated=30, states=20, depth=5))
    after = file.read_text(encoding="utf-8")
    line = 'expect = { verdict = "holds", generated = 30, states = 20, depth = 5 }'
    assert after == before.replace('expect = { verdict = "holds" }', line)
    assert Registry(registry.folder).get("Counter").expect.states == 20


def test_an_update_without_a_line_to_change_says_what_to_add(registry: Registry) -> None:
    changed = registry_of(registry, MODEL)
    with pytest.raises(MalformedRegistry, match=r"no line 'expect = …' to update; add: expect = \{ verdict"):
        changed.update("M", Expectation(states=1))


def test_the_proofs_that_an_entry_names_exist_and_some_entry_refutes_each() -> None:
    named = [name for mutant in Registry().mutants.values() for name in mutant.proofs]
    assert set(named) == set(NAMES)


def test_a_mutant_of_the_model_that_a_whole_proof_is_about_names_the_proof() -> None:
    of_model = [mutant for mutant in Registry().mutants.values() if mutant.model == "PartitionLog"]
    assert of_model
    assert [mutant.name for mutant in of_model if mutant.proofs != ("append",)] == []


def test_every_property_of_states_or_steps_is_violated_by_an_entry_or_follows_from_others() -> None:
    """`make check` looks at named entries only. Refinements and liveness are weakened by `check conjuncts`."""
    registry = Registry()
    models = [
        model for model in registry.models.values() if not (model.spec / "proofs" / f"{model.module}.tla").exists()
    ]
    violated = {(each.module, each.expect.violates) for each in (*models, *registry.mutants.values())}
    violated |= {(model.module, name) for model in models for told in model.shipped.values() for name in told.violates}
    follow = {tuple(operator.split("!")) for operator, _ in read_follows()}
    checked = {
        (model.module, name)
        for model in models
        for name in (*model.invariants, *(() if model.specification == "FairSpec" else model.properties))
        if not name.startswith("Refines")
    }
    assert checked - violated - follow == set()


def test_the_simulations_that_entries_name_exist() -> None:
    assert {mutant.simulation for mutant in Registry().mutants.values()} == {"", *SETTINGS}


def test_an_unknown_simulation_is_refused_with_the_known_ones() -> None:
    mutant = replace(Registry().get("NoDuplicateCache"), simulation="fast")
    with pytest.raises(MalformedRegistry, match="no simulation 'fast'; write expiring, loading"):
        plan_of(mutant, 1)


def test_a_long_name_becomes_a_root_module_that_sany_finds(registry: Registry) -> None:
    model = registry.models["Counter"]
    assert model.root_module == "MC_Counter"
    roots = {replace(model, name=f"{'Long' * 12}{end}").root_module for end in "AB"}
    assert [len(root) for root in roots] == [LONGEST_ROOT, LONGEST_ROOT]


TOTALS = """---- MODULE Totals ----
EXTENDS Counter
Shops == INSTANCE Counter WITH
    Limit <- Limit + 1, response <- "NONE"
Check == Shops!Add("a", 1)
===="""


def test_a_rule_of_an_instance_is_replaced_there_with_what_the_instance_gives(registry: Registry) -> None:
    (registry.folder.parent / "Totals.tla").write_text(TOTALS.replace("EXTENDS Counter\n", ""), encoding="utf-8")
    model = replace(registry.get("Counter"), module="Totals", overrides={"Counter!AddError": "NoLimit"})
    folder, root = write_model(model)
    assert "    AddError <-[Counter] Shops_NoLimit\n" in (folder / f"{root}.cfg").read_text(encoding="utf-8")
    text = (folder / f"{root}.tla").read_text(encoding="utf-8")
    assert 'Shops_Rules_ == INSTANCE Shops_Rules WITH\n    Limit <- Limit + 1, response <- "NONE"\n' in text
    assert "Shops_NoLimit(given0, given1) == Shops_Rules_!NoLimit(given0, given1)\n" in text
    assert "EXTENDS Counter, CounterMutants\n" in (folder / "Shops_Rules.tla").read_text(encoding="utf-8")
    assert (folder / "CounterMutants.tla").is_file()


def test_a_rule_that_no_single_instance_has_cannot_be_replaced_there(registry: Registry) -> None:
    model = replace(registry.get("Counter"), overrides={"Counter!AddError": "NoLimit"})
    with pytest.raises(MalformedRegistry, match=r"overrides has Counter!AddError.* there are 0"):
        write_model(model)
    twice = TOTALS.replace("EXTENDS Counter\n", "").replace("Check ==", "Others == INSTANCE Counter\nCheck ==")
    (registry.folder.parent / "Totals.tla").write_text(twice, encoding="utf-8")
    with pytest.raises(MalformedRegistry, match="there are 2"):
        write_model(replace(model, module="Totals"))


def test_of_many_names_that_are_near_five_are_shown() -> None:
    registry = Registry()
    with pytest.raises(MalformedRegistry) as refused:
        registry.get("PartitionLogTwo")
    near = str(refused.value).partition("such as ")[2].split(", ")
    assert len(near) == len(set(near)) == 5
    assert near[0] == "PartitionLog"
    assert set(near) <= registry.models.keys() | registry.mutants.keys()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "Empty module name"),
        ("kafka_eos.machines.nothing:Any", "No module named"),
        ("kafka_eos.machines.machine:Nothing", "has no attribute 'Nothing'"),
        ("kafka_eos.machines.machine:load_constants", "load_constants is no class"),
    ],
)
def test_a_machine_that_is_none_is_refused_with_the_reason(path: str, why: str) -> None:
    usage = "name one as 'package.module:Class'"
    with pytest.raises(MalformedRegistry, match=f"here: no machine '{path}' .*{why}.*; {usage}"):
        import_machine(path, "here")
