"""Findings that stay where they were made: counted, with the first ones of each rule at hand, and all on demand.

A task that judges gives its findings as rows of the kind :data:`FINDINGS`, and their number as one of the kind
:data:`TALLY` (:func:`found_rows`). So the caller, on Spark the driver, holds at most :data:`SHOWN_FINDINGS` findings of
a rule and kind, however many there are.
"""

import pickle
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from heapq import merge, nsmallest
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

from kafka_eos_checks.audit.engines.engine import Engine, Row
from kafka_eos_checks.audit.findings import COLUMNS, Finding, Kind, dated, row_of, to_arrow
from kafka_eos_checks.audit.segments.splits import PartitionLog
from kafka_eos_checks.kit.schemas import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FINDINGS, TALLY, SUMMED = -3, -4, -5  # kinds of rows
SHOWN_FINDINGS = 20  # of a rule and kind
OF_A_ROW = 256  # findings
FINDING_BYTES = 700  # that a finding takes between stages, about
HELD_AT_ONCE = 100_000  # findings in memory while all are sorted or written
KEY_BITS = 20

Named = tuple[str, str]  # a rule and a kind


@dataclass(slots=True)
class Tally:
    """The numbers of some findings, and the first of them by place.

    Attributes:
        counts: the number of findings by rule and kind.
        shown: by rule and kind, the first :data:`SHOWN_FINDINGS`.
    """

    counts: Counter[Named] = field(default_factory=Counter)
    shown: dict[Named, list[Finding]] = field(default_factory=dict)

    def add(self, findings: Iterable[Finding]) -> None:
        """Count some findings."""
        own: dict[Named, list[Finding]] = defaultdict(list)
        for finding in findings:
            own[finding.rule, finding.kind].append(finding)
        self._join({name: len(each) for name, each in own.items()}, own)

    def join(self, other: "Tally") -> None:
        """Add the tally of other findings."""
        self._join(other.counts, other.shown)

    def _join(self, counts: Mapping[Named, int], shown: Mapping[Named, list[Finding]]) -> None:
        self.counts.update(counts)
        for name, findings in shown.items():
            both = [*self.shown.get(name, ()), *findings]
            self.shown[name] = nsmallest(SHOWN_FINDINGS, both, key=Finding.sort_key)

    def of(self, rule: str, *, violations: bool) -> tuple[int, list[Finding]]:
        """The number of violations of a rule, or of its other findings, and the first of them."""
        names = [name for name in self.counts if name[0] == rule and (name[1] == Kind.VIOLATION) == violations]
        shown = [finding for name in names for finding in self.shown[name]]
        return sum(self.counts[name] for name in names), nsmallest(SHOWN_FINDINGS, shown, key=Finding.sort_key)

    @property
    def is_whole(self) -> bool:
        """Whether no finding is left out."""
        return all(count <= SHOWN_FINDINGS for count in self.counts.values())

    @property
    def findings(self) -> list[Finding]:
        """The findings that are not left out."""
        return [finding for own in self.shown.values() for finding in own]

    def first_violations(self) -> dict[str, Finding]:
        """The first violation of each rule."""
        return {rule: self.shown[rule, kind][0] for rule, kind in self.counts if kind == Kind.VIOLATION}


def found_rows(
    findings: Iterable[Finding], key: int, folders: Mapping[tuple[str, str, int], str] | None = None
) -> Iterator[Row]:
    """The rows of findings: the findings, with the times of their batches, and their tally.

    Args:
        findings: the findings of one task.
        key: the key of the task; with it the rows of a stage are in order.
        folders: the folders of the logs, as :func:`findings.dated` takes them; without them no time is looked up.
    """
    tally, rest = Tally(), iter(findings)
    for number in range(1 << KEY_BITS):
        some = list(islice(rest, OF_A_ROW if number < (1 << KEY_BITS) - 1 else None))
        if not some:
            break
        own = some if folders is None else dated(some, folders)
        tally.add(own)
        yield Row(FINDINGS, key << KEY_BITS | number, own, FINDING_BYTES * len(own))
    if tally.counts:
        yield Row(TALLY, 0, tally)


def identity(log: PartitionLog) -> tuple[str, str, int]:
    """Broker, topic and partition of a log."""
    return log.broker, log.topic, log.partition


def folders(logs: Iterable[PartitionLog]) -> dict[tuple[str, str, int], str]:
    """The folder of each log."""
    return {identity(log): log.folder for log in logs}


def _summed(key: int, tallies: Iterable[Tally]) -> Iterator[Row]:
    whole = Tally()
    for tally in tallies:
        whole.join(tally)
    yield Row(SUMMED, key, whole)


