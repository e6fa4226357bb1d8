"""Replay recorded logs and histories through the reference's machines, trace by trace, in process and on Spark.

A replay is three functions from batches of rows to batches of rows, with a shuffle before the second and the third::

    rows_of         a piece of a segment or history -> its rows                                  (scan)
    begins_of       the rows of holes -> the offset from which on each log lacks nothing
    new_of          the rows of new logs -> the time of the first batch of each
    by_producer     rows sorted by producer id -> verdicts on its partitions and on clients;     (:data:`BY_PRODUCER`)
                    markers, each with its transactional id
    by_trace        rows sorted by transactional id -> verdicts on coordinators                  (:data:`BY_TRACE`)

:func:`in_process` sorts tables of this process, :mod:`kafka_eos_checks.traces.spark` lets Spark shuffle. A worker holds
the rows of one trace at a time. Spark's driver knows where logs begin, and meets no event. Traces that cannot be judged
also have a verdict.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from kafka_eos.histories.history import event_from_json
from kafka_eos.machines.partition_log import Constants as PartitionLogConstants
from kafka_eos.machines.partition_log import PartitionLog
from kafka_eos.machines.transaction_coordinator import TransactionCoordinator
from kafka_eos.machines.transactional_partition import PLAIN, TRANSACTIONAL
from kafka_eos_checks.kit.memory import keep_modules
from kafka_eos_checks.kit.missing import need
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.mutants.rules import mutated
from kafka_eos_checks.traces.clients import (
    SHOWN,
    NotJudged,
    Read,
    client_traces,
    made_again,
    not_to_the_end,
    of_paths,
    verdict_on_logs,
    with_left_out,
    without,
)
from kafka_eos_checks.traces.coordinators import (
    LEAVES_OUT,
    CoordinatorOfTraces,
    ToldRecord,
    absent_partitions,
    compared,
    coordinator_constants,
    new_in,
    ragged_in,
    since,
    split_given,
    starts_of,
    steps_of,
)
from kafka_eos_checks.traces.leaders import (
    JUDGED_BY,
    PRODUCER,
    LeaderOfTraces,
    leader_constants,
    leader_trace,
    wordless_step,
)
from kafka_eos_checks.traces.markers import Matched, WrittenBatch, WrittenMarker
from kafka_eos_checks.traces.scan import (
    CLIENT,
    COORDINATOR,
    ENTRY,
    EVENT,
    HOLE,
    JUDGED,
    LEADER,
    LOG,
    MARKERS,
    NEW,
    PIECE_BYTES,
    STATE,
    TRANSACTIONAL_BATCH,
    Piece,
    judged,
    logs_of,
    rows_of,
    rows_schema,
    tasks_of,
)
from kafka_eos_checks.traces.transitions import read_transition
from kafka_eos_checks.traces.validation import (
    RememberingJudge,
    Trace,
    replayed,
)

if TYPE_CHECKING:
    import pyarrow as pa

BY_PRODUCER = ("source", "producer_id", "kind", "log", "offset")
BY_TRACE = ("source", "name", "kind", "log", "offset")
OUT_ROWS = 1 << 15  # of a batch that a function makes
REASON_LENGTH = 600  # characters of an explanation that a verdict carries
BUCKETS = 64  # shares over which the partitions of a history are spread

Rows = Iterable["pa.RecordBatch"]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the machines that judge.

    Attributes:
        overrides: replaced operators of the coordinator, as (operator, replacement).
        clients: those of the partition that answers to idempotent producers.
        leaders: those of the partition with transactions.
        versions: the transaction versions that the cluster knows.
    """

    overrides: tuple[tuple[str, str], ...]
    clients: tuple[tuple[str, str], ...] = ()
    leaders: tuple[tuple[str, str], ...] = ()
    versions: frozenset[int] = frozenset({1, 2})


