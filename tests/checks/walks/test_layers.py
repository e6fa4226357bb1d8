"""The larger constants of layers."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.walks import campaign, layers


def test_a_layer_of_transactions_has_room_for_faults_if_its_model_names_some() -> None:
    models = [layer.model for layer in campaign.all_layers() if layer.model.module == "Transactions"]
    assert {model.constants["Faults"] == "{}" for model in models} == {False, True}
    for model in models:
        most = int(model.constants["MaxFaults"])
        assert most == 0 if model.constants["Faults"] == "{}" else most > 1, model.name


def test_a_layer_of_which_a_release_leaves_no_property_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    before = {layer.model.module for layer in layers.layers_of_release(registry, "4.3")}
    assert "PartitionLog" in before
    everything = {"PartitionLog": frozenset(name for each in layers.layers(registry) for name in each.properties)}
    monkeypatch.setattr(layers, "violated_by_release", lambda *_: everything)
    after = {layer.model.module for layer in layers.layers_of_release(registry, "4.3")}
    assert "PartitionLog" not in after, "nothing would judge its runs"
    assert after


def test_a_violation_counts_for_another_release_only_if_that_has_all_of_its_rules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def column(violates: dict[str, str]) -> SimpleNamespace:
        expected = SimpleNamespace(violates=violates)
        return SimpleNamespace(model=SimpleNamespace(module="M"), release="3.9", expected=lambda _: expected)

    def has_alike(module: str, cause: str, *releases: str) -> bool:
        return (module, cause, *releases) == ("M", "Common", "3.9", "4.3")

    every = [column({"Both": "Old, Common", "One": "Common"}), column({"Another": "Common"})]
    monkeypatch.setattr(layers, "columns", lambda *_: every)
    releases: Any = SimpleNamespace(releases=["3.9"], has_alike=has_alike)
    registry: Any = SimpleNamespace(models={})
    assert layers.violated_by_release(registry, releases, "4.3") == {"M": {"One", "Another"}}


def test_what_larger_constants_break_is_no_property_of_a_layer_whichever_of_its_models_has_the_same_constants() -> None:
    registry = Registry()
    found = {layer.name: layer for layer in layers.layers(registry)}
    for name, broken in layers.BEYOND:
        assert broken in {*registry.get(name).invariants, *registry.get(name).properties}
        assert broken not in found[name].properties
        assert found[name].properties
    alike = registry.get("ZombieUnverified")
    assert ("UnverifiedTwoPartitions", "AllOrNone") in layers.BEYOND
    assert alike.name not in found, "its layer is that of UnverifiedTwoPartitions"
    assert "AllOrNone" in alike.invariants
