from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.clients.record_accumulator import Appended, NothingInFlight, RecordAccumulator, RecordTooLarge
from kafka_eos.clients.settings import producer_settings
from kafka_eos.formats.record_batch import HEADER_BYTES

RECORD = 100
SMALL = {"batch.size": "1000", "buffer.memory": "3000", "linger.ms": "10", "max.block.ms": "50"}


def accumulator(**given_settings: str) -> RecordAccumulator:
    words = {name.replace("_", "."): word for name, word in given_settings.items()}
    return RecordAccumulator(settings=producer_settings({**SMALL, **words}))


def filled(made: RecordAccumulator, records: int, *, partition: int = 0, now_ms: int = 0) -> RecordAccumulator:
    for _ in range(records):
        made, _ = made.append(partition, RECORD, now_ms)
    return made


def test_records_join_a_batch_until_it_is_full() -> None:
    made = filled(accumulator(), 9)
    assert [(batch.records, batch.size) for batch in made.queued] == [(9, HEADER_BYTES + 9 * RECORD)]
    made, outcome = made.append(0, RECORD, 0)
    assert outcome is Appended.BEGAN
    assert [batch.records for batch in made.queued] == [9, 1]


def test_each_partition_has_batches_of_its_own() -> None:
    made = filled(filled(accumulator(), 2, partition=0), 3, partition=1)
    assert [(batch.partition, batch.records) for batch in made.queued] == [(0, 2), (1, 3)]


def test_a_batch_size_of_0_makes_batches_of_one_record() -> None:
    made = filled(accumulator(batch_size="0"), 3)
    assert [batch.records for batch in made.queued] == [1, 1, 1]


def test_a_batch_is_ready_when_it_has_lingered() -> None:
    made = filled(accumulator(), 1, now_ms=5)
    assert made.ready(14) == ()
    assert made.next_ms(6) == 15
    assert made.ready(15) == made.queued


def test_a_batch_is_ready_earlier_if_it_is_full_or_another_follows() -> None:
    exactly, _ = accumulator().append(0, 1000 - HEADER_BYTES, 0)
    assert exactly.ready(0) == exactly.queued
    assert exactly.next_ms(0) == 0
    followed = filled(accumulator(), 10)
    assert [batch.records for batch in followed.ready(0)] == [9]


def test_a_sender_that_waits_for_memory_makes_every_batch_ready() -> None:
    made = accumulator()
    for partition in range(3):
        made = filled(made, 1, partition=partition)
    assert made.ready(0) == ()
    made, outcome = made.append(3, RECORD, 0)
    assert outcome is Appended.WAITS
    assert len(made.ready(0)) == 3


def test_a_batch_takes_memory_of_its_size_and_a_large_record_takes_its_own() -> None:
    made, _ = accumulator().append(0, 10, 0)
    assert made.free == 2000
    made, _ = made.append(1, 1500, 0)
    assert made.free == 2000 - 1500 - HEADER_BYTES
    with pytest.raises(RecordTooLarge, match=r"buffer\.memory has 3000"):
        made.append(0, 3000, 0)


def test_memory_is_free_again_when_a_batch_is_acknowledged_and_not_when_it_is_sent() -> None:
    made = filled(accumulator(), 1)
    made, sent = made.drain(10)
    assert [batch.attempts for batch in sent] == [1]
    assert (made.queued, made.free) == ((), 2000)
    assert made.acknowledged(0, 11).free == 3000


def test_send_waits_for_memory_until_a_batch_is_acknowledged() -> None:
    made = accumulator()
    for partition in range(3):
        made = filled(made, 1, partition=partition)
    made, first = made.append(3, RECORD, 1)
    made, second = made.append(3, RECORD, 2)
    made, joined = made.append(0, RECORD, 3)
    assert (first, second, joined) == (Appended.WAITS, Appended.WAITS, Appended.JOINED)
    made, _ = made.drain(4)
    made = made.acknowledged(1, 30)
    assert made.waiters == ()
    assert [(b.partition, b.records, b.created_ms) for b in made.queued] == [(3, 2, 30)]


def test_send_fails_when_it_has_waited_for_max_block_ms() -> None:
    made = accumulator()
    for partition in range(3):
        made = filled(made, 1, partition=partition, now_ms=100)
    made, _ = made.append(3, RECORD, 100)
    made, nothing = made.time_out(149)
    assert nothing.waiters == ()
    made, given_up = made.time_out(150)
    assert [(waiter.partition, waiter.since_ms) for waiter in given_up.waiters] == [(3, 100)]
    assert made.waiters == ()
    assert len(made.queued) == 3


def test_a_sender_that_need_not_wait_succeeds_even_if_max_block_ms_is_0() -> None:
    made = accumulator(max_block_ms="0")
    made, outcome = made.append(0, RECORD, 0)
    assert outcome is Appended.BEGAN
    for partition in range(1, 4):
        made, outcome = made.append(partition, RECORD, 0)
    assert outcome is Appended.WAITS
    assert len(made.time_out(0)[1].waiters) == 1


def test_a_batch_expires_after_its_delivery_timeout_wherever_it_is() -> None:
    made = accumulator(delivery_timeout_ms="1000", request_timeout_ms="900")
    made = filled(made, 9)
    made, sent = made.drain(10)
    made = filled(made, 2, now_ms=20)
    assert len(sent) == 1
    assert made.time_out(999)[1].batches == ()
    made, given_up = made.time_out(1000)
    assert [(batch.records, batch.attempts) for batch in given_up.batches] == [(9, 1)]
    assert made.next_ms(1000) == 1000
    made, given_up = made.time_out(1020)
    assert [(batch.records, batch.attempts) for batch in given_up.batches] == [(2, 0)]
    assert made.free == 3000
    assert made.next_ms(1020) is None


