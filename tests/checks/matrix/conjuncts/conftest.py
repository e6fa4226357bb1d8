"""The small spec that the tests of the spec tools share, with a planted guard for every outcome."""

import shutil
from pathlib import Path
from types import ModuleType

import pytest

from kafka_eos_checks.models import registry as models
from kafka_eos_checks.models.registry import Registry

SPECS = Path(__file__).parents[2] / "specs"

RESET = "    /\\ total = Limit\n"
PLANTED = (
    RESET
    + "    /\\ total >= 0\n"  # follows from the line before
    + "    /\\ total = Limit \\/ response = response\n"  # either of the two is enough
    + "    /\\ log # <<>> /\\ Head(log).amount > 0\n"  # without the first the second has no value
)


@pytest.fixture
def registry(counter: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of the counter with the planted guards, in the test's own folder."""
    monkeypatch.setattr(models, "build_folder", lambda: tmp_path / "build")
    specs = Path(shutil.copytree(SPECS, tmp_path / "specs"))
    module = specs / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    assert RESET in text
    module.write_text(text.replace(RESET, PLANTED), encoding="utf-8")
    return Registry(specs / "models")
