"""A recording: a folder with a manifest, histories and log directories, and the archive that keeps it.

Layout of the folder, and of the archive::

    manifest.json                        scenarios, seed, versions, features, settings, the command that made it
    histories/<scenario>.jsonl           kafka_eos.history.Event, one run per file
    brokers/<node>/<topic>-<partition>/  the broker's own files
    brokers/<node>/meta.properties
"""

import lzma
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from kafka_eos_checks.paths import CLONE

UNPACKED_LIMIT = 256 << 20  # bytes of all files together
FILES_LIMIT = 20_000


class UnsafeArchive(ValueError):  # noqa: N818 - named for the archive
    """An archive that is no recording, or would write what or where it must not."""


def kept_recordings() -> list[Path]:
    """The archives kept in the repository, by name."""
    return sorted((CLONE / "checks" / "recordings").glob("*.tar.xz"))


def kept_recording(name: str) -> Path:
    """The archive of one kept recording."""
    return CLONE / "checks" / "recordings" / f"{name}.tar.xz"


def pack(folder: Path, archive: Path) -> int:
    """Pack a recording's folder; returns the archive's size in bytes.

    Equal folders make equal archives: names are sorted, and owners and times are left out.

    Raises:
        UnsafeArchive: when the folder is no recording.
    """
    if not (folder / "manifest.json").is_file():
        raise UnsafeArchive(f"{folder} has no manifest.json; give the folder that `kafka-eos record` wrote")

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


def _checked_name(archive: Path, member: tarfile.TarInfo) -> PurePosixPath:
    """The member's name when it stays below the target."""
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts or not name.parts or "\\" in member.name or ":" in member.name:
        raise UnsafeArchive(f"{archive}: member {member.name!r} would be written outside of the folder")
    return name


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a recording into a folder that does not exist yet, or is empty.

    Raises:
        UnsafeArchive: when the archive is damaged, holds anything but plain files under relative names, or unpacks to
            more than ``UNPACKED_LIMIT`` bytes or ``FILES_LIMIT`` files; the folder is removed again.
    """
    if folder.exists() and any(folder.iterdir()):
        raise UnsafeArchive(f"{folder} is not empty; unpack {archive.name} into a folder of its own")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        _extract(archive, folder)
    except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
        shutil.rmtree(folder)
        raise UnsafeArchive(f"{archive}: no whole .tar.xz ({error})") from None
    except UnsafeArchive:
        shutil.rmtree(folder)
        raise


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """A recording in a temporary folder, for the time being.

    Raises:
        UnsafeArchive: when the archive is no recording.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-eos-") as temporary:
        folder = Path(temporary, "recording")
        unpack(archive, folder)
        yield folder


def _extract(archive: Path, folder: Path) -> None:
    files = total = 0
    with tarfile.open(archive, "r|xz") as tar:
        for member in tar:
            name = _checked_name(archive, member)
            if member.isdir():
                continue
            if not member.isreg():
                raise UnsafeArchive(f"{archive}: member {member.name!r} is no plain file")
            files += 1
            total += member.size
            if files > FILES_LIMIT or total > UNPACKED_LIMIT:
                raise UnsafeArchive(f"{archive}: more than {FILES_LIMIT} files or {UNPACKED_LIMIT >> 20} MiB")
            source = tar.extractfile(member)
            assert source is not None, "a plain file has content"
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                shutil.copyfileobj(source, out)
    if not (folder / "manifest.json").is_file():
        raise UnsafeArchive(f"{archive}: no manifest.json, so no recording")
