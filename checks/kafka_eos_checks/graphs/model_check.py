"""Check the TLA+ models with TLC, the ones that must fail included.

A model is as expected when TLC's verdict, the numbers of states and the depth are the registry's, and TLC took every
action and reached every probe and the witness of every property. A mutant is as expected when it violates the property
it names, and no other before it.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from kafka_eos.errors import NotEnabled, Rejected
from kafka_eos.machines import machine as machines
from kafka_eos_checks.drawing.story import folded, tell
from kafka_eos_checks.drawing.story_diagram import diagram
from kafka_eos_checks.drawing.story_words import Words, words_of
from kafka_eos_checks.graphs.command import reference_of
from kafka_eos_checks.graphs.state_graph import instance_text
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models import witnesses
from kafka_eos_checks.models.registry import (
    TIERS,
    Expectation,
    MalformedRegistry,
    Model,
    Registry,
    plain_configuration,
    write_model,
)
from kafka_eos_checks.mutants.rules import UnknownRule
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.behaviour import Step

_PROBE_REGISTER = 1001
_PROBE_REACHED = "probe reached: "
MOST_TOLD = 3  # named models whose expected counterexamples are told; more would fill pages

UPDATE = "if the change of the spec is meant: kafka-eos check models --update {} writes the new numbers"

Progress = Callable[[str, tlc.Progress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a run of one model.

    Attributes:
        model: the model.
        result: TLC's result, its counterexample with arguments where they are known.
        found: the verdict, temporal properties named.
        problems: what differs from the registry, a line each.
    """

    model: Model
    result: tlc.Result
    found: str
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything is as the registry says."""
        return not self.problems

    @property
    def violated(self) -> str:
        """The property that is violated; the verdict itself if it is another one."""
        return self.found.removeprefix("violates ")

    @property
    def said(self) -> str:
        """The verdict, and what else differs from the registry."""
        if not self.problems or self.found != self.model.expect.words:
            return self.found
        return f"{self.found}, but {'; '.join(self.problems)}"

    @property
    def has_other_numbers(self) -> bool:
        """Whether the verdict is the expected one, and the numbers are not those of the registry."""
        return self.model.kind == "model" and self.said != self.found and self.measured != self.model.expect

    @property
    def measured(self) -> Expectation:
        """The expectation with the numbers of this run."""
        if self.model.expect.violates:
            return Expectation(violates=self.model.expect.violates, depth=len(self.result.behaviour))
        return Expectation(
            generated=self.result.generated,
            states=self.result.distinct,
            depth=self.result.depth,
        )


def _probe_definitions(model: Model) -> str:
    """Invariants that are always true and print the name of a probe when it is reached for the first time."""
    lines = []
    for register, probe in enumerate(model.probes, start=_PROBE_REGISTER):
        lines.append(f"ASSUME TLCSet({register}, FALSE)")
        lines.append(
            f"Probe__{probe} == TLCGet({register}) \\/ ~{probe} \\/ "
            f'(TLCSet({register}, TRUE) /\\ PrintT("{_PROBE_REACHED}{probe}"))'
        )
    return "\n".join(lines)


def prepare(model: Model) -> tuple[Path, str]:
    """Write a model so that TLC can run it and a person can open it in the Toolbox.

    Returns:
        The folder and the name of the root module.
    """
    plain = plain_configuration(model)
    if model.expect.violates:
        return write_model(model, plain)
    watched = witnesses.witnesses(model)
    of_states = [f"Probe__{probe}" for probe in model.probes]
    of_states += [witness.check for witness in watched if not witness.of_steps]
    of_steps = [witness.check for witness in watched if witness.of_steps]
    configuration = replace(
        plain, invariants=(*plain.invariants, *of_states), properties=(*plain.properties, *of_steps)
    )
    return write_model(model, configuration, f"{_probe_definitions(model)}\n{witnesses.definitions(watched)}")


def _named(model: Model, verdict: str) -> str:
    """The violated property's name; TLC does not name a temporal property, but then the model has only one."""
    nameless = verdict == "violates a temporal property" or verdict.startswith("violates line ")
    if nameless and len(model.properties) == 1:
        return f"violates {model.properties[0]}"
    return verdict


