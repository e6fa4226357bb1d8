"""Logs in HDFS: what a local copy gives, from a NameNode and a DataNode on loopback, in process and on Spark."""

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.places import place
from kafka_eos_checks.kit.paths import build_folder, pom_file
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.jepsen_history import JepsenHistory
from kafka_eos_checks.lab.generate.traffic import Workload

from .conftest import submitted

fs = pytest.importorskip("pyarrow.fs", reason="URIs are read through pyarrow")
native = pytest.importorskip("hdfs_native.fsspec", reason="HDFS: pip install 'kafka-eos[hdfs]'")
pytestmark = [pytest.mark.thorough, pytest.mark.spark]


@pytest.fixture(scope="module")
def namenode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a NameNode; Maven fetches Hadoop first."""
    jars = build_folder() / "jars" / "hdfs"
    if not list(jars.glob("hadoop-client-minicluster-*.jar")):
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom_file()), "-P", "hdfs", *goal], check=True, timeout=600)
    folder = tmp_path_factory.mktemp("hdfs")
    details = folder / "details.json"
    manager = "org.apache.hadoop.test.MiniDFSClusterManager"
    command = ["java", "-Xmx500m", "-cp", f"{jars}/*", manager, "-format", "-datanodes", "1"]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [*command, "-writeDetails", str(details)], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 120
        while not (details.is_file() and details.stat().st_size):
            assert running.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, "no NameNode after two minutes"
            time.sleep(0.2)
        yield json.loads(details.read_text())["namenode_port"]
    finally:
        running.kill()
        running.wait()


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory, namenode: int) -> tuple[Path, str]:
    """A cluster with every rule violated, and a history of Jepsen; here and in HDFS."""
    folder = tmp_path_factory.mktemp("copies")
    workload = Workload(transactions=1000, batches=10_000, seed=2)
    Cluster(workload=workload, brokers=2, value_bytes=20, faults=2).write(folder / "cluster")
    (folder / "jepsen.edn").write_text("".join(JepsenHistory(2000, seed=1).lines()), encoding="utf-8")
    system = fs.PyFileSystem(fs.FSSpecHandler(native.HdfsFileSystem("127.0.0.1", namenode)))
    fs.copy_files(str(folder), "/copies", destination_filesystem=system)
    return folder, f"hdfs://127.0.0.1:{namenode}/copies"


def said(audit: Audit) -> list[Any]:
    """Everything that an audit says, except times, the order of lines of evidence, and commands that name paths."""
    verdicts = [asdict(verdict) for verdict in audit.verdicts]
    for verdict in verdicts:
        verdict |= {"seconds": 0, "advice": "", "evidence": sorted(verdict["evidence"].splitlines())}
    return [verdicts, [asdict(finding) for finding in (*audit.findings, *audit.notes)]]


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_logs_in_hdfs_are_judged_as_a_local_copy_is(engine: str, copies: tuple[Path, str], spark: Any) -> None:
    folder, uri = copies
    local = run([folder / "cluster"], one_moment=True)
    assert len(local.findings) > 20
    found = run([place(f"{uri}/cluster")], engine, spark=spark, one_moment=True, explain_cost=True)
    assert said(found) == said(local)
    assert found.bill is not None
    assert found.bill.read > sum(path.stat().st_size for path in folder.rglob("*.log"))


def test_files_in_hdfs_have_sizes_and_times(copies: tuple[Path, str]) -> None:
    folder, uri = copies
    [segment] = (folder / "cluster").glob("brokers/1/generated-0/*.log")
    there = place(f"{uri}/{segment.relative_to(folder)}").stat()
    assert there.st_size == segment.stat().st_size
    assert abs(there.st_mtime - time.time()) < 3600
    assert place(f"{uri}/cluster").is_dir()
    assert not place(f"{uri}/nothing").exists()


def test_a_history_of_jepsen_in_hdfs_is_judged_as_a_local_copy_is(copies: tuple[Path, str]) -> None:
    folder, uri = copies
    figures = [
        [verdict.figures for verdict in run([path]).verdicts]
        for path in (folder / "jepsen.edn", place(f"{uri}/jepsen.edn"))
    ]
    assert figures[0] == figures[1]


PROGRAM = """
import json, sys
from dataclasses import asdict
from kafka_eos_checks.audit.audit import Audit, run
from kafka_eos_checks.audit.engines.spark import session
from kafka_eos_checks.audit.places import place

with session() as spark:
    result = run([place(sys.argv[1])], "spark", spark=spark, one_moment=True)
json.dump([asdict(finding) for finding in (*result.findings, *result.notes)], open(sys.argv[2], "w"))
"""


def test_two_executors_that_see_the_logs_only_in_hdfs_give_the_same_findings(
    copies: tuple[Path, str], tmp_path: Path
) -> None:
    folder, uri = copies
    local = run([folder / "cluster"], one_moment=True)
    out = tmp_path / "found.json"
    hidden = folder.rename(tmp_path / "elsewhere")
    done = submitted(PROGRAM, tmp_path, f"{uri}/cluster", str(out))
    hidden.rename(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(out.read_text()) == [asdict(each) for each in (*local.findings, *local.notes)]
