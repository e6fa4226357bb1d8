"""Archives of the classes of a Java program: which run writes, and which uses what was written."""

import os
import shutil
from pathlib import Path
from time import time
from types import SimpleNamespace

import pytest

from kafka_eos_checks.kit.class_archive import FREE_BYTES, WRITING_SECONDS, class_archive, sharing_options
from kafka_eos_checks.kit.paths import user_cache_folder

QUIET = ["-Xlog:disable"]


def wait(archive: Path) -> None:
    long_ago = time() - WRITING_SECONDS - 1
    os.utime(archive, (long_ago, long_ago))


def test_the_first_run_leaves_a_mark_and_a_later_one_writes_while_others_wait(tmp_path: Path) -> None:
    archive = tmp_path / "classes" / "a.jsa"
    writing = [*QUIET, f"-XX:ArchiveClassesAtExit={archive}"]
    assert sharing_options(archive, write=False) == QUIET
    assert not archive.parent.exists()
    assert sharing_options(archive, write=True) == QUIET
    assert sharing_options(archive, write=True) == QUIET, "the first run was just now"
    wait(archive)
    assert sharing_options(archive, write=False) == QUIET
    assert sharing_options(archive, write=True) == writing
    assert sharing_options(archive, write=True) == QUIET, "another run is writing"
    archive.write_bytes(bytes(4096))
    assert sharing_options(archive, write=True) == QUIET, "its header is not written"
    wait(archive)
    assert sharing_options(archive, write=True) == writing, "that run was killed"
    archive.write_bytes(b"\xa8\xab\x0b\xf0")
    assert sharing_options(archive, write=False) == [*QUIET, f"-XX:SharedArchiveFile={archive}"]


def test_a_small_program_writes_at_its_first_run_and_one_run_at_a_time(tmp_path: Path) -> None:
    archive = tmp_path / "a.jsa"
    assert sharing_options(archive, write=True, at_once=True) == [*QUIET, f"-XX:ArchiveClassesAtExit={archive}"]
    assert sharing_options(archive, write=True, at_once=True) == QUIET


def test_where_nothing_can_be_written_java_starts_without_an_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert sharing_options(tmp_path / "file" / "a.jsa", write=True, at_once=True) == QUIET
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=FREE_BYTES))
    assert sharing_options(tmp_path / "a.jsa", write=True, at_once=True) == QUIET


def test_another_java_and_other_jars_have_another_archive(tmp_path: Path) -> None:
    java, jars = tmp_path / "java", tmp_path / "jars"
    java.touch()
    jars.mkdir()
    first = class_archive("spark", str(java), jars)
    assert first.parent == user_cache_folder() / "classes"
    assert class_archive("spark", str(java), jars) == first
    os.utime(jars, (0, 0))
    second = class_archive("spark", str(java), jars)
    os.utime(java, (0, 0))
    third = class_archive("spark", str(java), jars)
    assert len({first, second, third, class_archive("tlc", str(java), jars)}) == 4
