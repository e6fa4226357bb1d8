"""A broker's log directory: the partitions that are there, and the files of each.

Only names decide; no file is opened except ``meta.properties``. Symbolic links below the given directory are never
followed, so nothing outside it is read.

Kafka: org.apache.kafka.storage.internals.log.LogFileUtils, UnifiedLog.parseTopicPartitionName
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

MOST_FOLDERS = 10_000  # that are looked at for partitions deeper than log directories lie
NAMED = 5  # folders in a message
LONGEST_NAME = 255  # of a folder

LINK, NO_SEGMENTS, SET_ASIDE = "a symbolic link", "no segments", "a partition set aside by the broker"
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_SET_ASIDE = re.compile(r"[a-zA-Z0-9._-]+-[0-9]+\.[0-9a-f]+-(?P<fate>delete|future|stray)")
_SEGMENT_FILE = re.compile(r"(?P<offset>[0-9]{20})\.(?P<suffix>[a-z.]+)")
_RENAMED = re.compile(r"[0-9]{20}\.log\.(?!(?:deleted|swap|cleaned)$).+")  # a packed segment, for instance


class NotALogDirectory(ValueError):  # noqa: N818 - named for the directory, not for the program
    """A directory in which no Kafka log directory is found; says where it looked and what it looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment and its other files, each None if absent.

    Attributes:
        base_offset: the first offset that the segment may hold, from its name.
        log: the record batches, or what stands for them.
        offset_index: ``.index``.
        time_index: ``.timeindex``.
        transaction_index: ``.txnindex``; only there if a transaction was aborted.
        snapshot: ``.snapshot``: the producers as they were just before ``base_offset``.
    """

    base_offset: int
    log: Path
    offset_index: Path | None = None
    time_index: Path | None = None
    transaction_index: Path | None = None
    snapshot: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A replica of a partition.

    Attributes:
        topic: name of its topic.
        partition: its number.
        path: its directory.
        segments: in the order of their base offsets.
        snapshots: each producer snapshot with its offset, in order; the last one belongs to no segment.
        leader_epoch_checkpoint: None if absent.
    """

    topic: str
    partition: int
    path: Path
    segments: tuple[Segment, ...]
    snapshots: tuple[tuple[int, Path], ...]
    leader_epoch_checkpoint: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A directory or link that is left out, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """A broker's log directory.

    Attributes:
        path: its directory.
        broker_id: from ``meta.properties``; None if the file or the line is absent.
        partitions: in the order of topic and number.
        skipped: the entries that are no live partition.
        is_whole: whether the directory itself was looked at, and not one of its partitions only.
    """

    path: Path
    broker_id: int | None
    partitions: tuple[Partition, ...]
    skipped: tuple[Skipped, ...]
    is_whole: bool = True


def find_log_directories(path: Path, suffixes: Sequence[str] = ("log",)) -> tuple[LogDirectory, ...]:
    """The log directories at ``path``: itself, or those directly below it (one for each broker, say).

    A single partition's directory is accepted too.

    Args:
        path: the folder to look in.
        suffixes: suffixes of files that hold a segment's batches, or stand for them; of several files the first counts.

    Raises:
        NotALogDirectory: there is none.
        OSError: ``path`` cannot be read.
    """
    if not path.is_dir():
        what = "a file, and no directory" if path.exists() else "no such file or directory"
        raise NotALogDirectory(f"{path}: {what}; give a broker's log.dirs or a copy of it")
    root = path.resolve()
    own = _partition(root, suffixes)
    if isinstance(own, Partition):
        above = root.parent
        links = _links(root)
        return (LogDirectory(path=above, broker_id=broker_id(above), partitions=(own,), skipped=links, is_whole=False),)
    candidates = [root, *(child for child in sorted(root.iterdir()) if _is_own_directory(child))]
    directories = (_log_directory(candidate, suffixes) for candidate in candidates)
    found = tuple(directory for directory in directories if directory is not None)
    if not found:
        deeper = [path / folder.relative_to(root) for folder in islice(_deeper([root], suffixes), NAMED + 1)]
        named = " ".join([*map(str, deeper[:NAMED]), *("…" for _ in deeper[NAMED:])])
        remedy = f"give {named}" if deeper else "give a broker's log.dirs or a copy of it"
        hidden = [file for folder in candidates for file in _links_for_logs(folder)]
        if not deeper and hidden:
            first = path / hidden[0].relative_to(root)
            remedy = f"{first} is a symbolic link, which is not followed; put a copy in its place"
        elif not deeper and any(_SEGMENT_FILE.fullmatch(child.name) for child in root.iterdir()):
            remedy = "it has segments itself, so give it back the name of its partition, such as orders-0"
        elif not deeper and (aside := [each for each in candidates if _SET_ASIDE.fullmatch(each.name)]):
            name = aside[0].name
            remedy = f"its broker has set {name} aside; to audit its log, copy it under {_own_name(name)}"
        raise NotALogDirectory(
            f"{root}: no partitions (TOPIC-NUMBER/{'0' * 20}.{' or .'.join(suffixes)}) "
            f"in it or in a directory right below it; {remedy}"
        )
    return found


