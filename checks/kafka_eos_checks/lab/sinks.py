"""Effects outside of Kafka on a real database, by consumers that are killed at every step.

For each strategy of ``ExternalSink`` a consumer handles its inputs in a process of its own, on SQLite; a second SQLite
file stands for Kafka, with the group's offset and the topic that the relay writes. The process is killed (SIGKILL)
before every statement in turn, calls and answers get lost, and a killed process is started again. Every choice is
visited, none is sampled. Only a death inside a statement (COMMIT included) is not tried: there SQLite is trusted. The
final contents must be exactly those of the model's final states. A database transaction, one step in the model, is
several statements here.
"""

import argparse
import os
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kafka_eos.machines.explorer import explore
from kafka_eos.machines.external_sink import STRATEGIES, Constants, ExternalSink
from kafka_eos.machines.machine import instances
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.terminal import print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts

EPILOG = """examples:
  kafka-eos lab sinks                       every strategy, two inputs, two faults
  kafka-eos lab sinks outbox --faults 3     one strategy
  kafka-eos lab sinks --json build/sinks.json

exit codes: 0 all contents are the model's, 1 a content differs, 2 the arguments cannot be used
"""
CLAIMS = {"side effect": ("C37",)}
SINK_TABLES = """
CREATE TABLE effects (place INTEGER PRIMARY KEY, input INTEGER NOT NULL);
CREATE TABLE outbox (row INTEGER PRIMARY KEY AUTOINCREMENT, input INTEGER NOT NULL);
CREATE TABLE offsets (next INTEGER NOT NULL);
INSERT INTO offsets VALUES (1);
"""
KAFKA_TABLES = """
CREATE TABLE effects (place INTEGER PRIMARY KEY, input INTEGER NOT NULL);
CREATE TABLE offsets (next INTEGER NOT NULL);
CREATE TABLE noted (row INTEGER NOT NULL);
INSERT INTO offsets VALUES (1);
INSERT INTO noted VALUES (0);
"""
INSERT_EFFECT = "INSERT INTO effects (input) VALUES (?)"
KEY = "CREATE UNIQUE INDEX key ON effects (input);"

