"""The small spec and its machine, for tests of the tools for specs; the wheel of this clone, Spark, and a browser."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kafka_eos.machines import explorer
from kafka_eos.machines import machine as machines
from kafka_eos_checks.audit.engines.spark import session
from kafka_eos_checks.graphs.state_graph import StateGraph
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.models import registry as models
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.tla.values import canonical

SPECS = Path(__file__).parent / "specs"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


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
    return Registry(Path(shutil.copytree(SPECS, tmp_path / "specs")) / "models")


@pytest.fixture
def graph(registry: Registry, counter: ModuleType) -> StateGraph:
    """The graph of Counter as the machine has it: TLC's, says a test of graphs that starts TLC."""
    model, within = registry.get("Counter"), partial(counter.within_bounds, max_log=2)
    constants = model.machine_constants()
    instances = machines.instances(counter.Counter, constants)
    found = explorer.explore(counter.Counter.initial(constants), instances, within, keep_outside=True)
    edges = sorted(zip(found.sources, found.labels, found.targets, strict=True))
    sources, labels, targets = np.array(edges, dtype=np.int64).T
    return StateGraph(
        model=model.name,
        variables=counter.Counter.VARIABLES,
        instances=instances,
        states=[tuple(canonical(value) for value in machines.dump(state).values()) for state in found.states],
        initial=[0],
        inside=np.array([within(state) for state in found.states]),
        sources=sources,
        labels=labels,
        targets=targets,
        seconds=0.0,
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this clone."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ("wheel", "-q", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-w", str(folder))
    subprocess.run([sys.executable, "-m", "pip", *build, str(CLONE)], check=True, timeout=300)
    [made] = folder.glob("kafka_eos-*.whl")
    return made


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One local session for all tests."""
    pytest.importorskip("pyspark.sql")
    with session() as made:
        yield made


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, driven by Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `book`: make book")
    named = [os.environ.get("CHROMIUM", ""), *(shutil.which(name) or "" for name in CHROMIUMS)]
    found = next(filter(None, named), None)
    if found is None:
        pytest.skip("needs a Chromium: set CHROMIUM to its path")
    with playwright.sync_playwright() as session:
        started = session.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()
