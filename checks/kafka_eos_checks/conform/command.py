"""``kafka-eos conform``: the spec's behaviours as raw requests against any broker.

Scenarios are walks through the graphs of the reference's machines, put together as clients see them. They cover every
edge that a client can tell from the others. The broker's answers are compared with the machines', and after each new
edge the state is read back: Fetch with both isolations and from several offsets, ListOffsets, DescribeProducers,
DescribeTransactions, ListTransactions, ConsumerGroupDescribe, and OffsetFetch with and without requireStable.
"""

import argparse
import fnmatch
import ipaddress
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kafka_eos_checks.conform import peers_command
from kafka_eos_checks.conform.known import known_differences
from kafka_eos_checks.conform.mechanisms import MECHANISMS, Mechanism
from kafka_eos_checks.conform.outages import INTERRUPTED, Commands, OutageFailed
from kafka_eos_checks.conform.quotient import Edge
from kafka_eos_checks.conform.result import Report, diagram, story, table, write_json, write_junit
from kafka_eos_checks.conform.run import LONGEST_SCENARIO, Found, Result
from kafka_eos_checks.conform.security import Security, UnusableProperties, read_properties, security_of
from kafka_eos_checks.conform.session import Session, Target, Unusable, conform, open_session, repeat
from kafka_eos_checks.conform.territory import PARTITIONS, PREFIX, NotOurs
from kafka_eos_checks.conform.wire import NoAnswer, Unreachable, Unsupported
from kafka_eos_checks.kit.arguments import above_zero, add_json
from kafka_eos_checks.kit.outputs import check_output, make_folder
from kafka_eos_checks.kit.terminal import answer_console, progress_console

EPILOG = """examples:
  kafka-eos conform --bootstrap 127.0.0.1:9092
  kafka-eos conform --bootstrap 127.0.0.1:9092 --transaction-version 1 --only 'transaction: *EndTxn*'
  kafka-eos conform --bootstrap broker:9093 --command-config client.properties --dry-run
  kafka-eos conform --bootstrap 127.0.0.1:9092 --repeat transaction-179c44
  kafka-eos conform --bootstrap 127.0.0.1:9092 --stop 'docker stop kafka-{node}' --start 'docker start kafka-{node}'
  kafka-eos conform --peers                           the reference, Kafka and its imitations; build/peers.html
  kafka-eos conform --peers --only 'kafka-eos*' --only kfake

The command creates topics, groups and transactional.ids whose names begin with --prefix and a random word. It deletes
topics and groups when it is done; transactional.ids cannot be deleted, they expire (transactional.id.expiration.ms).
ACLs, for names with that prefix: Create, Describe, Read, Write and Delete on Topic, Read, Describe and Delete on Group,
Write and Describe on TransactionalId; DescribeConfigs on Cluster, for the seconds from one assignment of a group to
the next (group.consumer.assignment.interval.ms, which scenarios wait for); IdempotentWrite on Cluster before 3.0;
ClusterAction on Cluster for markers, and for questions about transactions, as brokers send them to each other.

A broker that is not finished is asked for what it offers; the rest is not supported, and not judged. In this order:
  --only 'idempotence: *'   needs ApiVersions, Metadata, CreateTopics (or a broker that makes what Metadata asks about),
                            InitProducerId and Produce; Fetch, ListOffsets and DescribeProducers read back
  --only 'transaction: *'   FindCoordinator, EndTxn, and AddPartitionsToTxn, or TxnOffsetCommit in version 2;
                            DescribeTransactions, ListTransactions and OffsetFetch read back
  --only 'reading: *'       what readers of committed data get of two transactions in two partitions
  --only 'commit: *', 'offsets: *', 'static: *', 'members: *'   offsets and groups
--list names all edges; --repeat ID shows every message of the scenario of one that diverges.

An edge is named after the mechanism, the state that decides, and the request. 'next' is the batch with the producer's
next sequence, 'gap' leaves one out, 'again' is the last one once more. 'epoch - 1' and 'epoch + 1' are relative to the
epoch that the coordinator has (of a producer without transactions: the leader), 'producer id alone' is without epoch.
'settle' is what the broker does by itself: it writes markers, and completes the transaction.

Some scenarios leave a transaction open (timeout-…), all at once: until 2 s have passed, and the broker's
transaction.abort.timed.out.transaction.cleanup.interval.ms, by which the coordinator has to abort it.

With --stop and --start a broker is stopped and started about ten times, a hundred scenarios in each outage: before the
last request of each, which must change nothing that a client sees (restart-…); and while transactions with data on it
end, which must wait until their partition has a leader (no-leader-…; from two brokers on). The topic of these scenarios
has its only replica there, so nothing else is lost; other users of that broker notice. --only 'no-leader-*' plays some.

--command-config reads security.protocol, sasl.mechanism(s) (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512), sasl.username and
sasl.password or sasl.jaas.config, ssl.ca.location or ssl.truststore.location (PEM), ssl.certificate.location,
ssl.key.location, ssl.key.password, ssl.endpoint.identification.algorithm.

exit codes: 0 it conforms, 1 something diverges or could not be told, or nothing is supported, 2 the call or the broker
cannot be used; with --peers: 0 the reference and Apache Kafka 4.4 and 4.3 conform, 1 they do not, or no broker
could be started, 2 the call cannot be used
"""
_LEGAL_PREFIX = re.compile(r"[a-zA-Z0-9._-]{1,100}")


