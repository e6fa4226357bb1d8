"""Orders in, shipments out: every order is shipped exactly once.

Each batch has one transaction, with the shipments and the offsets after their orders.
"""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SECONDS = 20.0


class Shipping:
    """The application.

    Args:
        bootstrap_servers: the cluster's bootstrap servers.
        orders: the topic to read.
        shipments: the topic to write.
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
        """Note that partitions are assigned."""
        self.last = time.monotonic()

    def run(self, quiet: float, batch: int = 10) -> None:
        """Ship orders until none has come for ``quiet`` seconds."""
        while self.last is None or time.monotonic() < self.last + quiet:
            orders = [message for message in self.consumer.consume(batch, 0.1) if message.error() is None]
            if orders:
                self.ship(orders)
                self.last = time.monotonic()

    def ship(self, orders: Sequence[Message]) -> None:
        """Ship some orders in a transaction; after an abort, go back to the first of them."""
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
        """Send the offsets after the orders to the transaction."""
        behind = {
            order.partition(): TopicPartition(order.topic(), order.partition(), order.offset() + 1) for order in orders
        }
        self.producer.send_offsets_to_transaction(
            list(behind.values()), self.consumer.consumer_group_metadata(), SECONDS
        )

    def commit(self) -> None:
        """Commit, and retry while the outcome is unknown."""
        while True:
            try:
                self.producer.commit_transaction(SECONDS)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def go_back(self, orders: Sequence[Message]) -> None:
        """Seek to the first of the aborted orders, to read them again."""
        first: dict[int, TopicPartition] = {}
        for order in orders:
            first.setdefault(order.partition(), TopicPartition(order.topic(), order.partition(), order.offset()))
        for place in first.values():
            self.consumer.seek(place)

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()
