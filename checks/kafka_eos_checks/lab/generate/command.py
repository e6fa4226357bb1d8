"""``kafka-eos lab generate``: logs of any size in Kafka's format, with violations planted at known places."""

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_eos_checks.kit.outputs import is_full, make_folder

PLANTED = "planted.jsonl"
EPOCHS, MOST_OF_AN_EPOCH = 4, 500  # epochs of a producer in a small log; batches of an epoch in a large log
BATCHES, PRODUCERS = 100_000, 50  # defaults of logs without transactions
CLUSTER_PRODUCERS, RUN = 5, 4  # idempotent producers of a partition; batches of a transaction on a partition
SPREAD = 3  # partitions of a transaction
MOST_PARTITIONS, MOST_CLIENTS = 65_535, 500_000  # 16 bits; six digits for two groups a client
# Of a batch without records, of a record next to its value, of a batch in a table, of an operation of Jepsen; at least.
HEADER_BYTES, RECORD_BYTES, TABLE_BYTES, OPERATION_BYTES = 61, 7, 9, 200
TEXT_BYTES = 16  # smallest value that names its partition and offset
OF_JEPSEN = {"folder", "faults", "seed", "jepsen"}  # arguments of a history of Jepsen; it has no use for others
OF_EVERY_LOG = "segment_bytes"  # the argument of a cluster that logs without transactions have, too
EPILOG = """examples:
  kafka-eos lab generate /tmp/made --batches 1000000 --partitions 8
  kafka-eos lab generate /tmp/made --faults 3 --seed 7
  kafka-eos lab generate /tmp/made --records 50 100 --value-bytes 1000
  kafka-eos lab generate /tmp/made --transactions 20000 --partitions 8 --brokers 3
  kafka-eos lab generate /tmp/made --transactions 20000 --spread 1 --segment-bytes 100000 --hot-partition 0.9
  kafka-eos lab generate /tmp/made --jepsen 1000000 --faults 3
  kafka-eos lab generate /tmp/made --transactions 500 --value-bytes 16 --history --faults 1
  kafka-eos lab generate /tmp/made --transactions 2000000 --batches 100000000 --partitions 32 --clients 1000 --headers

Without --transactions: batches of idempotent producers. --faults is the number of duplicates, of gaps and of batches
with a stale epoch in each partition.

With --transactions: the log directories of a whole cluster after its brokers were shut down, in the layout of a
recording. Clients of transaction versions 1 and 2 run transactions over several partitions. Some transactions end
without data, some markers are written twice, and half of the clients commit offsets in their transactions. Idempotent
producers write next to them, and groups commit offsets outside of transactions. __transaction_state,
__consumer_offsets, indexes and producer snapshots agree with the topic's batches. --batches is then the approximate
number of batches with data. --faults is the number of violations in the whole cluster of each rule over logs,
transactions, coordinators, offsets, indexes, snapshots and, with several brokers, replicas; transactions are torn in
two ways, by a wrong marker and by a lost one.

With --history: also the clients' history, and the inputs that clients with a group copy. Each batch of such a client is
the output of one input. The history has the requests of all clients; some are sent again because they or their answers
were lost, some have to wait, and some are refused because a new instance has fenced the client. The violations are then
those of the rules over histories.

With --jepsen: history.edn, a history of Jepsen's workload for Kafka with so many operations. --faults is the number of
keys with a lost write, with a duplicate, with inconsistent offsets, with an aborted read, and with a poll that goes
back. An anomaly may show others: the poll over a lost write is a skip.

planted.jsonl lists each planted violation with its rule, topic, partition and offset. Except with --jepsen, the
audit must find exactly these. The same seed gives the same bytes.

exit codes: 0 written, 2 the arguments cannot be used
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``generate``."""
    parser = subparsers.add_parser(
        "generate",
        help=help_line,
        description="Write generated logs: of idempotent producers, or of a whole cluster with transactions.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="an empty folder, or one that does not exist yet")
    parser.add_argument(
        "--batches", type=int, metavar="N", help="batches of all partitions (default 100000; see below)"
    )
    parser.add_argument(
        "--partitions", type=int, metavar="N", help="partitions of the topic (default 1, with transactions 8)"
    )
    parser.add_argument(
        "--producers",
        type=int,
        metavar="N",
        help="idempotent producers per partition (default 50, with transactions 5)",
    )
    parser.add_argument(
        "--records",
        type=int,
        nargs=2,
        default=(1, 3),
        metavar=("LEAST", "MOST"),
        help="smallest and largest number of records in a batch (default 1 3)",
    )
    parser.add_argument(
        "--value-bytes", type=int, default=100, metavar="N", help="size of a record's value (default 100)"
    )
    parser.add_argument(
        "--faults", type=int, default=0, metavar="N", help="violations of each kind; see below (default 0)"
    )
    parser.add_argument("--topic", default="generated", help="name of the topic (default generated)")
    parser.add_argument("--headers", action="store_true", help="write tables of headers instead of segments")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices (default 0)")
    parser.add_argument(
        "--jepsen", type=int, default=0, metavar="N", help="write a history of Jepsen of so many operations instead"
    )
    cluster = parser.add_argument_group("a cluster with transactions")
    cluster.add_argument("--transactions", type=int, default=0, metavar="N", help="number of transactions (default 0)")
    cluster.add_argument("--clients", type=int, default=100, metavar="N", help="transactional ids (default 100)")
    cluster.add_argument("--spread", type=int, metavar="N", help="partitions of a transaction (default 3, or all)")
    cluster.add_argument(
        "--aborted", type=float, default=0.1, metavar="SHARE", help="share of aborted transactions (default 0.1)"
    )
    cluster.add_argument(
        "--version-2",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="share of clients of transaction version 2 (default 0.5)",
    )
    cluster.add_argument(
        "--hot-partition",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the transactions that begin on partition 0 (default 0: as many as on the others)",
    )
    cluster.add_argument(
        "--hot-client",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of the transactions that one client runs, and its group commits in (default 0)",
    )
    cluster.add_argument(
        "--brokers",
        type=int,
        default=1,
        metavar="N",
        help="brokers, each with a replica of every partition (default 1)",
    )
    cluster.add_argument(
        "--internal-partitions",
        type=int,
        default=4,
        metavar="N",
        help="partitions of each of the coordinators' topics (default 4)",
    )
    cluster.add_argument(
        "--segment-bytes", type=int, default=1 << 30, metavar="N", help="largest segment (default 1073741824)"
    )
    cluster.add_argument(
        "--retain-bytes",
        type=int,
        default=0,
        metavar="N",
        help="size to which each partition's log is cut (default 0, no limit)",
    )
    cluster.add_argument("--history", action="store_true", help="also write what clients sent and polled")
    cluster.add_argument("--compacted", action="store_true", help="compact the first records of __transaction_state")
    parser.set_defaults(run=run, parser=parser, cluster=cluster)


def run(arguments: argparse.Namespace) -> int:
    """Write the logs and the list of planted violations, and print a summary."""
    try:
        _refuse_what_has_no_effect(arguments)
        _complete(arguments)
        _check(arguments)
        started = time.perf_counter()
        with _nothing_if_unfinished(arguments.folder):
            write = _write_jepsen if arguments.jepsen else _write_cluster if arguments.transactions else _write
            what, batches, size, planted = write(arguments)
    except (ValueError, OSError) as error:
        said = _no_room(arguments, error) if is_full(error) else error
        print(f"kafka-eos lab generate: {said}", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - started
    unit = "operations" if arguments.jepsen else "batches"
    counts = ", ".join(f"{count} {rule}" for rule, count in sorted(planted.items())) or "nothing"
    print(
        f"seed {arguments.seed}: {what}, {size:,} bytes in {seconds:.1f} s "
        f"({batches / seconds:,.0f} {unit}/s) in {arguments.folder}; planted: {counts}"
    )
    return 0


def _no_room(arguments: argparse.Namespace, error: OSError) -> str:
    """The message about a full disk: what is needed at least, and what is there, now that what was written is gone."""
    own, records = arguments, sum(arguments.records) / 2
    if own.jepsen:
        needed = own.jepsen * OPERATION_BYTES
    elif own.headers:
        needed = own.batches * TABLE_BYTES * own.brokers
    else:
        needed = int(own.batches * (HEADER_BYTES + records * (own.value_bytes + RECORD_BYTES))) * own.brokers
    disk = own.folder if own.folder.exists() else own.folder.absolute().parent  # a disk's own folder stays
    there = shutil.disk_usage(disk).free
    return (
        f"{own.folder} cannot be written: {error.strerror}; it takes at least {needed:,} bytes, and the disk has "
        f"{there:,} free; give a folder on another disk, or fewer --{'jepsen' if own.jepsen else 'batches'}"
    )


@contextmanager
def _nothing_if_unfinished(folder: Path) -> Iterator[None]:
    """A folder, empty or new, that is removed with all that was written to it if that is not finished."""
    make_folder(folder)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _refuse_what_has_no_effect(arguments: argparse.Namespace) -> None:
    """Refuse options that the kind of what is written has no use for."""
    every = {action.dest: action.default for action in arguments.parser._actions}
    given = [name for name, usual in every.items() if getattr(arguments, name, usual) != usual]
    of_cluster = {action.dest for action in arguments.cluster._group_actions} - {OF_EVERY_LOG}
    for name in given:
        value = getattr(arguments, name)
        said = _option(name) if value is True else f"{_option(name)} {value}"
        if arguments.jepsen and name not in OF_JEPSEN:
            raise ValueError(f"{said}: not with --jepsen")
        if not arguments.transactions and name in of_cluster:
            raise ValueError(f"{said}: only with --transactions")


def _complete(arguments: argparse.Namespace) -> None:
    """Set the defaults that depend on whether there are transactions."""
    own = arguments
    if own.spread is None:
        own.spread = SPREAD if own.partitions is None else max(1, min(SPREAD, own.partitions))
    if own.transactions:
        defaults = (RUN * max(own.spread, 0) * own.transactions, 8, CLUSTER_PRODUCERS)
    else:
        defaults = (BATCHES, 1, PRODUCERS)
    for name, value in zip(("batches", "partitions", "producers"), defaults, strict=True):
        if getattr(own, name) is None:
            setattr(own, name, value)


def _check(arguments: argparse.Namespace) -> None:
    from kafka_eos.errors import Rejected  # noqa: PLC0415 - `--help` needs no server
    from kafka_eos.server.cluster import Cluster  # noqa: PLC0415

    least, most = arguments.records
    try:
        Cluster.check_name(arguments.topic)
    except Rejected as refused:
        name = f"--topic {arguments.topic!r}: letters, digits, '.', '_' and '-', at most 249"
        raise ValueError(f"{name}; as Kafka says: {refused.why}") from None
    for name in ("batches", "partitions", "producers", "clients", "spread", "brokers", "internal_partitions"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"{_option(name)} {getattr(arguments, name)}: give 1 or more")
    for name in ("value_bytes", "faults", "seed", "transactions", "retain_bytes", "jepsen"):
        if getattr(arguments, name) < 0:
            raise ValueError(f"{_option(name)} {getattr(arguments, name)}: give 0 or more")
    for name in ("aborted", "version_2", "hot_partition", "hot_client"):
        if not 0 <= getattr(arguments, name) <= 1:
            raise ValueError(f"{_option(name)} {getattr(arguments, name)}: give a share from 0 to 1")
    if not 1 <= least <= most:
        raise ValueError(f"--records {least} {most}: give the smallest and the largest number, from 1")
    if arguments.batches < arguments.partitions:
        raise ValueError(f"--batches {arguments.batches}: give at least {arguments.partitions}, one for each partition")
    if not 1 << 10 <= arguments.segment_bytes < 1 << 31:
        raise ValueError(f"--segment-bytes {arguments.segment_bytes}: give 1024 to 2147483647")
    _check_cluster(arguments)
    if arguments.folder.exists() and any(arguments.folder.iterdir()):
        raise ValueError(f"{arguments.folder}: not empty; give another folder, or remove what is in it")


def _check_cluster(arguments: argparse.Namespace) -> None:
    if not arguments.transactions:
        return
    for name, most in (("partitions", MOST_PARTITIONS), ("clients", MOST_CLIENTS)):
        if getattr(arguments, name) > most:
            raise ValueError(f"{_option(name)} {getattr(arguments, name)}: give at most {most}")
    if arguments.spread > arguments.partitions:
        raise ValueError(f"--spread {arguments.spread}: give at most {arguments.partitions}, the number of partitions")
    if arguments.history and arguments.headers:
        raise ValueError("--history: not with --headers, because tables of headers have no records")
    if arguments.history and arguments.value_bytes < TEXT_BYTES:
        raise ValueError(f"--value-bytes {arguments.value_bytes}: with --history give {TEXT_BYTES} or more")
    if arguments.faults and (arguments.retain_bytes or arguments.compacted):
        raise ValueError("--faults: not with --retain-bytes or --compacted, which could remove planted violations")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


Written = tuple[str, int, int, Counter[str]]  # summary, batches of all logs, bytes of all segments, violations by rule


def _write_cluster(arguments: argparse.Namespace) -> Written:
    from kafka_eos_checks.kit.progress import count_progress  # noqa: PLC0415
    from kafka_eos_checks.lab.generate.cluster import Cluster  # noqa: PLC0415 - `--help` needs no numpy
    from kafka_eos_checks.lab.generate.traffic import HISTORY_SLICE, Workload  # noqa: PLC0415

    own = arguments
    workload = Workload(
        transactions=own.transactions,
        batches=own.batches,
        partitions=own.partitions,
        spread=own.spread,
        clients=min(own.clients, own.transactions),
        producers=own.producers,
        records=tuple(own.records),
        aborted=own.aborted,
        version_2=own.version_2,
        hot_partition=own.hot_partition,
        hot_client=own.hot_client,
        state_partitions=own.internal_partitions,
        offset_partitions=own.internal_partitions,
        slice_batches=HISTORY_SLICE if own.history else 0,
        seed=own.seed,
    )
    cluster = Cluster(
        workload=workload,
        topic=own.topic,
        brokers=own.brokers,
        value_bytes=own.value_bytes,
        as_tables=own.headers,
        segment_bytes=own.segment_bytes,
        retained_bytes=own.retain_bytes,
        compacted=own.compacted,
        history=own.history,
        faults=own.faults,
    )
    with count_progress("slices of time", workload.slices) as advance:
        made = cluster.write(own.folder, advance)
    _write_planted(own.folder, made.planted)
    what = (
        f"{own.transactions:,} transactions: {made.batches:,} batches with data, {made.markers:,} markers, "
        f"{made.states:,} records of __transaction_state, {made.commits:,} commits of offsets"
        + (f", {made.events:,} events" if own.history else "")
    )
    return what, made.all_batches, made.size, Counter(row["rule"] for row in made.planted)


def _write_jepsen(arguments: argparse.Namespace) -> Written:
    from kafka_eos_checks.lab.generate.jepsen_history import PLANTED as ANOMALIES  # noqa: PLC0415
    from kafka_eos_checks.lab.generate.jepsen_history import JepsenHistory  # noqa: PLC0415

    history = JepsenHistory(arguments.jepsen, arguments.faults, arguments.seed)
    path = arguments.folder / "history.edn"
    with path.open("w", encoding="utf-8") as out:
        out.writelines(history.lines())
    for rule in ANOMALIES if history.faults else ():
        if (room := len(history.planted.get(rule, ()))) < history.faults:
            raise ValueError(f"room for {room} of {rule}, not for {history.faults}; give more --jepsen")
    rows = [
        {"rule": rule, "topic": f"key {key}", "partition": -1} for rule, keys in history.planted.items() for key in keys
    ]
    _write_planted(arguments.folder, rows)
    what = f"{arguments.jepsen:,} operations"
    return (
        what,
        arguments.jepsen,
        path.stat().st_size,
        Counter(rule for rule, keys in history.planted.items() for _ in keys),
    )


def _write_planted(folder: Path, rows: list[dict[str, Any]]) -> None:
    with (folder / PLANTED).open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)


def _write(arguments: argparse.Namespace) -> Written:
    from kafka_eos_checks.kit.progress import count_progress  # noqa: PLC0415
    from kafka_eos_checks.lab.generate.planted_logs import clean_batches, plant, write  # noqa: PLC0415

    least, most = arguments.records
    size, rows = 0, []
    share, rest = divmod(arguments.batches, arguments.partitions)
    with count_progress("partitions", arguments.partitions) as advance:
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
            folder = arguments.folder / f"{arguments.topic}-{partition}"
            log = write(
                folder,
                batches,
                arguments.value_bytes,
                seed,
                as_tables=arguments.headers,
                segment_bytes=arguments.segment_bytes,
            )
            size += log.size
            rows += [
                {"rule": rule, "topic": arguments.topic, "partition": partition, "offset": offset}
                for rule, offset in planted
            ]
            advance(1)
    _write_planted(arguments.folder, rows)
    counts = Counter(row["rule"] for row in rows)
    return f"{arguments.batches:,} batches", arguments.batches, size, counts
