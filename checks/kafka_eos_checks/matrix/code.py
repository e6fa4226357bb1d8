"""Mutants of the Python code: one place of a module changed; its tests have to fail.

Cosmic Ray says where an operator or a constant can be changed and how, :mod:`~kafka_eos_checks.matrix.changes` what
can be left out or mixed up. A sample is drawn with a seed: a place first, then one of the changes that are possible
there. Annotations and their like are left out, because they do not change behaviour. Each mutant is written into a copy
of the clone. There the tests of the module's room run that execute the changed lines, but none that start a JVM; on
demand also those that do, and all tests that execute these lines. First come those in the file that mirrors the module,
then the quick ones; tests of more than 5 s come last. A run without a mutant notes which tests these are.
"""

import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from time import monotonic
from typing import Any

from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.matrix.changes import Position, edits
from kafka_eos_checks.matrix.conjuncts.equivalents import read_equivalents
from kafka_eos_checks.matrix.conjuncts.outcomes import Score
from kafka_eos_checks.matrix.notes import ELSEWHERE, MEASURED, NOTES
from kafka_eos_checks.models.registry import MalformedRegistry
from kafka_eos_checks.tla.result_cache import ResultCache, fingerprint

PLUGIN = "kafka_eos_checks.matrix.reached"
"""The pytest plugin that notes which lines a test executes."""
SOURCES = {"reference": "reference/kafka_eos", "checks": "checks/kafka_eos_checks"}
COPIED = ("reference", "checks", "tests", "spec", "docs", "examples", "requirements")
LINKED = ("build/jars", "build/libraries", ".venv")
EXPLAINED, NOTING, FORK_SERVER = (
    Path(__file__).with_name(name) for name in ("equivalent_code.toml", "reached.py", "fork_server.py")
)
_GENERIC = {"Callable", "Iterable", "Iterator", "Mapping", "Sequence", "dict", "list", "set", "tuple", "type"}
KEYS = ("file", "change", "reason")
EXTRA = "mutants"
NONE, NO_END, ENDED = "nothing", "no end", "pytest ended with"
_LEAST_TIMEOUT, _SLOWER = 15.0, 3.0  # seconds, and times the unchanged run
_NOTES_TIMEOUT, _AROUND_TESTS = 3600.0, 60.0  # seconds; pytest starts and ends around the tests
_NOTHING_TO_RUN = 5  # as pytest ends, if all tests are deselected
_ENDED = re.compile(r"Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!")  # as faulthandler says that it ends a test
_WITH_JAVA = "tlc or spark or broker or java"  # marks of tests
_QUICK, _JAVA, _ALL = f"not (thorough or {_WITH_JAVA})", f"not thorough and ({_WITH_JAVA})", "not thorough"

_NOT_COPIED = shutil.ignore_patterns("__pycache__")

_LEFT_OUT = frozenset({"PYTHONDONTWRITEBYTECODE", NOTES, MEASURED})
"""Variables of this process that no pytest is given: this process may itself belong to a test whose lines are noted."""


class UnusableCode(ValueError):  # noqa: N818 - named for the code
    """A package or a list of explanations that cannot be used, or tests that fail without a mutant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeMutant:
    """A changed module.

    Attributes:
        file: path of the module from the clone's root.
        line: the changed line, counted from 1.
        change: the changed lines before and after, without their indents.
        text: the module with the change.
    """

    file: str
    line: int
    change: str
    text: str

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    @property
    def entry(self) -> tuple[str, str]:
        """File and change, as in the registry of equivalents."""
        return self.file, self.change

    def __str__(self) -> str:
        """Place and change."""
        return f"{self.place}: {self.change}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """The outcome for a mutant.

    Attributes:
        mutant: the mutant.
        by: the tests that failed, or :data:`NONE`.
        seconds: wall time of all runs.
        is_executed: whether some of the tried tests are seen to execute the changed lines. If none is, none is run.
    """

    mutant: CodeMutant
    by: str
    seconds: float = 0.0
    is_executed: bool = True

    def __str__(self) -> str:
        """The outcome in words."""
        if self.is_killed:
            return f"killed by {self.by}: {self.mutant}"
        return f"survives{'' if self.is_executed else ', no tried test is seen to execute it'}: {self.mutant}"

    @property
    def is_killed(self) -> bool:
        """Whether some test failed, or did not come to an end."""
        return self.by != NONE

    @property
    def entry(self) -> tuple[str, str]:
        """That of the mutant."""
        return self.mutant.entry


def modules(root: Path, package: str) -> list[Path]:
    """The modules of a package or of a file, from the clone's root.

    Args:
        root: the clone.
        package: a folder or file below one of :data:`SOURCES`, as in ``reference/kafka_eos/server``, or a room's name.

    Raises:
        UnusableCode: when there is none.
    """
    for candidate in (root / package, *(root / source / package for source in SOURCES.values())):
        if candidate.is_file():
            return [candidate.relative_to(root)]
        found = sorted(path.relative_to(root) for path in candidate.rglob("*.py") if path.name != "__init__.py")
        if found and any(candidate.is_relative_to(root / source) for source in SOURCES.values()):
            return found
    raise UnusableCode(
        f"no package {package!r}; name a room, as 'server', or a file below {' or '.join(SOURCES.values())}"
    )


def room(module: Path) -> Path:
    """The room of a module: the folder below one of :data:`SOURCES`, or that itself for a file in no room."""
    source = next(Path(source) for source in SOURCES.values() if module.is_relative_to(source))
    inside = module.relative_to(source)
    return source / inside.parts[0] if len(inside.parts) > 1 else source


def room_tests(root: Path, module: Path) -> str:
    """The folder of the tests of a module's room; those of its floor if the room has none."""
    kind = next(kind for kind, source in SOURCES.items() if module.is_relative_to(source))
    own = Path("tests") / kind / room(module).relative_to(SOURCES[kind])
    return str(own if (root / own).is_dir() else own.parent)


