"""Archives of the classes that a Java program loads (class data sharing), which make its start quicker by a third.

One run writes the archive when it ends; later runs use it. Java writes the header last, so an archive without one is
not whole: its run goes on, or was killed.
"""

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path
from time import time

from kafka_eos_checks.kit.paths import user_cache_folder

WRITING_SECONDS = 600  # an archive that is empty for longer is written by the next run
FREE_BYTES = 1 << 30  # on the disk of an archive: a program that cannot write its archive to the end ends with an error


def class_archive(name: str, java: str, classes: Path) -> Path:
    """The archive of a program's classes, by this Java and these classes: with others Java would not use it.

    Args:
        name: the program's name.
        java: the program ``java``.
        classes: the jar of the classes, or the folder of the jars.
    """
    program = Path(java).resolve()
    made_by = f"{program} {program.stat().st_mtime_ns} {classes} {classes.stat().st_mtime_ns}"
    return user_cache_folder() / "classes" / f"{name}-{hashlib.sha256(made_by.encode()).hexdigest()[:16]}.jsa"


def sharing_options(archive: Path, *, write: bool, at_once: bool = False) -> list[str]:
    """Java's options for a quick start: those that use the archive, or write it when the run ends.

    Args:
        archive: of :func:`class_archive`.
        write: whether this run may write it, if there is none and no other run is about to.
        at_once: whether the first run writes it. Otherwise it only leaves an empty file, and a run that comes later
            writes: this takes a large program some seconds, in vain on a machine that runs it once.
    """
    quiet = ["-Xlog:disable"]  # Java's log would tell on the standard output that it cannot use an archive
    try:
        with archive.open("rb") as file:
            if any(file.read(4)):
                return [*quiet, f"-XX:SharedArchiveFile={archive}"]
        is_due = time() - archive.stat().st_mtime > WRITING_SECONDS
        is_new = False
    except OSError:
        is_due, is_new = at_once, True
    if not write or not (is_due or is_new):
        return quiet
    with suppress(OSError):  # without an archive Java only starts more slowly
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.touch()
        if is_due and shutil.disk_usage(archive.parent).free > FREE_BYTES:
            return [*quiet, f"-XX:ArchiveClassesAtExit={archive}"]
    return quiet
