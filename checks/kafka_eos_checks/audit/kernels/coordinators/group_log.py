"""The fold of ``__consumer_offsets`` by columns: which committed offsets count, and which may have gone back.

The records of a log are read chunk by chunk (:func:`commits.commit_rows`) and meet twice, in log order each time: those
of a producer id with its markers (:func:`end_transactions`), and then those of a group and partition
(:func:`count_commits`). For the rule over committed offsets a chunk gives only the records at its edges
(:func:`thinned`), so no task gets all records of a group. A record counts if it is later than the highest one that
counted before it, unless record offsets of the log went backwards. For names where they did,
:class:`kafka_eos_checks.audit.rules.offsets.GroupLog` decides.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kafka_eos.formats.consumer_offsets import OffsetCommitKey
from kafka_eos.formats.record_batch import ControlType
from kafka_eos_checks.audit.internal_topics.chunks import chunk_runs
from kafka_eos_checks.audit.internal_topics.commits import (
    NO_MARKER,
    CommitChunk,
    Commits,
    Name,
    commit_rows,
    concatenate_commits,
    name_of,
)
from kafka_eos_checks.audit.rules.offsets import Commit, GroupLog
from kafka_eos_checks.audit.segments.headers import Ints, Mask
from kafka_eos_checks.audit.segments.order import by_appearance, stable_order
from kafka_eos_checks.audit.segments.splits import PartitionLog, plan


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The facts of a whole log of ``__consumer_offsets``, from its chunks.

    Attributes:
        log: the log.
        end: one past the last offset.
        holes: how many holes and unreadable records it has.
        whole: whether it begins at offset 0, with no hole and no damage.
        stamped_ms: the last timestamp of the group's coordinator; -1 for none.
        chunks: by split and first byte, how many records and how many holes are before the chunk's first record, and
            the segment's file name.
    """

    log: PartitionLog
    end: int = 0
    holes: int = 0
    whole: bool = True
    stamped_ms: int = -1
    chunks: Mapping[tuple[int, int], tuple[int, int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, log: PartitionLog, chunks: Iterable[CommitChunk]) -> "GroupFacts":
        """The facts of a log, from all its chunks, in any order; their records are not needed."""
        end = holes = records = 0
        damaged, stamped_ms = False, -1
        places = {}
        for chunk in sorted(chunks, key=lambda each: (each.split, each.start)):
            if chunk.records:
                holes += chunk.first_offset != end
                end = chunk.end_offset
            places[chunk.split, chunk.start] = records, holes, chunk.segment
            records += chunk.records
            holes += chunk.holes
            damaged |= chunk.damaged
            stamped_ms = max(stamped_ms, chunk.stamped_ms)
        return cls(log, end, holes, not holes and not damaged, stamped_ms, places)

    def places(self, commits: Commits) -> tuple[Ints, Ints]:
        """The number of each record in the log, and the number of holes before it, shape (n,) each."""
        chunks, sizes = chunk_runs(commits.split, commits.start)
        before = np.array([self.chunks[chunk][:2] for chunk in chunks], np.int64).reshape(-1, 2)
        records, holes = np.repeat(before, sizes, axis=0).T
        return records + commits.row, holes + commits.holes


@dataclass(frozen=True, slots=True)
class Ended:
    """Committed offsets that a group's coordinator has applied or dropped, those of a transaction at its end.

    Attributes:
        commits: the records.
        number: the number of each record in the log, shape (n,).
        ended: the number of the record at which that happened: the marker, or the record itself outside of any
            transaction.
        holes: how many holes the log has before it, shape (n,).
        committed: whether it may count: all except those of an aborted transaction, shape (n,).
    """

    commits: Commits
    number: Ints
    ended: Ints
    holes: Ints
    committed: Mask


def end_transactions(commits: Commits, facts: GroupFacts) -> Ended:
    """Find the marker of each committed offset. Offsets without a marker, or with a hole before it, are left out.

    Args:
        commits: all committed offsets and markers of some producer ids, in log order; those outside of any transaction
            may be among them.
        facts: the facts of their log.
    """
    return _ended(commits, *facts.places(commits))


def _ended(commits: Commits, number: Ints, holes: Ints) -> Ended:
    is_marker = commits.decision != NO_MARKER
    ended = np.where((commits.transactional == 0) & ~is_marker, number, -1)
    committed = ended >= 0
    rows = np.flatnonzero(~committed)
    following = next_markers(commits.producer_id[rows], is_marker[rows])
    there = (following >= 0) & ~is_marker[rows]
    one, marker = rows[there], rows[following[there]]
    same = holes[one] == holes[marker]
    one, marker = one[same], marker[same]
    ended[one] = number[marker]
    committed[one] = commits.decision[marker] == ControlType.COMMIT
    kept = np.flatnonzero((ended >= 0) & ~is_marker)
    return Ended(commits.take(kept), number[kept], ended[kept], holes[kept], committed[kept])


def thinned(commits: Commits) -> tuple[Commits, int]:
    """Leave out the records of a chunk that cannot show whether an offset went back; tell how many of these counted.

    Of the offsets of a group and partition that rise, and count in the order of their records, the first and the last
    stay. So do those that the chunk does not end, the first marker of each producer id, and the markers of what stays.
    The offsets of the log must not go backwards.
    """
    found = _ended(commits, commits.row.astype(np.int64), commits.holes)
    place, own = np.searchsorted(commits.row, found.number), np.flatnonzero(found.committed)
    kept = np.ones(len(commits), np.bool_)
    kept[place[~found.committed]] = False
    order = own[stable_order(found.commits.key[own])]
    key, offset, ended = found.commits.key[order], found.commits.offset[order], found.ended[order]
    inner = key[1:] == key[:-1]
    falls = inner & ((offset[1:] < offset[:-1]) | (ended[1:] < ended[:-1]))
    rises = np.ones(len(commits.keys), np.bool_)
    rises[key[1:][falls]] = False
    between = rises[key]
    between[1:] &= inner
    between[:-1] &= inner
    if len(between):
        between[[0, -1]] = False
    kept[place[order[between]]] = False

    is_marker = commits.decision != NO_MARKER
    rows = np.flatnonzero((commits.transactional != 0) | is_marker)
    following = next_markers(commits.producer_id[rows], is_marker[rows])
    needed = rows[following[kept[rows] & ~is_marker[rows] & (following >= 0)]]
    markers = np.flatnonzero(is_marker)
    _, first = np.unique(commits.producer_id[markers], return_index=True)
    kept[markers] = False
    kept[markers[first]] = True
    kept[needed] = True
    return commits.take(kept), int(between.sum())


def next_markers(producer_id: Ints, is_marker: Mask) -> Ints:
    """The row of the next marker of the same producer id at or after each row; -1 without one, shape (n,)."""
    count = len(producer_id)
    order = stable_order(producer_id)
    places = np.where(is_marker[order], np.arange(count), count)
    following = np.minimum.accumulate(places[::-1])[::-1]
    there = np.flatnonzero(following < count)
    one, marker = order[there], order[following[there]]
    found = np.full(count, -1, np.int64)
    found[one] = np.where(producer_id[one] == producer_id[marker], marker, -1)
    return found


@dataclass(frozen=True, slots=True)
class CountedCommits:
    """The committed offsets that counted, by group and partition, in the order in which they did.

    Attributes:
        keys: keys of groups and partitions, in the order in which the first offset of each was applied, shape (i,).
        begin: where the offsets of each begin, shape (i + 1,).
        commits: the commits that counted.
        holes: how many holes the log had before each.
        files: by split and first byte of a chunk, the segment's file name.
        followed: the number of names for which the readable rule had to decide.
    """

    keys: list[bytes]
    begin: Ints
    commits: Commits
    holes: Ints
    files: Mapping[tuple[int, int], str]
    followed: int

    @property
    def number(self) -> Ints:
        """For each commit the number of its group and partition."""
        return np.repeat(np.arange(len(self.keys)), np.diff(self.begin))

    def of(self, number: int) -> list[Commit]:
        """The committed offsets of one group and partition that counted."""
        return self.at(slice(*self.begin[number : number + 2].tolist()))

    def at(self, rows: Ints | slice) -> list[Commit]:
        """Some of the committed offsets."""
        return list(_readable(self.commits.take(rows), self.holes[rows], self.files))

    def last_offsets(self) -> Iterator[tuple[Name, int | None]]:
        """The last offset that counts of each group and partition; None for a tombstone."""
        there = np.flatnonzero(np.diff(self.begin))
        rows = self.begin[there + 1] - 1
        columns = there, self.commits.offset[rows], self.commits.tombstone[rows]
        for number, offset, forgotten in zip(*(column.tolist() for column in columns), strict=True):
            yield name_of(self.keys[number]), None if forgotten else offset

    def falling(self) -> Ints:
        """The names with an offset below the one before it, and no tombstone in between."""
        commits = self.commits
        falls = np.zeros(len(commits), np.bool_)
        falls[1:] = (commits.offset[1:] < commits.offset[:-1]) & ~(
            commits.tombstone[1:] | commits.tombstone[:-1]
        ).astype(np.bool_)
        falls[self.begin[:-1][self.begin[:-1] < len(commits)]] = False
        return np.unique(np.searchsorted(self.begin, np.flatnonzero(falls), "right") - 1)


class CommitsByName(Mapping[Name, list[Commit]]):
    """The committed offsets that counted, by group and partition, made on demand; an empty list for any other name."""

    def __init__(self, counted: CountedCommits) -> None:
        self._counted = counted
        self._number = {key: number for number, key in enumerate(counted.keys)}

    def __getitem__(self, name: Name) -> list[Commit]:
        number = self._number.get(_key(name))
        return [] if number is None else self._counted.of(number)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, tuple) and _key(name) in self._number

    def __iter__(self) -> Iterator[Name]:
        return map(name_of, self._number)

    def __len__(self) -> int:
        return len(self._number)


