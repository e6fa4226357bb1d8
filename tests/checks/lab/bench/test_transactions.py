"""The bench of transactions: all sides count the same, in healthy clusters and where something is open."""

import re
from pathlib import Path

import pytest

from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab.bench import transactions
from kafka_eos_checks.lab.bench.measure import Answer, difference
from kafka_eos_checks.lab.generate.cluster import BROKERS, Cluster
from kafka_eos_checks.lab.generate.traffic import Workload

pytest.importorskip("pyarrow", reason="tables of headers are Parquet, which the extra 'spark' brings")


def topic_of(folder: Path) -> list[PartitionLog]:
    return [log for log in find_logs(folder / BROKERS) if not log.topic.startswith("__")]


def answers(folder: Path, logs: list[PartitionLog]) -> dict[str, Answer]:
    sides = [side for side in transactions.peers(folder, logs) if not side.absent]
    if len(sides) < 2:
        pytest.skip("no peer is installed")
    return {side.name: side.run() for side in sides}


@pytest.mark.parametrize("segment_bytes", [1 << 30, 100_000])
def test_all_sides_count_the_same_in_a_healthy_cluster(segment_bytes: int, tmp_path: Path) -> None:
    workload = Workload(transactions=400, batches=6000, clients=20, partitions=4, seed=9)
    Cluster(workload=workload, value_bytes=20, as_tables=True, segment_bytes=segment_bytes).write(tmp_path)
    logs = [log for log in find_logs(tmp_path / BROKERS) if log.topic != "__consumer_offsets"]
    ours = transactions.audit(logs, LocalEngine())
    assert int(ours["markers"]) > int(ours["ended"]) > int(ours["committed"]) > 500, "some markers end nothing"
    for name, answer in answers(tmp_path, topic_of(tmp_path)).items():
        assert difference(ours, answer) == "", name


def test_the_queries_see_duplicates_gaps_stale_epochs_and_what_is_open(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert (
        main(["lab", "generate", str(made), "--transactions", "300", "--headers", "--faults", "2", "--seed", "4"]) == 0
    )
    _, *queried = answers(tmp_path, topic_of(made)).values()
    for answer in queried:
        assert answer == queried[0]
        assert all(int(answer[what]) >= 2 for what in ("duplicate", "gap", "stale epoch", "open"))


def test_a_run_makes_a_cluster_and_measures_each_engine_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "running_spark", lambda _: "no Spark")
    monkeypatch.setattr(transactions, "peers", lambda *_: [])
    alone = transactions.audit
    monkeypatch.setattr(transactions, "audit_in_processes", lambda logs, _: alone(logs, LocalEngine()))
    found = list(transactions.run(tmp_path, quick=True, batches=2000))
    *engines, on_spark = found
    assert [verdict.found for verdict in engines] == ["the same each round"] * 4
    assert on_spark.found == "skipped: no Spark"
    for verdict in engines:
        answer = verdict.evidence.partition("answer: ")[2]
        counted = {name: int(number.replace(",", "")) for name, number in re.findall(r"(\w+) (\d[\d,]*)\b", answer)}
        assert counted["batches"] > 2000
        assert counted["ended"] > counted["committed"] > 50
