"""The same verdicts wherever Spark runs: another process, other executors, over Connect, out of the wheel."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
import pytest

from kafka_eos_checks import cli
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.oracle.synthetic import faulty_log, write_log
from kafka_eos_checks.kit.paths import CLONE, build_folder, pom_file
from kafka_eos_checks.kit.recording import kept_recording, unpack
from kafka_eos_checks.kit.verdict import read_verdicts
from kafka_eos_checks.traces.replays import Rules, in_process
from kafka_eos_checks.traces.scan import pieces_of

pytestmark = pytest.mark.spark

OUT = "findings.jsonl"

# What a user's program does with a session: audit, replay traces, and look at batches by the data source.
PROGRAM = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.source import KafkaLogSource
from kafka_eos_checks.audit.engines.spark import session
from kafka_eos_checks.traces.replays import Rules
from kafka_eos_checks.traces.scan import pieces_of
from kafka_eos_checks.traces.spark import on_spark

folder, recording, out = map(Path, sys.argv[1:])

def where(batches):
    import os
    import kafka_eos_checks
    import pyarrow as pa
    for _ in batches:
        place = [os.path.dirname(kafka_eos_checks.__file__)]
        yield pa.RecordBatch.from_arrays([pa.array(place), pa.array([os.getppid()])], ["place", "parent"])

with session() as spark:
    result = run([folder], "spark", spark=spark)
    rules = Rules((("Noted", "NothingNoted"),))
    traces = on_spark(pieces_of([recording], 100_000), rules, spark=spark, task_bytes=200_000).to_pylist()
    places = spark.range(0, 8, 1, 8).mapInArrow(where, "place string, parent bigint").collect()
    spark.dataSource.register(KafkaLogSource)
    batches = spark.read.format("kafka_log").load(str(folder)).count()
found = {
    "verdicts": [[v.name, v.found, v.ok, v.evidence] for v in result.verdicts],
    "findings": [asdict(finding) for finding in result.findings],
    "traces": traces,
    "batches": batches,
    "places": sorted({row[0] for row in places}),
    "executors": len({row[1] for row in places}),
}
out.write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for number in range(4):
        write_log(folder / f"orders-{number}", faulty_log(number, 300, 0.05), segment_batches=100)
    last = max((folder / "orders-1").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-30])
    return folder


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recording")
    unpack(kept_recording("transactions-3.9"), folder)
    return folder / "brokers"


@pytest.fixture(scope="module")
def expected(logs: Path, recording: Path) -> dict[str, Any]:
    result = run([logs])
    assert len(result.findings) > 20
    verdicts = [[v.name, v.found, v.ok, v.evidence] for v in result.verdicts]
    traces = in_process(pieces_of([recording]), Rules((("Noted", "NothingNoted"),))).to_pylist()
    assert {row["subject"] for row in traces} == {"coordinator", "leader"}
    findings = [asdict(finding) for finding in result.findings]
    return {"verdicts": verdicts, "findings": findings, "traces": traces}


@pytest.fixture
def zipped(wheel: Path, tmp_path: Path) -> Path:
    """The wheel under another name: Spark puts zip files on the workers' path, but no wheels."""
    return Path(shutil.copyfile(wheel, tmp_path / "kafka_eos.zip"))


