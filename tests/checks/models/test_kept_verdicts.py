"""The key of a means' verdict on a mutant: it depends on all imported modules, and on little more."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.kit import imports
from kafka_eos_checks.kit.paths import spec_folder
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.models.kept_verdicts import MODULES, Kept, key_of, modules_of
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.tla.result_cache import ResultCache, python_fingerprint
from kafka_eos_checks.walks.broken import FOUND, NOT_FOUND

MUTANT = "NoDuplicateCache"  # of PartitionLog
REFERENCE, CHECKS = "kafka_eos", "kafka_eos_checks"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the two packages, which may be edited."""
    copies = tmp_path_factory.mktemp("packages")
    for name, folder in imports.PACKAGES.items():
        shutil.copytree(folder, copies / name, ignore=lambda _, names: {n for n in names if n == "__pycache__"})
    return copies


@pytest.fixture
def change_key(
    packages: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., list[str]]]:
    """Those of some files of which an edit changes the key of a mutant's verdict."""
    monkeypatch.setattr(imports, "PACKAGES", {name: packages / name for name in imports.PACKAGES})
    mutant = registry.get(MUTANT)

    def key(means: str) -> str:
        python_fingerprint.cache_clear()
        return key_of(means, registry, mutant)

    def edited(means: str, file: str) -> str:
        path = packages / file
        text = path.read_text(encoding="utf-8")
        path.write_text(text + "\nEDITED = True\n", encoding="utf-8")
        after = key(means)
        path.write_text(text, encoding="utf-8")
        return after

    def change_key(means: str, files: Sequence[str]) -> list[str]:
        before = key(means)
        return [file for file in files if edited(means, file) != before]

    yield change_key
    python_fingerprint.cache_clear()


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


@pytest.mark.parametrize(
    ("means", "files"),
    [
        ("TLC", [f"{REFERENCE}/formats/log_directory.py", f"{CHECKS}/audit/audit.py", f"{CHECKS}/walks/walk.py"]),
        (
            "graph",
            [
                f"{REFERENCE}/formats/log_directory.py",
                f"{REFERENCE}/histories/simulator.py",
                f"{CHECKS}/audit/audit.py",
            ],
        ),
        ("replay", [f"{REFERENCE}/server/cluster.py", f"{CHECKS}/walks/walk.py", f"{CHECKS}/matrix/mutant_matrix.py"]),
        (
            "simulation",
            [
                f"{REFERENCE}/formats/log_directory.py",
                f"{CHECKS}/models/kept_verdicts.py",
                f"{CHECKS}/walks/campaign.py",
            ],
        ),
        ("proof", [f"{REFERENCE}/formats/log_directory.py", f"{CHECKS}/walks/walk.py", f"{CHECKS}/graphs/command.py"]),
        (
            "contract",
            [f"{REFERENCE}/formats/log_directory.py", f"{CHECKS}/walks/walk.py", f"{CHECKS}/proofs/append.py"],
        ),
        ("requests", [f"{REFERENCE}/histories/simulator.py", f"{CHECKS}/walks/walk.py", f"{CHECKS}/proofs/append.py"]),
    ],
)
def test_an_edit_of_a_file_that_a_means_does_not_use_keeps_the_key(
    change_key: Callable[..., list[str]], means: str, files: Sequence[str]
) -> None:
    assert change_key(means, files) == []


MACHINE = [
    f"{REFERENCE}/machines/partition_log.py",
    f"{REFERENCE}/machines/producer_state.py",
    f"{REFERENCE}/machines/machine.py",
]
CONFORM = ("run.py", "known.toml")
MUTANTS, BOUNDS = f"{CHECKS}/mutants/producer_state.py", f"{CHECKS}/models/bounds.py"


