"""A state of ``Broker`` as conformance needs it: the answers to a request, and what no client asks for.

Every answer and every step is the machine's (``Broker.tla``), which takes an instance of one of its actions. Kafka's
answers are those of the same machine by the rules that ``spec/releases.toml`` has for the newest release. Here are only
the identities that a request presents relative to the broker's state, and the steps that no client asks for.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from itertools import product

from immutables import Map

from kafka_eos.errors import ErrorCode, NotEnabled
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
)
from kafka_eos.machines.consumer_group import ConsumerGroup
from kafka_eos.machines.group_coordinator import CLASSIC, CONSUMER
from kafka_eos.machines.leader import MAX_EPOCH, LeaderState, Rules
from kafka_eos.machines.machine import Action, Instance, actions, step
from kafka_eos.machines.producer_state import NO_PRODUCER_ID
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
from kafka_eos.machines.transactional_partition import NO_PRODUCER, LogEntry
from kafka_eos_checks.conform.beyond import ConformingBroker
from kafka_eos_checks.conform.known import known_differences
from kafka_eos_checks.models.releases import Releases
from kafka_eos_checks.mutants.rules import mutated

__all__ = ["CLASSIC", "CONSUMER", "DATA", "FIRST", "MEMBER", "OFFSETS", "SECOND"]
STRANGER = 1_000_000
"""A producer id that none of these coordinators has given."""
WRITERS = ("P", "Q")
"""The producers without a transactional.id."""

NONE, CURRENT, ANOTHER_ID, ID_ALONE = "no producer id", "current epoch", "another producer id", "producer id alone"
EPOCHS = {CURRENT: 0, "epoch - 1": -1, "epoch - 2": -2, "epoch + 1": 1}
"""What a request presents, relative to what the broker knows."""
OF_OTHER = "producer id of the other"
"""The producer id and epoch of the other transactional.id, in a request that names its own."""

INTERNAL = ("WriteMarker", "CompleteTransaction")
"""The actions that the broker takes by itself, without a request and without a fault."""


@cache
def action_of(name: str) -> Action:
    """The action with that name, of ``Broker`` or of a request that it leaves out."""
    return next(each for each in actions(ConformingBroker) if each.name == name)


RESTART = Instance(action_of("Restart"), ())


# --- the rules by which it answers -----------------------------------------------------------------------------------

QUESTIONS = "Leader!AskedAfterBatch"
"""The rule that forgets a leader's questions to the coordinator.

It decides no answer of ``Broker``, where a question and its batch are one step. Kafka's other rules look at what it
leaves. So the machine has Kafka's rule here, and one state serves the spec's answers and Kafka's."""


@cache
def shipped_rules() -> Mapping[str, str]:
    """The rules that the newest Kafka has otherwise, each with the operator of ``spec/mutants`` that is Kafka's."""
    releases = Releases()
    return releases.of_module(Broker.MODULE, releases.newest)


@cache
def by_spec() -> type[ConformingBroker]:
    """The machine with the spec's rules, and Kafka's for :data:`QUESTIONS`."""
    return _with({})


@cache
def by_kafka() -> type[ConformingBroker]:
    """The machine with all rules of the newest Kafka."""
    return _with(shipped_rules())


@cache
def by_difference() -> Mapping[str, type[ConformingBroker]]:
    """For each recorded difference, the machine in which it is the only one."""
    return {name: _with({known.rule: known.operator}) for name, known in known_differences().items()}


def _with(rules: Mapping[str, str]) -> type[ConformingBroker]:
    return mutated(ConformingBroker, {QUESTIONS: shipped_rules()[QUESTIONS], **rules})  # type: ignore[return-value]


