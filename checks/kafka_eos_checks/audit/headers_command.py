"""``kafka-eos headers``: the batch headers of log directories as Parquet, to audit them elsewhere."""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_eos_checks.kit.recording import given_path

if TYPE_CHECKING:
    from kafka_eos_checks.audit.segments.splits import PartitionLog

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
.kafka_cleanshutdown, replication-offset-checkpoint and log-start-offset-checkpoint, of which only the chosen topics:
with them the audit tells logs that lack their end or their beginning.
CRCs are compared; a region without a readable batch is a row of the table.

Tables and copies have the time of their files, by which the audit tells what is too recent. A table that was made of a
segment of the same size and time is kept. So an interrupted call can be repeated, and a later call writes only what has
changed. Tables of segments that are gone are removed; folders of partitions that are gone are named. Tables of another
broker are never touched: an --out that has some is refused. Give all brokers in one call, or each an --out of its own.

exit codes: 0 written, 2 the input or the call cannot be used
"""
BESIDE = (".txnindex", ".snapshot")
SOURCE = ".kafka-eos-source"  # in a folder of tables: the log directory that they are of, if it has no meta.properties
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
        print(f"kafka-eos headers: {error}", file=sys.stderr)
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
    from kafka_eos_checks.audit.segments.splits import find_logs  # noqa: PLC0415
    from kafka_eos_checks.kit.progress import byte_progress  # noqa: PLC0415

    found = find_logs(*given)
    logs = [log for log in found if not topics or log.topic in {*topics, *COORDINATOR_TOPICS}]
    if missing := set(topics or ()) - {log.topic for log in logs}:
        raise UnusableInput(f"no log of {', '.join(sorted(missing))} in what is given")
    folders = _folders(out, logs)
    files = [(log, name, log.file(name)) for log in logs for name in log.segments if not is_table(name)]
    paths = [path for _, _, path in files]
    told = dict(zip(paths, stats_of(paths), strict=True))
    size = sum(each.st_size for each in told.values())
    chosen = {log.topic for log in logs} if topics else None
    directories = {log.directory: folders[log].parent for log in logs}
    _demand_own(out, directories)
    copied = sum(_copy_top(directory, folder, chosen) for directory, folder in directories.items())
    tables = batches = kept = 0
    written = set[Path]()
    with byte_progress("headers", size) as advance:
        for log, name, path in files:
            folder = folders[log]
            folder.mkdir(parents=True, exist_ok=True)
            target = folder / (name if log.topic in COORDINATOR_TOPICS else f"{Path(name).stem}.{SUFFIX}")
            size_and_time = told[path].st_size, told[path].st_mtime_ns
            written.add(target)
            if log.topic in COORDINATOR_TOPICS:
                copied += _copy(path, target)
            elif target.is_file() and (segment_bytes(target), target.stat().st_mtime_ns) == size_and_time:
                kept += 1
            else:
                batches += write_table(path, target)
                os.utime(target, ns=2 * size_and_time[1:])
                tables += 1
            advance(told[path].st_size)
    for log in logs:
        for path in _beside(log):
            written.add(folders[log] / path.name)
            copied += _copy(path, folders[log] / path.name)
    gone = [path for folder in folders.values() for path in folder.iterdir() if _is_ours(path) and path not in written]
    for path in gone:
        path.unlink()
    more = f", {len(gone)} of files that are gone removed" if gone else ""
    more += _left(set(folders.values()), {*directories.values()}) if chosen is None else ""
    return (
        f"{tables} tables of {batches:,} batches, {copied} files copied, {kept} tables kept{more}; "
        f"{len(logs)} logs of {size:,} bytes in {out}"
    )


def _is_ours(path: Path) -> bool:
    """Whether a file is named like one that this command writes into a partition's folder."""
    from kafka_eos_checks.audit.segments.header_tables import is_table  # noqa: PLC0415

    return is_table(path) or path.suffix in (".log", *BESIDE)


def _demand_own(out: Path, directories: Mapping[Path, Path]) -> None:
    """Refuse a folder that has tables of other log directories; the audit would judge them as replicas.

    Args:
        out: the folder.
        directories: each log directory with the folder for its tables.
    """
    from kafka_eos_checks.audit.inputs import UnusableInput  # noqa: PLC0415
    from kafka_eos_checks.audit.segments.header_tables import SUFFIX  # noqa: PLC0415

    remedy = "give all log directories in one call, or each an --out of its own; or remove these tables"
    tables = (*out.glob(f"*/*.{SUFFIX}"), *out.glob(f"*/*/*.{SUFFIX}"))
    if others := sorted({str(table.parent.parent) for table in tables} - {*map(str, directories.values())}):
        raise UnusableInput(
            f"--out {out} has tables of log directories that are not given: {', '.join(others)}; {remedy}"
        )
    for directory, folder in directories.items():
        known, given = _told_by(folder), _told_by(directory) or str(directory)
        if known not in ("", given):
            raise UnusableInput(f"--out {folder} has tables of another log directory: {known}, not {given}; {remedy}")


