import re
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.cli import main
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.ledger import properties_command
from kafka_eos_checks.ledger.properties import AUDIT, Cell, Outcome, Row, _joined, _shipped, _unstated, properties
from kafka_eos_checks.models.findings import read_findings
from kafka_eos_checks.models.registry import Expectation, MalformedRegistry, Registry, Shipped
from kafka_eos_checks.models.releases import Releases, columns

REPAIRED = Verdict(check="model", name="Counter", expected="holds", found="holds", ok=True)
NEWER = Verdict(
    check="release",
    name="Counter, Kafka 2.0",
    expected="violates NotAboveLimit",
    found="violates NotAboveLimit",
    ok=True,
    figures={"states": 20, "NotAboveLimit": "violated after 3 steps", "NoDebt": "holds"},
)


def rows(registry: Registry, *verdicts: Verdict) -> dict[str, Row]:
    shipped = {"2.0": Shipped(violates={"NotAboveLimit": "AddError"}, states=20)}
    invariants = ("NotAboveLimit", "NoDebt")
    registry.models["Counter"] = replace(registry.models["Counter"], invariants=invariants, shipped=shipped)
    found = properties(verdicts, registry, Releases(registry.folder.parent))
    return {row.name: row for row in found}


def test_what_holds_of_the_newest_release_comes_first_then_what_it_violates_and_by_which_finding(
    registry: Registry,
) -> None:
    found = rows(registry, REPAIRED, NEWER)
    assert [name for name, row in found.items() if row.module != AUDIT] == ["NoDebt", "NotAboveLimit"]
    cells = found["NotAboveLimit"].cells
    assert list(cells) == ["Kafka 2.0", "Kafka 1.0", "repaired"]
    assert cells["Kafka 2.0"].words == "violated: lowest-sequence"
    assert cells["Kafka 2.0"].rules == ("AddError",)
    assert cells["repaired"].words == "holds"
    assert cells["Kafka 1.0"].outcome is Outcome.OPEN
    assert found["NotAboveLimit"].to_json()["columns"]["Kafka 2.0"]["findings"] == ["lowest-sequence"]


@pytest.mark.parametrize(("shared", "words"), [((True, True), "holds, by the same rules"), ((True, False), "holds")])
def test_a_property_holds_by_the_same_rules_only_if_all_of_its_models_have_them(
    shared: tuple[bool, ...], words: str
) -> None:
    cells = [Cell(outcome=Outcome.HOLDS, shared=each) for each in shared]
    assert _joined([*cells, Cell(outcome=Outcome.SILENT)]).words == words


@pytest.mark.parametrize(
    ("verdicts", "shipped", "repaired"),
    [
        ((), Outcome.OPEN, Outcome.OPEN),
        ((REPAIRED,), Outcome.OPEN, Outcome.HOLDS),
        ((replace(REPAIRED, ok=False), NEWER), Outcome.HOLDS, Outcome.DIFFERS),
        ((REPAIRED, replace(NEWER, ok=False)), Outcome.DIFFERS, Outcome.HOLDS),
        ((REPAIRED, replace(NEWER, figures={"NoDebt": "says nothing"})), Outcome.SILENT, Outcome.HOLDS),
        ((REPAIRED, replace(NEWER, figures={})), Outcome.OPEN, Outcome.HOLDS),
    ],
)
def test_a_cell_has_no_outcome_that_no_verdict_has(
    registry: Registry, verdicts: tuple[Verdict, ...], shipped: Outcome, repaired: Outcome
) -> None:
    cells = rows(registry, *verdicts)["NoDebt"].cells
    assert cells["Kafka 2.0"].outcome is shipped
    assert cells["repaired"].outcome is repaired


def test_a_property_whose_rules_are_those_of_the_release_has_the_repaired_verdict(registry: Registry) -> None:
    own = replace(registry.models["Counter"], overrides={"AddError": "NoLimit"}, silent=())
    registry.models["Counter"] = own
    cell = rows(registry, REPAIRED)["NoDebt"].cells["Kafka 2.0"]
    assert cell.words == "holds, by the same rules; not reached: lowest-sequence"


