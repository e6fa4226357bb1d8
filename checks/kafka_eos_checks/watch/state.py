"""A watcher's state of a partition, and the fold of the next batches into it.

The rules over logs are those of the audit, folded chunk by chunk
(:class:`kafka_eos_checks.audit.kernels.logs.summary.Fold`).
In addition it has the open transactions, and those that were reported and are not over yet. Only the headers of batches
are read, and of a marker whether it commits; never a key or a value of data.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from kafka_eos.formats.record_batch import LOG_OVERHEAD_BYTES, ControlType
from kafka_eos_checks.audit.findings import Kind
from kafka_eos_checks.audit.kernels.logs.runs import columns_of, runs_of
from kafka_eos_checks.audit.kernels.logs.summary import Fold, Summary, leaders_of, local
from kafka_eos_checks.audit.rules.log import Batch, Log, Producer
from kafka_eos_checks.audit.rules.transactions.names import HANGING
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    SMALLEST_LENGTH,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Block,
    Headers,
    is_set,
    sound_batches,
)
from kafka_eos_checks.audit.segments.marks import NO_DECISION, marks_of
from kafka_eos_checks.watch.reports import RESOLVED, Clock, Report, Since, duration, identity, transaction_of

CORRUPT, LAGS, CUT = "corrupt batch", "last stable offset lags", "log was cut"
DECISIONS = {ControlType.COMMIT: "committed", ControlType.ABORT: "aborted"}
_NO_LANES = np.empty(0, np.int64)


@dataclass(slots=True, kw_only=True)
class OpenTransaction:
    """Data of a producer id that no marker has ended yet.

    Attributes:
        offset: the offset of its first batch.
        epoch: the epoch of its first batch.
        seen_ms: when the watcher read it, in milliseconds since the epoch.
        since: when it began, as its first batch tells.
        hangs: whether it was reported to hang.
        lags: whether it was reported to hold the last stable offset back.
    """

    offset: int
    epoch: int
    seen_ms: int
    since: Since
    hangs: bool = False
    lags: bool = False

    @property
    def began_ms(self) -> int:
        """The earliest time at which it was certainly open; a producer's clock proves nothing."""
        return min(self.since.ms, self.seen_ms) if self.since.clock is Clock.BROKER else self.seen_ms


class Ending(NamedTuple):
    """A marker that ended data of the epoch before its own, so that its epoch names one transaction (KIP-890).

    Or one that may show an abort by hand: an ABORT with the epoch of its data, or a COMMIT without data.
    """

    offset: int
    producer_id: int
    epoch: int
    decision: ControlType
    since: Since
    data_epoch: int | None


class Reported(NamedTuple):
    """A transaction that was reported, and is not over yet, and the id of the first report about it."""

    rule: str
    offset: int
    producer_id: int
    epoch: int
    reported_ms: int
    transactional_id: str = ""  # which a checkpoint of an earlier version does not have, nor the next one
    follows: str = ""


