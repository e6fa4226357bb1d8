"""``kafka-eos audit``: log directories, recordings and histories, judged by the rules of exactly-once."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_eos_checks.replay.audit import Audit

EPILOG = """examples:
  kafka-eos audit /var/lib/kafka/data
  kafka-eos audit broker-1 broker-2 broker-3 --spark --findings findings.parquet
  kafka-eos audit recording.tar.xz --json verdicts.json
  kafka-eos audit /var/lib/kafka/data --history sends.jsonl
  kafka-eos audit clients.jsonl
  kafka-eos audit store/kafka/latest/history.edn
  kafka-eos audit /var/lib/kafka/data --oracle --html audit.html --redact
  kafka-eos audit hdfs://name/copies/broker-1 --sink audits.findings

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
anomalies of a history of Jepsen's workload for Kafka, as Jepsen defines and names them: :G1a, :lost-write, :unseen,
  :duplicate, :inconsistent-offsets, :precommitted-read, :poll-skip, :nonmonotonic-poll, :int-poll-skip,
  :int-nonmonotonic-poll, :nonmonotonic-send, :int-nonmonotonic-send, :int-send-skip, :G1c, :G1c-process,
  :G1c-realtime, :G0, G1c by order

Transactions are judged by the logs of __transaction_state that are given with them, of the same cluster. A history
alone is judged by what clients and readers tell; what only a log could tell is counted as unknown.
Values are looked at only where a history is given, which has them too. The files are only read. Of a running broker
audit a copy, or expect an unfinished tail. Compacted topics have holes in their offsets; a sequence that is missing
there is not reported. What Jepsen allows (writes that interleave, skips of consumers that subscribe) is told in the
verdict's evidence and is no finding.

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
        metavar="PATH",
        help="a log directory, a folder of several brokers' or of tables that `kafka-eos headers` made, a recording "
        "(folder or .tar.xz), a history (.jsonl, .parquet), or one of Jepsen's (.edn); "
        "a URI is copied here by Spark's Hadoop",
    )
    parser.add_argument("--history", action="append", default=[], metavar="FILE", help="one more history")
    parser.add_argument(
        "--as-jepsen",
        type=Path,
        metavar="FILE",
        help="write the history of one run as Jepsen has it (.edn), for its own checker",
    )
    parser.add_argument("--spark", action="store_true", help="audit on Spark (a local one, or the active session)")
    parser.add_argument("--no-crc", action="store_true", help="do not compare batches with their CRC")
    parser.add_argument(
        "--oracle",
        nargs="?",
        type=_share,
        const=1.0,
        metavar="SHARE",
        help="let the readable rule judge the logs again, or a share of them (0.1); both have to find the same",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which logs --oracle takes (default 0)")
    parser.add_argument("--redact", action="store_true", help="evidence names no value, transactional id or group")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts")
    parser.add_argument(
        "--findings", type=Path, metavar="FILE", help="write all findings, as .jsonl, .csv or .parquet by the name"
    )
    parser.add_argument("--sink", metavar="TABLE", help="append all findings to a table of Spark's catalog")
    parser.add_argument("--sink-format", default="parquet", metavar="NAME", help="of a new table (default parquet)")
    parser.set_defaults(run=run, parser=parser)


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError
    return share


def run(arguments: argparse.Namespace) -> int:
    """Audit, print, write; returns the exit code."""
    from kafka_eos.history import MalformedHistory  # noqa: PLC0415 - `--help` needs no numpy
    from kafka_eos.log_directory import NotALogDirectory  # noqa: PLC0415
    from kafka_eos_checks.replay.findings import check_suffix  # noqa: PLC0415
    from kafka_eos_checks.replay.inputs import UnusableInput  # noqa: PLC0415
    from kafka_eos_checks.terminal import print_verdicts  # noqa: PLC0415

    if arguments.oracle and arguments.no_crc:
        arguments.parser.error("--oracle compares with a decoder that always looks at the CRC; leave out --no-crc")
    try:
        if arguments.findings:
            check_suffix(arguments.findings)
        result = _audit_and_write(arguments)
    except (UnusableInput, NotALogDirectory, MalformedHistory, OSError) as error:
        print(f"kafka-eos audit: {error}", file=sys.stderr)
        return 2
    print_verdicts(result.verdicts)
    if result.logs and not sum(log.batches for log in result.logs):
        print("kafka-eos audit: no batch could be read", file=sys.stderr)
        return 2
    return 0 if all(verdict.ok for verdict in result.verdicts) else 1


def _audit_and_write(arguments: argparse.Namespace) -> "Audit":
    """Audit, with a session of Spark if anything needs one, and write what was asked for."""
    from kafka_eos_checks.replay import audit, findings, remote  # noqa: PLC0415
    from kafka_eos_checks.verdict import write_verdicts  # noqa: PLC0415

    given = [*arguments.paths, *arguments.history]
    uris = [path for path in given if remote.is_uri(path)]
    with ExitStack() as stack:
        spark = None
        if arguments.spark or uris or arguments.sink:
            from kafka_eos_checks.replay.spark import session  # noqa: PLC0415 - the light install has no Spark

            spark = stack.enter_context(session())
        local = iter(stack.enter_context(remote.copied(uris, spark)) if uris and spark is not None else [])
        here = [next(local) if remote.is_uri(path) else Path(path) for path in given]
        result = audit.run(
            here[: len(arguments.paths)],
            "spark" if arguments.spark else "local",
            histories=here[len(arguments.paths) :],
            check_crc=not arguments.no_crc,
            oracle=arguments.oracle,
            seed=arguments.seed,
            redact=arguments.redact,
            spark=spark,
            as_jepsen=arguments.as_jepsen,
        )
        if arguments.json:
            write_verdicts(arguments.json, result.verdicts)
        if arguments.findings:
            findings.write_findings(arguments.findings, result.findings)
        if arguments.html:
            from kafka_eos_checks.report import write_page  # noqa: PLC0415 - templates take their time to load

            write_page(result.verdicts, arguments.html)
        if arguments.sink and spark is not None:
            findings.append_to_table(spark, arguments.sink, arguments.sink_format, result.findings)
    return result
