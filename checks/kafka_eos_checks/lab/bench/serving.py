"""The served reference compared with Kafka itself: transactions of librdkafka, and the speed of a plain producer.

Both write to files and neither waits for the disk. Errors are the brokers' own counters: those that the server prints
when it ends, and Kafka's ErrorsPerSec, read through JMX.
"""

import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from kafka_eos_checks.brokers.brokers import HOST, Cluster, free_ports, java_command
from kafka_eos_checks.brokers.jars import have_jars
from kafka_eos_checks.kit.verdict import Verdict
from kafka_eos_checks.lab.bench.measure import Answer, Measured, Side, Work, measure, module_or_reason, verdicts
from kafka_eos_checks.testing.process import MOST_MEMORY, ServedProcess, peak_memory

TRANSACTIONS, QUICK_TRANSACTIONS = 300, 60
RECORDS_EACH = 50
RECORDS, QUICK_RECORDS = 1_000_000, 200_000
VALUE_BYTES = 100
RATE_TARGET = 300_000.0  # records/s
SECONDS = 60.0
TOOLS = "org.apache.kafka.tools."
_COUNTED = re.compile(r"request=(\w+),error=(\w+):Count=(\d+)")


class Served(ServedProcess):
    """The reference's server, with its files."""

    name = "kafka-eos serve --data"

    def __init__(self, folder: Path) -> None:
        super().__init__("--data", str(folder))


