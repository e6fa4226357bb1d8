"""The rules of :mod:`rules.log` by chunks: proofs about a chunk that do not depend on the batches before it.

A chunk is a run of consecutive batches of one log. :func:`local` judges it by itself, vectorised, and proves for most
producers that their batches follow one another without a violation. Such a producer becomes one boundary row: the facts
to check against the batches before the chunk, and the state after it. :class:`Combine` folds the chunks of a log from
left to right.

A chunk never writes a finding. If a producer's batches are not provably clean, or a boundary row does not fit what was
known, the readable rule runs again over that producer's batches. If offsets go backwards, it runs again over the chunk.
It starts from the exact state at the chunk's start. So the findings are the readable rule's own, whatever the cuts are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from kafka_eos.formats.segment import CorruptRegion
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.kernels.logs.runs import Columns, Runs, columns_of, runs_of
from kafka_eos_checks.audit.kernels.logs.transactions import NOT_TRANSACTIONAL, Transactional, steps_of
from kafka_eos_checks.audit.rules.epochs import LeaderRun
from kafka_eos_checks.audit.rules.log import (
    ANYWHERE,
    CLOSED,
    HALF,
    MARKER,
    NONE,
    PLAIN,
    SEQUENCE_MASK,
    TRANSACTIONAL,
    UNKNOWN,
    Batch,
    Log,
    Producer,
    Violation,
    after,
)
from kafka_eos_checks.audit.rules.transactions.partitions import has_damaged_end
from kafka_eos_checks.audit.segments.headers import (
    CONTROL_MASK,
    TRANSACTIONAL_MASK,
    Block,
    Headers,
    Ints,
    concatenate,
    is_set,
    read_index,
)
from kafka_eos_checks.audit.segments.marks import Marks, concatenate_marks
from kafka_eos_checks.audit.segments.reading import read_headers, read_marked, replaced
from kafka_eos_checks.audit.segments.splits import Split

CHUNK_BATCHES = 65_536  # measured: fits the cache; with a million batches in a chunk a batch takes twice as long
# The fields of a header that the rules read.
READ = (
    "base_offset",
    "last_offset_delta",
    "attributes",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
    "leader_epoch",
)
READ_FIRST = (*READ, "base_timestamp", "max_timestamp")  # and the fields that only transactions need

# One row per producer of a chunk. Holes are counted from the chunk's first batch. -1 in an epoch: there is none.
BOUNDARY = np.dtype(
    [
        (name, np.int64)
        for name in (
            "producer_id",
            "unproved",  # 1: the readable rule has to judge this producer's batches
            "lead_epoch",  # the producer's first batch, if it is a marker
            "lead_holes",
            "head_epoch",  # its first data batch
            "head_base_sequence",
            "head_last_sequence",
            "head_holes",
            "tail_epoch",  # after its last data batch or its last marker that raised the epoch
            "tail_last_sequence",
            "tail_holes",  # before its last data batch; without data -1, less those before the marker
            "plain",  # 1: its first batch is data outside of a transaction
            "opened",  # the holes before its last batch in a transaction, if no marker comes after it; or CLOSED
        )
    ]
)


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of a chunk: all that the next chunks of its log need to know.

    Attributes:
        split: number of the split in its log.
        start: first byte of the chunk in its segment.
        end: first byte after it.
        batches: number of batches.
        records: number of records by the headers.
        markers: number of control batches.
        first_offset: base offset of its first batch; -1 without batches.
        end_offset: one past its highest offset; -1 without batches.
        holes: jumps of the offsets inside it.
        disordered: whether its offsets go backwards somewhere, or are not those of their segment.
        boundary: one row per producer, dtype :data:`BOUNDARY`; empty when ``disordered``.
        damage: its regions without a readable batch.
        damaged_end: whether such bytes, and no unfinished tail, follow its last batch.
        undecoded: batches with the right CRC whose records cannot be decoded, if the records were read.
        transactional: number of batches of transactions, markers included.
        transactions: the steps of transactions, and the chunk's times.
        first_hole: the first missing offset of the first hole inside it; None without one.
        hole: the last hole inside it, as :attr:`rules.log.Log.hole`.
        leaders: the first and the last leader epoch of its batches, -1 for none; None if one goes back inside.
        led: the runs of its leaders, in log order; of batches whose offsets go backwards they say nothing.
        hole_starts: the first missing offset of the last hole inside it below each snapshot of its log, if it has any.
        thinned: the last batch with fewer records than offsets: its first offset, and the one after its last.
    """

    split: int
    start: int
    end: int
    batches: int
    records: int
    markers: int
    first_offset: int
    end_offset: int
    holes: int
    disordered: bool
    boundary: NDArray[np.void]
    damage: tuple[CorruptRegion, ...] = ()
    damaged_end: bool = False
    undecoded: tuple[CorruptRegion, ...] = ()
    transactional: int = 0
    transactions: Transactional = NOT_TRANSACTIONAL
    first_hole: int | None = None
    hole: tuple[int, int] | None = None
    leaders: tuple[int, int] | None = (-1, -1)
    led: tuple[LeaderRun, ...] = ()
    hole_starts: tuple[int, ...] = ()
    thinned: tuple[int, int] | None = None