@dataclass(frozen=True)
class _CoordinatorJudge:
    """The coordinator's machine by some rules, with a judge that remembers steps from trace to trace."""

    rules: Rules

    @cached_property
    def machine(self) -> type[Any]:
        return mutated(TransactionCoordinator, dict(self.rules.overrides))

    @cached_property
    def remembering(self) -> RememberingJudge:
        machine = mutated(CoordinatorOfTraces, dict(self.rules.overrides))
        return RememberingJudge(machine, coordinator_constants(self.rules.versions))

    def verdict(
        self,
        name: str,
        records: Sequence[ToldRecord],
        markers: "_Markers",
        here: Container[str],
        *,
        begin: int = 0,
        cut: Collection[str] = (),
        new: Mapping[str, int] = MappingProxyType({}),
        are_apart: bool = False,
    ) -> dict[str, Any] | None:
        """The verdict on a transactional id; None if nothing follows the record in whose state its trace begins.

        If it is rejected, what came before some of its partitions were made again is left out. If it is rejected even
        so, as if all logs were of one moment, and they may be apart, its ends are left out, too.
        """
        absent = absent_partitions(records, here)
        given, rest = split_given(since(records, begin), given=begin > 0)
        leaves_out = LEAVES_OUT in dict(self.rules.overrides)
        compare = partial(compared, rest, markers, absent, cut=cut, given=given, leaves_out=leaves_out)
        looser = [partial(compare, new=new)] if new else []
        looser += [partial(compare, new=new, are_apart=True)] if are_apart else []
        way = compare
        order = way()
        position, taken = self._first_rejected(rest, order, absent, given)
        while position is not None and looser:
            way = looser.pop(0)
            order = way()
            position, taken = self._first_rejected(rest, order, absent, given)
        if not taken and begin:
            return None
        if position is None:
            found = _verdict(COORDINATOR, name, taken, None, "")
            if absent:
                return {**found, "accepted": None, **_unjudged(without(name, absent))}
            if way is compare:
                return found
            is_apart = way.keywords.get("are_apart", False)
            left_out = not_to_the_end(name, ragged_in(order)) if is_apart else made_again(name, new_in(order))
            return {**found, **_unjudged(left_out)}
        trace = Trace(name, tuple(steps_of(rest, order, absent, given=given)), starts_of(given))
        index, explanation = replayed(self.machine, coordinator_constants(self.rules.versions, trace), trace)
        assert index == position, f"{name}: rejected at {index} and, by a judge that remembers, at {position}"
        return _verdict(COORDINATOR, name, taken, position, explanation)

    def _first_rejected(
        self,
        records: Sequence[ToldRecord],
        order: Mapping[str, Matched],
        absent: Container[str],
        given: ToldRecord | None,
    ) -> tuple[int | None, int]:
        steps = steps_of(records, order, absent, given=given, rename=True)
        return self.remembering.first_rejected(steps, starts_of(given, rename=True))


_judge_of = lru_cache(maxsize=4)(_CoordinatorJudge)  # a worker keeps it from task to task

_Markers = list[tuple[str, WrittenMarker]]


def _verdict(subject: str, trace: str, steps: int, position: int | None, explanation: str) -> dict[str, Any]:
    accepted = position is None
    reason = "" if accepted else _shortened(explanation.removeprefix(f"{trace}, "))
    return {
        "subject": subject,
        "trace": trace,
        "steps": steps,
        "accepted": accepted,
        "position": position,
        "reason": reason,
    }


def _unjudged(left_out: NotJudged) -> dict[str, str]:
    return {"reason": left_out.reason, "unjudged": left_out.code}


def _shortened(explanation: str) -> str:
    """An explanation without the states and the actions enabled instead."""
    lines = [line.strip() for line in explanation.splitlines() if not line.lstrip().startswith(("in ", "enabled inst"))]
    words = "; ".join(dict.fromkeys(lines))
    return words if len(words) <= REASON_LENGTH else f"{words[:REASON_LENGTH]}…"


# --- runs of rows with the same key ------------------------------------------------------------------------------


