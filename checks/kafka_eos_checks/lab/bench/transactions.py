"""The audit of a cluster with transactions, compared with engines that answer a part of the same questions by queries.

All sides read the same tables of headers, as `kafka-eos lab generate --transactions` writes them. Our audit applies all
rules over logs, and the rules over transactions, for which it also reads the logs of ``__transaction_state``. The
queries do less. They count duplicates, gaps and stale epochs as in :mod:`replay`, and for each partition the
transactions with data that were ended, that were committed, and that have no marker. They read no coordinator's log, so
they could not tell a torn transaction from two transactions. So our audit also runs with the tables only, as they
do; it still keeps the last batches for snapshots and compares the checksums of pages. Both runs are in one process, and
in a process for each core, as the queries have a thread. All sides must give the same counts.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos_checks.audit.engines.engine import Engine
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.rules.log import DUPLICATE, GAP, STALE_EPOCH
from kafka_eos_checks.audit.rules.transactions.names import FENCED, HANGING, NO_TRANSACTION
from kafka_eos_checks.audit.segments.headers import CONTROL_MASK, TRANSACTIONAL_MASK
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.audit.weights import IMPORTED
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.kit.workers import forked_from
from kafka_eos_checks.lab.bench.measure import Answer, Side, Work, measure, module_or_reason, verdicts
from kafka_eos_checks.lab.bench.replay import DUCKDB_MEMORY, running_spark
from kafka_eos_checks.lab.generate.cluster import Cluster
from kafka_eos_checks.lab.generate.traffic import Workload

SEED = 31
PARTITIONS, CLIENTS = 16, 1000
BATCHES_OF_A_TRANSACTION = 50
RULES = (DUPLICATE, GAP, STALE_EPOCH)

_COMMIT = int(ControlType.COMMIT)
_LOG = """SELECT {number} AS log, base_offset, producer_id, producer_epoch, base_sequence,
  base_sequence + last_offset_delta AS last_sequence, attributes, decision
