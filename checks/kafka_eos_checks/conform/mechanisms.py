"""The mechanisms: the requests that are tried, and the edges of the graph that a client cannot tell apart.

A request is an instance of an action of ``Broker``, with arguments relative to the broker's state. So a scenario is a
behaviour of the spec. Each mechanism is to the machine what a model is to the module: it says which actions clients
take with which arguments (``sends``), and what bounds them (``bounds``), each with its reason.

The graph of :class:`Visible` is infinite, so each mechanism looks at it through two projections. ``place`` says which
states are one node (epochs count only as far as a request can tell them apart); ``seen`` is the part of a node that a
request's guards look at. An edge of the quotient is what is seen, the request, and the allowed answers.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.broker import ADD_PARTITIONS, COORDINATOR_EPOCH, HEARTBEAT, INIT, PRODUCE
from kafka_eos.machines.machine import Instance
from kafka_eos.machines.spec_mapping import camel_case
from kafka_eos.machines.transaction_coordinator import DEAD, NO_EPOCH, NOBODY, Identity
from kafka_eos_checks.conform.beyond import (
    DELETE,
    INSTANCE,
    MARK,
    OTHER_INSTANCE,
    TIMED,
    VERIFY,
    WITH_UNKNOWN,
    as_instance,
)
from kafka_eos_checks.conform.visible import (
    ANOTHER_ID,
    CLASSIC,
    CONSUMER,
    CURRENT,
    DATA,
    EPOCHS,
    FIRST,
    ID_ALONE,
    MEMBER,
    NONE,
    OF_OTHER,
    OFFSETS,
    SECOND,
    Answer,
    Outcome,
    Partition,
    Visible,
    action_of,
)

MAX_SEQUENCE = 2**31 - 1
KEEPS, GIVES_UP = "keeps what it has", "gives up"
COMMIT, ABORT = "commit", "abort"
NOBODY_COMMITS, MEMBER_COMMITS = "nobody", "member"
CLAIMS = (MEMBER_COMMITS, "member of the generation before", "member of the next generation", "somebody else")
"""The members of a classic group that commit offsets."""
AS_INSTANCE = {"as its instance": INSTANCE, "as another instance": OTHER_INSTANCE}
"""The ``group.instance.id`` that a member presents."""
COORDINATOR_EPOCHS = {"": 0, "coordinator epoch - 1": -1, "coordinator epoch + 1": 1}
"""The coordinator epoch of a marker, relative to that of the producer's last marker."""
ONE_ACK = "next, acks=1"
"""The next batch, whose answer does not wait for replicas."""
TOO_LONG, TOO_SHORT = "longer than allowed", "0 ms"
"""The timeouts of transactions that no broker allows."""
COMMITS_OF_MEMBERS = ("OffsetCommit", "TxnOffsetCommit")
SETTLE = "settle"
"""The broker's own steps, in any order: it writes markers and completes the transaction. No client asks for them."""
API = {
    "InitIdempotentProducer": INIT,
    "ProduceOutside": PRODUCE,
    "JoinConsumerGroup": HEARTBEAT,
    "Heartbeat": HEARTBEAT,
    "LeaveConsumerGroup": HEARTBEAT,
    VERIFY: ADD_PARTITIONS,
    TIMED: INIT,
    WITH_UNKNOWN: ADD_PARTITIONS,
}
"""The request of Kafka's protocol that an action stands for, where that has another name."""