def test_a_model_that_is_not_of_a_release_says_so(registry: Registry) -> None:
    model = registry.models["Counter"]
    registry.models["Counter"] = replace(model, constants={**model.constants, "Limit": "9"})
    assert rows(registry, REPAIRED, NEWER)["NoDebt"].cells["Kafka 1.0"].words == "not of this release"


def test_a_known_failure_that_shows_a_finding_is_named_after_it(registry: Registry) -> None:
    name = next(model for finding in read_findings() for model in finding.models)
    breaks = Expectation(violates="NoDebt")
    registry.models[name] = replace(registry.models["Counter"], name=name, invariants=("NoDebt",), expect=breaks)
    finding = next(each.id for each in read_findings() if name in each.models)
    assert rows(registry, REPAIRED, NEWER)["NoDebt"].cells["repaired"].words == f"holds, except {finding}"
    registry.models["Other"] = replace(registry.models[name], name="Other")
    words = rows(registry, REPAIRED, NEWER)["NoDebt"].cells["repaired"].words
    assert words == f"holds, except {finding}, in 1 known failure"


def test_a_finding_that_no_step_of_the_models_can_come_upon_is_not_reached() -> None:
    found = {f"{row.module}!{row.name}": row.cells for row in properties([], Registry(), Releases())}
    # BrokerConsumers has no static members
    assert "; not reached: " in found["Broker!OnlyOwnersCommit"]["Kafka 4.3"].expected
    # ElectLeader is among the steps that are never taken in the two models of the readers
    assert found["Consumer!ReadersAgree"]["Kafka 4.3"].expected.endswith(
        "; not reached: aborted-records-delivered, marker-not-replicated"
    )
    assert "not reached" not in found["Consumer!ReadersAgree"]["repaired"].expected
    # one of the models of NoSkip has static members, although the others have none
    assert "not reached" not in found["ConsumeTransformProduce!NoSkip"]["Kafka 4.3"].expected
    assert "not reached" in found["ConsumeTransformProduce!OwnerIsHeard"]["Kafka 4.3"].expected


def test_a_cell_that_is_not_checked_says_what_the_registry_expects(registry: Registry) -> None:
    cells = rows(registry)["NotAboveLimit"].cells
    assert cells["Kafka 2.0"].words == "not checked, expected: violated: lowest-sequence"
    assert cells["repaired"].words == "not checked, expected: holds"
    assert rows(registry, REPAIRED, NEWER)["NotAboveLimit"].cells["Kafka 2.0"].expected == ""


def test_a_rule_of_the_audit_that_is_not_checked_says_so_and_expects_nothing(registry: Registry) -> None:
    cells = next(row.cells for row in rows(registry).values() if row.module == AUDIT)
    assert {cell.words for cell in cells.values()} == {"not checked"}


def test_a_known_failure_of_a_property_that_holds_elsewhere_is_counted_but_no_mutant_is(registry: Registry) -> None:
    breaks = Expectation(violates="NoDebt")
    registry.models["NoLimitAtAll"] = replace(
        registry.models["Counter"], name="NoLimitAtAll", invariants=("NoDebt",), expect=breaks
    )
    registry.models["Changed"] = replace(registry.models["NoLimitAtAll"], name="Changed", overrides={"A": "B"})
    cells = rows(registry, REPAIRED, NEWER)["NoDebt"].cells
    assert cells["Kafka 2.0"].failures == ("NoLimitAtAll",)
    assert cells["repaired"].words == "holds, except in 1 known failure"
    assert cells["repaired"].to_json()["failures"] == ["NoLimitAtAll"]


def test_a_model_in_which_a_property_has_to_break_says_nothing_of_its_other_properties(registry: Registry) -> None:
    """TLC ends at the violation."""
    breaks = replace(registry.models["Counter"], name="Breaks", expect=Expectation(violates="NoDebt"))
    registry.models["Breaks"] = replace(breaks, invariants=("NoDebt", "NotAboveLimit"))
    found = Verdict(check="model", name="Breaks", expected="violates NoDebt", found="violates NoDebt", ok=True)
    cells = rows(registry, NEWER, found)["NotAboveLimit"].cells
    assert cells["repaired"].outcome is Outcome.OPEN
    assert cells["repaired"].models == ("Counter",)


