"""The same application three times, each with one mistake that the tests have to find."""

from collections.abc import Sequence

from confluent_kafka import Message

from shipping import Shipping


class ForgetsOffsets(Shipping):
    """Never calls ``send_offsets_to_transaction``: after a restart it ships every order again."""

    def send_offsets(self, orders: Sequence[Message]) -> None:
        """Do nothing."""


class CommitsOutside(Shipping):
    """Commits offsets by the consumer: after a crash in between, orders are lost or shipped again."""

    def send_offsets(self, orders: Sequence[Message]) -> None:
        """Commit the offsets after the orders, outside of the transaction."""
        for order in orders:
            self.consumer.commit(message=order, asynchronous=False)


class ForgetsToGoBack(Shipping):
    """Polls on after an abort: the aborted orders are never shipped, and the next commit skips them."""

    def go_back(self, orders: Sequence[Message]) -> None:
        """Do nothing."""
