"""The selection of a part of a log."""

from pathlib import Path

import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.segments.headers import read_blocks
from kafka_eos_checks.audit.segments.reading import read_headers
from kafka_eos_checks.audit.segments.records import decode_block
from kafka_eos_checks.audit.tables.selection import Range, Selection


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        (Range(2, 3), [True, False]),
        (Range(3), [False, True]),
        (Range(0, 3), [True, False]),
        (Range(2, 4), [True, True]),
        (Range(6), [False, False]),
    ],
)
def test_a_batch_is_wanted_from_its_first_offset_up_to_its_last(
    offsets: Range, expected: list[bool], tmp_path: Path
) -> None:
    records = [Record(value=b"v", offset_delta=delta) for delta in range(3)]
    segment = tmp_path / f"{0:020d}.log"
    write_segment(segment, [build_batch(records, base_offset=base).encode() for base in (0, 3)])
    [headers] = read_headers(segment)
    assert Selection(offsets=offsets).of_batches(headers).tolist() == expected


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), [0, 1, 2, 3, 4, 5]),
        (Selection(offsets=Range(1, 5)), [1, 2, 3, 4]),
        (Selection(times=Range(1001, 2001)), [1, 2, 3]),
        (Selection(times=Range(1001, 2001), producers=frozenset({8})), [3]),
    ],
)
def test_a_record_is_wanted_by_its_own_offset_and_time_and_the_producer_of_its_batch(
    selection: Selection, expected: list[int], tmp_path: Path
) -> None:
    three = [Record(value=b"v", offset_delta=delta, timestamp_delta=delta) for delta in range(3)]
    segment = tmp_path / f"{0:020d}.log"
    written = [
        build_batch(three, base_offset=base, base_timestamp=time, producer_id=producer, producer_epoch=0)
        for base, time, producer in ((0, 1000, 7), (3, 2000, 8))
    ]
    write_segment(segment, [batch.encode() for batch in written])
    [block] = read_blocks(segment)
    records = decode_block(block)
    assert records.offset[selection.of_records(block.headers, records)].tolist() == expected
