"""Readers of a partition that transactions write to, as stories."""

from dataclasses import replace

import pytest

from kafka_eos.errors import NotEnabled
from kafka_eos.machines.consumer import BUFFERING, READ_COMMITTED, READ_UNCOMMITTED, Constants, Consumer
from kafka_eos.machines.transactional_partition import PLAIN, TRANSACTIONAL

CONSTANTS = Constants(
    producer_ids=frozenset({1, 2}),
    epochs=frozenset({0}),
    max_epoch=32767,
    coordinator_epochs=frozenset({0}),
    batch_kinds=frozenset({TRANSACTIONAL, PLAIN}),
    offsets=frozenset(range(12)),
    transaction_version=1,
    max_leader_epoch=1,
    index_failures=False,
    expiration=False,
    cleaning=True,
    readers=frozenset({READ_COMMITTED, READ_UNCOMMITTED, BUFFERING}),
    fetch_sizes=frozenset({1, 2, 9}),
)
WORDS = {"D": TRANSACTIONAL, "P": PLAIN}


def replicated(text: str, state: Consumer | None = None) -> Consumer:
    """The state after replicated batches (``D1``, ``P1``) and markers (``C1``, ``A1``) of producers."""
    state = state or Consumer.initial(CONSTANTS)
    for word in text.split():
        kind, producer_id = word[0], int(word[1])
        if kind in WORDS:
            state = state.append_batch(producer_id, 0, WORDS[kind])
        else:
            state = state.append_marker(producer_id, 0, kind == "C", 0)
        state = state.advance_high_watermark()
    return state


def delivered(state: Consumer, reader: str) -> list[int]:
    return list(state.delivered[reader])


def test_a_read_committed_reader_gets_the_committed_records_in_the_order_of_the_log() -> None:
    state = replicated("D1 D2 A2 D1 C1").fetch_committed(9)
    assert delivered(state, READ_COMMITTED) == [0, 3]
    assert state.positions[READ_COMMITTED] == 5


def test_a_read_committed_reader_stops_before_the_first_open_transaction_and_misses_later_commits() -> None:
    state = replicated("P2 D1 D2 C2").fetch_committed(9)
    assert (delivered(state, READ_COMMITTED), state.positions[READ_COMMITTED]) == ([0], 1)
    with pytest.raises(NotEnabled, match="nothing to read"):
        state.fetch_committed(9)
    assert delivered(replicated("C1", state).fetch_committed(9), READ_COMMITTED) == [0, 1, 2]


def test_a_response_may_end_in_the_middle_of_a_transaction() -> None:
    state = replicated("D1 D1 C1").fetch_committed(1)
    assert delivered(state, READ_COMMITTED) == [0]
    assert delivered(state.fetch_committed(2), READ_COMMITTED) == [0, 1]


def test_a_later_response_of_an_aborted_transaction_is_filtered_as_well() -> None:
    state = replicated("D1 D1 A1 D1 C1").fetch_committed(1).fetch_committed(1)
    assert (delivered(state, READ_COMMITTED), state.positions[READ_COMMITTED]) == ([], 2)
    assert delivered(state.fetch_committed(9), READ_COMMITTED) == [3]


def test_a_read_uncommitted_reader_gets_every_record_and_no_marker() -> None:
    state = replicated("D1 A1 D2 P1").fetch_uncommitted(9)
    assert delivered(state, READ_UNCOMMITTED) == [0, 2, 3]


def test_a_buffering_reader_gets_the_same_out_of_the_order_of_the_log_and_pays_with_memory() -> None:
    state = replicated("D1 D2 C2 D1 C1")
    held = state.fetch_and_hold(2)
    assert (held.held[1], held.held[2], held.most_held) == ([0], [1], 2)
    end = held.fetch_and_hold(9)
    assert (delivered(end, BUFFERING), end.most_held) == ([1, 0, 3], 2)
    assert set(delivered(end, BUFFERING)) == set(delivered(state.fetch_committed(9), READ_COMMITTED))


def test_a_buffering_reader_drops_what_is_aborted() -> None:
    state = replicated("D1 A1 P1").fetch_and_hold(9)
    assert (delivered(state, BUFFERING), state.held[1]) == ([2], [])


def test_a_buffering_reader_adds_a_cleaned_transaction_to_the_next_one() -> None:
    state = replicated("D1").fetch_and_hold(1)
    state = replicated("A1 P2", state).clean(0).clean(1)
    assert delivered(replicated("D1 C1", state).fetch_and_hold(9), BUFFERING) == [2, 0, 3]


def test_after_an_election_with_an_older_high_watermark_a_reader_stays_where_it_is() -> None:
    state = replicated("D1 C1 P2").fetch_committed(9)
    elected = state.elect_leader(3, 0)
    assert (elected.last_stable_offset(), elected.positions[READ_COMMITTED]) == (0, 3)
    with pytest.raises(NotEnabled, match="nothing to read"):
        elected.fetch_committed(9)


def test_the_records_left_by_the_cleaner_are_read_once() -> None:
    state = replicated("D1 C1 P2 P2").clean(0).fetch_committed(1).fetch_committed(9)
    assert delivered(state, READ_COMMITTED) == [2, 3]


def test_a_reader_that_a_model_does_not_have_gets_nothing() -> None:
    alone = Consumer.initial(replace(CONSTANTS, readers=frozenset()))
    for fetch in (alone.fetch_committed, alone.fetch_uncommitted, alone.fetch_and_hold):
        with pytest.raises(NotEnabled, match="no such reader"):
            fetch(1)
