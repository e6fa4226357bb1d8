"""What the verdict of a means on a mutant depends on, as a hash: verdicts are kept as long as that stays the same."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

import kafka_eos
from kafka_eos_checks.models import Model, ModuleFolder, Registry, extended_modules
from kafka_eos_checks.paths import build_folder

# Sources of the checks that a means depends on, beside the specs, the reference and the mutants in Python.
_WALKS = (
    "broken",
    "corpus",
    "fairness",
    "formulas",
    "layers",
    "properties",
    "shrink",
    "tla_syntax",
    "tla_values",
    "walk",
)
SOURCES: Mapping[str, tuple[str, ...]] = {
    "TLC": ("model_check.py", "tlc.py"),
    "graph": ("conformance.py", "graph.py"),
    "replay": ("replay/*.py", "simulate/*.py", "mutant_matrix.py"),
    "simulation": tuple(f"soak/{name}.py" for name in _WALKS),
    "proof": ("proofs/*.py",),
}


def kept_folder() -> Path:
    """Where verdicts are kept."""
    return build_folder() / "mutants"


@cache
def sources_of(means: str) -> str:
    """A hash of the sources that a means depends on."""
    checks = Path(__file__).parent
    found = [*Path(str(kafka_eos.__file__)).parent.rglob("*.py"), checks / "mutants.py", checks / "bounds.py"]
    found += [path for pattern in SOURCES[means] for path in checks.glob(pattern)]
    digest = hashlib.sha256()
    for path in sorted(found):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def key_of(means: str, registry: Registry, mutant: Model, *more: object) -> str:
    """A hash of all that the verdict of a means on a mutant depends on.

    Args:
        means: which one.
        registry: where the mutant stands.
        mutant: the mutant, or a model that must fail.
        more: what it depends on beside.
    """
    modules = ModuleFolder(mutant.spec)
    own = asdict(mutant)
    about = [own[name] for name in sorted(own) if name not in {"spec", "source", "title", "claims"}]
    base = registry.get(mutant.model) if mutant.model else mutant
    texts = [means, sources_of(means), repr(about), repr((base.invariants, base.properties, base.graph, more))]
    texts += [modules.text(name) for name in sorted(modules.closure(extended_modules(mutant)))]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
