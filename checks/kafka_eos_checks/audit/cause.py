"""The events of a history that a finding is about: from its cause to its effect, with the faults in between.

The *effect* is the event at which the finding is first seen: the batch or its marker, the record that a reader was
given, the end of the transaction that made an output appear, or the first commit past an input. From there the
*subjects* are collected: the partitions, their writers, the groups that commit offsets of the partitions, and the
transactions of these groups. An event belongs to the finding if it names one of the subjects; a crash belongs to every
finding.

The *window* starts with the transaction before the effect's own transaction, because a delayed duplicate of a request
of that transaction may be the cause. It ends with the end of the effect's own transaction. For an input it starts with
the last commit that is not past the input. A picture has room for some forty steps, so the events in the window are
ranked: requests that decide something, errors and faults come before batches, and batches before events of readers. If
a duplicate of a request is kept, the original request is kept too, however long ago it was.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.events.recorded import COMMITS, DECLARATIONS
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.quoting import named
from kafka_eos_checks.audit.rules.applications import (
    FENCED_GENERATION,
    NOT_PROCESSED,
    OFFSET_ALONE,
    OUTPUT_ALONE,
    SKIPPED,
    TWICE,
)
from kafka_eos_checks.audit.rules.histories import REFUSED, UNASKED
from kafka_eos_checks.audit.rules.readers import COMMITTED_MISSING
from kafka_eos_checks.audit.segments.contents import Place, place_of

BEFORE, AFTER = 30, 12  # events that are kept up to the effect, and after it
CLUSTER_FAULTS = frozenset({"Crash", "Restart", "AdvanceClock"})
ENDS = frozenset({"EndTxn", "CommitTransaction", "AbortTransaction", "InitProducerId"})
WRITES = frozenset({"AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "BeginTransaction", "Send"})
# Ranks: events of a lower rank are kept first.
DECISION, BATCH, ELSEWHERE, SEEN = range(4)
_DECIDING = ENDS | {"BeginTransaction", "CommitOffsets", "SendOffsetsToTransaction"}
_DECIDING |= {"TimeOut", "ExpireSession", "Failover", "LeaderChange"}
# After these errors a client asks again by itself; nothing has gone wrong.
_ASKED_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)
# Evidence may quote a record of any length, so a match starts only at the beginning of a name (linear time).
_NAMED_PLACE = re.compile(r"(?<![A-Za-z0-9._-])([A-Za-z0-9._-]{1,249})-(\d{1,10}) offset (\d{1,19})")

Found = tuple[Place, int]  # an offset of a partition


@dataclass(frozen=True, slots=True)
class Cause:
    """Some events of a run, in its order.

    Attributes:
        events: the kept events.
        effect: the place of the effect among them.
        left_out: by the place of a kept event, how many events that belong to the finding were left out before it,
            events of readers not counted. The place after the last event has the number left out at the end.
    """

    events: list[Event]
    effect: int
    left_out: dict[int, int]


def cause_of(finding: Finding, run: Sequence[Event]) -> Cause | None:
    """Choose the events of a run that lead to a finding; None if the run has no event of the finding."""
    events = told(run)
    about = _About.of(finding, run, events)
    effect = about.effect(finding)
    if effect is None:
        return None
    about.collect(effect)
    mine = [number for number, event in enumerate(events) if about.has(event)]
    window = about.window(effect)
    kept = _kept(events, mine, window, effect, about.places)
    missed = [number for number in mine if _rank(events[number], about.places) < SEEN]
    return Cause([events[number] for number in kept], kept.index(effect), _gaps(missed, kept))


def seen_in(findings: Iterable[Finding], runs: Mapping[str, Sequence[Event]]) -> list[bool]:
    """Whether the runs have an event of each finding, that is, whether :func:`cause_of` chooses events of one."""
    events = {name: told(run) for name, run in runs.items()}
    return [
        any(
            _About.of(finding, runs[name], events[name]).effect(finding) is not None for name in names_of(finding, runs)
        )
        for finding in findings
    ]


def names_of(finding: Finding, runs: Mapping[str, object]) -> Collection[str]:
    """The runs that may have events of a finding: the one that it names, or all."""
    return (finding.run,) if finding.run in runs else runs


def told(run: Sequence[Event]) -> list[Event]:
    """The events of a run that a picture may show: ``Send`` is left out if the run has the requests on the wire."""
    on_the_wire = any(event.base_sequence is not None for event in run)
    return [event for event in run if event.action not in DECLARATIONS and not (on_the_wire and event.action == "Send")]


@dataclass(slots=True)
class _About:
    """The subjects of a finding: partitions, groups and producers.

    Attributes:
        events: the events of the run.
        found: the offsets that the finding names.
        places: the partitions of these offsets.
        inputs: the partitions whose offsets the groups commit.
        groups: groups that were declared for the topics, or that commit offsets of the partitions.
        producer_ids: the producers that wrote the batches.
        transactional_ids: those of the same producers and of the groups' transactions.
        since: for a finding about an input, the place of the last commit that is not past it; None for others.
    """

    events: Sequence[Event]
    found: list[Found]
    places: set[Place]
    inputs: set[Place]
    groups: set[str]
    producer_ids: set[int] = field(default_factory=set)
    transactional_ids: set[str] = field(default_factory=set)
    since: int | None = None

    @classmethod
    def of(cls, finding: Finding, run: Sequence[Event], events: Sequence[Event]) -> "_About":
        """Collect the partitions that a finding names, and the groups that read or commit them."""
        found = [] if finding.offset is None else [((finding.topic, finding.partition), finding.offset)]
        known = {place_of(event) for event in events}
        for topic, partition, offset in _NAMED_PLACE.findall(finding.evidence):
            if (topic, int(partition)) in known:
                found.append(((topic, int(partition)), int(offset)))
        places = {(finding.topic, finding.partition), *(place for place, _ in found)}
        topics = {topic for topic, _ in places}
        groups = {event.group for event in run if event.action in DECLARATIONS and event.topic in topics}
        groups |= {event.group for event in events if event.action in COMMITS and place_of(event) in places}
        named = {group for group in groups if group is not None}
        inputs = {place for e in events if e.action in COMMITS and e.group in named and (place := place_of(e))}
        return cls(events, found, places, inputs, named)

    # --- the effect --------------------------------------------------------------------------------------------------

    def effect(self, finding: Finding) -> int | None:
        """The place of the event at which the finding is first seen."""
        seen = self._first_seen(finding)
        if finding.rule in {SKIPPED, OFFSET_ALONE, NOT_PROCESSED}:
            commits = list(self._committed((finding.topic, finding.partition)))
            behind = next((number for number, offset in commits if offset > (finding.offset or 0)), None)
            before = [number for number, _ in commits if behind is None or number < behind]
            self.since = before[-1] if before else 0
            last = (number for number in reversed(range(len(self.events))) if self.events[number].group in self.groups)
            return next(last, seen) if behind is None else behind
        if seen is not None and finding.rule in {OUTPUT_ALONE, TWICE, UNASKED, COMMITTED_MISSING}:
            return next(self._marked(seen), next(self._ends_of(self.events[seen].transactional_id, seen), seen))
        return seen

    def _marked(self, batch: int) -> Iterator[int]:
        """The markers of a batch's producer on its partition, after the batch."""
        written = self.events[batch]
        for number in range(batch, len(self.events)):
            event = self.events[number]
            own = event.action == "WriteTxnMarkers" and event.producer_id == written.producer_id
            if own and event.phase == "ok" and place_of(event) == place_of(written):
                yield number

    def _committed(self, place: Place) -> Iterator[tuple[int, int]]:
        """The events that committed an offset of a partition: a commit, or the end of its transaction."""
        pending: dict[str, int] = {}
        for number, event in enumerate(self.events):
            name = event.transactional_id
            if event.phase != "ok":
                continue
            if name in pending and event.action in ENDS:
                offset = pending.pop(name)
                if event.detail.get("committed", event.action == "CommitTransaction"):
                    yield number, offset
            committed = event.detail.get("committed_offset")
            if event.action in COMMITS and place_of(event) == place and isinstance(committed, int):
                if name is None:
                    yield number, committed
                else:
                    pending[name] = committed

    def _ends_of(self, transactional_id: str | None, after: int) -> Iterator[int]:
        """The ends of transactions of a transactional id after an event."""
        for number in range(after, len(self.events)):
            event = self.events[number]
            own = transactional_id is not None and event.transactional_id == transactional_id
            if own and event.phase == "ok" and event.action in ENDS:
                yield number

    def _first_seen(self, finding: Finding) -> int | None:
        """The place of the event that carries the batch of the finding, or its last one if only the producer is known.

        If a reader should not have been given the record, it is the reader's event. A refusal, or a commit of a past
        generation, is named by the order of its answer.
        """
        if finding.rule in {REFUSED, FENCED_GENERATION}:
            said = finding.evidence
            names = [(f"{named(e)}:", f"event {e.order}: {e.process} ") for e in self.events]
            answer = next((number for number, own in enumerate(names) if said.startswith(own)), None)
            if answer is not None:
                return answer
        here = [
            (number, event)
            for number, event in enumerate(self.events)
            if place_of(event) == (finding.topic, finding.partition) and event.phase != "invoke"
        ]
        if finding.offset is not None:
            holding = [(number, event) for number, event in here if _holds(event, finding.offset)]
            given = [
                number for number, event in holding if event.action == "Poll" and event.process in finding.evidence
            ]
            return next(iter([*given, *(number for number, _ in holding)]), None)
        if finding.producer_id is None:
            return None
        batch = ("producer_id", "producer_epoch", "base_sequence")
        same = [number for number, event in here if all(getattr(event, c) == getattr(finding, c) for c in batch)]
        return same[-1] if same else None

    # --- the subjects ------------------------------------------------------------------------------------------------

    def collect(self, effect: int) -> None:
        """Collect the producers that wrote the batches, and those whose transactions commit the groups' offsets."""
        for event in (self.events[effect], *self._writers()):
            self._add(event)
        actors = {_actor(event) for event in self.events if event.group in self.groups and event.action != "Failover"}
        for event in self.events:
            if event.transactional_id is not None and (
                event.group in self.groups or event.producer_id in self.producer_ids or _actor(event) in actors
            ):
                self._add(event)

    def _writers(self) -> Iterator[Event]:
        """The events that carry the batches. The producer of an input is left out: it does not cause the finding."""
        for place, offset in self.found:
            if place not in self.inputs:
                yield from (event for event in self.events if place_of(event) == place and _holds(event, offset))

    def _add(self, event: Event) -> None:
        if event.producer_id is not None and event.producer_id >= 0:
            self.producer_ids.add(event.producer_id)
        if event.transactional_id is not None:
            self.transactional_ids.add(event.transactional_id)

    def has(self, event: Event) -> bool:
        """Whether an event belongs to the finding."""
        return (
            event.action in CLUSTER_FAULTS
            or event.transactional_id in self.transactional_ids
            or event.producer_id in self.producer_ids
            or event.group in self.groups
            or place_of(event) in self.places
        )

    # --- the window --------------------------------------------------------------------------------------------------

    def window(self, effect: int) -> range:
        """The events from the transaction before the effect's own to the end of its own; otherwise the whole run.

        The fate of an input is decided between two commits of its group, however many transactions that takes.
        """
        anchor = min([effect, *self._written_at()])
        own = self.events[anchor].transactional_id or self.events[effect].transactional_id
        begins = self._begins({own} if own is not None else self.transactional_ids)
        earlier = [number for number in begins if number <= anchor]
        ended = next(self._ends_of(own, effect), effect)
        begin = earlier[-2] if len(earlier) > 1 else 0
        return range(
            min(effect, begin if self.since is None else self.since),
            next((number for number in begins if number > ended), len(self.events)),
        )

    def _written_at(self) -> Iterator[int]:
        """The place in the run of the last batch among the finding's offsets that is not an input's."""
        last = max((place for place in self.found if place[0] not in self.inputs), key=self._place_in_run, default=None)
        if last is not None and self._place_in_run(last) >= 0:
            yield self._place_in_run(last)

    def _place_in_run(self, found: Found) -> int:
        place, offset = found
        carried = (n for n, event in enumerate(self.events) if place_of(event) == place and _holds(event, offset))
        return next(carried, -1)

    def _begins(self, transactional_ids: Set[str]) -> list[int]:
        """The places where transactions begin: the first event that writes after the previous transaction's end."""
        begins: list[int] = []
        fresh = set(transactional_ids)
        for number, event in enumerate(self.events):
            name = event.transactional_id
            if name is None or name not in transactional_ids:
                continue
            if event.phase == "ok" and event.action in ENDS and "repeats" not in event.detail:
                fresh.add(name)
            elif name in fresh and event.action in WRITES:
                fresh.discard(name)
                begins.append(number)
        return begins


