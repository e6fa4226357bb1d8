"""The contents of a partition in a Fetch response, and the records that read_committed delivers of it."""

from typing import Any

import pytest

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.record_batch import ControlRecord, ControlType, Record, build_batch, build_control_batch
from kafka_eos_checks.brokers.fetched import batches, committed

PRODUCER = 7


def data(offset: int, *, producer: int = PRODUCER) -> bytes:
    """A batch of a transaction."""
    return build_batch(
        [Record(value=b"v")],
        base_offset=offset,
        base_timestamp=0,
        is_transactional=True,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
    ).encode()


def marker(offset: int, control: ControlType) -> bytes:
    """A marker of the producer's transaction."""
    record = ControlRecord(control_type=control, coordinator_epoch=0)
    return build_control_batch(record, base_offset=offset, producer_id=PRODUCER, producer_epoch=0).encode()


def part(records: bytes, *aborted: int) -> dict[str, Any]:
    """A partition of a response, with the first offsets of aborted transactions."""
    return {
        "Records": records,
        "AbortedTransactions": [{"ProducerId": PRODUCER, "FirstOffset": offset} for offset in aborted],
    }


def delivered(log: bytes, *aborted: int) -> list[int]:
    """The base offsets that a read_committed consumer gets."""
    given = part(log, *aborted)
    return [batch.base_offset for batch in committed(batches(given), given["AbortedTransactions"])]


def test_an_aborted_transaction_is_left_out_up_to_its_marker_and_so_is_every_marker() -> None:
    log = data(0) + data(1, producer=8) + marker(2, ControlType.ABORT) + data(3) + marker(4, ControlType.COMMIT)
    assert delivered(log, 0) == [1, 3]
    assert delivered(log) == [0, 1, 3]
    assert [batch.base_offset for batch in batches(part(log))] == [0, 1, 2, 3, 4]


def test_an_incomplete_last_batch_is_left_out() -> None:
    log = data(0) + data(1)
    assert [batch.base_offset for batch in batches(part(log[:-1]))] == [0]
    assert batches(part(log[:10])) == []
    assert batches({"Records": None}) == []


def test_a_batch_with_a_negative_length_is_damaged_and_not_cut() -> None:
    log = bytearray(data(0) + data(1))
    log[len(data(0)) + 8] |= 0x80
    with pytest.raises(MalformedBatch):
        batches(part(bytes(log)))


def test_a_damaged_batch_is_reported() -> None:
    log = bytearray(data(0))
    log[-1] ^= 1
    with pytest.raises(MalformedBatch, match="CRC32C"):
        batches(part(bytes(log)))
