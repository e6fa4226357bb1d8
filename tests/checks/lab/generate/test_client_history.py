"""Generated histories: in the format of histories, joined with the logs without a finding, and with planted ones."""

import json
from collections import Counter
from pathlib import Path

import pytest

from kafka_eos.histories.history import read_history
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.rules.applications import INPUT_RULES
from kafka_eos_checks.audit.rules.histories import HISTORY_RULES
from kafka_eos_checks.audit.rules.readers import READER_RULES
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab.generate import traffic
from kafka_eos_checks.lab.generate.cluster import HISTORIES, Cluster
from kafka_eos_checks.lab.generate.traffic import Workload


def cluster(seed: int, faults: int = 0, value_bytes: int = 16) -> Cluster:
    workload = Workload(transactions=200, batches=2000, partitions=6, clients=10, seed=seed)
    return Cluster(workload=workload, value_bytes=value_bytes, history=True, faults=faults)


@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_history_has_no_finding_and_nothing_unknown(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "SLICE_BATCHES", [300, 1 << 20][seed % 2])
    monkeypatch.setattr(traffic, "PARTITION_BATCHES", 1)
    made = cluster(seed).write(tmp_path)
    result = run([tmp_path])
    assert [finding.in_words() for finding in (*result.findings, *result.notes)] == []
    assert result.unknown == 0
    verdicts = {verdict.name: verdict for verdict in result.verdicts}
    for rule in (*READER_RULES, *INPUT_RULES, "acknowledged but lost", "duplicate value"):
        assert int(verdicts[rule].figures["checked"]) >= 3, rule
        assert verdicts[rule].unjudged == ""
    assert verdicts["acknowledged but lost"].figures["events"] == made.events


def test_events_are_those_that_the_reference_writes_and_in_order(tmp_path: Path) -> None:
    made = cluster(1, value_bytes=20).write(tmp_path)
    [path] = (tmp_path / HISTORIES).iterdir()
    events = list(read_history(path))
    assert [event.order for event in events] == list(range(made.events))
    assert [event.to_json() for event in events] == path.read_text(encoding="utf-8").splitlines()
    actions = Counter((event.action, event.phase) for event in events)
    assert actions["Send", "invoke"] == actions["Send", "ok"] > 2000
    assert actions["Poll", "ok"] > 1000
    assert actions["CommitTransaction", "ok"] > actions["AbortTransaction", "ok"] > 5
    assert actions["Crash", "info"] > 0
    assert {len(str(event.detail["value"])) for event in events if "value" in event.detail} == {20}


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 6))])
def test_the_audit_finds_what_is_planted_in_a_history_and_nothing_else(tmp_path: Path, seed: int) -> None:
    faults = 1 + seed % 2
    workload = Workload(transactions=400, batches=2500, partitions=6, clients=12, seed=seed)
    made = Cluster(workload=workload, value_bytes=16, history=True, faults=faults).write(tmp_path)
    planted = Counter((row["rule"], row["topic"], row["partition"], row["offset"]) for row in made.planted)
    assert Counter(row["rule"] for row in made.planted) == dict.fromkeys(HISTORY_RULES, faults)
    result = run([tmp_path])
    assert Counter((f.rule, f.topic, f.partition, f.offset) for f in result.findings) == planted
    assert result.unknown == 0
    assert result.notes == ()
    assert {verdict.name for verdict in result.verdicts if not verdict.ok} == set(HISTORY_RULES)


def test_the_command_plants_in_the_history_where_one_is_written(tmp_path: Path) -> None:
    made = tmp_path / "made"
    arguments = ["--transactions", "400", "--batches", "2500", "--clients", "12", "--value-bytes", "16", "--seed", "2"]
    assert main(["lab", "generate", str(made), *arguments, "--history", "--faults", "1"]) == 0
    rows = [json.loads(line) for line in (made / "planted.jsonl").read_text(encoding="utf-8").splitlines()]
    assert Counter(row["rule"] for row in rows) == dict.fromkeys(HISTORY_RULES, 1)
    findings = run([made]).findings
    assert {(f.rule, f.topic, f.partition, f.offset) for f in findings} == {
        (row["rule"], row["topic"], row["partition"], row["offset"]) for row in rows
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--headers"], "--history: not with --headers"),
        (["--value-bytes", "15"], "--value-bytes 15: with --history give 16 or more"),
        (["--value-bytes", "16", "--faults", "50"], "room for "),
    ],
)
def test_a_history_that_cannot_be_made_is_refused(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "generate", str(tmp_path / "made"), "--transactions", "50", "--history", *arguments]) == 2
    assert says in capsys.readouterr().err