def test_a_model_of_the_deep_tier_that_nobody_has_run_is_named_as_not_judged(
    registry: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = replace(registry.models["Counter"], name="Deep", tier="deep", invariants=("NoDebt",), shipped={})
    registry.models["Deep"] = deep
    cells = rows(registry, REPAIRED, NEWER)["NoDebt"].cells
    assert [(cell.outcome, cell.unjudged) for cell in cells.values()] == [
        (Outcome.HOLDS, ("Deep",)),
        (Outcome.OPEN, ("Deep",)),
        (Outcome.HOLDS, ("Deep",)),
    ]
    monkeypatch.setattr(properties_command, "Registry", lambda: registry)
    monkeypatch.setattr(properties_command, "Releases", lambda: Releases(registry.folder.parent))
    write_verdicts(tmp_path / "v.json", [REPAIRED, NEWER])
    main(["ledger", "properties", "Counter", "--verdicts", str(tmp_path / "v.json")])
    assert "repaired: 2 holds; not run here: Deep (check models --tier deep)" in capsys.readouterr().out


def test_a_property_that_only_the_deep_tier_checks_is_not_judged(registry: Registry) -> None:
    registry.models["Deep"] = replace(registry.models["Counter"], name="Deep", tier="deep", invariants=("OneMore",))
    found = rows(registry, REPAIRED, NEWER)["OneMore"].cells
    assert {cell.outcome for cell in found.values()} == {Outcome.UNJUDGED}


def audited(name: str, **figures: str) -> Verdict:
    check = "replay" if figures else "audit-release"
    return Verdict(check=check, name=name, expected="", found="", ok=True, figures=dict(figures))


def test_a_rule_of_the_audit_has_what_it_found_in_simulations_and_in_recordings_of_the_release(
    registry: Registry,
) -> None:
    simulated = [audited(f"gap, {column}") for column in ("Kafka 2.0", "Kafka 1.0", "repaired")]
    cells = rows(registry, *simulated)["gap"].cells
    assert [cell.words for cell in cells.values()] == ["holds", "holds", "holds"]
    shown = audited("crash: gap", Kafka="2.0.1", findings="lowest-sequence")
    cells = rows(registry, *simulated, shown, audited("other: gap", Kafka="1.0.3"))["gap"].cells
    assert [cell.words for cell in cells.values()] == ["violated: lowest-sequence", "holds", "holds"]
    assert cells["Kafka 1.0"].models == ("gap, Kafka 1.0", "other: gap")
    differing = rows(registry, *simulated, replace(shown, ok=False))["gap"].cells
    assert differing["Kafka 2.0"].outcome is Outcome.DIFFERS
    later = audited("crash: gap", Kafka="2.1.1", findings="lowest-sequence")
    assert rows(registry, *simulated, later)["gap"].cells["Kafka 2.0"].words == "holds"
    table = registry.folder.parent / "releases.toml"
    text = '[release."2.1"]\ntitle = "one with the same rules"\ninherits = "2.0"\n\n'
    table.write_text(text + table.read_text(encoding="utf-8"), encoding="utf-8")
    cells = rows(registry, *simulated, later)["gap"].cells
    assert (cells["Kafka 2.1"].words, cells["Kafka 2.0"].words) == ("violated: lowest-sequence", "holds")
    assert rows(registry)["gap"].cells["repaired"].outcome is Outcome.OPEN


@pytest.mark.parametrize(
    ("unjudged", "outcome"),
    [(("gap", "crash"), Outcome.SILENT), (("gap",), Outcome.HOLDS), (("crash",), Outcome.HOLDS)],
)
def test_a_rule_that_has_judged_nothing_of_a_release_does_not_hold_there(
    unjudged: tuple[str, ...], outcome: Outcome, registry: Registry
) -> None:
    verdicts = {"gap": audited("gap, Kafka 2.0"), "crash": audited("crash: gap", Kafka="2.0.1")}
    given = (
        replace(verdict, unjudged="there are no sequences to look at") if name in unjudged else verdict
        for name, verdict in verdicts.items()
    )
    assert rows(registry, *given)["gap"].cells["Kafka 2.0"].outcome is outcome


def test_the_command_shows_the_named_properties_and_what_to_check_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = Verdict(check="model", name="PartitionLogTwoProducers", expected="holds", found="holds", ok=True)
    write_verdicts(tmp_path / "models.json", [verdict])
    call = ["ledger", "properties", "--verdicts", str(tmp_path / "models.json")]
    assert main([*call[:2], "PartitionLog!OffsetsAreDense", *call[2:]]) == 1
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if "!" in line and "!OffsetsAreDense" not in line] == []
    assert "PartitionLog!OffsetsAreDense: " in told
    assert "next, for the cells that are not checked (the named models only):" in told
    assert "  kafka-eos check models PartitionLog " in told
    released, repaired = (
        re.findall(rf"^  (kafka-eos check models .*{name}.json)", told, re.MULTILINE) for name in ("4.3", "repaired")
    )
    assert released[0].endswith(" --kafka 4.3 --json build/verdicts/PartitionLog-OffsetsAreDense-4.3.json")
    assert "--kafka" not in repaired[0]
    assert "--only recordings" not in told
    assert main([*call[:2], "PartitionLog", "Xyz", *call[2:]]) == 2
    assert "no module, property or finding Xyz; modules are ApplicationLoop" in capsys.readouterr().err
    assert main([*call[:2], "ReadersAgre", *call[2:]]) == 2
    assert "no module, property or finding ReadersAgre; similar names: ReadersAgree" in capsys.readouterr().err


