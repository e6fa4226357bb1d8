"""A simulated run of an application on a group, with the events of its instances, brokers and coordinators."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from immutables import Map

from kafka_eos.formats.consumer_offsets import TOPIC as OFFSETS
from kafka_eos.formats.record_batch import ControlType, RecordBatch
from kafka_eos.histories.application_history import COORDINATOR, GROUP, INPUTS, OUTPUTS, ApplicationRecorder
from kafka_eos.histories.history import Event
from kafka_eos.histories.simulator import Simulation, Taken
from kafka_eos.machines.consume_transform_produce import Constants, ConsumeTransformProduce

from .written import Rows, batch_row, committed_offset, replayed, runs, written

WEIGHTS = {"Abort": 1.0, "Crash": 1.0, "ExpireSession": 1.0, "TimeOut": 1.0}
SEEDS = range(20)
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def constants_of(protocol: str, eos: str) -> Constants:
    instances, partitions = frozenset({"A", "B"}), frozenset({"p", "q"})
    return Constants(
        instances=instances,
        partitions=partitions,
        transactional_ids=instances if eos == "v2" else partitions,
        preferred=Map({"p": "A", "q": "B"}),
        group_protocol=protocol,
        inputs=frozenset({1, 2, 3}),
        eos=eos,
        faults=frozenset({"abort", "timeout", "expire session", "crash"}),
        max_faults=6,
    )


@cache
def recorded(seed: int, protocol: str = "classic", eos: str = "v2") -> ApplicationRecorder:
    constants = constants_of(protocol, eos)
    recorder = ApplicationRecorder(run="r", constants=constants)
    recorder.watch(Simulation(ConsumeTransformProduce, constants, seed, WEIGHTS, WEIGHTS.keys()).run(300))
    return recorder


def of(recorder: ApplicationRecorder, *actions: str) -> list[Event]:
    return [event for event in recorder.events if event.action in actions]


def batches(recorder: ApplicationRecorder) -> dict[tuple[str, int], list[RecordBatch]]:
    return {**recorder.logs, (OFFSETS, 0): recorder.offsets}


def lines(run: str, taken: Iterable[Taken[ConsumeTransformProduce]]) -> Iterator[dict[str, Any]]:
    """A run of a group protocol and a version of exactly-once, as it is written in ``application_runs.jsonl``."""
    recorder = ApplicationRecorder(run="r", constants=constants_of(*run.split()))

    def rows() -> dict[str, list[dict[str, Any]]]:
        logs = {
            f"{topic}-{number}": [batch_row(f"{topic}-{number}", batch) for batch in log]
            for (topic, number), log in recorder.logs.items()
        }
        return logs | {OFFSETS: [batch_row(OFFSETS, batch, committed_offset) for batch in recorder.offsets]}

    return written(taken, recorder.watch, recorder.events, rows)


@pytest.mark.parametrize(("run", "expected"), runs("application_runs.jsonl").items())
def test_each_step_is_written_as_the_events_and_batches_that_it_stands_for(run: str, expected: Rows) -> None:
    taken = replayed(ConsumeTransformProduce, constants_of(*run.split()), [row["step"] for row in expected])
    for found, row in zip(lines(run, taken), expected, strict=True):
        assert found == row


@PROTOCOLS
def test_every_instance_is_told_its_partitions_first_and_a_classic_group_has_generations(protocol: str) -> None:
    for seed in SEEDS:
        recorder = recorded(seed, protocol)
        first: dict[str, Event] = {}
        for event in recorder.events:
            first.setdefault(event.process, event)
        assert {each: first[each].action for each in ("A", "B")} == {"A": "Assign", "B": "Assign"}
        assert [first[each].detail["partitions"] for each in ("A", "B")] == [[0], [1]]
        assert [event.group for event in of(recorder, "JoinGroup")] == [GROUP] * (
            len(of(recorder, "Assign")) if protocol == "classic" else 0
        )


def test_partitions_are_numbered_in_the_order_of_their_names_and_an_instance_that_is_fenced_gives_up_all() -> None:
    constants = replace(constants_of("classic", "v1"), partitions=frozenset("abcdefgh"))
    assert ApplicationRecorder(run="r", constants=constants)._numbers == {name: n for n, name in enumerate("abcdefgh")}
    fenced = 0
    for seed in SEEDS:
        constants = constants_of("classic", "v1")
        recorder = ApplicationRecorder(run="r", constants=constants)
        for taken in Simulation(ConsumeTransformProduce, constants, seed, WEIGHTS, WEIGHTS.keys()).run(100):
            recorder.watch([taken])
            if taken.instance.action.name == "ReceiveFencing":
                fenced += 1
                assert taken.instance.arguments[0] not in {instance for instance, _ in recorder._open}
    assert fenced


@PROTOCOLS
def test_an_instance_reads_on_from_where_it_was_set_and_gets_what_is_there(protocol: str) -> None:
    for seed in SEEDS:
        recorder = recorded(seed, protocol)
        positions: dict[tuple[str, int], int] = {}
        for event in of(recorder, "Seek", "Poll", "Crash"):
            if event.action == "Crash":
                positions = {place: at for place, at in positions.items() if place[0] != event.process}
                continue
            assert event.partition is not None
            assert event.offset is not None
            place = event.process, event.partition
            if event.action == "Poll":
                if place in positions:
                    assert event.offset == positions[place]
                [batch] = [each for each in recorder.logs[INPUTS, event.partition] if each.base_offset == event.offset]
                assert batch.records()[0].value == event.detail["value"].encode()
            positions[place] = event.offset + (event.action == "Poll")
        polled = {(event.process, event.partition) for event in of(recorder, "Poll")}
        assert polled <= {(event.process, event.partition) for event in of(recorder, "Seek")}


@PROTOCOLS
def test_an_instance_seeks_only_where_it_fetches_a_committed_offset(protocol: str) -> None:
    for seed in SEEDS:
        recorder = recorded(seed, protocol)
        unknown = {(each, number) for each in ("A", "B") for number in (0, 1)}
        for event in of(recorder, "Seek", "Poll", "Assign", "Revoke", "Crash", "AbortTransaction"):
            if event.action == "Seek":
                assert (event.process, event.partition) in unknown
                unknown.remove((event.process, event.partition))
            elif event.action != "Poll":
                unknown |= {(event.process, number) for number in (0, 1)}


def test_offsets_are_sent_only_of_partitions_that_the_transaction_has_outputs_of() -> None:
    for seed in SEEDS:
        outputs: dict[tuple[str, int], set[str]] = {}
        for event in of(recorded(seed), "Send", "SendOffsetsToTransaction"):
            sent = outputs.setdefault((event.process, event.detail["transaction"]), set())
            if event.action == "Send":
                sent.add(str(event.partition))
            else:
                assert event.detail["offsets"].keys() == sent


@pytest.mark.parametrize("eos", ["v1", "v2"])
def test_an_instance_begins_each_of_its_transactions_once_and_before_it_sends(eos: str) -> None:
    for seed in SEEDS:
        recorder = recorded(seed, eos=eos)
        assert {event.process for event in of(recorder, "AbortTransaction", "CommitTransaction")} <= {"A", "B"}
        for instance in ("A", "B"):
            own = [event for event in recorder.events if event.process == instance and "transaction" in event.detail]
            begun = [event.detail["transaction"] for event in own if event.action == "BeginTransaction"]
            assert begun == [number for number in range(len(begun) // 2) for _ in ("invoke", "ok")]
            assert {event.detail["transaction"] for event in own if event.action == "Send"} == set(begun)
            begins, ends = -1, Counter[int]()
            for event in own:
                begins += (event.action, event.phase) == ("BeginTransaction", "invoke")
                assert event.action != "Send" or event.detail["transaction"] == begins or eos == "v1"
                ends[event.detail["transaction"]] += event.action in {"AbortTransaction", "CommitTransaction"}
            assert set(ends.values()) <= {0, 2}, "each end is asked for and told"


@pytest.mark.parametrize("eos", ["v1", "v2"])
def test_an_instance_that_has_crashed_begins_another_transaction(eos: str) -> None:
    begun_later = 0
    for seed in SEEDS:
        last, crashed = dict.fromkeys(("A", "B"), -1), dict.fromkeys(("A", "B"), -1)
        for event in recorded(seed, eos=eos).events:
            if event.action == "Crash":
                crashed[event.process] = last[event.process]
            elif event.action == "Send":
                assert event.detail["transaction"] > crashed[event.process]
                begun_later += crashed[event.process] >= 0
                last[event.process] = max(last[event.process], event.detail["transaction"])
    assert begun_later


def test_what_is_sent_is_in_the_log_at_the_offset_that_was_answered() -> None:
    for seed in SEEDS:
        recorder = recorded(seed)
        for event in of(recorder, "Send"):
            if event.phase == "ok":
                assert event.topic == OUTPUTS
                assert event.partition is not None
                [batch] = [each for each in recorder.logs[OUTPUTS, event.partition] if each.base_offset == event.offset]
                assert batch.records()[0].value == event.detail["value"].encode()
                assert not batch.is_control


def test_offsets_in_the_logs_have_neither_gaps_nor_overlaps() -> None:
    for seed in SEEDS:
        for log in batches(recorded(seed)).values():
            ends = [0, *(batch.last_offset + 1 for batch in log)]
            assert [batch.base_offset for batch in log] == ends[:-1]


def test_every_marker_has_an_event_and_ends_data_of_its_producer_which_nothing_else_does() -> None:
    decisions: Counter[ControlType] = Counter()
    for seed in SEEDS:
        recorder = recorded(seed)
        told = {(event.topic, event.partition, event.offset): event for event in of(recorder, "WriteTxnMarkers")}
        written = 0
        for (topic, number), log in batches(recorder).items():
            opened = set[int]()
            for batch in log:
                if not batch.is_control:
                    opened |= {batch.producer_id} - {-1}
                    continue
                written += 1
                event, marker = told[topic, number, batch.base_offset], batch.control_record()
                assert marker is not None
                decisions[marker.control_type] += 1
                assert event.process == COORDINATOR
                assert event.detail["committed"] is (marker.control_type is ControlType.COMMIT)
                assert (event.producer_id, event.detail["epoch"]) == (batch.producer_id, batch.producer_epoch)
                opened.remove(batch.producer_id)
            assert not opened
        assert written == len(told)
    assert min(decisions[ControlType.COMMIT], decisions[ControlType.ABORT]) > len(SEEDS)


def test_offsets_are_sent_with_the_generation_that_the_instance_was_told_last() -> None:
    sent = 0
    for seed in SEEDS:
        generations: dict[str, int | None] = {}
        for event in of(recorded(seed), "JoinGroup", "TxnOffsetCommit"):
            if event.action == "JoinGroup":
                generations[event.process] = event.generation
            else:
                sent += 1
                assert event.generation == generations[event.process]
    assert sent


def test_an_instance_aborts_after_offsets_that_were_refused_for_its_group() -> None:
    followed = Counter[str]()
    for seed in SEEDS:
        events = recorded(seed).events
        for place, event in enumerate(events):
            if (event.action, event.phase) == ("SendOffsetsToTransaction", "fail"):
                own = (each.action for each in events[place + 1 :] if each.process == event.process)
                followed[next(own)] += 1
    assert set(followed) == {"AbortTransaction"}


def test_an_instance_ends_after_offsets_that_were_refused_for_another_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumeTransformProduce, "error_in_transaction", lambda _, error: error)
    events = recorded.__wrapped__(12, "consumer").events
    [place] = [place for place, event in enumerate(events) if event.error]
    told = [(event.action, event.phase, event.process) for event in events[place : place + 3]]
    assert told == [
        ("TxnOffsetCommit", "fail", "wire/A"),
        ("SendOffsetsToTransaction", "fail", "A"),
        ("Crash", "ok", "A"),
    ]


@PROTOCOLS
def test_batches_of_an_epoch_have_sequences_without_gaps_except_the_offsets_which_have_none(protocol: str) -> None:
    for seed in SEEDS:
        recorder = recorded(seed, protocol)
        for (topic, _), log in batches(recorder).items():
            following: dict[tuple[int, int], int] = {}
            for batch in log:
                producer = batch.producer_id, batch.producer_epoch
                if topic == OUTPUTS and not batch.is_control:
                    assert batch.base_sequence == following.get(producer, 0)
                    following[producer] = batch.base_sequence + batch.record_count
                else:
                    assert batch.base_sequence == -1
