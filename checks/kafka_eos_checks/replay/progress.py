"""Progress of long reading, on standard error, gone when it is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from kafka_eos_checks.terminal import progress_console

Advance = Callable[[int], None]


@contextmanager
def byte_progress(label: str, total: int) -> Iterator[Advance]:
    """A bar over ``total`` bytes; the value is a function that advances it."""
    columns = (TextColumn(label), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=progress_console, transient=True, disable=not progress_console.is_terminal
    ) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count: progress.advance(task, count)
