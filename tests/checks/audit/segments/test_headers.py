"""The vectorised header reader against the readable decoder, on whole and on damaged segments."""

import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import CHECKED_FROM, HEADER_BYTES, LOG_OVERHEAD_BYTES, Record, build_batch
from kafka_eos.formats.segment import CorruptRegion, StoredBatch, read_segment
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.places import bytes_read
from kafka_eos_checks.audit.segments import headers
from kafka_eos_checks.audit.segments.headers import (
    Headers,
    Ints,
    fields_at,
    have_their_crcs,
    read_blocks,
    read_index,
    sound_batches,
)
from kafka_eos_checks.audit.segments.reading import read_headers

SEGMENT = f"{0:020d}.log"


def some_batches(count: int, seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    encoded, offset = [], 0
    for _ in range(count):
        records = [Record(offset_delta=i, value=rng.randbytes(rng.randint(0, 400))) for i in range(rng.randint(1, 6))]
        codec = rng.choice((CompressionType.NONE, CompressionType.ZSTD))
        batch = build_batch(records, base_offset=offset, producer_id=5, producer_epoch=1, base_sequence=offset)
        if codec:
            batch = build_batch(records, base_offset=offset, compression=codec)
        encoded.append(batch.encode())
        offset += len(records)
    return encoded


def read_all(path: Path, index: Ints | None = None) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, str]]]:
    """Position, base offset and record count of each batch, and position, end and kind of each damage."""
    batches, damage = [], []
    for part in read_headers(path, index=index):
        batches += list(
            zip(
                part.positions.tolist(),
                part.column("base_offset").tolist(),
                part.column("record_count").tolist(),
                strict=True,
            )
        )
        damage += [(region.position, region.end, str(region.kind)) for region in part.damage]
    return batches, damage


def readable(path: Path) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, str]]]:
    batches, damage = [], []
    for item in read_segment(path):
        if isinstance(item, StoredBatch):
            batches.append((item.position, item.batch.base_offset, item.batch.record_count))
        else:
            assert isinstance(item, CorruptRegion)
            damage.append((item.position, item.end, str(item.kind)))
    return batches, damage


@pytest.fixture(params=[headers.BLOCK_BYTES, 20_000, 700])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "BLOCK_BYTES", request.param)
    monkeypatch.setattr(headers, "SEARCH_BYTES", request.param)


