"""The parts: sides that do the same work have equal answers, and a wrong answer is detected. No peers are needed."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import CalledProcessError
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos.formats.record_batch import decode_batch
from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import TransactionState, decode_value
from kafka_eos_checks import cli
from kafka_eos_checks.audit.inputs import UnusableInput
from kafka_eos_checks.audit.kernels.coordinators.coordinator_log import read_coordinator_log
from kafka_eos_checks.audit.kernels.coordinators.group_log import read_group_log
from kafka_eos_checks.audit.rules.coordinator import follow_coordinator_log
from kafka_eos_checks.audit.rules.offsets import follow_group_log
from kafka_eos_checks.audit.segments.splits import find_logs
from kafka_eos_checks.kit.verdict import Verdict, read_verdicts
from kafka_eos_checks.lab.bench import codec, command, coordinators, processes, replay
from kafka_eos_checks.lab.bench.measure import Side, difference, module_or_reason
from kafka_eos_checks.lab.generate.batches import Batches
from kafka_eos_checks.lab.generate.planted_logs import clean_batches, write


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    return write(tmp_path / "made-0", clean_batches(7, 300), 50, 7).path


def present(sides: list[Side]) -> list[Side]:
    """The sides that run in this process."""
    return [side for side in sides if not side.absent and side.start is None]


def test_every_reader_of_headers_has_the_same_answer(segment: Path) -> None:
    first, *others = present(codec.header_sides(segment, segment))
    assert others
    assert first.run()["batches"] == 300
    assert [difference(first.run(), side.run()) for side in others] == [""] * len(others)


def test_every_decoder_of_records_has_the_same_answer(segment: Path) -> None:
    first, *others = present(codec.record_sides(segment, segment))
    assert len(others) >= 2
    for side in others:
        assert side.check is not None
        assert first.check is not None
        assert difference(first.run(), side.run()) == ""
        assert difference(first.check(), side.check()) == ""


def test_a_library_that_reads_a_batch_at_a_position_is_led_through_the_whole_segment(segment: Path) -> None:
    def read_batch(data: bytes, position: int) -> tuple[Any, int]:
        batch, end = decode_batch(data, position)
        records = [SimpleNamespace(offset=batch.base_offset + r.offset_delta, value=r.value) for r in batch.records()]
        return SimpleNamespace(records=records), end - position

    read = list(codec.kio_pairs(read_batch, segment, codec.block_ranges(segment)))
    assert read == list(codec.our_pairs(segment))
    assert len(read) > 300


def test_the_checksum_sees_two_swapped_values(segment: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other-0", clean_batches(7, 300), 50, 8).path
    first, second = codec.record_sides(segment, segment)[0], codec.record_sides(other, other)[0]
    assert first.check is not None
    assert second.check is not None
    assert difference(first.run(), second.run()) == ""
    assert "CRC of offsets and values" in difference(first.check(), second.check())


def test_a_missing_client_library_is_an_absent_side(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("aiokafka.record._crecords.memory_records", "kafka.record.memory_records", "kio.records.readers"):
        monkeypatch.setitem(sys.modules, name, None)
    absent = {side.name: side.absent for side in codec.record_sides(segment, segment) if side.start is None}
    for name in ("aiokafka (C)", "kafka-python", "kio"):
        assert "pip install 'kafka-eos[bench]'" in absent[name]
    assert absent["vectorised"] == absent["readable decoder"] == ""


def test_without_java_or_its_jars_the_tool_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "have_jars", lambda: False)
    monkeypatch.setattr(codec.shutil, "which", lambda name: f"/bin/{name}")
    assert "no Kafka jars" in codec.java_absent()
    monkeypatch.setattr(codec.shutil, "which", lambda _: None)
    assert codec.java_absent() == "no java on the path; install a JDK 17 or later"


BATCH_LINE = (
    "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: 0 lastSequence: 1 producerId: 7 producerEpoch: 0 "
    "partitionLeaderEpoch: -1 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: 0 "
    "CreateTime: 1700000000001 size: 300 magic: 2 compresscodec: none crc: 99 isvalid: true\n"
)
RECORD_LINES = (
    "| offset: 0 CreateTime: 1700000000000 keySize: -1 valueSize: 50 sequence: 0 headerKeys: []\n"
    "| offset: 1 CreateTime: 1700000000001 keySize: -1 valueSize: 51 sequence: 1 headerKeys: []\n"
)


def test_the_lines_of_kafkas_tool_are_counted() -> None:
    text = f"Dumping x\nLog starting offset: 0\n{BATCH_LINE}{RECORD_LINES}".encode()
    assert codec.parse_dump(text, records=False) == {"batches": 1, "records": 2, "sum of CRCs": 99}
    assert codec.parse_dump(text, records=True) == {"records": 2, "value bytes": 101, "sum of offsets": 1}


def test_a_batch_that_kafkas_tool_calls_invalid_does_not_count() -> None:
    text = BATCH_LINE.replace("isvalid: true", "isvalid: false").encode()
    assert codec.parse_dump(text, records=False)["batches"] == 0


@pytest.fixture
def small_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "PRODUCERS", 3)
    monkeypatch.setattr(
        replay,
        "clean_batches",
        lambda seed, count, producers: clean_batches(seed, count, producers=producers, epoch_batches=20),
    )


def written(folder: Path) -> list[Batches]:
    made = list(replay.generate(4000))
    for partition, log in enumerate(made):
        replay.write_segment(folder / "segments", partition, log)
        replay.write_headers(folder / "headers", partition, log)
    return made


@pytest.mark.usefixtures("small_replay")
def test_all_ways_to_audit_count_the_planted_faults(tmp_path: Path) -> None:
    made = written(tmp_path)
    logs = find_logs(tmp_path / "segments")
    answer = replay.audit_local(logs, check_crc=True)
    assert {rule: answer[rule] for rule in replay.RULES} == dict.fromkeys(replay.RULES, replay.FAULTS)
    assert answer["batches"] == sum(len(log) for log in made)
    assert replay.audit_local(logs, check_crc=False) == answer
    assert replay.audit_headers(replay.hold_headers(logs)) == answer
    if not module_or_reason("pyarrow")[1]:
        assert replay.audit_local(find_logs(tmp_path / "headers"), check_crc=True) == answer


@pytest.mark.usefixtures("small_replay")
def test_a_hot_partition_has_its_share_of_the_batches() -> None:
    hot = [len(log) for log in replay.generate(8000, replay.HOT)]
    assert hot == [5000 + replay.FAULTS, *[428] * 7]
    assert [len(log) for log in replay.generate(8000)] == [1000 + replay.FAULTS, *[1000] * 7]


@pytest.mark.usefixtures("small_replay")
def test_the_queries_count_the_same_as_the_audit(tmp_path: Path) -> None:
    made = written(tmp_path)
    answer = replay.audit_local(find_logs(tmp_path / "segments"), check_crc=True)
    files = [file for part, log in enumerate(made) if (file := replay.write_table(tmp_path, part, log)) is not None]
    tables = [side for apart in (False, True) for side in replay.table_sides(tmp_path, files, apart=apart)]
    peers = present([*tables, *replay.memory_sides(made)])
    if not peers:
        pytest.skip("no peer is installed")
    assert [difference(answer, side.run()) for side in peers] == [""] * len(peers)


@pytest.mark.usefixtures("small_replay")
def test_a_query_over_other_batches_differs(tmp_path: Path) -> None:
    made = written(tmp_path)
    answer = replay.audit_local(find_logs(tmp_path / "segments"), check_crc=True)
    made[0] = made[1]
    peers = present(replay.memory_sides(made))
    if not peers:
        pytest.skip("no peer is installed")
    assert all("duplicate 3 and 0" in difference(answer, side.run()) for side in peers)


@pytest.mark.usefixtures("small_replay")
def test_a_large_run_has_only_tables_and_the_same_counts_and_keeps_nothing_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason="tables of headers are Parquet, which the extra 'spark' brings")
    monkeypatch.setattr(replay, "running_spark", lambda _: "not here")
    monkeypatch.setattr(replay, "LARGE", 3000)
    verdicts = list(replay.run(tmp_path, quick=True, batches=4000))
    assert [verdict.ok for verdict in verdicts] == [True] * len(verdicts)
    assert [verdict.name for verdict in verdicts if "memory" in verdict.name] == []
    assert "4,003 batches" in str(verdicts[0].figures["input"])
    assert not list(tmp_path.rglob("*.log"))


def test_more_batches_than_memory_has_room_for_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnusableInput, match="at most 300,000,000"):
        next(replay.run(tmp_path, quick=True, batches=300_000_001))
    with pytest.raises(SystemExit):
        cli.main(["lab", "bench", "--only", "replay", "--batches", "999999"])
    assert "--batches 999999: expected a number of batches, at least 1,000,000" in capsys.readouterr().err


def test_only_the_parts_that_audit_are_given_a_number_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, int | None] = {}

    def noted(name: str) -> command.Part:
        def run(folder: Path, *, quick: bool, batches: int | None = None) -> Iterator[Verdict]:
            given[name] = batches
            yield from part(ok=True)(folder, quick=quick)

        return run

    monkeypatch.setattr(command, "PARTS", {name: noted(name) for name in ("codec", "replay", "transactions")})
    assert cli.main(["lab", "bench", "--batches", "20000000"]) == 0
    assert given == {"codec": None, "replay": 20_000_000, "transactions": 20_000_000}


def test_missing_engines_are_absent_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("duckdb", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    made = [clean_batches(1, 100)]
    sides = [*replay.table_sides(tmp_path, []), *replay.memory_sides(made)]
    missing = [side for side in sides if side.name.startswith(("DuckDB", "polars"))]
    assert len(missing) == 4
    assert all("pip install 'kafka-eos[bench]'" in side.absent for side in missing)


def test_the_verdicts_of_two_audits_are_equal_except_for_their_seconds() -> None:
    rows = [Verdict(check="replay", name="gap", expected="", found="0 findings", ok=True).to_json()]
    same = [{**rows[0], "seconds": 9.0}]
    other = [{**rows[0], "found": "1 finding"}]
    assert processes.answer_of(rows, 0) == processes.answer_of(same, 0)
    assert processes.answer_of(rows, 0) != processes.answer_of(other, 0)
    assert processes.answer_of(rows, 0) != processes.answer_of(rows, 1)


def test_a_process_that_writes_no_verdicts_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="kafka_eos_checks"):
        processes.audit_process(tmp_path / "missing.tar.xz", tmp_path / "out.json")


def part(*, ok: bool) -> command.Part:
    def run(folder: Path, *, quick: bool) -> Iterator[Verdict]:
        found = "equal results" if ok else "results differ: records 1 and 2"
        figures: dict[str, int | float | str] = {"ratio": 2.5, "ratio_range": "2-3", "quick": str(quick)}
        yield Verdict(
            check="bench", name="x, y: a against b", expected="equal results", found=found, ok=ok, figures=figures
        )

    return run


@pytest.mark.parametrize(("ok", "exit_code"), [(True, 0), (False, 1)])
def test_the_exit_code_depends_only_on_equality(
    ok: bool, exit_code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "PARTS", {"codec": part(ok=ok)})
    out = tmp_path / "bench.json"
    assert cli.main(["lab", "bench", "--quick", "--json", str(out)]) == exit_code
    assert read_verdicts(out)[0].figures["quick"] == "True"
    told = capsys.readouterr().out
    assert "against b" in told
    assert "2.5 (2-3)" in told
    assert ("FAIL x, y: a against b" in told) == (not ok)


def test_only_the_named_parts_run_in_the_order_of_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def noted(name: str) -> command.Part:
        def run(folder: Path, *, quick: bool) -> Iterator[Verdict]:
            ran.append(name)
            yield from part(ok=True)(folder, quick=quick)

        return run

    monkeypatch.setattr(command, "PARTS", {name: noted(name) for name in ("codec", "graph", "replay")})
    assert cli.main(["lab", "bench", "--only", "replay", "codec"]) == 0
    assert ran == ["codec", "replay"]


@pytest.mark.parametrize(
    "error", [OSError("no space left"), CalledProcessError(1, ["java"]), UnusableInput("Spark failed")], ids=str
)
def test_a_part_that_cannot_run_exits_with_2(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(folder: Path, *, quick: bool) -> Iterator[Verdict]:
        raise error
        yield

    monkeypatch.setattr(command, "PARTS", {"codec": broken})
    assert cli.main(["lab", "bench"]) == 2
    assert capsys.readouterr().err.endswith(f"kafka-eos lab bench: codec: {error}\n")


def test_the_json_of_a_run_is_readable_by_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PARTS", {"codec": part(ok=True)})
    out = tmp_path / "bench.json"
    cli.main(["lab", "bench", "--json", str(out)])
    assert json.loads(out.read_text())[0]["check"] == "bench"


def test_logs_of_coordinators_are_the_same_by_columns_and_by_the_readable_rule(tmp_path: Path) -> None:
    for version in (0, 1):
        log = coordinators.write_states(tmp_path / f"states-{version}", 4_000, version)
        batches = [each.batch for each in read_segment(log.file(log.segments[0])) if isinstance(each, StoredBatch)]
        values = [decode_value(record.value or b"") for batch in batches for record in batch.records()]
        started = [value.transaction_partitions is not None for value in values if value is not None]
        assert started == [
            value.transaction_status is not TransactionState.EMPTY for value in values if value is not None
        ]
        assert set(started) == {True, False}
        told = coordinators._states(read_coordinator_log, log)
        assert told == coordinators._states(follow_coordinator_log, log)
        assert (told["records"], told["findings"]) == (4_000, 0)
        assert told["completed"] > 30
    log = coordinators.write_offsets(tmp_path / "offsets", 1_500)
    counted = coordinators._offsets(read_group_log, log)
    assert counted == coordinators._offsets(follow_group_log, log)
    assert counted["checked"] > 500
