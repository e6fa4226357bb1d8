"""A producer, an unreliable network and one replicated partition.

Spec:  IdempotentProducer.tla
KIPs:  98, 185, 360, 679
Kafka: Sender, TransactionManager, TxnPartitionEntry, RecordAccumulator

=================  ======================  ============================================================
spec variable      field                   Kafka (the replicas' variables: replicated_log.py)
=================  ======================  ============================================================
queue              ``queue``               what the application has still to send
producer           ``producer``            TransactionManager: id and epoch, next sequence, last error
inFlight           ``in_flight``           TxnPartitionEntry.inflightBatchesBySequence
attempts           ``attempts``            ProducerBatch.attempts
requests           ``requests``            produce requests in the network
responses          ``responses``           produce responses in the network, one connection in order
outcome            ``outcome``             what the futures of send() say
nextProducerId     ``next_producer_id``    ProducerIdManager
=================  ======================  ============================================================
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from immutables import Map

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.producer_state import NO_PRODUCER_ID
from kafka_eos.machines.replicated_log import ReplicaLog, ReplicatedBatch, ReplicatedConstants, ReplicatedLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants(ReplicatedConstants):
    """The constants of IdempotentProducer.tla, besides those of ReplicatedLog.tla.

    Attributes:
        values: 1..n, what the application sends, in this order.
        attempts: 1..n, how often a batch is sent at most.
        max_in_flight: max.in.flight.requests.per.connection.
        acks: "0", "1" or "all".
        idempotence: enable.idempotence.
        max_epoch: the last producer epoch.
        max_producer_id: producer ids are 0..max_producer_id.
        resend_after_restart: after a restart the application sends again what was not acknowledged.
        expiration: the brokers may forget a producer that is silent.
    """

    values: frozenset[int]
    attempts: frozenset[int]
    max_in_flight: int
    acks: str
    idempotence: bool
    max_epoch: int
    max_producer_id: int
    resend_after_restart: bool
    expiration: bool

    def domain(self, name: str) -> Iterable[Hashable]:
        """The constant set ``name``, in order."""
        sets: dict[str, Iterable[Hashable]] = {
            "Replicas": sorted(self.replicas),
            "Values": sorted(self.values),
            "Attempts": sorted(self.attempts),
            "0..MaxProducerId": range(self.max_producer_id + 1),
        }
        return sets[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The client: id, epoch, the next batch's sequence, and the error that ended it."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1
    sequence: int = -1
    error: ErrorCode = ErrorCode.NONE


NEW_PRODUCER = Producer()


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightBatch:
    """A batch that is sent and not settled, with its stamp."""

    value: int
    producer_id: int
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(InFlightBatch):
    """An attempt to send a batch."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A produce response, with the epoch of the leader that sent it."""

    value: int
    error: ErrorCode
    offset: int
    leader_epoch: int


Batches = tuple[InFlightBatch, ...]


def request_of(batch: InFlightBatch, attempt: int) -> Request:
    """The request of an attempt to send a batch."""
    return Request(
        value=batch.value,
        producer_id=batch.producer_id,
        epoch=batch.epoch,
        sequence=batch.sequence,
        attempt=attempt,
    )


