"""``Broker`` with the requests that its module leaves out: those of brokers and administrators, and of static members.

Their answers are made of the rules of the machines that have them: a leader's for a marker, a coordinator's for a
question. ``Broker`` sends markers and questions itself, so none of its actions is such a request. Two requests are
refused in every state, because what they ask for cannot be.
"""

from dataclasses import replace
from typing import Self, TypeVar

from immutables import Map

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.machines.broker import ADD_PARTITIONS, DATA, INIT, MEMBER, NOTHING_PENDING, OFFSETS, Answer, Broker
from kafka_eos.machines.machine import action
from kafka_eos.machines.transactional_partition import marker_entry

MARK, VERIFY, DELETE = "WriteTxnMarkers", "VerifyPartitions", "OffsetDelete"
TIMED, WITH_UNKNOWN = "InitProducerIdWithTimeout", "AddPartitionsWithUnknown"
FIRST_WITH_VERSIONS = 2
"""The first version of WriteTxnMarkers that tells the version of the transaction.    KIP-1228."""
INSTANCE, OTHER_INSTANCE = "instance", "another"
"""The ``group.instance.id`` of the group's static member, and one that nobody has."""

_Noted = TypeVar("_Noted")


def as_instance(member: str, instance: str) -> str:
    """A member that also presents a ``group.instance.id``."""
    return f"{member}@{instance}"


def claimed(member: str | None) -> tuple[str | None, str | None]:
    """The member that a request names, and the ``group.instance.id`` that it presents."""
    who, _, instance = (member or "").partition("@")
    return who or None, instance or None


class ConformingBroker(Broker):
    """The machine without the histories that only properties look at, and with the requests of this module."""

    __slots__ = ()

    def noted(self, history: frozenset[_Noted], entry: _Noted) -> frozenset[_Noted]:  # noqa: ARG002 - it is forgotten
        """Forget the history."""
        return history

    def marker_version(self) -> int:
        """The version of the transaction that a marker of a client tells; 1 if the request has no field for it."""
        tells = self.constants.api_versions.get(MARK, 0) >= FIRST_WITH_VERSIONS
        return self.constants.client_version if tells else 1

    @action(MARK, "ProducerIds", "Epochs", "BOOLEAN", "CoordinatorEpochs")
    def write_txn_markers(self, producer_id: int, epoch: int, commit: bool, coordinator_epoch: int) -> Self:
        """A client writes a marker to the partition, past the coordinator.

        Spec:  Leader!MarkerError
        KIP:   KIP-98, KIP-664, KIP-1228
        Kafka: KafkaApis.handleWriteTxnMarkersRequest, ProducerAppendInfo.appendEndTxnMarker
        """
        leader, version = self.partitions[DATA], self.marker_version()
        marker = marker_entry(producer_id, epoch, commit, coordinator_epoch)
        error = self.leading.marker_error(leader, marker, version)
        if error is ErrorCode.NONE:
            leader = self.leading.with_marker(leader, marker, version)
        return replace(self, partitions=self.partitions.set(DATA, leader), answer=Answer(api=MARK, error=error))

    @action(TIMED, "TransactionalIds")
    def init_producer_id_with_timeout(self, transactional_id: str) -> Self:  # noqa: ARG002 - whichever it is
        """A client asks for the producer id of its transactional.id, with a transaction timeout that is not allowed.

        KIP:   KIP-98
        Kafka: TransactionStateManager.validateTransactionTimeoutMs
        """
        enabled(self.is_sent(INIT), "no client sends it")
        return replace(self, answer=Answer(api=INIT, error=ErrorCode.INVALID_TRANSACTION_TIMEOUT))

    @action(WITH_UNKNOWN, "TransactionalIds", "ProducerIds", "Epochs")
    def add_partitions_with_unknown(self, transactional_id: str, producer_id: int, epoch: int) -> Self:  # noqa: ARG002
        """A client adds the partition together with one that does not exist: neither is added.

        KIP:   KIP-98
        Kafka: KafkaApis.handleAddPartitionsToTxnRequest
        """
        enabled(self.is_sent(ADD_PARTITIONS), "no client sends it")
        return replace(self, answer=Answer(api=ADD_PARTITIONS, error=ErrorCode.OPERATION_NOT_ATTEMPTED))

    @action(VERIFY, "TransactionalIds", "ProducerIds", "Epochs")
    def verify_partitions(self, transactional_id: str, producer_id: int, epoch: int) -> Self:
        """A client asks, as a leader does, whether the partition is in the transaction.

        Spec:  Broker!AnswerToLeader
        KIP:   KIP-890
        Kafka: TransactionCoordinator.handleVerifyPartitionsInTransaction
        """
        known = self.coordinators[transactional_id]
        error = self.coordinating.verification_error(known, producer_id, epoch, DATA)
        return replace(self, answer=Answer(api=ADD_PARTITIONS, error=error))

    def is_there(self) -> bool:
        """The group has had members, or an offset was written for it."""
        return self.is_known() or self.partitions[OFFSETS].log.log_end_offset > 0

    @action(DELETE)
    def offset_delete(self) -> Self:
        """An administrator deletes the group's offset, a pending one too, unless a member subscribes to the topic.

        KIP:   KIP-496
        Kafka: OffsetMetadataManager.deleteOffsets
        """
        error = ErrorCode.NONE if self.is_there() else ErrorCode.GROUP_ID_NOT_FOUND
        if not self.is_empty():
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        said = replace(self, answer=Answer(api=DELETE, error=error))
        if error is not ErrorCode.NONE:
            return said
        return replace(said, committed=NOTHING_PENDING, pending=Map(dict.fromkeys(self.pending, NOTHING_PENDING)))

    def member_error(self, member: str | None, generation: int) -> ErrorCode:
        """The reason why the group refuses offsets of a member, who may be static; ``NONE`` if it does not.

        KIP:   KIP-345
        Kafka: ClassicGroup.validateMember
        """
        who, instance = claimed(member)
        if instance == OTHER_INSTANCE:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if instance == INSTANCE and who != MEMBER:
            return ErrorCode.FENCED_INSTANCE_ID
        return super().member_error(who, generation)