@dataclass(frozen=True, slots=True)
class Request:
    """An instance of an action of ``Broker``, relative to its state.

    Attributes:
        action: the action, or ``settle``.
        name: the transactional.id, the producer without one, or the consumer.
        whose: which producer id and epoch it presents.
        detail: the rest: commit or abort, which sequence, who commits offsets.
    """

    action: str
    name: str = "A"
    whose: str = CURRENT
    detail: str = ""

    @property
    def api(self) -> str:
        """The request of Kafka's protocol."""
        return API.get(self.action, self.action)

    def label(self, alone: bool) -> str:
        """The request in words; ``alone`` if there is only one transactional.id."""
        if self.action == SETTLE:
            return SETTLE
        words = [
            self.detail,
            "" if self.whose == CURRENT else self.whose,
            "" if alone and self.name == "A" else self.name,
        ]
        said = ", ".join(word for word in words if word)
        return f"{self.action}({said})" if said else self.action


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request with the values of one state.

    Attributes:
        request: the request.
        identity: the producer id and epoch that it presents.
        sequence: the first sequence of a batch.
        count: the number of its records.
        offset: the offset that is committed.
        generation: the generation or member epoch that it presents.
        member: the member that it comes from; None for none.
        owned: the member has the partition, as it says.
        assigns: the coordinator makes a new assignment.
        coordinator_epoch: the coordinator epoch of a marker.
        version: the version of the marker's transaction.
    """

    request: Request
    identity: Identity = NOBODY
    sequence: int = -1
    count: int = 1
    offset: int = -1
    generation: int = -1
    member: str | None = None
    owned: bool = False
    assigns: bool = False
    coordinator_epoch: int = COORDINATOR_EPOCH
    version: int = 1

    @property
    def instance(self) -> Instance:
        """The instance of the action of ``Broker``."""
        action, name = action_of(self.request.action), self.request.name
        values: dict[str, Hashable] = {
            "TransactionalIds": name,
            "Writers": name,
            "Consumers": name,
            "RequestProducerIds": self.identity.producer_id,
            "RequestEpochs": self.identity.epoch,
            "ProducerIds": self.identity.producer_id,
            "Epochs": self.identity.epoch,
            "Sequences": self.sequence,
            "BatchCounts": self.count,
            "Members": self.member,
            "Generations": self.generation,
            "BOOLEAN": self.request.detail.partition(", ")[0] in {COMMIT, GIVES_UP},
            "CoordinatorEpochs": self.coordinator_epoch,
        }
        return Instance(action, tuple(values[domain] for domain in action.domains))


# --- requests in a state ---------------------------------------------------------------------------------------------


def _sequence(leader: Partition, identity: Identity, which: str) -> tuple[int, int] | None:
    """First sequence and number of records of a batch; None if there is no such batch."""
    known = leader.state.log.producers.get(identity.producer_id)
    cached = known.batches if known is not None and known.epoch == identity.epoch else ()
    limits = leader.state.log.limits
    following = limits.next_sequence(limits.last_sequence(cached[-1])) if cached else 0
    match which:
        case "next" | "next, acks=1":
            return following, 1
        case "next, two records":
            return following, 2
        case "gap":
            return following + 1, 1
        case "again" if cached:
            return cached[-1].sequence, cached[-1].count
        case "the oldest remembered again" if len(cached) == limits.cached_batches:
            return cached[0].sequence, cached[0].count
        case "one that is forgotten again" if len(cached) == limits.cached_batches and cached[0].sequence > 0:
            return _before(leader, identity, cached[0].sequence)
        case "again and one more" if cached:
            return cached[-1].sequence, cached[-1].count + 1
        case "the last before the wrap" if known is None:
            return MAX_SEQUENCE, 1
    return None


def _before(leader: Partition, identity: Identity, sequence: int) -> tuple[int, int]:
    """First sequence and number of records of the batch in the log that ends before a sequence."""
    limits = leader.state.log.limits
    for batch in leader.state.log.entries:
        is_own = (batch.producer_id, batch.epoch) == (identity.producer_id, identity.epoch)
        if is_own and limits.next_sequence(limits.last_sequence(batch)) == sequence:
            return batch.sequence, batch.count
    return sequence - 1, 1


def asked(state: Visible, request: Request) -> Asked | None:
    """A request's values in a state; None where there are no such values, or the spec does not allow the request."""
    given = _valued(state, request)
    return given if given is not None and (request.action == SETTLE or state.is_enabled(given.instance)) else None


def _valued(state: Visible, request: Request) -> Asked | None:
    """A request's values in a state, None where there are no such values."""
    if request.action == SETTLE:
        return Asked(request=request)
    domains = action_of(request.action).domains
    if "Consumers" in domains:
        return _beating(state, request)
    identity: Identity | None = NOBODY
    if {"ProducerIds", "RequestProducerIds"} & set(domains):
        identity = state.identity(request.name, request.whose)
    if identity is None:
        return None
    given = Asked(request=request, identity=identity)
    if "Sequences" in domains:
        found = _sequence(state.data, identity, request.detail)
        return replace(given, sequence=found[0], count=found[1]) if found else None
    if "CoordinatorEpochs" in domains:
        known, shift = _marked(state, identity), COORDINATOR_EPOCHS[request.detail.partition(", ")[2]]
        if known + shift < NO_EPOCH:
            return None
        epoch = max(known, COORDINATOR_EPOCH) + shift
        return replace(given, coordinator_epoch=epoch, version=state.broker.marker_version())
    if "Members" in domains:
        committer = _committer(state, request.detail or NOBODY_COMMITS)
        if committer is None:
            return None
        return replace(given, offset=state.offsets.end, member=committer[0], generation=committer[1])
    return given


def _marked(state: Visible, identity: Identity) -> int:
    """The coordinator epoch of a producer's last marker, -1 before its first."""
    return state.data.state.producer(identity.producer_id).coordinator_epoch


def _beating(state: Visible, request: Request) -> Asked:
    """A heartbeat's values in a state; its epoch is the member's."""
    membership = state.broker.membership
    current = membership.members[request.name]
    has = DATA in current.assigned | current.revoking
    return Asked(
        request=request,
        member=request.name,
        generation=current.epoch,
        owned=has and request.detail == KEEPS,
        assigns=request.action != "LeaveConsumerGroup" and current.epoch < membership.epoch,
    )


def _committer(state: Visible, which: str) -> tuple[str | None, int] | None:
    """Member, and generation or member epoch; None if there is no such epoch."""
    generation = state.group.group.generation
    who, _, shift = which.partition(", ")
    if shift in AS_INSTANCE and (found := _committer(state, who)) is not None:
        return as_instance(found[0] or "", AS_INSTANCE[shift]), found[1]
    if shift:
        membership = state.broker.membership
        current = membership.members[who].epoch or membership.epoch
        return (who, current + EPOCHS[shift]) if current + EPOCHS[shift] > 0 else None
    return {
        NOBODY_COMMITS: (None, -1),
        MEMBER_COMMITS: (MEMBER, generation),
        "member of the generation before": (MEMBER, generation - 1),
        "member of the next generation": (MEMBER, generation + 1),
        "somebody else": ("somebody", generation),
    }[which]


