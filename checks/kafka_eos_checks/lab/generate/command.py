"""``kafka-eos lab generate``: logs of any size in Kafka's format, with planted violations at known places."""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

PLANTED = "planted.jsonl"
EPOCHS, MOST_OF_AN_EPOCH = 4, 500  # of a producer in a small log; batches of an epoch in a large one
EPILOG = """examples:
  kafka-eos lab generate /tmp/made --batches 1000000 --partitions 8
  kafka-eos lab generate /tmp/made --faults 3 --seed 7
  kafka-eos lab generate /tmp/made --records 50 100 --value-bytes 1000

Each partition gets as many duplicates, gaps and batches of a stale epoch as --faults says; planted.jsonl names each
rule with topic, partition and offset, which is what the audit has to find, and nothing else. The same seed gives the
same bytes.

exit codes: 0 written, 2 the call cannot be used
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``generate``."""
    parser = subparsers.add_parser(
        "generate",
        help=help_line,
        description="Write a log directory of a broker with made batches of idempotent producers.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="an empty folder, or one to be made")
    parser.add_argument("--batches", type=int, default=100_000, metavar="N", help="of all partitions (default 100000)")
    parser.add_argument("--partitions", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--producers", type=int, default=50, metavar="N", help="that write a partition (default 50)")
    parser.add_argument(
        "--records",
        type=int,
        nargs=2,
        default=(1, 3),
        metavar=("LEAST", "MOST"),
        help="records of a batch (default 1 3)",
    )
    parser.add_argument("--value-bytes", type=int, default=100, metavar="N", help="of a record's value (default 100)")
    parser.add_argument("--faults", type=int, default=0, metavar="N", help="of each kind in a partition (default 0)")
    parser.add_argument("--topic", default="generated", help="default generated")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default 0)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the logs and what is planted in them, and say so."""
    try:
        _check(arguments)
        started = time.perf_counter()
        size, planted = _write(arguments)
    except (ValueError, OSError) as error:
        print(f"kafka-eos lab generate: {error}", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - started
    counts = ", ".join(f"{count} {rule}" for rule, count in sorted(planted.items())) or "nothing"
    print(
        f"seed {arguments.seed}: {arguments.batches:,} batches, {size:,} bytes in {seconds:.1f} s "
        f"({arguments.batches / seconds:,.0f} batches/s) in {arguments.folder}; planted: {counts}"
    )
    return 0


def _check(arguments: argparse.Namespace) -> None:
    least, most = arguments.records
    for name in ("batches", "partitions", "producers"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} {getattr(arguments, name)}: give 1 or more")
    for name in ("value_bytes", "faults", "seed"):
        if getattr(arguments, name) < 0:
            raise ValueError(f"--{name.replace('_', '-')} {getattr(arguments, name)}: give 0 or more")
    if not 1 <= least <= most:
        raise ValueError(f"--records {least} {most}: give the least and the most, from 1")
    if arguments.batches < arguments.partitions:
        raise ValueError(f"--batches {arguments.batches}: give one for each of the {arguments.partitions} partitions")
    if arguments.folder.exists() and any(arguments.folder.iterdir()):
        raise ValueError(f"{arguments.folder}: not empty; give another folder, or remove what is in it")


def _write(arguments: argparse.Namespace) -> tuple[int, Counter[str]]:
    from kafka_eos_checks.audit.progress import count_progress  # noqa: PLC0415
    from kafka_eos_checks.lab.generate.planted_logs import clean_batches, plant, write  # noqa: PLC0415 - `--help` needs no numpy

    least, most = arguments.records
    size, counts = 0, Counter[str]()
    share, rest = divmod(arguments.batches, arguments.partitions)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with (
        (arguments.folder / PLANTED).open("w", encoding="utf-8") as out,
        count_progress("partitions", arguments.partitions) as advance,
    ):
        for partition in range(arguments.partitions):
            seed = arguments.seed + partition
            count = share + (partition < rest)
            batches = clean_batches(
                seed,
                count,
                smallest=least,
                largest=most,
                producers=arguments.producers,
                epoch_batches=max(1, min(MOST_OF_AN_EPOCH, count // arguments.producers // EPOCHS)),
            )
            batches, planted = plant(batches, seed, arguments.faults) if arguments.faults else (batches, [])
            log = arguments.folder / f"{arguments.topic}-{partition}"
            size += write(log, batches, arguments.value_bytes, seed).stat().st_size
            for rule, offset in planted:
                row = {"rule": rule, "topic": arguments.topic, "partition": partition, "offset": offset}
                out.write(json.dumps(row) + "\n")
            counts.update(rule for rule, _ in planted)
            advance(1)
    return size, counts
