"""The mechanisms: the requests that are tried, and the edges of the graph that a client cannot tell apart.

The graph of :class:`Visible` is infinite, so each mechanism looks at it through two projections. ``place`` says which
states are one node (epochs count only as far as a request can tell them apart); ``seen`` is the part of a node that a
request's guards look at. An edge of the quotient is what is seen, the request, and the allowed answers.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.spec_mapping import camel_case
from kafka_eos.machines.transaction_coordinator import DEAD, NO_EPOCH, NOBODY, Identity
from kafka_eos.machines.transactional_partition import PLAIN, TRANSACTIONAL
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
    OFFSETS,
    SECOND,
    Answer,
    Partition,
    Visible,
)

MAX_SEQUENCE = 2**31 - 1
HEARTBEAT = "ConsumerGroupHeartbeat"
KEEPS, GIVES_UP = "keeps what it has", "gives up"
COMMITS_OF_MEMBERS = ("OffsetCommit", "TxnOffsetCommit")
CLAIMS = ("member", "member of the generation before", "member of the next generation", "somebody else")
"""The members of a classic group that commit offsets."""
SETTLE = "settle"
"""The one step that no client asks for: the coordinator writes markers and closes the transaction."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request, relative to the broker's state.

    Attributes:
        api: its name, or ``settle``.
        name: the transactional.id, or the name of the producer without one.
        whose: which producer id and epoch it presents.
        detail: the rest: commit or abort, which sequence, who commits offsets.
    """

    api: str
    name: str = "A"
    whose: str = CURRENT
    detail: str = ""

    def label(self, alone: bool) -> str:
        """The request in words; ``alone`` if there is only one producer."""
        if self.api == SETTLE:
            return SETTLE
        words = [self.detail, "" if self.whose == CURRENT else self.whose, "" if alone else self.name]
        said = ", ".join(word for word in words if word)
        return f"{self.api}({said})" if said else self.api


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

    @property
    def kind(self) -> str:
        """The kind of the request's batch."""
        return PLAIN if self.request.detail.startswith("plain") else TRANSACTIONAL


Outcome = tuple[Answer, Visible]


# --- requests in a state ---------------------------------------------------------------------------------------------


def _sequence(leader: Partition, identity: Identity, which: str) -> tuple[int, int] | None:
    """First sequence and number of records of a batch; None if there is no such batch."""
    known = leader.state.log.producers.get(identity.producer_id)
    cached = known.batches if known is not None and known.epoch == identity.epoch else ()
    limits = leader.state.log.limits
    following = limits.next_sequence(limits.last_sequence(cached[-1])) if cached else 0
    match which:
        case "next":
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
            return cached[0].sequence - 1, 1
        case "again and one more" if cached:
            return cached[-1].sequence, cached[-1].count + 1
        case "the last before the wrap" if known is None:
            return MAX_SEQUENCE, 1
    return None


def asked(state: Visible, request: Request) -> Asked | None:
    """A request's values in a state, None where they make no sense there."""
    if request.api == "JoinGroup":
        return Asked(request=request) if not state.group.group.members else None
    if request.api == "InitProducerId" and request.detail:
        return Asked(request=request) if request.name not in state.plain else None
    if request.api == HEARTBEAT:
        return _beating(state, request)
    if request.api in COMMITS_OF_MEMBERS and request.detail:
        committer = _committer(state, request.detail)
        identity = Identity() if request.api == "OffsetCommit" else state.identity(request.name, request.whose)
        if committer is None or identity is None:
            return None
        member, generation = committer
        return Asked(request=request, identity=identity, offset=state.offsets.end, member=member, generation=generation)
    if request.api == "OffsetCommit":
        member, generation = (MEMBER, state.group.group.generation) if state.group.group.members else (None, -1)
        offset = state.offsets.end
        return Asked(request=request, offset=offset, member=member, generation=generation)
    identity = state.identity(request.name, request.whose)
    if identity is None:
        return None
    if request.api == "Produce":
        found = _sequence(state.data, identity, request.detail.removeprefix("plain, ") or "next")
        return Asked(request=request, identity=identity, sequence=found[0], count=found[1]) if found else None
    if request.api == "TxnOffsetCommit":
        return Asked(request=request, identity=identity, offset=state.offsets.end)
    return Asked(request=request, identity=identity)


