"""Logs that lack their end, their beginning, a segment or offsets in their midst, and partitions that are not there.

Segments alone do not show this: retention removes the first ones, and compaction leaves holes and empty segments. The
small files of a log directory do.

*The end.* A broker never has a high watermark above the end of its log. So a log that ends below the mark in
``replication-offset-checkpoint`` was cut, emptied or not copied to its end, or its last records are lost. In a copy of
a running broker it may just be the older file, which is no fault.

*A segment.* A broker renames all files of a segment before it removes one of them. So an ``.index``, ``.timeindex`` or
``.txnindex`` whose segment is missing shows that the segment was lost. And a segment that is not the last one is empty
only if the cleaner has left no record in it; then its indexes are empty, too. If neither of them is given, this is not
judged. Nor is it judged if ``cleaner-offset-checkpoint`` has lines and none for the log, because then no cleaner of
this broker has been there.

*The beginning.* When retention deletes segments, a broker lets the first entry of ``leader-epoch-checkpoint`` begin
where the log then does. So a log that begins later has lost its first segments, unless they are in tiered storage: for
a topic with that, and for a log of which records were deleted on request, ``log-start-offset-checkpoint`` has a line.
Without this file it is not judged. Segments that are being deleted or replaced (``.deleted``, ``.swap``) still count.

*A partition.* A checkpoint has a line for each partition of its directory. Where its folder is missing it may just not
have been copied, so this is not judged; unless the broker has set the folder aside, to delete or to move it.

*Damaged files.* A checkpoint that is not in its format counts as missing, and is reported (:func:`damaged_files`). A
broker replaces it as a whole, so it is no older or newer copy.

*Topics of one name.* A topic that is deleted and made again has another id, in the ``partition.metadata`` of each
replica. Logs of a topic with different ids have nothing to do with each other: their transactions, their replicas and
their offsets would be compared for nothing. So none of them is judged (:func:`mixed_topics`).

*An older copy.* A replica that ends below the high watermark of another one was out of sync, or its directory is an
older copy or a backup. Nobody can tell which of them, so it is no violation, and is told (:func:`behind_others`).

*The end, without a checkpoint.* What is left of a later segment shows the same: its indexes, a link in its place, or
the segment under another name, as a packed one has. No rule then concludes anything from what the log lacks
(:func:`lacks_end`).

*Offsets in their midst.* A leader gives every offset, refuses batches with another number of records than offsets, and
retention deletes a log from its beginning. So only the cleaner leaves holes between batches and inside of them, and
``cleaner-offset-checkpoint`` has the offset up to which it came in each log. Any other hole is of a segment or a batch
that is missing. Or the log was copied from a replica whose cleaner had been there, so such a hole is not judged.

*Segments that overlap.* The cleaner writes what several segments have left into one, and sets these aside before it
gives the new one its name. A copy that took one of them before and the new one after has the same batches in both. The
older one is no part of the log any more (:func:`merged_segments`).

Kafka: ReplicaManager.checkpointHighWatermarks, LogManager.checkpointLogStartOffsetsInDir, Cleaner.cleanSegments,
       LogValidator.validateBatch, LogCleanerManager.doneCleaning, LogSegment.changeFileSuffixes,
       LogLoader.loadSegmentFiles, LeaderEpochFileCache.truncateFromStartAsyncFlush, LocalLog.replaceSegments
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT, NotALogDirectory, broker_id, is_set_aside
from kafka_eos.formats.segment import CorruptRegion, MalformedFile, RegionKind, read_leader_epochs
from kafka_eos_checks.audit.findings import Finding
from kafka_eos_checks.audit.moments import (
    CLEANED,
    EPOCH_OFFSET,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    Damaged,
    Directory,
    Ended,
    Source,
    damaged_in,
    read_checkpoint,
)
from kafka_eos_checks.audit.places import Ask, ask_here, place, sizes_of, written_bytes_of
from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS, Reason
from kafka_eos_checks.audit.rules.transactions.partitions import topic_of
from kafka_eos_checks.audit.segments.contents import Place
from kafka_eos_checks.audit.segments.reading import read_headers
from kafka_eos_checks.audit.segments.splits import SUFFIXES, PartitionLog, find_logs, offset_in, segment_with

_NUMBERED = re.compile(r"([0-9]{20})\.(.+)")
_INDEXES = {"index", "timeindex", "txnindex"}
LINK = "link"  # instead of a suffix
ASIDE = {"log.deleted", "log.swap", "log.cleaned"}  # a segment that its broker is deleting or replacing

MAY_LACK = Reason("incomplete", "records may be missing; copy the log again, or give another replica")
MISSING_PARTITION = Reason(
    "missing-partition", "a checkpoint names it, and its folder is missing; copy it, or give another replica of it"
)
NAMED_PARTITION = Reason(
    "missing-partition",
    "a transaction was decided there, and no given directory has it, though one has another partition of its topic: "
    "give all log.dirs of all brokers, or, if the topic was made again with fewer partitions, say "
    "--allow-unjudged missing-partition",
)
LINKED = Reason(
    "links", "they stand in the place of logs and are not followed; give the folders that the links lead to"
)
TOO_DEEP = Reason(
    "too-deep", "they have partitions and are not read, because they lie deeper than is searched; give them, too"
)
MISNAMED = Reason(
    "misnamed",
    "they have segments, or are packed ones, and are not read, because no broker names them so; unpack them, and give "
    "them back the names that they had, such as orders-0",
)
MIXED = Reason(
    "mixed-topics",
    "their logs have different ids in partition.metadata, so these topics were made again, or are of two clusters; "
    "none of their logs is read: audit those of each id for themselves",
)
MISSING_INSIDE = Reason(
    "holes",
    "offsets are missing inside, and nothing shows that the log was compacted: a segment or a batch is gone, the "
    "copy lacks cleaner-offset-checkpoint, or another broker had compacted it before this one copied it",
)


class Incomplete(NamedTuple):
    """A log that lacks records, as other files of its directory show.

    Attributes:
        log: the log; without segments if its folder has none.
        file: the segment that lacks them; the first one if all before it are missing.
        offset: where they are missing.
        evidence: what is missing and what shows it, in words.
        is_certain: whether nothing else explains it.
        why: the reason why it is not judged if it is not certain.
    """

    log: PartitionLog
    file: str
    offset: int
    evidence: str
    is_certain: bool
    why: Reason = MAY_LACK

    def in_words(self) -> str:
        """The log, what is missing and what shows it."""
        return f"{self.log} {self.evidence}"


class Around(NamedTuple):
    """The facts about segments that are not there, from the other files of a log's folder.

    Attributes:
        lost: the offset in the name of a segment that is missing or empty, what shows it, and whether it is certain.
        first: the lowest offset in the name of a segment, also of one that is being deleted or replaced.
        epochs_begin: the first offset of the first leader epoch; None if no file tells it.
    """

    lost: tuple[int, str, bool] | None
    first: int
    epochs_begin: int | None


def incomplete_logs(
    logs: Sequence[PartitionLog],
    ended: Sequence[Ended],
    source: Source,
    ask: Ask[PartitionLog, Around | None] = ask_here,
) -> list[Incomplete]:
    """The logs that lack records, each once, and the partitions that are missing.

    Nothing is certain unless a broker was shut down or runs here: a volume's snapshot may have been taken before the
    operating system had written the last records.

    Args:
        logs: all that were read.
        ended: those of them whose end is known.
        source: the evidence in their directories, from before they were read.
        ask: asks :func:`look_around` about logs.
    """
    found = {each.log: each for each in short_logs(ended, source)}
    others = [log for log in logs if log not in found and log.segments]
    others = [log for log in others if source.one_moment or _told(source, log.directory).is_settled]
    for log, around in zip(others, ask(look_around, others), strict=True):
        told = _told(source, log.directory)
        if around is not None and (lost := around.lost or _lost_beginning(log, around, told)) is not None:
            offset, evidence, is_certain = lost
            own = f"{offset:020}.log"
            file = own if around.lost else log.segments[0]
            found[log] = Incomplete(log, file, offset, evidence, is_certain and told.is_settled)
    return sorted(chain(found.values(), missing_partitions(logs, source)))


class DamagedFile(NamedTuple):
    """A small file next to logs that is not in its format.

    Attributes:
        directory: the log directory.
        broker: as of its logs.
        topic: the topic of the partition whose folder has it; "" for a file of the whole directory.
        partition: the partition; -1 as above.
        damaged: the damage.
    """

    directory: Path
    broker: str
    topic: str
    partition: int
    damaged: Damaged

    def in_words(self) -> str:
        """The file and its damage."""
        folder = self.directory / f"{self.topic}-{self.partition}" if self.topic else self.directory
        return f"{folder.name}/{self.damaged.file}: {self.damaged.in_words()}"


def damaged_files(
    logs: Sequence[PartitionLog], source: Source, ask: Ask[PartitionLog, Sequence[Damaged]] = ask_here
) -> list[DamagedFile]:
    """The small files of log directories and partitions that are not in their format; arguments as above."""
    brokers = {log.directory: log.broker for log in logs}
    found = [
        DamagedFile(directory, brokers.get(directory, ""), "", -1, each)
        for directory, told in source.directories.items()
        for each in told.damaged
    ]
    for log, own in zip(logs, ask(_damaged_of, logs), strict=True):
        found += [DamagedFile(log.directory, log.broker, log.topic, log.partition, each) for each in own]
    return found


def _damaged_of(log: PartitionLog) -> Sequence[Damaged]:
    return damaged_in(place(log.folder), {LEADER_EPOCH_CHECKPOINT: EPOCH_OFFSET})


def _told(source: Source, directory: Path) -> Directory:
    return source.directories.get(directory, Directory())


def short_logs(logs: Sequence[Ended], source: Source) -> Iterator[Incomplete]:
    """The logs that end below their high watermark, and the partitions' folders that have one and no segment.

    ``logs`` have a known end, and ``source`` is as in :func:`incomplete_logs`.
    """
    by_directory: dict[Path, dict[Place, Ended]] = defaultdict(dict)
    for each in logs:
        by_directory[each.log.directory][each.log.topic, each.log.partition] = each
    for directory, own in by_directory.items():
        told = _told(source, directory)
        broker = next(iter(own.values())).log.broker
        for (topic, partition), mark in told.high_watermarks.items():
            folder = directory / f"{topic}-{partition}"
            log, end = PartitionLog(broker, topic, partition, str(folder), ()), 0
            if (known := own.get((topic, partition))) is not None:
                log, end = known.log, known.end
            if source.is_incomplete(log, end) and log.segments[-1:] == _last_segment(folder):
                what = f"ends at offset {end:,}" if log.segments else "has no segment"
                evidence = f"{what}, and {HIGH_WATERMARKS} has the high watermark {mark:,}"
                file = log.segments[-1] if log.segments else f"{0:020d}.log"
                yield Incomplete(log, file, end, evidence, told.is_settled)


class Read(Protocol):
    """A log that was read: see :class:`kafka_eos_checks.audit.kernels.logs.fold.LogAudit`."""

    @property
    def log(self) -> PartitionLog:
        """The log."""
        ...

    @property
    def damage(self) -> Sequence[tuple[str, CorruptRegion]]:
        """Its regions without a readable batch, each with its segment's file name."""
        ...

    @property
    def hole(self) -> tuple[int, int] | None:
        """Its last hole: the first offset that is missing, and the next one that is there; None without one."""
        ...


