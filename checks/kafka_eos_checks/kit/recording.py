"""A recording: a folder with a manifest, histories and log directories, and the archive that keeps it.

Layout of the folder, and of the archive::

    manifest.json                        scenarios, seed, versions, features, settings, the command that made it
    histories/<scenario>.jsonl           kafka_eos.histories.history.Event, one run per file
    brokers/<node>/<topic>-<partition>/  the broker's own files
    brokers/<node>/meta.properties
"""

import argparse
import io
import json
import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Self

from kafka_eos_checks.kit.missing import need_clone
from kafka_eos_checks.kit.nearest import did_you_mean
from kafka_eos_checks.kit.paths import is_clone, recordings_folder

EXAMPLE = "example:"
EXAMPLES = (
    *("application-mistakes", "late-offsets", "no-leader", "operator-mistakes", "replicated-violations", "violations"),
)
_SUFFIX = ".tar.xz"
UNPACKED_LIMIT = 256 << 20  # bytes of all files together
FILES_LIMIT = 20_000  # and folders
_DICTIONARY_LIMIT = 128 << 20  # bytes of memory; xz -9 takes half of it
_READ_BYTES = 64 << 10
_PLAIN = {tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE}
_EXTENSIONS = {
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.GNUTYPE_SPARSE,
}


class UnsafeArchive(ValueError):  # noqa: N818 - named for the archive
    """An archive that is no recording, or would write more than it may or outside of its folder."""


def kept_recordings() -> list[Path]:
    """The archives kept in the repository, by name; in an installed wheel those that it carries."""
    return sorted(recordings_folder().glob(f"*{_SUFFIX}"))


def example_recordings() -> list[Path]:
    """The small archives, which the wheel carries, too."""
    return [kept_recording(name) for name in EXAMPLES]


def manifest_of(archive: Path) -> dict[str, Any]:
    """The manifest of a kept archive.

    Raises:
        UnsafeArchive: when it has none.
    """
    with tarfile.open(archive, "r|xz") as members:
        for member in members:
            if member.isfile() and PurePosixPath(member.name).name == "manifest.json":
                file = members.extractfile(member)
                assert file is not None
                found: dict[str, Any] = json.loads(file.read())
                return found
    raise UnsafeArchive(f"{archive}: no manifest.json, so no recording")


def kept_recording(name: str) -> Path:
    """The archive of one kept recording.

    Raises:
        MissingClone: when the wheel does not carry it.
    """
    archive = recordings_folder() / f"{name}{_SUFFIX}"
    if not archive.is_file():
        need_clone(f"the recording {name}")
    return archive


def given_path(text: str) -> str:
    """The path that a command is given: ``example:NAME`` is the kept recording of that name.

    Raises:
        argparse.ArgumentTypeError: when there is no such recording here.
    """
    if not text.startswith(EXAMPLE):
        return text
    name = text.removeprefix(EXAMPLE)
    known = {path.name.removesuffix(_SUFFIX): path for path in kept_recordings()}
    if name not in known:
        more = "" if is_clone() else "; a clone of the repository has more"
        there = ", ".join(f"{EXAMPLE}{each}" for each in known)
        raise argparse.ArgumentTypeError(f"expected one of {there}{more}{did_you_mean(name, known)}")
    return str(known[name])


def as_given(path: str) -> str:
    """The spelling of a path in a command: ``example:NAME`` for a kept recording, which :func:`given_path` takes.

    One that begins with ``-`` has ``./`` before it, which ``Path`` leaves out: otherwise it would be an option.
    """
    kept = {str(each): each.name.removesuffix(_SUFFIX) for each in kept_recordings()}
    return f"{EXAMPLE}{kept[path]}" if path in kept else f"./{path}" if path.startswith("-") else path