def _beating(state: Visible, request: Request) -> Asked | None:
    """A heartbeat's values in a state; its epoch is the member's."""
    who, _, does = request.detail.partition(" ")
    membership = state.broker.membership
    current = membership.members[who]
    if (does == "joins") is (who in state.group.members()):
        return None
    has = DATA in current.assigned | current.revoking
    return Asked(
        request=request,
        member=who,
        generation=current.epoch,
        owned=has and does == KEEPS,
        assigns=does != "leaves" and current.epoch < membership.epoch,
    )


def _committer(state: Visible, which: str) -> tuple[str | None, int] | None:
    """Member, and generation or member epoch; None if there is no such epoch."""
    generation = state.group.group.generation
    who, _, shift = which.partition(", ")
    if shift:
        membership = state.broker.membership
        current = membership.members[who].epoch or membership.epoch
        return (who, current + EPOCHS[shift]) if current + EPOCHS[shift] > 0 else None
    return {
        "nobody": (None, -1),
        "member": (MEMBER, generation),
        "member of the generation before": (MEMBER, generation - 1),
        "member of the next generation": (MEMBER, generation + 1),
        "somebody else": ("somebody", generation),
    }[which]


def answered(state: Visible, given: Asked) -> list[Outcome]:
    """The immediate answers: the machines', and Kafka's where that is a recorded difference."""
    if given.request.api == "Produce":
        return state.produce(given.request.name, given.identity, given.sequence, given.count, given.kind)
    return [_answered(state, given)]


def _answered(state: Visible, given: Asked) -> Outcome:
    request, identity = given.request, given.identity
    name = request.name
    match request.api:
        case "InitProducerId" if request.detail:
            return state.plain_init(name)
        case "InitProducerId":
            return state.init_producer_id(name, identity)
        case "AddPartitionsToTxn":
            return state.add_partitions(name, identity, DATA)
        case "AddOffsetsToTxn":
            return state.add_partitions(name, identity, OFFSETS)
        case "EndTxn":
            return state.end_txn(name, identity, request.detail == "commit")
        case "OffsetCommit":
            return state.commit_plainly(given.member, given.generation)
        case "ConsumerGroupHeartbeat":
            who, _, does = request.detail.partition(" ")
            return state.heartbeat(who, does)
        case "TxnOffsetCommit":
            return state.commit_offsets(name, identity, given.member, given.generation)
        case "JoinGroup":
            return state.join()
    raise ValueError(request.api)


def outcomes(state: Visible, given: Asked) -> list[Outcome]:
    """All outcomes that the spec allows: while markers are being written, the coordinator may finish at any time."""
    if given.request.api == SETTLE:
        return [(Answer(error=ErrorCode.NONE, rule="TransactionCoordinator!CompleteTransaction"), state.settled())]
    found = answered(state, given)
    if not state.is_settled:
        at_once = {answer for answer, _ in found}
        found += [outcome for outcome in answered(state.settled(), given) if outcome[0] not in at_once]
    return found


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
    asked = state.data.as_shipped.questions(own.producer_id)
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
    if request.api == "Produce":
        seen += [_registered(state, name), f"partition: {_relation(state.data, own)}"]
        seen += ["" if _cached(state.data, own) else "no batch", _asked_before(state, own)]
    elif request.api == "InitProducerId":
        seen += ["bumped before" if state.known(name).last_epoch >= 0 else ""]
    elif request.api != "EndTxn" or ends:
        seen += [_registered(state, name)]
    if request.api == "EndTxn" and ends:
        seen += [f"partition {'open' if state.data.state.producer(own.producer_id).is_open else 'closed'}"]
    return ", ".join(part for part in seen if part)


def _writers(state: Visible) -> tuple[str, ...]:
    """The writers to partitions.

    Without verification a leader accepts an epoch or a producer id that no coordinator has given, and then refuses the
    markers of the legitimate producer for ever (KAFKA-12671): nothing can be asked after that.
    """
    nobody = () if state.settings.client < 2 and not state.settings.verification else ("epoch + 1", ANOTHER_ID)
    return (CURRENT, "epoch - 1", *nobody)