def chunks_of(
    split: Split,
    index: Ints | None,
    check_crc: bool = True,
    take: Callable[[Block], None] | None = None,
    columns: Sequence[str] = READ_FIRST,
) -> Iterator[tuple[int, Headers, Marks]]:
    """Read a split as chunks of at most about :data:`CHUNK_BATCHES` batches: first byte, headers, marks of markers.

    ``take`` is given each block of a segment, for its records; ``columns`` has at least :data:`READ_FIRST`.

    Raises:
        FileNotFoundError: the file ends before the split does: its broker has replaced or cut it since it was listed.
    """
    parts: list[Headers] = []
    marks: list[tuple[int, Marks]] = []
    start, count, end = split.start, 0, split.start
    found = read_marked(split.path, columns, split.start, split.end, index=index, check_crc=check_crc, take=take)
    for part, own in found:
        parts.append(part)
        marks.append((count, own))
        count, end = count + len(part), part.end
        if count >= CHUNK_BATCHES:
            yield start, concatenate(parts), concatenate_marks(marks)
            start, count, parts, marks = part.end, 0, [], []
    if end < split.end:
        raise replaced(split.path)
    if parts:
        yield start, concatenate(parts), concatenate_marks(marks)


def summarise(
    split: Split,
    start: int,
    headers: Headers,
    marks: Marks,
    high_watermark: int = -1,
    offsets: Sequence[int] = (),
) -> tuple[Summary, Runs]:
    """The summary of a chunk of a split, and its runs.

    Args:
        split: the split.
        start: first byte of the chunk.
        headers: its batches.
        marks: the marks of its markers.
        high_watermark: the high watermark of the log, from its directory's checkpoint; -1 if unknown.
        offsets: the offsets of the snapshots of the log, ascending.
    """
    columns = columns_of(headers, split.log.topic)
    runs = runs_of(columns)
    first, end, holes, disordered, boundary = local(columns, runs, split.room)
    summary = Summary(
        split=split.number,
        start=start,
        end=headers.end,
        batches=len(columns),
        records=int(headers.narrow("record_count").sum(dtype=np.int64)),
        markers=int(np.count_nonzero(is_set(headers, CONTROL_MASK))),
        first_offset=first,
        end_offset=end,
        holes=holes,
        disordered=disordered,
        boundary=boundary,
        damage=headers.damage,
        damaged_end=has_damaged_end(headers, False),
        transactional=int(np.count_nonzero(is_set(headers, TRANSACTIONAL_MASK))),
        transactions=steps_of(headers, marks, split.log.topic, columns, runs, high_watermark=high_watermark),
        first_hole=first_hole(columns, runs),
        hole=last_hole(columns, runs),
        leaders=(leaders := leaders_of(columns)),
        led=leader_runs(columns, leaders),
        hole_starts=hole_starts(columns, runs, offsets),
        thinned=last_thinned(headers),
    )
    return summary, runs