@dataclass(slots=True)
class Taken:
    """The outcome of reading some batches.

    Attributes:
        batches: the number of batches.
        reports: the violations in them, and the ends of what was reported.
        endings: the markers that name one transaction.
    """

    batches: int = 0
    reports: list[Report] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class PartitionState:
    """The state of one partition.

    Attributes:
        topic: topic name.
        partition: its number.
        topic_id: the id of the topic, "" where the broker tells none. A new id means a new topic of the same name.
        position: the next offset to read.
        fold: the state of the rules over logs.
        open: by producer id, the open transactions.
        reported: the reports of transactions that are not over yet.
        idle: the producer ids that wrote nothing since producers were looked through last.
        looked_through_ms: when that was; -1 before.
        high_watermark: as the leader told it last; -1 before.
        last_stable_offset: as the leader told it last; -1 before.
    """

    topic: str
    partition: int
    topic_id: str = ""
    position: int = 0
    fold: Fold = field(default_factory=Fold)
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    reported: list[Reported] = field(default_factory=list)
    idle: set[int] = field(default_factory=set)
    looked_through_ms: int = -1
    high_watermark: int = -1
    last_stable_offset: int = -1

    @property
    def drained(self) -> bool:
        """Whether everything was read that the leader had to give."""
        return 0 <= self.high_watermark <= self.position

    def take(self, records: bytes, now_ms: int) -> Taken:
        """Fold the bytes that a leader gave from :attr:`position` on.

        The last batch may be cut off, as in a Fetch response. A batch that is corrupt, or of a format before Kafka
        0.11, is reported, and the batches after it up to the high watermark are not read. The same holds if all that
        the leader gave was read before, because it would give the same again.
        """
        data = np.frombuffer(bytearray(records), np.uint8)
        positions, fields, stop, sound = sound_batches(data, _NO_LANES)
        sound = sound and _is_cut_off(records, stop)
        headers = Headers(positions, fields, stop)
        ends = headers.column("base_offset") + headers.column("last_offset_delta") + 1
        if len(headers) and ends.max() <= self.position:
            why = f"the leader gives nothing but offsets up to {ends.max() - 1} where {self.position} was asked for"
            return Taken(batches=len(headers), reports=[self._skipped(why, now_ms)])
        taken = Taken(batches=len(headers))
        since = _stamps(headers, now_ms)
        taken.reports += self._logs(headers, since)
        self._transactions(Block(headers, data, 0), now_ms, since, taken)
        if len(headers):
            self.idle.difference_update(headers.column("producer_id").tolist())
            self.position = int(ends.max())
        if not sound:
            taken.reports.append(
                self._skipped(f"no sound batch at byte {stop} of what the leader gave from there", now_ms)
            )
        return taken

    def _skipped(self, why: str, now_ms: int) -> Report:
        """Report what cannot be read, and go on at the high watermark."""
        evidence = f"{why}; offsets up to {self.high_watermark} are not read"
        report = self.report(CORRUPT, self.position, evidence, Since(ms=now_ms, clock=Clock.WATCHER))
        self.skip_to(max(self.high_watermark, self.position + 1))
        return report

    def _logs(self, headers: Headers, since: "Stamps") -> Iterator[Report]:
        columns = columns_of(headers, self.topic)
        first, end, holes, disordered, boundary = local(columns, runs_of(columns))
        facts = (first, end, holes, disordered, boundary)
        chunk = Summary(0, 0, 0, len(columns), 0, 0, *facts, leaders=leaders_of(columns))
        for batch, violation in self.fold.add(chunk, lambda: columns):
            if violation.kind is Kind.VIOLATION and not violation.follows:
                yield self._of_batch(violation.rule, batch, violation.evidence, since)

    def _transactions(self, block: Block, now_ms: int, since: "Stamps", taken: Taken) -> None:
        headers = block.headers
        transactional, control = is_set(headers, TRANSACTIONAL_MASK), is_set(headers, CONTROL_MASK)
        marks = marks_of(block)
        told = zip(marks.row.tolist(), marks.decision.tolist(), strict=True)
        decisions = {row: ControlType(decision) for row, decision in told if decision != NO_DECISION}
        chosen = np.flatnonzero(transactional)
        names = ("base_offset", "producer_id", "producer_epoch")
        columns = (chosen, *(headers.column(name)[chosen] for name in names), control[chosen])
        for number, offset, pid, epoch, is_marker in zip(*(column.tolist() for column in columns), strict=True):
            opened = self.open.get(pid)
            if is_marker:
                self.open.pop(pid, None)
                decision = decisions.get(number)
                taken.reports += self._ended(pid, offset, decision, now_ms)
                data_epoch = None if opened is None else opened.epoch
                by_hand = data_epoch == (epoch if decision is ControlType.ABORT else None)
                if decision is not None and (by_hand or data_epoch == epoch - 1):
                    marked = Since(ms=since(offset).ms, clock=Clock.BROKER)
                    taken.endings.append(Ending(offset, pid, epoch, decision, marked, data_epoch))
            elif opened is None or opened.epoch < epoch:
                if opened is not None and not opened.hangs:
                    evidence = f"still open when data of epoch {epoch} came"
                    found = self.report(HANGING, opened.offset, evidence, opened.since, (pid, opened.epoch))
                    taken.reports.append(found)
                    self.note(found, now_ms)
                self.open[pid] = OpenTransaction(offset=offset, epoch=epoch, seen_ms=now_ms, since=since(offset))

    # --- what was reported, until it is over ------------------------------------------------------------------------

    def note(self, report: Report, now_ms: int) -> None:
        """Remember a report of a transaction until that is over."""
        self.reported.append(Reported(report.rule, *transaction_of(report), now_ms))

    def _ended(self, producer_id: int, offset: int, decision: ControlType | None, now_ms: int) -> Iterator[Report]:
        """A marker has ended the open transaction of a producer."""
        what = DECISIONS.get(decision, "") if decision is not None else ""
        given = "; readers of committed data are given its records" if decision is ControlType.COMMIT else ""
        evidence = f"{what or 'ended'} by the marker at offset {offset}{given}"
        yield from self.resolve(lambda one: one.producer_id == producer_id, evidence, now_ms, what)

    def moved_on(self, now_ms: int) -> Iterator[Report]:
        """Reports that are over because the last stable offset is after them, now that everything was read."""
        if self.drained:
            stable = self.last_stable_offset
            evidence = f"the last stable offset is {stable} now; the marker was not read"
            yield from self.resolve(lambda one: one.offset < stable, evidence, now_ms)

    def resolve(
        self, is_over: Callable[[Reported], bool], evidence: str, now_ms: int, decision: str = ""
    ) -> Iterator[Report]:
        """Say of reports that they are over, each once."""
        over = [one for one in self.reported if is_over(one)]
        self.reported = [one for one in self.reported if one not in over]
        for one in over:
            about = self._about(one)
            said = f"{one.rule}, reported {duration(now_ms - one.reported_ms)} ago: {evidence}"
            yield replace(
                about,
                rule=RESOLVED,
                evidence=said,
                transactional_id=one.transactional_id,
                decision=decision,
                resolves=identity(about),
                follows=one.follows,
            )

    def name_of(self, one: Reported) -> str:
        """The id of a report."""
        return identity(self._about(one))

    def _about(self, one: Reported) -> Report:
        return self.report(one.rule, one.offset, "", None, (one.producer_id, one.epoch))

    def skip_to(self, offset: int) -> None:
        """Go on at a later offset. The records between are unknown, and so is the end of each open transaction."""
        self.position = offset
        self.open.clear()

    def restart_at(self, offset: int) -> None:
        """Forget everything, and go on at an offset."""
        self.skip_to(offset)
        self.fold = Fold()

    def forget_idle(self, now_ms: int, after_ms: int) -> None:
        """Forget producers that wrote nothing for a time, as their leader does: after once to twice that time.

        A producer whose transaction is open stays, as in Kafka (ProducerStateManager.isProducerExpired). So does each
        while there is more to read.
        """
        before, known = self.looked_through_ms, self.fold.log.producers
        if not self.drained or before <= now_ms < before + after_ms:
            return
        if before <= now_ms:  # the clock was not set back
            for pid in self.idle - self.open.keys():
                known.pop(pid, None)
        self.idle, self.looked_through_ms = set(known), now_ms

    def report(
        self, rule: str, offset: int, evidence: str, since: Since | None, producer: tuple[int, int] | None = None
    ) -> Report:
        """A violation at an offset, by a producer id and epoch if one is concerned."""
        pid, epoch = producer or (None, None)
        return Report(
            rule=rule,
            topic=self.topic,
            partition=self.partition,
            offset=offset,
            producer_id=pid,
            producer_epoch=epoch,
            evidence=evidence,
            since=since,
        )

    def _of_batch(self, rule: str, batch: Batch, evidence: str, since: "Stamps") -> Report:
        return Report(
            rule=rule,
            topic=self.topic,
            partition=self.partition,
            offset=batch.base_offset,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            evidence=evidence,
            since=since(batch.base_offset),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object; the inverse of :func:`partition_from_json`."""
        log = self.fold.log
        return {
            "topic": self.topic,
            "partition": self.partition,
            "topic_id": self.topic_id,
            "position": self.position,
            "whole": log.whole,
            "end": log.end,
            "holes": log.holes,
            "leader_epoch": log.leader_epoch,
            "producers": [[pid, *p] for pid, p in log.producers.items()],
            "open": [
                [pid, o.offset, o.epoch, o.seen_ms, o.since.ms, o.since.clock, o.hangs, o.lags]
                for pid, o in self.open.items()
            ],
            "reported": [list(one) for one in self.reported],
            "idle": list(self.idle),
            "looked_through_ms": self.looked_through_ms,
        }


Stamps = Callable[[int], Since]
"""The time at which the batch at an offset was stored, by its timestamp."""


def _stamps(headers: Headers, now_ms: int) -> Stamps:
    """The time stamps of batches; one that lies in the future, or says nothing, is no time."""
    base = headers.column("base_offset")
    by_broker = is_set(headers, TIMESTAMP_TYPE_MASK) | is_set(headers, CONTROL_MASK)
    times = headers.column("max_timestamp")

    def since(offset: int) -> Since:
        place = int(np.searchsorted(base, offset))
        if place == len(base) or int(base[place]) != offset or not 0 < int(times[place]) <= now_ms:
            return Since(ms=now_ms, clock=Clock.WATCHER)
        return Since(ms=int(times[place]), clock=Clock.BROKER if by_broker[place] else Clock.PRODUCER)

    return since


def _is_cut_off(records: bytes, position: int) -> bool:
    """Whether the rest of the bytes, which has no whole batch, may be the beginning of one."""
    if len(records) - position < LOG_OVERHEAD_BYTES:
        return True
    return int.from_bytes(records[position + 8 : position + 12], "big", signed=True) >= SMALLEST_LENGTH


def partition_from_json(row: dict[str, Any]) -> PartitionState:
    """Read a state that :meth:`PartitionState.to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    if not isinstance(row["position"], int):
        raise TypeError(f"position {row['position']!r}")
    producers = {pid: Producer(*rest) for pid, *rest in row["producers"]}
    return PartitionState(
        topic=row["topic"],
        partition=row["partition"],
        topic_id=row["topic_id"],
        position=row["position"],
        fold=Fold(
            Log(
                whole=row["whole"],
                end=row["end"],
                holes=row["holes"],
                producers=producers,
                leader_epoch=row.get("leader_epoch", -1),  # which a checkpoint of an earlier version does not have
            )
        ),
        open={
            pid: OpenTransaction(
                offset=offset,
                epoch=epoch,
                seen_ms=seen_ms,
                since=Since(ms=since_ms, clock=Clock(clock)),
                hangs=hangs,
                lags=lags,
            )
            for pid, offset, epoch, seen_ms, since_ms, clock, hangs, lags in row["open"]
        },
        reported=[Reported(*one) for one in row["reported"]],
        idle=set(row.get("idle", ())),  # which, too, a checkpoint of an earlier version does not have
        looked_through_ms=row.get("looked_through_ms", -1),
    )
