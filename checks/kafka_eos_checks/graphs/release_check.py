"""Check the models by the rules of a release of Kafka, every property for itself: ``check models --kafka 4.3``.

TLC ends at the first property that is violated. Here it must not, because a violation of Kafka as it ships would hide
the others. So a property of states or of steps is evaluated by a formula that is always true, and that says once when
the property is violated. One run judges all of them in every state. Temporal properties get a run each.

A model that depends on no rule that the release has otherwise is not run again: its verdict is that of the repaired
rules. Two releases with the same rules for a model share its runs.
"""

import argparse
import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from kafka_eos_checks.graphs.model_check import MOST_TOLD, check_model, story
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.models import witnesses
from kafka_eos_checks.models.registry import (
    Configuration,
    Expectation,
    Model,
    Registry,
    Shipped,
    plain_configuration,
    write_model,
)
from kafka_eos_checks.models.releases import CHECK, SAYS_NOTHING, Column, Releases, columns
from kafka_eos_checks.tla import tlc
from kafka_eos_checks.tla.modules import ModuleFolder

HOLDS = "holds"
NOTHING_RUN = "not run"
UNNAMED = "?"  # in the place of the rules that break a property, until a person names them
_REGISTER = 3001  # the first of TLC's registers that keep which property was violated
_VIOLATED = "violated"
_SAID = re.compile(rf"{_VIOLATED}\W+(\w+)\W+(\d+)")
_OF_STEPS = re.compile(r"\w+ ==\s*\[\]\[(.*)\]_(\w+|<<[^>]*>>)\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A property that TLC evaluates without an end at its violation.

    Attributes:
        name: the property.
        of_steps: whether it speaks of steps instead of states.
        definition: TLA+ text of the formula that TLC evaluates.
    """

    name: str
    of_steps: bool
    definition: str

    @property
    def check(self) -> str:
        """The name of the formula."""
        return f"Judged__{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The results of TLC's runs of a model by the rules of a release.

    Attributes:
        seconds: wall time of all runs.
        states: distinct states.
        outcomes: property -> ``holds``, or the number of steps after which it is violated, in words.
        silent: properties that hold and say nothing, since no run reaches their witnesses.
        problems: what went wrong, a line each.
    """

    seconds: float
    states: int = 0
    outcomes: dict[str, str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def violated(self) -> list[str]:
        """The properties that do not hold."""
        return [name for name, outcome in self.outcomes.items() if outcome != HOLDS]


def _watch(name: str, register: int, subscript: str = "", body: str = "") -> Watched:
    """The formula for a property of states, or with a subscript for one of steps, whose body is text."""
    said = f'(TLCSet({register}, TRUE) /\\ PrintT(ToString(<<"{_VIOLATED}", "{name}", TLCGet("level")>>)))'
    once = f"TLCGet({register}) \\/ {f'Body__{name}' if subscript else name} \\/ {said}"
    formula = f"[][{once}]_{subscript}" if subscript else once
    lines = [f"ASSUME TLCSet({register}, FALSE)", f"Judged__{name} == {formula}"]
    if subscript:
        lines.insert(0, f"Body__{name} ==\n{body}")
    return Watched(name=name, of_steps=bool(subscript), definition="\n".join(lines))


def watched(model: Model) -> tuple[list[Watched], list[str]]:
    """The properties of a model that one run of TLC can judge, and the names of those that need one each."""
    found = [_watch(name, register) for register, name in enumerate(model.invariants, start=_REGISTER)]
    rest = []
    for register, name in enumerate(model.properties, start=_REGISTER + len(found)):
        text = ModuleFolder(model.spec).definition_text(model.module, name)
        body = _OF_STEPS.match(text)
        if body is None:
            rest.append(name)
        else:  # every line keeps its columns, since lists of conjuncts go by them
            indent = " " * (body.start(1) - text.rfind("\n", 0, body.start(1)) - 1)
            found.append(_watch(name, register, body[2], indent + body[1]))
    return found, rest


def judge_model(model: Model, *, timeout: float = 900.0) -> Judged:
    """Run TLC on a model that already has the rules of a release.

    Raises:
        MissingExtra: when there is no TLC or no Java.
    """
    if model.expect.violates:
        return _judge_violated(model, timeout)
    together, single = watched(model)
    runs = []
    if together:
        runs.append(_judge_together(model, together, timeout))
    runs += [_judge_single(model, name, timeout) for name in single]
    return Judged(
        states=runs[0].states,
        outcomes={name: outcome for run in runs for name, outcome in run.outcomes.items()},
        silent=tuple(name for run in runs for name in run.silent),
        problems=tuple(problem for run in runs for problem in run.problems),
        seconds=sum(run.seconds for run in runs),
    )


def _judge_violated(model: Model, timeout: float) -> Judged:
    """A model that the repaired rules violate: it ends at the first violation, since its states may have no end."""
    configuration = replace(
        plain_configuration(model),
        invariants=tuple(name for name in model.invariants if name == model.expect.violates),
        properties=tuple(name for name in model.properties if name == model.expect.violates),
    )
    result = _run(model, configuration, "", timeout)
    name = model.expect.violates
    if result.verdict == HOLDS:
        return Judged(states=result.distinct, outcomes={name: HOLDS}, seconds=result.seconds)
    if not result.verdict.startswith("violates "):
        return Judged(outcomes={}, problems=(_trouble(name, result),), seconds=result.seconds)
    return Judged(outcomes={name: f"violated after {max(len(result.behaviour) - 1, 0)} steps"}, seconds=result.seconds)


def _judge_together(model: Model, together: Sequence[Watched], timeout: float) -> Judged:
    names = [one.name for one in together]
    reached = [witness for witness in witnesses.witnesses(model) if witness.name in names]
    checks = [(one.check, one.of_steps) for one in together] + [(one.check, one.of_steps) for one in reached]
    configuration = replace(
        plain_configuration(model),
        invariants=tuple(check for check, of_steps in checks if not of_steps),
        properties=tuple(check for check, of_steps in checks if of_steps),
    )
    definitions = [*(one.definition for one in together), witnesses.definitions(reached)]
    result = _run(model, configuration, "\n".join(definitions), timeout)
    if result.verdict != HOLDS:
        return Judged(problems=(_trouble("all", result),), seconds=result.seconds)
    steps = {said[1]: said[2] for line in result.prints if (said := _SAID.search(line))}
    outcomes = {name: f"violated after {steps[name]} steps" if name in steps else HOLDS for name in names}
    holding = {name for name, outcome in outcomes.items() if outcome == HOLDS}
    holding_model = replace(
        model,
        invariants=tuple(name for name in model.invariants if name in holding),
        properties=tuple(name for name in model.properties if name in holding),
    )
    silent = tuple(witnesses.unreached(holding_model, result.prints))
    return Judged(states=result.distinct, outcomes=outcomes, silent=silent, seconds=result.seconds)


def _judge_single(model: Model, name: str, timeout: float) -> Judged:
    plain = replace(plain_configuration(model), invariants=(), properties=(name,))
    own = [witness for witness in witnesses.witnesses(model) if witness.name == name]
    configuration = replace(
        plain,
        invariants=tuple(witness.check for witness in own if not witness.of_steps),
        properties=(name, *(witness.check for witness in own if witness.of_steps)),
    )
    result = _run(model, configuration, witnesses.definitions(own), timeout)
    if result.verdict == HOLDS:
        alone = replace(model, invariants=(), properties=(name,))
        silent = tuple(witnesses.unreached(alone, result.prints))
        return Judged(states=result.distinct, outcomes={name: HOLDS}, silent=silent, seconds=result.seconds)
    if not result.verdict.startswith("violates "):
        return Judged(problems=(_trouble(name, result),), seconds=result.seconds)
    return Judged(  # without states: how many TLC has seen when it finds an infinite behaviour differs from run to run
        outcomes={name: f"violated after {max(len(result.behaviour) - 1, 0)} steps"},
        seconds=result.seconds,
    )


def _short_hash(parts: Iterable[str]) -> str:
    """A name for what a root module checks: the runs of one model do not share it."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _trouble(name: str, result: tlc.Result) -> str:
    return f"{name}: TLC {result.verdict} {result.error}".strip()


def _run(model: Model, configuration: Configuration, definitions: str, timeout: float) -> tlc.Result:
    checked = sorted({*configuration.invariants, *configuration.properties})
    suffix = f"_{_short_hash([*checked, *map(str, sorted(model.overrides.items()))])}"
    folder, module = write_model(model, configuration, definitions, suffix)
    return tlc.run(tlc.Job(folder=folder, module=module, timeout=timeout, short=model.is_short))


def _key(column: Column) -> str:
    """A key that is equal for columns that need only one run."""
    return f"{column.model.name} {sorted(column.as_shipped.overrides.items())}"


def check_columns(
    found: Sequence[Column], *, jobs: int = 1, timeout: float = 900.0
) -> Iterator[tuple[Column, Judged | None]]:
    """Run TLC for each column that has rules of its release; columns with the same rules share a run.

    Yields the columns in the order of the arguments, each with what TLC said, None where nothing ran. Progress goes to
    standard error.
    """
    needed = {_key(column): column for column in reversed(found) if column.rules}
    largest_first = sorted(needed.items(), key=lambda item: -(item[1].model.expect.generated or 0))
    with ThreadPoolExecutor(jobs) as pool:
        running = {key: pool.submit(judge_model, column.entry, timeout=timeout) for key, column in largest_first}
        try:
            for column in found:
                yield column, _awaited(running[_key(column)], running.values()) if column.rules else None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _awaited(one: Future[Judged], every: Collection[Future[Judged]]) -> Judged:
    """The result of one run, and progress of all until it is there."""
    with progress_console.status("TLC starts") as status:
        while not one.done():
            status.update(f"{sum(future.done() for future in every)} of {len(every)} done, the largest first")
            wait([one], timeout=1)
    return one.result()


def to_verdict(column: Column, judged: Judged | None, releases: Releases) -> Verdict:
    """The verdict on a model under a release.

    Its figures have the outcome of each property: ``holds``, ``violated after 3 steps`` or ``says nothing``.
    """
    model = column.model
    if judged is None:
        reason = column.outside or (
            f"no rule that {model.name} depends on is otherwise in Kafka {column.release}: "
            "the verdict of the repaired rules is its own"
        )
        return Verdict(
            check=CHECK,
            name=column.name,
            expected=NOTHING_RUN,
            found=NOTHING_RUN,
            ok=True,
            unjudged=reason,
            title=model.title,
        )
    expected = column.expected(releases)
    problems = list(_problems(column, judged, expected))
    wanted = _words(_expected_violations(model, expected))
    found = _words(judged.violated)
    outcomes = dict(judged.outcomes) | dict.fromkeys(judged.silent, SAYS_NOTHING)
    return Verdict(
        check=CHECK,
        name=column.name,
        expected=wanted,
        found=f"{found}, but {'; '.join(problems)}" if problems and found == wanted else found,
        ok=not problems,
        seconds=judged.seconds,
        figures={**({"states": judged.states} if judged.states else {}), **outcomes},
        evidence="\n".join([*problems, *_told(column, judged, expected, releases)]),
        title=model.title,
    )


def _words(violated: Sequence[str]) -> str:
    return f"violates {', '.join(violated)}" if violated else HOLDS


def _expected_violations(model: Model, expected: Shipped | None) -> list[str]:
    broken = set(expected.violates if expected else ()) | {model.expect.violates}
    return [name for name in (*model.invariants, *model.properties) if name in broken]


def _problems(column: Column, judged: Judged, expected: Shipped | None) -> Iterator[str]:
    """The differences from the registry, a line each."""
    yield from judged.problems
    model, key = column.model, f'shipped."{column.release}"'
    wanted = _expected_violations(model, expected)
    if expected is None:
        if not model.expect.violates:
            yield f"the registry has no {key}; `kafka-eos check models {model.name} --kafka {column.release} --update`"
        expected = Shipped(states=judged.states or None)
    for name in judged.outcomes:
        if (name in wanted) != (name in judged.violated):
            yield f"{name} {'holds' if name in wanted else 'is violated'}, and {key} says otherwise"
    known = {rule.name for rule in column.rules}
    for name, causes in expected.violates.items():
        strays = set(causes.split(", ")) - known
        if strays:
            yield f"{name}: {', '.join(sorted(strays))} is no rule that differs here; name some of {', '.join(known)}"
    silent = set(judged.silent) - set(model.silent)
    if set(expected.silent) != silent:
        yield f"says nothing: {', '.join(sorted(silent)) or 'no property'}; {key} says otherwise in 'silent'"
    if expected.states != (judged.states or None):
        yield f"states: {judged.states:,}; {key} says {expected.states or 'nothing'}"


def _told(column: Column, judged: Judged, expected: Shipped | None, releases: Releases) -> Iterator[str]:
    """The rules of the column, and the rule and the finding behind each violation."""
    for rule in column.rules:
        other = rule.by_release[column.release]
        yield f"{rule.module}!{rule.name} is {other}: {rule.kafka}"
    for rule in releases.unmodelled(column.model):
        yield f"{rule.module}!{rule.name} is not in this column: {rule.unmodelled}"
    for name in judged.violated:
        causes = expected.violates.get(name, "") if expected else ""
        behind = f", by {causes}{_findings(column.model.module, causes, releases)}" if causes else ""
        as_repaired = " (as by the repaired rules)" if name == column.model.expect.violates else ""
        yield f"{name} is {judged.outcomes[name]}{behind}{as_repaired}"


def _findings(module: str, causes: str, releases: Releases) -> str:
    found = releases.findings(module, causes)
    return f" (finding {', '.join(found)})" if found else ""


def without_causes(column: Column, releases: Releases) -> Iterator[Verdict]:
    """Verdicts on the causes of violations that the registry names: without these rules the properties must hold."""
    expected = column.expected(releases)
    by_causes: dict[str, list[str]] = {}
    for name, causes in (expected.violates if expected and column.rules else {}).items():
        by_causes.setdefault(causes, []).append(name)
    for causes, names in by_causes.items():
        rest = tuple(rule for rule in column.rules if rule.name not in causes.split(", "))
        repaired = replace(
            replace(column, rules=rest).entry,
            invariants=tuple(name for name in column.model.invariants if name in names),
            properties=tuple(name for name in column.model.properties if name in names),
        )
        judged = judge_model(repaired)
        yield Verdict(
            check=f"{CHECK}-cause",
            name=f"{column.model.name}, Kafka {column.release} without {causes}",
            expected=HOLDS,
            found=_words(judged.violated) if judged.outcomes else "; ".join(judged.problems),
            ok=not judged.violated and not judged.problems and set(judged.outcomes) == set(names),
            seconds=judged.seconds,
            title=", ".join(names),
            evidence="\n".join(judged.problems),
        )


def counterexample(column: Column, name: str) -> str:
    """The shortest way to a violation, told step by step."""
    model = replace(
        column.entry,
        invariants=(name,) if name in column.model.invariants else (),
        properties=(name,) if name in column.model.properties else (),
        expect=Expectation(violates=name),
    )
    with progress_console.status(f"{column.name}: TLC looks for the shortest way to a violation of {name}"):
        return story(check_model(model))


def run(arguments: argparse.Namespace, models: Sequence[Model], registry: Registry) -> int:
    """Run ``models --kafka RELEASE``.

    Raises:
        MalformedRegistry: when a release is not known, or an entry cannot be used.
    """
    releases = Releases(registry.folder.parent)
    modules = {model.module for model in models}
    names = list(dict.fromkeys(releases.chosen(name, modules) for name in arguments.kafka))
    done, verdicts = [], []
    jobs = arguments.jobs or os.cpu_count() or 1
    for drawn, judged in check_columns(columns(models, names, releases), jobs=jobs, timeout=arguments.timeout):
        column = drawn
        if arguments.update and judged is not None:
            column = _updated(registry, drawn, judged, releases)
        done.append((column, judged))
        verdicts.append(to_verdict(column, judged, releases))
        said = f"{'ok  ' if verdicts[-1].ok else 'FAIL'} {verdicts[-1].name}: {verdicts[-1].found}"
        progress_console.print(said, markup=False)
        if arguments.causes:
            verdicts += without_causes(column, releases)
    print_verdicts(verdicts, "models")
    named = bool(arguments.models) and len(models) <= MOST_TOLD
    for column, judged in done:
        expected = _expected_violations(column.model, column.expected(releases))
        for name in judged.violated if judged else ():
            if (name in arguments.tell) if arguments.tell else (named or name not in expected):
                answer_console.print(f"\n{column.name}\n{counterexample(column, name)}", markup=False, soft_wrap=True)
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def _updated(registry: Registry, column: Column, judged: Judged, releases: Releases) -> Column:
    """Write what was found into the registry; returns the column with it.

    The rules behind a new violation are for a person to name.
    """
    model, expected = column.model, column.expected(releases)
    if (model.expect.violates and expected is None) or judged.problems:
        return column
    known = expected.violates if expected else {}
    broken = {name: known.get(name, UNNAMED) for name in judged.violated if name != model.expect.violates}
    silent = tuple(name for name in judged.silent if name not in model.silent)
    never = expected.never if expected else None
    found = Shipped(violates=broken, silent=silent, never=never, states=judged.states or None)
    shared = expected is not None and column.release not in model.shipped
    if found == expected or shared:
        return column
    registry.update_shipped(model.name, column.release, found)
    progress_console.print(f"{model.file}: {model.name} updated", markup=False)
    return replace(column, model=replace(model, shipped={**model.shipped, column.release: found}))
