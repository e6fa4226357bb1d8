"""The scenario whose clients, topics and faults its seed decides (``random_faults``)."""

import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from kafka_eos.formats.transaction_log import TOPIC
from kafka_eos.histories.history import Event
from kafka_eos.wire.protocol import MalformedMessage, Message
from kafka_eos_checks.brokers.brokers import Broker, BrokerFailed, ask
from kafka_eos_checks.brokers.faults import NO_FAULTS, Plan
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.lab.record.application_scenarios import contents
from kafka_eos_checks.lab.record.clients import FATAL_EXIT, TRANSFER, WORD_COUNT, ClientProcess
from kafka_eos_checks.lab.record.healthy_scenarios import (
    KRAFT,
    QUICK_CLEANER,
    set_configs,
    set_transaction_version,
    wait_until,
)
from kafka_eos_checks.lab.record.random_faults import IDEMPOTENT, NODES, Act, Client, Schedule, Step, draw, met
from kafka_eos_checks.lab.record.stage import CLUSTERS, ENDED, ClusterKind, Stage, scenario

OFFSETS = "__consumer_offsets"
WITH_VERSIONS = (KAFKA_VERSION, NEWEST)  # the releases with several versions of transactions
APPLICATIONS = (WORD_COUNT, TRANSFER)
SETTLE_SECONDS = 30.0
START_SECONDS = 30.0
STEPS_SECONDS = 80.0  # after these a slow machine leaves the other steps out
LAST_SECONDS = 25.0  # for the clients to end by themselves, after the last step
REFUSALS = (OSError, RuntimeError, MalformedMessage)  # of a cluster that is asked for a change among faults

CLUSTERS["random-faults"] = ClusterKind(3, QUICK_CLEANER)


