import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_eos.formats.transaction_log import (
    DEFAULT_MAX_TIMEOUT_MS,
    LEGAL_TRANSITIONS,
    WRITTEN_STATES,
    MalformedTransactionRecord,
    TopicPartitions,
    TransactionLogKey,
    TransactionLogValue,
    TransactionState,
    decode_key,
    decode_value,
    is_legal,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "transaction_log.json").read_text(encoding="utf-8"))

int16, int32, int64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def tagged(first: int) -> st.SearchStrategy[tuple[tuple[int, bytes], ...]]:
    fields = st.dictionaries(st.integers(first, 2**31 - 1), st.binary(max_size=10), max_size=3)
    return fields.map(lambda by_tag: tuple(sorted(by_tag.items())))


def topics(flexible: bool) -> st.SearchStrategy[TopicPartitions]:
    return st.builds(
        TopicPartitions,
        topic=names,
        partition_ids=st.lists(int32, max_size=200).map(tuple),
        unknown_tagged_fields=tagged(0) if flexible else st.just(()),
    )


def values(version: int) -> st.SearchStrategy[TransactionLogValue]:
    newer: dict[str, Any] = {
        "previous_producer_id": int64,
        "next_producer_id": int64,
        "client_transaction_version": int16,
        "next_producer_epoch": int16,
        "unknown_tagged_fields": tagged(4),
    }
    return st.builds(
        TransactionLogValue,
        version=st.just(version),
        producer_id=int64,
        producer_epoch=int16,
        transaction_timeout_ms=int32,
        transaction_status=st.sampled_from(TransactionState),
        transaction_partitions=st.none() | st.lists(topics(version > 0), max_size=3).map(tuple),
        transaction_last_update_timestamp_ms=int64,
        transaction_start_timestamp_ms=int64,
        **(newer if version > 0 else {}),
    )


any_value = values(0) | values(1)


