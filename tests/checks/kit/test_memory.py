"""Memory that arrays leave is kept for later chunks, and modules are not searched for garbage after each task."""

import gc
import platform
import subprocess
import sys

import pytest

from kafka_eos_checks.kit.memory import without_collections

FAULTS = """
import resource
import numpy as np
from kafka_eos_checks.kit.memory import keep_freed_memory

KEEP = {keep}
assert not KEEP or keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    arrays = [np.ones(1 << 16, np.int64) + number for number in range(20)]
    del arrays
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> int:
    code = FAULTS.format(keep=keep)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator can be told")
def test_arrays_of_later_chunks_take_the_pages_of_earlier_ones() -> None:
    assert 10 * faults(keep=True) < faults(keep=False)


OBJECTS = """
import gc
import pyarrow.parquet
from kafka_eos_checks.kit.memory import keep_modules

before = len(gc.get_objects())
keep_modules()
print(before, len(gc.get_objects()))
import unittest.mock
more = len(gc.get_objects())
keep_modules()
print(more, len(gc.get_objects()))
"""


def test_the_garbage_collector_skips_imported_modules() -> None:
    done = subprocess.run([sys.executable, "-c", OBJECTS], capture_output=True, text=True, check=True, timeout=60)
    before, after, more, at_last = map(int, done.stdout.split())
    assert 100 * after < before
    assert 10 * at_last < more, "also those that were imported later"


def test_the_garbage_collector_rests_until_the_outermost_block_has_ended() -> None:
    assert gc.isenabled()
    with without_collections():
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
