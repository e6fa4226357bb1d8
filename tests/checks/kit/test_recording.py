import argparse
import io
import lzma
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from kafka_eos_checks.kit import paths, recording
from kafka_eos_checks.kit.missing import MissingClone
from kafka_eos_checks.kit.recording import (
    UnsafeArchive,
    given_path,
    kept_recording,
    kept_recordings,
    manifest_of,
    pack,
    unpack,
    unpacked,
)


def a_recording(folder: Path) -> Path:
    (folder / "histories").mkdir(parents=True)
    (folder / "brokers" / "1" / "topic-0").mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    (folder / "histories" / "run.jsonl").write_text('{"run":"r"}\n')
    (folder / "brokers" / "1" / "topic-0" / "00000000000000000000.log").write_bytes(bytes(range(256)))
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def an_archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:xz") as tar:
        for member, content in members:
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def a_file(name: str, content: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), content


def a_link(kind: bytes, target: str) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo("link")
    member.type, member.linkname = kind, target
    return member, b""


def test_a_packed_recording_is_unpacked_unchanged(tmp_path: Path) -> None:
    folder = a_recording(tmp_path / "in")
    size = pack(folder, tmp_path / "packed" / "r.tar.xz")
    unpack(tmp_path / "packed" / "r.tar.xz", tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(folder)
    assert size == (tmp_path / "packed" / "r.tar.xz").stat().st_size


def test_an_unpacked_recording_is_there_only_as_long_as_it_is_used(tmp_path: Path) -> None:
    folder = a_recording(tmp_path / "in")
    pack(folder, tmp_path / "r.tar.xz")
    with unpacked(tmp_path / "r.tar.xz") as found:
        assert files_of(found) == files_of(folder)
    assert not found.parent.exists()


def test_equal_folders_make_equal_archives(tmp_path: Path) -> None:
    for name, mode in (("a", 0o644), ("b", 0o600)):
        folder = a_recording(tmp_path / name)
        (folder / "manifest.json").chmod(mode)
        pack(folder, tmp_path / f"{name}.tar.xz")
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()


def test_a_folder_without_manifest_is_not_packed(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchive, match=r"no manifest\.json"):
        pack(tmp_path, tmp_path / "r.tar.xz")


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../outside", "brokers/../../outside", "C:evil", "brokers\\..\\outside"]
)
def test_a_member_that_would_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    archive = an_archive(tmp_path / "r.tar.xz", a_file("manifest.json", b"{}"), a_file(name))
    with pytest.raises(UnsafeArchive, match="outside of the folder"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_link_or_device_is_refused(tmp_path: Path, kind: bytes) -> None:
    archive = an_archive(tmp_path / "r.tar.xz", a_file("manifest.json", b"{}"), a_link(kind, "/etc/passwd"))
    with pytest.raises(UnsafeArchive, match="no plain file"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tarfile.TarInfo("d")
    folder.type = tarfile.DIRTYPE
    files = a_file("manifest.json", b"{}"), a_file("big", bytes(5_000))
    archive = an_archive(tmp_path / "r.tar.xz", (folder, b""), *files)
    monkeypatch.setattr(recording, "UNPACKED_LIMIT", 5_001)
    with pytest.raises(UnsafeArchive, match="more than"):
        unpack(archive, tmp_path / "out")
    monkeypatch.setattr(recording, "UNPACKED_LIMIT", 5_002)
    unpack(archive, tmp_path / "out")


EXTENSIONS = [
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
]


def a_bomb(path: Path, kind: bytes, size: int) -> Path:
    """An archive of one header, whose content ``tarfile`` would read as a whole."""
    header = tarfile.TarInfo("manifest.json")
    header.type, header.size = kind, size
    path.write_bytes(lzma.compress(header.tobuf(tarfile.USTAR_FORMAT) + b"a" * size, preset=0))
    return path


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_a_header_that_says_to_be_as_large_as_memory_is_refused_unread(tmp_path: Path, kind: bytes) -> None:
    archive = a_bomb(tmp_path / "r.tar.xz", kind, 8 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(UnsafeArchive, match=r"r\.tar\.xz: .*extension of pax or GNU tar.*--format=ustar"):
            unpack(archive, tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert not (tmp_path / "out").exists()


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchive, match="extension of pax or GNU tar"):
        unpack(a_bomb(tmp_path / "r.tar.xz", tarfile.GNUTYPE_SPARSE, 512), tmp_path / "out")


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_a_header_that_is_read_at_once_also_counts_against_the_limit(
    tmp_path: Path, kind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_EXTENSIONS", set())
    monkeypatch.setattr(recording, "_PLAIN", {kind})
    monkeypatch.setattr(recording, "UNPACKED_LIMIT", 1 << 20)
    monkeypatch.setattr(recording, "FILES_LIMIT", 10)
    archive = a_bomb(tmp_path / "r.tar.xz", kind, 8 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(UnsafeArchive, match=r"r\.tar\.xz: more than 10 files or 1 MiB; .* give the folder"):
            unpack(archive, tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()


def test_an_archive_whose_dictionary_takes_too_much_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "r.tar.xz"
    pack(a_recording(tmp_path / "in"), archive)
    monkeypatch.setattr(recording, "_DICTIONARY_LIMIT", 60 << 20)
    with pytest.raises(UnsafeArchive, match=r"can be read .*[Mm]emory"):
        unpack(archive, tmp_path / "out")


def test_a_handmade_archive_is_opened_or_refused_with_the_way_to_make_it(tmp_path: Path) -> None:
    folder = a_recording(tmp_path / "in")
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT):
        with tarfile.open(tmp_path / "hand.tar.xz", "w:xz", format=form) as tar:
            tar.add(folder, ".")
        unpack(tmp_path / "hand.tar.xz", tmp_path / f"out-{form}")
        assert files_of(tmp_path / f"out-{form}") == files_of(folder)
    os.utime(folder / "manifest.json", (1.5, 1.5))  # a part of a second is an extension of pax
    with tarfile.open(tmp_path / "hand.tar.xz", "w:xz", format=tarfile.PAX_FORMAT) as tar:
        tar.add(folder, ".")
    with pytest.raises(UnsafeArchive, match="--format=ustar"):
        unpack(tmp_path / "hand.tar.xz", tmp_path / "out")
    with tarfile.open(tmp_path / "hand.tar.xz", "w:xz", format=tarfile.USTAR_FORMAT) as tar:
        tar.add(folder, "recording")
    with pytest.raises(UnsafeArchive, match=r"no manifest\.json at its top"):
        unpack(tmp_path / "hand.tar.xz", tmp_path / "out")


def test_an_archive_of_too_many_folders_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tarfile.TarInfo("d")
    folder.type = tarfile.DIRTYPE
    archive = an_archive(tmp_path / "r.tar.xz", a_file("manifest.json"), *[(folder, b"")] * 5)
    monkeypatch.setattr(recording, "FILES_LIMIT", 5)
    with pytest.raises(UnsafeArchive, match="more than 5 files"):
        unpack(archive, tmp_path / "out")


def test_an_archive_of_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = an_archive(tmp_path / "r.tar.xz", a_file("manifest.json"), *(a_file(f"f{n}") for n in range(5)))
    monkeypatch.setattr(recording, "FILES_LIMIT", 5)
    with pytest.raises(UnsafeArchive, match="more than 5 files or 256 MiB; "):
        unpack(archive, tmp_path / "out")


def test_an_archive_without_manifest_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchive, match="no recording"):
        unpack(an_archive(tmp_path / "r.tar.xz", a_file("other")), tmp_path / "out")


@pytest.mark.parametrize("damage", ["cut off", "overwritten", "empty"])
def test_a_damaged_archive_leaves_nothing_behind(tmp_path: Path, damage: str) -> None:
    archive = tmp_path / "r.tar.xz"
    pack(a_recording(tmp_path / "in"), archive)
    whole = archive.read_bytes()
    middle = len(whole) // 2
    spoiled = {"cut off": whole[:middle], "overwritten": whole[:middle] + bytes(8) + whole[middle + 8 :], "empty": b""}
    archive.write_bytes(spoiled[damage])
    with pytest.raises(UnsafeArchive):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_is_unpacked_over_other_files(tmp_path: Path) -> None:
    pack(a_recording(tmp_path / "in"), tmp_path / "r.tar.xz")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("kept")
    with pytest.raises(UnsafeArchive, match="not empty"):
        unpack(tmp_path / "r.tar.xz", tmp_path / "out")
    assert files_of(tmp_path / "out") == {"mine": b"kept"}


def test_an_example_is_the_kept_recording_of_its_name_and_any_other_path_stays_as_it_is() -> None:
    assert given_path("example:violations") == str(kept_recording("violations"))
    assert kept_recording("violations").is_file()
    for path in ("violations", "logs/example:violations", "hdfs://name/copies", "../r.tar.xz"):
        assert given_path(path) == path


def test_an_unknown_example_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"; did you mean violations\?$"):
        given_path("example:violation")
    with pytest.raises(argparse.ArgumentTypeError, match=r"^expected one of example:application-mistakes, [^;]*$"):
        given_path("example:nothing-like-it")


def test_a_recording_that_the_wheel_leaves_out_is_in_a_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "violations.tar.xz").touch()
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path)
    monkeypatch.setattr(paths, "CLONE", tmp_path / "no-clone")
    assert [path.name for path in kept_recordings()] == ["violations.tar.xz"]
    with pytest.raises(MissingClone, match="needs the recording one-broker"):
        kept_recording("one-broker")
    with pytest.raises(argparse.ArgumentTypeError, match="a clone of the repository has more"):
        given_path("example:one-broker")


def test_the_kept_recordings_are_small_and_whole(tmp_path: Path) -> None:
    archives = kept_recordings()
    assert archives
    assert sum(archive.stat().st_size for archive in archives) < 1_100_000
    for archive in archives:
        unpack(archive, tmp_path / archive.name)
        assert list((tmp_path / archive.name / "histories").glob("*.jsonl"))
        assert list((tmp_path / archive.name / "brokers").glob("*/*/*.log"))


def test_the_manifest_is_read_out_of_the_archive(tmp_path: Path) -> None:
    folder = tarfile.TarInfo("manifest.json")
    folder.type = tarfile.DIRTYPE
    found = an_archive(tmp_path / "r.tar.xz", (folder, b""), a_file("r/x"), a_file("r/manifest.json", b'{"seed": 7}'))
    assert manifest_of(found) == {"seed": 7}
    with pytest.raises(UnsafeArchive, match=r"no manifest\.json, so no recording"):
        manifest_of(an_archive(tmp_path / "none.tar.xz", (folder, b""), a_file("manifest.json.old", b"{}")))
