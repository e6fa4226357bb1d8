"""The marks of control batches: those that are as brokers write them, and all others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import ControlType, Record, RecordBatch, build_batch
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.segments import marks
from kafka_eos_checks.audit.segments.headers import read_blocks
from kafka_eos_checks.audit.segments.marks import NO_DECISION, NO_EPOCH, Marks, marks_of

SEGMENT = f"{0:020d}.log"
KEY, VALUE = b"\0\0" + b"\0\1", b"\0\0" + b"\0\0\0\7"  # a COMMIT of version 0, by a coordinator of epoch 7
PLAIN = Record(key=KEY, value=VALUE)


def marker(
    record: Record = PLAIN, *more: Record, base: int = 0, codec: CompressionType = CompressionType.NONE
) -> bytes:
    batch: RecordBatch = build_batch(
        [record, *more],
        base_offset=base,
        producer_id=5,
        producer_epoch=1,
        is_transactional=True,
        is_control=True,
        compression=codec,
    )
    return batch.encode()


def both(tmp_path: Path, *batches: bytes) -> tuple[Marks, Marks]:
    """The marks of a segment's batches, and those of their decoded records."""
    write_segment(tmp_path / SEGMENT, list(batches))
    [block] = read_blocks(tmp_path / SEGMENT, check_crc=False)
    return marks_of(block), marks._decoded_marks(block, np.arange(len(block.headers)))


def told(found: Marks) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in found), strict=True))


def test_plain_markers_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aborted = replace(PLAIN, key=b"\0\0\0\0", value=b"\0\0\x7f\xff\xff\xff")
    unknown = replace(PLAIN, key=b"\0\0\0\5", value=b"\0\0\xff\xff\xff\xff")
    newer = Record(key=b"\0\1\0\1", value=b"\0\1\0\0\0\2")
    found, decoded = both(
        tmp_path, *(marker(each, base=at) for at, each in enumerate([PLAIN, aborted, unknown, newer]))
    )
    expected = [(0, ControlType.COMMIT, 7), (1, ControlType.ABORT, (1 << 31) - 1), (2, NO_DECISION, -1), (3, 1, 2)]
    assert told(found) == told(decoded) == expected
    monkeypatch.setattr(marks, "decode_block", lambda *_: pytest.fail("it was decoded"))
    [block] = read_blocks(tmp_path / SEGMENT)
    assert told(marks_of(block)) == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (lambda: marker(replace(PLAIN, timestamp_delta=64)), (1, 7)),
        (lambda: marker(replace(PLAIN, key=KEY + b"?", value=VALUE[:-1])), (1, NO_EPOCH)),
        (lambda: marker(replace(PLAIN, key=KEY[:-1], value=VALUE + b"?")), (NO_DECISION, 7)),
        (lambda: marker(Record(key=KEY + VALUE)), (1, NO_EPOCH)),
        (lambda: marker(codec=CompressionType.GZIP), (1, 7)),
        (lambda: marker(PLAIN, replace(PLAIN, offset_delta=1, key=b"\0\0\0\0")), (0, 7)),
    ],
)
def test_a_marker_of_another_form_is_decoded_and_so_are_those_around_it(
    tmp_path: Path, other: Callable[[], bytes], expected: tuple[int, int]
) -> None:
    found, decoded = both(tmp_path, marker(), other(), marker())
    assert told(found) == told(decoded) == [(0, 1, 7), (1, *expected), (2, 1, 7)]


@pytest.mark.parametrize("byte", [22, 60, *range(61, 78)])
def test_a_changed_bit_of_a_plain_marker_tells_what_its_decoded_record_tells(tmp_path: Path, byte: int) -> None:
    """Byte 22 has the codec and byte 60 the number of records, at most one; the record begins at 61."""
    for bit in range({22: 3, 60: 1}.get(byte, 8)):
        changed = bytearray(marker())
        changed[byte] ^= 1 << bit
        found, decoded = both(tmp_path, bytes(changed))
        assert told(found) == told(decoded), bit


def test_a_marker_with_a_byte_after_its_record_has_no_mark(tmp_path: Path) -> None:
    longer = bytearray(marker() + b"?")
    longer[8:12] = (len(longer) - 12).to_bytes(4, "big")
    found, decoded = both(tmp_path, bytes(longer), marker())
    assert told(found) == told(decoded) == [(1, 1, 7)]
