"""A Kafka cluster to test against: Kafka's own clients run on the reference's machines.

The machines that are compared with the TLA+ specs answer idempotent producers, transactions (transaction.version 0, 1
and 2), consumer groups of both protocols, read_committed and admin requests. The server is one process without
replication, for tests, on the loopback interface: there is no authentication.
"""

import argparse
import asyncio
import fcntl
import ipaddress
import logging
import signal
import socket
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from kafka_eos.formats.log_directory import META_PROPERTIES, cluster_id
from kafka_eos.histories.history import NOTE, MalformedHistory
from kafka_eos.machines.leader import LeaderRules
from kafka_eos.server.cluster import Broker, Cluster, Limits, Machines, Settings
from kafka_eos.server.faults import Fault, Faults, MalformedPlan, Rule, check_brokers, read_plan
from kafka_eos.server.network import MovableClock, Server, bind
from kafka_eos.server.storage import DamagedLog, Directory, Memory
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos_checks.brokers.wire_events import SERVED
from kafka_eos_checks.testing.coverage import in_help
from kafka_eos_checks.testing.history import CLUSTER, TOLD_EVERY, HistoryFile, continued

EPILOG = """examples:
  kafka-eos serve                                        127.0.0.1:9092, in memory
  kafka-eos serve --port 0 --brokers 3                   three logical brokers on free ports
  kafka-eos serve --transaction-version 1 --verification off
  kafka-eos serve --record build/served.jsonl            `kafka-eos audit build/served.jsonl` reads it
  kafka-eos serve --data build/served                    kept in files; `kafka-eos audit build/served` reads them
  kafka-eos serve --faults plan.toml --seed 7            faults on demand; the same requests meet the same faults

a plan of faults is TOML, one table for each rule:

  [[fault]]                     # the answer to the first EndTxn of x is lost
  do = "drop-answer"
  api = "EndTxn"
  transactional-id = "x"
  nth = 1

  [[fault]]                     # the coordinator crashes between the decision and its markers
  do = "kill-broker"
  api = "EndTxn"
  nth = 3
  when = "after"                # it was handled; it is not answered
  seconds = 2

  [[fault]]                     # one Produce of twenty to a topic out… arrives after what the client sent next
  do = "overtake"
  api = "Produce"
  topic = "out*"
  chance = 0.05
  seconds = 0.5

which requests  api, client, topic, transactional-id, group (patterns), broker
how many        nth (of those, from 1 on: a number or a list), chance (by the seed), at-most
what happens to the request
                drop-answer   handled, and the connection is closed instead of the answer
                withhold      handled, but neither its answer nor anything later comes on the connection
                close         the connection is closed, and the request is never handled
                delay         the request and those after it on its connection wait for some seconds
                repeat        handled once more, some seconds later
                overtake      the connection is closed; handled some seconds later, after the client's retry
                error         answered with an error (error = "NOT_LEADER_OR_FOLLOWER"), and not handled
what happens to the cluster, before or after the request is handled (when)
                move-leader, move-coordinator (to = 2, or the next broker), time-out-transaction,
                delay-markers (for some seconds; requests meanwhile get CONCURRENT_TRANSACTIONS),
                kill-broker (the one that is asked, for some seconds), restart (needs --data), advance-clock (seconds)

{served}

exit codes: 0 ended by SIGINT or SIGTERM, 2 the call cannot be used: an address that is taken, a damaged directory, a
plan with an unknown key
"""
MAX_BROKERS = 100