def sample(root: Path, files: Sequence[Path], count: int, seed: int, kinds: str = "*") -> list[CodeMutant]:
    """Mutants of these modules, drawn by place; fewer than ``count`` if there are fewer places.

    Args:
        root: the clone.
        files: the modules, from its root.
        count: how many.
        seed: of the draws.
        kinds: a pattern of the names of changes, as in ``eos/*`` or ``core/NumberReplacer``.

    Raises:
        MissingExtra: when Cosmic Ray is not installed.
    """
    rng = random.Random(seed)
    places: dict[tuple[Path, Position, Position], list[Callable[[str], str | None]]] = {}
    for file in files:
        for place, make in _changes((root / file).read_text(encoding="utf-8"), kinds):
            places.setdefault((file, *place), []).append(make)
    drawn = sorted(places)
    rng.shuffle(drawn)
    found: dict[str, CodeMutant] = {}
    for key in drawn:
        if len(found) >= count:
            break
        mutant = _mutant(root, key[0], key[1][0], rng.choice(places[key]))
        if mutant is not None:
            found.setdefault(f"{mutant.place} {mutant.change}", mutant)
    return sorted(found.values(), key=lambda mutant: (mutant.file, mutant.line, mutant.change))


def _changes(text: str, kinds: str) -> Iterator[tuple[tuple[Position, Position], Callable[[str], str | None]]]:
    """Place and making of each change of these kinds: first those that Cosmic Ray knows."""
    trees, plugins = need("cosmic_ray.ast", EXTRA), need("cosmic_ray.plugins", EXTRA)
    tree, unchecked = trees.get_ast(text), list(_annotations(text))

    def is_checked(start: Position, end: Position) -> bool:
        return not any(first <= start and end <= last for first, last in unchecked)

    nodes = list(trees.ast_nodes(tree))
    for name in plugins.operator_names():
        operator = plugins.get_operator(name)
        if operator.arguments() or not fnmatchcase(name, kinds):
            continue
        places = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, end) in enumerate(places):
            if is_checked(start, end):
                yield (start, end), partial(_by_cosmic_ray, operator(), occurrence)
    for edit in edits(tree):
        if fnmatchcase(edit.kind, kinds) and is_checked(edit.start, edit.end):
            yield (edit.start, edit.end), edit.made


def _by_cosmic_ray(operator: Any, occurrence: int, before: str) -> str | None:
    """A text that Cosmic Ray has changed; None if it cannot."""
    try:
        return need("cosmic_ray.mutating", EXTRA).mutate_code(before, operator, occurrence)  # type: ignore[no-any-return]
    except AttributeError:  # it replaces no exception that has a dot in its name among others
        return None