def test_the_memory_of_expired_batches_goes_to_waiting_senders() -> None:
    made = accumulator(delivery_timeout_ms="100", request_timeout_ms="90", max_block_ms="1000")
    for partition in range(3):
        made = filled(made, 1, partition=partition)
    made, _ = made.append(3, RECORD, 50)
    made, given_up = made.time_out(100)
    assert len(given_up.batches) == 3
    assert [(batch.partition, batch.created_ms) for batch in made.queued] == [(3, 100)]


def test_no_partition_has_more_requests_in_flight_than_the_limit() -> None:
    made = accumulator(batch_size="0", max_in_flight_requests_per_connection="2")
    made = filled(made, 4)
    counts = []
    for _ in range(3):
        made, sent = made.drain(10)
        counts.append(len(sent))
    assert counts == [1, 1, 0]
    assert [batch.number for batch in made.in_flight] == [0, 1]
    made, sent = made.acknowledged(0, 11).drain(11)
    assert [batch.number for batch in sent] == [2]


def test_a_refused_batch_is_sent_again_at_once_and_takes_no_more_records() -> None:
    made, _ = filled(accumulator(), 1).drain(10)
    made, failed = made.refused(0, 11)
    assert failed is None
    made, outcome = made.append(0, RECORD, 11)
    assert outcome is Appended.BEGAN
    assert [batch.number for batch in made.ready(11)] == [0]


def test_only_an_idempotent_producer_keeps_the_order_of_refused_batches() -> None:
    for idempotent, order in (("true", [0, 1, 2]), ("false", [1, 0, 2])):
        made = filled(accumulator(batch_size="0", enable_idempotence=idempotent), 3)
        made, _ = made.drain(10)
        made, _ = made.drain(10)
        made, _ = made.refused(0, 11)
        made, _ = made.refused(0, 12)
        assert [batch.number for batch in made.queued] == order


@pytest.mark.parametrize(("retries", "sent"), [("0", 1), ("1", 2), ("3", 4)])
def test_a_batch_fails_when_its_retries_are_used_up(retries: str, sent: int) -> None:
    made = filled(accumulator(retries=retries), 1)
    attempts = 0
    failed = None
    while failed is None:
        made, drained = made.drain(10)
        attempts += len(drained)
        made, failed = made.refused(0, 10)
    assert attempts == sent == failed.attempts
    assert made.free == 3000


def test_a_batch_fails_when_it_is_refused_after_its_delivery_timeout() -> None:
    made, _ = filled(accumulator(delivery_timeout_ms="1000", request_timeout_ms="900"), 1).drain(10)
    assert made.refused(0, 999)[1] is None
    assert made.refused(0, 1000)[1] is not None


def test_sent_retried_and_expired_batches_are_counted_in_records() -> None:
    made, _ = filled(accumulator(retries="1"), 3).drain(10)
    made, _ = made.refused(0, 20)
    made, _ = made.drain(20)
    made, failed = made.refused(0, 30)
    assert failed is not None
    names = made.metrics.names(30)
    assert [names[f"record-{what}-total"] for what in ("send", "retry", "error")] == [6, 3, 3]
    assert names["record-error-rate"] == pytest.approx(3 / 30)


def test_a_send_without_memory_counts_as_an_error() -> None:
    made = filled(accumulator(), 27)
    made, outcome = made.append(0, RECORD, 0)
    assert outcome is Appended.WAITS
    made, given_up = made.time_out(50)
    assert len(given_up.waiters) == 1
    assert made.metrics.failed.total == 1


def test_an_answer_without_a_request_is_an_error() -> None:
    with pytest.raises(NothingInFlight, match="partition 7"):
        accumulator().acknowledged(7, 0)


steps = st.lists(
    st.tuples(st.sampled_from(["append", "drain", "ack", "refuse", "wait"]), st.integers(0, 2), st.integers(1, 1200)),
    max_size=60,
)


@given(steps, st.booleans())
def test_every_record_ends_once_and_memory_never_exceeds_its_limit(
    taken: list[tuple[str, int, int]], idempotent: bool
) -> None:
    made = accumulator(
        enable_idempotence=str(idempotent).lower(), delivery_timeout_ms="400", request_timeout_ms="300", retries="3"
    )
    now = sent = stored = failed = refused_by_send = 0
    acknowledged: dict[int, list[int]] = {}
    for action, partition, size in taken:
        if action == "append":
            made, _ = made.append(partition, size, now)
            sent += 1
        elif action == "drain":
            made, _ = made.drain(now)
        elif action == "wait":
            now += size // 10
            made, given_up = made.time_out(now)
            failed += sum(batch.records for batch in given_up.batches)
            refused_by_send += len(given_up.waiters)
        else:
            first = next((batch for batch in made.in_flight if batch.partition == partition), None)
            if first is None:
                continue
            if action == "ack":
                made = made.acknowledged(partition, now)
                stored += first.records
                acknowledged.setdefault(partition, []).append(first.number)
            else:
                made, lost = made.refused(partition, now)
                failed += lost.records if lost else 0
        held = sum(batch.records for batch in (*made.queued, *made.in_flight))
        assert sent == held + len(made.waiters) + stored + failed + refused_by_send
        assert made.metrics.failed.total == failed + refused_by_send
        assert 0 <= made.free <= made.settings.buffer_memory
        numbers = Counter(batch.number for batch in (*made.queued, *made.in_flight))
        assert all(count == 1 for count in numbers.values())
        assert made.next_ms(now) is not None or (held == 0 and not made.waiters)
    now += 10_000
    made, given_up = made.time_out(now)
    while made.queued or made.in_flight:
        now += 10_000
        made, _ = made.time_out(now)
    assert (made.free, made.waiters) == (3000, ())