def runs(batches: Rows, keys: Sequence[str]) -> "Iterator[tuple[tuple[Any, ...], list[pa.RecordBatch]]]":
    """The rows of each key, as slices of the batches that they come in.

    Args:
        batches: rows sorted by key.
        keys: columns without nulls.

    Raises:
        AssertionError: the rows are not sorted.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - the light install has no pyarrow

    key: tuple[Any, ...] | None = None
    slices: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        columns = [batch[name] for name in keys]
        changes = np.zeros(max(batch.num_rows - 1, 0), bool)
        for column in columns:
            changes |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
        begins = [0, *(np.flatnonzero(changes) + 1).tolist(), batch.num_rows]
        for start, end in pairwise(begins):
            own = tuple(column[start].as_py() for column in columns)
            if own != key:
                if key is not None:
                    assert own > key, f"rows are not sorted by {', '.join(keys)}: {own} after {key}"
                    yield key, slices
                key, slices = own, []
            slices.append(batch.slice(start, end - start))
    if key is not None:
        yield key, slices


def _lists(slices: "Sequence[pa.RecordBatch]", *names: str) -> Iterator[tuple[Any, ...]]:
    """The rows of some columns of slices."""
    for each in slices:
        yield from zip(*(each[name].to_pylist() for name in names), strict=True)


@dataclass(slots=True)
class _Out:
    """A buffer of rows to yield, in batches that are not too small."""

    slices: "list[pa.RecordBatch]"
    count: int = 0

    def put(self, batch: "pa.RecordBatch") -> None:
        if batch.num_rows:
            self.slices.append(batch)
            self.count += batch.num_rows

    def full(self, *, at_end: bool = False) -> "Iterator[pa.RecordBatch]":
        """The collected rows, once they are many, or at the end."""
        import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

        if self.count >= OUT_ROWS or (at_end and self.count):
            yield from pa.Table.from_batches(self.slices).combine_chunks().to_batches()
            self.slices, self.count = [], 0


# --- by producer: the leaders of partitions, and clients -----------------------------------------------------------


Begins = Mapping[tuple[int, str], int]  # (source, log) -> the offset from which on it lacks nothing, if it lacks some


def begins_of(holes: "pa.Table") -> dict[tuple[int, str], int]:
    """The offset from which on each log lacks nothing, of those that lack something; ``holes``: rows of kind HOLE."""
    found: dict[tuple[int, str], int] = {}
    for source, log, offset in zip(*(holes[name].to_pylist() for name in ("source", "log", "offset")), strict=True):
        found[source, log] = max(offset, found.get((source, log), 0))
    return found


def new_of(rows: "pa.Table") -> dict[tuple[int, str], int]:
    """The time of the first batch of each log that was new then, see :data:`kafka_eos_checks.traces.scan.NEW`."""
    columns = (rows[name].to_pylist() for name in ("source", "log", "offset"))
    return {(source, log): time_ms for source, log, time_ms in zip(*columns, strict=True)}


def begun(begins: Begins) -> "pa.RecordBatch":
    """Verdicts on logs that lack something: they are readable."""
    return verdict_batch(
        [
            {"source": source, "subject": LOG, "trace": log, "steps": 0, "accepted": True, "position": offset}
            for (source, log), offset in sorted(begins.items())
        ]
    )


def by_producer(batches: Rows, rules: Rules, begins: Begins) -> "Iterator[pa.RecordBatch]":
    """Rows sorted by :data:`BY_PRODUCER` -> state records, markers of transactional ids, and verdicts.

    The state records of a producer come first. They name its transactional ids and the transaction version by which its
    partitions are judged: 1 if that log lacks some, because a transaction of version 1 may be among them. A producer
    without state records has no transactions.
    """
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    owners: dict[str, int] = {}  # transactional id -> the lowest version that ended a transaction, or 0 for none
    restarts: list[Read] = []
    producer: tuple[int, int] | None = None
    out = _Out([])
    for (source, producer_id, kind, log), slices in runs(batches, BY_PRODUCER[:4]):
        if producer != (source, producer_id):
            producer, owners, restarts = (source, producer_id), {}, []
        if kind == STATE:
            _note_owners(owners, producer_id, slices, is_whole=(source, log) not in begins)
        if kind in {STATE, JUDGED}:
            for each in slices:
                out.put(each)
        elif kind == ENTRY and owners:
            whole = _from(slices, begins.get((source, log), 0))
            for each in _markers_of(whole, is_cut=(source, log) in begins):
                for name in owners:
                    out.put(_with_column(each, "name", pa.array([name] * each.num_rows, pa.string())))
            version = min(filter(None, owners.values()), default=0)
            if version and whole:
                verdict = _leader_verdict(log, producer_id, whole, version, rules)
                out.put(judged([{"source": source, **verdict}]))
        elif kind == EVENT and not log:
            restarts = _events_of(slices)
        elif kind == EVENT:
            verdicts = _client_verdicts(_events_of(slices), restarts, rules)
            out.put(judged([{"source": source, **verdict} for verdict in verdicts]))
        yield from out.full()
    yield from out.full(at_end=True)


def _note_owners(
    owners: dict[str, int], producer_id: int, slices: "Sequence[pa.RecordBatch]", *, is_whole: bool = True
) -> None:
    if producer_id < 0:
        return  # tombstones
    for name, version in set(_lists(slices, "name", "version")):
        known = owners.get(name, 0)
        owners[name] = min(filter(None, (known, version if is_whole else 1)), default=0)


def _from(slices: "Sequence[pa.RecordBatch]", begin: int) -> "list[pa.RecordBatch]":
    """The rows from an offset on."""
    import pyarrow.compute as pc  # noqa: PLC0415 - the light install has no pyarrow

    if not begin:
        return list(slices)
    return [own for each in slices if (own := each.filter(pc.greater_equal(each["offset"], begin))).num_rows]


def _markers_of(slices: "Sequence[pa.RecordBatch]", *, is_cut: bool = False) -> "Iterator[pa.RecordBatch]":
    """The markers among a producer's entries in a partition; ``version`` is 1 if joined, 2 for a repetition.

    :func:`kafka_eos_checks.traces.markers.with_repeats` flags the same markers.
    """
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    last = np.full((3, 1), -1, dtype=np.int64)
    for number, batch in enumerate(slices):
        told = np.stack([batch[name].to_numpy() for name in ("code", "epoch", "leader_epoch")])
        same = told == np.concatenate([last, told[:, :-1]], axis=1)
        same[:, 0] |= is_cut and not number
        last = told[:, -1:]
        joined = same[:-1].all(axis=0)
        marked = _with_column(batch, "version", pa.array(joined.astype(np.int64) + (joined & same[-1])))
        yield marked.filter(pa.array(np.isin(told[0], sorted(MARKERS))))


def _with_column(batch: "pa.RecordBatch", name: str, values: "pa.Array") -> "pa.RecordBatch":
    return batch.set_column(batch.schema.get_field_index(name), rows_schema().field(name), values)


def _leader_verdict(
    log: str, producer_id: int, slices: "Sequence[pa.RecordBatch]", version: int, rules: Rules
) -> dict[str, Any]:
    name = f"{log}, producer {producer_id}"
    judge = _leader_of(rules, version)
    position, steps = judge.first_rejected(map(wordless_step, _entries(slices)))
    if position is None:
        return _verdict(LEADER, name, steps, None, "")
    trace = leader_trace(log, producer_id, _entries(slices, with_offsets=True))
    index, explanation = replayed(_leader_machine(rules), leader_constants(version), trace)
    assert index == position, f"{name}: rejected at {index} and, by a judge that remembers, at {position}"
    return _verdict(LEADER, name, steps, position, explanation)


@lru_cache(maxsize=4)
def _leader_of(rules: Rules, version: int) -> RememberingJudge:
    return RememberingJudge(_leader_machine(rules), leader_constants(version))


@lru_cache(maxsize=4)
def _leader_machine(rules: Rules) -> type[Any]:
    return mutated(LeaderOfTraces, dict(rules.leaders))


def _entries(
    slices: "Sequence[pa.RecordBatch]", *, with_offsets: bool = False
) -> Iterator[WrittenBatch | WrittenMarker]:
    """The entries of a producer in a partition; without offsets, entries of the same content are equal."""
    for offset, epoch, reign, code in _lists(slices, "offset", "epoch", "leader_epoch", "code"):
        at = offset if with_offsets else -1
        if code in MARKERS:
            yield WrittenMarker(PRODUCER, epoch, MARKERS[code], reign, at)
        else:
            yield WrittenBatch(PRODUCER, epoch, TRANSACTIONAL if code == TRANSACTIONAL_BATCH else PLAIN, at)


def _events_of(slices: "Sequence[pa.RecordBatch]") -> list[Read]:
    rows = _lists(slices, "name", "value")
    return [(Path(name).name, event_from_json(line.decode("utf-8", "replace"))) for name, line in rows]


def _client_verdicts(written: Sequence[Read], restarts: Sequence[Read], rules: Rules) -> Iterator[dict[str, Any]]:
    """The verdicts on a partition of a history, one for each run."""
    machine = mutated(PartitionLog, dict(rules.clients))
    for trace in client_traces(written, restarts):
        if isinstance(trace, NotJudged):
            row = {"subject": CLIENT, "trace": trace.name, "steps": 0, "accepted": None}
            yield {**row, **_unjudged(trace)}
        else:
            index, explanation = replayed(machine, _partition_constants(trace), trace)
            yield _verdict(CLIENT, trace.name, len(trace.steps), index, explanation)


def _partition_constants(trace: Trace) -> PartitionLogConstants:
    """The constants by which the reference alone judges a partition's leader; no sequence is too large for it."""
    arguments = [candidate.arguments for step in trace.steps for candidate in step.candidates if candidate.arguments]
    ids, epochs, sequences, counts = (frozenset(column) for column in zip(*arguments, strict=True))
    return PartitionLogConstants(
        max_sequence=2**31 - 1,
        cached_batches=5,
        producer_ids=ids,
        epochs=epochs,
        sequences=sequences,
        batch_counts=counts,
        expiration=False,
    )


