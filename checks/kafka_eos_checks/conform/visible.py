"""What clients see of transactional ids, a partition and a group: the reference's machines put together, as one value.

A request is answered by the machines alone: the coordinator's actions (``TransactionCoordinator``), the guards of a
leader (``ProducerState``, ``TransactionalPartition``, ``Transactions``) and of a group (``GroupCoordinator``). Markers
and completions are :meth:`Visible.settled`, the step that no client asks for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.transaction_log import TRANSACTION_VERSION_2
from kafka_eos.machines.group_coordinator import (
    ABORT,
    COMMIT,
    EMPTY,
    NO_GENERATION,
    NO_OFFSET,
    STABLE,
    Group,
    GroupConstants,
    GroupCoordinator,
)
from kafka_eos.machines.leader import (
    MAX_EPOCH,
    NO_GUARD,
    OUTSIDE,
    Asked,
    LeaderRules,
    LeaderState,
    Rules,
    ShippedGuards,
)
from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch
from kafka_eos.machines.read_committed import collect_aborted, without_aborted
from kafka_eos.machines.transaction_coordinator import (
    AT_REST,
    DEAD,
    NO_EPOCH,
    NOTHING,
    ONGOING,
    PREPARED_STATES,
    Constants,
    Identity,
    TransactionMetadata,
)
from kafka_eos.machines.transactional_partition import (
    NO_PRODUCER,
    TRANSACTIONAL,
    LogEntry,
    marker_entry,
)
from kafka_eos.server.transactions import ServedCoordinator

DATA, OFFSETS = "data", "offsets"
COORDINATOR_EPOCH = 0
MEMBER = "member"
STRANGER = 1_000_000
"""A producer id that no coordinator here has given."""

NONE, CURRENT, ANOTHER_ID, ID_ALONE = "no producer id", "current epoch", "another producer id", "producer id alone"
EPOCHS = {CURRENT: 0, "epoch - 1": -1, "epoch - 2": -2, "epoch + 1": 1}
"""What a request presents, relative to what the broker knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a broker is, and how clients speak to it.

    Attributes:
        level: the finalized ``transaction.version`` of the cluster.
        client: the transaction version of the requests, 1 or 2; 1 stands for 0 too.
        verification: leaders ask the coordinator about transactions of version 1 as well (KIP-890 part 1).
        versions: of the requests, by API.
        coordinator: the machine of a transactional.id.
        leaders: the machines of a partition's leader.
    """

    level: int
    client: int
    verification: bool
    versions: Mapping[str, int]
    coordinator: type[ServedCoordinator] = ServedCoordinator
    leaders: LeaderRules = field(default=LeaderRules())


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a client is answered.

    Attributes:
        error: the code on the wire.
        identity: the producer id and epoch that it is given, None where the answer has none.
        offset: of the first record, None where the answer has none.
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
        name: data or offsets.
        rules: the spec's.
        shipped: the same with Kafka's guards.
        state: all entries, and what the leader knows of producers.
        asked: the questions that a leader of Kafka keeps, where the spec's keeps ``state.asked``.
    """

    name: str
    rules: Rules = field(compare=False)
    shipped: Rules = field(compare=False)
    state: LeaderState
    asked: Map[int, Asked] = field(default=Map())

    @classmethod
    def empty(cls, name: str, rules: LeaderRules) -> "Partition":
        """A new one."""
        shipped = replace(rules, guards=ShippedGuards).of_leader()
        return cls(name=name, rules=rules.of_leader(), shipped=shipped, state=rules.new_state())

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
        """What a leader of Kafka has."""
        return replace(self.state, asked=self.asked)

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """Batches and markers, in order."""
        return tuple(self.state.transactions.entries)

    def read_committed(self) -> tuple[LogEntry, ...]:
        """What a read_committed reader that begins at the beginning is given."""
        upper = self.last_stable_offset
        aborted = collect_aborted(self.state.transactions.aborted_index, 0, upper)
        return tuple(without_aborted((e for e in self.entries if e.offset < upper), aborted))

    def asked_about(self, producer_id: int, epoch: int, sequence: int, version: int) -> "Partition":
        """After the leader has begun to ask the coordinator.    Spec: Leader!StartVerification."""
        question = (producer_id, epoch, sequence, version)
        shipped = self.shipped.with_question(self.as_shipped, *question)
        return replace(self, state=self.rules.with_question(self.state, *question), asked=shipped.asked)

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

    def appended(self, batch: Batch, version: int) -> "Partition":
        """After a batch that passed every check."""
        if batch.producer_id == NO_PRODUCER_ID:
            return replace(self, state=self.rules.with_unidentified(self.state, batch.count))
        asked = self.asked.set(batch.producer_id, self.shipped.asked_after_batch(self.as_shipped, batch, version))
        return replace(self, state=self.rules.with_batch(self.state, batch, version), asked=asked)

    def with_marker(self, identity: Identity, commit: bool, version: int) -> "Partition":
        """After a marker, which has to pass."""
        marker = marker_entry(identity.producer_id, identity.epoch, commit, COORDINATOR_EPOCH)
        error = self.rules.marker_error(self.state, marker, version)
        assert error is ErrorCode.NONE, f"a marker of the coordinator is refused: {error.name}"
        asked = self.asked.set(marker.producer_id, self.shipped.asked_after_marker(self.as_shipped, marker, version))
        return replace(self, state=self.rules.with_marker(self.state, marker, version), asked=asked)


