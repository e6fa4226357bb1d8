"""The scenarios: what clients do and what goes wrong meanwhile. Named, seeded, bounded in records and time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_eos.history import Event
from kafka_eos_checks.record.brokers import HOST, Broker, Cluster
from kafka_eos_checks.record.clients import ClientProcess, Workload, start_workload
from kafka_eos_checks.record.faults import FaultKind, Plan
from kafka_eos_checks.record.journal import Journal
from kafka_eos_checks.record.proxy import Proxy

PROGRESS_SECONDS = 60.0  # how long a scenario waits for its clients to get so far


@dataclass(slots=True)
class Stage:
    """What a scenario works with.

    Attributes:
        name: the scenario's name without its cluster: topics and transactional ids begin with it.
        seed: of this run.
        folder: for the clients' output.
        topics: the topics it created, with their partitions and who wrote them.
    """

    name: str
    seed: int
    cluster: Cluster
    proxy: Proxy
    journal: Journal
    folder: Path
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """The proxy's addresses."""
        return ",".join(f"{HOST}:{broker.advertised_port}" for broker in self.cluster.brokers)

    def topic(self, partitions: int = 1, suffix: str = "", **configs: str) -> str:
        """Create a topic of this scenario; ``segment_ms`` stands for ``segment.ms``."""
        name = self.name + suffix
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.cluster.create_topic(name, partitions, settings)
        self.topics[name] = {"partitions": partitions, "configs": settings}
        return name

    def start(self, client: str, topic: str, **work: Any) -> ClientProcess:
        """Start a librdkafka client that enters through the proxy."""
        row: dict[str, Any] = {
            "bootstrap": self.bootstrap,
            "client": client,
            "topic": topic,
            "seed": self.seed,
            "prefix": "a",
        } | work
        row.setdefault("partitions", self.topics[topic]["partitions"])
        return start_workload(Workload(**row), self.journal, self.folder)

    def wait_acknowledged(self, client: str, records: int) -> None:
        """Wait until a client has that many acknowledged records."""

        def acknowledged(event: Event) -> bool:
            return event.process == client and event.action == "Send" and event.phase == "ok"

        self.journal.wait_for(acknowledged, records, PROGRESS_SECONDS, f"records of {client} acknowledged")

    def crash(self, broker: Broker) -> None:
        """Kill a broker with SIGKILL."""
        self.journal.add(broker.name, "Crash", "invoke")
        broker.kill()
        self.journal.add(broker.name, "Crash", "ok")

    def restart(self, broker: Broker) -> None:
        """Start a broker again and wait until it answers."""
        self.journal.add(broker.name, "Restart", "invoke")
        broker.start()
        self.cluster.wait_ready()
        self.journal.add(broker.name, "Restart", "ok")


Play = Callable[[Stage], None]
Faults = Mapping[FaultKind, float]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario: its name ``cluster/name``, what happens, and which faults the proxy injects."""

    name: str
    play: Play
    chances: Faults
    longest: float

    @property
    def cluster(self) -> str:
        """The kind of cluster it runs on: a key of ``CLUSTERS``."""
        return self.name.partition("/")[0]

    @property
    def short_name(self) -> str:
        """Its name on that cluster."""
        return self.name.partition("/")[2]

    def plan(self, seed: int) -> Plan:
        """The proxy's plan for this seed."""
        return Plan(seed=f"{self.name}/{seed}", chances=self.chances, longest=self.longest)


CLUSTERS = {"one-broker": 1, "three-brokers": 3}
SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str, chances: Faults | None = None, longest: float = 0.3) -> Callable[[Play], Play]:
    """Register a scenario."""

    def register(play: Play) -> Play:
        SCENARIOS[name] = Scenario(name, play, chances or {}, longest)
        return play

    return register


@scenario("one-broker/idempotent-lost-acks", {FaultKind.DROP_ANSWER: 0.15})
def idempotent_lost_acks(stage: Stage) -> None:
    """An idempotent producer loses one acknowledgement in seven, and its connection with each."""
    topic = stage.topic(partitions=2)
    with stage.start("producer", topic, records=400) as producer:
        producer.wait()
