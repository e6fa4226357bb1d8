"""Made logs in Kafka's format, many batches at once: the same seed gives the same bytes.

Producers take turns at random, their sequences follow one another, and now and then one begins a new epoch. Faults are
planted where each gives exactly one finding of its rule. There are neither transactions nor holes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from google_crc32c import value as crc32c
from numpy.typing import NDArray

from kafka_eos.formats.record_batch import CHECKED_FROM, HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, Record, encode_records
from kafka_eos_checks.audit.kernels.headers import HEADER, Bytes, Ints
from kafka_eos_checks.audit.rules.log import DUPLICATE, GAP, STALE_EPOCH
from kafka_eos_checks.audit.synthetic import write_segment

FIRST_TIMESTAMP = 1_700_000_000_000  # ms since the epoch, of every batch
SPACING = 8  # batches of a producer; one in so many may be faulty, so that no fault hides another
SLICE = 65_536  # batches that are encoded at once, which bounds the memory


@dataclass(frozen=True, slots=True)
class Batches:
    """Consecutive batches of one log; every column has shape (n,)."""

    base_offset: Ints
    record_count: Ints
    producer_id: Ints
    producer_epoch: Ints
    base_sequence: Ints

    def __len__(self) -> int:
        return len(self.base_offset)

    @property
    def last_offset(self) -> Ints:
        """Offset of the last record."""
        return self.base_offset + self.record_count - 1

    @property
    def last_sequence(self) -> Ints:
        """Sequence of the last record; a generated log never reaches 2^31."""
        return self.base_sequence + self.record_count - 1

    def take(self, which: Ints | slice) -> "Batches":
        """Some of the batches."""
        return Batches(*(getattr(self, column.name)[which] for column in fields(self)))


def clean_batches(
    seed: int, count: int, *, largest: int = 3, smallest: int = 1, producers: int = 50, epoch_batches: int = 500
) -> Batches:
    """A log without a fault.

    Args:
        seed: the same gives the same.
        count: how many batches.
        largest: records of the largest batch.
        smallest: records of the smallest.
        producers: how many producers write it, with the ids 1000 and up.
        epoch_batches: after so many batches a producer begins its next epoch.
    """
    rng = np.random.default_rng(seed)
    record_count = rng.integers(smallest, largest, count, endpoint=True)
    producer = rng.integers(0, producers, count)
    order = np.argsort(producer, kind="stable")
    sorted_producer = producer[order]
    number = np.arange(count) - np.searchsorted(sorted_producer, sorted_producer)  # among the producer's own batches
    records_before = np.cumsum(record_count[order]) - record_count[order]
    epoch_begin = np.maximum.accumulate(np.where(number % epoch_batches == 0, records_before, 0))
    epoch, sequence = np.empty(count, np.int64), np.empty(count, np.int64)
    epoch[order] = number // epoch_batches
    sequence[order] = records_before - epoch_begin
    return Batches(_offsets(record_count), record_count, producer + 1000, epoch, sequence)


def _offsets(record_count: Ints) -> Ints:
    offsets: Ints = np.cumsum(record_count) - record_count
    return offsets


Planted = tuple[str, int]  # a rule, and the base offset of the batch that violates it


def plant(batches: Batches, seed: int, faults: int) -> tuple[Batches, list[Planted]]:
    """The same log with ``faults`` duplicates, as many gaps and as many batches of a stale epoch, and where they are.

    A gap is a batch left out, a duplicate a batch twice, a stale batch a copy with the epoch before.

    Raises:
        ValueError: the log is too short for so many.
    """
    rng = np.random.default_rng(seed)
    order = np.argsort(batches.producer_id, kind="stable")
    pid, epoch = batches.producer_id[order], batches.producer_epoch[order]
    same = (pid[1:] == pid[:-1]) & (epoch[1:] == epoch[:-1])
    inner = np.zeros(len(batches), np.bool_)
    inner[1:-1] = same[1:] & same[:-1]
    spaced = np.arange(len(batches)) % SPACING == SPACING // 2
    candidates = order[inner & spaced & (epoch >= 1)]
    if len(candidates) < 3 * faults:
        raise ValueError(
            f"{len(batches)} batches have room for {len(candidates) // 3} faults of each kind, not {faults}"
        )
    gaps, duplicates, stale = np.split(rng.permutation(candidates)[: 3 * faults], 3)
    times = np.ones(len(batches), np.int64)
    times[gaps] = 0
    times[duplicates] = times[stale] = 2
    place = np.repeat(np.arange(len(batches)), times)
    second = np.concatenate(([False], place[1:] == place[:-1]))
    found = batches.take(place)
    is_stale = second & np.isin(place, stale)
    made = replace(found, base_offset=_offsets(found.record_count), producer_epoch=found.producer_epoch - is_stale)
    following = np.empty(len(batches), np.int64)  # the next batch of the same producer
    following[order[:-1]] = order[1:]
    shown = {
        DUPLICATE: second & np.isin(place, duplicates),
        GAP: ~second & np.isin(place, following[gaps]),
        STALE_EPOCH: is_stale,
    }
    planted = [(rule, offset) for rule, where in shown.items() for offset in made.base_offset[where].tolist()]
    return made, sorted(planted, key=lambda found: found[1])


def encode(batches: Batches, value_bytes: int, seed: int) -> Iterator[bytes]:
    """The bytes of each batch: records without key, with random values of ``value_bytes`` bytes."""
    rng = np.random.default_rng(seed)
    for start in range(0, len(batches), SLICE):
        part = batches.take(slice(start, start + SLICE))
        encoded: list[bytes] = [b""] * len(part)
        for count in np.unique(part.record_count).tolist():
            where = np.flatnonzero(part.record_count == count)
            rows = _rows(part.take(where), count, value_bytes, rng)
            size, data = rows.shape[1], rows.tobytes()
            for number, place in enumerate(where.tolist()):
                encoded[place] = data[number * size : (number + 1) * size]
        yield from encoded


def _rows(batches: Batches, count: int, value_bytes: int, rng: np.random.Generator) -> Bytes:
    """Batches of ``count`` records, shape (number of batches, bytes of one)."""
    payload, values = _payload(count, value_bytes)
    rows = np.empty((len(batches), HEADER_BYTES + len(payload)), np.uint8)
    rows[:, HEADER_BYTES:] = np.frombuffer(payload, np.uint8)
    for begin in values:
        at = HEADER_BYTES + begin
        rows[:, at : at + value_bytes] = rng.integers(0, 256, (len(batches), value_bytes), np.uint8)
    header = np.zeros(len(batches), HEADER)
    header["batch_length"] = rows.shape[1] - LOG_OVERHEAD_BYTES
    header["magic"] = MAGIC
    header["leader_epoch"] = -1
    header["last_offset_delta"] = count - 1
    header["base_timestamp"] = FIRST_TIMESTAMP
    header["max_timestamp"] = FIRST_TIMESTAMP + count - 1
    for name in ("base_offset", "producer_id", "producer_epoch", "base_sequence", "record_count"):
        header[name] = getattr(batches, name)
    rows[:, :HEADER_BYTES] = _bytes(header)
    header["crc"] = [crc32c(row.tobytes()) for row in rows[:, CHECKED_FROM:]]
    rows[:, :HEADER_BYTES] = _bytes(header)
    return rows


def _bytes(header: NDArray[np.void]) -> Bytes:
    return header.view(np.uint8).reshape(len(header), HEADER_BYTES)


def _payload(count: int, value_bytes: int) -> tuple[bytes, list[int]]:
    """The records of a batch with empty bytes for values, and where the values begin."""
    parts = [
        encode_records([Record(offset_delta=i, timestamp_delta=i, value=bytes(value_bytes))]) for i in range(count)
    ]
    ends = np.cumsum([len(part) for part in parts]).tolist()
    return b"".join(parts), [end - 1 - value_bytes for end in ends]  # the count of headers, 0, is the last byte


def write(folder: Path, batches: Batches, value_bytes: int, seed: int) -> Path:
    """Write a log of one segment with its offset index; returns the segment."""
    segment = folder / f"{0:020d}.log"
    write_segment(segment, encode(batches, value_bytes, seed))
    return segment
