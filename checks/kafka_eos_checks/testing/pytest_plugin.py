"""The pytest plugin: a broker for tests of applications that process every message exactly once.

    def test_every_order_is_shipped_once(kafka_eos_broker):
        kafka_eos_broker.create_topic("orders", partitions=2)
        …  # clients of kafka_eos_broker.bootstrap_servers
        kafka_eos_broker.fault("drop-answer", api="EndTxn", nth=1)
        …
        kafka_eos_broker.assert_exactly_once(inputs="orders", outputs="shipments", group="shipping")

A marker sets the broker up: ``@pytest.mark.kafka_eos(brokers=3, transaction_version=1)``; it takes the arguments of
``InProcessBroker``.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_eos_checks.testing.in_process_broker import InProcessBroker

MARKER = "kafka_eos"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker with pytest."""
    config.addinivalue_line(
        "markers", f"{MARKER}(brokers, transaction_version, verification, faults, seed): how kafka_eos_broker is set up"
    )


@pytest.fixture
def kafka_eos_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[InProcessBroker]":
    """A Kafka cluster on loopback: the reference's machines, faults on demand, and an audit."""
    from kafka_eos_checks.testing.in_process_broker import InProcessBroker  # noqa: PLC0415 - not before a test asks for it

    marker = request.node.get_closest_marker(MARKER)
    options = marker.kwargs if marker is not None else {}
    with InProcessBroker(tmp_path_factory.mktemp("kafka-eos"), **options) as broker:
        yield broker