class OtherHistory(ValueError):  # noqa: N818 - what the file has
    """The file to record into has a history of other files, or another server writes it."""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``serve``."""
    parser = subparsers.add_parser(
        "serve",
        help=help_line,
        description=__doc__,
        epilog=EPILOG.format(served=in_help()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    defaults = Limits()
    parser.add_argument(
        "--port", type=int, default=9092, metavar="N", help="port of the first broker (default 9092; 0: a free one)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default 127.0.0.1)")
    parser.add_argument(
        "--any-client", action="store_true", help="allow a --host that others can reach; there is no authentication"
    )
    parser.add_argument(
        "--advertised-host", metavar="NAME", help="the host that clients are told to connect to (default: --host)"
    )
    parser.add_argument(
        "--brokers", type=int, default=1, metavar="N", help="logical brokers, one port each (default 1)"
    )
    parser.add_argument(
        "--transaction-version", type=int, choices=(0, 1, 2), default=2, help="the feature's level (default 2)"
    )
    parser.add_argument(
        "--verification",
        choices=("on", "off"),
        default="on",
        help="leaders ask coordinators about old clients' transactions, KIP-890 part 1 (default on)",
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep everything in a log directory of Kafka's layout")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="write requests and answers as a .jsonl history, after those of an earlier server with the same --data",
    )
    parser.add_argument("--faults", type=Path, metavar="PLAN", help="a plan of faults, in TOML; see below")
    parser.add_argument("--seed", default="0", help="seed of the plan's chances (default 0)")
    parser.add_argument(
        "--default-partitions",
        type=int,
        default=1,
        metavar="N",
        help="partitions of a topic that is created when a client asks for it (default 1; 0: it is not created)",
    )
    limits = parser.add_argument_group("limits; a client beyond one loses its connection or is refused")
    for name, what in (
        ("connections", "at a time"),
        ("frame_bytes", "of a request"),
        ("waiting_bytes", "of all requests that have not arrived whole"),
        ("elements", "of all arrays in a request"),
        ("batch_bytes", "of a record batch, where its topic has no max.message.bytes"),
        ("log_bytes", "of all partitions, in memory"),
        ("partitions", "of all topics"),
        ("groups", "of consumers"),
        ("members", "of a group"),
        ("transactional_ids", "of producers"),
        ("producers", "that a partition remembers"),
    ):
        default = getattr(defaults, name)
        option = f"--max-{name.replace('_', '-')}"
        limits.add_argument(
            option, dest=name, type=int, default=default, metavar="N", help=f"{what} (default {default})"
        )
    parser.set_defaults(run=run, parser=parser)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings that the arguments ask for."""
    limits = replace(Limits(), **{name: getattr(arguments, name) for name in _LIMITS})
    return Settings(
        transactions=TransactionSettings(version=arguments.transaction_version),
        limits=limits,
        default_partitions=arguments.default_partitions,
    )


_LIMITS = (
    "connections",
    "frame_bytes",
    "waiting_bytes",
    "elements",
    "batch_bytes",
    "log_bytes",
    "partitions",
    "groups",
    "members",
    "transactional_ids",
    "producers",
)


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def run(arguments: argparse.Namespace) -> int:
    """Run ``serve``."""
    _check(arguments)
    try:
        rules = _rules(arguments)
    except (MalformedPlan, OSError) as error:
        print(f"kafka-eos serve: {error}", file=sys.stderr)
        return 2
    if not is_loopback(arguments.host):
        print(
            f"kafka-eos serve: warning: anybody who reaches {arguments.host} can read and write everything here",
            file=sys.stderr,
        )
    first = arguments.port
    ports = [first + number if first else 0 for number in range(arguments.brokers)]
    try:
        sockets = bind(arguments.host, ports)
    except OSError as error:
        print(
            f"kafka-eos serve: {arguments.host}, ports {ports}: {error.strerror or error}; choose another --port",
            file=sys.stderr,
        )
        return 2
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO)
    try:
        with _opened(arguments.record) if arguments.record else nullcontext() as record:
            first = _first_number(arguments)
            return asyncio.run(serve(arguments, sockets, record, Faults(rules, arguments.seed), first))
    except (DamagedLog, MalformedHistory, OtherHistory, OSError) as error:
        print(f"kafka-eos serve: {error}", file=sys.stderr)
        return 2
    finally:
        for each in sockets:
            each.close()


def _opened(record: Path) -> TextIO:
    """Open a history to append to it, and keep other servers out until it is closed.

    Two servers in one history would give the same numbers twice, and one could cut off what the other has just written.

    Raises:
        OtherHistory: another server writes it.
        OSError: it cannot be written.
    """
    record.parent.mkdir(parents=True, exist_ok=True)
    file = record.open("a", buffering=1, encoding="utf-8")
    try:
        if record.is_file():
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # lockf's lock would end as soon as the file was read
    except OSError as error:
        file.close()
        if not isinstance(error, BlockingIOError):
            raise
        raise OtherHistory(f"{record}: another server writes its history there; name another file") from None
    return file


