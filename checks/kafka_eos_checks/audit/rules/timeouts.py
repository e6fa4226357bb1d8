"""The transactions that ended before their timeout, by the logs of ``__transaction_state``.

A coordinator aborts a transaction by itself once it has been open for longer than its timeout. It then raises the
epoch, as the client's own end of a transaction of version 2 does, so a partition's markers do not tell the two apart.
The record of the decision does: it has the time of the decision, the time when the transaction began, and the timeout.
All three are the coordinator's own, and it has compared them itself, so no skew of clocks matters.

KIP:   KIP-98, KIP-890
Kafka: TransactionStateManager.timedOutTransactions, TransactionMetadata.prepareAbortOrCommit
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kafka_eos.formats.transaction_log import TOPIC, TransactionLogValue
from kafka_eos_checks.audit.rules.coordinator import PREPARED, CoordinatorLog, read_records
from kafka_eos_checks.audit.segments.splits import PartitionLog


@dataclass(slots=True)
class Deadlines:
    """The decisions of coordinators, read from their logs when somebody asks for the first time.

    Attributes:
        logs: any logs; those of ``__transaction_state`` count.
    """

    logs: Sequence[PartitionLog] = ()
    _in_time: frozenset[tuple[int, int]] | None = field(default=None, init=False)

    def are_kept(self, producer_id: int, epoch: int) -> bool:
        """Whether the logs show the decision whose markers have this producer id and epoch, and that it came in time.

        False where the record is missing, because compaction has removed it or the log was not given.
        """
        if self._in_time is None:
            decisions = list(_decisions([log for log in self.logs if log.topic == TOPIC]))
            late = {each.identity for each in decisions if each.is_late}
            self._in_time = frozenset({each.identity for each in decisions} - late)
        return (producer_id, epoch) in self._in_time


@dataclass(frozen=True, slots=True)
class _Decision:
    identity: tuple[int, int]
    is_late: bool

    @classmethod
    def of(cls, value: TransactionLogValue) -> "_Decision":
        began, decided = value.transaction_start_timestamp_ms, value.transaction_last_update_timestamp_ms
        late = began < 0 or decided - began > value.transaction_timeout_ms
        return cls((value.producer_id, value.producer_epoch), late)


def _decisions(logs: Sequence[PartitionLog]) -> Iterator[_Decision]:
    for log in logs:
        for record in read_records(log, CoordinatorLog(log)):
            if record.value is not None and record.value.transaction_status in PREPARED:
                yield _Decision.of(record.value)
