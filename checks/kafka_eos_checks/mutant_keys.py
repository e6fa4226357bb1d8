"""What the verdict of a means on a mutant depends on, as a hash: verdicts are kept as long as that stays the same."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from kafka_eos_checks.conjuncts.outcomes import Cache
from kafka_eos_checks.imports import needed
from kafka_eos_checks.models import Model, Registry, extended_modules
from kafka_eos_checks.paths import build_folder
from kafka_eos_checks.soak.broken import NOT_FOUND
from kafka_eos_checks.terminal import progress_console
from kafka_eos_checks.tla.modules import ModuleFolder
from kafka_eos_checks.verdict import Verdict, verdict_from_json

# The modules that find the verdicts of each means; the bounds and the mutant's machine are imported by name.
_BOUNDS = "kafka_eos_checks.bounds"
MODULES: Mapping[str, tuple[str, ...]] = {
    "TLC": ("kafka_eos_checks.model_check",),
    "graph": ("kafka_eos_checks.conformance", _BOUNDS),
    "replay": ("kafka_eos_checks.mutant_replays",),
    "simulation": ("kafka_eos_checks.soak.broken", _BOUNDS),
    "proof": ("kafka_eos_checks.proofs.command",),
    "contract": ("kafka_eos_checks.mutant_contracts",),
    "requests": ("kafka_eos_checks.mutant_requests",),
}


def kept_folder() -> Path:
    """Where verdicts are kept."""
    return build_folder() / "mutants"


def sources(means: str, machine: str) -> list[Path]:
    """The files of Python that a means depends on.

    Args:
        means: which one.
        machine: the module of the mutant's machine.
    """
    return needed([*MODULES[means], machine])


@cache
def sources_of(means: str, machine: str) -> str:
    """A hash of these files."""
    digest = hashlib.sha256()
    for path in sources(means, machine):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def key_of(means: str, registry: Registry, mutant: Model) -> str:
    """A hash of all that the verdict of a means on a mutant depends on.

    Args:
        means: which one.
        registry: where the mutant stands.
        mutant: the mutant, or a model that must fail.

    Raises:
        MalformedRegistry: when the reference has no machine for it.
    """
    modules = ModuleFolder(mutant.spec)
    own = asdict(mutant)
    about = [own[name] for name in sorted(own) if name not in {"spec", "source", "title", "claims"}]
    base = registry.get(mutant.model) if mutant.model else mutant
    given = (base.constants, base.overrides, base.bounds, base.invariants, base.properties, base.graph)
    texts = [means, sources_of(means, mutant.machine_class().__module__), repr(about), repr(given)]
    texts += [modules.text(name) for name in sorted(modules.closure(extended_modules(mutant)))]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The verdicts of a means that are kept.

    Attributes:
        means: which one.
        registry: where the mutants stand.
        cache: what they are kept in.
        limit: seconds of CPU after which walks have not found a mutant: with another limit they may.
    """

    means: str
    registry: Registry
    cache: Cache
    limit: float

    def verdicts(
        self, mutants: Sequence[Model], find: Callable[[Sequence[Model]], Iterable[Verdict]]
    ) -> Iterator[Verdict]:
        """The verdicts that are kept, then those that are found now; one that is not as expected is not kept.

        Args:
            mutants: on which.
            find: the verdicts on those of them of which none is kept.
        """
        keys = {mutant.name: key_of(self.means, self.registry, mutant) for mutant in mutants}
        known = {name: found for name, key in keys.items() if (found := self._get(key)) is not None}
        waiting = [mutant for mutant in mutants if mutant.name not in known]
        progress_console.print(f"mutants by {self.means}: {len(known)} known, {len(waiting)} to look at")
        yield from known.values()
        for verdict in find(waiting):
            if verdict.ok:
                self._put(keys[verdict.name], verdict)
            yield verdict

    def _get(self, key: str) -> Verdict | None:
        found = self.cache.get(key) or self.cache.get(self._within_limit(key))
        return None if found is None else verdict_from_json(json.loads(str(found["verdict"])))

    def _put(self, key: str, verdict: Verdict) -> None:
        own = self._within_limit(key) if verdict.found == NOT_FOUND else key
        self.cache.put(own, {"verdict": json.dumps(verdict.to_json())})

    def _within_limit(self, key: str) -> str:
        return f"{key}-{self.limit:g}"
