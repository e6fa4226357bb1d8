"""What control batches say: the decision and the coordinator that sent it."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.kernels.headers import (
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    Block,
    Headers,
    is_set,
    read_blocks,
    read_index,
)
from kafka_eos_checks.audit.kernels.records import decode_block


class Mark(NamedTuple):
    """The record of a marker; both None for one that the cleaner has emptied.

    Attributes:
        decision: COMMIT or ABORT.
        coordinator_epoch: of the coordinator that sent it.
    """

    decision: ControlType | None
    coordinator_epoch: int | None


Marks = dict[int, Mark]  # by the marker's row among the headers


def read_marked_segment(segment: Path, *, check_crc: bool = True) -> Iterator[tuple[Headers, Marks]]:
    """The headers of a segment, a block at a time, and what its markers say.

    Raises:
        OSError: the segment cannot be read, or it changes meanwhile.
    """
    for block in read_blocks(segment, index=read_index(segment), check_crc=check_crc):
        headers = block.headers
        if not len(headers):
            yield headers, {}
            continue
        yield headers, marks_of(block)


def marks_of(block: Block) -> Marks:
    """What the markers of a block say."""
    headers = block.headers
    markers = decode_block(block, is_set(headers, TRANSACTIONAL_MASK) & is_set(headers, CONTROL_MASK))
    said = zip(markers.batch.tolist(), markers.keys(), markers.values(), strict=True)
    return {row: Mark(decision_of(key), _coordinator_epoch(value)) for row, key, value in said}


def decision_of(key: bytes | None) -> ControlType | None:
    """The type in a control record's key, after its version."""
    return control_type(int.from_bytes(key[2:4], "big")) if key and len(key) >= 4 else None


def control_type(number: int) -> ControlType | None:
    """The decision with this number; None for types that partitions of topics do not have."""
    return ControlType(number) if number in (ControlType.ABORT, ControlType.COMMIT) else None


def _coordinator_epoch(value: bytes | None) -> int | None:
    """The coordinator's epoch in a control record's value, after its version."""
    return int.from_bytes(value[2:6], "big", signed=True) if value and len(value) >= 6 else None
