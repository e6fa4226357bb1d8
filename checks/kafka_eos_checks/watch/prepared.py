"""Transactions that stay prepared: they are decided, and their coordinator does not complete them.

A coordinator completes a transaction once all of its markers are written, which takes milliseconds. A fault may keep it
from knowing that they are (findings ``refused-marker`` and ``lost-marker-answer``). Then no data need be open anywhere,
but the producer, and each new instance of it, is told CONCURRENT_TRANSACTIONS. So the coordinators are asked which
transactions are prepared. They do not tell since when, so the watcher measures it.

KIP:   KIP-664
Kafka: TransactionCoordinator.handleListTransactions, TransactionMarkerChannelManager
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from kafka_eos.formats.coordinator_partition import coordinator_partition
from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos_checks.watch.advice import Tools, stays_prepared
from kafka_eos_checks.watch.cluster import Transaction
from kafka_eos_checks.watch.reports import RESOLVED, Clock, Report, Since, duration, identity

STAYS = "transaction stays prepared"


class _Key(NamedTuple):
    """A transaction: an id has one at a time, and the next one begins later."""

    transactional_id: str
    start_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A prepared transaction.

    Attributes:
        since_ms: when the watcher was told of it first.
        reported_ms: when it was reported; None for not yet.
        is_missing: whether the last look did not find it.
    """

    transactional_id: str
    start_ms: int
    producer_id: int
    epoch: int
    state: str
    decision: str
    partition: int
    since_ms: int
    reported_ms: int | None = None
    is_missing: bool = False

    def report(self, evidence: str) -> Report:
        """A report of it, at the partition that has its records; there is no offset."""
        return Report(
            rule=STAYS,
            topic=COORDINATOR_TOPIC,
            partition=self.partition,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            evidence=evidence,
            transactional_id=self.transactional_id,
            state=self.state,
            decision=self.decision,
            since=Since(ms=self.start_ms, clock=Clock.COORDINATOR),
        )

    @property
    def name(self) -> str:
        """The id of the report."""
        return identity(self.report(""))


@dataclass(slots=True)
class Prepared:
    """The transactions that were prepared when the coordinators told of them last.

    While a coordinator moves, none may tell of its transactions. So one that was reported is over when two looks one
    after the other do not find it.
    """

    _known: dict[_Key, _Prepared] = field(default_factory=dict)

    @property
    def reported(self) -> list[str]:
        """The ids of the reports that are not over."""
        return [each.name for each in self._known.values() if each.reported_ms is not None]

    @property
    def is_unsure(self) -> bool:
        """Whether another look has to tell if one that was reported is over."""
        return any(each.is_missing for each in self._known.values())

    def take(self, transactions: Iterable[Transaction], partitions: int, now_ms: int) -> Iterator[Report]:
        """Take the transactions that are prepared now; the ends of those that were reported.

        Args:
            transactions: as their coordinators have them.
            partitions: the number of partitions of ``__transaction_state``; 0 for not known.
            now_ms: the time, in milliseconds since the epoch.
        """
        before, now = self._known, _keyed(_prepared(each, partitions, now_ms) for each in transactions)
        self._known = {key: replace(before.get(key, each), is_missing=False) for key, each in now.items()}
        for key in before.keys() - now.keys():
            one = before[key]
            if one.reported_ms is not None and not one.is_missing:
                self._known[key] = replace(one, is_missing=True)
            elif one.reported_ms is not None:
                evidence = f"{STAYS}, reported {duration(now_ms - one.reported_ms)} ago: it is completed"
                yield replace(one.report(evidence), rule=RESOLVED, state="", since=None, resolves=one.name)

    def stuck(self, after_ms: int, besides: Collection[int], tools: Tools, now_ms: int) -> Iterator[Report]:
        """Report, once, each that has stayed prepared for a time.

        Args:
            after_ms: the time.
            besides: the producers of those that are not reported.
            tools: how Kafka's tools are called.
            now_ms: the time, in milliseconds since the epoch.
        """
        for key, one in self._known.items():
            if one.reported_ms is None and now_ms - one.since_ms >= after_ms and one.producer_id not in besides:
                self._known[key] = replace(one, reported_ms=now_ms)
                evidence = f"decided, and not completed for at least {duration(now_ms - one.since_ms)}: its producer, "
                evidence += "and a new instance of it, is told CONCURRENT_TRANSACTIONS"
                yield stays_prepared(one.report(evidence), tools)

    def repeated(self, names: Collection[str], tools: Tools, now_ms: int) -> Iterator[Report]:
        """Those of earlier reports, by their ids, that are not over."""
        for one in self._known.values():
            if one.reported_ms is not None and one.name in names:
                evidence = f"told before, {duration(now_ms - one.reported_ms)} ago, and not over"
                yield stays_prepared(one.report(evidence), tools)

    def to_json(self) -> list[dict[str, Any]]:
        """Rows of JSON; the inverse of :meth:`resume`."""
        return [asdict(each) for each in self._known.values()]

    def resume(self, rows: list[dict[str, Any]]) -> None:
        """Take the rows of :meth:`to_json`."""
        self._known = _keyed(_Prepared(**row) for row in rows)


def _keyed(prepared: Iterable[_Prepared]) -> dict[_Key, _Prepared]:
    return {_Key(each.transactional_id, each.start_ms): each for each in prepared}


def _prepared(transaction: Transaction, partitions: int, now_ms: int) -> _Prepared:
    return _Prepared(
        transactional_id=transaction.name,
        start_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
        state=transaction.state,
        decision=transaction.decided,
        partition=coordinator_partition(transaction.name, partitions) if partitions else -1,
        since_ms=now_ms,
    )
