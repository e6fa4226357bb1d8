"""A cluster written by a test: logs, a coordinator's answers, and a watcher over them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    TimestampType,
    build_batch,
    build_control_batch,
)
from kafka_eos_checks.audit.oracle.synthetic import stored
from kafka_eos_checks.audit.rules.log import Batch
from kafka_eos_checks.conform.wire import Unreachable
from kafka_eos_checks.watch.advice import Tools
from kafka_eos_checks.watch.cluster import READ_COMMITTED, Fetched, Place, Topics, Transaction
from kafka_eos_checks.watch.watcher import Options, Watcher

PLACE = ("orders", 0)
STAMP_MS = 1_600_000_000_000  # by the producers' clock


@dataclass
class Log:
    """A partition: encoded batches with their first offsets, and the leader's answers about it."""

    batches: list[tuple[int, bytes]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    stable: int | None = None
    watermark: int | None = None  # the high watermark, if that is not the end

    def append(self, batch: Batch) -> int:
        self.batches.append((batch.base_offset, stored(batch).encode()))
        self.end = max(self.end, batch.last_offset + 1)
        return batch.base_offset

    def data(self, pid: int, epoch: int, sequence: int, stamp_ms: int = STAMP_MS, *, by_broker: bool = False) -> int:
        """Append a transactional batch of one record; return its offset."""
        made = build_batch(
            [Record(value=b"v")],
            base_offset=self.end,
            base_timestamp=stamp_ms,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
            timestamp_type=TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME,
        )
        self.batches.append((self.end, made.encode()))
        self.end += 1
        return made.base_offset

    def marker(self, pid: int, epoch: int, decision: ControlType = ControlType.ABORT) -> None:
        record = ControlRecord(control_type=decision, coordinator_epoch=0)
        made = build_control_batch(record, producer_id=pid, producer_epoch=epoch)
        self.batches.append((self.end, replace(made, base_offset=self.end).encode()))
        self.end += 1


@dataclass
class Written:
    """A fake of a cluster.

    Attributes:
        logs: the logs, by partition.
        known: the coordinators' answers; None for no answer.
        prepared: the transactions that coordinators have prepared; None for no answer.
        asked: the number of requests to them.
        batches_a_fetch: the number of batches in an answer.
        errors: the error that answers for a partition instead.
        leaders: the leaders of some partitions, -1 for none; the others have one leader.
        unsure: the topics of which nothing can be told at the moment.
        gone: the brokers that do not answer.
        untold: the timestamps to which the leader finds no offset.
        waits: the time that each request for data may wait for more, in milliseconds.
        leader: the leader of the partitions without one of their own.
        started: producer id -> start of its transaction by the leader; None takes it from the log.
    """

    logs: dict[Place, Log] = field(default_factory=lambda: {PLACE: Log()})
    known: Mapping[int, Transaction] | None = field(default_factory=dict)
    prepared: list[Transaction] | None = field(default_factory=list)
    asked: int = 0
    batches_a_fetch: Callable[[], int] = lambda: 100
    topic_id: str = "id"
    cluster_id: str = "cluster"
    errors: dict[Place, ErrorCode] = field(default_factory=dict)
    leaders: dict[Place, int] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    untold: set[int] = field(default_factory=set)
    waits: list[int] = field(default_factory=list)
    leader: int = 1
    started: Mapping[int, int] | None = None

    def topics(self) -> Topics:
        known = [place for place in self.logs if place[0] not in self.unsure]
        return Topics(
            cluster_id=self.cluster_id,
            leaders={place: self.leaders.get(place, self.leader) for place in known},
            ids={topic: self.topic_id for topic, _ in known},
            unsure=frozenset(self.unsure),
        )

    def offsets(self, node: int, places: list[Place], timestamp: int, isolation: int) -> dict[Place, int]:
        def offset(log: Log) -> int:
            if timestamp == -2:
                return log.start
            return log.stable if isolation == READ_COMMITTED and log.stable is not None else log.end

        if node in self.gone:
            raise Unreachable("nobody there")
        told = [place for place in places if timestamp not in self.untold and place not in self.errors]
        return {place: offset(self.logs[place]) for place in told}

    def fetch(self, node: int, positions: dict[Place, int], wait_ms: int) -> dict[Place, Fetched]:
        self.waits.append(wait_ms)
        if node in self.gone:
            raise Unreachable("nobody there")
        return {place: self._fetch(place, position) for place, position in positions.items()}

    def _fetch(self, place: Place, position: int) -> Fetched:
        log = self.logs[place]
        error = self.errors.get(place, ErrorCode.NONE)
        if error is ErrorCode.NONE and not log.start <= position <= log.end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        first = next((n for n, (offset, _) in enumerate(log.batches) if offset >= position), len(log.batches))
        rest = [] if error else [data for _, data in log.batches[first:]]
        stable = log.end if log.stable is None else log.stable
        return Fetched(
            error=error,
            high_watermark=log.end if log.watermark is None else log.watermark,
            last_stable_offset=stable,
            records=b"".join(rest[: self.batches_a_fetch()]),
        )

    def transactions_of(self, producer_ids: set[int]) -> dict[int, Transaction] | None:
        self.asked += 1
        if self.known is None:
            return None
        return {pid: self.known[pid] for pid in producer_ids if pid in self.known}

    def prepared_transactions(self) -> list[Transaction] | None:
        return self.prepared

    def open_transactions(self, node: int, place: Place) -> Mapping[int, int] | None:  # noqa: ARG002
        return self.started

    def close(self) -> None:
        """End no connection."""

    def watcher(self, told: list[str] | None = None, **options: object) -> Watcher:
        usual = Options(
            topics=frozenset(),
            from_start=True,
            hanging_after_ms=0,
            lag_after_ms=60_000,
            check_ms=0,
            forget_after_ms=86_400_000,
            tools=Tools(),
        )
        given = replace(usual, **options)  # type: ignore[arg-type]
        tell = (lambda _: None) if told is None else told.append
        return Watcher(self, given, tell)  # type: ignore[arg-type]


@pytest.fixture
def written() -> Written:
    """A cluster with one empty partition, ``orders-0``."""
    return Written()