def _actor(event: Event) -> str:
    """The name of a process's application. A proxy's events have the same name."""
    return event.process.rpartition("/")[2]


def _holds(event: Event, offset: int) -> bool:
    """Whether an event names the record or marker at an offset."""
    if event.offset is None or event.action == "EndOfPartition":
        return False
    return event.offset <= offset < event.offset + (event.record_count or 1)


# --- what is kept ----------------------------------------------------------------------------------------------------


def _kept(events: Sequence[Event], mine: Iterable[int], window: range, effect: int, places: set[Place]) -> list[int]:
    """Choose events for the picture: by rank, then by closeness to the effect; requests and answers stay together."""
    units: dict[object, set[int]] = defaultdict(set)
    for number in (effect, *mine):
        units[_unit(events[number], number)].add(number)

    def order(unit: set[int]) -> tuple[bool, int, int]:
        rank = min(_rank(events[number], places) for number in unit)
        return effect not in unit, rank, min(abs(number - effect) for number in unit)

    kept: set[int] = set()
    for unit in sorted((unit for unit in units.values() if any(number in window for number in unit)), key=order):
        wanted = kept.union(unit)
        up_to = sum(number <= effect for number in wanted)
        if effect in unit or (up_to <= BEFORE and len(wanted) - up_to <= AFTER):
            kept = wanted
    return sorted(kept | set(_copied(events, kept)))


