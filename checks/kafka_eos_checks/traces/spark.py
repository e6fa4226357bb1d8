"""The replay on Spark: workers read the pieces, Spark shuffles the rows, and only verdicts reach the driver.

The plan is a table of tasks. The rows that they read stay on the executors' disks, while the driver learns where logs
begin that lack something. ``mapInArrow`` runs the functions of :mod:`kafka_eos_checks.traces.replays` over it, after
each shuffle over rows that Spark has sorted, so that a worker holds the rows of one trace at a time. Log directories
and histories must be at the same path on every worker, and this package must be importable there, as for
:mod:`kafka_eos_checks.audit.engines.spark`.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_eos_checks.audit.engines.spark import (
    failures_told,
    quiet_about_pandas,
    release,
    session,
    stored_level,
    task_progress,
)
from kafka_eos_checks.kit.memory import keep_modules
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.schemas import ddl
from kafka_eos_checks.traces.replays import (
    BUCKETS,
    BY_PRODUCER,
    BY_TRACE,
    Begins,
    Rows,
    Rules,
    begins_of,
    begun,
    by_producer,
    by_trace,
    in_order,
    new_of,
    verdict_batch,
)
from kafka_eos_checks.traces.scan import HOLE, NEW, PIECE_BYTES, ROWS, VERDICTS, Piece, logs_of, rows_of, tasks_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def on_spark(
    pieces: Sequence[Piece],
    rules: Rules,
    apart: Container[int] = (),
    *,
    spark: "SparkSession | None" = None,
    task_bytes: int = PIECE_BYTES,
) -> "pa.Table":
    """The verdicts on all traces in some pieces, the same as by :func:`kafka_eos_checks.traces.replays.in_process`.

    Args:
        pieces: the pieces of files at paths that every worker can read.
        rules: the rules of the machines.
        apart: the sources whose logs may be of different moments.
        spark: the session to use; without one a local session is started and stopped.
        task_bytes: the bytes that a task reads.

    Raises:
        UnusableInput: Spark cannot start, or fails on the input.
        MissingExtra: without pyspark or pyarrow.
    """
    if not pieces:
        return need("pyarrow", "spark").Table.from_batches([verdict_batch([])])
    pa, pc = need("pyarrow", "spark"), need("pyarrow.compute", "spark")
    with failures_told(), session(spark) as active, quiet_about_pandas(), task_progress(active):
        rows = rows_frame(active, pieces, task_bytes)
        try:
            places = rows.where(f"kind IN ({HOLE}, {NEW})").select("source", "log", "offset", "kind").toArrow()
            begins, new = (
                of(places.filter(pc.equal(places["kind"], kind))) for of, kind in ((begins_of, HOLE), (new_of, NEW))
            )
            found = (
                verdict_frame(rows, pieces, rules, begins, new, task_bytes, apart)
                .toArrow()
                .cast(verdict_batch([]).schema)
            )
        finally:
            release(rows)
    return in_order(pa.concat_tables([found, pa.Table.from_batches([begun(begins)])]))


def rows_frame(spark: "SparkSession", pieces: Sequence[Piece], task_bytes: int = PIECE_BYTES) -> "DataFrame":
    """The rows of all pieces; once they are read, they stay on the executors' disks."""
    tasks = tasks_of(pieces, task_bytes)
    plan = spark.createDataFrame([(task,) for task in tasks], "task string").repartition(len(tasks))
    return plan.mapInArrow(_read, ddl(ROWS)).localCheckpoint(False, stored_level(spark))


def verdict_frame(
    rows: "DataFrame",
    pieces: Sequence[Piece],
    rules: Rules,
    begins: Begins,
    new: Begins,
    task_bytes: int = PIECE_BYTES,
    apart: Container[int] = (),
) -> "DataFrame":
    """The verdicts as a DataFrame with the columns of :data:`VERDICTS`; nothing is run yet."""
    settings = rows.sparkSession.conf
    shares = max(int(settings.get("spark.sql.shuffle.partitions") or 1), sum(p.size for p in pieces) // task_bytes)
    tagged = _sorted(rows, BY_PRODUCER, shares).mapInArrow(_tagging(rules, begins), ddl(ROWS))
    return _sorted(tagged, BY_TRACE, shares).mapInArrow(
        _judging(rules, logs_of(pieces), begins, new, apart), ddl(VERDICTS)
    )


def _sorted(frame: "DataFrame", keys: Sequence[str], shares: int) -> "DataFrame":
    """Rows with the same two first keys on one worker, sorted by all keys."""
    return frame.repartition(shares, *keys[:2]).sortWithinPartitions(*keys)


def _read(batches: Rows) -> "Iterator[pa.RecordBatch]":
    keep_modules()
    for batch in batches:
        for task in batch["task"].to_pylist():
            yield from rows_of(task, BUCKETS)


def _tagging(rules: Rules, begins: Begins) -> "Callable[[Rows], Iterator[pa.RecordBatch]]":
    def tag(batches: Rows) -> "Iterator[pa.RecordBatch]":
        keep_modules()
        yield from by_producer(batches, rules, begins)

    return tag


def _judging(
    rules: Rules, here: Mapping[int, Container[str]], begins: Begins, new: Begins, apart: Container[int]
) -> "Callable[[Rows], Iterator[pa.RecordBatch]]":
    def judge(batches: Rows) -> "Iterator[pa.RecordBatch]":
        keep_modules()
        yield from by_trace(batches, rules, here, begins, new, apart)

    return judge