def pack(folder: Path, archive: Path) -> int:
    """Pack a recording's folder; returns the archive's size in bytes.

    Equal folders make equal archives: names are sorted, and owners and times are left out.

    Raises:
        UnsafeArchive: when the folder is no recording.
    """
    if not (folder / "manifest.json").is_file():
        raise UnsafeArchive(f"{folder} has no manifest.json; give the folder that `kafka-eos lab record` wrote")

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = ""
        member.mode = 0o644
        return member

    archive.parent.mkdir(parents=True, exist_ok=True)
    with (
        lzma.open(archive, "wb", preset=9 | lzma.PRESET_EXTREME) as out,
        tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            tar.add(path, path.relative_to(folder).as_posix(), filter=anonymous)
    return archive.stat().st_size


class _Refused(ValueError):  # noqa: N818 - never leaves this module
    """A member that no recording has; says what it is."""


class _Member(tarfile.TarInfo):
    """A member that is refused by its header, before anything of its content is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """The member of a header of 512 bytes."""
        member = super().frombuf(buf, encoding, errors)
        if member.type in _EXTENSIONS:
            raise _Refused(
                f"member {member.name!r} is an extension of pax or GNU tar; give the folder, or pack it with "
                "tar --format=ustar"
            )
        if member.type not in _PLAIN:
            raise _Refused(f"member {member.name!r} is no plain file")
        return member


class _Unpacked(io.RawIOBase):
    """The bytes of an ``.xz`` file for ``tarfile``, as many as a recording may have."""

    def __init__(self, compressed: BinaryIO) -> None:
        self._compressed = compressed
        self._decoder = lzma.LZMADecompressor(memlimit=_DICTIONARY_LIMIT)
        self._left = UNPACKED_LIMIT + FILES_LIMIT * 2 * tarfile.BLOCKSIZE  # a header, and a block that is not full

    def read(self, size: int = -1, /) -> bytes:
        """Up to ``size`` bytes; none at the end."""
        found = b""
        while not found and not self._decoder.eof:
            more = self._compressed.read(_READ_BYTES) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not more:
                raise EOFError("it ends too early")
            found = self._decoder.decompress(more, size)
        self._left -= len(found)
        if self._left < 0:
            raise _too_much()
        return found


def _too_much() -> _Refused:
    limits = f"more than {FILES_LIMIT} files or {UNPACKED_LIMIT >> 20} MiB"
    return _Refused(f"{limits}; if you trust it, unpack it with tar and give the folder")


def _checked_name(member: tarfile.TarInfo) -> PurePosixPath:
    """The member's name when it stays below the target."""
    name = PurePosixPath(member.name)
    inside = bool(name.parts) or member.isdir()  # a folder that was packed as `.` is the target
    if name.is_absolute() or ".." in name.parts or not inside or "\\" in member.name or ":" in member.name:
        raise _Refused(f"member {member.name!r} would be written outside of the folder")
    return name


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a recording into a folder that does not exist yet, or is empty.

    Memory is bounded, whatever the archive's headers say: xz has its dictionary, and nothing else is kept.

    Raises:
        UnsafeArchive: when the archive is damaged, holds anything but plain files and folders under relative names, or
            extensions of pax or GNU tar, or unpacks to more than ``UNPACKED_LIMIT`` bytes or
            ``FILES_LIMIT`` files and folders; the folder is removed again.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UnsafeArchive(f"{folder} is not empty; unpack {archive.name} into a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _extract(archive, folder)
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        shutil.rmtree(folder)
        raise UnsafeArchive(f"{archive}: no .tar.xz that can be read ({error})") from None
    except _Refused as error:
        shutil.rmtree(folder)
        raise UnsafeArchive(f"{archive}: {error}") from None


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """A recording in a temporary folder, which is removed at the end.

    Raises:
        UnsafeArchive: when the archive is no recording.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-eos-") as temporary:
        folder = Path(temporary, "recording")
        unpack(archive, folder)
        yield folder


def _extract(archive: Path, folder: Path) -> None:
    members = total = 0
    with (
        archive.open("rb") as compressed,
        tarfile.open(fileobj=_Unpacked(compressed), mode="r|", tarinfo=_Member) as tar,
    ):
        for member in tar:
            name = _checked_name(member)
            members += 1
            total += 0 if member.isdir() else member.size
            if members > FILES_LIMIT or total > UNPACKED_LIMIT:
                raise _too_much()
            if member.isdir():
                continue
            source = tar.extractfile(member)
            assert source is not None, "a plain file has content"
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                shutil.copyfileobj(source, out)
    if not (folder / "manifest.json").is_file():
        raise _Refused("no manifest.json at its top, so no recording; packed log directories have to be unpacked")