def snake(name: str) -> str:
    return re.sub(r"(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=[vector["name"] for vector in VECTORS["keys"]])
def test_a_key_is_read_as_kafka_reads_it(vector: dict[str, Any]) -> None:
    key = decode_key(bytes.fromhex(vector["hex"]))
    assert key.encode().hex() == vector["hex"]
    assert {"transactionalId": key.transactional_id} == vector["fields"]


@pytest.mark.parametrize("vector", VECTORS["values"], ids=[vector["name"] for vector in VECTORS["values"]])
def test_a_value_is_read_as_kafka_reads_it(vector: dict[str, Any]) -> None:
    value = decode_value(bytes.fromhex(vector["hex"]))
    assert value is not None
    assert value.encode().hex() == vector["hex"]
    fields = dict(vector["fields"])
    partitions = fields.pop("transactionPartitions")
    found = value.transaction_partitions
    assert (None if found is None else [(topic.topic, list(topic.partition_ids)) for topic in found]) == (
        None if partitions is None else [(topic["topic"], topic["partitionIds"]) for topic in partitions]
    )
    defaults = {f.name: f.default for f in dataclasses.fields(value) if f.default is not dataclasses.MISSING}
    expected = {**defaults, **{snake(name): number for name, number in fields.items()}}
    del expected["version"], expected["unknown_tagged_fields"]
    assert {name: getattr(value, name) for name in expected} == expected


def test_a_field_of_a_later_version_is_kept() -> None:
    [vector] = [vector for vector in VECTORS["values"] if "later version" in vector["name"]]
    value = decode_value(bytes.fromhex(vector["hex"]))
    assert value is not None
    assert value.unknown_tagged_fields == ((200, b"\1\2\3"),)


def test_a_tombstone_is_no_value() -> None:
    assert decode_value(None) is None


@given(names)
def test_a_key_survives_its_encoding(transactional_id: str) -> None:
    key = TransactionLogKey(transactional_id=transactional_id)
    assert decode_key(key.encode()) == key


@given(any_value)
def test_a_value_survives_its_encoding(value: TransactionLogValue) -> None:
    assert decode_value(value.encode()) == value


@given(any_value, st.data())
def test_changed_bytes_are_a_value_that_encodes_to_them_or_malformed(value: TransactionLogValue, data: Any) -> None:
    encoded = bytearray(value.encode())
    position = data.draw(st.integers(0, len(encoded) - 1))
    change = data.draw(st.sampled_from(("set", "cut", "insert")))
    if change == "set":
        encoded[position] = data.draw(st.integers(0, 255))
    elif change == "cut":
        del encoded[position : position + data.draw(st.integers(1, 4))]
    else:
        encoded[position:position] = data.draw(st.binary(min_size=1, max_size=4))
    check_value_or_error(bytes(encoded))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_value_that_encodes_to_them_or_malformed(data: bytes) -> None:
    for prefix in (b"", b"\0\0", b"\0\1"):
        check_value_or_error(prefix + data)


def check_value_or_error(data: bytes) -> None:
    found: TransactionLogValue | MalformedTransactionRecord | None
    try:
        found = decode_value(data)
    except MalformedTransactionRecord as error:
        found = error
    assert found is not None
    if isinstance(found, MalformedTransactionRecord):
        assert 0 <= found.position <= len(data)
    else:
        assert found.encode() == data


@given(st.binary(max_size=20))
def test_any_bytes_are_a_key_that_encodes_to_them_or_malformed(data: bytes) -> None:
    for prefix in (b"", b"\0\0", b"\0\0\0"):
        found: TransactionLogKey | MalformedTransactionRecord
        try:
            found = decode_key(prefix + data)
        except MalformedTransactionRecord as error:
            found = error
        if isinstance(found, MalformedTransactionRecord):
            assert 0 <= found.position <= len(prefix + data)
        else:
            assert found.encode() == prefix + data


# An EMPTY of version 1; its fields begin at 0, 2, 10, 12, 16, 17 (partitions), 18, 26, 34 (number of tagged fields).
EMPTY = bytes.fromhex("0001000000000000000700000000ea60000000000000000003e8ffffffffffffffff00")


@pytest.mark.parametrize(
    ("data", "position", "reason"),
    [
        (b"\0", 1, "1 bytes are left where a field takes 2"),
        (b"\0\2" + EMPTY[2:], 0, "value version 2, where 0 to 1 are known"),
        (EMPTY[:-1], 34, "0 bytes are left where a field takes 1"),
        (EMPTY + b"\0", 35, "1 bytes are left after the last field"),
        (EMPTY[:16] + b"\x08" + EMPTY[17:], 16, "transaction status 8 does not exist"),
        (EMPTY[:17] + b"\x80\x00" + EMPTY[18:], 17, "a varint that is too large or longer than needed"),
        (EMPTY[:17] + b"\xff\xff\xff\xff\xff\xff", 17, "a varint of more than 5 bytes"),
        (EMPTY[:17] + b"\x7f" + EMPTY[18:], 17, "17 bytes cannot hold 126 elements"),
        (EMPTY[:17] + b"\x02\x00" + EMPTY[18:], 18, "null where a string has to be"),
        (EMPTY[:17] + b"\x02\x81\x80\x02" + EMPTY[18:], 18, "a string of 32768 bytes"),
        (EMPTY[:17] + b"\x02\x02t\x00" + EMPTY[18:], 20, "null where an array of partitions has to be"),
        (EMPTY[:17] + b"\x02\x02\xff\x01\x00" + EMPTY[18:], 19, "no UTF-8: invalid start byte"),
        (EMPTY[:-1] + b"\x02\x02\x02\x00\x02\x02\x02\x00\x02", 39, "tag 2 after tag 2"),
        (EMPTY[:-1] + b"\x01\x02\x01\x02", 35, "client_transaction_version of 1 bytes"),
        (EMPTY[:-1] + b"\x01\x02\x02\x00\x00", 35, "client_transaction_version is written although it has its default"),
        (b"\0\0" + EMPTY[2:17] + b"\xff\xff\xff\xfe" + EMPTY[18:34], 17, "length -2 is negative, and not -1 for null"),
    ],
)
def test_a_malformed_value_says_where_and_why(data: bytes, position: int, reason: str) -> None:
    with pytest.raises(MalformedTransactionRecord) as caught:
        decode_value(data)
    assert (caught.value.position, caught.value.reason) == (position, reason)
    assert str(caught.value) == f"at byte {position}: {reason}"


@pytest.mark.parametrize(
    ("data", "position", "reason"),
    [
        (b"\0\1\0\1t", 0, "key version 1, where only 0 is known"),
        (b"\0\0\xff\xff", 2, "null where a string has to be"),
        (b"\0\0\0\2t", 5, "1 bytes are left where a field takes 2"),
        (b"\0\0\0\1tt", 5, "1 bytes are left after the last field"),
    ],
)
def test_a_malformed_key_says_where_and_why(data: bytes, position: int, reason: str) -> None:
    with pytest.raises(MalformedTransactionRecord) as caught:
        decode_key(data)
    assert (caught.value.position, caught.value.reason) == (position, reason)
    assert str(caught.value) == f"at byte {position}: {reason}"


def test_the_partitions_of_a_transaction_are_those_of_all_its_topics() -> None:
    value = decode_value(EMPTY)
    assert value is not None
    assert value.partitions() == frozenset()
    topics = TopicPartitions(topic="a", partition_ids=(2, 0)), TopicPartitions(topic="b", partition_ids=(2,))
    assert dataclasses.replace(value, transaction_partitions=topics).partitions() == {("a", 0), ("a", 2), ("b", 2)}


def test_a_field_that_version_0_has_no_place_for_is_named_by_its_tag() -> None:
    value = decode_value(EMPTY)
    assert value is not None
    with pytest.raises(OverflowError, match=r"no place for tagged field 2$"):
        dataclasses.replace(value, version=0, client_transaction_version=2).encode()


def test_a_value_out_of_range_is_not_encoded() -> None:
    value = decode_value(EMPTY)
    assert value is not None
    unfit: list[dict[str, Any]] = [
        {"producer_epoch": 2**15},
        {"client_transaction_version": 2**15},
        {"version": 0, "client_transaction_version": 2},
        {"transaction_partitions": (TopicPartitions(topic="t" * 2**15, partition_ids=()),)},
        {"transaction_partitions": (TopicPartitions(topic="t", partition_ids=(2**31,)),)},
    ]
    for change in unfit:
        with pytest.raises(OverflowError, match=r"place|most"):
            dataclasses.replace(value, **change).encode()


def test_the_legal_transitions_are_those_of_kafka() -> None:
    # Kafka 4.3.0: TransactionState.validPreviousStates, with the states by their ids
    previous = {0: {0, 4, 5}, 1: {0, 1, 4, 5}, 2: {1}, 3: {0, 1, 4, 5, 7}, 4: {2}, 5: {3}, 6: {0, 4, 5}, 7: {1}}
    assert {(int(a), int(b)) for a, b in LEGAL_TRANSITIONS} == {
        (a, b) for b, before in previous.items() for a in before
    }


def test_only_since_transaction_version_2_an_abort_needs_no_begun_transaction() -> None:
    empty, commit, abort = TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
    for version in (0, 1):
        extras = {(before, after) for before, after in LEGAL_TRANSITIONS if not is_legal(before, after, version)}
        assert extras == {(before, TransactionState.PREPARE_ABORT) for before in (empty, commit, abort)}
    assert all(is_legal(before, after, 2) for before, after in LEGAL_TRANSITIONS)
    assert not is_legal(TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_ABORT, 2)


def test_the_longest_timeout_is_a_quarter_of_an_hour_by_default_as_in_kafka() -> None:
    assert DEFAULT_MAX_TIMEOUT_MS == 15 * 60 * 1000


def test_pending_states_are_not_among_the_written_states() -> None:
    assert {state.name for state in set(TransactionState) - WRITTEN_STATES} == {"DEAD", "PREPARE_EPOCH_FENCE"}
