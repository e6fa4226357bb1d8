"""Whether simulation finds a mutant, or a model that must fail: the first seed that does, and the shortest schedule."""

import multiprocessing
from collections.abc import Iterator, Sequence
from functools import partial
from time import process_time

from kafka_eos.machine import Instance, dump
from kafka_eos_checks import story_diagram
from kafka_eos_checks.graph import instance_text
from kafka_eos_checks.models import Registry
from kafka_eos_checks.soak.layers import broken_layer
from kafka_eos_checks.soak.properties import Wrong
from kafka_eos_checks.soak.shrink import shrunk
from kafka_eos_checks.soak.walk import Run, Walker
from kafka_eos_checks.story import Step, tell
from kafka_eos_checks.verdict import Verdict

FOUND = "found"


def told(walker: Walker, wrong: Wrong, schedule: Sequence[Instance], at_rest: bool, seed: int) -> tuple[str, str]:
    """A schedule that goes wrong as a story, and as a diagram."""
    _, taken, states = walker.replay(schedule, seed=seed if at_rest else None)
    labels = ["Init", *map(instance_text, taken)]
    steps = [Step(label, dump(state)) for label, state in zip(labels, states, strict=True)]
    return tell(steps, f"      {wrong.how}"), story_diagram.diagram(walker.layer.model.module, steps, wrong.name)


def explained(walker: Walker, run: Run) -> tuple[str, str, int]:
    """The story and the diagram of the shortest schedule behind a run that went wrong, and how many steps it has."""
    wrong, schedule, at_rest = shrunk(walker, run)
    text, drawn = told(walker, wrong, schedule, at_rest, run.seed)
    return text, drawn, len(schedule)


def find_broken(registry: Registry, name: str, limit: float) -> Verdict:
    """Walk a mutant or a model that must fail, seed by seed.

    Args:
        registry: where it stands.
        name: its name.
        limit: seconds of CPU after which it counts as not found.

    Raises:
        MalformedRegistry: when there is none, or it need not fail.
    """
    layer = broken_layer(registry, name)
    began = process_time()
    walker = Walker(layer)
    steps, seed = 0, -1
    run = Run(seed)
    while run.wrong is None and process_time() - began < limit:
        seed += 1
        run = walker.run(seed)
        steps += run.steps
    seconds = process_time() - began
    figures: dict[str, int | float | str] = {"seed": seed, "steps": steps, "cpu_seconds": round(seconds, 1)}
    evidence, diagram = "", ""
    if run.wrong is not None:
        evidence, diagram, figures["shortest"] = explained(walker, run)
    depth = registry.get(name).expect.depth
    if depth is not None:
        figures["shortest_by_tlc"] = depth - 1
    return Verdict(
        check="walk-mutant",
        name=name,
        expected=FOUND,
        found=FOUND if run.wrong is not None else f"not in {seed + 1} runs",
        ok=run.wrong is not None,
        seconds=seconds,
        figures=figures,
        evidence=f"{run.wrong.how}\n{evidence}" if run.wrong is not None else "",
        diagram=diagram,
        title=layer.model.title,
    )


def _find(name: str, limit: float) -> Verdict:
    return find_broken(Registry(), name, limit)


def find_all(names: Sequence[str], limit: float, jobs: int) -> Iterator[Verdict]:
    """The same of many, as they are done."""
    find = partial(_find, limit=limit)
    if jobs == 1:
        yield from map(find, names)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(find, names)
