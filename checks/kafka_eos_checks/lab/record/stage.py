"""The stage that every scenario works with, and the registry of scenarios."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_eos.histories.history import Event
from kafka_eos_checks.brokers.brokers import HOST, Broker, Cluster
from kafka_eos_checks.brokers.faults import NO_FAULTS, FaultKind, Plan
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, RECORDED, WITH_ZOOKEEPER
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.brokers.proxy import Proxy
from kafka_eos_checks.lab.record.clients import (
    ClientProcess,
    Reading,
    Task,
    Workload,
    start_application,
    start_copier,
    start_java_workload,
    start_reader,
    start_workload,
)

SESSION_SECONDS = 6.0  # until ZooKeeper has forgotten a killed broker
ENDED = ("Empty", "CompleteCommit", "CompleteAbort")  # states of a transactional id
PROGRESS_SECONDS = 60.0  # how long a scenario waits for its clients to reach a point


@dataclass(slots=True)
class Stage:
    """The cluster, the proxy and the journal of a scenario, with operations on them.

    Attributes:
        name: the scenario's name without its cluster: topics and transactional ids begin with it.
        seed: the seed of this run.
        folder: the folder for the clients' output.
        logs: the folder in which the recording keeps the brokers' logs.
        topics: the topics that the scenario created, with their partitions and writers.
    """

    name: str
    seed: int
    cluster: Cluster
    proxy: Proxy
    journal: Journal
    folder: Path
    logs: Path
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """The proxy's addresses."""
        return ",".join(f"{HOST}:{broker.advertised_port}" for broker in self.cluster.brokers)

    def topic(
        self, partitions: int = 1, suffix: str = "", *, replicas: list[list[int]] | None = None, **configs: str
    ) -> str:
        """Create a topic of this scenario; ``segment_ms`` stands for ``segment.ms``.

        Args:
            partitions: the number of partitions.
            suffix: the rest of its name, after the scenario's name.
            replicas: the node ids of each partition's replicas, preferred leader first; None leaves them to Kafka.
            configs: the topic's configuration.
        """
        name = self.name + suffix
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.cluster.create_topic(name, partitions, settings, replicas)
        self.topics[name] = {"partitions": partitions, "configs": settings}
        return name

    def workload(self, client: str, topic: str, **work: Any) -> Workload:
        """A workload that connects through the proxy."""
        row: dict[str, Any] = {
            "bootstrap": self.bootstrap,
            "client": client,
            "topic": topic,
            "seed": self.seed,
            "prefix": "a",
        } | work
        row.setdefault("partitions", self.topics[topic]["partitions"])
        return Workload(**row)

    def start(self, client: str, topic: str, **work: Any) -> ClientProcess:
        """Start a librdkafka client with a workload."""
        return start_workload(self.workload(client, topic, **work), self.journal, self.folder)

    def start_java(self, client: str, topic: str, **work: Any) -> ClientProcess:
        """Start a transactional Java client of the brokers' release, or of the oldest that fits, with a workload."""
        release = RECORDED[-1] if self.cluster.kafka in WITH_ZOOKEEPER else self.cluster.kafka
        return start_java_workload(self.workload(client, topic, **work), self.journal, self.folder, release)

    def start_application(self, client: str, kind: str, **work: Any) -> ClientProcess:
        """Start an instance of an application that connects through the proxy."""
        row: dict[str, Any] = {"bootstrap": self.bootstrap, "client": client, "kind": kind, "seed": self.seed}
        return start_application(Task(**(row | {"prefix": ""} | work)), self.journal, self.folder)

    @contextmanager
    def other_cluster(self) -> Iterator[Cluster]:
        """A second cluster of one broker, without proxy; its logs are kept next to those of the first."""
        with Cluster(self.folder / "other-cluster", seed=self.seed + 1, kafka=self.cluster.kafka) as other:
            yield other
            other.stop_all()
            other.copy_logs(self.logs, f"{self.name}-other-")

    @contextmanager
    def readers(self, *topics: str) -> Iterator[None]:
        """Read topics with both isolation levels from before the block to their end after it."""
        partitions = {topic: self.topics[topic]["partitions"] for topic in topics}
        with ExitStack() as stack:
            readers = []
            for isolation in ("read_committed", "read_uncommitted"):
                client = isolation.replace("_", "-")
                reading = Reading(bootstrap=self.bootstrap, client=client, partitions=partitions, isolation=isolation)
                readers.append(stack.enter_context(start_reader(reading, self.journal, self.folder)))
                self._wait_told(client, "Assign", "ok", 1)
            yield
            for reader in readers:
                reader.ask_to_stop()
            for reader in readers:
                reader.wait()

    def start_copier(
        self, client: str, source: str, target: str, *, records: int, transaction_size: int
    ) -> ClientProcess:
        """Start Kafka's TransactionalMessageCopier, which commits its input's offsets in the same transactions."""
        arguments = {
            "--broker-list": self.bootstrap,
            "--input-topic": source,
            "--input-partition": "0",
            "--output-topic": target,
            "--max-messages": str(records),
            "--consumer-group": f"{self.name}-group",
            "--transaction-size": str(transaction_size),
            "--transactional-id": f"{self.name}-t",
        }
        return start_copier(client, arguments, self.journal, self.folder)

    def lose_acknowledgements_and_crash(self, broker: Broker) -> None:
        """Withhold the answers to five requests from the producer, then kill the broker and restart it."""
        self.proxy.follow(Plan(seed=self.name, chances={FaultKind.WITHHOLD: 1.0}))
        self.wait_withheld(5)
        self.crash(broker)
        self.proxy.follow(NO_FAULTS)
        self.restart(broker)

    def wait_acknowledged(self, client: str, records: int) -> None:
        """Wait until a client has that many acknowledged records."""
        self._wait_told(client, "Send", "ok", records)

    def _wait_told(self, client: str, action: str, phase: str, count: int) -> None:
        def told(event: Event) -> bool:
            return event.process == client and event.action == action and event.phase == phase

        self.journal.wait_for(told, count, PROGRESS_SECONDS, f"times {action} {phase} of {client}")

    def wait_read(self, client: str, records: int) -> None:
        """Wait until a reader got that many records."""
        self._wait_told(client, "Poll", "ok", records)

    def wait_paused(self, client: str) -> None:
        """Wait until a client pauses."""
        self._wait_told(client, "Pause", "invoke", 1)

    def assignments(self, client: str, partitions: int) -> int:
        """The number of times a member of a group got so many partitions at once."""
        return self.journal.count(lambda event: _assigns(event, client, partitions))

    def wait_assigned(self, client: str, partitions: int, times: int = 1) -> None:
        """Wait until a member of a group got so many partitions at once, as many as ``times`` times."""
        what = f"times {client} has {partitions} partitions"
        self.journal.wait_for(lambda event: _assigns(event, client, partitions), times, PROGRESS_SECONDS, what)

    def wait_transactions(self, client: str, ended: int) -> None:
        """Wait until a client learned that so many transactions are committed or aborted."""

        def told(event: Event) -> bool:
            ends = event.action in {"CommitTransaction", "AbortTransaction"}
            return event.process == client and ends and event.phase == "ok"

        self.journal.wait_for(told, ended, PROGRESS_SECONDS, f"transactions of {client} ended")

    def wait_settled(self, *transactional_ids: str) -> None:
        """Wait until no transaction of these transactional ids is open or undecided."""
        for each in transactional_ids:
            self.cluster.wait_transaction(each, ENDED)

    def crash(self, broker: Broker) -> None:
        """Kill a broker with SIGKILL."""
        self.journal.add(broker.name, "Crash", "invoke")
        broker.kill()
        self.journal.add(broker.name, "Crash", "ok")

    def freeze(self, broker: Broker) -> None:
        """Stop a broker with SIGSTOP."""
        self.journal.add(broker.name, "Freeze", "invoke")
        broker.freeze()
        self.journal.add(broker.name, "Freeze", "ok")

    def resume(self, broker: Broker) -> None:
        """Let a frozen broker go on."""
        self.journal.add(broker.name, "Resume", "ok")
        broker.resume()

    def restart(self, broker: Broker) -> None:
        """Start a broker again and wait until it answers."""
        self.journal.add(broker.name, "Restart", "invoke")
        if self.cluster.kafka in WITH_ZOOKEEPER:
            time.sleep(SESSION_SECONDS)
        broker.start()
        self.cluster.wait_ready()
        self.journal.add(broker.name, "Restart", "ok")

    def wait_withheld(self, answers: int) -> None:
        """Wait until the proxy has withheld that many answers to Produce requests."""

        def withheld(event: Event) -> bool:
            return event.action == "Produce" and event.phase == "ok" and event.detail.get("delivered") is False

        self.journal.wait_for(withheld, answers, PROGRESS_SECONDS, "answers withheld")

    def leader(self, topic: str) -> Broker:
        """The broker that leads a topic's partition 0."""
        row = self.cluster.leader(topic)
        assert row is not None, "create_topic waits for a leader"
        return self.cluster[row["LeaderId"]]

    def new_leader(self, topic: str, old: Broker, partition: int = 0) -> None:
        """Wait until another broker leads a partition, and write the event of it."""
        row = self.cluster.wait_leader(topic, partition, old.node)
        name = self.cluster[row["LeaderId"]].name
        self.journal.add(name, "LeaderChange", "ok", topic=topic, partition=partition, leader_epoch=row["LeaderEpoch"])


