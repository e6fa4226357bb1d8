"""The replicas of a partition by digests: where those of a block of offsets are equal, its batches are equal.

The scan sums up the batches of each block of offsets (:func:`digest`), so that replicas are compared without reading
them again. Blocks that differ are read again, and the rule of :mod:`kafka_eos_checks.audit.rules.beside` compares their
batches. Two differences in a block cancel each other with a probability of 1 to 2 ** 64.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kafka_eos_checks.audit.rules.beside import REPLICA_COLUMNS, REPLICAS, Beside, compare_replicas
from kafka_eos_checks.audit.segments.headers import Headers, read_index
from kafka_eos_checks.audit.segments.reading import read_headers
from kafka_eos_checks.audit.segments.splits import PartitionLog

BLOCK_BITS = 16  # a block is 2 ** BLOCK_BITS consecutive offsets
BLOCK = np.dtype([("block", np.int64), ("batches", np.int64), ("digest", np.uint64)])
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Digest(NamedTuple):
    """The digest of a chunk.

    Attributes:
        segment: the segment's file name.
        start: first byte of the chunk in its segment.
        end: first byte after it.
        blocks: the blocks of its batches, dtype :data:`BLOCK`, ascending.
    """

    segment: str
    start: int
    end: int
    blocks: NDArray[np.void]


def digest(segment: str, start: int, headers: Headers) -> Digest:
    """The digest of a chunk, by the columns that the rule compares."""
    mixed = np.zeros(len(headers), np.uint64)
    for name in REPLICA_COLUMNS:
        mixed = (mixed ^ headers.column(name).astype(np.uint64)) * _MIX
        mixed ^= mixed >> np.uint64(29)
    blocks = np.zeros(len(headers), BLOCK)
    blocks["block"], blocks["batches"], blocks["digest"] = headers.column("base_offset") >> BLOCK_BITS, 1, mixed
    return Digest(segment, start, headers.end, _summed(blocks))


def _summed(rows: NDArray[np.void]) -> NDArray[np.void]:
    """A row for each block, with the sums of its rows."""
    numbers, of = np.unique(rows["block"], return_inverse=True)
    blocks = np.zeros(len(numbers), BLOCK)
    blocks["block"] = numbers
    for name in ("batches", "digest"):
        np.add.at(blocks[name], of, rows[name])
    return blocks


def compare_digests(
    first: PartitionLog,
    others: Sequence[PartitionLog],
    result: Beside,
    *,
    digests: Mapping[PartitionLog, Sequence[Digest]],
    whole: Collection[PartitionLog],
) -> None:
    """Compare replicas as :func:`compare_replicas` does, and read only chunks with blocks that differ.

    Args:
        first: a replica.
        others: the replicas to compare with it.
        result: takes the findings and figures.
        digests: of all chunks of each log.
        whole: logs that have to be read: with damage, or with offsets that go backwards.
    """
    if not {first, *others}.isdisjoint(whole):
        compare_replicas(first, others, result)
        return
    known, *found = (
        _summed(np.concatenate([np.zeros(0, BLOCK), *(each.blocks for each in digests.get(log, ()))]))
        for log in (first, *others)
    )
    differ = np.unique(np.concatenate([np.zeros(0, np.int64), *(_differing(known, own) for own in found)]))
    chosen = {
        log: [each for each in digests.get(log, ()) if np.isin(each.blocks["block"], differ).any()]
        for log in (first, *others)
    }
    equal = sum(int(own["batches"].sum()) for own in found)
    equal -= sum(int(each.blocks["batches"].sum()) for log in others for each in chosen[log])
    result.count(REPLICAS, "batches", equal)
    if len(differ):
        compare_replicas(first, others, result, lambda log: _read(log, chosen[log]))


def _differing(known: NDArray[np.void], own: NDArray[np.void]) -> NDArray[np.int64]:
    """The blocks that both replicas have, with different batches."""
    blocks, here, there = np.intersect1d(known["block"], own["block"], assume_unique=True, return_indices=True)
    same = [known[name][here] == own[name][there] for name in ("batches", "digest")]
    differing: NDArray[np.int64] = blocks[~np.all(same, axis=0)]
    return differing


def _read(log: PartitionLog, chunks: Sequence[Digest]) -> Iterator[tuple[str, Headers]]:
    for each in chunks:
        path, index = log.file(each.segment), read_index(log.file(each.segment))
        for headers in read_headers(path, each.start, each.end, index=index, check_crc=False, columns=REPLICA_COLUMNS):
            yield each.segment, headers