def _unit(event: Event, number: int) -> object:
    """The key that a request shares with its answer; an event without an answer has its own."""
    request, transaction = event.detail.get("request"), event.detail.get("transaction")
    if request is None and (transaction is None or event.action in {"Poll", "CommitOffsets"}):
        return number
    asked = str(request), str(transaction), str(event.detail.get("value"))  # of any type in a history from elsewhere
    return event.process, event.action, *asked, place_of(event)


def _rank(event: Event, places: set[Place]) -> int:
    if event.action in CLUSTER_FAULTS or {"fault", "repeats", "by_hand"} & event.detail.keys():
        return DECISION
    if event.detail.get("delivered") is False or event.phase in {"fail", "info"}:
        return BATCH if event.error in _ASKED_AGAIN else DECISION
    place = place_of(event)
    if event.action in COMMITS or event.action == "WriteTxnMarkers":
        return DECISION if place in places else ELSEWHERE
    if event.action in _DECIDING:
        return DECISION
    if event.action == "EndOfPartition" or (event.action == "Poll" and place not in places):
        return SEEN
    return BATCH if place in places or event.group is not None else ELSEWHERE


def _copied(events: Sequence[Event], kept: Iterable[int]) -> Iterator[int]:
    """The original requests of the duplicates among the kept events."""
    chosen = (events[number] for number in kept)
    copies = {(e.process, e.action, str(e.detail["repeats"])) for e in chosen if "repeats" in e.detail}
    for number, event in enumerate(events):
        if (event.process, event.action, str(event.detail.get("request"))) in copies:
            yield number


def _gaps(mine: Sequence[int], kept: Sequence[int]) -> dict[int, int]:
    """Number of the finding's events left out before each kept event, by its place."""
    gaps: dict[int, int] = defaultdict(int)
    there = set(kept)
    for number in mine:
        if number not in there:
            gaps[sum(other < number for other in kept)] += 1
    return dict(gaps)
