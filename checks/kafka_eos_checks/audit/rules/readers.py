"""The rules over answers to applications about their transactions, and over records given to readers.

``committed record missing``
    A ``Send`` of a transaction whose ``CommitTransaction`` was answered ``ok``, although an ABORT marker hides its
    value, or the value is in no log and the ``Send`` was not acknowledged. Each transaction is reported once. (An
    acknowledged ``Send`` whose value is in no log is ``acknowledged but lost``.) *Unknown*: a transaction that is open
    at the log's end; a marker after a hole; a log with holes or damage, or that does not start at offset 0.

``poll skip``
    A reader passed over a record that the log has. Records of aborted transactions count only for a reader of
    uncommitted data. A ``Poll`` has a record's offset, an ``EndOfPartition`` the offset at which the reader waits; the
    reader passed over what lies between two of these. A ``Seek`` moves the reader. Across ``Assign``, ``Revoke`` and
    ``Crash`` of the reader nothing is judged. Where no log of the partition is given, the records that other readers
    were given stand for it. *Unknown*: no log is given, and no reader was given what this one passed over.

``non-monotonic poll``
    A reader was given a record at or below the last one that it was given of the partition, with no ``Seek``,
    ``Assign``, ``Revoke`` or ``Crash`` of its own in between. After an ``AbortTransaction`` the reader may go back.

``inconsistent offsets``
    Two events (a ``Poll``, a ``Send`` that was answered ``ok``) have different values for one offset, or a ``Poll`` has
    a value that no replica has there, or an offset at which every replica has a marker, or ended before. Each offset is
    reported once. (A ``Send`` that contradicts the logs is ``acknowledged but lost``.)

``aborted record delivered``
    A ``Poll`` of a reader of committed data gave a record of a transaction that an ABORT marker ended, that is open at
    the log's end, or whose ``AbortTransaction`` was answered ``ok``; or a record whose ``Send`` ``fail``ed. Each
    transaction is reported once. *Unknown*: a record that is not in the log; a marker after a hole.

``precommitted read``
    A ``Poll`` of a reader of committed data gave a record before ``CommitTransaction`` was invoked for the record's
    transaction, whether that is the reader's own or not. (A record whose transaction did not commit is an ``aborted
    record delivered``.) *Unknown*: events without an order.

``last stable offset went back``
    A reader of committed data was at the end of a partition (``EndOfPartition``) at a lower offset than before.
    Not judged across a ``LeaderChange`` of the partition or a ``Crash``: a new leader may know a lower high watermark.

These are the readable rules. :mod:`kafka_eos_checks.audit.kernels.histories.joining` proves for most events that these
rules would find nothing. The rules judge the rest.

KIP:   KIP-98
Kafka: UnifiedLog.lastStableOffset, CompletedFetch.nextFetchedRecord
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.quoting import named, quoted
from kafka_eos_checks.audit.segments.contents import (
    Contents,
    Figures,
    Place,
    Replicas,
    count,
    encoded,
    longest,
    place_of,
)
from kafka_eos_checks.audit.segments.splits import PartitionLog

COMMITTED_MISSING, ABORTED_DELIVERED = "committed record missing", "aborted record delivered"
POLL_SKIP, NON_MONOTONIC = "poll skip", "non-monotonic poll"
INCONSISTENT, PRECOMMITTED = "inconsistent offsets", "precommitted read"
STABLE_WENT_BACK = "last stable offset went back"
READER_RULES = (
    COMMITTED_MISSING,
    ABORTED_DELIVERED,
    PRECOMMITTED,
    POLL_SKIP,
    NON_MONOTONIC,
    INCONSISTENT,
    STABLE_WENT_BACK,
)
UNKNOWN = "unknown"

_Ended = tuple[str, int]  # process, number of its transaction


def undone(run: Iterable[Event], replicas: Replicas, figures: Figures, *, covered: bool = True) -> Iterator[Finding]:
    """Find transactions with a record that is not committed, although the commit was acknowledged; each once.

    A send that names no partition was to the one that its acknowledgement names.
    """
    committed: set[_Ended] = set()
    places: dict[tuple[_Ended, str | None, str], set[Place | None]] = defaultdict(set)
    answered: dict[str, set[tuple[_Ended, str]]] = defaultdict(set)
    sent: dict[_Ended, list[Event]] = defaultdict(list)
    for event in run:
        ended = _transaction(event)
        if ended is None:
            continue
        if (event.action, event.phase) == ("CommitTransaction", "ok"):
            committed.add(ended)
        elif event.action == "Send" and event.phase == "invoke":
            sent[ended].append(event)
        elif event.action == "Send":
            answered[event.phase].add((ended, _value(event)))
            places[ended, event.topic, _value(event)].add(place_of(event) if event.phase == "ok" else None)
    for ended in sorted(committed):
        for event in sent[ended]:
            name, told = (ended, _value(event)), places[ended, event.topic, _value(event)] - {None}
            place = next(iter(told)) if event.partition is None and len(told) == 1 else place_of(event)
            if name in answered["fail"] - answered["ok"]:
                continue
            count(figures, "checked")
            if not _tells(event):
                count(figures, UNKNOWN)
                continue
            state, log, offset = _fate(replicas.get(place, ()) if place is not None else (), _value(event))
            absent = state and log is None
            if state == UNKNOWN or (absent and (name in answered["ok"] or not covered)):
                count(figures, UNKNOWN)
            elif state:
                assert place is not None, "its logs were looked at"
                yield _finding(
                    COMMITTED_MISSING,
                    event,
                    place,
                    log,
                    offset,
                    f"{ended[0]} was told that its transaction {ended[1]} is committed; "
                    f"{quoted(_value(event))} {state}",
                )
                break


def _transaction(event: Event) -> _Ended | None:
    number = event.detail.get("transaction")
    return (event.process, number) if isinstance(number, int) else None


def _value(event: Event) -> str:
    return str(event.detail.get("value"))


def _tells(event: Event) -> bool:
    """Whether an event tells of a value by which records can be told apart; null is none."""
    return _told(event) is not None


def _told(event: Event) -> str | None:
    value = event.detail.get("value")
    return None if value is None else str(value)


def _fate(own: Sequence[tuple[PartitionLog, Contents]], value: str) -> tuple[str, PartitionLog | None, int | None]:
    """Why no replica has a value as committed ("" if one has it, or :data:`UNKNOWN`), and the place of the value."""
    found: tuple[str, PartitionLog | None, int | None] | None = None
    uncertain = False
    for log, contents in own:
        for offset in contents.offsets.get(encoded(value), ()):
            if offset not in contents.hidden:
                return "", log, offset
            if offset not in contents.aborted:
                uncertain = True
                continue
            found = f"is aborted (marker at offset {contents.aborted[offset]})", log, offset
    if found is not None:
        return found
    whole = bool(own) and not uncertain and all(contents.whole for _, contents in own)
    return ("is in no log" if whole else UNKNOWN), None, None


def _readings(run: Iterable[Event]) -> Iterator[tuple[Event, Place, int]]:
    """The positions of readers of committed data: the event, its partition and its offset."""
    return (each for each in _positions(run) if each[0].isolation == "read_committed")


def _positions(run: Iterable[Event]) -> Iterator[tuple[Event, Place, int]]:
    """The positions of all readers: the event, its partition and its offset."""
    for event in run:
        place = place_of(event)
        tells = event.action in {"Poll", "EndOfPartition"} and event.phase == "ok"
        if tells and place is not None and event.offset is not None:
            yield event, place, event.offset


@dataclass(slots=True)
class _Reader:
    """The positions of a reader.

    Attributes:
        next: by partition, the offset after the last record that the reader was given, or the offset at which it waits.
        aborted: partitions that the reader has not polled since it aborted a transaction.
    """

    next: dict[Place, int] = field(default_factory=dict)
    aborted: set[Place] = field(default_factory=set)

    def follow(self, event: Event) -> None:
        """Follow an event that moves a reader and is no poll."""
        place = place_of(event)
        if event.action == "Seek" and event.phase == "ok" and place is not None and event.offset is not None:
            self.next[place] = event.offset
        elif event.action in {"Assign", "Revoke", "Crash"}:
            self.next.clear()
        elif event.action == "AbortTransaction":
            self.aborted.update(self.next)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a reader from one offset of a partition to another; after an abort it may go back."""

    event: Event
    place: Place
    start: int
    offset: int
    may_go_back: bool


