"""Real Kafka brokers on the loopback interface: start, kill, freeze, restart, stop.

Every broker has three listeners: PLAINTEXT for the recorder and the other brokers, PROXY for clients, and one for the
quorum. The advertised address of PROXY is the fault proxy's, so that a client that enters through the proxy never
leaves it. The quorum is KRaft's; releases before KRaft have ZooKeeper.
"""

import base64
import random
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka_eos.errors import ErrorCode
from kafka_eos.formats.transaction_log import TOPIC
from kafka_eos.wire.protocol import MalformedMessage, Message, load_codec
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, WITH_ZOOKEEPER, clients_jar, need_jars
from kafka_eos_checks.kit.class_archive import class_archive, sharing_options

HOST = "127.0.0.1"
READY_SECONDS = 90.0
STOP_SECONDS = 40.0
_ANSWER_LIMIT = 1 << 26  # bytes; no answer to the recorder's own requests is near this
# Small and quick to start: the machine is shared with the clients.
SMALL_JAVA = ("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")

BROKER = "kafka.Kafka"

SETTINGS = {
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXY:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",  # a frozen member loses its partitions within seconds
    "log.cleaner.enable": "false",  # the recording keeps what was written
    "log.retention.ms": "-1",
    "log.index.size.max.bytes": "65536",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "unclean.leader.election.enable": "false",
    "request.timeout.ms": "5000",  # a broker that waits for the answer of a killed one tries again soon
    "num.network.threads": "2",
    "num.io.threads": "4",
}
KRAFT_SETTINGS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": "3000",  # a killed leader is replaced within seconds
    "broker.heartbeat.interval.ms": "500",
}
ZOOKEEPER_SETTINGS = {"zookeeper.session.timeout.ms": "3000"}
KEPT_FILES = (
    *("meta.properties", ".kafka_cleanshutdown"),
    *("replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"),
)
METADATA_VERSION, LIST_OFFSETS_VERSION = 11, 5  # which all releases know
LATEST = -1  # the timestamp that asks for the end of a partition


class BrokerFailed(RuntimeError):  # noqa: N818 - what happened
    """A broker ended, or did not answer in time; the message names its log."""


def java_command(
    main_class: str, *arguments: str, kafka: str = KAFKA_VERSION, java: Sequence[str] = SMALL_JAVA
) -> list[str]:
    """The command line of a Java program, a class or a source file, with the jars of a Kafka release.

    With :data:`SMALL_JAVA` brokers and tools start in half of the time: they share the archive of the classes that a
    broker of the release has loaded, and written when it was shut down.
    """
    jars = need_jars(kafka)
    program = shutil.which(java[0]) if java == SMALL_JAVA else None
    shared = sharing_options(class_archive("kafka", program, jars), write=main_class == BROKER) if program else []
    return [*java, *shared, "-cp", f"{jars}/*", main_class, *arguments]


def free_ports(count: int) -> list[int]:
    """Distinct ports of the loopback interface that nobody listens on now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def ask(port: int, api: str, version: int, row: Message, seconds: float = 10.0) -> Message:
    """Send one request to a broker and return the answer's body.

    Raises:
        OSError: when nobody answers.
        MalformedMessage: when the answer is none.
    """
    codec = load_codec(clients_jar())
    data = codec.write_request(api, version, 1, "recorder", row)
    with socket.create_connection((HOST, port), timeout=seconds) as connection:
        connection.sendall(struct.pack(">i", len(data)) + data)
        with connection.makefile("rb") as answers:
            head = answers.read(4)
            size = struct.unpack(">i", head)[0] if len(head) == 4 else -1
            if not 0 <= size <= _ANSWER_LIMIT:
                raise ConnectionError(f"port {port} closed the connection or announced {size} bytes")
            return codec.read_response(api, version, answers.read(size))[1]


def coordinator_partition(transactional_id: str, partitions: int) -> int:
    """The partition of ``__transaction_state`` that an ASCII transactional id belongs to.

    Kafka: TransactionStateManager.partitionFor, Utils.abs
    """
    value = 0
    for letter in transactional_id.encode("ascii"):
        value = (31 * value + letter) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def holds_records(partition: Path) -> bool:
    """Whether a partition's folder is worth keeping: it was written to, and is no metadata of the cluster."""
    return not partition.name.startswith("__cluster_metadata") and any(
        p.stat().st_size for p in partition.glob("*.log")
    )


