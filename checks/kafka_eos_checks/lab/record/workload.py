"""The program of a librdkafka client: it sends, copies, commits and aborts, and writes events on standard output.

A line is the machine's monotonic clock in nanoseconds, a space, and the columns of an event. The line of an invocation
is written before the call, the line of an answer after it.
"""

import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.lab.record.clients import FATAL_EXIT, Workload

_CALL_SECONDS = 30.0
_NO_COORDINATOR = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


class GaveUp(Exception):  # noqa: N818 - what the client does
    """Raised for a fatal error: this producer can do nothing more."""


class _MustAbort(GaveUp):
    """Raised if the transaction can only be aborted; without a transaction the client gives up."""


def tell(action: str, phase: str, **columns: Any) -> None:
    """Write one event."""
    row = {"action": action, "phase": phase} | {k: v for k, v in columns.items() if v is not None}
    sys.stdout.write(f"{time.monotonic_ns()} {json.dumps(row, separators=(',', ':'))}\n")
    sys.stdout.flush()


def committed_offsets(kafka: Any, consumer: Any, partitions: list[Any]) -> list[Any]:
    """The committed offsets of a consumer's group; retried while its coordinator is not found or not ready.

    Args:
        kafka: the module ``confluent_kafka``.
        consumer: a consumer of the group.
        partitions: the partitions of the offsets.
    """
    deadline = time.monotonic() + 2 * _CALL_SECONDS
    while True:
        try:
            found: list[Any] = consumer.committed(partitions, _CALL_SECONDS)
        except kafka.KafkaException as failure:
            if failure.args[0].code() not in _NO_COORDINATOR or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return found


class Source:
    """The topic that a client copies: a consumer with all its partitions, without rebalances.

    Its position does not go back by itself after an abort.
    """

    def __init__(self, kafka: Any, workload: Workload, **settings: Any) -> None:
        self.kafka = kafka
        self.workload = workload
        self.consumer = kafka.Consumer(
            {
                "bootstrap.servers": workload.bootstrap,
                "client.id": workload.client,
                "broker.address.family": "v4",
                "group.id": workload.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 250,
                **settings,
            }
        )
        self._kept: dict[int, int] = {}  # partition -> the offset at which the transaction begins
        self._next: dict[int, int] = {}  # partition -> the offset that is read next

    def begin(self) -> None:
        """Begin at the committed offsets. Wait for those of a transaction that has not ended yet."""
        partitions = [
            self.kafka.TopicPartition(self.workload.source, number) for number in range(self.workload.partitions)
        ]
        committed = committed_offsets(self.kafka, self.consumer, partitions)
        self._next = {each.partition: max(0, each.offset) for each in committed}
        self.keep()
        self.rewind()

    def keep(self) -> None:
        """Note that the records that were read are committed."""
        self._kept = dict(self._next)

    def rewind(self) -> None:
        """Go back to the positions at which the transaction began."""
        self._next = dict(self._kept)
        self.consumer.assign(self.offsets())

    def offsets(self) -> list[Any]:
        """The positions, in confluent-kafka's form."""
        return [self.kafka.TopicPartition(self.workload.source, *place) for place in sorted(self._next.items())]

    def group_metadata(self) -> Any:
        """The group of the offsets, with member and generation."""
        return self.consumer.consumer_group_metadata()

    def read(self, records: int) -> list[str]:
        """The next values; fewer only at the source's end."""
        values: list[str] = []
        while len(values) < records and sum(self._next.values()) < self.workload.records:
            message = self.consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            value = message.value().decode()
            place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
            common = {"group": self.workload.group, "isolation": "read_committed", "detail": {"value": value}}
            tell("Poll", "ok", **place, **common)
            self._next[message.partition()] = message.offset() + 1
            values.append(value)
        return values


