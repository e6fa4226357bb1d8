"""The kept texts: each belongs to a test, and what is told otherwise is noticed."""

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.audit.findings import Finding

from .audit.kept import as_kept
from .kept import ROOMS, compared, entries, kept_text


@pytest.mark.parametrize("path", sorted(ROOMS.glob("*/kept/*.txt")), ids=lambda path: path.stem)
def test_what_is_kept_belongs_to_a_test(path: Path) -> None:
    modules = [ast.parse(module.read_text("utf-8")) for module in path.parents[1].rglob(f"{path.stem}.py")]
    tests = {each.name for module in modules for each in ast.walk(module) if isinstance(each, ast.FunctionDef)}
    assert {name.partition("[")[0].partition(" ")[0] for name in entries(path)} <= tests


def test_a_finding_that_is_told_otherwise_than_it_is_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_EOS_KEEP", raising=False)
    test = "test_a_finding_that_is_told_otherwise_than_it_is_kept_is_noticed"
    line = "rule gap, topic t, partition 0, position 5, transactional_id x: expected 1\\n"
    monkeypatch.setattr(
        sys.modules[compared.__module__], "entries", lambda _: {f"{test} {call}": [line] for call in (1, 2, 3)}
    )
    finding = Finding(rule="gap", topic="t", partition=0, position=5, transactional_id="x", evidence="expected 1\n")
    as_kept([finding])
    for other in (replace(finding, position=6), replace(finding, evidence="expected 11\n")):
        with pytest.raises(AssertionError, match="transactional_id x"):
            as_kept([other])


def test_a_text_is_kept_without_its_folder_and_its_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KAFKA_EOS_KEEP", raising=False)
    test = "test_a_text_is_kept_without_its_folder_and_its_times"
    kept = {f"{test} 1": ["TIME UTC, FOLDER/a and TMP/b", "2"], f"{test} 2": ["", "other"]}
    monkeypatch.setattr(sys.modules[compared.__module__], "entries", lambda _: kept)
    folder = tmp_path / "broker"
    kept_text(f"2026-12-01 10:00:00.123 UTC, {folder}/a and {tmp_path}/b  \n2\n", folder)
    with pytest.raises(AssertionError, match="kept"):
        kept_text("\nothers", folder)