def leaders_of(columns: Columns) -> tuple[int, int] | None:
    """The first and the last leader epoch of batches, -1 for none; None if one goes back."""
    epochs = columns.leader_epoch
    if len(epochs) and epochs.min() < 0:
        epochs = epochs[epochs >= 0]
    if not len(epochs):
        return -1, -1
    return None if (epochs[1:] < epochs[:-1]).any() else (int(epochs[0]), int(epochs[-1]))


def leader_runs(columns: Columns, leaders: tuple[int, int] | None) -> tuple[LeaderRun, ...]:
    """The runs of the leaders of batches, of which :func:`leaders_of` has told ``leaders``."""
    epochs = columns.leader_epoch
    if leaders == (-1, -1):
        return ()
    if leaders is not None and leaders[0] == leaders[1] and epochs[0] >= 0 <= epochs[-1]:
        return (LeaderRun(leaders[0], int(columns.base_offset[0]), int(columns.last_offset[-1])),)
    rows = np.flatnonzero(epochs >= 0)
    epochs = epochs[rows]
    begin = np.flatnonzero(np.append(True, epochs[1:] != epochs[:-1]))
    first, last = rows[begin], rows[np.append(begin[1:], len(rows)) - 1]
    own = (epochs[begin], columns.base_offset[first], columns.last_offset[last])
    return tuple(map(LeaderRun, *(each.tolist() for each in own)))


def first_hole(columns: Columns, runs: Runs) -> int | None:
    """The first missing offset of the first hole of a chunk; None without one, or as by :func:`last_hole`."""
    if runs.disordered or not len(columns) or not runs.holes[-1]:
        return None
    return int(columns.last_offset[int(np.searchsorted(runs.holes, 1)) - 1]) + 1


def last_hole(columns: Columns, runs: Runs) -> tuple[int, int] | None:
    """The last hole of a chunk: the first offset that is missing, and the next one that is there; None without one.

    Also None if offsets go backwards, because the readable rule then reads the chunk again.
    """
    if runs.disordered or not len(columns) or not runs.holes[-1]:
        return None
    behind = int(np.searchsorted(runs.holes, runs.holes[-1]))
    return int(columns.last_offset[behind - 1]) + 1, int(columns.base_offset[behind])


def last_thinned(headers: Headers) -> tuple[int, int] | None:
    """The last batch with fewer records than offsets: its first offset, and the one after its last; None for none."""
    deltas = headers.narrow("last_offset_delta")
    thinned = np.flatnonzero(headers.narrow("record_count") <= deltas)
    if not len(thinned):
        return None
    first = int(headers.column("base_offset")[thinned[-1]])
    return first, first + int(deltas[thinned[-1]]) + 1


def hole_starts(columns: Columns, runs: Runs, offsets: Sequence[int]) -> tuple[int, ...]:
    """The first missing offset of the last hole of a chunk below each of some offsets; none for one without a hole.

    Also none if offsets go backwards, because the log is then read again.
    """
    if not offsets or runs.disordered or not len(columns) or not runs.holes[-1]:
        return ()
    starts = columns.last_offset[np.flatnonzero(np.diff(runs.holes))] + 1
    interval = np.searchsorted(np.array(offsets, np.int64), starts, side="right")
    last = np.append(interval[1:] != interval[:-1], True)
    return tuple(starts[last & (interval < len(offsets))].tolist())


def local(columns: Columns, runs: Runs, room: range = ANYWHERE) -> tuple[int, int, int, bool, NDArray[np.void]]:
    """First offset, end offset, holes, disordered and boundary rows of a chunk, read from the chunk only.

    ``room`` has the offsets that its segment may hold.
    """
    if not len(columns):
        return -1, -1, 0, False, np.empty(0, BOUNDARY)
    first = int(columns.base_offset[0])
    if runs.disordered or first not in room or int(columns.base_offset[-1]) not in room:
        return first, runs.end, 0, True, np.empty(0, BOUNDARY)
    return first, runs.end, int(runs.holes[-1]), False, _boundary_rows(columns, runs)


