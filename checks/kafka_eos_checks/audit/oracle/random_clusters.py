"""Random clusters with faults and cuts, on which the plan's findings on transactions are compared with the oracle's.

A cluster is a few partitions and logs of ``__transaction_state``, written by a few producers with transactions of both
versions. Markers are lost, repeated, changed or late; zombies write; data lack the transactional bit; coordinators are
fenced. Logs start late, have
holes or go backwards; they lose their first or last batches, some in the middle, or all, and what is left may be
followed by bytes that are no batch. Some tell the id of their topic. A coordinator's log is missing, incomplete, or
names a producer id of another one. Logs are of different moments. All of it follows from a seed.
"""

import random
import struct
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from kafka_eos.formats.log_directory import PARTITION_METADATA
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.formats.transaction_log import (
    NO_TIMESTAMP,
    TOPIC,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos_checks.audit.engines.engine import Engine
from kafka_eos_checks.audit.engines.local import LocalEngine
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.logs.beside import STORED
from kafka_eos_checks.audit.moments import Directory, Source
from kafka_eos_checks.audit.oracle.oracle import readable_transactions
from kafka_eos_checks.audit.oracle.random_cases import compare
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.plan.stages import Scanned
from kafka_eos_checks.audit.rules.beside import INDEXED, Beside, audit_beside, producers_at, read_last
from kafka_eos_checks.audit.rules.transactions.judge import TransactionAudit
from kafka_eos_checks.audit.rules.transactions.names import TRANSACTION_RULES
from kafka_eos_checks.audit.rules.transactions.partitions import read_transactions
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_logs
from kafka_eos_checks.kit.verdict import Verdict

NOW = 1_700_000_000_000  # ms since the epoch
_PREPARE = {
    ControlType.COMMIT: TransactionState.PREPARE_COMMIT,
    ControlType.ABORT: TransactionState.PREPARE_ABORT,
}
_COMPLETE = {
    ControlType.COMMIT: TransactionState.COMPLETE_COMMIT,
    ControlType.ABORT: TransactionState.COMPLETE_ABORT,
}


@dataclass(slots=True)
class _Producer:
    name: str
    producer_id: int
    version: int
    coordinator: int
    epoch: int = 0
    started_ms: int = NO_TIMESTAMP
    joined: set[int] = field(default_factory=set)


_IDEMPOTENT = _Producer("", 5, 2, 0)  # has no transactional id


class _Cluster:
    """A random cluster: the batches that producers and their coordinators append to all logs."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.losses = random.Random(f"losses of {seed}")
        self.origins = random.Random(f"origins of {seed}")
        self.bits = random.Random(f"bits of {seed}")
        self.mixed = self.bits.random() < 0.3  # some data are outside of transactions
        self.loses = self.losses.random() < 0.5
        self.pace = self.losses.choice((1, 1, 40))  # so that clocks may differ by more or by less than some steps
        self.clean = self.rng.random() < 0.3  # no faults, but logs may lack something
        self.now = NOW
        self.partitions: list[list[RecordBatch]] = [[] for _ in range(self.rng.randint(1, 3))]
        self.ends = [self.rng.choice((0, 0, 0, 5)) for _ in self.partitions]
        self.states: list[list[RecordBatch]] = [[] for _ in range(self.rng.randint(1, 2))]
        self.state_ends = [self.rng.choice((0, 0, 0, 0, 3)) for _ in self.states]
        self.producers = [
            _Producer(f"t{number}", 7 + number, self.rng.choice((1, 2)), self.rng.randrange(len(self.states)))
            for number in range(self.rng.randint(1, 4))
        ]

    def happens(self, share: float) -> bool:
        """Whether something goes wrong, at a fault rate; never in a clean cluster."""
        return not self.clean and self.rng.random() < share

    def state(self, producer: _Producer, status: TransactionState, epoch: int) -> None:
        """Append a state of the coordinator."""
        self.now += self.rng.randint(0, 50) * self.pace
        busy = status is TransactionState.ONGOING or status in _PREPARE.values()
        if status is TransactionState.EMPTY:
            producer.started_ms = NO_TIMESTAMP
        elif status is TransactionState.ONGOING and len(producer.joined) == 1:
            producer.started_ms = self.now
        topics = (TopicPartitions(topic="orders", partition_ids=tuple(sorted(producer.joined))),)
        value = TransactionLogValue(
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            transaction_timeout_ms=60_000,
            transaction_status=status,
            transaction_partitions=topics if busy and producer.joined else (),
            transaction_last_update_timestamp_ms=self.now,
            transaction_start_timestamp_ms=producer.started_ms,
            client_transaction_version=2 if producer.version == 2 else 0,
        )
        number = producer.coordinator
        if self.rng.random() < 0.01:
            self.state_ends[number] += 1
        record = Record(key=TransactionLogKey(transactional_id=producer.name).encode(), value=value.encode())
        batch = build_batch([record], base_offset=self.state_ends[number], base_timestamp=self.now)
        self.states[number].append(batch)
        self.state_ends[number] += 1

    def append(self, number: int, producer: _Producer, what: ControlType | None, epoch: int) -> None:
        """Append a batch with data (None), or a marker, as the leader does."""
        self.now += self.rng.randint(0, 50) * self.pace
        if self.rng.random() < 0.02:
            self.ends[number] += self.rng.randint(1, 3)
        elif self.happens(0.005):
            self.ends[number] = max(0, self.ends[number] - 2)
        if what is None:
            batch = self._data(number, producer, epoch, is_transactional=True)
        else:
            coordinator_epoch = 1 if self.happens(0.05) else 2
            marker = ControlRecord(control_type=what, coordinator_epoch=coordinator_epoch)
            batch = build_control_batch(
                marker,
                producer_id=producer.producer_id,
                producer_epoch=epoch,
                base_offset=self.ends[number],
                timestamp=self.now,
            )
        self.partitions[number].append(batch)
        self.ends[number] += 1

    def plain(self, producer: _Producer) -> None:
        """Append a batch without the transactional bit to some log."""
        number = self.bits.randrange(len(self.partitions))
        self.partitions[number].append(self._data(number, producer, producer.epoch, is_transactional=False))
        self.ends[number] += 1

    def _data(self, number: int, producer: _Producer, epoch: int, *, is_transactional: bool) -> RecordBatch:
        """A batch with data at the end of a log."""
        return build_batch(
            [Record(value=b"v")],
            base_offset=self.ends[number],
            base_timestamp=self.now,
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=is_transactional,
        )

    def transaction(self, producer: _Producer) -> None:
        """Run one transaction, in which something may go wrong."""
        places = self.rng.sample(range(len(self.partitions)), self.rng.randint(1, len(self.partitions)))
        for number in places:
            producer.joined.add(number)
            self.state(producer, TransactionState.ONGOING, producer.epoch)
            for _ in range(self.rng.choice((0, 1, 1, 1, 3))):
                self.append(number, producer, None, producer.epoch - self.happens(0.02))
        if self.happens(0.05):
            return  # the coordinator continues later, or never
        decision = self.rng.choice(tuple(ControlType))
        bump = producer.version == 2 or (decision is ControlType.ABORT and self.rng.random() < 0.2)
        epoch = producer.epoch + bump
        self.state(producer, _PREPARE[decision], epoch)
        if self.happens(0.03):
            decision = ControlType(1 - decision)
            self.state(producer, _PREPARE[decision], epoch)
        for number in places:
            if self.happens(0.04):
                continue
            wrong = self.happens(0.04)
            self.append(number, producer, ControlType(1 - decision) if wrong else decision, epoch - self.happens(0.01))
            for _ in range(self.rng.choice((0, 0, 0, 0, 0, 1))):
                self.append(number, producer, decision, epoch)
        producer.joined.clear()
        if not self.happens(0.05):
            self.state(producer, _COMPLETE[decision], epoch)
        producer.epoch = epoch

    def run(self) -> None:
        """Run some transactions of all producers."""
        for producer in self.producers:
            self.state(producer, TransactionState.EMPTY, 0)
        for _ in range(self.rng.randint(1, 25)):
            producer = self.rng.choice(self.producers)
            if self.happens(0.1):
                producer.epoch += 1
                self.state(producer, TransactionState.EMPTY, producer.epoch)
            self.transaction(producer)
            if self.happens(0.05):
                self.append(self.rng.randrange(len(self.partitions)), producer, None, max(0, producer.epoch - 1))
            if self.happens(0.02):
                self.now += 30 * 60_000
            while self.mixed and self.bits.random() < 0.2:
                self.plain(self.bits.choice((_IDEMPOTENT, _IDEMPOTENT if self.clean else producer)))
        if self.rng.random() < 0.3:  # the last transaction is under way
            producer = self.rng.choice(self.producers)
            self.append(self.rng.randrange(len(self.partitions)), producer, None, producer.epoch)

    def write(self, folder: Path) -> None:
        """Write the logs as a broker's log directory."""
        for number, batches in enumerate(self.partitions):
            place = folder / f"orders-{number}"
            left = batches if self.clean or not self.loses else self._begun_anew(self._lost(batches))
            led = self.origins.choice((0, 0, 1, -1))
            self._write(place, [replace(each, partition_leader_epoch=led) for each in left])
            if self.origins.random() < 0.5:
                place.mkdir(exist_ok=True)
                (place / PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {self.origins.choice('AAB')}\n")
            if batches and not left:
                (place / f"{self.losses.choice((0, 0, 9)):020d}.log").touch()
            elif not self.clean and self.loses and self.losses.random() < 0.1:
                with max(place.glob("*.log"), default=place / f"{0:020d}.log").open("ab") as file:
                    file.write(b"no batch" * 40)
        for number, batches in enumerate(self.states):
            kept = self.rng.random()
            if kept < 0.1:
                continue
            elected = self.origins.randint(0, len(batches))  # from here on another broker leads
            own = [replace(each, partition_leader_epoch=place >= elected) for place, each in enumerate(batches)]
            self._write(folder / f"{TOPIC}-{number}", own[3:] if kept < 0.2 else own)
        if self.happens(0.05):  # of another cluster
            self._write(folder / f"{TOPIC}-7", self.states[0][:2])

    def _begun_anew(self, batches: list[RecordBatch]) -> list[RecordBatch]:
        """The batches of a partition that may have been emptied before, with the offsets that they then have."""
        if self.origins.random() < 0.8:
            return batches
        left = batches[self.origins.randint(0, len(batches)) :]
        return [replace(each, base_offset=max(0, each.base_offset - left[0].base_offset)) for each in left]

    def _lost(self, batches: list[RecordBatch]) -> list[RecordBatch]:
        """The batches that a partition still has; those after a lost middle get the offsets of the lost ones."""
        first, last = sorted(self.losses.randint(0, len(batches)) for _ in range(2))
        match self.losses.choice(("nothing", "nothing", "nothing", "the tail", "the middle", "all")):
            case "the tail":
                return batches[:last]
            case "the middle" if first < last < len(batches):
                moved = batches[last].base_offset - batches[first].base_offset
                later = (replace(each, base_offset=max(0, each.base_offset - moved)) for each in batches[last:])
                return [*batches[:first], *later]
            case "all" if self.losses.random() < 0.3:
                return []
            case _:
                return batches

    def _write(self, folder: Path, batches: list[RecordBatch]) -> None:
        folder.mkdir(parents=True)
        rest = list(batches)
        while rest:
            count = self.rng.randint(1, 12)
            name = f"{rest[0].base_offset:020d}.log"
            if (folder / name).exists():
                return  # the log went backwards to where a segment began
            write_segment(folder / name, [batch.encode() for batch in rest[:count]])
            rest = rest[count:]

    def source(self, logs: Sequence[PartitionLog]) -> Source:
        """The facts on the moments of the logs."""
        known = self._source(logs)
        return replace(known, longest_ms=0) if self.origins.random() < 0.2 else known

    def _source(self, logs: Sequence[PartitionLog]) -> Source:
        folders = {Path(log.folder).parent for log in logs}
        if self.rng.random() < 0.5:
            marked = random.Random(self.now)
            marks = {(log.topic, log.partition): marked.randint(0, 60) for log in logs if marked.random() < 0.3}
            known = dict.fromkeys(folders, Directory(high_watermarks=marks))  # logs that end below them are incomplete
            return Source(longest_ms=self.rng.choice((900_000, 10**9)), directories=known)
        marks = {(log.topic, log.partition): self.rng.randint(0, 60) for log in logs if self.rng.random() < 0.7}
        directory = Directory(
            read_ms=self.rng.choice((None, self.now + 10, self.now + 600_000)),
            stopped=self.rng.random() < 0.2,
            high_watermarks=marks,
            checkpoint_ms=float(self.rng.choice((self.now, self.now + 100_000))),
        )
        return Source(one_moment=False, directories=dict.fromkeys(folders, directory))


Row = tuple[object, ...]


def rows_of(audit: TransactionAudit) -> Counter[Row]:
    """Findings without their times, figures and reasons, as rows that can be compared."""
    rows: Counter[Row] = Counter(astuple(replace(finding, time_ms=None)) for finding in audit.findings)
    rows.update((rule, name, int(value)) for rule in TRANSACTION_RULES for name, value in audit.figures[rule].items())
    rows.update(
        (rule, reason, unjudged) for rule, reasons in audit.reasons.items() for reason, unjudged in reasons.items()
    )
    return rows


def by_steps(
    logs: list[PartitionLog], engine: Engine, source: Source, split_bytes: int, slice_markers: int
) -> tuple[TransactionAudit, Any, Scanned]:
    """The audit by the plan that users run, its rows for the files next to logs, and its scan."""
    scanned = stages.scan_logs(logs, engine, source, split_bytes=split_bytes, slice_markers=slice_markers)
    states, known = stages.audit_coordinators(scanned, engine)
    return *stages.judge_transactions(scanned, states, known, engine, source), scanned


def write_beside(log: PartitionLog, rng: random.Random) -> None:
    """Write indexes and snapshots next to a log, some of them wrong, as they follow from its batches."""
    transactions = read_transactions(log)
    for segment in log.segments:
        name = segment.partition(".")[0]
        entries = [(0, *astuple(each)) for each in transactions.aborts_in(name) if rng.random() < 0.95]
        if rng.random() < 0.2:
            entries += [(0, *(rng.randint(0, 12) for _ in range(4)))]
        written = _spoiled(np.array(entries, INDEXED), rng)
        if rng.random() < 0.9:
            log.file(f"{name}.txnindex").write_bytes(written.tobytes() + b"?" * (rng.random() < 0.05))
    offsets = sorted({rng.randint(0, transactions.end + 1) for _ in range(rng.randint(0, 5))})
    for offset, producers in producers_at(offsets, read_last(log, offsets), transactions):
        rows = [tuple(-1 if value is None else value for value in astuple(each)) for each in producers.values()]
        if rng.random() < 0.2:
            rows += [tuple(rng.randint(0, 12) for _ in range(8))]
        checked = struct.pack(">i", len(rows)) + _spoiled(np.array(rows, STORED), rng).tobytes()
        crc = crc32c(checked) ^ (rng.random() < 0.05)
        log.file(f"{offset:020d}.snapshot").write_bytes(struct.pack(">hI", 1, crc) + checked)


def _spoiled(rows: NDArray[np.void], rng: random.Random) -> NDArray[np.void]:
    """Some rows, perhaps with an error."""
    if len(rows) and rng.random() < 0.3:
        name = rng.choice((rows.dtype.names or ())[1:])
        rows[name][rng.randrange(len(rows))] += rng.choice((-1, 1, 7))
    return rows


def around(beside: Beside, findings: Iterable[Finding]) -> Counter[Row]:
    """Findings, figures and first unknown subjects of the rules over files next to logs, as rows to compare."""
    rows: Counter[Row] = Counter(astuple(replace(finding, time_ms=None)) for finding in findings)
    rows.update((rule, name, int(value)) for rule, own in beside.figures.items() for name, value in own.items())
    rows.update(beside.first.items())
    return rows


def difference(seed: int, engine: Engine | None = None) -> tuple[str, Counter[str]]:
    """The difference of the two audits of a random cluster, "" for none, and the number of findings of each rule."""
    cluster = _Cluster(seed)
    cluster.run()
    with tempfile.TemporaryDirectory(prefix="kafka-eos-cluster-") as folder:
        cluster.write(Path(folder))
        logs = find_logs(Path(folder))
        source = cluster.source(logs)
        running = engine or LocalEngine()
        running.buckets = cluster.rng.randint(1, 3)
        expected = readable_transactions(logs, source)
        split_bytes = cluster.rng.choice((100, 1000, 100_000))
        for log in logs:
            if log.topic != TOPIC:
                write_beside(log, cluster.rng)
        found, ended, scanned = by_steps(
            logs, running, source, split_bytes, random.Random(seed).choice((2, 3, 5, 1000))
        )
        readable = audit_beside(logs, one_moment=source.one_moment)
        findings, result = stages.audit_around(scanned, running, ended, one_moment=source.one_moment)
        wanted, got = rows_of(expected), rows_of(found)
        wanted += around(readable, readable.findings)
        got += around(result, findings)
    told = [*expected.findings, *readable.findings]
    kinds = Counter(f"{finding.rule}, {finding.kind}" for finding in told)
    if wanted == got:
        return "", kinds
    return f"only readable: {[*(wanted - got)]}, only by steps: {[*(got - wanted)]}", kinds


def judge(count: int, first: int = 0) -> Verdict:
    """Compare ``count`` clusters, with seeds from ``first`` on."""
    return compare("transactions by steps", "cluster", "clusters", difference, count, first)
