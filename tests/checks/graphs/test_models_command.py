import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.cli.command import main
from kafka_eos_checks.graphs import models_command
from kafka_eos_checks.graphs.model_check import Outcome, judge, to_verdict
from kafka_eos_checks.graphs.models_command import shown
from kafka_eos_checks.models.registry import Expectation, Registry
from kafka_eos_checks.tla.behaviour import Step
from kafka_eos_checks.tla.tlc import Result


def failing(registry: Registry, name: str, *, ok: bool = True) -> Outcome:
    """A model whose counterexample has one step."""
    behaviour = (Step("Init", {"total": 0}), Step("Reset", {"total": 1}))
    model = replace(registry.get("NoLimit"), name=name, module="PartitionLog")
    result = Result(verdict="violates NotAboveLimit", behaviour=behaviour)
    return Outcome(model=model, result=result, found=result.verdict, problems=() if ok else ("it differs",))


def printed(outcomes: list[Outcome], *, named: bool) -> str:
    return "\n".join(shown(outcomes, [to_verdict(outcome) for outcome in outcomes], named=named))


def test_a_model_that_is_named_is_told_with_the_path_of_its_diagram(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models_command, "build_folder", lambda: tmp_path / "build")
    monkeypatch.chdir(tmp_path)
    text = printed([failing(registry, "One")], named=True)
    assert "   1  Reset\n        total: 0 -> 1\n" in text
    assert text.endswith("Diagram of One: build/models/One/counterexample.svg")
    assert ">Reset<" in (tmp_path / "build" / "models" / "One" / "counterexample.svg").read_text(encoding="utf-8")


def test_counterexamples_of_a_tier_or_of_many_models_are_only_named(registry: Registry) -> None:
    many = [failing(registry, name) for name in ("One", "Two", "Three", "Four")]
    wanted = "4 counterexamples are as expected and not shown; `kafka-eos check models One` tells one as a story"
    assert printed(many, named=True) == wanted
    assert printed(many[:1], named=False).startswith("1 counterexample is as expected and not shown")


def test_an_unexpected_counterexample_of_a_tier_has_its_diagram_and_is_told_with_its_verdict(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models_command, "build_folder", lambda: tmp_path)
    outcomes = [failing(registry, "One"), failing(registry, "Two", ok=False)]
    text = printed(outcomes, named=False)
    assert f"Diagram of Two: {tmp_path}/models/Two/counterexample.svg" in text
    assert "Diagram of One" not in text
    assert "   1  Reset" not in text  # print_verdicts prints the evidence of differing verdicts
    assert "   1  Reset" in to_verdict(outcomes[1]).evidence


def test_a_path_is_printed_on_one_line(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a folder" / ("deep " * 30)
    monkeypatch.setattr(models_command, "build_folder", lambda: folder)
    monkeypatch.setattr(models_command, "Registry", lambda: registry)
    monkeypatch.setattr(models_command, "check_models", lambda *_, **__: iter([failing(registry, "NoLimit")]))
    parser = argparse.ArgumentParser()
    models_command.add_parser(parser.add_subparsers(), "help")
    assert models_command.run(parser.parse_args(["models", "NoLimit"])) == 0
    assert f"Diagram of NoLimit: {folder}/models/NoLimit/counterexample.svg\n" in capsys.readouterr().out


def test_the_list_says_of_each_entry_its_tier_and_what_is_expected(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.models["Counter"] = replace(registry.get("Counter"), expect=Expectation(states=1234))
    monkeypatch.setattr(models_command, "Registry", lambda: registry)
    parser = argparse.ArgumentParser()
    models_command.add_parser(parser.add_subparsers(), "help")
    assert models_command.run(parser.parse_args(["models", "Counter", "NoLimit", "--list"])) == 0
    _, first, second = (
        line.split() for line in capsys.readouterr().out.splitlines() if "─" not in line and "━" not in line
    )
    assert first[:5] == ["model", "Counter", "small", "holds", "1,234"]
    assert second[:5] == ["mutant", "NoLimit", "small", "violates", "NotAboveLimit"]
    assert parser.parse_args(["models"]).workers == 1


@pytest.mark.parametrize(("reached", "code"), [(True, 0), (False, 1)])
def test_an_update_settles_the_numbers_of_a_model_and_nothing_else(
    reached: bool, code: int, registry: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = replace(registry.get("Counter"), invariants=(), properties=())
    prints = tuple(f'"probe reached: {probe}"' for probe in model.probes if reached)
    outcome = judge(model, Result(verdict="holds", distinct=7, generated=9, depth=3, prints=prints))
    monkeypatch.setattr(models_command, "Registry", lambda: registry)
    monkeypatch.setattr(models_command, "check_models", lambda *_, **__: iter([outcome]))
    parser = argparse.ArgumentParser()
    models_command.add_parser(parser.add_subparsers(), "help")
    assert models_command.run(parser.parse_args(["models", "Counter", "--update"])) == code
    assert Registry(registry.folder).get("Counter").expect == Expectation(states=7, generated=9, depth=3)
    assert "the registry says" not in capsys.readouterr().out


def test_an_update_needs_a_clone_and_leaves_the_registry_of_an_installed_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_eos_checks.kit.missing.is_clone", lambda: False)
    assert main(["check", "models", "PartitionLog", "--update"]) == 2
    assert (
        "this needs a registry that may be written, which only a clone of the repository has" in capsys.readouterr().err
    )


def test_an_update_leaves_the_numbers_of_a_model_that_is_violated(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = registry.get("Counter")
    outcome = judge(model, Result(verdict="violates NotAboveLimit", distinct=7, generated=9, depth=3))
    monkeypatch.setattr(models_command, "Registry", lambda: registry)
    monkeypatch.setattr(models_command, "check_models", lambda *_, **__: iter([outcome]))
    parser = argparse.ArgumentParser()
    models_command.add_parser(parser.add_subparsers(), "help")
    assert models_command.run(parser.parse_args(["models", "Counter", "--update"])) == 1
    assert Registry(registry.folder).get("Counter").expect == model.expect


@pytest.mark.tlc
def test_the_command_writes_its_numbers_and_then_agrees_with_them(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(models_command, "Registry", lambda: Registry(registry.folder))
    parser = argparse.ArgumentParser()
    models_command.add_parser(parser.add_subparsers(), "help")
    assert models_command.run(parser.parse_args(["models", "Counter", "--update"])) == 0
    json_file = tmp_path / "verdicts.json"
    assert models_command.run(parser.parse_args(["models", "Counter", "--json", str(json_file)])) == 0
    (verdict,) = json.loads(json_file.read_text(encoding="utf-8"))
    assert verdict["ok"]
    assert verdict["claims"] == ["C99"]
    assert verdict["figures"]["states"] == Registry(registry.folder).get("Counter").expect.states
    assert models_command.run(parser.parse_args(["models", "None"])) == 2
    assert "no entry 'None'; there are 3, such as Counter" in capsys.readouterr().err