def _assigns(event: Event, client: str, partitions: int) -> bool:
    given = event.detail.get("partitions", ())
    return event.process == client and event.action == "Assign" and len(given) == partitions


Play = Callable[[Stage], None]
Faults = Mapping[FaultKind, float]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario: its name ``cluster/name``, its steps, the faults that the proxy injects, and its Kafka releases."""

    name: str
    play: Play
    chances: Faults
    longest: float
    apis: frozenset[str]
    kafka: frozenset[str]

    @property
    def cluster(self) -> str:
        """The kind of cluster that the scenario runs on: a key of ``CLUSTERS``."""
        return self.name.partition("/")[0]

    @property
    def short_name(self) -> str:
        """Its name on that cluster."""
        return self.name.partition("/")[2]

    def plan(self, seed: int) -> Plan:
        """The proxy's plan for this seed."""
        return Plan(seed=f"{self.name}/{seed}", chances=self.chances, longest=self.longest, apis=self.apis)


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """A kind of cluster: number of brokers, further broker settings, log directories of each broker."""

    size: int = 1
    settings: Mapping[str, str] = field(default_factory=dict)
    log_directories: int = 1


# Recordings in which a guarantee breaks have names of their own: the audit has to find the violation there.
CLUSTERS = {
    "one-broker": ClusterKind(),
    "three-brokers": ClusterKind(3),
    "violations": ClusterKind(),
    "replicated-violations": ClusterKind(3),
    "no-leader": ClusterKind(3),
    "operator-mistakes": ClusterKind(),
    "lost-coordinator": ClusterKind(),
    "transactions": ClusterKind(3),
    "applications": ClusterKind(),
    "application-mistakes": ClusterKind(),
    "late-offsets": ClusterKind(),
}
SCENARIOS: dict[str, Scenario] = {}


def scenario(
    name: str,
    chances: Faults | None = None,
    longest: float = 0.3,
    apis: Iterable[str] = ("Produce",),
    kafka: Iterable[str] = (KAFKA_VERSION, NEWEST),
) -> Callable[[Play], Play]:
    """Register a scenario, with the proxy's fault probabilities for requests of some APIs."""

    def register(play: Play) -> Play:
        SCENARIOS[name] = Scenario(name, play, chances or {}, longest, frozenset(apis), frozenset(kafka))
        return play

    return register
