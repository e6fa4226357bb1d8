from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.cli import main
from kafka_eos_checks.kit.verdict import Verdict, write_verdicts
from kafka_eos_checks.ledger.properties import Outcome, Row, properties
from kafka_eos_checks.models.registry import Registry, Shipped
from kafka_eos_checks.models.releases import Releases

REPAIRED = Verdict(check="model", name="Counter", expected="holds", found="holds", ok=True)
NEWER = Verdict(
    check="release",
    name="Counter, Kafka 2.0",
    expected="violates NotAboveLimit",
    found="violates NotAboveLimit",
    ok=True,
    figures={"states": 20, "NotAboveLimit": "violated after 3 steps", "NoDebt": "holds"},
)


def rows(registry: Registry, *verdicts: Verdict) -> dict[str, Row]:
    shipped = {"2.0": Shipped(violates={"NotAboveLimit": "AddError"}, states=20)}
    invariants = ("NotAboveLimit", "NoDebt")
    registry.models["Counter"] = replace(registry.models["Counter"], invariants=invariants, shipped=shipped)
    found = properties(verdicts, registry, Releases(registry.folder.parent))
    return {row.name: row for row in found}


def test_what_holds_of_the_newest_release_comes_first_then_what_it_violates_and_by_which_finding(
    registry: Registry,
) -> None:
    found = rows(registry, REPAIRED, NEWER)
    assert list(found) == ["NoDebt", "NotAboveLimit"]
    cells = found["NotAboveLimit"].cells
    assert list(cells) == ["Kafka 2.0", "Kafka 1.0", "repaired"]
    assert cells["Kafka 2.0"].words == "violated: lowest-sequence"
    assert cells["Kafka 2.0"].rules == ("AddError",)
    assert cells["repaired"].words == "holds"
    assert cells["Kafka 1.0"].outcome is Outcome.OPEN
    assert found["NotAboveLimit"].to_json()["columns"]["Kafka 2.0"]["findings"] == ["lowest-sequence"]


@pytest.mark.parametrize(
    ("verdicts", "shipped", "repaired"),
    [
        ((), Outcome.OPEN, Outcome.OPEN),
        ((REPAIRED,), Outcome.OPEN, Outcome.HOLDS),
        ((replace(REPAIRED, ok=False), NEWER), Outcome.HOLDS, Outcome.DIFFERS),
        ((REPAIRED, replace(NEWER, ok=False)), Outcome.DIFFERS, Outcome.HOLDS),
        ((REPAIRED, replace(NEWER, figures={"NoDebt": "says nothing"})), Outcome.SILENT, Outcome.HOLDS),
        ((REPAIRED, replace(NEWER, figures={})), Outcome.OPEN, Outcome.HOLDS),
    ],
)
def test_a_cell_has_no_outcome_that_no_verdict_has(
    registry: Registry, verdicts: tuple[Verdict, ...], shipped: Outcome, repaired: Outcome
) -> None:
    cells = rows(registry, *verdicts)["NoDebt"].cells
    assert cells["Kafka 2.0"].outcome is shipped
    assert cells["repaired"].outcome is repaired


def test_a_property_whose_rules_are_those_of_the_release_has_the_repaired_verdict(registry: Registry) -> None:
    own = replace(registry.models["Counter"], overrides={"AddError": "NoLimit"}, silent=())
    registry.models["Counter"] = own
    cell = rows(registry, REPAIRED)["NoDebt"].cells["Kafka 2.0"]
    assert cell.words == "holds, by the same rules"


def test_a_model_that_is_not_of_a_release_says_so(registry: Registry) -> None:
    model = registry.models["Counter"]
    registry.models["Counter"] = replace(model, constants={**model.constants, "Limit": "9"})
    assert rows(registry, REPAIRED, NEWER)["NoDebt"].cells["Kafka 1.0"].words == "not of this release"


def test_the_command_shows_the_named_properties_and_what_to_check_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = Verdict(check="model", name="PartitionLogTwoProducers", expected="holds", found="holds", ok=True)
    write_verdicts(tmp_path / "models.json", [verdict])
    call = ["ledger", "properties", "--verdicts", str(tmp_path / "models.json")]
    assert main([*call[:2], "PartitionLog!OffsetsAreDense", *call[2:]]) == 1
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if "!" in line and "!OffsetsAreDense" not in line] == []
    assert "next, for the cells that are not checked" in told
    assert main([*call[:2], "PartitionLog", "Nowhere", *call[2:]]) == 2
    assert "no module or property Nowhere; modules are ApplicationLoop" in capsys.readouterr().err
