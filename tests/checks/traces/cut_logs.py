"""Logs as the cleaner and retention leave them behind, and the seeds of tests that draw such logs."""

import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka_eos.formats.segment import StoredBatch, read_segment
from kafka_eos.formats.transaction_log import TOPIC, decode_key


def cut_logs(folder: Path, random: Random) -> None:
    """Take something from most logs of some brokers, and leave one replica of each partition.

    ``__transaction_state`` is compacted up to a drawn place. Another log loses all batches before a drawn place, or
    some of them.

    Args:
        folder: the folder of the brokers' log directories.
        random: draws the places.
    """
    for partition in _longest_replicas(folder):
        topic = partition.name.rpartition("-")[0]
        if topic != "__consumer_offsets":
            _cut(partition, random, is_state=topic == TOPIC)


def cut_ends(folder: Path, random: Random) -> None:
    """Take the last batches from most logs, as if each was copied at another moment, and leave one replica of each.

    Args:
        folder: the folder of the brokers' log directories.
        random: draws the places.
    """
    for partition in _longest_replicas(folder):
        segments = sorted(partition.glob("*.log"))
        found = [region for path in segments for region in read_segment(path) if isinstance(region, StoredBatch)]
        kept = found[: len(found) - random.randrange(len(found) // 3 + 1)]
        for path in segments[1:]:
            path.unlink()
        segments[0].write_bytes(b"".join(each.batch.encode() for each in kept))


def _longest_replicas(folder: Path) -> list[Path]:
    """The partitions' folders; of several replicas only the longest is left on the disk."""
    by_name: dict[str, list[Path]] = {}
    for partition in sorted(path for path in folder.glob("*/*-*") if path.is_dir()):
        by_name.setdefault(partition.name, []).append(partition)
    for replicas in by_name.values():
        longest = max(replicas, key=lambda each: sum(path.stat().st_size for path in each.glob("*.log")))
        for other in replicas:
            if other != longest:
                shutil.rmtree(other)
        replicas[:] = [longest]
    return [longest for _, (longest,) in sorted(by_name.items())]


def _cut(partition: Path, random: Random, *, is_state: bool) -> None:
    segments = sorted(partition.glob("*.log"))
    found = [region for path in segments for region in read_segment(path) if isinstance(region, StoredBatch)]
    place = random.randrange(len(found) + 1) if random.random() < 0.8 else 0
    first = 0
    if is_state:
        left = [*_compacted(found[:place]), *found[place:]]
    elif random.random() < 0.5:
        left = found[place:]
        first = left[0].batch.base_offset if left else max((each.batch.next_offset for each in found), default=0)
    else:
        left = [each for at, each in enumerate(found) if at >= place or random.random() < 0.7]
    for path in segments:
        path.unlink()
    (partition / f"{first:020d}.log").write_bytes(b"".join(each.batch.encode() for each in left))


def _compacted(found: list[StoredBatch]) -> list[StoredBatch]:
    """The batches with the last record of a transactional id; each batch of the recordings has records of one."""
    last = {decode_key(row.key or b"").transactional_id: at for at, s in enumerate(found) for row in s.batch.records()}
    return [found[at] for at in sorted(last.values())]


def seeds(first: int, every: int) -> list[Any]:
    """Seeds, of which those after the first few are for `make test-all`."""
    return [pytest.param(seed, marks=pytest.mark.thorough if seed >= first else ()) for seed in range(every)]
