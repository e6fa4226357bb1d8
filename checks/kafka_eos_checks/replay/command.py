"""``kafka-eos audit``: log directories, recordings and histories, judged by the rules of exactly-once."""

import argparse
import sys
from pathlib import Path
from typing import Any

EPILOG = """examples:
  kafka-eos audit /var/lib/kafka/data
  kafka-eos audit broker-1 broker-2 broker-3 --spark --findings findings.parquet
  kafka-eos audit recording.tar.xz --json verdicts.json
  kafka-eos audit /var/lib/kafka/data --history sends.jsonl
  kafka-eos audit clients.jsonl

rules over logs: order, stale epoch, duplicate, gap
rules over __transaction_state: illegal coordinator transition, decision changed
rules over transactions: torn transaction, hanging transaction, marker without transaction,
  fenced producer committed, marker of an old coordinator
rules over __consumer_offsets: committed offset went back
rules over what lies beside a log: aborted index, producer snapshot, replicas differ
rules over histories: acknowledged but lost, duplicate value, refused without cause,
  transaction committed without its application, committed record missing
rules over readers: aborted record delivered, precommitted read, poll skip, non-monotonic poll, inconsistent offsets,
  last stable offset went back
rules over applications: input processed twice, input skipped, output without its offset, offset without its output,
  fenced generation committed

Transactions are judged by the logs of __transaction_state that are given with them, of the same cluster. A history
alone is judged by what clients and readers tell; what only a log could tell is counted as unknown.
The files are only read. Of a running broker audit a copy, or expect an unfinished tail. Compacted topics have holes in
their offsets; a sequence that is missing there is not reported.

exit codes: 0 no violation, 1 violations or corrupt regions, 2 the input or the call cannot be used
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add the subcommand ``audit``."""
    parser = subparsers.add_parser(
        "audit",
        help=help_line,
        description="Audit Kafka log directories, recordings and client histories.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a log directory, a folder of several brokers', a recording (folder or .tar.xz), or a .jsonl history",
    )
    parser.add_argument("--history", action="append", type=Path, default=[], metavar="FILE", help="one more history")
    parser.add_argument("--spark", action="store_true", help="audit on Spark (a local one, or the active session)")
    parser.add_argument("--no-crc", action="store_true", help="do not compare batches with their CRC")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts")
    parser.add_argument(
        "--findings", type=Path, metavar="FILE", help="write all findings, as .jsonl, .csv or .parquet by the name"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Audit, print, write; returns the exit code."""
    from kafka_eos.history import MalformedHistory  # noqa: PLC0415 - `--help` needs no numpy
    from kafka_eos.log_directory import NotALogDirectory  # noqa: PLC0415
    from kafka_eos_checks.replay import audit  # noqa: PLC0415
    from kafka_eos_checks.replay.findings import check_suffix, write_findings  # noqa: PLC0415
    from kafka_eos_checks.replay.inputs import UnusableInput  # noqa: PLC0415
    from kafka_eos_checks.terminal import print_verdicts  # noqa: PLC0415
    from kafka_eos_checks.verdict import write_verdicts  # noqa: PLC0415

    try:
        if arguments.findings:
            check_suffix(arguments.findings)
        result = audit.run(
            arguments.paths,
            "spark" if arguments.spark else "local",
            histories=arguments.history,
            check_crc=not arguments.no_crc,
        )
        if arguments.json:
            write_verdicts(arguments.json, result.verdicts)
        if arguments.findings:
            write_findings(arguments.findings, result.findings)
    except (UnusableInput, NotALogDirectory, MalformedHistory, OSError) as error:
        print(f"kafka-eos audit: {error}", file=sys.stderr)
        return 2
    print_verdicts(result.verdicts)
    if result.logs and not sum(log.batches for log in result.logs):
        print("kafka-eos audit: no batch could be read", file=sys.stderr)
        return 2
    return 0 if all(verdict.ok for verdict in result.verdicts) else 1
