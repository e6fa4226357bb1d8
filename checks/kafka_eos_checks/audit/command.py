"""``kafka-eos audit``: log directories, recordings and histories, judged by the rules of exactly-once."""

import argparse
import os
import sys
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from kafka_eos_checks.kit.arguments import add_json, add_source_arguments, at_least_one
from kafka_eos_checks.kit.memory import without_collections
from kafka_eos_checks.kit.recording import given_path
from kafka_eos_checks.kit.unjudged import add_allow_unjudged, exit_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka_eos_checks.audit.audit import Audit
    from kafka_eos_checks.audit.engines.cost import Bill
    from kafka_eos_checks.audit.plan.found import Found

OUTPUTS = ("as_jepsen", "findings", "json", "html")  # arguments that name files
SHOWN_NOTES = 10  # findings of each kind on the terminal
UNJUDGED_REASONS = frozenset(  # the codes of all reasons that the rules give
    {
        *("ambiguous", "compacted", "damaged", "first-sequence", "history", "holes", "incomplete", "links"),
        *("logs-missing", "made-again", "misnamed", "missing-partition", "mixed-topics", "no-coordinator-log"),
        *("no-epoch", "other-moment", "too-deep", "unknown-producer"),
    }
)
EPILOG = """examples:
  kafka-eos audit example:violations
  kafka-eos audit /var/lib/kafka/data
  kafka-eos audit broker-1 broker-2 broker-3 --spark --findings findings.parquet
  kafka-eos audit recording.tar.xz --json verdicts.json
  kafka-eos audit /var/lib/kafka/data --history sends.jsonl
  kafka-eos audit clients.jsonl
  kafka-eos audit store/kafka/latest/history.edn
  kafka-eos audit /var/lib/kafka/data --oracle --html audit.html --redact
  kafka-eos audit /copies --spark --explain-cost
  kafka-eos audit s3://bucket/broker-1 s3://bucket/broker-2 --spark --sink audits.findings

  kafka-eos audit /var/lib/kafka/data/orders-0/00000000000000000000.log
  kafka-eos audit /snapshots/broker-1 /snapshots/broker-2 --snapshot

rules over logs: order, stale epoch, duplicate, gap, batch outside transaction, leader epoch went back
rules over __transaction_state: illegal coordinator transition, decision changed
rules over transactions: torn transaction, hanging transaction, marker without transaction,
  fenced producer committed, marker of an old coordinator, data without transaction
rules over __consumer_offsets: committed offset went back, committed offset beyond the end
rules over the files next to a log: aborted index, producer snapshot, replicas differ, leader epoch checkpoint
rules over histories: acknowledged but lost, duplicate value, refused without cause,
  transaction committed without its application, committed record missing
rules over readers: aborted record delivered, precommitted read, poll skip, non-monotonic poll, inconsistent offsets,
  last stable offset went back
rules over applications: input processed twice, input skipped, output without its offset, offset without its output,
  fenced generation committed, offsets not as sent; of declared ones also: input not processed, output of no input
anomalies of a history of Jepsen's workload for Kafka, as Jepsen defines and names them: :G1a, :lost-write, :unseen,
  :duplicate, :inconsistent-offsets, :precommitted-read, :poll-skip, :nonmonotonic-poll, :int-poll-skip,
  :int-nonmonotonic-poll, :nonmonotonic-send, :int-nonmonotonic-send, :int-send-skip, :G1c, :G1c-process,
  :G1c-realtime, :G0, G1c by order

Transactions are judged by the logs of __transaction_state that are given with them, of the same cluster: logs of
several clusters, by meta.properties, are judged cluster by cluster. With a history they are refused. A history
alone is judged by its own events; what only a log could show is counted as unknown.
Values of records are read only if a history is given, which has them too. The files are only read, so the directory of
a running broker can be audited in place; an unfinished tail of a log is no violation. Compacted topics have holes in
their offsets; a sequence that is missing there is not reported. What Jepsen allows (writes that interleave, skips of
consumers that subscribe) is named in the verdict's evidence and is no finding.

Logs of a running broker, and copies made while it wrote, are of different moments. What one log may lack only because
it is the older copy is no violation: it is reported as too recent to judge. --snapshot says that all logs are of one
moment: the brokers stood still, or it is a snapshot of a volume. Recordings always are.

A verdict has three values: ok, FAIL with its findings, or not judged, with the reason. What somebody did on purpose (a
transaction aborted by hand, offsets set back) is reported as "told" and is no violation. Each open transaction is
listed with its producer, since when it is open, what it keeps from readers, and whether somebody will end it.

The terminal and the page show the most urgent rules first: data that is lost, torn, doubled or wrong; then readers or
applications that make no progress; then wrong state of brokers. --json has the order of the list above, --findings is
sorted by place.

exit codes: 0 nothing found, 1 violations, corrupt regions or incomplete logs, 2 the input or the call cannot be used,
  3 nothing found, but something, or all, could not be judged (0 with --allow-unjudged); what is too recent does not
  count
An output that cannot be written is refused before the audit. If writing fails later, the verdicts are printed all the
same, and the exit code is 2.
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
        type=given_path,
        metavar="PATH",
        help="a log directory, a folder of several brokers' directories or of tables that `kafka-eos headers` wrote, "
        "a recording (folder or .tar.xz, or example:NAME for one of this package), a history (.jsonl, .parquet), "
        "or a history of Jepsen (.edn); everything except a packed recording may be a URI",
    )
    parser.add_argument("--history", action="append", default=[], metavar="FILE", help="one more history")
    parser.add_argument(
        "--as-jepsen",
        type=Path,
        metavar="FILE",
        help="write the history of one run in Jepsen's format (.edn), for Jepsen's own checker",
    )
    parser.add_argument("--spark", action="store_true", help="audit on Spark (a local one, or the active session)")
    parser.add_argument(
        "--jobs",
        type=at_least_one,
        metavar="N",
        help="processes, for more than some seconds of work (default: one a processor)",
    )
    parser.add_argument("--no-crc", action="store_true", help="do not compare batches with their CRC")
    parser.add_argument(
        "--oracle",
        nargs="?",
        type=_share,
        const=1.0,
        metavar="SHARE",
        help="let the readable rules judge logs and histories again, or a share of the logs (0.1); all have to agree",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which logs --oracle takes (default 0)")
    add_source_arguments(parser)
    add_allow_unjudged(parser, UNJUDGED_REASONS)
    parser.add_argument(
        "--explain-cost",
        action="store_true",
        help="print the cost of each stage, the driver's own cost, how often each byte was read, and the time to "
        "expect on more cores",
    )
    parser.add_argument("--redact", action="store_true", help="hide values, transactional ids and groups")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page")
    add_json(parser)
    parser.add_argument(
        "--findings",
        type=Path,
        metavar="FILE",
        help="write all findings as .jsonl, .csv or .parquet, by the file's name; `kind` is violation, told, too "
        "recent, not judged or known",
    )
    parser.add_argument(
        "--known",
        type=Path,
        metavar="FILE.jsonl",
        help="do not count violations again that an earlier audit of the same directories, by the same names, wrote "
        "with --findings: the exit code is that of new ones",
    )
    parser.add_argument("--sink", type=_name, metavar="TABLE", help="append all findings to a table of Spark's catalog")
    parser.add_argument(
        "--sink-format", type=_format, default="parquet", metavar="NAME", help="a new table's format (parquet)"
    )
    parser.set_defaults(run=run, parser=parser)


def _name(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("expected the name of a table")
    return text


def _format(text: str) -> str:
    if text.lower() == "csv":
        raise argparse.ArgumentTypeError("a table of CSV loses line breaks and empty text; give --findings FILE.csv")
    return text


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError("expected a share above 0, at most 1")
    return share


def run(arguments: argparse.Namespace) -> int:
    """Audit, print, write; returns the exit code."""
    with _forked_early(arguments):
        return _run(arguments)


@contextmanager
def _forked_early(arguments: argparse.Namespace) -> "Iterator[None]":
    """Let the process that workers are forked from import the audit while this one does, if there is work for them."""
    from kafka_eos_checks.audit.weights import IMPORTED, seem_large  # noqa: PLC0415 - `--help` needs no processes
    from kafka_eos_checks.kit.workers import forked_from  # noqa: PLC0415

    jobs = 1 if arguments.spark else arguments.jobs or os.cpu_count() or 1
    if jobs == 1 or not seem_large(map(Path, (*arguments.paths, *arguments.history))):
        yield
        return
    with forked_from(*IMPORTED):
        yield


def _run(arguments: argparse.Namespace) -> int:
    with without_collections():  # a tenth of the start
        from kafka_eos_checks.audit import audit  # noqa: F401, PLC0415 - with all that it imports

    from kafka_eos.formats.log_directory import NotALogDirectory  # noqa: PLC0415
    from kafka_eos.histories.history import MalformedHistory  # noqa: PLC0415 - `--help` needs no numpy
    from kafka_eos_checks.audit.findings import check_suffix  # noqa: PLC0415
    from kafka_eos_checks.audit.inputs import UnusableInput  # noqa: PLC0415
    from kafka_eos_checks.audit.rules.rule_book import most_urgent_first  # noqa: PLC0415
    from kafka_eos_checks.kit.outputs import check_output, check_outputs  # noqa: PLC0415
    from kafka_eos_checks.kit.terminal import answer_console, print_verdicts  # noqa: PLC0415
    from kafka_eos_checks.kit.verdict import headline  # noqa: PLC0415

    if arguments.oracle and arguments.known:
        arguments.parser.error("--oracle compares all findings with those of the readable rules; leave out --known")
    if arguments.oracle and arguments.no_crc:
        arguments.parser.error("--oracle compares with a decoder that always looks at the CRC; leave out --no-crc")
    try:
        if arguments.findings:
            check_suffix(arguments.findings)
        outputs = {f"--{name.replace('_', '-')}": getattr(arguments, name) for name in OUTPUTS}
        check_outputs(outputs, [*arguments.paths, *arguments.history])
        for file in filter(None, outputs.values()):
            check_output(file)
        result, written, failures = _audit_and_write(arguments)
    except (UnusableInput, NotALogDirectory, MalformedHistory, OSError) as error:
        print(f"kafka-eos audit: {error}{_remedy(error)}", file=sys.stderr)
        return 2
    answer_console.print(f"{result.subject}\n{result.ran}\n", markup=False, highlight=False, soft_wrap=True)
    verdicts = most_urgent_first(result.verdicts)
    print_verdicts(verdicts)
    _print_notes(result)
    if result.bill is not None:
        _print_bill(result.bill)
    for place in written:
        answer_console.print(f"\n{place}", markup=False, highlight=False, soft_wrap=True)
    answer_console.print(f"\n{headline(verdicts)}", markup=False, highlight=False, soft_wrap=True)
    for failure in failures:
        print(f"kafka-eos audit: {failure}", file=sys.stderr)
    if failures:
        return 2
    if result.logs and not sum(log.batches for log in result.logs):
        print("kafka-eos audit: no batch could be read", file=sys.stderr)
        return 2
    return exit_code(result.verdicts, arguments.allow_unjudged)


def _print_notes(result: "Audit") -> None:
    """Print some of the findings of kind ``told``, and some of kind ``too recent``."""
    from rich.text import Text  # noqa: PLC0415 - `--help` needs no numpy

    from kafka_eos_checks.audit.audit import SHOWN_RECENT  # noqa: PLC0415
    from kafka_eos_checks.audit.findings import Finding, Kind  # noqa: PLC0415
    from kafka_eos_checks.audit.rules.rule_book import Urgency, rule_of  # noqa: PLC0415
    from kafka_eos_checks.kit.terminal import answer_console  # noqa: PLC0415

    shown = {verdict.name for verdict in result.verdicts if not verdict.ok or verdict.unknown}  # with its evidence
    titles = {
        Kind.KNOWN: "known, found before",
        Kind.TOLD: "told, no violation",
        Kind.TOO_RECENT: "too recent to judge",
    }
    for kind, title in titles.items():
        own = [note for note in result.notes if note.kind == kind and note.rule not in shown]
        if kind is Kind.TOO_RECENT:  # what may keep readers waiting first, and few of each rule
            by_name: dict[str, list[Finding]] = {}
            for note in own:
                by_name.setdefault(note.rule, []).append(note)
            in_order = sorted(by_name, key=lambda name: rule_of(name).urgency is not Urgency.STUCK)
            own = [note for name in in_order for note in by_name[name][:SHOWN_RECENT]]
        count = sum(number for (rule, of), number in result.counts.items() if of == kind and rule not in shown)
        recent = {verdict.name: verdict.recent for verdict in result.verdicts if verdict.recent}
        by_rule = recent if kind is Kind.TOO_RECENT else {}
        counted = sum(by_rule.values())
        if own or counted:
            rules = ", ".join(f"{name} {number}" for name, number in by_rule.items())
            words = f"{max(count, counted)}" + f" ({rules})" * bool(rules)
            answer_console.print(Text.assemble("\n", (title, "cyan"), f": {words}"), highlight=False)
        for note in own[:SHOWN_NOTES]:
            answer_console.print(note.in_words(), markup=False, highlight=False, soft_wrap=True)
        if count > len(own[:SHOWN_NOTES]):
            answer_console.print(
                f"… and {count - len(own[:SHOWN_NOTES])} more, in the file of --findings", highlight=False
            )
        if kind is Kind.TOO_RECENT and (own or counted):
            answer_console.print(f"next: {_later(result)}", highlight=False)


def _later(result: "Audit") -> str:
    """The advice on what is too recent to judge. To audit a copy again changes nothing; another copy does."""
    if any(directory.read_ms is not None for directory in result.known.source.directories.values()):
        return "audit again in a minute"
    return "copy again and audit the copy; or, if the brokers stood still, audit with --snapshot"


def _print_bill(bill: "Bill") -> None:
    """Print the cost of an audit, and the least time that it takes on more cores."""
    from kafka_eos_checks.audit.engines.cost import CORES  # noqa: PLC0415
    from kafka_eos_checks.kit.terminal import answer_console, plain_table  # noqa: PLC0415

    rows = [
        (
            stage.label,
            f"{len(stage.tasks):,}",
            f"{stage.seconds:.2f}",
            f"{stage.largest:.2f}",
            f"{stage.largest / stage.seconds:.0%}" if stage.seconds else "",
            f"{stage.read:,}",
            f"{stage.memory / 1e6:,.0f}",
        )
        for stage in bill.stages
        if stage.tasks
    ]
    names = ("what it cost", "tasks", "CPU s", "largest task", "of its stage", "bytes read", "MB at most")
    answer_console.print()
    answer_console.print(plain_table(names, rows))
    words = [f"the driver alone: {bill.driver:.2f} CPU s, {bill.serial_share:.1%} of all; {bill.memory / 1e6:,.0f} MB"]
    if bill.jvm is not None:
        words.append(f"Spark's JVM, with its start: {bill.jvm:.1f} CPU s on top")
    times = f", {bill.read / bill.input_bytes:.2f} times" if bill.input_bytes else ""
    words.append(f"the input has {bill.input_bytes:,} bytes; the tasks read {bill.read:,}{times}")
    words.append(f"it took {bill.wall:.1f} s here, Spark's start left out")
    words += [
        f"on {cores:,} cores at least {bill.wall_seconds(cores):.1f} s; the longest part: {bill.bound(cores)}"
        for cores in CORES
    ]
    if bill.jvm is None:
        words.append(
            "with Spark come its start, some 10 s, and more and smaller tasks: --spark --explain-cost tells them"
        )
    answer_console.print("\n".join(words), markup=False, highlight=False, soft_wrap=True)


def _remedy(error: Exception) -> str:
    """The remedy for an error whose message has none, with what comes before it; "" for others."""
    from kafka_eos_checks.kit.outputs import is_full  # noqa: PLC0415

    if isinstance(error, PermissionError):
        return "; run it as the user of the broker, or audit a copy"
    if is_full(error) and error.filename is None:
        return f" in {gettempdir()}, where rows wait between stages; make room, or set TMPDIR to another folder"
    return ""


def _audit_and_write(arguments: argparse.Namespace) -> tuple["Audit", list[str], list[str]]:
    """Audit, with a session of Spark if something needs one, and write the requested files.

    Returns:
        the audit, where rows of a table are, and a message for each output that could not be written.
    """
    from kafka_eos_checks.audit import audit, findings  # noqa: PLC0415
    from kafka_eos_checks.audit.places import place  # noqa: PLC0415
    from kafka_eos_checks.audit.rules.rule_book import most_urgent_first  # noqa: PLC0415
    from kafka_eos_checks.kit.outputs import Unwritable, whole_or_nothing  # noqa: PLC0415
    from kafka_eos_checks.kit.verdict import write_verdicts  # noqa: PLC0415

    written: list[str] = []
    failures: list[str] = []
    began = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def write(file: Path, how: "Callable[[Path], None]") -> None:
        """Write a file; a failure must not cost the verdicts."""
        try:
            with whole_or_nothing(file) as part:
                how(part)
        except Unwritable as error:
            failures.append(str(error))

    paths, histories = (list(map(place, given)) for given in (arguments.paths, arguments.history))
    known = findings.read_known(arguments.known) if arguments.known else ()
    with ExitStack() as stack:
        spark = None
        if arguments.spark or arguments.sink:
            from kafka_eos_checks.audit.engines.spark import session  # noqa: PLC0415 - the light install has no Spark

            spark = stack.enter_context(session())
            if arguments.sink:
                findings.prepare_table(arguments.sink, arguments.sink_format, spark)

        def take(found: "Found") -> None:
            """Write all findings where they are asked for, while the engine has them."""
            if arguments.findings:
                write(arguments.findings, lambda part: findings.write_findings(part, found.in_order()))
            if arguments.sink and spark is not None:
                try:
                    findings.append_to_table(arguments.sink, spark, found.tables(spark), audit=began)
                    findings.check_appended(arguments.sink, spark, audit=began, count=len(found))
                except findings.TableRefused as error:
                    failures.append(f"{error}; rows that it has nevertheless are those where audit = '{began}'")
                else:
                    written.append(f"findings: rows of table {arguments.sink} where audit = '{began}'")

        result = audit.run(
            paths,
            "spark" if arguments.spark else "local",
            histories=histories,
            check_crc=not arguments.no_crc,
            oracle=arguments.oracle,
            seed=arguments.seed,
            redact=arguments.redact,
            spark=spark,
            as_jepsen=arguments.as_jepsen,
            one_moment=arguments.snapshot,
            longest_ms=arguments.longest_ms,
            explain_cost=arguments.explain_cost,
            jobs=arguments.jobs or os.cpu_count() or 1,
            take=take,
            known=known,
        )
        if arguments.json:
            write(arguments.json, lambda part: write_verdicts(part, result.verdicts))
        if arguments.html:
            from kafka_eos_checks.drawing.page import SPARK, write_page  # noqa: PLC0415 - templates take their time

            subject = f"{result.subject}\n{result.ran}"
            urgent, tools = most_urgent_first(result.verdicts), {SPARK} if spark is not None else set[str]()
            write(arguments.html, lambda part: write_page(urgent, part, subject=subject, tools=tools))
    return result, written, failures
