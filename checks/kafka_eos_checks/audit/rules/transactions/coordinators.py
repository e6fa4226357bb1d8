"""The logs of ``__transaction_state`` by producer id: whose transactions the markers of a partition may end."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.quoting import unquoted
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog, Transaction, TransactionalId
from kafka_eos_checks.audit.rules.log import Reason
from kafka_eos_checks.audit.rules.transactions.names import (
    EMPTY_STATE_LOG,
    NO_STATE_LOG,
    OWNER_UNKNOWN,
    STATE_COMPACTED,
    STATE_DAMAGED,
)


class Coordinators:
    """The given logs of ``__transaction_state``, by producer id.

    Args:
        logs: the logs that have records.
        given: whether any log was given, even an empty one.
    """

    def __init__(self, logs: Iterable[CoordinatorLog], *, given: bool = False) -> None:
        self.logs = list(logs)
        self.given = given or bool(self.logs)
        self._owners: dict[int, tuple[CoordinatorLog, TransactionalId]] = {}
        self._transactions: dict[tuple[int, int], list[Transaction]] = defaultdict(list)
        claimed: set[int] = set()
        for log in self.logs:
            for known in log.ids.values():
                for transaction in known.transactions:
                    self._transactions[transaction.producer_id, transaction.marker_epoch].append(transaction)
                for pid in known.producer_ids:
                    if pid in self._owners:
                        claimed.add(pid)
                    self._owners[pid] = log, known
        for pid in claimed:  # logs of several clusters: nothing is certain about this producer id
            del self._owners[pid]

    def owner(self, producer_id: int) -> tuple[CoordinatorLog, TransactionalId] | None:
        """The transactional id with that producer id, and its log; None if no given log names it."""
        return self._owners.get(producer_id)

    @property
    def unknown_owner(self) -> Reason:
        """The reason why the transactional id of a producer id is not known."""
        if not self.logs:
            return EMPTY_STATE_LOG if self.given else NO_STATE_LOG
        return OWNER_UNKNOWN

    def transactions(self, producer_id: int, marker_epoch: int) -> list[Transaction]:
        """The transactions whose markers have this producer id and epoch, in order."""
        return self._transactions.get((producer_id, marker_epoch), [])


def why_incomplete(log: CoordinatorLog) -> Reason | None:
    """The reason why a coordinator's log may lack transactions; None if it has all."""
    if log.whole:
        return None
    return STATE_DAMAGED if log.damaged or log.unreadable else STATE_COMPACTED


def with_owner(finding: Finding, coordinators: Coordinators) -> Finding:
    """A finding with the transactional id that has its producer id, if that is known."""
    owner = None if finding.producer_id is None else coordinators.owner(finding.producer_id)
    return finding if owner is None else replace(finding, transactional_id=unquoted(owner[1].name))
