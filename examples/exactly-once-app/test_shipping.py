"""The application on a broker with planned faults; three mistakes are found."""

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from mistakes import CommitsOutside, ForgetsOffsets, ForgetsToGoBack
from shipping import Shipping

ORDERS, SHIPMENTS, GROUP = "orders", "shipments", "shipping"


def place_orders(broker, count: int) -> None:
    """Place numbered orders in two partitions."""
    broker.create_topic(ORDERS, partitions=2)
    broker.create_topic(SHIPMENTS, partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(count):
        producer.produce(ORDERS, f"order {number}".encode(), partition=number % 2)
    assert producer.flush(20) == 0


def run(broker, application: type[Shipping], quiet: float = 1.0) -> None:
    """Run the application until no order has come for a while."""
    app = application(broker.bootstrap_servers, ORDERS, SHIPMENTS, GROUP)
    try:
        app.run(quiet)
    finally:
        app.close()


def order_of(record) -> bytes:
    """The identity that an order and its shipment share."""
    return record.value.removeprefix(b"shipped ")


def check(broker, *, everything: bool = True):
    return broker.assert_exactly_once(
        inputs=ORDERS, outputs=SHIPMENTS, group=GROUP, identity=order_of, everything=everything
    )


def refuse_a_batch(broker) -> None:
    """The second batch of shipments is refused: its transaction has to be aborted."""
    broker.fault("error", api="Produce", topic=SHIPMENTS, nth=2, error="MESSAGE_TOO_LARGE")


def test_every_order_is_shipped_once(kafka_eos_broker) -> None:
    place_orders(kafka_eos_broker, 60)
    run(kafka_eos_broker, Shipping)
    check(kafka_eos_broker)


@pytest.mark.kafka_eos(brokers=2)
def test_every_order_is_shipped_once_whatever_happens(kafka_eos_broker) -> None:
    broker = kafka_eos_broker
    place_orders(broker, 60)
    refuse_a_batch(broker)
    faults = [
        broker.fault("drop-answer", api="EndTxn", nth=1),
        broker.fault("repeat", api="Produce", topic=SHIPMENTS, nth=1, seconds=0.1),
        broker.fault("kill-broker", api="EndTxn", nth=4, when="after", seconds=0.3),
    ]
    run(broker, Shipping, quiet=2)
    assert [fault.fired for fault in faults] == [1, 1, 1]
    met = check(broker)
    assert met.aborted, "the application has to go back to the committed offsets"
    assert met.refused["MESSAGE_TOO_LARGE"]


def test_forgotten_offsets_are_found(kafka_eos_broker) -> None:
    place_orders(kafka_eos_broker, 20)
    run(kafka_eos_broker, ForgetsOffsets)
    with pytest.raises(AssertionError, match="output without its offset") as caught:
        check(kafka_eos_broker)
    assert diagram_of(caught.value).stat().st_size > 0


def test_orders_that_are_shipped_again_after_a_restart_are_found(kafka_eos_broker) -> None:
    place_orders(kafka_eos_broker, 20)
    run(kafka_eos_broker, ForgetsOffsets)
    run(kafka_eos_broker, ForgetsOffsets)
    with pytest.raises(AssertionError, match="input processed twice"):
        check(kafka_eos_broker)


def test_offsets_outside_of_the_transaction_are_found_and_drawn(kafka_eos_broker) -> None:
    place_orders(kafka_eos_broker, 20)
    run(kafka_eos_broker, CommitsOutside)
    with pytest.raises(AssertionError, match="was committed outside of its transaction") as caught:
        check(kafka_eos_broker)
    assert "OffsetCommit" in diagram_of(caught.value).read_text()


def test_a_group_that_is_not_there_is_told(kafka_eos_broker) -> None:
    place_orders(kafka_eos_broker, 2)
    run(kafka_eos_broker, Shipping)
    with pytest.raises(ValueError, match="no group 'shiping'; there is 'shipping'"):
        kafka_eos_broker.assert_exactly_once(inputs=ORDERS, outputs=SHIPMENTS, group="shiping", identity=order_of)


def test_a_forgotten_seek_is_found(kafka_eos_broker) -> None:
    place_orders(kafka_eos_broker, 100)
    refuse_a_batch(kafka_eos_broker)
    run(kafka_eos_broker, ForgetsToGoBack)
    with pytest.raises(AssertionError, match="input skipped") as caught:
        check(kafka_eos_broker)
    assert diagram_of(caught.value).stat().st_size > 0


def diagram_of(failure: AssertionError) -> Path:
    """The diagram that a failure names."""
    found = re.search(r"diagram:\s+(\S+\.html)", str(failure))
    assert found is not None, str(failure)
    return Path(found[1])
