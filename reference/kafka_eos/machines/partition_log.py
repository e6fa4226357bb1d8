"""One replica that leads a partition and answers any produce request.

Spec:  PartitionLog.tla
KIPs:  98, 360
Kafka: ReplicaManager.appendRecords, UnifiedLog.append

=============  ==============  ============================================================================
spec variable  field           Kafka
=============  ==============  ============================================================================
log            ``log``         UnifiedLog (its batches) and ProducerStateManager (producers, snapshot)
response       ``response``    ProduceResponse.PartitionProduceResponse, with the request that it answers
=============  ==============  ============================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.producer_state import NO_PRODUCER_ID, Batch, Limits, Log
from kafka_eos.machines.spec_mapping import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of PartitionLog.tla.

    Attributes:
        max_sequence: the last sequence before the wrap to 0.
        cached_batches: batches remembered for each producer.
        producer_ids: the producers that send requests.
        epochs: the epochs they send.
        sequences: the sequences they send.
        batch_counts: the numbers of records in a batch.
        expiration: whether a producer's state may expire.
    """

    max_sequence: int
    cached_batches: int
    producer_ids: frozenset[int]
    epochs: frozenset[int]
    sequences: frozenset[int]
    batch_counts: frozenset[int]
    expiration: bool

    def domain(self, name: str) -> Iterable[int]:
        """The constant set ``name``, in order."""
        sets = {
            "ProducerIds": self.producer_ids,
            "Epochs": self.epochs,
            "Sequences": self.sequences,
            "BatchCounts": self.batch_counts,
        }
        return sorted(sets[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer to a request, with the request that it answers; ``offset`` is -1 for an error."""

    producer_id: int
    epoch: int
    sequence: int
    count: int
    offset: int
    error: ErrorCode


def respond(batch: Batch, error: ErrorCode, offset: int = -1) -> Response:
    """The answer to the request that brought a batch."""
    return Response(
        producer_id=batch.producer_id,
        epoch=batch.epoch,
        sequence=batch.sequence,
        count=batch.count,
        offset=offset,
        error=error,
    )


NO_RESPONSE = respond(Batch(producer_id=NO_PRODUCER_ID, epoch=-1, sequence=-1, count=0), ErrorCode.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLog:
    """A state of PartitionLog.tla: the replica's log, and its answer to the last request."""

    MODULE: ClassVar[str] = "PartitionLog"
    VARIABLES: ClassVar[tuple[str, ...]] = ("log", "response")
    LOG: ClassVar[type[Log]] = Log
    LIMITS: ClassVar[type[Limits]] = Limits

    constants: Constants = field(compare=False)
    log: Log
    response: Response = NO_RESPONSE

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: an empty log that nobody has asked anything."""
        return cls(constants=constants, log=cls.LOG(limits=cls.limits(constants)))

    @classmethod
    def limits(cls, constants: Constants) -> Limits:
        """The limits of the log."""
        return cls.LIMITS(constants.max_sequence, constants.cached_batches)

    @classmethod
    def context(cls, constants: Constants) -> Context:
        """The class of the log, which a mutant changes, and its limits."""
        return {Log: cls.LOG, Limits: cls.limits(constants)}

    # --- a produce request                                                          WHO: the leader ---------------

    @action("AppendBatch", "ProducerIds", "Epochs", "Sequences", "BatchCounts")
    def append_batch(self, producer_id: int, epoch: int, sequence: int, count: int) -> Self:
        """The leader appends a batch that passed every check.

        Spec:  PartitionLog!AppendBatch
        KIP:   KIP-98, KIP-360
        Kafka: ProducerAppendInfo.appendDataBatch
        """
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)
        enabled(not self.log.is_duplicate(batch), "the batch is a duplicate")
        error = self.log.append_error(batch)
        enabled(error is ErrorCode.NONE, error.name)
        return replace(
            self,
            log=self.log.appended(batch),
            response=respond(batch, ErrorCode.NONE, self.log.log_end_offset),
        )

    @action("AcknowledgeDuplicate", "ProducerIds", "Epochs", "Sequences", "BatchCounts")
    def acknowledge_duplicate(self, producer_id: int, epoch: int, sequence: int, count: int) -> Self:
        """The leader acknowledges a retry with the offset of the first copy.

        Spec:  PartitionLog!AcknowledgeDuplicate
        KIP:   KIP-98
        Kafka: UnifiedLog.append, the branch for a duplicate
        """
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)
        enabled(self.log.is_duplicate(batch), "the batch is no duplicate")
        return replace(self, response=respond(batch, ErrorCode.NONE, self.log.duplicate_offset(batch)))

    @action("RefuseBatch", "ProducerIds", "Epochs", "Sequences", "BatchCounts")
    def refuse_batch(self, producer_id: int, epoch: int, sequence: int, count: int) -> Self:
        """The leader refuses a batch that fails a check.

        Spec:  PartitionLog!RefuseBatch
        KIP:   KIP-98, KIP-360
        Kafka: ProducerAppendInfo.checkProducerEpoch, ProducerAppendInfo.checkSequence
        """
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)
        enabled(not self.log.is_duplicate(batch), "the batch is a duplicate")
        error = self.log.append_error(batch)
        enabled(error is not ErrorCode.NONE, "the batch passes every check")
        return replace(self, response=respond(batch, error))

    @action("FailAppend", "ProducerIds", "Epochs", "Sequences", "BatchCounts")
    def fail_append(self, producer_id: int, epoch: int, sequence: int, count: int) -> Self:
        """The storage fails while the leader appends a batch that passed every check.

        Spec:  PartitionLog!FailAppend
        KIP:   none; KAFKA-6683
        Kafka: UnifiedLog.append, the error of the local log
        """
        batch = Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=count)
        enabled(not self.log.is_duplicate(batch), "the batch is a duplicate")
        error = self.log.append_error(batch)
        enabled(error is ErrorCode.NONE, error.name)
        return replace(
            self,
            log=self.log.failed_to_append(batch),
            response=respond(batch, ErrorCode.KAFKA_STORAGE_ERROR),
        )

    # --- the replica by itself                                                      WHO: the replica --------------

    @action("TakeSnapshot")
    def take_snapshot(self) -> Self:
        """The replica writes what it knows of the producers to a snapshot.

        Spec:  PartitionLog!TakeSnapshot
        KIP:   KIP-98
        Kafka: ProducerStateManager.takeSnapshot
        """
        enabled(self.log.snapshot.offset < self.log.log_end_offset, "the snapshot is of the log's end already")
        return replace(self, log=self.log.with_snapshot())

    @action("Restart")
    def restart(self) -> Self:
        """The replica starts again and rebuilds the producers from snapshot and log.

        Spec:  PartitionLog!Restart
        KIP:   KIP-98
        Kafka: UnifiedLog.rebuildProducerState
        """
        return replace(self, log=self.log.reloaded())

    @action("ExpireProducer", "ProducerIds")
    def expire_producer(self, producer_id: int) -> Self:
        """The replica forgets a producer that has been silent for too long.

        Spec:  PartitionLog!ExpireProducer
        KIP:   KIP-854 (producer.id.expiration.ms)
        Kafka: ProducerStateManager.removeExpiredProducers
        """
        enabled(self.constants.expiration, "producers do not expire in this model")
        enabled(self.log.knows_producer(producer_id), "there is no state for the producer")
        return replace(self, log=self.log.forgotten(producer_id))
