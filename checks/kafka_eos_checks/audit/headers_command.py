"""``kafka-eos headers``: the batch headers of log directories as Parquet, to audit them elsewhere."""

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_eos_checks.kit.outputs import is_full, unwritten
from kafka_eos_checks.kit.recording import given_path
from kafka_eos_checks.kit.verdict import first_of

if TYPE_CHECKING:
    from kafka_eos.formats.log_directory import LogDirectory

EPILOG = """examples:
  kafka-eos headers /var/lib/kafka/data --out headers
  kafka-eos headers broker-1 broker-2 broker-3 --out headers
  kafka-eos audit headers --spark
  kafka-eos headers copy/ --out headers --topic orders payments
  kafka-eos headers example:violations --out headers         a packed recording (.tar.xz)

Each segment becomes a table 00000000000000000000.headers.parquet in a folder of the same layout, with one row for each
batch: offsets, producer, sequences, timestamps, and of markers their decision. There are no keys, values or headers of
records in it. Segments of __transaction_state and __consumer_offsets are copied as they are, because the rules need
their records: these name transactional ids, groups, members and topics. Files .txnindex and .snapshot are copied too;
they name producer ids. So are partition.metadata and leader-epoch-checkpoint, and of a log directory meta.properties,
.kafka_cleanshutdown and the checkpoints of offsets, of which only the chosen topics unless they are damaged: with them
the audit tells logs that lack their end or their beginning. It tells missing segments by what is left of them, so the
first entries of .index and .timeindex are copied, empty segments, links, and the names of segments and partitions that
the broker has set aside. CRCs are compared; a region without a readable batch is a row of the table.

Tables and copies have the time of their files, by which the audit tells what is too recent. A table that was made of a
segment of the same size and time is kept. So an interrupted call can be repeated, and a later call writes only what has
changed. Tables of segments that are gone are removed; folders of partitions that are gone are named. Tables of another
broker are never touched: an --out that has some is refused. Give all brokers in one call, or each an --out of its own.

exit codes: 0 written, 2 the input or the call cannot be used
"""
BESIDE, INDEXES = (".txnindex", ".snapshot"), (".index", ".timeindex")
INDEX_BYTES = 24  # whole entries of each index: they show that its segment had records
SOURCE = ".kafka-eos-source"  # marks a folder of tables; says which log directory they are of, if no other file does
MOST_NAMED = 5  # folders in a message


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add the subcommand ``headers``."""
    parser = subparsers.add_parser(
        "headers",
        help=help_line,
        description="Write the batch headers of log directories as Parquet, without what clients wrote.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=given_path,
        metavar="PATH",
        help="a log directory, a folder of several, or a recording: a folder, a .tar.xz, or example:NAME; or a URI",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the tables go")
    parser.add_argument("--topic", nargs="+", metavar="NAME", help="only these topics, and the two internal ones")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the tables and say what was written."""
    from kafka_eos.formats.log_directory import NotALogDirectory  # noqa: PLC0415 - `--help` needs no numpy
    from kafka_eos_checks.audit.inputs import UnusableInput  # noqa: PLC0415

    try:
        with ExitStack() as stack:
            folders = [_opened(path, stack) for path in arguments.paths]
            print(_write(folders, arguments.out, arguments.topic))
    except (UnusableInput, NotALogDirectory, OSError) as error:
        said = str(error)
        if is_full(error):
            said = f"{unwritten(arguments.out, error)}; then call again: what is written is kept"
        print(f"kafka-eos headers: {said}", file=sys.stderr)
        return 2
    return 0


def _opened(given: str, stack: ExitStack) -> Path:
    """The folder with the log directories in what is given; an archive is unpacked for as long as the stack lasts."""
    from kafka_eos_checks.audit.inputs import ARCHIVE_SUFFIX, UnusableInput, contents_of, opened  # noqa: PLC0415
    from kafka_eos_checks.audit.places import listed, place  # noqa: PLC0415

    path = listed(place(given))
    if path.is_file() and not path.name.endswith(ARCHIVE_SUFFIX):
        raise UnusableInput(f"{path}: neither a directory nor a recording ({ARCHIVE_SUFFIX})")
    return contents_of(stack.enter_context(opened(path))).logs


