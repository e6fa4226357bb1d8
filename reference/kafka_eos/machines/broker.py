"""A broker as its clients see it: coordinators of transactional.ids, a partition's leader, and a consumer group.

Each action of a client is a request with its answer. So a test can play a behaviour against any implementation, request
by request.

Spec:  Broker.tla
KIPs:  98, 360, 447, 588, 848, 890, 1251, 1319
Kafka: KafkaApis

==================  ==================  ==============================================================================
spec variable       field               Kafka
==================  ==================  ==============================================================================
coordinators        ``coordinators``    TransactionMetadata of each transactional.id
toMark              ``to_mark``         TransactionMetadata.topicPartitions while markers are sent
partitions          ``partitions``      UnifiedLog and ProducerStateManager of each partition's leader
writers             ``writers``         producer ids of producers without a transactional.id
group               ``group``           ClassicGroup
membership          ``membership``      ConsumerGroup
pending             ``pending``         OffsetMetadataManager.pendingTransactionalOffsets, by producer id
committed           ``committed``       OffsetMetadataManager.offsets
allocated           ``allocated``       ProducerIdManager
answer              ``answer``          the response
written             ``written``         none: the acknowledged batches and offsets
ended               ``ended``           EndTxn responses without error
faults              ``faults``          none: it bounds the spec
==================  ==================  ==============================================================================
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar, Self, TypeVar

from immutables import Map

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos.machines.consumer_group import ConsumerGroup, Member, Membership
from kafka_eos.machines.group_coordinator import (
    ABORT,
    CLASSIC,
    COMMIT,
    EMPTY,
    NO_GENERATION,
    NO_OFFSET,
    Group,
    GroupConstants,
    Offsets,
)
from kafka_eos.machines.leader import (
    NO_GUARD,
    NO_SEQUENCE,
    NO_TRANSACTIONS,
    NOTHING_ASKED,
    OUTSIDE,
    LeaderRules,
    LeaderState,
)
from kafka_eos.machines.leader import Rules as Leading
from kafka_eos.machines.machine import action
from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch, Limits, Log
from kafka_eos.machines.spec_mapping import Context
from kafka_eos.machines.transaction_coordinator import (
    DEAD,
    DECIDE,
    NO_EPOCH,
    NOBODY,
    ONGOING,
    PREPARED_STATES,
    UNKNOWN,
    Identity,
    TransactionMetadata,
    commits,
    is_added,
    to_mark,
)
from kafka_eos.machines.transaction_coordinator import Rules as Coordinating
from kafka_eos.machines.transactional_partition import NO_PRODUCER, LogEntry, marker_entry

DATA, OFFSETS = "data", "offsets"
MEMBER = "member"
FIRST, SECOND = "first", "second"
"""The consumers of a group of KIP-848; the assignor prefers the first."""
COORDINATOR_EPOCH = 0
NOTHING_PENDING: Offsets = Map({DATA: NO_OFFSET})

INIT, ADD_PARTITIONS, ADD_OFFSETS, END = "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"
PRODUCE, TXN_OFFSET_COMMIT, OFFSET_COMMIT, JOIN = "Produce", "TxnOffsetCommit", "OffsetCommit", "JoinGroup"
HEARTBEAT = "ConsumerGroupHeartbeat"
NO_API = "none"

FIRST_FENCED = {INIT: 4, ADD_PARTITIONS: 2, ADD_OFFSETS: 2, END: 2}
"""The first version of a request whose clients know PRODUCER_FENCED.    KIP-588."""
FIRST_ABORTABLE = {PRODUCE: 11, TXN_OFFSET_COMMIT: 4}
"""The first version of a request whose clients know TRANSACTION_ABORTABLE.    KIP-890."""
FIRST_WITH_TOPIC_IDS = 6
"""The first version of TxnOffsetCommit that names topics by their ids.    KIP-1319."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of Broker.tla.

    Attributes:
        max_sequence: the last sequence before the wrap to 0.
        cached_batches: batches remembered for each producer.
        producer_ids: the producer ids that requests carry.
        max_epoch: the last producer epoch.
        sequences: the sequences of batches.
        batch_counts: the numbers of records in a batch.
        transactional_ids: the transactional.ids.
        members: the members that offsets come from; None for none.
        generations: -1..n, the generations or member epochs that they claim.
        group_protocol: "classic", or "consumer" for that of KIP-848.
        consumers: the consumers that join a group of KIP-848, at most two.
        writers: the producers without a transactional.id.
        cluster_version: the finalized ``transaction.version`` of the cluster; 1 stands for 0 too.
        client_version: the transaction version of the requests, 1 or 2.
        outside: whether clients send batches outside of transactions, with any producer id and epoch.
        verification: whether leaders ask the coordinator about transactions of version 1 as well.
        api_versions: for each request that clients send: the version in which they send it.
        faults: what may go wrong: of "restart".
        max_faults: how often.
    """

    max_sequence: int
    cached_batches: int
    producer_ids: frozenset[int]
    max_epoch: int
    sequences: frozenset[int]
    batch_counts: frozenset[int]
    transactional_ids: frozenset[str]
    members: frozenset[str | None]
    generations: frozenset[int]
    writers: frozenset[str]
    cluster_version: int
    client_version: int
    outside: bool
    verification: bool
    api_versions: Map[str, int]
    group_protocol: str = CLASSIC
    consumers: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()
    max_faults: int = 0

    def domain(self, name: str) -> Iterable[Hashable]:
        """The set ``name`` that parameters of actions range over, in order."""
        sets: dict[str, Iterable[Hashable]] = {
            "TransactionalIds": sorted(self.transactional_ids),
            "Writers": sorted(self.writers),
            "Partitions": (DATA, OFFSETS),
            "RequestProducerIds": (NO_PRODUCER_ID, *sorted(self.producer_ids)),
            "RequestEpochs": range(-1, self.max_epoch + 1),
            "ProducerIds": sorted(self.producer_ids),
            "Epochs": range(self.max_epoch + 1),
            "Sequences": sorted(self.sequences),
            "BatchCounts": sorted(self.batch_counts),
            "Members": sorted(self.members, key=str),
            "Generations": sorted(self.generations),
            "Consumers": sorted(self.consumers),
            "BOOLEAN": (False, True),
        }
        return sets[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a request: its code on the wire, and -1 for what it has not.

    Attributes:
        api: the request, "none" after a step that answers nobody.
        error: the code.
        producer_id: the producer id that the client is given.
        epoch: the epoch that the client is given.
        offset: the offset of the batch's first record.
    """

    api: str = NO_API
    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    offset: int = NO_OFFSET