def _boundary_rows(columns: Columns, runs: Runs) -> NDArray[np.void]:
    """The boundary rows, one per producer. An anchor is a run after which the last sequence is known."""
    rows = runs.first
    if not len(rows):
        return np.empty(0, BOUNDARY)
    pid, epoch = columns.producer_id[rows], columns.producer_epoch[rows]
    base, last = columns.base_sequence[rows], columns.last_sequence[runs.last]
    data, h = ~columns.unsequenced[rows], runs.holes[rows]
    inner = np.append(False, pid[1:] == pid[:-1])
    first = np.flatnonzero(~inner)
    owner = np.cumsum(~inner) - 1
    rise = np.where(inner, np.diff(epoch, prepend=epoch[:1]), 0)
    anchors, datas = _latest(data | (rise > 0)), _latest(data)
    before = np.append(-1, anchors[:-1])
    head = data & (np.append(-1, datas[:-1]) < first[owner])

    # Whether a run follows its anchor without a violation, by :func:`rules.log.after`.
    fresh = ~data[before] | (epoch > epoch[before])
    expected = np.where(fresh, 0, (last[before] + 1) & SEQUENCE_MASK)
    ahead = fresh | ((base - expected) & SEQUENCE_MASK < HALF)
    follows = (base == expected) | (ahead & (h > h[before]))

    # Whether a run of plain data may come while a transaction of its producer is open.
    kind = columns.kind[rows]
    settling = _latest(kind != PLAIN)
    earlier = np.append(-1, settling[:-1])
    outside = (kind == PLAIN) & (earlier >= first[owner]) & (kind[earlier] == TRANSACTIONAL)

    unproved = (rise < 0) | (data & (before >= first[owner]) & ~follows) | (epoch < 0) | outside
    found = np.full(len(first), -1, BOUNDARY)
    found["producer_id"] = pid[first]
    found["unproved"] = 0
    found["unproved"][owner[unproved]] = 1
    lead = ~data[first]
    found["lead_epoch"][lead] = epoch[first[lead]]
    found["lead_holes"][lead] = h[first[lead]]
    own = owner[head]
    found["head_epoch"][own] = epoch[head]
    found["head_base_sequence"][own] = base[head]
    found["head_last_sequence"][own] = columns.last_sequence[rows[head]]
    found["head_holes"][own] = h[head]
    tail = anchors[np.append(first[1:], len(rows)) - 1]
    known = tail >= first
    tail = tail[known]
    found["tail_epoch"][known] = epoch[tail]
    found["tail_last_sequence"][known] = np.where(data[tail], last[tail], NONE)
    certain = datas[tail]  # a marker does not tell whether a hole before it had data of its epoch
    found["tail_holes"][known] = np.where(certain >= first[known], h[certain], -1 - h[tail])
    found["plain"] = kind[first] == PLAIN
    settled = settling[np.append(first[1:], len(rows)) - 1]
    found["opened"] = np.where((settled >= first) & (kind[settled] == TRANSACTIONAL), h[settled], CLOSED)
    return found


def _latest(which: NDArray[np.bool_]) -> Ints:
    """The last place, up to each place, at which something holds; -1 before there is one."""
    latest: Ints = np.maximum.accumulate(np.where(which, np.arange(len(which)), -1))
    return latest


Reread = Callable[[Summary], Columns]  # the batches of a chunk


