"""The check of an output before the work: what it refuses, and that it leaves nothing behind."""

import os
import select
import shutil
import subprocess
from pathlib import Path

import pytest

from kafka_eos_checks.kit.outputs import check_output


def test_a_file_that_can_be_written_is_not_made_and_keeps_its_content(tmp_path: Path) -> None:
    check_output(tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()
    (tmp_path / "old.json").write_text("old")
    check_output(tmp_path / "old.json")
    assert (tmp_path / "old.json").read_text() == "old"
    check_output(Path("/dev/null"))


def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(
        OSError, match=f"f.json cannot be written: there is no folder {tmp_path}/one; make it, or give another"
    ):
        check_output(tmp_path / "one" / "f.json")
    assert not (tmp_path / "one").exists()


def test_a_folder_and_a_place_that_takes_no_file_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"{tmp_path} cannot be written: it is a folder; give a file"):
        check_output(tmp_path)
    with pytest.raises(OSError, match=r"^/proc/x.html cannot be written: [A-Z][a-z ]*; give another file, or see to "):
        check_output(Path("/proc/x.html"))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"file/f.json cannot be written: there is no folder .*/file; make it"):
        check_output(tmp_path / "file" / "f.json")


def test_a_file_that_exists_and_takes_no_bytes_is_refused(tmp_path: Path) -> None:
    busy = Path(shutil.copy(shutil.which("sleep") or "", tmp_path / "busy"))
    with subprocess.Popen([busy, "60"]) as running:
        try:
            with pytest.raises(OSError, match="busy cannot be written"):  # nobody may write a program that runs
                check_output(busy)
        finally:
            running.kill()


def test_a_link_is_left_as_it_is_and_refused_if_its_file_cannot_be_written(tmp_path: Path) -> None:
    link = tmp_path / "latest.json"
    link.symlink_to(tmp_path / "today.json")
    check_output(link)
    assert (link.is_symlink(), (tmp_path / "today.json").exists()) == (True, False)
    astray = tmp_path / "astray.json"
    astray.symlink_to(tmp_path / "missing" / "today.json")
    with pytest.raises(OSError, match=r"astray.json cannot be written: No such file"):
        check_output(astray)


def test_the_reader_of_a_pipe_is_not_told_of_an_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        asked = select.poll()
        asked.register(reader)
        check_output(tmp_path / "pipe")
        assert asked.poll(0) == [], "the reader was told that a writer has come and gone"
    finally:
        os.close(reader)
