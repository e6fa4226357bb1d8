"""The generated logs: the same for the same seed, in Kafka's format, with exactly the faults that were planted."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kafka_eos.formats.record_batch import HEADER_BYTES, decode_batch
from kafka_eos.formats.segment import StoredBatch, read_offset_index, read_segment
from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.audit.oracle.synthetic import data_batch
from kafka_eos_checks.audit.rules.log import Batch, audit_log
from kafka_eos_checks.lab.generate.batches import Batches, Values, encode
from kafka_eos_checks.lab.generate.planted_logs import clean_batches, plant, write


def rows(batches: Batches) -> list[Batch]:
    columns = (
        np.arange(len(batches)),
        batches.base_offset,
        batches.last_offset,
        batches.producer_id,
        batches.producer_epoch,
        batches.base_sequence,
        batches.last_sequence,
    )
    return [Batch(*row, unsequenced=False) for row in zip(*(column.tolist() for column in columns), strict=True)]


def encoded(batches: Batches, value_bytes: int, seed: int) -> list[bytes]:
    contents = Values(value_bytes, seed)
    sizes = contents.payload_sizes(batches) + HEADER_BYTES
    data = encode(batches, contents, sizes).tobytes()
    ends = np.cumsum(sizes).tolist()
    return [data[end - size : end] for end, size in zip(ends, sizes.tolist(), strict=True)]


def findings(batches: Batches) -> Counter[str]:
    return Counter(violation.rule for _, violation in audit_log(rows(batches)))


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    def made(seed: int) -> bytes:
        return b"".join(encoded(plant(clean_batches(seed, 3000, epoch_batches=20), seed, 2)[0], 30, seed))

    assert made(1) == made(1)
    assert made(1) != made(2)


def test_an_index_has_a_batch_as_soon_as_more_bytes_than_its_interval_lie_before_it(tmp_path: Path) -> None:
    batches = clean_batches(1, 100, largest=1, producers=1)
    sizes = {value: Values(value, 1).payload_sizes(batches) + HEADER_BYTES for value in range(49, 60)}
    [value] = [value for value, size in sizes.items() if set(size.tolist()) == {128}]
    log = write(tmp_path / "t-0", batches, value, seed=1)
    entries = read_offset_index(log.path.with_suffix(".index"), 0)
    assert [(entry.offset, entry.position) for entry in entries] == [(33, 33 * 128), (66, 66 * 128), (99, 99 * 128)]


@pytest.mark.parametrize("seed", range(5))
def test_a_clean_log_has_no_finding_and_several_epochs(seed: int) -> None:
    batches = clean_batches(seed, 2000, producers=7, epoch_batches=30)
    assert findings(batches) == {}
    assert batches.producer_epoch.max() > 3
    assert set(batches.record_count.tolist()) == {1, 2, 3}


@pytest.mark.parametrize("seed", range(5))
def test_every_planted_fault_is_found_once_and_where_it_is(seed: int) -> None:
    batches, planted = plant(clean_batches(seed, 3000, producers=7, epoch_batches=30), seed, 9)
    assert findings(batches) == {"duplicate": 9, "gap": 9, "stale epoch": 9}
    offsets = [(violation.rule, batch.base_offset) for batch, violation in audit_log(rows(batches))]
    assert sorted(offsets) == sorted(planted)


def test_a_log_without_room_for_the_faults_is_refused() -> None:
    with pytest.raises(ValueError, match="room for 0 faults"):
        plant(clean_batches(1, 10), 1, 1)


def test_the_batches_are_those_that_the_reference_encodes() -> None:
    batches = clean_batches(3, 200, producers=3, epoch_batches=20)
    for batch, data in zip(rows(batches), encoded(batches, 12, 3), strict=True):
        values = [record.value or b"" for record in decode_batch(data)[0].records()]
        assert {len(value) for value in values} == {12}
        assert data_batch(batch, values).encode() == data


def test_a_batch_of_many_records_is_as_the_reference_encodes_it() -> None:
    batches = clean_batches(3, 20, smallest=80, largest=80)
    for batch, data in zip(rows(batches), encoded(batches, 200, 3), strict=True):
        values = [record.value or b"" for record in decode_batch(data)[0].records()]
        assert data_batch(batch, values).encode() == data


def test_a_written_log_is_audited_with_the_planted_faults(tmp_path: Path) -> None:
    batches, _ = plant(clean_batches(5, 3000, epoch_batches=20), 5, 4)
    segment = write(tmp_path / "made-0", batches, 20, 5).path
    assert sum(isinstance(part, StoredBatch) for part in read_segment(segment)) == len(batches)
    assert segment.with_suffix(".index").stat().st_size > 0
    found = {verdict.name: verdict.found for verdict in run([tmp_path]).verdicts}
    assert found == {
        "readable": "0 corrupt regions",
        "duplicate": "4 findings",
        "gap": "4 findings",
        "stale epoch": "4 findings",
        "order": "0 findings",
        "leader epoch went back": "0 findings",
    }
