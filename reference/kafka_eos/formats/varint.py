"""Zigzag varints (32 bits) and varlongs (64 bits), as record batches hold them.

Seven bits a byte, lowest first; the top bit says that another byte follows. Zigzag maps 0, -1, 1, -2 … to
0, 1, 2, 3 …, so that small negative numbers stay short.

Kafka: org.apache.kafka.common.utils.ByteUtils
"""

from kafka_eos.errors import MalformedBatch

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def encode_varint(value: int) -> bytes:
    """The shortest zigzag varint of a signed 32-bit number, 1 to 5 bytes.

    Raises:
        OverflowError: ``value`` has no place in 32 bits.
    """
    if not INT32_MIN <= value <= INT32_MAX:
        raise OverflowError(f"{value} does not fit a varint (32 bits)")
    return _encode(value)


def encode_varlong(value: int) -> bytes:
    """The shortest zigzag varlong of a signed 64-bit number, 1 to 10 bytes.

    Raises:
        OverflowError: ``value`` has no place in 64 bits.
    """
    if not INT64_MIN <= value <= INT64_MAX:
        raise OverflowError(f"{value} does not fit a varlong (64 bits)")
    return _encode(value)


def decode_varint(data: bytes, position: int, bits: int = 32) -> tuple[int, int]:
    """The signed number that begins at ``position``, and the position after it.

    A longer form than needed (``80 00`` for 0) is accepted, as Kafka accepts it.

    Args:
        data: the bytes with the number.
        position: the position of its first byte.
        bits: the maximum number of bits.

    Raises:
        MalformedBatch: the data end inside the number, or it has more than ``bits`` bits.
    """
    unsigned = shift = 0
    try:
        first = data[position]
        if first >= 0x80 and (second := data[position + 1]) < 0x80:  # the usual length, so without the loop
            unsigned = first & 0x7F | second << 7
            return (unsigned >> 1) ^ -(unsigned & 1), position + 2
        while (byte := data[position]) >= 0x80:
            unsigned |= (byte & 0x7F) << shift
            shift += 7
            if shift >= bits:
                raise MalformedBatch(position, f"a varint of more than {bits} bits")
            position += 1
    except IndexError:  # reading a byte is the check that it is there
        raise MalformedBatch(len(data), "the data end inside a varint") from None
    unsigned |= byte << shift
    # Departs from Kafka: it drops the bits above the 32nd or 64th in silence; no encoder writes any.
    if unsigned >> bits:
        raise MalformedBatch(position, f"a varint of more than {bits} bits")
    return (unsigned >> 1) ^ -(unsigned & 1), position + 1


def decode_varlong(data: bytes, position: int) -> tuple[int, int]:
    """The signed 64-bit number that begins at ``position``, and the position after it; see :func:`decode_varint`."""
    return decode_varint(data, position, 64)


def _encode(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)
