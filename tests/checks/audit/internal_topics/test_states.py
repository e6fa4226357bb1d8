"""The columns of ``__transaction_state`` against the readable decoder, on made and on broken bytes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example
from hypothesis import strategies as st

from kafka_eos.formats.transaction_log import (
    MalformedTransactionRecord,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
    decode_key,
    decode_value,
)
from kafka_eos_checks.audit.internal_topics import states
from kafka_eos_checks.audit.internal_topics.states import (
    States,
    concatenate_states,
    decode_partitions,
    places_of,
)

from ..conftest import drawn
from .conftest import Pair, states_of

INT64, INT32, INT16 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (64, 32, 16))
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
TOPICS = st.lists(
    st.builds(TopicPartitions, topic=NAMES, partition_ids=st.lists(INT32, max_size=3).map(tuple)), max_size=3
).map(tuple)
ZERO_FIELDS = {"producer_epoch": 0, "transaction_timeout_ms": 0, "transaction_last_update_timestamp_ms": 0}


@st.composite
def values(draw: st.DrawFn) -> TransactionLogValue:
    """A value of either version, with any choice of tagged fields, known and unknown."""
    version = draw(st.sampled_from([0, 1]))
    tagged: dict[str, Any] = {}
    if version:
        for name, numbers in (
            ("previous_producer_id", INT64),
            ("next_producer_id", st.one_of(st.just(256), INT64)),
            ("client_transaction_version", INT16),
            ("next_producer_epoch", INT16),
        ):
            if draw(st.booleans()):
                tagged[name] = draw(numbers)
        if draw(st.integers(0, 5)) == 0:
            tagged["unknown_tagged_fields"] = ((draw(st.integers(4, 200)), draw(st.binary(max_size=30))),)
    return TransactionLogValue(
        version=version,
        producer_id=draw(INT64),
        producer_epoch=draw(INT16),
        transaction_timeout_ms=draw(INT32),
        transaction_status=draw(st.sampled_from(list(TransactionState))),
        transaction_partitions=draw(st.one_of(st.none(), TOPICS)),
        transaction_last_update_timestamp_ms=draw(INT64),
        transaction_start_timestamp_ms=draw(INT64),
        **tagged,
    )


@st.composite
def broken(draw: st.DrawFn, good: bytes) -> bytes:
    """The bytes, or the bytes cut off, lengthened, or with another byte somewhere."""
    match draw(st.integers(0, 5)):
        case 0:
            return good[: draw(st.integers(0, len(good)))]
        case 1:
            return good + draw(st.binary(max_size=40))
        case 2 if good:
            at = draw(st.integers(0, len(good) - 1))
            return good[:at] + bytes([draw(st.integers(0, 255))]) + good[at + 1 :]
        case _:
            return good


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """A key and a value, broken or not, null or not."""
    key = draw(broken(TransactionLogKey(transactional_id=draw(NAMES)).encode()))
    value = draw(broken(draw(values()).encode()))
    return draw(st.sampled_from([key, key, key, None])), draw(st.sampled_from([value, value, value, None]))


def readable(given_pairs: Sequence[Pair]) -> list[tuple[int, str, TransactionLogValue | None]]:
    found = []
    for row, (key, value) in enumerate(given_pairs):
        try:
            found.append((row, decode_key(key or b"").transactional_id, decode_value(value)))
        except MalformedTransactionRecord:
            continue
    return found


def rows(found: States) -> list[tuple[int, str, TransactionLogValue | None]]:
    names = [found.names[number] for number in found.transactional_id.tolist()]
    return list(zip(found.row.tolist(), names, found.values(), strict=True))


PLAIN = TransactionLogValue(
    version=1,
    producer_id=7,
    producer_epoch=0,
    transaction_timeout_ms=0,
    transaction_status=TransactionState.ONGOING,
    transaction_partitions=(TopicPartitions(topic="t", partition_ids=(0,)),),
    transaction_last_update_timestamp_ms=0,
    transaction_start_timestamp_ms=0,
)
KEY = TransactionLogKey(transactional_id="t").encode()
WITH_DEFAULT = PLAIN.encode()[:-1] + bytes.fromhex("01 00 08") + b"\xff" * 8  # a default that is written
# The partitions end where eight bytes of a time look like a tagged field, or where a longer choice of fields fits too.
LOOKS_TAGGED = PLAIN.encode()[:-9] + bytes.fromhex("01 00 08 00 00 00 00 00 00 00 07")
SWALLOWED = PLAIN.encode()[:-1] + bytes.fromhex("01 05 12") + b"\0" * 17 + b"\0"


@drawn(st.lists(pairs(), max_size=12), few=30)
@example([(KEY, PLAIN.encode()), (KEY, None), (KEY, WITH_DEFAULT), (None, None), (KEY, b"")])
@example([(KEY, LOOKS_TAGGED), (KEY, SWALLOWED), (KEY, SWALLOWED + b"\0"), (b"\0\1\0\1t", PLAIN.encode())])
def test_columns_are_what_the_readable_decoder_says(given_pairs: list[Pair]) -> None:
    assert rows(states_of(given_pairs)) == readable(given_pairs)


@drawn(st.sampled_from([0, 1]), TOPICS, st.data(), few=40)
def test_partitions_are_what_the_readable_decoder_says(
    version: int, topics: tuple[TopicPartitions, ...], data: st.DataObject
) -> None:
    whole = states._encoded_partitions(replace(PLAIN, version=version, transaction_partitions=topics))
    array = data.draw(broken(whole))
    plain = states._plain_places(version, array)
    try:
        expected = decode_partitions(version, array) or ()
    except MalformedTransactionRecord:
        assert plain is None
    else:
        places = frozenset((topic.topic, number) for topic in expected for number in topic.partition_ids)
        assert plain in {None, places}
        assert places_of(version, array) == places
    few = all(len(topic.topic.encode()) < 127 for topic in topics)
    assert array != whole or not few or plain == frozenset((t.topic, n) for t in topics for n in t.partition_ids)


@drawn(st.lists(st.lists(pairs(), max_size=5), max_size=4), few=25)
def test_chunks_one_after_the_other_keep_their_strings(chunks: list[list[Pair]]) -> None:
    merged = concatenate_states([states_of(chunk) for chunk in chunks])
    assert rows(merged) == [row for chunk in chunks for row in readable(chunk)]
    assert len(set(merged.names)) == len(merged.names)


@drawn(st.lists(pairs(), min_size=1, max_size=12), st.integers(1, 3), st.integers(0, 200), few=25)
def test_a_part_of_the_records_keeps_only_its_own_strings(given_pairs: list[Pair], buckets: int, more: int) -> None:
    whole = states_of(given_pairs)
    strange = [f"strange-{number}" for number in range(more)]  # of records that went elsewhere: few, or many
    found = replace(whole, names=[*whole.names, *strange])
    parts = dict(found.scattered(np.arange(len(whole)) % buckets, buckets))
    assert all(rows(part) == rows(whole)[number::buckets] for number, part in parts.items())
    assert sum(map(len, parts.values())) == len(whole)
    for part in parts.values():
        assert part.names == [whole.names[number] for number in np.unique(part_of(whole, part))]


def part_of(whole: States, part: States) -> list[int]:
    """The numbers that the names of a part have in the whole."""
    numbers = dict(zip(whole.row.tolist(), whole.transactional_id.tolist(), strict=True))
    return [numbers[row] for row in part.row.tolist()]


def test_what_kafka_writes_is_never_decoded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    written = [
        TransactionLogValue(
            version=version,
            producer_id=producer_id,
            producer_epoch=3,
            transaction_timeout_ms=60_000,
            transaction_status=status,
            transaction_partitions=None if status is TransactionState.EMPTY else PLAIN.transaction_partitions,
            transaction_last_update_timestamp_ms=1_700_000_000_000,
            transaction_start_timestamp_ms=-1,
            **{name: number for name, number in tagged.items() if version},
        )
        for version in (0, 1)
        for producer_id in (0, 7, 256, 1 << 40)
        for status in list(TransactionState)[:6]
        for tagged in (
            {},
            {"client_transaction_version": 2},
            {"client_transaction_version": 2, "previous_producer_id": producer_id},
            {"client_transaction_version": 2, "previous_producer_id": 256, "next_producer_id": producer_id},
        )
    ]
    given_pairs = [(KEY, value.encode()) for value in written]
    expected = readable(given_pairs)
    asked: list[bytes | None] = []
    monkeypatch.setattr(states, "decode_key", asked.append)

    def counted(data: bytes | None) -> TransactionLogValue | None:
        asked.append(data)
        return decode_value(data)

    monkeypatch.setattr(states, "decode_value", counted)
    states.places_of.cache_clear()
    states.decode_partitions.cache_clear()
    found = states_of(given_pairs)
    assert len(found.lists) == 4
    assert len(asked) <= 2, "only null is no plain array, and each distinct one is decoded once"
    assert rows(found) == expected


@pytest.mark.parametrize(
    ("epochs", "led"),
    [
        ([], (-1, -1)),
        ([3, 3], (3, 100)),
        ([1, 2, 3, 3], (3, 102)),
        ([2, 1, 4, 1, 3], (3, 104)),
        ([3, 1, 4, 3, 3], (3, 103)),
    ],
)
def test_the_last_leader_leads_since_the_first_record_of_its_last_run(epochs: list[int], led: tuple[int, int]) -> None:
    assert states._led(np.array(epochs, np.int64), np.arange(100, 100 + len(epochs))) == led


def test_a_value_that_is_too_short_for_its_ending_has_another_form() -> None:
    tried = 0
    for number, (layout, masks, expected) in enumerate(states._FLEXIBLE, 1):
        tail = (expected & masks).view(np.uint8)
        least = 17 + 1 + layout.itemsize
        for size in range(max(least - 1, states._TAIL_BYTES), least + 1):
            value = np.concatenate((np.zeros(size - len(tail), np.uint8), tail))
            [kind] = states._kinds(value, np.array([0]), np.array([size]), np.array([1], np.int32)).tolist()
            assert (kind == number) == (size == least), f"{size} bytes, at least {least}"
            tried += size < least
    assert tried > 10
