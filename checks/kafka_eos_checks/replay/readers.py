"""The rules over what applications were told of their transactions, and what readers of committed data were given.

``committed record missing``
    - A ``Send`` of a transaction whose ``CommitTransaction`` was answered ``ok``: an ABORT marker hid its value, or it
      was not acknowledged either and is in no log; each transaction once. An acknowledged one that is in no log is
      ``acknowledged but lost``. *Unknown*: a transaction that is open at the log's end; a marker beyond a hole; a log
      with holes or damage, or that does not begin at offset 0.
    - A record that a reader of committed data passed over, although the log has it, and not in an aborted transaction.
      A ``Poll`` has a record's offset, an ``EndOfPartition`` the offset at which the reader waits; what lies between
      two of these was passed over. Readers of a group are not judged, for they give partitions away, and none across
      its ``Crash``.

``aborted record delivered``
    A ``Poll`` of a reader of committed data gave a record of a transaction that an ABORT marker ended, that is open at
    the log's end, or whose ``AbortTransaction`` was answered ``ok``; each transaction once. *Unknown*: a record that is
    not in the log; a marker beyond a hole.

``last stable offset went back``
    A reader of committed data was at the end of a partition (``EndOfPartition``) at a lower offset than before.
    Not judged across a ``LeaderChange`` of the partition or a ``Crash``: a new leader may know a lower high watermark.

Plain Python, in process; for Spark on its driver.

KIP:   KIP-98
Kafka: UnifiedLog.lastStableOffset, CompletedFetch.nextFetchedRecord
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kafka_eos.history import Event
from kafka_eos_checks.replay.contents import Contents, Figures, Place, Replicas, count, place_of
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.splits import PartitionLog

COMMITTED_MISSING, ABORTED_DELIVERED = "committed record missing", "aborted record delivered"
STABLE_WENT_BACK = "last stable offset went back"
READER_RULES = (COMMITTED_MISSING, ABORTED_DELIVERED, STABLE_WENT_BACK)
UNKNOWN = "unknown"

_Ended = tuple[str, int]  # process, number of its transaction


def undone(run: Iterable[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Transactions whose application was told that they are committed, and of which a record is not; each once."""
    committed: set[_Ended] = set()
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
    for ended in sorted(committed):
        for event in sent[ended]:
            place, name = place_of(event), (ended, _value(event))
            if name in answered["fail"] - answered["ok"]:
                continue
            count(figures, "checked")
            state, log, offset = _fate(replicas.get(place, ()) if place is not None else (), _value(event))
            if state == UNKNOWN or (state and log is None and name in answered["ok"]):
                count(figures, UNKNOWN)
            elif state:
                assert place is not None, "its logs were looked at"
                yield _finding(
                    COMMITTED_MISSING,
                    event,
                    place,
                    log,
                    offset,
                    f"{ended[0]} was told that its transaction {ended[1]} is committed; {_value(event)!r} {state}",
                )
                break


def _transaction(event: Event) -> _Ended | None:
    number = event.detail.get("transaction")
    return (event.process, number) if isinstance(number, int) else None


def _value(event: Event) -> str:
    return str(event.detail.get("value"))


def _fate(own: Sequence[tuple[PartitionLog, Contents]], value: str) -> tuple[str, PartitionLog | None, int | None]:
    """Why a value is in no replica as a committed one, and where it is; "" if it is, or :data:`UNKNOWN`."""
    found: tuple[str, PartitionLog | None, int | None] | None = None
    uncertain = False
    for log, contents in own:
        for offset in contents.offsets.get(value.encode(), ()):
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


def _longest(replicas: Replicas, place: Place) -> tuple[PartitionLog | None, Contents]:
    """The replica of a partition that goes furthest; nothing if none is given."""
    own: Sequence[tuple[PartitionLog | None, Contents]] = replicas.get(place, ())
    return max(own, key=lambda replica: replica[1].end, default=(None, Contents()))


