"""The audit on Spark: workers read their own splits, summaries travel, batches never do.

A row of the splits table is a task of splits. ``mapInArrow`` reads it and yields summary rows, a few per chunk; they
are grouped by log and folded by :func:`kafka_eos_checks.audit.kernels.local.fold` on a worker, which reads a chunk
again only
where the readable rule has to decide. Log directories must be at the same path on every worker, and this package must
be importable there (``--py-files``, ``spark.addArtifacts``).
"""

import os
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kafka_eos.formats.segment import CorruptRegion, RegionKind
from kafka_eos_checks.audit.findings import COLUMNS, from_rows
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.kernels.local import LogAudit, fold, summaries_of
from kafka_eos_checks.audit.kernels.splits import SPLIT_BYTES, PartitionLog, Split, plan, tasks
from kafka_eos_checks.audit.kernels.summary import BOUNDARY, Summary
from kafka_eos_checks.audit.memory import keep_modules
from kafka_eos_checks.audit.schemas import arrow_schema, ddl
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.terminal import progress_console

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_CHUNK = (
    *("split", "start", "end", "batches", "records", "markers", "transactional", "first_offset", "end_offset", "holes"),
    "disordered",
)
_BOUNDARY = tuple(BOUNDARY.names or ())
_DAMAGE = {"position": "bigint", "end": "bigint", "kind": "string", "reason": "string"}
# One row a chunk: what kafka_eos_checks.audit.kernels.summary.Summary holds.
SUMMARY_COLUMNS = {
    "log": "bigint",
    **dict.fromkeys(_CHUNK, "bigint"),
    "boundary": f"array<struct<{', '.join(f'{name}: bigint' for name in _BOUNDARY)}>>",
    "damage": f"array<struct<{', '.join(f'`{name}`: {kind}' for name, kind in _DAMAGE.items())}>>",
}
_COUNTS = ("segment_bytes", "batches", "records", "markers", "transactional", "holes", "chunks", "reruns")
# A row is a finding (`rule` is set), a damaged region (`damage_kind` is set) or the counts of a log (`chunks` is set).
RESULT_COLUMNS = {
    "log": "bigint",
    **COLUMNS,
    **{f"damage_{name}": kind for name, kind in _DAMAGE.items()},
    **dict.fromkeys(_COUNTS, "bigint"),
}


def summary_schema() -> "pa.Schema":
    """:data:`SUMMARY_COLUMNS` for Arrow."""
    import pyarrow as pa  # noqa: PLC0415

    flat = [("log", pa.int64()), *((name, pa.int64()) for name in _CHUNK)]
    boundary = pa.list_(pa.struct([(name, pa.int64()) for name in _BOUNDARY]))
    return pa.schema([*flat, ("boundary", boundary), ("damage", pa.list_(pa.struct(arrow_schema(_DAMAGE))))])


