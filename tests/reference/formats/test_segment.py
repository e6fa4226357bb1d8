import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_eos.formats import segment
from kafka_eos.formats.message_set import Message, build_message_set
from kafka_eos.formats.record_batch import Record, RecordBatch, build_batch
from kafka_eos.formats.segment import (
    AbortedTransaction,
    CorruptRegion,
    LeaderEpochStart,
    MalformedFile,
    RegionKind,
    StoredBatch,
    read_leader_epochs,
    read_offset_index,
    read_producer_snapshot,
    read_segment,
    read_time_index,
    read_transaction_index,
    scan,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "partition_files.json").read_text())["vectors"]
SIZE = 100


def batch(offset: int) -> RecordBatch:
    """A batch of exactly 100 bytes."""
    built = build_batch([Record(value=bytes([offset]) * 32)], base_offset=offset, base_timestamp=5, base_sequence=0)
    assert built.size == SIZE
    return built


FIVE = b"".join(batch(offset).encode() for offset in range(5))


def found(data: bytes | bytearray) -> list[tuple[int, int] | tuple[int, int, RegionKind]]:
    """Position and base offset of each batch; position, end and kind of each region."""
    return [
        (item.position, item.batch.base_offset)
        if isinstance(item, StoredBatch)
        else (item.position, item.end, item.kind)
        for item in scan(bytes(data))
    ]


