"""Generated logs of idempotent producers in Kafka's format. The same seed gives the same bytes.

Producers take turns at random, the sequences of each are consecutive, and now and then a producer starts a new epoch.
Faults are planted where each gives exactly one finding of its rule. There are neither transactions nor gaps in the
offsets.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from kafka_eos_checks.audit.rules.log import DUPLICATE, GAP, STALE_EPOCH
from kafka_eos_checks.audit.segments.headers import Ints
from kafka_eos_checks.lab.generate.batches import (
    FIRST_PRODUCER,
    FIRST_TIMESTAMP,
    NO_LEADER_EPOCH,
    Batches,
    Values,
    columns_of,
)
from kafka_eos_checks.lab.generate.log_files import SEGMENT_BYTES, LogFiles
from kafka_eos_checks.lab.generate.violations import candidates, planted_in, with_wrong_sequences


def clean_batches(
    seed: int, count: int, *, largest: int = 3, smallest: int = 1, producers: int = 50, epoch_batches: int = 500
) -> Batches:
    """A log without a fault.

    Args:
        seed: the same seed gives the same log.
        count: number of batches.
        largest: number of records in the largest batch.
        smallest: number of records in the smallest batch.
        producers: number of producers, with the ids from :data:`FIRST_PRODUCER`.
        epoch_batches: number of batches after which a producer starts its next epoch.
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
    return columns_of(
        Batches,
        count,
        base_offset=_offsets(record_count),
        record_count=record_count,
        producer_id=producer + FIRST_PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        timestamp=FIRST_TIMESTAMP,
        leader_epoch=NO_LEADER_EPOCH,
    )


def _offsets(record_count: Ints) -> Ints:
    offsets: Ints = np.cumsum(record_count) - record_count
    return offsets


Planted = tuple[str, int]  # a rule, and the base offset of the batch that violates it


def plant(batches: Batches, seed: int, faults: int) -> tuple[Batches, list[Planted]]:
    """The same log with ``faults`` duplicates, as many gaps and as many batches of a stale epoch, and their places.

    A gap is a batch left out. A duplicate is a batch that occurs twice. A stale batch is a copy with the epoch before.

    Raises:
        ValueError: the log is too short for so many.
    """
    rows, following = candidates(batches, batches.producer_id >= 0)
    if len(rows) < 3 * faults:
        raise ValueError(f"{len(batches)} batches have room for {len(rows) // 3} faults of each kind, not {faults}")
    chosen = np.random.default_rng(seed).permutation(rows)
    parts = np.split(chosen[: 3 * faults], 3)
    made = with_wrong_sequences(batches, dict(zip((GAP, DUPLICATE, STALE_EPOCH), parts, strict=True)), following)
    made = replace(made, base_offset=_offsets(made.record_count))
    return made, [(row["rule"], row["offset"]) for row in planted_in(made, "", 0)]


def write(
    folder: Path,
    batches: Batches,
    value_bytes: int,
    seed: int,
    *,
    as_tables: bool = False,
    segment_bytes: int = SEGMENT_BYTES,
) -> LogFiles:
    """Write a log with its offset indexes.

    Args:
        folder: the partition's folder.
        batches: the batches of the log.
        value_bytes: size of the random value of each record.
        seed: seed of the values.
        as_tables: whether to write tables of headers instead of segments.
        segment_bytes: size at which a new segment starts.
    """
    log = LogFiles(folder, Values(value_bytes, seed), as_tables=as_tables, segment_bytes=segment_bytes)
    log.append(batches)
    log.close()
    return log
