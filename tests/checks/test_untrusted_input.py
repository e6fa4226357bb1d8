"""Untrusted input: false or deeply nested files, and packages; each case ends with a clear error."""

import ast
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_eos_checks.audit.findings import Finding, write_findings
from kafka_eos_checks.cli.command import main

ROOT = Path(__file__).parents[2]
DEEP, LONG = "[" * 100_000, "9" * 5_000


@pytest.mark.parametrize("line", [DEEP, f'{{"seq": {LONG}}}', '{"seq": 1', "\x00"])
@pytest.mark.parametrize("command", ["audit", "explain"])
def test_a_history_with_deep_nesting_or_a_long_number_is_refused_with_its_line(
    command: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text(line + "\n", encoding="utf-8")
    assert main([command, str(history)]) == 2
    said = capsys.readouterr().err
    assert "history.jsonl:1" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("fault", "ends", "drawn"), [("error", 3, ["--around", "2"]), ("delay", 1, [])])
def test_the_request_of_an_event_may_be_any_value(
    fault: str, ends: int, drawn: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.jsonl"
    ours = {"run": "r", "process": "p", "producer_id": 1, "producer_epoch": 0}
    asked = {**ours, "action": "TxnOffsetCommit", "group": "g", "generation": 1}
    asked |= {"detail": {"request": [1], "repeats": [1], "fault": fault}}
    rows = [
        {**ours, "order": 0, "phase": "ok", "action": "InitProducerId", "error": 0},
        {**asked, "order": 1, "phase": "invoke"},
        {**asked, "order": 2, "phase": "fail", "error": 47},
    ]
    history.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    assert main(["audit", str(history)]) == ends
    assert main(["explain", str(history), *drawn]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("form", [DEEP, LONG, "{:type :ok", "\x00", "1e400", "#a " * 100_000, "{{} " * 50_000])
def test_a_jepsen_history_with_deep_nesting_or_a_long_number_is_refused_with_its_line(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.edn"
    history.write_text(f"; Jepsen\n{form}\n", encoding="utf-8")
    assert main(["audit", str(history)]) == 2
    said = capsys.readouterr().err
    assert "history.edn:2" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("content", [f"a = {DEEP}", f"[[fault]]\ndo = 'close'\nnth = {LONG}", "fault = 1", "\x00"])
def test_a_plan_with_deep_nesting_or_a_long_number_is_refused_with_its_file(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(content, encoding="utf-8")
    assert main(["serve", "--port", "0", "--faults", str(plan)]) == 2
    said = capsys.readouterr().err
    assert "plan.toml" in said
    assert "Traceback" not in said


def test_a_plan_that_is_no_text_is_refused_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_bytes(b"\xff\xfe[[fault]]")
    assert main(["serve", "--port", "0", "--faults", str(plan)]) == 2
    assert "plan.toml" in capsys.readouterr().err


HIDING = ["\t", "\r", "\n", " ", "\0", "\x1b", "\x85", "\xa0", "\u200b", "\u2028", "\u3000", "\ufeff", " \0\ufeff\n"]
SIGNS = ["=1+1", "+1", "-1", "@SUM(A1)", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20SUM(A1)", "\ufe661"]


@pytest.mark.parametrize("text", [*SIGNS, *(hiding + sign for hiding in HIDING for sign in ("=1", "\uff1d1")), "\n1"])
def test_no_cell_of_exported_findings_is_a_formula_and_nothing_of_it_is_lost(text: str, tmp_path: Path) -> None:
    path = tmp_path / "findings.csv"
    write_findings(path, [Finding(rule="replay", topic=text, partition=0, evidence=text)])
    with path.open(encoding="utf-8", newline="") as written:
        rows = written.read()
    assert "'" + text in rows
    assert not re.search(rf'(^|,|\n)"?{re.escape(text)}', rows)


@pytest.mark.parametrize("text", ["orders", " a = 1", "\xa0orders", "\ufefforders", "1+1", "é=1", ""])
def test_a_cell_that_is_no_formula_is_exported_as_it_is(text: str, tmp_path: Path) -> None:
    write_findings(tmp_path / "findings.csv", [Finding(rule="replay", topic=text, partition=0)])
    with (tmp_path / "findings.csv").open(encoding="utf-8", newline="") as written:
        assert [row["topic"] for row in csv.DictReader(written)] == [text]


def sources() -> Iterator[Path]:
    yield from sorted((ROOT / "reference").rglob("*.py"))
    yield from sorted((ROOT / "checks").rglob("*.py"))


# These run or compile only the project's own code: the reference without one conjunct, the spec's properties as Python,
# and a module of the project with one change.
OWN = {
    "checks/kafka_eos_checks/matrix/conjuncts/reference.py",
    "checks/kafka_eos_checks/models/formulas.py",
    "checks/kafka_eos_checks/matrix/code.py",
}
# These unpickle rows between two stages of one audit: what this program itself wrote to its own temporary files, which
# nobody else may read, or gave to Spark's shuffle, whose workers run pickled code anyway. No file that is given.
BETWEEN_STAGES = {
    "checks/kafka_eos_checks/audit/engines/local.py",
    "checks/kafka_eos_checks/audit/engines/spark.py",
    "checks/kafka_eos_checks/audit/plan/found.py",
    "checks/kafka_eos_checks/audit/plan/jepsen_plan.py",
}
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "yaml"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}


def unsafe(tree: ast.AST) -> list[str]:
    """Imports and calls that could execute the bytes of a file."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            found.append(node.module or "")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in UNSAFE_CALLS:
            found.append(node.func.id)
    return found


def test_nothing_that_is_read_is_executed() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): unsafe(ast.parse(path.read_text(encoding="utf-8"))) for path in sources()
    }
    assert {path for path, names in found.items() if names} == OWN | BETWEEN_STAGES


@pytest.mark.parametrize("program", ["import pickle", "from yaml import load", "eval(text)"])
def test_a_program_that_executes_its_input_is_found(program: str) -> None:
    assert unsafe(ast.parse(program)) != []


def unpinned(lock: str) -> list[str]:
    """The requirements of a lock file that have no exact version or no hash."""
    found = []
    for entry in re.split(r"\n(?=[A-Za-z0-9])", "\n" + lock):
        requirement = entry.strip()
        if not re.match(r"[A-Za-z0-9]", requirement):
            continue  # comments before the first one
        name = requirement.split()[0]
        if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", name) or "--hash=sha256:" not in requirement:
            found.append(name)
    return found


@pytest.mark.parametrize("lock", ["main.lock", "bench.lock"])
def test_every_package_is_pinned_with_its_hashes(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text(encoding="utf-8")
    assert text.count("\n    --hash=sha256:") > 20
    assert unpinned(text) == []


@pytest.mark.parametrize("entry", ["numpy>=2 \\\n    --hash=sha256:00", "numpy==2.2.0", "numpy"])
def test_a_package_without_version_or_hash_is_found(entry: str) -> None:
    assert unpinned(f"# by hand\n{entry}\njinja2==3.1.0 \\\n    --hash=sha256:00\n") == [entry.split(maxsplit=1)[0]]


def test_packages_are_installed_by_their_hashes() -> None:
    installs = [line for line in (ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "pip install" in line]
    assert installs
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
