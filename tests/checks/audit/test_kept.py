"""The kept texts of findings: each belongs to a test, and a finding that differs from its text is noticed."""

import ast
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.audit.findings import Finding

from .kept import FOLDER, as_kept, entries


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.stem)
def test_what_is_kept_belongs_to_a_test(path: Path) -> None:
    module = Path(__file__).parent / "rules" / f"{path.stem}.py"
    tests = {each.name for each in ast.walk(ast.parse(module.read_text("utf-8"))) if isinstance(each, ast.FunctionDef)}
    assert {name.partition("[")[0].partition(" ")[0] for name in entries(path.stem)} <= tests


def test_a_finding_that_is_told_otherwise_than_it_is_kept_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_EOS_KEEP", raising=False)
    test = "test_a_finding_that_is_told_otherwise_than_it_is_kept_is_noticed"
    line = "rule gap, topic t, partition 0, position 5, transactional_id x: expected 1\\n"
    monkeypatch.setattr(
        sys.modules[as_kept.__module__], "entries", lambda _: {f"{test} {call}": [line] for call in (1, 2, 3)}
    )
    finding = Finding(rule="gap", topic="t", partition=0, position=5, transactional_id="x", evidence="expected 1\n")
    as_kept([finding])
    for other in (replace(finding, position=6), replace(finding, evidence="expected 11\n")):
        with pytest.raises(AssertionError, match="transactional_id x"):
            as_kept([other])
