"""The invariants of a served cluster: each fails under a run with another rule or with a planted fault."""

from dataclasses import replace

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record
from kafka_eos.formats.transaction_log import TopicPartitions, TransactionLogKey, TransactionLogValue, TransactionState
from kafka_eos.machines.group_coordinator import GroupCoordinator
from kafka_eos.machines.leader import LeaderRules
from kafka_eos.machines.producer_state import Log
from kafka_eos.machines.transactional_partition import ReadablePartition
from kafka_eos.machines.transactions import GuardRules
from kafka_eos.server.cluster import CONSUMER_OFFSETS, Broker, Cluster, Machines
from kafka_eos.server.groups import CommittedOffset
from kafka_eos.server.partitions import Leader
from kafka_eos.server.transactions import ServedCoordinator
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.walks.served_invariants import Fate, Invariants
from kafka_eos_checks.walks.whole import run_whole

NOW = 1_700_000_000_000
GROUP, TOPIC, PRODUCER = "group", "output", 7


class ReadsPastTheEnd(ReadablePartition):
    """A leader whose last stable offset is after the high watermark."""

    __slots__ = ()

    def last_stable_offset(self) -> int:
        return self.high_watermark + 1


class RefusesMarkers(ReadablePartition):
    """A leader that takes no markers."""

    __slots__ = ()

    def marker_error(self, *_: object) -> ErrorCode:
        return ErrorCode.REQUEST_TIMED_OUT


def partitions(**overrides: str) -> Machines:
    return Machines(leaders=LeaderRules(partition=mutated(ReadablePartition, overrides)))  # type: ignore[arg-type]


def coordinators(**overrides: str) -> Machines:
    return Machines(coordinator=mutated(ServedCoordinator, overrides))  # type: ignore[arg-type]


def groups(**overrides: str) -> Machines:
    return Machines(group=mutated(GroupCoordinator, overrides))  # type: ignore[arg-type]


NO_EPOCH_CHECKED = LeaderRules(
    sequences=mutated(Log, {"IsFenced": "NoFencing"}),  # type: ignore[arg-type]
    partition=mutated(ReadablePartition, {"IsOldBatch": "AnyBatchEpoch"}),  # type: ignore[arg-type]
    guards=mutated(GuardRules, {"DataError": "DataOfAnyEpoch"}),  # type: ignore[arg-type]
    verification=False,
)
NO_MARKER_WAITED_FOR = Machines(
    leaders=LeaderRules(partition=RefusesMarkers),
    coordinator=mutated(ServedCoordinator, {"MayComplete": "CompletesBeforeMarkers"}),  # type: ignore[arg-type]
)


@pytest.mark.parametrize(
    ("machines", "wrong"),
    [
        (partitions(FirstUnstableOffset="LastUnstableOffset"), "the last stable offset of"),
        (Machines(leaders=LeaderRules(partition=ReadsPastTheEnd)), "past the high watermark"),
        (partitions(LastStableOffset="HighWatermarkOnly"), "of a transaction that is open"),
        (partitions(IsIndexed="NothingIndexed"), "of a transaction that is aborted"),
        (coordinators(MarkerCommits="AbortAfterFailedMarker"), "says aborted, decided is committed"),
        (NO_MARKER_WAITED_FOR, "has no marker"),
        (groups(CommittedAtWrite="PendingIsFound"), "moves with a transaction that is open"),
        (groups(CommittedAtMarker="MaterialisedOnAbort"), "moves with a transaction that is aborted"),
        (Machines(leaders=NO_EPOCH_CHECKED), "the epoch of producer"),
    ],
)
def test_a_run_with_another_rule_breaks_an_invariant(machines: Machines, wrong: str) -> None:
    assert any(wrong in run_whole(seed, machines).wrong for seed in range(40))


# --- planted faults --------------------------------------------------------------------------------------------------


class Planted:
    """A cluster with a planted record that no machine would write."""

    def __init__(self) -> None:
        self.cluster = Cluster([Broker(1, "127.0.0.1", 9092)], now=NOW, seed=1)
        self.told: list[str] = []
        self.invariants = Invariants(self.cluster, GROUP, lambda partition, what: self.told.append(partition + what))
        [self.output] = self.cluster.create_topic(TOPIC, 1).partitions
        assert self.judge() == ""

    def judge(self) -> str:
        return self.invariants.judge()

    def decides(self, state: TransactionState, *topics: TopicPartitions) -> str:
        self.appends(self.state(state, *topics))
        return self.judge()

    def state(self, state: TransactionState, *topics: TopicPartitions) -> bytes:
        return TransactionLogValue(
            producer_id=PRODUCER,
            producer_epoch=0,
            transaction_timeout_ms=1,
            transaction_status=state,
            transaction_partitions=topics,
            transaction_last_update_timestamp_ms=NOW,
            transaction_start_timestamp_ms=NOW,
        ).encode()

    def appends(self, value: bytes) -> None:
        key = TransactionLogKey(transactional_id="a").encode()
        self.cluster.state_partition("a").append_records([Record(key=key, value=value)], NOW)

    def writes(self, leader: Leader, epoch: int = 0) -> str:
        ticket = leader.start_verification(PRODUCER, epoch, 0, 1)
        assert leader.append_records([Record(value=b"0")], NOW, PRODUCER, epoch, ticket).error is ErrorCode.NONE
        return self.judge()

    def marks(self, leader: Leader, commits: bool = True) -> str:
        assert leader.append_marker(PRODUCER, 0, commits, 0, 1, NOW) is ErrorCode.NONE
        return self.judge()

    def commits_offset(self, offset: int) -> str:
        offsets = [("input", 0, CommittedOffset(offset, -1, "", NOW))]
        leader = self.cluster.offsets_partition(GROUP)
        ticket = leader.start_verification(PRODUCER, 0, 0, 1)
        written = self.cluster.groups.commit_in_transaction(GROUP, offsets, (PRODUCER, 0), ticket)
        assert written.error is ErrorCode.NONE
        added = TopicPartitions(topic=CONSUMER_OFFSETS, partition_ids=(leader.partition,))
        self.decides(TransactionState.PREPARE_COMMIT, added)
        assert self.cluster.write_marker(leader.name, PRODUCER, 0, True, 0, 1) is ErrorCode.NONE
        return self.decides(TransactionState.COMPLETE_COMMIT)


