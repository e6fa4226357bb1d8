"""The measurements on a real broker: the sides of each part, and the evidence that they leave."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kafka_eos.wire.protocol import load_codec
from kafka_eos_checks.brokers.brokers import SETTINGS, Cluster
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, clients_jar
from kafka_eos_checks.brokers.journal import Journal
from kafka_eos_checks.brokers.proxy import Proxy, Route
from kafka_eos_checks.kit.terminal import progress_console
from kafka_eos_checks.lab.costs import client as cost_client
from kafka_eos_checks.lab.costs import wire
from kafka_eos_checks.lab.costs.client import CostClient
from kafka_eos_checks.lab.costs.turns import (
    FULL,
    PARTITIONS,
    QUICK,
    Evidence,
    Job,
    Side,
    Stage,
    kept,
    kept_pairs,
    part,
    take_turns,
)
from kafka_eos_checks.lab.record.command import client_versions

FORMAT = 1
BROKER_JAVA = ("java", "-Xmx1g", "-Djava.awt.headless=true")
TRANSACTION_SIZES = (1, 10, 100, 1000, 10_000)
VALUE_BYTES = (100, 1000)
COMMIT_INTERVALS_MS = (10, 30, 100, 300, 1000)
RECORDS_PER_SECOND = 500

AT_MOST_ONCE = {"acks": "0", "enable.idempotence": "false", "retries": "0"}
AT_LEAST_ONCE = {"acks": "1", "enable.idempotence": "false"}
ACKS_ALL = {"acks": "all", "enable.idempotence": "false"}
IDEMPOTENT = {"acks": "all", "enable.idempotence": "true"}


# ---- the parts


def producing_sides(value_bytes: int, seconds: float) -> list[Side]:
    """The sides: at most once, at least once as in the claim, acks=all both ways, and transactions of each size."""
    common: Job = {"job": "produce", "value_bytes": value_bytes, "seconds": seconds}
    plain = {
        "at most once (acks=0)": AT_MOST_ONCE,
        "at least once (acks=1)": AT_LEAST_ONCE,
        "acks=all": ACKS_ALL,
        "acks=all, idempotent": IDEMPOTENT,
    }
    sides = [Side(name, common | {"producer": settings}) for name, settings in plain.items()]
    for size in TRANSACTION_SIZES:
        settings = {"transactional.id": f"produce-{value_bytes}-{size}"}
        sides.append(Side(f"transactions of {size}", common | {"producer": settings, "transaction_size": size}))
    return sides


def produce(stage: Stage, evidence: Evidence) -> None:
    """Measure records per second, until a read_committed consumer can read all of them."""
    for size in VALUE_BYTES:
        about = f"values of {size} bytes, {PARTITIONS} partitions, no keys; until everything is readable"
        with part(evidence, f"produce {size}", about) as content:
            sides = producing_sides(size, stage.effort.seconds)
            topics = {side.name: stage.topic(f"produce {size}") for side in sides}
            content["sides"] = kept(
                take_turns(
                    sides,
                    stage.effort.rounds,
                    f"producing {size} bytes",
                    lambda side, topics=topics: stage.do({**side.job, "topic": topics[side.name]}),  # type: ignore[misc]
                )
            )


def idempotence(stage: Stage, evidence: Evidence) -> None:
    """Compare acks=all with and without idempotence, in many short turns."""
    for size in VALUE_BYTES:
        about = f"acks=all, values of {size} bytes, {PARTITIONS} partitions, both producers in turns of 0.1 s"
        with part(evidence, f"idempotence {size}", about) as content:
            progress_console.print(f"idempotence, {size} bytes: {stage.effort.slices} turns of 2 sides")
            answer = stage.do({
                "job": "produce pairs", "value_bytes": size, "seconds": 0.1, "slices": stage.effort.slices,
                "topic": stage.topic("idempotence"), "producer": ACKS_ALL,
                "topic_1": stage.topic("idempotence"), "producer_1": IDEMPOTENT,
            })  # fmt: skip
            content["sides"] = kept_pairs(("acks=all", "acks=all, idempotent"), answer)


# name of the topic -> records, records in a transaction, which transactions are aborted (each so-many-th)
READ_TOPICS = {
    "no transactions": (200_000, 0, 0),
    "transactions of 1000": (200_000, 1000, 0),
    "transactions of 100": (200_000, 100, 0),
    "transactions of 100, a fifth aborted": (200_000, 100, 5),
    "transactions of 10": (80_000, 10, 0),
}


def read(stage: Stage, evidence: Evidence) -> None:
    """Compare both isolation levels on the same topics, which are read several times in turns."""
    levels = ("read_uncommitted", "read_committed")
    for name, (records, size, abort_every) in READ_TOPICS.items():
        about = "values of 100 bytes; the whole topic, from beginning to end, both consumers in turns"
        with part(evidence, f"read, {name}", about) as content:
            written = _write(stage, stage.topic("read"), records, size, abort_every)
            content |= {column: written[column] for column in ("records", "transactions")}
            progress_console.print(f"reading, {name}: {stage.effort.slices} turns of 2 sides")
            consumers = [{"isolation.level": level} for level in levels]
            answer = stage.do({
                "job": "consume pairs", "topic": written["topic"], "slices": stage.effort.slices,
                "consumer": consumers[0], "consumer_1": consumers[1],
            })  # fmt: skip
            content["sides"] = kept_pairs(levels, answer, ("rate", "seconds"))


def _write(stage: Stage, topic: str, records: int, size: int = 0, abort_every: int = 0) -> dict[str, Any]:
    count = records // stage.effort.shrink
    progress_console.print(f"writing {count:,} records, {size or 'no'} in a transaction")
    written = stage.do({
        "job": "produce", "topic": topic, "value_bytes": 100, "seconds": 150, "records": count,
        "producer": {"transactional.id": topic} if size else IDEMPOTENT,
        "transaction_size": size, "abort_every": abort_every,
    })  # fmt: skip
    return written | {"topic": topic}


def copy(stage: Stage, evidence: Evidence) -> None:
    """Measure an application that reads, writes and commits offsets in three ways, over the records per commit."""
    about = f"values of 100 bytes, {PARTITIONS} partitions, offsets committed with every so many records"
    with part(evidence, "copy", about) as content:
        source = _write(stage, stage.topic("source"), 1_000_000)["topic"]
        sides = []
        for mode, settings in (
            ("at-most-once", AT_MOST_ONCE),
            ("at-least-once", AT_LEAST_ONCE),
            ("exactly-once", None),
        ):
            for size in TRANSACTION_SIZES:
                name = f"{mode}, {size}"
                job: Job = {
                    "job": "copy", "mode": mode, "source": source, "transaction_size": size,
                    "topic": stage.topic("copy"), "seconds": stage.effort.seconds,
                    "producer": {"transactional.id": f"copy-{size}"} if settings is None else settings,
                    "consumer": {"group.id": name.replace(", ", "-"), "enable.auto.commit": "false"},
                }  # fmt: skip
                sides.append(Side(name, job))
        rounds = max(3, stage.effort.rounds // 2 + 1)
        content["sides"] = kept(take_turns(sides, rounds, "copying", lambda side: stage.do(side.job)))


def latency(stage: Stage, evidence: Evidence) -> None:
    """Measure the time of a record from send() to a read_committed consumer, over the commit interval."""
    about = f"{RECORDS_PER_SECOND} records/s of 100 bytes, one partition, from send() to poll()"
    with part(evidence, "latency", about) as content:
        sides = []
        for interval in (0, *COMMIT_INTERVALS_MS):
            topic = stage.topic("latency", 1)
            seconds = max(1.0, 4 * interval / 1000) / (1 if stage.effort is FULL else 2)
            producer = {"transactional.id": topic} if interval else IDEMPOTENT
            job: Job = {
                "job": "latency", "topic": topic, "partitions": 1, "value_bytes": 100, "rate": RECORDS_PER_SECOND,
                "records": int(RECORDS_PER_SECOND * seconds), "commit_interval_ms": interval,
                "producer": producer | {"linger.ms": "0"},
                "consumer": {"isolation.level": "read_committed" if interval else "read_uncommitted"},
            }  # fmt: skip
            sides.append(Side(f"commit every {interval} ms" if interval else "no transactions", job))
        rounds = max(3, stage.effort.rounds // 2 + 1)
        answers = take_turns(sides, rounds, "latency", lambda side: stage.do(side.job))
        content["sides"] = kept(answers, ["p50_ms", "p90_ms", "p99_ms"])


def machine() -> dict[str, Any]:
    """The machine and the software of the measurement."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "processor": model,
        "system": f"{platform.system()} {platform.release()}",
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
    }


