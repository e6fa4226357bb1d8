"""The command that writes logs with planted violations."""

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_eos_checks.audit.audit import run
from kafka_eos_checks.cli.command import main
from kafka_eos_checks.lab.generate import command, planted_logs
from kafka_eos_checks.lab.generate.log_files import LogFiles


def generate(folder: Path, *arguments: str) -> int:
    return main(["lab", "generate", str(folder), "--batches", "6000", "--producers", "7", *arguments])


@pytest.mark.parametrize("more", [[], ["--headers"], ["--segment-bytes", "100000"]])
def test_the_audit_finds_what_was_planted_where_it_was_planted_and_nothing_else(
    tmp_path: Path, more: list[str]
) -> None:
    if more == ["--headers"]:
        pytest.importorskip("pyarrow", reason="tables of headers are Parquet")
    assert generate(tmp_path / "made", "--partitions", "2", "--faults", "2", "--seed", "5", *more) == 0
    lines = (tmp_path / "made" / "planted.jsonl").read_text(encoding="utf-8").splitlines()
    planted = {(row["rule"], row["topic"], row["partition"], row["offset"]) for row in map(json.loads, lines)}
    found = {(f.rule, f.topic, f.partition, f.offset) for f in run([tmp_path / "made"]).findings}
    assert len(planted) == 2 * 3 * 2
    assert found == planted


def test_the_partitions_together_have_as_many_batches_as_are_asked_for(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert main(["lab", "generate", str(made), "--batches", "11", "--partitions", "3", "--producers", "1"]) == 0
    assert [log.batches for log in run([made]).logs] == [4, 4, 3]


def fill_the_disk(_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("more", "needed", "fewer"),
    [([], "1,650,000", "batches"), (["--headers"], "54,000", "batches"), (["--jepsen", "900"], "180,000", "jepsen")],
)
def test_a_full_disk_is_told_with_what_is_needed_and_what_to_do(
    more: list[str], needed: str, fewer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for name in ("_write", "_write_jepsen"):
        monkeypatch.setattr(command, name, fill_the_disk)
    call = ["lab", "generate", str(tmp_path / "made"), *(more if fewer == "jepsen" else ["--batches", "6000", *more])]
    assert main(call) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path}/made cannot be written: No space left on device; it takes at least {needed} bytes, and " in said
    assert said.endswith(f" free; give a folder on another disk, or fewer --{fewer}\n")
    assert not (tmp_path / "made").exists()


def test_the_room_that_is_told_is_that_of_the_disk_that_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    made = tmp_path / "made"
    monkeypatch.setattr(command, "_write", fill_the_disk)
    monkeypatch.setattr(command.shutil, "rmtree", lambda *_, **__: None)  # as of a disk, whose folder cannot be removed
    monkeypatch.setattr(command.shutil, "disk_usage", lambda path: SimpleNamespace(free=7 if path == made else 0))
    assert main(["lab", "generate", str(made), "--batches", "6000"]) == 2
    assert "and the disk has 7 free" in capsys.readouterr().err


def test_a_seed_decides_every_byte(tmp_path: Path) -> None:
    def log(seed: str) -> bytes:
        folder = tmp_path / f"made-{len(list(tmp_path.iterdir()))}"
        assert generate(folder, "--seed", seed) == 0
        return (folder / "generated-0" / f"{0:020d}.log").read_bytes()

    assert log("3") == log("3") != log("4")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--partitions", "0"], "--partitions 0: give 1 or more"),
        (["--records", "3", "2"], "--records 3 2"),
        (["--faults", "5000"], "have room for"),
        (["--transactions", "30", "--clients", "3", "--faults", "9"], "; give more --transactions"),
        (["--topic", "a[b]"], "--topic 'a[b]': letters, digits"),
        (["--topic", ".."], "'..' is not allowed"),
        (["--partitions", "7000"], "one for each partition"),
        (["--history"], "--history: only with --transactions"),
        (["--retain-bytes", "1000"], "--retain-bytes 1000: only with --transactions"),
        (["--brokers", "3"], "--brokers 3: only with --transactions"),
        (["--jepsen", "100"], "--batches 6000: not with --jepsen"),
        (["--segment-bytes", "1023"], "--segment-bytes 1023: give 1024 to 2147483647"),
        (["--segment-bytes", "2147483648"], "--segment-bytes 2147483648: give 1024 to 2147483647"),
    ],
)
def test_a_call_that_makes_no_log_says_why(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(tmp_path / "made", *arguments) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "made").exists(), "nothing unfinished is left"


def test_a_call_that_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = planted_logs.write

    def written_in_part(folder: Path, *arguments: Any, **more: Any) -> LogFiles:
        write(folder, *arguments, **more)
        assert list(folder.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(planted_logs, "write", written_in_part)
    assert generate(tmp_path / "made") == 130
    assert not (tmp_path / "made").exists(), "half a log looks like a whole one"


def test_a_folder_that_cannot_be_made_is_named_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert generate(tmp_path / "file" / "made") == 2
    told = f"kafka-eos lab generate: {tmp_path}/file/made cannot be made: Not a directory; give another folder\n"
    assert capsys.readouterr().err == told


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").write_text("x", encoding="utf-8")
    assert generate(tmp_path) == 2
    assert "not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
