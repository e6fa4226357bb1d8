"""The invariants of a served cluster after every step, judged by its logs and its leaders; nothing is changed.

Logs are read once, as they grow. The fate of a transaction is taken from its markers, never from a leader's state:

- The last stable offset of a partition never goes back, and is at most the high watermark.
- A read_committed reader is given no record of a transaction that is open or aborted.
- Every marker says what the coordinator has decided. When a transaction is complete, each of its partitions has one,
  and none is left with it open.
- A group's offsets move only with committed transactions, and never back.
- The epoch that a leader knows of a producer never goes back.
- A coordinator aborts a transaction by itself once its timeout has passed, and not in its very last millisecond. The
  timeout is the one that InitProducerId has asked for. It starts with the transaction, and no restart prolongs it.
- A producer id belongs to one transactional.id, and each InitProducerId that succeeds gives a later epoch or id.
- ListOffsets finds the first record with at least a given timestamp in the part of the log that the reader may see.
- An answer has no error code that the version of its request does not know.

These hold where nobody commits offsets outside of transactions, and neither topics nor records are deleted.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from immutables import Map

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import ControlType, RecordBatch, decode_batch
from kafka_eos.formats.transaction_log import TransactionLogValue, TransactionState, decode_key, decode_value
from kafka_eos.machines.transactional_partition import ReadablePartition
from kafka_eos.server.cluster import TRANSACTION_STATE, Cluster
from kafka_eos.server.partitions import Leader

PREPARED = {TransactionState.PREPARE_COMMIT: True, TransactionState.PREPARE_ABORT: False}
COMPLETE = {TransactionState.COMPLETE_COMMIT: True, TransactionState.COMPLETE_ABORT: False}
WHOLE_LOG = 1 << 40  # bytes
E = ErrorCode
KNOWN_SINCE = {
    ("InitProducerId", E.PRODUCER_FENCED): 4,
    ("AddPartitionsToTxn", E.PRODUCER_FENCED): 2,
    ("AddOffsetsToTxn", E.PRODUCER_FENCED): 2,
    ("EndTxn", E.PRODUCER_FENCED): 2,
    ("Produce", E.PRODUCER_FENCED): 1 << 15,
    ("TxnOffsetCommit", E.PRODUCER_FENCED): 1 << 15,
    ("Produce", E.TRANSACTION_ABORTABLE): 11,
    ("TxnOffsetCommit", E.TRANSACTION_ABORTABLE): 4,
    ("TxnOffsetCommit", E.COORDINATOR_LOAD_IN_PROGRESS): 2,
}
"""API and error -> the first version whose answer may have this error. A number above all versions means never.

Kafka: KafkaApis, ReplicaManager.handleProduceAppend
"""


class Fate(StrEnum):
    """The fate of a transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


def _fate(commits: bool) -> Fate:
    return Fate.COMMITTED if commits else Fate.ABORTED


@dataclass(slots=True)
class _Decision:
    """A coordinator's decision about a transaction."""

    producer_id: int
    commits: bool
    partitions: frozenset[str]
    marked: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Followed:
    """A partition, up to the offset that was read.

    Attributes:
        leader: its leader, whichever broker that is.
        end: the offset after the part that was read.
        stable: the last stable offset.
        judged: the leader's machine that was judged last.
        fates: offset -> the fate of the transaction that the record belongs to.
        open: producer id -> the offsets of its open transaction.
        epochs: producer id -> the last epoch.
        times: offset -> the timestamp of the record or marker.
    """

    leader: Leader
    end: int = 0
    stable: int = 0
    judged: ReadablePartition | None = None
    fates: dict[int, Fate] = field(default_factory=dict)
    open: dict[int, list[int]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)


