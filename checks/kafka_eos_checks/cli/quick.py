"""``kafka-eos check``: something of each floor, in minutes; ``kafka-eos check all`` checks all of it.

For each TLA+ module: its main model, one mutant of it, and the equality of its state graph with the reference's. For
small modules also whether some mutant notices each part of their properties. Then the proofs without bounds, the audit
of the small recordings on Spark, and the report.
"""

import argparse
from collections.abc import Iterable
from functools import partial
from typing import Any

ENGINES = ("local", "spark")
KNOWN_FAILURES = ("LateEndIsNotAtomic",)  # the one in the README
TIER = "small"
EPILOG = """examples:
  kafka-eos check                   what `make` runs
  kafka-eos check --engine local    without Spark
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``check``."""
    parser = subparsers.add_parser(
        "check",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=ENGINES, default="spark", help="the audit's engine (default spark)")
    parser.set_defaults(run=run)


def main_models(models: Iterable[Any]) -> dict[str, Any]:
    """The main model of each module: the first of the small tier whose graph is compared, else the first that holds."""
    holding = [model for model in models if model.tier == TIER and not model.expect.violates]
    found = {model.module: model for model in reversed(holding)}
    return found | {model.module: model for model in reversed(holding) if model.graph == TIER}


def one_mutant_each(mutants: Iterable[Any]) -> dict[str, Any]:
    """The first mutant of the small tier of each module."""
    return {mutant.module: mutant for mutant in reversed([*mutants]) if mutant.tier == TIER}


def run(arguments: argparse.Namespace) -> int:
    """Run the parts, print and write their verdicts, and write the report."""
    from kafka_eos_checks.cli import verify  # noqa: PLC0415 - `--help` needs none of it
    from kafka_eos_checks.graphs import command as conformance  # noqa: PLC0415 - `--help` needs none of it
    from kafka_eos_checks.kit.recording import example_recordings  # noqa: PLC0415
    from kafka_eos_checks.matrix.conjuncts import command as conjuncts  # noqa: PLC0415

    def parts(registry: Any) -> verify.Parts:
        models = main_models(registry.models.values())
        failures = [registry.get(name) for name in KNOWN_FAILURES]
        compared = [model for model in models.values() if model.graph == TIER]
        return {
            "models": partial(verify.of_models, registry, [*models.values(), *failures]),
            "mutants": partial(verify.checked, [*one_mutant_each(registry.mutants.values()).values()]),
            "properties": partial(verify.properties, registry, conjuncts.SECONDS),
            "graphs": partial(conformance.check, registry, compared),
            "proofs": verify.proofs,
            "recordings": partial(verify.recordings, arguments.engine, example_recordings()),
        }

    return verify.run_parts(parts, prefix="quick-")