FROM read_parquet({files})"""
SQL = """
WITH numbered AS (
  SELECT *, (attributes & {control}) > 0 AS control, max(producer_epoch) OVER (
    PARTITION BY log, producer_id ORDER BY base_offset
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS highest_epoch
  FROM ({logs}) WHERE producer_id >= 0
),
followed AS (
  SELECT base_sequence, lag(last_sequence, 1, -1) OVER (
    PARTITION BY log, producer_id, producer_epoch ORDER BY base_offset) AS before
  FROM numbered WHERE producer_epoch = highest_epoch AND NOT control
),
ended AS (
  SELECT control, decision, lag(control, 1, true) OVER own AS after_marker, lead(control) OVER own AS next
  FROM numbered WHERE (attributes & {transactional}) > 0
  WINDOW own AS (PARTITION BY log, producer_id ORDER BY base_offset)
)
SELECT 'stale epoch' AS what, count(*) FROM numbered WHERE producer_epoch < highest_epoch
UNION ALL SELECT 'duplicate', count(*) FROM followed WHERE base_sequence <= before
UNION ALL SELECT 'gap', count(*) FROM followed WHERE base_sequence > before + 1
UNION ALL SELECT 'markers', count(*) FROM ended WHERE control
UNION ALL SELECT 'ended', count(*) FROM ended WHERE control AND NOT after_marker
UNION ALL SELECT 'committed', count(*) FROM ended WHERE control AND NOT after_marker AND decision = {commit}
UNION ALL SELECT 'open', count(*) FROM ended WHERE NOT control AND next IS NULL
"""


def audit(logs: Sequence[PartitionLog], engine: Engine) -> Answer:
    """Apply the rules over logs and over transactions."""
    scanned = stages.scan_logs(logs, engine)
    states, known = stages.audit_coordinators(scanned, engine)
    result, _ = stages.judge_transactions(scanned, states, known, engine)
    found = Counter(finding.rule for finding in scanned.findings)
    strange = {*found, *(finding.rule for finding in result.findings)} - set(RULES)
    assert not strange, f"a generated cluster has no {strange}"
    figures = {rule: result.figures[rule] for rule in (NO_TRANSACTION, HANGING, FENCED)}
    return {
        "batches": sum(log.batches for log in scanned.audits if log.log.topic != COORDINATOR_TOPIC),
        **{rule: found[rule] for rule in RULES},
        "markers": int(figures[NO_TRANSACTION]["markers"]),
        "ended": int(figures[HANGING]["transactions"]) - int(figures[HANGING]["open"]),
        "committed": int(figures[FENCED]["committed"]),
        "open": int(figures[HANGING]["open"]),
    }


def audit_on_spark(logs: Sequence[PartitionLog], session: Any) -> Answer:
    """The same audit in a running Spark session."""
    from kafka_eos_checks.audit.engines.spark import SparkEngine  # noqa: PLC0415 - optional

    with SparkEngine(session) as engine:
        return audit(logs, engine)


def audit_in_processes(logs: Sequence[PartitionLog], jobs: int) -> Answer:
    """The same audit in so many processes, which are started first, as is the process that they are forked from."""
    with forked_from(*IMPORTED), LocalEngine(jobs) as engine:
        return audit(logs, engine)


def _files(log: PartitionLog) -> list[str]:
    return [str(Path(log.folder, name)) for name in log.segments]


def query_duckdb(connection: Any, logs: Sequence[PartitionLog]) -> Answer:
    """Query with window functions in SQL."""
    union = " UNION ALL ".join(_LOG.format(number=number, files=_files(log)) for number, log in enumerate(logs))
    query = SQL.format(logs=union, control=CONTROL_MASK, transactional=TRANSACTIONAL_MASK, commit=_COMMIT)
    return {what: int(count) for what, count in connection.execute(query).fetchall()}


def query_polars(polars: Any, logs: Sequence[PartitionLog]) -> Answer:
    """Query with the same windows as expressions; the rows of a log are already in order of offset."""
    col = polars.col
    rows = polars.concat(
        [
            polars.scan_parquet(_files(log)).select(
                polars.lit(number).alias("log"),
                *("producer_id", "producer_epoch", "base_sequence", "decision"),
                last_sequence=col("base_sequence") + col("last_offset_delta"),
                control=(col("attributes") & CONTROL_MASK) > 0,
                transactional=(col("attributes") & TRANSACTIONAL_MASK) > 0,
            )
            for number, log in enumerate(logs)
        ]
    ).filter(col("producer_id") >= 0)
    keys = ["log", "producer_id"]
    numbered = rows.with_columns(highest=col("producer_epoch").cum_max().over(keys))
    before = col("last_sequence").shift(1, fill_value=-1).over([*keys, "producer_epoch"])
    current = numbered.filter((col("producer_epoch") == col("highest")) & ~col("control"))
    followed = current.with_columns(before=before)
    ended = rows.filter("transactional").with_columns(
        after_marker=col("control").shift(1, fill_value=True).over(keys),
        next=col("control").shift(-1).over(keys),
    )
    with_data = ended.filter(col("control") & ~col("after_marker"))
    parts = {
        STALE_EPOCH: numbered.filter(col("producer_epoch") < col("highest")),
        DUPLICATE: followed.filter(col("base_sequence") <= col("before")),
        GAP: followed.filter(col("base_sequence") > col("before") + 1),
        "markers": ended.filter("control"),
        "ended": with_data,
        "committed": with_data.filter(col("decision") == _COMMIT),
        "open": ended.filter(~col("control") & col("next").is_null()),
    }
    counted = polars.collect_all([part.select(polars.len()) for part in parts.values()])
    return {what: int(found.item()) for what, found in zip(parts, counted, strict=True)}


def scan(parquet: Any, compute: Any, logs: Sequence[PartitionLog]) -> Answer:
    """The lower bound: read and sum the columns that the queries need, without any rule."""
    columns = ("base_offset", "producer_id", "producer_epoch", "base_sequence", "last_offset_delta", "attributes")
    rows = 0
    for log in logs:
        for file in _files(log):
            table = parquet.read_table(file, columns=list(columns))
            rows += table.num_rows
            for name in columns:
                compute.sum(table[name])
    return {"batches": rows}


def peers(folder: Path, logs: Sequence[PartitionLog]) -> list[Side]:
    """The sides of other engines on the tables of the topic; they use all cores.

    Args:
        folder: the folder to which DuckDB may spill.
        logs: the tables.
    """
    parquet, no_parquet = module_or_reason("pyarrow.parquet")
    duckdb, no_duckdb = module_or_reason("duckdb")
    polars, no_polars = module_or_reason("polars")
    names = ("a Parquet scan by pyarrow", "DuckDB on Parquet", "polars on Parquet")
    runs: list[Callable[[], Answer]] = [dict, dict, dict]
    if not no_parquet:
        runs[0] = partial(scan, parquet, module_or_reason("pyarrow.compute")[0], logs)
    if not no_duckdb:
        connection = duckdb.connect(config={"memory_limit": DUCKDB_MEMORY, "temp_directory": str(folder)})
        runs[1] = partial(query_duckdb, connection, logs)
    if not no_polars:
        runs[2] = partial(query_polars, polars, logs)
    reasons = (no_parquet, no_duckdb, no_polars)
    return [Side(name=n, run=r, absent=absent) for n, r, absent in zip(names, runs, reasons, strict=True)]


def run(folder: Path, *, quick: bool, batches: int | None = None) -> Iterator[Verdict]:
    """Measure the audit of a generated cluster.

    Args:
        folder: the folder for the tables, with about 25 bytes per batch.
        quick: use a million batches instead of four.
        batches: use this number of batches instead.

    Raises:
        UnusableInput: without pyarrow, which writes the tables.
    """
    absent = module_or_reason("pyarrow")[1]
    if absent:
        raise UnusableInput(f"tables of headers are Parquet: {absent}")
    count, rounds = (1_000_000, 3) if quick else (4_000_000, 5)
    if batches is not None:
        count, rounds = batches, 3
    workload = Workload(
        transactions=count // BATCHES_OF_A_TRANSACTION,
        batches=count,
        partitions=PARTITIONS,
        clients=CLIENTS,
        seed=SEED,
    )
    with progress_console.status(f"transactions: writing {count:,} batches"):
        made = Cluster(workload=workload, value_bytes=100, as_tables=True).write(folder / "cluster")
    logs = find_logs(folder / "cluster" / "brokers")
    own = [log for log in logs if not log.topic.startswith("__")]
    judged = [log for log in logs if log in own or log.topic == COORDINATOR_TOPIC]
    given = f"{made.batches:,} batches, {made.markers:,} markers, {made.states:,} records of coordinators"
    work = Work(part="transactions", name="tables", given=given, amount=made.batches, unit="batches/s")
    cores = os.cpu_count() or 1
    with ExitStack() as stack:
        spark = running_spark(stack)
        no_spark = spark if isinstance(spark, str) else ""
        engines = [
            Side(name="audit in one process", run=lambda: audit(judged, LocalEngine())),
            Side(name="audit in one process, the tables only", run=lambda: audit(own, LocalEngine())),
            Side(name=f"audit in {cores} processes", run=partial(audit_in_processes, judged, cores)),
            Side(name=f"audit in {cores} processes, the tables only", run=partial(audit_in_processes, own, cores)),
            Side(name="audit on Spark, session running", run=partial(audit_on_spark, judged, spark), absent=no_spark),
        ]
        others = peers(folder, own)
        measured = measure([*engines, *others], rounds, label="transactions")
        for engine in engines[:-1]:
            yield from verdicts(work, engine, others, measured)
        yield from verdicts(work, engines[-1], [engines[0], *others], measured)