class Kafka:
    """A broker of Apache Kafka, with its counters on JMX."""

    name = "Apache Kafka"

    def __init__(self, folder: Path) -> None:
        (self._jmx,) = free_ports(1)
        options = {"port": self._jmx, "rmi.port": self._jmx, "host": HOST, "authenticate": "false", "ssl": "false"}
        jmx = [f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in options.items()]
        java = ("java", "-Xmx1g", "-Djava.awt.headless=true", f"-Djava.rmi.server.hostname={HOST}", *jmx)
        self._cluster = Cluster(folder, java=java)
        self.bootstrap = f"{HOST}:{self._cluster[1].port}"

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.kill_all()

    @property
    def pid(self) -> int:
        """The id of the process."""
        process = self._cluster[1].process
        assert process is not None, "the broker does not run"
        return process.pid

    def errors(self) -> dict[str, int]:
        """(API and error code) -> number of answers."""
        command = java_command(
            f"{TOOLS}JmxTool",
            *("--jmx-url", f"service:jmx:rmi:///jndi/rmi://{HOST}:{self._jmx}/jmxrmi"),
            *("--object-name", "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=*,error=*"),
            *("--attributes", "Count", "--one-time", "--report-format", "properties"),
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        counted = {f"{api} {code}": int(times) for api, code, times in _COUNTED.findall(done.stdout)}
        return {name: times for name, times in counted.items() if times and not name.endswith(" NONE")}


AnyCluster = Served | Kafka
Produce = Callable[[AnyCluster, int], Answer]


@dataclass(slots=True)
class Client:
    """A transactional producer that lives through all rounds, with the times of its transactions.

    Attributes:
        cluster: the cluster that it writes to.
        count: transactions per round.
        seconds: the time of each transaction, from its begin to the answer to its commit, including the warm-up.
    """

    cluster: AnyCluster
    count: int
    seconds: list[float] = field(default_factory=list)
    _producer: Any = None

    def begin(self) -> None:
        """Create the topic and the producer."""
        clients, admin = module_or_reason("confluent_kafka")[0], module_or_reason("confluent_kafka.admin")[0]
        topics = admin.AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        for future in topics.create_topics([admin.NewTopic(name, 1, 1) for name in ("transactions", "plain")]).values():
            future.result(SECONDS)
        self._producer = clients.Producer(
            {"bootstrap.servers": self.cluster.bootstrap, "transactional.id": "bench", "linger.ms": 0}
        )
        self._producer.init_transactions(SECONDS)

    def run(self) -> Answer:
        """Run one transaction after the other."""
        for _ in range(self.count):
            began = time.perf_counter()
            self._producer.begin_transaction()
            for _ in range(RECORDS_EACH):
                self._producer.produce("transactions", bytes(VALUE_BYTES))
            self._producer.commit_transaction(SECONDS)
            self.seconds.append(time.perf_counter() - began)
        return {"transactions": self.count}

    def check(self) -> Answer:
        """The records that a read_committed consumer gets."""
        clients = module_or_reason("confluent_kafka")[0]
        reader = clients.Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        reader.assign([clients.TopicPartition("transactions", 0, 0)])
        records, deadline = 0, time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            message = reader.poll(1.0)
            if message is not None and message.error() is None:
                records += 1
            elif message is not None and message.error().code() == clients.KafkaError._PARTITION_EOF:
                break
        reader.close()
        return {"records": records}

    def percentile(self, percent: int) -> float:
        """A percentile of the transactions' times in milliseconds, without the warm-up."""
        counted = sorted(self.seconds[self.count :])
        return 1000 * statistics.quantiles(counted, n=100, method="inclusive")[percent - 1]


def produce_by_tool(cluster: AnyCluster, records: int) -> Answer:
    """Run Kafka's own ProducerPerformance with its defaults, without a rate limit."""
    command = java_command(
        f"{TOOLS}ProducerPerformance",
        *("--topic", "plain", "--num-records", str(records), "--record-size", str(VALUE_BYTES), "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}"),
        java=("java", "-Xmx512m"),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    sent = re.search(r"^(\d+) records sent, .* 99\.9th\.$", done.stdout, re.MULTILINE)
    return {"records": int(sent[1]) if sent is not None else 0}


def produce_by_librdkafka(cluster: AnyCluster, records: int) -> Answer:
    """Run librdkafka's Python client with its defaults, without a rate limit; return the acknowledged records."""
    failed: list[object] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "delivery.report.only.error": True}
    producer = module_or_reason("confluent_kafka")[0].Producer(
        {**settings, "on_delivery": lambda error, _: failed.append(error)}
    )
    value = bytes(VALUE_BYTES)
    for _ in range(records):
        while True:
            try:
                producer.produce("plain", value)
                break
            except BufferError:  # the queue is full
                producer.poll(0.01)
    waiting = producer.flush(SECONDS)
    return {"records": records - waiting - len(failed)}


def run(folder: Path, *, quick: bool) -> Iterator[Verdict]:
    """Measure transactions, then plain records, on both servers in turns."""
    missing = "" if have_jars() else "the Kafka jars are not there; `kafka-eos lab record` fetches them"
    missing = missing or module_or_reason("confluent_kafka")[1]
    if missing:
        yield Verdict(check="bench", name="serve", expected="equal results", found=f"skipped: {missing}", ok=True)
        return
    with ExitStack() as stack:
        clusters: list[AnyCluster] = [Served(folder / "served"), Kafka(folder / "kafka")]
        clients = [Client(cluster, QUICK_TRANSACTIONS if quick else TRANSACTIONS) for cluster in clusters]
        for client in clients:
            stack.enter_context(client.cluster)
            client.begin()
        yield from _transactions_verdicts(clients, 3 if quick else 5)
        yield from _produce_verdicts(clusters, QUICK_RECORDS if quick else RECORDS, 1 if quick else 3)
        yield _memory_verdict(clusters)


def _transactions_verdicts(clients: list[Client], rounds: int) -> Iterator[Verdict]:
    sides = [Side(name=client.cluster.name, run=client.run, check=client.check) for client in clients]
    measured = measure(sides, rounds, label="serve")
    count = clients[0].count
    given = f"{count} transactions of {RECORDS_EACH} records of {VALUE_BYTES} bytes by librdkafka, one after the other"
    work = Work(part="serve", name="transactions", given=given, amount=count, unit="txn/s")
    for verdict in verdicts(work, sides[0], sides[1:], measured):
        shown = clients if " against " in verdict.name else clients[:1]
        figures: dict[str, int | float | str] = {}
        for client in shown:
            whose = "" if client is clients[0] else "their_"
            figures |= {f"{whose}p{percent}_ms": round(client.percentile(percent), 2) for percent in (50, 99)}
        latency = ", ".join(f"{name} {value}" for name, value in figures.items())
        yield replace(verdict, found=f"{verdict.found}; {latency}", figures={**verdict.figures, **figures})


def _produce_verdicts(clusters: list[AnyCluster], records: int, rounds: int) -> Iterator[Verdict]:
    producers: dict[str, Produce] = {"ProducerPerformance": produce_by_tool, "librdkafka": produce_by_librdkafka}
    for name, produce in producers.items():
        sides = [
            Side(
                name=cluster.name,
                run=partial(produce, cluster, records),
                start=partial(produce, cluster, 1),
            )
            for cluster in clusters
        ]
        measured: Measured = measure(sides, rounds, label=f"serve, plain records of {name}", warm_up=False)
        given = f"{records:,} records of {VALUE_BYTES} bytes by {name} with its defaults"
        target = RATE_TARGET if produce is produce_by_librdkafka else None
        work = Work(
            part="serve", name=f"records of {name}", given=given, amount=records, unit="records/s", target=target
        )
        yield from verdicts(work, sides[0], sides[1:], measured)


def _memory_verdict(clusters: Sequence[AnyCluster]) -> Verdict:
    """The peak memory and the error counts of each server; ends the reference's, which prints its counts then."""
    memory = [peak_memory(cluster.pid) for cluster in clusters]
    found = [
        f"{cluster.name}: {_megabytes(most)}answered in all {_in_words(cluster.errors())}"
        for cluster, most in zip(clusters, memory, strict=True)
    ]
    return Verdict(
        check="bench",
        name="serve: memory",
        expected=f"at most {MOST_MEMORY >> 20} MB resident",
        found="; ".join(found),
        ok=memory[0] is None or memory[0] <= MOST_MEMORY,
        figures={} if memory[0] is None else {"memory_mb": memory[0] >> 20},
    )


def _megabytes(memory: int | None) -> str:
    return "" if memory is None else f"at most {memory >> 20} MB resident, "


def _in_words(errors: dict[str, int]) -> str:
    return ", ".join(f"{name} {times}" for name, times in sorted(errors.items())) or "no error"
