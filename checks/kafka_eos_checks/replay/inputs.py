"""What a person points the audit at: log directories, recordings packed or not, histories."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kafka_eos_checks.record.recording import UnsafeArchive, unpacked
from kafka_eos_checks.replay.history_files import SUFFIXES, is_history
from kafka_eos_checks.replay.jepsen import HISTORY, is_jepsen
from kafka_eos_checks.replay.splits import PartitionLog, find_logs


class UnusableInput(ValueError):  # noqa: N818 - named for the input
    """Something that is neither logs nor a history; says what and the remedy."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was found.

    Attributes:
        logs: the replicas of partitions, each audited for itself.
        histories: files of events, see :mod:`history_files`.
        operations: histories of Jepsen's, see :mod:`jepsen`.
    """

    logs: tuple[PartitionLog, ...]
    histories: tuple[Path, ...]
    operations: tuple[Path, ...] = ()


@contextmanager
def open_inputs(paths: Sequence[Path], histories: Sequence[Path] = ()) -> Iterator[Inputs]:
    """Recognise each path; packed recordings are unpacked for as long as the block lasts.

    Args:
        paths: a broker's log directory, a folder of several, a partition's folder, a recording (``brokers/`` and
            ``histories/``, as a folder or a ``.tar.xz``), a history (``.jsonl``, or ``.parquet``, a file or a
            folder of files), or one of Jepsen's (``.edn``, or a folder of its store with ``history.edn``).
        histories: more histories.

    Raises:
        UnusableInput: a path that is none of these.
        NotALogDirectory: a folder without partitions.
        OSError: a path that cannot be read.
    """
    folders: list[Path] = []
    found: list[Path] = []
    operations: list[Path] = []
    with ExitStack() as stack:
        for path in paths:
            if is_history(path):
                found.append(path)
                continue
            if is_jepsen(path) or (path / HISTORY).is_file():
                operations.append(path if is_jepsen(path) else path / HISTORY)
                continue
            folder = stack.enter_context(_unpacked(path)) if path.is_file() else path
            folders.append(folder / "brokers" if (folder / "brokers").is_dir() else folder)
            if (folder / "manifest.json").is_file():
                found += sorted(path for path in (folder / "histories").glob("*") if is_history(path))
        found += (path for path in histories if not is_jepsen(path))
        operations += (path for path in histories if is_jepsen(path))
        missing = [str(path) for path in found if not (is_history(path) and path.exists())]
        if missing:
            raise UnusableInput(f"{', '.join(missing)}: no such history; give a file *{' or *'.join(SUFFIXES)}")
        yield Inputs(tuple(find_logs(*folders)), tuple(found), tuple(operations))


@contextmanager
def _unpacked(archive: Path) -> Iterator[Path]:
    if not archive.name.endswith(".tar.xz"):
        raise UnusableInput(
            f"{archive}: neither a directory, a history (.jsonl, .parquet, .edn) nor a recording (.tar.xz)"
        )
    try:
        with unpacked(archive) as folder:
            yield folder
    except UnsafeArchive as error:
        raise UnusableInput(str(error)) from None