class Client:
    """A producer with its workload."""

    def __init__(self, workload: Workload) -> None:
        self.kafka = need("confluent_kafka", "record")
        self.workload = workload
        self.sent = 0
        self.transaction: int | None = None
        self.fatal = False
        self._paused = False
        settings: dict[str, Any] = {
            "bootstrap.servers": workload.bootstrap,
            "client.id": workload.client,
            "broker.address.family": "v4",
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "batch.num.messages": workload.batch,
            "message.timeout.ms": workload.timeout_ms,
            "socket.timeout.ms": min(10_000, workload.timeout_ms),
            "request.timeout.ms": 5_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 250,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 5_000,
            "statistics.interval.ms": 0,
        }
        if workload.transactional_id is not None:
            settings |= {"transactional.id": workload.transactional_id, "transaction.timeout.ms": workload.timeout_ms}
        self.producer = self.kafka.Producer(settings | (workload.config or {}))
        self.source = self.open_source()

    def open_source(self) -> Source | None:
        """The source of its inputs; None for a client that makes values of its own."""
        return Source(self.kafka, self.workload) if self.workload.source is not None else None

    def send(self, value: str) -> None:
        """Send a record, in turn to each partition and topic."""
        partition, turn = self.sent % self.workload.partitions, self.sent // self.workload.partitions
        topics = (self.workload.topic, *self.workload.also)
        self.send_to(topics[turn % len(topics)], partition, value)

    def send_to(self, topic: str, partition: int, value: str, **detail: Any) -> None:
        """Send a record to a partition; ``detail`` goes into the event of the call, not into that of its outcome."""
        self.sent += 1
        common: dict[str, Any] = {
            "topic": topic,
            "partition": partition,
            "transactional_id": self.workload.transactional_id,
            "detail": {"value": value} | ({} if self.transaction is None else {"transaction": self.transaction}),
        }
        tell("Send", "invoke", **(common | {"detail": common["detail"] | detail}))
        try:
            self.producer.produce(
                topic,
                value.encode(),
                partition=partition,
                on_delivery=lambda error, message: self._delivered(common, error, message),
            )
        except self.kafka.KafkaException as error:  # refused by the client itself: nothing left the process
            tell("Send", "fail", **self._blame(common, error.args[0]))
            raise (GaveUp if error.args[0].fatal() else _MustAbort) from None
        self.poll(0)

    def _delivered(self, common: dict[str, Any], error: Any, message: Any) -> None:
        if error is None:
            tell("Send", "ok", **common, offset=message.offset())
            return
        # Only a record purged from the queue was certainly never sent. Any other error, even a refusal by
        # the broker, may follow an earlier attempt whose answer was lost.
        never_sent = error.code() == self.kafka.KafkaError._PURGE_QUEUE
        tell("Send", "fail" if never_sent else "info", **self._blame(common, error))

    @staticmethod
    def _blame(common: dict[str, Any], error: Any) -> dict[str, Any]:
        """The columns with the error: Kafka's codes in ``error``, librdkafka's own (below -1) only in ``detail``."""
        code = error.code()
        detail = common.get("detail", {}) | {"reason": error.name()}
        return common | {"detail": detail, "error": code if code >= -1 else None}

    def pause(self) -> None:
        """Rest, and serve delivery reports meanwhile."""
        end = time.monotonic() + self.workload.pause_ms / 1000
        while (left := end - time.monotonic()) > 0:
            self.poll(left)  # returns early if there was a report to serve

    def send_all(self) -> None:
        """Do an idempotent producer's work."""
        self.send_some(self.next_values(self.workload.records))
        self.drain()
        if self.fatal:
            raise GaveUp

    def drain(self) -> None:
        """Wait for the outcome of every record sent."""
        deadline = time.monotonic() + 2 * self.workload.timeout_ms / 1000
        while len(self.producer) and time.monotonic() < deadline:
            self.poll(0.1)
        assert not len(self.producer), f"{len(self.producer)} records are open after twice the delivery timeout"

    def poll(self, seconds: float) -> None:
        """Serve delivery reports; confluent-kafka raises a fatal error from poll, and from flush without its name."""
        try:
            self.producer.poll(seconds)
        except self.kafka.KafkaException as failure:
            if not failure.args[0].fatal():
                raise
            self.fatal = True

    def next_values(self, records: int) -> list[Any]:
        """The values of the next records, at most that many; none after the last."""
        if self.source is not None:
            return self.source.read(records)
        numbers = range(self.sent, self.sent + min(records, self.workload.records - self.sent))
        return [self.workload.values[n] if self.workload.values else f"{self.workload.prefix}{n}" for n in numbers]

    def send_some(self, values: list[Any]) -> None:
        """Send records, with a pause after each batch's worth."""
        for value in values:
            self.send(value)
            if self.sent % self.workload.batch == 0:
                self.pause()

    def may_pause(self, call: str) -> None:
        """Pause after a call if the workload says so, until a line comes on standard input."""
        if not self._paused and self.workload.pause_after == call:
            self._paused = True
            common = {"transactional_id": self.workload.transactional_id, "detail": {"after": call}}
            tell("Pause", "invoke", **common)
            sys.stdin.readline()
            tell("Pause", "ok", **common)

    def transactions(self) -> None:
        """Do a transactional producer's work."""
        dice = random.Random(self.workload.seed)
        self._call(None, {}, lambda: self.producer.init_transactions(_CALL_SECONDS))
        self.may_pause("init")
        if self.source is not None:
            self.source.begin()
        size, sends = self.workload.transaction_size, 1
        if self.workload.offsets_each:
            size, sends = 1, size
        for self.transaction in itertools.count():
            values = self.next_values(size)
            if not values:
                return
            self.may_pause("poll")
            common = {"transactional_id": self.workload.transactional_id, "detail": {"transaction": self.transaction}}
            self._call("BeginTransaction", common, self.producer.begin_transaction)
            self.may_pause("begin")
            try:
                self.copy(values, common)
                for _ in range(1, sends):
                    self.copy(self.next_values(size), common)
                if dice.random() < self.workload.abort_chance:
                    self._abort(common)
                else:
                    self._commit(common)
            except _MustAbort:
                self._abort(common)

    def copy(self, values: list[Any], common: dict[str, Any]) -> None:
        """Send records in the transaction, and the source's offsets after them."""
        self.send_some(values)
        self.may_pause("produce")
        self.drain()
        self.may_pause("flush")
        self.send_offsets(common)

    def send_offsets(self, common: dict[str, Any]) -> None:
        """Make the source's offsets part of the transaction."""
        if self.source is None:
            return
        offsets, group = self.source.offsets(), self.source.group_metadata()
        told = {str(each.partition): each.offset for each in offsets}
        about = common | {"topic": self.workload.source, "group": self.workload.group}
        about["detail"] = common["detail"] | {"offsets": told}
        if not self._call(
            "SendOffsetsToTransaction",
            about,
            lambda: self.producer.send_offsets_to_transaction(offsets, group, _CALL_SECONDS),
        ):
            raise _MustAbort
        self.may_pause("send_offsets")

    def _commit(self, common: dict[str, Any]) -> None:
        if not self._call("CommitTransaction", common, lambda: self.producer.commit_transaction(_CALL_SECONDS)):
            self._abort(common)
            return
        if self.source is not None:
            self.source.keep()
        self.may_pause("commit")

    def _abort(self, common: dict[str, Any]) -> None:
        # Flushed first: abort as the first act after begin is sometimes fatal (librdkafka issue 4849).
        self.drain()
        self._call("AbortTransaction", common, lambda: self.producer.abort_transaction(_CALL_SECONDS))
        if self.source is not None:
            self.source.rewind()

    def _call(self, action: str | None, common: dict[str, Any], call: Callable[[], None]) -> bool:
        """Make a transactional call and write its events; return False if the transaction must be aborted.

        After a retriable error the outcome is open, and the same call is repeated, as the API requires.
        """
        while True:
            if action:
                tell(action, "invoke", **common)
            try:
                call()
            except self.kafka.KafkaException as failure:
                error = failure.args[0]
                if action:
                    known = error.txn_requires_abort()
                    tell(action, "fail" if known else "info", **self._blame(common, error))
                if error.retriable():
                    continue
                if error.txn_requires_abort():
                    return False
                raise GaveUp from None
            if action:
                tell(action, "ok", **common)
            return True


def run(client: Client) -> int:
    """Run a client; exit code 0, or FATAL_EXIT when the producer met a fatal error."""
    try:
        if client.workload.transactional_id is None:
            client.send_all()
        else:
            client.transactions()
    except GaveUp:
        client.producer.purge()
        client.drain()
        return FATAL_EXIT
    return 0


def main(argument: str) -> int:
    """Run a workload given as JSON."""
    return run(Client(Workload(**json.loads(argument))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
