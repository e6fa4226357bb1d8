"""Transactions that are open at the end of a log: whether and when something ends them, and who decided them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf, isinf
from typing import NamedTuple

from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT
from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import TransactionState
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.moments import GRACE_MS, SKEW_MS, Moments, in_words, span
from kafka_eos_checks.audit.quoting import quoted, unquoted
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog, TransactionalId
from kafka_eos_checks.audit.rules.decided import (
    ENDED,
    NOT_BY_HAND,
    Answer,
    Answers,
    Data,
    Marked,
    added,
    answer_of,
    decisions_about,
    said_of,
    will_end,
)
from kafka_eos_checks.audit.rules.log import Reason
from kafka_eos_checks.audit.rules.transactions.coordinators import Coordinators, why_incomplete, with_owner
from kafka_eos_checks.audit.rules.transactions.judged import Hanging, Judged, add_figure
from kafka_eos_checks.audit.rules.transactions.names import (
    END_DAMAGED,
    FIRST_LEADER,
    HANGING,
    INCOMPLETE,
    LACKS_END,
    OPEN_BEHIND_HOLE,
    OPEN_OF_NOBODY,
    OPEN_WITHOUT_LOG,
    OTHER_MOMENT,
    RECENT,
    STATE_COMPACTED,
    STATE_DAMAGED,
    UNKNOWN,
)
from kafka_eos_checks.audit.rules.transactions.partitions import OpenTransaction, PartitionTransactions
from kafka_eos_checks.audit.segments.splits import PartitionLog

_LACKS = {None: "", STATE_COMPACTED: "no longer has", STATE_DAMAGED: "is damaged and may not have"}


class Fate(NamedTuple):
    """The verdict on an open transaction.

    Attributes:
        kind: whether it hangs.
        why: the reason in words.
        reason: the reason if it is not judged.
        is_overdue: whether it hangs only because its coordinator should have ended it by now.
    """

    kind: Kind
    why: str
    reason: Reason | None = None
    is_overdue: bool = False


def hanging(partition: PartitionTransactions, coordinators: Coordinators, moments: Moments, judged: Judged) -> None:
    """Judge the open transactions of a partition: nobody will end it, somebody will, or it is not known."""
    figures = judged.figures[HANGING]
    for replaced in partition.merged:
        evidence = f"still open when data of epoch {replaced.epoch} came"
        if replaced.ended_at >= 0:
            marker = "a marker" if replaced.decision is None else replaced.decision.name
            evidence += f"; {marker} at offset {replaced.ended_at} {ENDED}"
        judged.open.append(Hanging(partition.finding(HANGING, replaced.data, evidence), replaced))
    for opened in partition.open.values():
        owner = coordinators.owner(opened.producer_id)
        fate = fate_of(partition, opened, coordinators, moments)
        fate = _unless_just_started(fate, partition.log, None if owner is None else owner[0], moments)
        add_figure(figures, "open")
        add_figure(figures, "transactions")
        if fate.reason is not None:
            add_figure(figures, UNKNOWN)
            judged.reasons[HANGING].count(fate.reason, partition.subject(opened))
        elif fate.kind is Kind.TOO_RECENT:
            add_figure(figures, RECENT)
        evidence = f"{fate.why}; open {_since(opened, moments.last_ms)}"
        found = partition.finding(HANGING, opened, evidence, fate.kind)
        judged.open.append(Hanging(with_owner(found, coordinators)))


def _unless_just_started(
    fate: "Fate", log: PartitionLog, coordinator: CoordinatorLog | None, moments: Moments
) -> "Fate":
    """The fate of an open transaction; too recent, if it is overdue and its broker runs for less than the grace.

    Also too recent if its coordinator was elected less than the grace before the last moment that is known, as after
    the start of its broker: while all brokers were down, no coordinator could end the transaction.
    """
    if fate.is_overdue and not moments.ran_for(log, GRACE_MS):
        why = f"{fate.why}; its broker was started less than {span(GRACE_MS)} ago, and may end it"
        return Fate(Kind.TOO_RECENT, why)
    if fate.is_overdue and coordinator is not None and moments.last_ms - _led_since(coordinator, moments) <= GRACE_MS:
        elected = f"its coordinator was elected less than {span(GRACE_MS)} before the last known moment"
        return Fate(Kind.TOO_RECENT, f"{fate.why}; {elected}, and may end it")
    return fate


def _led_since(log: CoordinatorLog, moments: Moments) -> float:
    """A moment by which the coordinator of a log was elected, in ms since the epoch; ``-inf`` if it is not known.

    A new leader notes its epoch in ``leader-epoch-checkpoint``, and then in its records.
    """
    noted_ms = moments.written_by(log.log, LEADER_EPOCH_CHECKPOINT)
    since_ms = float(log.led.since_ms) if log.led.epoch > FIRST_LEADER else -inf
    return since_ms if isinf(noted_ms) else max(since_ms, noted_ms)


def fate_of(
    partition: PartitionTransactions, opened: OpenTransaction, coordinators: Coordinators, moments: Moments
) -> Fate:
    """Decide whether an open transaction hangs."""
    appended_by = min(partition.appended_by(opened), moments.written_by(partition.log, opened.file))
    age_ms = min(moments.reach(partition), moments.last_ms) - appended_by
    owner = coordinators.owner(opened.producer_id)
    who = "no given log of __transaction_state names its producer" if owner is None else _state_of(owner[1])
    if opened.holes < partition.holes:
        return Fate(Kind.NOT_JUDGED, "a later hole in the log may have had its marker", OPEN_BEHIND_HOLE)
    if partition.damaged_end:
        return Fate(Kind.NOT_JUDGED, "the damaged end of the log may have had its marker", END_DAMAGED)
    if age_ms > moments.source.longest_ms + GRACE_MS:
        longest = f"no transaction may take more than {span(moments.source.longest_ms)} (transaction.max.timeout.ms)"
        why = f"open for at least {span(age_ms)}, and {longest}; {who}"
        return Fate(Kind.VIOLATION, why, is_overdue=True)
    if owner is None:
        recent_after = moments.common_recent_after(coordinators.logs)
        if opened.timestamp + SKEW_MS > recent_after:
            return Fate(Kind.TOO_RECENT, who)
        return Fate(Kind.NOT_JUDGED, who, OPEN_WITHOUT_LOG if not coordinators.logs else OPEN_OF_NOBODY)
    log, known = owner
    if log.damaged or log.unreadable:
        why = f"{log.log} is damaged and may not have the last state of {quoted(known.name)}"
        return Fate(Kind.NOT_JUDGED, why, STATE_DAMAGED)
    if will_end(Data(opened.producer_id, opened.epoch, *partition.place), known):
        return _ending(known, min(moments.reach(log), moments.last_ms), min(moments.reach(partition), moments.last_ms))
    if moments.covers(log, appended_by) and moments.covers(partition, known.last_ms):
        return Fate(Kind.VIOLATION, f"open at the end of the log, but {who}")
    older_log = opened.timestamp + SKEW_MS > moments.recent_after(log)
    older_partition = known.last_ms + SKEW_MS > moments.recent_after(partition)
    for each in (log, partition):
        if moments.source.is_incomplete(each.log, each.end):
            return Fate(Kind.NOT_JUDGED, f"{who}, but {each.log} {LACKS_END}", INCOMPLETE)
    old = moments.last_ms - opened.timestamp > moments.source.longest_ms + GRACE_MS
    copies = f"{who}, but this log and {log.log} may be of different moments"
    if (older_log or older_partition) and not old:
        return Fate(Kind.TOO_RECENT, copies)
    return Fate(Kind.NOT_JUDGED, copies, OTHER_MOMENT)


def _ending(known: TransactionalId, now_ms: float, partition_ms: float) -> Fate:
    """The fate of a transaction that its coordinator will end, by its timeout at the latest.

    Args:
        known: its transactional id.
        now_ms: the moment up to which the coordinator's log is complete, at most the last moment that is known.
        partition_ms: the same of the partition's log.
    """
    last = known.last
    assert last is not None, "the coordinator has it"
    if last.transaction_status is not TransactionState.ONGOING:
        late_ms = min(now_ms, partition_ms) - last.transaction_last_update_timestamp_ms
        if late_ms > GRACE_MS:
            why = f"{_state_of(known)} for {span(late_ms)}, and no marker has come"
            return Fate(Kind.VIOLATION, why, is_overdue=True)
        return Fate(Kind.TOLD, f"will end: {_state_of(known)}, and its marker is under way")
    due_ms = last.transaction_start_timestamp_ms + last.transaction_timeout_ms
    timeout = f"{in_words(due_ms)} (timeout {span(last.transaction_timeout_ms)})"
    if now_ms > due_ms + GRACE_MS:
        late = f"{_state_of(known)} and should have aborted it at {timeout}"
        return Fate(Kind.VIOLATION, f"{late}, {span(now_ms - due_ms)} ago", is_overdue=True)
    return Fate(Kind.TOLD, f"will end: {_state_of(known)} and aborts it at {timeout} at the latest")


def _state_of(known: TransactionalId) -> str:
    last = known.last
    if last is None:
        return f"the coordinator forgot {quoted(known.name)}"
    state = f"the coordinator has {quoted(known.name)} {last.transaction_status.name} with producer {last.producer_id} "
    return f"{state}epoch {last.producer_epoch}"


def _since(opened: OpenTransaction, now_ms: float) -> str:
    """The time since which a transaction is open, and whose clock gave it."""
    if opened.timestamp <= 0:
        return "since an unknown time"
    clock = "the broker's" if opened.stamped else "the client's"
    age = now_ms - opened.timestamp
    return f"since {in_words(opened.timestamp)} by {clock} clock" + (f", for {span(age)}" if 0 < age < inf else "")


def held_back(opened: Iterable[Finding], ends: Mapping[tuple[str, str, int], int]) -> Iterator[Finding]:
    """Add to open transactions the offsets that they keep from readers of committed data.

    Args:
        opened: the findings on all open transactions.
        ends: one past the last offset of each log, by broker, topic and partition.
    """
    opened = list(opened)
    first: dict[tuple[str, str, int], int] = {}
    for finding in opened:
        assert finding.offset is not None, "an open transaction has a first batch"
        place = finding.broker, finding.topic, finding.partition
        first[place] = min(finding.offset, first.get(place, finding.offset))
    for finding in opened:
        place = finding.broker, finding.topic, finding.partition
        begin, end = first[place], ends[place]
        held = f"after the transaction at offset {begin}"
        if finding.offset == begin:
            held = f"readers of committed data get none of the {end - begin} offsets from {begin} to {end - 1}"
        yield replace(finding, evidence=f"{finding.evidence}; {held}")


def asked_about(hang: Iterable[Hanging]) -> set[Data]:
    """The data whose coordinator's decision a finding has to name: all except those that will end."""
    return {each.data for each in hang if each.finding.kind != Kind.TOLD}


