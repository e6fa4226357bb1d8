"""How items become Spark's tasks."""

import logging
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest

from kafka_eos.histories.history import read_history
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.engines import spark as engine
from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.engines.spark import SparkEngine, failures_told, session, shuffle_count, task_count
from kafka_eos_checks.audit.events.history_files import read_events
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.quoting import quoted, redacted, use_key
from kafka_eos_checks.kit.missing import MissingExtra
from kafka_eos_checks.kit.recording import kept_recording, unpacked
from kafka_eos_checks.traces.replays import Rules
from kafka_eos_checks.traces.scan import pieces_of
from kafka_eos_checks.traces.spark import on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_JOBS = 16  # of an audit with a history; there are as many rounds in which the driver has to decide something


@pytest.mark.parametrize(
    ("items", "cores", "tasks"),
    [
        (1, 2, 1),
        (15, 2, 15),
        (16, 2, 16),
        (17, 2, 16),  # each core has eight, so that the last ones of all cores end at about the same time
        (256, 2, 16),
        (257, 2, 17),  # and none has more than sixteen items, so that little is lost if one fails
        (10_000, 1_000, 8_000),
        (100, None, 100),
    ],
)
def test_a_core_has_eight_tasks_and_a_task_at_most_sixteen_items(items: int, cores: int | None, tasks: int) -> None:
    assert task_count(items, cores) == tasks


@pytest.mark.parametrize(("cores", "tasks"), [(1, 1), (2, 2), (8, 8), (64, 8), (None, 8)])
def test_a_local_shuffle_has_a_task_for_each_core_and_at_most_eight(cores: int | None, tasks: int) -> None:
    assert shuffle_count(cores) == tasks


