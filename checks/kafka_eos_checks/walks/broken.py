"""Search for a mutant, or a model that must fail, by walks: the first seed that finds it, and the shortest schedule."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time

from kafka_eos.machines.machine import Instance, dump
from kafka_eos_checks.drawing import story_diagram
from kafka_eos_checks.drawing.story import tell
from kafka_eos_checks.drawing.story_words import words_of
from kafka_eos_checks.graphs.state_graph import instance_text
from kafka_eos_checks.kit.verdict import NOT_FOUND, Verdict
from kafka_eos_checks.kit.workers import each_done
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.tla.behaviour import Step
from kafka_eos_checks.walks.corpus import Corpus
from kafka_eos_checks.walks.layers import broken_layer
from kafka_eos_checks.walks.properties import Wrong
from kafka_eos_checks.walks.shrink import shrunk
from kafka_eos_checks.walks.walk import Run, Walker

STEPS_TO_BEGIN = 5  # the cost of starting a walk, in steps
FOUND = "found"


def told(walker: Walker, wrong: Wrong, schedule: Sequence[Instance], at_rest: bool, seed: int) -> tuple[str, str]:
    """A schedule that goes wrong as a story, and as a diagram."""
    _, taken, states = walker.replay(schedule, seed=seed if at_rest else None)
    labels = ["Init", *map(instance_text, taken)]
    steps = [Step(label, dump(state)) for label, state in zip(labels, states, strict=True)]
    model = walker.layer.model
    text = tell(steps, f"      {wrong.how}", words=words_of(model.spec, model.module))
    return text, story_diagram.diagram(model.module, steps, wrong.name)


def explained(walker: Walker, run: Run) -> tuple[str, str, int]:
    """The story and the diagram of the shortest schedule of a run that went wrong, and its number of steps."""
    wrong, schedule, at_rest = shrunk(walker, run)
    text, drawn = told(walker, wrong, schedule, at_rest, run.seed)
    return text, drawn, len(schedule)


@dataclass(slots=True)
class _Place:
    """A walker, and the share of the steps that it gets.

    Attributes:
        walker: the walker.
        share: its share of all steps.
        corpus: the states that its walks have kept, if later walks start from them.
        steps: the steps taken so far.
    """

    walker: Walker
    share: float
    corpus: Corpus | None = None
    steps: int = 0


class Search:
    """Walks over a mutant or a model that must fail, most of them from states that looked new to earlier walks.

    A quarter of the steps are walks from the first state, with larger constants, as the walks of a layer are. Another
    quarter starts from kept states with these constants. The other half starts from kept states with the registry's
    constants, with which TLC finds the violation in a smaller space.

    Args:
        registry: the registry with the mutant or model.
        name: the name of the mutant or model.

    Raises:
        MalformedRegistry: when there is no such mutant or model, or it need not fail.
    """

    def __init__(self, registry: Registry, name: str) -> None:
        small, large = broken_layer(registry, name, larger=False), broken_layer(registry, name)
        walker = Walker(large)
        other = walker if large.model == small.model else Walker(small)
        self._places = (
            _Place(walker, 0.25),
            _Place(other, 0.5, Corpus(every=True)),
            _Place(walker, 0.25, Corpus()),
        )
        self.runs = 0

    def run(self) -> tuple[Walker, Run]:
        """The next walk."""
        place = min(self._places, key=lambda place: place.steps / place.share)
        run = place.walker.run(self.runs, place.corpus)
        self.runs += 1
        place.steps += run.steps + STEPS_TO_BEGIN
        return place.walker, run


def find_broken(registry: Registry, name: str, limit: float) -> Verdict:
    """Walk a mutant or a model that must fail until a walk violates something.

    A walk in which a property has no value finds nothing: the mutant may just not work. The next ones go on.

    Args:
        registry: the registry that has it.
        name: its name.
        limit: seconds of CPU after which it counts as not found.

    Raises:
        MalformedRegistry: when there is none, or it need not fail.
    """
    model = registry.get(name)
    began = process_time()
    search = Search(registry, name)
    wrong: tuple[Walker, Run] | None = None
    steps, evidence = 0, ""
    while wrong is None and process_time() - began < limit:
        walker, run = search.run()
        steps += run.steps
        if run.wrong is not None and run.wrong.is_judged:
            wrong = walker, run
        elif run.wrong is not None:
            evidence = evidence or f"a walk {run.wrong.how}"
    seconds = process_time() - began
    figures: dict[str, int | float | str] = {"runs": search.runs, "steps": steps, "cpu_seconds": round(seconds, 1)}
    if model.expect.depth is not None:
        figures["shortest_by_tlc"] = model.expect.depth - 1
    diagram = ""
    if wrong is not None:
        walker, run = wrong
        assert run.wrong is not None
        evidence, diagram, figures["shortest"] = explained(walker, run)
        evidence = f"{run.wrong.how}\n{evidence}"
    return Verdict(
        check="walk-mutant",
        name=name,
        expected=FOUND,
        found=FOUND if wrong is not None else NOT_FOUND,
        ok=wrong is not None,
        seconds=seconds,
        figures=figures,
        evidence=evidence,
        diagram=diagram,
        title=model.title,
    )


def _find(name: str, limit: float) -> Verdict:
    return find_broken(Registry(), name, limit)


def find_all(models: Sequence[Model], limit: float, jobs: int) -> Iterator[Verdict]:
    """The verdicts on many models of the project's registry, as they come."""
    names = [model.name for model in models]
    find = partial(_find, limit=limit)
    return each_done(find, names, jobs)
