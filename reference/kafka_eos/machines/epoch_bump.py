"""A producer with a transactional.id asks the coordinator for its next epoch after a batch has expired.

Spec:  EpochBump.tla
KIPs:  360
Kafka: TransactionCoordinator.handleInitProducerId, TransactionMetadata, TransactionManager

=============  =================  ========================================================================
spec variable  field              Kafka
=============  =================  ========================================================================
coordinator    ``coordinator``    TransactionMetadata: producerId, producerEpoch, prevProducerId, lastEpoch
client         ``client``         TransactionManager.producerIdAndEpoch, its pending InitProducerId
attempt        ``attempt``        correlation ids
requests       ``requests``       InitProducerId requests in the network
responses      ``responses``      InitProducerId responses in the network
takenOver      ``taken_over``     another process with the same transactional.id
=============  =================  ========================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from kafka_eos.errors import ErrorCode, enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of EpochBump.tla.

    Attributes:
        attempts: 1..n, how many requests the client sends at most.
        max_epoch: the last epoch that is handed out.
        take_over: whether another instance may ask for the same transactional.id.
    """

    attempts: frozenset[int]
    max_epoch: int
    take_over: bool

    def domain(self, name: str) -> Iterable[int]:
        """The constant set ``name``, in order."""
        assert name == "Attempts", name
        return sorted(self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A producer id and epoch."""

    producer_id: int
    epoch: int


NOBODY = Identity(producer_id=-1, epoch=-1)
FIRST = Identity(producer_id=0, epoch=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """The identity that was given out last, and the one before."""

    current: Identity
    last: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client's identity, the attempt whose answer it waits for (0: none), and its fatal error."""

    identity: Identity
    awaits: int = 0
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpRequest:
    """An InitProducerId request."""

    attempt: int
    presented: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpResponse:
    """An InitProducerId response."""

    attempt: int
    error: ErrorCode
    identity: Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochBump:
    """A state of EpochBump.tla."""

    MODULE: ClassVar[str] = "EpochBump"
    VARIABLES: ClassVar[tuple[str, ...]] = ("coordinator", "client", "attempt", "requests", "responses", "takenOver")

    constants: Constants = field(compare=False)
    coordinator: Coordinator = Coordinator(current=FIRST, last=NOBODY)
    client: Client = Client(identity=FIRST)
    attempt: int = 0
    requests: frozenset[BumpRequest] = frozenset()
    responses: frozenset[BumpResponse] = frozenset()
    taken_over: bool = False

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: the client has an id, nothing is asked."""
        return cls(constants=constants)

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    def following(self, identity: Identity) -> Identity:
        """The identity that follows: the next epoch, or a new producer id when the epochs have run out."""
        if identity.epoch < self.constants.max_epoch:
            return replace(identity, epoch=identity.epoch + 1)
        return Identity(producer_id=identity.producer_id + 1, epoch=0)

    def presented(self, identity: Identity) -> Identity:
        """The identity that a request presents: the one that the client has."""
        return identity

    def is_retry(self, presented: Identity) -> bool:
        """The request is a retry: it asks again for an identity that was given out already."""
        return presented == self.coordinator.last

    def bump_error(self, presented: Identity) -> ErrorCode:
        """The reason why the coordinator refuses a request; ``NONE`` if it does not."""
        if presented in {NOBODY, self.coordinator.current} or self.is_retry(presented):
            return ErrorCode.NONE
        return ErrorCode.PRODUCER_FENCED

    def remembered_after(self, presented: Identity) -> Identity:
        """The identity whose request the coordinator takes for a retry, after a request.

        A request that presents nothing clears it. Otherwise the instance that the request fences would pass for its
        retry, and get the newcomer's identity.
        """
        return presented

    def after_bump(self, presented: Identity) -> Coordinator:
        """The coordinator after a request that it does not refuse."""
        current = self.coordinator.current
        if presented not in {NOBODY, current}:
            return self.coordinator
        return Coordinator(current=self.following(current), last=self.remembered_after(presented))

    @property
    def is_alive(self) -> bool:
        """No error has ended the client."""
        return self.client.error is ErrorCode.NONE

    # --- the client                                                                 WHO: the producer -------------

    def _asks(self) -> Self:
        number = self.attempt + 1
        enabled(number in self.constants.attempts, "attempts have run out")
        request = BumpRequest(attempt=number, presented=self.presented(self.client.identity))
        return replace(
            self,
            attempt=number,
            client=replace(self.client, awaits=number),
            requests=self.requests | {request},
        )

    @action("RequestBump")
    def request_bump(self) -> Self:
        """The client asks for its next epoch.

        Spec:  EpochBump!RequestBump
        KIP:   KIP-360
        Kafka: TransactionManager.bumpIdempotentEpochAndResetIdIfNeeded, initializeTransactions
        """
        enabled(self.is_alive and self.client.awaits == 0, "ended, or waiting for an answer")
        return self._asks()

    @action("RepeatBump")
    def repeat_bump(self) -> Self:
        """The client has waited long enough for the answer and asks again.

        Spec:  EpochBump!RepeatBump
        KIP:   KIP-360
        Kafka: TransactionManager.retry
        """
        enabled(self.is_alive and self.client.awaits != 0, "ended, or waiting for no answer")
        return self._asks()

    def _answer(self, number: int, *, error: bool) -> BumpResponse:
        enabled(self.is_alive and self.client.awaits == number, "the client waits for another answer")
        found = next((r for r in self.responses if r.attempt == number), None)
        enabled(found is not None, "no answer is on its way")
        assert found is not None
        enabled((found.error is not ErrorCode.NONE) == error, "the answer is another one")
        return found

    @action("ReceiveBump", "Attempts")
    def receive_bump(self, number: int) -> Self:
        """The client goes on in its new epoch.

        Spec:  EpochBump!ReceiveBump
        KIP:   KIP-360
        Kafka: TransactionManager.InitProducerIdHandler
        """
        response = self._answer(number, error=False)
        client = replace(self.client, identity=response.identity, awaits=0)
        return replace(self, client=client, responses=self.responses - {response})

    @action("ReceiveFencing", "Attempts")
    def receive_fencing(self, number: int) -> Self:
        """The client learns that it is fenced, and ends.

        Spec:  EpochBump!ReceiveFencing
        KIP:   KIP-360, KIP-588
        Kafka: TransactionManager.InitProducerIdHandler
        """
        response = self._answer(number, error=True)
        client = replace(self.client, error=response.error, awaits=0)
        return replace(self, client=client, responses=self.responses - {response})

    # --- the coordinator                                                            WHO: the coordinator ----------

    @action("HandleBump", "Attempts")
    def handle_bump(self, number: int) -> Self:
        """The coordinator answers a request, which may arrive at any later time.

        Spec:  EpochBump!HandleBump
        KIP:   KIP-360
        Kafka: TransactionCoordinator.prepareInitProducerIdTransit
        """
        request = next((r for r in self.requests if r.attempt == number), None)
        enabled(request is not None, "no such request is on its way")
        assert request is not None
        error = self.bump_error(request.presented)
        refused = error is not ErrorCode.NONE
        after = self.coordinator if refused else self.after_bump(request.presented)
        responses = self.responses
        if self.client.awaits == number:
            identity = NOBODY if refused else after.current
            responses |= {BumpResponse(attempt=number, error=error, identity=identity)}
        return replace(self, coordinator=after, requests=self.requests - {request}, responses=responses)

    @action("AnotherInstanceAsks")
    def another_instance_asks(self) -> Self:
        """Another instance asks with the same transactional.id, and presents nothing.

        Spec:  EpochBump!AnotherInstanceAsks
        KIP:   KIP-98
        Kafka: TransactionCoordinator.handleInitProducerId
        """
        enabled(self.constants.take_over and not self.taken_over, "nobody else, or asked already")
        return replace(self, coordinator=self.after_bump(NOBODY), taken_over=True)
