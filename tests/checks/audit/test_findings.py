"""The times of findings, which the segments have."""

from pathlib import Path

import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos_checks.audit.findings import Finding, dated, read_known, write_findings
from kafka_eos_checks.audit.oracle.synthetic import write_segment

NOW = 1_700_000_000_000
LOG = "00000000000000000000.log"


def segment(folder: Path, *producers: int) -> list[int]:
    """Write a segment with a batch of two records of each producer id; return their positions."""
    batches = [
        build_batch(
            [Record(value=b"v"), Record(offset_delta=1, timestamp_delta=5, value=b"v")],
            base_offset=2 * number,
            base_timestamp=NOW + number,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
        )
        for number, producer in enumerate(producers)
    ]
    return write_segment(folder / "orders-0" / LOG, [batch.encode() for batch in batches])


def time_of(folder: Path, position: int, offset: int | None, producer_id: int | None) -> int | None:
    finding = Finding(
        rule="gap",
        topic="orders",
        partition=0,
        file=LOG,
        position=position,
        offset=offset,
        producer_id=producer_id,
        producer_epoch=None if producer_id is None else 0,
    )
    [told] = dated([finding], {("", "orders", 0): str(folder / "orders-0")})
    return told.time_ms


def test_a_violation_of_one_run_is_not_known_in_another_one(tmp_path: Path) -> None:
    first, second = (Finding(rule="input skipped", topic="orders", partition=0, offset=3, run=run) for run in "ab")
    write_findings(tmp_path / "known.jsonl", [first])
    known = read_known(tmp_path / "known.jsonl")
    assert (first.identity in known, second.identity in known) == (True, False)


def test_a_finding_has_the_highest_time_of_its_batch(tmp_path: Path) -> None:
    positions = segment(tmp_path, 7, 8)
    assert time_of(tmp_path, positions[1], 2, 8) == NOW + 6
    assert time_of(tmp_path, positions[1], 3, None) == NOW + 6, "the offset may be that of a record"
    assert time_of(tmp_path, positions[1], None, None) == NOW + 6, "damage has a place only"


@pytest.mark.parametrize(("shift", "offset", "producer"), [(1, 2, 8), (0, 4, 8), (0, 1, 8), (0, 2, 7), (1, None, None)])
def test_a_batch_that_a_running_broker_has_compacted_away_has_no_time(
    shift: int, offset: int | None, producer: int | None, tmp_path: Path
) -> None:
    positions = segment(tmp_path, 7, 8)
    assert time_of(tmp_path, positions[1] + shift, offset, producer) is None