def to_arrow(log: int, chunks: Sequence[Summary]) -> "pa.RecordBatch":
    """The summaries of a split as rows of :data:`SUMMARY_COLUMNS`; one batch of rows, for each has its price."""
    import pyarrow as pa  # noqa: PLC0415

    schema = summary_schema()
    boundary = np.concatenate([np.empty(0, BOUNDARY), *(chunk.boundary for chunk in chunks)])
    ends = np.cumsum([0, *(len(chunk.boundary) for chunk in chunks)], dtype=np.int32)
    producers = pa.StructArray.from_arrays([pa.array(boundary[name]) for name in _BOUNDARY], names=_BOUNDARY)
    columns = [pa.array([log] * len(chunks), pa.int64())]
    columns += [pa.array([int(getattr(chunk, name)) for chunk in chunks], pa.int64()) for name in _CHUNK]
    columns.append(pa.ListArray.from_arrays(pa.array(ends), producers))
    columns.append(pa.array([[asdict(d) for d in chunk.damage] for chunk in chunks], schema.field("damage").type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def from_arrow(table: "pa.Table") -> Iterator[Summary]:
    """The summaries of one log in order, from their rows in any order: the inverse of :func:`to_arrow`."""
    table = table.sort_by([("split", "ascending"), ("start", "ascending")])
    for batch in table.to_batches(max_chunksize=1):
        row = batch.select(_CHUNK).to_pylist()[0]
        producers = batch["boundary"].flatten()
        boundary = np.empty(len(producers), BOUNDARY)
        for name in _BOUNDARY:
            boundary[name] = producers.field(name)
        row["disordered"] = bool(row["disordered"])
        damage = tuple(_region(d) for d in batch["damage"][0].as_py())
        yield Summary(**row, boundary=boundary, damage=damage)


def _region(row: dict[str, Any]) -> CorruptRegion:
    return CorruptRegion(**{**row, "kind": RegionKind(row["kind"])})


Tables = Iterator["pa.RecordBatch"]


def read_tasks(plan_of: Sequence[Sequence[tuple[int, Split]]], check_crc: bool) -> Callable[[Tables], Tables]:
    """A function for ``mapInArrow``: task numbers in, summary rows out.

    Args:
        plan_of: for each task its splits, each with the number of its log.
        check_crc: whether to compare each batch with its CRC.
    """

    def read(batches: Tables) -> Tables:
        need("pyarrow.parquet", "spark")  # what reads tables is among the modules that are kept, then
        keep_modules()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for log, split in plan_of[task]:
                    yield to_arrow(log, list(summaries_of(split, check_crc)))

    return read


def combine_logs(
    logs: Sequence[PartitionLog], splits: Sequence[Sequence[Split]], check_crc: bool
) -> Callable[["pa.Table"], "pa.Table"]:
    """A function for ``applyInArrow``: all summary rows of one log in, its result rows out."""

    def combine(table: "pa.Table") -> "pa.Table":
        import pyarrow as pa  # noqa: PLC0415

        log = table["log"][0].as_py()
        audit = fold(logs[log], splits[log], from_arrow(table), check_crc)
        return pa.Table.from_pylist(result_rows(log, audit), schema=arrow_schema(RESULT_COLUMNS))

    return combine


def result_rows(number: int, audit: LogAudit) -> list[dict[str, Any]]:
    """The audit of one log as rows of :data:`RESULT_COLUMNS`."""
    log = {"log": number, "broker": audit.log.broker, "topic": audit.log.topic, "partition": audit.log.partition}
    rows: list[dict[str, Any]] = [{**log, **{name: getattr(audit, name) for name in _COUNTS}}]
    rows += [{**log, **asdict(finding)} for finding in audit.findings]
    rows += [
        {**log, "file": file, **{f"damage_{name}": value for name, value in asdict(damage).items()}}
        for file, damage in audit.damage
    ]
    return rows


def audits_of(logs: Sequence[PartitionLog], rows: Sequence[dict[str, Any]]) -> list[LogAudit]:
    """The inverse of :func:`result_rows` over all logs; a log without a row has no segment bytes."""
    by_log: list[list[dict[str, Any]]] = [[] for _ in logs]
    for row in rows:
        by_log[row["log"]].append(row)
    audits = []
    for log, own in zip(logs, by_log, strict=True):
        counts = next(({name: row[name] for name in _COUNTS} for row in own if row["chunks"] is not None), {})
        findings = from_rows({name: row[name] for name in COLUMNS} for row in own if row["rule"] is not None)
        damage = [
            (row["file"], _region({name: row[f"damage_{name}"] for name in _DAMAGE}))
            for row in own
            if row["damage_kind"] is not None
        ]
        audits.append(LogAudit(log=log, findings=tuple(findings), damage=tuple(damage), **counts))
    return audits


def audit_logs(
    logs: Sequence[PartitionLog],
    *,
    spark: "SparkSession | None" = None,
    check_crc: bool = True,
    split_bytes: int = SPLIT_BYTES,
) -> list[LogAudit]:
    """Audit logs on Spark; the result equals that of :func:`kafka_eos_checks.audit.kernels.local.audit_logs`.

    Raises:
        UnusableInput: Spark cannot start, or fails on the input.

    Args:
        logs: what to audit, at paths that every worker can read.
        spark: the session to use; without one a local session is started, and stopped in the end.
        check_crc: whether to compare each batch with its CRC.
        split_bytes: size of the pieces, and of a task.
    """
    splits = plan(logs, split_bytes)
    if not splits:
        return [LogAudit(log=log) for log in logs]
    failure = need("pyspark.errors", "spark").PySparkException
    try:
        with session(spark) as active:
            rows = result_frame(active, logs, splits, check_crc=check_crc, task_bytes=split_bytes)
            with task_progress(active), quiet_about_pandas():
                found = rows.toArrow().to_pylist()
    except failure as error:
        words = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise UnusableInput(f"Spark failed: {words[0]} … {words[-1]}" if words else "Spark failed") from error
    return audits_of(logs, found)


def result_frame(
    spark: "SparkSession",
    logs: Sequence[PartitionLog],
    splits: Sequence[Split],
    *,
    check_crc: bool = True,
    task_bytes: int = SPLIT_BYTES,
) -> "DataFrame":
    """The result rows (:data:`RESULT_COLUMNS`) as a DataFrame, nothing run yet."""
    number = {log: i for i, log in enumerate(logs)}
    by_log: list[list[Split]] = [[] for _ in logs]
    for split in splits:
        by_log[number[split.log]].append(split)
    plan_of = [[(number[split.log], split) for split in task] for task in tasks(splits, task_bytes)]
    numbers = spark.range(0, len(plan_of), 1, len(plan_of))
    with quiet_about_pandas():
        summaries = numbers.mapInArrow(read_tasks(plan_of, check_crc), ddl(SUMMARY_COLUMNS))
        return summaries.groupBy("log").applyInArrow(combine_logs(logs, by_log, check_crc), ddl(RESULT_COLUMNS))


Each = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]


@contextmanager
def each_on_spark(given: "SparkSession | None" = None) -> Iterator[Each]:
    """Asks a function of items, a task of Spark's for each; the answers come in any order.

    Function, items and answers travel by pickle. A file among the items has to be at the same path on every worker.

    Args:
        given: the session to use; without one a local session is started, and stopped in the end.

    Raises:
        UnusableInput: Spark cannot start, or the function fails.
    """
    failure = need("pyspark.errors", "spark").PySparkException
    with session(given) as active, quiet_about_pandas():

        def each(ask: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
            if not items:
                return iter(())
            numbers = active.range(0, len(items), 1, len(items))
            try:
                answers = numbers.mapInArrow(_asking(ask, list(items)), "answer binary")
                with task_progress(active):
                    found = answers.toArrow()
            except failure as error:
                words = [line.strip() for line in str(error).splitlines() if line.strip()]
                raise UnusableInput(f"Spark failed: {words[0]} … {words[-1]}" if words else "Spark failed") from error
            return (pickle.loads(answer) for answer in found["answer"].to_pylist())  # noqa: S301 - of our own workers

        yield each


def _asking(ask: Callable[[Any], Any], items: Sequence[Any]) -> Callable[[Tables], Tables]:
    def answer(batches: Tables) -> Tables:
        import pyarrow as pa  # noqa: PLC0415

        keep_modules()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = pickle.dumps(ask(items[number]), pickle.HIGHEST_PROTOCOL)
                yield pa.RecordBatch.from_arrays([pa.array([found], pa.binary())], ["answer"])

    return answer


_CLUSTERS = {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}  # spark-submit sets the one, a user of Spark Connect the other


@contextmanager
def session(given: "SparkSession | None" = None) -> "Iterator[SparkSession]":
    """The session to use: the given one, the active one, else a new one that ends with the block.

    A new one is of the cluster that ``spark-submit`` or ``SPARK_REMOTE`` names, with that cluster's settings, and
    otherwise local. The JVM of a local one stops at its first compiler: it only hands tasks to workers, and the second
    compiler takes more CPU time than all of that.

    Args:
        given: a session that is used as it is and stays open.

    Raises:
        MissingExtra: without pyspark or pyarrow.
        UnusableInput: the cluster that is named gives no session.
    """
    need("pyarrow", "spark")
    sql = need("pyspark.sql", "spark")
    existing = given or sql.SparkSession.getActiveSession()
    if existing is not None:
        yield existing
        return
    if _CLUSTERS & os.environ.keys():
        try:
            with quiet_about_pandas():
                made = sql.SparkSession.builder.appName("kafka-eos").getOrCreate()
        except Exception as error:  # of Spark, of Java, of gRPC, or of a package that is missing
            asked = ", ".join(f"{name}={os.environ[name]}" for name in sorted(_CLUSTERS & os.environ.keys()))
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UnusableInput(f"no session of Spark with {asked}: {reason}") from error
        try:
            yield made
        finally:
            made.stop()
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # local mode would take any python3 on the path
    log4j = Path(__file__).with_name("log4j2.properties")
    java = [f"-Dlog4j2.configurationFile={log4j}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    builder = sql.SparkSession.builder.master("local[*]").appName("kafka-eos")
    for name, value in {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(java),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.session.timeZone": "UTC",
    }.items():
        builder = builder.config(name, value)
    with quiet_about_pandas():
        made = builder.getOrCreate()
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def quiet_about_pandas() -> Iterator[None]:
    """Pyspark 4.3 warns of pandas 3, which Arrow functions import and never use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*pandas.*", category=FutureWarning)
        yield


@contextmanager
def task_progress(spark: "SparkSession") -> Iterator[None]:
    """A bar of finished tasks while a query runs, on standard error; Spark Connect has a progress of its own."""
    if need("pyspark.sql.utils", "spark").is_remote():
        yield
        return
    with Progress(
        TextColumn("spark"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("tasks"),
        TimeElapsedColumn(),
        console=progress_console,
        transient=True,
    ) as bar:
        task = bar.add_task("spark", total=None)

        stop = _poll(spark, lambda completed, total: bar.update(task, completed=completed, total=total))
        try:
            yield
        finally:
            stop()


def _poll(spark: "SparkSession", show: Callable[[int, int], None]) -> Callable[[], None]:
    """Ask the status tracker of a classic session five times a second; the value ends it."""
    ended = threading.Event()

    def ask() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(0.2):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [info for info in infos if info is not None]
            if known:
                show(sum(i.numCompletedTasks for i in known), sum(i.numTasks for i in known))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()

    def stop() -> None:
        ended.set()
        thread.join()

    return stop
