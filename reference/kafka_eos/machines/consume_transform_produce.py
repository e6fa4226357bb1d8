"""An application reads inputs, writes an output for each in a transaction, and sends the offset after them into it.

Spec:  ConsumeTransformProduce.tla
KIPs:  98, 129, 447, 848, 1251
Kafka: KafkaProducer.sendOffsetsToTransaction, StreamsProducer, OffsetMetadataManager

=============  ================  =====================================================================================
spec variable  field             Kafka (the group's variables: group_coordinator.py, consumer_group.py)
=============  ================  =====================================================================================
transactions   ``transactions``  TransactionMetadata of each transactional.id; batches that wait for their marker
outputs        ``outputs``       what a read_committed reader finds
processes      ``processes``     KafkaConsumer and KafkaProducer of each process: membership, epoch, position
faults         ``faults``        none: bounds what may go wrong
=============  ================  =====================================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from immutables import Map

from kafka_eos.errors import ErrorCode, enabled, require
from kafka_eos.machines.consumer_group import ConsumerGroup, first_membership
from kafka_eos.machines.group_coordinator import (
    ABORT,
    CLASSIC,
    COMMIT,
    CONSUMER,
    NO_GENERATION,
    NO_OFFSET,
    PREPARING_REBALANCE,
    GroupConstants,
    Offsets,
    first_group,
)
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

V1, V2 = "v1", "v2"
NO_TRANSACTION, OPEN, OFFSETS_SENT = "none", "open", "offsets sent"

ABORTABLE_ERRORS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
"""The errors of offsets that let an instance abort its transaction; any other is fatal to its producer.