def test_a_registry_that_cannot_be_read_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> Registry:
        raise MalformedRegistry("PartitionLog.toml: no TOML")

    monkeypatch.setattr(properties_command, "Registry", broken)
    assert main(["ledger", "properties"]) == 2
    assert "kafka-eos ledger properties: PartitionLog.toml: no TOML" in capsys.readouterr().err


def test_the_rules_of_the_audit_are_left_out_where_only_models_were_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_verdicts(tmp_path / "models.json", [])
    call = ["ledger", "properties", "--verdicts", str(tmp_path / "models.json")]
    counts = []
    for more in ([], ["--models"]):
        assert main([*call, *more]) == 1, "nothing is checked"
        told = [line for line in capsys.readouterr().out.splitlines() if "!" in line]
        counts.append(
            (sum(line.startswith("audit!") for line in told), sum(not line.startswith("audit!") for line in told))
        )
    assert counts[0][0] > 30
    assert counts[1] == (0, counts[0][1])


def test_the_command_shows_the_properties_that_a_finding_is_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = Verdict(check="model", name="LateEndTearsTransaction", expected="", found="", ok=True)
    write_verdicts(tmp_path / "models.json", [verdict])
    assert main(["ledger", "properties", "late-end-of-transaction", "--verdicts", str(tmp_path / "models.json")]) == 1
    told = capsys.readouterr().out
    assert "Transactions!AllOrNone" in told
    assert "breaks in LateEndTearsTransaction: version 1: " in told
    assert "(finding late-end-of-transaction)" in told
    assert "NoGap" not in told


def test_a_finding_whose_properties_no_verdict_shows_is_told_with_the_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_verdicts(tmp_path / "none.json", [])
    given = ["--verdicts", str(tmp_path / "none.json")]
    assert main(["ledger", "properties", "static-leave", *given]) == 2
    told = capsys.readouterr().err
    assert "no verdict here shows a property that finding static-leave is about; check them first: " in told
    assert "kafka-eos check models --kafka 4.4 --kafka 4.3 --kafka 3.9 --json build/verdicts/releases.json" in told
    assert main(["ledger", "properties", "static-leav", *given]) == 2
    assert "no module, property or finding static-leav; similar names: static-leave" in capsys.readouterr().err


def test_before_anything_is_checked_what_is_expected_to_hold_comes_first() -> None:
    rows = [row for row in properties([], Registry(), Releases()) if row.module != "audit"]
    violated = [row.cells["Kafka 4.4"].expected.startswith("violated") for row in rows]
    assert violated == sorted(violated)
    assert len(set(violated)) > 1


