"""Findings of the rules: one shape for every rule, on the terminal, in JSON Lines, CSV, Parquet and Spark."""

import csv
import json
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from itertools import dropwhile, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import category, normalize

from kafka_eos.formats.record_batch import MAGIC
from kafka_eos_checks.audit.moments import in_words
from kafka_eos_checks.audit.places import Unreachable, open_at, place
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.schemas import arrow_schema, ddl
from kafka_eos_checks.kit.spark_failures import in_short, spark_failures, tells_full_disk

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# Base offset, magic, last offset delta, highest timestamp, producer id and epoch, from the beginning of a batch.
_HEAD = struct.Struct(">q8xb6xi8xqqh")
WRITTEN_AT_ONCE = 50_000  # findings in a group of rows


class Kind(StrEnum):
    """The kinds of findings.

    VIOLATION: the rule does not hold.
    NOT_JUDGED: the input lacks facts that are needed to judge it.
    TOO_RECENT: another log, which is needed to judge it, may be a copy from an earlier moment.
    TOLD: worth knowing, and no violation: somebody did it on purpose, or it ends by itself.
    KNOWN: a violation that an earlier audit has found, see :func:`read_known`.
    """

    VIOLATION = "violation"
    NOT_JUDGED = "not judged"
    TOO_RECENT = "too recent"
    TOLD = "told"
    KNOWN = "known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding of a rule at a place in a log or history, with everything that a person needs to look there.

    Attributes:
        rule: the rule's name.
        topic: topic name.
        partition: partition number; -1 for a history of Jepsen, whose key is then also the topic.
        broker: the log directory it was found in, "" for a single one or if all replicas show it.
        file: the segment's file name.
        position: where the batch begins in the file, in bytes; None where only an offset is known.
        offset: base offset of the batch, or offset of the record.
        producer_id: producer id of the batch, -1 for none; None where there is no batch.
        producer_epoch: producer epoch of the batch.
        base_sequence: base sequence of the batch, -1 for none.
        evidence: what was expected and what was found, in words.
        run: the run of the history that it was joined with, "" for none.
        kind: whether it is a violation, see :class:`Kind`.
        time_ms: the highest timestamp of the batch, in milliseconds since the epoch; None where there is no batch.
        transactional_id: the transactional id that has the producer id, or whose state it is, as a coordinator's log
            names it; "" where the rule knows none.
        decision: the decision of the coordinator about the transaction, COMMIT or ABORT; "" where the rule knows none.
    """

    rule: str
    topic: str
    partition: int
    broker: str = ""
    file: str = ""
    position: int | None = None
    offset: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    base_sequence: int | None = None
    evidence: str = ""
    run: str = ""
    kind: str = Kind.VIOLATION.value
    time_ms: int | None = None
    transactional_id: str = ""
    decision: str = ""

    @property
    def is_violation(self) -> bool:
        """Whether the rule does not hold there."""
        return self.kind == Kind.VIOLATION

    def sort_key(self) -> tuple[Any, ...]:
        """The order of findings: by broker, topic, partition, offset and rule, then by the other fields."""
        numbers = (self.position, self.producer_id, self.producer_epoch, self.base_sequence)
        offset, *others = (-1 if number is None else number for number in (self.offset, *numbers))
        place = self.broker, self.topic, self.partition, offset, self.rule
        return *place, self.kind, self.file, self.run, *others, self.evidence

    @property
    def identity(self) -> tuple[Any, ...]:
        """The rule and the place: a later audit of the log has the same, while words and segments change."""
        batch = self.offset, self.producer_id, self.producer_epoch, self.base_sequence
        return self.rule, self.broker, self.topic, self.partition, self.run, *batch

    @property
    def where(self) -> str:
        """The place of the finding in words."""
        where = f"broker {self.broker}: " if self.broker.isdecimal() else f"{self.broker}/" if self.broker else ""
        where += f"{self.topic}-{self.partition}" if self.partition >= 0 else f"{self.run} {self.topic}".strip()
        where += f"{'/' * bool(self.topic)}{self.file}" if self.file else ""
        where += "" if self.position is None else f" byte {self.position}"
        return where + ("" if self.offset is None else f" offset {self.offset}")

    def in_words(self) -> str:
        """The finding in one line: where, what, who."""
        who = "" if self.producer_id is None else f" (producer {self.producer_id} epoch {self.producer_epoch})"
        kind = "" if self.is_violation else f" ({self.kind})"
        when = "" if self.time_ms is None or self.time_ms < 0 else f" at {in_words(self.time_ms)}"
        return f"{self.rule}{kind}: {self.where}{when}{who}: {self.evidence}"


def dated(findings: Sequence[Finding], folders: Mapping[tuple[str, str, int], str]) -> list[Finding]:
    """Findings with the times of their batches, as the segments have them.

    Args:
        findings: some or all of an audit.
        folders: the folders of the logs, by broker, topic and partition.
    """
    files = [_undated(finding, folders) for finding in findings]
    wanted: dict[Path, list[int]] = {}
    for finding, file in zip(findings, files, strict=True):
        if file is not None and finding.position is not None:
            wanted.setdefault(file, []).append(finding.position)
    heads = {file: _heads(file, positions) for file, positions in wanted.items()}
    return [
        finding if file is None else replace(finding, time_ms=_time_of(finding, heads[file].get(finding.position or 0)))
        for finding, file in zip(findings, files, strict=True)
    ]


def _undated(finding: Finding, folders: Mapping[tuple[str, str, int], str]) -> Path | None:
    """The segment that has the time of a finding's batch; None if there is none, or the time is known."""
    folder = folders.get((finding.broker, finding.topic, finding.partition))
    if folder is None or finding.position is None or not finding.file.endswith(".log") or finding.time_ms is not None:
        return None
    return place(folder) / finding.file


