"""The artefacts of a failed test: an audit of them has the findings of the test."""

import importlib
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.testing.in_process_broker import DATA, HISTORY, InProcessBroker, NotExactlyOnce

pytest.importorskip("confluent_kafka", reason="the clients are in the extra `record`")
EXAMPLE = Path(__file__).parents[3] / "examples" / "exactly-once-app"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example's tests, which import its application and mistakes."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    return importlib.import_module("test_shipping")


def listed(failure: str) -> list[str]:
    """The findings in a failure's message."""
    return [line.strip() for line in failure.splitlines() if re.match(r"  \w.*: (orders|shipments)-\d offset", line)]


@pytest.mark.parametrize("mistake", ["ForgetsOffsets", "CommitsOutside", "ForgetsToGoBack"])
def test_the_audit_finds_each_planted_mistake_that_the_test_found(
    mistake: str, example: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with InProcessBroker(tmp_path / "run") as broker:
        example.place_orders(broker, 40)
        if mistake == "ForgetsToGoBack":
            example.refuse_a_batch(broker)
        example.run(broker, getattr(example, mistake))
        with pytest.raises(NotExactlyOnce) as caught:
            example.check(broker)
    said = str(caught.value)
    again = re.search(r"again: +kafka-eos (explain .*)", said)
    assert again is not None
    capfd.readouterr()
    assert main([*again[1].split(), "--out", str(tmp_path / "again.svg")]) == 0
    shown = {
        "ForgetsOffsets": "EndTxn (commit)",
        "CommitsOutside": "OffsetCommit",
        "ForgetsToGoBack": "[injected: error]",
    }
    assert shown[mistake] in capfd.readouterr().out
    out = tmp_path / "findings.jsonl"
    assert main(["audit", str(tmp_path / "run"), "--findings", str(out)]) == 1
    found = [Finding(**json.loads(line)) for line in out.read_text().splitlines()]
    words = {finding.in_words() for finding in found}
    assert f"(not exactly once: {len(found)} finding(s))" in said.partition("\n")[0]
    assert listed(said)
    assert set(listed(said)) <= words
    apart = [str(tmp_path / "run" / DATA), str(tmp_path / "run" / HISTORY)]
    assert main(["audit", *apart, "--snapshot", "--findings", str(out)]) == 1
    assert {Finding(**json.loads(line)).in_words() for line in out.read_text().splitlines()} == words


def test_the_audit_finds_nothing_in_the_artefacts_of_a_right_application(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with InProcessBroker(tmp_path / "run") as broker:
        example.place_orders(broker, 20)
        example.run(broker, example.Shipping)
        example.check(broker)
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "run")]) == 0
    assert re.search(r"input not processed +0 findings +events=\d+ checked=20", capsys.readouterr().out)