def run_program(command: list[str], folder: Path, **more: str) -> None:
    environment = {**os.environ, **more, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.thorough
def test_spark_submit_with_the_wheel_on_two_executors_gives_the_same_verdicts(
    logs: Path, recording: Path, expected: dict[str, Any], zipped: Path, tmp_path: Path
) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    program, out = tmp_path / "program.py", tmp_path / "found.json"
    program.write_text(PROGRAM)
    options = ["--master", "local-cluster[2,1,1024]", "--py-files", str(zipped), "--conf", "spark.ui.enabled=false"]
    run_program([submit, *options, str(program), str(logs), str(recording), str(out)], tmp_path)
    found = json.loads(out.read_text())
    assert {name: found[name] for name in expected} == expected
    assert found["batches"] == sum(log.batches for log in run([logs]).logs)
    assert all("kafka_eos.zip" in place for place in found["places"]), found["places"]
    assert found["executors"] == 2


# What becomes of rows of a stage when one of two executors is killed.
LOSS = """
import json, os, signal, subprocess, sys
from pathlib import Path
from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.engines.spark import SparkEngine, session

def each(item):
    yield Row(1, item % 3, item)

def summed(key, values):
    yield Row(1, key + 10, sum(values))

with session() as spark, SparkEngine(spark) as engine:
    rows = engine.map(each, range(20), [1] * 20, "each")
    first = engine.regroup(summed, [1], rows, label="first")
    before = engine.collect(1, first)
    running = subprocess.run(["ps", "-wweo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    told = (line.split(maxsplit=2) for line in running.splitlines())
    jvm = str(os.getppid())
    executors = [pid for pid, parent, args in told if parent == jvm and "CoarseGrainedExecutorBackend" in args]
    os.kill(int(executors[0]), signal.SIGKILL)
    second = engine.regroup(summed, [1], rows, first, label="second")
    after = sorted(engine.collect(1, second, rows))
Path(sys.argv[1]).write_text(json.dumps([len(executors), before, after]))
"""


@pytest.mark.thorough
def test_rows_between_stages_survive_the_loss_of_an_executor(zipped: Path, tmp_path: Path) -> None:
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    program, out = tmp_path / "program.py", tmp_path / "found.json"
    program.write_text(LOSS)
    tasks = ["--conf", "spark.sql.shuffle.partitions=4", "--conf", "spark.ui.enabled=false"]
    options = ["--master", "local-cluster[2,1,1024]", "--py-files", str(zipped), *tasks]
    run_program([submit, *options, str(program), str(out)], tmp_path)
    sums = [[key + 10, sum(range(key, 20, 3))] for key in range(3)]
    again = [[key + 10, own] for key, own in sums]
    rows = [[item % 3, item] for item in range(20)]
    assert json.loads(out.read_text()) == [2, sums, sorted([*rows, *sums, *again])]


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the configuration of a YARN with one node; Maven fetches Hadoop first."""
    jars, folder = build_folder() / "jars" / "yarn", tmp_path_factory.mktemp("yarn")
    if not list(jars.glob("hadoop-client-minicluster-*.jar")):
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom_file()), "-P", "yarn", *goal], check=True, timeout=600)
    command = ["java", "--add-opens=java.base/java.lang=ALL-UNNAMED", "-Xmx700m", "-cp", f"{jars}/*"]
    command += [str(CLONE / "tests" / "java" / "YarnCluster.java"), "yarn-site.xml"]
    environment = {**os.environ, "HADOOP_HOME": str(folder)}
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log
        ) as running,
    ):
        try:
            deadline = time.monotonic() + 180
            while not (folder / "yarn-site.xml").is_file():
                assert running.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, "no YARN after three minutes"
                time.sleep(0.2)
            yield folder
        finally:
            running.kill()


@pytest.fixture
def submit_as_documented(logs: Path, zipped: Path, tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs the call of spark-submit in the documents, with another cluster and words to replace."""
    text = (CLONE / "docs" / "operators.md").read_text(encoding="utf-8").replace("\\\n", " ")
    [program] = re.findall(r"^echo '(.*)' > run.py$", text, re.MULTILINE)
    [call] = re.findall(r"^spark-submit (--master yarn .*)$", text, re.MULTILINE)
    (tmp_path / "run.py").write_text(program)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(tmp_path / "venv.tar.gz", "w:gz") as packed:
        packed.add(python, "bin/python")
    (tmp_path / "python3").symlink_to(python)

    def submit(*words: tuple[str, str], **more: str) -> "subprocess.CompletedProcess[str]":
        own = call
        for old, new in (("cores 4", "cores 1"), ("/mnt/copies", str(logs)), ("findings.parquet", OUT), *words):
            assert old in own, old
            own = own.replace(old, new)
        named = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **more}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")} | named
        command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *own.split()]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    return submit