def _heads(segment: Path, positions: Sequence[int]) -> dict[int, bytes]:
    """The beginnings of the headers at some positions of a segment, by position."""
    try:
        with open_at(segment, 0) as file:
            read = {position: file.pread(_HEAD.size, position) for position in positions}
    except Unreachable:
        raise
    except OSError:  # tables of headers have no segments, and a running broker deletes them
        return {}
    return {position: head for position, head in read.items() if len(head) == _HEAD.size}


def _time_of(finding: Finding, head: bytes | None) -> int | None:
    """The highest time of a finding's batch; None if the segment no longer has the batch there.

    A running broker compacts: another file has the segment's name then, and any bytes are at the position.
    """
    if head is None:
        return None
    base, magic, last_offset_delta, max_timestamp, producer_id, producer_epoch = _HEAD.unpack(head)
    is_there = magic == MAGIC and (finding.offset is None or base <= finding.offset <= base + last_offset_delta)
    is_its_own = finding.producer_id in {None, producer_id} and finding.producer_epoch in {None, producer_epoch}
    return int(max_timestamp) if is_there and is_its_own else None


# The one schema of findings, see `schemas`.
COLUMNS = {f.name: "bigint" if "int" in str(f.type) else "string" for f in fields(Finding)}
TABLE_COLUMNS = {"audit": "string", **COLUMNS}  # of a table, which has the findings of many audits


def row_of(finding: Finding) -> dict[str, Any]:
    """A finding by column, as files and tables have it. Lone surrogates, which UTF-8 lacks, are written as escapes."""
    return {name: _in_utf8(value) for name, value in asdict(finding).items()}


def _in_utf8(value: Any) -> Any:
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "backslashreplace").decode()


def to_arrow(findings: Sequence[Finding]) -> "pa.RecordBatch":
    """Findings as one Arrow batch with the columns of :data:`COLUMNS`."""
    import pyarrow as pa  # noqa: PLC0415

    return pa.RecordBatch.from_pylist(list(map(row_of, findings)), schema=arrow_schema(COLUMNS))


_LEFT_OUT = {"Cc", "Cf", "Zl", "Zp", "Zs"}  # categories of Unicode: controls, marks without a width, separators


def harmless(cell: Any) -> Any:
    """Make a CSV cell that no spreadsheet takes for a formula: topic names and client text come from strangers.

    Spreadsheets skip blanks and invisible characters before a formula, so this function skips them too. A cell that
    begins with a tab or an end of line always counts as a formula. Full-width signs count like the usual ones. The text
    itself is kept.
    """
    if not isinstance(cell, str):
        return cell
    seen = "".join(dropwhile(lambda character: category(character) in _LEFT_OUT, cell))
    formula = normalize("NFKC", seen[:1]).startswith(("=", "+", "-", "@"))
    return "'" + cell if formula or cell.startswith(("\t", "\r", "\n")) else cell


LASTING = (
    "in a catalog that lasts, e.g. with the line `spark.sql.catalogImplementation hive` in spark-defaults.conf "
    "of the folder SPARK_CONF_DIR (docs/operators.md); or give --findings FILE"
)
REMEDIES = {  # by the condition of Spark's error
    "SCHEMA_NOT_FOUND": f"make the schema with CREATE SCHEMA, {LASTING}",
    "LOCATION_ALREADY_EXISTS": "the folder is of an earlier session, whose catalog was in memory and is gone. Move the "
    f"folder away and make the table {LASTING}",
}
SUFFIXES = (".jsonl", ".csv", ".parquet")


def check_suffix(path: Path) -> None:
    """Say before a long audit that its findings could not be written.

    Raises:
        OSError: the suffix is none of :data:`SUFFIXES`.
        MissingExtra: Parquet without pyarrow.
    """
    if path.suffix not in SUFFIXES:
        raise OSError(f"{path}: findings are written to a file named *{', *'.join(SUFFIXES)}")
    if path.suffix == ".parquet":
        need("pyarrow", "spark")


