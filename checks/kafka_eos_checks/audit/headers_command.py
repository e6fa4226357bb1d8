"""``kafka-eos headers``: the batch headers of log directories as Parquet, to audit them elsewhere."""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_eos_checks.audit.segments.splits import PartitionLog

EPILOG = """examples:
  kafka-eos headers /var/lib/kafka/data --out headers
  kafka-eos headers broker-1 broker-2 broker-3 --out headers
  kafka-eos audit headers --spark
  kafka-eos headers copy/ --out headers --topic orders payments

Each segment becomes a table 00000000000000000000.headers.parquet in a folder of the same layout, with one row for each
batch: offsets, producer, sequences, timestamps, and of markers their decision. There are no keys, values or headers of
records in it. Segments of __transaction_state and __consumer_offsets are copied as they are, because the rules need
their records: these name transactional ids, groups, members and topics. Files .txnindex and .snapshot are copied too;
they name producer ids. CRCs are compared; a region without a readable batch is a row of the table.

A table that exists and was made of a segment of the same size is kept. So an interrupted call can be repeated, and a
later call writes only what has grown.

exit codes: 0 written, 2 the input or the call cannot be used
"""
BESIDE = (".txnindex", ".snapshot")


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
        "paths", nargs="+", metavar="PATH", help="a log directory, a folder of several, or of a recording; or a URI"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the tables go")
    parser.add_argument("--topic", nargs="+", metavar="NAME", help="only these topics, and the two internal ones")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the tables and say what was written."""
    from kafka_eos.formats.log_directory import NotALogDirectory  # noqa: PLC0415 - `--help` needs no numpy
    from kafka_eos_checks.audit.inputs import UnusableInput  # noqa: PLC0415

    try:
        print(_write(arguments.paths, arguments.out, arguments.topic))
    except (UnusableInput, NotALogDirectory, OSError) as error:
        print(f"kafka-eos headers: {error}", file=sys.stderr)
        return 2
    return 0


def _write(given: Sequence[str], out: Path, topics: Sequence[str] | None) -> str:
    """Write the tables that do not exist yet; return what was done, in words."""
    from kafka_eos_checks.audit.inputs import UnusableInput, contents_of  # noqa: PLC0415
    from kafka_eos_checks.audit.places import listed, place, sizes_of  # noqa: PLC0415
    from kafka_eos_checks.audit.rules.log import COORDINATOR_TOPICS  # noqa: PLC0415
    from kafka_eos_checks.audit.segments.header_tables import SUFFIX, is_table, segment_bytes, write_table  # noqa: PLC0415
    from kafka_eos_checks.audit.segments.splits import find_logs  # noqa: PLC0415
    from kafka_eos_checks.kit.progress import byte_progress  # noqa: PLC0415

    found = find_logs(*(contents_of(listed(place(path))).logs for path in given))
    logs = [log for log in found if not topics or log.topic in {*topics, *COORDINATOR_TOPICS}]
    if missing := set(topics or ()) - {log.topic for log in logs}:
        raise UnusableInput(f"no log of {', '.join(sorted(missing))} in what is given")
    folders = _folders(out, logs)
    files = [(log, name, log.file(name)) for log in logs for name in log.segments if not is_table(name)]
    paths = [path for _, _, path in files]
    sizes = dict(zip(paths, sizes_of(paths), strict=True))
    tables = batches = copied = kept = 0
    with byte_progress("headers", sum(sizes.values())) as advance:
        for log, name, path in files:
            folder = folders[log]
            folder.mkdir(parents=True, exist_ok=True)
            table = folder / f"{Path(name).stem}.{SUFFIX}"
            if log.topic in COORDINATOR_TOPICS:
                copied += _copy(path, folder)
            elif table.is_file() and segment_bytes(table) == sizes[path]:
                kept += 1
            else:
                batches += write_table(path, table)
                tables += 1
            advance(sizes[path])
    copied += sum(_copy(path, folders[log]) for log in logs for path in _beside(log))
    return (
        f"{tables} tables of {batches:,} batches, {copied} files copied, {kept} tables kept; "
        f"{len(logs)} logs of {sum(sizes.values()):,} bytes in {out}"
    )


def _folders(out: Path, logs: Sequence["PartitionLog"]) -> dict["PartitionLog", Path]:
    """The folder for the tables of each log; with several brokers each has a folder, named like its log directory."""
    from kafka_eos_checks.audit.inputs import UnusableInput  # noqa: PLC0415

    folders = {log: out / Path(log.broker).name / f"{log.topic}-{log.partition}" for log in logs}
    if len(set(folders.values())) < len(folders):
        raise UnusableInput("several log directories have the same name; write each with an --out of its own")
    return folders


def _beside(log: "PartitionLog") -> Iterator[Path]:
    from kafka_eos_checks.audit.places import place  # noqa: PLC0415

    for path in sorted(place(log.folder).iterdir()):
        if path.suffix in BESIDE and path.is_file() and not path.is_symlink():
            yield path


def _copy(path: Path, folder: Path) -> int:
    with path.open("rb") as file, (folder / path.name).open("wb") as out:
        shutil.copyfileobj(file, out)
    return 1
