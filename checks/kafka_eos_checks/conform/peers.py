"""Brokers to compare: each is started on the loopback interface, asked everything, and stopped again."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kafka_eos.machines.broker import HEARTBEAT
from kafka_eos.server.cluster import Settings
from kafka_eos.server.threaded import ServedCluster
from kafka_eos.server.transactions import TransactionSettings
from kafka_eos_checks.brokers.brokers import Cluster, free_ports
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, NEWEST, have_jars
from kafka_eos_checks.conform.wire import Address, Unreachable, Wire

KFAKE = Path(__file__).with_name("kfake")
STARTING_SECONDS = 20.0
BUILDING_SECONDS = 900.0
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
"""Kafka 4.3 then assigns partitions as soon as a member comes or goes, as the reference does; nobody has to wait."""


class Absent(RuntimeError):  # noqa: N818 - what is wrong
    """A peer that cannot be started here; says what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A broker, and how clients speak to it.

    Attributes:
        name: its name.
        transaction_version: the version that clients follow.
        start: starts it in a folder; a context manager that gives its ``host:port``.
        verification: it asks coordinators about transactions of version 1.
        has_to_conform: a divergence is an error of the spec, or of the reference.
        unasked: the APIs that it is not asked for although it offers them, with the reason.
    """

    name: str
    transaction_version: int
    start: Callable[[Path], AbstractContextManager[str]]
    verification: bool = True
    has_to_conform: bool = False
    unasked: Mapping[str, str] = field(default_factory=dict)


def _reference(version: int) -> Callable[[Path], AbstractContextManager[str]]:
    @contextmanager
    def start(folder: Path) -> Iterator[str]:  # noqa: ARG001 - it is in memory
        settings = Settings(transactions=TransactionSettings(version=version))
        with ServedCluster(settings=settings) as cluster:
            yield cluster.bootstrap_servers

    return start


def _kafka(release: str, version: int | None) -> Callable[[Path], AbstractContextManager[str]]:
    @contextmanager
    def start(folder: Path) -> Iterator[str]:
        if not have_jars(release):
            raise Absent(f"the jars of Kafka {release} are not there; `make peers` in a clone fetches them")
        if shutil.which("java") is None:
            raise Absent("there is no Java")
        features = {} if version is None else {"transaction.version": version}
        with Cluster(folder, features=features, kafka=release, settings=AT_ONCE) as cluster:
            yield f"127.0.0.1:{cluster.any_port()}"

    return start


@contextmanager
def _kfake(folder: Path) -> Iterator[str]:
    """Franz-go's fake cluster, built with Go from what its module lists."""
    if shutil.which("go") is None:
        raise Absent("there is no Go to build it with")
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "kfake"
    built = subprocess.run(
        ["go", "build", "-o", str(program), "."],
        cwd=KFAKE,
        capture_output=True,
        text=True,
        timeout=BUILDING_SECONDS,
        check=False,
    )
    if built.returncode:
        raise Absent(
            f"Go cannot build it: {built.stderr.strip().splitlines()[-1] if built.stderr else 'no reason given'}"
        )
    [port] = free_ports(1)
    process = subprocess.Popen([program, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(Address("127.0.0.1", port))
        yield f"127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STARTING_SECONDS)


def _wait_for(address: Address) -> None:
    deadline = time.monotonic() + STARTING_SECONDS
    while True:
        wire = Wire(address)
        try:
            wire.connect()
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return
        finally:
            wire.close()


@contextmanager
def _mock(folder: Path) -> Iterator[str]:  # noqa: ARG001 - it is in memory
    """The mock cluster inside librdkafka."""
    try:
        import confluent_kafka  # noqa: PLC0415 - in the extra `record`
    except ImportError:
        raise Absent("confluent-kafka is not installed; it is in the extra `record`") from None
    owner = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 3})
    [broker] = owner.list_topics(timeout=STARTING_SECONDS).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del owner


def _in_every_setting(release: str) -> Iterator[Peer]:
    """A release of Apache Kafka with each level of ``transaction.version``, and with older clients at the highest."""
    for name, of_clients, level in (
        ("", 2, 2),
        (", clients of version 1", 1, 2),
        (", transaction.version 1", 1, 1),
        (", transaction.version 0", 0, 0),
    ):
        yield Peer(
            name=f"Apache Kafka {release}{name}",
            transaction_version=of_clients,
            start=_kafka(release, level),
            has_to_conform=True,
        )


PEERS = (
    *(
        Peer(
            name=f"kafka-eos serve, transaction.version {version}",
            transaction_version=version,
            start=_reference(version),
            has_to_conform=True,
        )
        for version in (2, 1, 0)
    ),
    *(each for release in (NEWEST, KAFKA_VERSION) for each in _in_every_setting(release)),
    Peer(name="Apache Kafka 3.9.1", transaction_version=0, start=_kafka("3.9.1", None)),
    Peer(name="Apache Kafka 2.8.2", transaction_version=0, start=_kafka("2.8.2", None), verification=False),
    Peer(name="kfake", transaction_version=2, start=_kfake),
    Peer(name="kfake, clients of version 1", transaction_version=1, start=_kfake),
    Peer(
        name="librdkafka's mock cluster",
        transaction_version=1,
        start=_mock,
        unasked={HEARTBEAT: f"{HEARTBEAT}: one without names and pattern ends the mock's process (librdkafka 2.16)"},
    ),
)