def test_a_segment_is_read_batch_by_batch(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(FIVE)
    assert list(read_segment(path)) == [StoredBatch(position=SIZE * offset, batch=batch(offset)) for offset in range(5)]


def test_an_empty_segment_has_nothing(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"")
    assert list(read_segment(path)) == []


def test_a_reader_may_stop_early(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"damage" + FIVE)
    items = read_segment(path)
    assert isinstance(next(items), CorruptRegion)
    assert isinstance(next(items), StoredBatch)
    items.close()  # type: ignore[attr-defined]
    path.unlink()


def test_a_preallocated_tail_is_one_region_of_zeroes() -> None:
    assert found(batch(0).encode() + bytes(10_000)) == [(0, 0), (100, 10_100, RegionKind.ZEROES)]
    assert found(bytes(30)) == [(0, 30, RegionKind.ZEROES)]


def test_zeroes_before_a_batch_are_damage_and_no_tail() -> None:
    assert found(batch(0).encode() + bytes(77) + batch(1).encode()) == [
        (0, 0),
        (100, 177, RegionKind.CORRUPT),
        (177, 1),
    ]


@pytest.mark.parametrize("left", [8, 11, 60, 61, 99])
def test_a_batch_cut_off_at_the_end_is_a_torn_tail(left: int) -> None:
    assert found(FIVE[: 400 + left])[-2:] == [(300, 3), (400, 400 + left, RegionKind.TORN_TAIL)]


def test_a_batch_with_a_wrong_crc_is_skipped_by_its_own_length_and_says_why() -> None:
    damaged = bytearray(FIVE)
    damaged[250] ^= 1
    assert found(damaged) == [(0, 0), (100, 1), (200, 300, RegionKind.CORRUPT), (300, 3), (400, 4)]
    region = list(scan(damaged))[2]
    assert isinstance(region, CorruptRegion)
    assert region.reason.startswith("CRC32C is ")


def test_a_last_batch_with_a_wrong_crc_is_damage_and_no_torn_tail() -> None:
    damaged = bytearray(FIVE)
    damaged[450] ^= 1
    assert found(damaged)[-2:] == [(300, 3), (400, 500, RegionKind.CORRUPT)]
    damaged[416] = 3  # the magic number of no format, also in a header without anything after it
    assert found(damaged[:461])[-1] == (400, 461, RegionKind.CORRUPT)


def test_a_batch_inside_the_value_of_a_damaged_record_is_not_in_the_log() -> None:
    outer = bytearray(build_batch([Record(value=batch(7).encode())]).encode())
    outer[30] ^= 1
    assert found(outer + batch(8).encode()) == [(0, len(outer), RegionKind.CORRUPT), (len(outer), 8)]
    assert found(outer) == [(0, len(outer), RegionKind.CORRUPT)]


@pytest.mark.parametrize("length", [0, 48, 89, 1000, 2**31 - 1])
def test_a_wrong_length_does_not_hide_the_batches_after_it(length: int) -> None:
    damaged = bytearray(FIVE)
    damaged[208:212] = length.to_bytes(4, "big")
    assert found(damaged) == [(0, 0), (100, 1), (200, 300, RegionKind.CORRUPT), (300, 3), (400, 4)]


def test_a_batch_of_an_older_format_is_named() -> None:
    damaged = bytearray(FIVE)
    damaged[216] = 1
    region = list(scan(damaged))[2]
    assert isinstance(region, CorruptRegion)
    assert (region.kind, region.reason) == (
        RegionKind.CORRUPT,
        "magic 1, where only batches of format version 2 are read",
    )


@pytest.mark.parametrize("offsets", [(7,), (7, 8), (7, 9, 12)])
def test_messages_of_the_formats_before_batches_are_one_region_with_their_offsets(offsets: tuple[int, ...]) -> None:
    old = build_message_set([Message(offset=offset, magic=1, timestamp=5, value=b"v") for offset in offsets])
    region, following = scan(old + batch(13).encode())
    said = f"messages of format version 0 or 1, offsets {offsets[0]} to {offsets[-1]}"
    assert region == CorruptRegion(position=0, end=len(old), kind=RegionKind.OLD_FORMAT, reason=said)
    assert following == StoredBatch(position=len(old), batch=batch(13))


def test_a_message_of_the_formats_before_batches_may_be_cut_off_anywhere() -> None:
    old = build_message_set([Message(offset=7, magic=1, timestamp=5, value=b"v")])
    for length in range(len(old)):
        first, *rest = found(old + old[:length])
        assert first == (0, len(old), RegionKind.OLD_FORMAT)
        assert [region[:2] for region in rest] == ([(len(old), len(old) + length)] if length else [])


def test_a_batch_is_found_right_after_a_byte_of_damage() -> None:
    assert found(b"\x07" + batch(1).encode()) == [(0, 1, RegionKind.CORRUPT), (1, 1)]


def test_a_batch_is_found_though_the_byte_before_its_magic_is_like_it() -> None:
    """The leader epoch ends with the byte of the magic, and the CRC with 0, as the attributes begin."""
    alike = (dataclasses.replace(batch(number), partition_leader_epoch=2).encode() for number in range(256))
    data = next(encoded for encoded in alike if encoded[15] == encoded[16] and encoded[20] == 0)
    first, second = found(bytes(5) + data)
    assert (first, second[0]) == ((0, 5, RegionKind.CORRUPT), 5)


def test_a_batch_that_the_cleaner_has_emptied_is_taken_for_one() -> None:
    assert segment._plausible_size(dataclasses.replace(batch(3), record_count=0).encode(), 0) == SIZE


@pytest.mark.parametrize(
    "change",
    [
        {"base_offset": -1},
        {"partition_leader_epoch": -2},
        {"last_offset_delta": -1},
        {"record_count": 2},
        {"producer_id": -2},
        {"max_timestamp": -2},
    ],
)
def test_an_implausible_header_is_not_taken_for_the_next_batch(change: dict[str, int]) -> None:
    assert segment._plausible_size(batch(3).encode(), 0) == SIZE
    assert segment._plausible_size(dataclasses.replace(batch(3), **change).encode(), 0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("magic", [1, 3])
def test_a_batch_of_another_format_is_not_taken_for_the_next(magic: int) -> None:
    data = batch(3).encode()
    assert segment._plausible_size(data[:16] + bytes([magic]) + data[17:], 0) is None


def test_the_search_for_a_batch_gives_up_when_its_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    header_that_lies = batch(0).encode()[:61]
    data = header_that_lies * 200 + batch(1).encode()
    assert found(data)[-1] == (200 * 61, 1)
    monkeypatch.setattr(segment, "RESYNC_CHECKED_BYTES", 1000)
    assert found(data) == [(0, len(data), RegionKind.CORRUPT)]


def test_random_bytes_before_a_batch_are_one_region() -> None:
    seed = 20260514
    noise = random.Random(seed).randbytes(200_000)
    assert found(noise + batch(1).encode()) == [(0, len(noise), RegionKind.CORRUPT), (len(noise), 1)], f"seed {seed}"


@settings(deadline=None)
@given(st.data())
def test_batches_and_regions_cover_the_bytes_in_order(data: st.DataObject) -> None:
    damaged = bytearray(FIVE)
    for _ in range(data.draw(st.integers(0, 4))):
        start = data.draw(st.integers(0, len(damaged)))
        end = data.draw(st.integers(start, min(start + 150, len(damaged))))
        damaged[start:end] = data.draw(st.binary(max_size=20) | st.integers(0, 200).map(bytes))
    position = 0
    for item in scan(bytes(damaged)):
        assert item.position == position
        if isinstance(item, StoredBatch):
            encoded = item.batch.encode()
            assert damaged[position : position + len(encoded)] == encoded
            position += len(encoded)
        else:
            assert item.end > position
            position = item.end
    assert position == len(damaged)


@settings(deadline=None)
@given(st.integers(0, 4), st.integers(0, SIZE - 1), st.integers(1, 255))
def test_one_damaged_byte_costs_at_most_one_batch(number: int, at: int, flip: int) -> None:
    damaged = bytearray(FIVE)
    damaged[number * SIZE + at] ^= flip
    read = {item.position for item in scan(bytes(damaged)) if isinstance(item, StoredBatch)}
    assert read >= {offset * SIZE for offset in range(5) if offset != number}


READERS = {
    ".index": lambda path: read_offset_index(path, int(path.stem)),
    ".timeindex": lambda path: read_time_index(path, int(path.stem)),
    ".txnindex": read_transaction_index,
    ".snapshot": read_producer_snapshot,
}


@pytest.mark.parametrize("vector", VECTORS, ids=[f"{vector['file']}: {vector['note']}" for vector in VECTORS])
def test_a_file_of_kafka_is_read_as_it_was_written(vector: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / vector["file"]
    path.write_bytes(bytes.fromhex(vector["hex"]))
    assert [dataclasses.asdict(entry) for entry in READERS[path.suffix](path)] == vector["entries"]


def test_a_time_index_has_two_times_for_an_offset_and_an_offset_index_no_two_positions(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000007.timeindex"
    path.write_bytes(bytes.fromhex("000000000000000100000002" + "000000000000000300000002"))
    found = [(entry.timestamp, entry.offset) for entry in read_time_index(path, 7)]
    assert found == [(1, 9), (3, 9)]


@pytest.mark.parametrize("suffix", READERS)
def test_an_absent_file_has_no_entries(suffix: str, tmp_path: Path) -> None:
    assert READERS[suffix](tmp_path / f"00000000000000000000{suffix}") == ()
    assert read_leader_epochs(tmp_path / "leader-epoch-checkpoint") == ()


def test_a_broker_creates_the_checkpoint_of_leader_epochs_empty(tmp_path: Path) -> None:
    """Kafka: CheckpointFile.read."""
    path = tmp_path / "leader-epoch-checkpoint"
    path.touch()
    assert read_leader_epochs(path) == ()


@pytest.mark.parametrize(
    ("suffix", "content", "at", "reason"),
    [
        (".index", "00", 1, "1 bytes are no multiple of an entry's 8"),
        (".index", "00000001000000010000000100000002", 8, "(1, 2) does not follow (1, 1)"),
        (".index", "00000001000000020000000200000002", 8, "(2, 2) does not follow (1, 2)"),
        (".timeindex", "00", 1, "1 bytes are no multiple of an entry's 12"),
        (".timeindex", "000000000000000200000001000000000000000100000002", 12, "(1, 2) does not follow (2, 1)"),
        (".timeindex", "000000000000000100000002000000000000000200000001", 12, "(2, 1) does not follow (1, 2)"),
        (".txnindex", "00", 1, "1 bytes are no multiple of an entry's 34"),
        (".txnindex", "0001" + "00" * 32, 0, "version 1; 0 is read"),
        (".snapshot", "", 0, "0 bytes, where the header takes 10"),
        (".snapshot", "0002" + "00" * 8, 0, "version 2; 1 is read"),
        (".snapshot", "0001" + "00" * 8, 2, "CRC32C is 00000000, of the bytes 48674bc7"),
        (".snapshot", "0001" + "ba0cc8c4" + "00000001", 6, "1 entries do not take 10 bytes"),
    ],
)
def test_a_damaged_file_next_to_a_segment_is_reported_with_the_position(
    suffix: str, content: str, at: int, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / f"00000000000000000000{suffix}"
    path.write_bytes(bytes.fromhex(content))
    with pytest.raises(MalformedFile) as caught:
        READERS[suffix](path)
    assert (caught.value.path, caught.value.position, caught.value.reason) == (path, at, reason)
    assert str(caught.value) == f"{path}: at byte {at}: {reason}"


def test_leader_epochs_are_read(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n2\n0 0\n3 1200\n")
    assert read_leader_epochs(path) == (
        LeaderEpochStart(epoch=0, start_offset=0),
        LeaderEpochStart(epoch=3, start_offset=1200),
    )


@pytest.mark.parametrize(
    "text", ["0\n", "1\n0\n", "-1\n0\n", "0\n2\n0 0\n", "0\n1\n0 0 0\n", "0\n1\nzero 0\n", "0\n1\n\u00e9 0\n"]
)
def test_a_damaged_leader_epoch_checkpoint_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MalformedFile, match="leader-epoch-checkpoint"):
        read_leader_epochs(path)


def test_aborted_transactions_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    first = AbortedTransaction(producer_id=2, first_offset=5, last_offset=9, last_stable_offset=1)
    second = AbortedTransaction(producer_id=1, first_offset=1, last_offset=10, last_stable_offset=11)
    rows = b"".join(
        b"\x00\x00" + b"".join(value.to_bytes(8, "big") for value in dataclasses.astuple(entry))
        for entry in (first, second)
    )
    path.write_bytes(rows)
    assert read_transaction_index(path) == (first, second)
