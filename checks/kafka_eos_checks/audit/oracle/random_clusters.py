"""Random clusters with faults and cuts, on which the plan's findings on transactions are compared with the oracle's.

A cluster is a few partitions and logs of ``__transaction_state``, written by a few producers with transactions of both
versions. Markers are lost, repeated, changed or late; zombies write; coordinators are fenced. Logs start late, have
holes or go backwards. A coordinator's log is missing, incomplete, or names a producer id of another one. Logs are of
different moments. All of it follows from a seed.
"""

import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos.formats.transaction_log import (
    TOPIC,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
)
from kafka_eos_checks.audit.engines.local import Engine, LocalEngine
from kafka_eos_checks.audit.kernels.logs.transactions import Part, Partition
from kafka_eos_checks.audit.kernels.logs.whole import whole_log
from kafka_eos_checks.audit.moments import Directory, Source
from kafka_eos_checks.audit.oracle.oracle import readable_transactions
from kafka_eos_checks.audit.oracle.random_cases import compare
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.plan.stages import Scanned
from kafka_eos_checks.audit.rules.beside import Last, Transactions, producers_at, read_last
from kafka_eos_checks.audit.rules.transactions import (
    TRANSACTION_RULES,
    TransactionAudit,
    read_transactions,
)
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
    joined: set[int] = field(default_factory=set)


class _Cluster:
    """A random cluster: the batches that producers and their coordinators append to all logs."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
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
        self.now += self.rng.randint(0, 50)
        busy = status is TransactionState.ONGOING or status in _PREPARE.values()
        topics = (TopicPartitions(topic="orders", partition_ids=tuple(sorted(producer.joined))),)
        value = TransactionLogValue(
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            transaction_timeout_ms=60_000,
            transaction_status=status,
            transaction_partitions=topics if busy and producer.joined else (),
            transaction_last_update_timestamp_ms=self.now,
            transaction_start_timestamp_ms=self.now,
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
        self.now += self.rng.randint(0, 50)
        if self.rng.random() < 0.02:
            self.ends[number] += self.rng.randint(1, 3)
        elif self.happens(0.005):
            self.ends[number] = max(0, self.ends[number] - 2)
        if what is None:
            batch = build_batch(
                [Record(value=b"v")],
                base_offset=self.ends[number],
                base_timestamp=self.now,
                producer_id=producer.producer_id,
                producer_epoch=epoch,
                base_sequence=0,
                is_transactional=True,
            )
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
        if self.rng.random() < 0.3:  # the last transaction is under way
            producer = self.rng.choice(self.producers)
            self.append(self.rng.randrange(len(self.partitions)), producer, None, producer.epoch)

    def write(self, folder: Path) -> None:
        """Write the logs as a broker's log directory."""
        for number, batches in enumerate(self.partitions):
            self._write(folder / f"orders-{number}", batches)
        for number, batches in enumerate(self.states):
            kept = self.rng.random()
            if kept < 0.1:
                continue
            self._write(folder / f"{TOPIC}-{number}", batches[3:] if kept < 0.2 else batches)
        if self.happens(0.05):  # of another cluster
            self._write(folder / f"{TOPIC}-7", self.states[0][:2])

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

    def source(self, logs: Iterable[PartitionLog]) -> Source:
        """The facts on the moments of the logs."""
        if self.rng.random() < 0.5:
            return Source(longest_ms=self.rng.choice((900_000, 10**9)))
        marks = {(log.topic, log.partition): self.rng.randint(0, 60) for log in logs if self.rng.random() < 0.7}
        directory = Directory(
            read_ms=self.rng.choice((None, self.now + 10, self.now + 600_000)),
            stopped=self.rng.random() < 0.2,
            high_watermarks=marks,
            checkpoint_ms=float(self.rng.choice((self.now, self.now + 100_000))),
        )
        folders = {Path(log.folder).parent for log in logs}
        return Source(one_moment=False, directories=dict.fromkeys(folders, directory))


Row = tuple[object, ...]


