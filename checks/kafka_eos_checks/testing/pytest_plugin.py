"""The pytest plugin: a broker for tests of applications that process every message exactly once.

    def test_every_order_is_shipped_once(kafka_eos_broker):
        kafka_eos_broker.create_topic("orders", partitions=2)
        …  # clients of kafka_eos_broker.bootstrap_servers
        kafka_eos_broker.fault("drop-answer", api="EndTxn", nth=1)
        …
        kafka_eos_broker.assert_exactly_once(inputs="orders", outputs="shipments", group="shipping")

A marker sets the broker up: ``@pytest.mark.kafka_eos(brokers=3, transaction_version=1)``; it takes the arguments of
``InProcessBroker``.

A fault that never fires is a warning, ``FaultNeverFired``, in pytest's summary: the test did not test what it plans.
``filterwarnings = ["error::kafka_eos_checks.testing.pytest_plugin.FaultNeverFired"]`` makes it an error.
"""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_eos_checks.testing.in_process_broker import InProcessBroker

MARKER = "kafka_eos"


class FaultNeverFired(UserWarning):
    """A test planned a fault that no request met; says how many requests matched it."""


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
    for tally in broker.faults.never_fired():
        warnings.warn(f"a planned fault never happened: {tally.in_words()}", FaultNeverFired, stacklevel=1)
