"""The rule over ``leader-epoch-checkpoint``: what a broker says of the leaders of a log has to agree with its batches.

A leader answers from this file where the log of an earlier leader ends (OffsetsForLeaderEpoch, and the diverging epoch
of a fetch). A follower that comes back cuts its own log there, and a consumer finds by the answer that records which it
has read are gone. With a wrong line the follower keeps records that the leader does not have, or cuts ones that are
right.

``leader epoch checkpoint``
    A batch whose leader epoch is not that of the last line that begins at or before it. Or a line whose epoch is not
    above that of the line before, or which begins before it.

A broker writes a new line, and forces it to disk, before it appends the first batch of that epoch. So the file is never
behind the log, also after a crash. It may have lines that no batch needs: of a leader that has written nothing yet, of
batches that compaction has removed, and beyond the end of a log that has lost its last records.

*Not judged*: a line that disagrees if file and log may be of different moments, because a replica that was truncated
in between has other lines and other batches. It is judged if the broker was shut down or all logs are of one moment,
or if the broker runs here and has written neither the file nor the segment for some seconds. The file is read after the
log. Batches before the first line are not judged either, unless records were deleted up to there: then a broker drops
the lines before, and lets the first one begin there, with the epoch of the batch at that offset. If that may have
happened shortly before the broker ended or the audit began, they are *too recent*.

*Left out*: batches without an epoch (-1), logs without the file, and logs whose offsets or leader epochs go back: no
file agrees with them, and other rules find them.

KIP:   KIP-101, KIP-279, KIP-320
Kafka: LeaderEpochFileCache (assign, endOffsetFor, truncateFromStartAsyncFlush, truncateFromEndAsyncFlush),
       UnifiedLog.append, LogSegment.recover
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT
from kafka_eos.formats.segment import LeaderEpochStart, MalformedFile, read_leader_epochs
from kafka_eos_checks.audit.findings import Finding, Kind
from kafka_eos_checks.audit.moments import GRACE_MS, SKEW_MS, Directory, Source, written_ms
from kafka_eos_checks.audit.places import place
from kafka_eos_checks.audit.rules.log import Reason, Reasons, Subject
from kafka_eos_checks.audit.segments.contents import Figures
from kafka_eos_checks.audit.segments.splits import PartitionLog, segment_with
from kafka_eos_checks.kit.verdict import counted

LEADER_EPOCHS = "leader epoch checkpoint"
BEGINS_AT = "the file begins at offset"
SHOWN_RUNS = 3  # lines that a file should have, in a finding

OTHER_MOMENT = Reason(
    "other-moment",
    "leader-epoch-checkpoint disagrees with the log, and they may be of different moments: audit the directory in "
    "place while nothing is written, or copy it while its broker is stopped, or say --snapshot if it stood still",
)
FIRST_LINES = Reason(
    "no-epoch",
    "leader-epoch-checkpoint begins after batches of the log, and no records were deleted up to there: its first lines "
    "are missing, or the file was removed once; what the broker tells followers of these batches cannot be judged",
)


class LeaderRun(NamedTuple):
    """Consecutive batches of one leader.

    Attributes:
        epoch: the leader's epoch.
        first: the first offset of the first one.
        last: the last offset of the last one.
    """

    epoch: int
    first: int
    last: int


class Lines(NamedTuple):
    """A file ``leader-epoch-checkpoint``: its lines, and when it was written, in milliseconds since the epoch."""

    entries: tuple[LeaderEpochStart, ...]
    written_ms: float


class Led(NamedTuple):
    """A log that was read: the log, and the runs of its leaders in log order."""

    log: PartitionLog
    runs: Sequence[LeaderRun]

    @property
    def goes_on(self) -> bool:
        """Whether the leaders' epochs never go back."""
        return all(one.epoch < other.epoch for one, other in pairwise(self.runs))


def joined(runs: Iterable[LeaderRun]) -> list[LeaderRun]:
    """Runs in log order, of which those of the same leader that follow one another become one."""
    found: list[LeaderRun] = []
    for run in runs:
        if found and found[-1].epoch == run.epoch:
            found[-1] = found[-1]._replace(last=run.last)
        else:
            found.append(run)
    return found


def read_lines(log: PartitionLog) -> Lines | None:
    """Read the file next to a log; None without one, and if it is not in its format, which is reported elsewhere."""
    path = place(log.folder) / LEADER_EPOCH_CHECKPOINT
    try:
        moment = written_ms(path)
        if path.is_symlink() or not path.is_file():
            return None
        return Lines(read_leader_epochs(path), moment)
    except MalformedFile:
        return None