Content = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a run: the option taken, the number of options, and whether all except the first are faults."""

    taken: int
    options: int
    is_fault: bool

    def to_bytes(self) -> bytes:
        """The choice as three bytes."""
        return bytes((self.taken, self.options, self.is_fault))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Choice":
        """The inverse of :meth:`to_bytes`."""
        taken, options, is_fault = data
        return cls(taken, options, bool(is_fault))


class Process:
    """A consumer or a relay, between its start and its end or its death.

    Args:
        folder: the folder of the two databases.
        inputs: the number of inputs in the topic.
        given: the options to take first; after them, always the first option.
        faults: the maximum number of faults.
        report: a file descriptor to which each choice is written.
    """

    def __init__(self, folder: Path, inputs: int, given: Sequence[int], faults: int, report: int) -> None:
        self.inputs = inputs
        self.sink = sqlite3.connect(folder / "sink.db", isolation_level=None)
        self.kafka = sqlite3.connect(folder / "kafka.db", isolation_level=None)
        for database in (self.sink, self.kafka):
            database.execute("PRAGMA synchronous = OFF")  # a process dies here, not the machine
        self.given = list(given)
        self.faults = faults
        self.report = report

    def choose(self, options: int, *, is_fault: bool) -> int:
        """Take an option. If the other options are faults and no fault is left, only the first one can be taken."""
        if is_fault and not self.faults:
            return 0
        taken = self.given.pop(0) if self.given else 0
        self.faults -= is_fault and taken > 0
        os.write(self.report, Choice(taken, options, is_fault).to_bytes())
        return taken

    def step(self) -> None:
        """Choose, before a statement, whether the process is killed."""
        if self.choose(2, is_fault=True):
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(self, database: sqlite3.Connection, statement: str, *values: int) -> None:
        """Take a step, then execute a statement."""
        self.step()
        database.execute(statement, values)

    def commit_offset(self, value: int) -> None:
        """Commit the offset after an input in Kafka."""
        self.execute(self.kafka, "UPDATE offsets SET next = ?", value + 1)


def update_before_commit(process: Process, value: int) -> None:
    """Update, then commit."""
    process.execute(process.sink, INSERT_EFFECT, value)
    process.commit_offset(value)


def update_after_commit(process: Process, value: int) -> None:
    """Commit, then update."""
    process.commit_offset(value)
    process.execute(process.sink, INSERT_EFFECT, value)


def _with_offset(process: Process, value: int, update: str) -> None:
    process.execute(process.sink, "BEGIN IMMEDIATE")
    process.execute(process.sink, update, value)
    process.execute(process.sink, "UPDATE offsets SET next = ?", value + 1)
    process.execute(process.sink, "COMMIT")


def offsets_in_the_database(process: Process, value: int) -> None:
    """Write update and offset in one transaction."""
    _with_offset(process, value, INSERT_EFFECT)


def outbox(process: Process, value: int) -> None:
    """Write row and offset in one transaction."""
    _with_offset(process, value, "INSERT INTO outbox (input) VALUES (?)")


def idempotent_sink(process: Process, value: int) -> None:
    """Update unless the key exists, then commit."""
    process.execute(process.sink, "INSERT OR IGNORE INTO effects (input) VALUES (?)", value)
    process.commit_offset(value)


def side_effect(process: Process, value: int) -> None:
    """Call a service until it answers, or give up; then commit. No transaction covers the service."""
    while True:
        process.step()
        fault = process.choose(3, is_fault=True)  # 1: the answer is lost, 2: the call is lost
        if fault != 2:
            process.sink.execute(INSERT_EFFECT, (value,))
        if not fault or process.choose(2, is_fault=False):
            break
    process.commit_offset(value)


HANDLERS: dict[str, Callable[[Process, int], None]] = {
    "update before commit": update_before_commit,
    "update after commit": update_after_commit,
    "offsets in the database": offsets_in_the_database,
    "outbox": outbox,
    "idempotent sink": idempotent_sink,
    "side effect": side_effect,
}


def consume(process: Process, handle: Callable[[Process, int], None]) -> None:
    """Handle the inputs from the stored offset on."""
    in_database = handle in {offsets_in_the_database, outbox}
    (start,) = (process.sink if in_database else process.kafka).execute("SELECT next FROM offsets").fetchone()
    for value in range(start, process.inputs + 1):
        handle(process, value)
    process.step()


def relay(process: Process) -> None:
    """Delete the rows of the outbox up to the noted one; publish the others, each with its note, and delete them."""
    (noted,) = process.kafka.execute("SELECT row FROM noted").fetchone()
    process.execute(process.sink, "DELETE FROM outbox WHERE row <= ?", noted)
    for row, value in process.sink.execute("SELECT row, input FROM outbox ORDER BY row").fetchall():
        process.execute(process.kafka, "BEGIN IMMEDIATE")
        process.execute(process.kafka, INSERT_EFFECT, value)
        process.execute(process.kafka, "UPDATE noted SET row = ?", row)
        process.execute(process.kafka, "COMMIT")
        process.execute(process.sink, "DELETE FROM outbox WHERE row = ?", row)


def _life(work: Callable[[Process], None], process: Callable[[int], Process], report: int) -> NoReturn:
    """The body of a child process: its work, without the parent's cleanup."""
    code = 1
    try:
        work(process(report))
        code = 0
    finally:
        os._exit(code)