def wire_error(api: str, version: int, error: ErrorCode) -> ErrorCode:
    """The code in which a version of a request is told an error of the machines.

    Codes that a version does not know yet are told as older ones: KIP-588 brought PRODUCER_FENCED, KIP-890
    TRANSACTION_ABORTABLE.

    Kafka: KafkaApis, AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend
    """
    if error is ErrorCode.PRODUCER_FENCED:
        first = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
        return error if version >= first.get(api, 99) else ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < {"Produce": 11, "TxnOffsetCommit": 4}[api]:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.CONCURRENT_TRANSACTIONS and api == "Produce" and version < 12:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """The machines.

    Attributes:
        settings: what the broker is.
        coordinators: of each transactional.id its machine.
        partitions: the partition with data, and that with the group's offsets.
        group: who may commit offsets, and which are committed and pending, as places in the partition of offsets.
        plain: the producer ids of those without transactional.id.
        allocated: how many producer ids have been given.
    """

    settings: Settings = field(compare=False)
    coordinators: Map[str, ServedCoordinator]
    partitions: Map[str, Partition]
    group: GroupCoordinator
    plain: Map[str, int] = field(default=Map())
    allocated: int = 0

    @classmethod
    def initial(cls, settings: Settings, transactional_ids: tuple[str, ...]) -> "Visible":
        """Nobody has asked for anything."""
        nothing: frozenset[int] = frozenset()
        constants = Constants(
            producer_ids=nothing,
            max_epoch=MAX_EPOCH,
            partitions=frozenset(),
            versions=frozenset({1, 2} if settings.level == TRANSACTION_VERSION_2 else {1}),
            faults=frozenset(),
            max_faults=0,
        )
        rules = replace(settings.leaders, verification=settings.verification)
        machine = settings.coordinator.initial(constants)
        group = GroupCoordinator(
            constants=GroupConstants(
                instances=frozenset(), partitions=frozenset({DATA}), transactional_ids=frozenset(), preferred=Map()
            ),
            group=Group(state=EMPTY, generation=NO_GENERATION, members=frozenset()),
            pending=Map(),
            committed=Map({DATA: NO_OFFSET}),
        )
        return cls(
            settings=settings,
            coordinators=Map(dict.fromkeys(transactional_ids, machine)),
            partitions=Map({name: Partition.empty(name, rules) for name in (DATA, OFFSETS)}),
            group=group,
        )

    # --- what there is -----------------------------------------------------------------------------------------------

    def known(self, name: str) -> TransactionMetadata:
        """What the coordinator knows of a transactional.id."""
        return self.coordinators[name].metadata

    @property
    def data(self) -> Partition:
        """The partition that clients write to."""
        return self.partitions[DATA]

    @property
    def is_settled(self) -> bool:
        """The coordinators have nothing left to do."""
        return not any(machine.metadata.state in PREPARED_STATES for machine in self.coordinators.values())

    def faults(self) -> Iterator[str]:
        """The actions of the spec that only a fault or the passing of time takes, where they may be taken."""
        for machine in self.coordinators.values():
            known = machine.metadata
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

    def _version(self, api: str) -> int:
        return self.settings.versions[api]

    def _handled(self, name: str, after: ServedCoordinator) -> "Visible":
        """The coordinator has begun to answer: what it appends is replicated, then it has answered."""
        if after.fencing != NOTHING:
            after = replace(after, allocated=max(after.allocated, self.allocated)).abort_fenced()
        if not after.is_idle():
            after = after.append_is_replicated()
        allocated = max(self.allocated, after.allocated)
        return replace(self, coordinators=self.coordinators.set(name, after), allocated=allocated)

    def _machine(self, name: str) -> ServedCoordinator:
        return replace(self.coordinators[name], allocated=self.allocated)

    def _answer(self, name: str, api: str, rule: str) -> Answer:
        said = self.coordinators[name].answer
        error = wire_error(api, self._version(api), said.error)
        gives = api == "InitProducerId" or (api == "EndTxn" and self.settings.client >= TRANSACTION_VERSION_2)
        given = Identity(producer_id=said.producer_id, epoch=said.epoch) if gives else None
        return Answer(error=error, identity=given, rule=f"TransactionCoordinator!{rule}")

    def init_producer_id(self, name: str, presented: Identity) -> tuple[Answer, "Visible"]:
        """A client asks for a producer id and epoch.    Spec: TransactionCoordinator!HandleInitProducerId."""
        after = self._handled(name, self._machine(name).handle_init_producer_id(presented.producer_id, presented.epoch))
        return after._answer(name, "InitProducerId", "InitError"), after

    def plain_init(self, name: str) -> tuple[Answer, "Visible"]:
        """A client without transactional.id asks for a producer id: it gets one that nobody has, in epoch 0."""
        given = Identity(producer_id=self.allocated, epoch=0)
        plain = self.plain.set(name, given.producer_id)
        answer = Answer(error=ErrorCode.NONE, identity=given, rule="PartitionLog!ProducerIds")
        return answer, replace(self, plain=plain, allocated=self.allocated + 1)

    def add_partition(
        self, name: str, presented: Identity, partition: str, version: int = 1
    ) -> tuple[ErrorCode, "Visible"]:
        """A partition is added to a transaction.    Spec: TransactionCoordinator!HandleAddPartition."""
        after = self._handled(
            name,
            self._machine(name).handle_add_partition(presented.producer_id, presented.epoch, partition, version),
        )
        return after.coordinators[name].answer.error, after

    def add_partitions(self, name: str, presented: Identity, partition: str) -> tuple[Answer, "Visible"]:
        """A client adds a partition, or that of its group's offsets."""
        _, after = self.add_partition(name, presented, partition)
        api = "AddPartitionsToTxn" if partition == DATA else "AddOffsetsToTxn"
        return after._answer(name, api, "AddError"), after

    def end_txn(self, name: str, presented: Identity, commit: bool) -> tuple[Answer, "Visible"]:
        """A client ends its transaction.    Spec: TransactionCoordinator!HandleEndTxn."""
        version = self.settings.client
        after = self._handled(
            name, self._machine(name).handle_end_txn(presented.producer_id, presented.epoch, commit, version)
        )
        return after._answer(name, "EndTxn", f"EndVerdictOfVersion{version}"), after

    # --- requests to leaders -----------------------------------------------------------------------------------------

    def _vouched(
        self, name: str, presented: Identity, partition: str, sequence: int
    ) -> tuple[ErrorCode, str, int, "Visible"]:
        """Whether a transactional batch may go on to the checks of the log: error, rule, guard, and what is then.

        Spec: Leader!StartVerification, RefuseVerification, Transactions!Verify
        """
        version, leader = self.settings.client, self.partitions[partition]
        producer_id, epoch = presented.producer_id, presented.epoch
        rules, guard = leader.rules, leader.state.questions(producer_id).guard
        if not rules.needs_verification(leader.state, producer_id, epoch, version):
            return ErrorCode.NONE, "", NO_GUARD, self
        if (refused := rules.verification_error(leader.state, producer_id, epoch)) is not ErrorCode.NONE:
            return refused, "Transactions!StartVerification", NO_GUARD, self
        leader = leader.asked_about(producer_id, epoch, sequence, version)
        asked = replace(self, partitions=self.partitions.set(partition, leader))
        if version >= TRANSACTION_VERSION_2:
            error, asked = asked.add_partition(name, presented, partition, version)
            return error, "TransactionCoordinator!AddError", guard, asked
        error = self.coordinators[name].verification_error(producer_id, epoch, partition)
        return error, "Transactions!VerificationError", guard, asked

    def produce(
        self, name: str, presented: Identity, sequence: int, count: int = 1, kind: str = TRANSACTIONAL
    ) -> list[tuple[Answer, "Visible"]]:
        """A client sends a batch: the spec's answer, and Kafka's where that differs.

        Spec: Leader!AppendBatch, AcknowledgeDuplicate, RefuseBatch
        """
        api, state, guard, version = "Produce", self, NO_GUARD, OUTSIDE
        if kind == TRANSACTIONAL:
            version = self.settings.client
            error, rule, guard, state = self._vouched(name, presented, DATA, sequence)
            if error is not ErrorCode.NONE:
                return [(Answer(error=wire_error(api, self._version(api), error), rule=rule), state)]
        leader = state.data
        batch = Batch(producer_id=presented.producer_id, epoch=presented.epoch, sequence=sequence, count=count)
        if leader.rules.is_retry(leader.state, batch):
            offset = leader.state.log.duplicate_offset(batch)
            return [(Answer(error=ErrorCode.NONE, offset=offset, rule="ProducerState!IsDuplicate"), state)]
        error, rule = leader.append_error(batch, version, guard)
        after, offset = state, -1
        if error is ErrorCode.NONE:
            offset = leader.end
            after = replace(state, partitions=state.partitions.set(DATA, leader.appended(batch, version)))
        answer = Answer(
            error=wire_error(api, self._version(api), error), offset=None if offset < 0 else offset, rule=rule
        )
        return [(answer, after), *state._as_by_kafka(batch, version, answer)]

    def _as_by_kafka(self, batch: Batch, version: int, answer: Answer) -> list[tuple[Answer, "Visible"]]:
        """What Kafka answers to a batch that was vouched for, where that is a recorded difference."""
        leader = self.data
        if answer.error in {ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE} and (known := leader.refused_by_kafka(batch)):
            refused = Answer(error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, rule=answer.rule, known=known)
            return [(refused, self)]
        is_unknown = not leader.state.log.knows_producer(batch.producer_id)
        if answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and is_unknown and not leader.refused_by_kafka(batch):
            appended = replace(self, partitions=self.partitions.set(DATA, leader.appended(batch, version)))
            accepted = Answer(error=ErrorCode.NONE, offset=leader.end, rule=answer.rule, known="first-sequence")
            return [(accepted, appended)]
        return []

    def commit_offsets(
        self, name: str, presented: Identity, member: str | None, generation: int
    ) -> tuple[Answer, "Visible"]:
        """A client writes its group's offset in a transaction.    Spec: ConsumeTransformProduce!SendOffsets."""
        api = "TxnOffsetCommit"
        error, rule, guard, state = self._vouched(name, presented, OFFSETS, -1)
        leader = state.partitions[OFFSETS]
        producer_id = presented.producer_id
        batch = Batch(producer_id=producer_id, epoch=presented.epoch, sequence=-1, count=1)
        if error is ErrorCode.NONE:
            rule = "GroupCoordinator!TxnOffsetCommitError"
            error = self.commit_error(member, generation)
        if error is ErrorCode.NONE:
            error, rule = leader.append_error(batch, self.settings.client, guard)
        if error is not ErrorCode.NONE:
            return Answer(error=wire_error(api, self._version(api), error), rule=rule), state
        written = leader.appended(batch, self.settings.client)
        group = state.group.with_pending(str(producer_id), Map({DATA: leader.end}))
        after = replace(state, partitions=state.partitions.set(OFFSETS, written), group=group)
        return Answer(error=ErrorCode.NONE, rule=rule), after

    # --- requests to the group ---------------------------------------------------------------------------------------

    def commit_error(self, member: str | None, generation: int) -> ErrorCode:
        """Why offsets are refused.    Spec: GroupCoordinator!TxnOffsetCommitError."""
        if generation < 0 and self.group.group.state == EMPTY:
            return ErrorCode.NONE
        if member is not None and generation >= 0 and self.group.group.generation == NO_GENERATION:
            return ErrorCode.ILLEGAL_GENERATION  # there is no such group
        return self.group.txn_offset_commit_error(member, generation)

    def commit_plainly(self) -> tuple[Answer, "Visible"]:
        """A client commits its group's offset outside of transactions.

        Kafka: OffsetMetadataManager.commitOffset
        """
        leader = self.partitions[OFFSETS]
        batch = Batch(producer_id=NO_PRODUCER_ID, epoch=-1, sequence=-1, count=1)
        group = replace(self.group, committed=self.group.committed.set(DATA, leader.end))
        written = leader.appended(batch, OUTSIDE)
        answer = Answer(error=ErrorCode.NONE, rule="GroupCoordinator!Over")
        return answer, replace(self, partitions=self.partitions.set(OFFSETS, written), group=group)

    def join(self) -> tuple[Answer, "Visible"]:
        """A consumer becomes the group's only member."""
        group = Group(
            state=STABLE, generation=self.group.group.generation + 1, members=frozenset({MEMBER}), joined=frozenset()
        )
        answer = Answer(error=ErrorCode.NONE, rule="GroupCoordinator!NextGeneration")
        return answer, replace(self, group=replace(self.group, group=group))

    # --- what no client asks for -------------------------------------------------------------------------------------

    def settled(self) -> "Visible":
        """After all markers and completions that are due.

        Spec: TransactionCoordinator!WriteMarker, CompleteTransaction
        """
        state = self
        for name, machine in self.coordinators.items():
            if machine.metadata.state in PREPARED_STATES:
                state = state._settled(name)
        return state

    def _settled(self, name: str) -> "Visible":
        state, machine = self, self.coordinators[name]
        for partition in sorted(machine.to_mark):
            known = machine.metadata
            marked = Identity(producer_id=known.producer_id, epoch=known.epoch)
            commit = machine.marker_commits(partition)
            leader = state.partitions[partition].with_marker(marked, commit, known.version)
            state = replace(state, partitions=state.partitions.set(partition, leader))
            if partition == OFFSETS:
                group = state.group.with_decision(str(known.producer_id), COMMIT if commit else ABORT)
                state = replace(state, group=group)
            machine = machine.write_marker(partition)
        completed = machine.complete_transaction().append_is_replicated()
        return replace(state, coordinators=state.coordinators.set(name, completed))