@pytest.mark.spark
def test_a_local_session_shuffles_for_the_cores_of_this_machine(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == str(shuffle_count(os.cpu_count()))


def test_a_failure_of_spark_is_told_with_the_first_and_the_last_line_of_its_message() -> None:
    errors = pytest.importorskip("pyspark.errors")
    for message, told in (
        ("Job aborted\n  at a\n\n b is missing \n", "Spark failed: Job aborted … b is missing"),
        ("Job aborted\n b is missing\n SQLSTATE: 38000", "Spark failed: Job aborted … b is missing"),
        ("", "Spark failed: PySparkException"),
        (
            "No space left on device",
            "Spark failed: No space left on device; make room in the executors' spark.local.dir",
        ),
    ):
        with pytest.raises(UnusableInput) as found, failures_told():
            raise errors.PySparkException(message)
        assert str(found.value) == told


def with_its_task(item: int) -> Iterator[Row]:
    from pyspark import TaskContext  # noqa: PLC0415 - only Spark's workers need it

    task = TaskContext.get()
    assert task is not None
    yield Row(0, item, task.partitionId())


@pytest.mark.spark
def test_every_item_is_run_once_and_neighbours_in_different_tasks(spark: "SparkSession") -> None:
    items = range(1_000)
    count = task_count(len(items), spark.sparkContext.defaultParallelism)
    with SparkEngine(spark) as engine:
        rows = engine.map(with_its_task, items, [0] * len(items), "tasks")
        assert engine.collect(0, rows) == [(item, item % count) for item in items]


def where_pyspark_is(item: int) -> Iterator[Row]:
    import pyspark  # noqa: PLC0415 - of Spark's worker

    yield Row(0, item, pyspark.__file__)


@pytest.mark.spark
def test_workers_import_pyspark_as_installed_because_that_in_the_zip_is_compiled_each_time(
    spark: "SparkSession",
) -> None:
    import pyspark  # noqa: PLC0415

    with SparkEngine(spark) as engine:
        rows = engine.map(where_pyspark_is, [1], [0], "pyspark")
        assert engine.collect(0, rows) == [(1, pyspark.__file__)]


def test_workers_find_in_the_zips_of_spark_what_is_nowhere_else(tmp_path: Path) -> None:
    daemon = "import only_zipped\n\ndef manager():\n    print(__file__)\n"
    with ZipFile(tmp_path / "pyspark.zip", "w") as archive, ZipFile(tmp_path / "py4j-src.zip", "w") as other:
        archive.writestr("pyspark/__init__.py", "")
        archive.writestr("pyspark/daemon.py", daemon)
        other.writestr("only_zipped.py", "")
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    (tmp_path / "pyspark" / "daemon.py").write_text(daemon)
    path = os.pathsep.join(map(str, (tmp_path / "pyspark.zip", tmp_path / "py4j-src.zip", tmp_path)))
    command = [sys.executable, "-m", "kafka_eos_checks.audit.engines.python_daemon"]
    ran = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == (f"{tmp_path}/pyspark/daemon.py\n", "")


def test_rows_go_to_the_jvm_without_an_import_of_pandas() -> None:
    pytest.importorskip("pyarrow")
    code = """
import sys
from kafka_eos_checks.audit.engines.engine import Row
from kafka_eos_checks.audit.engines.spark import _batches, unpacked
[batch] = _batches([Row(1, -5, "a"), Row(2, 1 << 40, ["b", 7])])
assert "pandas" not in sys.modules
kinds, keys, values = (column.to_pylist() for column in batch.columns)
print(kinds, keys, [unpacked(value) for value in values])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("[1, 2] [-5, 1099511627776] ['a', ['b', 7]]\n", "")


@pytest.mark.spark
def test_the_rows_of_an_audit_and_of_a_replay_are_taken_off_the_disks(spark: "SparkSession", tmp_path: Path) -> None:
    def kept() -> int:
        return int(spark.sparkContext._jsc.getPersistentRDDs().size())  # type: ignore[union-attr]

    before = kept()
    with SparkEngine(spark) as engine:
        rows = engine.map(with_its_task, [1, 2], [0, 0], "tasks")
        assert len(engine.collect(0, rows)) == 2
        assert kept() == before + 1
    assert kept() == before
    with unpacked(kept_recording("violations")) as folder:
        assert on_spark(pieces_of([folder]), Rules(()), spark=spark).num_rows > 0
    assert kept() == before


@pytest.mark.spark
def test_without_items_there_are_no_rows_and_nothing_to_run(spark: "SparkSession") -> None:
    with SparkEngine(spark) as engine:
        rows = engine.map(with_its_task, [], [], "none")
        assert engine.collect(0, rows, rows) == []
        assert (engine.stages, rows.rdd.getNumPartitions()) == ([], 0)


@pytest.mark.spark
def test_several_kinds_are_collected_at_once_each_from_rows_of_its_own(spark: "SparkSession") -> None:
    with SparkEngine(spark) as engine, LocalEngine() as local:
        found = []
        for running in (engine, local):
            rows = [running.map(both_kinds, items, [0] * len(items), "both") for items in ([4, 2], [3])]
            found.append(running.collect_each((0, rows), (1, rows[1:]), (0, rows[:1])))
            assert running.collect_each() == []
        assert found == [[[(2, "0"), (3, "0"), (4, "0")], [(3, "1")], [(2, "0"), (4, "0")]]] * 2


def both_kinds(item: int) -> Iterator[Row]:
    yield Row(0, item, "0")
    yield Row(1, item, "1")


def doubled(key: int, values: Iterator[str]) -> Iterator[Row]:
    yield Row(0, 2 * key, "".join(sorted(values)))


def named_item(item: int) -> Iterator[Row]:
    yield Row(0, item, quoted("x"))


def named_values(key: int, values: Iterator[str]) -> Iterator[Row]:
    yield from (Row(0, key, quoted(value)) for value in values)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("before", [None, b"of an earlier audit"])
def test_a_task_names_what_clients_wrote_as_its_own_audit_does_whatever_its_process_has_run_before(
    before: bytes | None, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa = pytest.importorskip("pyarrow")
    monkeypatch.setattr(engine, "keep_modules", lambda: None)
    with redacted(wanted):
        told = quoted("x")
        mapped, regrouped = engine._mapped(named_item, [1], 1), engine._regrouped(named_values)
    assert (told == "'x'") == (not wanted)
    values = pa.table({"kind": [0], "key": [1], "value": [engine.packed("x")]})
    numbers = pa.RecordBatch.from_pydict({"id": [0]})

    def of_first(task: Callable[[], Any]) -> object:
        use_key(before)
        return engine.unpacked(task()["value"][0].as_py())

    tasks = [lambda: pa.Table.from_batches(list(mapped([numbers]))), lambda: regrouped(values)]
    assert [copy_context().run(of_first, task) for task in tasks] == [told, told]


@pytest.mark.spark
def test_a_job_answers_all_questions_and_runs_every_stage_once(spark: "SparkSession") -> None:
    """Whether they are about one stage or about several, and whether a stage reads rows of one or of two others."""
    with SparkEngine(spark) as engine, jobs_of(spark, "questions") as jobs:
        mapped = engine.map(both_kinds, [1, 2], [0, 0], "mapped")
        regrouped = engine.regroup(doubled, [0, 1], mapped, label="regrouped")
        again = engine.regroup(doubled, [0], mapped, regrouped, label="regrouped again")
        told = engine.collect_each((0, [regrouped]), (0, [again]), (1, [mapped]), (0, [mapped, regrouped]))
        assert told[:3] == [[(2, "01"), (4, "01")], [(2, "0"), (4, "001"), (8, "01")], [(1, "1"), (2, "1")]]
        assert sorted(told[3]) == [(1, "0"), (2, "0"), (2, "01"), (4, "01")]
        assert len(jobs()) == 1
        assert engine.collect(0, again, mapped) == [(1, "0"), (2, "0"), (2, "0"), (4, "001"), (8, "01")]
        tracker = spark.sparkContext.statusTracker()
        second = next(job for job in jobs() if job != min(jobs()))
        stages = [tracker.getStageInfo(stage) for stage in tracker.getJobInfo(second).stageIds]
        most = spark.sparkContext.defaultParallelism
        assert [stage.numTasks <= most for stage in stages] == [True], "rows on disk are read in a task for each core"


@pytest.mark.thorough  # takes long
@pytest.mark.spark
def test_an_audit_with_a_history_takes_few_jobs(spark: "SparkSession") -> None:
    """Its plan has 30 stages or more; a job for each, or for each kind of rows that are collected, would be 70."""
    with jobs_of(spark, "audit") as jobs:
        result = run([kept_recording("transactions")], "spark", spark=spark, explain_cost=True)
    assert result.bill is not None
    assert len(result.bill.stages) > MOST_JOBS
    assert len(jobs()) <= MOST_JOBS


@contextmanager
def jobs_of(spark: "SparkSession", name: str) -> Iterator[Callable[[], list[int]]]:
    """The numbers of the jobs that the block has started up to now."""
    context = spark.sparkContext
    group = f"{name}-{uuid.uuid4()}"
    context.setJobGroup(group, name)
    try:
        yield lambda: list(context.statusTracker().getJobIdsForGroup(group))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]


def test_a_local_session_without_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("JAVA_HOME", "SPARK_REMOTE", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    sql = pytest.importorskip("pyspark.sql")
    monkeypatch.setattr(sql.SparkSession, "getActiveSession", lambda: None)
    with pytest.raises(MissingExtra, match="this needs Java 17 or later"), session():
        raise AssertionError("a session without Java")


def test_an_interrupt_waits_until_the_jvm_has_started_and_then_goes_where_it_went_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []

    def start() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        done.append("started")
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark sets a handler of its own

    with pytest.raises(KeyboardInterrupt), engine._interrupts_wait():
        start()
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_no_interrupt_comes_and_none_is_waited_for() -> None:
    wrong: list[BaseException] = []

    def start() -> None:
        try:
            with engine._interrupts_wait():
                pass
        except BaseException as error:  # noqa: BLE001 - told by the thread of the test
            wrong.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert wrong == []


def test_exceptions_of_the_gateway_are_not_logged_and_others_are(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = pytest.importorskip("py4j.protocol")
    raised = [KeyboardInterrupt(), protocol.Py4JNetworkError("broken"), OSError("full")]
    names = (None, "py4j.clientserver", "py4j.java_gateway")
    for name in names:  # without the filters of the session that other tests share
        monkeypatch.setattr(logging.getLogger(name), "filters", [])
    with engine._unlogged():
        for name in names:
            for error in raised:
                logging.getLogger(name).error("while sending", exc_info=error)
    told = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert told == raised[-1:] * 3
    logging.getLogger().error("after", exc_info=raised[0])
    assert caplog.messages[-1] == "after"


def test_while_a_cluster_gives_no_session_its_address_is_told_without_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql")
    told: list[str] = []

    def fail(_: Any) -> None:
        raise ValueError("no answer")

    monkeypatch.setattr(sql.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(sql.SparkSession.Builder, "getOrCreate", fail)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:1/;use_ssl=true;token=secret")
    monkeypatch.setattr(engine.progress_console, "status", lambda words: told.append(words) or nullcontext())
    with (
        pytest.raises(UnusableInput, match=r"^no session of Spark with SPARK_REMOTE=sc://host:1/: no answer$"),
        session(),
    ):
        pytest.fail("a session")
    assert told == ["waiting for a session of Spark with SPARK_REMOTE=sc://host:1/"]


def test_without_pandas_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with (
        pytest.raises(MissingExtra, match=r"this needs pandas; install it with: pip install 'kafka-eos\[spark\]'"),
        session(),
    ):
        pytest.fail("a session")


@pytest.mark.spark
def test_a_local_session_does_not_log_the_failures_that_the_audit_tells(spark: Any) -> None:
    loggers = spark._jvm.org.apache.logging.log4j.LogManager
    told = ("org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager", "DataNucleus.Datastore")
    assert not [name for name in told if loggers.getLogger(name).isErrorEnabled()]
    assert loggers.getLogger("org.apache.spark.scheduler.DAGScheduler").isErrorEnabled()


WITH_A_JOB = """
import sys
from kafka_eos_checks.audit.engines.spark import session
try:
    with session() as spark:
        print("started", flush=True)
        spark.range(10**12).selectExpr("sum(id % 7)").collect()
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.thorough
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_local_session_that_is_interrupted_ends_without_a_traceback() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in engine._CLUSTERS}
    with subprocess.Popen(
        [sys.executable, "-c", WITH_A_JOB], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "started\n"
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(3)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=120)
    assert program.returncode == 130
    assert "Traceback" not in said
    assert "Exception" not in said