def check_found(done: "subprocess.CompletedProcess[str]", out: Path, logs: Path) -> None:
    """Check the findings of a call, which ends with 1 because of them."""
    assert done.returncode == 1, done.stdout + done.stderr
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert sum(each["kind"] == "violation" for each in found) == len(run([logs]).findings)


@pytest.mark.thorough
def test_the_call_of_spark_submit_in_the_documents_starts_driver_and_workers_with_their_own_pythons(
    submit_as_documented: Callable[..., "subprocess.CompletedProcess[str]"], logs: Path, tmp_path: Path
) -> None:
    check_found(submit_as_documented(("yarn", "local-cluster[1,1,1024]")), tmp_path / OUT, logs)


@pytest.mark.thorough
def test_the_call_of_spark_submit_in_the_documents_runs_on_yarn(
    submit_as_documented: Callable[..., "subprocess.CompletedProcess[str]"], yarn: Path, logs: Path, tmp_path: Path
) -> None:
    small = ("memoryOverhead=3g", f"memoryOverhead=1g --conf spark.yarn.stagingDir=file:{tmp_path}/staging")
    check_found(submit_as_documented(small, HADOOP_CONF_DIR=str(yarn)), tmp_path / OUT, logs)
    own = ("--conf spark.pyspark.driver.python=python3", "--deploy-mode cluster")
    (tmp_path / OUT).unlink()
    done = submit_as_documented(small, own, (OUT, f"{tmp_path}/{OUT}"), HADOOP_CONF_DIR=str(yarn))
    check_found(done, tmp_path / OUT, logs)


@pytest.mark.thorough
def test_spark_connect_gives_the_same_verdicts(
    logs: Path, recording: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs its packages: pip install 'pyspark[connect]'")
    program, out = tmp_path / "program.py", tmp_path / "found.json"
    program.write_text(PROGRAM)
    run_program([sys.executable, str(program), str(logs), str(recording), str(out)], tmp_path, SPARK_REMOTE="local[2]")
    found = json.loads(out.read_text())
    assert {name: found[name] for name in expected} == expected
    assert found["batches"] == sum(log.batches for log in run([logs]).logs)


# --- findings in a table of Spark's catalog ---------------------------------------------------------------------------


@pytest.fixture
def warehouse(spark: Any) -> Iterator[Any]:
    """A session without the table that a test makes."""

    def clear() -> None:
        spark.sql("DROP TABLE IF EXISTS found")
        place = urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path
        shutil.rmtree(Path(place, "found"), ignore_errors=True)  # of a run that was killed

    clear()
    yield spark
    clear()


@pytest.mark.thorough
def test_findings_go_to_a_table_and_the_verdicts_stay_the_same(
    logs: Path, expected: dict[str, Any], warehouse: Any, tmp_path: Path
) -> None:
    out, findings = tmp_path / "v.json", tmp_path / "findings.jsonl"
    assert cli.main(["audit", str(logs), "--findings", str(findings)]) == 1
    in_process = [json.loads(line) for line in findings.read_text().splitlines()]
    assert {row["kind"] for row in in_process} == {"violation", "not judged"}
    arguments = ["audit", str(logs), "--json", str(out), "--sink", "found"]
    assert cli.main(arguments) == 1
    verdicts = [[v.name, v.found, v.ok, v.evidence] for v in read_verdicts(out)]
    assert verdicts == expected["verdicts"]
    rows = [row.asDict() for row in warehouse.table("found").drop("audit").collect()]
    assert sorted(rows, key=str) == sorted(in_process, key=str)
    assert cli.main(arguments) == 1
    assert warehouse.table("found").count() == 2 * len(rows), "the next audit is appended"