PARTS = ("wire", "produce", "idempotence", "read", "copy", "latency")


def measure(folder: Path, *, quick: bool, only: Sequence[str] = PARTS) -> Evidence:
    """Measure on a new broker in a folder.

    Args:
        folder: the folder for the broker's and the client's files.
        quick: fewer rounds, shorter runs, fewer records.
        only: some of ``PARTS``.

    Raises:
        BrokerFailed, JobFailed: when the broker or the client does not do what it should.
    """
    evidence: Evidence = {
        "format": FORMAT,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "quick": quick,
        "machine": machine(),
        "kafka": KAFKA_VERSION,
        "clients": client_versions(KAFKA_VERSION),
        "java": {"broker": " ".join(BROKER_JAVA), "client": " ".join(cost_client.JAVA)},
        "parts": {},
    }
    with Cluster(folder / "broker", java=BROKER_JAVA) as cluster, CostClient(folder) as client:
        evidence["broker_settings"] = SETTINGS | cluster.settings
        evidence["features"] = cluster.features()
        stage = Stage(cluster, client, QUICK if quick else FULL)
        if "wire" in only:
            broker = cluster[1]
            routes = [Route(broker.name, broker.advertised_port, broker.proxied_port)]
            about = "requests through a proxy that counts them, markers in the log"
            with (
                Proxy(load_codec(clients_jar()), Journal("costs"), routes) as proxy,
                part(evidence, "wire", about) as content,
            ):
                content.update(wire.count(stage, proxy))
        if "produce" in only:
            produce(stage, evidence)
        if "idempotence" in only:
            idempotence(stage, evidence)
        if "read" in only:
            read(stage, evidence)
        if "copy" in only:
            copy(stage, evidence)
        if "latency" in only:
            latency(stage, evidence)
        cluster.stop_all()
    return evidence
