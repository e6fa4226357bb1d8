"""The program of a librdkafka client: sends, commits, aborts, and says on standard output what it knows.

A line is the machine's monotonic clock in nanoseconds, a space, and the columns of an event. It is written before a
call whose invocation it tells, and after the answer that it tells.
"""

import itertools
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from kafka_eos_checks.missing import need
from kafka_eos_checks.record.clients import FATAL_EXIT, Workload

_CALL_SECONDS = 30.0


class _GaveUp(Exception):  # noqa: N818 - what the client does
    """A fatal error: this producer can do nothing more."""


class _MustAbort(_GaveUp):
    """The transaction can only be aborted; without one there is nothing left to do."""


def tell(action: str, phase: str, **columns: Any) -> None:
    """Write one event."""
    row = {"action": action, "phase": phase} | {k: v for k, v in columns.items() if v is not None}
    sys.stdout.write(f"{time.monotonic_ns()} {json.dumps(row, separators=(',', ':'))}\n")
    sys.stdout.flush()


class Client:
    """One producer with its workload."""

    def __init__(self, workload: Workload) -> None:
        self.kafka = need("confluent_kafka", "record")
        self.workload = workload
        self.sent = 0
        self.transaction: int | None = None
        self.fatal = False
        settings: dict[str, Any] = {
            "bootstrap.servers": workload.bootstrap,
            "client.id": workload.client,
            "broker.address.family": "v4",
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "batch.num.messages": workload.batch,
            "message.timeout.ms": workload.timeout_ms,
            "socket.timeout.ms": 10_000,
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

    def send(self) -> None:
        """Send the next record."""
        value = f"{self.workload.prefix}{self.sent}"
        partition = self.sent % self.workload.partitions
        self.sent += 1
        common = {
            "topic": self.workload.topic,
            "partition": partition,
            "transactional_id": self.workload.transactional_id,
            "detail": {"value": value} | ({} if self.transaction is None else {"transaction": self.transaction}),
        }
        tell("Send", "invoke", **common)
        try:
            self.producer.produce(
                self.workload.topic,
                value.encode(),
                partition=partition,
                on_delivery=lambda error, message: self._delivered(common, error, message),
            )
        except self.kafka.KafkaException as error:  # refused by the client itself: nothing left the process
            tell("Send", "fail", **self._blame(common, error.args[0]))
            raise (_GaveUp if error.args[0].fatal() else _MustAbort) from None
        self.poll(0)

    def _delivered(self, common: dict[str, Any], error: Any, message: Any) -> None:
        if error is None:
            tell("Send", "ok", **common, offset=message.offset())
            return
        # Only a record purged from the queue is known to have never been sent. Any other error, even a refusal by
        # the broker, may follow an earlier attempt whose answer was lost.
        never_sent = error.code() == self.kafka.KafkaError._PURGE_QUEUE
        tell("Send", "fail" if never_sent else "info", **self._blame(common, error))

    @staticmethod
    def _blame(common: dict[str, Any], error: Any) -> dict[str, Any]:
        """The columns with the error: Kafka's codes in ``error``, librdkafka's own (below -1) in ``detail`` only."""
        code = error.code()
        detail = common.get("detail", {}) | {"reason": error.name()}
        return common | {"detail": detail, "error": code if code >= -1 else None}

    def pause(self) -> None:
        """Rest, and serve delivery reports meanwhile."""
        end = time.monotonic() + self.workload.pause_ms / 1000
        while (left := end - time.monotonic()) > 0:
            self.poll(left)  # returns early when there was something to serve

    def send_all(self) -> None:
        """An idempotent producer's work."""
        self._send_some(self.workload.records)
        self.drain()
        if self.fatal:
            raise _GaveUp

    def drain(self) -> None:
        """Wait for the outcome of every record sent."""
        deadline = time.monotonic() + 2 * self.workload.timeout_ms / 1000
        while len(self.producer) and time.monotonic() < deadline:
            self.poll(0.1)
        assert not len(self.producer), f"{len(self.producer)} records open after twice the delivery timeout"

    def poll(self, seconds: float) -> None:
        """Serve delivery reports; confluent-kafka raises a fatal error out of poll, and out of flush unnamed."""
        try:
            self.producer.poll(seconds)
        except self.kafka.KafkaException as failure:
            if not failure.args[0].fatal():
                raise
            self.fatal = True

    def _send_some(self, records: int) -> None:
        """Send records, with a rest after each batch's worth."""
        for _ in range(records):
            self.send()
            if self.sent % self.workload.batch == 0:
                self.pause()

    def transactions(self) -> None:
        """A transactional producer's work."""
        dice = random.Random(self.workload.seed)
        self._call(None, {}, lambda: self.producer.init_transactions(_CALL_SECONDS))
        for self.transaction in itertools.count():
            if self.sent >= self.workload.records:
                return
            common = {"transactional_id": self.workload.transactional_id, "detail": {"transaction": self.transaction}}
            self._call("BeginTransaction", common, self.producer.begin_transaction)
            try:
                self._send_some(min(self.workload.transaction_size, self.workload.records - self.sent))
                if dice.random() < self.workload.abort_chance:
                    self._abort(common)
                else:
                    self._commit(common)
            except _MustAbort:
                self._abort(common)

    def _commit(self, common: dict[str, Any]) -> None:
        if not self._call("CommitTransaction", common, lambda: self.producer.commit_transaction(_CALL_SECONDS)):
            self._abort(common)

    def _abort(self, common: dict[str, Any]) -> None:
        # Flushed first: abort as the first act after begin is sometimes fatal (librdkafka issue 4849).
        self.drain()
        self._call("AbortTransaction", common, lambda: self.producer.abort_transaction(_CALL_SECONDS))

    def _call(self, action: str | None, common: dict[str, Any], call: Callable[[], None]) -> bool:
        """Make a transactional call and tell it; False when the transaction must be aborted.

        A retriable error means that the outcome is open and the same call goes on, as the API asks.
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
                raise _GaveUp from None
            if action:
                tell(action, "ok", **common)
            return True


def main(argument: str) -> int:
    """Run a workload given as JSON; exit code 0, or FATAL_EXIT when the producer met a fatal error."""
    client = Client(Workload(**json.loads(argument)))
    try:
        if client.workload.transactional_id is None:
            client.send_all()
        else:
            client.transactions()
    except _GaveUp:
        client.producer.purge()
        client.drain()
        return FATAL_EXIT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
