"""The verdicts of ``kafka-eos check all``: on recordings next to what is expected in them, and the end of a job."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_eos_checks.cli import verify
from kafka_eos_checks.kit.verdict import Verdict, read_verdicts
from kafka_eos_checks.ledger import report
from kafka_eos_checks.models.registry import MalformedRegistry

EXPECTED = """
[one]
"torn transaction" = 3
[causes.one]
"torn transaction" = "late-end-of-transaction"
[unjudged.one]
"refused without cause" = 2
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


def recorded(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *verdicts: Verdict, expected: str = EXPECTED
) -> list[Verdict]:
    """The verdicts on a recording in which the audit finds what some verdicts say."""
    (folder / "expected.toml").write_text(expected, encoding="utf-8")
    monkeypatch.setattr(verify, "recordings_folder", lambda: folder)
    monkeypatch.setattr(verify, "manifest_of", lambda _: {"kafka": "4.3.0"})
    monkeypatch.setattr(verify, "audit", lambda *_, **__: verdicts)
    return list(verify.recordings("local", [folder / "one.tar.xz"]))


def judged(monkeypatch: pytest.MonkeyPatch, folder: Path, *verdicts: Verdict) -> dict[str, bool]:
    """Whether each of them is as expected, by name."""
    return {verdict.name: verdict.ok for verdict in recorded(monkeypatch, folder, *verdicts)}


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


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for module in (verify, report.paths):
        monkeypatch.setattr(module, "build_folder", lambda: tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "unknown", "exit_code"),
    [("refused without cause", 2, 0), ("refused without cause", 1, 1), ("refused without cause", 3, 1), ("gap", 1, 1)],
)
def test_what_a_recording_leaves_unjudged_has_to_be_expected_of_it(
    name: str, unknown: int, exit_code: int, build: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    all_as_expected = [rule("torn transaction", 3), rule("order", 0)]
    found = recorded(monkeypatch, tmp_path, *all_as_expected, rule(name, 0, unjudged="why", unknown=unknown))
    assert verify.run_parts(lambda _: {"recordings": lambda: iter(found)}, from_clone=False) == exit_code
    [verdict] = [each for each in found if each.name == f"one: {name}"]
    if exit_code:
        expected = 2 if name == "refused without cause" else 0
        assert (verdict.expected, verdict.found) == (
            f"0 findings, {expected} not judged",
            f"0 findings, {unknown} not judged",
        )


def test_a_part_that_could_not_judge_everything_is_not_green(build: Path) -> None:
    unjudged = [rule("good", 0), rule("gap", 0, unjudged="why", unknown=1)]
    assert verify.run_parts(lambda _: {"proofs": lambda: iter(unjudged)}) == 3


@pytest.mark.parametrize(("cause", "findings"), [("late-offsets", "late-offsets"), ("the operator", None), ("", None)])
def test_a_verdict_on_a_recording_has_the_release_and_the_finding_of_the_ledger_behind_it(
    cause: str, findings: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = EXPECTED.replace("late-end-of-transaction", cause)
    [verdict] = recorded(monkeypatch, tmp_path, rule("torn transaction", 3), expected=expected)
    assert verdict.expected == "3 findings"
    assert verdict.figures == {"Kafka": "4.3.0"} | ({"findings": findings} if findings else {})


def good() -> Iterator[Verdict]:
    yield rule("good", 0)


def test_a_part_without_a_verdict_fails_though_others_have_some(build: Path) -> None:
    assert verify.run_parts(lambda _: {"proofs": good, "costs": good}) == 0
    assert verify.run_parts(lambda _: {"proofs": good, "costs": lambda: iter(())}, prefix="some-") == 1
    [verdict] = read_verdicts(build / "verdicts" / "some-costs.json")
    assert (verdict.name, verdict.ok, verdict.found) == ("the part costs", False, "nothing was judged")


def test_only_the_chosen_part_of_the_job_runs(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "proofs", good)
    assert verify.run(argparse.Namespace(engine="local", only="proofs")) == 0
    assert [file.name for file in (build / "verdicts").iterdir()] == ["proofs.json"]


def test_a_registry_that_cannot_be_used_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise MalformedRegistry("models/X.toml: no TOML")

    monkeypatch.setattr(verify, "Registry", broken)
    assert verify.run(argparse.Namespace(engine="local", only=None)) == 2
    assert capsys.readouterr().err == "kafka-eos check: models/X.toml: no TOML\n"


@pytest.mark.usefixtures("build")
@pytest.mark.parametrize(("findings", "code"), [([], 1), ([0], 0), ([0, 0], 0), ([0, 1], 1)])
def test_a_job_without_a_verdict_or_with_one_that_differs_fails(findings: list[int], code: int) -> None:
    verdicts = [rule(str(number), each) for number, each in enumerate(findings)]
    assert verify.finish(verdicts, 0.0) == code
