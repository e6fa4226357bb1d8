"""The places of the project's own files: in a clone, or those that the wheel carries."""

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

_PACKAGE = Path(__file__).resolve().parents[1]
CLONE = _PACKAGE.parent.parent


_unpacked: list[TemporaryDirectory[str]] = []  # kept until the process ends


def package_folder() -> Path:
    """The folder of this package, with its files; an unpacked copy if the package is in a zip, as Spark may have it."""
    return _PACKAGE if _PACKAGE.is_dir() else _unpack(_PACKAGE)


@cache
def _unpack(package: Path) -> Path:
    archive = next(parent for parent in package.parents if parent.is_file())
    _unpacked.append(TemporaryDirectory(prefix="kafka-eos-"))
    with ZipFile(archive) as zipped:
        zipped.extractall(_unpacked[-1].name)
    return Path(_unpacked[-1].name) / package.relative_to(archive)


def is_clone() -> bool:
    """Whether this package is that of a clone, and not installed from a wheel."""
    return (CLONE / "pom.xml").is_file() and (CLONE / "spec" / "models").is_dir()


def spec_folder() -> Path:
    """The folder of the TLA+ modules; the wheel carries all of them."""
    return CLONE / "spec" if is_clone() else package_folder() / "spec"


def recordings_folder() -> Path:
    """The folder of the kept recordings; the wheel carries the small ones."""
    return CLONE / "checks" / "recordings" if is_clone() else package_folder() / "recordings"


def pom_file() -> Path:
    """The file by which Maven fetches the jars."""
    return CLONE / "pom.xml" if is_clone() else package_folder() / "pom.xml"


def build_folder() -> Path:
    """The folder of what commands fetch, keep and find again: ``build/`` of the clone, else of the current folder."""
    return (CLONE if is_clone() else Path.cwd()) / "build"


def user_cache_folder() -> Path:
    """The folder of what only saves time: the user's cache, or ``build/`` in a clone and for a user without a home."""
    with suppress(RuntimeError):  # the user has no home
        if not is_clone():
            return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "kafka-eos"
    return build_folder()


def output_folder() -> Path:
    """The folder of pages and pictures: ``build/`` of the clone for a call inside of it, else of the current folder."""
    return build_folder() if Path.cwd().is_relative_to(CLONE) else Path.cwd() / "build"
