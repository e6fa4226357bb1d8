"""The command ``kafka-eos``: one subcommand a capability.

Each subsystem has a module ``command.py`` (or a module of its own name) with ``add_parser(subparsers)``, which
sets ``run``: a function from the parsed arguments to the exit code. Modules are imported only when their
subcommand is asked for, so that the light install needs no JVM and no Spark.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from kafka_eos_checks.arguments import Parser, standard_output
from kafka_eos_checks.missing import Missing

# subcommand -> (module that has add_parser, one line for --help)
SUBCOMMANDS = {
    "verify": (
        "kafka_eos_checks.verify",
        "the main job: small models, graph equality, audit of the recording, report",
    ),
    "model-check": (
        "kafka_eos_checks.model_check",
        "check the TLA+ models with TLC, expected failures included",
    ),
    "conformance": (
        "kafka_eos_checks.conformance",
        "compare the reference's state graphs with TLC's, refusals included",
    ),
    "prove": (
        "kafka_eos_checks.proofs.command",
        "prove invariants of the reference without bounds, with z3",
    ),
    "contracts": ("kafka_eos_checks.contracts.command", "try to break contracts of the reference, with CrossHair"),
    "mutants": (
        "kafka_eos_checks.mutant_matrix",
        "every mutant against TLC, graph equality and replay",
    ),
    "conjuncts": (
        "kafka_eos_checks.conjuncts.command",
        "take away every conjunct of every guard, in the spec and in the reference",
    ),
    "traces": (
        "kafka_eos_checks.traces.command",
        "validate recorded and simulated runs against the spec, with two judges",
    ),
    "audit": (
        "kafka_eos_checks.replay.command",
        "audit Kafka log directories and histories, with or without Spark",
    ),
    "headers": (
        "kafka_eos_checks.replay.headers_command",
        "write the batch headers of log directories as Parquet, to audit them elsewhere",
    ),
    "watch": (
        "kafka_eos_checks.watch.command",
        "watch a running cluster: hanging transactions, who holds readers back, duplicates, late data",
    ),
    "explain": ("kafka_eos_checks.explain", "draw a history around what an audit found in it"),
    "simulate": ("kafka_eos_checks.simulate.command", "run the reference under seeded faults and write the history"),
    "soak": (
        "kafka_eos_checks.soak.command",
        "walk every machine under swarms of faults, judged by the spec's own properties",
    ),
    "generate": ("kafka_eos_checks.generate", "write logs of any size with planted violations at known places"),
    "sinks": ("kafka_eos_checks.sinks", "kill a consumer at every step of its updates of a real database"),
    "serve": ("kafka_eos_checks.served.command", "a Kafka cluster for tests: real clients run on the reference"),
    "conform": (
        "kafka_eos_checks.conform.command",
        "the spec's behaviours as raw requests against any broker: conforms, diverges, and why",
    ),
    "peers": (
        "kafka_eos_checks.conform.peers_command",
        "conform against the reference, Apache Kafka and its imitations, on one page",
    ),
    "costs": ("kafka_eos_checks.costs.command", "what exactly-once costs: bytes, requests, throughput, latency"),
    "record": ("kafka_eos_checks.record.command", "record a real Kafka under faults"),
    "claims": ("kafka_eos_checks.claims_command", "what is said about exactly-once semantics, and what was found"),
    "findings": (
        "kafka_eos_checks.findings_command",
        "what checking found in Apache Kafka: what shows it, what it means, what mends it",
    ),
    "report": ("kafka_eos_checks.report", "write the HTML report from the verdicts of earlier commands"),
    "bench": (
        "kafka_eos_checks.bench.command",
        "measure codec, replay, graph comparison and server against their peers",
    ),
    "fuzz": ("kafka_eos_checks.fuzz.command", "feed mutated record batches to the codec"),
}

DESCRIPTION = "An executable, machine-checked reference of Apache Kafka's exactly-once semantics."
EPILOG = """examples:
  kafka-eos findings
  kafka-eos audit example:violations
  kafka-eos audit /var/lib/kafka/data --json -
  kafka-eos serve
  kafka-eos simulate --seed 7
  kafka-eos model-check LateEndIsNotAtomic
  kafka-eos model-check --tier small
  kafka-eos conformance PartitionLog

Each command has a --help of its own, with examples.

exit codes: 0 all verdicts as expected, 1 a verdict differs, 2 the input or the call cannot be used
"""


class _Version(argparse.Action):
    """Prints the version, which is looked up only then: that takes as long as everything else in a short call."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib import metadata  # noqa: PLC0415

        print(f"kafka-eos {metadata.version('kafka-eos')}")
        parser.exit()


def parser_for(subcommand: str | None) -> Parser:
    """The parser, with the arguments of one subcommand filled in."""
    parser = Parser(
        prog="kafka-eos",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(title="commands", dest="subcommand", metavar="COMMAND", required=True)
    for name, (module, help_line) in SUBCOMMANDS.items():
        if name == subcommand:
            importlib.import_module(module).add_parser(subparsers, help_line)
        else:
            subparsers.add_parser(name, help=help_line)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code; without one, show what there is."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    subcommand = next((word for word in given if word in SUBCOMMANDS), None)
    try:
        parser = parser_for(subcommand)
        if not given:
            parser.print_help()
            return 2  # nothing was checked, so this is no success
        parsed = parser.parse_args(given)
        with standard_output(parsed):
            return int(parsed.run(parsed))
    except Missing as missing:
        print(f"kafka-eos: {missing}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