def _write(given: Sequence[Path], out: Path, topics: Sequence[str] | None) -> str:
    """Write the tables that do not exist yet; return what was done, in words."""
    from kafka_eos_checks.audit.inputs import UnusableInput  # noqa: PLC0415
    from kafka_eos_checks.audit.places import stats_of  # noqa: PLC0415
    from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS  # noqa: PLC0415
    from kafka_eos_checks.audit.segments.header_tables import SUFFIX, is_table, segment_bytes, write_table  # noqa: PLC0415
    from kafka_eos_checks.audit.segments.splits import find_directories, logs_in  # noqa: PLC0415
    from kafka_eos_checks.kit.progress import byte_progress  # noqa: PLC0415

    there = {path: find_directories(path) for path in given}
    found = [directory for own in there.values() for directory in own]
    _refuse_unread(there)
    logs = [log for log in logs_in(found) if not topics or log.topic in {*topics, *COORDINATOR_TOPICS}]
    if missing := set(topics or ()) - {log.topic for log in logs}:
        raise UnusableInput(f"no log of {', '.join(sorted(missing))} in what is given")
    directories = _folders(out, found)
    folders = {log: directories[log.directory] / f"{log.topic}-{log.partition}" for log in logs}
    files = [(log, name, log.file(name)) for log in logs for name in log.segments if not is_table(name)]
    paths = [path for _, _, path in files]
    told = dict(zip(paths, stats_of(paths), strict=True))
    size = sum(each.st_size for each in told.values())
    chosen = {log.topic for log in logs} if topics else None
    _demand_own(out, directories)
    copied = sum(_copy_top(directory, folder, chosen) for directory, folder in directories.items())
    own = {folder: log.folder for log, folder in folders.items()}
    own |= {target: str(path) for path, target in _without_segments(found, directories, chosen)}
    for folder in own:
        _make(folder)
    tables = batches = kept = 0
    written = set[Path]()
    with byte_progress("headers", size) as advance:
        for log, name, path in files:
            size_and_time = told[path].st_size, told[path].st_mtime_ns
            is_copied = log.topic in COORDINATOR_TOPICS or not told[path].st_size
            target = folders[log] / (name if is_copied else f"{Path(name).stem}.{SUFFIX}")
            written.add(target)
            if is_copied:
                copied += _copy(path, target)
            elif _is_file(target) and (segment_bytes(target), target.stat().st_mtime_ns) == size_and_time:
                kept += 1
            else:
                batches += write_table(path, target)
                os.utime(target, ns=2 * size_and_time[1:])
                tables += 1
                target.with_name(name).unlink(missing_ok=True)  # which was empty
            advance(told[path].st_size)
    for folder, source in own.items():
        for path in _beside(source):
            written.add(folder / path.name)
            copied += _copy_beside(path, folder / path.name)
    written |= set(_links(found, directories, chosen))
    gone = [path for folder in own for path in folder.iterdir() if _is_ours(path) and path not in written]
    for path in gone:
        path.unlink()
    more = f", {len(gone)} of files that are gone removed" if gone else ""
    more += _left(set(own), {*directories.values()})
    return (
        f"{tables} tables of {batches:,} batches, {copied} files copied, {kept} tables kept{more}; "
        f"{len(logs)} logs of {size:,} bytes in {out}"
    )


def _topic_of(name: str) -> str:
    """The topic in the name of a partition's folder, also of one that its broker has set aside."""
    head, _, number = name.rpartition("-")
    return head if number.isdecimal() else name.rpartition(".")[0].rpartition("-")[0]


def _left_out(
    found: Iterable["LogDirectory"], directories: Mapping[Path, Path], topics: Set[str] | None
) -> Iterator[tuple[Path, Path, str]]:
    """The entries of log directories that are no logs: each with its path in the folder of tables, and why."""
    for directory in found:
        for each in directory.skipped:
            inside = each.path.relative_to(directory.path)
            if topics is None or _topic_of(inside.parts[0]) in topics:
                yield each.path, directories[directory.path] / inside, each.reason


def _without_segments(
    found: Iterable["LogDirectory"], directories: Mapping[Path, Path], topics: Set[str] | None
) -> Iterator[tuple[Path, Path]]:
    """The folders of partitions that have no segment, or that the broker has set aside, each with its own in tables.

    Of one that is set aside only its name tells something: that nothing is missing.
    """
    from kafka_eos.formats.log_directory import NO_SEGMENTS, SET_ASIDE  # noqa: PLC0415

    for path, target, reason in _left_out(found, directories, topics):
        if reason == NO_SEGMENTS or reason.startswith(SET_ASIDE):
            yield path, target