def live(work: Callable[[Process], None], process: Callable[[int], Process]) -> tuple[list[Choice], bool]:
    """Run a process from its start to its end.

    Returns:
        The choices that it made, and whether it was killed.

    Raises:
        RuntimeError: if it failed by itself.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _life(work, process, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in {0, -signal.SIGKILL}:
        raise RuntimeError(f"the process ended with {code}")
    return [Choice.from_bytes(told[i : i + 3]) for i in range(0, len(told), 3)], code != 0


def run_once(
    folder: Path, strategy: str, inputs: int, faults: int, given: Sequence[int]
) -> tuple[list[Choice], Content]:
    """Run a strategy from empty databases until every input is handled and the outbox is empty.

    Args:
        folder: a folder for the databases; those of an earlier run are removed.
        strategy: one of ``STRATEGIES``.
        inputs: the number of inputs in the topic.
        faults: the maximum number of faults.
        given: the options to take first.

    Returns:
        The choices, and the effects in their order.

    Raises:
        RuntimeError: a process fails by itself, or the outbox is not empty in the end.
    """
    for old in folder.iterdir():
        old.unlink()
    for name, tables in (("sink.db", SINK_TABLES), ("kafka.db", KAFKA_TABLES)):
        with closing(sqlite3.connect(folder / name)) as database:
            database.executescript("PRAGMA synchronous = OFF;" + tables)
            if strategy == "idempotent sink" and name == "sink.db":
                database.executescript(KEY)
    handle = HANDLERS[strategy]
    works: list[Callable[[Process], None]] = [lambda process: consume(process, handle)]
    if strategy == "outbox":
        works.append(relay)
    choices: list[Choice] = []
    for work in works:
        killed = True
        while killed:
            left = faults - sum(choice.is_fault and choice.taken > 0 for choice in choices)
            rest = given[len(choices) :]
            met, killed = live(work, lambda report, rest=rest, left=left: Process(folder, inputs, rest, left, report))  # type: ignore[misc]
            choices += met
    with closing(sqlite3.connect(folder / "sink.db")) as database:
        if kept := database.execute("SELECT row FROM outbox").fetchall():
            raise RuntimeError(f"{len(kept)} published row(s) stay in the outbox")
    with closing(sqlite3.connect(folder / ("kafka.db" if strategy == "outbox" else "sink.db"))) as database:
        rows = database.execute("SELECT input FROM effects ORDER BY place").fetchall()
    return choices, tuple(value for (value,) in rows)


def runs(folder: Path, strategy: str, inputs: int, faults: int) -> Iterator[Content]:
    """The final content of each run; every choice is visited, depth first."""
    given: list[int] | None = []
    while given is not None:
        choices, content = run_once(folder, strategy, inputs, faults, given)
        yield content
        while choices and choices[-1].taken + 1 == choices[-1].options:
            choices.pop()
        given = [choice.taken for choice in choices[:-1]] + [choices[-1].taken + 1] if choices else None


def ends_of_model(strategy: str, inputs: int, faults: int) -> set[Content]:
    """The effects in the states of ``ExternalSink`` in which consumer and relay have handled every input."""
    constants = Constants(inputs=frozenset(range(1, inputs + 1)), strategy=strategy, max_faults=faults)
    found = explore(ExternalSink.initial(constants), instances(ExternalSink, constants))
    rest = (inputs + 1, "nothing", ())
    return {state.effects for state in found.states if (state.position, state.stage, state.outbox) == rest}


def check(strategy: str, inputs: int, faults: int, promised: str = "") -> Verdict:
    """Compare the final contents of a strategy on the database with the model.

    Args:
        strategy: the strategy that runs.
        inputs: the number of inputs.
        faults: the maximum number of faults.
        promised: the strategy whose model is compared; by default its own.
    """
    begun = time.monotonic()
    wanted = ends_of_model(promised or strategy, inputs, faults)
    with tempfile.TemporaryDirectory(prefix="kafka-eos-sinks-") as folder:
        contents = list(runs(Path(folder), strategy, inputs, faults))
    found = set(contents)
    differences = [f"only on the database: {content}" for content in sorted(found - wanted)]
    differences += [f"only in the model: {content}" for content in sorted(wanted - found)]
    return Verdict(
        check="sink",
        name=strategy,
        expected="the contents of the model",
        found="the contents of the model" if not differences else f"{len(differences)} contents differ",
        ok=not differences,
        seconds=time.monotonic() - begun,
        figures={"runs": len(contents), "contents": len(found)},
        evidence="\n".join(differences),
        claims=CLAIMS.get(strategy, ("C36",)),
        title="contents of SQLite after the process was killed before every statement in turn",
    )


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``sinks``."""
    parser = subparsers.add_parser(
        "sinks",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "strategies", nargs="*", metavar="STRATEGY", help=f"of {', '.join(map(repr, STRATEGIES))}; default: all"
    )
    parser.add_argument("--inputs", type=int, default=2, metavar="N", help="number of inputs (default 2)")
    parser.add_argument("--faults", type=int, default=2, metavar="N", help="maximum number of faults (default 2)")
    add_json(parser)
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Run ``sinks``."""
    for strategy in arguments.strategies:
        if strategy not in STRATEGIES:
            arguments.parser.error(f"no strategy {strategy!r}; there are {', '.join(map(repr, STRATEGIES))}")
    if arguments.inputs < 1 or arguments.faults < 0:
        arguments.parser.error("--inputs must be at least 1 and --faults at least 0")
    verdicts = []
    for strategy in arguments.strategies or STRATEGIES:
        progress_console.print(f"killing {strategy} at every step")
        verdicts.append(check(strategy, arguments.inputs, arguments.faults))
    print_verdicts(verdicts, "sinks")
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(verdict.ok for verdict in verdicts) else 1
