import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats.compression import CompressionType, compress, compress_snappy_raw, decompress

COMPRESSED = [codec for codec in CompressionType if codec is not CompressionType.NONE]
TEXT = b"exactly once " * 20_000  # larger than a block of lz4 or xerial, and than the first output buffer


@pytest.mark.parametrize("codec", CompressionType)
@settings(deadline=None)
@given(data=st.binary(max_size=300) | st.integers(0, 200_000).map(lambda size: TEXT[:size]))
def test_compressed_data_is_read_back(codec: CompressionType, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@settings(deadline=None)
@given(data=st.binary(max_size=300) | st.integers(0, 200_000).map(lambda size: TEXT[:size]))
def test_snappy_is_read_in_the_raw_framing_of_librdkafka(data: bytes) -> None:
    raw = compress_snappy_raw(data)
    assert not raw.startswith(b"\x82SNAPPY\x00")
    assert decompress(CompressionType.SNAPPY, raw) == data


def test_snappy_is_written_in_the_framing_of_java() -> None:
    assert (
        compress(CompressionType.SNAPPY, b"abc").hex() == "82534e41505059000000000100000001" + "00000005" + "0308616263"
    )


def test_an_lz4_frame_has_independent_blocks_which_is_all_that_kafka_reads() -> None:
    frame = compress(CompressionType.LZ4, TEXT)
    assert frame.startswith(bytes.fromhex("04224d18"))
    assert frame[4] & 0b0010_0000  # the frame descriptor's flag of block independence


def test_lz4_stores_a_block_that_does_not_shrink() -> None:
    assert compress(CompressionType.LZ4, b"abc").hex() == "04224d18604082" + "03000080" + "616263" + "00000000"


def test_blocks_are_as_long_as_those_of_java() -> None:
    noise = random.Random(1).randbytes(200_000)  # lz4 stores its blocks as they are
    frame = compress(CompressionType.LZ4, noise)
    assert frame[7:11] == (64 << 10 | 1 << 31).to_bytes(4, "little")
    stream = compress(CompressionType.SNAPPY, noise)
    first = stream[20 : 20 + int.from_bytes(stream[16:20], "big")]
    assert decompress(CompressionType.SNAPPY, first) == noise[: 32 << 10]


@pytest.mark.parametrize("codec", CompressionType)
def test_the_limit_is_the_largest_output(codec: CompressionType) -> None:
    stream = compress(codec, TEXT)
    assert decompress(codec, stream, limit=len(TEXT)) == TEXT
    with pytest.raises(MalformedBatch, match=f"more than the limit of {len(TEXT) - 1} bytes"):
        decompress(codec, stream, limit=len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_decompression_bomb_takes_no_more_memory_than_twice_the_limit(codec: CompressionType) -> None:
    bomb = compress(codec, bytes(32 << 20))
    limit = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(MalformedBatch, match="limit"):
            decompress(codec, bomb, limit=limit)
        assert tracemalloc.get_traced_memory()[1] < 2 * limit
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", [(64 << 10) + 1, (1 << 20) + 1])
def test_an_output_takes_no_more_memory_than_16_times_its_size(codec: CompressionType, size: int) -> None:
    stream = compress(codec, bytes(size))
    tracemalloc.start()
    try:
        decompress(codec, stream)
        assert tracemalloc.get_traced_memory()[1] < 16 * size + 4096
    finally:
        tracemalloc.stop()


def test_the_size_that_snappy_promises_is_not_allocated() -> None:
    promise_of_16_mib = bytes.fromhex("80808008") + b"\x00a"
    with pytest.raises(MalformedBatch, match=r"6 bytes cannot give the promised 16777216$"):
        decompress(CompressionType.SNAPPY, promise_of_16_mib)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_stream_cut_off_anywhere_is_malformed(codec: CompressionType) -> None:
    stream = compress(codec, b"exactly once")
    block_boundary = len(b"\x82SNAPPY\x00") + 8  # here xerial's stream has no blocks
    for length in range(len(stream)):
        if codec is CompressionType.SNAPPY and length == block_boundary:
            assert decompress(codec, stream[:length]) == b""
            continue
        with pytest.raises(MalformedBatch):
            decompress(codec, stream[:length])


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_malformed(codec: CompressionType, data: bytes) -> None:
    try:
        read, position = decompress(codec, data, limit=1 << 16), 0
    except MalformedBatch as error:
        read, position = b"", error.position
    assert len(read) <= 1 << 16
    assert position == 0


def test_a_xerial_block_that_is_longer_than_its_stream_is_malformed() -> None:
    stream = compress(CompressionType.SNAPPY, b"abc")
    lying = stream[:16] + (6).to_bytes(4, "big") + stream[20:]
    with pytest.raises(MalformedBatch, match=r"a block of 6 bytes where 5 are left$"):
        decompress(CompressionType.SNAPPY, lying)
    negative = stream[:16] + b"\xff\xff\xff\xff" + stream[20:]
    with pytest.raises(MalformedBatch, match=r"a block of -1 bytes where 5 are left$"):
        decompress(CompressionType.SNAPPY, negative)