def test_the_command_names_the_smallest_model_that_shows_how_a_release_violates_a_property(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_verdicts(tmp_path / "models.json", [])
    call = ["ledger", "properties", "NoHangingTransaction", "--verdicts", str(tmp_path / "models.json")]
    assert main(call) == 1
    told = [line.strip() for line in capsys.readouterr().out.splitlines() if "--tell" in line]
    newest, line = told
    models = [
        model for model in Registry().models.values() if model.module == "Transactions" and "4.3" in model.shipped
    ]
    breaking = [model for model in models if "NoHangingTransaction" in model.shipped["4.3"].violates]
    smallest = min(breaking, key=lambda model: model.shipped["4.3"].states or 0)
    assert len(breaking) > 1
    assert [line for line in told if "NoHangingTransaction" not in line] == []
    shown = f"kafka-eos check models {smallest.name} --kafka 4.3 --tell NoHangingTransaction"
    assert line == f"{shown} shows how Kafka 4.3 violates it"
    assert newest == line.replace("4.3", "4.4"), "which inherits the rules"
    assert main([*call[:2], "StateFollowsLog", *call[3:]]) == 1, "three modules have a property of this name"
    lines = re.findall(r"check models (\w+) --kafka 4.3 --tell StateFollowsLog", capsys.readouterr().out)
    registry = Registry()
    modules = [registry.get(name).module for name in lines]
    assert sorted(modules) == ["IdempotentProducer", "PartitionLog", "PartitionLogInduction"]


def test_the_command_says_nothing_of_findings_that_are_out_of_reach_where_there_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_verdicts(tmp_path / "models.json", [])
    assert main(["ledger", "properties", "OffsetsAreDense", "--verdicts", str(tmp_path / "models.json")]) == 1
    assert "no step of its models" not in capsys.readouterr().out


def test_the_readme_tells_what_holds_of_kafka_as_it_ships_as_the_models_have_it() -> None:
    section = (CLONE / "README.md").read_text(encoding="utf-8").partition("## Of which Kafka")[2].partition("\n## ")[0]
    _, holds, violated, _, unmodelled = section.split("\n- ")
    named = set(re.findall(r"`(\w+)`", holds))
    found = [row for row in properties([], Registry(), Releases()) if row.name in named]
    expected = {
        row.name: [each.cells["Kafka 4.3"].expected for each in found if each.name == row.name] for row in found
    }
    assert expected.keys() == named
    assert len(named) >= 5
    excepted = re.findall(r"`(\w+-[\w-]+)`", holds)
    for name, words in expected.items():
        assert all(each.startswith("holds") for each in words), name
        assert any(each.partition("not reached: ")[2] in ("", *excepted) for each in words), name
    ids = set(re.findall(r"`([\w-]+)`", violated))
    assert ids
    models = {finding.id: finding.models for finding in read_findings()}
    assert ids | set(excepted) <= models.keys()
    left_out = re.findall(r"`(\w+-[\w-]+)`", unmodelled)
    assert [models[each] for each in left_out] == [()] * len(left_out) != []


def test_a_finding_that_no_rule_of_a_release_states_is_named_where_a_mutant_shows_it() -> None:
    rows = [row for row in properties([], Registry(), Releases()) if row.module == "TransactionalProducer"]
    told = {column: [row.cells[column].expected for row in rows] for column in ("Kafka 4.3", "Kafka 3.9", "repaired")}
    holding = [words for words in told["Kafka 4.3"] if words.startswith("holds")]
    assert len(holding) > 5
    assert all("client-abort-after-commit" in words for words in holding)
    assert not any("client-abort-after-commit" in words for words in told["Kafka 3.9"] + told["repaired"])
    modules = {place for place, ids in _unstated(Registry(), Releases()).items() if "client-abort-after-commit" in ids}
    assert modules == {(f"Kafka {release}", "TransactionalProducer") for release in ("4.4", "4.3")}


def test_a_property_that_says_nothing_in_a_model_is_not_expected_to_hold_there_by_a_releases_rules() -> None:
    registry, releases = Registry(), Releases()
    (column,) = columns([registry.get("TransactionsNoLeader")], ["4.3"], releases)
    assert "Fenced" in column.model.silent
    assert _shipped("Fenced", column, releases, None).outcome is Outcome.SILENT
    assert _shipped("CommittedIsWhole", column, releases, None).outcome is Outcome.HOLDS
