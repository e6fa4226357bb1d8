"""``kafka-eos check all``: small models, mutants, properties, graphs, traces, proofs, recordings; then the report.

Models and contracts are checked by the repaired rules, and by those of each release of Kafka as it ships.
"""

import argparse
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from kafka_eos_checks.audit.audit import audit
from kafka_eos_checks.audit.engines.opening import ENGINES
from kafka_eos_checks.contracts import command as contract_check
from kafka_eos_checks.graphs import command as conformance
from kafka_eos_checks.graphs import model_check, release_check
from kafka_eos_checks.kit.missing import need_clone
from kafka_eos_checks.kit.paths import build_folder, recordings_folder
from kafka_eos_checks.kit.recording import kept_recordings, manifest_of
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.unjudged import exit_code
from kafka_eos_checks.kit.verdict import Standing, Verdict, counted, headline, write_verdicts
from kafka_eos_checks.lab.costs.command import KEPT
from kafka_eos_checks.lab.costs.verdicts import read_evidence
from kafka_eos_checks.lab.costs.verdicts import verdicts as cost_verdicts
from kafka_eos_checks.ledger.report import latest_verdicts, write_report
from kafka_eos_checks.matrix import release_replays
from kafka_eos_checks.matrix.conjuncts import command as conjuncts
from kafka_eos_checks.models import witnesses
from kafka_eos_checks.models.registry import MalformedRegistry, Model, Registry
from kafka_eos_checks.models.releases import Releases, columns
from kafka_eos_checks.proofs import command as proof_check
from kafka_eos_checks.simulate.transactions import scenarios
from kafka_eos_checks.traces import command as trace_check

PARTS = (
    *("models", "releases", "mutants", "properties", "graphs", "traces", "proofs", "contracts"),
    *("simulations", "costs", "recordings"),
)
CAUSES = "causes"  # the table of expected.toml with what is behind the findings
UNJUDGED = "unjudged"  # its table with the number of things that a rule cannot judge
AS_EXPECTED = "expected of the recording"  # the reason of these
PEOPLE = frozenset({"the operator", "the application"})  # who is the cause where no finding of the ledger is
CONTRACT_SECONDS = 2.0  # CPU time for each contract; those that are confirmed within it take less than one second
EPILOG = """examples:
  kafka-eos check all                  what `make check` runs
  kafka-eos check all --engine local   without Spark
  kafka-eos check all --only graphs

exit codes: 0 all verdicts as expected, 1 a verdict differs, 2 something cannot be run, 3 something is not judged
"""


Parts: TypeAlias = dict[str, Callable[[], Iterator[Verdict]]]
"""The parts of a job by name, in the order in which they run."""


def models(registry: Registry) -> Iterator[Verdict]:
    """Whether every property has a witness, and TLC on the models of the small tier."""
    yield from of_models(registry, model_check.select(registry, [], "small", mutants=False))


def of_models(registry: Registry, chosen: Sequence[Model]) -> Iterator[Verdict]:
    """Whether every property of the registry has a witness, then TLC on models."""
    yield witnesses.verdict(registry)
    yield from checked(chosen)


def releases(registry: Registry) -> Iterator[Verdict]:
    """TLC on the models of the small tier by the rules of each release of Kafka as it ships."""
    known = Releases(registry.folder.parent)
    small = model_check.select(registry, [], "small", mutants=False)
    chosen = columns(small, list(known.releases), known)
    for column, judged in release_check.check_columns(chosen, jobs=os.cpu_count() or 1):
        verdict = release_check.to_verdict(column, judged, known)
        if judged is not None:
            _say(verdict)
        yield verdict


def mutants(registry: Registry) -> Iterator[Verdict]:
    """TLC on the mutants of the small tier: each must violate the property it names."""
    yield from checked(model_check.select(registry, [], "small", mutants=True))


def properties(registry: Registry, modules: Sequence[str]) -> Iterator[Verdict]:
    """Each part of the properties of these modules: some mutant has to notice a weaker version."""
    for verdict in conjuncts.judged(registry, modules):
        _say(verdict)
        yield verdict


def checked(chosen: Sequence[Model]) -> Iterator[Verdict]:
    """TLC on models or mutants; each verdict goes to standard error as it comes."""
    for outcome in model_check.check_models(chosen):
        verdict = model_check.to_verdict(outcome)
        _say(verdict)
        yield verdict


def _say(verdict: Verdict) -> None:
    mark = "ok  " if verdict.ok else "FAIL"
    progress_console.print(f"{mark} {verdict.check} {verdict.name}: {verdict.found}, {verdict.seconds:.0f} s")


def graphs(registry: Registry) -> Iterator[Verdict]:
    """The reference's state graphs against TLC's."""
    chosen = [model for model in registry.models.values() if model.graph == "small"]
    yield from conformance.check(registry, chosen)


def traces(registry: Registry) -> Iterator[Verdict]:
    """Recorded, simulated and told runs against the spec."""
    yield from trace_check.check(registry)


def proofs() -> Iterator[Verdict]:
    """The proofs that z3 discharges."""
    yield from proof_check.proved(proof_check.proofs(()))


def contracts() -> Iterator[Verdict]:
    """The contracts that CrossHair tries to break, by the repaired rules and by those of each release of Kafka."""
    yield from contract_check.checked((), CONTRACT_SECONDS)
    for release in Releases().releases:
        yield from contract_check.of_kafka((), release, CONTRACT_SECONDS)


