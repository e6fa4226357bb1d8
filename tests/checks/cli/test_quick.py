"""The selection of ``kafka-eos check``: part of each floor, chosen from the registry."""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_eos_checks.cli import quick, verify
from kafka_eos_checks.graphs import command as conformance
from kafka_eos_checks.graphs import release_check
from kafka_eos_checks.kit.recording import kept_recordings
from kafka_eos_checks.kit.verdict import Verdict, read_verdicts
from kafka_eos_checks.ledger import report
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.models.releases import Releases


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


def test_the_main_model_of_each_module_with_a_small_model_is_checked(registry: Registry) -> None:
    chosen = quick.main_models(registry.models.values())
    holding = {m.module for m in registry.models.values() if m.tier == "small" and not m.expect.violates}
    assert chosen.keys() == holding
    for module, model in chosen.items():
        assert (model.module, model.tier, model.expect.words) == (module, "small", "holds")
    assert chosen["PartitionLog"].name == "PartitionLog"


def test_the_graph_of_each_module_with_a_small_graph_is_compared(registry: Registry) -> None:
    compared = {module for module, m in quick.main_models(registry.models.values()).items() if m.graph == "small"}
    assert compared == {m.module for m in registry.models.values() if m.graph == "small"}


def test_one_mutant_of_each_module_with_a_small_mutant_is_checked(registry: Registry) -> None:
    chosen = quick.one_mutant_each(registry.mutants.values())
    assert chosen.keys() == {m.module for m in registry.mutants.values() if m.tier == "small"}
    assert all(mutant.kind == "mutant" and mutant.expect.violates for mutant in chosen.values())


def verdicts_of(check: str, found: str = "holds") -> Callable[..., Iterator[Verdict]]:
    def run(*_: object) -> Iterator[Verdict]:
        yield Verdict(check=check, name=f"of {check}", expected="holds", found=found, ok=found == "holds")

    return run


@pytest.mark.parametrize(("found", "code"), [("holds", 0), ("differs", 1)])
def test_the_verdicts_of_each_part_are_kept_next_to_those_of_the_whole_check(
    found: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checked: list[list[Model]] = []
    audited: list[Path] = []

    def tlc(models: list[Model]) -> Iterator[Verdict]:
        checked.append(models)
        yield from verdicts_of(models[0].kind)()

    def recordings(engine: str, archives: list[Path]) -> Iterator[Verdict]:
        assert engine == "local"
        audited.extend(archives)
        yield from verdicts_of("replay")()

    monkeypatch.setattr(verify, "checked", tlc)
    monkeypatch.setattr(verify, "recordings", recordings)
    monkeypatch.setattr(verify, "properties", verdicts_of("property-part"))
    monkeypatch.setattr(conformance, "check", verdicts_of("graph"))
    monkeypatch.setattr(verify, "proofs", verdicts_of("proof", found))
    for module in (verify, report.paths):
        monkeypatch.setattr(module, "build_folder", lambda: tmp_path)
    assert quick.run(argparse.Namespace(engine="local")) == code
    kept = {file.name: read_verdicts(file) for file in (tmp_path / "verdicts").iterdir()}
    parts = ("models", "mutants", "properties", "graphs", "proofs", "recordings")
    assert kept.keys() == {f"quick-{part}.json" for part in parts}
    assert [verdict.check for verdict in kept.pop("quick-models.json")] == ["witness", "model"]
    assert all(len(verdicts) == 1 for verdicts in kept.values())
    assert (tmp_path / "report.html").is_file()
    assert ("all as expected" in capsys.readouterr().out) is (code == 0)
    assert [each[0].kind for each in checked] == ["model", "mutant"]
    assert "LateEndIsNotAtomic" in [model.name for model in checked[0]]
    assert set(audited) < set(kept_recordings())


def test_the_whole_check_judges_every_small_model_by_the_rules_of_each_release(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []

    def judge(model: Model, *, timeout: float) -> release_check.Judged:
        judged.append(model.name)
        return release_check.Judged(seconds=0.0, problems=("not run",))

    monkeypatch.setattr(release_check, "judge_model", judge)
    verdicts = list(verify.releases(registry))
    small = [model for model in registry.models.values() if model.tier == "small"]
    releases = Releases()
    names = [
        {f"{model.name}, Kafka {releases.stated(model.module, release)}" for model in small}
        for release in releases.releases
    ]
    assert {verdict.name for verdict in verdicts} == set().union(*names)
    assert len(names) == len(set(map(frozenset, names))), "each release has models of its own"
    assert len(judged) > 20
    assert not any(verdict.ok for verdict in verdicts if not verdict.unjudged), "what a run says decides"
    assert sum(bool(verdict.unjudged) for verdict in verdicts) > 20