def holes_in(audits: Iterable[Read], known: Collection[PartitionLog]) -> list[Incomplete]:
    """The logs with a hole that nothing explains, besides those that are known to lack records; each at its last hole.

    Read the logs first: a cleaner may go on meanwhile. Logs of coordinators are always compacted, so they are left out
    unless the checkpoint of the cleaner has lines. Logs with damage, which is reported, are left out, too.
    """
    cleaned: dict[Path, dict[Place, int] | None] = {}
    found = []
    for each in audits:
        log, damage = each.log, {region.kind for _, region in each.damage}
        if each.hole is None or log in known:
            continue
        if damage & {RegionKind.CORRUPT, RegionKind.OLD_FORMAT}:
            continue
        if log.directory not in cleaned:
            cleaned[log.directory] = read_checkpoint(log.directory / CLEANED)
        (first, end), told = each.hole, cleaned[log.directory]
        if told is None and log.topic in COORDINATOR_TOPICS:
            continue
        if end > (told or {}).get((log.topic, log.partition), -1):
            file = segment_with(log, end)
            where = f"{'before' if offset_in(file) == end else 'inside of'} {file}"
            what = f"lacks records of the offsets {first:,} to {end - 1:,} {where}"
            evidence = f"{what}, and {CLEANED} does not show that its broker compacted it so far"
            found.append(Incomplete(log, file, first, evidence, is_certain=False, why=MISSING_INSIDE))
    return found


