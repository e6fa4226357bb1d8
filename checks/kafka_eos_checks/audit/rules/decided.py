"""The coordinator's decision about data that hang, and the remedy that follows from it.

Kafka 4.3 leaves out the marker of a partition that has no leader at that moment (finding no-leader-no-marker). Then the
coordinator has committed or aborted what hangs there. ``kafka-transactions abort`` writes ABORT whatever the decision
was, so it takes records of a committed transaction away. The finding therefore names the decision and its place in
``__transaction_state``.

Only in transaction version 2 do a producer id and the epoch of the data name one transaction. Before, all transactions
of a producer instance share them. Then only the numbers of committed and aborted transactions are known.

Where the log no longer has the decision, a marker of the same transaction on another partition tells it.

KIP:   KIP-98, KIP-664, KIP-890
Kafka: TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue, TransactionsCommand.AbortTransactionCommand
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import TOPIC, TRANSACTION_VERSION_2, TransactionState
from kafka_eos_checks.audit.internal_topics.decisions import Decisions
from kafka_eos_checks.audit.rules.coordinator import COMPLETED, CoordinatorLog, TransactionalId
from kafka_eos_checks.audit.segments.headers import Ints

NOT_BY_HAND, LET_IT_END = "do not abort it by hand", "let its coordinator end it"
LOOK_FIRST = "before an abort by hand, ask its application whether it has committed these records"
AS_DECIDED = "an abort by hand is what it decided"
TAKES_NOTHING = "an abort by hand takes nothing away that was committed"
ENDED = "ended it"
_COMMIT, _ABORT = int(ControlType.COMMIT), int(ControlType.ABORT)
_DONE = {ControlType.COMMIT: "committed", ControlType.ABORT: "aborted"}


class Data(NamedTuple):
    """Transactional data of a producer on a partition: producer id, epoch, topic and partition."""

    producer_id: int
    epoch: int
    topic: str
    partition: int


class Last(NamedTuple):
    """The last decision about a producer id and epoch; one about the data's own partition is later than all others.

    Attributes:
        is_inside: whether the partition of the data is in the transaction.
        offset: the offset of its PREPARE.
        decision: the number of a :class:`ControlType`.
    """

    is_inside: bool
    offset: int
    decision: int


class Owner(NamedTuple):
    """The last state of the transactional id with a producer id.

    Attributes:
        transactional_id: the transactional id.
        partition: the partition of ``__transaction_state``.
        lacks: why the log may lack decisions; "" if it has all.
        status: the name of the state; "" if the coordinator has forgotten the transactional id.
        offset: the offset of the state.
        is_open: whether the coordinator still has to end the data.
        completed: the decision that the state completes, if it is of transaction version 2 and its epoch is the one
            after the data's, so that no other transaction can be meant; None otherwise.
        is_version_2: whether the state is of transaction version 2.
    """

    transactional_id: str
    partition: int
    lacks: str
    status: str
    offset: int
    is_open: bool
    completed: ControlType | None
    is_version_2: bool = False


class Marked(NamedTuple):
    """A marker of the epoch after the data's that ended data of their epoch; see :attr:`Answer.committed`."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The content of a coordinator's log about some data. Answers from parts of the log can be added.

    Attributes:
        commits: transactions with the producer id and epoch of the data, and with their partition, that it committed.
        aborts: likewise those that it aborted.
        is_named: whether all decisions with this producer id and epoch are of transaction version 2.
        last: the last decision; None for none.
        owner: the last state of the transactional id; None if this part of the log does not have it.
        committed: the first COMMIT marker of the epoch after the data's, by topic, partition and offset, that ended
            data of their epoch. It is of transaction version 2, and so of the same transaction; None for none.
        aborted: likewise the first ABORT marker. Before version 2 it may be that of the producer's last transaction of
            this epoch, which was fenced.
    """

    commits: int = 0
    aborts: int = 0
    is_named: bool = True
    last: Last | None = None
    owner: Owner | None = None
    committed: Marked | None = None
    aborted: Marked | None = None

    def __add__(self, other: "Answer") -> "Answer":
        lasts = [each.last for each in (self, other) if each.last is not None]
        return Answer(
            commits=self.commits + other.commits,
            aborts=self.aborts + other.aborts,
            is_named=self.is_named and other.is_named,
            last=max(lasts, default=None),
            owner=self.owner or other.owner,
            committed=_first(self.committed, other.committed),
            aborted=_first(self.aborted, other.aborted),
        )


def _first(one: Marked | None, other: Marked | None) -> Marked | None:
    return min((each for each in (one, other) if each is not None), default=None)


Answers = Mapping[Data, Answer]


def added(parts: Iterable[Answers]) -> dict[Data, Answer]:
    """The answers from several parts of the coordinators' logs."""
    found: dict[Data, Answer] = defaultdict(Answer)
    for part in parts:
        for data, answer in part.items():
            found[data] += answer
    return dict(found)