def deeper_directories(path: Path, found: Sequence[LogDirectory], suffixes: Sequence[str] = ("log",)) -> list[Path]:
    """The folders with partitions that lie too deep below a folder for :func:`find_log_directories`, relative to it.

    Args:
        path: the folder.
        found: the log directories that were found at it.
        suffixes: the suffixes that they were found with.
    """
    root = path.resolve()
    if not all(directory.is_whole for directory in found):
        return []
    partitions = {partition.path for directory in found for partition in directory.partitions}
    below = [
        grandchild
        for child in sorted(root.iterdir())
        if child not in partitions and _is_own_directory(child)
        for grandchild in _children(child)
        if grandchild not in partitions
    ]
    return [folder.relative_to(root) for folder in _deeper(below, suffixes)]


def misnamed(path: Path, found: Sequence[LogDirectory], suffixes: Sequence[str] = ("log",)) -> list[Path]:
    """The folders with segments, and the segments, that have another name than a broker gives, relative to a folder.

    Folders are looked at where :func:`find_log_directories` looks for partitions, whose arguments these are, and
    segments in the partitions that it found. What a broker has set aside or is deleting has a name of the broker's.
    """
    root = path.resolve()
    partitions = {partition.path for directory in found for partition in directory.partitions}
    folders = [child for folder in (root, *_children(root)) if folder not in partitions for child in _children(folder)]
    if not all(directory.is_whole for directory in found):
        folders = []
    others = (folder for folder in folders if folder not in partitions and not _SET_ASIDE.fullmatch(folder.name))
    unread = [folder for folder in others if any(_is_segment(name, suffixes) for name in _own_files(folder))]
    for folder in {*folders, *partitions}:
        if not _SET_ASIDE.fullmatch(folder.name):
            unread += (folder / name for name in _own_files(folder) if _RENAMED.fullmatch(name))
    return sorted(each.relative_to(root) for each in unread)


def _own_files(folder: Path) -> list[str]:
    """The names of the files in a folder, links left out; none if it cannot be read."""
    try:
        return [file.name for file in folder.iterdir() if _own_file(file)]
    except OSError:
        return []


def _deeper(folders: Iterable[Path], suffixes: Sequence[str]) -> Iterator[Path]:
    """The folders with partitions at and below some folders, those of a level before deeper ones.

    Nothing below such a folder is looked at, nor more than :data:`MOST_FOLDERS`; what cannot be read is left out.
    """
    waiting = deque(folders)
    for _ in range(MOST_FOLDERS):
        if not waiting:
            return
        folder = waiting.popleft()
        children = _children(folder)
        if any(_is_partition(child, suffixes) for child in children):
            yield folder
        else:
            waiting += children


def _children(folder: Path) -> list[Path]:
    """The folders right in a folder, in order, links left out; none if it cannot be read."""
    return _folders(folder)[0]


def _folders(folder: Path) -> tuple[list[Path], list[Path]]:
    """The folders right in a folder, in order: its own, and links to some; none if it cannot be read."""
    try:
        found = [(child, child.is_symlink()) for child in sorted(folder.iterdir()) if child.is_dir()]
    except OSError:
        return [], []
    return [child for child, is_link in found if not is_link], [child for child, is_link in found if is_link]