def with_arguments(model: Model, behaviour: Sequence[Step]) -> tuple[Step, ...]:
    """The steps of a counterexample with the arguments of their actions.

    TLC names only actions, or the disjunction that they belong to. The arguments are those with which the reference
    takes the same step. A step that it cannot take keeps TLC's name, and so do all steps of a model without a machine.
    """
    try:
        machine = _machine(model)
        constants = model.machine_constants(machine)
        states = [machines.load(machine, constants, step.state) for step in behaviour]
    except (MalformedRegistry, TypeError, KeyError, ValueError):
        return tuple(behaviour)
    every = machines.instances(machine, constants)
    steps = list(behaviour[:1])
    for step, before, after in zip(behaviour[1:], states, states[1:], strict=False):
        named = [each for each in every if each.action.name == step.action]
        found = next((each for each in named or every if _leads_to(before, each, after)), None)
        steps.append(step if found is None else Step(instance_text(found), step.state))
    return tuple(steps)


def _machine(model: Model) -> type[machines.Machine]:
    """The reference's machine, with the model's overrides where any action depends on them."""
    try:
        return reference_of(model)
    except UnknownRule:  # only a property depends on the rule
        return model.machine_class()


def _leads_to(before: machines.Machine, instance: machines.Instance, after: machines.Machine) -> bool:
    try:
        return machines.step(before, instance) == after
    except (NotEnabled, Rejected):
        return False


def judge(model: Model, result: tlc.Result, *, workers: int = 1) -> Outcome:
    """Compare TLC's result with the registry.

    Args:
        model: the model.
        result: what TLC found.
        workers: TLC's threads; with several the depth is not compared, since TLC may then count it too large.
    """
    expect = model.expect
    found = _named(model, result.verdict)
    if found != expect.words:
        return Outcome(model=model, result=result, found=found, problems=(f"expected {expect.words}, found {found}",))
    problems = []
    measured = Outcome(model=model, result=result, found=found).measured
    compared = ["generated", "states", "depth"] if not expect.violates else ["depth"]
    for name in compared:
        wanted, got = getattr(expect, name), getattr(measured, name)
        if wanted == got or (name == "depth" and workers > 1) or (expect.violates and wanted is None):
            continue
        problems.append(f"{name}: {got:,}, the registry says {f'{wanted:,}' if wanted is not None else 'nothing'}")
    if not expect.violates:
        untaken = {name for name, taken in result.coverage.items() if not taken}
        problems += [f"{name} is never taken; widen the constants" for name in sorted(untaken - set(model.never))]
        problems += [
            f"{name} is taken; delete it from 'never'"
            for name in sorted(set(model.never) & result.coverage.keys() - untaken)
        ]
        reached = {line.strip('"').removeprefix(_PROBE_REACHED) for line in result.prints if _PROBE_REACHED in line}
        problems += [f"probe {name} is never reached" for name in model.probes if name not in reached]
        problems += witnesses.problems(model, result.prints)
    return Outcome(model=model, result=result, found=found, problems=tuple(problems))


def check_model(
    model: Model, *, workers: int = 1, timeout: float = 900.0, on_progress: Progress | None = None
) -> Outcome:
    """Run TLC on one model and compare the result with the registry.

    Raises:
        MissingExtra: when there is no TLC or no Java.
        MalformedRegistry: when the entry does not fit its machine.
    """
    folder, module = prepare(model)
    job = tlc.Job(
        folder=folder,
        module=module,
        workers=workers,
        timeout=timeout,
        coverage=not model.expect.violates,
        short=model.is_short,
    )
    result = tlc.run(job, None if on_progress is None else partial(on_progress, model.name))
    named = replace(result, behaviour=with_arguments(model, result.behaviour))
    return judge(model, named, workers=workers)


