"""``kafka-eos watch``: a running cluster, judged while it is written to."""

import argparse
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_eos_checks.kit.outputs import check_output
from kafka_eos_checks.kit.verdict import counted

if TYPE_CHECKING:
    from kafka_eos_checks.watch.journal import Journal
    from kafka_eos_checks.watch.reports import Report
    from kafka_eos_checks.watch.watcher import Watcher

EPILOG = """examples:
  kafka-eos watch --bootstrap localhost:9092
  kafka-eos watch --bootstrap broker-1:9093 --command-config client.properties --checkpoint /var/lib/kafka-eos
  kafka-eos watch --bootstrap localhost:9092 --once --from-start
  kafka-eos watch --bootstrap localhost:9092 --once --jsonl

reports:
  duplicate, gap, stale epoch, order   as `kafka-eos audit` has them; a stale epoch is what a fenced producer wrote late
  batch outside transaction,
  leader epoch went back               as `kafka-eos audit` has it
  hanging transaction                  open data that no coordinator will end
  torn transaction                     committed on a partition and aborted on another (transaction version 2)
  last stable offset lags              readers of committed data wait, and for which producer; not for one that hangs
  transaction stays prepared           decided, open nowhere, and its producer waits (not in a first --once)
  log was cut                          offsets that were read no longer exist
  corrupt batch                        a CRC that is wrong
  resolved                             a transaction that was reported has ended, or readers wait for it no longer

The watcher only reads. Fetch gives everything below the high watermark, markers and aborted data included; the watcher
looks at the header of each batch, and whether a marker commits, but not at keys and values of data. The client needs
Read on topics and Describe on transactional ids: one that it may not describe looks as if no coordinator knew it.

A report is a line and, indented below it: since when; which offsets readers of committed data cannot see; who; whether
it ends by itself; what to do next, with the command of Kafka's tools. With --jsonl it is one JSON object a line. With
--checkpoint reports are also in DIR/reports.jsonl, each once however often the watcher is killed and started again. The
terminal is told again, at the start or at the end of --once, of those that are not over; with --jsonl it is standard
error.

What is not seen gives rows, too, of the kind "not judged": a partition that is not read, no broker or coordinator that
answers, offsets that were deleted before they were read. Another row resolves them. They are in the file and in --jsonl
only; standard error says it in other words. The time of DIR/checkpoint.json is a sign of life.

A broker that does not answer is asked again after 1 s, 2 s, 4 s, and then every 5 s, or every 30 s if it lets one wait
in vain; standard error says so, and says when it answers again. At the start the watcher only waits with --wait.

A producer that writes nothing to a partition for a day is forgotten (--forget-after), as its leader forgets it; then
neither its duplicates nor its late writes are noticed. One whose transaction is open is not.

exit codes: 0 ended without a report, 1 there were reports of something wrong, or one of a checkpoint is not over,
  2 the cluster or the call cannot be used, a partition or topic could not be read, coordinators did not tell, or
  offsets were deleted before they were read
"""
COMMIT_SECONDS = 1.0  # between checkpoints without a report, at least
COMMIT_SHARE = 0.05  # of the time, at most, that these checkpoints take: they have every producer that is remembered
PATIENCE_SECONDS = 1.0  # before brokers that had nothing new are asked again


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add the subcommand ``watch``."""
    parser = subparsers.add_parser(
        "watch",
        help=help_line,
        description="Watch a running Kafka cluster for violations of exactly-once.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="some brokers, separated by commas")
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="client properties: TLS, SASL")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="keep state and reports in this folder")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="only this topic; may be repeated")
    parser.add_argument(
        "--jsonl", action="store_true", help="print reports as JSON, one object a line, as they are in reports.jsonl"
    )
    parser.add_argument(
        "--from-start", action="store_true", help="read what is there already (default: from the last stable offset)"
    )
    parser.add_argument("--once", action="store_true", help="stop once everything was read and judged")
    parser.add_argument("--metrics", type=Path, metavar="FILE", help="write gauges for Prometheus to this file (.prom)")
    parser.add_argument("--wait", action="store_true", help="wait for a cluster that does not answer at the start")
    parser.add_argument(
        "--hanging-after",
        type=_seconds,
        metavar="S",
        help="age of a transaction at which coordinators are asked about it (default 10; --once: 0)",
    )
    parser.add_argument(
        "--lag-after",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="seconds that a transaction may hold readers back, or (at least 10) stay prepared (default 60)",
    )
    parser.add_argument(
        "--forget-after",
        type=_seconds,
        default=86_400.0,
        metavar="S",
        help="seconds for which a producer that writes nothing is remembered "
        "(default 86400, as the brokers' producer.id.expiration.ms)",
    )
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise ValueError
    return value


def run(arguments: argparse.Namespace) -> int:
    """Watch until a signal comes; returns the exit code."""
    from kafka_eos.wire.protocol import MalformedMessage  # noqa: PLC0415 - `--help` needs no numpy
    from kafka_eos_checks.conform import security  # noqa: PLC0415
    from kafka_eos_checks.conform.wire import Unsupported, address_of  # noqa: PLC0415
    from kafka_eos_checks.watch.advice import Tools  # noqa: PLC0415
    from kafka_eos_checks.watch.cluster import Cluster, ClusterFailed  # noqa: PLC0415
    from kafka_eos_checks.watch.journal import Journal, UnusableFolder  # noqa: PLC0415
    from kafka_eos_checks.watch.watcher import CHECK_MS, AnotherCluster, Options, Watcher  # noqa: PLC0415

    hanging_after = arguments.hanging_after
    if hanging_after is None:
        hanging_after = 0.0 if arguments.once else 10.0
    options = Options(
        topics=frozenset(arguments.topic),
        from_start=arguments.from_start,
        hanging_after_ms=round(hanging_after * 1000),
        lag_after_ms=round(arguments.lag_after * 1000),
        check_ms=0 if arguments.once else CHECK_MS,
        forget_after_ms=round(arguments.forget_after * 1000),
        tools=Tools(bootstrap=arguments.bootstrap, command_config=str(arguments.command_config or "")),
    )
    try:
        if arguments.metrics is not None:
            check_output(arguments.metrics)
        config = arguments.command_config
        properties = security.read_properties(config) if config else {}
        protection = security.security_of(properties, str(config))
        cluster = Cluster([address_of(word) for word in arguments.bootstrap.split(",")], protection)
        journal = Journal(arguments.checkpoint) if arguments.checkpoint else None
    except (ValueError, OSError) as error:  # UnusableProperties and UnusableFolder are ValueErrors
        _tell(str(error))
        return 2
    watcher = Watcher(cluster, options, _tell)
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        show, remind = (print_json, print_head) if arguments.jsonl else (print_report, print_report)
        told = follow(
            watcher,
            journal,
            stopped,
            once=arguments.once,
            show=show,
            remind=remind,
            wait=arguments.wait,
            metrics=arguments.metrics,
        )
    except (ClusterFailed, Unsupported, AnotherCluster, UnusableFolder, MalformedMessage, OSError) as error:
        _tell(str(error))
        return 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        cluster.close()
        if journal is not None:
            journal.close()
    return _verdict(watcher, told)


def _tell(line: str) -> None:
    print(f"kafka-eos watch: {line}", file=sys.stderr)


def _verdict(watcher: "Watcher", told: "Told") -> int:
    """Tell what was watched and found; returns the exit code."""
    from kafka_eos_checks.watch.blindness import NO_COORDINATOR  # noqa: PLC0415 - `--help` needs no numpy

    read = f"{counted(len(watcher.watched), 'partition')}, {watcher.batches:,} batches"
    watcher.tell(f"{read}, {told.wrong} report{'' if told.wrong == 1 else 's'}, {told.resolved} resolved")
    if watcher.open_reports:
        watcher.tell(f"reports of transactions that are not over: {len(watcher.open_reports)}")
    if watcher.unread:
        watcher.tell(f"not read: {', '.join(f'{topic}-{number}' for topic, number in sorted(watcher.unread))}")
    if watcher.deleted:
        watcher.tell(f"not judged: {watcher.deleted:,} offsets that were deleted before they were read")
    if watcher.missing:
        watcher.tell(f"not there, or may not be described: {', '.join(sorted(watcher.missing))}")
    elif not watcher.watched:
        watcher.tell("nothing was watched: the cluster tells of no partition")
    mute = NO_COORDINATOR in watcher.blindness
    if mute:
        watcher.tell("not judged: which transactions hang or stay prepared; the coordinators did not tell")
    unjudged = watcher.unread or watcher.deleted or watcher.missing or mute or not watcher.watched
    return 1 if told.wrong or watcher.open_reports else 2 if unjudged else 0


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def print_report(row: dict[str, Any]) -> None:
    """Print a report for people."""
    from kafka_eos_checks.watch.reports import lines_of  # noqa: PLC0415 - `--help` needs no numpy

    if "kind" in row:
        return  # standard error tells of what is not seen
    print("\n".join(lines_of(row)), flush=True)


def print_json(row: dict[str, Any]) -> None:
    """Print a report as it is in ``reports.jsonl``."""
    from kafka_eos_checks.watch.reports import line_of  # noqa: PLC0415 - `--help` needs no numpy

    print(line_of(row), flush=True)


def print_head(row: dict[str, Any]) -> None:
    """Print the first line of a report that was told before to standard error, because its row is there already."""
    from kafka_eos_checks.watch.reports import lines_of  # noqa: PLC0415 - `--help` needs no numpy

    _tell(next(lines_of(row)))


@dataclass(slots=True)
class Told:
    """The number of reports.

    Attributes:
        wrong: reports of something that is wrong.
        resolved: reports of something that is over.
        blind: rows about what is not seen, or seen again.
    """

    wrong: int = 0
    resolved: int = 0
    blind: int = 0

    @property
    def rows(self) -> int:
        """The number of all reports."""
        return self.wrong + self.resolved + self.blind


Show = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Output:
    """The ways of reports: into the folder if there is one, then to the terminal.

    Attributes:
        watcher: gives the state that is kept with the reports.
        journal: the folder; None for none.
        show: prints a report.
        remind: prints a report that was told before.
        metrics: the file of gauges; None for none.
        told: the number of reports so far.
        before: the ids of the reports of the checkpoint that were not over.
        due_at: when the next checkpoint is due, by the monotonic clock.
        gauged_at: when the next gauges are due.
        position: the number of batches that the last checkpoint has.
    """

    watcher: "Watcher"
    journal: "Journal | None"
    show: Show
    remind: Show
    metrics: Path | None = None
    told: Told = field(default_factory=Told)
    before: Collection[str] = ()
    due_at: float = 0.0
    gauged_at: float = 0.0
    position: int = -1

    def resume(self) -> None:
        """Continue from a checkpoint, if there is one.

        Raises:
            UnusableFolder: no watcher can.
        """
        if self.journal is None:
            return
        if self.journal.state is not None:
            try:
                self.watcher.resume(self.journal.state)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise self.journal.unusable(error) from None
        self.before = set(self.watcher.open_reports)
        self._print(self.journal.recovered)

    def keep(self, found: Sequence["Report"], moment: int) -> None:
        """Write and print reports, keep the state with them, or when it is time to, and write the gauges."""
        self._keep(found, moment)
        if self.metrics is not None and time.monotonic() >= self.gauged_at:
            self._gauge(self.metrics)

    def _gauge(self, path: Path) -> None:
        from kafka_eos_checks.watch.metrics import write  # noqa: PLC0415 - `--help` needs no numpy

        write(path, self.watcher, self.told.wrong)
        self.gauged_at = time.monotonic() + COMMIT_SECONDS

    def _keep(self, found: Sequence["Report"], moment: int) -> None:
        from kafka_eos_checks.watch.reports import report_row  # noqa: PLC0415 - `--help` needs no numpy

        if self.journal is None:
            self._print([report_row(self.told.rows + 1 + i, moment, one) for i, one in enumerate(found)])
            return
        if found or (self.watcher.batches != self.position and time.monotonic() >= self.due_at):
            began = time.monotonic()
            self._print(self.journal.commit(self.watcher.to_json(), moment, found))
            ended, self.position = time.monotonic(), self.watcher.batches
            self.due_at = ended + max(COMMIT_SECONDS, (ended - began) / COMMIT_SHARE)
        self.journal.alive()

    def repeat(self, moment: int) -> None:
        """Print the reports of the checkpoint again that are not over."""
        from kafka_eos_checks.watch.reports import report_row  # noqa: PLC0415 - `--help` needs no numpy

        for one in self.watcher.repeated(self.before, moment):
            self.remind(report_row(0, moment, one))

    def end(self, moment: int) -> None:
        """Keep the last state, with what came since."""
        self.gauged_at = 0.0
        self.keep(self.watcher.blindness.take(), moment)
        if self.journal is not None:
            self.journal.commit(self.watcher.to_json(), moment, [])

    def _print(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            self.show(row)
            if "kind" in row:
                self.told.blind += 1
            elif "resolves" in row:
                self.told.resolved += 1
            else:
                self.told.wrong += 1


def follow(
    watcher: "Watcher",
    journal: "Journal | None",
    stopped: threading.Event,
    *,
    once: bool = False,
    show: Show = print_report,
    remind: Show = print_report,
    wait: bool = False,
    metrics: Path | None = None,
) -> Told:
    """Poll, commit and print until a stop is asked for, and return the number of reports.

    A cluster that does not answer is waited for, at the beginning only with ``wait``. Reports of a checkpoint that are
    not over are told again: at the end of a single look, otherwise after the first poll.
    """
    from kafka_eos_checks.watch.backoff import BackOff  # noqa: PLC0415 - `--help` needs no numpy
    from kafka_eos_checks.watch.blindness import EVERYWHERE, NO_BROKER  # noqa: PLC0415
    from kafka_eos_checks.watch.cluster import ClusterFailed  # noqa: PLC0415
    from kafka_eos_checks.watch.reports import duration  # noqa: PLC0415

    output, back_off = Output(watcher, journal, show, remind, metrics), BackOff()
    reached, quiet = False, 0
    output.resume()
    while not stopped.is_set() and quiet < 3:
        moment = now_ms()
        try:
            found = watcher.poll(moment)
        except ClusterFailed as error:
            watcher.blindness.begins(NO_BROKER, EVERYWHERE, str(error), moment)
            output.keep(watcher.blindness.take(), moment)
            if once if reached else not wait:
                raise
            if back_off.failed(moment, ""):
                watcher.tell(f"no broker answers: {error}; asked again {back_off.in_words()}")
            stopped.wait(back_off.wait_ms / 1000)
            continue
        if back_off.wait_ms:
            watcher.tell(f"a broker answers again, after {duration(moment - back_off.since_ms)}")
            back_off = BackOff()
        if not reached and not once:
            count = counted(len(watcher.watched), "partition")
            watcher.tell(f"watching {count}, and silent while nothing is wrong")
            output.repeat(moment)
        reached = True
        output.keep([*found, *watcher.blindness.take()], moment)
        if not watcher.heard:
            stopped.wait(PATIENCE_SECONDS)
        # The third quiet look reports a hanging transaction: read, ask, read again.
        quiet = quiet + 1 if once and watcher.drained and not found else 0
    if once:
        output.repeat(now_ms())
    output.end(now_ms())
    return output.told
