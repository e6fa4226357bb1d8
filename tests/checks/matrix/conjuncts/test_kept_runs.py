"""Runs of TLC over changed specs: which results are kept, and what an unchanged model has to do."""

from pathlib import Path

import pytest

from kafka_eos_checks.matrix.conjuncts.search import Search, UnusableMutant
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.result_cache import ResultCache


def test_a_run_is_kept_unless_it_was_ended(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = iter(["times out", "holds"])
    monkeypatch.setattr(tlc, "run", lambda _: tlc.Result(verdict=next(verdicts), distinct=20))
    cache, model = ResultCache(tmp_path / "cache"), registry.get("Counter")
    found = [Search(cache=cache).reference(model) for _ in range(3)]
    assert [run.verdict for run in found] == ["times out", "holds", "holds"]


@pytest.mark.parametrize("verdict", ["violates NotAboveLimit", "deadlocks", "error"])
def test_nothing_is_changed_in_a_model_that_does_not_hold_itself(
    verdict: str, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tlc, "run", lambda _: tlc.Result(verdict=verdict, error="it is broken"))
    with pytest.raises(UnusableMutant, match=f"Counter itself {verdict}: it is broken"):
        Search(cache=ResultCache(tmp_path / "cache")).reference(registry.get("Counter"))
