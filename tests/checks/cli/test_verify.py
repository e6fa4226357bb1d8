"""The verdicts of ``kafka-eos check all``: on recordings next to what is expected in them, and the end of a job."""

from pathlib import Path

import pytest

from kafka_eos_checks.cli import verify
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.ledger import report

EXPECTED = """
[one]
"torn transaction" = 3
[causes.one]
"torn transaction" = "late-end-of-transaction"
"""


def rule(name: str, findings: int, unjudged: str = "", unknown: int = 0) -> Verdict:
    """The audit's verdict on a rule."""
    found = f"{findings} findings"
    return Verdict(
        check="replay",
        name=name,
        expected="0 findings",
        found=found,
        ok=not findings,
        unjudged=unjudged,
        unknown=unknown,
    )


def judged(monkeypatch: pytest.MonkeyPatch, folder: Path, *verdicts: Verdict) -> dict[str, bool]:
    """Whether each verdict on a recording is as expected, by name."""
    (folder / "expected.toml").write_text(EXPECTED, encoding="utf-8")
    monkeypatch.setattr(verify, "recordings_folder", lambda: folder)
    monkeypatch.setattr(verify, "manifest_of", lambda _: {"kafka": "4.3.0"})
    monkeypatch.setattr(verify, "audit", lambda *_, **__: verdicts)
    return {verdict.name: verdict.ok for verdict in verify.recordings("local", [folder / "one.tar.xz"])}


@pytest.mark.parametrize(("findings", "ok"), [(3, True), (2, False), (4, False), (0, False)])
def test_what_is_expected_in_a_recording_has_to_be_found_that_often(
    findings: int, ok: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = judged(monkeypatch, tmp_path, rule("torn transaction", findings), rule("gap", 0), rule("duplicate", 1))
    assert found == {"one: torn transaction": ok, "one: gap": True, "one: duplicate": False}


def test_a_rule_with_nothing_to_judge_has_a_verdict_only_where_it_is_to_find_something(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nothing = [rule(name, 0, unjudged="nothing there") for name in ("torn transaction", "gap")]
    assert judged(monkeypatch, tmp_path, *nothing) == {"one: torn transaction": False}


def test_a_rule_that_the_audit_does_not_have_finds_nothing_of_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert judged(monkeypatch, tmp_path, rule("gap", 0)) == {"one: gap": True, "one: torn transaction": False}


@pytest.mark.parametrize(("findings", "code"), [([], 1), ([0], 0), ([0, 0], 0), ([0, 1], 1)])
def test_a_job_without_a_verdict_or_with_one_that_differs_fails(
    findings: list[int], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for module in (verify, report.paths):
        monkeypatch.setattr(module, "build_folder", lambda: tmp_path)
    verdicts = [rule(str(number), each) for number, each in enumerate(findings)]
    assert verify.finish(verdicts, 0.0) == code
