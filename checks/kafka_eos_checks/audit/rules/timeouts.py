"""The transactions that ended before their timeout, by the logs of ``__transaction_state``.

A coordinator aborts a transaction by itself once it has been open for longer than its timeout. It then raises the
epoch, as the client's own end of a transaction of version 2 does, so a partition's markers do not tell the two apart.
The record of the decision does: it has the time of the decision, the time when the transaction began, and the timeout.
All three are the coordinator's own, and it has compared them itself, so no skew of clocks matters.

KIP:   KIP-98, KIP-890
Kafka: TransactionStateManager.timedOutTransactions, TransactionMetadata.prepareAbortOrCommit
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from kafka_eos.formats.transaction_log import TOPIC, TransactionLogValue
from kafka_eos_checks.audit.rules.coordinator import PREPARED, CoordinatorLog, read_records
from kafka_eos_checks.audit.segments.splits import PartitionLog


class Decision(NamedTuple):
    """The decision of a transaction: the producer id and epoch of its markers, and whether its timeout was over."""

    producer_id: int
    producer_epoch: int
    is_late: bool

    @classmethod
    def of(cls, value: TransactionLogValue) -> Self:
        """The decision in a record of it."""
        began, decided = value.transaction_start_timestamp_ms, value.transaction_last_update_timestamp_ms
        late = began < 0 or decided - began > value.transaction_timeout_ms
        return cls(value.producer_id, value.producer_epoch, late)


class Deadlines(NamedTuple):
    """The producer ids and epochs of which coordinators' logs show decisions, all of them before their timeouts."""

    kept: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> Self:
        """The producer ids and epochs of some decisions, without those with a late one."""
        known = set(decisions)
        return cls(frozenset((pid, epoch) for pid, epoch, _ in known if Decision(pid, epoch, True) not in known))

    @classmethod
    def read(cls, logs: Sequence[PartitionLog]) -> Self:
        """Read the decisions in some logs, of which those of ``__transaction_state`` count."""
        return cls.of(
            Decision.of(record.value)
            for log in logs
            if log.topic == TOPIC
            for record in read_records(log, CoordinatorLog(log))
            if record.value is not None and record.value.transaction_status in PREPARED
        )

    def are_kept(self, producer_id: int, epoch: int) -> bool:
        """Whether the logs show the decision whose markers have this producer id and epoch, and that it came in time.

        False where the record is missing, because compaction has removed it or the log was not given.
        """
        return (producer_id, epoch) in self.kept
