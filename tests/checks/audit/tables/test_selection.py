"""The selection of a part of a log."""

from pathlib import Path

import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.audit.oracle.synthetic import write_segment
from kafka_eos_checks.audit.segments.reading import read_headers
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
