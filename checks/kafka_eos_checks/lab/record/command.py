"""``kafka-eos lab record``: record real brokers and clients under faults."""

import argparse
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from kafka_eos.histories.history import write_history
from kafka_eos.wire.protocol import load_codec
from kafka_eos_checks.brokers.brokers import SETTINGS, BrokerFailed, Cluster
from kafka_eos_checks.brokers.jars import KAFKA_VERSION, RELEASES, NoJars, clients_jar, need_jars
from kafka_eos_checks.brokers.journal import Journal, StillWaiting
from kafka_eos_checks.brokers.proxy import Proxy, Route
from kafka_eos_checks.kit.missing import MissingExtra, need
from kafka_eos_checks.kit.recording import UnsafeArchive, pack
from kafka_eos_checks.kit.terminal import answer_console, progress_console
from kafka_eos_checks.lab.record import application_scenarios as _application_scenarios  # noqa: F401 - registers its own
from kafka_eos_checks.lab.record import healthy_scenarios as _healthy_scenarios  # noqa: F401 - the same
from kafka_eos_checks.lab.record import random_scenarios as _random_scenarios  # noqa: F401 - the same
from kafka_eos_checks.lab.record import scenarios as _scenarios  # noqa: F401 - the same
from kafka_eos_checks.lab.record import transaction_scenarios as _transaction_scenarios  # noqa: F401 - the same
from kafka_eos_checks.lab.record.clients import ClientFailed
from kafka_eos_checks.lab.record.stage import CLUSTERS, SCENARIOS, Scenario, Stage

EPILOG = """examples:
  kafka-eos lab record one-broker/idempotent-lost-acks --out build/recording
  kafka-eos lab record one-broker three-brokers --out build/recording --seed 1 --pack checks/recordings
  kafka-eos lab record transactions --kafka 3.9.1 --out build/recording
  kafka-eos lab record random-faults --seed 7 --out build/recording     the seed decides clients, topics and faults

A scenario is cluster/name, or a cluster's name for all of its scenarios. Scenarios of one cluster share its brokers
and make one recording: DIR/<cluster>/ with manifest.json, histories/ and brokers/. The live brokers' own folders stay
in DIR/<cluster>.work/. Everything listens on 127.0.0.1.

scenarios:
"""


