"""Many runs: seeds dealt to the layers in turn, in worker processes, with what they covered and what went wrong.

A seed belongs to one layer: number ``seed % layers``. Chunks of seeds are the unit of work; what a chunk found is kept
in the folder, so that a campaign goes on where it was ended, as long as nothing that determines a run has changed.
Seeds that met something for the first time are kept as well, as a corpus.
"""

import hashlib
import json
import multiprocessing
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from time import process_time
from typing import Any

from kafka_eos_checks.imports import needed
from kafka_eos_checks.models import ModuleFolder, Registry
from kafka_eos_checks.soak.layers import Layer, layers
from kafka_eos_checks.soak.walk import Coverage, Run, Walker

SEEDS_PER_CHUNK = 260
SAMPLE = 40  # one run of so many is judged a second time, with every property evaluated at every step
_SEPARATOR = " | "


@dataclass(slots=True)
class Failure:
    """A run that went wrong."""

    layer: str
    seed: int
    how: str


@dataclass(slots=True)
class LayerTally:
    """What became of the runs of one layer.

    Attributes:
        runs, steps: how many.
        fair_steps: of the steps, how many after the faults had stopped.
        sampled: runs that were judged a second time.
        coverage: what they met.
    """

    runs: int = 0
    steps: int = 0
    fair_steps: int = 0
    sampled: int = 0
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(slots=True)
class Tally:
    """What became of a number of seeds.

    Attributes:
        layers: by name.
        failures: the runs that went wrong, or were judged differently the second time.
        news: (seed, layer, what it met first) in the order of the seeds.
        seconds: of CPU, in the runs; without what is compiled once and without the second judgements.
        setup: seconds of CPU in what is compiled once.
    """

    layers: dict[str, LayerTally] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    news: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    seconds: float = 0.0
    setup: float = 0.0

    @property
    def runs(self) -> int:
        """All of them."""
        return sum(layer.runs for layer in self.layers.values())

    @property
    def steps(self) -> int:
        """All of them."""
        return sum(layer.steps for layer in self.layers.values())

    @property
    def sampled(self) -> int:
        """Runs that were judged twice."""
        return sum(layer.sampled for layer in self.layers.values())

    def add(self, other: "Tally") -> None:
        """Count the other's too; of its news keep what is new here."""
        known = {(name, point) for name, layer in self.layers.items() for point in layer.coverage.points()}
        for seed, name, points in sorted(other.news):
            fresh = tuple(point for point in points if (name, point) not in known)
            known.update((name, point) for point in fresh)
            if fresh:
                self.news.append((seed, name, fresh))
        for name, layer in other.layers.items():
            mine = self.layers.setdefault(name, LayerTally())
            mine.runs += layer.runs
            mine.steps += layer.steps
            mine.fair_steps += layer.fair_steps
            mine.sampled += layer.sampled
            mine.coverage.add(layer.coverage)
        self.failures += other.failures
        self.seconds += other.seconds
        self.setup += other.setup


@cache
def all_layers() -> tuple[Layer, ...]:
    """The layers of the project's registry."""
    return tuple(layers(Registry()))


def layer_of(seed: int, among: Sequence[Layer] | None = None) -> Layer:
    """The layer that a seed walks."""
    chosen = among or all_layers()
    return chosen[seed % len(chosen)]


_WALKERS: dict[tuple[str, bool], Walker] = {}


def walker_of(layer: Layer, every_time: bool = False) -> Walker:
    """The walker of a layer, made once in a process."""
    key = (layer.name, every_time)
    if key not in _WALKERS:
        _WALKERS[key] = Walker(layer, every_time)
    return _WALKERS[key]