class EpochAudit:
    """The findings of the rule, its figures, and the reasons why something was not judged.

    Args:
        source: the evidence in the log directories, from before the logs were read.
    """

    def __init__(self, source: Source) -> None:
        self.findings: list[Finding] = []
        self.figures: Figures = {"logs": 0, "entries": 0, "unknown": 0, "recent": 0}
        self.reasons = Reasons()
        self._source = source

    def judge(self, led: Led, lines: Lines) -> None:
        """Compare the file of a log with its leaders; read the file after the log."""
        self._count("logs")
        self._count("entries", len(lines.entries))
        told = self._source.directories.get(led.log.directory, Directory())
        if (disorder := disorder_of(lines.entries)) is not None:
            self._find(led.log, *disorder)
            return
        wrong = [each for run in led.runs if (each := difference(run, lines.entries)) is not None]
        if wrong:
            offset, evidence = wrong[0]
            if self._are_of_one_moment(led.log, told, lines.written_ms, offset):
                self._find(led.log, offset, f"{evidence}{_more(len(wrong) - 1)}{_due(led.runs)}")
            else:
                self._leave(OTHER_MOMENT, led.log, offset, evidence)
            return
        before = uncovered(led.runs, lines.entries, self._source.deleted_below(led.log))
        if before is None:
            return
        if told.stopped or _is_old(led.log, told, lines.written_ms, before.first):
            self._leave(FIRST_LINES, led.log, before.first, _begins_after(before, lines.entries))
        else:
            self._count("recent")

    def _are_of_one_moment(self, log: PartitionLog, told: Directory, file_ms: float, offset: int) -> bool:
        """Whether the file and the batches at an offset cannot be of different moments."""
        if self._source.one_moment or told.stopped:
            return True
        if told.read_ms is None:
            return False
        return max(file_ms, written_ms(_segment_at(log, offset))) + SKEW_MS < told.read_ms

    def _find(self, log: PartitionLog, offset: int, evidence: str, kind: Kind = Kind.VIOLATION) -> None:
        found = Finding(rule=LEADER_EPOCHS, topic=log.topic, partition=log.partition, broker=log.broker)
        found = replace(found, file=LEADER_EPOCH_CHECKPOINT, offset=offset, evidence=evidence, kind=kind.value)
        self.findings.append(found)

    def _leave(self, reason: Reason, log: PartitionLog, offset: int, evidence: str) -> None:
        self._count("unknown")
        self._find(log, offset, evidence, Kind.NOT_JUDGED)
        self.reasons.count(reason, Subject(log.topic, log.partition, offset))

    def _count(self, name: str, more: int = 1) -> None:
        self.figures[name] = int(self.figures[name]) + more


def disorder_of(entries: Sequence[LeaderEpochStart]) -> tuple[int, str] | None:
    """The first line that no broker writes after the line before it: where it begins, and why; None for none.

    Brokers before Kafka 2.1 wrote a line that begins where the one before does, if its leader had written nothing.
    """
    for one, other in pairwise(entries):
        if other.epoch <= one.epoch or other.start_offset < one.start_offset:
            return other.start_offset, f"the line {_line(other)} comes after the line {_line(one)}"
    return None


def difference(run: LeaderRun, entries: Sequence[LeaderEpochStart]) -> tuple[int, str] | None:
    """How a leader's batches disagree with lines in order: the offset and the evidence; None if they agree.

    Batches before the first line do not count.
    """
    if not entries or run.last < entries[0].start_offset:
        return None
    starts = [each.start_offset for each in entries]
    for offset in (max(run.first, starts[0]), run.last):
        entry = entries[bisect_right(starts, offset) - 1]
        if entry.epoch != run.epoch:
            evidence = (
                f"the batches of the offsets {run.first:,} to {run.last:,} have the leader epoch {run.epoch}, and the "
                f"file has the epoch {entry.epoch} from offset {entry.start_offset:,} on"
            )
            return max(run.first, entry.start_offset), evidence
    return None


def uncovered(runs: Iterable[LeaderRun], entries: Sequence[LeaderEpochStart], deleted_below: int) -> LeaderRun | None:
    """The first leader's batches before the first line, unless a deletion of records explains it; None without any.

    A deletion below an offset leaves a first line that begins there, mostly behind other batches of the same leader.
    """
    before = [run for run in runs if not entries or run.first < entries[0].start_offset]
    if entries and before and before[-1].epoch == entries[0].epoch:
        return None
    return next((run for run in before if run.last >= deleted_below), None)


def _is_old(log: PartitionLog, told: Directory, file_ms: float, offset: int) -> bool:
    """Whether a file was written long before its broker ended, or before now if the broker runs and has the segment.

    A follower deletes segments some minutes after the lines of their leaders, and notes where its log begins each
    minute.
    """
    if told.read_ms is not None:
        return file_ms + GRACE_MS < told.read_ms and _segment_at(log, offset).is_file()
    return file_ms + GRACE_MS < written_ms(log.file(log.segments[-1]))


def _segment_at(log: PartitionLog, offset: int) -> Path:
    """The segment of a log that an offset belongs to; the first one if it is before all."""
    return log.file(segment_with(log, offset) or log.segments[0])


def _begins_after(run: LeaderRun, entries: Sequence[LeaderEpochStart]) -> str:
    begins = f"{BEGINS_AT} {entries[0].start_offset:,}" if entries else f"{BEGINS_AT} none"
    return f"{begins}, and batches from offset {run.first:,} on have the leader epoch {run.epoch}"


def _line(entry: LeaderEpochStart) -> str:
    return f"`{entry.epoch} {entry.start_offset}`"


def _more(count: int) -> str:
    return f"; the file is wrong about {counted(count, 'more leader')}, too" if count else ""


def _due(runs: Sequence[LeaderRun]) -> str:
    """The lines that follow from the batches, in words."""
    shown = ", ".join(f"`{run.epoch} {run.first}`" for run in runs[:SHOWN_RUNS])
    rest = f" and {len(runs) - SHOWN_RUNS:,} more" if len(runs) > SHOWN_RUNS else ""
    return f"; by the batches its lines are {shown}{rest}"
