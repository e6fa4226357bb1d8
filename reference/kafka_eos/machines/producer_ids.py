"""Brokers give producer ids out of blocks that the controller allocates for them in the cluster's metadata log.

Spec:  ProducerIds.tla
KIPs:  730
Kafka: ProducerIdControlManager, RPCProducerIdManager, ProducerIdsBlock

=============  ===============  ======================================================================================
spec variable  field            Kafka
=============  ===============  ======================================================================================
controller     ``controller``   ProducerIdControlManager.nextProducerBlock, as written and as committed
brokers        ``brokers``      RPCProducerIdManager: currentProducerIdBlock, nextProducerIdBlock, requestInFlight
given          ``given``        the answers to InitProducerId
faults         ``faults``       nothing: it bounds the search
=============  ===============  ======================================================================================
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from immutables import Map

from kafka_eos.errors import enabled
from kafka_eos.machines.machine import action
from kafka_eos.machines.spec_mapping import Context

NO_BLOCK = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of ProducerIds.tla.

    Attributes:
        brokers: the brokers that give ids out.
        producer_ids: 0..n, the ids that there are.
        block_size: ids of a block; 1000 in Kafka.
        max_faults: the maximum number of controller changes, lost answers and broker restarts.
    """

    brokers: frozenset[str]
    producer_ids: frozenset[int]
    block_size: int
    max_faults: int

    def domain(self, name: str) -> Iterable[str]:
        """The constant set ``name``, in order."""
        assert name == "Brokers", name
        return sorted(self.brokers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The first id that no record gives away: of all records written, and of those committed."""

    written: int = 0
    committed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The state of a broker.

    Attributes:
        next: the id that it gives out next.
        last: the last id of its block; below ``next`` when it has given all of them.
        ahead: the first id of the block that it fetched ahead, or -1.
        request: how far its request is: none, sent, allocated, answered.
        offered: the first id of the block that the request got, or -1.
    """

    next: int = 0
    last: int = -1
    ahead: int = NO_BLOCK
    request: str = "none"
    offered: int = NO_BLOCK

    @property
    def unasked(self) -> "Broker":
        """The broker without its request."""
        return replace(self, request="none", offered=NO_BLOCK)


STARTED = Broker()
"""The state of a broker that has just started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIds:
    """A state of ProducerIds.tla."""

    MODULE: ClassVar[str] = "ProducerIds"
    VARIABLES: ClassVar[tuple[str, ...]] = ("controller", "brokers", "given", "faults")

    constants: Constants = field(compare=False)
    controller: Controller = Controller()
    brokers: Map[str, Broker]
    given: Map[int, int]
    faults: int = 0

    @classmethod
    def initial(cls, constants: Constants) -> Self:
        """``Init``: no block is allocated."""
        return cls(
            constants=constants,
            brokers=Map(dict.fromkeys(constants.brokers, STARTED)),
            given=Map(dict.fromkeys(constants.producer_ids, 0)),
        )

    @classmethod
    def context(cls, constants: Constants) -> Context:  # noqa: ARG003 - the values follow from the variables alone
        """No derived values: the state is the variables."""
        return {}

    def last_of(self, first: int) -> int:
        """The last id of a block."""
        return first + self.constants.block_size - 1

    def behind(self, first: int) -> int:
        """The first id after a block."""
        return self.last_of(first) + 1

    def may_answer(self, first: int) -> bool:
        """The controller answers with a block whose record is committed."""
        return first < self.controller.committed

    def is_new_block(self, broker: str, first: int) -> bool:
        """A broker takes no block that begins within the one that it has."""
        return first > self.brokers[broker].last

    @property
    def may_fail(self) -> bool:
        """Another fault may happen."""
        return self.faults < self.constants.max_faults

    def _with(self, broker: str, after: Broker) -> Self:
        return replace(self, brokers=self.brokers.set(broker, after))

    # --- asking for a block                                                         WHO: the broker ---------------

    @action("RequestBlock", "Brokers")
    def request_block(self, broker: str) -> Self:
        """A broker asks for a block, as soon as it has none ahead.

        Spec:  ProducerIds!RequestBlock
        KIP:   KIP-730
        Kafka: RPCProducerIdManager.maybeRequestNextBlock
        """
        has = self.brokers[broker]
        enabled(has.request == "none", "it has asked already")
        enabled(has.ahead == NO_BLOCK, "it has a block ahead")
        return self._with(broker, replace(has, request="sent"))

    @action("ReceiveBlock", "Brokers")
    def receive_block(self, broker: str) -> Self:
        """A broker has its next block.

        Spec:  ProducerIds!ReceiveBlock
        KIP:   KIP-730
        Kafka: RPCProducerIdManager.handleAllocateProducerIdsResponse
        """
        has = self.brokers[broker]
        enabled(has.request == "answered", "there is no answer")
        enabled(self.is_new_block(broker, has.offered), "the block overlaps with its own")
        return self._with(broker, replace(has.unasked, ahead=has.offered))

    @action("RefuseBlock", "Brokers")
    def refuse_block(self, broker: str) -> Self:
        """A broker sees that the block overlaps with its own, and asks again.

        Spec:  ProducerIds!RefuseBlock
        KIP:   KIP-730
        Kafka: RPCProducerIdManager.sanityCheckResponse
        """
        has = self.brokers[broker]
        enabled(has.request == "answered", "there is no answer")
        enabled(not self.is_new_block(broker, has.offered), "the block is a new one")
        return self._with(broker, has.unasked)

    # --- allocating                                                                 WHO: the controller -----------

    @action("AllocateBlock", "Brokers")
    def allocate_block(self, broker: str) -> Self:
        """The controller writes the record of a block.

        Spec:  ProducerIds!AllocateBlock
        KIP:   KIP-730
        Kafka: ProducerIdControlManager.generateNextProducerId
        """
        has, first = self.brokers[broker], self.controller.written
        enabled(has.request == "sent", "nothing is asked")
        enabled(self.last_of(first) in self.constants.producer_ids, "there are no ids left")
        after = self._with(broker, replace(has, request="allocated", offered=first))
        return replace(after, controller=replace(self.controller, written=self.behind(first)))

    @action("CommitBlock")
    def commit_block(self) -> Self:
        """A majority of the controllers has the next record.

        Spec:  ProducerIds!CommitBlock
        KIP:   KIP-730, KIP-500
        Kafka: QuorumController.QuorumMetaLogListener.handleCommit
        """
        committed = self.controller.committed
        enabled(committed < self.controller.written, "every record is committed")
        return replace(self, controller=replace(self.controller, committed=self.behind(committed)))

    @action("AnswerRequest", "Brokers")
    def answer_request(self, broker: str) -> Self:
        """The controller answers.

        Spec:  ProducerIds!AnswerRequest
        KIP:   KIP-730
        Kafka: ControllerApis.handleAllocateProducerIdsRequest
        """
        has = self.brokers[broker]
        enabled(has.request == "allocated", "no block is allocated")
        enabled(self.may_answer(has.offered), "the record is not committed")
        return self._with(broker, replace(has, request="answered"))

    @action("ChangeController")
    def change_controller(self) -> Self:
        """Another controller takes over, with the records that are committed.

        Spec:  ProducerIds!ChangeController
        KIP:   KIP-730, KIP-500
        Kafka: QuorumController.renounce, claim
        """
        enabled(self.may_fail, "no fault is left")
        brokers = {
            name: broker if broker.request == "answered" else broker.unasked for name, broker in self.brokers.items()
        }
        controller = replace(self.controller, written=self.controller.committed)
        return replace(self, controller=controller, brokers=Map(brokers), faults=self.faults + 1)

    # --- giving ids out                                                             WHO: the broker ---------------

    @action("GiveProducerId", "Brokers")
    def give_producer_id(self, broker: str) -> Self:
        """The coordinator on a broker gives a producer the next id of its block.

        Spec:  ProducerIds!GiveProducerId
        KIP:   KIP-98, KIP-730
        Kafka: RPCProducerIdManager.generateProducerId
        """
        has = self.brokers[broker]
        enabled(has.next <= has.last, "the block is empty")
        after = self._with(broker, replace(has, next=has.next + 1))
        return replace(after, given=self.given.set(has.next, self.given[has.next] + 1))

    @action("TakeBlock", "Brokers")
    def take_block(self, broker: str) -> Self:
        """A broker whose block has no id left goes on with the one that it fetched ahead.

        Spec:  ProducerIds!TakeBlock
        KIP:   KIP-730
        Kafka: RPCProducerIdManager.generateProducerId
        """
        has = self.brokers[broker]
        enabled(has.next > has.last, "the block has ids left")
        enabled(has.ahead != NO_BLOCK, "there is no block ahead")
        return self._with(broker, replace(has, next=has.ahead, last=self.last_of(has.ahead), ahead=NO_BLOCK))

    @action("LoseAnswer", "Brokers")
    def lose_answer(self, broker: str) -> Self:
        """An answer gets lost, and the broker may ask again.

        Spec:  ProducerIds!LoseAnswer
        KIP:   KIP-730
        Kafka: ControllerRequestCompletionHandler.onTimeout
        """
        enabled(self.may_fail, "no fault is left")
        enabled(self.brokers[broker].request == "answered", "there is no answer")
        return replace(self._with(broker, self.brokers[broker].unasked), faults=self.faults + 1)

    @action("RestartBroker", "Brokers")
    def restart_broker(self, broker: str) -> Self:
        """A broker restarts, and forgets the blocks that it has.

        Spec:  ProducerIds!RestartBroker
        KIP:   KIP-730
        Kafka: BrokerServer.startup
        """
        enabled(self.may_fail, "no fault is left")
        enabled(self.brokers[broker] != STARTED, "nothing is forgotten")
        return replace(self._with(broker, STARTED), faults=self.faults + 1)