def _steps(run: Iterable[Event]) -> Iterator[_Step]:
    """The positions of readers, each with the one before."""
    readers: dict[str, _Reader] = defaultdict(_Reader)
    for told in run:
        reader = readers[told.process]
        reader.follow(told)
        for event, place, offset in _positions([told]):
            start = reader.next.get(place, offset)
            yield _Step(event, place, start, offset, place in reader.aborted)
            reader.aborted.discard(place)
            reader.next[place] = offset + (event.action == "Poll")


def passed_over(run: Iterable[Event]) -> dict[Place, list[range]]:
    """The offsets that readers passed over, whatever was there."""
    passed: dict[Place, list[range]] = defaultdict(list)
    for step in _steps(run):
        if step.start < step.offset:
            passed[step.place].append(range(step.start, step.offset))
    return passed


def given(run: Iterable[Event]) -> dict[Place, dict[int, str]]:
    """The values that readers were given, by partition and offset, without readers of uncommitted data."""
    found: dict[Place, dict[int, str]] = defaultdict(dict)
    for event, place, offset in _positions(run):
        if event.action == "Poll" and event.isolation != "read_uncommitted":
            found[place][offset] = _value(event)
    return found


def polled(run: Sequence[Event], replicas: Replicas, skips: Figures, backward: Figures) -> Iterator[Finding]:
    """Find records that a reader passed over, and records that it was given again."""
    others = given(run)
    visible: dict[tuple[Place, bool], tuple[list[int], Mapping[int, bytes | str | None]]] = {}
    for step in _steps(run):
        event, place = step.event, step.place
        log, contents = longest(replicas, place)
        count(skips, "checked")
        count(backward, "checked")
        if step.offset < step.start and event.action == "Poll" and not step.may_go_back:
            evidence = f"{named(event)}: it had been given offset {step.start - 1} before"
            yield _finding(NON_MONOTONIC, event, place, log, step.offset, evidence)
        if step.offset <= step.start:
            continue
        key = place, log is not None and event.isolation == "read_uncommitted"
        if key not in visible:
            values: Mapping[int, bytes | str | None] = others[place] if log is None else contents.values
            visible[key] = sorted(offset for offset in values if key[1] or offset not in contents.hidden), values
        own, values = visible[key]
        missing = own[bisect_left(own, step.start) : bisect_left(own, step.offset)]
        if missing:
            value = values[missing[0]]
            text = value if isinstance(value, str) else (value or b"").decode(errors="replace")
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            evidence = (
                f"{event.process} went from offset {step.start} to {step.offset} and was not given {quoted(text)}{more}"
            )
            yield _finding(POLL_SKIP, event, place, log, missing[0], evidence)
        elif log is None:
            count(skips, UNKNOWN)


