"""A simulated run of transactions, with the events of clients, brokers and a read_committed reader."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.formats.record_batch import ControlType
from kafka_eos.formats.transaction_log import TOPIC as STATES
from kafka_eos.formats.transaction_log import TransactionState, decode_key, decode_value, is_legal
from kafka_eos.histories.history import Event
from kafka_eos.histories.simulator import Simulation, Taken
from kafka_eos.histories.transaction_history import PRODUCER_ID, TransactionRecorder, possible_arguments
from kafka_eos.machines.machine import actions, instances, step
from kafka_eos.machines.transactions import Constants, Transactions

from .written import Rows, batch_row, replayed, runs, transaction, written

KINDS = frozenset({"repeat request", "repeat marker", "timeout", "failover", "crash", "election"})


def constants(version: int = 2, numbers: int = 6, epochs: int = 40, failovers: int = 40) -> Constants:
    return Constants(
        instances=frozenset({"A", "B"}),
        partitions=frozenset({"p", "q"}),
        numbers=frozenset(range(1, numbers + 1)),
        epochs=frozenset(range(epochs)),
        coordinator_epochs=frozenset(range(failovers)),
        versions=frozenset({version}),
        verification=True,
        faults=KINDS if version == 2 else KINDS - {"repeat request", "repeat marker"},
        max_faults=1000,
    )


@cache
def steps(seed: int, version: int = 2) -> list[Taken[Transactions]]:
    faults = {"Initialize": 0.3, "TimeOut": 0.2, "Failover": 0.5, "Crash": 0.02, "RepeatMarker": 2.0}
    simulation = Simulation(Transactions, constants(version), seed, faults, ("TimeOut",), possible_arguments())
    return list(simulation.run(150))


@cache
def recorded(seed: int, version: int = 2) -> tuple[TransactionRecorder, Transactions]:
    taken = steps(seed, version)
    recorder = TransactionRecorder(run="r", constants=constants(version))
    recorder.watch(taken)
    return recorder, taken[-1].after


SEEDS = range(12)


def of_admin(version: int) -> Constants:
    """The constants of the runs of ``transaction_runs.jsonl``, with an operator who aborts by hand."""
    return replace(constants(version), faults=constants(version).faults | {"admin abort"})


def lines(run: str, taken: Iterable[Taken[Transactions]]) -> Iterator[dict[str, Any]]:
    """A run of a transaction version, as it is written in ``transaction_runs.jsonl``."""
    recorder = TransactionRecorder(run="r", constants=of_admin(int(run[0])))

    def rows() -> dict[str, Rows]:
        logs = {f"{n}": [batch_row(f"simulated-{n}", batch) for batch in log] for n, log in recorder.logs.items()}
        return logs | {STATES: [batch_row(STATES, batch, transaction) for batch in recorder.coordinator_log]}

    return written(taken, recorder.watch, recorder.events, rows)


@pytest.mark.parametrize(("run", "expected"), runs("transaction_runs.jsonl").items())
def test_each_step_is_written_as_the_events_and_batches_that_it_stands_for(run: str, expected: Rows) -> None:
    taken = replayed(Transactions, of_admin(int(run[0])), [row["step"] for row in expected])
    for found, row in zip(lines(run, taken), expected, strict=True):
        assert found == row


@pytest.mark.parametrize("version", [1, 2])
def test_the_batches_are_the_entries_of_the_machines_logs_one_offset_each(version: int) -> None:
    for seed in SEEDS:
        recorder, state = recorded(seed, version)
        for number, name in enumerate(sorted(state.logs)):
            batches, entries = recorder.logs[number], state.logs[name].entries
            assert [batch.base_offset for batch in batches] == list(range(len(entries)))
            assert [batch.is_control for batch in batches] == [entry.kind != "data" for entry in entries]
            assert [batch.producer_epoch for batch in batches] == [entry.epoch for entry in entries]
            assert {batch.producer_id for batch in batches} <= {PRODUCER_ID}
            assert all(batch.is_transactional for batch in batches)


def test_the_coordinators_records_are_those_of_kafka_and_follow_its_table() -> None:
    for seed in SEEDS:
        recorder, state = recorded(seed)
        records = [batch.records()[0] for batch in recorder.coordinator_log]
        assert {decode_key(record.key or b"").transactional_id for record in records} == {"simulated-t"}
        values = [value for record in records if (value := decode_value(record.value)) is not None]
        assert values[0].transaction_status is TransactionState.EMPTY
        assert values[-1].transaction_status is state.transaction.state
        for before, after in pairwise(values):
            version = after.client_transaction_version
            assert is_legal(before.transaction_status, after.transaction_status, version), (before, after)


def test_the_coordinators_records_name_the_partitions_of_the_transaction() -> None:
    named = set[int]()
    for seed in SEEDS:
        recorder = TransactionRecorder(run="r", constants=constants())
        for taken in steps(seed):
            written = len(recorder.coordinator_log)
            recorder.watch([taken])
            for batch in recorder.coordinator_log[written:]:
                value = decode_value(batch.records()[0].value)
                assert value is not None
                found = [number for topic in value.transaction_partitions or () for number in topic.partition_ids]
                assert found == [("p", "q").index(name) for name in sorted(taken.after.transaction.partitions)]
                named.add(len(found))
    assert named == {0, 1, 2}


def test_a_failover_writes_no_record_for_the_new_coordinator_only_reads() -> None:
    runs = (steps(seed) for seed in SEEDS)
    taken = next(
        run for run in runs if any(t.instance.action.name == "Failover" and t.before.is_prepared() for t in run)
    )
    recorder = TransactionRecorder(run="r", constants=constants())
    for each in taken:
        written = len(recorder.coordinator_log)
        recorder.watch([each])
        assert each.instance.action.name != "Failover" or len(recorder.coordinator_log) == written


def test_the_reader_gets_exactly_the_committed_records_below_the_last_stable_offset_once() -> None:
    for seed in SEEDS:
        recorder, state = recorded(seed)
        for number, name in enumerate(sorted(state.logs)):
            own = [event for event in recorder.events if event.process == "reader" and event.partition == number]
            polled = [event.offset for event in own if event.action == "Poll"]
            entries = state.logs[name].entries
            committed = [
                offset
                for offset, entry in enumerate(entries)
                if entry.kind == "data"
                and next((later.kind for later in entries[offset:] if later.kind != "data"), "") == "commit"
            ]
            assert polled == committed
            ends = [event.offset or 0 for event in own if event.action == "EndOfPartition"]
            assert ends == sorted(ends)
            assert ends[0] == 0


def test_every_send_is_answered_at_most_once_and_an_acknowledged_one_has_its_value_at_its_offset() -> None:
    acknowledged = 0
    for seed in SEEDS:
        recorder, _ = recorded(seed)
        sends = [event for event in recorder.events if event.action == "Send"]
        for event in answers(sends, "ok"):
            acknowledged += 1
            assert event.partition is not None
            assert event.offset is not None
            record = recorder.logs[event.partition][event.offset].records()[0]
            assert record.value == event.detail["value"].encode()
        assert len(list(answers(sends, "invoke"))) >= sum(1 for event in sends if event.phase != "invoke")
    assert acknowledged


@pytest.mark.parametrize("version", [1, 2])
def test_an_instance_begins_a_transaction_once_and_before_its_first_request(version: int) -> None:
    for seed in SEEDS:
        recorder, _ = recorded(seed, version)
        for instance in ("A", "B"):
            own = [event for event in recorder.events if event.process == instance and "transaction" in event.detail]
            told = [(event.action, event.phase, event.detail["transaction"]) for event in own]
            numbers = [number for action, phase, number in told if (action, phase) == ("BeginTransaction", "invoke")]
            assert numbers == sorted(set(numbers))
            for number in numbers:
                first = [each for each in told if each[2] == number][:2]
                assert first == [("BeginTransaction", phase, number) for phase in ("invoke", "ok")]
            assert {number for *_, number in told} == set(numbers)


def answers(events: list[Event], phase: str) -> Iterator[Event]:
    return (event for event in events if event.phase == phase)


def test_the_tried_arguments_miss_no_enabled_action_except_a_batch_that_expires() -> None:
    small = constants(numbers=2, epochs=8, failovers=3)
    names = {action.name for action in actions(Transactions)}
    possible = possible_arguments()
    assert possible.keys() <= names
    every = [instance for instance in instances(Transactions, small) if instance.action.name in possible]
    simulation = Simulation(Transactions, small, 3, {"TimeOut": 0.1}, (), possible)
    for taken in simulation.run(40):
        for instance in every:
            if instance.arguments in set(possible[instance.action.name](taken.after)):
                continue
            if instance.action.name == "Expire":
                continue
            with pytest.raises(NotEnabled):
                step(taken.after, instance)


def test_every_marker_in_the_logs_has_an_event_with_its_offset_and_decision() -> None:
    for seed in SEEDS:
        recorder, _ = recorded(seed)
        told = {
            (event.partition, event.offset, event.detail["committed"])
            for event in recorder.events
            if (event.action, event.phase) == ("WriteTxnMarkers", "ok")
        }
        stored = {
            (number, batch.base_offset, batch.control_record().control_type is ControlType.COMMIT)
            for number, batches in recorder.logs.items()
            for batch in batches
            if batch.is_control
        }
        assert told == stored, f"seed {seed}"


def test_a_marker_repeats_one_that_was_sent_before_exactly_if_its_event_says_so() -> None:
    repeats = 0
    for seed in SEEDS:
        sent = Counter[tuple[int | None, ...]]()
        for event in recorded(seed)[0].events:
            if (event.process, event.action) == ("coordinator", "WriteTxnMarkers"):
                marker = event.partition, event.coordinator_epoch, event.detail["epoch"], event.detail["committed"]
                assert event.detail.get("repeats", False) is (sent[marker] > 0)
                repeats += sent[marker] > 0
                sent[marker] += 1
    assert repeats > 3


def test_a_duplicate_of_an_endtxn_has_the_number_of_the_original_request() -> None:
    copies = 0
    for seed in SEEDS:
        recorder, _ = recorded(seed)
        asked = {}
        for event in recorder.events:
            if (event.action, event.phase) != ("EndTxn", "invoke"):
                continue
            if "repeats" in event.detail:
                copies += 1
                original = asked[event.process, event.detail["repeats"]]
                assert (event.producer_epoch, event.detail["committed"]) == original
            else:
                asked[event.process, event.detail["request"]] = event.producer_epoch, event.detail["committed"]
    assert copies > 3


def is_late(event: Event) -> bool:
    return event.action == "Produce" and event.detail.get("delivered") is False


def test_a_batch_that_arrives_after_its_client_gave_up_is_acknowledged_to_nobody() -> None:
    late = [event for seed in SEEDS for event in recorded(seed)[0].events if is_late(event)]
    assert late
    assert all(event.phase == "ok" and event.offset is not None for event in late)
    recorder, _ = recorded(seed := next(seed for seed in SEEDS if any(map(is_late, recorded(seed)[0].events))))
    appends = [taken for taken in steps(seed) if taken.instance.action.name == "AppendVerified"]
    appended = next(taken for taken in appends if list(recorder._appended_late(taken)))
    assert list(recorder._appended_late(replace(appended, after=appended.before))) == [], "the leader has refused it"
    for seed in SEEDS:
        recorder, _ = recorded(seed)
        for event in recorder.events:
            if is_late(event):
                log = recorder.logs[event.partition or 0]
                [batch] = [each for each in log if each.base_offset == event.offset]
                assert (batch.producer_epoch, batch.base_sequence) == (event.producer_epoch, event.base_sequence)
        events = [event for event in recorded(seed)[0].events if event.action == "Produce" and event.phase != "invoke"]
        answered = [(event.process, event.detail["request"]) for event in events]
        assert len(set(answered)) == len(answered), f"seed {seed}"


def test_the_batch_after_a_refused_one_has_its_sequence_and_the_batch_after_another_one_the_next() -> None:
    refused = 0
    for seed in SEEDS:
        following: dict[tuple[str, int | None, int | None], int] = {}
        for event in recorded(seed)[0].events:
            producer = event.process, event.producer_epoch, event.partition
            if event.action != "Produce" or event.base_sequence is None:
                continue
            if event.phase == "invoke":
                assert event.base_sequence == following.get(producer, 0)
                following[producer] = event.base_sequence + 1
            elif event.phase == "fail":
                assert event.error != 0
                refused += 1
                following[producer] -= 1
    assert refused > 3


def test_timeouts_have_events() -> None:
    taken = [step for seed in SEEDS for step in steps(seed) if step.instance.action.name == "TimeOut"]
    told = [event for seed in SEEDS for event in recorded(seed)[0].events if event.action == "TimeOut"]
    assert len(told) == len(taken) > 0


def test_an_instance_learns_its_epoch_with_a_producer_id_or_neither() -> None:
    told = [event for seed in SEEDS for event in recorded(seed)[0].events if event.action == "InitProducerId"]
    given = [(event.producer_id, (event.producer_epoch or 0) >= 0) for event in answers(told, "ok")]
    assert set(given) == {(PRODUCER_ID, True)}
    refused = [(event.producer_id, event.producer_epoch, event.error != 0) for event in answers(told, "fail")]
    assert set(refused) == {(-1, -1, True)}


@pytest.mark.parametrize("version", [1, 2])
def test_an_application_is_told_of_each_end_and_in_version_2_its_producer_of_the_next_epoch(version: int) -> None:
    for seed in SEEDS:
        recorder, _ = recorded(seed, version)
        for instance in ("A", "B"):
            own = [event for event in recorder.events if event.process in {instance, f"wire/{instance}"}]
            ended = [each for each in own if (each.action, each.phase) == ("EndTxn", "ok")]
            names = {True: "CommitTransaction", False: "AbortTransaction"}
            told = [each.action for each in own if each.action in names.values() and each.phase == "ok"]
            assert told == [names[each.detail["committed"]] for each in ended]
            assert all(("next_producer_epoch" in each.detail) is (version == 2) for each in ended)


def test_a_step_takes_a_millisecond_and_a_transaction_times_out_after_its_timeout() -> None:
    timeouts = 0
    for seed in SEEDS:
        recorder, has_timed_out = TransactionRecorder(run="r", constants=constants()), False
        for number, taken in enumerate(steps(seed), start=1):
            written = len(recorder.coordinator_log)
            recorder.watch([taken])
            times_out = taken.instance.action.name == "TimeOut"
            has_timed_out |= times_out
            for batch in recorder.coordinator_log[written:]:
                value = decode_value(batch.records()[0].value)
                assert value is not None
                assert value.transaction_timeout_ms == 60_000
                if value.transaction_status is TransactionState.EMPTY:
                    assert value.transaction_start_timestamp_ms == -1
                assert has_timed_out or batch.base_timestamp == number
                if value.transaction_status is TransactionState.ONGOING:
                    assert 0 < value.transaction_start_timestamp_ms <= batch.base_timestamp
                elif times_out and value.transaction_start_timestamp_ms >= 0:
                    timeouts += 1
                    assert batch.base_timestamp > value.transaction_start_timestamp_ms + 60_000
    assert timeouts > 0


def test_an_instance_gives_up_batches_of_each_third_transaction_and_commits_two_of_three() -> None:
    possible = possible_arguments()
    for taken in steps(1):
        clients = sorted(taken.after.clients.items())
        thirds = [name for name, client in clients if client.number % 3 == 0]
        assert possible["Expire"](taken.after) == [(name, ending) for name in thirds for ending in (False, True)]
        assert possible["End"](taken.after) == [(name, end) for name, _ in clients for end in (True, True, False)]
    many = possible["End"](Transactions.initial(replace(constants(), instances=frozenset("ABCDEFGH"))))
    assert [name for name, *_ in many[::3]] == list("ABCDEFGH")
