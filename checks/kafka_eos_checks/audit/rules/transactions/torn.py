"""Torn transactions and markers without transaction: what the matched markers of all partitions say together."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.moments import SKEW_MS
from kafka_eos_checks.audit.rules.transactions.matching import Matching, Named, Placed, Unmatched
from kafka_eos_checks.audit.rules.transactions.names import NO_TRANSACTION, SHOWN_NUMBERS, TORN
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.kit.verdict import first_of


def contradictions(matching: Matching) -> Iterator[Finding]:
    """Find torn transactions (each once), markers without a transaction, and markers that are too recent to judge."""
    torn: dict[Named, list[Unmatched]] = {}
    for unmatched in matching.unmatched:
        partition, marker = unmatched.partition, unmatched.marker
        if marker.decision is None:
            continue
        other = ControlType.COMMIT if marker.decision is ControlType.ABORT else ControlType.ABORT
        names = [Named.of(transaction) for transaction in unmatched.meant]
        if (known := next((name for name in names if name in torn), None)) is not None:
            torn[known] += [unmatched] if unmatched.is_like(torn[known][0]) else []
            continue
        name = next((name for name in names if other in matching.seen[name]), None)
        if name is None:
            yield _without_transaction(unmatched)
            continue
        torn[name] = [unmatched]
    for name, unlike in torn.items():
        own = ((each.partition, each.marker) for each in unlike)
        found = _torn([*own, *chain(*(kept.values() for kept in matching.seen[name].values()))], str(name))
        decided = (each.decision.name for each in unlike[0].meant if Named.of(each) == name and not each.replaced)
        found = replace(found, decision=next(decided, ""))
        yield replace(found, evidence=f"{found.evidence}; or {said}") if (said := unlike[0].otherwise) else found
    for partition, marker in matching.recent:
        decision = "a marker" if marker.decision is None else marker.decision.name
        evidence = f"{decision} of a later moment than the copy of its log of __transaction_state"
        yield partition.finding(NO_TRANSACTION, marker, evidence, Kind.TOO_RECENT)
    for name, seen in matching.seen.items():
        if len(seen) > 1 and name not in torn:
            aborted, committed = (list(seen[each].values()) for each in (ControlType.ABORT, ControlType.COMMIT))
            yield _torn([*sorted(aborted, key=_without_data), *committed], str(name))


def _without_transaction(unmatched: Unmatched) -> Finding:
    partition, marker = unmatched.partition, unmatched.marker
    assert marker.decision is not None, "only a marker with a decision is looked for"
    which = f"PREPARE_{marker.decision.name} at epoch {marker.epoch} with this partition"
    lacks = "by then the log has no more" if unmatched.has_alike else "the log has no"
    evidence = f"{marker.decision.name}, but {lacks} {which}"
    if marker.decision is ControlType.ABORT and marker.ends is not None and not unmatched.is_decided:
        by_hand = f"{evidence}: a transaction that was open since offset {marker.ends.offset} was aborted by hand"
        return partition.finding(NO_TRANSACTION, marker, by_hand, Kind.TOLD)
    if unmatched.later is not None:
        evidence = f"{marker.decision.name} out of turn: it is wrong, or {unmatched.otherwise}"
    return partition.finding(NO_TRANSACTION, marker, evidence)


def torn_by_epoch(matching: Matching) -> Iterator[Finding]:
    """Find torn transactions among the markers that could not be matched, by epoch only.

    A COMMIT of the epoch after its data's is of transaction version 2, where the epoch of the data names the
    transaction. An ABORT of the data's own epoch that comes after it is not of the coordinator, which uses the next
    epoch by then: somebody aborted by hand what the coordinator has committed. So is any ABORT of the data's own epoch
    if the transaction before it was of version 2, too: a client that uses version 2 does not go back.
    """
    by_epoch: dict[tuple[int, int], dict[ControlType, list[Placed]]] = defaultdict(dict)
    by_hand: list[Placed] = []
    for partition, marker in (*matching.unknown, *matching.recent):
        if marker.ends is None or marker.decision is None:
            continue
        if marker.ends.epoch == marker.epoch - 1:
            own = by_epoch[marker.producer_id, marker.ends.epoch]
            own.setdefault(marker.decision, []).append((partition, marker))
        elif marker.ends.epoch == marker.epoch and marker.decision is ControlType.ABORT:
            by_hand.append((partition, marker))
    for decisions in by_epoch.values():
        if len(decisions) > 1:
            markers = [*decisions[ControlType.ABORT], *decisions[ControlType.COMMIT]]
            yield _torn(markers, "the transaction of this epoch")
    for partition, marker in by_hand:
        committed = by_epoch.get((marker.producer_id, marker.epoch), {}).get(ControlType.COMMIT, [])
        is_later = any(commit.stamped_ms + SKEW_MS < marker.stamped_ms for _, commit in committed)
        if is_later or (committed and (marker.producer_id, marker.epoch - 1) in by_epoch):
            found = _torn([(partition, marker), *committed], f"the transaction of epoch {marker.epoch}")
            yield replace(found, evidence=f"{found.evidence}; this ABORT is by hand")


def _without_data(placed: Placed) -> bool:
    return placed[1].ends is None


def _torn(markers: Sequence[Placed], which: str) -> Finding:
    """The first of some markers, which others contradict.

    The evidence names the first others of each decision, one of a partition, those in other partitions and those that
    end data first. So it tells which decision is the odd one.
    """
    partition, marker = markers[0]
    by_decision: dict[ControlType, dict[Place, Placed]] = {each: {} for each in ControlType}
    for placed in sorted(markers[1:], key=lambda each: (each[0].place == partition.place, _without_data(each))):
        assert placed[1].decision is not None, "only a marker with a decision is seen"
        by_decision[placed[1].decision].setdefault(placed[0].place, placed)
    assert marker.decision is not None, "only a marker with a decision contradicts another"
    alike = by_decision.pop(marker.decision)
    alike.pop(partition.place, None)
    [(other, unlike)] = by_decision.items()
    here = f"{marker.decision.name} here" + (f" and at {_places(alike)}" if alike else "")
    return partition.finding(TORN, marker, f"{which}: {here}, {other.name} at {_places(unlike)}")


def _places(markers: Mapping[Place, Placed]) -> str:
    names = [f"{topic}-{number} offset {marker.offset}" for (topic, number), (_, marker) in markers.items()]
    return first_of(names, SHOWN_NUMBERS)
