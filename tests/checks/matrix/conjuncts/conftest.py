"""The small spec that the tests of the tools for specs share, with guards of every fate planted in it."""

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
    + "    /\\ total = Limit \\/ response = response\n"  # each of the two alone is enough
    + "    /\\ log # <<>> /\\ Head(log).amount > 0\n"  # without the first the second has no value
)


@pytest.fixture
def registry(counter: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of the counter, with the planted guards, in a folder of the test's own."""
    monkeypatch.setattr(models, "build_folder", lambda: tmp_path / "build")
    specs = Path(shutil.copytree(SPECS, tmp_path / "specs"))
    module = specs / "Counter.tla"
    text = module.read_text(encoding="utf-8")
    assert RESET in text
    module.write_text(text.replace(RESET, PLANTED), encoding="utf-8")
    return Registry(specs / "models")