@dataclass(slots=True)
class Player:
    """Plays steps on a stage.

    Attributes:
        stage: the stage.
        clients: the clients of the schedule.
        stack: ends the processes.
        sources: by client, the settings of a workload with its source.
        running: by client, the processes that were started for it, the newest last.
        frozen: the clients' processes that are frozen, the first one first.
        down: the broker that is down or frozen, and which of them.
    """

    stage: Stage
    clients: tuple[Client, ...]
    stack: ExitStack
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: dict[str, list[ClientProcess]] = field(default_factory=lambda: defaultdict(list))
    frozen: list[ClientProcess] = field(default_factory=list)
    down: tuple[Broker, Act] | None = None

    def feed(self, client: Client) -> dict[str, Any]:
        """Fill a client's source; returns the settings of a workload with it."""
        name, records = f"{client.name}-input", client.work["records"]
        topic = self.stage.topic(client.work["partitions"], suffix=f"-{name}")
        values = contents(client.kind, self.stage.seed, records) if client.kind in APPLICATIONS else []
        with self.stage.start(name, topic, records=records, prefix="i", values=tuple(values), pause_ms=0) as producer:
            producer.wait()
        return {"source": topic, "group": f"{self.stage.name}-{client.name}"}

    def start(self, client: Client) -> None:
        """Start a client, or another one in its place; every second instance of an application has the same id."""
        ones = self.running[client.name]
        name, number = f"{client.name}-{len(ones)}", len(ones) % 2 if client.kind in APPLICATIONS else ""
        topic, *also = (self.stage.name + suffix for suffix in (client.topic, *client.also))
        its_id = None if client.kind == IDEMPOTENT else f"{self.stage.name}-{client.name}{number}"
        identity = {"transactional_id": its_id, "prefix": f"{name}-"}
        work: dict[str, Any] = {**client.work, **self.sources[client.name], **identity, "also": tuple(also)}
        if client.kind in APPLICATIONS:
            one = self.stage.start_application(name, client.kind, topic=topic, **work)
        else:
            one = (self.stage.start_java if client.kind == "java" else self.stage.start)(name, topic, **work)
        ones.append(self.stack.enter_context(one))

    def tell(self, step: Step) -> None:
        """Print a step and play it; what the cluster refuses among faults is left out."""
        what = f"{dict(step.chances)} of {sorted(step.apis)}" if step.act is Act.FAULTS else f"{step.act} {step.which}"
        progress_console.print(what, markup=False, soft_wrap=True)
        with _told(what):
            self.play(step)

    def play(self, step: Step) -> None:
        """Play a step."""
        stage, number = self.stage, step.which
        match step.act:
            case Act.CRASH | Act.STOP | Act.FREEZE:
                broker = stage.cluster[number]
                self.down = broker, step.act
                {Act.CRASH: stage.crash, Act.STOP: Broker.stop, Act.FREEZE: stage.freeze}[step.act](broker)
            case Act.BACK:
                self.back()
            case Act.LEAD:
                self.lead(list(stage.topics), number)
            case Act.LEAD_COORDINATION:
                self.lead([TOPIC, OFFSETS], number)
            case Act.REASSIGN:
                self.reassign(number)
            case Act.VERSION if stage.cluster.kafka in WITH_VERSIONS:
                set_transaction_version(stage, number)
            case Act.COMPACT:
                for topic in (TOPIC, OFFSETS):
                    set_configs(stage, topic, segment_ms="250", min_cleanable_dirty_ratio="0.01")
            case Act.FAULTS:
                seed = f"{stage.seed}/{step.rest}"
                stage.proxy.follow(Plan(seed=seed, chances=step.chances, longest=step.longest, apis=step.apis))
            case Act.REPLACE_CLIENT:
                self.start(self.clients[number])
            case Act.WAKE_CLIENT if self.frozen:
                self.frozen.pop(0).resume()
            case Act.KILL_CLIENT | Act.FREEZE_CLIENT:
                self.disturb(step.act, self.running[self.clients[number].name][-1])

    def disturb(self, act: Act, one: ClientProcess) -> None:
        """Kill or freeze a client that still runs."""
        if act is Act.FREEZE_CLIENT and one.runs() and one not in self.frozen:
            one.freeze()
            self.frozen.append(one)
        elif act is Act.KILL_CLIENT and one.runs():
            self.frozen = [each for each in self.frozen if each is not one]
            one.kill()

    def back(self) -> None:
        """Let the broker that is down or frozen come back."""
        if self.down is not None:
            broker, act = self.down
            self.down = None
            (self.stage.resume if act is Act.FREEZE else self.stage.restart)(broker)

    def lead(self, topics: list[str], number: int) -> None:
        """Let another in-sync replica lead a partition."""
        topic, row = self.partition(topics, number)
        others = [node for node in row["IsrNodes"] if node != row["LeaderId"]]
        if others and row["LeaderId"] > 0:
            self.stage.cluster.make_leader(topic, row["PartitionIndex"], others[number % len(others)])
            self.stage.new_leader(topic, self.stage.cluster[row["LeaderId"]], row["PartitionIndex"])

    def reassign(self, number: int) -> None:
        """Move a partition to as many other brokers, as far as there are any; nobody waits for it."""
        topic, row = self.partition(list(self.stage.topics), number)
        nodes = [NODES[(number + each) % len(NODES)] for each in range(len(row["ReplicaNodes"]))]
        moved = {"Name": topic, "Partitions": [{"PartitionIndex": row["PartitionIndex"], "Replicas": nodes}]}
        asked = {"TimeoutMs": 20_000, "Topics": [moved]}
        ask(self.stage.cluster.controller_port(), "AlterPartitionReassignments", 0, asked)

    def partition(self, topics: list[str], number: int) -> tuple[str, Message]:
        """The topic and the metadata of one partition; the number is reduced to as many as the topics have."""
        rows = [(topic, row) for topic in topics for row in self.stage.cluster.partitions(topic)]
        if not rows:
            raise BrokerFailed(f"nobody tells the partitions of {', '.join(topics)}")
        return rows[number % len(rows)]

    def play_all(self, schedule: Schedule) -> None:
        """Start the clients, play the steps, and end."""
        self.tell(Step(0.0, Act.VERSION, schedule.version))
        for client in self.clients:
            for _ in range(2 if client.kind in APPLICATIONS else 1):
                self.start(client)
        transactional = sum(client.kind != IDEMPOTENT for client in self.clients)
        with _told("not all clients have started"):
            self.stage.journal.wait_for(_starts, transactional, START_SECONDS, "clients have a producer id")
        deadline = time.monotonic() + STEPS_SECONDS
        for step in schedule.steps:
            if time.monotonic() < deadline:
                time.sleep(step.rest)
                self.tell(step)
        self.end()

    def end(self) -> None:
        """End all faults, wait for the clients, kill those that go on, and wait until transactions have ended."""
        self.back()
        self.stage.proxy.follow(NO_FAULTS)
        for one in self.frozen:
            one.resume()
        ones = [one for each in self.running.values() for one in each]
        with _told("clients"):
            wait_until("all have ended", lambda: not any(one.runs() for one in ones), LAST_SECONDS)
        for one in ones:
            if one.runs():
                one.kill()
            with _told(one.name):
                one.wait(expected=(0, FATAL_EXIT, -signal.SIGKILL))
        cluster = self.stage.cluster
        cluster.wait_ready()
        with _told("replicas"):
            topics = (*self.stage.topics, TOPIC, OFFSETS)
            wait_until("all are in sync", lambda: all(map(_in_sync, map(cluster.partitions, topics))), SETTLE_SECONDS)
        for name in {event.transactional_id for event in self.stage.journal.events() if _starts(event)}:
            with _told(str(name)):
                cluster.wait_transaction(str(name), ENDED, SETTLE_SECONDS)