# --- by transactional id: coordinators -------------------------------------------------------------------------------


def by_trace(
    batches: Rows,
    rules: Rules,
    here: Mapping[int, Container[str]],
    begins: Begins,
    new: Begins,
    apart: Container[int] = (),
) -> "Iterator[pa.RecordBatch]":
    """Rows sorted by :data:`BY_TRACE` -> verdicts (:data:`kafka_eos_checks.traces.scan.VERDICTS`).

    Args:
        batches: the rows.
        rules: the rules of the machines.
        here: source -> its logs (:func:`kafka_eos_checks.traces.scan.logs_of`).
        begins: the logs that lack something.
        new: the logs that were new with their first batch, see :func:`new_of`.
        apart: the sources whose logs may be of different moments.
    """
    judge = _judge_of(rules)
    cut: dict[int, set[str]] = defaultdict(set)
    for source, log in begins:
        cut[source].add(log)
    new_in_source: dict[int, dict[str, int]] = defaultdict(dict)
    for (source, log), time_ms in new.items():
        new_in_source[source][log] = time_ms
    verdicts: list[dict[str, Any]] = []
    for (source, name), slices in runs(batches, BY_TRACE[:2]):
        records: list[ToldRecord] = []
        markers: _Markers = []
        begin = 0
        for _, own in runs(slices, ("kind",)):
            kind = own[0]["kind"][0].as_py()
            if kind == JUDGED:
                verdicts += [verdict for (verdict,) in _lists(own, "verdict")]
            elif kind == STATE:
                begin = begins.get((source, own[0]["log"][0].as_py()), 0)
                rows = _lists(own, "leader_epoch", "offset", "value")
                records += [ToldRecord(reign, offset, read_transition(value)) for reign, offset, value in rows]
            else:
                rows = _lists(own, "log", "producer_id", "epoch", "code", "leader_epoch", "offset", "version")
                markers += [
                    (log, WrittenMarker(producer_id, epoch, MARKERS[code], reign, offset, joined > 0, joined > 1))
                    for log, producer_id, epoch, code, reign, offset, joined in rows
                ]
        if records:
            judged_by = partial(judge.verdict, begin=begin, cut=cut[source], new=new_in_source[source])
            found = judged_by(name, records, markers, here[source], are_apart=source in apart)
            if found is not None:
                verdicts.append({"source": source, **found})
        if len(verdicts) >= OUT_ROWS:
            yield verdict_batch(verdicts)
            verdicts = []
    if verdicts:
        yield verdict_batch(verdicts)


