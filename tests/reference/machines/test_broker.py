"""The broker that clients see: one story through all its parts, and the codes of older requests."""

from dataclasses import replace

import pytest
from immutables import Map

from kafka_eos.errors import ErrorCode, NotEnabled
from kafka_eos.machines.broker import DATA, FIRST, MEMBER, NO_ANSWER, OFFSETS, SECOND, Broker, Constants
from kafka_eos.machines.group_coordinator import CONSUMER

VERSIONS = Map({"InitProducerId": 5, "EndTxn": 5, "Produce": 12, "TxnOffsetCommit": 5, "JoinGroup": 9})
CONSTANTS = Constants(
    max_sequence=2**31 - 1,
    cached_batches=5,
    producer_ids=frozenset({0}),
    max_epoch=32767,
    sequences=frozenset(),
    batch_counts=frozenset(),
    transactional_ids=frozenset({"A"}),
    members=frozenset({None, MEMBER}),
    generations=frozenset({-1, 1}),
    writers=frozenset(),
    cluster_version=2,
    client_version=2,
    outside=False,
    verification=True,
    api_versions=VERSIONS,
)
CONSUMERS = replace(
    CONSTANTS,
    group_protocol=CONSUMER,
    consumers=frozenset({FIRST, SECOND}),
    api_versions=VERSIONS.set("OffsetCommit", 9),
)


def open_transaction(constants: Constants = CONSTANTS) -> Broker:
    """Data and offsets in a transaction of a group's member."""
    broker = Broker.initial(constants).init_producer_id("A", -1, -1).join_group()
    broker = broker.produce("A", 0, 0, 0, 1).txn_offset_commit("A", 0, 0, MEMBER, 1)
    assert broker.answer.error is ErrorCode.NONE
    return broker


@pytest.mark.parametrize(("commit", "committed"), [(True, 0), (False, -1)])
def test_data_and_offsets_of_a_transaction_have_one_fate(commit: bool, committed: int) -> None:
    broker = open_transaction().end_txn("A", 0, 0, commit)
    assert (broker.answer.producer_id, broker.answer.epoch) == (0, 1)
    with pytest.raises(NotEnabled):
        broker.complete_transaction("A")
    broker = broker.write_marker("A", OFFSETS).write_marker("A", DATA).complete_transaction("A")
    kinds = {name: leader.transactions.entries[-1].kind for name, leader in broker.partitions.items()}
    assert set(kinds.values()) == {"commit" if commit else "abort"}
    assert broker.committed[DATA] == committed
    assert broker.pending[0][DATA] == -1
    assert broker.answer == NO_ANSWER


