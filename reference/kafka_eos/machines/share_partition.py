"""The leader of a partition gives its committed records to the members of a share group, each up to a limit.

Spec:  SharePartition.tla
KIPs:  932
Kafka: SharePartition, InFlightState, ShareFetchUtils

=============  =================  ========================================================================
spec variable  field              Kafka
=============  =================  ========================================================================
startOffset    ``start_offset``   SharePartition.startOffset
cachedState    ``cached_state``   SharePartition.cachedState: the InFlightState of each offset
held           ``held``           what a KafkaShareConsumer has polled and not acknowledged
delivered      ``delivered``      what members were given, for the properties
rejected       ``rejected``       what members have rejected, for the properties
=============  =================  ========================================================================
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from immutables import Map

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

AVAILABLE = "AVAILABLE"
ACQUIRED = "ACQUIRED"
ACKNOWLEDGED = "ACKNOWLEDGED"
ARCHIVED = "ARCHIVED"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBatch:
    """A batch of the log.

    Attributes:
        base_offset: its first offset.
        last_offset: its last offset.
        kind: "committed", "aborted" or "control".
    """

    base_offset: int
    last_offset: int
    kind: str

    @property
    def offsets(self) -> range:
        """The offsets of a batch."""
        return range(self.base_offset, self.last_offset + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of SharePartition.tla.

    Attributes:
        batches: the log, up to its last stable offset.
        offsets: the offsets in it, 0..n.
        first_offset: the group's first offset.
        members: the members of the group.
        acknowledge_types: the answers that members give: some of "ACCEPT", "RELEASE", "REJECT".
        delivery_count_limit: share.delivery.count.limit, at least 2.
    """

    batches: frozenset[LogBatch]
    offsets: frozenset[int]
    first_offset: int
    members: frozenset[str]
    acknowledge_types: frozenset[str]
    delivery_count_limit: int

    def domain(self, name: str) -> Iterable[int | str]:
        """The constant set ``name``, in order."""
        if name == "Offsets":
            return sorted(self.offsets)
        assert name in {"Members", "AcknowledgeTypes"}, name
        return sorted(self.members if name == "Members" else self.acknowledge_types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The state of a record, its delivery count (0: never acquired), and the member that has it."""

    state: str = AVAILABLE
    delivery_count: int = 0
    member_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartition:
    """A state of SharePartition.tla."""

    MODULE: ClassVar[str] = "SharePartition"
    VARIABLES: ClassVar[tuple[str, ...]] = ("startOffset", "cachedState", "held", "delivered", "rejected")

    constants: Constants = field(compare=False)
    start_offset: int
    cached_state: Map[int, Record]
    held: Map[str, frozenset[int]]
    delivered: Map[int, int]
    rejected: frozenset[int] = frozenset()

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: the group is at its first offset, and no record was acquired."""
        return cls(
            constants=constants,
            start_offset=constants.first_offset,
            cached_state=Map(dict.fromkeys(constants.offsets, Record())),
            held=Map(dict.fromkeys(constants.members, frozenset[int]())),
            delivered=Map(dict.fromkeys(constants.offsets, 0)),
        )

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    # --- the states of a record -----------------------------------------------------------------------------------

    def is_done(self, record: Record) -> bool:
        """A record is done: it is not given to anybody any more. Kafka: SharePartition.isStateTerminal."""
        return record.state in {ACKNOWLEDGED, ARCHIVED}

    def ended(self, record: Record, state: str) -> Record:
        """A record that no member has any more, in its next state."""
        return replace(record, state=state, member_id=None)

    def released(self, record: Record) -> Record:
        """A record that a member has given back: it is available again, or archived after the last delivery.

        Kafka: InFlightState.tryUpdateState
        """
        is_last = record.delivery_count >= self.constants.delivery_count_limit
        return self.ended(record, ARCHIVED if is_last else AVAILABLE)

    def answered(self, record: Record, answer: str) -> Record:
        """A record after a member's answer. Kafka: SharePartition.ACK_TYPE_TO_RECORD_STATE."""
        if answer == "ACCEPT":
            return self.ended(record, ACKNOWLEDGED)
        if answer == "REJECT":
            return self.ended(record, ARCHIVED)
        return self.released(record)

    def start_offset_after(self, records: Mapping[int, Record]) -> int:
        """The start offset when records have changed: that of the first one that is not done.

        Kafka: SharePartition.maybeUpdateCachedStateAndOffsets
        """
        offsets = range(self.start_offset, len(self.constants.offsets))
        return next((offset for offset in offsets if not self.is_done(records[offset])), len(self.constants.offsets))

    def _with(self, records: Map[int, Record]) -> Self:
        return replace(self, cached_state=records, start_offset=self.start_offset_after(records))

    # --- fetching                                                                   WHO: the leader ---------------

    @property
    def fetchable(self) -> frozenset[int]:
        """The offsets at which a fetch may begin. Kafka: SharePartition.nextFetchOffset."""
        later = (offset for offset in self.constants.offsets if offset >= self.start_offset)
        return frozenset(offset for offset in later if self.cached_state[offset].state == AVAILABLE)

    def may_acquire(self, offset: int) -> bool:
        """A fetch acquires only records that no member has and that are not done."""
        return self.cached_state[offset].state == AVAILABLE

    def fetched(self, last: int) -> list[LogBatch]:
        """The batches that a fetch reads: from the first record that is available to the end of some batch."""
        first = min(self.fetchable)
        return [batch for batch in self.constants.batches if first <= batch.last_offset <= last]

    def acquired(self, member: str, last: int) -> Map[int, Record]:
        """The records after a fetch has acquired what is available in its batches."""
        offsets = filter(self.may_acquire, range(min(self.fetchable), last + 1))
        return self.cached_state.update(
            {
                offset: Record(
                    state=ACQUIRED,
                    delivery_count=self.cached_state[offset].delivery_count + 1,
                    member_id=member,
                )
                for offset in offsets
            }
        )

    def is_filtered(self, batch: LogBatch) -> bool:
        """A batch that no reader of committed records is given."""
        return batch.kind != "committed"

    def looked_up(self, batch: LogBatch) -> int:
        """The offset up to which the filter looks for a cached record of a batch.

        Departs from Kafka: it takes the base offset, which is before the start offset if the group begins inside.
        Kafka: SharePartition.fetchSubMap
        """
        return max(batch.base_offset, self.start_offset)

    def filter_throws(self, records: Mapping[int, Record], last: int) -> bool:
        """The filter finds no cached record at or before a batch, and throws."""
        return any(
            self.is_filtered(batch)
            and all(records[offset].delivery_count == 0 for offset in self._looked_through(batch))
            for batch in self.fetched(last)
        )

    def _looked_through(self, batch: LogBatch) -> range:
        return range(self.start_offset, self.looked_up(batch) + 1)

    def filtered(self, last: int) -> frozenset[int]:
        """The offsets that the filter archives."""
        return frozenset(offset for batch in self.fetched(last) if self.is_filtered(batch) for offset in batch.offsets)

    def can_fetch(self, last: int) -> bool:
        """There is a record to acquire, and a fetch may end at this offset."""
        return bool(self.fetchable) and any(batch.last_offset == last for batch in self.fetched(last))

    @action("Acquire", "Members", "Offsets")
    def acquire(self, member: str, last: int) -> Self:
        """A member is given the records that its fetch acquires, without those that the filter archives.

        Spec:  SharePartition!Acquire
        KIP:   KIP-932
        Kafka: SharePartition.acquire, filterAbortedTransactionalAcquiredRecords
        """
        enabled(self.can_fetch(last), "no fetch ends there")
        records, filtered = self.acquired(member, last), self.filtered(last)
        enabled(not self.filter_throws(records, last), "the filter throws")
        given = {offset for offset, record in records.items() if record != self.cached_state[offset]} - filtered
        archived = {
            offset: self.ended(records[offset], ARCHIVED) for offset in filtered if records[offset].state == ACQUIRED
        }
        return replace(
            self,
            cached_state=records.update(archived),
            held=self.held.set(member, self.held[member] | given),
            delivered=self.delivered.update({offset: self.delivered[offset] + 1 for offset in given}),
        )

    @action("AcquireForNobody", "Members", "Offsets")
    def acquire_for_nobody(self, member: str, last: int) -> Self:
        """The filter throws when the records are acquired: the member gets an error, and nobody the records.

        Spec:  SharePartition!AcquireForNobody
        KIP:   KIP-932
        Kafka: SharePartition.fetchSubMap, DelayedShareFetch.handleFetchException
        """
        enabled(self.can_fetch(last), "no fetch ends there")
        records = self.acquired(member, last)
        enabled(self.filter_throws(records, last), "the filter does not throw")
        return replace(self, cached_state=records)

    # --- answering                                                                  WHO: a member -----------------

    def may_acknowledge(self, member: str, offset: int) -> bool:
        """A member may answer for a record as long as it has the record's lock.

        Kafka: SharePartition.validateAcknowledgementBatchMemberId, acknowledgePerOffsetBatchRecords
        """
        return self.cached_state[offset].member_id == member

    def _without(self, member: str, offset: int) -> Map[str, frozenset[int]]:
        enabled(offset in self.held[member], "the member was not given the record, or has answered")
        return self.held.set(member, self.held[member] - {offset})

    @action("Acknowledge", "Members", "Offsets", "AcknowledgeTypes")
    def acknowledge(self, member: str, offset: int, answer: str) -> Self:
        """A member accepts, releases or rejects a record that it was given.

        Spec:  SharePartition!Acknowledge
        KIP:   KIP-932
        Kafka: SharePartition.acknowledge
        """
        held = self._without(member, offset)
        enabled(self.may_acknowledge(member, offset), "the member has no lock of the record")
        after = self._with(self.cached_state.set(offset, self.answered(self.cached_state[offset], answer)))
        rejected = self.rejected | {offset} if answer == "REJECT" else self.rejected
        return replace(after, held=held, rejected=rejected)

    @action("AcknowledgeLate", "Members", "Offsets")
    def acknowledge_late(self, member: str, offset: int) -> Self:
        """A member answers too late, which changes nothing (INVALID_RECORD_STATE; no error before the start offset).

        Spec:  SharePartition!AcknowledgeLate
        KIP:   KIP-932
        Kafka: SharePartition.acknowledge
        """
        held = self._without(member, offset)
        enabled(not self.may_acknowledge(member, offset), "the member has the lock of the record")
        return replace(self, held=held)

    @action("ReleaseAcquiredRecords", "Members")
    def release_acquired_records(self, member: str) -> Self:
        """A member leaves, or is taken for dead: what it has is released.

        Spec:  SharePartition!ReleaseAcquiredRecords
        KIP:   KIP-932
        Kafka: SharePartition.releaseAcquiredRecords
        """
        its = {offset: record for offset, record in self.cached_state.items() if record.member_id == member}
        enabled(bool(its) or bool(self.held[member]), "the member has nothing")
        released = {offset: self.released(record) for offset, record in its.items()}
        after = self._with(self.cached_state.update(released))
        return replace(after, held=self.held.set(member, frozenset()))

    @action("TimeOutLock", "Offsets")
    def time_out_lock(self, offset: int) -> Self:
        """The lock of a record runs out, whatever the member does with the record.

        Spec:  SharePartition!TimeOutLock
        KIP:   KIP-932
        Kafka: SharePartition.releaseAcquisitionLockOnTimeout
        """
        enabled(self.cached_state[offset].state == ACQUIRED, "nobody has the record's lock")
        return self._with(self.cached_state.set(offset, self.released(self.cached_state[offset])))
