"""``kafka-eos check kafka-tests``: Kafka's own tests, on the server and on a real Kafka 4.3.

The tests are those of transactions, groups, Produce, Fetch and offsets in Kafka's released jars.
Each test gets a new cluster on the loopback interface, with the properties that the test names. If the two results
differ, the page gives the reason. A difference without a reason is an error, and so is a reason without a difference.
A test that fails only on Kafka runs there a second time: some of Kafka's tests do not wait until a cluster is ready.
"""

import argparse
import fnmatch
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from kafka_eos_checks.brokers.jars import KAFKA_VERSION
from kafka_eos_checks.conform.kafka_tests import CLASSES, Ended, Outcome, StartCluster, run_tests
from kafka_eos_checks.conform.kafka_tests.clusters import kafka, served
from kafka_eos_checks.conform.peers_command import STYLE
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.paths import output_folder
from kafka_eos_checks.kit.terminal import WordTable, answer_console, progress_console
from kafka_eos_checks.kit.verdict import write_document

DIFFERENCES = Path(__file__).with_name("kafka_tests") / "differences.toml"
SERVER, KAFKA = "kafka-eos serve", f"Apache Kafka {KAFKA_VERSION}"
PEERS: Mapping[str, StartCluster] = {SERVER: served, KAFKA: kafka}
EPILOG = """examples:
  kafka-eos check kafka-tests                             all of them; build/kafka-tests.html
  kafka-eos check kafka-tests --only 'Heartbeat*'         test classes by a pattern of their names

exit codes: 0 the two differ exactly where it is known, 1 they do not, 2 the call cannot be used
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """A test, how it ended on each, why if not well, and the reason for a difference."""

    test: str
    outcomes: Mapping[str, Outcome]
    why: Mapping[str, str]
    reason: str | None

    @property
    def differs(self) -> bool:
        """The server passes and Kafka does not, or the other way round."""
        return (self.outcomes[SERVER] is Outcome.PASSED) != (self.outcomes[KAFKA] is Outcome.PASSED)

    @property
    def fault(self) -> str:
        """The error; empty if there is none."""
        if self.differs and self.reason is None:
            return "differs, and nothing says why"
        return "" if self.differs or self.reason is None else "differs no longer"


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``kafka-tests``."""
    parser = subparsers.add_parser(
        "kafka-tests",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", metavar="PATTERN", help="test classes by name, as a shell does")
    page = output_folder() / "kafka-tests.html"
    parser.add_argument(
        "--out", type=Path, default=page, metavar="FILE", help="the page (default build/kafka-tests.html)"
    )
    add_json(parser, "every test as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``kafka-tests``."""
    names = {name.rpartition(".")[2]: name for name in CLASSES}
    patterns = arguments.only or ["*"]
    chosen = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not chosen:
        progress_console.print(f"kafka-eos check kafka-tests: none of {', '.join(names)} matches")
        return 2
    ended = {}
    for peer, start in PEERS.items():
        started = time.monotonic()
        log = arguments.out.with_suffix(f".{start.__name__}.log")
        ended[peer] = run_tests(start, [names[name] for name in chosen], log)
        passed = sum(each.outcome is Outcome.PASSED for each in ended[peer])
        told = f"{peer}: {passed} of {len(ended[peer])} pass; {time.monotonic() - started:.0f} s"
        progress_console.print(told, soft_wrap=True)
    known, expected = known_differences()
    ended[KAFKA] = second_try(ended, known, lambda classes: run_tests(kafka, [names[name] for name in classes], log))
    known = {test: reason for test, reason in known.items() if test.partition(".")[0] in chosen}
    compared = compare(ended, known)
    faults = [f"{each.test}: {each.fault}" for each in compared if each.fault]
    faults += harness_faults(compared, expected if set(chosen) == set(names) else None, known)
    write_page(arguments.out, compared, faults)
    if arguments.json:
        write_json(arguments.json, compared, faults)
    answer_console.print(_table(compared))
    for fault in faults:
        answer_console.print(Text.assemble(("FAIL", "red"), f" {fault}"), soft_wrap=True)
    answer_console.print(f"\n{arguments.out}", soft_wrap=True)
    return 1 if faults else 0


def known_differences() -> tuple[dict[str, str], int]:
    """The reason for each test in which the server differs, and how many tests Kafka passes."""
    rows = tomllib.loads(DIFFERENCES.read_text(encoding="utf-8"))
    expected = rows.pop("passed_by_kafka")
    return {test: row["reason"] for test, row in rows.items()}, expected


def second_try(
    ended: Mapping[str, Sequence[Ended]],
    known: Mapping[str, str],
    run_classes: Callable[[Sequence[str]], Sequence[Ended]],
) -> list[Ended]:
    """The outcomes of the tests on Kafka, after a second run of those that failed only there and for no known reason.

    Args:
        ended: how all tests ended on both.
        known: the reason for each test that is known to differ.
        run_classes: runs the test classes of these names on Kafka.
    """
    failed = [
        each.test
        for each in compare(ended, known)
        if each.fault and each.outcomes[KAFKA] is Outcome.FAILED and each.outcomes[SERVER] is Outcome.PASSED
    ]
    if not failed:
        return list(ended[KAFKA])
    progress_console.print(f"{KAFKA}: once more {', '.join(failed)}", soft_wrap=True)
    classes = sorted({test.partition(".")[0] for test in failed})
    again = [
        each if each.outcome is not Outcome.PASSED else replace(each, why="It failed in a first try.")
        for each in run_classes(classes)
        if each.test in failed
    ]
    return [each for each in ended[KAFKA] if each.test not in failed] + again


def compare(ended: Mapping[str, Sequence[Ended]], known: Mapping[str, str]) -> list[Compared]:
    """The results of both peers, test by test; of several invocations of a test the worst counts."""
    tests = sorted({each.test for rows in ended.values() for each in rows})
    compared = []
    for test in tests:
        worst = {peer: _worst(each for each in rows if each.test == test) for peer, rows in ended.items()}
        outcomes = {peer: each.outcome for peer, each in worst.items()}
        compared.append(Compared(test, outcomes, {peer: each.why for peer, each in worst.items()}, known.get(test)))
    return compared


def _worst(rows: Iterable[Ended]) -> Ended:
    order = (Outcome.FAILED, Outcome.UNUSABLE, Outcome.SKIPPED, Outcome.PASSED)
    return min(rows, key=lambda each: order.index(each.outcome), default=Ended("", Outcome.SKIPPED, "it was not run"))


def harness_faults(compared: Sequence[Compared], expected: int | None, known: Mapping[str, str]) -> list[str]:
    """The signs of a run that checks nothing: too few tests that Kafka passes, or reasons for tests not run."""
    passed = sum(each.outcomes[KAFKA] is Outcome.PASSED for each in compared)
    faults = []
    if expected is not None and passed < expected:
        faults.append(f"{KAFKA} passes {passed} tests, where it was {expected}")
    elif not passed:
        faults.append(f"{KAFKA} passes none of these tests, so nothing was compared")
    missing = known.keys() - {each.test for each in compared}
    return faults + [f"{test}: has a reason, and was not run" for test in sorted(missing)]


def _table(compared: Sequence[Compared]) -> Table:
    drawn = WordTable("test", *PEERS, "reason")
    for each in compared:
        if each.differs or each.fault or each.outcomes[KAFKA] is not Outcome.PASSED:
            drawn.add_row(each.test, *(each.outcomes[peer] for peer in PEERS), each.reason or "")
    return drawn


def write_json(path: Path, compared: Sequence[Compared], faults: Sequence[str]) -> None:
    """Write every test, how it ended and why, and what is wrong."""
    rows = [
        {
            "test": each.test,
            "outcomes": {peer: outcome.value for peer, outcome in each.outcomes.items()},
            "why": {peer: _first_line(why) for peer, why in each.why.items() if why},
            "reason": each.reason,
        }
        for each in compared
    ]
    write_document(path, {"faults": list(faults), "tests": rows})


def _first_line(why: str) -> str:
    return next((line.strip() for line in why.splitlines() if line.strip()), "")


# --- the page -------------------------------------------------------------------------------------------------------


def write_page(path: Path, compared: Sequence[Compared], faults: Sequence[str]) -> None:
    """Write both side by side; the page fetches nothing and runs no script."""
    counts = {peer: sum(each.outcomes[peer] is Outcome.PASSED for each in compared) for peer in PEERS}
    summary = "; ".join(f"{peer} passes {count} of {len(compared)}" for peer, count in counts.items())
    heads = "".join(f"<th>{escape(text)}</th>" for text in ("test", *PEERS, "why they differ"))
    rows = "".join(_row(each) for each in sorted(compared, key=lambda each: (not each.differs, each.test)))
    wrong = "".join(f'<p class="bad">{escape(fault)}</p>' for fault in faults)
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>kafka-eos: Kafka's own tests</title><style>{STYLE}</style>
<h1>Kafka's own tests of transactions, groups, Produce, Fetch and offsets</h1>
<p>The tests of Apache Kafka {KAFKA_VERSION}'s released jars, each on a new cluster: {escape(summary)}. Assignments of
consumer groups are made at once (group.consumer.assignment.interval.ms=0) unless a test says otherwise.</p>{wrong}
<table><tr>{heads}</tr>{rows}</table>
</html>
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _row(each: Compared) -> str:
    cells = "".join(
        f'<td class="{"good" if each.outcomes[peer] is Outcome.PASSED else "bad"}">{_cell(each, peer)}</td>'
        for peer in PEERS
    )
    return f"<tr><td>{escape(each.test)}</td>{cells}<td>{escape(each.reason or each.fault)}</td></tr>"


def _cell(each: Compared, peer: str) -> str:
    why = each.why[peer]
    outcome = escape(each.outcomes[peer])
    return f"<details><summary>{outcome}</summary><pre>{escape(why)}</pre></details>" if why else outcome
