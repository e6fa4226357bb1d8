"""``kafka-eos check broker-mutants``: Kafka's own broker with one rule changed; ``conform`` has to notice each change.

An agent (tests/java/BrokerMutants.java) changes the bytecode of a broker of Kafka 4.3 while it starts. Each mutant is
asked by clients of version 2, then of version 1, until an answer or a state differs; some mutants show only after a
restart, or on a cluster of transaction.version 1. First the unchanged broker is asked in the same ways, and has to
conform: otherwise nothing counts. A mutant that nothing notices is a survivor, unless conform/broker_mutants.toml says
why nothing can notice it. A mutant that was not applied, and one whose broker does not start, are errors. Results are
kept in build/checked/broker-mutants as long as nothing that they depend on changes, so an interrupted call continues.
"""

import argparse
import fnmatch
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any

from kafka_eos_checks.brokers.brokers import SMALL_JAVA, Broker, BrokerFailed, Cluster
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, need_jars
from kafka_eos_checks.conform.outages import RESTART, Commands, OutageFailed, Outages
from kafka_eos_checks.conform.peers import AT_ONCE
from kafka_eos_checks.conform.run import Found
from kafka_eos_checks.conform.session import Target, conform, open_session
from kafka_eos_checks.conform.territory import NotOurs
from kafka_eos_checks.conform.wire import NoAnswer, Unreachable
from kafka_eos_checks.kit.arguments import add_json
from kafka_eos_checks.kit.missing import Missing, need_clone
from kafka_eos_checks.kit.paths import CLONE, spec_folder
from kafka_eos_checks.kit.terminal import answer_console, print_verdicts, progress_console
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.tla.result_cache import ResultCache, cache_folder, fingerprint, python_fingerprint

SOURCE = CLONE / "tests" / "java" / "BrokerMutants.java"
SURVIVORS = Path(__file__).parent / "broker_mutants.toml"  # it decides no result, only what is expected
MODULE = "kafka_eos_checks.conform.broker_mutants_command"
VERSION_2, VERSION_1 = "clients of version 2", "clients of version 1"
AFTER_RESTART, AT_LEVEL_1 = "after a restart", "transaction.version 1"
WAYS = {"": (VERSION_2, VERSION_1), "restart": (AFTER_RESTART,), "level 1": (AT_LEVEL_1,)}
"""The ways in which a broker is asked, one after the other, by the need of its mutant."""
ANSWER_SECONDS = 5.0
WAY_SECONDS = {VERSION_2: 120.0, VERSION_1: 120.0, AT_LEVEL_1: 120.0, AFTER_RESTART: 600.0}
"""The longest time that a broker is asked in one way."""
RESTARTED = 3
"""Of so many edges one is asked after a restart, which takes as long as all others together."""
EPILOG = """examples:
  kafka-eos check broker-mutants                    all of them (a quarter of an hour)
  kafka-eos check broker-mutants 'marker-*' --list
  kafka-eos check broker-mutants marker-epoch-unchecked static-member-not-fenced

exit codes: 0 every mutant is noticed, or explained and not noticed; 1 one is not, or is in error, or the unchanged
broker does not conform; 2 the call cannot be used
"""


class UnusableMutants(ValueError):  # noqa: N818 - what is wrong
    """A call, a list of mutants or of survivors that cannot be used."""


class Outcome(StrEnum):
    """The outcome of a mutant; all but the first two are errors of the mutant or of the run."""

    NOTICED = "noticed"
    NOT_NOTICED = "not noticed"
    NOT_APPLIED = "not applied"
    NOT_STARTED = "does not start"
    ENDED = "the broker ends"
    NO_END = "comes to no end"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed rule of the broker.

    Attributes:
        name: its name.
        needs: the key of its :data:`WAYS`.
        classes: the changed classes.
        wrong: why the changed rule is wrong.
    """

    name: str
    needs: str
    classes: tuple[str, ...]
    wrong: str

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways in which its broker is asked."""
        return WAYS[self.needs]


