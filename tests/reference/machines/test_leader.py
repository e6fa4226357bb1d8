"""One partition's leader: the order of its checks, and what only the server sends it."""

from dataclasses import replace

import pytest
from immutables import Map

from kafka_eos.errors import ErrorCode, NotEnabled
from kafka_eos.machines.leader import (
    NO_GUARD,
    NO_SEQUENCE,
    NOTHING_ASKED,
    OUTSIDE,
    Constants,
    Leader,
    LeaderRules,
    LeaderState,
    Rules,
)
from kafka_eos.machines.producer_state import Batch, Log
from kafka_eos.machines.transactional_partition import marker_entry
from kafka_eos_checks.mutants.rules import mutated

PRODUCER = 0


@pytest.fixture
def leader() -> Leader:
    return Leader.initial(
        Constants(
            max_sequence=9,
            cached_batches=2,
            producer_ids=frozenset({PRODUCER}),
            epochs=frozenset({0, 1}),
            max_epoch=9,
            sequences=frozenset({0, 1}),
            batch_counts=frozenset({1, 3}),
            versions=frozenset({0, 1, 2}),
            guard_numbers=frozenset({-1, 0, 1, 2}),
            coordinator_epochs=frozenset({0}),
            verification=True,
            expiration=True,
        )
    )


def batch(epoch: int, sequence: int, producer_id: int = PRODUCER) -> Batch:
    return Batch(producer_id=producer_id, epoch=epoch, sequence=sequence, count=1)


def after_transaction(leader: Leader) -> Leader:
    """Version 1: a batch of three records in epoch 0, and its marker."""
    asked = leader.start_verification(PRODUCER, 0, 0, 1)
    return asked.append_batch(PRODUCER, 0, 0, 3, 1, 0).append_marker(PRODUCER, 0, True, 0, 1)


def test_a_retry_is_known_before_its_guard_is_looked_at(leader: Leader) -> None:
    ended = after_transaction(leader)
    assert ended.acknowledge_duplicate(PRODUCER, 0, 0, 3).answer.offset == 0
    with pytest.raises(NotEnabled):
        ended.refuse_batch(PRODUCER, 0, 0, 3, 1, NO_GUARD)