def _transaction_requests(state: Visible) -> Iterator[Request]:
    """Any request of a transactional.id."""
    coordinator = (CURRENT, "epoch - 1", "epoch + 1", ANOTHER_ID)
    if not state.is_settled:
        yield Request(SETTLE)
        yield Request("InitProducerId", whose=NONE)
        yield Request("InitProducerId", whose=CURRENT)
        for detail in ("commit", "abort"):
            for whose in (CURRENT, "epoch - 1", "epoch - 2", ANOTHER_ID):
                yield Request("EndTxn", whose=whose, detail=detail)
        return
    for whose in (NONE, CURRENT, "epoch - 1", "epoch - 2", "epoch + 1", ANOTHER_ID, ID_ALONE):
        yield Request("InitProducerId", whose=whose)
    if state.settings.client < 2:
        yield Request("AddOffsetsToTxn")
        for whose in coordinator:
            yield Request("AddPartitionsToTxn", whose=whose)
    else:
        yield Request("TxnOffsetCommit")
    for detail in ("commit", "abort"):
        for whose in (*coordinator, "epoch - 2"):
            yield Request("EndTxn", whose=whose, detail=detail)
    for detail in ("again", "gap"):
        yield Request("Produce", detail=detail)
    for whose in _writers(state):
        yield Request("Produce", whose=whose, detail="next")
    if state.data.state.producer(state.known("A").producer_id).is_open:
        yield Request("Produce", detail="plain, next")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A part of exactly-once semantics with a graph of its own.

    Attributes:
        name: its name.
        title: its title.
        kips: the KIPs that define it.
        transactional_ids: those that take part.
        requests: the requests that are tried in a state.
        place: the projection of a state to its node.
        seen: the part of a node that a request sees; one that begins to end a transaction sees more.
        with_offset: the group's offset is read back too.
        group_protocol: the group's.
        has_topic: each scenario needs a topic of one partition, so that its members are assigned nothing else.
        needs: the API without which no scenario can be played, "" for none.
    """

    name: str
    title: str
    kips: str
    transactional_ids: tuple[str, ...]
    requests: Callable[[Visible], Iterator[Request]]
    place: Callable[[Visible], Hashable]
    seen: Callable[[Visible, Request, bool], str]
    with_offset: bool = True
    group_protocol: str = CLASSIC
    has_topic: bool = False
    needs: str = ""

    @property
    def alone(self) -> bool:
        """There is only one producer."""
        return len(self.transactional_ids) == 1


# --- offsets in one transaction --------------------------------------------------------------------------------------


def _commit_requests(state: Visible) -> Iterator[Request]:
    """Offsets in a transaction, by anybody."""
    if not state.is_settled:
        yield Request(SETTLE)
        return
    yield Request("InitProducerId", whose=NONE)
    for whose in (CURRENT, "epoch - 1", "epoch + 1", ANOTHER_ID) if state.settings.client < 2 else ():
        yield Request("AddOffsetsToTxn", whose=whose)
    for whose in _writers(state):
        yield Request("TxnOffsetCommit", whose=whose)
    for detail in ("commit", "abort"):
        yield Request("EndTxn", detail=detail)


def _place_of_commits(state: Visible) -> Hashable:
    known, offsets = state.known("A"), _relation(state.offsets, _own(state, "A"))
    return _state_name(state, "A"), min(known.epoch, 1), known.partitions, offsets, bool(state.group.pending)


def _seen_of_commits(state: Visible, request: Request, ends: bool) -> str:
    seen = [_state_name(state, "A")]
    if request.api == "TxnOffsetCommit" or ends:
        pending = ["pending"] if state.group.pending else []
        seen += [
            _registered(state, "A"),
            f"partition: {_relation(state.offsets, _own(state, 'A'))}",
            *pending,
        ]
    return ", ".join(seen)


# --- producers without transactions ----------------------------------------------------------------------------------

WRITER, LATE = "P", "Q"
NO_TRANSACTIONAL_ID = "no transactional.id"


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


def _idempotent_requests(state: Visible) -> Iterator[Request]:
    """Any batch of one producer, then the first batches of another one."""
    for name in (WRITER, LATE):
        if name not in state.plain:
            yield Request("InitProducerId", name, NONE, NO_TRANSACTIONAL_ID)
            return
        details = ["next", "gap", "the last before the wrap"]
        if name == WRITER:
            details += ["next, two records", "again", "again and one more"]
            details += ["the oldest remembered again", "one that is forgotten again"]
        for detail in details:
            yield Request("Produce", name, CURRENT, f"plain, {detail}")
        for whose in ("epoch - 1", "epoch + 1"):
            for detail in ("next", "gap"):
                yield Request("Produce", name, whose, f"plain, {detail}")


def _place_of_batches(state: Visible) -> Hashable:
    identity = _plain_identity(state, WRITER)
    epoch = 0 if identity is None else min(identity.epoch, 1)
    late = _history(state, LATE)
    return _history(state, WRITER), late if "remembered" not in late else late[-7:], epoch, state.data.end > 0


def _seen_of_batches(state: Visible, request: Request, ends: bool) -> str:  # noqa: ARG001 - of the shape that all have
    if request.api != "Produce":
        return "any"
    seen = _history(state, request.name)
    return seen if state.data.end else f"{seen}, empty partition"


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


def _reading_requests(state: Visible) -> Iterator[Request]:
    """Two producers in transactions and one outside write to one partition, as clients do."""
    if not state.is_settled:
        yield Request(SETTLE)
        return
    for name in sorted(state.coordinators):
        if state.known(name).state is DEAD:
            yield Request("InitProducerId", name, NONE)
            return
    if WRITER not in state.plain:
        yield Request("InitProducerId", WRITER, NONE, NO_TRANSACTIONAL_ID)
        return
    for name in sorted(state.coordinators):
        if state.settings.client < 2 and DATA not in state.known(name).partitions:
            yield Request("AddPartitionsToTxn", name)
            continue
        yield Request("Produce", name, detail="next")
        if state.data.state.producer(state.known(name).producer_id).epoch < 0:
            yield Request("Produce", name, detail="gap")
        if name in _begun(state):
            yield Request("EndTxn", name, detail="commit")
            yield Request("EndTxn", name, detail="abort")
    yield Request("Produce", WRITER, detail="plain, next")


def _place_of_readers(state: Visible) -> Hashable:
    registered = tuple((state.known(name).state is DEAD, DATA in state.known(name).partitions) for name in ("A", "B"))
    return registered, WRITER in state.plain, tuple(_begun(state)), _last_entries(state, 2), _decided(state)


def _seen_by_readers(state: Visible, request: Request, ends: bool) -> str:  # noqa: ARG001 - of the shape that all have
    if request.api not in {"Produce", SETTLE}:
        return f"open: {', '.join(_begun(state)) or 'nothing'}"
    last = "".join(_last_entries(state, 1)) or "nothing"
    return ", ".join([f"open: {', '.join(_begun(state)) or 'nothing'}", *_decided(state), f"last entry: {last}"])


# --- offsets of groups -----------------------------------------------------------------------------------------------


def _offset_requests(state: Visible) -> Iterator[Request]:
    """Two producers write offsets of one group, with and without a member."""
    if not state.is_settled:
        yield Request(SETTLE)
        return
    for name in sorted(state.coordinators):
        if state.known(name).state is DEAD:
            yield Request("InitProducerId", name, NONE)
            return
    yield Request("JoinGroup", name="", whose=NONE)
    yield Request("OffsetCommit", name="", whose=NONE)
    for detail in (*CLAIMS[1:], "nobody") if state.group.group.members else ():
        yield Request("OffsetCommit", name="", whose=NONE, detail=detail)
    for name in sorted(state.coordinators):
        if state.settings.client < 2 and OFFSETS not in state.known(name).partitions:
            yield Request("AddOffsetsToTxn", name)
            continue
        yield Request("TxnOffsetCommit", name)
        if state.group.group.members and name == "A":
            for detail in CLAIMS:
                yield Request("TxnOffsetCommit", name, detail=detail)
        if OFFSETS in state.known(name).partitions:
            yield Request("EndTxn", name, detail="commit")
            yield Request("EndTxn", name, detail="abort")


def _order_of_offsets(state: Visible) -> str:
    """The offsets that are pending and the one that counts, in the order in which they were written."""
    owners = {str(state.known(name).producer_id): name for name in state.coordinators}
    places = {owners[producer]: offsets[DATA] for producer, offsets in state.group.pending.items()}
    if state.group.committed[DATA] >= 0:
        places["committed"] = state.group.committed[DATA]
    return ", ".join(sorted(places, key=lambda name: places[name])) or "nothing"


def _place_of_offsets(state: Visible) -> Hashable:
    registered = tuple((_state_name(state, name), OFFSETS in state.known(name).partitions) for name in ("A", "B"))
    return registered, bool(state.group.group.members), _order_of_offsets(state)


def _seen_of_offsets(state: Visible, request: Request, ends: bool) -> str:  # noqa: ARG001 - of the shape that all have
    members = "a member" if state.group.group.members else "no member"
    if request.api in {"AddOffsetsToTxn", "InitProducerId"}:
        return "any"
    if request.detail and request.api in COMMITS_OF_MEMBERS:
        return members
    written = f"written: {_order_of_offsets(state)}"
    return ", ".join([written, *_decided(state)] if request.api in {"EndTxn", SETTLE} else [written, members])


# --- members of groups of KIP-848 ------------------------------------------------------------------------------------


def _member_requests(state: Visible) -> Iterator[Request]:
    """Two consumers join, follow the group's epoch and leave; both commit offsets with any member epoch."""
    if not state.is_settled:
        yield Request(SETTLE)
        return
    known = state.known("A")
    if known.state is DEAD:
        yield Request("InitProducerId", whose=NONE)
        return
    group = state.group
    for who in (SECOND, FIRST):
        if who not in group.members():
            yield Request(HEARTBEAT, whose=CURRENT, detail=f"{who} joins")
            continue
        current = state.broker.membership.members[who]
        yield Request(HEARTBEAT, detail=f"{who} {KEEPS}")
        if current.revoking or current.assigned - group.target_of(group.members(), who):
            yield Request(HEARTBEAT, detail=f"{who} {GIVES_UP}")
        yield Request(HEARTBEAT, detail=f"{who} leaves")
    is_added = state.settings.client >= 2 or OFFSETS in known.partitions
    if not is_added:
        yield Request("AddOffsetsToTxn")
    if state.broker.is_known():
        for api in COMMITS_OF_MEMBERS if is_added else COMMITS_OF_MEMBERS[:1]:
            yield Request(api, detail="nobody")
            for who in (FIRST, SECOND):
                for shift in EPOCHS if who in group.members() else (CURRENT,):
                    yield Request(api, detail=f"{who}, {shift}")
    if OFFSETS in known.partitions:
        yield Request("EndTxn", detail="commit")
        yield Request("EndTxn", detail="abort")


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
    if request.api in COMMITS_OF_MEMBERS and request.detail == "nobody":
        return "members" if state.group.members() else "no members"
    if request.api in COMMITS_OF_MEMBERS:
        who = request.detail.partition(", ")[0]
        others = "" if state.group.members() else ", nor is anybody"
        return f"{who} {_member(state, who)}{others}"
    return ", ".join([_offsets_of(state), *_decided(state)])