def _ahead(_: int, values: Iterable[Sequence[Finding]], *, firsts: Mapping[str, Finding]) -> Iterator[Row]:
    """Count the violations of some rows that come before the first one of each rule."""
    keys = {rule: finding.sort_key() for rule, finding in firsts.items()}
    counts: Counter[str] = Counter()
    for findings in values:
        own = [finding.sort_key() for finding in findings if finding.is_violation]
        counts.update({rule: sum(each < key for each in own) for rule, key in keys.items()})
    yield Row(TALLY, 0, counts)


def _added(key: int, values: Iterable[Counter[str]]) -> Iterator[Row]:
    yield Row(SUMMED, key, sum(values, Counter[str]()))


class Found(Collection[Finding]):
    """Some findings of an audit, in no order.

    Args:
        engine: has the rows; to iterate, it has to be open.
        rows: the rows of stages with findings.
        own: findings that the caller has itself.
    """

    def __init__(self, engine: Engine, *rows: Any, own: Sequence[Finding] = ()) -> None:
        self.engine = engine
        self.rows = rows
        self.own = tuple(own)

    def __add__(self, other: Collection[Finding]) -> "Found":
        if isinstance(other, Found):
            return Found(self.engine, *self.rows, *other.rows, own=(*self.own, *other.own))
        return Found(self.engine, *self.rows, own=(*self.own, *other))

    def __iter__(self) -> Iterator[Finding]:
        tally: Tally | None = vars(self).get("tally")
        if tally is not None and tally.is_whole:
            yield from tally.findings
            return
        for findings in self.engine.stream(FINDINGS, *self.rows) if self.rows else ():
            yield from findings
        yield from self.own

    def __len__(self) -> int:
        return self.tally.counts.total()

    def __contains__(self, finding: object) -> bool:
        return any(finding == each for each in self)

    @cached_property
    def tally(self) -> Tally:
        """The numbers of all, and the first of each rule and kind."""
        whole = Tally()
        whole.add(self.own)
        if self.rows:
            summed = self.engine.regroup(_summed, [TALLY], *self.rows, label="findings")
            for _, tally in self.engine.collect(SUMMED, summed):
                whole.join(tally)
        return whole

    def numbers(self) -> dict[str, int]:
        """The number, from 1, that the first violation of each rule has among all violations by place."""
        firsts = self.tally.first_violations()
        if self.tally.is_whole:
            counts = next(iter(_ahead(0, [self.tally.findings], firsts=firsts))).value
        else:
            ahead = self.engine.regroup(partial(_ahead, firsts=firsts), [FINDINGS], *self.rows, label="findings")
            added = self.engine.regroup(_added, [TALLY], ahead, label="findings")
            counts = next(iter(_ahead(0, [self.own], firsts=firsts))).value
            for _, more in self.engine.collect(SUMMED, added):
                counts.update(more)
        return {rule: 1 + counts[rule] for rule in firsts}

    def tables(self, spark: "SparkSession") -> "Iterator[DataFrame]":
        """All findings as tables with the columns of :data:`findings.COLUMNS`; those on Spark never leave it."""
        from kafka_eos_checks.audit.engines.spark import SparkEngine  # noqa: PLC0415 - the light install has no Spark

        rest: Iterator[Finding] = iter(self)
        if isinstance(self.engine, SparkEngine) and self.rows:
            yield self.engine.table(FINDINGS, self.rows, COLUMNS, to_arrow)
            rest = iter(self.own)
        while some := list(islice(rest, HELD_AT_ONCE)):
            yield spark.createDataFrame([tuple(row_of(each).values()) for each in some], ddl(COLUMNS))

    def in_order(self) -> Iterator[Finding]:
        """All findings: violations by place, then the others by place; some of them at a time are in memory."""
        with tempfile.TemporaryFile(prefix="kafka-eos-") as file:
            parts: list[tuple[int, int]] = []
            rest = iter(self)
            while some := sorted(islice(rest, HELD_AT_ONCE), key=_written):
                if len(some) < HELD_AT_ONCE and not parts:
                    yield from some
                    return
                begin = file.tell()
                for at in range(0, len(some), OF_A_ROW):
                    pickle.dump(some[at : at + OF_A_ROW], file, pickle.HIGHEST_PROTOCOL)
                parts.append((begin, file.tell()))
            yield from merge(*(_read_back(file, *part) for part in parts), key=_written)


def _written(finding: Finding) -> tuple[Any, ...]:
    return not finding.is_violation, *finding.sort_key()


def _read_back(file: IO[bytes], at: int, end: int) -> Iterator[Finding]:
    """The findings of a part of a file, in the order in which they were written."""
    while at < end:
        file.seek(at)
        some: list[Finding] = pickle.load(file)  # noqa: S301 - written above
        at = file.tell()
        yield from some
