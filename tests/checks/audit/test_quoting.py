"""A report that was redacted says nothing that a client wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.histories.history import read_history
from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.quoting import quoted, redacted
from kafka_eos_checks.audit.rules.histories import DUPLICATE_VALUE
from kafka_eos_checks.kit.recording import kept_recordings, unpacked

RECORDINGS = [path for path in kept_recordings() if path.name.startswith(("violations", "application-mistakes"))]


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name.partition(".")[0])
def test_no_value_transactional_id_or_group_is_in_a_redacted_report(recording: Path) -> None:
    with unpacked(recording) as folder:
        events = [event for path in (folder / "histories").glob("*.jsonl") for event in read_history(path)]
        plain, hidden = run([folder]), run([folder], redact=True)
    secrets = {str(event.detail["value"]) for event in events if "value" in event.detail}
    secrets |= {name for event in events for name in (event.transactional_id, event.group) if name}
    assert len(secrets) > 20

    def leaks(report: Any) -> set[str]:
        text = " ".join([*(v.evidence for v in report.verdicts), *(f.evidence for f in report.findings)])
        return {secret for secret in secrets if f"'{secret}'" in text}

    assert leaks(plain), "the plain report names some"
    assert leaks(hidden) == set()
    places = [(f.rule, f.topic, f.partition, f.offset) for f in plain.findings]
    assert sorted(places, key=str) == sorted(
        [(f.rule, f.topic, f.partition, f.offset) for f in hidden.findings], key=str
    )


def test_equal_texts_have_equal_names_in_one_report_and_others_in_the_next() -> None:
    with redacted():
        first, again, other = quoted("x"), quoted("x"), quoted("y")
    with redacted():
        later = quoted("x")
    assert first == again
    assert len({first, other, later}) == 3
    assert quoted("x") == "'x'"


def test_the_command_redacts_what_it_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [recording] = [path for path in RECORDINGS if path.name == "violations.tar.xz"]
    findings, page = tmp_path / "f.jsonl", tmp_path / "audit.html"
    arguments = ["audit", str(recording), "--findings", str(findings), "--html", str(page), "--redact"]
    assert cli.main(arguments) == 1
    rows = [json.loads(line) for line in findings.read_text().splitlines()]
    own = [row["evidence"] for row in rows if row["rule"] == DUPLICATE_VALUE]
    assert own
    assert all(evidence.startswith("#") for evidence in own)
    assert own[0] in capsys.readouterr().out.replace("\n", " ")
    assert own[0] in page.read_text()
    assert "Claims ledger" not in page.read_text()


@pytest.mark.spark
@pytest.mark.thorough
def test_workers_of_spark_redact_too(spark: Any) -> None:
    [recording] = [path for path in RECORDINGS if path.name == "violations.tar.xz"]
    with unpacked(recording) as folder:
        hidden = run([folder], "spark", spark=spark, redact=True)
    own = [finding.evidence for finding in hidden.findings if finding.rule == DUPLICATE_VALUE]
    assert own
    assert all(evidence.startswith("#") for evidence in own)