TRANSACTIONS = Mechanism(
    name="transaction",
    title="one transactional.id: any request in any state",
    kips="KIP-98, KIP-360, KIP-588, KIP-890",
    transactional_ids=("A",),
    requests=_transaction_requests,
    place=_place_in_transaction,
    seen=_seen_in_transaction,
)

IDEMPOTENCE = Mechanism(
    name="idempotence",
    title="producers without transactions: duplicates, gaps, epochs",
    kips="KIP-98, KIP-360",
    transactional_ids=(),
    requests=_idempotent_requests,
    place=_place_of_batches,
    seen=_seen_of_batches,
    with_offset=False,
)
COMMITS = Mechanism(
    name="commit",
    title="offsets in a transaction: any request in any state",
    kips="KIP-98, KIP-588, KIP-890",
    transactional_ids=("A",),
    requests=_commit_requests,
    place=_place_of_commits,
    seen=_seen_of_commits,
)
READING = Mechanism(
    name="reading",
    title="two transactions in one partition: last stable offset, aborted transactions, what readers are given",
    kips="KIP-98",
    transactional_ids=("A", "B"),
    requests=_reading_requests,
    place=_place_of_readers,
    seen=_seen_by_readers,
    with_offset=False,
)
GROUP_OFFSETS = Mechanism(
    name="offsets",
    title="offsets of a group in transactions: pending, decided, fenced by generation",
    kips="KIP-98, KIP-447",
    transactional_ids=("A", "B"),
    requests=_offset_requests,
    place=_place_of_offsets,
    seen=_seen_of_offsets,
)

MEMBERS = Mechanism(
    name="members",
    title="offsets of a group's members: assigned, given up, fenced by member epoch",
    kips="KIP-447, KIP-848, KIP-1251",
    transactional_ids=("A",),
    requests=_member_requests,
    place=_place_of_members,
    seen=_seen_of_members,
    group_protocol=CONSUMER,
    has_topic=True,
    needs=HEARTBEAT,
)

MECHANISMS = (IDEMPOTENCE, TRANSACTIONS, COMMITS, READING, GROUP_OFFSETS, MEMBERS)
