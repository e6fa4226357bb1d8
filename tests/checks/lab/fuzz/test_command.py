import json
from pathlib import Path

import pytest

from kafka_eos.errors import MalformedBatch
from kafka_eos.formats import record_batch, segment
from kafka_eos.formats.compression import CompressionType
from kafka_eos.formats.record_batch import Record, RecordBatch
from kafka_eos_checks import cli
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.fuzz import command as fuzz

SEED = 7


def test_mutated_batches_are_read_or_refused() -> None:
    outcome = fuzz.run_cases(SEED, 0, 1500)
    assert outcome.failures == []
    assert outcome.counts.total() == 1500
    assert outcome.counts[fuzz.READ] > 100
    assert len(outcome.counts) > 30  # the cases reach the checks after the CRC and after the decompression


def test_the_valid_batches_have_every_codec_and_both_framings_of_snappy() -> None:
    batches = [record_batch.decode_batch(encoded)[0] for encoded in fuzz.valid_batches(SEED)]
    assert {batch.compression for batch in batches} == set(CompressionType)
    snappy = {batch.payload[:7] == b"\x82SNAPPY" for batch in batches if batch.compression is CompressionType.SNAPPY}
    assert snappy == {True, False}
    assert {batch.control_record() is None for batch in batches} == {True, False}
    assert any(record.headers for batch in batches for record in batch.records())
    data = [batch for batch in batches if batch.control_record() is None]
    assert {batch.base_sequence for batch in data} == {-1, 0, 2**31 - 1}
    assert {min(batch.base_offset, 2) for batch in data} == {0, 2}


def test_a_case_is_a_function_of_the_seed_and_its_number() -> None:
    alone = fuzz.case(SEED, 321)
    fuzz.valid_batches.cache_clear()
    assert fuzz.case(SEED, 321) == alone
    assert fuzz.case(SEED, 322) != alone
    assert fuzz.case(SEED + 1, 321) != alone


def test_a_planted_index_error_is_found_made_small_and_reproduced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = record_batch.decode_records

    def unsound(section: bytes, count: int) -> tuple[Record, ...]:
        if count > 2:
            raise IndexError("planted")
        return sound(section, count)

    monkeypatch.setattr(record_batch, "decode_records", unsound)
    (failure,) = fuzz.run_cases(SEED, 0, 1000).failures
    assert failure.violation == "IndexError: planted"
    assert len(failure.data) < 70
    assert cli.main(["lab", "fuzz", "--seed", str(SEED), "--count", "1000", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert failure.data.hex() in printed.replace("\n", "")
    assert f"kafka-eos lab fuzz --seed {SEED} --first {failure.number} --count 1" in printed
    assert cli.main(["lab", "fuzz", "--hex", failure.data.hex()]) == 1
    monkeypatch.undo()
    assert cli.main(["lab", "fuzz", "--hex", failure.data.hex()]) == 0


def test_a_position_outside_the_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsound(_section: bytes, _count: int) -> tuple[Record, ...]:
        raise MalformedBatch(1_000_000, "planted")

    monkeypatch.setattr(record_batch, "decode_records", unsound)
    monkeypatch.setattr(RecordBatch, "compression", CompressionType.NONE)
    (failure,) = fuzz.run_cases(SEED, 0, 1000).failures
    assert failure.violation.startswith("position 1000061 of ")


def test_a_valid_batch_that_is_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_batch, "_SMALLEST_RECORD_BYTES", 300)
    (failure,) = fuzz.run_cases(SEED, 0, 1000).failures
    assert failure.violation.startswith("a valid batch is refused: ")


def test_a_hang_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(_data: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(fuzz, "_check_cover", hang)
    monkeypatch.setattr(fuzz, "SECONDS_PER_CASE", 0.01)
    monkeypatch.setattr(fuzz, "SHRINK_TRIES", 3)
    (failure,) = fuzz.run_cases(SEED, 0, 1).failures
    assert failure.violation == "took more than 0.01 s"


def test_a_gap_between_the_items_of_a_segment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = segment.scan
    monkeypatch.setattr(segment, "scan", lambda data: iter(list(sound(data))[1:]))
    (failure,) = fuzz.run_cases(SEED, 0, 10).failures
    assert failure.violation.startswith("the segment's items end at 0 of ")


def test_two_workers_give_the_counts_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "CASES_PER_TASK", 100)
    alone = fuzz.fuzz(SEED, 50, 250, jobs=1)
    together = fuzz.fuzz(SEED, 50, 250, jobs=2)
    assert together.counts == alone.counts
    assert alone.counts.total() == 250


def test_the_verdict_is_written_with_the_counts_by_reason(tmp_path: Path) -> None:
    path = tmp_path / "fuzz.json"
    assert cli.main(["lab", "fuzz", "--seed", "3", "--count", "200", "--jobs", "1", "--json", str(path)]) == 0
    (verdict,) = json.loads(path.read_text())
    assert verdict["ok"]
    assert (verdict["figures"]["seed"], verdict["figures"]["cases"]) == ("3", 200)
    assert verdict["figures"]["CRC32C is N, of the bytes N"] > 0


def test_a_run_without_cases_is_no_success() -> None:
    assert not fuzz.verdict_of(SEED, fuzz.Outcome(), 0.0).ok


@pytest.mark.parametrize("arguments", [["--count", "0"], ["--jobs", "0"], ["--first", "-1"], ["--hex", "0x12"]])
def test_unusable_arguments_end_with_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "fuzz", *arguments]) == 2
    assert capsys.readouterr().err.startswith("kafka-eos lab fuzz: --")


@pytest.mark.parametrize("kind", ["logs", "clusters", "histories"])
def test_as_many_random_cases_are_judged_as_are_asked_for_from_the_first_one_on(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def judge(count: int, first: int) -> Verdict:
        asked.append((count, first))
        return Verdict(check="fuzz", name=kind, expected="equal", found="equal", ok=first == 5)

    monkeypatch.setitem(fuzz.RANDOM, kind, judge)
    assert cli.main(["lab", "fuzz", f"--{kind}", "3", "--first", "5"]) == 0
    assert cli.main(["lab", "fuzz", f"--{kind}", "3"]) == 1
    assert asked == [(3, 5), (3, 0)]


@pytest.mark.parametrize("kind", ["logs", "clusters", "histories"])
def test_a_seed_that_would_choose_nothing_is_refused(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lab", "fuzz", f"--{kind}", "1", "--seed", "7"]) == 2
    assert capsys.readouterr().err.endswith(f"--{kind}; give --first\n")
