import re

import pytest

from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.message_set import decode_message_set
from kafka_eos.formats.record_batch import decode_batch
from kafka_eos_checks.lab.costs import formats


def test_a_batch_has_61_bytes_and_9_per_message_and_a_message_set_34_per_message() -> None:
    for count in (1, 2, 3, 10, 50, 64):
        assert formats.overhead(count, 0) == (34 * count, 61 + 9 * count)


def test_a_far_timestamp_and_a_far_offset_cost_a_byte_each() -> None:
    assert formats.overhead(10, 63)[1] == formats.overhead(10, 0)[1]
    assert formats.overhead(10, 64)[1] == formats.overhead(10, 0)[1] + 9
    assert formats.overhead(65, 0)[1] - formats.overhead(64, 0)[1] == 10


@pytest.mark.parametrize("codec", [codec for codec in CompressionType if codec is not CompressionType.ZSTD])
def test_both_formats_hold_the_same_messages(codec: CompressionType) -> None:
    for shape in formats.shapes():
        old = [(m.timestamp, m.key, m.value) for m in decode_message_set(formats.message_set(shape.messages, codec))]
        batch = decode_batch(formats.record_batch(shape.messages, codec))[0]
        new = [(batch.timestamp(record), record.key, record.value) for record in batch.records()]
        assert old == new == list(shape.messages), shape.name


def test_the_three_claims_about_bytes_are_settled_with_their_figures() -> None:
    overhead, idempotence, disk = formats.verdicts()
    assert (overhead.claims, overhead.ok, overhead.found) == (("C38",), True, "refuted: 61 + 9n bytes")
    assert overhead.figures == {"n=1": 70, "n=3": 88, "n=10": 151, "n=50": 511}
    assert (idempotence.claims, idempotence.ok, idempotence.found) == (("C39",), True, "refuted: 0 bits")
    assert idempotence.figures["field_bits"] == 112
    assert (disk.claims, disk.ok) == (("C41",), True)
    assert disk.found.startswith("refuted: -")


def test_each_percentage_is_that_of_the_two_sizes_before_it() -> None:
    cells = re.findall(r"([\d,]+) +([\d,]+) +([+-]\d+) %", formats.disk_verdict().evidence)
    assert len(cells) >= len(list(formats.shapes()))
    for old, new, percent in cells:
        before, after = (int(size.replace(",", "")) for size in (old, new))
        assert percent == f"{100 * (after - before) / before:+.0f}"


def test_the_figures_of_the_disk_are_the_most_and_the_least_of_its_table() -> None:
    verdict = formats.disk_verdict()
    cells = re.findall(r"([\d,]+) +([\d,]+) +[+-]\d+ %", verdict.evidence)
    sizes = [(int(old.replace(",", "")), int(new.replace(",", ""))) for old, new in cells]
    saved = [100 * (old - new) / old for old, new in sizes]
    assert abs(verdict.figures["most_saved_percent"] - max(saved)) < 0.06
    assert abs(verdict.figures["least_saved_percent"] - min(saved)) < 0.06


def test_a_claim_that_is_met_holds_and_is_no_longer_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "CLAIMED_NEW", {1: 70, 3: 88})
    monkeypatch.setattr(formats, "CLAIMED_FIELD_BITS", 0)
    monkeypatch.setattr(formats, "CLAIMED_SAVING", 0.99)
    for verdict in formats.verdicts():
        assert verdict.found.startswith("holds")
        assert not verdict.ok


def test_messages_have_the_sizes_that_the_name_of_their_shape_says() -> None:
    said = re.compile(r"(?:key (\d+), value|values of|message of) (\d+)")
    named = [(found, shape.messages) for shape in formats.shapes() if (found := said.search(shape.name))]
    assert len(named) == 7
    for found, messages in named:
        sizes = {(len(key or b""), len(value or b"")) for _, key, value in messages}
        assert sizes == {(int(found[1] or 0), int(found[2]))}, found.string


def test_the_shapes_are_the_same_in_each_run() -> None:
    assert list(formats.shapes()) == list(formats.shapes())
