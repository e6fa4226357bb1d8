"""``kafka-eos ledger claims``: the ledger on the terminal."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.cli.command import main
from kafka_eos_checks.graphs import model_check
from kafka_eos_checks.graphs.model_check import Outcome
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.lab.costs.command import KEPT
from kafka_eos_checks.lab.costs.verdicts import read_evidence, verdicts
from kafka_eos_checks.ledger import claims_command
from kafka_eos_checks.ledger.claims import Standing, read_claims
from kafka_eos_checks.ledger.claims_command import UnknownClaim, answer, check
from kafka_eos_checks.ledger.report import newest
from kafka_eos_checks.models.registry import Model, Registry
from kafka_eos_checks.tla.tlc import Result


def verdict(*, ok: bool = True, found: str = "holds", name: str = "Some") -> Verdict:
    return Verdict(
        check="model",
        name=name,
        expected="holds",
        found=found,
        ok=ok,
        claims=("C15",),
        evidence="1  Init\n2  Initialize",
        diagram="<svg/>",
    )


def test_a_claim_without_a_verdict_is_not_checked() -> None:
    (entry,) = answer(["C15"], []).entries
    assert entry.standing is Standing.OPEN


def test_verdicts_as_expected_settle_a_claim() -> None:
    (entry,) = answer(["C15"], [verdict()]).entries
    assert entry.standing is Standing.SETTLED


def test_a_later_verdict_replaces_an_earlier_one_of_the_same_check() -> None:
    (kept,) = newest([verdict(ok=False, found="violates AllOrNone"), verdict()])
    assert kept.ok
    (entry,) = answer(["C15"], [verdict(), verdict(ok=False, found="violates AllOrNone")]).entries
    assert entry.standing is Standing.DIFFERS


def test_an_unknown_claim_is_named() -> None:
    with pytest.raises(UnknownClaim, match="no claim C99; the ledger has C01 to"):
        answer(["C99"], [])


def test_every_claim_of_the_ledger_has_a_check_behind_it() -> None:
    registry = Registry()
    checked = {claim for model in [*registry.models.values(), *registry.mutants.values()] for claim in model.claims}
    measured = {claim for verdict in verdicts(read_evidence(KEPT)) for claim in verdict.claims}
    elsewhere = {"C06", "C09", "C24"}  # recorded and simulated traces settle them too
    assert {entry.claim.id for entry in answer([], []).entries} <= checked | measured | elsewhere


def test_a_claim_about_costs_is_checked_against_the_kept_figures() -> None:
    (found,) = check(["C40"], Registry())
    assert (found.check, found.claims) == ("cost", ("C40",))


def test_the_command_shows_a_claim_with_its_story_and_writes_its_diagram(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_eos_checks.kit.paths.build_folder", lambda: tmp_path / "build")
    call = ["ledger", "claims", "C15", "--verdicts", str(tmp_path / "models.json")]
    write_verdicts(tmp_path / "models.json", [verdict()])
    assert main([*call, "--json", str(tmp_path / "claims.json")]) == 0
    shown = capsys.readouterr().out
    assert "C15  settled" in shown
    assert "2  Initialize" in shown
    assert "said in:   Kafka Exactly Once Semantics Delivering Messages (web tutorial" in shown
    assert (tmp_path / "build" / "claims" / "C15-Some.svg").read_text() == "<svg/>"
    (row,) = json.loads((tmp_path / "claims.json").read_text())
    assert (row["id"], row["standing"], row["verdicts"][0]["name"]) == ("C15", "settled", "Some")
    assert main(call) == 0, "once more, with the diagram of the first time"


def test_a_verdict_of_a_claim_has_its_mark_and_its_title_if_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    titled = replace(verdict(), diagram="", title="Two instances", evidence="[the run] " * 20)
    for given, mark in ((titled, "ok"), (replace(titled, ok=False, title=""), "FAIL")):
        write_verdicts(tmp_path / "models.json", [given])
        main(["ledger", "claims", "C15", "--verdicts", str(tmp_path / "models.json")])
        shown = capsys.readouterr().out
        _, told = shown.split("\n\n", maxsplit=1)
        title = ["     Two instances"] if given.title else []
        assert told.splitlines()[:3] == [f"  {mark} model Some: holds", *title, "[the run] " * 20, ""][:3]


def test_a_check_of_a_claim_tells_of_each_model_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check_models(models: list[Model]) -> Iterator[Outcome]:
        for number, model in enumerate(models):
            problems = () if number else ("differs",)
            yield Outcome(model=model, result=Result(verdict="holds"), found="holds", problems=problems)

    monkeypatch.setattr(model_check, "check_models", check_models)
    taken = [each for each in check(["C15"], Registry()) if each.check in {"model", "mutant"}]
    told = capsys.readouterr().err.splitlines()
    assert len(taken) > 1
    assert told == [f"{'ok  ' if each.ok else 'FAIL'} {each.name}: holds" for each in taken]
    assert [each.ok for each in taken] == [False] + [True] * (len(taken) - 1)


def test_the_ledger_is_a_table_of_claims_with_what_settles_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_eos_checks.kit.paths.build_folder", lambda: tmp_path)
    write_verdicts(tmp_path / "verdicts" / "models.json", [verdict(name="Settling")])
    assert main(["ledger", "claims"]) == 1
    rows = capsys.readouterr().out
    assert rows.count("Settling") == 1
    [row] = [line for line in rows.splitlines() if "Settling" in line]
    assert row.startswith("C15")
    assert "settled" in row


def test_the_command_checks_a_claim_and_keeps_the_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_eos_checks.kit.paths.build_folder", lambda: tmp_path)
    assert main(["ledger", "claims", "C40"]) == 1
    assert main(["ledger", "claims", "C40", "--check"]) == 0
    [kept] = json.loads((tmp_path / "verdicts" / "claims-C40.json").read_text(encoding="utf-8"))
    assert (kept["check"], kept["claims"]) == ("cost", ["C40"])
    assert main(["ledger", "claims", "C40"]) == 0
    assert main(["ledger", "claims", "C39", "--check"]) == 0
    assert main(["ledger", "claims", "C40"]) == 0, "its verdict is still there"


def test_a_claim_that_no_model_settles_is_not_said_to_be_checked_by_the_same_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_eos_checks.kit.paths.build_folder", lambda: tmp_path)
    assert main(["ledger", "claims", "C24", "--check"]) == 1
    [said] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("next:")]
    told = "no model and no kept cost is about C24: kafka-eos check traces --json"
    assert said == f"next: {told} {tmp_path / 'verdicts' / 'traces.json'}"


def test_the_ledger_exits_with_1_while_a_claim_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_eos_checks.kit.paths.build_folder", lambda: tmp_path)
    assert main(["ledger", "claims"]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("claim  it says")
    assert "expected of checking" in captured.out
    assert "52 claims: 52 not checked here" in captured.out
    assert "kafka-eos ledger claims --check" in captured.err


def test_a_misspelt_id_exits_with_2_before_anything_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "claims", "C99", "--check"]) == 2
    assert "no claim C99" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "names"), [(5, " C01 C02 C03 C04 C05"), (6, "")])
def test_the_next_command_names_the_claims_that_are_left_if_they_are_few(
    count: int, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kafka_eos_checks.kit.paths.build_folder", lambda: tmp_path)
    monkeypatch.setattr(claims_command, "read_claims", lambda: read_claims()[:count])
    assert main(["ledger", "claims"]) == 1
    assert f"next: kafka-eos ledger claims{names} --check checks them" in capsys.readouterr().err
