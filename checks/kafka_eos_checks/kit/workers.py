"""Worker processes that end with the process that has started them, however that ends."""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.pool import Pool
from threading import Thread
from typing import TypeVar

left_behind: set[str] = set()  # in a worker: folders to remove if its parent is killed

Item = TypeVar("Item")
Result = TypeVar("Result")


def worker_pool(jobs: int, begin: Callable[[], None] | None = None) -> Pool:
    """Worker processes, spawned without this one's state.

    Args:
        jobs: the number of workers.
        begin: called once in each, if anything is to be set there.
    """
    return multiprocessing.get_context("spawn").Pool(jobs, initializer=_begin, initargs=(begin,))


def worker_executor(jobs: int, *modules: str) -> ProcessPoolExecutor:
    """Workers for tasks that wait for each other, forked from a process that has no state of this one.

    A task whose worker was killed raises ``BrokenProcessPool``. See :func:`forked_from` for an earlier start.

    Args:
        jobs: the number of workers.
        modules: names of modules that this process imports, if it has not started yet.
    """
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload(list(modules))
    return ProcessPoolExecutor(jobs, mp_context=forked, initializer=_begin, initargs=(None,))


@contextmanager
def forked_from(*modules: str) -> Iterator[None]:
    """Fork workers, as long as the block lasts, from a process that begins to import modules now.

    Args:
        modules: names of modules; one that is not installed is left out.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(modules))
    forkserver.ensure_running()
    try:
        yield
    finally:
        forkserver._forkserver._stop()  # type: ignore[attr-defined]


def each_done(
    function: Callable[[Item], Result], items: Sequence[Item], jobs: int, chunksize: int = 1
) -> Iterator[Result]:
    """A function's result for each item, as it is done: in this process for one job, else in workers."""
    if jobs == 1 or not items:
        yield from map(function, items)
        return
    with worker_pool(jobs) as pool:
        yield from pool.imap_unordered(function, items, chunksize=chunksize)


def _begin(begin: Callable[[], None] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the pool
    Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    for folder in tuple(left_behind):
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)