def _links(
    found: Iterable["LogDirectory"], directories: Mapping[Path, Path], topics: Set[str] | None
) -> Iterator[Path]:
    """Copy the links in the place of partitions and their files as links, which nobody follows; what was copied."""
    from kafka_eos.formats.log_directory import LINK, stands_for_logs  # noqa: PLC0415

    for path, target, reason in _left_out(found, directories, topics):
        if reason == LINK and stands_for_logs(path.name):
            if target.is_symlink() or target.is_file():
                target.unlink()
            if not target.exists():  # otherwise the folder of a partition, whose tables are told to be left
                target.symlink_to(path.readlink())
                yield target


def _make(folder: Path) -> None:
    """Make the folder of a partition, where a link may have stood for it."""
    if folder.is_symlink():
        folder.unlink()
    folder.mkdir(parents=True, exist_ok=True)


def _refuse_unread(there: Mapping[Path, Sequence["LogDirectory"]]) -> None:
    """Refuse given folders with log directories that are not read, because tables would not show that they are missing.

    Args:
        there: by given folder, the log directories that were found in it.
    """
    from kafka_eos_checks.audit.inputs import UnusableInput, unread_in  # noqa: PLC0415

    for told in unread_in({path: path for path in there}, there, to_logs=False):  # such links are copied, as links
        raise UnusableInput(told)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_ours(path: Path) -> bool:
    """Whether a file is named like one that this command writes into a partition's folder."""
    from kafka_eos.formats.log_directory import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA  # noqa: PLC0415
    from kafka_eos_checks.audit.segments.header_tables import is_table  # noqa: PLC0415

    is_own = is_table(path) or path.suffix in (".log", *BESIDE, *INDEXES) or _is_aside(path)
    return is_own or path.name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT)


def _demand_own(out: Path, directories: Mapping[Path, Path]) -> None:
    """Refuse a folder that has tables of other log directories; the audit would judge them as replicas.

    Args:
        out: the folder.
        directories: each log directory with the folder for its tables.
    """
    from kafka_eos_checks.audit.inputs import UnusableInput  # noqa: PLC0415

    remedy = "give all log directories in one call, or each an --out of its own; or remove these tables"
    tables = [*_tables_in(out, "*/"), *_tables_in(out, "*/*/")]
    if others := sorted({str(table.parent.parent) for table in tables} - {*map(str, directories.values())}):
        raise UnusableInput(
            f"--out {out} has tables of log directories that are not given: {', '.join(others)}; {remedy}"
        )
    for directory, folder in directories.items():
        if (segment := _segment_of_others(folder)) is not None:
            raise UnusableInput(
                f"--out {folder} has segments that are no copies of this command: {segment}; give another"
            )
        known, given = _told_by(folder), _told_by(directory) or str(directory)
        if known not in ("", given):
            raise UnusableInput(f"--out {folder} has tables of another log directory: {known}, not {given}; {remedy}")


def _segment_of_others(folder: Path) -> Path | None:
    """A segment in a folder for tables that this command has not copied there, such as one of a backup; None if none.

    It copies the segments of coordinators' topics, and empty ones.
    """
    from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS  # noqa: PLC0415
    from kafka_eos_checks.audit.segments.header_tables import is_table  # noqa: PLC0415

    there = _tables_in(folder, "*/")
    found = [file for file in there if not is_table(file) and file.stat().st_size]
    if (folder / SOURCE).is_file() or any(map(is_table, there)):
        found = [file for file in found if _topic_of(file.parent.name) not in COORDINATOR_TOPICS]
    return min(found, default=None)


def _told_by(folder: Path) -> str:
    """The log directory behind a folder, by cluster, broker and id, or by path; "" if its own files do not tell."""
    from kafka_eos.formats.log_directory import broker_id, cluster_id, directory_id  # noqa: PLC0415

    told = {"cluster": cluster_id(folder), "broker": broker_id(folder), "directory": directory_id(folder)}
    if words := " ".join(f"{name} {value}" for name, value in told.items() if value is not None):
        return words
    source = folder / SOURCE
    return os.fsdecode(source.read_bytes()) if source.is_file() else ""


def _tables_in(folder: Path, below: str) -> list[Path]:
    """The tables, and the segments that are copied, in the folders that match a pattern; no link is followed."""
    from kafka_eos_checks.audit.segments.splits import SUFFIXES  # noqa: PLC0415

    found = [table for suffix in SUFFIXES for table in folder.glob(f"{below}{'[0-9]' * 20}.{suffix}")]
    return [table for table in found if not table.is_symlink() and not table.parent.is_symlink()]