def verdict_batch(verdicts: Sequence[Mapping[str, Any]]) -> "pa.RecordBatch":
    """Verdicts as a batch with the columns of :data:`kafka_eos_checks.traces.scan.VERDICTS`."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    schema = pa.schema(list(rows_schema().field("verdict").type))
    return pa.RecordBatch.from_pylist([dict(verdict) for verdict in verdicts], schema=schema)


# --- verdicts ------------------------------------------------------------------------------------------------

_NAMES = {COORDINATOR: "coordinators", LEADER: "leaders", CLIENT: "clients"}


def verdicts_of(table: "pa.Table", paths: Sequence[Path]) -> list[Verdict]:
    """A verdict for each subject of each path, and one for the logs of a path that cannot be replayed.

    Args:
        table: the verdicts on all traces, see :data:`kafka_eos_checks.traces.scan.VERDICTS`.
        paths: the paths, which ``source`` counts from 0.

    Raises:
        TraceUnusable: there is nothing to judge in any of the paths.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - the light install has no pyarrow

    verdicts: list[tuple[Path, list[Verdict]]] = []
    for source, path in enumerate(paths):
        own = table.filter(pc.equal(table["source"], source))
        subjects = {name: own.filter(pc.equal(own["subject"], name)) for name in (*_NAMES, LOG)}
        found = [
            _verdict_on(subject, f"{name} of {path.name}", subjects[subject])
            for subject, name in _NAMES.items()
            if subjects[subject].num_rows
        ]
        logs = subjects[LOG]
        if logs.num_rows:
            unread, later = logs.filter(pc.invert(logs["accepted"])), logs.filter(logs["accepted"])
            begins = dict(zip(later["trace"].to_pylist(), later["position"].to_pylist(), strict=True))
            damaged = len(set(unread["trace"].to_pylist()))
            found.append(verdict_on_logs(path.name, begins, damaged, _evidence(unread)))
        verdicts.append((path, found))
    return of_paths(verdicts)


