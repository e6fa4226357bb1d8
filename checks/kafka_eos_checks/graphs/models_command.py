"""``check models``: run the models that are named, or those of a tier, and show what TLC found."""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from kafka_eos_checks.graphs import model_check, release_check
from kafka_eos_checks.graphs.model_check import MOST_TOLD, Outcome, check_models, judge, select, to_verdict
from kafka_eos_checks.kit.arguments import above_zero, add_json, at_least_one
from kafka_eos_checks.kit.missing import need_clone
from kafka_eos_checks.kit.outputs import write_text
from kafka_eos_checks.kit.paths import build_folder
from kafka_eos_checks.kit.terminal import WordTable, answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.models.registry import TIERS, MalformedRegistry, Model, Registry


def _listing(models: Iterable[Model]) -> Table:
    table = WordTable("kind", "name", "tier", "expected", "states", "title")
    for model in models:
        states = f"{model.expect.states:,}" if model.expect.states is not None else ""
        table.add_row(model.kind, model.name, model.tier, model.expect.words, states, model.title)
    return table


EPILOG = """examples:
  kafka-eos check models                        the small models
  kafka-eos check models LateEndIsNotAtomic     a known failure, told step by step, with a diagram
  kafka-eos check models --tier full --json build/models.json
  kafka-eos check models PartitionLog --update  write the numbers it finds into spec/models/<Module>.toml
  kafka-eos check models --mutants              each mutant must violate the property it names
  kafka-eos check models --kafka 4.3            by the rules of Kafka 4.3 as it ships, every property for itself
  kafka-eos check models TransactionsNoLeader --kafka 4.3 --tell NoHangingTransaction
  kafka-eos check models PartitionLog --kafka 4.3 --kafka 3.9 --causes
  kafka-eos check models --list --tier deep
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``models``."""
    parser = subparsers.add_parser(
        "models",
        help=help_line,
        description=model_check.__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="models or mutants; default: all of the tier")
    parser.add_argument("--tier", choices=TIERS, default="small", help="this tier and those before it (default small)")
    parser.add_argument("--mutants", action="store_true", help="the mutants of the models instead of the models")
    parser.add_argument(
        "--kafka",
        action="append",
        metavar="RELEASE",
        help="by the rules of this release of Kafka as it ships (spec/releases.toml); may be given again",
    )
    parser.add_argument(
        "--causes", action="store_true", help="with --kafka: without the rules that break a property it must hold"
    )
    parser.add_argument(
        "--tell",
        action="append",
        metavar="PROPERTY",
        help="with --kafka: show how this property is violated, and no other; may be given again",
    )
    parser.add_argument("--list", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("--update", action="store_true", help="write the numbers into the registry")
    add_json(parser)
    parser.add_argument("--jobs", type=at_least_one, metavar="N", help="models at a time (default: one a processor)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="TLC's threads for each model (default 1)")
    parser.add_argument("--timeout", type=above_zero, default=900.0, metavar="S", help="seconds for each model")
    parser.set_defaults(run=run)


def shown(outcomes: Sequence[Outcome], verdicts: Sequence[Verdict], *, named: bool) -> Iterator[str]:
    """The lines below the table: stories of expected counterexamples, and where diagrams are.

    The story of an unexpected one is evidence of a verdict that differs, and printed with it.

    Args:
        outcomes: the outcomes of the models that ran.
        verdicts: the verdicts on them.
        named: whether the caller has named the models.
    """
    failing = [verdict for outcome, verdict in zip(outcomes, verdicts, strict=True) if outcome.result.behaviour]
    tell_all = named and len(outcomes) <= MOST_TOLD
    for verdict in failing:
        if verdict.ok and tell_all:
            yield f"\n{verdict.evidence}"
        if verdict.diagram and (tell_all or not verdict.ok):
            yield f"Diagram of {verdict.name}: {_write_diagram(verdict)}"
    untold = [verdict.name for verdict in failing if verdict.ok and not tell_all]
    if untold:
        several = f"{len(untold)} counterexamples are" if len(untold) > 1 else "1 counterexample is"
        yield f"{several} as expected and not shown; `kafka-eos check models {untold[0]}` tells one as a story"


def _write_diagram(verdict: Verdict) -> Path:
    """Write a diagram next to the model; returns its path, from the current folder where it is inside."""
    file = build_folder() / "models" / verdict.name / "counterexample.svg"
    write_text(file, verdict.diagram)
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file


def run(arguments: argparse.Namespace) -> int:
    """Run ``models``."""
    if arguments.update:
        need_clone("a registry that may be written")
    try:
        registry = Registry()
        models = select(registry, arguments.models, arguments.tier, mutants=arguments.mutants)
        if arguments.list:
            answer_console.print(_listing(models))
            return 0
        if ((arguments.causes or arguments.tell) and not arguments.kafka) or (arguments.kafka and arguments.mutants):
            said = "--causes and --tell need --kafka, and --kafka takes no --mutants"
            print(f"kafka-eos check models: {said}", file=sys.stderr)
            return 2
        judged = {name for model in models for name in (*model.invariants, *model.properties)}
        if unknown := [name for name in arguments.tell or () if name not in judged]:
            said = f"these models do not judge {', '.join(unknown)}; --tell takes one of {', '.join(sorted(judged))}"
            print(f"kafka-eos check models: {said}", file=sys.stderr)
            return 2
        if models and arguments.kafka:
            return release_check.run(arguments, models, registry)
        if not models:
            print("kafka-eos check models: nothing to run; name a model or another --tier", file=sys.stderr)
            return 2
        outcomes = check_models(models, jobs=arguments.jobs, workers=arguments.workers, timeout=arguments.timeout)
        by_name = {}
        for outcome in outcomes:
            by_name[outcome.model.name] = outcome
            progress_console.print(f"{'ok  ' if outcome.ok else 'FAIL'} {outcome.model.name}: {outcome.said}")
        in_order = [by_name[model.name] for model in models]
        if arguments.update:
            in_order = [_updated(registry, outcome, arguments.workers) for outcome in in_order]
    except MalformedRegistry as error:
        print(f"kafka-eos check models: {error}", file=sys.stderr)
        return 2
    verdicts = [to_verdict(outcome) for outcome in in_order]
    print_verdicts(verdicts, "mutants" if arguments.mutants else "models")
    for text in shown(in_order, verdicts, named=bool(arguments.models)):
        answer_console.print(text, markup=False, soft_wrap=True)
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(verdict.ok for verdict in verdicts) else 1


def _updated(registry: Registry, outcome: Outcome, workers: int) -> Outcome:
    """Write a model's numbers if its verdict is the expected one; returns the outcome against what is written."""
    model = outcome.model
    if model.kind != "model" or outcome.found != model.expect.words or outcome.measured == model.expect:
        return outcome
    registry.update(model.name, outcome.measured)
    progress_console.print(f"{registry.folder}: {model.name} updated")
    return judge(replace(model, expect=outcome.measured), outcome.result, workers=workers)
