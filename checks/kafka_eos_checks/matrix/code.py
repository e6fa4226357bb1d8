"""Mutants of the Python code: one operator, constant or branch of a module changed; its tests have to fail.

Cosmic Ray says where a module can be changed and how. A sample is drawn with a seed: a place first, then one of the
changes that are possible there. Annotations and their like are left out, because they do not change behaviour. Each
mutant is written into a copy of the clone. There the tests that mirror the module run, then those of its folder, then
all others on demand. Tests that enter the changed function go first.
"""

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from time import monotonic
from typing import Any

from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.matrix.conjuncts.equivalents import read_equivalents
from kafka_eos_checks.matrix.conjuncts.outcomes import Score
from kafka_eos_checks.models.registry import MalformedRegistry
from kafka_eos_checks.tla.result_cache import ResultCache, fingerprint

PLUGIN, NOTES = "kafka_eos_checks.matrix.reached", "KAFKA_EOS_REACHED"
"""The pytest plugin that notes which functions a test enters, and the variable that names the file of its notes."""
SOURCES = {"reference": "reference/kafka_eos", "checks": "checks/kafka_eos_checks"}
COPIED = ("reference", "checks", "tests", "spec", "docs", "examples", "requirements")
LINKED = ("build/jars", "build/libraries", ".venv")
EXPLAINED = Path(__file__).with_name("equivalent_code.toml")
KEYS = ("file", "change", "reason")
EXTRA = "mutants"
NONE, NO_END = "nothing", "no end"
_LEAST_TIMEOUT, _SLOWER = 30.0, 3.0  # seconds, and times the unchanged run

_NOT_COPIED = shutil.ignore_patterns("__pycache__")