class Invariants:
    """The invariants of a cluster.

    Args:
        cluster: the cluster, which is followed from its beginning.
        group: the group whose offsets are judged.
        tell: called with a partition's name and its next marker in words.

    Attributes:
        finished: the number of complete transactions, by their fate.
    """

    def __init__(self, cluster: Cluster, group: str, tell: Callable[[str, str], None]) -> None:
        self._cluster, self._group, self._tell = cluster, group, tell
        self.finished: Counter[Fate] = Counter()
        self._followed: dict[str, _Followed] = {}
        self._decided: dict[str, _Decision] = {}  # by transactional.id, until it is complete
        self._last_decided: dict[int, _Decision] = {}  # by producer id
        self._places: Map[str, int] = Map()
        self._offsets: dict[str, int] = {}
        self._timeouts: dict[str, int] = {}  # by transactional.id, in milliseconds
        self._begun: dict[str, int] = {}  # by transactional.id, while a transaction is open
        self._given: dict[str, tuple[int, int]] = {}  # producer id and epoch, by transactional.id
        self._owners: dict[int, str] = {}  # by producer id
        self._loading: set[str] = set()
        self._loaded: dict[str, int] = {}  # when a transactional.id was loaded last, at most

    def follow(self, cluster: Cluster) -> None:
        """Follow the cluster that the same brokers are after a restart."""
        self._cluster = cluster
        for leader in cluster.leaders():
            if leader.name in self._followed:
                self._followed[leader.name].leader = leader

    @property
    def deadlines(self) -> dict[str, int]:
        """The last millisecond of each open transaction's timeout, by transactional.id."""
        return {name: begun + self._timeouts[name] for name, begun in self._begun.items()}

    def judge(self, by_itself: bool = False) -> str:
        """The invariant that a step breaks, or "". A transactional.id ends at most one transaction in a step.

        Args:
            by_itself: no client has asked for anything: time has passed, or the cluster has started.
        """
        return next(self._wrongs(by_itself), "")

    def given(self, partition: str, batch: RecordBatch) -> str:
        """The error in giving a batch to a read_committed reader, or ""."""
        fate = self._followed[partition].fates.get(batch.base_offset)
        if fate in {Fate.OPEN, Fate.ABORTED}:
            return f"a reader of {partition} is given offset {batch.base_offset} of a transaction that is {fate}"
        return ""

    def initialized(self, name: str, timeout_ms: int, producer_id: int, epoch: int) -> str:
        """The error in giving a producer id and epoch to a transactional.id, or ""."""
        self._timeouts[name] = timeout_ms
        owner = self._owners.setdefault(producer_id, name)
        before, self._given[name] = self._given.get(name, (-1, -1)), (producer_id, epoch)
        if owner != name:
            return f"producer id {producer_id} is given to {name}, and was given to {owner}"
        if (producer_id, epoch) <= before:
            return f"{name} is given producer id and epoch {producer_id, epoch} after {before}"
        return ""

    def found_since(self, partition: str, timestamp: int, committed: bool, found: tuple[int, int]) -> str:
        """The error in finding a timestamp and an offset for a timestamp, or "".

        Args:
            partition: the partition.
            timestamp: the timestamp that was asked for.
            committed: whether for a read_committed reader.
            found: timestamp and offset of the answer; -1 twice if nothing is found.
        """
        followed = self._followed[partition]
        upper = followed.stable if committed else followed.end
        records = ((at, offset) for offset, at in sorted(followed.times.items()) if at >= timestamp and offset < upper)
        first = next(records, (-1, -1))
        if found == first:
            return ""
        return f"timestamp {timestamp} is found at {found} below offset {upper} of {partition}, and is at {first}"

    def timestamp_at(self, partition: str, further: int) -> int | None:
        """The timestamp of the record at, before or after the last stable offset; None if there is none."""
        followed = self._followed[partition]
        return followed.times.get(followed.stable + further)

    def _wrongs(self, by_itself: bool) -> Iterator[str]:
        if len(self._followed) != self._cluster.partition_count:
            for leader in self._cluster.leaders():
                self._followed.setdefault(leader.name, _Followed(leader))
        changed = [each for each in self._followed.values() if each.judged is not each.leader.transactions]
        completed: list[tuple[str, bool]] = []
        for followed in changed:
            if followed.leader.topic == TRANSACTION_STATE:
                yield from self._read_decisions(followed, completed, by_itself)
        for followed in changed:
            if followed.leader.topic != TRANSACTION_STATE:
                yield from self._read(followed)
        for name, commits in completed:
            yield from self._judge_completed(name, commits)
        yield from self._judge_offsets()
        if by_itself:
            yield from self._judge_deadlines()

    @staticmethod
    def _news(followed: _Followed) -> Iterator[RecordBatch]:
        """The batches that were not read yet."""
        leader = followed.leader
        followed.judged, begin, followed.end = leader.transactions, followed.end, leader.log_end_offset
        if begin < followed.end:
            data, position = leader.store.read(begin, followed.end, WHOLE_LOG, True), 0
            while position < len(data):
                batch, position = decode_batch(data, position)
                yield batch

    # --- decisions ---------------------------------------------------------------------------------------------------

    def _read_decisions(self, followed: _Followed, completed: list[tuple[str, bool]], by_itself: bool) -> Iterator[str]:
        for batch in self._news(followed):
            for record in batch.records():
                value = decode_value(record.value)
                if value is None:
                    continue
                name = decode_key(record.key or b"").transactional_id
                if value.transaction_status is TransactionState.ONGOING:
                    self._begun.setdefault(name, batch.timestamp(record))
                elif value.transaction_status in PREPARED:
                    yield from self._decide(name, value, batch.timestamp(record) if by_itself else None)
                elif value.transaction_status in COMPLETE:
                    completed.append((name, COMPLETE[TransactionState(value.transaction_status)]))

    def _decide(self, name: str, value: TransactionLogValue, timed_out: int | None) -> Iterator[str]:
        """Note a decision, and the time at which a coordinator has made it by itself."""
        last = self.deadlines.get(name)
        self._begun.pop(name, None)
        before = self._decided.get(name)
        commits = PREPARED[TransactionState(value.transaction_status)]
        topics = value.transaction_partitions or ()
        partitions = frozenset(f"{each.topic}-{number}" for each in topics for number in each.partition_ids)
        decision = _Decision(value.producer_id, commits, partitions)
        self._decided[name] = self._last_decided[value.producer_id] = decision
        if before is not None and before.commits != commits:
            yield f"the coordinator of {name} had decided that it is {_fate(before.commits)}, and decides otherwise"
        if timed_out is not None and commits:
            yield f"the coordinator of {name} commits a transaction that nobody has ended"
        if timed_out is not None and last is not None and timed_out <= last:
            yield f"the transaction of {name} times out {last - timed_out + 1} ms before its timeout has passed"

    def _judge_deadlines(self) -> Iterator[str]:
        """Every open transaction is within its timeout, plus the interval at which a coordinator looks for late ones.

        A coordinator does not look before it has loaded.
        """
        now, coordinators = self._cluster.now, self._cluster.transactions
        loading = {name for name in self._begun if coordinators.is_loading(name)}
        self._loaded |= dict.fromkeys(self._loading - loading, now)
        self._loading = loading
        looked = now - self._cluster.settings.timeout_check_ms + 1
        for name, last in self.deadlines.items():
            late = looked - max(last, self._loaded.get(name, last))
            if late > 0 and name not in loading:
                yield f"the transaction of {name} is open {late} ms after its timeout has passed"

    def _judge_completed(self, name: str, commits: bool) -> Iterator[str]:
        decision = self._decided.pop(name, None)
        if decision is None or decision.commits != commits:
            yield f"the transaction of {name} is complete as {_fate(commits)}, which nobody has decided"
            return
        self.finished[_fate(commits)] += 1
        for partition in sorted(decision.partitions - decision.marked):
            yield f"the transaction of {name} is complete, and {partition} has no marker"
        for partition, followed in self._followed.items():
            if decision.producer_id in followed.open:
                yield f"the transaction of {name} is complete, and open in {partition}"

    # --- partitions --------------------------------------------------------------------------------------------------

    def _read(self, followed: _Followed) -> Iterator[str]:
        leader = followed.leader
        for batch in self._news(followed):
            followed.times |= {batch.offset(record): batch.timestamp(record) for record in batch.records()}
            if batch.producer_id < 0:
                continue
            yield from self._judge_epoch(followed, batch.producer_id, batch.producer_epoch)
            if batch.is_control:
                yield from self._judge_marker(followed, batch)
            elif batch.is_transactional:
                offsets = range(batch.base_offset, batch.last_offset + 1)
                followed.open.setdefault(batch.producer_id, []).extend(offsets)
                followed.fates.update(dict.fromkeys(offsets, Fate.OPEN))
        for producer_id, producer in leader.transactions.log.producers.items():
            yield from self._judge_epoch(followed, producer_id, producer.epoch)
        before, followed.stable = followed.stable, leader.last_stable_offset
        if followed.stable < before:
            yield f"the last stable offset of {leader.name} goes back from {before} to {followed.stable}"
        if followed.stable > leader.high_watermark:
            yield (
                f"the last stable offset of {leader.name} is {followed.stable}, "
                f"past the high watermark {leader.high_watermark}"
            )

    @staticmethod
    def _judge_epoch(followed: _Followed, producer_id: int, epoch: int) -> Iterator[str]:
        before, followed.epochs[producer_id] = followed.epochs.get(producer_id, -1), epoch
        if epoch < before:
            yield f"the epoch of producer {producer_id} at {followed.leader.name} goes back from {before} to {epoch}"

    def _judge_marker(self, followed: _Followed, batch: RecordBatch) -> Iterator[str]:
        name = followed.leader.name
        control = batch.control_record()
        fate = _fate(control is not None and control.control_type is ControlType.COMMIT)
        self._tell(name, f"{fate}: producer {batch.producer_id}, epoch {batch.producer_epoch}")
        followed.fates.update(dict.fromkeys(followed.open.pop(batch.producer_id, ()), fate))
        decision = self._last_decided.get(batch.producer_id)
        if decision is None or _fate(decision.commits) is not fate:
            decided = "nothing" if decision is None else _fate(decision.commits)
            yield f"the marker of producer {batch.producer_id} in {name} says {fate}, decided is {decided}"
        else:
            decision.marked.add(name)

    # --- offsets of the group ----------------------------------------------------------------------------------------

    def _judge_offsets(self) -> Iterator[str]:
        group = self._cluster.groups.known.get(self._group)
        if group is None or group.machine.committed is self._places:
            return
        before, self._places = self._places, group.machine.committed
        fates = self._followed[self._cluster.offsets_partition(self._group).name].fates
        for key, place in self._places.items():
            if before.get(key) == place:
                continue
            fate = fates.get(place)
            if fate is not Fate.COMMITTED:
                yield f"the offset of {key} moves with a transaction that is {fate or 'none'}"
            offset = group.values[place].offset
            if offset < self._offsets.get(key, 0):
                yield f"the offset of {key} goes back from {self._offsets[key]} to {offset}"
            self._offsets[key] = offset


def unknown_error(api: str, version: int, answer: object) -> str:
    """The error in answering a request of a version with an error that this version does not know, or ""."""
    for error in _errors(answer):
        if version < KNOWN_SINCE.get((api, error), 0):
            return f"{api} of version {version} is answered with {error.name}, which it does not know"
    return ""


def _errors(answer: object) -> Iterator[ErrorCode]:
    if isinstance(answer, list):
        for each in answer:
            yield from _errors(each)
    elif isinstance(answer, dict):
        for name, value in answer.items():
            if name.endswith("ErrorCode"):
                yield ErrorCode(value)
            else:
                yield from _errors(value)