class Fold:
    """Folds the summaries of a log's chunks, in order; the readable rule decides where a summary is not enough.

    Attributes:
        log: the state of the rules so far; its producers belong to the fold.
        reruns: how often the batches of a chunk were read again.
    """

    def __init__(self, log: Log | None = None) -> None:
        self.log = log or Log()
        self.reruns = 0

    def add(
        self, chunk: Summary, batches: Callable[[], Columns], room: range = ANYWHERE
    ) -> list[tuple[Batch, Violation]]:
        """Fold one more chunk; return the violations in it, in order of position.

        Args:
            chunk: the summary of the next chunk.
            batches: returns the chunk's batches if the readable rule has to decide.
            room: the offsets that the chunk's segment may hold.
        """
        if not chunk.batches:
            return []
        log = self.log
        leaders = chunk.leaders
        if leaders is None or 0 <= leaders[0] < log.leader_epoch:
            return self._rerun_chunk(batches(), room)
        if chunk.disordered or (log.end is not None and chunk.first_offset < log.end):
            return self._rerun_chunk(batches(), room)
        if log.end is None:
            log = replace(log, whole=chunk.first_offset == 0)
        elif chunk.first_offset > log.end:
            log = log.after_hole(chunk.first_offset)
        unresolved = _resolve(log, chunk.boundary)
        found = self._rerun_producers(batches(), log, unresolved) if unresolved else []
        holes, hole = log.holes + chunk.holes, chunk.hole or log.hole
        led = max(log.leader_epoch, leaders[1])
        self.log = replace(log, end=chunk.end_offset, holes=holes, hole=hole, leader_epoch=led, misplaced=None)
        return found

    def _rerun_chunk(self, columns: Columns, room: range) -> list[tuple[Batch, Violation]]:
        self.reruns += 1
        found = []
        for batch in columns.batches():
            self.log, violation = self.log.append(batch, room)
            if violation is not None:
                found.append((batch, violation))
        return found

    def _rerun_producers(self, columns: Columns, log: Log, producer_ids: list[int]) -> list[tuple[Batch, Violation]]:
        self.reruns += 1
        holes = runs_of(columns).holes.astype(np.int64) + log.holes
        which = np.isin(columns.producer_id, producer_ids)
        found = []
        for batch, count in zip(columns.take(which).batches(), holes[which].tolist(), strict=True):
            known = log.producers.get(batch.producer_id)
            log.producers[batch.producer_id], violation = after(known, batch, count, log.whole)
            if violation is not None:
                found.append((batch, violation))
        return found


class Combine:
    """Folds the summaries of one log's splits, which must tile it, into its findings.

    Args:
        splits: all splits of the log, in order.
        reread: reads a chunk's batches again if the readable rule has to decide.

    Attributes:
        findings: the violations so far; of the last one, those that follow from it are not counted yet.
    """

    def __init__(self, splits: Sequence[Split], reread: Reread) -> None:
        self.findings: list[Finding] = []
        self._splits = splits
        self._reread = reread
        self._fold = Fold()
        self._last: tuple[Split, Batch, Violation] | None = None  # the last violation
        self._others, self._up_to = 0, -1  # how many follow from it, and the last offset of these
        self._split, self._position = 0, splits[0].start if splits else 0

    def add(self, chunk: Summary) -> None:
        """Fold one more chunk, which must begin where the one before it ended."""
        self._advance(chunk)
        split = self._splits[chunk.split]
        for batch, violation in self._fold.add(chunk, lambda: self._reread(chunk), split.room):
            if violation.follows:
                self._others, self._up_to = self._others + 1, batch.last_offset
                continue
            self._count_others()
            self._last = split, batch, violation
            self.findings.append(finding(split, batch, violation))

    def _count_others(self) -> None:
        """Count what follows from the last violation, in its finding."""
        if self._last is not None and self._others:
            split, batch, violation = self._last
            self.findings[-1] = finding(split, batch, violation.followed_by(self._others, self._up_to))
        self._others = 0

    @property
    def holes(self) -> int:
        """Jumps of the offsets so far."""
        return self._fold.log.holes

    @property
    def hole(self) -> tuple[int, int] | None:
        """The last of them, see :attr:`rules.log.Log.hole`."""
        return self._fold.log.hole

    @property
    def reruns(self) -> int:
        """The number of times that a chunk was read again."""
        return self._fold.reruns

    def finish(self) -> list[Finding]:
        """The findings, once every byte of every split has been folded."""
        missing = len(self._splits) - self._split
        assert missing == 0, f"{missing} split(s) of the log were never folded"
        self._count_others()
        return self.findings

    def _advance(self, chunk: Summary) -> None:
        assert self._split < len(self._splits), f"chunk of split {chunk.split} after the end of the log"
        split = self._splits[self._split]
        assert (chunk.split, chunk.start) == (split.number, self._position), (
            f"chunks must tile the log: expected split {split.number} byte {self._position}, "
            f"found split {chunk.split} byte {chunk.start}"
        )
        self._position = chunk.end
        if chunk.end >= split.end:
            self._split += 1
            self._position = self._splits[self._split].start if self._split < len(self._splits) else 0


