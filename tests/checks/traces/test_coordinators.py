"""Recorded coordinator logs and partitions as traces of the spec, judged here by the reference alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_eos.formats.record_batch import ControlType, Record, build_batch
from kafka_eos.formats.transaction_log import TopicPartitions, TransactionLogValue, TransactionState
from kafka_eos.machines.consumer import Consumer
from kafka_eos.machines.transaction_coordinator import Constants, TransactionCoordinator, TransactionMetadata
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.kit.recording import kept_recording, kept_recordings, unpack, unpacked
from kafka_eos_checks.models.registry import Registry
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.traces import command, coordinators, leaders
from kafka_eos_checks.traces.coordinators import Recorded, StateRecord, UnreadableLog, WrittenBatch, WrittenMarker
from kafka_eos_checks.traces.leaders import LeaderOfTraces
from kafka_eos_checks.traces.validation import Judgement, Trace, replay, replayed

S = TransactionState
ONE, TWO = frozenset({1}), frozenset({1, 2})


def value(state: TransactionState, epoch: int, *, version: int = 2, open_ms: int = 0) -> TransactionLogValue:
    partitions = (
        (TopicPartitions(topic="t", partition_ids=(0,)),)
        if state in {S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT}
        else ()
    )
    return TransactionLogValue(
        producer_id=7,
        producer_epoch=epoch,
        transaction_timeout_ms=1000,
        transaction_status=state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=open_ms,
        transaction_start_timestamp_ms=0,
        client_transaction_version=version,
    )


def recorded(
    states: list[TransactionLogValue | None], markers: list[WrittenMarker | WrittenBatch], reigns: list[int]
) -> Recorded:
    records = [StateRecord(reign, offset, v) for offset, (v, reign) in enumerate(zip(states, reigns, strict=True))]
    return Recorded({"id": records}, {"t-0": list(markers)})


def judge(logs: Recorded, versions: frozenset[int] = TWO, release: str = "") -> Judgement:
    base = command.models_of(Registry(), release).coordinators
    (trace,) = coordinators.coordinator_traces(logs, leaves_out=coordinators.LEAVES_OUT in base.overrides)
    model = coordinators.coordinator_model(base, [trace], versions=versions)
    return replay(model, mutated(TransactionCoordinator, base.overrides), trace)


COMMITTED = [value(S.EMPTY, 0), value(S.ONGOING, 0), value(S.PREPARE_COMMIT, 1), value(S.COMPLETE_COMMIT, 1)]
MARKER = WrittenMarker(7, 1, ControlType.COMMIT, 0, 3)


def test_a_committed_transaction_of_version_2_is_accepted() -> None:
    assert judge(recorded(list(COMMITTED), [MARKER], [0] * 4)).found == "accepted"


def test_decided_transactions_are_counted_and_tombstones_are_none() -> None:
    again = [value(S.EMPTY, 0), value(S.ONGOING, 0), value(S.PREPARE_ABORT, 1), value(S.COMPLETE_ABORT, 1)]
    assert recorded([*COMMITTED, None, *again, None], [], [0] * 10).transactions == 2


def test_a_marker_is_told_with_its_place_in_the_log() -> None:
    (trace,) = coordinators.coordinator_traces(recorded(list(COMMITTED), [MARKER], [0] * 4))
    assert "COMMIT marker of epoch 1 at t-0 offset 3" in [step.text for step in trace.steps]


def test_a_transaction_that_is_completed_without_its_marker_is_rejected() -> None:
    judgement = judge(recorded(list(COMMITTED), [], [0] * 4))
    assert judgement.found.startswith("rejected")
    assert "CompleteTransaction is not enabled" in judgement.explanation
    assert judge(recorded(list(COMMITTED), [], [0] * 4), ONE, "3.9").found.startswith("rejected")


def test_kafka_4_3_completes_a_transaction_without_the_marker_of_a_partition_that_has_no_leader() -> None:
    assert judge(recorded(list(COMMITTED), [], [0] * 4), release="4.3").found == "accepted"
    aborts = MARKER._replace(decision=ControlType.ABORT)
    assert judge(recorded(list(COMMITTED), [aborts], [0] * 4), release="4.3").found == "rejected at event 10"


def judged(logs: Recorded, release: str) -> dict[str, Judgement]:
    """By transactional id."""
    return {
        name: judge(Recorded({name: records}, logs.entries), ONE, release) for name, records in logs.records.items()
    }


@pytest.mark.parametrize(("name", "release"), [("no-leader", "4.3"), ("no-leader-3.9", "3.9"), ("no-leader-3.9", "")])
def test_the_recorded_runs_without_a_leader_are_their_releases_own(name: str, release: str) -> None:
    with unpacked(kept_recording(name)) as folder:
        logs = coordinators.read_recorded(folder / "brokers")
    assert [each.found for each in judged(logs, release).values()] == ["accepted"] * 2


def test_the_recorded_runs_of_4_3_without_a_leader_are_not_the_repaired_kafkas() -> None:
    with unpacked(kept_recording("no-leader")) as folder:
        logs = coordinators.read_recorded(folder / "brokers")
    for found in judged(logs, "").values():
        assert found.found.startswith("rejected")
        assert "CompleteTransaction is not enabled" in found.explanation
    base = command.models_of(Registry(), "4.3").coordinators
    wrong = coordinators.spoiled(logs, leaves_out=True)
    assert "a marker is missing" not in wrong, "which is no fault by this rule"
    model = coordinators.coordinator_model(base, [trace for trace, _ in wrong.values()], versions=TWO)
    machine = mutated(TransactionCoordinator, base.overrides)
    assert len(wrong) == 3
    for trace, index in wrong.values():
        assert replay(model, machine, trace).reference_index == index


def test_a_marker_that_no_transaction_explains_is_rejected() -> None:
    stray = WrittenMarker(7, 1, ControlType.COMMIT, 0, 9)
    data = WrittenBatch(7, 1, "transactional", 8)
    judgement = judge(recorded(list(COMMITTED), [MARKER, data, stray], [0] * 4))
    assert "of no transaction" in judgement.explanation
    other = stray._replace(decision=ControlType.ABORT)
    assert "of no transaction" in judge(recorded(list(COMMITTED), [MARKER, other], [0] * 4)).explanation


def test_unused_markers_are_told_by_partition_and_then_in_log_order() -> None:
    rows = [("t-1", 1, 3), ("t-0", 9, 4), ("t-0", 2, 7)]
    markers = [(name, WrittenMarker(7, epoch, ControlType.COMMIT, 0, offset)) for name, epoch, offset in rows]
    left = coordinators.MarkersOf(markers).left()
    assert [(name, marker.offset) for name, marker in left] == [("t-0", 4), ("t-0", 7), ("t-1", 3)]


def test_only_a_higher_leader_epoch_is_a_failover() -> None:
    logs = recorded([value(S.EMPTY, epoch) for epoch in range(4)], [], [1, 0, 2, 1])
    (trace,) = coordinators.coordinator_traces(logs)
    (failover,) = (step for step in trace.steps if step.candidates[0].action == "Failover")
    assert (failover.text, failover.candidates[0].arguments) == ("leader epoch 2", (0,)), "all records are replicated"
    assert judge(logs).found == "accepted"


def test_a_log_that_begins_with_the_end_of_a_transaction_is_rejected() -> None:
    assert judge(recorded([value(S.COMPLETE_COMMIT, 1)], [MARKER], [0])).found == "rejected at event 1"


def test_a_marker_that_was_sent_again_explains_a_transaction_without_data_or_nothing() -> None:
    again = MARKER._replace(offset=4)
    assert judge(recorded(list(COMMITTED), [MARKER, again], [0] * 4)).found == "accepted"
    twice = [value(S.EMPTY, 0, version=1)]
    for _ in range(2):
        twice += [value(state, 0, version=1) for state in (S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT)]
    first, second = (WrittenMarker(7, 0, ControlType.COMMIT, 0, offset) for offset in (3, 4))
    data = WrittenBatch(7, 0, "transactional", 5)
    assert judge(recorded(list(twice), [first, second], [0] * 7), ONE).found == "accepted"
    third = first._replace(offset=6)
    assert judge(recorded(list(twice), [first, second, data, third], [0] * 7), ONE).found == "accepted"
    assert "markers are missing" in judge(recorded(list(twice), [first], [0] * 7), ONE).explanation


def test_the_next_coordinator_may_find_the_marker_written_but_has_to_write_it_again() -> None:
    again = WrittenMarker(7, 1, ControlType.COMMIT, 1, 5)
    assert judge(recorded(list(COMMITTED), [MARKER, again], [0, 0, 0, 1])).found == "accepted"
    assert judge(recorded(list(COMMITTED), [again], [0, 0, 0, 1])).found == "accepted"
    old = recorded(list(COMMITTED), [MARKER], [0, 0, 1, 1])
    assert judge(old).found == "rejected at event 9"
    assert judge(recorded(list(COMMITTED), [MARKER], [0, 0, 0, 1])).found.startswith("rejected")
    for logs in (old, recorded(list(COMMITTED), [MARKER], [0, 0, 0, 1])):
        assert judge(logs, release="4.3").found.startswith("rejected") is (logs is old)


def test_a_decision_that_is_changed_is_rejected() -> None:
    changed = [*COMMITTED[:3], value(S.COMPLETE_ABORT, 1)]
    judgement = judge(recorded(list(changed), [MARKER], [0] * 4))
    assert "durable.state" in judgement.explanation


COMPLETED = [MARKER._replace(decision=ControlType.ABORT)]
LATE = [value(S.PREPARE_ABORT, 1, open_ms=ms) for ms in (1000, 2000)]


@pytest.mark.parametrize(
    ("states", "markers"),
    [
        ([*COMMITTED[:2], *LATE, value(S.COMPLETE_ABORT, 1)], COMPLETED),  # a fence is tried again with the same epoch
        ([*COMMITTED[:3], LATE[0], value(S.COMPLETE_ABORT, 1)], COMPLETED),  # nobody was told of the commit
        ([*COMMITTED[:2], *COMMITTED[1:]], [MARKER]),
        ([*COMMITTED[:2], value(S.EMPTY, 1)], []),
        ([COMMITTED[0], value(S.EMPTY, 1), *COMMITTED[1:]], [MARKER]),
        ([*COMMITTED, COMMITTED[-1]], [MARKER]),  # tried until it succeeds
    ],
)
def test_a_coordinator_that_gives_an_append_up_goes_on_from_the_state_before_it(
    states: list[TransactionLogValue | None], markers: list[WrittenMarker | WrittenBatch]
) -> None:
    for release in ("", "4.3"):
        assert judge(recorded(states, markers, [0] * len(states)), release=release).found == "accepted"


def test_an_added_partition_whose_append_was_given_up_is_not_in_the_transaction() -> None:
    two = replace(COMMITTED[1], transaction_partitions=(TopicPartitions(topic="t", partition_ids=(0, 1)),))
    states = [*COMMITTED[:2], two, *COMMITTED[2:]]
    assert judge(recorded(list(states), [MARKER], [0] * 5)).found == "accepted"
    prepared = replace(COMMITTED[2], transaction_partitions=two.transaction_partitions)
    assert judge(recorded([*COMMITTED[:2], prepared], [], [0] * 3)).found.startswith("rejected")


def test_the_next_coordinator_goes_on_from_what_it_reads_and_a_decision_that_was_told_stays() -> None:
    states = [*COMMITTED[:3], LATE[0], value(S.COMPLETE_ABORT, 1)]
    assert judge(recorded(list(states), list(COMPLETED), [0, 0, 0, 1, 1])).found.startswith("rejected")


@pytest.mark.parametrize(("open_ms", "found"), [(1000, "accepted"), (10, "accepted")])
def test_an_abort_is_explained_by_its_client_or_by_its_timeout(open_ms: int, found: str) -> None:
    states = [*COMMITTED[:2], value(S.PREPARE_ABORT, 1, open_ms=open_ms), value(S.COMPLETE_ABORT, 1)]
    marker = WrittenMarker(7, 1, ControlType.ABORT, 0, 3)
    logs = recorded(list(states), [marker], [0] * 4)
    assert judge(logs).found == found
    (trace,) = coordinators.coordinator_traces(logs)
    aborts = next(step for step in trace.steps if len(step.candidates) > 2)
    assert ("TimeOut" in {candidate.action for candidate in aborts.candidates}) == (open_ms >= 1000)


def test_only_an_abort_after_its_own_timeout_counts_as_expired() -> None:
    early, late = (value(S.PREPARE_ABORT, 1, open_ms=open_ms) for open_ms in (999, 1000))
    assert [age.open_ms for age in coordinators.expired(recorded([early, late], [], [0, 0]))] == [1000]


def test_version_1_keeps_the_epoch_at_the_end_of_a_transaction() -> None:
    states = [value(S.EMPTY, 0, version=0), value(S.ONGOING, 0, version=0)]
    ends = [value(S.PREPARE_COMMIT, 0, version=0), value(S.COMPLETE_COMMIT, 0, version=0)]
    marker = WrittenMarker(7, 0, ControlType.COMMIT, 0, 3)
    assert judge(recorded([*states, *ends], [marker], [0] * 4), ONE).found == "accepted"
    bumped = [value(S.PREPARE_COMMIT, 1, version=0), value(S.COMPLETE_COMMIT, 1, version=0)]
    assert judge(recorded([*states, *bumped], [MARKER], [0] * 4), ONE).found.startswith("rejected")


def test_a_client_whose_request_for_an_epoch_is_sent_again_is_given_the_same_epoch() -> None:
    def found(*epochs: int) -> str:
        given = [value(S.EMPTY, epoch) for epoch in epochs]
        return judge(recorded([*given, value(S.ONGOING, epochs[-1])], [], [0] * (len(given) + 1))).found

    assert found(0, 1) == found(0, 1, 1) == found(0, 1, 1, 1, 2, 2) == "accepted"
    assert found(0, 0) == "rejected at event 4", "who has no epoch yet is given another one each time"
    assert found(0, 1, 0) == found(0, 1, 3) == "rejected at event 6"
    again = [*COMMITTED, value(S.EMPTY, 2), value(S.EMPTY, 2)]
    assert judge(recorded(again, [MARKER], [0] * 6)).found == "accepted"


def test_a_transactional_id_expires_at_rest_only() -> None:
    assert judge(recorded([*COMMITTED, None], [MARKER], [0] * 5)).found == "accepted"
    rejected = judge(recorded([*COMMITTED[:2], None], [], [0] * 3))
    assert rejected.found.startswith("rejected")
    assert "offset 2: a tombstone" in rejected.explanation


class LongInUse(TransactionCoordinator):
    """A coordinator whose transactional id has been given all epochs but the last two that a client may get."""

    __slots__ = ()

    @classmethod
    def initial(cls, constants: Constants) -> "LongInUse":
        known = TransactionMetadata(state=S.EMPTY, producer_id=0, epoch=32765, version=1)
        return cls(constants=constants, metadata=known, durable=known, allocated=1)


@pytest.mark.parametrize(
    ("given", "rejected_at"),
    [
        ([(7, 32766), (8, 0)], None),
        ([(8, 0)], 2),  # one epoch too early
        ([(7, 32766), (7, 32767)], 4),  # kept for fencing, never given to a client
    ],
)
def test_a_client_gets_the_next_producer_id_after_epoch_32766_and_not_before(
    given: list[tuple[int, int]], rejected_at: int | None
) -> None:
    states = [replace(value(S.EMPTY, epoch, version=0), producer_id=producer_id) for producer_id, epoch in given]
    (trace,) = coordinators.coordinator_traces(recorded([*states], [], [0] * len(states)))
    assert replayed(LongInUse, coordinators.coordinator_constants(ONE, trace), trace)[0] == rejected_at
    model = coordinators.coordinator_model(Registry().get("CoordinatorOfTraces"), [trace], versions=ONE)
    assert replay(model, LongInUse, trace).reference_index == rejected_at


def leader(entries: list[WrittenBatch | WrittenMarker], version: int = 2) -> str:
    logs = Recorded(
        {"id": [StateRecord(0, 0, replace(value(S.PREPARE_COMMIT, 1), client_transaction_version=version))]},
        {"t-0": entries},
    )
    ((found, traces),) = leaders.leader_traces(logs).items()
    model = leaders.leader_model(Registry().get("MarkersVersion2"), traces, found)
    (trace,) = traces
    judgement = replay(model, Consumer, trace)
    assert replayed(LeaderOfTraces, leaders.leader_constants(found), trace)[0] == judgement.reference_index
    return judgement.found


DATA = WrittenBatch(7, 0, "transactional", 0)


def test_a_model_of_leaders_has_the_constants_of_its_traces() -> None:
    entries = [DATA, MARKER, WrittenBatch(7, 1, "transactional", 4), WrittenMarker(7, 2, ControlType.ABORT, 5, 5)]
    trace = leaders.leader_trace("t-0", 7, entries)
    constants = leaders.leader_model(Registry().get("MarkersVersion2"), [trace], 2).constants
    assert constants["Epochs"] == "{0, 1, 2}"
    assert (constants["CoordinatorEpochs"], constants["Offsets"]) == ("{0, 5}", "0..4")


def test_a_partition_is_spoiled_inside_of_a_transaction() -> None:
    plain = WrittenBatch(7, 1, "plain", 0)
    entries = [plain, WrittenBatch(7, 1, "transactional", 1), WrittenMarker(7, 2, ControlType.COMMIT, 0, 2)]
    wrong = leaders.spoiled([leaders.leader_trace("t-0", 7, entries)])
    assert [place for _, place in wrong.values()] == [3, 3]
    older = wrong["a batch of an older epoch"][0]
    assert older.steps[2].candidates[0].arguments == (leaders.PRODUCER, 0, "transactional")


def test_a_leader_takes_a_transaction_and_its_marker() -> None:
    assert leader([DATA, MARKER]) == "accepted"


def test_under_version_2_a_marker_of_the_transactions_own_epoch_is_rejected() -> None:
    same = WrittenMarker(7, 0, ControlType.COMMIT, 0, 1)
    assert leader([DATA, same]) == "rejected at event 2"
    assert leader([DATA, same], version=1) == "accepted"


def test_under_version_2_only_in_the_last_epoch_a_transaction_ends_in_its_own() -> None:
    for epoch, found in ((32766, "rejected at event 2"), (32767, "accepted")):
        entries = [DATA._replace(epoch=epoch), WrittenMarker(7, epoch, ControlType.COMMIT, 0, 1)]
        assert leader([*entries]) == found


def test_a_marker_of_an_older_coordinator_is_rejected() -> None:
    newer = WrittenMarker(7, 1, ControlType.COMMIT, 4, 1)
    assert leader([DATA, newer, WrittenMarker(7, 2, ControlType.COMMIT, 3, 2)]) == "rejected at event 3"


def test_a_late_batch_of_the_transaction_before_is_rejected() -> None:
    assert leader([DATA, MARKER, WrittenBatch(7, 0, "transactional", 2)]) == "rejected at event 3"


def test_a_recording_is_judged_by_the_transaction_versions_that_are_in_it() -> None:
    for name, known in command.COORDINATORS.items():
        with unpacked(kept_recording(name)) as folder:
            ended = leaders.versions(coordinators.read_recorded(folder / "brokers"))
        assert known == set(ended.values())


def test_the_recorded_traces_are_those_of_every_partition_and_none_is_empty() -> None:
    traces = list(command.recorded_traces())
    two = [
        f"one-broker/{each}" for each in ("idempotent-lost-acks", "kill-producer", "repeated-and-reordered-requests")
    ]
    one = ["one-broker/trace", "one-broker/crash-with-lost-acks", "violations/java-crash-with-lost-acks"]
    wanted = [*(f"{name}-0" for name in one + two), *(f"{name}-1" for name in two)]
    assert sorted(trace.name for trace in traces) == sorted(wanted)
    assert all(trace.steps for trace in traces)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    archive = next(path for path in kept_recordings() if path.name == "transactions-3.9.tar.xz")
    folder = tmp_path_factory.mktemp("transactions")
    unpack(archive, folder)
    return coordinators.read_recorded(folder / "brokers")


def test_every_transition_and_marker_of_a_recorded_kafka_3_9_is_accepted(cluster: Recorded) -> None:
    assert cluster.transactions > 500
    traces = coordinators.coordinator_traces(cluster)
    base = Registry().get("CoordinatorOfTraces")
    model = coordinators.coordinator_model(base, traces, versions=ONE)
    machine = mutated(TransactionCoordinator, base.overrides)
    assert {replay(model, machine, trace).found for trace in traces} == {"accepted"}


def test_each_spoiled_log_is_rejected_where_it_is_spoiled(cluster: Recorded) -> None:
    wrong = coordinators.spoiled(cluster)
    assert len(wrong) == 4
    base = Registry().get("CoordinatorOfTraces")
    model = coordinators.coordinator_model(base, [trace for trace, _ in wrong.values()], versions=ONE)
    machine = mutated(TransactionCoordinator, base.overrides)
    for trace, index in wrong.values():
        assert replay(model, machine, trace).reference_index == index


def test_a_transaction_with_several_partitions_is_spoiled_if_there_is_one() -> None:
    def of(name: str, partitions: tuple[int, ...]) -> list[StateRecord]:
        there = (TopicPartitions(topic=name, partition_ids=partitions),)
        states = [replace(each, transaction_partitions=there) if each.partitions() else each for each in COMMITTED]
        return [StateRecord(0, offset, each) for offset, each in enumerate(states)]

    def spoiled(**partitions: tuple[int, ...]) -> set[str]:
        entries = {f"{name}-{number}": [MARKER] for name, numbers in partitions.items() for number in numbers}
        logs = Recorded({name: of(name, numbers) for name, numbers in partitions.items()}, entries)
        return {trace.name for trace, _ in coordinators.spoiled(logs).values()}

    assert spoiled(a=(0,), b=(0, 1), c=(0,)) == {"b"}
    assert spoiled(a=(0,)) == {"a"}


@pytest.mark.parametrize(
    "states",
    [
        [*COMMITTED[:3], None],
        [*COMMITTED[:3], value(S.COMPLETE_ABORT, 1)],
        [*COMMITTED[:2], replace(COMMITTED[2], transaction_partitions=()), COMMITTED[3]],
    ],
    ids=["a tombstone", "another end", "no partition"],
)
def test_without_a_committed_transaction_nothing_is_spoiled(states: list[TransactionLogValue | None]) -> None:
    assert coordinators.spoiled(recorded(states, [MARKER], [0] * 4)) == {}


def test_each_spoiled_partition_is_rejected_where_it_is_spoiled(cluster: Recorded) -> None:
    (traces,) = leaders.leader_traces(cluster).values()
    wrong = leaders.spoiled(traces)
    assert set(wrong) == {"a batch outside the open transaction", "a batch of an older epoch"}
    model = leaders.leader_model(Registry().get("MarkersVersion2"), [trace for trace, _ in wrong.values()], 1)
    for trace, index in wrong.values():
        assert replay(model, Consumer, trace).reference_index == index


def test_a_damaged_log_is_no_trace(cluster: Recorded, tmp_path: Path) -> None:
    assert cluster.records
    partition = tmp_path / "__transaction_state-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(b"\x00" * 60 + b"\xff" * 200)
    with pytest.raises(UnreadableLog, match="at byte"):
        coordinators.read_recorded(tmp_path)


def test_a_log_may_begin_later_than_at_0(tmp_path: Path) -> None:
    batch = build_batch([Record(value=b"v")], base_offset=5, producer_id=1, producer_epoch=0, base_sequence=0)
    write_segment(tmp_path / "orders-0" / f"{5:020d}.log", [batch.encode()])
    logs = coordinators.read_recorded(tmp_path)
    assert logs.begins == {"orders-0": 5}
    assert logs.entries == {"orders-0": [WrittenBatch(1, 0, "plain", 5)]}


def test_batches_without_a_producer_are_no_entries(tmp_path: Path) -> None:
    batches = [
        build_batch([Record(value=b"v")]),
        build_batch([Record(value=b"v")], base_offset=1, producer_id=1, producer_epoch=0, base_sequence=0),
    ]
    write_segment(tmp_path / "orders-0" / f"{0:020d}.log", [batch.encode() for batch in batches])
    assert coordinators.read_recorded(tmp_path).entries == {"orders-0": [WrittenBatch(1, 0, "plain", 1)]}


def test_traces_are_named_for_their_transactional_ids(cluster: Recorded) -> None:
    names = [trace.name for trace in coordinators.coordinator_traces(cluster)]
    assert names == sorted(cluster.records)
    assert all(isinstance(trace, Trace) for trace in coordinators.coordinator_traces(cluster))