def outcomes(state: Visible, given: Asked) -> list[Outcome]:
    """All outcomes that the spec allows: while markers are being written, the broker may be at any of its own steps."""
    if given.request.action == SETTLE:
        return [(Answer(error=ErrorCode.NONE), state.settled())]
    found: dict[Answer, Visible] = {}
    for before in state.meanwhile():
        for answer, after in before.outcomes(given.instance):
            found.setdefault(answer, after)
    return list(found.items())


# --- what is seen ----------------------------------------------------------------------------------------------------


def _state_name(state: Visible, name: str) -> str:
    known = state.known(name)
    return "Unknown" if known.state is DEAD else camel_case(known.state.name.lower(), capital=True)


def _relation(leader: Partition, identity: Identity) -> str:
    """The leader's epoch of a producer, compared with the producer's own."""
    known = leader.state.producer(identity.producer_id)
    if known.epoch < 0:
        return "unknown"
    compared = "older" if known.epoch < identity.epoch else "newer" if known.epoch > identity.epoch else "same"
    return f"{compared} epoch, {'open' if known.is_open else 'closed'}"


def _cached(leader: Partition, identity: Identity) -> int:
    known = leader.state.log.producers.get(identity.producer_id)
    return len(known.batches) if known is not None and known.epoch == identity.epoch else 0


def _asked_before(state: Visible, own: Identity) -> str:
    """Whether the leader has asked about a sequence that is not the next one."""
    asked = state.data.state.questions(own.producer_id)
    before = asked.guard_epoch != NO_EPOCH and asked.lowest_sequence <= state.data.state.last_sequence(own.producer_id)
    return "a sequence before was asked about" if before else ""


def _registered(state: Visible, name: str) -> str:
    return "+".join(sorted(state.known(name).partitions)) or "nothing"


def _own(state: Visible, name: str) -> Identity:
    known = state.known(name)
    return Identity(producer_id=known.producer_id, epoch=known.epoch)


def _place_in_transaction(state: Visible) -> Hashable:
    known = state.known("A")
    own = _own(state, "A")
    return (
        _state_name(state, "A"),
        min(known.epoch, 2),
        _asked_before(state, own) if known.state is not DEAD else "",
        known.last_epoch >= 0,
        known.partitions,
        _relation(state.data, own),
        _cached(state.data, own) > 0,
    )


def _seen_in_transaction(state: Visible, request: Request, ends: bool) -> str:
    """The part of the state that the guards of a request look at; if it is accepted also what its effect depends on."""
    name, own = request.name, _own(state, request.name)
    seen = [_state_name(state, name)]
    if request.api == PRODUCE:
        seen += [_registered(state, name), f"partition: {_relation(state.data, own)}"]
        seen += ["" if _cached(state.data, own) else "no batch", _asked_before(state, own)]
    elif request.action == "InitProducerId":
        seen += ["bumped before" if state.known(name).last_epoch >= 0 else ""]
    elif request.action not in {TIMED, WITH_UNKNOWN, "EndTxn"} or ends:
        seen += [_registered(state, name)]
    if request.action == "EndTxn" and ends:
        seen += [f"partition {'open' if state.data.state.producer(own.producer_id).is_open else 'closed'}"]
    return ", ".join(part for part in seen if part)