def _first_number(arguments: argparse.Namespace) -> int:
    """The first number of the history's events; not 0 if the files of ``--data`` and their history are there already.

    Raises:
        OtherHistory: the history is there, and the files are not.
        MalformedHistory: it is no history of a server, or one of another cluster.
        OSError: it cannot be read or written.
    """
    record, data = arguments.record, arguments.data
    if record is None or not record.is_file() or not record.stat().st_size:
        return 0
    if data is None or not (data / META_PROPERTIES).is_file():
        raise OtherHistory(
            f"{record} has a history already, and {data or 'memory'} has no files that it is of; "
            "name another file, or the --data that it was written with"
        )
    size = record.stat().st_size
    if size < TOLD_EVERY:
        return continued(record, SERVED, cluster_id(data))
    from kafka_eos_checks.kit.terminal import progress_console  # noqa: PLC0415 - most servers need none

    what = f"read {record}, to go on after its last event"
    with progress_console.status(what) as told:
        return continued(record, SERVED, cluster_id(data), lambda read: told.update(f"{what}: {100 * read // size} %"))


def _check(arguments: argparse.Namespace) -> None:
    parser = arguments.parser
    if not is_loopback(arguments.host) and not arguments.any_client:
        parser.error(f"others can reach {arguments.host}, and there is no authentication; --any-client allows it")
    if not 1 <= arguments.brokers <= MAX_BROKERS:
        parser.error(f"--brokers is 1 to {MAX_BROKERS}")
    if not 0 <= arguments.port <= 65536 - arguments.brokers:
        parser.error("--port is 0 to 65535, and so is that of the last broker")
    for name in _LIMITS:
        if getattr(arguments, name) < 1:
            parser.error(f"--max-{name.replace('_', '-')} is 1 or more")
    if arguments.default_partitions < 0:
        parser.error("--default-partitions is 0 or more")


def _rules(arguments: argparse.Namespace) -> list[Rule]:
    """The rules of the plan.

    Raises:
        MalformedPlan: they cannot be used here.
    """
    if arguments.faults is None:
        return []
    try:
        text = arguments.faults.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise MalformedPlan(f"{arguments.faults}: no TOML: {error}") from None
    rules = read_plan(text, str(arguments.faults))
    if arguments.data is None and any(rule.fault is Fault.RESTART for rule in rules):
        raise MalformedPlan(f"{arguments.faults}: restart needs files to come back with; add --data DIR")
    check_brokers(rules, arguments.brokers, str(arguments.faults), "--brokers ")
    return rules


async def serve(
    arguments: argparse.Namespace, sockets: list[socket.socket], record: TextIO | None, faults: Faults, first: int
) -> int:
    """Serve until a signal comes, then say which faults fired, and how often each error was answered."""
    machines = Machines(leaders=LeaderRules(verification=arguments.verification == "on"))
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    make = partial(_cluster, arguments, machines)
    settings = settings_of(arguments)
    clock = MovableClock()
    server = Server(
        make,
        sockets,
        advertised_host=arguments.advertised_host,
        limits=settings.limits,
        clock=clock,
        observer=HistoryFile(record, SERVED, clock, first=first) if record is not None else None,
        faults=faults,
    )
    if server.observer is not None and not first:
        server.observer.happened(NOTE, 0, detail={CLUSTER: server.cluster.cluster_id})
    async with server:
        place = f"data in {arguments.data}" if arguments.data else "in memory"
        version = arguments.transaction_version
        print(f"ready: bootstrap.servers={server.bootstrap} (transaction.version {version}, {place})", flush=True)
        await stopped.wait()
    for rank, tally in enumerate(faults.tallies, start=1):
        print(f"fault {rank}: {tally.in_words()}")
    for line in server.errors.lines():
        print(f"answered {line}")
    return 0


def _cluster(arguments: argparse.Namespace, machines: Machines, brokers: list[Broker], now: int) -> Cluster:
    storage = Directory(arguments.data) if arguments.data else Memory()
    return Cluster(brokers, settings_of(arguments), storage, machines, now=now)