def inconsistent(
    run: Iterable[Event], replicas: Replicas, figures: Figures, *, covered: bool = True
) -> Iterator[Finding]:
    """Find offsets for which events or logs have different values."""
    known: dict[tuple[Place, int], tuple[str | None, str]] = {}
    found: set[tuple[Place, int]] = set()
    for event in run:
        place = place_of(event)
        if event.action not in {"Poll", "Send"} or event.phase != "ok" or place is None or event.offset is None:
            continue
        if "value" not in event.detail or (place, event.offset) in found:
            continue
        count(figures, "checked")
        at, own_value = (place, event.offset), _told(event)
        value, before = known.setdefault(at, (own_value, event.process))
        own = replicas.get(place, ())
        stored = [contents.values[event.offset] for _, contents in own if event.offset in contents.values]
        why = ""
        if value != own_value:
            why = f"{before} was told of {_or_null(value)}, {event.process} of {_or_null(own_value)}"
        elif event.action == "Poll" and stored and (None if value is None else encoded(value)) not in stored:
            there = None if stored[0] is None else stored[0].decode(errors="replace")
            why = f"{event.process} was given {_or_null(value)}, the log has {_or_null(there)}"
        elif event.action == "Poll" and own and not stored:
            states = [look(contents, event.offset, str(value), covered) for _, contents in own]
            why = "" if "unknown" in states else f"{event.process} was given {_or_null(value)}; there is {states[0]}"
        if why:
            found.add(at)
            yield _finding(INCONSISTENT, event, place, longest(replicas, place)[0], event.offset, why)


def look(contents: Contents, offset: int | None, value: str, covered: bool) -> str:
    """The record at an offset: ``there``, ``unknown``, or, in words, the record that is there instead.

    The offset is None if the leader answered a retry as a duplicate without an offset.
    """
    if offset is None:
        return "there" if encoded(value) in contents.offsets else "unknown"
    if offset in contents.values:
        stored = contents.values[offset]
        found = None if stored is None else stored.decode(errors="replace")
        return "there" if found == value else repr(found)
    if contents.whole and contents.start is not None and offset < contents.end:
        return "a marker"
    if contents.start is not None and offset >= contents.end and not contents.damaged_end and covered:
        return f"nothing: the log ends before offset {contents.end}"
    return "unknown"


def _or_null(value: str | None) -> str:
    return "null" if value is None else quoted(value)