# --- mechanisms ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sends:
    """An action that clients take in a mechanism, with every combination of its relative arguments.

    Attributes:
        action: the action of ``Broker``.
        whose: the producer ids and epochs that it presents.
        details: the rest of its arguments.
        names: the transactional.ids, producers or consumers; by default all transactional.ids of the mechanism.
    """

    action: str
    whose: tuple[str, ...] = (CURRENT,)
    details: tuple[str, ...] = ("",)
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bound:
    """Requests that a mechanism leaves out in some states, although the spec allows them.

    Attributes:
        reason: why.
        leaves_out: the state and the request.
    """

    reason: str
    leaves_out: Callable[[Visible, Request], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A part of exactly-once semantics with a graph of its own.

    Attributes:
        name: its name.
        title: its title.
        kips: the KIPs that define it.
        transactional_ids: those that take part.
        sends: the requests that are tried.
        bounds: what is left out of them.
        place: the projection of a state to its node.
        seen: the part of a node that a request sees; one that begins to end a transaction sees more.
        with_offset: the group's offset is read back too.
        group_protocol: the group's.
        has_topic: each scenario needs a topic of one partition, so that its members are assigned nothing else.
        needs: the API without which no scenario can be played, "" for none.
        has_second: whatever is done to the partition is done to another one too, which has the same fate.
        has_second_group: whatever is done to the group is done to another one too, whose offsets have the same fate.
    """

    name: str
    title: str
    kips: str
    transactional_ids: tuple[str, ...]
    sends: tuple[Sends, ...]
    bounds: tuple[Bound, ...]
    place: Callable[[Visible], Hashable]
    seen: Callable[[Visible, Request, bool], str]
    with_offset: bool = True
    group_protocol: str = CLASSIC
    has_topic: bool = False
    needs: str = ""
    has_second: bool = False
    has_second_group: bool = False

    @property
    def alone(self) -> bool:
        """There is only one transactional.id."""
        return len(self.transactional_ids) == 1

    def all_requests(self) -> Iterator[Request]:
        """The requests of all states."""
        for row in self.sends:
            for name, detail, whose in product(row.names or self.transactional_ids, row.details, row.whose):
                yield Request(row.action, name, whose, detail)

    def requests(self, state: Visible) -> Iterator[Request]:
        """The requests that are tried in a state, and what the broker does by itself."""
        if not state.is_settled:
            yield Request(SETTLE)
        for request in self.all_requests():
            if not any(bound.leaves_out(state, request) for bound in self.bounds):
                yield request


def _is_begun(state: Visible, name: str) -> bool:
    """The producer has its producer id."""
    return name in state.plain or (name in state.coordinators and state.known(name).state is not DEAD)


def _begin(*names: str) -> Bound:
    """The producers get their producer ids in this order, before anything else is asked."""

    def leaves_out(state: Visible, request: Request) -> bool:
        waiting = next((name for name in names if not _is_begun(state, name)), "")
        is_init = request.action in {"InitProducerId", "InitIdempotentProducer"}
        return request.name != waiting or not is_init if waiting else is_init

    return Bound("which producer begins when makes no difference to the others", leaves_out)


def _adds_once(state: Visible, request: Request) -> bool:
    """The partition of a request of version 1 is added first, and once."""
    if state.settings.client >= 2 or request.action not in {*_ADDS, *_WRITES, "EndTxn"}:
        return False
    partitions = state.known(request.name).partitions
    if request.action == "EndTxn":
        return not partitions
    partition = {**_ADDS, **_WRITES}[request.action]
    return (partition in partitions) is (request.action in _ADDS)


_ADDS = {"AddPartitionsToTxn": DATA, "AddOffsetsToTxn": OFFSETS}
_WRITES = {"Produce": DATA, "TxnOffsetCommit": OFFSETS}
_WHILE_CLOSING = {
    "InitProducerId": (NONE, CURRENT),
    "EndTxn": (CURRENT, "epoch - 1", "epoch - 2", ANOTHER_ID),
}

AS_CLIENTS_ADD = Bound("a client of version 1 adds a partition once, before it writes to it", _adds_once)
WAITS = Bound(
    "while a transaction is being closed an answer may be of before or of after, and tells little of either",
    lambda state, _: not state.is_settled,
)
RETRIES = Bound(
    "while a transaction is being closed clients retry what closes it; other answers may be of before or of after",
    lambda state, request: not state.is_settled and request.whose not in _WHILE_CLOSING.get(request.action, ()),
)
WITHOUT_VERIFICATION = Bound(
    "without verification a leader accepts an epoch or a producer id that no coordinator has given, and then refuses "
    "the markers of the legitimate producer for ever (KAFKA-12671): nothing can be asked after that",
    lambda state, request: (
        state.settings.client < 2
        and not state.settings.verification
        and request.action in _WRITES
        and request.whose in {"epoch + 1", ANOTHER_ID}
    ),
)


# --- one transactional.id --------------------------------------------------------------------------------------------

ANYBODY = (CURRENT, "epoch - 1", "epoch + 1", ANOTHER_ID)
TRANSACTIONS = Mechanism(
    name="transaction",
    title="one transactional.id: any request in any state",
    kips="KIP-98, KIP-360, KIP-588, KIP-890",
    transactional_ids=("A",),
    sends=(
        Sends("InitProducerId", (NONE, CURRENT, "epoch - 1", "epoch - 2", "epoch + 1", ANOTHER_ID, ID_ALONE)),
        Sends("AddOffsetsToTxn"),
        Sends("AddPartitionsToTxn", ANYBODY),
        Sends(TIMED, details=(TOO_LONG, TOO_SHORT)),
        Sends(WITH_UNKNOWN),
        Sends("TxnOffsetCommit"),
        Sends("EndTxn", (*ANYBODY, "epoch - 2"), (COMMIT, ABORT)),
        Sends("Produce", details=("again", "gap")),
        Sends("Produce", ANYBODY, ("next",)),
        Sends("ProduceOutside", details=("next",), names=("A",)),
    ),
    bounds=(
        RETRIES,
        WITHOUT_VERIFICATION,
        Bound(
            "the mechanism commit asks for offsets in transactions of version 1",
            lambda state, request: request.action == "TxnOffsetCommit" and state.settings.client < 2,
        ),
        Bound(
            "the mechanism idempotence asks for batches of a producer with nothing open",
            lambda state, request: (
                request.action == "ProduceOutside"
                and not state.data.state.producer(state.known("A").producer_id).is_open
            ),
        ),
    ),
    place=_place_in_transaction,
    seen=_seen_in_transaction,
)


# --- offsets in one transaction --------------------------------------------------------------------------------------


def _place_of_commits(state: Visible) -> Hashable:
    known, offsets = state.known("A"), _relation(state.offsets, _own(state, "A"))
    return _state_name(state, "A"), min(known.epoch, 1), known.partitions, offsets, bool(state.group.pending)


def _seen_of_commits(state: Visible, request: Request, ends: bool) -> str:
    seen = [_state_name(state, "A")]
    if request.action == "TxnOffsetCommit" or ends:
        pending = ["pending"] if state.group.pending else []
        seen += [
            _registered(state, "A"),
            f"partition: {_relation(state.offsets, _own(state, 'A'))}",
            *pending,
        ]
    return ", ".join(seen)


COMMITS = Mechanism(
    name="commit",
    title="offsets in a transaction: any request in any state",
    kips="KIP-98, KIP-588, KIP-890",
    transactional_ids=("A",),
    sends=(
        Sends("InitProducerId", (NONE,)),
        Sends("AddOffsetsToTxn", ANYBODY),
        Sends("TxnOffsetCommit", ANYBODY),
        Sends("EndTxn", details=(COMMIT, ABORT)),
    ),
    bounds=(WAITS, WITHOUT_VERIFICATION),
    place=_place_of_commits,
    seen=_seen_of_commits,
    has_second_group=True,
)


# --- questions of leaders --------------------------------------------------------------------------------------------


def _place_of_questions(state: Visible) -> Hashable:
    known = state.known("A")
    return _state_name(state, "A"), min(known.epoch, 1), known.partitions


QUESTIONS = Mechanism(
    name="question",
    title="questions of leaders about a transaction, in any state of it",
    kips="KIP-890",
    transactional_ids=("A",),
    sends=(
        Sends("InitProducerId", (NONE,)),
        Sends("AddOffsetsToTxn"),
        Sends("AddPartitionsToTxn"),
        Sends("TxnOffsetCommit"),
        Sends("Produce", details=("next", ONE_ACK)),
        Sends("EndTxn", details=(COMMIT, ABORT)),
        Sends(VERIFY, ANYBODY),
    ),
    bounds=(
        AS_CLIENTS_ADD,
        Bound(
            "while a transaction is being closed leaders ask about batches of it that come late",
            lambda state, request: not state.is_settled and (request.action, request.whose) != (VERIFY, CURRENT),
        ),
    ),
    place=_place_of_questions,
    seen=lambda state, _request, _ends: f"{_state_name(state, 'A')}, {_registered(state, 'A')}",
)


# --- markers of clients ----------------------------------------------------------------------------------------------


def _is_behind(state: Visible) -> bool:
    """The leader has seen a later epoch, of the producer or of its coordinator, than the coordinator has."""
    own = _own(state, "A")
    return _relation(state.data, own).startswith("newer") or _marked(state, own) > COORDINATOR_EPOCH


def _place_of_markers(state: Visible) -> Hashable:
    known, own = state.known("A"), _own(state, "A")
    leader = _relation(state.data, own), _cached(state.data, own) > 0, min(_marked(state, own), 1)
    return _state_name(state, "A"), min(known.epoch, 2), known.partitions, leader


def _seen_by_markers(state: Visible, request: Request, ends: bool) -> str:  # noqa: ARG001 - of the shape that all have
    own = _own(state, "A")
    partition = f"partition: {_relation(state.data, own)}"
    if request.action != MARK:
        return f"{_state_name(state, 'A')}, {partition}"
    marked = "before any marker" if _marked(state, own) < 0 else "of a later coordinator" if _marked(state, own) else ""
    return f"{partition}, {marked}" if marked else partition


MARKERS = Mechanism(
    name="marker",
    title="markers past the coordinator: fenced by epoch and by coordinator epoch",
    kips="KIP-98, KIP-664, KIP-1228",
    transactional_ids=("A",),
    sends=(
        Sends("InitProducerId", (NONE,)),
        Sends("AddPartitionsToTxn"),
        Sends("Produce", details=("next",)),
        Sends(MARK, (CURRENT, "epoch - 1", "epoch + 1"), (COMMIT, ABORT)),
        Sends(MARK, (CURRENT, "epoch + 1"), ("abort, coordinator epoch - 1", "commit, coordinator epoch + 1")),
        Sends("EndTxn", details=(COMMIT, ABORT)),
    ),
    bounds=(
        WAITS,
        AS_CLIENTS_ADD,
        Bound(
            "a leader that has seen a later epoch refuses the coordinator's markers for ever: nothing else can end",
            lambda state, request: request.action != MARK and _is_behind(state),
        ),
        Bound(
            "the open transaction could not be ended after a marker of a later coordinator",
            lambda state, request: request.detail.endswith("+ 1") and bool(state.known("A").partitions),
        ),
        Bound(
            "an empty transaction has no markers",
            lambda state, request: request.action == "EndTxn" and not state.known("A").partitions,
        ),
    ),
    place=_place_of_markers,
    seen=_seen_by_markers,
    with_offset=False,
)


# --- producers without transactions ----------------------------------------------------------------------------------

WRITER, LATE = "P", "Q"
_AGAIN = ("again", "again and one more", "the oldest remembered again", "one that is forgotten again")


def _plain_identity(state: Visible, name: str) -> Identity | None:
    return state.identity(name, CURRENT) if name in state.plain else None


def _history(state: Visible, name: str) -> str:
    """The leader's memory of a producer, in words."""
    identity = _plain_identity(state, name)
    if identity is None:
        return "no producer id"
    known = state.data.state.log.producers.get(identity.producer_id)
    if known is None:
        return "unknown"
    remembered = len(known.batches)
    more = "more" if known.batches[0].sequence > 0 else "no more"
    wraps = state.data.state.last_sequence(identity.producer_id) == MAX_SEQUENCE
    return f"{remembered} remembered, {more} forgotten{', at the wrap' if wraps else ''}"


def _place_of_batches(state: Visible) -> Hashable:
    identity = _plain_identity(state, WRITER)
    epoch = 0 if identity is None else min(identity.epoch, 1)
    late = _history(state, LATE)
    return _history(state, WRITER), late if "remembered" not in late else late[-7:], epoch, state.data.end > 0


def _seen_of_batches(state: Visible, request: Request, ends: bool) -> str:  # noqa: ARG001 - of the shape that all have
    if request.action == "InitIdempotentProducer":
        return "any"
    seen = _history(state, request.name)
    return seen if state.data.end else f"{seen}, empty partition"


IDEMPOTENCE = Mechanism(
    name="idempotence",
    title="producers without transactions: duplicates, gaps, epochs",
    kips="KIP-98, KIP-360",
    transactional_ids=(),
    sends=(
        Sends("InitIdempotentProducer", names=(WRITER, LATE)),
        Sends("ProduceOutside", details=("next", "gap", "the last before the wrap"), names=(WRITER, LATE)),
        Sends("ProduceOutside", details=("next, two records", *_AGAIN), names=(WRITER,)),
        Sends("ProduceOutside", ("epoch - 1", "epoch + 1"), ("next", "gap"), (WRITER, LATE)),
    ),
    bounds=(
        Bound(
            "the second producer is there for the batches of one that the leader does not know",
            lambda state, request: request.name == LATE and not _is_begun(state, WRITER),
        ),
    ),
    place=_place_of_batches,
    seen=_seen_of_batches,
    with_offset=False,
)


# --- readers ---------------------------------------------------------------------------------------------------------


def _begun(state: Visible) -> list[str]:
    """The transactional.ids with something open in the partition, the first one first."""
    known = {name: state.data.state.producer(state.known(name).producer_id) for name in state.coordinators}
    opened = {name: producer.first_offset for name, producer in known.items()}
    return sorted((name for name, offset in opened.items() if offset >= 0), key=lambda name: opened[name])


def _decided(state: Visible) -> tuple[str, ...]:
    """The decisions whose markers are being written."""
    found = ((name, _state_name(state, name)) for name in sorted(state.coordinators))
    return tuple(f"{said} of {name}" for name, said in found if said.startswith("Prepare"))


def _last_entries(state: Visible, count: int) -> tuple[str, ...]:
    owners = {state.known(name).producer_id: name for name in state.coordinators}
    return tuple(f"{entry.kind} {owners.get(entry.producer_id, '')}".strip() for entry in state.data.entries[-count:])


def _place_of_readers(state: Visible) -> Hashable:
    registered = tuple((state.known(name).state is DEAD, DATA in state.known(name).partitions) for name in ("A", "B"))
    return registered, WRITER in state.plain, tuple(_begun(state)), _last_entries(state, 2), _decided(state)


def _seen_by_readers(state: Visible, request: Request, ends: bool) -> str:  # noqa: ARG001 - of the shape that all have
    if request.api not in {PRODUCE, SETTLE}:
        return f"open: {', '.join(_begun(state)) or 'nothing'}"
    last = "".join(_last_entries(state, 1)) or "nothing"
    return ", ".join([f"open: {', '.join(_begun(state)) or 'nothing'}", *_decided(state), f"last entry: {last}"])


READING = Mechanism(
    name="reading",
    title="two transactions in the same partitions: last stable offset, aborted transactions, what readers are given",
    kips="KIP-98",
    transactional_ids=("A", "B"),
    sends=(
        Sends("InitProducerId", (NONE,)),
        Sends("InitIdempotentProducer", names=(WRITER,)),
        Sends("AddPartitionsToTxn"),
        Sends("Produce", details=("next", "gap")),
        Sends("Produce", (OF_OTHER,), ("next",)),
        Sends("EndTxn", details=(COMMIT, ABORT)),
        Sends("ProduceOutside", details=("next",), names=(WRITER,)),
    ),
    bounds=(
        WAITS,
        _begin("A", "B", WRITER),
        AS_CLIENTS_ADD,
        Bound(
            "readers are given the same whatever else is refused",
            lambda state, request: (
                request.detail == "gap" and state.data.state.producer(state.known(request.name).producer_id).epoch >= 0
            ),
        ),
        Bound(
            "a batch of the other's producer may begin a transaction that nobody ends, if leaders do not ask",
            lambda state, request: request.whose == OF_OTHER and not state.settings.verification,
        ),
        Bound(
            "an empty transaction has nothing to read",
            lambda state, request: request.action == "EndTxn" and request.name not in _begun(state),
        ),
    ),
    place=_place_of_readers,
    seen=_seen_by_readers,
    with_offset=False,
    has_second=True,
)


# --- offsets of groups -----------------------------------------------------------------------------------------------


def _order_of_offsets(state: Visible) -> str:
    """The offsets that are pending and the one that counts, in the order in which they were written."""
    owners = {str(state.known(name).producer_id): name for name in state.coordinators}
    places = {owners[producer]: offsets[DATA] for producer, offsets in state.group.pending.items()}
    if state.group.committed[DATA] >= 0:
        places["committed"] = state.group.committed[DATA]
    return ", ".join(sorted(places, key=lambda name: places[name])) or "nothing"


def _place_of_offsets(state: Visible) -> Hashable:
    registered = ((_state_name(state, name), OFFSETS in state.known(name).partitions) for name in state.coordinators)
    return tuple(registered), bool(state.group.group.members), _order_of_offsets(state), state.broker.is_there()


def _seen_of_offsets(state: Visible, request: Request, ends: bool) -> str:  # noqa: ARG001 - of the shape that all have
    members = "a member" if state.group.group.members else "no member"
    if request.action in {"AddOffsetsToTxn", "InitProducerId"}:
        return "any"
    if request.action == DELETE and not state.broker.is_there():
        return "unknown group"
    accepted = {"OffsetCommit": MEMBER_COMMITS if state.group.group.members else NOBODY_COMMITS}
    if request.action in COMMITS_OF_MEMBERS and request.detail != accepted.get(request.action, ""):
        return members
    written = f"written: {_order_of_offsets(state)}"
    return ", ".join([written, *_decided(state)] if request.action in {"EndTxn", SETTLE} else [written, members])


GROUP_OFFSETS = Mechanism(
    name="offsets",
    title="offsets of a group in transactions: pending, decided, fenced by generation",
    kips="KIP-98, KIP-447",
    transactional_ids=("A", "B"),
    sends=(
        Sends("InitProducerId", (NONE,)),
        Sends("JoinGroup", names=("",)),
        Sends("OffsetCommit", details=(NOBODY_COMMITS, *CLAIMS), names=("",)),
        Sends("AddOffsetsToTxn"),
        Sends("TxnOffsetCommit"),
        Sends("TxnOffsetCommit", details=CLAIMS, names=("A",)),
        Sends(DELETE, names=("",)),
        Sends("EndTxn", details=(COMMIT, ABORT)),
    ),
    bounds=(
        WAITS,
        _begin("A", "B"),
        AS_CLIENTS_ADD,
        Bound(
            "nobody claims to be a member of a group without members",
            lambda state, request: request.detail in CLAIMS and not state.group.group.members,
        ),
        Bound(
            "an empty transaction has no offsets",
            lambda state, request: request.action == "EndTxn" and OFFSETS not in state.known(request.name).partitions,
        ),
    ),
    place=_place_of_offsets,
    seen=_seen_of_offsets,
    has_second=True,
)


_INSTANCES = (
    "member, as its instance",
    "member of the generation before, as its instance",
    "somebody else, as its instance",
    "member, as another instance",
)

INSTANCES = Mechanism(
    name="static",
    title="offsets of a static member: fenced by instance",
    kips="KIP-345, KIP-447",
    transactional_ids=("A",),
    sends=(
        Sends("InitProducerId", (NONE,)),
        Sends("JoinGroup", details=("as its instance",), names=("",)),
        Sends("OffsetCommit", details=(MEMBER_COMMITS, *_INSTANCES), names=("",)),
        Sends("AddOffsetsToTxn"),
        Sends("TxnOffsetCommit", details=(MEMBER_COMMITS, *_INSTANCES)),
        Sends("EndTxn", details=(COMMIT, ABORT)),
    ),
    bounds=(
        WAITS,
        _begin("A"),
        AS_CLIENTS_ADD,
        Bound(
            "nobody claims to be a member of a group without members",
            lambda state, request: request.action in COMMITS_OF_MEMBERS and not state.group.group.members,
        ),
        Bound(
            "an empty transaction has no offsets",
            lambda state, request: request.action == "EndTxn" and OFFSETS not in state.known("A").partitions,
        ),
    ),
    place=_place_of_offsets,
    seen=_seen_of_offsets,
)


# --- members of groups of KIP-848 ------------------------------------------------------------------------------------


_MEMBER_COMMITS = (NOBODY_COMMITS, *(f"{who}, {shift}" for who in (FIRST, SECOND) for shift in EPOCHS))


def _gives_nothing_up(state: Visible, request: Request) -> bool:
    """A member that has nothing to give up says that it does."""
    group, who = state.group, request.name
    if request.detail != GIVES_UP or who not in group.members():
        return False
    current = state.broker.membership.members[who]
    return not (current.revoking or current.assigned - group.target_of(group.members(), who))


def _claims_of_unknown_group(state: Visible, request: Request) -> bool:
    return request.action in {*COMMITS_OF_MEMBERS, DELETE} and not state.broker.is_known()


def _has_no_epoch(state: Visible, request: Request) -> bool:
    """A consumer that is no member presents an epoch relative to its own."""
    who, _, shift = request.detail.partition(", ")
    return shift not in {"", CURRENT} and who in {FIRST, SECOND} and who not in state.group.members()


def _member(state: Visible, who: str) -> str:
    """A member's part in the group: does it have the partition, since how many epochs before its own."""
    current = state.broker.membership.members[who]
    if who not in state.group.members():
        return "no member"
    if DATA not in current.assigned | current.revoking:
        return "without the partition"
    ago = ("this epoch", "the last epoch", "before the last epoch")
    since = ago[min(current.epoch - current.assignment_epochs[DATA], 2)]
    return f"{'has' if DATA in current.assigned else 'gives up'} the partition since {since}"


def _members(state: Visible) -> str:
    """Both members, and whether they are behind the group's epoch."""
    membership = state.broker.membership
    said = []
    for who in (FIRST, SECOND):
        is_behind = 0 < membership.members[who].epoch < membership.epoch
        said.append(f"{who} {_member(state, who)}{', behind' if is_behind else ''}")
    return "; ".join(said)


def _offsets_of(state: Visible) -> str:
    return "offsets pending" if state.group.pending else "nothing pending"


def _place_of_members(state: Visible) -> Hashable:
    known = state.known("A")
    registered = known.state is DEAD, OFFSETS in known.partitions
    return registered, _decided(state), _offsets_of(state), state.broker.is_known(), _members(state)


def _seen_of_members(state: Visible, request: Request, ends: bool) -> str:  # noqa: ARG001 - of the shape that all have
    if request.api == HEARTBEAT:
        return _members(state)
    if request.action == DELETE and not state.group.members():
        return f"no members, {_offsets_of(state)}"
    if request.action == DELETE or (request.action in COMMITS_OF_MEMBERS and request.detail == NOBODY_COMMITS):
        return "members" if state.group.members() else "no members"
    if request.action in COMMITS_OF_MEMBERS:
        who = request.detail.partition(", ")[0]
        others = "" if state.group.members() else ", nor is anybody"
        return f"{who} {_member(state, who)}{others}"
    return ", ".join([_offsets_of(state), *_decided(state)])


MEMBERS = Mechanism(
    name="members",
    title="offsets of a group's members: assigned, given up, fenced by member epoch",
    kips="KIP-447, KIP-848, KIP-1251",
    transactional_ids=("A",),
    sends=(
        Sends("InitProducerId", (NONE,)),
        Sends("JoinConsumerGroup", names=(SECOND, FIRST)),
        Sends("Heartbeat", details=(KEEPS, GIVES_UP), names=(SECOND, FIRST)),
        Sends("LeaveConsumerGroup", names=(SECOND, FIRST)),
        Sends("AddOffsetsToTxn"),
        Sends("OffsetCommit", details=_MEMBER_COMMITS, names=("",)),
        Sends("TxnOffsetCommit", details=_MEMBER_COMMITS),
        Sends(DELETE, names=("",)),
        Sends("EndTxn", details=(COMMIT, ABORT)),
    ),
    bounds=(
        WAITS,
        _begin("A"),
        AS_CLIENTS_ADD,
        Bound("a member gives up what it is to give up, and nothing else", _gives_nothing_up),
        Bound("nobody claims to be of a group that has never had members", _claims_of_unknown_group),
        Bound("the epoch of a consumer that is no member is the group's", _has_no_epoch),
        Bound(
            "an empty transaction has no offsets",
            lambda state, request: request.action == "EndTxn" and OFFSETS not in state.known("A").partitions,
        ),
    ),
    place=_place_of_members,
    seen=_seen_of_members,
    group_protocol=CONSUMER,
    has_topic=True,
    needs=HEARTBEAT,
)


MECHANISMS = (IDEMPOTENCE, TRANSACTIONS, QUESTIONS, MARKERS, COMMITS, READING, GROUP_OFFSETS, INSTANCES, MEMBERS)

_LIKE_OLDER = "a leader, and a coordinator that adds a partition, remember no epoch but the latest: as epoch - 1"
NOT_ASKED = {
    ("AddPartitionsToTxn", "epoch - 2"): _LIKE_OLDER,
    ("AddOffsetsToTxn", "epoch - 2"): _LIKE_OLDER,
    ("Produce", "epoch - 2"): _LIKE_OLDER,
    ("TxnOffsetCommit", "epoch - 2"): _LIKE_OLDER,
    ("ProduceOutside", "epoch - 2"): _LIKE_OLDER,
    (VERIFY, "epoch - 2"): _LIKE_OLDER,
    (MARK, "epoch - 2"): _LIKE_OLDER,
    **dict.fromkeys(
        ((WITH_UNKNOWN, whose) for whose in ("epoch - 1", "epoch - 2", "epoch + 1", ANOTHER_ID)),
        "the partitions are looked up before the producer",
    ),
    (MARK, ANOTHER_ID): "a leader knows no producer id but by its batches: as a producer without batches",
    ("ProduceOutside", ANOTHER_ID): "a leader knows no producer id but by its batches: as a producer without batches",
}
"""The producer ids and epochs that no mechanism presents with an action, and why."""
