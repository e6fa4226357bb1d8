"""Producers and transactions as clients see them: requests in, responses out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.leader import LeaderRules
from kafka_eos.machines.transactional_partition import ReadablePartition
from kafka_eos.server.cluster import Machines, Settings
from kafka_eos.server.storage import Directory
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos_checks.mutants.rules import mutated

from .conftest import Make, Wire

E = ErrorCode


def test_a_batch_that_comes_again_is_acknowledged_at_its_first_place(wire: Wire) -> None:
    _, *producer = wire.init(None)
    given = {"producer": tuple(producer)}
    assert wire.produce(sequence=0, count=3, **given) == (E.NONE, 0)
    assert wire.produce(sequence=3, **given) == (E.NONE, 3)
    assert wire.produce(sequence=0, count=3, **given) == (E.NONE, 0)
    assert wire.produce(sequence=5, **given) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert wire.fetch()["HighWatermark"] == 4


@pytest.mark.parametrize("producer", [(-1, -1), (-1, 0), (-5, 3)])
def test_without_a_producer_id_a_sequence_means_nothing(make: Make, tmp_path: Path, producer: tuple[int, int]) -> None:
    wire = make(storage=Directory(tmp_path))
    wire.topic()
    assert [wire.produce(producer=producer, sequence=0) for _ in range(3)] == [(E.NONE, n) for n in range(3)]
    wire.cluster.close()
    again = make(storage=Directory(tmp_path))
    assert again.produce(producer=producer, sequence=7) == (E.NONE, 3)
    assert again.cluster.topics["t"].partitions[0].last_timestamps == {}


def test_a_producer_needs_a_sequence(wire: Wire) -> None:
    _, *producer = wire.init(None)
    assert wire.produce(producer=(producer[0], producer[1]), sequence=-1) == (E.INVALID_RECORD, -1)


def test_producer_ids_are_given_once(wire: Wire) -> None:
    ids = [wire.init(None)[1] for _ in range(3)] + [wire.init(f"x{n}")[1] for n in range(3)]
    assert len(set(ids)) == len(ids)


def test_a_transaction_of_version_1_is_added_to_written_and_committed(wire: Wire) -> None:
    _, *who = wire.init()
    producer = who[0], who[1]
    assert wire.add(producer) == E.NONE
    assert wire.produce(producer=producer, sequence=0, transactional_id="x") == (E.NONE, 0)
    assert wire.fetch(committed=True)["LastStableOffset"] == 0
    assert wire.end(producer)[0] == E.NONE
    after = wire.fetch(committed=True)
    assert (after["LastStableOffset"], after["HighWatermark"], after["AbortedTransactions"]) == (2, 2, [])


def test_a_transaction_of_version_2_adds_partitions_by_itself_and_ends_with_the_next_epoch(wire: Wire) -> None:
    _, *who = wire.init(version=5)
    producer = who[0], who[1]
    assert wire.produce(version=12, producer=producer, sequence=0, transactional_id="x") == (E.NONE, 0)
    assert wire.end(producer, version=5) == (E.NONE, producer[0], producer[1] + 1)
    bumped = producer[0], producer[1] + 1
    assert wire.produce(version=13, producer=producer, sequence=1, transactional_id="x")[0] == E.INVALID_PRODUCER_EPOCH
    assert wire.produce(version=13, producer=bumped, sequence=0, transactional_id="x") == (E.NONE, 2)
    assert wire.end(bumped, version=5, commit=False)[0] == E.NONE
    assert wire.fetch(committed=True)["AbortedTransactions"] == [{"ProducerId": producer[0], "FirstOffset": 2}]


@pytest.mark.parametrize(("version", "error"), [(9, E.INVALID_TXN_STATE), (11, E.TRANSACTION_ABORTABLE)])
def test_a_batch_that_nobody_has_announced_is_refused_by_verification(
    wire: Wire, version: int, error: ErrorCode
) -> None:
    _, *who = wire.init()
    assert wire.produce(version=version, producer=(who[0], who[1]), sequence=0, transactional_id="x") == (error, -1)
    assert wire.fetch()["HighWatermark"] == 0


def test_without_verification_it_hangs(make: Make) -> None:
    wire = make(machines=Machines(leaders=LeaderRules(verification=False)))
    wire.topic()
    _, *who = wire.init()
    assert wire.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x") == (E.NONE, 0)
    assert wire.fetch(committed=True)["LastStableOffset"] == 0


def test_who_comes_later_fences_who_was_there_before(wire: Wire) -> None:
    _, *who = wire.init()
    old = who[0], who[1]
    wire.add(old)
    wire.produce(producer=old, sequence=0, transactional_id="x")
    assert wire.init()[0] == E.CONCURRENT_TRANSACTIONS  # the first answer: the open transaction is aborted
    error, producer_id, epoch = wire.init()
    assert (error, producer_id) == (E.NONE, old[0])
    assert epoch > old[1]
    assert wire.end(old)[0] == E.PRODUCER_FENCED
    assert wire.produce(producer=old, sequence=1, transactional_id="x")[0] == E.INVALID_PRODUCER_EPOCH
    assert wire.fetch(committed=True)["AbortedTransactions"] == [{"ProducerId": old[0], "FirstOffset": 0}]


def test_a_transaction_that_takes_too_long_is_aborted(wire: Wire) -> None:
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x")
    wire.wait(59_000)
    assert wire.fetch(committed=True)["LastStableOffset"] == 0
    wire.wait(3_000)
    assert wire.fetch(committed=True)["LastStableOffset"] == 2
    assert wire.end((who[0], who[1]))[0] == E.PRODUCER_FENCED


def test_a_transactional_id_is_forgotten_when_it_is_not_used(make: Make) -> None:
    wire = make(settings=Settings(transactions=TransactionSettings(id_expiration_ms=1_000)))
    wire.init()
    assert wire.ask("DescribeTransactions", 0, TransactionalIds=["x"])["TransactionStates"][0]["ErrorCode"] == E.NONE
    wire.wait(12_000)
    [state] = wire.ask("DescribeTransactions", 0, TransactionalIds=["x"])["TransactionStates"]
    assert state["ErrorCode"] == E.TRANSACTIONAL_ID_NOT_FOUND


def test_the_timeout_of_a_transaction_has_bounds(wire: Wire) -> None:
    for timeout in (0, -1, 900_001):
        row = wire.ask("InitProducerId", 4, TransactionalId="x", TransactionTimeoutMs=timeout)
        assert row["ErrorCode"] == E.INVALID_TRANSACTION_TIMEOUT


def test_operators_see_open_transactions_and_can_end_one_that_hangs(make: Make) -> None:
    wire = make(machines=Machines(leaders=LeaderRules(verification=False)))
    wire.topic()
    _, *who = wire.init()
    wire.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x")
    topics = [{"Name": "t", "PartitionIndexes": [0]}]
    [known] = wire.ask("DescribeProducers", 0, Topics=topics)["Topics"][0]["Partitions"][0]["ActiveProducers"]
    assert (known["ProducerId"], known["CurrentTxnStartOffset"], known["LastSequence"]) == (who[0], 0, 0)
    [listed] = wire.ask("ListTransactions", 1)["TransactionStates"]
    assert (listed["TransactionalId"], listed["TransactionState"]) == ("x", "Empty")
    marker = {"ProducerId": who[0], "ProducerEpoch": who[1], "TransactionResult": False, "Topics": topics}
    row = wire.ask("WriteTxnMarkers", 1, Markers=[marker | {"CoordinatorEpoch": 0}])
    assert row["Markers"][0]["Topics"][0]["Partitions"][0]["ErrorCode"] == E.NONE
    assert wire.fetch(committed=True)["LastStableOffset"] == 2


@pytest.mark.parametrize("level", [0, 1, 2])
def test_clients_are_told_the_transaction_version(make: Make, level: int) -> None:
    wire = make(settings=Settings(transactions=TransactionSettings(version=level)))
    told = {f["Name"]: f["MaxVersionLevel"] for f in wire.ask("ApiVersions", 3)["FinalizedFeatures"]}
    assert told == {"group.version": 1} | ({"transaction.version": level} if level else {})


def test_a_coordinator_that_moves_goes_on_where_the_other_one_was(make: Make) -> None:
    wire = make(brokers=2)
    wire.topic()
    leader = wire.cluster.state_partition("x")
    here, there = leader.node, 3 - leader.node
    ask: Mapping[str, Any] = {"TransactionalId": "x", "TransactionTimeoutMs": 60_000}
    row = wire.ask("InitProducerId", 4, here, **ask)
    assert wire.ask("InitProducerId", 4, there, **ask)["ErrorCode"] == E.NOT_COORDINATOR
    wire.cluster.move_leader(leader.topic, leader.partition, there)
    assert wire.ask("InitProducerId", 4, here, **ask)["ErrorCode"] == E.NOT_COORDINATOR
    found = wire.ask("FindCoordinator", 4, KeyType=1, CoordinatorKeys=["x"])["Coordinators"][0]
    assert found["NodeId"] == there
    again = wire.ask("InitProducerId", 4, there, **ask)
    assert (again["ProducerId"], again["ProducerEpoch"]) == (row["ProducerId"], row["ProducerEpoch"] + 1)


# --- what another process finds --------------------------------------------------------------------------------------


def run_of_everything(wire: Wire) -> tuple[int, int]:
    """Run an aborted transaction and begin an open one; return producer id and epoch."""
    wire.topic()
    _, *who = wire.init()
    producer = who[0], who[1]
    wire.add(producer)
    wire.produce(producer=producer, sequence=0, count=2, transactional_id="x")
    wire.end(producer, commit=False)
    wire.add(producer)
    wire.produce(producer=producer, sequence=2, transactional_id="x")
    return producer


@pytest.mark.parametrize("level", [0, 1, 2])
def test_another_process_goes_on_with_what_is_in_the_files(make: Make, tmp_path: Path, level: int) -> None:
    settings = Settings(transactions=TransactionSettings(version=level))
    before = make(storage=Directory(tmp_path), settings=settings)
    producer = run_of_everything(before)
    after = make(storage=Directory(tmp_path), settings=settings)  # the previous process just ends, as after kill -9
    assert after.cluster.topics["t"].topic_id == before.cluster.topics["t"].topic_id
    assert after.fetch(committed=True) == before.fetch(committed=True)
    assert after.produce(producer=producer, sequence=0, count=2, transactional_id="x") == (E.NONE, 0)  # a late retry
    assert after.produce(producer=producer, sequence=2, transactional_id="x") == (E.NONE, 3)
    assert after.end(producer)[0] == E.NONE
    assert after.fetch(committed=True)["LastStableOffset"] == 5
    assert after.init(None)[1] > producer[0]


def test_what_was_decided_is_finished_by_the_next_process(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    producer = run_of_everything(before)
    before.cluster.transactions.end("x", *producer, commit=True, version=1, now=before.cluster.now)  # and no marker
    assert before.fetch(committed=True)["LastStableOffset"] == 3
    after = make(storage=Directory(tmp_path))
    after.wait(1)
    assert after.fetch(committed=True)["LastStableOffset"] == 5
    [state] = after.ask("DescribeTransactions", 0, TransactionalIds=["x"])["TransactionStates"]
    assert state["TransactionState"] == "CompleteCommit"


# --- these tests can fail --------------------------------------------------------------------------------------------


def test_a_mutated_leader_is_told_apart(make: Make) -> None:
    partition = mutated(ReadablePartition, {"IsIndexed": "NothingIndexed"})
    wire = make(machines=Machines(leaders=LeaderRules(partition=partition)))  # type: ignore[arg-type]
    run_of_everything(wire)
    assert wire.fetch(committed=True)["AbortedTransactions"] == []