def simulations(registry: Registry) -> Iterator[Verdict]:
    """The named failures of transactions, and the rules of the audit by the repaired rules and by each release."""
    yield from scenarios()
    yield from release_replays.check(registry)


def costs() -> Iterator[Verdict]:
    """The claims about costs, judged by the codec and the kept figures of a measurement."""
    yield from cost_verdicts(read_evidence(KEPT))


def recordings(engine: str, archives: Sequence[Path]) -> Iterator[Verdict]:
    """The audit of each of these recordings, against what ``expected.toml`` says is in it."""
    expected = tomllib.loads((recordings_folder() / "expected.toml").read_text(encoding="utf-8"))
    with ExitStack() as stack:
        spark = None
        if engine == "spark":
            from kafka_eos_checks.audit.engines.spark import session  # noqa: PLC0415 - the light install has no Spark

            progress_console.print("starting Spark")
            spark = stack.enter_context(session())
        for recording in archives:
            name = recording.name.removesuffix(".tar.xz")
            progress_console.print(f"auditing the recording {name} ({engine})")
            release = manifest_of(recording)["kafka"]
            known = expected.get(name, {})
            causes, unjudged = (expected[table].get(name, {}) for table in (CAUSES, UNJUDGED))
            absent = set(known)
            for verdict in audit([recording], engine, spark=spark):
                absent.discard(verdict.name)
                if verdict.standing is not Standing.NOTHING or verdict.name in known:
                    figures = {**verdict.figures, **_figures(release, causes.get(verdict.name, ""))}
                    own = replace(verdict, figures=figures)
                    yield _of_recording(own, name, known.get(own.name, 0), unjudged.get(own.name, 0))
            for rule in sorted(absent):
                nothing = Verdict(check="replay", name=rule, expected="", found="no such rule", ok=False)
                yield _of_recording(nothing, name, known[rule])


def _figures(release: str, cause: str) -> dict[str, str]:
    """The release of a recording, and the finding of the ledger behind what a rule finds there."""
    return {"Kafka": release} | ({} if cause in {"", *PEOPLE} else {"findings": cause})


def _of_recording(verdict: Verdict, recording: str, findings: int, unjudged: int = 0) -> Verdict:
    """The verdict under the recording's name; the numbers of findings and of things not judged have to be right."""
    named = replace(verdict, name=f"{recording}: {verdict.name}")
    if findings:
        expected = counted(findings, "finding")
        named = replace(named, expected=expected, ok=verdict.found == expected)
    if verdict.unknown != unjudged:
        expected = f"{named.expected}, {unjudged:,} not judged"
        return replace(named, expected=expected, found=f"{named.found}, {verdict.unknown:,} not judged", ok=False)
    return replace(named, unjudged_for={AS_EXPECTED: unjudged}) if unjudged else named


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``all``."""
    parser = subparsers.add_parser(
        "all",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=ENGINES, default="spark", help="the audit's engine (default spark)")
    parser.add_argument("--only", choices=PARTS, help="one part of the job")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the job, print and write its verdicts."""

    def parts(registry: Registry) -> Parts:
        every: Parts = {
            "models": lambda: models(registry),
            "releases": lambda: releases(registry),
            "mutants": lambda: mutants(registry),
            "properties": lambda: properties(registry, (*conjuncts.SECONDS, *conjuncts.HALF_A_MINUTE)),
            "graphs": lambda: graphs(registry),
            "traces": lambda: traces(registry),
            "proofs": proofs,
            "contracts": contracts,
            "simulations": lambda: simulations(registry),
            "costs": costs,
            "recordings": lambda: recordings(arguments.engine, kept_recordings()),
        }
        return {arguments.only: every[arguments.only]} if arguments.only else every

    return run_parts(parts, from_clone=arguments.only in {None, "traces", "recordings"})


def run_parts(parts: Callable[[Registry], Parts], *, prefix: str = "", from_clone: bool = True) -> int:
    """Run the parts of a job, print and write the verdicts of each as it is done, then write the report.

    A part without a verdict fails.

    Args:
        parts: the parts of the job for a registry.
        prefix: the prefix of the names of the verdict files.
        from_clone: whether some part needs the kept recordings.
    """
    if from_clone:
        need_clone("the kept recordings")
    try:
        chosen = parts(Registry())
    except MalformedRegistry as error:
        print(f"kafka-eos check: {error}", file=sys.stderr)
        return 2
    started = time.perf_counter()
    verdicts: list[Verdict] = []
    for name, part in chosen.items():
        found = sorted(part(), key=lambda verdict: verdict.name) or [_without_verdicts(name)]
        print_verdicts(found, name)
        write_verdicts(build_folder() / "verdicts" / f"{prefix}{name}.json", found)
        verdicts += found
    return finish(verdicts, time.perf_counter() - started)


def _without_verdicts(part: str) -> Verdict:
    """The verdict on a part of a job that has none of its own."""
    return Verdict(check=part, name=f"the part {part}", expected="verdicts", found="nothing was judged", ok=False)


def finish(verdicts: Sequence[Verdict], seconds: float) -> int:
    """Write the report of all verdicts in the build folder, and return the exit code for this run's."""
    page = build_folder() / "report.html"
    write_report(latest_verdicts(build_folder() / "verdicts"), page)
    answer_console.print(f"\n{headline(verdicts)}, in {seconds:.0f} s. Report: {_shown(page)}")
    return exit_code(verdicts, frozenset({AS_EXPECTED})) if verdicts else 1


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