def test_a_client_that_asks_for_an_epoch_waits_until_the_open_transaction_is_aborted() -> None:
    fencing = open_transaction().init_producer_id("A", -1, -1)
    assert fencing.answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert fencing.to_mark["A"] == {DATA, OFFSETS}
    assert fencing.produce("A", 0, 0, 1, 1).answer.error is ErrorCode.NONE  # it is aborted with the rest
    settled = fencing.write_marker("A", DATA).write_marker("A", OFFSETS).complete_transaction("A")
    given = settled.init_producer_id("A", -1, -1)
    assert (given.answer.error, given.answer.epoch) == (ErrorCode.NONE, 2)
    assert given.produce("A", 0, 0, 1, 1).answer.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_older_request_is_told_an_older_code() -> None:
    assert open_transaction().end_txn("A", 0, 7, True).answer.error is ErrorCode.PRODUCER_FENCED
    old = replace(CONSTANTS, api_versions=VERSIONS.set("EndTxn", 1))
    assert open_transaction(old).end_txn("A", 0, 7, True).answer.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_member_of_another_generation_commits_nothing() -> None:
    broker = open_transaction()
    assert broker.txn_offset_commit("A", 0, 0, MEMBER, 2).answer.error is ErrorCode.ILLEGAL_GENERATION
    assert broker.txn_offset_commit("A", 0, 0, "stranger", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("version", "stale", "unknown"),
    [
        (5, ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (6, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_offsets_in_a_transaction_that_name_topics_by_id_are_told_of_epochs_and_of_unknown_groups(
    version: int, stale: ErrorCode, unknown: ErrorCode
) -> None:
    for constants, joined in ((CONSTANTS, ErrorCode.ILLEGAL_GENERATION), (CONSUMERS, stale)):
        versions = constants.api_versions.set("TxnOffsetCommit", version)
        broker = Broker.initial(replace(constants, api_versions=versions)).init_producer_id("A", -1, -1)
        assert broker.txn_offset_commit("A", 0, 0, FIRST, 2).answer.error is unknown
        member, known = (
            (MEMBER, broker.join_group()) if constants is CONSTANTS else (FIRST, broker.join_consumer_group(FIRST))
        )
        assert known.txn_offset_commit("A", 0, 0, member, 7).answer.error is joined


def test_a_member_commits_with_an_epoch_since_which_it_has_the_partition() -> None:
    broker = Broker.initial(CONSUMERS).join_consumer_group(SECOND).offset_commit(SECOND, 2)
    assert (broker.answer.error, broker.committed[DATA]) == (ErrorCode.NONE, 0)
    broker = broker.join_consumer_group(FIRST)
    assert broker.answer.epoch == 3
    kept = broker.leave_consumer_group(FIRST).heartbeat(SECOND, gives_up=False)
    assert [kept.offset_commit(SECOND, epoch).answer.error for epoch in (1, 2, 3, 4, 5)] == [
        ErrorCode.STALE_MEMBER_EPOCH,
        *[ErrorCode.NONE] * 3,
        ErrorCode.STALE_MEMBER_EPOCH,
    ]
    given_up = broker.heartbeat(SECOND, gives_up=True).heartbeat(FIRST, gives_up=False)
    assert given_up.membership.members[FIRST].assigned == {DATA}
    assert given_up.offset_commit(SECOND, 2).answer.error is ErrorCode.STALE_MEMBER_EPOCH
    given = given_up.init_producer_id("A", -1, -1).txn_offset_commit("A", 0, 0, SECOND, 2)
    assert given.answer.error is ErrorCode.ILLEGAL_GENERATION
    assert given_up.offset_commit(None, -1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_nobody_claims_to_be_a_member_of_a_group_that_never_had_one() -> None:
    with pytest.raises(NotEnabled):
        Broker.initial(CONSUMERS).offset_commit(FIRST, 2)
    assert Broker.initial(CONSUMERS).offset_commit(None, -1).answer.error is ErrorCode.NONE


def test_a_request_that_no_client_sends_is_not_enabled() -> None:
    with pytest.raises(NotEnabled):
        open_transaction().offset_commit(None, -1)


RESTARTING = replace(CONSTANTS, faults=frozenset({"restart"}), max_faults=1)


def test_a_retry_after_a_restart_is_acknowledged_and_no_question_is_open() -> None:
    broker = open_transaction(RESTARTING).produce("A", 0, 0, 1, 1).produce("A", 0, 0, 7, 1)
    assert broker.answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    restarted = broker.restart()
    assert restarted.answer == NO_ANSWER
    retry = restarted.produce("A", 0, 0, 0, 1)
    assert (retry.answer.error, retry.answer.offset) == (ErrorCode.NONE, 0)
    assert retry.partitions[DATA].log == broker.partitions[DATA].log
    assert {asked.guard_epoch for asked in restarted.partitions[DATA].asked.values()} == {-1}
    assert (restarted.pending, restarted.group) == (broker.pending, broker.group)


def test_after_a_restart_every_marker_of_a_prepared_transaction_is_sent_again() -> None:
    ended = open_transaction(RESTARTING).end_txn("A", 0, 0, True).write_marker("A", DATA)
    assert ended.to_mark["A"] == {OFFSETS}
    restarted = ended.restart()
    assert restarted.to_mark["A"] == {DATA, OFFSETS}
    done = restarted.write_marker("A", DATA).write_marker("A", OFFSETS).complete_transaction("A")
    assert [entry.kind for entry in done.partitions[DATA].transactions.entries] == ["transactional", "commit", "commit"]
    assert (done.committed[DATA], done.pending[0][DATA]) == (0, -1)


def test_after_a_restart_an_epoch_that_is_asked_for_again_is_refused() -> None:
    asked = Broker.initial(RESTARTING).init_producer_id("A", -1, -1).init_producer_id("A", 0, 0)
    assert asked.init_producer_id("A", 0, 0).answer.epoch == 1
    assert asked.restart().init_producer_id("A", 0, 0).answer.error is ErrorCode.PRODUCER_FENCED
    assert asked.restart().init_producer_id("A", 0, 1).answer.epoch == 2


def test_a_broker_is_restarted_as_often_as_the_model_allows() -> None:
    with pytest.raises(NotEnabled):
        open_transaction().restart()
    with pytest.raises(NotEnabled):
        Broker.initial(RESTARTING).restart().restart()
