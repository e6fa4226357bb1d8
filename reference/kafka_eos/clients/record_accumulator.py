"""The producer's memory between ``send()`` and the network: batches by size and linger, and what runs out.

A record joins the last batch of its partition if that has room, or begins another, for which memory is taken from
``buffer.memory``. Without memory ``send()`` waits, for ``max.block.ms`` at most. A batch is sent when it is full, when
it has lingered, when another batch follows it, or when a record waits for memory. It keeps its memory until it is
acknowledged or given up. It is given up ``delivery.timeout.ms`` after it was begun, wherever it is by then.
A refused batch is sent again. With an idempotent producer it keeps its place; with any other, the batches in flight
overtake it. The backoff between two attempts is left out.

Time is an argument, in milliseconds; nothing happens by itself.

Departs from Kafka: records that wait for memory are served in turn, where Kafka lets a later record overtake if it
needs less; a batch that is given up in flight gives its memory back at once, where Kafka waits for the answer.

Kafka: org.apache.kafka.clients.producer.internals.RecordAccumulator, BufferPool, Sender, ProducerBatch
KIP:   KIP-91
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from kafka_eos.clients.metrics import SenderMetrics
from kafka_eos.clients.settings import ProducerSettings
from kafka_eos.formats.record_batch import HEADER_BYTES


class RecordTooLarge(ValueError):  # noqa: N818 - Kafka's name, and named for the input
    """A record for which ``buffer.memory`` would not be enough if all of it were free.

    Kafka: RecordTooLargeException
    """


class NothingInFlight(ValueError):  # noqa: N818 - named for the input
    """An answer for a partition none of whose batches is in flight."""


class Appended(StrEnum):
    """The outcome of ``append`` for a record."""

    JOINED = "joined"  # the last batch of its partition
    BEGAN = "began"  # a batch of its own
    WAITS = "waits"  # for memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that has not ended.

    Attributes:
        number: the batch's place in the order in which the producer began its batches.
        partition: its partition.
        created_ms: when it was begun.
        records: the number of its records.
        size: bytes, the header's included.
        memory: bytes that it holds of ``buffer.memory``.
        attempts: how often it was sent.
    """

    number: int
    partition: int
    created_ms: int
    records: int
    size: int
    memory: int
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A record whose ``send()`` waits for memory.

    Attributes:
        partition: its partition.
        size: bytes that it takes in a batch.
        since_ms: when it began to wait.
    """

    partition: int
    size: int
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut:
    """The batches that are given up, with all of their records, and the records whose ``send()`` fails.

    Attributes:
        batches: those whose ``delivery.timeout.ms`` has passed; each record's future fails with a TimeoutException.
        waiters: those whose ``max.block.ms`` has passed; ``send()`` fails with a BufferExhaustedException.
    """

    batches: tuple[Batch, ...] = ()
    waiters: tuple[Waiter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordAccumulator:
    """The batches of a producer.

    Attributes:
        settings: the producer's settings.
        queued: batches that wait to be sent; those of a partition in their order.
        in_flight: batches that were sent and not yet answered, in the order in which they were sent.
        waiters: records that wait for memory, the first to be served first.
        begun: the number of batches that were begun.
        metrics: records sent, sent again and given up.
    """

    settings: ProducerSettings
    queued: tuple[Batch, ...] = ()
    in_flight: tuple[Batch, ...] = ()
    waiters: tuple[Waiter, ...] = ()
    begun: int = 0
    metrics: SenderMetrics = field(default_factory=SenderMetrics)

    @property
    def free(self) -> int:
        """Bytes of ``buffer.memory`` that no batch holds."""
        return self.settings.buffer_memory - sum(batch.memory for batch in (*self.queued, *self.in_flight))

    def append(self, partition: int, size: int, now_ms: int) -> tuple[Self, Appended]:
        """Take a record from ``send()``.

        Args:
            partition: the record's partition.
            size: bytes that it takes in a batch.
            now_ms: the time.

        Raises:
            RecordTooLarge: when it will never fit.

        Kafka: RecordAccumulator.append, KafkaProducer.ensureValidRecordSize
        """
        if HEADER_BYTES + size > self.settings.buffer_memory:
            raise RecordTooLarge(f"{HEADER_BYTES + size} bytes, where buffer.memory has {self.settings.buffer_memory}")
        last = next((batch for batch in reversed(self.queued) if batch.partition == partition), None)
        if last is not None and last.attempts == 0 and last.size + size <= self.settings.batch_size:
            joined = replace(last, records=last.records + 1, size=last.size + size)
            queued = tuple(joined if batch.number == last.number else batch for batch in self.queued)
            return replace(self, queued=queued), Appended.JOINED
        waiter = Waiter(partition=partition, size=size, since_ms=now_ms)
        if self.waiters or self._memory_for(size) > self.free:
            return replace(self, waiters=(*self.waiters, waiter)), Appended.WAITS
        return self._begun(waiter, now_ms), Appended.BEGAN

    def ready(self, now_ms: int) -> tuple[Batch, ...]:
        """The batches that may be sent now: the first of each partition, if it need not wait any longer.

        Kafka: RecordAccumulator.batchReady
        """
        return tuple(batch for batch, following in self._first_of_each() if self._is_ready(batch, following, now_ms))

    def drain(self, now_ms: int) -> tuple[Self, tuple[Batch, ...]]:
        """Send what is ready, one batch a partition, as far as ``max.in.flight.requests.per.connection`` lets it.

        Kafka: RecordAccumulator.drain
        """
        limit = self.settings.max_in_flight_requests_per_connection
        sent = [
            batch for batch in self.ready(now_ms) if sum(b.partition == batch.partition for b in self.in_flight) < limit
        ]
        numbers = {batch.number for batch in sent}
        queued = tuple(batch for batch in self.queued if batch.number not in numbers)
        moved = tuple(replace(batch, attempts=batch.attempts + 1) for batch in sent)
        counted = replace(self.metrics, sent=self.metrics.sent.recorded(_records(moved), now_ms))
        return replace(self, queued=queued, in_flight=(*self.in_flight, *moved), metrics=counted), moved

    def acknowledged(self, partition: int, now_ms: int) -> Self:
        """The first batch of a partition in flight is stored: its memory is free, and waiting records are served.

        Raises:
            NothingInFlight: when there is none.

        Kafka: Sender.completeBatch, BufferPool.deallocate
        """
        return self._answered(partition)[0]._served(now_ms)

    def refused(self, partition: int, now_ms: int) -> tuple[Self, Batch | None]:
        """The first batch of a partition in flight met a retriable error: it is queued again, before the others.

        Returns:
            The batch, if its ``retries`` or its time are used up and it fails for good.

        Raises:
            NothingInFlight: when there is none.

        Kafka: Sender.canRetry, RecordAccumulator.reenqueue, insertInSequenceOrder
        """
        rest, answered = self._answered(partition)
        if answered.attempts > self.settings.retries or self._is_late(answered, now_ms):
            return rest._failed(answered.records, now_ms)._served(now_ms), answered
        queued = (answered, *rest.queued)
        if self.settings.enable_idempotence:
            queued = tuple(sorted(queued, key=lambda batch: batch.number))
        counted = replace(self.metrics, retried=self.metrics.retried.recorded(answered.records, now_ms))
        return replace(rest, queued=queued, metrics=counted), None

    def time_out(self, now_ms: int) -> tuple[Self, TimedOut]:
        """Give up what has taken too long; the memory of its batches goes to the records that still wait for it.

        Kafka: RecordAccumulator.expiredBatches, Sender.getExpiredInflightBatches, BufferPool.allocate
        """
        late = tuple(batch for batch in (*self.queued, *self.in_flight) if self._is_late(batch, now_ms))
        exhausted = tuple(waiter for waiter in self.waiters if self._is_exhausted(waiter, now_ms))
        left = replace(
            self,
            queued=tuple(batch for batch in self.queued if not self._is_late(batch, now_ms)),
            in_flight=tuple(batch for batch in self.in_flight if not self._is_late(batch, now_ms)),
            waiters=tuple(waiter for waiter in self.waiters if not self._is_exhausted(waiter, now_ms)),
        )
        left = left._failed(_records(late) + len(exhausted), now_ms)
        return left._served(now_ms), TimedOut(batches=late, waiters=exhausted)

    def next_ms(self, now_ms: int) -> int | None:
        """The time at which a batch will be ready or a record too late, None if never."""
        settings = self.settings
        times = [batch.created_ms + settings.delivery_timeout_ms for batch in (*self.queued, *self.in_flight)]
        times += [waiter.since_ms + settings.max_block_ms for waiter in self.waiters]
        times += [
            now_ms if self._is_ready(batch, following, now_ms) else batch.created_ms + settings.linger_ms
            for batch, following in self._first_of_each()
        ]
        return max(now_ms, min(times)) if times else None

    def _failed(self, records: int, now_ms: int) -> Self:
        return replace(self, metrics=replace(self.metrics, failed=self.metrics.failed.recorded(records, now_ms)))

    def _memory_for(self, size: int) -> int:
        return max(self.settings.batch_size, HEADER_BYTES + size)

    def _begun(self, waiter: Waiter, now_ms: int) -> Self:
        size = HEADER_BYTES + waiter.size
        memory = self._memory_for(waiter.size)
        batch = Batch(
            number=self.begun, partition=waiter.partition, created_ms=now_ms, records=1, size=size, memory=memory
        )
        return replace(self, queued=(*self.queued, batch), begun=self.begun + 1)

    def _served(self, now_ms: int) -> Self:
        """Append the records that have waited, as far as the memory goes."""
        served = replace(self, waiters=())
        for position, waiter in enumerate(self.waiters):
            after, outcome = served.append(waiter.partition, waiter.size, now_ms)
            if outcome is Appended.WAITS:
                return replace(served, waiters=self.waiters[position:])
            served = after
        return served

    def _first_of_each(self) -> Iterator[tuple[Batch, bool]]:
        """The first queued batch of each partition, and whether another follows it."""
        seen: dict[int, list[Batch]] = {}
        for batch in self.queued:
            seen.setdefault(batch.partition, []).append(batch)
        for batches in seen.values():
            yield batches[0], len(batches) > 1

    def _is_ready(self, batch: Batch, following: bool, now_ms: int) -> bool:
        lingered = batch.attempts > 0 or now_ms - batch.created_ms >= self.settings.linger_ms
        return following or lingered or batch.size >= self.settings.batch_size or bool(self.waiters)

    def _is_late(self, batch: Batch, now_ms: int) -> bool:
        """Kafka: ProducerBatch.hasReachedDeliveryTimeout."""
        return now_ms - batch.created_ms >= self.settings.delivery_timeout_ms

    def _is_exhausted(self, waiter: Waiter, now_ms: int) -> bool:
        return now_ms - waiter.since_ms >= self.settings.max_block_ms

    def _answered(self, partition: int) -> tuple[Self, Batch]:
        """Take the first batch of a partition in flight."""
        found = next((batch for batch in self.in_flight if batch.partition == partition), None)
        if found is None:
            raise NothingInFlight(f"no batch of partition {partition} is in flight")
        return replace(self, in_flight=tuple(b for b in self.in_flight if b.number != found.number)), found


def _records(batches: Iterable[Batch]) -> int:
    return sum(batch.records for batch in batches)
