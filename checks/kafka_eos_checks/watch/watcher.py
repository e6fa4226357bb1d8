"""Follows a cluster: reads what is new, judges it, and asks the coordinators about what stays open.

A transaction *hangs* if no coordinator will end it. It is looked for as ``kafka-transactions find-hanging`` does, but
without waiting for the longest timeout that a transaction may have: data are open on a partition; then the coordinator
says that it will not end them; then the partition is read again up to its end, and they are still open. A coordinator
writes all markers before it says that a transaction is complete, and knows of a partition before data are written to
it, so a normal transaction never looks like this. While a coordinator moves, none may know of its transactions: where
no coordinator tells of a producer they are asked twice, and not at all while one of them is without a leader. They are
also asked twice where the coordinator has the partition at another epoch: before it aborts a transaction that timed out
or is fenced, it raises the epoch, and writes that it aborts only then.

The *last stable offset lags* if a transaction holds it back for longer than the watcher was told to accept: readers of
committed data see nothing after it, whoever wrote it. A transaction that was reported to hang is not reported again for
this, because that report has what it blocks; one that is found to hang later names the report that was made before.

A decided transaction *stays prepared* if its coordinator does not complete it, although its data are open nowhere. The
coordinators are asked every ten seconds (:class:`kafka_eos_checks.watch.prepared.Prepared`).

A transaction is *torn* if it was committed on a partition and aborted on another one. Markers alone show that if each
transaction has an epoch of its own, one below its markers' (transaction version 2). An epoch of version 1 names many
transactions, so nothing is reported about them. An ABORT by hand has the epoch of its data, as those of version 1 have.
So it counts only if the producer's transaction before it was read and is of version 2. How a transaction ended is
remembered until each partition was read up to its end, so partitions may be read one after the other
(:class:`kafka_eos_checks.watch.endings.Endings`).

A report of a transaction is *resolved* when its marker is read, or when everything was read and the last stable offset
is after it. What cannot be read is asked for again after a wait that doubles up to five seconds, or half a minute for a
broker whose answers one waits for in vain, because meanwhile no other is read.

KIP:   KIP-664, KIP-890
Kafka: TransactionsCommand.FindHangingTransactionsCommand; TransactionCoordinator.endTransaction
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos_checks.audit.rules.transactions.names import HANGING, TORN
from kafka_eos_checks.conform.wire import Unsupported, error_name
from kafka_eos_checks.kit.verdict import first_of
from kafka_eos_checks.watch.advice import WORDS, Tools, hangs, nobody_tells, will_end
from kafka_eos_checks.watch.backoff import SHARE, BackOff
from kafka_eos_checks.watch.blindness import (
    EVERYWHERE,
    NO_BROKER,
    NO_COORDINATOR,
    NOT_READ,
    WHOLE_TOPIC,
    Blindness,
)
from kafka_eos_checks.watch.cluster import (
    EARLIEST,
    FAILURES,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Cluster,
    Fetched,
    Place,
    Topics,
    Transaction,
)
from kafka_eos_checks.watch.endings import MOST_ENDS, Endings
from kafka_eos_checks.watch.prepared import STAYS, Prepared
from kafka_eos_checks.watch.reports import (
    RESOLVED,
    Blocked,
    Clock,
    OfTransaction,
    Report,
    Since,
    duration,
    identity,
    transaction_of,
)
from kafka_eos_checks.watch.state import (
    CUT,
    DECISIONS,
    LAGS,
    Ending,
    OpenTransaction,
    PartitionState,
    Reported,
    partition_from_json,
)

WAIT_MS = 500  # for anything new, all brokers together
REFRESH_MS = 10_000  # between looks for new topics and leaders
CHECK_MS = 2_000  # between questions to the coordinators
MOST_NAMES = 10_000  # of transactional ids that are remembered
NAMED = 3  # partitions in a line about many
_UNTOLD, _LEFT_OUT = "the leader tells no offset", "the leader leaves it out of its answer"

Tell = Callable[[str], None]


class AnotherCluster(ValueError):  # noqa: N818 - named for what is wrong
    """A checkpoint that was made of another cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a watch.

    Attributes:
        topics: only these; all if there are none.
        from_start: whether partitions are read from their first offset, instead of their last stable one.
        hanging_after_ms: how old an open transaction is before the coordinators are asked about it.
        lag_after_ms: how long a transaction may hold the last stable offset back, or stay prepared.
        check_ms: between questions to the coordinators.
        forget_after_ms: how long a producer that writes nothing is remembered.
        tools: how Kafka's tools are called, for the advice.
    """

    topics: frozenset[str]
    from_start: bool
    hanging_after_ms: int
    lag_after_ms: int
    check_ms: int
    forget_after_ms: int
    tools: Tools


@dataclass(frozen=True, slots=True)
class _Suspect:
    """An open transaction that no coordinator will end: why, how often they said so, and how often they have to."""

    opened: OpenTransaction
    transaction: Transaction | None
    why: str
    answers: int
    needed: int


@dataclass(slots=True)
class Watcher:
    """The state of a watched cluster.

    Attributes:
        cluster: the cluster that is asked.
        options: the options of the watch.
        tell: takes a line for people that is no violation.
        cluster_id: the cluster's id, once it is known.
        partitions: the state of each.
        batches: the number of batches that were read.
        unread: partitions that could not be read when they were asked for last, and when they are again.
        heard: whether any broker answered in the last poll.
        heard_ms: the time of the last poll in which one did, in milliseconds since the epoch; 0 before.
        deleted: the number of offsets that were deleted before they were read.
        missing: topics that were asked for and are not there, or may not be described.
        blindness: what is not seen, for programs; ``tell`` is told of it in other words.
        endings: how transactions ended, as far as the epochs of their markers name them.
        prepared: the transactions that are decided and not completed.
    """

    cluster: Cluster
    options: Options
    tell: Tell
    cluster_id: str = ""
    partitions: dict[Place, PartitionState] = field(default_factory=dict)
    batches: int = 0
    unread: dict[Place, BackOff] = field(default_factory=dict)
    heard: bool = False
    heard_ms: int = 0
    deleted: int = 0
    missing: frozenset[str] = frozenset()
    blindness: Blindness = field(default_factory=Blindness)
    endings: Endings = field(default_factory=Endings)
    prepared: Prepared = field(default_factory=Prepared)
    _behind: set[Place] = field(default_factory=set)  # not read up to its end since this round of endings began
    _initial: set[Place] = field(default_factory=set)  # there when the watch began, and not read yet
    _begins: bool = True
    _leaders: dict[Place, int] = field(default_factory=dict)
    _refreshed_ms: int | None = None
    _checked_ms: int | None = None
    _look_ms: int = 0  # when to look for prepared transactions
    _unlisted: bool = True  # whether no such look was made since the watch began, or the coordinators did not tell
    _too_old: bool = False  # whether the brokers cannot tell of prepared transactions
    _state_partitions: int = 0  # of __transaction_state
    _suspects: dict[tuple[Place, int], _Suspect] = field(default_factory=dict)
    _all_led: bool = True  # every partition of __transaction_state has a leader
    _busy: bool = True
    _starved: set[Place] = field(default_factory=set)
    _failed: dict[str, list[Place]] = field(default_factory=lambda: defaultdict(list))  # in this poll, by the reason
    _took_ms: int = 0  # the longest failed attempt in this poll
    _asking: BackOff = field(default_factory=BackOff)  # of coordinators that do not tell
    _names: dict[int, str] = field(default_factory=dict)  # by producer id, the transactional id or ""

    def to_json(self) -> dict[str, Any]:
        """The state that a restart needs."""
        rows = [state.to_json() for state in self.partitions.values()]
        kept = {"cluster_id": self.cluster_id, "partitions": rows, "decided": self.endings.to_json()}
        initial = [list(place) for place in sorted(self._initial)]
        return kept | {"blind": self.blindness.to_json(), "initial": initial, "prepared": self.prepared.to_json()}

    def resume(self, row: dict[str, Any]) -> None:
        """Continue from the state that :meth:`to_json` gave."""
        self.cluster_id = row["cluster_id"]
        self._begins = not self.cluster_id  # no broker has answered yet
        states = map(partition_from_json, row["partitions"])
        self.partitions = {(state.topic, state.partition): state for state in states}
        self.endings.resume(row["decided"])
        # Checkpoints of earlier versions do not have these.
        self.blindness.resume(row.get("blind", []))
        self._initial = {(topic, number) for topic, number in row.get("initial", [])}
        self.prepared.resume(row.get("prepared", []))

    @property
    def watched(self) -> dict[Place, PartitionState]:
        """The partitions of the given topics; a checkpoint may have others, which stay as they are."""
        return {place: state for place, state in self.partitions.items() if self._is_wanted(place)}

    @property
    def drained(self) -> bool:
        """Whether everything was read that there is, and can be read."""
        return all(self.partitions[place].drained for place in self._leaders if self._is_read(place))

    @property
    def open_reports(self) -> dict[str, str]:
        """The reports of transactions that are not over: by their ids, the rules."""
        named = {self.partitions[place].name_of(one): one.rule for place, one in self.unresolved}
        return named | dict.fromkeys(self.prepared.reported, STAYS)

    @property
    def unresolved(self) -> list[tuple[Place, Reported]]:
        """The reports of transactions with open data that have not ended, in order of time and place."""
        found = [(place, one) for place, state in self.watched.items() for one in state.reported]
        return sorted(found, key=lambda pair: (pair[1].reported_ms, pair[0], pair[1]))

    def _is_wanted(self, place: Place) -> bool:
        return not self.options.topics or place[0] in self.options.topics

    def _is_read(self, place: Place) -> bool:
        return place in self.partitions and place not in self.unread

    def _is_due(self, place: Place, now_ms: int) -> bool:
        return place not in self.unread or self.unread[place].until_ms <= now_ms

    def poll(self, now_ms: int) -> list[Report]:
        """Read once from every broker and judge; the reports, in order of partition and offset.

        Args:
            now_ms: the time, in milliseconds since the epoch.

        Raises:
            ClusterFailed: no broker answers.
            AnotherCluster: the cluster is not the one of the checkpoint.
            Unsupported: the brokers are too old.
        """
        found: list[Report] = []
        again = any(back_off.until_ms <= now_ms for back_off in self.unread.values())
        if again or self._refreshed_ms is None or now_ms - self._refreshed_ms >= REFRESH_MS:
            found += self._refresh(now_ms)
        by_node: dict[int, dict[Place, int]] = defaultdict(dict)
        for place in sorted(self._leaders, key=lambda place: place not in self._starved):
            node = self._leaders[place]
            if not self._is_due(place, now_ms):
                continue
            if node < 0:
                self._failed["no leader"].append(place)
            elif place in self.partitions:
                by_node[node][place] = self.partitions[place].position
        wait_ms = 0 if self._busy else WAIT_MS // max(len(by_node), 1)
        self._busy = self.heard = False
        self._took_ms = 0
        read: set[Place] = set()
        for node, positions in by_node.items():
            started = time.monotonic()
            try:
                answers = self.cluster.fetch(node, positions, wait_ms)
            except FAILURES as error:
                self._failed[str(error)] += positions
                self._took_ms = max(self._took_ms, _since(started))
                continue
            self.heard, self.heard_ms = True, now_ms
            for place, answer in answers.items():
                if place in positions:
                    found += self._take(node, place, answer, now_ms)
                    read.add(place)
            self._failed[_LEFT_OUT] += positions.keys() - answers.keys()
            for place in positions:
                self.partitions[place].forget_idle(now_ms, self.options.forget_after_ms)
        self._next_round()
        self._tell_of_failures(read, now_ms)
        found += self._hanging(read, now_ms)
        if self._checked_ms is None or now_ms - self._checked_ms >= self.options.check_ms:
            found += self._check(now_ms)
        if now_ms >= self._look_ms:
            found += self._prepared(now_ms)
        return sorted(self._completed(found, now_ms), key=Report.sort_key)

    def repeated(self, before: Collection[str], now_ms: int) -> list[Report]:
        """Those of earlier reports, by their ids, that are not over, with what is known about them now."""
        found = [(place, one) for place, one in self.unresolved if self.partitions[place].name_of(one) in before]
        known = self._transactions_of({one.producer_id for _, one in found}, now_ms) if found else None
        again = [self._repeated(self.partitions[place], one, known, now_ms) for place, one in found]
        return [*again, *self.prepared.repeated(before, self.options.tools, now_ms)]

    def _repeated(
        self, state: PartitionState, one: Reported, known: dict[int, Transaction] | None, now_ms: int
    ) -> Report:
        pid, opened = one.producer_id, state.open.get(one.producer_id)
        since = opened.since if opened is not None and opened.epoch == one.epoch else None
        evidence = f"told before, {duration(now_ms - one.reported_ms)} ago, and not over"
        report = state.report(one.rule, one.offset, evidence, since, (pid, one.epoch))
        return self._advised(report, None if known is None else known.get(pid), told=known is not None)

    # --- partitions --------------------------------------------------------------------------------------------------

    def _refresh(self, now_ms: int) -> Iterator[Report]:
        """Look where partitions are led, and which there are."""
        topics = self.cluster.topics()
        self.blindness.ends(NO_BROKER, EVERYWHERE, "a broker answers", now_ms)
        if self.cluster_id and topics.cluster_id != self.cluster_id:
            raise AnotherCluster(
                f"the checkpoint is of cluster {self.cluster_id}, and this is {topics.cluster_id}; give another folder"
            )
        self.cluster_id, self._refreshed_ms = topics.cluster_id, now_ms
        coordinators = [node for (topic, _), node in topics.leaders.items() if topic == COORDINATOR_TOPIC]
        self._all_led, self._state_partitions = all(node >= 0 for node in coordinators), len(coordinators)
        before = self._leaders
        self._leaders = {place: node for place, node in topics.leaders.items() if self._is_wanted(place)}
        for place in list(self.unread):
            if self._leaders.get(place, -1) not in {-1, before.get(place)}:
                self.unread[place].until_ms = now_ms  # another broker leads it
            elif place not in self._leaders and place[0] not in topics.unsure:
                del self.unread[place]
        missing = frozenset(self.options.topics - topics.ids.keys())
        for topic in sorted(missing - self.missing):
            self.tell(f"topic {topic} is not there, or may not be described")
            why = "the topic is not there, or may not be described"
            self.blindness.begins(NOT_READ, (topic, WHOLE_TOPIC), why, now_ms)
        self.missing = missing
        for place in self.blindness.places(NOT_READ):
            if place[1] == WHOLE_TOPIC:
                over = "" if place[0] in missing else "the topic is there, or no longer asked for"
            elif not self._is_wanted(place):
                over = "it is no longer asked for"
            else:
                is_gone = place not in topics.leaders and place[0] not in topics.unsure
                over = "its topic was deleted" if is_gone else ""
            if over:
                self.blindness.ends(NOT_READ, place, over, now_ms)
        for place in [place for place in self.partitions if self._is_gone(place, topics)]:
            yield from self.partitions.pop(place).resolve(lambda _: True, "its topic was deleted", now_ms)
        if self._begins:
            self._initial, self._begins = set(self._leaders), False
        new = [place for place in self._leaders if place not in self.partitions and self._is_due(place, now_ms)]
        self._begin([place for place in new if self._leaders[place] >= 0], topics)

    def _is_gone(self, place: Place, topics: Topics) -> bool:
        """Whether a topic was deleted; one that is only not led at the moment is still there."""
        if place[0] in topics.unsure:
            return False
        return place not in topics.leaders or topics.ids[place[0]] != self.partitions[place].topic_id

    def _begin(self, places: Collection[Place], topics: Topics) -> None:
        """Begin to watch partitions: those that came since the watcher began, from their start."""
        by_node: dict[tuple[int, bool], list[Place]] = defaultdict(list)
        for place in places:
            by_node[self._leaders[place], self.options.from_start or place not in self._initial].append(place)
        for (node, from_start), own in by_node.items():
            where = (EARLIEST, READ_UNCOMMITTED) if from_start else (LATEST, READ_COMMITTED)
            try:
                offsets = self.cluster.offsets(node, own, *where)
            except FAILURES as error:
                self._failed[str(error)] += own
                continue
            for topic, number in own:
                offset = offsets.get((topic, number))
                if offset is None:
                    self._failed[_UNTOLD].append((topic, number))
                    continue
                self.partitions[topic, number] = PartitionState(
                    topic=topic, partition=number, topic_id=topics.ids[topic], position=offset
                )
                self._initial.discard((topic, number))

    def _take(self, node: int, place: Place, answer: Fetched, now_ms: int) -> list[Report]:
        state = self.partitions[place]
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return list(self._relocate(node, state, now_ms))
        if answer.error:
            self._failed[error_name(answer.error)].append(place)
            return []
        state.high_watermark, state.last_stable_offset = answer.high_watermark, answer.last_stable_offset
        taken = state.take(answer.records, now_ms)
        found = [*taken.reports, *state.moved_on(now_ms)]
        found += (torn for ending in taken.endings for torn in self._torn(state, ending))
        self.batches += taken.batches
        self._busy = self._busy or (taken.batches > 0 and not state.drained)
        if not taken.batches and not state.drained:  # its next batch had no room after those of other partitions
            self._starved.add(place)
        else:
            self._starved.discard(place)
        return found

    def _relocate(self, node: int, state: PartitionState, now_ms: int) -> Iterator[Report]:
        """The offset to read next is not there: it was deleted, or the log is shorter than what was read of it."""
        place = state.topic, state.partition
        try:
            first = self.cluster.offsets(node, [place], EARLIEST, READ_UNCOMMITTED).get(place)
            last = self.cluster.offsets(node, [place], LATEST, READ_UNCOMMITTED).get(place)
        except FAILURES as error:
            self._failed[str(error)].append(place)
            return
        if first is None or last is None:
            self._failed[_UNTOLD].append(place)
            return
        if state.position < first:
            gone = f"offsets {state.position} to {first - 1}"
            self.tell(f"{place[0]}-{place[1]}: {gone} were deleted before they were read")
            self.blindness.missed(place, state.position, first, now_ms)
            self.deleted += first - state.position
            state.skip_to(first)
        elif state.position > last:
            evidence = f"offset {state.position - 1} was read before, and now the log ends here"
            yield state.report(CUT, last, evidence, Since(ms=now_ms, clock=Clock.WATCHER))
            state.restart_at(last)
            yield from state.resolve(lambda one: one.offset >= last, "the log was cut before it", now_ms)

    def _tell_of_failures(self, read: set[Place], now_ms: int) -> None:
        """Delay and tell of the partitions that could not be read, and tell of those that can be read again."""
        failed, self._failed = self._failed, defaultdict(list)
        for why, places in failed.items():
            waits: dict[str, list[Place]] = defaultdict(list)
            for place in places:
                self.blindness.begins(NOT_READ, place, why, now_ms)
                back_off = self.unread.setdefault(place, BackOff())
                if back_off.failed(now_ms, why, self._took_ms):
                    waits[back_off.in_words()].append(place)
            for often, alike in waits.items():
                self.tell(f"{_named(alike)} not read: {why}; asked again {often}")
            read.difference_update(places)
        for place in read.intersection(self.blindness.places(NOT_READ)):
            self.blindness.ends(NOT_READ, place, "it is read again", now_ms)
        again = [place for place in self.unread if place in read]
        if again:
            since = duration(now_ms - min(self.unread.pop(place).since_ms for place in again))
            self.tell(f"{_named(again)} read again, after {since}")

    # --- transactions ------------------------------------------------------------------------------------------------

    def _hanging(self, read: Collection[Place], now_ms: int) -> Iterator[Report]:
        """The transactions that a coordinator said it will not end, and that a later read does not end."""
        for (place, pid), suspect in list(self._suspects.items()):
            state, opened = self.partitions.get(place), suspect.opened
            if state is None or state.open.get(pid) is not opened:
                del self._suspects[place, pid]
            elif place in read and state.drained and suspect.answers >= suspect.needed:
                del self._suspects[place, pid]
                if state.last_stable_offset <= opened.offset:
                    opened.hangs = True
                    report = state.report(HANGING, opened.offset, suspect.why, opened.since, (pid, opened.epoch))
                    state.note(report, now_ms)
                    yield self._advised(report, suspect.transaction)

    def _torn(self, state: PartitionState, ending: Ending) -> Iterator[Report]:
        """Remember how a transaction ended on a partition, and see whether it ended otherwise on another one."""
        own, told = (state.topic, state.partition), self.endings.forgotten
        by_hand = ending.data_epoch == ending.epoch
        if by_hand:
            other = self.endings.add_by_hand(ending.producer_id, ending.epoch, own, ending.offset)
        elif ending.data_epoch is None:
            other = self.endings.add_without_data(ending.producer_id, ending.epoch, own)
        else:
            other = self.endings.add(ending.producer_id, ending.epoch, ending.decision, own, ending.offset)
        if self.endings.forgotten and not told:
            self.tell(
                f"more than {MOST_ENDS:,} transactions ended in partitions that were read before others were: torn "
                "transactions among the first of them are not noticed; audit the log directories to find these"
            )
        if other is not None:
            (topic, number), offset = other.place, other.offset
            evidence = "the transaction of this epoch: "
            evidence += f"{ending.decision.name} here, {other.decision.name} at {topic}-{number} offset {offset}"
            evidence += "; the ABORT is by hand" if by_hand or other.by_hand else ""
            report = state.report(TORN, ending.offset, evidence, ending.since, (ending.producer_id, ending.epoch))
            yield replace(report, decision=DECISIONS[ending.decision])

    def _next_round(self) -> None:
        """Begin a new round of endings if each partition was read up to its end since this one began."""
        self._behind = {
            place for place in self._behind if place in self.partitions and not self.partitions[place].drained
        }
        if not self._behind:
            self.endings.next_round()
            self._behind = set(self.watched)

    def _check(self, now_ms: int) -> Iterator[Report]:
        """Ask the coordinators about transactions that are open for long, and judge the last stable offsets."""
        asked = [
            (place, pid, opened)
            for place, state in self.watched.items()
            if state.drained
            for pid, opened in state.open.items()
            if self._is_old(state, opened, now_ms)
        ]
        if not asked:
            if not self._unlisted and not any(state.open for state in self.watched.values()):
                self._coordinators_tell("no transaction is open any more", now_ms)
            return
        self._checked_ms = now_ms
        known = self._transactions_of({pid for _, pid, _ in asked}, now_ms)
        for place, pid, opened in asked:
            transaction = None if known is None else known.get(pid)
            old = now_ms - opened.seen_ms >= self.options.hanging_after_ms
            why = "" if known is None or not old else _why_hanging(transaction, place, opened.epoch)
            if why:
                before = self._suspects.get((place, pid))  # of this transaction: see `_hanging`
                answers = 1 + (before.answers if before is not None else 0)
                needed = 2 if transaction is None or place in transaction.partitions else 1
                self._suspects[place, pid] = _Suspect(opened, transaction, why, answers, needed)
                if answers <= needed:
                    continue  # the next look reports that it hangs, and what it blocks
            else:
                self._suspects.pop((place, pid), None)
            yield from self._lag(self.partitions[place], pid, opened, transaction, now_ms, told=known is not None)

    def _prepared(self, now_ms: int) -> Iterator[Report]:
        """Ask the coordinators which transactions they have decided, and report those that they do not complete."""
        started = time.monotonic()
        try:
            known = self.cluster.prepared_transactions() if self._all_led else None
        except Unsupported:
            if not self._too_old:
                self.tell("not judged: which transactions stay prepared, because brokers before 3.0 do not tell")
            self._look_ms, self._unlisted, self._too_old = now_ms + REFRESH_MS, False, True
            return
        if known is None:
            self._coordinators_do_not_tell(started, now_ms)
            return  # whatever was prepared may still be
        self._look_ms, self._unlisted, self._too_old = now_ms + max(REFRESH_MS, SHARE * _since(started)), False, False
        self._coordinators_tell("the coordinators tell of transactions again", now_ms)
        yield from self.prepared.take(known, self._state_partitions, now_ms)
        if self.prepared.is_unsure:
            self._look_ms = now_ms + self.options.check_ms
        told = {pid for state in self.watched.values() for pid in state.open}  # by reports that say which readers wait
        others = {one.producer_id for one in known if one.partitions and not any(map(self._is_wanted, one.partitions))}
        after_ms = max(self.options.lag_after_ms, REFRESH_MS)  # never one that is just being completed
        yield from self.prepared.stuck(after_ms, told | others, self.options.tools, now_ms)

    def _transactions_of(self, producer_ids: Collection[int], now_ms: int) -> dict[int, Transaction] | None:
        """Ask the coordinators about producers; None if they do not answer, or did not just before."""
        if now_ms < self._asking.until_ms:
            return None
        started = time.monotonic()
        known = self.cluster.transactions_of(producer_ids) if self._all_led else None
        if known is None:
            self._coordinators_do_not_tell(started, now_ms)
            return None
        if not self._unlisted:  # otherwise the next look for prepared transactions shows it
            self._coordinators_tell("the coordinators tell of transactions again", now_ms)
        for pid in producer_ids:
            self._names[pid] = known[pid].name if pid in known else self._names.get(pid, "")  # it may have expired
        while len(self._names) > MOST_NAMES:
            del self._names[next(iter(self._names))]
        return known

    def _coordinators_do_not_tell(self, started: float, now_ms: int) -> None:
        """Note that the coordinators, asked since a moment, do not tell."""
        why = "they do not answer" if self._all_led else f"a partition of {COORDINATOR_TOPIC} has no leader"
        self.blindness.begins(NO_COORDINATOR, EVERYWHERE, why, now_ms)
        if self._asking.failed(now_ms, "", _since(started)):
            self.tell(f"the coordinators do not tell of transactions now; asked again {self._asking.in_words()}")
        self._look_ms, self._unlisted = max(self._asking.until_ms, now_ms + SHARE * _since(started)), True

    def _coordinators_tell(self, how: str, now_ms: int) -> None:
        """Note that the coordinators tell, or are not needed."""
        self.blindness.ends(NO_COORDINATOR, EVERYWHERE, how, now_ms)
        if self._asking.wait_ms:
            self.tell(f"{how}, after {duration(now_ms - self._asking.since_ms)}")
            self._asking = BackOff()

    def _is_old(self, state: PartitionState, opened: OpenTransaction, now_ms: int) -> bool:
        """Whether the coordinators are asked about an open transaction: it may hang, or readers wait too long."""
        if opened.hangs:
            return False
        waits = not opened.lags and _holds(state, opened) and now_ms - opened.began_ms >= self.options.lag_after_ms
        return waits or now_ms - opened.seen_ms >= self.options.hanging_after_ms

    def _lag(
        self,
        state: PartitionState,
        pid: int,
        opened: OpenTransaction,
        transaction: Transaction | None,
        now_ms: int,
        *,
        told: bool,
    ) -> Iterator[Report]:
        place = state.topic, state.partition
        own = transaction is not None and transaction.will_end(place, opened.epoch) and transaction.start_ms > 0
        began_ms = min(opened.began_ms, transaction.start_ms) if own and transaction else opened.began_ms
        held_ms = now_ms - began_ms
        if opened.lags or not _holds(state, opened) or held_ms < self.options.lag_after_ms:
            return
        opened.lags = True
        behind = state.high_watermark - opened.offset
        holder = transaction.in_words() if transaction is not None else "one that no coordinator tells of"
        evidence = f"{behind} offsets up to {state.high_watermark} are held back for {held_ms // 1000} s by {holder}"
        since = opened.since
        if own and transaction:
            evidence += f", timeout {transaction.timeout_ms} ms"
            since = Since(ms=transaction.start_ms, clock=Clock.COORDINATOR)
        report = state.report(LAGS, opened.offset, evidence, since, (pid, opened.epoch))
        state.note(report, now_ms)
        yield self._advised(report, transaction, told=told)

    # --- what an operator needs -------------------------------------------------------------------------------------

    def _completed(self, found: Collection[Report], now_ms: int) -> Iterator[Report]:
        """Reports that follow from the logs only, completed with what the coordinators know."""
        bare = [report for report in found if not report.next and report.rule != RESOLVED]
        producers = {pid for report in bare if (pid := report.producer_id) is not None and pid >= 0}
        asked = {report.producer_id for report in bare if report.rule == HANGING} | (producers - self._names.keys())
        known = self._transactions_of({pid for pid in asked if pid is not None}, now_ms) if asked else {}
        for report in found:
            pid = report.producer_id
            if report.rule not in {HANGING, *WORDS} or report.next:
                yield report
            elif report.rule == HANGING:
                transaction = known.get(pid) if known is not None and pid is not None else None
                yield self._advised(report, transaction, told=known is not None)
            else:
                yield replace(
                    report,
                    transactional_id="" if pid is None else self._names.get(pid, ""),
                    next=WORDS[report.rule],
                    command=self.options.tools.about(report.rule, report.topic, report.partition),
                )

    def _advised(self, report: Report, transaction: Transaction | None, *, told: bool = True) -> Report:
        """A report of an open transaction, with what it blocks, how it ends and what to do.

        Args:
            report: without these.
            transaction: as its coordinator has it; None for one that no coordinator tells of.
            told: whether the coordinators have told at all.
        """
        one = transaction_of(report)
        place = report.topic, report.partition
        name = self._names.get(one.producer_id, "")
        report = replace(report, transactional_id=name, blocked=self._blocked(one, place))
        if not told:
            report = nobody_tells(report, self.options.tools)
        elif transaction is None or not transaction.will_end(place, one.epoch):
            start, end = self._start_offset(one, place), self.partitions[place].high_watermark
            report = hangs(report, transaction, start, end, self.options.tools)
        else:
            report = will_end(report, transaction, self.options.tools)
        return self._joined(report)

    def _joined(self, report: Report) -> Report:
        """A report that names the first one of its transaction; both names are remembered until it is over."""
        state, about = self.partitions[report.topic, report.partition], (report.producer_id, report.producer_epoch)
        same = [(place, one) for place, one in self.unresolved if (one.producer_id, one.epoch) == about]
        if not same:
            return report  # it is over already
        place, first = same[0]
        name, own = first.follows or self.partitions[place].name_of(first), identity(report)
        follows = "" if name == own else name
        known = (one.transactional_id for _, one in same if one.transactional_id)
        title = report.transactional_id or next(known, "")
        state.reported = [
            one._replace(transactional_id=title, follows=follows) if state.name_of(one) == own else one
            for one in state.reported
        ]
        return replace(report, transactional_id=title, follows=follows)

    def _blocked(self, one: OfTransaction, place: Place) -> tuple[Blocked, ...]:
        """The offsets that the open transaction of a producer hides, in all partitions."""
        pid = one.producer_id
        begins = {own: state.open[pid].offset for own, state in self.watched.items() if pid in state.open}
        begins[place] = min(one.offset, begins.get(place, one.offset))
        return tuple(
            Blocked(topic=topic, partition=number, first=first, end=end)
            for (topic, number), first in sorted(begins.items())
            if (end := self.partitions[topic, number].high_watermark) > first
        )

    def _start_offset(self, one: OfTransaction, place: Place) -> int:
        """The first offset of a producer's transaction as its leader has it: by this `kafka-transactions` finds it."""
        try:
            started = self.cluster.open_transactions(self._leaders.get(place, -1), place)
        except FAILURES:
            started = None
        return one.offset if started is None else started.get(one.producer_id, one.offset)


def _since(started: float) -> int:
    """The whole seconds since a moment of the monotonic clock, in milliseconds."""
    return 1000 * int(time.monotonic() - started)


def _named(places: Collection[Place]) -> str:
    """The first partitions of some, how many more there are, and the verb."""
    names = [f"{topic}-{number}" for topic, number in sorted(places)]
    return f"{first_of(names, NAMED)} {'is' if len(names) == 1 else 'are'}"


def _holds(state: PartitionState, opened: OpenTransaction) -> bool:
    """Whether a transaction is the one that holds the last stable offset back."""
    return opened.offset == state.last_stable_offset < state.high_watermark


def _why_hanging(transaction: Transaction | None, place: Place, epoch: int) -> str:
    """The reason why no coordinator will end data of an epoch on a partition; "" if one will."""
    if transaction is None:
        return "open, and no coordinator tells of a transactional id with this producer"
    if transaction.will_end(place, epoch):
        return ""
    why = f"open, and the coordinator, which has {transaction.in_words()}, will not end it"
    if decided := transaction.decision_about(epoch):
        why += f": it has {decided} the transaction of epoch {epoch}"
    elif epoch < transaction.epoch:
        why += f": epoch {epoch} is fenced, its data came late or their marker was left out"
    return why
