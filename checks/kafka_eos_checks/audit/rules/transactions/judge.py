"""All rules over transactions, and those that look at one partition at a time."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.moments import ONE_MOMENT, SKEW_MS, Ended, Moments, Source
from kafka_eos_checks.audit.quoting import quoted
from kafka_eos_checks.audit.rules.coordinator import CoordinatorLog
from kafka_eos_checks.audit.rules.log import Reasons
from kafka_eos_checks.audit.rules.transactions.coordinators import Coordinators, with_owner
from kafka_eos_checks.audit.rules.transactions.judged import Judged, add_figure
from kafka_eos_checks.audit.rules.transactions.matching import Matching, match
from kafka_eos_checks.audit.rules.transactions.missing import known_since, lost_markers
from kafka_eos_checks.audit.rules.transactions.names import (
    COMMITTED_BEHIND_HOLE,
    FENCED,
    HANGING,
    NO_BIT,
    OLD_COORDINATOR,
    RECENT,
    UNKNOWN,
)
from kafka_eos_checks.audit.rules.transactions.open import answers_about, asked_about, hanging, with_decisions
from kafka_eos_checks.audit.rules.transactions.partitions import PartitionTransactions
from kafka_eos_checks.audit.rules.transactions.torn import contradictions, torn_by_epoch
from kafka_eos_checks.audit.segments.contents import Figures, Place


def fenced(partition: PartitionTransactions, coordinators: Coordinators, moments: Moments, judged: Judged) -> None:
    """Find data that were committed although a later epoch was in use already: InitProducerId gave it, or it ended."""
    recent_after = moments.common_recent_after(coordinators.logs)
    figures = judged.figures[FENCED]
    for marker in partition.markers:
        if marker.ends is None or marker.decision is not ControlType.COMMIT:
            continue
        add_figure(figures, "committed")
        data, owner = marker.ends, coordinators.owner(marker.producer_id)
        later = [epoch for pid, epoch in owner[1].grants if pid == marker.producer_id] if owner is not None else []
        given = next((epoch for epoch in later if data.epoch < epoch <= marker.epoch), None)
        if marker.epoch > data.epoch + 1:
            why = f"which no transaction of epoch {data.epoch} has"
        elif given is not None:
            why = f"after InitProducerId had given {given}"
        elif owner is None:
            is_recent = marker.stamped_ms + SKEW_MS > recent_after
            add_figure(figures, RECENT if is_recent else UNKNOWN)
            if not is_recent:
                judged.reasons[FENCED].count(coordinators.unknown_owner, partition.subject(marker))
            continue
        else:
            continue
        if data.holes < marker.holes:  # it may be of another transaction, whose data are in the hole
            add_figure(figures, UNKNOWN)
            judged.reasons[FENCED].count(COMMITTED_BEHIND_HOLE, partition.subject(marker))
            continue
        evidence = f"committed at offset {marker.offset} with epoch {marker.epoch}, {why}"
        judged.findings.append(partition.finding(FENCED, data, evidence))


def old_coordinators(partition: PartitionTransactions) -> Iterator[Finding]:
    """Find markers of coordinators that had been replaced."""
    highest: dict[int, int] = {}
    for marker in partition.markers:
        epoch, before = marker.coordinator_epoch, highest.get(marker.producer_id, -1)
        if epoch is None:
            continue
        highest[marker.producer_id] = max(before, epoch)
        if epoch < before:
            evidence = f"coordinator epoch {epoch} after coordinator epoch {before}"
            yield partition.finding(OLD_COORDINATOR, marker, evidence)


def without_transaction(
    partition: PartitionTransactions, coordinators: Coordinators, source: Source
) -> Iterator[Finding]:
    """The data without the transactional bit of producer ids that transactional ids of the cluster have or had."""
    for plain in partition.plain.values():
        owner = coordinators.owner(plain.producer_id)
        if owner is not None and source.are_of_one_cluster(partition.log, owner[0].log):
            more = plain.batches - 1
            evidence = f"no transactional bit, and the producer id is that of transactional id {quoted(owner[1].name)}"
            if more:
                evidence += f"; so {'is 1 more batch' if more == 1 else f'are {more} more batches'} here"
            yield with_owner(partition.finding(NO_BIT, plain, evidence), coordinators)


def judge(partitions: Iterable[PartitionTransactions], coordinators: Coordinators, moments: Moments) -> Judged:
    """Judge all transactions of some producer ids.

    Args:
        partitions: the transactions of these producer ids in each log.
        coordinators: the coordinators' logs of these producer ids.
        moments: the moments of all logs.
    """
    partitions = list(partitions)
    judged, matching = Judged(), Matching()
    for partition in partitions:
        match(partition, coordinators, moments, matching)
        hanging(partition, coordinators, moments, judged)
        fenced(partition, coordinators, moments, judged)
        judged.findings += old_coordinators(partition)
        ended = sum(marker.ends is not None for marker in partition.markers)
        add_figure(judged.figures[HANGING], "transactions", ended)
    judged.findings += [*contradictions(matching), *torn_by_epoch(matching)]
    judged.findings = [with_owner(each, coordinators) for each in judged.findings]
    markers = sum(len(partition.markers) for partition in partitions)
    judged.count_markers(markers, matching.reasons, len(matching.recent))
    return judged


@dataclass(slots=True)
class TransactionAudit:
    """The result of the rules over transactions.

    Attributes:
        findings: all findings, each with its kind.
        figures: for each rule, the numbers of what it looked at, could not judge, and found too recent.
        moments: the moments of the logs.
        reasons: for each rule and reason, the subjects that could not be judged.
    """

    findings: Collection[Finding]
    figures: dict[str, Figures]
    moments: Moments
    reasons: dict[str, Reasons]


def audit_transactions(
    replicas: Iterable[PartitionTransactions],
    coordinator_logs: Iterable[CoordinatorLog],
    source: Source = ONE_MOMENT,
    *,
    coordinators_given: bool = False,
) -> TransactionAudit:
    """Judge the transactions of partitions by the coordinators' logs, only by the readable rules.

    Args:
        replicas: the replicas of the partitions of one cluster.
        coordinator_logs: the replicas of ``__transaction_state`` of the same cluster that have records.
        source: what is known of the moments of the logs.
        coordinators_given: whether there are logs of ``__transaction_state`` without records.
    """
    replicas, coordinator_logs = list(replicas), list(coordinator_logs)
    moments = Moments(source, [*replicas, *coordinator_logs])
    partitions = longest(replicas)
    coordinators = Coordinators(longest(coordinator_logs), given=coordinators_given)
    judged = judge(partitions, coordinators, moments)
    judged.add(lost_markers(partitions, coordinators, moments, known_since(replicas, moments)))
    writers = {pid for partition in partitions for pid in partition.producer_ids}
    judged.count_producer_ids(sum(coordinators.owner(pid) is not None for pid in writers))
    for partition in partitions:
        judged.findings += without_transaction(partition, coordinators, source)
    ends = {(each.log.broker, each.log.topic, each.log.partition): each.end for each in partitions}
    answers = answers_about(asked_about(judged.open), coordinators, partitions)
    findings = [*judged.findings, *with_decisions(judged.open, ends, answers)]
    return TransactionAudit(findings, judged.figures, moments, judged.reasons)


_Log = TypeVar("_Log", bound=Ended)


def longest(logs: Iterable[_Log]) -> list[_Log]:
    """The longest replica of each partition."""
    best: dict[Place, _Log] = {}
    for log in logs:
        place = log.log.topic, log.log.partition
        if place not in best or log.end > best[place].end:
            best[place] = log
    return list(best.values())
