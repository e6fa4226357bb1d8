"""Readers of one partition that transactions write to.

Spec:  Consumer.tla
KIP:   98
Kafka: UnifiedLog.read, TransactionIndex, CompletedFetch

=============  ================  ======================================================================================
spec variable  field             Kafka (the partition's variables: transactional_partition.py)
=============  ================  ======================================================================================
positions      ``positions``     SubscriptionState.position of each reader
delivered      ``delivered``     the offsets of the records that poll() returned to it
held           ``held``          none: what a reader without aborted transactions in its responses would hold back
mostHeld       ``most_held``     none: the memory that it would need, in records
=============  ================  ======================================================================================
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import ClassVar, Self

from immutables import Map
from pyrsistent import PVector, pvector

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.read_committed import AbortedTransaction, ReadCommitted
from kafka_eos.machines.transactional_partition import (
    COMMIT,
    PLAIN,
    LogEntry,
    PartitionConstants,
    TransactionalPartition,
)

READ_COMMITTED, READ_UNCOMMITTED, BUFFERING = "read_committed", "read_uncommitted", "buffering"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants(PartitionConstants):
    """The constants of Consumer.tla, besides those of TransactionalPartition.tla.

    Attributes:
        readers: the kinds of readers: "read_committed", "read_uncommitted" or "buffering".
        fetch_sizes: the possible maximum numbers of entries in a response.
    """

    readers: frozenset[str]
    fetch_sizes: frozenset[int]

    def domain(self, name: str) -> Iterable[Hashable]:
        """The constant set ``name``, in order."""
        return sorted(self.fetch_sizes) if name == "FetchSizes" else PartitionConstants.domain(self, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer(ReadCommitted, TransactionalPartition):
    """A state of Consumer.tla."""

    MODULE: ClassVar[str] = "Consumer"
    FRAME: ClassVar[str] = "consumerVars"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        *TransactionalPartition.VARIABLES,
        "positions",
        "delivered",
        "held",
        "mostHeld",
    )

    constants: Constants = field(compare=False)
    positions: Map[str, int]
    delivered: Map[str, PVector[int]]
    held: Map[int, PVector[int]]
    most_held: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: an empty log that nobody has read."""
        return cls(
            constants=constants,
            log=cls.empty_log(constants),
            positions=Map(dict.fromkeys(constants.readers, 0)),
            delivered=Map(dict.fromkeys(constants.readers, pvector())),
            held=Map(dict.fromkeys(constants.producer_ids, pvector())),
        )

    # --- a response                                                                 WHO: the leader ---------------

    def fetched(self, position: int, limit: int, size: int) -> list[LogEntry]:
        """The entries of a response: those from a position on, below a limit, and no more than fit."""
        found = (entry for entry in self.log.entries if position <= entry.offset < limit)
        return list(islice(found, size))

    def committed_limit(self) -> int:
        """The offset at which a response to a read_committed reader ends."""
        return self.last_stable_offset()

    def upper_bound(self, fetched: Sequence[LogEntry]) -> int:
        """The offset up to which aborted transactions are looked for: after the response's last entry.

        Kafka takes one that the offset index knows, which may be larger.
        """
        return fetched[-1].offset + 1

    def collect_aborted(self, position: int, upper: int) -> list[AbortedTransaction]:
        """The aborted transactions of a response, in the order of the index."""
        return self.collected(self.log.aborted_index, position, upper)

    # --- what the readers make of it                                                WHO: the reader ---------------

    def readable(self, fetched: Sequence[LogEntry], aborted: Sequence[AbortedTransaction]) -> list[int]:
        """The offsets of a response's records without those of the aborted transactions in its list."""
        return [entry.offset for entry in self.passed(fetched, aborted)]

    def next_position(self, position: int, fetched: Sequence[LogEntry], read: Sequence[int]) -> int:  # noqa: ARG002 - a mutant of this rule needs them
        """A reader's next position: after the response, even if the reader passed on none of it."""
        return fetched[-1].offset + 1

    def read(self, reader: str, fetched: Sequence[LogEntry], read: Sequence[int]) -> Self:
        """The reader goes on after a response, some of whose records it passed on."""
        position = self.next_position(self.positions[reader], fetched, read)
        return replace(
            self,
            positions=self.positions.set(reader, position),
            delivered=self.delivered.set(reader, self.delivered[reader].extend(read)),
        )

    def _response(self, reader: str, limit: int, size: int) -> list[LogEntry]:
        enabled(reader in self.constants.readers, "there is no such reader")
        fetched = self.fetched(self.positions[reader], limit, size)
        enabled(bool(fetched), "there is nothing to read")
        return fetched

    @action("FetchCommitted", "FetchSizes")
    def fetch_committed(self, size: int) -> Self:
        """The read_committed reader gets a response and drops the aborted records.

        Spec:  Consumer!FetchCommitted
        KIP:   KIP-98
        Kafka: UnifiedLog.read, CompletedFetch.nextFetchedRecord
        """
        fetched = self._response(READ_COMMITTED, self.committed_limit(), size)
        aborted = self.collect_aborted(self.positions[READ_COMMITTED], self.upper_bound(fetched))
        return self.read(READ_COMMITTED, fetched, self.readable(fetched, aborted))

    def everything(self, fetched: Sequence[LogEntry]) -> list[int]:
        """The offsets of a response's records, including aborted and undecided ones."""
        return [entry.offset for entry in fetched if self.is_passed_on(entry)]

    @action("FetchUncommitted", "FetchSizes")
    def fetch_uncommitted(self, size: int) -> Self:
        """The read_uncommitted reader gets a response and passes every record on.

        Spec:  Consumer!FetchUncommitted
        KIP:   KIP-98
        Kafka: UnifiedLog.read, CompletedFetch.nextFetchedRecord
        """
        fetched = self._response(READ_UNCOMMITTED, self.high_watermark, size)
        return self.read(READ_UNCOMMITTED, fetched, self.everything(fetched))

    def still_held(self, mine: PVector[int], entry: LogEntry) -> PVector[int]:
        """The records of a producer that a buffering reader holds back after one of that producer's entries."""
        if entry.is_marker:
            return pvector()
        return mine.append(entry.offset) if entry.is_transactional else mine

    @action("FetchAndHold", "FetchSizes")
    def fetch_and_hold(self, size: int) -> Self:
        """The buffering reader gets a response, holds undecided records back, and passes committed ones on.

        Spec:  Consumer!FetchAndHold
        KIP:   none
        Kafka: none
        """
        fetched = self._response(BUFFERING, self.high_watermark, size)
        read: list[int] = []
        held, most = self.held, self.most_held
        for entry in fetched:
            mine = held[entry.producer_id]
            if entry.kind == COMMIT:
                read += mine
            elif entry.kind == PLAIN:
                read.append(entry.offset)
            held = held.set(entry.producer_id, self.still_held(mine, entry))
            most = max(most, sum(map(len, held.values())))
        return replace(self.read(BUFFERING, fetched, read), held=held, most_held=most)
