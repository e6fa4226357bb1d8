"""Violations that are planted in a cluster: the audit finds each of them where it is, and nothing else."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.rules.beside import BESIDE_RULES, REPLICAS
from kafka_eos_checks.audit.rules.coordinator import COORDINATOR_RULES
from kafka_eos_checks.audit.rules.log import LOG_RULES
from kafka_eos_checks.audit.rules.offsets import OFFSET_RULES
from kafka_eos_checks.audit.rules.transactions import TRANSACTION_RULES
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab.generate import traffic
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload
from kafka_eos_checks.lab.generate.violations import Row

RULES = {*LOG_RULES, *COORDINATOR_RULES, *TRANSACTION_RULES, *OFFSET_RULES, *BESIDE_RULES}
Place = tuple[str, str, int, int | None]


def places_of(rows: Iterable[Row]) -> Counter[Place]:
    return Counter((row["rule"], row["topic"], row["partition"], row["offset"]) for row in rows)


def found_in(folder: Path) -> Counter[Place]:
    """The findings by rule and place; one of two replicas' logs counts once."""
    result = run([folder])
    assert result.unknown == 0
    assert result.notes == ()
    places = {(f.broker, f.rule, f.topic, f.partition, f.offset) for f in result.findings}
    assert len(places) == len(result.findings)
    brokers = len({log.log.broker for log in result.logs})
    counts = Counter((rule, topic, partition, offset) for _, rule, topic, partition, offset in places)
    assert set(counts.values()) <= {1, brokers}
    return Counter(set(counts))


@pytest.mark.parametrize("seed", range(8))
def test_the_audit_finds_what_is_planted_and_nothing_else(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(traffic, "SLICE_BATCHES", int(rng.choice([3000, 1 << 20])))
    monkeypatch.setattr(traffic, "PARTITION_BATCHES", 1)
    faults = int(rng.integers(1, 4))
    cluster = Cluster(
        workload=Workload(transactions=1500, batches=9000, partitions=6, clients=25, seed=seed),
        brokers=2,
        value_bytes=8,
        as_tables=bool(seed % 2),
        segment_bytes=int(rng.choice([30_000, 1 << 30])),
        faults=faults,
    )
    planted = Counter(
        (row["rule"], row["topic"], row["partition"], row["offset"]) for row in cluster.write(tmp_path).planted
    )
    assert Counter(rule for rule, *_ in planted) == dict.fromkeys(RULES, faults)
    assert found_in(tmp_path) == planted


def test_without_a_second_broker_all_violations_except_those_of_replicas_are_planted(tmp_path: Path) -> None:
    made = tmp_path / "made"
    arguments = ["--transactions", "1500", "--batches", "9000", "--clients", "25", "--faults", "1", "--seed", "3"]
    assert main(["lab", "generate", str(made), *arguments]) == 0
    rows = [json.loads(line) for line in (made / "planted.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row["rule"] for row in rows} == RULES - {REPLICAS}
    assert found_in(made) == places_of(rows)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--transactions", "20"], "room for "),
        (["--transactions", "20", "--compacted"], "--faults: not with --retain-bytes or --compacted"),
    ],
)
def test_a_cluster_without_room_for_the_faults_is_refused(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lab", "generate", str(tmp_path / "made"), "--faults", "5", *arguments]) == 2
    assert says in capsys.readouterr().err