def _in_sync(partitions: list[Message]) -> bool:
    """Whether all replicas of a topic's partitions are in sync."""
    return all(set(row["IsrNodes"]) == set(row["ReplicaNodes"]) for row in partitions)


def _starts(event: Event) -> bool:
    """Whether a transactional client gets its producer id."""
    return event.action == "InitProducerId" and event.phase == "ok" and event.transactional_id is not None


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Print what a cluster or a client does not do among faults; the audit judges what follows from it."""
    try:
        yield
    except REFUSALS as error:
        progress_console.print(f"{what}: {error}", markup=False, soft_wrap=True)


@contextmanager
def _reading(stage: Stage, topics: list[str]) -> Iterator[None]:
    """Read topics for the length of the block; what becomes of the readers is only told."""
    with ExitStack() as readers:
        readers.enter_context(stage.readers(*topics))
        yield
        with _told("readers"):
            readers.close()


@scenario("random-faults/random-faults", kafka=KRAFT)
def random_faults(stage: Stage) -> None:
    """The seed decides clients, topics, versions and a sequence of faults of brokers, clients, requests and answers.

    Kafka 3.9 has one version of transactions, and keeps it.
    """
    schedule = draw(stage.seed)
    progress_console.print(f"seed {stage.seed}: {len(schedule.clients)} clients, {len(schedule.steps)} steps")
    for topic in schedule.topics:
        replicas = [list(nodes) for nodes in topic.replicas]
        stage.topic(len(replicas), topic.suffix, replicas=replicas, **topic.configs)
    read = [stage.name + topic.suffix for topic in schedule.topics if "retention_bytes" not in topic.configs]
    with ExitStack() as stack:
        player = Player(stage, schedule.clients, stack)
        player.sources = {each.name: player.feed(each) if each.copies else {} for each in schedule.clients}
        stage.cluster.coordinator(f"{stage.name}-c0")  # makes __transaction_state
        with _reading(stage, read):
            player.play_all(schedule)
    for what, count in sorted(met(stage.journal.events()).items()):
        progress_console.print(f"met: {what} {count}", markup=False)
