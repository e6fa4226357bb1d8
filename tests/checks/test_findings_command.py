"""What checking found in Kafka: each finding has its models and, if it was seen, its recording; none is just said."""

import tomllib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos.server.cluster import Settings
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos_checks import findings_command
from kafka_eos_checks.cli import main
from kafka_eos_checks.conform.known import known_differences
from kafka_eos_checks.conform.peers import Absent, Peer
from kafka_eos_checks.findings_command import KafkaFinding, MalformedFindings, Standing, judged, read_findings
from kafka_eos_checks.model_check import Outcome
from kafka_eos_checks.models import Registry
from kafka_eos_checks.paths import CLONE
from kafka_eos_checks.tlc import Result
from kafka_eos_checks.verdict import Verdict

FINDINGS = read_findings()
NAMES = ("good", "bad", "left_out")


def outcome(name: str, *, as_expected: bool = True) -> Outcome:
    """What TLC would have said of a model, with or against the registry."""
    model = Registry().get(name)
    violates = model.expect.violates if as_expected else ""
    found = f"violates {violates}" if violates else "holds"
    problems = () if as_expected else ("it differs",)
    return Outcome(model=model, result=Result(verdict=found), found=found, problems=problems)


def outcomes(finding: KafkaFinding) -> dict[str, Outcome]:
    return {name: outcome(name) for name in (*finding.models, *finding.mended)}


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.id)
def test_models_violate_what_is_mended_holds_and_recordings_have_it(finding: KafkaFinding) -> None:
    registry = Registry()
    assert all(registry.get(name).expect.violates for name in finding.models)
    assert not any(registry.get(name).expect.violates for name in finding.mended)
    assert finding.models or finding.scenario
    assert bool(finding.recording) == bool(finding.rule)
    assert bool(finding.scenario) == bool(finding.broker) == bool(finding.difference)
    if finding.scenario:
        assert finding.difference in known_differences()
        assert findings_command.peer_of(finding.broker).name == finding.broker
    if finding.recording:
        expected = tomllib.loads((CLONE / "checks" / "recordings" / "expected.toml").read_text(encoding="utf-8"))
        assert expected[finding.recording][finding.rule] > 0


def test_a_finding_of_a_recording_is_shown_there_and_drawn() -> None:
    finding = FINDINGS[0]
    verdict = judged(finding, outcomes(finding))
    assert verdict.ok
    assert verdict.found == Standing.REAL
    assert "^  aborted record delivered" in verdict.evidence
    assert verdict.evidence.index("read-committed -> follower-catches-up-0: Poll @ 2") < verdict.evidence.index("^  ")
    assert 'class="violation"' in verdict.diagram


def test_a_finding_that_the_recording_does_not_have_differs() -> None:
    finding = replace(FINDINGS[0], rule="gap")
    verdict = judged(finding, outcomes(finding))
    assert (verdict.ok, verdict.found) == (False, Standing.MODEL)


def test_a_finding_of_kafkas_client_needs_its_test_to_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_command, "CLONE", tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_good(): pass\ndef test_bad(): assert 0\n"
        "@pytest.mark.skip\ndef test_left_out(): pass\n",
        encoding="utf-8",
    )
    finding = next(each for each in FINDINGS if each.standing is Standing.CLIENT)
    found = {name: judged(replace(finding, test=f"test_it.py::test_{name}"), outcomes(finding)).found for name in NAMES}
    assert found == {"good": Standing.CLIENT, "bad": Standing.MODEL, "left_out": Standing.MODEL}


# --- scenarios of conform ---------------------------------------------------------------------------------------------


LATE_COPY = replace(next(each for each in FINDINGS if each.id == "lowest-sequence"), test="")


@contextmanager
def mended(folder: Path) -> Iterator[str]:
    """The reference, which forgets the sequence of a batch that it does not append."""
    with ServedCluster(settings=Settings(transactions=TransactionSettings(version=1))) as cluster:
        yield cluster.bootstrap_servers


@contextmanager
def as_kafka(folder: Path) -> Iterator[str]:
    """It refuses the third batch, the one behind the copy."""
    with ServedCluster(settings=Settings(transactions=TransactionSettings(version=1))) as cluster:
        cluster.fault("error", api="Produce", nth=3, error="OUT_OF_ORDER_SEQUENCE_NUMBER")
        yield cluster.bootstrap_servers


@contextmanager
def absent(folder: Path) -> Iterator[str]:
    raise Absent("there is no Java")
    yield ""


def played_on(start: Callable[[Path], AbstractContextManager[str]], monkeypatch: pytest.MonkeyPatch) -> Verdict:
    peer = Peer(name=LATE_COPY.broker, transaction_version=1, start=start)
    monkeypatch.setattr(findings_command, "PEERS", (peer,))
    return judged(LATE_COPY, {})


def test_a_finding_of_a_scenario_is_shown_when_a_broker_answers_so_and_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict = played_on(as_kafka, monkeypatch)
    assert verdict.ok
    assert verdict.found == Standing.REAL
    assert "7. Produce(again): NONE (offset 0)\n  8. Produce(next): OUT_OF_ORDER_SEQUENCE_NUMBER" in verdict.evidence
    assert "reproduce: kafka-eos findings lowest-sequence --check\n" in verdict.evidence
    assert "--transaction-version 1 --repeat transaction-7909f3\n" in verdict.evidence
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER, where the spec says NONE" in verdict.diagram


def test_a_finding_of_a_scenario_that_a_broker_conforms_in_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = played_on(mended, monkeypatch)
    assert (verdict.ok, verdict.found) == (False, Standing.NOWHERE)


def test_a_finding_whose_broker_cannot_be_started_is_not_shown_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = played_on(absent, monkeypatch)
    assert (verdict.ok, verdict.found) == (False, "not shown: there is no Java")


def test_every_part_that_a_finding_names_has_to_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_command, "passes", lambda _: False)
    both = replace(LATE_COPY, test="test_it.py::test_bad")
    assert judged(both, {}).found == Standing.NOWHERE


# --- the file and the command -----------------------------------------------------------------------------------------


def test_every_test_of_a_finding_is_there() -> None:
    for finding in FINDINGS:
        file, _, name = finding.test.partition("::")
        assert not file or f"def {name}(" in (CLONE / file).read_text(encoding="utf-8")


def test_a_finding_whose_model_says_something_else_differs() -> None:
    finding = next(each for each in FINDINGS if not each.recording)
    wrong = outcomes(finding) | {finding.models[0]: outcome(finding.models[0], as_expected=False)}
    verdict = judged(finding, wrong)
    assert not verdict.ok
    assert finding.models[0] in verdict.found
    backwards = replace(finding, models=finding.mended)
    assert "violates nothing" in judged(backwards, outcomes(backwards)).found


def test_without_a_check_nothing_is_said_to_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(findings_command.paths, "build_folder", lambda: tmp_path)
    assert main(["findings"]) == 1
    said = capsys.readouterr()
    assert "not checked" in said.out
    assert "kafka-eos findings --check" in said.err


def test_an_unknown_finding_or_a_spoiled_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", "nothing"]) == 2
    assert "no finding 'nothing'; there are aborted-records-delivered" in capsys.readouterr().err
    file = tmp_path / "findings.toml"
    file.write_text('[[finding]]\nid = "a"\n', encoding="utf-8")
    with pytest.raises(MalformedFindings, match="finding 1: expected"):
        read_findings(file)
    file.write_text("[[finding", encoding="utf-8")
    with pytest.raises(MalformedFindings, match="no TOML"):
        read_findings(file)