NO_ANSWER = Answer()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A batch, or an offset, that a client was told is in its transaction."""

    transactional_id: str
    number: int
    partition: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The end of a transaction, as a client was told."""

    transactional_id: str
    number: int
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A batch of a transaction before the checks of the log.

    Attributes:
        error: the error, ``NONE`` if the batch is verified or needs no verification.
        guard: the guard under which the leader asked.
        leader: the leader after the question.
        metadata: the coordinator's metadata after the question.
    """

    error: ErrorCode
    guard: int
    leader: LeaderState
    metadata: TransactionMetadata


@dataclass(frozen=True, slots=True)
class Said:
    """A leader's answer to a batch: the error, or the offset, which is -1 for an error."""

    error: ErrorCode
    offset: int = NO_OFFSET


_Noted = TypeVar("_Noted")


@cache
def _leading(rules: LeaderRules) -> Leading:
    return rules.of_leader()


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A state of Broker.tla."""

    MODULE: ClassVar[str] = "Broker"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        "coordinators",
        "toMark",
        "partitions",
        "writers",
        "group",
        "membership",
        "pending",
        "committed",
        "allocated",
        "answer",
        "written",
        "ended",
        "faults",
    )
    SEQUENCES: ClassVar[type[Log]] = Log
    LEADING: ClassVar[type[Leading]] = Leading
    COORDINATING: ClassVar[type[Coordinating]] = Coordinating

    constants: Constants = field(compare=False)
    coordinators: Map[str, TransactionMetadata]
    to_mark: Map[str, frozenset[str]]
    partitions: Map[str, LeaderState]
    writers: Map[str, int]
    group: Group
    membership: Membership
    pending: Map[int, Offsets]
    committed: Offsets = NOTHING_PENDING
    allocated: int = 0
    answer: Answer = NO_ANSWER
    written: frozenset[Written] = frozenset()
    ended: frozenset[Ended] = frozenset()
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: no request was sent yet."""
        nothing: frozenset[str] = frozenset()
        new = LeaderState(
            log=cls.SEQUENCES(limits=Limits(constants.max_sequence, constants.cached_batches)),
            transactions=replace(NO_TRANSACTIONS, producers=Map(dict.fromkeys(constants.producer_ids, NO_PRODUCER))),
            asked=Map(dict.fromkeys(constants.producer_ids, NOTHING_ASKED)),
        )
        return cls(
            constants=constants,
            coordinators=Map(dict.fromkeys(constants.transactional_ids, UNKNOWN)),
            to_mark=Map(dict.fromkeys(constants.transactional_ids, nothing)),
            partitions=Map({DATA: new, OFFSETS: new}),
            writers=Map(dict.fromkeys(constants.writers, NO_PRODUCER_ID)),
            group=Group(state=EMPTY, generation=NO_GENERATION, members=nothing),
            membership=Membership(epoch=1, members=Map(dict.fromkeys(constants.consumers, Member()))),
            pending=Map(dict.fromkeys(constants.producer_ids, NOTHING_PENDING)),
        )

    @classmethod
    def context(cls, constants: Constants) -> Context:
        """The class of the logs, which another rule changes, and their limits."""
        return {Log: cls.SEQUENCES, Limits: Limits(constants.max_sequence, constants.cached_batches)}

    # --- the rules that this module combines -------------------------------------------------------------------------

    @property
    def leading(self) -> Leading:
        """The decisions of a leader."""
        verification, max_epoch = self.constants.verification, self.constants.max_epoch
        return _leading(LeaderRules(leader=self.LEADING, verification=verification, max_epoch=max_epoch))

    @property
    def coordinating(self) -> Coordinating:
        """The decisions of the coordinator of a transactional.id."""
        return self.COORDINATING(self.constants.max_epoch, self.constants.cluster_version)

    @property
    def grouping(self) -> ConsumerGroup:
        """The decisions of the coordinator of the group; its producers are known by their ids as text."""
        constants = GroupConstants(
            instances=self.constants.consumers,
            partitions=frozenset({DATA}),
            transactional_ids=frozenset(),
            preferred=Map({DATA: FIRST}),
            group_protocol=self.constants.group_protocol,
        )
        pending = Map({str(producer_id): offsets for producer_id, offsets in self.pending.items()})
        return ConsumerGroup(
            constants=constants,
            group=self.group,
            membership=self.membership,
            pending=pending,
            committed=self.committed,
        )

    @property
    def _is_of_version_2(self) -> bool:
        return self.constants.client_version >= TRANSACTION_VERSION_2

    # --- answers -----------------------------------------------------------------------------------------------------

    def _is_older(self, api: str, first: Mapping[str, int]) -> bool:
        return api not in first or self.constants.api_versions[api] < first[api]

    def wire_error(self, api: str, error: ErrorCode) -> ErrorCode:
        """The error code that a version of a request is answered with.

        A code that the version does not know is replaced by an older one.

        Kafka: KafkaApis, AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend
        """
        if error is ErrorCode.PRODUCER_FENCED and self._is_older(api, FIRST_FENCED):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._is_older(api, FIRST_ABORTABLE):
            return ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and api == PRODUCE and self.constants.api_versions[api] < 12:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return error

    def _said(self, api: str, error: ErrorCode, identity: Identity = NOBODY, offset: int = NO_OFFSET) -> Answer:
        return Answer(
            api=api,
            error=self.wire_error(api, error),
            producer_id=identity.producer_id,
            epoch=identity.epoch,
            offset=offset,
        )

    def _sent(self, api: str) -> None:
        enabled(self.is_sent(api), "no client sends it")

    def is_sent(self, api: str) -> bool:
        """Clients send the request."""
        return api in self.constants.api_versions

    # --- the coordinator ---------------------------------------------------------------------------------------------

    def new_producer_id(self) -> int:
        """The producer id that is handed out next."""
        return self.allocated

    def next_producer_id(self, known: TransactionMetadata, version: int) -> int:
        """The producer id after a transaction of version 2 in the last epoch, -1 if it goes on with its own."""
        return self.new_producer_id() if self.coordinating.needs_next_producer_id(known, version) else NO_PRODUCER_ID

    def init_error(self, known: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
        """The reason why the coordinator gives no producer id and epoch; ``NONE`` if it does, or aborts first."""
        return self.coordinating.init_error(known, producer_id, epoch)

    def aborts_first(self, known: TransactionMetadata) -> bool:
        """The coordinator has to abort the open transaction before it gives a producer id and epoch."""
        return known.state is ONGOING

    def after_init(self, known: TransactionMetadata, epoch: int, new_producer_id: int) -> TransactionMetadata:
        """The coordinator's metadata after it has given a producer id and epoch."""
        return self.coordinating.after_init(known, epoch, new_producer_id)

    def recorded(self, transactional_id: str, record: TransactionMetadata) -> Self:
        """The coordinator has a record in its log. The markers follow the decision."""
        known = self.coordinating.after_append(record)
        return replace(
            self,
            coordinators=self.coordinators.set(transactional_id, known),
            to_mark=self.to_mark.set(transactional_id, to_mark(known)),
        )

    def with_partition(self, known: TransactionMetadata, partition: str, version: int) -> TransactionMetadata:
        """The coordinator's metadata with a partition in the transaction."""
        if is_added(known, partition):
            return known
        return self.coordinating.after_append(self.coordinating.after_add(known, partition, version))

    def answer_to_leader(self, known: TransactionMetadata, producer_id: int, epoch: int, partition: str) -> ErrorCode:
        """The coordinator's answer to a leader that asks about a batch.

        Version 2 adds the partition to the transaction. Version 1 requires that the transaction has it.

        Kafka: TransactionCoordinator.handleVerifyPartitionsInTransaction
        """
        if self._is_of_version_2:
            return self.coordinating.add_error(known, producer_id, epoch)
        return self.coordinating.verification_error(known, producer_id, epoch, partition)

    def after_vouching(self, known: TransactionMetadata, partition: str) -> TransactionMetadata:
        """The coordinator's metadata after it has vouched for a batch."""
        return self.with_partition(known, partition, TRANSACTION_VERSION_2) if self._is_of_version_2 else known

    # --- the leader --------------------------------------------------------------------------------------------------

    def needs_verification(self, before: LeaderState, producer_id: int, epoch: int) -> bool:
        """The coordinator has to be asked before a batch of this producer is appended."""
        return self.leading.needs_verification(before, producer_id, epoch, self.constants.client_version)

    def question_error(self, before: LeaderState, producer_id: int, epoch: int) -> ErrorCode:
        """The reason why a leader does not ask about a batch; ``NONE`` if it does."""
        return self.leading.verification_error(before, producer_id, epoch)

    def verified(self, partition: str, transactional_id: str, producer_id: int, epoch: int, sequence: int) -> Verified:
        """The verification of a transaction's batch, before the checks of the log.

        The result has the error, ``NONE`` if the batch is verified or needs no verification; the guard under which the
        leader asked; the leader and the coordinator after the question.
        """
        before, known = self.partitions[partition], self.coordinators[transactional_id]
        if not self.needs_verification(before, producer_id, epoch):
            return Verified(error=ErrorCode.NONE, guard=NO_GUARD, leader=before, metadata=known)
        if (refused := self.question_error(before, producer_id, epoch)) is not ErrorCode.NONE:
            return Verified(error=refused, guard=NO_GUARD, leader=before, metadata=known)
        error = self.answer_to_leader(known, producer_id, epoch, partition)
        return Verified(
            error=error,
            guard=before.questions(producer_id).guard,
            leader=self.leading.with_question(before, producer_id, epoch, sequence, self.constants.client_version),
            metadata=self.after_vouching(known, partition) if error is ErrorCode.NONE else known,
        )

    def batch_error(self, before: LeaderState, batch: Batch, version: int, guard: int) -> ErrorCode:
        """The reason why a leader refuses a batch that is no retry; ``NONE`` if it does not."""
        return self.leading.batch_error(before, batch, version, guard)

    def answer_of_leader(self, before: LeaderState, batch: Batch, version: int, guard: int) -> Said:
        """The leader's answer to a batch: the error, or the offset; a retry gets the offset of the first copy."""
        if self.leading.is_retry(before, batch):
            return Said(ErrorCode.NONE, before.log.duplicate_offset(batch))
        error = self.batch_error(before, batch, version, guard)
        return Said(error, before.log.log_end_offset) if error is ErrorCode.NONE else Said(error)

    def answer_to_verified(self, verified: Verified, batch: Batch) -> Said:
        """The answer to a batch of a transaction: the leader's, if the batch is verified."""
        if verified.error is not ErrorCode.NONE:
            return Said(verified.error)
        return self.answer_of_leader(verified.leader, batch, self.constants.client_version, verified.guard)

    def with_batch(self, before: LeaderState, batch: Batch, version: int) -> LeaderState:
        """The leader after a batch that passed every check."""
        return self.leading.with_batch(before, batch, version)

    def marker_of(self, known: TransactionMetadata, partition: str) -> LogEntry:  # noqa: ARG002 - the same for each partition
        """The marker of a partition in the transaction that the coordinator ends."""
        return marker_entry(known.producer_id, known.epoch, commits(known), COORDINATOR_EPOCH)

    # --- the group ---------------------------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """The group has no members."""
        return not self.grouping.members()

    def is_known(self) -> bool:
        """The group has had members."""
        if self.constants.group_protocol == CLASSIC:
            return self.group.generation != NO_GENERATION
        return self.membership.epoch > 1

    def member_error(self, member: str | None, generation: int) -> ErrorCode:
        """The reason why the group refuses offsets of a member; ``NONE`` if it does not."""
        if self.constants.group_protocol == CLASSIC:
            return self.grouping.txn_offset_commit_error(member, generation)
        return self.grouping.member_epoch_error(member, generation, (DATA,))

    def names_topics_by_id(self) -> bool:
        """TxnOffsetCommit names topics by their ids. Its clients know the codes of epochs and of unknown groups.

        KIP:   KIP-1319
        """
        return self.constants.api_versions[TXN_OFFSET_COMMIT] >= FIRST_WITH_TOPIC_IDS

    def commit_error(self, member: str | None, generation: int) -> ErrorCode:
        """The reason why the group refuses offsets in a transaction; ``NONE`` if it does not.

        Kafka: OffsetMetadataManager.validateTransactionalOffsetCommit
        """
        if generation < 0 and self.is_empty():
            return ErrorCode.NONE
        if member is not None and not self.is_known():
            return ErrorCode.GROUP_ID_NOT_FOUND if self.names_topics_by_id() else ErrorCode.ILLEGAL_GENERATION
        error = self.member_error(member, generation)
        return error if self.names_topics_by_id() else self.grouping.error_in_transaction(error)

    def plain_commit_error(self, member: str | None, generation: int) -> ErrorCode:
        """The reason why the group refuses offsets outside of transactions; ``NONE`` if it does not.

        Kafka: OffsetMetadataManager.validateOffsetCommit
        """
        if generation < 0 and self.is_empty():
            return ErrorCode.NONE
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else self.member_error(member, generation)

    def with_pending(self, producer_id: int, place: int) -> Map[int, Offsets]:
        """The pending offsets with one more of a producer's transaction."""
        return self.pending.set(producer_id, Map({DATA: place}))

    def committed_after_marker(self, producer_id: int, commit: bool) -> Offsets:
        """The committed offset after a marker. An offset committed after the pending one stays (KAFKA-5247)."""
        return self.grouping.with_decision(str(producer_id), COMMIT if commit else ABORT).committed

    # --- requests                                                                   WHO: a client -----------------

    def _allocates(self, needed: bool) -> int:
        return self.allocated + 1 if needed else self.allocated

    def noted(self, history: frozenset[_Noted], entry: _Noted) -> frozenset[_Noted]:
        """The history with one more entry. Only properties read the history, no rule does."""
        return history | {entry}

    @action("InitProducerId", "TransactionalIds", "RequestProducerIds", "RequestEpochs")
    def init_producer_id(self, transactional_id: str, producer_id: int, epoch: int) -> Self:
        """A client asks for the producer id and epoch of its transactional.id. An open transaction is aborted first.

        Spec:  Broker!InitProducerId
        KIP:   KIP-98, KIP-360
        Kafka: TransactionCoordinator.handleInitProducerId
        """
        self._sent(INIT)
        rules, before = self.coordinating, self.coordinators[transactional_id]
        new = before.state is DEAD
        known = rules.created(before, self.new_producer_id()) if new else before
        if (error := self.init_error(known, producer_id, epoch)) is not ErrorCode.NONE:
            return replace(self, answer=self._said(INIT, error))
        if self.aborts_first(known):
            following = self.next_producer_id(known, rules.server_version)
            return replace(
                self.recorded(transactional_id, rules.after_fence(known, following)),
                allocated=self._allocates(following != NO_PRODUCER_ID),
                answer=self._said(INIT, ErrorCode.CONCURRENT_TRANSACTIONS),
            )
        record = self.after_init(known, epoch, self.new_producer_id())
        given = Identity(producer_id=record.producer_id, epoch=record.epoch)
        return replace(
            self.recorded(transactional_id, record),
            allocated=self._allocates(new or rules.rotates(known, epoch)),
            answer=self._said(INIT, ErrorCode.NONE, given),
        )

    @action("InitIdempotentProducer", "Writers")
    def init_idempotent_producer(self, writer: str) -> Self:
        """A client without a transactional.id asks for a producer id, and gets a new one in epoch 0.

        Spec:  Broker!InitIdempotentProducer
        KIP:   KIP-98
        Kafka: TransactionCoordinator.handleInitProducerId, without a transactional.id
        """
        self._sent(INIT)
        enabled(self.writers[writer] == NO_PRODUCER_ID, "it has a producer id")
        given = Identity(producer_id=self.new_producer_id(), epoch=0)
        return replace(
            self,
            writers=self.writers.set(writer, given.producer_id),
            allocated=self.allocated + 1,
            answer=self._said(INIT, ErrorCode.NONE, given),
        )

    def _added_by_client(self, api: str, transactional_id: str, producer_id: int, epoch: int, partition: str) -> Self:
        self._sent(api)
        known = self.coordinators[transactional_id]
        error = self.coordinating.add_error(known, producer_id, epoch)
        after = self.with_partition(known, partition, 1) if error is ErrorCode.NONE else known
        coordinators = self.coordinators.set(transactional_id, after)
        return replace(self, coordinators=coordinators, answer=self._said(api, error))

    @action("AddPartitionsToTxn", "TransactionalIds", "ProducerIds", "Epochs")
    def add_partitions_to_txn(self, transactional_id: str, producer_id: int, epoch: int) -> Self:
        """A client of version 1 adds the partition to its transaction.

        Spec:  Broker!AddPartitionsToTxn
        KIP:   KIP-98
        Kafka: TransactionCoordinator.handleAddPartitionsToTransaction
        """
        return self._added_by_client(ADD_PARTITIONS, transactional_id, producer_id, epoch, DATA)

    @action("AddOffsetsToTxn", "TransactionalIds", "ProducerIds", "Epochs")
    def add_offsets_to_txn(self, transactional_id: str, producer_id: int, epoch: int) -> Self:
        """A client of version 1 adds its group's offsets to its transaction.

        Spec:  Broker!AddOffsetsToTxn
        KIP:   KIP-98
        Kafka: KafkaApis.handleAddOffsetsToTxnRequest
        """
        return self._added_by_client(ADD_OFFSETS, transactional_id, producer_id, epoch, OFFSETS)

    @action("EndTxn", "TransactionalIds", "ProducerIds", "Epochs", "BOOLEAN")
    def end_txn(self, transactional_id: str, producer_id: int, epoch: int, commit: bool) -> Self:
        """A client ends its transaction.

        Spec:  Broker!EndTxn
        KIP:   KIP-98, KIP-890
        Kafka: TransactionCoordinator.handleEndTransaction
        """
        self._sent(END)
        rules, known, version = self.coordinating, self.coordinators[transactional_id], self.constants.client_version
        verdict = rules.end_verdict(known, producer_id, epoch, commit, version)
        if verdict not in {DECIDE, ErrorCode.NONE.name}:
            return replace(self, answer=self._said(END, ErrorCode[verdict]))
        after, record = self, known
        if verdict == DECIDE:
            following = self.next_producer_id(known, version)
            record = rules.after_end(known, commit, version, following)
            allocated = self._allocates(following != NO_PRODUCER_ID)
            after = replace(self.recorded(transactional_id, record), allocated=allocated)
        end = Ended(transactional_id=transactional_id, number=record.number, commit=commit)
        given = rules.goes_on_as(record) if self._is_of_version_2 else NOBODY
        return replace(after, answer=self._said(END, ErrorCode.NONE, given), ended=self.noted(self.ended, end))

    def written_with(self, transactional_id: str, number: int, partition: str, offset: int) -> frozenset[Written]:
        """The history with a batch that a client was told is in its transaction."""
        one = Written(transactional_id=transactional_id, number=number, partition=partition, offset=offset)
        return self.noted(self.written, one)

    @action("Produce", "TransactionalIds", "ProducerIds", "Epochs", "Sequences", "BatchCounts")
    def produce(self, transactional_id: str, producer_id: int, epoch: int, sequence: int, count: int) -> Self:
        """A client sends a batch of its transaction. The leader asks the coordinator about its first batch.

        Spec:  Broker!Produce
        KIP:   KIP-98, KIP-890
        Kafka: KafkaApis.handleProduceRequest, ReplicaManager.handleProduceAppend
        """
        self._sent(PRODUCE)
        verified = self.verified(DATA, transactional_id, producer_id, epoch, sequence)
        leader, written = verified.leader, self.written
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)
        said = self.answer_to_verified(verified, batch)
        if said.error is ErrorCode.NONE and not self.leading.is_retry(leader, batch):
            written = self.written_with(transactional_id, verified.metadata.number, DATA, said.offset)
            leader = self.with_batch(leader, batch, self.constants.client_version)
        return replace(
            self,
            coordinators=self.coordinators.set(transactional_id, verified.metadata),
            partitions=self.partitions.set(DATA, leader),
            answer=self._said(PRODUCE, said.error, offset=said.offset),
            written=written,
        )

    @action("ProduceOutside", "ProducerIds", "Epochs", "Sequences", "BatchCounts")
    def produce_outside(self, producer_id: int, epoch: int, sequence: int, count: int) -> Self:
        """A client sends a batch outside of transactions.

        Spec:  Broker!ProduceOutside
        KIP:   KIP-98
        Kafka: KafkaApis.handleProduceRequest, without a transactional.id
        """
        self._sent(PRODUCE)
        enabled(self.constants.outside, "clients send no batches outside of transactions")
        leader = self.partitions[DATA]
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)
        said = self.answer_of_leader(leader, batch, OUTSIDE, NO_GUARD)
        if said.error is ErrorCode.NONE and not self.leading.is_retry(leader, batch):
            leader = self.with_batch(leader, batch, OUTSIDE)
        partitions = self.partitions.set(DATA, leader)
        return replace(self, partitions=partitions, answer=self._said(PRODUCE, said.error, offset=said.offset))

    @action("TxnOffsetCommit", "TransactionalIds", "ProducerIds", "Epochs", "Members", "Generations")
    def txn_offset_commit(
        self, transactional_id: str, producer_id: int, epoch: int, member: str | None, generation: int
    ) -> Self:
        """A client writes its group's offset in its transaction.

        Spec:  Broker!TxnOffsetCommit
        KIP:   KIP-98, KIP-447, KIP-890
        Kafka: KafkaApis.handleTxnOffsetCommitRequest
        """
        self._sent(TXN_OFFSET_COMMIT)
        verified = self.verified(OFFSETS, transactional_id, producer_id, epoch, NO_SEQUENCE)
        version, leader, error = self.constants.client_version, verified.leader, verified.error
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=NO_SEQUENCE, count=1)
        pending, written = self.pending, self.written
        if error is ErrorCode.NONE:
            error = self.commit_error(member, generation)
        if error is ErrorCode.NONE:
            error = self.batch_error(leader, batch, version, verified.guard)
        if error is ErrorCode.NONE:
            place = leader.log.log_end_offset
            pending = self.with_pending(producer_id, place)
            written = self.written_with(transactional_id, verified.metadata.number, OFFSETS, place)
            leader = self.with_batch(leader, batch, version)
        return replace(
            self,
            coordinators=self.coordinators.set(transactional_id, verified.metadata),
            partitions=self.partitions.set(OFFSETS, leader),
            pending=pending,
            answer=self._said(TXN_OFFSET_COMMIT, error),
            written=written,
        )

    @action("OffsetCommit", "Members", "Generations")
    def offset_commit(self, member: str | None, generation: int) -> Self:
        """A client commits its group's offset outside of transactions.

        Spec:  Broker!OffsetCommit
        KIP:   KIP-98, KIP-848, KIP-1251
        Kafka: OffsetMetadataManager.commitOffset
        """
        self._sent(OFFSET_COMMIT)
        enabled(member is None or self.is_known(), "the group has never had a member")
        error = self.plain_commit_error(member, generation)
        said = replace(self, answer=self._said(OFFSET_COMMIT, error))
        if error is not ErrorCode.NONE:
            return said
        leader = self.partitions[OFFSETS]
        return replace(
            said,
            partitions=self.partitions.set(OFFSETS, self.leading.with_unidentified(leader, 1)),
            committed=Map({DATA: leader.log.log_end_offset}),
        )

    @action("JoinGroup")
    def join_group(self) -> Self:
        """A consumer becomes the group's only member.

        Spec:  Broker!JoinGroup
        KIP:   KIP-447
        Kafka: GroupMetadataManager.classicGroupJoin
        """
        self._sent(JOIN)
        enabled(not self.group.members, "it is a member")
        group = replace(self.grouping.next_generation(), members=frozenset({MEMBER}))
        return replace(self, group=group, answer=self._said(JOIN, ErrorCode.NONE))

    def tells_epoch(self, epoch: int) -> Answer:
        """A consumer is told its epoch after a heartbeat."""
        return self._said(HEARTBEAT, ErrorCode.NONE, Identity(producer_id=NO_PRODUCER_ID, epoch=epoch))

    def _after_heartbeat(self, consumer: str, membership: Membership) -> Self:
        return replace(self, membership=membership, answer=self.tells_epoch(membership.members[consumer].epoch))

    @action("JoinConsumerGroup", "Consumers")
    def join_consumer_group(self, consumer: str) -> Self:
        """A consumer joins the group of KIP-848, and is given the partition if it is to have it and nobody else has it.

        Spec:  Broker!JoinConsumerGroup
        KIP:   KIP-848
        Kafka: GroupMetadataManager.consumerGroupHeartbeat
        """
        enabled(consumer not in self.grouping.members(), "it is a member")
        return self._after_heartbeat(consumer, self.grouping.joined(consumer))

    @action("Heartbeat", "Consumers", "BOOLEAN")
    def heartbeat(self, consumer: str, gives_up: bool) -> Self:
        """A member is led to the group's epoch. It says that it has what it was given, or that it has given that up.

        Spec:  Broker!Heartbeat
        KIP:   KIP-848
        Kafka: GroupMetadataManager.consumerGroupHeartbeat
        """
        enabled(consumer in self.grouping.members(), "it is no member")
        current = self.membership.members[consumer]
        owned = frozenset() if gives_up else current.assigned | current.revoking
        return self._after_heartbeat(consumer, self.grouping.reconciled(consumer, owned))

    @action("LeaveConsumerGroup", "Consumers")
    def leave_consumer_group(self, consumer: str) -> Self:
        """A member leaves the group of KIP-848.

        Spec:  Broker!LeaveConsumerGroup
        KIP:   KIP-848
        Kafka: GroupMetadataManager.consumerGroupLeave
        """
        enabled(consumer in self.grouping.members(), "it is no member")
        membership = self.grouping.membership_without(consumer)
        return replace(self, membership=membership, answer=self.tells_epoch(NO_EPOCH))

    # --- steps of the broker without a request                                      WHO: the coordinator ----------

    @action("WriteMarker", "TransactionalIds", "Partitions")
    def write_marker(self, transactional_id: str, partition: str) -> Self:
        """A partition of the transaction gets its marker.

        Spec:  Broker!WriteMarker
        KIP:   KIP-98
        Kafka: KafkaApis.handleWriteTxnMarkersRequest
        """
        due = self.to_mark[transactional_id]
        enabled(partition in due, "no marker is due")
        known, leader = self.coordinators[transactional_id], self.partitions[partition]
        marker = self.marker_of(known, partition)
        error = self.leading.marker_error(leader, marker, known.version)
        enabled(error is ErrorCode.NONE, error.name)
        pending, committed = self.pending, self.committed
        if partition == OFFSETS:
            committed = self.committed_after_marker(known.producer_id, marker.kind == COMMIT)
            pending = pending.set(known.producer_id, NOTHING_PENDING)
        return replace(
            self,
            partitions=self.partitions.set(partition, self.leading.with_marker(leader, marker, known.version)),
            to_mark=self.to_mark.set(transactional_id, due - {partition}),
            pending=pending,
            committed=committed,
            answer=NO_ANSWER,
        )

    @action("CompleteTransaction", "TransactionalIds")
    def complete_transaction(self, transactional_id: str) -> Self:
        """The coordinator closes the transaction.

        Spec:  Broker!CompleteTransaction
        KIP:   KIP-98
        Kafka: TransactionMarkerChannelManager.writeTxnCompletion
        """
        known = self.coordinators[transactional_id]
        enabled(known.state in PREPARED_STATES and not self.to_mark[transactional_id], "there is nothing to close")
        record = self.coordinating.after_completion(known)
        return replace(self.recorded(transactional_id, record), answer=NO_ANSWER)

    # --- an outage                                                                  WHO: an operator ---------------

    def leader_after_restart(self, before: LeaderState) -> LeaderState:
        """A leader after the restart: the producers are those of its log and of a snapshot of its end.

        No question is open.
        """
        asked = {producer_id: self.leading.asked_after_election(each) for producer_id, each in before.asked.items()}
        log = replace(before.log, producers=before.log.with_snapshot().rebuilt())
        return replace(before, log=log, asked=Map(asked))

    def metadata_after_restart(self, known: TransactionMetadata) -> TransactionMetadata:
        """A coordinator's metadata after the restart: what it loads from its log."""
        return self.coordinating.loaded(self.coordinating.in_log(known))

    @action("Restart")
    def restart(self) -> Self:
        """The broker is stopped and started again. What it knows of groups is in its log (GroupFollowsLog).

        Spec:  Broker!Restart
        KIP:   KIP-98
        Kafka: LogManager.loadLogs, TransactionStateManager.loadTransactionsForTxnTopicPartition
        """
        may_fail = "restart" in self.constants.faults and self.faults < self.constants.max_faults
        enabled(may_fail, "faults have run out")
        known = {name: self.metadata_after_restart(each) for name, each in self.coordinators.items()}
        return replace(
            self,
            coordinators=Map(known),
            to_mark=Map({name: to_mark(each) for name, each in known.items()}),
            partitions=Map({name: self.leader_after_restart(each) for name, each in self.partitions.items()}),
            answer=NO_ANSWER,
            faults=self.faults + 1,
        )
