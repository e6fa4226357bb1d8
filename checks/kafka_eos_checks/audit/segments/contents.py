"""The records of a log for the rules over histories: values by offset, and the markers that ended them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_eos.histories.history import Event
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    is_set,
    read_blocks,
    read_index,
)
from kafka_eos_checks.audit.segments.records import decode_block
from kafka_eos_checks.audit.segments.splits import PartitionLog

_ABORT, _COMMIT = b"\0\0", b"\0\1"  # the type in a control record's key, after its version

Place = tuple[str, int]  # topic, partition
Figures = dict[str, int | float | str]


def encoded(text: str) -> bytes:
    """The bytes of a value in a history. A lone surrogate, which JSON may have, is kept: no stored text equals it."""
    return text.encode("utf-8", "surrogatepass")


@dataclass(slots=True)
class Contents:
    """The records of one log.

    Attributes:
        start: the first offset of the log; None for a log without batches.
        end: one past the last offset.
        values: the values of all data records, by offset.
        hidden: offsets of records in aborted transactions, and in open ones.
        committed: by offset of a record in a transaction, the offset of the marker that committed it.
        aborted: by offset of a record in a transaction, the offset of the marker that aborted it.
        open: offsets of records whose transaction is open at the log's end.
        highest_abort: by producer id, the highest epoch of its ABORT markers.
        rewritten: producer ids with a marker that was written again.
        offsets: the offsets of each value, in ascending order.
        whole: whether it has every offset from 0 to its end.
        damaged_end: whether bytes that cannot be read follow the last batch.
        stamped_ms: the last timestamp of a broker, in milliseconds since the epoch; -1 for none.
        deleted_below: the offset below which records were deleted, see :meth:`moments.Source.deleted_below`.
    """

    start: int | None = None
    end: int = 0
    values: dict[int, bytes | None] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    committed: dict[int, int] = field(default_factory=dict)
    aborted: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    highest_abort: dict[int, int] = field(default_factory=dict)
    rewritten: set[int] = field(default_factory=set)
    offsets: dict[bytes | None, list[int]] = field(default_factory=lambda: defaultdict(list))
    whole: bool = True
    damaged_end: bool = False
    stamped_ms: int = -1
    deleted_below: int = 0


def read_contents(log: PartitionLog, check_crc: bool = True) -> Contents:
    """Read a log: its records, and which are hidden from committed readers."""
    contents = Contents()
    open_transactions: dict[int, list[int]] = {}
    marked: dict[int, int] = {}  # by producer id, the epoch of its last marker
    uncertain: set[int] = set()  # producers whose open transaction may have ended in a hole
    following: int | None = None
    for name in log.segments:
        path = log.file(name)
        for block in read_blocks(path, end=log.end_of(name), index=read_index(path), check_crc=check_crc):
            headers, records = block.headers, decode_block(block)
            contents.damaged_end = bool(headers.damage)
            contents.whole = contents.whole and not headers.damage and not records.damage
            if not len(headers):
                continue
            base = headers.column("base_offset")
            if contents.start is None:
                contents.start = int(base[0])
            contents.end = max(contents.end, int((base + headers.column("last_offset_delta")).max()) + 1)
            stamped = is_set(headers, CONTROL_MASK | TIMESTAMP_TYPE_MASK)
            stamps = headers.column("max_timestamp")[stamped]
            contents.stamped_ms = max(contents.stamped_ms, int(stamps.max(initial=-1)))
            control = is_set(headers, CONTROL_MASK)[records.batch].tolist()
            transactional = is_set(headers, TRANSACTIONAL_MASK)[records.batch].tolist()
            producers = headers.column("producer_id")[records.batch].tolist()
            epochs = headers.column("producer_epoch")[records.batch].tolist()
            columns = (records.offset.tolist(), producers, epochs, transactional, control)
            for offset, pid, epoch, in_transaction, is_marker, key, value in zip(
                *columns, records.keys(), records.values(), strict=True
            ):
                if offset != following:
                    contents.whole = contents.whole and following is None and offset == 0
                    uncertain.update(open_transactions)
                following = offset + 1
                if is_marker:
                    ended = open_transactions.pop(pid, [])
                    contents.rewritten.update([pid] if not ended and marked.get(pid) == epoch else ())
                    marked[pid] = epoch
                    aborts, commits = (key is not None and key[2:4] == kind for kind in (_ABORT, _COMMIT))
                    contents.hidden.update(ended if aborts else ())
                    if pid not in uncertain:
                        contents.aborted.update(dict.fromkeys(ended, offset) if aborts else {})
                        contents.committed.update(dict.fromkeys(ended, offset) if commits else {})
                    uncertain.discard(pid)
                    if aborts:
                        contents.highest_abort[pid] = max(epoch, contents.highest_abort.get(pid, -1))
                    continue
                if in_transaction:
                    open_transactions.setdefault(pid, []).append(offset)
                contents.values[offset] = value
                contents.offsets[value].append(offset)
    for pid, offsets in open_transactions.items():
        contents.hidden.update(offsets)
        contents.open.update(offsets if pid not in uncertain else ())
    return contents


Replicas = Mapping[Place, Sequence[tuple[PartitionLog, Contents]]]


def place_of(event: Event) -> Place | None:
    """The topic and partition of an event that has both."""
    return None if event.topic is None or event.partition is None else (event.topic, event.partition)


def longest(replicas: Replicas, place: Place) -> tuple[PartitionLog | None, Contents]:
    """The replica of a partition with the highest end; None and no records if no replica is given."""
    own: Sequence[tuple[PartitionLog | None, Contents]] = replicas.get(place, ())
    return max(own, key=lambda replica: replica[1].end, default=(None, Contents()))


def count(figures: Figures, name: str) -> None:
    """Add one to a figure."""
    figures[name] = int(figures.get(name, 0)) + 1