def _annotations(text: str) -> Iterator[tuple[Position, Position]]:
    """The places that change no behaviour: annotations, their imports, types, dataclass flags, marks of methods."""
    for node in ast.walk(ast.parse(text)):
        held = [getattr(node, name, None) for name in ("annotation", "returns")]
        if (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING") or _names_a_type(node):
            held.append(node)
        for decorator in getattr(node, "decorator_list", ()):
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "dataclass":
                held += [flag.value for flag in decorator.keywords]
            elif ast.unparse(decorator) == "abstractmethod":
                yield (decorator.lineno, decorator.col_offset - 1), (decorator.lineno + 1, 0)  # with @ and line end
        for part in held:
            if isinstance(part, (ast.expr, ast.stmt)):
                assert part.end_lineno is not None
                assert part.end_col_offset is not None
                yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)


def _names_a_type(node: ast.AST) -> bool:
    """Whether a statement gives a name to a type, which only type checkers read."""
    match node:
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id=maker))):
            return maker in {"TypeVar", "ParamSpec"}
        case ast.Assign(value=ast.Subscript(value=ast.Name(id=generic))):
            return generic in _GENERIC
    return False


def _is_program(text: str) -> bool:
    """Whether Python compiles a text without a warning; any test kills a text that it does not compile."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _mutant(root: Path, file: Path, line: int, make: Callable[[str], str | None]) -> CodeMutant | None:
    """A changed module; None if the change leaves the same program."""
    before = (root / file).read_text(encoding="utf-8")
    after = make(before)
    if after is None or after == before or not _is_program(after):
        return None
    old, new = before.split("\n"), after.split("\n")
    first = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    rest = next((i for i, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b), 0)
    cut = (" ".join(line.strip() for line in lines[first : len(lines) - rest]) for lines in (old, new))
    return CodeMutant(file=str(file), line=line, change=" -> ".join(cut), text=after)


@dataclass(slots=True)
class Bench:
    """A copy of the clone in which mutants are tried, one at a time.

    Attributes:
        root: the clone.
        folder: the copy.
        cache: the results of earlier runs.
        java: whether a mutant that survives the quick tests of its room is tried with those that start a JVM.
        whole: whether a mutant that survives the tests of its room is tried with all tests.
        compiled: the folders of tests that are compiled, with what they import; that takes longer than a quick test.
        passing: the tests that have passed alone without a mutant, each with the marks; they need not show it for each
            mutant they notice.
        marks: the expression of marks of the tests that are tried now. Of a test with parameters it may leave some out.
        measured: a lock for each run without a mutant. Benches that share them run no file of tests twice.
        notes: the notes of each file of tests that were read, by fingerprint.
        server: the :mod:`~kafka_eos_checks.matrix.fork_server` that runs pytest in the copy; None before the first run.
    """

    root: Path
    folder: Path
    cache: ResultCache
    java: bool = False
    whole: bool = False
    compiled: set[str] = field(default_factory=set)
    passing: set[tuple[str, str]] = field(default_factory=set)
    marks: str = ""
    measured: dict[str, Lock] = field(default_factory=dict)
    notes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    server: subprocess.Popen[str] | None = None

    def __post_init__(self) -> None:
        for name in COPIED:
            if (self.root / name).is_dir():
                shutil.copytree(self.root / name, self.folder / name, symlinks=True, ignore=_NOT_COPIED)
        for file in self.root.iterdir():
            if file.is_file():
                shutil.copy(file, self.folder)
        for name in LINKED:
            if (self.root / name).exists():
                (self.folder / name).parent.mkdir(exist_ok=True)
                (self.folder / name).symlink_to((self.root / name).resolve())

    def judge(self, mutant: CodeMutant) -> Fate:
        """The fate of a mutant.

        Raises:
            UnusableCode: when the tests fail without it.
        """
        began, is_executed = monotonic(), False
        module = Path(mutant.file)
        for folder, marks in self._stages(module):
            stage = f"{folder}, {marks}" if marks == _JAVA else folder
            keys, entry = self._keys(module, folder, marks), fingerprint(stage, mutant.text)
            known = self.cache.get(entry)
            if known is None or known["under"] != _under(keys, known["failed"]):
                first, last = statement((self.folder / module).read_text(encoding="utf-8"), mutant.line)
                reaching = reaching_tests(self._notes(module, keys, marks), mutant.file, range(first, last + 1))
                if folder not in self.compiled:
                    self._fails([folder], _NOTES_TIMEOUT, 0, "--collect-only", variables={})
                    self.compiled.add(folder)
                self.marks = marks
                failed = self._fate(mutant, reaching)
                known = {"failed": failed, "under": _under(keys, failed), "executed": bool(reaching)}
                self.cache.put(entry, known)
            is_executed |= bool(known.get("executed", True))
            if known["failed"]:
                return Fate(mutant=mutant, by=str(known["failed"]), seconds=monotonic() - began)
        return Fate(mutant=mutant, by=NONE, seconds=monotonic() - began, is_executed=is_executed)

    def _stages(self, module: Path) -> Iterator[tuple[str, str]]:
        """The tests that a mutant is tried with, until one notices it: their folder, and an expression of marks."""
        own = room_tests(self.root, module)
        yield own, _QUICK
        if self.java:
            yield own, _JAVA
        if self.whole:
            yield "tests", _ALL

    def _fate(self, mutant: CodeMutant, tests: Mapping[str, float]) -> str:
        """The first test that fails with a mutant, "" if none does.

        A test counts only if it fails twice with the mutant and passes without it, which it shows once in a call. One
        that passes alone may have failed for what a test before it has left behind, so the tests up to it run again,
        with the mutant and without it. One that fails now and then is left out, and the others go on.

        If pytest itself ends otherwise than with a failed test, killed for want of memory or unable to start, that
        counts only if it ends so twice with the mutant and never without it. A test without an end counts only if it
        has one without the mutant, in the same time on this computer, and then again has none with the mutant in twice
        the time: a computer may stand still for a while. Long tests run after all others and by themselves, because the
        longest one sets the time after which a test of a run has no end.

        Args:
            mutant: the mutant.
            tests: the tests to run, in this order, and the seconds of each without the mutant.

        Raises:
            UnusableCode: when the test fails without the mutant, too, or pytest ends otherwise than with a passed or a
                failed test.
        """
        quick = {name: seconds for name, seconds in tests.items() if _SLOWER * seconds <= _LEAST_TIMEOUT}
        if quick and len(quick) < len(tests):
            long = {name: seconds for name, seconds in tests.items() if name not in quick}
            return self._fate(mutant, quick) or self._fate(mutant, long)
        limit = max([_LEAST_TIMEOUT, *(_SLOWER * seconds for seconds in tests.values())])
        suspected = ""
        while tests:
            failed = self._fails_with(mutant, list(tests), limit, sum(tests.values()))
            if not failed:
                return ""
            if not failed.startswith((NO_END, ENDED)):
                test = failed.partition("[")[0]  # of any parameters: their names may be cut
                if self._fails_with(mutant, [test], limit, limit):
                    without = "" if (self.marks, test) in self.passing else self._fails([test], limit, limit)
                    if not without:
                        self.passing.add((self.marks, test))
                        return failed
                    if not without.startswith(NO_END):
                        raise UnusableCode(f"a test fails without a mutant: {without}; mend that first")
                elif self._fails_after_others(mutant, tests, test, limit):
                    return failed
                tests = {name: seconds for name, seconds in tests.items() if test not in {name, _file(name)}}
                continue
            endless = failed.removeprefix(NO_END).strip() if failed.startswith(NO_END) else ""
            without = self._fails([endless] if endless else list(tests), limit, sum(tests.values()))
            if without.startswith(ENDED):
                raise UnusableCode(f"{without} without a mutant; mend that first")
            ends = not without
            if ends and failed == suspected:
                return failed
            suspected = failed if ends else ""
            limit *= 2
        return ""

    def _fails_after_others(self, mutant: CodeMutant, tests: Mapping[str, float], test: str, limit: float) -> bool:
        """Whether the tests up to this one fail again with a mutant, and pass without it."""
        names = list(tests)
        first = names[: 1 + max((place for place, name in enumerate(names) if test in {name, _file(name)}), default=-1)]
        usual = sum(tests[name] for name in first)
        return (
            len(first) > 1
            and bool(self._fails_with(mutant, first, limit, usual))
            and not self._fails(first, limit, usual)
        )

    def _fails_with(self, mutant: CodeMutant, tests: Sequence[str], limit: float, usual: float) -> str:
        """The first test that fails with a mutant; the arguments are those of :meth:`_fails`."""
        module = self.folder / mutant.file
        original, written = module.read_text(encoding="utf-8"), int(module.stat().st_mtime)
        module.write_text(mutant.text, encoding="utf-8")
        os.utime(module, (written + 10, written + 10))  # the compiled original must not count as this file's
        try:
            return self._fails(tests, limit, usual)
        finally:
            module.write_text(original, encoding="utf-8")
            os.utime(module, (written, written))

    def _keys(self, module: Path, folder: str, marks: str) -> dict[str, str]:
        """The fingerprint of each file of tests, and with it of a module's room, what tests share and the plugin."""
        every = sorted((self.folder / folder).rglob("*.py"))
        own = [file for file in every if file.name.startswith("test_")]
        shared = [*sorted((self.folder / room(module)).rglob("*.py")), *(file for file in every if file not in own)]
        shared.append(NOTING)
        under = fingerprint(marks, *(part for file in shared for part in (file.name, file.read_bytes())))
        return {str(file.relative_to(self.folder)): fingerprint(under, file.read_bytes()) for file in own}

    def _notes(self, module: Path, keys: Mapping[str, str], marks: str) -> list[Mapping[str, Any]]:
        """Notes of each file of tests: see ``reached``. Those without any yet run without a mutant, one by one."""
        for waits in (False, True):  # first for what no other bench runs
            for file, key in keys.items():
                if self._noted(key) is None and (lock := self.measured.setdefault(key, Lock())).acquire(waits):
                    try:
                        self._measure(file, key, module, marks)
                    finally:
                        lock.release()
        return [kept for key in keys.values() if (kept := self._noted(key)) is not None]

    def _noted(self, key: str) -> Mapping[str, Any] | None:
        if key not in self.notes and (kept := self.cache.get(key)) is not None:
            self.notes[key] = kept
        return self.notes.get(key)

    def _measure(self, file: str, key: str, module: Path, marks: str) -> None:
        """Run a file of tests without a mutant, unless another bench has just done so, and keep its notes."""
        if self._noted(key) is not None:
            return
        notes = self.folder / "reached.json"
        variables = {NOTES: str(notes), MEASURED: str(self.folder / room(module))}
        failed = self._fails([file], _NOTES_TIMEOUT, _NOTES_TIMEOUT, "-p", PLUGIN, "-m", marks, variables=variables)
        if failed:
            raise UnusableCode(f"a test fails without a mutant: {failed}; mend that first")
        found = json.loads(notes.read_text(encoding="utf-8"))
        self.cache.put(key, found.get(file, {"tests": {}, "reached": {}}))

    def _fails(
        self,
        tests: Sequence[str],
        limit: float,
        usual: float,
        *options: str,
        variables: Mapping[str, str] | None = None,
    ) -> str:
        """The first test that fails, "" if none does.

        Args:
            tests: the tests to run.
            limit: after so many seconds a test has no end.
            usual: the seconds that all of them take.
            options: further ones of pytest.
            variables: further ones of the environment; None if a mutant is tried.
        """
        with_mutant = variables is None
        if with_mutant:
            # A mutant leaves no compiled file, nor does a process that its tests start: the file would stay valid for
            # the next mutant, if that is as long and as old.
            variables = {"PYTHONDONTWRITEBYTECODE": "1"}
            options = (*options, "-m", self.marks)
        timeout = ["-o", f"faulthandler_timeout={limit}", "-o", "faulthandler_exit_on_timeout=true"]
        said = self.folder / "said"
        request = {
            "arguments": ["-x", "-v", "-p", "no:cacheprovider", *timeout, *options, *tests],
            "variables": dict(variables or {}),
            "said": str(said),
            "seconds": _AROUND_TESTS + limit + _SLOWER * usual,
        }
        status = self._asked(request)
        if status is None:
            return NO_END
        if status == 0 or (status == _NOTHING_TO_RUN and not with_mutant):
            return ""
        text = said.read_text(encoding="utf-8", errors="replace")
        if ended := _ENDED.search(text):
            started = [line for line in text[: ended.start()].splitlines() if "::" in line]
            return f"{NO_END} {started[-1].strip() if started else ''}".strip()
        summary = text.rpartition(" short test summary info ")[2].splitlines()  # a log has lines with ERROR, too
        failed = [line for line in summary if line.startswith(("FAILED ", "ERROR "))]
        return failed[0].partition(" - ")[0].partition(" ")[2] if failed else f"{ENDED} {status}"

    def _asked(self, request: Mapping[str, Any]) -> int | None:
        """The answer of the fork server; the first request starts it."""
        if self.server is None:
            environment = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
            inherited = [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
            environment["PYTHONPATH"] = os.pathsep.join([*(str(self.folder / name) for name in SOURCES), *inherited])
            self.server = subprocess.Popen(
                [sys.executable, "-P", str(FORK_SERVER)],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        print(json.dumps(request), file=self.server.stdin, flush=True)
        answer = self.server.stdout.readline()
        if not answer:
            ended = self.server.wait()
            self.close()
            raise UnusableCode(f"the process that starts pytest ended with {ended}")
        status: int | None = json.loads(answer)
        return status

    def close(self) -> None:
        """End the fork server, and a pytest that it runs."""
        if self.server is not None:
            self.server.communicate()
            self.server = None


def _under(keys: Mapping[str, str], failed: str) -> str:
    """The fingerprint of the tests on which a result rests: the file of the failed one, or all."""
    return keys.get(_file(failed.removeprefix(NO_END).strip()), fingerprint(*keys.values()))


def read_explained(path: Path = EXPLAINED) -> dict[tuple[str, str], str]:
    """(file, change) -> why no test can notice it.

    Raises:
        UnusableCode: with the first entry that is wrong.
    """
    try:
        return read_equivalents(path, KEYS)
    except MalformedRegistry as error:
        raise UnusableCode(str(error)) from None


def verdict(
    package: str,
    fates: Iterable[Fate],
    reasons: Mapping[tuple[str, str], str],
    trusted: Collection[CodeMutant] = (),
) -> Verdict:
    """The verdict on a package: every sampled mutant is killed, or explained.

    Args:
        package: the name of the package.
        fates: the fates of the mutants that were tried.
        reasons: why no test can notice a mutant, by :attr:`CodeMutant.entry`.
        trusted: explained mutants that were not tried.
    """
    tried = list(fates)
    every = [*tried, *(Fate(mutant=mutant, by=NONE) for mutant in trusted)]
    score = Score(every, reasons)
    lines = [str(fate) for fate in score.survivors]
    lines += [f"killed, though the registry calls it equivalent: {fate.mutant}" for fate in score.refuted]
    lines += [str(fate) for fate in score.killed]
    return Verdict(
        check="code-mutant",
        name=package,
        expected="all killed or explained",
        found=score.found if tried else "none tried",
        ok=bool(tried) and score.ok,
        seconds=sum(fate.seconds for fate in every),
        figures={
            "mutants": len(every),
            "killed": len(score.killed),
            "explained": len(score.explained),
            "not_tried": len(trusted),
        },
        evidence="\n".join(lines),
    )


def judged(benches: Sequence[Bench], mutants: Sequence[CodeMutant], on_fate: Callable[[Fate], None]) -> list[Fate]:
    """The fates of mutants, on several benches at a time, in the order of the mutants.

    Raises:
        UnusableCode: when tests fail without a mutant.
    """
    free: SimpleQueue[Bench] = SimpleQueue()
    for bench in benches:
        free.put(bench)

    def one(mutant: CodeMutant) -> Fate:
        bench = free.get()
        try:
            fate = bench.judge(mutant)
        finally:
            free.put(bench)
        on_fate(fate)
        return fate

    with ThreadPoolExecutor(len(benches)) as pool:
        return list(pool.map(one, mutants))


def statement(text: str, line: int) -> tuple[int, int]:
    """The first and the last line of the innermost statement around a line; of one with a body, the lines before it."""
    found = (line, line)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            assert node.end_lineno is not None
            body = getattr(node, "body", None)
            first, last = node.lineno, max(node.lineno, body[0].lineno - 1) if body else node.end_lineno
            if first <= line <= last and (found == (line, line) or first > found[0]):
                found = first, last
    return found


def reaching_tests(notes: Iterable[Mapping[str, Any]], file: str, lines: Iterable[int]) -> dict[str, float]:
    """The tests that are seen to execute one of these lines, and their seconds; none if no test is.

    The tests of the file that mirrors the module come first, then the quick ones. The tests that are after them in
    their files follow: a fixture or a cache may have kept for them the result of the lines. If an import executes a
    line, or a process that does not know its test, all others follow.
    """
    seconds: dict[str, float] = {}
    known: set[str] = set()
    later: set[str] = set()
    is_elsewhere, lines = False, list(lines)
    for own in notes:
        tests, reached = list(own["tests"]), own["reached"].get(file, {})
        found = {number for line in lines for number in reached.get(str(line), ())}
        is_elsewhere |= ELSEWHERE in found
        if numbers := found - {ELSEWHERE}:
            known |= {tests[number] for number in numbers}
            later |= set(tests[min(numbers) :])
        seconds |= own["tests"]
    mirroring = f"test_{Path(file).stem}"

    def rank(name: str) -> tuple[bool, bool, float, str]:
        return name not in known, Path(_file(name)).stem != mirroring, seconds[name], name

    return {name: seconds[name] for name in sorted(seconds if is_elsewhere else later, key=rank)}


def _file(test: str) -> str:
    return test.partition("::")[0]