def rows_of(audit: TransactionAudit) -> Counter[Row]:
    """Findings without their times, figures and reasons, as rows that can be compared."""
    rows: Counter[Row] = Counter(astuple(replace(finding, time_ms=None)) for finding in audit.findings)
    rows.update((rule, name, int(value)) for rule in TRANSACTION_RULES for name, value in audit.figures[rule].items())
    rows.update(
        (rule, reason, count) for rule, reasons in audit.reasons.items() for reason, count in reasons.items() if count
    )
    return rows


def by_steps(
    logs: list[PartitionLog], engine: Engine, source: Source, split_bytes: int
) -> tuple[TransactionAudit, Scanned]:
    """The audit by the plan that users run, and its scan."""
    scanned = stages.scan_logs(logs, engine, source, split_bytes=split_bytes)
    states, known = stages.audit_coordinators(scanned, engine)
    return stages.judge_transactions(scanned, states, known, engine, source), scanned


def beside_rows(transactions: Transactions, last: Iterable[Last], offset: int) -> tuple[object, ...]:
    """The answers that the rules over indexes and snapshots get from a log, at an offset."""
    aborts = [
        (each.offset, each.producer_id, each.ends and each.ends.offset, transactions.holes or each.last_stable_offset)
        for segment in transactions.log.segments
        for each in transactions.aborts_in(segment.partition(".")[0])
    ]
    for segment in transactions.log.segments:
        name = segment.partition(".")[0]
        due = transactions.index_of(name)
        told = [
            (each.producer_id, each.ends and each.ends.offset, each.offset, each.last_stable_offset)
            for each in transactions.aborts_in(name)
        ]
        assert due is None or [entry[1:] for entry in due.tolist()] == told, "the index by columns is that by markers"
    [(_, producers)] = producers_at([offset], last, transactions)
    return aborts, transactions.coordinator_epochs_at(offset), transactions.open_at(offset), sorted(producers.items())


def whole_rows(scanned: Scanned, engine: Engine, offset: int) -> list[tuple[object, ...]]:
    """The same rows of all partitions: from their scan, or from the readable rules where their order needs these."""
    values: dict[int, list[tuple[Part, Last]]] = defaultdict(list)
    for number, value in (each for rows in scanned.rows for each in engine.collect(stages.BESIDE, rows)):
        values[number].append(value)
    rows = []
    for number, audit in enumerate(scanned.audits):
        if audit.log.topic == TOPIC:
            continue
        told = sorted(values[number], key=lambda value: value[0][:3])
        found = whole_log(audit.partition or Partition(log=audit.log), [part for part, _ in told])
        last = [own for _, own in told]
        if found is None or not told:
            rows.append(beside_rows(read_transactions(audit.log), read_last(audit.log, [offset]), offset))
        else:
            rows.append(beside_rows(found, last, offset))
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
        split_bytes, at = cluster.rng.choice((100, 1000, 100_000)), cluster.rng.randint(0, 40)
        for log in logs:
            Path(log.folder, f"{at:020d}.snapshot").write_bytes(b"its producers are asked for")
        found, scanned = by_steps(logs, running, source, split_bytes)
        partitions = [log for log in logs if log.topic != TOPIC]
        ordered = [beside_rows(read_transactions(log), read_last(log, [at]), at) for log in partitions]
        whole = whole_rows(scanned, running, at)
    kinds = Counter(f"{finding.rule}, {finding.kind}" for finding in expected.findings)
    wanted, got = rows_of(expected), rows_of(found)
    if ordered != whole:
        return f"next to the logs: readable {ordered}, by steps {whole}", kinds
    if wanted == got:
        return "", kinds
    return f"only readable: {[*(wanted - got)]}, only by steps: {[*(got - wanted)]}", kinds


def judge(count: int, first: int = 0) -> Verdict:
    """Compare ``count`` clusters, with seeds from ``first`` on."""
    return compare("transactions by steps", "cluster", "clusters", difference, count, first)