def _is_partition(path: Path, suffixes: Sequence[str]) -> bool:
    try:
        return isinstance(_partition(path, suffixes), Partition)
    except OSError:
        return False


def _log_directory(path: Path, suffixes: Sequence[str]) -> LogDirectory | None:
    """The log directory at ``path``; None if it has neither partitions nor a broker's ``meta.properties``."""
    partitions: list[Partition] = []
    skipped: list[Skipped] = []
    for child in sorted(path.iterdir()):
        if child.is_symlink():
            skipped.append(Skipped(path=child, reason=LINK))
        elif child.is_dir():
            result = _partition(child, suffixes)
            if isinstance(result, Partition):
                partitions.append(result)
            else:
                skipped.append(result)
            if _PARTITION.fullmatch(child.name):
                skipped += _links(child)
    if not partitions and not _own_file(path / META_PROPERTIES):
        return None
    partitions.sort(key=lambda partition: (partition.topic, partition.partition))
    return LogDirectory(path=path, broker_id=broker_id(path), partitions=tuple(partitions), skipped=tuple(skipped))


def _partition(path: Path, suffixes: Sequence[str]) -> Partition | Skipped:
    """The partition at ``path``, judged by its name and files, or why it is none."""
    if set_aside := _SET_ASIDE.fullmatch(path.name):
        return Skipped(path=path, reason=f"{SET_ASIDE} ({set_aside['fate']})")
    named = _PARTITION.fullmatch(path.name)
    if not named:
        return Skipped(path=path, reason="not named TOPIC-NUMBER")
    files = {(suffix, offset): file for suffix, offset, file in _segment_files(path)}
    logs = {offset: files[suffix, offset] for suffix in reversed(suffixes) for own, offset in files if own == suffix}
    if not logs:
        return Skipped(path=path, reason=NO_SEGMENTS)
    segments = tuple(
        Segment(
            base_offset=offset,
            log=log,
            offset_index=files.get(("index", offset)),
            time_index=files.get(("timeindex", offset)),
            transaction_index=files.get(("txnindex", offset)),
            snapshot=files.get(("snapshot", offset)),
        )
        for offset, log in sorted(logs.items())
    )
    checkpoint = path / LEADER_EPOCH_CHECKPOINT
    return Partition(
        topic=named["topic"],
        partition=int(named["partition"]),
        path=path,
        segments=segments,
        snapshots=tuple(sorted((offset, file) for (suffix, offset), file in files.items() if suffix == "snapshot")),
        leader_epoch_checkpoint=checkpoint if _own_file(checkpoint) else None,
    )


def links_to_logs(found: Iterable[LogDirectory], suffixes: Sequence[str] = ("log",)) -> list[Path]:
    """The symbolic links that stand for a partition's folder or a segment in some log directories.

    They are not followed, because they may lead anywhere. ``suffixes`` are those that the directories were found with.
    """
    links = (each.path for directory in found for each in directory.skipped if each.reason == LINK)
    return [link for link in links if _PARTITION.fullmatch(link.name) or _is_segment(link.name, suffixes)]


def linked_directories(
    path: Path, found: Sequence[LogDirectory], suffixes: Sequence[str] = ("log",)
) -> dict[Path, list[Path]]:
    """The symbolic links below a folder that lead to log directories, or to folders with some, and these directories.

    :func:`find_log_directories` follows none. The arguments are those of :func:`deeper_directories`.
    """
    if not all(directory.is_whole for directory in found):
        return {}
    partitions = {partition.path for directory in found for partition in directory.partitions}
    waiting, behind = deque([path.resolve()]), dict[Path, list[Path]]()
    for _ in range(MOST_FOLDERS):
        if not waiting:
            break
        own, linked = _folders(waiting.popleft())
        waiting += (child for child in own if child not in partitions)
        for link in linked:
            if not _PARTITION.fullmatch(link.name):
                behind[link] = list(_deeper([link], suffixes))
    return {link: directories for link, directories in behind.items() if directories}


def _links_for_logs(folder: Path) -> list[Path]:
    """The symbolic links in a folder and in those right in it that have the name of a partition or of its files."""
    below = (link.path for child in _children(folder) for link in _links(child))
    return [link for link in (*(each.path for each in _links(folder)), *below) if stands_for_logs(link.name)]


