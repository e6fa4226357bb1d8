"""The rules over a partition's log, one fold in offset order; everything faster is compared with it.

Rules, by name:

``order``
    A batch's base offset is not above the last offset before it. Or it is not one that the batch's segment may hold: it
    is below the offset in the segment's name, or not below the one in the next segment's name. A broker looks for an
    offset in the segment with the highest name that is not above it, so no reader is given such a batch. The other
    rules ignore these batches. One wrong base offset in the middle of a log, or one wrong name of a segment, makes many
    batches wrong that are in order among themselves. The first of them is the finding, which counts the others.
``stale epoch``
    A batch or marker with an epoch below the highest that the log has seen for its producer id.
``duplicate``
    A data batch of the producer's current epoch whose first sequence is at or below the last one, modulo 2^31. The
    finding names the first copy if that is in the same segment.
``gap``
    A data batch whose first sequence is beyond the next one; the next one is 0 at a new epoch. *Not judged*: the first
    batch of a producer in a log that starts at offset 0. The batches before it are lost, or were written to an earlier
    topic of the same name: a leader accepts any first sequence (finding gap-after-expiry).
``batch outside transaction``
    A data batch without the transactional bit, of a producer that has a transaction open on the partition, in whatever
    epoch. Leaders and followers of every release since 0.11 refuse it (INVALID_TXN_STATE). Readers of committed data
    would get it although the transaction is aborted.

``leader epoch went back``
    A batch whose partition leader epoch is below that of the batch before it. A leader writes its epoch into every
    batch, and each leader has a higher one. Followers that come back, and consumers, take the epochs to find where
    their log or position differs from the leader's (KIP-101, KIP-320). *Not judged*: batches without one (-1).

A hole is a jump of the offsets between two batches: a region that compaction emptied, a segment that is gone, or
damage. The content of a hole is unknown, so a sequence that jumps forward across a hole is no gap, and a transaction
that was open before it may have ended there. The first data after a marker of a new epoch may have any sequence, too,
if a hole came after the producer's last data: before transaction version 2 a marker has the epoch of its data, which
the hole may have had. An empty batch that compaction left still has its sequences.

Sequences are not judged in the topics that coordinators write. A coordinator gives every batch the sequence 0, and
Kafka checks only the sequences of clients.

One fault gives one finding. After a gap the fold continues from the batch that was found, after a duplicate from the
highest sequence so far, and after a stale epoch as if the batch were not there.

Spec:   PartitionLog!AppendError, TransactionalPartition!IsOutsideTransaction, as far as a log shows them
KIP:    KIP-98, KIP-101, KIP-320, KIP-360, KIP-890
Kafka:  ProducerAppendInfo.checkProducerEpoch, checkSequence, appendDataBatch, AppendOrigin.COORDINATOR,
        LogSegments.floorSegment, LeaderEpochFileCache.assign
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self, TypeVar

from kafka_eos.formats.varint import INT64_MAX, INT64_MIN
from kafka_eos_checks.audit.findings import Kind

ORDER, STALE_EPOCH, DUPLICATE, GAP = "order", "stale epoch", "duplicate", "gap"
OUTSIDE = "batch outside transaction"
LEADER_BACK = "leader epoch went back"
LOG_RULES = (DUPLICATE, GAP, STALE_EPOCH, OUTSIDE, ORDER, LEADER_BACK)

SEQUENCE_MASK = 0x7FFFFFFF  # sequences count modulo 2^31
HALF = 1 << 30  # a sequence further ahead than this counts as lower
COORDINATOR_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
NONE = -1  # no sequence yet at this epoch
UNKNOWN = -1  # instead of a number of holes: none of the producer's sequences is known yet
COPY_AT, COPY_ELSEWHERE = "the first copy is at offset", "the first copy is not in this segment"  # words of findings
CLOSED = -1  # instead of a number of holes: no transaction of the producer is known to be open
PLAIN, TRANSACTIONAL, MARKER = 0, 1, 3  # kinds of batches: data outside of a transaction, data in one, markers
ANYWHERE = range(INT64_MIN, INT64_MAX)  # the offsets of a log that has no segments


class Batch(NamedTuple):
    """The fields of a batch that the rules read.

    ``last_sequence`` is ``base_sequence`` plus the last offset delta, modulo 2^31. For an ``unsequenced``
    batch (a marker, or a batch that a coordinator wrote) only the epoch counts, because Kafka checks no sequence of it.
    ``kind`` has the control bit above the transactional bit of the batch's attributes; ``leader_epoch`` is -1 for none.
    """

    position: int
    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    unsequenced: bool
    kind: int = PLAIN
    leader_epoch: int = -1


class Producer(NamedTuple):
    """The state of one producer id after some of the log.

    Attributes:
        epoch: the highest epoch.
        last_sequence: the last sequence at that epoch, :data:`NONE` when there is none.
        holes: how many holes the log had when ``last_sequence`` was last certain, or :data:`UNKNOWN`.
        opened: how many holes the log had when a transaction was last certain to be open, or :data:`CLOSED`.
    """

    epoch: int
    last_sequence: int
    holes: int
    opened: int = CLOSED


class Reason(NamedTuple):
    """A reason why something could not be judged.

    Attributes:
        code: a short name that scripts may rely on.
        words: what is missing, and what the user could give.
    """

    code: str
    words: str


class Subject(NamedTuple):
    """The place of something that could not be judged: a topic, a partition, an offset, and a producer id.

    Without an offset, -1, it is somewhere in the log.
    """

    topic: str
    partition: int
    offset: int = -1
    producer_id: int = -1

    def __str__(self) -> str:
        log = f"{self.topic}-{self.partition}"
        who = f" (producer {self.producer_id})" if self.producer_id >= 0 else ""
        return f"at {log} offset {self.offset}{who}" if self.offset >= 0 else f"in {log}"


class Unjudged(NamedTuple):
    """Subjects that could not be judged for one reason: how many, and the first one."""

    total: int
    first: Subject


class Reasons(dict[Reason, Unjudged]):
    """The subjects that could not be judged, by reason."""

    def count(self, reason: Reason, first: Subject, count: int = 1) -> None:
        """Add some subjects, by their number and the first of them."""
        before = self.get(reason, Unjudged(0, first))
        self[reason] = Unjudged(before.total + count, min(first, before.first))

    def add(self, other: "Reasons") -> None:
        """Add other subjects."""
        for reason, unjudged in other.items():
            self.count(reason, unjudged.first, unjudged.total)


FIRST_SEQUENCE = Reason(
    "first-sequence",
    "the first ones of a producer, with a sequence above 0: those before are lost, or went to a topic of this name "
    "that was deleted; a history of the clients would show which",
)


class Violation(NamedTuple):
    """A violation of a rule.

    Attributes:
        rule: the rule.
        evidence: the evidence against it in words.
        kind: whether the violation is certain.
        follows: whether it only follows from the violation of the batch right before, which is of the same rule.
    """

    rule: str
    evidence: str
    kind: Kind = Kind.VIOLATION
    follows: bool = False

    def followed_by(self, others: int, last: int) -> "Violation":
        """The violation with the number of those that follow from it, up to a last offset."""
        if not others:
            return self
        them = "so is the batch after it" if others == 1 else f"so are the {others} batches after it"
        return self._replace(evidence=f"{self.evidence}; {them}, up to offset {last}")

    def with_copy(self, batch: Batch, copies: Mapping["Sequenced", int]) -> "Violation":
        """The violation of a batch, with the place of the first copy if it is a duplicate; see :func:`first_copies`."""
        if self.rule != DUPLICATE:
            return self
        named = Sequenced(batch.producer_id, batch.producer_epoch, batch.base_sequence)
        return self._replace(evidence=f"{self.evidence}; {copy_in_words(batch.base_offset, copies[named])}")


class Sequenced(NamedTuple):
    """A record by the sequence that its producer gave it."""

    producer_id: int
    producer_epoch: int
    sequence: int


def first_copies(segment: Iterable[Batch], wanted: Collection[Sequenced]) -> dict[Sequenced, int]:
    """The base offsets of the first batches of a segment that have some records.

    Args:
        segment: the batches of a segment, in order; those with no wanted record may be left out.
        wanted: the records.
    """
    of_producer: dict[tuple[int, int], list[int]] = defaultdict(list)
    for pid, epoch, sequence in sorted(set(wanted)):
        of_producer[pid, epoch].append(sequence)
    found: dict[Sequenced, int] = {}
    for batch in segment:
        pid, epoch, first, last = batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence
        own = () if batch.unsequenced else of_producer.get((pid, epoch), ())
        for low, high in ((first, last),) if first <= last else ((first, SEQUENCE_MASK), (0, last)):
            for sequence in own[bisect_left(own, low) : bisect_right(own, high)]:
                found.setdefault(Sequenced(pid, epoch, sequence), batch.base_offset)
    return found


def copy_in_words(offset: int, first: int) -> str:
    """The place of the first copy of a batch at an offset, if the first such batch of its segment is at another."""
    return f"{COPY_AT} {first}" if first != offset else f"{COPY_ELSEWHERE}, but in an earlier one, or gone"


def after(known: Producer | None, batch: Batch, holes: int, whole: bool) -> tuple[Producer, Violation | None]:
    """The state of a producer after one of its batches, and the rule that the batch violates.

    Args:
        known: the state before; None for a producer that the log has not seen.
        batch: a batch with a producer id.
        holes: how many holes the log had before this batch.
        whole: whether the log begins at offset 0.
    """
    if known is None:
        known = Producer(batch.producer_epoch, NONE, UNKNOWN)
    if batch.producer_epoch < known.epoch:
        return known, Violation(STALE_EPOCH, f"epoch {batch.producer_epoch} after epoch {known.epoch}")
    found, violation = _in_sequence(known, batch, holes, whole)
    if batch.kind != PLAIN:
        return found._replace(opened=holes if batch.kind == TRANSACTIONAL else CLOSED), violation
    if violation is None and known.opened == holes:
        violation = Violation(OUTSIDE, f"no transactional bit at epoch {batch.producer_epoch}, in an open transaction")
    return found._replace(opened=known.opened), violation


def _in_sequence(known: Producer, batch: Batch, holes: int, whole: bool) -> tuple[Producer, Violation | None]:
    """The same as :func:`after`, of a batch that is not stale, by epoch and sequence."""
    if batch.producer_epoch > known.epoch:
        # Before version 2 a marker has the epoch of its data, which may be in a hole before it.
        known = Producer(batch.producer_epoch, NONE, 0 if batch.unsequenced and not holes else known.holes)
    if batch.unsequenced:
        return known, None

    found = Producer(batch.producer_epoch, batch.last_sequence, holes)
    expected = following(known.last_sequence)
    if batch.base_sequence == expected:
        return found, None
    if known.last_sequence == NONE or is_ahead(batch.base_sequence, expected):
        if known.holes == UNKNOWN and whole and not holes:
            return found, _unsure(batch)
        if holes > known.holes:
            return found, None
        return found, Violation(GAP, f"sequence {batch.base_sequence}, expected {expected} at epoch {known.epoch}")
    evidence = f"sequence {batch.base_sequence} again, the last was {known.last_sequence} at epoch {known.epoch}"
    longer = is_ahead(batch.last_sequence, expected)
    return (found if longer else known), Violation(DUPLICATE, evidence)


def _unsure(batch: Batch) -> Violation:
    """A producer's first batch in a log, whose sequence is not 0."""
    evidence = f"begins with sequence {batch.base_sequence} at epoch {batch.producer_epoch}: those before are lost, "
    return Violation(GAP, evidence + "or were written to a topic of this name that was deleted", Kind.NOT_JUDGED)


