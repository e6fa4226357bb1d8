import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_eos_checks.cli.command import main
from kafka_eos_checks.kit.verdict import read_verdicts
from kafka_eos_checks.lab.costs.command import KEPT, to_text
from kafka_eos_checks.lab.costs.verdicts import of_evidence, read_evidence, verdicts

Make = Callable[[], dict[str, Any]]
MEASURED_CLAIMS = {"C38", "C39", "C40", "C41", "C42", "C43", "C51"}


def test_the_kept_figures_settle_every_claim_about_costs() -> None:
    found = verdicts(read_evidence(KEPT))
    assert {claim for verdict in found for claim in verdict.claims} == MEASURED_CLAIMS
    assert [verdict.name for verdict in found if not verdict.ok] == []
    assert not read_evidence(KEPT)["quick"]


def test_kept_figures_are_shown_and_their_verdicts_written(
    tmp_path: Path, evidence: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    measured, written = tmp_path / "measured.json", tmp_path / "costs.json"
    measured.write_text(to_text(evidence()), encoding="utf-8")
    assert main(["lab", "costs", "--kept", "--measured", str(measured), "--json", str(written)]) == 1
    shown = capsys.readouterr().out
    assert "FAIL throughput of producers, values of 100 bytes: expected refuted, found holds" in shown
    assert "C40: requests and markers of a transaction: holds" in shown
    assert len(read_verdicts(written)) == 3 + len(of_evidence(evidence()))


def test_new_measurements_of_parts_replace_those_in_the_file_and_others_stay(
    tmp_path: Path, evidence: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured_anew(folder: Path, *, quick: bool, only: list[str]) -> dict[str, Any]:
        made = evidence()
        made["parts"] = {name: part | {"about": "anew"} for name, part in made["parts"].items() if name in only}
        return made

    file = tmp_path / "measured.json"
    file.write_text(to_text(evidence()), encoding="utf-8")
    monkeypatch.setattr("kafka_eos_checks.lab.costs.command.measure", measured_anew)
    main(["lab", "costs", "--only", "latency", "--measured", str(file)])
    parts = read_evidence(file)["parts"]
    assert parts["latency"]["about"] == "anew"
    assert parts.keys() == evidence()["parts"].keys()
    assert parts["wire"] == evidence()["parts"]["wire"]


def test_unreadable_figures_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "costs", "--kept", "--measured", str(tmp_path / "absent.json")]) == 2
    assert "absent.json: No such file" in capsys.readouterr().err


def test_figures_are_written_with_one_line_per_side_and_read_back(evidence: Make) -> None:
    text = to_text(evidence())
    assert json.loads(text) == evidence()
    line = next(line for line in text.splitlines() if '"at-most-once, 1"' in line)
    assert line.strip().startswith('"at-most-once, 1": {"rate"')


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["lab", "costs", "--help"])
    assert "kafka-eos lab costs --kept" in capsys.readouterr().out