def _verdict_on(subject: str, name: str, own: "pa.Table") -> Verdict:
    """The verdict on all traces of one kind; only the reference has judged them."""
    import pyarrow.compute as pc  # noqa: PLC0415 - the light install has no pyarrow

    rejected = own.filter(pc.invert(own["accepted"]))
    left_out = own.filter(pc.is_valid(own["unjudged"])).to_pylist()
    traces = own.num_rows - own["accepted"].null_count
    found = "all accepted" if traces else "no traces"
    if rejected.num_rows:
        first = rejected.slice(0, 1).to_pylist()[0]
        found = f"{traces - rejected.num_rows} of {traces} accepted; {first['trace']}: "
        found += f"rejected at event {first['position']}"
    verdict = Verdict(
        check="trace",
        name=name,
        expected="all accepted",
        found=found,
        ok=not rejected.num_rows,
        figures={"traces": traces, "events": pc.sum(own["steps"]).as_py() or 0},
        evidence=_evidence(rejected),
        title=JUDGED_BY if subject == LEADER else "",
    )
    return with_left_out(verdict, [NotJudged(row["trace"], row["unjudged"], row["reason"]) for row in left_out])


def _evidence(rows: "pa.Table") -> str:
    shown = [f"{row['trace']}: {row['reason']}" for row in rows.slice(0, SHOWN).to_pylist()]
    more = rows.num_rows - len(shown)
    return "\n".join([*shown, f"… and {more} more"] if more else shown)


def write_table(path: Path, table: "pa.Table") -> None:
    """Write the verdicts on all traces as ``.jsonl`` or ``.parquet``, by the file's suffix.

    Raises:
        OSError: the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415 - the light install has no pyarrow

        pq.write_table(table, path)
        return
    with path.open("w", encoding="utf-8") as out:
        for batch in table.to_batches():
            out.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in batch.to_pylist())


# --- in this process -------------------------------------------------------------------------------------------------


def in_process(pieces: Sequence[Piece], rules: Rules, apart: Container[int] = ()) -> "pa.Table":
    """The verdicts (:data:`kafka_eos_checks.traces.scan.VERDICTS`) on all traces in some pieces; rows are in memory.

    Args:
        pieces: the pieces.
        rules: the rules of the machines.
        apart: the sources whose logs may be of different moments.

    Raises:
        MissingExtra: without pyarrow.
    """
    pa, pc = need("pyarrow", "spark"), need("pyarrow.compute", "spark")
    keep_modules()
    scanned = (batch for task in tasks_of(pieces, PIECE_BYTES) for batch in rows_of(task, BUCKETS))
    rows = pa.Table.from_batches(scanned, schema=rows_schema())
    begins = begins_of(rows.filter(pc.equal(rows["kind"], HOLE)))
    new = new_of(rows.filter(pc.equal(rows["kind"], NEW)))
    tagged = by_producer(_sorted(rows.to_batches(), BY_PRODUCER), rules, begins)
    found = [*by_trace(_sorted(tagged, BY_TRACE), rules, logs_of(pieces), begins, new, apart), begun(begins)]
    return in_order(pa.Table.from_batches(found, schema=verdict_batch([]).schema))


def _sorted(batches: Rows, keys: Sequence[str]) -> "list[pa.RecordBatch]":
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    table = pa.Table.from_batches(batches, schema=rows_schema())
    return table.sort_by([(key, "ascending") for key in keys]).combine_chunks().to_batches()  # type: ignore[no-any-return]


def in_order(verdicts: "pa.Table") -> "pa.Table":
    """Verdicts by source, subject and trace.

    Raises:
        AssertionError: a trace has two verdicts, because its rows were judged in two places.
    """
    keys = ("source", "subject", "trace")
    ordered = verdicts.sort_by([(key, "ascending") for key in (*keys, "reason")])
    places = ordered.select(keys).to_pylist()
    for before, after in pairwise(places):
        assert before != after or before["subject"] == LOG, f"two verdicts on {after}"
    return ordered