def wait_stopped(pid: int, seconds: float = 5.0) -> None:
    """Wait until a process that got SIGSTOP has stopped, where the system tells it."""
    status = Path(f"/proc/{pid}/stat")
    deadline = time.monotonic() + seconds
    while status.exists() and time.monotonic() < deadline:
        if status.read_text(encoding="utf-8").rpartition(")")[2].split()[0] in "Tt":
            return
        time.sleep(0.01)


@dataclass(slots=True)
class Broker:
    """A broker, which is a controller as well.

    Attributes:
        node: node id, from 1.
        folder: its configuration, log directory (``data``) and output.
        port: the port of the PLAINTEXT listener, for the recorder.
        proxied_port: the port of the PROXY listener, for the proxy.
        advertised_port: the port on which the proxy listens for this broker's clients.
        kafka: its release.
        java: the command that runs it, with the JVM's options.
        log_directories: the number of its log directories.
    """

    node: int
    folder: Path
    port: int
    controller_port: int
    proxied_port: int
    advertised_port: int
    kafka: str = KAFKA_VERSION
    java: Sequence[str] = SMALL_JAVA
    log_directories: int = 1
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The broker's process name in histories."""
        return f"broker-{self.node}"

    @property
    def data(self) -> Path:
        """Its log directory, the first one if it has several."""
        return self.all_data[0]

    @property
    def all_data(self) -> list[Path]:
        """The broker's log directories."""
        return [self.folder / f"data{number or ''}" for number in range(self.log_directories)]

    @property
    def properties(self) -> Path:
        """The broker's configuration file."""
        return self.folder / "server.properties"

    @property
    def listeners(self) -> str:
        """The listeners for clients and other brokers."""
        return f"PLAINTEXT://{HOST}:{self.port},PROXY://{HOST}:{self.proxied_port}"

    def configure(self, extra: dict[str, str]) -> dict[str, str]:
        """Write the configuration, in which ``{folder}`` stands for the broker's folder; returns it."""
        settings = SETTINGS | {
            "listeners": self.listeners,
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.port},PROXY://{HOST}:{self.advertised_port}",
            "log.dirs": ",".join(map(str, self.all_data)),
        }
        settings |= {name: value.replace("{folder}", str(self.folder)) for name, value in extra.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.properties.write_text("".join(f"{k}={v}\n" for k, v in settings.items()), encoding="utf-8")
        return settings

    def run_tool(self, main_class: str, *arguments: str) -> None:
        """Run a tool of Kafka to its end.

        Raises:
            BrokerFailed: when it fails; with its output.
        """
        done = subprocess.run(
            java_command(main_class, *arguments, kafka=self.kafka),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=READY_SECONDS,
            check=False,
        )
        if done.returncode:
            raise BrokerFailed(f"{main_class} ended with {done.returncode}: {done.stdout.decode(errors='replace')}")

    def start(self) -> None:
        """Start the process; :meth:`Cluster.wait_ready` tells when it answers."""
        assert self.process is None, f"{self.name} runs already"
        with (self.folder / "output.log").open("ab") as output:
            # In a session of its own: Ctrl-C is the recorder's, which then stops its brokers one by one.
            self.process = subprocess.Popen(
                java_command(BROKER, str(self.properties), kafka=self.kafka, java=self.java),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def check_running(self) -> None:
        """Raise BrokerFailed when the process has ended by itself."""
        if self.process is None or self.process.poll() is not None:
            code = self.process.returncode if self.process else "never started"
            raise BrokerFailed(f"{self.name} ended ({code}); see {self.folder / 'output.log'}")

    def _end(self, signal_number: signal.Signals, seconds: float) -> None:
        if self.process is None:
            return
        self.process.send_signal(signal_number)
        self.process.send_signal(signal.SIGCONT)  # a frozen process can't end
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(seconds)
        self.process = None

    def kill(self) -> None:
        """End it with SIGKILL, as a crash of the process does: nothing is flushed or handed over."""
        self._end(signal.SIGKILL, STOP_SECONDS)

    def ask_to_stop(self) -> None:
        """Tell it to shut down, without waiting."""
        assert self.process is not None, f"{self.name} does not run"
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Shut it down in good order: logs closed, producer snapshots written."""
        self._end(signal.SIGTERM, STOP_SECONDS)

    def freeze(self) -> None:
        """Stop it in its tracks with SIGSTOP; its connections stay open."""
        assert self.process is not None, f"{self.name} does not run"
        self.process.send_signal(signal.SIGSTOP)
        wait_stopped(self.process.pid)

    def resume(self) -> None:
        """Let a frozen broker go on."""
        assert self.process is not None, f"{self.name} does not run"
        self.process.send_signal(signal.SIGCONT)


class KRaft:
    """The brokers keep the cluster's metadata themselves: each is a controller too.

    Args:
        identity: the cluster's id.
        features: feature levels at formatting.
    """

    common = KRAFT_SETTINGS

    def __init__(self, identity: str, features: dict[str, int]) -> None:
        self._identity, self._features = identity, features

    def settings(self, broker: Broker, brokers: Sequence[Broker]) -> dict[str, str]:
        """A broker's own settings."""
        return {
            "node.id": str(broker.node),
            "controller.quorum.voters": ",".join(f"{b.node}@{HOST}:{b.controller_port}" for b in brokers),
            "listeners": f"{broker.listeners},CONTROLLER://{HOST}:{broker.controller_port}",
        }

    def begin(self, brokers: Sequence[Broker]) -> None:
        """Format the log directories of brokers that never ran."""
        levels = [word for name, level in self._features.items() for word in ("--feature", f"{name}={level}")]
        for broker in brokers:
            arguments = ("format", "-t", self._identity, "-c", str(broker.properties), *levels)
            broker.run_tool("kafka.tools.StorageTool", *arguments)

    def end(self) -> None:
        """Do nothing: there is nothing to end except the brokers."""


class ZooKeeper:
    """A server of ZooKeeper keeps the cluster's metadata.

    Args:
        folder: its configuration, data and output.
        port: the port on which it listens.
        kafka: the release that it comes with.
    """

    common = ZOOKEEPER_SETTINGS

    def __init__(self, folder: Path, port: int, kafka: str) -> None:
        self._folder, self._port, self._kafka = folder, port, kafka
        self._process: subprocess.Popen[bytes] | None = None

    def settings(self, broker: Broker, brokers: Sequence[Broker]) -> dict[str, str]:  # noqa: ARG002 - as KRaft's
        """A broker's own settings."""
        return {"broker.id": str(broker.node), "zookeeper.connect": f"{HOST}:{self._port}"}

    def begin(self, brokers: Sequence[Broker]) -> None:  # noqa: ARG002 - as KRaft's
        """Start it; brokers wait for it."""
        self._folder.mkdir()
        properties = self._folder / "zookeeper.properties"
        settings = {
            "dataDir": self._folder / "data",
            "clientPort": self._port,
            "clientPortAddress": HOST,
            "tickTime": 500,  # sessions are at least two of them
            "admin.enableServer": "false",
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        server = "org.apache.zookeeper.server.ZooKeeperServerMain"
        with (self._folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen(
                java_command(server, str(properties), kafka=self._kafka),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None


class Cluster:
    """A cluster of one broker or three, formatted in a new folder; a context manager that stops its processes.

    Args:
        folder: where everything is written; must not hold an earlier cluster.
        size: number of brokers.
        seed: decides the cluster's id.
        features: feature levels at formatting, e.g. ``{"transaction.version": 1}``; ZooKeeper keeps none.
        settings: further broker settings, which take precedence.
        kafka: the brokers' release.
        java: the command that runs a broker, with the JVM's options.
        log_directories: log directories of each broker.
    """

    def __init__(
        self,
        folder: Path,
        *,
        size: int = 1,
        seed: int = 0,
        features: dict[str, int] | None = None,
        settings: dict[str, str] | None = None,
        kafka: str = KAFKA_VERSION,
        java: Sequence[str] = SMALL_JAVA,
        log_directories: int = 1,
    ) -> None:
        if folder.exists() and any(folder.iterdir()):
            raise BrokerFailed(f"{folder} is not empty; choose a folder of its own for the brokers")
        *ports, zookeeper_port = free_ports(4 * size + 1)
        self.folder = folder
        self.kafka = kafka
        four = zip(*[iter(ports)] * 4, strict=True)
        self.brokers = [
            Broker(node, folder / str(node), plain, controller, proxied, advertised, kafka, java, log_directories)
            for node, (plain, controller, proxied, advertised) in enumerate(four, start=1)
        ]
        copies = min(size, 3)
        replication = {
            "offsets.topic.replication.factor": str(copies),
            "transaction.state.log.replication.factor": str(copies),
            "transaction.state.log.min.isr": str(max(1, copies - 1)),
            "min.insync.replicas": str(max(1, copies - 1)),
            "default.replication.factor": str(copies),
        }
        # The leading byte keeps the text from starting with '-', which Kafka's Uuid refuses.
        identity = b"\x45" + random.Random(f"cluster {seed}").randbytes(15)
        self.cluster_id = base64.urlsafe_b64encode(identity).decode().rstrip("=")
        self._quorum = (
            ZooKeeper(folder / "zookeeper", zookeeper_port, kafka)
            if kafka in WITH_ZOOKEEPER
            else KRaft(self.cluster_id, features or {})
        )
        self.settings = self._quorum.common | replication | (settings or {})
        for broker in self.brokers:
            broker.configure(self._quorum.settings(broker, self.brokers) | self.settings)

    def __enter__(self) -> Self:
        try:
            self._quorum.begin(self.brokers)
            for broker in self.brokers:
                broker.start()
            self.wait_ready()
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()

    def kill_all(self) -> None:
        """Kill the processes that still run."""
        for broker in self.brokers:
            broker.kill()
        self._quorum.end()

    def stop_all(self) -> None:
        """Shut all brokers down in good order.

        All are told at once: a broker hands its leaderships over through a controller, and the last ones of a quorum
        would wait in vain for one that has left.
        """
        for broker in self.running():
            broker.ask_to_stop()
        for broker in self.running():
            broker.stop()

    def __getitem__(self, node: int) -> Broker:
        """The broker with this node id."""
        return self.brokers[node - 1]

    def running(self) -> list[Broker]:
        """The brokers whose process runs."""
        return [broker for broker in self.brokers if broker.process is not None]

    def _wait(self, what: str, ready: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
        """Ask until ``ready`` says so; brokers that end meanwhile are an error."""
        deadline = time.monotonic() + seconds
        last: Exception | None = None
        while time.monotonic() < deadline:
            for broker in self.running():
                broker.check_running()
            try:
                if ready():
                    return
            except (OSError, MalformedMessage) as error:
                last = error
            time.sleep(0.1)
        raise BrokerFailed(f"{what}: not after {seconds:.0f} s ({last}); see {self.folder}/*/output.log")

    def wait_ready(self) -> None:
        """Wait until each running broker knows all running brokers and accepts produce requests."""
        nodes = {broker.node for broker in self.running()}

        def ready() -> bool:
            for broker in self.running():
                answer = ask(broker.port, "Metadata", METADATA_VERSION, {"Topics": []}, 3.0)
                if not nodes <= {b["NodeId"] for b in answer["Brokers"]}:
                    return False
            return True

        self._wait(f"brokers {sorted(nodes)} ready", ready)

    def controller_port(self) -> int:
        """The recorder's port of the broker to ask for changes of the cluster: with ZooKeeper the controller."""
        answer = ask(self.any_port(), "Metadata", METADATA_VERSION, {"Topics": []}, 5.0)
        return self[answer["ControllerId"]].port

    def any_port(self) -> int:
        """The recorder's port of some running broker."""
        return self.running()[0].port

    def features(self) -> dict[str, int]:
        """The finalized feature levels, e.g. ``transaction.version``, as the broker describes them."""
        answer = ask(
            self.any_port(), "ApiVersions", 3, {"ClientSoftwareName": "recorder", "ClientSoftwareVersion": "1"}
        )
        return {row["Name"]: row["MaxVersionLevel"] for row in answer["FinalizedFeatures"]}

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: dict[str, str] | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic and wait until each partition is led.

        Args:
            name: the topic's name.
            partitions: the number of partitions.
            configs: the topic's configurations.
            replicas: for each partition the node ids, the preferred leader first; None: on all brokers.

        Raises:
            BrokerFailed: when the brokers refuse.
        """
        row: Message = {
            "Name": name,
            "NumPartitions": partitions,
            "ReplicationFactor": min(len(self.brokers), 3),
            "Configs": [{"Name": key, "Value": value} for key, value in (configs or {}).items()],
        }
        if replicas is not None:
            assigned = [{"PartitionIndex": n, "BrokerIds": list(nodes)} for n, nodes in enumerate(replicas)]
            row |= {"NumPartitions": -1, "ReplicationFactor": -1, "Assignments": assigned}
        answer = ask(self.controller_port(), "CreateTopics", 7, {"Topics": [row], "timeoutMs": 20_000}, 30.0)
        for topic in answer["Topics"]:
            if topic["ErrorCode"]:
                raise BrokerFailed(f"topic {name}: error {topic['ErrorCode']} {topic['ErrorMessage']}")

        def led() -> bool:
            rows = self.partitions(name)
            return len(rows) == partitions and all(self._leads(name, row) for row in rows)

        self._wait(f"leaders of {name}", led)

    def _leads(self, topic: str, row: Message) -> bool:
        """Whether the leader that a partition's metadata names leads it already; metadata may be ahead of it."""
        if row["LeaderId"] <= 0 or row["ErrorCode"]:
            return False
        asked = {"PartitionIndex": row["PartitionIndex"], "CurrentLeaderEpoch": -1, "Timestamp": LATEST}
        topics = [{"Name": topic, "Partitions": [asked]}]
        request = {"ReplicaId": -1, "IsolationLevel": 0, "Topics": topics}
        answer = ask(self[row["LeaderId"]].port, "ListOffsets", LIST_OFFSETS_VERSION, request, 5.0)
        return bool(answer["Topics"][0]["Partitions"][0]["ErrorCode"] == ErrorCode.NONE)

    def partitions(self, topic: str, port: int | None = None) -> list[Message]:
        """Metadata of a topic's partitions: ``LeaderId``, ``LeaderEpoch``, ``IsrNodes`` and more."""
        answer = ask(port or self.any_port(), "Metadata", METADATA_VERSION, {"Topics": [{"Name": topic}]}, 5.0)
        return [p for t in answer["Topics"] if t["ErrorCode"] == ErrorCode.NONE for p in t["Partitions"]]

    def leader(self, topic: str, partition: int = 0) -> Message | None:
        """The partition's metadata when it has a leader that runs."""
        running = {broker.node for broker in self.running()}
        rows: Sequence[dict[str, Any]] = self.partitions(topic)
        return next((p for p in rows if p["PartitionIndex"] == partition and p["LeaderId"] in running), None)

    def wait_leader(self, topic: str, partition: int, other_than: int, seconds: float = 40.0) -> Message:
        """Wait until a partition is led by another node than the given one."""
        found: list[Message] = []

        def moved() -> bool:
            row = self.leader(topic, partition)
            if row is not None and row["LeaderId"] != other_than:
                found.append(row)
            return bool(found)

        self._wait(f"{topic}-{partition} led by another than {other_than}", moved, seconds)
        return found[0]

    def wait_leaderless(self, topic: str, partition: int, seconds: float = 40.0) -> None:
        """Wait until the controller knows that nobody leads a partition."""

        def leaderless() -> bool:
            return any(row["PartitionIndex"] == partition and row["LeaderId"] < 0 for row in self.partitions(topic))

        self._wait(f"{topic}-{partition} without a leader", leaderless, seconds)

    def wait_in_sync(self, topic: str, replicas: int, seconds: float = 60.0) -> None:
        """Wait until every partition of a topic has that many in-sync replicas."""
        self._wait(
            f"{replicas} replicas of {topic} in sync",
            lambda: all(len(p["IsrNodes"]) >= replicas for p in self.partitions(topic)),
            seconds,
        )

    def make_leader(self, topic: str, partition: int, node: int) -> None:
        """Make an in-sync replica the preferred leader of a partition, and elect it; nobody is stopped for it."""
        present = next(p for p in self.partitions(topic) if p["PartitionIndex"] == partition)
        order = [node, *(other for other in present["ReplicaNodes"] if other != node)]
        moved = {"Name": topic, "Partitions": [{"PartitionIndex": partition, "Replicas": order}]}
        ask(self.controller_port(), "AlterPartitionReassignments", 0, {"TimeoutMs": 20_000, "Topics": [moved]}, 30.0)
        elected = {"Topic": topic, "Partitions": [partition]}
        asked = {"ElectionType": 0, "TopicPartitions": [elected], "TimeoutMs": 20_000}
        ask(self.controller_port(), "ElectLeaders", 2, asked, 30.0)

    def abort_by_hand(self, topic: str, partition: int, start_offset: int = 0) -> None:
        """Abort the transaction that begins at an offset of a partition, only in this partition."""
        where = ("--topic", topic, "--partition", str(partition), "--start-offset", str(start_offset))
        bootstrap = ("--bootstrap-server", f"{HOST}:{self.any_port()}")
        self.running()[0].run_tool("org.apache.kafka.tools.TransactionsCommand", *bootstrap, "abort", *where)

    def coordinator(self, transactional_id: str) -> tuple[int, Message]:
        """The coordinator of a transactional id: its partition of ``__transaction_state``, with that one's metadata."""
        number = coordinator_partition(transactional_id, int(SETTINGS["transaction.state.log.num.partitions"]))
        found: list[Message] = []

        def known() -> bool:
            asked = {"KeyType": 1, "CoordinatorKeys": [transactional_id]}
            ask(self.any_port(), "FindCoordinator", 4, asked, 5.0)  # makes the topic if need be
            row = self.leader(TOPIC, number)
            if row is not None:
                found.append(row)
            return bool(found)

        self._wait(f"coordinator of {transactional_id}", known)
        return number, found[0]

    def wait_transaction(self, transactional_id: str, states: Collection[str], seconds: float = 60.0) -> None:
        """Wait until the coordinator has a transactional id in one of some states, e.g. ``CompleteAbort``."""

        def reached() -> bool:
            leader = self.coordinator(transactional_id)[1]["LeaderId"]
            asked = {"TransactionalIds": [transactional_id]}
            answer = ask(self[leader].port, "DescribeTransactions", 0, asked, 5.0)
            return any(row["TransactionState"] in states for row in answer["TransactionStates"])

        self._wait(f"{transactional_id} in {', '.join(sorted(states))}", reached, seconds)

    def copy_logs(self, target: Path, prefix: str = "") -> None:
        """Copy the partition folders that hold records, and :data:`KEPT_FILES`, to a folder for each log directory."""
        for broker in self.brokers:
            for number, data in enumerate(broker.all_data):
                folder = target / f"{prefix}{broker.node}{f'-{number}' if number else ''}"
                folder.mkdir(parents=True)
                for name in KEPT_FILES:
                    if (data / name).is_file():
                        shutil.copy2(data / name, folder / name)
                for partition in sorted(data.iterdir()):
                    if partition.is_dir() and holds_records(partition):
                        shutil.copytree(partition, folder / partition.name)