def following(last_sequence: int) -> int:
    """The sequence after ``last_sequence``: 0 after none and after 2^31 - 1."""
    return (last_sequence + 1) & SEQUENCE_MASK


def is_ahead(sequence: int, expected: int) -> bool:
    """Whether ``sequence`` is at or beyond ``expected``, modulo 2^31: the shorter way round decides."""
    return (sequence - expected) & SEQUENCE_MASK < HALF


@dataclass(frozen=True, slots=True)
class Log:
    """The state of the fold over a partition's log.

    Attributes:
        whole: whether it begins at offset 0.
        end: one past the highest offset so far; None before the first batch.
        holes: how many holes there are so far.
        hole: the last of them: the first offset that is missing, and the next one that is there; None without one.
        producers: by producer id; shared by all states of one fold, which owns it.
        leader_epoch: that of the last batch that has one; -1 for none.
        misplaced: one past the last offset of the batch right before, if that violates ``order``; None otherwise.
    """

    whole: bool = False
    end: int | None = None
    holes: int = 0
    hole: tuple[int, int] | None = None
    producers: dict[int, Producer] = field(default_factory=dict)
    leader_epoch: int = -1
    misplaced: int | None = None

    def after_hole(self, offset: int) -> Self:
        """The log after a hole that ends before this offset."""
        assert self.end is not None, "a hole is between two batches"
        return replace(self, holes=self.holes + 1, hole=(self.end, offset))

    def append(self, batch: Batch, room: range = ANYWHERE) -> tuple[Self, Violation | None]:
        """The log after one more batch, and the rule that the batch violates.

        Args:
            batch: the batch.
            room: the offsets that its segment may hold.
        """
        if batch.base_offset not in room:
            evidence = f"base offset {batch.base_offset} is not in its segment's range {room.start} to "
            return self._misplace(batch, f"{evidence}{'the end' if room.stop == INT64_MAX else room.stop - 1}")
        if self.end is None:
            log = replace(self, whole=batch.base_offset == 0, end=batch.last_offset + 1, misplaced=None)
        elif batch.base_offset < self.end:
            last = self.end - 1
            evidence = f"base offset {batch.base_offset} is not above the last offset {last} before it"
            return replace(self, end=max(self.end, batch.last_offset + 1))._misplace(batch, evidence)
        else:
            log = self.after_hole(batch.base_offset) if batch.base_offset > self.end else self
            log = replace(log, end=batch.last_offset + 1, misplaced=None)
        violation = None
        if batch.producer_id >= 0:
            known = self.producers.get(batch.producer_id)
            self.producers[batch.producer_id], violation = after(known, batch, log.holes, log.whole)
        if violation is None and 0 <= batch.leader_epoch < log.leader_epoch:
            evidence = f"leader epoch {batch.leader_epoch} after leader epoch {log.leader_epoch}"
            violation = Violation(LEADER_BACK, evidence)
        return (log if batch.leader_epoch < 0 else replace(log, leader_epoch=batch.leader_epoch)), violation

    def _misplace(self, batch: Batch, evidence: str) -> tuple[Self, Violation]:
        follows = self.misplaced is not None and batch.base_offset >= self.misplaced
        return replace(self, misplaced=batch.last_offset + 1), Violation(ORDER, evidence, follows=follows)


Found = TypeVar("Found")


def counted(found: Iterable[tuple[Found, Batch, Violation]]) -> Iterator[tuple[Found, Batch, Violation]]:
    """Violations of a log in order, of which those that follow from another one are counted there.

    Args:
        found: the violations, each with its batch and its place.
    """
    first: tuple[Found, Batch, Violation] | None = None
    others, last = 0, -1
    for place, batch, violation in found:
        if violation.follows:
            others, last = others + 1, batch.last_offset
            continue
        if first is not None:
            yield *first[:2], first[2].followed_by(others, last)
        first, others = (place, batch, violation), 0
    if first is not None:
        yield *first[:2], first[2].followed_by(others, last)


def audit_log(batches: Iterable[Batch]) -> Iterator[tuple[Batch, Violation]]:
    """Every violation of a partition's log. The batches are given in the order of its files."""
    return ((batch, violation) for _, batch, violation in counted(_violations(batches)))


def _violations(batches: Iterable[Batch]) -> Iterator[tuple[None, Batch, Violation]]:
    log = Log()
    for batch in batches:
        log, violation = log.append(batch)
        if violation is not None:
            yield None, batch, violation
