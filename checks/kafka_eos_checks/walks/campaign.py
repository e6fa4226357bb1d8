"""Many runs: seeds dealt to the layers in turn, in worker processes, with their coverage and failures.

A seed belongs to one layer: number ``seed % layers``. Chunks of seeds are the unit of work.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from time import process_time

from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.walks.layers import Layer, layers, layers_of_release
from kafka_eos_checks.walks.walk import Coverage, Run, Walker

SAMPLE = 40  # one run in this many is judged a second time, with every property evaluated at every step


@dataclass(slots=True)
class Failure:
    """A run that went wrong.

    Attributes:
        layer, seed: the run.
        how: what is wrong, in words.
        is_judged: whether it is a violation, and not a property without a value.
    """

    layer: str
    seed: int
    how: str
    is_judged: bool = True


@dataclass(slots=True)
class LayerTally:
    """The outcome of the runs of one layer.

    Attributes:
        runs, steps: the numbers of runs and steps.
        fair_steps: steps after the faults had stopped.
        cut_off: runs that end at the bounds of the constants, so that their goals are not judged.
        sampled: runs that were judged a second time.
        coverage: the coverage of the runs.
    """

    runs: int = 0
    steps: int = 0
    fair_steps: int = 0
    cut_off: int = 0
    sampled: int = 0
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(slots=True)
class Tally:
    """The outcome of a number of seeds.

    Attributes:
        layers: the layers by name.
        failures: the runs that went wrong, or were judged differently the second time.
        news: (seed, layer, points of the coverage that this run met first) in the order of the seeds.
        seconds: CPU time of the runs, without compiling the formulas and without the second judgements.
        setup: CPU time of compiling the formulas, in seconds.
    """

    layers: dict[str, LayerTally] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    news: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    seconds: float = 0.0
    setup: float = 0.0

    @property
    def runs(self) -> int:
        """The number of runs of all layers."""
        return sum(layer.runs for layer in self.layers.values())

    @property
    def steps(self) -> int:
        """The number of steps of all layers."""
        return sum(layer.steps for layer in self.layers.values())

    @property
    def sampled(self) -> int:
        """The number of runs that were judged twice."""
        return sum(layer.sampled for layer in self.layers.values())

    def add(self, other: "Tally") -> None:
        """Add the counts of another tally, and those of its news that are new here."""
        known = {(name, point) for name, layer in self.layers.items() for point in layer.coverage.points()}
        for seed, name, points in sorted(other.news):
            fresh = tuple(point for point in points if (name, point) not in known)
            if fresh:
                self.news.append((seed, name, fresh))
        for name, layer in other.layers.items():
            mine = self.layers.setdefault(name, LayerTally())
            mine.runs += layer.runs
            mine.steps += layer.steps
            mine.fair_steps += layer.fair_steps
            mine.cut_off += layer.cut_off
            mine.sampled += layer.sampled
            mine.coverage.add(layer.coverage)
        self.failures += other.failures
        self.seconds += other.seconds
        self.setup += other.setup


@cache
def all_layers(release: str = "") -> tuple[Layer, ...]:
    """The layers of the project's registry.

    Args:
        release: by the rules of this release of Kafka as it ships; "" for the rules of the specs.
    """
    return tuple(layers_of_release(Registry(), release) if release else layers(Registry()))


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
    layer.cut_off += run.cut_off
    layer.coverage.add(run.coverage)
    if run.wrong is not None:
        tally.failures.append(Failure(name, run.seed, run.wrong.how, run.wrong.is_judged))


def _judge_again(tally: Tally, layer: Layer, run: Run) -> None:
    began = process_time()
    again = walker_of(layer, every_time=True).run(run.seed)
    tally.setup += process_time() - began
    tally.layers[layer.name].sampled += 1
    if difference(run, again):
        tally.failures.append(Failure(layer.name, run.seed, difference(run, again)))


def difference(run: Run, again: Run) -> str:
    """The difference between a run with all properties evaluated at every step and the usual one, or ""."""
    if again.wrong != run.wrong:
        found = [one.wrong.how if one.wrong else "violates nothing" for one in (run, again)]
        return f"{found[0]}; with every property evaluated at every step it {found[1]}"
    if (again.schedule, again.fair) != (run.schedule, run.fair):
        return "takes other steps when every property is evaluated at every step"
    return ""
