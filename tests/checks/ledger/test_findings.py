"""The findings in Kafka: each has its models and, if it was observed, its recording as evidence."""

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos_checks.audit import explain
from kafka_eos_checks.audit.rules.rule_book import rule_of
from kafka_eos_checks.conform.known import known_differences
from kafka_eos_checks.kit import recording
from kafka_eos_checks.kit.missing import MissingClone
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.ledger.findings import State, entries, recorded
from kafka_eos_checks.ledger.findings_command import peer_of
from kafka_eos_checks.models.findings import (
    Harm,
    KafkaFinding,
    MalformedFindings,
    Report,
    Shown,
    concerned,
    possible_causes,
    read_findings,
)
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.models.releases import Releases, releases_of

FINDINGS = read_findings()
BY_ID = {finding.id: finding for finding in FINDINGS}
RECORDED = BY_ID["aborted-records-delivered"]
OF_A_CLIENT = BY_ID["client-keeps-epoch"]


def model(name: str, *, ok: bool = True, check: str = "model") -> Verdict:
    """A verdict of TLC."""
    return Verdict(check=check, name=name, expected="holds", found="holds" if ok else "violates P", ok=ok)


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.id)
def test_models_violate_findings_mended_models_hold_and_recordings_show_them(finding: KafkaFinding) -> None:
    registry = Registry()
    assert all(registry.get(name).expect.violates for name in finding.models)
    assert not any(registry.get(name).expect.violates for name in finding.mended)
    assert finding.models or finding.scenario or finding.test
    assert bool(finding.scenario) == bool(finding.difference) == bool(finding.version)
    assert bool(finding.scenario) <= bool(finding.broker) <= bool(finding.scenario or finding.test)
    if finding.scenario:
        assert finding.difference in known_differences()
        assert peer_of(finding.broker).transaction_version == finding.version
    if finding.recording:
        expected = tomllib.loads((CLONE / "checks" / "recordings" / "expected.toml").read_text(encoding="utf-8"))
        assert expected[finding.recording][finding.rules[0]] > 0


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.id)
def test_a_finding_has_whole_sentences_and_a_known_one_has_its_issue(finding: KafkaFinding) -> None:
    for text in (finding.title, finding.consequence, finding.cause, finding.cure):
        assert text.endswith((".", ")")), text
    assert finding.known or finding.report is Report.NEW
    assert (finding.report is Report.NEW) == finding.reported.startswith("new: no report is known to us.")


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.id)
def test_a_finding_names_rules_of_the_audit_those_of_its_mutants_included_and_whom_it_concerns(
    finding: KafkaFinding,
) -> None:
    entries_of_models = [Registry().get(name) for name in finding.models]
    assert {entry.replay for entry in entries_of_models} - {""} <= set(finding.rules)
    assert all(rule_of(rule).means for rule in finding.rules)
    releases = Releases()
    named = {name for rule in releases.rules if rule.finding == finding.id for name in rule.by_release}
    assert bool(named) != bool(finding.concerns)
    concerning = [release for name, release in releases.releases.items() if name in named]
    assert releases_of(finding.id) == tuple(each.name for each in concerning)
    assert concerned(finding) not in {"", "Kafka "}


def test_possible_causes_are_named_without_reading_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_eos_checks.tla.modules.parse_module", None)
    releases_of.cache_clear()
    assert any("Kafka 4.4, 4.3 and 3.9" in line for line in possible_causes("duplicate value").values())


def test_every_test_of_a_finding_exists() -> None:
    for finding in FINDINGS:
        file, _, name = finding.test.partition("::")
        assert not file or f"def {name}(" in (CLONE / file).read_text(encoding="utf-8")


def test_the_best_shown_findings_come_first_then_the_gravest() -> None:
    order = [(list(Shown).index(finding.shown), list(Harm).index(finding.harm)) for finding in FINDINGS]
    assert order == sorted(order)
    assert {finding.shown for finding in FINDINGS} == set(Shown)


def test_a_finding_of_a_recording_is_found_there_and_drawn() -> None:
    verdict = recorded(RECORDED)
    assert verdict is not None
    assert verdict.ok
    assert "^  aborted record delivered" in verdict.evidence
    assert verdict.evidence.index("read-committed -> follower-catches-up-0: Poll @ 2") < verdict.evidence.index("^  ")
    assert 'class="violation"' in verdict.diagram


def test_of_several_results_of_an_audit_the_first_one_is_told() -> None:
    verdict = recorded(BY_ID["retry-refused-after-restart"])
    assert verdict is not None
    assert verdict.figures["recorded"] == 5
    assert verdict.evidence.startswith("duplicate value: java-crash-with-lost-acks-0 offset 105: '7.100' ")