def _key(name: Name) -> bytes:
    group, (topic, partition) = name
    return OffsetCommitKey(group=group, topic=topic, partition=partition).encode()


def count_commits(ended: Ended, facts: GroupFacts) -> CountedCommits:
    """Choose the committed offsets that counted, for some groups and partitions."""
    commits = ended.commits
    count = len(commits)
    in_order = bool((ended.number[1:] > ended.number[:-1]).all())
    order = np.argsort(ended.ended, kind="stable") if in_order else np.lexsort((ended.number, ended.ended))
    numbers, place = by_appearance(commits.key[order], len(commits.keys))
    names = place[commits.key[order]]
    by_name = stable_order(names)
    order, names = order[by_name], names[by_name]
    begin = np.searchsorted(names, np.arange(len(numbers) + 1))
    committed, alone = ended.committed[order], commits.transactional[order] == 0

    # A record counts if it is after the last one that counted, which is the highest so far unless offsets go back.
    if (commits.record[1:] > commits.record[:-1]).all():
        places = order + 1
    else:
        places = np.unique(commits.record[order], return_inverse=True)[1] + 1
    floor = names.astype(np.int64) * count  # each place is above its floor, and none above the next one
    highest = np.maximum.accumulate(floor + np.where(committed, places, 0))
    before = np.concatenate(([0], highest[:-1]))
    later = floor + places > np.maximum(before, floor)
    counts = committed & (alone | later)
    left = np.unique(names[alone & ~later])
    files = {key: file for key, (_, _, file) in facts.chunks.items()}
    for name in left.tolist():
        rows = order[begin[name] : begin[name + 1]]
        counts[begin[name] : begin[name + 1]] = _follow(ended, rows, facts, files)
    kept = order[counts]
    return CountedCommits(
        keys=[commits.keys[number] for number in numbers.tolist()],
        begin=np.searchsorted(names[counts], np.arange(len(numbers) + 1)),
        commits=commits.take(kept),
        holes=ended.holes[kept],
        files=files,
        followed=len(left),
    )