def _told_by(folder: Path) -> str:
    """The log directory behind a folder, by cluster, broker and id, or by path; "" if its own files do not tell."""
    from kafka_eos.formats.log_directory import broker_id, cluster_id, directory_id  # noqa: PLC0415

    told = {"cluster": cluster_id(folder), "broker": broker_id(folder), "directory": directory_id(folder)}
    if words := " ".join(f"{name} {value}" for name, value in told.items() if value is not None):
        return words
    source = folder / SOURCE
    return source.read_text(encoding="utf-8", errors="replace") if source.is_file() else ""


def _left(folders: set[Path], directories: set[Path]) -> str:
    """The folders of tables next to those that were written, in words; the audit would judge them, too."""
    from kafka_eos_checks.audit.segments.header_tables import SUFFIX  # noqa: PLC0415

    found = {table.parent for directory in directories for table in directory.glob(f"*/*.{SUFFIX}")}
    left = sorted(map(str, found - folders))
    names = ", ".join(left[:MOST_NAMED]) + (f" and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else "")
    return (
        f"; tables of partitions that are not in what is given, remove them or the audit judges them: {names}"
        if left
        else ""
    )


def _folders(out: Path, logs: Sequence["PartitionLog"]) -> dict["PartitionLog", Path]:
    """The folder for the tables of each log; with several brokers each has a folder, named like its log directory."""
    from kafka_eos_checks.audit.inputs import UnusableInput  # noqa: PLC0415

    folders = {log: out / Path(log.broker).name / f"{log.topic}-{log.partition}" for log in logs}
    if len(set(folders.values())) < len(folders):
        raise UnusableInput("several log directories have the same name; write each with an --out of its own")
    if own := next((log for log in logs if folders[log].resolve() == Path(log.folder).resolve()), None):
        raise UnusableInput(f"--out {out} has the logs themselves ({own}); give another folder")
    return folders


def _beside(log: "PartitionLog") -> Iterator[Path]:
    from kafka_eos.formats.log_directory import (  # noqa: PLC0415 - `--help` needs no numpy
        LEADER_EPOCH_CHECKPOINT,
        PARTITION_METADATA,
    )
    from kafka_eos_checks.audit.places import place  # noqa: PLC0415

    for path in sorted(place(log.folder).iterdir()):
        is_wanted = path.suffix in BESIDE or path.name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT)
        if is_wanted and path.is_file() and not path.is_symlink():
            yield path


def _copy_top(directory: Path, folder: Path, topics: set[str] | None) -> int:
    """Copy what tells of a log directory's moment, before its segments are read; the number of files."""
    from kafka_eos.formats.log_directory import META_PROPERTIES  # noqa: PLC0415
    from kafka_eos_checks.audit.moments import (  # noqa: PLC0415
        CLEAN_SHUTDOWN,
        CLEANED,
        HIGH_WATERMARKS,
        START_OFFSETS,
    )

    count = 0
    folder.mkdir(parents=True, exist_ok=True)
    for name in (META_PROPERTIES, CLEAN_SHUTDOWN, HIGH_WATERMARKS, START_OFFSETS, CLEANED):
        path, target = directory / name, folder / name
        if path.is_file() and not path.is_symlink():
            count += _copy(path, target, None if name in {META_PROPERTIES, CLEAN_SHUTDOWN} else topics)
        else:
            target.unlink(missing_ok=True)
    if not _told_by(folder):
        (folder / SOURCE).write_text(str(directory), encoding="utf-8")
    return count


def _copy(path: Path, target: Path, topics: set[str] | None = None) -> int:
    """Copy a file with its time; of a checkpoint only the lines of some topics, if they are given."""
    changed = path.stat().st_mtime_ns
    with path.open("rb") as file, target.open("wb") as out:
        if topics is None:
            shutil.copyfileobj(file, out)
        else:
            version, _, *lines = [*file.read().splitlines(keepends=True), b"", b""]
            own = [line for line in lines if line.rsplit(b" ", 2)[0].decode("utf-8", "replace") in topics]
            out.writelines([version, b"%d\n" % len(own), *own])
    os.utime(target, ns=(changed, changed))
    return 1
