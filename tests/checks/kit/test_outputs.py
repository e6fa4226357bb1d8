"""The check of an output before the work: what it refuses, and that it leaves nothing behind."""

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
    with pytest.raises(OSError, match=f"f.json cannot be written: there is no folder {tmp_path}/one; make it"):
        check_output(tmp_path / "one" / "f.json")
    assert not (tmp_path / "one").exists()


def test_a_folder_and_a_place_that_takes_no_file_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"{tmp_path} cannot be written: it is a folder; give a file"):
        check_output(tmp_path)
    with pytest.raises(OSError, match=r"/proc/x.html cannot be written: .*; give another file"):
        check_output(Path("/proc/x.html"))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"file/f.json cannot be written: there is no folder .*/file; make it"):
        check_output(tmp_path / "file" / "f.json")
