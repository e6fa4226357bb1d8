"""Follows a cluster: reads what is new, judges it, and asks the coordinators about what stays open.

A transaction *hangs* if no coordinator will end it. It is looked for as ``kafka-transactions find-hanging`` does, but
without waiting for the longest timeout that a transaction may have: data are open on a partition; then the coordinator
says that it will not end them; then the partition is read again up to its end, and they are still open. A coordinator
writes all markers before it says that a transaction is complete, and knows of a partition before data are written to
it, so nothing that goes its usual way is seen like this. While a coordinator moves, none may know of its transactions:
where no coordinator tells of a producer they are asked twice, and not at all while one of them is without a leader.

The *last stable offset lags* if a transaction holds it back for longer than the watcher was told to accept: readers of
committed data see nothing behind it, whoever wrote it.

A transaction is *torn* if it was committed on a partition and aborted on another one. Markers tell that by themselves
where each transaction has an epoch of its own, one below its markers' (transaction version 2); an epoch of version 1
names many transactions, and nothing is said of them. A producer's last transactions are remembered, so partitions may
be read that far apart.

KIP:   KIP-664, KIP-890
Kafka: TransactionsCommand.FindHangingTransactionsCommand
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.record_batch import ControlType
from kafka_eos.transaction_log import TOPIC as COORDINATOR_TOPIC
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.transactions import HANGING, TORN
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
from kafka_eos_checks.watch.state import CUT, LAGS, Ending, OpenTransaction, PartitionState, partition_from_json

WAIT_MS = 500  # for anything new, all brokers together
REFRESH_MS = 10_000  # between looks for new topics and leaders
CHECK_MS = 2_000  # between questions to the coordinators
RETRY_MS = 1_000  # before a partition is asked for again that could not be read
LAST_TRANSACTIONS = 3  # of a producer, whose decisions are remembered
MOST_PRODUCERS = 10_000  # of which decisions are remembered: those that ended a transaction last

Tell = Callable[[str], None]
Decisions = dict[int, dict[ControlType, tuple[Place, int]]]  # by marker epoch and decision, a partition and offset


class AnotherCluster(ValueError):  # noqa: N818 - named for what is wrong
    """A checkpoint that was made of another cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is watched, and how patiently.

    Attributes:
        topics: only these; all if there are none.
        from_start: whether partitions are read from their first offset, instead of their last stable one.
        hanging_after_ms: how old an open transaction is before the coordinators are asked about it.
        lag_after_ms: how long a transaction may hold the last stable offset back.
        check_ms: between questions to the coordinators.
    """

    topics: frozenset[str] = frozenset()
    from_start: bool = False
    hanging_after_ms: int = 10_000
    lag_after_ms: int = 60_000
    check_ms: int = CHECK_MS


@dataclass(frozen=True, slots=True)
class _Suspect:
    """An open transaction, why no coordinator will end it, how often they said so, and how often they have to."""

    opened: OpenTransaction
    why: str
    answers: int
    needed: int


@dataclass(slots=True)
class Watcher:
    """Everything that is known of a cluster.

    Attributes:
        cluster: who is asked.
        options: what is watched.
        tell: takes one line of what a person should know and is no violation.
        cluster_id: of the cluster, once it is known.
        partitions: what is known of each.
        batches: how many were read.
        unread: partitions that could not be read, and when they are asked for again.
        heard: whether any broker answered in the last poll.
        decided: by producer id, how its last transactions ended, as far as their epochs name them.
    """

    cluster: Cluster
    options: Options
    tell: Tell
    cluster_id: str = ""
    partitions: dict[Place, PartitionState] = field(default_factory=dict)
    batches: int = 0
    unread: dict[Place, int] = field(default_factory=dict)
    heard: bool = False
    decided: dict[int, Decisions] = field(default_factory=dict)
    _initial: set[Place] = field(default_factory=set)
    _leaders: dict[Place, int] = field(default_factory=dict)
    _refreshed_ms: int | None = None
    _checked_ms: int | None = None
    _suspects: dict[tuple[Place, int], _Suspect] = field(default_factory=dict)
    _all_led: bool = True  # every partition of __transaction_state has a leader
    _busy: bool = True
    _starved: set[Place] = field(default_factory=set)
    _troubles: set[str] = field(default_factory=set)

    def to_json(self) -> dict[str, Any]:
        """What a restart has to know."""
        rows = [state.to_json() for state in self.partitions.values()]
        decided = [
            [pid, epoch, decision.name, *place, offset]
            for pid, epochs in self.decided.items()
            for epoch, own in epochs.items()
            for decision, (place, offset) in own.items()
        ]
        return {"cluster_id": self.cluster_id, "partitions": rows, "decided": decided}

    def resume(self, row: dict[str, Any]) -> None:
        """Go on from what :meth:`to_json` told."""
        self.cluster_id = row["cluster_id"]
        states = map(partition_from_json, row["partitions"])
        self.partitions = {(state.topic, state.partition): state for state in states}
        for pid, epoch, decision, topic, number, offset in row["decided"]:
            own = self.decided.setdefault(pid, {}).setdefault(epoch, {})
            own[ControlType[decision]] = ((topic, number), offset)

    @property
    def drained(self) -> bool:
        """Whether everything was read that there is, and can be read."""
        return all(self.partitions[place].drained for place in self._leaders if self._is_read(place))

    def _is_read(self, place: Place) -> bool:
        return place in self.partitions and place not in self.unread

    def poll(self, now_ms: int) -> list[Finding]:
        """Read once from every broker and judge; what was found, in order of partition and offset.

        Args:
            now_ms: the time, in milliseconds since the epoch.

        Raises:
            ClusterFailed: no broker answers.
            AnotherCluster: the cluster is not the one of the checkpoint.
            Unsupported: the brokers are too old.
        """
        if self._refreshed_ms is None or now_ms - self._refreshed_ms >= REFRESH_MS:
            self._refresh(now_ms)
        by_node: dict[int, dict[Place, int]] = defaultdict(dict)
        self.unread = {place: until_ms for place, until_ms in self.unread.items() if until_ms > now_ms}
        unled = [place for place, node in self._leaders.items() if node < 0]
        self._unreadable(unled, "no leader", now_ms)
        for place in sorted(self._leaders, key=lambda place: place not in self._starved):
            if self._is_read(place):
                by_node[self._leaders[place]][place] = self.partitions[place].position
        wait_ms = 0 if self._busy else WAIT_MS // max(len(by_node), 1)
        self._busy = self.heard = False
        found: list[Finding] = []
        read: set[Place] = set()
        for node, positions in by_node.items():
            try:
                answers = self.cluster.fetch(node, positions, wait_ms)
            except FAILURES as error:
                self._unreadable(positions, str(error), now_ms)
                continue
            self.heard = True
            for place, answer in answers.items():
                if place in positions:
                    found += self._take(node, place, answer, now_ms)
                    read.add(place)
        found += self._hanging(read)
        if self._checked_ms is None or now_ms - self._checked_ms >= self.options.check_ms:
            found += self._check(now_ms)
        return sorted(found, key=Finding.sort_key)

    # --- partitions --------------------------------------------------------------------------------------------------

    def _refresh(self, now_ms: int) -> None:
        topics = self.cluster.topics()
        if self.cluster_id and topics.cluster_id != self.cluster_id:
            raise AnotherCluster(f"the checkpoint is of cluster {self.cluster_id}, and this is {topics.cluster_id}")
        self.cluster_id, self._refreshed_ms = topics.cluster_id, now_ms
        self._all_led = all(node >= 0 for (topic, _), node in topics.leaders.items() if topic == COORDINATOR_TOPIC)
        wanted = self.options.topics
        self._leaders = {place: node for place, node in topics.leaders.items() if not wanted or place[0] in wanted}
        for missing in sorted(wanted - topics.ids.keys()):
            self._trouble(f"topic {missing} is not there, or may not be described")
        for place in [place for place in self.partitions if self._is_gone(place, topics)]:
            del self.partitions[place]
        if not self.partitions:
            self._initial |= self._leaders.keys()
        self._begin([place for place in self._leaders if place not in self.partitions], topics, now_ms)

    def _is_gone(self, place: Place, topics: Topics) -> bool:
        """Whether a topic was deleted; one that is only not led at the moment is still there."""
        if place[0] in topics.unsure:
            return False
        return place not in topics.leaders or topics.ids[place[0]] != self.partitions[place].topic_id

    def _begin(self, places: Collection[Place], topics: Topics, now_ms: int) -> None:
        """Begin to watch partitions: those that came since the watcher began, from their start."""
        by_node: dict[tuple[int, bool], list[Place]] = defaultdict(list)
        for place in places:
            by_node[self._leaders[place], self.options.from_start or place not in self._initial].append(place)
        for (node, from_start), own in by_node.items():
            where = (EARLIEST, READ_UNCOMMITTED) if from_start else (LATEST, READ_COMMITTED)
            try:
                offsets = self.cluster.offsets(node, own, *where)
            except FAILURES as error:
                self._unreadable(own, str(error), now_ms)
                continue
            for (topic, number), offset in offsets.items():
                self.partitions[topic, number] = PartitionState(
                    topic=topic, partition=number, topic_id=topics.ids[topic], position=offset
                )

    def _take(self, node: int, place: Place, answer: Fetched, now_ms: int) -> list[Finding]:
        state = self.partitions[place]
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return list(self._relocate(node, state))
        if answer.error:
            known = answer.error in list(ErrorCode)
            self._unreadable([place], ErrorCode(answer.error).name if known else f"error {answer.error}", now_ms)
            return []
        state.high_watermark, state.last_stable_offset = answer.high_watermark, answer.last_stable_offset
        count, found, endings = state.take(answer.records, now_ms)
        found += (torn for ending in endings for torn in self._torn(state, ending))
        self.batches += count
        self._busy = self._busy or (count > 0 and not state.drained)
        if not count and not state.drained:  # its next batch had no room behind those of other partitions
            self._starved.add(place)
        else:
            self._starved.discard(place)
        return found

    def _relocate(self, node: int, state: PartitionState) -> Iterator[Finding]:
        """The offset to read next is not there: it was deleted, or the log is shorter than what was read of it."""
        place = state.topic, state.partition
        try:
            first = self.cluster.offsets(node, [place], EARLIEST, READ_UNCOMMITTED).get(place)
            last = self.cluster.offsets(node, [place], LATEST, READ_UNCOMMITTED).get(place)
        except FAILURES as error:
            self._trouble(f"broker {node} is not read: {error}")
            return
        if first is None or last is None:
            return
        if state.position < first:
            gone = f"offsets {state.position} to {first - 1}"
            self.tell(f"{place[0]}-{place[1]}: {gone} were deleted before they were read")
            state.skip_to(first)
        elif state.position > last:
            yield state.finding(CUT, last, f"offset {state.position - 1} was read before, and now the log ends here")
            state.restart_at(last)

    # --- transactions ------------------------------------------------------------------------------------------------

    def _hanging(self, read: Collection[Place]) -> Iterator[Finding]:
        """Those of which a coordinator had said that it will not end them, and which a later read does not end."""
        for (place, pid), suspect in list(self._suspects.items()):
            state, opened = self.partitions.get(place), suspect.opened
            if state is None or state.open.get(pid) is not opened:
                del self._suspects[place, pid]
            elif place in read and state.drained and suspect.answers >= suspect.needed:
                del self._suspects[place, pid]
                if state.last_stable_offset <= opened.offset:
                    opened.hangs = True
                    yield state.finding(HANGING, opened.offset, suspect.why, (pid, opened.epoch))

    def _torn(self, state: PartitionState, ending: Ending) -> Iterator[Finding]:
        """Remember how a transaction ended on a partition, and see whether it ended otherwise on another one."""
        epochs = self.decided.pop(ending.producer_id, {})
        own = epochs.setdefault(ending.epoch, {})
        if own and ending.decision not in own:
            [((topic, number), offset)] = own.values()
            [other] = own
            evidence = "the transaction of this epoch: "
            evidence += f"{ending.decision.name} here, {other.name} at {topic}-{number} offset {offset}"
            yield state.finding(TORN, ending.offset, evidence, (ending.producer_id, ending.epoch))
        own.setdefault(ending.decision, ((state.topic, state.partition), ending.offset))
        if len(epochs) > LAST_TRANSACTIONS:
            del epochs[min(epochs)]
        self.decided[ending.producer_id] = epochs
        if len(self.decided) > MOST_PRODUCERS:
            del self.decided[next(iter(self.decided))]

    def _check(self, now_ms: int) -> Iterator[Finding]:
        """Ask the coordinators about transactions that are open for long, and judge the last stable offsets."""
        asked = [
            (place, pid, opened)
            for place, state in self.partitions.items()
            if state.drained
            for pid, opened in state.open.items()
            if self._is_old(state, opened, now_ms)
        ]
        if not asked:
            return
        self._checked_ms = now_ms
        known = self.cluster.transactions_of({pid for _, pid, _ in asked}) if self._all_led else None
        if known is None:
            self._trouble("the coordinators do not tell of transactions now")
        for place, pid, opened in asked:
            transaction = None if known is None else known.get(pid)
            why = "" if known is None else _why_hanging(transaction, place, opened.epoch)
            if not why:
                self._suspects.pop((place, pid), None)
            elif not opened.hangs:
                before = self._suspects.get((place, pid))
                answers = 1 + (before.answers if before is not None and before.opened is opened else 0)
                needed = 2 if transaction is None else 1
                self._suspects[place, pid] = _Suspect(opened, why, answers, needed)
            yield from self._lag(self.partitions[place], pid, opened, transaction, now_ms)

    def _is_old(self, state: PartitionState, opened: OpenTransaction, now_ms: int) -> bool:
        if now_ms - opened.seen_ms < self.options.hanging_after_ms:
            return False
        return not opened.hangs or (not opened.lags and _holds(state, opened))

    def _lag(
        self, state: PartitionState, pid: int, opened: OpenTransaction, transaction: Transaction | None, now_ms: int
    ) -> Iterator[Finding]:
        place = state.topic, state.partition
        own = transaction is not None and transaction.will_end(place, opened.epoch) and transaction.start_ms > 0
        began_ms = min(opened.seen_ms, transaction.start_ms) if own and transaction else opened.seen_ms
        held_ms = now_ms - began_ms
        if opened.lags or not _holds(state, opened) or held_ms < self.options.lag_after_ms:
            return
        opened.lags = True
        behind = state.high_watermark - opened.offset
        holder = transaction.in_words() if transaction is not None else "one that no coordinator tells of"
        evidence = f"{behind} offsets up to {state.high_watermark} are held back for {held_ms // 1000} s by {holder}"
        if own and transaction:
            evidence += f", timeout {transaction.timeout_ms} ms"
        yield state.finding(LAGS, opened.offset, evidence, (pid, opened.epoch))

    def _unreadable(self, places: Collection[Place], why: str, now_ms: int) -> None:
        """Leave partitions alone for a moment, and see whether their leaders have moved."""
        for topic, number in places:
            self.unread[topic, number] = now_ms + RETRY_MS
            self._refreshed_ms = None
            self._trouble(f"{topic}-{number} is not read: {why}")

    def _trouble(self, line: str) -> None:
        """Tell of something once."""
        if line not in self._troubles:
            self._troubles.add(line)
            self.tell(line)


def _holds(state: PartitionState, opened: OpenTransaction) -> bool:
    """Whether a transaction is the one that holds the last stable offset back."""
    return opened.offset == state.last_stable_offset < state.high_watermark


def _why_hanging(transaction: Transaction | None, place: Place, epoch: int) -> str:
    """Why no coordinator will end data of an epoch on a partition; "" if one will."""
    if transaction is None:
        return "open, and no coordinator tells of a transactional id with this producer"
    if transaction.will_end(place, epoch):
        return ""
    why = f"open, and the coordinator, which has {transaction.in_words()}, will not end it"
    if epoch < transaction.epoch:
        why += f": epoch {epoch} is fenced, its data came late"
    return why
