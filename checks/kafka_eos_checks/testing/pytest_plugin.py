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

``pytest -rP`` shows the situations that the application met in each passed test.
"""

import warnings
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_eos_checks.testing.in_process_broker import InProcessBroker

MARKER = "kafka_eos"
OURS = ("kafka_eos", "kafka_eos_checks")
OPTIONS = ("brokers", "transaction_version", "verification", "faults", "seed")


class FaultNeverFired(UserWarning):
    """A test planned a fault that no request met; says how many requests matched it."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker with pytest."""
    config.addinivalue_line("markers", f"{MARKER}({', '.join(OPTIONS)}): how kafka_eos_broker is set up")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let pytest's short summary begin with what was found, not with the name of the exception's module."""
    report = yield
    error = call.excinfo.value if call.excinfo is not None else None
    crash = getattr(report.longrepr, "reprcrash", None)
    if type(error).__module__.partition(".")[0] in OURS and crash is not None:
        crash.message = str(error)
    return report


@pytest.fixture
def kafka_eos_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[InProcessBroker]":
    """A Kafka cluster on loopback: the reference's machines, faults on demand, and an audit."""
    from kafka_eos_checks.testing.in_process_broker import InProcessBroker  # noqa: PLC0415 - not before a test asks for it

    __tracebackhide__ = True
    marker = request.node.get_closest_marker(MARKER)
    options = marker.kwargs if marker is not None else {}
    unknown = [*map(repr, marker.args), *sorted(set(options) - set(OPTIONS))] if marker is not None else []
    if unknown:
        raise pytest.UsageError(f"marker {MARKER}: no option {unknown[0]}; there are {'=, '.join(OPTIONS)}=")
    with InProcessBroker(tmp_path_factory.mktemp("kafka-eos"), **options) as broker:
        yield broker
    for met in broker.met:
        request.node.add_report_section("teardown", "kafka-eos", f"{met}\n")
    for tally in broker.faults.never_fired():
        warnings.warn(f"a planned fault never happened: {tally.in_words()}", FaultNeverFired, stacklevel=1)
