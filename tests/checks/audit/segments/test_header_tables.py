"""Tables of headers are judged as the segments are that they were made of, and damage in them hides nothing else."""

import errno
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kafka_eos.formats.record_batch import Record, build_batch
from kafka_eos.formats.segment import RegionKind
from kafka_eos_checks import cli
from kafka_eos_checks.audit import audit
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.headers_command import SOURCE, _topic_of
from kafka_eos_checks.audit.inputs import Inputs
from kafka_eos_checks.audit.oracle.oracle import judge
from kafka_eos_checks.audit.oracle.synthetic import faulty_log, write_log, write_segment
from kafka_eos_checks.audit.plan import stages
from kafka_eos_checks.audit.segments import header_tables
from kafka_eos_checks.audit.segments.headers import FIELDS, Headers, concatenate
from kafka_eos_checks.audit.segments.marks import Marks
from kafka_eos_checks.audit.segments.reading import read_headers
from kafka_eos_checks.audit.segments.splits import find_logs, plan
from kafka_eos_checks.kit import progress
from kafka_eos_checks.kit.paths import CLONE
from kafka_eos_checks.kit.recording import unpacked
from kafka_eos_checks.kit.verdict import Standing

from ..conftest import in_both

pq = pytest.importorskip("pyarrow.parquet", reason="tables of headers are Parquet, which the extra 'spark' brings")

RECORDINGS = CLONE / "checks" / "recordings"
TABLE = f"{'0' * 20}.{header_tables.SUFFIX}"


def headers_of(*arguments: str | Path) -> int:
    return cli.main(["headers", *map(str, arguments)])


def without_file(findings: tuple[Finding, ...] | list[Finding]) -> Counter[Finding]:
    """Findings, whether in a segment or in its table, which has no times; the folder's name is the broker's in both."""
    return Counter(
        replace(finding, file=Path(finding.file).name.partition(".")[0], time_ms=None) for finding in findings
    )


def faulty(folder: Path, seed: int) -> Path:
    write_log(folder / "data" / "orders-0", faulty_log(seed, 400, 0.1), segment_batches=150)
    return folder / "data"


@pytest.mark.parametrize("seed", range(8))
def test_a_table_has_the_findings_of_its_segment_however_it_is_cut(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_tables, "ROWS", 40)
    monkeypatch.setattr("kafka_eos_checks.audit.segments.headers.BLOCK_BYTES", 2000)
    data = faulty(tmp_path, seed)
    assert headers_of(data, "--out", tmp_path / "tables") == 0
    [expected] = stages.audit_logs(find_logs(data))
    for split_bytes in (16, 40_000, 1 << 30):
        [found] = stages.audit_logs(find_logs(tmp_path / "tables"), split_bytes=split_bytes)
        assert without_file(found.findings) == without_file(expected.findings)
        assert (found.batches, found.records, found.holes) == (expected.batches, expected.records, expected.holes)
    assert expected.findings
    assert len(plan(find_logs(tmp_path / "tables"), 16)) > 6, "row groups are read apart"
    assert judge([found]).found == "0 differences"


