"""Progress of long work on standard error: a bar that is gone at the end, or lines where that is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
Show = Callable[[int, int], None]


@contextmanager
def byte_progress(label: str, total: int) -> Iterator[Advance]:
    """A bar over ``total`` bytes; the value is a function that advances it."""
    with _bar(label, 1_000_000, " MB", DownloadColumn(), TransferSpeedColumn()) as show:
        yield _advancing(show, total)


@contextmanager
def count_progress(label: str, total: int) -> Iterator[Advance]:
    """A bar over ``total`` things; the value is a function that advances it."""
    with part_progress(label) as show:
        yield _advancing(show, total)


@contextmanager
def part_progress(label: str, noun: str = "") -> Iterator[Show]:
    """A bar over things whose number may change; the value is a function of how many are done, and of how many."""
    with _bar(label, 1, f" {noun}".rstrip(), MofNCompleteColumn(), TextColumn(noun)) as show:
        yield show


def _advancing(show: Show, total: int) -> Advance:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        show(done, total)

    show(0, total)
    return advance


@contextmanager
def _bar(label: str, unit: int, noun: str, *columns: ProgressColumn) -> Iterator[Show]:
    if progress_console.is_terminal:
        shown = (TextColumn(label, markup=False), BarColumn(), *columns, TimeElapsedColumn())
        with Progress(*shown, console=progress_console, transient=True) as progress:
            task = progress.add_task(label, total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)
    else:
        with progress_console.status(label) as status:
            yield lambda done, total: status.update(f"{label}: {done // unit:,} of {total // unit:,}{noun}")
