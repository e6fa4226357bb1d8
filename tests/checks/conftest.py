"""The small spec that the tests of the tools for specs share, and its machine."""

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kafka_eos_checks import models
from kafka_eos_checks.models import Registry

SPECS = Path(__file__).parent / "specs"


@pytest.fixture(scope="session")
def counter() -> ModuleType:
    """The module of the machine, importable as ``counter``, as the registry of the tests names it."""
    if "counter" not in sys.modules:
        spec = importlib.util.spec_from_file_location("counter", SPECS / "counter.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["counter"] = module
        spec.loader.exec_module(module)
    return sys.modules["counter"]


@pytest.fixture
def registry(counter: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of its own for each test, which writes its models below the test's own folder."""
    monkeypatch.setattr(models, "build_folder", lambda: tmp_path / "build")
    return Registry(Path(shutil.copytree(SPECS, tmp_path / "specs")) / "models.toml")