OUTPUT = TopicPartitions(topic=TOPIC, partition_ids=(0,))


@pytest.fixture
def planted() -> Planted:
    return Planted()


def test_a_transaction_that_ends_as_it_was_decided_breaks_nothing(planted: Planted) -> None:
    assert planted.writes(planted.output) == ""
    assert planted.decides(TransactionState.PREPARE_COMMIT, OUTPUT) == ""
    assert planted.marks(planted.output) == ""
    assert planted.decides(TransactionState.COMPLETE_COMMIT) == ""
    assert planted.invariants.finished == {Fate.COMMITTED: 1}
    assert planted.told == [f"{TOPIC}-0committed: producer {PRODUCER}, epoch 0"]


def test_a_changed_decision_is_detected(planted: Planted) -> None:
    planted.decides(TransactionState.PREPARE_COMMIT, OUTPUT)
    assert "decides otherwise" in planted.decides(TransactionState.PREPARE_ABORT, OUTPUT)


def test_a_coordinator_that_commits_by_itself_is_detected(planted: Planted) -> None:
    assert planted.invariants.initialized("a", 1, PRODUCER, 0) == ""
    planted.decides(TransactionState.ONGOING, OUTPUT)
    planted.appends(planted.state(TransactionState.PREPARE_COMMIT, OUTPUT))
    assert "commits a transaction that nobody has ended" in planted.invariants.judge(by_itself=True)


def test_records_after_a_tombstone_of_the_same_batch_are_judged(planted: Planted) -> None:
    keys = [TransactionLogKey(transactional_id=name).encode() for name in ("gone", "a")]
    values = [None, planted.state(TransactionState.COMPLETE_COMMIT)]
    records = [Record(key=key, value=value) for key, value in zip(keys, values, strict=True)]
    planted.cluster.state_partition("a").append_records(records, NOW)
    assert "nobody has decided" in planted.judge()


def test_a_completion_without_decision_is_detected(planted: Planted) -> None:
    assert "nobody has decided" in planted.decides(TransactionState.COMPLETE_COMMIT)


def test_a_completion_that_contradicts_the_decision_is_detected(planted: Planted) -> None:
    planted.decides(TransactionState.PREPARE_COMMIT)
    assert "complete as aborted, which nobody" in planted.decides(TransactionState.COMPLETE_ABORT)


def test_a_marker_without_decision_is_detected(planted: Planted) -> None:
    planted.writes(planted.output)
    assert "says committed, decided is nothing" in planted.marks(planted.output)


def test_a_complete_transaction_without_a_marker_is_detected(planted: Planted) -> None:
    planted.decides(TransactionState.PREPARE_COMMIT, OUTPUT)
    assert f"{TOPIC}-0 has no marker" in planted.decides(TransactionState.COMPLETE_COMMIT)


def test_a_complete_transaction_that_is_open_in_an_unadded_partition_is_detected(planted: Planted) -> None:
    planted.writes(planted.output)
    planted.decides(TransactionState.PREPARE_COMMIT)
    assert f"open in {TOPIC}-0" in planted.decides(TransactionState.COMPLETE_COMMIT)


def test_an_epoch_that_a_leader_forgets_is_detected(planted: Planted) -> None:
    planted.writes(planted.output, epoch=3)
    log = planted.output.transactions.log
    older = replace(log.producers[PRODUCER], epoch=2)
    planted.output.transactions = replace(
        planted.output.transactions, log=replace(log, producers=log.producers.set(PRODUCER, older))
    )
    assert "goes back from 3 to 2" in planted.judge()


def test_an_offset_that_goes_back_is_detected(planted: Planted) -> None:
    assert planted.commits_offset(4) == ""
    assert planted.commits_offset(6) == ""
    assert "the offset of input-0 goes back from 6 to 5" in planted.commits_offset(5)


def test_an_offset_that_moves_outside_of_transactions_is_detected(planted: Planted) -> None:
    planted.cluster.groups.commit(GROUP, [("input", 0, CommittedOffset(1, -1, "", NOW))])
    assert "moves with a transaction that is none" in planted.judge()


def test_a_producer_id_and_epoch_that_are_none_or_were_given_before_are_detected(planted: Planted) -> None:
    initialized = planted.invariants.initialized
    assert initialized("b", 1, -1, -1).startswith("b is given producer id and epoch (-1, -1)")
    assert initialized("a", 1, PRODUCER, 0) == ""
    assert "after (7, 0)" in initialized("a", 1, PRODUCER, 0)
    assert initialized("a", 1, PRODUCER, 1) == ""
    assert "was given to a" in initialized("c", 1, PRODUCER, 2)