def _left(folders: Set[Path], directories: Set[Path]) -> str:
    """The folders of tables next to those that were written, in words; the audit would judge them, too."""
    found = {table.parent for directory in directories for table in _tables_in(directory, "*/")}
    left = sorted(map(str, found - folders))
    said = "tables of partitions that are not in what is given, remove them or the audit judges them"
    return f"; {said}: {first_of(left, MOST_NAMED)}" if left else ""


def _folders(out: Path, found: Iterable["LogDirectory"]) -> dict[Path, Path]:
    """The folder for the tables of each log directory; of several each has its own, named like the directory."""
    from kafka_eos_checks.audit.inputs import UnusableInput  # noqa: PLC0415

    logs = {directory.path: directory.partitions for directory in found}
    folders = {path: out / path.name if len(logs) > 1 else out for path in logs}
    if len(set(folders.values())) < len(folders):
        raise UnusableInput("several log directories have the same name; write each with an --out of its own")
    if own := next((path for path, folder in folders.items() if folder.resolve() == path.resolve()), None):
        named = next((f"{each.topic}-{each.partition}" for each in logs[own]), str(own))
        raise UnusableInput(f"--out {out} has the logs themselves ({named}); give another folder")
    return folders


def _beside(folder: str) -> Iterator[Path]:
    """The files in a partition's folder that are copied, besides its segments."""
    from kafka_eos.formats.log_directory import (  # noqa: PLC0415 - `--help` needs no numpy
        LEADER_EPOCH_CHECKPOINT,
        PARTITION_METADATA,
    )
    from kafka_eos_checks.audit.places import place  # noqa: PLC0415

    for path in sorted(place(folder).iterdir()):
        is_wanted = path.suffix in (*BESIDE, *INDEXES) or _is_aside(path)
        is_wanted |= path.name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT)
        if is_wanted and _is_file(path):
            yield path


def _copy_beside(path: Path, target: Path) -> int:
    """Copy a file from a partition's folder: of an index the first entries, of a segment that is set aside the name."""
    if path.suffix in INDEXES:
        return _copy(path, target, first=INDEX_BYTES)
    return _copy(path, target, first=0 if _is_aside(path) else None)


def _is_aside(path: Path) -> bool:
    """Whether a file is a segment that its broker deletes or replaces."""
    from kafka_eos_checks.audit.completeness import ASIDE  # noqa: PLC0415 - `--help` needs no numpy

    return path.name.partition(".")[2] in ASIDE


def _copy_top(directory: Path, folder: Path, topics: Set[str] | None) -> int:
    """Copy what tells of a log directory's moment, before its segments are read; the number of files."""
    from kafka_eos.formats.log_directory import META_PROPERTIES  # noqa: PLC0415
    from kafka_eos_checks.audit.moments import CHECKPOINTS, CLEAN_SHUTDOWN, read_checkpoint  # noqa: PLC0415

    count = 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in (META_PROPERTIES, CLEAN_SHUTDOWN, *CHECKPOINTS):
        path, target = directory / name, folder / name
        if not _is_file(path):
            target.unlink(missing_ok=True)
        elif name not in CHECKPOINTS or topics is None or read_checkpoint(path) is None:  # damage is for the audit
            count += _copy(path, target)
        else:
            count += _copy(path, target, topics=topics)
    (folder / SOURCE).touch()
    if not _told_by(folder):
        (folder / SOURCE).write_bytes(os.fsencode(str(directory)))
    return count


def _copy(path: Path, target: Path, *, first: int | None = None, topics: Set[str] | None = None) -> int:
    """Copy a file with its time, where a link may have stood for it.

    Only its first bytes are copied if ``first`` says how many, and of a checkpoint only the lines of some topics.
    """
    changed = path.stat().st_mtime_ns
    if target.is_symlink():
        target.unlink()
    with path.open("rb") as file, target.open("wb") as out:
        if topics is not None:
            own = [line for line in file.read().splitlines()[2:] if line.split()[0].decode("latin-1") in topics]
            out.write(b"\n".join([b"0", b"%d" % len(own), *own, b""]))
        elif first is not None:
            out.write(file.read(first))
        else:
            shutil.copyfileobj(file, out)
    os.utime(target, ns=(changed, changed))
    return 1