def _follow(ended: Ended, rows: Ints, facts: GroupFacts, files: Mapping[tuple[int, int], str]) -> Mask:
    """Whether each record of one group and partition counted, by the readable rule."""
    log = GroupLog(facts.log)
    name = "", ("", 0)
    told = []
    columns = ended.committed[rows].tolist()
    for commit, committed in zip(_readable(ended.commits.take(rows), ended.holes[rows], files), columns, strict=True):
        before = len(log.commits[name])
        log.take(name, commit)
        if commit.transactional:
            log.end_transaction(commit.producer_id, ControlType.COMMIT if committed else ControlType.ABORT)
        told.append(len(log.commits[name]) > before)
    return np.array(told, np.bool_)


def _readable(commits: Commits, holes: Ints, files: Mapping[tuple[int, int], str]) -> Iterator[Commit]:
    columns = (
        commits.split,
        commits.start,
        commits.position,
        commits.record,
        commits.producer_id,
        commits.producer_epoch,
        commits.transactional,
        commits.tombstone,
        commits.offset,
        holes,
    )
    for split, start, position, record, pid, epoch, in_transaction, forgotten, offset, before in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        yield Commit(
            file=files[split, start],
            position=position,
            record=record,
            producer_id=pid,
            producer_epoch=epoch,
            transactional=bool(in_transaction),
            offset=None if forgotten else offset,
            holes=before,
        )


def read_group_log(log: PartitionLog, check_crc: bool = True) -> GroupLog:
    """Fold one log of ``__consumer_offsets``."""
    return fold_group_log(log, [chunk for split in plan([log]) for chunk in commit_rows(split, check_crc)])


def fold_group_log(log: PartitionLog, chunks: Sequence[CommitChunk]) -> GroupLog:
    """Fold all chunks of a log of ``__consumer_offsets``, in order."""
    facts = GroupFacts.of(log, chunks)
    counted = count_commits(end_transactions(concatenate_commits([chunk.commits for chunk in chunks]), facts), facts)
    return GroupLog(
        log,
        commits=CommitsByName(counted),
        end=facts.end,
        holes=facts.holes,
        whole=facts.whole,
        stamped_ms=facts.stamped_ms,
        counted=counted,
    )