@pytest.mark.usefixtures("block_bytes")
def test_headers_are_those_of_the_readable_decoder_with_and_without_an_index(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    write_segment(path, some_batches(300))
    expected = readable(path)
    assert len(expected[0]) == 300
    assert read_all(path) == expected
    assert read_all(path, read_index(path)) == expected


def test_every_field_of_a_header_is_read(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    write_segment(path, some_batches(3))
    [part] = read_headers(path)
    stored = [item.batch for item in read_segment(path) if isinstance(item, StoredBatch)]
    for name in headers.HEADER.names or ():
        attribute = "partition_leader_epoch" if name == "leader_epoch" else name
        assert part.column(name).tolist() == [getattr(batch, attribute) for batch in stored], name


def test_an_empty_segment_has_no_headers(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    path.touch()
    assert list(read_headers(path)) == []


def test_the_zeroes_of_a_preallocated_index_are_no_entries(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 3, 4200) + bytes(64))
    assert read_index(path).tolist() == [4200]
    entries = [(number, 100 * number) for number in range(1, 5001)]
    data = b"".join(struct.pack(">ii", *entry) for entry in entries)
    path.with_suffix(".index").write_bytes(data + bytes((10 << 20) - len(data)))
    before = bytes_read()
    assert read_index(path).tolist() == [position for _, position in entries]
    assert bytes_read() - before < 2 * len(data), "a broker reserves 10 MB for each active segment"


def test_an_index_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    os.mkfifo(path.with_suffix(".index"))
    assert read_index(path).tolist() == []


@pytest.mark.usefixtures("block_bytes")
def test_an_index_that_points_between_batches_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    write_segment(path, some_batches(300))
    wrong = np.arange(1000, path.stat().st_size, 1111)
    assert read_all(path, wrong) == readable(path)


@pytest.mark.parametrize("wrong", ["an entry", "the last entry", "the first length"])
def test_lanes_that_do_not_fit_the_batches_change_nothing(wrong: str) -> None:
    encoded = some_batches(20)
    if wrong == "the first length":
        encoded[0] = encoded[0][:8] + (20).to_bytes(4, "big") + encoded[0][12:32]
    data = np.frombuffer(b"".join(encoded), np.uint8)
    lanes = np.cumsum([len(batch) for batch in encoded[:-1]])
    if wrong != "the first length":
        lanes[9 if wrong == "an entry" else -1] += 1
    expected, _, *told = sound_batches(data, lanes[:0], check_crc=False)
    found, _, *told_by_lanes = sound_batches(data, lanes, check_crc=False)
    assert (found.tolist(), told_by_lanes) == (expected.tolist(), told)
    assert len(expected) == (0 if wrong == "the first length" else 20)


@pytest.mark.parametrize("missed", [1, LOG_OVERHEAD_BYTES, HEADER_BYTES - 1, HEADER_BYTES])
def test_an_index_that_points_into_the_last_bytes_changes_nothing(tmp_path: Path, missed: int) -> None:
    """A lane that damage leads there would look for a header behind the end."""
    path = tmp_path / SEGMENT
    positions = write_segment(path, some_batches(20))
    data = bytearray(path.read_bytes())
    data[positions[-2] + 8 : positions[-2] + 12] = (len(data) - missed - 1 - positions[-2] - 12).to_bytes(4, "big")
    path.write_bytes(data)
    index = np.array([*positions[1:-1], len(data) - missed])
    assert read_all(path, index) == readable(path)


@pytest.mark.usefixtures("block_bytes")
@pytest.mark.parametrize("kind", ["torn tail", "zeroes", "corrupt"])
def test_a_damaged_end_is_reported_with_its_position(tmp_path: Path, kind: str) -> None:
    path = tmp_path / SEGMENT
    positions = write_segment(path, some_batches(50))
    whole = path.read_bytes()
    last = positions[-1]
    ends = {"torn tail": whole[:-9], "zeroes": whole[:last] + bytes(5000), "corrupt": whole[:-1] + b"?"}
    path.write_bytes(ends[kind])
    batches, damage = read_all(path)
    assert len(batches) == 49
    assert damage == [(last, path.stat().st_size, kind)]


@pytest.mark.usefixtures("block_bytes")
@pytest.mark.parametrize("damage", ["a length beyond the split", "zeroes"])
def test_damage_at_the_end_of_a_split_is_no_unfinished_tail_of_the_segment(tmp_path: Path, damage: str) -> None:
    path = tmp_path / SEGMENT
    begin, end = write_segment(path, some_batches(50))[30:32]
    data = bytearray(path.read_bytes())
    if damage == "zeroes":
        data[begin:end] = bytes(end - begin)
    else:
        data[begin + 8 : begin + 12] = (end + 1000).to_bytes(4, "big")
    for rest, kind in ((data[end:], "corrupt"), (b"", None), (data[end:-9], "corrupt")):
        path.write_bytes(data[:end] + rest)
        for stop in (None, end):
            found = [region for block in read_blocks(path, 0, stop) for region in block.headers.damage]
            tail = "zeroes" if damage == "zeroes" else "torn tail"
            assert (found[0].position, found[0].end, found[0].kind) == (begin, end, kind or tail)


@pytest.mark.usefixtures("block_bytes")
def test_batches_around_damage_are_read_and_the_damage_is_that_of_the_readable_reader(tmp_path: Path) -> None:
    for seed in range(25):
        rng = random.Random(seed)
        path = tmp_path / SEGMENT
        write_segment(path, some_batches(60, seed))
        data = bytearray(path.read_bytes())
        for _ in range(rng.randint(1, 4)):
            at, size = rng.randrange(len(data)), rng.choice((1, 4, 80, 700))
            data[at : at + size] = rng.choice((bytes(size), rng.randbytes(size), b""))
        path.write_bytes(data)
        expected = readable(path)
        assert read_all(path, read_index(path)) == expected, f"seed {seed}"
        assert read_all(path) == expected, f"seed {seed}"


def test_a_batch_in_the_records_of_a_damaged_one_that_is_longer_than_what_is_searched_hides_no_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "SEARCH_BYTES", 300)
    inner = build_batch([Record(value=b"inner")]).encode()
    outer = bytearray(build_batch([Record(value=inner + bytes(1000))]).encode())
    outer[-1] ^= 1
    path = tmp_path / SEGMENT
    path.write_bytes(outer + build_batch([Record(value=b"behind")], base_offset=1).encode())
    assert read_all(path) == readable(path)
    [part, *_] = [part for part in read_headers(path) if part.damage]
    [expected, *_] = [item for item in read_segment(path) if isinstance(item, CorruptRegion)]
    assert part.damage[0].reason == expected.reason


def test_a_wrong_crc_is_damage_only_when_crcs_are_compared(tmp_path: Path) -> None:
    path = tmp_path / SEGMENT
    positions = write_segment(path, some_batches(10))
    data = bytearray(path.read_bytes())
    data[positions[4] + 70] ^= 1
    path.write_bytes(data)
    compared = [part for part in read_headers(path) if part.damage]
    assert [region.position for part in compared for region in part.damage] == [positions[4]]
    assert sum(map(len, read_headers(path, check_crc=False))) == 10


@settings(max_examples=200)
@given(seed=st.integers(0, 3), changes=st.lists(st.tuples(st.integers(0, 39), st.integers(17, 99), st.integers(0, 7))))
def test_one_crc_of_all_batches_says_whether_each_has_its_own(seed: int, changes: list[tuple[int, int, int]]) -> None:
    encoded = [bytearray(batch) for batch in some_batches(40, seed)]
    for batch, byte, bit in changes:
        encoded[batch][byte % len(encoded[batch])] ^= 1 << bit
    data = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
    ends = np.cumsum([len(batch) for batch in encoded])
    positions = np.concatenate(([0], ends[:-1]))
    expected = fields_at(data, positions)["crc"]
    alone = bool((np.array([crc32c(bytes(batch[CHECKED_FROM:])) for batch in encoded]) == expected).all())
    assert have_their_crcs(data, positions, expected, len(data)) == alone


def test_a_combined_crc_with_a_wrong_constant_fits_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.frombuffer(bytearray(b"".join(some_batches(3))), np.uint8)
    positions, fields, stop, _ = sound_batches(data, np.empty(0, np.int64))
    assert have_their_crcs(data, positions, fields["crc"], stop)
    monkeypatch.setattr(headers, "FROM_ZERO", headers.FROM_ZERO ^ 1)
    assert not have_their_crcs(data, positions, fields["crc"], stop)


def test_a_batch_larger_than_a_block_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "BLOCK_BYTES", 100)
    path = tmp_path / SEGMENT
    write_segment(path, [build_batch([Record(value=bytes(10_000))]).encode()] * 3)
    parts: list[Headers] = list(read_headers(path))
    assert (len(parts), sum(map(len, parts))) == (3, 3)