CONTROL = Mutant("", "", (), "")
"""The unchanged broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """The outcome of a mutant, what differed first or why it is in error, and the seconds that it took."""

    outcome: Outcome
    by: str = ""
    seconds: float = 0.0


class TooLong(Exception):  # noqa: N818 - what happened
    """A broker was asked for longer than :data:`WAY_SECONDS`."""


class Differs(Exception):  # noqa: N818 - what happened
    """An edge diverges; the rest need not be asked."""


# --- the mutants -----------------------------------------------------------------------------------------------------


def compiled(folder: Path) -> Path:
    """The agent as a jar in a folder.

    Raises:
        Missing: there is no JDK, or no jars of Kafka.
    """
    jars, classes = need_jars(), folder / "classes"
    command = ["javac", "-nowarn", "-d", str(classes), "-cp", f"{jars}/*", str(SOURCE)]
    try:
        subprocess.run(command, check=True, timeout=300, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise Missing(f"there is no JDK to compile the agent with ({error})") from None
    jar = folder / "broker-mutants.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", f"Manifest-Version: 1.0\nPremain-Class: {SOURCE.stem}\n")
        for each in sorted(classes.glob("*.class")):
            archive.write(each, each.name)
    return jar


def listed(jar: Path) -> list[Mutant]:
    """The mutants of an agent."""
    java = (*SMALL_JAVA, "-cp", f"{jar}:{need_jars()}/*", SOURCE.stem)
    told = subprocess.run(java, check=True, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    return parsed(told.stdout)


def parsed(text: str) -> list[Mutant]:
    """The mutants of a list: a line for each, with name, need, classes and sentence.

    Raises:
        UnusableMutants: a line is none, or there is none.
    """
    mutants = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 4 or not all((fields[0], fields[2], fields[3])) or fields[1] not in WAYS:
            raise UnusableMutants(f"the agent lists {line!r}, which is no mutant")
        mutants.append(Mutant(fields[0], fields[1], tuple(fields[2].split(",")), fields[3]))
    if not mutants:
        raise UnusableMutants("the agent lists no mutant")
    return mutants


def survivors(mutants: Iterable[Mutant], file: Path = SURVIVORS) -> dict[str, str]:
    """The mutants that nothing notices, each with the reason.

    Raises:
        UnusableMutants: an entry is of no mutant, or has no reason.
    """
    names, rows = {each.name for each in mutants}, tomllib.loads(file.read_text(encoding="utf-8"))
    for name, row in rows.items():
        if name not in names or set(row) != {"reason"} or not str(row["reason"]).strip():
            raise UnusableMutants(f"{file.name}: {name}: no mutant has this name, or its entry is not one reason")
    return {name: row["reason"] for name, row in rows.items()}


def chosen(mutants: Sequence[Mutant], patterns: Sequence[str]) -> list[Mutant]:
    """The mutants whose names match one of some patterns; all if there are none.

    Raises:
        UnusableMutants: a pattern matches none.
    """
    for pattern in patterns:
        if not fnmatch.filter([each.name for each in mutants], pattern):
            raise UnusableMutants(f"no mutant matches {pattern!r}; --list names them all")
    return [each for each in mutants if not patterns or any(fnmatch.fnmatchcase(each.name, p) for p in patterns)]


# --- one broker ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class InPlace(Outages):
    """Outages of a broker that this process has started."""

    broker: Broker

    def _run(self, option: str, command: str) -> None:  # noqa: ARG002 - the commands stand for this
        if option == "--stop":
            self.broker.stop()
        else:
            self.broker.start()


def difference(broker: Broker, way: str) -> str:
    """The first edge in which a broker differs from the spec when it is asked in a way; "" if it conforms.

    Raises:
        TooLong: it was asked for too long.
        NoAnswer, Unreachable, NotOurs, OutageFailed: it could not be asked.
    """
    commands = Commands(stop="stop", start="start", node=broker.node) if way == AFTER_RESTART else None
    session = open_session(
        Target(
            bootstrap=f"127.0.0.1:{broker.port}",
            transaction_version=1 if way in {VERSION_1, AT_LEVEL_1} else 2,
            seconds=ANSWER_SECONDS,
            commands=commands,
            timeouts=commands is None,
        )
    )
    deadline = time.monotonic() + WAY_SECONDS[way]

    def look(mechanism: str, left: int, diverged: list[str]) -> None:
        if diverged:
            raise Differs(diverged[0])
        if time.monotonic() > deadline:
            raise TooLong(f"{way}: {left} edges of {mechanism} are left after {WAY_SECONDS[way]:g} s")

    try:
        if commands is not None:
            session.outages = InPlace(session.wire, commands, broker)
        wanted = list(session.edges())
        if commands is not None:
            wanted = [name for name in wanted if name.startswith(f"{RESTART}-")][::RESTARTED]
        report = conform(session, wanted, look)
    except Differs as differs:
        return str(differs)
    finally:
        session.wire.close()
    if report.conforms:
        return ""
    first = next((each for each in report.differing() if each.found is not Found.UNSUPPORTED), None)
    return f"{first.edge.name}: {first.found}" if first is not None else "nothing was compared"


def tried(mutant: Mutant, jar: Path, folder: Path, ask: Callable[[Broker, str], str] = difference) -> Fate:
    """Start a broker with a mutant in a new folder, and ask it in every way until something differs."""
    java = (*SMALL_JAVA, f"-javaagent:{jar}={mutant.name}") if mutant.name else SMALL_JAVA
    started, by, error = False, "", None
    try:
        level = 1 if AT_LEVEL_1 in mutant.ways else 2
        with Cluster(folder, settings=AT_ONCE, features={"transaction.version": level}, java=java) as cluster:
            started = True
            for way in mutant.ways:
                if found := ask(cluster[1], way):
                    by = f"{way}: {found}"
                    break
            cluster[1].check_running()
    except (BrokerFailed, TooLong, NoAnswer, Unreachable, NotOurs, OutageFailed) as failed:
        error = failed
    output = folder / "1" / "output.log"
    said = output.read_text(encoding="utf-8", errors="replace") if output.is_file() else ""
    return judged(mutant, said, started=started, by=by, error=error)


def judged(mutant: Mutant, said: str, *, started: bool, by: str, error: Exception | None) -> Fate:
    """The outcome of a mutant, without its seconds.

    Args:
        mutant: the mutant.
        said: what its broker has written.
        started: the broker answered.
        by: what differed first.
        error: what kept the broker from being asked to the end.
    """
    missing = [each for each in mutant.classes if f"mutant {mutant.name} applied to {each}\n" not in said]
    refused = next((line for line in said.splitlines() if line.startswith(f"mutant {mutant.name} not applied")), "")
    if (started and missing) or refused:
        return Fate(outcome=Outcome.NOT_APPLIED, by=refused or f"not loaded: {', '.join(missing)}")
    if not started:
        return Fate(outcome=Outcome.NOT_STARTED, by=str(error))
    if isinstance(error, BrokerFailed):
        return Fate(outcome=Outcome.ENDED, by=str(error))
    if by:
        return Fate(outcome=Outcome.NOTICED, by=by)
    return Fate(outcome=Outcome.NO_END, by=str(error)) if error is not None else Fate(outcome=Outcome.NOT_NOTICED)


# --- all of them -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """A run over mutants, which goes on where an earlier one was ended.

    Attributes:
        cache: the results of earlier runs.
        depends: the fingerprint of all that results depend on, except the mutant.
        attempt: starts a broker with a mutant, and asks it.
        tell: is told each outcome.
    """

    cache: ResultCache
    depends: str
    attempt: Callable[[Mutant], Fate]
    tell: Callable[[str, Fate], None]

    def fates(self, mutants: Sequence[Mutant]) -> dict[str, Fate] | Fate:
        """The outcome of each mutant by name; that of the unchanged broker alone, if it does not conform."""
        found = {each.name: fate for each in mutants if (fate := self._kept(each)) is not None}
        left = [each for each in mutants if each.name not in found]
        for needs in sorted({each.needs for each in left}):
            control = self._timed(replace(CONTROL, needs=needs))
            if control.outcome is not Outcome.NOT_NOTICED:
                return control
        for each in left:
            fate = found[each.name] = self._timed(each)
            if fate.outcome in {Outcome.NOTICED, Outcome.NOT_NOTICED}:
                self.cache.put(self._key(each), asdict(fate))
        return {each.name: found[each.name] for each in mutants}

    def _timed(self, mutant: Mutant) -> Fate:
        began = time.monotonic()
        fate = replace(self.attempt(mutant), seconds=time.monotonic() - began)
        self.tell(mutant.name or f"the unchanged broker, {' and '.join(mutant.ways)}", fate)
        return fate

    def _key(self, mutant: Mutant) -> str:
        return fingerprint(self.depends, mutant)

    def _kept(self, mutant: Mutant) -> Fate | None:
        kept = self.cache.get(self._key(mutant))
        return None if kept is None else Fate(**{**kept, "outcome": Outcome(kept["outcome"])})


def verdict(mutant: Mutant, fate: Fate, reason: str) -> Verdict:
    """The verdict on a mutant: it has to be noticed, or not if there is a reason why nothing can notice it."""
    expected = Outcome.NOT_NOTICED if reason else Outcome.NOTICED
    explained = f": {reason}" if reason else ""
    return Verdict(
        check="broker mutant",
        name=mutant.name,
        expected=expected,
        found=f"{fate.outcome}{f': {fate.by}' if fate.by else ''}" + (explained if fate.outcome is expected else ""),
        ok=fate.outcome is expected,
        seconds=fate.seconds,
        title=mutant.wrong,
        evidence="" if fate.outcome is expected else f"{mutant.wrong}{explained}",
    )


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``broker-mutants``."""
    parser = subparsers.add_parser(
        "broker-mutants",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="names, or patterns as a shell has (default: all)")
    parser.add_argument("--list", action="store_true", help="list the mutants, and start no broker")
    add_json(parser, "the verdicts, one a mutant")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run ``broker-mutants``."""
    with tempfile.TemporaryDirectory(prefix="kafka-eos-mutants-") as name:
        folder = Path(name)
        try:
            need_clone("sources of the agent")
            jar = compiled(folder)
            mutants = listed(jar)
            reasons, wanted = survivors(mutants), chosen(mutants, arguments.mutants)
        except (UnusableMutants, Missing, subprocess.SubprocessError) as error:
            print(f"kafka-eos check broker-mutants: {error}", file=sys.stderr)
            return 2
        if arguments.list:
            for each in wanted:
                answer_console.print(f"{each.name}: {each.wrong}", soft_wrap=True)
            return 0
        numbers = count()
        rules = (spec_folder() / "releases.toml").read_bytes()
        found = Run(
            cache=ResultCache(cache_folder("broker-mutants")),
            depends=fingerprint(SOURCE.read_bytes(), python_fingerprint((MODULE,)), rules, KAFKA_VERSION),
            attempt=lambda mutant: tried(mutant, jar, folder / str(next(numbers))),
            tell=lambda name, fate: progress_console.print(
                f"{name}: {fate.outcome}, {fate.seconds:.0f} s {fate.by}".rstrip(), soft_wrap=True
            ),
        ).fates(wanted)
    if isinstance(found, Fate):
        told = "does not conform" if found.outcome is Outcome.NOTICED else found.outcome.value
        answer_console.print(f"FAIL the unchanged broker {told}: {found.by}", soft_wrap=True)
        return 1
    verdicts = [verdict(each, found[each.name], reasons.get(each.name, "")) for each in wanted]
    print_verdicts(verdicts, f"mutants of the broker of Kafka {KAFKA_VERSION}")
    if arguments.json:
        write_verdicts(arguments.json, verdicts)
    return 0 if all(each.ok for each in verdicts) else 1