def run_seeds(seeds: Sequence[int], among: Sequence[Layer] | None = None, sample: int = SAMPLE) -> Tally:
    """Run seeds in this process."""
    tally = Tally()
    for seed in sorted(seeds, key=lambda seed: (layer_of(seed, among).name, seed)):
        layer = layer_of(seed, among)
        began = process_time()
        walker = walker_of(layer)
        ready = process_time()
        run = walker.run(seed)
        tally.setup += ready - began
        tally.seconds += process_time() - ready
        _count(tally, layer.name, run)
        if (seed // len(among or all_layers())) % sample == 0:
            _judge_again(tally, layer, run)
    return tally


def _count(tally: Tally, name: str, run: Run) -> None:
    layer = tally.layers.setdefault(name, LayerTally())
    fresh = tuple(sorted(run.coverage.points() - layer.coverage.points()))
    if fresh:
        tally.news.append((run.seed, name, fresh))
    layer.runs += 1
    layer.steps += run.steps
    layer.fair_steps += len(run.fair)
    layer.coverage.add(run.coverage)
    if run.wrong is not None:
        tally.failures.append(Failure(name, run.seed, run.wrong.how))


def _judge_again(tally: Tally, layer: Layer, run: Run) -> None:
    began = process_time()
    again = walker_of(layer, every_time=True).run(run.seed)
    tally.setup += process_time() - began
    tally.layers[layer.name].sampled += 1
    if difference(run, again):
        tally.failures.append(Failure(layer.name, run.seed, difference(run, again)))


def difference(run: Run, again: Run) -> str:
    """How a run with all properties evaluated at every step differs from the same with what has changed, or ""."""
    if again.wrong != run.wrong:
        found = [one.wrong.how if one.wrong else "violates nothing" for one in (run, again)]
        return f"{found[0]}; with every property evaluated at every step it {found[1]}"
    if (again.schedule, again.fair) != (run.schedule, run.fair):
        return "takes other steps when every property is evaluated at every step"
    return ""


# --- chunks, kept in a folder -----------------------------------------------------------------------------------------


def sources(among: Sequence[Layer]) -> list[Path]:
    """The files of Python that determine a run; the bounds are imported by name."""
    machines = {layer.model.machine_class().__module__ for layer in among}
    return needed([__name__, "kafka_eos_checks.bounds", *machines])


def specs(among: Sequence[Layer]) -> Iterator[str]:
    """What the spec's folder says that determines a run: the layers, and the modules that their formulas stand in."""
    for layer in among:
        model = layer.model
        tables = [sorted(table.items()) for table in (model.constants, model.overrides)]
        yield repr((layer.name, layer.properties, model.name, model.module, model.machine, model.bounds, *tables))
    folder = ModuleFolder(among[0].model.spec)
    modules = {name for layer in among for name in (layer.model.module, f"{layer.model.module}Mutants")}
    yield from (folder.text(name) for name in sorted(folder.closure(modules)))


@cache
def fingerprint() -> str:
    """Of everything that determines a run: another one makes what is kept useless."""
    digest = hashlib.sha256()
    for path in sources(all_layers()):
        digest.update(path.read_bytes())
    for text in specs(all_layers()):
        digest.update(text.encode())
    return digest.hexdigest()[:16]


def to_json(tally: Tally) -> dict[str, Any]:
    """A tally as JSON."""

    def pairs(counter: Counter[tuple[str, str]]) -> dict[str, int]:
        return {_SEPARATOR.join(key): count for key, count in sorted(counter.items())}

    return {
        "seconds": round(tally.seconds, 3),
        "setup": round(tally.setup, 3),
        "failures": [[f.layer, f.seed, f.how] for f in tally.failures],
        "news": [[seed, name, list(points)] for seed, name, points in tally.news],
        "layers": {
            name: {
                "runs": layer.runs,
                "steps": layer.steps,
                "fair_steps": layer.fair_steps,
                "sampled": layer.sampled,
                "actions": dict(sorted(layer.coverage.actions.items())),
                "refusals": pairs(layer.coverage.refusals),
                "faults": pairs(layer.coverage.faults),
            }
            for name, layer in sorted(tally.layers.items())
        },
    }


def from_json(given: Mapping[str, Any]) -> Tally:
    """The inverse of :func:`to_json`."""

    def counter(pairs: Mapping[str, int]) -> Counter[tuple[str, str]]:
        split = {key: key.partition(_SEPARATOR) for key in pairs}
        return Counter({(parts[0], parts[2]): pairs[key] for key, parts in split.items()})

    tally = Tally(seconds=float(given["seconds"]), setup=float(given["setup"]))
    tally.failures = [Failure(layer, seed, how) for layer, seed, how in given["failures"]]
    tally.news = [(seed, name, tuple(points)) for seed, name, points in given["news"]]
    for name, row in given["layers"].items():
        coverage = Coverage(Counter(row["actions"]), counter(row["refusals"]), counter(row["faults"]))
        tally.layers[name] = LayerTally(row["runs"], row["steps"], row["fair_steps"], row["sampled"], coverage)
    return tally


def chunks(first: int, last: int) -> list[tuple[int, int]]:
    """The seeds in chunks that begin at multiples of :data:`SEEDS_PER_CHUNK`; both ends of each are included."""
    found = []
    while first <= last:
        end = min(last, first - first % SEEDS_PER_CHUNK + SEEDS_PER_CHUNK - 1)
        found.append((first, end))
        first = end + 1
    return found


def _kept(folder: Path, chunk: tuple[int, int]) -> Path:
    return folder / "chunks" / f"{chunk[0]}-{chunk[1]}.json"


def read_kept(folder: Path, chunk: tuple[int, int]) -> Tally | None:
    """What is known of a chunk; nothing if that was found before something changed that determines a run."""
    try:
        content = json.loads(_kept(folder, chunk).read_text(encoding="utf-8"))
        return from_json(content["tally"]) if content["fingerprint"] == fingerprint() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(folder: Path, chunk: tuple[int, int], tally: Tally) -> None:
    """Keep what was found about a chunk, whole or not at all."""
    path = _kept(folder, chunk)
    path.parent.mkdir(parents=True, exist_ok=True)
    waiting = path.with_suffix(".part")
    waiting.write_text(json.dumps({"fingerprint": fingerprint(), "tally": to_json(tally)}), encoding="utf-8")
    waiting.replace(path)


def write_corpus(folder: Path, tally: Tally) -> Path:
    """Write the seeds that met something first, with what it was."""
    path = folder / "corpus.json"
    rows = [{"seed": seed, "layer": name, "adds": list(points)} for seed, name, points in sorted(tally.news)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return path


def read_corpus(folder: Path) -> list[int]:
    """The seeds of the corpus.

    Raises:
        OSError, ValueError: when there is none, or it is none.
    """
    rows = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    return sorted({int(row["seed"]) for row in rows})


def _run_chunk(chunk: tuple[int, int]) -> tuple[tuple[int, int], Tally]:
    return chunk, run_seeds(range(chunk[0], chunk[1] + 1))


def _in_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the pool


def run_chunks(waiting: Sequence[tuple[int, int]], jobs: int) -> Iterator[tuple[tuple[int, int], Tally]]:
    """What became of each chunk, as it is done: in this process for one job, else in workers."""
    if jobs == 1:
        yield from map(_run_chunk, waiting)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=_in_worker) as pool:
        yield from pool.imap_unordered(_run_chunk, waiting)