def decisions_about(decisions: Decisions, wanted: Collection[Data]) -> dict[Data, Answer]:
    """The answers of some decisions, each of which is given once."""
    by_epoch: dict[tuple[int, int], list[Data]] = defaultdict(list)
    for data in wanted:
        by_epoch[data.producer_id, data.epoch].append(data)
    rows = np.flatnonzero(np.isin(decisions.producer_id, [data.producer_id for data in wanted]) & ~decisions.replaced)
    keys = keys_of(decisions.producer_id[rows], decisions.data_epoch[rows].astype(np.int64))
    order = np.argsort(keys, kind="stable")
    rows, keys = rows[order], keys[order]
    asked_keys = keys_of(*np.array([*by_epoch], np.int64).reshape(-1, 2).T)
    first, end = np.searchsorted(keys, asked_keys), np.searchsorted(keys, asked_keys, "right")
    found = {}
    for asked, begin, stop in zip(by_epoch.values(), first.tolist(), end.tolist(), strict=True):
        own = rows[begin:stop]
        if not len(own):
            continue
        is_named = bool((decisions.version[own] >= TRANSACTION_VERSION_2).all())
        offset, decision = decisions.offset[own], decisions.decision[own]
        numbers, sets = np.unique(decisions.partitions[own], return_inverse=True)
        for data in asked:
            has = np.array([(data.topic, data.partition) in decisions.sets[number] for number in numbers.tolist()])
            inside = has[sets]
            lasts = zip(inside.tolist(), offset.tolist(), decision.tolist(), strict=True)
            found[data] = Answer(
                commits=int(np.count_nonzero(inside & (decision == _COMMIT))),
                aborts=int(np.count_nonzero(inside & (decision == _ABORT))),
                is_named=is_named,
                last=Last(*max(lasts)),
            )
    return found


def keys_of(producer_id: Ints, epoch: Ints) -> Ints:
    """A number for each pair of a producer id and an epoch."""
    keys: Ints = (producer_id << 16) + (epoch & 0xFFFF)
    return keys


def will_end(data: Data, known: TransactionalId) -> bool:
    """Whether the coordinator will write a marker for open data, by the last state that it wrote."""
    last = known.last
    if last is None or last.producer_id != data.producer_id or (data.topic, data.partition) not in last.partitions():
        return False
    epoch = last.producer_epoch
    if last.transaction_status is not TransactionState.ONGOING:  # so it is PREPARE: no other state has partitions
        epoch = known.transactions[-1].data_epoch
    return data.epoch == epoch


def answer_of(log: CoordinatorLog, known: TransactionalId, data: Data, lacks: str) -> Answer:
    """The answer of the last state of a transactional id.

    Args:
        log: its log.
        known: the transactional id.
        data: the data of its producer id.
        lacks: as :attr:`Owner.lacks`.
    """
    last = known.last
    if last is None:
        forgotten = Owner(known.name, log.log.partition, lacks, "", known.last_at, is_open=False, completed=None)
        return Answer(owner=forgotten)
    is_version_2 = last.client_transaction_version >= TRANSACTION_VERSION_2
    names_it = is_version_2 and (last.producer_id, last.producer_epoch) == (data.producer_id, data.epoch + 1)
    completed = COMPLETED.get(last.transaction_status) if names_it else None
    status, is_open = last.transaction_status.name, will_end(data, known)
    state = known.name, log.log.partition, lacks, status, known.last_at
    return Answer(owner=Owner(*state, is_open, completed, is_version_2))


def needs_markers(answer: Answer | None) -> bool:
    """Whether no log tells the decision, so that :func:`said_of` looks at the markers."""
    if answer is None or answer.owner is None:
        return True
    owner, last = answer.owner, answer.last
    is_told = owner.is_open or (last is not None and (last.is_inside or answer.is_named))
    return bool(owner.lacks) and not is_told and owner.completed is None


