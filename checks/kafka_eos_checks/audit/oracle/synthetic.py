"""Synthetic logs, written as Kafka writes them, for tests and measurements that recordings cannot cover."""

import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from kafka_eos.formats.record_batch import (
    ControlRecord,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    build_control_batch,
)
from kafka_eos_checks.audit.rules.log import MARKER, NONE, SEQUENCE_MASK, TRANSACTIONAL, Batch

INDEX_INTERVAL_BYTES = 4096  # log.index.interval.bytes


def data_batch(batch: Batch, values: Iterable[bytes] = (), *, transactional: bool = False) -> RecordBatch:
    """A stored batch with the offsets, producer and sequences of ``batch``; a record per value, or per offset."""
    count = batch.last_offset - batch.base_offset + 1
    given = list(values) or [b"%d" % (batch.base_offset + i) for i in range(count)]
    return build_batch(
        [Record(offset_delta=i, timestamp_delta=i, value=value) for i, value in enumerate(given)],
        base_offset=batch.base_offset,
        base_timestamp=1_700_000_000_000,
        last_offset_delta=count - 1,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        is_transactional=transactional,
        partition_leader_epoch=batch.leader_epoch,
    )


def stored(batch: Batch) -> RecordBatch:
    """A stored batch or marker with the fields of ``batch``."""
    if not batch.unsequenced:
        return data_batch(batch, transactional=batch.kind == TRANSACTIONAL)
    marker = ControlRecord(control_type=ControlType.COMMIT, coordinator_epoch=0)
    made = build_control_batch(marker, producer_id=batch.producer_id, producer_epoch=batch.producer_epoch)
    return replace(made, base_offset=batch.base_offset, partition_leader_epoch=batch.leader_epoch)  # not in the CRC


def write_segment(path: Path, batches: Iterable[bytes], *, index: bool = True) -> list[int]:
    """Write encoded batches as a segment, with its sparse offset index; return the position of each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    positions, entries, since, position = [], [], 0, 0
    base = int(path.stem)
    with path.open("wb") as out:
        for data in batches:
            if since > INDEX_INTERVAL_BYTES:
                entries.append(struct.pack(">ii", int.from_bytes(data[:8], "big") - base, position))
                since = 0
            positions.append(position)
            position += out.write(data)
            since += len(data)
    if index:
        path.with_suffix(".index").write_bytes(b"".join(entries))
    return positions


def write_log(folder: Path, batches: Iterable[Batch], *, segment_batches: int = 1 << 30, index: bool = True) -> None:
    """Write a log of one or several segments, ``segment_batches`` batches in each."""
    pending: list[Batch] = []
    for batch in batches:
        pending.append(batch)
        if len(pending) == segment_batches:
            _write(folder, pending, index)
            pending = []
    if pending:
        _write(folder, pending, index)


def _write(folder: Path, batches: list[Batch], index: bool) -> None:
    path = folder / f"{batches[0].base_offset:020d}.log"
    write_segment(path, [stored(batch).encode() for batch in batches], index=index)


def faulty_log(
    seed: int, batches: int = 40, fault_rate: float = 0.15, first_offset: int = 0, *, transactions: bool = False
) -> list[Batch]:
    """A log of a few producers, in which some batches are wrong.

    Faults: a repeated batch, a missing sequence, overlapping sequences, an old epoch, offsets or leader epochs that go
    back. There are also holes in the offsets and sequences that wrap around, which are no faults. If some of the data
    is in transactions, one more fault is data outside of the transaction that its producer has open.
    """
    made = _faulty_log(random.Random(seed), batches, fault_rate, first_offset)
    made = _led(random.Random(f"leaders {seed}"), made, fault_rate)
    return list(_in_transactions(random.Random(f"transactions {seed}"), made, fault_rate) if transactions else made)


def _in_transactions(rng: random.Random, batches: Iterable[Batch], fault_rate: float) -> Iterator[Batch]:
    opened = set[int]()
    for batch in batches:
        if batch.kind == MARKER:
            opened.discard(batch.producer_id)
        elif not batch.unsequenced and rng.random() < (1 - fault_rate / 2 if batch.producer_id in opened else 0.3):
            opened.add(batch.producer_id)
            yield batch._replace(kind=TRANSACTIONAL)
            continue
        yield batch


def _led(rng: random.Random, batches: Iterable[Batch], fault_rate: float) -> Iterator[Batch]:
    epoch = rng.choice((-1, 0, 3))
    for batch in batches:
        epoch += epoch >= 0 and rng.random() < 0.05
        wrong = rng.choice((-2, -1, 1)) if epoch >= 0 and rng.random() < fault_rate / 5 else 0
        yield batch._replace(leader_epoch=max(epoch + wrong, -1))


def _faulty_log(rng: random.Random, batches: int, fault_rate: float, offset: int) -> Iterator[Batch]:
    epochs = dict.fromkeys(range(rng.randint(1, 4)), 0)
    sequences = dict.fromkeys(epochs, SEQUENCE_MASK - 7 if rng.random() < 0.1 else 0)
    for position in range(batches):
        pid, count = rng.choice(list(epochs)), rng.randint(1, 5)
        fault = rng.random() < fault_rate
        kind = rng.choice(("data", "data", "data", "marker", "raise", "none"))
        if fault and rng.random() < 0.3:
            offset = max(0, offset + rng.choice((-7, -1, 3, 9)))
        epoch = epochs[pid] - (fault and rng.random() < 0.3)
        if kind in {"marker", "raise"}:
            count = 1
            if kind == "raise":
                epochs[pid], sequences[pid] = epochs[pid] + 1, 0
                epoch = epochs[pid]
            yield Batch(position, offset, offset, pid, max(epoch, 0), NONE, SEQUENCE_MASK, True, MARKER)
        elif kind == "none":
            yield Batch(position, offset, offset + count - 1, -1, -1, NONE, count - 2, True)
        else:
            if rng.random() < 0.1:
                epochs[pid], sequences[pid] = epochs[pid] + 1, 0
                epoch = epochs[pid]
            shift = rng.choice((-6, -3, -1, 1, 4)) if fault and rng.random() < 0.6 else 0
            base = (sequences[pid] + shift) & SEQUENCE_MASK
            last = (base + count - 1) & SEQUENCE_MASK
            yield Batch(position, offset, offset + count - 1, pid, max(epoch, 0), base, last, False)
            sequences[pid] = (last + 1) & SEQUENCE_MASK
        offset += count