def precommitted(run: Sequence[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Find records that a reader of committed data was given before their application asked for the commit."""
    senders: dict[tuple[str | None, str], set[_Ended | None]] = defaultdict(set)
    asked: set[_Ended | None] = set()
    aborted = told_aborted(run)
    told: set[tuple[str, _Ended | None]] = set()
    for event in run:
        if (event.action, event.phase) == ("Send", "invoke") and _tells(event):
            senders[event.topic, _value(event)].add(_transaction(event))
        elif event.action == "CommitTransaction":
            asked.add(_transaction(event))
        for reading, place, offset in _readings([event]):
            own = senders.get((event.topic, _value(event)), ()) if _tells(event) else ()
            if reading.action != "Poll" or not own:
                continue
            count(figures, "checked")
            if None in own:  # outside of transactions nobody has to ask
                continue
            if event.order is None:
                count(figures, UNKNOWN)
                continue
            log, contents = longest(replicas, place)
            if own & asked or own <= aborted or offset in contents.aborted or offset in contents.open:
                continue
            ended = min(filter(None, own - aborted))
            if (event.process, ended) not in told:
                told.add((event.process, ended))
                evidence = f"event {event.order}: {event.process} was given {quoted(_value(event))}, and "
                evidence += f"{ended[0]} had not asked to commit its transaction {ended[1]} yet"
                yield _finding(PRECOMMITTED, event, place, log, offset, evidence)


def told_aborted(run: Iterable[Event]) -> set[_Ended | None]:
    """Transactions whose abort was acknowledged to the application."""
    told = (_transaction(event) for event in run if (event.action, event.phase) == ("AbortTransaction", "ok"))
    return {ended for ended in told if ended is not None}


def delivered(run: Sequence[Event], replicas: Replicas, figures: Figures, *, covered: bool = True) -> Iterator[Finding]:
    """Find records of aborted and open transactions that a reader of committed data was given."""
    aborted = told_aborted(run)
    senders: dict[tuple[str | None, str | None], set[_Ended | None]] = defaultdict(set)
    failed: Counter[tuple[str | None, str | None]] = Counter()
    sent: Counter[tuple[str | None, str | None]] = Counter()
    for event in filter(_tells, run):
        if (event.action, event.phase) == ("Send", "invoke"):
            senders[event.topic, _value(event)].add(_transaction(event))
            sent[event.topic, _value(event)] += 1
        elif (event.action, event.phase) == ("Send", "fail"):
            failed[event.topic, _value(event)] += 1
    told: set[tuple[str, Place, object]] = set()
    for event, place, offset in _readings(run):
        if event.action != "Poll":
            continue
        count(figures, "checked")
        log, contents = longest(replicas, place)
        value = (event.topic, _told(event))
        own, why = senders.get(value, set()), ""
        cause: object = None
        if offset in contents.aborted:
            cause, why = contents.aborted[offset], f"is aborted (marker at offset {contents.aborted[offset]})"
        elif offset in contents.open and covered:
            cause, why = min(contents.open), "is open at the end of the log"
        elif own and own <= aborted:
            cause, why = min(filter(None, own)), "was aborted, as its application was told"
        elif 0 < sent[value] <= failed[value]:
            cause, why = offset, "does not have it: the application was told that the send failed"
        elif offset not in contents.values or offset in contents.open:
            count(figures, UNKNOWN)
        if why and (event.process, place, cause) not in told:
            told.add((event.process, place, cause))
            evidence = f"{event.process} was given {quoted(_value(event))}, whose transaction {why}"
            yield _finding(ABORTED_DELIVERED, event, place, log, offset, evidence)


def went_back(run: Iterable[Event], figures: Figures) -> Iterator[Finding]:
    """Find ends of a partition, for a reader of committed data, that are below an earlier one."""
    ends: dict[tuple[str, Place], int] = {}
    for told in run:
        if told.action in {"LeaderChange", "Crash"}:
            changed = place_of(told)
            ends = {key: end for key, end in ends.items() if changed not in {None, key[1]}}
        for event, place, offset in _readings([told]):
            if event.action == "Poll":
                continue
            count(figures, "checked")
            before = ends.get((event.process, place), 0)
            ends[event.process, place] = offset
            if offset < before:
                evidence = f"{named(event)}: the end was at offset {before} before"
                yield _finding(STABLE_WENT_BACK, event, place, None, offset, evidence)


def _finding(
    rule: str, event: Event, place: Place, log: PartitionLog | None, offset: int | None, evidence: str
) -> Finding:
    """A violation at an offset, with the segment that has it. No broker: the other replicas have the record, too."""
    segments = [] if log is None or offset is None else [n for n in log.segments if int(Path(n).stem) <= offset]
    return Finding(
        rule=rule,
        topic=place[0],
        partition=place[1],
        file=max(segments, default=""),
        offset=offset,
        run=event.run,
        evidence=evidence,
    )
