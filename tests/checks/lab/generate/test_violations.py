"""Violations that are planted in a cluster: the audit finds each of them where it is, and nothing else."""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.findings import Kind
from kafka_eos_checks.audit.moments import ONE_MOMENT
from kafka_eos_checks.audit.oracle.oracle import readable_transactions
from kafka_eos_checks.audit.rules.beside import BESIDE_RULES, REPLICAS
from kafka_eos_checks.audit.rules.coordinator import COORDINATOR_RULES
from kafka_eos_checks.audit.rules.log import LOG_RULES, ORDER
from kafka_eos_checks.audit.rules.offsets import OFFSET_RULES
from kafka_eos_checks.audit.rules.rule_book import READABLE
from kafka_eos_checks.audit.rules.transactions.names import TORN, TRANSACTION_RULES
from kafka_eos_checks.audit.rules.transactions.partitions import read_transactions
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab.generate import traffic
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload
from kafka_eos_checks.lab.generate.violations import Row, row_of

RULES = {*LOG_RULES, *COORDINATOR_RULES, *TRANSACTION_RULES, *OFFSET_RULES, *BESIDE_RULES}
Place = tuple[str, str, int, int | None]


def places_of(rows: Iterable[Row]) -> Counter[Place]:
    return Counter((row["rule"], row["topic"], row["partition"], row["offset"]) for row in rows)


def found_by(result: Audit, unknown: int = 0) -> Counter[Place]:
    """The findings by rule and place; one of two replicas' logs counts once."""
    assert result.unknown == unknown
    assert [(note.rule, note.kind) for note in result.notes] == [(READABLE, Kind.NOT_JUDGED)] * unknown
    places = {(f.broker, f.rule, f.topic, f.partition, f.offset) for f in result.findings}
    assert len(places) == len(result.findings)
    brokers = len({log.log.broker for log in result.logs})
    counts = Counter((rule, topic, partition, offset) for _, rule, topic, partition, offset in places)
    assert set(counts.values()) <= {1, brokers}
    return Counter(set(counts))


@pytest.mark.parametrize(
    "seed", [1, 2, 4, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (0, 3, 5, 6, 7))]
)
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
    assert Counter(rule for rule, *_ in planted) == dict.fromkeys(RULES, faults) | {TORN: 2 * faults}
    assert found_by(run([tmp_path])) == planted


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Counter[Place]]:
    """A cluster with violations, and their places."""
    folder = tmp_path_factory.mktemp("made")
    workload = Workload(transactions=1500, batches=9000, partitions=6, clients=25, seed=11)
    return folder, places_of(Cluster(workload=workload, value_bytes=8, faults=2).write(folder).planted)


def test_the_readable_rules_find_what_is_planted(made: tuple[Path, Counter[Place]]) -> None:
    folder, planted = made
    result = run([folder], oracle=1.0)
    assert found_by(result) == planted
    assert result.verdicts[-1].ok
    readable = readable_transactions(find_logs(folder / "brokers"), ONE_MOMENT).findings
    rows = (row_of(each.rule, each.topic, each.partition, each.offset) for each in readable if each.is_violation)
    assert places_of(rows) == Counter({place: planted[place] for place in planted if place[0] in TRANSACTION_RULES})


@pytest.mark.spark
def test_spark_finds_what_is_planted(made: tuple[Path, Counter[Place]], spark: Any) -> None:
    folder, planted = made
    assert found_by(run([folder], "spark", spark=spark)) == planted


def test_each_partition_loses_one_marker_at_most(tmp_path: Path) -> None:
    workload = Workload(transactions=3000, batches=9000, partitions=4, clients=25, seed=2)
    planted = Cluster(workload=workload, value_bytes=8, segment_bytes=8_000, faults=4).write(tmp_path).planted
    logs = [log for log in find_logs(tmp_path / "brokers") if log.topic == "generated"]
    ends = {log.partition: read_transactions(log).end for log in logs}
    lost = [row["partition"] for row in planted if row["rule"] == TORN and row["offset"] == ends[row["partition"]]]
    assert sorted(lost) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"room for 4 of lost marker, not for 5; give more --partitions"):
        Cluster(workload=workload, value_bytes=8, segment_bytes=8_000, faults=5).write(tmp_path / "more")


def test_without_a_second_broker_all_violations_except_those_of_replicas_are_planted(tmp_path: Path) -> None:
    made = tmp_path / "made"
    arguments = ["--transactions", "1500", "--batches", "9000", "--clients", "25", "--faults", "1", "--seed", "3"]
    assert main(["lab", "generate", str(made), *arguments]) == 0
    rows = [json.loads(line) for line in (made / "planted.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {row["rule"] for row in rows} == RULES - {REPLICAS}
    assert found_by(run([made])) == places_of(rows)


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


@pytest.mark.parametrize("as_tables", [False, True])
def test_a_batch_in_the_wrong_segment_is_found_and_nothing_else(tmp_path: Path, as_tables: bool) -> None:
    workload = Workload(transactions=300, batches=4000, clients=20, partitions=4, seed=3)
    Cluster(workload=workload, value_bytes=20, segment_bytes=40_000, as_tables=as_tables).write(tmp_path)
    folder = tmp_path / "brokers" / "1" / "generated-0"
    second = sorted(folder.glob("*.headers.parquet" if as_tables else "*.log"))[1].name[:20]
    for file in folder.glob(f"{second}.*"):
        if not file.name.endswith(".snapshot"):
            file.rename(file.with_name(f"{int(second) + 1:020}{file.name[20:]}"))
    found = Counter({(ORDER, "generated", 0, int(second)): 1})
    assert found_by(run([tmp_path]), unknown=1) == found, "the log has a hole there, because nobody finds the batch"
    judged = run([tmp_path], oracle=1.0)
    assert found_by(judged, unknown=1) == found
    assert judged.verdicts[-1].ok
