"""``kafka-eos lab bench``: our speed next to others that do the same work. Not a test: no figure makes it fail."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

from rich.table import Table
from rich.text import Text

from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.brokers.brokers import BrokerFailed
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.terminal import answer_console, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.lab.bench import codec, coordinators, graphs, processes, replay, serving, transactions
from kafka_eos_checks.lab.bench.measure import machine_line, short
from kafka_eos_checks.models.registry import MalformedRegistry

Part = Callable[..., Iterator[Verdict]]  # called with a folder for its files, and ``quick``
PARTS: dict[str, Part] = {
    "codec": codec.run,
    "coordinators": coordinators.run,
    "graph": graphs.run,
    "processes": processes.run,
    "serve": serving.run,
    "replay": replay.run,  # these two come last, because Spark leaves a JVM running
    "transactions": transactions.run,
}
OF_BATCHES = ("replay", "transactions")

EPILOG = """examples:
  kafka-eos lab bench --quick
  kafka-eos lab bench --only codec replay --json bench.json
  kafka-eos lab bench --only replay --batches 100000000
  kafka-eos lab bench --only transactions --batches 10000000

Every figure is the median of several rounds, with the smallest and the largest. A ratio compares two sides that took
turns in the same run: how many times as long the other side took. If a peer is not installed, its row gives the
reason.

exit codes: 0 equal results on both sides of every comparison, however long they took, 1 results differ, 2 it cannot run
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``bench``."""
    parser = subparsers.add_parser(
        "bench",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), metavar="NAME", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="less input and fewer rounds: under three minutes")
    parser.add_argument(
        "--batches",
        type=_batches,
        metavar="N",
        help="batches of the parts replay and transactions (default 4 million); above 8 million replay has only tables "
        "of headers, 25 bytes of disk each, and gives the other programs one partition after the other",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def _batches(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < replay.SMALLEST:
        raise argparse.ArgumentTypeError(f"expected a number of batches, at least {replay.SMALLEST:,}")
    return count


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the tables, and write the verdicts."""
    started = time.perf_counter()
    answer_console.print(machine_line())
    verdicts: list[Verdict] = []
    for name in [part for part in PARTS if part in (arguments.only or PARTS)]:
        part = PARTS[name]
        if name in OF_BATCHES and arguments.batches:
            part = partial(part, batches=arguments.batches)
        try:
            found = run_part(part, quick=arguments.quick)
        except (OSError, SubprocessError, BrokerFailed, MalformedRegistry, UnusableInput) as error:
            print(f"kafka-eos lab bench: {name}: {error}", file=sys.stderr)
            return 2
        for made in tables(found, name):
            answer_console.print(made)
        verdicts += found
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    differing = [verdict for verdict in verdicts if not verdict.ok]
    for verdict in differing:
        answer_console.print(f"FAIL {verdict.name}: {verdict.found}", markup=False, soft_wrap=True)
    shown = "all results equal" if not differing else f"{len(differing)} differ"
    answer_console.print(
        f"{len(verdicts)} verdicts in {time.perf_counter() - started:.0f} s, {machine_line()}: {shown}"
    )
    return 1 if differing else 0


def run_part(part: Part, *, quick: bool) -> list[Verdict]:
    """Run one part in a temporary folder of its own."""
    with tempfile.TemporaryDirectory(prefix="kafka-eos-bench-") as folder:
        verdicts = []
        for verdict in part(Path(folder), quick=quick):
            progress_console.print(f"{verdict.name}: {verdict.found}", markup=False, soft_wrap=True)
            verdicts.append(verdict)
        return verdicts


def tables(verdicts: Sequence[Verdict], part: str) -> Iterator[Table]:
    """A table per input: each of our sides with its peers below, their rates and the ratios."""
    for given, group in groupby(verdicts, lambda verdict: (verdict.figures.get("input"), verdict.figures.get("load"))):
        title = f"{part}: {given[0]}; load {given[1]}" if given[0] else part
        made = Table(title=title, box=None, pad_edge=False, title_justify="left", title_style="bold")
        for column, width in (("", 4), ("what", 32)):
            made.add_column(column, width=width, overflow="fold")
        for column, width in (("ours", 21), ("theirs", 21), ("unit", 9), ("ratio", 20), ("CPU s", 7)):
            made.add_column(column, justify="right", width=width, overflow="fold")
        made.add_column("found", overflow="fold")
        for verdict in group:
            made.add_row(Text("ok", "green") if verdict.ok else Text("FAIL", "red"), *map(Text, _cells(verdict)))
        yield made


def _cells(verdict: Verdict) -> list[str]:
    figures = verdict.figures
    ours, _, peer = verdict.name.partition(": ")[2].partition(" against ")
    cpu = figures.get("their_cpu_seconds" if peer else "cpu_seconds")
    return [
        f"  against {peer}" if peer else ours,
        "" if peer else _with_range(figures, "ours"),
        _with_range(figures, "theirs"),
        str(figures.get("unit", "")),
        _with_range(figures, "ratio"),
        short(cpu) if isinstance(cpu, int | float) else "",
        verdict.found,
    ]


def _with_range(figures: dict[str, int | float | str], name: str) -> str:
    value = figures.get(name)
    return f"{short(value)} ({figures[f'{name}_range']})" if isinstance(value, int | float) else ""
