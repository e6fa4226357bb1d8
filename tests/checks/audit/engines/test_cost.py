"""The cost that an audit reports: the arithmetic, and the tasks of both engines."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.command import _print_bill
from kafka_eos_checks.audit.engines.cost import Bill, Cost, StageCost, bill, charged
from kafka_eos_checks.audit.places import count_read
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stage(*seconds: float) -> StageCost:
    return StageCost("audit", [Cost(each, read=10, memory=5) for each in seconds])


def test_a_stage_takes_as_long_as_its_largest_task_or_its_share_of_the_cores() -> None:
    own = stage(1.0, 4.0, 3.0)
    assert (own.seconds, own.largest, own.read, own.memory) == (8.0, 4.0, 30, 5)
    assert [own.wall_seconds(cores) for cores in (1, 2, 4, 100)] == [8.0, 4.0, 4.0, 4.0]
    nothing = StageCost("audit", [])
    assert (nothing.seconds, nothing.largest, nothing.memory, nothing.wall_seconds(10)) == (0.0, 0.0, 0, 0.0)


def test_a_task_runs_without_garbage_collections_even_if_it_fails() -> None:
    def task() -> Iterator[bool]:
        yield gc.isenabled()
        raise ValueError

    assert gc.isenabled()
    results = charged(task, lambda _: True)
    assert next(results) is False
    with pytest.raises(ValueError):  # noqa: PT011 - the task's own
        next(results)
    assert gc.isenabled()


def test_stages_follow_each_other_and_the_driver_is_never_shared() -> None:
    whole = Bill((stage(2.0, 2.0), stage(6.0)), driver=1.0, input_bytes=20, memory=7)
    assert (whole.seconds, whole.read) == (11.0, 30)
    assert whole.serial_share == pytest.approx(1 / 11)
    assert [whole.wall_seconds(cores) for cores in (1, 2, 1000)] == [11.0, 9.0, 9.0]


@pytest.mark.parametrize(
    ("driver", "tasks", "longest"),
    [
        (9.0, (1.0, 1.0), "the driver"),
        (1.0, (8.0, 1.0), "one of the 2 tasks of audit"),
        (1.0, (8.0,), "the only task of audit"),
        (0.5, (1.0,) * 80, "all tasks of audit"),
    ],
)
def test_what_takes_longest_is_named(driver: float, tasks: tuple[float, ...], longest: str) -> None:
    assert Bill((stage(*tasks),), driver=driver, input_bytes=0, memory=0).bound(10) == longest


def test_the_driver_has_what_no_task_of_its_process_has() -> None:
    stages = [stage(2.0, 1.0)]
    assert bill(stages, 5.0, 0, in_process=True, wall=1.0, jvm=None).driver == 2.0
    assert bill(stages, 5.0, 0, in_process=False, wall=1.0, jvm=None).driver == 5.0


def test_a_task_is_charged_for_its_cpu_time_and_its_bytes_after_its_last_result() -> None:
    def task() -> Iterator[object]:
        count_read(70)
        yield "first"
        sum(range(3_000_000))
        count_read(7)
        yield "second"

    count_read(1000)  # of somebody else
    *made, cost = charged(task, lambda cost: cost)
    assert made == ["first", "second"]
    assert isinstance(cost, Cost)
    assert cost.read == 77
    assert 0.005 < cost.seconds < 5
    assert cost.memory > 1 << 20


def made(folder: Path, *, as_tables: bool = False, brokers: int = 1, history: bool = False) -> Path:
    workload = Workload(transactions=100, batches=1200, clients=20, partitions=4, seed=3)
    cluster = Cluster(
        workload=workload,
        value_bytes=20,
        as_tables=as_tables,
        segment_bytes=20_000,
        brokers=brokers,
        history=history,
    )
    cluster.write(folder)
    return folder


def billed(result: Audit) -> Bill:
    assert result.bill is not None
    return result.bill


@pytest.mark.spark
def test_both_engines_have_the_same_stages_and_read_the_same(tmp_path: Path, spark: "SparkSession") -> None:
    folder = made(tmp_path)
    local = billed(run([folder], explain_cost=True))
    with_spark = billed(run([folder], "spark", explain_cost=True, spark=spark))
    assert [each.label for each in local.stages] == [
        *("scan", "coordinators", "logs", "transactional ids", "transactions"),
        *("offsets", "indexes", "snapshots"),
    ]
    assert [(each.label, each.read) for each in with_spark.stages] == [(each.label, each.read) for each in local.stages]
    assert all(each.tasks for each in with_spark.stages)
    assert local.jvm is None
    assert with_spark.jvm is None or with_spark.jvm > 0
    assert 0 < local.serial_share < 1


@pytest.mark.parametrize("brokers", [1, 2])
def test_an_audit_reads_each_byte_of_a_segment_once_with_internal_topics_and_replicas(
    brokers: int, tmp_path: Path
) -> None:
    result = run([made(tmp_path, brokers=brokers)], explain_cost=True)
    found = billed(result)
    segments = sum(path.stat().st_size for path in tmp_path.glob("**/*.log"))
    indexes = sum(path.stat().st_size for path in tmp_path.glob("**/*index"))
    assert found.input_bytes == segments
    assert segments <= found.read <= segments + indexes
    judged = {verdict.name: verdict.figures for verdict in result.verdicts}
    assert judged["illegal coordinator transition"]["records"]
    assert judged["committed offset went back"]["checked"]
    assert ("replicas differ" in judged) == (brokers > 1)


@pytest.mark.parametrize("brokers", [1, 2])
def test_an_audit_with_a_history_reads_each_byte_of_a_segment_and_of_the_history_once(
    brokers: int, tmp_path: Path
) -> None:
    result = run([made(tmp_path, brokers=brokers, history=True)], explain_cost=True)
    found = billed(result)
    given = sum(path.stat().st_size for kind in ("*.log", "histories/*") for path in tmp_path.rglob(kind))
    indexes = sum(path.stat().st_size for path in tmp_path.glob("**/*index"))
    assert found.input_bytes == given
    again = sum(each.read for each in found.stages if each.label == "events shown")
    assert given <= found.read - again <= given + indexes
    assert again < given / 50, "joins of members and their commits are judged one by one"
    judged = {verdict.name: verdict.figures for verdict in result.verdicts}
    assert judged["acknowledged but lost"]["checked"] > 500
    assert judged["input processed twice"]["checked"] > 50


def test_only_the_columns_that_are_read_of_a_table_are_counted(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="tables of headers are Parquet")
    found = billed(run([made(tmp_path, as_tables=True)], explain_cost=True))
    (scan,) = (each for each in found.stages if each.label == "scan")
    assert 0 < scan.read < found.input_bytes


def test_the_bill_is_printed_when_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(tmp_path)
    assert main(["audit", str(folder)]) == 0
    assert "what it cost" not in capsys.readouterr().out
    assert main(["audit", str(folder), "--explain-cost"]) == 0
    printed = capsys.readouterr().out
    for words in ("what it cost", "transactional ids", "the driver alone", "times", "on 1,000 cores at least"):
        assert words in printed


def test_the_bill_tells_the_largest_task_and_its_share_of_the_stage(capsys: pytest.CaptureFixture[str]) -> None:
    _print_bill(Bill((stage(1.0, 3.0),), driver=1.0, input_bytes=40, memory=7))
    lines = capsys.readouterr().out.splitlines()
    [row] = [line for line in lines if line.startswith("audit")]
    assert row.split()[:5] == ["audit", "2", "4.00", "3.00", "75%"]
    assert "the input has 40 bytes; the tasks read 20, 0.50 times" in lines
    cores = [line.partition(" cores")[0] for line in lines if line.startswith("on ")]
    assert cores == ["on 10", "on 100", "on 1,000"]
