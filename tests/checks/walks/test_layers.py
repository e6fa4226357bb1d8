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
