"""Recorded partitions as traces of TransactionalPartition: a leader must accept every batch and every marker.

Each producer of a partition is a trace of its own, because the leader judges a batch only by the state of its producer.
It refuses data of an older epoch, a marker of an older epoch or coordinator, a batch outside the open transaction, and
in version 2 a marker that does not raise the epoch of an open transaction. The transaction version of a producer is
read from the coordinator's log.

Kafka: ProducerAppendInfo (appendDataBatch, appendEndTxnMarker)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from kafka_eos.formats.record_batch import ControlType
from kafka_eos.machines.consumer import Constants, Consumer
from kafka_eos.machines.transactional_partition import (
    PLAIN,
    TRANSACTIONAL,
    LeaderLog,
    LogEntry,
    PartitionRules,
    UnstableTransaction,
)
from kafka_eos_checks.audit.rules.coordinator import PREPARED
from kafka_eos_checks.models.registry import Model
from kafka_eos_checks.tla.values import format_value
from kafka_eos_checks.traces.coordinators import MAX_EPOCH, Recorded
from kafka_eos_checks.traces.markers import WrittenBatch, WrittenMarker
from kafka_eos_checks.traces.transitions import version_of
from kafka_eos_checks.traces.validation import Candidate, Trace, TraceStep


class LeaderOfTraces(Consumer):
    """The partition of a trace. It keeps only the producer's state, which is all that the checks of an entry read.

    The checks do not depend on the log's entries, its index and the transactions that wait for replication. With these
    each step would be slower than the one before; without them the same few states occur again and again.
    """

    __slots__ = ()

    def with_entry(self, before: LeaderLog, entry: LogEntry) -> LeaderLog:
        """The log's producers after an entry."""
        return replace(PartitionRules.with_entry(self, before, entry), entries=before.entries)

    def is_indexed(self, marker: LogEntry) -> bool:  # noqa: ARG002 - the same for each marker
        """Whether a transaction is in the index of aborted ones: no, for any marker."""
        return False

    def with_completed(self, before: LeaderLog, marker: LogEntry, first_offset: int) -> LeaderLog:
        """The log without the transaction that has ended, as if the marker were replicated."""
        ended = UnstableTransaction(producer_id=marker.producer_id, first_offset=first_offset)
        return replace(before, transactions=before.transactions - {ended})


JUDGED_BY = (
    "leaders are judged by the epochs, transactions and markers of each producer that ended a transaction in the given "
    "logs of coordinators; sequences, offsets and all other producers are for `kafka-eos audit`"
)
PRODUCER = 0  # the spec's name for the only producer of a trace

Entry = WrittenBatch | WrittenMarker


def versions(recorded: Recorded) -> dict[int, int]:
    """The lowest transaction version in which a transaction of each producer id ended; other producers are left out.

    It is 1 where the coordinator's log lacks records, because a transaction of version 1 may be among them.
    """
    found: dict[int, int] = {}
    for name, records in recorded.records.items():
        for row in records:
            if row.value is not None and (name in recorded.given or row.value.transaction_status in PREPARED):
                version = 1 if name in recorded.given else version_of(row.value)
                found[row.value.producer_id] = min(version, found.get(row.value.producer_id, version))
    return found


def leader_step(entry: Entry) -> TraceStep:
    """An entry of a producer as a step."""
    step = wordless_step(entry._replace(offset=-1, producer_id=PRODUCER))
    if isinstance(entry, WrittenBatch):
        return replace(step, text=f"{entry.kind} batch of epoch {entry.epoch} at offset {entry.offset}")
    return replace(step, text=f"{entry.decision.name} marker of epoch {entry.epoch} at offset {entry.offset}")


@lru_cache(maxsize=1 << 14)
def wordless_step(entry: Entry) -> TraceStep:
    """An entry as a step without a text; equal entries give the same step."""
    observed = {f"log.producers[{PRODUCER}].epoch": entry.epoch}
    if isinstance(entry, WrittenBatch):
        return TraceStep((Candidate("AppendBatch", (PRODUCER, entry.epoch, entry.kind)),), observed)
    commit = entry.decision is ControlType.COMMIT
    return TraceStep((Candidate("AppendMarker", (PRODUCER, entry.epoch, commit, entry.coordinator_epoch)),), observed)