def to_verdict(outcome: Outcome) -> Verdict:
    """The verdict on one model or mutant."""
    model, result = outcome.model, outcome.result
    figures: dict[str, int | float | str] = {"states": result.distinct, "depth": result.depth}
    if model.expect.violates:
        figures = {"states": result.distinct, "steps": max(len(result.behaviour) - 1, 0)}
    return Verdict(
        check=model.kind,
        name=model.name,
        expected=model.expect.words,
        found=outcome.said,
        ok=outcome.ok,
        seconds=result.seconds,
        figures=figures,
        evidence=_evidence(outcome),
        claims=model.claims,
        title=model.title,
        diagram=diagram(model.module, result.behaviour, outcome.violated) if result.behaviour else "",
        advice=UPDATE.format(model.name) if outcome.has_other_numbers else "",
    )


def _evidence(outcome: Outcome) -> str:
    told = [story(outcome)] if outcome.result.behaviour else []
    return "\n".join([*filter(None, [outcome.result.error]), *told])


def story(outcome: Outcome) -> str:
    """The counterexample of a model, told step by step."""
    model, result = outcome.model, outcome.result
    words = words_of(model.spec, model.module)
    return f"{_setting(model, words)}\n\n{tell(result.behaviour, _ending(outcome, words), result.loop_to, words)}"


def _setting(model: Model, words: Words) -> str:
    """The model in words: its constants, and the rules that replace others in it."""
    given = [f"{name}={value}" for name, value in model.constants.items() if name not in model.overrides]
    lines = [f"{model.name}: {model.title}", f"The module {model.module} with {', '.join(given)}"]
    for rule, other in model.overrides.items():
        meaning = re.sub(rf"^for {rule}\b[^:]*: ", "", words.sentences.get(other, ""))
        lines.append(f"{other} takes the place of the rule {rule}{f': {meaning}' if meaning else ''}")
    return "\n".join(line for text in lines for line in folded(text))


def _ending(outcome: Outcome, words: Words) -> str:
    """The property that the last state of a counterexample violates, in words."""
    violated = outcome.violated
    if violated == outcome.found:
        return f"Here the model {outcome.found}."
    meaning = words.sentences.get(violated)
    return "\n".join(folded(f"Here the model violates {violated}{f': {meaning}' if meaning else '.'}"))


def check_models(
    models: Sequence[Model], *, jobs: int | None = None, workers: int = 1, timeout: float = 900.0
) -> Iterator[Outcome]:
    """Run several models, ``jobs`` at a time with one worker each: for models of seconds that is the fastest.

    Yields the outcomes as they come; progress goes to standard error.
    """
    running: dict[str, int] = {}
    by_size = sorted(models, key=lambda model: -(model.expect.states or 0))
    with progress_console.status("TLC starts") as status, ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:

        def on_progress(name: str, progress: tlc.Progress) -> None:
            running[name] = progress.distinct
            shown = ", ".join(f"{model} {states:,} states" for model, states in sorted(running.items()))
            status.update(f"{done} of {len(models)} done; {shown}")

        done = 0
        waiting: set[Future[Outcome]] = {
            pool.submit(check_model, model, workers=workers, timeout=timeout, on_progress=on_progress)
            for model in by_size
        }
        try:
            while waiting:
                finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    outcome = future.result()
                    done += 1
                    running.pop(outcome.model.name, None)
                    status.update(f"{done} of {len(models)} done")
                    yield outcome
        finally:
            for future in waiting:
                future.cancel()


def select(registry: Registry, names: Sequence[str], tier: str, *, mutants: bool) -> list[Model]:
    """The models to run.

    Args:
        registry: the registry.
        names: models or mutants by name; empty for all of the tier and of the tiers before it.
        tier: one of ``TIERS``.
        mutants: the mutants of those models instead of the models.
    """
    allowed = TIERS[: TIERS.index(tier) + 1]
    chosen = [registry.get(name) for name in names]
    if not mutants:
        return chosen or [model for model in registry.models.values() if model.tier in allowed]
    every = [mutant for mutant in registry.mutants.values() if mutant.tier in allowed]
    if not chosen:
        return every
    bases = {model.name for model in chosen}
    return [mutant for mutant in registry.mutants.values() if mutant.model in bases or mutant.name in bases]