def may_be_merged(logs: Iterable[PartitionLog], source: Source) -> list[PartitionLog]:
    """The logs that the cleaner may have been at while they were copied: it merges two segments at least.

    No log of a broker that was shut down, or of one moment, is among them.
    """
    if source.one_moment:
        return []
    several = [log for log in logs if len(log.segments) > 1]
    return [log for log in several if not _told(source, log.directory).stopped and _is_compacted(log)]


def merged_segments(
    found: Iterable[Finding],
    logs: Iterable[PartitionLog],
    ask: Ask[tuple[PartitionLog, Finding], Sequence[str]] = ask_here,
) -> dict[PartitionLog, dict[str, str]]:
    """By log, the segments that the cleaner merged into another one while they were copied, each with the new one.

    Args:
        found: violations of ``order``.
        logs: those of :func:`may_be_merged`.
        ask: as for :func:`incomplete_logs`.
    """
    known = {(log.broker, log.topic, log.partition): log for log in logs}
    asked = [(known[place], each) for each in found if (place := (each.broker, each.topic, each.partition)) in known]
    merged: dict[PartitionLog, dict[str, str]] = defaultdict(dict)
    for (log, each), names in zip(asked, ask(merged_into, asked) if asked else (), strict=True):
        merged[log] |= dict.fromkeys(names, each.file)
    return {log: own for log, own in merged.items() if own}