def answers_about(
    wanted: Collection[Data], coordinators: Coordinators, partitions: Iterable[PartitionTransactions] = ()
) -> Answers:
    """The decisions about some data, by the logs of ``__transaction_state`` and by the markers of partitions."""
    parts: list[Answers] = [decisions_about(log.decisions, wanted) for log in coordinators.logs]
    return added([*parts, owners_of(wanted, coordinators), *(marked_about(each, wanted) for each in partitions)])


def marked_about(partition: PartitionTransactions, wanted: Collection[Data]) -> Answers:
    """The markers of a partition that ended data of the same epoch as some other data, as :class:`Answer` has them."""
    asked: dict[tuple[int, int], list[Data]] = defaultdict(list)
    for data in wanted:
        asked[data.producer_id, data.epoch].append(data)
    found: dict[Data, Answer] = defaultdict(Answer)
    for marker in partition.markers:
        if marker.ends is None or marker.decision is None or marker.ends.epoch != marker.epoch - 1:
            continue
        place = Marked(*partition.place, marker.offset)
        is_commit = marker.decision is ControlType.COMMIT
        answer = Answer(committed=place) if is_commit else Answer(aborted=place)
        for data in asked.get((marker.producer_id, marker.ends.epoch), ()):
            found[data] += answer
    return found