NOTHING_COMPARED = (
    "nothing was compared: the broker supports none of these edges; --help says with which requests a new broker begins"
)
NO_BROKER = """name the broker with --bootstrap HOST:PORT, or give --peers, which starts brokers itself.
To try the command without a broker of your own:
  kafka-eos serve                                 a broker in memory, on 127.0.0.1:9092
  kafka-eos conform --bootstrap 127.0.0.1:9092    in another terminal"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``conform``."""
    parser = subparsers.add_parser(
        "conform",
        help=help_line,
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--bootstrap", metavar="HOST:PORT", help="of a broker")
    asked.add_argument(
        "--peers", action="store_true", help="start the reference, Apache Kafka and its imitations, and ask each"
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="edges whose name or id matches, as a shell does: 'reading: *'; with --peers, names of peers; several",
    )
    add_json(parser, "everything as JSON")
    _add_options_of_one(parser.add_argument_group("with --bootstrap"))
    parser.add_argument_group("with --peers").add_argument(
        "--out", type=Path, metavar="FILE", help="the page (default build/peers.html)"
    )
    parser.set_defaults(run=run, parser=parser)


def _add_options_of_one(parser: argparse._ArgumentGroup) -> None:
    """Add the options that say how one broker is asked."""
    parser.add_argument(
        "--transaction-version",
        type=int,
        choices=(0, 1, 2),
        help="version that clients follow (default: the broker's; 1 against a broker of 2: as librdkafka does)",
    )
    parser.add_argument(
        "--verification",
        choices=("on", "off"),
        default="on",
        help="whether leaders ask coordinators about transactions of version 1, as Kafka does since 3.6 (default on)",
    )
    parser.add_argument(
        "--stop", metavar="COMMAND", help="command line that stops a broker, {node} is its id: also play outages of it"
    )
    parser.add_argument("--start", metavar="COMMAND", help="command line that starts it again, and returns")
    parser.add_argument(
        "--node", type=int, metavar="ID", help="the broker that they stop (default: the last, not that of --bootstrap)"
    )
    parser.add_argument("--repeat", metavar="SCENARIO", help="play the shortest scenario of one edge, by id or name")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be created and asked, and send nothing that writes"
    )
    parser.add_argument(
        "--list", action="store_true", help="a dry run that names every edge, with what the spec allows"
    )
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="client properties: TLS and SASL")
    parser.add_argument("--prefix", default=PREFIX, help=f"prefix of all created names (default {PREFIX})")
    parser.add_argument(
        "--timeout",
        type=above_zero,
        default=10.0,
        metavar="SECONDS",
        help="seconds to wait for any answer (default 10)",
    )
    parser.add_argument(
        "--yes", action="store_true", help="do not ask before writing to brokers that are not on loopback"
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    parser.add_argument("--diagrams", type=Path, metavar="FOLDER", help="write a diagram of each divergence as SVG")


def run(arguments: argparse.Namespace) -> int:
    """Run ``conform``."""
    if not (arguments.bootstrap or arguments.peers):
        return _refuse(NO_BROKER)
    _refuse_what_does_not_apply(arguments)
    if arguments.peers:
        return peers_command.run(arguments)
    for file in filter(None, (arguments.json, arguments.junit)):
        make_folder(file.parent)
        check_output(file)
    if arguments.diagrams:
        make_folder(arguments.diagrams)
    try:
        target = _target(arguments)
        patterns = arguments.only if arguments.repeat is None else [arguments.repeat]
        session = open_session(target, _mechanisms(patterns))
    except (UnusableProperties, Unusable, Unreachable, NoAnswer, OutageFailed, ValueError) as error:
        return _refuse(str(error))
    try:
        return _with(session, arguments)
    except (Unusable, Unreachable, NotOurs, NoAnswer, OutageFailed, Unsupported) as error:
        return _refuse(str(error))
    finally:
        session.wire.close()


def _refuse_what_does_not_apply(arguments: argparse.Namespace) -> None:
    """Refuse an option of ``--bootstrap`` next to ``--peers``, and the other way round, and a file without a report."""
    given = "--peers" if arguments.peers else "--bootstrap"
    for group in arguments.parser._action_groups:
        if group.title in {"with --bootstrap", "with --peers"} and not str(group.title).endswith(given):
            for action in group._group_actions:
                if getattr(arguments, action.dest) != action.default:
                    arguments.parser.error(f"{action.option_strings[0]}: not with {given}")
    for option in ("repeat", "dry_run", "list"):
        for file in ("json", "junit", "diagrams") if getattr(arguments, option) not in {None, False} else ():
            if getattr(arguments, file) is not None:
                why = "it makes no report, and a file of an earlier run would stay"
                arguments.parser.error(f"--{file}: not with --{option.replace('_', '-')}: {why}")


def _refuse(why: str) -> int:
    print(f"kafka-eos conform: {why}", file=sys.stderr)
    return 2


def _target(arguments: argparse.Namespace) -> Target:
    if _LEGAL_PREFIX.fullmatch(arguments.prefix) is None:
        raise ValueError(f"--prefix {arguments.prefix!r}: letters, digits, '.', '_' and '-', at most 100 of them")
    if (arguments.stop is None) != (arguments.start is None) or (arguments.node is not None and arguments.stop is None):
        raise ValueError("--stop and --start belong together, and --node to both")
    commands = None
    if arguments.stop is not None:
        commands = Commands(stop=arguments.stop, start=arguments.start, node=arguments.node)
    security = Security()
    if arguments.command_config is not None:
        security = security_of(read_properties(arguments.command_config), str(arguments.command_config))
    return Target(
        bootstrap=arguments.bootstrap,
        transaction_version=arguments.transaction_version,
        verification=arguments.verification == "on",
        security=security,
        seconds=arguments.timeout,
        prefix=arguments.prefix,
        commands=commands,
        timeouts=True,
    )


def _with(session: Session, arguments: argparse.Namespace) -> int:
    edges = session.edges()
    useless = [each for each in arguments.only or () if not any(_matches(edge, [each]) for edge in edges.values())]
    if useless:
        raise Unusable(f"no edge matches --only {' or '.join(map(repr, useless))}; --list names them all")
    wanted = {name for name, edge in edges.items() if _matches(edge, arguments.only)}
    if arguments.dry_run or arguments.list:
        _dry_run(session, wanted, arguments.list)
        return 0
    chosen = None
    if arguments.repeat is not None:
        chosen = next((edge for edge in edges.values() if arguments.repeat in {edge.id, edge.name}), None)
        if chosen is None:
            raise Unusable(f"no scenario is called {arguments.repeat!r}; --list names them all")
    if not arguments.yes:
        _may_write(session)
    if chosen is not None:
        result = repeat(session, chosen)
        answer_console.print(whole_story(result, session.settings.client), soft_wrap=True)
        return 0 if result.found in {Found.CONFORMS, Found.KNOWN} else 1
    told = set[str]()
    with progress_console.status("") as status:

        def tell(name: str, left: int, diverged: list[str]) -> None:
            """Tell of each divergence at once: the scenarios that show it alone may take minutes."""
            for edge in diverged:
                if edge not in told:
                    progress_console.print(f"diverges: {edge}", soft_wrap=True)
            told.update(diverged)
            status.update(f"{name}: {left} edges left, {len(told)} diverge" if told else f"{name}: {left} edges left")

        report = conform(session, wanted, tell, keeps=True)
    print_report(report)
    if arguments.json:
        write_json(arguments.json, [report])
    if arguments.junit:
        write_junit(arguments.junit, report)
    if arguments.diagrams:
        _write_diagrams(arguments.diagrams, report)
    return 0 if report.conforms else 1


def _mechanisms(patterns: Sequence[str] | None) -> list[Mechanism]:
    """The mechanisms whose edges a pattern can match: an edge's name is ``mechanism: …``, its id ``mechanism-…``.

    Either begins with the kind of an outage, if there is one.
    """
    kinds = "|".join(map(re.escape, INTERRUPTED))
    begins = [re.split("[:-]", re.sub(rf"^({kinds})(-|(?=\*))", "", pattern))[0] for pattern in patterns or ["*"]]
    chosen = [each for each in MECHANISMS if any(fnmatch.fnmatchcase(each.name, begin) for begin in begins)]
    return chosen or list(MECHANISMS)


def _matches(edge: Edge, patterns: Sequence[str] | None) -> bool:
    names = (edge.name, edge.id)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns or ["*"] for name in names)


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own, and nobody else's."""
    try:
        found = {each[4][0] for each in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


def _may_write(session: Session) -> None:
    """Ask, unless all brokers are on the loopback interface.

    Raises:
        Unusable: when the answer is no, or there is nobody to ask.
    """
    brokers = session.wire.ask("Metadata", {"Topics": []})["Brokers"]
    hosts = {session.wire.bootstrap.host, *(each["Host"] for each in brokers)}
    elsewhere = sorted(host for host in hosts if not is_loopback(host))
    if not elsewhere:
        return
    said = f"{', '.join(elsewhere)}: topics, groups and transactional.ids named {session.target.prefix}-… would be made"
    if not sys.stdin.isatty():
        raise Unusable(f"{said}; --yes allows it")
    if input(f"{said}. Go on? [y/N] ").strip().lower() not in {"y", "yes"}:
        raise Unusable("nothing was written")


def _dry_run(session: Session, wanted: set[str], everything: bool) -> None:
    """Say what would be created and asked."""
    scenarios = 0
    for quotient in session.quotients:
        mine = [edge for name, edge in quotient.edges.items() if name in wanted]
        lengths = quotient.plan(wanted, LONGEST_SCENARIO)
        scenarios += len(lengths)
        internal = sum(edge.is_internal for edge in mine)
        answer_console.print(
            f"{quotient.mechanism.name}: {quotient.mechanism.title}\n"
            f"  {len(mine) - internal} edges and {internal} internal ones of a graph of {len(quotient.places)} nodes, "
            f"in {len(lengths)} scenarios of {sum(lengths)} steps together",
        )
        if quotient.apart:
            apart = ", ".join(f"{name} from {count}" for name, count in sorted(quotient.apart.items()))
            answer_console.print(f"  left out, since only faults and time take them: {apart} nodes")
        for edge in mine if everything else ():
            answer_console.print(f"  {edge.id}  {edge.name}  ->  {' or '.join(edge.answers)}", soft_wrap=True)
    topics = -(-scenarios // PARTITIONS)
    answer_console.print(
        f"would make about {topics} topic(s) of {PARTITIONS} partitions, and up to {2 * scenarios} transactional.ids "
        f"and {scenarios} groups, all named {session.target.prefix}-…",
    )
    for reason in session.unsupported().values():
        answer_console.print(f"not supported: {reason}")


def _left_open(report: Report) -> Iterator[str]:
    """Lines about what was not asked, not read back or not judged."""
    unsupported = {result.reason for result in report.results.values() if result.found is Found.UNSUPPORTED}
    yield from (f"NOT SUPPORTED  {reason}" for reason in sorted(unsupported))
    yield from (f"NOT READ BACK  {reason}" for reason in sorted(report.counts.unread))
    why = "edges conform without it, because it differed earlier in their scenario and still does"
    yield from (f"NOT JUDGED  {what}: {count} {why}" for what, count in report.hidden().items())


def print_report(report: Report) -> None:
    """The table, what differs, and the figures."""
    for results in report.kinds():
        answer_console.print(story(results[0], report.client), soft_wrap=True)
        if also := [result.edge.id for result in results[1:]]:
            answer_console.print(f"  also: {', '.join(also)}", soft_wrap=True)
        answer_console.print()
    for name, results in report.known().items():
        known = known_differences()[name]
        answer_console.print(
            f"KNOWN DIFFERENCE  {name}, {len(results)} edges, first {results[0].edge.id}\n"
            f"  {known.title}\n  {known.reason}\n  Apache Kafka {known.brokers}; {known.source}\n",
            soft_wrap=True,
        )
    for line in _left_open(report):
        answer_console.print(line, soft_wrap=True)
    if report.is_compared:
        answer_console.print(table(report))
    counts, busy = report.counts, report.busy()
    level = "not told" if report.level is None else str(report.level)
    meanwhile = ", ".join(f"{count} times {what}" for what, count in sorted(busy.items())) or "nothing was asked"
    answer_console.print(
        f"\n{report.target}: {report.edges} edges at transaction version {report.asked} (the cluster's: {level}), "
        f"{counts.scenarios} scenarios, {counts.requests} requests, {counts.observations} states read back, "
        f"{counts.retries} retries of a busy broker, {report.seconds:.1f} s\n"
        f"while markers were being written: {meanwhile}",
        soft_wrap=True,
    )
    if not report.is_compared:
        answer_console.print(NOTHING_COMPARED, soft_wrap=True)
    elif unsupported := report.found[Found.UNSUPPORTED]:
        every = sum(report.found.values())
        answer_console.print(f"not supported, so not judged: {unsupported} of {every} edges")
    if report.is_compared and not counts.observations:
        answer_console.print("only answers were compared: the state was not read back anywhere")
    if counts.disturbed:
        why = "played again, because a marker came twice in a row"
        answer_console.print(f"{why}: {counts.disturbed} scenarios")
    if report.stopped:
        answer_console.print(f"the run ended early: {report.stopped}", soft_wrap=True)
    if report.left:
        answer_console.print(f"left behind: {', '.join(report.left)}", soft_wrap=True)


def whole_story(result: Result, client: int) -> str:
    """A result with every message of its scenario."""
    lines = [story(result, client), ""]
    for number, each in enumerate(result.scenario, start=1):
        allowed = f"   (allowed: {' or '.join(each.allowed)})" if each.allowed else ""
        answered = f": {each.answered}" if each.answered else ""
        lines.append(f"{number}. {each.label}{answered}{allowed}")
        lines += [f"   {each.request}", f"   {each.response}"] if each.request else []
    return "\n".join(lines)


def _write_diagrams(folder: Path, report: Report) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for result in report.differing():
        if drawn := diagram(result):
            (folder / f"{result.edge.id}.svg").write_text(drawn, encoding="utf-8")
