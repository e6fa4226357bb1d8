"""The inputs of an audit: log directories, recordings (packed or not) and histories."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from kafka_eos.formats.log_directory import (
    LogDirectory,
    NotALogDirectory,
    broker_id,
    cluster_id,
    deeper_directories,
    linked_directories,
    links_to_logs,
    misnamed,
)
from kafka_eos_checks.audit.events.history_files import SUFFIXES, files_of, is_history
from kafka_eos_checks.audit.jepsen.operations import HISTORY, is_jepsen
from kafka_eos_checks.audit.mistaken import seems
from kafka_eos_checks.audit.moments import LOCK, is_locked
from kafka_eos_checks.audit.places import is_uri, listed, place, sizes_of
from kafka_eos_checks.audit.quoting import legible
from kafka_eos_checks.audit.segments.splits import SUFFIXES as LOG_SUFFIXES
from kafka_eos_checks.audit.segments.splits import PartitionLog, find_directories, logs_in
from kafka_eos_checks.audit.weights import weight_of
from kafka_eos_checks.kit.recording import UnsafeArchive, as_given, unpacked

SEGMENT_SUFFIX, ARCHIVE_SUFFIX = ".log", ".tar.xz"
RECORDED = "history.jsonl"
"""The history of a served cluster, next to its log directory, as the pytest fixture leaves them."""


class UnusableInput(ValueError):  # noqa: N818 - named for the input
    """An input that is neither logs nor a history; the message says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs found at the given paths.

    Attributes:
        logs: the replicas of partitions; each is audited by itself.
        histories: files of events, see :mod:`events.history_files`.
        operations: histories of Jepsen, see :mod:`jepsen`.
        one_moment: whether all logs are of recordings or of finished tests, whose brokers were stopped.
        directories: the log directories, each with its name relative to the path that was given.
        whole: the log directories that were given as a whole, and not only some of their partitions.
        given: the paths as they were given.
        options: what was said of their moments, as the options of a command.
        packed: the archives among them, each with the folder that it was unpacked to.
        brokers: the ids of brokers by log directory, where ``meta.properties`` has them.
        clusters: the same of clusters, also of directories without logs.
        links: symbolic links in the place of logs and log directories, which are not followed.
        deeper: folders with partitions that lie too deep below the paths that were given, and are not read.
        misnamed: folders with segments, and segments, that are not named as a broker names them, and are not read.
        cluster: the id of the cluster that they are of, if they are a part of what was given; "" otherwise.
    """

    logs: tuple[PartitionLog, ...]
    histories: tuple[Path, ...]
    operations: tuple[Path, ...] = ()
    one_moment: bool = False
    directories: Mapping[Path, str] = field(default_factory=dict)
    whole: frozenset[Path] = frozenset()
    given: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    packed: Mapping[Path, Path] = field(default_factory=dict)
    brokers: Mapping[Path, int] = field(default_factory=dict)
    clusters: Mapping[Path, str] = field(default_factory=dict)
    links: tuple[str, ...] = ()
    deeper: tuple[str, ...] = ()
    misnamed: tuple[str, ...] = ()
    cluster: str = ""

    @property
    def segment_bytes(self) -> int:
        """Bytes of all segments and tables of the logs."""
        return sum(sizes_of([log.file(name) for log in self.logs for name in log.segments]))

    @property
    def weight(self) -> int:
        """Bytes of segments that take about as long to audit as all this."""
        segments = [log.file(name) for log in self.logs for name in log.segments]
        histories = [*chain.from_iterable(map(files_of, self.histories)), *self.operations]
        sizes = [*sizes_of(segments), *(file.stat().st_size for file in histories)]
        return sum(map(weight_of, [*segments, *histories], sizes))

    @property
    def history_bytes(self) -> int:
        """Bytes of all histories, without those of Jepsen."""
        return sum(file.stat().st_size for path in self.histories for file in files_of(path))

    @property
    def operation_bytes(self) -> int:
        """Bytes of all histories of Jepsen."""
        return sum(path.stat().st_size for path in self.operations)


@contextmanager
def open_inputs(paths: Sequence[Path], histories: Sequence[Path] = ()) -> Iterator[Inputs]:
    """Recognise each path; packed recordings are unpacked for as long as the block lasts.

    Args:
        paths: a broker's log directory, a folder of several, a partition's folder, one of its segments, a recording
            (``brokers/`` and ``histories/``, as a folder or a ``.tar.xz``), the artefacts of a test (a log directory in
            a folder with ``history.jsonl``), a history (``.jsonl``, or ``.parquet``, a file or a folder of files), or
            a history of Jepsen (``.edn``, or a folder of its store with ``history.edn``).
        histories: more histories.

    Raises:
        UnusableInput: a path is none of these, or logs of one partition are no replicas.
        NotALogDirectory: a folder has no partitions.
        OSError: a path cannot be read.
    """
    folders: dict[Path, Path] = {}
    packed: dict[Path, Path] = {}
    segments: list[PartitionLog] = []
    found: list[Path] = []
    operations: list[Path] = []
    recorded: list[bool] = []
    with ExitStack() as stack:
        for given in (*paths, *histories):
            if found_out := seems(given):
                raise UnusableInput(f"{given}: this seems to be {found_out}")
        for given in paths:
            if is_history(given):
                found.append(given)
                continue
            path = listed(given)
            if is_jepsen(path) or (path / HISTORY).is_file():
                operations.append(path if is_jepsen(path) else path / HISTORY)
                continue
            if path.suffix == SEGMENT_SUFFIX and path.is_file():
                if not path.stem.isdecimal():
                    raise UnusableInput(f"{path}: no segment of Kafka has this name; give it back its name, or *.jsonl")
                segments.append(_log_of(path))
                continue
            folder = stack.enter_context(opened(path))
            packed |= {} if folder == path else {path: folder}
            contents = contents_of(folder)
            folders[contents.logs] = path / contents.logs.relative_to(folder)
            recorded.append(is_finished(folder))
            found += contents.histories
        found += (path for path in histories if not is_jepsen(path))
        found = list({path.resolve(): path for path in found}.values())  # given itself and in its folder
        operations += (path for path in histories if is_jepsen(path))
        for path in found:
            if not is_history(path) or not path.exists():
                wrong = "no such history" if not path.exists() else "not named like a history"
                raise UnusableInput(f"{path}: {wrong}; give a file *{' or *'.join(SUFFIXES)}")
        there = _directories_in(folders)
        logs = [*logs_in(chain(*there.values())), *segments]
        directories = sorted({log.directory for log in logs})
        ids = {directory: broker_id(directory) for directory in directories}
        whole = frozenset(each.path for each in chain(*there.values()) if each.is_whole)
        clusters = {directory: cluster_id(directory) for directory in {*directories, *whole}}
        inputs = Inputs(
            tuple(logs),
            tuple(found),
            tuple(operations),
            one_moment=bool(recorded) and all(recorded) and not segments,
            directories={folder: _named(folder, folders) for folder in directories},
            whole=whole,
            given=tuple(map(str, (*paths, *histories))),
            packed=packed,
            brokers={directory: known for directory, known in ids.items() if known is not None},
            clusters={directory: known for directory, known in clusters.items() if known is not None},
            links=tuple(links_in(folders, there, {*directories, *(Path(log.folder) for log in logs)})),
            deeper=tuple(deeper_in(folders, there, {log.directory for log in logs})),
            misnamed=tuple(misnamed_in(folders, there)),
        )
        for part in by_cluster(inputs):
            _demand_replicas(part, inputs)
        yield inputs


def by_cluster(inputs: Inputs) -> list[Inputs]:
    """The inputs of each cluster: a producer id, a topic or a group of one has nothing to do with that of another.

    All are one, and may be refused, if there is a history, because nothing tells of which cluster it is, or if the
    cluster of a log is not known.
    """
    ids = inputs.clusters
    clusters = list(dict.fromkeys(map(ids.get, inputs.directories)))
    if len(clusters) < 2 or inputs.histories or None in clusters:
        return [inputs]
    return [
        replace(
            inputs,
            cluster=cluster or "",
            logs=tuple(log for log in inputs.logs if ids[log.directory] == cluster),
            directories={folder: name for folder, name in inputs.directories.items() if ids[folder] == cluster},
            whole=frozenset(folder for folder in inputs.whole if ids.get(folder) == cluster),
        )
        for cluster in clusters
    ]


def commands_for(inputs: Inputs) -> str:
    """The commands that audit each cluster for itself, in words, with the paths that were given where they can be."""
    ids = inputs.clusters
    paths: dict[str, list[str]] = {ids[folder]: [] for folder in inputs.directories if folder in ids}
    for given in inputs.given:
        path = place(given)
        root = inputs.packed.get(path, path).resolve()
        own = [each for each in inputs.directories if each.is_relative_to(root) or root.is_relative_to(each)]
        of_one = len(set(map(ids.get, own))) == 1
        names = {given: ids.get(own[0])} if of_one else {inputs.directories[each]: ids.get(each) for each in own}
        for name, cluster in names.items() if path not in inputs.histories else ():
            if cluster is not None:
                paths[cluster].append(shlex.quote(as_given(name)))
    lines = [" ".join(["kafka-eos audit", *own]) for own in paths.values()]
    rest = [name for folder, name in inputs.directories.items() if folder not in ids]
    if rest:
        lines.append(f"and {', '.join(rest)} with the one whose cluster it is of, which no meta.properties tells")
    return "\n  ".join(["audit each cluster for itself, with its own histories and the same options:", *lines])


def _directories_in(folders: Mapping[Path, Path]) -> dict[Path, list[LogDirectory]]:
    """The log directories in each of some folders; one without any may have files that tell what was meant."""
    there: dict[Path, list[LogDirectory]] = {}
    for folder, given in folders.items():
        try:
            there[folder] = find_directories(folder)
        except NotALogDirectory as error:
            for path in () if is_uri(str(folder)) or not folder.is_dir() else sorted(folder.iterdir()):
                if found_out := seems(path):
                    raise UnusableInput(f"{error}; {given / path.name} seems to be {found_out}") from None
            raise
    return there


def links_in(
    folders: Mapping[Path, Path],
    there: Mapping[Path, Sequence[LogDirectory]],
    read: Collection[Path],
    *,
    to_logs: bool = True,
) -> Iterator[str]:
    """The symbolic links in the place of logs and log directories in some folders of this machine, as given.

    Nobody follows them. A link to what is given, too, hides nothing.

    Args:
        folders: the folders, each with its path as it was given.
        there: the log directories that were found in each.
        read: the log directories with logs that are read, and the folders of these logs.
        to_logs: whether links in the place of logs and segments count.
    """
    for folder, given in folders.items():
        if is_uri(str(folder)):
            continue
        found = there[folder]
        behind = {link: [link] for link in links_to_logs(found, LOG_SUFFIXES)} if to_logs else {}
        for link, hidden in (behind | linked_directories(folder, found, LOG_SUFFIXES)).items():
            if any(each.resolve() not in read for each in hidden):
                yield legible(given / link.relative_to(folder.resolve()))


def deeper_in(
    folders: Mapping[Path, Path], there: Mapping[Path, Sequence[LogDirectory]], read: Collection[Path]
) -> Iterator[str]:
    """The folders of this machine that lie too deep below some folders and are not given themselves."""
    for folder, given in folders.items():
        for path in () if is_uri(str(folder)) else deeper_directories(folder, there[folder], LOG_SUFFIXES):
            if (folder / path).resolve() not in read:
                yield legible(given / path)


def misnamed_in(folders: Mapping[Path, Path], there: Mapping[Path, Sequence[LogDirectory]]) -> Iterator[str]:
    """The folders and segments of this machine in some folders that are not named as a broker names them, as given."""
    for folder, given in folders.items():
        for path in () if is_uri(str(folder)) else misnamed(folder, there[folder], LOG_SUFFIXES):
            yield legible(given / path)


def unread_in(
    folders: Mapping[Path, Path], there: Mapping[Path, Sequence[LogDirectory]], *, to_logs: bool = True
) -> Iterator[str]:
    """The logs that a reader of all log directories in some folders would leave out, each with reason and remedy.

    The arguments are those of :func:`links_in`.
    """
    directories = list(chain(*there.values()))
    partitions = (partition.path for directory in directories for partition in directory.partitions)
    read = {*partitions, *(directory.path for directory in directories)}
    for path in deeper_in(folders, there, read):
        yield f"{path} has partitions and lies too deep to be read; give it, too"
    for path in misnamed_in(folders, there):
        yield f"{path} has segments, or is one, and is not named as a broker names it; give it back its name"
    for path in links_in(folders, there, read, to_logs=to_logs):
        remedy = "put a copy in its place, or give the folder that it leads to, too"
        yield f"{path} is a symbolic link, which is not followed; {remedy}"


class Contents(NamedTuple):
    """The parts of a folder that was given.

    Attributes:
        logs: the folder with the log directories.
        histories: the histories of a recording or of a test, by name.
        is_recording: whether the folder is a recording.
    """

    logs: Path
    histories: tuple[Path, ...]
    is_recording: bool


def contents_of(folder: Path) -> Contents:
    """Recognise a recording, the artefacts of a test, or a folder with only log directories."""
    logs = folder / "brokers" if (folder / "brokers").is_dir() else folder
    is_recording = (folder / "manifest.json").is_file()
    histories: tuple[Path, ...] = ()
    if is_recording:
        histories = tuple(sorted(path for path in (folder / "histories").glob("*") if is_history(path)))
    elif (folder / RECORDED).is_file():
        histories = (folder / RECORDED,)
    return Contents(logs, histories, is_recording)


def is_finished(folder: Path) -> bool:
    """Whether a folder is a recording, or the artefacts of a test that has ended: then its logs are of one moment."""
    is_test = (folder / RECORDED).is_file() and not any(map(is_locked, folder.glob(f"**/{LOCK}")))
    return contents_of(folder).is_recording or is_test


def _log_of(segment: Path) -> PartitionLog:
    """The log of a single segment; if its folder is no partition's, partition 0 of a topic with the folder's name.

    A symbolic link that is given itself is followed: it is the segment of the folder that it stands in.
    """
    folder = segment.parent.resolve()
    topic, _, number = folder.name.rpartition("-")
    named = topic and number.isdecimal()
    topic, partition = (topic, int(number)) if named else (folder.name, 0)
    return PartitionLog(broker="", topic=topic, partition=partition, folder=str(folder), segments=(segment.name,))


def _demand_replicas(part: Inputs, inputs: Inputs) -> None:
    """Refuse logs of one partition unless they may be replicas: of several brokers of one cluster.

    Args:
        part: those that are judged together.
        inputs: all that was given.
    """
    folders = {log.directory for log in part.logs}
    identities = {folder: (inputs.clusters.get(folder), inputs.brokers.get(folder)) for folder in folders}
    known: dict[tuple[str, int], list[Path]] = {}
    for log in part.logs:
        directory = log.directory
        others = known.setdefault((log.topic, log.partition), [])
        for other in others:
            reason = _why_no_replicas(identities[other], identities[directory])
            if reason:
                places = " and ".join(part.directories[place] for place in (other, directory))
                each = (
                    commands_for(inputs)
                    if identities[other][0] != identities[directory][0]
                    else "audit each for itself, or, if it moved between the broker's log.dirs while they were copied, "
                    f"remove {Path(log.folder).name} from the copy that was made first"
                )
                raise UnusableInput(f"{log.topic}-{log.partition} is in {places}, {reason}: no replicas, so {each}")
        others.append(directory)


def _why_no_replicas(one: tuple[str | None, int | None], other: tuple[str | None, int | None]) -> str:
    """The reason why two logs of a partition are no replicas, by cluster and broker; "" if they may be replicas."""
    clusters, brokers = zip(one, other, strict=True)
    if None not in clusters and len(set(clusters)) > 1:
        return f"of the clusters {clusters[0]} and {clusters[1]}"
    if None not in brokers and len(set(brokers)) == 1:
        return f"both of broker {brokers[0]}"
    return ""


def _named(directory: Path, given: Mapping[Path, Path]) -> str:
    """The name of a log directory, relative to the path that was given."""
    inside = ((folder.resolve(), path) for folder, path in given.items())
    return next(
        (str(path / directory.relative_to(f)) for f, path in inside if directory.is_relative_to(f)), str(directory)
    )


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """The folder that a path leads to: itself, or a recording's archive, unpacked for as long as the block lasts.

    Raises:
        UnusableInput: a file that is no archive of a recording.
    """
    if not path.is_file():
        yield path
        return
    if is_uri(str(path)) and path.name.endswith(ARCHIVE_SUFFIX):
        raise UnusableInput(f"{path}: a packed recording is read from this machine only; copy it here, or unpack it")
    if not path.name.endswith(ARCHIVE_SUFFIX):
        raise UnusableInput(
            f"{path}: neither a directory, a segment (.log), a history (.jsonl, .parquet, .edn) nor a recording "
            "(.tar.xz); unpack packed log directories, and give the folder"
        )
    try:
        with unpacked(path) as folder:
            yield folder
    except UnsafeArchive as error:
        raise UnusableInput(str(error)) from None