def write_findings(path: Path, findings: Iterable[Finding]) -> None:
    """Write findings as ``.jsonl``, ``.csv`` or ``.parquet``, by the file's suffix.

    Raises:
        OSError: for any other suffix, or when the file cannot be written.
        MissingExtra: Parquet without pyarrow.
    """
    check_suffix(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        with path.open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(row_of(f), separators=(",", ":")) + "\n" for f in findings)
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out)
            writer.writerow(COLUMNS)
            writer.writerows([harmless(cell) for cell in row_of(f).values()] for f in findings)
    else:
        import pyarrow.parquet as pq  # noqa: PLC0415

        rest = iter(findings)
        with pq.ParquetWriter(path, arrow_schema(COLUMNS)) as written:
            while some := list(islice(rest, WRITTEN_AT_ONCE)):
                written.write_batch(to_arrow(some))


MOST_KNOWN = 100_000  # findings of an audit that can be compared with known ones, which one process does


def read_known(path: Path) -> frozenset[tuple[Any, ...]]:
    """The identities of the violations in a ``.jsonl`` file of findings, those that were known then included.

    Raises:
        OSError: the file cannot be read, or is no such file; the message names the line.
    """
    known = set()
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                finding = Finding(**{field.name: row[field.name] for field in fields(Finding) if field.name in row})
                hash(finding.identity)
            except (ValueError, TypeError) as error:
                words = f"{path}: line {number} is no finding; give the .jsonl file of --findings of an earlier audit"
                raise OSError(words) from error
            if finding.kind in {Kind.VIOLATION, Kind.KNOWN}:
                known.add(finding.identity)
    return frozenset(known)


class TableRefused(OSError):  # noqa: N818 - named for the refusal
    """A table of Spark's catalog that cannot be written; the message names the table, the reason and a remedy."""


def prepare_table(table: str, form: str, spark: "SparkSession") -> None:
    """Make a table for findings if it is not there, and append no row to it, so that a long audit does not end there.

    Args:
        table: its name, e.g. ``catalog.schema.table``.
        form: the format of a new table.
        spark: the session that has the catalog.

    Raises:
        TableRefused: Spark refuses, or the table has other columns.
    """
    with _refusals(table):
        if not spark.catalog.tableExists(table):
            whole = spark.createDataFrame([], ddl(TABLE_COLUMNS)).schema
            spark.catalog.createTable(table, source=form, schema=whole)
        own = {name.lower() for name in spark.table(table).columns}
    if other := own ^ TABLE_COLUMNS.keys():
        lacking = ddl({name: kind for name, kind in TABLE_COLUMNS.items() if name in other})
        add = f", or add them: ALTER TABLE {table} ADD COLUMNS ({lacking})" if own < TABLE_COLUMNS.keys() else ""
        named = ", ".join(sorted(other))
        raise TableRefused(f"table {table} and findings differ in the columns {named}; give a new table{add}")
    append_to_table(table, spark, [spark.createDataFrame([], ddl(COLUMNS))], audit="")


def append_to_table(table: str, spark: "SparkSession", rows: "Iterable[DataFrame]", *, audit: str) -> None:
    """Append rows to a table of Spark's catalog, whatever its format and its partitions are.

    Args:
        table: its name, e.g. ``catalog.schema.table``.
        spark: the session that has the catalog.
        rows: findings, with the columns of :data:`COLUMNS`.
        audit: the value of their column ``audit``, which tells them from those of other audits.

    Raises:
        TableRefused: Spark refuses. It may have written some of the rows.
    """
    with _refusals(table):
        columns = spark.table(table).columns
        for some in rows:
            some.selectExpr(f"'{audit}' AS audit", "*").select(*columns).write.insertInto(table)


def check_appended(table: str, spark: "SparkSession", *, audit: str, count: int) -> None:
    """Compare the number of an audit's rows in a table with that of its findings.

    Two programs that append files to one folder share the folder in which Spark keeps unfinished ones. The first that
    ends removes it, with files of the other, and Spark reports no error.

    Raises:
        TableRefused: the numbers differ, or Spark refuses.
    """
    with _refusals(table):
        there = spark.table(table).where(f"audit = '{audit}'").count()
    if there != count:
        raise TableRefused(
            f"table {table} has {there:,} of {count:,} findings, as when another program appends to it meanwhile; "
            f"remedy: delete the rows of this audit and repeat it while nobody else writes to {table}, give a table of "
            "a format with transactions (--sink-format), or --findings FILE"
        )


@contextmanager
def _refusals(table: str) -> Iterator[None]:
    """Raise :class:`TableRefused` where Spark refuses to make, read or write a table."""
    try:
        yield
    except spark_failures() as error:
        condition = getattr(error, "getCondition", lambda: None)()
        reason = in_short(error)
        known = "make room where the table has its files" if tells_full_disk(reason) else REMEDIES.get(condition or "")
        remedy = known or "give another table, or --findings FILE"
        raise TableRefused(f"table {table} cannot be written: {reason}; remedy: {remedy}") from error