def test_the_guard_is_looked_at_before_the_sequence(leader: Leader) -> None:
    ended = after_transaction(leader)
    assert ended.rules.batch_error(ended.leader, batch(0, 7), 1, NO_GUARD) is ErrorCode.INVALID_TXN_STATE
    asked = ended.start_verification(PRODUCER, 0, 7, 1)
    guard = asked.leader.questions(PRODUCER).guard
    assert asked.rules.batch_error(asked.leader, batch(0, 7), 1, guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_without_verification_a_leader_asks_in_version_2_and_looks_at_no_guard(leader: Leader) -> None:
    plain = Leader.initial(replace(leader.constants, verification=False))
    for version, asks in ((1, False), (2, True)):
        assert plain.rules.needs_verification(plain.leader, PRODUCER, 0, version) is asks
        assert plain.rules.batch_error(plain.leader, batch(0, 0), version, NO_GUARD) is ErrorCode.NONE
        assert leader.rules.batch_error(leader.leader, batch(0, 0), version, NO_GUARD) is ErrorCode.INVALID_TXN_STATE


def test_an_old_epoch_is_refused_before_the_guard_and_is_not_asked_about(leader: Leader) -> None:
    later = leader.append_batch(PRODUCER, 1, 0, 1, OUTSIDE, NO_GUARD)
    assert later.rules.batch_error(later.leader, batch(0, 0), 1, NO_GUARD) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert later.refuse_verification(PRODUCER, 0, 1).answer.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_sequence_is_looked_at_before_the_open_transaction(leader: Leader) -> None:
    opened = leader.start_verification(PRODUCER, 0, 0, 2).append_batch(PRODUCER, 0, 0, 1, 2, 0)
    refused = [opened.rules.batch_error(opened.leader, batch(0, s), OUTSIDE, NO_GUARD) for s in (1, 5)]
    assert refused == [ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_a_marker_takes_one_offset_after_all_records_of_a_batch(leader: Leader) -> None:
    ended = after_transaction(leader)
    assert [entry.offset for entry in ended.leader.transactions.entries] == [0, 3]
    assert (ended.answer.offset, ended.last_stable_offset()) == (3, 4)


def test_a_transaction_holds_the_last_stable_offset_until_its_marker(leader: Leader) -> None:
    opened = leader.start_verification(PRODUCER, 0, 0, 2).append_batch(PRODUCER, 0, 0, 1, 2, 0).append_unidentified(3)
    assert (opened.leader.log.log_end_offset, opened.last_stable_offset()) == (4, 0)
    assert opened.append_marker(PRODUCER, 1, False, 0, 2).last_stable_offset() == 5


def test_a_guard_is_of_no_use_after_a_marker_or_an_election(leader: Leader) -> None:
    asked = leader.start_verification(PRODUCER, 0, 0, 1)
    marked = asked.append_marker(PRODUCER, 0, False, 0, 1)
    assert marked.refuse_batch(PRODUCER, 0, 0, 1, 1, 0).answer.error is ErrorCode.INVALID_TXN_STATE
    elected = asked.elect_leader()
    assert elected.rules.batch_error(elected.leader, batch(0, 0), 1, 0) is ErrorCode.INVALID_TXN_STATE


def test_a_coordinators_batch_is_asked_for_its_guard_and_its_epoch_alone(leader: Leader) -> None:
    rules, state = leader.rules, leader.leader
    assert rules.batch_error(state, batch(0, NO_SEQUENCE), 1, NO_GUARD) is ErrorCode.INVALID_TXN_STATE
    assert rules.batch_error(state, batch(0, NO_SEQUENCE), 1, NOTHING_ASKED.guard) is ErrorCode.NONE
    written = rules.with_batch(state, batch(1, NO_SEQUENCE), 1)
    assert not rules.is_retry(written, batch(1, NO_SEQUENCE))
    assert rules.batch_error(written, batch(0, NO_SEQUENCE), 1, NO_GUARD) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert rules.batch_error(written, batch(1, NO_SEQUENCE), 1, NO_GUARD) is ErrorCode.NONE  # goes on


def test_the_rules_answer_for_producers_that_nobody_has_named_before(leader: Leader) -> None:
    rules = leader.rules
    state: LeaderState = replace(
        leader.leader, transactions=replace(leader.leader.transactions, producers=Map()), asked=Map()
    )
    written = rules.with_batch(state, batch(0, 0, producer_id=77), OUTSIDE)
    assert written.producer(77).epoch == 0
    ended = rules.with_marker(written, marker_entry(78, 3, False, 0), 2)
    assert (ended.producer(78).epoch, ended.questions(78).guard) == (3, 1)
    assert rules.marker_error(ended, marker_entry(78, 2, False, 0), 1) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_lowest_sequence_of_the_latest_epoch_is_remembered(leader: Leader) -> None:
    asked = leader.start_verification(PRODUCER, 0, 1, 1)
    assert asked.start_verification(PRODUCER, 0, 0, 1).leader.questions(PRODUCER).lowest_sequence == 0
    assert asked.start_verification(PRODUCER, 1, 5, 1).leader.questions(PRODUCER).lowest_sequence == 5
    later = asked.start_verification(PRODUCER, 1, 5, 1)
    assert later.start_verification(PRODUCER, 0, 0, 1).leader.questions(PRODUCER).lowest_sequence == 5


def test_kafka_refuses_what_comes_after_a_sequence_that_was_asked_about(leader: Leader) -> None:
    rules, asked = leader.rules, leader.start_verification(PRODUCER, 0, 1, 1).leader
    assert [rules.is_above_lowest(asked, batch(0, sequence)) for sequence in (0, 1, 2)] == [False, False, True]
    assert not rules.is_above_lowest(leader.leader, batch(0, 1))


def test_kafka_wants_an_unknown_producer_to_begin_with_zero_under_version_2(leader: Leader) -> None:
    rules, first, second = leader.rules, *(leader.start_verification(PRODUCER, 0, 0, version) for version in (1, 2))
    assert [rules.begins_behind_zero(second.leader, batch(0, sequence)) for sequence in (0, 1)] == [False, True]
    assert not rules.begins_behind_zero(first.leader, batch(0, 1))
    known = second.append_batch(PRODUCER, 0, 0, 1, OUTSIDE, NO_GUARD)
    assert not rules.begins_behind_zero(known.leader, batch(0, 1))


@pytest.mark.parametrize(("overrides", "kept"), [({}, 1), ({"AskedAfterBatch": "EveryBatchUsesGuardUp"}, -1)])
def test_kafka_drops_the_question_of_a_later_epoch_with_any_batch(overrides: dict[str, str], kept: int) -> None:
    rules = LeaderRules(leader=mutated(Rules, overrides))  # type: ignore[arg-type]
    spec, state = rules.of_leader(), rules.new_state()
    for epoch in (0, 1):
        state = spec.with_question(state, PRODUCER, epoch, 0, 1)
    assert spec.with_batch(state, batch(0, 0), 1).questions(PRODUCER).guard_epoch == kept


def test_kafka_as_shipped_refuses_a_later_sequence_and_a_new_producers_later_beginning(leader: Leader) -> None:
    def error(overrides: dict[str, str], version: int) -> ErrorCode:
        sequences = mutated(Log, {"AcceptsUnknownProducer": "AnySequenceOnVirginPartition"})
        rules = LeaderRules(leader=mutated(Rules, overrides), sequences=sequences)  # type: ignore[arg-type]
        spec, state = rules.of_leader(), rules.new_state()
        if version == 1:
            state = spec.with_batch(state, batch(0, 0), OUTSIDE)
        asked = spec.with_question(state, PRODUCER, 0, 0, version)
        return spec.sequence_error(asked, batch(0, 1))

    assert [error({}, version) for version in (1, 2)] == [ErrorCode.NONE] * 2
    shipped = [error({"SequenceError": "AsShipped"}, version) for version in (1, 2)]
    assert shipped == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] * 2