Kafka: TransactionManager.TxnOffsetCommitHandler
"""

Counts = Map[str, Map[int, int]]  # partition -> input -> how many outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants(GroupConstants):
    """The constants of ConsumeTransformProduce.tla, besides those of GroupCoordinator.tla.

    Attributes:
        inputs: 1..n, the inputs of each partition.
        eos: "v1", one transactional.id for each partition, or "v2", one for each instance.
        faults: what may go wrong: "abort", "crash", "expire session", "timeout", "join while processing".
        max_faults: how often.
    """

    inputs: frozenset[int]
    eos: str
    faults: frozenset[str]
    max_faults: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The transaction of a transactional.id.

    Attributes:
        state: "none", "open", "offsets sent", "commit" or "abort".
        holder: the instance that has the latest epoch, if any.
        written: the outputs that readers do not find yet.
    """

    state: str = NO_TRANSACTION
    holder: str | None = None
    written: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """An instance, as it knows itself.

    Attributes:
        is_up: whether it runs.
        generation: the generation of the group, or the member's epoch; 0 where it is no member.
        assigned: its partitions.
        initialized: the transactional ids that it has an epoch of.
        positions: for each partition, how many inputs it has read; -1 before the committed offset is fetched.
    """

    is_up: bool = True
    generation: int = NO_GENERATION
    assigned: frozenset[str] = frozenset()
    initialized: frozenset[str] = frozenset()
    positions: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeTransformProduce(ConsumerGroup):
    """A state of ConsumeTransformProduce.tla."""

    MODULE: ClassVar[str] = "ConsumeTransformProduce"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        *ConsumerGroup.VARIABLES,
        "transactions",
        "outputs",
        "processes",
        "faults",
    )

    constants: Constants = field(compare=False)
    transactions: Map[str, Transaction]
    outputs: Counts
    processes: Map[str, Process]
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: every instance is a member and knows its partitions; nothing has been read."""
        nothing: Offsets = Map(dict.fromkeys(constants.partitions, NO_OFFSET))
        no_output: Counts = Map(
            dict.fromkeys(sorted(constants.partitions), Map(dict.fromkeys(sorted(constants.inputs), 0)))
        )
        return cls(
            constants=constants,
            group=first_group(constants),
            membership=first_membership(constants),
            pending=Map(dict.fromkeys(constants.transactional_ids, nothing)),
            committed=Map(dict.fromkeys(constants.partitions, 0)),
            transactions=Map(dict.fromkeys(constants.transactional_ids, Transaction(written=no_output))),
            outputs=no_output,
            processes=Map(
                {
                    instance: Process(
                        generation=1,
                        assigned=frozenset(constants.preferred_by(instance)),
                        positions=nothing,
                    )
                    for instance in constants.instances
                }
            ),
        )

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    # --- rules ------------------------------------------------------------------------------------------------------

    def no_output(self) -> Counts:
        """No output of any input."""
        return Map(dict.fromkeys(self.constants.partitions, self._none_of_partition()))

    def _none_of_partition(self) -> Map[int, int]:
        return Map(dict.fromkeys(self.constants.inputs, 0))

    def stopped(self, *, is_up: bool, initialized: Iterable[str] = ()) -> Process:
        """An instance that is no member and has no position."""
        return Process(is_up=is_up, initialized=frozenset(initialized), positions=self.nothing_pending())

    def id_of(self, instance: str, partition: str) -> str:
        """The transactional id with which an instance writes for a partition."""
        return partition if self.constants.eos == V1 else instance

    def ids_of(self, instance: str) -> frozenset[str]:
        """The transactional ids that an instance needs for its partitions."""
        return frozenset(self.id_of(instance, partition) for partition in self.processes[instance].assigned)

    def partitions_of(self, instance: str, producer: str) -> frozenset[str]:
        """The partitions that an instance writes for with a transactional id."""
        return frozenset(p for p in self.processes[instance].assigned if self.id_of(instance, p) == producer)

    def is_open(self, producer: str) -> bool:
        """A transaction that is not decided."""
        return self.transactions[producer].state in {OPEN, OFFSETS_SENT}

    def is_fenced(self, instance: str, producer: str) -> bool:
        """Another instance has taken over the transactional id, or the coordinator has ended the transaction."""
        return self.transactions[producer].holder != instance

    def init_error(self, producer: str) -> ErrorCode:
        """The reason why InitProducerId is not answered with an epoch; ``NONE`` if it is.

        Kafka: TransactionCoordinator.prepareInitProducerIdTransit
        """
        if self.transactions[producer].state in {COMMIT, ABORT}:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def init_aborts(self, producer: str) -> bool:
        """InitProducerId aborts the transaction that it finds."""
        return self.is_open(producer)

    def has_initialized(self, instance: str, producer: str) -> bool:
        """An instance can write with a transactional id, as far as it knows."""
        return producer in self.processes[instance].initialized

    def may_fetch(self, instance: str, partition: str) -> bool:
        """An instance fetches an offset only after it has initialized its id: no former owner can still commit one."""
        return self.has_initialized(instance, self.id_of(instance, partition))

    def presented_member(self, instance: str) -> str | None:
        """The member that an instance names when it sends offsets: EOS v1 names none."""
        return None if self.constants.eos == V1 else instance

    def offset_to_send(self, instance: str, partition: str) -> int:
        """The offset that an instance sends: the next input's."""
        return self.processes[instance].positions[partition]

    def position_after_abort(self, instance: str, partition: str) -> int:  # noqa: ARG002 - a mutant of this rule needs them
        """The position after an abort: none, so that the committed offset is fetched again."""
        return NO_OFFSET

    def presented_generation(self, instance: str) -> int:
        """The generation or epoch that an instance sends with its offsets: the one in which it has read."""
        return self.processes[instance].generation

    def written_in(self, producer: str) -> frozenset[str]:
        """The partitions for which a transaction has outputs that no reader finds yet."""
        written, none = self.transactions[producer].written, self._none_of_partition()
        return frozenset(partition for partition, counts in written.items() if counts != none)

    def offsets_error(self, instance: str, producer: str) -> ErrorCode:
        """The reason why the offsets of an instance's transaction are refused; ``NONE`` if they are not."""
        member, generation = self.presented_member(instance), self.presented_generation(instance)
        if self.constants.group_protocol == CLASSIC:
            return self.txn_offset_commit_error(member, generation)
        return self.error_in_transaction(self.member_epoch_error(member, generation, self.written_in(producer)))

    def is_lost(self, instance: str) -> bool:
        """An instance was removed since it was given its partitions."""
        return self.processes[instance].generation < self.membership.members[instance].since

    def keeps_positions(self, instance: str) -> bool:
        """An instance that gets its partitions again keeps its positions, unless it was removed in between."""
        return not self.is_lost(instance)

    def must_join(self, instance: str) -> bool:
        """The coordinator tells an instance that it has to join, or that it is given other partitions."""
        process = self.processes[instance]
        if self.constants.group_protocol == CLASSIC:
            return self.group.state == PREPARING_REBALANCE or process.generation != self.group.generation
        member = self.membership.members[instance]
        return (process.generation, process.assigned) != (member.epoch, member.assigned)

    def has_nothing_open(self, instance: str) -> bool:
        """An instance has no open transaction that it could still end."""
        return all(
            self.is_fenced(instance, producer) or not self.is_open(producer)
            for producer in self.processes[instance].initialized
        )

    def is_abandoned(self, producer: str) -> bool:
        """No running instance can end this transaction."""
        return all(self.is_fenced(i, producer) for i in self.constants.instances if self.has_initialized(i, producer))

    def settled(self, transaction: Transaction, offsets: Offsets) -> Transaction:
        """A transaction is over when each of its partitions has the marker."""
        if transaction.written == self.no_output() and offsets == self.nothing_pending():
            return replace(transaction, state=NO_TRANSACTION)
        return transaction

    def decided(self, producer: str, decision: str, holder: str | None) -> Transaction:
        """A transaction after its decision; no reader ever finds what is aborted."""
        written = self.transactions[producer].written if decision == COMMIT else self.no_output()
        return self.settled(Transaction(state=decision, holder=holder, written=written), self.pending[producer])

    def can_send(self, instance: str, producer: str) -> bool:
        """An instance can send offsets into its transaction: it has outputs, and the offsets are not yet sent."""
        return self._may_write(instance, producer) and self.transactions[producer].state == OPEN

    def _may_write(self, instance: str, producer: str) -> bool:
        return self.has_initialized(instance, producer) and not self.is_fenced(instance, producer)

    def _fault(self, kind: str) -> int:
        """The number of faults after one more."""
        enabled(kind in self.constants.faults and self.faults < self.constants.max_faults, "no more faults")
        return self.faults + 1

    def _with_position(self, instance: str, partition: str, position: int) -> Map[str, Process]:
        process = self.processes[instance]
        return self.processes.set(instance, replace(process, positions=process.positions.set(partition, position)))

    def offsets_in_the_end(self) -> Offsets:
        """The committed offsets once the markers have come."""
        pending = [self.pending[producer] for producer, t in self.transactions.items() if t.state == COMMIT]
        return Map({p: max([offset, *(offsets[p] for offsets in pending)]) for p, offset in self.committed.items()})

    def outputs_in_the_end(self) -> Counts:
        """The number of times that a reader finds an input's output once the markers have come."""
        written = [transaction.written for transaction in self.transactions.values() if transaction.state == COMMIT]
        return Map(
            {
                partition: Map({n: count + sum(w[partition][n] for w in written) for n, count in found.items()})
                for partition, found in self.outputs.items()
            }
        )

    # --- the instances                                                              WHO: the application ----------

    @action("Initialize", "Instances", "TransactionalIds")
    def initialize(self, instance: str, producer: str) -> Self:
        """InitProducerId gives an instance the next epoch: it fences the former holder and aborts what is open.

        Spec:  ConsumeTransformProduce!Initialize
        KIP:   KIP-98
        Kafka: TransactionCoordinator.handleInitProducerId
        """
        process = self.processes[instance]
        enabled(producer in self.ids_of(instance) - process.initialized, "not needed, or there already")
        require(self.init_error(producer))
        transaction = (
            self.decided(producer, ABORT, instance)
            if self.init_aborts(producer)
            else replace(self.transactions[producer], holder=instance)
        )
        return replace(
            self,
            transactions=self.transactions.set(producer, transaction),
            processes=self.processes.set(instance, replace(process, initialized=process.initialized | {producer})),
        )

    @action("FetchOffset", "Instances", "Partitions")
    def fetch_offset(self, instance: str, partition: str) -> Self:
        """An instance fetches the offset from which it is to read a partition.

        Spec:  ConsumeTransformProduce!FetchOffset
        KIP:   KIP-447
        Kafka: KafkaConsumer.committed, OffsetFetchRequest.requireStable
        """
        process = self.processes[instance]
        enabled(partition in process.assigned, "not its partition")
        enabled(process.positions[partition] == NO_OFFSET, "it has a position")
        enabled(self.may_fetch(instance, partition), "its transactional id is not initialized")
        require(self.offset_fetch_error(partition))
        return replace(self, processes=self._with_position(instance, partition, self.committed[partition]))

    @action("Process", "Instances", "Partitions")
    def process(self, instance: str, partition: str) -> Self:
        """An instance reads the next input of a partition and writes its output, in a transaction.

        Spec:  ConsumeTransformProduce!Process
        KIP:   KIP-98
        Kafka: KafkaConsumer.poll, KafkaProducer.beginTransaction, KafkaProducer.send
        """
        producer = self.id_of(instance, partition)
        enabled(self._may_write(instance, producer), "no epoch, or fenced")
        process, transaction = self.processes[instance], self.transactions[producer]
        position = process.positions[partition]
        enabled(position + 1 in self.constants.inputs, "no position, or nothing to read")
        enabled(transaction.state in {NO_TRANSACTION, OPEN}, "the transaction takes no more")
        written = transaction.written[partition]
        after = written.set(position + 1, written[position + 1] + 1)
        transaction = replace(transaction, state=OPEN, written=transaction.written.set(partition, after))
        return replace(
            self,
            transactions=self.transactions.set(producer, transaction),
            processes=self._with_position(instance, partition, position + 1),
        )

    @action("SendOffsets", "Instances", "TransactionalIds")
    def send_offsets(self, instance: str, producer: str) -> Self:
        """An instance sends the offsets after what it has read into its transaction.

        Spec:  ConsumeTransformProduce!SendOffsets
        KIP:   KIP-98, KIP-447
        Kafka: KafkaProducer.sendOffsetsToTransaction, GroupCoordinatorService.commitTransactionalOffsets
        """
        enabled(self.can_send(instance, producer), "no outputs, offsets sent, or fenced")
        require(self.offsets_error(instance, producer))
        transaction, none = self.transactions[producer], self._none_of_partition()
        offsets: Offsets = Map(
            {
                partition: NO_OFFSET if written == none else self.offset_to_send(instance, partition)
                for partition, written in transaction.written.items()
            }
        )
        return replace(
            self,
            pending=self.pending.set(producer, offsets),
            committed=self.committed_at_write(offsets),
            transactions=self.transactions.set(producer, replace(transaction, state=OFFSETS_SENT)),
        )

    @action("RefuseOffsets", "Instances", "TransactionalIds")
    def refuse_offsets(self, instance: str, producer: str) -> Self:
        """The group coordinator refuses the offsets: the instance aborts its transaction and is no member, or it ends.

        Spec:  ConsumeTransformProduce!RefuseOffsets
        KIP:   KIP-447
        Kafka: CommitFailedException
        """
        enabled(self.can_send(instance, producer), "no outputs, offsets sent, or fenced")
        error = self.offsets_error(instance, producer)
        enabled(error is not ErrorCode.NONE, "the offsets are taken")
        if error not in ABORTABLE_ERRORS:
            return replace(self, processes=self.processes.set(instance, self.stopped(is_up=False)))
        return replace(
            self,
            transactions=self.transactions.set(producer, self.decided(producer, ABORT, instance)),
            processes=self.processes.set(instance, self.stopped(is_up=True, initialized={producer})),
        )

    @action("Commit", "Instances", "TransactionalIds")
    def commit(self, instance: str, producer: str) -> Self:
        """An instance commits its transaction.

        Spec:  ConsumeTransformProduce!Commit
        KIP:   KIP-98
        Kafka: KafkaProducer.commitTransaction
        """
        enabled(self._may_write(instance, producer), "no epoch, or fenced")
        enabled(self.transactions[producer].state == OFFSETS_SENT, "the offsets are not sent")
        return replace(self, transactions=self.transactions.set(producer, self.decided(producer, COMMIT, instance)))

    @action("Abort", "Instances", "TransactionalIds")
    def abort(self, instance: str, producer: str) -> Self:
        """An instance aborts its transaction: to join without its partitions, or to seek back after a failure.

        Spec:  ConsumeTransformProduce!Abort
        KIP:   KIP-98
        Kafka: KafkaProducer.abortTransaction, KafkaConsumer.seek
        """
        enabled(self._may_write(instance, producer), "no epoch, or fenced")
        enabled(self.is_open(producer), "no open transaction")
        process, partitions = self.processes[instance], self.partitions_of(instance, producer)
        positions = process.positions.update({p: self.position_after_abort(instance, p) for p in partitions})
        if self.must_join(instance):
            faults, assigned = self.faults, process.assigned - partitions
        else:
            faults, assigned = self._fault("abort"), process.assigned
        return replace(
            self,
            transactions=self.transactions.set(producer, self.decided(producer, ABORT, instance)),
            processes=self.processes.set(instance, replace(process, positions=positions, assigned=assigned)),
            faults=faults,
        )

    @action("ReceiveFencing", "Instances", "TransactionalIds")
    def receive_fencing(self, instance: str, producer: str) -> Self:
        """An instance learns that it is fenced, and gives up its partitions and transactional ids.

        Spec:  ConsumeTransformProduce!ReceiveFencing
        KIP:   KIP-98, KIP-588
        Kafka: ProducerFencedException, TaskMigratedException
        """
        enabled(self.has_initialized(instance, producer) and self.is_fenced(instance, producer), "not fenced")
        return replace(self, processes=self.processes.set(instance, self.stopped(is_up=True)))

    def _can_join(self, instance: str) -> None:
        enabled(self.constants.group_protocol == CLASSIC, "nobody joins a consumer group so")
        enabled(self.processes[instance].is_up and instance not in self.group.joined, "crashed, or it has joined")
        enabled(self.must_join(instance), "nobody asks for it")

    @action("Join", "Instances")
    def join(self, instance: str) -> Self:
        """An instance joins for the next generation, with no transaction open; version 1 closes its producers.

        Spec:  ConsumeTransformProduce!Join
        KIP:   KIP-447
        Kafka: JoinGroupRequest, ConsumerRebalanceListener.onPartitionsRevoked
        """
        self._can_join(instance)
        enabled(self.has_nothing_open(instance), "it has a transaction open")
        process = self.processes[instance]
        initialized = frozenset() if self.constants.eos == V1 else process.initialized
        return replace(
            self,
            group=self.group_with(instance),
            processes=self.processes.set(instance, self.stopped(is_up=True, initialized=initialized)),
        )

    @action("JoinWhileProcessing", "Instances")
    def join_while_processing(self, instance: str) -> Self:
        """The consumer of an instance joins in a thread of its own; the processing thread does not learn of it.

        Spec:  ConsumeTransformProduce!JoinWhileProcessing
        KIP:   KIP-62
        Kafka: none
        """
        self._can_join(instance)
        enabled(not self.has_nothing_open(instance), "it has no transaction open")
        return replace(self, group=self.group_with(instance), faults=self._fault("join while processing"))

    @action("LearnAssignment", "Instances")
    def learn_assignment(self, instance: str) -> Self:
        """An instance without an open transaction learns its present partitions and epoch.

        Spec:  ConsumeTransformProduce!LearnAssignment
        KIP:   KIP-848
        Kafka: AbstractMembershipManager.maybeReconcile, ConsumerRebalanceListener.onPartitionsLost
        """
        process, member = self.processes[instance], self.membership.members[instance]
        enabled(self.constants.group_protocol == CONSUMER, "the group is a classic one")
        enabled(process.is_up, "it has crashed")
        enabled(self.must_join(instance), "it has learnt")
        enabled(self.has_nothing_open(instance), "it has a transaction open")
        positions: Offsets = Map(
            {
                partition: position if partition in member.assigned and self.keeps_positions(instance) else NO_OFFSET
                for partition, position in process.positions.items()
            }
        )
        learnt = replace(process, generation=member.epoch, assigned=member.assigned, positions=positions)
        return replace(self, processes=self.processes.set(instance, learnt))

    @action("Crash", "Instances")
    def crash(self, instance: str) -> Self:
        """An instance crashes; its open transaction stays open.

        Spec:  ConsumeTransformProduce!Crash
        KIP:   KIP-98
        Kafka: none
        """
        enabled(self.processes[instance].is_up, "it has crashed")
        processes = self.processes.set(instance, self.stopped(is_up=False))
        return replace(self, processes=processes, faults=self._fault("crash"))

    @action("Restart", "Instances")
    def restart(self, instance: str) -> Self:
        """An instance that crashed starts again.

        Spec:  ConsumeTransformProduce!Restart
        KIP:   KIP-98
        Kafka: none
        """
        enabled(not self.processes[instance].is_up, "it runs")
        return replace(self, processes=self.processes.set(instance, self.stopped(is_up=True)))

    # --- the coordinators                                                           WHO: the coordinators ---------

    @action("ExpireSession", "Instances")
    def expire_session(self, instance: str) -> Self:
        """The group coordinator has not heard of a member for too long and removes it.

        Spec:  ConsumeTransformProduce!ExpireSession
        KIP:   KIP-62
        Kafka: GroupMetadataManager.expireClassicGroupMemberHeartbeat
        """
        enabled(instance in self.members() | self.group.joined, "it is no member")
        faults = self.faults
        if self.processes[instance].is_up:
            enabled(instance not in self.group.joined, "it has just joined")
            faults = self._fault("expire session")
        is_classic = self.constants.group_protocol == CLASSIC
        return replace(
            self,
            group=self.group_without(instance) if is_classic else self.group,
            membership=self.membership if is_classic else self.membership_without(instance),
            pending=self.pending_after_removal(self.members() - {instance}),
            faults=faults,
        )

    @action("LeaveAndReturn", "Instances")
    def leave_and_return(self, instance: str) -> Self:
        """The consumer of an instance leaves as a static member and is back under its member id, on another thread.

        Spec:  ConsumeTransformProduce!LeaveAndReturn
        KIP:   KIP-848
        Kafka: GroupMetadataManager.consumerGroupStaticMemberGroupLeave, getOrMaybeSubscribeStaticConsumerGroupMember
        """
        enabled(self.constants.group_protocol != CLASSIC, "a classic group")
        enabled(self.processes[instance].is_up and instance in self.members(), "it does not run or is no member")
        return replace(self, faults=self._fault("static leave"), membership=self.returned(instance))

    @action("Heartbeat", "Instances")
    def heartbeat(self, instance: str) -> Self:
        """A heartbeat of an instance's consumer: it joins, gives up revoked partitions, or gets free ones.

        Spec:  ConsumeTransformProduce!Heartbeat
        KIP:   KIP-848
        Kafka: GroupMetadataManager.consumerGroupHeartbeat
        """
        enabled(self.constants.group_protocol == CONSUMER, "the group is a classic one")
        process = self.processes[instance]
        enabled(process.is_up, "it has crashed")
        if instance not in self.members():
            membership = self.joined(instance)
        else:
            membership = self.reconciled(instance, frozenset() if self.is_lost(instance) else process.assigned)
        enabled(membership != self.membership, "nothing changes")
        return replace(self, membership=membership)

    @action("CompleteRebalance", "Instances")
    def complete_rebalance(self, leader: str) -> Self:
        """Every member has joined: the next generation begins, and each that waits for it learns its partitions.

        Spec:  ConsumeTransformProduce!CompleteRebalance
        KIP:   KIP-62
        Kafka: GroupMetadataManager.completeClassicGroupJoin, SyncGroupRequest
        """
        enabled(self.all_have_joined(), "no rebalance, or a member has not joined")
        enabled(leader in self.group.joined and self.processes[leader].is_up, "no leader")
        generation = self.group.generation + 1
        learnt = {
            member: replace(self.processes[member], generation=generation, assigned=self.assigned_to(member, leader))
            for member in self.group.joined
            if self.processes[member].is_up and self.processes[member].generation == NO_GENERATION
        }
        return replace(self, group=self.next_generation(), processes=self.processes.update(learnt))

    @action("TimeOut", "TransactionalIds")
    def time_out(self, producer: str) -> Self:
        """The transaction coordinator aborts a transaction that takes too long, and fences its producer.

        Spec:  ConsumeTransformProduce!TimeOut
        KIP:   KIP-98
        Kafka: TransactionCoordinator.abortTimedOutTransactions
        """
        enabled(self.is_open(producer), "no open transaction")
        faults = self.faults if self.is_abandoned(producer) else self._fault("timeout")
        return replace(
            self, transactions=self.transactions.set(producer, self.decided(producer, ABORT, None)), faults=faults
        )

    @action("PublishOutput", "TransactionalIds", "Partitions")
    def publish_output(self, producer: str, partition: str) -> Self:
        """The marker reaches an output partition: readers find the committed outputs.

        Spec:  ConsumeTransformProduce!PublishOutput
        KIP:   KIP-98
        Kafka: TransactionMarkerChannelManager, UnifiedLog.lastStableOffset
        """
        transaction, none = self.transactions[producer], self._none_of_partition()
        written = transaction.written[partition]
        enabled(transaction.state == COMMIT and written != none, "not committed, or found already")
        found = self.outputs[partition]
        found = found.update({number: found[number] + count for number, count in written.items()})
        after = replace(transaction, written=transaction.written.set(partition, none))
        return replace(
            self,
            outputs=self.outputs.set(partition, found),
            transactions=self.transactions.set(producer, self.settled(after, self.pending[producer])),
        )

    @action("PublishOffsets", "TransactionalIds")
    def publish_offsets(self, producer: str) -> Self:
        """The marker reaches the group's partition of __consumer_offsets: the pending offsets are committed or dropped.

        Spec:  ConsumeTransformProduce!PublishOffsets
        KIP:   KIP-98
        Kafka: OffsetMetadataManager.replayEndTransactionMarker
        """
        transaction, nothing = self.transactions[producer], self.nothing_pending()
        enabled(
            transaction.state in {COMMIT, ABORT} and self.pending[producer] != nothing, "undecided, or nothing pending"
        )
        return replace(
            self,
            committed=self.committed_at_marker(producer, transaction.state),
            pending=self.pending.set(producer, nothing),
            transactions=self.transactions.set(producer, self.settled(transaction, nothing)),
        )
