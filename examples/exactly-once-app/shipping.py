"""Orders in, shipments out: every order is shipped exactly once.

One transaction for each batch: the shipments, and the offsets behind the orders that they come from.
"""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SECONDS = 20.0


class Shipping:
    """The application.

    Args:
        bootstrap_servers: of the cluster.
        orders: the topic that is read.
        shipments: the topic that is written.
        group: the consumer group.
    """

    def __init__(self, bootstrap_servers: str, orders: str, shipments: str, group: str) -> None:
        self.shipments = shipments
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        self.producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": f"{group}-1", "linger.ms": 0}
        )
        self.producer.init_transactions(SECONDS)
        self.consumer.subscribe([orders], on_assign=self.assigned)
        self.last: float | None = None

    def assigned(self, *_: Any) -> None:
        """It is known which partitions to read."""
        self.last = time.monotonic()

    def run(self, quiet: float, batch: int = 10) -> None:
        """Ship orders until none has come for a while, in seconds."""
        while self.last is None or time.monotonic() < self.last + quiet:
            orders = [message for message in self.consumer.consume(batch, 0.1) if message.error() is None]
            if orders:
                self.ship(orders)
                self.last = time.monotonic()

    def ship(self, orders: Sequence[Message]) -> None:
        """Ship some orders in a transaction; if that has to be aborted, go back to where they begin."""
        self.producer.begin_transaction()
        try:
            for order in orders:
                self.producer.produce(self.shipments, b"shipped " + order.value(), partition=order.partition())
            self.send_offsets(orders)
            self.commit()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.producer.abort_transaction(SECONDS)
            self.go_back(orders)

    def send_offsets(self, orders: Sequence[Message]) -> None:
        """The offsets behind the orders belong to the transaction."""
        behind = {
            order.partition(): TopicPartition(order.topic(), order.partition(), order.offset() + 1) for order in orders
        }
        self.producer.send_offsets_to_transaction(
            list(behind.values()), self.consumer.consumer_group_metadata(), SECONDS
        )

    def commit(self) -> None:
        """Commit, and again for as long as it is not known whether that was done."""
        while True:
            try:
                self.producer.commit_transaction(SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def go_back(self, orders: Sequence[Message]) -> None:
        """What was aborted is read once more."""
        first: dict[int, TopicPartition] = {}
        for order in orders:
            first.setdefault(order.partition(), TopicPartition(order.topic(), order.partition(), order.offset()))
        for place in first.values():
            self.consumer.seek(place)

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()
