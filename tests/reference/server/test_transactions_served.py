"""Producers and transactions as clients see them: requests in, responses out."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.record_batch import Record, build_batch, decode_batch
from kafka_eos.formats.transaction_log import TransactionLogKey, TransactionLogValue, decode_value
from kafka_eos.machines.leader import LeaderRules, Rules
from kafka_eos.machines.transactional_partition import ReadablePartition
from kafka_eos.server import transactions
from kafka_eos.server.cluster import EXPIRY_CHECK_MS, Limits, Machines, Settings
from kafka_eos.server.handlers.request import served_versions
from kafka_eos.server.storage import Directory
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos.wire.protocol import Message
from kafka_eos_checks.mutants.rules import mutated

from .conftest import Make, Wire, errors_in

E = ErrorCode


def test_a_batch_that_comes_again_is_acknowledged_at_its_first_place(wire: Wire) -> None:
    _, *producer = wire.init(None)
    given = {"producer": tuple(producer)}
    assert wire.produce(sequence=0, count=3, **given) == (E.NONE, 0)
    assert wire.produce(sequence=3, **given) == (E.NONE, 3)
    first, again = (
        wire.cluster.now,
        build_batch(
            [Record(value=b"x", offset_delta=delta) for delta in range(3)],
            base_timestamp=wire.cluster.now,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
        ),
    )
    wire.wait(1)
    data = [{"Name": "t", "PartitionData": [{"Index": 0, "Records": again.encode()}]}]
    [part] = wire.ask("Produce", 9, Acks=-1, TopicData=data)["Responses"][0]["PartitionResponses"]
    assert (part["ErrorCode"], part["BaseOffset"], part["LogAppendTimeMs"]) == (E.NONE, 0, first)
    assert wire.produce(sequence=5, **given) == (E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert wire.fetch()["HighWatermark"] == 4


@pytest.mark.parametrize("producer", [(-1, -1), (-1, 0), (-5, 3)])
def test_without_a_producer_id_a_sequence_means_nothing(make: Make, tmp_path: Path, producer: tuple[int, int]) -> None:
    wire = make(storage=Directory(tmp_path))
    wire.topic()
    found = [wire.produce(producer=producer, sequence=sequence) for sequence in (0, 0, -1)]
    assert found == [(E.NONE, n) for n in range(3)]
    wire.cluster.close()
    again = make(storage=Directory(tmp_path))
    assert again.produce(producer=producer, sequence=7) == (E.NONE, 3)
    assert again.cluster.topics["t"].partitions[0].last_timestamps == {}


def test_a_leader_keeps_the_last_entry_of_its_log_in_memory_and_no_other(wire: Wire) -> None:
    for _ in range(3):
        wire.produce(count=2)
        assert len(wire.cluster.topics["t"].partitions[0].state.log.entries) == 1


def test_a_producer_needs_a_sequence(wire: Wire) -> None:
    _, *producer = wire.init(None)
    assert wire.produce(producer=(producer[0], producer[1]), sequence=-1) == (E.INVALID_RECORD, -1)


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


def test_without_verification_an_unannounced_batch_hangs(make: Make) -> None:
    wire = make(machines=Machines(leaders=LeaderRules(verification=False)))
    wire.topic()
    _, *who = wire.init()
    assert wire.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x") == (E.NONE, 0)
    assert wire.fetch(committed=True)["LastStableOffset"] == 0


def test_a_later_instance_fences_the_earlier_one(wire: Wire) -> None:
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
    wire.wait(60_000)  # Kafka: start + timeout < now
    assert wire.fetch(committed=True)["LastStableOffset"] == 0
    wire.wait(499)  # it is looked for twice a second; Kafka looks every ten seconds
    assert wire.fetch(committed=True)["LastStableOffset"] == 0
    wire.wait(1)
    assert wire.fetch(committed=True)["LastStableOffset"] == 2
    assert wire.end((who[0], who[1]))[0] == E.PRODUCER_FENCED


def test_a_transactional_id_is_forgotten_when_it_is_not_used(make: Make) -> None:
    wire = make(settings=Settings(transactions=TransactionSettings(id_expiration_ms=EXPIRY_CHECK_MS)))
    wire.init()
    states = wire.ask("DescribeTransactions", 0, TransactionalIds=["nobody", "x"])["TransactionStates"]
    assert [state["ErrorCode"] for state in states] == [E.TRANSACTIONAL_ID_NOT_FOUND, E.NONE]
    wire.wait(EXPIRY_CHECK_MS)  # Kafka: last update <= now - expiration
    [state] = wire.ask("DescribeTransactions", 0, TransactionalIds=["x"])["TransactionStates"]
    assert state["ErrorCode"] == E.TRANSACTIONAL_ID_NOT_FOUND


def test_a_leader_refuses_an_epoch_that_has_passed_without_asking_the_coordinator(make: Make) -> None:
    wire = make(settings=Settings(transactions=TransactionSettings(id_expiration_ms=EXPIRY_CHECK_MS)))
    wire.topic()
    _, *who = wire.init()
    old = who[0], who[1]
    wire.add(old)
    wire.produce(producer=old, sequence=0, transactional_id="x")
    wire.init()  # the open transaction is aborted with the next epoch
    wire.wait(2 * EXPIRY_CHECK_MS)  # the coordinator would not know the id
    assert wire.produce(producer=old, sequence=1, transactional_id="x")[0] == E.INVALID_PRODUCER_EPOCH


def test_another_broker_gives_no_producer_id(make: Make) -> None:
    wire = make(2)
    other = 3 - wire.cluster.state_partition("x").node
    row = wire.ask("InitProducerId", 4, other, TransactionalId="x", TransactionTimeoutMs=60_000)
    assert (row["ErrorCode"], row["ProducerId"], row["ProducerEpoch"]) == (E.NOT_COORDINATOR, -1, -1)


def test_a_forgotten_transactional_id_does_not_hide_the_others_of_its_batch(wire: Wire) -> None:
    wire.init("y")
    log = wire.cluster.state_partition("y")
    batch, _ = decode_batch(log.store.read(0, log.log_end_offset, 0, at_least_one=True))
    [kept] = batch.records()
    forgotten = Record(key=TransactionLogKey(transactional_id="x").encode(), value=None)
    compacted = build_batch([forgotten, replace(kept, offset_delta=1)], base_timestamp=0)
    wire.cluster.transactions.known.clear()
    wire.cluster.transactions.recover([compacted])
    assert wire.cluster.transactions.known.keys() == {"y"}


def test_the_timeout_of_a_transaction_has_bounds(wire: Wire) -> None:
    for timeout in (0, -1, 900_001):
        row = wire.ask("InitProducerId", 4, TransactionalId="x", TransactionTimeoutMs=timeout)
        assert row["ErrorCode"] == E.INVALID_TRANSACTION_TIMEOUT


def described(wire: Wire) -> Message:
    state: Message = wire.ask("DescribeTransactions", 0, TransactionalIds=["x"])["TransactionStates"][0]
    return state


def last_stored(wire: Wire) -> TransactionLogValue:
    """The last record of the transactional id "x"."""
    leader = wire.cluster.state_partition("x")
    data = leader.store.read(leader.log_end_offset - 1, leader.log_end_offset, 1 << 20, True)
    value = decode_value(decode_batch(data)[0].records()[0].value)
    assert value is not None
    return value


def init_with(wire: Wire, timeout: int) -> Message:
    return wire.ask("InitProducerId", 4, TransactionalId="x", TransactionTimeoutMs=timeout)


def test_a_refused_initialisation_leaves_the_timeout_of_the_open_transaction(make: Make, tmp_path: Path) -> None:
    wire = make(storage=Directory(tmp_path))
    wire.topic()
    row = init_with(wire, 60_000)
    wire.add((row["ProducerId"], row["ProducerEpoch"]))
    assert init_with(wire, 5_000)["ErrorCode"] == E.CONCURRENT_TRANSACTIONS
    assert described(wire)["TransactionTimeoutMs"] == 60_000
    leader = wire.cluster.state_partition("x")
    data, position, written = leader.store.read(0, leader.log_end_offset, 1 << 20, True), 0, []
    while position < len(data):
        batch, position = decode_batch(data, position)
        written += [decode_value(record.value) for record in batch.records()]
    assert [value and value.transaction_timeout_ms for value in written] == [60_000] * 4


@pytest.mark.parametrize(("version", "stored"), [(3, 0), (4, 2), (5, 2)])
def test_a_partition_that_a_broker_adds_belongs_to_a_transaction_of_version_2(
    version: int, stored: int, wire: Wire
) -> None:
    _, producer_id, epoch = wire.init(version=5)
    if version < 4:  # a client's own request
        assert wire.add((producer_id, epoch)) == E.NONE
    else:
        topics = [{"Name": "t", "Partitions": [0]}]
        one = {"TransactionalId": "x", "ProducerId": producer_id, "ProducerEpoch": epoch, "VerifyOnly": False}
        row = wire.ask("AddPartitionsToTxn", version, Transactions=[one | {"Topics": topics}])
        assert errors_in(row) == [E.NONE] * 2
    value = last_stored(wire)
    assert value.client_transaction_version == stored
    assert [(each.topic, each.partition_ids) for each in value.transaction_partitions or ()] == [("t", (0,))]


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_client_that_adds_a_groups_offsets_by_a_request_does_not_follow_version_2(version: int, wire: Wire) -> None:
    """Kafka: KafkaApis.handleAddOffsetsToTxnRequest."""
    _, producer_id, epoch = wire.init(version=5)
    who = {"TransactionalId": "x", "ProducerId": producer_id, "ProducerEpoch": epoch}
    assert errors_in(wire.ask("AddOffsetsToTxn", version, **who, GroupId="g")) == [E.NONE]
    assert last_stored(wire).client_transaction_version == 0


@pytest.mark.parametrize(("level", "stored"), [(1, 0), (2, 2)])
def test_a_transaction_that_times_out_is_aborted_in_the_version_of_the_cluster(
    make: Make, level: int, stored: int
) -> None:
    """Kafka: TransactionCoordinator.abortTimedOutTransactions."""
    wire = make(settings=Settings(transactions=TransactionSettings(version=level)))
    wire.topic()
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    assert last_stored(wire).client_transaction_version == 0
    wire.wait(61_000)
    assert last_stored(wire).client_transaction_version == stored
    assert (last_stored(wire).producer_epoch, described(wire)["TransactionState"]) == (who[1] + 1, "CompleteAbort")


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(0, E.INVALID_TRANSACTION_TIMEOUT), (1, E.NONE), (900_000, E.NONE), (900_001, E.INVALID_TRANSACTION_TIMEOUT)],
)
def test_a_timeout_is_at_least_a_millisecond_and_at_most_what_the_broker_allows(
    timeout: int, error: ErrorCode, wire: Wire
) -> None:
    assert init_with(wire, timeout)["ErrorCode"] == error


def test_the_largest_timestamp_is_at_the_first_record_that_has_it(wire: Wire) -> None:
    for timestamp in (5, 7, 7, 6):
        batch = build_batch([Record(value=b"x")], base_timestamp=timestamp)
        part = {"PartitionData": [{"Index": 0, "Records": batch.encode()}]}
        assert errors_in(wire.ask("Produce", 9, Acks=-1, TopicData=[{"Name": "t"} | part])) == [E.NONE]

    def at(timestamp: int) -> tuple[int, int]:
        asked = {"Name": "t", "Partitions": [{"PartitionIndex": 0, "CurrentLeaderEpoch": -1, "Timestamp": timestamp}]}
        row = wire.ask("ListOffsets", 7, ReplicaId=-1, IsolationLevel=0, Topics=[asked])["Topics"][0]["Partitions"][0]
        return row["Offset"], row["Timestamp"]

    largest = -3  # KIP-734
    assert [at(timestamp) for timestamp in (largest, 0, 5, 6, 7, 8)] == [
        (1, 7),
        (0, 5),
        (0, 5),
        (1, 7),
        (1, 7),
        (-1, -1),
    ]


def test_nothing_is_read_at_the_end_of_what_a_reader_may_see(wire: Wire) -> None:
    _, *who = wire.init()
    producer = who[0], who[1]
    assert wire.produce() == (E.NONE, 0)
    wire.add(producer)
    assert wire.produce(producer=producer, sequence=0, transactional_id="x", count=2) == (E.NONE, 1)
    assert [bool(wire.fetch(offset=offset)["Records"]) for offset in (0, 1, 2, 3)] == [True, True, True, False]
    assert [bool(wire.fetch(offset=offset, committed=True)["Records"]) for offset in (0, 1, 2)] == [True, False, False]
    assert wire.fetch(offset=4)["ErrorCode"] == E.OFFSET_OUT_OF_RANGE


def test_the_start_of_a_transaction_is_known_until_the_producer_starts_again(wire: Wire) -> None:
    _, *who = wire.init()
    assert described(wire)["TransactionStartTimeMs"] == -1
    assert last_stored(wire).transaction_partitions is None  # Kafka: TransactionLog.valueToBytes
    start = wire.cluster.now
    wire.add((who[0], who[1]))
    wire.wait(1)
    wire.add((who[0], who[1]), wire.topic("u"))
    wire.end((who[0], who[1]))
    assert described(wire)["TransactionStartTimeMs"] == start
    assert last_stored(wire).transaction_partitions == ()
    wire.init()
    assert described(wire)["TransactionStartTimeMs"] == -1


def test_markers_that_are_delayed_come_at_the_time_that_was_said(wire: Wire) -> None:
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.cluster.delay_markers("x", wire.cluster.now + 100)
    assert wire.cluster.next_timer() == wire.cluster.now + 100
    wire.end((who[0], who[1]))
    for milliseconds, state in ((99, "PrepareCommit"), (1, "CompleteCommit")):
        wire.wait(milliseconds)
        assert described(wire)["TransactionState"] == state


def test_an_abort_of_what_has_not_begun_has_a_start(wire: Wire) -> None:
    """Kafka: TransactionMetadata.prepareAbortOrCommit."""
    _, *who = wire.init()
    wire.wait(1)
    wire.end((who[0], who[1]), commit=False, version=5)
    assert described(wire)["TransactionStartTimeMs"] == wire.cluster.now


FENCED = [
    ("InitProducerId", 3, E.INVALID_PRODUCER_EPOCH),
    ("InitProducerId", 4, E.PRODUCER_FENCED),
    ("AddPartitionsToTxn", 1, E.INVALID_PRODUCER_EPOCH),
    ("AddPartitionsToTxn", 2, E.PRODUCER_FENCED),
    ("AddOffsetsToTxn", 1, E.INVALID_PRODUCER_EPOCH),
    ("AddOffsetsToTxn", 2, E.PRODUCER_FENCED),
    ("EndTxn", 1, E.INVALID_PRODUCER_EPOCH),
    ("EndTxn", 2, E.PRODUCER_FENCED),
]


@pytest.mark.parametrize(("api", "version", "error"), FENCED)
def test_a_fenced_producer_is_told_what_its_version_knows(wire: Wire, api: str, version: int, error: ErrorCode) -> None:
    """Kafka: KafkaApis.handleInitProducerIdRequest, handleAddPartitionsToTxnRequest, handleEndTxnRequest."""
    _, *who = wire.init()
    for _ in range(2):
        wire.init()
    old = {"TransactionalId": "x", "ProducerId": who[0], "ProducerEpoch": who[1]}
    rows: dict[str, Message] = {
        "InitProducerId": {**old, "TransactionTimeoutMs": 60_000},
        "AddPartitionsToTxn": {f"V3AndBelow{key}": value for key, value in old.items()}
        | {"V3AndBelowTopics": [{"Name": "t", "Partitions": [0]}]},
        "AddOffsetsToTxn": {**old, "GroupId": "g"},
        "EndTxn": {**old, "Committed": True},
    }
    assert errors_in(wire.ask(api, version, **rows[api])) == [error]


def test_aborted_transactions_are_listed_in_the_order_of_their_markers(wire: Wire) -> None:
    """Kafka: TransactionIndex.collectAbortedTxns."""
    producers = {name: wire.init(name)[1:] for name in ("x", "y")}
    for name, sequence in (("x", 0), ("y", 0), ("x", 1)):
        wire.add(producers[name], name=name)
        wire.produce(producer=producers[name], sequence=sequence, transactional_id=name)
        if name == "y":
            wire.end(producers[name], commit=False, name=name)
    wire.end(producers["x"], commit=False)
    x, y = ({"ProducerId": producers[name][0], "FirstOffset": first} for name, first in (("x", 0), ("y", 1)))
    listed = [wire.fetch(offset=offset, committed=True)["AbortedTransactions"] for offset in range(5)]
    assert listed == [[y, x], [y, x], [y, x], [x], [x]]  # the markers are at 2 and 4; x is larger than a fetch from 3


def test_transactions_are_listed_that_are_open_for_longer_than_asked_for(wire: Wire) -> None:
    """Kafka: TransactionStateManager.listTransactionStates."""
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.wait(100)
    _, *other = wire.init("y")
    wire.add((other[0], other[1]), name="y")  # it begins now
    listed = [len(wire.ask("ListTransactions", 1, DurationFilter=at)["TransactionStates"]) for at in (-1, 0, 99, 100)]
    assert listed == [2, 1, 1, 0]


def test_transactions_are_listed_in_the_states_that_are_asked_for_and_unknown_ones_are_told(wire: Wire) -> None:
    for name in ("x", "y"):
        _, *who = wire.init(name)
    wire.add((who[0], who[1]), name="y")
    row = wire.ask("ListTransactions", 0, StateFilters=["Ongoing", "nonesuch", "Dead", "another", "c", "b"])
    assert [each["TransactionalId"] for each in row["TransactionStates"]] == ["y"]
    assert row["UnknownStateFilters"] == ["another", "b", "c", "nonesuch"]


def test_transactions_are_listed_whose_whole_id_matches_a_pattern(wire: Wire) -> None:
    for name in ("x", "xy", "yx"):
        wire.init(name)

    def listed(pattern: str | None) -> tuple[int, set[str]]:
        row = wire.ask("ListTransactions", 2, TransactionalIdPattern=pattern)
        return row["ErrorCode"], {each["TransactionalId"] for each in row["TransactionStates"]}

    assert listed("x.*") == (E.NONE, {"x", "xy"})
    assert listed(None) == listed("") == (E.NONE, {"x", "xy", "yx"})
    for wrong in ("(", r"(x)\1"):  # the latter is a pattern for Python, not for RE2
        assert listed(wrong) == (E.INVALID_REGULAR_EXPRESSION, set())


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


def test_operators_are_told_all_of_a_transaction_and_of_its_producers(wire: Wire) -> None:
    """Kafka: DescribeProducersResponse, DescribeTransactionsResponse, ListTransactionsResponse."""
    wire.topic("u", 2)
    log = wire.cluster.state_partition("x")
    wire.cluster.move_leader(log.topic, log.partition, log.node)  # so that nothing that is told is 0
    wire.init(None)
    wire.init()
    _, *who = wire.init()
    producer = {"ProducerId": who[0], "ProducerEpoch": who[1]}
    start = wire.cluster.now

    def add(*topics: str) -> None:
        rows = [{"Name": topic, "Partitions": [1 if topic == "u" else 0]} for topic in topics]
        below = {f"V3AndBelow{key}": value for key, value in (producer | {"TransactionalId": "x"}).items()}
        assert max(errors_in(wire.ask("AddPartitionsToTxn", 3, **below, V3AndBelowTopics=rows))) == E.NONE

    given = {"producer": (who[0], who[1]), "transactional_id": "x", "partition": 1}
    add("u")
    assert wire.produce("u", sequence=0, count=3, **given) == (E.NONE, 0)  # type: ignore[arg-type]
    wire.end((who[0], who[1]))
    wire.wait(5)
    add("u", "t")
    wire.produce("u", sequence=3, **given)  # type: ignore[arg-type]
    asked = [{"Name": "u", "PartitionIndexes": [1, 7]}, {"Name": "no", "PartitionIndexes": [2]}]
    known = {"LastSequence": 3, "LastTimestamp": start + 5, "CoordinatorEpoch": 1, "CurrentTxnStartOffset": 4}
    part = {"ErrorCode": E.NONE, "ErrorMessage": None, "ActiveProducers": [producer | known]}
    unknown = {"ErrorCode": E.UNKNOWN_TOPIC_OR_PARTITION, "ErrorMessage": None, "ActiveProducers": []}
    assert (who[0] > 0, who[1]) == (True, 1)
    assert wire.ask("DescribeProducers", 0, Topics=asked)["Topics"] == [
        {"Name": "u", "Partitions": [{"PartitionIndex": 1} | part, {"PartitionIndex": 7} | unknown]},
        {"Name": "no", "Partitions": [{"PartitionIndex": 2} | unknown]},
    ]
    found, nobody = wire.ask("DescribeTransactions", 0, TransactionalIds=["x", "nobody"])["TransactionStates"]
    assert found == producer | {
        "ErrorCode": E.NONE,
        "TransactionalId": "x",
        "TransactionState": "Ongoing",
        "TransactionTimeoutMs": 60_000,
        "TransactionStartTimeMs": start + 5,
        "Topics": [{"Topic": "t", "Partitions": [0]}, {"Topic": "u", "Partitions": [1]}],
    }
    lacking = [nobody[name] for name in ("ErrorCode", "TransactionalId", "TransactionState", "ProducerId", "Topics")]
    assert lacking == [E.TRANSACTIONAL_ID_NOT_FOUND, "nobody", "", 0, []]
    listed = {"TransactionalId": "x", "ProducerId": who[0], "TransactionState": "Ongoing"}
    answer = wire.ask("ListTransactions", 1, ProducerIdFilters=[who[0]])
    assert answer == {
        "ThrottleTimeMs": 0,
        "ErrorCode": E.NONE,
        "UnknownStateFilters": [],
        "TransactionStates": [listed],
    }
    assert wire.ask("ListTransactions", 1, ProducerIdFilters=[who[0] + 1])["TransactionStates"] == []


def test_the_coordinators_of_other_brokers_are_not_asked(make: Make) -> None:
    wire = make(2)
    wire.topic()
    here = {
        node: next(name for name in "abcdefgh" if wire.cluster.state_partition(name).node == node) for node in (1, 2)
    }
    _, *who = wire.init(here[1])
    wire.ask("InitProducerId", 4, 2, TransactionalId=here[2], TransactionTimeoutMs=60_000)
    other = {"TransactionalId": here[2], "ProducerId": who[0], "ProducerEpoch": who[1]}
    rows: list[tuple[str, int, Message]] = [
        ("InitProducerId", 4, other | {"TransactionTimeoutMs": 1_000}),
        ("AddPartitionsToTxn", 3, {f"V3AndBelow{key}": value for key, value in other.items()}),
        ("AddPartitionsToTxn", 4, {"Transactions": [other | {"VerifyOnly": False}]}),
        ("AddOffsetsToTxn", 3, other | {"GroupId": "g"}),
        ("EndTxn", 3, other | {"Committed": True}),
        ("DescribeTransactions", 0, {"TransactionalIds": [here[2]]}),
    ]
    topics = [{"Name": "t", "Partitions": [0]}]
    rows[1][2]["V3AndBelowTopics"] = rows[2][2]["Transactions"][0]["Topics"] = topics
    for api, version, row in rows:
        assert max(errors_in(wire.ask(api, version, **row))) == E.NOT_COORDINATOR, (api, version)
    listed = [wire.ask("ListTransactions", 1, node)["TransactionStates"] for node in (1, 2)]
    assert [[row["TransactionalId"] for row in each] for each in listed] == [[here[1]], [here[2]]]


def test_partitions_that_are_not_there_keep_the_others_out_of_a_transaction(wire: Wire) -> None:
    """Kafka: KafkaApis.handleAddPartitionsToTxnRequest."""
    _, producer_id, epoch = wire.init()
    who = {"TransactionalId": "x", "ProducerId": producer_id, "ProducerEpoch": epoch}
    topics = [{"Name": "t", "Partitions": [0, 1]}, {"Name": "no", "Partitions": [0]}]
    below = {f"V3AndBelow{key}": value for key, value in (who | {"Topics": topics}).items()}
    unknown, other = E.UNKNOWN_TOPIC_OR_PARTITION, E.OPERATION_NOT_ATTEMPTED
    expected = [
        {
            "Name": "t",
            "ResultsByPartition": [
                {"PartitionIndex": 0, "PartitionErrorCode": other},
                {"PartitionIndex": 1, "PartitionErrorCode": unknown},
            ],
        },
        {"Name": "no", "ResultsByPartition": [{"PartitionIndex": 0, "PartitionErrorCode": unknown}]},
    ]
    assert wire.ask("AddPartitionsToTxn", 3, **below)["ResultsByTopicV3AndBelow"] == expected
    verified = [{"Name": "t", "Partitions": [0]}]
    one = who | {"VerifyOnly": True}
    rows = [one | {"Topics": topics}, one | {"TransactionalId": "y", "Topics": verified}, one | {"Topics": verified}]

    def told(error: int) -> list[Message]:
        return [{"Name": "t", "ResultsByPartition": [{"PartitionIndex": 0, "PartitionErrorCode": error}]}]

    for in_transaction in (E.TRANSACTION_ABORTABLE, E.NONE):  # a partition that is only verified is not added
        answer = wire.ask("AddPartitionsToTxn", 5, Transactions=rows)
        found = [(row["TransactionalId"], row["TopicResults"]) for row in answer["ResultsByTransaction"]]
        assert found == [("x", expected), ("y", told(E.INVALID_PRODUCER_ID_MAPPING)), ("x", told(in_transaction))]
        assert wire.add((producer_id, epoch)) == E.NONE


@pytest.mark.parametrize("level", [1, 2])
def test_a_producer_is_served_in_every_version_of_its_requests(make: Make, level: int) -> None:
    wire = make(settings=Settings(transactions=TransactionSettings(version=level)))
    wire.topic()
    for version in served_versions("InitProducerId"):
        assert wire.init("x", version)[0] == wire.init(None, version)[0] == E.NONE, version
    nobody = {"TransactionalId": "y", "ProducerId": 7, "ProducerEpoch": 0}
    _, producer_id, epoch = wire.init()
    for who, error in (
        ({"TransactionalId": "x", "ProducerId": producer_id, "ProducerEpoch": epoch}, E.NONE),
        (nobody, E.INVALID_PRODUCER_ID_MAPPING),
    ):
        for version in range(4):
            below = {f"V3AndBelow{key}": value for key, value in who.items()}
            below["V3AndBelowTopics"] = [{"Name": "t", "Partitions": [0]}]
            assert set(errors_in(wire.ask("AddPartitionsToTxn", version, **below))) - {E.NONE} == {error} - {E.NONE}
        for version in served_versions("AddOffsetsToTxn"):
            assert errors_in(wire.ask("AddOffsetsToTxn", version, **who, GroupId="g")) == [error], version
        for version in range(5):
            assert errors_in(wire.ask("EndTxn", version, **who, Committed=True)) == [error], version
            if not error:
                assert wire.add((producer_id, epoch)) == E.NONE


def test_there_are_as_many_transactional_ids_as_there_may_be(make: Make) -> None:
    wire = make(2, settings=Settings(limits=Limits(transactional_ids=1)))
    first, second, *_ = (name for name in "abcdefgh" if wire.cluster.state_partition(name).node == 1)
    other = next(name for name in "abcdefgh" if wire.cluster.state_partition(name).node == 2)
    found = [wire.init(name) for name in (first, second, first, None, other)]
    assert [row[0] for row in found] == [E.NONE, E.POLICY_VIOLATION, E.NONE, E.NONE, E.NOT_COORDINATOR]
    assert found[1] == (E.POLICY_VIOLATION, -1, -1)


def test_a_producer_id_is_given_once_whatever_transactional_ids_do_in_between(wire: Wire) -> None:
    given = [wire.init()[1], wire.init(None)[1]]
    for step in (wire.add, wire.end):
        step((given[0], 0))
        given += [wire.init(None)[1], wire.init(f"y{len(given)}")[1]]
    assert given == list(range(given[0], given[0] + len(given)))


def test_an_open_transaction_is_not_forgotten_when_its_id_would_be(make: Make) -> None:
    wire = make(settings=Settings(transactions=TransactionSettings(id_expiration_ms=1_000)))
    wire.topic()
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.wait(2 * EXPIRY_CHECK_MS)
    assert described(wire)["TransactionState"] == "Ongoing"


def test_the_partitions_of_a_transaction_are_stored_and_marked_in_order(wire: Wire) -> None:
    """Kafka: TransactionLog.valueToBytes; in which order its markers are written Kafka leaves open."""
    _, *who = wire.init()
    names = ["e", "c", "a", "d", "b"]
    for name in names:
        wire.topic(name, 3)
    for number in (2, 0, 1):
        for name in names:
            topics = [{"Name": name, "Partitions": [number]}]
            asked = {"TransactionalId": "x", "ProducerId": who[0], "ProducerEpoch": who[1], "Topics": topics}
            wire.ask("AddPartitionsToTxn", 3, **{f"V3AndBelow{key}": value for key, value in asked.items()})
    stored = last_stored(wire).transaction_partitions or ()
    assert [(each.topic, each.partition_ids) for each in stored] == [(name, (0, 1, 2)) for name in sorted(names)]
    marked: list[str] = []
    wire.cluster.happened = lambda _action, _node, **row: marked.append(f"{row['topic']}-{row['partition']}")
    wire.end((who[0], who[1]))
    assert marked == [f"{name}-{number}" for name in sorted(names) for number in range(3)]


def test_a_coordinator_that_moves_takes_the_ids_of_its_partition_along_and_no_others(make: Make) -> None:
    wire = make()
    for name in "abcdefgh":
        wire.init(name)
    told: list[Any] = []
    wire.cluster.happened = lambda action, _node, **row: told.append((action, row.get("transactional_id")))
    leader = wire.cluster.state_partition("a")
    wire.cluster.move_leader(leader.topic, leader.partition, leader.node)
    of_it = [name for name in "abcdefgh" if wire.cluster.state_partition(name) is leader]
    assert told == [("LeaderChange", None), *(("Failover", name) for name in of_it)]


def test_a_transaction_of_version_2_ends_in_it_after_a_restart(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic()
    _, *who = before.init(version=5)
    assert before.produce(version=12, producer=(who[0], who[1]), sequence=0, transactional_id="x") == (E.NONE, 0)
    after = make(storage=Directory(tmp_path))
    assert after.init()[0] == E.CONCURRENT_TRANSACTIONS
    assert last_stored(after).client_transaction_version == 2
    assert after.fetch(committed=True)["AbortedTransactions"] == [{"ProducerId": who[0], "FirstOffset": 0}]


def test_an_empty_transactional_id_is_none(wire: Wire) -> None:
    """Kafka: TransactionCoordinator.handleInitProducerId."""
    assert wire.init("") == (E.INVALID_REQUEST, -1, -1)


def test_a_producer_that_presents_its_id_and_epoch_goes_on_in_the_next_epoch_and_no_other_does(wire: Wire) -> None:
    """KIP-360."""
    assert wire.init() == (E.NONE, 5, 0)
    for epoch in (1, 2, 3):
        assert wire.init(ProducerId=5, ProducerEpoch=epoch - 1) == (E.NONE, 5, epoch)
    assert wire.init(ProducerId=5, ProducerEpoch=2) == (E.NONE, 5, 3), "a retry"
    for producer_id, epoch in ((5, 1), (3, 5), (6, 3)):
        assert wire.init(ProducerId=producer_id, ProducerEpoch=epoch)[0] == E.PRODUCER_FENCED


def test_a_leader_of_kafka_refuses_what_follows_a_sequence_it_was_asked_about_even_if_that_was_none(make: Make) -> None:
    """Kafka: VerificationStateEntry.lowestSequence, LogValidator.validateBatch."""
    shipped = mutated(Rules, {"SequenceError": "AsShipped"})
    wire = make(machines=Machines(leaders=LeaderRules(leader=shipped)))  # type: ignore[arg-type]
    wire.topic()
    _, *who = wire.init()
    for sequence, error in ((-1, E.INVALID_RECORD), (0, E.OUT_OF_ORDER_SEQUENCE_NUMBER)):
        assert wire.produce(version=12, producer=(who[0], who[1]), sequence=sequence, transactional_id="x")[0] == error


def test_a_guard_is_gone_with_the_leader_that_has_given_it(make: Make) -> None:
    """Kafka: UnifiedLog.maybeStartTransactionVerification; the leader that follows has to ask anew."""
    wire = make(2)
    wire.topic()
    leader = wire.cluster.topics["t"].partitions[0]
    batch = build_batch([Record()], producer_id=7, producer_epoch=3, base_sequence=0, is_transactional=True)
    for moves, error in ((True, E.INVALID_TXN_STATE), (False, E.NONE)):
        ticket = leader.start_verification(7, 3, 0, 1)
        if moves:
            wire.cluster.move_leader("t", 0, 2)
        assert leader.append(batch, batch.encode(), ticket, wire.cluster.now).error == error


@pytest.mark.parametrize(("version", "level", "error"), [(1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 2, 47)])
def test_a_marker_of_version_2_has_an_epoch_of_its_own(wire: Wire, version: int, level: int, error: int) -> None:
    """Kafka: ProducerAppendInfo.checkProducerEpoch, KAFKA-19446."""
    wire.init(None)
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x")
    topics = [{"Name": "t", "PartitionIndexes": [0, 4]}, {"Name": "no", "PartitionIndexes": [0]}]
    marker = {"ProducerId": who[0], "TransactionResult": False, "CoordinatorEpoch": 0, "TransactionVersion": level}
    markers = [marker | {"ProducerEpoch": who[1] + higher, "Topics": topics} for higher in (0, 1)]
    rows = wire.ask("WriteTxnMarkers", version, Markers=markers)["Markers"]
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    for row, first in zip(rows, (error, E.NONE), strict=True):
        parts = [(0, first), (4, unknown)], [(0, unknown)]
        named = [[{"PartitionIndex": number, "ErrorCode": each} for number, each in own] for own in parts]
        assert row == {
            "ProducerId": who[0],
            "Topics": [{"Name": "t", "Partitions": named[0]}, {"Name": "no", "Partitions": named[1]}],
        }


def test_only_the_marker_that_was_refused_is_written_again(wire: Wire) -> None:
    wire.topic("u")
    _, *who = wire.init()
    for topic in ("t", "u"):
        wire.add((who[0], who[1]), topic)
    marker = {"ProducerId": who[0], "ProducerEpoch": who[1], "TransactionResult": False, "CoordinatorEpoch": 1}
    wire.ask("WriteTxnMarkers", 1, Markers=[marker | {"Topics": [{"Name": "t", "PartitionIndexes": [0]}]}])
    wire.end((who[0], who[1]))
    assert wire.init()[0] == E.CONCURRENT_TRANSACTIONS  # which makes the coordinator go on
    assert [wire.fetch(topic)["HighWatermark"] for topic in ("t", "u")] == [1, 1]


def loading(wire: Wire) -> set[str]:
    return set(wire.cluster.transactions.loading)


def test_a_coordinator_that_loads_writes_no_marker(make: Make) -> None:
    wire = make(2)
    wire.topic()
    name = next(name for name in "abcdefgh" if wire.cluster.state_partition(name).node == 2)
    ask: Mapping[str, Any] = {"TransactionalId": name}
    row = wire.ask("InitProducerId", 4, 2, **ask, TransactionTimeoutMs=60_000)
    who = {"ProducerId": row["ProducerId"], "ProducerEpoch": row["ProducerEpoch"]}
    topics = [{"Name": "t", "Partitions": [0]}]
    below = {f"V3AndBelow{key}": value for key, value in {**ask, **who, "Topics": topics}.items()}
    assert set(errors_in(wire.ask("AddPartitionsToTxn", 3, 2, **below))) == {E.NONE}
    wire.cluster.delay_markers(name, wire.cluster.now + 1_000)
    assert wire.cluster.next_timer() <= wire.cluster.now + 1_000
    wire.ask("EndTxn", 3, 2, **ask, **who, Committed=True)
    wire.cluster.crash(2, wire.cluster.now + 2_000)
    other = next(each for each in "abcdefgh" if wire.cluster.state_partition(each).name not in loading(wire))
    assert wire.init(other)[0] == E.NONE, "its coordinator has not moved"
    for milliseconds, written in ((1_999, 0), (1, 1)):
        wire.wait(milliseconds)
        assert wire.fetch()["HighWatermark"] == written


def test_what_is_due_when_the_clock_jumps_is_done_at_the_end_of_the_jump(make: Make) -> None:
    wire = make(settings=Settings(transactions=TransactionSettings(id_expiration_ms=2 * EXPIRY_CHECK_MS + 1)))
    wire.topic()
    row = init_with(wire, 2 * EXPIRY_CHECK_MS - 100)
    wire.init("y")
    wire.add((row["ProducerId"], row["ProducerEpoch"]))
    wire.wait(2 * EXPIRY_CHECK_MS - 90)  # between two times at which timeouts are looked for
    assert described(wire)["TransactionState"] == "CompleteAbort"
    wire.wait(100)
    [state] = wire.ask("DescribeTransactions", 0, TransactionalIds=["y"])["TransactionStates"]
    assert state["ErrorCode"] == E.NONE
    again = make(settings=Settings(transactions=TransactionSettings(id_expiration_ms=2 * EXPIRY_CHECK_MS + 1)))
    again.init()
    again.wait(2 * EXPIRY_CHECK_MS + 1)  # between two times at which ids are looked for that nobody uses
    assert described(again)["ErrorCode"] == E.TRANSACTIONAL_ID_NOT_FOUND


def test_what_no_client_asked_for_is_told_with_all_that_is_known_of_it(make: Make) -> None:
    wire = make(2, settings=Settings(internal_partitions=1))
    wire.topic()
    told: list[Any] = []
    wire.cluster.happened = lambda action, node, **columns: told.append((action, node, columns))

    def new() -> list[Any]:
        found = told.copy()
        told.clear()
        return found

    _, *who = wire.init()
    producer = {"TransactionalId": "x", "ProducerId": who[0], "ProducerEpoch": who[1]}
    wire.add((who[0], who[1]))
    assert new() == []
    marker = {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "transactional_id": "x",
        "producer_id": who[0],
        "coordinator_epoch": 0,
        "detail": {"committed": True, "epoch": who[1]},
    }
    wire.ask("EndTxn", 3, **producer, Committed=True)
    assert new() == [("WriteTxnMarkers", 1, marker)]
    wire.add((who[0], who[1]))
    wire.wait(61_000)
    timed_out = {"transactional_id": "x", "producer_id": who[0]}
    aborted = marker | {"offset": 1, "detail": {"committed": False, "epoch": who[1] + 1}}
    assert new() == [("TimeOut", 1, timed_out), ("WriteTxnMarkers", 1, aborted)]
    by_hand = {"ProducerId": 7, "ProducerEpoch": 3, "TransactionResult": False, "CoordinatorEpoch": 4}
    wire.ask("WriteTxnMarkers", 1, Markers=[by_hand | {"Topics": [{"Name": "t", "PartitionIndexes": [0]}]}])
    expected = marker | {"offset": 2, "transactional_id": None, "producer_id": 7, "coordinator_epoch": 4}
    detail = {"committed": False, "epoch": 3, "by_hand": True}
    assert new() == [("WriteTxnMarkers", 1, expected | {"detail": detail})]
    until = wire.cluster.now + 1_000
    wire.cluster.crash(1, until)
    moved = [{"topic": topic, "partition": 0, "leader_epoch": 1} for topic in sorted(wire.cluster.topics)]
    found = new()
    assert sorted((each for each in found if each[0] == "LeaderChange"), key=lambda each: str(each[2]["topic"])) == [
        ("LeaderChange", 2, row) for row in moved
    ]
    failed = {"transactional_id": "x", "coordinator_epoch": 1}
    assert [each for each in found if each[0] != "LeaderChange"] == [("Failover", 2, failed)]
    wire.wait(1_000)
    assert new() == [("Restart", 1, {})]


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


def test_the_next_coordinator_writes_a_marker_that_the_leader_has_refused(wire: Wire) -> None:
    """Kafka: TransactionMarkerRequestCompletionHandler, which gives up a marker of a coordinator that is fenced."""
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    topics = [{"Name": "t", "PartitionIndexes": [0]}]
    marker = {"ProducerId": who[0], "ProducerEpoch": who[1], "TransactionResult": False, "Topics": topics}
    wire.ask("WriteTxnMarkers", 1, Markers=[marker | {"CoordinatorEpoch": 1}])
    wire.end((who[0], who[1]))
    assert described(wire)["TransactionState"] == "PrepareCommit"
    leader = wire.cluster.state_partition("x")
    wire.cluster.move_leader(leader.topic, leader.partition, leader.node)
    wire.wait(1)
    assert described(wire)["TransactionState"] == "CompleteCommit"


@pytest.mark.parametrize(("moves", "error"), [(False, E.NONE), (True, E.PRODUCER_FENCED)])
def test_a_coordinator_that_moves_knows_no_more_than_its_log(moves: bool, error: ErrorCode, make: Make) -> None:
    wire = make(brokers=2, settings=Settings(transactions=TransactionSettings(version=1)))
    leader = wire.cluster.state_partition("x")
    ask: Mapping[str, Any] = {"TransactionalId": "x", "TransactionTimeoutMs": 60_000}
    first = wire.ask("InitProducerId", 4, leader.node, **ask)
    own = {"ProducerId": first["ProducerId"], "ProducerEpoch": first["ProducerEpoch"]}
    wire.ask("InitProducerId", 4, leader.node, **ask, **own)  # its answer is lost, so it is asked again
    if moves:
        wire.cluster.move_leader(leader.topic, leader.partition, 3 - leader.node)
    again = wire.ask("InitProducerId", 4, wire.cluster.state_partition("x").node, **ask, **own)
    assert again["ErrorCode"] == error


def test_a_coordinator_that_crashes_while_it_loads_is_loading_until_its_own_broker_is_back(make: Make) -> None:
    wire = make(brokers=2)
    leader = wire.cluster.state_partition("x")
    wire.cluster.crash(leader.node, wire.cluster.now + 1_000)
    wire.cluster.crash(leader.node, wire.cluster.now + 2_000)
    asked: Mapping[str, Any] = {"TransactionalId": "x", "TransactionTimeoutMs": 60_000}
    wire.wait(1_999)
    assert wire.ask("InitProducerId", 4, leader.node, **asked)["ErrorCode"] == E.COORDINATOR_LOAD_IN_PROGRESS
    wire.wait(1)
    assert wire.ask("InitProducerId", 4, leader.node, **asked)["ErrorCode"] == E.NONE


def test_a_coordinator_that_loads_aborts_and_forgets_nothing(make: Make) -> None:
    """Kafka: TransactionStateManager.timedOutTransactions, removeExpiredTransactionalIds."""
    wire = make(settings=Settings(transactions=TransactionSettings(id_expiration_ms=1_000)))
    wire.topic()
    wire.init("idle")
    _, *who = wire.init("open")
    assert wire.add((who[0], who[1]), name="open") == E.NONE
    coordinators = wire.cluster.transactions

    def states() -> dict[str, str]:
        return {name: known.state.name for name, known in coordinators.known.items()}

    coordinators.loading = {wire.cluster.state_partition(name).name: 1 << 62 for name in ("idle", "open")}
    wire.wait(100_000)
    assert states() == {"idle": "EMPTY", "open": "ONGOING"}
    coordinators.loading = {}
    wire.wait(1_000)
    assert states() == {"idle": "EMPTY", "open": "COMPLETE_ABORT"}
    wire.wait(EXPIRY_CHECK_MS)
    assert states() == {}


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


def test_a_transaction_that_has_ended_holds_nobody_up_after_a_restart(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    assert before.end(run_of_everything(before))[0] == E.NONE
    after = make(storage=Directory(tmp_path))
    assert after.produce() == (E.NONE, 5)
    assert after.fetch(committed=True)["LastStableOffset"] == 6
    [topic] = after.ask("DescribeProducers", 0, Topics=[{"Name": "t", "PartitionIndexes": [0]}])["Topics"]
    [producer] = topic["Partitions"][0]["ActiveProducers"]
    assert (producer["CurrentTxnStartOffset"], producer["LastSequence"]) == (-1, 2)


@pytest.mark.parametrize(("version", "stored"), [(1, 0), (2, 2)])
def test_what_was_decided_is_finished_by_the_next_process(
    make: Make, tmp_path: Path, version: int, stored: int
) -> None:
    before = make(storage=Directory(tmp_path))
    producer = run_of_everything(before)
    before.cluster.transactions.end("x", *producer, commit=True, version=version, now=before.cluster.now)  # no marker
    assert before.cluster.transactions.known["x"].state.name == "PREPARE_COMMIT"
    assert before.cluster.topics["t"].partitions[0].last_stable_offset == 3
    after = make(storage=Directory(tmp_path))
    assert after.fetch(committed=True)["LastStableOffset"] == 5
    [state] = after.ask("DescribeTransactions", 0, TransactionalIds=["x"])["TransactionStates"]
    assert state["TransactionState"] == "CompleteCommit"
    assert last_stored(after).client_transaction_version == stored


def test_a_transaction_keeps_its_start_and_its_timeout_over_a_restart(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic()
    before.topic("u")
    row, start = init_with(before, 5_000), before.cluster.now
    producer = row["ProducerId"], row["ProducerEpoch"]
    before.add(producer)
    before.produce(producer=producer, sequence=0, transactional_id="x")
    before.wait(2_000)
    before.add(producer, "u")
    after = make(storage=Directory(tmp_path))
    assert (described(after)["TransactionStartTimeMs"], described(after)["TransactionTimeoutMs"]) == (start, 5_000)
    after.wait(5_000)
    assert after.fetch(committed=True)["LastStableOffset"] == 0
    after.wait(Settings().timeout_check_ms)
    assert after.fetch(committed=True)["LastStableOffset"] == 2


def test_a_producer_wrote_last_when_its_last_batch_says_over_a_restart(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic()
    _, *who = before.init()
    before.add((who[0], who[1]))
    before.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x")
    times = [last_timestamp(make(storage=Directory(tmp_path)))]
    before.wait(1_000)
    before.end((who[0], who[1]))
    times.append(last_timestamp(make(storage=Directory(tmp_path))))
    assert times == [before.cluster.now - 1_000, before.cluster.now]


def last_timestamp(wire: Wire) -> int:
    topics = [{"Name": "t", "PartitionIndexes": [0]}]
    [known] = wire.ask("DescribeProducers", 0, Topics=topics)["Topics"][0]["Partitions"][0]["ActiveProducers"]
    return int(known["LastTimestamp"])


def test_a_batch_outside_of_transactions_is_in_none_over_a_restart(make: Make, tmp_path: Path) -> None:
    before = make(storage=Directory(tmp_path))
    before.topic()
    _, *who = before.init(None)
    assert before.produce(producer=(who[0], who[1]), sequence=0, count=2) == (0, 0)
    after = make(storage=Directory(tmp_path))
    assert after.fetch(committed=True)["LastStableOffset"] == 2
    assert after.produce(producer=(who[0], who[1]), sequence=2) == (0, 2)


def test_a_producer_is_forgotten_with_the_questions_about_it(make: Make) -> None:
    wire = make(settings=Settings(producer_id_expiration_ms=EXPIRY_CHECK_MS))
    wire.topic()
    _, *who = wire.init()
    wire.add((who[0], who[1]))
    wire.produce(producer=(who[0], who[1]), sequence=0, transactional_id="x")
    wire.end((who[0], who[1]))
    leader = wire.cluster.topics["t"].partitions[0]
    assert (leader.guarded_producers, len(leader.last_timestamps)) == (1, 1)
    wire.wait(2 * EXPIRY_CHECK_MS)
    assert (leader.guarded_producers, len(leader.last_timestamps)) == (0, 0)


def test_a_transactional_id_expires_after_its_last_use_over_a_restart(make: Make, tmp_path: Path) -> None:
    settings = Settings(transactions=TransactionSettings(id_expiration_ms=EXPIRY_CHECK_MS - 1_000))
    before = make(storage=Directory(tmp_path), settings=settings)
    before.topic()
    _, *who = before.init()
    before.add((who[0], who[1]))
    before.wait(2_000)
    before.end((who[0], who[1]))
    after = make(storage=Directory(tmp_path), settings=settings)
    after.wait(EXPIRY_CHECK_MS)
    assert described(after)["ErrorCode"] == E.NONE
    after.wait(EXPIRY_CHECK_MS)
    assert described(after)["ErrorCode"] == E.TRANSACTIONAL_ID_NOT_FOUND
    assert described(make(storage=Directory(tmp_path), settings=settings))["ErrorCode"] == E.TRANSACTIONAL_ID_NOT_FOUND


def test_no_producer_id_is_given_twice_over_restarts(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "PRODUCER_ID_BLOCK", 3)
    given: list[int] = []
    for run in range(3):
        wire = make(storage=Directory(tmp_path))
        names = (None, f"{run}", None, None)  # one more than a block has
        given += [wire.init(name)[1] for name in names]
    assert len(set(given)) == len(given)


# --- these tests can fail --------------------------------------------------------------------------------------------


def test_a_mutated_leader_is_noticed(make: Make) -> None:
    partition = mutated(ReadablePartition, {"IsIndexed": "NothingIndexed"})
    wire = make(machines=Machines(leaders=LeaderRules(partition=partition)))  # type: ignore[arg-type]
    run_of_everything(wire)
    assert wire.fetch(committed=True)["AbortedTransactions"] == []
