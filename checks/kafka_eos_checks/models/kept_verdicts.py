"""Kept verdicts on mutants: a verdict is kept as long as a hash of everything that it depends on stays the same."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.kit.verdict import NOT_FOUND, Verdict, verdict_from_json
from kafka_eos_checks.models.registry import Model, Registry, read_modules
from kafka_eos_checks.tla.result_cache import ResultCache, fingerprint, python_fingerprint, spec_fingerprint

# The modules that find the verdicts of each means; the bounds and the mutant's machine are imported by name.
_BOUNDS = "kafka_eos_checks.models.bounds"
MODULES: Mapping[str, tuple[str, ...]] = {
    "TLC": ("kafka_eos_checks.graphs.model_check",),
    "graph": ("kafka_eos_checks.graphs.command", _BOUNDS),
    "replay": ("kafka_eos_checks.matrix.mutant_replays",),
    "simulation": ("kafka_eos_checks.walks.broken", _BOUNDS),
    "proof": ("kafka_eos_checks.proofs.command",),
    "contract": ("kafka_eos_checks.matrix.mutant_contracts",),
    "requests": ("kafka_eos_checks.matrix.mutant_requests",),
}
# What a means judges by besides a mutant's own modules: requests are those of Broker, with the rules of releases.toml.
SPECS: Mapping[str, tuple[str, ...]] = {"requests": ("Broker",)}
DATA: Mapping[str, tuple[str, ...]] = {"requests": ("releases.toml",)}


def modules_of(means: str, machine: str) -> tuple[str, ...]:
    """The Python modules that a means depends on; their imports count too.

    Args:
        means: the name of the means.
        machine: the module of the mutant's machine.
    """
    return (*MODULES[means], machine)


def key_of(means: str, registry: Registry, mutant: Model) -> str:
    """The fingerprint of everything that the verdict of a means on a mutant depends on.

    Args:
        means: the name of the means.
        registry: the registry that has the mutant.
        mutant: the mutant, or a model that must fail.

    Raises:
        MalformedRegistry: the reference has no machine for it.
    """
    own = asdict(mutant)
    about = [own[name] for name in sorted(own) if name not in {"spec", "file", "source", "title", "claims"}]
    base = registry.get(mutant.model) if mutant.model else mutant
    given = (base.constants, base.overrides, base.bounds, base.invariants, base.properties, base.graph)
    python = python_fingerprint(modules_of(means, mutant.machine_class().__module__))
    data = [(mutant.spec / name).read_bytes() for name in DATA.get(means, ())]
    specs = spec_fingerprint(mutant.spec, {*read_modules(mutant), *SPECS.get(means, ())})
    return fingerprint(means, python, about, given, specs, *data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The kept verdicts of a means.

    Attributes:
        means: the name of the means.
        registry: the registry that has the mutants.
        cache: the folder in which verdicts are kept.
        limit: seconds of CPU after which walks give up on a mutant; with another limit they may find it.
    """

    means: str
    registry: Registry
    cache: ResultCache
    limit: float

    def verdicts(
        self, mutants: Sequence[Model], find: Callable[[Sequence[Model]], Iterable[Verdict]]
    ) -> Iterator[Verdict]:
        """The kept verdicts, then those found now. A verdict that is not as expected is not kept.

        Args:
            mutants: the mutants.
            find: a function that finds the verdicts on those without a kept one.
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
        return None if found is None else verdict_from_json(dict(found))

    def _put(self, key: str, verdict: Verdict) -> None:
        own = self._within_limit(key) if verdict.found == NOT_FOUND else key
        self.cache.put(own, verdict.to_json())

    def _within_limit(self, key: str) -> str:
        return f"{key}-{self.limit:g}"
