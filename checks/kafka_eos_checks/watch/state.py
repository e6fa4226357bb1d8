"""What a watcher knows of a partition, and what the next batches make of it.

The rules over logs are those of the audit, folded chunk by chunk (:class:`kafka_eos_checks.replay.summary.Fold`).
Beside them stand the transactions that are open. Nothing is read of a batch but its header, and of a marker whether
it commits; of data no key and no value.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from kafka_eos.record_batch import LOG_OVERHEAD_BYTES, ControlType
from kafka_eos_checks.replay.findings import Finding
from kafka_eos_checks.replay.headers import (
    CONTROL_MASK,
    SMALLEST_LENGTH,
    TRANSACTIONAL_MASK,
    Block,
    Headers,
    is_set,
    sound_batches,
)
from kafka_eos_checks.replay.marks import decision_of
from kafka_eos_checks.replay.records import decode_block
from kafka_eos_checks.replay.rules import Batch, Log, Producer
from kafka_eos_checks.replay.summary import Fold, Summary, columns_of, local
from kafka_eos_checks.replay.transactions import HANGING

CORRUPT, LAGS, CUT = "corrupt batch", "last stable offset lags", "log was cut"
_NO_LANES = np.empty(0, np.int64)


@dataclass(slots=True, kw_only=True)
class OpenTransaction:
    """Data of a producer id that no marker has ended yet.

    Attributes:
        offset: of its first batch.
        epoch: of its first batch.
        seen_ms: when the watcher read it, in milliseconds since the epoch.
        hangs: whether it was reported to hang.
        lags: whether it was reported to hold the last stable offset back.
    """

    offset: int
    epoch: int
    seen_ms: int
    hangs: bool = False
    lags: bool = False


class Ending(NamedTuple):
    """A marker that ended data of the epoch before its own, so that its epoch names one transaction (KIP-890)."""

    offset: int
    producer_id: int
    epoch: int
    decision: ControlType


@dataclass(slots=True, kw_only=True)
class PartitionState:
    """What is known of one partition.

    Attributes:
        topic: topic name.
        partition: its number.
        topic_id: of the topic, "" where the broker tells none; another one is another topic of the same name.
        position: the next offset to read.
        fold: what the rules over logs know.
        open: by producer id, the transactions that are open.
        high_watermark: as the leader told it last; -1 before.
        last_stable_offset: as the leader told it last; -1 before.
    """

    topic: str
    partition: int
    topic_id: str = ""
    position: int = 0
    fold: Fold = field(default_factory=Fold)
    open: dict[int, OpenTransaction] = field(default_factory=dict)
    high_watermark: int = -1
    last_stable_offset: int = -1

    @property
    def drained(self) -> bool:
        """Whether everything was read that the leader had to give."""
        return 0 <= self.high_watermark <= self.position

    def take(self, records: bytes, now_ms: int) -> tuple[int, list[Finding], list[Ending]]:
        """Fold what a leader gave from :attr:`position` on: how many batches, the violations in them, what was ended.

        The last batch may be cut off, as Fetch does it. One that is corrupt, or of a format before Kafka 0.11, is
        reported, and what follows it up to the high watermark is not read.
        """
        positions, raw, stop, sound = sound_batches(records, _NO_LANES)
        sound = sound and _is_cut_off(records, stop)
        headers = Headers(positions, raw, stop)
        endings: list[Ending] = []
        found = [*self._logs(headers), *self._transactions(Block(headers, records, 0), now_ms, endings)]
        if len(headers):
            ends = headers.column("base_offset") + headers.column("last_offset_delta") + 1
            self.position = max(self.position, int(ends.max()))
        if not sound:
            evidence = f"no sound batch at byte {stop} of what the leader gave from there; offsets up to "
            evidence += f"{self.high_watermark} are not read"
            found.append(self.finding(CORRUPT, self.position, evidence))
            self.skip_to(max(self.high_watermark, self.position + 1))
        return len(headers), found, endings

    def _logs(self, headers: Headers) -> Iterator[Finding]:
        columns = columns_of(headers, self.topic)
        first, end, holes, disordered, boundary = local(columns)
        chunk = Summary(0, 0, 0, len(columns), 0, 0, first, end, holes, disordered, boundary)
        for batch, violation in self.fold.add(chunk, lambda: columns):
            yield self._of_batch(violation.rule, batch, violation.evidence)

    def _transactions(self, block: Block, now_ms: int, endings: list[Ending]) -> Iterator[Finding]:
        headers = block.headers
        transactional, control = is_set(headers, TRANSACTIONAL_MASK), is_set(headers, CONTROL_MASK)
        markers = decode_block(block, transactional & control)
        decisions = dict(zip(markers.batch.tolist(), map(decision_of, markers.keys()), strict=True))
        chosen = np.flatnonzero(transactional)
        names = ("base_offset", "producer_id", "producer_epoch")
        columns = (chosen, *(headers.column(name)[chosen] for name in names), control[chosen])
        for number, offset, pid, epoch, is_marker in zip(*(column.tolist() for column in columns), strict=True):
            opened = self.open.get(pid)
            if is_marker:
                self.open.pop(pid, None)
                decision = decisions.get(number)
                if decision is not None and opened is not None and opened.epoch == epoch - 1:
                    endings.append(Ending(offset, pid, epoch, decision))
            elif opened is None or opened.epoch < epoch:
                if opened is not None:
                    evidence = f"still open when data of epoch {epoch} came"
                    yield self.finding(HANGING, opened.offset, evidence, (pid, opened.epoch))
                self.open[pid] = OpenTransaction(offset=offset, epoch=epoch, seen_ms=now_ms)

    def skip_to(self, offset: int) -> None:
        """Go on at a later offset; what lies between is unknown, and with it how open transactions ended."""
        self.position = offset
        self.open.clear()

    def restart_at(self, offset: int) -> None:
        """Forget everything, and go on at an offset."""
        self.skip_to(offset)
        self.fold = Fold()

    def finding(self, rule: str, offset: int, evidence: str, producer: tuple[int, int] | None = None) -> Finding:
        """A violation at an offset, by a producer id and epoch if one is concerned."""
        pid, epoch = producer or (None, None)
        return Finding(
            rule=rule,
            topic=self.topic,
            partition=self.partition,
            offset=offset,
            producer_id=pid,
            producer_epoch=epoch,
            evidence=evidence,
        )

    def _of_batch(self, rule: str, batch: Batch, evidence: str) -> Finding:
        return Finding(
            rule=rule,
            topic=self.topic,
            partition=self.partition,
            offset=batch.base_offset,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            evidence=evidence,
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
            "producers": [[pid, p.epoch, p.last_sequence, p.holes] for pid, p in log.producers.items()],
            "open": [[pid, o.offset, o.epoch, o.seen_ms, o.hangs, o.lags] for pid, o in self.open.items()],
        }


def _is_cut_off(records: bytes, position: int) -> bool:
    """Whether the rest of the bytes may be the beginning of a batch."""
    if len(records) - position < LOG_OVERHEAD_BYTES:
        return True
    length = int.from_bytes(records[position + 8 : position + 12], "big", signed=True)
    return length >= SMALLEST_LENGTH and position + LOG_OVERHEAD_BYTES + length > len(records)


def partition_from_json(row: dict[str, Any]) -> PartitionState:
    """What :meth:`PartitionState.to_json` wrote."""
    producers = {pid: Producer(*rest) for pid, *rest in row["producers"]}
    return PartitionState(
        topic=row["topic"],
        partition=row["partition"],
        topic_id=row["topic_id"],
        position=row["position"],
        fold=Fold(Log(whole=row["whole"], end=row["end"], holes=row["holes"], producers=producers)),
        open={
            pid: OpenTransaction(offset=offset, epoch=epoch, seen_ms=seen_ms, hangs=hangs, lags=lags)
            for pid, offset, epoch, seen_ms, hangs, lags in row["open"]
        },
    )