class Said(NamedTuple):
    """The known part of the decision about data, in words, and the remedy that follows from it.

    Attributes:
        words: what is known.
        remedy: what follows for data that are still open.
        decided: the decision, if it is known that it is about these data.
    """

    words: str
    remedy: str
    decided: ControlType | None = None

    def effect_of(self, marker: ControlType | None) -> str:
        """The effect of a marker of another transaction that ended the data; "" if it is as decided, or not known."""
        if marker is None or marker is self.decided:
            return ""
        get = "do not get" if marker is ControlType.ABORT else "get"
        readers = f": readers of committed data {get} its records"
        if self.decided is not None:
            return readers + "; produce them again" * (marker is ControlType.ABORT)
        return f"{readers}; ask its application whether it has committed them" * (self.remedy == LOOK_FIRST)


def said_of(data: Data, answer: Answer) -> Said | None:
    """The coordinator's decision about some data; None if no log names the producer id, or logs of several clusters."""
    owner, last = answer.owner, answer.last
    if owner is None:
        return _by_markers(data, answer)
    log = f"{TOPIC}-{owner.partition}"
    decision = None if last is None else ControlType(last.decision)
    at = "" if last is None or decision is None else f"(PREPARE_{decision.name} at {log} offset {last.offset})"
    state = f"({owner.status} at {log} offset {owner.offset})"
    if last is not None and decision is not None and last.is_inside and answer.is_named:
        if owner.is_open:
            which = f"its coordinator has decided to {decision.name} {at} and still has to write the marker"
            return Said(which, f"{NOT_BY_HAND}, {LET_IT_END}", decision)
        return _decided(f"its coordinator has {_DONE[decision]} it {at}", decision)
    if owner.is_open:
        own = "still open at its coordinator" if owner.status == TransactionState.ONGOING.name else "not yet ended"
        return Said(f"{own} {state}", f"{NOT_BY_HAND}, {LET_IT_END}")
    if last is not None and last.is_inside:
        some = f"before transaction version 2 an epoch does not name one transaction: of those of epoch {data.epoch} "
        some += f"with this partition, its coordinator has committed {answer.commits} and aborted {answer.aborts} "
        return Said(f"{some}(the last: {at[1:]}", LOOK_FIRST if answer.commits or owner.lacks else TAKES_NOTHING)
    if last is not None and decision is not None and answer.is_named:
        words = f"its coordinator has {_DONE[decision]} the transaction of epoch {data.epoch} without this partition"
        return Said(f"{words} {at}", TAKES_NOTHING)
    if owner.lacks and owner.completed is not None:
        words = f"its coordinator has {_DONE[owner.completed]} the transaction of epoch {data.epoch} {state}"
        return _decided(f"{words}; its log {owner.lacks} the record with the partitions", owner.completed)
    if owner.lacks and (by_markers := _by_markers(data, answer)) is not None:
        return by_markers
    if owner.lacks:
        return Said(f"{log} {owner.lacks} its coordinator's decision about it", LOOK_FIRST)
    nothing = f"{log} has no decision about a transaction of epoch {data.epoch} with this partition"
    return Said(nothing, TAKES_NOTHING)


def _by_markers(data: Data, answer: Answer) -> Said | None:
    """The decision by the markers of other partitions; None if there are none, or some contradict each other."""
    if (answer.committed is None) == (answer.aborted is None):
        return None
    decision = ControlType.ABORT if answer.committed is None else ControlType.COMMIT
    at = answer.aborted if answer.committed is None else answer.committed
    assert at is not None, "one of the two is there"
    words = f"the {decision.name} marker at {at.topic}-{at.partition} offset {at.offset} has ended data of epoch "
    words += f"{data.epoch} there, which in transaction version 2 are of the same transaction"
    is_certain = decision is ControlType.COMMIT or (answer.owner is not None and answer.owner.is_version_2)
    return _decided(words, decision) if is_certain else Said(words, LOOK_FIRST)


def _decided(words: str, decision: ControlType) -> Said:
    if decision is ControlType.ABORT:
        return Said(words, AS_DECIDED, decision)
    return Said(words, f"{NOT_BY_HAND} before its records are kept, because an abort takes them away", decision)