def _readings(run: Iterable[Event]) -> Iterator[tuple[Event, Place, int]]:
    """What readers of committed data tell of their positions: the event, its partition and its offset."""
    for event in run:
        place = place_of(event)
        tells = event.action in {"Poll", "EndOfPartition"} and event.phase == "ok"
        if tells and event.isolation == "read_committed" and place is not None and event.offset is not None:
            yield event, place, event.offset


def _between_crashes(run: Sequence[Event]) -> Iterator[tuple[int, Event]]:
    """Events with the number of crashes of their process before them."""
    crashes: dict[str, int] = defaultdict(int)
    for event in run:
        crashes[event.process] += event.action == "Crash"
        yield crashes[event.process], event


def passed_over(run: Sequence[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Records that a reader of committed data passed over."""
    positions: dict[tuple[str, int, Place], int] = {}
    visible: dict[Place, list[int]] = {}
    for life, told in _between_crashes(run):
        for event, place, offset in _readings([told]):
            log, contents = _longest(replicas, place)
            if event.group is not None or log is None:
                continue
            if place not in visible:
                visible[place] = sorted(offset for offset in contents.values if offset not in contents.hidden)
            count(figures, "checked")
            start = positions.get((event.process, life, place), offset)
            positions[event.process, life, place] = offset + (event.action == "Poll")
            own = visible[place]
            missing = own[bisect_left(own, start) : bisect_left(own, offset)]
            if missing:
                value = (contents.values[missing[0]] or b"").decode(errors="replace")
                more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
                evidence = f"{event.process} went from offset {start} to {offset} and was not given {value!r}{more}"
                yield _finding(COMMITTED_MISSING, event, place, log, missing[0], evidence)


def delivered(run: Sequence[Event], replicas: Replicas, figures: Figures) -> Iterator[Finding]:
    """Records of aborted and open transactions that a reader of committed data was given."""
    aborted = {_transaction(event) for event in run if (event.action, event.phase) == ("AbortTransaction", "ok")}
    senders: dict[tuple[str | None, str], set[_Ended | None]] = defaultdict(set)
    for event in run:
        if (event.action, event.phase) == ("Send", "invoke"):
            senders[event.topic, _value(event)].add(_transaction(event))
    told: set[tuple[str, Place, object]] = set()
    for event, place, offset in _readings(run):
        if event.action != "Poll":
            continue
        count(figures, "checked")
        log, contents = _longest(replicas, place)
        own, why = senders[event.topic, _value(event)], ""
        cause: object = None
        if offset in contents.aborted:
            cause, why = contents.aborted[offset], f"is aborted (marker at offset {contents.aborted[offset]})"
        elif offset in contents.open:
            cause, why = min(contents.open), "is open at the end of the log"
        elif own and own <= aborted:
            cause, why = min(filter(None, own)), "was aborted, as its application was told"
        elif offset not in contents.values:
            count(figures, UNKNOWN)
        if why and (event.process, place, cause) not in told:
            told.add((event.process, place, cause))
            evidence = f"{event.process} was given {_value(event)!r}, whose transaction {why}"
            yield _finding(ABORTED_DELIVERED, event, place, log, offset, evidence)


def went_back(run: Iterable[Event], figures: Figures) -> Iterator[Finding]:
    """Ends of a partition, for a reader of committed data, that are below an earlier one."""
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
                evidence = f"event {event.order} of {event.process}: the end was at offset {before} before"
                yield _finding(STABLE_WENT_BACK, event, place, None, offset, evidence)


def _finding(
    rule: str, event: Event, place: Place, log: PartitionLog | None, offset: int | None, evidence: str
) -> Finding:
    """A violation at an offset, with the segment that has it."""
    segments = [] if log is None or offset is None else [n for n in log.segments if int(Path(n).stem) <= offset]
    return Finding(
        rule=rule,
        topic=place[0],
        partition=place[1],
        broker="" if log is None else log.broker,
        file=max(segments, default=""),
        offset=offset,
        run=event.run,
        evidence=evidence,
    )
