"""The compression of a batch's records, with an output that is bounded before it is produced.

Each codec has the framing that Kafka's own producer writes. Snappy has two: Java writes xerial's blocks, librdkafka
one raw stream; both are read.

Kafka: org.apache.kafka.common.compress
"""

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam

from kafka_eos.errors import MalformedBatch

MAX_DECOMPRESSED_BYTES = 64 << 20
"""Default limit of a batch's decompressed records. Kafka has none; its default ``message.max.bytes`` is 1 MiB."""

_OUTPUT_SIZES = (64 << 10, 1 << 20, 16 << 20)
"""Output buffers to try before the limit itself, so that a small batch never pays for a large one."""

_BUFFER_FULL = "failed to write whole buffer"
"""The message of cramjam for output that does not fit the given buffer."""

_XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)  # magic, version, oldest compatible version
_XERIAL_MAGIC = _XERIAL_HEADER[:8]
_XERIAL_BLOCK_BYTES = 32 << 10
_SNAPPY_LARGEST_RATIO = 64 / 3
"""A copy takes three bytes and gives at most 64, so no snappy stream gives more than this per byte."""

# Independent blocks of at most 64 KiB, no content size, no checksums: what Kafka's Java client writes. Its reader
# refuses linked blocks, which cramjam's own frames have. The last byte is the checksum of the two before it.
_LZ4_FRAME_HEADER = bytes.fromhex("04224d18 60 40 82")
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_UNCOMPRESSED = 1 << 31
_LZ4_END_MARK = bytes(4)


class CompressionType(IntEnum):
    """The codec in the lowest three bits of a batch's attributes.

    Kafka: org.apache.kafka.common.record.internal.CompressionType
    """

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: CompressionType, data: bytes) -> bytes:
    """``data`` in the framing that Kafka's Java producer writes."""
    return _COMPRESS[codec](data)


def decompress(codec: CompressionType, data: bytes, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The bytes that were compressed; at most ``limit`` of them.

    Memory stays below 64 KiB, 16 times the output, or twice the limit, whatever sizes ``data`` claims. Zstandard
    also keeps a window, which its library bounds at 128 MiB.

    Raises:
        MalformedBatch: ``data`` is no stream of ``codec``, is cut off, or gives more than ``limit`` bytes. The
            position is 0: a stream has no position where it goes wrong.
    """
    if codec is CompressionType.NONE:
        if len(data) > limit:
            raise _over(limit)
        return data
    try:
        return _DECOMPRESS[codec](data, limit)
    except cramjam.DecompressionError as error:
        raise MalformedBatch(0, f"{codec.name.lower()} stream: {error}") from None


def _decompress_into(decompress_into: Callable[[bytes, bytearray], int], data: bytes, limit: int) -> bytes:
    """Decompress into ever larger buffers, up to the limit."""
    for size in (*(size for size in _OUTPUT_SIZES if size < limit), limit):
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _BUFFER_FULL not in str(error):
                raise
            del output  # before the next one is made
        else:
            del output[written:]
            return bytes(output)
    raise _over(limit)


def _over(limit: int) -> MalformedBatch:
    return MalformedBatch(0, f"the records take more than the limit of {limit} bytes")


def _compress_gzip(data: bytes) -> bytes:
    return bytes(cramjam.gzip.compress(data))


def _decompress_gzip(data: bytes, limit: int) -> bytes:
    return _decompress_into(cramjam.gzip.decompress_into, data, limit)


def _compress_zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def _decompress_zstd(data: bytes, limit: int) -> bytes:
    return _decompress_into(cramjam.zstd.decompress_into, data, limit)


def _compress_lz4(data: bytes) -> bytes:
    frame = bytearray(_LZ4_FRAME_HEADER)
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            frame += struct.pack("<I", len(packed)) + packed
        else:
            frame += struct.pack("<I", len(block) | _LZ4_UNCOMPRESSED) + block
    return bytes(frame + _LZ4_END_MARK)


def _decompress_lz4(data: bytes, limit: int) -> bytes:
    return _decompress_into(cramjam.lz4.decompress_into, data, limit)


def compress_snappy_raw(data: bytes) -> bytes:
    """``data`` as one raw snappy stream, which is what librdkafka writes."""
    return bytes(cramjam.snappy.compress_raw(data))


def _compress_snappy_xerial(data: bytes) -> bytes:
    stream = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        packed = compress_snappy_raw(data[start : start + _XERIAL_BLOCK_BYTES])
        stream += struct.pack(">i", len(packed)) + packed
    return bytes(stream)


def _decompress_snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_raw(data, 0, limit)
    if len(data) < len(_XERIAL_HEADER):
        raise MalformedBatch(0, "snappy stream: cut off in xerial's header")
    output = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        start = position + 4
        length = int.from_bytes(data[position:start], "big", signed=True)
        position = start + length
        if length < 0 or position > len(data):
            raise MalformedBatch(0, f"snappy stream: a block of {length} bytes where {len(data) - start} are left")
        output += _decompress_snappy_raw(data[start:position], len(output), limit)
    return bytes(output)


def _decompress_snappy_raw(data: bytes, already: int, limit: int) -> bytes:
    """Decompress a raw stream, after ``already`` bytes of output; its stated size is judged before allocating."""
    promised = cramjam.snappy.decompress_raw_len(data)
    if already + promised > limit:
        raise _over(limit)
    if promised > len(data) * _SNAPPY_LARGEST_RATIO:
        raise MalformedBatch(0, f"snappy stream: {len(data)} bytes cannot give the promised {promised}")
    output = bytearray(promised)
    written = cramjam.snappy.decompress_raw_into(data, output)
    assert written == promised, "cramjam checks the length that snappy promises"
    return bytes(output)


_COMPRESS: dict[CompressionType, Callable[[bytes], bytes]] = {
    CompressionType.NONE: bytes,
    CompressionType.GZIP: _compress_gzip,
    CompressionType.SNAPPY: _compress_snappy_xerial,
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
}

_DECOMPRESS: dict[CompressionType, Callable[[bytes, int], bytes]] = {
    CompressionType.GZIP: _decompress_gzip,
    CompressionType.SNAPPY: _decompress_snappy,
    CompressionType.LZ4: _decompress_lz4,
    CompressionType.ZSTD: _decompress_zstd,
}