Position = tuple[int, int]


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
    """

    mutant: CodeMutant
    by: str
    seconds: float = 0.0

    @property
    def is_killed(self) -> bool:
        """Whether some test failed, or did not come to an end."""
        return self.by != NONE

    @property
    def entry(self) -> tuple[str, str]:
        """File and change, as in the registry of equivalents."""
        return self.mutant.file, self.mutant.change


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


def mirrored(root: Path, module: Path) -> list[list[str]]:
    """The tests of a module, the closest first: its own ones, then those of the nearest folder."""
    for kind, source in SOURCES.items():
        if module.is_relative_to(source):
            inside, above = module.relative_to(source), Path("tests") / kind
            own = above / inside.parent / f"test_{inside.name}"
            folder = next(each for each in (above / inside.parent, *own.parents[1:]) if (root / each).is_dir())
            return [[str(path)] for path in (own, folder) if path == folder or (root / path).is_file()]
    return []


def sample(root: Path, files: Sequence[Path], count: int, seed: int) -> list[CodeMutant]:
    """Mutants of these modules, drawn by place; fewer than ``count`` if there are fewer places.

    Raises:
        MissingExtra: when Cosmic Ray is not installed.
    """
    rng = random.Random(seed)
    places: dict[tuple[Path, Position, Position], list[tuple[str, int]]] = {}
    for file in files:
        for place, operator, occurrence in _changes((root / file).read_text(encoding="utf-8")):
            places.setdefault((file, *place), []).append((operator, occurrence))
    drawn = sorted(places)
    rng.shuffle(drawn)
    found: dict[str, CodeMutant] = {}
    for key in drawn:
        if len(found) >= count:
            break
        mutant = _mutant(root, key[0], key[1][0], *rng.choice(places[key]))
        if mutant is not None:
            found.setdefault(f"{mutant.place} {mutant.change}", mutant)
    return sorted(found.values(), key=lambda mutant: (mutant.file, mutant.line, mutant.change))


def _changes(text: str) -> Iterator[tuple[tuple[Position, Position], str, int]]:
    """Place, operator and occurrence of each change that Cosmic Ray knows."""
    trees, plugins = need("cosmic_ray.ast", EXTRA), need("cosmic_ray.plugins", EXTRA)
    nodes = list(trees.ast_nodes(trees.get_ast(text)))
    unchecked = list(_annotations(text))
    for name in plugins.operator_names():
        operator = plugins.get_operator(name)
        if operator.arguments():
            continue
        places = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, end) in enumerate(places):
            if not any(first <= start and end <= last for first, last in unchecked):
                yield (start, end), name, occurrence


def _annotations(text: str) -> Iterator[tuple[Position, Position]]:
    """The places that change no behaviour: annotations, their imports, dataclass flags, marks of abstract methods."""
    for node in ast.walk(ast.parse(text)):
        held = [getattr(node, name, None) for name in ("annotation", "returns")]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
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


def _is_program(text: str) -> bool:
    """Whether Python compiles a text without a warning; any test kills a text that it does not compile."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _mutant(root: Path, file: Path, line: int, operator: str, occurrence: int) -> CodeMutant | None:
    """A changed module; None if the change leaves the same program."""
    mutating, plugins = need("cosmic_ray.mutating", EXTRA), need("cosmic_ray.plugins", EXTRA)
    before = (root / file).read_text(encoding="utf-8")
    after = mutating.mutate_code(before, plugins.get_operator(operator)(), occurrence)
    if after is None or after == before or not _is_program(after):
        return None
    old, new = before.split("\n"), after.split("\n")
    first = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)) - 1)
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
        whole: whether a mutant that survives the tests of its folder is tried with all other tests.
    """

    root: Path
    folder: Path
    cache: ResultCache
    whole: bool = False

    def __post_init__(self) -> None:
        for name in COPIED:
            if (self.root / name).is_dir():
                shutil.copytree(self.root / name, self.folder / name, symlinks=True, ignore=_NOT_COPIED)
        for file in self.root.iterdir():
            if file.is_file():
                shutil.copy(file, self.folder)
        for name in LINKED:
            if (self.root / name).exists():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).symlink_to((self.root / name).resolve())

    def judge(self, mutant: CodeMutant) -> Fate:
        """The fate of a mutant.

        Raises:
            UnusableCode: when the tests fail without it.
        """
        began = monotonic()
        module = Path(mutant.file)
        for tests in [*mirrored(self.root, module), *([["tests"]] if self.whole else [])]:
            key = self._key(module, tests)
            usual = self._usual(tests, key)
            known = self.cache.get(fingerprint(key, mutant.text))
            if known is None:
                line = mutant.line
                first = reaching(usual["reached"], mutant.file, line, (self.root / module).read_text(encoding="utf-8"))
                known = {"failed": self._fate(mutant, [*first, *tests], usual["seconds"])}
                self.cache.put(fingerprint(key, mutant.text), known)
            if known["failed"]:
                return Fate(mutant=mutant, by=str(known["failed"]), seconds=monotonic() - began)
        return Fate(mutant=mutant, by=NONE, seconds=monotonic() - began)

    def _fate(self, mutant: CodeMutant, tests: Sequence[str], usual: float) -> str:
        """The first test that fails with a mutant, "" if none does.

        Tests without an end count only if they have one without the mutant, in the same time on this computer.
        """
        limit = max(_LEAST_TIMEOUT, _SLOWER * usual)
        module = self.folder / mutant.file
        original = module.read_text(encoding="utf-8")
        while True:
            module.write_text(mutant.text, encoding="utf-8")
            try:
                failed = self._fails(tests, limit)
            finally:
                module.write_text(original, encoding="utf-8")
            if failed != NO_END or self._fails(tests, limit) != NO_END:
                return failed
            limit *= 2

    def _key(self, module: Path, tests: Sequence[str]) -> str:
        """The fingerprint of a module's package and of the tests, as they are in the copy."""
        files = [*sorted((self.folder / module).parent.glob("*.py"))]
        for name in tests:
            path = self.folder / name
            files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
        return fingerprint(*(part for file in files for part in (file.name, file.read_bytes())))

    def _usual(self, tests: Sequence[str], key: str) -> Mapping[str, Any]:
        """The seconds that the tests take without a mutant, and the tests that reach each function."""
        known = self.cache.get(key)
        if known is None:
            began = monotonic()
            notes = self.folder / "reached.json"
            failed = self._fails(tests, 3600, "-p", PLUGIN, notes=notes)
            if failed:
                raise UnusableCode(f"{' '.join(tests)} fails without a mutant: {failed}; mend that first")
            known = {"seconds": monotonic() - began, "reached": json.loads(notes.read_text(encoding="utf-8"))}
            self.cache.put(key, known)
        return known

    def _fails(self, tests: Sequence[str], timeout: float, *options: str, notes: Path | None = None) -> str:
        """The first test that fails, "" if none does."""
        paths = os.pathsep.join(str(self.folder / name) for name in SOURCES)
        command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not thorough"]
        try:
            run = subprocess.run(
                [*command, *options, *tests],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": paths, **({NOTES: str(notes)} if notes else {})},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return NO_END
        if run.returncode == 0:
            return ""
        lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return lines[0].partition(" - ")[0].partition(" ")[2] if lines else f"pytest ended with {run.returncode}"


def read_explained(path: Path = EXPLAINED) -> dict[tuple[str, str], str]:
    """(file, change) -> why no test can notice it.

    Raises:
        UnusableCode: with the first entry that is wrong.
    """
    try:
        return read_equivalents(path, KEYS)
    except MalformedRegistry as error:
        raise UnusableCode(str(error)) from None


def verdict(package: str, fates: Iterable[Fate], reasons: Mapping[tuple[str, str], str]) -> Verdict:
    """The verdict on a package: every sampled mutant is killed, or explained."""
    every = list(fates)
    score = Score(every, reasons)
    lines = [f"survives: {fate.mutant}" for fate in score.survivors]
    lines += [f"killed, though the registry calls it equivalent: {fate.mutant}" for fate in score.refuted]
    lines += [f"killed by {fate.by}: {fate.mutant}" for fate in score.killed]
    return Verdict(
        check="code-mutant",
        name=package,
        expected="all killed or explained",
        found=score.found,
        ok=bool(every) and score.ok,
        seconds=sum(fate.seconds for fate in every),
        figures={"mutants": len(every), "killed": len(score.killed), "explained": len(score.explained)},
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


def function_key(file: str | Path, line: int) -> str:
    """The name of a function in the notes: its file, and the line of its first decorator or of its ``def``."""
    return f"{file}:{line}"


def reaching(notes: Mapping[str, Sequence[str]], file: str, line: int, text: str) -> Sequence[str]:
    """The tests that enter the function around a line; none if the line is in no function."""
    around: ast.FunctionDef | ast.AsyncFunctionDef | None = None
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            if node.body[0].lineno <= line <= node.end_lineno and (around is None or node.lineno > around.lineno):
                around = node
    if around is None:
        return ()
    first = min([around.lineno, *(decorator.lineno for decorator in around.decorator_list)])
    return notes.get(function_key(file, first), ())