@pytest.mark.parametrize(
    ("means", "files"),
    [
        (
            "TLC",
            [*MACHINE, MUTANTS, f"{CHECKS}/graphs/model_check.py", f"{CHECKS}/tla/tlc.py"],
        ),  # for the arguments of the story
        ("graph", [*MACHINE, MUTANTS, BOUNDS, f"{CHECKS}/graphs/command.py", f"{CHECKS}/graphs/state_graph.py"]),
        ("replay", [*MACHINE, MUTANTS, f"{CHECKS}/matrix/mutant_replays.py", f"{CHECKS}/audit/audit.py"]),
        ("simulation", [*MACHINE, MUTANTS, BOUNDS, f"{CHECKS}/walks/broken.py", f"{CHECKS}/walks/walk.py"]),
        ("proof", [*MACHINE, MUTANTS, f"{CHECKS}/proofs/append.py", f"{CHECKS}/proofs/symbolic.py"]),
        ("contract", [*MACHINE, MUTANTS, f"{CHECKS}/contracts/conditions.py", f"{CHECKS}/matrix/mutant_contracts.py"]),
        (
            "requests",
            [*MACHINE, MUTANTS, f"{REFERENCE}/server/partitions.py", *(f"{CHECKS}/conform/{f}" for f in CONFORM)],
        ),
    ],
)
def test_an_edit_of_the_mutants_machine_or_of_a_module_of_the_means_changes_the_key(
    change_key: Callable[..., list[str]], means: str, files: Sequence[str]
) -> None:
    assert change_key(means, files) == files


@pytest.mark.parametrize(("file", "comment"), [("releases.toml", "#"), ("Broker.tla", "\\*")])
@pytest.mark.parametrize(("means", "changes"), [("requests", True), ("graph", False)])
def test_kafkas_rules_and_requests_are_a_part_of_the_key_where_a_broker_is_asked(
    means: str, changes: bool, file: str, comment: str, tmp_path: Path
) -> None:
    spec = Path(shutil.copytree(spec_folder(), tmp_path / "spec"))
    registry = Registry(spec / "models")
    before = key_of(means, registry, registry.get(MUTANT))
    [path] = spec.rglob(file)
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{comment} edited\n", encoding="utf-8")
    assert (key_of(means, registry, registry.get(MUTANT)) != before) == changes


def test_another_clone_of_the_same_files_has_the_same_keys(registry: Registry, tmp_path: Path) -> None:
    here = registry
    there = Registry(Path(shutil.copytree(spec_folder(), tmp_path / "spec")) / "models")
    assert key_of("TLC", here, here.get(MUTANT)) == key_of("TLC", there, there.get(MUTANT))


@pytest.mark.parametrize(
    ("module", "changes"), [("PartitionLog.tla", True), ("PartitionLogMutants.tla", True), ("Transfer.tla", False)]
)
def test_only_an_edit_of_a_module_of_the_mutants_own_spec_changes_the_key(
    module: str, changes: bool, tmp_path: Path
) -> None:
    registry = Registry(Path(shutil.copytree(spec_folder(), tmp_path / "spec")) / "models")
    before = key_of("TLC", registry, registry.get(MUTANT))
    [path] = (tmp_path / "spec").rglob(module)
    path.write_text(path.read_text(encoding="utf-8") + "\n\\* edited\n", encoding="utf-8")
    assert (key_of("TLC", registry, registry.get(MUTANT)) != before) == changes


# --- what is imported when a means runs ---------------------------------------------------------------------------