def _resolve(log: Log, rows: NDArray[np.void]) -> list[int]:
    """Fold boundary rows into the log's producers; return the producer ids for which the readable rule must decide."""
    pids = rows["producer_id"].tolist()
    found = map(log.producers.get, pids, repeat(_NEW))
    known = np.fromiter(chain.from_iterable(found), np.int64).reshape(-1, len(_NEW))  # np.array takes six times as long
    before, last = known[:, 0], known[:, 1]
    # Nearly all producers go on after their last batch, or begin a new epoch.
    lead, epoch = rows["lead_epoch"], rows["head_epoch"]
    plain = rows["head_base_sequence"] == np.where(before == epoch, (last + 1) & SEQUENCE_MASK, 0)
    plain &= (rows["unproved"] == 0) & (before <= epoch) & ((lead < 0) | ((before <= lead) & (lead <= epoch)))
    plain &= (rows["plain"] == 0) | (known[:, 3] != log.holes)
    own = rows[plain]
    opened = np.where(own["opened"] == CLOSED, CLOSED, own["opened"] + log.holes)
    tails = (own["tail_epoch"], own["tail_last_sequence"], own["tail_holes"] + log.holes, opened)
    states = map(Producer, *(column.tolist() for column in tails))
    log.producers.update(zip(own["producer_id"].tolist(), states, strict=True))
    return [row[0] for row in rows[~plain].tolist() if not _resolve_one(log, row)]


_NEW = Producer(NONE, NONE, UNKNOWN)


def _resolve_one(log: Log, row: tuple[int, ...]) -> bool:
    """Fold one boundary row into the log's producers; False, and nothing folded, when the readable rule must decide."""
    pid, unproved, lead, lead_holes, epoch, base, last, holes, tail, tail_last, tail_holes, plain, opened = row
    known, violation = log.producers.get(pid), None
    if unproved or (plain and known is not None and known.opened == log.holes):
        return False
    if lead >= 0:
        known, violation = after(known, _marker(pid, lead), log.holes + lead_holes, log.whole)
    if epoch >= 0 and violation is None:
        head = Batch(0, 0, 0, pid, epoch, base, last, False, TRANSACTIONAL)  # of which kind was judged above
        known, violation = after(known, head, log.holes + holes, log.whole)
    if violation is not None:
        return False
    assert known is not None, "a producer of a chunk has a marker or a data batch in it"
    if tail >= 0 and tail_holes >= 0:
        known = Producer(tail, tail_last, log.holes + tail_holes)
    elif tail >= 0:
        known = Producer(tail, tail_last, known.holes if log.holes - 1 - tail_holes else 0)
    log.producers[pid] = known._replace(opened=CLOSED if opened == CLOSED else opened + log.holes)
    return True


def _marker(producer_id: int, epoch: int) -> Batch:
    return Batch(0, 0, 0, producer_id, epoch, NONE, NONE, True, MARKER)


def finding(split: Split, batch: Batch, violation: Violation) -> Finding:
    """A violation with the place where it was found."""
    return Finding(
        rule=violation.rule,
        topic=split.log.topic,
        partition=split.log.partition,
        broker=split.log.broker,
        file=split.segment,
        position=batch.position,
        offset=batch.base_offset,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        evidence=violation.evidence,
        kind=violation.kind.value,
    )


def reread_from(splits: Sequence[Split], check_crc: bool = True) -> Reread:
    """Return a function that reads chunks again from the files.

    Args:
        splits: all splits of the log, in order.
        check_crc: whether batches were compared with their CRC. They are compared again only in a chunk with damage, so
            that the same damage is found.

    The function raises FileNotFoundError if a file no longer has the chunk: its broker has replaced or cut it.
    """

    def reread(chunk: Summary) -> Columns:
        path = splits[chunk.split].path
        check = check_crc and bool(chunk.damage)
        found = list(read_headers(path, chunk.start, chunk.end, index=read_index(path), check_crc=check, columns=READ))
        headers = concatenate(found) if found else None
        if headers is None or len(headers) != chunk.batches or headers.end != chunk.end:
            raise replaced(path)
        return columns_of(headers, splits[chunk.split].log.topic)

    return reread