def test_a_batch_that_is_being_written_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look at the block meets a half-written batch; the next one meets it whole."""
    batch = build_batch([Record(value=b"v" * 50)]).encode()
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(batch)
    read, looks = os.preadv, []

    def preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        size = read(fd, buffers, offset)
        looks.append(offset)
        if len(looks) == 1:
            buffers[0][size - 20 : size] = bytes(20)
        return size

    monkeypatch.setattr(os, "preadv", preadv)
    [block] = read_blocks(path)
    assert (len(block.headers), block.headers.damage) == (1, ())
    assert len(looks) == 2


def test_a_segment_that_changes_at_every_look_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(build_batch([Record(value=b"v")]).encode())
    monkeypatch.setattr(headers, "find_damage", lambda *_: None)
    monkeypatch.setattr(headers, "have_their_crcs", lambda *_: False)
    monkeypatch.setattr(headers, "crcs", lambda *_: np.zeros(1, np.uint32))
    with pytest.raises(OSError, match="changed while it was read"):
        list(read_blocks(path))


def test_a_batch_may_reach_the_last_offset_but_not_beyond_it() -> None:
    records = [Record(value=b"v"), Record(value=b"v", offset_delta=1)]
    for base, is_sound in (((1 << 63) - 3, True), ((1 << 63) - 2, False), ((1 << 63) - 1, False)):
        data = np.frombuffer(bytearray(build_batch(records, base_offset=base).encode()), np.uint8)
        positions, _, stop, good = sound_batches(data, np.empty(0, np.int64))
        assert (len(positions), stop, good) == ((1, len(data), True) if is_sound else (0, 0, False)), base


@pytest.mark.parametrize(
    ("records", "offsets", "is_sound"), [(0, 1, True), (0, 3, True), (2, 3, True), (3, 3, True), (4, 3, False)]
)
def test_a_batch_may_have_fewer_records_than_offsets_but_not_more(
    records: int, offsets: int, is_sound: bool, tmp_path: Path
) -> None:
    """The cleaner leaves fewer, also none. The readable decoder agrees, and reads on after the damage."""
    made = build_batch([Record(value=b"v") for _ in range(records)], last_offset_delta=offsets - 1)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(made.encode() + build_batch([Record(value=b"v")], base_offset=9).encode())
    [*blocks] = read_blocks(path)
    first = [int(offset) for block in blocks for offset in block.headers.column("base_offset")]
    damage = [region for block in blocks for region in block.headers.damage]
    assert (first, damage) == ([0, 9] if is_sound else [9], [part for part in read_segment(path) if part in damage])
    assert len(damage) == (not is_sound)
