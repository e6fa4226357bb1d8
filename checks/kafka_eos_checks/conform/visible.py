"""A state of ``Broker`` as conformance needs it: answers with the rule that decided, and Kafka's known differences.

Every answer and every step is the machine's (``Broker.tla``). Here are the identities that a request presents relative
to the broker's state, the questions of a leader as Kafka keeps them, and :meth:`Visible.settled`, which takes all steps
that no client asks for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.broker import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    DATA,
    END,
    FIRST,
    HEARTBEAT,
    INIT,
    JOIN,
    MEMBER,
    NOTHING_PENDING,
    OFFSET_COMMIT,
    OFFSETS,
    SECOND,
    Broker,
    Constants,
    Verified,
)
from kafka_eos.machines.consumer_group import ConsumerGroup
from kafka_eos.machines.group_coordinator import CLASSIC, CONSUMER
from kafka_eos.machines.leader import (
    MAX_EPOCH,
    NO_GUARD,
    NO_SEQUENCE,
    OUTSIDE,
    Asked,
    LeaderRules,
    LeaderState,
    Rules,
    ShippedGuards,
)
from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch
from kafka_eos.machines.producer_state import Limits as LogLimits
from kafka_eos.machines.read_committed import collect_aborted, without_aborted
from kafka_eos.machines.transaction_coordinator import (
    AT_REST,
    DEAD,
    NO_EPOCH,
    ONGOING,
    PREPARED_STATES,
    Identity,
    TransactionMetadata,
)
from kafka_eos.machines.transactional_partition import NO_PRODUCER, TRANSACTIONAL, LogEntry

__all__ = ["CLASSIC", "CONSUMER", "DATA", "FIRST", "MEMBER", "OFFSETS", "SECOND"]
STRANGER = 1_000_000
"""A producer id that none of these coordinators has given."""
WRITERS = ("P", "Q")
"""The producers without a transactional.id."""

NONE, CURRENT, ANOTHER_ID, ID_ALONE = "no producer id", "current epoch", "another producer id", "producer id alone"
EPOCHS = {CURRENT: 0, "epoch - 1": -1, "epoch - 2": -2, "epoch + 1": 1}
"""What a request presents, relative to what the broker knows."""

_Noted = TypeVar("_Noted")


class ConformingBroker(Broker):
    """The machine without the histories that only properties look at."""

    __slots__ = ()

    def noted(self, history: frozenset[_Noted], entry: _Noted) -> frozenset[_Noted]:  # noqa: ARG002 - it is forgotten
        """Forget the history."""
        return history


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a broker, and the versions in which clients speak to it.

    Attributes:
        level: the finalized ``transaction.version`` of the cluster.
        client: the transaction version of the requests, 1 or 2; 1 stands for 0 too.
        verification: leaders ask the coordinator about transactions of version 1 as well (KIP-890 part 1).
        versions: the versions of the requests, by API.
    """

    level: int
    client: int
    verification: bool
    versions: Mapping[str, int]

    def constants(self, transactional_ids: tuple[str, ...], group_protocol: str) -> Constants:
        """The constants of the machine, whose requests are not limited."""
        limits = LogLimits()
        nothing: frozenset[int] = frozenset()
        return Constants(
            max_sequence=limits.max_sequence,
            cached_batches=limits.cached_batches,
            producer_ids=nothing,
            max_epoch=MAX_EPOCH,
            sequences=nothing,
            batch_counts=nothing,
            transactional_ids=frozenset(transactional_ids),
            members=frozenset(),
            generations=nothing,
            writers=frozenset(WRITERS),
            cluster_version=max(self.level, 1),
            client_version=self.client,
            outside=True,
            verification=self.verification,
            api_versions=Map({**self.versions, OFFSET_COMMIT: 0, JOIN: 0}),
            group_protocol=group_protocol,
            consumers=frozenset({FIRST, SECOND} if group_protocol == CONSUMER else ()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer that a client gets.

    Attributes:
        error: the code on the wire.
        identity: the producer id and epoch that it is given, the epoch alone for a member; None where there is none.
        offset: the offset of the first record, None where the answer has none.
        rule: the operator of the spec that decided, with its module.
        known: the id of the recorded difference that this answer belongs to, "" for the spec's own.
    """

    error: ErrorCode
    identity: Identity | None = None
    offset: int | None = None
    rule: str = field(default="", compare=False)
    known: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition at its leader, as a value.

    Attributes:
        rules: the spec's.
        shipped: the same with Kafka's guards.
        state: all entries, and what the leader knows of producers.
        asked: the questions that a leader of Kafka keeps, where the spec's keeps ``state.asked``.
    """

    rules: Rules = field(compare=False)
    shipped: Rules = field(compare=False)
    state: LeaderState
    asked: Map[int, Asked]

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.state.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset at which reading of committed data ends."""
        return self.rules.readable(self.state).last_stable_offset()

    @property
    def as_shipped(self) -> LeaderState:
        """The state that a leader of Kafka has."""
        return replace(self.state, asked=self.asked)

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """Batches and markers, in order."""
        return tuple(self.state.transactions.entries)

    def read_committed(self) -> tuple[LogEntry, ...]:
        """The batches that a read_committed reader gets from the start of the log."""
        upper = self.last_stable_offset
        aborted = collect_aborted(self.state.transactions.aborted_index, 0, upper)
        return tuple(without_aborted((e for e in self.entries if e.offset < upper), aborted))

    def refused_by_kafka(self, batch: Batch) -> str:
        """The recorded difference by which Kafka refuses a batch that the spec does not refuse for its sequence."""
        if self.rules.is_of_coordinator(batch):
            return ""
        if self.rules.begins_behind_zero(self.as_shipped, batch):
            return "first-sequence-of-version-2"
        return "lowest-sequence" if self.rules.is_above_lowest(self.as_shipped, batch) else ""

    def append_error(self, batch: Batch, version: int, guard: int) -> tuple[ErrorCode, str]:
        """Why a batch that is no duplicate is refused, ``NONE`` if it is not; and the rule that says so."""
        rules, state = self.rules, self.state
        error = rules.batch_error(state, batch, version, guard)
        if error is ErrorCode.NONE:
            return error, "PartitionLog!AppendBatch"
        if rules.guard_error(state, batch, version, guard) is error:
            return error, "Transactions!DataError"
        return error, "Leader!SequenceError" if rules.sequence_error(
            state, batch
        ) is error else "Leader!TransactionError"

    def asked_after(self, batch: Batch, version: int) -> Map[int, Asked]:
        """Kafka's questions after a batch that was appended."""
        if batch.producer_id == NO_PRODUCER_ID:
            return self.asked
        return self.asked.set(batch.producer_id, self.shipped.asked_after_batch(self.as_shipped, batch, version))


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """The state of a cluster, as far as clients can see it.

    Attributes:
        settings: the broker's settings.
        broker: the machine.
        asked: by partition, the questions that a leader of Kafka keeps, where the spec's keeps others.
    """

    settings: Settings = field(compare=False)
    broker: Broker
    asked: Map[str, Map[int, Asked]] = field(default=Map({DATA: Map(), OFFSETS: Map()}))

    @classmethod
    def initial(cls, settings: Settings, transactional_ids: tuple[str, ...], group_protocol: str) -> "Visible":
        """The state before any request."""
        constants = settings.constants(transactional_ids, group_protocol)
        return cls(settings=settings, broker=ConformingBroker.initial(constants))

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def coordinators(self) -> Map[str, TransactionMetadata]:
        """The coordinator's metadata of each transactional.id."""
        return self.broker.coordinators

    def known(self, name: str) -> TransactionMetadata:
        """The coordinator's metadata of a transactional.id."""
        return self.broker.coordinators[name]

    def partition(self, name: str) -> Partition:
        """A partition at its leader."""
        shipped = LeaderRules(guards=ShippedGuards, verification=self.settings.verification).of_leader()
        state = self.broker.partitions[name]
        return Partition(rules=self.broker.leading, shipped=shipped, state=state, asked=self.asked[name])

    @property
    def data(self) -> Partition:
        """The partition that clients write to."""
        return self.partition(DATA)

    @property
    def offsets(self) -> Partition:
        """The partition that has the group's offsets."""
        return self.partition(OFFSETS)

    @property
    def group(self) -> ConsumerGroup:
        """The group, with the offsets that are pending."""
        group = self.broker.grouping
        return replace(group, pending=Map({p: each for p, each in group.pending.items() if each != NOTHING_PENDING}))

    @property
    def plain(self) -> dict[str, int]:
        """The producer ids of those without transactional.id, as far as they have been given."""
        return {name: given for name, given in self.broker.writers.items() if given != NO_PRODUCER_ID}

    @property
    def is_settled(self) -> bool:
        """The coordinators have nothing left to do."""
        return not any(known.state in PREPARED_STATES for known in self.coordinators.values())

    def faults(self) -> Iterator[str]:
        """The actions of the spec that only a fault or the passing of time takes, where they may be taken."""
        for known in self.coordinators.values():
            if known.state is ONGOING:
                yield "TransactionCoordinator!TimeOut"
            if known.state in AT_REST:
                yield "TransactionCoordinator!ExpireTransactionalId"
            if known.state is not DEAD:
                yield "TransactionCoordinator!Failover"
        if self.data.entries:
            yield "Transactions!ElectLeader"
        if any(known != NO_PRODUCER and not known.is_open for known in self.data.state.transactions.producers.values()):
            yield "TransactionalPartition!ExpireProducer"

    def identity(self, name: str, whose: str) -> Identity | None:
        """The producer id and epoch that a request presents; None where there is no such yet.

        The epoch is relative to the coordinator's, or to the leader's for a producer without transactional.id.
        """
        if whose == NONE:
            return Identity()
        if name in self.plain:
            producer_id = self.plain[name]
            stored = max(self.data.state.producer(producer_id).epoch, 0)
        elif name in self.coordinators:
            known = self.known(name)
            if whose == ANOTHER_ID:
                return Identity(producer_id=STRANGER, epoch=max(known.epoch, 0))
            if known.state is DEAD or known.epoch == NO_EPOCH:
                return None
            producer_id, stored = known.producer_id, known.epoch
        else:
            return None
        if whose == ID_ALONE:
            return Identity(producer_id=producer_id)
        epoch = stored + EPOCHS[whose]
        return Identity(producer_id=producer_id, epoch=epoch) if epoch >= 0 else None

    # --- requests to coordinators ------------------------------------------------------------------------------------

    def _after(self, broker: Broker, rule: str) -> tuple[Answer, "Visible"]:
        """The answer of the machine, and the state after its step."""
        said = broker.answer
        gives = said.api in {INIT, HEARTBEAT} or (said.api == END and self.settings.client >= 2)
        given = Identity(producer_id=said.producer_id, epoch=said.epoch) if gives else None
        offset = None if said.offset < 0 else said.offset
        answer = Answer(error=said.error, identity=given, offset=offset, rule=rule)
        return answer, replace(self, broker=broker)

    def init_producer_id(self, name: str, presented: Identity) -> tuple[Answer, "Visible"]:
        """A client asks for a producer id and epoch.    Spec: Broker!InitProducerId."""
        after = self.broker.init_producer_id(name, presented.producer_id, presented.epoch)
        return self._after(after, "TransactionCoordinator!InitError")

    def plain_init(self, name: str) -> tuple[Answer, "Visible"]:
        """A client without transactional.id asks for a producer id.    Spec: Broker!InitIdempotentProducer."""
        return self._after(self.broker.init_idempotent_producer(name), "PartitionLog!ProducerIds")

    def add_partitions(self, name: str, presented: Identity, partition: str) -> tuple[Answer, "Visible"]:
        """A client adds a partition, or that of its group's offsets.    Spec: Broker!AddPartitionsToTxn."""
        api = {DATA: ADD_PARTITIONS, OFFSETS: ADD_OFFSETS}[partition]
        add = self.broker.add_partitions_to_txn if api == ADD_PARTITIONS else self.broker.add_offsets_to_txn
        return self._after(add(name, presented.producer_id, presented.epoch), "TransactionCoordinator!AddError")

    def end_txn(self, name: str, presented: Identity, commit: bool) -> tuple[Answer, "Visible"]:
        """A client ends its transaction.    Spec: Broker!EndTxn."""
        after = self.broker.end_txn(name, presented.producer_id, presented.epoch, commit)
        rules = {1: "TransactionCoordinator!EndVerdictOfVersion1", 2: "TransactionCoordinator!EndVerdictOfVersion2"}
        return self._after(after, rules[self.settings.client])

    # --- requests to leaders -----------------------------------------------------------------------------------------

    def _asked(self, partition: str, name: str, presented: Identity, sequence: int) -> tuple[Verified, str, "Visible"]:
        """The outcome of the leader's question about a batch, the rule that decides it, and the state after it."""
        broker, place = self.broker, self.partition(partition)
        producer_id, epoch, version = presented.producer_id, presented.epoch, self.settings.client
        verified = broker.verified(partition, name, producer_id, epoch, sequence)
        if not broker.needs_verification(place.state, producer_id, epoch):
            return verified, "", self
        if broker.question_error(place.state, producer_id, epoch) is not ErrorCode.NONE:
            return verified, "Transactions!StartVerification", self
        shipped = place.shipped.with_question(place.as_shipped, producer_id, epoch, sequence, version)
        asked = replace(
            broker,
            coordinators=broker.coordinators.set(name, verified.metadata),
            partitions=broker.partitions.set(partition, verified.leader),
        )
        rule = "TransactionCoordinator!AddError" if version >= 2 else "Transactions!VerificationError"
        return verified, rule, replace(self, broker=asked, asked=self.asked.set(partition, shipped.asked))

    def produce(
        self, name: str, presented: Identity, sequence: int, count: int = 1, kind: str = TRANSACTIONAL
    ) -> list[tuple[Answer, "Visible"]]:
        """A client sends a batch: the spec's answer, and Kafka's where that differs.

        Spec: Broker!Produce, ProduceOutside
        """
        producer_id, epoch = presented.producer_id, presented.epoch
        state, guard, version = self, NO_GUARD, OUTSIDE
        if kind == TRANSACTIONAL:
            version = self.settings.client
            verified, rule, state = self._asked(DATA, name, presented, sequence)
            after, guard = self.broker.produce(name, producer_id, epoch, sequence, count), verified.guard
            if verified.error is not ErrorCode.NONE:
                return [state._after(after, rule)]
        else:
            after = self.broker.produce_outside(producer_id, epoch, sequence, count)
        leader = state.data
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)
        if leader.rules.is_retry(leader.state, batch):
            return [state._after(after, "ProducerState!IsDuplicate")]
        error, rule = leader.append_error(batch, version, guard)
        answer, then = state._after(after, rule)
        if error is ErrorCode.NONE:
            then = replace(then, asked=state.asked.set(DATA, leader.asked_after(batch, version)))
        return [(answer, then), *state._as_by_kafka(batch, version, answer)]

    def _as_by_kafka(self, batch: Batch, version: int, answer: Answer) -> list[tuple[Answer, "Visible"]]:
        """Kafka's answer to a batch that was vouched for, if it is a recorded difference."""
        leader = self.data
        if answer.error in {ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE} and (known := leader.refused_by_kafka(batch)):
            refused = Answer(error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, rule=answer.rule, known=known)
            return [(refused, self)]
        is_unknown = not leader.state.log.knows_producer(batch.producer_id)
        if answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_unknown and not leader.refused_by_kafka(batch):
            appended = leader.rules.with_batch(leader.state, batch, version)
            broker = replace(self.broker, partitions=self.broker.partitions.set(DATA, appended))
            after = replace(self, broker=broker, asked=self.asked.set(DATA, leader.asked_after(batch, version)))
            return [(Answer(error=ErrorCode.NONE, offset=leader.end, rule=answer.rule, known="first-sequence"), after)]
        return []

    def commit_offsets(
        self, name: str, presented: Identity, member: str | None, generation: int
    ) -> tuple[Answer, "Visible"]:
        """A client writes its group's offset in a transaction.    Spec: Broker!TxnOffsetCommit."""
        producer_id, epoch = presented.producer_id, presented.epoch
        verified, rule, state = self._asked(OFFSETS, name, presented, NO_SEQUENCE)
        after = self.broker.txn_offset_commit(name, producer_id, epoch, member, generation)
        if verified.error is not ErrorCode.NONE:
            return state._after(after, rule)
        if self.broker.commit_error(member, generation) is not ErrorCode.NONE:
            return state._after(after, self._rule_of_members)
        leader, version = state.offsets, self.settings.client
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=NO_SEQUENCE, count=1)
        error, rule = leader.append_error(batch, version, verified.guard)
        if error is ErrorCode.NONE:
            state = replace(state, asked=state.asked.set(OFFSETS, leader.asked_after(batch, version)))
        return state._after(after, rule)

    # --- requests to the group ---------------------------------------------------------------------------------------

    @property
    def _rule_of_members(self) -> str:
        is_classic = self.broker.constants.group_protocol == CLASSIC
        return "GroupCoordinator!TxnOffsetCommitError" if is_classic else "ConsumerGroup!MemberEpochError"

    def commit_plainly(self, member: str | None, generation: int) -> tuple[Answer, "Visible"]:
        """A client commits its group's offset outside of transactions.    Spec: Broker!OffsetCommit."""
        after = self.broker.offset_commit(member, generation)
        return self._after(
            after, "GroupCoordinator!Over" if after.answer.error is ErrorCode.NONE else self._rule_of_members
        )

    def heartbeat(self, consumer: str, does: str) -> tuple[Answer, "Visible"]:
        """A member of a group of KIP-848 joins, follows or leaves.

        Spec: Broker!JoinConsumerGroup, Heartbeat, LeaveConsumerGroup
        """
        if does == "joins":
            return self._after(self.broker.join_consumer_group(consumer), "ConsumerGroup!Joined")
        if does == "leaves":
            return self._after(self.broker.leave_consumer_group(consumer), "ConsumerGroup!MembershipWithout")
        return self._after(self.broker.heartbeat(consumer, does == "gives up"), "ConsumerGroup!Reconciled")

    def join(self) -> tuple[Answer, "Visible"]:
        """A consumer becomes the group's only member.    Spec: Broker!JoinGroup."""
        return self._after(self.broker.join_group(), "GroupCoordinator!NextGeneration")

    # --- what no client asks for -------------------------------------------------------------------------------------

    def settled(self) -> "Visible":
        """The state after all due markers and completions.    Spec: Broker!WriteMarker, CompleteTransaction."""
        state = self
        for name, known in self.coordinators.items():
            for partition in sorted(self.broker.to_mark[name]):
                state = state._marked(name, partition)
            if known.state in PREPARED_STATES:
                state = replace(state, broker=state.broker.complete_transaction(name))
        return state

    def _marked(self, name: str, partition: str) -> "Visible":
        """The state after a marker, which the leader has to accept."""
        known, place = self.known(name), self.partition(partition)
        marker = self.broker.marker_of(known, partition)
        asked = place.shipped.asked_after_marker(place.as_shipped, marker, known.version)
        return replace(
            self,
            broker=self.broker.write_marker(name, partition),
            asked=self.asked.set(partition, place.asked.set(known.producer_id, asked)),
        )