RUN = """
import sys
from pathlib import Path
from kafka_eos_checks.models import registry as models
models.build_folder = lambda: Path({folder!r})
registry = models.Registry()
mutant = registry.get({mutant!r})
{run}
assert verdict.ok, verdict
for name, each in list(sys.modules.items()):
    if name.startswith("kafka_eos"):
        print(each.__file__)
"""
BY_NAME = {"bounds.py", "partition_log.py"}  # the bounds are imported where a model has some
# means -> a mutant, what finds it, and the files that are only needed for other arguments
RUNS: Mapping[str, tuple[str, str, set[str]]] = {
    "TLC": (
        "CatchBlocks",
        """
from kafka_eos_checks.graphs.model_check import check_models, to_verdict
[verdict] = map(to_verdict, check_models([mutant], jobs=1))
""",
        set(),
    ),
    "graph": (
        "CatchBlocks",
        """
from kafka_eos_checks.graphs.command import check
[verdict] = check(registry, [], [mutant], 1)
""",
        BY_NAME,
    ),
    "replay": (
        "RetriesAppended",
        """
from kafka_eos_checks.matrix.mutant_replays import find_by_replay
verdict = find_by_replay(registry, mutant)
""",
        {"spark.py"},  # where the folder is a URI
    ),
    "simulation": (
        "CatchBlocks",
        """
from kafka_eos_checks.walks.broken import find_all
[verdict] = find_all([mutant], 60, 1)
""",
        BY_NAME,
    ),
    "proof": (
        "CacheOfOne",
        """
from kafka_eos_checks.proofs.command import proofs, refuted
[verdict] = refuted(proofs(["append"]), mutant.name, registry)
""",
        set(),
    ),
    "contract": (
        "CacheOfOne",
        """
from kafka_eos_checks.matrix.mutant_contracts import contracts_about, find_by_contract
verdict = find_by_contract(mutant, contracts_about(mutant))
""",
        set(),
    ),
    "requests": (
        "NoDuplicateCache",
        """
from kafka_eos_checks.matrix.mutant_requests import find_by_requests, machines_with
verdict = find_by_requests(mutant, machines_with(mutant))
""",
        {"partition_log.py"},  # the server has its rules, not the machine
    ),
}


def without_packages(paths: Iterable[Path]) -> set[Path]:
    return {path for path in paths if path.name != "__init__.py"}


@pytest.mark.parametrize("means", MODULES)
def test_the_key_depends_on_every_module_that_is_imported_when_a_means_runs(
    means: str, registry: Registry, tmp_path: Path
) -> None:
    mutant, run, more = RUNS[means]
    code = RUN.format(folder=str(tmp_path), mutant=mutant, run=run)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = without_packages(map(Path, done.stdout.splitlines()))
    machine = registry.get(mutant).machine_class().__module__
    found = without_packages(imports.needed(modules_of(means, machine)))
    assert imported <= found
    assert {path.name for path in found - imported} == more, "for other arguments"
    too_few = [
        other for other in MODULES if not imported <= without_packages(imports.needed(modules_of(other, machine)))
    ]
    assert len(too_few) >= 3, "the files of most other means are not enough"


# --- what is kept -------------------------------------------------------------------------------------------------


def walked(name: str, found: str) -> Verdict:
    return Verdict(check="walk-mutant", name=name, expected=found, found=found, ok=True)


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def ask(tmp_path: Path, registry: Registry, asked: list[str]) -> Callable[[float, str], str]:
    """A function that asks for a mutant's verdict within a limit; its second argument is given if none is kept."""

    def find(limit: float, found: str) -> str:
        def look(waiting: Sequence[Model]) -> Iterator[Verdict]:
            for mutant in waiting:
                asked.append(f"{limit:g}")
                yield walked(mutant.name, found)

        kept = Kept(means="simulation", registry=registry, cache=ResultCache(tmp_path), limit=limit)
        [verdict] = kept.verdicts([registry.get(MUTANT)], look)
        return verdict.found

    return find


def test_a_kill_is_not_searched_again_within_another_limit(ask: Callable[[float, str], str], asked: list[str]) -> None:
    assert [ask(limit, FOUND) for limit in (60.0, 240.0, 60.0)] == [FOUND] * 3
    assert asked == ["60"]


def test_a_survivor_is_searched_again_only_within_another_limit(
    ask: Callable[[float, str], str], asked: list[str]
) -> None:
    assert [ask(limit, NOT_FOUND) for limit in (60.0, 60.0, 240.0, 240.0)] == [NOT_FOUND] * 4
    assert asked == ["60", "240"]
    assert ask(600.0, FOUND) == FOUND
    assert [ask(limit, "nothing is kept") for limit in (60.0, 240.0)] == [FOUND, FOUND], "it is found by now"


def test_a_change_of_the_model_that_a_mutant_is_of_changes_the_key() -> None:
    registry = Registry()
    mutant = registry.get(MUTANT)
    before = key_of("graph", registry, mutant)
    base = registry.models[mutant.model]
    registry.models[mutant.model] = replace(base, invariants=base.invariants[1:])
    assert key_of("graph", registry, mutant) != before