def test_workers_that_are_started_for_a_session_which_has_ended_fail_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ended:
        sparkContext = SimpleNamespace(defaultParallelism=2)  # noqa: N815 - pyspark's name

        def range(self, *_: object) -> "Ended":
            return self

        def mapInArrow(self, *_: object) -> "Ended":  # noqa: N802 - pyspark's name
            return self

        def collect(self) -> None:
            raise AttributeError("'NoneType' object has no attribute 'setCallSite'")  # as pyspark does then

    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    engine._start_workers(Ended()).join()  # type: ignore[arg-type]
    assert told == []


@pytest.mark.thorough
def test_a_local_session_that_ends_while_its_workers_start_logs_no_failure() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in engine._CLUSTERS}
    program = "from kafka_eos_checks.audit.engines.spark import session\n"
    for seconds in (0, 0.5, 1):
        program += f"with session():\n    __import__('time').sleep({seconds})\n"
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert "ERROR" not in ended.stderr
    assert "Exception in thread" not in ended.stderr


@pytest.mark.skipif(os.name != "posix", reason="a program of sh")
def test_a_java_that_spark_cannot_use_is_told_without_a_traceback(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    command = [sys.executable, "-m", "kafka_eos_checks.cli", "audit", "example:violations", "--spark"]
    others = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment = {**others, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"kafka-eos: Spark does not start with {java}; set JAVA_HOME to a JDK 17 or later: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.spark
def test_a_history_that_spark_has_written_is_judged_as_its_lines(spark: Any, tmp_path: Path) -> None:
    """Spark makes texts of an input's ``["topic", 0, 5]``, and a field for each partition of offsets."""
    made = tmp_path / "h.parquet"
    with unpacked(kept_recording("application-mistakes")) as folder:
        path = folder / "histories" / "offsets-outside.jsonl"
        spark.read.json(str(path)).write.parquet(str(made))
        assert list(read_events(made)) == list(read_history(path))
        by_lines, by_rows = (run([folder / "brokers"], histories=[history]) for history in (path, made))
    told = [[replace(verdict, seconds=0.0) for verdict in each.verdicts] for each in (by_lines, by_rows)]
    assert told[0] == told[1]
    assert ("output without its offset", 6) in [(verdict.name, verdict.figures.get("checked")) for verdict in told[1]]