def stands_for_logs(name: str) -> bool:
    """Whether a name is that of a partition's folder, or of a file that belongs to a segment."""
    return any(pattern.fullmatch(name) is not None for pattern in (_PARTITION, _SEGMENT_FILE))


def _is_segment(name: str, suffixes: Sequence[str]) -> bool:
    named = _SEGMENT_FILE.fullmatch(name)
    return named is not None and named["suffix"] in suffixes


def _links(path: Path) -> tuple[Skipped, ...]:
    """The symbolic links in a partition's directory, which are left out of it."""
    return tuple(Skipped(path=file, reason=LINK) for file in sorted(path.iterdir()) if file.is_symlink())


def _segment_files(path: Path) -> Iterator[tuple[str, int, Path]]:
    """Suffix, offset and path of a partition's files; a further suffix (``.log.deleted``) is part of it."""
    for file in path.iterdir():
        named = _SEGMENT_FILE.fullmatch(file.name)
        if named and _own_file(file):
            yield named["suffix"], int(named["offset"]), file


def _own_name(aside: str) -> str:
    """The name to copy a partition under whose folder the broker has set aside; it keeps a part of a long topic's name.

    Kafka: UnifiedLog.logDeleteDirName, which shortens the topic so that the name has no more than 255 characters
    """
    name = aside.rpartition(".")[0]
    if len(aside) < LONGEST_NAME:
        return f"the name {name}"
    head, _, number = name.rpartition("-")
    return f"the name TOPIC-{number}; the broker has shortened the topic, which begins with {head}"


def is_set_aside(name: str, topic: str, partition: int) -> bool:
    """Whether a folder's name is that of a partition which the broker has set aside: deleted, moved here, or stray.

    Kafka: UnifiedLog.logDeleteDirName, which shortens the topic so that the name has no more than 255 characters
    """
    head, _, number = name.rpartition(".")[0].rpartition("-")
    is_named = topic == head or (len(name) >= LONGEST_NAME and topic.startswith(head))
    return is_named and number == str(partition) and _SET_ASIDE.fullmatch(name) is not None


def deletions(path: Path) -> list[Path]:
    """The folders of partitions in a log directory that a broker has set aside to delete them.

    Kafka: UnifiedLog.DELETE_DIR_SUFFIX
    """
    named = ((folder, _SET_ASIDE.fullmatch(folder.name)) for folder in sorted(path.iterdir()))
    return [folder for folder, fate in named if fate and fate["fate"] == "delete" and _is_own_directory(folder)]


def cluster_id(path: Path) -> str | None:
    """``cluster.id`` of the ``meta.properties`` in a log directory; None if the file or the line is absent."""
    return next(_properties(path, {"cluster.id"}), None)


def broker_id(path: Path) -> int | None:
    """``node.id`` (``broker.id`` before KRaft) of the ``meta.properties`` in a log directory, if there is one."""
    values = _properties(path, {"node.id", "broker.id"})
    return next((int(value) for value in values if re.fullmatch(r"[0-9]{1,10}", value)), None)


def directory_id(path: Path) -> str | None:
    """``directory.id`` of the ``meta.properties`` in a log directory; brokers before Kafka 3.7 have none."""
    return next(_properties(path, {"directory.id"}), None)


def topic_id(path: Path) -> str | None:
    """The topic's id from the ``partition.metadata`` in a partition's folder; None if the file or the line is absent.

    Topics of one name have different ids. Brokers before Kafka 2.8 keep none.
    """
    return next(_lines(path / PARTITION_METADATA, {"topic_id"}, ":"), None)


def _properties(path: Path, names: Set[str]) -> Iterator[str]:
    """The values of those lines of ``meta.properties`` that have one of these names."""
    return _lines(path / META_PROPERTIES, names, "=")


def _lines(file: Path, names: Set[str], separator: str) -> Iterator[str]:
    """The values of those lines of a small file that have one of these names; none if it is absent."""
    if not _own_file(file):
        return
    for line in file.read_text(encoding="latin-1").splitlines():
        name, _, value = (word.strip() for word in line.partition(separator))
        if name in names:
            yield value


def _own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_own_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()