def owners_of(wanted: Collection[Data], coordinators: Coordinators) -> Answers:
    """The last states of the transactional ids that own some data."""
    owners = {data: coordinators.owner(data.producer_id) for data in wanted}
    return {
        data: answer_of(owner[0], owner[1], data, _LACKS[why_incomplete(owner[0])])
        for data, owner in owners.items()
        if owner is not None
    }


def with_decisions(
    hang: Iterable[Hanging], ends: Mapping[tuple[str, str, int], int], answers: Answers
) -> Iterator[Finding]:
    """The findings on data that hang, with what they keep from readers, and with their coordinator's decisions.

    Args:
        hang: all of some logs.
        ends: see :func:`held_back`.
        answers: see :func:`answers_about`.
    """
    hang = list(hang)
    opened = [each for each in hang if each.replaced is None]
    held = held_back((each.finding for each in opened), ends)
    told = [each._replace(finding=finding) for each, finding in zip(opened, held, strict=True)]
    for each in (*told, *(each for each in hang if each.replaced is not None)):
        answer = answers.get(each.data, Answer())
        said = said_of(each.data, answer)
        finding, more = each.finding, ""
        if answer.owner is not None and said is not None:
            decision = "" if said.decided is None else said.decided.name
            name = unquoted(answer.owner.transactional_id)
            finding = replace(finding, transactional_id=name, decision=decision)
        if said is None:
            more = "" if each.replaced is None else "; its coordinator's decision is in no given log"
        elif each.replaced is not None and each.replaced.ended_at >= 0:
            more = f"; {said.words}{said.effect_of(each.replaced.decision)}"
        elif finding.kind != Kind.TOLD:
            follows = finding.is_violation or said.remedy.startswith(NOT_BY_HAND)
            more = f"; {said.words}" + (f": {said.remedy}" if follows else "")
        yield replace(finding, evidence=f"{finding.evidence}{more}")
