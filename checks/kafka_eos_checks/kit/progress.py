"""Progress of long work, on standard error, gone when it is done; nothing where that is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from kafka_eos_checks.kit.terminal import progress_console

Advance = Callable[[int], None]


def byte_progress(label: str, total: int) -> AbstractContextManager[Advance]:
    """A bar over ``total`` bytes; the value is a function that advances it."""
    return _bar(label, total, DownloadColumn(), TransferSpeedColumn())


def count_progress(label: str, total: int) -> AbstractContextManager[Advance]:
    """A bar over ``total`` things; the value is a function that advances it."""
    return _bar(label, total, MofNCompleteColumn())


@contextmanager
def _bar(label: str, total: int, *columns: ProgressColumn) -> Iterator[Advance]:
    shown = (TextColumn(label), BarColumn(), *columns, TimeElapsedColumn())
    quiet = not progress_console.is_terminal
    with Progress(*shown, console=progress_console, transient=True, disable=quiet) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count: progress.advance(task, count)
