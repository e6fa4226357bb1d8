"""Memory settings of a process: freed memory and imported modules are kept, so that no task pays for them again.

A chunk's arrays have half a megabyte each. By default glibc maps such memory anew for every array, or gives it back as
soon as it is free, and the kernel clears each page that is touched again: half of the time of an audit, measured.

A worker of Spark collects garbage after every task, and looks at each object of each module that it has imported: a
third of the CPU time of an audit, measured.
"""

import ctypes
import functools
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc: malloc.h
KEPT_BYTES = 256 << 20  # free memory at the heap's end that is not given back
HEAP_BYTES = 32 << 20  # the largest array that comes from the heap; glibc allows no more


@functools.cache
def keep_freed_memory() -> bool:
    """Let this process keep memory that becomes free; whether its allocator can be told (glibc's can)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, HEAP_BYTES)) and bool(mallopt(M_TRIM_THRESHOLD, KEPT_BYTES))


def keep_modules() -> None:
    """Let this process's garbage collector pass over everything that there is now, if modules were imported."""
    _keep(len(sys.modules))


@functools.cache
def _keep(_modules: int) -> None:
    gc.collect()
    gc.freeze()


@contextmanager
def without_collections() -> Iterator[None]:
    """Let the garbage collector rest, where many objects are made and none of them refers to itself."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
