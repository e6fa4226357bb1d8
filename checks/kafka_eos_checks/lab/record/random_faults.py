"""A random schedule of clients and faults: a pure function of its seed, which ``random_scenarios`` plays."""

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kafka_eos.errors import ErrorCode
from kafka_eos.histories.history import Event
from kafka_eos_checks.brokers.faults import FaultKind
from kafka_eos_checks.lab.record.clients import TRANSFER, WORD_COUNT

NODES = (1, 2, 3)
NAMED = frozenset(ErrorCode)
STEPS = (14, 20)  # at least, and at most
LONGEST_REST = 4.0  # seconds before a step
APIS = ("Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
GROUP_APIS = ("OffsetFetch", "JoinGroup", "FindCoordinator")
IDEMPOTENT = "idempotent"
KINDS = (*("java", "librdkafka") * 3, *(WORD_COUNT, TRANSFER) * 2, IDEMPOTENT)


class Act(StrEnum):
    """The actions of a step: on a broker, on the cluster, on a client, or on requests and answers."""

    CRASH = "crash"
    STOP = "stop"
    FREEZE = "freeze"
    BACK = "back"  # the broker that is down or frozen
    LEAD = "lead"  # another replica leads a partition
    LEAD_COORDINATION = "lead coordination"  # the same of a coordinator's
    REASSIGN = "reassign"
    VERSION = "version"  # of transactions
    COMPACT = "compact"  # the coordinators' logs, from then on
    KILL_CLIENT = "kill client"
    FREEZE_CLIENT = "freeze client"
    WAKE_CLIENT = "wake client"
    REPLACE_CLIENT = "replace client"  # another one gets its transactional.id, whether or not it still runs
    FAULTS = "faults"  # of the proxy, in the place of those before


@dataclass(frozen=True, slots=True)
class Step:
    """A step.

    Attributes:
        rest: the seconds before it.
        act: what is done.
        which: the node, the client or the version; for partitions and replicas a number that the player reduces to
            those there are.
        chances: the probabilities of the proxy's faults.
        longest: the upper bound of such a fault's seconds.
        apis: the APIs that meet them.
    """

    rest: float
    act: Act
    which: int = 0
    chances: Mapping[FaultKind, float] = field(default_factory=dict)
    longest: float = 0.3
    apis: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: the rest of its name, its partitions' replicas, the leader first, and its configuration."""

    suffix: str
    replicas: tuple[tuple[int, ...], ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Client:
    """A client.

    Attributes:
        kind: ``java`` or ``librdkafka``, with transactions, ``word-count``, ``transfer``, or ``idempotent``.
        topic: the suffix of the topic that it writes to.
        also: the suffixes of further ones.
        copies: whether it copies a source of its own, with its offsets in the transactions.
        work: the rest of its workload.
    """

    name: str
    kind: str
    topic: str
    also: tuple[str, ...]
    copies: bool
    work: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: the version of transactions to begin with, the topics, the clients and the steps."""

    version: int
    topics: tuple[Topic, ...]
    clients: tuple[Client, ...]
    steps: tuple[Step, ...]


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    dice = random.Random(f"random faults {seed}")
    partitions = dice.randint(1, 2)
    shared = [_topic(dice, f"-{number}", partitions, deleted=dice.random() < 0.1) for number in range(2)]
    clients, own = [], []
    for number in range(dice.randint(3, 5)):
        client = _client(dice, f"c{number}", [topic.suffix for topic in shared], partitions)
        clients.append(client)
        if client.copies:
            own.append(_topic(dice, client.topic, 8 if client.kind == TRANSFER else partitions, deleted=False))
    version, compacts = dice.choice((0, 1, 2, 2)), dice.random() < 0.1
    steps = tuple(_steps(dice, len(clients), compacts=compacts))
    return Schedule(version, (*shared, *own), tuple(clients), steps)


def _topic(dice: random.Random, suffix: str, partitions: int, *, deleted: bool) -> Topic:
    copies = dice.choice((1, 2, 3, 3, 3))
    configs = {"min_insync_replicas": str(dice.randint(1, max(1, copies - 1)))}
    if dice.random() < 0.4:
        configs["segment_ms"] = "500"
    if dice.random() < 0.3:
        configs["index_interval_bytes"] = "0"
    if deleted:
        configs |= {"segment_ms": "300", "retention_bytes": "4000", "file_delete_delay_ms": "100"}
    return Topic(suffix, tuple(tuple(dice.sample(NODES, copies)) for _ in range(partitions)), configs)


def _client(dice: random.Random, name: str, shared: list[str], partitions: int) -> Client:
    kind = dice.choice(KINDS)
    copies = kind in {WORD_COUNT, TRANSFER} or (kind != IDEMPOTENT and dice.random() < 0.4)
    topic, *also = dice.sample(shared, len(shared))
    work: dict[str, Any] = {
        "partitions": partitions,
        "records": dice.randint(40, 100) if copies else dice.randint(150, 500),
        "transaction_size": dice.choice((1, 2, 3, 8, 30)),
        "abort_chance": dice.choice((0.0, 0.2, 0.5)),
        "batch": dice.choice((1, 2, 5)),
        "pause_ms": dice.choice((50, 150, 400)),
        "timeout_ms": dice.choice((3_000, 6_000, 15_000)),
        "offsets_each": copies and kind in {"java", "librdkafka"} and dice.random() < 0.3,
    }
    target, others = (f"-{name}", ()) if copies else (topic, tuple(also))
    return Client(name, kind, target, others, copies, work)


def _steps(dice: random.Random, clients: int, *, compacts: bool) -> Iterator[Step]:
    """Faults of brokers one at a time; while one is frozen, nobody asks the cluster for changes."""
    down: Act | None = None
    for number in range(dice.randint(*STEPS)):
        acts = [Act.FAULTS] * 3 + [Act.KILL_CLIENT, Act.FREEZE_CLIENT, Act.WAKE_CLIENT, *[Act.REPLACE_CLIENT] * 2]
        acts += [Act.BACK] * 4 if down else [Act.CRASH, Act.STOP, *[Act.FREEZE] * 2]
        if down is not Act.FREEZE:
            acts += [*[Act.LEAD] * 2, *[Act.LEAD_COORDINATION] * 2, Act.REASSIGN, Act.VERSION]
            acts += [Act.COMPACT] * 2 * compacts
        act, rest = dice.choice(acts) if number else Act.FAULTS, round(dice.uniform(0.2, LONGEST_REST), 2)
        if act in {Act.CRASH, Act.STOP, Act.FREEZE}:
            down = act
            yield Step(rest, act, dice.choice(NODES))
        elif act is Act.FAULTS:
            kinds = dice.sample([kind for kind in FaultKind if kind is not FaultKind.NONE], dice.randint(1, 3))
            chances: dict[FaultKind, float] = {kind: dice.choice((0.03, 0.1, 0.25)) for kind in kinds}
            apis = dice.sample(APIS, dice.randint(1, 4)) + dice.sample(GROUP_APIS, dice.choice((0, 0, 0, 1)))
            yield Step(rest, act, chances=chances, longest=dice.choice((0.1, 0.5, 3.0)), apis=frozenset(apis))
        else:
            down = None if act is Act.BACK else down
            of = {Act.VERSION: 3} | {act: clients for act in Act if act.endswith("client")}
            yield Step(rest, act, dice.randrange(of.get(act, 1_000)))


def met(events: Iterable[Event]) -> Counter[str]:
    """The counts of faults, moves, known ends of transactions, and errors in answers, from the events of a run."""
    found: Counter[str] = Counter()
    for event in events:
        if "fault" in event.detail:
            found[f"{event.detail['fault']} of {event.action}"] += 1
        if event.action in {"Crash", "Freeze", "Restart", "LeaderChange"} and event.phase == "ok":
            found[f"{event.action} of {'a broker' if event.process.startswith('broker-') else 'a client'}"] += 1
        elif event.action in {"Send", "CommitTransaction", "AbortTransaction"} and event.phase != "invoke":
            found[f"{event.action} {event.phase}"] += 1
        elif event.process.startswith("proxy/") and event.error:
            name = ErrorCode(event.error).name if event.error in NAMED else event.error
            found[f"{event.action}: {name}"] += 1
    return found