def add_parser(subparsers: Any, help_line: str) -> None:
    """Add ``record`` to the command's parser."""
    listed = "".join(f"  {name:<46} {_summary(found)}\n" for name, found in SCENARIOS.items())
    parser = subparsers.add_parser(
        "record",
        help=help_line,
        description=__doc__,
        epilog=EPILOG + listed,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "scenarios", nargs="+", metavar="SCENARIO", help="a scenario, or a cluster for all of its scenarios"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the recordings go")
    parser.add_argument("--seed", type=int, default=0, help="decides faults, aborts and ids (default 0)")
    parser.add_argument(
        "--kafka",
        choices=RELEASES,
        default=KAFKA_VERSION,
        help=f"the brokers' release (default {KAFKA_VERSION})",
    )
    parser.add_argument("--pack", type=Path, metavar="DIR", help="also pack each recording to DIR/<cluster>.tar.xz")
    parser.set_defaults(run=run)


def _summary(found: Scenario) -> str:
    return (found.play.__doc__ or "").strip().splitlines()[0]


def chosen(names: Sequence[str], kafka: str = KAFKA_VERSION) -> dict[str, list[Scenario]]:
    """The scenarios of a Kafka release that the names mean, by cluster, in the order of their definition.

    Raises:
        KeyError: if a name is neither a scenario nor a cluster.
    """
    made = {name: found for name, found in SCENARIOS.items() if kafka in found.kafka}
    clusters = [cluster for cluster in CLUSTERS if cluster in {s.cluster for s in made.values()}]
    unknown = [name for name in names if name not in made and name not in clusters]
    if unknown:
        there = ", ".join([*clusters, *made])
        raise KeyError(f"no scenario {', '.join(unknown)} with Kafka {kafka}; there are: {there}")
    found = [s for s in made.values() if s.name in names or s.cluster in names]
    return {
        cluster: [s for s in found if s.cluster == cluster]
        for cluster in clusters
        if cluster in {s.cluster for s in found}
    }


def recording_name(cluster: str, kafka: str) -> str:
    """The name of a cluster's recording, with the release unless it is the newest."""
    return cluster if kafka == KAFKA_VERSION else f"{cluster}-{kafka.rpartition('.')[0]}"


def client_versions(kafka: str) -> dict[str, str]:
    """The versions of the clients; the Java clients have the brokers' release."""
    client = need("confluent_kafka", "record")
    return {
        "confluent-kafka": client.version()[0] if isinstance(client.version(), tuple) else client.version(),
        "librdkafka": client.libversion()[0],
        "kafka-clients": kafka,
    }


def play(found: Scenario, cluster: Cluster, proxy: Proxy, out: Path, seed: int, work: Path) -> dict[str, Any]:
    """Run one scenario and write its history; returns its entry of the manifest."""
    journal = Journal(found.name)
    plan = found.plan(seed)
    clients = work / "clients" / found.short_name
    stage = Stage(found.short_name, seed, cluster, proxy, journal, clients, out / "brokers")
    begun = time.monotonic()
    proxy.begin(journal, plan)
    history = Path("histories") / f"{found.short_name}.jsonl"
    (out / history).parent.mkdir(parents=True, exist_ok=True)
    try:
        found.play(stage)
        proxy.quiesce()
    finally:  # also after a failed run
        events = write_history(out / history, journal.events())
        if not events:  # its clients write no events
            (out / history).unlink()
    progress_console.print(f"{found.name}: {events} events in {time.monotonic() - begun:.1f} s")
    return {
        "name": found.name,
        "about": _summary(found),
        "seed": seed,
        "history": history.as_posix() if events else None,
        "events": events,
        "topics": stage.topics,
        "proxy": {
            "chances": {str(k): v for k, v in plan.chances.items()},
            "longest_seconds": plan.longest,
            "apis": sorted(plan.apis),
        },
    }


def record(cluster_name: str, scenarios: list[Scenario], out: Path, seed: int, command: str, kafka: str) -> Path:
    """Record scenarios on one new cluster; returns the recording's folder, which is replaced."""
    name = recording_name(cluster_name, kafka)
    folder, work = out / name, out / f"{name}.work"
    for old in (folder, work):
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True)
    codec = load_codec(clients_jar(kafka))
    kind = CLUSTERS[cluster_name]
    with Cluster(
        work / "brokers",
        size=kind.size,
        seed=seed,
        kafka=kafka,
        settings=dict(kind.settings),
        log_directories=kind.log_directories,
    ) as cluster:
        routes = [Route(b.name, b.advertised_port, b.proxied_port) for b in cluster.brokers]
        manifest = {
            "format": 1,
            "recording": name,
            "command": command,
            "kafka": kafka,
            "brokers": len(cluster.brokers),
            "cluster_id": cluster.cluster_id,
            "features": cluster.features(),
            "clients": client_versions(kafka),
            "settings": SETTINGS | cluster.settings,
        }
        with Proxy(codec, Journal("before"), routes) as proxy:
            played = [play(found, cluster, proxy, folder, seed, work) for found in scenarios]
        cluster.stop_all()
        cluster.copy_logs(folder / "brokers")
    text = json.dumps(manifest | {"scenarios": played}, indent=1)
    (folder / "manifest.json").write_text(text + "\n", encoding="utf-8")
    return folder


def _terminated(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's form
    raise SystemExit(128 + number)


def run(arguments: argparse.Namespace) -> int:
    """Record; return 0 if all scenarios went as planned, 1 if a broker or client failed, 2 for unusable arguments."""
    signal.signal(signal.SIGTERM, _terminated)  # so that the brokers end with the recorder
    kafka = arguments.kafka
    words = [*arguments.scenarios, "--seed", str(arguments.seed)]
    words += [] if kafka == KAFKA_VERSION else ["--kafka", kafka]
    try:
        groups = chosen(arguments.scenarios, kafka)
        need("confluent_kafka", "record")
        need_jars()
        need_jars(kafka)
        for name, scenarios in groups.items():
            command = f"kafka-eos lab record {' '.join(words)}"
            folder = record(name, scenarios, arguments.out, arguments.seed, command, kafka)
            answer_console.print(f"{folder}: {len(scenarios)} scenarios")
            if arguments.pack is not None:
                archive = arguments.pack / f"{folder.name}.tar.xz"
                answer_console.print(f"{archive}: {pack(folder, archive):,} bytes")
    except (KeyError, MissingExtra, NoJars, UnsafeArchive) as error:
        print(f"kafka-eos lab record: {error.args[0]}", file=sys.stderr)
        return 2
    except (BrokerFailed, ClientFailed, StillWaiting) as error:
        print(f"kafka-eos lab record: {error}", file=sys.stderr)
        return 1
    return 0
