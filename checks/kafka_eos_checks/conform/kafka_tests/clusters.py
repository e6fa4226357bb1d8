"""The clusters that Kafka's own tests are given: the server's, and real ones of Kafka 4.3."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_eos.server.cluster import Settings
from kafka_eos.server.threaded import ServedCluster
from kafka_eos_checks.brokers.brokers import Cluster

SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "auto.create.topics.enable": ("default_partitions", lambda text: int(text == "true")),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ("timeout_check_ms", int),
    "fetch.max.bytes": ("limits.fetch_bytes", int),
    "offsets.topic.num.partitions": ("internal_partitions", int),
    "group.initial.rebalance.delay.ms": ("group_initial_delay_ms", int),
    "group.consumer.heartbeat.interval.ms": ("consumer_heartbeat_ms", int),
    "group.consumer.session.timeout.ms": ("consumer_session_ms", int),
    "group.consumer.migration.policy": ("migration_policy", str),
    "group.coordinator.rebalance.protocols": ("rebalance_protocols", lambda text: frozenset(text.split(","))),
}
"""Properties of a broker, each with the field of the server's settings, or of their limits, that means the same."""

WITHOUT_MEANING = frozenset(
    {
        "offsets.topic.replication.factor",  # a partition of the server has one replica
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "auto.leader.rebalance.enable",
        "controlled.shutdown.enable",
        "transaction.state.log.num.partitions",  # the server's internal topics have the same number of partitions
        "unstable.api.versions.enable",  # the server has the released ones
        "group.consumer.min.session.timeout.ms",  # whoever starts the server may set what he likes
        "group.consumer.assignment.interval.ms",  # the server assigns at once
    }
)


class NotServed(ValueError):  # noqa: N818 - what the property is
    """A test wants a property of the broker that the server does not have."""


def settings_of(properties: Mapping[str, str], features: Mapping[str, int]) -> Settings:
    """A broker's properties, and levels of features, as the server's settings; what they leave out is as in Kafka.

    Raises:
        NotServed: the server has nothing of the kind.
    """
    settings = Settings(consumer_heartbeat_ms=5_000)
    for name, value in properties.items():
        if name in WITHOUT_MEANING:
            continue
        if name not in SETTINGS:
            raise NotServed(f"the server has no setting for {name}")
        field, read = SETTINGS[name]
        settings = _changed(settings, field, read(value))
    for name, level in features.items():
        if name == "transaction.version":
            settings = replace(settings, transactions=settings.transactions._replace(version=level))
        elif name != "group.version":
            raise NotServed(f"the server has no levels of {name}")
        elif level < 1:
            settings = replace(settings, rebalance_protocols=frozenset({"classic"}))
    return settings


def _changed(settings: Settings, field: str, value: Any) -> Settings:
    if field.startswith("limits."):
        return replace(settings, limits=replace(settings.limits, **{field.removeprefix("limits."): value}))
    return replace(settings, **{field: value})


@contextmanager
def served(
    brokers: int,
    properties: Mapping[str, str],
    features: Mapping[str, int],
    folder: Path,  # noqa: ARG001 - it is in memory
) -> Iterator[str]:
    """The server."""
    with ServedCluster(brokers, settings=settings_of(properties, features)) as cluster:
        yield cluster.bootstrap_servers


@contextmanager
def kafka(brokers: int, properties: Mapping[str, str], features: Mapping[str, int], folder: Path) -> Iterator[str]:
    """Real brokers of Kafka 4.3."""
    with Cluster(folder, size=brokers, settings=dict(properties), features=dict(features)) as cluster:
        yield ",".join(f"127.0.0.1:{broker.port}" for broker in cluster.brokers)