def test_a_finding_that_the_recording_does_not_have_differs() -> None:
    (entry,) = entries([replace(RECORDED, rules=("gap",))], [])
    assert (entry.state, entry.parts[0].verdict and entry.parts[0].verdict.found) == (State.DIFFERS, "not found")
    assert entry.run is None


def test_a_finding_without_a_history_of_it_is_found_without_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "cause_of", lambda *_: None)
    verdict = recorded(replace(RECORDED, rules=("aborted index",)))
    assert verdict is not None
    assert (verdict.ok, verdict.diagram) == (True, "")
    assert verdict.evidence.startswith("aborted index: ")


def missing(what: str) -> None:
    raise MissingClone(what)


def test_without_its_archive_a_recording_is_not_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "recordings_folder", lambda: tmp_path)
    monkeypatch.setattr(recording, "need_clone", missing)
    (entry,) = entries([replace(RECORDED, title="another")], [])
    assert (entry.state, entry.parts[0].verdict) == (State.OPEN, None)


def test_the_state_of_a_finding_follows_from_the_verdicts_on_its_evidence() -> None:
    client = Verdict(check="finding", name="client-keeps-epoch: client", expected="passes", found="passes", ok=True)
    mutant, whole = (model(name, check="mutant") for name in OF_A_CLIENT.models)
    mended, goes_on = map(model, OF_A_CLIENT.mended)
    other = replace(mended, name="client-keeps-epoch: client")  # a model of that name would not be its evidence

    def state(*verdicts: Verdict) -> State:
        (entry,) = entries([OF_A_CLIENT], verdicts)
        return entry.state

    assert state() is state(other) is State.OPEN
    models = (mutant, whole, goes_on)
    assert state(*models, mended) is State.PARTLY
    assert state(*models, mended, client) is State.CHECKED
    assert state(*models, model(mended.name, ok=False), client) is State.DIFFERS
    assert state(model(mended.name, ok=False), *models, mended, client) is State.CHECKED  # the last one counts


def test_the_run_that_is_shown_is_that_of_the_strongest_evidence() -> None:
    told = [replace(model(name), evidence=name) for name in ("AppendedAtOnceMended", "AppendedAtOnce")]
    (entry,) = entries([RECORDED], told)
    assert entry.run is not None
    assert entry.run.evidence.shown is Shown.REAL
    (entry,) = entries([BY_ID["decision-lost"]], [replace(model("ActsOnLoaded"), evidence="the run")])
    assert entry.run is not None
    assert (entry.run.evidence.name, entry.run.index) == ("ActsOnLoaded", 0)


ROW = """[[finding]]
id = "a"
title = "t"
harm = "none"
consequence = "c"
cause = "c"
report = "new"
known = ""
cure = "c"
models = ["M"]
mended = []
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[finding", "no TOML"),
        ('[[finding]]\nid = "a"\n', "finding 1: expected"),
        (ROW + 'more = "x"\n', "finding 1: expected"),
        (ROW * 2, "finding 2: the id a is taken"),
        (ROW.replace('"none"', '"much"'), "finding 1: 'much' is not a valid Harm"),
        (ROW.replace('"new"', '"old"'), "finding 1: 'old' is not a valid Report"),
        (ROW.replace('["M"]', "[]"), "finding 1: nothing shows it"),
        (ROW + 'recording = "violations"\n', "finding 1: the recording violations needs rules"),
    ],
)
def test_a_file_that_cannot_be_used_says_where(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "findings.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(MalformedFindings, match=rf"findings\.toml: .*{reason}"):
        read_findings(file)


def upgrading_rows() -> list[tuple[list[str], list[str]]]:
    """(findings, cells for 3.9, 4.3 in version 1 and 4.3 in version 2) of each row of the page about upgrading."""
    text = (CLONE / "docs/upgrading.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.split("| finding |")[1].split("\n\n")[0].splitlines()[2:]]
    return [(re.findall(r"`([\w-]+)`", names), cells) for names, *cells in rows]


def test_the_page_about_upgrading_has_each_finding_once_and_with_its_releases() -> None:
    named = [name for names, _ in upgrading_rows() for name in names]
    assert sorted(named) == sorted(BY_ID)
    for names, (of_3_9, *of_4_3) in upgrading_rows():
        for name in names:
            releases = set(re.findall(r"[34]\.\d", concerned(BY_ID[name]))) or {"3.9", "4.3"}
            assert (of_3_9.startswith("yes"), any(cell != "no" for cell in of_4_3)) == (
                "3.9" in releases,
                "4.3" in releases,
            ), name


def test_the_page_about_upgrading_has_what_is_only_of_version_1() -> None:
    mended = {name for names, cells in upgrading_rows() for name in names if cells[2] == "no"}
    said = {each.id for each in FINDINGS if re.search("[Tt]ransaction version [12]", f"{each.consequence} {each.cure}")}
    assert mended <= said