def leader_trace(name: str, producer_id: int, entries: Iterable[Entry]) -> Trace:
    """The trace of one producer in one partition."""
    return Trace(f"{name}, producer {producer_id}", tuple(map(leader_step, entries)))


def leader_traces(recorded: Recorded) -> dict[int, list[Trace]]:
    """The traces by transaction version: one for each partition and each producer in it that ended transactions."""
    of_producer = versions(recorded)
    traces: dict[int, list[Trace]] = {}
    for name, entries in recorded.entries.items():
        for producer_id in sorted({entry.producer_id for entry in entries} & of_producer.keys()):
            own = (entry for entry in entries if entry.producer_id == producer_id)
            traces.setdefault(of_producer[producer_id], []).append(leader_trace(name, producer_id, own))
    return traces


def spoiled(traces: Sequence[Trace]) -> dict[str, tuple[Trace, int]]:
    """A trace with one entry too many: name of the fault -> the trace, and the step at which it must be rejected.

    After a batch of a transaction comes a batch outside any transaction, or one of an older epoch.
    """
    found: dict[str, tuple[Trace, int]] = {}
    for trace in sorted(traces, key=lambda trace: len(trace.steps)):
        for place, step in enumerate(trace.steps, start=1):
            (candidate,) = step.candidates
            if candidate.action != "AppendBatch" or candidate.arguments[2] != TRANSACTIONAL:
                continue
            epoch = candidate.arguments[1]
            extra = {"a batch outside the open transaction": WrittenBatch(PRODUCER, epoch, PLAIN, -1)}
            if epoch:
                extra["a batch of an older epoch"] = WrittenBatch(PRODUCER, epoch - 1, TRANSACTIONAL, -1)
            for what, entry in extra.items():
                steps = (*trace.steps[:place], leader_step(entry), *trace.steps[place:])
                found.setdefault(what, (Trace(trace.name, steps), place + 1))
    return found


def leader_constants(version: int) -> Constants:
    """The constants by which the reference alone judges any trace, with a machine that keeps no entries.

    Args:
        version: the transaction version whose rule for markers holds.
    """
    return Constants(
        producer_ids=frozenset({PRODUCER}),
        epochs=frozenset(),
        max_epoch=MAX_EPOCH,
        coordinator_epochs=frozenset(),
        batch_kinds=frozenset({TRANSACTIONAL, PLAIN}),
        offsets=frozenset({1}),  # the log ends at 0 as long as it keeps nothing
        transaction_version=version,
        max_leader_epoch=0,
        index_failures=False,
        expiration=False,
        cleaning=False,
        readers=frozenset(),
        fetch_sizes=frozenset(),
    )


def leader_model(model: Model, traces: Iterable[Trace], version: int) -> Model:
    """A model of Consumer, without readers, with the constants of some traces.

    Args:
        model: any model of module Consumer.
        traces: the traces.
        version: the transaction version whose rule for markers holds.
    """
    chosen = list(traces)
    candidates = [candidate for trace in chosen for step in trace.steps for candidate in step.candidates]
    epochs = {candidate.arguments[1] for candidate in candidates}
    reigns = {candidate.arguments[3] for candidate in candidates if candidate.action == "AppendMarker"}
    longest = max((len(trace.steps) for trace in chosen), default=0)
    constants: Mapping[str, str] = {
        "ProducerIds": format_value(frozenset({PRODUCER})),
        "Epochs": format_value(frozenset(epochs)),
        "MaxEpoch": str(MAX_EPOCH),
        "CoordinatorEpochs": format_value(frozenset(reigns)),
        "BatchKinds": '{"transactional", "plain"}',
        "Offsets": f"0..{longest}",
        "TransactionVersion": str(version),
        "MaxLeaderEpoch": "0",
        "IndexFailures": "FALSE",
        "Expiration": "FALSE",
        "Cleaning": "FALSE",
        "Readers": "{}",
        "FetchSizes": "{1}",
    }
    return replace(
        model,
        name=f"LeadersOfVersion{version}",
        constants=dict(constants),
        bounds="",
        probes=(),
        graph="",
    )