def batch_of(request: Request) -> ReplicatedBatch:
    """The batch that a request brings to the leader."""
    return ReplicatedBatch(
        producer_id=request.producer_id,
        epoch=request.epoch,
        sequence=request.sequence,
        count=1,
        value=request.value,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentProducer(ReplicatedLog):
    """A state of IdempotentProducer.tla."""

    MODULE: ClassVar[str] = "IdempotentProducer"
    FRAME: ClassVar[str] = "clientVars"
    VARIABLES: ClassVar[tuple[str, ...]] = (
        *ReplicatedLog.VARIABLES,
        "queue",
        "producer",
        "inFlight",
        "attempts",
        "requests",
        "responses",
        "outcome",
        "nextProducerId",
    )

    constants: Constants = field(compare=False)
    queue: tuple[int, ...]
    producer: Producer = NEW_PRODUCER
    in_flight: tuple[InFlightBatch, ...] = ()
    attempts: Map[int, int]
    requests: frozenset[Request] = frozenset()
    responses: tuple[Answer, ...] = ()
    outcome: Map[int, str]
    next_producer_id: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: every replica in sync and empty, nothing sent."""
        log = cls.LOG(limits=cls.limits(constants))
        return cls(
            constants=constants,
            replicas=Map(dict.fromkeys(constants.replicas, log)),
            alive=constants.replicas,
            leader=constants.initial_leader,
            isr=constants.replicas,
            queue=tuple(sorted(constants.values)),
            attempts=Map(dict.fromkeys(constants.values, 0)),
            outcome=Map(dict.fromkeys(constants.values, "unsent")),
        )

    @property
    def is_running(self) -> bool:
        """No error has ended the producer."""
        return self.producer.error is ErrorCode.NONE

    @property
    def is_ready(self) -> bool:
        """The producer may send: it runs, and has a producer id if it needs one."""
        return self.is_running and (not self.constants.idempotence or self.producer.producer_id != NO_PRODUCER_ID)

    def batch_in_flight(self, value: int) -> InFlightBatch | None:
        """The batch in flight with a value."""
        return next((batch for batch in self.in_flight if batch.value == value), None)

    def with_outcome(self, values: Iterable[int], result: str) -> Map[int, str]:
        """The outcomes after some values have got a result."""
        return self.outcome.update(dict.fromkeys(values, result))

    # --- what becomes of the producer when a batch fails --------------------------------------------------------

    def bumped(self) -> Producer:
        """The producer in its next epoch, or without an id when the epochs have run out.    KIP-360."""
        if self.producer.epoch < self.constants.max_epoch:
            return replace(self.producer, epoch=self.producer.epoch + 1, sequence=0)
        return NEW_PRODUCER

    def kept_after_expiry(self, value: int) -> Batches:
        """The batches that stay in flight when one has expired.

        With idempotence none, because a copy of each may still be on its way under the old epoch.

        # Departs from Kafka: the Java client stamps them again with the new epoch (KAFKA-14034; the mutant
        # RestampAfterExpiry).
        """
        if self.constants.idempotence:
            return ()
        return tuple(batch for batch in self.in_flight if batch.value != value)

    def producer_after_expiry(self, kept: Batches) -> Producer:  # noqa: ARG002 - a mutant of this rule needs it
        """The producer when a batch has expired: whether the log has it is unknown, so the next needs a new epoch.

        Departs from Kafka: there the sequence goes on after the batches that are stamped again (BumpAfterRestamp).
        """
        return self.bumped() if self.constants.idempotence else self.producer

    def kept_after_error(self, error: ErrorCode) -> Batches:  # noqa: ARG002 - a mutant of this rule needs it
        """The batches that stay in flight after a fatal error: none.

        Departs from Kafka: the Java client takes OUT_OF_ORDER_SEQUENCE_NUMBER for no fatal error, and stamps every
        batch again (RestampAfterError).
        """
        return ()

    def producer_after_error(self, error: ErrorCode, kept: Batches) -> Producer:  # noqa: ARG002 - as above
        """The producer after a fatal error: it can no longer be used.

        Departs from Kafka: the Java client then goes on in its next epoch (BumpAfterError).
        """
        return replace(self.producer, error=error)

    def may_expire(self, producer_id: int) -> bool:
        """A producer with nothing on its way or in flight may be forgotten: messages live less long than its state."""
        return all(request.producer_id != producer_id for request in self.requests) and all(
            batch.producer_id != producer_id for batch in self.in_flight
        )

    def keep(self, kept: Batches, producer: Producer) -> Self:
        """Some batches stay in flight; those with a new stamp are sent once more; the others have failed."""
        stayed = set(kept) & set(self.in_flight)
        again = [batch for batch in kept if batch not in stayed]
        attempts = self.attempts.update({batch.value: self.attempts[batch.value] + 1 for batch in again})
        values = {batch.value for batch in kept}
        stayed_values = {batch.value for batch in stayed}
        return replace(
            self,
            producer=producer,
            in_flight=kept,
            attempts=attempts,
            requests=self.requests | {request_of(batch, attempts[batch.value]) for batch in again},
            responses=tuple(answer for answer in self.responses if answer.value in stayed_values),
            outcome=self.with_outcome({b.value for b in self.in_flight} - values, "failed"),
        )

    # --- the producer sends                                                         WHO: the producer -------------

    @action("AllocateProducerId")
    def allocate_producer_id(self) -> Self:
        """The producer gets a producer id that nobody had before.

        Spec:  IdempotentProducer!AllocateProducerId
        KIP:   KIP-98
        Kafka: TransactionCoordinator.handleInitProducerId without a transactional.id
        """
        enabled(self.constants.idempotence and self.is_running, "not idempotent, or ended by an error")
        enabled(self.producer.producer_id == NO_PRODUCER_ID, "the producer has an id")
        enabled(self.next_producer_id <= self.constants.max_producer_id, "producer ids have run out")
        producer = replace(self.producer, producer_id=self.next_producer_id, epoch=0, sequence=0)
        return replace(self, producer=producer, next_producer_id=self.next_producer_id + 1)

    @action("Send", "Values")
    def send(self, value: int) -> Self:
        """The producer sends the application's next value as a batch.

        Spec:  IdempotentProducer!Send
        KIP:   KIP-98
        Kafka: RecordAccumulator.drainBatchesForOneNode
        """
        enabled(self.is_ready, "the producer has no id, or an error has ended it")
        enabled(self.queue[:1] == (value,), "another value is next")
        enabled(len(self.in_flight) < self.constants.max_in_flight, "too many batches in flight")
        attempt = self.attempts[value] + 1
        enabled(attempt in self.constants.attempts, "attempts have run out")
        producer = self.producer
        batch = InFlightBatch(
            value=value, producer_id=producer.producer_id, epoch=producer.epoch, sequence=producer.sequence
        )
        fire_and_forget = self.constants.acks == "0"
        if self.constants.idempotence:
            producer = replace(producer, sequence=self.limits(self.constants).next_sequence(producer.sequence))
        return replace(
            self,
            queue=self.queue[1:],
            producer=producer,
            in_flight=self.in_flight if fire_and_forget else (*self.in_flight, batch),
            attempts=self.attempts.set(value, attempt),
            requests=self.requests | {request_of(batch, attempt)},
            outcome=self.with_outcome({value}, "acknowledged" if fire_and_forget else "sent"),
        )

    @action("Resend", "Values")
    def resend(self, value: int) -> Self:
        """The producer has waited long enough for an answer and sends the batch again.

        Spec:  IdempotentProducer!Resend
        KIP:   KIP-98
        Kafka: Sender.reenqueueBatch
        """
        batch = self.batch_in_flight(value)
        enabled(self.is_running and batch is not None, "the value is not in flight")
        assert batch is not None
        attempt = self.attempts[value] + 1
        enabled(attempt in self.constants.attempts, "attempts have run out")
        return replace(
            self,
            attempts=self.attempts.set(value, attempt),
            requests=self.requests | {request_of(batch, attempt)},
            responses=tuple(answer for answer in self.responses if answer.value != value),
        )

    # --- the leader handles a request                                               WHO: the leader ---------------

    def takes_requests(self) -> bool:
        """The leader takes requests. With acks=all it refuses them while too few replicas are in sync."""
        return self.leader is not None and (self.constants.acks != "all" or self.has_min_isr())

    def on_its_way(self, value: int, attempt: int) -> Request:
        """The request with a value and attempt.

        Raises:
            NotEnabled: when nobody takes it, or there is no such request.
        """
        enabled(self.takes_requests(), "no leader, or too few replicas are in sync")
        request = next((r for r in self.requests if r.value == value and r.attempt == attempt), None)
        enabled(request is not None, "no such request is on its way")
        assert request is not None
        return request

    def is_awaited(self, request: Request) -> bool:
        """The client waits for an answer to this attempt."""
        batch = self.batch_in_flight(request.value)
        return batch is not None and request_of(batch, self.attempts[batch.value]) == request

    def answered(self, request: Request, error: ErrorCode, offset: int) -> Self:
        """The request is handled; its answer goes back if somebody waits for it."""
        responses = self.responses
        if self.is_awaited(request):
            answer = Answer(value=request.value, error=error, offset=offset, leader_epoch=self.leader_epoch)
            responses = (*responses, answer)
        return replace(self, requests=self.requests - {request}, responses=responses)

    @property
    def leaders_log(self) -> ReplicaLog:
        """The leader's log."""
        assert self.leader is not None
        return self.replicas[self.leader]

    @action("AppendBatch", "Values", "Attempts")
    def append_batch(self, value: int, attempt: int) -> Self:
        """The leader appends a batch that passed every check.

        Spec:  IdempotentProducer!AppendBatch
        KIP:   KIP-98, KIP-360
        Kafka: ReplicaManager.appendRecords
        """
        request = self.on_its_way(value, attempt)
        batch = batch_of(request)
        enabled(not self.leaders_log.is_duplicate(batch), "the batch is a duplicate")
        error = self.leaders_log.append_error(batch)
        enabled(error is ErrorCode.NONE, error.name)
        after = replace(self, replicas=self.leader_appends(batch))
        return after.answered(request, ErrorCode.NONE, self.leaders_log.log_end_offset)

    @action("AcknowledgeDuplicate", "Values", "Attempts")
    def acknowledge_duplicate(self, value: int, attempt: int) -> Self:
        """The leader acknowledges a retry with the offset of the first copy.

        Spec:  IdempotentProducer!AcknowledgeDuplicate
        KIP:   KIP-98
        Kafka: UnifiedLog.append, the branch for a duplicate
        """
        request = self.on_its_way(value, attempt)
        batch = batch_of(request)
        enabled(self.leaders_log.is_duplicate(batch), "the batch is no duplicate")
        return self.answered(request, ErrorCode.NONE, self.leaders_log.duplicate_offset(batch))

    @action("RefuseBatch", "Values", "Attempts")
    def refuse_batch(self, value: int, attempt: int) -> Self:
        """The leader refuses a batch that fails a check.

        Spec:  IdempotentProducer!RefuseBatch
        KIP:   KIP-98, KIP-360
        Kafka: ProducerAppendInfo.checkProducerEpoch, ProducerAppendInfo.checkSequence
        """
        request = self.on_its_way(value, attempt)
        batch = batch_of(request)
        enabled(not self.leaders_log.is_duplicate(batch), "the batch is a duplicate")
        error = self.leaders_log.append_error(batch)
        enabled(error is not ErrorCode.NONE, "the batch passes every check")
        return self.answered(request, error, -1)

    @action("ExpireProducer", "0..MaxProducerId")
    def expire_producer(self, producer_id: int) -> Self:
        """The replicas forget a producer that has been silent for too long.

        Spec:  IdempotentProducer!ExpireProducer
        KIP:   KIP-854 (producer.id.expiration.ms)
        Kafka: ProducerStateManager.removeExpiredProducers
        """
        enabled(self.constants.expiration, "producers do not expire in this model")
        enabled(self.may_expire(producer_id), "the producer is not silent")
        known = [replica for replica, log in self.replicas.items() if log.knows_producer(producer_id)]
        enabled(bool(known), "no replica knows the producer")
        forgotten = {replica: self.replicas[replica].forgotten(producer_id) for replica in known}
        return replace(self, replicas=self.replicas.update(forgotten))

    # --- the producer gets an answer, or none                                       WHO: the producer -------------

    def has_left(self, answer: Answer) -> bool:
        """An answer that has left the leader: under acks=all once the batch is replicated and enough are in sync.

        Kafka: Partition.checkEnoughReplicasReachOffset
        """
        if self.constants.acks != "all" or answer.error is not ErrorCode.NONE:
            return True
        same_leader = self.takes_requests() and answer.leader_epoch == self.leader_epoch
        return same_leader and self.high_watermark > answer.offset

    def position(self, value: int) -> int:
        """The place of the answer to a value's last attempt among the answers on their way.

        Raises:
            NotEnabled: when there is none.
        """
        found = next((i for i, answer in enumerate(self.responses) if answer.value == value), None)
        enabled(found is not None, "no answer is on its way")
        assert found is not None
        return found

    @action("ReceiveAcknowledgement", "Values")
    def receive_acknowledgement(self, value: int) -> Self:
        """The producer learns that a batch is stored.

        Spec:  IdempotentProducer!ReceiveAcknowledgement
        KIP:   KIP-98
        Kafka: Sender.completeBatch, TransactionManager.handleCompletedBatch
        """
        position = self.position(value)
        enabled(self.responses[position].error is ErrorCode.NONE, "the answer is an error")
        enabled(self.has_left(self.responses[position]), "the batch is not replicated yet")
        return replace(
            self,
            in_flight=tuple(batch for batch in self.in_flight if batch.value != value),
            responses=self.responses[position + 1 :],
            outcome=self.with_outcome({value}, "acknowledged"),
        )

    def is_fatal(self, answer: Answer) -> bool:
        """An error that no retry can mend.

        The producer is fenced, or a batch is refused although every batch before it is settled and no batch after it is
        stored. Any other refused batch is sent again.    Kafka: TransactionManager.canRetry, isNextSequence.
        """
        if answer.error is ErrorCode.INVALID_PRODUCER_EPOCH:
            return True
        later_stored = any(v > answer.value and result == "acknowledged" for v, result in self.outcome.items())
        oldest = answer.value == self.in_flight[0].value
        return answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and oldest and not later_stored

    @action("ReceiveError", "Values")
    def receive_error(self, value: int) -> Self:
        """The producer learns that a batch is refused for good. It and all batches in flight have failed.

        Spec:  IdempotentProducer!ReceiveError
        KIP:   KIP-98, KIP-360
        Kafka: Sender.failBatch, TransactionManager.handleFailedBatch
        """
        answer = self.responses[self.position(value)]
        enabled(answer.error is not ErrorCode.NONE, "the answer is no error")
        enabled(self.is_fatal(answer), "a retry can mend it")
        kept = self.kept_after_error(answer.error)
        return self.keep(kept, self.producer_after_error(answer.error, kept))

    @action("Expire", "Values")
    def expire(self, value: int) -> Self:
        """The oldest batch has waited for longer than delivery.timeout.ms: its fate is unknown.

        Spec:  IdempotentProducer!Expire
        KIP:   KIP-91, KIP-360
        Kafka: Sender.failBatch with a TimeoutException, TransactionManager.maybeResolveSequences
        """
        enabled(self.is_running, "an error has ended the producer")
        enabled(bool(self.in_flight) and self.in_flight[0].value == value, "not the oldest batch in flight")
        kept = self.kept_after_expiry(value)
        return self.keep(kept, self.producer_after_expiry(kept))

    # --- restart                                                                    WHO: the producer -------------

    @action("RestartProducer")
    def restart_producer(self) -> Self:
        """The producer's process is killed and starts again; what it knew of its batches is gone.

        Spec:  IdempotentProducer!RestartProducer
        KIP:   KIP-98
        Kafka: kill -9 of the client
        """
        enabled(self.is_running and bool(self.in_flight), "ended by an error, or nothing in flight")
        enabled(self.next_producer_id <= self.constants.max_producer_id, "restarts have run out")
        values = tuple(batch.value for batch in self.in_flight)
        again = self.constants.resend_after_restart
        return replace(
            self,
            queue=values + self.queue if again else self.queue,
            producer=NEW_PRODUCER,
            in_flight=(),
            responses=(),
            outcome=self.outcome if again else self.with_outcome(values, "failed"),
        )