def test_a_table_is_cut_as_a_segment_that_takes_as_long_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_tables, "ROWS", 40)
    monkeypatch.setattr("kafka_eos_checks.audit.segments.headers.BLOCK_BYTES", 2000)
    write_log(tmp_path / "data" / "orders-0", faulty_log(1, 400))
    assert headers_of(tmp_path / "data", "--out", tmp_path / "tables") == 0
    [table] = (tmp_path / "tables").rglob(TABLE)
    size = table.stat().st_size
    assert 1 < len(plan(find_logs(tmp_path / "tables"), size)) == len(header_tables.ranges_of(table, size // 16))


def test_a_row_group_that_is_too_large_for_memory_is_damage_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert headers_of(faulty(tmp_path, 1), "--out", tmp_path / "tables") == 0
    [table, *_] = sorted((tmp_path / "tables").rglob(TABLE))
    rows = max(map(len, header_tables.read_table(table)))
    monkeypatch.setattr(header_tables, "ROWS_LIMIT", rows - 1)
    [headers] = header_tables.read_table(table)
    assert len(headers) == 0
    assert f"a row group of {rows} rows, more than {rows - 1}" in headers.damage[0].reason


@pytest.mark.parametrize("name", ["violations", "replicated-violations"])
def test_recordings_are_judged_alike_with_and_without_their_records(tmp_path: Path, name: str) -> None:
    with unpacked(RECORDINGS / f"{name}.tar.xz") as folder:
        brokers = sorted(path for path in (folder / "brokers").iterdir() if path.is_dir())
        assert headers_of(*brokers, "--out", tmp_path / "tables") == 0
        expected = audit.of_inputs(Inputs(tuple(find_logs(*brokers)), ()))
    found = audit.of_inputs(Inputs(tuple(find_logs(tmp_path / "tables")), ()))
    assert [(v.name, v.found) for v in found.verdicts] == [(v.name, v.found) for v in expected.verdicts]
    assert without_file(found.findings) == without_file(expected.findings)
    compared = {v.name: {k: n for k, n in v.figures.items() if k != "segment_bytes"} for v in expected.verdicts}
    assert {v.name: {k: n for k, n in v.figures.items() if k != "segment_bytes"} for v in found.verdicts} == compared
    assert any(verdict.figures.get("markers") for verdict in expected.verdicts)


def test_a_torn_transaction_is_found_in_tables_by_their_markers(tmp_path: Path) -> None:
    with unpacked(RECORDINGS / "violations.tar.xz") as folder:
        assert headers_of(folder / "brokers" / "1", "--out", tmp_path / "tables") == 0
    table = tmp_path / "tables" / "late-end-of-transaction-0" / TABLE
    decisions = pq.read_table(table)["decision"].to_pylist()
    marker = next(row for row, decision in enumerate(decisions) if decision == 1)
    about = {key: value for key, value in pq.read_metadata(table).metadata.items() if key.startswith(b"kafka_eos")}
    changed = pq.read_table(table).replace_schema_metadata(about)
    column = changed.schema.get_field_index("decision")
    values = [0 if row == marker else decision for row, decision in enumerate(decisions)]
    arrow = pytest.importorskip("pyarrow").array(values, changed.schema.field(column).type)
    pq.write_table(changed.set_column(column, changed.schema.field(column), arrow), table)
    found = audit.of_inputs(Inputs(tuple(find_logs(tmp_path / "tables")), ()))
    assert {finding.rule for finding in found.findings} & {"torn transaction", "marker without transaction"}


def test_all_fields_come_back(tmp_path: Path) -> None:
    data = faulty(tmp_path, 3)
    assert headers_of(data, "--out", tmp_path / "tables") == 0
    [log], [tables] = find_logs(data), find_logs(tmp_path / "tables")
    assert log.has_records
    assert not tables.has_records
    for segment, table in zip(log.segments, tables.segments, strict=True):
        one = concatenate(list(read_headers(Path(log.folder, segment))))
        other = concatenate(list(read_headers(Path(tables.folder, table))))
        assert one.fields.keys() == other.fields.keys() == FIELDS.keys()
        assert all((one.fields[name] == other.fields[name]).all() for name in FIELDS)
        assert (one.positions == other.positions).all()


@pytest.mark.parametrize("rows", [header_tables.ROWS, 40])
def test_damage_of_the_segment_stays_damage(rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_tables, "ROWS", rows)
    monkeypatch.setattr("kafka_eos_checks.audit.segments.headers.BLOCK_BYTES", 2000)
    data = faulty(tmp_path, 5)
    first, *_, last = sorted((data / "orders-0").glob("*.log"))
    for path, position in ((first, 300), (last, last.stat().st_size - 30)):
        broken = bytearray(path.read_bytes())
        broken[position] ^= 1
        path.write_bytes(broken)
    assert headers_of(data, "--out", tmp_path / "tables") == 0
    [expected], [found] = (stages.audit_logs(find_logs(folder)) for folder in (data, tmp_path / "tables"))
    assert len(expected.damage) == 2
    assert [region for _, region in found.damage] == [region for _, region in expected.damage]
    assert without_file(found.findings) == without_file(expected.findings)


def test_a_table_that_cannot_be_completed_is_not_left_behind(tmp_path: Path) -> None:
    def groups() -> Iterator[tuple[Headers, Marks]]:
        raise OSError("the disk is full")
        yield

    with pytest.raises(OSError, match="the disk is full"):
        header_tables.write_row_groups(tmp_path / TABLE, groups(), 0)
    assert list(tmp_path.iterdir()) == []


def test_a_segment_of_nothing_but_damage_and_an_empty_one_have_tables_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    monkeypatch.setattr(progress, "byte_progress", lambda *_: nullcontext(read.append))
    for number, content in enumerate((b"\x01" * 100, b"")):
        path = tmp_path / "data" / f"orders-{number}" / f"{'0' * 20}.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    assert headers_of(tmp_path / "data", "--out", tmp_path / "tables") == 0
    assert sorted(read) == [0, 100]
    damaged, empty = stages.audit_logs(find_logs(tmp_path / "tables"))
    [(_, region)] = damaged.damage
    assert (region.position, region.end, damaged.batches) == (0, 100, 0)
    assert (empty.damage, empty.batches) == ((), 0)


def test_a_row_group_that_cannot_be_read_does_not_hide_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_tables, "ROWS", 40)
    monkeypatch.setattr("kafka_eos_checks.audit.segments.headers.BLOCK_BYTES", 2000)
    write_log(tmp_path / "data" / "orders-0", faulty_log(1, 200, 0.0))
    assert headers_of(tmp_path / "data", "--out", tmp_path / "tables") == 0
    table = tmp_path / "tables" / "orders-0" / TABLE
    groups = pq.ParquetFile(table).metadata.num_row_groups
    start, end = header_tables.ranges_of(table, 1)[1]
    broken = bytearray(table.read_bytes())
    for position in range(start + 30, end - 30):
        broken[position] ^= 0x55
    table.write_bytes(broken)
    [found] = stages.audit_logs(find_logs(tmp_path / "tables"))
    [(file, region)] = found.damage
    assert (file, region.position, region.end, region.kind) == (TABLE, start, end, RegionKind.CORRUPT)
    assert "row group 1" in region.reason
    assert 0 < found.batches < 200
    assert groups > 3
    assert judge([found]).found == "0 differences"


@pytest.mark.parametrize("content", [b"", b"PAR1 this is none PAR1", b"\0" * 64])
def test_a_file_that_is_no_table_is_damage_and_the_others_are_judged(tmp_path: Path, content: bytes) -> None:
    data = faulty(tmp_path, 5)
    assert headers_of(data, "--out", tmp_path / "tables") == 0
    [before] = stages.audit_logs(find_logs(tmp_path / "tables"))
    bad = tmp_path / "tables" / "orders-1" / TABLE
    bad.parent.mkdir()
    bad.write_bytes(content)
    good, other = stages.audit_logs(find_logs(tmp_path / "tables"))
    assert good == before
    assert (other.batches, other.findings) == (0, ())
    assert len(other.damage) == 1


@in_both("count", 50, 200)
def test_a_bit_that_flips_is_damage_or_changes_nothing(count: int, tmp_path: Path) -> None:
    data = faulty(tmp_path, 5)
    assert headers_of(data, "--out", tmp_path / "tables") == 0
    logs = find_logs(tmp_path / "tables")
    [before] = stages.audit_logs(logs)
    table = Path(logs[0].folder, logs[0].segments[0])
    whole = table.read_bytes()
    rng = np.random.default_rng(7)
    damaged = 0
    for bit in rng.integers(0, 8 * len(whole), count).tolist():
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        table.write_bytes(broken)
        [found] = stages.audit_logs(logs)
        damaged += bool(found.damage)
        assert found.damage or found.findings == before.findings, f"bit {bit}"
    assert count / 4 < damaged < count


@pytest.mark.parametrize("name", ["kafka_eos.damage", "kafka_eos.segment_bytes"])
def test_a_table_without_its_metadata_is_reported_as_no_table(tmp_path: Path, name: str) -> None:
    assert headers_of(faulty(tmp_path, 5), "--out", tmp_path / "tables") == 0
    table = tmp_path / "tables" / "orders-0" / TABLE
    about = {key: value for key, value in pq.read_metadata(table).metadata.items() if key.startswith(b"kafka_eos")}
    pq.write_table(pq.read_table(table).replace_schema_metadata({**about, name.encode(): b"[1]"}), table)
    [found] = stages.audit_logs(find_logs(tmp_path / "tables"))
    assert [region.reason[:28] for _, region in found.damage] == ["no table of batch headers of"]


def test_any_other_parquet_file_is_reported_as_no_table_of_headers(tmp_path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415

    bad = tmp_path / "orders-1" / TABLE
    bad.parent.mkdir()
    pq.write_table(pa.table({"base_offset": [1, 2]}), bad)
    [found] = stages.audit_logs(find_logs(tmp_path))
    [(_, region)] = found.damage
    assert "kafka-eos headers" in region.reason


def test_existing_tables_are_kept_and_those_of_grown_segments_are_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = faulty(tmp_path, 2)
    out = tmp_path / "tables"
    assert headers_of(data, "--out", out) == 0
    tables = len(list(out.rglob(f"*.{header_tables.SUFFIX}")))
    assert f"{tables} tables of" in capsys.readouterr().out
    assert headers_of(data, "--out", out) == 0
    assert f"0 tables of 0 batches, {tables} files copied, {tables} tables kept" in capsys.readouterr().out
    last = max((data / "orders-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + b"\0" * 70)
    assert headers_of(data, "--out", out) == 0
    assert (
        f"1 tables of {400 - 2 * 150} batches, {tables} files copied, {tables - 1} tables kept"
        in capsys.readouterr().out
    )
    assert not list(out.rglob("*.part"))


def test_a_full_disk_is_told_with_the_folder_and_the_call_can_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    data, out = faulty(tmp_path, 2), tmp_path / "tables"
    with monkeypatch.context() as patched:
        patched.setattr(header_tables, "write_table", full)
        assert headers_of(data, "--out", out) == 2
    assert f"kafka-eos headers: {out} cannot be written: No space left on device; " in capsys.readouterr().err
    assert headers_of(data, "--out", out) == 0


def test_tables_follow_their_segments_also_if_these_change_in_place_or_are_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = faulty(tmp_path, 2), tmp_path / "tables"
    shutil.copytree(data / "orders-0", data / "gone-0")
    assert headers_of(data, "--out", out) == 0
    first, *_, last = sorted((data / "orders-0").glob("*.log"))
    last.unlink()
    changed = bytearray(first.read_bytes())
    changed[30] ^= 1
    first.write_bytes(changed)
    shutil.rmtree(data / "gone-0")
    capsys.readouterr()
    assert headers_of(data, "--out", out) == 0
    told = capsys.readouterr().out
    assert "1 tables of" in told
    assert ", 1 of files that are gone removed; tables of partitions that are not in what is given" in told
    assert told.partition("\n")[0].partition("judges them: ")[2].startswith(f"{out}/gone-0; ")
    shutil.rmtree(out / "gone-0")
    whole, tables = audit.run([data]), audit.run([out])
    assert [verdict.found for verdict in tables.verdicts] == [verdict.found for verdict in whole.verdicts]
    assert "1 corrupt region" in [verdict.found for verdict in tables.verdicts]


def test_a_log_that_lacks_its_end_is_told_in_tables_too(tmp_path: Path) -> None:
    data, out = faulty(tmp_path, 2), tmp_path / "tables"
    (data / "replication-offset-checkpoint").write_text("0\n2\norders 0 999999\nsecret 0 5\n")
    (data / ".kafka_cleanshutdown").touch()
    (data / "meta.properties").write_text("version=1\nnode.id=3\n")
    assert headers_of(data, "--out", out) == 0
    [told] = [verdict for verdict in audit.run([out]).verdicts if verdict.name == "readable"]
    assert "1 incomplete log" in told.found
    assert (out / "replication-offset-checkpoint").stat().st_mtime == (
        data / "replication-offset-checkpoint"
    ).stat().st_mtime
    (data / ".kafka_cleanshutdown").unlink()
    assert headers_of(data, "--out", out, "--topic", "orders") == 0
    assert (out / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 999999\n"
    assert not (out / ".kafka_cleanshutdown").exists(), "the broker runs again"


def test_tables_have_nothing_that_their_logs_no_longer_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = faulty(tmp_path, 2), tmp_path / "tables"
    topic, first = data / "orders-0", f"{0:020d}"
    shutil.copytree(topic, data / "__consumer_offsets-0")
    (topic / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    kept = (topic / f"{first}.log").read_bytes()
    (topic / f"{first}.log").write_bytes(b"")
    assert headers_of(data, "--out", out) == 0
    assert (out / "orders-0" / f"{first}.log").stat().st_size == 0, "an empty segment is copied"
    (topic / "leader-epoch-checkpoint").unlink()
    (topic / f"{first}.log").write_bytes(kept)
    moved = shutil.move(data / "__consumer_offsets-0", tmp_path / "__consumer_offsets-0")
    capsys.readouterr()
    assert headers_of(data, "--out", out) == 0
    assert f"that are not in what is given, remove them or the audit judges them: {moved.parent}/tables/__consumer" in (
        capsys.readouterr().out
    )
    assert not (out / "orders-0" / "leader-epoch-checkpoint").exists()
    assert not (out / "orders-0" / f"{first}.log").exists()
    (data / "orders-0").rename(tmp_path / "orders-0")
    (data / "orders-0").symlink_to(tmp_path / "orders-0")
    (data / "payments-0").mkdir()
    write_log(data / "shipping-0", faulty_log(1, 5, 0.0))
    shutil.rmtree(out)
    assert headers_of(data, "--out", out) == 0
    assert (out / "orders-0").is_symlink()
    assert (out / "payments-0").is_dir()
    before = files_in(tmp_path / "orders-0")
    (data / "orders-0").unlink()
    shutil.copytree(tmp_path / "orders-0", data / "orders-0")
    assert headers_of(data, "--out", out) == 0
    assert not (out / "orders-0").is_symlink()
    assert files_in(tmp_path / "orders-0") == before, "nothing is written through a link"


def test_headers_refuses_a_link_to_another_broker_unless_its_folder_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker(tmp_path / "copy", 1)
    other = broker(tmp_path / "mounted", 2)
    (tmp_path / "copy" / "2").symlink_to(other)
    assert headers_of(tmp_path / "copy", "--out", tmp_path / "tables") == 2
    assert f"{tmp_path / 'copy' / '2'} is a symbolic link, which is not followed; put a copy" in capsys.readouterr().err
    assert headers_of(tmp_path / "copy", other, "--out", tmp_path / "tables") == 0


def test_headers_refuses_folders_that_lie_too_deep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker(tmp_path / "copy", 1)
    deep = broker(tmp_path / "copy" / "more" / "deep", 2)
    assert headers_of(tmp_path / "copy", "--out", tmp_path / "tables") == 2
    assert f"{deep} has partitions and lies too deep to be read; give it, too" in capsys.readouterr().err
    assert headers_of(tmp_path / "copy", deep, "--out", tmp_path / "tables") == 0


def test_a_damaged_checkpoint_stays_damaged_whichever_topics_are_chosen(tmp_path: Path) -> None:
    data, out = faulty(tmp_path, 2), tmp_path / "tables"
    (data / "cleaner-offset-checkpoint").write_text("0\n2\norders 0 300\n")
    assert headers_of(data, "--out", out, "--topic", "orders") == 0
    for folder in (data, out):
        [told] = [verdict for verdict in audit.run([folder]).verdicts if verdict.name == "readable"]
        assert "1 damaged file" in told.found, folder


def test_a_hole_of_compaction_is_known_in_tables_too(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "tables"
    encoded = [build_batch([Record(value=b"v")], base_offset=offset).encode() for offset in (0, 5)]
    write_segment(data / "orders-0" / f"{0:020d}.log", encoded)
    for lines, standing in (("orders 0 5\nsecret 0 5\n", Standing.OK), ("secret 0 5\n", Standing.NOT_JUDGED)):
        (data / "cleaner-offset-checkpoint").write_text(f"0\n{lines.count(chr(10))}\n{lines}")
        assert headers_of(data, "--out", out, "--topic", "orders") == 0
        assert "secret" not in (out / "cleaner-offset-checkpoint").read_text()
        for folder in (data, out):
            [told] = [verdict for verdict in audit.run([folder]).verdicts if verdict.name == "readable"]
            assert told.standing is standing, folder


def test_tables_never_go_where_the_logs_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = faulty(tmp_path, 1)
    assert headers_of(data, "--out", data) == 2
    assert "has the logs themselves (orders-0); give another folder" in capsys.readouterr().err


def test_segments_that_are_in_the_folder_for_tables_are_never_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = faulty(tmp_path, 1), tmp_path / "backup"
    shutil.copytree(data / "orders-0", data / "__consumer_offsets-0")
    for left in ("", "orders-0"):  # all of the backup, or only a topic of coordinators
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(data, out)
        shutil.rmtree(out / left) if left else None
        before = files_in(out)
        assert headers_of(data, "--out", out) == 2
        said = capsys.readouterr().err
        assert f"--out {out} has segments that are no copies of this command: {out}/__consumer_offsets-0/0000" in said
        assert files_in(out) == before
    (out / SOURCE).touch()
    assert headers_of(data, "--out", out) == 0, "an interrupted call goes on"
    assert headers_of(data, "--out", out) == 0
    shutil.copytree(data / "orders-0", out / "payments-0")
    assert headers_of(data, "--out", out) == 2


def broker(folder: Path, number: int) -> Path:
    """A log directory of a broker, with an identity."""
    data = faulty(folder / str(number), number)
    (data / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id={number}\n")
    return data.rename(folder / f"broker-{number}")


def files_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tables_of_another_broker_are_never_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two, out = broker(tmp_path, 1), broker(tmp_path, 2), tmp_path / "tables"
    assert headers_of(one, "--out", out) == 0
    before = files_in(out)
    assert headers_of(two, "--out", out) == 2
    said = capsys.readouterr().err
    assert (
        f"--out {out} has tables of another log directory: cluster c broker 1, not cluster c broker 2; give all" in said
    )
    assert headers_of(one, two, "--out", out) == 2
    assert (
        f"has tables of log directories that are not given: {out}; give all log directories" in capsys.readouterr().err
    )
    assert files_in(out) == before
    moved = one.rename(tmp_path / "the same broker, copied the next day")
    assert headers_of(moved, "--out", out) == 0
    shutil.rmtree(out)
    assert headers_of(moved, two, "--out", out) == 0
    before = files_in(out)
    assert headers_of(two, "--out", out) == 2
    assert f"that are not given: {out}/{two.name}, {out}/{moved.name}; " in capsys.readouterr().err
    assert files_in(out) == before


def test_log_directories_without_an_identity_are_known_by_their_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, out = faulty(tmp_path / "1", 1), faulty(tmp_path / "2", 2), tmp_path / "tables"
    assert headers_of(one, "--out", out) == 0
    assert headers_of(one / "orders-0", "--out", out) == 0
    assert headers_of(two, "--out", out) == 2
    assert f"tables of another log directory: {one}, not {two}; " in capsys.readouterr().err
    (out / SOURCE).unlink()
    assert headers_of(two, "--out", out) == 0, "nothing tells that they are of another one"


def test_headers_takes_a_packed_recording_and_no_other_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("once", "again"):
        assert headers_of("example:violations", "--out", tmp_path / "tables") == 0, name
    with unpacked(RECORDINGS / "violations.tar.xz") as folder:
        assert headers_of(folder, "--out", tmp_path / "of the folder") == 0
    one, other = (
        {p.relative_to(f): p.read_bytes() for p in f.rglob("*.*") if p.is_file()}
        for f in (tmp_path / "tables", tmp_path / "of the folder")
    )
    assert one == other
    (tmp_path / "findings.jsonl").touch()
    capsys.readouterr()
    assert headers_of(tmp_path / "findings.jsonl", "--out", tmp_path / "tables") == 2
    assert "findings.jsonl: neither a directory nor a recording (.tar.xz)" in capsys.readouterr().err


def test_no_key_or_value_is_in_a_table_and_only_the_chosen_topics_are_written(tmp_path: Path) -> None:
    data = faulty(tmp_path, 2).rename(tmp_path / "caf\udce9")  # a name in Latin-1
    shutil.copytree(data / "orders-0", data / "secret-0")
    for _ in range(2):  # the second call knows its own tables by the name
        assert headers_of(data, "--out", tmp_path / "tables", "--topic", "orders") == 0
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {"orders-0", SOURCE}
    assert (tmp_path / "tables" / SOURCE).read_bytes() == os.fsencode(data)
    columns = pq.read_schema(next((tmp_path / "tables").rglob(f"*.{header_tables.SUFFIX}"))).names
    assert set(columns) == {"position", *FIELDS, "decision", "coordinator_epoch"}


def test_folders_of_one_name_and_folders_without_logs_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in ("a", "b"):
        write_log(tmp_path / side / "data" / "orders-0", faulty_log(1, 5, 0.0))
    both = (tmp_path / "a" / "data", tmp_path / "b" / "data")
    assert headers_of(*both, "--out", tmp_path / "tables") == 2
    assert "same name" in capsys.readouterr().err
    assert headers_of(both[0], "--out", tmp_path / "tables", "--topic", "orders", "payments") == 2
    assert "no log of payments" in capsys.readouterr().err
    assert headers_of(tmp_path, "--out", tmp_path / "tables") == 2
    assert ".log or .headers.parquet" in capsys.readouterr().err


def test_headers_takes_the_folder_of_a_recording_and_names_folders_further_below(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = tmp_path / "recording"
    shutil.move(faulty(tmp_path, 1), recording / "brokers" / "1")
    assert headers_of(recording, "--out", tmp_path / "tables") == 0
    assert [path.name for path in (tmp_path / "tables").rglob(TABLE)] == [TABLE]
    shutil.move(recording / "brokers", tmp_path / "copy" / "broker-1")
    assert headers_of(tmp_path / "copy", "--out", tmp_path / "others") == 2
    assert f"; give {tmp_path}/copy/broker-1/1\n" in capsys.readouterr().err


def test_an_audit_of_tables_imports_no_pandas(tmp_path: Path) -> None:
    assert headers_of(faulty(tmp_path, 3), "--out", tmp_path / "tables") == 0
    program = f"""
import sys
from pathlib import Path
from kafka_eos_checks.audit import audit
found = audit.run([Path({str(tmp_path / "tables")!r})])
imported = [name for name in ("pyarrow.parquet", "pyarrow.compute", "pandas") if name in sys.modules]
print(len(found.findings) > 0, imported)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout == "True ['pyarrow.parquet']\n"


@pytest.mark.parametrize("name", ["my-orders.v1-0", "my-orders.v1-0.0a1b-delete", "my-orders.v1-12.0a1b-future"])
def test_the_topic_of_a_folder_is_that_of_its_partition_also_if_it_is_set_aside(name: str) -> None:
    assert _topic_of(name) == "my-orders.v1"
