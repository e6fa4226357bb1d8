"""The part of a broker's state that a client can read back, in the machines' terms.

A field is a line of text, the same for both sides: :func:`expected` takes it from the machines, ``stage`` from the
broker's answers to DescribeTransactions, ListTransactions, Fetch, ListOffsets, DescribeProducers and OffsetFetch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from kafka_eos.errors import ErrorCode
from kafka_eos.machines.spec_mapping import camel_case
from kafka_eos.machines.transaction_coordinator import DEAD
from kafka_eos.machines.transactional_partition import ABORT, COMMIT, NO_PRODUCER, LogEntry
from kafka_eos_checks.conform.visible import CONSUMER, DATA, Visible

LOG, WATERMARK, STABLE, LATEST_COMMITTED = "log", "high watermark", "last stable offset", "latest committed offset"
MEMBERS = "members of the group"
COMMITTED, PRODUCERS, OFFSET = "given to read_committed", "producers at the leader", "offset of the group"
LATER, TIMED = "given to read_committed from later offsets", "read_committed offsets of timestamps"
ALL_OFFSETS, PLAIN_OFFSET = "offset of the group among all", "offset of the group without requireStable"
NOTHING = "nothing"
NO_OFFSET = "-1"
AS_IN_LOG = "as in the log, below the last stable offset"
_ASKED_BY = {
    **dict.fromkeys((LOG, WATERMARK), "Fetch, read_uncommitted"),
    **dict.fromkeys((STABLE, COMMITTED, LATER), "Fetch, read_committed"),
    **dict.fromkeys((LATEST_COMMITTED, TIMED), "ListOffsets, read_committed"),
    PRODUCERS: "DescribeProducers",
    MEMBERS: "ConsumerGroupDescribe",
    **dict.fromkeys((OFFSET, ALL_OFFSETS), "OffsetFetch, requireStable"),
    PLAIN_OFFSET: "OffsetFetch",
}
LATER_STARTS = 3
"""The number of offsets besides the first from which a read_committed reader begins: those of the last batches."""


def asked_by(what: str) -> str:
    """The requests that read a field back; "" for an answer."""
    if what.startswith(coordinator_field("")):
        return "DescribeTransactions"
    if what.startswith(listed_field("")):
        return "ListTransactions"
    return _ASKED_BY.get(what, "")


def coordinator_field(name: str) -> str:
    """The field for what DescribeTransactions says of a transactional.id."""
    return f"coordinator of {name}"


def listed_field(name: str) -> str:
    """The field for what ListTransactions says of it."""
    return f"listed state of {name}"


def producer_line(producer: object, epoch: int, last_sequence: int, first_offset: int) -> str:
    """A producer at its leader."""
    opened = f"open since {first_offset}" if first_offset >= 0 else "nothing open"
    return f"producer {producer} epoch {epoch} last sequence {last_sequence} {opened}"


def entry_line(offset: int, kind: str, producer: object, epoch: int, sequence: int) -> str:
    """A batch or marker in the log."""
    number = f" sequence {sequence}" if sequence >= 0 else ""
    return f"{offset} {kind} of producer {producer} epoch {epoch}{number}"


def later_line(batches: Sequence[int], given: Callable[[int], str]) -> str:
    """The batches that readers of committed data are given from each of the last batches on, except the first batch.

    Args:
        batches: the offsets of all batches and markers.
        given: what it is given from an offset on.
    """
    return joined(f"from {start}: {given(start)}" for start in batches[1:][-LATER_STARTS:])


def coordinator_line(state: str, producer: object, epoch: int, partitions: Iterable[str]) -> str:
    """A transactional.id at its coordinator."""
    return f"{state}, producer {producer} epoch {epoch}, {'+'.join(sorted(partitions)) or NOTHING} in it"


def members_line(epoch: int, members: Mapping[str, tuple[int, bool]]) -> str:
    """A group's epoch, and of each member its own and whether it has the partition, be it to give it up."""
    said = (
        f"{name} in epoch {own} with {'the partition' if has else NOTHING}"
        for name, (own, has) in sorted(members.items())
    )
    return joined([f"epoch {epoch}", *said])


def repeats(entries: Iterable[tuple[str, object, int]]) -> int:
    """The number of markers right after the same marker, of a log's entries: their kind, producer and epoch."""
    return sum(one == other and one[0] in {COMMIT, ABORT} for one, other in pairwise(entries))


def joined(lines: Iterable[str]) -> str:
    """Several lines as one."""
    return "; ".join(lines) or NOTHING


def _entry(entry: LogEntry, sequences: Mapping[int, int]) -> str:
    return entry_line(entry.offset, entry.kind, entry.producer_id, entry.epoch, sequences.get(entry.offset, -1))


def has_members(state: Visible) -> bool:
    """Whether the group is one of KIP-848 that has had members."""
    return state.broker.constants.group_protocol == CONSUMER and state.broker.is_known()


def expected(state: Visible, *, with_offset: bool = True) -> dict[str, str]:
    """The fields as the machines have them; the group's offset only if it is asked for."""
    leader = state.data
    fields: dict[str, str] = {}
    for name, known in sorted(state.coordinators.items()):
        if known.state is DEAD:
            fields[coordinator_field(name)] = fields[listed_field(name)] = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND.name
            continue
        said = camel_case(known.state.name.lower(), capital=True)
        fields[coordinator_field(name)] = coordinator_line(said, known.producer_id, known.epoch, known.partitions)
        fields[listed_field(name)] = said
    sequences = {batch.offset: batch.sequence for batch in leader.state.log.entries}
    fields[LOG] = joined(_entry(entry, sequences) for entry in leader.entries)
    fields[WATERMARK] = str(leader.end)
    fields[STABLE] = fields[LATEST_COMMITTED] = str(leader.last_stable_offset)
    committed = leader.read_committed()
    fields[COMMITTED] = joined(str(entry.offset) for entry in committed)
    fields[LATER] = later_line(
        [entry.offset for entry in leader.entries],
        lambda start: joined(str(entry.offset) for entry in committed if entry.offset >= start),
    )
    fields[TIMED] = AS_IN_LOG
    fields[PRODUCERS] = joined(
        sorted(
            producer_line(producer_id, known.epoch, leader.state.last_sequence(producer_id), known.first_offset)
            for producer_id, known in leader.state.transactions.producers.items()
            if known != NO_PRODUCER
        )
    )
    error = state.group.offset_fetch_error(DATA)
    if has_members(state):
        group = state.broker.membership
        members = {name: group.members[name] for name in state.group.members()}
        fields[MEMBERS] = members_line(
            group.epoch, {name: (each.epoch, DATA in each.assigned | each.revoking) for name, each in members.items()}
        )
    if with_offset:
        offset = str(state.group.committed[DATA])
        fields[OFFSET] = error.name if error is not ErrorCode.NONE else offset
        fields[ALL_OFFSETS] = fields[OFFSET] if state.group.committed[DATA] >= 0 else NO_OFFSET
        fields[PLAIN_OFFSET] = offset
    return fields