def _is_compacted(log: PartitionLog) -> bool:
    cleaned = read_checkpoint(log.directory / CLEANED) or {}
    return log.topic in COORDINATOR_TOPICS or (log.topic, log.partition) in cleaned


def merged_into(asked: tuple[PartitionLog, Finding]) -> Sequence[str]:
    """The segments that the segment of a misplaced batch replaces, if the first of them has that batch, too.

    These are all after it that begin at or before its last offset.
    """
    log, found = asked
    offset = found.offset or 0
    first = segment_with(log, offset)
    if offset_in(first or found.file) <= offset_in(found.file):
        return ()
    wanted = {"base_offset": offset, "producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
    if not any(
        np.all([headers.column(name) == value for name, value in wanted.items()], axis=0).any()
        for headers in read_headers(log.file(first), end=log.end_of(first), check_crc=False, columns=tuple(wanted))
    ):
        return ()
    batches = read_headers(log.file(found.file), check_crc=False, columns=("base_offset",))
    last = max((int(headers.column("base_offset").max(initial=-1)) for headers in batches), default=-1)
    return [name for name in log.segments if offset_in(found.file) < offset_in(name) <= last]


class Behind(NamedTuple):
    """A log directory with replicas that end below the high watermark that another broker has for them.

    Attributes:
        log: the replica that lacks most; of several, the first by name.
        end: where it ends.
        other: the broker with the highest mark for it.
        mark: that mark.
        short: how many replicas of the directory end below such a mark.
        shared: how many have another replica with a mark.
    """

    log: PartitionLog
    end: int
    other: str
    mark: int
    short: int
    shared: int

    def in_words(self) -> str:
        """Where it ends, what shows that this is early, and what to do."""
        named = f"broker {self.other}" if self.other.isdecimal() else self.other
        more = f", as do {self.short:,} of the {self.shared:,} logs here that others have" if self.shared > 1 else ""
        return (
            f"ends at offset {self.end:,}, below the high watermark {self.mark:,} of {named}{more}: this is an older "
            f"copy or a backup, or its broker was out of sync; if it leads before it has caught up, the {self.lacks:,} "
            "offsets after its end are lost, so start it only while the others run"
        )

    @property
    def lacks(self) -> int:
        """The number of offsets that it lacks."""
        return self.mark - self.end


def mixed_topics(logs: Sequence[PartitionLog], ask: Ask[PartitionLog, str | None] = ask_here) -> dict[str, str]:
    """The topics whose logs have different ids, each with one of its logs for each id, in words.

    Args:
        logs: all that were given.
        ask: asks :func:`topic_of` about logs.
    """
    ids: dict[str, dict[str, PartitionLog]] = defaultdict(dict)
    for log, told in zip(logs, ask(topic_of, logs), strict=True):
        if told is not None:
            ids[log.topic].setdefault(told, log)
    return {
        topic: f"topic {topic} has " + ", ".join(f"id {told} in {log.folder}" for told, log in own.items())
        for topic, own in sorted(ids.items())
        if len(own) > 1
    }


def behind_others(logs: Iterable[Ended], source: Source) -> list[Behind]:
    """The directories with replicas that end below another replica's high watermark; arguments as of the others."""
    marks: dict[Place, list[tuple[int, PartitionLog]]] = defaultdict(list)
    own = list(logs)
    for each in own:
        mark = _told(source, each.log.directory).high_watermarks.get((each.log.topic, each.log.partition))
        if mark is not None:
            marks[each.log.topic, each.log.partition].append((mark, each.log))
    found: dict[Path, list[Behind]] = defaultdict(list)
    shared: Counter[Path] = Counter()
    for log, end in ((each.log, each.log.end_after(each.end)) for each in own):
        others = [each for each in marks[log.topic, log.partition] if _is_other_replica(each[1], log, source)]
        shared[log.directory] += bool(others)
        above = [each for each in others if each[0] > end]
        if above:
            mark, other = max(above, key=lambda each: each[0])
            found[log.directory].append(Behind(log, end, other.broker, mark, 0, 0))
    firsts = ((folder, each, max(each, key=lambda own: own.lacks)) for folder, each in sorted(found.items()))
    return [first._replace(short=len(each), shared=shared[folder]) for folder, each, first in firsts]


def _is_other_replica(one: PartitionLog, other: PartitionLog, source: Source) -> bool:
    return one.directory != other.directory and source.are_of_one_cluster(one, other)


def _last_segment(folder: Path) -> tuple[str, ...] | None:
    """The last segment in a partition's folder, if it has any; None without a folder.

    Also None for a folder that must not be read, since nobody may have asked for it, and where a symbolic link stands
    for the folder or a segment, since the link is not followed and may lead to the last segment.
    """
    try:
        if not folder.is_dir() or folder.is_symlink() or any(file.is_symlink() for file in folder.glob("*.log")):
            return None
        return find_logs(folder)[0].segments[-1:]
    except NotALogDirectory:
        return ()
    except PermissionError:
        return None


def missing_partitions(logs: Sequence[PartitionLog], source: Source) -> Iterator[Incomplete]:
    """The partitions in a checkpoint of a directory that was given as a whole whose folder is missing there.

    The arguments are those of :func:`incomplete_logs`.
    """
    brokers = {log.directory: log.broker for log in logs}
    for directory, told in source.directories.items():
        entries = told.entries or ()
        marks = {each: (offset, RECOVERY_POINTS) for each, offset in told.recovery_points.items()}
        marks |= {each: (offset, HIGH_WATERMARKS) for each, offset in told.high_watermarks.items() if offset}
        for (topic, partition), (offset, checkpoint) in marks.items() if told.entries is not None else ():
            name = f"{topic}-{partition}"
            if offset and name not in entries and not any(is_set_aside(each, topic, partition) for each in entries):
                broker = brokers.get(directory, directory.name if len(source.directories) > 1 else "")
                log = PartitionLog(broker, topic, partition, str(directory / name), ())
                evidence = f"is not in the log directory, and {checkpoint} has the offset {offset:,} for it"
                yield Incomplete(log, f"{0:020d}.log", 0, evidence, is_certain=False, why=MISSING_PARTITION)


def unseen_partitions(named: Set[Place], logs: Sequence[PartitionLog], source: Source) -> Iterator[Incomplete]:
    """The partitions of decided transactions that no broker has, if all directories are whole and those of brokers.

    A topic without any log may have been deleted since. If other partitions of the topic have logs, a broker that has
    set this one aside no longer has it because the partition moved to another broker.

    Args:
        named: the partitions that coordinators have in decided transactions, unless their topics were made again later.
        logs: all that were read.
        source: the evidence in their directories, from before they were read.
    """
    entries = set[str]()
    for directory, told in source.directories.items():
        if told.entries is None or broker_id(directory) is None:
            return
        entries |= told.entries
    given = {(log.topic, log.partition) for log in logs}
    topics = {topic for topic, _ in given}
    for topic, partition in sorted(each for each in named - given if each[0] in topics):
        name = f"{topic}-{partition}"
        if name not in entries:
            log = PartitionLog("", topic, partition, name, ())
            evidence = "has a transaction that its coordinator decided, and no given directory has a log of it"
            aside = sorted(each for each in entries if is_set_aside(each, topic, partition))
            evidence += f", only {aside[0]}, which its broker has set aside" if aside else ""
            yield Incomplete(log, f"{0:020d}.log", 0, evidence, is_certain=False, why=NAMED_PARTITION)


def look_around(log: PartitionLog) -> Around | None:
    """Look for segments that are not there; None if only one segment of a log was given, or its folder is gone."""
    folder = place(log.folder)
    epochs_begin = _epochs_begin(folder)  # before the folder is listed: retention changes it first
    try:
        names = {path.name: path for path in folder.iterdir() if _NUMBERED.fullmatch(path.name)}
        names = {name: path for name, path in names.items() if path.is_symlink() or path.is_file()}
        own = {name: path for name, path in names.items() if name.endswith(".log") and not path.is_symlink()}
        sizes = {name: path.stat().st_size for name, path in own.items()}
    except FileNotFoundError:
        return None
    by_suffix: dict[str, set[int]] = defaultdict(set)
    for name in names:
        by_suffix[name[21:]].add(int(name[:20]))
    segments = set[int]().union(*(by_suffix[suffix] for suffix in SUFFIXES))
    aside = set[int]().union(*(by_suffix[suffix] for suffix in ASIDE))
    if not segments or len(log.segments) < min(len(segments), 2):
        return None
    lost = [
        (offset, f"lacks the segment {offset:020}.log, whose .{suffix} is there", True)
        for suffix in sorted(_INDEXES)
        for offset in by_suffix[suffix] - segments - aside
    ]
    for name, size in sizes.items():
        offset = int(name[:20])
        if not size and offset < max(segments) and (shown := _emptied(folder, name, log)):
            lost.append((offset, *shown))
    first = min(lost, key=lambda each: (not each[2], each), default=None)
    return Around(first, min(segments | aside), epochs_begin)


def cut_logs(
    logs: Sequence[PartitionLog], source: Source, ask: Ask[tuple[PartitionLog, bool], bool] = ask_here
) -> frozenset[PartitionLog]:
    """The logs that lack their end, see :func:`lacks_end`; in a copy of a running broker an index may be newer."""
    asked = [(log, source.one_moment or _told(source, log.directory).is_settled) for log in logs]
    return frozenset(log for log, is_cut in zip(logs, ask(lacks_end, asked), strict=True) if is_cut)


def lacks_end(item: tuple[PartitionLog, bool]) -> bool:
    """Whether something is left of a segment after the last one with batches: an index, a link, or it has another name.

    False if only some segments of a log were given, or its folder is gone. ``item`` has a log, and if indexes count.
    """
    log, of_indexes = item
    try:
        names = {path.name: path.is_symlink() for path in place(log.folder).iterdir()}
    except FileNotFoundError:
        return False
    by_suffix: dict[str, set[int]] = defaultdict(set)
    for name, is_link in names.items():
        if (numbered := _NUMBERED.fullmatch(name)) is not None:
            offset, suffix = numbered.groups()
            by_suffix[LINK if is_link and suffix in SUFFIXES else suffix].add(int(offset))
    segments = set[int]().union(*(by_suffix[suffix] for suffix in SUFFIXES))
    if not log.segments or len(log.segments) < min(len(segments), 2):
        return False
    aside = set[int]().union(*(by_suffix[suffix] for suffix in ASIDE))
    left = set[int]().union(*(by_suffix[suffix] for suffix in _INDEXES if of_indexes)) - segments - aside
    renamed = [own for suffix, own in by_suffix.items() if suffix.startswith("log.") and suffix not in ASIDE]
    last = max(left.union(by_suffix[LINK], *renamed), default=-1)
    later = [log.file(name) for name in log.segments if offset_in(name) > last]
    return last > offset_in(log.segments[0]) and not any(sizes_of(later))


def _epochs_begin(folder: Path) -> int | None:
    """The first offset of the first leader epoch of a log; None if no file tells it."""
    try:
        epochs = read_leader_epochs(folder / LEADER_EPOCH_CHECKPOINT)
    except MalformedFile:
        return None
    return epochs[0].start_offset if epochs else None


def _emptied(folder: Path, name: str, log: PartitionLog) -> tuple[str, bool] | None:
    """How an empty segment, which is not the last one, is known to have had records; None if it is not.

    The cleaner may have emptied it, and its indexes with it. The topics of coordinators are always compacted.
    """
    indexes = {suffix: written_bytes_of((folder / name).with_suffix(suffix)) for suffix in (".index", ".timeindex")}
    for suffix, data in indexes.items():
        if (data or b"").strip(b"\0"):  # zeros are reserved for entries
            return f"has nothing in the segment {name}, whose {suffix} has entries", True
    cleaned = read_checkpoint(folder.parent / CLEANED)
    if cleaned is not None and (log.topic, log.partition) not in cleaned:
        return (
            f"has nothing in the segment {name}, and {CLEANED} does not name it, so its broker did not compact it",
            False,
        )
    if any(data is not None for data in indexes.values()) or log.topic in COORDINATOR_TOPICS:
        return None
    return f"has nothing in the segment {name}, and no index that tells whether the cleaner emptied it", False


def _lost_beginning(log: PartitionLog, around: Around, told: Directory) -> tuple[int, str, bool] | None:
    """How the leader epochs of a log show that it lacks its first segments; None if they do not."""
    begin, is_told = around.epochs_begin, told.start_offsets is not None
    if begin is None or begin >= around.first or (log.topic, log.partition) in (told.start_offsets or {}):
        return None
    rest = "" if is_told else f"; without {START_OFFSETS} nobody knows whether tiered storage has what is before"
    return begin, f"begins at offset {around.first:,}, and {LEADER_EPOCH_CHECKPOINT} at {begin:,}{rest}", is_told