def under(machine: type[ConformingBroker], state: Broker) -> ConformingBroker:
    """The same state under the rules of another machine; its logs carry some of them."""
    values = {each.name: getattr(state, each.name) for each in fields(state)}
    partitions = {
        name: replace(
            leader, log=machine.SEQUENCES(**{each.name: getattr(leader.log, each.name) for each in fields(leader.log)})
        )
        for name, leader in state.partitions.items()
    }
    return machine(**{**values, "partitions": Map(partitions)})


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
    versions: Map[str, int]

    def constants(self, transactional_ids: tuple[str, ...], group_protocol: str) -> Constants:
        """The constants of the machine, whose requests are not limited."""
        limits = LogLimits()
        nothing: frozenset[int] = frozenset()
        unsent = {ADD_PARTITIONS, ADD_OFFSETS} if self.client >= 2 else set()
        sent = {api: version for api, version in self.versions.items() if api not in unsent}
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
            api_versions=Map({**sent, OFFSET_COMMIT: 0, JOIN: 0}),
            group_protocol=group_protocol,
            consumers=frozenset({FIRST, SECOND} if group_protocol == CONSUMER else ()),
            faults=frozenset({"restart"}),
            max_faults=1,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer that a client gets.

    Attributes:
        error: the code on the wire.
        identity: the producer id and epoch that it is given, the epoch alone for a member; None where there is none.
        offset: the offset of the first record, None where the answer has none.
        known: the id of the recorded difference that this answer belongs to, "" for the spec's own.
    """

    error: ErrorCode
    identity: Identity | None = None
    offset: int | None = None
    known: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition at its leader, as a value.

    Attributes:
        rules: the leader's decisions.
        state: all entries, and what the leader knows of producers.
    """

    rules: Rules = field(compare=False)
    state: LeaderState

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.state.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset at which reading of committed data ends."""
        return self.rules.readable(self.state).last_stable_offset()

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """Batches and markers, in order."""
        return tuple(self.state.transactions.entries)

    def read_committed(self) -> tuple[LogEntry, ...]:
        """The batches that a read_committed reader gets from the start of the log."""
        upper = self.last_stable_offset
        aborted = collect_aborted(self.state.transactions.aborted_index, 0, upper)
        return tuple(without_aborted((e for e in self.entries if e.offset < upper), aborted))


@dataclass(frozen=True, kw_only=True)
class Visible:
    """The state of a cluster, as far as clients can see it.

    Attributes:
        settings: the broker's settings.
        broker: the machine.
        before: the machine before the restart that the next request follows; None if it follows none.
        since: the steps from there, which Kafka's rules take in their own way.
    """

    settings: Settings = field(compare=False)
    broker: ConformingBroker
    before: ConformingBroker | None = field(default=None, compare=False)
    since: tuple[Instance, ...] = field(default=(), compare=False)

    @classmethod
    def initial(cls, settings: Settings, transactional_ids: tuple[str, ...], group_protocol: str) -> "Visible":
        """The state before any request."""
        constants = settings.constants(transactional_ids, group_protocol)
        return cls(settings=settings, broker=by_spec().initial(constants))

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
        return Partition(rules=self.broker.leading, state=self.broker.partitions[name])

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

    def restarted(self) -> "Visible":
        """The state after the broker was stopped and started again, in good order or not: ``Broker!Restart``."""
        return self._restarted

    @cached_property
    def _restarted(self) -> "Visible":
        """The same, taken once for all requests of this state."""
        return replace(self, broker=step(self.broker, RESTART), before=self.broker, since=(RESTART,))

    def remembering(self) -> "Visible":
        """The state after a restart that has not cost the coordinators the epochs before the present ones.

        Kafka does not write them to its log. A coordinator that does, or that is on another broker than the one that
        restarts, still answers the repeated InitProducerId of a producer that has missed its answer.
        """
        after = self.restarted()
        known = after.broker.coordinators
        for name, before in self.broker.coordinators.items():
            known = known.set(name, replace(known[name], last_epoch=before.last_epoch))
        return replace(after, broker=replace(after.broker, coordinators=known))

    def timed_out(self, name: str) -> "Visible":
        """The state after the coordinator has aborted a transaction that was open for longer than its timeout.

        It fences the producer as for InitProducerId of a new one: TransactionCoordinator!TimeOut, then !AbortFenced.
        """
        nobody = Identity()
        fenced = Instance(action_of("InitProducerId"), (name, nobody.producer_id, nobody.epoch))
        return replace(self, broker=step(self.broker, fenced)).settled()

    def identity(self, name: str, whose: str) -> Identity | None:
        """The producer id and epoch that a request presents; None where there is no such yet.

        The epoch is relative to the coordinator's, or to the leader's for a producer without transactional.id.
        """
        if whose == NONE:
            return Identity()
        if whose == OF_OTHER:
            [other] = set(self.coordinators) - {name}
            return self.identity(other, CURRENT)
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

    # --- requests ----------------------------------------------------------------------------------------------------

    def is_enabled(self, instance: Instance) -> bool:
        """Whether the spec allows the request here."""
        try:
            step(self.broker, instance)
        except NotEnabled:
            return False
        return True

    def outcomes(self, instance: Instance) -> list["Outcome"]:
        """The answers to a request, each with the state after it: the spec's, and Kafka's if that is another one.

        Raises:
            NotEnabled: the spec allows no such request here.
        """
        after = step(self.broker, instance)
        own = self._answer(after), self._after_request(after)
        shipped = step(self._by_kafka, instance)
        if shipped.answer == after.answer:
            return [own]
        causes = [
            name
            for name, machine in by_difference().items()
            if step(self._by(machine), instance).answer == shipped.answer
        ]
        assert causes, f"no recorded difference makes Kafka's answer to {instance.label}"
        return [own, (self._answer(shipped, causes[0]), self._after_request(under(by_spec(), shipped)))]

    def _after_request(self, broker: ConformingBroker) -> "Visible":
        return replace(self, broker=broker, before=None, since=())

    @cached_property
    def _by_kafka(self) -> ConformingBroker:
        """The state by Kafka's rules; all requests are tried in it."""
        return self._by(by_kafka())

    def _by(self, machine: type[ConformingBroker]) -> ConformingBroker:
        """The state by the rules of another machine, which takes a restart before it, too."""
        state = under(machine, self.broker if self.before is None else self.before)
        for each in self.since:
            state = step(state, each)
        return state

    def _answer(self, after: ConformingBroker, known: str = "") -> Answer:
        """The answer that a step has left, without the parts that its response has no field for."""
        said = after.answer
        gives = said.api in {INIT, HEARTBEAT} or (said.api == END and self.settings.client >= 2)
        given = Identity(producer_id=said.producer_id, epoch=said.epoch) if gives else None
        return Answer(error=said.error, identity=given, offset=None if said.offset < 0 else said.offset, known=known)

    # --- what no client asks for -------------------------------------------------------------------------------------

    def _closing(self) -> Iterator["Visible"]:
        """The states after one step of the broker by itself: a marker, or a completion."""
        for action in map(action_of, INTERNAL):
            for arguments in product(*(tuple(self.broker.constants.domain(domain)) for domain in action.domains)):
                instance = Instance(action, arguments)
                since = () if self.before is None else (*self.since, instance)
                with suppress(NotEnabled):
                    yield replace(self, broker=step(self.broker, instance), since=since)

    def meanwhile(self) -> list["Visible"]:
        """The states that the broker may be in when a request comes: this one, and those that it reaches by itself."""
        return self._reached

    @cached_property
    def _reached(self) -> list["Visible"]:
        """The same, searched once for all requests of this state."""
        found = [self]
        for state in () if self.is_settled else found:
            found += [after for after in state._closing() if after not in found]
        return found

    def settled(self) -> "Visible":
        """The one state that the broker reaches by itself, in whatever order it writes markers and completes.

        Two transactions that are closed at once could end in several: their markers in one partition have an order. No
        mechanism asks anything while a transaction is being closed except a retry of what closes it.
        """
        ends = [state for state in self.meanwhile() if not any(state._closing())]
        assert len(ends) == 1, "the order of markers and completions decides"
        assert ends[0].is_settled, "a leader refuses a marker for ever"
        return ends[0]


Outcome = tuple[Answer, Visible]
