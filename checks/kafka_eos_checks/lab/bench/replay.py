"""The audit of millions of small batches, compared with engines that answer the same question by a query on a table.

Our audit reads the segments, compares CRCs and applies all its rules; or it reads tables of their headers, which have
every field and checksums of their pages. The others get six columns as Parquet, prepared beforehand, and a query that
does less: it knows no holes, no markers and no wrapped sequences, and finds only duplicates of the previous batch. All
sides must count the same findings at the same offsets.

Above :data:`LARGE` batches there are only tables, and disk and memory are bounded: a partition is made, written and
forgotten before the next one, and nothing is held in memory. The other engines get one partition after the other, which
is to their advantage: all partitions at once would need more memory, or the disk.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.kernels.logs.fold import LogAudit, fold
from kafka_eos_checks.audit.kernels.logs.summary import chunks_of, summarise
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.rules.log import DUPLICATE, GAP, STALE_EPOCH
from kafka_eos_checks.audit.segments.headers import Headers, read_index
from kafka_eos_checks.audit.segments.marks import Marks
from kafka_eos_checks.audit.segments.splits import PartitionLog, Split, find_logs, plan
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.bench.measure import Answer, Side, Work, measure, module_or_reason, verdicts
from kafka_eos_checks.lab.generate.batches import Batches
from kafka_eos_checks.lab.generate.planted_logs import clean_batches, plant, write

SEED = 23
PARTITIONS, PRODUCERS, FAULTS, VALUE_BYTES = 8, 50, 3, 100
LARGE = 8_000_000
HOT = Fraction(5, 8)
SMALLEST = 1_000_000  # a smaller log is too short for the faults
LARGEST = 300_000_000  # a partition is held in memory while it is made, with about 200 bytes per batch
DUCKDB_MEMORY = "8GB"  # its limit before it uses the disk
RULES = (DUPLICATE, GAP, STALE_EPOCH)
TOPIC = "bench"

SQL = """
WITH numbered AS (
  SELECT *, max(producer_epoch) OVER (
    PARTITION BY topic, "partition", producer_id ORDER BY base_offset
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS highest_epoch
  FROM {batches}
),
followed AS (
  SELECT base_offset, base_sequence, lag(last_sequence, 1, -1) OVER (
    PARTITION BY topic, "partition", producer_id, producer_epoch ORDER BY base_offset) AS before
  FROM numbered WHERE producer_epoch = highest_epoch
)
SELECT 'stale epoch' AS rule, count(*) AS findings, sum(base_offset) AS offsets
FROM numbered WHERE producer_epoch < highest_epoch
UNION ALL SELECT 'duplicate', count(*), sum(base_offset) FROM followed WHERE base_sequence <= before
UNION ALL SELECT 'gap', count(*), sum(base_offset) FROM followed WHERE base_sequence > before + 1
"""


def generate(batches: int, share: Fraction = Fraction(1, PARTITIONS)) -> Iterator[Batches]:
    """Generate the logs of :data:`PARTITIONS` partitions, one at a time; the first has the faults.

    Args:
        batches: the number of batches in all partitions.
        share: the share of the first partition; the others have equal shares of the rest.
    """
    for partition in range(PARTITIONS):
        own = share if partition == 0 else (1 - share) / (PARTITIONS - 1)
        log = clean_batches(SEED + partition, int(batches * own), producers=PRODUCERS)
        if partition == 0:
            log, _ = plant(log, SEED, FAULTS)
        yield log


def write_segment(folder: Path, partition: int, log: Batches) -> None:
    """Write a log as a segment."""
    write(folder / f"{TOPIC}-{partition}", log, VALUE_BYTES, SEED + partition)


def write_headers(folder: Path, partition: int, log: Batches) -> None:
    """Write the table of headers of a log; nothing without pyarrow."""
    if not module_or_reason("pyarrow")[1]:
        write(folder / f"{TOPIC}-{partition}", log, VALUE_BYTES, SEED + partition, as_tables=True)


def answer_of(rows: Sequence[tuple[str, int, int]]) -> Answer:
    """An answer from rows of rule, number of findings and sum of their offsets."""
    answer: dict[str, int] = {}
    for rule, findings, offsets in rows:
        answer |= {rule: int(findings), f"{rule} offsets": int(offsets or 0)}
    return answer


def answer_of_findings(findings: Sequence[Finding]) -> Answer:
    """An answer from our findings."""
    offsets = {rule: [finding.offset or 0 for finding in findings if finding.rule == rule] for rule in RULES}
    strange = {finding.rule for finding in findings} - set(RULES)
    assert not strange, f"a generated log has no {strange}"
    return answer_of([(rule, len(found), sum(found)) for rule, found in offsets.items()])


def _answer_of_audits(audits: Sequence[LogAudit]) -> Answer:
    found = answer_of_findings([finding for audit in audits for finding in audit.findings])
    return {**found, "batches": sum(audit.batches for audit in audits)}


def audit_local(logs: Sequence[PartitionLog], check_crc: bool) -> Answer:
    """The audit in this process."""
    return _answer_of_audits(stages.audit_logs(logs, check_crc=check_crc))


def audit_spark(logs: Sequence[PartitionLog], session: Any) -> Answer:
    """The audit in a running Spark session."""
    from kafka_eos_checks.audit.engines.spark import SparkEngine  # noqa: PLC0415 - optional

    return _answer_of_audits(stages.audit_logs(logs, SparkEngine(session)))


def count_on_spark(logs: Sequence[PartitionLog], session: Any) -> Answer:
    """Like :func:`audit_spark`, without the places of the findings."""
    answer = audit_spark(logs, session)
    return {rule: answer[rule] for rule in RULES}


def audit_headers(held: Sequence[tuple[PartitionLog, list[Split], list[tuple[Split, int, Headers, Marks]]]]) -> Answer:
    """Only the rules, on headers in memory; a chunk with a finding is read again from its file."""
    audits = [fold(log, splits, (summarise(*chunk)[0] for chunk in chunks)) for log, splits, chunks in held]
    return _answer_of_audits(audits)


def hold_headers(
    logs: Sequence[PartitionLog],
) -> list[tuple[PartitionLog, list[Split], list[tuple[Split, int, Headers, Marks]]]]:
    """For each log its splits and the headers of all chunks."""
    held = []
    for log in logs:
        splits = plan([log])
        chunks = [(s, *chunk) for s in splits for chunk in chunks_of(s, read_index(s.path))]
        held.append((log, splits, chunks))
    return held


# ---- the same headers as a table


def to_table(pyarrow: Any, partition: int, log: Batches) -> Any:
    """The batches of a partition as an Arrow table, in order of their offsets."""
    columns = ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "last_sequence")
    topic = pyarrow.array([TOPIC] * len(log)).dictionary_encode()
    number = pyarrow.array([partition] * len(log), pyarrow.int32())
    return pyarrow.table({"topic": topic, "partition": number, **{name: getattr(log, name) for name in columns}})


def write_table(folder: Path, partition: int, log: Batches) -> Path | None:
    """Write the batches of a partition as a Parquet file; None without pyarrow."""
    pyarrow, absent = module_or_reason("pyarrow")
    if absent:
        return None
    file = folder / f"batches-{partition}.parquet"
    module_or_reason("pyarrow.parquet")[0].write_table(to_table(pyarrow, partition, log), file)
    return file


def summed(query: Callable[[Sequence[Path]], Answer], files: Sequence[Path], apart: bool) -> Answer:
    """The answer of a query on all files at once, or the sum of its answers on one after the other."""
    answers: Counter[str] = Counter()
    for some in [[file] for file in files] if apart else [files]:
        answers.update(query(some))
    return dict(answers)


def scan(dataset: Any, compute: Any, files: Sequence[Path]) -> Answer:
    """The lower bound: read and sum every column once, without any rule."""
    rows = 0
    for file in files:
        table = dataset.read_table(file)
        rows += table.num_rows
        for name in table.column_names[1:]:
            compute.sum(table[name])
    return {"batches": rows}


def query_duckdb(connection: Any, source: str) -> Answer:
    """Query with window functions in SQL."""
    return answer_of(connection.execute(SQL.format(batches=source)).fetchall())


def query_polars(polars: Any, frame: Any) -> Answer:
    """Query with the same windows as expressions; the rows are already in order of offset."""
    keys = ["topic", "partition", "producer_id"]
    col = polars.col
    numbered = frame.with_columns(highest=col("producer_epoch").cum_max().over(keys))
    before = col("last_sequence").shift(1, fill_value=-1).over([*keys, "producer_epoch"])
    followed = numbered.filter(col("producer_epoch") == col("highest")).with_columns(before=before)
    found = {
        STALE_EPOCH: numbered.filter(col("producer_epoch") < col("highest")),
        DUPLICATE: followed.filter(col("base_sequence") <= col("before")),
        GAP: followed.filter(col("base_sequence") > col("before") + 1),
    }
    counted = [part.select(polars.len().alias("n"), col("base_offset").sum().alias("o")) for part in found.values()]
    results = polars.collect_all(counted)
    return answer_of([(rule, *result.row(0)) for rule, result in zip(found, results, strict=True)])


# ---- the part


def run(folder: Path, *, quick: bool, batches: int | None = None) -> Iterator[Verdict]:
    """Measure the audit of generated logs.

    Args:
        folder: the folder for the logs, with about 300 bytes per batch, or 25 above :data:`LARGE` batches.
        quick: use a million batches instead of four.
        batches: use this number of batches instead.

    Raises:
        UnusableInput: if there are more than :data:`LARGEST` batches.
    """
    count, rounds = (1_000_000, 3) if quick else (4_000_000, 5)
    if batches is not None:
        count, rounds = batches, 3
    if count > LARGEST:
        raise UnusableInput(f"{count:,} batches; give at most {LARGEST:,}")
    is_large = count > LARGE
    segments, headers = folder / "segments", folder / "headers"
    made: list[Batches] = []
    files: list[Path | None] = []
    written = 0
    with progress_console.status(f"replay: writing {count:,} batches"):
        for partition, log in enumerate(generate(count)):
            write_headers(headers, partition, log)
            files.append(write_table(folder, partition, log))
            written += len(log)
            if not is_large:
                write_segment(segments, partition, log)
                made.append(log)
    given = f"{written:,} batches, {PARTITIONS} partitions, {FAULTS} faults of each kind"
    peers = table_sides(folder, [file for file in files if file is not None], apart=is_large)
    with ExitStack() as stack:
        spark = running_spark(stack)
        logs = [] if is_large else find_logs(segments)
        if logs:
            engines = [
                Side(name="audit in one process", run=partial(audit_local, logs, True)),
                Side(name="audit in one process without CRC", run=partial(audit_local, logs, False)),
                _on_spark("audit on Spark, session running", spark, logs),
            ]
            yield from _compared("small", f"{given}, {_megabytes(segments)}", written, engines, peers, rounds)
        tables = [] if not headers.exists() else find_logs(headers)
        reason = module_or_reason("pyarrow")[1]
        engines = [
            Side(name="audit of headers in one process", run=partial(audit_local, tables, True), absent=reason),
            _on_spark("audit of headers on Spark, session running", spark, tables),
        ]
        yield from _compared("headers", f"{given}, {_megabytes(headers)}", written, engines, peers, rounds)
        if not is_large:
            yield from _one_hot(folder, count, tables, spark, rounds)
    if logs:
        held = hold_headers(logs)
        rules = Side(name="the rules alone, headers in memory", run=partial(audit_headers, held))
        peers = memory_sides(made)
        work = Work(part="replay", name="small", given=given, amount=written, unit="batches/s")
        yield from verdicts(work, rules, peers, measure([rules, *peers], rounds, label="replay, in memory"))


def _one_hot(folder: Path, count: int, uniform: Sequence[PartitionLog], spark: Any, rounds: int) -> Iterator[Verdict]:
    """Compare one partition with :data:`HOT` of all batches to equal ones: Spark balances splits, not partitions."""
    hot = folder / "hot"
    for partition, log in enumerate(generate(count, HOT)):
        write_headers(hot, partition, log)
    given = f"{count:,} batches, {HOT} of them in one of {PARTITIONS} partitions, {FAULTS} faults of each kind"
    work = Work(part="replay", name="skew", given=given, amount=count, unit="batches/s")
    sides = [
        replace(_on_spark(name, spark, logs), run=partial(count_on_spark, logs, spark))
        for name, logs in (
            ("one hot partition on Spark", find_logs(hot) if hot.exists() else []),
            ("partitions of one size on Spark", uniform),
        )
    ]
    yield from verdicts(work, sides[0], sides[1:], measure(sides, rounds, label="replay, skew"))


def _megabytes(folder: Path) -> str:
    return f"{sum(path.stat().st_size for path in folder.rglob('*.*') if path.is_file()) / 1e6:,.0f} MB"


def _compared(
    name: str, given: str, amount: int, engines: Sequence[Side], peers: Sequence[Side], rounds: int
) -> Iterator[Verdict]:
    """Compare each of our engines with the peers, and our other engines with our first one too."""
    work = Work(part="replay", name=name, given=given, amount=amount, unit="batches/s")
    measured = measure([*engines, *peers], rounds, label=f"replay, {name}")
    first, *others = engines
    yield from verdicts(work, first, peers, measured)
    for engine in others:
        yield from verdicts(work, engine, [first, *peers], measured)


def running_spark(stack: ExitStack) -> Any:
    """A Spark session, started once, or the reason for its absence; the part on processes measures its start."""
    for module in ("pyspark.sql", "pyarrow"):
        _, absent = module_or_reason(module)
        if absent:
            return absent
    from kafka_eos_checks.audit.engines.spark import session  # noqa: PLC0415 - optional

    began = time.perf_counter()
    active = stack.enter_context(session())
    progress_console.print(f"replay: Spark started in {time.perf_counter() - began:.1f} s")
    return active


def _on_spark(name: str, spark: Any, logs: Sequence[PartitionLog]) -> Side:
    if isinstance(spark, str):
        return Side(name=name, absent=spark)
    return Side(name=name, run=partial(audit_spark, logs, spark))


def table_sides(folder: Path, files: Sequence[Path], *, apart: bool = False) -> list[Side]:
    """The sides of other engines on Parquet; they use all cores.

    Args:
        folder: the folder to which DuckDB may spill.
        files: one file per partition; none without pyarrow.
        apart: whether the engines get one partition after the other.
    """
    _, no_pyarrow = module_or_reason("pyarrow")
    duckdb, no_duckdb = module_or_reason("duckdb")
    polars, no_polars = module_or_reason("polars")
    names = ("a Parquet scan by pyarrow", "DuckDB on Parquet", "polars on Parquet")
    if no_pyarrow:
        return [Side(name=name, absent=no_pyarrow) for name in names]
    scanned = partial(scan, module_or_reason("pyarrow.parquet")[0], module_or_reason("pyarrow.compute")[0])
    sides = [Side(name=name, absent=absent) for name, absent in zip(names, ("", no_duckdb, no_polars), strict=True)]
    sides[0] = Side(name=names[0], run=partial(scanned, files))
    if not no_duckdb:
        settings = {"memory_limit": DUCKDB_MEMORY, "temp_directory": str(folder)}
        connection = duckdb.connect(config=settings)

        def in_sql(some: Sequence[Path]) -> Answer:
            return query_duckdb(connection, f"read_parquet({[str(file) for file in some]})")

        sides[1] = Side(name=names[1], run=partial(summed, in_sql, files, apart))
    if not no_polars:
        sides[2] = Side(
            name=names[2],
            run=partial(summed, lambda some: query_polars(polars, polars.scan_parquet(list(some))), files, apart),
        )
    return sides


def memory_sides(made: Sequence[Batches]) -> list[Side]:
    """The sides of other engines on an Arrow table in memory."""
    pyarrow, no_pyarrow = module_or_reason("pyarrow")
    duckdb, no_duckdb = module_or_reason("duckdb")
    polars, no_polars = module_or_reason("polars")
    no_duckdb, no_polars = no_pyarrow or no_duckdb, no_pyarrow or no_polars
    table = None
    if pyarrow is not None:
        parts = [to_table(pyarrow, partition, log) for partition, log in enumerate(made)]
        table = pyarrow.concat_tables(parts).unify_dictionaries()
    sides = [Side(name="DuckDB in memory", absent=no_duckdb), Side(name="polars in memory", absent=no_polars)]
    if not no_duckdb:
        connection = duckdb.connect()
        connection.register("batches", table)
        sides[0] = Side(name="DuckDB in memory", run=partial(query_duckdb, connection, "batches"))
    if not no_polars:
        frame = polars.from_arrow(table)
        sides[1] = Side(name="polars in memory", run=lambda: query_polars(polars, frame.lazy()))
    return sides
