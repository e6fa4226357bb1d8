"""A file that is no input of an audit is told for what it is, with the command that takes it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_eos_checks.audit.findings import Finding, write_findings
from kafka_eos_checks.audit.mistaken import seems
from kafka_eos_checks.audit.segments.header_tables import SUFFIX
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.lab.generate.violations import row_of
from kafka_eos_checks.watch.reports import Report, report_row

EVENT = '{"run":"r","process":"p","action":"Send","phase":"ok"}\n'
FINDING = Finding(rule="gap", topic="t", partition=0, evidence="sequence 5, expected 1")


def text(what: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(what, encoding="utf-8")


def findings(path: Path) -> None:
    write_findings(path, [FINDING])


def verdicts(path: Path) -> None:
    write_verdicts(path, [Verdict(check="replay", name="gap", expected="0", found="0", ok=True, seconds=0.0)])


GIVEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("findings.jsonl", findings, "findings of an audit, which are its result"),
    ("findings.parquet", findings, "findings of an audit, which are its result"),
    ("verdicts.json", verdicts, "verdicts; `kafka-eos ledger report`"),
    ("manifest.json", text('{"recording": "r", "scenarios": []}'), "the manifest of a recording; give its folder"),
    ("plan.toml", text('[[fault]]\ndo = "error"\n'), "a plan of faults, which `kafka-eos serve --faults FILE` takes"),
    ("audit.html", text("<!DOCTYPE html>"), "a page for a browser"),
    ("client.properties", text("acks=all\n"), "settings, which `kafka-eos settings FILE` takes"),
    ("mark.jsonl", text("\ufeff" + EVENT), "text with a byte order mark, and a history begins with {: tail -c +4"),
    ("wide.jsonl", lambda path: path.write_text(EVENT, encoding="utf-16"), "text in UTF-16, and a history is in UTF-8"),
    ("wide-le.jsonl", lambda path: path.write_text(EVENT, encoding="utf-16-le"), "text in UTF-16"),
    ("wide-be.jsonl", lambda path: path.write_text(EVENT, encoding="utf-16-be"), "text in UTF-16"),
    ("lines.json", text(EVENT * 2), "a history, and its name has to end with .jsonl; one event a line"),
    (
        "list.json",
        text(f"[{EVENT},{EVENT}]"),
        "a history, and its name has to end with .jsonl; one event a line, as `jq",
    ),
    ("h.jsonl.gz", text("x"), "a packed history; unpack it (gunzip) and give h.jsonl"),
    ("history.edn.zst", text("x"), "a packed history; unpack it (unzstd) and give history.edn"),
    ("other.jsonl", text('{"b": 1, "a": 2}\n'), "no history: a history has run, process, action, phase, and this a, b"),
    (f"{0:020d}.{SUFFIX}", text("PAR1"), "a table of `kafka-eos headers`; give the folder"),
]


@pytest.mark.parametrize(("name", "write", "said"), GIVEN, ids=[name for name, *_ in GIVEN])
def test_the_audit_says_what_a_file_seems_to_be(
    name: str,
    write: Callable[[Path], object],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    file = tmp_path / name
    write(file)
    assert main(["audit", str(file)]) == 2
    assert f"kafka-eos audit: {file}: this seems to be {said}" in capsys.readouterr().err
    if file.suffix == ".jsonl":
        assert main(["audit", "example:violations", "--history", str(file)]) == 2
        assert f"{file}: this seems to be {said}" in capsys.readouterr().err
    if SUFFIX in name:
        return
    assert main(["audit", str(tmp_path)]) == 2, "and so of a folder that has nothing else"
    error = capsys.readouterr().err
    assert "no partitions" in error
    assert f"{name} seems to be {said}" in error


def test_files_of_a_folder_that_is_a_log_directory_are_not_taken_for_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / "t-0").mkdir(parents=True)
    (tmp_path / "data" / "t-0" / f"{0:020d}.log").touch()
    (tmp_path / "data" / "meta.properties").write_text("version=1\n", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    assert main(["audit", str(tmp_path / "data"), str(tmp_path / "empty")]) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path / 'empty'}: no partitions" in error
    assert "meta.properties" not in error


def test_what_lines_of_json_are_is_told_by_their_columns(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    report = report_row(1, 2, Report(rule="gap", topic="t", partition=0, evidence="sequence 5, expected 1"))
    rows = {"reports of `kafka-eos watch`": report, "violations that": row_of("gap", "t", 0, 3)}
    for said, row in rows.items():
        file.write_text(json.dumps(row) + "\n", encoding="utf-8")
        assert seems(file).startswith(said)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("history.jsonl", '{"run":"r","process":"p","action":"Send","phase":"ok","more":1}'),
        ("history.jsonl", '{"process":"p"}'),
        ("history.jsonl", "no json"),
        ("history.jsonl", "[1]"),
        ("history.jsonl", ""),
        ("other.json", "[]"),
        ("other.json", '"text"'),
        ("other.toml", "[table]"),
        ("other.toml", "no toml"),
        ("segment.log", '{"rule": 1, "evidence": 2}'),
    ],
)
def test_of_anything_else_the_reader_says_what_is_wrong(name: str, content: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    assert seems(file) == ""
    assert seems(tmp_path) == seems(tmp_path / "nowhere") == ""
