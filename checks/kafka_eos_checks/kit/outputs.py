"""Files that a command writes when its work is done: checked before the work begins, and again when they fail."""

import errno
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeGuard

# Of a log directory and a recording; nobody asks for verdicts in a file of such a name.
_READ_SUFFIXES = {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".metadata", ".properties", ".xz", ".edn"}
_READ_NAMES = (".headers.parquet", "history.jsonl", "manifest.json")
_READ_FOLDER = "histories"


class Unwritable(OSError):  # noqa: N818 - named for the file
    """A file for results that cannot be written; the message names it, the reason and the remedy."""


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[Any] = ()) -> None:
    """Refuse outputs that are one file, or a file of the input, before the work whose results they are for.

    Args:
        outputs: by the option that names it; None for an option that was not given.
        inputs: the paths that are read. A text that is no path of this machine is left alone.

    Raises:
        Unwritable: see there.
    """
    places: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None or not (path.is_file() or not path.exists()):  # a device or a pipe loses nothing
            continue
        place = path.resolve()
        if place in places:
            raise Unwritable(f"{path} is named by {places[place]} and {option}; give two files")
        places[place] = option
        for given in inputs:
            if _is_read(place, Path(str(given)).resolve()):
                raise Unwritable(f"{option} {path} would overwrite a file of the input; give another file")


def _is_read(place: Path, given: Path) -> bool:
    """Whether a file is an input, or of a folder that is one, with the name of a file that is read there."""
    if place == given:
        return True
    if given not in place.parents or not place.exists():
        return False
    # A checkpoint of a broker has no suffix.
    named = place.suffix in {"", *_READ_SUFFIXES} or place.name.endswith(_READ_NAMES)
    return named or place.parent.name == _READ_FOLDER


def make_folder(folder: Path) -> None:
    """Make a folder for results.

    Raises:
        Unwritable: see there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unwritable(_no_folder(folder, error)) from error


def write_text(path: Path, text: str) -> None:
    """Write a file of results, and the folder it stands in.

    Raises:
        Unwritable: see there.
    """
    make_folder(path.parent)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Unwritable(unwritten(path, error)) from error


def _no_folder(folder: Path, error: OSError) -> str:
    return f"{folder} cannot be made: {error.strerror or error}; give another folder"


def check_output(path: Path, *, makes_folder: bool = False) -> None:
    """Refuse a file that cannot be written, before the work whose results it is for.

    No folder is made here. A file that exists keeps its content.

    Args:
        path: the file.
        makes_folder: whether :func:`make_folder` makes its folder after the work; otherwise a folder that is missing
            is refused, because it may be a typing error.

    Raises:
        Unwritable: see there.
    """
    if makes_folder and not path.parent.exists():
        there = next(folder for folder in path.absolute().parents if folder.exists())
        try:
            with TemporaryFile(dir=there):
                return
        except OSError as error:
            raise Unwritable(_no_folder(path.parent, error)) from error
    if not path.parent.is_dir():
        raise Unwritable(f"{path} cannot be written: there is no folder {path.parent}; make it, or give another file")
    if path.is_dir():
        raise Unwritable(f"{path} cannot be written: it is a folder; give a file")
    is_new = not path.exists()
    try:
        if is_new or path.is_file():  # a pipe's reader would take a file that is closed for the end
            path.open("ab").close()
        if is_new:
            path.resolve().unlink()  # of a link, the file that it names
    except OSError as error:
        raise Unwritable(unwritten(path, error)) from error


def is_full(error: Exception) -> TypeGuard[OSError]:
    """Whether the disk, or its quota, has no room for what was written."""
    return isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}


def unwritten(path: Path, error: OSError) -> str:
    """The message about a file that could not be written."""
    return f"{path} cannot be written: {error.strerror or error}; give another file, or see to its disk and rights"


@contextmanager
def whole_or_nothing(path: Path) -> Iterator[Path]:
    """Give the block a file to write, which takes the place of the path's when the block has ended.

    Until then, whatever ends the program, the path keeps what it had, because its reader would take a part for the
    whole. A device, a pipe, and a file in a folder that takes no other are written themselves.

    Raises:
        Unwritable: it could not be written to its end.
    """
    place = path.resolve()  # a link stays one
    is_pipe = path.exists() and not path.is_file()  # or a device; /dev/stdout of a pipe resolves to no file
    is_direct = is_pipe or not os.access(place.parent, os.W_OK)
    part = path if is_direct else place.with_name(f"{place.stem}.part{path.suffix}")  # of the format of the path
    try:
        yield part
        if not is_direct:
            if place.exists():
                shutil.copymode(place, part)
            part.replace(place)
    except BaseException as error:
        if not is_direct:
            with suppress(OSError):
                part.unlink()
        if not isinstance(error, OSError):
            raise
        why = error.__cause__ if isinstance(error, Unwritable) else error
        raise Unwritable(unwritten(path, why if isinstance(why, OSError) else error)) from error
