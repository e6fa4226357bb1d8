from collections.abc import Sequence
from typing import Any

import numpy as np

from kafka_eos_checks.audit.internal_topics.states import COLUMNS, States, decode_states
from kafka_eos_checks.audit.segments.records import PADDING, Records

Pair = tuple[bytes | None, bytes | None]  # key and value


def records_of(pairs: Sequence[Pair]) -> Records:
    """Records with these keys and values, one after the other in one buffer."""
    parts = [part for pair in pairs for part in pair]
    size = np.array([-1 if part is None else len(part) for part in parts], np.int64)
    start = np.cumsum(np.maximum(size, 0)) - np.maximum(size, 0)
    count = len(pairs)
    data = b"".join(part or b"" for part in parts)
    nothing = np.zeros(count, np.int64)
    return Records(
        buffer=np.frombuffer(data + PADDING, np.uint8),
        batch=nothing,
        offset=np.arange(count),
        timestamp=nothing,
        key_start=start[::2],
        key_size=size[::2],
        value_start=start[1::2],
        value_size=size[1::2],
        header_count=nothing,
    )


def states_of(given_pairs: Sequence[Pair]) -> States:
    """The records of a coordinator's log with these keys and values that can be read."""
    columns, readable, found = decode_states(records_of(given_pairs))
    count = len(given_pairs)
    placed: dict[str, Any] = {
        name: np.arange(count, dtype=np.int64) for name in COLUMNS[: COLUMNS.index("transactional_id")]
    }
    return States(**placed, **columns, **found).take(readable)
